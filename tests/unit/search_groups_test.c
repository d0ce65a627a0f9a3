/*
 * The search where gradients belong to several groups of ranks, ranks are unlike, and sizes are not
 * known: against every way to fuse, and every order of few.
 */
#include "derive/describe.h"
#include "sim_fixture.h"

#include "search_fixture.h"

#define RANKS  4
#define LAYERS 5
#define MOST   6 /* tensors of the base */

struct mixed {
	struct job j; /* sim_fixture's */
	struct pl_cost cost;
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_rewriter *r;
	pl_ns alpha, per_kib; /* what communication took */
	bool open;
	bool disjoint; /* no communication of all ranks */
	bool streams;  /* that of pairs has a stream of its own */
	bool threads;  /* and host threads carry it, as with gloo */
};

static int put_group(struct pl_graph *g, uint32_t first, uint32_t n, struct pl_err *err)
{
	struct pl_ggroup x = { .rank = (uint32_t)g->n_group_ranks, .n = n };
	int rc;

	PL_TRY(pl_intern_add(&g->str, "group", 5, &x.name, err));
	PL_TRY(pl_grow(&g->group, &g->cap_groups, g->n_groups + 1, sizeof(x), err));
	PL_TRY(pl_grow(&g->group_rank, &g->cap_group_ranks, g->n_group_ranks + n, sizeof(uint32_t),
		       err));
	g->group[g->n_groups++] = x;
	for (uint32_t i = 0; i < n; i++)
		g->group_rank[g->n_group_ranks++] = (uint32_t)g->rank[first + i];
out:
	return rc;
}

static uint32_t compute_res(const struct mixed *x, uint32_t rank)
{
	return rank * (uint32_t)x->j.per_rank;
}

static uint32_t comm_res(const struct mixed *x, uint32_t rank, uint32_t group)
{
	return compute_res(x, rank) + 1 + (x->streams && group);
}

static uint32_t put(struct mixed *x, uint8_t type, uint8_t role, uint8_t kind, pl_id res,
		    pl_id name, pl_ns dur)
{
	uint32_t n = add_node(&x->j.g.shape[0], type, role, kind, res, name);

	x->j.g.step[0].dur[n] = dur;
	return n;
}

static int put_tensor(struct mixed *x, pl_id name, int64_t bytes, uint32_t producer,
		      uint32_t arrive, struct pl_err *err)
{
	struct pl_graph *g = &x->j.g;
	struct pl_tensor t = { .name = name,
			       .type = PL_NONE,
			       .role = PL_TR_GRAD,
			       .bytes = bytes,
			       .producer = producer,
			       .consumer = (uint32_t)g->n_consumers,
			       .n_consumers = 1 };
	int rc;

	PL_TRY(pl_grow(&g->tensor, &g->cap_tensors, g->n_tensors + 1, sizeof(t), err));
	PL_TRY(pl_grow(&g->consumer, &g->cap_consumers, g->n_consumers + 1, sizeof(uint32_t), err));
	g->tensor[g->n_tensors++] = t;
	g->consumer[g->n_consumers++] = arrive;
out:
	return rc;
}

/* Of ranks first .. first + n - 1; `bytes` as recorded, -1 unknown. */
static int put_comm(struct mixed *x, uint32_t group, pl_id grad, int64_t bytes, pl_ns dur,
		    const uint32_t *made, uint32_t *last, struct pl_err *err)
{
	struct pl_shape *s = &x->j.g.shape[0];
	uint32_t first = group == 2 ? 2 : 0, n = group ? 2 : RANKS, arrive[RANKS], meet;
	pl_id name;
	int rc = pl_intern_add(&x->j.g.str, "all_reduce", 10, &name, err);

	for (uint32_t k = first; rc >= 0 && k < first + n; k++) {
		uint32_t *before = &last[k + (x->streams && group ? RANKS : 0)];

		arrive[k] = put(x, PL_N_OP, PL_RO_ARRIVE, PL_K_COLLECTIVE, comm_res(x, k, group),
				name, 0);
		add_edge(s, *before, PL_E_SEQ);
		add_edge(s, made[k], PL_E_DATA);
		rc = put_tensor(x, grad, bytes, made[k], arrive[k], err);
		s->group[arrive[k]] = group;
		s->bytes[arrive[k]] = bytes;
	}
	if (rc < 0)
		return rc;
	meet = put(x, PL_N_RENDEZVOUS, PL_RO_NONE, PL_K_COLLECTIVE, PL_NONE, name, 0);
	s->flags[meet] = 0;
	s->group[meet] = group;
	for (uint32_t k = first; k < first + n; k++)
		add_edge(s, arrive[k], PL_E_COMM);
	for (uint32_t k = first; k < first + n; k++) {
		uint32_t *end = &last[k + (x->streams && group ? RANKS : 0)];

		*end = put(x, PL_N_OP, PL_RO_TRANSFER, PL_K_COLLECTIVE, comm_res(x, k, group), name,
			   dur);
		add_edge(s, arrive[k], PL_E_SEQ);
		add_edge(s, meet, PL_E_COMM);
		s->group[*end] = group;
		s->bytes[*end] = bytes;
	}
	return 0;
}

