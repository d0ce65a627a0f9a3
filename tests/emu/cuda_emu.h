/*
 * cuda_emu.h - the part of CUDA C++ that our kernels use, on the host: for tests without a GPU.
 *
 * Put before a .cu source by -include, it makes it plain C++. A launch runs its blocks one after
 * another in an order shuffled by emu_seed(), and the threads of a block as fibers, each until it
 * has to wait for others, in a shuffled order, too: so a missing barrier shows as a wrong result.
 * Shared memory is NaN in every block until it is written. What would hang or is undefined on a
 * device (a warp operation of which a lane is missing, lanes in different operations, too much
 * shared memory) ends the program with a message; and in programs that are linked with kernels
 * compiled to tell it (see emu_race.cpp) so does memory that one thread writes and another touches
 * with nothing between that orders them. Without a stream all is done when a launch
 * returns.
 */
#ifndef PL_CUDA_EMU_H
#define PL_CUDA_EMU_H

#define PL_EMU 1

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <functional>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __grid_constant__
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
	unsigned x, y, z;
	dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_)
	{
	}
};
extern dim3 threadIdx, blockIdx, blockDim, gridDim; /* of the thread that runs */

/* Order of blocks and threads; 0: as they are numbered. */
void emu_seed(uint64_t seed);
/* How many launches there were; greatest shared memory of one of them, in bytes. */
extern uint64_t emu_launches;
extern size_t emu_most_shared;
/* A device whose wgmma reads matrices as if they were not swizzled. */
extern bool emu_unswizzled;

/* ---- launches -------------------------------------------------------------------------------- */

typedef enum {
	cudaSuccess,
	cudaErrorInvalidValue,
	cudaErrorMemoryAllocation,
	cudaErrorInsufficientDriver,
	cudaErrorNoDevice,
	cudaErrorNotReady,
	cudaErrorLaunchFailure,
	cudaErrorStreamCaptureInvalidated,
	cudaErrorStreamCaptureUnsupported,
	cudaErrorStreamCaptureWrongThread,
	cudaErrorInvalidResourceHandle,
	cudaErrorNotSupported,
	cudaErrorUnknown
} cudaError_t;
typedef struct emu_stream *cudaStream_t;

/* What a stream is given to do: at once without a stream, else see emu_runtime.h. */
void emu_do(cudaStream_t stream, std::function<void()> f);
/* Is the stream of the thread's device? Else the launch fails. */
bool emu_may_launch(cudaStream_t stream);
/* Does the device only list what it is given (EMU_LIST)? Then this is on the list, as one line. */
bool emu_listed(const char *fmt, ...) __attribute__((format(printf, 1, 2)));

void emu_run(const char *name, dim3 grid, dim3 block, size_t shared, void (*call)(void *arg),
	     void *arg);

template <typename F>
static inline void emu_launch(const char *name, dim3 grid, dim3 block, size_t shared, F f)
{
	emu_run(
		name, grid, block, shared, [](void *arg) { (*(F *)arg)(); }, &f);
}
/* f(a...) in each thread, when the stream comes to it. */
template <typename F, typename... A>
static inline void emu_queue(cudaStream_t stream, const char *name, dim3 grid, dim3 block,
			     size_t shared, F f, A... a)
{
	/* the function's own name has the types of what it launches */
	if (emu_may_launch(stream) &&
	    !emu_listed("kernel %u %u %u %u %u %u %zu %s %s", grid.x, grid.y, grid.z, block.x,
			block.y, block.z, shared, name, __PRETTY_FUNCTION__))
		emu_do(stream,
		       [=]() { emu_launch(name, grid, block, shared, [=]() { f(a...); }); });
}

cudaError_t cudaMemsetAsync(void *p, int value, size_t bytes, cudaStream_t stream);

/* ---- who touches what ------------------------------------------------------------------------ */

enum emu_access { EMU_READS, EMU_WRITES, EMU_ATOMIC };
/* The thread that runs does that with memory. What kernels do themselves their compiler tells, in
 * programs that look for races (emu_race.cpp); what is done for them has to be said. */
void emu_touch(const void *p, size_t bytes, enum emu_access access);
/* While there is one, nothing else than what is said counts: what runs is the emulation's own. It
 * must not wait for other threads. */
struct emu_aside {
	emu_aside();
	~emu_aside();
};
/* Is something of the program compiled to tell? */
extern bool emu_told;
/* Races so far are counted, and do not end the program. */
extern bool emu_count_races;
extern uint64_t emu_races;

struct emu_now { /* the running thread of a kernel */
	bool on;
	unsigned thread, phase, warp_phase; /* barriers, __syncwarp() so far: what orders threads */
	uint64_t block;			    /* of all blocks so far */
	const char *stack, *shared;	    /* where these are */
	size_t stack_bytes, shared_bytes;
};
/* not thread_local: with that, each use from another file calls a function */
extern __thread struct emu_now emu_now;
/* Ends the program, and says who did what. */
[[noreturn]] void emu_fail(const char *what, const char *which);

