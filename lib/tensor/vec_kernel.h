/*
 * vec_kernel.h - loops over elements, in vectors. A source for each instruction set defines its
 * vectors and then includes this once:
 *
 *	VEC_NAME		name of the instruction set, as in pl_tensor_kernels_NAME
 *	VEC_W			floats in a vector
 *	VEC_FN			attribute of a function that uses it
 *	VEC_FMA(a, b, c)	a b + c; VEC_SQRT(v)
 *	VEC_FUSED		whether VEC_FMA rounds once
 *	VEC_LOAD_N, VEC_STORE_N	the first n elements only, zeros for the others; where the
 *				instruction set has such loads and stores
 *	GEMM_MR, GEMM_ROWS	see gemm_kernel.h
 *
 * exp is 2^n times a Taylor series of degree 7 around 0 (|r| <= ln 2 / 2: 5e-9 relative). tanh uses
 * the same series without the 1, so that it is precise near 0, too; gelu is x times a sigmoid.
 */
#define VEC_IN static inline VEC_FN __attribute__((always_inline, unused))

typedef float VF __attribute__((vector_size(4 * VEC_W)));
typedef uint32_t VI __attribute__((vector_size(4 * VEC_W)));

VEC_IN VF vzero(void)
{
	return (VF){ 0 };
}

/* One value for all. */
VEC_IN VF vset(float f)
{
	return f - (VF){ 0 };
}

/* Load and store at any address. The size is known, so each is one instruction. */
VEC_IN VF vload(const float *p)
{
	VF v;

	memcpy(&v, p, sizeof(v));
	return v;
}

VEC_IN void vstore(float *p, VF v)
{
	memcpy(p, &v, sizeof(v));
}

VEC_IN VF vload_n(const float *p, size_t n)
{
#ifdef VEC_LOAD_N
	return (VF)VEC_LOAD_N(p, n);
#else
	VF v = { 0 };

	memcpy(&v, p, n * sizeof(*p));
	return v;
#endif
}

VEC_IN void vstore_n(float *p, size_t n, VF v)
{
#ifdef VEC_STORE_N
	VEC_STORE_N(p, n, v);
#else
	memcpy(p, &v, n * sizeof(*p));
#endif
}

VEC_IN VF vfma(VF a, VF b, VF c)
{
	return (VF)VEC_FMA(a, b, c);
}

VEC_IN VF vsqrt(VF v)
{
	return (VF)VEC_SQRT(v);
}

#include "tensor/gemm_kernel.h"

/* n elements of which the last vector may be part: k of them at i. */
#define VEC_EACH(i, k, n)                                                                          \
	for (size_t i = 0, k; k = (n)-i < VEC_W ? (n)-i : VEC_W, i < (n); i += VEC_W)

VEC_IN VF vget(const float *p, size_t k)
{
	return PL_LIKELY(k == VEC_W) ? vload(p) : vload_n(p, k);
}

VEC_IN void vput(float *p, size_t k, VF v)
{
	if (PL_LIKELY(k == VEC_W))
		vstore(p, v);
	else
		vstore_n(p, k, v);
}

/* mask (all ones or zeros a lane) ? a : b */
VEC_IN VF vpick(VI mask, VF a, VF b)
{
	return (VF)((mask & (VI)a) | (~mask & (VI)b));
}

VEC_IN VF vmax(VF a, VF b)
{
	return vpick((VI)(a > b), a, b);
}

VEC_IN VF vmin(VF a, VF b)
{
	return vpick((VI)(a < b), a, b);
}

VEC_IN float vtotal(VF v)
{
	float lane[VEC_W], sum = 0;

	memcpy(lane, &v, sizeof(lane));
	for (int n = VEC_W / 2; n; n /= 2)
		for (int i = 0; i < n; i++)
			lane[i] += lane[i + n];
	sum = lane[0];
	return sum;
}

/* ---- functions ------------------------------------------------------------------------------- */

#define VEC_ROUND 12582912.0f /* 1.5 2^23: a sum with it loses the fraction */

/* x = n ln 2 + r; p = e^r - 1 */
VEC_IN VF vseries(VF x, VI *n)
{
	VF t = vfma(x, vset(1.44269504f), vset(VEC_ROUND)), k = t - vset(VEC_ROUND), r, p;

	*n = (VI)t - (VI)vset(VEC_ROUND);
	r = vfma(k, vset(-0.693359375f),
		 x); /* ln 2 in two parts: the product with the first is exact */
	r = vfma(k, vset(2.12194440e-4f), r);
	p = vfma(vset(1.0f / 5040), r, vset(1.0f / 720));
	p = vfma(p, r, vset(1.0f / 120));
	p = vfma(p, r, vset(1.0f / 24));
	p = vfma(p, r, vset(1.0f / 6));
	p = vfma(p, r, vset(0.5f));
	return vfma(p * r, r, r);
}

