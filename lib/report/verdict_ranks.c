/*
 * Time that moves from one cause to another, because ranks, sizes or instants compare.
 *
 * Slow link: the mean transfer of a group or pair is compared with the median of the others that
 * send as much among as many ranks, inside hosts or between hosts. Transfers whose size is not
 * known, or whose partners were not recorded, are not compared.
 *
 * Contention: operations of one name and work are compared with and without a transfer of their
 * rank at the same time; on devices by the factor of lib/cost, if it finds one.
 *
 * Ranks: a typical rank computes the median time. What the path computes more has one of three
 * causes. The rank that computes most is on the path with more computation than the others. If it
 * is the same in most steps it is slow, or it has more work. The rest is the path that goes
 * from rank to rank: a bubble if stages wait for messages of one another, else ranks that take
 * turns in being the slowest. Their work is equal if each step has the same operations of the same
 * shapes on all of them. Then the turns are no property of the job.
 */
#include <math.h>
#include <stdlib.h>

#include "cost/cost.h"
#include "report/verdict_internal.h"
#include "sim/straggler_typical.h"

#define MOST_PAIRS 4096 /* of groups or pairs and sizes: all are compared with all */
#define SLOWER	   1.4	/* a link whose transfers take so much longer is slow */
#define FEW	   3	/* samples of a mean */
#define EXCESS	   0.05 /* of the computation beside communication: less is noise */
#define MOST_STEPS 0.7	/* of the steps: a rank that is the slowest in these is slow */
#define UNEQUAL	   0.03 /* of the computation: ranks that differ less are equal */
#define ALONE	   2	/* times the median of the other ranks: a cause that concerns one rank */
#define ALIKE	   1.25 /* numbers of operations that differ less are about as many */

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
static double slowness(struct verdict_study *x, int64_t who, double *room)
{
	double own = 0, usual = 0;

	for (size_t i = 0; i < x->n_transfers; i++) {
		struct verdict_transfers *t = &x->transfers[i];
		double mean;

		if (t->who != who)
			continue;
		t->compared = true;
		if (t->n < FEW || (mean = mean_elsewhere(x, t, room)) <= 0)
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
		double v;

		if (x->transfers[i].compared)
			continue;
		v = slowness(x, x->transfers[i].who, room);
		if (v > worst) {
			worst = v;
			x->slow_link = x->transfers[i].who;
		}
	}
	pl_free(room);
	for (size_t i = 0; i < x->n_parts && x->slow_link != INT64_MIN; i++) {
		struct verdict_part *p = &x->part[i];

		if (p->cause == PL_VERDICT_EXPOSED && p->role == PL_RO_TRANSFER &&
		    !(verdict_shape(x, p->step)->flags[p->node] & PL_NF_MISSING) &&
		    pl_verdict_who(x->g, verdict_shape(x, p->step), p->node) == x->slow_link)
			verdict_move(x, p, PL_VERDICT_SLOW_LINK,
				     (pl_ns)((double)p->left * (1 - 1 / worst)));
	}
	return 0;
}

/* ---- equal operations, in two sets ---------------------------------------------------------- */

struct class
{
	double ns[2], median[2];
	uint64_t n[2];
	bool sized; /* its shapes are known */
};
struct sample {
	uint32_t class, set;
	uint32_t step, rank;
	pl_ns ns;
};
struct classes {
	struct pl_intern keys;
	struct class *v;
	size_t n, cap;
	struct sample *sample;
	size_t n_samples, cap_samples;
};
struct class_key {
	struct pl_sim_class class;
	/* Few inputs say the shapes of kernels, and those of one name have several: phases and (for
	 * the same rank) ranks keep them apart. */
	uint32_t phase, rank;
	struct pl_sim_piece piece; /* of an operation of a thread */
};

static void classes_fini(struct classes *c)
{
	pl_intern_fini(&c->keys);
	pl_free(c->v);
	pl_free(c->sample);
}

static bool class_key(const struct verdict_study *x, const struct pl_shape *sh, uint32_t i,
		      uint32_t rank, struct class_key *key)
{
	*key = (struct class_key){ .phase = sh->phase ? sh->phase[i] : PL_PH_UNKNOWN,
				   .rank = rank };
	if (x->g->res[sh->res[i]].track_type == PL_T_THREAD)
		key->piece = pl_sim_piece_of(sh, i);
	return pl_sim_class_of(x->g, sh, i, &key->class);
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
	uint64_t every = verdict_every(x);

	for (size_t k = 0; k < x->g->n_steps; k++) {
		const struct pl_shape *sh = verdict_shape(x, k);

		for (uint64_t at = sh->n_entries; at < sh->n_nodes; at += every) {
			struct class none = { .sized = false };
			uint32_t i = (uint32_t)at, rank;
			struct sample sample;
			struct class_key key;
			pl_id id;

			if (sh->res[i] == PL_NONE || (rank = x->rank_of[sh->res[i]]) == PL_NONE ||
			    !verdict_compares(x, sh, i, rank) ||
			    !class_key(x, sh, i, second ? rank : 0, &key))
				continue;
			none.sized = key.class.work != PL_NONE;
			PL_CHECK(
				pl_intern_add(&c->keys, (const char *)&key, sizeof(key), &id, err));
			if (id == c->n)
				PL_CHECK(
					pl_append(&c->v, &c->n, &c->cap, &none, sizeof(none), err));
			sample.class = id;
			sample.step = (uint32_t)k;
			sample.rank = rank;
			sample.ns = pl_sim_run_dur(x->s, x->r, k, i);
			sample.set = second ? second(x, rank, x->r->start[k][i], sample.ns)
					    : rank == one_rank;
			c->v[id].ns[sample.set] += (double)sample.ns;
			c->v[id].n[sample.set]++;
			PL_CHECK(pl_append(&c->sample, &c->n_samples, &c->cap_samples, &sample,
					   sizeof(sample), err));
		}
	}
	return 0;
}

