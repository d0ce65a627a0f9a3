/*
 * matmul.cu - products of matrices by cuBLASLt, and the layers that are products.
 *
 * cuBLASLt is column-major and we are row-major: a row-major (N, C) is its (C x N). So with ' for
 * transposed, y = x w' (N, K) becomes y' = w x' (its K x N), dx = dy w becomes dx' = w' dy', and dw
 * += dy' x becomes dw' += x' dy. 2 N C K flops each.
 *
 * If cuBLASLt supports it for the shape, one call computes the product with bias and gelu, dx with
 * the slope of the preceding gelu, and dw with the sum over the rows of dy; otherwise our kernels
 * compute the additions. The algorithm for a shape is chosen once and kept, so the same shape gives
 * the same bits. Algorithms that add parts of a sum in the order of their arrival, or round them
 * before, are not used.
 *
 * Numbers stored as bfloat16 are multiplied as bfloat16: weights() makes a rounded copy of the
 * parameters, and the optimisers update it. Numbers stored as float32 are multiplied as float32 by
 * default, or as tf32, or rounded to bfloat16 by a kernel of ours, because cuBLASLt's own mode
 * (FAST_16BF) rounds only for some shapes.
 */
#include "tensor/cuda/context.h"
#include "tensor/cuda/device.cuh"

#define WORK_BYTES ((size_t)32 << 20) /* the scratch memory that cuBLASLt wants on an H100 */
#define TOO_MANY   1024		      /* limit of shapes: more than any network has */

/* of pl_cuda_shape.compute: the type to which float32 is rounded */
#define FP32 ((uint8_t)0)
#define TF32 ((uint8_t)1)
#define BF16 ((uint8_t)2) /* before the product: round_operands() */

struct call {
	struct pl_cuda_shape s;
	const void *a, *b;
	void *d;
	float beta;
	void *bias, *aux;
};

/* ---- ways, by shape ----------------------------------------------------------------------------
 */

static void free_product(struct pl_cuda_product *p)
{
	if (p->desc)
		cublasLtMatmulDescDestroy(p->desc);
	if (p->a)
		cublasLtMatrixLayoutDestroy(p->a);
	if (p->b)
		cublasLtMatrixLayoutDestroy(p->b);
	if (p->d)
		cublasLtMatrixLayoutDestroy(p->d);
	memset(p, 0, sizeof(*p));
}

static cublasStatus_t set(cublasLtMatmulDesc_t d, cublasLtMatmulDescAttributes_t what,
			  const void *v, size_t bytes)
{
	return cublasLtMatmulDescSetAttribute(d, what, v, bytes);
}

#define DO(call)                                                                                   \
	do {                                                                                       \
		if ((rc = (call)) != CUBLAS_STATUS_SUCCESS)                                        \
			return rc;                                                                 \
	} while (0)

static cublasStatus_t set_pointers(const struct pl_cuda_product *p, const struct call *v)
{
	cublasStatus_t rc = CUBLAS_STATUS_SUCCESS;

	if (v->bias)
		DO(set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &v->bias, sizeof(v->bias)));
	if (v->aux)
		DO(set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, &v->aux,
		       sizeof(v->aux)));
	return rc;
}

