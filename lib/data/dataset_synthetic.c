/*
 * Data made from a seed: a network can learn it, and no file is needed.
 *
 * Classes: each has two patterns; a sample is one of them, with images moved by up to an eighth of
 * their size, plus noise. Patterns of images are smooth (random values on a coarse grid,
 * interpolated), so that convolutions have something to find. Targets: a linear map of random
 * values, with noise. Tokens: a chain in which each token has four successors, of probability 1/2,
 * 1/4, 1/8 and 1/8, so that no model has a loss below 1.75 bits (1.21 nats).
 *
 * The numbers come only from sums and products, in one order, so they are the same on every
 * machine. A "normal" number is the sum of four uniform ones, whose deviation is 1. Linear.
 */
#include <math.h>

#include "data/internal.h"

#define VALUES_MAX ((int64_t)1 << 31)
#define SQRT3	   1.7320508075688772f
#define GRID	   4 /* pixels between values of a coarse pattern */

enum { S_CLASS = 16, S_PATTERN, S_SAMPLE, S_MAP, S_TOKEN, S_CHAIN };

struct options {
	int64_t samples, classes, targets, tokens, vocab;
	double noise;
	int n_dims, dim[4];
};

static float normal(uint64_t *rng)
{
	uint64_t u = pl_rng_next(rng);
	uint32_t sum = (uint32_t)(u & 0xffff) + (uint32_t)(u >> 16 & 0xffff) +
		       (uint32_t)(u >> 32 & 0xffff) + (uint32_t)(u >> 48);

	return ((float)sum * 0x1p-16f - 2.0f) * SQRT3;
}

/* ---- options --------------------------------------------------------------------------------- */

/* "3x32x32" */
static bool dims(const char *s, struct options *o)
{
	for (o->n_dims = 0; o->n_dims < 4; s++) {
		int64_t v = pl_take_digits(&s);

		if (v < 1 || v > 1 << 20)
			return false;
		o->dim[o->n_dims++] = (int)v;
		if (*s != 'x')
			return !*s;
	}
	return false;
}

static bool option(const struct pl_data_parts *p, size_t i, struct options *o)
{
	const struct {
		const char *key;
		int64_t *v, min, max;
	} keys[] = {
		{ "samples", &o->samples, 1, VALUES_MAX },
		{ "classes", &o->classes, 2, PL_CLASSES_MAX },
		{ "targets", &o->targets, 1, 65536 },
		{ "tokens", &o->tokens, 2, VALUES_MAX },
		{ "vocab", &o->vocab, 4, 1 << 24 },
	};
	const char *s;

	for (size_t k = 0; k < PL_LEN(keys); k++)
		if ((s = pl_data_parts_value(p, i, keys[k].key))) {
			*keys[k].v = pl_take_digits(&s);
			return !*s && *keys[k].v >= keys[k].min && *keys[k].v <= keys[k].max;
		}
	if ((s = pl_data_parts_value(p, i, "dims")))
		return dims(s, o);
	s = pl_data_parts_value(p, i, "noise");
	return s && pl_decimal(s, &o->noise) && o->noise >= 0 && o->noise <= 1000;
}

static int options(const struct pl_data_parts *p, struct options *o, struct pl_err *err)
{
	double size = 1;
	bool text;

	for (size_t i = 0; i < p->n; i++)
		if (*p->part[i] && !option(p, i, o))
			return pl_fail(err, PL_EUSAGE,
				       "data synthetic: \"%.100s\" is none of samples=N, "
				       "dims=3x32x32, classes=N (from 2), targets=N, noise=F, or "
				       "tokens=N, vocab=N (from 4)",
				       p->part[i]);
	text = o->tokens || o->vocab;
	if (text && (o->samples || o->classes || o->targets || o->n_dims))
		return pl_fail(err, PL_EUSAGE,
			       "data synthetic: tokens and vocab, or samples, dims, classes and "
			       "targets, not both");
	if (o->classes && o->targets)
		return pl_fail(err, PL_EUSAGE, "data synthetic: classes or targets, not both");
	if (text) {
		o->tokens = o->tokens ? o->tokens : 100000;
		o->vocab = o->vocab ? o->vocab : 64;
		return 0;
	}
	o->samples = o->samples ? o->samples : 10000;
	o->classes = o->classes || o->targets ? o->classes : 10;
	if (!o->n_dims) {
		static const int usual[] = { 1, 28, 28 };

		o->n_dims = 3;
		memcpy(o->dim, usual, sizeof(usual));
	}
	for (int i = 0; i < o->n_dims; i++)
		size *= o->dim[i];
	/* samples, patterns of classes or the map of targets; and the targets */
	size *= (double)(o->samples + 2 * o->classes + o->targets);
	if (size + (double)o->samples * (double)o->targets > (double)VALUES_MAX)
		return pl_fail(err, PL_EUSAGE, "data synthetic: more than 2^31 values");
	return 0;
}

