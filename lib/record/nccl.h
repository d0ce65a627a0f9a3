/*
 * nccl.h - NCCL's profiler interface: what NCCL calls, and what becomes of it.
 *
 * The layouts, and the symbols that NCCL searches, are NCCL's: versions 4 (NCCL 2.27), 5 (2.28) and
 * 6 (from 2.29). Version 6 has the functions and layouts of version 5, and adds events of copy
 * engines. Other names are ours.
 */
#ifndef PL_RECORD_NCCL_H
#define PL_RECORD_NCCL_H

#include <sys/types.h>

#include "core/core.h"
#include "record/device_trace.h"

enum { /* types of events, as bits of a mask */
       NP_GROUP = 1 << 0,
       NP_COLL = 1 << 1,
       NP_P2P = 1 << 2,
       NP_PROXY_OP = 1 << 3,
       NP_PROXY_STEP = 1 << 4,
       NP_KERNEL_CH = 1 << 6,
       NP_NET_PLUGIN = 1 << 7, /* of the plugin of a network, as a part of a step */
       /* from version 5 on */
       NP_GROUP_API = 1 << 8,
       NP_COLL_API = 1 << 9,
       NP_P2P_API = 1 << 10,
       NP_KERNEL_LAUNCH = 1 << 11,
       /* from version 6 on */
       NP_CE_COLL = 1 << 12,
       NP_TYPES_V4 = 0xff,
       NP_TYPES_V5 = 0xfff,
};
enum { /* states of a proxy step and a kernel channel */
       NP_SEND_GPU_WAIT = 8,
       NP_SEND_WAIT = 9,
       NP_RECV_WAIT = 10,
       NP_RECV_FLUSH_WAIT = 11,
       NP_RECV_GPU_WAIT = 12,
       NP_SEND_PEER_WAIT = 20,
       NP_KERNEL_CH_STOP = 22,
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
	const char *algo, *proto;
	void *group; /* from version 5 on: the event NP_GROUP */
};
struct np_p2p {
	const char *func;
	void *buffer;
	const char *type;
	size_t count;
	int peer;
	uint8_t channels;
	void *group; /* likewise */
};
struct np_api { /* of a collective; that of a transfer lacks the root */
	const char *func;
	size_t count;
	const char *type;
	int root;
	void *stream;
	bool captured;
};
struct np_p2p_api {
	const char *func;
	size_t count;
	const char *type;
	void *stream;
	bool captured;
};
struct np_ce_coll {
	uint64_t seq;
	const char *func;
	const void *src;
	void *dst;
	size_t count;
	int root;
	const char *type; /* more members follow */
};
struct np_proxy_op {
	pid_t pid;
	uint8_t channel;
	int peer, steps, chunk, sends;
};
struct np_kernel_ch {
	uint8_t channel;
	uint64_t timer; /* of the device */
};
union np_what {
	struct np_coll coll;
	struct np_p2p p2p;
	struct np_api api;
	struct np_p2p_api p2p_api;
	struct np_ce_coll ce_coll;
	struct np_proxy_op proxy_op;
	struct np_kernel_ch kernel_ch;
	int step;
	void *stream; /* of a launch */
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
/* entry/nccl_tables.c: in shared objects that NCCL loads */
extern const struct np_v4 ncclProfiler_v4;
extern const struct np_v5 ncclProfiler_v5, ncclProfiler_v6;

/* ---- what becomes of it ---------------------------------------------------------------------- */

struct pl_nccl_comm {
	char group[96];	 /* the same on all its ranks */
	uint64_t number; /* likewise: NCCL's */
	int ranks, rank; /* -1, and no group: another process has given its operation to this one */
	void *user;	 /* of the receiver */
};
struct pl_nccl_event {
	uint64_t type; /* NP_COLL ... */
	/* COLL and P2P are told twice: when NCCL issues them, and when they are over. */
	bool issued;
	struct pl_nccl_comm *comm;
	uint32_t thread;   /* that began it, as gettid() */
	pl_ns begin, end;  /* of the host: CLOCK_MONOTONIC */
	const char *times; /* COLL, P2P: what the times are of: "device", "network" or "enqueue" */
	/* STEP: when it began to wait for what its state says, 0: never; when NCCL ended it */
	pl_ns gpu_wait, peer_wait, wait, flush_wait, over;
	const char *func, *dtype, *algo, *proto; /* NULL: not known; valid during the call */
	uint64_t launch;			 /* number of the group's launch; 0: not known */
	int64_t seq;				 /* of a collective in its communicator, or -1 */
	int64_t bytes, count;			 /* -1 */
	int32_t peer, root, channel, channels, steps, step; /* -1; peer: rank of the communicator */
	bool sends;
	uint64_t stream; /* handle; 0: not known */
};
struct pl_nccl_receiver {
	bool (*on)(void); /* does somebody record? */
	bool unique;	  /* groups get the number of the communicator beside its name */
	int mask;	  /* types that it wants */
	void (*comm)(struct pl_nccl_comm *c); /* a new communicator; NULL: not wanted */
	void (*event)(const struct pl_nccl_event *e);
	void (*push)(uint64_t launch); /* around the launch of kernels; NULL: not wanted */
	void (*pop)(void);
	void (*finalize)(void); /* a communicator ends; NULL: not wanted */
};
/* Before NCCL makes its first communicator. NULL: none. */
void pl_nccl_receive(const struct pl_nccl_receiver *r);
/* Tells all that is not over: their ends may never come. */
void pl_nccl_end(void);
/* Events that were not told so far: their handles were taken again, or they had none. */
uint64_t pl_nccl_lost(void);
/* Calls also the plugin in the file `next`, with its own contexts and handles. Before the first
 * communicator. */
int pl_nccl_chain(const char *next, struct pl_err *err) PL_MUST;

/* What the tables call. */
int pl_nccl_init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes,
		    int ranks, int rank, void *log);
int pl_nccl_init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes,
		    int ranks, int rank, void *log);
int pl_nccl_init_v6(void **context, uint64_t hash, int *mask, const char *name, int nodes,
		    int ranks, int rank, void *log);
int pl_nccl_start_v4(void *context, void **handle, struct np_event_v4 *e);
int pl_nccl_start_v5(void *context, void **handle, struct np_event_v5 *e);
int pl_nccl_stop(void *handle);
int pl_nccl_state(void *handle, int state, union np_args *args);
int pl_nccl_finalize(void *context);
/* entry/nccl_tables.c: lets NCCL load the file with the tables, unless the user chose another
 * one. */
void pl_nccl_set_profiler(void);

/* A collective as an operation of the device, for sources that join it with its launch; text: room
 * for its name, which lasts as long as the event. The peer is a rank of the communicator. */
static inline struct pl_device_event pl_nccl_device_event(const struct pl_nccl_event *n, char *text,
							  size_t size)
{
	struct pl_device_event e;

	snprintf(text, size, "nccl%.40s", n->func ? n->func : "");
	e = pl_device_event(PL_DEV_COMM, text, n->begin, n->end, 0);
	e.launch = n->launch;
	e.group = n->comm->group;
	e.seq = n->seq;
	e.bytes = n->bytes;
	e.peer = n->peer;
	return e;
}

#endif
