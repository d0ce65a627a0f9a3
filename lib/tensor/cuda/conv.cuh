/*
 * conv.cuh - convolution and its two backward passes as products of matrices that are never stored:
 * C (M, N) = A (M, L) B (L, N); elements of A and B are read from the tensors.
 *
 *		M	N	L	A		B
 *	y	K	n P Q	C R S	w		x under the window, 0 outside
 *	dx	C	n H W	K R S	w, turned	dy where a window has the pixel, else 0
 *	dw	K	C R S	n P Q	dy		x under the window
 *
 * (dx visits every tap: at stride t all but one of t^2 are zeros.)
 *
 * A block of 128 threads computes 64 (32 if M is at most 32) x 128 of C from slices of L in shared
 * memory; meanwhile the next slice is read into registers. A thread reads one column of B, so the
 * start of the column is computed once. Each thread computes the meaning of one row of a slice, one
 * slice ahead. The type of C is that of B for y and dx, float32 for dw, which is cut along L into
 * parts.
 */
#ifndef PL_CUDA_CONV_CUH
#define PL_CUDA_CONV_CUH

#include "tensor/cuda/device.cuh"

#define COLUMNS 128 /* of C for each block, and threads */
#define NOWHERE (-(1 << 28))

enum what { FORWARD, DATA, WEIGHTS };

template <typename A, typename B, typename C> struct product {
	struct pl_conv d;
	int m, n, l;
	int each;   /* part of l for each block */
	int a_step; /* distance between two rows of A */
	int c_step;
	const A *a;
	const B *b;
	C *c;
	const float *bias;
};

struct row {	  /* l of A's columns and B's rows */
	int a;	  /* start of A's column; -1: beyond the end */
	int b;	  /* the part of B's place that depends on l */
	int y, x; /* the same for the pixel */
};

struct column { /* n of B and C */
	int b, y, x;
	int c; /* start of C's column */
};

template <enum what W> __device__ static inline struct row row_of(const struct pl_conv &d, int l)
{
	int taps = d.r * d.s, plane = d.p * d.q, first, rest;
	struct row r;

	first = l / (W == WEIGHTS ? plane : taps);
	rest = l - first * (W == WEIGHTS ? plane : taps);
	if (W == FORWARD)
		r = { l, first * d.h * d.w, rest / d.s, rest % d.s };
	else if (W == DATA)
		r = { first * d.c * taps + rest, first * plane, -(rest / d.s), -(rest % d.s) };
	else
		r = { first * d.k * plane + rest, first * d.c * d.h * d.w,
		      rest / d.q * d.stride - d.pad, rest % d.q * d.stride - d.pad };
	return r;
}

template <enum what W>
__device__ static inline struct column column_of(const struct pl_conv &d, int j)
{
	int taps = d.r * d.s, plane = d.p * d.q, image = d.h * d.w, first, rest;
	struct column c;

	first = j / (W == FORWARD ? plane : W == DATA ? image : taps);
	rest = j - first * (W == FORWARD ? plane : W == DATA ? image : taps);
	if (W == FORWARD)
		c = { first * d.c * image, rest / d.q * d.stride - d.pad,
		      rest % d.q * d.stride - d.pad, first * d.k * plane + rest };
	else if (W == DATA)
		c = { first * d.k * plane, rest / d.w + d.pad, rest % d.w + d.pad,
		      first * d.c * image + rest };
	else
		c = { first * image, rest / d.s, rest % d.s, j };
	return c;
}

template <enum what W, typename B>
__device__ static inline float element(const struct pl_conv &d, const B *b, const struct row &r,
				       const struct column &c)
{
	int y = r.y + c.y, x = r.x + c.x, h = W == DATA ? d.p : d.h, w = W == DATA ? d.q : d.w;

	if (W == DATA) {
		if (y < 0 || x < 0 || y % d.stride || x % d.stride)
			return 0;
		y /= d.stride;
		x /= d.stride;
	}
	if (y < 0 || y >= h || x < 0 || x >= w)
		return 0;
	return pl_float(b[(size_t)r.b + (size_t)c.b + (size_t)(y * w + x)]);
}

/* Compute rows first to first + SLICE - 1 of L, which ends at `end`. */
template <enum what W, int SLICE>
__device__ static inline void next_rows(const struct pl_conv &d, int first, int end,
					struct row *row)
{
	int t = (int)threadIdx.x;

	if (t >= SLICE)
		return;
	if (first + t < end)
		row[t] = row_of<W>(d, first + t);
	else
		row[t] = { -1, 0, NOWHERE, NOWHERE };
}

/* With bfloat16 operands, on tensor cores; conv_half.cu. */
template <enum what W, typename A, typename B, typename C>
void pl_convolve_half(const struct plk *k, const struct product<A, B, C> &p, unsigned parts);

#endif
