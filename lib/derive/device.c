/*
 * Operations of streams, and their launches.
 *
 * A device operation is one node; communication is two, the arrival and the transfer. Operations of
 * a stream follow one another in the order of their starts. Profilers round: an overlap of a few
 * microseconds shortens the earlier one; a real overlap (programmatic launch, branches of a CUDA
 * graph shown on one stream) becomes a start-to-start edge.
 *
 * A launch edge leads from the runtime call with the same correlation. It leads from the end of the
 * call, because in a long call (loading of a module, preemption of the thread) the submission comes
 * last. If the operation began before the call returned, the edge leads from the start of the call.
 * All kernels of one CUDA graph have one correlation. An operation of the graph that was delayed,
 * or is the first one on its stream, follows the latest kernel of another stream that had ended;
 * what comes after the graph on its first stream follows all branches. These edges are inferred,
 * because the profile has no edges of CUDA graphs. An operation without a recorded layer belongs to
 * the layer of its launch.
 *
 * A thread that only communicates (a worker of gloo) is treated as a stream; service.c finds its
 * launches. It may copy data from a device and back inside a collective, without an operation of
 * its own. If the collective begins with calls that wait for the device, it arrives when they have
 * ended. What is launched near its end copies the result, so it waits for the transfer, which ends
 * then. Anything else may begin when the collective has begun.
 */
#include "derive/internal.h"

#define GRAPH_NEAR   64	  /* operations of a CUDA graph that are looked back */
#define GRAPH_GAP_NS 4000 /* between operations of a graph that follow one another at once */
/* Calls inside a collective are at its begin or end if they are so near, or in its last tenth. */
#define INNER_NS 100000

/* How far two neighbours may overlap and still count as one after the other. */
static pl_ns slack(pl_ns dur)
{
	return pl_max_i64(2000, pl_min_i64(50000, dur / 20));
}

static uint8_t role_of(uint8_t kind)
{
	switch (kind) {
	case PL_K_COPY:
	case PL_K_SET:
		return PL_RO_COPY;
	case PL_K_KERNEL:
		return PL_RO_COMPUTE;
	default:
		return PL_RO_HOST;
	}
}

static void op_nodes(struct builder *b, uint32_t res, struct op *op)
{
	struct node n = pl_derive_node_of(b, op, res, true);

	if (!pl_trace_kind_is_comm(n.kind)) {
		n.role = role_of(n.kind);
		op->node = op->last = pl_derive_node(b, &n);
		return;
	}
	n.flags |= PL_NF_MISSING; /* until comm.c finds the partners */
	n.dur = 0;
	n.role = PL_RO_ARRIVE;
	op->node = pl_derive_node(b, &n);
	n.role = PL_RO_TRANSFER;
	n.dur = op->end - op->start;
	op->last = pl_derive_node(b, &n);
	pl_derive_add_arrival(b, op);
	pl_derive_edge(b, op->node, op->last, PL_E_SEQ);
}

/* The operation before `i` that had ended when i started, looking back a little. */
static struct op *ended_before(struct resource *resource, uint32_t i)
{
	for (uint32_t k = i; k-- > 0 && i - k < 64;)
		if (resource->op[k].node != PL_NONE && resource->op[k].end <= resource->op[i].start)
			return &resource->op[k];
	return NULL;
}

static void follow(struct builder *b, struct resource *resource, uint32_t i, struct op *prev)
{
	struct op *op = &resource->op[i], *done;
	pl_ns over = prev->end - op->start;

	if (over > 0 && over <= slack(prev->end - prev->start) && b->node[prev->last].dur >= over) {
		b->node[prev->last].dur -= over;
		prev->end = op->start;
		over = 0;
	}
	done = prev;
	if (over > 0) {
		pl_derive_edge(b, prev->node, op->node, PL_E_START);
		done = ended_before(resource, i);
	}
	if (done)
		pl_derive_edge(b, done->last, op->node, PL_E_SEQ);
}

static void one_stream(struct builder *b, uint32_t res)
{
	struct resource *resource = &b->resource[res];
	struct op *prev = NULL;

	resource->node0 = (uint32_t)b->n_nodes;
	for (uint32_t i = 0; i < resource->n; i++) {
		struct op *op = &resource->op[i];

		if (op->kind == PL_K_STEP)
			continue;
		op_nodes(b, res, op);
		if (prev)
			follow(b, resource, i, prev);
		prev = op;
	}
	resource->node1 = (uint32_t)b->n_nodes;
}

/* ---- launches by correlation ----------------------------------------------------------------- */

PL_COMPARATOR(by_key, struct call_of_correlation, corr, call);

