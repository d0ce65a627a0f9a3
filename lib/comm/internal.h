/*
 * internal.h - the parts of a world.
 *
 * A world has two threads: *control* (control.c) carries heartbeats, aborts and good-byes over one
 * connection for each pair; *progress* (world.c) drives the engine (engine.c) if no caller does.
 * Only one thread at a time drives (`driving`, under `lock`), so the engine's data need no lock.
 *
 * Every collective becomes a program (expand.c): steps that send, receive, add or copy one segment
 * each, queued by connection. All ranks queue their collectives in the same order. The programs
 * of one collective on all ranks are parts of one sequence of messages, in which each message needs
 * only earlier ones. So the earliest message that is not complete can always be sent. Therefore a
 * queue may wait at its head without a deadlock, and no message must be kept for a later time.
 *
 * If all ranks share a host, collectives on memory of the world use shared_collectives.c.
 *
 * Where a library carries out the collectives (struct pl_comm_library; library.c), a thread for the
 * library replaces the progress thread, and no other thread drives.
 */
#ifndef PL_COMM_INTERNAL_H
#define PL_COMM_INTERNAL_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/un.h>

#include "comm/comm.h"
#include "comm/protocol.h"

#define PL_TIMEOUT_NS ((pl_ns)3000000000)
#define PL_NO_STEP    UINT32_MAX
#define PL_CHANNELS   16  /* connections for each pair at most */
#define PL_REGIONS    256 /* pieces of pl_comm_world_alloc() at one time */
#define PL_STAGE      ((size_t)64 << 10)
#define PL_SEGMENT    ((size_t)256 << 10)
#define PL_RING_BYTES ((size_t)512 << 10) /* of a ring in shared memory, power of 2 */
#define PL_SLOTS      32  /* small collectives by which a rank may be ahead of another */
#define PL_LOCAL_MAX  256 /* ranks of a host that share memory */
#define PL_EAGER      ((size_t)8 << 10) /* bytes of a rank in a slot */
#define PL_DIGESTS    1024		/* collectives whose digests are kept for the comparison */

/* ---- shared memory of a host (shm.c) ---- */

/* Bytes from one rank to another. head and tail count all bytes since the start. */
struct pl_ring {
	_Alignas(64) _Atomic uint64_t head; /* bytes written so far */
	_Alignas(64) _Atomic uint64_t tail; /* bytes read so far */
	_Alignas(64) uint8_t data[PL_RING_BYTES];
};

/* The description of collective number `posted` - 1 of a rank. */
struct pl_slot {
	_Alignas(64) _Atomic uint64_t posted;
	uint32_t op, root;
	uint64_t count;
	uint32_t src_region, dst_region; /* PL_NONE: not memory of the world */
	uint64_t src_at, dst_at;
	_Alignas(64) _Atomic uint64_t done; /* no longer reads or writes memory of others */
	_Atomic uint64_t turns;		    /* pieces of large ones that it has moved, ever */
	_Alignas(64) uint8_t data[PL_EAGER];
};

struct pl_shared_rank {
	_Alignas(64) _Atomic uint32_t asleep; /* wake it by its doorbell */
	struct pl_slot slot[PL_SLOTS];
};

/* At the start of the segment; after it one pl_shared_rank for each rank, then the rings. */
struct pl_shared {
	_Alignas(64) _Atomic uint64_t magic;
	struct { /* where the first rank of the host puts the memory of pl_comm_world_alloc() */
		int64_t pid, fd;
	} region;
	uint64_t nonce; /* in the names of doorbells */
};

struct pl_region {     /* at place number % PL_REGIONS, which is the same on all ranks */
	uint8_t *base; /* as mapped by the first local rank; NULL: unused */
	size_t stride, bytes;
};

/* ---- programs ---- */

