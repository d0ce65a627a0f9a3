/* Tensor programs as vectors. */
#include <math.h>

#include "tprog/cost.h"
#include "tprog/leaf.h"

/* Places in the vector of a leaf: see leaves.c. */
enum {
	X_FLOATS = 0,
	X_INTEGERS = 7,
	X_CONDITIONS = 14,
	X_ACCESS = 57,
	X_ITERATIONS = 161,
	ACCESS = 18,
	ACCESSES = 5,
	COUNTS = 7,
	X_OWN = PL_TPROG_CDMPP + 30, /* rates, and what stands behind them */
	RATES = 12,
	SUM_BEGINS = 11 + RATES,
};

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

static double work_of(const struct pl_tprog_leaf *l)
{
	double sum = count(l->x[X_ITERATIONS]) + count(l->x[X_FLOATS]);

	for (int i = 0; i < COUNTS; i++)
		sum += count(l->x[X_FLOATS + i]);
	return sum;
}

static void add_sums(const struct pl_tprog_leaf *l, double *sum)
{
	int k = 0;

	sum[k++] += 1;
	sum[k++] += count(l->x[X_ITERATIONS]);
	sum[k++] += count(l->x[X_FLOATS]);
	sum[k++] += count(l->x[X_FLOATS + 5]); /* functions */
	for (int i = 0; i < COUNTS; i++) {
		sum[k] += count(l->x[X_FLOATS + i]);
		sum[k + 1] += count(l->x[X_INTEGERS + i]);
	}
	k += 2;
	sum[k++] += count(l->x[X_CONDITIONS]) + count(l->x[X_CONDITIONS + 1]);
	for (int a = 0; a < ACCESSES; a++)
		for (int i = 0; i < 4; i++) /* bytes, different bytes, lines, different lines */
			sum[k + i] += count(l->x[X_ACCESS + a * ACCESS + 3 + i]);
	k += 4;
	for (int i = 0; i < RATES; i++)
		sum[k++] += (exp2((double)l->x[X_OWN + i]) - PL_TPROG_LEAST_RATE) *
			    count(l->x[X_ITERATIONS]);
	sum[k++] += count(l->x[X_OWN + RATES + 3]); /* begins of a parallel loop */
}

static int add_name(struct pl_tprog_set *s, const char *name, pl_id *id, struct pl_err *err)
{
	return pl_intern_add(&s->names, name, strlen(name), id, err);
}

int pl_tprog_set_add(struct pl_tprog_set *s, const struct pl_tprog *p, bool once,
		     struct pl_err *err)
{
	struct pl_tprog_row row = { .ns = NAN };
	double sum[PL_TPROG_SUMS] = { 0 }, most = -1;
	struct pl_tprog_leaf *leaf;
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
		double work = work_of(&leaf[i]);

		row.work += work;
		add_sums(&leaf[i], sum);
		if (work <= most)
			continue;
		most = work;
		memcpy(row.x, leaf[i].x, sizeof(leaf[i].x));
	}
	if (!(row.work > 0 && isfinite(row.work)))
		PL_TRY(pl_fail(err, PL_EDATA, "line %u: program \"%s\" %s", p->line, p->name,
			       row.work > 0 ? "has more work than a number can say"
					    : "computes nothing"));
	sum[SUM_BEGINS + 1] = row.work;
	sum[SUM_BEGINS + 2] = most;
	sum[SUM_BEGINS + 3] = sum[SUM_BEGINS] * PARALLEL_WORK;
	for (int i = 0; i < PL_TPROG_SUMS; i++)
		row.x[PL_TPROG_FEATURES + i] = i && i != SUM_BEGINS && i != SUM_BEGINS + 1
						       ? pl_tprog_rate(sum[i], row.work)
						       : (float)pl_tprog_slog(sum[i]);
	for (int i = 0; i < PL_TPROG_COLUMNS; i++)
		if (!isfinite(row.x[i]))
			PL_TRY(pl_fail(err, PL_EDATA,
				       "line %u: program \"%s\" has indices or loops beyond all "
				       "numbers",
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
			rc = err->code;
		pl_tprog_fini(&p);
	} while (rc > 0);
	pl_tprog_reader_free(r);
	return rc;
}