uint32_t pl_derive_call_by_corr(const struct rank *rank, int64_t corr)
{
	const struct call_of_correlation *k = rank->by_corr;
	size_t i = 0;

	PL_LOWER_BOUND(i, rank->n_by_corr, k[i].corr < corr);
	return i < rank->n_by_corr && k[i].corr == corr ? k[i].call : PL_NONE;
}

static void launch(struct builder *b, struct rank *rank, struct op *op, uint32_t call)
{
	struct call *c = &rank->call[call];
	const struct call_context *x = &rank->context[c->context];

	if (op->start < c->start) { /* profilers show this case; the call is then no predecessor */
		b->g->dropped_edges++;
		return;
	}
	op->call = call;
	c->n_ops++;
	rank->n_by_call++;
	if (!pl_trace_kind_is_comm(op->kind)) {
		pl_derive_set_context(b, op->node, op->last, x->phase, x->module, x->work);
		for (uint32_t i = op->node; i <= op->last && i != PL_NONE; i++)
			pl_derive_add_line(b, &b->node[i], x->line);
		if (x->layer >= 0 && b->attr[b->node[op->node].attr].layer < 0)
			pl_derive_set_layer(b, op->node, op->last, x->layer);
	}
	pl_derive_edge(b, c->node, op->node, op->start < c->end ? PL_E_EARLY : PL_E_LAUNCH);
}

/* Collectives of threads that begin with waits for the device arrive later. */
static void delay_arrivals(struct builder *b, const struct rank *rank)
{
	const struct op *begun = NULL; /* has done something else than wait */

	for (size_t i = 0; i < rank->n_inner; i++) {
		const struct inner_call *x = &rank->inner[i];
		struct node *arrive = &b->node[x->of->node], *transfer = &b->node[x->of->last];

		if (!x->sync || x->start > arrive->start + INNER_NS)
			begun = x->of;
		if (x->of == begun || x->end <= arrive->start || x->end > x->of->end)
			continue;
		transfer->dur = x->of->end - x->end;
		arrive->start = transfer->start = x->end;
	}
}

PL_COMPARATOR(by_corr, struct inner_call, corr);

/* The collective of a thread that launched the operations with this correlation, NULL: none. */
static struct op *launching_collective(const struct rank *rank, int64_t corr)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, rank->n_inner, rank->inner[i].corr < corr);
	return i < rank->n_inner && rank->inner[i].corr == corr ? rank->inner[i].of : NULL;
}

/* The operation was launched inside the collective of a thread. */
static void launch_inside(struct builder *b, struct op *collective, const struct op *op)
{
	struct node *transfer = &b->node[collective->last];
	pl_ns length = collective->end - collective->start, left = collective->end - op->start;

	if (op->start < collective->start) {
		b->g->dropped_edges++;
		return;
	}
	if (left > pl_max_i64(INNER_NS, length / 10)) {
		pl_derive_edge(b, collective->node, op->node, PL_E_START);
		return;
	}
	if (left > 0) {
		transfer->dur = pl_max_i64(0, op->start - transfer->start);
		collective->end = op->start;
	}
	pl_derive_edge(b, collective->last, op->node, PL_E_WAIT);
	b->g->recorded_waits++;
}

static void launches(struct builder *b, struct rank *rank)
{
	if (pl_alloc(&rank->by_corr, rank->n_calls, sizeof(*rank->by_corr), b->err) < 0)
		return;
	for (size_t i = 0; i < rank->n_calls; i++)
		if (rank->context[rank->call[i].context].corr != INT64_MIN)
			rank->by_corr[rank->n_by_corr++] = (struct call_of_correlation){
				rank->context[rank->call[i].context].corr, (uint32_t)i
			};
	pl_sort(rank->by_corr, rank->n_by_corr, sizeof(*rank->by_corr), by_key);
	pl_sort(rank->inner, rank->n_inner, sizeof(*rank->inner), by_corr);
	for (size_t k = 0; k < rank->n_res; k++) {
		struct resource *resource = &b->resource[rank->res[k]];

		for (uint32_t i = 0; resource->device && i < resource->n; i++) {
			struct op *op = &resource->op[i];
			int64_t corr = op->node == PL_NONE ? -1 : pl_derive_corr(b, op);
			uint32_t call = corr > 0 ? pl_derive_call_by_corr(rank, corr) : PL_NONE;
			struct op *collective = corr > 0 ? launching_collective(rank, corr) : NULL;

			if (call != PL_NONE)
				launch(b, rank, op, call);
			else if (collective)
				launch_inside(b, collective, op);
		}
	}
}

static int by_op_start(const void *pa, const void *pb)
{
	const struct op *a = *(struct op *const *)pa, *c = *(struct op *const *)pb;

	return PL_COMPARE_FIELDS(a, c, start, node);
}

