/*
 * Pooling: a plane a chunk. A window is clipped to the plane first, so the loops over it need no
 * test of borders.
 */
#include "tensor/internal.h"

struct pool {
	const struct pl_pool2d *d;
	const float *x, *dy;
	const int32_t *from;
	float *y, *dx;
	int32_t *at;
};

struct window {
	int y0, y1, x0, x1; /* first, and one behind the last */
};

static struct window clip(const struct pl_pool2d *d, int p, int q)
{
	struct window w = { p * d->stride - d->pad, 0, q * d->stride - d->pad, 0 };

	w.y1 = w.y0 + d->r < d->h ? w.y0 + d->r : d->h;
	w.x1 = w.x0 + d->r < d->w ? w.x0 + d->r : d->w;
	w.y0 = w.y0 < 0 ? 0 : w.y0;
	w.x0 = w.x0 < 0 ? 0 : w.x0;
	return w;
}

static void max_plane(const struct pl_pool2d *d, const float *x, float *y, int32_t *at)
{
	for (int p = 0; p < d->p; p++)
		for (int q = 0; q < d->q; q++) {
			struct window w = clip(d, p, q);
			int best = w.y0 * d->w + w.x0;
			float most = x[best];

			for (int i = w.y0; i < w.y1; i++)
				for (int j = i * d->w + w.x0, e = i * d->w + w.x1; j < e; j++) {
					bool over = x[j] > most;

					most = over ? x[j] : most;
					best = over ? j : best;
				}
			*y++ = most;
			if (at)
				*at++ = best;
		}
}

static void mean_plane(const struct pl_pool2d *d, const float *x, float *y)
{
	for (int p = 0; p < d->p; p++)
		for (int q = 0; q < d->q; q++) {
			struct window w = clip(d, p, q);
			float sum = 0;

			for (int i = w.y0; i < w.y1; i++)
				for (int j = i * d->w + w.x0, e = i * d->w + w.x1; j < e; j++)
					sum += x[j];
			*y++ = sum / (float)((w.y1 - w.y0) * (w.x1 - w.x0));
		}
}

static void pool_plane(void *arg, int i, struct pl_slot *slot)
{
	struct pool *v = arg;
	size_t in = (size_t)i * (size_t)(v->d->h * v->d->w),
	       out = (size_t)i * (size_t)(v->d->p * v->d->q);

	(void)slot;
	if (v->d->max)
		max_plane(v->d, v->x + in, v->y + out, v->at ? v->at + out : NULL);
	else
		mean_plane(v->d, v->x + in, v->y + out);
}

void pl_cpu_pool(void *ctx, const struct pl_pool2d *d, const float *x, float *y, int32_t *at)
{
	struct pool v = { .d = d, .x = x, .y = y, .at = at };

	pl_cpu_each(ctx, d->n * d->c, (double)d->n * d->c * d->p * d->q * d->r * d->r, pool_plane,
		    &v);
}

static void pool_plane_back(void *arg, int i, struct pl_slot *slot)
{
	struct pool *v = arg;
	const struct pl_pool2d *d = v->d;
	size_t in = (size_t)d->h * (size_t)d->w, out = (size_t)i * (size_t)(d->p * d->q);
	float *dx = v->dx + (size_t)i * in;
	const float *dy = v->dy + out;

	(void)slot;
	memset(dx, 0, in * sizeof(*dx));
	for (int pq = 0; pq < d->p * d->q; pq++) {
		struct window w;
		float share;

		if (d->max) {
			dx[v->from[out + (size_t)pq]] += dy[pq];
			continue;
		}
		w = clip(d, pq / d->q, pq % d->q);
		share = dy[pq] / (float)((w.y1 - w.y0) * (w.x1 - w.x0));
		for (int y = w.y0; y < w.y1; y++)
			for (int x = w.x0; x < w.x1; x++)
				dx[y * d->w + x] += share;
	}
}

void pl_cpu_pool_back(void *ctx, const struct pl_pool2d *d, const int32_t *at, const float *dy,
		      float *dx)
{
	struct pool v = { .d = d, .from = at, .dy = dy, .dx = dx };

	pl_cpu_each(ctx, d->n * d->c, (double)d->n * d->c * d->h * d->w, pool_plane_back, &v);
}
