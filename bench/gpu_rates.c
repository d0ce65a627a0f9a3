/*
 * gpu_rates - how fast the memory-bound kernels of the CUDA backend are, beside a copy of the same
 * device.
 *
 * usage: gpu_rates [bf16|fp32] [MIB]        (MIB: of the main array, default 1024)
 *        gpu_rates products [BATCH]
 *
 * A line "KERNEL BYTES MS GB/S SHARE": the bytes that the operation must move, the median time of
 * its runs, and the share of the rate of a copy of MIB (bytes read and written both count), which
 * runs by turns with it. Clocks: of the host, over enough repetitions that launching does not
 * count. Exit 6: there is no device.
 *
 * products: those of GPT-2 124M in bfloat16, with BATCH sequences of 1,024 (default 32), each alone
 * and with what goes along with it (bias, gelu and its slope, sums of dy): what that adds, and what
 * it would take by itself at the rate of a copy, says whether it should go along.
 */
#include <stdlib.h>
#include <string.h>

#include "record/rec.h"
#include "tensor/plugin.h"

#define TURNS 9

static const struct pl_backend *be = &pl_backend_cuda_table;
static void *ctx;
static size_t width;  /* of an activation */
static double copied; /* GB/s */
static int each = 10; /* repetitions a turn */

/* What the operations work on: (N, C) in a, b, y; parameters in w, g, m, v. */
static float *a, *b, *y, *w, *g, *m, *v, *gamma_, *save, *dgamma;
static int32_t *ids;
static struct pl_loss_sum *sum;
static size_t n, params;
static int rows, wide = 1024, vocab = 50304, text;

static void op_copy(void)
{
	be->copy(ctx, y, a, n * width);
}
static void op_add(void)
{
	be->add(ctx, n, a, b, y);
}
static void op_gelu(void)
{
	be->act(ctx, PL_ACT_GELU, n, a, y);
}
static void op_gelu_back(void)
{
	be->act_back(ctx, PL_ACT_GELU, n, a, b, b, y);
}
static void op_dropout(void)
{
	be->dropout(ctx, n, 0.1f, 1, a, y);
}
static void op_layernorm(void)
{
	be->layernorm(ctx, rows, wide, a, gamma_, gamma_, 1e-5f, save, y);
}
static void op_layernorm_back(void)
{
	be->layernorm_back(ctx, rows, wide, a, gamma_, save, b, y, dgamma, dgamma + wide);
}
static void op_add_layernorm(void)
{
	be->add_layernorm(ctx, rows, wide, a, b, m, gamma_, gamma_, 1e-5f, save, y);
}
static void op_add_layernorm_back(void)
{
	be->layernorm_back_add(ctx, rows, wide, a, gamma_, save, b, m, y, dgamma, dgamma + wide);
}
static void op_batchnorm(void)
{
	be->batchnorm(ctx, rows / 1024, 64, 16 * wide, a, gamma_, gamma_, 1e-5f, 0.1f, false, NULL,
		      save, y);
}
static void op_batchnorm_back(void)
{
	be->batchnorm_back(ctx, rows / 1024, 64, 16 * wide, a, gamma_, save, b, y, dgamma,
			   dgamma + wide);
}
static void op_xent(void)
{
	be->softmax_xent(ctx, text, vocab, a, ids, 1, y, sum);
}
static void op_squared(void)
{
	be->squared(ctx, (int)(params / (size_t)wide), wide, a, w, 1, y, sum);
}
static void op_hinge(void)
{
	be->hinge(ctx, text, vocab, a, ids, 1, y, sum);
}
static struct pl_pool2d halving(void) /* planes of 32 x 32 to 16 x 16 */
{
	return (struct pl_pool2d){ rows / 64, 64, 32, 32, 2, 2, 0, 16, 16, true };
}
static void op_pool(void)
{
	struct pl_pool2d d = halving();

	be->pool(ctx, &d, a, y, (int32_t *)(void *)m);
}
static void op_pool_back(void)
{
	struct pl_pool2d d = halving();

	be->pool_back(ctx, &d, (int32_t *)(void *)m, b, y);
}
static void op_embed(void)
{
	be->embed(ctx, rows, wide, ids, w, NULL, 1, y);
}
static void op_embed_back(void)
{
	be->embed_back(ctx, rows, wide, ids, 1, a, g, NULL);
}
static void op_adamw(void)
{
	be->adam(ctx, 0, params, 0.9f, 0.95f, 1e-8f, &(struct pl_decay){ .rate = 0.1f }, true, g, m,
		 v, w);
}
static void op_sgd(void)
{
	be->sgd(ctx, 0, params, 0.9f, &(struct pl_decay){ .rate = 0 }, false, g, m, w);
}
static void op_clip(void)
{
	be->clip(ctx, params, 1e30, g);
}

