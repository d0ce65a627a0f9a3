/*
 * Host threads: nested operations become a chain of exclusive segments.
 *
 * The pieces of an operation's span that no child covers belong to the operation. Each piece is a
 * node in the program order of the thread. Time outside all operations is a node too (role GAP):
 * the interpreter, data loading code, or a wait. A call that waits for the device is two nodes, the
 * call and the rest of it after the wait (role SYNC), so that the wait itself can be derived.
 * A collective on a thread (gloo) is an arrival and a transfer, as on a stream; the host operations
 * inside it belong to it, and so do the runtime calls of a thread that only communicates, as gloo's
 * does with tensors of a device. A send or receive is no work of the thread, which posts it and
 * waits for it later (sends.c). A step annotation becomes two marks and no node of its own.
 */
#include "derive/internal.h"

#define MAX_DEPTH 512

/* Module and work of an operation on the stack. */
struct context {
	pl_id module, line;
	uint32_t work; /* of the operation, or of the innermost one around it with known work,
			  PL_NONE */
	bool own;      /* the work is its own */
	bool begun;
	struct node node; /* of its pieces, once it has begun */
};
struct flat {
	struct builder *b;
	uint32_t res;
	struct op *stack[MAX_DEPTH];
	struct context context[MAX_DEPTH];
	int depth;
	pl_ns cur;     /* nodes exist up to this time */
	uint32_t prev; /* last node of the chain */
	struct range_stack ranges;
};

#define DEVICE_WIDE 0x40
#define OF_EVENT    0x10
#define FLAGS	    (DEVICE_WIDE | BLOCKS | OF_EVENT)
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
		{ "EventSync", CALL_SYNC | OF_EVENT },
		{ "Synchronize", CALL_SYNC },
		{ "Launch", CALL_LAUNCH },
		{ "Memcpy", CALL_LAUNCH },
		{ "Memset", CALL_LAUNCH },
		{ "FreeAsync", CALL_OTHER },
		{ "FreeHost", CALL_FREE | DEVICE_WIDE },
		{ "Free", CALL_SYNC | DEVICE_WIDE },
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
static uint8_t call_type(struct builder *b, const struct op *op)
{
	const struct pl_events *e = b->t->seg[op->seg];
	pl_id name = e->name[op->ev];
	uint8_t *known = &b->seg[op->seg].call_type[name];

	if (!*known)
		*known = (uint8_t)(classify(pl_intern_get(&e->seg.str, name)) + 1);
	return (uint8_t)(*known - 1);
}

/* The node from `start` to `end` comes after the last one of the thread. */
static uint32_t chain(struct flat *f, const struct node *like, uint8_t role, pl_ns start, pl_ns end)
{
	/* change the node in place: to change `like` first and copy it then is slower, because a
	 * load waits for a store of another size that was just made */
	uint32_t id = pl_derive_node(f->b, like);
	struct node *n = &f->b->node[id];

	n->role = role;
	n->start = start;
	n->dur = end > start ? end - start : 0;
	if (role == PL_RO_ARRIVE)
		f->b->resource[f->res].comm = true;
	if (f->prev != PL_NONE && f->prev + 1 == id)
		n->follows = 1; /* mostly so */
	else
		pl_derive_edge(f->b, f->prev, id, PL_E_SEQ);
	f->prev = id;
	return id;
}

/* An update that a hook of the backward pass makes: the range is inside the operation. */
static bool updates_in(const struct range *range, const struct op *op)
{
	return range && range->phase == PL_PH_OPTIMIZER && range->start >= op->start;
}

/* The phase of the work that operation `top` does itself at time t. It is that of the operation,
 * unless a range says that the thread prepares or finishes communication, or updates parameters.
 * No call may have an earlier t than the one before. */
static uint8_t phase_at(struct flat *f, const struct op *top, pl_ns t)
{
	const struct range *range = pl_derive_range_at(&f->b->resource[f->res], &f->ranges, t);

	return range && (range->phase == PL_PH_COMM || updates_in(range, top)) ? range->phase
									       : top->phase;
}

/* Adds the segment from f->cur to t of the operation on top. Empty segments become nodes too, so
 * that equal steps have equal nodes at any resolution of the clock. The only exception is an
 * operation whose own node was added last. */
