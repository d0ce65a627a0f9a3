/*
 * vtrain - predicts measured iteration times of GPT training with costs fitted to other models.
 *
 * usage: vtrain DIR [EVERY]   (ground_truth_single.csv[.gz] and a100/AR_GPU<n>_..._LUT.gz of
 * vTrain)
 *
 * Prints one line a way of holding out: NAME TRAINED TESTED MEAN WORST NAIVE NAIVE_WORST, the last
 * four in percent of the measured time. What is held out is not looked at before the fit is done.
 *
 * With EVERY each EVERY-th job without a pipeline is held out, and each of them is a line: = BATCH
 * MICRO HIDDEN HEADS LAYERS SEQ TP DP MEASURED PREDICTED NAIVE, times in ms. Before them stands a
 * line for each number of ranks, LINK RANKS BYTES/NS NS: bandwidth and latency of a ring by the
 * tables of all-reduces, from their first row and that of 32 MiB.
 *
 * The model, in closed form (graphs of 1,440 jobs would say the same: all their micro-batches are
 * alike). With b sequences of s tokens a micro-batch, hidden size h, a heads, vocabulary V, and t,
 * d, p ranks of tensor, data and pipeline parallelism:
 *
 *   layer     C = (3 (24 b s h^2 + 4 b s^2 h) / t / PEAK + bytes / BANDWIDTH) / e
 *             bytes = b s (68 h + 54 h/t + 32 a s/t + 24 h + 72 h/t): what the forward and the
 *             backward pass of element-wise operations, of attention's scores and of the matrix
 *             products' operands read and write in 16 bits, counted operation by operation
 *             a layer is not faster than the host can issue it: (C^4 + o^4)^(1/4), a smooth maximum
 *   all-reduce of tensor parallelism: 4 a layer, each (t - 1) l + the table's time per byte x 2 b s
 * h pipeline  (m + p - 1) micro-batches (1F1B) of L/p layers, with their messages; the last stage's
 *             logits m times
 *   gradients one all-reduce of 4 bytes a parameter over d ranks; then a constant
 *
 * PEAK (312e12) and BANDWIDTH (2.039e12) are the datasheet's of the device. Fitted are four
 * numbers: e, the share of both that is reached; o, the host's time for a layer; l, the latency of
 * one step of a ring in the running job; the constant. The fit is the least sum of |log(predicted /
 * measured)|, by pattern search (Hooke and Jeeves, JACM 8, 1961) on the logarithms.
 *
 * The naive model is FLOPs over devices with one fitted efficiency.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "io/csv.h"

#define PEAK	  312e12
#define BANDWIDTH 2.039e12
#define VOCAB	  51200.0
#define MAX_RANKS 64
#define FITTED	  4
#define SOFT	  0.05 /* errors beyond count by their size, below by its square */

struct point { /* one measured job */
	double ranks, batch, micro, hidden, heads, layers, seq, tp, dp, pp, ns;
};
struct table { /* measured all-reduce of n ranks: its first row, its last one, that of 32 MiB */
	double bytes[3], ns[3];
	size_t rows;
};
struct data {
	struct point *v;
	size_t n, cap;
	struct table ar[MAX_RANKS];
	struct table *reading;
};

/* ---- reading --------------------------------------------------------------------------------- */

static int number(const struct pl_csv_row *r, size_t i, double *x, struct pl_err *err)
{
	char *end;

	*x = i < r->n ? strtod(r->field[i], &end) : NAN;
	if (i >= r->n || end == r->field[i] || !(*x >= 0))
		return pl_fail(err, PL_EDATA, "line %lld: field %zu is no number",
			       (long long)r->line, i + 1);
	return 0;
}

