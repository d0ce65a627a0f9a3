/*
 * The search for a plan: the part that all strategies share.
 *
 * The graph is reduced to one rank of each class of equal ranks (symmetry.c). Each thread makes an
 * edit of it (workers.c) and simulates candidates within the budget. Each strategy is a row of the
 * table below and a file. It improves the best candidate and the rewrites applied before it. At the
 * end the plan names all rewrites and their savings (lines.c), with a prediction and a bound.
 */
#include <math.h>

#include "search/internal.h"

/* in the order of their use */
static strategy *const strategies[] = { pl_search_setting,	pl_search_precision,
					pl_search_alternatives, pl_search_buckets,
					pl_search_servers,	pl_search_memory,
					pl_search_fusion,	pl_search_anneal };

/* ---- before ---------------------------------------------------------------------------------- */

/* The step if transfers take no time and slow nothing down; the arrivals still wait for one
 * another. */
static int free_step(const struct search *s, struct pl_edit *e, struct pl_rewriter *r, double *mean,
		     struct pl_err *err)
{
	size_t mark = pl_edit_mark(e);
	int rc = pl_rewrite_let_alone(r, s->sharded, err);

	for (uint32_t i = 0; rc == 0 && i < e->n_nodes; i++)
		if (!e->node[i].dead && e->node[i].role == PL_RO_TRANSFER)
			rc = pl_edit_set_dur(e, i, 0, err);
	if (rc == 0)
		rc = pl_sim_settle(e, err);
	*mean = rc == 0 ? pl_edit_mean_step(e) : INFINITY;
	pl_edit_undo(e, mark);
	return rc < 0 ? rc : pl_sim_settle(e, err);
}

/* Lower the bound if operations with the extras allow it. Worker 0 is at the root afterwards. */
static int lower_bound(struct search *s, struct pl_err *err)
{
	struct worker *l = &s->worker[0];
	double mean;
	int rc;

	pl_rewrite_undo(l->r, l->root);
	l->at = l->depth = 0;
	rc = free_step(s, &l->e, l->r, &mean, err);
	s->bound = fmin(s->bound, mean);
	return rc;
}

static int open_search(struct search *s, bool reduce, struct pl_err *err)
{
	bool reduced = false;

	s->g = s->whole;
	if (reduce)
		PL_CHECK(pl_search_reduce(s->g, &s->o->noise, &s->reduced, &reduced, &s->tolerance,
					  err));
	if (reduced)
		s->g = &s->reduced;
	s->sim = pl_sim_new(s->g, err);
	if (!s->sim)
		return err->code;
	PL_CHECK(pl_search_workers_open(s, err));
	s->baseline = pl_edit_mean_step(&s->worker[0].e);
	s->bound = INFINITY;
	PL_CHECK(lower_bound(s, err));
	return pl_search_choices_open(s, err);
}

static void close_search(struct search *s)
{
	pl_search_workers_close(s);
	pl_search_choices_close(s->choices);
	pl_arena_fini(&s->arena);
	pl_free(s->extra);
	pl_sim_free(s->sim);
	pl_graph_fini(&s->reduced);
}

/* ---- after ----------------------------------------------------------------------------------- */

static void predict(struct search *s)
{
	struct pl_plan *p = s->p;
	double recorded = s->baseline * s->samples, step = recorded, bound = s->bound;
	bool rewrites = p->n_rw > 0;

	p->baseline_ns = (pl_ns)llround(recorded);
	p->evaluations = s->evaluations;
	p->complete = s->swept || !s->has_choices || s->o->preset != PL_PRESET_SEARCH;
	if (s->o->stop && *s->o->stop)
		p->complete = false;
	if (s->has_choices)
		p->model_ns = (pl_ns)llround(s->best->mean);
	if (rewrites) {
		step = s->best->mean;
		if (fabs(s->bias) <= PL_COST_BIAS_MAX * s->baseline)
			step = fmax(s->best->mean - s->bias, 0);
		p->error_ns = (pl_ns)llround(pl_search_error(s, fabs(recorded - step)));
	}
	p->predicted_ns = (pl_ns)llround(step);
	if (s->samples != 1) /* activations of another batch are not known */
		p->peak_bytes = -1;
	/* changed operations also change the times of readiness */
	if (!s->n_extra)
		bound = fmax(bound, pl_search_choices_bound(s->choices) + (step - s->best->mean));
	/* a model whose error exceeds the step has no bound */
	p->bound_ns = (pl_ns)llround(fmax(bound, 0));
	if (p->bound_ns > p->predicted_ns + 1) {
		char low[24], step_text[24];

		pl_say(s->o->log, PL_LOG_WARN,
		       "the prediction, %s, is below the bound, %s: the model of communication is "
		       "not reliable for this graph",
		       pl_fmt_ns(step_text, sizeof(step_text), p->predicted_ns),
		       pl_fmt_ns(low, sizeof(low), p->bound_ns));
	}
}