static int put_layer(struct mixed *x, uint32_t i, bool pairs, bool known, uint32_t *at,
		     uint32_t *last, uint64_t *rng, struct pl_err *err)
{
	pl_ns dur = 2000 + (pl_ns)(pl_rng_next(rng) % 40000);
	char text[32];
	pl_id name, grad;
	int rc;

	snprintf(text, sizeof(text), "backward L%u", i);
	PL_TRY(pl_intern_add(&x->j.g.str, text, strlen(text), &name, err));
	snprintf(text, sizeof(text), "grad L%u", i);
	PL_TRY(pl_intern_add(&x->j.g.str, text, strlen(text), &grad, err));
	for (uint32_t k = 0; k < RANKS; k++) {
		uint32_t n = put(x, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, compute_res(x, k), name,
				 dur + (pl_ns)(pl_rng_next(rng) % 9000));

		add_edge(&x->j.g.shape[0], at[k], PL_E_SEQ);
		at[k] = n;
	}
	for (uint32_t group = pairs ? 1 : 0; group <= (pairs ? 2 : 0); group++) {
		int64_t bytes = 4 + (int64_t)(pl_rng_next(rng) % 60000);

		PL_TRY(put_comm(x, group, grad, known ? bytes : -1,
				x->alpha + x->per_kib * bytes / 1024, at, last, err));
	}
out:
	return rc;
}

static int put_step(struct mixed *x, uint64_t seed, bool known, struct pl_err *err)
{
	struct pl_shape *s = &x->j.g.shape[0];
	uint32_t at[RANKS], last[2 * RANKS], n = 3 + (uint32_t)(seed % 3), tensors = 0;
	uint64_t rng = seed;
	int rc = 0;

	for (uint32_t k = 0; k < RANKS; k++) {
		at[k] = put(x, PL_N_OP, PL_RO_MARK, PL_K_STEP, compute_res(x, k), x->j.name[7], 0);
		s->flags[at[k]] = PL_NF_STEP_BEGIN;
		last[k] = last[k + RANKS] = PL_NONE;
	}
	for (uint32_t i = 0; i < n; i++) {
		bool pairs =
			x->disjoint || (pl_rng_next(&rng) % 2 && tensors + 2 + (n - 1 - i) <= MOST);

		tensors += 1 + pairs;
		PL_TRY(put_layer(x, n - 1 - i, pairs, known, at, last, &rng, err));
	}
	for (uint32_t k = 0; k < RANKS; k++) {
		uint32_t done = put(x, PL_N_OP, PL_RO_COMPUTE, PL_K_KERNEL, compute_res(x, k),
				    x->j.name[0], 500);

		add_edge(s, at[k], PL_E_SEQ);
		/* every transfer of the rank */
		for (uint32_t i = 0; i < done; i++)
			if (s->role[i] == PL_RO_TRANSFER &&
			    (s->res[i] == comm_res(x, k, 0) || s->res[i] == comm_res(x, k, 1)))
				add_edge(s, i, PL_E_DATA);
	}
out:
	return rc;
}

