/*
 * Buckets, and the tensors as a plan synchronises them.
 *
 * At first every tensor is in its set of the base, or in a set of its own, and its place is its
 * number in the order of readiness. A fusion takes tensors out of their sets and puts them into one
 * set. The place of a set is the last place of its tensors, because then the whole set is ready. An
 * order numbers all sets by place, exchanges the numbers of its sets, and makes the number of a set
 * the place of its tensors. At the end sets are numbered from 0 by place, with a counting sort.
 */
#include "plan/buckets.h"
#include "plan/internal.h"

/* ---- buckets --------------------------------------------------------------------------------- */

int pl_plan_buckets_init(struct pl_buckets *b, size_t n, struct pl_err *err)
{
	int rc;

	memset(b, 0, sizeof(*b));
	if (n >= PL_PLAN_SETS)
		return pl_fail(err, PL_ELIMIT, "buckets of %zu tensors", n);
	b->n_tensors = b->n_sets = (uint32_t)n;
	PL_TRY(pl_alloc(&b->set, n + 1, sizeof(*b->set), err));
	PL_TRY(pl_alloc(&b->place, n + 1, sizeof(*b->place), err));
	PL_TRY(pl_alloc(&b->parts, n + 1, sizeof(*b->parts), err));
	for (uint32_t i = 0; i < n; i++) {
		b->set[i] = b->place[i] = i;
		b->parts[i] = 1;
	}
out:
	if (rc < 0)
		pl_plan_buckets_fini(b);
	return rc;
}

static void forget_sizes(struct pl_buckets *b)
{
	pl_free(b->size);
	pl_free(b->unused);
	b->size = b->unused = NULL;
}

void pl_plan_buckets_fini(struct pl_buckets *b)
{
	pl_free(b->set);
	pl_free(b->place);
	pl_free(b->parts);
	forget_sizes(b);
	memset(b, 0, sizeof(*b));
}

void pl_plan_buckets_copy(struct pl_buckets *to, const struct pl_buckets *from)
{
	size_t n = from->n_tensors;

	forget_sizes(to);
	to->n_sets = from->n_sets;
	memcpy(to->set, from->set, n * sizeof(*to->set));
	memcpy(to->place, from->place, n * sizeof(*to->place));
	memcpy(to->parts, from->parts, n * sizeof(*to->parts));
}

static int count_sizes(struct pl_buckets *b, struct pl_err *err)
{
	if (b->size)
		return 0;
	b->n_unused = 0;
	PL_CHECK(pl_alloc(&b->size, (size_t)b->n_tensors + 1, sizeof(*b->size), err));
	PL_CHECK(pl_alloc(&b->unused, (size_t)b->n_tensors + 1, sizeof(*b->unused), err));
	for (uint32_t i = 0; i < b->n_tensors; i++)
		b->size[b->set[i]]++;
	for (uint32_t i = b->n_tensors; i-- > 0;)
		if (!b->size[i])
			b->unused[b->n_unused++] = i;
	return 0;
}

int pl_plan_buckets_fuse(struct pl_buckets *b, const uint32_t *tensor, uint32_t n,
			 struct pl_err *err)
{
	uint32_t to = 0;
	int rc = count_sizes(b, err);

	for (uint32_t a = 0; rc == 0 && a < n; a++) {
		uint32_t *set = &b->set[tensor[a]];

		if (a && *set == to) /* which was unused before the line */
			return pl_fail(
				err, PL_EDATA,
				"two of its names are one tensor: NAME and \"grad NAME\" are "
				"the same; name it once");
		if (--b->size[*set] == 0)
			b->unused[b->n_unused++] = *set;
		if (!a) /* there are never more sets than tensors, so a number is unused */
			to = b->unused[--b->n_unused];
		*set = to;
		b->size[to]++;
	}
	if (rc == 0 && n)
		b->parts[to] = 1;
	return rc;
}

int pl_plan_buckets_number(struct pl_buckets *b, uint32_t *from, struct pl_err *err)
{
	size_t n = b->n_tensors;
	uint32_t *place, *last, *at, *old, sets = 0;

	PL_CHECK(pl_alloc(&place, 4 * n + 1, sizeof(*place), err));
	forget_sizes(b);
	last = place + n;
	old = last + n;
	at = old + n; /* [place + 1]: where sets of that place begin */
	for (uint32_t t = 0; t < n; t++) {
		uint32_t s = b->set[t];

		place[s] = b->place[t] > place[s] ? b->place[t] : place[s];
		last[s] = t;
	}
	for (uint32_t t = 0; t < n; t++)
		if (last[b->set[t]] == t)
			at[place[b->set[t]] + 1]++;
	for (size_t i = 0; i < n; i++)
		at[i + 1] += at[i];
	for (uint32_t t = 0; t < n; t++)
		if (last[b->set[t]] == t) {
			old[at[place[b->set[t]]]++] = b->set[t];
			sets++;
		}
	for (uint32_t i = 0; i < sets; i++) {
		place[old[i]] = i; /* the new number */
		last[i] = b->parts[old[i]];
	}
	memcpy(b->parts, last, sets * sizeof(*last));
	for (uint32_t t = 0; t < n; t++)
		b->set[t] = place[b->set[t]];
	b->n_sets = sets;
	if (from)
		memcpy(from, old, sets * sizeof(*old));
	pl_free(place);
	return 0;
}

