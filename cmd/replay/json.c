/* The report for programs: paceline.replay/1. */
#include <math.h>

#include "program.h"

static int nullable(struct pl_jsonw *w, const char *key, int64_t v, struct pl_err *err)
{
	int rc = pl_jsonw_key(w, key, err);

	if (rc < 0)
		return rc;
	return v == INT64_MIN ? pl_jsonw_null(w, err) : pl_jsonw_i64(w, v, err);
}

static int some_rank(struct pl_jsonw *w, const char *key, int32_t rank, struct pl_err *err)
{
	return nullable(w, key, rank < 0 ? INT64_MIN : rank, err);
}

static int put_steps(struct pl_jsonw *w, const struct report *r, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_key(w, "steps", err));
	PL_TRY(pl_jsonw_open(w, '[', err));
	for (size_t i = 0; i < r->n_steps; i++) {
		const struct step_row *s = &r->step[i];

		PL_TRY(pl_jsonw_open(w, '{', err));
		PL_TRY(pl_jsonw_ki64(w, "step", s->number, err));
		PL_TRY(pl_jsonw_ki64(w, "recorded_ns", s->recorded, err));
		PL_TRY(nullable(w, "period_ns", s->period, err));
		PL_TRY(pl_jsonw_ki64(w, "replayed_ns", s->replayed, err));
		PL_TRY(pl_jsonw_kreal(w, "error", s->error, err));
		if (s->predicted != INT64_MIN)
			PL_TRY(pl_jsonw_ki64(w, "predicted_ns", s->predicted, err));
		PL_TRY(pl_jsonw_close(w, err));
	}
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

