/*
 * gpu_conv - how fast convolutions of the CUDA backend are, by our kernels and by cuDNN.
 *
 * usage: gpu_conv [IMAGES]        (a batch, default 128)
 *
 * A table: TFLOP/s forward and back (both gradients), by each, for layers of ResNet-50 and of a
 * network for CIFAR, in each kind of arithmetic; and how far the two are apart, of the greatest
 * number. Medians of some turns, clocks of the host over enough repetitions that launching does not
 * count. What cuDNN leaves to our kernels counts for it. Exit 1: they are too far apart; 6: there
 * is no device.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "record/rec.h"
#include "tensor/plugin.h"

#define TURNS	7
#define EACH	5	   /* repetitions a turn */
#define LOOKED	(1u << 20) /* numbers of y and dx that are compared, the last ones */
#define NUMBERS (1u << 22) /* random, over and over */

static const struct pl_backend *be = &pl_backend_cuda_table;

static const struct {
	int c, side, k, r, stride;
} layers[] = {
	{ 3, 224, 64, 7, 2 },	 { 64, 56, 64, 3, 1 },	 { 128, 28, 128, 3, 1 },
	{ 256, 14, 1024, 1, 1 }, { 256, 56, 512, 1, 2 }, { 512, 7, 512, 3, 1 },
	{ 3, 32, 64, 5, 1 },	 { 64, 16, 64, 5, 1 },
};
static const struct {
	const char *name;
	enum pl_store store;
	enum pl_precision precision;
	double limit;
} kinds[] = {
	{ "fp32", PL_STORE_FP32, PL_FP32, 1e-4 },
	{ "tf32", PL_STORE_FP32, PL_TF32, 1e-2 },
	{ "bf16", PL_STORE_BF16, PL_FP32, 3e-2 },
};

struct measured {
	double forward, back; /* TFLOP/s */
	float *last[2];	      /* of y, dx */
	char said[1200];
	bool ours; /* there is no cuDNN */
};

/* A context with what one layer works on. */
struct bed {
	void *ctx;
	struct pl_conv d;
	size_t width, nx, ny, nw;
	float *x, *y, *dy, *dx, *w, *dw, *db, *work;
	struct pl_err *err;
};

static const float *numbers(void)
{
	static float all[NUMBERS];
	static bool made;
	uint64_t seed = 1;

	for (size_t i = 0; i < NUMBERS && !made; i++)
		all[i] = (float)(pl_rng_next(&seed) >> 40) / (1 << 23) - 1;
	made = true;
	return all;
}

/* n numbers, or n times `width` bytes of activations made of them. */
static float *room(struct bed *b, size_t n, size_t width)
{
	float *p = be->alloc(b->ctx, n * width), *piece = NULL;

	if (width != sizeof(float))
		piece = be->alloc(b->ctx, NUMBERS * sizeof(float));
	if (!p || (width != sizeof(float) && !piece)) {
		pl_fail(b->err, PL_ENOMEM, "no memory of the device for %zu numbers", n);
		return p;
	}
	if (piece)
		be->put(b->ctx, piece, numbers(), NUMBERS * sizeof(float));
	for (size_t at = 0; at < n; at += NUMBERS) {
		size_t m = pl_min_size(NUMBERS, n - at);

		if (piece)
			be->load(b->ctx, m, piece, (float *)(void *)((char *)p + at * width));
		else
			be->put(b->ctx, p + at, numbers(), m * width);
	}
	if (piece)
		be->free(b->ctx, piece);
	return p;
}

static void make(struct bed *b)
{
	const struct pl_conv *d = &b->d;

	b->nx = (size_t)d->n * (size_t)(d->c * d->h * d->w);
	b->ny = (size_t)d->n * (size_t)(d->k * d->p * d->q);
	b->nw = (size_t)d->k * (size_t)(d->c * d->r * d->s);
	b->x = room(b, b->nx, b->width), b->dx = room(b, b->nx, b->width);
	b->y = room(b, b->ny, b->width), b->dy = room(b, b->ny, b->width);
	b->w = room(b, b->nw, 4), b->dw = room(b, b->nw, 4), b->db = room(b, (size_t)d->k, 4);
	b->work = room(b, be->conv_work(b->ctx, d) + 1, 4);
	if (!b->err->code)
		be->weights(b->ctx, b->w, b->nw);
}

static void drop(struct bed *b)
{
	float *all[] = { b->x, b->dx, b->y, b->dy, b->w, b->dw, b->db, b->work };

	be->weights(b->ctx, b->w, 0);
	for (size_t i = 0; i < PL_LEN(all); i++)
		be->free(b->ctx, all[i]);
	be->close(b->ctx);
}

static void forward(struct bed *b)
{
	be->conv(b->ctx, &b->d, b->x, b->w, b->db, PL_ACT_RELU, b->y, b->work);
}

static void back(struct bed *b)
{
	be->conv_back(b->ctx, &b->d, b->x, b->w, PL_ACT_NONE, b->y, b->dy, b->dx, b->dw, NULL,
		      b->work);
}

/* TFLOP/s; `products` as large as the layer. */
static double rate(struct bed *b, void (*op)(struct bed *), int products)
{
	double s[TURNS], flops = 2.0 * products * (double)b->ny * b->d.c * b->d.r * b->d.s;

	for (int t = -2; t < TURNS && !b->err->code; t++) { /* two to warm up */
		pl_ns begin = pl_now_ns();

		for (int i = 0; i < EACH; i++)
			op(b);
		be->sync(b->ctx, b->err);
		if (t >= 0)
			s[t] = (double)(pl_now_ns() - begin) / 1e9 / EACH;
	}
	if (b->err->code)
		return 0;
	qsort(s, TURNS, sizeof(*s), pl_compare_double);
	return flops / s[TURNS / 2] / 1e12;
}

