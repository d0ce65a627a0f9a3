/*
 * A candidate as lines of a plan, with two savings for each line: the line alone on the recorded
 * job, and the line in the plan (the cost of leaving it out). Both are simulated. If the line of a
 * bucket is left out, the tensors of the bucket are sent one at a time, because a reader of the
 * plan alone would do so. They do not return to their recorded buckets, because the other lines may
 * have changed these.
 */
#include <math.h>
#include <string.h>

#include "search/internal.h"

static int add_line(struct pl_plan *p, unsigned op, const char *word, int64_t k,
		    const uint32_t *tensor, uint32_t n, struct pl_err *err)
{
	struct pl_rewrite rw = { .op = (uint8_t)op,
				 .word = word,
				 .k = k,
				 .n_args = n,
				 .alone_ns = INT64_MIN,
				 .in_plan_ns = INT64_MIN };
	int rc = pl_alloc(&rw.arg, n ? n : 1, sizeof(*rw.arg), err);

	for (uint32_t i = 0; rc == 0 && i < n; i++)
		rw.arg[i] = p->tensor[tensor[i]].name;
	if (rc == 0)
		rc = pl_plan_add(p, &rw, err);
	pl_free(rw.arg);
	return rc;
}

/* Was the tensor, recorded, with others? */
static bool was_fused(const struct search *s, uint32_t tensor)
{
	for (uint32_t t = 0; t < s->n; t++)
		if (t != tensor && s->recorded.b.set[t] == s->recorded.b.set[tensor])
			return true;
	return false;
}

/* Sets that differ from the recorded ones need lines; then all do, so that who reads the plan
 * alone knows all buckets. */
static int fuse_lines(struct search *s, struct pl_plan *p, const struct cand *c, struct pl_err *err)
{
	int rc = 0;

	if (c->b.n_sets == s->recorded.b.n_sets &&
	    !memcmp(c->b.set, s->recorded.b.set, s->n * sizeof(*c->b.set)))
		return 0;
	for (uint32_t a = 0; rc == 0 && a < c->b.n_sets; a++) {
		uint32_t n = 0;

		for (uint32_t t = 0; t < s->n; t++)
			if (c->b.set[t] == a)
				s->scratch[n++] = t;
		if (n > 1 || was_fused(s, s->scratch[0]))
			rc = add_line(p, PL_RW_FUSE_TENSORS, NULL, 0, s->scratch, n, err);
	}
	return rc;
}

/* The first tensor of each set, in order of issue. */
static void firsts(const struct search *s, const struct cand *c, uint32_t *first)
{
	for (uint32_t t = s->n; t-- > 0;)
		first[c->b.set[t]] = t;
}

static int algorithm_lines(struct search *s, struct pl_plan *p, const struct cand *c,
			   struct pl_err *err)
{
	int rc = 0;

	for (unsigned algo = PL_ALGO_RING + 1; rc == 0 && algo < PL_ALGO_COUNT_; algo++) {
		uint32_t *v = s->scratch + s->n, n = 0;

		firsts(s, c, s->scratch);
		for (uint32_t a = 0; a < c->b.n_sets; a++)
			if (c->algo[a] == algo)
				v[n++] = s->scratch[a];
		if (n)
			rc = add_line(p, PL_RW_ALGORITHM, pl_algo_name(algo),
				      algo == PL_ALGO_PS ? s->servers : 0, v,
				      n == c->b.n_sets ? 0 : n, err);
	}
	return rc;
}

/* A tensor of each set, the most urgent first. */
static int priority_line(struct search *s, struct pl_plan *p, const struct cand *c,
			 struct pl_err *err)
{
	uint32_t *first = s->scratch, *v = s->scratch + s->n, n = 0;

	memset(first, 0xff, s->n * sizeof(*first));
	for (uint32_t t = 0; t < s->n; t++) /* tensors by priority */
		v[s->priority[t] - 1] = t;
	for (uint32_t i = 0; i < s->n; i++) {
		uint32_t t = v[i], *set = &first[c->b.set[t]];

		if (*set == PL_NONE) {
			*set = t;
			v[n++] = t;
		}
	}
	return add_line(p, PL_RW_PRIORITY, NULL, 0, v, n, err);
}

