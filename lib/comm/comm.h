/*
 * comm.h - processes that work together: point to point, and collectives on top, over shared
 * memory, TCP, or both (hierarchical), or over MPI.
 *
 * A *world* connects one process (a rank) with all `size` of them. Everything that waits has a
 * deadline, and its error names the rank and the operation that it waited for. The order of sums
 * does not depend on which rank is fast, so all ranks hold the same bits afterwards, in every run.
 * All pairs of ranks exchange heartbeats. If a rank dies, stops or is cut off, every other rank
 * fails within two timeouts with PL_EIO and the number of that rank, whatever it was doing.
 */
#ifndef PL_COMM_H
#define PL_COMM_H

#include "core/core.h"

enum pl_coll_op { /* the operations of nccl-tests */
		  PL_OP_SEND,
		  PL_OP_RECV,
		  PL_OP_ALLREDUCE,
		  PL_OP_REDUCE_SCATTER,
		  PL_OP_ALLGATHER,
		  PL_OP_BROADCAST,
		  PL_OP_ALLTOALL,
		  PL_OP_BARRIER,
		  PL_OP_COUNT_
};
const char *pl_comm_operation_name(unsigned op);
/* "all-reduce", "all_reduce" and "allreduce" are one; -1: no operation has the name. */
int pl_comm_operation_find(const char *name);
/*
 * Algorithms. An operation uses the requested algorithm, or the nearest one that exists:
 *
 *     all-reduce      ring tree halving hierarchical direct
 *     reduce-scatter  ring direct
 *     all-gather      ring direct
 *     broadcast       ring (a chain) tree hierarchical direct
 *     others          direct
 *
 * direct: every rank sends to every other, and nothing is forwarded. AUTO uses shared memory
 * without messages where all ranks share a host, for memory of the world and for everything small.
 */
enum pl_calgo {
	PL_CA_AUTO,
	PL_CA_RING,
	PL_CA_TREE,
	PL_CA_HALVING,
	PL_CA_HIERARCHICAL,
	PL_CA_DIRECT,
	PL_CA_COUNT_
};
int pl_comm_algorithm_find(const char *name); /* -1 */
const char *pl_comm_algorithm_name(unsigned algo);

/* A link that is slowed down. All ranks need the same list: it affects the choice of algorithms. */
struct pl_link_shape {	     /* of several for a pair the last counts */
	int from, to;	     /* ranks; -1: any */
	double bytes_per_ns; /* 0: no limit */
	pl_ns latency_ns;
	/* All messages from `from` share one link; else each receiver has its own. */
	bool shared;
};

struct pl_launch;
struct pl_backend;
struct pl_comm_event;
struct pl_world_opts {
	int rank, size;
	/* [size]: the numbers of the ranks in all messages, where the world is a part of a job; it
	 * outlives the world. NULL: their numbers in the world. */
	const uint32_t *names;
	/* The world is a part of the processes that a launcher started, which are `size`, and
	 * rank i is number first + names[i] of them. size 0: it has all of them. */
	struct {
		int size, first;
	} of;
	/* On this host, as the launcher set it; 0 of 0 or -1: unknown. A difference is logged. */
	int local_rank, local_size;
	const char *host; /* equal names share memory; others imitate hosts; NULL: its name */
	/* "auto" (shared memory on one host, TCP between), "shm", "tcp"; "mpi": over an MPI library
	 * whose ranks are those of the world, or of the processes that it is a part of; "nccl":
	 * needs a device */
	const char *transport;
	/* The device whose memory collectives use; NULL, or no device: memory of the host. It
	 * outlives the world, which uses its second queue; the caller uses the rest. */
	const struct pl_backend *backend;
	void *backend_ctx;
	const struct pl_comm_library
		*library; /* in place of a transport's; for tests. NULL: none */
	/* "tcp:HOST:PORT" (rank 0 listens there) or "dir:PATH" (a shared folder). */
	const char *meet;
	/* tcp: HOST:PORT are those of something else. Rank 0 listens at a free port of the address
	 * from which it reaches HOST, or as `bind` says, and calls `listens` with the place where
	 * the others meet it, who are given that place. If `listens` fails, so does the opening. */
	bool free_port;
	int (*listens)(void *arg, const char *at, struct pl_err *err);
	void *listens_arg;
	const char *token; /* a secret that all ranks of the job know; at least 16 characters */
	/* Has the token, which is read again while this rank waits for rank 0 in a folder; NULL:
	 * the token is certain. */
	const struct pl_launch *launch;
	/* Address or interface to listen on; "*": any. NULL: loopback, or as rank 0 is reached */
	const char *bind;
	int connections; /* TCP connections between two ranks; 0: 2 */
	/* The world fails if no heartbeat or no byte of a message comes for this time; 0: 3 s. */
	pl_ns timeout_ns;
	pl_ns heartbeat_ns; /* 0: a third of the timeout */
	pl_ns meet_ns;	    /* time to wait for ranks that have not started; 0: the timeout */
	/* The time to wait for ranks that live but have not begun the operation, because they may
	 * compute that long; or for a device that is behind its host; 0: 100 timeouts. */
	pl_ns patience_ns;
	size_t segment; /* bytes of a message at most; 0: 256 KiB */
	const struct pl_link_shape *shape;
	size_t n_shapes;
	const struct pl_log *log;
	/* Called once, by any thread, when the world fails. It must return soon, because the other
	 * ranks are told afterwards. A thread that waits for a device may wait for ever, so this
	 * function must end it. NULL: not wanted. */
	void (*lost)(void *arg, const char *why);
	void *lost_arg;
	/* Called for each sent or received chunk, for traces, by any thread of the world, one at a
	 * time, never after close or abort. It must not call the world. NULL: not wanted. */
	void (*event)(void *arg, const struct pl_comm_event *e);
	void *event_arg;
};
struct pl_comm_event {
	uint8_t op;	    /* PL_OP_SEND, PL_OP_RECV of parts; the collective itself */
	uint8_t collective; /* that a part belongs to */
	uint8_t algo;	    /* enum pl_calgo; PL_CA_AUTO: none, or chosen by a library */
	int peer, channel;
	uint32_t chunk;
	uint64_t seq; /* number of the collective in its world, from 0 */
	uint64_t tag; /* from the arguments of the operation */
	size_t bytes;
	/* CLOCK_MONOTONIC. A part begins when nothing delays it any more: the collective has begun,
	 * the data that the part forwards has arrived, and the part before it on the same link has
	 * ended. Over a shaped link, a sent part has the time in which it alone occupies the link,
	 * and a received part begins when its first byte arrives. A part that reads memory of a
	 * device begins when the host has seen that the device has reached it. */
	pl_ns begin, end;
	/* A collective that a library carries out in a device's queue has two events: the launch by
	 * the calling thread (launched), and the collective on the device (on_device), which ends
	 * when the host saw it; a device's own record is more exact. A collective whose result is
	 * copied to the device has one more: the launch of that copy (launched). */
	bool launched, on_device;
};