static int job_row(void *arg, const struct pl_csv_row *r, struct pl_err *err)
{
	struct data *d = arg;
	double x[11];
	int rc;

	if (r->line == 1) /* the heading, behind a byte order mark */
		return 0;
	for (size_t i = 0; i < PL_LEN(x); i++)
		if ((rc = number(r, i, &x[i], err)) < 0)
			return rc;
	if ((rc = pl_grow(&d->v, &d->cap, d->n + 1, sizeof(*d->v), err)) < 0)
		return rc;
	if (!(x[2] * x[7] * x[8] * x[9] * x[10] > 0) || x[7] >= MAX_RANKS || x[8] >= MAX_RANKS)
		return pl_fail(err, PL_EDATA, "line %lld: not a job", (long long)r->line);
	d->v[d->n++] = (struct point){ x[0], x[1], x[2], x[3], x[4],	   x[5],
				       x[6], x[7], x[8], x[9], x[10] * 1e6 };
	return 0;
}

static int table_row(void *arg, const struct pl_csv_row *r, struct pl_err *err)
{
	struct table *t = ((struct data *)arg)->reading;
	size_t at = t->rows ? 1 : 0;
	int rc;

	if (r->line == 1)
		return 0;
	if ((rc = number(r, 0, &t->bytes[at], err)) < 0 || (rc = number(r, 3, &t->ns[at], err)) < 0)
		return rc;
	t->rows++;
	if (t->bytes[at] == 0x1p25) {
		t->bytes[2] = t->bytes[at];
		t->ns[2] = t->ns[at];
	}
	return 0;
}

static int read_csv(const char *path, struct data *d,
		    int (*row)(void *, const struct pl_csv_row *, struct pl_err *),
		    struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	if (in)
		in = pl_in_gunzip(in, NULL, err);
	if (!in)
		return err->code;
	rc = pl_csv_read(in, row, d, err);
	pl_in_close(in);
	return rc < 0 ? pl_wrap(err, "%s", path) : 0;
}

static int load(const char *dir, struct data *d, struct pl_err *err)
{
	char path[4096];
	int rc;

	snprintf(path, sizeof(path), "%s/ground_truth_single.csv.gz", dir);
	PL_TRY(read_csv(path, d, job_row, err));
	for (int n = 2; n <= 8; n++) {
		snprintf(path, sizeof(path), "%s/a100/AR_GPU%d_1M_1024M_LUT.gz", dir, n);
		d->reading = &d->ar[n];
		PL_TRY(read_csv(path, d, table_row, err));
		if (d->ar[n].rows < 2)
			return pl_fail(err, PL_EDATA, "%s: fewer than two rows", path);
	}
	rc = d->n ? 0 : pl_fail(err, PL_EDATA, "%s: no jobs", dir);
out:
	return rc;
}

/* ---- the model ------------------------------------------------------------------------------- */

/* Time per byte of a large all-reduce, and the rest; ns. */
static double slope(const struct data *d, double ranks)
{
	const struct table *t = &d->ar[(int)ranks];

	return t->rows < 2 ? 0 : (t->ns[1] - t->ns[0]) / (t->bytes[1] - t->bytes[0]);
}

static double start(const struct data *d, double ranks)
{
	const struct table *t = &d->ar[(int)ranks];

	return fmax(0, t->ns[0] - slope(d, ranks) * t->bytes[0]);
}

static double predict(const struct data *d, const struct point *x, const double *fitted)
{
	double e = fitted[0], host = fitted[1], step = fitted[2], constant = fitted[3];
	double tokens = x->micro * x->seq, h = x->hidden, t = x->tp;
	double m = x->batch / (x->micro * x->dp), layers = x->layers / x->pp;
	double flops = 3 * (24 * tokens * h * h + 4 * tokens * x->seq * h) / t;
	double bytes = tokens * (92 * h + 126 * h / t + 32 * x->heads * x->seq / t);
	double compute = 1e9 * (flops / PEAK + bytes / BANDWIDTH) / e;
	double reduce = 4 * ((t - 1) * step + slope(d, t) * 2 * tokens * h);
	double layer = pow(pow(compute, 4) + pow(host, 4), 0.25) + (t > 1 ? reduce : 0);
	double logits = 1e9 * tokens * VOCAB / t * (6 * h / PEAK + 20 / BANDWIDTH) / e;
	double message = x->pp > 1 ? 4 * tokens * h * slope(d, 2) : 0;
	double params = (12 * h * h * layers + VOCAB * h) / t;
	double grads = x->dp > 1 ? start(d, x->dp) + 4 * params * slope(d, x->dp) : 0;

	return (m + x->pp - 1) * (layers * layer + message) + m * logits + grads + constant;
}

