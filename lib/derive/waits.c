/*
 * Waits of the host: for the device, or for a thread that communicates.
 *
 * Recorded waits:
 *
 * - The profiler may write cuda_sync events, which name the waits for the device.
 * - A wait for a communicating thread is recorded if it has the correlation of the communication
 *   (paceline-trace(5)). The waiting thread continues when the communication ends, or at once if
 *   it has already ended.
 * - A thread that launches a program on one of several devices waits for the call that started it
 *   on all of them, if the wait has the correlation of that call.
 * - A thread that launches communication on a device waits for the operator that issues the
 *   communication. It may continue before this operator ends.
 * - An operator that issues communication of a thread may copy from a device. The communication
 *   then waits for the last of these copies. Where service.c infers the operator, this is inferred.
 *
 * Other waits are inferred, and marked as inferred:
 *
 * - cudaEventSynchronize names no event: event_sync.c finds it.
 * - cudaStreamSynchronize names no stream. The wait is for the stream whose last operation ended
 *   within the call, nearest to the end of the call.
 * - A launch or copy call that ends after its own operation (pageable memory) waited for this
 *   operation. A call that frees or pins memory of the host and ends right after an operation
 *   waited for the device. A call that frees memory of the device always does.
 *
 * events.c finds the waits of streams for events, queue.c the waits of launches for a free slot,
 * service.c other waits for threads that communicate.
 */
#include <stdlib.h>

#include "derive/internal.h"

#define TOL_NS	       2000    /* of rounding in start and end times */
#define SYNC_RETURN_NS 100000  /* a wait returns at most this long after the operation ends */
#define SYNC_MIN_NS    5000    /* shorter calls did not wait */
#define WAKER_NEAR_NS  1000000 /* a thread goes on at most this long before its waker has ended */
/* Each wait for an unknown stream visits so many streams, and each wait for a device. Of further
 * ones the first visits none, the second those with operations since the wait before. */
#define STREAMS_MAX 64

static void streams_fini(struct streams *l)
{
	for (size_t i = 0; i < l->n; i++)
		pl_free(l->v[i].op);
	pl_free(l->v);
	pl_free(l->number);
	pl_free(l->open);
	pl_free(l->awaited);
}

PL_COMPARATOR(by_number, struct stream_number, stream, at);

static void list_launched(struct builder *b, const struct rank *rank, struct streams *l)
{
	for (size_t i = 0; i < rank->n_by_call; i++) {
		uint32_t res = b->node[rank->by_call[i]->node].res, k = b->resource[res].nth_stream;

		if (!k) {
			PL_DERIVE_ADD(b->err, l->v, l->n, l->cap, (struct stream){ .res = res });
			k = b->resource[res].nth_stream = (uint32_t)l->n;
		}
		if (b->err->code)
			return;
		PL_DERIVE_ADD(b->err, l->v[k - 1].op, l->v[k - 1].n, l->v[k - 1].cap,
			      rank->by_call[i]);
	}
	if (pl_alloc(&l->number, l->n, sizeof(*l->number), b->err) < 0)
		return;
	for (uint32_t i = 0; i < l->n; i++)
		l->number[i] = (struct stream_number){ b->resource[l->v[i].res].stream, i };
	pl_sort(l->number, l->n, sizeof(*l->number), by_number);
}

const struct stream_number *pl_derive_numbered(const struct streams *l, int64_t stream, size_t *n)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, l->n, l->number[i].stream < stream);
	for (*n = 0; i + *n < l->n && l->number[i + *n].stream == stream; (*n)++)
		;
	return l->number + i;
}

/* How many operations of the stream were launched before call c. */
uint32_t pl_derive_launched(const struct stream *x, uint32_t c)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, x->n, x->op[i]->call < c);
	return i;
}

/* ---- the host waits for the device ----------------------------------------------------------- */

/* The call waited until `op` ended: set the durations of its two nodes, and add an edge from the
 * operation to the second node. */
