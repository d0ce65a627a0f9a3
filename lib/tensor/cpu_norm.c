/*
 * Batch and layer normalisation, forward and backward. Means come first and variances from
 * differences to them, in float32 within a run of elements and in float64 between runs. Batch
 * normalisation goes by channels. Layer normalisation goes by rows, and for the gradients of its
 * parameters by columns, down all rows in order.
 */
#include <math.h>

#include "tensor/internal.h"

/* The arguments of a kernel; each uses what it needs. */
struct norm {
	const struct pl_kernels *k;
	int n, c, s;
	const float *x, *gamma, *beta, *dy, *saved;
	float eps, momentum;
	bool eval;
	float *running, *save, *y, *dgamma, *dbeta;
};

static struct norm norm_back(const struct pl_cpu *cpu, int n, int c, const float *x,
			     const float *gamma, const float *save, const float *dy, float *dx,
			     float *dgamma, float *dbeta)
{
	return (struct norm){ .k = cpu->k,
			      .n = n,
			      .c = c,
			      .x = x,
			      .gamma = gamma,
			      .dy = dy,
			      .saved = save,
			      .y = dx,
			      .dgamma = dgamma,
			      .dbeta = dbeta };
}

/* The part of v that float32 cannot hold. */
static double rest_of(double v)
{
	return v - (double)(float)v;
}

/* Sum differences to a first mean, because sums of small numbers are more precise. */
static void batch_moments(const struct norm *b, int c, double *mean, double *var)
{
	size_t step = (size_t)b->c * (size_t)b->s, s = (size_t)b->s;
	const float *x = b->x + (size_t)c * s;
	double first = 0, sum = 0, squares = 0, count = (double)b->n * b->s;

	for (int i = 0; i < b->n; i++)
		first += b->k->sum(s, x + (size_t)i * step);
	first = (double)(float)(first / count);
	for (int i = 0; i < b->n; i++)
		b->k->spread(s, (float)first, x + (size_t)i * step, &sum, &squares);
	*mean = first + sum / count;
	*var = fmax(squares / count - sum / count * (sum / count), 0);
}

static void batch_channel(void *arg, int c, struct pl_slot *slot)
{
	struct norm *b = arg;
	double mean, var, rstd, count = (double)b->n * b->s, a;
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
	rstd = 1 / sqrt(var + (double)b->eps);
	b->save[b->c + c] = (float)rstd;
	b->save[2 * b->c + c] = (float)rest_of(mean);
	b->save[3 * b->c + c] = (float)rest_of(rstd);
	a = rstd * (double)b->gamma[c];
	for (int i = 0; i < b->n; i++) {
		size_t at = ((size_t)i * (size_t)b->c + (size_t)c) * s;

		b->k->affine(s, (float)a, (float)mean,
			     (float)((double)b->beta[c] - rest_of(mean) * a), b->x + at, b->y + at);
	}
}