static cublasStatus_t describe(struct pl_cuda_product *p, const struct call *v)
{
	static const cublasComputeType_t compute[] = { CUBLAS_COMPUTE_32F,
						       CUBLAS_COMPUTE_32F_FAST_TF32 };
	const struct pl_cuda_shape *s = &v->s;
	cublasOperation_t ta = s->ta ? CUBLAS_OP_T : CUBLAS_OP_N;
	cublasOperation_t tb = s->tb ? CUBLAS_OP_T : CUBLAS_OP_N;
	cudaDataType_t in = s->in ? CUDA_R_16BF : CUDA_R_32F;
	cudaDataType_t out = s->out ? CUDA_R_16BF : CUDA_R_32F;
	cublasLtEpilogue_t epilogue =
		s->epilogue ? (cublasLtEpilogue_t)s->epilogue : CUBLASLT_EPILOGUE_DEFAULT;
	int64_t aux_ld = s->aux_ld;
	cublasStatus_t rc;

	DO(cublasLtMatmulDescCreate(&p->desc, compute[s->compute], CUDA_R_32F));
	DO(set(p->desc, CUBLASLT_MATMUL_DESC_TRANSA, &ta, sizeof(ta)));
	DO(set(p->desc, CUBLASLT_MATMUL_DESC_TRANSB, &tb, sizeof(tb)));
	DO(set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof(epilogue)));
	if (v->bias)
		DO(set(p->desc, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &out, sizeof(out)));
	if (v->aux)
		DO(set(p->desc, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, &aux_ld, sizeof(aux_ld)));
	DO(set_pointers(p, v));
	DO(cublasLtMatrixLayoutCreate(&p->a, in, (uint64_t)(s->ta ? s->k : s->m),
				      (uint64_t)(s->ta ? s->m : s->k), s->lda));
	DO(cublasLtMatrixLayoutCreate(&p->b, in, (uint64_t)(s->tb ? s->n : s->k),
				      (uint64_t)(s->tb ? s->k : s->n), s->ldb));
	DO(cublasLtMatrixLayoutCreate(&p->d, out, (uint64_t)s->m, (uint64_t)s->n, s->ldd));
	return rc;
}

static cublasStatus_t prefer(cublasLtMatmulPreference_t pref, const struct pl_cuda_shape *s)
{
	const struct {
		cublasLtMatmulPreferenceAttributes_t what;
		uint8_t log2;
	} align[] = { { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, s->align_a },
		      { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, s->align_b },
		      { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, s->align_d },
		      { CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, s->align_d } };
	uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
	size_t bytes = WORK_BYTES;
	cublasStatus_t rc;

	DO(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
						&bytes, sizeof(bytes)));
	DO(cublasLtMatmulPreferenceSetAttribute(pref, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
						&schemes, sizeof(schemes)));
	for (size_t i = 0; i < PL_LEN(align); i++) {
		uint32_t v = 1u << align[i].log2;

		DO(cublasLtMatmulPreferenceSetAttribute(pref, align[i].what, &v, sizeof(v)));
	}
	return rc;
}

static void choose(struct pl_cuda *c, struct pl_cuda_product *p, const struct call *v)
{
	cublasLtMatmulPreference_t pref = NULL;
	cublasLtMatmulHeuristicResult_t best;
	int found = 0;

	p->shape = v->s;
	p->none = describe(p, v) != CUBLAS_STATUS_SUCCESS ||
		  cublasLtMatmulPreferenceCreate(&pref) != CUBLAS_STATUS_SUCCESS ||
		  prefer(pref, &v->s) != CUBLAS_STATUS_SUCCESS ||
		  cublasLtMatmulAlgoGetHeuristic(c->lt, p->desc, p->a, p->b, p->d, p->d, pref, 1,
						 &best, &found) != CUBLAS_STATUS_SUCCESS ||
		  !found || best.state != CUBLAS_STATUS_SUCCESS;
	if (!p->none) {
		p->algo = best.algo;
		p->waves = best.wavesCount;
	}
	if (pref)
		cublasLtMatmulPreferenceDestroy(pref);
}

static void drop_products(struct pl_cuda *c)
{
	for (size_t i = 0; i < c->cap_products; i++)
		free_product(&c->product[i]);
	c->n_products = 0;
}

/* The place of a shape in the hash table, which is at most half full. */
static struct pl_cuda_product *find(struct pl_cuda *c, const struct call *v)
{
	size_t at;