/* Lists of device operations by call, each in order of start. */
static void group_by_call(struct builder *b, struct rank *rank)
{
	uint32_t at = 0;

	if (pl_alloc(&rank->by_call, rank->n_by_call, sizeof(*rank->by_call), b->err) < 0)
		return;
	for (size_t i = 0; i < rank->n_calls; i++) {
		rank->call[i].first_op = at;
		at += rank->call[i].n_ops;
		rank->call[i].n_ops = 0;
	}
	for (size_t k = 0; k < rank->n_res; k++) {
		struct resource *resource = &b->resource[rank->res[k]];

		for (uint32_t i = 0; i < resource->n; i++) {
			struct call *c = resource->op[i].call == PL_NONE
						 ? NULL
						 : &rank->call[resource->op[i].call];

			if (c)
				rank->by_call[c->first_op + c->n_ops++] = &resource->op[i];
		}
	}
	for (size_t i = 0; i < rank->n_calls; i++)
		if (rank->call[i].n_ops > 1)
			pl_sort(rank->by_call + rank->call[i].first_op, rank->call[i].n_ops,
				sizeof(*rank->by_call), by_op_start);
}

/* The last operation of this stream among the first n of a call, NULL: none nearby. */
static struct op *latest_on(const struct builder *b, struct op *const *v, uint32_t n, uint32_t res)
{
	for (uint32_t k = n; k-- > 0 && n - k < GRAPH_NEAR;)
		if (b->node[v[k]->node].res == res)
			return v[k];
	return NULL;
}

/* An operation of a CUDA graph waits for another stream. */
static void graph_fork(struct builder *b, struct op *const *v, uint32_t i)
{
	struct op *op = v[i], *best = NULL;
	uint32_t res = b->node[op->node].res;
	const struct op *own = latest_on(b, v, i, res);

	if (own && op->start - own->end <= GRAPH_GAP_NS)
		return; /* it had only its own stream to wait for */
	for (uint32_t k = i; k-- > 0 && i - k < GRAPH_NEAR;)
		if (b->node[v[k]->node].res != res && v[k]->end <= op->start &&
		    (!best || v[k]->end > best->end))
			best = v[k];
	if (best)
		pl_derive_edge(b, best->last, op->node, PL_E_WAIT | PL_E_INFERRED);
}

/* What comes after a CUDA graph on its first stream waits for the last operation of each branch. */
static void graph_join(struct builder *b, struct op *const *v, uint32_t n)
{
	uint32_t res = b->node[v[0]->node].res;
	const struct resource *resource = &b->resource[res];
	struct op *next = latest_on(b, v, n, res);

	if (!next)
		return;
	do
		next++;
	while (next < resource->op + resource->n && next->node == PL_NONE);
	for (uint32_t k = n; next < resource->op + resource->n && k-- > 0 && n - k < GRAPH_NEAR;) {
		uint32_t other = b->node[v[k]->node].res;

		if (other != res && v[k]->end <= next->start && latest_on(b, v, n, other) == v[k])
			pl_derive_edge(b, v[k]->last, next->node, PL_E_WAIT | PL_E_INFERRED);
	}
}

/* Branches of a CUDA graph on several streams. */
static void graph_branches(struct builder *b, struct rank *rank, const struct call *c)
{
	struct op *const *v = rank->by_call + c->first_op;

	for (uint32_t i = 1; i < c->n_ops; i++)
		graph_fork(b, v, i);
	graph_join(b, v, c->n_ops);
}

/* On a rank without a device, host operators are the computation. */
static void host_is_compute(struct builder *b, const struct rank *rank)
{
	for (size_t k = 0; k < rank->n_res; k++) {
		const struct resource *resource = &b->resource[rank->res[k]];

		for (uint32_t i = resource->node0; i < resource->node1; i++)
			if (b->node[i].role == PL_RO_HOST && b->node[i].kind == PL_K_HOST_OP)
				b->node[i].role = PL_RO_COMPUTE;
	}
}

void pl_derive_device(struct builder *b, struct rank *rank)
{
	for (size_t k = 0; k < rank->n_res; k++)
		if (b->resource[rank->res[k]].device || b->resource[rank->res[k]].service)
			one_stream(b, rank->res[k]);
	delay_arrivals(b, rank);
	launches(b, rank);
	group_by_call(b, rank);
	for (size_t c = 0; c < rank->n_calls && !b->err->code; c++)
		if (rank->call[c].n_ops > 1)
			graph_branches(b, rank, &rank->call[c]);
	if (!rank->has_device)
		host_is_compute(b, rank);
}
