/*
 * Host threads: nested operations become a chain of exclusive segments.
 *
 * The pieces of an operation's span that no child covers belong to the operation. Each piece is a
 * node in the program order of the thread. Time outside all operations is a node too (role GAP):
 * the interpreter, data loading code, or a wait. A call that waits for the device is two nodes, the
 * call and the rest of it after the wait (role SYNC), so that the wait itself can be derived.
 * Communication on a thread (gloo) is an arrival and a transfer, as on a stream. A step annotation
 * becomes two marks and no node of its own.
 *
 * No profiler records waits of threads for one another (the main thread during backward()). They
 * are inferred if thread A does nothing from a0 to a1, thread B is idle at a0 and at a1, and a
 * burst of B fills at least half of the pause of A. The pause of A is then divided into three
 * parts: the time until B starts, the wait for the end of the burst, and the time until A
 * continues.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

#define MAX_DEPTH	512
#define HANDOVER_MIN_NS 20000 /* shorter pauses are not searched for a hidden wait */

/* Module and work of an operation on the stack. */
struct context {
	pl_id module;
	uint32_t work; /* of the operation, or of the innermost one around it with known work,
			  PL_NONE */
	bool own;      /* the work is its own */
};
struct flat {
	struct gb *b;
	uint32_t res;
	struct op *stack[MAX_DEPTH];
	struct context context[MAX_DEPTH];
	int depth;
	pl_ns cur;     /* nodes exist up to this time */
	uint32_t prev; /* last node of the chain */
	struct range_stack ranges;
};

#define DEVICE_WIDE 0x40
#define BLOCKS	    0x20 /* a copy to or from the host that does not say "Async" */

static uint8_t classify(const char *name)
{
	static const struct {
		const char *part;
		uint8_t type;
	} known[] = {
		{ "StreamWaitEvent", CALL_WAIT },
		{ "EventRecord", CALL_RECORD },
		{ "DeviceSync", CALL_SYNC | DEVICE_WIDE },
		{ "CtxSync", CALL_SYNC | DEVICE_WIDE },
		{ "ContextSync", CALL_SYNC | DEVICE_WIDE },
		{ "Synchronize", CALL_SYNC },
		{ "Launch", CALL_LAUNCH },
		{ "Memcpy", CALL_LAUNCH },
		{ "Memset", CALL_LAUNCH },
		{ "Free", CALL_FREE | DEVICE_WIDE },
		{ "HostUnregister", CALL_FREE | DEVICE_WIDE },
		{ "HostAlloc", CALL_FREE | DEVICE_WIDE },
	};

	uint8_t blocks = strstr(name, "Memcpy") && !strstr(name, "Async") ? BLOCKS : 0;

	for (size_t i = 0; i < PL_LEN(known); i++)
		if (strstr(name, known[i].part))
			return known[i].type | blocks;
	return CALL_OTHER;
}

/* The type of a runtime call, asked once for each name. */
static uint8_t call_type(struct gb *b, const struct op *op)
{
	const struct pl_events *e = b->t->seg[op->seg];
	pl_id name = e->name[op->ev];
	uint8_t *known = &b->seg[op->seg].call_type[name];

	if (!*known)
		*known = (uint8_t)(classify(pl_intern_get(&e->seg.str, name)) + 1);
	return (uint8_t)(*known - 1);
}

static int chain(struct flat *f, const struct node *n, uint32_t *id, struct pl_err *err)
{
	int rc = pl_derive_node(f->b, n, id, err);

	if (rc < 0)
		return rc;
	rc = pl_derive_edge(f->b, f->prev, *id, PL_E_SEQ, err);
	f->prev = *id;
	return rc;
}

/* Adds the segment from f->cur to t of the operation on top. Empty segments become nodes too, so
 * that equal steps have equal nodes at any resolution of the clock. The only exception is an
 * operation whose own node was added last. */
