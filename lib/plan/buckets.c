/*
 * The tensors as a plan synchronises them.
 *
 * Every tensor begins in the set that the base has it in, or in one of its own, and with its number
 * in the order of readiness as its place. A fusion takes its tensors out of the sets that they are
 * in and makes them one. The place of a set is the last of the places of its tensors, which is when
 * the whole is ready. An order numbers the sets by place, hands the numbers of its sets out again
 * in the order wanted, and gives each tensor the number of its set for a place. Sorted by place,
 * sets number from 0. The beginning and an order take O(n log n), a fusion O(log n) a name.
 */
#include <stdlib.h>
#include <string.h>

#include "plan/internal.h"

struct named {
	const char *name;
	uint32_t i;
};
struct turn { /* of a set */
	uint32_t place, last, set;
};
struct sets {
	struct named *by_name;
	uint32_t *set;	 /* of a tensor */
	uint32_t *place; /* of a tensor */
	uint32_t *parts; /* of a set */
	uint32_t *size;	 /* of a set: tensors, 0: there is no such set */
	uint32_t *empty; /* numbers of sets that there are not */
	uint32_t *turn;	 /* of a set, once numbered */
	struct turn *tmp;
	uint32_t n, n_empty;
};

static int cmp_name(const void *a, const void *b)
{
	return strcmp(((const struct named *)a)->name, ((const struct named *)b)->name);
}

PL_COMPARATOR(cmp_turn, struct turn, place, last);

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

static int fuse(struct sets *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	uint32_t to = 0, i;
	int rc;

	for (uint32_t a = 0; a < rw->n_args; a++) {
		if ((rc = find(s, rw->arg[a], &i, err)) < 0)
			return rc;
		if (s->parts[s->set[i]] > 1)
			return pl_fail(err, PL_EDATA,
				       "\"%.200s\" is partitioned already; fuse first, then "
				       "partition",
				       rw->arg[a]);
	}
	for (uint32_t a = 0; a < rw->n_args; a++) {
		if ((rc = find(s, rw->arg[a], &i, err)) < 0)
			return rc;
		if (--s->size[s->set[i]] == 0)
			s->empty[s->n_empty++] = s->set[i];
		if (!a) /* there are never more sets than tensors: one is free now, or was */
			to = s->empty[--s->n_empty];
		s->set[i] = to;
		s->size[to]++;
	}
	return 0;
}

/* turn[set] of every set; returns how many there are. */
static uint32_t number(struct sets *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n; i++)
		s->turn[i] = PL_NONE;
	for (uint32_t i = 0; i < s->n; i++) {
		struct turn *x;

		if (s->turn[s->set[i]] == PL_NONE) {
			s->turn[s->set[i]] = n;
			s->tmp[n++] = (struct turn){ s->place[i], i, s->set[i] };
			continue;
		}
		x = &s->tmp[s->turn[s->set[i]]];
		x->place = s->place[i] > x->place ? s->place[i] : x->place;
		x->last = i;
	}
	pl_sort(s->tmp, n, sizeof(*s->tmp), cmp_turn);
	for (uint32_t b = 0; b < n; b++)
		s->turn[s->tmp[b].set] = b;
	return n;
}

static int order(struct sets *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	uint32_t n = rw->n_args, *set = NULL, *at, i;
	int rc = pl_alloc(&at, n, sizeof(*at), err);

	if (rc < 0)
		return rc;
	PL_TRY(pl_alloc(&set, n, sizeof(*set), err));
	number(s);
	for (uint32_t a = 0; a < n; a++) {
		PL_TRY(find(s, rw->arg[a], &i, err));
		set[a] = s->set[i];
		at[a] = s->turn[set[a]];
	}
	pl_sort(at, n, sizeof(*at), pl_compare_u32);
	for (uint32_t a = 1; a < n; a++)
		if (at[a] == at[a - 1]) {
			rc = pl_fail(err, PL_EDATA,
				     "two of its tensors are one set already; name one tensor of "
				     "a set");
			goto out;
		}
	for (uint32_t a = 0; a < n; a++)
		s->turn[set[a]] = at[a];
	for (i = 0; i < s->n; i++)
		s->place[i] = s->turn[s->set[i]];
out:
	pl_free(at);
	pl_free(set);
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
		s->parts[s->set[i]] = (uint32_t)rw->k;
		break;
	case PL_RW_ALGORITHM:
	case PL_RW_PRIORITY: /* who goes first is decided while it runs */
		for (uint32_t a = 0; a < rw->n_args; a++)
			PL_TRY(find(s, rw->arg[a], &i, err));
		break;
	default:
		break;
	}
