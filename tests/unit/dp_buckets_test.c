/* Buckets of the data-parallel engine: the default's, those of plans, and what plans get wrong. */
#include <stdlib.h>
#include <string.h>

#include "dp/dp.h"
#include "tap.h"
#include "train/worker.h"

/* Three layers, weight and bias each, in a slab aligned to 16 floats. */
static const struct pl_net_tensor net[] = {
	{ .name = (char *)"fc1.weight",
	  .n_dims = 2,
	  .dim = { 500, 600 },
	  .offset = 0,
	  .n = 300000 },
	{ .name = (char *)"fc1.bias", .n_dims = 1, .dim = { 500 }, .offset = 300000, .n = 500 },
	{ .name = (char *)"fc2.weight",
	  .n_dims = 2,
	  .dim = { 540, 500 },
	  .offset = 300512,
	  .n = 270000 },
	{ .name = (char *)"fc2.bias", .n_dims = 1, .dim = { 500 }, .offset = 570512, .n = 500 },
	{ .name = (char *)"fc3.weight",
	  .n_dims = 2,
	  .dim = { 10, 500 },
	  .offset = 571024,
	  .n = 5000 },
	{ .name = (char *)"fc3.bias", .n_dims = 1, .dim = { 10 }, .offset = 576032, .n = 10 },
};
#define N PL_LEN(net)

static int warnings;

static void say(void *arg, enum pl_level level, const char *text)
{
	(void)arg;
	(void)text;
	warnings += level == PL_LOG_WARN;
}

static const struct pl_log count_warnings = { .say = say };

/* "fc3.bias fc3.weight | ...": tensors by bucket, in the order of issue. */
static const char *text_of(const struct pl_dp_buckets *b)
{
	static char text[1024];
	size_t n = 0;

	text[0] = '\0';
	for (uint32_t k = 0; k < b->n; k++) {
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", k ? " |" : "");
		for (uint32_t i = b->v[k].first; i < b->v[k].first + b->v[k].n; i++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, " %s",
					      net[b->index[i]].name);
		if (b->v[k].parts > 1)
			n += (size_t)snprintf(text + n, sizeof(text) - n, " /%u", b->v[k].parts);
	}
	return text;
}

static int from_plan(const char *text, struct pl_dp_buckets *b, struct pl_plan *p,
		     struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem("plan", text, strlen(text), err);
	int rc;

	pl_plan_init(p);
	rc = pl_plan_read(in, "plan", p, err);
	pl_in_close(in);
	warnings = 0;
	if (rc == 0)
		rc = pl_dp_buckets(net, N, 0, PL_CA_AUTO, p, &count_warnings, b, err);
	return rc;
}

/* A plan without the tensors of its base: they are those of the network. */
static void test_by_hand(void)
{
	static const struct {
		const char *text, *says;
	} wrong[] = {
		{ "fuse-tensors fc1.weight fc2.weigth\n",
		  "plan: line 2, column 25: fuse-tensors: there is no tensor \"fc2.weigth\"; did "
		  "you "
		  "mean \"fc2.weight\"?; the plan is another job's, or" },
		{ "fuse-tensors fc1 fc3\norder nosuch fc1\n",
		  "plan: line 3, column 7: order: there is no tensor \"nosuch\"; the plan" },
		{ "partition-tensor weight 4\n", "did you mean \"fc1.weight\"?" },
		{ "algorithm tree fc2.weight fc9.bias\n", "plan: line 2, column 27: algorithm:" },
		{ "priority fc1.bias fc4.bias\n", "plan: line 2, column 19: priority:" },
		{ "fuse-tensors fc1 fc2\npartition-tensor fc1.weight 2\n",
		  "column 18: partition-tensor: \"fc1\" and \"fc1.weight\" both stand for the "
		  "tensor "
		  "fc1.weight" },
	};
	struct pl_dp_buckets b;
	struct pl_err err = { 0 };
	struct pl_plan p;

	ok(from_plan("paceline-plan 1\nfuse-tensors fc3 fc1.bias\npartition-tensor fc1.weight 4\n"
		     "algorithm tree fc1.weight\n",
		     &b, &p, &err) == 0,
	   "a plan without a base: %s", err.msg);
	is_str(text_of(&b), " fc2.weight fc2.bias | fc1.bias fc3.weight fc3.bias | fc1.weight /4",
	       "... is carried out, the default's buckets less what is taken out");
	ok(b.v[2].algo == PL_CA_TREE && b.v[0].algo == PL_CA_AUTO && !warnings,
	   "... with the algorithm of one");
	pl_dp_buckets_fini(&b);
	pl_plan_fini(&p);
	for (size_t i = 0; i < PL_LEN(wrong); i++) {
		char text[256];
		int rc;

		memset(&err, 0, sizeof(err));
		snprintf(text, sizeof(text), "paceline-plan 1\n%s", wrong[i].text);
		rc = from_plan(text, &b, &p, &err);
		ok(rc == PL_EDATA && strstr(err.msg, wrong[i].says), "refused: %s", err.msg);
		if (rc == 0)
			pl_dp_buckets_fini(&b);
		pl_plan_fini(&p);
	}
}

