/*
 * Computation and communication slow one another down.
 *
 * Communication uses processors, multiprocessors or memory bandwidth that computation needs, and
 * computation uses those that communication needs. Therefore the durations of computation grow by a
 * factor while a transfer of the rank runs. The duration of the transfer grows by another factor
 * while a member computes. Published replayers leave this out (Daydream, dPRO), or multiply
 * overlapped time by one factor (Proteus). Here it follows the plan. lib/cost gives the factors.
 *
 * The starts of an edit follow from given durations, so an edit cannot hold durations that depend
 * on starts. Therefore these durations are found first, by the event core (rewrite_contention.c).
 *
 * First the time that computation lost in the recording is released: an operation that overlapped a
 * recorded transfer of gradients becomes shorter by the factor, and later gradients are ready
 * earlier by the same time. If rewrites have changed an operation, the time that it lost changes
 * with its duration: a shorter operation has lost less. If recorded transfers on several channels
 * of a rank overlap, only the first of them has slowed computation down.
 *
 * The time that computation loses between the issue of one bucket and the issue of the next is a
 * node on the computing resource, after the issue of the first bucket. The result depends only on
 * the plan and never on earlier simulations, so a candidate still changes few nodes. A factor of 1
 * changes nothing and adds nothing.
 *
 * Not modelled: computation after the last gradient, and delays between ranks outside the channel.
 */
#include <math.h>

#include "rewrite/rewrite_internal.h"

struct released { /* time that an operation gets back */
	uint32_t node, slot;
	pl_ns end, dur, back; /* as recorded */
	uint32_t to;	      /* at hand: the operation that has the time now */
	pl_ns now;	      /* at hand: the time that it gets back */
};
struct loss { /* of a slot until then */
	pl_ns end;
	double sum;
};
struct rw_slowdown {
	struct released *released;
	size_t n_released, cap_released;
	struct loss *loss; /* at hand */
};

void pl_rewrite_slowdown_fini(struct pl_rewriter *r)
{
	struct rw_slowdown *x = r->slowdown;

	if (!x)
		return;
	pl_free(x->released);
	pl_free(x->loss);
	pl_free(x);
	r->slowdown = NULL;
}

/* ---- time lost in the recording -------------------------------------------------------------- */

static struct pl_cost_comm comm_recorded(const struct pl_rewriter *r, const struct rw_comm *c)
{
	struct pl_cost_comm m = rw_comm_of(r->e, c->arrive, r->n_ranks);

	m.bytes = r->e->node[c->transfer].bytes;
	return m;
}

/* The time that an operation lost to the recorded communication of its slot. */
static pl_ns lost_in(const struct pl_rewriter *r, uint32_t slot, uint32_t node)
{
	const struct pl_edit *e = r->e;
	const struct rw_slot *s = &r->slot[slot];
	pl_ns from = e->node[node].start, end = pl_edit_end(e, node);
	double back = 0;

	for (uint32_t i = s->comm; i < s->comm + s->n_comms; i++) {
		const struct rw_comm *c = &r->comm[i];
		pl_ns lo = pl_max_i64(from, e->node[c->transfer].start);
		pl_ns hi = pl_min_i64(end, pl_edit_end(e, c->transfer));
		struct pl_cost_comm m;
		double slows = 1, slowed = 1;

		from = pl_max_i64(from, lo); /* transfers that overlap take it once */
		if (hi <= from)
			continue;
		m = comm_recorded(r, c);
		pl_cost_contention(r->c, &m, &slows, &slowed);
		back += (double)(hi - from) * (1 - 1 / slows);
		from = hi;
	}
	return (pl_ns)llround(back);
}

/* The slot of the node's rank in whose pass it lost time, and how much. PL_NONE: it lost none. */
static uint32_t slot_that_slowed(const struct pl_rewriter *r, uint32_t node, pl_ns *back)
{
	const struct pl_enode *n = &r->e->node[node];

	for (uint32_t p = r->step_pass[n->step]; p < r->step_pass[n->step + 1]; p++) {
		uint32_t slot = pl_rewrite_slot(r, p, r->e->res[n->res].rank);

		if (slot != PL_NONE && (*back = lost_in(r, slot, node)) > 0)
			return slot;
	}
	return PL_NONE;
}

