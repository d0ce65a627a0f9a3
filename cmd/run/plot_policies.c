/*
 * A comparison of policies as a picture, from the table that --policies wrote: on the left the time
 * to the target by H, in the middle the samples a second of all workers by H, on the right the
 * shares of a worker's time at the greatest H. A line joins the medians over seeds, dots are single
 * trainings; of several learning rates the one with the least median time counts. Where no rate
 * reached the target, the first one does.
 */
#include <math.h>
#include <stdlib.h>

#include "io/csv.h"
#include "plot.h"

enum { H, RATE, SECONDS, SPEED, COMPUTE, WAIT, COMM, NUMBERS };
static const char *const names[NUMBERS] = { "h_nominal",	 "lr",
					    "seconds_to_target", "samples_per_s",
					    "compute_share",	 "wait_share",
					    "comm_share" };

struct trained { /* a row */
	const char *policy;
	double v[NUMBERS]; /* NAN: empty */
};
struct table {
	struct pl_arena arena;
	struct trained *v;
	size_t n, cap;
	const char **policy; /* each once, in the order of the rows */
	size_t n_policies, cap_policies;
	int column[NUMBERS], policy_column;
	bool header;
};

/* ---- reading --------------------------------------------------------------------------------- */

static int read_header(struct table *t, const struct pl_csv_row *r, struct pl_err *err)
{
	t->header = true;
	t->policy_column = -1;
	for (int k = 0; k < NUMBERS; k++)
		t->column[k] = -1;
	for (size_t i = 0; i < r->n; i++) {
		if (!strcmp(r->field[i], "policy"))
			t->policy_column = (int)i;
		for (int k = 0; k < NUMBERS; k++)
			if (!strcmp(r->field[i], names[k]))
				t->column[k] = (int)i;
	}
	for (int k = 0; k < NUMBERS; k++)
		if (t->column[k] < 0 || t->policy_column < 0)
			return pl_fail(
				err, PL_EDATA, "line %lld: a table of --policies has a column %s",
				(long long)r->line, t->policy_column < 0 ? "policy" : names[k]);
	return 0;
}

static int policy_of(struct table *t, const char *name, const char **out, struct pl_err *err)
{
	char *copy;

	for (size_t i = 0; i < t->n_policies; i++)
		if (!strcmp(t->policy[i], name)) {
			*out = t->policy[i];
			return 0;
		}
	PL_CHECK(pl_dup(&t->arena, &copy, name, err));
	*out = copy;
	return pl_append(&t->policy, &t->n_policies, &t->cap_policies, &copy, sizeof(copy), err);
}

static int read_row(void *arg, const struct pl_csv_row *r, struct pl_err *err)
{
	struct table *t = arg;
	struct trained x;

	if (!t->header)
		return read_header(t, r, err);
	if (!strcmp(r->field[t->policy_column], "policy")) /* tables one after another */
		return 0;
	PL_CHECK(policy_of(t, r->field[t->policy_column], &x.policy, err));
	for (int k = 0; k < NUMBERS; k++) {
		size_t at = (size_t)t->column[k];
		char *end = NULL;

		x.v[k] = at < r->n && r->len[at] ? strtod(r->field[at], &end) : NAN;
		if (end && *end)
			return pl_fail(err, PL_EDATA, "line %lld: %s is no number",
				       (long long)r->line, names[k]);
	}
	return pl_append(&t->v, &t->n, &t->cap, &x, sizeof(x), err);
}

/* ---- medians --------------------------------------------------------------------------------- */

/* Over the seeds; where the target was not reached, the time is infinite. *n: how many. */
static double median(const struct table *t, const char *policy, double h, double rate, int what,
		     size_t *n)
{
	double *v, m;
	struct pl_err ignore = { 0 };

	*n = 0;
	if (pl_alloc(&v, t->n + 1, sizeof(*v), &ignore) < 0)
		return NAN;
	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].policy == policy && t->v[i].v[H] == h && t->v[i].v[RATE] == rate)
			v[(*n)++] = isnan(t->v[i].v[what]) ? INFINITY : t->v[i].v[what];
	pl_sort(v, *n, sizeof(*v), pl_compare_double);
	m = *n ? (v[(*n - 1) / 2] + v[*n / 2]) / 2 : NAN;
	pl_free(v);
	return m;
}

