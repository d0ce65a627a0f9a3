/*
 * The fast backend for CPUs: threads, memory, and the layers that are a product or a loop.
 *
 * A layer hands chunks of work to all threads; small work stays with the caller, because waking a
 * thread costs some 10 us. Chunks and the order of sums come from sizes alone, so the result is the
 * same for any number of threads.
 */
#include <math.h>
#include <stdatomic.h>

#include "tensor/internal.h"

#define WORTH 100000.0 /* with fewer elements or multiplications one thread works alone */

const struct pl_kernels *pl_tensor_kernels_pick(int skip)
{
	const struct pl_kernels *all[3];
	int n = 0;

#if defined(__x86_64__)
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma"))
		all[n++] = &pl_tensor_kernels_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		all[n++] = &pl_tensor_kernels_avx2;
#endif
	all[n++] = &pl_tensor_kernels_portable;
	return skip < n ? all[skip] : NULL;
}

/* ---- threads --------------------------------------------------------------------------------- */

struct turn { /* the part of one thread in a parallel loop */
	struct each *each;
	struct pl_slot *slot;
};
struct each {
	void (*fn)(void *arg, int i, struct pl_slot *slot);
	void *arg;
	int n;
	atomic_int next;
};

static void take_turn(void *arg)
{
	struct turn *t = arg;
	struct each *e = t->each;

	for (int i; (i = atomic_fetch_add(&e->next, 1)) < e->n;)
		e->fn(e->arg, i, t->slot);
}

void pl_tensor_cpu_each(struct pl_cpu *cpu, int n, double work,
			void (*fn)(void *arg, int i, struct pl_slot *slot), void *arg)
{
	struct each e = { .fn = fn, .arg = arg, .n = n };
	struct turn turn[PL_THREADS_MAX];
	int threads = cpu->threads < n ? cpu->threads : n;

	if (threads < 2 || work < WORTH) {
		for (int i = 0; i < n; i++)
			fn(arg, i, &cpu->slot[0]);
		return;
	}
	for (int i = 0; i < threads; i++) {
		turn[i] = (struct turn){ &e, &cpu->slot[i] };
		pl_queue_put(cpu->queue, take_turn, &turn[i]);
	}
	while (pl_queue_get(cpu->queue))
		;
}

static void cpu_close(void *ctx)
{
	struct pl_cpu *cpu = ctx;

	if (!cpu)
		return;
	pl_queue_free(cpu->queue);
	pl_pool_free(cpu->pool);
	for (int i = 0; cpu->slot && i < cpu->threads; i++) {
		pl_host_free(NULL, cpu->slot[i].pack);
		pl_host_free(NULL, cpu->slot[i].block);
	}
	pl_free(cpu->slot);
	pl_free(cpu->part);
	pl_tensor_blas_close(cpu->blas);
	pl_free(cpu);
}

static int open_slots(struct pl_cpu *cpu, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&cpu->part, PL_PARTS, sizeof(*cpu->part), err));
	PL_CHECK(pl_alloc(&cpu->slot, (size_t)cpu->threads, sizeof(*cpu->slot), err));
	for (int i = 0; i < cpu->threads; i++) {
		cpu->slot[i].pack = pl_host_alloc(NULL, (PL_PACK + PL_TILES) * sizeof(float));
		cpu->slot[i].block = pl_host_alloc(NULL, PL_BLOCK * sizeof(float));
		if (!cpu->slot[i].pack || !cpu->slot[i].block)
			return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes a thread)",
				       (PL_PACK + PL_TILES + PL_BLOCK) * sizeof(float));
	}
	return 0;
}

int pl_tensor_cpu_open(const struct pl_kernels *k, bool blas, int threads, void **ctx,
		       struct pl_err *err)
{
	struct pl_cpu *cpu = NULL;
	int rc;

	PL_TRY(pl_alloc(&cpu, 1, sizeof(*cpu), err));
	cpu->k = k;
	cpu->threads = threads < 1 ? 1 : threads > PL_THREADS_MAX ? PL_THREADS_MAX : threads;
	PL_TRY(open_slots(cpu, err));
	if (cpu->threads > 1 && (!(cpu->pool = pl_pool_new(cpu->threads, err)) ||
				 !(cpu->queue = pl_queue_new(cpu->pool, PL_THREADS_MAX, err)))) {
		rc = PL_ENOMEM;
		goto out;
	}
	cpu->blas = blas ? pl_tensor_blas_open() : NULL;
	*ctx = cpu;
	return 0;
out:
	cpu_close(cpu);
	return rc;
}

