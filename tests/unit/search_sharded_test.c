/* Plans of jobs that shard their parameters are refused, because plan knows no such groups. */
#include "graph_fixture.h"
#include "search/search.h"

static pl_id thread[2], worker[2];
static uint32_t seg[2];

static void on_both(unsigned kind, bool comm, const char *name, int64_t start, int64_t end)
{
	struct pl_member m[2];

	for (uint32_t r = 0; r < 2; r++)
		m[r] = (struct pl_member){ seg[r], ev(seg[r], kind, comm ? worker[r] : thread[r],
						      name, start, end, 0) };
	if (comm)
		match(0, m, 2);
}

/* A step with these collectives in the forward and in the backward pass, and after the optimiser.
 * Returns what the search says. */
static int plan_of(const char *forward, const char *backward, const char *after, struct pl_err *err)
{
	struct pl_search_opts o = { .preset = PL_PRESET_BEST };
	struct pl_cost cost;
	struct pl_plan p;
	int rc;

	begin_trace();
	for (int32_t r = 0; r < 2; r++) {
		seg[r] = segment();
		thread[r] = track(seg[r], r, -1, "100");
		worker[r] = track(seg[r], r, -1, "101");
		step(seg[r], thread[r], 1, 0, 1000);
	}
	on_both(PL_K_HOST_OP, false, "aten::linear", 10, 300);
	on_both(PL_K_COLLECTIVE, true, forward, 100, 140);
	on_both(PL_K_HOST_OP, false, "autograd::engine::evaluate_function: MmBackward0", 310, 600);
	on_both(PL_K_COLLECTIVE, true, backward, 400, 440);
	on_both(PL_K_HOST_OP, false, "autograd::engine::evaluate_function: MmBackward0", 610, 700);
	on_both(PL_K_HOST_OP, false, "Optimizer.step#SGD.step", 710, 800);
	on_both(PL_K_COLLECTIVE, true, after, 820, 840);
	on_both(PL_K_COLLECTIVE, true, after, 850, 870);
	pl_plan_init(&p);
	rc = build() ? pl_cost_fit(&graph, NULL, &cost, err) : -1;
	if (rc == 0) {
		rc = pl_search(&graph, &cost, &o, &p, err);
		pl_cost_fini(&cost);
	}
	pl_plan_fini(&p);
	end_trace();
	return rc;
}

int main(void)
{
	struct pl_err err = { 0 };

	ok(plan_of("gloo:all_gather", "gloo:all_gather", "gloo:all_reduce", &err) == PL_ENO &&
		   strstr(err.msg, "parameters are sharded: 2 all-gathers"),
	   "parameters that are gathered in both passes");
	memset(&err, 0, sizeof(err));
	ok(plan_of("gloo:all_reduce", "gloo:all_reduce", "gloo:all_gather", &err) == 0,
	   "gathered behind the optimiser: the gradients can be planned");
	memset(&err, 0, sizeof(err));
	ok(plan_of("gloo:all_gather", "gloo:all_reduce", "gloo:all_reduce", &err) == 0,
	   "one all-gather is not yet a sharded job");
	return done_testing();
}