static bool mixed_init(struct mixed *x, uint64_t seed, bool known, struct pl_err *err)
{
	struct pl_graph *g = &x->j.g;
	bool disjoint = x->disjoint, streams = x->streams, threads = x->threads;
	int rc;

	memset(x, 0, sizeof(*x));
	x->disjoint = disjoint;
	x->streams = streams;
	x->threads = threads;
	x->j = (struct job){ .ranks = RANKS, .per_rank = streams ? 3 : 2 };
	x->alpha = 500 + (pl_ns)(seed * 7919 % 9000);
	if (!known) /* more than the messages of a ring of nothing over links that nobody named */
		x->alpha += 100000;
	x->per_kib = 50 + (pl_ns)(seed * 104729 % 900);
	PL_TRY(job_tables(&x->j, err));
	for (size_t i = 0; i < g->n_res; i++) {
		g->res[i].track_type =
			threads && i % (size_t)x->j.per_rank ? PL_T_THREAD : PL_T_STREAM;
		g->res[i].launch_ns = g->res[i].early_ns = g->res[i].dispatch_ns = 0;
	}
	PL_TRY(put_group(g, 0, RANKS, err));
	PL_TRY(put_group(g, 0, 2, err));
	PL_TRY(put_group(g, 2, 2, err));
	PL_TRY(one_step_with_bytes(g, err));
	PL_TRY(put_step(x, seed, known, err));
	start_early(g);
	PL_TRY(pl_derive_describe(g, NULL, err));
	PL_TRY(pl_cost_fit(g, NULL, &x->cost, err));
	x->open = true;
	x->s = pl_sim_new(g, err);
	rc = x->s ? pl_sim_edit(x->s, 0, 1, &x->e, err) : err->code;
	if (rc == 0 && !(x->r = pl_rewrite_new(&x->e, &x->cost, err)))
		rc = err->code;
out:
	return rc >= 0;
}

static void mixed_fini(struct mixed *x)
{
	pl_rewrite_free(x->r);
	pl_edit_fini(&x->e);
	pl_sim_free(x->s);
	if (x->open)
		pl_cost_fini(&x->cost);
	pl_graph_fini(&x->j.g);
}

/* ---- all there is ---------------------------------------------------------------------------- */

static double simulated(struct mixed *x, const uint32_t *set_of, uint32_t sets)
{
	size_t mark = pl_rewrite_mark(x->r);
	struct pl_err err = { 0 };
	double mean = INFINITY;

	if (pl_rewrite_bucketing(x->r, &(struct pl_bucketing){ .n_sets = sets, .set_of = set_of },
				 &err) == 0 &&
	    pl_edit_settle_full(&x->e, &err) == 0)
		mean = pl_edit_mean_step(&x->e);
	pl_rewrite_undo(x->r, mark);
	return mean;
}

static bool groups_separate(const struct mixed *x, const uint32_t *v, uint32_t n)
{
	uint32_t all;
	const struct pl_rewrite_tensor *tensor = pl_rewrite_tensors(x->r, &all);

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < i; k++)
			if (v[i] == v[k] && tensor[i].fuses != tensor[k].fuses)
				return false;
	return true;
}

/* Every order of the sets: Heap's algorithm. */
static double every_order(struct mixed *x, uint32_t *turn, uint32_t k, const uint32_t *set_of,
			  uint32_t n, uint32_t sets)
{
	double best = INFINITY;

	if (k <= 1) {
		uint32_t now[MOST];

		for (uint32_t i = 0; i < n; i++)
			now[i] = turn[set_of[i]];
		return simulated(x, now, sets);
	}
	for (uint32_t i = 0; i < k; i++) {
		uint32_t a = k % 2 ? 0 : i, t;

		best = fmin(best, every_order(x, turn, k - 1, set_of, n, sets));
		t = turn[a];
		turn[a] = turn[k - 1];
		turn[k - 1] = t;
	}
	return best;
}

static double try_all(struct mixed *x, uint32_t n, bool order)
{
	uint32_t v[MOST] = { 0 }, set_of[MOST], turn[MOST];
	double best = INFINITY;

	do {
		uint32_t sets = by_last(v, n, set_of);

		if (!groups_separate(x, v, n))
			continue;
		for (uint32_t i = 0; i < sets; i++)
			turn[i] = i;
		best = fmin(best, order ? every_order(x, turn, sets, set_of, n, sets)
					: simulated(x, set_of, sets));
	} while (next_partition(v, n));
	return best;
}

