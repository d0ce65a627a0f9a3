/*
 * Several changes simulated in one pass.
 *
 * A pass over a step waits for memory, for the branch at the end of the edges of each node, and for
 * the start of the node before, which the next node needs. WIDE runs together wait once for memory
 * and branch, and each computes while the others wait: four runs cost less than two single ones.
 * The times of a node are neighbours in memory. Rules and results equal those of run_pass().
 *
 * Ends are stored; starts follow from them, because few edges count from a start. 32 bytes for each
 * node of the longest step. Steps with more than MOST_NODES nodes, and graphs in which the order of
 * arrivals decides (RESOURCE nodes, rendezvous of the first k), are simulated one by one.
 */
#include "sim/internal.h"

#define WIDE	   PL_SIM_SIDE_BY_SIDE
#define MOST_NODES (1u << 21)

/* Each run has a bit. A node's mask has the bits of the runs that select it. */
struct wide {
	const struct pl_sim *s;
	const struct pl_sim_scale *scale;
	size_t n;
	uint8_t *name, *res; /* masks by id and, behind the last, of none */
	uint32_t n_names, n_res;
	uint8_t kind[PL_RO_COUNT_][256];
	float factor[1 << WIDE][WIDE]; /* [mask][run] */
	uint8_t in_step;	       /* runs whose change concerns the step */
	const pl_ns *dur;	       /* of the step */
	const double *exact;
	pl_ns *end;	 /* [node][run] */
	pl_ns *last_end; /* [resource, or none][run]: end of its last operation; INT64_MIN: none */
	pl_ns first[WIDE], last[WIDE]; /* begin and end of the step */
};

static void wide_fini(struct wide *x)
{
	pl_free(x->name);
	pl_free(x->res);
	pl_free(x->end);
	pl_free(x->last_end);
}

/* Enter the selection of run j. */
static void add_mask(struct wide *x, size_t j)
{
	const struct pl_graph_select *v = x->scale[j].select;

	for (size_t i = 0; i <= x->n_names; i++)
		x->name[i] |= (uint8_t)(v->name[i] << j);
	for (size_t i = 0; i <= x->n_res; i++)
		x->res[i] |= (uint8_t)(v->res[i] << j);
	for (unsigned role = 0; role < PL_RO_COUNT_; role++)
		for (unsigned k = 0; k < 256; k++)
			x->kind[role][k] |= (uint8_t)(v->kind[role][k] << j);
}

/* wide_fini() is due whatever happens. */
static int wide_init(struct wide *x, const struct pl_sim *s, const struct pl_sim_scale *scale,
		     size_t n, struct pl_err *err)
{
	size_t ends = WIDE * pl_sim_longest_step(s), tails = WIDE * (s->g->n_res + 1);

	*x = (struct wide){ .s = s,
			    .scale = scale,
			    .n = n,
			    .n_names = (uint32_t)s->g->str.n,
			    .n_res = (uint32_t)s->g->n_res };
	for (unsigned i = 0; i < 1u << WIDE; i++)
		for (size_t j = 0; j < WIDE; j++)
			x->factor[i][j] = j < n && i >> j & 1 ? scale[j].factor : 1;
	x->end = pl_malloc(ends * sizeof(*x->end)); /* each is written before it is read */
	if (!x->end)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu ends)", ends);
	PL_CHECK(pl_alloc(&x->name, (size_t)x->n_names + 1, 1, err));
	PL_CHECK(pl_alloc(&x->res, (size_t)x->n_res + 1, 1, err));
	PL_CHECK(pl_alloc(&x->last_end, tails, sizeof(*x->last_end), err));
	for (size_t i = 0; i < tails; i++)
		x->last_end[i] = INT64_MIN;
	for (size_t j = 0; j < n; j++)
		add_mask(x, j);
	return 0;
}