	if (c->n_products == TOO_MANY)
		drop_products(c);
	at = pl_hash(&v->s, sizeof(v->s)) % c->cap_products;
	while (c->product[at].shape.m && memcmp(&c->product[at].shape, &v->s, sizeof(v->s)) != 0)
		at = (at + 1) % c->cap_products;
	if (!c->product[at].shape.m) {
		choose(c, &c->product[at], v);
		c->n_products++;
	}
	return &c->product[at];
}

static uint8_t aligned(const void *p, int ld, bool half)
{
	uint64_t bits = (uint64_t)(uintptr_t)p | (uint64_t)ld * (half ? 2 : 4) | 256;

	return (uint8_t)__builtin_ctzll(bits);
}

/* Both operands, whose columns are contiguous, become bfloat16 with columns at multiples of 16
 * bytes. */
static bool round_operands(struct pl_cuda *c, struct call *v)
{
	struct pl_cuda_shape *s = &v->s;
	int rows_a = s->ta ? s->k : s->m, rows_b = s->tb ? s->n : s->k;
	int n_a = s->ta ? s->m : s->k, n_b = s->tb ? s->k : s->n;
	int lda = (rows_a + 7) / 8 * 8, ldb = (rows_b + 7) / 8 * 8;
	size_t a = ((size_t)lda * (size_t)n_a + 127) / 128 * 128, b = (size_t)ldb * (size_t)n_b;
	bf16 *to;

	if (!pl_cuda_room(c, &c->rounded, &c->rounded_bytes, (a + b) * sizeof(bf16))) {
		pl_cuda_note(c, cudaErrorMemoryAllocation, "operands in bfloat16");
		return false;
	}
	to = (bf16 *)c->rounded;
	plk_round_rows(&c->k, n_a, rows_a, (const float *)v->a, s->lda, to, lda);
	plk_round_rows(&c->k, n_b, rows_b, (const float *)v->b, s->ldb, to + a, ldb);
	v->a = to, v->b = to + a;
	s->lda = lda, s->ldb = ldb;
	s->in = 1;
	s->compute = FP32;
	return true;
}

static struct pl_cuda_product *find_product(struct pl_cuda *c, struct call *v)
{
	v->s.align_a = aligned(v->a, v->s.lda, v->s.in);
	v->s.align_b = aligned(v->b, v->s.ldb, v->s.in);
	v->s.align_d = aligned(v->d, v->s.ldd, v->s.out);
	/* the choice depends on the alignment, too */
	v->s.align_bias = aligned(v->bias, 0, v->s.out);
	v->s.align_aux = aligned(v->aux, 0, v->s.out);
	return find(c, v);
}

/* Did cuBLASLt refuse its own proposal before it began? */
static bool refused(cublasStatus_t rc)
{
	return rc == CUBLAS_STATUS_NOT_SUPPORTED || rc == CUBLAS_STATUS_INVALID_VALUE ||
	       rc == CUBLAS_STATUS_ARCH_MISMATCH;
}

static void note_product(struct pl_cuda *c, cublasStatus_t rc)
{
	cudaError_t e = cudaPeekAtLastError();
	char what[96];

	snprintf(what, sizeof(what), "a product (cublasLtMatmul: %s)", cublasLtGetStatusName(rc));
	pl_cuda_note(c, e == cudaSuccess ? cudaErrorUnknown : e, what);
}

/* False: cuBLASLt has no algorithm for it. */
static bool product(struct pl_cuda *c, struct call *v)
{
	const float one = 1;
	struct pl_cuda_product *p;
	cublasStatus_t rc;

	if (v->s.m < 1 || v->s.n < 1)
		return true;
	if (v->s.epilogue && c->plain)
		return false;
	if (v->s.compute == BF16 && !round_operands(c, v))
		return true;
	p = find_product(c, v);
	if (p->none)
		return false;
	rc = set_pointers(p, v);
	if (rc == CUBLAS_STATUS_SUCCESS)
		rc = cublasLtMatmul(c->lt, p->desc, &one, v->a, p->a, v->b, p->b, &v->beta, v->d,
				    p->d, v->d, p->d, &p->algo, c->work, WORK_BYTES, c->k.stream);
	/* it may refuse an epilogue; then our kernels compute that part */
	p->none = v->s.epilogue && refused(rc);
	if (rc != CUBLAS_STATUS_SUCCESS && !p->none)
		note_product(c, rc);
	return !p->none;
}

