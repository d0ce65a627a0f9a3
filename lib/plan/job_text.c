/*
 * Jobs: written as text, checked as a whole; rates and times. Linear.
 */
#include <math.h>
#include <string.h>

#include "plan/internal.h"
#include "plan/job.h"

/* ---- rates and times ----------------------------------------------------------------------------
 */

int pl_job_rate(const char *s, double *bytes_per_ns, struct pl_err *err)
{
	size_t n = strlen(s);
	bool per_s = n > 2 && !strcmp(s + n - 2, "/s");
	char text[64];
	double v;

	if (n < sizeof(text) - 3) {
		snprintf(text, sizeof(text), "%s%s", s, per_s ? "" : "/s");
		if (pl_text_rate(text, &v)) {
			*bytes_per_ns = v;
			return 0;
		}
	}
	return pl_fail(err, PL_EUSAGE,
		       "\"%.100s\" is no rate above 0 and up to 1 PB a second, like 1Gbit, 200Mbit "
		       "or 2GB",
		       s);
}

int pl_job_time(const char *s, pl_ns *ns, struct pl_err *err)
{
	if (pl_text_wait(s, ns))
		return 0;
	return pl_fail(err, PL_EUSAGE, "\"%.100s\" is no time of at most an hour, like 200us or 3s",
		       s);
}

/* ---- writing ------------------------------------------------------------------------------------
 */

static int put_field(struct pl_buf *b, const struct pl_job_field *f, const void *v,
		     const void *usual, struct pl_err *err)
{
	const char *s, *u;
	char real[40];
	int rc = 0;

	switch (f->type) {
	case PL_JOB_STRING:
	case PL_JOB_CHOICE:
		s = *(const char *const *)v;
		u = *(const char *const *)usual;
		if (!s || (u && !strcmp(s, u)))
			return 0;
		PL_TRY(pl_buf_printf(b, err, "%s", f->key));
		PL_TRY(pl_text_put_name(b, s, strlen(s), err));
		return pl_buf_printf(b, err, "\n");
	case PL_JOB_REAL:
		if (*(const double *)v == *(const double *)usual)
			return 0;
		return pl_buf_printf(b, err, "%s %s\n", f->key,
				     pl_text_real_str(real, sizeof(real), *(const double *)v));
	case PL_JOB_INT:
	case PL_JOB_TIME:
		if (*(const int64_t *)v == *(const int64_t *)usual)
			return 0;
		return pl_buf_printf(b, err, "%s %lld%s\n", f->key, (long long)*(const int64_t *)v,
				     f->type == PL_JOB_TIME ? "ns" : "");
	}
out:
	return rc;
}

static int put_kind(struct pl_buf *b, const struct pl_job *j, bool schedule, struct pl_err *err)
{
	const char *kind = schedule ? j->schedule : j->optimizer;
	bool usual = !strcmp(kind, schedule ? "constant" : "sgd");
	int rc;

	for (size_t i = 0; i < j->n_opts; i++)
		usual = usual && j->opt[i].schedule != schedule;
	if (usual)
		return 0;
	PL_TRY(pl_buf_printf(b, err, "%s %s", schedule ? "schedule" : "optimizer", kind));
	for (size_t i = 0; i < j->n_opts; i++)
		if (j->opt[i].schedule == schedule)
			PL_TRY(pl_buf_printf(b, err, " %s=%s", j->opt[i].key, j->opt[i].text));
	rc = pl_buf_printf(b, err, "\n");
out:
	return rc;
}

static int put_end(struct pl_buf *b, const char *key, int rank, struct pl_err *err)
{
	return rank < 0 ? 0 : pl_buf_printf(b, err, " %s=%d", key, rank);
}

static int put_link(struct pl_buf *b, const struct pl_job_link *l, struct pl_err *err)
{
	char real[40];
	int rc;

	PL_TRY(pl_buf_printf(b, err, "link"));
	if (l->bytes_per_ns > 0)
		PL_TRY(pl_buf_printf(b, err, " rate=%sGB",
				     pl_text_real_str(real, sizeof(real), l->bytes_per_ns)));
	PL_TRY(pl_buf_printf(b, err, " latency=%lldns", (long long)l->latency_ns));
	PL_TRY(put_end(b, "from", l->from, err));
	PL_TRY(put_end(b, "to", l->to, err));
	rc = pl_buf_printf(b, err, l->shared ? " shared=yes\n" : "\n");
out:
	return rc;
}

static int put_pace(struct pl_buf *b, const struct pl_job_pace *p, struct pl_err *err)
{
	char ms[40], factor[40];
	int rc;

	PL_TRY(p->rank < 0 ? pl_buf_printf(b, err, "pace any")
			   : pl_buf_printf(b, err, "pace %d", p->rank));
	rc = pl_buf_printf(b, err, " ms=%s factor=%s\n", pl_text_real_str(ms, sizeof(ms), p->ms),
			   pl_text_real_str(factor, sizeof(factor), p->factor));
out:
	return rc;
}

