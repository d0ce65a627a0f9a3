/*
 * Training steps straight on the CPU backend, timed: helper of bench/tensor.
 *
 * usage: tensor mlp|cnn|gpt|leaves [SECONDS] prints milliseconds (CPU time) a step and GFLOP/s
 *        tensor gemm|blas M N K TA TB        prints GFLOP/s of one product; by OpenBLAS
 *
 * The models are those of tensor_train.py: forward, backward, optimiser, one thread; "leaves" is
 * the network of cost models of tensor programs, as they train it. Inputs are random, and the loss
 * after all steps is printed too, so that nothing is computed in vain.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "plan/model.h"
#include "tensor/internal.h"
#include "tensor/net.h"
#include "tprog/network.h"

static const struct pl_backend *const be = &pl_backend_cpu;
static void *ctx;
static uint64_t seed = 1;
static double flops; /* of the products of a step */

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *room(size_t n)
{
	float *p = be->alloc(ctx, n * sizeof(float));

	if (!p)
		exit(5);
	return p;
}

/* Parameters and gradients in two slabs, taken in order. */
static float *params, *grads, *state1, *state2;
static size_t n_params, max_params = (size_t)4 << 20;

struct param {
	float *w, *g;
};

static struct param param(size_t n, double bound)
{
	struct param p = { params + n_params, grads + n_params };

	for (size_t i = 0; i < n; i++) {
		double u = (double)(pl_rng_next(&seed) >> 11) / 9007199254740992.0;

		p.w[i] = (float)((2 * u - 1) * bound);
	}
	n_params += (n + 15) / 16 * 16;
	if (n_params > max_params)
		exit(5);
	return p;
}

static void numbers(float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = (float)((double)(pl_rng_next(&seed) >> 11) / 9007199254740992.0 - 0.5);
}

struct dense {
	int n, c, k;
	enum pl_act act;
	struct param w, b;
	float *y, *pre;
};

static struct dense dense_new(int n, int c, int k, enum pl_act act)
{
	struct dense d = { .n = n, .c = c, .k = k, .act = act };

	d.w = param((size_t)(c * k), 1 / sqrt(c));
	d.b = param((size_t)k, 1 / sqrt(c));
	d.y = room((size_t)(n * k));
	d.pre = act == PL_ACT_GELU ? room((size_t)(n * k)) : NULL;
	return d;
}

static float *dense_go(const struct dense *d, const float *x)
{
	be->dense(ctx, d->n, d->c, d->k, x, d->w.w, d->b.w, d->act, d->pre, d->y);
	flops += 2.0 * d->n * d->c * d->k;
	return d->y;
}

static void dense_back(const struct dense *d, const float *x, float *dy, float *dx)
{
	be->dense_back(ctx, d->n, d->c, d->k, x, d->w.w, d->act, d->pre, d->y, dy, NULL, dx, d->w.g,
		       d->b.g);
	flops += (dx ? 4.0 : 2.0) * d->n * d->c * d->k;
}

static struct pl_loss_sum loss;

/* ---- models ---------------------------------------------------------------------------------- */

static struct dense fc[3];
static float *input, *dy0, *dy1;
static int32_t *label;
static int batch;

static void labels(int n, int classes)
{
	label = (int32_t *)(void *)room((size_t)n);
	for (int i = 0; i < n; i++)
		label[i] = (int32_t)(pl_rng_next(&seed) % (uint64_t)classes);
}

static void mlp_new(void)
{
	batch = 64;
	fc[0] = dense_new(batch, 784, 512, PL_ACT_RELU);
	fc[1] = dense_new(batch, 512, 512, PL_ACT_RELU);
	fc[2] = dense_new(batch, 512, 10, PL_ACT_NONE);
	input = room((size_t)batch * 784);
	numbers(input, (size_t)batch * 784);
	dy0 = room((size_t)batch * 784);
	dy1 = room((size_t)batch * 784);
	labels(batch, 10);
}

static void sgd(void)
{
	be->vary(ctx, &(struct pl_vary){ .lr = 0.01f });
	be->sgd(ctx, 0, n_params, 0, &(struct pl_decay){ 0 }, false, grads, NULL, params);
}