static int emit(struct flat *f, pl_ns t, bool force, struct pl_err *err)
{
	const struct context *x;
	struct op *top = NULL;
	int d = f->depth;
	struct node n;
	uint32_t id;
	int rc;

	while (d > 0 && !top)
		if (f->stack[--d]->kind != PL_K_STEP)
			top = f->stack[d];
	if (t <= f->cur && !force && (top ? top->last == f->prev : f->prev == PL_NONE))
		return 0;
	if (top) {
		if ((rc = pl_derive_node_of(f->b, top, f->res, false, &n, err)) < 0)
			return rc;
		n.role = PL_RO_HOST;
		x = &f->context[d];
		rc = pl_derive_add_context(f->b, &n, top->phase, x->module,
					   x->own ? x->work : PL_NONE, err);
		if (rc < 0)
			return rc;
	} else {
		n = (struct node){ .type = PL_N_OP,
				   .role = PL_RO_GAP,
				   .kind = PL_K_HOST_OP,
				   .res = f->res,
				   .name = f->b->s_gap,
				   .step = -1 };
	}
	n.start = f->cur;
	n.dur = t > f->cur ? t - f->cur : 0;
	rc = chain(f, &n, &id, err);
	if (rc == 0 && top) {
		if (top->node == PL_NONE)
			top->node = id;
		top->last = id;
	}
	f->cur = pl_max_i64(f->cur, t);
	return rc;
}

static int mark(struct flat *f, struct op *op, bool begin, struct pl_err *err)
{
	struct node n;
	uint32_t id;
	int rc = pl_derive_node_of(f->b, op, f->res, true, &n, err);

	if (rc < 0)
		return rc;
	n.role = PL_RO_MARK;
	n.kind = PL_K_STEP;
	n.name = begin ? f->b->s_begin : f->b->s_end;
	n.start = f->cur;
	n.dur = 0;
	n.flags = begin ? PL_NF_STEP_BEGIN : 0;
	rc = chain(f, &n, &id, err);
	if (begin)
		op->node = id;
	op->last = id;
	return rc;
}

static int pop_until(struct flat *f, pl_ns t, struct pl_err *err)
{
	int rc;

	while (f->depth && f->stack[f->depth - 1]->end <= t) {
		struct op *op = f->stack[f->depth - 1];

		if ((rc = emit(f, op->end, false, err)) < 0)
			return rc;
		if (op->kind == PL_K_STEP && (rc = mark(f, op, false, err)) < 0)
			return rc;
		f->depth--;
	}
	return 0;
}

/* Ends the steps that end by t while an operation that began in them continues. */
static int end_steps(struct flat *f, pl_ns t, struct pl_err *err)
{
	int left = 0, rc;

	for (int d = 0; d < f->depth; d++) {
		struct op *op = f->stack[d];

		if (op->kind != PL_K_STEP || op->end > t) {
			f->context[left] = f->context[d];
			f->stack[left++] = op;
		} else if ((rc = mark(f, op, false, err)) < 0) {
			return rc;
		}
	}
	f->depth = left;
	return 0;
}

/* A call that may wait: a node for the call and a node for the rest after the wait. waits.c sets
 * their durations. */
static int emit_sync(struct flat *f, struct op *op, struct pl_err *err)
{
	struct node n;
	int rc = pl_derive_node_of(f->b, op, f->res, true, &n, err);

	if (rc < 0)
		return rc;
	n.role = PL_RO_HOST;
	n.start = f->cur;
	n.dur = op->end > f->cur ? op->end - f->cur : 0;
	if ((rc = chain(f, &n, &op->node, err)) < 0)
		return rc;
	f->cur = pl_max_i64(f->cur, op->end);
	n.role = PL_RO_SYNC;
	n.start = f->cur;
	n.dur = 0;
	return chain(f, &n, &op->last, err);
}

static int emit_comm(struct flat *f, struct op *op, struct pl_err *err)
{
	struct node n;
	int rc = pl_derive_node_of(f->b, op, f->res, true, &n, err);
	pl_ns end = pl_max_i64(op->end, f->cur);

	if (rc < 0)
		return rc;
	n.start = f->cur;
	n.dur = 0;
	n.role = PL_RO_ARRIVE;
	if ((rc = chain(f, &n, &op->node, err)) < 0)
		return rc;
	n.dur = end - f->cur;
	n.role = PL_RO_TRANSFER;
	f->cur = end;
	if ((rc = pl_derive_add_arrival(f->b, op, err)) < 0)
		return rc;
	return chain(f, &n, &op->last, err);
}