void pl_tensor_cpu_batchnorm(void *ctx, int n, int c, int s, const float *x, const float *gamma,
			     const float *beta, float eps, float momentum, bool eval,
			     float *running, float *save, float *y)
{
	struct pl_cpu *cpu = ctx;
	struct norm b = { .k = cpu->k,
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

	pl_tensor_cpu_each(cpu, c, (double)n * c * s, batch_channel, &b);
}

/*
 * dx = gamma rstd (dy - mean(dy) - v mean(dy v)), v the normalised x.
 *
 * dx and dx v sum to (nearly) zero. The layer before multiplies dx with other values and sums over
 * the whole batch. Errors of rounding single elements cancel in that sum, but an error that all
 * elements share grows with the batch. So the constants are more precise than float32: the mean and
 * 1/std in two parts, the factors as affine2() takes them.
 */
static void batch_channel_back(void *arg, int c, struct pl_slot *slot)
{
	struct norm *b = arg;
	const float *saved = b->saved + c;
	double mean_rest = (double)saved[2 * b->c];
	double rstd = (double)saved[b->c] + (double)saved[3 * b->c];
	double count = (double)b->n * b->s, f = (double)(float)((double)b->gamma[c] * rstd);
	double sum = 0, dot = 0, by_x;
	size_t s = (size_t)b->s;

	(void)slot;
	for (int i = 0; i < b->n; i++) {
		size_t at = ((size_t)i * (size_t)b->c + (size_t)c) * s;

		b->k->centred(s, saved[0], b->x + at, b->dy + at, &sum, &dot);
	}
	dot = (dot - mean_rest * sum) * rstd;
	by_x = -f * rstd * dot / count;
	for (int i = 0; i < b->n; i++) {
		size_t at = ((size_t)i * (size_t)b->c + (size_t)c) * s;

		b->k->affine2(s, (float)f, by_x, saved[0], -f * sum / count - by_x * mean_rest,
			      b->dy + at, b->x + at, b->y + at);
	}
	b->dgamma[c] = (float)((double)b->dgamma[c] + dot);
	b->dbeta[c] = (float)((double)b->dbeta[c] + sum);
}

void pl_tensor_cpu_batchnorm_back(void *ctx, int n, int c, int s, const float *x,
				  const float *gamma, const float *save, const float *dy, float *dx,
				  float *dgamma, float *dbeta)
{
	struct norm b = norm_back(ctx, n, c, x, gamma, save, dy, dx, dgamma, dbeta);

	b.s = s;
	pl_tensor_cpu_each(ctx, c, (double)n * c * s, batch_channel_back, &b);
}

#define ROWS	16
#define COLUMNS 64

static void layer_rows(void *arg, int i, struct pl_slot *slot)
{
	struct norm *l = arg;
	size_t c = (size_t)l->c;

	(void)slot;
	for (int r = i * ROWS; r < l->n && r < (i + 1) * ROWS; r++) {
		const float *x = l->x + (size_t)r * c;
		float mean = (float)l->k->sum(c, x) / (float)l->c;
		double sum = 0, squares = 0;
		float var;

		l->k->spread(c, mean, x, &sum, &squares);
		var = (float)squares / (float)l->c;
		l->save[r] = mean;
		l->save[l->n + r] = 1 / sqrtf(var + l->eps);
		l->k->norm(c, mean, l->save[l->n + r], x, l->gamma, l->beta, l->y + (size_t)r * c);
	}
}

void pl_tensor_cpu_layernorm(void *ctx, int n, int c, const float *x, const float *gamma,
			     const float *beta, float eps, float *save, float *y)
{
	struct pl_cpu *cpu = ctx;
	struct norm l = { .k = cpu->k,
			  .n = n,
			  .c = c,
			  .x = x,
			  .gamma = gamma,
			  .beta = beta,
			  .eps = eps,
			  .save = save,
			  .y = y };

	pl_tensor_cpu_each(cpu, (n + ROWS - 1) / ROWS, (double)n * c, layer_rows, &l);
}

static void layer_rows_back(void *arg, int i, struct pl_slot *slot)
{
	struct norm *l = arg;
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
	struct norm *l = arg;
	int at = i * COLUMNS, n = l->c - at < COLUMNS ? l->c - at : COLUMNS;
	float dgamma[COLUMNS] = { 0 }, dbeta[COLUMNS] = { 0 };
	double all_dgamma[COLUMNS] = { 0 }, all_dbeta[COLUMNS] = { 0 };

	(void)slot;
	for (int r = 0; r < l->n; r++) {
		size_t row = (size_t)r * (size_t)l->c + (size_t)at;

		l->k->norm_params((size_t)n, l->saved[r], l->saved[l->n + r], l->x + row,
				  l->dy + row, dgamma, dbeta);
		if ((r + 1) % PL_ROWS_RUN == 0 || r + 1 == l->n) {
			pl_cpu_end_run(n, dgamma, all_dgamma);
			pl_cpu_end_run(n, dbeta, all_dbeta);
		}
	}
	for (int k = 0; k < n; k++) {
		l->dgamma[at + k] = (float)((double)l->dgamma[at + k] + all_dgamma[k]);
		l->dbeta[at + k] = (float)((double)l->dbeta[at + k] + all_dbeta[k]);
	}
}

void pl_tensor_cpu_layernorm_back(void *ctx, int n, int c, const float *x, const float *gamma,
				  const float *save, const float *dy, float *dx, float *dgamma,
				  float *dbeta)
{
	struct norm l = norm_back(ctx, n, c, x, gamma, save, dy, dx, dgamma, dbeta);

	pl_tensor_cpu_each(ctx, (n + ROWS - 1) / ROWS, (double)n * c, layer_rows_back, &l);
	pl_tensor_cpu_each(ctx, (c + COLUMNS - 1) / COLUMNS, (double)n * c, layer_params, &l);
}