static int cpu_open(const struct pl_backend_opts *o, void **ctx, struct pl_err *err)
{
	const struct pl_kernels *k = pl_tensor_kernels_pick(0);
	int rc = pl_host_open("cpu", o, err);

	return rc < 0 ? rc
		      : pl_tensor_cpu_open(k, k == &pl_tensor_kernels_portable, o->threads, ctx,
					   err);
}

static void cpu_vary(void *ctx, const struct pl_vary *v)
{
	((struct pl_cpu *)ctx)->vary = *v;
}

static void cpu_precision(void *ctx, enum pl_precision p)
{
	((struct pl_cpu *)ctx)->half = p == PL_BF16;
}

/* ---- dense ----------------------------------------------------------------------------------- */

static void cpu_gemm(void *ctx, bool ta, bool tb, int m, int n, int k, const float *a, int lda,
		     const float *b, int ldb, float beta, float *c, int ldc)
{
	bool half = ((struct pl_cpu *)ctx)->half;
	struct pl_gemm g = { ta, tb, half, m, n, k, a, lda, b, ldb, beta, c, ldc };

	pl_tensor_gemm_all(ctx, &g);
}

enum loop_kind { LOOP_ACT, LOOP_ACT_BACK, LOOP_ADD, LOOP_SCALE, LOOP_DROPOUT, LOOP_SGD, LOOP_ADAM };

struct loop { /* arguments of one loop over elements or rows; each uses what it needs */
	enum loop_kind kind;
	struct pl_cpu *cpu;
	size_t n;
	int rows, c;
	enum pl_act act;
	const float *a, *b, *g;
	float *x, *y, *v, *w;
	float f, f2, f3, f4, f5, f6, f7;
	uint64_t key;
	uint32_t limit;
	bool on;
};

static void chunk(void *arg, int i, struct pl_slot *slot)
{
	const struct loop *l = arg;
	const struct pl_kernels *k = l->cpu->k;
	size_t at, n = pl_cpu_chunk(l->n, i, &at);
	const float *a = l->a ? l->a + at : NULL, *b = l->b ? l->b + at : NULL,
		    *g = l->g ? l->g + at : NULL;
	float *x = l->x ? l->x + at : NULL, *y = l->y ? l->y + at : NULL;
	float *v = l->v ? l->v + at : NULL, *w = l->w ? l->w + at : NULL;

	(void)slot;
	switch (l->kind) {
	case LOOP_ACT:
		k->act(l->act, n, a, y);
		break;
	case LOOP_ACT_BACK:
		k->act_back(l->act, n, a, b, g, y);
		break;
	case LOOP_ADD:
		k->add(n, a, b, y);
		break;
	case LOOP_SCALE:
		k->scale(n, l->f, x);
		break;
	case LOOP_DROPOUT:
		k->dropout(n, at, l->limit, l->f, l->key, a, y);
		break;
	case LOOP_SGD:
		k->sgd(n, l->f, l->f2, l->f3, l->on, g, v, w);
		break;
	case LOOP_ADAM:
		k->adam(n, l->f, l->f2, l->f3, l->f4, l->f5, l->f6, l->f7, g, x, v, w);
		break;
	}
}

/* All elements in chunks. */
static void span(struct loop *l)
{
	pl_tensor_cpu_each(l->cpu, pl_cpu_chunks(l->n), (double)l->n, chunk, l);
}

#define ROWS 16 /* rows of a chunk */

static void bias_rows(void *arg, int i, struct pl_slot *slot)
{
	struct loop *l = arg;
	const struct pl_kernels *k = l->cpu->k;

	(void)slot;
	for (int r = i * ROWS; r < l->rows && r < (i + 1) * ROWS; r++) {
		size_t at = (size_t)r * l->c, c = (size_t)l->c;

		if (l->b) {
			k->bias(c, l->b, l->act, l->v ? l->v + at : NULL, l->y + at);
			continue;
		}
		if (l->v)
			memcpy(l->v + at, l->y + at, c * sizeof(*l->v));
		k->act(l->act, c, l->y + at, l->y + at);
	}
}

static void cpu_dense(void *ctx, int n, int c, int k, const float *x, const float *w,
		      const float *bias, enum pl_act act, float *pre, float *y)
{
	struct loop l = { .cpu = ctx, .rows = n, .c = k, .b = bias, .act = act, .v = pre, .y = y };

	cpu_gemm(ctx, false, true, n, k, c, x, c, w, c, 0, y, k);
	if (bias || pre || act != PL_ACT_NONE)
		pl_tensor_cpu_each(ctx, (n + ROWS - 1) / ROWS, (double)n * k, bias_rows, &l);
}

#define COLUMNS 256 /* columns of a chunk, for sums down the columns */

