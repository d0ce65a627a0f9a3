/*
 * simspeed - how fast the parts of a replay are on one graph
 *
 * SYNOPSIS
 *	simspeed GRAPH
 *
 * DESCRIPTION
 *	Reads the graph, prepares, simulates (the best and the median of seven runs, kept and not
 *kept, and with a what-if), finds the critical path and accounts for the time, on one thread.
 *Prints a line for each with the seconds and the operations per second.
 */
#include <stdlib.h>
#include <time.h>

#include "sim/sim.h"

#define RUNS 7

static double now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static void line(const char *what, double seconds, uint64_t ops)
{
	printf("%-24s %9.3f s %9.2f M operations/s\n", what, seconds, (double)ops / seconds / 1e6);
}

static int repeat(const struct pl_sim *s, const struct pl_whatif *w, const char *what, uint64_t ops,
		  struct pl_err *err)
{
	double took[RUNS], mean;
	char text[64];

	for (int i = 0; i < RUNS; i++) {
		double t = now();
		int rc = pl_sim_mean(s, w, &mean, err);

		if (rc < 0)
			return rc;
		took[i] = now() - t;
	}
	qsort(took, RUNS, sizeof(took[0]), pl_compare_double);
	snprintf(text, sizeof(text), "%s, best", what);
	line(text, took[0], ops);
	snprintf(text, sizeof(text), "%s, median", what);
	line(text, took[RUNS / 2], ops);
	return 0;
}

static int measure(const char *path, struct pl_graph *g, struct pl_sim **s, struct pl_run *r,
		   struct pl_err *err)
{
	struct pl_whatif w = { 0 };
	struct pl_path p = { 0 };
	struct pl_account a = { 0 };
	struct pl_in *in = pl_in_open(path, err);
	double t = now();
	uint64_t ops;
	int rc;

	if (!in)
		return err->code;
	rc = pl_graph_read(in, NULL, g, err);
	pl_in_close(in);
	if (rc < 0)
		return rc;
	double read = now() - t;

	t = now();
	*s = pl_sim_new(g, err);
	if (!*s)
		return err->code;
	double prepare = now() - t;

	t = now();
	PL_TRY(pl_sim_run(*s, NULL, r, err));
	ops = r->ops;
	line("read", read, ops);
	line("prepare", prepare, ops);
	line("simulate, kept", now() - t, ops);
	PL_TRY(repeat(*s, NULL, "simulate", ops, err));
	PL_TRY(pl_whatif_add(&w, "scale kind=comm by 0.5", err));
	PL_TRY(repeat(*s, &w, "what-if", ops, err));
	t = now();
	PL_TRY(pl_path_find(*s, r, &p, err));
	line("critical path", now() - t, ops);
	t = now();
	PL_TRY(pl_account_make(*s, r, &a, err));
	line("account", now() - t, ops);
out:
	pl_whatif_fini(&w);
	pl_path_fini(&p);
	pl_account_fini(&a);
	return rc;
}

int main(int argc, char **argv)
{
	struct pl_err err = { 0 };
	struct pl_graph g;
	struct pl_sim *s = NULL;
	struct pl_run r = { 0 };
	int rc;

	if (argc != 2) {
		fprintf(stderr, "usage: simspeed GRAPH\n");
		return 2;
	}
	pl_graph_init(&g);
	rc = measure(argv[1], &g, &s, &r, &err);
	pl_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&g);
	if (rc < 0)
		fprintf(stderr, "simspeed: %s\n", err.msg);
	return rc < 0 ? pl_exit_status(rc) : 0;
}
