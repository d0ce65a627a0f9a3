/*
 * Cost models of tensor programs: learning and calibration.
 *
 * Labels are log(ns / work). A model that is to be calibrated is first fitted FOLDS times without
 * some of the networks, and predicts their programs; from these errors follow the shift and the
 * interval of each operation. When models are compared with what was left out, each of them is
 * calibrated so, from what it learns from alone.
 */
#include <math.h>

#include "core/progress.h"
#include "core/sort.h"
#include "tprog/network.h"

#define FOLDS	 5
#define MANY	 5000 /* programs show enough for more trees */
#define TOGETHER 10   /* with more groups, some are left out together */
#define ENOUGH	 100  /* errors of an operation; with fewer, those of all count */
#define TAIL	 0.05 /* on each side of an interval */
#define PRIOR	 3    /* groups: as if so many more had shown no shift */

/* ---- one fit --------------------------------------------------------------------------------- */

struct fit { /* what was learned from the rows `use` */
	const struct pl_tprog_set *s;
	const struct pl_tprog_fit_opts *o;
	const size_t *use;
	size_t n;
	float *y; /* (n) */
	double middle;
	struct pl_boost trees;
	struct pl_tprog_network *net;
};

static void fit_fini(struct fit *f)
{
	pl_boost_fini(&f->trees);
	pl_tprog_network_free(f->net);
	pl_free(f->y);
}

int pl_tprog_grow(const struct pl_tprog_set *s, const size_t *use, size_t n, const float *y,
		  const float *start, struct pl_boost_opts o, struct pl_boost *trees,
		  struct pl_err *err)
{
	const float *column[PL_TPROG_COLUMNS];
	const struct pl_boost_data d = {
		.n = n, .n_features = PL_TPROG_COLUMNS, .x = column, .y = y
	};
	float *x;
	int rc;

	o.start = start;
	PL_CHECK(pl_alloc(&x, n * PL_TPROG_COLUMNS, sizeof(*x), err));
	for (size_t c = 0; c < PL_TPROG_COLUMNS; c++) {
		column[c] = x + c * n;
		for (size_t i = 0; i < n; i++)
			x[c * n + i] = s->v[use[i]].x[c];
	}
	rc = pl_boost_fit(&d, &o, trees, err);
	pl_free(x);
	return rc;
}

static int fit_rows(struct fit *f, struct pl_err *err)
{
	const struct pl_boost_opts trees = { .rounds = f->n < MANY ? 600 : 1500,
					     .leaves = 48,
					     .rate = 0.07,
					     .least = 8,
					     .samples = 0.7,
					     .features = 0.4,
					     .loss = PL_BOOST_ABSOLUTE,
					     .seed = f->o->seed,
					     .pool = f->o->pool };
	enum pl_tprog_learner l = f->o->learner;
	double *sorted;

	PL_CHECK(pl_alloc(&f->y, f->n + 1, sizeof(*f->y), err));
	PL_CHECK(pl_alloc(&sorted, f->n + 1, sizeof(*sorted), err));
	for (size_t i = 0; i < f->n; i++)
		sorted[i] = (double)(f->y[i] = (float)pl_tprog_unit(&f->s->v[f->use[i]]));
	f->middle = f->n ? pl_median_double(sorted, f->n) : 0;
	pl_free(sorted);
	if (l == PL_TPROG_TREES || l == PL_TPROG_BOTH)
		PL_CHECK(pl_tprog_grow(f->s, f->use, f->n, f->y, NULL, trees, &f->trees, err));
	if (l == PL_TPROG_NET || l == PL_TPROG_BOTH)
		PL_CHECK(pl_tprog_network_fit(f->s, f->use, f->n, f->y, f->o, &f->net, err));
	return 0;
}

/* That of the program whose vector is nearest. */
static double nearest(const struct fit *f, const float *x)
{
	double best = INFINITY, y = 0;

	for (size_t i = 0; i < f->n; i++) {
		const float *other = f->s->v[f->use[i]].x;
		double distance = 0;

		for (int c = 0; c < PL_TPROG_COLUMNS && distance < best; c++)
			distance += ((double)x[c] - other[c]) * ((double)x[c] - other[c]);
		if (distance < best) {
			best = distance;
			y = (double)f->y[i];
		}
	}
	return y;
}