static void column_sums(void *arg, int i, struct pl_slot *slot)
{
	struct loop *l = arg;
	int at = i * COLUMNS, n = l->c - at < COLUMNS ? l->c - at : COLUMNS;
	float run[COLUMNS] = { 0 };
	double total[COLUMNS] = { 0 };

	(void)slot;
	for (int r = 0; r < l->rows; r++) {
		l->cpu->k->add((size_t)n, run, l->a + (size_t)r * l->c + at, run);
		if ((r + 1) % PL_ROWS_RUN == 0 || r + 1 == l->rows)
			pl_cpu_end_run(n, run, total);
	}
	for (int k = 0; k < n; k++)
		l->y[at + k] = (float)((double)l->y[at + k] + total[k]);
}

static void cpu_act_back(void *ctx, enum pl_act act, size_t n, const float *x, const float *y,
			 const float *dy, float *dx)
{
	struct loop l = { .kind = LOOP_ACT_BACK,
			  .cpu = ctx,
			  .n = n,
			  .act = act,
			  .a = x,
			  .b = y,
			  .g = dy,
			  .y = dx };

	span(&l);
}

static void cpu_dense_back(void *ctx, int n, int c, int k, const float *x, const float *w,
			   enum pl_act act, const float *pre, const float *y, float *dy,
			   const float *from, float *dx, float *dw, float *db)
{
	struct loop l = { .cpu = ctx, .rows = n, .c = k, .a = dy, .y = db };

	if (act != PL_ACT_NONE)
		cpu_act_back(ctx, act, (size_t)n * k, pre, y, dy, dy);
	if (db)
		pl_tensor_cpu_each(ctx, (k + COLUMNS - 1) / COLUMNS, (double)n * k, column_sums,
				   &l);
	cpu_gemm(ctx, true, false, k, c, n, dy, k, x, c, 1, dw, c);
	if (dx)
		cpu_gemm(ctx, false, false, n, c, k, dy, k, w, c, 0, dx, c);
	if (dx && from)
		cpu_act_back(ctx, PL_ACT_GELU, (size_t)n * c, from, x, dx, dx);
}

/* ---- elements -------------------------------------------------------------------------------- */

static void cpu_act(void *ctx, enum pl_act act, size_t n, const float *x, float *y)
{
	struct loop l = { .kind = LOOP_ACT, .cpu = ctx, .n = n, .act = act, .a = x, .y = y };

	span(&l);
}

static void cpu_add(void *ctx, size_t n, const float *a, const float *b, float *y)
{
	struct loop l = { .kind = LOOP_ADD, .cpu = ctx, .n = n, .a = a, .b = b, .y = y };

	span(&l);
}

static void cpu_scale(void *ctx, size_t n, float f, float *x)
{
	struct loop l = { .kind = LOOP_SCALE, .cpu = ctx, .n = n, .f = f, .x = x };

	span(&l);
}

static void cpu_dropout(void *ctx, size_t n, float p, uint64_t salt, const float *x, float *y)
{
	struct loop l = { .kind = LOOP_DROPOUT, .cpu = ctx, .n = n, .a = x, .y = y };

	l.key = pl_drop_key(l.cpu->vary.key, salt);
	l.limit = pl_drop_limit((double)p);
	l.f = p < 1 ? 1 / (1 - p) : 0;
	span(&l);
}

/* Sums of parts of `each` elements; the number of elements decides `each`. */
static void squares_part(void *arg, int i, struct pl_slot *slot)
{
	struct loop *l = arg;
	size_t each = (size_t)l->rows, from = (size_t)i * each, to = pl_min_size(l->n, from + each);
	double sum = 0;

	(void)slot;
	for (size_t at = from; at < to; at += 1024) {
		size_t n = pl_min_size(1024, to - at);

		sum += (double)l->cpu->k->dot(n, l->a + at, l->a + at);
	}
	l->cpu->part[i].sum = sum;
}

static double cpu_sum_squares(void *ctx, size_t n, const float *x)
{
	struct loop l = { .cpu = ctx, .n = n, .a = x };
	size_t each = (n / PL_PARTS + PL_CHUNK) / PL_CHUNK * PL_CHUNK;
	int parts = (int)((n + each - 1) / each);
	double sum = 0;

	l.rows = (int)each;
	pl_tensor_cpu_each(ctx, parts, (double)n, squares_part, &l);
	for (int i = 0; i < parts; i++)
		sum += l.cpu->part[i].sum;
	return sum;
}

static void cpu_clip(void *ctx, size_t n, double limit, float *x)
{
	double norm = sqrt(cpu_sum_squares(ctx, n, x)) + 1e-6;

	if (limit < norm)
		cpu_scale(ctx, n, (float)(limit / norm), x);
}

