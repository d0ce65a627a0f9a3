/*
 * Memory of a device in a world: pl_world_opts.backend.
 *
 * NCCL uses this memory directly. An operation goes into the second queue of the backend and starts
 * after the work that the first queue had when the operation began (fork). A wait for the operation
 * makes the first queue wait, not the host (join). The operation may therefore still run after the
 * wait. It then belongs to the world, and pl_comm_world_settle() tells whether it succeeded. The
 * next operation may fork only when the one before it is in the queue, because an earlier fork
 * would delay that one, too.
 *
 * Where MPI takes pointers to memory of devices (mpi.c), messages begin and end in this memory. MPI
 * knows nothing of queues. An operation is therefore delayed until the earlier work of the first
 * queue is done, and a wait for it blocks the host before more work enters that queue. Sums run in
 * a queue of their own. In the second queue they would wait behind operations that were begun
 * later, and these may wait for the rest of a step. A sum has ended when the mark behind it is
 * passed. The host checks this mark, because the next step may be a message.
 *
 * All other transports need memory of the host. The input of an operation is copied to the host in
 * the second queue, and a mark behind the copy tells when the operation can begin. Until then the
 * operation and those after it are delayed. Other ranks are not told that it has begun, because a
 * device may be minutes behind its host. The result is copied back when it is complete.
 *
 * Where NCCL carries the operations, those on memory of the host (on_host) are copied to the device
 * and back. The host waits for them, as for barriers.
 */
#include <sched.h>
#include <sys/mman.h>

#include "comm/internal.h"
#include "tensor/backend.h"

#define ROUND	((size_t)64 << 10) /* of staging memory */
#define SPIN_NS 50000
/* In memory of GPUs a segment costs some 20 us of launches and polling, and a fast network moves a
 * megabyte in this time. Sums are fast there, so overlapping them with sends gains little. */
#define SEGMENT_OF_GPUS ((size_t)4 << 20)
#define SPOIL_OF	2 /* an operation does not take staging memory that is larger by this factor */

void pl_comm_device_init(struct pl_world *w, const struct pl_backend *b, void *ctx)
{
	if (!b || !b->device)
		return;
	w->device.b = b;
	w->device.ctx = ctx;
	w->device.native = w->library.calls && w->library.calls->device;
}

int pl_comm_device_agree(struct pl_world *w, struct pl_err *err)
{
	float all = w->device.cuda_aware;

	if (!w->device.b || w->device.native || !w->library.calls)
		return 0;
	w->device.cuda_aware = false;
	PL_CHECK(pl_comm_add_up(w, &all, 1, err));
	w->device.cuda_aware = (int)all == w->size;
	if (w->device.cuda_aware && !w->o.segment)
		w->segment = SEGMENT_OF_GPUS;
	if (w->rank == 0)
		pl_say(w->o.log, PL_LOG_NOTE, "%s: memory of GPUs %s", w->library.first.text,
		       w->device.cuda_aware ? "is sent and received as it is"
					    : "passes through memory of the host");
	return 0;
}

/* ---- staging memory ---- */

/* Staging memory is memory of the device where NCCL takes it, else pinned memory of the host.
 * Pinned memory has pages of its own, because a page can be pinned only once. */
static void *stage_alloc(struct pl_world *w, size_t bytes)
{
	const struct pl_backend *b = w->device.b;
	void *p;

	if (w->device.native)
		return b->alloc(w->device.ctx, bytes);
	p = pl_fail_now()
		    ? MAP_FAILED
		    : mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (p == MAP_FAILED)
		return NULL;
	b->pin(w->device.ctx, p, bytes, true);
	return p;
}

static bool stage_free(struct pl_world *w, const struct pl_stage *s)
{
	struct pl_err e = { 0 };

	return !s->used && w->device.b->event_passed(w->device.ctx, s->mark, &e) > 0;
}

