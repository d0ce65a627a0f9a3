/*
 * The starts of the nodes of an edit: by incremental update, and by a full pass.
 *
 * A node is evaluated when a predecessor changed, the one with the lowest label first. Labels are
 * the topological order in which the graph was taken apart, so a node is mostly evaluated once;
 * where changes went against it, again. Whatever the order, the result is the same.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/edit_internal.h"

/* ---- the heap -------------------------------------------------------------------------------- */

static bool before(const struct pl_edit *e, uint32_t a, uint32_t b)
{
	uint64_t x = e->node[a].label, y = e->node[b].label;

	return x != y ? x < y : a < b;
}

int pl_edit_touch(struct pl_edit *e, uint32_t node, struct pl_err *err)
{
	struct pl_esched *s = e->sched;
	size_t i;
	int rc;

	if (e->node[node].queued)
		return 0;
	rc = pl_grow(&s->heap, &s->cap, s->n + 1, sizeof(*s->heap), err);
	if (rc < 0)
		return rc;
	e->node[node].queued = true;
	for (i = s->n++; i && before(e, node, s->heap[(i - 1) / 2]); i = (i - 1) / 2)
		s->heap[i] = s->heap[(i - 1) / 2];
	s->heap[i] = node;
	return 0;
}

static uint32_t take(struct pl_edit *e)
{
	struct pl_esched *s = e->sched;
	uint32_t top = s->heap[0], last = s->heap[--s->n];
	size_t i = 0, c;

	for (; (c = 2 * i + 1) < s->n; i = c) {
		if (c + 1 < s->n && before(e, s->heap[c + 1], s->heap[c]))
			c++;
		if (!before(e, s->heap[c], last))
			break;
		s->heap[i] = s->heap[c];
	}
	if (s->n)
		s->heap[i] = last;
	return top;
}

/* What undone additions left in the heap goes, and labels of reused numbers differ: made anew. */
static void clean_heap(struct pl_edit *e)
{
	struct pl_esched *s = e->sched;
	size_t n = s->n, kept = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t node = s->heap[i];

		if (node >= e->n_nodes || !e->node[node].queued)
			continue; /* undone, or the second of two */
		e->node[node].queued = false;
		if (!e->node[node].dead)
			s->heap[kept++] = node;
	}
	s->n = 0;
	for (size_t i = 0; i < kept; i++) {
		uint32_t node = s->heap[i];
		size_t k;

		e->node[node].queued = true;
		for (k = s->n++; k && before(e, node, s->heap[(k - 1) / 2]); k = (k - 1) / 2)
			s->heap[k] = s->heap[(k - 1) / 2];
		s->heap[k] = node;
	}
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* When the edge lets its target start. */
static inline pl_ns edge_time(const struct pl_edit *e, const struct pl_eedge *x)
{
	const struct pl_enode *s = &e->node[x->src];

	return s->start + (pl_edit_from_start(x->type) ? 0 : s->dur) + x->w;
}

/* The arrival of place k in time. It does not decrease when an arrival is later, so that starts
 * still have a least solution. O(k x arrivals), with a small k. */
static pl_ns kth_arrival(const struct pl_edit *e, const struct pl_enode *n)
{
	pl_ns t = INT64_MIN;

	for (uint32_t have = 0; have < n->k;) {
		pl_ns next = INT64_MAX;
		uint32_t same = 0;

		for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next) {
			pl_ns at = edge_time(e, &e->edge[x]);

			if ((have && at <= t) || at > next)
				continue;
			same = at == next ? same + 1 : 1;
			next = at;
		}
		if (!same) /* fewer arrivals are left: all of them */
			break;
		have += same;
		t = next;
	}
	return t;
}

static pl_ns start_of(const struct pl_edit *e, uint32_t node)
{
	const struct pl_enode *n = &e->node[node];
	pl_ns t = n->fixed;

	if (n->k)
		t = pl_max_i64(t, kth_arrival(e, n));
	for (uint32_t x = n->k ? PL_NONE : n->in; x != PL_NONE; x = e->edge[x].in_next)
		t = pl_max_i64(t, edge_time(e, &e->edge[x]));
	return t == INT64_MIN ? n->start : t;
}

static int no_end(struct pl_edit *e, struct pl_err *err)
{
	int rc = pl_edit_settle_full(e, err);

	return rc < 0 ? rc : 0;
}

