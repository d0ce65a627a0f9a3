/*
 * pool.cu - maxima and means over windows of planes (N C, H, W) to (N C, P, Q), and back.
 *
 * A thread computes one number: forward an output; backward an element of dx, which reads its
 * windows, at most (r / stride + 1)^2, in their order, so that no two threads add to one element.
 * Neighbouring threads read neighbouring elements; the cache serves the overlap of windows. Bytes:
 * forward (N C H W + N C P Q) e, 4 N C P Q more for the places; backward the same. These layers
 * have few bytes, so there is no kernel with vectors.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu rates: pooling, pooling-back).
 */
#include "tensor/cuda/device.cuh"

struct at { /* place of an element of a plane */
	size_t plane;
	int y, x;
};

__device__ static inline struct at place(size_t i, int h, int w)
{
	size_t row = pl_div(i, (size_t)w);
	struct at a;

	a.plane = pl_div(row, (size_t)h);
	a.x = (int)(i - row * (size_t)w);
	a.y = (int)(row - a.plane * (size_t)h);
	return a;
}

template <typename T> struct do_pool {
	struct pl_pool2d d;
	const T *x;
	T *y;
	int32_t *at;
	template <int V> __device__ void run(size_t i) const
	{
		struct at to = place(i, d.p, d.q);
		int y0 = to.y * d.stride - d.pad, x0 = to.x * d.stride - d.pad, n = 0, where = -1;
		const T *plane = x + to.plane * (size_t)d.h * (size_t)d.w;
		float best = 0, sum = 0;

		for (int r = max(y0, 0); r < min(y0 + d.r, d.h); r++)
			for (int s = max(x0, 0); s < min(x0 + d.r, d.w); s++) {
				float v = pl_float(plane[r * d.w + s]);

				sum += v;
				n++;
				if (where >= 0 && !(v > best) && v == v)
					continue;
				best = v;
				where = r * d.w + s;
			}
		pl_store(y + i, d.max ? best : sum / (float)n);
		if (at && d.max)
			at[i] = where;
	}
};

void plk_pool(const struct plk *k, const struct pl_pool2d *d, const void *x, void *y, int32_t *at)
{
	PL_STORED(k, T, {
		struct do_pool<T> f = {
			*d, (const T *)x, (T *)y, at
		};

		pl_each<1>(k, (size_t)d->n * (size_t)d->c * (size_t)d->p * (size_t)d->q, true, f);
	});
}

template <typename T> struct do_pool_back {
	struct pl_pool2d d;
	const int32_t *at;
	const T *dy;
	T *dx;
	/* the number of a window's rows (columns) inside the plane; the window begins at `first` */
	__device__ int inside(int first, int size) const
	{
		return min(first + d.r, size) - max(first, 0);
	}
	template <int V> __device__ void run(size_t i) const
	{
		struct at to = place(i, d.h, d.w);
		int y = to.y + d.pad, x = to.x + d.pad, own = to.y * d.w + to.x;
		size_t plane = to.plane * (size_t)d.p * (size_t)d.q;
		int p0 = y < d.r ? 0 : (y - d.r) / d.stride + 1, p1 = min(y / d.stride, d.p - 1);
		int q0 = x < d.r ? 0 : (x - d.r) / d.stride + 1, q1 = min(x / d.stride, d.q - 1);
		float sum = 0;

		for (int p = p0; p <= p1; p++)
			for (int q = q0; q <= q1; q++) {
				size_t from = plane + (size_t)(p * d.q + q);

				if (!d.max)
					sum += pl_float(dy[from]) /
					       (float)(inside(p * d.stride - d.pad, d.h) *
						       inside(q * d.stride - d.pad, d.w));
				else if (at[from] == own)
					sum += pl_float(dy[from]);
			}
		pl_store(dx + i, sum);
	}
};

void plk_pool_back(const struct plk *k, const struct pl_pool2d *d, const int32_t *at,
		   const void *dy, void *dx)
{
	PL_STORED(k, T, {
		struct do_pool_back<T> f = {
			*d, at, (const T *)dy, (T *)dx
		};

		pl_each<1>(k, (size_t)d->n * (size_t)d->c * (size_t)d->h * (size_t)d->w, true, f);
	});
}