/* Labels of rows by trees (with `more` of them, or NULL), by a network, or by the mean of both. */
static int predict(const struct pl_boost *trees, const struct pl_boost *more,
		   struct pl_tprog_network *net, const struct pl_tprog_set *s, const size_t *row,
		   size_t n, double *y, struct pl_err *err)
{
	memset(y, 0, n * sizeof(*y));
	if (net)
		PL_CHECK(pl_tprog_network_apply(net, s, row, n, y, err));
	for (size_t i = 0; i < n && trees->n_trees; i++) {
		const float *x = s->v[row[i]].x;
		double by_trees = pl_boost_apply(trees, x);

		if (more && more->n_trees)
			by_trees += pl_boost_apply(more, x);
		y[i] = (y[i] + by_trees) / (net ? 2 : 1);
	}
	return 0;
}

static int apply_fit(struct fit *f, const size_t *row, size_t n, double *y, struct pl_err *err)
{
	PL_CHECK(predict(&f->trees, NULL, f->net, f->s, row, n, y, err));
	for (size_t i = 0; i < n; i++)
		if (f->o->learner == PL_TPROG_NEAREST)
			y[i] = nearest(f, f->s->v[row[i]].x);
		else if (f->o->learner == PL_TPROG_WORK)
			y[i] = f->middle;
	return 0;
}

#define NO_FOLD PL_NONE /* of a row that no model sees */

/* y[i]: labels of the rows of fold[i] == k, by those of other folds. */
static int try_fold(const struct pl_tprog_set *s, const struct pl_tprog_fit_opts *o,
		    const uint32_t *fold, uint32_t k, double *y, struct pl_err *err)
{
	struct fit f = { .s = s, .o = o };
	double *one = NULL;
	size_t *use = NULL, n = 0;
	int rc;

	PL_TRY(pl_alloc(&use, s->n + 1, sizeof(*use), err));
	PL_TRY(pl_alloc(&one, s->n + 1, sizeof(*one), err));
	for (size_t i = 0; i < s->n; i++)
		if (fold[i] != k && fold[i] != NO_FOLD)
			use[f.n++] = i;
	n = f.n;
	for (size_t i = 0; i < s->n; i++)
		if (fold[i] == k)
			use[n++] = i;
	f.use = use;
	PL_TRY(fit_rows(&f, err));
	PL_TRY(apply_fit(&f, use + f.n, n - f.n, one, err));
	for (size_t i = f.n; i < n; i++)
		y[use[i]] = one[i - f.n];
out:
	fit_fini(&f);
	pl_free(use);
	pl_free(one);
	return rc;
}

/* ---- calibration ----------------------------------------------------------------------------- */

/* The median of exp(error), where each counts 1 / exp(error). */
double pl_tprog_best_shift(const double *error, size_t n)
{
	double sum = 0, half = 0;

	for (size_t i = 0; i < n; i++)
		sum += exp(-error[i]);
	for (size_t i = 0; i < n; i++) {
		half += exp(-error[i]);
		if (half >= sum / 2)
			return error[i];
	}
	return 0;
}

struct pl_tprog_held_out pl_tprog_percentiles(double *error, size_t n)
{
	double rank = TAIL * (double)(n + 1);
	size_t beyond = rank < 1 ? 0 : (size_t)rank - 1;

	if (!n)
		return (struct pl_tprog_held_out){ .n = 0 };
	pl_sort(error, n, sizeof(*error), pl_compare_double);
	return (struct pl_tprog_held_out){ (uint32_t)n, error[beyond], error[n - 1 - beyond] };
}

static struct pl_tprog_errors errors_of(double *error, size_t n)
{
	struct pl_tprog_held_out x = pl_tprog_percentiles(error, n);
	double shift = n ? pl_tprog_best_shift(error, n) : 0; /* of sorted errors */

