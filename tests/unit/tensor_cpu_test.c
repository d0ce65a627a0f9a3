/*
 * The fast backend against the plain one: each kernel, on each instruction set that this processor
 * has, on random shapes (ones, odd sizes, tails of vectors), with one thread and with three. Both
 * get the same numbers; results may differ by TOLERANCE of the greatest element. What three threads
 * compute is compared with what one computes bit by bit. Behind every array lies a canary. Products
 * once more with operands in bfloat16, where a number between may have been rounded the other way.
 *
 * runner: long
 */
#include <math.h>
#include <stdlib.h>

#include "tap.h"
#include "tensor/internal.h"

#define TOLERANCE   1e-5
#define CANARY	    12345.5f
#define ROUNDS	    40
#define HALF_ROUNDS 12
#define KEPT	    16

static const struct pl_backend *const plain = &pl_backend_plain, *const cpu = &pl_backend_cpu;
static void *slow, *one, *many; /* contexts: the plain one; a thread, and three */
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

/* Arrays of one case, three of each: for the plain backend, one thread, three threads. */
static struct array {
	float *p[3];
	size_t n;
} kept[KEPT];
static int n_kept;

static struct array *array(size_t n)
{
	struct array *a = &kept[n_kept++];

	a->n = n;
	for (int b = 0; b < 3; b++) {
		a->p[b] = pl_host_alloc(NULL, (n + 1) * sizeof(float));
		for (size_t i = 0; i < n; i++)
			a->p[b][i] = b ? a->p[0][i] : number();
		a->p[b][n] = CANARY;
	}
	return a;
}

static double worst;	     /* of this kernel: difference by greatest element */
static bool same, untouched; /* three threads as one; the canaries */

static void differ(const struct array *a)
{
	double most = 1e-3, far = 0;

	for (size_t i = 0; i < a->n; i++) {
		double d = fabs((double)a->p[1][i] - (double)a->p[0][i]);

		most = fmax(most, fabs((double)a->p[0][i]));
		far = worse(far, d);
	}
	worst = worse(worst, far / most);
	same = same && !memcmp(a->p[1], a->p[2], a->n * sizeof(float));
	for (int b = 0; b < 3; b++)
		untouched = untouched && a->p[b][a->n] == CANARY;
}

static void drop_arrays(void)
{
	for (int i = 0; i < n_kept; i++) {
		differ(&kept[i]);
		for (int b = 0; b < 3; b++)
			pl_host_free(NULL, kept[i].p[b]);
	}
	n_kept = 0;
}

/* EACH(b): the three runs; K is the table, X the context */
#define EACH(b) for (int b = 0; b < 3; b++)
#define K	(b ? cpu : plain)
#define X	(b == 2 ? many : b ? one : slow)

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
	struct array *x = array((size_t)(n * c)), *w = array((size_t)(k * c)),
		     *bi = array((size_t)k);
	struct array *pre = array(nk), *y = array(nk), *dy = array(nk), *out = array(nk);
	struct array *dx = array((size_t)(n * c)), *dw = array((size_t)(k * c)),
		     *db = array((size_t)k);

	EACH(b)
	{
		K->dense(X, n, c, k, x->p[b], w->p[b], bias ? bi->p[b] : NULL, act,
			 keep ? pre->p[b] : NULL, y->p[b]);
		memcpy(out->p[b], y->p[b], nk * sizeof(float));
	}
	/* the way back starts from one and the same forward pass: a relu may sit on its kink */
	EACH(b)
	{
		memcpy(y->p[b], y->p[1], nk * sizeof(float));
		K->dense_back(X, n, c, k, x->p[b], w->p[b], act, pre->p[b], y->p[b], dy->p[b],
			      inner ? dx->p[b] : NULL, dw->p[b], bias ? db->p[b] : NULL);
	}
}

