/*
 * Datasets: opening, normalisation, and the choice of samples for a step.
 *
 * The shuffle of an epoch is never stored. A Feistel network of four rounds permutes the numbers
 * below the next power of four; results outside the range are permuted again (cycle walking; Black
 * and Rogaway, Ciphers with Arbitrary Finite Domains, CT-RSA 2002), fewer than four times on
 * average. So the place of a sample costs some 40 ns, and each rank computes only its own.
 */
#include <math.h>

#include "data/internal.h"

/* ---- descriptions ---------------------------------------------------------------------------- */

static int parts_cut(struct pl_data_parts *p, const char *s, struct pl_err *err)
{
	PL_CHECK(pl_dup(NULL, &p->text, s, err));
	for (char *at = p->text; at;) {
		char *comma = strchr(at, ',');

		if (comma)
			*comma = '\0';
		PL_CHECK(pl_append(&p->part, &p->n, &p->cap, &at, sizeof(at), err));
		at = comma ? comma + 1 : NULL;
	}
	return 0;
}

static void parts_fini(struct pl_data_parts *p)
{
	pl_free(p->text);
	pl_free(p->part);
	memset(p, 0, sizeof(*p));
}

const char *pl_data_parts_value(const struct pl_data_parts *p, size_t i, const char *key)
{
	size_t n = strlen(key);

	return !strncmp(p->part[i], key, n) && p->part[i][n] == '=' ? p->part[i] + n + 1 : NULL;
}

void pl_dataset_size(struct pl_dataset *d)
{
	d->size = 1;
	for (int i = 0; i < d->n_dims; i++)
		d->size *= (size_t)d->dim[i];
}

/* ---- arrays ---------------------------------------------------------------------------------- */

static int read_array(const char *path, bool idx, struct pl_array *a, struct pl_err *err)
{
	struct pl_in *in = pl_in_open_any(path, err);
	int rc;

	if (!in)
		return err ? err->code : PL_EIO;
	rc = idx ? pl_idx_read(in, a, err) : pl_npy_read(in, a, err);
	if (rc >= 0)
		rc = pl_data_array_end(in, "the array's last element", err);
	pl_in_close(in);
	return rc;
}

/* Samples and their shape: (n, dims...). */
static int shape_of(struct pl_dataset *d, const struct pl_array *a, const char *path,
		    struct pl_err *err)
{
	if (a->n_dims < 2 || a->n_dims > 1 + (int)PL_LEN(d->dim))
		return pl_fail(err, PL_EDATA,
			       "%s: an array of %d dimensions; samples and 1 to %zu dimensions of "
			       "each are read",
			       path, a->n_dims, PL_LEN(d->dim));
	if (!a->n || a->n > PL_VALUES_MAX)
		return pl_fail(err, PL_EDATA, "%s: %zu values; 1 to %zu are read", path, a->n,
			       PL_VALUES_MAX);
	d->n = (size_t)a->dim[0];
	for (int i = 1; i < a->n_dims; i++)
		if (a->dim[i] > INT32_MAX)
			return pl_fail(err, PL_EDATA, "%s: a dimension of %lld", path,
				       (long long)a->dim[i]);
	if (a->n_dims == 3)
		d->dim[d->n_dims++] = 1; /* images without channels get one */
	for (int i = 1; i < a->n_dims; i++)
		d->dim[d->n_dims++] = (int)a->dim[i];
	pl_dataset_size(d);
	return 0;
}

/* Convert the array to float32, `each` numbers for each sample; what: the name of one number. */
static int take_floats(const struct pl_array *a, size_t each, const char *what, const char *path,
		       float **out, struct pl_err *err)
{
	PL_CHECK(pl_alloc(out, a->n, sizeof(**out), err));
	pl_dtype_f32(a->dtype, a->data.p, a->n, *out);
	for (size_t i = 0; i < a->n; i++)
		if (!isfinite((*out)[i]))
			return pl_fail(err, PL_EDATA, "%s: %s %zu of sample %zu is not finite",
				       path, what, i % each, i / each);
	return 0;
}

static int take_x(struct pl_dataset *d, struct pl_array *a, const char *path, struct pl_err *err)
{
	PL_CHECK(shape_of(d, a, path, err));
	return take_floats(a, d->size, "value", path, &d->x, err);
}

static int take_classes(struct pl_dataset *d, const struct pl_array *a, const char *path,
			struct pl_err *err)
{
	size_t at = 0;

