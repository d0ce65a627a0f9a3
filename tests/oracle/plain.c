/*
 * The reference backend: each kernel is its formula, with one loop for each sum, in double.
 *
 * It is simple and slow, because the tests compare the other backends with it. It is itself tested
 * against finite differences. For these the test includes this source with `float` defined as
 * double. Therefore the type of an element is always written `float`, and no suffix or function has
 * another precision.
 *
 * Formulae: normalisation and its gradient after Ioffe and Szegedy 2015 and Ba et al. 2016,
 * attention after Vaswani et al. 2017, Adam after Kingma and Ba 2015, AdamW after Loshchilov and
 * Hutter 2019.
 */
#include <math.h>
#include <string.h>

#include "plain.h"
#include "tensor/internal.h"

struct plain { /* a context; NULL is one in float32, all else 0 */
	enum pl_precision precision;
	struct pl_vary vary;
};

static int plain_open(const struct pl_backend_opts *o, void **ctx, struct pl_err *err)
{
	struct plain *p = NULL;
	int rc = pl_host_open("plain", o, err);

	if (rc == 0)
		rc = pl_alloc(&p, 1, sizeof(*p), err);
	*ctx = p;
	return rc;
}

static void plain_close(void *ctx)
{
	pl_free(ctx);
}

static void plain_vary(void *ctx, const struct pl_vary *v)
{
	((struct plain *)ctx)->vary = *v;
}

static struct pl_vary vary_of(const void *ctx)
{
	return ctx ? ((const struct plain *)ctx)->vary : (struct pl_vary){ 0 };
}

/* ---- products -------------------------------------------------------------------------------- */

static void plain_precision(void *ctx, enum pl_precision p)
{
	if (ctx)
		((struct plain *)ctx)->precision = p;
}

/* x as it is multiplied: the nearest multiple of the step between bfloat16s of its size. */
static double operand(const void *ctx, double x)
{
	const struct plain *p = ctx;
	uint64_t bits;

	if (!p || p->precision != PL_BF16 || !isfinite(x))
		return x;
	if (fabs(x) >= 0x1p-126) { /* of 52 bits behind the first 7 stay; ties to even */
		memcpy(&bits, &x, sizeof(bits));
		bits += (UINT64_C(1) << 44) - 1 + (bits >> 45 & 1);
		bits &= ~((UINT64_C(1) << 45) - 1);
		memcpy(&x, &bits, sizeof(x));
		return fabs(x) < 0x1p128 ? x : copysign(INFINITY, x);
	}
	return copysign(ldexp(rint(ldexp(fabs(x), 133)), -133), x);
}

static void plain_gemm(void *ctx, bool ta, bool tb, int m, int n, int k, const float *a, int lda,
		       const float *b, int ldb, float beta, float *c, int ldc)
{
	for (int i = 0; i < m; i++) {
		for (int j = 0; j < n; j++) {
			float *to = c + (size_t)i * ldc + j;
			double sum = beta ? (double)beta * *to : 0;

			for (int l = 0; l < k; l++)
				sum += operand(ctx,
					       a[ta ? (size_t)l * lda + i : (size_t)i * lda + l]) *
				       operand(ctx,
					       b[tb ? (size_t)j * ldb + l : (size_t)l * ldb + j]);
			*to = (float)sum;
		}
	}
}

/* sqrt(2 / pi) and the cubic term of gelu's tanh form (Hendrycks and Gimpel 2016) */
#define GELU_A 0.79788456080286535588
#define GELU_B 0.044715

static double act_one(enum pl_act act, double x)
{
	switch (act) {
	case PL_ACT_RELU:
		return x < 0 ? 0 : x;
	case PL_ACT_GELU:
		return 0.5 * x * (1 + tanh(GELU_A * (x + GELU_B * x * x * x)));
	case PL_ACT_TANH:
		return tanh(x);
	case PL_ACT_SIGMOID:
		return 1 / (1 + exp(-x));
	default:
		return x;
	}
}