static int put_changes(struct pl_jsonw *w, const struct changes *x, struct pl_err *err)
{
	int rc;

	if (!x->list.n)
		return 0;
	PL_TRY(pl_jsonw_key(w, "changes", err));
	PL_TRY(pl_jsonw_open(w, '[', err));
	for (size_t i = 0; i < x->list.n; i++) {
		PL_TRY(pl_jsonw_open(w, '{', err));
		PL_TRY(pl_jsonw_kstr(w, "change", x->list.v[i], err));
		PL_TRY(pl_jsonw_ki64(w, "operations", (int64_t)x->hits[i], err));
		PL_TRY(pl_jsonw_close(w, err));
	}
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

static int put_expanded(struct pl_jsonw *w, const struct config *c, const struct report *r,
			struct pl_err *err)
{
	int rc;

	if (!c->expand)
		return 0;
	PL_TRY(pl_jsonw_key(w, "expanded", err));
	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_kstr(w, "algorithm", pl_algo_name((unsigned)c->expand - 1), err));
	PL_TRY(pl_jsonw_ki64(w, "collectives", (int64_t)r->expanded.collectives, err));
	PL_TRY(pl_jsonw_ki64(w, "messages", (int64_t)r->expanded.messages, err));
	PL_TRY(pl_jsonw_ki64(w, "left", (int64_t)r->expanded.left, err));
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

static int put_summary(struct pl_jsonw *w, const struct config *c, const struct report *r,
		       struct pl_err *err)
{
	bool what_if = isfinite(r->predicted_mean);
	int rc;

	PL_TRY(pl_jsonw_kreal(w, "mean_abs_error", r->mean_abs_error, err));
	PL_TRY(pl_jsonw_kreal(w, "recorded_mean_ns", r->recorded_mean, err));
	PL_TRY(pl_jsonw_kreal(w, "replayed_mean_ns", r->replayed_mean, err));
	if (what_if)
		PL_TRY(pl_jsonw_kreal(w, "predicted_mean_ns", r->predicted_mean, err));
	if (isfinite(r->bias_mean)) {
		PL_TRY(pl_jsonw_kreal(w, "model_bias_ns", r->bias_mean, err));
		PL_TRY(pl_jsonw_key(w, "model_bias_left_out", err));
		PL_TRY(pl_jsonw_bool(w, r->bias_out, err));
	}
	PL_TRY(put_expanded(w, c, r, err));
	PL_TRY(pl_jsonw_key(w, "stepless", err));
	PL_TRY(pl_jsonw_bool(w, r->g.stepless, err));
	if (r->n_folded) {
		PL_TRY(pl_jsonw_key(w, "folded", err));
		PL_TRY(pl_jsonw_open(w, '{', err));
		PL_TRY(pl_jsonw_kstr(w, "how", c->fold == FOLD_MEDIAN ? "median" : "mean", err));
		PL_TRY(pl_jsonw_ki64(w, "steps", (int64_t)r->n_folded, err));
		PL_TRY(pl_jsonw_ki64(w, "of", (int64_t)r->n_recorded, err));
		PL_TRY(pl_jsonw_close(w, err));
	}
	PL_TRY(pl_jsonw_ki64(w, "operations", (int64_t)r->ops, err));
	PL_TRY(pl_jsonw_kstr(w, "starts_of", r->start_device ? "device" : "all", err));
	PL_TRY(pl_jsonw_ki64(w, "starts", (int64_t)r->n_starts, err));
	if (r->n_starts) {
		PL_TRY(pl_jsonw_ki64(w, "start_error_p50_ns", r->start_p50, err));
		PL_TRY(pl_jsonw_ki64(w, "start_error_p95_ns", r->start_p95, err));
		PL_TRY(pl_jsonw_ki64(w, "start_error_max_ns", r->start_max, err));
	}
	/* what the rest is of */
	PL_TRY(pl_jsonw_kstr(w, "describes", what_if ? "predicted" : "replayed", err));
	PL_TRY(pl_jsonw_ki64(w, "span_ns", r->path.length, err));
	rc = pl_jsonw_kreal(w, "unexplained_share", r->unexplained_share, err);
out:
	return rc;
}

static int put_rank(struct pl_jsonw *w, const struct pl_rank_time *t, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_ki64(w, "rank", t->rank, err));
	PL_TRY(pl_jsonw_ki64(w, "span_ns", t->span_ns, err));
	PL_TRY(pl_jsonw_ki64(w, "compute_ns", t->compute_ns, err));
	PL_TRY(pl_jsonw_ki64(w, "comm_exposed_ns", t->comm_exposed_ns, err));
	PL_TRY(pl_jsonw_ki64(w, "comm_overlapped_ns", t->comm_overlapped_ns, err));
	PL_TRY(pl_jsonw_ki64(w, "copy_ns", t->copy_ns, err));
	PL_TRY(pl_jsonw_ki64(w, "host_ns", t->host_ns, err));
	PL_TRY(pl_jsonw_ki64(w, "unexplained_ns", t->unexplained_ns, err));
	PL_TRY(pl_jsonw_key(w, "idle", err));
	PL_TRY(pl_jsonw_open(w, '[', err));
	for (unsigned i = 0; i < PL_I_COUNT_; i++) {
		PL_TRY(pl_jsonw_open(w, '{', err));
		PL_TRY(pl_jsonw_kstr(w, "cause", pl_sim_idle_name(i), err));
		PL_TRY(pl_jsonw_ki64(w, "ns", t->idle_ns[i], err));
		PL_TRY(pl_jsonw_close(w, err));
	}
	PL_TRY(pl_jsonw_close(w, err));
	PL_TRY(some_rank(w, "waits_for", t->waits_for, err));
	PL_TRY(pl_jsonw_ki64(w, "waits_for_ns", t->waits_for_ns, err));
	PL_TRY(pl_jsonw_ki64(w, "awaited_ns", t->awaited_ns, err));
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

static int put_ranks(struct pl_jsonw *w, const struct report *r, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_key(w, "ranks", err));
	PL_TRY(pl_jsonw_open(w, '[', err));
	for (size_t i = 0; i < r->account.n_ranks; i++)
		PL_TRY(put_rank(w, &r->account.rank[i], err));
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

static int put_path(struct pl_jsonw *w, const struct report *r, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_key(w, "critical_path", err));
	PL_TRY(pl_jsonw_open(w, '[', err));
	for (size_t i = 0; i < r->n_rows; i++) {
		PL_TRY(pl_jsonw_open(w, '{', err));
		PL_TRY(pl_jsonw_kstr(w, "name", r->row[i].name, err));
		PL_TRY(pl_jsonw_kstr(w, "kind", r->row[i].kind, err));
		PL_TRY(some_rank(w, "rank", r->row[i].rank, err));
		PL_TRY(pl_jsonw_ki64(w, "ns", r->row[i].ns, err));
		PL_TRY(pl_jsonw_kreal(w, "share", r->row[i].share, err));
		PL_TRY(pl_jsonw_ki64(w, "count", (int64_t)r->row[i].count, err));
		PL_TRY(pl_jsonw_close(w, err));
	}
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

static int put_event(struct pl_jsonw *w, const struct report *r, const struct pl_path_item *p,
		     struct pl_err *err)
{
	const struct pl_shape *sh = &r->g.shape[r->g.step[p->step].shape];
	struct path_row x;
	int rc;

	path_item(r, p, &x);
	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_kstr(w, "name", x.name, err));
	PL_TRY(pl_jsonw_kstr(w, "kind", x.kind, err));
	PL_TRY(some_rank(w, "rank", x.rank, err));
	if (sh->res[p->node] != PL_NONE)
		PL_TRY(pl_jsonw_kstr(w, "resource",
				     pl_intern_get(&r->g.str, r->g.res[sh->res[p->node]].name),
				     err));
	PL_TRY(nullable(w, "step", r->g.step[p->step].number, err));
	PL_TRY(pl_jsonw_ki64(w, "start_ns", p->start - r->path.item[0].start, err));
	PL_TRY(pl_jsonw_ki64(w, "ns", p->ns, err));
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

static int put_lists(struct pl_jsonw *w, const struct config *c, const struct report *r,
		     struct pl_err *err)
{
	struct pl_table *t = NULL;
	int rc;

	PL_TRY(pl_jsonw_key(w, "critical_path_events", err));
	PL_TRY(pl_jsonw_open(w, '[', err));
	for (size_t i = 0; i < r->path.n; i++)
		PL_TRY(put_event(w, r, &r->path.item[i], err));
	PL_TRY(pl_jsonw_close(w, err));
	for (int which = SEC_RESOURCES; which <= SEC_WORTH; which++) {
		static const char *const key[] = { [SEC_RESOURCES] = "resources",
						   [SEC_MEMORY] = "memory",
						   [SEC_SLOWEST] = "slowest",
						   [SEC_WORTH] = "worth_most" };

		if (!key[which] || (which == SEC_WORTH && !c->worth) ||
		    (which == SEC_MEMORY && !r->n_memory))
			continue;
		t = make_table(r, (enum section)which, 0, err);
		if (!t)
			return err->code;
		PL_TRY(pl_jsonw_key(w, key[which], err));
		PL_TRY(pl_table_json(t, w, err));
		pl_table_free(t);
		t = NULL;
	}
	rc = 0;
out:
	pl_table_free(t);
	return rc;
}

int print_json(const struct config *c, const struct report *r, struct pl_out *out,
	       struct pl_err *err)
{
	struct pl_jsonw w;
	int rc;

	pl_jsonw_init(&w, out, 0);
	PL_TRY(pl_jsonw_open(&w, '{', err));
	PL_TRY(pl_jsonw_kstr(&w, "schema", "paceline.replay/1", err));
	PL_TRY(put_changes(&w, r->given, err));
	PL_TRY(put_steps(&w, r, err));
	PL_TRY(put_summary(&w, c, r, err));
	PL_TRY(put_ranks(&w, r, err));
	PL_TRY(put_path(&w, r, err));
	PL_TRY(put_lists(&w, c, r, err));
	PL_TRY(pl_jsonw_close(&w, err));
	rc = pl_out_write(out, "\n", 1, err);
out:
	return rc;
}
