/*
 * queuegen - write the graph of ranks that share a resource, small enough to compute by hand
 *
 * SYNOPSIS
 *	queuegen PLACES COMPUTE:PUSH ... >FILE
 *
 * DESCRIPTION
 *	Rank R computes (COMPUTE us, on its thread), then pushes (PUSH us, on a server that serves
 *	PLACES ranks at a time, first come, first served), then updates (5 us, on its thread). The
 *	recorded times are those of this queue, so a replay has nothing to explain. Ranks that come
 *	at the same time are served in the order of their numbers.
 *
 * EXIT STATUS
 *	0 done, 2 usage, otherwise that of the library's error.
 */
#include <stdlib.h>
#include <string.h>

#include "core/cmd.h"
#include "graph/graph.h"

#define RANKS_MAX 32
#define PER_RANK  3 /* nodes: compute, push, update */
#define UPDATE_NS 5000

struct rank {
	pl_ns compute, push, served; /* served: begin of the push */
};

static struct pl_err err;

static void must(int rc)
{
	if (rc >= 0)
		return;
	fprintf(stderr, "queuegen: %s\n", err.msg);
	exit(pl_exit_status(rc));
}

static pl_id string(struct pl_graph *g, const char *s)
{
	pl_id id;

	must(pl_intern_add(&g->str, s, strlen(s), &id, &err));
	return id;
}

/* The first that came goes to the place that is free first. */
static void serve(struct rank *r, int n, int places)
{
	pl_ns free_at[RANKS_MAX] = { 0 };
	bool served[RANKS_MAX] = { false };

	for (int k = 0; k < n; k++) {
		int next = -1, place = 0;

		for (int i = 0; i < n; i++)
			if (!served[i] && (next < 0 || r[i].compute < r[next].compute))
				next = i;
		for (int p = 1; p < places; p++)
			if (free_at[p] < free_at[place])
				place = p;
		r[next].served = pl_max_i64(r[next].compute, free_at[place]);
		free_at[place] = r[next].served + r[next].push;
		served[next] = true;
	}
}

/* A thread for each rank, then the server. */
static void make_resources(struct pl_graph *g, int n, int places)
{
	must(pl_grow(&g->res, &g->cap_res, (size_t)n + 1, sizeof(*g->res), &err));
	must(pl_alloc(&g->rank, (size_t)n, sizeof(*g->rank), &err));
	g->n_ranks = n;
	g->n_res = (size_t)n + 1;
	for (int i = 0; i <= n; i++) {
		if (i < n)
			g->rank[i] = i;
		g->res[i] = (struct pl_resource){ .track_type = i < n ? PL_T_THREAD : PL_T_LINK,
						  .rank = i < n ? i : 0,
						  .device = -1,
						  .capacity = i < n ? 1 : (uint32_t)places,
						  .name = string(g, i < n ? "thread" : "server"),
						  .host = PL_NONE,
						  .coord = { -1, -1, -1, -1 } };
	}
}

