/* The report for programs: paceline.replay/1. */
#include <math.h>

#include "program.h"

/* A section, as a member of the object. */
static void put_table(struct pl_writer *w, const char *key, const struct report *r,
		      enum section which)
{
	struct pl_table t;

	make_table(r, which, 0, &t);
	pl_json_key(w, key);
	pl_table_json(&t, w);
	pl_table_fini(&t);
}

void put_changes(struct pl_writer *w, const struct changes *x)
{
	if (x->first == x->plan.n_rw)
		return;
	pl_json_key(w, "changes");
	pl_json_open(w, '[');
	for (size_t i = x->first; i < x->plan.n_rw; i++) {
		pl_json_open(w, '{');
		pl_json_str(w, "change", x->plan.rw[i].text);
		if (x->hits_of_a) {
			pl_json_int(w, "a_operations", (int64_t)x->hits_of_a[i]);
			pl_json_int(w, "b_operations", (int64_t)x->hits[i]);
		} else if (x->hits) {
			pl_json_int(w, "operations", (int64_t)x->hits[i]);
		}
		pl_json_close(w);
	}
	pl_json_close(w);
}

static void put_expanded(struct pl_writer *w, const struct config *c, const struct report *r)
{
	if (!c->expand)
		return;
	pl_json_key(w, "expanded");
	pl_json_open(w, '{');
	pl_json_str(w, "algorithm", pl_plan_algorithm_name((unsigned)c->expand - 1));
	pl_json_int(w, "collectives", (int64_t)r->expanded.collectives);
	pl_json_int(w, "messages", (int64_t)r->expanded.messages);
	pl_json_int(w, "left", (int64_t)r->expanded.left);
	pl_json_close(w);
}

static void put_summary(struct pl_writer *w, const struct config *c, const struct report *r)
{
	bool what_if = isfinite(r->predicted_mean);

	pl_json_real(w, "mean_abs_error", r->mean_abs_error);
	pl_json_real(w, "recorded_mean_ns", r->recorded_mean);
	pl_json_real(w, "replayed_mean_ns", r->replayed_mean);
	if (r->overlap) {
		pl_json_real(w, "recorded_period_mean_ns", r->recorded_step);
		pl_json_real(w, "replayed_period_mean_ns", r->replayed_step);
		if (what_if) {
			pl_json_real(w, "predicted_period_mean_ns", r->predicted_step);
			pl_json_real(w, "predicted_period_low_ns",
				     r->predicted_step +
					     low_ns(r, r->trust.first_low, r->replayed_step));
			pl_json_real(w, "predicted_period_high_ns",
				     r->predicted_step +
					     high_ns(r, r->trust.first_high, r->replayed_step));
		}
	}
	if (what_if) {
		pl_json_real(w, "predicted_mean_ns", r->predicted_mean);
		if (doubt(r) > 0)
			pl_json_real(w, "predicted_doubt_ns", doubt(r));
		pl_json_real(w, "predicted_low_ns",
			     r->predicted_mean + low_ns(r, r->trust.low, r->replayed_mean));
		pl_json_real(w, "predicted_high_ns",
			     r->predicted_mean + high_ns(r, r->trust.high, r->replayed_mean));
		if (is_unreliable(r))
			pl_json_bool(w, "not_reliable", true);
	}
	if (r->trust.extra.profiler > 0)
		pl_json_real(w, "profiler_share", r->trust.extra.profiler);
	if (r->trust.extra.memory > 0)
		pl_json_real(w, "new_memory_share", r->trust.extra.memory);
	if (what_if && r->basis.assumed)
		pl_json_bool(w, "rings_assumed", true);
	if (what_if && r->basis.links_assumed)
		pl_json_bool(w, "links_assumed", true);
	if (what_if && r->basis.links_unknown)
		pl_json_bool(w, "links_unknown", true);
	if (what_if && r->basis.batch)
		pl_json_int(w, "recorded_samples", r->basis.batch);
	if (isfinite(r->bias_mean)) {
		pl_json_real(w, "model_bias_ns", r->bias_mean);
		pl_json_bool(w, "model_bias_left_out", r->bias_out);
	}
	put_expanded(w, c, r);
	pl_json_bool(w, "stepless", r->g.stepless);
	if (r->n_folded) {
		pl_json_key(w, "folded");
		pl_json_open(w, '{');
		pl_json_str(w, "how", c->fold == FOLD_MEDIAN ? "median" : "mean");
		pl_json_int(w, "steps", (int64_t)r->n_folded);
		pl_json_int(w, "of", (int64_t)r->n_recorded);
		pl_json_close(w);
	}
	pl_json_int(w, "operations", (int64_t)r->ops);
	pl_json_str(w, "starts_of", r->start_device ? "device" : "all");
	pl_json_int(w, "starts", (int64_t)r->n_starts);
	if (r->n_starts) {
		pl_json_int(w, "start_error_p50_ns", r->start_p50);
		pl_json_int(w, "start_error_p95_ns", r->start_p95);
		pl_json_int(w, "start_error_max_ns", r->start_max);
	}
	/* what the rest is of */
	pl_json_str(w, "describes", what_if ? "predicted" : "replayed");
	pl_json_int(w, "span_ns", r->path.length);
	pl_json_real(w, "unexplained_share", r->unexplained_share);
}

