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
static int fuse_lines(struct search *s, struct pl_err *err)
{
	const struct pl_buckets *b = &s->now.b;
	int rc = 0;

	if (b->n_sets == s->recorded.b.n_sets &&
	    !memcmp(b->set, s->recorded.b.set, s->n * sizeof(*b->set)))
		return 0;
	for (uint32_t a = 0; rc == 0 && a < b->n_sets; a++) {
		const uint32_t *v = pl_search_set_members(s, a);
		uint32_t n = pl_search_set_size(s, a);

		if (n > 1 || was_fused(s, v[0]))
			rc = add_line(s->p, PL_RW_FUSE_TENSORS, NULL, 0, v, n, err);
	}
	return rc;
}

static int algorithm_lines(struct search *s, struct pl_err *err)
{
	const uint32_t sets = s->now.b.n_sets;
	int rc = 0;

	for (unsigned algo = PL_ALGO_RING + 1; rc == 0 && algo < PL_ALGO_COUNT_; algo++) {
		uint32_t n = 0;

		for (uint32_t a = 0; a < sets; a++)
			if (s->now.algo[a] == algo)
				s->scratch[n++] = *pl_search_set_members(s, a);
		if (n)
			rc = add_line(s->p, PL_RW_ALGORITHM, pl_algo_name(algo),
				      algo == PL_ALGO_PS ? s->servers : 0, s->scratch,
				      n == sets ? 0 : n, err);
	}
	return rc;
}

/* A tensor of each set, the most urgent first. */
static int priority_line(struct search *s, struct pl_err *err)
{
	uint32_t *v = s->scratch, n = 0;

	for (uint32_t t = 0; t < s->n; t++) /* tensors by priority */
		v[s->priority[t] - 1] = t;
	memset(s->hot, 0, s->n); /* [set]: it has a tensor in the line */
	for (uint32_t i = 0; i < s->n; i++)
		if (!s->hot[s->now.b.set[v[i]]]) {
			s->hot[s->now.b.set[v[i]]] = 1;
			v[n++] = v[i];
		}
	return add_line(s->p, PL_RW_PRIORITY, NULL, 0, v, n, err);
}

/* Of the present candidate. */
static int all_lines(struct search *s, struct pl_err *err)
{
	const struct pl_buckets *b = &s->now.b;
	int rc;

	PL_TRY(fuse_lines(s, err));
	for (uint32_t a = 0; a < b->n_sets; a++)
		if (b->parts[a] > 1)
			PL_TRY(add_line(s->p, PL_RW_PARTITION_TENSOR, NULL, b->parts[a],
					pl_search_set_members(s, a), 1, err));
	for (uint32_t a = 0; a < b->n_sets; a++)
		s->scratch[a] = *pl_search_set_members(s, a);
	if (s->now.ordered && b->n_sets > 1)
		PL_TRY(add_line(s->p, PL_RW_ORDER, NULL, 0, s->scratch, b->n_sets, err));
	if (s->now.urgent && b->n_sets > 1)
		PL_TRY(priority_line(s, err));
	rc = algorithm_lines(s, err);
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
	pl_search_move(s, &s->best);
	if ((rc = all_lines(s, err)) < 0)
		return rc;
	return judge(s, p, err);
}
