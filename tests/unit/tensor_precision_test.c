/*
 * Gradients of the fast backend against float64 at sizes where sums are long: filters of a
 * convolution before batch normalisation.
 *
 * The gradient that leaves batch normalisation sums to zero over the batch, and images are not
 * negative. So the gradient of a filter is a small difference of large sums, and each error that
 * all its terms share grows with the batch.
 *
 * runner: long, threads
 */
#include <math.h>
#include <stdlib.h>

#include "tap.h"
#include "tensor/internal.h"

static uint64_t seed = 7;

static double uniform(void) /* -1 .. 1 */
{
	return (double)(pl_rng_next(&seed) >> 40) / (1 << 23) - 1;
}

struct net { /* image, convolution, batch normalisation, linear loss */
	struct pl_conv d;
	float *x, *w, *z, *save, *y, *dy, *dz, *dw, *running, *gamma, *beta, *dgamma, *dbeta;
	double *z64, *dz64, *dw64, *mean, *rstd;
};

static void *take(size_t n, size_t size)
{
	void *p = pl_host_alloc(NULL, n * size);

	if (!p)
		exit(1);
	return p;
}

static size_t images(const struct net *t)
{
	return (size_t)t->d.n * (size_t)(t->d.c * t->d.h * t->d.w);
}

static size_t filters(const struct net *t)
{
	return (size_t)t->d.k * (size_t)(t->d.c * t->d.r * t->d.s);
}

static size_t outputs(const struct net *t)
{
	return (size_t)t->d.n * (size_t)(t->d.k * t->d.p * t->d.q);
}

/* Images between 1 - 2 contrast and 1. */
static void net_init(struct net *t, int n, int c, int size, int k, double contrast)
{

	*t = (struct net){ .d = { n, c, size, size, k, 3, 3, 1, 0, size - 2, size - 2 } };
	t->x = take(images(t), sizeof(float));
	t->w = take(filters(t), sizeof(float));
	t->dw = take(filters(t), sizeof(float));
	t->dw64 = take(filters(t), sizeof(double));
	t->z = take(outputs(t), sizeof(float));
	t->y = take(outputs(t), sizeof(float));
	t->dy = take(outputs(t), sizeof(float));
	t->dz = take(outputs(t), sizeof(float));
	t->z64 = take(outputs(t), sizeof(double));
	t->dz64 = take(outputs(t), sizeof(double));
	t->save = take((size_t)k * 4, sizeof(float));
	t->running = take((size_t)k * 2, sizeof(float));
	t->gamma = take((size_t)k, sizeof(float));
	t->beta = take((size_t)k, sizeof(float));
	t->dgamma = take((size_t)k, sizeof(float));
	t->dbeta = take((size_t)k, sizeof(float));
	t->mean = take((size_t)k, sizeof(double));
	t->rstd = take((size_t)k, sizeof(double));
	for (size_t i = 0; i < images(t); i++)
		t->x[i] = (float)(1 - contrast + contrast * uniform());
	for (size_t i = 0; i < filters(t); i++)
		t->w[i] = (float)(0.3 + 0.3 * uniform());
	for (int i = 0; i < k; i++)
		t->gamma[i] = (float)(1 + 0.5 * uniform());
}

static void net_free(struct net *t)
{
	void *all[] = { t->x,	  t->w,	   t->dw,     t->dw64,	t->z,	 t->y,
			t->dy,	  t->dz,   t->z64,    t->dz64,	t->save, t->running,
			t->gamma, t->beta, t->dgamma, t->dbeta, t->mean, t->rstd };

	for (size_t i = 0; i < PL_LEN(all); i++)
		pl_host_free(NULL, all[i]);
}

/* The pixel that output (p, q) reads for tap (r, s); -1: it is padding. */
static int input_of(const struct pl_conv *d, int p, int q, int r, int s)
{
	int y = p + r - d->pad, x = q + s - d->pad;

	return y < 0 || y >= d->h || x < 0 || x >= d->w ? -1 : y * d->w + x;
}

