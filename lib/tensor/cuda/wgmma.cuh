/*
 * wgmma.cuh - the tensor cores of Hopper at their full rate (only sm_90a): a warpgroup, four warps,
 * multiplies 64 rows of bfloat16 from shared memory or registers with a matrix in shared memory,
 * while it does other work. On the device each function is one instruction of PTX or a few; without
 * a device tests/emu/emu_wgmma.h follows the PTX ISA and refuses what the ISA forbids.
 *
 * Products C (64, N) += A (64, 16) B (16, N), N = 64 or 128. Warp w of the four has rows 16 w to
 * 16 w + 15 of C and A, in the fragments of mma.cuh: c[n][] are columns 8 n to 8 n + 7.
 *
 * From the start of a product until the plw_wait() that ends its plw_commit(), its operands must
 * not be touched: C, A in registers, shared memory. Before the first product, and after any change
 * of its registers, call plw_keep() for them and plw_fence(). Data that threads write into shared
 * memory becomes visible to the tensor cores after plw_show(), called by each writer, and a
 * barrier.
 */
#ifndef PL_CUDA_WGMMA_CUH
#define PL_CUDA_WGMMA_CUH

#include "tensor/cuda/mma.cuh"

/*
 * Tiles: ROWS (a multiple of 8) of SIZE columns, 64 or 128, as panels of 64 columns: 128 bytes for
 * each row, whose 8 chunks are permuted by exclusive or with the row (the ISA's 128-byte swizzling,
 * which depends on the address: a tile begins at a multiple of PLW_ALIGN). A product sums along the
 * rows of a tile (plw_along: they are rows of A, or columns of B) or across them (plw_across: they
 * are rows of B).
 */
#define PLW_ALIGN 1024
#define PLW_ROW	  128 /* bytes of a panel's row */

template <int SIZE, int ROWS> struct plw_tile {
	static constexpr int panel = ROWS * PLW_ROW, bytes = SIZE / 64 * panel;

	/* offset of chunk c of row r, in bytes */
	static __device__ __forceinline__ uint32_t place(int r, int c)
	{
		return (uint32_t)(c / 8 * panel + r * PLW_ROW + ((c ^ r) & 7) * 16);
	}
	/* As in plm_tile: rows from `row` on of a matrix with ld columns; zeros from row `valid`
	 * and from column `size` on. */
	template <int THREADS>
	static __device__ __forceinline__ void fetch(plm_addr to, const bf16 *from, int row, int ld,
						     int valid, int size)
	{
		constexpr int step = THREADS / 8; /* rows that are copied at once */
		unsigned me = plm_again(threadIdx.x);
		int r = (int)(me / 8), c = (int)(me % 8);

		static_assert(step % 8 == 0 && ROWS % 8 == 0, "the permutation repeats");
		from += (size_t)(unsigned)(row + r) * (unsigned)ld + 8 * c;
		to += place(r, c);
#pragma unroll
		for (int p = 0; p < SIZE / 64; p++)
#pragma unroll
			for (int i = 0; i < ROWS; i += step)
				if (ROWS - i >= step || r < ROWS - i)
					plm_copy<16>(to + p * panel + i * PLW_ROW,
						     from + 64 * p + i * ld,
						     i + r < valid && 8 * c + 64 * p < size);
	}
};

/*
 * The descriptor of a matrix in shared memory: bits 0 to 13 its address, 16 to 29 the distance of
 * panels (across), 32 to 45 the distance of groups of 8 rows, all in units of 16 bytes; 62, 63:
 * swizzling of 128 bytes.
 */
typedef uint64_t plw_matrix;

static __device__ __forceinline__ plw_matrix plw_along(plm_addr at)
{
	return (uint64_t)1 << 62 | (uint64_t)(8 * PLW_ROW >> 4) << 32 | (uint64_t)1 << 16 |
	       (at & 0x3ffff) >> 4;
}
static __device__ __forceinline__ plw_matrix plw_across(plm_addr at, int panel)
{
	return (uint64_t)1 << 62 | (uint64_t)(8 * PLW_ROW >> 4) << 32 |
	       (uint64_t)(unsigned)(panel >> 4) << 16 | (at & 0x3ffff) >> 4;
}
/* The descriptor of the matrix that begins `bytes` later. */
static __device__ __forceinline__ plw_matrix plw_further(plw_matrix m, int bytes)
{
	return m + (unsigned)(bytes >> 4);
}

/* The first row of the thread's warpgroup. The compiler does not know that all threads of a warp
 * have the same number, unless one lane broadcasts it; then it keeps descriptors in the uniform
 * registers that the tensor cores need. */
static __device__ __forceinline__ int plw_group(void)
{
	return __shfl_sync(PL_FULL, (int)threadIdx.x / 128 * 64, 0);
}

