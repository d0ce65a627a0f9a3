/*
 * editspeed - what a change of buckets costs, evaluated incrementally and by full passes
 *
 * usage: editspeed GRAPH N
 *
 * On the whole graph, with no ranks left out: N random moves of the boundary between two buckets,
 * from buckets of equal size. Prints one line "NODES INCREMENTAL FULL REPLAY SETTLED EQUAL": nodes
 * of the graph; ns of one move carried out, settled and undone; ns of the same with a full pass
 * over the edit instead; ns in which the simulator prepares and replays the changed graph (its
 * making not counted); nodes that a move evaluates; 1 if all steps were equal by all three, to the
 * nanosecond. Medians.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "derive/describe.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"

struct bench {
	struct pl_graph g;
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_cost cost;
	struct pl_rewriter *r;
	uint32_t n, *set_of, *moved, n_sets;
	uint64_t rng;
	bool equal;
};

static int64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int open_bench(struct bench *b, const char *path, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	if (!in)
		return err->code;
	PL_TRY(pl_derive_read(in, NULL, &b->g, err));
	PL_TRY(pl_cost_fit(&b->g, NULL, &b->cost, err));
	b->s = pl_sim_new(&b->g, err);
	rc = b->s ? pl_sim_edit(b->s, 0, b->g.n_steps, &b->e, err) : err->code;
	if (rc < 0)
		goto out;
	b->r = pl_rewrite_new(&b->e, &b->cost, err);
	if (!b->r)
		return err->code;
	pl_rewrite_tensors(b->r, &b->n);
	PL_TRY(pl_alloc(&b->set_of, b->n, sizeof(*b->set_of), err));
	PL_TRY(pl_alloc(&b->moved, b->n, sizeof(*b->moved), err));
	b->n_sets = b->n / 8;
	for (uint32_t t = 0; t < b->n; t++)
		b->set_of[t] = (uint32_t)((uint64_t)t * b->n_sets / b->n);
	PL_TRY(pl_rewrite_bucketing(
		b->r, &(struct pl_bucketing){ .n_sets = b->n_sets, .set_of = b->set_of }, err));
	rc = pl_edit_settle(&b->e, err);
out:
	pl_in_close(in);
	return rc;
}

/* The last tensor of some bucket to the next one. */
static void choose(struct bench *b)
{
	uint32_t set = (uint32_t)(pl_rng_next(&b->rng) % (b->n_sets - 1));

	for (uint32_t t = 0; t < b->n; t++)
		b->moved[t] = b->set_of[t] +
			      (b->set_of[t] == set && (t + 1 == b->n || b->set_of[t + 1] != set));
}

static int move(struct bench *b, bool full, int64_t *ns, double *mean, struct pl_err *err)
{
	int64_t begin = now();
	size_t mark = pl_rewrite_mark(b->r);
	int rc = pl_rewrite_bucketing(
		b->r, &(struct pl_bucketing){ .n_sets = b->n_sets, .set_of = b->moved }, err);

	if (rc == 0)
		rc = full ? pl_edit_settle_full(&b->e, err) : pl_edit_settle(&b->e, err);
	*mean = pl_edit_mean_step(&b->e);
	pl_rewrite_undo(b->r, mark);
	*ns = now() - begin;
	return rc;
}

/* By the simulator, which knows nothing of edits. */
static int replay(struct bench *b, int64_t *ns, double *mean, struct pl_err *err)
{
	size_t mark = pl_rewrite_mark(b->r);
	struct pl_sim *s;
	struct pl_graph g;
	int64_t begin;
	int rc = pl_rewrite_bucketing(
		b->r, &(struct pl_bucketing){ .n_sets = b->n_sets, .set_of = b->moved }, err);

	if (rc < 0 || (rc = pl_edit_settle(&b->e, err)) < 0)
		return rc;
	if ((rc = pl_edit_graph(&b->e, &g, err)) < 0)
		return rc;
	pl_rewrite_undo(b->r, mark);
	begin = now();
	s = pl_sim_new(&g, err);
	rc = s ? pl_sim_mean(s, mean, err) : err->code;
	*ns = now() - begin;
	pl_sim_free(s);
	pl_graph_fini(&g);
	return rc;
}

int main(int argc, char **argv)
{
	struct bench b = { .rng = 1, .equal = true };
	struct pl_err err = { 0 };
	int64_t *t[3], n = argc == 3 ? atoll(argv[2]) : 0;
	uint64_t settled = 0;
	double mean, *step;

	pl_graph_init(&b.g);
	if (n < 1) {
		fprintf(stderr, "usage: editspeed GRAPH N\n");
		return 2;
	}
	for (int k = 0; k < 3; k++)
		if (pl_alloc(&t[k], (size_t)n, sizeof(**t), &err) < 0)
			return 5;
	if (pl_alloc(&step, (size_t)n, sizeof(*step), &err) < 0)
		return 5;
	if (open_bench(&b, argv[1], &err) < 0 || b.n_sets < 2) {
		fprintf(stderr, "editspeed: %s\n", err.code ? err.msg : "too few tensors");
		return 1;
	}
	settled = b.e.settled;
	/* the same moves three times over: each kind finds the caches as it left them */
	for (int k = 0; k < 3 && !err.code; k++) {
		b.rng = 1;
		for (int64_t i = 0; i < n && !err.code; i++) {
			choose(&b);
			if ((k < 2 ? move(&b, k, &t[k][i], &mean, &err)
				   : replay(&b, &t[k][i], &mean, &err)) < 0)
				break;
			b.equal &= !k || mean == step[i];
			step[i] = mean;
		}
		if (!k)
			settled = b.e.settled - settled;
	}
	if (err.code) {
		fprintf(stderr, "editspeed: %s\n", err.msg);
		return 1;
	}
	printf("%zu %lld %lld %lld %llu %d\n", b.e.n_nodes,
	       (long long)pl_median_i64(t[0], (size_t)n), (long long)pl_median_i64(t[1], (size_t)n),
	       (long long)pl_median_i64(t[2], (size_t)n),
	       (unsigned long long)(settled / (uint64_t)n), b.equal);
	return 0;
}