/* Milliseconds of one repetition. */
static int turn(void (*op)(void), double *ms, struct pl_err *err)
{
	pl_ns begin = pl_now_ns();
	int rc;

	for (int i = 0; i < each; i++)
		op();
	rc = be->sync(ctx, err);
	*ms = (double)(pl_now_ns() - begin) / 1e6 / each;
	return rc;
}

static double median(double *turns)
{
	qsort(turns, TURNS, sizeof(*turns), pl_compare_double);
	return turns[TURNS / 2];
}

static int took(void (*op)(void), double *ms, struct pl_err *err)
{
	double all[TURNS], one;
	int rc = 0;

	for (int t = -2; t < TURNS && rc == 0; t++) { /* two to warm up */
		rc = turn(op, &one, err);
		if (t >= 0)
			all[t] = one;
	}
	*ms = rc < 0 ? 0 : median(all);
	return rc;
}

static int measure(const char *name, void (*op)(void), double bytes, struct pl_err *err)
{
	double ms[TURNS], share[TURNS], one, copy, all;
	int rc;

	for (int t = -2; t < TURNS; t++) {
		PL_TRY(turn(op_copy, &copy, err));
		PL_TRY(turn(op, &one, err));
		if (t < 0)
			continue;
		ms[t] = one;
		share[t] = bytes / one / (2 * (double)n * (double)width / copy);
	}
	all = median(ms);
	printf("%s %.0f %.4f %.0f %.3f\n", name, bytes, all, bytes / all / 1e6, median(share));
	fflush(stdout);
out:
	return rc;
}

static float *room(size_t bytes, bool *all)
{
	float *p = be->alloc(ctx, bytes);

	*all = *all && p;
	return p;
}

/* All of it becomes what its beginning is. */
static void spread(void *p, size_t some, size_t all)
{
	for (size_t have = some; have < all; have += some) {
		some = pl_min_size(have, all - have);
		be->copy(ctx, (char *)p + have, p, some);
	}
}

/* a, b and w: numbers from -2 to 2, as zeros are easier for the device than what it usually has. */
static int fill(struct pl_err *err)
{
	size_t some = pl_min_size((size_t)1 << 20, params);
	uint64_t seed = 1;
	float *host;
	int rc;

	PL_TRY(pl_alloc(&host, some, sizeof(*host), err));
	for (size_t i = 0; i < some; i++)
		host[i] = (float)(pl_rng_next(&seed) >> 40) / (float)(1 << 22) - 2;
	be->put(ctx, g, host, some * sizeof(*host));
	pl_free(host);
	be->load(ctx, some, g, a);
	spread(a, some * width, n * width);
	be->copy(ctx, b, a, n * width);
	be->copy(ctx, w, g, some * sizeof(float));
	spread(w, some * sizeof(float), params * sizeof(float));
	be->zero(ctx, g, params * sizeof(float));
out:
	return rc;
}

/* Parameters are as many bytes as activations; ids go round the vocabulary, as far as the table
 * reaches. */