struct pl_world;
struct pl_work; /* an operation in progress */

/* Meets the others and connects. PL_EIO after the timeout, naming the ranks that never came. */
int pl_comm_world_open(const struct pl_world_opts *o, struct pl_world **w,
		       struct pl_err *err) PL_MUST;
/*
 * Both end the world, wait for its threads and free it. w may be NULL. close says good-bye and
 * waits for all others, so that no rank takes the end for a death. PL_EIO: the world failed before
 * or fails now. abort makes all others fail with `why`, unless they failed.
 */
int pl_comm_world_close(struct pl_world *w, struct pl_err *err) PL_MUST;
void pl_comm_world_abort(struct pl_world *w, const char *why);
int pl_comm_world_rank(const struct pl_world *w);
int pl_comm_world_size(const struct pl_world *w);
/* The number of a rank in messages. */
int pl_comm_world_name(const struct pl_world *w, int rank);
/*
 * Memory that collectives use without copying (shared, where ranks share a host): 64-byte aligned,
 * zeroed. Collective: all ranks call it alike, with no other operation in progress. It stays valid
 * until pl_comm_world_free(), which is not collective, or the end of the world. Where the world has
 * a device, it is memory of that device. NULL: all ranks get none, because one of them has none
 * (PL_ENOMEM) or because the world failed (PL_EIO).
 */
void *pl_comm_world_alloc(struct pl_world *w, size_t bytes, struct pl_err *err);
void pl_comm_world_free(struct pl_world *w, void *p);

/*
 * Begins an operation. All ranks of the world begin the same collectives in the same order. The
 * world uses the buffers until pl_comm_work_wait(). Elements are float32, and reductions are sums.
 * `count`: elements of the whole vector (all-reduce, broadcast), or of one rank's part
 * (reduce-scatter, all-gather, all-to-all: the buffer is size x count). In place: src == dst; in a
 * reduce-scatter dst is the own part of src, in an all-gather src is the own part of dst. A
 * broadcast reads only the root's src. Sends and receives between two ranks match in the order in
 * which they begin, with equal counts; they do not wait for collectives. tag: for events.
 *
 * Over NCCL, a message waits for the collectives and messages before it. Messages that begin before
 * the first wait for one of them, and before the next collective, run together as one group.
 */
struct pl_coll_args {
	uint8_t op, algo;
	const void *src;
	void *dst;
	size_t count;
	int root;	/* of broadcast; peer of send and receive */
	uint32_t parts; /* number of chunks that follow one another; 0: one */
	uint64_t tag;
	bool on_host; /* src and dst are the host's memory, although the world has a device */
};
int pl_comm_world_begin(struct pl_world *w, const struct pl_coll_args *a, struct pl_work **work,
			struct pl_err *err) PL_MUST;
bool pl_comm_work_done(struct pl_work *work);
/*
 * Waits until the operation has ended or failed, and frees it. With memory of a device, only later
 * work in the backend's queue waits for it; the operation may still run, and may fail.
 */
int pl_comm_work_wait(struct pl_work *work, struct pl_err *err) PL_MUST;
/*
 * Waits until all operations that had a pl_comm_work_wait() have ended; fails if one failed. Call
 * it before sync() and get() of a device, because these have no deadline and would wait for ever if
 * a rank is lost. If the device does not finish the work of its first queue in `patience_ns`, the
 * world fails, and `lost` is called.
 */