static void host_wait(struct builder *b, const struct call *c, const struct op *op, bool binding,
		      bool inferred)
{
	struct node *first = &b->node[c->node], *rest = &b->node[pl_derive_last(c)];

	if (!c->two_nodes)
		return;
	if (binding && op->end > first->start && op->end <= c->end + TOL_NS &&
	    pl_derive_end(b, pl_derive_last(c)) >= op->end) {
		pl_ns end = pl_derive_end(b, pl_derive_last(c)),
		      own = pl_min_i64(op->end - first->start, SYNC_MIN_NS);

		own = pl_min_i64(own, first->dur);
		first->dur = own;
		rest->start = pl_max_i64(op->end, first->start + own);
		rest->dur = pl_max_i64(0, end - rest->start);
	}
	if (op->end > rest->start + TOL_NS)
		return; /* the operation ended later than the call, so the call did not wait for
			     it */
	if (inferred)
		b->g->inferred_waits++;
	else
		b->g->recorded_waits++;
	pl_derive_edge(b, op->last, pl_derive_last(c), PL_E_WAIT | (inferred ? PL_E_INFERRED : 0));
}

/* The last operation that was launched on the stream before call c, NULL: none. */
static struct op *last_launched(const struct stream *x, uint32_t c)
{
	uint32_t n = pl_derive_launched(x, c);

	return n ? x->op[n - 1] : NULL;
}

/* Of the last operations of all streams before the call: the one that ended last within it. */
static struct op *last_within(const struct streams *l, const struct call *c, uint32_t index,
			      pl_ns near)
{
	struct op *best = NULL;

	for (size_t i = 0; i < l->n && i < STREAMS_MAX; i++) {
		struct op *op = last_launched(&l->v[i], index);

		if (op && op->end > c->start && op->end <= c->end + TOL_NS &&
		    c->end - op->end <= near && (!best || op->end > best->end))
			best = op;
	}
	return best;
}

static int by_sync_corr(const void *pa, const void *pb)
{
	const struct sync_record *a = pa, *c = pb;

	return PL_COMPARE_FIELDS(a, c, corr, wait);
}

static const struct sync_record *find_sync(const struct rank *rank, int64_t corr)
{
	struct sync_record key = { .corr = corr };

	if (corr == INT64_MIN)
		return NULL;
	return bsearch(&key, rank->sync, rank->n_sync, sizeof(*rank->sync), by_sync_corr);
}

bool pl_derive_on_device(const struct builder *b, const struct stream *x, int32_t device)
{
	int32_t own = b->g->res[x->res].device;

	return device < 0 || own < 0 || own == device;
}

/* The last operations before call `index` of those streams in at[0..n) that are on the device. The
 * call that waits returned when the last of them ended. */
struct awaiting {
	const struct call *c;
	uint32_t index;
	int32_t device;
	struct op *best;
};

static struct op *awaits(const struct builder *b, const struct stream *x, const struct awaiting *w)
{
	return pl_derive_on_device(b, x, w->device) ? last_launched(x, w->index) : NULL;
}

static void find_best(const struct builder *b, const struct stream *x, struct awaiting *w)
{
	struct op *op = awaits(b, x, w);

	if (op && op->end <= w->c->end + TOL_NS && (!w->best || op->end > w->best->end))
		w->best = op;
}

static void wait_for_others(struct builder *b, const struct stream *x, const struct awaiting *w)
{
	struct op *op = awaits(b, x, w);

	if (op && op != w->best)
		host_wait(b, w->c, op, false, false);
}

/* A recorded synchronisation with a stream of one device or all (-1): edges from the last
 * operations. */
static void stream_sync(struct builder *b, const struct streams *l, struct awaiting *w,
			int64_t stream)
{
	size_t n;
	const struct stream_number *at = pl_derive_numbered(l, stream, &n);

	for (size_t i = 0; i < n; i++)
		find_best(b, &l->v[at[i].at], w);
	if (w->best)
		host_wait(b, w->c, w->best, true, false);
	for (size_t i = 0; i < n; i++)
		wait_for_others(b, &l->v[at[i].at], w);
}

