/*
 * Time that moves from one cause to another, because ranks, sizes or instants compare.
 *
 * Slow link: the mean transfer of a group or pair is compared with the median of the others that
 * send as much among as many ranks, inside hosts or between hosts.
 *
 * Contention: operations of one name and work are compared with and without a transfer of their
 * rank at the same time; on devices by the factor of lib/cost, if it finds one.
 *
 * Ranks: a typical rank computes the median time. What the path computes more has one of three
 * causes. The rank that computes most is on the path with more computation than the others. If it
 * is the same in most steps it is slow, or its stage has more work. The rest is the path that goes
 * from rank to rank: a bubble if stages wait for messages of one another, else ranks that take
 * turns in being the slowest.
 */
#include <stdlib.h>

#include "cost/cost.h"
#include "report/verdict_internal.h"

#define MOST_PAIRS 4096	      /* of groups or pairs and sizes: all are compared with all */
#define SLOWER	   1.4	      /* a link whose transfers take so much longer is slow */
#define FEW	   3	      /* samples of a mean */
#define SAMPLED	   (1u << 17) /* nodes looked at, for operations of one name and work */
#define EXCESS	   0.05	      /* of the computation beside communication: less is noise */
#define MOST_STEPS 0.7	      /* of the steps: a rank that is the slowest in these is slow */
#define UNEQUAL	   0.03	      /* of the computation: ranks that differ less are equal */

/* ---- links ----------------------------------------------------------------------------------- */

/* Of others in the same class: the median of their means; 0: there are none. */
static double mean_elsewhere(const struct verdict_study *x, const struct verdict_transfers *t,
			     double *room)
{
	size_t n = 0;

	for (size_t i = 0; i < x->n_transfers; i++) {
		const struct verdict_transfers *o = &x->transfers[i];

		if (o->size == t->size && o->who != t->who && o->n >= FEW)
			room[n++] = (double)o->ns / (double)o->n;
	}
	return n ? pl_median_double(room, n) : 0;
}

/* How many times as long the transfers of `who` take as those of the same size elsewhere. */
static double slowness(const struct verdict_study *x, int64_t who, double *room)
{
	double own = 0, usual = 0;

	for (size_t i = 0; i < x->n_transfers; i++) {
		const struct verdict_transfers *t = &x->transfers[i];
		double mean;

		if (t->who != who || t->n < FEW || (mean = mean_elsewhere(x, t, room)) <= 0)
			continue;
		own += (double)t->ns;
		usual += mean * (double)t->n;
	}
	return usual > 0 ? own / usual : 0;
}

int pl_verdict_slow_link(struct verdict_study *x, struct pl_err *err)
{
	double *room, worst = SLOWER;

	x->slow_link = INT64_MIN;
	PL_CHECK(pl_alloc(&room, x->n_transfers, sizeof(*room), err));
	for (size_t i = 0; i < x->n_transfers && x->n_transfers < MOST_PAIRS; i++) {
		double v = slowness(x, x->transfers[i].who, room);

		if (v > worst) {
			worst = v;
			x->slow_link = x->transfers[i].who;
		}
	}
	pl_free(room);
	for (size_t i = 0; i < x->n_parts && x->slow_link != INT64_MIN; i++) {
		struct verdict_part *p = &x->part[i];

		if (p->cause == PL_VERDICT_EXPOSED && p->role == PL_RO_TRANSFER &&
		    pl_verdict_who(x->g, verdict_shape(x, p->step), p->node) == x->slow_link)
			verdict_move(x, p, PL_VERDICT_SLOW_LINK,
				     (pl_ns)((double)p->left * (1 - 1 / worst)));
	}
	return 0;
}

/* ---- operations of one name and work, in two sets -------------------------------------------- */

struct class
{
	double ns[2];
	uint64_t n[2];
};
struct classes {
	struct pl_intern keys;
	struct class *v;
	size_t n, cap;
};

static void classes_fini(struct classes *c)
{
	pl_intern_fini(&c->keys);
	pl_free(c->v);
}

/* Kernels of one name have several sizes, which few inputs say: phases and (for the same rank)
 * ranks keep them apart. */
static void class_key(const struct pl_shape *sh, uint32_t i, uint32_t rank, uint32_t *key)
{
	key[0] = sh->name[i];
	key[1] = sh->work ? sh->work[i] : PL_NONE;
	key[2] = sh->phase ? sh->phase[i] : PL_PH_UNKNOWN;
	key[3] = rank;
}

