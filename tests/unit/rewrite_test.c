/*
 * Rewrites on graphs made from tables of layers: buckets against a model written down here,
 * building on against building anew, undoing, and what is refused.
 */
#include <math.h>
#include <stdlib.h>

#include "derive/layers.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"
#include "tap.h"

#define MAX_LAYERS 24

struct job {
	struct pl_graph g;
	struct pl_sim *s;
	struct pl_edit e;
	struct pl_rewriter *r;
	uint32_t n; /* layers */
	pl_ns fwd[MAX_LAYERS], bwd[MAX_LAYERS];
	int64_t bytes[MAX_LAYERS];
};

/* 500 ns and 4 bytes a ns, on a topology with one link, "nic". */
static struct pl_tlink nic = { "nic", PL_SCOPE_HOST, false, 4, 20 };
static struct pl_thost host = { "h", 0, 4 };
static struct pl_fit fit = { .kind = PL_K_COLLECTIVE,
			     .coll = PL_COLL_ALLREDUCE,
			     .n = 4,
			     .a_ns = 500,
			     .b_ns_per_byte = 0.25 };
static const struct pl_cost cost = {
	.topo = { .host = &host, .n_hosts = 1, .link = &nic, .n_links = 1, .n_ranks = 4 },
	.fit = &fit,
	.n_fits = 1,
	.overlap = 1
};

static pl_ns transfer(int64_t bytes, uint32_t n)
{
	const struct pl_cost_comm c = { .kind = PL_K_COLLECTIVE,
					.coll = PL_COLL_ALLREDUCE,
					.algo = PL_ALGO_RING,
					.bytes = bytes,
					.n = n };

	return pl_cost_transfer(&cost, &c);
}

static pl_ns layer_transfer(void *arg, int64_t bytes, uint32_t n)
{
	(void)arg;
	return transfer(bytes, n);
}

static void job_fini(struct job *j)
{
	pl_rewrite_free(j->r);
	pl_edit_fini(&j->e);
	pl_sim_free(j->s);
	pl_graph_fini(&j->g);
}

static bool job_init(struct job *j, uint64_t seed, uint32_t n, uint32_t ranks, struct pl_err *err)
{
	struct pl_layers_opts o = { .n_ranks = ranks, .transfer = layer_transfer };
	struct pl_buf text = { 0 };
	struct pl_in *in = NULL;
	uint64_t rng = seed;
	int rc;

	memset(j, 0, sizeof(*j));
	pl_graph_init(&j->g);
	j->n = n;
	PL_TRY(pl_buf_printf(&text, err,
			     "layer,forward_ns,backward_ns,param_bytes,activation_bytes\n"));
	for (uint32_t i = 0; i < n; i++) {
		j->fwd[i] = (pl_ns)(pl_rng_next(&rng) % 900) + 50;
		j->bwd[i] = (pl_ns)(pl_rng_next(&rng) % 1900) + 50;
		j->bytes[i] = (int64_t)(pl_rng_next(&rng) % 8000) + 4;
		PL_TRY(pl_buf_printf(&text, err, "L%u,%lld,%lld,%lld,100\n", i,
				     (long long)j->fwd[i], (long long)j->bwd[i],
				     (long long)j->bytes[i]));
	}
	in = pl_in_open_mem("layers", text.p, text.n, err);
	if (!in) {
		rc = err->code;
		goto out;
	}
	PL_TRY(pl_derive_layers(in, &o, &j->g, err));
	j->s = pl_sim_new(&j->g, err);
	if (!j->s) {
		rc = err->code;
		goto out;
	}
	PL_TRY(pl_sim_edit(j->s, 0, 1, &j->e, err));
	j->r = pl_rewrite_new(&j->e, &cost, err);
	rc = j->r ? 0 : err->code;
out:
	pl_in_close(in);
	pl_buf_fini(&text);
	return rc >= 0;
}