/* Products without an algorithm of cuBLASLt: each element is a sum in order. Slow, but for any
 * shape. */
template <typename I, typename O> struct do_product {
	struct pl_cuda_shape s;
	float beta;
	const I *a, *b;
	O *d;
	template <int V> __device__ void run(size_t at) const
	{
		size_t j = pl_div(at, (size_t)s.m), i = at - j * (size_t)s.m;
		size_t next_a = s.ta ? 1 : (size_t)s.lda, next_b = s.tb ? (size_t)s.ldb : 1;
		const I *x = a + (s.ta ? i * (size_t)s.lda : i);
		const I *y = b + (s.tb ? j : j * (size_t)s.ldb);
		O *to = d + j * (size_t)s.ldd + i;
		float sum = 0;

		for (int l = 0; l < s.k; l++)
			sum = fmaf(pl_float(x[l * next_a]), pl_float(y[l * next_b]), sum);
		pl_store(to, beta != 0 ? sum + beta * pl_float(*to) : sum);
	}
};

template <typename I, typename O> static void by_elements(struct pl_cuda *c, const struct call *v)
{
	struct do_product<I, O> f = {
		v->s, v->beta, (const I *)v->a, (const I *)v->b, (O *)v->d
	};

	pl_each<1>(&c->k, (size_t)v->s.m * (size_t)v->s.n, true, f);
}

/* Without an epilogue. */
static void product_any_shape(struct pl_cuda *c, struct call *v)
{
	if (product(c, v))
		return;
	if (v->s.in && v->s.out)
		by_elements<bf16, bf16>(c, v);
	else if (v->s.in)
		by_elements<bf16, float>(c, v);
	else
		by_elements<float, float>(c, v);
}

static uint8_t compute_of(const struct pl_cuda *c)
{
	return c->k.precision == PL_TF32 ? TF32 : c->k.precision == PL_BF16 ? BF16 : FP32;
}

void pl_cuda_gemm(void *ctx, bool ta, bool tb, int m, int n, int k, const float *a, int lda,
		  const float *b, int ldb, float beta, float *d, int ldd)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	struct call v = {};

	if (!pl_cuda_go(c, d))
		return;
	/* d' = op(b)' op(a)' */
	v.s.m = n, v.s.n = m, v.s.k = k;
	v.s.lda = ldb, v.s.ldb = lda, v.s.ldd = ldd;
	v.s.ta = tb, v.s.tb = ta;
	v.s.compute = compute_of(c);
	v.a = b, v.b = a, v.d = d, v.beta = beta;
	product_any_shape(c, &v);
	pl_cuda_done(c, "gemm");
}

/* ---- dense layers ------------------------------------------------------------------------------
 */

/* The parameters as operands: the slab itself, their place in the copy, or rounded into `room`. */
static void *operand(struct pl_cuda *c, const float *w, size_t n, void *room)
{
	void *copy = c->k.bf16 ? pl_cuda_half(c, w, n) : (void *)w;

	if (copy)
		return copy;
	plk_round(&c->k, n, w, room);
	return room;
}

/* Scratch memory for the sums of rows (N, K), and after that for weights and bias without a
 * copy. */
