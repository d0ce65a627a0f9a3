/*
 * The interval of a step whose durations are predictions, from those of its operations.
 *
 * The errors of operations of one name go together: a model that takes the products of a device for
 * too fast does so for all of them. So all of one name are moved to an end of their intervals at
 * once and the step is simulated. Names err independently of one another: what they move the step
 * by adds up as squares do. With changes, all that is said of the predicted run.
 */
#include <math.h>

#include "program.h"

#define GROUPS_MAX 48  /* names; the others are moved together */
#define OPEN	   0.5 /* of the predicted time: if more has no interval, the step has none */

struct spread {
	struct report *r;
	uint32_t *group;   /* by string: number of a group, PL_NONE: none */
	double **duration; /* by step of the graph: as predicted */
	double *moved;	   /* of a step */
	uint32_t n_groups;
};

bool has_predictions(const struct pl_graph *g)
{
	for (size_t i = 0; i < g->n_shapes; i++)
		if (g->shape[i].below && g->shape[i].above)
			return true;
	return false;
}

static const struct pl_shape *shape_of(const struct spread *s, size_t step)
{
	return &s->r->g.shape[s->r->g.step[step].shape];
}

/* Which share of the time, but for communication, has no interval. */
double open_share(const struct report *r)
{
	double open = 0, all = 0;

	for (size_t k = 0; k < r->g.n_steps; k++) {
		const struct pl_shape *x = &r->g.shape[r->g.step[k].shape];
		const pl_ns *now = pl_sim_durations(r->s, k);

		for (uint32_t i = 0; i < x->n_nodes && x->above; i++) {
			if (pl_trace_kind_is_comm(x->kind[i]))
				continue;
			all += (double)now[i];
			open += x->above[i] < 0 ? (double)now[i] : 0;
		}
	}
	return all > 0 ? open / all : 0;
}

static int prepare(struct spread *s, struct pl_err *err)
{
	const struct pl_graph *g = &s->r->g;
	size_t most = 0;

	PL_CHECK(pl_alloc(&s->group, g->str.n, sizeof(*s->group), err));
	memset(s->group, 0xff, g->str.n * sizeof(*s->group));
	PL_CHECK(pl_alloc(&s->duration, g->n_steps, sizeof(*s->duration), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *x = shape_of(s, k);
		const pl_ns *now = pl_sim_durations(s->r->s, k);

		PL_CHECK(pl_alloc(&s->duration[k], x->n_nodes, sizeof(**s->duration), err));
		most = x->n_nodes > most ? x->n_nodes : most;
		for (uint32_t i = 0; i < x->n_nodes; i++) {
			s->duration[k][i] = (double)now[i];
			if (x->below && x->above && x->above[i] >= 0 && x->name[i] != PL_NONE &&
			    s->group[x->name[i]] == PL_NONE)
				s->group[x->name[i]] = s->n_groups++;
		}
	}
	return pl_alloc(&s->moved, most, sizeof(*s->moved), err);
}

/* Operations of a group take `side` < 0: as short, > 0: as long as may be; 0: as predicted. */
static int move(struct spread *s, uint32_t group, int side, struct pl_err *err)
{
	for (size_t k = 0; k < s->r->g.n_steps; k++) {
		const struct pl_shape *x = shape_of(s, k);
		const int32_t *ppm = side < 0 ? x->below : x->above;

		for (uint32_t i = 0; i < x->n_nodes; i++) {
			uint32_t own = x->name[i] == PL_NONE ? PL_NONE : s->group[x->name[i]];

			s->moved[i] = s->duration[k][i];
			if (side && ppm && ppm[i] > 0 && own != PL_NONE &&
			    (own < GROUPS_MAX ? own : GROUPS_MAX) == group)
				s->moved[i] *= 1 + side * 1e-6 * ppm[i];
		}
		PL_CHECK(pl_sim_set_durations(s->r->s, k, s->moved, err));
	}
	return 0;
}

/* By how much the steps move, squared, is added to square[reported step]. */
static int try_group(struct spread *s, uint32_t group, int side, double *square, struct pl_err *err)
{
	struct report *r = s->r;
	struct pl_run run = { 0 };

	PL_CHECK(move(s, group, side, err));
	PL_CHECK(pl_sim_run(r->s, &run, err));
	for (size_t k = 0, n = 0; k < r->g.n_steps; k++) {
		double by;

		if (!pl_sim_reported(r->s, k))
			continue;
		by = (double)(run.step_end[k] - run.step_start[k] -
			      (r->run.step_end[k] - r->run.step_start[k]));
		if (by * side > 0)
			square[n] += by * by;
		n++;
	}
	pl_sim_run_fini(&run);
	return 0;
}

/* By how much steps may be shorter and longer, [side][reported step], squared. */
static int find_squares(struct spread *s, double *square[2], struct pl_err *err)
{
	size_t n_steps = s->r->n_steps;

	PL_CHECK(prepare(s, err));
	for (int at = 0; at < 2; at++) {
		PL_CHECK(pl_alloc(&square[at], n_steps + 1, sizeof(**square), err));
		memset(square[at], 0, n_steps * sizeof(**square));
		for (uint32_t i = 0; i < s->n_groups && i <= GROUPS_MAX; i++)
			PL_CHECK(try_group(s, i, 2 * at - 1, square[at], err));
	}
	return move(s, 0, 0, err);
}

static void use_squares(struct report *r, bool changed, double *const square[2])
{
	double sum[2] = { 0, 0 };

	for (size_t n = 0; n < r->n_steps; n++) {
		double less = sqrt(square[0][n]), more = sqrt(square[1][n]);

		sum[0] += less / (double)r->n_steps;
		sum[1] += more / (double)r->n_steps;
		if (changed)
			continue;
		r->step[n].replayed_lo = pl_max_i64(r->step[n].replayed - (pl_ns)llround(less), 0);
		r->step[n].replayed_hi = r->step[n].replayed + (pl_ns)llround(more);
	}
	r->estimated = !changed && r->open_share <= OPEN;
	r->trust.less_ns = changed ? sum[0] : 0;
	r->trust.more_ns = changed ? sum[1] : 0;
}

int find_spread(struct report *r, bool changed, struct pl_err *err)
{
	struct spread s = { .r = r };
	double *square[2] = { NULL, NULL };
	int rc = 0;

	if (!has_predictions(&r->g))
		return 0;
	PL_TRY(find_squares(&s, square, err));
	use_squares(r, changed, square);
out:
	for (size_t k = 0; s.duration && k < r->g.n_steps; k++)
		pl_free(s.duration[k]);
	pl_free(s.duration);
	pl_free(s.group);
	pl_free(s.moved);
	pl_free(square[0]);
	pl_free(square[1]);
	return rc;
}