PL_COMPARATOR(by_class, struct sample, class, set, ns);

static void find_medians(struct classes *c)
{
	pl_sort(c->sample, c->n_samples, sizeof(*c->sample), by_class);
	for (size_t i = 0, n; i < c->n_samples; i += n) {
		const struct sample *s = &c->sample[i];

		n = c->v[s->class].n[s->set];
		c->v[s->class].median[s->set] = (double)s[n / 2].ns;
	}
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
		    p->part != PL_PP_NODE || p->rank == PL_NONE || !x->rank[p->rank].device)
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
		struct class_key key;
		pl_id id;

		if (p->cause != PL_VERDICT_COMPUTE || p->role != PL_RO_COMPUTE ||
		    p->part != PL_PP_NODE || !is_overlapped(x, p->rank, p->start, p->ns) ||
		    !class_key(x, verdict_shape(x, p->step), p->node, p->rank, &key))
			continue;
		id = pl_intern_find(&c.keys, (const char *)&key, sizeof(key));
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
 * The rank computes longer than the others. Its slower operations have this share in the
 * difference. More operations, and larger ones, have the rest. Equal operations have the same name
 * and shapes. Where no shapes were recorded, those of one name are equal if ranks do about as many
 * of them. Medians are compared, because a busy machine makes some operations of any rank many
 * times as long. The rest of the time, which neither explains, follows the other two.
 */
static int slower_share(const struct verdict_study *x, uint32_t rank, double *share,
			struct pl_err *err)
{
	double all = 0, slower = 0, more = 0;
	struct classes c = { 0 };
	bool any = false;
	int rc;

	PL_TRY(compare(x, &c, NULL, rank, err));
	find_medians(&c);
	for (size_t i = 0; i < c.n; i++) {
		const struct class *v = &c.v[i];
		double own = (double)v->n[1], other = (double)v->n[0] / (x->g->n_ranks - 1);
		bool equal =
			compares(v) && (v->sized || fmax(own, other) <= ALIKE * fmin(own, other));

		any |= equal;
		all += v->ns[1];
		slower += equal ? own * (v->median[1] - v->median[0]) : 0;
		more += (equal ? v->median[0] : v->median[1]) * own - v->median[0] * other;
	}
	if (!any) /* nothing shows that the rank is slower */
		*share = 0;
	else if (more <= UNEQUAL * all)
		*share = 1;
	else
		*share = slower <= EXCESS * all ? 0 : slower / (slower + more);
out:
	classes_fini(&c);
	return rc;
}

PL_COMPARATOR(by_place, struct sample, step, class, rank);

/* In the operations v[0] .. v[n - 1] of one class and step: the time of those that some ranks have
 * more of than the mean. */
static double unlike(const struct sample *v, size_t n, uint32_t n_ranks)
{
	double mean = (double)n / n_ranks, more = 0, ns = 0;

	for (size_t i = 0, k; i < n; i = k) {
		for (k = i; k < n && v[k].rank == v[i].rank; k++)
			ns += (double)v[k].ns;
		more += fmax(0, (double)(k - i) - mean);
	}
	return more * ns / (double)n;
}

/* Do ranks do the same operations in each step? If the shapes of most of them are not known, or
 * only some of them are looked at, that is not known. */
static int is_equal_work(const struct verdict_study *x, bool *equal, struct pl_err *err)
{
	double all = 0, sized = 0, more = 0;
	struct classes c = { 0 };
	int rc;

	*equal = false;
	if (verdict_every(x) > 1)
		return 0;
	PL_TRY(compare(x, &c, NULL, PL_NONE, err));
	pl_sort(c.sample, c.n_samples, sizeof(*c.sample), by_place);
	for (size_t i = 0, k; i < c.n_samples; i = k) {
		const struct sample *v = &c.sample[i];
		double ns = 0;

		for (k = i; k < c.n_samples && c.sample[k].step == v->step &&
			    c.sample[k].class == v->class;
		     k++)
			ns += (double)c.sample[k].ns;
		all += ns;
		sized += c.v[v->class].sized ? ns : 0;
		more += unlike(v, k - i, (uint32_t)x->g->n_ranks);
	}
	*equal = all > 0 && sized > all / 2 && more <= UNEQUAL * all;
out:
	classes_fini(&c);
	return rc;
}