/* Open the streams beyond STREAMS_MAX that got operations before call `index`. */
static void open_streams(struct builder *b, const struct rank *rank, struct streams *l,
			 uint32_t index)
{
	for (; l->n_seen < rank->n_by_call && rank->by_call[l->n_seen]->call < index; l->n_seen++) {
		const struct op *op = rank->by_call[l->n_seen];
		uint32_t at = b->resource[b->node[op->node].res].nth_stream - 1;

		if (at < STREAMS_MAX || l->v[at].open)
			continue;
		PL_DERIVE_ADD(b->err, l->open, l->n_open, l->cap_open, at);
		l->v[at].open = true;
	}
}

/*
 * A recorded synchronisation with all streams of one device or all (-1): edges from the last
 * operation of each. Of many streams most have nothing new since the synchronisation before, which
 * waited for them; so the cost is that of their operations.
 */
static void device_sync(struct builder *b, const struct rank *rank, struct streams *l,
			struct awaiting *w)
{
	size_t kept = 0;

	open_streams(b, rank, l, w->index);
	for (size_t i = 0; i < l->n && i < STREAMS_MAX; i++)
		find_best(b, &l->v[i], w);
	for (size_t i = 0; i < l->n_open; i++)
		find_best(b, &l->v[l->open[i]], w);
	if (w->best)
		host_wait(b, w->c, w->best, true, false);
	for (size_t i = 0; i < l->n && i < STREAMS_MAX; i++)
		wait_for_others(b, &l->v[i], w);
	for (size_t i = 0; i < l->n_open; i++) {
		struct stream *x = &l->v[l->open[i]];
		const struct op *op = awaits(b, x, w);

		wait_for_others(b, x, w);
		x->open = !op || op->end > w->c->end + TOL_NS;
		if (x->open)
			l->open[kept++] = l->open[i];
	}
	l->n_open = kept;
}

/* A recorded synchronisation of call c with what was launched before call `index`. stream: -1 all;
 * device: -1 all. */
static void known_sync(struct builder *b, const struct rank *rank, struct streams *l,
		       const struct call *c, uint32_t index, int64_t stream, int32_t device)
{
	struct awaiting w = { c, index, device, NULL };

	if (!c->two_nodes)
		return;
	if (stream >= 0)
		stream_sync(b, l, &w, stream);
	else
		device_sync(b, rank, l, &w);
}

/* Did the copy call last as long as its copy? */
static void copy_wait(struct builder *b, const struct rank *rank, const struct call *c)
{
	const struct op *op = rank->by_call[c->first_op + c->n_ops - 1];

	if ((c->blocks || b->o->infer) && op->end <= c->end && b->node[op->node].role == PL_RO_COPY)
		host_wait(b, c, op, true, !c->blocks);
}

/* The operation before the event that the call awaits, NULL: not known. */
static struct op *awaited(const struct streams *l, uint32_t call)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, l->n_awaited, l->awaited[i].call < call);
	return i < l->n_awaited && l->awaited[i].call == call ? l->awaited[i].op : NULL;
}

/* A call whose wait was not recorded: for the last operation that ended near its end. */
static void inferred_sync(struct builder *b, const struct streams *l, uint32_t index,
			  const struct call *c)
{
	bool sync = c->type == CALL_SYNC;
	pl_ns length = c->end - c->start;
	struct op *op = awaited(l, index);

	if (op) {
		host_wait(b, c, op, true, true);
		return;
	}
	if (length >= (sync ? SYNC_MIN_NS : 10 * SYNC_MIN_NS))
		op = last_within(l, c, index,
				 sync ? pl_max_i64(SYNC_RETURN_NS, length / 5)
				      : SYNC_RETURN_NS / 4);
	if (op)
		host_wait(b, c, op, true, true);
}

static void one_sync(struct builder *b, const struct rank *rank, struct streams *l, uint32_t index)
{
	const struct call *c = &rank->call[index];
	const struct sync_record *s =
		rank->n_sync ? find_sync(rank, rank->context[c->context].corr) : NULL;
	uint32_t record =
		s && s->on_stream >= 0 ? pl_derive_call_by_corr(rank, s->record_corr) : PL_NONE;

	if (record != PL_NONE) /* a wait for an event: for the operations before its record */
		known_sync(b, rank, l, c, record, s->on_stream, -1);
	else if (s && (s->stream >= 0 || s->device_wide))
		known_sync(b, rank, l, c, index, s->device_wide ? -1 : s->stream, s->device);
	else if (c->type == CALL_SYNC && c->device_wide)
		known_sync(b, rank, l, c, index, -1, -1);
	else if (c->n_ops && c->type == CALL_LAUNCH)
		copy_wait(b, rank, c);
	else if (b->o->infer && c->type != CALL_LAUNCH)
		inferred_sync(b, l, index, c);
}

