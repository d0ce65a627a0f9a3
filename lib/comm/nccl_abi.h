/*
 * nccl_abi.h - the used part of libnccl.so.2, declared here so that its header is not needed:
 * types as the library's binary interface has them since 2.14, and a table of the functions.
 * tests/unit/nccl_test.c compares all of it with nccl.h where that is installed.
 */
#ifndef PL_COMM_NCCL_ABI_H
#define PL_COMM_NCCL_ABI_H

#include <stddef.h>

typedef void *pl_nccl_comm;
typedef void *pl_nccl_stream;

#define PL_NCCL_ID_BYTES 128
struct pl_nccl_id {
	char bytes[PL_NCCL_ID_BYTES];
};

enum pl_nccl_result {
	PL_NCCL_SUCCESS = 0,
	PL_NCCL_SYSTEM_ERROR = 2,
	PL_NCCL_REMOTE_ERROR = 6,
	PL_NCCL_IN_PROGRESS = 7,
};
enum pl_nccl_type { PL_NCCL_FLOAT32 = 7 };
enum pl_nccl_red { PL_NCCL_SUM = 0 };

/* The configuration as 2.14 knew it. The size and the version that it carries tell later libraries
 * which members it lacks, and these take their defaults. */
struct pl_nccl_config {
	size_t size;
	unsigned magic, version;
	int blocking;
};
#define PL_NCCL_MAGIC	       0xcafebeefu
#define PL_NCCL_CONFIG_VERSION 21400u
#define PL_NCCL_OLDEST	       21400 /* the first whose communicators can be non-blocking */

/* X(member, symbol, result type, parameters) */
#define PL_NCCL_FUNCTIONS(X)                                                                       \
	X(get_version, "ncclGetVersion", int, (int *version))                                      \
	X(get_id, "ncclGetUniqueId", int, (struct pl_nccl_id * id))                                \
	X(init, "ncclCommInitRankConfig", int,                                                     \
	  (pl_nccl_comm * c, int ranks, struct pl_nccl_id id, int rank,                            \
	   struct pl_nccl_config *config))                                                         \
	X(finalize, "ncclCommFinalize", int, (pl_nccl_comm c))                                     \
	X(destroy, "ncclCommDestroy", int, (pl_nccl_comm c))                                       \
	X(stop, "ncclCommAbort", int, (pl_nccl_comm c))                                            \
	X(async_error, "ncclCommGetAsyncError", int, (pl_nccl_comm c, int *result))                \
	X(error_string, "ncclGetErrorString", const char *, (int result))                          \
	X(last_error, "ncclGetLastError", const char *, (pl_nccl_comm c))                          \
	X(group_start, "ncclGroupStart", int, (void))                                              \
	X(group_end, "ncclGroupEnd", int, (void))                                                  \
	X(all_reduce, "ncclAllReduce", int,                                                        \
	  (const void *src, void *dst, size_t n, int type, int red, pl_nccl_comm c,                \
	   pl_nccl_stream s))                                                                      \
	X(reduce_scatter, "ncclReduceScatter", int,                                                \
	  (const void *src, void *dst, size_t n, int type, int red, pl_nccl_comm c,                \
	   pl_nccl_stream s))                                                                      \
	X(all_gather, "ncclAllGather", int,                                                        \
	  (const void *src, void *dst, size_t n, int type, pl_nccl_comm c, pl_nccl_stream s))      \
	X(broadcast, "ncclBroadcast", int,                                                         \
	  (const void *src, void *dst, size_t n, int type, int root, pl_nccl_comm c,               \
	   pl_nccl_stream s))                                                                      \
	X(send, "ncclSend", int,                                                                   \
	  (const void *src, size_t n, int type, int peer, pl_nccl_comm c, pl_nccl_stream s))       \
	X(recv, "ncclRecv", int,                                                                   \
	  (void *dst, size_t n, int type, int peer, pl_nccl_comm c, pl_nccl_stream s))

struct pl_nccl_api {
	void *lib;
#define PL_NCCL_MEMBER(member, symbol, type, args) type(*member) args;
	PL_NCCL_FUNCTIONS(PL_NCCL_MEMBER)
#undef PL_NCCL_MEMBER
};

#endif
