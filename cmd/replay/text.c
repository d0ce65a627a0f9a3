/* The report for people: the answer in one line, then the sections, 100 columns wide. */
#include <inttypes.h>
#include <math.h>

#include "program.h"

#define BAR   21    /* characters */
#define SURE  0.005 /* a smaller error of communication is not shown */
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

/* What is not known of communication over other links or between other ranks. */
static void print_basis(const struct report *r, struct pl_writer *w)
{
	const struct pl_rewrite_basis *b = &r->basis;
	char some[48] = "";

	if (b->unknown && b->unknown < b->collectives)
		snprintf(some, sizeof(some), "%" PRIu64 " of %" PRIu64 " ", b->unknown,
			 b->collectives);
	if (b->assumed)
		pl_write_format(w,
				"assumed: %scollectives go along rings; the graph does not say "
				"their algorithm\n",
				some);
	if (b->links_assumed)
		pl_write_text(w, "assumed: each rank has one link for all that it sends; the graph "
				 "does not say whether it has one to each rank\n");
	if (b->ranks)
		pl_write_format(w, "assumed: all ranks are like the recorded ones%s\n",
				r->changes->has_topology
					? ""
					: ", and their links do not hinder each other");
	if (b->links_unknown)
		pl_write_format(w,
				"assumed: ranks that share layers have links of a common network "
				"between hosts: %.0f %% of the time of transfers may be wrong\n",
				100 * b->error);
	if (b->error < SURE || b->links_unknown)
		return;
	pl_write_format(w,
			"estimated from %" PRIu64 " whole transfers, as %s%s: "
			"%.0f %% of the time of transfers may be wrong\n",
			b->samples,
			r->messages_folded ? "the messages of the trace were folded for this change"
					   : "there are no messages",
			b->one_size ? ", of sizes that do not tell latency from bandwidth" : "",
			100 * b->error);
}

/* "step 204.2 ms (mean of 5), predicted 96.5 ms (-17.80 %, 90 % interval -21.0 to -14.9 %)", or
 * what was replayed; where steps overlap it is their mean period. */
static void print_step(const struct report *r, struct pl_writer *w)
{
	double replayed = r->replayed_step, predicted = r->predicted_step;
	double change = replayed > 0 ? predicted / replayed - 1 : 0;
	char ns[32], high[32];

	pl_write_format(w, "step %s", fmt_ns(ns, sizeof(ns), r->recorded_step));
	if (r->n_steps > 1)
		pl_write_format(w, " (mean %sof %zu)", r->overlap ? "period " : "", r->n_steps);
	if (!isfinite(r->predicted_mean)) {
		pl_write_text(w, ", ");
		return;
	}
	pl_write_format(w, ", predicted %s (%+.2f %%, 90 %% interval %+.1f to %+.1f %%%s)",
			fmt_ns(ns, sizeof(ns), predicted), 100 * change,
			100 * (change + r->trust.first_low), 100 * (change + r->trust.first_high),
			is_unreliable(r) ? ", not reliable" : "");
	if (r->trust.more_ns > 0) /* the durations that change are predictions themselves */
		pl_write_format(
			w, ", in all %s to %s",
			fmt_ns(ns, sizeof(ns),
			       fmax(0, predicted + low_ns(r, r->trust.first_low, replayed))),
			fmt_ns(high, sizeof(high),
			       predicted + high_ns(r, r->trust.first_high, replayed)));
}

/* The rest of the answer: a line of its own behind a prediction. */
static void print_replayed(const struct report *r, struct pl_writer *w)
{
	double recorded = r->recorded_step, replayed = r->replayed_step;
	char ns[32], high[32];

	pl_write_format(w, "replayed %s (%+.2f %%)", fmt_ns(ns, sizeof(ns), replayed),
			recorded > 0 ? 100 * (replayed / recorded - 1) : 0);
	if (r->estimated && r->n_steps == 1)
		pl_write_format(w, ", 90 %% interval %s to %s",
				fmt_ns(ns, sizeof(ns), (double)r->step[0].replayed_lo),
				fmt_ns(high, sizeof(high), (double)r->step[0].replayed_hi));
	pl_write_format(w, ", %d rank%s", r->g.n_ranks, r->g.n_ranks == 1 ? "" : "s");
	if (r->basis.ranks)
		pl_write_format(w, ", %" PRIu32 " predicted", r->basis.ranks);
	pl_write_format(w, ", %.1f %% unexplained", 100 * r->unexplained_share);
}

