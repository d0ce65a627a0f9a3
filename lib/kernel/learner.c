/*
 * The learners: boosted trees; trees without bounds; the nearest measured shapes; nothing.
 */
#include <math.h>

#include "kernel/learner.h"
#include "kernel/model.h"

/* ---- boosted trees ----------------------------------------------------------------------------
 */

#define MANY_FEATURES 12

/* More trees for products, which have many features, in tables of some thousand rows: they gain by
 * it, and it takes no longer than for tables of usual size. Other families, and smaller tables,
 * only learn what is peculiar to the devices that were measured. */
static uint32_t rounds_of(const struct learner_data *x)
{
	double rows = (double)x->d->n;

	return x->n_features < MANY_FEATURES || rows < 1000
		       ? 160
		       : (uint32_t)fmin(400, fmax(160, 8e6 / rows));
}

static double least_of(const struct learner_data *x)
{
	return x->n_features < MANY_FEATURES ? 30 : fmin(30, fmax(5, (double)x->d->n / 400));
}

static int boost_fit(const struct learner_data *x, void **model, struct pl_err *err)
{
	const struct pl_boost_opts o = {
		.rounds = rounds_of(x),
		.leaves = 14,
		.rate = 0.1,
		.least = least_of(x),
		.loss = PL_BOOST_ABSOLUTE,
		.delta = 0.08,
		.monotone = x->direction,
		.seed = x->seed,
		.pool = x->pool,
	};
	struct pl_boost *m;
	int rc;

	PL_CHECK(pl_alloc(&m, 1, sizeof(*m), err));
	rc = pl_boost_fit(x->d, &o, m, err);
	if (rc < 0) {
		pl_free(m);
		m = NULL;
	}
	*model = m;
	return rc;
}

static void boost_apply(const void *model, const float *x, size_t n, double *y)
{
	pl_boost_apply_many(model, x, PL_FEATURES, n, y);
}

static double boost_explain(const void *model, const float *x, double *part)
{
	return pl_boost_explain(model, x, part);
}

static void boost_importance(const void *model, double *share)
{
	const struct pl_boost *m = model;
	double sum = 0;

	for (int f = 0; f < PL_FEATURES; f++)
		sum += m->gain[f];
	for (int f = 0; f < PL_FEATURES; f++)
		share[f] = sum > 0 ? m->gain[f] / sum : 0;
}

static void boost_free(void *model)
{
	if (model)
		pl_boost_fini(model);
	pl_free(model);
}

static void boost_put(const void *model, struct pl_buf *b)
{
	pl_boost_put(model, b);
}

/* Does a tree use a feature from `first` on? */
static bool uses(const struct pl_boost *m, uint32_t first)
{
	for (size_t i = 0; i < m->n_nodes; i++)
		if (m->node[i].left && m->node[i].feature >= first)
			return true;
	for (uint32_t f = first; f < m->n_features; f++)
		if (m->gain[f] > 0)
			return true;
	return false;
}

static int boost_get(struct pl_cur *c, uint32_t n_features, void **model, struct pl_err *err)
{
	struct pl_boost *m;
	int rc;

	*model = NULL;
	PL_CHECK(pl_alloc(&m, 1, sizeof(*m), err));
	rc = pl_boost_get(c, m, err);
	if (rc >= 0 && (m->n_features != PL_FEATURES || uses(m, n_features))) {
		pl_boost_fini(m);
		rc = pl_fail(err, PL_EDATA, "the trees have other features");
	}
	if (rc < 0)
		pl_free(m);
	else
		*model = m;
	return rc;
}

/* ---- the bounds alone -------------------------------------------------------------------------
 */

static int no_fit(const struct learner_data *x, void **model, struct pl_err *err)
{
	(void)x;
	(void)err;
	*model = NULL;
	return 0;
}

static void no_apply(const void *model, const float *x, size_t n, double *y)
{
	(void)model;
	(void)x;
	memset(y, 0, n * sizeof(*y));
}

static void no_free(void *model)
{
	(void)model;
}

static void no_put(const void *model, struct pl_buf *b)
{
	(void)model;
	(void)b;
}

static int no_get(struct pl_cur *c, uint32_t n_features, void **model, struct pl_err *err)
{
	(void)c;
	(void)n_features;
	(void)err;
	*model = NULL;
	return 0;
}

/* ---- the nearest shapes -----------------------------------------------------------------------
 */

#define NEAR 5 /* neighbours; the median of theirs counts */

struct nearest {
	size_t n;
	float *x, *y; /* (n, PL_FEATURES), scaled; (n) */
	float scale[PL_FEATURES];
};

static void nearest_free(void *model)
{
	struct nearest *m = model;

	if (!m)
		return;
	pl_free(m->x);
	pl_free(m->y);
	pl_free(m);
}

/* Each feature by its standard deviation; one that is constant or not known does not count. */
static void find_scales(const struct pl_boost_data *d, float *scale)
{
	for (uint32_t f = 0; f < d->n_features; f++) {
		double sum = 0, squares = 0, n = 0, var;

		for (size_t i = 0; i < d->n; i++) {
			double v = (double)d->x[f][i];

			if (isnan(v))
				continue;
			sum += v;
			squares += v * v;
			n++;
		}
		var = n > 1 ? squares / n - sum / n * sum / n : 0;
		scale[f] = var > 1e-9 ? (float)(1 / sqrt(var)) : 0;
	}
}

