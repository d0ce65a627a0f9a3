/*
 * mma.cuh - operations around the tensor cores: one warp's matrix product of bfloat16 with float32
 * sums, the loads of its operands from shared memory, asynchronous copies into shared memory, and
 * the layout of tiles there. On the device each is one instruction of PTX; without a device
 * tests/emu/emu_mma.h does the same lane by lane, as the PTX ISA defines it.
 *
 * Fragments of the product C (16, 8) += A (16, 16) B (16, 8), with g = lane / 4, i = lane % 4, two
 * bfloat16 a register, the lower column (of A) or row (of B) in the lower half:
 *	A: (g, 2i..) (g + 8, 2i..) (g, 2i + 8..) (g + 8, 2i + 8..)
 *	B: (2i.., g) (2i + 8.., g)
 *	C: (g, 2i) (g, 2i + 1) (g + 8, 2i) (g + 8, 2i + 1), float32
 * So C of two neighbouring products, rounded, is A of the next product, without an exchange between
 * lanes: attention uses this for its probabilities.
 */
#ifndef PL_CUDA_MMA_CUH
#define PL_CUDA_MMA_CUH

#include "tensor/cuda/device.cuh"

#ifdef PL_EMU
#include "emu_mma.h"
#else
/* An address in shared memory, in bytes; tiles begin at multiples of PLM_ALIGN. */
typedef uint32_t plm_addr;

static __device__ __forceinline__ plm_addr plm_shared(const void *p)
{
	return (plm_addr)__cvta_generic_to_shared(p);
}

/* c += a b */
static __device__ __forceinline__ void plm_mma(float c[4], const uint32_t a[4], const uint32_t b[2])
{
	asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
		     "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
		     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
		     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

/* Load four 8 x 8 matrices: lanes 8 j to 8 j + 7 give the addresses of the rows (16 bytes) of the
 * j-th; a lane gets (g, 2i) and (g, 2i + 1) of each. */
static __device__ __forceinline__ void plm_load(uint32_t r[4], plm_addr from)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(from));
}

/* The same, each matrix transposed: a lane gets (2i, g) and (2i + 1, g). */
static __device__ __forceinline__ void plm_load_across(uint32_t r[4], plm_addr from)
{
	asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
		     : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
		     : "r"(from));
}

/* Copy N bytes (4, 8 or 16) from global to shared memory, or zeros if not `valid`. The thread that
 * copies can read them after the plm_wait() that follows plm_commit(); others after a barrier. */
template <int N>
static __device__ __forceinline__ void plm_copy(plm_addr to, const void *from, bool valid)
{
	if constexpr (N == 16)
		asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
			     "r"(valid ? 16 : 0)
			     : "memory");
	else
		asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(to), "l"(from),
			     "n"(N), "r"(valid ? N : 0)
			     : "memory");
}

static __device__ __forceinline__ float2 plm_two(plm_addr from)
{
	float2 v;

	asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(from));
	return v;
}

static __device__ __forceinline__ void plm_commit(void)
{
	asm volatile("cp.async.commit_group;" ::: "memory");
}