static void print_answer(const struct config *c, const struct report *r, struct pl_writer *w)
{
	const char *end = pl_use_color(&c->c, 1) ? "\033[0m\n" : "\n";
	char a[32], b[32], p[32];

	if (pl_use_color(&c->c, 1))
		pl_write_text(w, "\033[1m");
	print_step(r, w);
	if (isfinite(r->predicted_mean))
		pl_write_text(w, end);
	print_replayed(r, w);
	pl_write_text(w, isfinite(r->predicted_mean) ? "\n" : end);
	if (r->overlap)
		pl_write_format(w, "a step takes %s from its first start to its last end\n",
				fmt_ns(a, sizeof(a), r->recorded_mean));
	print_trust("trust:", r, w);
	for (size_t i = r->changes->first; i < r->changes->plan.n_rw; i++) {
		pl_write_format(w, "changed: %s", r->changes->plan.rw[i].text);
		if (r->changes->hits)
			pl_write_format(w, " (%" PRIu64 " operation%s)", r->changes->hits[i],
					r->changes->hits[i] == 1 ? "" : "s");
		if (r->changes->plan.rw[i].op == PL_RW_BATCH && r->basis.batch)
			pl_write_format(w,
					"; the recording has %" PRId64 " samples a rank and step",
					r->basis.batch);
		pl_write_text(w, "\n");
	}
	print_verdict(r, w);
	print_waits(r, w);
	print_advice(r, w);
	print_basis(r, w);
	if (c->expand)
		pl_write_format(w,
				"message by message: %" PRIu64 " collectives, %" PRIu64
				" messages by %s\n",
				r->expanded.collectives, r->expanded.messages,
				pl_plan_algorithm_name((unsigned)c->expand - 1));
	if (isfinite(r->bias_mean) && fabs(r->bias_mean) >= 0.5)
		pl_write_format(w, "the model is %.2f %% too %s for the recorded steps; %s\n",
				r->replayed_mean > 0 ? 100 * fabs(r->bias_mean) / r->replayed_mean
						     : 0,
				r->bias_mean < 0 ? "short" : "long",
				r->bias_out ? "the prediction is corrected for this"
					    : "this is too much to correct the prediction for it");
	if (r->n_steps > 1)
		pl_write_format(w, "error of a step: mean %.3f %%, worst %+.3f %%\n",
				100 * r->mean_abs_error, 100 * r->worst_error);
	if (r->g.stepless)
		pl_write_text(w, "the input had no steps: all of it counts as one\n");
	if (r->n_folded)
		pl_write_format(w, "folded: the %s of %zu of %zu steps\n",
				c->fold == FOLD_MEDIAN ? "median" : "mean", r->n_folded,
				r->n_recorded);
	if (r->n_starts)
		pl_write_format(w,
				"starts of %" PRIu64
				" %soperations, replayed against recorded: p50 "
				"%s, p95 %s, max %s\n",
				r->n_starts, r->start_device ? "device " : "",
				fmt_ns(a, sizeof(a), (double)r->start_p50),
				fmt_ns(b, sizeof(b), (double)r->start_p95),
				fmt_ns(p, sizeof(p), (double)r->start_max));
}

void print_heading(const struct config *c, const char *text, struct pl_writer *w)
{
	bool color = pl_use_color(&c->c, 1);

	pl_write_format(w, "\n%s%s%s\n", color ? "\033[1m" : "", text, color ? "\033[0m" : "");
}

void print_rest(size_t n, size_t shown, const char *what, struct pl_writer *w)
{
	if (n > shown)
		pl_write_format(w, "... and %zu more %s (--top=0 shows all)\n", n - shown, what);
}

static size_t limit(const struct config *c, size_t n)
{
	return c->top > 0 && (uint64_t)c->top < n ? (size_t)c->top : n;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void print_steps(const struct config *c, const struct report *r, struct pl_writer *w)
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
	struct pl_table t = { .col = col, .n_cols = what_if ? 7 : 5 };
	size_t n = limit(c, r->n_steps);

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
		pl_table_row(&t, s->number, v[0], v[1], v[2], v[3], v[4], v[5]);
	}
	print_heading(c, "Steps", w);
	pl_table_write(&t, w, PL_TABLE_TEXT, NULL);
	print_rest(r->n_steps, n, "steps", w);
	pl_table_fini(&t);
}

/* ---- where the time goes --------------------------------------------------------------------- */

/* Each part gets its share of the characters; what rounding leaves goes to the largest remainders.
 */
static void print_bar(const struct pl_rank_time *t, bool color, struct pl_writer *w)
{
	double share[PARTS];
	int width[PARTS], left = BAR;

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
		memset(text, rank_parts[i].letter, (size_t)width[i]);
		text[width[i]] = '\0';
		if (color)
			pl_write_format(w, "\033[%sm%s\033[0m", rank_parts[i].color, text);
		else
			pl_write_format(w, "%s", text);
	}
}

static void print_rank(const struct pl_rank_time *t, bool color, struct pl_writer *w)
{
	pl_write_format(w, "%5d", t->rank);
	for (int i = 0; i < PARTS; i++) {
		double x = t->span_ns > 0 ? 100 * (double)rank_part(t, i) / (double)t->span_ns : 0;

		if (rank_part(t, i))
			pl_write_format(w, " %7.1f", x);
		else
			pl_write_format(w, " %7s", "-");
	}
	pl_write_text(w, "  ");
	print_bar(t, color, w);
	pl_write_text(w, "\n");
}