static void put_rank(struct pl_writer *w, const struct pl_rank_time *t)
{
	pl_json_open(w, '{');
	pl_json_int(w, "rank", t->rank);
	pl_json_int(w, "span_ns", t->span_ns);
	pl_json_int(w, "compute_ns", t->compute_ns);
	pl_json_int(w, "comm_exposed_ns", t->comm_exposed_ns);
	pl_json_int(w, "comm_overlapped_ns", t->comm_overlapped_ns);
	pl_json_int(w, "copy_ns", t->copy_ns);
	pl_json_int(w, "host_ns", t->host_ns);
	pl_json_int(w, "unexplained_ns", t->unexplained_ns);
	pl_json_key(w, "idle");
	pl_json_open(w, '[');
	for (unsigned i = 0; i < PL_I_COUNT_; i++) {
		pl_json_open(w, '{');
		pl_json_str(w, "cause", pl_sim_idle_name(i));
		pl_json_int(w, "ns", t->idle_ns[i]);
		pl_json_close(w);
	}
	pl_json_close(w);
	pl_json_key(w, "waits_for");
	if (t->waits_for < 0)
		pl_json_put_null(w);
	else
		pl_json_put_int(w, t->waits_for);
	pl_json_int(w, "waits_for_ns", t->waits_for_ns);
	pl_json_int(w, "awaited_ns", t->awaited_ns);
	pl_json_close(w);
}

static void put_ranks(struct pl_writer *w, const struct report *r)
{
	pl_json_key(w, "ranks");
	pl_json_open(w, '[');
	for (size_t i = 0; i < r->account.n_ranks; i++)
		put_rank(w, &r->account.rank[i]);
	pl_json_close(w);
}

int print_json(const struct config *c, const struct report *r, struct pl_out *out,
	       struct pl_err *err)
{
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	pl_json_open(&w, '{');
	pl_json_str(&w, "schema", "paceline.replay/1");
	put_trust(&w, r);
	put_changes(&w, r->changes);
	put_table(&w, "steps", r,
		  isfinite(r->predicted_mean) || r->estimated ? SEC_STEPS : SEC_RECORDED_STEPS);
	put_summary(&w, c, r);
	put_verdict(&w, r);
	put_waits(&w, r);
	put_advice(&w, r);
	put_ranks(&w, r);
	put_table(&w, "critical_path", r, SEC_PATH);
	if (c->to != AS_HTML) /* the page has the timeline instead */
		put_table(&w, "critical_path_events", r, SEC_EVENTS);
	if (c->to != AS_HTML)
		put_table(&w, "resources", r, SEC_RESOURCES);
	if (r->n_memory)
		put_table(&w, "memory", r, SEC_MEMORY);
	put_table(&w, "slowest", r, SEC_SLOWEST);
	if (c->worth)
		put_table(&w, "worth_most", r, SEC_WORTH);
	pl_json_close(&w);
	return pl_json_end(&w, err);
}
