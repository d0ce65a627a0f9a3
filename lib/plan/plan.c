/*
 * Plans in memory: adding and checking.
 *
 * What each rewrite takes is one table, from which the check, the text form and JSON are made.
 * Checks are linear but for names that must differ, which are sorted.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

#define K_PARTS 65536
#define K_RANKS 10000
#define MANY	UINT32_MAX

const struct pl_rw_info pl_rw_info[PL_RW_COUNT_] = {
	[PL_RW_FUSE_TENSORS] = { .name = "fuse-tensors",
				 .args = "tensors",
				 .min_args = 1,
				 .max_args = MANY,
				 .differ = true },
	[PL_RW_PARTITION_TENSOR] = { .name = "partition-tensor",
				     .args = "tensors",
				     .k = "parts",
				     .min_args = 1,
				     .max_args = 1,
				     .min_k = 2,
				     .max_k = K_PARTS,
				     .need_k = true },
	[PL_RW_FUSE_OPS] = { .name = "fuse-ops",
			     .args = "operations",
			     .x = "share",
			     .min_args = 2,
			     .max_args = MANY,
			     .max_x = 1 },
	[PL_RW_ORDER] = { .name = "order",
			  .args = "tensors",
			  .min_args = 2,
			  .max_args = MANY,
			  .differ = true },
	[PL_RW_ACCUMULATE] = { .name = "accumulate",
			       .k = "microbatches",
			       .min_k = 2,
			       .max_k = K_PARTS,
			       .need_k = true },
	[PL_RW_RECOMPUTE] = { .name = "recompute",
			      .args = "layers",
			      .min_args = 1,
			      .max_args = MANY,
			      .differ = true },
	[PL_RW_PRECISION] = { .name = "precision",
			      .word = "precision",
			      .args = "operations",
			      .x = "share",
			      .max_args = MANY,
			      .max_x = PL_PLAN_FACTOR_MAX },
	[PL_RW_ALGORITHM] = { .name = "algorithm",
			      .word = "algorithm",
			      .args = "tensors",
			      .k = "servers",
			      .max_args = MANY,
			      .min_k = 1,
			      .max_k = K_RANKS },
	[PL_RW_RANKS] = { .name = "ranks",
			  .k = "ranks",
			  .min_k = 2,
			  .max_k = K_RANKS,
			  .need_k = true },
	[PL_RW_BANDWIDTH] = { .name = "bandwidth",
			      .word = "link",
			      .x = "factor",
			      .max_x = PL_PLAN_FACTOR_MAX,
			      .need_x = true },
	[PL_RW_LATENCY] = { .name = "latency",
			    .word = "link",
			    .x = "factor",
			    .max_x = PL_PLAN_FACTOR_MAX,
			    .need_x = true },
	[PL_RW_SPEED] = { .name = "speed",
			  .args = "on",
			  .x = "factor",
			  .max_args = MANY,
			  .max_x = PL_PLAN_FACTOR_MAX,
			  .need_x = true },
	[PL_RW_PRIORITY] = { .name = "priority",
			     .args = "tensors",
			     .min_args = 2,
			     .max_args = MANY,
			     .differ = true },
};
_Static_assert(PL_RW_COUNT_ == 13, "a rewrite without a row, here and in paceline-plan(5)");

static const char *const precisions[] = { "fp32", "tf32", "bf16", "fp16", "fp8" };

const char *pl_rw_name(unsigned op)
{
	return op < PL_RW_COUNT_ ? pl_rw_info[op].name : "unknown";
}

int pl_rw_find(const char *name)
{
	for (int i = 0; i < PL_RW_COUNT_; i++)
		if (!strcmp(pl_rw_info[i].name, name))
			return i;
	return -1;
}

void pl_plan_init(struct pl_plan *p)
{
	memset(p, 0, sizeof(*p));
	p->baseline_ns = p->predicted_ns = p->bound_ns = p->model_ns = INT64_MIN;
	p->evaluations = p->peak_bytes = -1;
	p->complete = true;
}

void pl_plan_fini(struct pl_plan *p)
{
	pl_arena_fini(&p->arena);
	pl_free(p->tensor);
	pl_free(p->rw);
	pl_buf_fini(&p->provenance);
	pl_plan_init(p);
}

int pl_plan_dup_str(struct pl_arena *a, const char *s, size_t n, const char **out,
		    struct pl_err *err)
{
	*out = pl_arena_dup(a, s, n);
	return *out ? 0 : pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", n);
}

int pl_plan_add_tensor(struct pl_plan *p, const char *name, int64_t bytes, bool estimated,
		       struct pl_err *err)
{
	struct pl_ptensor t = { .bytes = bytes, .set = PL_NONE, .estimated = estimated };
	int rc;

	PL_TRY(pl_grow(&p->tensor, &p->cap_tensors, p->n_tensors + 1, sizeof(*p->tensor), err));
	PL_TRY(pl_plan_dup_str(&p->arena, name, strlen(name), &t.name, err));
	p->tensor[p->n_tensors++] = t;
out:
	return rc;
}

int pl_plan_add(struct pl_plan *p, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_rewrite r = *rw;
	int rc;

	PL_TRY(pl_grow(&p->rw, &p->cap_rw, p->n_rw + 1, sizeof(*p->rw), err));
	r.arg = NULL;
	if (rw->word)
		PL_TRY(pl_plan_dup_str(&p->arena, rw->word, strlen(rw->word), &r.word, err));
	if (rw->n_args) {
		r.arg = pl_arena_take(&p->arena, rw->n_args * sizeof(*r.arg));
		if (!r.arg)
			return pl_fail(err, PL_ENOMEM, "out of memory (%u names)", rw->n_args);
	}
	for (uint32_t i = 0; i < rw->n_args; i++)
		PL_TRY(pl_plan_dup_str(&p->arena, rw->arg[i], strlen(rw->arg[i]), &r.arg[i], err));
	p->rw[p->n_rw++] = r;
out:
	return rc;
}

/* Equal for plans of the same job: neither the order of readiness, which jitter changes, nor sizes
 * that were guessed take part. */