/* The derivative at x, of which y is the value; relu, tanh and sigmoid look at y alone. */
static double act_slope(enum pl_act act, double x, double y)
{
	double t;

	switch (act) {
	case PL_ACT_RELU:
		return y > 0 ? 1 : 0;
	case PL_ACT_GELU:
		t = tanh(GELU_A * (x + GELU_B * x * x * x));
		return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * GELU_A * (1 + 3 * GELU_B * x * x);
	case PL_ACT_TANH:
		return 1 - y * y;
	case PL_ACT_SIGMOID:
		return y * (1 - y);
	default:
		return 1;
	}
}

static void plain_act(void *ctx, enum pl_act act, size_t n, const float *x, float *y)
{
	(void)ctx;
	for (size_t i = 0; i < n; i++)
		y[i] = (float)act_one(act, x[i]);
}

static void plain_act_back(void *ctx, enum pl_act act, size_t n, const float *x, const float *y,
			   const float *dy, float *dx)
{
	(void)ctx;
	for (size_t i = 0; i < n; i++)
		dx[i] = (float)(dy[i] * act_slope(act, act == PL_ACT_GELU ? x[i] : 0,
						  act == PL_ACT_GELU ? 0 : y[i]));
}

static void plain_dense(void *ctx, int n, int c, int k, const float *x, const float *w,
			const float *bias, enum pl_act act, float *pre, float *y)
{
	for (int i = 0; i < n; i++) {
		for (int j = 0; j < k; j++) {
			size_t at = (size_t)i * k + j;
			double sum = bias ? (double)bias[j] : 0;

			for (int l = 0; l < c; l++)
				sum += operand(ctx, x[(size_t)i * c + l]) *
				       operand(ctx, w[(size_t)j * c + l]);
			if (pre)
				pre[at] = (float)sum;
			y[at] = (float)act_one(act, sum);
		}
	}
}

static void plain_dense_back(void *ctx, int n, int c, int k, const float *x, const float *w,
			     enum pl_act act, const float *pre, const float *y, float *dy,
			     const float *from, float *dx, float *dw, float *db)
{
	if (act != PL_ACT_NONE)
		plain_act_back(ctx, act, (size_t)n * k, pre, y, dy, dy);
	plain_gemm(ctx, true, false, k, c, n, dy, k, x, c, 1, dw, c);
	if (dx)
		plain_gemm(ctx, false, false, n, c, k, dy, k, w, c, 0, dx, c);
	if (dx && from)
		plain_act_back(ctx, PL_ACT_GELU, (size_t)n * c, from, x, dx, dx);
	for (int j = 0; db && j < k; j++) {
		double sum = db[j];

		for (int i = 0; i < n; i++)
			sum += dy[(size_t)i * k + j];
		db[j] = (float)sum;
	}
}

/* ---- images ---------------------------------------------------------------------------------- */

/* Where image i, channel c, row y, column x lies, or SIZE_MAX outside the image. */
static size_t pixel(int channels, int h, int w, int i, int c, int y, int x)
{
	if (y < 0 || y >= h || x < 0 || x >= w)
		return SIZE_MAX;
	return (((size_t)i * channels + c) * h + y) * w + x;
}

/* What of x the weight (c, r, s) meets at output (p, q) of image i. */
static size_t conv_at(const struct pl_conv *d, int i, int c, int p, int q, int r, int s)
{
	return pixel(d->c, d->h, d->w, i, c, p * d->stride - d->pad + r,
		     q * d->stride - d->pad + s);
}

static size_t plain_conv_work(void *ctx, const struct pl_conv *d)
{
	(void)ctx;
	(void)d;
	return 0;
}

static void plain_conv(void *ctx, const struct pl_conv *d, const float *x, const float *w,
		       const float *bias, enum pl_act act, float *y, float *work)
{
	(void)work;
	for (int i = 0; i < d->n; i++)
		for (int k = 0; k < d->k; k++)
			for (int at = 0; at < d->p * d->q; at++) {
				const float *f = w + (size_t)k * d->c * d->r * d->s;
				double sum = bias ? (double)bias[k] : 0;

				for (int l = 0; l < d->c * d->r * d->s; l++) {
					size_t from = conv_at(d, i, l / (d->r * d->s), at / d->q,
							      at % d->q, l / d->s % d->r, l % d->s);

					if (from != SIZE_MAX)
						sum += operand(ctx, x[from]) * operand(ctx, f[l]);
				}
				y[((size_t)i * d->k + k) * d->p * d->q + at] =
					(float)act_one(act, sum);
			}
}