	return (struct pl_tprog_errors){
		.n = x.n, .shift = shift, .low = fmin(x.low, shift), .high = fmax(x.high, shift)
	};
}

void pl_tprog_by_op_fini(struct pl_tprog_by_op *r)
{
	pl_free(r->row);
	pl_free(r->first);
}

int pl_tprog_by_op_init(struct pl_tprog_by_op *r, const pl_id *op, size_t n, size_t n_ops,
			struct pl_err *err)
{
	PL_CHECK(pl_alloc(&r->row, n + 1, sizeof(*r->row), err));
	PL_CHECK(pl_alloc(&r->first, n_ops + 3, sizeof(*r->first), err));
	for (size_t i = 0; i < n; i++)
		r->first[op[i] + 2]++;
	for (size_t k = 2; k < n_ops + 3; k++)
		r->first[k] += r->first[k - 1];
	for (size_t i = 0; i < n; i++)
		r->row[r->first[op[i] + 1]++] = i;
	return 0;
}

/* What a few groups show is little to shift others by, so the shift is drawn towards another one.
 * The interval stays, and holds the shift. */
static void draw(struct pl_tprog_errors *e, double towards, double groups)
{
	e->shift = (e->shift * groups + towards * PRIOR) / (groups + PRIOR);
	e->low = fmin(e->low, e->shift);
	e->high = fmax(e->high, e->shift);
}

/* Errors of the rows that have a label y (not NAN), by operation; the last entry is of all. group:
 * names in s; op: numbers of names in s, below n_ops. */
static int calibrate(const struct pl_tprog_set *s, const double *y, const pl_id *group,
		     const pl_id *op, size_t n_ops, struct pl_tprog_errors *e, struct pl_err *err)
{
	struct pl_tprog_by_op by = { .row = NULL };
	size_t *seen = NULL, n = 0, all = 0; /* seen: [group] k + 1, of the last operation */
	double *v = NULL, *groups = NULL;
	int rc;

	PL_TRY(pl_tprog_by_op_init(&by, op, s->n, n_ops, err));
	PL_TRY(pl_alloc(&v, s->n + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&seen, s->names.n + 1, sizeof(*seen), err));
	PL_TRY(pl_alloc(&groups, n_ops + 1, sizeof(*groups), err));
	for (size_t k = 0; k < n_ops; k++) {
		size_t begin = n;

		for (size_t at = by.first[k]; at < by.first[k + 1]; at++) {
			size_t i = by.row[at];

			if (isnan(y[i]))
				continue;
			v[n++] = pl_tprog_unit(&s->v[i]) - y[i];
			all += !seen[group[i]];
			groups[k] += seen[group[i]] != k + 1;
			seen[group[i]] = k + 1;
		}
		e[k] = errors_of(v + begin, n - begin);
	}
	e[n_ops] = errors_of(v, n);
	draw(&e[n_ops], 0, (double)all);
	for (size_t k = 0; k < n_ops; k++)
		if (e[k].n)
			draw(&e[k], e[n_ops].shift, groups[k]);
	rc = 0;
out:
	pl_tprog_by_op_fini(&by);
	pl_free(v);
	pl_free(seen);
	pl_free(groups);
	return rc;
}

static struct pl_tprog_time time_of(const struct pl_tprog_row *r, double y,
				    const struct pl_tprog_errors *op,
				    const struct pl_tprog_errors *all)
{
	const struct pl_tprog_errors *e = op->n >= ENOUGH ? op : all;
	double ns = exp(y + op->offset) * r->work;

	if (e->n < PL_TPROG_INTERVALS) /* without any errors, the shift is 0 */
		return (struct pl_tprog_time){ ns * exp(e->shift), NAN, NAN, true };
	return (struct pl_tprog_time){ ns * exp(e->shift), ns * exp(e->low), ns * exp(e->high),
				       true };
}

/* Numbers 0, 1, ... for the names, in their order. */
static int renumber(const struct pl_tprog_set *s, const pl_id *name, pl_id *number, size_t *n,
		    struct pl_err *err)
{
	pl_id *seen;

