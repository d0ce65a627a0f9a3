/*
 * Collectives of a device's memory through NCCL, which is loaded when a world asks for it.
 *
 * The calls of the library do not block, because the communicator is non-blocking. A call that
 * needs more than queueing (the first calls connect) returns "in progress", and its state is polled
 * before the next call is made. The library queues its kernels on the second queue of the backend.
 * A mark behind them in that queue tells when they have ended. One thread makes all calls except
 * those that end a communicator. These can hang (a kernel does not stop, or a thread of the library
 * waits for a peer), so they run in a thread of their own, which is abandoned after a deadline. At
 * its exit the process waits a little longer for this thread, because the thread may still free
 * memory through a library that is about to be unloaded.
 *
 * Sends and receives are collected until one is waited for or a collective begins. Then they are
 * one group for the library, because only so two ranks can send to one another at the same time.
 *
 * When a rank dies, the first sign is an error of the library on a rank that communicated with it,
 * and then on further ranks. Only the control connections know which rank died. An error of the
 * library is therefore reported after a delay in which the control connections can name that rank.
 */
#include <assert.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "comm/internal.h"
#include "comm/nccl_abi.h"
#include "tensor/backend.h"

#define LIBRARY "libnccl.so.2"

struct nccl {
	struct pl_nccl_api f;
	struct pl_world *w;
	pl_nccl_comm comm;
	pl_nccl_stream stream;
	const char *phase; /* before operations */
	/* Active works: the first of the last call, which may be in progress, and the first that
	 * the library does not have yet; it may not have begun. */
	struct pl_work *in_progress, *head;
	pl_ns since;	/* when it began */
	float *scratch; /* of barriers */
	/* of the thread that ends it */
	bool aborts;
	pl_ns until;
	_Atomic bool ended;
	_Atomic int owners;
	pthread_t caller; /* of all but abort */
};

static_assert(PL_NCCL_ID_BYTES == PL_LIBRARY_ID, "ranks tell one another an id");

/* ---- the library ---- */

#define REMEDY                                                                                     \
	"; NCCL 2.14 or newer is needed (PACELINE_NCCL=PATH says which library to load), or "      \
	"another transport"

static int load(struct nccl *n, struct pl_ready *own, struct pl_err *err)
{
	const char *path = getenv("PACELINE_NCCL");
	struct pl_nccl_api *f = &n->f;
	int v = 0;

	path = path && *path ? path : LIBRARY;
	f->lib = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!f->lib)
		return pl_fail(err, PL_EABSENT, "cannot load %.120s" REMEDY, dlerror());
#define TAKE(member, symbol, type, args)                                                           \
	if (!pl_symbol(f->lib, symbol, &f->member))                                                \
		return pl_fail(err, PL_EABSENT, "%.100s has no %s" REMEDY, path, symbol);
	PL_NCCL_FUNCTIONS(TAKE)
#undef TAKE
	if (f->get_version(&v) != PL_NCCL_SUCCESS || v < PL_NCCL_OLDEST)
		return pl_fail(err, PL_EABSENT, "%.100s is of version %d" REMEDY, path, v);
	snprintf(own->text, sizeof(own->text), "NCCL %d.%d.%d", v / 10000, v / 100 % 100, v % 100);
	return 0;
}

/* The message of the library about a failed call, on one line. */
static int failed(struct nccl *n, int result, struct pl_err *err)
{
	const char *last = n->f.last_error(n->comm), *what = n->f.error_string(result);
	char text[160];

	snprintf(text, sizeof(text), "%s", last ? last : "");
	for (char *c = text; *c; c++)
		*c = *c == '\n' || *c == '\r' ? ' ' : *c;
	while (*text && text[strlen(text) - 1] == ' ')
		text[strlen(text) - 1] = '\0';
	return pl_fail(err, PL_EIO, "NCCL failed%s%s: %.100s%s%s (%s)", n->phase ? " at " : "",
		       n->phase ? n->phase : "", what ? what : "", *text ? ": " : "", text,
		       strstr(text, "Duplicate GPU")
			       ? "it takes one rank a GPU: start fewer, or take another transport"
			       : "NCCL_DEBUG=WARN shows more");
}