/* Do both sets have enough of it? */
static bool compares(const struct class *c)
{
	return c->n[0] >= FEW && c->n[1] >= FEW;
}

/* Enter the computations; classes_fini() is due whatever happens. */
static int compare(const struct verdict_study *x, struct classes *c,
		   bool (*second)(const struct verdict_study *, uint32_t rank, pl_ns start,
				  pl_ns ns),
		   uint32_t one_rank, struct pl_err *err)
{
	uint64_t all = 0;

	for (size_t k = 0; k < x->g->n_steps; k++)
		all += verdict_shape(x, k)->n_nodes;
	for (size_t k = 0; k < x->g->n_steps; k++) {
		const struct pl_shape *sh = verdict_shape(x, k);

		/* one of so many; an odd number, as jobs repeat in even ones */
		for (uint64_t at = sh->n_entries; at < sh->n_nodes; at += (all / SAMPLED) | 1) {
			const struct class none = { { 0 }, { 0 } };
			uint32_t i = (uint32_t)at, key[4], rank;
			bool which;
			pl_ns ns;
			pl_id id;

			if (sh->role[i] != PL_RO_COMPUTE || sh->res[i] == PL_NONE ||
			    (rank = x->rank_of[sh->res[i]]) == PL_NONE)
				continue;
			class_key(sh, i, second ? rank : 0, key);
			PL_CHECK(pl_intern_add(&c->keys, (const char *)key, sizeof(key), &id, err));
			if (id == c->n)
				PL_CHECK(
					pl_append(&c->v, &c->n, &c->cap, &none, sizeof(none), err));
			ns = pl_sim_run_dur(x->s, x->r, k, i);
			which = second ? second(x, rank, x->r->start[k][i], ns) : rank == one_rank;
			c->v[id].ns[which] += (double)ns;
			c->v[id].n[which]++;
		}
	}
	return 0;
}

/* How much longer the second set takes than the same operations of the first, as a share of it. */
static double excess(const struct classes *c)
{
	double own = 0, usual = 0;

	for (size_t i = 0; i < c->n; i++) {
		const struct class *v = &c->v[i];

		if (!compares(v))
			continue;
		own += v->ns[1];
		usual += v->ns[0] / (double)v->n[0] * (double)v->n[1];
	}
	return own > 0 ? (own - usual) / own : 0;
}

/* ---- contention ------------------------------------------------------------------------------ */

/* Is most of this time covered by transfers of the rank? */
static bool is_overlapped(const struct verdict_study *x, uint32_t rank, pl_ns start, pl_ns ns)
{
	return ns > 0 && 2 * pl_spans_cover(&x->comm, (int32_t)rank, start, start + ns) >= ns;
}

/* What kernels beside communication lose, by the factor that the recording shows. */
static int lost_on_devices(struct verdict_study *x, bool *known, struct pl_err *err)
{
	double factor, samples;

	PL_CHECK(pl_cost_overlap(x->g, &factor, &samples, err));
	*known = factor > 1 && samples >= PL_COST_OVERLAP_SAMPLES;
	for (size_t i = 0; i < x->n_parts && *known; i++) {
		struct verdict_part *p = &x->part[i];
		pl_ns with;

		if (p->cause != PL_VERDICT_COMPUTE || p->role != PL_RO_COMPUTE ||
		    p->part != PL_PP_NODE || !x->rank[p->rank].device)
			continue;
		with = pl_spans_cover(&x->comm, (int32_t)p->rank, p->start, p->start + p->ns);
		verdict_move(x, p, PL_VERDICT_CONTENTION, (pl_ns)((double)with * (1 - 1 / factor)));
	}
	return 0;
}