/* ---- patterns -------------------------------------------------------------------------------- */

/* A smooth plane (h, w). */
static void plane(uint64_t *rng, int h, int w, float *grid, float *out)
{
	int rows = h / GRID + 2, columns = w / GRID + 2;

	for (int i = 0; i < rows * columns; i++)
		grid[i] = normal(rng);
	for (int y = 0; y < h; y++)
		for (int x = 0; x < w; x++) {
			const float *g = grid + y / GRID * columns + x / GRID;
			float fy = (float)(y % GRID) / GRID, fx = (float)(x % GRID) / GRID;
			float top = g[0] + (g[1] - g[0]) * fx,
			      low = g[columns] + (g[columns + 1] - g[columns]) * fx;

			out[y * w + x] = top + (low - top) * fy;
		}
}

/* Does a sample consist of planes of two dimensions? Then: their number and size. */
static bool image(const struct pl_dataset *d, int *planes, int *h, int *w)
{
	if (d->n_dims != 2 && d->n_dims != 3)
		return false;
	*planes = d->n_dims == 3 ? d->dim[0] : 1;
	*h = d->dim[d->n_dims - 2];
	*w = d->dim[d->n_dims - 1];
	return true;
}

/* The pattern (dim...) of a class and variant. */
static int make_pattern(const struct pl_dataset *d, uint64_t key, float *out, struct pl_err *err)
{
	uint64_t rng = key;
	float *grid;
	int planes, h, w;

	if (!image(d, &planes, &h, &w)) {
		for (size_t i = 0; i < d->size; i++)
			out[i] = normal(&rng);
		return 0;
	}
	PL_CHECK(pl_alloc(&grid, (size_t)(h / GRID + 2) * (size_t)(w / GRID + 2), sizeof(*grid),
			  err));
	for (int c = 0; c < planes; c++)
		plane(&rng, h, w, grid, out + (size_t)c * (size_t)h * (size_t)w);
	pl_free(grid);
	return 0;
}

/* The pattern moved by (dy, dx), 0 outside, plus noise. */
static void make_sample(const struct pl_dataset *d, const float *pattern, uint64_t *rng,
			float noise, float *out)
{
	int planes, h, w, dy, dx;

	if (!image(d, &planes, &h, &w)) {
		for (size_t i = 0; i < d->size; i++)
			out[i] = pattern[i] + noise * normal(rng);
		return;
	}
	dy = (int)(pl_rng_next(rng) % (uint64_t)(h / 8 * 2 + 1)) - h / 8;
	dx = (int)(pl_rng_next(rng) % (uint64_t)(w / 8 * 2 + 1)) - w / 8;
	for (int c = 0; c < planes; c++, pattern += (size_t)h * (size_t)w)
		for (int y = 0; y < h; y++)
			for (int x = 0; x < w; x++) {
				int sy = y + dy, sx = x + dx;
				bool in = sy >= 0 && sy < h && sx >= 0 && sx < w;

				*out++ = (in ? pattern[(size_t)sy * (size_t)w + (size_t)sx] : 0) +
					 noise * normal(rng);
			}
}

/* ---- the three kinds ------------------------------------------------------------------------- */

