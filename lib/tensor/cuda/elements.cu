/*
 * elements.cu - operations on single elements.
 *
 * Bytes for n elements of e bytes: act 2 n e, act_back 3 n e, bias_act 2 n e (3 with pre),
 * bias_planes 2 n e, add 3 n e, dropout 2 n e, round and load n (4 + e). Memory limits all of them:
 * gelu, the most expensive, needs about 25 instructions for an element; a multiprocessor executes
 * 128 in a cycle, and memory gives it 12 bfloat16 in the time of one gelu. exp is that of the
 * device (2 ulp, a little more for large arguments); tanh is that of the library.
 *
 * gelu's tanh form (Hendrycks and Gimpel, 2016) is x s(2 u) with s the sigmoid, since (1 + tanh
 * u)/2 = s(2 u), u = sqrt(2/pi) (x + 0.044715 x^3); its slope is s + 2 x s (1 - s) u'.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu rates: add, gelu, gelu-back,
 * dropout).
 */
#include "tensor/cuda/device.cuh"
#include "tensor/drop.h"

#define GELU_A 0.79788456080286535588f
#define GELU_B 0.044715f

__device__ static inline float sigmoid(float x)
{
	return pl_over(1 + pl_exp2(-x * PL_LOG2E));
}

__device__ static inline float act_one(enum pl_act act, float x)
{
	switch (act) {
	case PL_ACT_RELU:
		return x < 0 ? 0 : x;
	case PL_ACT_GELU:
		return x * sigmoid(2 * GELU_A * (x + GELU_B * x * x * x));
	case PL_ACT_TANH:
		return tanhf(x);
	case PL_ACT_SIGMOID:
		return sigmoid(x);
	default:
		return x;
	}
}

/* The derivative at x, whose value is y; relu, tanh and sigmoid only use y. */
__device__ static inline float act_slope(enum pl_act act, float x, float y)
{
	float s;

	switch (act) {
	case PL_ACT_RELU:
		return y > 0 ? 1 : 0;
	case PL_ACT_GELU:
		s = sigmoid(2 * GELU_A * (x + GELU_B * x * x * x));
		return s + 2 * x * s * (1 - s) * GELU_A * (1 + 3 * GELU_B * x * x);
	case PL_ACT_TANH:
		return 1 - y * y;
	case PL_ACT_SIGMOID:
		return y * (1 - y);
	default:
		return 1;
	}
}

/* ACTS(act, A, statement): A is the activation as a constant, so that it is tested once for each
 * vector and not for each element. */
#define CASE(act, A, ...)                                                                          \
	case act: {                                                                                \
		const enum pl_act A = act;                                                         \
		__VA_ARGS__;                                                                       \
		break;                                                                             \
	}
#define ACTS(act, A, ...)                                                                          \
	do {                                                                                       \
		switch (act) {                                                                     \
			CASE(PL_ACT_RELU, A, __VA_ARGS__)                                          \
			CASE(PL_ACT_GELU, A, __VA_ARGS__)                                          \
			CASE(PL_ACT_TANH, A, __VA_ARGS__)                                          \
			CASE(PL_ACT_SIGMOID, A, __VA_ARGS__)                                       \
		default: {                                                                         \
			const enum pl_act A = PL_ACT_NONE;                                         \
			__VA_ARGS__;                                                               \
		}                                                                                  \
		}                                                                                  \
	} while (0)

template <typename T> struct do_act {
	enum pl_act act;
	const T *x;
	T *y;
	template <int V> __device__ void run(size_t i) const
	{
		float v[V];

		pl_get<V>(x + i, v);
		ACTS(act, A, for (int l = 0; l < V; l++) v[l] = act_one(A, v[l]));
		pl_put<V>(y + i, v);
	}
};

void plk_act(const struct plk *k, enum pl_act act, size_t n, const void *x, void *y)
{
	PL_STORED(k, T, {
		struct do_act<T> f = {
			act, (const T *)x, (T *)y
		};

		pl_each<pl_wide<T>::n>(k, n, pl_aligned(0, x, y), f);
	});
}

template <typename T> struct do_act_back {
	enum pl_act act;
	const T *from, *dy; /* from: x of gelu, else y */
	T *dx;
	template <int V> __device__ void run(size_t i) const
	{
		float v[V], g[V];

		pl_get<V>(from + i, v);
		pl_get<V>(dy + i, g);
		ACTS(act, A, for (int l = 0; l < V; l++) g[l] *= act_slope(A, v[l], v[l]));
		pl_put<V>(dx + i, g);
	}
};

void plk_act_back(const struct plk *k, enum pl_act act, size_t n, const void *x, const void *y,
		  const void *dy, void *dx)
{
	const void *from = act == PL_ACT_GELU ? x : act == PL_ACT_NONE ? dy : y;

	if (act == PL_ACT_NONE && dx == dy)
		return;
	PL_STORED(k, T, {
		struct do_act_back<T> f = {
			act, (const T *)from, (const T *)dy, (T *)dx
		};

		pl_each<pl_wide<T>::n>(k, n, pl_aligned(0, from, dy, dx), f);
	});
}

template <typename T> struct do_bias_act {
	size_t c;
	enum pl_act act;
	const float *bias;
	const T *x;
	T *pre, *y;
	template <int V> __device__ void run(size_t i) const
	{
		float v[V], b[V];

		pl_get<V>(x + i, v);
		if (bias) {
			pl_get<V>(bias + pl_mod(i, c), b);
			for (int l = 0; l < V; l++)
				v[l] += b[l];
		}
		if (pre)
			pl_put<V>(pre + i, v);
		ACTS(act, A, for (int l = 0; l < V; l++) v[l] = act_one(A, v[l]));
		pl_put<V>(y + i, v);
	}
};