	PL_CHECK(pl_alloc(&d->y, d->n, sizeof(*d->y), err));
	if (!pl_dtype_i32(a->dtype, a->data.p, d->n, PL_CLASSES_MAX - 1, d->y, &at))
		return pl_fail(err, PL_EDATA, "%s: label %zu is no class from 0 to %d", path, at,
			       PL_CLASSES_MAX - 1);
	for (size_t i = 0; i < d->n; i++)
		d->classes = d->y[i] >= d->classes ? d->y[i] + 1 : d->classes;
	return 0;
}

static int take_targets(struct pl_dataset *d, const struct pl_array *a, const char *path,
			struct pl_err *err)
{
	size_t k = d->n ? a->n / d->n : 0;

	if (k < 1 || k > INT32_MAX)
		return pl_fail(err, PL_EDATA, "%s: %zu targets a sample", path, k);
	d->n_targets = (int)k;
	return take_floats(a, k, "target", path, &d->target, err);
}

/* "X,Y", both IDX or both NPY */
static int open_arrays(const struct pl_data_parts *p, bool idx, struct pl_dataset *d,
		       struct pl_err *err)
{
	struct pl_array x = { 0 }, y = { 0 };
	bool real;
	int rc;

	if (p->n != 2 || !*p->part[0] || !*p->part[1])
		return pl_fail(err, PL_EUSAGE,
			       idx ? "data idx: needs two files, as in idx:IMAGES,LABELS"
				   : "data npy: needs two files, as in npy:X.npy,Y.npy");
	PL_TRY(read_array(p->part[0], idx, &x, err));
	PL_TRY(take_x(d, &x, p->part[0], err));
	pl_data_array_fini(&x);
	PL_TRY(read_array(p->part[1], idx, &y, err));
	if (y.n_dims < 1 || y.dim[0] != (int64_t)d->n) {
		rc = pl_fail(err, PL_EDATA, "%s: %lld labels, but %zu samples in %s", p->part[1],
			     y.n_dims ? (long long)y.dim[0] : 1, d->n, p->part[0]);
		goto out;
	}
	real = y.dtype == PL_DT_F32 || y.dtype == PL_DT_F64 || y.dtype == PL_DT_F16;
	rc = (real && !idx) || y.n != d->n ? take_targets(d, &y, p->part[1], err)
					   : take_classes(d, &y, p->part[1], err);
out:
	pl_data_array_fini(&x);
	pl_data_array_fini(&y);
	return rc;
}

/* ---- opening --------------------------------------------------------------------------------- */

static int open_parts(const char *kind, size_t n, const struct pl_data_parts *p, uint64_t seed,
		      struct pl_dataset *d, struct pl_err *err)
{
	if (n == 3 && !memcmp(kind, "idx", n))
		return open_arrays(p, true, d, err);
	if (n == 3 && !memcmp(kind, "npy", n))
		return open_arrays(p, false, d, err);
	if (n == 3 && !memcmp(kind, "csv", n))
		return pl_dataset_csv(p, d, err);
	if (n == 6 && !memcmp(kind, "tokens", n))
		return pl_dataset_tokens(p, d, err);
	if (n == 9 && !memcmp(kind, "synthetic", n))
		return pl_dataset_synthetic(p, seed, d, err);
	return pl_fail(err, PL_EUSAGE,
		       "\"%.*s\" is no kind of data; there are idx:IMAGES,LABELS, npy:X,Y, "
		       "csv:FILE, tokens:FILE and synthetic:",
		       (int)pl_min_size(n, 100), kind);
}

int pl_dataset_open(const char *spec, uint64_t seed, struct pl_dataset *d, struct pl_err *err)
{
	size_t n = strcspn(spec, ":");
	struct pl_data_parts p = { 0 };
	struct pl_err why = { 0 };
	int rc;

	memset(d, 0, sizeof(*d));
	rc = parts_cut(&p, spec + n + (spec[n] == ':'), &why);
	if (rc >= 0)
		rc = open_parts(spec, n, &p, seed, d, &why);
	parts_fini(&p);
	if (rc < 0)
		pl_dataset_fini(d);
	return pl_fail_as(err, &why);
}

void pl_dataset_fini(struct pl_dataset *d)
{
	for (size_t i = 0; d->word && i < d->n_words; i++)
		pl_free(d->word[i]);
	pl_free(d->word);
	pl_free(d->x);
	pl_free(d->y);
	pl_free(d->target);
	pl_free(d->token);
	memset(d, 0, sizeof(*d));
}

size_t pl_dataset_train(const struct pl_dataset *d, double split)
{
	size_t n = split < 1 ? (size_t)((double)d->n * split + 0.5) : d->n,
	       least = d->token ? 2 : 1;

	if (d->train)
		return d->train;
	n = n < least ? least : n;
	n = split < 1 && n >= d->n && d->n ? d->n - 1 : n;
	return n > d->n ? d->n : n;
}

