/*
 * Trees and chains: up to member 0 (reduce, gather), down from it (broadcast, scatter), or both
 * (all-reduce, barrier).
 *
 * The root has one child, below it the tree is binary, so that it is ceil(log2 n) deep. A node's
 * two children send at once: with two such trees, in each of which half of the members are leaves
 * (Sanders, Speck, Traeff, Parallel Computing 35, 2009), each carries half and no link twice as
 * much. In a chain each member has one child.
 *
 * Pieces are as fine as possible. A member begins to forward one latency of the link after its data
 * begin to arrive. Data that pass links of different speeds are complete when the slowest link has
 * carried them and the latencies of the links behind it are over.
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

static uint32_t tree_message(const struct tree *t, uint32_t i, bool down)
{
	struct expansion *s = t->s;
	double bytes = s->bytes / s->chunks;
	pl_ns dur = pl_cost_expand_busy(&s->m[i], (long double)hop_of(t, i).ns_per_byte * s->bytes /
							  s->chunks);
	uint32_t up = parent(t, i);

	return pl_cost_expand_message(s, down ? up : i, down ? i : up, NULL, bytes, dur);
}

/* Message b passes on the data of message a, which came over the link of member i. */
static void pass_on(const struct tree *t, uint32_t a, uint32_t b, uint32_t i)
{
	pl_cost_expand_edge(t->s, a, b, t->s->stream ? PL_E_START : PL_E_DATA, latency(t, i));
}

static void send_up(const struct tree *t, uint32_t i)
{
	uint32_t n = t->s->chunks, *v = t->s->now;
	uint32_t child = t->chain ? i + 1 : 2 * i, children = t->chain ? 1 : 2;

	for (uint32_t k = 0; k < n; k++) {
		uint32_t *id = &v[i * n + k];

		*id = tree_message(t, i, false);
		pl_cost_expand_edge(t->s, k ? id[-1] : t->s->m[i].arrive, *id, PL_E_SEQ, 0);
		for (uint32_t c = child; c < child + children && c < t->s->n; c++)
			pass_on(t, v[c * n + k], *id, c);
	}
}

/* `turn` is the node at which the root has all data. */
static void tree_up(const struct tree *t, uint32_t turn)
{
	uint32_t n = t->s->chunks;

	for (uint32_t i = t->s->n - 1; i > 0 && t->s->rc >= 0; i--) {
		uint32_t last;

		send_up(t, i);
		last = t->s->now[i * n + n - 1];
		pl_cost_expand_edge(t->s, last, turn, PL_E_DATA, t->depth[i]);
		/* the member has done its part */
		pl_cost_expand_edge(t->s, last, t->s->m[i].transfer, PL_E_SEQ, 0);
	}
}

static void send_down(const struct tree *t, uint32_t i, uint32_t turn)
{
	uint32_t n = t->s->chunks, *v = t->s->down, up = parent(t, i);

	for (uint32_t k = 0; k < n; k++) {
		uint32_t *id = &v[i * n + k];

		*id = tree_message(t, i, true);
		pl_cost_expand_edge(t->s, k ? id[-1] : turn, *id, PL_E_SEQ, 0);
		if (up)
			pass_on(t, v[up * n + k], *id, up);
		if (up && !k) /* the parent does not send before it arrives */
			pl_cost_expand_edge(t->s, t->s->m[up].arrive, *id, PL_E_SEQ, 0);
	}
}

/* Member i has all data one latency after its link has carried the last piece, and not before one
 * latency after its parent has all data. */
static void tree_down(const struct tree *t, uint32_t turn)
{
	struct expansion *s = t->s;
	uint32_t n = s->chunks;

	for (uint32_t i = 1; i < s->n && s->rc >= 0; i++) {
		uint32_t up = parent(t, i);
		pl_ns ns = latency(t, i);

		send_down(t, i, turn);
		pl_cost_expand_edge(s, s->down[i * n + n - 1], s->m[i].transfer, PL_E_DATA, ns);
		if (up)
			pl_cost_expand_edge(s, s->m[up].transfer, s->m[i].transfer, PL_E_DATA, ns);
	}
	for (uint32_t i = 1; i < s->n && s->rc >= 0;
	     i++) /* the root ends when it has sent to its children */
		if (!parent(t, i))
			pl_cost_expand_edge(s, s->down[i * n + n - 1], s->m[0].transfer, PL_E_SEQ,
					    0);
}

void pl_cost_expand_tree(struct expansion *s, bool chain, bool up, bool down)
{
	struct tree t = { .s = s, .chain = chain };
	uint32_t turn = s->m[0].arrive;

	s->rc = pl_alloc(&t.depth, s->n, sizeof(*t.depth), s->err);
	if (s->rc < 0)
		return;
	for (uint32_t i = 1; i < s->n; i++)
		t.depth[i] = t.depth[parent(&t, i)] + latency(&t, i);
	if (up) {
		turn = pl_cost_expand_delay(s, "reduced", 0);
		pl_cost_expand_edge(s, s->m[0].arrive, turn, PL_E_SEQ, 0);
		tree_up(&t, turn);
		pl_cost_expand_edge(s, turn, s->m[0].transfer, PL_E_SEQ, 0);
	}
	if (down)
		tree_down(&t, turn);
	pl_free(t.depth);
}
