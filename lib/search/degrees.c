/*
 * The tensor-parallel degree of a job.
 *
 * For each degree the graph is divided as replay(1) divides it by that line of a plan, and the
 * graph that comes out is searched as if it had been recorded: the costs of communication are
 * fitted to it, and device, batch, buckets and all else are chosen for it. The plan with the least
 * time for a sample wins. A higher degree needs more ranks, so it must gain WORTH on lower ones;
 * and what the line saves must be more than the prediction may err.
 *
 * With the ranks that there are (keep_ranks), a degree leaves a part of the replicas, each of which
 * takes as many times the samples. Lines of ranks and batch say so; nothing else is changed then,
 * because the members of groups in the graph stay those that were recorded.
 */
#include <math.h>

#include "search/internal.h"
#include "sim/selftest.h"

#define WORTH 0.02 /* of the time for a sample: worth more ranks */

static const int64_t degrees[] = { 2, 4, 8 };

/* What a search said, until it is known whether its plan is taken. */
struct said {
	struct pl_buf text; /* each: the level, the text, '\0' */
	struct pl_err err;
	int rc;
};

static void keep_said(void *arg, enum pl_level level, const char *text)
{
	struct said *s = arg;
	const char mark = (char)level;

	if (s->rc == 0)
		s->rc = pl_buf_put(&s->text, &mark, 1, &s->err);
	if (s->rc == 0)
		s->rc = pl_buf_put(&s->text, text, strlen(text) + 1, &s->err);
}

static void say_again(const struct said *s, const struct pl_log *log)
{
	const char *p = (const char *)s->text.p, *end = p ? p + s->text.n : p;

	for (; p < end; p += strlen(p) + 1) {
		enum pl_level level = (enum pl_level) * p++;

		pl_say(log, level, "%s", p);
	}
}

struct choice { /* the best plan of a degree */
	int64_t degree;
	struct pl_plan plan;
	struct said said;
	double step, work_ns; /* of the divided graph alone; standard error of its operations */
	double samples;	      /* of a step, by the recorded ones */
	double error;	      /* of the saving: half of its 90 % interval */
	bool fits;	      /* the memory */
};

struct degree_search {
	const struct pl_graph *g;
	const struct pl_cost *cost;
	const struct pl_search_opts *o;
	struct pl_search_noise noise;
	double step, by; /* the step without changes; recorded times by those of the graph */
	double least;	 /* time for a sample without this line; INFINITY: none fits */
	pl_ns begun;
	int64_t evaluations; /* so far */
	size_t left;	     /* degrees that are not yet searched */
	size_t divided;	     /* degrees that were possible */
	bool limited;	     /* the limit of simulations left degrees out */
	double doubted;	     /* time for a sample of the best degree that may be an error */
	struct pl_err doubt; /* the message about it */
};

static void choice_init(struct choice *c, int64_t degree)
{
	*c = (struct choice){ .degree = degree, .samples = 1 };
	pl_plan_init(&c->plan);
}

static void choice_fini(struct choice *c)
{
	pl_plan_fini(&c->plan);
	pl_buf_fini(&c->said.text);
}

/* ---- one degree ------------------------------------------------------------------------------ */

/* The step of the graph with these lines. model: the recorded communication gets the times of the
 * model, where no line changes it. out: the graph with the line, which is the only one; or NULL.
 * PL_EDATA: refused. */
static int step_of(const struct pl_graph *g, const struct pl_cost *cost,
		   const struct pl_plan *lines, bool model, double *step, double *work_ns,
		   struct pl_graph *out, struct pl_err *err)
{
	struct pl_rewrite_basis basis = { 0 };
	struct pl_sim *sim = pl_sim_new(g, err);
	struct pl_rewriter *r = NULL;
	struct pl_edit e = { 0 };
	uint32_t tensors;
	int rc;

	PL_TRY(sim ? 0 : err->code);
	PL_TRY(pl_sim_edit(sim, 0, g->n_steps, &e, err));
	r = pl_rewrite_new(&e, cost, err);
	PL_TRY(r ? 0 : err->code);
	pl_rewrite_tensors(r, &tensors);
	PL_TRY(out ? pl_rewrite(r, lines->rw, err) : pl_rewrite_plan(r, lines, err));
	PL_TRY(model && tensors ? pl_rewrite_model(r, err) : 0);
	PL_TRY(pl_sim_settle(&e, err));
	*step = pl_edit_mean_step(&e);
	pl_rewrite_bases(r, &basis);
	*work_ns = basis.work_ns;
	rc = out ? pl_edit_graph(&e, out, err) : 0;
out:
	pl_rewrite_free(r);
	pl_edit_fini(&e);
	pl_sim_free(sim);
	return rc;
}

