/*
 * The tensors as a plan synchronises them.
 *
 * Every tensor of the base begins as a set of its own whose place is its number in the order of
 * readiness. A fusion gives all members one set and the place of the last of them, which is when
 * the whole is ready; an order hands the places of its sets out again in the order wanted. Sorted
 * by place, sets number from 0. Sets are joined by union and find with halved paths, so all takes
 * O(n log n) for n names.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

struct named {
	const char *name;
	uint32_t i;
};
struct place {
	uint32_t place, set;
};
struct sets {
	struct named *by_name;
	uint32_t *set;	 /* of a tensor: the next one on the way to its set's number */
	uint32_t *place; /* of a set */
	uint32_t *parts; /* of a set */
	struct place *tmp;
	uint32_t n;
};

static int cmp_name(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

static int cmp_place(const void *a, const void *b)
{
	const struct place *x = a, *y = b;

	return x->place < y->place ? -1 : x->place > y->place;
}

static int find(const struct sets *s, const char *name, uint32_t *i, struct pl_err *err)
{
	struct named key = { .name = name };
	const struct named *f =
		s->n ? bsearch(&key, s->by_name, s->n, sizeof(key), cmp_name) : NULL;

	if (!f)
		return pl_fail(err, PL_EDATA,
			       "the base has no tensor \"%.200s\"; the plan is another job's, or "
			       "lacks a line: tensor NAME BYTES",
			       name);
	*i = f->i;
	return 0;
}

/* The number of the tensor's set. */
static uint32_t root(struct sets *s, uint32_t i)
{
	while (s->set[i] != i)
		i = s->set[i] = s->set[s->set[i]];
	return i;
}

static int fuse(struct sets *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	uint32_t to = 0, from, i;
	int rc = 0;

	for (uint32_t a = 0; a < rw->n_args; a++) {
		PL_TRY(find(s, rw->arg[a], &i, err));
		from = root(s, i);
		if (s->parts[from] > 1)
			return pl_fail(err, PL_EDATA,
				       "\"%.200s\" is partitioned already; fuse first, then "
				       "partition",
				       rw->arg[a]);
		if (!a)
			to = from;
		if (from == to)
			continue;
		if (s->place[from] > s->place[to])
			s->place[to] = s->place[from];
		s->set[from] = to;
	}
out:
	return rc;
}

static int order(struct sets *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	uint32_t n = rw->n_args;
	struct place *free_at;
	int rc;

	PL_TRY(pl_alloc(&free_at, n, sizeof(*free_at), err));
	for (uint32_t a = 0; a < n; a++) {
		uint32_t i;

		rc = find(s, rw->arg[a], &i, err);
		if (rc < 0)
			break;
		free_at[a].set = root(s, i);
		free_at[a].place = s->place[free_at[a].set];
	}
	if (rc >= 0) {
		struct place *sorted = s->tmp; /* names differ: n <= s->n */

		memcpy(sorted, free_at, n * sizeof(*sorted));
		pl_sort(sorted, n, sizeof(*sorted), cmp_place);
		for (uint32_t a = 1; a < n && rc >= 0; a++)
			if (sorted[a].place == sorted[a - 1].place)
				rc = pl_fail(err, PL_EDATA,
					     "two of its tensors are one set already; name one "
					     "tensor of a set");
		for (uint32_t a = 0; a < n && rc >= 0; a++)
			s->place[free_at[a].set] = sorted[a].place;
	}
	pl_free(free_at);
out:
	return rc;
}

static int apply(struct sets *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	uint32_t i;
	int rc = 0;

	switch (rw->op) {
	case PL_RW_FUSE_TENSORS:
		return fuse(s, rw, err);
	case PL_RW_ORDER:
		return order(s, rw, err);
	case PL_RW_PARTITION_TENSOR:
		PL_TRY(find(s, rw->arg[0], &i, err));
		s->parts[root(s, i)] = (uint32_t)rw->k;
		break;
	case PL_RW_ALGORITHM:
		for (uint32_t a = 0; a < rw->n_args; a++)
			PL_TRY(find(s, rw->arg[a], &i, err));
		break;
	default:
		break;
	}
out:
	return rc;
}

/* Sets by place become 0, 1, 2 ...; the arrays are the caller's. */
static uint32_t number(struct sets *s, uint32_t *parts)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++)
		if (root(s, i) == i)
			s->tmp[n++] = (struct place){ s->place[i], i };
	pl_sort(s->tmp, n, sizeof(*s->tmp), cmp_place);
	for (uint32_t b = 0; b < n; b++) {
		parts[b] = s->parts[s->tmp[b].set];
		s->place[s->tmp[b].set] = b;
	}
	for (uint32_t i = 0; i < s->n; i++)
		s->by_name[i].i = s->place[root(s, i)];
	for (uint32_t i = 0; i < s->n; i++)
		s->set[i] = s->by_name[i].i; /* roots are no longer needed */
	return n;
}

static int begin(struct sets *s, const struct pl_plan *p, struct pl_err *err)
{
	size_t n = p->n_tensors;
	int rc;

	if (n >= UINT32_MAX)
		return pl_fail(err, PL_ELIMIT, "a plan of %zu tensors", n);
	s->n = (uint32_t)n;
	PL_TRY(pl_alloc(&s->by_name, n + 1, sizeof(*s->by_name), err));
	PL_TRY(pl_alloc(&s->set, n + 1, sizeof(*s->set), err));
	PL_TRY(pl_alloc(&s->place, n + 1, sizeof(*s->place), err));
	PL_TRY(pl_alloc(&s->parts, n + 1, sizeof(*s->parts), err));
	PL_TRY(pl_alloc(&s->tmp, n + 1, sizeof(*s->tmp), err));
	for (uint32_t i = 0; i < s->n; i++) {
		s->by_name[i] = (struct named){ p->tensor[i].name, i };
		s->set[i] = s->place[i] = i;
		s->parts[i] = 1;
	}
	pl_sort(s->by_name, n, sizeof(*s->by_name), cmp_name);
out:
	return rc;
}

int pl_plan_buckets(const struct pl_plan *p, uint32_t **bucket, uint32_t **parts, uint32_t *n,
		    struct pl_err *err)
{
	struct pl_err why = { 0 };
	struct sets s = { 0 };
	int rc;

	*bucket = *parts = NULL;
	*n = 0;
	PL_TRY(pl_plan_check(p, &why));
	PL_TRY(begin(&s, p, &why));
	for (size_t i = 0; i < p->n_rw; i++) {
		rc = apply(&s, &p->rw[i], &why);
		if (rc >= 0)
			continue;
		if (p->rw[i].line)
			pl_wrap(&why, "line %u: %s", p->rw[i].line, pl_rw_name(p->rw[i].op));
		else
			pl_wrap(&why, "rewrite %zu: %s", i + 1, pl_rw_name(p->rw[i].op));
		goto out;
	}
	PL_TRY(pl_alloc(parts, (size_t)s.n + 1, sizeof(**parts), &why));
	*n = number(&s, *parts);
	*bucket = s.set;
	s.set = NULL;
	rc = 0;
out:
	pl_free(s.by_name);
	pl_free(s.set);
	pl_free(s.place);
	pl_free(s.parts);
	pl_free(s.tmp);
	if (rc < 0 && err && !err->code)
		*err = why;
	return rc;
}