static int make_classes(const struct options *o, uint64_t seed, struct pl_dataset *d,
			struct pl_err *err)
{
	float noise = (float)o->noise, *pattern = NULL;
	int rc;

	d->classes = (int)o->classes;
	PL_TRY(pl_alloc(&pattern, 2 * (size_t)d->classes * d->size, sizeof(*pattern), err));
	PL_TRY(pl_alloc(&d->y, d->n, sizeof(*d->y), err));
	for (size_t i = 0; i < 2 * (size_t)d->classes; i++)
		PL_TRY(make_pattern(d, pl_dataset_hash(seed, S_PATTERN, i), pattern + i * d->size,
				    err));
	for (size_t i = 0; i < d->n; i++) {
		uint64_t rng = pl_dataset_hash(seed, S_SAMPLE, i);
		size_t k = (size_t)(pl_rng_next(&rng) % (2 * (uint64_t)d->classes));

		d->y[i] = (int32_t)(k / 2);
		make_sample(d, pattern + k * d->size, &rng, noise, d->x + i * d->size);
	}
out:
	pl_free(pattern);
	return rc;
}

static int make_targets(const struct options *o, uint64_t seed, struct pl_dataset *d,
			struct pl_err *err)
{
	float *map = NULL, shrink = 1.0f / (float)sqrt((double)d->size);
	uint64_t rng = pl_dataset_hash(seed, S_MAP, 0);
	size_t k = (size_t)o->targets;
	int rc;

	d->n_targets = (int)o->targets;
	PL_TRY(pl_alloc(&map, k * d->size, sizeof(*map), err));
	PL_TRY(pl_alloc(&d->target, d->n * k, sizeof(*d->target), err));
	for (size_t i = 0; i < k * d->size; i++)
		map[i] = normal(&rng) * shrink;
	for (size_t i = 0; i < d->n; i++) {
		float *x = d->x + i * d->size;

		rng = pl_dataset_hash(seed, S_SAMPLE, i);
		for (size_t c = 0; c < d->size; c++)
			x[c] = normal(&rng);
		for (size_t t = 0; t < k; t++) {
			float sum = 0.1f * (float)o->noise * normal(&rng);

			for (size_t c = 0; c < d->size; c++)
				sum += map[t * d->size + c] * x[c];
			d->target[i * k + t] = sum;
		}
	}
out:
	pl_free(map);
	return rc;
}

static int make_tokens(const struct options *o, uint64_t seed, struct pl_dataset *d,
		       struct pl_err *err)
{
	/* the successor for each of eight equal chances */
	static const uint8_t which[8] = { 0, 0, 0, 0, 1, 1, 2, 3 };
	uint64_t rng = pl_dataset_hash(seed, S_TOKEN, 0), at = 0;

	d->n = (size_t)o->tokens;
	d->vocab = (int)o->vocab;
	PL_CHECK(pl_alloc(&d->token, d->n, sizeof(*d->token), err));
	for (size_t i = 0; i < d->n; i++) {
		uint64_t vocab = (uint64_t)d->vocab, k = which[pl_rng_next(&rng) >> 61];

		/* each from its own quarter of the vocabulary, so that the four differ */
		at = pl_dataset_hash(seed, S_CHAIN, 4 * at + k) % (vocab / 4) * 4 + k;
		d->token[i] = (int32_t)at;
	}
	return 0;
}

int pl_dataset_synthetic(const struct pl_data_parts *p, uint64_t seed, struct pl_dataset *d,
			 struct pl_err *err)
{
	struct options o = { .noise = 1 };

	PL_CHECK(options(p, &o, err));
	if (o.tokens)
		return make_tokens(&o, seed, d, err);
	d->n = (size_t)o.samples;
	d->n_dims = o.n_dims;
	memcpy(d->dim, o.dim, sizeof(d->dim));
	pl_dataset_size(d);
	PL_CHECK(pl_alloc(&d->x, d->n * d->size, sizeof(*d->x), err));
	return o.targets ? make_targets(&o, seed, d, err) : make_classes(&o, seed, d, err);
}