static void make_shape(struct pl_graph *g, int n)
{
	struct pl_shape *s;
	size_t nodes = (size_t)n * PER_RANK;

	must(pl_alloc(&g->shape, 1, sizeof(*g->shape), &err));
	g->n_shapes = g->cap_shapes = 1;
	s = g->shape;
	must(pl_alloc(&s->type, nodes, 1, &err));
	must(pl_alloc(&s->role, nodes, 1, &err));
	must(pl_alloc(&s->kind, nodes, 1, &err));
	must(pl_alloc(&s->flags, nodes, 1, &err));
	must(pl_alloc(&s->res, nodes, sizeof(*s->res), &err));
	must(pl_alloc(&s->name, nodes, sizeof(*s->name), &err));
	must(pl_alloc(&s->group, nodes, sizeof(*s->group), &err));
	must(pl_alloc(&s->off, nodes + 1, sizeof(*s->off), &err));
	must(pl_alloc(&s->src, nodes, sizeof(*s->src), &err));
	must(pl_alloc(&s->etype, nodes, 1, &err));
	for (; s->n_nodes < nodes; s->n_nodes++) {
		static const char *const name[] = { "compute", "push", "update" };
		uint32_t i = s->n_nodes, rank = i / PER_RANK, part = i % PER_RANK;

		s->type[i] = part == 1 ? PL_N_RESOURCE : PL_N_OP;
		s->role[i] = part == 1 ? PL_RO_TRANSFER : PL_RO_COMPUTE;
		s->kind[i] = part == 1 ? PL_K_SEND : PL_K_HOST_OP;
		s->flags[i] = PL_NF_IN_STEP | (part ? 0 : PL_NF_STEP_BEGIN);
		s->res[i] = part == 1 ? (uint32_t)n : rank;
		s->name[i] = string(g, name[part]);
		s->group[i] = PL_NONE;
		if (part) {
			s->src[s->n_edges] = i - 1;
			s->etype[s->n_edges++] = PL_E_DATA;
		}
		s->off[i + 1] = s->n_edges;
	}
}

/* A gradient that is ready behind the update, so that the whole step is the pass that makes it. */
static void make_tensors(struct pl_graph *g, int n)
{
	must(pl_alloc(&g->tensor, (size_t)n, sizeof(*g->tensor), &err));
	g->n_tensors = g->cap_tensors = (size_t)n;
	for (int i = 0; i < n; i++)
		g->tensor[i] = (struct pl_tensor){ .role = PL_TR_GRAD,
						   .name = string(g, "grad w"),
						   .type = PL_NONE,
						   .bytes = 4,
						   .producer = (uint32_t)(i * PER_RANK + 2) };
}

static void make_step(struct pl_graph *g, const struct rank *r, int n)
{
	struct pl_gstep *t;

	must(pl_alloc(&g->step, 1, sizeof(*g->step), &err));
	g->n_steps = g->cap_steps = 1;
	t = g->step;
	must(pl_alloc(&t->start, (size_t)n * PER_RANK, sizeof(*t->start), &err));
	must(pl_alloc(&t->dur, (size_t)n * PER_RANK, sizeof(*t->dur), &err));
	for (int i = 0; i < n; i++) {
		pl_ns *start = t->start + i * PER_RANK, *dur = t->dur + i * PER_RANK;

		dur[0] = r[i].compute;
		start[1] = r[i].served;
		dur[1] = r[i].push;
		start[2] = r[i].served + r[i].push;
		dur[2] = UPDATE_NS;
	}
}

int main(int argc, char **argv)
{
	struct rank rank[RANKS_MAX];
	int n = argc - 2, places = argc > 2 ? atoi(argv[1]) : 0;
	struct pl_pool *pool;
	struct pl_graph g;
	struct pl_out *out;

	for (int i = 0; i < n && n <= RANKS_MAX; i++) {
		long long compute = 0, push = 0;

		if (sscanf(argv[i + 2], "%lld:%lld", &compute, &push) != 2)
			places = 0;
		rank[i] = (struct rank){ .compute = 1000 * compute, .push = 1000 * push };
	}
	if (places < 1 || places > RANKS_MAX || n > RANKS_MAX) {
		fprintf(stderr, "usage: queuegen PLACES COMPUTE:PUSH ... >FILE\n");
		return 2;
	}
	serve(rank, n, places);
	pl_graph_init(&g);
	make_resources(&g, n, places);
	make_shape(&g, n);
	make_tensors(&g, n);
	make_step(&g, rank, n);
	pool = pl_pool_new(1, &err);
	out = pl_out_open("-", true, &err);
	must(pool && out ? 0 : err.code);
	must(pl_out_finish(out, pl_graph_write(&g, out, 1, pool, NULL, &err), &err));
	pl_pool_free(pool);
	pl_graph_fini(&g);
	return 0;
}
