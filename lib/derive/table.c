/*
 * Ranks that have operations but no host threads: operation tables.
 *
 * A table has no dependencies, only times (unless its events name what they come after: after.c).
 * For each operation and every other track of the rank, the last operation that had ended when this
 * one began is a candidate for a predecessor, unless the dependency follows from another candidate.
 * A dependency recurs in every step, a chance order does not. Therefore, with several steps, a
 * candidate is kept if most of the steps have it. Operations of different steps correspond by track
 * and position on the track. The dependency then holds in every step that does not contradict it:
 * where the operation does not begin first. So majorities that go round in a circle make no cycle.
 * Such edges are inferred. A step begins when all ranks have ended the step before.
 */
#include "derive/internal.h"

#define TABLE_SLACK_NS 50000 /* a start may precede the end it waited for by the clocks' jitter */

struct candidate {
	const struct op *op;
	uint32_t slot;
};

static pl_ns slack_of(const struct op *p)
{
	return pl_min_i64(TABLE_SLACK_NS, (p->end - p->start) / 20 + 2000);
}

/* Last operation of the track that started before `op` and had ended (nearly) when it started. */
static const struct op *last_ended(const struct resource *resource, const struct op *op)
{
	uint32_t lo = 0;

	/* first that does not start before op */
	PL_LOWER_BOUND(lo, resource->n, resource->op[lo].start < op->start);
	for (uint32_t i = lo; i-- > 0 && lo - i < 64;) {
		if (resource->op[i].node != PL_NONE &&
		    resource->op[i].end <= op->start + slack_of(&resource->op[i]))
			return &resource->op[i];
	}
	return NULL;
}

/* ---- candidates and their vote --------------------------------------------------------------- */

struct pair { /* the operation at `dst` of a step follows the one at `src` of the same step */
	uint32_t dst, src;
};

struct place {	       /* of an operation */
	uint32_t slot; /* in its step: the same number in every step */
	int32_t step;
};

struct vote {
	struct builder *b;
	struct place **place; /* [resource][operation] */
	uint32_t n_slots;
	uint32_t *seen;	   /* [slot]: in how many steps */
	struct op **at;	   /* [slot]: in the step at hand */
	struct pair *pair; /* candidates, then those kept */
	size_t n_pairs, cap_pairs;
};

/* Step in which an operation starts. */
static int32_t step_of(const struct builder *b, const struct resource *resource, uint32_t i)
{
	return pl_derive_step_at(b, &b->rank[resource->rank_index], resource->op[i].start, NULL);
}

static void vote_fini(struct vote *v)
{
	for (size_t k = 0; v->place && k < v->b->g->n_res; k++)
		pl_free(v->place[k]);
	pl_free(v->place);
	pl_free(v->seen);
	pl_free(v->at);
	pl_free(v->pair);
}

static void number_slots(struct vote *v)
{
	struct builder *b = v->b;
	int rc;

	PL_TRY(pl_alloc(&v->place, b->g->n_res, sizeof(*v->place), b->err));
	for (uint32_t k = 0; k < b->g->n_res; k++) {
		const struct resource *resource = &b->resource[k];
		uint32_t nth = 0, most = 0;

		PL_TRY(pl_alloc(&v->place[k], resource->n, sizeof(**v->place), b->err));
		for (uint32_t i = 0; i < resource->n; i++) {
			struct place *x = &v->place[k][i];

			x->step = step_of(b, resource, i);
			nth = i && x->step == x[-1].step ? nth + 1 : 0;
			x->slot = v->n_slots + nth;
			most = nth + 1 > most ? nth + 1 : most;
		}
		v->n_slots += most;
	}
	PL_TRY(pl_alloc(&v->seen, v->n_slots, sizeof(*v->seen), b->err));
	PL_TRY(pl_alloc(&v->at, v->n_slots, sizeof(*v->at), b->err));
out:;
}