static void plain_conv_back(void *ctx, const struct pl_conv *d, const float *x, const float *w,
			    enum pl_act act, const float *y, float *dy, float *dx, float *dw,
			    float *db, float *work)
{
	size_t plane = (size_t)d->p * d->q, filter = (size_t)d->c * d->r * d->s;

	(void)work;
	if (act != PL_ACT_NONE)
		plain_act_back(ctx, act, d->n * plane * d->k, y, y, dy, dy);
	if (dx)
		memset(dx, 0, (size_t)d->n * d->c * d->h * d->w * sizeof(*dx));
	for (int k = 0; k < d->k; k++) {
		double sum = 0;

		for (size_t at = 0; at < d->n * plane; at++)
			sum += dy[(at / plane * d->k + k) * plane + at % plane];
		if (db)
			db[k] = (float)(db[k] + sum);
		for (size_t l = 0; l < filter; l++) {
			double dwl = 0;

			for (size_t at = 0; at < d->n * plane; at++) {
				int i = (int)(at / plane), pq = (int)(at % plane);
				double g = operand(ctx, dy[((size_t)i * d->k + k) * plane + pq]);
				size_t from =
					conv_at(d, i, (int)l / (d->r * d->s), pq / d->q, pq % d->q,
						(int)l / d->s % d->r, (int)l % d->s);

				if (from == SIZE_MAX)
					continue;
				dwl += g * operand(ctx, x[from]);
				if (dx)
					dx[from] = (float)(dx[from] +
							   g * operand(ctx, w[k * filter + l]));
			}
			dw[k * filter + l] = (float)(dw[k * filter + l] + dwl);
		}
	}
}

static void plain_pool(void *ctx, const struct pl_pool2d *d, const float *x, float *y, int32_t *at)
{
	size_t to = 0;

	(void)ctx;
	for (int plane = 0; plane < d->n * d->c; plane++)
		for (int pq = 0; pq < d->p * d->q; pq++, to++) {
			int y0 = pq / d->q * d->stride - d->pad,
			    x0 = pq % d->q * d->stride - d->pad;
			size_t base = (size_t)plane * d->h * d->w;
			size_t best = SIZE_MAX;
			double sum = 0;
			int n = 0;

			for (int l = 0; l < d->r * d->r; l++) {
				size_t from = pixel(1, d->h, d->w, plane, 0, y0 + l / d->r,
						    x0 + l % d->r);

				if (from == SIZE_MAX)
					continue;
				sum += x[from];
				n++;
				if (best == SIZE_MAX || x[from] > x[best] || x[from] != x[from])
					best = from;
			}
			y[to] = d->max ? x[best] : (float)(sum / n);
			if (at && d->max)
				at[to] = (int32_t)(best - base);
		}
}

static void plain_pool_back(void *ctx, const struct pl_pool2d *d, const int32_t *at,
			    const float *dy, float *dx)
{
	size_t to = 0;

	(void)ctx;
	memset(dx, 0, (size_t)d->n * d->c * d->h * d->w * sizeof(*dx));
	for (int plane = 0; plane < d->n * d->c; plane++)
		for (int pq = 0; pq < d->p * d->q; pq++, to++) {
			int y0 = pq / d->q * d->stride - d->pad,
			    x0 = pq % d->q * d->stride - d->pad;
			size_t base = (size_t)plane * d->h * d->w;
			int n = 0;

			if (d->max) {
				dx[base + at[to]] += dy[to];
				continue;
			}
			for (int pass = 0; pass < 2; pass++)
				for (int l = 0; l < d->r * d->r; l++) {
					size_t from = pixel(1, d->h, d->w, plane, 0, y0 + l / d->r,
							    x0 + l % d->r);

					if (from != SIZE_MAX && !pass)
						n++;
					else if (from != SIZE_MAX)
						dx[from] = (float)(dx[from] + (double)dy[to] / n);
				}
		}
}

