/*
 * Pooling, one plane for each chunk. For the maximum, a plane is split into images of every
 * stride-th pixel with -infinity around them. The inputs of neighbouring outputs are neighbours
 * there, so the maxima of several outputs are one vector. Larger planes and means are computed
 * output by output. A window is clipped to the plane first, so its loops need no test of borders.
 */
#include <math.h>

#include "tensor/internal.h"

struct pool {
	const struct pl_kernels *k;
	const struct pl_pool2d *d;
	const float *x, *dy;
	const int32_t *from;
	float *y, *dx;
	int32_t *at;
};

struct window {
	int y0, y1, x0, x1; /* first, and one after the last */
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
					bool over = x[j] > most || isnan(x[j]);

					most = over ? x[j] : most;
					best = over ? j : best;
				}
			*y++ = most;
			if (at)
				*at++ = best;
		}
}

/* Split a row of the plane by stride: pixel x of part b is pixel x stride + b - pad. */
static void part_row(const struct pl_pool2d *d, const float *row, int pitch, float *to)
{
	for (int b = 0; b < d->stride; b++, to += pitch) {
		int from = d->pad > b ? (d->pad - b + d->stride - 1) / d->stride : 0;
		int left = d->w - (from * d->stride + b - d->pad), x = from;

		for (int i = 0; i < from; i++)
			to[i] = -INFINITY;
		for (const float *p = row + d->w - left; left > 0 && x < pitch; x++) {
			to[x] = *p;
			p += d->stride;
			left -= d->stride;
		}
		for (; x < pitch; x++)
			to[x] = -INFINITY;
	}
}

/* False if the plane does not fit into `room`. */
static bool max_fast(const struct pool *v, const float *x, float *y, int32_t *at, float *room)
{
	const struct pl_pool2d *d = v->d;
	struct pl_pool_row p = {
		.n = d->q, .r = d->r, .stride = d->stride, .pad = d->pad, .w = d->w
	};
	size_t row;

	p.pitch = d->q + (d->r - 1) / d->stride + PL_NR_MAX;
	row = (size_t)d->stride * (size_t)p.pitch;
	if ((size_t)d->h > PL_BLOCK / row)
		return false;
	for (int i = 0; i < d->h; i++)
		part_row(d, x + (size_t)i * (size_t)d->w, p.pitch, room + (size_t)i * row);
	for (int i = 0; i < d->p; i++, y += d->q) {
		struct window w = clip(d, i, 0);

		p.rows = w.y1 - w.y0;
		p.at = w.y0 * d->w;
		v->k->pool_row(&p, room + (size_t)w.y0 * row, y, at);
		at = at ? at + d->q : NULL;
	}
	return true;
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
	size_t in = (size_t)i * (size_t)(v->d->h * v->d->w);
	size_t out = (size_t)i * (size_t)(v->d->p * v->d->q);
	int32_t *at = v->at ? v->at + out : NULL;

	if (!v->d->max)
		mean_plane(v->d, v->x + in, v->y + out);
	else if (!max_fast(v, v->x + in, v->y + out, at, slot->block))
		max_plane(v->d, v->x + in, v->y + out, at);
}

void pl_tensor_cpu_pool(void *ctx, const struct pl_pool2d *d, const float *x, float *y, int32_t *at)
{
	struct pool v = { .k = ((struct pl_cpu *)ctx)->k, .d = d, .x = x, .y = y, .at = at };

	pl_tensor_cpu_each(ctx, d->n * d->c, (double)d->n * d->c * d->p * d->q * d->r * d->r,
			   pool_plane, &v);
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

void pl_tensor_cpu_pool_back(void *ctx, const struct pl_pool2d *d, const int32_t *at,
			     const float *dy, float *dx)
{
	struct pool v = { .d = d, .from = at, .dy = dy, .dx = dx };

	pl_tensor_cpu_each(ctx, d->n * d->c, (double)d->n * d->c * d->h * d->w, pool_plane_back,
			   &v);
}
