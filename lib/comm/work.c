/*
 * Operations: checks of arguments, beginning, numbers, end. world.c has the threads.
 */
#include "comm/internal.h"

struct pl_coll_extent pl_comm_coll_extent(const struct pl_world *w, const struct pl_coll_args *a)
{
	size_t n = (size_t)w->size, c = a->count, own = (size_t)w->rank * c;

	switch (a->op) {
	case PL_OP_SEND:
		return (struct pl_coll_extent){ .whole = c, .src_n = c };
	case PL_OP_RECV:
		return (struct pl_coll_extent){ .whole = c, .dst_n = c };
	case PL_OP_BARRIER:
		return (struct pl_coll_extent){ 0 };
	case PL_OP_BROADCAST:
		return (struct pl_coll_extent){ c, 0, w->rank == a->root ? c : 0, 0, c };
	case PL_OP_REDUCE_SCATTER:
		return (struct pl_coll_extent){ c * n, 0, c * n, own, c };
	case PL_OP_ALLGATHER:
		return (struct pl_coll_extent){ c * n, own, c, 0, c * n };
	case PL_OP_ALLTOALL:
		return (struct pl_coll_extent){ c * n, 0, c * n, 0, c * n };
	default:
		return (struct pl_coll_extent){ c, 0, c, 0, c };
	}
}

size_t pl_comm_coll_bytes(const struct pl_world *w, const struct pl_coll_args *a)
{
	return pl_comm_coll_extent(w, a).whole * sizeof(float);
}

static int check_args(const struct pl_world *w, const struct pl_coll_args *a, struct pl_err *err)
{
	const char *name = pl_comm_operation_name(a->op);
	bool pair = a->op <= PL_OP_RECV;
	struct pl_coll_extent x;

	if (a->op >= PL_OP_COUNT_ || a->algo >= PL_CA_COUNT_)
		return pl_fail(err, PL_EINTERNAL, "unknown operation %u or algorithm %u", a->op,
			       a->algo);
	if ((pair || a->op == PL_OP_BROADCAST) && (a->root < 0 || a->root >= w->size))
		return pl_fail(err, PL_EINTERNAL, "%s: no rank %d among %d", name, a->root,
			       w->size);
	if (pair && a->root == w->rank)
		return pl_fail(err, PL_EINTERNAL, "%s: rank %d to itself", name,
			       pl_comm_name(w, w->rank));
	if ((a->op == PL_OP_REDUCE_SCATTER || a->op == PL_OP_ALLGATHER) && a->src == a->dst &&
	    a->count && w->rank)
		return pl_fail(err, PL_EINTERNAL,
			       "%s: in place, but not in the own part of rank %d", name,
			       pl_comm_name(w, w->rank));
	if (a->count > SIZE_MAX / sizeof(float) / (size_t)w->size / 2 || a->parts > 65536)
		return pl_fail(err, PL_ELIMIT, "%s of %zu elements in %u parts", name, a->count,
			       a->parts);
	x = pl_comm_coll_extent(w, a);
	if ((x.src_n && !a->src) || (x.dst_n && !a->dst))
		return pl_fail(err, PL_EINTERNAL, "%s: no buffer", name);
	return 0;
}

void pl_comm_work_free(struct pl_work *k)
{
	if (!k)
		return;
	if (k->failed && k->temp && pl_library_keeps(k->w)) {
		pl_comm_library_keep(k, &k->next_kept);
		return;
	}
	pl_free(k->step);
	pl_free(k->temp);
	pl_free(k);
}

void pl_comm_work_report(const struct pl_work *k, struct pl_comm_event *e)
{
	struct pl_world *w = k->w;

	e->collective = k->a.op;
	e->algo = k->direct ? PL_CA_DIRECT : k->a.algo; /* in shared memory nothing is forwarded */
	e->seq = k->seq;
	e->tag = k->a.tag;
	pthread_mutex_lock(&w->event_lock);
	if (!w->events_ended)
		w->o.event(w->o.event_arg, e);
	pthread_mutex_unlock(&w->event_lock);
}

void pl_comm_world_end_events(struct pl_world *w)
{
	pthread_mutex_lock(&w->event_lock);
	w->events_ended = true;
	pthread_mutex_unlock(&w->event_lock);
}