int pl_verdict_contention(struct verdict_study *x, struct pl_err *err)
{
	struct classes c = { 0 };
	bool known = false;
	int rc = 0;

	if (!x->comm.n)
		return 0;
	if (!pl_cost_by_threads(x->g))
		PL_CHECK(lost_on_devices(x, &known, err));
	if (known)
		return 0;
	PL_TRY(compare(x, &c, is_overlapped, PL_NONE, err));
	if (excess(&c) <= EXCESS)
		goto out;
	for (size_t i = 0; i < x->n_parts; i++) {
		struct verdict_part *p = &x->part[i];
		uint32_t key[4];
		pl_id id;

		if (p->cause != PL_VERDICT_COMPUTE || p->role != PL_RO_COMPUTE ||
		    p->part != PL_PP_NODE || !is_overlapped(x, p->rank, p->start, p->ns))
			continue;
		class_key(verdict_shape(x, p->step), p->node, p->rank, key);
		id = pl_intern_find(&c.keys, (const char *)key, sizeof(key));
		if (id != PL_NONE && compares(&c.v[id]))
			verdict_move(x, p, PL_VERDICT_CONTENTION,
				     p->left - (pl_ns)(c.v[id].ns[0] / (double)c.v[id].n[0]));
	}
out:
	classes_fini(&c);
	return rc;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* The rank with most computation in step k (PL_NONE: over all), and the median of the others. */
static uint32_t busiest(const struct verdict_study *x, size_t k, pl_ns *most, pl_ns *others,
			int64_t *room)
{
	uint32_t n = (uint32_t)x->g->n_ranks, best = 0;
	size_t count = 0;

#define COMPUTE_OF(i) (k == SIZE_MAX ? x->rank[i].compute : verdict_cell(x, k, i)->compute)
	for (uint32_t i = 1; i < n; i++)
		if (COMPUTE_OF(i) > COMPUTE_OF(best))
			best = i;
	for (uint32_t i = 0; i < n; i++)
		if (i != best)
			room[count++] = COMPUTE_OF(i);
	*most = COMPUTE_OF(best);
#undef COMPUTE_OF
	*others = pl_median_i64(room, count);
	return best;
}

/* Is this rank the busiest, by a margin, in most steps? */
static bool is_constant(const struct verdict_study *x, uint32_t rank, int64_t *room)
{
	size_t steps = 0, own = 0;
	pl_ns most, others;

	for (size_t k = 0; k < x->g->n_steps; k++) {
		if (!pl_sim_reported(x->s, k))
			continue;
		steps++;
		own += busiest(x, k, &most, &others, room) == rank &&
		       (double)(most - others) > UNEQUAL * (double)most;
	}
	return (double)own >= MOST_STEPS * (double)steps;
}

/*
 * Do the operations of this rank take longer than the same operations of other ranks? If not, it
 * has more of them: a stage of a pipeline.
 */
static int is_slower(const struct verdict_study *x, uint32_t rank, bool *slower, struct pl_err *err)
{
	struct classes c = { 0 };
	int rc = compare(x, &c, NULL, rank, err);

	*slower = excess(&c) > EXCESS;
	classes_fini(&c);
	return rc;
}

/* Give the share of the path's computation, on one rank or (PL_NONE) on all, to another cause. */
static void take(struct verdict_study *x, uint32_t rank, double share, unsigned to)
{
	for (size_t i = 0; i < x->n_parts; i++) {
		struct verdict_part *p = &x->part[i];

		if (p->cause == PL_VERDICT_COMPUTE && (rank == PL_NONE || p->rank == rank))
			verdict_move(x, p, to, (pl_ns)(share * (double)p->left + 0.5));
	}
}

int pl_verdict_ranks(struct verdict_study *x, struct pl_err *err)
{
	int64_t *room;
	pl_ns most, others, rest;
	uint32_t slow;
	int rc = 0;

	x->slow_rank = PL_NONE;
	if (x->g->n_ranks < 2)
		return 0;
	PL_CHECK(pl_alloc(&room, (size_t)x->g->n_ranks, sizeof(*room), err));
	slow = busiest(x, SIZE_MAX, &most, &others, room);
	if ((double)(most - others) > UNEQUAL * (double)most && is_constant(x, slow, room)) {
		bool slower = true;

		if (x->messages_between_stages)
			PL_TRY(is_slower(x, slow, &slower, err));
		x->slow_rank = slow;
		take(x, slow, (double)(most - others) / (double)most,
		     slower ? PL_VERDICT_SLOW_RANK : PL_VERDICT_IMBALANCE);
	}
	rest = x->ns[PL_VERDICT_COMPUTE] + x->ns[PL_VERDICT_CONTENTION] - others;
	if (rest > 0 && x->ns[PL_VERDICT_COMPUTE] > 0) {
		double share = (double)rest / (double)x->ns[PL_VERDICT_COMPUTE];

		x->imbalance_moves = !x->messages_between_stages;
		take(x, PL_NONE, share > 1 ? 1 : share,
		     x->messages_between_stages ? PL_VERDICT_BUBBLE : PL_VERDICT_IMBALANCE);
	}
out:
	pl_free(room);
	return rc;
}
