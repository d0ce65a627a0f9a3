/*
 * Causal self-attention in blocks, after Dao et al. 2022: scores of 64 queries with 256 keys at a
 * time stay in the cache; softmax is corrected when the greatest score of a row grows. Only the
 * logarithm of its sum is kept, and the backward pass computes the probabilities again from it.
 *
 * The forward pass is divided by blocks of queries of a head, the backward pass by heads (the
 * gradients of the keys are sums over queries, in order). Time O(T^2 size), memory O(T) a head.
 */
#include <math.h>

#include "tensor/internal.h"

#define QUERIES 64
#define KEYS	256 /* a multiple of QUERIES: no row of a block is without a key */

struct attn {
	const struct pl_kernels *k;
	const struct pl_attn *d;
	const float *qkv, *out, *dy, *saved;
	float *y, *save, *dqkv;
	bool half;
	int size, blocks; /* of a head; of queries */
	float scale;
};

static void attn_init(struct attn *a, void *ctx, const struct pl_attn *d)
{
	a->k = ((struct pl_cpu *)ctx)->k;
	a->half = ((struct pl_cpu *)ctx)->half;
	a->d = d;
	a->size = d->c / d->heads;
	a->blocks = (d->t + QUERIES - 1) / QUERIES;
	a->scale = 1 / sqrtf((float)a->size);
}

size_t pl_tensor_cpu_attn_save(void *ctx, const struct pl_attn *d)
{
	(void)ctx;
	return (size_t)d->b * (size_t)d->heads * (size_t)d->t;
}

/* c (m, n) = op(x) op(y) + beta c */
static void product(const struct attn *a, struct pl_slot *slot, bool tx, bool ty, int m, int n,
		    int k, const float *x, int ldx, const float *y, int ldy, float beta, float *c,
		    int ldc)
{
	struct pl_gemm g = { tx, ty, a->half, m, n, k, x, ldx, y, ldy, beta, c, ldc };

	pl_tensor_gemm_one(a->k, slot, &g);
}

/* s (n, m) = rows of a head at q times rows of it at u */
static void scores(const struct attn *a, struct pl_slot *slot, const float *q, int ldq, int n,
		   const float *u, int ldu, int m, float *s)
{
	product(a, slot, false, true, n, m, a->size, q, ldq, u, ldu, 0, s, KEYS);
}

/* c (n, size) = op(s) v + beta c */
static void combine(const struct attn *a, struct pl_slot *slot, bool ts, int n, int k,
		    const float *s, const float *v, int ldv, float beta, float *c, int ldc)
{
	product(a, slot, ts, false, n, a->size, k, s, KEYS, v, ldv, beta, c, ldc);
}

/* One block of keys u0 .. u0 + m for queries t0 .. t0 + n. s becomes probabilities, up to a factor
 * for each row that follows from most and sum; y is scaled to the same factor. */
static void online_softmax(const struct attn *a, int t0, int n, int u0, int m, float *s,
			   float *most, float *sum, float *y)
{
	for (int i = 0; i < n; i++) {
		int valid = t0 + i - u0 + 1 < m ? t0 + i - u0 + 1 : m;
		float *row = s + (size_t)i * KEYS;
		float top = a->k->max((size_t)valid, row) * a->scale;

		if (!u0) {
			most[i] = top;
			sum[i] = 0;
		} else if (top > most[i]) {
			float f = expf(most[i] - top);

			sum[i] *= f;
			a->k->scale((size_t)a->size, f, y + (size_t)i * (size_t)a->d->c);
			most[i] = top;
		}
		sum[i] += a->k->exp_sum((size_t)valid, a->scale, most[i], row, row);
		memset(row + valid, 0, (size_t)(m - valid) * sizeof(*row));
	}
}

static void attn_block(void *arg, int at, struct pl_slot *slot)
{
	struct attn *a = arg;
	const struct pl_attn *d = a->d;
	int head = at / a->blocks, h = head % d->heads, b = head / d->heads, step = 3 * d->c;
	int t0 = at % a->blocks * QUERIES, n = d->t - t0 < QUERIES ? d->t - t0 : QUERIES;
	const float *q = a->qkv + ((size_t)b * (size_t)d->t * (size_t)step + (size_t)(h * a->size));
	float *y = a->y + ((size_t)b * (size_t)d->t + (size_t)t0) * (size_t)d->c +
		   (size_t)(h * a->size);
	float *save = a->save + (size_t)head * (size_t)d->t + t0;
	float most[QUERIES], sum[QUERIES];

	for (int u0 = 0; u0 < t0 + n; u0 += KEYS) {
		int m = t0 + n - u0 < KEYS ? t0 + n - u0 : KEYS;
		const float *k = q + (size_t)u0 * (size_t)step + d->c;

		scores(a, slot, q + (size_t)t0 * (size_t)step, step, n, k, step, m, slot->block);
		online_softmax(a, t0, n, u0, m, slot->block, most, sum, y);
		combine(a, slot, false, n, m, slot->block, k + d->c, step, u0 ? 1 : 0, y, d->c);
	}
	for (int i = 0; i < n; i++) {
		a->k->scale((size_t)a->size, 1 / sum[i], y + (size_t)i * (size_t)d->c);
		save[i] = most[i] + logf(sum[i]);
	}
}