/* Base tensor i is that of layer n - 1 - i; buckets in order of issue, one channel. */
static pl_ns expected(const struct job *j, const uint32_t *set_of, uint32_t n_sets)
{
	pl_ns ready[MAX_LAYERS], t = 0, channel = 0;

	for (uint32_t i = 0; i < j->n; i++)
		t += j->fwd[i];
	for (uint32_t i = 0; i < j->n; i++) {
		t += j->bwd[j->n - 1 - i];
		ready[i] = t;
	}
	for (uint32_t s = 0; s < n_sets; s++) {
		int64_t bytes = 0;
		pl_ns at = channel;

		for (uint32_t i = 0; i < j->n; i++) {
			if (set_of[i] != s)
				continue;
			bytes += j->bytes[j->n - 1 - i];
			at = pl_max_i64(at, ready[i]);
		}
		channel = at + transfer(bytes, 4);
	}
	return pl_max_i64(channel, t);
}

/* A random partition, sets numbered by their last tensor. */
static uint32_t random_sets(uint64_t *rng, uint32_t n, uint32_t *set_of)
{
	uint32_t k = 1 + (uint32_t)(pl_rng_next(rng) % n), n_sets = 0, to[MAX_LAYERS];

	for (uint32_t i = 0; i < n; i++)
		set_of[i] = (uint32_t)(pl_rng_next(rng) % k);
	memset(to, 0xff, sizeof(to));
	for (uint32_t i = 0; i < n; i++) {
		bool last = true;

		for (uint32_t l = i + 1; l < n; l++)
			last &= set_of[l] != set_of[i];
		if (last)
			to[set_of[i]] = n_sets++;
	}
	for (uint32_t i = 0; i < n; i++)
		set_of[i] = to[set_of[i]];
	return n_sets;
}

static void test_buckets(uint64_t seed)
{
	struct pl_err err = { 0 };
	struct job j;
	uint32_t set_of[MAX_LAYERS];
	uint64_t rng = seed;
	bool right = true, full = true, undone = true;
	double recorded;
	size_t mark;

	if (!ok(job_init(&j, seed, 3 + (uint32_t)(seed % 20), 4, &err),
		"seed %d: a job of layers (%s)", (int)seed, err.msg)) {
		job_fini(&j);
		return;
	}
	recorded = pl_edit_mean_step(&j.e);
	for (int round = 0; round < 30 && !err.code; round++) {
		uint32_t n = random_sets(&rng, j.n, set_of);
		struct pl_edit copy;

		mark = pl_rewrite_mark(j.r);
		if (pl_rewrite_bucketing(j.r,
					 &(struct pl_bucketing){ .n_sets = n, .set_of = set_of },
					 &err) < 0 ||
		    pl_edit_settle(&j.e, &err) < 0)
			break;
		right &= pl_edit_step(&j.e, 0) == expected(&j, set_of, n);
		if (pl_edit_dup(&j.e, &copy, &err) == 0 && pl_edit_settle_full(&copy, &err) == 0)
			full &= pl_edit_step(&copy, 0) == pl_edit_step(&j.e, 0);
		pl_edit_fini(&copy);
		if (round % 4) { /* else built upon */
			double before;

			pl_rewrite_undo(j.r, mark);
			undone &= pl_edit_settle(&j.e, &err) == 0;
			before = pl_edit_mean_step(&j.e);
			undone &= round > 3 || before > 0;
		}
	}
	ok(right && !err.code, "buckets take what they should, built one upon the other (%s)",
	   err.msg);
	ok(full, "and what a full pass says");
	pl_rewrite_undo(j.r, 0);
	ok(undone && pl_edit_settle(&j.e, &err) == 0 && pl_edit_mean_step(&j.e) == recorded,
	   "undone, the step is the recorded one");
	job_fini(&j);
}

static int one(struct job *j, const char *text, pl_ns *step, struct pl_err *err)
{
	struct pl_plan p;
	struct pl_in *in;
	struct pl_buf b = { 0 };
	size_t mark = pl_rewrite_mark(j->r);
	int rc;

	pl_plan_init(&p);
	in = NULL;
	PL_TRY(pl_buf_printf(&b, err, "paceline-plan 1\n%s\n", text));
	in = pl_in_open_mem("plan", b.p, b.n, err);
	rc = in ? pl_plan_read(in, "plan", &p, err) : err->code;
	if (rc == 0)
		rc = pl_rewrite_plan(j->r, &p, err);
	if (rc == 0)
		*step = pl_edit_step(&j->e, 0);
	pl_rewrite_undo(j->r, mark);
	if (rc == 0)
		rc = pl_edit_settle(&j->e, err);
out:
	pl_in_close(in);
	pl_buf_fini(&b);
	pl_plan_fini(&p);
	return rc;
}

