/*
 * Predictions leave out the time that the profiler itself takes. They also leave out half of the
 * time that hosts take for writing into new memory.
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
 *
 * Nobody knows how much of the time for new memory (cost/new_memory.h) the job has without the
 * profiler, which allocates too. So a prediction is the ratio of two steps with half of it, and its
 * interval reaches to all of it and to none.
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
static double most_scaled(const struct changes *x)
{
	const struct pl_rewrite *rw;
	double most = 1;

	for (size_t i = 0; (rw = change_line(x, i)); i++) {
		if (rw->op == PL_RW_SCALE)
			most *= fmax(1, rw->x);
		else if (rw->op == PL_RW_SPEED && rw->x > 0)
			most *= fmax(1, 1 / rw->x);
	}
	return most;
}

/* Where durations were scaled, so were the costs. A model of sizes has taken that of the profiler
 * for the fixed time of operations, and half of the time for new memory. */
struct extra extra_time(const struct report *r, const struct pl_sim *s, const struct pl_path *p)
{
	const bool scaled = !(r->basis.work_ns > 0);
	const double most = r->changes ? most_scaled(r->changes) : 1;
	struct extra sum = { 0 };

	for (size_t i = 0; i < p->n; i++) {
		const struct pl_path_item *x = &p->item[i];
		const struct pl_gstep *st = &r->g.step[x->step];
		bool costs = x->part == PL_PP_NODE && r->trust.part_ns > 0 &&
			     has_cost(&r->g, &r->g.shape[st->shape], x->node);
		pl_ns memory = scaled && x->part == PL_PP_NODE
				       ? pl_new_memory_time(&r->new_memory, &r->g, x->step, x->node)
				       : 0;
		double by = 1;

		if (!costs && memory <= 0)
			continue;
		if (scaled && st->dur[x->node] > 0)
			by = fmin((double)pl_sim_durations(s, x->step)[x->node] /
					  (double)st->dur[x->node],
				  most);
		sum.profiler += costs ? by * r->trust.part_ns : 0;
		sum.memory += fmin(by * (double)memory, (double)x->ns);
	}
	if (p->length <= 0)
		return (struct extra){ 0 };
	return (struct extra){ sum.profiler / (double)p->length, sum.memory / (double)p->length };
}

/* By how much a ratio of steps changes without `profiler` times what the profiler takes before and
 * after, and without `memory` times the time for new memory. */
static double correction(const struct extra *before, const struct extra *after, double profiler,
			 double memory)
{
	double then = profiler * after->profiler + memory * after->memory;
	double now = profiler * before->profiler + memory * before->memory;

	return (1 - fmin(then, MOST_SHARE)) / (1 - fmin(now, MOST_SHARE));
}

double extra_correction(const struct extra *before, const struct extra *after, double *error)
{
	const double half = 0.5;
	double by = correction(before, after, 1, half);

	*error = hypot(fmax(fabs(correction(before, after, SPREAD, half) - by),
			    fabs(correction(before, after, 1 / SPREAD, half) - by)),
		       fmax(fabs(correction(before, after, 1, 1) - by),
			    fabs(correction(before, after, 1, 0) - by)));
	return by;
}

bool is_extra(const struct extra *x)
{
	return x->profiler > 0 || x->memory > 0;
}

void correct_for_extra(struct report *r)
{
	struct extra before = r->trust.extra, after = extra_time(r, r->s, &r->path);
	double by, error;

	if (r->basis.work_ns > 0)
		before.memory = 0;
	if (!is_extra(&before))
		return;
	by = extra_correction(&before, &after, &error);
	r->trust.extra_error =
		r->replayed_mean > 0 ? error * r->predicted_mean / r->replayed_mean : 0;
	for (size_t i = 0; i < r->n_steps; i++)
		if (r->step[i].predicted != INT64_MIN)
			r->step[i].predicted = (pl_ns)llround((double)r->step[i].predicted * by);
	r->predicted_mean *= by;
	r->predicted_step *= by;
}