/* ---- memory ---------------------------------------------------------------------------------- */

#define EMU_MOST_SHARED (227 << 10) /* of a block */

void *emu_dynamic(void);
/* The shared variable that `tag` stands for, in this block. */
void *emu_shared(const void *tag, size_t bytes, size_t align);

template <typename T> static inline T __ldg(const T *p)
{
	return *p;
}
template <typename T> static inline T __ldcg(const T *p)
{
	return *p;
}
template <typename T> static inline T __ldcs(const T *p)
{
	return *p;
}
template <typename T> static inline void __stcs(T *p, T v)
{
	*p = v;
}
template <typename T> static inline void __stcg(T *p, T v)
{
	*p = v;
}
static inline void __threadfence()
{
}
static inline void __threadfence_block()
{
}

/* Threads change only where they wait, so nothing comes between. */
#define EMU_ATOMIC(name, expression)                                                               \
	template <typename T, typename U> static inline T name(T *p, U u)                          \
	{                                                                                          \
		const struct emu_aside aside;                                                      \
		T was = *p, v = (T)u;                                                              \
		emu_touch(p, sizeof(T), EMU_ATOMIC);                                               \
		*p = (expression);                                                                 \
		return was;                                                                        \
	}
EMU_ATOMIC(atomicAdd, was + v)
EMU_ATOMIC(atomicMax, was > v ? was : v)
EMU_ATOMIC(atomicMin, was < v ? was : v)
EMU_ATOMIC(atomicOr, was | v)
EMU_ATOMIC(atomicAnd, was &v)
EMU_ATOMIC(atomicExch, v)
#undef EMU_ATOMIC
template <typename T> static inline T atomicCAS(T *p, T expected, T v)
{
	const struct emu_aside aside;
	T was = *p;

	emu_touch(p, sizeof(T), EMU_ATOMIC);
	*p = was == expected ? v : was;
	return was;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Barrier `id` of `count` threads; 0: all of the block that have not ended. */
void emu_barrier(int id, unsigned count);
/*
 * Lanes in `mask` meet in operation `op`; each gives `bytes` (at most EMU_LANE) and gets what all
 * gave: lane i's at i * EMU_LANE. Valid until the lane's operation after the next.
 */
#define EMU_LANE 64
const char *emu_warp(const char *op, unsigned mask, const void *in, size_t bytes);
unsigned emu_lane(void);

static inline void __syncthreads()
{
	emu_barrier(0, 0);
}
static inline void __syncwarp(unsigned mask = 0xffffffffu)
{
	emu_warp("__syncwarp", mask, NULL, 0);
}

template <typename T> static inline T emu_from(const char *all, unsigned lane)
{
	T v;

	memcpy(&v, all + lane * EMU_LANE, sizeof(v));
	return v;
}
/* What a lane outside the mask, or of another segment, would give is undefined: one's own. */
template <typename T> static inline T __shfl_sync(unsigned mask, T v, int from, int width = 32)
{
	unsigned base = emu_lane() & ~(unsigned)(width - 1);

	return emu_from<T>(emu_warp("__shfl_sync", mask, &v, sizeof(v)),
			   base | ((unsigned)from & (unsigned)(width - 1)));
}
template <typename T> static inline T __shfl_xor_sync(unsigned mask, T v, int bits, int width = 32)
{
	const char *all = emu_warp("__shfl_xor_sync", mask, &v, sizeof(v));
	unsigned from = emu_lane() ^ (unsigned)bits;

	(void)width;
	return emu_from<T>(all, from & 31);
}
template <typename T>
static inline T __shfl_down_sync(unsigned mask, T v, unsigned by, int width = 32)
{
	const char *all = emu_warp("__shfl_down_sync", mask, &v, sizeof(v));
	unsigned lane = emu_lane(), in = lane & (unsigned)(width - 1);

	return emu_from<T>(all, in + by < (unsigned)width ? lane + by : lane);
}
template <typename T>
static inline T __shfl_up_sync(unsigned mask, T v, unsigned by, int width = 32)
{
	const char *all = emu_warp("__shfl_up_sync", mask, &v, sizeof(v));
	unsigned lane = emu_lane(), in = lane & (unsigned)(width - 1);

	return emu_from<T>(all, in >= by ? lane - by : lane);
}

/* Folds what the lanes of the mask gave, in the order of lanes. */
template <typename T, typename R, typename F>
static inline R emu_fold(const char *op, unsigned mask, T v, R r, F f)
{
	const char *all = emu_warp(op, mask, &v, sizeof(v));

	for (unsigned i = 0; i < 32; i++)
		if (mask >> i & 1)
			r = f(r, emu_from<T>(all, i), i);
	return r;
}
static inline unsigned __ballot_sync(unsigned mask, int p)
{
	return emu_fold("__ballot_sync", mask, p, 0u,
			[](unsigned r, int q, unsigned i) { return r | (q ? 1u << i : 0u); });
}
static inline int __any_sync(unsigned mask, int p)
{
	return emu_fold("__any_sync", mask, p, 0, [](int r, int q, unsigned) { return r | !!q; });
}
static inline int __all_sync(unsigned mask, int p)
{
	return emu_fold("__all_sync", mask, p, 1, [](int r, int q, unsigned) { return r & !!q; });
}
template <typename T> static inline unsigned __match_any_sync(unsigned mask, T v)
{
	return emu_fold("__match_any_sync", mask, v, 0u, [v](unsigned r, T q, unsigned i) {
		return r | (!memcmp(&q, &v, sizeof(v)) ? 1u << i : 0u);
	});
}
template <typename T> static inline T __reduce_add_sync(unsigned mask, T v)
{
	return emu_fold("__reduce_add_sync", mask, v, (T)0,
			[](T r, T q, unsigned) { return r + q; });
}
template <typename T> static inline T __reduce_max_sync(unsigned mask, T v)
{
	return emu_fold("__reduce_max_sync", mask, v, v,
			[](T r, T q, unsigned) { return r > q ? r : q; });
}
template <typename T> static inline T __reduce_min_sync(unsigned mask, T v)
{
	return emu_fold("__reduce_min_sync", mask, v, v,
			[](T r, T q, unsigned) { return r < q ? r : q; });
}
int __syncthreads_or(int p);

/* ---- numbers --------------------------------------------------------------------------------- */

#define EMU_VECTOR2(name, T)                                                                       \
	struct __align__(2 * sizeof(T)) name##2                                                    \
	{                                                                                          \
		T x, y;                                                                            \
	};                                                                                         \
	static inline name##2 make_##name##2(T x, T y)                                             \
	{                                                                                          \
		return name##2 { x, y };                                                           \
	}
#define EMU_VECTOR4(name, T)                                                                       \
	struct __align__(4 * sizeof(T)) name##4                                                    \
	{                                                                                          \
		T x, y, z, w;                                                                      \
	};                                                                                         \
	static inline name##4 make_##name##4(T x, T y, T z, T w)                                   \
	{                                                                                          \
		return name##4 { x, y, z, w };                                                     \
	}
EMU_VECTOR2(float, float)
EMU_VECTOR4(float, float)
EMU_VECTOR2(int, int)
EMU_VECTOR4(int, int)
EMU_VECTOR2(uint, unsigned)
EMU_VECTOR4(uint, unsigned)
#undef EMU_VECTOR2
#undef EMU_VECTOR4

static inline unsigned __float_as_uint(float v)
{
	unsigned u;

	memcpy(&u, &v, sizeof(u));
	return u;
}
static inline float __uint_as_float(unsigned u)
{
	float v;

	memcpy(&v, &u, sizeof(v));
	return v;
}
static inline int __popc(unsigned v)
{
	return __builtin_popcount(v);
}
static inline int __clz(int v)
{
	return v ? __builtin_clz((unsigned)v) : 32;
}
static inline int __ffs(int v)
{
	return __builtin_ffs(v);
}
/*
 * Functions are as inexact as a device's: some other number, up to that many units in the last
 * place away, always the same one; 0 instead of what is subnormal; what has no error has none.
 */
static inline float emu_about(float v, unsigned ulp)
{
	unsigned u = __float_as_uint(v), by = (u * 0x9e3779b9u >> 16) % (2 * ulp + 1);

	if (fabsf(v) < 1.17549435e-38f)
		return 0;
	return v == 1 || !isfinite(v) ? v : __uint_as_float(u + by - ulp);
}
static inline float emu_exp2(float v)
{
	return emu_about(exp2f(v), 2);
}
/* of CUDA's guide, without -use_fast_math */
#define expf(v)	 emu_about(expf(v), 1)
#define logf(v)	 emu_about(logf(v), 1)
#define tanhf(v) emu_about(tanhf(v), 2)
static inline float rsqrtf(float v)
{
	return emu_about(1 / sqrtf(v), 2);
}
static inline float __frcp_rn(float v)
{
	return 1 / v;
}
static inline float __fmul_rn(float a, float b)
{
	return a * b;
}
static inline float __fmaf_rn(float a, float b, float c)
{
	return fmaf(a, b, c);
}

static inline int min(int a, int b)
{
	return a < b ? a : b;
}
static inline int max(int a, int b)
{
	return a > b ? a : b;
}

struct __nv_bfloat16 { /* the upper half of a float */
	unsigned short bits;
};
struct __align__(4) __nv_bfloat162
{
	__nv_bfloat16 x, y;
};
/* To the nearest, ties to even; no number stays none. */
static inline __nv_bfloat16 __float2bfloat16_rn(float v)
{
	unsigned u = __float_as_uint(v);

	if (v != v)
		return __nv_bfloat16{ 0x7fff };
	return __nv_bfloat16{ (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16) };
}
static inline float __bfloat162float(__nv_bfloat16 v)
{
	return __uint_as_float((unsigned)v.bits << 16);
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y)
{
	return __nv_bfloat162{ __float2bfloat16_rn(x), __float2bfloat16_rn(y) };
}

#endif