static double flops_per_rank(const struct point *x)
{
	double h = x->hidden;

	return 6 * x->batch * x->seq * (12 * h * h * x->layers + VOCAB * h) / x->ranks;
}

/* ---- fitting --------------------------------------------------------------------------------- */

static double loss(const struct data *d, const bool *held, const double *logs)
{
	double f[FITTED], sum = 0;

	for (int k = 0; k < FITTED; k++)
		f[k] = exp(logs[k]);
	for (size_t i = 0; i < d->n; i++)
		if (!held[i]) {
			double r = log(predict(d, &d->v[i], f) / d->v[i].ns) / SOFT;

			sum += sqrt(1 + r * r) - 1;
		}
	return sum;
}

/* One round along the axes from v; what it reached. */
static double explore(const struct data *d, const bool *held, double *v, double step, double best)
{
	for (int k = 0; k < FITTED; k++) {
		double was = v[k];

		for (int sign = -1; sign <= 1; sign += 2) {
			double now;

			v[k] = was + sign * step;
			now = loss(d, held, v);
			if (now < best) {
				best = now;
				break;
			}
			v[k] = was;
		}
	}
	return best;
}

static void fit(const struct data *d, const bool *held, double *fitted)
{
	double v[FITTED] = { log(0.5), log(1e6), log(2e4), log(1e6) };
	double best = loss(d, held, v);

	for (double step = 0.5; step > 1e-4; step /= 2)
		for (;;) {
			double was[FITTED], next[FITTED], now, far;

			memcpy(was, v, sizeof(v));
			now = explore(d, held, v, step, best);
			if (!(now < best))
				break;
			best = now;
			for (int k = 0; k < FITTED; k++) /* once more the same way */
				next[k] = 2 * v[k] - was[k];
			far = explore(d, held, next, step, loss(d, held, next));
			if (far < best) {
				best = far;
				memcpy(v, next, sizeof(v));
			}
		}
	for (int k = 0; k < FITTED; k++)
		fitted[k] = exp(v[k]);
}

/* What the held jobs take, by the fit and by FLOPs. */
static void list(const struct data *d, const bool *held, const double *fitted, double ratio)
{
	for (size_t i = 0; i < d->n; i++) {
		const struct point *x = &d->v[i];

		if (held[i])
			printf("= %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.0f %.3f %.3f %.3f\n",
			       x->batch, x->micro, x->hidden, x->heads, x->layers, x->seq, x->tp,
			       x->dp, x->ns / 1e6, predict(d, x, fitted) / 1e6,
			       ratio * flops_per_rank(x) / 1e6);
	}
}

static int report(const struct data *d, const char *name, const bool *held, bool lists,
		  struct pl_err *err)
{
	double f[FITTED], mean = 0, worst = 0, naive = 0, naive_worst = 0, ratio, *r;
	size_t tested = 0, trained = 0;
	int rc = pl_alloc(&r, d->n, sizeof(*r), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < d->n; i++)
		if (!held[i])
			r[trained++] = d->v[i].ns / flops_per_rank(&d->v[i]);
	pl_sort(r, trained, sizeof(*r), pl_compare_double);
	ratio = trained ? r[trained / 2] : 0;
	pl_free(r);
	fit(d, held, f);
	for (size_t i = 0; i < d->n; i++) {
		double e = 100 * fabs(predict(d, &d->v[i], f) / d->v[i].ns - 1);
		double n = 100 * fabs(ratio * flops_per_rank(&d->v[i]) / d->v[i].ns - 1);

		if (!held[i])
			continue;
		tested++;
		mean += e;
		naive += n;
		worst = fmax(worst, e);
		naive_worst = fmax(naive_worst, n);
	}
	if (!trained || !tested)
		return pl_fail(err, PL_EDATA, "%s: nothing to fit or nothing to test", name);
	printf("%s %zu %zu %.2f %.1f %.1f %.1f\n", name, trained, tested, mean / (double)tested,
	       worst, naive / (double)tested, naive_worst);
	printf("# %s: e %.3f, host %.2f ms a layer, ring step %.1f us, constant %.2f ms\n", name,
	       f[0], f[1] / 1e6, f[2] / 1e3, f[3] / 1e6);
	if (lists)
		list(d, held, f, ratio);
	return 0;
}