static bool rooms(struct pl_cuda *c, int n, int k, const float *weight, size_t weights, void **w,
		  void **b)
{
	size_t rows = plk_rows_scratch(&c->k, n, k) + (size_t)k * sizeof(float);
	size_t half = c->k.bf16 && !pl_cuda_half(c, weight, weights) ? weights : 0;

	rows = pl_cuda_place(rows);
	half = pl_cuda_place(half * sizeof(bf16));
	if (!pl_cuda_scratch(c, rows + half + (size_t)k * sizeof(bf16)))
		return false;
	*w = (char *)c->k.scratch + rows;
	*b = (char *)*w + half;
	return true;
}

static void shape(const struct pl_cuda *c, struct call *v, int m, int n, int k)
{
	v->s.m = m, v->s.n = n, v->s.k = k;
	v->s.in = v->s.out = c->k.bf16;
	v->s.compute = c->k.bf16 ? FP32 : compute_of(c);
}

/* A matrix that an epilogue reads or writes in addition to D; false: its layout does not fit. */
static bool set_aux(struct call *v, void *aux)
{
	v->aux = aux;
	v->s.aux_ld = v->s.m;
	return v->s.m % 8 == 0 && (uintptr_t)aux % 16 == 0;
}

/* With the bias, and with gelu if `pre` is wanted; false: not supported. Some algorithms require a
 * bias at a multiple of 16 bytes without checking it. */
static bool dense_fused(struct pl_cuda *c, struct call v, void *bias, bool gelu, void *pre)
{
	if ((uintptr_t)bias % 16)
		return false;
	v.bias = bias;
	if (gelu) {
		if (!set_aux(&v, pre))
			return false;
		v.s.epilogue = CUBLASLT_EPILOGUE_GELU_AUX_BIAS;
		if (!bias)
			v.s.epilogue = CUBLASLT_EPILOGUE_GELU_AUX;
	} else if (bias) {
		v.s.epilogue = CUBLASLT_EPILOGUE_BIAS;
	}
	return product(c, &v);
}

void pl_cuda_dense(void *ctx, int n, int c, int k, const float *x, const float *w,
		   const float *bias, enum pl_act act, float *pre, float *y)
{
	struct pl_cuda *cu = (struct pl_cuda *)ctx;
	size_t all = (size_t)n * (size_t)k;
	bool gelu = act == PL_ACT_GELU && pre;
	struct call v = {};
	void *room_w, *room_b, *b = NULL;

	if (!pl_cuda_go(cu, y) || !rooms(cu, n, k, w, (size_t)c * (size_t)k, &room_w, &room_b))
		return;
	/* y' (K x N) = w (K x C) x' (C x N) */
	shape(cu, &v, k, n, c);
	v.s.lda = c, v.s.ldb = c, v.s.ldd = k;
	v.s.ta = 1;
	v.a = operand(cu, w, (size_t)c * (size_t)k, room_w);
	v.b = x;
	if (bias)
		b = operand(cu, bias, (size_t)k, room_b);
	v.d = y;
	if (gelu && dense_fused(cu, v, b, true, pre)) {
		pl_cuda_done(cu, "dense");
		return;
	}
	v.d = pre ? pre : y;
	if (dense_fused(cu, v, b, false, NULL)) {
		if (act != PL_ACT_NONE || pre)
			plk_act(&cu->k, act, all, v.d, y);
	} else {
		product_any_shape(cu, &v);
		plk_bias_act(&cu->k, n, k, bias, act, v.d, pre, y);
	}
	pl_cuda_done(cu, "dense");
}

/* Is it faster to sum dy in a separate kernel? Yes if the algorithm for both keeps less than half
 * of the device busy and the product alone would use more of it, by dividing its long sums. */
static bool sum_is_slower_fused(struct pl_cuda *c, struct call v)
{
	float along = find_product(c, &v)->waves, alone;

	v.bias = NULL;
	v.s.epilogue = 0;
	alone = find_product(c, &v)->waves;
	return along > 0 && along < 0.5f && alone > 1.5f * along;
}