/* ---- the end ---- */

static _Atomic int ending; /* communicators */
static _Atomic pl_ns patience;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void until_ended(void)
{
	pl_ns until = pl_now_ns() + atomic_load(&patience);

	while (atomic_load(&ending) && pl_now_ns() < until)
		pl_sleep_ns(1000000);
}

/* Registered after the library is loaded, so that it runs before the exit handlers of the library.
 * If atexit() fails, the exit does not wait. */
static void at_exit(void)
{
	atexit(until_ended);
}

/* While the communicator ends it has two owners: the caller and the thread that ends it. */
static void release(struct nccl *n)
{
	if (atomic_fetch_sub(&n->owners, 1) == 1)
		pl_free(n);
}

static void *end_main(void *arg)
{
	struct nccl *n = arg;
	int r = PL_NCCL_SUCCESS;

	if (!n->aborts) {
		r = n->f.finalize(n->comm);
		while (r == PL_NCCL_SUCCESS || r == PL_NCCL_IN_PROGRESS) {
			int rc = n->f.async_error(n->comm, &r);

			r = rc == PL_NCCL_SUCCESS ? r : rc;
			if (r != PL_NCCL_IN_PROGRESS || pl_now_ns() > n->until)
				break;
			pl_sleep_ns(1000000);
		}
	}
	if (n->aborts || r != PL_NCCL_SUCCESS)
		n->f.stop(n->comm);
	else
		n->f.destroy(n->comm);
	atomic_store(&n->ended, true);
	release(n);
	atomic_fetch_sub(&ending, 1);
	return NULL;
}

/* Waits at most this long for the thread, then abandons it. */
static void end_communicator(struct nccl *n, bool aborts, pl_ns ns)
{
	pl_ns until = pl_now_ns() + ns;
	pthread_t t;

	n->aborts = aborts;
	n->until = until;
	/* a third owner: if this is not the calling thread, that one may still return from a call
	 * of the library and use n */
	atomic_store(&n->owners, pthread_equal(n->caller, pthread_self()) ? 2 : 3);
	atomic_fetch_add(&ending, 1);
	if (!n->comm || pl_fail_now() || pthread_create(&t, NULL, end_main, n)) {
		atomic_fetch_sub(&ending, 1);
		pl_free(n);
		return;
	}
	pthread_detach(t);
	while (!atomic_load(&n->ended) && pl_now_ns() < until)
		pl_sleep_ns(1000000);
	release(n);
}

static void nccl_abort(void *state)
{
	struct nccl *n = state;

	end_communicator(n, true, n->w->timeout / 8);
}

static void nccl_close(void *state)
{
	struct nccl *n = state;
	const struct pl_world *w = n->w;

	if (n->scratch)
		w->device.b->free(w->device.ctx, n->scratch);
	end_communicator(n, false, w->timeout);
}

/* ---- making it ---- */

/* Makes the id of the communicator, too, if this is rank 0. */
static int nccl_load(struct pl_world *w, void **state, struct pl_ready *own, struct pl_err *err)
{
	struct nccl *n;
	int r;

	PL_CHECK(pl_alloc(&n, 1, sizeof(*n), err));
	*state = n;
	n->w = w;
	if (!w->device.b)
		return pl_fail(
			err, PL_EUSAGE,
			"it is for the memory of GPUs; say device cuda, or another transport");
	PL_CHECK(load(n, own, err));
	if (w->rank)
		return 0;
	n->phase = "making an id";
	r = n->f.get_id((void *)own->id);
	return r == PL_NCCL_SUCCESS ? 0 : failed(n, r, err);
}

