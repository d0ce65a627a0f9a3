/*
 * The search against all there is: every way to cut for dynamic programming, every partition of few
 * tensors, an exact programme written down here for chains of many, and what others do by default.
 *
 * runner: long, threads
 */
#include "search/internal.h"
#include "search_fixture.h"

/* ---- boundaries of buckets ------------------------------------------------------------------- */

struct line {
	pl_ns a;
	double b;
	int64_t step; /* sizes are rounded up to it: not linear */
};

static pl_ns line_time(void *arg, int64_t bytes)
{
	const struct line *l = arg;

	return l->a + (pl_ns)(l->b * (double)((bytes + l->step - 1) / l->step * l->step));
}

/* The end of the channel when bit i of `cuts` says that a bucket ends behind tensor i. */
static pl_ns channel_end(const struct pl_bucket_problem *p, uint32_t cuts)
{
	pl_ns end = INT64_MIN;
	int64_t bytes = 0;

	for (size_t i = 0; i < p->n; i++) {
		bytes += p->bytes[i];
		if (i + 1 < p->n && !(cuts >> i & 1))
			continue;
		end = pl_max_i64(end, p->ready_ns[i]) + p->transfer(p->arg, bytes) + p->issue_ns;
		bytes = 0;
	}
	return end;
}

static bool dp_is_exact(uint64_t *rng)
{
	pl_ns ready[12], end, best = INT64_MAX;
	int64_t bytes[12];
	uint32_t first[12], n_buckets, cuts = 0;
	struct line l = { (pl_ns)(pl_rng_next(rng) % 300), (double)(pl_rng_next(rng) % 9) / 4,
			  1 + (int64_t)(pl_rng_next(rng) % 40) };
	struct pl_bucket_problem p = { .n = 1 + pl_rng_next(rng) % 12,
				       .ready_ns = ready,
				       .bytes = bytes,
				       .transfer = line_time,
				       .arg = &l,
				       .issue_ns = (pl_ns)(pl_rng_next(rng) % 30) };
	struct pl_err err = { 0 };

	for (size_t i = 0; i < p.n; i++) {
		ready[i] = (i ? ready[i - 1] : -50) + (pl_ns)(pl_rng_next(rng) % 150);
		bytes[i] = (int64_t)(pl_rng_next(rng) % 200);
	}
	for (uint32_t c = 0; c < 1u << (p.n - 1); c++)
		best = pl_min_i64(best, channel_end(&p, c));
	if (pl_search_bucket_dp(&p, first, &n_buckets, &end, &err) < 0 || !n_buckets || first[0])
		return false;
	for (uint32_t b = 1; b < n_buckets; b++) {
		if (first[b] <= first[b - 1] || first[b] >= p.n)
			return false;
		cuts |= 1u << (first[b] - 1);
	}
	return end == best && channel_end(&p, cuts) == best;
}

static void test_dp(void)
{
	struct pl_bucket_problem none = { 0 };
	struct pl_err err = { 0 };
	uint32_t n = 7, first = 0;
	uint64_t rng = 42;
	int good = 0;
	pl_ns end = 1;

	for (int i = 0; i < 400; i++)
		good += dp_is_exact(&rng);
	is_i64(good, 400, "dynamic programming finds the best of all cuts");
	ok(pl_search_bucket_dp(&none, &first, &n, &end, &err) == 0 && n == 0 && end == 0,
	   "no tensors, no buckets");
}

/* ---- against every partition ----------------------------------------------------------------- */

/* The bound as the model has it: without what is taken for its error. */
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