	PL_CHECK(pl_alloc(&seen, s->names.n + 1, sizeof(*seen), err));
	*n = 0;
	for (size_t i = 0; i < s->n; i++) {
		if (!seen[name[i]])
			seen[name[i]] = (pl_id)++ * n;
		number[i] = seen[name[i]] - 1;
	}
	pl_free(seen);
	return 0;
}

/* What errs by how much if groups of the rows that have a fold are left out, a FOLDSth of them at a
 * time; with one group there are no errors. Changes fold[]. */
static int find_errors(const struct pl_tprog_set *s, const pl_id *group,
		       const struct pl_tprog_fit_opts *o, pl_id *fold, const pl_id *op,
		       size_t n_ops, struct pl_tprog_errors *e, struct pl_err *err)
{
	pl_id *seen = NULL, groups = 0;
	double *y = NULL;
	int rc;

	PL_TRY(pl_alloc(&seen, s->names.n + 1, sizeof(*seen), err));
	PL_TRY(pl_alloc(&y, s->n + 1, sizeof(*y), err));
	for (size_t i = 0; i < s->n; i++) {
		y[i] = NAN;
		if (fold[i] == NO_FOLD)
			continue;
		if (!seen[group[i]])
			seen[group[i]] = ++groups;
		fold[i] = (seen[group[i]] - 1) % FOLDS;
	}
	groups = groups > 1 ? (pl_id)pl_min_size(groups, FOLDS) : 0;
	for (pl_id k = 0; k < groups; k++) {
		pl_progress("leaving out groups, %u of %u", k + 1, groups);
		PL_TRY(try_fold(s, o, fold, k, y, err));
	}
	rc = calibrate(s, y, group, op, n_ops, e, err);
out:
	pl_free(seen);
	pl_free(y);
	return rc;
}

/* By networks. */
static int calibrate_model(struct pl_tprog_model *m, const struct pl_tprog_set *s,
			   const struct pl_tprog_fit_opts *o, struct pl_err *err)
{
	pl_id *op = NULL, *model = NULL, *fold = NULL;
	int rc;

	PL_TRY(pl_alloc(&fold, s->n + 1, sizeof(*fold), err));
	PL_TRY(pl_alloc(&op, s->n + 1, sizeof(*op), err));
	PL_TRY(pl_alloc(&model, s->n + 1, sizeof(*model), err));
	for (size_t i = 0; i < s->n; i++) {
		const char *name = s->names.str[s->v[i].op];

		PL_TRY(pl_intern_add(&m->ops, name, strlen(name), &op[i], err));
		model[i] = s->v[i].model;
	}
	PL_TRY(pl_alloc(&m->errors, m->ops.n + 1, sizeof(*m->errors), err));
	rc = find_errors(s, model, o, fold, op, m->ops.n, m->errors, err);
out:
	pl_free(fold);
	pl_free(op);
	pl_free(model);
	return rc;
}

/* ---- models ---------------------------------------------------------------------------------- */

void pl_tprog_model_free(struct pl_tprog_model *m)
{
	if (!m)
		return;
	pl_intern_fini(&m->ops);
	pl_free(m->errors);
	pl_boost_fini(&m->trees);
	pl_boost_fini(&m->adapted);
	pl_tprog_network_free(m->net);
	pl_free(m);
}

int pl_tprog_check_rows(const struct pl_tprog_set *s, struct pl_err *err)
{
	if (!s->n)
		return pl_fail(err, PL_EDATA, "no program in these files was measured");
	for (size_t i = 0; i < s->n; i++)
		if (s->v[i].device != s->v[0].device)
			return pl_fail(err, PL_EDATA,
				       "the programs are measured on \"%s\" and on \"%s\": a model "
				       "is of one device (--device=NAME)",
				       s->names.str[s->v[0].device], s->names.str[s->v[i].device]);
	return 0;
}