/* ---- recorded waits for a communicating thread ----------------------------------------------- */

struct corr_of {
	int64_t corr;
	void *of; /* an operation or a recorded wait */
};

PL_COMPARATOR(by_corr, struct corr_of, corr);

/* The operations of threads that only communicate, or of the other threads those that issue
 * communication; by correlation. */
static void list_ops(const struct builder *b, const struct rank *rank, bool service,
		     struct corr_of **v, size_t *n)
{
	size_t cap = 0;

	for (size_t k = 0; k < rank->n_res; k++) {
		const struct resource *resource = &b->resource[rank->res[k]];

		for (uint32_t i = 0;
		     resource->thread && resource->service == service && i < resource->n; i++) {
			struct op *op = &resource->op[i];
			int64_t corr = pl_derive_corr(b, op);

			if (service ||
			    (op->kind == PL_K_HOST_OP && op->node != PL_NONE && corr != INT64_MIN))
				PL_DERIVE_ADD(b->err, *v, *n, cap, (struct corr_of){ corr, op });
		}
	}
	pl_sort(*v, *n, sizeof(**v), by_corr);
}

static struct op *find_op(const struct corr_of *v, size_t n, int64_t corr)
{
	const struct corr_of key = { .corr = corr };
	const struct corr_of *hit = n ? bsearch(&key, v, n, sizeof(*v), by_corr) : NULL;

	return hit ? hit->of : NULL;
}

/* If the thread continued a little before the recorded end of the communication, the communication
 * ended when the thread continued. */
static void end_with(struct builder *b, struct op *op, const struct call *c)
{
	struct node *last = &b->node[op->last];

	if (op->end <= c->end || op->end - c->end > WAKER_NEAR_NS || last->start >= c->end)
		return;
	last->dur = c->end - last->start;
	op->end = c->end;
}

/*
 * Node `src` ends a wait at time `when`. The rest of the wait is the return to the thread: add an
 * edge of that type from `src` to the rest.
 */
static void wait_until(struct builder *b, const struct call *c, uint32_t src, pl_ns when,
		       unsigned type)
{
	struct node *first = &b->node[c->node], *rest = &b->node[pl_derive_last(c)];
	pl_ns end = pl_derive_end(b, pl_derive_last(c));

	if (!c->two_nodes || when > end)
		return;
	first->dur = 0;
	rest->start = pl_max_i64(first->start, when);
	rest->dur = end - rest->start;
	b->g->recorded_waits++;
	pl_derive_edge(b, src, pl_derive_last(c), type);
}

/* The wait with the same correlation on another thread, which launched the communication. */
static const struct call *launching_wait(const struct corr_of *by, size_t n,
					 const struct comm_wait *wait)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, n, by[i].corr < wait->corr);
	for (; i < n && by[i].corr == wait->corr; i++) {
		const struct comm_wait *other = by[i].of;

		if (other->call.res != wait->call.res)
			return &other->call;
	}
	return NULL;
}

/*
 * Communication that one thread issues and another thread launches. The launching thread waits for
 * the issuing operator, and may continue as soon as this operator has begun. A wait on the issuing
 * thread is a wait for the launch; the device waits for the rest of the communication.
 */
static void one_issue_wait(struct builder *b, const struct corr_of *by, size_t n,
			   const struct comm_wait *wait, const struct op *issue)
{
	const struct call *c = &wait->call, *w;

	if (b->node[issue->node].res != c->res) {
		wait_until(b, c, issue->node, issue->start, PL_E_START);
		return;
	}
	w = launching_wait(by, n, wait);
	if (w)
		wait_until(b, c, pl_derive_last(w), pl_derive_end(b, pl_derive_last(w)), PL_E_WAIT);
}