/* ---- normalisation --------------------------------------------------------------------------- */

/* Normalise the values at `at`, at + step ..., `run` neighbours each. Sums are double, in order. */
static void scale(struct pl_dataset *d, size_t train, size_t at, size_t run)
{
	double n = (double)train * (double)run, sum = 0, squares = 0, mean, deviation, by;

	for (size_t i = 0; i < train; i++)
		for (size_t k = 0; k < run; k++)
			sum += (double)d->x[i * d->size + at + k];
	mean = sum / n;
	for (size_t i = 0; i < train; i++)
		for (size_t k = 0; k < run; k++) {
			double v = (double)d->x[i * d->size + at + k] - mean;

			squares += v * v;
		}
	deviation = sqrt(squares / n);
	/* equal values differ only by rounding errors */
	by = deviation > 1e-7 * fabs(mean) ? 1 / deviation : 0;
	for (size_t i = 0; i < d->n; i++)
		for (size_t k = 0; k < run; k++) {
			float *v = &d->x[i * d->size + at + k];

			*v = (float)((*v - mean) * by);
		}
}

void pl_dataset_normalise(struct pl_dataset *d, size_t train)
{
	size_t parts = d->n_dims == 1 || d->n_dims == 3 ? (size_t)d->dim[0] : 1;

	train = pl_min_size(train, d->n);
	if (!d->x || !train)
		return;
	for (size_t c = 0; c < parts; c++)
		scale(d, train, c * (d->size / parts), d->size / parts);
}

/* ---- drawing --------------------------------------------------------------------------------- */

uint64_t pl_dataset_hash(uint64_t seed, uint64_t a, uint64_t b)
{
	uint64_t s = seed;

	s = pl_rng_next(&s) ^ a;
	s = pl_rng_next(&s) ^ b;
	return pl_rng_next(&s);
}

/* Element i of the order of n things that the key gives. */
static uint64_t permuted(uint64_t i, uint64_t n, uint64_t key)
{
	unsigned half = 1;
	uint64_t mask;

	while (half < 31 && (uint64_t)1 << 2 * half < n)
		half++;
	mask = ((uint64_t)1 << half) - 1;
	do {
		uint64_t l = i >> half, r = i & mask;

		for (uint64_t round = 0; round < 4; round++) {
			uint64_t s = key + (round << 32 | r), t = l ^ (pl_rng_next(&s) & mask);

			l = r;
			r = t;
		}
		i = l << half | r;
	} while (i >= n);
	return i;
}

void pl_dataset_draw(const struct pl_dataset *d, size_t first, size_t n, uint64_t seed,
		     int64_t step, int rank, int ranks, int batch, int context, size_t *index)
{
	uint64_t at = ((uint64_t)step * (uint64_t)ranks + (uint64_t)rank) * (uint64_t)batch;

	pl_dataset_draw_from(d, first, n, seed, at, batch, context, index);
}

void pl_dataset_draw_from(const struct pl_dataset *d, size_t first, size_t n, uint64_t seed,
			  uint64_t at, int batch, int context, size_t *index)
{
	uint64_t places = n > (size_t)context ? n - (size_t)context : 1;
	uint64_t epoch = at / n, key = pl_dataset_hash(seed, 2, epoch);

	for (int i = 0; i < batch; i++, at++) {
		if (d->token) {
			uint64_t h = pl_dataset_hash(seed, 1, at);

			index[i] = first + (size_t)((unsigned __int128)h * places >> 64);
		} else {
			if (at / n != epoch) {
				epoch = at / n;
				key = pl_dataset_hash(seed, 2, epoch);
			}
			index[i] = first + (size_t)permuted(at % n, n, key);
		}
	}
}

void pl_dataset_batch(const struct pl_dataset *d, const size_t *index, int batch, int context,
		      float *x, int32_t *ids, int32_t *y, float *target)
{
	size_t t = (size_t)context, k = (size_t)d->n_targets;

	for (size_t i = 0; i < (size_t)batch; i++) {
		size_t at = index[i];

		if (d->token && ids)
			memcpy(ids + i * t, d->token + at, t * sizeof(*ids));
		if (d->token && y)
			memcpy(y + i * t, d->token + at + 1, t * sizeof(*y));
		if (d->x && x)
			memcpy(x + i * d->size, d->x + at * d->size, d->size * sizeof(*x));
		if (d->y && y)
			y[i] = d->y[at];
		if (d->target && target)
			memcpy(target + i * k, d->target + at * k, k * sizeof(*target));
	}
}