static void emit(struct flat *f, pl_ns t, bool force)
{
	struct context *x;
	struct op *top = NULL;
	int d = f->depth;
	struct node n;

	while (d > 0 && !top)
		if (f->stack[--d]->kind != PL_K_STEP)
			top = f->stack[d];
	if (t <= f->cur && !force && (top ? top->last == f->prev : f->prev == PL_NONE))
		return;
	if (top) {
		x = &f->context[d];
		if (!x->begun) {
			x->node = pl_derive_node_of(f->b, top, f->res, false);
			x->node.role = PL_RO_HOST;
			pl_derive_add_context(f->b, &x->node, top->phase, x->module,
					      x->own ? x->work : PL_NONE);
			pl_derive_add_line(f->b, &x->node, x->line);
			x->begun = true;
		}
		top->last = chain(f, &x->node, PL_RO_HOST, f->cur, t);
		if (top->node != PL_NONE)
			f->b->node[top->last].flags |= PL_NF_PART;
		f->b->node[top->last].phase = phase_at(f, top, f->cur + (t - f->cur) / 2);
		if (top->node == PL_NONE)
			top->node = top->last;
	} else {
		const struct range *range = pl_derive_range_at(&f->b->resource[f->res], &f->ranges,
							       f->cur + (t - f->cur) / 2);

		n = (struct node){ .type = PL_N_OP,
				   .kind = PL_K_HOST_OP,
				   .res = f->res,
				   .name = f->b->s_gap,
				   .step = -1 };
		if (range)
			pl_derive_add_line(f->b, &n, range->line);
		if (range && pl_graph_phase_holds(range->phase))
			pl_derive_add_context(f->b, &n, range->phase, range->module, PL_NONE);
		chain(f, &n, PL_RO_GAP, f->cur, t);
	}
	f->cur = pl_max_i64(f->cur, t);
}

static void mark(struct flat *f, struct op *op, bool begin)
{
	struct node n = pl_derive_node_of(f->b, op, f->res, true);

	n.kind = PL_K_STEP;
	n.name = begin ? f->b->s_begin : f->b->s_end;
	n.flags = begin ? PL_NF_STEP_BEGIN : 0;
	op->last = chain(f, &n, PL_RO_MARK, f->cur, f->cur);
	if (begin)
		op->node = op->last;
}

static void pop_until(struct flat *f, pl_ns t)
{
	while (f->depth && f->stack[f->depth - 1]->end <= t) {
		struct op *op = f->stack[f->depth - 1];

		emit(f, op->end, false);
		if (op->kind == PL_K_STEP)
			mark(f, op, false);
		f->depth--;
	}
}

/* Ends the steps that end by t while an operation that began in them continues. */
static void end_steps(struct flat *f, pl_ns t)
{
	int left = 0;

	for (int d = 0; d < f->depth; d++) {
		struct op *op = f->stack[d];

		if (op->kind != PL_K_STEP || op->end > t) {
			f->context[left] = f->context[d];
			f->stack[left++] = op;
		} else {
			mark(f, op, false);
		}
	}
	f->depth = left;
}

/* A call that may wait: a node for it, one for the rest after the wait. waits.c sets durations. */
static void emit_sync(struct flat *f, struct op *op)
{
	struct node n = pl_derive_node_of(f->b, op, f->res, true);

	op->node = chain(f, &n, PL_RO_HOST, f->cur, op->end);
	f->cur = pl_max_i64(f->cur, op->end);
	op->last = chain(f, &n, PL_RO_SYNC, f->cur, f->cur);
}

/* A send or receive, which begins with the call around it: this posts it, and may take long. */
static void emit_post(struct flat *f, struct op *op)
{
	struct builder *b = f->b;

	if (!f->depth || f->stack[f->depth - 1]->kind == PL_K_STEP || f->prev == PL_NONE)
		emit(f, op->start, f->prev == PL_NONE);
	PL_DERIVE_ADD(b->err, b->posted, b->n_posted, b->cap_posted,
		      (struct posted){ .op = op,
				       .thread = f->res,
				       .issue = f->prev,
				       .partner = PL_NONE,
				       .at = f->cur,
				       .end = op->end });
}

