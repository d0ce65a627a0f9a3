/*
 * Kernels for CUDA on the emulated device against the plain backend: random shapes, in two orders
 * of blocks and threads, whose results must be the same bit by bit.
 */
#include <initializer_list>
#include <math.h>
#include <stdlib.h>

#include "tap.h"
#include "tensor/cuda/device.cuh"

static uint64_t seed = 20;
static char scratch[64 << 20] __attribute__((aligned(256)));

static int pick(int lo, int hi)
{
	return lo + (int)(pl_rng_next(&seed) % (uint64_t)(hi - lo + 1));
}

struct numbers { /* the same for the plain backend, and for two runs on the device */
	float *p[3];
	size_t n;
};

static struct numbers array(size_t n)
{
	struct numbers a = { { NULL, NULL, NULL }, n };

	for (int b = 0; b < 3; b++) {
		a.p[b] = (float *)aligned_alloc(64, (n * sizeof(float) + 127) / 64 * 64);
		for (size_t i = 0; i < n; i++)
			a.p[b][i] = b ? a.p[0][i] : (float)pick(-1000, 1000) / 500;
	}
	return a;
}

static double worst;
static bool same;

static void compare(struct numbers *a)
{
	double most = 1e-3, far = 0;

	for (size_t i = 0; i < a->n; i++) {
		most = fmax(most, fabs((double)a->p[0][i]));
		far = worse(far, fabs((double)a->p[1][i] - (double)a->p[0][i]));
	}
	worst = worse(worst, far / most);
	same = same && !memcmp(a->p[1], a->p[2], a->n * sizeof(float));
	for (int b = 0; b < 3; b++)
		free(a->p[b]);
}

static void layernorm(int n, int c)
{
	size_t all = (size_t)n * (size_t)c, ch = (size_t)c;
	struct numbers x = array(all), g = array(ch), be = array(ch), save = array(2 * (size_t)n);
	struct numbers y = array(all), dy = array(all), dx = array(all), dg = array(ch);
	struct numbers db = array(ch);
	const struct pl_backend *p = &pl_backend_plain;
	struct plk k = { NULL, 4, false, PL_FP32, scratch, sizeof(scratch) };

	p->layernorm(NULL, n, c, x.p[0], g.p[0], be.p[0], 1e-3f, save.p[0], y.p[0]);
	p->layernorm_back(NULL, n, c, x.p[0], g.p[0], save.p[0], dy.p[0], dx.p[0], dg.p[0],
			  db.p[0]);
	for (int b = 1; b < 3; b++) {
		emu_seed(pl_rng_next(&seed));
		memset(scratch, 0xff, plk_rows_scratch(&k, n, c));
		plk_layernorm(&k, n, c, x.p[b], g.p[b], be.p[b], 1e-3f, save.p[b], y.p[b]);
		plk_layernorm_back(&k, n, c, x.p[b], g.p[b], save.p[b], dy.p[b], dx.p[b], dg.p[b],
				   db.p[b]);
		plk_columns(&k, n, c, x.p[b], be.p[b]);
	}
	for (int i = 0; i < n; i++)
		for (int j = 0; j < c; j++)
			be.p[0][j] += x.p[0][i * c + j];
	for (struct numbers *a : { &x, &g, &be, &save, &y, &dy, &dx, &dg, &db })
		compare(a);
}

int main(void)
{
	worst = 0;
	same = true;
	for (int r = 0; r < 30; r++)
		layernorm(pick(1, r % 4 ? 9 : 100), pick(2, r % 4 ? 70 : 900) * (r % 2 ? 4 : 1));
	layernorm(3, 5000); /* rows that no team holds */
	layernorm(2, 20000);
	if (!ok(worst < 1e-5, "layernorm: as the plain backend"))
		printf("# differs by %.3g\n", worst);
	ok(same, "layernorm: the same in any order of blocks and threads");
	return done_testing();
}