static void refuse(struct job *j, const char *text, const char *why)
{
	struct pl_err err = { 0 }, fine = { 0 };
	pl_ns step, before = pl_edit_step(&j->e, 0);
	int rc = one(j, text, &step, &err);

	ok(rc == PL_EDATA && strstr(err.msg, why) && strstr(err.msg, "line "),
	   "%.*s is refused: %s", (int)strcspn(text, "\n"), text, err.msg);
	ok(pl_edit_settle(&j->e, &fine) == 0 && pl_edit_step(&j->e, 0) == before,
	   "and has changed nothing");
}

/* Buckets of `limit` bytes, the first of `first` bytes; the gradient that fills one is its last. */
static uint32_t filled_sets(const struct job *j, int64_t first, int64_t limit, uint32_t *set_of)
{
	uint32_t set = 0;
	int64_t bytes = 0;

	for (uint32_t i = 0; i < j->n; i++) {
		set_of[i] = set;
		bytes += j->bytes[j->n - 1 - i];
		if (bytes < (set ? limit : first))
			continue;
		set++;
		bytes = 0;
	}
	return set + (bytes > 0);
}

static void test_bucket_mb(void)
{
	struct pl_err err = { 0 };
	struct job j;
	uint32_t set_of[MAX_LAYERS], n;
	pl_ns step = 0, base;
	struct pl_plan p;
	struct pl_buckets b = { 0 };
	bool same = true;

	if (!ok(job_init(&j, 11, 20, 4, &err), "a job of twenty layers (%s)", err.msg)) {
		job_fini(&j);
		return;
	}
	base = pl_edit_step(&j.e, 0);
	for (int64_t limit = 1; limit < 80000; limit = limit * 3 + 1000) {
		char text[64];

		snprintf(text, sizeof(text), "bucket-mb %.17g", (double)limit / (1 << 20));
		n = filled_sets(&j, limit, limit, set_of);
		ok(one(&j, text, &step, &err) == 0 && step == expected(&j, set_of, n),
		   "%s: %u buckets (%s)", text, n, err.msg);
		if (limit == 1)
			ok(n == j.n && step == base, "buckets of one gradient are as recorded");
	}
	n = filled_sets(&j, 1 << 20, 1, set_of);
	ok(n == 1 && one(&j, "bucket-mb 0.000001 first=1", &step, &err) == 0 &&
		   step == expected(&j, set_of, n),
	   "a first bucket of another size (%s)", err.msg);

	/* the sets that settings of frameworks get */
	pl_plan_init(&p);
	for (uint32_t i = 0; i < j.n && err.code == 0; i++) {
		char name[16];

		snprintf(name, sizeof(name), "L%u", i);
		if (pl_plan_add_tensor(&p, name, j.bytes[j.n - 1 - i], false, &err) < 0)
			break;
	}
	n = filled_sets(&j, 10000, 10000, set_of);
	ok(pl_plan_add(&p,
		       &(struct pl_rewrite){ .op = PL_RW_BUCKET_MB,
					     .x = 10000.0 / (1 << 20),
					     .to = -1,
					     .alone_ns = INT64_MIN,
					     .in_plan_ns = INT64_MIN },
		       &err) == 0 &&
		   pl_plan_buckets(&p, NULL, &b, &err) == 0 && b.n_sets == n,
	   "a plan has as many sets (%s)", err.msg);
	for (uint32_t i = 0; b.set && i < j.n; i++)
		same &= b.set[i] == set_of[i];
	ok(same, "and the same tensors in each");
	pl_plan_buckets_fini(&b);
	pl_plan_fini(&p);
	job_fini(&j);
}

