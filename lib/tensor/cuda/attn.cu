/*
 * attn.cu - the choice of the kernels for attention: tensor cores if the type and layout of the
 * activations allow it.
 */
#include "tensor/cuda/attn.cuh"

size_t plk_attn_save(const struct plk *k, const struct pl_attn *d)
{
	(void)k;
	return (size_t)d->b * (size_t)d->heads * (size_t)d->t; /* log-sum-exp of each row */
}

size_t plk_attn_scratch(const struct plk *k, const struct pl_attn *d)
{
	return 2 * plk_attn_save(k, d) * sizeof(float); /* plk_attn_back's `own` */
}

static bool for_mma(const struct plk *k, const struct pl_attn *d, const void *a, const void *b,
		    const void *c, const void *e)
{
	int size = d->c / d->heads;

	return k->bf16 && size <= PLK_HEAD_MAX &&
	       pl_aligned((size_t)size * sizeof(bf16), a, b, c, e);
}

bool plk_attn_is_wgmma(const struct plk *k, int size)
{
	return k->bf16 && k->hopper && size > 32 && size <= PLK_HEAD_MAX && size % 8 == 0;
}

void plk_attn(const struct plk *k, const struct pl_attn *d, const void *qkv, void *y, float *save)
{
	bool mma = for_mma(k, d, qkv, y, NULL, NULL);

	if (mma && plk_attn_is_wgmma(k, d->c / d->heads))
		plk_attn_wgmma(k, d, (const bf16 *)qkv, (bf16 *)y, save);
	else if (mma)
		plk_attn_mma(k, d, (const bf16 *)qkv, (bf16 *)y, save);
	else
		plk_attn_any(k, d, qkv, y, save);
}

void plk_attn_back(const struct plk *k, const struct pl_attn *d, const void *qkv, const void *y,
		   const float *save, const void *dy, void *dqkv)
{
	bool mma = for_mma(k, d, qkv, y, dy, dqkv);
	float *own = (float *)k->scratch;

	if (mma && plk_attn_is_wgmma(k, d->c / d->heads))
		plk_attn_wgmma_back(k, d, (const bf16 *)qkv, (const bf16 *)y, save,
				    (const bf16 *)dy, (bf16 *)dqkv, own);
	else if (mma)
		plk_attn_mma_back(k, d, (const bf16 *)qkv, (const bf16 *)y, save, (const bf16 *)dy,
				  (bf16 *)dqkv, own);
	else
		plk_attn_any_back(k, d, qkv, y, save, dy, dqkv, own);
}
