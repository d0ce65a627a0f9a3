/*
 * device.cuh - the common parts of kernels: launches, shared memory, vectors of elements, sums in a
 * fixed order.
 *
 * A source that uses only this header and plain CUDA C++ is also compiled as C++ for the emulated
 * device of the tests (tests/emu/cuda_emu.h, which defines PL_EMU and is included first).
 */
#ifndef PL_CUDA_DEVICE_CUH
#define PL_CUDA_DEVICE_CUH

#include "tensor/cuda/kernels.h"

#ifndef PL_EMU
#include <cuda_bf16.h>
#endif

typedef __nv_bfloat16 bf16;

/* ---- launches and shared memory -------------------------------------------------------------- */

/* A kernel gets 48 KB of shared memory by default, including its declared arrays (PL_SHARED). A
 * launch with more dynamic memory than this asks for more, whatever the kernel declares. */
#define PL_ASKS ((size_t)32 << 10)

/* The shared memory of a block on every device of compute capability 8.0 and newer (8.6, 8.9 and
 * 12.0 have no more; 8.0 has 163 KB, 9.0 and 10.0 227). Kernels that need more check plk's `shared`
 * first. */
#define PL_LEAST_SHARED (99 << 10)

/* PL_LAUNCH(kernel, grid, block, bytes of dynamic shared memory, stream, arguments...); a kernel
 * with template arguments in parentheses. */
#ifdef PL_EMU
#define PL_LAUNCH(kernel, grid, block, shared, stream, ...)                                        \
	emu_queue(                                                                                 \
		stream, #kernel, grid, block, shared, [](auto... a_) { kernel(a_...); },           \
		__VA_ARGS__)
#else
#define PL_LAUNCH(kernel, grid, block, shared, stream, ...)                                        \
	pl_launch(kernel, grid, block, shared, stream, __VA_ARGS__)

template <typename... P, typename... A>
static inline void pl_launch(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared,
			     cudaStream_t stream, A... args)
{
	if (shared > PL_ASKS)
		cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
				     (int)shared);
	kernel<<<grid, block, shared, stream>>>(args...);
}
#endif

/* PL_SHARED(sums, float[32]); declares `sums`. PL_DYNAMIC(rows, float); declares `float *rows`, the
 * dynamic shared memory of the launch. The first begins at a multiple of 16 bytes, as vectors do,
 * the second at one of 1,024. Neither is cleared. */