enum pl_step_kind {
	PL_STEP_SEND,
	PL_STEP_RECV,	     /* into dst */
	PL_STEP_RECV_ADD,    /* dst = a + received data */
	PL_STEP_RECV_BEFORE, /* dst = received data + a: the order matters where both are NaN */
	PL_STEP_COPY,	     /* dst = a */
	PL_STEP_ADD,	     /* dst = dst + a */
	PL_STEP_ADD_BEFORE,  /* dst = a + dst */
};
struct pl_step {
	struct pl_step *next; /* in its queue */
	struct pl_work *work;
	uint8_t kind;
	bool done;
	uint16_t channel;
	int32_t peer;
	uint32_t chunk;
	uint32_t after, n_after; /* steps of the work that must be done first */
	uint32_t sent;		 /* 1 + the step that sent the old data of the piece; 0: none */
	size_t bytes;
	uint8_t *dst;
	const uint8_t *a;
	pl_ns ready; /* when it could begin; over a shaped link: when its first byte was received */
	pl_ns end;
	pl_ns departure; /* when it leaves a shaped link, known from `ready` on; else 0 */
	uint64_t mark;	 /* the mark after it in a device's queue of sums; 0: none */
};
struct pl_queue_of_steps {
	struct pl_step *head, *last; /* last: if there is a head */
	pl_ns freed;		     /* the end of the step before the head */
};

enum pl_work_state {
	PL_WORK_QUEUED,	    /* the engine has not begun it */
	PL_WORK_POSTED,	    /* its slot is filled; waits for the slots of other ranks */
	PL_WORK_SHARED,	    /* reads the memory of other ranks */
	PL_WORK_PART_DONE,  /* this rank is done; waits for other ranks */
	PL_WORK_STEPS,	    /* its steps are queued */
	PL_WORK_IN_LIBRARY, /* a library carries it out without steps */
	PL_WORK_DONE,
};
struct pl_work {
	struct pl_work *next;
	void *next_kept; /* list of memory that a library may still use */
	struct pl_world *w;
	struct pl_coll_args a;
	uint64_t seq;  /* of collectives; of messages for send and receive */
	uint64_t slot; /* of collectives that may go through slots */
	uint8_t state; /* enum pl_work_state */
	bool direct;   /* goes through slots */
	bool staged;   /* MPI: received data goes through a stage to its destination */
	bool failed;
	_Atomic bool done;
	struct {			      /* of a world with a device; device.c */
		struct pl_coll_args original; /* as it was begun; a may have staging memory */
		void *stage;
		uint64_t mark;	 /* in the second queue, after the operation's last work */
		bool on_device;	 /* the device waits for it, not the host */
		bool delayed;	 /* until the mark is passed */
		bool cuda_aware; /* its steps are in memory of the device */
		bool launched;	 /* it is in the second queue */
		bool detached;	 /* no caller waits for it; the world frees it */
	} device;
	struct pl_step *step;
	size_t n_steps, cap_steps, steps_left;
	struct pl_queue_of_steps local;
	void *temp;	     /* copies that an algorithm needs */
	size_t portion;	     /* bytes that a connection sends or receives at once */
	size_t from, to, at; /* bytes of the part of this rank, and the position in it */
	uint64_t turns;	     /* as last seen, of the rank that this one waits for */
	pl_ns begin, last_progress, all_begun_at; /* all_begun: 0 not yet */
};

/* ---- connections ---- */

struct pl_conn {
	int fd; /* -1: none, or a ring */
	struct pl_ring *out, *in;
	int peer;
	uint16_t channel;
	_Atomic bool readable, writable;
	bool broken;
	struct pl_queue_of_steps sends, recvs;
	uint8_t header_out[PL_HEADER_BYTES], header_in[PL_HEADER_BYTES];
	size_t sent, got;    /* of head and body */
	pl_ns due;	     /* received data is not read before; 0: it is read at once */
	size_t fill, summed; /* bytes in the stage; bytes of the body that are summed */
	uint8_t *stage;
};

/* ---- links (link.c): connections that carry frames ---- */

struct pl_link {
	int fd;	    /* -1: none */
	bool heard; /* a frame came */
	size_t n_in, n_out;
	uint8_t in[PL_FRAME_MAX + 8], out[4 * (PL_FRAME_MAX + 8)];
};
void pl_comm_link_close(struct pl_link *l);
/* Put a frame into the buffer of the link; false: the buffer is full. */
bool pl_comm_link_send(struct pl_link *l, const struct pl_frame *f);
/* Send what the socket takes at once. err may be NULL. */
int pl_comm_link_flush(struct pl_link *l, struct pl_err *err);
/* 1; 0: the frame is not complete; negative: it is damaged, or the link is broken. */
int pl_comm_link_receive(struct pl_link *l, struct pl_frame *f, struct pl_err *err);
/* Both wait until the whole frame is sent or received. Receiving a refusal is an error. */
int pl_comm_link_write(struct pl_link *l, const struct pl_frame *f, pl_ns until,
		       struct pl_err *err);
