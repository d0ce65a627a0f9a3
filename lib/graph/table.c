/*
 * Ranks that have operations but no host threads: operation tables.
 *
 * Nothing says what an operation waited for, except that it did not start earlier. For every other
 * track of the rank, the last operation that had ended when it began is taken as a predecessor,
 * unless that follows already from a later one; such edges are inferred. Steps of a table were laid
 * one after the other, so a step begins when all ranks have ended the one before.
 */
#include <string.h>

#include "graph/internal.h"

#define TABLE_SLACK_NS 50000 /* a start may precede the end it waited for by the clocks' jitter */

struct cand {
	struct op *op;
	pl_ns end;
};

/* Last operation of the track that started before `op` and had ended (nearly) when it started. */
static struct op *last_ended(struct resinfo *ri, const struct op *op)
{
	uint32_t lo = 0, hi = ri->n;

	while (lo < hi) { /* first that does not start before op */
		uint32_t mid = lo + (hi - lo) / 2;

		if (ri->op[mid].start < op->start)
			lo = mid + 1;
		else
			hi = mid;
	}
	for (uint32_t i = lo; i-- > 0 && lo - i < 64;) {
		pl_ns slack =
			pl_min_i64(TABLE_SLACK_NS, (ri->op[i].end - ri->op[i].start) / 20 + 2000);

		if (ri->op[i].node != PL_NONE && ri->op[i].end <= op->start + slack)
			return &ri->op[i];
	}
	return NULL;
}

static int predecessors(struct gb *b, const struct rankinfo *rk, uint32_t self, struct op *op,
			struct pl_err *err)
{
	struct cand c[64];
	size_t n = 0;
	pl_ns implied = INT64_MIN; /* what ended before this precedes a chosen predecessor */
	int rc;

	for (size_t k = 0; k < rk->n_res && n < PL_LEN(c); k++) {
		struct op *p = rk->res[k] == self ? NULL : last_ended(&b->ri[rk->res[k]], op);

		if (p)
			c[n++] = (struct cand){ p, p->end };
	}
	for (size_t left = n; left;) {
		size_t best = 0;

		for (size_t i = 1; i < left; i++)
			if (c[i].end > c[best].end)
				best = i;
		if (c[best].end <= implied)
			break;
		if (c[best].end > op->start) { /* within the slack: the clocks' jitter */
			pl_ns over = c[best].end - op->start;
			struct node *last = &b->node[c[best].op->last];

			last->dur -= pl_min_i64(over, last->dur);
			c[best].op->end = op->start;
		}
		rc = gb_edge(b, c[best].op->last, op->node, PL_E_WAIT | PL_E_INFERRED, err);
		if (rc < 0)
			return rc;
		b->g->inferred_waits++;
		implied = pl_max_i64(implied, c[best].op->start);
		c[best] = c[--left];
	}
	return 0;
}

/* ---- steps of a table
 * --------------------------------------------------------------------------------- */

/* The window of the rank in which t lies, or -1. */
static int32_t window_of(const struct rankinfo *rk, pl_ns t)
{
	for (size_t i = rk->n_win; i-- > 0;)
		if (rk->win[i].start <= t)
			return rk->win[i].step;
	return -1;
}

/* Begin of step s: after the last operation of every track in earlier steps, before the first of
 * each. at[]: by resource, the first operation that is not in an earlier step; moved on. */
static int begin_step(struct gb *b, int32_t s, uint32_t *at, struct pl_err *err)
{
	struct node n = { .start = INT64_MAX,
			  .type = PL_N_RENDEZVOUS,
			  .role = PL_RO_MARK,
			  .kind = PL_K_STEP,
			  .flags = PL_NF_STEP_BEGIN,
			  .res = PL_NONE,
			  .name = b->s_begin,
			  .group = PL_NONE,
			  .step = s,
			  .bytes = -1,
			  .mb = -1,
			  .chunk = -1,
			  .layer = -1,
			  .peer = -1 };
	uint32_t id;
	int rc;

	for (size_t r = 0; r < b->n_ranks; r++)
		for (size_t i = 0; i < b->rank[r].n_win; i++)
			if (b->rank[r].win[i].step == s)
				n.start = pl_min_i64(n.start, b->rank[r].win[i].start);
	if ((rc = gb_node(b, &n, &id, err)) < 0)
		return rc;
	for (uint32_t k = 0; k < b->g->n_res; k++) {
		struct resinfo *ri = &b->ri[k];
		const struct rankinfo *rk = &b->rank[ri->rank_index];
		struct op *last = NULL;
		uint32_t i = at[k];

		for (; i < ri->n && window_of(rk, ri->op[i].start) < s; i++)
			if (ri->op[i].node != PL_NONE)
				last = &ri->op[i];
		at[k] = i;
		while (i < ri->n && ri->op[i].node == PL_NONE)
			i++;
		if (i < ri->n && window_of(rk, ri->op[i].start) == s &&
		    (rc = gb_edge(b, id, ri->op[i].node, PL_E_SEQ, err)) < 0)
			return rc;
		if (last && last->end <= n.start &&
		    (rc = gb_edge(b, last->last, id, PL_E_SEQ, err)) < 0)
			return rc;
	}
	return 0;
}

static int begin_steps(struct gb *b, struct pl_err *err)
{
	uint32_t *at;
	int rc = pl_alloc(&at, b->g->n_res, sizeof(*at), err);

	if (rc < 0)
		return rc;
	for (size_t s = 0; rc == 0 && s < b->n_steps; s++)
		rc = begin_step(b, (int32_t)s, at, err);
	pl_free(at);
	return rc;
}

int gb_tables(struct gb *b, struct pl_err *err)
{
	bool all = true;
	int rc;

	for (size_t r = 0; r < b->n_ranks; r++) {
		struct rankinfo *rk = &b->rank[r];

		rk->table = true;
		for (size_t k = 0; k < rk->n_res; k++)
			rk->table &= !b->ri[rk->res[k]].thread || b->ri[rk->res[k]].node1 == 0;
		rk->table &= rk->n_by_call == 0 && rk->has_device;
		all &= rk->table;
	}
	for (uint32_t k = 0; k < b->g->n_res; k++) {
		struct resinfo *ri = &b->ri[k];

		for (uint32_t i = 0; b->rank[ri->rank_index].table && i < ri->n; i++)
			if (ri->op[i].node != PL_NONE &&
			    (rc = predecessors(b, &b->rank[ri->rank_index], k, &ri->op[i], err)) <
				    0)
				return rc;
	}
	return all && !b->g->stepless ? begin_steps(b, err) : 0;
}