/* The search has one step for many, or steps apart. The times of the plan are those of the mean
 * step, as replay has it. */
static void scale_times(struct search *s)
{
	struct pl_plan *p = s->p;
	double by = s->o->noise.mean_ns / s->baseline;
	pl_ns *ns[] = { &p->baseline_ns, &p->predicted_ns, &p->error_ns, &p->bound_ns,
			&p->model_ns };

	if (!(by > 0) || isinf(by))
		return;
	for (size_t i = 0; i < PL_LEN(ns); i++)
		if (*ns[i] != INT64_MIN)
			*ns[i] = llround((double)*ns[i] * by);
	for (size_t i = 0; i < p->n_rw; i++) {
		if (p->rw[i].alone_ns != INT64_MIN)
			p->rw[i].alone_ns = llround((double)p->rw[i].alone_ns * by);
		if (p->rw[i].in_plan_ns != INT64_MIN)
			p->rw[i].in_plan_ns = llround((double)p->rw[i].in_plan_ns * by);
	}
}

/* Carry the plan out on the whole graph. Its step becomes the prediction, and the plan is judged
 * again. *again: the step is not that of the reduced graph within the tolerance, or the plan helps
 * only there, or only if steps are apart. */
static int check_whole(struct search *s, bool *again, struct pl_err *err)
{
	const struct pl_graph *g = s->whole;
	struct pl_sim *sim = pl_sim_new(g, err);
	struct pl_rewriter *r = NULL;
	struct pl_edit e = { 0 };
	double recorded, none, model, bound;
	int rc;

	if (!sim)
		return err->code;
	PL_TRY(pl_sim_edit(sim, 0, g->n_steps, &e, err));
	recorded = pl_edit_mean_step(&e);
	r = pl_rewrite_new(&e, s->cost, err);
	if (!r) {
		rc = err->code;
		goto out;
	}
	PL_TRY(free_step(s, &e, r, &bound, err));
	PL_TRY(pl_search_carry_out_plan(s, &e, r, &(struct pl_plan){ .n_rw = 0 }, &none, err));
	pl_rewrite_undo(r, 1);
	PL_TRY(pl_search_carry_out_plan(s, &e, r, s->p, &model, err));
	*again = s->p->n_rw && s->best->mean < s->samples * s->recorded->mean &&
		 !(model < s->samples * none);
	if (s->tolerance > 0)
		*again |= !(fabs(model - s->best->mean) <= s->tolerance);
	if (!isnan(s->bias))
		s->bias = none - recorded;
	s->best->mean = model;
	s->baseline = recorded;
	if (!*again && !pl_sim_steps_overlap(sim)) /* see pl_search_use_period() */
		pl_search_judge_again(s, none);
	/* with the extras, the bound of the whole graph may be lower by the tolerance */
	s->bound = s->n_extra ? s->bound - s->tolerance : bound;
out:
	pl_rewrite_free(r);
	pl_edit_fini(&e);
	pl_sim_free(sim);
	return rc;
}

/* The peak with the lines of the plan. PL_ENO: it does not fit. */
static int find_peak(struct search *s, struct pl_err *err)
{
	struct peak peak;

	PL_CHECK(pl_search_plan_peak(s, s->p, &peak, err));
	s->p->peak_bytes = peak.bytes > 0 ? peak.bytes : -1;
	return s->o->memory_bytes && peak.bytes > s->o->memory_bytes
		       ? pl_search_no_fit(s, &peak, err)
		       : 0;
}

/* *again: the reduced graph does not represent the whole one. */
static int search_all(struct search *s, bool *again, struct pl_err *err)
{
	struct pl_err ignore = { 0 };
	bool fits = true;
	int rc;

	for (size_t i = 0; fits && i < PL_LEN(strategies); i++) {
		if (!s->has_choices) /* only the operations decide */
			s->best->mean = pl_edit_mean_step(&s->worker[0].e);
		rc = strategies[i](s, err);
		if (rc < 0 && rc != PL_ENO)
			return rc;
		fits = rc != PL_ENO;
	}
	if (s->n_extra && fits)
		PL_CHECK(lower_bound(s, err));
	if (s->has_choices || s->n_extra)
		PL_CHECK(pl_search_write_lines(s, fits ? err : &ignore));
	if ((s->tolerance > 0 || (s->parted && s->p->n_rw)) && fits)
		PL_CHECK(check_whole(s, again, err));
	if (*again)
		return 0;
	PL_CHECK(pl_search_use_period(s, fits ? err : &ignore));
	PL_CHECK(pl_search_use_recorded(s, fits ? err : &ignore));
	rc = fits ? find_peak(s, err) : PL_ENO;
	if (rc < 0 && rc != PL_ENO)
		return rc;
	predict(s);
	scale_times(s);
	return rc;
}

