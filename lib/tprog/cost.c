/* Tensor programs as vectors. */
#include <math.h>

#include "tprog/cost.h"
#include "tprog/leaf.h"

/* Sums over all leaves, in their order; those that are no rates are named. */
enum {
	SUM_LEAVES,
	SUM_ITERATIONS,
	SUM_MADS,
	SUM_FUNCTIONS,
	SUM_FLOATS,
	SUM_INTEGERS,
	SUM_CONDITIONS,
	SUM_BYTES, /* and different bytes, lines, different lines */
	SUM_RATES = SUM_BYTES + 4,
	SUM_BEGINS = SUM_RATES + PL_TPROG_RATES,
	SUM_WORK,
	SUM_LARGEST,
	SUM_BEGINS_BY_WORK,
	SUMS
};
_Static_assert(SUMS == PL_TPROG_SUMS, "sums over leaves");

void pl_tprog_set_fini(struct pl_tprog_set *s)
{
	pl_free(s->v);
	pl_free(s->leaf);
	pl_intern_fini(&s->names);
	memset(s, 0, sizeof(*s));
}

#define PARALLEL_WORK 0x1p14 /* that takes about as long as a parallel loop to begin */

/* The count whose slog() this is. */
static double count(float slog)
{
	return exp2((double)slog) - 1;
}

static double iterations(const struct pl_tprog_leaf *l)
{
	return count(l->x[PL_TPROG_X_ITERATIONS]);
}

/* Of all iterations. */
static double rate(const struct pl_tprog_leaf *l, int i)
{
	return (exp2((double)l->x[PL_TPROG_X_RATES + i]) - PL_TPROG_LEAST_RATE) * iterations(l);
}

static double floats(const struct pl_tprog_leaf *l, enum pl_tprog_count of)
{
	return count(l->x[PL_TPROG_X_FLOATS + of]);
}

/* A mad is two operations. */
static double work_of(const struct pl_tprog_leaf *l)
{
	double sum = iterations(l) + floats(l, PL_TPROG_N_MAD);

	for (int i = 0; i < PL_TPROG_N_COUNTS; i++)
		sum += floats(l, i);
	return sum;
}

static void add_sums(const struct pl_tprog_leaf *l, double *sum)
{
	sum[SUM_LEAVES] += 1;
	sum[SUM_ITERATIONS] += iterations(l);
	sum[SUM_MADS] += floats(l, PL_TPROG_N_MAD);
	sum[SUM_FUNCTIONS] += floats(l, PL_TPROG_N_FUNCTION);
	for (int i = 0; i < PL_TPROG_N_COUNTS; i++) {
		sum[SUM_FLOATS] += floats(l, i);
		sum[SUM_INTEGERS] += count(l->x[PL_TPROG_X_INTEGERS + i]);
	}
	sum[SUM_CONDITIONS] +=
		count(l->x[PL_TPROG_X_CONDITIONS]) + count(l->x[PL_TPROG_X_SELECTIONS]);
	for (int a = 0; a < PL_TPROG_TOP; a++) {
		const float *x = l->x + PL_TPROG_X_ACCESS + a * PL_TPROG_A_ENTRIES;

		for (int i = 0; i < SUM_RATES - SUM_BYTES; i++)
			sum[SUM_BYTES + i] += count(x[PL_TPROG_A_BYTES + i]);
	}
	for (int i = 0; i < PL_TPROG_RATES; i++)
		sum[SUM_RATES + i] += rate(l, i);
	sum[SUM_BEGINS] += count(l->x[PL_TPROG_X_BEGINS]);
}

static bool is_finite(const float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (!isfinite(x[i]))
			return false;
	return true;
}

/* Numbers of another kind are logarithms of how many, not of how many for a unit of work. */
static bool is_count(int sum)
{
	return sum == SUM_LEAVES || sum == SUM_BEGINS || sum == SUM_WORK;
}

