/*
 * Computation and communication that slow one another down.
 *
 * What carries communication takes processors, multiprocessors or memory from the computation
 * beside it, and the other way round: durations of computation grow by a factor while a transfer
 * of its rank runs, that of the transfer grows while a member computes. Published replayers leave
 * this out (Daydream, dPRO), or give overlapped time one factor (Proteus); here it follows the
 * plan. The factors are the coster's.
 *
 * Durations that depend on starts have no place in an edit, whose starts are a least solution over
 * given durations. So they are settled before, by a small replay of each step that knows nothing
 * but when gradients are ready and the one channel that carries buckets in their order: between two
 * events (a gradient is ready, a transfer ends, computation ends) both proceed at constant rates.
 * From the recording each rank's computation is first given back what it lost: operations beside
 * recorded transfers of gradients become shorter by the factor, and what is ready later is ready
 * earlier by that much. Then the step is passed once, in order of issue; each bucket takes
 * O(ranks).
 *
 * The result is put into the edit as durations: of the transfers, and of what computation loses
 * between the issue of one bucket and that of the next, which stands on the computing resource
 * behind the issue of the first. It depends on the plan alone, never on what was simulated before,
 * and a candidate still changes few nodes. A factor of 1 changes nothing and adds nothing.
 *
 * What this leaves out: computation behind the last gradient, and delays that ranks hand on to one
 * another other than through the channel.
 */
#include <math.h>
#include <string.h>

#include "rewrite/edit_internal.h"
#include "rewrite/rewrite_internal.h"

struct given { /* back to an operation */
	uint32_t node, slot;
	pl_ns end, back;
};
struct window { /* of a transfer */
	double start, end, slows;
};
struct mover {		    /* a rank that computes, while the step is passed */
	double wall, done;  /* now, and the time at which it would be without what it loses */
	double all;	    /* done when its last gradient is ready */
	uint32_t at;	    /* window that is not over yet */
	struct rw_built *b; /* bucket that it issued last */
};
struct rw_beside {
	struct given *given;
	size_t n_given, cap_given;
	double *bare; /* [slot][tensor]: ready, had nothing been lost; -INFINITY: not there */
	struct window *window;
	struct mover *mover;
};

void rw_beside_fini(struct pl_rewriter *r)
{
	struct rw_beside *x = r->beside;

	if (!x)
		return;
	pl_free(x->given);
	pl_free(x->bare);
	pl_free(x->window);
	pl_free(x->mover);
	pl_free(x);
	r->beside = NULL;
}

/* ---- what was lost in the recording ---------------------------------------------------------- */

static struct pl_comm comm_recorded(const struct pl_rewriter *r, const struct rw_comm *c)
{
	const struct pl_enode *a = &r->e->node[c->arrive];
	const char *name = pl_edit_name(r->e, a->name);
	struct pl_comm m = { .kind = a->kind,
			     .coll = (uint8_t)pl_coll_find(name, strlen(name)),
			     .group = a->group,
			     .n = r->n_ranks,
			     .bytes = r->e->node[c->transfer].bytes };

	if (a->group < r->e->g->n_groups)
		m.n = r->e->g->group[a->group].n;
	return m;
}

/* Of an operation, beside the recorded communication of its slot. */
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
		struct pl_comm m;
		double slows = 1, slowed = 1;

		from = pl_max_i64(from, lo); /* transfers that overlap take it once */
		if (hi <= from)
			continue;
		m = comm_recorded(r, c);
		r->c->beside(r->c->arg, &m, &slows, &slowed);
		back += (double)(hi - from) * (1 - 1 / slows);
		from = hi;
	}
	return (pl_ns)llround(back);
}

static uint32_t rank_at(const struct pl_rewriter *r, int32_t rank)
{
	for (uint32_t i = 0; i < r->n_ranks; i++)
		if (r->rank[i] == rank)
			return i;
	return PL_NONE;
}