/* The layer of the innermost open operation with a layer. */
static int32_t layer_around(const struct flat *f)
{
	for (int d = f->depth; d-- > 0;) {
		const struct op *op = f->stack[d];
		const int64_t *layer = f->b->t->seg[op->seg]->layer;

		if (layer && layer[op->ev] >= 0 && layer[op->ev] <= INT32_MAX)
			return (int32_t)layer[op->ev];
	}
	return -1;
}

/* A call, and the operations that it launches (device.c), belong to the layer of the caller. */
static int add_call(const struct flat *f, const struct op *op, uint8_t type, struct pl_err *err)
{
	struct gb *b = f->b;
	const struct pl_events *e = b->t->seg[op->seg];
	struct rankinfo *rk = &b->rank[b->ri[f->res].rank_index];
	const struct context *outer = f->depth ? &f->context[f->depth - 1] : NULL;
	const struct call_context x = { .corr = e->corr ? e->corr[op->ev] : INT64_MIN,
					.layer = layer_around(f),
					.module = outer ? outer->module : PL_NONE,
					.work = outer ? outer->work : PL_NONE,
					.phase = f->depth ? f->stack[f->depth - 1]->phase : 0 };
	struct call *c;
	int rc = pl_grow(&rk->call, &rk->cap_calls, rk->n_calls + 1, sizeof(*rk->call), err);

	if (rc < 0 || (rc = pl_grow(&rk->context, &rk->cap_contexts, rk->n_contexts + 1,
				    sizeof(*rk->context), err)) < 0)
		return rc;
	c = &rk->call[rk->n_calls];
	*c = (struct call){ .start = op->start,
			    .end = op->end,
			    .node = op->node,
			    .res = f->res,
			    .type = (uint8_t)(type & ~(DEVICE_WIDE | BLOCKS)),
			    .device_wide = type & DEVICE_WIDE,
			    .blocks = type & BLOCKS,
			    .two_nodes = op->last > op->node,
			    .context = (uint32_t)rk->n_contexts };
	rk->n_calls++;
	rk->context[rk->n_contexts++] = x;
	if ((rc = pl_derive_set_context(b, op->node, op->last, x.phase, x.module, PL_NONE, err)) <
	    0)
		return rc;
	return x.layer < 0 ? 0 : pl_derive_set_layer(b, op->node, op->last, x.layer, err);
}

/* A recorded wait for communication; waits.c finds the communication. */
static int emit_wait(struct flat *f, struct op *op, struct pl_err *err)
{
	struct rankinfo *rk = &f->b->rank[f->b->ri[f->res].rank_index];
	int rc = pl_grow(&rk->waited, &rk->cap_waited, rk->n_waited + 1, sizeof(*rk->waited), err);

	if (rc < 0 || (rc = emit_sync(f, op, err)) < 0)
		return rc;
	rk->waited[rk->n_waited++] = (struct comm_wait){
		.call = { .start = op->start,
			  .end = op->end,
			  .node = op->node,
			  .two_nodes = true,
			  .res = f->res },
		.corr = f->b->t->seg[op->seg]->corr[op->ev],
	};
	return 0;
}

/* Phase, module and work of an operation that is about to be put on the stack. */
static int push_context(struct flat *f, struct op *op, struct pl_err *err)
{
	const struct range *range = pl_derive_range_at(&f->b->ri[f->res], &f->ranges, op->start);
	const struct context *outer = f->depth ? &f->context[f->depth - 1] : NULL;
	struct context *x = &f->context[f->depth];
	uint8_t phase = f->depth ? f->stack[f->depth - 1]->phase : 0;
	uint32_t work = PL_NONE;
	int rc = op->kind == PL_K_HOST_OP ? pl_derive_work(f->b, op, &work, err) : 0;

	if (!phase && range)
		phase = range->phase;
	x->module = range ? range->module : PL_NONE;
	x->own = work != PL_NONE;
	x->work = x->own ? work : outer ? outer->work : PL_NONE;
	return rc < 0 ? rc : pl_derive_phase(f->b, op, phase, err);
}