int pl_comm_link_read(struct pl_link *l, struct pl_frame *f, pl_ns until,
		      struct pl_err *err) PL_MUST;
/* The greeting of the side that connects; accept.c has that of the other side. */
int pl_comm_link_greet(struct pl_link *l, const char *token, const struct pl_rank_info *who,
		       unsigned connection, pl_ns until, struct pl_err *err) PL_MUST;
#define PL_WRONG_TOKEN                                                                             \
	"wrong token (give all ranks of the job the same PACELINE_TOKEN, and another job another " \
	"port)"

struct pl_peer {
	struct pl_rank_info who;
	struct pl_link control;
	bool local;	/* it shares memory with this rank */
	int local_rank; /* its place in shared memory */
	struct sockaddr_un doorbell;
	struct pl_conn *conn; /* for messages, then the channels; NULL for the own rank */
	struct pl_shared_rank *shared;
	/* control thread */
	pl_ns last_heard;
	bool disconnected;	   /* the control connection has ended */
	_Atomic bool said_goodbye; /* it ends without a failure */
	_Atomic pl_ns broken;	   /* when a connection for data broke */
	char broken_why[96];
	_Atomic uint64_t begun, messages; /* from its last heartbeat */
	_Atomic uint64_t bytes_announced; /* sent to this rank, by its last heartbeat */
	_Atomic uint64_t bytes_sent;	  /* bytes sent to it */
	uint64_t bytes_received;	  /* bytes from it: the engine counts */
	_Atomic uint64_t sends_begun;	  /* sends of this rank to it */
	uint64_t recvs_begun;		  /* receives of this rank from it */
	_Atomic uint64_t sends_on_host;	  /* from a device to it: their data are on this host */
	uint64_t same_collectives; /* collectives that it began as this rank did; control.c */
	/* the shaped link to this rank */
	double bytes_per_ns;
	pl_ns latency;
	pl_ns free_at;
	pl_ns *link_free_at; /* free_at of this link, or of the shared one */
};

struct pl_world {
	int rank, size, n_conns, channels;
	pl_ns free_at; /* of a link that all peers share */
	pl_ns timeout, heartbeat_ns, patience, slowest_segment_ns;
	size_t segment;
	bool shaped, all_local;
	bool shares; /* memory, where ranks have one host */
	struct pl_world_opts o;
	char token[PL_TOKEN_MAX + 1];
	char meet[512], host[256];
	struct pl_peer *peer;
	int *local;	/* ranks of this host */
	int *leader_of; /* [rank]: the first rank of its host */
	int n_local, local_rank, n_hosts;

	pthread_mutex_t lock;
	pthread_cond_t changed, resume;
	bool driving, progress_rests, progress_sleeps, stop;
	int waiters;
	_Atomic int spinners;
	struct pl_work *queued, *queued_last; /* begun, but the engine has not taken them */
	_Atomic bool has_queued;
	uint64_t begun_shared;	/* collectives that went through slots */
	_Atomic uint64_t begun; /* collectives */
	_Atomic bool failed;
	bool failure_told; /* the other ranks know of the failure */
	/* Threads report events one at a time, and none after events_ended: a thread that was left
	 * in a library may return when the callback's argument is no longer valid. */
	pthread_mutex_t event_lock;
	bool events_ended;
	int failed_rank;
	char failure[700];

	/* the engine's */
	struct pl_work *active, *active_last;
	pl_ns next_wakeup, checked;
	_Atomic uint64_t sent;
	bool oversubscribed;  /* this host has more ranks than processors */
	pl_ns next_migration; /* to another processor */

	int epoll, doorbell, wake, timer;
	pthread_t progress, control;
	bool progress_runs, control_runs;
	int control_wake;
	struct pollfd *polls; /* size + 1, the control thread's */
	_Atomic bool closing, control_stop;
	_Atomic pl_ns due;	  /* when the control thread wants to run next */
	_Atomic pl_ns stopped_ns; /* total time in which it could not run */
	pl_ns allowed_ns;	  /* the part of it by which the engine extended its deadlines */

	struct pl_shared *shared;
	size_t shared_bytes;
	int shared_fd;
	struct pl_region region[PL_REGIONS];
	uint32_t n_allocs;
	/* All ranks choose algorithms alike, so these are equal on all: the rate of the slowest
	 * link (0: unknown), the longest latency, and the processors that ranks share (of the one
	 * host; with several hosts one for each rank). */
	double min_bytes_per_ns;
	pl_ns max_latency;
	int processors;

