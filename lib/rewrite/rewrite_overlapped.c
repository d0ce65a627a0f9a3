/*
 * Computation is slower beside communication. A what-if moves communication, and then other
 * computation runs beside it, or the same for another time.
 *
 * On devices kernels share multiprocessors and memory with those of communication, also while these
 * wait for other ranks. Where threads carry communication, they take processors from computation
 * while data moves. The recording gives the factor (pl_cost_overlap()). An operation that ran
 * beside communication for a time t would have taken t (1 - 1 / factor) less alone. Durations
 * depend on times and times on durations: the job is simulated and each operation gets the duration
 * that follows from the communication beside it, until hardly anything changes. What happens early
 * is right first, so this ends; mostly after a few rounds.
 *
 * There are two callers. After changes of durations it works on the durations of a simulator. After
 * rewrites that put communication beside other computation (prefetch, overlap, wrap) it works on
 * the edit. Buckets of gradients that are built again have their own way (rewrite_slowdown.c).
 *
 * O(nodes log nodes) for each round. Nothing is done where the factor is 1.
 */
#include <math.h>

#include "core/spans.h"
#include "rewrite/rewrite_internal.h"

#define ROUNDS	32     /* at most */
#define SETTLED 0.0002 /* change of the mean step in a round */
#define WORTH	0.001  /* change of a duration, as a share of it */

/* When communication runs, and what it costs. */
struct contention {
	const struct pl_graph *g;
	bool threads; /* carry communication */
	double factor;
	struct pl_spans comm;
};

struct overlapped {
	struct pl_sim *s;
	struct contention b;
	double **alone; /* [step][node]: with the changes, without communication beside it */
	double *ns;	/* of a step */
};

static bool computes(const struct contention *b, uint8_t role, uint8_t kind, uint32_t res)
{
	return role == PL_RO_COMPUTE && res != PL_NONE &&
	       (b->threads ? !pl_trace_kind_is_comm(kind)
			   : res < b->g->n_res && b->g->res[res].track_type == PL_T_STREAM);
}

/* The times at which ranks communicate in a step. */
static int find_comm(struct contention *b, size_t step, const pl_ns *start, const pl_ns *dur,
		     struct pl_err *err)
{
	const struct pl_shape *sh = &b->g->shape[b->g->step[step].shape];

	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		uint32_t arrive;

		if (sh->role[i] != PL_RO_TRANSFER)
			continue;
		arrive = b->threads ? PL_NONE : pl_node_arrival(sh, i);
		PL_CHECK(pl_spans_add(&b->comm, pl_node_rank(b->g, sh, i),
				      start[arrive == PL_NONE ? i : arrive], start[i] + dur[i],
				      err));
	}
	return 0;
}

/* As recorded. */
static int find_recorded_comm(struct contention *b, struct pl_err *err)
{
	pl_spans_clear(&b->comm);
	for (size_t k = 0; k < b->g->n_steps; k++)
		PL_CHECK(find_comm(b, k, b->g->step[k].start, b->g->step[k].dur, err));
	pl_spans_unite(&b->comm);
	return 0;
}

/* How long an operation takes alone that was recorded with this start and duration. */
static double recorded_alone(const struct contention *b, int32_t rank, pl_ns start, pl_ns dur)
{
	double with = (double)pl_spans_cover(&b->comm, rank, start, start + dur);

	return (double)dur - with * (1 - 1 / b->factor);
}

/* How long an operation takes from `start` on that alone takes so long. */
static double slowed(const struct contention *b, int32_t rank, pl_ns start, double alone)
{
	double dur = alone;

	/* each round covers what the last one has added; the factor bounds the sum */
	for (int i = 0; i < ROUNDS; i++) {
		double with =
			(double)pl_spans_cover(&b->comm, rank, start, start + (pl_ns)llround(dur));
		double now = alone + with * (1 - 1 / b->factor);

		if (now - dur < 1)
			break;
		dur = now;
	}
	return dur;
}

/* ---- a simulator ------------------------------------------------------------------------------
 */

