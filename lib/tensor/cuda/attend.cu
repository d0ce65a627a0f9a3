/*
 * attend.cu - attention: its operations in the backend's table, and the choice of its kernels.
 *
 * The kernels of attn_wgmma*.cu depend on more properties of the device than any others: the layout
 * of matrices in shared memory, and the operations that may run at the same time. So for the first
 * network with heads of some size they are compared with kernels that only multiply and add. If the
 * results differ, the kernels of attn_mma*.cu are used for heads of any size, and remarks() reports
 * it. PACELINE_ATTN=mma always uses these.
 */
#include "tensor/cuda/attn.cuh"
#include "tensor/cuda/context.h"

#define ENV	"PACELINE_ATTN"
#define TOKENS	260  /* both stages are used twice, and more than one block */
#define MAY_ERR 0.02 /* |got - wanted| / |wanted|; rounding to bfloat16 causes about 0.004 */

struct trial {
	struct plk k;
	struct pl_attn d;
	size_t n; /* numbers of y; qkv and dqkv have three times as many */
	bf16 *host;
	char *all;
	bf16 *qkv, *dy, *y[2], *dqkv[2]; /* with wgmma; without */
	float *save, *own;
};

/* Numbers from -2 to 2. */
static void fill(bf16 *p, size_t n)
{
	uint64_t seed = 1;

	for (size_t i = 0; i < n; i++) {
		float x = (float)(pl_rng_next(&seed) >> 40) / (float)(1 << 22) - 2;

		p[i] = __float2bfloat16_rn(x);
	}
}

/* Are the numbers at `got` close to those at `wanted`? NaN is not. */
static bool about(const bf16 *got, const bf16 *wanted, size_t n)
{
	double far = 0, all = 0;

	for (size_t i = 0; i < n; i++) {
		double want = (double)__bfloat162float(wanted[i]);
		double by = (double)__bfloat162float(got[i]) - want;

		far += by * by;
		all += want * want;
	}
	return all > 0 && far <= MAY_ERR * MAY_ERR * all;
}

/* Forward and backward pass, from the same log-sum-exps; y and dqkv of both are copied to the
 * host. */
static cudaError_t attend(const struct trial *t)
{
	const size_t half = sizeof(bf16), n = t->n;
	cudaError_t e;

	e = cudaMemcpyAsync(t->qkv, t->host, 4 * n * half, cudaMemcpyHostToDevice, t->k.stream);
	if (e != cudaSuccess)
		return e;
	plk_attn_wgmma(&t->k, &t->d, t->qkv, t->y[0], t->save);
	plk_attn_wgmma_back(&t->k, &t->d, t->qkv, t->y[0], t->save, t->dy, t->dqkv[0], t->own);
	plk_attn_any(&t->k, &t->d, t->qkv, t->y[1], t->save);
	plk_attn_any_back(&t->k, &t->d, t->qkv, t->y[1], t->save, t->dy, t->dqkv[1], t->own);
	e = cudaMemcpyAsync(t->host, t->y[0], 8 * n * half, cudaMemcpyDeviceToHost, t->k.stream);
	if (e == cudaSuccess)
		e = cudaStreamSynchronize(t->k.stream);
	return e == cudaSuccess ? cudaGetLastError() : e;
}

/* The result of the comparison for heads of this size. Without memory for it, wgmma is not used. A
 * failure of the device stays. */
static enum pl_cuda_attn tried(struct pl_cuda *c, int size)
{
	struct trial t = {};
	size_t bytes;
	cudaError_t e;
	bool same = false;

	t.k = c->k;
	t.d = { 1, TOKENS, size, 1 };
	t.n = (size_t)TOKENS * (size_t)size;
	bytes = 12 * t.n * sizeof(bf16);
	if (pl_alloc(&t.host, 8 * t.n, sizeof(*t.host), NULL) < 0)
		return PL_CUDA_ATTN_NO_ROOM;
	if (cudaMalloc((void **)&t.all, bytes + 3 * TOKENS * sizeof(float)) != cudaSuccess) {
		cudaGetLastError();
		pl_free(t.host);
		return PL_CUDA_ATTN_NO_ROOM;
	}
	t.qkv = (bf16 *)t.all;
	t.dy = t.qkv + 3 * t.n;
	for (size_t i = 0; i < 2; i++) {
		t.y[i] = t.dy + (1 + i) * t.n;
		t.dqkv[i] = t.dy + (3 + 3 * i) * t.n;
	}
	t.save = (float *)(t.all + bytes);
	t.own = t.save + TOKENS;
	fill(t.host, 4 * t.n);
	e = attend(&t);
	if (e != cudaSuccess)
		pl_cuda_note(c, e, "trying attention by wgmma (" ENV "=mma does without)");
	else
		same = about(t.host, t.host + t.n, t.n) &&
		       about(t.host + 2 * t.n, t.host + 5 * t.n, 3 * t.n);
	cudaFree(t.all);
	pl_free(t.host);
	return same ? PL_CUDA_ATTN_WGMMA : PL_CUDA_ATTN_DIFFERS;
}

size_t pl_cuda_attn_save(void *ctx, const struct pl_attn *d)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	const char *said = getenv(ENV);
	int size = d->c / d->heads;

	if (plk_attn_is_wgmma(&c->k, size) && !(c->tried_attn >> size / 8 & 1)) {
		c->tried_attn |= 1u << size / 8;
		c->attn = said && !strcmp(said, "mma") ? PL_CUDA_ATTN_MMA : tried(c, size);
		c->attn_size = size;
		c->k.hopper = c->attn == PL_CUDA_ATTN_WGMMA;
	}
	return plk_attn_save(&c->k, d);
}

void pl_cuda_attn_remarks(const struct pl_cuda *c, const struct pl_log *log)
{
	const char *const slower = "attention is computed by mma.sync, which takes longer";

	switch (c->attn) {
	case PL_CUDA_ATTN_UNTRIED:
		break;
	case PL_CUDA_ATTN_WGMMA:
		pl_say(log, PL_LOG_NOTE, "attention is computed by wgmma");
		break;
	case PL_CUDA_ATTN_MMA:
		pl_say(log, PL_LOG_NOTE, "attention is computed by mma.sync");
		break;
	case PL_CUDA_ATTN_DIFFERS:
		pl_say(log, PL_LOG_WARN,
		       "%s: wgmma gave something else on this device with heads of %d (" ENV
		       "=mma does without, and says nothing)",
		       slower, c->attn_size);
		break;
	case PL_CUDA_ATTN_NO_ROOM:
		pl_say(log, PL_LOG_WARN,
		       "%s: there was no memory to try wgmma in (" ENV
		       "=mma does without, and says nothing)",
		       slower);
		break;
	}
}