/* Is it what the accounts of ranks call computation? Copies, and the time between two operations
 * of a device, are no work of which a rank may have more than others. */
static bool is_operation(const struct verdict_part *p)
{
	return p->cause == PL_VERDICT_COMPUTE && p->role == PL_RO_COMPUTE && p->part == PL_PP_NODE;
}

/* Give the share of the path's computation, on one rank or (PL_NONE) on all, to another cause. */
static void take(struct verdict_study *x, uint32_t rank, double share, unsigned to)
{
	for (size_t i = 0; i < x->n_parts; i++) {
		struct verdict_part *p = &x->part[i];

		if (is_operation(p) && (rank == PL_NONE || p->rank == rank))
			verdict_move(x, p, to, (pl_ns)(share * (double)p->left + 0.5));
	}
}

/* The computation of the path that no other cause has, where it stands alone and where it covers
 * other parts. */
static pl_ns computed(const struct verdict_study *x)
{
	pl_ns ns = 0;

	for (unsigned c = 0; c < PL_VERDICT_CAUSES_; c++)
		ns += x->hidden[c];
	for (size_t i = 0; i < x->n_parts; i++)
		ns += is_operation(&x->part[i]) ? x->part[i].left : 0;
	return ns;
}

int pl_verdict_ranks(struct verdict_study *x, struct pl_err *err)
{
	int64_t *room;
	pl_ns most, others, own, rest;
	uint32_t slow;
	int rc = 0;

	x->slow_rank = PL_NONE;
	if (x->g->n_ranks < 2)
		return 0;
	PL_CHECK(pl_alloc(&room, (size_t)x->g->n_ranks, sizeof(*room), err));
	slow = busiest(x, SIZE_MAX, &most, &others, room);
	x->imbalance_moves = !x->messages_between_stages;
	if ((double)(most - others) > UNEQUAL * (double)most && is_constant(x, slow, room)) {
		double much = (double)(most - others) / (double)most, share;

		PL_TRY(slower_share(x, slow, &share, err));
		x->slow_rank = slow;
		x->slower = much * share;
		x->uneven = much * (1 - share);
		x->imbalance_moves &= share >= 1;
		take(x, slow, x->slower, PL_VERDICT_SLOW_RANK);
		if (x->slower < 1) /* the share is that of the time that the line above leaves */
			take(x, slow, x->uneven / (1 - x->slower), PL_VERDICT_IMBALANCE);
	}
	own = computed(x);
	rest = own + x->ns[PL_VERDICT_CONTENTION] - others;
	if ((double)rest > UNEQUAL * (double)others && own > 0) {
		double share = (double)rest / (double)own;

		take(x, PL_NONE, share > 1 ? 1 : share,
		     x->messages_between_stages ? PL_VERDICT_BUBBLE : PL_VERDICT_IMBALANCE);
		if (x->imbalance_moves)
			rc = is_equal_work(x, &x->equal_work, err);
	}
out:
	pl_free(room);
	return rc;
}

/* ---- one rank that differs from the others --------------------------------------------------- */

#define MOST_RANKS 4096 /* more are not compared */

/* v: by rank, of which there are no more than MOST_RANKS; reordered. */
static uint32_t longest(int64_t *v, size_t n)
{
	size_t best = 0;
	int64_t most;

	if (n < 2)
		return PL_NONE;
	for (size_t i = 1; i < n; i++)
		if (v[i] > v[best])
			best = i;
	most = v[best];
	v[best] = v[n - 1];
	return most > ALONE * pl_median_i64(v, n - 1) ? (uint32_t)best : PL_NONE;
}

uint32_t pl_verdict_longest_phase(const struct verdict_study *x, unsigned phase)
{
	size_t n = (size_t)x->g->n_ranks;
	int64_t v[MOST_RANKS];

	if (n > MOST_RANKS)
		return PL_NONE;
	for (size_t i = 0; i < n; i++)
		v[i] = x->rank[i].phase[phase];
	return longest(v, n);
}

uint32_t pl_verdict_longest_host(const struct verdict_study *x)
{
	const struct pl_rank_time *of = x->account->rank;
	size_t n = (size_t)x->g->n_ranks;
	int64_t v[MOST_RANKS];

	if (n > MOST_RANKS)
		return PL_NONE;
	for (size_t i = 0; i < n; i++)
		v[i] = of[i].host_ns + of[i].idle_ns[PL_I_LAUNCH];
	return longest(v, n);
}

uint32_t pl_verdict_longest_path(const struct verdict_study *x, unsigned cause)
{
	size_t n = (size_t)x->g->n_ranks;
	int64_t v[MOST_RANKS] = { 0 };

	if (n > MOST_RANKS)
		return PL_NONE;
	for (size_t i = 0; i < x->n_parts; i++)
		if (x->part[i].cause == cause && x->part[i].rank != PL_NONE)
			v[x->part[i].rank] += x->part[i].left;
	return longest(v, n);
}
