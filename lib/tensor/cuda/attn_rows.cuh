/*
 * attn_rows.cuh - operations of both sets of kernels on tensor cores (attn_mma*.cu, attn_wgmma*.cu)
 * on the registers of a warp: M times 16 rows of the fragments of mma.cuh.
 *
 * softmax: p = 2^(s c - m) with c = scale log2 e: one multiply-add and one ex2 for each element. m
 * is the maximum of the row, or up to LAZY less: it is raised only if the maximum grew by more than
 * LAZY, because p up to 2^LAZY does no harm to float32 sums, and bfloat16 rounds relative to p. So
 * earlier sums are rarely rescaled; y and the log-sum-exp are equal but for rounding.
 */
#ifndef PL_CUDA_ATTN_ROWS_CUH
#define PL_CUDA_ATTN_ROWS_CUH

#include "tensor/cuda/attn.cuh"
#include "tensor/cuda/mma.cuh"

#define LAZY 8 /* log2 of the greatest p */

/* Copy keys of a head from u0 on, and after them their values, to a stage of two tiles; qkv: the
 * first column of the head. */
template <typename TILE, int THREADS>
static __device__ __forceinline__ void
fetch_keys(plm_addr to, const bf16 *qkv, const struct plk_heads &d, const struct plk_at &at, int u0)
{
	TILE::template fetch<THREADS>(to, qkv + d.c, at.row + u0, 3 * d.c, d.t - u0, d.size);
	TILE::template fetch<THREADS>(to + TILE::bytes, qkv + 2 * d.c, at.row + u0, 3 * d.c,
				      d.t - u0, d.size);
	plm_commit();
}

/* s becomes p. most, sum: of the rows lane / 4 + 8 h + 16 m; the sum only covers the columns of
 * this lane. */
template <int SIZE, int M, int N>
static __device__ __forceinline__ void online_softmax(float (&s)[M][N][4], float c,
						      float (&most)[M][2], float (&sum)[M][2],
						      float (&acc)[M][SIZE / 8][4])
{
	float factor[M][2];
	bool grew = false;

#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			float top = s[m][0][2 * h];

#pragma unroll
			for (int n = 0; n < N; n++)
				top = fmaxf(top, fmaxf(s[m][n][2 * h], s[m][n][2 * h + 1]));
			top = fmaxf(top, __shfl_xor_sync(PL_FULL, top, 1));
			top = fmaxf(top, __shfl_xor_sync(PL_FULL, top, 2)) * c;
			factor[m][h] = 1;
			if (top > most[m][h] + LAZY) {
				factor[m][h] = plm_exp2(most[m][h] - top);
				most[m][h] = top;
				grew = true;
			}
			sum[m][h] *= factor[m][h];
#pragma unroll
			for (int n = 0; n < N; n++)
#pragma unroll
				for (int e = 2 * h; e < 2 * h + 2; e++) {
					s[m][n][e] = plm_exp2(fmaf(s[m][n][e], c, -most[m][h]));
					sum[m][h] += s[m][n][e];
				}
		}
	if (__ballot_sync(PL_FULL, grew))
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int n = 0; n < SIZE / 8; n++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					acc[m][n][e] *= factor[m][e / 2];
}

/* Sum over the four lanes of a row, y = acc / sum, and the log-sum-exp (natural). */
template <int SIZE, int M>
static __device__ __forceinline__ void finish(const float (&most)[M][2], const float (&sum)[M][2],
					      float (&acc)[M][SIZE / 8][4], float *save, int valid,
					      int lane)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			int row = 16 * m + 8 * h + lane / 4;
			float all = sum[m][h];

			all += __shfl_xor_sync(PL_FULL, all, 1);
			all += __shfl_xor_sync(PL_FULL, all, 2);
			if (row < valid && lane % 4 == 0)
				save[row] = most[m][h] / PLK_LOG2E + logf(all);
			all = 1 / all;
#pragma unroll
			for (int n = 0; n < SIZE / 8; n++) {
				acc[m][n][2 * h] *= all;
				acc[m][n][2 * h + 1] *= all;
			}
		}
}

/* dy y of a row, for all four lanes of the row. */
template <int SIZE>
static __device__ __forceinline__ float row_delta(const bf16 *y, const bf16 *dy, int size, int lane)
{
	float sum = 0;

#pragma unroll
	for (int i = 0; i < (SIZE + 31) / 32; i++) {
		int c = 32 * i + lane % 4 * 8;
		float a[8], b[8];

		if (c >= size)
			break;
		pl_get<8>(y + c, a);
		pl_get<8>(dy + c, b);
#pragma unroll
		for (int e = 0; e < 8; e++)
			sum = fmaf(a[e], b[e], sum);
	}
	sum += __shfl_xor_sync(PL_FULL, sum, 1);
	sum += __shfl_xor_sync(PL_FULL, sum, 2);
	return sum;
}

/* s^T becomes p^T; rows are keys, and `lse` has the log-sum-exps of the queries. */
template <int M, int N>
static __device__ __forceinline__ void probabilities_of_keys(float (&s)[M][N][4], plm_addr lse,
							     float c, int lane)
{
#pragma unroll
	for (int n = 0; n < N; n++) {
		float2 two = plm_two(lse + 32 * n + lane % 4 * 8);

#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[m][n][e] = plm_exp2(fmaf(s[m][n][e], c, e % 2 ? -two.y : -two.x));
	}
}

#endif