static int step_with(const struct degree_search *d, const struct pl_plan *lines, bool model,
		     double *step, double *work_ns, struct pl_graph *out, struct pl_err *err)
{
	return step_of(d->g, d->cost, lines, model, step, work_ns, out, err);
}

static struct pl_rewrite line_of(int64_t degree)
{
	return (struct pl_rewrite){ .op = PL_RW_TENSOR_PARALLEL,
				    .k = degree,
				    .to = -1,
				    .alone_ns = INT64_MIN,
				    .in_plan_ns = INT64_MIN };
}

/* The limits that are left are divided equally among the degrees that are left. */
static void share_limits(const struct degree_search *d, struct pl_search_opts *o)
{
	int64_t left = (int64_t)d->left;

	if (o->limit_ns)
		o->limit_ns = pl_max_i64((o->limit_ns - (pl_now_ns() - d->begun)) / left, 1);
	if (o->evaluations)
		o->evaluations = pl_max_i64((o->evaluations - d->evaluations) / left, 1);
}

/* Search the graph of a degree. */
static int search_one(struct degree_search *d, const struct pl_graph *g, const struct pl_cost *cost,
		      struct choice *c, struct pl_plan *p, struct pl_err *err)
{
	const struct pl_log log = { keep_said, &c->said };
	struct pl_search_opts o = *d->o;
	int rc;

	o.log = d->o->log ? &log : NULL;
	o.noise = d->noise;
	o.noise.mean_ns *= c->step / d->step;
	share_limits(d, &o);
	d->left--;
	rc = pl_search_undivided(g, cost, &o, p, err);
	if (rc < 0 && rc != PL_ENO)
		return rc;
	if (c->said.rc < 0) {
		*err = c->said.err;
		return c->said.rc;
	}
	c->fits = rc == 0;
	for (size_t i = 0; i < p->n_rw; i++)
		if (p->rw[i].op == PL_RW_BATCH)
			c->samples *= p->rw[i].x;
	d->evaluations += p->evaluations;
	return rc;
}

/* Half of the 90 % interval of what the division saves, as replay(1) has it: it makes steps of
 * length `from` steps of length `to`. */
static double error_between(const struct degree_search *d, const struct choice *c, double from,
			    double to)
{
	const struct pl_search_noise *n = &d->noise;
	double saving = from - to, work = c->step > 0 ? c->work_ns / c->step * to : 0;

	return sqrt(
		pow(PL_SELFTEST_MODEL * from, 2) + pow(PL_SELFTEST_CHANGE * saving, 2) +
		pow(pl_search_scatter(n->step * sqrt((double)n->steps) * from, n->steps, saving),
		    2) +
		pow(PL_SELFTEST_NORMAL * work, 2));
}

/* Of all that the plan saves. */
static double error_of(const struct degree_search *d, const struct choice *c)
{
	double by = d->by * c->samples;

	return hypot(c->plan.n_rw ? (double)c->plan.error_ns : 0,
		     error_between(d, c, d->step * by, c->step * by));
}

/* The ranks of the topology, if the caller has one, must be enough. */
static int check_ranks(const struct degree_search *d, int64_t degree, struct pl_err *err)
{
	int64_t ranks = d->g->n_ranks * degree;

	if (!d->cost->user_topology || ranks <= (int64_t)d->cost->topo.n_ranks)
		return 0;
	return pl_fail(err, PL_EDATA, "it needs %lld ranks, and the topology has %u",
		       (long long)ranks, d->cost->topo.n_ranks);
}

/* c->plan: the same ranks and samples of the divided graph, otherwise as recorded. PL_EDATA: its
 * replicas cannot be divided so. */
static int use_same_ranks(struct degree_search *d, const struct pl_graph *g,
			  const struct pl_cost *cost, struct choice *c, struct pl_err *err)
{
	struct pl_rewrite lines[2] = { line_of(0), line_of(0) };
	const struct pl_plan both = { .rw = lines, .n_rw = PL_LEN(lines) };
	double work = c->work_ns / fmax(c->step, 1), more;

	lines[0].op = PL_RW_RANKS;
	lines[0].x = 1 / (double)c->degree;
	lines[1].op = PL_RW_BATCH;
	lines[1].x = (double)c->degree;
	PL_CHECK(step_of(g, cost, &both, false, &c->step, &more, NULL, err));
	c->work_ns = work * c->step + more; /* of one model, so they may err to one side */
	for (size_t i = 0; i < PL_LEN(lines); i++)
		PL_CHECK(pl_plan_add(&c->plan, &lines[i], err));
	c->plan.predicted_ns = (pl_ns)llround(d->by * c->step);
	c->error = error_between(d, c, d->by * d->step, d->by * c->step);
	c->fits = true;
	d->evaluations++;
	return 0;
}

