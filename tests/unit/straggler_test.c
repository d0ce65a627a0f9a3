/*
 * Stragglers of a job small enough to be worked out by hand.
 *
 * Rank 5 (stage 0) computes forward, sends to rank 7 (stage 1), and goes backward beside the
 *forward of rank 7; both meet in an all-reduce; rank 7 then collects its garbage. Times of both
 *steps:
 *
 *	           f5   send  recv  f7   b5   ar5  ar7  gc     end
 *	step A    100    10    10  200  300    20   24    0     434 = 100 + 10 + 300 + 24
 *	step B    140    10    30  160  100    40   40   40     410 = 140 + 30 + 160 + 40 + 40
 *	typical   150    10    20  150  200    32   32   20     412 = 150 + 10 + 200 + 32 + 20
 *
 * runner: threads
 */
#include <math.h>
#include <stdlib.h>

#include "sim/straggler.h"
#include "tap.h"

enum { N_NODES = 17, N_RES = 2 };

struct line { /* of a node: at most two predecessors, by number */
	uint8_t type, role, kind, flags;
	pl_id res;
	const char *name;
	int src[2];
	uint8_t etype;
	pl_ns dur[2];
};

#define ENTRY(r)                                                                                   \
	{                                                                                          \
		PL_N_ENTRY, PL_RO_NONE, 0, 0, r, "entry", { -1, -1 }, 0,                           \
		{                                                                                  \
			0, 0                                                                       \
		}                                                                                  \
	}
#define MEET(n, a, b)                                                                              \
	{                                                                                          \
		PL_N_RENDEZVOUS, PL_RO_NONE, PL_K_COLLECTIVE, PL_NF_IN_STEP, PL_NONE, n, { a, b }, \
			PL_E_COMM,                                                                 \
		{                                                                                  \
			0, 0                                                                       \
		}                                                                                  \
	}
#define OP(ro, k, r, n, a, b, e, x, y)                                                             \
	{                                                                                          \
		PL_N_OP, ro, k, PL_NF_IN_STEP, r, n, { a, b }, e,                                  \
		{                                                                                  \
			x, y                                                                       \
		}                                                                                  \
	}

/* clang-format off */
static const struct line lines[N_NODES] = {
	/*  0 */ ENTRY(0),
	/*  1 */ ENTRY(1),
	/*  2 */ { PL_N_RENDEZVOUS, PL_RO_MARK, PL_K_STEP, PL_NF_STEP_BEGIN, PL_NONE, "begin", { 0, 1 }, PL_E_SEQ, { 0, 0 } },
	/*  3 */ OP(PL_RO_COMPUTE, PL_K_KERNEL, 0, "forward-compute", 2, -1, PL_E_SEQ, 100, 140),
	/*  4 */ OP(PL_RO_ARRIVE, PL_K_SEND, 0, "forward-send", 3, -1, PL_E_WAIT, 0, 0),
	/*  5 */ OP(PL_RO_ARRIVE, PL_K_RECV, 1, "forward-recv", 2, -1, PL_E_SEQ, 0, 0),
	/*  6 */ MEET("forward-send", 4, 5),
	/*  7 */ OP(PL_RO_TRANSFER, PL_K_SEND, 0, "forward-send", 4, 6, PL_E_COMM, 10, 10),
	/*  8 */ OP(PL_RO_TRANSFER, PL_K_RECV, 1, "forward-recv", 5, 6, PL_E_COMM, 10, 30),
	/*  9 */ OP(PL_RO_COMPUTE, PL_K_KERNEL, 1, "forward-compute", 8, -1, PL_E_WAIT, 200, 160),
	/* 10 */ OP(PL_RO_COMPUTE, PL_K_KERNEL, 0, "backward-compute", 7, -1, PL_E_LAUNCH, 300, 100),
	/* 11 */ OP(PL_RO_ARRIVE, PL_K_COLLECTIVE, 0, "all-reduce", 10, -1, PL_E_SEQ, 0, 0),
	/* 12 */ OP(PL_RO_ARRIVE, PL_K_COLLECTIVE, 1, "all-reduce", 9, -1, PL_E_SEQ, 0, 0),
	/* 13 */ MEET("all-reduce", 11, 12),
	/* 14 */ OP(PL_RO_TRANSFER, PL_K_COLLECTIVE, 0, "all-reduce", 11, 13, PL_E_COMM, 20, 40),
	/* 15 */ OP(PL_RO_TRANSFER, PL_K_COLLECTIVE, 1, "all-reduce", 12, 13, PL_E_COMM, 24, 40),
	/* 16 */ OP(PL_RO_HOST, PL_K_HOST_OP, 1, "gc", 15, -1, PL_E_SEQ, 0, 40),
};
/* clang-format on */