/* The rate with the least time to the target, of the rows with this H. NAN: there is none. */
static double best_rate(const struct table *t, const char *policy, double h)
{
	double best = NAN, least = INFINITY;
	size_t n;

	for (size_t i = 0; i < t->n; i++) {
		const struct trained *x = &t->v[i];
		double m;

		if (x->policy != policy || x->v[H] != h)
			continue;
		m = median(t, policy, h, x->v[RATE], SECONDS, &n);
		if (isnan(best) || m < least) {
			best = x->v[RATE];
			least = m;
		}
	}
	return best;
}

/* The least H above `after`; INFINITY: there is none. */
static double next_h(const struct table *t, double after)
{
	double h = INFINITY;

	for (size_t i = 0; i < t->n; i++)
		if (t->v[i].v[H] > after)
			h = fmin(h, t->v[i].v[H]);
	return h;
}

/* ---- drawing --------------------------------------------------------------------------------- */

/* Of H: no point is on the border, and a single one is in the middle. */
static struct plot_scale scale_of_h(const struct table *t)
{
	double first = next_h(t, 0), last = 0;
	struct plot_scale x;

	for (size_t i = 0; i < t->n; i++)
		last = fmax(last, t->v[i].v[H]);
	if (!isfinite(first)) /* the table has none */
		first = last = 1;
	if (last > first)
		plot_set_scale(&x, fmin(1, first), last + 0.04 * (last - fmin(1, first)));
	else
		x = (struct plot_scale){ last - 0.5, last + 0.5, 0.25 };
	return x;
}

static void by_h(struct pl_writer *w, const struct table *t, int panel, int what, const char *title)
{
	struct plot_scale x = scale_of_h(t), y;
	double most = 0, first = next_h(t, 0);
	size_t n;

	for (size_t i = 0; i < t->n; i++)
		most = fmax(most, t->v[i].v[what]);
	plot_set_scale(&y, 0, most);
	plot_axes(w, panel, &x, &y, title);
	if (most <= 0)
		pl_write_format(w, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
				plot_x(&x, panel, (x.lo + x.hi) / 2), TOP + HEIGHT / 2,
				what == SECONDS ? "no training reached a target"
						: "nothing was measured");
	for (size_t k = 0; k < t->n_policies; k++) {
		bool any = false;

		pl_write_format(w, "<path class=\"l\" stroke=\"%s\" d=\"", plot_color((int)k));
		for (double h = first; isfinite(h); h = next_h(t, h)) {
			double m =
				median(t, t->policy[k], h, best_rate(t, t->policy[k], h), what, &n);

			if (!isfinite(m))
				continue;
			pl_write_format(w, "%s%.1f %.1f%s", any ? "L" : "M", plot_x(&x, panel, h),
					plot_y(&y, m), any ? "" : "h0");
			any = true;
		}
		pl_write_text(w, "\"/>\n");
		for (size_t i = 0; i < t->n; i++)
			if (t->v[i].policy == t->policy[k] && isfinite(t->v[i].v[what]) &&
			    t->v[i].v[RATE] == best_rate(t, t->policy[k], t->v[i].v[H]))
				pl_write_format(
					w,
					"<circle r=\"3\" cx=\"%.1f\" cy=\"%.1f\" fill=\"%s\"/>\n",
					plot_x(&x, panel, t->v[i].v[H]),
					plot_y(&y, t->v[i].v[what]), plot_color((int)k));
	}
}

static void bar(struct pl_writer *w, double left, double width, double y, double height,
		const char *fill)
{
	pl_write_format(
		w, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n",
		left, y, fmax(0, width), height, fill);
}