static void enter(struct wide *x, const struct pl_gstep *st, const struct pl_shape *sh)
{
	for (uint32_t i = 0; i < sh->n_entries; i++) {
		const pl_ns *last_end = x->last_end + WIDE * (size_t)sh->res[i];

		for (size_t j = 0; j < WIDE; j++)
			x->end[WIDE * (size_t)i + j] =
				(last_end[j] == INT64_MIN ? st->start[i] : last_end[j]) + x->dur[i];
	}
}

/* Raise t to the time that an edge allows from a node whose times are `from`. The four sums are
 * written out, so that they do not wait for a counter. */
static inline void later(pl_ns *t, const pl_ns *from, pl_ns delay)
{
	t[0] = pl_max_i64(t[0], from[0] + delay);
	t[1] = pl_max_i64(t[1], from[1] + delay);
	t[2] = pl_max_i64(t[2], from[2] + delay);
	t[3] = pl_max_i64(t[3], from[3] + delay);
}
_Static_assert(WIDE == 4, "later() and put() are written for four");

/* How many times as long node i lasts in each run. */
static inline const float *factors_of(const struct wide *x, const struct pl_shape *sh, uint32_t i)
{
	uint32_t res = sh->res[i] < x->n_res ? sh->res[i] : x->n_res;
	uint32_t name = sh->name[i] < x->n_names ? sh->name[i] : x->n_names;

	return x->factor[x->kind[sh->role[i]][sh->kind[i]] & x->res[res] & x->name[name] &
			 x->in_step];
}

/* Node i starts at t: set its end, the last end of its resource, and the end of the step. */
static inline void put(struct wide *x, const struct pl_shape *sh, uint32_t i, const pl_ns *t)
{
	pl_ns *end = x->end + WIDE * (size_t)i;
	pl_ns *last_end =
		x->last_end + WIDE * (sh->res[i] == PL_NONE ? x->s->g->n_res : sh->res[i]);
	const float *f = factors_of(x, sh, i);

	end[0] = t[0] + sim_scaled(x->dur, x->exact, i, f[0]);
	end[1] = t[1] + sim_scaled(x->dur, x->exact, i, f[1]);
	end[2] = t[2] + sim_scaled(x->dur, x->exact, i, f[2]);
	end[3] = t[3] + sim_scaled(x->dur, x->exact, i, f[3]);
	later(last_end, end, 0);
	for (size_t j = 0; j < WIDE && sh->flags[i] & PL_NF_STEP_BEGIN; j++)
		x->first[j] = pl_min_i64(x->first[j], t[j]);
	for (size_t j = 0; j < WIDE && sh->flags[i] & PL_NF_IN_STEP; j++)
		x->last[j] = pl_max_i64(x->last[j], end[j]);
}

/* The starts of node i; entries have no duration. */
static const pl_ns *starts_of(const struct wide *x, const struct pl_shape *sh, uint32_t i,
			      pl_ns *start)
{
	const float *f = factors_of(x, sh, i);

	for (size_t j = 0; j < WIDE; j++)
		start[j] = x->end[WIDE * (size_t)i + j] - sim_scaled(x->dur, x->exact, i, f[j]);
	return start;
}

/* Raise t to the time that edge e allows with this delay. */
static inline void after(const struct wide *x, const struct pl_shape *sh, uint32_t e, pl_ns delay,
			 pl_ns *t)
{
	pl_ns start[WIDE];

	later(t,
	      edge_from_start(sh->etype[e]) ? starts_of(x, sh, sh->src[e], start)
					    : x->end + WIDE * (size_t)sh->src[e],
	      delay);
}