static int stage_take(struct pl_work *k, size_t bytes, struct pl_err *err)
{
	struct pl_world *w = k->w;
	size_t at = w->device.n_stages;
	void *p = NULL;
	int rc = 0;

	bytes = (bytes + ROUND - 1) / ROUND * ROUND;
	pthread_mutex_lock(&w->lock);
	for (size_t i = 0; i < w->device.n_stages; i++) {
		const struct pl_stage *s = &w->device.stage[i];

		if (s->bytes < bytes || s->bytes > SPOIL_OF * bytes || !stage_free(w, s))
			continue;
		if (!p || s->bytes < w->device.stage[at].bytes) {
			p = s->p;
			at = i;
		}
	}
	if (!p) {
		rc = pl_grow(&w->device.stage, &w->device.cap_stages, at + 1,
			     sizeof(*w->device.stage), err);
		p = rc < 0 ? NULL : stage_alloc(w, bytes);
		if (p)
			w->device.stage[w->device.n_stages++] =
				(struct pl_stage){ .p = p, .bytes = bytes };
		else if (rc == 0)
			rc = pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes to stage %s)", bytes,
				     pl_comm_operation_name(k->a.op));
	}
	if (p)
		w->device.stage[at].used = true;
	pthread_mutex_unlock(&w->lock);
	k->device.stage = p;
	return rc;
}

/* Returns the staging memory: it is free after the work that the second queue has now. */
static void stage_give(struct pl_work *k)
{
	struct pl_world *w = k->w;

	for (size_t i = 0; k->device.stage && i < w->device.n_stages; i++)
		if (w->device.stage[i].p == k->device.stage) {
			w->device.stage[i].used = false;
			w->device.stage[i].mark = k->device.mark;
		}
	k->device.stage = NULL;
}

/* Wait until the device no longer uses it; false: it did not end in time, or hangs. */
static bool stage_unused(struct pl_world *w, const struct pl_stage *s, pl_ns until)
{
	struct pl_err e = { 0 };
	int rc;

	while (!(rc = w->device.b->event_passed(w->device.ctx, s->mark, &e)) && pl_now_ns() < until)
		pl_sleep_ns(1000000);
	return rc != 0;
}

/* MPI may still write to it after a receive was cancelled. */
static void free_memory(struct pl_world *w, void *p)
{
	if (!(w->device.cuda_aware && pl_library_keeps(w)))
		w->device.b->free(w->device.ctx, p);
}

void pl_comm_device_fini(struct pl_world *w)
{
	pl_ns until = pl_now_ns() + w->timeout; /* for all of it */

	for (size_t i = 0; i < w->device.n_stages; i++) {
		void *p = w->device.stage[i].p;

		if ((!w->device.native && pl_library_keeps(w)) ||
		    !stage_unused(w, &w->device.stage[i], until))
			continue;
		if (w->device.native) {
			w->device.b->free(w->device.ctx, p);
			continue;
		}
		w->device.b->pin(w->device.ctx, p, w->device.stage[i].bytes, false);
		munmap(p, w->device.stage[i].bytes);
	}
	pl_free(w->device.stage);
	for (size_t i = 0; i < w->device.n_allocated; i++)
		free_memory(w, w->device.allocated[i]);
	pl_free(w->device.allocated);
}

/* ---- beginning ---- */

/* The data in an operation's staging memory. An all-to-all has two vectors (never in place). */
static struct pl_coll_extent extent_of(const struct pl_world *w, const struct pl_coll_args *a)
{
	struct pl_coll_extent x = pl_comm_coll_extent(w, a);

	if (a->op == PL_OP_ALLTOALL) {
		x.dst = x.whole;
		x.whole *= 2;
	}
	return x;
}

/*
 * Do the messages of the operation use the caller's buffers? Small operations are staged, and so
 * are those for which pl_comm_expand() takes memory of the host: a reduce-scatter, an all-to-all in
 * place, and sums by the direct algorithm. Training has none of the first two. The direct algorithm
 * is chosen only for small sums, unless the user names it.
 */
static bool uses_cuda_aware(const struct pl_world *w, const struct pl_coll_args *a)
{
	size_t bytes = pl_comm_coll_bytes(w, a);

	if (!w->device.cuda_aware || a->on_host || bytes < w->device.min_bytes ||
	    a->op == PL_OP_REDUCE_SCATTER)
		return false;
	if (a->op == PL_OP_ALLREDUCE)
		return pl_comm_algo(w, a->op, a->algo, bytes) != PL_CA_DIRECT;
	return a->op != PL_OP_ALLTOALL || a->src != a->dst;
}

/* Waits until the second queue has all operations that were begun, or the world fails. */
static void wait_until_launched(struct pl_world *w)
{
	pl_ns since = pl_now_ns();

	if (!atomic_load(&w->device.launching))
		return;
	atomic_store(&w->device.launch_awaited, true);
	while (atomic_load(&w->device.launching) && !atomic_load(&w->failed))
		if (pl_now_ns() - since < SPIN_NS)
			sched_yield();
		else
			pl_sleep_ns(SPIN_NS);
	atomic_store(&w->device.launch_awaited, false);
}