int pl_plan_buckets_order(struct pl_buckets *b, const uint32_t *tensor, uint32_t n,
			  struct pl_err *err)
{
	uint32_t *at, *turn = NULL;
	int rc;

	PL_CHECK(pl_alloc(&at, n, sizeof(*at), err));
	PL_TRY(pl_alloc(&turn, (size_t)b->n_tensors + 1, sizeof(*turn), err));
	PL_TRY(pl_plan_buckets_number(b, NULL, err));
	for (uint32_t a = 0; a < n; a++)
		at[a] = b->set[tensor[a]];
	pl_sort(at, n, sizeof(*at), pl_compare_u32);
	for (uint32_t a = 1; a < n; a++)
		if (at[a] == at[a - 1]) {
			rc = pl_fail(err, PL_EDATA,
				     "two of its tensors are one set already; name one tensor of "
				     "a set");
			goto out;
		}
	for (uint32_t i = 0; i < b->n_sets; i++)
		turn[i] = i;
	for (uint32_t a = 0; a < n; a++)
		turn[b->set[tensor[a]]] = at[a];
	for (uint32_t i = 0; i < b->n_tensors; i++)
		b->place[i] = turn[b->set[i]];
	rc = pl_plan_buckets_number(b, NULL, err);
out:
	pl_free(at);
	pl_free(turn);
	return rc;
}

void pl_plan_buckets_members(const struct pl_buckets *b, uint32_t *first, uint32_t *member)
{
	memset(first, 0, ((size_t)b->n_tensors + 3) * sizeof(*first));
	for (uint32_t t = 0; t < b->n_tensors; t++)
		first[b->set[t] + 2]++;
	for (size_t i = 2; i < (size_t)b->n_tensors + 3; i++)
		first[i] += first[i - 1];
	for (uint32_t t = 0; t < b->n_tensors; t++)
		member[first[b->set[t] + 1]++] = t;
}

/* ---- what frameworks do by themselves -------------------------------------------------------- */

struct pl_bucket_rule pl_plan_bucket_rule_ddp(int64_t limit_bytes)
{
	const int64_t mib = (int64_t)1 << 20;

	return (struct pl_bucket_rule){ .first = pl_min_i64(limit_bytes, mib),
					.limit = limit_bytes };
}

struct pl_bucket_rule pl_plan_bucket_rule_mb(double mib, int64_t first_mib)
{
	const double unit = 1 << 20;
	int64_t limit = (int64_t)(mib * unit);

	return (struct pl_bucket_rule){ .first = first_mib ? (int64_t)((double)first_mib * unit)
							   : limit,
					.limit = limit };
}

uint32_t pl_plan_bucket_next(struct pl_bucket_filler *f, int64_t bytes)
{
	int64_t limit = f->later ? f->rule.limit : f->rule.first;

	if (f->any && (f->rule.before ? pl_add_sat(f->bytes, bytes) > limit : f->bytes >= limit)) {
		f->set++;
		f->bytes = 0;
		f->later = true;
	}
	f->any = true;
	f->bytes = pl_add_sat(f->bytes, bytes);
	return f->set;
}

uint32_t pl_plan_bucket_end(const struct pl_bucket_filler *f)
{
	return f->set + f->any;
}

/* ---- plans ----------------------------------------------------------------------------------- */

struct sets {
	const struct pl_plan *p;
	struct pl_intern names; /* of the tensors */
	struct pl_buckets *b;
	uint32_t *tensor; /* of a line */
	uint32_t unknown; /* which name of a line the base has not; PL_NONE */
};

/* Numbers of the tensors of a line. */
static int find_all(struct sets *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_plan_near near;

	for (uint32_t a = 0; a < rw->n_args; a++) {
		s->tensor[a] = pl_intern_find(&s->names, rw->arg[a], strlen(rw->arg[a]));
		for (uint32_t i = 0; i < s->names.n && s->tensor[a] == PL_NONE; i++)
			if (!strcmp(pl_plan_param(s->p->tensor[i].name), pl_plan_param(rw->arg[a])))
				s->tensor[a] = i;
		if (s->tensor[a] != PL_NONE)
			continue;
		s->unknown = a;
		near = pl_plan_near_begin(rw->arg[a]);
		for (pl_id id = 0; id < s->names.n; id++)
			pl_plan_near(&near, pl_intern_get(&s->names, id));
		return pl_plan_no_name(&near, "the base has",
				       "the plan is another job's, or lacks a line: tensor NAME "
				       "BYTES",
				       err);
	}
	return 0;
}