void pl_tensor_cpu_attn(void *ctx, const struct pl_attn *d, const float *qkv, float *y, float *save)
{
	struct attn a = { .qkv = qkv, .y = y, .save = save };

	attn_init(&a, ctx, d);
	pl_tensor_cpu_each(ctx, d->b * d->heads * a.blocks, (double)d->b * d->c * d->t * d->t,
			   attn_block, &a);
}

/* Queries t0 .. of a head against keys u0 ..: as in plain.c, in blocks. `own`: dy y of each row. */
static void back_block(const struct attn *a, struct pl_slot *slot, size_t q, size_t out, int n,
		       size_t k, int m, int ahead, const float *lse, const float *own)
{
	int step = 3 * a->d->c, c = a->d->c;
	size_t v = k + (size_t)c;
	float *p = slot->block, *s = p + QUERIES * KEYS;

	scores(a, slot, a->qkv + q, step, n, a->qkv + k, step, m, p);
	scores(a, slot, a->dy + out, c, n, a->qkv + v, step, m, s);
	for (int i = 0; i < n; i++) {
		int valid = ahead + i + 1 < m ? ahead + i + 1 : m;
		float *pi = p + (size_t)i * KEYS, *si = s + (size_t)i * KEYS;

		a->k->exp_sum((size_t)valid, a->scale, lse[i], pi, pi);
		a->k->soft_back((size_t)valid, own[i], a->scale, pi, si);
		memset(pi + valid, 0, (size_t)(m - valid) * sizeof(*pi));
		memset(si + valid, 0, (size_t)(m - valid) * sizeof(*si));
	}
	combine(a, slot, true, m, n, p, a->dy + out, c, 1, a->dqkv + v, step);
	combine(a, slot, true, m, n, s, a->qkv + q, step, 1, a->dqkv + k, step);
	combine(a, slot, false, n, m, s, a->qkv + k, step, 1, a->dqkv + q, step);
}

static void attn_head_back(void *arg, int head, struct pl_slot *slot)
{
	struct attn *a = arg;
	const struct pl_attn *d = a->d;
	size_t step = 3 * (size_t)d->c, at = (size_t)(head % d->heads) * (size_t)a->size;
	size_t first = (size_t)(head / d->heads) * (size_t)d->t;
	float own[QUERIES];

	for (int i = 0; i < 3 * d->t; i++)
		memset(a->dqkv + (first + (size_t)(i / 3)) * step + (size_t)(i % 3 * d->c) + at, 0,
		       (size_t)a->size * sizeof(float));
	for (int t0 = 0; t0 < d->t; t0 += QUERIES) {
		int n = d->t - t0 < QUERIES ? d->t - t0 : QUERIES;
		size_t out = (first + (size_t)t0) * (size_t)d->c + at;

		for (int i = 0; i < n; i++)
			own[i] = a->k->dot((size_t)a->size, a->dy + out + (size_t)i * (size_t)d->c,
					   a->out + out + (size_t)i * (size_t)d->c);
		for (int u0 = 0; u0 < t0 + n; u0 += KEYS)
			back_block(a, slot, (first + (size_t)t0) * step + at, out, n,
				   (first + (size_t)u0) * step + (size_t)d->c + at,
				   t0 + n - u0 < KEYS ? t0 + n - u0 : KEYS, t0 - u0,
				   a->saved + (size_t)head * (size_t)d->t + t0, own);
	}
}

void pl_tensor_cpu_attn_back(void *ctx, const struct pl_attn *d, const float *qkv, const float *y,
			     const float *save, const float *dy, float *dqkv)
{
	struct attn a = { .qkv = qkv, .out = y, .saved = save, .dy = dy, .dqkv = dqkv };

	attn_init(&a, ctx, d);
	pl_tensor_cpu_each(ctx, d->b * d->heads, (double)d->b * d->c * d->t * d->t, attn_head_back,
			   &a);
}