static int find_topology(struct pl_rewriter *r, bool *computing, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct rw_slowdown *x = r->slowdown;

	for (uint32_t s = 0; s < r->n_slots; s++)
		for (uint32_t t = 0; t < r->n_tensors; t++) {
			uint32_t made = rw_producer(r, rw_place(r, s, t));

			if (made != PL_NONE && e->node[made].res != PL_NONE)
				computing[e->node[made].res] = true;
		}
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		uint32_t slot;
		pl_ns back;
		int rc;

		if (n->dead || n->type != PL_N_OP || n->dur <= 0 || n->res == PL_NONE ||
		    !computing[n->res] || (n->role != PL_RO_COMPUTE && n->role != PL_RO_HOST))
			continue;
		slot = slot_that_slowed(r, i, &back);
		if (slot == PL_NONE)
			continue;
		if ((rc = pl_grow(&x->released, &x->cap_released, x->n_released + 1,
				  sizeof(*x->released), err)) < 0)
			return rc;
		x->released[x->n_released++] = (struct released){ .node = i,
								  .slot = slot,
								  .end = pl_edit_end(e, i),
								  .dur = n->dur,
								  .back = back };
	}
	return 0;
}

PL_COMPARATOR(by_slot_end, struct released, slot, end, node);

/* Does any recorded communication cause a slow-down? */
static bool any_slower(const struct pl_rewriter *r)
{
	for (size_t i = 0; i < r->n_comms; i++) {
		struct pl_cost_comm m = comm_recorded(r, &r->comm[i]);
		double slows = 1, slowed = 1;

		pl_cost_contention(r->c, &m, &slows, &slowed);
		if (slows > 1 || slowed > 1)
			return true;
	}
	return false;
}

int pl_rewrite_slowdown_init(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_slowdown *x;
	bool *computing;
	int rc;

	if (!any_slower(r))
		return 0;
	if ((rc = pl_alloc(&r->slowdown, 1, sizeof(*r->slowdown), err)) < 0 ||
	    (rc = pl_alloc(&computing, r->e->g->n_res, sizeof(*computing), err)) < 0)
		return rc;
	x = r->slowdown;
	PL_TRY(find_topology(r, computing, err));
	PL_TRY(pl_alloc(&x->loss, x->n_released + 1, sizeof(*x->loss), err));
	pl_sort(x->released, x->n_released, sizeof(*x->released), by_slot_end);
out:
	pl_free(computing);
	return rc;
}

/* ---- operations as they are now -------------------------------------------------------------- */

/* The lost time of an operation as it is now. If a rewrite has made the operation shorter, the lost
 * time is shorter by the same share; if it is longer, the lost time stays. */
static void give_now(struct pl_rewriter *r)
{
	const struct rw_slowdown *x = r->slowdown;

	for (size_t i = 0; i < x->n_released; i++) {
		struct released *g = &x->released[i];
		double now = (double)r->e->node[g->node].dur;

		g->to = g->node;
		if (rw_fused(r, g->node)) {
			const struct rw_fused *f = &r->fused_log[r->fused[g->node] - 1];

			g->to = f->first;
			now = f->share * (double)r->e->node[f->first].dur;
		}
		g->now = rw_times(g->back, fmin(1, now / (double)g->dur));
	}
}

void pl_rewrite_slowdown_release(struct pl_rewriter *r)
{
	const struct rw_slowdown *x = r->slowdown;

	if (x)
		give_now(r);
	for (size_t i = 0; x && i < x->n_released; i++) {
		const struct released *g = &x->released[i];
		const struct pl_enode *n = &r->e->node[g->to];

		if (!n->dead)
			rw_set_dur(r, g->to, pl_max_i64(0, n->dur - g->now));
	}
}

/* The built buckets have released it already, and have delays for what is lost again. */
static void drop_losses(struct pl_rewriter *r)
{
	const struct rw_state *st = rw_now(r);

	for (uint32_t i = 0; i < st->n_built; i++)
		for (uint32_t s = 0; s < r->n_slots; s++)
			if (st->built[i]->at[s].lost != PL_NONE)
				rw_set_dur(r, st->built[i]->at[s].lost, 0);
}

int pl_rewrite_let_alone(struct pl_rewriter *r, bool sharded, struct pl_err *err)
{
	int rc = 0;

	if (sharded)
		rc = pl_rewrite_overlapped_alone(r, err);
	else if (rw_now(r)->over)
		drop_losses(r);
	else
		pl_rewrite_slowdown_release(r);
	return rw_result(r, rc, err);
}