static int nearest_fit(const struct learner_data *x, void **model, struct pl_err *err)
{
	const struct pl_boost_data *d = x->d;
	struct nearest *m;
	int rc;

	*model = NULL;
	PL_CHECK(pl_alloc(&m, 1, sizeof(*m), err));
	m->n = d->n;
	PL_TRY(pl_alloc(&m->x, d->n * PL_FEATURES, sizeof(*m->x), err));
	PL_TRY(pl_alloc(&m->y, d->n, sizeof(*m->y), err));
	find_scales(d, m->scale);
	for (size_t i = 0; i < d->n; i++) {
		for (uint32_t f = 0; f < PL_FEATURES; f++)
			m->x[i * PL_FEATURES + f] = m->scale[f] > 0 ? d->x[f][i] * m->scale[f] : 0;
		m->y[i] = d->y[i];
	}
out:
	if (rc < 0)
		nearest_free(m);
	else
		*model = m;
	return rc;
}

static double distance(const struct nearest *m, size_t i, const float *x)
{
	double sum = 0;

	for (int f = 0; f < PL_FEATURES; f++) {
		double v = m->scale[f] > 0 ? (double)(x[f] * m->scale[f]) -
						     (double)m->x[i * PL_FEATURES + (size_t)f]
					   : 0;

		sum += isnan(v) ? 0 : v * v;
	}
	return sum;
}

static double one_nearest(const struct nearest *m, const float *x)
{
	double far[NEAR], y[NEAR];
	size_t n = 0;

	for (size_t i = 0; i < m->n; i++) {
		double v = distance(m, i, x);
		size_t at = n;

		if (n == NEAR && v >= far[NEAR - 1])
			continue;
		at = n == NEAR ? NEAR - 1 : n++;
		for (; at && far[at - 1] > v; at--) {
			far[at] = far[at - 1];
			y[at] = y[at - 1];
		}
		far[at] = v;
		y[at] = (double)m->y[i];
	}
	return n ? pl_median_double(y, n) : 0;
}

static void nearest_apply(const void *model, const float *x, size_t n, double *y)
{
	for (size_t i = 0; i < n; i++)
		y[i] = one_nearest(model, x + i * PL_FEATURES);
}

static void nearest_put(const void *model, struct pl_buf *b)
{
	const struct nearest *m = model;

	pl_io_put_varint(b, m->n);
	for (int f = 0; f < PL_FEATURES; f++)
		pl_io_put_f64(b, (double)m->scale[f]);
	for (size_t i = 0; i < m->n; i++) {
		pl_io_put_f64(b, (double)m->y[i]);
		for (int f = 0; f < PL_FEATURES; f++)
			pl_io_put_f64(b, (double)m->x[i * PL_FEATURES + (size_t)f]);
	}
}

static int nearest_get(struct pl_cur *c, uint32_t n_features, void **model, struct pl_err *err)
{
	uint64_t n = pl_io_get_varint(c);
	struct nearest *m;
	int rc;

	(void)n_features;
	*model = NULL;
	if (n > (uint64_t)(c->end - c->p) / (8 * (PL_FEATURES + 1)))
		return pl_fail(err, PL_EDATA, "the nearest shapes are cut short");
	PL_CHECK(pl_alloc(&m, 1, sizeof(*m), err));
	m->n = (size_t)n;
	PL_TRY(pl_alloc(&m->x, m->n * PL_FEATURES, sizeof(*m->x), err));
	PL_TRY(pl_alloc(&m->y, m->n, sizeof(*m->y), err));
	for (int f = 0; f < PL_FEATURES; f++)
		m->scale[f] = (float)pl_io_get_f64(c);
	for (size_t i = 0; i < m->n; i++) {
		m->y[i] = (float)pl_io_get_f64(c);
		for (int f = 0; f < PL_FEATURES; f++)
			m->x[i * PL_FEATURES + (size_t)f] = (float)pl_io_get_f64(c);
		if (!isfinite(m->y[i]))
			rc = pl_fail(err, PL_EDATA, "the value of a shape is not finite");
	}
	for (int f = 0; f < PL_FEATURES; f++)
		if (!isfinite(m->scale[f]))
			rc = pl_fail(err, PL_EDATA, "the scale of a feature is not finite");
out:
	if (rc < 0)
		nearest_free(m);
	else
		*model = m;
	return rc;
}

/* ---- the table --------------------------------------------------------------------------------
 */

#define BOOST                                                                                      \
	.fit = boost_fit, .apply = boost_apply, .explain = boost_explain,                          \
	.importance = boost_importance, .free = boost_free, .put = boost_put, .get = boost_get

static const struct kernel_learner learners[] = {
	{ .name = "boost", .bounds = true, BOOST },
	{ .name = "nearest",
	  .bounds = true,
	  .fit = nearest_fit,
	  .apply = nearest_apply,
	  .free = nearest_free,
	  .put = nearest_put,
	  .get = nearest_get },
	{ .name = "raw", BOOST },
	{ .name = "roofline",
	  .bounds = true,
	  .fit = no_fit,
	  .apply = no_apply,
	  .free = no_free,
	  .put = no_put,
	  .get = no_get },
};

const struct kernel_learner *pl_kernel_learner(const char *name)
{
	for (size_t i = 0; i < PL_LEN(learners); i++)
		if (!name || !strcmp(learners[i].name, name))
			return &learners[i];
	return NULL;
}