static void test_plans(void)
{
	static const char *const together[] = { "fuse-ops \"forward L0\" \"forward L1\"",
						"recompute L2" };
	struct pl_err err = { 0 };
	struct job j;
	pl_ns base, step = 0, sum_f = 0, sum_b = 0, tree = 0, ring = 0;

	if (!ok(job_init(&j, 7, 5, 4, &err), "a job of five layers (%s)", err.msg)) {
		job_fini(&j);
		return;
	}
	base = pl_edit_step(&j.e, 0);
	for (uint32_t i = 0; i < j.n; i++) {
		sum_f += j.fwd[i];
		sum_b += j.bwd[i];
	}
	ok(one(&j, "fuse-tensors \"grad L4\" \"grad L3\" \"grad L2\" \"grad L1\" \"grad L0\"",
	       &step, &err) == 0 &&
		   step == expected(&j, (uint32_t[MAX_LAYERS]){ 0 }, 1),
	   "all tensors as one (%s)", err.msg);
	ok(one(&j, "algorithm tree", &step, &err) == 0 && step > base, "a slower algorithm (%s)",
	   err.msg);
	ok(one(&j, "algorithm tree \"grad L0\"\nfuse-tensors \"grad L1\" \"grad L0\"", &step,
	       &err) == 0 &&
		   one(&j, "fuse-tensors \"grad L1\" \"grad L0\"\nalgorithm tree \"grad L0\"",
		       &tree, &err) == 0 &&
		   one(&j, "fuse-tensors \"grad L1\" \"grad L0\"", &ring, &err) == 0 &&
		   step == tree && step > ring,
	   "the algorithm of a tensor that is fused later (%s)", err.msg);
	ok(one(&j, "bandwidth nic x 4", &step, &err) == 0 && step < base, "a faster link (%s)",
	   err.msg);
	ok(one(&j, "ranks 128", &step, &err) == 0 && step > base, "more ranks (%s)", err.msg);
	ok(one(&j, "order \"grad L0\" \"grad L1\" \"grad L2\" \"grad L3\" \"grad L4\"", &step,
	       &err) == 0 &&
		   step >= sum_f + sum_b,
	   "the last one first (%s)", err.msg);
	ok(one(&j, "speed x 2", &step, &err) == 0 && step < base, "faster devices (%s)", err.msg);
	ok(one(&j, "recompute L2", &step, &err) == 0 && step >= base && step <= base + j.fwd[2],
	   "a layer made again (%s)", err.msg);
	refuse(&j, "recompute L2\nrecompute L2", "already");
	ok(one(&j, "precision bf16 x 0.5 \"forward L0\"", &step, &err) == 0 &&
		   step == base - (j.fwd[0] - (pl_ns)((double)j.fwd[0] * 0.5 + 0.5)),
	   "an operation in half precision (%s)", err.msg);
	ok(one(&j, "precision bf16", &step, &err) == 0 && step < base,
	   "operations of a device in half precision (%s)", err.msg);
	for (int issue = 0; issue < 2; issue++) {
		for (uint32_t i = 0; i < j.e.n_nodes; i++)
			if (j.e.node[i].role == PL_RO_COMPUTE)
				j.e.node[i].kind = issue ? PL_K_COLLECTIVE : PL_K_HOST_OP;
		ok(one(&j, "precision bf16", &step, &err) == 0 && step == base,
		   "hosts gain nothing from it that is not said%s (%s)",
		   issue ? ", where they issue communication neither" : "", err.msg);
	}
	for (uint32_t i = 0; i < j.e.n_nodes; i++)
		if (j.e.node[i].role == PL_RO_COMPUTE)
			j.e.node[i].kind = PL_K_HOST_OP;
	ok(one(&j, "fuse-ops \"forward L0\" \"forward L1\" x 0.5", &step, &err) == 0 && step < base,
	   "two operations as one (%s)", err.msg);
	for (size_t i = 0; i < PL_LEN(together); i++) {
		static const char half[] = "precision bf16 x 0.5 \"forward L1\" \"forward L2\"";
		char text[2][160];
		pl_ns then = 0;

		snprintf(text[0], sizeof(text[0]), "%s\n%s", half, together[i]);
		snprintf(text[1], sizeof(text[1]), "%s\n%s", together[i], half);
		ok(one(&j, text[0], &step, &err) == 0 && one(&j, text[1], &then, &err) == 0 &&
			   step == then,
		   "operations in half precision, then %s: %lld, in another order %lld (%s)",
		   together[i], (long long)step, (long long)then, err.msg);
	}
	ok(one(&j, "accumulate 2", &step, &err) == 0 && step >= base - 2 * (pl_ns)j.n - 2,
	   "two microbatches leave less to hide behind (%s)", err.msg);
	ok(pl_edit_step(&j.e, 0) == base, "and all of it is undone");
	ok(one(&j, "remove kind=comm", &step, &err) == 0 && step == sum_f + sum_b,
	   "communication that takes no time (%s)", err.msg);
	ok(one(&j, "scale name=\"forward L0\" rank=0..3 by 0.5", &step, &err) == 0 &&
		   step == base - (j.fwd[0] - (pl_ns)((double)j.fwd[0] * 0.5 + 0.5)),
	   "an operation that takes half of its time (%s)", err.msg);
	ok(one(&j, "set name=forward?L[12] to=7ns", &step, &err) == 0 &&
		   step == base - j.fwd[1] - j.fwd[2] + 14,
	   "two operations that take 7 ns (%s)", err.msg);
	ok(one(&j, "set name=forward?L0 rank=1.. to=7ns\nfix name=forward?L0 to median", &step,
	       &err) == 0 &&
		   step == base,
	   "an operation that takes the recorded median of its peers (%s)", err.msg);
	refuse(&j, "scale kind=coll by 2", "no kind matches \"coll\"");
	refuse(&j, "remove rank=77", "no operation of the graph has rank=77; there are rank=");
	refuse(&j, "fuse-tensors \"grad L4\" \"grad L9\"", "grad L9");
	refuse(&j, "fuse-tensors \"grad 0 4\" \"grad 1\"", "older recording");
	ok(one(&j, "accumulate 65536\naccumulate 32768", &step, &err) == PL_ELIMIT,
	   "too many microbatches are refused (%s)", err.msg);
	memset(&err, 0, sizeof(err));
	refuse(&j, "bandwidth ib x 2", "ib");
	refuse(&j, "recompute L7", "L7");
	refuse(&j, "fuse-ops \"forward L0\" \"forward L2\"", "follow");
	refuse(&j, "speed x 2 \"rank 77\"", "no such rank");
	job_fini(&j);
}

