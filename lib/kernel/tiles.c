/*
 * Which tile a library takes for a product.
 *
 * Libraries choose among a few kernels, each with its tile, by rules that nobody publishes and that
 * differ from generation to generation: cuBLAS takes 128 x 128 for every batched product on A100,
 * 128 x 64 on Pascal, and one of four on Volta. So the choice is learned for each generation from
 * the names of the kernels that were measured: for each tile, trees say whether it is taken. A
 * device of a generation that was not measured takes the rules of the nearest one, older first.
 *
 * A CPU works on tiles of some lanes, which are small beside its products. Where no kernel is
 * known, the tile that would take the least time is taken, of those that libraries have; small ones
 * reach a smaller part of the rate, because each number that is loaded takes part in fewer
 * operations.
 */
#include <stdlib.h>

#include "kernel/model_internal.h"

#define FEATURES 6
#define ROUNDS	 4
#define LEAST	 30 /* samples of a generation */

void pl_tiles_fini(struct tiles *t)
{
	for (size_t i = 0; i < t->n; i++) {
		for (uint32_t k = 0; k < t->v[i].n; k++)
			pl_boost_fini(&t->v[i].is[k]);
		pl_boost_flat_free(t->v[i].flat);
	}
	pl_free(t->v);
	*t = (struct tiles){ 0 };
}

#define STRIDE 8 /* features, and zeros */

/* Their logarithms are the features. */
static void sizes(const struct pl_kernel *conv, const struct pl_device *d, double *v)
{
	const struct pl_kernel gemm = pl_kernel_as_gemm(conv);
	const double *k = gemm.dim;

	memcpy(v, k, 4 * sizeof(*v));
	v[4] = ceil(k[1] / 128) * ceil(k[2] / 128) * k[0] / d->sms;
	v[5] = ceil(k[1] / 64) * ceil(k[2] / 64) * k[0] / d->sms;
}

static bool same_tile(struct pl_tile a, struct pl_tile b)
{
	return a.a == b.a && a.b == b.b && a.sliced == b.sliced;
}

/* The number of the tile in the chooser, perhaps a new one; PL_NONE: there are too many. */
static uint32_t class_of(struct tile_chooser *c, struct pl_tile t)
{
	uint32_t i = 0;

	while (i < c->n && !same_tile(c->tile[i], t))
		i++;
	if (i == c->n && c->n < TILE_CLASSES)
		c->tile[c->n++] = t;
	return i < c->n ? i : PL_NONE;
}

/* The samples of a generation whose tile is known, into `mine`. */
static size_t of_generation(const struct pl_samples *s, const uint32_t *v, size_t n, int generation,
			    uint32_t *mine)
{
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		const struct pl_sample *x = &s->v[v[i]];

		if (x->tile.a && pl_device_generation(&s->devices.v[x->device]) == generation)
			mine[count++] = v[i];
	}
	return count;
}

/* Trees for each tile of the chooser. */
static int fit_chooser(struct tile_chooser *c, const struct pl_samples *s, const uint32_t *v,
		       size_t n, struct pl_err *err)
{
	float *x = NULL, *y = NULL, row[STRIDE];
	const float *column[FEATURES];
	uint32_t *class = NULL;
	int rc;

	PL_TRY(pl_alloc(&x, n * FEATURES, sizeof(*x), err));
	PL_TRY(pl_alloc(&y, n, sizeof(*y), err));
	PL_TRY(pl_alloc(&class, n, sizeof(*class), err));
	for (size_t i = 0; i < n; i++) {
		const struct pl_sample *k = &s->v[v[i]];
		double size[STRIDE] = { 0 };

		sizes(&k->k, &s->devices.v[k->device], size);
		pl_feature_logs(size, STRIDE, row);
		for (int f = 0; f < FEATURES; f++)
			x[(size_t)f * n + i] = row[f];
		class[i] = class_of(c, k->tile);
	}
	for (int f = 0; f < FEATURES; f++)
		column[f] = x + (size_t)f * n;
	for (uint32_t k = 0; k < c->n; k++) {
		const struct pl_boost_data d = {
			.n = n, .n_features = FEATURES, .x = column, .y = y
		};
		const struct pl_boost_opts o = {
			.rounds = ROUNDS, .leaves = 32, .rate = 0.6, .least = 8
		};

		for (size_t i = 0; i < n; i++)
			y[i] = class[i] == k;
		PL_TRY(pl_boost_fit(&d, &o, &c->is[k], err));
	}
	rc = pl_boost_flatten(c->is, c->n, &c->flat, err);
out:
	pl_free(x);
	pl_free(y);
	pl_free(class);
	return rc;
}