static int fuse(struct sets *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	for (uint32_t a = 0; a < rw->n_args; a++)
		if (s->b->parts[s->b->set[s->tensor[a]]] > 1)
			return pl_fail(err, PL_EDATA,
				       "\"%.200s\" is partitioned already; fuse first, then "
				       "partition",
				       rw->arg[a]);
	return pl_plan_buckets_fuse(s->b, s->tensor, rw->n_args, err);
}

/* Stages of a pipeline have their own processes, which share no buckets. O(tensors x stages). */
static void fill(struct sets *s, struct pl_bucket_rule rule)
{
	const struct pl_ptensor *x = s->p->tensor;
	struct pl_buckets *b = s->b;
	uint32_t n = 0;

	for (uint32_t t = 0; t < b->n_tensors; t++) {
		b->set[t] = PL_NONE;
		b->place[t] = t;
		b->parts[t] = 1;
	}
	for (uint32_t i = 0; i < b->n_tensors; i++) {
		struct pl_bucket_filler f = { .rule = rule, .set = n };

		if (b->set[i] != PL_NONE)
			continue;
		for (uint32_t t = i; t < b->n_tensors; t++)
			if (x[t].stage == x[i].stage)
				b->set[t] = pl_plan_bucket_next(&f, x[t].bytes);
		n = pl_plan_bucket_end(&f);
	}
	forget_sizes(b);
}

static int apply(struct sets *s, const struct pl_rewrite *rw, struct pl_err *err)
{
	if (pl_plan_names_tensors(rw->op))
		PL_CHECK(find_all(s, rw, err));
	if (rw->op == PL_RW_FUSE_TENSORS)
		return fuse(s, rw, err);
	if (rw->op == PL_RW_ORDER)
		return pl_plan_buckets_order(s->b, s->tensor, rw->n_args, err);
	if (rw->op == PL_RW_BUCKET_MB)
		fill(s, pl_plan_bucket_rule_mb(rw->x, rw->k));
	if (rw->op == PL_RW_PARTITION_TENSOR)
		s->b->parts[s->b->set[s->tensor[0]]] = (uint32_t)rw->k;
	return 0;
}

struct member { /* of a set of the base */
	uint32_t set, tensor;
};

PL_COMPARATOR(by_set, struct member, set, tensor);

/* Puts each tensor into its set of the base; a set has the number of its first tensor. Tensors
 * without a set of the base get numbers above the numbers that a plan may use. */
static int take_base(const struct pl_plan *p, const uint32_t *base, struct pl_buckets *b,
		     struct pl_err *err)
{
	uint32_t first = 0;
	struct member *v;

	PL_CHECK(pl_alloc(&v, p->n_tensors + 1, sizeof(*v), err));
	for (uint32_t i = 0; i < b->n_tensors; i++) {
		uint32_t set = base ? base[i] : p->tensor[i].set;

		v[i] = (struct member){ !base && set == PL_NONE ? PL_PLAN_SETS + i : set, i };
	}
	pl_sort(v, b->n_tensors, sizeof(*v), by_set);
	for (uint32_t i = 0; i < b->n_tensors; i++) {
		if (v[i].set != v[first].set)
			first = i;
		b->set[v[i].tensor] = v[first].tensor;
	}
	pl_free(v);
	return 0;
}

int pl_plan_buckets(const struct pl_plan *p, const uint32_t *base, struct pl_buckets *b,
		    struct pl_err *err)
{
	struct sets s = { .p = p, .b = b, .unknown = PL_NONE };
	size_t most = 1;
	pl_id id;
	int rc;

	memset(b, 0, sizeof(*b));
	PL_TRY(pl_plan_check(p, err));
	for (size_t i = 0; i < p->n_rw; i++)
		most = p->rw[i].n_args > most ? p->rw[i].n_args : most;
	PL_TRY(pl_plan_buckets_init(b, p->n_tensors, err));
	PL_TRY(take_base(p, base, b, err));
	PL_TRY(pl_alloc(&s.tensor, most, sizeof(*s.tensor), err));
	/* the names differ, so a name has the number of its tensor */
	for (uint32_t i = 0; i < b->n_tensors; i++)
		PL_TRY(pl_intern_add(&s.names, p->tensor[i].name, strlen(p->tensor[i].name), &id,
				     err));
	for (size_t i = 0; i < p->n_rw; i++) {
		rc = apply(&s, &p->rw[i], err);
		if (rc < 0) {
			pl_plan_wrap(p->file, &p->rw[i], i, s.unknown, err);
			goto out;
		}
	}
	rc = pl_plan_buckets_number(b, NULL, err);
out:
	pl_intern_fini(&s.names);
	pl_free(s.tensor);
	if (rc < 0)
		pl_plan_buckets_fini(b);
	return rc;
}