int pl_edit_settle(struct pl_edit *e, struct pl_err *err)
{
	struct pl_esched *s = e->sched;
	uint64_t most = e->settled + 16 * (uint64_t)e->n_nodes + 1000;
	int rc;

	clean_heap(e);
	for (size_t i = 0; i < s->n; i++)
		if ((rc = pl_edit_log(e, EU_SEED, s->heap[i], 0, err)) < 0)
			return rc;
	while (s->n) {
		uint32_t node = take(e);
		struct pl_enode *n = &e->node[node];
		pl_ns t = start_of(e, node);

		n->queued = false;
		if (e->settled++ > most)
			return no_end(e, err);
		if (t == n->start)
			continue;
		if ((rc = pl_edit_log(e, EU_START, node, n->start, err)) < 0)
			return rc;
		n->start = t;
		for (uint32_t x = n->out; x != PL_NONE; x = e->edge[x].out_next)
			if ((rc = pl_edit_touch(e, e->edge[x].dst, err)) < 0)
				return rc;
	}
	return 0;
}

/* Kahn's algorithm; *n is less than there are live nodes if some lie on a cycle. */
static int order_of(const struct pl_edit *e, uint32_t **order, uint32_t **left, size_t *n,
		    struct pl_err *err)
{
	uint32_t *v, *count;
	size_t done = 0, end = 0;
	int rc;

	*order = *left = NULL;
	if ((rc = pl_alloc(order, e->n_nodes, sizeof(**order), err)) < 0 ||
	    (rc = pl_alloc(left, e->n_nodes, sizeof(**left), err)) < 0)
		return rc;
	v = *order;
	count = *left;
	for (size_t i = 0; i < e->n_nodes; i++)
		for (uint32_t x = e->node[i].in; x != PL_NONE; x = e->edge[x].in_next)
			count[i]++;
	for (uint32_t i = 0; i < e->n_nodes; i++)
		if (!e->node[i].dead && !count[i])
			v[end++] = i;
	for (; done < end; done++)
		for (uint32_t x = e->node[v[done]].out; x != PL_NONE; x = e->edge[x].out_next)
			if (!--count[e->edge[x].dst])
				v[end++] = e->edge[x].dst;
	*n = end;
	return 0;
}

static int report_cycle(const struct pl_edit *e, const uint32_t *left, struct pl_err *err)
{
	uint32_t n = 0;

	while (n < e->n_nodes && (e->node[n].dead || !left[n]))
		n++;
	/* onto the cycle: as many steps back as there are nodes */
	for (size_t k = 0; k < e->n_nodes; k++)
		for (uint32_t x = e->node[n].in; x != PL_NONE; x = e->edge[x].in_next)
			if (left[e->edge[x].src]) {
				n = e->edge[x].src;
				break;
			}
	return pl_fail(err, PL_EDATA, "the changes make \"%s\" wait for itself",
		       pl_edit_name(e, e->node[n].name));
}

int pl_edit_order(const struct pl_edit *e, uint32_t **order, size_t *n, struct pl_err *err)
{
	uint32_t *left;
	size_t live = 0;
	int rc = order_of(e, order, &left, n, err);

	for (size_t i = 0; i < e->n_nodes; i++)
		live += !e->node[i].dead;
	if (rc == 0 && *n != live)
		rc = report_cycle(e, left, err);
	pl_free(left);
	if (rc < 0) {
		pl_free(*order);
		*order = NULL;
	}
	return rc;
}

int pl_edit_settle_full(struct pl_edit *e, struct pl_err *err)
{
	uint32_t *order;
	size_t n;
	int rc = pl_edit_order(e, &order, &n, err);

	if (rc < 0)
		return rc;
	clean_heap(e);
	for (size_t i = 0; i < e->sched->n; i++) {
		e->node[e->sched->heap[i]].queued = false;
		if (rc == 0)
			rc = pl_edit_log(e, EU_SEED, e->sched->heap[i], 0, err);
	}
	e->sched->n = 0;
	for (size_t i = 0; rc == 0 && i < n; i++) {
		pl_ns t = start_of(e, order[i]);

		if (t != e->node[order[i]].start &&
		    (rc = pl_edit_log(e, EU_START, order[i], e->node[order[i]].start, err)) == 0)
			e->node[order[i]].start = t;
	}
	pl_free(order);
	return rc;
}

/* ---- lengths --------------------------------------------------------------------------------- */

pl_ns pl_edit_step(const struct pl_edit *e, uint32_t step)
{
	const struct pl_estep *s = &e->step[step];
	pl_ns first = INT64_MAX;

	if (!s->reported)
		return INT64_MIN;
	for (size_t i = 0; i < s->n_begin; i++) {
		const struct pl_enode *n = &e->node[s->begin[i]];

		/* numbers of undone nodes are given again */
		if (s->begin[i] < e->n_nodes && !n->dead && n->flags & PL_NF_STEP_BEGIN &&
		    n->step == step)
			first = pl_min_i64(first, n->start);
	}
	return pl_sub_sat(e->node[s->sink].start, first);
}

double pl_edit_mean_step(const struct pl_edit *e)
{
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t i = 0; i < e->n_steps; i++) {
		if (e->step[i].reported) {
			sum += (double)pl_edit_step(e, i);
			n++;
		}
	}
	return n ? sum / n : 0;
}
