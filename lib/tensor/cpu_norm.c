/*
 * Batch and layer normalisation, forward and back. Means come first and variances from differences
 * to them, in float within a run of elements and in double between runs. Batchnorm goes by
 * channels; layernorm by rows, and for the gradients of its parameters by columns, down all rows in
 * order.
 */
#include <math.h>

#include "tensor/internal.h"

struct batch {
	const struct pl_kernels *k;
	int n, c, s;
	const float *x, *gamma, *beta, *dy, *saved;
	float eps, momentum;
	bool eval;
	float *running, *save, *y, *dgamma, *dbeta;
};

static void batch_moments(const struct batch *b, int c, double *mean, double *var)
{
	size_t step = (size_t)b->c * (size_t)b->s, s = (size_t)b->s;
	const float *x = b->x + (size_t)c * s;
	double sum = 0, count = (double)b->n * b->s;

	for (int i = 0; i < b->n; i++)
		sum += (double)b->k->sum(s, x + (size_t)i * step);
	*mean = sum / count;
	sum = 0;
	for (int i = 0; i < b->n; i++)
		sum += (double)b->k->spread(s, (float)*mean, x + (size_t)i * step);
	*var = sum / count;
}

static void batch_channel(void *arg, int c, struct pl_slot *slot)
{
	struct batch *b = arg;
	double mean, var, count = (double)b->n * b->s, a;
	size_t s = (size_t)b->s;

	(void)slot;
	if (b->eval) {
		mean = (double)b->running[c];
		var = (double)b->running[b->c + c];
	} else {
		batch_moments(b, c, &mean, &var);
	}
	if (b->running && !b->eval) {
		float *r = b->running,
		      unbiased = (float)(count > 1 ? var * count / (count - 1) : var);

		r[c] += b->momentum * ((float)mean - r[c]);
		r[b->c + c] += b->momentum * (unbiased - r[b->c + c]);
	}
	b->save[c] = (float)mean;
	b->save[b->c + c] = (float)(1 / sqrt(var + (double)b->eps));
	a = (double)b->save[b->c + c] * (double)b->gamma[c];
	for (int i = 0; i < b->n; i++) {
		size_t at = ((size_t)i * (size_t)b->c + (size_t)c) * s;

		b->k->affine(s, (float)a, (float)((double)b->beta[c] - mean * a), b->x + at,
			     b->y + at);
	}
}

void pl_cpu_batchnorm(void *ctx, int n, int c, int s, const float *x, const float *gamma,
		      const float *beta, float eps, float momentum, bool eval, float *running,
		      float *save, float *y)
{
	struct pl_cpu *cpu = ctx;
	struct batch b = { .k = cpu->k,
			   .n = n,
			   .c = c,
			   .s = s,
			   .x = x,
			   .gamma = gamma,
			   .beta = beta,
			   .eps = eps,
			   .momentum = momentum,
			   .eval = eval,
			   .running = running,
			   .save = save,
			   .y = y };

	pl_cpu_each(cpu, c, (double)n * c * s, batch_channel, &b);
}

/* dx = gamma rstd (dy - mean(dy) - v mean(dy v)), v the normalised x */
static void batch_channel_back(void *arg, int c, struct pl_slot *slot)
{
	struct batch *b = arg;
	double mean = (double)b->saved[c], rstd = (double)b->saved[b->c + c], sum = 0, dot = 0;
	double count = (double)b->n * b->s, f = (double)b->gamma[c] * rstd, by_x;
	size_t s = (size_t)b->s;

	(void)slot;
	for (int i = 0; i < b->n; i++) {
		size_t at = ((size_t)i * (size_t)b->c + (size_t)c) * s;
		float one, two;

		b->k->centred(s, (float)mean, b->x + at, b->dy + at, &one, &two);
		sum += (double)one;
		dot += (double)two;
	}
	dot *= rstd;
	by_x = -f * rstd * dot / count;
	for (int i = 0; i < b->n; i++) {
		size_t at = ((size_t)i * (size_t)b->c + (size_t)c) * s;

		b->k->affine2(s, (float)f, (float)by_x, (float)(-f * sum / count - by_x * mean),
			      b->dy + at, b->x + at, b->y + at);
	}
	b->dgamma[c] += (float)dot;
	b->dbeta[c] += (float)sum;
}

