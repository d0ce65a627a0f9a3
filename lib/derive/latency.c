/*
 * The modelled latencies of a device: from the end of a launch call to the start of its operation
 * on an idle stream; from the start of the call, for operations that began before it returned;
 * between two operations of a stream, if the second was launched in time. Each latency is the
 * median over such cases of the recording. The time of an operation beyond the median stays
 * unexplained. The latencies are limited to values that hardware can have, so that a habit of the
 * job (a pause after every kernel) is not taken for a property of the device.
 *
 * The latency of links: from the end of a send to the arrival of its first data, if the receiver
 * had no other message to receive.
 */
#include "derive/internal.h"

#define LAUNCH_MAX_NS	50000
#define DISPATCH_MAX_NS 10000
#define LINK_MAX_NS	INT64_C(1000000000)
#define MIN_CASES	3 /* a median of fewer is no habit of the device */

struct cases {
	int64_t *v;
	size_t n, cap;
};

static void add(struct cases *c, int64_t x, struct pl_err *err)
{
	PL_DERIVE_ADD(err, c->v, c->n, c->cap, x);
}

static pl_ns typical(struct cases *c, pl_ns max)
{
	return c->n < MIN_CASES ? 0 : pl_max_i64(0, pl_min_i64(pl_median_i64(c->v, c->n), max));
}

struct samples {
	struct cases launch, early, dispatch;
};

/* An operation on an idle stream tells the launch latency; one that was launched long before its
 * predecessor `prev` ended tells the dispatch latency. */
static void one_case(struct samples *s, const struct call *c, const struct op *op,
		     const struct op *prev, struct pl_err *err)
{
	if (prev && c->end + LAUNCH_MAX_NS <= prev->end)
		add(&s->dispatch, op->start - prev->end, err);
	if (prev && prev->end > c->start)
		return;
	if (op->start < c->end)
		add(&s->early, op->start - c->start, err);
	else
		add(&s->launch, op->start - c->end, err);
}

static void one_stream(const struct builder *b, struct pl_resource *res,
		       const struct resource *resource)
{
	const struct rank *rank = &b->rank[resource->rank_index];
	const struct op *prev = NULL;
	struct samples s = { 0 };

	for (uint32_t i = 0; i < resource->n; i++) {
		const struct op *op = &resource->op[i];

		if (op->node == PL_NONE)
			continue;
		if (op->call != PL_NONE && !b->node[op->node].waits)
			one_case(&s, &rank->call[op->call], op, prev, b->err);
		prev = op;
	}
	res->launch_ns = typical(&s.launch, LAUNCH_MAX_NS);
	res->early_ns = typical(&s.early, LAUNCH_MAX_NS);
	res->dispatch_ns = typical(&s.dispatch, DISPATCH_MAX_NS);
	pl_free(s.launch.v);
	pl_free(s.early.v);
	pl_free(s.dispatch.v);
}

/* When the receiver's channel was free for the message: the latest that came there before. */
static void find_free(const struct builder *b, pl_ns *free_at)
{
	struct edge e;

	for (size_t at = 0; pl_derive_next_edge(b, &at, &e);) {
		const struct node *src = &b->node[e.src], *dst = &b->node[e.dst];

		if (src->flags & dst->flags & PL_NF_MESSAGE && src->kind == PL_K_RECV &&
		    dst->kind == PL_K_RECV)
			free_at[e.dst] = pl_max_i64(free_at[e.dst], src->start + src->dur);
	}
}

void pl_derive_link_latency(struct builder *b)
{
	struct cases *of = NULL;
	pl_ns *free_at = NULL;
	size_t n = b->g->n_res;
	int rc = 0;

	if (!b->n_link)
		return;
	PL_TRY(pl_alloc(&of, n, sizeof(*of), b->err));
	PL_TRY(pl_alloc(&free_at, b->n_nodes, sizeof(*free_at), b->err));
	for (size_t i = 0; i < b->n_nodes; i++)
		free_at[i] = INT64_MIN;
	find_free(b, free_at);
	for (size_t i = 0; i < b->n_edges; i++) {
		uint32_t from = b->edge[i].src, to = b->edge[i].dst;
		const struct node *src = &b->node[from], *dst = &b->node[to];

		if (src->flags & dst->flags & PL_NF_MESSAGE && src->kind == PL_K_SEND &&
		    dst->kind == PL_K_RECV && PL_E_TYPE(b->edge[i].type) == PL_E_DATA &&
		    dst->res < n && free_at[to] <= pl_derive_end(b, from))
			add(&of[dst->res], dst->start - pl_derive_end(b, from), b->err);
	}
	for (size_t r = 0; r < n; r++)
		if (of[r].n)
			b->g->res[r].launch_ns = typical(&of[r], LINK_MAX_NS);
out:
	for (size_t r = 0; of && r < n; r++)
		pl_free(of[r].v);
	pl_free(of);
	pl_free(free_at);
}

void pl_derive_latency(struct builder *b, const struct rank *rank)
{
	for (size_t k = 0; k < rank->n_res; k++)
		if (b->resource[rank->res[k]].device)
			one_stream(b, &b->g->res[rank->res[k]], &b->resource[rank->res[k]]);
}