/* dw' (C x K) += x' (C x N) dy (N x K), and db += sums over the rows of dy; or = (adds()) */
static void back_weights(struct pl_cuda *c, struct call v, const void *x, const void *dy, float *dw,
			 float *db)
{
	float *sums = (float *)c->k.scratch;
	bool fresh = c->k.fresh, there = fresh && (uintptr_t)db % 16 == 0;
	int k = v.s.n, n = v.s.k;

	v.s.lda = v.s.m, v.s.ldb = k, v.s.ldd = v.s.m;
	v.s.tb = 1;
	v.s.out = 0;
	v.a = x, v.b = dy, v.d = dw, v.beta = fresh ? 0 : 1;
	if (db && v.s.in) { /* the sums must not depend on the type to which float32 is rounded */
		v.bias = there ? db : sums;
		v.s.epilogue = CUBLASLT_EPILOGUE_BGRADB;
		if (!sum_is_slower_fused(c, v) && product(c, &v)) {
			if (!there)
				pl_fold(&c->k, sums, 1, k, db, NULL);
			return;
		}
		v.bias = NULL;
		v.s.epilogue = 0;
	}
	product_any_shape(c, &v);
	if (db)
		plk_columns(&c->k, n, k, dy, db);
}

/* With the slope of gelu at `from`; false: not supported. */
static bool sloped(struct pl_cuda *c, struct call v, const float *from)
{
	v.s.epilogue = CUBLASLT_EPILOGUE_DGELU;
	return set_aux(&v, (void *)from) && product(c, &v);
}

void pl_cuda_dense_back(void *ctx, int n, int c, int k, const float *x, const float *w,
			enum pl_act act, const float *pre, const float *y, float *dy,
			const float *from, float *dx, float *dw, float *db)
{
	struct pl_cuda *cu = (struct pl_cuda *)ctx;
	struct call v = {};
	void *room_w, *room_b;

	if (!pl_cuda_go(cu, dw) || !rooms(cu, n, k, w, (size_t)c * (size_t)k, &room_w, &room_b))
		return;
	if (act != PL_ACT_NONE)
		plk_act_back(&cu->k, act, (size_t)n * (size_t)k, pre, y, dy, dy);
	shape(cu, &v, c, k, n);
	back_weights(cu, v, x, dy, dw, db);
	if (dx) {
		/* dx' (C x N) = w' (C x K) dy' (K x N) */
		shape(cu, &v, c, n, k);
		v.s.lda = c, v.s.ldb = k, v.s.ldd = c;
		v.a = operand(cu, w, (size_t)c * (size_t)k, room_w);
		v.b = dy, v.d = dx;
		if (!from || !sloped(cu, v, from)) {
			product_any_shape(cu, &v);
			if (from)
				plk_act_back(&cu->k, PL_ACT_GELU, (size_t)n * (size_t)c, from, x,
					     dx, dx);
		}
	}
	pl_cuda_done(cu, "dense_back");
}

/* ---- opening -----------------------------------------------------------------------------------
 */

int pl_cuda_products_open(struct pl_cuda *c, struct pl_err *err)
{
	int rc;

	c->cap_products = 2 * TOO_MANY;
	PL_TRY(pl_alloc(&c->product, c->cap_products, sizeof(*c->product), err));
	if (cublasLtCreate(&c->lt) != CUBLAS_STATUS_SUCCESS)
		return pl_fail(err, PL_EABSENT, "device %d: cuBLASLt cannot be set up", c->device);
	if (cudaMalloc(&c->work, WORK_BYTES) != cudaSuccess)
		return pl_fail(err, PL_ENOMEM,
			       "device %d: no memory for products: %zu bytes; is it in use by "
			       "others?",
			       c->device, WORK_BYTES);
out:
	return rc;
}

void pl_cuda_products_close(struct pl_cuda *c)
{
	if (c->product)
		drop_products(c);
	pl_free(c->product);
	cudaFree(c->work);
	cudaFree(c->rounded);
	if (c->lt)
		cublasLtDestroy(c->lt);
}