void pl_cpu_batchnorm_back(void *ctx, int n, int c, int s, const float *x, const float *gamma,
			   const float *save, const float *dy, float *dx, float *dgamma,
			   float *dbeta)
{
	struct pl_cpu *cpu = ctx;
	struct batch b = { .k = cpu->k,
			   .n = n,
			   .c = c,
			   .s = s,
			   .x = x,
			   .gamma = gamma,
			   .dy = dy,
			   .saved = save,
			   .y = dx,
			   .dgamma = dgamma,
			   .dbeta = dbeta };

	pl_cpu_each(cpu, c, (double)n * c * s, batch_channel_back, &b);
}

#define ROWS	16
#define COLUMNS 64

struct layer {
	const struct pl_kernels *k;
	int n, c;
	const float *x, *gamma, *beta, *dy, *saved;
	float eps;
	float *save, *y, *dgamma, *dbeta;
};

static void layer_rows(void *arg, int i, struct pl_slot *slot)
{
	struct layer *l = arg;
	size_t c = (size_t)l->c;

	(void)slot;
	for (int r = i * ROWS; r < l->n && r < (i + 1) * ROWS; r++) {
		const float *x = l->x + (size_t)r * c;
		float mean = l->k->sum(c, x) / (float)l->c;
		float var = l->k->spread(c, mean, x) / (float)l->c;

		l->save[r] = mean;
		l->save[l->n + r] = 1 / sqrtf(var + l->eps);
		l->k->norm(c, mean, l->save[l->n + r], x, l->gamma, l->beta, l->y + (size_t)r * c);
	}
}

void pl_cpu_layernorm(void *ctx, int n, int c, const float *x, const float *gamma,
		      const float *beta, float eps, float *save, float *y)
{
	struct pl_cpu *cpu = ctx;
	struct layer l = { .k = cpu->k,
			   .n = n,
			   .c = c,
			   .x = x,
			   .gamma = gamma,
			   .beta = beta,
			   .eps = eps,
			   .save = save,
			   .y = y };

	pl_cpu_each(cpu, (n + ROWS - 1) / ROWS, (double)n * c, layer_rows, &l);
}

static void layer_rows_back(void *arg, int i, struct pl_slot *slot)
{
	struct layer *l = arg;
	size_t c = (size_t)l->c;

	(void)slot;
	for (int r = i * ROWS; r < l->n && r < (i + 1) * ROWS; r++) {
		size_t at = (size_t)r * c;

		l->k->norm_back(c, l->saved[r], l->saved[l->n + r], l->x + at, l->gamma, l->dy + at,
				l->y + at);
	}
}

static void layer_params(void *arg, int i, struct pl_slot *slot)
{
	struct layer *l = arg;
	int at = i * COLUMNS, n = l->c - at < COLUMNS ? l->c - at : COLUMNS;

	(void)slot;
	for (int r = 0; r < l->n; r++) {
		size_t row = (size_t)r * (size_t)l->c + (size_t)at;

		l->k->norm_params((size_t)n, l->saved[r], l->saved[l->n + r], l->x + row,
				  l->dy + row, l->dgamma + at, l->dbeta + at);
	}
}

void pl_cpu_layernorm_back(void *ctx, int n, int c, const float *x, const float *gamma,
			   const float *save, const float *dy, float *dx, float *dgamma,
			   float *dbeta)
{
	struct pl_cpu *cpu = ctx;
	struct layer l = { .k = cpu->k,
			   .n = n,
			   .c = c,
			   .x = x,
			   .gamma = gamma,
			   .dy = dy,
			   .saved = save,
			   .y = dx,
			   .dgamma = dgamma,
			   .dbeta = dbeta };

	pl_cpu_each(cpu, (n + ROWS - 1) / ROWS, (double)n * c, layer_rows_back, &l);
	pl_cpu_each(cpu, (c + COLUMNS - 1) / COLUMNS, (double)n * c, layer_params, &l);
}
