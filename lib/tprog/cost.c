/* How long tensor programs take: vectors of programs, and trees that learn from them. */
#include <math.h>

#include "core/progress.h"
#include "core/sort.h"
#include "tprog/network.h"

/* Places in the vector of a leaf: see leaves.c. */
enum {
	X_FLOATS = 0,
	X_INTEGERS = 7,
	X_CONDITIONS = 14,
	X_ACCESS = 57,
	X_ITERATIONS = 161,
	ACCESS = 18,
	ACCESSES = 5,
	COUNTS = 7
};

void pl_tprog_set_fini(struct pl_tprog_set *s)
{
	pl_free(s->v);
	pl_free(s->leaf);
	pl_intern_fini(&s->names);
	memset(s, 0, sizeof(*s));
}

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
}

static int add_name(struct pl_tprog_set *s, const char *name, pl_id *id, struct pl_err *err)
{
	return pl_intern_add(&s->names, name, strlen(name), id, err);
}

int pl_tprog_set_add(struct pl_tprog_set *s, const struct pl_tprog *p, struct pl_err *err)
{
	struct pl_tprog_row row = { .work = 0 };
	double sum[PL_TPROG_SUMS] = { 0 }, most = -1;
	struct pl_tprog_leaf *leaf;
	size_t n;
	int rc;

	if (!p->n_measured)
		return 0;
	PL_CHECK(pl_tprog_leaves(p, &leaf, &n, err));
	row.leaf = (uint32_t)s->n_leaves;
	row.n_leaves = (uint32_t)n;
	PL_TRY(pl_grow(&s->leaf, &s->cap_leaves, s->n_leaves + n, sizeof(*leaf), err));
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
	sum[PL_TPROG_SUMS - 1] = most / row.work;
	for (int i = 0; i < PL_TPROG_SUMS; i++)
		row.x[PL_TPROG_FEATURES + i] = (float)log2(1 + sum[i]);
	PL_TRY(add_name(s, p->model, &row.model, err));
	PL_TRY(add_name(s, p->op, &row.op, err));
	for (size_t i = 0; i < p->n_measured; i++) {
		row.ns = p->measured[i].median;
		PL_TRY(add_name(s, p->measured[i].device, &row.device, err));
		PL_TRY(pl_append(&s->v, &s->n, &s->cap, &row, sizeof(row), err));
	}
out:
	pl_free(leaf);
	return rc;
}

int pl_tprog_set_read(struct pl_tprog_set *s, struct pl_in *in, struct pl_err *err)
{
	struct pl_tprog_reader *r;
	int rc;

	PL_CHECK(pl_tprog_reader_new(in, &r, err));
	do {
		struct pl_tprog p = { .name = NULL };

		rc = pl_tprog_next(r, &p, err);
		if (rc > 0 && pl_tprog_set_add(s, &p, err) < 0)
			rc = err->code;
		pl_tprog_fini(&p);
	} while (rc > 0);
	pl_tprog_reader_free(r);
	return rc;
}

/* ---- learning -------------------------------------------------------------------------------- */

struct learner {
	const struct pl_tprog_set *s;
	const struct pl_tprog_fit_opts *o;
	const size_t *use; /* rows to learn from */
	size_t n;
	float *x, *y; /* [column][row]; log of ns for a unit of work */
	struct pl_boost trees;
	struct pl_tprog_network *net;
};

static double unit(const struct pl_tprog_row *r)
{
	return log(r->ns / r->work);
}

static int fit_trees(struct learner *l, struct pl_err *err)
{
	const float *column[PL_TPROG_COLUMNS];
	const struct pl_boost_data d = {
		.n = l->n, .n_features = PL_TPROG_COLUMNS, .x = column, .y = l->y
	};
	const struct pl_boost_opts o = { .rounds = 500,
					 .leaves = 48,
					 .rate = 0.07,
					 .least = 8,
					 .samples = 0.7,
					 .features = 0.4,
					 .loss = PL_BOOST_ABSOLUTE,
					 .seed = l->o->seed,
					 .pool = l->o->pool };

	PL_CHECK(pl_alloc(&l->x, l->n * PL_TPROG_COLUMNS, sizeof(*l->x), err));
	for (size_t c = 0; c < PL_TPROG_COLUMNS; c++) {
		column[c] = l->x + c * l->n;
		for (size_t i = 0; i < l->n; i++)
			l->x[c * l->n + i] = l->s->v[l->use[i]].x[c];
	}
	return pl_boost_fit(&d, &o, &l->trees, err);
}