int pl_job_write(const struct pl_job *j, struct pl_out *out, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	struct pl_job usual;
	int rc;

	pl_job_init(&usual);
	PL_TRY(pl_buf_printf(&b, err, "paceline-job 1\n"));
	for (size_t i = 0; i < pl_job_n_fields; i++) {
		const struct pl_job_field *f = &pl_job_fields[i];

		PL_TRY(put_field(&b, f, (const char *)j + f->offset,
				 (const char *)&usual + f->offset, err));
	}
	PL_TRY(put_kind(&b, j, false, err));
	PL_TRY(put_kind(&b, j, true, err));
	for (size_t i = 0; i < j->n_links; i++)
		PL_TRY(put_link(&b, &j->link[i], err));
	for (size_t i = 0; i < j->n_paces; i++)
		PL_TRY(put_pace(&b, &j->pace[i], err));
	rc = pl_out_write(out, b.p, b.n, err);
out:
	pl_buf_fini(&b);
	pl_job_fini(&usual);
	return rc;
}

/* ---- checking -----------------------------------------------------------------------------------
 */

static int check_ranks(const struct pl_job *j, struct pl_err *err)
{
	int64_t n = j->ranks;

	if (j->hosts > n || n % j->hosts)
		return pl_fail(err, PL_EDATA,
			       "%lld hosts with %lld ranks in all: each host has as many ranks as "
			       "the others; change hosts or ranks",
			       (long long)j->hosts, (long long)n);
	for (size_t i = 0; i < j->n_links; i++)
		if (j->link[i].from >= n || j->link[i].to >= n)
			return pl_fail(
				err, PL_EDATA,
				"a link from or to rank %lld, where there are ranks 0 to %lld",
				(long long)pl_max_i64(j->link[i].from, j->link[i].to),
				(long long)n - 1);
	for (size_t i = 0; i < j->n_paces; i++)
		if (j->pace[i].rank >= n)
			return pl_fail(err, PL_EDATA,
				       "a pace of rank %d, where there are ranks 0 to %lld",
				       j->pace[i].rank, (long long)n - 1);
	return 0;
}

static int check_learning(const struct pl_job *j, struct pl_err *err)
{
	bool steps = j->steps || j->epochs || pl_job_number(j, "steps") > 0;

	if (pl_job_number(j, "nesterov") > 0 && !(pl_job_number(j, "momentum") > 0))
		return pl_fail(err, PL_EDATA, "nesterov needs a momentum; write momentum=0.9");
	if (!strcmp(j->schedule, "step") && !(pl_job_number(j, "every") > 0))
		return pl_fail(err, PL_EDATA,
			       "schedule step needs every=STEPS, after which the learning rate is "
			       "multiplied by gamma");
	if ((!strcmp(j->schedule, "cosine") || !strcmp(j->schedule, "linear")) && !steps)
		return pl_fail(
			err, PL_EDATA,
			"schedule %s needs to know when it ends; write steps=N behind it, or "
			"give the job steps or epochs",
			j->schedule);
	if (j->steps && j->warmup > j->steps)
		return pl_fail(err, PL_EDATA, "warmup of %lld steps in a job of %lld",
			       (long long)j->warmup, (long long)j->steps);
	return 0;
}

bool pl_job_device(const char *name, bool *cuda, int *number)
{
	const char *s = name;
	int64_t n = -1;

	*cuda = !strncmp(s, "cuda", 4);
	if (*cuda && s[4] == ':' && s[5] >= '0' && s[5] <= '9' && strlen(s) < 9)
		for (n = 0, s += 5; *s >= '0' && *s <= '9'; s++)
			n = 10 * n + (*s - '0');
	else if (*cuda)
		s += 4;
	else if (!strcmp(s, "cpu"))
		s += 3;
	*number = (int)n;
	return !*s;
}

static int check_device(const struct pl_job *j, struct pl_err *err)
{
	bool cuda;
	int number;

	if (pl_job_device(j->device, &cuda, &number) && !cuda && !strcmp(j->precision, "tf32"))
		return pl_fail(err, PL_EDATA,
			       "precision tf32 is that of GPUs; write device cuda with it, or "
			       "precision fp32");
	return 0;
}

int pl_job_check(const struct pl_job *j, struct pl_err *err)
{
	int rc;

	if (!j->model)
		return pl_fail(err, PL_EDATA,
			       "the job has no model; write: model mlp:784-512-10, or the name of "
			       "a file");
	if (!j->data)
		return pl_fail(err, PL_EDATA,
			       "the job has no data; write: data idx:IMAGES,LABELS, or csv:, npy:, "
			       "tokens:, synthetic:");
	if (!j->steps && !j->epochs && !(j->target_loss > 0))
		return pl_fail(err, PL_EDATA,
			       "the job never ends; write: steps N, epochs N or target-loss LOSS");
	if (j->eval_every && j->split >= 1)
		return pl_fail(err, PL_EDATA,
			       "eval-every, but nothing is held out; write: split 0.9");
	if (j->checkpoint_every && !j->checkpoint)
		return pl_fail(err, PL_EDATA, "checkpoint-every without checkpoint FILE");
	rc = check_device(j, err);
	if (rc == 0)
		rc = check_ranks(j, err);
	return rc < 0 ? rc : check_learning(j, err);
}