/* c->plan of the divided graph. PL_EDATA: it cannot be divided so. */
static int try_degree(struct degree_search *d, struct choice *c, struct pl_err *err)
{
	struct pl_rewrite line = line_of(c->degree);
	const struct pl_plan alone = { .rw = &line, .n_rw = 1 };
	struct pl_cost cost = { 0 };
	struct pl_graph g;
	bool fitted = false;
	int rc;

	pl_graph_init(&g);
	PL_TRY(d->o->keep_ranks ? 0 : check_ranks(d, c->degree, err));
	PL_TRY(step_with(d, &alone, false, &c->step, &c->work_ns, &g, err));
	PL_TRY(pl_cost_fit(&g, d->cost->user_topology ? &d->cost->topo : NULL, &cost, err));
	fitted = true;
	d->evaluations++;
	cost.predictor = d->cost->predictor;
	if (d->o->keep_ranks)
		rc = use_same_ranks(d, &g, &cost, c, err);
	else if ((rc = search_one(d, &g, &cost, c, &c->plan, err)) == 0)
		c->error = error_of(d, c);
	d->divided += rc == 0 || !d->o->keep_ranks;
out:
	if (fitted)
		pl_cost_fini(&cost);
	pl_graph_fini(&g);
	return rc;
}

/* ---- the choice ------------------------------------------------------------------------------ */

static double for_a_sample(const struct choice *c, const struct pl_plan *p)
{
	return c->fits ? (double)p->predicted_ns / c->samples : INFINITY;
}

/* Is the plan of this degree better than the best one so far, and not by an error? */
static bool is_better(struct degree_search *d, const struct choice *c, double best)
{
	char text[24], error[24];
	double time = for_a_sample(c, &c->plan), saving = (d->least - time) * c->samples;
	double may_err; /* what else the plans change errs in both */

	if (!(time < (1 - WORTH) * best))
		return false;
	may_err = error_between(d, c, d->least * c->samples, time * c->samples);
	if (isinf(d->least) || saving > may_err)
		return true;
	if (!(time < (1 - WORTH) * d->doubted))
		return false;
	d->doubted = time;
	d->doubt = (struct pl_err){ 0 };
	pl_fail(&d->doubt, PL_EDATA,
		"tensor-parallel by=%lld is not proposed: it would save %s of a step, and the "
		"prediction may err by %s",
		(long long)c->degree, pl_fmt_ns(text, sizeof(text), (pl_ns)saving),
		pl_fmt_ns(error, sizeof(error), (pl_ns)may_err));
	return false;
}

static void say_time(const struct degree_search *d, const struct choice *c)
{
	char text[24], error[24], times[24] = "", without[32] = "none fits the memory";

	if (!c->fits) {
		pl_say(d->o->log, PL_LOG_NOTE, "tensor-parallel by=%lld: no plan fits the memory",
		       (long long)c->degree);
		return;
	}
	if (!d->o->keep_ranks)
		snprintf(times, sizeof(times), "%lld", (long long)c->degree);
	if (isfinite(d->least))
		pl_fmt_ns(without, sizeof(without), (pl_ns)(d->least * c->samples));
	pl_say(d->o->log, PL_LOG_NOTE,
	       "tensor-parallel by=%lld: %s (+- %s) a step on %s%s; without it %s",
	       (long long)c->degree, pl_fmt_ns(text, sizeof(text), c->plan.predicted_ns),
	       pl_fmt_ns(error, sizeof(error), (pl_ns)c->error), times,
	       d->o->keep_ranks ? "the same ranks" : " times the ranks", without);
}

/* The plan without division has the tensors of the graph; the lines come from the other one. */
static int take_plan(const struct degree_search *d, const struct choice *c, struct pl_plan *p,
		     struct pl_err *err)
{
	struct pl_rewrite line = line_of(c->degree);
	const struct pl_plan none = { .n_rw = 0 };
	/* the ranks and the batch belong to the line */
	const struct pl_plan others =
		d->o->keep_ranks ? none
				 : (struct pl_plan){ .rw = c->plan.rw, .n_rw = c->plan.n_rw };
	double before, after, ignore;
	int rc;