static int check_ops(const struct pl_tprog_set *s, struct pl_err *err)
{
	struct pl_intern ops = { 0 };
	int rc = 0;

	for (size_t i = 0; i < s->n && rc >= 0; i++) {
		const char *name = s->names.str[s->v[i].op];
		pl_id id;

		rc = pl_intern_add(&ops, name, strlen(name), &id, err);
	}
	if (rc >= 0 && ops.n > PL_TPROG_OPS_MAX)
		rc = pl_fail(err, PL_ELIMIT, "more than %d different operations (op=NAME)",
			     PL_TPROG_OPS_MAX);
	pl_intern_fini(&ops);
	return rc;
}

static void find_range(struct pl_tprog_model *m, const struct pl_tprog_set *s)
{
	for (int c = 0; c < PL_TPROG_COLUMNS; c++) {
		m->least[c] = INFINITY;
		m->most[c] = -INFINITY;
		for (size_t i = 0; i < s->n; i++) {
			m->least[c] = fminf(m->least[c], s->v[i].x[c]);
			m->most[c] = fmaxf(m->most[c], s->v[i].x[c]);
		}
	}
}

int pl_tprog_fit(const struct pl_tprog_set *s, const struct pl_tprog_fit_opts *o,
		 struct pl_tprog_model **out, struct pl_err *err)
{
	struct pl_tprog_fit_opts uncalibrated = *o;
	struct fit f = { .s = s, .o = o, .n = s->n };
	struct pl_tprog_model *m = NULL;
	size_t *use = NULL;
	int rc;

	*out = NULL;
	PL_TRY(pl_tprog_check_rows(s, err));
	PL_TRY(check_ops(s, err));
	PL_TRY(pl_alloc(&m, 1, sizeof(*m), err));
	PL_TRY(pl_alloc(&use, s->n, sizeof(*use), err));
	for (size_t i = 0; i < s->n; i++)
		use[i] = i;
	m->learner = o->learner;
	m->n_rows = s->n;
	snprintf(m->device, sizeof(m->device), "%s", s->names.str[s->v[0].device]);
	find_range(m, s);
	f.use = use;
	PL_TRY(fit_rows(&f, err));
	uncalibrated.intervals = false;
	if (o->intervals)
		PL_TRY(calibrate_model(m, s, &uncalibrated, err));
	else
		PL_TRY(pl_alloc(&m->errors, 1, sizeof(*m->errors), err));
	m->trees = f.trees;
	m->net = f.net;
	f.trees = (struct pl_boost){ .n_trees = 0 };
	f.net = NULL;
	*out = m;
	m = NULL;
out:
	fit_fini(&f);
	pl_free(use);
	pl_tprog_model_free(m);
	return rc;
}

static const struct pl_tprog_errors *errors_named(const struct pl_tprog_model *m, const char *op)
{
	pl_id id = pl_intern_find(&m->ops, op, strlen(op));

	return &m->errors[id == PL_NONE ? m->ops.n : id];
}

static bool is_inside(const struct pl_tprog_model *m, const float *x)
{
	for (int c = 0; c < PL_TPROG_COLUMNS; c++)
		if (!(x[c] >= m->least[c] && x[c] <= m->most[c]))
			return false;
	return true;
}

int pl_tprog_label(struct pl_tprog_model *m, const struct pl_tprog_set *s, double *y,
		   struct pl_err *err)
{
	size_t *row;
	int rc;

	PL_CHECK(pl_alloc(&row, s->n + 1, sizeof(*row), err));
	for (size_t i = 0; i < s->n; i++)
		row[i] = i;
	rc = predict(&m->trees, &m->adapted, m->net, s, row, s->n, y, err);
	pl_free(row);
	return rc;
}

/* The interval also holds the errors of the adaptation. */
static void widen(struct pl_tprog_time *t, const struct pl_tprog_held_out *x)
{
	if (isnan(t->lo_ns) || !x->n)
		return;
	t->lo_ns = fmin(t->lo_ns, t->ns * exp(x->low));
	t->hi_ns = fmax(t->hi_ns, t->ns * exp(x->high));
}

int pl_tprog_apply(struct pl_tprog_model *m, const struct pl_tprog_set *s, struct pl_tprog_time *t,
		   struct pl_err *err)
{
	double *y;
	int rc;

