/*
 * The time that the profiler itself takes, and predictions without it.
 *
 * A profiler of operations costs the threads of the program time before and after each operation
 * and each part of one. A user changes the job and runs it without a profiler, so a prediction is
 * the ratio of two steps without this time. It matters where operations are short: PyTorch's
 * profiler makes a step of operations of some microseconds up to 2.5 times as long.
 *
 * The cost of a part follows from the durations of the shortest parts, those of calls that only
 * call another operation. Their first decile, d, is the time between two ends: it grows with the
 * processor's cycle only. Their first quartile, q, has the beginning of a part in it, which costs
 * more the more is recorded (shapes, stacks, memory). A part costs OF_PARTS q^2 / d, in the median
 * of 70 recordings of six small jobs whose steps were timed with and without the profiler
 * (bench/profiler), and between that divided by SPREAD and times SPREAD in nine of ten.
 *
 * A job whose ranks have devices keeps the recorded times: there the devices set the pace, or
 * launches do, whose cost nobody measured yet.
 */
#include <math.h>

#include "program.h"

#define OF_PARTS 0.78
#define SPREAD	 1.75
/* Longer parts, ns, are work of the program. Then no part shows what the profiler costs. */
#define MOST_QUARTILE 1000
#define MOST_RATIO    5	    /* of quartile and decile; of recordings it is 2 to 4 */
#define FEWEST	      200   /* parts from which a quartile is taken */
#define SOME	      50000 /* parts that are enough for it */
#define MOST_SHARE    0.75  /* of the path: more is no longer an estimate */

/* A part of an operation, which a thread runs. */
static bool is_part(const struct pl_shape *sh, uint32_t i)
{
	return (sh->role[i] == PL_RO_COMPUTE || sh->role[i] == PL_RO_HOST) &&
	       sh->kind[i] == PL_K_HOST_OP;
}

static bool is_recorded(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	return !(sh->flags[i] & PL_NF_INFERRED) && sh->res[i] != PL_NONE &&
	       g->res[sh->res[i]].track_type == PL_T_THREAD;
}

/* The time between two operations has a cost at both ends, too. */
static bool has_cost(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	return (is_part(sh, i) || sh->role[i] == PL_RO_GAP) && is_recorded(g, sh, i);
}

int find_profiler(struct report *r, struct pl_err *err)
{
	const struct pl_graph *g = &r->g;
	size_t nodes = 0, n = 0, cap = 0, every, at = 0;
	int64_t *v = NULL;
	int rc = 0;

	r->trust.part_ns = 0;
	if (has_streams(g))
		return 0;
	for (size_t k = 0; k < g->n_steps; k++)
		nodes += g->shape[g->step[k].shape].n_nodes;
	every = nodes / SOME + 1;
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			if (is_part(sh, i) && is_recorded(g, sh, i) && at++ % every == 0)
				PL_TRY(pl_append(&v, &n, &cap, &g->step[k].dur[i], sizeof(*v),
						 err));
	}
	if (n > FEWEST / every) {
		double d = (double)pl_percentile_i64(v, n, 10);
		double q = (double)pl_percentile_i64(v, n, 25);

		r->trust.part_ns = q > 0 && q <= MOST_QUARTILE
					   ? OF_PARTS * q * q / fmax(d, q / MOST_RATIO)
					   : 0;
	}
out:
	pl_free(v);
	return rc;
}

/* How many times as long changes make operations at most: `set` and `fix` put a duration in place
 * of another one, whose ratio says nothing of the cost. */
static double most_scaled(const struct pl_plan *p)
{
	double most = 1;

	for (size_t i = 0; i < p->n_rw; i++) {
		if (p->rw[i].op == PL_RW_SCALE)
			most *= fmax(1, p->rw[i].x);
		else if (p->rw[i].op == PL_RW_SPEED && p->rw[i].x > 0)
			most *= fmax(1, 1 / p->rw[i].x);
	}
	return most;
}

/* The profiler's share of a path, if a part costs r->trust.part_ns. Where durations were scaled,
 * the cost was, too. A model of sizes has taken it for the fixed time of operations. */
double profiler_share(const struct report *r, const struct pl_sim *s, const struct pl_path *p)
{
	const bool scaled = !(r->basis.work_ns > 0);
	const double most = r->changes ? most_scaled(&r->changes->plan) : 1;
	double parts = 0;

	for (size_t i = 0; i < p->n && r->trust.part_ns > 0; i++) {
		const struct pl_path_item *x = &p->item[i];
		const struct pl_gstep *st = &r->g.step[x->step];

		if (x->part != PL_PP_NODE || !has_cost(&r->g, &r->g.shape[st->shape], x->node))
			continue;
		parts += scaled && st->dur[x->node] > 0
				 ? fmin((double)pl_sim_durations(s, x->step)[x->node] /
						(double)st->dur[x->node],
					most)
				 : 1;
	}
	return p->length > 0 ? parts * r->trust.part_ns / (double)p->length : 0;
}

/* By how much a ratio of steps changes if the profiler takes these shares before and after. */
static double correction(double before, double after)
{
	return (1 - fmin(after, MOST_SHARE)) / (1 - fmin(before, MOST_SHARE));
}

double profiler_correction(double before, double after, double *error)
{
	double by = correction(before, after);

	*error = fmax(fabs(correction(before * SPREAD, after * SPREAD) - by),
		      fabs(correction(before / SPREAD, after / SPREAD) - by));
	return by;
}

void correct_for_profiler(struct report *r)
{
	double before = r->trust.profiler, after = profiler_share(r, r->s, &r->path), by, error;

	if (!(before > 0))
		return;
	by = profiler_correction(before, after, &error);
	r->trust.profiler_error =
		r->replayed_mean > 0 ? error * r->predicted_mean / r->replayed_mean : 0;
	for (size_t i = 0; i < r->n_steps; i++)
		if (r->step[i].predicted != INT64_MIN)
			r->step[i].predicted = (pl_ns)llround((double)r->step[i].predicted * by);
	r->predicted_mean *= by;
	r->predicted_step *= by;
}