#ifdef PL_EMU
#define PL_SHARED(name, ...)                                                                       \
	using name##_type = __VA_ARGS__;                                                           \
	static char name##_tag __attribute__((unused));                                            \
	name##_type &name =                                                                        \
		*(name##_type *)emu_shared(&name##_tag, sizeof(name##_type), alignof(name##_type))
#define PL_DYNAMIC(name, ...) __VA_ARGS__ *name = (__VA_ARGS__ *)emu_dynamic()
#else
#define PL_SHARED(name, ...)                                                                       \
	using name##_type = __VA_ARGS__;                                                           \
	__shared__ __align__(16) name##_type name
#define PL_DYNAMIC(name, ...)                                                                      \
	extern __shared__ __align__(1024) unsigned char pl_dynamic[];                              \
	__VA_ARGS__ *name = (__VA_ARGS__ *)pl_dynamic
#endif

static inline unsigned pl_blocks(size_t n, size_t each)
{
	return (unsigned)((n + each - 1) / each);
}

/* ---- elements -------------------------------------------------------------------------------- */

/* V elements as a thread reads and writes them: 16 bytes, or one element. */
template <typename T> struct pl_wide {
	static const int n = 16 / sizeof(T);
};

__device__ static inline float pl_float(float x)
{
	return x;
}
__device__ static inline float pl_float(bf16 x)
{
	return __bfloat162float(x);
}
__device__ static inline void pl_store(float *p, float x)
{
	*p = x;
}
__device__ static inline void pl_store(bf16 *p, float x)
{
	*p = __float2bfloat16_rn(x);
}

/* two bfloat16 in a word, the first one in the lower half */
__device__ static inline unsigned pl_pack(float lo, float hi)
{
	__nv_bfloat162 v = __floats2bfloat162_rn(lo, hi);
	unsigned u;

	memcpy(&u, &v, sizeof(u));
	return u;
}

__device__ static inline void pl_unpack(unsigned u, float *v)
{
	v[0] = __uint_as_float(u << 16);
	v[1] = __uint_as_float(u & 0xffff0000u);
}

/* pl_get<V>(p, v): v[0..V) = p[0..V) as floats; V > 1: p is aligned to V elements. */
template <int V, typename T> struct pl_vector { /* V = 1 */
	__device__ static inline void get(const T *p, float *v)
	{
		v[0] = pl_float(*p);
	}
	__device__ static inline void put(T *p, const float *v)
	{
		pl_store(p, v[0]);
	}
};
template <> struct pl_vector<4, float> {
	__device__ static inline void get(const float *p, float *v)
	{
		float4 u = *(const float4 *)p;

		v[0] = u.x, v[1] = u.y, v[2] = u.z, v[3] = u.w;
	}
	__device__ static inline void put(float *p, const float *v)
	{
		*(float4 *)p = make_float4(v[0], v[1], v[2], v[3]);
	}
};
template <> struct pl_vector<8, float> {
	__device__ static inline void get(const float *p, float *v)
	{
		pl_vector<4, float>::get(p, v);
		pl_vector<4, float>::get(p + 4, v + 4);
	}
	__device__ static inline void put(float *p, const float *v)
	{
		pl_vector<4, float>::put(p, v);
		pl_vector<4, float>::put(p + 4, v + 4);
	}
};
template <> struct pl_vector<4, bf16> {
	__device__ static inline void get(const bf16 *p, float *v)
	{
		uint2 u = *(const uint2 *)p;

		pl_unpack(u.x, v), pl_unpack(u.y, v + 2);
	}
	__device__ static inline void put(bf16 *p, const float *v)
	{
		*(uint2 *)p = make_uint2(pl_pack(v[0], v[1]), pl_pack(v[2], v[3]));
	}
};
template <> struct pl_vector<8, bf16> {
	__device__ static inline void get(const bf16 *p, float *v)
	{
		uint4 u = *(const uint4 *)p;

		pl_unpack(u.x, v), pl_unpack(u.y, v + 2);
		pl_unpack(u.z, v + 4), pl_unpack(u.w, v + 6);
	}
	__device__ static inline void put(bf16 *p, const float *v)
	{
		*(uint4 *)p = make_uint4(pl_pack(v[0], v[1]), pl_pack(v[2], v[3]),
					 pl_pack(v[4], v[5]), pl_pack(v[6], v[7]));
	}
};
template <int V, typename T> __device__ static inline void pl_get(const T *p, float *v)
{
	pl_vector<V, T>::get(p, v);
}
template <int V, typename T> __device__ static inline void pl_put(T *p, const float *v)
{
	pl_vector<V, T>::put(p, v);
}

/* V elements in the type of memory: bfloat16 then takes half the registers. */
template <typename T, int V> struct pl_raw {
	uint4 v;
};
template <typename T> struct pl_raw<T, 1> {
	T v;
};

/* Can rows of c elements at all these addresses be read 16 bytes at a time? NULL: yes. */
static inline bool pl_aligned(size_t row_bytes)
{
	return row_bytes % 16 == 0;
}
template <typename... P> static inline bool pl_aligned(size_t row_bytes, const void *p, P... more)
{
	return (uintptr_t)p % 16 == 0 && pl_aligned(row_bytes, more...);
}

/* PL_STORED(k, T, statement): T is the type of stored activations. */
#define PL_STORED(k, T, ...)                                                                       \
	do {                                                                                       \
		if ((k)->bf16) {                                                                   \
			typedef bf16 T;                                                            \
			__VA_ARGS__;                                                               \
		} else {                                                                           \
			typedef float T;                                                           \
			__VA_ARGS__;                                                               \
		}                                                                                  \
	} while (0)

/*
 * pl_each(k, n, wide, f): f.run<V>(i) for elements i to i + V - 1, for all of n; V is `most` if
 * `wide`, else 1, and 1 for the last few. A thread computes one vector, so that all threads of the
 * device have a vector in flight: 32 KB for each multiprocessor and input, more than the 25 KB that
 * keep the memory of an H200 busy (4.8 TB/s times 0.7 us, over 132).
 */
#define PL_BLOCK 256

template <int V, typename F> static __global__ void pl_each_kernel(size_t n, F f)
{
	size_t i = ((size_t)blockIdx.x * PL_BLOCK + threadIdx.x) * V;

	if (i + V <= n) {
		f.template run<V>(i);
		return;
	}
	for (; i < n; i++)
		f.template run<1>(i);
}
template <int most, typename F>
static void pl_each(const struct plk *k, size_t n, bool wide, const F &f)
{
	if (n && wide)
		PL_LAUNCH((pl_each_kernel<most, F>), pl_blocks(n, PL_BLOCK * most), PL_BLOCK, 0,
			  k->stream, n, f);
	else if (n)
		PL_LAUNCH((pl_each_kernel<1, F>), pl_blocks(n, PL_BLOCK), PL_BLOCK, 0, k->stream, n,
			  f);
}

/* Divides in 32 bits if the numbers fit. */
__device__ static inline size_t pl_div(size_t a, size_t b)
{
	return (a | b) >> 32 ? a / b : (unsigned)a / (unsigned)b;
}
__device__ static inline size_t pl_mod(size_t a, size_t b)
{
	return (a | b) >> 32 ? a % b : (unsigned)a % (unsigned)b;
}

/* 2^x, within 2 units in the last place; 0 for -infinity and if the result is subnormal */
__device__ static inline float pl_exp2(float x)
{
#ifdef PL_EMU
	return emu_exp2(x);
#else
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}
#define PL_LOG2E 1.44269504088896341f

/* 1 / x, within 1 unit in the last place, in a fifth of the time of the exact division */
__device__ static inline float pl_over(float x)
{
#ifdef PL_EMU
	return emu_about(1 / x, 1);
#else
	float y;

	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
#endif
}

/* ---- sums ------------------------------------------------------------------------------------ */

#define PL_FULL 0xffffffffu

/* All lanes get the same bits: in each round both lanes of a pair add the same two numbers. */
template <typename T> __device__ static inline T pl_warp_sum(T v)
{
	for (int bit = 16; bit; bit >>= 1)
		v += __shfl_xor_sync(PL_FULL, v, bit);
	return v;
}
__device__ static inline float pl_warp_max(float v)
{
	for (int bit = 16; bit; bit >>= 1)
		v = fmaxf(v, __shfl_xor_sync(PL_FULL, v, bit));
	return v;
}

/*
 * The sum over a team of `size` consecutive threads (a multiple of 32), for each of them. `room`:
 * 32 numbers of shared memory. If a team is more than a warp, all threads of the block must call
 * it. It is a barrier of the team: afterwards other threads may overwrite data that the team has
 * read.
 */
template <typename T> __device__ static inline T pl_team_sum(T v, int size, T *room)
{
	int thread = (int)(threadIdx.x + blockDim.x * threadIdx.y), lane = thread % 32;
	int warps = size / 32, first = thread / size * warps;

	v = pl_warp_sum(v);
	if (size == 32) {
		__syncwarp(); /* shuffles do not order memory accesses */
		return v;
	}
	__syncthreads(); /* all threads have read the last sum */
	if (lane == 0)
		room[thread / 32] = v;
	__syncthreads();
	return pl_warp_sum(lane < warps ? room[first + lane] : (T)0);
}
__device__ static inline float pl_team_max(float v, int size, float *room)
{
	int thread = (int)(threadIdx.x + blockDim.x * threadIdx.y), lane = thread % 32;
	int warps = size / 32, first = thread / size * warps;

	v = pl_warp_max(v);
	if (size == 32) {
		__syncwarp();
		return v;
	}
	__syncthreads();
	if (lane == 0)
		room[thread / 32] = v;
	__syncthreads();
	return pl_warp_max(lane < warps ? room[first + lane] : -INFINITY);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The number after storing and reading it. */
template <typename T> __device__ static inline float pl_stored(float x);
template <> __device__ inline float pl_stored<float>(float x)
{
	return x;
}
template <> __device__ inline float pl_stored<bf16>(float x)
{
	return __bfloat162float(__float2bfloat16_rn(x));
}

/*
 * A team divides a row of `vecs` vectors; its threads differ in threadIdx.x, and vector j belongs
 * to thread j % team. f(i, j) is called for each vector j of a thread; i counts them, at most K, so
 * that i can choose a register. K = 0: any number of vectors, and i is always 0.
 */
#define PL_HELD 4 /* K, if the row fits */

template <int K, typename F> __device__ static inline void pl_row(int vecs, F f)
{
	if constexpr (K == 0) {
		for (int j = (int)threadIdx.x; j < vecs; j += (int)blockDim.x)
			f(0, j);
	} else {
#pragma unroll
		for (int i = 0; i < K; i++) {
			int j = i * (int)blockDim.x + (int)threadIdx.x;

			if (j < vecs)
				f(i, j);
		}
	}
}

/* The smallest team that holds a row in `each` vectors for each thread; *held: such a team
 * exists. */
static inline unsigned pl_team(int vecs, unsigned each, bool *held)
{
	unsigned team = 32;

	while (team < 1024 && team * each < (unsigned)vecs)
		team *= 2;
	*held = team * each >= (unsigned)vecs;
	return team;
}

/*
 * out0[j] += (or =, if k->fresh) the sum over i < count, in order, of parts[i (2 width) + j],
 * out1[j] that of parts[i (2 width) + width + j]; out1 NULL: there is no second half, rows are
 * `width` apart. In columns.cu.
 */
void pl_fold(const struct plk *k, const float *parts, int count, int width, float *out0,
	     float *out1);

#endif
