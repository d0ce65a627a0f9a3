/*
 * What a search finds on single steps, on few ranks, or with communication as a model has it,
 * against the whole: other steps, limits of memory, the bound, and the recorded communication.
 *
 * runner: threads
 */
#include "search/internal.h"
#include "search_fixture.h"

static const char *const backward[] = { "backward *" };

/* The graph changes: what the fixture made of it goes. */
static void close_edit(struct net *j)
{
	pl_rewrite_free(j->r);
	pl_edit_fini(&j->e);
	pl_sim_free(j->s);
	j->r = NULL;
	j->s = NULL;
}

static int copy_shape(const struct pl_shape *from, struct pl_shape *to, struct pl_err *err)
{
	uint32_t n = from->n_nodes;
	int rc;

	*to = (struct pl_shape){ .n_nodes = n, .n_entries = from->n_entries };
#define COPY(member, ...)                                                                          \
	if (from->member) {                                                                        \
		PL_TRY(pl_alloc(&to->member, n, sizeof(*to->member), err));                        \
		memcpy(to->member, from->member, n * sizeof(*to->member));                         \
	}
	PL_NODE_COLUMNS(COPY)
#undef COPY
	PL_TRY(pl_alloc(&to->off, n + (size_t)1, sizeof(*to->off), err));
	PL_TRY(pl_alloc(&to->src, from->n_edges, sizeof(*to->src), err));
	PL_TRY(pl_alloc(&to->etype, from->n_edges, 1, err));
	PL_TRY(pl_alloc(&to->comms, from->n_comms, sizeof(*to->comms), err));
	memcpy(to->off, from->off, (n + (size_t)1) * sizeof(*to->off));
	memcpy(to->src, from->src, from->n_edges * sizeof(*to->src));
	memcpy(to->etype, from->etype, from->n_edges);
	if (from->n_comms)
		memcpy(to->comms, from->comms, from->n_comms * sizeof(*to->comms));
	to->n_edges = from->n_edges;
	to->n_comms = from->n_comms;
out:
	return rc;
}

