/* What was measured: for people, and as the object paceline.run/1. */
#include <math.h>
#include <string.h>

#include "io/write.h"
#include "program.h"
#include "train/worker.h"

#define FIELDS (sizeof(struct worker_result) / sizeof(double))

int gather_workers(struct pl_worker *w, const struct worker_result *own, const struct member *p,
		   struct result *r, struct pl_err *err)
{
	double sum = 0, min = INFINITY;
	int rc;

	PL_TRY(pl_alloc(&r->worker, (size_t)p->size, sizeof(*r->worker), err));
	r->worker[p->rank] = *own;
	PL_TRY(pl_train_worker_sum(w, (double *)(void *)r->worker, FIELDS * (size_t)p->size, err));
	for (int i = 0; i < p->size; i++) {
		double speed = 1 / fmax(1e-9, r->worker[i].step_s);

		r->samples += (int64_t)(r->worker[i].samples + 0.5);
		sum += speed;
		min = fmin(min, speed);
	}
	r->samples_per_s = (double)r->samples / r->seconds;
	r->heterogeneity = sum / p->size / min; /* mean speed by that of the slowest */
out:
	return rc;
}

static void workers_json(const struct result *r, struct pl_writer *w)
{
	pl_json_key(w, "workers");
	pl_json_open(w, '[');
	for (int i = 0; i < r->ranks; i++) {
		const struct worker_result *k = &r->worker[i];

		pl_json_open(w, '{');
		pl_json_int(w, "rank", i);
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

static int report_json(const struct result *r, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer w;

	pl_writer_init(&w, out, 2);
	pl_json_open(&w, '{');
	pl_json_str(&w, "schema", "paceline.run/1");
	pl_json_str(&w, "engine", r->engine);
	pl_json_str(&w, "policy", r->policy);
	pl_json_str(&w, "model", r->model ? r->model : "");
	pl_json_int(&w, "ranks", r->ranks);
	pl_json_int(&w, "steps", r->steps);
	pl_json_int(&w, "samples", r->samples);
	pl_json_real(&w, "seconds", r->seconds);
	pl_json_real(&w, "samples_per_s", r->samples_per_s);
	pl_json_real(&w, "time_to_target_s", r->time_to_target_s);
	pl_json_real(&w, "final_loss", r->final_loss);
	pl_json_real(&w, "eval_loss", r->eval_loss);
	pl_json_real(&w, "accuracy", r->accuracy);
	pl_json_real(&w, "heterogeneity", r->heterogeneity);
	pl_json_key(&w, "interrupted_at_step");
	if (r->signal)
		pl_json_put_int(&w, r->step);
	else
		pl_json_put_null(&w);
	workers_json(r, &w);
	pl_json_close(&w);
	return pl_json_end(&w, err);
}

static int report_text(const struct result *r, struct pl_out *out, struct pl_err *err)
{
	char bytes[32];
	double waited = 0, sent = 0;
	int rc = 0;

	for (int i = 0; i < r->ranks; i++) {
		waited += r->worker[i].wait_share / r->ranks;
		sent += r->worker[i].bytes_sent;
	}
	if (r->steps) {
		PL_TRY(pl_out_printf(
			out, err, "%s: %d rank%s, %lld steps in %.3g s, %.0f samples/s",
			r->model ? r->model : "model", r->ranks, r->ranks == 1 ? "" : "s",
			(long long)r->steps, r->seconds, r->samples_per_s));
		if (r->ranks > 1)
			PL_TRY(pl_out_printf(out, err, ", waiting %.1f %%, %s sent", 100 * waited,
					     pl_fmt_bytes(bytes, sizeof(bytes), sent)));
		PL_TRY(pl_out_printf(out, err, "\nloss %.6g", r->final_loss));
	} else {
		PL_TRY(pl_out_printf(out, err, "%s: nothing trained",
				     r->model ? r->model : "model"));
	}
	if (!isnan(r->eval_loss))
		PL_TRY(pl_out_printf(out, err, ", held out %.6g", r->eval_loss));
	if (!isnan(r->accuracy))
		PL_TRY(pl_out_printf(out, err, ", accuracy %.2f %%", 100 * r->accuracy));
	PL_TRY(pl_out_write(out, "\n", 1, err));
	if (r->signal)
		PL_TRY(pl_out_printf(out, err, "interrupted by signal %d (%s) after step %lld\n",
				     r->signal, strsignal(r->signal), (long long)r->step));
	if (!isnan(r->time_to_target_s))
		PL_TRY(pl_out_printf(out, err, "target reached after %.3g s\n",
				     r->time_to_target_s));
out:
	return rc;
}

int report_write(const struct result *r, const char *path, bool json, struct pl_err *err)
{
	struct pl_out *out = pl_out_open(path, false, err);
	int rc;

	if (!out)
		return err->code;
	rc = json ? report_json(r, out, err) : report_text(r, out, err);
	return pl_out_finish(out, rc, err);
}