static int all_lines(struct search *s, struct pl_plan *p, const struct cand *c, struct pl_err *err)
{
	int rc;

	PL_TRY(fuse_lines(s, p, c, err));
	for (uint32_t a = 0; a < c->b.n_sets; a++) {
		firsts(s, c, s->scratch);
		if (c->b.parts[a] > 1)
			PL_TRY(add_line(p, PL_RW_PARTITION_TENSOR, NULL, c->b.parts[a],
					&s->scratch[a], 1, err));
	}
	if (c->ordered && c->b.n_sets > 1) {
		firsts(s, c, s->scratch);
		PL_TRY(add_line(p, PL_RW_ORDER, NULL, 0, s->scratch, c->b.n_sets, err));
	}
	if (c->urgent && c->b.n_sets > 1)
		PL_TRY(priority_line(s, p, c, err));
	rc = algorithm_lines(s, p, c, err);
out:
	return rc;
}

int pl_search_carry_out_plan(const struct search *s, struct pl_edit *e, struct pl_rewriter *r,
			     const struct pl_plan *p, double *mean, struct pl_err *err)
{
	bool comm = false;
	int rc = pl_rewrite_plan(r, p, err);

	for (size_t i = 0; i < p->n_rw; i++)
		comm |= pl_rewrite_is_comm(p->rw[i].op);
	/* behind it: operations are changed as they were recorded, with nothing put between them */
	if (rc == 0 && s->n && !comm)
		rc = pl_rewrite_model(r, err);
	if (rc == 0)
		rc = pl_edit_settle(e, err);
	*mean = rc == 0 ? pl_edit_mean_step(e) : INFINITY;
	return rc;
}

/* The mean step with some lines of the plan; INFINITY where they do not go without the others. */
static int with_lines(struct search *s, const struct pl_plan *p, struct pl_rewrite *rw, size_t n,
		      double *mean, struct pl_err *err)
{
	struct pl_rewriter *r = s->worker[0].r;
	struct pl_plan some = *p;
	size_t mark;
	int rc;

	pl_rewriter_undo(r, 1);
	s->worker[0].at = s->worker[0].depth = 0;
	mark = pl_rewriter_mark(r);
	some.rw = rw;
	some.n_rw = n;
	rc = pl_search_carry_out_plan(s, &s->worker[0].e, r, &some, mean, err);
	pl_rewriter_undo(r, mark);
	return pl_search_allow_refusal(rc, err);
}

static pl_ns saved(double before, double after)
{
	return isfinite(before) && isfinite(after) ? (pl_ns)llround(before - after) : INT64_MIN;
}

/* The lines without line i, in rw. */
static size_t without(const struct pl_plan *p, size_t i, struct pl_rewrite *rw)
{
	size_t n = 0;

	for (size_t k = 0; k < p->n_rw; k++) {
		const struct pl_rewrite *x = &p->rw[k];

		if (k != i) {
			rw[n++] = *x;
			continue;
		}
		for (uint32_t t = 0; x->op == PL_RW_FUSE_TENSORS && t < x->n_args; t++) {
			rw[n] = *x;
			rw[n].arg = x->arg + t;
			rw[n++].n_args = 1;
		}
	}
	return n;
}

static int judge(struct search *s, struct pl_plan *p, struct pl_err *err)
{
	double none, all, mean;
	struct pl_rewrite *rw;
	int rc = pl_alloc(&rw, p->n_rw + s->n, sizeof(*rw), err);

	if (rc < 0)
		return rc;
	PL_TRY(with_lines(s, p, rw, 0, &none, err));
	PL_TRY(with_lines(s, p, p->rw, p->n_rw, &all, err));
	for (size_t i = 0; i < p->n_rw; i++) {
		if (s->o->stop && *s->o->stop)
			break; /* what they save stays unknown */
		rw[0] = p->rw[i];
		PL_TRY(with_lines(s, p, rw, 1, &mean, err));
		p->rw[i].alone_ns = saved(none, mean);
		PL_TRY(with_lines(s, p, rw, without(p, i, rw), &mean, err));
		p->rw[i].in_plan_ns = saved(mean, all);
	}
out:
	pl_free(rw);
	return rc;
}

int pl_search_write_lines(struct search *s, struct pl_err *err)
{
	struct pl_plan *p = s->p;
	int rc;

	for (size_t i = 0; i < s->n_extra; i++)
		if ((rc = pl_plan_add(p, &s->extra[i], err)) < 0)
			return rc;
	if (s->n && (rc = all_lines(s, p, &s->best, err)) < 0)
		return rc;
	return judge(s, p, err);
}
