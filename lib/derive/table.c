/*
 * Ranks that have operations but no host threads: operation tables.
 *
 * A table has no dependencies, only times. For each operation and every other track of the rank,
 * the last operation that had ended when this one began is a candidate for a predecessor, unless
 * the dependency follows from another candidate. A dependency recurs in every step, a chance order
 * does not. Therefore, with several steps, a candidate is kept if most of the steps have it.
 * Operations of different steps correspond by track and position on the track. The dependency then
 * holds in every step that does not contradict it. Such edges are inferred. A step begins when all
 * ranks have ended the step before.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

#define TABLE_SLACK_NS 50000 /* a start may precede the end it waited for by the clocks' jitter */

struct cand {
	struct op *op;
	pl_ns end;
	uint32_t res;
};

static pl_ns slack_of(const struct op *p)
{
	return pl_min_i64(TABLE_SLACK_NS, (p->end - p->start) / 20 + 2000);
}

/* Last operation of the track that started before `op` and had ended (nearly) when it started. */
static struct op *last_ended(struct resinfo *ri, const struct op *op)
{
	uint32_t lo = 0;

	/* first that does not start before op */
	PL_LOWER_BOUND(lo, ri->n, ri->op[lo].start < op->start);
	for (uint32_t i = lo; i-- > 0 && lo - i < 64;) {
		if (ri->op[i].node != PL_NONE && ri->op[i].end <= op->start + slack_of(&ri->op[i]))
			return &ri->op[i];
	}
	return NULL;
}

/* ---- candidates and their vote
 * ---------------------------------------------------------------------- */

struct pair { /* the operation at `dst` of a step follows the one at `src` of the same step */
	uint32_t dst, src;
};

struct vote {
	struct gb *b;
	uint32_t *
		*slot; /* [resource][operation]: place in its step, the same number in every step */
	int32_t **step; /* [resource][operation] */
	uint32_t n_slots;
	uint32_t *seen;	   /* [slot]: in how many steps */
	struct op **at;	   /* [slot]: in the step at hand */
	struct pair *pair; /* candidates, then those kept */
	size_t n_pairs, cap_pairs;
};

/* Step in which an operation starts. */
static int32_t step_of(const struct gb *b, const struct resinfo *ri, uint32_t i)
{
	bool inside;

	return pl_derive_step_at(b, &b->rank[ri->rank_index], ri->op[i].start, &inside);
}

static void vote_fini(struct vote *v)
{
	for (size_t k = 0; k < v->b->g->n_res; k++) {
		pl_free(v->slot ? v->slot[k] : NULL);
		pl_free(v->step ? v->step[k] : NULL);
	}
	pl_free(v->slot);
	pl_free(v->step);
	pl_free(v->seen);
	pl_free(v->at);
	pl_free(v->pair);
}

static int number_slots(struct vote *v, struct pl_err *err)
{
	struct gb *b = v->b;
	int rc;

	if ((rc = pl_alloc(&v->slot, b->g->n_res, sizeof(*v->slot), err)) < 0 ||
	    (rc = pl_alloc(&v->step, b->g->n_res, sizeof(*v->step), err)) < 0)
		return rc;
	for (uint32_t k = 0; k < b->g->n_res; k++) {
		const struct resinfo *ri = &b->ri[k];
		uint32_t place = 0, most = 0;

		if ((rc = pl_alloc(&v->slot[k], ri->n, sizeof(**v->slot), err)) < 0 ||
		    (rc = pl_alloc(&v->step[k], ri->n, sizeof(**v->step), err)) < 0)
			return rc;
		for (uint32_t i = 0; i < ri->n; i++) {
			v->step[k][i] = step_of(b, ri, i);
			place = i && v->step[k][i] == v->step[k][i - 1] ? place + 1 : 0;
			v->slot[k][i] = v->n_slots + place;
			most = place + 1 > most ? place + 1 : most;
		}
		v->n_slots += most;
	}
	if ((rc = pl_alloc(&v->seen, v->n_slots, sizeof(*v->seen), err)) < 0)
		return rc;
	return pl_alloc(&v->at, v->n_slots, sizeof(*v->at), err);
}

