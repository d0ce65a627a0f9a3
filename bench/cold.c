/*
 * cold - how fast a process goes on after it waited: others push its data out of the cache that all
 * share.
 *
 * usage: cold MIB WAIT_MS...
 *
 * For each wait, a line "WAIT_MS SWEEP_MS": the median time of one read and write of MIB of memory,
 * of 31, each after a sleep of so long.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/core.h"

#define TURNS 31

static void wait_ms(double ms)
{
	struct timespec t = { (time_t)(ms / 1e3), 0 };

	t.tv_nsec = (long)((ms - (double)t.tv_sec * 1e3) * 1e6);
	if (ms > 0)
		nanosleep(&t, NULL);
}

int main(int argc, char **argv)
{
	size_t n = argc > 2 ? (size_t)(atof(argv[1]) * 1048576 / sizeof(float)) : 0;
	float *p = n ? malloc(n * sizeof(*p)) : NULL;
	double took[TURNS];

	if (!p) {
		fprintf(stderr, "usage: cold MIB WAIT_MS...\n");
		return 2;
	}
	memset(p, 0, n * sizeof(*p));
	for (int a = 2; a < argc; a++) {
		for (int i = 0; i < TURNS; i++) {
			pl_ns begin;

			wait_ms(atof(argv[a]));
			begin = pl_now_ns();
			for (size_t k = 0; k < n; k++)
				p[k] = p[k] * 0.5f + 1;
			took[i] = (double)(pl_now_ns() - begin) / 1e6;
		}
		qsort(took, TURNS, sizeof(*took), pl_compare_double);
		printf("%s %.3f\n", argv[a], took[TURNS / 2]);
	}
	n = p[n / 2] < 0; /* so that the sweeps are not left out */
	free(p);
	return (int)n;
}