/* Few ranks: all. Many: the slowest, which are idle least. */
static void print_ranks(const struct config *c, const struct report *r, struct pl_writer *w)
{
	const struct pl_account *a = &r->account;
	size_t n = a->n_ranks <= 16 ? a->n_ranks : limit(c, a->n_ranks);
	char text[160], ns[32];
	struct pl_rank_time *slow;

	if (ranks_by_idle(a, &slow, &w->fail) < 0)
		return;
	snprintf(text, sizeof(text), "Where the time goes, in %% of %s%s%s",
		 fmt_ns(ns, sizeof(ns), a->n_ranks ? (double)a->rank[0].span_ns : 0),
		 isfinite(r->predicted_mean) ? ", with the changes" : "",
		 n < a->n_ranks ? "; the ranks that are idle least" : "");
	print_heading(c, text, w);
	pl_write_text(w, " rank");
	for (int i = 0; i < PARTS; i++)
		pl_write_format(w, " %7s", rank_parts[i].title);
	pl_write_text(w, "  ");
	for (int i = 0; i < PARTS; i++)
		pl_write_format(w, "%c", rank_parts[i].letter);
	pl_write_text(w, "\n");
	for (size_t k = 0; k < n; k++)
		print_rank(n < a->n_ranks ? &slow[k] : &a->rank[k], pl_use_color(&c->c, 1), w);
	print_rest(a->n_ranks, n, "ranks", w);
	pl_free(slow);
}

/* ---- the rest -------------------------------------------------------------------------------- */

/* `what`: its rows, as words. */
static void print_section(const struct config *c, const struct report *r, enum section which,
			  const char *title, const char *what, struct pl_writer *w)
{
	struct pl_table t;
	size_t n = make_table(r, which, c->top, &t);

	print_heading(c, title, w);
	pl_table_write(&t, w, PL_TABLE_TEXT, NULL);
	if (what)
		print_rest(n, t.n_rows, what, w);
	pl_table_fini(&t);
}

int print_table(const struct config *c, const struct pl_table *t, size_t n, struct pl_out *out,
		struct pl_err *err)
{
	struct pl_writer w;
	int rc;

	pl_write_init(&w, out, 0);
	pl_table_write(t, &w, table_format[c->to], NULL);
	if (c->to == AS_TEXT)
		print_rest(n, t->n_rows, "rows", &w);
	rc = pl_write_end(&w, err);
	pl_write_fini(&w);
	return rc;
}

void print_wrapped(const char *head, const char *text, struct pl_writer *w)
{
	size_t at = strlen(head), n;

	pl_write_text(w, head);
	for (; *text; text += n + strspn(text + n, " ")) {
		n = strcspn(text, " ");
		if (at + 1 + n > WIDTH) {
			pl_write_text(w, "\n    ");
			at = 4;
		}
		pl_write_char(w, ' ');
		pl_write(w, text, n);
		at += n + 1;
	}
	pl_write_text(w, "\n");
}

static void print_slow(const struct config *c, const struct report *r, struct pl_writer *w)
{
	print_heading(c, "Slowest ranks", w);
	if (!r->n_slow)
		pl_write_text(w, "no rank is idle much less than the others\n");
	for (size_t i = 0; i < r->n_slow; i++) {
		char head[32];

		snprintf(head, sizeof(head), "rank %d", r->slow[i].rank);
		print_wrapped(head, r->slow[i].why, w);
	}
}

static void print_worth(const struct config *c, const struct report *r, struct pl_writer *w)
{
	if (r->n_changes) {
		print_section(c, r, SEC_WORTH,
			      only_simulates(r)
				      ? "Worth most, by simulation (as --what-if takes them, but "
					"without contention and the profiler's time)"
				      : "Worth most, by simulation (as --what-if takes them)",
			      NULL, w);
		return;
	}
	print_heading(c, "Worth most", w);
	pl_write_text(w, "nothing that is twice as fast shortens the step\n");
}

int print_text(const struct config *c, const struct report *r, struct pl_out *out,
	       struct pl_err *err)
{
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	print_answer(c, r, &w);
	if (c->explain) {
		print_heading(c, "What the plan changes", &w);
		pl_write(&w, r->explained.b.p, r->explained.b.n);
	}
	if (r->n_steps > 1)
		print_steps(c, r, &w);
	print_ranks(c, r, &w);
	if (c->resources)
		print_section(c, r, SEC_RESOURCES, "Resources", "resources", &w);
	print_section(c, r, SEC_PATH, "Critical path", "entries", &w);
	if (c->path)
		print_section(c, r, SEC_EVENTS, "Critical path, in order", "parts", &w);
	if (r->n_memory)
		print_section(c, r, SEC_MEMORY, "Memory: the highest peak of each rank", "ranks",
			      &w);
	if (r->account.n_ranks > 1)
		print_slow(c, r, &w);
	if (c->worth)
		print_worth(c, r, &w);
	return pl_write_end(&w, err);
}