/* A vector may begin in one plane and end in the next. */
template <typename T> struct do_bias_planes {
	size_t c, s;
	enum pl_act act;
	const float *bias;
	T *x;
	template <int V> __device__ void run(size_t i) const
	{
		size_t plane = pl_div(i, s), left = s - (i - plane * s), at = pl_mod(plane, c);
		float v[V];

		pl_get<V>(x + i, v);
		for (int l = 0; l < V; l++) {
			if (!left) {
				left = s;
				at = at + 1 == c ? 0 : at + 1;
			}
			v[l] = act_one(act, v[l] + bias[at]);
			left--;
		}
		pl_put<V>(x + i, v);
	}
};

void plk_bias_planes(const struct plk *k, int n, int c, int s, const float *bias, enum pl_act act,
		     void *x)
{
	size_t all = (size_t)n * (size_t)c * (size_t)s;

	if (!bias && act != PL_ACT_NONE)
		plk_act(k, act, all, x, x);
	if (!bias)
		return;
	PL_STORED(k, T, {
		struct do_bias_planes<T> f = {
			(size_t) c, (size_t)s, act, bias, (T *)x
		};

		pl_each<pl_wide<T>::n>(k, all, pl_aligned(0, x), f);
	});
}

void plk_bias_act(const struct plk *k, int n, int c, const float *bias, enum pl_act act,
		  const void *x, void *pre, void *y)
{
	PL_STORED(k, T, {
		struct do_bias_act<T> f = {
			(size_t) c, act, bias, (const T *)x, (T *)pre, (T *)y
		};

		pl_each<pl_wide<T>::n>(k, (size_t)n * (size_t)c,
				       pl_aligned((size_t)c * sizeof(T), bias, x, pre, y), f);
	});
}

template <typename T> struct do_add {
	const T *a, *b;
	T *y;
	template <int V> __device__ void run(size_t i) const
	{
		float v[V], u[V];

		pl_get<V>(a + i, v);
		pl_get<V>(b + i, u);
		for (int l = 0; l < V; l++)
			v[l] += u[l];
		pl_put<V>(y + i, v);
	}
};

void plk_add(const struct plk *k, size_t n, const void *a, const void *b, void *y)
{
	PL_STORED(k, T, {
		struct do_add<T> f = {
			(const T *)a, (const T *)b, (T *)y
		};

		pl_each<pl_wide<T>::n>(k, n, pl_aligned(0, a, b, y), f);
	});
}

template <typename T> struct do_dropout {
	uint32_t limit;
	float scale;
	const struct pl_vary *vary;
	uint64_t salt;
	const T *x;
	T *y;
	template <int V> __device__ void run(size_t i) const
	{
		uint64_t key = pl_drop_key(vary->key, salt);
		float v[V];

		pl_get<V>(x + i, v);
		for (int l = 0; l < V; l++)
			v[l] = pl_drop_hash(key, i + (size_t)l) < limit ? 0 : v[l] * scale;
		pl_put<V>(y + i, v);
	}
};

void plk_dropout(const struct plk *k, size_t n, float p, const struct pl_vary *v, uint64_t salt,
		 const void *x, void *y)
{
	PL_STORED(k, T, {
		struct do_dropout<T> f = {
			pl_drop_limit((double)p), (float)(1 / (1 - (double)p)), v, salt,
				(const T *)x, (T *)y
		};

		pl_each<pl_wide<T>::n>(k, n, pl_aligned(0, x, y), f);
	});
}

void plk_zero(const struct plk *k, void *p, size_t bytes)
{
	if (bytes)
		(void)cudaMemsetAsync(p, 0, bytes, k->stream);
}

template <typename T> struct do_convert {
	const float *x;
	T *y;
	template <int V> __device__ void run(size_t i) const
	{
		float v[V];

		pl_get<V>(x + i, v);
		pl_put<V>(y + i, v);
	}
};

template <typename T> static void convert(const struct plk *k, size_t n, const float *x, T *y)
{
	struct do_convert<T> f = {
		x, y
	};

	pl_each<pl_wide<T>::n>(k, n, pl_aligned(0, x, y), f);
}

void plk_round(const struct plk *k, size_t n, const float *x, void *y)
{
	convert(k, n, x, (bf16 *)y);
}

struct do_round_rows {
	size_t c, ldx, ldy;
	const float *x;
	bf16 *y;
	template <int V> __device__ void run(size_t i) const
	{
		size_t row = pl_div(i, ldy), col = i - row * ldy;
		float v[V] = { 0 };

		if (col < c)
			pl_get<V>(x + row * ldx + col, v);
		pl_put<V>(y + i, v);
	}
};

void plk_round_rows(const struct plk *k, int n, int c, const float *x, int ldx, void *y, int ldy)
{
	struct do_round_rows f = { (size_t)c, (size_t)ldx, (size_t)ldy, x, (bf16 *)y };
	bool wide = c % 8 == 0 && ldy % 8 == 0 && pl_aligned((size_t)ldx * sizeof(float), x, y);

	pl_each<8>(k, (size_t)n * (size_t)ldy, wide, f);
}

void plk_load(const struct plk *k, size_t n, const float *x, void *y)
{
	PL_STORED(k, T, { convert(k, n, x, (T *)y); });
}
