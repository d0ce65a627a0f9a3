/*
 * merge - many traces to one, on one clock.
 *
 * Events are not rewritten: the output is a merge segment (corrections, groups, matches) and then
 * every member of the inputs as it came. Until all inputs are read, members wait in memory,
 * compressed.
 */
#include "clock/clock.h"
#include "config.h"
#include "core/progress.h"

struct config {
	struct pl_common c;    /* first */
	int clock, duplicates; /* as in enum pl_clock_by and enum pl_clock_dup */
	const char *report;
	int64_t max_residual; /* ns; INT64_MAX none */
};

struct member {
	uint8_t *p;
	size_t n;
	uint32_t segment; /* of all inputs */
};

struct merge {
	struct config *c;
	struct pl_align *align;
	struct pl_pool *pool;
	struct pl_out *out, *report; /* NULL once closed; no report: NULL */
	struct member *member;
	size_t n_members, cap_members;
	size_t first;	    /* member of the segment now read */
	uint32_t seen;	    /* segments of the input now read, merges included */
	int several, empty; /* inputs, and those of them without a byte */
};

#define AT(m) offsetof(struct config, m)

static const struct pl_opt options[] = {
	PL_OPTS_HEADING("used most"),
	PL_OPTS_OUTPUT,
	{ 0, "report", "FILE", "write the matches and the precision of the clocks to FILE, as JSON",
	  PL_OPT_STR, AT(report), NULL },
	{ 0, "duplicates", "WHAT",
	  "for two traces of a rank, or two recordings: refuse, keep both, take the first or "
	  "newest",
	  PL_OPT_CHOICE, AT(duplicates), "refuse|keep|first|newest" },
	{ 0, "clock", "WHICH",
	  "set which ranks share a clock: auto, host (those of a host), rank (none), one (all)",
	  PL_OPT_CHOICE, AT(clock), "auto|host|rank|one" },
	PL_OPTS_HEADING("when to refuse"),
	{ 0, "max-residual", "TIME",
	  "exit with 1, after writing, when a residual of some clock exceeds TIME", PL_OPT_TIME,
	  AT(max_residual), NULL },
	{ 0, "strict", NULL, "refuse diverging sequences, contradictions and missing ranks",
	  PL_OPT_FLAG, PL_COMMON(strict), NULL },
	PL_OPTS_HEADING("general"),
	PL_OPTS_STREAM,
	PL_OPTS_THREADS,
	PL_OPTS_COMMON,
};