VEC_IN VF vexp(VF x)
{
	VI n;
	/* the order of the arguments lets NaN pass */
	VF low = vset(-87.0f), p = vseries(vmin(vset(88.0f), vmax(low, x)), &n);
	VF two = (VF)((n + 127) << 23);

	return vpick((VI)(x < low), vzero(), vfma(p, two, two));
}

VEC_IN VF vtanh(VF x)
{
	VI sign = (VI)x & 0x80000000u, n;
	VF y = (VF)((VI)x ^ sign), p, two, e;

	p = vseries(vmin(vset(40.0f), y + y), &n);
	two = (VF)((n + 127) << 23);
	e = vfma(p, two, two - vset(1)); /* e^2|x| - 1 */
	return (VF)((VI)(e / (e + vset(2))) | sign);
}

VEC_IN VF vsigmoid(VF x)
{
	return vset(1) / (vset(1) + vexp(-x));
}

#define VEC_GELU_A 1.59576912f /* 2 sqrt(2 / pi): the sigmoid takes twice what tanh does */
#define VEC_GELU_B 0.044715f

VEC_IN VF vgelu(VF x)
{
	VF u = vfma(x * x, vset(VEC_GELU_A * VEC_GELU_B), vset(VEC_GELU_A));

	return x * vsigmoid(x * u);
}

VEC_IN VF vgelu_slope(VF x)
{
	VF xx = x * x, u = vfma(xx, vset(VEC_GELU_A * VEC_GELU_B), vset(VEC_GELU_A));
	VF s = vsigmoid(x * u);
	VF slope = vfma(xx, vset(3 * VEC_GELU_A * VEC_GELU_B), vset(VEC_GELU_A));

	return vfma(x * s * (vset(1) - s), slope, s);
}

VEC_IN VF vact(enum pl_act act, VF x)
{
	switch (act) {
	case PL_ACT_RELU:
		return (VF)((VI)x & ~(VI)(x < vzero()));
	case PL_ACT_GELU:
		return vgelu(x);
	case PL_ACT_TANH:
		return vtanh(x);
	case PL_ACT_SIGMOID:
		return vsigmoid(x);
	default:
		return x;
	}
}

/* A loop for each activation, so that no loop tests the activation for each vector. */
#define VEC_ACTS(loop)                                                                             \
	switch (act) {                                                                             \
	case PL_ACT_RELU:                                                                          \
		loop(PL_ACT_RELU) break;                                                           \
	case PL_ACT_GELU:                                                                          \
		loop(PL_ACT_GELU) break;                                                           \
	case PL_ACT_TANH:                                                                          \
		loop(PL_ACT_TANH) break;                                                           \
	case PL_ACT_SIGMOID:                                                                       \
		loop(PL_ACT_SIGMOID) break;                                                        \
	default:                                                                                   \
		loop(PL_ACT_NONE) break;                                                           \
	}

/* Round to the nearest bfloat16, of two the even one: add to the lower bits, so that they carry. */
VEC_FN static void vec_round(size_t n, const float *x, float *y)
{
	VEC_EACH(i, k, n)
	{
		VI u = (VI)vget(x + i, k), nearest = u + 0x7fff + (u >> 16 & 1);
		VI nan = (VI)((VF)u != (VF)u); /* the carry could make it an infinity */

		vput(y + i, k, (VF)(((nan & (u | 0x400000)) | (~nan & nearest)) & 0xffff0000u));
	}
}

VEC_FN static void vec_act(enum pl_act act, size_t n, const float *x, float *y)
{
#define LOOP(a) VEC_EACH(i, k, n) vput(y + i, k, vact(a, vget(x + i, k)));
	VEC_ACTS(LOOP)
#undef LOOP
}

VEC_FN static void vec_act_back(enum pl_act act, size_t n, const float *x, const float *y,
				const float *dy, float *dx)
{
	VEC_EACH(i, k, n)
	{
		VF g = vget(dy + i, k), v = vget((act == PL_ACT_GELU ? x : y) + i, k);

		switch (act) {
		case PL_ACT_RELU:
			g = (VF)((VI)g & (VI)(v > vzero()));
			break;
		case PL_ACT_GELU:
			g *= vgelu_slope(v);
			break;
		case PL_ACT_TANH:
			g *= vset(1) - v * v;
			break;
		case PL_ACT_SIGMOID:
			g *= v * (vset(1) - v);
			break;
		default:
			break;
		}
		vput(dx + i, k, g);
	}
}