	struct {			    /* memory of a device; device.c */
		const struct pl_backend *b; /* NULL: none */
		void *ctx;
		bool native;	  /* the library works on it directly */
		bool cuda_aware;  /* the library's messages are in it; the backend sums */
		size_t min_bytes; /* ... of operations on so many bytes */
		struct pl_stage *stage;
		size_t n_stages, cap_stages;
		void **allocated; /* memory of pl_comm_world_alloc() */
		size_t n_allocated, cap_allocated;
		/* The first active work that waits for the device; all are skipped. NULL: none. */
		struct pl_work *held;
		_Atomic uint64_t ready;	     /* collectives that the device has reached */
		_Atomic int launching;	     /* works that are not in the second queue yet */
		_Atomic bool launch_awaited; /* a thread waits for that */
		int detached;		     /* works */
		/* A digest of all collectives up to the n-th, in place n % PL_DIGESTS, because NCCL
		 * does not compare the operations of the ranks. */
		uint64_t digests[PL_DIGESTS];
		/* The mark of the last settling in the first queue, and its time; 0: never. */
		uint64_t settled;
		pl_ns settled_at, settled_stopped_ns;
	} device;

	struct { /* a library in place of the engine; library.c */
		const struct pl_comm_library *calls; /* NULL: none */
		void *state;
		struct pl_err err; /* of its opening */
		bool opened, ended;
		bool aborted;		 /* its thread calls abort, or has */
		bool abandoned;		 /* it did not return, and nobody calls it again */
		pl_ns since, stopped_ns; /* time of the current call, and `held` then; 0: none */
		struct pl_ready first;	 /* rank 0's report on its library */
		void *next_kept;
	} library;
};

/* ---- libraries (library.c) ---- */

/*
 * Another library that carries out the operations of a world in place of the engine. The meeting,
 * heartbeats, aborts, good-byes and deadlines stay those of this module. One thread of the world
 * makes all calls. Only abort may come from another thread, if the library does not return; nothing
 * is called after abort, and memory that the library may still use is not freed.
 *
 * While the world is open, w->active holds the works that were begun and have not ended, in order.
 * A library may queue the steps of a work (pl_comm_expand(), pl_comm_engine_queue()) and carry them
 * out; then these decide about deadlines.
 */
struct pl_comm_library {
	const char *name;   /* as pl_world_opts.transport */
	bool device;	    /* takes a device's memory, and queues into its second queue */
	bool ends_with_all; /* `close` waits for processes outside the world, too */
	/* Finds the library, and describes it in `own`, on the thread that opens the world, when
	 * all ranks are connected. *state is one piece of pl_malloc(), freed if opening fails. */
	int (*load)(struct pl_world *w, void **state, struct pl_ready *own, struct pl_err *err);
	/* Collective: all ranks call it, and all have the same library; w->library.first is rank
	 * 0's report. It may wait, but should return when w->failed. If it fails, it frees its
	 * memory. It may also free that of `load`, and then sets w->library.state to NULL. */
	int (*open)(void *state, struct pl_err *err);
	/* Must not wait; called in the order of pl_comm_world_begin(). */
	int (*begin)(void *state, struct pl_work *k, struct pl_err *err);
	/* Must not wait. 1: ended, 0: not yet, negative: failed. Called repeatedly for all works
	 * that have not ended, in order. Sets k->last_progress when data move, if it can. */
	int (*test)(void *state, struct pl_work *k, struct pl_err *err);
	/* A rank failed: end all operations now, in any call but load and open. NULL: none. */
	void (*abort)(void *state);
	/* After all ranks have said good-bye. */
	void (*close)(void *state);
};
extern const struct pl_comm_library pl_comm_library_mpi; /* mpi.c */
/* The library of a transport; NULL: it has none. */
const struct pl_comm_library *pl_comm_library_find(const char *transport);
int pl_comm_library_start(struct pl_world *w, struct pl_err *err) PL_MUST; /* thread and open */
/* End both, if the library returns; err may be NULL. After a failure the world may not be freed
 * (w->library.abandoned), because a thread is still in the library. */
