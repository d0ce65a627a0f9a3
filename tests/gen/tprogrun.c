/*
 * tprogrun - carries tensor programs out and compares them with compiled ones.
 *
 * usage: tprogrun FILE LIBRARY [SEED...]
 *
 * FILE holds tensor programs, LIBRARY what was compiled of their sources: functions p0, p1 ... as
 * "predict -O c" and "predict -O cuda" write them. One that has a function seed(), such as an
 * emulated device, is given each SEED in turn. Prints a line a program with the greatest
 * difference, and ends with status 1 if one is above a ten-thousandth of the greatest number.
 */
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "tprog/tprog.h"

#define NEAR 1e-4

typedef int function(float *const *buffer, void *stream);
typedef void seed_function(unsigned long seed);

struct run {
	float **made, **want; /* [n]: parameters */
	size_t n;
	uint64_t state;
};

static float **new_buffers(const struct pl_tprog *p, size_t n)
{
	float **v = calloc(n + 1, sizeof(*v));

	for (size_t i = 0, k = 0; v && i < p->n_buffers; i++)
		if (p->buffer[i].node == PL_NONE)
			v[k++] = aligned_alloc(64, ((size_t)p->buffer[i].n * 4 + 63) / 64 * 64);
	return v;
}

static void free_buffers(float **v, size_t n)
{
	for (size_t i = 0; v && i < n; i++)
		free(v[i]);
	free(v);
}

/* The greatest difference of the parameters by the greatest number of them. */
static double difference(const struct pl_tprog *p, const struct run *r)
{
	double most = 1e-30, worst = 0;

	for (size_t i = 0, k = 0; i < p->n_buffers; i++) {
		if (p->buffer[i].node != PL_NONE)
			continue;
		for (int64_t e = 0; e < p->buffer[i].n; e++) {
			double d = fabs((double)r->made[k][e] - (double)r->want[k][e]);

			worst = d != d || d > worst ? d : worst;
			most = fmax(most, fabs((double)r->want[k][e]));
			if (worst != worst)
				return INFINITY;
		}
		k++;
	}
	return worst / most;
}

static void fill(const struct pl_tprog *p, struct run *r)
{
	for (size_t i = 0, k = 0; i < p->n_buffers; i++) {
		if (p->buffer[i].node != PL_NONE)
			continue;
		for (int64_t e = 0; e < p->buffer[i].n; e++)
			r->made[k][e] = r->want[k][e] =
				(float)((double)(pl_rng_next(&r->state) >> 11) * 0x1p-52 - 1);
		k++;
	}
}

static double run(const struct pl_tprog *p, function *f, uint64_t state, struct pl_err *err)
{
	struct run r = { .state = state };
	double d = INFINITY;

	for (size_t i = 0; i < p->n_buffers; i++)
		r.n += p->buffer[i].node == PL_NONE;
	r.made = new_buffers(p, r.n);
	r.want = new_buffers(p, r.n);
	if (r.made && r.want) {
		fill(p, &r);
		if (pl_tprog_run(p, r.want, err) == 0 && f(r.made, NULL) != -1)
			d = difference(p, &r);
	}
	free_buffers(r.made, r.n);
	free_buffers(r.want, r.n);
	return d;
}

int main(int argc, char **argv)
{
	struct pl_err err = { 0 };
	struct pl_in *in = argc > 2 ? pl_in_open_any(argv[1], &err) : NULL;
	void *library = argc > 2 ? dlopen(argv[2], RTLD_NOW) : NULL, *symbol;
	struct pl_tprog_reader *r = NULL;
	seed_function *seed = NULL;
	bool good = true;
	int more;

	if (!in || !library || pl_tprog_reader_new(in, &r, &err) < 0) {
		fprintf(stderr, "tprogrun: %s\n", err.code ? err.msg : "FILE LIBRARY [SEED...]");
		return 2;
	}
	symbol = dlsym(library, "seed");
	memcpy(&seed, &symbol, sizeof(seed));
	for (int i = 0;; i++) {
		struct pl_tprog p = { .name = NULL };
		function *f = NULL;
		char name[32];
		double worst = 0;

		more = pl_tprog_next(r, &p, &err);
		if (more <= 0)
			break;
		snprintf(name, sizeof(name), "p%d", i);
		symbol = dlsym(library, name);
		memcpy(&f, &symbol, sizeof(f));
		for (int k = 3; f && k < (argc > 3 ? argc : 4); k++) {
			if (seed && k < argc)
				seed(strtoul(argv[k], NULL, 10));
			worst = fmax(worst, run(&p, f, (uint64_t)(i * 16 + k), &err));
		}
		printf("%s %s %g\n", name, p.name, f ? worst : INFINITY);
		good &= f && worst <= NEAR && !err.code;
		pl_tprog_fini(&p);
	}
	if (err.code)
		fprintf(stderr, "tprogrun: %s\n", err.msg);
	pl_tprog_reader_free(r);
	pl_in_close(in);
	return good && more == 0 ? 0 : 1;
}