/* ---- lines that name tensors, against who reads the plan alone ---------------------------------
 */

static int random_line(uint64_t *rng, uint32_t n, struct pl_buf *text, struct pl_err *err)
{
	uint32_t what = (uint32_t)(pl_rng_next(rng) % 8), at[MAX_LAYERS], k;
	int rc;

	for (uint32_t i = 0; i < n; i++)
		at[i] = i;
	for (uint32_t i = n; i-- > 1;) {
		uint32_t other = (uint32_t)(pl_rng_next(rng) % (i + 1)), x = at[i];

		at[i] = at[other];
		at[other] = x;
	}
	if (what == 0)
		return pl_buf_printf(text, err, "partition-tensor \"grad L%u\" %u\n", at[0],
				     2 + (uint32_t)(pl_rng_next(rng) % 9));
	k = (what > 4) + 1 + (uint32_t)(pl_rng_next(rng) % 3);
	rc = pl_buf_printf(text, err, what > 4 ? "order" : "fuse-tensors");
	for (uint32_t i = 0; rc == 0 && i < k; i++)
		rc = pl_buf_printf(text, err, " \"grad L%u\"", at[i]);
	return rc < 0 ? rc : pl_buf_printf(text, err, "\n");
}

/* Both refuse the plan, or both have the same sets in the same order in as many parts. */
static int same_sets(struct job *j, const char *text, bool *same, bool *refused, struct pl_err *err)
{
	struct pl_err why[2] = { { 0 }, { 0 } };
	uint32_t set_of[MAX_LAYERS];
	struct pl_buckets b = { 0 };
	size_t mark = pl_rewrite_mark(j->r);
	struct pl_plan p;
	struct pl_in *in;
	int rc, here, there;

	pl_plan_init(&p);
	in = pl_in_open_mem("plan", text, strlen(text), err);
	PL_TRY(in ? pl_plan_read(in, "plan", &p, err) : err->code);
	PL_TRY(pl_rewrite_base(j->r, &p, err));
	here = pl_rewrite_plan(j->r, &p, &why[0]);
	there = pl_plan_buckets(&p, NULL, &b, &why[1]);
	*refused = here < 0;
	*same = here == there && (here == 0 || !strcmp(why[0].msg, why[1].msg));
	if (here == 0 && there == 0)
		*same = pl_rewrite_buckets(j->r, set_of) == b.n_sets;
	for (uint32_t t = 0; here == 0 && *same && t < j->n; t++)
		*same = set_of[t] == b.set[t] &&
			pl_rewrite_comm(j->r, t).parts == b.parts[b.set[t]];
	rc = 0;
out:
	pl_rewrite_undo(j->r, mark);
	pl_plan_buckets_fini(&b);
	pl_in_close(in);
	pl_plan_fini(&p);
	return rc;
}

