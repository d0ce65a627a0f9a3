/*
 * A libnccl for tests: the functions that lib/comm/nccl_abi.h lists, over shared memory of one
 * host, on the queues of the fake device. It is as strict as the real one is where a program could
 * be careless: a communicator is not there when init returns, the first operation connects and is
 * not queued when its call returns, and a call on one that is at work is refused. Operations wait
 * for other ranks in the queue, for ever, until the communicator is aborted.
 *
 *     FAKE_NCCL_FAULT=RANK:N:WHAT    at the N-th operation (from 0; init is -1) of that rank:
 *         error    a cuda error         remote   another rank is lost
 *         hang     it never ends        stuck    the call never returns
 *         exit     the process is killed
 *         deaf     hang, and abort does not return either
 *         slow     a cuda error, and abort takes longer than anybody waits for it in the world;
 *                  the process breaks if that is not over at its exit
 *         twice    (of init) two ranks have one device
 *     FAKE_NCCL_VERSION=RANK:CODE    what that rank's library says; RANK is PACELINE_TEST_RANK
 */
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "comm/nccl_abi.h"
#include "fake_queue.h"

#define API   __attribute__((visibility("default")))
#define RANKS 8
#define RING  ((size_t)32 << 10)

enum { CUDA_ERROR = 1, INVALID_ARGUMENT = 4, INVALID_USAGE = 5 };

struct ring {
	_Atomic uint64_t head, tail;
	uint8_t data[RING];
};
struct shared {
	_Atomic int came;
	_Atomic int connected;
	struct ring ring[RANKS][RANKS]; /* from, to */
};
struct comm {
	struct shared *s;
	struct pl_nccl_id id;
	int rank, size, version, ops;
	_Atomic int state; /* what GetAsyncError says */
	_Atomic bool abort, connected, deaf, stuck, slow;
	_Atomic int in_queue; /* in the queue */
	struct fake_queue *queue;
	struct op *op; /* of the call that connects */
	pthread_t thread;
	bool threaded;
};

enum kind { SEND, RECV, ALL_REDUCE, REDUCE_SCATTER, ALL_GATHER, BROADCAST };
struct op {
	struct op *next;
	enum kind kind;
	const float *src;
	float *dst;
	size_t n;
	int root; /* peer */
	struct comm *c;
	struct fake_queue *queue;
	const char *fault;
};

static _Thread_local int depth, trouble;
static _Thread_local struct op *group, **group_tail;
static char last[128];

static void nap(long ns)
{
	struct timespec t = { 0, ns };

	nanosleep(&t, NULL);
}

/* What is to happen at operation n of a rank; NULL. */
static const char *fault(int rank, int n)
{
	const char *s = getenv("FAKE_NCCL_FAULT");
	int r, at, used = 0;

	if (!s || sscanf(s, "%d:%d:%n", &r, &at, &used) != 2 || !used || r != rank || at != n)
		return NULL;
	return s + used;
}

static bool is(const char *fault, const char *what)
{
	return fault && !strcmp(fault, what);
}

/* ---- transfers ---- */

struct part {
	uint8_t *p;
	size_t n, at;
	int peer;
	bool sends;
};

static bool move(struct comm *c, struct part *t)
{
	struct ring *r = t->sends ? &c->s->ring[c->rank][t->peer] : &c->s->ring[t->peer][c->rank];
	uint64_t head = atomic_load(&r->head), tail = atomic_load(&r->tail);
	size_t room = t->sends ? RING - (size_t)(head - tail) : (size_t)(head - tail);
	size_t n = t->n - t->at < room ? t->n - t->at : room;
	size_t from = (size_t)(t->sends ? head : tail) % RING;
	size_t first = n < RING - from ? n : RING - from;

	if (t->sends) {
		memcpy(r->data + from, t->p + t->at, first);
		memcpy(r->data, t->p + t->at + first, n - first);
		atomic_store(&r->head, head + n);
	} else {
		memcpy(t->p + t->at, r->data + from, first);
		memcpy(t->p + t->at + first, r->data, n - first);
		atomic_store(&r->tail, tail + n);
	}
	t->at += n;
	return n > 0;
}