/* The calling thread has put it, or the copy of its result, into the second queue. */
static void report_launch(const struct pl_work *k, pl_ns since)
{
	struct pl_world *w = k->w;

	if (w->o.event) {
		struct pl_comm_event e = { .op = k->a.op,
					   .peer = -1,
					   .bytes = pl_comm_coll_bytes(w, &k->a),
					   .begin = since,
					   .end = pl_now_ns(),
					   .launched = true };

		pl_comm_work_report(k, &e);
	}
}

void pl_comm_device_launched(struct pl_work *k, uint64_t mark, pl_ns since)
{
	report_launch(k, since);
	k->device.mark = mark;
	k->device.launched = true;
	atomic_fetch_sub(&k->w->device.launching, 1);
}

int pl_comm_device_begin(struct pl_work *k, struct pl_err *err)
{
	struct pl_world *w = k->w;
	const struct pl_backend *b = w->device.b;
	struct pl_coll_extent x = extent_of(w, &k->a);
	void *ctx = w->device.ctx;
	bool reached = uses_cuda_aware(w, &k->a);
	bool staged = x.whole && k->a.on_host == w->device.native && !reached;
	bool copied = w->device.native && x.whole && !staged && k->a.op == PL_OP_ALLTOALL &&
		      k->a.src == k->a.dst;

	k->device.original = k->a;
	k->device.on_device = !k->a.on_host && k->a.op != PL_OP_BARRIER;
	k->device.cuda_aware = reached;
	if (staged || copied)
		PL_CHECK(stage_take(k, (staged ? x.whole : x.src_n) * sizeof(float), err));
	if (staged) {
		k->a.src = (float *)k->device.stage + x.src;
		k->a.dst = (float *)k->device.stage + x.dst;
	}
	if (w->device.native) {
		if (k->a.op > PL_OP_RECV)
			wait_until_launched(w);
		atomic_fetch_add(&w->device.launching, 1);
		if (staged && x.src_n)
			b->put(ctx, (void *)(uintptr_t)k->a.src, k->device.original.src,
			       x.src_n * sizeof(float));
		b->fork(ctx);
	} else if (staged || reached) {
		b->fork(ctx);
		if (staged && x.src_n)
			b->copy_async(ctx, (void *)(uintptr_t)k->a.src, k->device.original.src,
				      x.src_n * sizeof(float));
		k->device.mark = b->event_record(ctx);
		k->device.delayed = true;
	}
	return 0;
}

void pl_comm_device_undo(struct pl_work *k)
{
	if (k->w->device.native)
		atomic_fetch_sub(&k->w->device.launching, 1);
	k->device.mark = k->device.delayed ? k->device.mark : 0;
	stage_give(k);
}

bool pl_comm_device_ready(struct pl_work *k)
{
	struct pl_world *w = k->w;
	struct pl_err e = { 0 };
	int rc = k->device.delayed ? w->device.b->event_passed(w->device.ctx, k->device.mark, &e)
				   : 1;

	/* its program may begin with a copy of its input */
	if (rc > 0 && k->device.delayed && !k->direct && !w->library.calls)
		rc = pl_comm_expand(k, &e) < 0 ? e.code : rc;
	if (rc < 0)
		pl_comm_world_fail(w, w->rank, "rank %d: %s", pl_comm_name(w, w->rank), e.msg);
	if (rc <= 0)
		return false;
	if (k->device.delayed) /* before that it waited for the device, not for other ranks */
		k->begin = pl_now_ns();
	if (k->a.op > PL_OP_RECV)
		atomic_fetch_add(&w->device.ready, 1);
	else if (k->a.op == PL_OP_SEND)
		atomic_fetch_add(&w->peer[k->a.root].sends_on_host, 1);
	return true;
}

int pl_comm_device_step(struct pl_step *s, const float *came, struct pl_err *err)
{
	const struct pl_world *w = s->work->w;
	const struct pl_backend *b = w->device.b;

	if (!s->mark)
		s->mark = b->sum_async(w->device.ctx, s->bytes / sizeof(float),
				       (const float *)(const void *)s->a, came,
				       (float *)(void *)s->dst);
	return b->event_passed(w->device.ctx, s->mark, err);
}

/* ---- ending ---- */