int pl_comm_library_stop(struct pl_world *w, struct pl_err *err);
/* May the library still write to memory of the world, because it was aborted? */
static inline bool pl_library_keeps(const struct pl_world *w)
{
	return w->library.calls && atomic_load(&w->failed);
}
/* Never free p, because a library may use it until the process ends. next: the link in p. */
void pl_comm_library_keep(void *p, void **next);
/* Fail the world if the library does not return, and abandon the library if the world has failed.
 * The caller holds the lock, which may be released for a moment. */
void pl_comm_library_watch(struct pl_world *w);
#define PL_LIBRARY_LATE 20 /* timeouts that a library may take to load or to open, at least */

/* A thread that wakes this much too late was stopped together with its process. */
#define PL_STOPPED_NS(w) ((w)->timeout / 8)

/* accept.c: new connections, and their ranks */
struct pl_acceptor {
	int listener;	   /* -1: none */
	const char *token; /* borrowed */
	const struct pl_log *log;
	const char *name;		 /* in messages; NULL: "meeting" */
	pl_ns rests_until;		 /* no descriptor was free */
	struct pl_pending_link *pending; /* those whose greeting is not complete */
	size_t n_pending, most;
	struct pollfd *polls;
	unsigned n_rejected;
	char rejected[200]; /* the reason of the last rejection */
};
/* init makes an acceptor without a listener; fini also closes connections without a greeting. */
int pl_comm_acceptor_init(struct pl_acceptor *a, size_t expected, struct pl_err *err) PL_MUST;
void pl_comm_acceptor_fini(struct pl_acceptor *a);
/* The next connection with a valid greeting; *hello: rank and number. 1; 0: too late; negative. */
int pl_comm_accept(struct pl_acceptor *a, pl_ns until, struct pl_frame *hello, struct pl_link *l,
		   struct pl_err *err) PL_MUST;
/*
 * The same for a caller that waits for other things, too. watch fills a->polls, returns how many to
 * poll, and puts *until nearer if it wants to be called sooner. take then returns whether there is
 * a connection with a valid greeting; call it until there is none.
 */
size_t pl_comm_acceptor_watch(struct pl_acceptor *a, pl_ns now, pl_ns *until);
bool pl_comm_acceptor_take(struct pl_acceptor *a, size_t n, struct pl_frame *hello,
			   struct pl_link *l);
/* Close it, and tell the other side the reason, if it listens. */
void pl_comm_refuse(struct pl_link *l, const char *why);
/* Warns the first time and counts, because a rank that tries repeatedly would fill the screen. */
void pl_comm_reject(struct pl_acceptor *a, const char *why);

/* The number of a rank in messages. */
static inline int pl_comm_name(const struct pl_world *w, int rank)
{
	return w->o.names ? (int)w->o.names[rank] : rank;
}
/* launch_token.c: writes a file, complete when seen. 0; -1: errno. dir may be AT_FDCWD. */
int pl_comm_leave_file(int dir, const char *name, const char *text);
/* meet.c: the addresses of the ranks, and the connections. */
int pl_comm_meet(struct pl_world *w, struct pl_err *err) PL_MUST;
/* net.c: sockets */
/* host "*": any address. address: at least PL_ADDRESS_MAX characters for the numeric address. */
int pl_comm_net_listen(const char *host, int port, int *fd, int *bound, char *address,
		       struct pl_err *err) PL_MUST;
/* "tcp:HOST:PORT" into its parts. PL_EUSAGE: it is none. */
int pl_comm_net_parse(const char *s, char *host, size_t size, int *port,
		      struct pl_err *err) PL_MUST;
/*
 * Listens at bind_to (an address or interface) or, if that is NULL, at `at` (an address of this
 * host, or a name by which others reach it). address: what others connect to, of PL_ADDRESS_MAX
 * zeroed characters; it stays "" for any address, but becomes the name of the host where `named`.
 */
int pl_comm_net_listen_as(const char *bind_to, const char *at, bool named, int *fd, int *port,
			  char *address, struct pl_err *err) PL_MUST;
/* host becomes the address of this host from which it is reached, or stays if it is a name of this
 * one. */
int pl_comm_net_route(char *host, size_t size, int port, struct pl_err *err) PL_MUST;
/* Is this the name of an interface of this host? Its numeric address. */
bool pl_comm_net_interface(const char *name, char *to, size_t size);
/* Do other hosts reach this one by this name, although it means loopback in /etc/hosts? */
bool pl_comm_net_is_alias(const char *host);
void pl_comm_net_name(const void *sockaddr, size_t len, char *to, size_t size);
/* Try until that time, also if the name is not known yet. (The resolver may take longer.) */
int pl_comm_net_connect(const char *host, int port, pl_ns until, int *fd,
			struct pl_err *err) PL_MUST;