/* By the definition, in float64: z, its gradient, that of the filters. */
static void reference(struct net *t)
{
	const struct pl_conv *d = &t->d;
	int pq = d->p * d->q, hw = d->h * d->w, rs = d->r * d->s, m = d->c * rs;
	double count = (double)d->n * pq;

	for (int k = 0; k < d->k; k++) {
		double sum = 0, var = 0, grad = 0, dot = 0;

		for (int i = 0; i < d->n; i++)
			for (int o = 0; o < pq; o++) {
				double z = 0;

				for (int l = 0; l < m; l++) {
					int at = input_of(d, o / d->q, o % d->q, l % rs / d->s,
							  l % rs % d->s);

					if (at >= 0)
						z += (double)t->w[k * m + l] *
						     (double)t->x[((size_t)i * (size_t)d->c +
								   (size_t)(l / rs)) *
									  (size_t)hw +
								  (size_t)at];
				}
				t->z64[((size_t)i * (size_t)d->k + (size_t)k) * (size_t)pq +
				       (size_t)o] = z;
				sum += z;
			}
		t->mean[k] = sum / count;
		for (int i = 0; i < d->n; i++)
			for (int o = 0; o < pq; o++) {
				size_t at = ((size_t)i * (size_t)d->k + (size_t)k) * (size_t)pq +
					    (size_t)o;
				double v = t->z64[at] - t->mean[k];

				var += v * v;
			}
		t->rstd[k] = 1 / sqrt(var / count + 1e-5);
		for (int i = 0; i < d->n; i++)
			for (int o = 0; o < pq; o++) {
				size_t at = ((size_t)i * (size_t)d->k + (size_t)k) * (size_t)pq +
					    (size_t)o;
				double v = t->z64[at] - t->mean[k];
				double y = v * t->rstd[k] * (double)t->gamma[k];

				/* of |relu(y) - target|^2 / 2, mean over the batch */
				t->dy[at] = y > 0 ? (float)((y - uniform()) / d->n) : 0;
				grad += (double)t->dy[at];
				dot += (double)t->dy[at] * v;
			}
		for (int i = 0; i < d->n; i++)
			for (int o = 0; o < pq; o++) {
				size_t at = ((size_t)i * (size_t)d->k + (size_t)k) * (size_t)pq +
					    (size_t)o;
				double v = (t->z64[at] - t->mean[k]) * t->rstd[k];

				t->dz64[at] = (double)t->gamma[k] * t->rstd[k] *
					      ((double)t->dy[at] - grad / count -
					       v * dot * t->rstd[k] / count);
			}
		for (int l = 0; l < m; l++)
			for (int i = 0; i < d->n; i++)
				for (int o = 0; o < pq; o++) {
					int at = input_of(d, o / d->q, o % d->q, l % rs / d->s,
							  l % rs % d->s);

					if (at >= 0)
						t->dw64[k * m + l] +=
							t->dz64[((size_t)i * (size_t)d->k +
								 (size_t)k) *
									(size_t)pq +
								(size_t)o] *
							(double)t->x[((size_t)i * (size_t)d->c +
								      (size_t)(l / rs)) *
									     (size_t)hw +
								     (size_t)at];
				}
	}
}

/* |dw - dw64| / |dw64| in the Euclidean norm */
static double error_of(const struct net *t)
{
	double diff = 0, norm = 0;

	for (size_t i = 0; i < filters(t); i++) {
		double e = (double)t->dw[i] - t->dw64[i];

		diff += e * e;
		norm += t->dw64[i] * t->dw64[i];
	}
	return sqrt(diff / norm);
}

static double measure(struct net *t, const struct pl_backend *b, void *ctx)
{
	const struct pl_conv *d = &t->d;
	float *work = take(b->conv_work(ctx, d) + 16, sizeof(float));
	int s = d->p * d->q;

	memset(t->dw, 0, filters(t) * sizeof(float));
	b->conv(ctx, d, t->x, t->w, NULL, PL_ACT_NONE, t->z, work);
	b->batchnorm(ctx, d->n, d->k, s, t->z, t->gamma, t->beta, 1e-5f, 0.1f, false, t->running,
		     t->save, t->y);
	b->batchnorm_back(ctx, d->n, d->k, s, t->z, t->gamma, t->save, t->dy, t->dz, t->dgamma,
			  t->dbeta);
	b->conv_back(ctx, d, t->x, t->w, PL_ACT_NONE, t->z, t->dz, NULL, t->dw, NULL, work);
	pl_host_free(NULL, work);
	return error_of(t);
}

static void try_size(int n, int c, int size, int k, double contrast, double limit)
{
	struct net t;

	net_init(&t, n, c, size, k, contrast);
	reference(&t);
	for (int skip = 0;; skip++) {
		const struct pl_kernels *kernels = pl_tensor_kernels_pick(skip);
		struct pl_err err = { 0 };
		double error;
		void *ctx;

		if (!kernels)
			break;
		if (pl_tensor_cpu_open(kernels, false, 2, &ctx, &err) < 0)
			exit(1);
		error = measure(&t, &pl_backend_cpu, ctx);
		ok(error < limit, "%s: filters (%d, %d, 3, 3), batch %d of %d x %d: error %.2g",
		   kernels->name, k, c, n, size, size, error);
		pl_backend_cpu.close(ctx);
	}
	net_free(&t);
}

int main(void)
{
	/* Of images with little contrast the outputs, rounded to float32, show little of it. */
	try_size(64, 1, 28, 8, 0.3, 1e-5);
	try_size(64, 8, 14, 8, 0.3, 1e-5);
	try_size(64, 1, 28, 8, 0.03, 3e-5);
	try_size(512, 1, 28, 8, 0.3, 1e-5);
	try_size(2000, 1, 28, 4, 0.3, 1e-5);
	return done_testing();
}