/* All of them at once; of each pair one way in their order. */
static void move_all(struct comm *c, struct part *t, int n)
{
	for (bool left = true; left && !atomic_load(&c->abort);) {
		bool moved = false;

		left = false;
		for (int i = 0; i < n; i++) {
			bool turn = t[i].at < t[i].n;

			for (int k = 0; k < i && turn; k++)
				turn = t[k].at == t[k].n || t[k].peer != t[i].peer ||
				       t[k].sends != t[i].sends;
			left |= t[i].at < t[i].n;
			if (turn)
				moved |= move(c, &t[i]);
		}
		if (left && !moved)
			nap(20000);
	}
}

static uint8_t *at(const struct op *o, const float *p, size_t floats)
{
	return (uint8_t *)o->queue->reach(o->queue, p) + floats * sizeof(float);
}

/* Everybody's part to everybody: src + s x rank to dst, from whose it is there. */
static void spread(struct op *o, size_t step, float *all)
{
	struct comm *c = o->c;
	struct part t[2 * RANKS];
	size_t bytes = o->n * sizeof(float);
	int n = 0;

	for (int r = 0; r < c->size; r++) {
		uint8_t *to = (uint8_t *)(all + (size_t)r * o->n);

		if (r == c->rank) {
			memmove(to, at(o, o->src, step * (size_t)r), bytes);
			continue;
		}
		t[n++] = (struct part){ at(o, o->src, step * (size_t)r), bytes, 0, r, true };
		t[n++] = (struct part){ to, bytes, 0, r, false };
	}
	move_all(c, t, n);
}

static void sum(struct op *o)
{
	float *all = malloc(o->n * (size_t)o->c->size * sizeof(float)), *to;

	if (!all)
		abort();
	spread(o, o->kind == REDUCE_SCATTER ? o->n : 0, all);
	to = (float *)(void *)at(o, o->dst, 0);
	for (size_t i = 0; i < o->n && !atomic_load(&o->c->abort); i++) {
		float s = all[i];

		for (int r = 1; r < o->c->size; r++)
			s += all[(size_t)r * o->n + i];
		to[i] = s;
	}
	free(all);
}

static void broadcast(struct op *o)
{
	struct part t[RANKS];
	size_t bytes = o->n * sizeof(float);
	int n = 0;

	if (o->c->rank != o->root)
		t[n++] = (struct part){ at(o, o->dst, 0), bytes, 0, o->root, false };
	else if (o->src != o->dst)
		memmove(at(o, o->dst, 0), at(o, o->src, 0), bytes);
	for (int r = 0; r < o->c->size && o->c->rank == o->root; r++)
		if (r != o->root)
			t[n++] = (struct part){ at(o, o->src, 0), bytes, 0, r, true };
	move_all(o->c, t, n);
}

/* The messages of a group, which follow one another in it; returns the first behind them. */
static struct op *messages(struct op *o)
{
	struct comm *c = o->c;
	struct part *t = NULL;
	struct op *end = o;
	int n = 0;

	for (; end && end->kind <= RECV; end = end->next, n++) {
		t = realloc(t, (size_t)(n + 1) * sizeof(*t));
		if (!t)
			abort();
		t[n] = (struct part){ end->kind == SEND ? at(end, end->src, 0)
							: at(end, end->dst, 0),
				      end->n * sizeof(float), 0, end->root, end->kind == SEND };
	}
	move_all(c, t, n);
	free(t);
	return end;
}

static void free_ops(struct op *o)
{
	for (struct op *next; o; o = next) {
		next = o->next;
		free(o);
	}
}

/* Is the collective to hang, or one of the messages that go together? */
static bool hangs(const struct op *o)
{
	bool any = is(o->fault, "hang") || is(o->fault, "deaf");

	for (; !any && o->kind <= RECV && o->next && o->next->kind <= RECV; o = o->next)
		any = is(o->next->fault, "hang") || is(o->next->fault, "deaf");
	return any;
}