int pl_comm_net_ready(int fd, short what, pl_ns until); /* 1, 0: time is over, -1 */
/*
 * Small messages leave at once. The kernel ends the connection if the other side does not take its
 * data for `timeout`. A rank that lives reads no data while its user is busy, so connections for
 * data have PL_NO_TIMEOUT. Heartbeats find a dead rank.
 */
#define PL_NO_TIMEOUT INT64_MAX
int pl_comm_net_tune(int fd, pl_ns timeout, struct pl_err *err) PL_MUST;

/* control.c */
int pl_comm_control_start(struct pl_world *w, struct pl_err *err) PL_MUST;
void pl_comm_control_stop(struct pl_world *w);
/* Record the first failure of the world, and tell the other ranks. Call it without the lock. */
void pl_comm_world_fail(struct pl_world *w, int rank, const char *fmt, ...) PL_PRINTF(3, 4);

/* world.c */
int pl_comm_thread_start(pthread_t *t, void *(*main)(void *), void *arg,
			 struct pl_err *err) PL_MUST;
void pl_comm_close(int *fd); /* if it is open */
/* Wait for c, at most ns. */
void pl_comm_wait_for(pthread_cond_t *c, pthread_mutex_t *lock, pl_ns ns);
void pl_comm_kick(int fd); /* wakes the thread that waits for this event descriptor */
void pl_comm_world_wake_rank(struct pl_world *w,
			     int rank); /* the progress thread of another rank on this host */
/* Calls the progress thread. The lock is released before: a thread that wakes and must wait for the
 * lock loses its time slice, and Linux then runs computing threads for a millisecond. */
void pl_comm_world_call(struct pl_world *w);

/* work.c */
/* call: the progress thread drives it; else the caller does. */
int pl_comm_work_begin(struct pl_world *w, const struct pl_coll_args *a, bool call,
		       struct pl_work **work, struct pl_err *err) PL_MUST;
void pl_comm_work_end(struct pl_work *k);
/* The floats of an operation: whole vector, and the parts read and written here, with offsets. */
struct pl_coll_extent {
	size_t whole, src, src_n, dst, dst_n;
};
struct pl_coll_extent pl_comm_coll_extent(const struct pl_world *w, const struct pl_coll_args *a);
size_t pl_comm_coll_bytes(const struct pl_world *w,
			  const struct pl_coll_args *a); /* of the whole */
/* Call o.event, which is not NULL, with the values that the event gets from the work. */
void pl_comm_work_report(const struct pl_work *k, struct pl_comm_event *e);
/* Wait until no callback runs; none runs later. */
void pl_comm_world_end_events(struct pl_world *w);
void pl_comm_work_free(struct pl_work *k); /* NULL is fine */
/* The world's failure as that of the operation; seq UINT64_MAX: no number. Lock held. */
int pl_comm_work_failure(struct pl_world *w, const struct pl_coll_args *a, uint64_t seq,
			 struct pl_err *err);

/* memory.c: memory that processes of one host share */
int pl_comm_memory_make(size_t bytes, int *fd, struct pl_err *err) PL_MUST;
/* Map a file as shared memory; fd -1: private. to: address of a pointer, unchanged on failure. */
int pl_comm_memory_map(int fd, size_t bytes, void *to, struct pl_err *err) PL_MUST;
/* Open what another process made with at least that many bytes. */
int pl_comm_memory_open(int64_t pid, int64_t other, size_t bytes, int *fd,
			struct pl_err *err) PL_MUST;

/* shm.c */
int pl_comm_shared_open(struct pl_world *w, pl_ns until, struct pl_err *err) PL_MUST;
void pl_comm_shared_close(struct pl_world *w);
/* The sum of each v over all ranks. Collective. */
int pl_comm_add_up(struct pl_world *w, float *v, size_t n, struct pl_err *err) PL_MUST;
/* Have all ranks succeeded? own: the error of this rank; code 0: it succeeded. Collective. */
int pl_comm_agree(struct pl_world *w, const struct pl_err *own, struct pl_err *err) PL_MUST;
/* The region that holds all of p[0 .. bytes], where p lies also if bytes is 0; PL_NONE. */
uint32_t pl_comm_shared_find(const struct pl_world *w, const void *p, size_t bytes, uint64_t *at);
/* shared_collectives.c: collectives in shared memory. Return whether data moved. */
bool pl_comm_shared_coll_fits(const struct pl_world *w, const struct pl_coll_args *a);
bool pl_comm_shared_coll_step(struct pl_world *w, struct pl_work *k, bool may_post,
			      bool may_decide);