out:
	return rc;
}

/* Numbers of those that are by themselves lie above those that a plan may give. */
static uint32_t base_set(const struct pl_plan *p, uint32_t i)
{
	uint32_t set = p->tensor[i].set;

	return set == PL_NONE ? PL_PLAN_SETS + i : set;
}

static int begin(struct sets *s, const struct pl_plan *p, const uint32_t *base, struct pl_err *err)
{
	size_t n = p->n_tensors;
	int rc;

	if (n >= PL_PLAN_SETS)
		return pl_fail(err, PL_ELIMIT, "a plan of %zu tensors", n);
	s->n = (uint32_t)n;
	PL_TRY(pl_alloc(&s->by_name, n + 1, sizeof(*s->by_name), err));
	PL_TRY(pl_alloc(&s->set, n + 1, sizeof(*s->set), err));
	PL_TRY(pl_alloc(&s->place, n + 1, sizeof(*s->place), err));
	PL_TRY(pl_alloc(&s->parts, n + 1, sizeof(*s->parts), err));
	PL_TRY(pl_alloc(&s->size, n + 1, sizeof(*s->size), err));
	PL_TRY(pl_alloc(&s->empty, n + 1, sizeof(*s->empty), err));
	PL_TRY(pl_alloc(&s->turn, n + 1, sizeof(*s->turn), err));
	PL_TRY(pl_alloc(&s->tmp, n + 1, sizeof(*s->tmp), err));
	for (uint32_t i = 0; i < s->n; i++) {
		s->by_name[i] = (struct named){ p->tensor[i].name, i };
		s->place[i] = i;
		s->parts[i] = 1;
		s->tmp[i] = (struct turn){ .place = base ? base[i] : base_set(p, i), .last = i };
	}
	pl_sort(s->tmp, n, sizeof(*s->tmp), cmp_turn);
	/* a set has the number of its first tensor */
	for (uint32_t i = 0, first = 0; i < s->n; i++) {
		if (s->tmp[i].place != s->tmp[first].place)
			first = i;
		s->set[s->tmp[i].last] = s->tmp[first].last;
		s->size[s->tmp[first].last]++;
	}
	for (uint32_t i = s->n; i-- > 0;)
		if (!s->size[i])
			s->empty[s->n_empty++] = i;
	pl_sort(s->by_name, n, sizeof(*s->by_name), cmp_name);
out:
	return rc;
}

int pl_plan_buckets(const struct pl_plan *p, const uint32_t *base, uint32_t **bucket,
		    uint32_t **parts, uint32_t *n, struct pl_err *err)
{
	struct pl_err why = { 0 };
	struct sets s = { 0 };
	int rc;

	*bucket = *parts = NULL;
	*n = 0;
	PL_TRY(pl_plan_check(p, &why));
	PL_TRY(begin(&s, p, base, &why));
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
	*n = number(&s);
	for (uint32_t b = 0; b < *n; b++)
		(*parts)[b] = s.parts[s.tmp[b].set];
	for (uint32_t i = 0; i < s.n; i++)
		s.set[i] = s.turn[s.set[i]];
	*bucket = s.set;
	s.set = NULL;
	rc = 0;
out:
	pl_free(s.by_name);
	pl_free(s.set);
	pl_free(s.place);
	pl_free(s.parts);
	pl_free(s.size);
	pl_free(s.empty);
	pl_free(s.turn);
	pl_free(s.tmp);
	if (rc < 0 && err && !err->code)
		*err = why;
	return rc;
}