/* ---- sharded parameters ---------------------------------------------------------------------- */

/* Which groups are there to choose from? */
static int check_sharded(const struct search *s, uint32_t gathers, struct pl_err *err)
{
	const char *why;
	uint32_t groups;

	PL_CHECK(pl_rewrite_groups(s->worker[0].r, &groups, &why, err));
	if (!groups)
		return pl_fail(
			err, PL_ENO,
			"parameters are sharded: %u all-gathers of a rank in a step bring them "
			"back, and the groups of parameters cannot be told: %s; ask replay "
			"instead: --what-if 'scale kind=comm by 0.5', 'bandwidth by 2', 'batch by "
			"2'",
			gathers, why);
	if (groups == 1)
		pl_say(s->o->log, PL_LOG_WARN,
		       "all sharded parameters are one group, and plan cannot divide it: a "
		       "recording does not say which operation needs which parameter");
	return 0;
}

/* ---- unknown sizes --------------------------------------------------------------------------- */

/* Buckets are not changed where their sizes are only guessed from times: which gradients are large
 * is not known then, and settings of frameworks count bytes. */
static void keep_unknown_buckets(const struct search *s, struct pl_search_opts *o, bool say)
{
	uint32_t n, guessed = 0;
	const struct pl_rewrite_tensor *t = pl_rewrite_tensors(s->worker[0].r, &n);

	for (uint32_t i = 0; i < n && !s->sharded; i++)
		guessed += t[i].guessed;
	if (!guessed || o->any || o->preset > PL_PRESET_BEST)
		return;
	o->fuse = o->partition = o->order = o->priority = o->algorithm = false;
	if (say)
		pl_say(o->log, PL_LOG_WARN,
		       "no other buckets are proposed: the recording has the sizes of neither "
		       "gradients nor their communication");
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* May any line be about communication? */
static bool asks_for_communication(const struct pl_search_opts *o)
{
	return o->fuse || o->partition || o->order || o->priority || o->algorithm || o->wrap ||
	       o->prefetch || o->keep || o->preset > PL_PRESET_BEST;
}

/* *again: it is the second search, on all ranks and steps; afterwards: a second one is needed.
 * spent: simulations of the first one, which count; it leaves a third of them to the second. */
static int search_once(const struct pl_graph *g, const struct pl_cost *cost,
		       struct pl_search_opts o, uint32_t gathers, int64_t spent, bool *again,
		       struct pl_plan *p, struct pl_err *err)
{
	bool reduce = !*again;
	struct search s = { .o = &o,
			    .cost = cost,
			    .whole = g,
			    .p = p,
			    .bias = NAN,
			    .samples = 1,
			    .sharded = gathers > 0,
			    .parted = reduce,
			    .evaluations = spent,
			    .recorded_fits = true,
			    .probe = PL_NONE };
	bool alone; /* nothing but other changes can be planned */
	int rc;

	*again = false;
	pl_graph_init(&s.reduced);
	rc = open_search(&s, reduce, err);
	if (reduce && (s.tolerance > 0 || s.parted))
		o.evaluations -= o.evaluations / 3;
	if (rc == 0)
		keep_unknown_buckets(&s, &o, reduce);
	if (rc == 0 && s.sharded)
		rc = check_sharded(&s, gathers, err);
	alone = rc == 0 && !s.sharded && !s.has_choices && asks_for_communication(&o);
	if (rc == 0)
		rc = search_all(&s, again, err);
	if (alone && rc == 0 && !*again)
		pl_say(o.log, PL_LOG_WARN,
		       "the graph knows no gradients that ranks synchronise; there is %s",
		       p->n_rw || o.fuse_ops || o.precision || o.device || o.batch || o.tensor
			       ? "no communication to plan"
			       : "nothing to plan");
	p->evaluations = s.evaluations;
	close_search(&s);
	return rc;
}

int pl_search_undivided(const struct pl_graph *g, const struct pl_cost *cost,
			const struct pl_search_opts *o, struct pl_plan *p, struct pl_err *err)
{
	bool again = false;
	uint32_t gathers = pl_rewrite_gathers(g);
	int rc = search_once(g, cost, *o, gathers, 0, &again, p, err);

	if (!again)
		return rc;
	p->n_rw = p->n_tensors = 0;
	return search_once(g, cost, *o, gathers, p->evaluations, &again, p, err);
}

int pl_search(const struct pl_graph *g, const struct pl_cost *cost, const struct pl_search_opts *o,
	      struct pl_plan *p, struct pl_err *err)
{
	return o->tensor && o->preset == PL_PRESET_SEARCH ? pl_search_degrees(g, cost, o, p, err)
							  : pl_search_undivided(g, cost, o, p, err);
}