int pl_comm_world_settle(struct pl_world *w, struct pl_err *err) PL_MUST;
/* begin and wait */
int pl_comm_world_do(struct pl_world *w, const struct pl_coll_args *a, struct pl_err *err) PL_MUST;
/* Bytes that other ranks received from this rank so far. */
uint64_t pl_comm_world_sent(const struct pl_world *w);
/*
 * A process of which no world over MPI is made, in a job that has some: MPI begins and ends in all
 * processes of a launcher, which are `size`, or in none. *a: NULL for other transports, which the
 * other functions take. check(): MPI has failed in this process. end(): it may end as soon as all
 * others end it. close(): waits until it has ended, or, without end(), leaves it alone: then the
 * process must end.
 */
struct pl_attendance;
int pl_comm_attend(const char *transport, int size, int rank, struct pl_attendance **a,
		   struct pl_err *err) PL_MUST;
int pl_comm_attend_check(struct pl_attendance *a, struct pl_err *err) PL_MUST;
void pl_comm_attend_end(struct pl_attendance *a);
int pl_comm_attend_close(struct pl_attendance *a, pl_ns patience_ns, struct pl_err *err) PL_MUST;
/* "shm", "tcp", "shm+tcp", "mpi", "nccl" */
const char *pl_comm_world_transport(const struct pl_world *w);

/* ---- measuring ---- */

/*
 * Repeats one operation, each time timed after a barrier. Every rank writes its whole input before
 * each operation, and reads and checks its whole output afterwards. Collective; PL_OP_SEND is a
 * message from rank 0 to rank 1. Sizes and bus bandwidth are those of nccl-tests: bytes is the
 * whole vector (all-gather, reduce-scatter: of all ranks; all-to-all: what one rank has for all),
 * busbw = bytes / time * 2(n-1)/n (all-reduce), (n-1)/n, or 1.
 */
struct pl_comm_bench_opts {
	uint8_t op, algo;
	size_t bytes; /* rounded down to whole floats for all ranks */
	int warmup, iterations;
	bool in_place, private_memory; /* not from pl_comm_world_alloc() */
};
struct pl_comm_bench_result {
	size_t bytes, count;
	uint8_t algo;
	pl_ns mean, min, median, p99; /* over iterations, of the slowest rank in each */
	double algbw, busbw;	      /* bytes per ns (GB/s), of the mean */
	int64_t wrong;		      /* elements, of all ranks */
};
int pl_comm_bench(struct pl_world *w, const struct pl_comm_bench_opts *o,
		  struct pl_comm_bench_result *r, struct pl_err *err) PL_MUST;

/* ---- the rank of this process ---- */

/* Equal for processes that can map one another's memory. name: as `host` of pl_world_opts. */
uint64_t pl_comm_host_id(const char *name);

struct pl_launch {
	int rank, size, local_rank, local_size; /* -1 unknown */
	/* "paceline", "torchrun", "openmpi", "pmix", "pmi", "slurm"; NULL: nobody */
	const char *launcher;
	const char *rank_name; /* the environment variable that holds the rank */
	uint64_t job;	       /* identifies the job among those of the launcher; 0: unknown */
	bool several_hosts;    /* over several hosts, as far as is known */
	char meet[256];	       /* "" unknown */
	char token[128];       /* "" unknown */
	char folder[200];      /* of pl_comm_launch_share(); "" none */
};
/* From the environment: PACELINE_RANK, PACELINE_SIZE, _MEET, _TOKEN; RANK, WORLD_SIZE, MASTER_ADDR,
 * MASTER_PORT; OMPI_COMM_WORLD_*; PMIX_RANK; PMI_RANK; SLURM_PROCID, SLURM_NTASKS, and for a step
 * on several nodes of Slurm where to meet: at the first. PL_EUSAGE: contradictory variables. */
int pl_comm_launch_find(struct pl_launch *l, struct pl_err *err) PL_MUST;
/*
 * Makes (rank 0) or reads (other ranks) the token of the job if none is set, and sets the place to
 * meet if none is set. Both are in a folder that only this user may enter, in the folder of `meet`
 * ("dir:PATH") or else in TMPDIR. Rank 0 never waits. The others wait for the token, at most
 * wait_ns (0: 3 s; PL_EIO). PL_EUSAGE: no folder is known that all hosts of the ranks share.
 */
int pl_comm_launch_share(struct pl_launch *l, pl_ns wait_ns, struct pl_err *err) PL_MUST;
/* The token as it is in the folder now; false: there is none, and `to` stays as it is. */
bool pl_comm_launch_token(const struct pl_launch *l, char *to, size_t size);
/* After the meeting, however it ended: removes what pl_comm_launch_share() made. */
void pl_comm_launch_unshare(const struct pl_launch *l);
/* Random, as many digits as fit; size: with the end. */
int pl_comm_token_make(char *token, size_t size, struct pl_err *err) PL_MUST;

#endif