int pl_tiles_fit(struct tiles *t, const struct pl_samples *s, const uint32_t *v, size_t n,
		 struct pl_err *err)
{
	uint32_t *mine;
	int rc = 0;

	*t = (struct tiles){ 0 };
	PL_CHECK(pl_alloc(&mine, n + 1, sizeof(*mine), err));
	for (uint32_t d = 0; d < s->devices.n && rc >= 0; d++) {
		struct tile_chooser c = { .generation = pl_device_generation(&s->devices.v[d]) };
		bool there = false;
		size_t count;

		for (size_t i = 0; i < t->n; i++)
			there |= t->v[i].generation == c.generation;
		count = there ? 0 : of_generation(s, v, n, c.generation, mine);
		if (count < LEAST)
			continue;
		rc = pl_append(&t->v, &t->n, &t->cap, &c, sizeof(c), err);
		if (rc >= 0)
			rc = fit_chooser(&t->v[t->n - 1], s, mine, count, err);
	}
	pl_free(mine);
	return rc;
}

/* The rules of the generation, or of the nearest one. */
static const struct tile_chooser *nearest(const struct tiles *t, int generation)
{
	const struct tile_chooser *best = NULL;
	int least = 0;

	for (size_t i = 0; i < t->n; i++) {
		/* twice the distance, and 1 more upward */
		int far = 2 * (t->v[i].generation - generation);

		far = far > 0 ? far + 1 : -far;
		if (!best || far < least) {
			best = &t->v[i];
			least = far;
		}
	}
	return best;
}

/* ---- without rules ----------------------------------------------------------------------------
 */

static const struct {
	struct pl_tile t;
	double reach; /* part of the rate */
} usual[] = {
	{ { 256, 128, 0 }, 0.9 }, { { 128, 256, 0 }, 0.9 }, { { 128, 128, 0 }, 0.85 },
	{ { 256, 64, 0 }, 0.75 }, { { 64, 256, 0 }, 0.75 }, { { 128, 64, 0 }, 0.7 },
	{ { 64, 128, 0 }, 0.7 },  { { 64, 64, 0 }, 0.55 },
};
#define FIRST 64 /* steps along k that a tile takes to begin and to end */

static struct pl_tile fastest(const struct pl_kernel *conv, const struct pl_device *d)
{
	const struct pl_kernel gemm = pl_kernel_as_gemm(conv);
	const double *k = gemm.dim;
	double least = INFINITY;
	size_t best = 0;

	for (size_t i = 0; i < PL_LEN(usual); i++) {
		double a = usual[i].t.a, b = usual[i].t.b;
		double tiles = ceil(k[2] / a) * ceil(k[1] / b) * k[0];
		double t = ceil(tiles / d->sms) * (k[3] + FIRST) * a * b / usual[i].reach;

		if (t < least) {
			least = t;
			best = i;
		}
	}
	return usual[best].t;
}

#define TOGETHER 128 /* products whose trees are applied at once */

/* The tiles that a chooser takes for the products i[0 .. n - 1], at most TOGETHER. */
static void choose_some(const struct tile_chooser *c, const struct tile_query *q, const size_t *i,
			size_t n, struct pl_tile *tile)
{
	double p[TILE_CLASSES * TOGETHER];
	double v[TOGETHER * STRIDE];
	float x[TOGETHER * STRIDE];

	memset(v, 0, n * STRIDE * sizeof(*v));
	for (size_t k = 0; k < n; k++)
		sizes(q[i[k]].k, q[i[k]].d, v + k * STRIDE);
	pl_feature_logs(v, n * STRIDE, x);
	pl_boost_apply_each(c->is, c->n, c->flat, x, STRIDE, n, p);
	for (size_t k = 0; k < n; k++) {
		uint32_t best = 0;

		for (uint32_t t = 1; t < c->n; t++)
			if (p[t * n + k] > p[best * n + k])
				best = t;
		tile[i[k]] = c->tile[best];
	}
}

