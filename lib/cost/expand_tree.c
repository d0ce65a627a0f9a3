/*
 * Trees and chains: up to member 0 (reduce, gather), down from it (broadcast, scatter), or both
 * (all-reduce, barrier).
 *
 * The root has one child, below it the tree is binary, so that it is ceil(log2 n) deep. A node's
 * two children send at once: with two such trees, in each of which half of the members are leaves
 * (Sanders, Speck, Traeff, Parallel Computing 35, 2009), each carries half and no link twice as
 * much. In a chain each member has one child.
 *
 * In as fine pieces as can be, a member passes on from the start of what it receives, the link's
 * latency later, and what has passed links of different speed is complete when the slowest has
 * brought it and the latencies behind that are over.
 */
#include "cost/expand_internal.h"

struct tree {
	struct expansion *s;
	bool chain;
	pl_ns *depth; /* [member]: latency from it to the root */
};

static uint32_t parent(const struct tree *t, uint32_t i)
{
	if (t->chain)
		return i ? i - 1 : 0;
	return i < 2 ? 0 : (i - 2) / 2 + 1;
}

/* The link between i and its parent. */
static struct hop hop_of(const struct tree *t, uint32_t i)
{
	return pl_cost_expand_between(t->s, i, parent(t, i), false);
}

static pl_ns latency(const struct tree *t, uint32_t i)
{
	return expand_latency(hop_of(t, i));
}

static int tree_message(struct tree *t, uint32_t i, bool down, uint32_t *id, struct pl_err *err)
{
	struct expansion *s = t->s;
	double bytes = s->bytes / s->chunks;
	pl_ns dur = pl_cost_expand_busy(&s->m[i], (long double)hop_of(t, i).ns_per_byte * s->bytes /
							  s->chunks);
	uint32_t up = parent(t, i);

	return pl_cost_expand_message(s, down ? up : i, down ? i : up, NULL, bytes, dur, id, err);
}

/* b passes on what a brings, which comes over the link of member i. */
static int pass_on(struct tree *t, uint32_t a, uint32_t b, uint32_t i, struct pl_err *err)
{
	return pl_cost_expand_edge(t->s, a, b, t->s->stream ? PL_E_START : PL_E_DATA, latency(t, i),
				   err);
}

static int send_up(struct tree *t, uint32_t i, struct pl_err *err)
{
	uint32_t n = t->s->chunks, *v = t->s->now;
	uint32_t child = t->chain ? i + 1 : 2 * i, children = t->chain ? 1 : 2;
	int rc = 0;

	for (uint32_t k = 0; k < n && rc >= 0; k++) {
		uint32_t *id = &v[i * n + k];

		rc = tree_message(t, i, false, id, err);
		if (rc >= 0)
			rc = pl_cost_expand_edge(t->s, k ? id[-1] : t->s->m[i].arrive, *id,
						 PL_E_SEQ, 0, err);
		for (uint32_t c = child; c < child + children && c < t->s->n && rc >= 0; c++)
			rc = pass_on(t, v[c * n + k], *id, c, err);
	}
	return rc;
}

/* `turn`: the root has all of it. */
static int tree_up(struct tree *t, uint32_t turn, struct pl_err *err)
{
	uint32_t n = t->s->chunks;
	int rc = 0;

	for (uint32_t i = t->s->n - 1; i > 0 && rc >= 0; i--) {
		uint32_t last;

		if ((rc = send_up(t, i, err)) < 0)
			break;
		last = t->s->now[i * n + n - 1];
		rc = pl_cost_expand_edge(t->s, last, turn, PL_E_DATA, t->depth[i], err);
		if (rc >= 0) /* it has done its part */
			rc = pl_cost_expand_edge(t->s, last, t->s->m[i].transfer, PL_E_SEQ, 0, err);
	}
	return rc;
}

static int send_down(struct tree *t, uint32_t i, uint32_t turn, struct pl_err *err)
{
	uint32_t n = t->s->chunks, *v = t->s->down, up = parent(t, i);
	int rc = 0;

	for (uint32_t k = 0; k < n && rc >= 0; k++) {
		uint32_t *id = &v[i * n + k];

		rc = tree_message(t, i, true, id, err);
		if (rc >= 0)
			rc = pl_cost_expand_edge(t->s, k ? id[-1] : turn, *id, PL_E_SEQ, 0, err);
		if (rc >= 0 && up)
			rc = pass_on(t, v[up * n + k], *id, up, err);
		if (rc >= 0 && up && !k) /* which is not there before it comes */
			rc = pl_cost_expand_edge(t->s, t->s->m[up].arrive, *id, PL_E_SEQ, 0, err);
	}
	return rc;
}

/* Member i has all of it when the last link has brought it, and when its parent had it. */
static int tree_down(struct tree *t, uint32_t turn, struct pl_err *err)
{
	struct expansion *s = t->s;
	uint32_t n = s->chunks;
	int rc = 0;

	for (uint32_t i = 1; i < s->n && rc >= 0; i++) {
		uint32_t up = parent(t, i);
		pl_ns ns = latency(t, i);

		if ((rc = send_down(t, i, turn, err)) < 0)
			break;
		rc = pl_cost_expand_edge(s, s->down[i * n + n - 1], s->m[i].transfer, PL_E_DATA, ns,
					 err);
		if (rc >= 0 && up)
			rc = pl_cost_expand_edge(s, s->m[up].transfer, s->m[i].transfer, PL_E_DATA,
						 ns, err);
	}
	for (uint32_t i = 1; i < s->n && rc >= 0; i++) /* a root has sent what its children have */
		if (!parent(t, i))
			rc = pl_cost_expand_edge(s, s->down[i * n + n - 1], s->m[0].transfer,
						 PL_E_SEQ, 0, err);
	return rc;
}

int pl_cost_expand_tree(struct expansion *s, bool chain, bool up, bool down, struct pl_err *err)
{
	struct tree t = { .s = s, .chain = chain };
	uint32_t turn = s->m[0].arrive;
	int rc;

	PL_TRY(pl_alloc(&t.depth, s->n, sizeof(*t.depth), err));
	for (uint32_t i = 1; i < s->n; i++)
		t.depth[i] = t.depth[parent(&t, i)] + latency(&t, i);
	if (up) {
		PL_TRY(pl_cost_expand_delay(s, "reduced", 0, &turn, err));
		PL_TRY(pl_cost_expand_edge(s, s->m[0].arrive, turn, PL_E_SEQ, 0, err));
		PL_TRY(tree_up(&t, turn, err));
		PL_TRY(pl_cost_expand_edge(s, turn, s->m[0].transfer, PL_E_SEQ, 0, err));
	}
	if (down)
		PL_TRY(tree_down(&t, turn, err));
out:
	pl_free(t.depth);
	return rc;
}