/* A bar a policy: computing, waiting for others, committing. */
static void shares(struct pl_writer *w, const struct table *t, int panel)
{
	/* none of them is the colour of a policy */
	static const char *const fill[] = { "#9e9ac8", "#e7cb94", "#8c6d31" };
	static const char *const word[] = { "computing", "waiting", "committing" };
	struct plot_scale x = { 0, 100, 20 };
	double left = plot_x(&x, panel, 0), all = plot_x(&x, panel, 100) - left, last = 0, each;
	size_t n;

	for (double h = next_h(t, 0); isfinite(h); h = next_h(t, h))
		last = h;
	each = HEIGHT / (double)(t->n_policies + 1);
	for (size_t k = 0; k < t->n_policies; k++) {
		double at = left, y = TOP + each * ((double)k + 0.5);

		pl_write_format(w, "<text x=\"%.1f\" y=\"%.1f\">", left, y - 3);
		plot_text(w, t->policy[k]);
		pl_write_text(w, "</text>\n");
		for (int s = 0; s < 3; s++) {
			double m = median(t, t->policy[k], last, best_rate(t, t->policy[k], last),
					  COMPUTE + s, &n);

			if (!isfinite(m))
				continue;
			bar(w, at, m * all, y, fmin(14, 0.5 * each), fill[s]);
			at += m * all;
		}
	}
	for (int s = 0; s < 3; s++) {
		bar(w, left + 100 * s, 10, TOP + HEIGHT + 4, 10, fill[s]);
		pl_write_format(w, "<text x=\"%.1f\" y=\"%d\">%s</text>\n", left + 100 * s + 14,
				TOP + HEIGHT + 13, word[s]);
	}
	pl_write_format(
		w,
		"<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">shares of a worker's time at H = "
		"%.3g</text>\n",
		left + all / 2, TOP + HEIGHT + 36, last);
}

/* Above the panels, where it hides nothing. */
static void legend(struct pl_writer *w, const struct table *t)
{
	const size_t in_row = 12;

	for (size_t k = 0; k < t->n_policies; k++) {
		int x = LEFT + 72 + 140 * (int)(k % in_row);
		int y = t->n_policies > in_row ? 16 + 16 * (int)(k / in_row) : 24;

		pl_write_format(w,
				"<path class=\"l\" stroke=\"%s\" d=\"M%d %dh24\"/><circle r=\"3\" "
				"cx=\"%d\" cy=\"%d\" fill=\"%s\"/><text x=\"%d\" y=\"%d\">",
				plot_color((int)k), x, y - 4, x + 12, y - 4, plot_color((int)k),
				x + 30, y);
		plot_text(w, t->policy[k]);
		pl_write_text(w, "</text>\n");
	}
	plot_note(w, "dots: trainings; lines: medians of their seeds; of several learning rates "
		     "the one with the least median time to the target");
}

bool plot_is_comparison(const char *path)
{
	static const char begin[] = "policy,";
	struct pl_err ignore = { 0 };
	struct pl_in *in = strcmp(path, "-") ? pl_in_open(path, &ignore) : NULL;
	const uint8_t *p;
	bool is;

	if (!in)
		return false;
	is = pl_in_peek(in, sizeof(begin) - 1, &p, &ignore) >= (int64_t)sizeof(begin) - 1 &&
	     !memcmp(p, begin, sizeof(begin) - 1);
	pl_in_close(in);
	return is;
}

int plot_policies(char **path, int n, struct pl_out *out, struct pl_err *err)
{
	struct table t = { 0 };
	struct pl_writer w;
	int rc = 0;

	for (int i = 0; i < n && rc >= 0; i++) {
		struct pl_in *in = pl_in_open(path[i], err);

		rc = in ? pl_csv_read(in, read_row, &t, err) : err->code;
		if (in && rc < 0)
			pl_wrap(err, "%s", pl_in_name(in));
		pl_in_close(in);
		t.header = t.header && i + 1 == n;
	}
	PL_TRY(rc);
	if (!t.n) {
		rc = pl_fail(err, PL_EDATA, "%s: no training in it", path[0]);
		goto out;
	}
	pl_write_init(&w, out, 0);
	plot_begin(&w, 3, "policies");
	by_h(&w, &t, 0, SECONDS, "seconds to the target by H");
	by_h(&w, &t, 1, SPEED, "samples a second by H");
	shares(&w, &t, 2);
	legend(&w, &t);
	pl_write_text(&w, "</svg>\n");
	rc = pl_write_end(&w, err);
out:
	pl_free(t.v);
	pl_free(t.policy);
	pl_arena_fini(&t.arena);
	return rc;
}