/* In the queue of the device: all of a group. */
static void run(void *arg)
{
	struct op *o = arg;
	struct comm *c = o->c;

	for (struct op *k = o; k;) {
		while (hangs(k) && !atomic_load(&c->abort))
			nap(1000000);
		if (k->kind <= RECV) {
			k = messages(k);
			continue;
		}
		if (k->kind == ALL_REDUCE || k->kind == REDUCE_SCATTER)
			sum(k);
		else if (k->kind == ALL_GATHER)
			spread(k, 0, (float *)(void *)at(k, k->dst, 0));
		else
			broadcast(k);
		k = k->next;
	}
	free_ops(o);
	atomic_fetch_sub(&c->in_queue, 1);
}

/* ---- calls ---- */

static int refuse(const char *why)
{
	snprintf(last, sizeof(last), "%s\n", why);
	return INVALID_ARGUMENT;
}

static void *connect_main(void *arg)
{
	struct comm *c = arg;

	nap(3000000);
	atomic_fetch_add(&c->s->connected, 1);
	while (atomic_load(&c->s->connected) < c->size && !atomic_load(&c->abort))
		nap(100000);
	if (atomic_load(&c->abort)) {
		free_ops(c->op);
	} else {
		atomic_fetch_add(&c->in_queue, 1);
		c->op->queue->put(c->op->queue, run, c->op);
	}
	atomic_store(&c->connected, true);
	atomic_store(&c->state, PL_NCCL_SUCCESS);
	return NULL;
}

static void join(struct comm *c)
{
	if (c->threaded)
		pthread_join(c->thread, NULL);
	c->threaded = false;
}

static int submit(struct op *o)
{
	struct comm *c = o->c;

	if (!atomic_load(&c->connected)) {
		join(c);
		c->op = o;
		atomic_store(&c->state, PL_NCCL_IN_PROGRESS);
		if (pthread_create(&c->thread, NULL, connect_main, c))
			abort();
		c->threaded = true;
		return PL_NCCL_IN_PROGRESS;
	}
	atomic_fetch_add(&c->in_queue, 1);
	o->queue->put(o->queue, run, o);
	return PL_NCCL_SUCCESS;
}

static int enqueue(enum kind kind, const void *src, void *dst, size_t n, int type, int root,
		   struct comm *c, void *stream)
{
	struct op *o;
	const char *f;

	if (type != PL_NCCL_FLOAT32 || root < 0 || root >= c->size || !stream)
		return refuse("odd arguments");
	if (atomic_load(&c->state) == PL_NCCL_IN_PROGRESS)
		return refuse("the communicator is at work");
	f = fault(c->rank, c->ops++);
	if (is(f, "stuck"))
		atomic_store(&c->stuck, true);
	while (is(f, "stuck"))
		nap(1000000);
	if (is(f, "exit"))
		kill(getpid(), SIGKILL);
	if (is(f, "slow"))
		atomic_store(&c->slow, true);
	if (is(f, "error") || is(f, "slow")) {
		snprintf(last, sizeof(last), "cuda failure 700\n");
		return trouble = CUDA_ERROR;
	}
	if (is(f, "remote"))
		atomic_store(&c->state, PL_NCCL_REMOTE_ERROR);
	if (is(f, "deaf"))
		atomic_store(&c->deaf, true);
	o = calloc(1, sizeof(*o));
	if (!o)
		abort();
	*o = (struct op){ .kind = kind,
			  .src = src,
			  .dst = dst,
			  .n = n,
			  .root = root,
			  .c = c,
			  .queue = stream,
			  .fault = f };
	if (!depth)
		return submit(o);
	*group_tail = o;
	group_tail = &o->next;
	return PL_NCCL_SUCCESS;
}

/* Of a part and the whole of which it may be the rank's own. */
static bool overlaps(const void *part, size_t n, const void *whole, const struct comm *c)
{
	const float *p = part, *w = whole;

	return p + n > w && p < w + n * (size_t)c->size && p != w + n * (size_t)c->rank;
}

API int ncclAllReduce(const void *src, void *dst, size_t n, int type, int red, void *c, void *s);
API int ncclAllReduce(const void *src, void *dst, size_t n, int type, int red, void *c, void *s)
{
	return red == PL_NCCL_SUM ? enqueue(ALL_REDUCE, src, dst, n, type, 0, c, s)
				  : refuse("no such reduction");
}