static void case_act(int big)
{
	enum pl_act act = (enum pl_act)pick(0, PL_ACT_COUNT_ - 1);
	size_t n = (size_t)pick(1, big ? 40000 : 70);
	struct array *x = array(n), *y = array(n), *dy = array(n);

	EACH(b)
	{
		for (size_t i = 0; i < n; i++)
			x->p[b][i] *= i % 3 ? 4 : 0.01f;
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
	x = array(in), w = array((size_t)(d.k * d.c * d.r * d.s)), bi = array((size_t)d.k);
	y = array(out), dy = array(out), dx = array(in), dw = array(w->n), db = array((size_t)d.k);
	EACH(b)
	{
		size_t need = K->conv_work(X, &d);
		float *work = pl_host_alloc(NULL, (need + 1) * sizeof(float));

		work[need] = CANARY;
		K->conv(X, &d, x->p[b], w->p[b], bias ? bi->p[b] : NULL, act, y->p[b], work);
		memcpy(y->p[b], y->p[0], out * sizeof(float)); /* see case_dense() */
		K->conv_back(X, &d, x->p[b], w->p[b], act, y->p[b], dy->p[b],
			     inner ? dx->p[b] : NULL, dw->p[b], bias ? db->p[b] : NULL, work);
		untouched = untouched && work[need] == CANARY;
		pl_host_free(NULL, work);
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
	x = array((size_t)(d.n * d.c * d.h * d.w)), w = array((size_t)(d.k * d.c * d.r * d.s));
	bi = array((size_t)d.k), y = array((size_t)(d.n * d.k * d.p * d.q));
	EACH(b)
	{
		float *work = pl_host_alloc(NULL, (K->conv_work(X, &d) + 1) * sizeof(float));

		K->conv(X, &d, x->p[b], w->p[b], bi->p[b], PL_ACT_GELU, y->p[b], work);
		pl_host_free(NULL, work);
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
	x = array((size_t)(d.n * d.c * d.h * d.w)), dx = array(x->n);
	y = array(out), at = array(out), dy = array(out);
	EACH(b)
	{
		int32_t *where = (int32_t *)(void *)at->p[b];

		for (size_t i = 0; i < x->n; i += 3) /* equals */
			x->p[b][i] = 0.5f;
		K->pool(X, &d, x->p[b], y->p[b], where);
		K->pool_back(X, &d, where, dy->p[b], dx->p[b]);
		for (size_t i = 0; d.max && i < out; i++)
			at->p[b][i] = (float)where[i];
	}
}

static void case_batchnorm(int big)
{
	int n = pick(1, 9), c = pick(1, 9), s = pick(n > 1 ? 1 : 2, big ? 900 : 40);
	bool eval = !pick(0, 2), keep = eval || pick(0, 1);
	size_t all = (size_t)(n * c * s), ch = (size_t)c;
	struct array *x = array(all), *g = array(ch), *be = array(ch), *run = array(2 * ch);
	struct array *save = array(2 * ch), *y = array(all), *dy = array(all), *dx = array(all);
	struct array *dg = array(ch), *db = array(ch);

	EACH(b)
	{
		for (int i = 0; i < c; i++)
			run->p[b][c + i] = 1 + fabsf(run->p[b][c + i]);
		K->batchnorm(X, n, c, s, x->p[b], g->p[b], be->p[b], 1e-3f, 0.1f, eval,
			     keep ? run->p[b] : NULL, save->p[b], y->p[b]);
		K->batchnorm_back(X, n, c, s, x->p[b], g->p[b], save->p[b], dy->p[b], dx->p[b],
				  dg->p[b], db->p[b]);
	}
}

static void case_layernorm(int big)
{
	int n = pick(1, big ? 200 : 5), c = pick(2, big ? 900 : 70);
	size_t all = (size_t)(n * c), ch = (size_t)c;
	struct array *x = array(all), *g = array(ch), *be = array(ch), *save = array(2 * (size_t)n);
	struct array *y = array(all), *dy = array(all), *dx = array(all), *dg = array(ch);
	struct array *db = array(ch);

	EACH(b)
	{
		K->layernorm(X, n, c, x->p[b], g->p[b], be->p[b], 1e-3f, save->p[b], y->p[b]);
		K->layernorm_back(X, n, c, x->p[b], g->p[b], save->p[b], dy->p[b], dx->p[b],
				  dg->p[b], db->p[b]);
	}
}

static void case_embed(int big)
{
	int t = pick(1, 30), n = t * pick(1, 4), c = pick(1, big ? 200 : 40), rows = pick(1, 20);
	bool position = pick(0, 1);
	struct array *table = array((size_t)(rows * c)), *pos = array((size_t)(t * c));
	struct array *y = array((size_t)(n * c)), *dy = array(y->n);
	struct array *dtable = array(table->n), *dpos = array(pos->n);
	int32_t *id = malloc((size_t)n * sizeof(*id));

	for (int i = 0; i < n; i++)
		id[i] = pick(0, rows - 1);
	EACH(b)
	{
		K->embed(X, n, c, id, table->p[b], position ? pos->p[b] : NULL, t, y->p[b]);
		K->embed_back(X, n, c, id, t, dy->p[b], dtable->p[b], position ? dpos->p[b] : NULL);
	}
	free(id);
}

static void case_attn(int big)
{
	struct pl_attn d = { .b = pick(1, 2), .t = pick(1, big ? 330 : 70), .heads = pick(1, 3) };
	struct array *qkv, *y, *save, *dy, *dqkv;
	size_t rows = (size_t)(d.b * d.t);

	d.c = d.heads * pick(1, big ? 40 : 20);
	qkv = array(rows * 3 * (size_t)d.c), y = array(rows * (size_t)d.c);
	save = array(plain->attn_save(NULL, &d)), dy = array(y->n), dqkv = array(qkv->n);
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
	struct array *x = array(n), *z = array(n), *y = array(n), *dropped = array(n),
		     *sum = array(1), *clipped = array(n);

	EACH(b)
	{
		K->add(X, n, x->p[b], z->p[b], y->p[b]);
		K->scale(X, n, 0.3f, z->p[b]);
		K->vary(X, &(struct pl_vary){ .key = key });
		K->dropout(X, n, p, 3, x->p[b], dropped->p[b]);
		sum->p[b][0] = (float)K->sum_squares(X, n, x->p[b]);
		K->clip(X, n, limit, clipped->p[b]);
	}
}

static void case_losses(int big)
{
	int n = pick(1, big ? 300 : 9), c = pick(2, big ? 300 : 40), what = pick(0, 2);
	size_t all;
	struct array *x, *target, *dx, *loss = array(2);
	int32_t *y;
	bool want = pick(0, 3), in_place = pick(0, 1);

	if (big && pick(0, 2) == 0) { /* more classes than go at once, as in GPT-2 */
		n = pick(1, 3);
		c = (int)PL_BLOCK + pick(1, 1200);
	}
	all = (size_t)n * (size_t)c;
	x = array(all);
	target = array(all);
	dx = array(all);
	y = malloc((size_t)n * sizeof(*y));

	for (int i = 0; i < n; i++)
		y[i] = pick(0, c - 1);
	EACH(b)
	{
		struct pl_loss_sum sum = { NAN, -1 };
		float *to = !want ? NULL : in_place ? x->p[b] : dx->p[b];

		if (what == 0)
			K->softmax_xent(X, n, c, x->p[b], y, 0.7f, to, &sum);
		else if (what == 1)
			K->squared(X, n, c, x->p[b], target->p[b], 0.7f, to, &sum);
		else
			K->hinge(X, n, c, x->p[b], y, 0.7f, to, &sum);
		loss->p[b][0] = (float)sum.loss;
		loss->p[b][1] = (float)sum.hits;
	}
	free(y);
}

static void case_optimisers(int big)
{
	size_t n = (size_t)pick(1, big ? 60000 : 100);
	struct array *g = array(n), *m = array(n), *v = array(n), *w = array(n), *u = array(n);
	struct array *w2 = array(n);
	float momentum = (float[]){ 0, 0.9f }[pick(0, 1)];
	bool nesterov = pick(0, 1), decoupled = pick(0, 1);
	int t = pick(1, 5);

	EACH(b)
	{
		for (size_t i = 0; i < n; i++)
			v->p[b][i] = fabsf(v->p[b][i]);
		K->vary(X, &(struct pl_vary){ .lr = 0.1f });
		K->sgd(X, n, momentum, 0.01f, nesterov, g->p[b], momentum > 0 ? u->p[b] : NULL,
		       w->p[b]);
		K->vary(X, &(struct pl_vary){ .lr = 0.01f, .t = t });
		K->adam(X, n, 0.9f, 0.99f, 1e-5f, 0.1f, decoupled, g->p[b], m->p[b], v->p[b],
			w2->p[b]);
	}
}

static const struct {
	const char *name;
	void (*run)(int big);
	double half; /* bound in bfloat16; 0: no product */
} cases[] = {
	{ "gemm", case_gemm, TOLERANCE },
	{ "dense", case_dense, 0x1p-8 },
	{ "act", case_act, 0 },
	{ "conv", case_conv, 0x1p-8 },
	{ "pool", case_pool, 0 },
	{ "conv forward", case_conv_forward, TOLERANCE },
	{ "embed", case_embed, 0 },
	{ "batchnorm", case_batchnorm, 0 },
	{ "attn", case_attn, 0x1p-6 }, /* probabilities are rounded up to a factor */
	{ "layernorm", case_layernorm, 0 },
	{ "losses", case_losses, 0 },
	{ "elements", case_elements, 0 },
	{ "optimisers", case_optimisers, 0 },
};

static void run_case(size_t i, const char *name, enum pl_precision p, int rounds, double limit)
{
	const char *half = p == PL_BF16 ? " in bfloat16" : "";

	worst = 0;
	same = untouched = true;
	plain->precision(slow, p);
	cpu->precision(one, p);
	cpu->precision(many, p);
	for (int r = 0; r < rounds; r++) {
		cases[i].run(r % 4 == 3);
		drop_arrays();
	}
	ok(worst <= limit, "%s, %s%s: within %.0e of plain", name, cases[i].name, half, limit);
	if (!(worst <= limit))
		printf("# differs by %.3g\n", worst);
	ok(same, "%s, %s%s: three threads as one", name, cases[i].name, half);
	ok(untouched, "%s, %s%s: writes nothing else", name, cases[i].name, half);
}

static void run_cases(const char *name)
{
	for (size_t i = 0; i < PL_LEN(cases); i++) {
		run_case(i, name, PL_FP32, ROUNDS, TOLERANCE);
		if (cases[i].half > 0)
			run_case(i, name, PL_BF16, HALF_ROUNDS, cases[i].half);
	}
}

/* Bits before and after rounding, by the definition of bfloat16 (IEEE 754's rules at 8 bits). */
static void rounded(const struct pl_kernels *k)
{
	static const struct {
		uint32_t x, y;
	} want[] = {
		{ 0x3f800000, 0x3f800000 }, { 0x3f807fff, 0x3f800000 }, /* below a tie */
		{ 0x3f808000, 0x3f800000 }, { 0x3f818000, 0x3f820000 }, /* ties, to even */
		{ 0x3f808001, 0x3f810000 }, { 0xbf808001, 0xbf810000 },
		{ 0x3fffffff, 0x40000000 }, /* to the next power of two */
		{ 0x00000000, 0x00000000 }, { 0x80000000, 0x80000000 },
		{ 0x00018000, 0x00020000 }, { 0x00007fff, 0x00000000 }, /* subnormal */
		{ 0x7f7f7fff, 0x7f7f0000 }, { 0x7f7fffff, 0x7f800000 }, /* the greatest; beyond */
		{ 0x7f800000, 0x7f800000 }, { 0xff800000, 0xff800000 },
		{ 0x7f800001, 0x7fc00000 }, { 0x7fffffff, 0x7fff0000 }, /* no number stays none */
	};
	float x[PL_LEN(want)], y[PL_LEN(want) + 1];
	bool right = true;

	for (size_t i = 0; i < PL_LEN(want); i++)
		memcpy(&x[i], &want[i].x, sizeof(*x));
	y[PL_LEN(want)] = CANARY;
	k->round(PL_LEN(want), x, y);
	for (size_t i = 0; i < PL_LEN(want); i++)
		right = right && !memcmp(&y[i], &want[i].y, sizeof(*y));
	ok(right && y[PL_LEN(want)] == CANARY, "%s: numbers are rounded to bfloat16", k->name);
}

/* A product in bfloat16 is off by no more than the rounding of its operands: each by 2^-8 of
 * itself, so a product by 2^-7 + 2^-16; and small whole numbers are exact. */
static void half_bound(const char *name)
{
	enum { M = 33, N = 47, L = 301 };
	static float a[M * L], b[L * N], c[M * N];
	double worst_share = 0;
	bool exact = true;

	for (int whole = 0; whole < 2; whole++) {
		for (int i = 0; i < M * L; i++)
			a[i] = whole ? (float)pick(-200, 200) : number();
		for (int i = 0; i < L * N; i++)
			b[i] = whole ? (float)pick(-200, 200) : number();
		cpu->precision(one, PL_BF16);
		cpu->gemm(one, false, false, M, N, L, a, L, b, N, 0, c, N);
		for (int i = 0; i < M * N; i++) {
			double sum = 0, size = 0;

			for (int l = 0; l < L; l++) {
				double v = (double)a[i / N * L + l] * (double)b[l * N + i % N];

				sum += v;
				size += fabs(v);
			}
			if (whole)
				exact = exact && (double)c[i] == sum;
			else
				worst_share = fmax(worst_share, fabs((double)c[i] - sum) / size);
		}
	}
	ok(worst_share > 1e-5 && worst_share <= 0x1p-7 + 0x1p-16 + 1e-6,
	   "%s: a product in bfloat16 is off by what rounding explains (%.2g)", name, worst_share);
	ok(exact, "%s: whole numbers up to 256 are multiplied as they are", name);
}

/* Functions of one number, near 0 and far out, against the C library: relative errors. */
static void functions(const struct pl_kernels *k)
{
	static const enum pl_act acts[] = { PL_ACT_TANH, PL_ACT_SIGMOID, PL_ACT_GELU };
	enum { N = 4001 };
	static float x[N], y[N], want[N];
	double far = 0;

	for (int i = 0; i < N; i++)
		x[i] = (float)(i - N / 2) / (N / 2) * (i % 2 ? 9 : 0.5f) + 1e-9f;
	for (size_t a = 0; a < PL_LEN(acts); a++) {
		double from = acts[a] == PL_ACT_GELU ? -4 : -80; /* below, gelu is a difference */

		k->act(acts[a], N, x, y);
		plain->act(NULL, acts[a], N, x, want);
		for (int i = 0; i < N; i++)
			if ((double)x[i] > from)
				far = worse(far, fabs((double)y[i] / (double)want[i] - 1));
	}
	ok(far < 2e-6, "%s: tanh, sigmoid and gelu to 2e-6 of their value", k->name);
	if (!(far < 2e-6))
		printf("# %.3g\n", far);
	far = 0;
	for (int i = 0; i < N; i++)
		x[i] = (float)(i - N + 1) / N * 86;
	k->exp_sum(N, 1, 0, x, y);
	for (int i = 0; i < N; i++)
		far = worse(far, fabs((double)y[i] / exp((double)x[i]) - 1));
	ok(far < 5e-7, "%s: exp to 5e-7 of its value", k->name);
	x[0] = -1000;
	x[1] = NAN;
	k->exp_sum(2, 1, 0, x, y);
	ok(y[0] == 0 && isnan(y[1]), "%s: exp of little is 0, of no number none", k->name);
	x[0] = NAN;
	for (int a = 0; a < PL_ACT_COUNT_; a++) {
		k->act((enum pl_act)a, 1, x, y);
		ok(isnan(y[0]), "%s: activation %d lets no number through as none", k->name, a);
	}
}

static void dropped_share(void)
{
	enum { N = 100000 };
	float *x = pl_host_alloc(NULL, N * sizeof(*x)), *y = pl_host_alloc(NULL, N * sizeof(*y));
	float *z = pl_host_alloc(NULL, N * sizeof(*z));
	int zeros = 0, both = 0;

	for (int i = 0; i < N; i++)
		x[i] = 1;
	plain->dropout(NULL, N, 0.25f, 1, x, y);
	plain->dropout(NULL, N, 0.25f, 2, x, z);
	for (int i = 0; i < N; i++) {
		zeros += y[i] == 0;
		both += y[i] == 0 && z[i] == 0;
	}
	/* 5 standard deviations */
	ok(abs(zeros - N / 4) < 700, "dropout drops its share");
	ok(abs(both - N / 16) < 400, "masks of neighbouring keys have nothing in common");
	pl_host_free(NULL, x);
	pl_host_free(NULL, y);
	pl_host_free(NULL, z);
}

static bool open_both(const struct pl_kernels *k, bool blas)
{
	struct pl_err err = { 0 };

	seed = 20;
	return ok(!plain->open(&(struct pl_backend_opts){ 0 }, &slow, &err) &&
			  !pl_cpu_open(k, blas, 1, &one, &err) &&
			  !pl_cpu_open(k, blas, 3, &many, &err),
		  "%s: opened", k->name);
}

static void close_both(void)
{
	cpu->close(one);
	cpu->close(many);
	plain->close(slow);
	slow = one = many = NULL;
}

int main(void)
{
	const struct pl_kernels *k;

	for (int i = 0; (k = pl_kernels_pick(i)); i++) {
		if (open_both(k, false))
			run_cases(k->name);
		half_bound(k->name);
		rounded(k);
		functions(k);
		close_both();
	}
	if (open_both(&pl_kernels_portable, true) && ((struct pl_cpu *)one)->blas)
		run_cases("OpenBLAS");
	else
		skip("OpenBLAS", "built without, or not installed");
	close_both();
	dropped_share();
	return done_testing();
}