/* wait until at most N commits are in progress */
template <int N> static __device__ __forceinline__ void plm_wait(void)
{
	asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* The same number, hidden from the compiler: so it computes values again instead of keeping them in
 * registers through a loop that needs all registers. */
static __device__ __forceinline__ unsigned plm_again(unsigned x)
{
	asm volatile("" : "+r"(x));
	return x;
}

/* 2^x, within 2 units in the last place; 0 for -infinity and if the result is subnormal */
static __device__ __forceinline__ float plm_exp2(float x)
{
	float y;

	asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
	return y;
}
#endif

/*
 * Tiles: rows of bfloat16 in chunks of 8, the unit of every access. The 8 chunks of one phase of a
 * load (a column of chunks in 8 rows, or 8 neighbours of a row) must lie in different banks, and a
 * line of 128 bytes covers each bank once. So the chunks of a row are permuted by exclusive or with
 * the number of the line: chunk c of row r is at c ^ (r / rows in a line) % chunks. SIZE, the
 * columns in use, may be less than the pitch: a power of 2 from 32 to 128.
 */
#define PLM_ALIGN 256 /* bytes: the longest row, so that exclusive or gives addresses */

template <int SIZE> struct plm_tile {
	static constexpr int pitch = SIZE <= 32 ? 32 : SIZE <= 64 ? 64 : 128;
	static constexpr int chunks = pitch / 8;
	static constexpr int bytes = 2 * pitch; /* of a row */

	/* offset of chunk c of row r, in bytes */
	static __device__ __forceinline__ uint32_t place(int r, int c)
	{
		int line = pitch < 64 ? r / (64 / pitch) : r;

		return (uint32_t)(r * bytes + ((c ^ (line & (chunks < 8 ? chunks - 1 : 7))) * 16));
	}
	/* The offset of a lane in a tile for the fragments of A (16 rows, 16 columns) with
	 * plm_load, and of B (16 rows, 16 columns), plm_load_across. k rows further is k * bytes
	 * more (k a multiple of 16), 16 k columns further is ^ 32 k. */
	static __device__ __forceinline__ uint32_t lane_a(int lane)
	{
		return place(lane & 15, lane >> 4);
	}
	/* The same for B with plm_load, from a tile whose rows are 16 columns of B. */
	static __device__ __forceinline__ uint32_t lane_b(int lane)
	{
		return place((lane & 7) | (lane >> 4) << 3, lane >> 3 & 1);
	}
	/* Copy ROWS rows of `size` columns (a multiple of 8), from row `row` on, of a matrix in
	 * global memory with ld columns; rows from `valid` on and columns from `size` to SIZE
	 * become zeros. The chunks of a thread are in one column of chunks, so it keeps one address
	 * on each side and adds constants. */
	template <int ROWS, int THREADS>
	static __device__ __forceinline__ void fetch(plm_addr to, const bf16 *from, int row, int ld,
						     int valid, int size)
	{
		constexpr int step = THREADS / chunks; /* rows that are copied at once */
		unsigned me = plm_again(threadIdx.x);
		int r = (int)(me / chunks), c = (int)(me % chunks);

		static_assert(step % 8 == 0 && ROWS % step == 0, "the permutation repeats");
		if (SIZE < pitch && c >= SIZE / 8)
			return;
		from += (size_t)(unsigned)(row + r) * (unsigned)ld + 8 * c;
		to += place(r, c);
		valid = 8 * c < size ? valid - r : 0;
#pragma unroll
		for (int i = 0; i < ROWS; i += step)
			plm_copy<16>(to + i * bytes, from + i * ld, i < valid);
	}
};

/*
 * s (16 M, 8 N) += rows of a tile at a (16 M) times rows of one at b (8 N); lane_a() and lane_b()
 * made a and b. The first H fragments of each row of a, 16 columns each, are in registers
 * (plm_hold()): as many as fit, because they are used in every turn.
 */
#define PLM_HELD(H) ((H) ? (H) : 1) /* an array of that many */

template <int SIZE, int H, int M, int N>
static __device__ __forceinline__ void
plm_dots(float (&s)[M][N][4], const uint32_t (&held)[M][PLM_HELD(H)][4], plm_addr a, plm_addr b)
{
	constexpr int bytes = plm_tile<SIZE>::bytes;

#pragma unroll
	for (int k = 0; k < SIZE / 16; k++) {
		uint32_t left[M][4];

#pragma unroll
		for (int m = 0; m < M; m++)
			if (k >= H)
				plm_load(left[m], (a ^ 32 * k) + 16 * m * bytes);
#pragma unroll
		for (int n = 0; n < N / 2; n++) {
			uint32_t right[4];

			plm_load(right, (b ^ 32 * k) + 16 * n * bytes);
#pragma unroll
			for (int m = 0; m < M; m++) {
				const uint32_t *l = k < H ? held[m][k < H ? k : 0] : left[m];

				plm_mma(s[m][2 * n], l, right);
				plm_mma(s[m][2 * n + 1], l, right + 2);
			}
		}
	}
}

template <int SIZE, int H, int M>
static __device__ __forceinline__ void plm_hold(uint32_t (&held)[M][PLM_HELD(H)][4], plm_addr from)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int k = 0; k < H; k++)
			plm_load(held[m][k], (from ^ 32 * k) + 16 * m * plm_tile<SIZE>::bytes);
}

