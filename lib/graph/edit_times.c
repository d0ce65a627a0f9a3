/*
 * The starts of the nodes of an edit: by incremental update, and by a full pass.
 *
 * A node is evaluated when a predecessor changed, the node with the lowest label first. Labels are
 * the topological order in which the edit was built, so most nodes are evaluated once, and again
 * only if changes contradict this order. The result does not depend on the order.
 */
#include <stdlib.h>

#include "graph/edit_internal.h"

/* ---- the nodes to evaluate ------------------------------------------------------------------- */

static bool before(struct pl_etodo a, struct pl_etodo b)
{
	return a.label != b.label ? a.label < b.label : a.node < b.node;
}

/* Keep one entry for each queued node. */
static void compact(struct pl_edit *e)
{
	struct pl_esched *s = e->sched;
	size_t kept = 0;

	for (size_t i = 0; i < s->n; i++) {
		uint32_t node = s->todo[i].node;

		if (node >= e->n_nodes || !e->node[node].queued)
			continue; /* undone, or a second entry of the node */
		e->node[node].queued = false;
		if (!e->node[node].dead)
			s->todo[kept++] = (struct pl_etodo){ e->node[node].label, node };
	}
	s->n = kept;
	for (size_t i = 0; i < kept; i++)
		e->node[s->todo[i].node].queued = true;
}

static int append(struct pl_edit *e, uint32_t node, struct pl_err *err)
{
	struct pl_esched *s = e->sched;
	struct pl_etodo x = { e->node[node].label, node };

	PL_CHECK(pl_append(&s->todo, &s->n, &s->cap, &x, sizeof(x), err));
	e->node[node].queued = true;
	return 0;
}

int pl_edit_touch(struct pl_edit *e, uint32_t node, struct pl_err *err)
{
	if (e->node[node].queued)
		return 0;
	PL_CHECK(pl_edit_log(e, EU_TOUCH, node, 0, err));
	return append(e, node, err);
}

void pl_edit_untouch(struct pl_edit *e, uint32_t node)
{
	struct pl_esched *s = e->sched;

	e->node[node].queued = false;
	if (s->n && s->todo[s->n - 1].node == node)
		s->n--;
}

/* Queue a node again without allocating memory, because undo must not fail. The list had room for
 * all queued nodes when the settling began, and compact() removes the other entries. */
void pl_edit_touch_again(struct pl_edit *e, uint32_t node)
{
	struct pl_esched *s = e->sched;

	if (e->node[node].queued)
		return;
	if (s->n == s->cap)
		compact(e);
	e->node[node].queued = true;
	s->todo[s->n++] = (struct pl_etodo){ e->node[node].label, node };
}

/* Insert the last entry into the heap of the entries before it. */
static void sift_up(struct pl_esched *s)
{
	struct pl_etodo x = s->todo[s->n - 1];
	size_t i;

	for (i = s->n - 1; i && before(x, s->todo[(i - 1) / 2]); i = (i - 1) / 2)
		s->todo[i] = s->todo[(i - 1) / 2];
	s->todo[i] = x;
}

static uint32_t take(struct pl_esched *s)
{
	uint32_t top = s->todo[0].node;
	struct pl_etodo last = s->todo[--s->n];
	size_t i = 0, c;

	for (; (c = 2 * i + 1) < s->n; i = c) {
		if (c + 1 < s->n && before(s->todo[c + 1], s->todo[c]))
			c++;
		if (!before(s->todo[c], last))
			break;
		s->todo[i] = s->todo[c];
	}
	if (s->n)
		s->todo[i] = last;
	return top;
}

/* Log the nodes with which a settling begins. */
static int log_seeds(struct pl_edit *e, struct pl_err *err)
{
	compact(e);
	for (size_t i = 0; i < e->sched->n; i++)
		PL_CHECK(pl_edit_log(e, EU_SEED, e->sched->todo[i].node, 0, err));
	return 0;
}

/* ---- evaluation ------------------------------------------------------------------------------ */

/* The arrival of place k in time. It does not decrease when an arrival is later, so that starts
 * still have a least solution. O(k x arrivals), with a small k. */