	PL_CHECK(pl_alloc(&y, s->n + 1, sizeof(*y), err));
	rc = pl_tprog_label(m, s, y, err);
	for (size_t i = 0; i < s->n && rc >= 0; i++) {
		t[i] = time_of(&s->v[i], y[i], errors_named(m, s->names.str[s->v[i].op]),
			       &m->errors[m->ops.n]);
		widen(&t[i], &m->held_out);
		t[i].inside = is_inside(m, s->v[i].x);
	}
	pl_free(y);
	return rc;
}

int pl_tprog_discrepancy(struct pl_tprog_model *m, const struct pl_tprog_set *s, double *d,
			 struct pl_err *err)
{
	*d = NAN;
	return m->net && s->n ? pl_tprog_network_discrepancy(m->net, s, d, err) : 0;
}

/* ---- errors on what was left out ------------------------------------------------------------- */

/*
 * t[]: of the rows of the part g, by the others. What it is calibrated with comes from the others,
 * too, of which some groups are left out in turn: nothing of the part g may change its predictions.
 */
static int cross_one(const struct pl_tprog_set *s, const pl_id *group, const pl_id *part, pl_id g,
		     const struct pl_tprog_fit_opts *o, const pl_id *op, size_t n_ops,
		     struct pl_tprog_time *t, struct pl_err *err)
{
	struct pl_tprog_errors *e = NULL;
	pl_id *fold = NULL;
	double *y = NULL;
	int rc;

	PL_TRY(pl_alloc(&e, n_ops + 1, sizeof(*e), err));
	PL_TRY(pl_alloc(&fold, s->n + 1, sizeof(*fold), err));
	PL_TRY(pl_alloc(&y, s->n + 1, sizeof(*y), err));
	PL_TRY(try_fold(s, o, part, g, y, err));
	for (size_t i = 0; i < s->n; i++)
		fold[i] = part[i] == g ? NO_FOLD : 0;
	if (o->intervals)
		PL_TRY(find_errors(s, group, o, fold, op, n_ops, e, err));
	for (size_t i = 0; i < s->n; i++)
		if (part[i] == g)
			t[i] = time_of(&s->v[i], y[i], &e[op[i]], &e[n_ops]);
	rc = 0;
out:
	pl_free(e);
	pl_free(fold);
	pl_free(y);
	return rc;
}

int pl_tprog_cross(const struct pl_tprog_set *s, const pl_id *group,
		   const struct pl_tprog_fit_opts *o, struct pl_tprog_time *t, struct pl_err *err)
{
	pl_id *op = NULL, *number = NULL;
	size_t n_ops, n_groups;
	bool by_device = true;
	int rc;

	PL_TRY(check_ops(s, err));
	PL_TRY(pl_alloc(&op, s->n + 1, sizeof(*op), err));
	PL_TRY(pl_alloc(&number, s->n + 1, sizeof(*number), err));
	for (size_t i = 0; i < s->n; i++)
		op[i] = s->v[i].op;
	PL_TRY(renumber(s, op, op, &n_ops, err));
	PL_TRY(renumber(s, group, number, &n_groups, err));
	for (size_t i = 0; i < s->n; i++)
		number[i] %= TOGETHER;
	n_groups = pl_min_size(n_groups, TOGETHER);
	for (size_t i = 0; i < s->n; i++)
		by_device &= group[i] == s->v[i].device;
	PL_TRY(by_device ? 0 : pl_tprog_check_rows(s, err));
	if (n_groups < 2)
		PL_TRY(pl_fail(err, PL_EDATA,
			       "all programs are of one %s, \"%s\": nothing is left to learn from",
			       by_device ? "device" : "group", s->n ? s->names.str[group[0]] : ""));
	rc = 0;
	for (pl_id g = 0; g < n_groups && rc >= 0; g++) {
		pl_progress("leaving out group %u of %zu", g + 1, n_groups);
		rc = cross_one(s, group, number, g, o, op, n_ops, t, err);
	}
out:
	pl_free(op);
	pl_free(number);
	return rc;
}