static void recorded_issue_waits(struct builder *b, const struct rank *rank,
				 const struct corr_of *v, size_t n)
{
	struct corr_of *by;

	if (pl_alloc(&by, rank->n_waited, sizeof(*by), b->err) < 0)
		return;
	for (size_t i = 0; i < rank->n_waited; i++)
		by[i] = (struct corr_of){ rank->waited[i].corr, &rank->waited[i] };
	pl_sort(by, rank->n_waited, sizeof(*by), by_corr);
	for (size_t i = 0; i < rank->n_waited; i++) {
		const struct op *issue = find_op(v, n, rank->waited[i].corr);

		if (issue && rank->waited[i].call.type != CALL_WAIT)
			one_issue_wait(b, by, rank->n_waited, &rank->waited[i], issue);
	}
	pl_free(by);
}

/* The last device operation that a host operation launched, by its end. */
static const struct op *last_of_issue(const struct builder *b, const struct rank *rank,
				      const struct op *issue)
{
	uint32_t res = b->node[issue->node].res;
	const struct op *best = NULL;
	size_t i = 0;

	PL_LOWER_BOUND(i, rank->n_calls, rank->call[i].start < issue->start);
	for (; i < rank->n_calls && rank->call[i].start < issue->end; i++) {
		const struct call *c = &rank->call[i];

		for (uint32_t k = 0; c->res == res && k < c->n_ops; k++) {
			const struct op *op = rank->by_call[c->first_op + k];

			if (!best || op->end > best->end)
				best = op;
		}
	}
	return best;
}

/*
 * A communication of a host thread, whose data the issuing operator copies from a device. It
 * arrives when the thread has seen the end of the copy. A node stands for the time until then.
 */
static void one_staged(struct builder *b, const struct op *comm, const struct op *copy,
		       uint32_t res)
{
	struct node seen = { .type = PL_N_OP,
			     .role = PL_RO_SYNC,
			     .kind = PL_K_WAIT,
			     .res = res,
			     .name = b->s_gap,
			     .step = -1,
			     .start = copy->end };
	uint32_t id;

	if (copy->end > b->node[comm->node].start + TOL_NS) {
		b->g->dropped_edges++;
		return;
	}
	seen.dur = pl_max_i64(0, b->node[comm->node].start - copy->end);
	id = pl_derive_node(b, &seen);
	pl_derive_edge(b, copy->last, id, PL_E_WAIT);
	pl_derive_edge(b, id, comm->node, PL_E_SEQ);
	b->g->recorded_waits++;
}

void pl_derive_staged(struct builder *b, const struct rank *rank, const struct op *comm,
		      const struct op *issue)
{
	const struct op *copy = rank->n_inner ? last_of_issue(b, rank, issue) : NULL;

	if (!b->o->infer || !copy || copy->end > b->node[comm->node].start)
		return;
	pl_derive_edge(b, copy->last, comm->node, PL_E_WAIT | PL_E_INFERRED);
	b->g->inferred_waits++;
}

/* On ranks with a device: waits for the operators that issue communication, and their copies. */
static void issue_waits(struct builder *b, struct rank *rank)
{
	struct corr_of *v = NULL;
	size_t n = 0;

	if (!rank->has_device || !rank->comm_threads)
		return;
	list_ops(b, rank, false, &v, &n);
	for (size_t k = 0; k < rank->n_res; k++) {
		const struct resource *resource = &b->resource[rank->res[k]];

		for (uint32_t i = 0; resource->service && i < resource->n; i++) {
			const struct op *issue = find_op(v, n, pl_derive_corr(b, &resource->op[i]));
			const struct op *copy = issue ? last_of_issue(b, rank, issue) : NULL;

			if (copy)
				one_staged(b, &resource->op[i], copy, rank->res[k]);
		}
	}
	recorded_issue_waits(b, rank, v, n);
	pl_free(v);
}

static void recorded_service_waits(struct builder *b, const struct rank *rank)
{
	struct corr_of *v = NULL;
	size_t n = 0;

	if (!rank->n_waited)
		return;
	list_ops(b, rank, true, &v, &n);
	for (size_t i = 0; i < rank->n_waited; i++) {
		struct call *c = &rank->waited[i].call;
		struct op *op = find_op(v, n, rank->waited[i].corr);

		if (!op)
			continue;
		c->type = CALL_WAIT; /* it is known for what */
		end_with(b, op, c);
		host_wait(b, c, op, true, false);
	}
	pl_free(v);
}

