/* The report for people: the answer in one line, then the sections, 100 columns wide. */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "program.h"

#define BAR   21 /* characters */
#define WIDTH 100

char *fmt_ns(char *out, size_t size, double ns)
{
	static const struct {
		double unit;
		const char *name;
	} units[] = { { 1e9, "s" }, { 1e6, "ms" }, { 1e3, "us" }, { 1, "ns" } };
	size_t i = 0;
	double x;

	while (i + 1 < PL_LEN(units) && fabs(ns) < units[i].unit * 0.99995)
		i++;
	x = ns / units[i].unit;
	snprintf(out, size, "%.*f %s",
		 i == 3		    ? 0
		 : fabs(x) < 9.9995 ? 3
		 : fabs(x) < 99.995 ? 2
				    : 1,
		 x, units[i].name);
	return out;
}

/* ---- the answer ------------------------------------------------------------------------------ */

static int print_answer(const struct config *c, const struct report *r, struct pl_out *out,
			struct pl_err *err)
{
	bool color = pl_use_color(&c->c, 1);
	double change = r->predicted_mean - r->replayed_mean;
	char a[32], b[32], p[32];
	int rc;

	fmt_ns(a, sizeof(a), r->recorded_mean);
	fmt_ns(b, sizeof(b), r->replayed_mean);
	if (color)
		PL_TRY(pl_out_printf(out, err, "\033[1m"));
	PL_TRY(pl_out_printf(out, err, "step %s", a));
	if (r->n_steps > 1)
		PL_TRY(pl_out_printf(out, err, " (mean of %zu)", r->n_steps));
	PL_TRY(pl_out_printf(out, err, ", replayed %s (%+.2f %%)", b,
			     r->recorded_mean > 0 ? 100 * (r->replayed_mean / r->recorded_mean - 1)
						  : 0));
	if (isfinite(r->predicted_mean))
		PL_TRY(pl_out_printf(out, err, ", predicted %s (%+.2f %%)",
				     fmt_ns(p, sizeof(p), r->predicted_mean),
				     r->replayed_mean > 0 ? 100 * change / r->replayed_mean : 0));
	PL_TRY(pl_out_printf(out, err, ", %d rank%s, %.1f %% unexplained%s\n", r->g.n_ranks,
			     r->g.n_ranks == 1 ? "" : "s", 100 * r->unexplained_share,
			     color ? "\033[0m" : ""));
	for (size_t i = 0; i < r->given->list.n; i++)
		PL_TRY(pl_out_printf(out, err, "changed: %s (%" PRIu64 " operations)\n",
				     r->given->list.v[i], r->given->hits[i]));
	if (c->expand)
		PL_TRY(pl_out_printf(out, err,
				     "message by message: %" PRIu64 " collectives, %" PRIu64
				     " messages by %s\n",
				     r->expanded.collectives, r->expanded.messages,
				     pl_algo_name((unsigned)c->expand - 1)));
	if (isfinite(r->bias_mean) && fabs(r->bias_mean) >= 0.5)
		PL_TRY(pl_out_printf(
			out, err, "the model's error for what was recorded, %+.2f %%, is %s\n",
			r->replayed_mean > 0 ? 100 * r->bias_mean / r->replayed_mean : 0,
			r->bias_out ? "left out of the prediction"
				    : "too large to be left out of the prediction"));
	if (r->n_steps > 1)
		PL_TRY(pl_out_printf(out, err, "error of a step: mean %.3f %%, worst %+.3f %%\n",
				     100 * r->mean_abs_error, 100 * r->worst_error));
	if (r->g.stepless)
		PL_TRY(pl_out_printf(out, err,
				     "the input had no steps: all of it counts as one\n"));
	if (r->n_folded)
		PL_TRY(pl_out_printf(out, err, "folded: the %s of %zu of %zu steps\n",
				     c->fold == FOLD_MEDIAN ? "median" : "mean", r->n_folded,
				     r->n_recorded));
	if (r->n_starts)
		PL_TRY(pl_out_printf(out, err,
				     "starts of %" PRIu64
				     " %soperations, replayed against recorded: p50 "
				     "%s, p95 %s, max %s\n",
				     r->n_starts, r->start_device ? "device " : "",
				     fmt_ns(a, sizeof(a), (double)r->start_p50),
				     fmt_ns(b, sizeof(b), (double)r->start_p95),
				     fmt_ns(p, sizeof(p), (double)r->start_max)));
	rc = 0;
out:
	return rc;
}