VEC_FN static void vec_bias(size_t n, const float *bias, enum pl_act act, float *pre, float *y){
#define LOOP(a)                                                                                    \
	VEC_EACH(i, k, n)                                                                          \
	{                                                                                          \
		VF v = vget(y + i, k) + vget(bias + i, k);                                         \
                                                                                                   \
		if (pre)                                                                           \
			vput(pre + i, k, v);                                                       \
		vput(y + i, k, vact(a, v));                                                        \
	}
	VEC_ACTS(LOOP)
#undef LOOP
}

VEC_FN static void vec_bias_one(size_t n, float bias, enum pl_act act, const float *x, float *y)
{
#define LOOP(a) VEC_EACH(i, k, n) vput(y + i, k, vact(a, vget(x + i, k) + vset(bias)));
	VEC_ACTS(LOOP)
#undef LOOP
}

/* ---- plain loops and sums -------------------------------------------------------------------- */

VEC_FN static void vec_add(size_t n, const float *a, const float *b, float *y)
{
	VEC_EACH(i, k, n)
	vput(y + i, k, vget(a + i, k) + vget(b + i, k));
}

VEC_FN static void vec_scale(size_t n, float f, float *x)
{
	VEC_EACH(i, k, n)
	vput(x + i, k, vget(x + i, k) * vset(f));
}

VEC_FN static void vec_affine(size_t n, float a, float mean, float b, const float *x, float *y)
{
	VEC_EACH(i, k, n)
	vput(y + i, k, vfma(vset(a), vget(x + i, k) - vset(mean), vset(b)));
}

/* The small parts of b and c are added first, because a large sum would round them away. If the
 * product is rounded before the sum, this does not help; then float64 is used. */
VEC_FN static void vec_affine2(size_t n, float a, double b, float mean, double c, const float *x,
			       const float *z, float *y)
{
	VF b0 = vset((float)b), b1 = vset((float)(b - (double)(float)b));
	VF c0 = vset((float)c), c1 = vset((float)(c - (double)(float)c));

	for (size_t i = 0; !VEC_FUSED && i < n; i++)
		y[i] = (float)((double)a * (double)x[i] + b * ((double)z[i] - (double)mean) + c);
	if (!VEC_FUSED)
		return;
	VEC_EACH(i, k, n)
	{
		VF d = vget(z + i, k) - vset(mean);
		VF e = vfma(b0, d, vfma(b1, d, c1)) + c0;

		vput(y + i, k, vfma(vset(a), vget(x + i, k), e));
	}
}

/* Long sums are sums of blocks: in float32 within a block, in float64 between blocks. The error of
 * a sum in float32 grows with its length. */
#define VEC_BLOCK ((size_t)64 * VEC_W)
#define VEC_BLOCKS(at, m, n)                                                                       \
	for (size_t at = 0, m; m = (n)-at < VEC_BLOCK ? (n)-at : VEC_BLOCK, at < (n); at += m)

VEC_FN static double vec_sum(size_t n, const float *x)
{
	double total = 0;

	VEC_BLOCKS(at, m, n)
	{
		VF sum = vzero();

		VEC_EACH(i, k, m)
		sum += vget(x + at + i, k);
		total += (double)vtotal(sum);
	}
	return total;
}

VEC_FN static float vec_max(size_t n, const float *x)
{
	VF most = vset(x[0]);
	float lane[VEC_W];

	for (size_t i = 0; i + VEC_W <= n; i += VEC_W)
		most = vmax(most, vload(x + i));
	for (size_t i = n / VEC_W * VEC_W; i < n; i++)
		most = vmax(most, vset(x[i]));
	memcpy(lane, &most, sizeof(lane));
	for (int i = 1; i < VEC_W; i++)
		lane[0] = lane[i] > lane[0] ? lane[i] : lane[0];
	return lane[0];
}

VEC_FN static float vec_dot(size_t n, const float *a, const float *b)
{
	VF sum = vzero();

	VEC_EACH(i, k, n)
	sum = vfma(vget(a + i, k), vget(b + i, k), sum);
	return vtotal(sum);
}

VEC_FN static void vec_spread(size_t n, float mean, const float *x, double *sum, double *squares)
{
	VEC_BLOCKS(at, m, n)
	{
		VF s = vzero(), q = vzero();

		VEC_EACH(i, k, m)
		{
			VF d = vget(x + at + i, k) - vset(mean);

			if (PL_UNLIKELY(k < VEC_W)) {
				/* missing elements must equal the mean */
				float lane[VEC_W] = { 0 };

				vstore_n(lane, k, d);
				d = vload(lane);
			}
			s += d;
			q = vfma(d, d, q);
		}
		*sum += (double)vtotal(s);
		*squares += (double)vtotal(q);
	}
}