static int nccl_open(void *state, struct pl_err *err)
{
	struct nccl *n = state;
	struct pl_world *w = n->w;
	struct pl_nccl_config config = { .size = sizeof(config),
					 .magic = PL_NCCL_MAGIC,
					 .version = PL_NCCL_CONFIG_VERSION };
	struct pl_nccl_id id;
	int rc = 0, r;

	n->caller = pthread_self();
	n->stream = w->device.b->comm_stream(w->device.ctx);
	n->scratch = w->device.b->alloc(w->device.ctx, sizeof(float));
	if (!n->scratch)
		return pl_fail(err, PL_ENOMEM, "out of memory of the device");
	memcpy(&id, w->library.first.id, sizeof(id));
	atomic_store(&patience, w->timeout);
	pthread_once(&once, at_exit);
	n->phase = "connecting the ranks";
	r = n->f.init(&n->comm, w->size, id, w->rank, &config);
	if (r != PL_NCCL_SUCCESS && r != PL_NCCL_IN_PROGRESS)
		rc = failed(n, r, err);
	if (rc < 0) {
		w->library.state = NULL; /* it may be in use until the communicator has ended */
		nccl_close(n);
	}
	return rc;
}

/* ---- operations ---- */

static bool is_message(const struct pl_work *k)
{
	return k->a.op <= PL_OP_RECV;
}

static bool has_begun(const struct pl_work *k)
{
	return k && k->state > PL_WORK_QUEUED;
}

/* All-to-all: each rank sends a part to each other. In place the parts are sent from a copy. */
static int exchange(struct nccl *n, const struct pl_work *k)
{
	const struct pl_nccl_api *f = &n->f;
	const struct pl_world *w = n->w;
	size_t count = k->a.count;
	const float *src = k->a.src;
	int r = PL_NCCL_SUCCESS;

	if (src == k->a.dst) {
		src = k->device.stage;
		w->device.b->copy_async(w->device.ctx, k->device.stage, k->a.src,
					count * (size_t)w->size * sizeof(float));
	}
	for (int i = 0; i < w->size && r == PL_NCCL_SUCCESS; i++) {
		int to = (w->rank + i) % w->size, from = (w->rank + w->size - i) % w->size;

		r = f->send(src + (size_t)to * count, count, PL_NCCL_FLOAT32, to, n->comm,
			    n->stream);
		if (r == PL_NCCL_SUCCESS)
			r = f->recv((float *)k->a.dst + (size_t)from * count, count,
				    PL_NCCL_FLOAT32, from, n->comm, n->stream);
	}
	return r;
}

/* The chunks of a partitioned vector are calls of one group. */
static int all_reduce(struct nccl *n, const struct pl_coll_args *a)
{
	size_t parts = a->parts ? a->parts : 1, from = 0;
	int r = PL_NCCL_SUCCESS;

	for (size_t i = 0; i < parts && r == PL_NCCL_SUCCESS; i++) {
		size_t to = a->count * (i + 1) / parts;

		if (to > from)
			r = n->f.all_reduce((const float *)a->src + from, (float *)a->dst + from,
					    to - from, PL_NCCL_FLOAT32, PL_NCCL_SUM, n->comm,
					    n->stream);
		from = to;
	}
	return r;
}

static int call(struct nccl *n, const struct pl_work *k)
{
	const struct pl_nccl_api *f = &n->f;
	const struct pl_coll_args *a = &k->a;

	switch (a->op) {
	case PL_OP_SEND:
		return f->send(a->src, a->count, PL_NCCL_FLOAT32, a->root, n->comm, n->stream);
	case PL_OP_RECV:
		return f->recv(a->dst, a->count, PL_NCCL_FLOAT32, a->root, n->comm, n->stream);
	case PL_OP_ALLREDUCE:
		return all_reduce(n, a);
	case PL_OP_REDUCE_SCATTER:
		return f->reduce_scatter(a->src, a->dst, a->count, PL_NCCL_FLOAT32, PL_NCCL_SUM,
					 n->comm, n->stream);
	case PL_OP_ALLGATHER:
		return f->all_gather(a->src, a->dst, a->count, PL_NCCL_FLOAT32, n->comm, n->stream);
	case PL_OP_BROADCAST:
		return f->broadcast(n->w->rank == a->root ? a->src : a->dst, a->dst, a->count,
				    PL_NCCL_FLOAT32, a->root, n->comm, n->stream);
	case PL_OP_ALLTOALL:
		return exchange(n, k);
	default:
		return f->all_reduce(n->scratch, n->scratch, 1, PL_NCCL_FLOAT32, PL_NCCL_SUM,
				     n->comm, n->stream);
	}
}