/* The call of another rank of the process with this correlation, NULL: none. */
static const struct call *call_of_process(const struct builder *b, const struct rank *rank,
					  int64_t corr)
{
	for (size_t r = 0; r < b->n_ranks; r++) {
		const struct rank *other = &b->rank[r];
		uint32_t call = other != rank && other->host == rank->host
					? pl_derive_call_by_corr(other, corr)
					: PL_NONE;

		if (call != PL_NONE)
			return &other->call[call];
	}
	return NULL;
}

/*
 * A process has several ranks, one for each device. A thread of its first rank calls for a program
 * on all devices, and threads of the others launch it. A launching thread may continue as soon as
 * the call has begun; the calling one, when the launch has ended. A correlation of its own rank is
 * that of a communication.
 */
static void waits_in_process(struct builder *b, const struct rank *rank)
{
	bool first = &b->rank[rank->host] == rank;
	struct corr_of *own[2] = { NULL, NULL };
	size_t n[2] = { 0, 0 };

	if (!rank->n_waited || (first && !rank->for_others))
		return;
	for (int service = 0; service < 2; service++)
		list_ops(b, rank, service, &own[service], &n[service]);
	for (size_t i = 0; i < rank->n_waited; i++) {
		int64_t corr = rank->waited[i].corr;
		bool other = !find_op(own[0], n[0], corr) && !find_op(own[1], n[1], corr);
		const struct call *c = other ? call_of_process(b, rank, corr) : NULL;
		uint32_t node = !c ? PL_NONE : first ? pl_derive_last(c) : c->node;

		if (c)
			wait_until(b, &rank->waited[i].call, node,
				   first ? pl_derive_end(b, node) : c->start,
				   first ? PL_E_WAIT : PL_E_START);
	}
	pl_free(own[0]);
	pl_free(own[1]);
}

static void rank_waits(struct builder *b, struct rank *rank, uint64_t *hash)
{
	struct streams l = { 0 };

	pl_sort(rank->sync, rank->n_sync, sizeof(*rank->sync), by_sync_corr);
	list_launched(b, rank, &l);
	pl_derive_events(b, rank, &l, hash);
	if (b->o->infer && !rank->all_sync)
		pl_derive_event_syncs(b, rank, &l, hash);
	for (uint32_t c = 0; c < rank->n_calls; c++)
		if (rank->call[c].type == CALL_SYNC || rank->call[c].type == CALL_FREE ||
		    rank->call[c].type == CALL_LAUNCH)
			one_sync(b, rank, &l, c);
	recorded_service_waits(b, rank);
	issue_waits(b, rank);
	pl_derive_service(b, rank);
	if (b->o->infer)
		pl_derive_queue(b, rank, &l);
	streams_fini(&l);
}

/* From now on only the starts of the calls count (cut.c), unless allocations are looked for. */
static void note_launches(struct builder *b, struct rank *rank)
{
	for (size_t k = 0; k < rank->n_res; k++) {
		struct resource *resource = &b->resource[rank->res[k]];

		for (uint32_t i = 0; i < resource->n; i++)
			if (resource->op[i].call != PL_NONE)
				resource->op[i].launched = rank->call[resource->op[i].call].start;
	}
	if (!b->has_memory)
		pl_derive_drop_calls(b, rank);
	pl_derive_freed(b, 0);
}

void pl_derive_waits(struct builder *b)
{
	uint64_t *hash;

	if (pl_alloc(&hash, b->g->str.n + 1, sizeof(*hash), b->err) < 0)
		return;
	for (size_t r = 0; r < b->n_ranks; r++) /* while the calls of all ranks are there */
		waits_in_process(b, &b->rank[r]);
	for (size_t r = 0; r < b->n_ranks && !b->err->code; r++) {
		rank_waits(b, &b->rank[r], hash);
		pl_derive_latency(b, &b->rank[r]);
		pl_derive_find_producers(b, &b->rank[r]);
		note_launches(b, &b->rank[r]);
	}
	pl_free(hash);
}