/* ---- normalisation --------------------------------------------------------------------------- */

/* Mean and biased variance of `count` runs of s elements, `step` apart. */
static void moments(const float *x, int count, size_t step, int s, double *mean, double *var)
{
	double sum = 0, squares = 0;

	for (int i = 0; i < count; i++)
		for (int j = 0; j < s; j++)
			sum += x[i * step + j];
	*mean = sum / ((double)count * s);
	for (int i = 0; i < count; i++)
		for (int j = 0; j < s; j++)
			squares += (x[i * step + j] - *mean) * (x[i * step + j] - *mean);
	*var = squares / ((double)count * s);
}

static void plain_batchnorm(void *ctx, int n, int c, int s, const float *x, const float *gamma,
			    const float *beta, float eps, float momentum, bool eval, float *running,
			    float *save, float *y)
{
	size_t step = (size_t)c * s;
	double count = (double)n * s;

	(void)ctx;
	for (int k = 0; k < c; k++) {
		double mean, var, rstd;

		if (eval) {
			mean = running[k];
			var = running[c + k];
		} else {
			moments(x + (size_t)k * s, n, step, s, &mean, &var);
		}
		if (running && !eval) {
			double unbiased = count > 1 ? var * count / (count - 1) : var;

			running[k] = (float)(running[k] + momentum * (mean - running[k]));
			running[c + k] =
				(float)(running[c + k] + momentum * (unbiased - running[c + k]));
		}
		rstd = 1 / sqrt(var + eps);
		save[k] = (float)mean;
		save[c + k] = (float)rstd;
		for (int i = 0; i < n; i++)
			for (size_t at = i * step + (size_t)k * s, e = at + s; at < e; at++)
				y[at] = (float)((x[at] - mean) * rstd * gamma[k] + beta[k]);
	}
}

static void plain_batchnorm_back(void *ctx, int n, int c, int s, const float *x, const float *gamma,
				 const float *save, const float *dy, float *dx, float *dgamma,
				 float *dbeta)
{
	size_t step = (size_t)c * s;
	double count = (double)n * s;

	(void)ctx;
	for (int k = 0; k < c; k++) {
		double mean = save[k], rstd = save[c + k], sum = 0, dot = 0;

		for (int i = 0; i < n; i++)
			for (size_t at = i * step + (size_t)k * s, e = at + s; at < e; at++) {
				sum += dy[at];
				dot += dy[at] * (x[at] - mean) * rstd;
			}
		for (int i = 0; i < n; i++)
			for (size_t at = i * step + (size_t)k * s, e = at + s; at < e; at++)
				dx[at] = (float)(gamma[k] * rstd *
						 (dy[at] - sum / count -
						  (x[at] - mean) * rstd * dot / count));
		dgamma[k] = (float)(dgamma[k] + dot);
		dbeta[k] = (float)(dbeta[k] + sum);
	}
}

static void plain_layernorm(void *ctx, int n, int c, const float *x, const float *gamma,
			    const float *beta, float eps, float *save, float *y)
{
	(void)ctx;
	for (int i = 0; i < n; i++) {
		const float *row = x + (size_t)i * c;
		double mean, var, rstd;

		moments(row, 1, 0, c, &mean, &var);
		rstd = 1 / sqrt(var + eps);
		save[i] = (float)mean;
		save[n + i] = (float)rstd;
		for (int j = 0; j < c; j++)
			y[(size_t)i * c + j] = (float)((row[j] - mean) * rstd * gamma[j] + beta[j]);
	}
}

