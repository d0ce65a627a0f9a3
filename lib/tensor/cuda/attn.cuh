/*
 * attn.cuh - declarations that the files of attention share: the place of a head in the tensors,
 * and the three sets of kernels. Those of attn_mma*.cu and attn_wgmma*.cu need bfloat16, heads of a
 * multiple of 8 up to PLK_HEAD_MAX and pointers at multiples of 16 bytes; those of attn_any.cu need
 * nothing.
 */
#ifndef PL_CUDA_ATTN_CUH
#define PL_CUDA_ATTN_CUH

#include "tensor/cuda/device.cuh"
#include "tensor/cuda/kernels.h"

#define PLK_HEAD_MAX 128
#define PLK_LOG2E    1.4426950408889634f

struct plk_heads {
	int t, c, heads, size; /* qkv (B, t, 3c), y (B, t, c), c = heads * size */
	int blocks;	       /* of a head */
	size_t rows;	       /* of all heads */
	float scale, scale2;   /* 1/sqrt(size); that times log2 e */
};

static inline struct plk_heads plk_heads_of(const struct pl_attn *d, int rows)
{
	struct plk_heads h = {};

	h.t = d->t;
	h.c = d->c;
	h.heads = d->heads;
	h.size = d->c / d->heads;
	h.blocks = (d->t + rows - 1) / rows;
	h.rows = (size_t)d->b * (size_t)d->heads * (size_t)d->t;
	h.scale = 1 / sqrtf((float)h.size);
	h.scale2 = h.scale * PLK_LOG2E;
	return h;
}

/* The place of head n (of all in the batch): it begins at `row` of (B T) rows and at `column` of y;
 * q, k and v are at column, c + column, 2c + column of qkv. The numbers fit a register, because
 * kernels have few free ones. */
struct plk_at {
	int n, row, column;
};

static __device__ __forceinline__ struct plk_at plk_head_at(const struct plk_heads &d, int n)
{
	return { n, n / d.heads * d.t, n % d.heads * d.size };
}

/* Row t of the head in a matrix of ld columns (or, without ld, in (B, heads, T)). */
static __device__ __forceinline__ size_t plk_row(const struct plk_at &at, int t, int ld)
{
	return (size_t)(unsigned)(at.row + t) * (unsigned)ld + (unsigned)at.column;
}
static __device__ __forceinline__ size_t plk_line(const struct plk_heads &d,
						  const struct plk_at &at, int t)
{
	return (size_t)(unsigned)at.n * (unsigned)d.t + (unsigned)t;
}

/* own (2, B, heads, T): memory of the backward pass for two values of each row: its log-sum-exp to
 * base 2, and dy y. */
void plk_attn_mma(const struct plk *k, const struct pl_attn *d, const bf16 *qkv, bf16 *y,
		  float *save);
void plk_attn_mma_back(const struct plk *k, const struct pl_attn *d, const bf16 *qkv, const bf16 *y,
		       const float *save, const bf16 *dy, bf16 *dqkv, float *own);
/* Only on Hopper, like plk_attn_mma. Not for small heads, which would leave half of each tile
 * empty. */
bool plk_attn_is_wgmma(const struct plk *k, int size);
void plk_attn_wgmma(const struct plk *k, const struct pl_attn *d, const bf16 *qkv, bf16 *y,
		    float *save);
void plk_attn_wgmma_back(const struct plk *k, const struct pl_attn *d, const bf16 *qkv,
			 const bf16 *y, const float *save, const bf16 *dy, bf16 *dqkv, float *own);
void plk_attn_any(const struct plk *k, const struct pl_attn *d, const void *qkv, void *y,
		  float *save);
void plk_attn_any_back(const struct plk *k, const struct pl_attn *d, const void *qkv, const void *y,
		       const float *save, const void *dy, void *dqkv, float *own);

#endif