static void mlp_step(void)
{
	float *y = dense_go(&fc[2], dense_go(&fc[1], dense_go(&fc[0], input)));

	be->softmax_xent(ctx, batch, 10, y, label, 1, dy0, &loss);
	dense_back(&fc[2], fc[1].y, dy0, dy1);
	dense_back(&fc[1], fc[0].y, dy1, dy0);
	dense_back(&fc[0], input, dy0, NULL);
	sgd();
}

static struct pl_conv conv[2];
static struct pl_pool2d pool[2];
static struct param filter[2], shift[2];
static float *conv_y[2], *pool_y[2], *work;
static int32_t *where[2];

static void cnn_new(void)
{
	size_t most;

	batch = 32;
	for (int i = 0, c = 3, h = 32; i < 2; i++, c = 64, h /= 2) {
		size_t all = (size_t)batch * 64 * (size_t)(h * h);

		conv[i] = (struct pl_conv){ batch, c, h, h, 64, 5, 5, 1, 2, h, h };
		pool[i] = (struct pl_pool2d){ batch, 64, h, h, 3, 2, 1, h / 2, h / 2, true };
		filter[i] = param((size_t)(64 * c * 25), 1 / sqrt(c * 25));
		shift[i] = param(64, 1 / sqrt(c * 25));
		conv_y[i] = room(all);
		pool_y[i] = room(all / 4);
		where[i] = (int32_t *)(void *)room(all / 4);
	}
	most = be->conv_work(ctx, &conv[0]);
	if (be->conv_work(ctx, &conv[1]) > most)
		most = be->conv_work(ctx, &conv[1]);
	work = room(most);
	fc[0] = dense_new(batch, 4096, 384, PL_ACT_RELU);
	fc[1] = dense_new(batch, 384, 192, PL_ACT_RELU);
	fc[2] = dense_new(batch, 192, 10, PL_ACT_NONE);
	input = room((size_t)batch * 3 * 1024);
	numbers(input, (size_t)batch * 3 * 1024);
	dy0 = room((size_t)batch * 64 * 1024);
	dy1 = room((size_t)batch * 64 * 1024);
	labels(batch, 10);
}

static void cnn_step(void)
{
	const float *x = input;

	for (int i = 0; i < 2; i++) {
		be->conv(ctx, &conv[i], x, filter[i].w, shift[i].w, PL_ACT_RELU, conv_y[i], work);
		be->pool(ctx, &pool[i], conv_y[i], pool_y[i], where[i]);
		flops += (i ? 6.0 : 4.0) * batch * 64 * conv[i].c * 25 * conv[i].p * conv[i].q;
		x = pool_y[i];
	}
	x = dense_go(&fc[2], dense_go(&fc[1], dense_go(&fc[0], x)));
	be->softmax_xent(ctx, batch, 10, x, label, 1, dy0, &loss);
	dense_back(&fc[2], fc[1].y, dy0, dy1);
	dense_back(&fc[1], fc[0].y, dy1, dy0);
	dense_back(&fc[0], pool_y[1], dy0, dy1);
	for (int i = 1; i >= 0; i--) {
		be->pool_back(ctx, &pool[i], where[i], dy1, dy0);
		be->conv_back(ctx, &conv[i], i ? pool_y[0] : input, filter[i].w, PL_ACT_RELU,
			      conv_y[i], dy0, i ? dy1 : NULL, filter[i].g, shift[i].g, work);
	}
	sgd();
}

enum { B = 12, T = 64, C = 128, HEADS = 4, BLOCKS = 4, WORDS = 65, ROWS = B * T, RC = ROWS * C };
static const struct pl_attn attn = { B, T, C, HEADS };
struct norm {
	struct param g, b;
	float *save, *y;
};
static struct block {
	struct norm n1, n2;
	struct dense qkv, proj, up, down;
	float *save, *att, *mid, *out;
} block[BLOCKS];
static struct norm last;
static struct dense head;
static struct param table, place;
static int32_t *ids;
static float *x0, *wide;
static int64_t steps;

static struct norm norm_new(void)
{
	struct norm n = { param(C, 0), param(C, 0), room(2 * ROWS), room(RC) };

	for (int i = 0; i < C; i++)
		n.g.w[i] = 1;
	return n;
}