/* acc (16 M, SIZE) += s (16 M, 8 N), rounded to bfloat16, times rows of a tile at b (8 N); lane_a()
 * made b. */
template <int SIZE, int M, int N>
static __device__ __forceinline__ void plm_combine(float (&acc)[M][SIZE / 8][4],
						   const float (&s)[M][N][4], plm_addr b)
{
	constexpr int bytes = plm_tile<SIZE>::bytes;

#pragma unroll
	for (int k = 0; k < N / 2; k++) {
		uint32_t left[M][4];

#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				left[m][e] = pl_pack(s[m][2 * k + e / 2][2 * (e % 2)],
						     s[m][2 * k + e / 2][2 * (e % 2) + 1]);
#pragma unroll
		for (int n = 0; n < SIZE / 16; n++) {
			uint32_t right[4];

			plm_load_across(right, (b ^ 32 * n) + 16 * k * bytes);
#pragma unroll
			for (int m = 0; m < M; m++) {
				plm_mma(acc[m][2 * n], left[m], right);
				plm_mma(acc[m][2 * n + 1], left[m], right + 2);
			}
		}
	}
}

template <int M, int N> static __device__ __forceinline__ void plm_clear(float (&s)[M][N][4])
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[m][n][e] = 0;
}

template <int M, int N>
static __device__ __forceinline__ void plm_scale(float (&s)[M][N][4], float by)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[m][n][e] *= by;
}

/* Set the scores (16 M, 8 N) of later keys to -infinity. `ahead`: position of the first query less
 * that of the first key. Rows are queries; ACROSS: keys. */
template <bool ACROSS, int M, int N>
static __device__ __forceinline__ void plm_mask(float (&s)[M][N][4], int ahead, int lane)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int e = 0; e < 4; e++) {
				int row = 16 * m + lane / 4 + e / 2 * 8;
				int column = 8 * n + lane % 4 * 2 + e % 2;

				if (ACROSS ? row > ahead + column : column > ahead + row)
					s[m][n][e] = -INFINITY;
			}
}

/* Store acc (16 M, SIZE), rounded, to rows `ld` apart in global memory, of which `valid` exist with
 * `size` columns. It goes through the warp's own 16 M rows of a tile (T), which must be unused, so
 * that whole chunks are written. */
template <typename T, int SIZE, int M>
static __device__ __forceinline__ void plm_put(char *tile, const float (&acc)[M][SIZE / 8][4],
					       bf16 *to, size_t ld, int valid, int size)
{
	constexpr int used = SIZE / 8;
	int lane = (int)threadIdx.x % 32;

	__syncwarp();
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < used; n++)
#pragma unroll
			for (int e = 0; e < 2; e++)
				*(uint32_t *)(tile + T::place(16 * m + 8 * e + lane / 4, n) +
					      lane % 4 * 4) =
					pl_pack(acc[m][n][2 * e], acc[m][n][2 * e + 1]);
	__syncwarp();
	for (int at = lane; at < 16 * M * used; at += 32) {
		int r = at / used, c = at % used;

		if (r < valid && 8 * c < size)
			*(uint4 *)(to + r * ld + 8 * c) = *(const uint4 *)(tile + T::place(r, c));
	}
}

#endif