static int one_op(struct flat *f, struct op *op, struct pl_err *err)
{
	struct gb *b = f->b;
	uint8_t kind = op->kind;
	uint8_t type = CALL_OTHER, what;
	int rc;

	if ((rc = pop_until(f, op->start, err)) < 0 || (rc = emit(f, op->start, false, err)) < 0)
		return rc;
	f->cur = pl_max_i64(f->cur, op->start);
	if (pl_trace_kind_is_comm(kind))
		return emit_comm(f, op, err);
	if (kind == PL_K_WAIT)
		return emit_wait(f, op, err);
	if (kind == PL_K_RUNTIME) {
		type = call_type(b, op);
		what = (uint8_t)(type & ~(DEVICE_WIDE | BLOCKS));
		/* a launch may wait too: a copy from or to pageable memory, a full queue */
		if (what == CALL_SYNC || what == CALL_FREE || what == CALL_LAUNCH) {
			if ((rc = emit_sync(f, op, err)) < 0)
				return rc;
			return add_call(f, op, type, err);
		}
	}
	if (kind == PL_K_STEP &&
	    ((rc = end_steps(f, op->start, err)) < 0 || (rc = mark(f, op, true, err)) < 0))
		return rc;
	if (f->depth == MAX_DEPTH)
		return pl_fail(err, PL_ELIMIT, "operations nest deeper than %d on one thread",
			       MAX_DEPTH);
	if ((rc = push_context(f, op, err)) < 0)
		return rc;
	f->stack[f->depth++] = op;
	if (kind == PL_K_RUNTIME) {
		pl_ns end = op->end;

		if ((rc = emit(f, end, true, err)) < 0)
			return rc;
		return add_call(f, op, type, err);
	}
	return 0;
}

static bool is_service(const struct resinfo *ri)
{
	for (uint32_t i = 0; i < ri->n; i++)
		if (!pl_trace_kind_is_comm(ri->op[i].kind))
			return false;
	return ri->n > 0;
}

/* A track with step annotations only needs no nodes, because the windows of the steps are known. */
static bool only_steps(const struct resinfo *ri)
{
	for (uint32_t i = 0; i < ri->n; i++)
		if (ri->op[i].kind != PL_K_STEP)
			return false;
	return true;
}

static int one_thread(struct gb *b, uint32_t res, struct flat *f, struct pl_err *err)
{
	struct resinfo *ri = &b->ri[res];
	int rc;

	f->b = b;
	f->res = res;
	f->depth = 0;
	memset(&f->ranges, 0, sizeof(f->ranges));
	f->prev = PL_NONE;
	ri->node0 = (uint32_t)b->n_nodes;
	f->cur = ri->n ? ri->op[0].start : 0;
	for (uint32_t i = 0; i < ri->n; i++)
		if ((rc = one_op(f, &ri->op[i], err)) < 0)
			return rc;
	rc = pop_until(f, INT64_MAX, err);
	ri->node1 = (uint32_t)b->n_nodes;
	return rc;
}

PL_COMPARATOR(by_call_start, struct call, start, node);

int pl_derive_host(struct gb *b, struct rankinfo *rk, struct pl_err *err)
{
	struct flat *f;
	int rc = pl_alloc(&f, 1, sizeof(*f), err);

	if (rc < 0)
		return rc;
	for (size_t k = 0; k < rk->n_res; k++) {
		struct resinfo *ri = &b->ri[rk->res[k]];

		if (!ri->thread)
			continue;
		ri->service = is_service(ri);
		rk->comm_threads |= ri->service;
		if (!ri->service && !(rk->has_device && only_steps(ri)))
			PL_TRY(one_thread(b, rk->res[k], f, err));
	}
	rk->comm_threads |= rk->n_waited > 0;
	pl_sort(rk->call, rk->n_calls, sizeof(*rk->call), by_call_start);
out:
	pl_free(f);
	return rc;
}

/* ---- threads that wait for threads
 * -------------------------------------------------------------------- */

/* A pause of a thread: a gap, or a piece of an operation that encloses others. */
static bool is_pause(const struct node *n)
{
	return n->role == PL_RO_GAP || (n->role == PL_RO_HOST && n->kind != PL_K_RUNTIME);
}

/* First node of the thread that ends after t. */
static uint32_t first_after(const struct gb *b, const struct resinfo *ri, pl_ns t)
{
	uint32_t i = ri->node0;

	PL_LOWER_BOUND(i, ri->node1, pl_derive_end(b, i) <= t);
	return i;
}

/*
 * Does thread `ri` burst inside the pause [a0, a1]: idle at a0, active from *first, idle again at
 * a1 after *last? Returns the length of the burst, 0 if not. *idle is its own pause before, PL_NONE
 * if none.
 */