void pl_tiles_choose(const struct tiles *t, const struct tile_query *q, size_t n,
		     struct pl_tile *tile)
{
	for (size_t i = 0; i < n; i++)
		if (q[i].d->cpu > 0)
			tile[i] = (struct pl_tile){ 1, 1, 0 };
		else if (!t->n)
			tile[i] = fastest(q[i].k, q[i].d);
	for (size_t c = 0; c < t->n; c++) {
		size_t some[TOGETHER], n_some = 0;

		for (size_t i = 0; i < n; i++) {
			if (!(q[i].d->cpu > 0) &&
			    nearest(t, pl_device_generation(q[i].d)) == &t->v[c])
				some[n_some++] = i;
			if (n_some && (n_some == TOGETHER || i + 1 == n)) {
				choose_some(&t->v[c], q, some, n_some, tile);
				n_some = 0;
			}
		}
	}
}

struct pl_tile pl_tiles_choose_one(const struct tiles *t, const struct pl_kernel *k,
				   const struct pl_device *d)
{
	const struct tile_query q = { k, d };
	struct pl_tile tile;

	pl_tiles_choose(t, &q, 1, &tile);
	return tile;
}

/* ---- as bytes ---------------------------------------------------------------------------------
 */

void pl_tiles_put(const struct tiles *t, struct pl_buf *b)
{
	pl_io_put_varint(b, t->n);
	for (size_t i = 0; i < t->n; i++) {
		const struct tile_chooser *c = &t->v[i];

		pl_io_put_svarint(b, c->generation);
		pl_io_put_varint(b, c->n);
		for (uint32_t k = 0; k < c->n; k++) {
			pl_io_put_varint(b, c->tile[k].a);
			pl_io_put_varint(b, c->tile[k].b);
			pl_io_put_u8(b, c->tile[k].sliced);
			pl_boost_put(&c->is[k], b);
		}
	}
}

static int get_chooser(struct pl_cur *cur, struct tile_chooser *c, struct pl_err *err)
{
	uint64_t n;

	int64_t generation = pl_io_get_svarint(cur);

	c->generation = (int)generation;
	n = pl_io_get_varint(cur);
	if (generation < 0 || generation >= 100)
		return pl_fail(err, PL_EDATA, "a generation of devices is out of range");
	if (n < 1 || n > TILE_CLASSES)
		return pl_fail(err, PL_EDATA, "a generation has %llu tiles", (unsigned long long)n);
	for (uint64_t k = 0; k < n; k++) {
		uint64_t a = pl_io_get_varint(cur), b = pl_io_get_varint(cur);

		c->tile[k] = (struct pl_tile){ (uint16_t)a, (uint16_t)b, pl_io_get_u8(cur) & 1 };
		if (!a || !b || a > 512 || b > 512)
			return pl_fail(err, PL_EDATA, "a tile is out of range");
		PL_CHECK(pl_boost_get(cur, &c->is[k], err));
		c->n++;
		if (c->is[k].n_features != FEATURES)
			return pl_fail(err, PL_EDATA, "the trees of a tile have other features");
	}
	return pl_boost_flatten(c->is, c->n, &c->flat, err);
}

int pl_tiles_get(struct pl_cur *c, struct tiles *t, struct pl_err *err)
{
	uint64_t n = pl_io_get_varint(c);

	*t = (struct tiles){ 0 };
	if (n > 64)
		return pl_fail(err, PL_EDATA, "an operation has tiles of %llu generations",
			       (unsigned long long)n);
	for (; n; n--) {
		const struct tile_chooser none = { 0 };

		PL_CHECK(pl_append(&t->v, &t->n, &t->cap, &none, sizeof(none), err));
		PL_CHECK(get_chooser(c, &t->v[t->n - 1], err));
	}
	return 0;
}

/* ---- names of kernels -------------------------------------------------------------------------
 */

/* Two numbers with an "x" between them, powers of two from 16 to 512. */
struct pl_tile pl_tiles_from_name(const char *name)
{
	struct pl_tile t = { 0 };

	for (const char *s = name; *s && !t.a; s++) {
		char *end, *rest;
		long a, b;

		if (*s < '0' || *s > '9' || (s > name && s[-1] >= '0' && s[-1] <= '9'))
			continue;
		a = strtol(s, &end, 10);
		if (*end != 'x')
			continue;
		b = strtol(end + 1, &rest, 10);
		if (rest > end + 1 && a >= 16 && a <= 512 && b >= 16 && b <= 512 &&
		    !(a & (a - 1)) && !(b & (b - 1)))
			t = (struct pl_tile){ (uint16_t)a, (uint16_t)b,
					      strstr(name, "sliced") != NULL };
	}
	return t;
}
