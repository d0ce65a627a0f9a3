/*
 * nccl_profiler.h - the part of NCCL's profiler interface that nccl_profiler.c uses (its versions 4
 * and 5: NCCL 2.27, and 2.28 and later). Layouts, and the two symbols that NCCL searches, are
 * NCCL's; other names are ours.
 */
#ifndef PL_CUDA_NCCL_PROFILER_H
#define PL_CUDA_NCCL_PROFILER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

enum { /* types of events, as bits of a mask */
       NP_GROUP = 1 << 0,
       NP_COLL = 1 << 1,
       NP_P2P = 1 << 2,
       NP_PROXY_OP = 1 << 3,
       NP_PROXY_STEP = 1 << 4,
       /* from version 5 on */
       NP_GROUP_API = 1 << 8,
       NP_COLL_API = 1 << 9,
       NP_P2P_API = 1 << 10,
       NP_KERNEL_LAUNCH = 1 << 11,
};
enum { /* states of a proxy step */
       NP_SEND_GPU_WAIT = 8,
       NP_SEND_WAIT = 9,
       NP_RECV_WAIT = 10,
       NP_RECV_FLUSH_WAIT = 11,
       NP_RECV_GPU_WAIT = 12,
};

struct np_coll {
	uint64_t seq;
	const char *func;
	const void *src;
	void *dst;
	size_t count;
	int root;
	const char *type;
	uint8_t channels, warps;
	const char *algo, *proto; /* version 5 has more members */
};
struct np_p2p {
	const char *func;
	void *buffer;
	const char *type;
	size_t count;
	int peer;
	uint8_t channels;
};
struct np_proxy_op {
	pid_t pid;
	uint8_t channel;
	int peer, steps, chunk, sends;
};
union np_what {
	struct np_coll coll;
	struct np_p2p p2p;
	struct np_proxy_op proxy_op;
	uint8_t room[128];
};
struct np_event_v4 {
	uint8_t type;
	void *parent;
	int rank;
	union np_what what;
};
struct np_event_v5 {
	uint64_t type;
	void *parent;
	int rank;
	union np_what what;
};
union np_args {
	size_t step_bytes;
	uint64_t timer;
};

struct np_v4 {
	const char *name;
	int (*init)(void **context, int *mask, const char *comm, uint64_t hash, int nodes,
		    int ranks, int rank, void *log);
	int (*start)(void *context, void **handle, struct np_event_v4 *e);
	int (*stop)(void *handle);
	int (*state)(void *handle, int state, union np_args *args);
	int (*finalize)(void *context);
};
struct np_v5 {
	const char *name;
	int (*init)(void **context, uint64_t hash, int *mask, const char *comm, int nodes,
		    int ranks, int rank, void *log);
	int (*start)(void *context, void **handle, struct np_event_v5 *e);
	int (*stop)(void *handle);
	int (*state)(void *handle, int state, union np_args *args);
	int (*finalize)(void *context);
};
extern const struct np_v4 ncclProfiler_v4;
extern const struct np_v5 ncclProfiler_v5;

#endif