static void test_default(void)
{
	struct pl_dp_buckets b;
	struct pl_err err = { 0 };

	ok(pl_dp_buckets(net, N, 0, PL_CA_RING, NULL, NULL, &b, &err) == 0, "default");
	is_str(text_of(&b), " fc2.weight fc2.bias fc3.weight fc3.bias | fc1.weight fc1.bias",
	       "the first of 1 MiB, from the last tensor on");
	ok(b.v[0].contiguous && b.v[0].offset == 300512 && b.v[0].count == 576042 - 300512,
	   "neighbours lie in one stretch, gaps included");
	ok(b.v[0].algo == PL_CA_RING && b.v[0].parts == 1 && b.of[0] == 1 && b.of[5] == 0,
	   "algorithm, parts, bucket of a tensor");
	pl_dp_buckets_fini(&b);
	ok(pl_dp_buckets(net, N, 0.001, PL_CA_AUTO, NULL, NULL, &b, &err) == 0 && b.n == 5,
	   "a small limit: each that reaches it ends its bucket");
	pl_dp_buckets_fini(&b);
}

#define HEAD                                                                                       \
	"paceline-plan 1\n"                                                                        \
	"tensor fc3.bias 40\ntensor fc3.weight 20000\ntensor fc2.bias 2000\n"                      \
	"tensor fc2.weight 1080000\ntensor fc1.bias 2000\ntensor fc1.weight 1200000\n"

static void test_plans(void)
{
	static const char *const wrong[] = { "grad 5 600x500", "grad 5 500", "grad 5 500x600x1",
					     "grad 4 500x1", "grad 6" };
	struct pl_dp_buckets b;
	struct pl_err err = { 0 };
	struct pl_plan p;
	struct pl_job job;

	pl_job_init(&job);
	ok(from_plan(HEAD "fuse-tensors fc3.bias fc1.bias\npartition-tensor fc1.weight 4\n"
			  "algorithm tree fc1.weight\naccumulate 2\nprecision bf16\n",
		     &b, &p, &err) == 0,
	   "a plan: %s", err.msg);
	is_str(text_of(&b), " fc2.weight fc2.bias fc3.weight | fc1.bias fc3.bias | fc1.weight /4",
	       "the default's, less what is taken out; each when its last tensor is ready");
	ok(!b.v[1].contiguous && b.v[1].count == 510, "tensors apart are copied, without gaps");
	ok(b.v[2].algo == PL_CA_TREE && b.v[0].algo == PL_CA_AUTO, "the algorithm of one");
	ok(pl_train_worker_microbatches(&job, &p) == 2 && !warnings, "microbatches; all is ours");
	pl_job_fini(&job);
	pl_dp_buckets_fini(&b);
	pl_plan_fini(&p);

	ok(from_plan("paceline-plan 1\ntensor \"grad 0 10\" 40\ntensor \"grad 5 500x600\" 1200000\n"
		     "order \"grad 5 500x600\" \"grad 0 10\"\n",
		     &b, &p, &err) == 0,
	   "tensors by their number: %s", err.msg);
	is_str(text_of(&b), " fc1.weight | fc3.bias | fc2.weight fc2.bias fc3.weight | fc1.bias",
	       "what the plan does not name goes as by default");
	pl_dp_buckets_fini(&b);
	pl_plan_fini(&p);

	ok(from_plan("paceline-plan 1\ntensor \"bucket 0\" 4\ntensor \"bucket 1\" 4\n"
		     "fuse-tensors \"bucket 0\" \"bucket 1\"\n",
		     &b, &p, &err) == 0 &&
		   b.n == 1 && b.v[0].contiguous && b.v[0].n == 6,
	   "whole buckets of the default, fused: %s", err.msg);
	pl_dp_buckets_fini(&b);
	pl_plan_fini(&p);

	ok(from_plan("paceline-plan 1\ntensor conv1.weight 4\n", &b, &p, &err) == PL_EDATA &&
		   strstr(err.msg, "conv1.weight"),
	   "another job's plan is refused: %s", err.msg);
	pl_plan_fini(&p);
	for (size_t i = 0; i < PL_LEN(wrong); i++) {
		char text[128];

		memset(&err, 0, sizeof(err));
		snprintf(text, sizeof(text), "paceline-plan 1\ntensor \"%s\" 4\n", wrong[i]);
		ok(from_plan(text, &b, &p, &err) == PL_EDATA && strstr(err.msg, wrong[i]),
		   "and one whose %s has another shape", wrong[i]);
		pl_plan_fini(&p);
	}
}

int main(void)
{
	test_default();
	test_plans();
	test_by_hand();
	return done_testing();
}