static void plain_layernorm_back(void *ctx, int n, int c, const float *x, const float *gamma,
				 const float *save, const float *dy, float *dx, float *dgamma,
				 float *dbeta)
{
	(void)ctx;
	for (int i = 0; i < n; i++) {
		double mean = save[i], rstd = save[n + i], sum = 0, dot = 0;
		size_t row = (size_t)i * c;

		for (int j = 0; j < c; j++) {
			double g = (double)dy[row + j] * gamma[j];

			sum += g;
			dot += g * (x[row + j] - mean) * rstd;
		}
		for (int j = 0; j < c; j++)
			dx[row + j] = (float)(rstd * ((double)dy[row + j] * gamma[j] - sum / c -
						      (x[row + j] - mean) * rstd * dot / c));
	}
	for (int j = 0; j < c; j++) {
		double sum = dbeta[j], dot = dgamma[j];

		for (int i = 0; i < n; i++) {
			size_t at = (size_t)i * c + j;

			sum += dy[at];
			dot += (double)dy[at] * (x[at] - save[i]) * save[n + i];
		}
		dbeta[j] = (float)sum;
		dgamma[j] = (float)dot;
	}
}

/* ---- sequences ------------------------------------------------------------------------------- */

static void plain_embed(void *ctx, int n, int c, const int32_t *id, const float *table,
			const float *position, int t, float *y)
{
	(void)ctx;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < c; j++)
			y[(size_t)i * c + j] = table[(size_t)id[i] * c + j] +
					       (position ? position[(size_t)(i % t) * c + j] : 0);
}

static void plain_embed_back(void *ctx, int n, int c, const int32_t *id, int t, const float *dy,
			     float *dtable, float *dposition)
{
	(void)ctx;
	for (int i = 0; i < n; i++)
		for (int j = 0; j < c; j++) {
			dtable[(size_t)id[i] * c + j] += dy[(size_t)i * c + j];
			if (dposition)
				dposition[(size_t)(i % t) * c + j] += dy[(size_t)i * c + j];
		}
}

static size_t plain_attn_save(void *ctx, const struct pl_attn *d)
{
	(void)ctx;
	return (size_t)d->b * d->heads * d->t; /* log of the sum of exponentials, a row of scores */
}

/* A product of matrices' element. */
static double dot(const void *ctx, const float *a, const float *b, int n)
{
	double sum = 0;

	for (int i = 0; i < n; i++)
		sum += operand(ctx, a[i]) * operand(ctx, b[i]);
	return sum;
}

#define AT_ONCE 16 /* columns that probabilities are made for: each time anew */

static void plain_attn(void *ctx, const struct pl_attn *d, const float *qkv, float *y, float *save)
{
	int size = d->c / d->heads;
	size_t step = 3 * (size_t)d->c;

	for (int row = 0; row < d->b * d->heads * d->t; row++) {
		int t = row % d->t, h = row / d->t % d->heads, b = row / d->t / d->heads;
		const float *base = qkv + (size_t)b * d->t * step + (size_t)h * size;
		const float *q = base + t * step, *k = base + d->c, *v = k + d->c;
		float *to = y + ((size_t)b * d->t + t) * d->c + (size_t)h * size;
		double most = -INFINITY, sum = 0, lse;

		for (int u = 0; u <= t; u++)
			most = fmax(most, dot(ctx, q, k + u * step, size) / sqrt(size));
		for (int u = 0; u <= t; u++)
			sum += exp(dot(ctx, q, k + u * step, size) / sqrt(size) - most);
		/* cppcheck-suppress invalidFunctionArg; one term is 1 */
		lse = most + log(sum);
		save[row] = (float)lse;
		for (int j = 0; j < size; j += AT_ONCE) {
			int n = size - j < AT_ONCE ? size - j : AT_ONCE;
			double out[AT_ONCE] = { 0 };

			for (int u = 0; u <= t; u++) {
				double s = dot(ctx, q, k + u * step, size) / sqrt(size);
				double p = operand(ctx, exp(s - lse));

				for (int i = 0; i < n; i++)
					out[i] += p * operand(ctx, v[u * step + j + i]);
			}
			for (int i = 0; i < n; i++)
				to[j + i] = (float)out[i];
		}
	}
}