static float *norm_go(const struct norm *n, const float *x)
{
	be->layernorm(ctx, ROWS, C, x, n->g.w, n->b.w, 1e-5f, n->save, n->y);
	return n->y;
}

static void norm_back(const struct norm *n, const float *x, const float *dy, float *dx)
{
	be->layernorm_back(ctx, ROWS, C, x, n->g.w, n->save, dy, dx, n->g.g, n->b.g);
}

static void gpt_new(void)
{
	table = param(WORDS * C, 0.02);
	place = param(T * C, 0.02);
	for (int i = 0; i < BLOCKS; i++) {
		struct block *b = &block[i];

		b->n1 = norm_new();
		b->qkv = dense_new(ROWS, C, 3 * C, PL_ACT_NONE);
		b->proj = dense_new(ROWS, C, C, PL_ACT_NONE);
		b->n2 = norm_new();
		b->up = dense_new(ROWS, C, 4 * C, PL_ACT_GELU);
		b->down = dense_new(ROWS, 4 * C, C, PL_ACT_NONE);
		b->save = room(be->attn_save(ctx, &attn));
		b->att = room(RC);
		b->mid = room(RC);
		b->out = room(RC);
	}
	last = norm_new();
	head = dense_new(ROWS, C, WORDS, PL_ACT_NONE);
	labels(ROWS, WORDS);
	ids = label;
	labels(ROWS, WORDS);
	x0 = room(RC);
	dy0 = room(RC);
	dy1 = room(RC);
	wide = room(4 * RC);
	state1 = room(n_params);
	state2 = room(n_params);
}

static void gpt_forward(void)
{
	const float *x = x0;

	be->embed(ctx, ROWS, C, ids, table.w, place.w, T, x0);
	for (int i = 0; i < BLOCKS; i++, x = block[i - 1].out) {
		struct block *b = &block[i];

		dense_go(&b->qkv, norm_go(&b->n1, x));
		be->attn(ctx, &attn, b->qkv.y, b->att, b->save);
		be->add(ctx, RC, x, dense_go(&b->proj, b->att), b->mid);
		dense_go(&b->up, norm_go(&b->n2, b->mid));
		be->add(ctx, RC, b->mid, dense_go(&b->down, b->up.y), b->out);
		flops += 6.0 * 2 * B * T * T * C; /* half of the squares of attention, both ways */
	}
	dense_go(&head, norm_go(&last, x));
}

static void gpt_step(void)
{
	gpt_forward();
	be->softmax_xent(ctx, ROWS, WORDS, head.y, label, 1, wide, &loss);
	dense_back(&head, last.y, wide, dy1);
	norm_back(&last, block[BLOCKS - 1].out, dy1, dy0);
	for (int i = BLOCKS - 1; i >= 0; i--) {
		struct block *b = &block[i];

		/* dy0: gradient of what the block gave */
		dense_back(&b->down, b->up.y, dy0, wide);
		dense_back(&b->up, b->n2.y, wide, dy1);
		norm_back(&b->n2, b->mid, dy1, wide);
		be->add(ctx, RC, dy0, wide, dy0);
		dense_back(&b->proj, b->att, dy0, dy1);
		be->attn_back(ctx, &attn, b->qkv.y, b->att, b->save, dy1, wide);
		dense_back(&b->qkv, b->n1.y, wide, dy1);
		norm_back(&b->n1, i ? block[i - 1].out : x0, dy1, wide);
		be->add(ctx, RC, dy0, wide, dy0);
	}
	be->embed_back(ctx, ROWS, C, ids, T, dy0, table.g, place.g);
	be->vary(ctx, &(struct pl_vary){ .lr = 1e-3f, .t = ++steps });
	be->adam(ctx, 0, n_params, 0.9f, 0.95f, 1e-8f, &(struct pl_decay){ .rate = 0.1f }, true,
		 grads, state1, state2, params);
}

static struct pl_model leaves_text;
static struct pl_net *leaves;
static struct pl_optim *leaves_optim;
static struct pl_batch_io leaves_batch;

static void check(int rc, const struct pl_err *err)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "tensor: %s\n", err->msg);
	exit(4);
}

