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

#include "derive/describe.h"
#include "rewrite/rewrite.h"
#include "sim/events.h"
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

static int repeat(const struct pl_sim *s, const char *what, uint64_t ops, struct pl_err *err)
{
	double took[RUNS], mean;
	char text[64];

	for (int i = 0; i < RUNS; i++) {
		double t = now();
		int rc = pl_sim_mean(s, &mean, err);

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

/* ---- the event core -------------------------------------------------------------------------- */

struct contended {
	struct pl_sim_events_job job;
	uint32_t *use_off, *use, *priority, *parts;
	double *slow;
	struct pl_sim_events_resource *res;
	struct pl_sim_events_times t;
};

static void contended_fini(struct contended *x)
{
	pl_free(x->use_off);
	pl_free(x->use);
	pl_free(x->priority);
	pl_free(x->parts);
	pl_free(x->slow);
	pl_free(x->res);
	pl_free(x->t.start);
	pl_free(x->t.end);
	pl_free(x->t.piece);
}

/* Two resources a rank: what computes, and what transfers. */
static int contended_init(struct contended *x, const struct pl_graph *g, const struct pl_shape *sh,
			  const pl_ns *dur, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&x->use_off, sh->n_nodes + 1u, sizeof(*x->use_off), err));
	PL_TRY(pl_alloc(&x->use, sh->n_nodes, sizeof(*x->use), err));
	PL_TRY(pl_alloc(&x->priority, sh->n_nodes, sizeof(*x->priority), err));
	PL_TRY(pl_alloc(&x->parts, sh->n_nodes, sizeof(*x->parts), err));
	PL_TRY(pl_alloc(&x->slow, sh->n_nodes, sizeof(*x->slow), err));
	PL_TRY(pl_alloc(&x->res, 2 * (size_t)g->n_ranks, sizeof(*x->res), err));
	PL_TRY(pl_alloc(&x->t.start, sh->n_nodes, sizeof(pl_ns), err));
	PL_TRY(pl_alloc(&x->t.end, sh->n_nodes, sizeof(pl_ns), err));
	for (uint32_t r = 0; r < 2 * (uint32_t)g->n_ranks; r++)
		x->res[r] = (struct pl_sim_events_resource){ .domain = r / 2, .side = r % 2 };
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		bool moves = sh->role[i] == PL_RO_TRANSFER;
		uint32_t at = pl_graph_rank_index(g, pl_node_rank(g, sh, i));

		x->use_off[i + 1] = x->use_off[i];
		x->priority[i] = i * 2654435761u >> 30;
		x->parts[i] = moves ? 4 : 1;
		x->slow[i] = 1.2;
		if (sh->type[i] == PL_N_OP && at != PL_NONE &&
		    (moves || sh->role[i] == PL_RO_COMPUTE))
			x->use[x->use_off[i + 1]++] = 2 * at + moves;
	}
	x->job = (struct pl_sim_events_job){ .n = sh->n_nodes,
					     .off = sh->off,
					     .src = sh->src,
					     .etype = sh->etype,
					     .dur = dur,
					     .res = x->res,
					     .n_res = 2 * (uint32_t)g->n_ranks,
					     .use_off = x->use_off,
					     .use = x->use,
					     .priority = x->priority,
					     .parts = x->parts,
					     .slows = x->slow,
					     .slowed = x->slow };
	rc = 0;
out:
	return rc;
}

static int event_core(const struct pl_graph *g, struct pl_err *err)
{
	struct contended x = { .t = { .start = NULL } };
	struct pl_sim_events *ev = NULL;
	double took[RUNS];
	size_t k = 0;
	int rc;

	for (size_t i = 1; i < g->n_steps; i++)
		if (g->shape[g->step[i].shape].n_nodes > g->shape[g->step[k].shape].n_nodes)
			k = i;
	PL_TRY(contended_init(&x, g, &g->shape[g->step[k].shape], g->step[k].dur, err));
	ev = pl_sim_events_new(&x.job, err);
	if (!ev) {
		rc = err->code;
		goto out;
	}
	for (int i = 0; i < RUNS; i++) {
		double t = now();

		PL_TRY(pl_sim_events_run(ev, NULL, &x.t, err));
		took[i] = now() - t;
	}
	qsort(took, RUNS, sizeof(took[0]), pl_compare_double);
	line("event core, operations", took[RUNS / 2], x.job.n);
	printf("%-24s %9.3f s %9.2f M events/s\n", "event core, median", took[RUNS / 2],
	       (double)x.t.events / took[RUNS / 2] / 1e6);
out:
	pl_sim_events_free(ev);
	contended_fini(&x);
	return rc;
}

static int measure(const char *path, struct pl_graph *g, struct pl_sim **s, struct pl_run *r,
		   struct pl_err *err)
{
	struct pl_plan plan;
	uint64_t hits;
	struct pl_rewrite_basis basis;
	struct pl_path p = { 0 };
	struct pl_account a = { 0 };
	struct pl_in *in = pl_in_open(path, err);
	double t = now();
	uint64_t ops;
	int rc;

	pl_plan_init(&plan);
	if (!in)
		return err->code;
	rc = pl_derive_read(in, NULL, g, err);
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
	PL_TRY(pl_sim_run(*s, r, err));
	ops = r->ops;
	line("read", read, ops);
	line("prepare", prepare, ops);
	line("simulate, kept", now() - t, ops);
	PL_TRY(repeat(*s, "simulate", ops, err));
	t = now();
	PL_TRY(pl_sim_path_find(*s, r, &p, err));
	line("critical path", now() - t, ops);
	t = now();
	PL_TRY(pl_sim_account_make(*s, r, &a, err));
	line("account", now() - t, ops);
	PL_TRY(pl_rewrite_add_line(&plan, "scale kind=comm by 0.5", err));
	t = now();
	PL_TRY(pl_rewrite_durations(*s, g, &plan, NULL, &hits, &basis, err));
	line("what-if, durations", now() - t, ops);
	PL_TRY(repeat(*s, "what-if", ops, err));
	PL_TRY(event_core(g, err));
out:
	pl_plan_fini(&plan);
	pl_sim_path_fini(&p);
	pl_sim_account_fini(&a);
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
	pl_sim_run_fini(&r);
	pl_sim_free(s);
	pl_graph_fini(&g);
	if (rc < 0)
		fprintf(stderr, "simspeed: %s\n", err.msg);
	return rc < 0 ? pl_exit_status(rc) : 0;
}
