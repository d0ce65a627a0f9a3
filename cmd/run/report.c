/* Prints what was measured: as text, and as the JSON object paceline.run/1. */
#include <math.h>

#include "io/table.h"
#include "io/write.h"
#include "program.h"
#include "train/worker.h"

#define FIELDS (sizeof(struct pl_train_result) / sizeof(double))

int gather_workers(const struct pl_train *t, const struct pl_train_result *own,
		   const struct pl_launch *p, struct result *r, struct pl_err *err)
{
	double sum = 0, min = INFINITY;
	int known = 0;

	PL_CHECK(pl_alloc(&r->worker, (size_t)t->ranks, sizeof(*r->worker), err));
	r->workers = t->ranks;
	if (t->engine->gather) {
		PL_CHECK(r->workers = t->engine->gather(t->worker, r->worker, err));
	} else {
		r->worker[p->rank] = *own;
		PL_CHECK(pl_train_worker_sum(t->worker, (double *)(void *)r->worker,
					     FIELDS * (size_t)t->ranks, err));
	}
	for (int i = 0; i < r->workers; i++) {
		double speed = r->worker[i].step_s > 0 ? 1 / r->worker[i].step_s : NAN;

		r->samples += (int64_t)(r->worker[i].samples + 0.5);
		r->samples_per_s += r->worker[i].samples_per_s;
		if (isnan(speed)) /* it has made no step */
			continue;
		known++;
		sum += speed;
		min = fmin(min, speed);
	}
	r->heterogeneity = known ? sum / known / min : NAN; /* mean speed / slowest speed */
	return 0;
}

static void workers_json(const struct result *r, struct pl_writer *w)
{
	pl_json_key(w, "workers");
	pl_json_open(w, '[');
	for (int i = 0; i < r->workers; i++) {
		const struct pl_train_result *k = &r->worker[i];

		pl_json_open(w, '{');
		pl_json_int(w, "rank", (int64_t)(k->rank + 0.5));
		pl_json_int(w, "steps", (int64_t)(k->steps + 0.5));
		pl_json_real(w, "samples_per_s", k->samples_per_s);
		pl_json_int(w, "commits", (int64_t)(k->commits + 0.5));
		pl_json_real(w, "compute_share", k->compute_share);
		pl_json_real(w, "wait_share", k->wait_share);
		pl_json_int(w, "bytes_sent", (int64_t)(k->bytes_sent + 0.5));
		pl_json_close(w);
	}
	pl_json_close(w);
}

static void report_best(const struct result *r, struct pl_writer *w)
{
	const struct pl_train_best *b = &r->t->worker->best;

	pl_json_real(w, "best", b->step < 0 ? NAN : b->value);
	pl_json_key(w, "best_step");
	if (b->step < 0)
		pl_json_put_null(w);
	else
		pl_json_put_int(w, b->step);
	pl_json_bool(w, "stopped_early", r->t->stopped_early);
}

static void report_json(const struct result *r, struct pl_writer *w)
{
	pl_json_open(w, '{');
	pl_json_str(w, "schema", "paceline.run/1");
	pl_json_str(w, "engine", r->t->engine->name);
	pl_json_str(w, "policy", r->t->job->policy);
	pl_json_str(w, "model", r->model ? r->model : "");
	pl_json_int(w, "ranks", r->t->ranks);
	pl_json_int(w, "steps", r->t->steps_done);
	pl_json_int(w, "samples", r->samples);
	pl_json_real(w, "seconds", r->seconds);
	pl_json_real(w, "first_step_s", r->t->first_ns ? (double)r->t->first_ns / 1e9 : NAN);
	pl_json_real(w, "samples_per_s", r->samples_per_s);
	pl_json_real(w, "time_to_target_s", r->t->time_to_target_s);
	pl_json_real(w, "final_loss", r->t->last_loss);
	pl_json_real(w, "eval_loss", r->t->eval_loss);
	pl_json_real(w, "accuracy", r->t->accuracy);
	pl_json_real(w, "heterogeneity", r->heterogeneity);
	report_best(r, w);
	pl_json_key(w, "interrupted_at_step");
	if (r->signal)
		pl_json_put_int(w, r->t->step);
	else
		pl_json_put_null(w);
	workers_json(r, w);
	pl_json_close(w);
	pl_write_char(w, '\n');
}

static void report_best_text(const struct result *r, struct pl_writer *w)
{
	const struct pl_train_best *b = &r->t->worker->best;

	if (r->t->stopped_early)
		pl_write_format(w, "stopped early: no better evaluation in %lld\n",
				(long long)b->waited);
	if (b->step < 0)
		return;
	if (!strcmp(r->t->job->monitor, "accuracy"))
		pl_write_format(w, "best accuracy %.2f %%", 100 * b->value);
	else
		pl_write_format(w, "best held-out loss %.6g", b->value);
	pl_write_format(w, " after step %lld", (long long)b->step);
	if (r->t->job->checkpoint_best)
		pl_write_format(w, ", in %s", r->t->job->checkpoint_best);
	pl_write_char(w, '\n');
}