	rc = step_with(d, &none, true, &before, &ignore, NULL, err);
	if (rc == 0)
		rc = step_with(d, &others, true, &after, &ignore, NULL, err);
	if (rc == 0)
		line.in_plan_ns = (pl_ns)llround(d->by * (c->samples * d->step + after -
							  c->samples * before)) -
				  c->plan.predicted_ns;
	else
		PL_CHECK(pl_search_allow_refusal(rc, err));
	line.alone_ns = (pl_ns)llround(d->by * (d->step - c->step));
	p->n_rw = 0;
	PL_CHECK(pl_plan_add(p, &line, err));
	for (size_t i = 0; i < c->plan.n_rw; i++)
		PL_CHECK(pl_plan_add(p, &c->plan.rw[i], err));
	p->baseline_ns = (pl_ns)llround(d->by * c->samples * d->step);
	p->predicted_ns = c->plan.predicted_ns;
	p->error_ns = (pl_ns)llround(c->error);
	p->bound_ns = c->plan.bound_ns;
	p->model_ns = c->plan.model_ns;
	p->peak_bytes = c->plan.peak_bytes;
	p->complete = c->plan.complete && p->complete;
	return 0;
}

/* The reason of the rewriter, without the place of the line in a plan. */
static const char *reason(const char *msg)
{
	static const char line[] = "tensor-parallel: ";
	const char *at = strstr(msg, line);

	if (at)
		return at + sizeof(line) - 1;
	at = strncmp(msg, "rewrite ", 8) ? NULL : strstr(msg, ": ");
	return at ? at + 2 : msg;
}

static int try_all(struct degree_search *d, struct choice *best, struct choice *none,
		   const struct pl_plan *undivided, struct pl_err *err)
{
	double least = d->least = for_a_sample(none, undivided);
	struct pl_err why = { 0 };

	for (size_t i = 0; i < PL_LEN(degrees) && !(d->o->stop && *d->o->stop); i++) {
		struct choice c;
		int rc;

		/* the division, and a plan */
		if (d->o->evaluations && d->evaluations + 2 > d->o->evaluations) {
			d->limited = true;
			break;
		}
		choice_init(&c, degrees[i]);
		d->left = PL_LEN(degrees) - i;
		rc = try_degree(d, &c, err);
		if (rc == PL_EDATA) {
			pl_say(d->o->log, PL_LOG_NOTE, "tensor-parallel by=%lld: %s",
			       (long long)c.degree, reason(err->msg));
			why = why.code ? why : *err;
		} else if (rc < 0 && rc != PL_ENO) {
			choice_fini(&c);
			return rc;
		} else {
			say_time(d, &c);
		}
		if (rc == 0 && is_better(d, &c, least)) {
			struct choice was = *best;

			least = for_a_sample(&c, &c.plan);
			*best = c;
			c = was;
		}
		choice_fini(&c);
		memset(err, 0, sizeof(*err));
	}
	if (best->degree == 1 && d->doubt.code)
		pl_say(d->o->log, PL_LOG_WARN, "%s", d->doubt.msg);
	if (d->divided && !d->cost->user_topology && !d->cost->n_fits)
		pl_say(d->o->log, PL_LOG_WARN, PL_REWRITE_LINKS_UNKNOWN);
	if (!d->divided && why.code)
		pl_say(d->o->log, PL_LOG_WARN, "no layer is divided: %s", reason(why.msg));
	return 0;
}

int pl_search_degrees(const struct pl_graph *g, const struct pl_cost *cost,
		      const struct pl_search_opts *o, struct pl_plan *p, struct pl_err *err)
{
	struct degree_search d = { .g = g,
				   .cost = cost,
				   .o = o,
				   .noise = o->noise,
				   .begun = pl_now_ns(),
				   .left = PL_LEN(degrees) + 1,
				   .doubted = INFINITY };
	const struct pl_plan unchanged = { .n_rw = 0 };
	struct choice none, best;
	struct pl_err no = { 0 };
	int rc;

	choice_init(&none, 1);
	choice_init(&best, 1);
	PL_TRY(step_with(&d, &unchanged, false, &d.step, &none.work_ns, NULL, err));
	d.by = o->noise.mean_ns > 0 ? o->noise.mean_ns / d.step : 1;
	none.step = d.step;
	rc = search_one(&d, g, cost, &none, p, err);
	if (rc < 0 && rc != PL_ENO)
		goto out;
	no = *err;
	PL_TRY(try_all(&d, &best, &none, p, err));
	p->evaluations = d.evaluations;
	say_again(best.degree > 1 ? &best.said : &none.said, o->log);
	if (best.degree > 1) {
		rc = take_plan(&d, &best, p, err);
	} else if (!none.fits) {
		*err = no;
		rc = PL_ENO;
	}
	if ((o->stop && *o->stop) || d.limited)
		p->complete = false;
out:
	choice_fini(&none);
	choice_fini(&best);
	return rc;
}