/* With p the probabilities: dv = p^T dy, ds = p (dy v^T - dy y), dq = ds k, dk = ds^T q. */
static void plain_attn_back(void *ctx, const struct pl_attn *d, const float *qkv, const float *y,
			    const float *save, const float *dy, float *dqkv)
{
	int size = d->c / d->heads;
	size_t step = 3 * (size_t)d->c;
	double scale = 1 / sqrt(size);

	memset(dqkv, 0, (size_t)d->b * d->t * step * sizeof(*dqkv));
	for (int row = 0; row < d->b * d->heads * d->t; row++) {
		int t = row % d->t, h = row / d->t % d->heads, b = row / d->t / d->heads;
		size_t base = (size_t)b * d->t * step + (size_t)h * size, qt = base + t * step;
		size_t out = ((size_t)b * d->t + t) * d->c + (size_t)h * size;
		double own = dot(NULL, dy + out, y + out, size);

		for (int u = 0; u <= t; u++) {
			size_t k = base + u * step + d->c, v = k + d->c;
			double p = exp(dot(ctx, qkv + qt, qkv + k, size) * scale - save[row]);
			double ds =
				operand(ctx, p * (dot(ctx, dy + out, qkv + v, size) - own) * scale);

			p = operand(ctx, p);

			for (int j = 0; j < size; j++) {
				dqkv[qt + j] =
					(float)(dqkv[qt + j] + ds * operand(ctx, qkv[k + j]));
				dqkv[k + j] = (float)(dqkv[k + j] + ds * operand(ctx, qkv[qt + j]));
				dqkv[v + j] = (float)(dqkv[v + j] + p * operand(ctx, dy[out + j]));
			}
		}
	}
}

/* ---- elements -------------------------------------------------------------------------------- */

static void plain_dropout(void *ctx, size_t n, float p, uint64_t salt, const float *x, float *y)
{
	uint64_t key = pl_drop_key(vary_of(ctx).key, salt);
	uint32_t limit = pl_drop_limit((double)p);

	for (size_t i = 0; i < n; i++)
		y[i] = pl_drop_hash(key, i) < limit ? 0 : (float)(x[i] / (1 - (double)p));
}

static void plain_add(void *ctx, size_t n, const float *a, const float *b, float *y)
{
	(void)ctx;
	for (size_t i = 0; i < n; i++)
		y[i] = a[i] + b[i];
}

static void plain_scale(void *ctx, size_t n, float f, float *x)
{
	(void)ctx;
	for (size_t i = 0; i < n; i++)
		x[i] *= f;
}

static double plain_sum_squares(void *ctx, size_t n, const float *x)
{
	double sum = 0;

	(void)ctx;
	for (size_t i = 0; i < n; i++)
		sum += (double)x[i] * x[i];
	return sum;
}

static void plain_clip(void *ctx, size_t n, double limit, float *x)
{
	double norm = sqrt(plain_sum_squares(ctx, n, x)) + 1e-6;

	if (limit < norm)
		plain_scale(ctx, n, (float)(limit / norm), x);
}

/* ---- losses ---------------------------------------------------------------------------------- */

static int top(const float *x, int c)
{
	int best = 0;

	for (int j = 1; j < c; j++)
		if (x[j] > x[best])
			best = j;
	return best;
}

static void plain_softmax_xent(void *ctx, int n, int c, const float *x, const int32_t *y,
			       float scale, float *dx, struct pl_loss_sum *sums)
{
	double total = 0;
	int64_t right = 0;

	(void)ctx;
	for (int i = 0; i < n; i++) {
		const float *row = x + (size_t)i * c;
		int best = top(row, c);
		double sum = 0, most = row[best];

		for (int j = 0; j < c; j++)
			sum += exp(row[j] - most);
		/* cppcheck-suppress invalidFunctionArg; one term is 1 */
		total += most + log(sum) - row[y[i]];
		right += best == y[i];
		for (int j = 0; dx && j < c; j++) {
			double p = exp(row[j] - most) / sum;

			dx[(size_t)i * c + j] = (float)(scale * (p - (j == y[i])) / n);
		}
	}
	*sums = (struct pl_loss_sum){ .loss = total / n, .hits = right };
}

static void plain_squared(void *ctx, int n, int c, const float *x, const float *y, float scale,
			  float *dx, struct pl_loss_sum *sums)
{
	double total = 0, count = (double)n * c;

	(void)ctx;
	for (size_t i = 0; i < (size_t)n * c; i++) {
		double d = (double)x[i] - y[i];

		total += d * d;
		if (dx)
			dx[i] = (float)(scale * 2 * d / count);
	}
	*sums = (struct pl_loss_sum){ .loss = total / count };
}