/* The recorded step n times over. The gradients are those of the last one only. */
static int repeat(struct pl_graph *g, size_t n, struct pl_err *err)
{
	struct pl_gstep first = g->step[0];
	uint32_t nodes = g->shape[0].n_nodes;
	pl_ns length = 0;
	int rc;

	for (uint32_t i = 0; i < nodes; i++)
		length = pl_max_i64(length, first.start[i] + first.dur[i]);
	PL_TRY(pl_grow(&g->shape, &g->cap_shapes, 2, sizeof(*g->shape), err));
	PL_TRY(copy_shape(&g->shape[0], &g->shape[1], err));
	g->n_shapes = 2;
	PL_TRY(pl_grow(&g->step, &g->cap_steps, n, sizeof(*g->step), err));
	for (size_t k = 1; k < n; k++) {
		struct pl_gstep *st = &g->step[k];

		*st = (struct pl_gstep){ .number = (int64_t)k, .shape = k + 1 < n };
		g->n_steps = k + 1;
		PL_TRY(pl_alloc(&st->start, nodes, sizeof(pl_ns), err));
		PL_TRY(pl_alloc(&st->dur, nodes, sizeof(pl_ns), err));
		for (uint32_t i = 0; i < nodes; i++) {
			st->start[i] = first.start[i] + (pl_ns)k * length;
			st->dur[i] = first.dur[i];
		}
	}
	g->step[0].number = 0;
	g->step[0].shape = 1;
out:
	return rc;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Where one step in 16 synchronises gradients, the plan is as good for it as one of it alone. */
static void test_steps(void)
{
	const struct pl_search_opts o = { .seed = 1, .algorithm = true, .any = true };
	int good = 0, gains = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(16); seed++) {
		struct pl_err err = { 0 };
		struct net one, many;
		double recorded, best, mine = INFINITY;
		struct pl_plan p;

		pl_plan_init(&p);
		if (net_init(&one, seed, 12, 20000, 400000, false, &err) == 0 &&
		    net_init(&many, seed, 12, 20000, 400000, false, &err) == 0) {
			close_edit(&many);
			recorded = planned(&one, &p, &err);
			best = searched(&one, &o, &err);
			if (repeat(&many.g, 16, &err) == 0 &&
			    pl_search(&many.g, &many.cost, &o, &p, &err) == 0)
				mine = planned(&one, &p, &err);
			good += mine <= 1.0001 * best;
			gains += best < 0.99 * recorded;
			net_fini(&many);
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		total++;
		pl_plan_fini(&p);
		net_fini(&one);
	}
	is_i64(good, total, "one step in 16 has gradients: its plan is that of the step alone");
	ok(gains > 0, "... which gains more than 1 %% in %d of them", gains);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Ranks whose work is alike are not one where that would make the step another: the predictions are
 * exact then. */
static void test_not_reduced(void)
{
	const struct pl_search_noise noise = { .work = 1, .step = 1e-12 };
	struct pl_err err = { 0 };
	struct pl_graph small;
	double tolerance = -1;
	bool reduced = true;
	struct net j;

	pl_graph_init(&small);
	if (!ok(net_init(&j, 5, 8, 200000, 200000, true, &err) == 0, "a job (%s)", err.msg))
		return;
	/* the first rank, whose mark is the first node, begins the step before the others */
	for (uint32_t i = 1; i < j.g.shape[0].n_nodes; i++)
		j.g.step[0].start[i] += 1000;
	ok(pl_search_reduce(&j.g, &noise, &small, &reduced, &tolerance, &err) == 0 && !reduced,
	   "ranks are alike, and their steps are not (%s)", err.msg);
	ok(tolerance == 0, "... so the step is exact, not %g ns off", tolerance);
	pl_graph_fini(&small);
	net_fini(&j);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The peak of the plan; -1: none fits. */
static int64_t peak_of(struct net *j, const struct pl_search_opts *o, struct pl_err *err)
{
	struct pl_plan p;
	int64_t peak;
	int rc;

	pl_plan_init(&p);
	rc = pl_search(&j->g, &j->cost, o, &p, err);
	peak = rc < 0 ? -1 : p.peak_bytes;
	if (rc == PL_ENO)
		*err = (struct pl_err){ 0 };
	pl_plan_fini(&p);
	return peak;
}

/* Annealing, which comes last, keeps to the limit that the first optimum fits. */
static void test_annealed(void)
{
	int larger = 0, within = 0;

	for (uint64_t seed = 26; seed <= 32; seed++) {
		struct pl_search_opts o = plain;
		struct pl_err err = { 0 };
		struct net j;

		o.order = o.partition = o.algorithm = true;
		if (net_init(&j, seed, 12, 20000, 200000, seed % 2, &err) == 0) {
			int64_t first = peak_of(&j, &o, &err), more;

			o.evaluations = 2500;
			more = peak_of(&j, &o, &err);
			if (first > 0 && more > first) {
				o.memory_bytes = first;
				more = peak_of(&j, &o, &err);
				larger++;
				within += more > 0 && more <= first;
			}
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		net_fini(&j);
	}
	ok(larger > 0, "a longer search needs more memory in %d of them", larger);
	is_i64(within, larger, "... but not under a limit");
}

/* The recorded job as one with a single bucket: it needs more memory, and takes less time. */
static int make_large(struct net *j, struct pl_err *err)
{
	uint32_t n, *set_of = NULL;
	struct pl_graph g;
	int rc;

	pl_graph_init(&g);
	pl_rewrite_tensors(j->r, &n);
	PL_TRY(pl_alloc(&set_of, n, sizeof(*set_of), err));
	PL_TRY(pl_rewrite_bucketing(j->r, &(struct pl_bucketing){ .n_sets = 1, .set_of = set_of },
				    err));
	PL_TRY(pl_edit_settle(&j->e, err));
	PL_TRY(pl_edit_graph(&j->e, &g, err));
	close_edit(j);
	pl_graph_fini(&j->g);
	j->g = g;
	pl_graph_init(&g);
	pl_cost_fini(&j->cost);
	rc = pl_cost_fit(&j->g, &j->topo, &j->cost, err);
out:
	pl_free(set_of);
	pl_graph_fini(&g);
	return rc;
}

/* A plan that memory needs stays, although it saves no time. */
static void test_too_large(void)
{
	int kept = 0, slower = 0;

	for (uint64_t seed = 1; seed <= CASES(12); seed++) {
		struct pl_search_opts o = plain;
		struct pl_err err = { 0 };
		struct pl_plan p;
		struct net j;

		pl_plan_init(&p);
		o.any = false;
		if (net_init(&j, seed, 12, 100000, 1 << 20, seed % 2, &err) == 0 &&
		    make_large(&j, &err) == 0) {
			int64_t large, small;

			o.preset = PL_PRESET_NONE;
			large = peak_of(&j, &o, &err);
			o.preset = PL_PRESET_EACH;
			small = peak_of(&j, &o, &err);
			o.preset = PL_PRESET_SEARCH;
			o.memory_bytes = small;
			if (small > 0 && small < large &&
			    pl_search(&j.g, &j.cost, &o, &p, &err) == 0) {
				slower++;
				kept += p.n_rw > 0 && p.peak_bytes <= small;
			}
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		pl_plan_fini(&p);
		net_fini(&j);
	}
	ok(slower > 0, "the recorded bucket is too large in %d jobs", slower);
	is_i64(kept, slower, "... where others are proposed, whatever they save");
}

/* ---- the bound ------------------------------------------------------------------------------- */

static double bound_of(struct net *j, struct pl_err *err)
{
	struct pl_plan p;
	double bound = INFINITY;

	pl_plan_init(&p);
	if (pl_search(&j->g, &j->cost, &plain, &p, err) == 0)
		bound = (double)(p.bound_ns + (p.n_rw ? p.model_ns - p.predicted_ns : 0));
	pl_plan_fini(&p);
	return bound;
}

/* Communication slows computation, and plans with less of it beside computation do not. */
static void test_contended(void)
{
	int bounded = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(30); seed++) {
		uint32_t n = 3 + (uint32_t)(seed % 4);
		struct pl_err err = { 0 };
		struct net j;

		if (net_init(&j, seed, n, 1 + (pl_ns)(seed % 7) * 9000, 40000, false, &err) == 0) {
			pl_rewrite_free(j.r);
			j.cost.overlap = 2;
			j.r = pl_rewrite_new(&j.e, &j.cost, &err);
			if (j.r)
				bounded += bound_of(&j, &err) <= brute_force(&j, n, &err) + 1;
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		total++;
		net_fini(&j);
	}
	is_i64(bounded, total, "where communication slows computation, no plan is below the bound");
}

/* ---- communication as recorded --------------------------------------------------------------- */

/* The model takes communication for faster than it was. A plan of operations alone, whose saving is
 * predicted with communication as recorded, is judged by that saving. */
static void test_as_recorded(void)
{
	const struct pl_search_opts o = { .seed = 1,
					  .fuse_ops = true,
					  .fuse_glob = backward,
					  .n_fuse_globs = 1,
					  .fuse_share = 0.5 };
	int right = 0, none = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(60); seed++) {
		struct pl_err err = { 0 };
		struct pl_plan p;
		struct net j;

		pl_plan_init(&p);
		if (net_init(&j, seed, 8, 1 + (pl_ns)(seed % 9) * 9000, 200000, false, &err) == 0) {
			for (size_t i = 0; i < j.cost.n_fits; i++) {
				j.cost.fit[i].a_ns *= 0.7;
				j.cost.fit[i].b_ns_per_byte *= 0.7;
				j.cost.fit[i].shape *= 0.7;
			}
			if (pl_search(&j.g, &j.cost, &o, &p, &err) == 0) {
				right += !p.n_rw || p.baseline_ns - p.predicted_ns >= p.error_ns;
				none += !p.n_rw;
				total++;
			}
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		pl_plan_fini(&p);
		net_fini(&j);
	}
	is_i64(right, total, "what is proposed saves more than its prediction may err by");
	ok(none < total, "... and something is, in %d of %d", total - none, total);
}

int main(void)
{
	ALONE(test_steps());
	test_not_reduced();
	ALONE(test_annealed());
	test_too_large();
	test_contended();
	test_as_recorded();
	return done_testing();
}