static void test_lines(void)
{
	struct pl_err err = { 0 };
	struct pl_buf text = { 0 };
	uint32_t n_same = 0, n_refused = 0, n = 400;
	uint64_t rng = 5;
	struct job j;
	int rc = job_init(&j, 3, 9, 2, &err) ? 0 : -1;

	for (uint32_t round = 0; rc == 0 && round < n; round++) {
		bool same = false, refused = false;

		text.n = 0;
		PL_TRY(pl_buf_printf(&text, &err, "paceline-plan 1\n"));
		for (uint32_t i = 0; rc == 0 && i <= round % 5; i++)
			rc = random_line(&rng, j.n, &text, &err);
		if (rc == 0)
			rc = same_sets(&j, (const char *)text.p, &same, &refused, &err);
		n_same += same;
		n_refused += refused;
		if (!same)
			printf("# %s\n", (const char *)text.p);
	}
out:
	ok(rc == 0 && n_same == n, "%u of %u plans are carried out as they are read (%s)", n_same,
	   n, err.msg);
	ok(n_refused > n / 20 && n_refused < n / 2, "%u of them are refused by both", n_refused);
	pl_buf_fini(&text);
	job_fini(&j);
}

/* As paceline-plan(5) has it; base tensor i is that of layer n - 1 - i. */
static void test_order(void)
{
	static const struct {
		const char *text;
		uint32_t set_of[5];
	} c[] = {
		{ "order \"grad L0\" \"grad L2\"", { 0, 1, 4, 3, 2 } },
		{ "order \"grad L3\" \"grad L4\"", { 1, 0, 2, 3, 4 } },
		{ "order \"grad L3\" \"grad L4\"\norder \"grad L2\" \"grad L3\"",
		  { 1, 2, 0, 3, 4 } },
		{ "fuse-tensors \"grad L4\" \"grad L1\"\norder \"grad L1\" \"grad L3\"",
		  { 0, 2, 1, 0, 3 } },
		{ "fuse-tensors \"grad L4\" \"grad L3\" \"grad L2\"\nfuse-tensors \"grad L3\"",
		  { 1, 0, 1, 2, 3 } },
		{ "fuse-tensors \"grad L4\" \"grad L3\"\nfuse-tensors \"grad L3\" \"grad L2\"",
		  { 0, 1, 1, 2, 3 } },
	};
	struct pl_err err = { 0 };
	struct job j;

	if (!ok(job_init(&j, 7, 5, 4, &err), "a job of five layers again (%s)", err.msg)) {
		job_fini(&j);
		return;
	}
	for (size_t i = 0; i < PL_LEN(c); i++) {
		uint32_t n = 0;
		pl_ns step = 0;

		for (uint32_t t = 0; t < 5; t++)
			n = c[i].set_of[t] >= n ? c[i].set_of[t] + 1 : n;
		ok(one(&j, c[i].text, &step, &err) == 0 && step == expected(&j, c[i].set_of, n),
		   "places change hands, case %zu (%s)", i, err.msg);
	}
	refuse(&j, "order \"grad L4\" \"grad L4\"", "twice");
	job_fini(&j);
}