/* The last of n numbers, as float32. */
static float *last(struct bed *b, const float *p, size_t n)
{
	size_t m = pl_min_size(n, LOOKED), from = (n - m) * b->width;
	float *host = pl_malloc(m * sizeof(*host));

	if (!host) {
		pl_fail(b->err, PL_ENOMEM, "out of memory");
		return NULL;
	}
	be->get(b->ctx, host, (const char *)p + from, m * b->width);
	for (size_t i = m; i-- > 0 && b->width == 2;) {
		uint32_t bits = (uint32_t)((const uint16_t *)(void *)host)[i] << 16;

		memcpy(&host[i], &bits, sizeof(bits));
	}
	return host;
}

static void listen(void *arg, enum pl_level level, const char *text)
{
	struct measured *m = arg;

	m->ours = level == PL_LOG_WARN || !strstr(text, " by ");
	snprintf(m->said, sizeof(m->said), "%s", text);
}

static int measure(size_t layer, size_t kind, int n, struct measured *m, struct pl_err *err)
{
	const struct pl_backend_opts o = { .store = kinds[kind].store };
	struct bed b = { .err = err, .width = o.store == PL_STORE_BF16 ? 2 : 4 };
	const struct pl_log log = { listen, m };
	int rc = be->open(&o, &b.ctx, err);

	if (rc < 0)
		return rc;
	b.d = (struct pl_conv){ .n = n, .c = layers[layer].c, .k = layers[layer].k };
	b.d.h = b.d.w = layers[layer].side;
	b.d.r = b.d.s = layers[layer].r;
	b.d.stride = layers[layer].stride;
	b.d.pad = b.d.r / 2;
	b.d.p = b.d.q = (b.d.h + 2 * b.d.pad - b.d.r) / b.d.stride + 1;
	be->precision(b.ctx, kinds[kind].precision);
	make(&b);
	if (!err->code)
		m->forward = rate(&b, forward, 1);
	if (!err->code)
		m->back = rate(&b, back, 2);
	if (!err->code)
		m->last[0] = last(&b, b.y, b.ny);
	if (!err->code)
		m->last[1] = last(&b, b.dx, b.nx);
	be->remarks(b.ctx, &log);
	drop(&b);
	return err->code;
}

static double max_difference(const struct measured *a, const struct measured *b, const size_t *n)
{
	double far = 0;

	for (int i = 0; i < 2; i++) {
		double greatest = 0, most = 0;

		for (size_t j = 0; j < pl_min_size(n[i], LOOKED); j++) {
			double d = fabs((double)a->last[i][j] - (double)b->last[i][j]);

			most = d > most || isnan(d) ? d : most;
			greatest = fmax(greatest, fabs((double)a->last[i][j]));
		}
		far = most / greatest > far || isnan(most) ? most / greatest : far;
	}
	return far;
}

/* 1: they are too far apart */
static int compare(size_t layer, size_t kind, int n, const char *named, struct pl_err *err)
{
	struct measured own = { 0 }, lib = { 0 };
	int side = layers[layer].side, out = (side - 1) / layers[layer].stride + 1, rc;
	const size_t size[] = { (size_t)n * (size_t)(layers[layer].k * out * out),
				(size_t)n * (size_t)(layers[layer].c * side * side) };
	double far = 0;

	setenv("PACELINE_CUDNN", "none", 1);
	PL_TRY(measure(layer, kind, n, &own, err));
	setenv("PACELINE_CUDNN", named, 1);
	PL_TRY(measure(layer, kind, n, &lib, err));
	if (!layer && !kind)
		printf("# %s\n%-20s %-5s %10s %10s %10s %10s %10s\n", lib.said, "layer", "kind",
		       "forward", "cuDNN", "back", "cuDNN", "apart");
	printf("%4dx%3dx%3d, %4d %dx%d%s %-5s %10.3f", layers[layer].c, side, side, layers[layer].k,
	       layers[layer].r, layers[layer].r, layers[layer].stride > 1 ? "/2" : "  ",
	       kinds[kind].name, own.forward);
	if (lib.ours) {
		printf(" %10s %10.3f %10s\n", "-", own.back, "-");
	} else {
		far = max_difference(&own, &lib, size);
		printf(" %10.3f %10.3f %10.3f %10.1e\n", lib.forward, own.back, lib.back, far);
	}
	fflush(stdout);
	rc = !(far <= kinds[kind].limit);
out:
	for (int i = 0; i < 2; i++) {
		pl_free(own.last[i]);
		pl_free(lib.last[i]);
	}
	return rc;
}

int main(int argc, char **argv)
{
	int n = argc > 1 ? atoi(argv[1]) : 128, wrong = 0, rc = 0;
	const char *cudnn_before = getenv("PACELINE_CUDNN");
	char *named = pl_strdup(cudnn_before ? cudnn_before : "");
	struct pl_err err = { 0 };

	for (size_t kind = 0; kind < PL_LEN(kinds) && rc >= 0 && named; kind++)
		for (size_t layer = 0; layer < PL_LEN(layers) && rc >= 0; layer++) {
			rc = compare(layer, kind, n, named, &err);
			wrong += rc > 0;
		}
	if (rc < 0)
		fprintf(stderr, "gpu_conv: %s\n", err.msg);
	if (wrong)
		fprintf(stderr, "gpu_conv: %d of them are too far apart\n", wrong);
	pl_free(named);
	return rc < 0 ? pl_exit_status(rc) : wrong > 0;
}