static int find_given(struct pl_rewriter *r, bool *computing, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct rw_beside *x = r->beside;

	for (uint32_t s = 0; s < r->n_slots; s++)
		for (uint32_t t = 0; t < r->n_tensors; t++) {
			uint32_t inst = r->inst[(size_t)s * r->n_tensors + t];

			if (inst != PL_NONE && e->tensor[inst].producer != PL_NONE &&
			    e->node[e->tensor[inst].producer].res != PL_NONE)
				computing[e->node[e->tensor[inst].producer].res] = true;
		}
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		uint32_t at, slot;
		pl_ns back;
		int rc;

		if (n->dead || n->type != PL_N_OP || n->dur <= 0 || n->res == PL_NONE ||
		    !computing[n->res] || (n->role != PL_RO_COMPUTE && n->role != PL_RO_HOST))
			continue;
		at = rank_at(r, e->g->res[n->res].rank);
		slot = n->step * r->n_ranks + at;
		if (at == PL_NONE || (back = lost_in(r, slot, i)) <= 0)
			continue;
		if ((rc = pl_grow(&x->given, &x->cap_given, x->n_given + 1, sizeof(*x->given),
				  err)) < 0)
			return rc;
		x->given[x->n_given++] = (struct given){ i, slot, pl_edit_end(e, i), back };
	}
	return 0;
}

static int by_slot_end(const void *pa, const void *pb)
{
	const struct given *a = pa, *b = pb;

	if (a->slot != b->slot)
		return a->slot < b->slot ? -1 : 1;
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	return a->node < b->node ? -1 : a->node > b->node;
}

static void find_bare(const struct pl_rewriter *r)
{
	const struct rw_beside *x = r->beside;
	size_t from = 0, to;

	for (uint32_t s = 0; s < r->n_slots; s++, from = to) {
		for (to = from; to < x->n_given && x->given[to].slot == s;)
			to++;
		for (uint32_t t = 0; t < r->n_tensors; t++) {
			pl_ns ready = rw_ready(r, s, t);
			double *bare = &x->bare[(size_t)s * r->n_tensors + t];

			*bare = ready == INT64_MIN ? -INFINITY : (double)ready;
			for (size_t i = from; i < to && x->given[i].end <= ready; i++)
				*bare -= (double)x->given[i].back;
		}
	}
}

/* Does anything slow anything down, of what was recorded? */
static bool any_slower(const struct pl_rewriter *r)
{
	for (size_t i = 0; r->c && r->c->beside && i < r->n_comms; i++) {
		struct pl_comm m = comm_recorded(r, &r->comm[i]);
		double slows = 1, slowed = 1;

		r->c->beside(r->c->arg, &m, &slows, &slowed);
		if (slows > 1 || slowed > 1)
			return true;
	}
	return false;
}

int rw_beside_init(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_beside *x;
	bool *computing;
	int rc;

	if (!any_slower(r))
		return 0;
	if ((rc = pl_alloc(&r->beside, 1, sizeof(*r->beside), err)) < 0 ||
	    (rc = pl_alloc(&computing, r->e->g->n_res, sizeof(*computing), err)) < 0)
		return rc;
	x = r->beside;
	PL_TRY(pl_alloc(&x->bare, (size_t)r->n_slots * r->n_tensors, sizeof(*x->bare), err));
	PL_TRY(pl_alloc(&x->window, r->n_tensors, sizeof(*x->window), err));
	PL_TRY(pl_alloc(&x->mover, r->n_ranks, sizeof(*x->mover), err));
	PL_TRY(find_given(r, computing, err));
	pl_sort(x->given, x->n_given, sizeof(*x->given), by_slot_end);
	find_bare(r);
out:
	pl_free(computing);
	return rc;
}

/* What a rewrite has shortened since keeps the share that it lost. */
int rw_beside_release(struct pl_rewriter *r, struct pl_err *err)
{
	const struct rw_beside *x = r->beside;
	int rc = 0;

	for (size_t i = 0; x && rc == 0 && i < x->n_given; i++) {
		const struct given *g = &x->given[i];
		const struct pl_enode *n = &r->e->node[g->node];

		if (!n->dead)
			rc = pl_edit_set_dur(r->e, g->node, pl_max_i64(0, n->dur - g->back), err);
	}
	return rc;
}

/* ---- one step, passed in order of issue ------------------------------------------------------ */

/* Let the rank compute until it has done `done`, or until `wall`. */
static void compute(struct mover *m, const struct window *w, uint32_t n, double done, double wall)
{
	while (m->done < done && m->wall < wall) {
		double span = fmin(done - m->done, wall - m->wall), slow = 1;

		while (m->at < n && w[m->at].end <= m->wall)
			m->at++;
		if (m->at < n && m->wall < w[m->at].start) {
			span = fmin(span, w[m->at].start - m->wall);
		} else if (m->at < n) {
			slow = w[m->at].slows;
			span = fmin((done - m->done) * slow, wall - m->wall);
			span = fmin(span, w[m->at].end - m->wall);
		}
		/* reached exactly, whatever the doubles say */
		m->done = span / slow >= done - m->done ? done : m->done + span / slow;
		m->wall += span;
	}
}