/* A model that errs may predict less than what is possible, but the bound stays what it is. */
static void test_bound(void)
{
	int right = 0, below = 0, total = 0;

	for (uint64_t seed = 1; seed <= CASES(30); seed++) {
		const struct pl_search_opts o = { .seed = 1, .fuse = true, .any = true };
		struct pl_err err = { 0 };
		struct pl_plan p;
		struct net j;

		pl_plan_init(&p);
		if (net_init(&j, seed, 12, 900000, 1000, false, &err) == 0) {
			pl_ns possible;

			for (size_t i = 0; i < j.cost.n_fits; i++) { /* a latency that was not */
				j.cost.fit[i].a_ns = 0.05 * pl_edit_mean_step(&j.e);
				j.cost.fit[i].shape = 0;
			}
			for (uint32_t i = 0; i < j.e.n_nodes; i++)
				if (j.e.node[i].role == PL_RO_TRANSFER &&
				    pl_edit_set_dur(&j.e, i, 0, &err) < 0)
					break;
			if (pl_edit_settle(&j.e, &err) == 0 &&
			    pl_search(&j.g, &j.cost, &o, &p, &err) == 0) {
				possible = (pl_ns)pl_edit_mean_step(&j.e);
				right += p.bound_ns >= possible - 1;
				below += p.predicted_ns < possible - 1;
				total++;
			}
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		pl_plan_fini(&p);
		net_fini(&j);
	}
	is_i64(right, total, "the bound is not below the step with all communication free");
	ok(below > 0, "... although %d of %d predictions are", below, total);
}

static void test_small(void)
{
	double worst = 0;
	int within = 0, total = 0, bounded = 0;

	for (uint64_t seed = 1; seed <= CASES(240); seed++) {
		struct pl_err err = { 0 };
		struct net j;
		uint32_t n = 3 + (uint32_t)(seed % 24 ? seed % 5 : 5); /* 8 now and then */
		double best, mine;

		if (net_init(&j, seed, n, 1 + (pl_ns)(seed % 7) * 9000, 40000, seed % 2, &err) ==
		    0) {
			best = brute_force(&j, n, &err);
			mine = searched(&j, &plain, &err);
			worst = fmax(worst, mine / best - 1);
			within += isfinite(best) && mine <= 1.01 * best;
			bounded += bound_of(&j, &err) <= best + 1;
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		total++;
		net_fini(&j);
	}
	is_i64(within, total, "within 1 % of the best of all partitions of 3 to 8 tensors");
	is_i64(bounded, total, "none of which is shorter than the bound");
	printf("# worst: %+.4f %%\n", 100 * worst);
}

/* ---- against an exact programme -------------------------------------------------------------- */

/* Forward from the earliest: end[j] of the channel when tensors 0 .. j-1 are through. */
static pl_ns exact_chain(const pl_ns *ready, const int64_t *bytes, uint32_t n,
			 const struct pl_cost *c, struct pl_cost_comm comm)
{
	pl_ns *end = malloc(((size_t)n + 1) * sizeof(*end)), last;

	for (uint32_t i = 1; i <= n; i++)
		end[i] = INT64_MAX;
	end[0] = 0;
	for (uint32_t i = 0; i < n; i++) {
		comm.bytes = 0;
		for (uint32_t k = i; k < n; k++) {
			pl_ns t;

			comm.bytes += bytes[k];
			t = (ready[k] > end[i] ? ready[k] : end[i]) + pl_cost_transfer(c, &comm);
			if (t < end[k + 1])
				end[k + 1] = t;
		}
	}
	last = end[n];
	free(end);
	return last;
}

static void test_chain(uint64_t seed, uint32_t n)
{
	struct pl_err err = { 0 };
	struct net j;
	pl_ns *ready = malloc(n * sizeof(*ready)), rest, end;
	int64_t *bytes = malloc(n * sizeof(*bytes));
	double mine, each = 0, last = 0;
	uint32_t *set_of = malloc(n * sizeof(*set_of));
	int rc = net_init(&j, seed, n, 30000, 400000, false, &err);

	for (uint32_t t = 0; rc == 0 && t < n; t++) {
		ready[t] = pl_rewrite_ready(j.r, t);
		bytes[t] = pl_rewrite_tensors(j.r, &n)[t].bytes;
		set_of[t] = t;
	}
	if (rc == 0) {
		/* what follows the last communication: the optimiser; from one tensor at a time,
		 * whose end of the channel is known */
		const struct pl_cost_comm comm = pl_rewrite_comm(j.r, 0);
		struct pl_cost_comm c = comm;
		size_t mark = pl_rewrite_mark(j.r);

		for (uint32_t t = 0; t < n; t++) {
			c.bytes = bytes[t];
			last = fmax(last, (double)ready[t]) + (double)pl_cost_transfer(&j.cost, &c);
		}
		rc = pl_rewrite_bucketing(
			j.r, &(struct pl_bucketing){ .n_sets = n, .set_of = set_of }, &err);
		if (rc == 0 && (rc = pl_edit_settle_full(&j.e, &err)) == 0)
			each = pl_edit_mean_step(&j.e);
		pl_rewrite_undo(j.r, mark);
		rest = (pl_ns)(each - last);
		end = exact_chain(ready, bytes, n, &j.cost, comm) + rest;
		mine = searched(&j, &plain, &err);
		ok(rc == 0 && !err.code && mine <= 1.01 * (double)end && mine >= (double)end - 2,
		   "%u tensors: within 1 %% of the exact optimum (%.0f, %lld; %s)", n, mine,
		   (long long)end, err.msg);
	} else {
		ok(false, "%u tensors: %s", n, err.msg);
	}
	net_fini(&j);
	free(ready);
	free(bytes);
	free(set_of);
}

/* ---- against what others do ------------------------------------------------------------------ */

static void test_presets(void)
{
	int better = 0, total = 0;

	for (uint64_t seed = 300; seed < 300 + CASES(30); seed++) {
		struct pl_err err = { 0 };
		struct net j;
		double mine;

		if (net_init(&j, seed, 2 + (uint32_t)(seed % 60), 400000, 30 << 20, seed % 2,
			     &err) < 0) {
			ok(false, "seed %d: %s", (int)seed, err.msg);
			net_fini(&j);
			continue;
		}
		mine = searched(&j, &plain, &err);
		for (int k = PL_PRESET_NONE; k < PL_PRESET_COUNT_; k++) {
			struct pl_search_opts o = plain;

			o.preset = (enum pl_preset)k;
			better += mine <= searched(&j, &o, &err);
			total++;
		}
		if (err.code)
			printf("# seed %d: %s\n", (int)seed, err.msg);
		net_fini(&j);
	}
	is_i64(better, total, "never worse than what others do by default");
}

/* ---- the same again -------------------------------------------------------------------------- */

static char *as_text(struct net *j, const struct pl_search_opts *o, struct pl_err *err)
{
	char name[] = "/tmp/search_test.XXXXXX", *text = NULL;
	int fd = mkstemp(name);
	FILE *f = fd < 0 ? NULL : fdopen(fd, "r");
	struct pl_out *out = f ? pl_out_open(name, false, err) : NULL;
	struct pl_plan p;
	FILE *again;
	size_t n;

	pl_plan_init(&p);
	if (out && pl_search(&j->g, &j->cost, o, &p, err) == 0 &&
	    pl_plan_write_text(&p, out, err) == 0 && pl_out_close(out, err) == 0 &&
	    (again = fopen(name, "r"))) {
		text = calloc(1, 1 << 20);
		n = fread(text, 1, (1 << 20) - 1, again);
		text[n] = '\0';
		fclose(again);
	}
	pl_plan_fini(&p);
	if (f)
		fclose(f);
	remove(name);
	return text;
}

static void test_deterministic(void)
{
	static const int threads[] = { 1, 2, 4, 1 };
	struct pl_search_opts o = plain;
	struct pl_err err = { 0 };
	char *text[4] = { NULL };
	struct net j;

	o.partition = o.order = o.algorithm = true;
	o.evaluations = 3000;
	o.seed = 7;
	if (!ok(net_init(&j, 77, 30, 200000, 4 << 20, true, &err) == 0, "a job (%s)", err.msg))
		return;
	for (int i = 0; i < 4; i++) {
		o.pool = pl_pool_new(threads[i], &err);
		text[i] = as_text(&j, &o, &err);
		pl_pool_free(o.pool);
	}
	for (int i = 1; i < 4; i++)
		is_str(text[i], text[0], "the same plan with any number of threads, and again");
	ok(text[0] && strstr(text[0], "fuse-tensors"), "which is one (%s)", err.msg);
	for (int i = 0; i < 4; i++)
		free(text[i]);
	net_fini(&j);
}

/* ---- incremental ----------------------------------------------------------------------------- */

static void test_incremental(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct pl_edit full;
	struct net j;
	uint32_t n = 5 + (uint32_t)(seed % 20), set_of[25], v[25];
	uint64_t rng = seed;
	bool same = true;
	int rc = net_init(&j, seed, n, 50000, 100000, seed % 2, &err);

	for (int i = 0; rc == 0 && i < 30; i++) {
		size_t mark = pl_rewrite_mark(j.r);

		for (uint32_t t = 0; t < n; t++)
			v[t] = (uint32_t)(pl_rng_next(&rng) % (1 + pl_rng_next(&rng) % n));
		rc = pl_rewrite_bucketing(
			j.r,
			&(struct pl_bucketing){ .n_sets = by_last(v, n, set_of), .set_of = set_of },
			&err);
		if (rc < 0 || (rc = pl_edit_settle(&j.e, &err)) < 0 ||
		    (rc = pl_edit_dup(&j.e, &full, &err)) < 0)
			break;
		for (size_t k = 0; k < full.n_nodes; k++)
			if (full.node[k].in != PL_NONE)
				full.node[k].start = -7;
		rc = pl_edit_settle_full(&full, &err);
		for (size_t k = 0; k < full.n_nodes; k++)
			same &= full.node[k].dead || full.node[k].start == j.e.node[k].start;
		pl_edit_fini(&full);
		if (i % 3 == 0)
			pl_rewrite_undo(j.r, mark);
	}
	ok(rc == 0 && same, "seed %d: buckets after buckets, as if made anew (%s)", (int)seed,
	   err.msg);
	net_fini(&j);
}

/* Buckets of one step: it gets the length that it has if all steps get them; the others keep
 * theirs. */
static void test_one_step(struct net *j, struct pl_err *err)
{
	uint32_t n, *set = NULL;
	pl_ns was[12], all[12];
	bool right = true;
	int rc;

	pl_rewrite_tensors(j->r, &n);
	PL_TRY(pl_alloc(&set, n, sizeof(*set), err));
	for (uint32_t t = 0; t < n; t++)
		set[t] = t;
	right &= !pl_rewrite_only_step(j->r, 3); /* nothing is built yet */
	for (int turn = 0; turn < 3; turn++) {
		struct pl_bucketing b = { .n_sets = turn ? 1 : n, .set_of = set };

		right &= pl_rewrite_only_step(j->r, turn == 2 ? 3 : PL_NONE) == (turn == 2);
		PL_TRY(pl_rewrite_bucketing(j->r, &b, err));
		PL_TRY(pl_edit_settle(&j->e, err));
		for (uint32_t k = 0; k < 12; k++) {
			pl_ns step = pl_edit_step(&j->e, k);

			if (turn == 2)
				right &= step == (k == 3 ? all[k] : was[k]);
			*(turn ? &all[k] : &was[k]) = step;
		}
		right &= turn == 0 || all[3] != was[3];
		memset(set, 0, n * sizeof(*set));
		if (turn)
			pl_rewrite_undo(j->r, 2);
	}
	pl_rewrite_undo(j->r, 1);
out:
	ok(rc == 0 && right, "buckets of one step (%s)", err->msg);
	pl_free(set);
}

/* ---- ranks that are alike -------------------------------------------------------------------- */

/* The recorded step of the job n times over: every duration of work differs by up to `percent` %,
 * and the work of `slow` (PL_NONE: of no rank) is a tenth longer. */
static int add_noise(struct pl_graph *g, size_t n, unsigned percent, uint32_t slow,
		     struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[0];
	struct pl_gstep first = g->step[0], *st;
	uint64_t rng = 7;
	pl_ns from = 0;
	int rc = pl_grow(&g->step, &g->cap_steps, n, sizeof(*g->step), err);

	for (size_t k = 0; rc == 0 && k < n; k++) {
		st = &g->step[k];
		*st = (struct pl_gstep){ .number = (int64_t)k };
		g->n_steps = k + 1;
		PL_TRY(pl_alloc(&st->start, s->n_nodes, sizeof(pl_ns), err));
		PL_TRY(pl_alloc(&st->dur, s->n_nodes, sizeof(pl_ns), err));
		for (uint32_t i = 0; i < s->n_nodes; i++) {
			bool work = s->role[i] == PL_RO_COMPUTE;
			pl_ns d = first.dur[i];

			if (work && s->res[i] == slow)
				d += d / 10;
			if (work)
				d += (pl_ns)(pl_rng_next(&rng) % 1000) * d * percent / 100000;
			st->start[i] = from;
			st->dur[i] = d;
			for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
				st->start[i] = pl_max_i64(st->start[i], st->start[s->src[e]] +
										st->dur[s->src[e]]);
		}
		for (uint32_t i = 0; i < s->n_nodes; i++)
			from = pl_max_i64(from, st->start[i] + st->dur[i]);
	}
out:
	pl_free(first.start);
	pl_free(first.dur);
	return rc;
}

/* One rank of 8 works a tenth longer. With this noise of the work of a rank, how many ranks stay?
 */
static void test_significant(double work, int32_t stay, const char *what)
{
	const struct pl_search_noise noise = { .work = work, .step = 0.1 };
	struct pl_err err = { 0 };
	struct pl_graph small;
	double tolerance;
	bool reduced = false;
	struct net j;

	pl_graph_init(&small);
	if (!ok(net_init(&j, 5, 8, 200000, 200000, false, &err) == 0, "a job (%s)", err.msg))
		return;
	pl_rewrite_free(j.r);
	pl_edit_fini(&j.e);
	pl_sim_free(j.s);
	memset(&j.e, 0, sizeof(j.e));
	j.r = NULL;
	j.s = NULL;
	if (add_noise(&j.g, 12, 1, 0, &err) < 0 ||
	    pl_search_reduce(&j.g, &noise, &small, &reduced, &tolerance, &err) < 0)
		printf("# %s\n", err.msg);
	ok(reduced && small.n_ranks == stay, "%s", what);
	pl_graph_fini(&small);
	net_fini(&j);
}

static void test_alike(uint64_t seed, unsigned percent, bool slow, bool expected)
{
	struct pl_search_opts o = plain;
	struct pl_err err = { 0 };
	struct pl_graph small;
	struct pl_plan p;
	struct net j;
	double tolerance = -1, mean;
	bool reduced = false;
	int ranks, rc;

	o.algorithm = o.partition = true;
	if (!ok(net_init(&j, seed, 8, 200000, 200000, false, &err) == 0, "a job (%s)", err.msg))
		return;
	ranks = j.g.n_ranks;
	/* the rewriter of the fixture is that of one step */
	pl_rewrite_free(j.r);
	pl_edit_fini(&j.e);
	pl_sim_free(j.s);
	j.r = NULL;
	pl_graph_init(&small);
	rc = add_noise(&j.g, 12, percent, slow ? 0 : PL_NONE, &err);
	if (rc == 0)
		rc = pl_search_reduce(&j.g, &plain.noise, &small, &reduced, &tolerance, &err);
	ok(rc == 0 && pl_graph_valid(&j.g, &err) && reduced == expected,
	   "%d ranks, %u %% of noise%s: %d (%s)", ranks, percent, slow ? ", a slow one" : "",
	   small.n_ranks, err.msg);
	if (reduced)
		ok(small.n_ranks == 1 + slow && (percent ? tolerance > 0 : tolerance == 0) &&
			   pl_graph_valid(&small, &err),
		   "one rank of each kind; the step may be %.0f ns off (%s)", tolerance, err.msg);
	pl_graph_fini(&small);
	j.s = pl_sim_new(&j.g, &err);
	if (ok(j.s && pl_sim_edit(j.s, 0, j.g.n_steps, &j.e, &err) == 0 &&
		       (j.r = pl_rewrite_new(&j.e, &j.cost, &err)),
	       "the whole job (%s)", err.msg)) {
		double recorded = pl_edit_mean_step(&j.e);

		pl_plan_init(&p);
		ok(pl_search(&j.g, &j.cost, &o, &p, &err) == 0, "a plan (%s)", err.msg);
		mean = planned(&j, &p, &err);
		ok(fabs(mean - (double)p.model_ns) <= 1,
		   "what it predicts is its replay on all ranks (%.0f, %lld)", mean,
		   (long long)p.model_ns);
		ok(p.baseline_ns == (pl_ns)llround(recorded) && mean <= recorded + 1,
		   "so is what it starts from");
		if (pl_edit_part_steps(&j.e, &err) == 0)
			test_one_step(&j, &err);
		pl_plan_fini(&p);
	}
	net_fini(&j);
}

/* ---- memory, and nothing to plan ------------------------------------------------------------- */

static void test_memory(void)
{
	struct pl_search_opts o = plain;
	struct pl_err err = { 0 };
	struct pl_plan p;
	struct net j;
	int64_t peak;
	int saving = 0;

	if (!ok(net_init(&j, 5, 12, 100000, 20000, false, &err) == 0, "a job (%s)", err.msg))
		return;
	pl_plan_init(&p);
	o.accumulate = o.recompute = true;
	ok(pl_search(&j.g, &j.cost, &o, &p, &err) == 0 && p.peak_bytes > 0,
	   "a plan says what memory it takes (%s)", err.msg);
	peak = p.peak_bytes;
	pl_plan_fini(&p);
	pl_plan_init(&p);
	o.memory_bytes = peak - peak / 8;
	ok(pl_search(&j.g, &j.cost, &o, &p, &err) == 0 && p.peak_bytes <= o.memory_bytes,
	   "one that must take less does (%s)", err.msg);
	for (size_t i = 0; i < p.n_rw; i++)
		saving += p.rw[i].op == PL_RW_RECOMPUTE || p.rw[i].op == PL_RW_ACCUMULATE;
	ok(saving > 0, "... by making activations again, or in parts");
	ok(isfinite(planned(&j, &p, &err)), "... and can be carried out (%s)", err.msg);
	pl_plan_fini(&p);
	pl_plan_init(&p);
	o.memory_bytes = 1000;
	ok(pl_search(&j.g, &j.cost, &o, &p, &err) == PL_ENO && strstr(err.msg, "rank 0 needs"),
	   "what no plan fits is answered \"no\": %s", err.msg);
	ok(p.n_tensors == 12 && p.peak_bytes > 1000, "... with the smallest");
	pl_plan_fini(&p);
	net_fini(&j);
}

static void test_alone(void)
{
	static const char csv[] = "layer,forward_ns,backward_ns,param_bytes,activation_bytes\n"
				  "a,10,20,400,5\nb,30,40,400,5\n";
	struct pl_layers_opts o = { .n_ranks = 1 };
	struct pl_err err = { 0 };
	struct pl_graph g;
	struct pl_cost cost;
	struct pl_plan p;
	struct pl_in *in = pl_in_open_mem("alone", csv, strlen(csv), &err);

	pl_graph_init(&g);
	pl_plan_init(&p);
	if (ok(in && pl_derive_layers(in, &o, &g, &err) == 0 &&
		       pl_cost_fit(&g, NULL, &cost, &err) == 0,
	       "one rank alone (%s)", err.msg)) {
		ok(pl_search(&g, &cost, &plain, &p, &err) == 0 && !p.n_rw && p.complete,
		   "a plan without rewrites (%s)", err.msg);
		is_i64(p.predicted_ns, 100, "that changes nothing");
		is_i64(p.bound_ns, 100, "and cannot");
		pl_cost_fini(&cost);
	}
	pl_in_close(in);
	pl_plan_fini(&p);
	pl_graph_fini(&g);
}

/* ---- a strategy with candidates of its own --------------------------------------------------- */

/* One operation takes another time. */
struct timing {
	struct candidate head;
	uint32_t node;
	pl_ns dur;
};

static int apply_timing(struct worker *l, const struct candidate *c, struct pl_err *err)
{
	const struct timing *t = (const struct timing *)c;
	int rc = pl_edit_set_dur(&l->e, t->node, t->dur, err);

	return rc < 0 ? rc : pl_edit_settle(&l->e, err);
}

/* The means of the candidates on so many threads. */
static int simulate_timings(struct net *j, struct candidate *const *batch, size_t n, int threads,
			    struct pl_err *err)
{
	struct pl_pool *pool = pl_pool_new(threads, err);
	struct pl_search_opts o = { .pool = pool };
	struct candidate best = { .mean = 1 };
	struct search s = {
		.o = &o, .cost = &j->cost, .whole = &j->g, .g = &j->g, .sim = j->s, .best = &best
	};
	int rc = pool ? pl_search_workers_open(&s, err) : err->code;

	if (rc == 0)
		rc = pl_search_simulate(&s, false, batch, n, apply_timing, err);
	pl_search_workers_close(&s);
	pl_pool_free(pool);
	return rc;
}

/* The general part simulates candidates that know no buckets, each alone, on any number of threads.
 */
static void test_own_candidates(void)
{
	enum { N = 40 };
	struct timing timing[N];
	struct candidate *batch[N];
	struct pl_err err = { 0 };
	struct net j;
	int rc = net_init(&j, 5, 12, 100000, 1 << 20, false, &err);

	for (uint32_t i = 0; rc == 0 && i < N; i++) {
		timing[i] = (struct timing){ .node = i * 7 % j.e.n_nodes, .dur = 50000 * (i % 9) };
		batch[i] = &timing[i].head;
	}
	for (int threads = 1; rc == 0 && threads <= 3; threads += 2) {
		bool equal = true;

		rc = simulate_timings(&j, batch, N, threads, &err);
		for (uint32_t i = 0; rc == 0 && i < N; i++) {
			size_t mark = pl_edit_mark(&j.e);

			rc = pl_edit_set_dur(&j.e, timing[i].node, timing[i].dur, &err);
			if (rc == 0)
				rc = pl_edit_settle_full(&j.e, &err);
			equal &= timing[i].head.mean == pl_edit_mean_step(&j.e);
			pl_edit_undo(&j.e, mark);
			if (rc == 0)
				rc = pl_edit_settle_full(&j.e, &err);
			timing[i].head.mean = NAN;
		}
		ok(rc == 0 && equal, "candidates of another kind, each alone, %d threads (%s)",
		   threads, err.msg);
	}
	net_fini(&j);
}

int main(void)
{
	test_own_candidates();
	test_dp();
	ALONE(test_small());
	test_bound();
	ALONE(test_chain(1, 200));
	ALONE(test_chain(2, 350));
	ALONE(test_chain(3, SIZE(600, 100)));
	ALONE(test_chain(4, SIZE(1000, 150)));
	test_presets();
	test_deterministic();
	test_significant(0.03, 1, "SIGNIFICANT: 2.4 standard errors are noise");
	test_significant(0.02, 2, "SIGNIFICANT: 3.5 are not");
	test_alike(3, 0, false, true);
	test_alike(3, 4, false, true);
	test_alike(5, 4, true, true);
	test_alike(6, 1, false, true);
	for (uint64_t seed = 1; seed <= CASES(12); seed++)
		ALONE(test_incremental(seed));
	test_memory();
	test_alone();
	return done_testing();
}