/* Issues a group: the first collective, or all messages before the next collective. */
static int launch(struct nccl *n)
{
	struct pl_work *next = n->head;
	int r, also;

	n->since = pl_now_ns();
	r = n->f.group_start();
	do {
		if (r == PL_NCCL_SUCCESS && (next->a.count || next->a.op == PL_OP_BARRIER))
			r = call(n, next);
		next = next->next;
	} while (is_message(n->head) && has_begun(next) && is_message(next));
	n->phase = NULL;
	n->in_progress = n->head;
	n->head = next;
	also = n->f.group_end();
	return r == PL_NCCL_SUCCESS ? also : r;
}

/* The operations of the last call are now in the queue of the device. */
static void launched(struct nccl *n)
{
	const struct pl_backend *b = n->w->device.b;
	uint64_t mark = n->in_progress ? b->event_record(n->w->device.ctx) : 0;

	for (; has_begun(n->in_progress) && n->in_progress != n->head;
	     n->in_progress = n->in_progress->next)
		pl_comm_device_launched(n->in_progress, mark, n->since);
	n->in_progress = NULL;
}

/* Messages are collected until one of them is waited for and all that were begun are here. */
static bool can_launch(const struct nccl *n)
{
	const struct pl_work *k = n->head;
	int here = 0;

	for (; has_begun(k) && is_message(k); k = k->next)
		here++;
	return has_begun(k) || (here && atomic_load(&n->w->device.launch_awaited) &&
				here == atomic_load(&n->w->device.launching));
}

/* Issues operations that were begun, unless the communicator has a call in progress. */
static int issue_ready(struct nccl *n, struct pl_err *err)
{
	int r = PL_NCCL_SUCCESS, rc;

	rc = n->f.async_error(n->comm, &r);
	if (rc != PL_NCCL_SUCCESS)
		r = rc;
	if (r == PL_NCCL_IN_PROGRESS)
		return 0;
	for (;;) {
		if (r != PL_NCCL_SUCCESS)
			return failed(n, r, err);
		launched(n);
		if (!can_launch(n))
			return 0;
		r = launch(n);
		if (r == PL_NCCL_IN_PROGRESS)
			return 0;
	}
}

static int nccl_begin(void *state, struct pl_work *k, struct pl_err *err)
{
	struct nccl *n = state;

	k->state = PL_WORK_IN_LIBRARY;
	n->head = n->head ? n->head : k;
	return issue_ready(n, err);
}

/* The least bytes that other ranks received from this rank: NCCL does not tell its algorithm. */
static size_t sent(const struct pl_world *w, const struct pl_coll_args *a)
{
	size_t n = (size_t)w->size, part = a->count * sizeof(float);

	switch (a->op) {
	case PL_OP_SEND:
		return part;
	case PL_OP_ALLREDUCE:
		return 2 * (part - part / n);
	case PL_OP_BROADCAST:
		return w->rank == a->root && n > 1 ? part : 0;
	case PL_OP_RECV:
	case PL_OP_BARRIER:
		return 0;
	default:
		return part * (n - 1);
	}
}

static int nccl_test(void *state, struct pl_work *k, struct pl_err *err)
{
	struct nccl *n = state;
	struct pl_world *w = n->w;
	int rc = issue_ready(n, err);

	if (rc < 0 || !k->device.launched)
		return rc;
	rc = w->device.b->event_passed(w->device.ctx, k->device.mark, err);
	if (rc > 0)
		atomic_fetch_add(&w->sent, sent(w, &k->a));
	return rc;
}

const struct pl_comm_library pl_comm_library_nccl = {
	.name = "nccl",
	.device = true,
	.load = nccl_load,
	.open = nccl_open,
	.begin = nccl_begin,
	.test = nccl_test,
	.abort = nccl_abort,
	.close = nccl_close,
};