void pl_comm_work_end(struct pl_work *k)
{
	struct pl_world *w = k->w;
	bool waiters, left;

	if (w->o.event) {
		struct pl_comm_event e = {
			.op = k->a.op,
			.peer = k->a.op <= PL_OP_RECV || k->a.op == PL_OP_BROADCAST ? k->a.root
										    : -1,
			.bytes = pl_comm_coll_bytes(w, &k->a),
			.begin = k->begin,
			.end = pl_now_ns(),
			.on_device = w->library.calls && w->library.calls->device,
		};
		pl_comm_work_report(k, &e);
	}
	if (w->device.b)
		pl_comm_device_end(k);
	pthread_mutex_lock(&w->lock);
	left = k->device.detached;
	w->device.detached -= left;
	waiters = w->waiters > 0;
	/* a thread that waits may free the work as soon as it is done */
	atomic_store_explicit(&k->done, true, memory_order_release);
	pthread_mutex_unlock(&w->lock);
	if (waiters)
		pthread_cond_broadcast(&w->changed);
	if (left)
		pl_comm_work_free(k);
}

/* Add a collective to the digest of those that all ranks must begin equally. */
static void add_to_digest(struct pl_world *w, const struct pl_work *k)
{
	const struct pl_coll_args *a = &k->a;
	uint64_t what[] = { w->device.digests[(k->seq - 1) % PL_DIGESTS], a->op, a->count,
			    a->op == PL_OP_BROADCAST ? (uint64_t)a->root : 0,
			    a->parts ? a->parts : 1 };

	w->device.digests[k->seq % PL_DIGESTS] = pl_hash(what, sizeof(what));
}

/* Lock held. */
static void assign_number(struct pl_world *w, struct pl_work *k)
{
	struct pl_peer *p = k->a.op <= PL_OP_RECV ? &w->peer[k->a.root] : NULL;

	if (k->a.op == PL_OP_SEND)
		k->seq = atomic_fetch_add(&p->sends_begun, 1);
	else if (k->a.op == PL_OP_RECV)
		k->seq = p->recvs_begun++;
	else
		k->seq = atomic_fetch_add(&w->begun, 1);
	if (w->device.native && k->a.op > PL_OP_RECV)
		add_to_digest(w, k);
	if (k->direct)
		k->slot = w->begun_shared++;
	k->begin = k->last_progress = pl_now_ns();
}

int pl_comm_work_failure(struct pl_world *w, const struct pl_coll_args *a, uint64_t seq,
			 struct pl_err *err)
{
	struct pl_err why = { 0 };

	pl_fail(&why, PL_EIO, "%s", w->failure);
	if (seq == UINT64_MAX)
		pl_wrap(&why, "%s", pl_comm_operation_name(a->op));
	else
		pl_wrap(&why, "%s %llu", pl_comm_operation_name(a->op), (unsigned long long)seq);
	return pl_fail(err, PL_EIO, "%s", why.msg);
}

int pl_comm_work_begin(struct pl_world *w, const struct pl_coll_args *a, bool call,
		       struct pl_work **work, struct pl_err *err)
{
	struct pl_work *k;
	int rc;

	PL_CHECK(check_args(w, a, err));
	PL_CHECK(pl_alloc(&k, 1, sizeof(*k), err));
	k->w = w;
	k->a = *a;
	rc = w->device.b ? pl_comm_device_begin(k, err) : 0;
	if (rc < 0) {
		pl_comm_work_free(k);
		return rc;
	}
	k->direct = pl_comm_shared_coll_fits(w, &k->a);
	if (!k->direct && !w->library.calls && !k->device.delayed)
		rc = pl_comm_expand(k, err);
	pthread_mutex_lock(&w->lock);
	if (rc >= 0 && atomic_load(&w->failed))
		rc = pl_comm_work_failure(w, a, UINT64_MAX, err);
	if (rc < 0) {
		if (w->device.b)
			pl_comm_device_undo(k);
		pthread_mutex_unlock(&w->lock);
		pl_comm_work_free(k);
		return rc;
	}
	assign_number(w, k);
	if (w->queued)
		w->queued_last->next = k;
	else
		w->queued = k;
	w->queued_last = k;
	atomic_store_explicit(&w->has_queued, true, memory_order_release);
	if (call || w->device.native)
		pl_comm_world_call(w);
	else
		pthread_mutex_unlock(&w->lock);
	*work = k;
	return 0;
}

int pl_comm_world_begin(struct pl_world *w, const struct pl_coll_args *a, struct pl_work **work,
			struct pl_err *err)
{
	return pl_comm_work_begin(w, a, true, work, err);
}