/* The bucket's last tensor on the rank, had nothing been lost; -INFINITY: it has no part. */
static double bare_of(const struct pl_rewriter *r, uint32_t set, uint32_t slot)
{
	const double *bare = &r->beside->bare[(size_t)slot * r->n_tensors];
	double last = -INFINITY;

	for (uint32_t k = r->set_first[set]; k < r->set_first[set + 1]; k++)
		last = fmax(last, bare[r->set_member[k]]);
	return last;
}

static int set_lost(struct pl_rewriter *r, const struct rw_built *b, uint32_t slot, double ns,
		    struct pl_err *err)
{
	uint32_t node = b ? b->lost[slot] : PL_NONE;
	pl_ns dur = (pl_ns)llround(fmax(ns, 0));

	if (node == PL_NONE || r->e->node[node].dur == dur)
		return 0;
	return pl_edit_set_dur(r->e, node, dur, err);
}

/* How long the transfer takes from `start` on, some of its ranks still computing. */
static double takes(const struct pl_rewriter *r, const struct rw_built *b, uint32_t first,
		    double start, uint32_t n_windows)
{
	const struct rw_beside *x = r->beside;
	double left = 0, alone = (double)b->alone;

	for (uint32_t i = 0; i < r->n_ranks; i++) {
		struct mover m = x->mover[i];

		if (b->arrive[first + i] == PL_NONE)
			continue;
		compute(&m, x->window, n_windows, m.all, start);
		left = fmax(left, (m.all - m.done) * b->slows);
	}
	if (alone * b->slowed <= left)
		return alone * b->slowed;
	return left + alone - left / b->slowed;
}

static int pass_bucket(struct pl_rewriter *r, uint32_t set, uint32_t step, uint32_t *n_windows,
		       struct pl_err *err)
{
	const struct rw_beside *x = r->beside;
	struct rw_built *b = rw_now(r)->built[set];
	double start = *n_windows ? x->window[*n_windows - 1].end : -INFINITY, ns;
	uint32_t first = step * r->n_ranks;
	int rc = 0;

	for (uint32_t i = 0; i < r->n_ranks; i++) {
		struct mover *m = &x->mover[i];
		double bare = bare_of(r, set, first + i), wall = m->wall, done = m->done;

		if (b->arrive[first + i] == PL_NONE || bare == -INFINITY)
			continue;
		if (done == -INFINITY) {
			m->done = m->wall = bare;
		} else {
			compute(m, x->window, *n_windows, bare, INFINITY);
			rc = set_lost(r, m->b, first + i, (m->wall - wall) - (m->done - done), err);
			if (rc < 0)
				return rc;
		}
		m->b = b;
		if (b->issue[first + i] != PL_NONE)
			m->wall += (double)b->issue_ns;
		start = fmax(start, m->wall);
	}
	if (start == -INFINITY)
		return 0;
	ns = takes(r, b, first, start, *n_windows);
	x->window[(*n_windows)++] = (struct window){ start, start + ns, b->slows };
	for (uint32_t i = first; i < first + r->n_ranks && rc == 0; i++)
		if (b->transfer[i] != PL_NONE && !b->kept[i] &&
		    r->e->node[b->transfer[i]].dur != (pl_ns)ceil(ns))
			rc = pl_edit_set_dur(r->e, b->transfer[i], (pl_ns)ceil(ns), err);
	return rc;
}

int rw_beside_settle(struct pl_rewriter *r, struct pl_err *err)
{
	const struct rw_beside *x = r->beside;
	int rc = 0;

	for (uint32_t k = 0; x && rc == 0 && k < r->e->n_steps; k++) {
		uint32_t n_windows = 0;

		for (uint32_t i = 0; i < r->n_ranks; i++) {
			const double *bare = &x->bare[((size_t)k * r->n_ranks + i) * r->n_tensors];
			struct mover m = { .wall = -INFINITY, .done = -INFINITY, .all = -INFINITY };

			for (uint32_t t = 0; t < r->n_tensors; t++)
				m.all = fmax(m.all, bare[t]);
			x->mover[i] = m;
		}
		for (uint32_t s = 0; rc == 0 && s < rw_now(r)->n_sets; s++)
			rc = pass_bucket(r, s, k, &n_windows, err);
		for (uint32_t i = 0; rc == 0 && i < r->n_ranks; i++)
			rc = set_lost(r, x->mover[i].b, k * r->n_ranks + i, 0, err);
	}
	return rc;
}