static void propose(struct vote *v, const struct rank *rank, uint32_t self, uint32_t index)
{
	struct builder *b = v->b;
	const struct op *op = &b->resource[self].op[index];
	const struct place *own = &v->place[self][index];
	struct candidate c[64];
	size_t n = 0;
	pl_ns implied = INT64_MIN; /* what ended before this precedes a chosen predecessor */

	for (size_t k = 0; k < rank->n_res && n < PL_LEN(c); k++) {
		uint32_t res = rank->res[k];
		const struct op *p = res == self ? NULL : last_ended(&b->resource[res], op);
		const struct place *at = p ? &v->place[res][p - b->resource[res].op] : NULL;

		if (at && at->step == own->step)
			c[n++] = (struct candidate){ p, at->slot };
	}
	for (size_t left = n; left; c[n] = c[--left]) {
		n = 0;
		for (size_t i = 1; i < left; i++)
			if (c[i].op->end > c[n].op->end)
				n = i;
		if (c[n].op->end <= implied)
			break;
		PL_DERIVE_ADD(b->err, v->pair, v->n_pairs, v->cap_pairs,
			      (struct pair){ own->slot, c[n].slot });
		implied = pl_max_i64(implied, c[n].op->start);
	}
	v->seen[own->slot]++;
}

PL_COMPARATOR(by_pair, struct pair, dst, src);

/* Keep each pair once, if most steps that have its operation proposed it. */
static void count_votes(struct vote *v)
{
	size_t kept = 0;

	pl_sort(v->pair, v->n_pairs, sizeof(*v->pair), by_pair);
	for (size_t i = 0, n; i < v->n_pairs; i += n) {
		for (n = 1; i + n < v->n_pairs && !by_pair(&v->pair[i], &v->pair[i + n]); n++)
			;
		if (2 * n > v->seen[v->pair[i].dst])
			v->pair[kept++] = v->pair[i];
	}
	v->n_pairs = kept;
}

/* first: operations that begin together are in this order */
static void tie(struct builder *b, struct op *p, struct op *op, bool first)
{
	pl_ns over = p->end - op->start;

	if (over > slack_of(p) || p->start > op->start || (p->start == op->start && !first))
		return; /* not in this step */
	if (over > 0) { /* the clocks' jitter */
		b->node[p->last].dur -= pl_min_i64(over, b->node[p->last].dur);
		p->end = op->start;
	}
	b->g->inferred_waits++;
	pl_derive_edge(b, p->last, op->node, PL_E_WAIT | PL_E_INFERRED);
}

/* One step: note which operation is at which place, tie the pairs, forget again. */
static void tie_step(struct vote *v, const uint32_t *from, const uint32_t *to)
{
	struct builder *b = v->b;

	for (uint32_t k = 0; k < b->g->n_res; k++)
		for (uint32_t i = from[k]; i < to[k]; i++)
			if (b->resource[k].op[i].node != PL_NONE)
				v->at[v->place[k][i].slot] = &b->resource[k].op[i];
	for (size_t i = 0; i < v->n_pairs; i++) {
		struct op *dst = v->at[v->pair[i].dst], *src = v->at[v->pair[i].src];

		if (dst && src)
			tie(b, src, dst, v->pair[i].src < v->pair[i].dst);
	}
	for (uint32_t k = 0; k < b->g->n_res; k++)
		for (uint32_t i = from[k]; i < to[k]; i++)
			v->at[v->place[k][i].slot] = NULL;
}

static void tie_steps(struct vote *v)
{
	struct builder *b = v->b;
	uint32_t *from = NULL, *to = NULL;
	int rc;

	PL_TRY(pl_alloc(&from, b->g->n_res, sizeof(*from), v->b->err));
	PL_TRY(pl_alloc(&to, b->g->n_res, sizeof(*to), v->b->err));
	for (int32_t s = BEFORE_FIRST_STEP; s <= (int32_t)b->n_steps; s++) {
		for (uint32_t k = 0; k < b->g->n_res; k++) {
			bool table = b->rank[b->resource[k].rank_index].table;

			to[k] = from[k];
			while (table && to[k] < b->resource[k].n && v->place[k][to[k]].step <= s)
				to[k]++;
		}
		tie_step(v, from, to);
		memcpy(from, to, b->g->n_res * sizeof(*from));
	}
out:
	pl_free(from);
	pl_free(to);
}