/* The key that only `largest` distinct ones reach: everything from it on is held out. */
static double threshold(const struct data *d, double (*key)(const struct point *), int largest)
{
	double below = INFINITY;

	for (int k = 0; k < largest; k++) {
		double most = -INFINITY;

		for (size_t i = 0; i < d->n; i++)
			if (key(&d->v[i]) < below && key(&d->v[i]) > most)
				most = key(&d->v[i]);
		below = most;
	}
	return below;
}

static double hidden(const struct point *x)
{
	return x->hidden;
}

static double model_size(const struct point *x)
{
	return 12 * x->hidden * x->hidden * x->layers + VOCAB * x->hidden;
}

static int hold_out(const struct data *d, const char *name, double (*key)(const struct point *),
		    int largest, struct pl_err *err)
{
	double from = threshold(d, key, largest);
	bool *held;
	int rc = pl_alloc(&held, d->n, sizeof(*held), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < d->n; i++)
		held[i] = key(&d->v[i]) >= from;
	rc = report(d, name, held, false, err);
	pl_free(held);
	return rc;
}

static int hold_out_sample(const struct data *d, size_t every, struct pl_err *err)
{
	size_t n = 0;
	bool *held;
	int rc = pl_alloc(&held, d->n, sizeof(*held), err);

	if (rc < 0)
		return rc;
	for (double ranks = 2; ranks <= 8; ranks++) {
		const struct table *t = &d->ar[(int)ranks];
		double per_byte = (t->ns[2] - t->ns[0]) / (t->bytes[2] - t->bytes[0]);

		if (t->bytes[2] > t->bytes[0])
			printf("LINK %.0f %.3f %.0f\n", ranks, 2 * (ranks - 1) / ranks / per_byte,
			       fmax(0, t->ns[0] - per_byte * t->bytes[0]) / (2 * (ranks - 1)));
	}
	for (size_t i = 0; i < d->n; i++)
		held[i] = d->v[i].pp == 1 && n++ % every == 0;
	rc = report(d, "sample-without-pipeline", held, true, err);
	pl_free(held);
	return rc;
}

int main(int argc, char **argv)
{
	struct data d = { 0 };
	struct pl_err err = { 0 };
	int rc, sizes = 2;

	if (argc < 2 || argc > 3 || (argc == 3 && atoi(argv[2]) < 1)) {
		fprintf(stderr, "usage: vtrain DIR [EVERY]\n");
		return 2;
	}
	PL_TRY(load(argv[1], &d, &err));
	if (argc == 3) {
		rc = hold_out_sample(&d, (size_t)atoi(argv[2]), &err);
		goto out;
	}
	/* with fewer than three hidden sizes, two cannot be held out: then the largest */
	if (threshold(&d, hidden, 3) == -INFINITY)
		sizes = 1;
	PL_TRY(hold_out(&d, sizes == 2 ? "two-largest-hidden-sizes" : "largest-hidden-size", hidden,
			sizes, &err));
	PL_TRY(hold_out(&d, "two-largest-models", model_size, 2, &err));
out:
	pl_free(d.v);
	if (rc < 0)
		fprintf(stderr, "vtrain: %s\n", err.msg);
	return pl_exit_status(rc);
}