API int ncclReduceScatter(const void *src, void *dst, size_t n, int type, int red, void *c,
			  void *s);
API int ncclReduceScatter(const void *src, void *dst, size_t n, int type, int red, void *c, void *s)
{
	if (overlaps(dst, n, src, c))
		return refuse("in place is another place");
	return red == PL_NCCL_SUM ? enqueue(REDUCE_SCATTER, src, dst, n, type, 0, c, s)
				  : refuse("no such reduction");
}

API int ncclAllGather(const void *src, void *dst, size_t n, int type, void *c, void *s);
API int ncclAllGather(const void *src, void *dst, size_t n, int type, void *c, void *s)
{
	if (overlaps(src, n, dst, c))
		return refuse("in place is another place");
	return enqueue(ALL_GATHER, src, dst, n, type, 0, c, s);
}

API int ncclBroadcast(const void *src, void *dst, size_t n, int type, int root, void *c, void *s);
API int ncclBroadcast(const void *src, void *dst, size_t n, int type, int root, void *c, void *s)
{
	return enqueue(BROADCAST, src, dst, n, type, root, c, s);
}

API int ncclSend(const void *src, size_t n, int type, int peer, void *c, void *s);
API int ncclSend(const void *src, size_t n, int type, int peer, void *c, void *s)
{
	return enqueue(SEND, src, NULL, n, type, peer, c, s);
}

API int ncclRecv(void *dst, size_t n, int type, int peer, void *c, void *s);
API int ncclRecv(void *dst, size_t n, int type, int peer, void *c, void *s)
{
	return enqueue(RECV, NULL, dst, n, type, peer, c, s);
}

API int ncclGroupStart(void);
API int ncclGroupStart(void)
{
	if (depth++ == 0) {
		group = NULL;
		group_tail = &group;
		trouble = PL_NCCL_SUCCESS;
	}
	return PL_NCCL_SUCCESS;
}

API int ncclGroupEnd(void);
API int ncclGroupEnd(void)
{
	if (!depth)
		return INVALID_USAGE;
	if (--depth)
		return PL_NCCL_SUCCESS;
	if (trouble != PL_NCCL_SUCCESS || !group)
		return trouble;
	return submit(group);
}

/* ---- communicators ---- */

static int own_version(void)
{
	const char *s = getenv("FAKE_NCCL_VERSION"), *me = getenv("PACELINE_TEST_RANK");
	int rank, code;

	if (s && me && sscanf(s, "%d:%d", &rank, &code) == 2 && rank == atoi(me))
		return code;
	return 22809;
}

API int ncclGetVersion(int *version);
API int ncclGetVersion(int *version)
{
	*version = own_version();
	return PL_NCCL_SUCCESS;
}

API int ncclGetUniqueId(struct pl_nccl_id *id);
API int ncclGetUniqueId(struct pl_nccl_id *id)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	memset(id, 0, sizeof(*id));
	snprintf(id->bytes, sizeof(id->bytes), "/fake-nccl-%d-%lld", (int)getpid(),
		 (long long)t.tv_sec * 1000000000 + t.tv_nsec);
	return PL_NCCL_SUCCESS;
}