static int make_shape(struct pl_graph *g, struct pl_shape *s, const struct line *line, uint32_t n,
		      struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&s->type, n, 1, err));
	PL_TRY(pl_alloc(&s->role, n, 1, err));
	PL_TRY(pl_alloc(&s->kind, n, 1, err));
	PL_TRY(pl_alloc(&s->flags, n, 1, err));
	PL_TRY(pl_alloc(&s->res, n, sizeof(*s->res), err));
	PL_TRY(pl_alloc(&s->name, n, sizeof(*s->name), err));
	PL_TRY(pl_alloc(&s->group, n, sizeof(*s->group), err));
	PL_TRY(pl_alloc(&s->off, n + 1, sizeof(*s->off), err));
	PL_TRY(pl_alloc(&s->src, 2 * n, sizeof(*s->src), err));
	PL_TRY(pl_alloc(&s->etype, 2 * n, 1, err));
	s->n_nodes = n;
	for (uint32_t i = 0; i < n; i++) {
		const struct line *l = &line[i];

		s->n_entries += l->type == PL_N_ENTRY;
		s->type[i] = l->type;
		s->role[i] = l->role;
		s->kind[i] = l->kind;
		s->flags[i] = l->flags;
		s->res[i] = l->res;
		s->group[i] = PL_NONE;
		PL_TRY(pl_intern_add(&g->str, l->name, strlen(l->name), &s->name[i], err));
		for (int k = 0; k < 2 && l->src[k] >= 0; k++) {
			s->src[s->n_edges] = (uint32_t)l->src[k];
			s->etype[s->n_edges++] = l->etype;
		}
		s->off[i + 1] = s->n_edges;
	}
out:
	return rc;
}

/* Recorded 1000 ns after the last predecessor: launch delays, of which nothing may be left. */
static int make_step(struct pl_graph *g, int k, pl_ns *now, struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[0];
	struct pl_gstep *st = &g->step[k];
	pl_ns last = *now;
	int rc;

	*st = (struct pl_gstep){ .number = 10 + k };
	PL_TRY(pl_alloc(&st->start, N_NODES, sizeof(pl_ns), err));
	PL_TRY(pl_alloc(&st->dur, N_NODES, sizeof(pl_ns), err));
	for (uint32_t i = 0; i < N_NODES; i++) {
		pl_ns t = *now;

		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			t = pl_max_i64(t, st->start[s->src[e]] + st->dur[s->src[e]]);
		st->start[i] = i < N_RES || s->type[i] == PL_N_RENDEZVOUS ? t : t + 1000;
		st->dur[i] = lines[i].dur[k];
		last = pl_max_i64(last, st->start[i] + st->dur[i]);
	}
	*now = last;
out:
	return rc;
}

/* Two ranks of a stream each. */
static int make_ranks(struct pl_graph *g, struct pl_err *err)
{
	int rc;

	pl_graph_init(g);
	PL_TRY(pl_alloc(&g->res, N_RES, sizeof(*g->res), err));
	g->n_res = g->cap_res = N_RES;
	PL_TRY(pl_alloc(&g->rank, N_RES, sizeof(*g->rank), err));
	g->n_ranks = N_RES;
	for (int i = 0; i < N_RES; i++) {
		g->rank[i] = 5 + 2 * i;
		g->res[i] = (struct pl_resource){ .track_type = PL_T_STREAM,
						  .rank = 5 + 2 * i,
						  .capacity = 1,
						  .host = PL_NONE,
						  .coord = { 0, i, -1, -1 },
						  .launch_ns = 300,
						  .dispatch_ns = 70 };
	}
	PL_TRY(pl_intern_add(&g->str, "stream", 6, &g->res[0].name, err));
	g->res[1].name = g->res[0].name;
out:
	return rc < 0 ? rc : 0;
}

static int make_job(struct pl_graph *g, struct pl_err *err)
{
	pl_ns now = 0;
	int rc;

	PL_TRY(make_ranks(g, err));
	PL_TRY(pl_alloc(&g->shape, 1, sizeof(*g->shape), err));
	g->n_shapes = g->cap_shapes = 1;
	PL_TRY(make_shape(g, &g->shape[0], lines, N_NODES, err));
	PL_TRY(pl_alloc(&g->step, 2, sizeof(*g->step), err));
	g->n_steps = g->cap_steps = 2;
	for (int k = 0; k < 2; k++)
		PL_TRY(make_step(g, k, &now, err));
out:
	return rc;
}