static pl_ns kth_arrival(const struct pl_edit *e, const struct pl_enode *n)
{
	pl_ns t = INT64_MIN;

	for (uint32_t have = 0; have < n->k;) {
		pl_ns next = INT64_MAX;
		uint32_t same = 0;

		for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next) {
			pl_ns at = pl_edit_edge_time(e, &e->edge[x]);

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
		t = pl_max_i64(t, pl_edit_edge_time(e, &e->edge[x]));
	return t == INT64_MIN ? n->start : t;
}

static int set_start(struct pl_edit *e, uint32_t node, pl_ns t, struct pl_err *err)
{
	if (t == e->node[node].start)
		return 0;
	PL_CHECK(pl_edit_log(e, EU_START, node, e->node[node].start, err));
	e->node[node].start = t;
	return 0;
}

int pl_edit_settle(struct pl_edit *e, struct pl_err *err)
{
	struct pl_esched *s = e->sched;
	uint64_t most = e->settled + 16 * (uint64_t)e->n_nodes + 1000;
	size_t seeds;

	PL_CHECK(log_seeds(e, err));
	seeds = s->n;
	for (s->n = 0; s->n < seeds;) {
		s->n++;
		sift_up(s);
	}
	while (s->n) {
		uint32_t node = take(s);
		struct pl_enode *n = &e->node[node];
		pl_ns t = start_of(e, node);

		n->queued = false;
		if (e->settled++ > most)
			return pl_edit_settle_full(e, err);
		if (t == n->start)
			continue;
		PL_CHECK(set_start(e, node, t, err));
		for (uint32_t x = n->out; x != PL_NONE; x = e->edge[x].out_next) {
			if (e->node[e->edge[x].dst].queued)
				continue;
			PL_CHECK(append(e, e->edge[x].dst, err));
			sift_up(s);
		}
	}
	return 0;
}

/* Depth-first search against the edges, from the nodes in order of their numbers. Most nodes come
 * after their predecessors, so the search is nearly one sequential pass through memory. */
struct search {
	const struct pl_edit *e;
	uint8_t *state; /* by node: enum search_state */
	uint32_t *stack;
	size_t n, cap;
};
enum search_state {
	S_NEW,
	S_OPEN, /* waits for its predecessors: on the path from the node where the search began */
	S_DONE
};

/* Push the predecessors of the node that have not been visited. */
static int open_node(struct search *s, uint32_t node, struct pl_err *err)
{
	const struct pl_edit *e = s->e;

	s->state[node] = S_OPEN;
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next) {
		uint32_t src = e->edge[x].src;

		if (s->state[src] == S_DONE)
			continue;
		if (s->state[src] == S_OPEN)
			return pl_fail(err, PL_EDATA, "the changes make \"%s\" wait for itself",
				       pl_edit_name(e, e->node[src].name));
		PL_CHECK(pl_append(&s->stack, &s->n, &s->cap, &src, sizeof(src), err));
	}
	return 0;
}

/* Visit the live nodes, each after its predecessors. Number them in `order`, or, if it is NULL, set
 * their starts. One function does both, because most of the time goes into reading memory. */
static int visit_all(const struct pl_edit *e, struct pl_edit *settle, uint32_t *order, size_t *n,
		     struct pl_err *err)
{
	struct search s = { .e = e };
	int rc;

	PL_TRY(pl_alloc(&s.state, e->n_nodes, sizeof(*s.state), err));
	PL_TRY(pl_grow(&s.stack, &s.cap, 1, sizeof(*s.stack), err));
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		s.stack[0] = i;
		s.n = !e->node[i].dead;
		while (s.n) {
			uint32_t node = s.stack[s.n - 1];
			size_t had = s.n;

			if (s.state[node] == S_NEW)
				PL_TRY(open_node(&s, node, err));
			if (s.n > had)
				continue;
			if (s.state[node] == S_OPEN && order)
				order[(*n)++] = node;
			else if (s.state[node] == S_OPEN)
				PL_TRY(set_start(settle, node, start_of(e, node), err));
			s.state[node] = S_DONE;
			s.n--;
		}
	}
out:
	pl_free(s.state);
	pl_free(s.stack);
	return rc;
}

int pl_edit_order(const struct pl_edit *e, uint32_t **order, size_t *n, struct pl_err *err)
{
	int rc = pl_alloc(order, e->n_nodes, sizeof(**order), err);

	*n = 0;
	if (rc == 0)
		rc = visit_all(e, NULL, *order, n, err);
	if (rc < 0) {
		pl_free(*order);
		*order = NULL;
	}
	return rc;
}

int pl_edit_clear_queue(struct pl_edit *e, struct pl_err *err)
{
	PL_CHECK(log_seeds(e, err));
	for (size_t i = 0; i < e->sched->n; i++)
		e->node[e->sched->todo[i].node].queued = false;
	e->sched->n = 0;
	return 0;
}

int pl_edit_settle_full(struct pl_edit *e, struct pl_err *err)
{
	PL_CHECK(pl_edit_clear_queue(e, err));
	return visit_all(e, e, NULL, NULL, err);
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

		if (!n->dead)
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