static int print_heading(const struct config *c, const char *text, struct pl_out *out,
			 struct pl_err *err)
{
	bool color = pl_use_color(&c->c, 1);

	return pl_out_printf(out, err, "\n%s%s%s\n", color ? "\033[1m" : "", text,
			     color ? "\033[0m" : "");
}

static int print_rest(const struct config *c, size_t n, size_t shown, const char *what,
		      struct pl_out *out, struct pl_err *err)
{
	(void)c;
	return n <= shown ? 0
			  : pl_out_printf(out, err, "... and %zu more %s (--top=0 shows all)\n",
					  n - shown, what);
}

static size_t limit(const struct config *c, size_t n)
{
	return c->top > 0 && (uint64_t)c->top < n ? (size_t)c->top : n;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int print_steps(const struct config *c, const struct report *r, struct pl_out *out,
		       struct pl_err *err)
{
	static const struct pl_column col[] = {
		{ "step", "step", PL_CELL_I64, 0 },
		{ "recorded", "recorded", PL_CELL_STR, 0 },
		{ "period", "period", PL_CELL_STR, 0 },
		{ "replayed", "replayed", PL_CELL_STR, 0 },
		{ "error", "error", PL_CELL_STR, 0 },
		{ "predicted", "predicted", PL_CELL_STR, 0 },
		{ "change", "change", PL_CELL_STR, 0 },
	};
	bool what_if = isfinite(r->predicted_mean);
	struct pl_table *t = pl_table_new(col, what_if ? 7 : 5, err);
	size_t n = limit(c, r->n_steps);
	int rc = 0;

	if (!t)
		return err->code;
	for (size_t i = 0; i < n; i++) {
		const struct step_row *s = &r->step[i];
		char v[6][32] = { "", "-" };

		fmt_ns(v[0], sizeof(v[0]), (double)s->recorded);
		if (s->period != INT64_MIN)
			fmt_ns(v[1], sizeof(v[1]), (double)s->period);
		fmt_ns(v[2], sizeof(v[2]), (double)s->replayed);
		snprintf(v[3], sizeof(v[3]), "%+.3f %%", 100 * s->error);
		if (what_if) {
			fmt_ns(v[4], sizeof(v[4]), (double)s->predicted);
			snprintf(v[5], sizeof(v[5]), "%+.2f %%",
				 s->replayed ? 100 * (double)(s->predicted - s->replayed) /
						       (double)s->replayed
					     : 0);
		}
		PL_TRY(pl_table_row(t, err, s->number, v[0], v[1], v[2], v[3], v[4], v[5]));
	}
	PL_TRY(print_heading(c, "Steps", out, err));
	PL_TRY(pl_table_print(t, out, PL_TABLE_TEXT, NULL, err));
	rc = print_rest(c, r->n_steps, n, "steps", out, err);
out:
	pl_table_free(t);
	return rc;
}

/* ---- where the time goes --------------------------------------------------------------------- */

static const struct {
	const char *title, *color;
	char letter;
} parts[PARTS] = {
	{ "compute", "32", '#' }, { "+comm", "36", '+' },  { "comm", "34", '=' },
	{ "copy", "35", 'c' },	  { "host", "33", 'h' },   { "unexpl", "31", '?' },
	{ "wait", "37", 'w' },	  { "launch", "33", 'l' }, { "nothing", "90", '.' },
};

/* Each part gets its share of the characters; what rounding leaves goes to the largest remainders.
 */
static int print_bar(const struct pl_rank_time *t, bool color, struct pl_out *out,
		     struct pl_err *err)
{
	double share[PARTS];
	int width[PARTS], left = BAR, rc;

	for (int i = 0; i < PARTS; i++) {
		share[i] = t->span_ns > 0 ? BAR * (double)rank_part(t, i) / (double)t->span_ns : 0;
		width[i] = (int)share[i];
		left -= width[i];
	}
	for (; left > 0; left--) {
		int best = 0;

		for (int i = 1; i < PARTS; i++)
			if (share[i] - width[i] > share[best] - width[best])
				best = i;
		width[best]++;
	}
	for (int i = 0; i < PARTS; i++) {
		char text[BAR + 1];

		if (!width[i])
			continue;
		memset(text, parts[i].letter, (size_t)width[i]);
		text[width[i]] = '\0';
		if (color)
			PL_TRY(pl_out_printf(out, err, "\033[%sm%s\033[0m", parts[i].color, text));
		else
			PL_TRY(pl_out_printf(out, err, "%s", text));
	}
	rc = 0;
out:
	return rc;
}

static int print_rank(const struct pl_rank_time *t, bool color, struct pl_out *out,
		      struct pl_err *err)
{
	int rc;

	PL_TRY(pl_out_printf(out, err, "%5d", t->rank));
	for (int i = 0; i < PARTS; i++) {
		double x = t->span_ns > 0 ? 100 * (double)rank_part(t, i) / (double)t->span_ns : 0;

		if (rank_part(t, i))
			PL_TRY(pl_out_printf(out, err, " %7.1f", x));
		else
			PL_TRY(pl_out_printf(out, err, " %7s", "-"));
	}
	PL_TRY(pl_out_printf(out, err, "  "));
	PL_TRY(print_bar(t, color, out, err));
	rc = pl_out_printf(out, err, "\n");
out:
	return rc;
}

static pl_ns waits(const struct pl_rank_time *t)
{
	return t->idle_ns[PL_I_WAIT];
}

/* Few ranks: all. Many: the slowest, which wait least. */
static int print_ranks(const struct config *c, const struct report *r, struct pl_out *out,
		       struct pl_err *err)
{
	const struct pl_account *a = &r->account;
	size_t n = a->n_ranks <= 16 ? a->n_ranks : limit(c, a->n_ranks);
	char text[160], ns[32];
	bool *done = NULL;
	int rc;

	PL_TRY(pl_alloc(&done, a->n_ranks, sizeof(*done), err));
	snprintf(text, sizeof(text), "Where the time goes, in %% of %s%s%s",
		 fmt_ns(ns, sizeof(ns), a->n_ranks ? (double)a->rank[0].span_ns : 0),
		 isfinite(r->predicted_mean) ? ", with the changes" : "",
		 n < a->n_ranks ? "; the ranks that wait least" : "");
	PL_TRY(print_heading(c, text, out, err));
	PL_TRY(pl_out_printf(out, err, " rank"));
	for (int i = 0; i < PARTS; i++)
		PL_TRY(pl_out_printf(out, err, " %7s", parts[i].title));
	PL_TRY(pl_out_printf(out, err, "  "));
	for (int i = 0; i < PARTS; i++)
		PL_TRY(pl_out_printf(out, err, "%c", parts[i].letter));
	PL_TRY(pl_out_printf(out, err, "\n"));
	for (size_t k = 0; k < n; k++) {
		size_t best = k;

		if (n < a->n_ranks) {
			best = a->n_ranks;
			for (size_t i = 0; i < a->n_ranks; i++)
				if (!done[i] && (best == a->n_ranks ||
						 waits(&a->rank[i]) < waits(&a->rank[best])))
					best = i;
		}
		done[best] = true;
		PL_TRY(print_rank(&a->rank[best], pl_use_color(&c->c, 1), out, err));
	}
	rc = print_rest(c, a->n_ranks, n, "ranks", out, err);
out:
	pl_free(done);
	return rc;
}

/* ---- the rest -------------------------------------------------------------------------------- */

static int print_section(const struct config *c, const struct report *r, enum section which,
			 const char *title, size_t n, const char *what, struct pl_out *out,
			 struct pl_err *err)
{
	struct pl_table *t = make_table(r, which, c->top, err);
	int rc;

	if (!t)
		return err->code;
	PL_TRY(print_heading(c, title, out, err));
	PL_TRY(pl_table_print(t, out, PL_TABLE_TEXT, NULL, err));
	rc = print_rest(c, n, pl_table_rows(t), what, out, err);
out:
	pl_table_free(t);
	return rc;
}

/* Words of `text` after `head`, in lines of WIDTH; those after the first are indented. */
static int print_wrapped(const char *head, const char *text, struct pl_out *out, struct pl_err *err)
{
	size_t at = strlen(head), n;
	int rc = pl_out_printf(out, err, "%s", head);

	for (; rc >= 0 && *text; text += n + strspn(text + n, " ")) {
		n = strcspn(text, " ");
		if (at + 1 + n > WIDTH) {
			rc = pl_out_printf(out, err, "\n    ");
			at = 4;
		}
		if (rc >= 0)
			rc = pl_out_printf(out, err, " %.*s", (int)n, text);
		at += n + 1;
	}
	return rc < 0 ? rc : pl_out_printf(out, err, "\n");
}

static int print_slow(const struct config *c, const struct report *r, struct pl_out *out,
		      struct pl_err *err)
{
	int rc;

	PL_TRY(print_heading(c, "Slowest ranks", out, err));
	if (!r->n_slow)
		PL_TRY(pl_out_printf(out, err, "no rank waits much less than the others\n"));
	for (size_t i = 0; i < r->n_slow; i++) {
		char head[32];

		snprintf(head, sizeof(head), "rank %d", r->slow[i].rank);
		PL_TRY(print_wrapped(head, r->slow[i].why, out, err));
	}
	rc = 0;
out:
	return rc;
}

static int print_worth(const struct config *c, const struct report *r, struct pl_out *out,
		       struct pl_err *err)
{
	if (!r->n_changes) {
		int rc = print_heading(c, "Worth most", out, err);

		return rc < 0 ? rc
			      : pl_out_printf(out, err,
					      "nothing that is twice as fast shortens the step\n");
	}
	return print_section(c, r, SEC_WORTH, "Worth most, by simulation (as --what-if takes them)",
			     0, "", out, err);
}

int print_text(const struct config *c, const struct report *r, struct pl_out *out,
	       struct pl_err *err)
{
	int rc;

	PL_TRY(print_answer(c, r, out, err));
	if (c->explain) {
		PL_TRY(print_heading(c, "What the plan changes", out, err));
		PL_TRY(pl_out_write(out, r->explained.p, r->explained.n, err));
	}
	if (r->n_steps > 1)
		PL_TRY(print_steps(c, r, out, err));
	PL_TRY(print_ranks(c, r, out, err));
	if (c->resources)
		PL_TRY(print_section(c, r, SEC_RESOURCES, "Resources", resources_shown(r),
				     "resources", out, err));
	PL_TRY(print_section(c, r, SEC_PATH, "Critical path", r->n_rows, "entries", out, err));
	if (c->path)
		PL_TRY(print_section(c, r, SEC_EVENTS, "Critical path, in order", r->path.n,
				     "parts", out, err));
	if (r->n_memory)
		PL_TRY(print_section(c, r, SEC_MEMORY, "Memory: the highest peak of each rank",
				     r->n_memory, "ranks", out, err));
	if (r->account.n_ranks > 1)
		PL_TRY(print_slow(c, r, out, err));
	if (c->worth)
		PL_TRY(print_worth(c, r, out, err));
	rc = 0;
out:
	return rc;
}