static int rewrite_graph(const struct pl_graph *g, const char *text, struct pl_err *err)
{
	struct job k = { .g = *g };
	pl_ns step;
	int rc;

	memset(err, 0, sizeof(*err));
	k.s = pl_sim_new(&k.g, err);
	rc = k.s ? pl_sim_edit(k.s, 0, 1, &k.e, err) : err->code;
	k.r = rc < 0 ? NULL : pl_rewrite_new(&k.e, &cost, err);
	rc = k.r ? one(&k, text, &step, err) : err->code;
	pl_rewrite_free(k.r);
	pl_edit_fini(&k.e);
	pl_sim_free(k.s);
	return rc;
}

/* Any node can be named as the one that makes a gradient. One of the rank that sends the gradient
 * is taken, one of another rank is refused. */
static void test_producers(void)
{
	static const char *const text[] = { "algorithm tree", "accumulate 2",
					    "fuse-tensors \"grad L2\" \"grad L0\"" };
	uint32_t wrong = 0, taken = 0, refused = 0;
	struct pl_err err = { 0 };
	struct job j;

	ok(job_init(&j, 5, 3, 2, &err), "a job of three layers (%s)", err.msg);
	for (uint32_t t = 0; t < j.g.n_tensors; t++) {
		struct pl_tensor *x = &j.g.tensor[t];
		const struct pl_shape *sh = &j.g.shape[0];
		const uint32_t was = x->producer;

		for (uint32_t node = 0; x->role == PL_TR_GRAD && node < sh->n_nodes; node++)
			for (size_t i = 0; i < PL_LEN(text); i++) {
				bool same =
					pl_node_rank(&j.g, sh, node) == pl_node_rank(&j.g, sh, was);
				int rc;

				x->producer = node;
				rc = rewrite_graph(&j.g, text[i], &err);
				taken += same && rc == 0;
				refused += !same && rc == PL_EDATA && strstr(err.msg, "\"grad L");
				wrong += same ? rc != 0 : rc != PL_EDATA;
			}
		x->producer = was;
	}
	ok(!wrong && taken > 100 && refused > 100,
	   "%u makers of gradients are taken, %u on other ranks are refused (%s)", taken, refused,
	   err.msg);
	job_fini(&j);
}

/* Compute of the batch is the same in k parts; the last gradients are made in the last of them. */
static pl_ns accumulated(const struct job *j, double k, double speed, int again)
{
	double whole = 0, f = 0, t, channel = 0;

	for (uint32_t i = 0; i < j->n; i++) {
		f += (double)j->fwd[i] / speed;
		whole += ((double)j->fwd[i] + (double)j->bwd[i]) / speed;
	}
	if (again >= 0)
		whole += (double)j->fwd[again] / speed;
	t = whole * (k - 1) / k + f / k;
	for (uint32_t i = j->n; i-- > 0;) {
		t += (double)(j->bwd[i] + ((int)i == again ? j->fwd[i] : 0)) / speed / k;
		channel =
			(t > channel ? t : channel) + (double)layer_transfer(NULL, j->bytes[i], 4);
	}
	return (pl_ns)(channel > t ? channel : t);
}

static void test_accumulate(void)
{
	static const struct {
		const char *text;
		double k, speed;
		int again;
	} c[] = {
		{ "accumulate 4", 4, 1, -1 },
		{ "speed x 2\naccumulate 4", 4, 2, -1 },
		{ "accumulate 4\nspeed x 2", 4, 2, -1 },
		{ "recompute L4\naccumulate 2", 2, 1, 4 },
		{ "accumulate 2\nrecompute L4", 2, 1, 4 },
		{ "recompute L0\naccumulate 2\naccumulate 2", 4, 1, 0 },
		{ "accumulate 2\nspeed x 3\nrecompute L0\naccumulate 3", 6, 3, 0 },
	};
	struct pl_err err = { 0 };
	struct job j;

	if (!ok(job_init(&j, 11, 5, 4, &err), "a job of five layers again (%s)", err.msg)) {
		job_fini(&j);
		return;
	}
	for (size_t i = 0; i < PL_LEN(c); i++) {
		pl_ns want = accumulated(&j, c[i].k, c[i].speed, c[i].again), step = 0;
		int rc = one(&j, c[i].text, &step, &err);

		ok(rc == 0 && llabs(step - want) <= 25,
		   "microbatches, case %zu: %lld, should be %lld (%s)", i, (long long)step,
		   (long long)want, err.msg);
	}
	refuse(&j, "recompute L1 L2 L1", "twice");
	job_fini(&j);
}