VEC_FN static void vec_centred(size_t n, float mean, const float *x, const float *dy, double *sum,
			       double *dot)
{
	VEC_BLOCKS(at, m, n)
	{
		VF s = vzero(), d = vzero();

		VEC_EACH(i, k, m)
		{
			VF g = vget(dy + at + i, k);

			s += g;
			d = vfma(g, vget(x + at + i, k) - vset(mean), d);
		}
		*sum += (double)vtotal(s);
		*dot += (double)vtotal(d);
	}
}

/* ---- softmax, normalisation ------------------------------------------------------------------ */

VEC_FN static float vec_exp_sum(size_t n, float f, float shift, const float *x, float *y)
{
	VF sum = vzero();
	float rest = 0;
	size_t i = 0;

	for (; i + VEC_W <= n; i += VEC_W) {
		VF e = vexp(vfma(vset(f), vload(x + i), vset(-shift)));

		sum += e;
		vstore(y + i, e);
	}
	if (i < n) {
		float lane[VEC_W];
		VF e = vexp(vfma(vset(f), vload_n(x + i, n - i), vset(-shift)));

		vstore(lane, e);
		vstore_n(y + i, n - i, e);
		for (size_t j = 0; j < n - i; j++)
			rest += lane[j];
	}
	return vtotal(sum) + rest;
}

VEC_FN static void vec_soft_back(size_t n, float own, float f, const float *p, float *s)
{
	VEC_EACH(i, k, n)
	vput(s + i, k, vget(p + i, k) * (vget(s + i, k) - vset(own)) * vset(f));
}

VEC_FN static void vec_norm(size_t n, float mean, float rstd, const float *x, const float *gamma,
			    const float *beta, float *y)
{
	VEC_EACH(i, k, n)
	{
		VF v = (vget(x + i, k) - vset(mean)) * vset(rstd);

		vput(y + i, k, vfma(v, vget(gamma + i, k), vget(beta + i, k)));
	}
}

VEC_FN static void vec_norm_back(size_t n, float mean, float rstd, const float *x,
				 const float *gamma, const float *dy, float *dx)
{
	VF s = vzero(), d = vzero();
	VF a, b;

	VEC_EACH(i, k, n)
	{
		VF g = vget(dy + i, k) * vget(gamma + i, k);

		s += g;
		d = vfma(g, (vget(x + i, k) - vset(mean)) * vset(rstd), d);
	}
	a = vset(vtotal(s) / (float)n);
	b = vset(vtotal(d) / (float)n);
	VEC_EACH(i, k, n)
	{
		VF g = vget(dy + i, k) * vget(gamma + i, k);
		VF v = (vget(x + i, k) - vset(mean)) * vset(rstd);

		vput(dx + i, k, vset(rstd) * (g - a - v * b));
	}
}

VEC_FN static void vec_norm_params(size_t n, float mean, float rstd, const float *x,
				   const float *dy, float *dgamma, float *dbeta)
{
	VEC_EACH(i, k, n)
	{
		VF g = vget(dy + i, k), v = (vget(x + i, k) - vset(mean)) * vset(rstd);

		vput(dbeta + i, k, vget(dbeta + i, k) + g);
		vput(dgamma + i, k, vfma(g, v, vget(dgamma + i, k)));
	}
}

/* ---- pooling --------------------------------------------------------------------------------- */

/* See internal.h. Lane j of the vector at output q stands for q + j; always inlined, so that the
 * common windows get loops of known length. */
VEC_IN void pool_row(const struct pl_pool_row *p, int r, int t, const float *in, float *y,
		     int32_t *at)
{
	uint32_t lane[VEC_W];
	VI iota;

	for (uint32_t i = 0; i < VEC_W; i++)
		lane[i] = i * (uint32_t)t;
	memcpy(&iota, lane, sizeof(iota));
	VEC_EACH(q, k, (size_t)p->n)
	{
		/* the start of the window, and its place in the plane */
		VI column = iota + ((uint32_t)q * (uint32_t)t - (uint32_t)p->pad);
		VI first = column + (uint32_t)p->at;
		VI best = (column & ((column >> 31) - 1)) + (uint32_t)p->at;
		VF most = vset(-__builtin_inff());

		for (int i = 0; i < p->rows; i++, first += (uint32_t)p->w)
			for (int s = 0; s < r; s++) {
				VF x = vload(in + (i * t + s % t) * p->pitch + s / t +
					     (ptrdiff_t)q);
				VI over = (VI)(x > most) | (VI)(x != x);

				most = vpick(over, x, most);
				best = (over & (first + (uint32_t)s)) | (~over & best);
			}
		vput(y + q, k, most);
		if (at)
			memcpy(at + q, &best, k * sizeof(*at));
	}
}