/* The durations of computation with the changes that were made, without communication beside it. */
static int find_alone(struct overlapped *x, struct pl_err *err)
{
	const struct pl_graph *g = x->b.g;

	PL_CHECK(find_recorded_comm(&x->b, err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *sh = &g->shape[st->shape];
		const pl_ns *now = pl_sim_durations(x->s, k);

		PL_CHECK(pl_alloc(&x->alone[k], sh->n_nodes, sizeof(*x->alone[k]), err));
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			if (computes(&x->b, sh->role[i], sh->kind[i], sh->res[i]) && st->dur[i] > 0)
				x->alone[k][i] = recorded_alone(&x->b, pl_node_rank(g, sh, i),
								st->start[i], st->dur[i]) *
						 ((double)now[i] / (double)st->dur[i]);
	}
	return 0;
}

static int find_comm_of_run(struct overlapped *x, const struct pl_run *r, struct pl_err *err)
{
	pl_spans_clear(&x->b.comm);
	for (size_t k = 0; k < x->b.g->n_steps; k++)
		PL_CHECK(find_comm(&x->b, k, r->start[k],
				   r->dur[k] ? r->dur[k] : pl_sim_durations(x->s, k), err));
	pl_spans_unite(&x->b.comm);
	return 0;
}

static int one_round(struct overlapped *x, double *mean, struct pl_err *err)
{
	const struct pl_graph *g = x->b.g;
	struct pl_run r = { 0 };
	int rc;

	PL_TRY(pl_sim_run(x->s, &r, err));
	*mean = pl_sim_run_mean_step(x->s, &r);
	PL_TRY(find_comm_of_run(x, &r, err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];
		const pl_ns *now = pl_sim_durations(x->s, k);

		for (uint32_t i = 0; i < sh->n_nodes; i++) {
			x->ns[i] = (double)now[i];
			if (x->alone[k][i] > 0)
				x->ns[i] = slowed(&x->b, pl_node_rank(g, sh, i), r.start[k][i],
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
	const struct pl_graph *g = x->b.g;
	double before = 0, mean = 0;
	size_t most = 1;

	for (size_t i = 0; i < g->n_shapes; i++)
		most = g->shape[i].n_nodes > most ? g->shape[i].n_nodes : most;
	PL_CHECK(pl_alloc(&x->alone, g->n_steps, sizeof(*x->alone), err));
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

int pl_rewrite_contention(const struct pl_graph *g, double *factor, struct pl_err *err)
{
	double samples;

	if (*factor > 0)
		return 0;
	PL_CHECK(pl_cost_overlap(g, factor, &samples, err));
	if (*factor < 1 || (!pl_cost_by_threads(g) && samples < PL_COST_OVERLAP_SAMPLES))
		*factor = 1;
	return 0;
}

int pl_rewrite_overlapped(struct pl_sim *s, const struct pl_graph *g,
			  struct pl_rewrite_basis *basis, struct pl_err *err)
{
	struct overlapped x = { .s = s, .b = { .g = g, .threads = pl_cost_by_threads(g) } };
	int rc;

	PL_CHECK(pl_rewrite_contention(g, &basis->contention, err));
	x.b.factor = basis->contention;
	if (x.b.factor <= 1)
		return 0;
	rc = settle(&x, err);
	for (size_t k = 0; x.alone && k < g->n_steps; k++)
		pl_free(x.alone[k]);
	pl_free(x.alone);
	pl_free(x.ns);
	pl_spans_fini(&x.b.comm);
	return rc;
}

/* ---- an edit ----------------------------------------------------------------------------------
 */

/* The time at which a transfer of the edit begins to cost. */
static pl_ns costs_from(const struct contention *b, const struct pl_edit *e, uint32_t transfer)
{
	for (uint32_t x = e->node[transfer].in; x != PL_NONE && !b->threads; x = e->edge[x].in_next)
		if (pl_edit_transfer(e, e->edge[x].src) == transfer)
			return e->node[e->edge[x].src].start;
	return e->node[transfer].start;
}

static int find_comm_of_edit(struct contention *b, const struct pl_edit *e, struct pl_err *err)
{
	pl_spans_clear(&b->comm);
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];

		if (!n->dead && n->role == PL_RO_TRANSFER && n->res != PL_NONE)
			PL_CHECK(pl_spans_add(&b->comm, e->res[n->res].rank, costs_from(b, e, i),
					      pl_edit_end(e, i), err));
	}
	pl_spans_unite(&b->comm);
	return 0;
}

/* The share of its duration that each recorded node loses to communication, in the recording. */
static int find_lost(const struct pl_rewriter *r, struct contention *b, double *lost,
		     struct pl_err *err)
{
	const struct pl_edit *e = r->e;

	PL_CHECK(find_recorded_comm(b, err));
	for (uint32_t i = 0; i < r->n_recorded; i++) {
		const struct pl_enode *n = &e->node[i];
		const struct pl_gstep *st = &e->g->step[e->first_step + n->step];
		double dur;

		if (n->origin == PL_NONE || !computes(b, n->role, n->kind, n->res))
			continue;
		dur = (double)st->dur[n->origin];
		if (dur > 0)
			lost[i] = 1 - recorded_alone(b, e->res[n->res].rank, st->start[n->origin],
						     st->dur[n->origin]) /
					      dur;
	}
	return 0;
}

/* Each operation gets the duration that follows from the communication beside it. */
static int slow_down(struct pl_rewriter *r, struct contention *b, const double *alone,
		     struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	double before = 0;

	for (int round = 0; round < ROUNDS; round++) {
		double mean;

		PL_CHECK(pl_sim_settle(r->e, err));
		mean = pl_edit_mean_step(e);
		if (round && fabs(mean - before) <= SETTLED * mean)
			break;
		before = mean;
		PL_CHECK(find_comm_of_edit(b, e, err));
		for (uint32_t i = 0; i < r->n_recorded; i++) {
			const struct pl_enode *n = &e->node[i];
			double dur;

			if (n->dead || !(alone[i] > 0))
				continue;
			dur = slowed(b, e->res[n->res].rank, n->start, alone[i]);
			/* an edit keeps each change, to undo it */
			if (fabs(dur - (double)n->dur) > WORTH * (double)n->dur)
				rw_set_dur(r, i, (pl_ns)llround(dur));
		}
	}
	return 0;
}

/* The duration of each recorded node of computation alone; 0: it is none, or dead. And the share
 * that it loses at present. */
static int find_alone_in_edit(const struct pl_rewriter *r, struct contention *b, double *alone,
			      double *lost, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	const struct rw_array *before = rw_now(r)->lost;

	if (before)
		memcpy(lost, before->v, r->n_recorded * sizeof(*lost));
	else
		PL_CHECK(find_lost(r, b, lost, err));
	for (uint32_t i = 0; i < r->n_recorded; i++)
		if (!e->node[i].dead &&
		    computes(b, e->node[i].role, e->node[i].kind, e->node[i].res))
			alone[i] = (double)e->node[i].dur * (1 - lost[i]);
	return 0;
}

static int slow_overlapped(struct pl_rewriter *r, struct contention *b, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct rw_array *lost = NULL;
	double *alone = NULL;
	int rc;

	PL_TRY(pl_rewrite_array_new(r->n_recorded, &lost, err));
	PL_TRY(pl_alloc(&alone, r->n_recorded, sizeof(*alone), err));
	PL_TRY(find_alone_in_edit(r, b, alone, lost->v, err));
	PL_TRY(slow_down(r, b, alone, err));
	for (uint32_t i = 0; i < r->n_recorded; i++)
		if (alone[i] > 0 && !e->node[i].dead)
			lost->v[i] = 1 - alone[i] / (double)e->node[i].dur;
	pl_rewrite_array_unref(rw_now(r)->lost);
	rw_now(r)->lost = lost;
	lost = NULL;
out:
	pl_rewrite_array_unref(lost);
	pl_free(alone);
	return rw_result(r, rc, err);
}

int pl_rewrite_overlapped_edit(struct pl_rewriter *r, struct pl_err *err)
{
	const struct rw_state *st = rw_now(r);
	struct contention b = { .g = r->e->g };
	int rc;

	if (st->over || (!st->overlapped && !st->wrap && !st->lost))
		return 0;
	PL_CHECK(pl_rewrite_contention(b.g, &r->contention, err));
	b.factor = r->contention;
	if (b.factor <= 1)
		return 0;
	b.threads = pl_cost_by_threads(b.g);
	rc = slow_overlapped(r, &b, err);
	pl_spans_fini(&b.comm);
	return rc;
}

int pl_rewrite_overlapped_alone(struct pl_rewriter *r, struct pl_err *err)
{
	struct contention b = { .g = r->e->g, .threads = pl_cost_by_threads(r->e->g) };
	double *alone = NULL, *lost = NULL;
	int rc = 0;

	PL_CHECK(pl_rewrite_contention(b.g, &r->contention, err));
	b.factor = r->contention;
	if (b.factor <= 1)
		return 0;
	PL_TRY(pl_alloc(&alone, r->n_recorded, sizeof(*alone), err));
	PL_TRY(pl_alloc(&lost, r->n_recorded, sizeof(*lost), err));
	PL_TRY(find_alone_in_edit(r, &b, alone, lost, err));
	for (uint32_t i = 0; i < r->n_recorded; i++)
		if (alone[i] > 0)
			rw_set_dur(r, i, (pl_ns)llround(alone[i]));
out:
	pl_free(lost);
	pl_free(alone);
	pl_spans_fini(&b.comm);
	return rc;
}