/* The durations of nodes that the built buckets have put before t: lost time and issuing calls. */
static double put_before(const struct pl_rewriter *r, uint32_t slot, pl_ns t)
{
	const struct rw_state *st = rw_now(r);
	double sum = 0;

	for (uint32_t i = 0; i < st->n_built; i++) {
		const uint32_t node[] = { st->built[i]->at[slot].lost,
					  st->built[i]->at[slot].issue };

		for (size_t k = 0; k < PL_LEN(node); k++)
			if (node[k] != PL_NONE && pl_edit_end(r->e, node[k]) <= t)
				sum += (double)r->e->node[node[k]].dur;
	}
	return sum;
}

PL_COMPARATOR(by_end, struct loss, end, sum);

/* The time that operations released[from .. to) of the slot have lost, in the settled edit. */
static void sum_losses(const struct pl_rewriter *r, size_t from, size_t to)
{
	const struct rw_slowdown *x = r->slowdown;
	double sum = 0;

	for (size_t i = from; i < to; i++)
		x->loss[i - from] = (struct loss){ pl_edit_end(r->e, x->released[i].to),
						   (double)x->released[i].now };
	pl_sort(x->loss, to - from, sizeof(*x->loss), by_end);
	for (size_t i = 0; i < to - from; i++)
		x->loss[i].sum = sum += x->loss[i].sum;
}

/* When it is t; n losses are summed. */
static double lost_until(const struct pl_rewriter *r, uint32_t slot, size_t n, pl_ns t)
{
	const struct loss *v = r->slowdown->loss;
	size_t i = 0;

	if (rw_now(r)->over) /* released, and perhaps lost again */
		return put_before(r, slot, t);
	PL_LOWER_BOUND(i, n, v[i].end <= t);
	return i ? v[i - 1].sum : 0;
}

static size_t end_of_slot(const struct rw_slowdown *x, size_t from, uint32_t slot)
{
	while (from < x->n_released && x->released[from].slot == slot)
		from++;
	return from;
}

pl_ns pl_rewrite_slowdown_lost(struct pl_rewriter *r, uint32_t step, int32_t rank, pl_ns until)
{
	const struct rw_slowdown *x = r->slowdown;
	uint32_t slot = pl_rewrite_slot(r, r->step_pass[step], rank);
	size_t from = 0, to;

	if (!x || slot == PL_NONE)
		return 0;
	give_now(r);
	while (from < x->n_released && x->released[from].slot < slot)
		from++;
	to = end_of_slot(x, from, slot);
	sum_losses(r, from, to);
	return (pl_ns)llround(lost_until(r, slot, to - from, until));
}

int pl_rewrite_slowdown_ready(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_state *st = rw_now(r);
	struct rw_array *b;
	size_t from = 0, to;

	if (!r->slowdown || !st->ops_changed)
		return 0;
	PL_CHECK(pl_sim_settle(r->e, err));
	PL_CHECK(pl_rewrite_array_new((size_t)r->n_slots * r->n_tensors, &b, err));
	give_now(r);
	for (uint32_t s = 0; s < r->n_slots; s++, from = to) {
		to = end_of_slot(r->slowdown, from, s);
		sum_losses(r, from, to);
		for (uint32_t t = 0; t < r->n_tensors; t++) {
			double *ns = &b->v[(size_t)s * r->n_tensors + t];
			pl_ns ready = rw_ready_now(r, s, t);

			*ns = -INFINITY;
			if (ready != INT64_MIN)
				*ns = (double)ready - lost_until(r, s, to - from, ready);
		}
	}
	pl_rewrite_array_unref(st->ready_alone);
	st->ready_alone = b;
	st->ops_changed = false;
	return 0;
}

double pl_rewrite_slowdown_ready_alone(const struct pl_rewriter *r, uint32_t set, uint32_t slot)
{
	const double *ns = rw_now(r)->ready_alone->v + (size_t)slot * r->n_tensors;
	double last = -INFINITY;

	for (uint32_t k = r->set_first[set]; k < r->set_first[set + 1]; k++)
		last = fmax(last, ns[r->set_member[k]]);
	return last;
}

static pl_ns when_alone(const struct pl_rewriter *r, uint32_t slot, uint32_t tensor)
{
	double ns = rw_now(r)->ready_alone->v[(size_t)slot * r->n_tensors + tensor];

	return isfinite(ns) ? (pl_ns)llround(ns) : INT64_MIN;
}

pl_ns pl_rewrite_ready_alone(const struct pl_rewriter *r, uint32_t tensor)
{
	return rw_now(r)->ready_alone ? pl_rewrite_mean_ready(r, tensor, when_alone)
				      : pl_rewrite_ready(r, tensor);
}