static int make(struct pl_err *err)
{
	bool all = true;
	int32_t *host;
	int rc, words;

	rows = (int)(n / (size_t)wide);
	text = (int)(n / (size_t)vocab);
	params = n * width / sizeof(float);
	words = (int)pl_min_size((size_t)vocab, params / (size_t)wide);
	a = room(n * width, &all), b = room(n * width, &all), y = room(n * width, &all);
	w = room(params * 4, &all), g = room(params * 4, &all), m = room(params * 4, &all);
	v = room(params * 4, &all), gamma_ = room((size_t)wide * 4, &all);
	save = room(2 * (size_t)rows * 4, &all), dgamma = room(2 * (size_t)vocab * 4, &all);
	ids = (int32_t *)(void *)room((size_t)rows * 4, &all);
	sum = (struct pl_loss_sum *)(void *)room(sizeof(*sum), &all);
	if (!all)
		return pl_fail(err, PL_ENOMEM, "no memory of the device for %zu numbers", n);
	PL_TRY(pl_alloc(&host, (size_t)rows, sizeof(*host), err));
	for (int i = 0; i < rows; i++)
		host[i] = (int32_t)((int64_t)i * 7919 % words);
	be->put(ctx, ids, host, (size_t)rows * sizeof(*host));
	pl_free(host);
	be->weights(ctx, w, params);
	be->vary(ctx, &(struct pl_vary){ .lr = 1e-4f, .t = 3 });
	PL_TRY(fill(err));
	rc = be->sync(ctx, err);
out:
	return rc;
}

static int measure_all(struct pl_err *err)
{
	double act = (double)n * (double)width, par = (double)params * 4;
	double lookup = (double)rows * wide * (double)(4 + width), half = width == 2 ? par / 2 : 0;
	double pooled = act + (double)(n / 4) * (double)(width + 4);
	/* dy once, and each row of the table that was met is added to */
	double met = act + 8.0 * wide * (double)pl_min_size((size_t)vocab, params / (size_t)wide);
	int rc;

	PL_TRY(measure("copy", op_copy, 2 * act, err));
	PL_TRY(measure("add", op_add, 3 * act, err));
	PL_TRY(measure("gelu", op_gelu, 2 * act, err));
	PL_TRY(measure("gelu-back", op_gelu_back, 3 * act, err));
	PL_TRY(measure("dropout", op_dropout, 2 * act, err));
	PL_TRY(measure("layernorm", op_layernorm, 2 * act, err));
	PL_TRY(measure("layernorm-back", op_layernorm_back, 3 * act, err));
	PL_TRY(measure("add-layernorm", op_add_layernorm, 4 * act, err));
	PL_TRY(measure("add-layernorm-back", op_add_layernorm_back, 4 * act, err));
	PL_TRY(measure("batchnorm", op_batchnorm, 3 * act, err)); /* reads it twice */
	PL_TRY(measure("batchnorm-back", op_batchnorm_back, 5 * act, err));
	PL_TRY(measure("cross-entropy", op_xent, 2.0 * text * (double)vocab * (double)width, err));
	PL_TRY(measure("squared-error", op_squared, (double)params * (2 * (double)width + 4), err));
	PL_TRY(measure("hinge", op_hinge, 2.0 * text * (double)vocab * (double)width, err));
	PL_TRY(measure("pooling", op_pool, pooled, err)); /* the places are int32 */
	PL_TRY(measure("pooling-back", op_pool_back, pooled, err));
	PL_TRY(measure("embedding", op_embed, lookup, err));
	PL_TRY(measure("embedding-back", op_embed_back, met, err));
	PL_TRY(measure("adamw", op_adamw, 7 * par + half, err));
	PL_TRY(measure("sgd-momentum", op_sgd, 5 * par + half, err));
	PL_TRY(measure("norm-of-gradients", op_clip, par, err));
out:
	return rc;
}

/* ---- products -------------------------------------------------------------------------------- */

/* A dense layer from `wide` to `to`, of `rows`: x is a, y is b, dx is y; what went into gelu, m. */
static int to;
static bool gelu, with; /* x or y is that of one; something goes along */