/* The rank that a work in slots waits for; -1. */
int pl_comm_shared_coll_waits_for(const struct pl_world *w, const struct pl_work *k);

/* engine.c */
/* One round without blocking; all: try every connection, not only those known to be ready. */
bool pl_comm_engine_step(struct pl_world *w, bool all);
void pl_comm_engine_queue(struct pl_work *k); /* its steps */
void pl_comm_engine_fail(struct pl_world *w); /* ends all works; lock held, nobody drives */
void pl_comm_engine_check(struct pl_world *w, pl_ns now);
void pl_comm_engine_take(struct pl_world *w); /* operations that were begun become active */
bool pl_comm_engine_sweep(
	struct pl_world *w); /* takes works that are done off the list and ends them; true: any */
bool pl_comm_step_ready(const struct pl_step *s);
pl_ns pl_comm_step_could_begin(const struct pl_step *s, pl_ns freed);
/* Copy or sum `bytes` from offset `at` on; came: the data received for them. */
void pl_comm_step_apply(const struct pl_step *s, const uint8_t *came, size_t at, size_t bytes);
void pl_comm_step_done(struct pl_world *w, struct pl_step *s);
bool pl_comm_engine_local(struct pl_world *w, struct pl_work *k); /* one step without a peer */

/* device.c */

/* Staging memory, for operations that cannot use the caller's memory directly. */
struct pl_stage {
	void *p;
	size_t bytes;
	uint64_t mark; /* free when this mark has passed */
	bool used;
};
void pl_comm_device_init(struct pl_world *w, const struct pl_backend *b, void *ctx);
/* Can the libraries of all ranks use the device's memory? Collective, when they are open. */
int pl_comm_device_agree(struct pl_world *w, struct pl_err *err) PL_MUST;
void pl_comm_device_fini(struct pl_world *w);
/* Before an operation is queued: copy its input. undo: it was not queued; lock held. */
int pl_comm_device_begin(struct pl_work *k, struct pl_err *err) PL_MUST;
void pl_comm_device_undo(struct pl_work *k);
/* Has the device reached the first work that waits for it? Only the driving thread calls it. */
bool pl_comm_device_ready(struct pl_work *k);
/* The library put it into the second queue. */
void pl_comm_device_launched(struct pl_work *k, uint64_t mark, pl_ns since);
/* A step on the device without a message. 1: ended, 0: not yet, negative: the device failed. */
int pl_comm_device_step(struct pl_step *s, const float *came, struct pl_err *err) PL_MUST;
/* The operation has ended where it was carried out: copy its result to the device. */
void pl_comm_device_end(struct pl_work *k);
/* Let the first queue wait instead of the host; false: the host must wait. */
bool pl_comm_device_detach(struct pl_work *k);
/* A host has waited for it: memory of the host gets the result. */
void pl_comm_device_waited(struct pl_work *k);
/* No operation has failed; the caller will wait for the first queue without a deadline. */
void pl_comm_device_settled(struct pl_world *w);
/* Fails the world if the caller has waited for too long. For the control thread. */
void pl_comm_device_look(struct pl_world *w, pl_ns now);
/* As pl_comm_world_alloc(). */
void *pl_comm_device_alloc(struct pl_world *w, size_t bytes, struct pl_err *err);
void pl_comm_device_free(struct pl_world *w, void *p);

/* nccl.c */
extern const struct pl_comm_library pl_comm_library_nccl;

/* expand.c */
int pl_comm_expand(struct pl_work *k, struct pl_err *err) PL_MUST;

/* choose.c: the algorithm for this number of bytes; AUTO by a model. The same on all ranks. */
uint8_t pl_comm_algo(const struct pl_world *w, uint8_t op, uint8_t algo, size_t bytes);

/* sum.c: d = a + b; any alignment of float */
void pl_comm_sum(float *d, const float *a, const float *b, size_t n);
/* d[k] = src[0] + src[1] + ... in that order, for all k < n_dst; those may be among the sources */
void pl_comm_sum_many(float *const *d, int n_dst, const float *const *src, int n_src, size_t n);

#endif