/* That of the program whose vector is nearest. */
static double nearest(const struct learner *l, const float *x)
{
	double best = INFINITY, y = 0;

	for (size_t i = 0; i < l->n; i++) {
		const float *other = l->s->v[l->use[i]].x;
		double distance = 0;

		for (int c = 0; c < PL_TPROG_COLUMNS && distance < best; c++)
			distance += ((double)x[c] - other[c]) * ((double)x[c] - other[c]);
		if (distance < best) {
			best = distance;
			y = (double)l->y[i];
		}
	}
	return y;
}

static int fit(struct learner *l, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&l->y, l->n + 1, sizeof(*l->y), err));
	for (size_t i = 0; i < l->n; i++)
		l->y[i] = (float)unit(&l->s->v[l->use[i]]);
	if (l->o->learner == PL_TPROG_NET)
		return pl_tprog_network_fit(l->s, l->use, l->n, l->y, l->o, &l->net, err);
	return l->o->learner == PL_TPROG_TREES ? fit_trees(l, err) : 0;
}

static double apply(const struct learner *l, const struct pl_tprog_row *r, double middle)
{
	double y = l->o->learner == PL_TPROG_TREES     ? pl_boost_apply(&l->trees, r->x)
		   : l->o->learner == PL_TPROG_NEAREST ? nearest(l, r->x)
						       : middle;

	return exp(y) * r->work;
}

/* Learn from the rows `use`, predict those of the group. */
static int predict_group(const struct pl_tprog_set *s, const pl_id *group, pl_id of,
			 const struct pl_tprog_fit_opts *o, const size_t *use, size_t n, double *ns,
			 struct pl_err *err)
{
	struct learner l = { .s = s, .o = o, .use = use, .n = n };
	double *sorted = NULL, middle;
	size_t *rows = NULL, n_rows = 0;
	float *y = NULL;
	int rc;

	PL_TRY(fit(&l, err));
	PL_TRY(pl_alloc(&sorted, n + 1, sizeof(*sorted), err));
	for (size_t i = 0; i < n; i++)
		sorted[i] = (double)l.y[i];
	middle = pl_median_double(sorted, n);
	PL_TRY(pl_alloc(&rows, s->n, sizeof(*rows), err));
	PL_TRY(pl_alloc(&y, s->n, sizeof(*y), err));
	for (size_t i = 0; i < s->n; i++)
		if (group[i] == of)
			rows[n_rows++] = i;
	if (l.net)
		PL_TRY(pl_tprog_network_apply(l.net, s, rows, n_rows, y, err));
	for (size_t i = 0; i < n_rows; i++)
		ns[rows[i]] = l.net ? exp((double)y[i]) * s->v[rows[i]].work
				    : apply(&l, &s->v[rows[i]], middle);
out:
	pl_boost_fini(&l.trees);
	pl_tprog_network_free(l.net);
	pl_free(rows);
	pl_free(y);
	pl_free(l.x);
	pl_free(l.y);
	pl_free(sorted);
	return rc;
}

int pl_tprog_cross(const struct pl_tprog_set *s, const pl_id *group,
		   const struct pl_tprog_fit_opts *o, double *ns, struct pl_err *err)
{
	size_t *use;
	int rc = 0;

	PL_CHECK(pl_alloc(&use, s->n + 1, sizeof(*use), err));
	for (pl_id g = 0; g < s->names.n && rc >= 0; g++) {
		size_t n = 0;

		for (size_t i = 0; i < s->n; i++)
			if (group[i] != g)
				use[n++] = i;
		if (n == s->n)
			continue;
		if (!n) {
			rc = pl_fail(err, PL_EDATA,
				     "all programs are of one group, \"%s\": "
				     "nothing is left to learn from",
				     s->names.str[g]);
			break;
		}
		pl_progress("leaving out %s", s->names.str[g]);
		rc = predict_group(s, group, g, o, use, n, ns, err);
	}
	pl_free(use);
	return rc;
}