static void test(const char *what, bool known, bool order, uint64_t seeds)
{
	int within = 0, total = 0;
	double worst = 0;

	for (uint64_t seed = 1; seed <= CASES(seeds); seed++) {
		struct pl_search_opts o = { .seed = 1, .fuse = true, .order = order, .any = true };
		struct pl_err err = { 0 };
		struct mixed x = { .disjoint = false };
		struct pl_plan p;
		uint32_t n;

		pl_plan_init(&p);
		if (mixed_init(&x, seed, known, &err) && pl_rewrite_tensors(x.r, &n) &&
		    n <= (order ? 5 : MOST)) {
			double best = try_all(&x, n, order), mine = INFINITY;

			total++;
			if (pl_search(&x.j.g, &x.cost, &o, &p, &err) == 0)
				mine = (double)p.model_ns;
			worst = fmax(worst, mine / best - 1);
			within += isfinite(best) && mine <= 1.01 * best + 1;
			if (mine > 1.01 * best + 1)
				printf("# seed %d: %.0f, best %.0f\n", (int)seed, mine, best);
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		pl_plan_fini(&p);
		mixed_fini(&x);
	}
	ok(within == total && total > (int)CASES(seeds) / 3,
	   "%s: within 1 %% of the best, %d of %d", what, within, total);
	printf("# worst: %+.4f %%\n", 100 * worst);
}

/* The model, asked for what was recorded, says what was recorded. */
static void test_sizes(void)
{
	int right = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(40); seed++) {
		struct pl_err err = { 0 };
		struct mixed x = { .disjoint = false };
		struct pl_plan p;
		bool good;
		double recorded;

		pl_plan_init(&p);
		good = mixed_init(&x, seed, false, &err) && pl_rewrite_base(x.r, &p, &err) == 0;
		for (size_t i = 0; good && i < p.n_tensors; i++)
			good = p.tensor[i].estimated && p.tensor[i].bytes >= 0;
		recorded = good ? pl_edit_mean_step(&x.e) : 0;
		good = good && pl_rewrite_model(x.r, &err) == 0 &&
		       pl_edit_settle(&x.e, &err) == 0 &&
		       fabs(pl_edit_mean_step(&x.e) - recorded) < 0.01 * recorded;
		right += good;
		total++;
		pl_plan_fini(&p);
		mixed_fini(&x);
	}
	is_i64(right, total, "unknown sizes are such that the model has what was recorded");
}

/* ---- slowed down by one's own communication -------------------------------------------------- */

/* The communication of group 2 becomes so much larger. */
static int scale_group_2(struct mixed *x, double factor, struct pl_err *err)
{
	struct pl_graph *g = &x->j.g;

	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->shape[0].group[g->consumer[g->tensor[i].consumer]] == 2)
			g->tensor[i].bytes = (int64_t)((double)g->tensor[i].bytes * factor);
	pl_edit_fini(&x->e);
	return pl_sim_edit(x->s, 0, 1, &x->e, err);
}

/* When ranks 0 and 1 end, one tensor at a time; -1: it fails. */
static pl_ns end_of_first(uint64_t seed, double factor)
{
	struct pl_fit fit = { .kind = PL_K_COLLECTIVE,
			      .coll = PL_COLL_ALLREDUCE,
			      .n = 2,
			      .a_ns = 2000,
			      .b_ns_per_byte = 1,
			      .a_contended_ns = 1.25 * 2000,
			      .b_contended = 1.25 };
	const struct pl_cost cost = { .fit = &fit, .n_fits = 1, .overlap = 1.5 };
	struct mixed x = { .disjoint = true };
	struct pl_err err = { 0 };
	uint32_t set_of[2 * LAYERS], n;
	pl_ns end = -1;

	if (!mixed_init(&x, seed, true, &err))
		goto out;
	pl_rewrite_free(x.r);
	x.r = NULL;
	if (scale_group_2(&x, factor, &err) < 0)
		goto out;
	x.r = pl_rewrite_new(&x.e, &cost, &err);
	n = 0;
	if (x.r)
		pl_rewrite_tensors(x.r, &n);
	for (uint32_t t = 0; t < n && n <= PL_LEN(set_of); t++)
		set_of[t] = t;
	if (!n || n > PL_LEN(set_of) ||
	    pl_rewrite_bucketing(x.r, &(struct pl_bucketing){ .n_sets = n, .set_of = set_of },
				 &err) < 0 ||
	    pl_edit_settle(&x.e, &err) < 0)
		goto out;
	for (uint32_t i = 0; i < x.e.n_nodes; i++)
		if (!x.e.node[i].dead && x.e.node[i].res < 4)
			end = pl_max_i64(end, pl_edit_end(&x.e, i));
out:
	if (err.code)
		printf("# seed %d: %s\n", (int)seed, err.msg);
	mixed_fini(&x);
	return end;
}