uint64_t pl_plan_base_id(const struct pl_plan *p)
{
	uint64_t sum = p->n_tensors;

	for (size_t i = 0; i < p->n_tensors; i++) {
		const struct pl_ptensor *t = &p->tensor[i];
		uint64_t state = pl_hash(t->name, strlen(t->name));

		state = pl_rng_next(&state) ^ (t->estimated ? 0 : (uint64_t)t->bytes);
		sum += pl_rng_next(&state);
	}
	return sum;
}

/* ---- checking -----------------------------------------------------------------------------------
 */

/* Fails with the first name that is empty or there twice. */
static int check_names(const char *const *v, size_t n, bool differ, struct pl_err *err)
{
	const char **sorted;
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		if (!v[i][0])
			return pl_fail(err, PL_EDATA, "a name is empty");
	if (!differ || n < 2)
		return 0;
	PL_TRY(pl_alloc(&sorted, n, sizeof(*sorted), err));
	memcpy(sorted, v, n * sizeof(*sorted));
	pl_sort(sorted, n, sizeof(*sorted), pl_compare_str);
	for (size_t i = 1; i < n && rc >= 0; i++)
		if (!strcmp(sorted[i - 1], sorted[i]))
			rc = pl_fail(err, PL_EDATA, "\"%.200s\" is there twice; name it once",
				     sorted[i]);
	pl_free(sorted);
out:
	return rc;
}

static int check_word(const struct pl_rewrite *rw, struct pl_err *err)
{
	const char *w = rw->word;

	if (!pl_rw_info[rw->op].word)
		return w ? pl_fail(err, PL_EDATA, "it takes no word, \"%.200s\"", w) : 0;
	if (!w || !*w)
		return pl_fail(err, PL_EDATA, "the %s is missing", pl_rw_info[rw->op].word);
	if (rw->op == PL_RW_ALGORITHM && pl_algo_find(w) < 0)
		return pl_fail(err, PL_EDATA,
			       "there is no algorithm \"%.200s\"; there are ring, tree, "
			       "halving-doubling, hierarchical and ps",
			       w);
	if (rw->op == PL_RW_PRECISION) {
		for (size_t i = 0; i < PL_LEN(precisions); i++)
			if (!strcmp(w, precisions[i]))
				return 0;
		return pl_fail(err, PL_EDATA,
			       "there is no precision \"%.200s\"; there are fp32, tf32, bf16, fp16 "
			       "and fp8",
			       w);
	}
	return 0;
}