static void op_dense(void)
{
	be->dense(ctx, rows, wide, to, a, w, with ? w + (size_t)wide * (size_t)to : NULL,
		  with && gelu ? PL_ACT_GELU : PL_ACT_NONE, with && gelu ? m : NULL, b);
}
static void op_dw(void)
{
	be->dense_back(ctx, rows, wide, to, a, w, PL_ACT_NONE, NULL, b, b, NULL, NULL, g,
		       with ? dgamma : NULL);
}
static void op_dw_dx(void)
{
	be->dense_back(ctx, rows, wide, to, a, w, PL_ACT_NONE, NULL, b, b, with ? m : NULL, y, g,
		       NULL);
}

/* op, less another that it contains, alone and with what goes along; bytes: of that by itself */
static int both(const char *name, const char *along, void (*op)(void), void (*less)(void),
		double bytes, struct pl_err *err)
{
	double ms[2] = { 0, 0 }, part = 0;
	int rc = 0;

	with = false;
	if (less)
		PL_TRY(took(less, &part, err));
	PL_TRY(took(op, &ms[0], err));
	with = true;
	if (along)
		PL_TRY(took(op, &ms[1], err));
	printf("%-8s %6d %6d %6d  %8.4f ms %6.0f TFLOP/s", name, rows, wide, to, ms[0] - part,
	       2.0 * rows * wide * to / (ms[0] - part) / 1e9);
	if (along)
		printf("  %s: +%.4f ms, by itself %.4f", along, ms[1] - ms[0],
		       bytes / copied / 1e6);
	printf("\n");
	fflush(stdout);
out:
	return rc;
}

static int measure_layer(int from, int into, bool bias, bool gelu_in, bool gelu_out,
			 struct pl_err *err)
{
	double in = 2.0 * rows * from, out = 2.0 * rows * into;
	int rc;

	wide = from, to = into, gelu = gelu_out;
	be->weights(ctx, w, (size_t)(from + 1) * (size_t)into); /* the bias behind them */
	PL_TRY(both("forward",
		    gelu_out ? "bias, gelu"
		    : bias   ? "bias"
			     : NULL,
		    op_dense, NULL, (gelu_out ? 3 : 2) * out, err));
	PL_TRY(both("dw", bias ? "sums of dy" : NULL, op_dw, NULL, out, err));
	PL_TRY(both("dx", gelu_in ? "gelu, back" : NULL, op_dw_dx, op_dw, 3 * in, err));
out:
	return rc;
}

static int measure_products(struct pl_err *err)
{
	const struct {
		int from, to;
		bool bias, in, out;
	} layer[] = { { 768, 2304, true, false, false },
		      { 768, 768, true, false, false },
		      { 768, 3072, true, false, true },
		      { 3072, 768, true, true, false },
		      { 768, 50304, false, false, false } };
	double ms;
	int rc;

	each = 40; /* the smallest takes 50 us */
	rows = (int)(n / (size_t)vocab);
	PL_TRY(took(op_copy, &ms, err));
	copied = 2 * (double)n * (double)width / ms / 1e6;
	for (size_t i = 0; i < PL_LEN(layer); i++)
		PL_TRY(measure_layer(layer[i].from, layer[i].to, layer[i].bias, layer[i].in,
				     layer[i].out, err));
out:
	return rc;
}

int main(int argc, char **argv)
{
	bool products = argc > 1 && !strcmp(argv[1], "products");
	int size = argc > 2 ? atoi(argv[2]) : products ? 32 : 1024;
	struct pl_backend_opts o = { .store = PL_STORE_BF16 };
	struct pl_err err = { 0 };
	int rc;

	if (argc > 1 && !strcmp(argv[1], "fp32"))
		o.store = PL_STORE_FP32;
	width = o.store == PL_STORE_BF16 ? 2 : 4;
	n = products ? (size_t)size * 1024 * (size_t)vocab : ((size_t)size << 20) / width;
	rc = be->open(&o, &ctx, &err);
	if (rc == 0)
		rc = make(&err);
	if (rc == 0)
		rc = products ? measure_products(&err) : measure_all(&err);
	if (ctx)
		be->close(ctx);
	if (rc < 0)
		fprintf(stderr, "gpu_rates: %s\n", err.msg);
	return rc < 0 ? pl_exit_status(rc) : 0;
}