static void plain_hinge(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
			float *dx, struct pl_loss_sum *sums)
{
	double total = 0, count = (double)n * c;
	int64_t right = 0;

	(void)ctx;
	for (int i = 0; i < n; i++) {
		const float *row = x + (size_t)i * c;
		double own = row[y[i]];
		int over = 0;

		right += top(row, c) == y[i];
		for (int j = 0; j < c; j++) {
			double margin = 1 - own + row[j];
			bool on = j != y[i] && margin > 0;

			total += on ? margin : 0;
			over += on;
			if (dx)
				dx[(size_t)i * c + j] = (float)(on ? scale / count : 0);
		}
		if (dx)
			dx[(size_t)i * c + y[i]] = (float)(-scale * over / count);
	}
	*sums = (struct pl_loss_sum){ .loss = total / count, .hits = right };
}

/* ---- optimisers ------------------------------------------------------------------------------ */

static void plain_sgd(void *ctx, size_t first, size_t n, float momentum,
		      const struct pl_decay *decays, bool nesterov, const float *g, float *v,
		      float *w)
{
	float lr = vary_of(ctx).lr, decay;

	for (size_t i = first; i < first + n; i++) {
		(void)pl_decay_piece(decays, i, i + 1, &decay);
		double d = g[i] + (double)decay * w[i];

		if (momentum) {
			double next = (double)momentum * v[i] + d;

			v[i] = (float)next;
			d = nesterov ? d + momentum * next : next;
		}
		w[i] = (float)(w[i] - lr * d);
	}
}

static void plain_adam(void *ctx, size_t first, size_t n, float b1, float b2, float eps,
		       const struct pl_decay *decays, bool decoupled, const float *g, float *m,
		       float *v, float *w)
{
	double t = (double)vary_of(ctx).t, fix1 = 1 - pow(b1, t), fix2 = 1 - pow(b2, t);
	float lr = vary_of(ctx).lr, decay;

	for (size_t i = first; i < first + n; i++) {
		(void)pl_decay_piece(decays, i, i + 1, &decay);
		double from = decoupled ? w[i] * (1 - (double)lr * decay) : w[i];
		double d = decoupled ? g[i] : g[i] + (double)decay * w[i];
		double m1 = b1 * (double)m[i] + (1 - (double)b1) * d;
		double v1 = b2 * (double)v[i] + (1 - (double)b2) * d * d;

		m[i] = (float)m1;
		v[i] = (float)v1;
		w[i] = (float)(from - lr * (m1 / fix1) / (sqrt(v1 / fix2) + eps));
	}
}

const struct pl_backend pl_backend_plain = {
	.name = "plain",
	.open = plain_open,
	.close = plain_close,
	PL_HOST_MEMBERS,
	.vary = plain_vary,
	.precision = plain_precision,
	.gemm = plain_gemm,
	.dense = plain_dense,
	.dense_back = plain_dense_back,
	.act = plain_act,
	.act_back = plain_act_back,
	.conv_work = plain_conv_work,
	.conv = plain_conv,
	.conv_back = plain_conv_back,
	.pool = plain_pool,
	.pool_back = plain_pool_back,
	.batchnorm = plain_batchnorm,
	.batchnorm_back = plain_batchnorm_back,
	.layernorm = plain_layernorm,
	.layernorm_back = plain_layernorm_back,
	.embed = plain_embed,
	.embed_back = plain_embed_back,
	.attn_save = plain_attn_save,
	.attn = plain_attn,
	.attn_back = plain_attn_back,
	.dropout = plain_dropout,
	.add = plain_add,
	.softmax_xent = plain_softmax_xent,
	.squared = plain_squared,
	.hinge = plain_hinge,
	.sgd = plain_sgd,
	.adam = plain_adam,
	.clip = plain_clip,
	.sum_squares = plain_sum_squares,
	.scale = plain_scale,
};