/* Are these the rows, in this order? */
static void is_list(const struct pl_slow_list *l, size_t n, const struct pl_slow *want,
		    const char *what)
{
	bool same = l->n == n;

	for (size_t i = 0; same && i < n; i++)
		same = !strcmp(l->v[i].key, want[i].key) &&
		       fabs(l->v[i].slowdown - want[i].slowdown) < 1e-12;
	if (!ok(same, "%s", what))
		for (size_t i = 0; i < l->n; i++)
			printf("# %s %.17g\n", l->v[i].key, l->v[i].slowdown);
}

static void by_hand(const struct pl_graph *g, struct pl_pool *pool, const char *how)
{
	static const struct pl_slow type[] = { { "backward-compute", 442.0 / 412 },
					       { "all-reduce", 1 },
					       { "forward-pp-comm", 1 },
					       { "gc", 1 },
					       { "forward-compute", 387.0 / 412 } };
	static const struct pl_slow stage[] = { { "1", 416.0 / 412 }, { "0", 1 } };
	static const struct pl_slow dp[] = { { "0", 422.0 / 412 } };
	static const struct pl_slow rank[] = { { "7", 416.0 / 412 }, { "5", 1 } };
	struct pl_stragglers x;
	struct pl_err err = { 0 };

	if (!ok(pl_sim_stragglers_find(g, pool, &x, &err) == 0, "%s: found", how))
		printf("# %s\n", err.msg);
	ok(x.actual_ns == 422 && x.ideal_ns == 412, "%s: steps without delays", how);
	ok(fabs(x.slowdown - 422.0 / 412) < 1e-12, "%s: the slowdown", how);
	is_list(&x.by[PL_SLOW_TYPE], PL_LEN(type), type, "... by type; equal ones by name");
	is_list(&x.by[PL_SLOW_STAGE], PL_LEN(stage), stage, "... by stage");
	is_list(&x.by[PL_SLOW_DP], PL_LEN(dp), dp, "... by data-parallel rank: all there is");
	is_list(&x.by[PL_SLOW_RANK], PL_LEN(rank), rank, "... by rank");
	pl_sim_stragglers_fini(&x);
}

static const char *first_type(const struct pl_graph *g, struct pl_stragglers *x)
{
	struct pl_err err = { 0 };

	return pl_sim_stragglers_find(g, NULL, x, &err) == 0 && x->by[PL_SLOW_TYPE].n
		       ? x->by[PL_SLOW_TYPE].v[0].key
		       : "";
}

static void rename_backward(struct pl_graph *g, const char *name)
{
	struct pl_err err = { 0 };

	ok(pl_intern_add(&g->str, name, strlen(name), &g->shape[0].name[10], &err) == 0,
	   "a kernel %s", name);
}

/* Variations: they change the job. */
static void variations(struct pl_graph *g)
{
	struct pl_stragglers x;
	struct pl_err err = { 0 };

	rename_backward(g, "void (anonymous namespace)::walk<float, 4>(int, (lambda)#1)");
	is_str(first_type(g, &x), "(anonymous namespace)::walk", "... a type without arguments");
	pl_sim_stragglers_fini(&x);
	rename_backward(g, "<unnamed>");
	is_str(first_type(g, &x), "<unnamed>", "... a type");
	pl_sim_stragglers_fini(&x);

	g->shape[0].flags[15] |= PL_NF_MISSING;
	ok(pl_sim_stragglers_find(g, NULL, &x, &err) == 0 && x.ideal_ns == 410,
	   "a transfer without its partners does not say what is typical");
	pl_sim_stragglers_fini(&x);
	g->shape[0].flags[14] |= PL_NF_MISSING;
	ok(pl_sim_stragglers_find(g, NULL, &x, &err) == 0 && x.ideal_ns == 412,
	   "... unless there is no other");
	pl_sim_stragglers_fini(&x);

	/* one class would have the median of 2, 2, 24 and 40: 13 */
	if (pl_alloc(&g->shape[0].bytes, N_NODES, sizeof(int64_t), &err) < 0)
		return;
	g->shape[0].bytes[15] = 1 << 20;
	g->step[0].dur[14] = g->step[1].dur[14] = 2;
	ok(pl_sim_stragglers_find(g, NULL, &x, &err) == 0 && x.ideal_ns == 412 &&
		   x.by[PL_SLOW_TYPE].n == 5,
	   "messages of another size have their own typical time, in the same type");
	pl_sim_stragglers_fini(&x);

	for (int i = 0; i < N_RES; i++)
		memset(g->res[i].coord, 0xff, sizeof(g->res[i].coord));
	ok(pl_sim_stragglers_find(g, NULL, &x, &err) == 0 && !x.by[PL_SLOW_STAGE].n &&
		   !x.by[PL_SLOW_DP].n && x.by[PL_SLOW_RANK].n == 2,
	   "without coordinates nothing is said of them");
	pl_sim_stragglers_fini(&x);

	for (int k = 0; k < 2; k++)
		memset(g->step[k].dur, 0, N_NODES * sizeof(pl_ns));
	ok(pl_sim_stragglers_find(g, NULL, &x, &err) == PL_EDATA && strstr(err.msg, "take no time"),
	   "steps that take no time are refused");
}