static void test_disjoint(void)
{
	int same = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(40); seed++, total++) {
		pl_ns end = end_of_first(seed, 1);

		same += end > 0 && end == end_of_first(seed, 20) && end == end_of_first(seed, 0.1);
	}
	is_i64(same, total, "what other ranks communicate slows nobody down");
}

/* Twice the ranks: each group of replicas has twice the members, those of pairs, too. */
static void test_ranks(void)
{
	const struct pl_rewrite ranks = { .op = PL_RW_RANKS, .k = 2 * RANKS, .to = -1 };
	int right = 0, pairs = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(20); seed++) {
		struct mixed x = { .open = false };
		struct pl_err err = { 0 };
		uint32_t n = 0, was[MOST];

		if (mixed_init(&x, seed, true, &err))
			pl_rewrite_tensors(x.r, &n);
		for (uint32_t t = 0; t < n; t++)
			was[t] = pl_rewrite_comm(x.r, t).n;
		if (n && pl_rewrite(x.r, &ranks, &err) < 0)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		for (uint32_t t = 0; t < n; t++, total++) {
			right += pl_rewrite_comm(x.r, t).n == 2 * was[t];
			pairs += was[t] == 2;
		}
		mixed_fini(&x);
	}
	is_i64(right, total, "twice the ranks: groups of all sizes have twice the members");
	ok(pairs > 0 && pairs < total, "... of which there are several");
}

/* The transfers of the edit that lie on other streams than those of their groups. */
static uint32_t misplaced(const struct mixed *x)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->e.n_nodes; i++) {
		const struct pl_enode *t = &x->e.node[i];

		if (!t->dead && t->role == PL_RO_TRANSFER)
			n += t->res != comm_res(x, t->res / (uint32_t)x->j.per_rank, t->group);
	}
	return n;
}

/* Two streams, or two groups of threads, of a rank carry communication side by side, and still do
 * when it is rebuilt. */
static void test_streams(bool threads)
{
	int placed = 0, same = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(60); seed++, total++) {
		struct mixed x = { .streams = true, .threads = threads };
		struct pl_err err = { 0 };
		struct pl_fit fit[2];
		struct pl_cost cost = { .fit = fit, .n_fits = 2, .overlap = 1 };
		double recorded;

		if (!mixed_init(&x, seed, true, &err)) {
			printf("# seed %d: %s\n", (int)seed, err.msg);
			mixed_fini(&x);
			continue;
		}
		for (uint32_t i = 0; i < 2; i++)
			fit[i] = (struct pl_fit){ .kind = PL_K_COLLECTIVE,
						  .coll = PL_COLL_ALLREDUCE,
						  .n = i ? RANKS : 2,
						  .a_ns = (double)x.alpha,
						  .b_ns_per_byte = (double)x.per_kib / 1024 };
		recorded = pl_edit_mean_step(&x.e);
		pl_rewrite_free(x.r);
		x.r = pl_rewrite_new(&x.e, &cost, &err);
		if (x.r && pl_rewrite_model(x.r, &err) == 0 && pl_edit_settle(&x.e, &err) == 0) {
			double model = pl_edit_mean_step(&x.e);

			placed += !misplaced(&x);
			same += fabs(model - recorded) <= 2 * LAYERS; /* rounded up */
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		mixed_fini(&x);
	}
	is_i64(placed, total,
	       threads ? "communication stays on the thread of its group"
		       : "communication stays on the stream of its group");
	is_i64(same, total, "... and takes as long as recorded");
}

int main(void)
{
	ALONE(test("several groups, unlike ranks", true, false, 300));
	ALONE(test("... in any order", true, true, 90));
	ALONE(test("... of unknown sizes", false, false, 350));
	test_sizes();
	test_ranks();
	test_disjoint();
	test_streams(false);
	test_streams(true);
	return done_testing();
}
