/*
 * The fast backend: the battery of all backends on each instruction set that this processor has,
 * with one thread and with three; what it adds to it; and what dropout drops.
 *
 * runner: long, threads
 */
#include "tensor_battery.h"

static const struct pl_backend *const cpu = &pl_backend_cpu;
static void *one, *many; /* contexts: a thread, and three */

static void *host_alloc(size_t size)
{
	return pl_host_alloc(NULL, size);
}

static void host_free(void *p)
{
	pl_host_free(NULL, p);
}

static void run_cases(const char *name)
{
	battery.table = cpu;
	battery.one = one;
	battery.many = many;
	battery.again = "three threads as one";
	battery.rounds = 40;
	battery.half_rounds = 12;
	battery.alloc = host_alloc;
	battery.free = host_free;
	run_battery(name, NULL);
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
			  !pl_tensor_cpu_open(k, blas, 1, &one, &err) &&
			  !pl_tensor_cpu_open(k, blas, 3, &many, &err),
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

	for (int i = 0; (k = pl_tensor_kernels_pick(i)); i++) {
		if (open_both(k, false))
			run_cases(k->name);
		half_bound(k->name);
		rounded(k);
		functions(k);
		close_both();
	}
	if (open_both(&pl_tensor_kernels_portable, true) && ((struct pl_cpu *)one)->blas)
		run_cases("OpenBLAS");
	else
		skip("OpenBLAS", "built without, or not installed");
	close_both();
	dropped_share();
	return done_testing();
}