static void leaves_new(void)
{
	const struct pl_optim_opts o = { .kind = PL_OPTIM_ADAMW,
					 .lr = 2e-3,
					 .b1 = 0.9,
					 .b2 = 0.999,
					 .eps = 1e-8,
					 .decay = 0.01,
					 .clip = 1 };
	struct pl_net_opts no = { .ctx = ctx, .batch = pl_tprog_usual.batch, .in_place = true };
	struct pl_err err = { 0 };
	struct pl_buf text = { 0 };
	size_t nx;

	check(pl_tprog_network_layers(&pl_tprog_usual, &text, &err), &err);
	check(pl_model_text((const char *)text.p, text.n, "leaves", &leaves_text, &err), &err);
	check(pl_net_new(leaves_text.layer, leaves_text.n_layers, &no, &leaves, &err), &err);
	check(pl_optim_new(leaves, &o, &leaves_optim, &err), &err);
	pl_buf_fini(&text);
	batch = no.batch;
	nx = (size_t)batch * (size_t)pl_net_view(leaves).shape.dim[0] *
	     (size_t)pl_net_view(leaves).shape.dim[1];
	input = room(nx);
	numbers(input, nx);
	dy0 = room((size_t)batch);
	numbers(dy0, (size_t)batch);
	leaves_batch = (struct pl_batch_io){ .x = input, .target = dy0, .n = batch };
}

static void leaves_step(void)
{
	struct pl_net_view v = pl_net_view(leaves);
	struct pl_err err = { 0 };

	check(pl_net_forward(leaves, &leaves_batch, 0, false, &loss.loss, NULL, &err), &err);
	check(pl_net_backward(leaves, false, &err), &err);
	pl_optim_step(leaves_optim, steps++, 0, SIZE_MAX, NAN);
	for (uint32_t i = 0; i < v.n_layers; i++)
		flops += 3 * v.layer[i].flops * batch;
}

/* ---- main ------------------------------------------------------------------------------------ */

static int product(char **v)
{
	int m = atoi(v[0]), n = atoi(v[1]), k = atoi(v[2]);
	bool ta = atoi(v[3]), tb = atoi(v[4]);
	float *a = room((size_t)m * (size_t)k), *b = room((size_t)k * (size_t)n);
	float *c = room((size_t)m * (size_t)n);
	double each = 2.0 * m * n * k, best = INFINITY;
	int turns = 1 + (int)(2e8 / each);

	numbers(a, (size_t)m * (size_t)k);
	numbers(b, (size_t)k * (size_t)n);
	for (int r = 0; r < 7; r++) {
		double t = now();

		for (int i = 0; i < turns; i++)
			be->gemm(ctx, ta, tb, m, n, k, a, ta ? m : k, b, tb ? k : n, 0, c, n);
		best = fmin(best, (now() - t) / turns);
	}
	printf("%.1f\n", 1e-9 * each / best);
	return 0;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		void (*make)(void), (*step)(void);
	} models[] = { { "mlp", mlp_new, mlp_step },
		       { "cnn", cnn_new, cnn_step },
		       { "gpt", gpt_new, gpt_step },
		       { "leaves", leaves_new, leaves_step } };
	double seconds = argc > 2 ? atof(argv[2]) : 1, begin, best = INFINITY;
	struct pl_err err = { 0 };

	if (argc == 7 && !strcmp(argv[1], "blas")) {
		if (pl_tensor_cpu_open(&pl_tensor_kernels_portable, true, 1, &ctx, &err) < 0 ||
		    !((struct pl_cpu *)ctx)->blas)
			return 6;
		return product(argv + 2);
	}
	if (argc < 2 || be->open(&(struct pl_backend_opts){ .threads = 1 }, &ctx, &err) < 0)
		return 2;
	if (argc == 7 && !strcmp(argv[1], "gemm"))
		return product(argv + 2);
	params = room(max_params);
	grads = room(max_params);
	for (size_t i = 0; i < PL_LEN(models); i++) {
		if (strcmp(models[i].name, argv[1]) != 0)
			continue;
		models[i].make();
		models[i].step();
		begin = now();
		do {
			double t = now();

			flops = 0;
			memset(grads, 0, n_params * sizeof(*grads));
			models[i].step();
			best = fmin(best, now() - t);
		} while (now() - begin < seconds);
		printf("%.4f %.1f %.6f\n", best * 1e3, flops / best * 1e-9, loss.loss);
		return 0;
	}
	return 2;
}
