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
#include <string.h>

#include "derive/internal.h"

#define LAUNCH_MAX_NS	50000
#define DISPATCH_MAX_NS 10000
#define LINK_MAX_NS	INT64_C(1000000000)
#define MIN_CASES	3

struct cases {
	int64_t *v;
	size_t n, cap;
};

static int add(struct cases *c, int64_t x, struct pl_err *err)
{
	int rc = pl_grow(&c->v, &c->cap, c->n + 1, sizeof(*c->v), err);

	if (rc == 0)
		c->v[c->n++] = x;
	return rc;
}

static pl_ns typical(struct cases *c, pl_ns max)
{
	return c->n < MIN_CASES ? 0 : pl_max_i64(0, pl_min_i64(pl_median_i64(c->v, c->n), max));
}

struct samples {
	struct cases launch, early, dispatch;
};

/* Operations on an idle stream tell the launch latencies. */
static int idle_cases(const struct gb *b, const struct rankinfo *rk, const struct resinfo *ri,
		      struct samples *s, struct pl_err *err)
{
	const struct op *prev = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < ri->n && rc == 0; i++) {
		const struct op *op = &ri->op[i];
		const struct call *c = op->call == PL_NONE ? NULL : &rk->call[op->call];

		if (op->node == PL_NONE)
			continue;
		if (c && !(b->node[op->node].flags & NODE_WAITS) &&
		    (!prev || prev->end <= c->start))
			rc = op->start < c->end ? add(&s->early, op->start - c->start, err)
						: add(&s->launch, op->start - c->end, err);
		prev = op;
	}
	return rc;
}

/* Operations that were launched long before their predecessor ended tell the dispatch latency. */
static int busy_cases(const struct gb *b, const struct rankinfo *rk, const struct resinfo *ri,
		      struct samples *s, struct pl_err *err)
{
	const struct op *prev = NULL;
	int rc = 0;

	for (uint32_t i = 0; i < ri->n && rc == 0; i++) {
		const struct op *op = &ri->op[i];

		if (op->node == PL_NONE)
			continue;
		if (prev && op->call != PL_NONE && !(b->node[op->node].flags & NODE_WAITS) &&
		    rk->call[op->call].end + LAUNCH_MAX_NS <= prev->end)
			rc = add(&s->dispatch, op->start - prev->end, err);
		prev = op;
	}
	return rc;
}

static int one_resource(const struct gb *b, struct pl_resource *res, const struct resinfo *ri,
			struct pl_err *err)
{
	const struct rankinfo *rk = &b->rank[ri->rank_index];
	struct samples s = { 0 };
	int rc = idle_cases(b, rk, ri, &s, err);

	if (rc == 0)
		rc = busy_cases(b, rk, ri, &s, err);
	if (rc == 0) {
		res->launch_ns = typical(&s.launch, LAUNCH_MAX_NS);
		res->early_ns = typical(&s.early, LAUNCH_MAX_NS);
		res->dispatch_ns = typical(&s.dispatch, DISPATCH_MAX_NS);
	}
	pl_free(s.launch.v);
	pl_free(s.early.v);
	pl_free(s.dispatch.v);
	return rc;
}

/* When the receiver's channel was free for the message: the latest that came there before. */
static void find_free(const struct gb *b, pl_ns *free_at)
{
	struct edge e;

	for (size_t at = 0; pl_derive_next_edge(b, &at, &e);) {
		const struct node *src = &b->node[e.src], *dst = &b->node[e.dst];

		if (src->flags & dst->flags & PL_NF_MESSAGE && src->kind == PL_K_RECV &&
		    dst->kind == PL_K_RECV)
			free_at[e.dst] = pl_max_i64(free_at[e.dst], src->start + src->dur);
	}
}

int pl_derive_link_latency(struct gb *b, struct pl_err *err)
{
	struct cases *of = NULL;
	pl_ns *free_at = NULL;
	size_t n = b->g->n_res;
	int rc = 0;

	if (!b->n_link)
		return 0;
	PL_TRY(pl_alloc(&of, n, sizeof(*of), err));
	PL_TRY(pl_alloc(&free_at, b->n_nodes, sizeof(*free_at), err));
	for (size_t i = 0; i < b->n_nodes; i++)
		free_at[i] = INT64_MIN;
	find_free(b, free_at);
	for (size_t i = 0; i < b->n_edges; i++) {
		uint32_t from = b->edge[i].src, to = b->edge[i].dst;
		const struct node *src = &b->node[from], *dst = &b->node[to];

		if (src->flags & dst->flags & PL_NF_MESSAGE && src->kind == PL_K_SEND &&
		    dst->kind == PL_K_RECV && PL_E_TYPE(b->edge[i].type) == PL_E_DATA &&
		    dst->res < n && free_at[to] <= pl_derive_end(b, from))
			PL_TRY(add(&of[dst->res], dst->start - pl_derive_end(b, from), err));
	}
	for (size_t r = 0; r < n; r++)
		if (of[r].n)
			b->g->res[r].launch_ns = typical(&of[r], LINK_MAX_NS);
out:
	for (size_t r = 0; of && r < n; r++)
		pl_free(of[r].v);
	pl_free(of);
	pl_free(free_at);
	return rc;
}

int pl_derive_latency(struct gb *b, const struct rankinfo *rk, struct pl_err *err)
{
	int rc = 0;

	for (size_t k = 0; k < rk->n_res && rc == 0; k++)
		if (b->ri[rk->res[k]].device)
			rc = one_resource(b, &b->g->res[rk->res[k]], &b->ri[rk->res[k]], err);
	return rc;
}