VEC_FN static void vec_pool_row(const struct pl_pool_row *p, const float *in, float *y, int32_t *at)
{
	if (p->r == 2 && p->stride == 2)
		pool_row(p, 2, 2, in, y, at);
	else if (p->r == 3 && p->stride == 2)
		pool_row(p, 3, 2, in, y, at);
	else
		pool_row(p, p->r, p->stride, in, y, at);
}

/* ---- dropout, optimisers --------------------------------------------------------------------- */

VEC_IN VI vmix(VI x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ (x >> 16);
}

/* As pl_drop_hash(); first .. first + n - 1 do not cross a multiple of 2^32. */
VEC_FN static void vec_dropout(size_t n, uint64_t first, uint32_t limit, float f, uint64_t key,
			       const float *x, float *y)
{
	uint32_t hi = (uint32_t)(key >> 32) + (uint32_t)(first >> 32) * 0x9e3779b9u;
	uint32_t lane[VEC_W];
	VI at;

	for (uint32_t i = 0; i < VEC_W; i++)
		lane[i] = (uint32_t)first + i;
	memcpy(&at, lane, sizeof(at));
	VEC_EACH(i, k, n)
	{
		VI hash = vmix(vmix((at + (uint32_t)i) ^ (uint32_t)key) ^ hi);
		VI keep = (VI)(hash >= limit);

		vput(y + i, k, (VF)((VI)(vget(x + i, k) * vset(f)) & keep));
	}
}

VEC_FN static void vec_sgd(size_t n, float lr, float momentum, float decay, bool nesterov,
			   const float *g, float *v, float *w)
{
	VEC_EACH(i, k, n)
	{
		VF to = vget(w + i, k), d = vfma(vset(decay), to, vget(g + i, k));

		if (momentum != 0) {
			VF next = vfma(vset(momentum), vget(v + i, k), d);

			vput(v + i, k, next);
			d = nesterov ? vfma(vset(momentum), next, d) : next;
		}
		vput(w + i, k, vfma(vset(-lr), d, to));
	}
}

VEC_FN static void vec_adam(size_t n, float rate, float fix, float b1, float b2, float eps,
			    float decay, float keep, const float *g, float *m, float *v, float *w)
{
	VEC_EACH(i, k, n)
	{
		VF to = vget(w + i, k), d = vfma(vset(decay), to, vget(g + i, k));
		VF m1 = vfma(vset(b1), vget(m + i, k), vset(1 - b1) * d);
		VF v1 = vfma(vset(b2), vget(v + i, k), vset(1 - b2) * d * d);
		VF under = vfma(vsqrt(v1), vset(fix), vset(eps));

		vput(m + i, k, m1);
		vput(v + i, k, v1);
		vput(w + i, k, vfma(vset(keep), to, -(vset(rate) * m1 / under)));
	}
}

#define VEC_TABLE_(name) pl_tensor_kernels_##name
#define VEC_TABLE(name)	 VEC_TABLE_(name)
#define VEC_TEXT_(name)	 #name
#define VEC_TEXT(name)	 VEC_TEXT_(name)

const struct pl_kernels VEC_TABLE(VEC_NAME) = {
	.name = VEC_TEXT(VEC_NAME),
	.mr = GEMM_MR,
	.nr = GEMM_NR,
	.rows = gemm_rows,
	.cols = gemm_cols,
	.taps = gemm_taps,
	.round = vec_round,
	.act = vec_act,
	.act_back = vec_act_back,
	.bias = vec_bias,
	.bias_one = vec_bias_one,
	.add = vec_add,
	.scale = vec_scale,
	.affine = vec_affine,
	.affine2 = vec_affine2,
	.sum = vec_sum,
	.max = vec_max,
	.dot = vec_dot,
	.spread = vec_spread,
	.centred = vec_centred,
	.exp_sum = vec_exp_sum,
	.soft_back = vec_soft_back,
	.norm = vec_norm,
	.norm_back = vec_norm_back,
	.norm_params = vec_norm_params,
	.pool_row = vec_pool_row,
	.dropout = vec_dropout,
	.sgd = vec_sgd,
	.adam = vec_adam,
};