static int add_name(struct pl_tprog_set *s, const char *name, pl_id *id, struct pl_err *err)
{
	return pl_intern_add(&s->names, name, strlen(name), id, err);
}

int pl_tprog_set_add(struct pl_tprog_set *s, const struct pl_tprog *p, bool once,
		     struct pl_err *err)
{
	struct pl_tprog_row row = { .ns = NAN };
	double sum[PL_TPROG_SUMS] = { 0 }, most = 0, longest = -INFINITY;
	struct pl_tprog_leaf *leaf;
	bool finite;
	size_t n;
	int rc;

	if (!p->n_measured && !once)
		return 0;
	PL_CHECK(pl_tprog_leaves(p, &leaf, &n, err));
	row.leaf = (uint32_t)s->n_leaves;
	row.n_leaves = (uint32_t)n;
	PL_TRY(pl_grow(&s->leaf, &s->cap_leaves, s->n_leaves + n + 1, sizeof(*leaf), err));
	memcpy(s->leaf + s->n_leaves, leaf, n * sizeof(*leaf));
	s->n_leaves += n;
	for (size_t i = 0; i < n; i++) {
		double work = work_of(&leaf[i]), cycles = rate(&leaf[i], PL_TPROG_R_CYCLES);

		row.work += work;
		add_sums(&leaf[i], sum);
		if (!(cycles > longest))
			continue;
		longest = cycles;
		most = work;
		memcpy(row.x, leaf[i].x, sizeof(leaf[i].x));
	}
	if (!n || !isfinite(row.work))
		PL_TRY(pl_fail(err, PL_EDATA, "line %u: program \"%s\" %s", p->line, p->name,
			       n ? "has more work than a number can say" : "computes nothing"));
	sum[SUM_WORK] = row.work;
	sum[SUM_LARGEST] = most;
	sum[SUM_BEGINS_BY_WORK] = sum[SUM_BEGINS] * PARALLEL_WORK;
	for (int i = 0; i < PL_TPROG_SUMS; i++)
		row.x[PL_TPROG_FEATURES + i] = is_count(i) ? (float)pl_tprog_slog(sum[i])
							   : pl_tprog_rate(sum[i], row.work);
	finite = is_finite(row.x, PL_TPROG_COLUMNS);
	for (size_t i = 0; i < n; i++)
		finite &= is_finite(leaf[i].x, PL_TPROG_FEATURES);
	if (!finite)
		PL_TRY(pl_fail(err, PL_EDATA,
			       "line %u: program \"%s\" has indices or loops beyond all numbers",
			       p->line, p->name));
	PL_TRY(add_name(s, p->name, &row.program, err));
	PL_TRY(add_name(s, p->model, &row.model, err));
	PL_TRY(add_name(s, p->op, &row.op, err));
	if (once)
		PL_TRY(pl_append(&s->v, &s->n, &s->cap, &row, sizeof(row), err));
	for (size_t i = 0; i < p->n_measured && !once; i++) {
		row.ns = p->measured[i].median;
		PL_TRY(add_name(s, p->measured[i].device, &row.device, err));
		PL_TRY(pl_append(&s->v, &s->n, &s->cap, &row, sizeof(row), err));
	}
out:
	pl_free(leaf);
	return rc;
}

int pl_tprog_set_read(struct pl_tprog_set *s, struct pl_in *in, bool once, struct pl_err *err)
{
	struct pl_tprog_reader *r;
	int rc;

	PL_CHECK(pl_tprog_reader_new(in, &r, err));
	do {
		struct pl_tprog p = { .name = NULL };

		rc = pl_tprog_next(r, &p, err);
		if (rc > 0 && pl_tprog_set_add(s, &p, once, err) < 0)
			rc = pl_wrap(err, "%s", pl_in_name(in));
		pl_tprog_fini(&p);
	} while (rc > 0);
	pl_tprog_reader_free(r);
	return rc;
}