static void table_edges(struct builder *b)
{
	struct vote v = { .b = b };

	number_slots(&v);
	for (uint32_t k = 0; k < b->g->n_res && !b->err->code; k++) {
		const struct rank *rank = &b->rank[b->resource[k].rank_index];

		for (uint32_t i = 0; rank->table && !rank->ordered && i < b->resource[k].n; i++)
			if (b->resource[k].op[i].node != PL_NONE)
				propose(&v, rank, k, i);
	}
	count_votes(&v);
	if (!b->err->code)
		tie_steps(&v);
	vote_fini(&v);
}

/* ---- steps of a table ------------------------------------------------------------------------ */

/* Begin of step s: after the last operation of every track in earlier steps, before the first of
 * each. at[]: by resource, the first operation that is not in an earlier step; moved on. */
static void begin_step(struct builder *b, int32_t s, pl_ns start, uint32_t *at)
{
	struct node n = { .start = start,
			  .type = PL_N_RENDEZVOUS,
			  .role = PL_RO_MARK,
			  .kind = PL_K_STEP,
			  .flags = PL_NF_STEP_BEGIN,
			  .res = PL_NONE,
			  .name = b->s_begin,
			  .step = s };
	uint32_t id = pl_derive_node(b, &n);

	for (uint32_t k = 0; k < b->g->n_res; k++) {
		struct resource *resource = &b->resource[k];
		struct op *last = NULL;
		uint32_t i = at[k];

		for (; i < resource->n && step_of(b, resource, i) < s; i++)
			if (resource->op[i].node != PL_NONE)
				last = &resource->op[i];
		at[k] = i;
		while (i < resource->n && resource->op[i].node == PL_NONE &&
		       step_of(b, resource, i) == s)
			i++;
		if (i < resource->n && step_of(b, resource, i) == s)
			pl_derive_edge(b, id, resource->op[i].node, PL_E_SEQ);
		if (last && last->end <= start)
			pl_derive_edge(b, last->last, id, PL_E_SEQ);
	}
}

static void begin_steps(struct builder *b)
{
	uint32_t *at = NULL;
	pl_ns *start = NULL; /* by step: the earliest on any rank */
	int rc;

	PL_TRY(pl_alloc(&at, b->g->n_res, sizeof(*at), b->err));
	PL_TRY(pl_alloc(&start, b->n_steps, sizeof(*start), b->err));
	for (size_t s = 0; s < b->n_steps; s++)
		start[s] = INT64_MAX;
	for (size_t r = 0; r < b->n_ranks; r++) {
		for (size_t i = 0; i < b->rank[r].n_win; i++) {
			const struct window *w = &b->rank[r].win[i];

			start[w->step] = pl_min_i64(start[w->step], w->start);
		}
	}
	for (size_t s = 0; s < b->n_steps; s++)
		if (start[s] != INT64_MAX)
			begin_step(b, (int32_t)s, start[s], at);
out:
	pl_free(at);
	pl_free(start);
}

void pl_derive_tables(struct builder *b)
{
	bool all = true, any = false;

	for (size_t r = 0; r < b->n_ranks; r++) {
		struct rank *rank = &b->rank[r];

		rank->table = rank->n_by_call == 0 && rank->has_device;
		for (size_t k = 0; k < rank->n_res; k++)
			rank->table &= !b->resource[rank->res[k]].thread ||
				       b->resource[rank->res[k]].node1 == 0 ||
				       b->resource[rank->res[k]].service;
		all &= rank->table;
		any |= rank->table;
	}
	if (any)
		table_edges(b);
	if (all && !b->g->stepless)
		begin_steps(b);
}
