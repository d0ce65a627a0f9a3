/*
 * tensor_battery.h - what every backend has to pass: each operation of the table on random shapes
 * (ones, odd sizes, tails of vectors) against the plain backend.
 *
 * The backend under test computes each case twice, in the contexts `one` and `many`, which differ
 * in something that must not matter (the number of threads, their order): these results must be
 * equal bit by bit. Against the plain one they may differ by a share of the greatest element.
 * Behind every array lies a canary. Products once more with operands in bfloat16, where a number
 * between may have been rounded the other way. A backend that stores activations as bfloat16
 * (`half`) gets inputs that were rounded before, and what it stores is read back.
 */
#ifndef PL_TENSOR_BATTERY_H
#define PL_TENSOR_BATTERY_H

#include <math.h>
#include <stdlib.h>

#include "../oracle/plain.h"
#include "tap.h"
#include "tensor/internal.h"

#define TOLERANCE 1e-5
#define CANARY	  12345.5f
#define KEPT	  16

static struct {
	const struct pl_backend *table;
	void *one, *many;
	const char *again; /* what is the same in `many` */
	bool half;
	int rounds, half_rounds;
	/* memory that both the backend and the host can use */
	void *(*alloc)(size_t bytes);
	void (*free)(void *p);
} battery;

static const struct pl_backend *const plain = &pl_backend_plain;
static void *slow; /* context of the plain one */
static uint64_t seed;

static int pick(int lo, int hi)
{
	return lo + (int)(pl_rng_next(&seed) % (uint64_t)(hi - lo + 1));
}

static float number(void)
{
	double u = 0;

	for (int i = 0; i < 4; i++)
		u += (double)(pl_rng_next(&seed) >> 40) / (1 << 24) - 0.5;
	return (float)u * 1.7f;
}

/* ---- arrays of one case, three of each: for the plain backend, for `one`, for `many` ----------
 */

static struct array {
	float *p[3]; /* of a stored one that is half: bfloat16 in the last two */
	size_t n;
	bool half, spread;
} kept[KEPT];
static int n_kept;

static size_t bytes(const struct array *a, int b)
{
	return a->n * (b && a->half ? 2 : sizeof(float));
}

