/*
 * What-ifs where computation is slower beside communication: other durations move communication,
 * and then other computation runs beside it, or the same for another time.
 *
 * On devices kernels share multiprocessors and memory with those of communication, also while these
 * wait for other ranks. Where threads carry communication, they take processors from computation
 * while data moves. The recording gives the factor (pl_cost_overlap()). An operation that ran
 * beside communication for a time t would have taken t (1 - 1 / factor) less alone. Durations
 * depend on times and times on durations: the job is simulated and each operation gets the duration
 * that follows from the communication beside it, until hardly anything changes. What happens early
 * is right first, so this ends; mostly after a few rounds.
 *
 * O(nodes log nodes) for each round. Nothing is done where the factor is 1.
 */
#include <math.h>

#include "core/spans.h"
#include "rewrite/rewrite_internal.h"

#define ROUNDS	32     /* at most */
#define SETTLED 0.0002 /* change of the mean step in a round */

struct overlapped {
	struct pl_sim *s;
	const struct pl_graph *g;
	bool threads; /* carry communication */
	double factor;
	double **alone; /* [step][node]: with the changes, without communication beside it */
	double *ns;	/* of a step */
	struct pl_spans comm;
};

static bool computes(const struct overlapped *x, const struct pl_shape *sh, uint32_t i)
{
	return sh->role[i] == PL_RO_COMPUTE && sh->res[i] != PL_NONE &&
	       (x->threads ? !pl_trace_kind_is_comm(sh->kind[i])
			   : x->g->res[sh->res[i]].track_type == PL_T_STREAM);
}

/* The times at which ranks communicate in a run, or as recorded (NULL). */
static int find_comm(struct overlapped *x, const struct pl_run *r, struct pl_err *err)
{
	pl_spans_clear(&x->comm);
	for (size_t k = 0; k < x->g->n_steps; k++) {
		const struct pl_gstep *st = &x->g->step[k];
		const struct pl_shape *sh = &x->g->shape[st->shape];
		const pl_ns *start = r ? r->start[k] : st->start;
		const pl_ns *dur = !r ? st->dur : r->dur[k] ? r->dur[k] : pl_sim_durations(x->s, k);

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			uint32_t arrive;

			if (sh->role[i] != PL_RO_TRANSFER)
				continue;
			arrive = x->threads ? PL_NONE : pl_node_arrival(sh, i);
			PL_CHECK(pl_spans_add(&x->comm, pl_node_rank(x->g, sh, i),
					      start[arrive == PL_NONE ? i : arrive],
					      start[i] + dur[i], err));
		}
	}
	pl_spans_unite(&x->comm);
	return 0;
}

/* How long an operation takes alone that was recorded with this start and duration. */
static double recorded_alone(const struct overlapped *x, int32_t rank, pl_ns start, pl_ns dur)
{
	double with = (double)pl_spans_cover(&x->comm, rank, start, start + dur);

	return (double)dur - with * (1 - 1 / x->factor);
}

/* How long an operation takes from `start` on that alone takes so long. */
static double slowed(const struct overlapped *x, int32_t rank, pl_ns start, double alone)
{
	double dur = alone;

	/* each round covers what the last one has added; the factor bounds the sum */
	for (int i = 0; i < ROUNDS; i++) {
		double with =
			(double)pl_spans_cover(&x->comm, rank, start, start + (pl_ns)llround(dur));
		double now = alone + with * (1 - 1 / x->factor);

		if (now - dur < 1)
			break;
		dur = now;
	}
	return dur;
}

/* The durations of computation with the changes that were made, without communication beside it. */
static int find_alone(struct overlapped *x, struct pl_err *err)
{
	PL_CHECK(find_comm(x, NULL, err));
	for (size_t k = 0; k < x->g->n_steps; k++) {
		const struct pl_gstep *st = &x->g->step[k];
		const struct pl_shape *sh = &x->g->shape[st->shape];
		const pl_ns *now = pl_sim_durations(x->s, k);

		PL_CHECK(pl_alloc(&x->alone[k], sh->n_nodes, sizeof(*x->alone[k]), err));
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			if (computes(x, sh, i) && st->dur[i] > 0)
				x->alone[k][i] = recorded_alone(x, pl_node_rank(x->g, sh, i),
								st->start[i], st->dur[i]) *
						 ((double)now[i] / (double)st->dur[i]);
	}
	return 0;
}

static int one_round(struct overlapped *x, double *mean, struct pl_err *err)
{
	struct pl_run r = { 0 };
	int rc;

	PL_TRY(pl_sim_run(x->s, &r, err));
	*mean = pl_sim_run_mean_step(x->s, &r);
	PL_TRY(find_comm(x, &r, err));
	for (size_t k = 0; k < x->g->n_steps; k++) {
		const struct pl_shape *sh = &x->g->shape[x->g->step[k].shape];
		const pl_ns *now = pl_sim_durations(x->s, k);

		for (uint32_t i = 0; i < sh->n_nodes; i++) {
			x->ns[i] = (double)now[i];
			if (x->alone[k][i] > 0)
				x->ns[i] = slowed(x, pl_node_rank(x->g, sh, i), r.start[k][i],
						  x->alone[k][i]);
		}
		PL_TRY(pl_sim_set_durations(x->s, k, x->ns, err));
	}
out:
	pl_sim_run_fini(&r);
	return rc;
}

static int settle(struct overlapped *x, struct pl_err *err)
{
	double before = 0, mean = 0;
	size_t most = 1;

	for (size_t i = 0; i < x->g->n_shapes; i++)
		most = x->g->shape[i].n_nodes > most ? x->g->shape[i].n_nodes : most;
	PL_CHECK(pl_alloc(&x->alone, x->g->n_steps, sizeof(*x->alone), err));
	PL_CHECK(pl_alloc(&x->ns, most, sizeof(*x->ns), err));
	PL_CHECK(find_alone(x, err));
	for (int i = 0; i < ROUNDS; i++) {
		PL_CHECK(one_round(x, &mean, err));
		if (i && fabs(mean - before) <= SETTLED * mean)
			break;
		before = mean;
	}
	return 0;
}

int pl_rewrite_contention(const struct pl_graph *g, struct pl_rewrite_basis *basis,
			  struct pl_err *err)
{
	double samples;

	if (basis->contention > 0)
		return 0;
	PL_CHECK(pl_cost_overlap(g, &basis->contention, &samples, err));
	if (basis->contention < 1 || (!pl_cost_by_threads(g) && samples < PL_COST_OVERLAP_SAMPLES))
		basis->contention = 1;
	return 0;
}

int pl_rewrite_overlapped(struct pl_sim *s, const struct pl_graph *g,
			  struct pl_rewrite_basis *basis, struct pl_err *err)
{
	struct overlapped x = { .s = s, .g = g, .threads = pl_cost_by_threads(g) };
	int rc;

	PL_CHECK(pl_rewrite_contention(g, basis, err));
	x.factor = basis->contention;
	if (x.factor <= 1)
		return 0;
	rc = settle(&x, err);
	for (size_t k = 0; x.alone && k < g->n_steps; k++)
		pl_free(x.alone[k]);
	pl_free(x.alone);
	pl_free(x.ns);
	pl_spans_fini(&x.comm);
	return rc;
}