#ifdef PL_EMU
#include "emu_wgmma.h"
#else
static __device__ __forceinline__ void plw_fence(void)
{
	asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
static __device__ __forceinline__ void plw_commit(void)
{
	asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int N> static __device__ __forceinline__ void plw_wait(void)
{
	asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}
static __device__ __forceinline__ void plw_show(void)
{
	asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

/* Keeps the compiler from moving accesses to c, or to A in registers, across a fence or a wait, and
 * from reusing A's registers before the wait. */
template <int N> static __device__ __forceinline__ void plw_keep(float (&c)[N][4])
{
#pragma unroll
	for (int n = 0; n < N; n++)
		asm volatile(""
			     : "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]),
			       "+f"(c[n][3])::"memory");
}

template <int K> static __device__ __forceinline__ void plw_keep(uint32_t (&a)[K][4])
{
#pragma unroll
	for (int k = 0; k < K; k++)
		asm volatile(""
			     : "+r"(a[k][0]), "+r"(a[k][1]), "+r"(a[k][2]),
			       "+r"(a[k][3])::"memory");
}

#define PLW_4(c, n)  "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define PLW_16(c, n) PLW_4(c, n), PLW_4(c, n + 1), PLW_4(c, n + 2), PLW_4(c, n + 3)

/* c += a b, or without `add` c = a b: both in shared memory, plw_along(). */
static __device__ __forceinline__ void plw_mma(float (&c)[8][4], plw_matrix a, plw_matrix b,
					       int add)
{
	asm volatile(
		"{.reg .pred p; setp.ne.b32 p, %34, 0; "
		"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, "
		"%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
		"%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, p, 1, 1, 0, 0;}"
		: PLW_16(c, 0), PLW_16(c, 4)
		: "l"(a), "l"(b), "r"(add)
		: "memory");
}
static __device__ __forceinline__ void plw_mma(float (&c)[16][4], plw_matrix a, plw_matrix b,
					       int add)
{
	asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; "
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
		     "%5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
		     "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
		     "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "
		     "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, %64, %65, "
		     "p, 1, 1, 0, 0;}"
		     : PLW_16(c, 0), PLW_16(c, 4), PLW_16(c, 8), PLW_16(c, 12)
		     : "l"(a), "l"(b), "r"(add)
		     : "memory");
}
/* c += a b: a in registers, b plw_across(). */
static __device__ __forceinline__ void plw_mma(float (&c)[8][4], const uint32_t (&a)[4],
					       plw_matrix b)
{
	asm volatile(
		"{.reg .pred p; setp.eq.u32 p, 0, 0; "
		"wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, "
		"%6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, %21, "
		"%22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, "
		"p, 1, 1, 1;}"
		: PLW_16(c, 0), PLW_16(c, 4)
		: "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
		: "memory");
}
static __device__ __forceinline__ void plw_mma(float (&c)[16][4], const uint32_t (&a)[4],
					       plw_matrix b)
{
	asm volatile("{.reg .pred p; setp.eq.u32 p, 0, 0; "
		     "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, "
		     "%5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, %20, "
		     "%21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, "
		     "%36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, "
		     "%51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}, {%64, %65, "
		     "%66, %67}, %68, p, 1, 1, 1;}"
		     : PLW_16(c, 0), PLW_16(c, 4), PLW_16(c, 8), PLW_16(c, 12)
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b)
		     : "memory");
}
#endif

/*
 * s (64, 8 N) = 64 rows of a tile at a times rows of one at b (8 N), over `SIZE` columns; pa, pb:
 * bytes of their panels. The caller commits and waits.
 */
template <int SIZE, int N>
static __device__ __forceinline__ void plw_dots(float (&s)[N][4], plm_addr a, int pa, plm_addr b,
						int pb)
{
	plw_matrix left = plw_along(a), right = plw_along(b);

#pragma unroll
	for (int k = 0; k < SIZE; k += 16)
		plw_mma(s, plw_further(left, k / 64 * pa + k % 64 * 2),
			plw_further(right, k / 64 * pb + k % 64 * 2), k > 0);
}

/* s (64, 16 K) as A of the next product: rounded, two numbers in a register. */
template <int N>
static __device__ __forceinline__ void plw_round(const float (&s)[N][4], uint32_t (&a)[N / 2][4])
{
#pragma unroll
	for (int k = 0; k < N / 2; k++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			a[k][e] = pl_pack(s[2 * k + e / 2][2 * (e % 2)],
					  s[2 * k + e / 2][2 * (e % 2) + 1]);
}

/* acc (64, SIZE) += a (64, 16 K) times rows of a tile at b (16 K). */
template <int N, int K>
static __device__ __forceinline__ void plw_combine(float (&acc)[N][4], const uint32_t (&a)[K][4],
						   plm_addr b, int pb)
{
	plw_matrix right = plw_across(b, pb);

#pragma unroll
	for (int k = 0; k < K; k++)
		plw_mma(acc, a[k], plw_further(right, 16 * k * PLW_ROW));
}

#endif