static void report_text(const struct result *r, struct pl_writer *w)
{
	const char *model = r->model ? r->model : "model";
	char bytes[32];
	double waited = 0, sent = 0;

	for (int i = 0; i < r->workers; i++) {
		waited += r->worker[i].wait_share / r->workers;
		sent += r->worker[i].bytes_sent;
	}
	if (r->t->steps_done) {
		pl_write_format(w, "%s: %d rank%s", model, r->t->ranks,
				r->t->ranks == 1 ? "" : "s");
		if (r->workers < r->t->ranks)
			pl_write_format(w, " in %d group%s", r->workers,
					r->workers == 1 ? "" : "s");
		pl_write_format(w, ", %lld step%s in %.3g s", (long long)r->t->steps_done,
				r->t->steps_done == 1 ? "" : "s", r->seconds);
		if (r->t->first_ns)
			pl_write_format(w, " (the first %.3g s)", (double)r->t->first_ns / 1e9);
		pl_write_format(w, ", %.0f samples/s%s", r->samples_per_s,
				r->t->first_ns ? " after it" : "");
		if (r->t->ranks > 1)
			pl_write_format(w, ", waiting %.1f %%, %s sent", 100 * waited,
					pl_fmt_bytes(bytes, sizeof(bytes), sent));
		pl_write_format(w, "\nloss %.6g", r->t->last_loss);
	} else {
		pl_write_format(w, "%s: nothing trained", model);
	}
	if (!isnan(r->t->eval_loss))
		pl_write_format(w, ", held out %.6g", r->t->eval_loss);
	if (!isnan(r->t->accuracy))
		pl_write_format(w, ", accuracy %.2f %%", 100 * r->t->accuracy);
	pl_write_char(w, '\n');
	if (r->signal)
		pl_write_format(w, "interrupted by signal %d (%s) after step %lld\n", r->signal,
				strsignal(r->signal), (long long)r->t->step);
	report_best_text(r, w);
	if (!isnan(r->t->time_to_target_s))
		pl_write_format(w, "target reached after %.3g s\n", r->t->time_to_target_s);
}

int report_write(const struct result *r, const char *path, bool json, struct pl_err *err)
{
	struct pl_out *out = pl_out_open(path, false, err);
	struct pl_writer w;

	if (!out)
		return err->code;
	pl_write_init(&w, out, 2);
	if (json)
		report_json(r, &w);
	else
		report_text(r, &w);
	return pl_out_finish(out, pl_write_end(&w, err), err);
}

int write_table(const struct config *c, const struct pl_table *t, struct pl_out *out,
		struct pl_err *err)
{
	return pl_table_print(t, out,
			      c->to == AS_JSON	? PL_TABLE_JSON
			      : c->to == AS_CSV ? PL_TABLE_CSV
						: PL_TABLE_TEXT,
			      NULL, err);
}

int report_layers(const struct config *c, const struct pl_model *m, struct pl_err *err)
{
	static const struct pl_column columns[] = {
		{ "line", "line", PL_CELL_I64, 0 },
		{ "layer", "layer", PL_CELL_STR, 0 },
		{ "name", "name", PL_CELL_STR, 0 },
		{ "output", "output", PL_CELL_STR, 0 },
		{ "parameters", "parameters", PL_CELL_I64, 0 },
		{ "flops", "FLOPs", PL_CELL_I64, 0 },
		{ "bytes", "bytes", PL_CELL_I64, 0 },
	};
	struct pl_table t = PL_TABLE(columns);
	struct pl_net_work *w = NULL;
	struct pl_out *out;
	int rc;

	PL_TRY(pl_alloc(&w, m->n_layers, sizeof(*w), err));
	PL_TRY(pl_net_work(m->layer, m->n_layers, w, err));
	for (size_t i = 0; i < m->n_layers; i++) {
		char dims[96];
		int n = 0;

		for (int k = 0; k < w[i].n_dims; k++)
			n += snprintf(dims + n, sizeof(dims) - (size_t)n, "%s%d", k ? "x" : "",
				      w[i].dim[k]);
		pl_table_row(&t, m->layer[i].line ? (int64_t)m->layer[i].line : INT64_MIN,
			     m->layer[i].op, w[i].name, dims, w[i].params, (int64_t)w[i].flops,
			     (int64_t)w[i].bytes);
	}
	out = pl_out_open(c->c.output, false, err);
	rc = out ? pl_out_finish(out, write_table(c, &t, out, err), err) : err->code;
out:
	pl_table_fini(&t);
	pl_free(w);
	return rc;
}