static float value(const struct array *a, int b, size_t i)
{
	uint32_t bits;
	float v;

	if (!b || !a->half)
		return a->p[b][i];
	bits = (uint32_t)((uint16_t *)(void *)a->p[b])[i] << 16;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

static void set(struct array *a, int b, size_t i, float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	if (!b || !a->half)
		a->p[b][i] = v;
	else
		((uint16_t *)(void *)a->p[b])[i] = (uint16_t)(bits >> 16);
}

/* To the nearest bfloat16, ties to even. */
static float halved(float v)
{
	uint32_t bits;

	memcpy(&bits, &v, sizeof(bits));
	bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

/* n elements, the first `drawn` of them random, the others 0 */
static struct array *array_of(size_t n, size_t drawn)
{
	struct array *a = &kept[n_kept++];

	a->n = n;
	a->half = a->spread = false;
	for (int b = 0; b < 3; b++)
		a->p[b] = battery.alloc((n + 2) * sizeof(float));
	for (size_t i = 0; i < n; i++)
		a->p[0][i] = i < drawn ? number() : 0;
	return a;
}

static struct array *array(size_t n)
{
	return array_of(n, n);
}

/* The same of activations. */
static struct array *stored(size_t n)
{
	struct array *a = array(n);

	a->half = battery.half;
	return a;
}

static float *canary(const struct array *a, int b)
{
	return (float *)(void *)((char *)a->p[b] + (bytes(a, b) + 3) / 4 * 4);
}

/* All three get what run b has. */
static void share(struct array *a, int b)
{
	for (size_t i = 0; i < a->n; i++) {
		float v = value(a, b, i);

		v = a->half ? halved(v) : v;
		for (int to = 0; to < 3; to++)
			set(a, to, i, v);
	}
}

static void spread(void)
{
	for (int i = 0; i < n_kept; i++) {
		if (kept[i].spread)
			continue;
		share(&kept[i], 0);
		kept[i].spread = true;
		for (int b = 0; b < 3; b++)
			*canary(&kept[i], b) = CANARY;
	}
}

static double worst;	     /* of this kernel: difference by greatest element */
static bool same, untouched; /* `many` as `one`; the canaries */

static void differ(const struct array *a)
{
	double most = 1e-3, far = 0;

	for (size_t i = 0; i < a->n; i++) {
		double want = (double)a->p[0][i], d = fabs((double)value(a, 1, i) - want);

		most = fmax(most, fabs(want));
		far = worse(far, d);
	}
	worst = worse(worst, far / most);
	same = same && !memcmp(a->p[1], a->p[2], bytes(a, 1));
	for (int b = 0; b < 3; b++)
		untouched = untouched && *canary(a, b) == CANARY;
}

static void drop_arrays(void)
{
	for (int i = 0; i < n_kept; i++) {
		differ(&kept[i]);
		for (int b = 0; b < 3; b++)
			battery.free(kept[i].p[b]);
	}
	n_kept = 0;
}

/* EACH(b): the three runs; K is the table, X the context */
#define K	(b ? battery.table : plain)
#define X	(b == 2 ? battery.many : b ? battery.one : slow)
#define EACH(b) for (int b = (spread(), 0); b < 3; K->sync(X, NULL), b++)

/* Gradients of parameters are to be put there, if the table can: plain adds them to zeros. */
static void fresh(int b, struct array *g, struct array *g2)
{
	if (battery.table->adds && b)
		battery.table->adds(X, false);
	if (battery.table->adds && !b) {
		memset(g->p[0], 0, bytes(g, 0));
		if (g2)
			memset(g2->p[0], 0, bytes(g2, 0));
	}
}

static void add_again(int b)
{
	if (battery.table->adds && b)
		battery.table->adds(X, true);
}

static void case_gemm(int big)
{
	bool ta = pick(0, 1), tb = pick(0, 1);
	int m = pick(1, big ? 150 : 20), n = pick(1, big ? 150 : 20), k = pick(1, big ? 900 : 9);
	int lda = (ta ? m : k) + pick(0, 3), ldb = (tb ? k : n) + pick(0, 3), ldc = n + pick(0, 3);
	float beta = (float[]){ 0, 1, 0.5f }[pick(0, 2)];
	struct array *a = array((size_t)(ta ? k : m) * (size_t)lda);
	struct array *b2 = array((size_t)(tb ? n : k) * (size_t)ldb);
	struct array *c = array((size_t)m * (size_t)ldc);

	EACH(b)
	K->gemm(X, ta, tb, m, n, k, a->p[b], lda, b2->p[b], ldb, beta, c->p[b], ldc);
}

static void case_dense(int big)
{
	int n = pick(1, big ? 70 : 9), c = pick(1, big ? 400 : 20), k = pick(1, big ? 130 : 40);
	enum pl_act act = (enum pl_act)pick(0, PL_ACT_COUNT_ - 1);
	bool bias = pick(0, 3), inner = pick(0, 3), keep = act == PL_ACT_GELU || pick(0, 1);
	size_t nk = (size_t)(n * k);
	struct array *x = stored((size_t)(n * c)), *w = array((size_t)(k * c)),
		     *bi = array((size_t)k);
	struct array *pre = stored(nk), *y = stored(nk), *dy = stored(nk), *out = stored(nk);
	struct array *dx = stored((size_t)(n * c)), *dw = array((size_t)(k * c)),
		     *db = array((size_t)k), *from = stored((size_t)(n * c));
	bool put = pick(0, 1), gelu = pick(0, 1); /* x counts as made by one, whatever it is */

	for (int i = 0; i < k * c; i++) /* as in a network: what tanh cuts off would hide errors */
		w->p[0][i] /= sqrtf((float)c);
	for (int i = 0; i < n * c; i++) /* slopes up to 1: they make no difference greater */
		from->p[0][i] = fminf(from->p[0][i], 0.5f);
	EACH(b)
	{
		K->dense(X, n, c, k, x->p[b], w->p[b], bias ? bi->p[b] : NULL, act,
			 keep ? pre->p[b] : NULL, y->p[b]);
		K->sync(X, NULL);
		memcpy(out->p[b], y->p[b], bytes(y, b));
	}
	/* the way back starts from one and the same forward pass: a relu may sit on its kink */
	share(y, 1);
	EACH(b)
	{
		if (put)
			fresh(b, dw, bias ? db : NULL);
		K->dense_back(X, n, c, k, x->p[b], w->p[b], act, pre->p[b], y->p[b], dy->p[b],
			      gelu ? from->p[b] : NULL, inner ? dx->p[b] : NULL, dw->p[b],
			      bias ? db->p[b] : NULL);
		add_again(b);
	}
}

static void case_act(int big)
{
	enum pl_act act = (enum pl_act)pick(0, PL_ACT_COUNT_ - 1);
	size_t n = (size_t)pick(1, big ? 40000 : 70);
	struct array *x = stored(n), *y = stored(n), *dy = stored(n);

	for (size_t i = 0; i < n; i++)
		x->p[0][i] *= i % 3 ? 4 : 0.01f;
	EACH(b)
	{
		K->act(X, act, n, x->p[b], y->p[b]);
		K->act_back(X, act, n, x->p[b], y->p[b], dy->p[b], dy->p[b]);
	}
}

static void case_conv(int big)
{
	struct pl_conv d = { .n = pick(1, big ? 11 : 3),
			     .c = pick(1, 5),
			     .k = pick(1, big ? 40 : 9),
			     .r = pick(1, 5),
			     .s = pick(1, 5),
			     .stride = pick(1, 3) };
	enum pl_act act = (enum pl_act[]){ PL_ACT_NONE, PL_ACT_RELU, PL_ACT_TANH }[pick(0, 2)];
	bool bias = pick(0, 3), inner = pick(0, 3);
	struct array *x, *w, *bi, *y, *dy, *dx, *dw, *db;
	size_t in, out;

	d.pad = pick(0, 3);
	d.h = pick(d.r, d.r + (big ? 24 : 6));
	d.w = pick(d.s, d.s + (big ? 36 : 6));
	d.p = (d.h + 2 * d.pad - d.r) / d.stride + 1;
	d.q = (d.w + 2 * d.pad - d.s) / d.stride + 1;
	in = (size_t)(d.n * d.c * d.h * d.w);
	out = (size_t)(d.n * d.k * d.p * d.q);
	x = stored(in), w = array((size_t)(d.k * d.c * d.r * d.s)), bi = array((size_t)d.k);
	y = stored(out), dy = stored(out), dx = stored(in), dw = array(w->n),
	db = array((size_t)d.k);
	EACH(b)
	{
		float *work = battery.alloc((K->conv_work(X, &d) + 1) * sizeof(float));

		K->conv(X, &d, x->p[b], w->p[b], bias ? bi->p[b] : NULL, act, y->p[b], work);
		K->sync(X, NULL);
		battery.free(work);
	}
	share(y, 0); /* see case_dense() */
	EACH(b)
	{
		size_t need = K->conv_work(X, &d);
		float *work = battery.alloc((need + 1) * sizeof(float));

		work[need] = CANARY;
		K->conv_back(X, &d, x->p[b], w->p[b], act, y->p[b], dy->p[b],
			     inner ? dx->p[b] : NULL, dw->p[b], bias ? db->p[b] : NULL, work);
		K->sync(X, NULL);
		untouched = untouched && work[need] == CANARY;
		battery.free(work);
	}
}

/* The forward pass alone: case_conv() overwrites what it gave. */
static void case_conv_forward(int big)
{
	struct pl_conv d = { .n = pick(1, 3),
			     .c = pick(1, big ? 20 : 3),
			     .k = pick(1, 20),
			     .r = pick(1, 5),
			     .s = pick(1, 5),
			     .stride = pick(1, 2),
			     .pad = pick(0, 2) };
	struct array *x, *w, *bi, *y;

	d.h = pick(d.r, d.r + 20);
	d.w = pick(d.s, d.s + 36);
	d.p = (d.h + 2 * d.pad - d.r) / d.stride + 1;
	d.q = (d.w + 2 * d.pad - d.s) / d.stride + 1;
	x = stored((size_t)(d.n * d.c * d.h * d.w)), w = array((size_t)(d.k * d.c * d.r * d.s));
	bi = array((size_t)d.k), y = stored((size_t)(d.n * d.k * d.p * d.q));
	EACH(b)
	{
		float *work = battery.alloc((K->conv_work(X, &d) + 1) * sizeof(float));

		K->conv(X, &d, x->p[b], w->p[b], bi->p[b], PL_ACT_GELU, y->p[b], work);
		K->sync(X, NULL);
		battery.free(work);
	}
}

static void case_pool(int big)
{
	struct pl_pool2d d = { .n = pick(1, 3),
			       .c = pick(1, big ? 20 : 3),
			       .r = pick(1, 4),
			       .stride = pick(1, 3),
			       .max = pick(0, 1) };
	struct array *x, *y, *at, *dy, *dx;
	size_t out;

	d.pad = pick(0, d.r / 2);
	d.h = pick(d.r, d.r + 20);
	d.w = pick(d.r, d.r + 40);
	if (big && d.max && pick(0, 1)) { /* too large for the room of a thread */
		d.h = d.w = 230;
		d.n = 1;
	}
	d.p = (d.h + 2 * d.pad - d.r) / d.stride + 1;
	d.q = (d.w + 2 * d.pad - d.r) / d.stride + 1;
	out = (size_t)(d.n * d.c * d.p * d.q);
	x = stored((size_t)(d.n * d.c * d.h * d.w)), dx = stored(x->n);
	y = stored(out), at = array(out), dy = stored(out);
	for (size_t i = 0; i < x->n; i += 3) /* equals */
		x->p[0][i] = 0.5f;
	EACH(b)
	{
		int32_t *where = (int32_t *)(void *)at->p[b];

		K->pool(X, &d, x->p[b], y->p[b], where);
		K->pool_back(X, &d, where, dy->p[b], dx->p[b]);
		K->sync(X, NULL);
		for (size_t i = 0; d.max && i < out; i++)
			at->p[b][i] = (float)where[i];
	}
}

/* Of two or three numbers little is left when they are normalised: they are not compared. */
static void case_batchnorm(int big)
{
	int n = pick(1, 9), c = pick(1, 9), s = pick(n > 3 ? 1 : 4, big ? 900 : 40);
	bool eval = !pick(0, 2), keep = eval || pick(0, 1);
	size_t all = (size_t)(n * c * s), ch = (size_t)c;
	struct array *x = stored(all), *g = array(ch), *be = array(ch), *run = array(2 * ch);
	struct array *save = array_of(4 * ch, 2 * ch), *y = stored(all), *dy = stored(all),
		     *dx = stored(all);
	struct array *dg = array(ch), *db = array(ch);

	for (int i = 0; i < c; i++)
		run->p[0][c + i] = 1 + fabsf(run->p[0][c + i]);
	EACH(b)
	{
		K->batchnorm(X, n, c, s, x->p[b], g->p[b], be->p[b], 1e-3f, 0.1f, eval,
			     keep ? run->p[b] : NULL, save->p[b], y->p[b]);
		/* The second half is each backend's own. Without it all take the rounded moments,
		 * from which alone the plain one goes back. */
		memset(save->p[b] + 2 * ch, 0, 2 * ch * sizeof(float));
		K->batchnorm_back(X, n, c, s, x->p[b], g->p[b], save->p[b], dy->p[b], dx->p[b],
				  dg->p[b], db->p[b]);
	}
}

static void case_layernorm(int big)
{
	int n = pick(1, big ? 200 : 5), c = pick(4, big ? 900 : 70);
	size_t all = (size_t)(n * c), ch = (size_t)c;
	struct array *x = stored(all), *g = array(ch), *be = array(ch),
		     *save = array(2 * (size_t)n);
	struct array *y = stored(all), *dy = stored(all), *dx = stored(all), *dg = array(ch);
	struct array *db = array(ch);
	bool put = pick(0, 1);

	EACH(b)
	{
		if (put)
			fresh(b, dg, db);
		K->layernorm(X, n, c, x->p[b], g->p[b], be->p[b], 1e-3f, save->p[b], y->p[b]);
		K->layernorm_back(X, n, c, x->p[b], g->p[b], save->p[b], dy->p[b], dx->p[b],
				  dg->p[b], db->p[b]);
		add_again(b);
	}
}

static void case_embed(int big)
{
	int t = pick(1, 30), n = t * pick(1, 4), c = pick(1, big ? 200 : 40), rows = pick(1, 20);
	bool position = pick(0, 1);
	struct array *table = array((size_t)(rows * c)), *pos = array((size_t)(t * c));
	struct array *y = stored((size_t)(n * c)), *dy = stored(y->n);
	struct array *dtable = array(table->n), *dpos = array(pos->n);
	int32_t *id = battery.alloc((size_t)n * sizeof(*id));

	for (int i = 0; i < n; i++)
		id[i] = pick(0, rows - 1);
	EACH(b)
	{
		K->embed(X, n, c, id, table->p[b], position ? pos->p[b] : NULL, t, y->p[b]);
		K->embed_back(X, n, c, id, t, dy->p[b], dtable->p[b], position ? dpos->p[b] : NULL);
	}
	battery.free(id);
}

static void case_attn(int big)
{
	struct pl_attn d = { .b = pick(1, 2), .t = pick(1, big ? 330 : 70), .heads = pick(1, 3) };
	struct array *qkv, *y, *save, *dy, *dqkv;
	size_t rows = (size_t)(d.b * d.t);

	d.c = d.heads * pick(1, big ? 40 : 20);
	qkv = stored(rows * 3 * (size_t)d.c), y = stored(rows * (size_t)d.c);
	save = array(plain->attn_save(NULL, &d)), dy = stored(y->n), dqkv = stored(qkv->n);
	EACH(b)
	{
		if (K->attn_save(X, &d) != save->n)
			worst = 1;
		K->attn(X, &d, qkv->p[b], y->p[b], save->p[b]);
		K->attn_back(X, &d, qkv->p[b], y->p[b], save->p[b], dy->p[b], dqkv->p[b]);
	}
}

static void case_elements(int big)
{
	size_t n = (size_t)pick(1, big ? 60000 : 100);
	uint64_t key = pl_rng_next(&seed);
	double limit = pick(0, 1) ? 0.5 : 1e6;
	float p = (float[]){ 0, 0.1f, 0.5f, 1 - 1e-3f }[pick(0, 3)];
	struct array *x = stored(n), *z = stored(n), *y = stored(n), *dropped = stored(n);
	struct array *sum = array(1), *clipped = array(n), *scaled = array(n);

	EACH(b)
	{
		K->add(X, n, x->p[b], z->p[b], y->p[b]);
		K->scale(X, n, 0.3f, scaled->p[b]);
		K->vary(X, &(struct pl_vary){ .key = key });
		K->dropout(X, n, p, 3, x->p[b], dropped->p[b]);
		sum->p[b][0] = (float)K->sum_squares(X, n, scaled->p[b]);
		K->clip(X, n, limit, clipped->p[b]);
	}
}

static void case_losses(int big)
{
	int n = pick(1, big ? 300 : 9), c = pick(2, big ? 300 : 40), what = pick(0, 2);
	size_t all;
	struct array *x, *target, *dx, *loss = array(2);
	struct pl_loss_sum *sum = battery.alloc(sizeof(*sum));
	int32_t *y;
	bool want = pick(0, 3), in_place = pick(0, 1);

	if (big && pick(0, 2) == 0) { /* more classes than go at once, as in GPT-2 */
		what = 0;
		n = pick(1, 3);
		c = (int)PL_BLOCK + pick(1, 1200);
	}
	all = (size_t)n * (size_t)c;
	x = stored(all);
	target = array(all);
	dx = stored(all);
	y = battery.alloc((size_t)n * sizeof(*y));

	for (int i = 0; i < n; i++)
		y[i] = pick(0, c - 1);
	EACH(b)
	{
		float *to = !want ? NULL : in_place ? x->p[b] : dx->p[b];

		*sum = (struct pl_loss_sum){ (double)NAN, -1 };
		if (what == 0)
			K->softmax_xent(X, n, c, x->p[b], y, 0.7f, to, sum);
		else if (what == 1)
			K->squared(X, n, c, x->p[b], target->p[b], 0.7f, to, sum);
		else
			K->hinge(X, n, c, x->p[b], y, 0.7f, to, sum);
		K->sync(X, NULL);
		loss->p[b][0] = (float)sum->loss;
		loss->p[b][1] = (float)sum->hits;
	}
	battery.free(sum);
	battery.free(y);
}

static void case_optimisers(int big)
{
	size_t n = (size_t)pick(1, big ? 60000 : 100), first = pl_min_size(n, (size_t)pick(0, 13)),
	       cut[600];
	size_t step = big ? 16 * (size_t)pick(1, 9) : (size_t)pick(1, 9);
	struct pl_decay decay = { 0.1f, pick(0, 3) ? cut : NULL, (uint32_t)pick(0, 600) };
	struct array *g = array(n), *m = array(n), *v = array(n), *w = array(n), *u = array(n);
	struct array *w2 = array(n);
	float momentum = (float[]){ 0, 0.9f }[pick(0, 1)];
	bool nesterov = pick(0, 1), decoupled = pick(0, 1);
	int t = pick(1, 5);

	for (size_t i = 0; i < n; i++)
		v->p[0][i] = fabsf(v->p[0][i]);
	for (size_t i = 0; i < PL_LEN(cut); i++) /* some behind the end */
		cut[i] = (i + 1) * step;
	EACH(b)
	{
		K->vary(X, &(struct pl_vary){ .lr = 0.1f });
		K->sgd(X, first, n - first, momentum, &decay, nesterov, g->p[b],
		       momentum > 0 ? u->p[b] : NULL, w->p[b]);
		K->vary(X, &(struct pl_vary){ .lr = 0.01f, .t = t });
		K->adam(X, first, n - first, 0.9f, 0.99f, 1e-5f, &decay, decoupled, g->p[b],
			m->p[b], v->p[b], w2->p[b]);
	}
}

/* half: bound with operands in bfloat16; 0: no product. store: bound with activations in it. */
static const struct {
	const char *name;
	void (*run)(int big);
	double half, store;
} cases[] = {
	{ "gemm", case_gemm, TOLERANCE, TOLERANCE },
	{ "dense", case_dense, 0x1p-8, 0x1p-6 }, /* weights are rounded, too */
	{ "act", case_act, 0, 0x1p-7 },
	{ "conv", case_conv, 0x1p-8, 0x1p-7 },
	{ "pool", case_pool, 0, 0x1p-8 },
	{ "conv forward", case_conv_forward, TOLERANCE, 0x1p-7 },
	{ "embed", case_embed, 0, 0x1p-8 },
	{ "batchnorm", case_batchnorm, 0, 0x1p-7 },
	{ "attn", case_attn, 0x1p-6, 0x1p-6 }, /* probabilities are rounded up to a factor */
	{ "layernorm", case_layernorm, 0, 0x1p-7 },
	{ "losses", case_losses, 0, 0x1p-8 },
	{ "elements", case_elements, 0, 0x1p-8 },
	{ "optimisers", case_optimisers, 0, TOLERANCE },
};

static void run_case(size_t i, const char *name, enum pl_precision p, int rounds, double limit)
{
	const char *half = p == PL_BF16 ? " in bfloat16" : "";

	worst = 0;
	same = untouched = true;
	plain->precision(slow, p);
	battery.table->precision(battery.one, p);
	battery.table->precision(battery.many, p);
	for (int r = 0; r < rounds; r++) {
		cases[i].run(r % 4 == 3);
		drop_arrays();
	}
	ok(worst <= limit, "%s, %s%s: within %.0e of plain", name, cases[i].name, half, limit);
	if (!(worst <= limit))
		printf("# differs by %.3g\n", worst);
	ok(same, "%s, %s%s: %s", name, cases[i].name, half, battery.again);
	ok(untouched, "%s, %s%s: writes nothing else", name, cases[i].name, half);
}

/* Of the table that is set; `name` stands in the reports. Cases whose name is in `without` are left
 * out ("gemm, dense"; NULL: none). */
static void run_battery(const char *name, const char *without)
{
	for (size_t i = 0; i < PL_LEN(cases); i++) {
		if (without && strstr(without, cases[i].name))
			continue;
		run_case(i, name, PL_FP32, battery.rounds,
			 battery.half ? cases[i].store : TOLERANCE);
		if (cases[i].half > 0 && !battery.half)
			run_case(i, name, PL_BF16, battery.half_rounds, cases[i].half);
	}
}

#endif