static void emit_comm(struct flat *f, struct op *op)
{
	struct node n = pl_derive_node_of(f->b, op, f->res, true);
	pl_ns start = f->cur;

	f->cur = pl_max_i64(op->end, f->cur);
	op->node = chain(f, &n, PL_RO_ARRIVE, start, start);
	op->last = chain(f, &n, PL_RO_TRANSFER, start, f->cur);
	pl_derive_add_arrival(f->b, op);
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
static void add_call(const struct flat *f, const struct op *op, uint8_t type)
{
	struct builder *b = f->b;
	const struct pl_events *e = b->t->seg[op->seg];
	struct rank *rank = &b->rank[b->resource[f->res].rank_index];
	const struct context *outer = f->depth ? &f->context[f->depth - 1] : NULL;
	const struct call_context x = { .corr = e->corr ? e->corr[op->ev] : INT64_MIN,
					.layer = layer_around(f),
					.module = outer ? outer->module : PL_NONE,
					.line = outer ? outer->line : PL_NONE,
					.work = outer ? outer->work : PL_NONE,
					.phase = f->depth ? f->stack[f->depth - 1]->phase : 0 };
	const struct call c = { .start = op->start,
				.end = op->end,
				.node = op->node,
				.res = f->res,
				.type = (uint8_t)(type & ~FLAGS),
				.device_wide = type & DEVICE_WIDE,
				.blocks = type & BLOCKS,
				.of_event = type & OF_EVENT,
				.two_nodes = op->last > op->node,
				.context = (uint32_t)rank->n_contexts };

	PL_DERIVE_ADD(b->err, rank->call, rank->n_calls, rank->cap_calls, c);
	PL_DERIVE_ADD(b->err, rank->context, rank->n_contexts, rank->cap_contexts, x);
	pl_derive_set_context(b, op->node, op->last, x.phase, x.module, PL_NONE);
	for (uint32_t i = op->node; i <= op->last && i != PL_NONE; i++)
		pl_derive_add_line(b, &b->node[i], x.line);
	if (x.layer >= 0)
		pl_derive_set_layer(b, op->node, op->last, x.layer);
}

/* A recorded wait for communication; waits.c finds the communication. */
static void emit_wait(struct flat *f, struct op *op)
{
	struct rank *rank = &f->b->rank[f->b->resource[f->res].rank_index];

	emit_sync(f, op);
	PL_DERIVE_ADD(f->b->err, rank->waited, rank->n_waited, rank->cap_waited,
		      (struct comm_wait){
			      .call = { .start = op->start,
					.end = op->end,
					.node = op->node,
					.two_nodes = true,
					.res = f->res },
			      .corr = f->b->t->seg[op->seg]->corr[op->ev],
		      });
}

/* Puts an operation on the stack, with its phase, module and work. A step goes below operations
 * that began in the step before and end inside it. */
static void push(struct flat *f, struct op *op)
{
	const struct range *range =
		pl_derive_range_at(&f->b->resource[f->res], &f->ranges, op->start);
	const struct context *outer;
	struct context *x;
	uint8_t phase;
	uint32_t work = op->kind == PL_K_HOST_OP ? pl_derive_work(f->b, op) : PL_NONE;
	int d = f->depth++;

	for (; d && op->kind == PL_K_STEP && f->stack[d - 1]->end < op->end; d--) {
		f->stack[d] = f->stack[d - 1];
		f->context[d] = f->context[d - 1];
	}
	f->stack[d] = op;
	outer = d ? &f->context[d - 1] : NULL;
	x = &f->context[d];
	phase = d ? f->stack[d - 1]->phase : 0;
	/* a step can begin with a range that ends long before it, or inside one that ends the step
	 * before, such as that of the optimizer */
	if (range &&
	    (!phase || range->phase == PL_PH_COMM || (d && updates_in(range, f->stack[d - 1]))) &&
	    (range->end >= op->end ||
	     (op->kind != PL_K_STEP && !pl_graph_phase_holds(range->phase))))
		phase = range->phase;
	x->module = range ? range->module : PL_NONE;
	x->line = range ? range->line : PL_NONE;
	x->begun = false;
	x->own = work != PL_NONE;
	x->work = x->own ? work : outer ? outer->work : PL_NONE;
	pl_derive_phase(f->b, op, phase);
}

static void one_op(struct flat *f, struct op *op)
{
	uint8_t kind = op->kind, type = kind == PL_K_RUNTIME ? call_type(f->b, op) : CALL_OTHER;
	uint8_t what = (uint8_t)(type & ~FLAGS);

	pop_until(f, op->start);
	if (kind == PL_K_SEND || kind == PL_K_RECV) {
		emit_post(f, op);
		return;
	}
	emit(f, op->start, false);
	f->cur = pl_max_i64(f->cur, op->start);
	if (pl_trace_kind_is_comm(kind)) {
		emit_comm(f, op);
		return;
	}
	if (kind == PL_K_WAIT) {
		emit_wait(f, op);
		return;
	}
	/* a launch may wait too: a copy from or to pageable memory, a full queue */
	if (what == CALL_SYNC || what == CALL_FREE || what == CALL_LAUNCH) {
		emit_sync(f, op);
		add_call(f, op, type);
		return;
	}
	if (kind == PL_K_STEP) {
		end_steps(f, op->start);
		mark(f, op, true);
	}
	if (f->depth == MAX_DEPTH) {
		pl_fail(f->b->err, PL_ELIMIT, "operations nest deeper than %d on one thread",
			MAX_DEPTH);
		return;
	}
	push(f, op);
	if (kind == PL_K_RUNTIME) {
		emit(f, op->end, true);
		add_call(f, op, type);
	}
}

/* A collective of a thread may consist of host operations, which belong to it. The calls inside
 * those of a service thread are kept apart. */
static void drop_nested(struct builder *b, struct rank *rank, struct resource *resource)
{
	struct op *around = NULL; /* the collective that ends last */
	uint32_t n = 0;

	for (uint32_t i = 0; i < resource->n; i++) {
		const struct op op = resource->op[i];
		bool inside = around && op.start < around->end;

		if (inside && op.kind == PL_K_HOST_OP)
			continue;
		if (inside && op.kind == PL_K_RUNTIME && resource->service) {
			PL_DERIVE_ADD(b->err, rank->inner, rank->n_inner, rank->cap_inner,
				      (struct inner_call){
					      pl_derive_corr(b, &op), around, op.start, op.end,
					      (call_type(b, &op) & ~FLAGS) == CALL_SYNC });
			continue;
		}
		resource->op[n] = op;
		if (op.kind == PL_K_COLLECTIVE && (!around || op.end > around->end))
			around = &resource->op[n];
		n++;
	}
	resource->n = n;
}

/* Does the thread only communicate, besides what it does inside collectives? */
static bool is_service(const struct resource *resource)
{
	pl_ns until = INT64_MIN;

	for (uint32_t i = 0; i < resource->n; i++) {
		const struct op *op = &resource->op[i];
		bool inside =
			op->start < until && (op->kind == PL_K_HOST_OP || op->kind == PL_K_RUNTIME);

		if (!inside && !pl_trace_kind_is_comm(op->kind))
			return false;
		if (op->kind == PL_K_COLLECTIVE)
			until = pl_max_i64(until, op->end);
	}
	return resource->n > 0;
}

/* A track with step annotations only needs no nodes, because the windows of the steps are known. */
static bool only_steps(const struct resource *resource)
{
	for (uint32_t i = 0; i < resource->n; i++)
		if (resource->op[i].kind != PL_K_STEP)
			return false;
	return true;
}

static void one_thread(struct builder *b, uint32_t res, struct flat *f)
{
	struct resource *resource = &b->resource[res];

	f->b = b;
	f->res = res;
	f->depth = 0;
	memset(&f->ranges, 0, sizeof(f->ranges));
	f->prev = PL_NONE;
	resource->node0 = (uint32_t)b->n_nodes;
	f->cur = resource->n ? resource->op[0].start : 0;
	for (uint32_t i = 0; i < resource->n && !b->err->code; i++)
		one_op(f, &resource->op[i]);
	pop_until(f, INT64_MAX);
	resource->node1 = (uint32_t)b->n_nodes;
}

PL_COMPARATOR(by_call_start, struct call, start, node);

void pl_derive_host(struct builder *b, struct rank *rank)
{
	size_t posted = b->n_posted;
	struct flat *f;

	if (pl_alloc(&f, 1, sizeof(*f), b->err) < 0)
		return;
	for (size_t k = 0; k < rank->n_res; k++) {
		struct resource *resource = &b->resource[rank->res[k]];

		if (!resource->thread)
			continue;
		resource->service = is_service(resource);
		drop_nested(b, rank, resource);
		rank->comm_threads |= resource->service;
		if (!resource->service && !(rank->has_device && only_steps(resource)))
			one_thread(b, rank->res[k], f);
	}
	pl_derive_post(b, posted);
	rank->comm_threads |= rank->n_waited > 0;
	pl_sort(rank->call, rank->n_calls, sizeof(*rank->call), by_call_start);
	pl_free(f);
}