/* ---- optimisers ------------------------------------------------------------------------------ */

static void cpu_sgd(void *ctx, size_t first, size_t n, float momentum, const struct pl_decay *decay,
		    bool nesterov, const float *g, float *v, float *w)
{
	struct loop l = { .kind = LOOP_SGD,
			  .cpu = ctx,
			  .f = ((struct pl_cpu *)ctx)->vary.lr,
			  .f2 = momentum,
			  .on = nesterov };

	for (size_t at = first, to; at < first + n; at = to) {
		to = pl_decay_piece(decay, at, first + n, &l.f3);
		l.n = to - at;
		l.g = g + at, l.v = v ? v + at : NULL, l.w = w + at;
		span(&l);
	}
}

static void cpu_adam(void *ctx, size_t first, size_t n, float b1, float b2, float eps,
		     const struct pl_decay *decay, bool decoupled, const float *g, float *m,
		     float *v, float *w)
{
	struct loop l = { .kind = LOOP_ADAM, .cpu = ctx, .f3 = b1, .f4 = b2, .f5 = eps };
	double lr = (double)l.cpu->vary.lr, t = (double)l.cpu->vary.t;

	l.f = (float)(lr / (1 - pow((double)b1, t)));
	l.f2 = (float)(1 / sqrt(1 - pow((double)b2, t)));
	for (size_t at = first, to; at < first + n; at = to) {
		float rate;

		to = pl_decay_piece(decay, at, first + n, &rate);
		l.f6 = decoupled ? 0 : rate;
		l.f7 = decoupled ? (float)(1 - lr * (double)rate) : 1;
		l.n = to - at;
		l.g = g + at, l.x = m + at, l.v = v + at, l.w = w + at;
		span(&l);
	}
}

/* ---- tables of rows -------------------------------------------------------------------------- */

static void cpu_embed(void *ctx, int n, int c, const int32_t *id, const float *table,
		      const float *position, int t, float *y)
{
	struct pl_cpu *cpu = ctx;

	for (int i = 0; i < n; i++) {
		const float *from = table + (size_t)id[i] * (size_t)c;
		float *to = y + (size_t)i * (size_t)c;

		if (position)
			cpu->k->add((size_t)c, from, position + (size_t)(i % t) * (size_t)c, to);
		else
			memcpy(to, from, (size_t)c * sizeof(*to));
	}
}

static void cpu_embed_back(void *ctx, int n, int c, const int32_t *id, int t, const float *dy,
			   float *dtable, float *dposition)
{
	struct pl_cpu *cpu = ctx;

	for (int i = 0; i < n; i++) {
		const float *from = dy + (size_t)i * (size_t)c;
		float *to = dtable + (size_t)id[i] * (size_t)c;

		cpu->k->add((size_t)c, to, from, to);
		if (!dposition)
			continue;
		to = dposition + (size_t)(i % t) * (size_t)c;
		cpu->k->add((size_t)c, to, from, to);
	}
}

const struct pl_backend pl_backend_cpu = {
	.name = "cpu",
	.open = cpu_open,
	.close = cpu_close,
	PL_HOST_MEMBERS,
	.vary = cpu_vary,
	.precision = cpu_precision,
	.gemm = cpu_gemm,
	.dense = cpu_dense,
	.dense_back = cpu_dense_back,
	.act = cpu_act,
	.act_back = cpu_act_back,
	.embed = cpu_embed,
	.embed_back = cpu_embed_back,
	.dropout = cpu_dropout,
	.add = cpu_add,
	.sgd = cpu_sgd,
	.adam = cpu_adam,
	.clip = cpu_clip,
	.sum_squares = cpu_sum_squares,
	.scale = cpu_scale,
	.conv_work = pl_tensor_cpu_conv_work,
	.conv = pl_tensor_cpu_conv,
	.conv_back = pl_tensor_cpu_conv_back,
	.pool = pl_tensor_cpu_pool,
	.pool_back = pl_tensor_cpu_pool_back,
	.batchnorm = pl_tensor_cpu_batchnorm,
	.batchnorm_back = pl_tensor_cpu_batchnorm_back,
	.layernorm = pl_tensor_cpu_layernorm,
	.layernorm_back = pl_tensor_cpu_layernorm_back,
	.attn_save = pl_tensor_cpu_attn_save,
	.attn = pl_tensor_cpu_attn,
	.attn_back = pl_tensor_cpu_attn_back,
	.softmax_xent = pl_tensor_cpu_softmax_xent,
	.squared = pl_tensor_cpu_squared,
	.hinge = pl_tensor_cpu_hinge,
};