static void defaults(void *config)
{
	((struct config *)config)->max_residual = INT64_MAX;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* The members of the segment now read are complete. Those of an empty one are not passed on. */
static void end_segment(struct merge *g)
{
	while (g->n_members > g->first &&
	       g->member[g->first].segment == pl_clock_segments(g->align))
		pl_free(g->member[--g->n_members].p);
	g->first = g->n_members;
}

static int on_member(void *arg, uint32_t segment, bool merge, const void *p, size_t n,
		     struct pl_err *err)
{
	struct merge *g = arg;
	uint32_t number = pl_clock_segments(g->align);
	struct member *m;

	if (segment + 1 != g->seen) {
		end_segment(g);
		g->seen = segment + 1;
		pl_progress("reading, %u segments", number + 1);
	}
	if (merge) /* of an earlier run */
		return 0;
	PL_CHECK(pl_grow(&g->member, &g->cap_members, g->n_members + 1, sizeof(*g->member), err));
	m = &g->member[g->n_members];
	m->p = pl_malloc(n);
	if (!m->p)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", n);
	memcpy(m->p, p, n);
	m->n = n;
	m->segment = number;
	g->n_members++;
	return 0;
}

static int read_one(struct merge *g, const char *path, struct pl_err *err)
{
	const struct pl_trace_reader_opts o = { .pool = g->pool,
						.log = &g->c->c.log,
						.arg = g,
						.raw = on_member,
						.roles = PL_CLOCK_ROLES };
	struct pl_in *in = pl_in_open(path, err);
	const uint8_t *p;
	int64_t n;
	int rc;

	if (!in)
		return err->code;
	n = pl_in_peek(in, 64, &p, err);
	if (n < 0) {
		rc = (int)n;
	} else if (!n && g->several > 1 && ++g->empty < g->several) {
		pl_in_say_empty(&g->c->c.log, pl_in_name(in));
		rc = 0;
	} else if (!pl_container_probe(p, (size_t)n)) {
		rc = pl_fail(err, PL_EDATA, "%s: not a paceline trace%s", pl_in_name(in),
			     n ? "; import it first (type: trace FILE... | merge)"
			       : ": it is empty");
	} else {
		g->seen = 0;
		rc = pl_trace_read(in, &o, pl_clock_sink(g->align), err);
		end_segment(g);
		if (rc < 0 && strncmp(err->msg, pl_in_name(in), strlen(pl_in_name(in))) != 0)
			pl_wrap(err, "%s", pl_in_name(in));
	}
	pl_in_close(in);
	return rc;
}

/* ---- writing --------------------------------------------------------------------------------- */

static int put_members(struct merge *g, struct pl_container_writer *w, struct pl_err *err)
{
	for (size_t i = 0; i < g->n_members; i++) {
		struct member *m = &g->member[i];

		if (!pl_clock_dropped(g->align, m->segment))
			PL_CHECK(pl_container_writer_copy(w, m->p, m->n, err));
		pl_free(m->p);
		m->p = NULL;
	}
	return 0;
}

/* The output is closed, whatever happens. */
static int write_trace(struct merge *g, const struct pl_merge *m, struct pl_err *err)
{
	const struct pl_container_writer_opts o = { .kind = PL_KIND_TRACE,
						    .major = PL_TRACE_MAJOR,
						    .minor = PL_TRACE_MINOR,
						    .level = (int)g->c->c.level,
						    .pool = g->pool };
	struct pl_out *out = g->out;
	struct pl_container_writer *w = pl_container_writer_open(out, &o, err);
	int rc = w ? 0 : err->code;

	g->out = NULL;
	if (rc < 0)
		goto out;
	PL_TRY(pl_trace_merge_write(m, w, err));
	PL_TRY(put_members(g, w, err));
	rc = pl_container_writer_close(w, err);
	w = NULL;
out:
	pl_container_writer_abort(w);
	return pl_out_finish(out, rc, err);
}

static int write_report(struct merge *g, const struct pl_merge *m, const struct pl_clock_report *r,
			struct pl_err *err)
{
	struct pl_out *out = g->report;

	g->report = NULL;
	return pl_out_finish(out, pl_clock_report_json(m, r, out, err), err);
}

/* ---- the program ----------------------------------------------------------------------------- */

/* No residual is no small one: a clock that no collective joins to others was not checked. */
static int judge_clock(const struct pl_clock_info *k, uint32_t clock, struct pl_err *err)
{
	int32_t rank = k->n_ranks ? k->rank[0] : -1;

	if (rank < 0 || (k->offset_known && k->residuals))
		return 0;
	return pl_fail(err, PL_ENO, "clock %u (rank %d%s) %s", clock, rank,
		       k->n_ranks > 1 ? " ..." : "",
		       k->offset_known ? "has no residual: no collective shows one"
				       : "has no offset: no communication joins it to the first");
}

static int judge(const struct config *c, const struct pl_merge *m, const struct pl_clock_report *r,
		 struct pl_err *err)
{
	int64_t worst = 0;
	char is[24], may[24];

	if (c->max_residual == INT64_MAX)
		return 0;
	for (uint32_t i = 0; i < m->n_clocks; i++)
		worst = pl_max_i64(worst, m->clock[i].residual_max_ns);
	if (worst > c->max_residual)
		return pl_fail(err, PL_ENO, "the greatest residual is %s, more than %s",
			       pl_fmt_ns(is, sizeof(is), worst),
			       pl_fmt_ns(may, sizeof(may), c->max_residual));
	for (uint32_t i = 0; i < m->n_clocks && m->n_clocks > 1; i++)
		PL_CHECK(judge_clock(&r->clock[i], i, err));
	return 0;
}

static int check_outputs(const struct config *c, struct pl_err *err)
{
	bool std = !c->c.output || !strcmp(c->c.output, "-");

	if (c->report && !strcmp(c->report, "-") && std)
		return pl_fail(err, PL_EUSAGE,
			       "--report=- and the trace both go to standard output: give -o FILE");
	if (c->max_residual < 0)
		return pl_fail(err, PL_EUSAGE, "--max-residual: a time cannot be negative");
	return 0;
}

static int merge_all(struct merge *g, int argc, char **argv, struct pl_err *err)
{
	struct pl_clock_report r = { 0 };
	struct pl_merge m = { 0 };
	int rc = 0;

	g->several = argc;
	pl_progress("reading");
	for (int i = 0; i < argc; i++)
		PL_TRY(read_one(g, argv[i], err));
	if (!argc)
		PL_TRY(read_one(g, "-", err));
	pl_progress("aligning the clocks of %u segments", pl_clock_segments(g->align));
	PL_TRY(pl_clock_solve(g->align, &m, &r, err));
	PL_TRY(pl_provenance(&g->c->c, &m.provenance, err));
	if (m.provenance.n)
		m.provenance.p[m.provenance.n - 1] = '\n'; /* lines, not a string */
	if (g->c->c.verbose)
		pl_clock_report_say(&m, &r, &g->c->c.log);
	pl_progress("writing");
	PL_TRY(write_trace(g, &m, err));
	if (g->report)
		PL_TRY(write_report(g, &m, &r, err));
	PL_TRY(judge(g->c, &m, &r, err));
out:
	pl_trace_merge_fini(&m);
	pl_clock_report_fini(&r);
	return rc;
}

static int run(void *config, int argc, char **argv, struct pl_err *err)
{
	struct config *c = config;
	struct merge g = { .c = c };
	const struct pl_align_opts o = { .by = (enum pl_clock_by)c->clock,
					 .duplicates = (enum pl_clock_dup)c->duplicates,
					 .strict = c->c.strict,
					 .log = &c->c.log };
	int rc;

	PL_TRY(check_outputs(c, err));
	g.pool = pl_pool_new((int)c->c.threads, err);
	g.align = g.pool ? pl_clock_new(&o, err) : NULL;
	PL_TRY(g.align ? 0 : err->code);
	/* before the work: what cannot be written should be known at once */
	g.out = pl_out_open(c->c.output, true, err);
	if (g.out && c->report)
		g.report = pl_out_open(c->report, false, err);
	rc = g.out && (g.report || !c->report) ? merge_all(&g, argc, argv, err) : err->code;
out:
	pl_out_abort(g.report);
	pl_out_abort(g.out);
	for (size_t i = 0; i < g.n_members; i++)
		pl_free(g.member[i].p);
	pl_free(g.member);
	pl_clock_free(g.align);
	pl_pool_free(g.pool);
	return rc;
}

const struct pl_cmd pl_command = {
	.name = "merge",
	.synopsis = "[OPTION]... [FILE]...",
	.summary = "Put the traces of many ranks onto one clock.",
	.details =
		"Reads traces as trace writes them, as files or one stream; without a file: "
		"standard input.\n"
		"Collectives, sends and receives are matched across ranks; offset and drift of "
		"every clock\n"
		"come from their ends alone. Events are passed on as they are, behind a table of "
		"corrections.",
	.examples = "trace *.pt.trace.json.gz | merge -o job.trace\n"
		    "merge -v -o job.trace rank0.trace rank1.trace",
	.opts = options,
	.config_size = sizeof(struct config),
	.defaults = defaults,
	.run = run,
};