static int propose(struct vote *v, const struct rankinfo *rk, uint32_t self, uint32_t index,
		   struct pl_err *err)
{
	struct gb *b = v->b;
	struct op *op = &b->ri[self].op[index];
	struct cand c[64];
	size_t n = 0;
	pl_ns implied = INT64_MIN; /* what ended before this precedes a chosen predecessor */
	int rc;

	for (size_t k = 0; k < rk->n_res && n < PL_LEN(c); k++) {
		struct op *p = rk->res[k] == self ? NULL : last_ended(&b->ri[rk->res[k]], op);

		if (p && v->step[rk->res[k]][p - b->ri[rk->res[k]].op] == v->step[self][index])
			c[n++] = (struct cand){ p, p->end, rk->res[k] };
	}
	for (size_t left = n; left; c[n] = c[--left]) {
		n = 0;
		for (size_t i = 1; i < left; i++)
			if (c[i].end > c[n].end)
				n = i;
		if (c[n].end <= implied)
			break;
		rc = pl_grow(&v->pair, &v->cap_pairs, v->n_pairs + 1, sizeof(*v->pair), err);
		if (rc < 0)
			return rc;
		v->pair[v->n_pairs++] =
			(struct pair){ v->slot[self][index],
				       v->slot[c[n].res][c[n].op - b->ri[c[n].res].op] };
		implied = pl_max_i64(implied, c[n].op->start);
	}
	v->seen[v->slot[self][index]]++;
	return 0;
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

static int tie(struct gb *b, struct op *p, struct op *op, struct pl_err *err)
{
	pl_ns over = p->end - op->start;

	if (over > slack_of(p))
		return 0; /* not in this step */
	if (over > 0) {	  /* the clocks' jitter */
		b->node[p->last].dur -= pl_min_i64(over, b->node[p->last].dur);
		p->end = op->start;
	}
	b->g->inferred_waits++;
	return pl_derive_edge(b, p->last, op->node, PL_E_WAIT | PL_E_INFERRED, err);
}

/* One step: note which operation is at which place, tie the pairs, forget again. */
static int tie_step(struct vote *v, const uint32_t *from, const uint32_t *to, struct pl_err *err)
{
	struct gb *b = v->b;
	int rc;

	for (uint32_t k = 0; k < b->g->n_res; k++)
		for (uint32_t i = from[k]; i < to[k]; i++)
			if (b->ri[k].op[i].node != PL_NONE)
				v->at[v->slot[k][i]] = &b->ri[k].op[i];
	for (size_t i = 0; i < v->n_pairs; i++) {
		struct op *dst = v->at[v->pair[i].dst], *src = v->at[v->pair[i].src];

		if (dst && src && (rc = tie(b, src, dst, err)) < 0)
			return rc;
	}
	for (uint32_t k = 0; k < b->g->n_res; k++)
		for (uint32_t i = from[k]; i < to[k]; i++)
			v->at[v->slot[k][i]] = NULL;
	return 0;
}

static int tie_steps(struct vote *v, struct pl_err *err)
{
	struct gb *b = v->b;
	uint32_t *from = NULL, *to = NULL;
	int rc;

	PL_TRY(pl_alloc(&from, b->g->n_res, sizeof(*from), err));
	PL_TRY(pl_alloc(&to, b->g->n_res, sizeof(*to), err));
	for (int32_t s = GB_BEFORE; s <= (int32_t)b->n_steps; s++) {
		for (uint32_t k = 0; k < b->g->n_res; k++) {
			bool table = b->rank[b->ri[k].rank_index].table;

			for (to[k] = from[k];
			     table && to[k] < b->ri[k].n && v->step[k][to[k]] <= s;)
				to[k]++;
		}
		PL_TRY(tie_step(v, from, to, err));
		memcpy(from, to, b->g->n_res * sizeof(*from));
	}
out:
	pl_free(from);
	pl_free(to);
	return rc;
}

static int table_edges(struct gb *b, struct pl_err *err)
{
	struct vote v = { .b = b };
	int rc;

	PL_TRY(number_slots(&v, err));
	for (uint32_t k = 0; k < b->g->n_res; k++) {
		const struct rankinfo *rk = &b->rank[b->ri[k].rank_index];

		for (uint32_t i = 0; rk->table && i < b->ri[k].n; i++)
			if (b->ri[k].op[i].node != PL_NONE)
				PL_TRY(propose(&v, rk, k, i, err));
	}
	count_votes(&v);
	PL_TRY(tie_steps(&v, err));
out:
	vote_fini(&v);
	return rc;
}

/* ---- steps of a table
 * --------------------------------------------------------------------------------- */

/* Begin of step s: after the last operation of every track in earlier steps, before the first of
 * each. at[]: by resource, the first operation that is not in an earlier step; moved on. */
static int begin_step(struct gb *b, int32_t s, pl_ns start, uint32_t *at, struct pl_err *err)
{
	struct node n = { .start = start,
			  .type = PL_N_RENDEZVOUS,
			  .role = PL_RO_MARK,
			  .kind = PL_K_STEP,
			  .flags = PL_NF_STEP_BEGIN,
			  .res = PL_NONE,
			  .name = b->s_begin,
			  .step = s };
	uint32_t id;
	int rc;

	if ((rc = pl_derive_node(b, &n, &id, err)) < 0)
		return rc;
	for (uint32_t k = 0; k < b->g->n_res; k++) {
		struct resinfo *ri = &b->ri[k];
		struct op *last = NULL;
		uint32_t i = at[k];

		for (; i < ri->n && step_of(b, ri, i) < s; i++)
			if (ri->op[i].node != PL_NONE)
				last = &ri->op[i];
		at[k] = i;
		while (i < ri->n && ri->op[i].node == PL_NONE && step_of(b, ri, i) == s)
			i++;
		if (i < ri->n && step_of(b, ri, i) == s &&
		    (rc = pl_derive_edge(b, id, ri->op[i].node, PL_E_SEQ, err)) < 0)
			return rc;
		if (last && last->end <= start &&
		    (rc = pl_derive_edge(b, last->last, id, PL_E_SEQ, err)) < 0)
			return rc;
	}
	return 0;
}

static int begin_steps(struct gb *b, struct pl_err *err)
{
	uint32_t *at = NULL;
	pl_ns *start = NULL; /* by step: the earliest on any rank */
	int rc;

	PL_TRY(pl_alloc(&at, b->g->n_res, sizeof(*at), err));
	PL_TRY(pl_alloc(&start, b->n_steps, sizeof(*start), err));
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
			PL_TRY(begin_step(b, (int32_t)s, start[s], at, err));
out:
	pl_free(at);
	pl_free(start);
	return rc;
}

int pl_derive_tables(struct gb *b, struct pl_err *err)
{
	bool all = true, any = false;
	int rc = 0;

	for (size_t r = 0; r < b->n_ranks; r++) {
		struct rankinfo *rk = &b->rank[r];

		rk->table = rk->n_by_call == 0 && rk->has_device;
		for (size_t k = 0; k < rk->n_res; k++)
			rk->table &= !b->ri[rk->res[k]].thread || b->ri[rk->res[k]].node1 == 0 ||
				     b->ri[rk->res[k]].service;
		all &= rk->table;
		any |= rk->table;
	}
	if (any && (rc = table_edges(b, err)) < 0)
		return rc;
	return all && !b->g->stepless ? begin_steps(b, err) : 0;
}