/* ---- a rank that was recorded later ---------------------------------------------------------- */

#define BEGIN(a)                                                                                   \
	{                                                                                          \
		PL_N_RENDEZVOUS, PL_RO_MARK, PL_K_STEP, PL_NF_STEP_BEGIN, PL_NONE, "begin",        \
			{ a, -1 }, PL_E_SEQ,                                                       \
		{                                                                                  \
			0, 0                                                                       \
		}                                                                                  \
	}
#define COMPUTE(r, a)                                                                              \
	OP(PL_RO_COMPUTE, PL_K_KERNEL, r, "forward-compute", a, -1, PL_E_SEQ, 100, 100)

/* Steps of 100 ns: rank 5 alone, then rank 7 begins too, then both go on. */
static int make_late(struct pl_graph *g, struct pl_err *err)
{
	static const struct line alone[] = { BEGIN(-1), COMPUTE(0, 0) };
	static const struct line joins[] = { ENTRY(0), BEGIN(0), COMPUTE(0, 1), BEGIN(-1),
					     COMPUTE(1, 3) };
	static const struct line both[] = { ENTRY(0), ENTRY(1),	     BEGIN(0),
					    BEGIN(1), COMPUTE(0, 2), COMPUTE(1, 3) };
	static const struct line *const step[] = { alone, joins, both };
	static const uint32_t n[] = { PL_LEN(alone), PL_LEN(joins), PL_LEN(both) };
	int rc;

	PL_TRY(make_ranks(g, err));
	PL_TRY(pl_alloc(&g->shape, 3, sizeof(*g->shape), err));
	PL_TRY(pl_alloc(&g->step, 3, sizeof(*g->step), err));
	g->n_shapes = g->cap_shapes = g->n_steps = g->cap_steps = 3;
	for (uint32_t k = 0; k < 3; k++) {
		g->step[k] = (struct pl_gstep){ .number = k, .shape = k };
		PL_TRY(make_shape(g, &g->shape[k], step[k], n[k], err));
		PL_TRY(pl_alloc(&g->step[k].start, n[k], sizeof(pl_ns), err));
		PL_TRY(pl_alloc(&g->step[k].dur, n[k], sizeof(pl_ns), err));
		for (uint32_t i = 0; i < n[k]; i++) {
			g->step[k].start[i] = 100 * k;
			g->step[k].dur[i] = step[k][i].dur[0];
		}
	}
out:
	return rc;
}

static void test_late(void)
{
	struct pl_stragglers x = { 0 };
	struct pl_err err = { 0 };
	struct pl_graph g;

	ok(make_late(&g, &err) == 0 && pl_sim_stragglers_find(&g, NULL, &x, &err) == 0,
	   "a rank that was recorded later (%s)", err.msg);
	ok(x.actual_ns == 100 && x.ideal_ns == 100,
	   "... makes the step in which it begins no longer: %g", x.actual_ns);
	pl_sim_stragglers_fini(&x);
	pl_graph_fini(&g);
}

int main(void)
{
	struct pl_graph g;
	struct pl_err err = { 0 };
	struct pl_pool *pool = pl_pool_new(4, &err);

	if (make_job(&g, &err) < 0 || !pool || !pl_graph_valid(&g, &err)) {
		ok(false, "%s", err.msg);
		return done_testing();
	}
	by_hand(&g, NULL, "one thread");
	by_hand(&g, pool, "four threads");
	variations(&g);
	test_late();
	pl_pool_free(pool);
	pl_graph_fini(&g);
	return done_testing();
}