/* What may be wrong: the time of a tree where each rank may have one link or many, and that of a
 * ring, which is assumed. */
static void test_doubt(void)
{
	const struct pl_rewrite rw = { .op = PL_RW_ALGORITHM, .word = (char *)"tree" };
	struct pl_rewrite_basis basis = { 0 };
	double wrong = 0, links = 0, all = 0;
	struct pl_err err = { 0 };
	struct job j;

	ok(job_init(&j, 5, 3, 4, &err) && pl_rewrite(j.r, &rw, &err) == 0, "a tree (%s)", err.msg);
	for (uint32_t t = 0; t < j.n; t++) {
		struct pl_cost_comm c = pl_rewrite_comm(j.r, t);
		double after = (double)pl_cost_transfer(&cost, &c), ring;

		c.pairs = true;
		links += fabs(after - (double)pl_cost_transfer(&cost, &c));
		c.algo = c.was;
		ring = (double)pl_cost_transfer(&cost, &c);
		wrong += fabs(after - ring);
		all += after;
	}
	pl_rewrite_bases(j.r, &basis);
	ok(links > 0 && links + wrong < all && fabs(basis.error - (links + wrong) / all) < 1e-9,
	   "%.3f of the time is in doubt, %.3f for the links", basis.error, links / all);
	basis = (struct pl_rewrite_basis){ .ranks = 16, .rearranged = true, .at_once = true };
	pl_rewrite_bases(j.r, &basis);
	ok(basis.ranks == 16 && basis.rearranged && basis.at_once && basis.error > 0,
	   "what an earlier plan says of the prediction stays");
	job_fini(&j);
}

/* Let communication begin when its gradient is ready, and let the first transfer of each rank end
 * `more` ns after the second begins. */
static int overlap(struct job *j, pl_ns more, struct pl_err *err)
{
	uint32_t v[4], n = 0;
	int rc = 0;

	for (uint32_t i = 0; i < j->e.n_nodes; i++)
		if (j->e.node[i].role == PL_RO_TRANSFER && n < PL_LEN(v))
			v[n++] = i;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t x = j->e.node[v[i]].out; x != PL_NONE; x = j->e.edge[x].out_next)
			if (j->e.node[j->e.edge[x].dst].role == PL_RO_ARRIVE)
				PL_TRY(pl_edit_drop_edge(&j->e, x, err));
	PL_TRY(pl_edit_settle(&j->e, err));
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < n; k++)
			if (j->e.node[v[k]].res == j->e.node[v[i]].res &&
			    j->e.node[v[k]].start > j->e.node[v[i]].start)
				PL_TRY(pl_edit_set_dur(
					&j->e, v[i],
					j->e.node[v[k]].start - j->e.node[v[i]].start + more, err));
	PL_TRY(pl_edit_settle(&j->e, err));
	j->r = pl_rewrite_new(&j->e, &cost, err);
	rc = j->r ? 0 : err->code;
out:
	return rc;
}

/* Microbatches leave transfers that touch one another as recorded. Those that overlap shared their
 * link, so they are built again. */
static void test_overlaps(void)
{
	for (pl_ns more = 0; more < 2; more++) {
		const struct pl_rewrite rw = { .op = PL_RW_ACCUMULATE, .k = 2 };
		struct pl_rewrite_basis basis = { 0 };
		struct pl_err err = { 0 };
		struct job j;
		bool fine = job_init(&j, 5, 2, 2, &err);

		pl_rewrite_free(j.r);
		j.r = NULL;
		fine = fine && overlap(&j, more, &err) == 0 && pl_rewrite(j.r, &rw, &err) == 0;
		if (fine)
			pl_rewrite_bases(j.r, &basis);
		ok(fine && basis.as_recorded == !more, "transfers that overlap by %d ns (%s)",
		   (int)more, err.msg);
		job_fini(&j);
	}
}

int main(void)
{
	test_doubt();
	test_overlaps();
	test_producers();
	test_accumulate();
	test_order();
	test_lines();
	for (uint64_t seed = 1; seed <= 24; seed++)
		test_buckets(seed);
	test_bucket_mb();
	test_plans();
	return done_testing();
}