static int check_numbers(const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_rw_info *f = &pl_rw_info[rw->op];
	bool k_given = rw->k != 0, x_given = rw->x != 0;

	if (k_given ? !f->k : f->need_k)
		return pl_fail(err, PL_EDATA,
			       k_given ? "it takes no whole number"
				       : "its whole number is missing");
	if (k_given && (rw->k < f->min_k || rw->k > f->max_k))
		return pl_fail(err, PL_EDATA, "%s must be %lld to %lld, not %lld", f->k,
			       (long long)f->min_k, (long long)f->max_k, (long long)rw->k);
	if (k_given && rw->op == PL_RW_ALGORITHM && pl_algo_find(rw->word) != PL_ALGO_PS)
		return pl_fail(err, PL_EDATA, "only ps takes a number of servers (k)");
	if (x_given ? !f->x : f->need_x)
		return pl_fail(err, PL_EDATA,
			       x_given ? "it takes no factor" : "its factor (x NUMBER) is missing");
	if (x_given && !(rw->x > 0 && rw->x <= f->max_x))
		return pl_fail(err, PL_EDATA, "x must be above 0 and at most %g, not %g", f->max_x,
			       rw->x);
	return 0;
}

int pl_plan_check_rewrite(const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_rw_info *f;
	int rc;

	if (rw->op >= PL_RW_COUNT_)
		return pl_fail(err, PL_EDATA, "there is no rewrite %u", rw->op);
	f = &pl_rw_info[rw->op];
	if (rw->n_args > f->max_args)
		return pl_fail(err, PL_EDATA, "it takes %s, not %u of them",
			       f->max_args ? "one name" : "no names", rw->n_args);
	if (rw->n_args < f->min_args)
		return pl_fail(err, PL_EDATA, "it needs %s of its %s, there %s %u",
			       f->min_args == 1 ? "one or more" : "two or more", f->args,
			       rw->n_args == 1 ? "is" : "are", rw->n_args);
	PL_TRY(check_names(rw->arg, rw->n_args, f->differ, err));
	PL_TRY(check_word(rw, err));
	PL_TRY(check_numbers(rw, err));
out:
	return rc;
}

static int check_base(const struct pl_plan *p, struct pl_err *err)
{
	const pl_ns ns[] = { p->baseline_ns, p->predicted_ns, p->bound_ns, p->model_ns };
	const char **name = NULL;
	int rc = 0;

	if (p->ranks < 0)
		return pl_fail(err, PL_EDATA, "the base has %lld workers", (long long)p->ranks);
	for (size_t i = 0; i < PL_LEN(ns); i++)
		if (ns[i] < 0 && ns[i] != INT64_MIN)
			return pl_fail(err, PL_EDATA, "a step of %lld ns", (long long)ns[i]);
	if (p->evaluations < -1 || p->peak_bytes < -1)
		return pl_fail(err, PL_EDATA, "evaluations or peak below 0");
	if (!p->n_tensors)
		return 0;
	PL_TRY(pl_alloc(&name, p->n_tensors, sizeof(*name), err));
	for (size_t i = 0; i < p->n_tensors; i++) {
		name[i] = p->tensor[i].name;
		if (p->tensor[i].bytes < 0) {
			rc = pl_fail(err, PL_EDATA, "tensor \"%.200s\" has %lld bytes", name[i],
				     (long long)p->tensor[i].bytes);
			goto out;
		}
	}
	rc = check_names(name, p->n_tensors, true, err);
	if (rc < 0)
		pl_wrap(err, "tensors of the base");
out:
	pl_free(name);
	return rc;
}

int pl_plan_check(const struct pl_plan *p, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc = check_base(p, &why);

	for (size_t i = 0; i < p->n_rw && rc >= 0; i++) {
		rc = pl_plan_check_rewrite(&p->rw[i], &why);
		if (rc >= 0)
			continue;
		if (p->rw[i].line)
			pl_wrap(&why, "line %u: %s", p->rw[i].line, pl_rw_name(p->rw[i].op));
		else
			pl_wrap(&why, "rewrite %zu: %s", i + 1, pl_rw_name(p->rw[i].op));
	}
	if (rc < 0 && err && !err->code)
		*err = why;
	return rc;
}