static pl_ns burst(const struct gb *b, const struct resinfo *ri, pl_ns a0, pl_ns a1, uint32_t *idle,
		   uint32_t *first, uint32_t *last)
{
	uint32_t i = first_after(b, ri, a0);

	*idle = PL_NONE;
	if (i == ri->node1)
		return 0;
	if (b->node[i].start <= a0) { /* the node around a0 must be a gap that ends in the pause */
		if (b->node[i].role != PL_RO_GAP || pl_derive_end(b, i) >= a1)
			return 0;
		*idle = i++;
	} else if (i > ri->node0 && b->node[i].start >= a1) {
		return 0;
	}
	if (i == ri->node1 || b->node[i].start >= a1)
		return 0;
	*first = i;
	*last = i;
	for (; i < ri->node1 && pl_derive_end(b, i) <= a1; i++)
		if (b->node[i].role != PL_RO_GAP)
			*last = i;
	if (i < ri->node1 && b->node[i].start < a1 && b->node[i].role != PL_RO_GAP)
		return 0; /* still active when the other resumes */
	return pl_derive_end(b, *last) - b->node[*first].start;
}

static int split_pause(struct gb *b, uint32_t pause, uint32_t next, uint32_t idle, uint32_t first,
		       uint32_t last, struct pl_err *err)
{
	struct node back = b->node[pause];
	pl_ns resume = pl_derive_end(b, pause), b1 = pl_derive_end(b, last);
	uint32_t id;
	int rc;

	b->node[pause].dur = b->node[first].start - b->node[pause].start;
	b->node[pause].flags |= PL_NF_INFERRED;
	if (idle != PL_NONE)
		b->node[idle].dur = 0; /* the thread was idle and did no work */
	back.start = b1;
	back.dur = resume - b1;
	back.flags |= PL_NF_INFERRED;
	if ((rc = pl_derive_node(b, &back, &id, err)) < 0 ||
	    (rc = pl_derive_edge(b, pause, first, PL_E_WAIT | PL_E_INFERRED, err)) < 0 ||
	    (rc = pl_derive_edge(b, pause, id, PL_E_SEQ, err)) < 0 ||
	    (rc = pl_derive_edge(b, last, id, PL_E_WAIT | PL_E_INFERRED, err)) < 0)
		return rc;
	b->g->inferred_threads++;
	return next == PL_NONE ? 0 : pl_derive_edge(b, id, next, PL_E_SEQ, err);
}

static int one_pause(struct gb *b, const struct rankinfo *rk, uint32_t res, uint32_t pause,
		     struct pl_err *err)
{
	const struct resinfo *ri = &b->ri[res];
	pl_ns a0 = b->node[pause].start, a1 = pl_derive_end(b, pause), best = (a1 - a0) / 2;
	uint32_t bi = PL_NONE, bf = PL_NONE, bl = PL_NONE;

	for (size_t k = 0; k < rk->n_res; k++) {
		const struct resinfo *other = &b->ri[rk->res[k]];
		uint32_t idle, first = PL_NONE, last = PL_NONE;
		pl_ns len;

		if (rk->res[k] == res || !other->thread || other->service)
			continue;
		len = burst(b, other, a0, a1, &idle, &first, &last);
		if (len > best) {
			best = len;
			bi = idle;
			bf = first;
			bl = last;
		}
	}
	if (bf == PL_NONE)
		return 0;
	return split_pause(b, pause, pause + 1 < ri->node1 ? pause + 1 : PL_NONE, bi, bf, bl, err);
}

int pl_derive_threads(struct gb *b, struct pl_err *err)
{
	int rc;

	if (!b->o->infer)
		return 0;
	for (size_t r = 0; r < b->n_ranks; r++) {
		const struct rankinfo *rk = &b->rank[r];

		for (size_t k = 0; k < rk->n_res; k++) {
			const struct resinfo *ri = &b->ri[rk->res[k]];

			if (!ri->thread || ri->service)
				continue;
			for (uint32_t i = ri->node0; i < ri->node1; i++) {
				if (is_pause(&b->node[i]) && b->node[i].dur >= HANDOVER_MIN_NS &&
				    (rc = one_pause(b, rk, rk->res[k], i, err)) < 0)
					return rc;
			}
		}
	}
	return 0;
}