static void run_step(struct wide *x, size_t k)
{
	const struct pl_gstep *st = &x->s->g->step[k];
	const struct pl_shape *sh = &x->s->g->shape[st->shape];
	const struct prep *prep = &x->s->step[k];
	const struct long_gap *long_gap = prep->long_gap,
			      *long_gap_end =
				      prep->n_long_gaps ? long_gap + prep->n_long_gaps : long_gap;

	for (size_t j = 0; j < WIDE; j++) {
		x->first[j] = INT64_MAX;
		x->last[j] = INT64_MIN;
	}
	x->dur = pl_sim_durations(x->s, k);
	x->exact = prep->exact;
	x->in_step = 0;
	for (size_t j = 0; j < x->n; j++)
		x->in_step |= (uint8_t)(pl_graph_select_step(x->scale[j].select, st->number) << j);
	enter(x, st, sh);
	for (uint32_t i = sh->n_entries, e = sh->off[i]; i < sh->n_nodes; i++) {
		uint32_t stop = sh->off[i + 1];
		pl_ns t[WIDE];

		/* a source: where it was recorded */
		for (size_t j = 0; j < WIDE; j++)
			t[j] = e == stop ? st->start[i] : INT64_MIN;
		for (; e < stop; e++) {
			if (e + SIM_AHEAD < sh->n_edges)
				__builtin_prefetch(x->end + WIDE * (size_t)sh->src[e + SIM_AHEAD]);
			after(x, sh, e, prep->w[e], t);
		}
		for (; long_gap != long_gap_end && long_gap->node == i; long_gap++)
			after(x, sh, long_gap->edge, prep->w[long_gap->edge] + long_gap->gap, t);
		put(x, sh, i, t);
	}
}

static int run_wide(const struct pl_sim *s, const struct pl_sim_scale *scale, size_t n,
		    double *mean, struct pl_err *err)
{
	struct sim_mean sum[WIDE] = { 0 };
	struct wide x;
	int rc;

	PL_TRY(wide_init(&x, s, scale, n, err));
	for (size_t k = 0; k < s->g->n_steps; k++) {
		run_step(&x, k);
		for (size_t j = 0; j < n && s->step[k].reported; j++) {
			if (scale[j].length)
				scale[j].length[sum[j].n] = x.last[j] - x.first[j];
			sim_mean_add(&sum[j], s->g->step[k].number, x.first[j], x.last[j]);
		}
	}
	for (size_t j = 0; j < n; j++)
		mean[j] = sim_mean_of(&sum[j], s->overlap);
out:
	wide_fini(&x);
	return rc;
}

static bool can_be_wide(const struct pl_sim *s)
{
	if (s->has_shared || pl_sim_longest_step(s) > MOST_NODES)
		return false;
	for (size_t i = 0; i < s->g->n_shapes; i++)
		if (s->g->shape[i].k)
			return false;
	for (size_t k = 0; k < s->g->n_steps; k++)
		if (s->step[k].k)
			return false;
	return true;
}

size_t pl_sim_side_by_side(const struct pl_sim *s)
{
	return can_be_wide(s) ? WIDE : 1;
}

size_t pl_sim_means_memory(const struct pl_sim *s)
{
	return pl_sim_longest_step(s) * pl_sim_side_by_side(s) * sizeof(pl_ns);
}

/* Masks express selections by name, kind and resource. */
static size_t fit_for_masks(const struct pl_sim_scale *scale, size_t n)
{
	size_t some = 0;

	while (some < n && !scale[some].select->by_node)
		some++;
	return some;
}

int pl_sim_means(const struct pl_sim *s, const struct pl_sim_scale *scale, size_t n, double *mean,
		 struct pl_err *err)
{
	size_t most = pl_sim_side_by_side(s);
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		if (s->total * (double)scale[i].factor > SIM_TOTAL_MAX)
			return pl_fail(err, PL_ELIMIT, SIM_TOO_LONG);
	for (size_t i = 0; i < n && rc >= 0;) {
		size_t some = fit_for_masks(scale + i, pl_min_size(n - i, most));

		rc = some > 1 ? run_wide(s, scale + i, some, mean + i, err)
			      : pl_sim_mean_scaled(s, &scale[i], &mean[i], err);
		i += some > 1 ? some : 1;
	}
	return rc;
}