void pl_comm_device_end(struct pl_work *k)
{
	struct pl_world *w = k->w;
	struct pl_coll_extent x = extent_of(w, &k->device.original);
	pl_ns since = pl_now_ns();

	if (!k->device.stage)
		return;
	if (w->device.native && k->device.on_device) { /* it was only on the device for a copy */
		pthread_mutex_lock(&w->lock);
		stage_give(k);
		pthread_mutex_unlock(&w->lock);
	}
	if (w->device.native)
		return;
	if (x.dst_n)
		w->device.b->copy_async(w->device.ctx, k->device.original.dst, k->a.dst,
					x.dst_n * sizeof(float));
	k->device.mark = w->device.b->event_record(w->device.ctx);
	if (x.dst_n)
		report_launch(k, since);
}

void pl_comm_device_waited(struct pl_work *k)
{
	struct pl_world *w = k->w;
	struct pl_coll_extent x = extent_of(w, &k->device.original);

	if (!k->failed && (k->device.on_device || k->device.stage))
		w->device.b->join(w->device.ctx);
	if (!k->failed && !k->device.on_device && k->device.stage && w->device.native && x.dst_n)
		w->device.b->get(w->device.ctx, k->device.original.dst, k->a.dst,
				 x.dst_n * sizeof(float));
	pthread_mutex_lock(&w->lock);
	stage_give(k);
	pthread_mutex_unlock(&w->lock);
}

bool pl_comm_device_detach(struct pl_work *k)
{
	struct pl_world *w = k->w;
	bool left;

	if (!w->device.native)
		return false;
	wait_until_launched(w);
	if (!k->device.on_device || atomic_load(&w->failed))
		return false;
	w->device.b->join(w->device.ctx);
	pthread_mutex_lock(&w->lock);
	left = !pl_comm_work_done(k) && !atomic_load(&w->failed);
	k->device.detached = left;
	w->device.detached += left;
	pthread_mutex_unlock(&w->lock);
	return left;
}

/* ---- waits of the caller without a deadline ---- */

void pl_comm_device_settled(struct pl_world *w)
{
	uint64_t mark;

	if (w->size < 2)
		return;
	w->device.b->fork(w->device.ctx);
	mark = w->device.b->event_record(w->device.ctx);
	pthread_mutex_lock(&w->lock);
	w->device.settled = mark;
	w->device.settled_at = pl_now_ns();
	w->device.settled_stopped_ns = atomic_load(&w->stopped_ns);
	pthread_mutex_unlock(&w->lock);
}

void pl_comm_device_look(struct pl_world *w, pl_ns now)
{
	struct pl_err e = { 0 };
	uint64_t mark;
	pl_ns in;
	bool late;

	pthread_mutex_lock(&w->lock);
	mark = w->device.settled;
	in = now - w->device.settled_at -
	     (atomic_load(&w->stopped_ns) - w->device.settled_stopped_ns);
	pthread_mutex_unlock(&w->lock);
	/* if the device failed, the thread that waits is told */
	late = mark && !w->device.b->event_passed(w->device.ctx, mark, &e) && in >= w->patience;
	if (late)
		pl_comm_world_fail(w, w->rank, "rank %d waited %.1f s for its device",
				   pl_comm_name(w, w->rank), (double)in / 1e9);
}

/* ---- memory ---- */

void *pl_comm_device_alloc(struct pl_world *w, size_t bytes, struct pl_err *err)
{
	void *p = w->device.b->alloc(w->device.ctx, bytes ? bytes : 1);
	struct pl_err own = { 0 };
	int rc = p ? pl_grow(&w->device.allocated, &w->device.cap_allocated,
			     w->device.n_allocated + 1, sizeof(*w->device.allocated), &own)
		   : pl_fail(&own, PL_ENOMEM, "out of memory (%zu bytes of the device)", bytes);

	(void)rc; /* own has it */
	if (pl_comm_agree(w, &own, err) >= 0) {
		w->device.allocated[w->device.n_allocated++] = p;
		return p;
	}
	if (p)
		w->device.b->free(w->device.ctx, p);
	return NULL;
}

void pl_comm_device_free(struct pl_world *w, void *p)
{
	for (size_t i = 0; i < w->device.n_allocated; i++)
		if (w->device.allocated[i] == p) {
			w->device.allocated[i] = w->device.allocated[--w->device.n_allocated];
			free_memory(w, p);
			return;
		}
}