/* All ranks have come when all have opened the memory; then nobody needs its name. */
static void *init_main(void *arg)
{
	struct comm *c = arg;
	int fd = shm_open(c->id.bytes, O_RDWR | O_CREAT, 0600);
	bool ok = fd >= 0 && ftruncate(fd, sizeof(*c->s)) == 0;
	struct shared *s = ok ? mmap(NULL, sizeof(*c->s), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
			      : MAP_FAILED;

	if (fd >= 0)
		close(fd);
	if (s == MAP_FAILED) {
		atomic_store(&c->state, PL_NCCL_SYSTEM_ERROR);
		return NULL;
	}
	c->s = s;
	if (is(fault(c->rank, -1), "exit"))
		kill(getpid(), SIGKILL);
	if (!is(fault(c->rank, -1), "hang"))
		atomic_fetch_add(&s->came, 1);
	while (atomic_load(&s->came) < c->size && !atomic_load(&c->abort))
		nap(100000);
	shm_unlink(c->id.bytes);
	if (is(fault(c->rank, -1), "twice"))
		snprintf(last, sizeof(last),
			 "Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 1a000\n");
	atomic_store(&c->state, is(fault(c->rank, -1), "error")	  ? CUDA_ERROR
				: is(fault(c->rank, -1), "twice") ? INVALID_USAGE
								  : PL_NCCL_SUCCESS);
	return NULL;
}

API int ncclCommInitRankConfig(void **out, int size, struct pl_nccl_id id, int rank,
			       struct pl_nccl_config *config);
API int ncclCommInitRankConfig(void **out, int size, struct pl_nccl_id id, int rank,
			       struct pl_nccl_config *config)
{
	struct comm *c = calloc(1, sizeof(*c));

	if (!c)
		abort();
	if (size > RANKS || config->magic != PL_NCCL_MAGIC || config->size < sizeof(*config) ||
	    config->version < 21400 || config->blocking) {
		free(c);
		return refuse("odd configuration");
	}
	c->id = id;
	c->rank = rank;
	c->size = size;
	atomic_store(&c->state, PL_NCCL_IN_PROGRESS);
	*out = c;
	if (pthread_create(&c->thread, NULL, init_main, c))
		abort();
	c->threaded = true;
	return PL_NCCL_IN_PROGRESS;
}

API int ncclCommGetAsyncError(void *comm, int *result);
API int ncclCommGetAsyncError(void *comm, int *result)
{
	struct comm *c = comm;

	*result = atomic_load(&c->state);
	return PL_NCCL_SUCCESS;
}

static void drop(struct comm *c)
{
	join(c);
	while (atomic_load(&c->in_queue))
		nap(100000);
	if (c->s)
		munmap(c->s, sizeof(*c->s));
	free(c);
}

static void *finalize_main(void *arg)
{
	struct comm *c = arg;

	while (atomic_load(&c->in_queue))
		nap(100000);
	atomic_store(&c->state, PL_NCCL_SUCCESS);
	return NULL;
}

API int ncclCommFinalize(void *comm);
API int ncclCommFinalize(void *comm)
{
	struct comm *c = comm;

	if (atomic_load(&c->state) != PL_NCCL_SUCCESS)
		return refuse("the communicator is at work");
	join(c);
	atomic_store(&c->state, PL_NCCL_IN_PROGRESS);
	if (pthread_create(&c->thread, NULL, finalize_main, c))
		abort();
	c->threaded = true;
	return PL_NCCL_IN_PROGRESS;
}

API int ncclCommDestroy(void *comm);
API int ncclCommDestroy(void *comm)
{
	drop(comm);
	return PL_NCCL_SUCCESS;
}

static _Atomic bool aborting;

__attribute__((destructor)) static void unload(void)
{
	if (atomic_load(&aborting))
		abort();
}

API int ncclCommAbort(void *comm);
API int ncclCommAbort(void *comm)
{
	struct comm *c = comm;

	if (atomic_load(&c->slow)) {
		atomic_store(&aborting, true);
		nap(900000000);
		atomic_store(&aborting, false);
	}
	if (atomic_load(&c->deaf) || atomic_load(&c->stuck))
		join(c);
	while (atomic_load(&c->deaf))
		nap(1000000);
	atomic_store(&c->abort, true);
	if (!atomic_load(&c->stuck)) /* else a call is still looking at it */
		drop(c);
	return PL_NCCL_SUCCESS;
}

API const char *ncclGetErrorString(int result);
API const char *ncclGetErrorString(int result)
{
	switch (result) {
	case PL_NCCL_SUCCESS:
		return "no error";
	case CUDA_ERROR:
		return "unhandled cuda error";
	case PL_NCCL_REMOTE_ERROR:
		return "remote process exited or there was a network error";
	default:
		return "some error";
	}
}

API const char *ncclGetLastError(void *comm);
API const char *ncclGetLastError(void *comm)
{
	(void)comm;
	return last;
}
