/*
 * replay - does a model of the job reproduce it, where is the time, and what if something changed?
 *
 * If there are changes, the report describes the run with these changes. Memory is freed as early
 * as possible: the described run and the columns that only the verdict reads are freed before other
 * runs are simulated.
 */
#include <math.h>
#include <time.h>

#include "config.h"
#include "core/progress.h"
#include "program.h"

#define AT(m) offsetof(struct config, m)

static const struct pl_opt options[] = {
	PL_OPTS_HEADING("used most"),
	{ 0, "what-if", "CHANGE",
	  "predict the step with a change, such as \"scale SELECTOR by X\"; may be given again",
	  PL_OPT_LIST, AT(whatif), NULL },
	{ 'p', "plan", "FILE", "predict the steps with this plan", PL_OPT_STR, AT(plan), NULL },
	{ 0, "table", "NAME",
	  "print only this table: steps, ranks, resources, path, events, memory, slowest, worth",
	  PL_OPT_CHOICE, AT(table), "all|steps|ranks|resources|path|events|memory|slowest|worth" },
	{ 0, "top", "N", "limit the rows of a table in the text report (default 10, 0: all)",
	  PL_OPT_INT, AT(top), NULL },
	{ 0, "timeline", "FILE", "write the replayed (or predicted) run to FILE, as a trace",
	  PL_OPT_STR, AT(timeline), NULL },
	{ 'O', "to", "FORMAT", "write text (default), json, csv, tsv, jsonl, html (a page) or svg",
	  PL_OPT_CHOICE, AT(to), "text|json|csv|tsv|jsonl|html|svg" },
	PL_OPTS_OUTPUT,
	PL_OPTS_THREADS,
	PL_OPTS_HEADING("what the report has"),
	{ 0, "per", "KEY", "print only the time by module, layer, line, operator or phase",
	  PL_OPT_CHOICE, AT(per), "none|module|layer|line|operator|phase" },
	{ 0, "path", NULL, "also show the critical path in order", PL_OPT_FLAG, AT(path), NULL },
	{ 0, "resources", NULL, "also show threads and streams", PL_OPT_FLAG, AT(resources), NULL },
	{ 0, "worth", NULL, "find the most valuable changes (default; --no-worth)", PL_OPT_FLAG,
	  AT(worth), NULL },
	{ 0, "explain", NULL, "explain the effect of each rewrite of the plan", PL_OPT_FLAG,
	  AT(explain), NULL },
	{ 0, "stragglers", NULL,
	  "report only the cost of operations that take longer than others of their type",
	  PL_OPT_FLAG, AT(stragglers), NULL },
	{ 0, "fold", "HOW",
	  "replay one step that is the mean or median of many: none, mean, median", PL_OPT_CHOICE,
	  AT(fold), "none|mean|median" },
	{ 0, "optimizer", "NAME",
	  "count the state of this optimizer if none was recorded: sgd, momentum, adam (default)",
	  PL_OPT_CHOICE, AT(optimizer), "adam|momentum|sgd" },
	PL_OPTS_HEADING("more about changes"),
	{ 0, "what-if-file", "FILE",
	  "predict with each line of FILE as a change; # begins a comment", PL_OPT_LIST,
	  AT(whatif_file), NULL },
	{ 'm', "model", "FILE",
	  "predict changed operations with the cost model FILE (predict --train), relative to "
	  "their "
	  "recorded times",
	  PL_OPT_STR, AT(model), NULL },
	{ 0, "device", "NAME",
	  "the job was recorded on the device NAME (default: the one that the model was measured "
	  "on)",
	  PL_OPT_STR, AT(device), NULL },
	{ 0, "devices", "FOLDER",
	  "also take data sheets of devices from FOLDER (NAME.json); repeatable", PL_OPT_LIST,
	  AT(folder), NULL },
	{ 0, "topology", "SPEC",
	  "set hosts and links for plans, messages and what-if: HOSTSxRANKS[:PRESET], or a "
	  "file",
	  PL_OPT_STR, AT(topology), NULL },
	{ 0, "expand", "ALGORITHM",
	  "simulate collectives message by message: no, ring, tree, halving-doubling, hierarchical "
	  "or ps",
	  PL_OPT_CHOICE, AT(expand), "no|ring|tree|halving-doubling|hierarchical|ps" },
	{ 0, "channels", "N", "set the channels that share each link, for --expand (default 1)",
	  PL_OPT_INT, AT(channels), NULL },
	{ 0, "chunks", "N",
	  "divide the data of a channel into N chunks, for --expand (default: as in the analysis)",
	  PL_OPT_INT, AT(chunks), NULL },
	{ 0, "servers", "N", "set the number of parameter servers, for --expand=ps (default 1)",
	  PL_OPT_INT, AT(servers), NULL },
	{ 0, "step", "TIME",
	  "of a job with servers: let a step of a worker without a speed take TIME", PL_OPT_TIME,
	  AT(step_ns), NULL },
	PL_OPTS_HEADING("recording a command"),
	PL_OPTS_RECORD(struct config, record),
	{ 0, "keep", "FOLDER", "of a command: keep the recording in FOLDER", PL_OPT_STR, AT(keep),
	  NULL },
	PL_OPTS_HEADING("general"),
	{ 'l', "level", "N", "set the compression level of the timeline, 0-12 (default 1)",
	  PL_OPT_INT, PL_COMMON(level), NULL },
	{ 0, "provenance", NULL,
	  "record the command line in the timeline (default; --no-provenance)", PL_OPT_FLAG,
	  PL_COMMON(provenance), NULL },
	PL_OPTS_COMMON,
};

static void defaults(void *config)
{
	struct config *c = config;

	c->top = 10;
	c->worth = true;
	c->channels = c->servers = 1;
	pl_record_defaults(&c->record);
}

static double now(void)
{
	return (double)pl_now_ns() * 1e-9;
}

/* ---- the timeline ---------------------------------------------------------------------------- */

static int write_timeline(const struct config *c, const struct report *r, struct pl_pool *pool,
			  struct pl_out *out, struct pl_err *err)
{
	struct pl_trace_writer_opts o = { .level = (int)c->c.level, .pool = pool };
	struct pl_sink *sink = NULL;
	struct pl_buf line = { 0 };
	int rc;

	PL_TRY(pl_provenance(&c->c, &line, err));
	o.provenance = (const char *)line.p;
	sink = pl_trace_writer_open(out, &o, err);
	if (!sink) {
		rc = err->code;
		goto out;
	}
	rc = pl_sim_timeline(r->s, &r->run, sink, err);
	if (rc < 0)
		pl_trace_writer_abort(sink);
	else
		rc = pl_trace_writer_close(sink, err);
out:
	pl_buf_fini(&line);
	return rc;
}

/* ---- one graph ------------------------------------------------------------------------------- */

static bool wants(const struct config *c, enum section what)
{
	if (c->per)
		return false;
	if (c->table == SEC_ALL)
		return c->to == AS_TEXT || c->to == AS_JSON || c->to == AS_HTML;
	return c->table == (int)what;
}

static bool draws(const struct config *c)
{
	return c->to == AS_HTML || c->to == AS_SVG;
}

static int print(const struct config *c, const struct report *r, struct pl_out *out,
		 struct pl_err *err)
{
	enum section which = c->table == SEC_ALL ? SEC_STEPS : (enum section)c->table;
	struct pl_table t;
	size_t n;
	int rc;

	if (c->table == SEC_ALL && c->to == AS_TEXT)
		return print_text(c, r, out, err);
	if (c->table == SEC_ALL && c->to == AS_JSON)
		return print_json(c, r, out, err);
	n = make_table(r, which, c->to == AS_TEXT ? c->top : 0, &t);
	if (!n && (which == SEC_MEMORY || which == SEC_SLOWEST))
		pl_say(&c->c.log, PL_LOG_WARN, "the table is empty: %s",
		       which == SEC_SLOWEST ? "no rank is idle much longer than the others"
					    : "no memory was recorded (torch.profiler: "
					      "profile_memory=True)");
	rc = print_table(c, &t, n, out, err);
	pl_table_fini(&t);
	return rc;
}

static int replay(struct config *c, struct pl_pool *pool, struct pl_out *out,
		  struct pl_out *timeline, struct pl_err *err)
{
	struct changes x = { 0 };
	struct report r = { .changes = &x, .optimizer = c->optimizer, .whole = draws(c) };
	struct pl_plan plan = { 0 };
	double t[4] = { now() };
	bool changed, worth;
	int rc = 0;

	pl_plan_init(&x.plan);
	pl_plan_init(&plan);
	if (c->plan) {
		PL_TRY(pl_plan_read_file(c->plan, &plan, err));
		/* a plan that only changes durations is what the same lines of --what-if are */
		if (plan.n_tensors || !pl_rewrite_is_timing(&plan))
			x.structural = &plan;
		x.plan.file = plan.file;
		for (size_t i = 0; i < plan.n_rw && !c->topology; i++)
			if (plan.rw[i].op == PL_RW_ALGORITHM && !strcmp(plan.rw[i].word, "ps"))
				pl_say(&c->c.log, PL_LOG_WARN,
				       "the plan has parameter servers; without --topology their "
				       "hosts are taken to have links like those of the ranks");
		for (size_t i = 0; !x.structural && i < plan.n_rw; i++)
			PL_TRY(pl_plan_add(&x.plan, &plan.rw[i], err));
	}
	PL_TRY(read_changes(c, &x, err));
	PL_TRY(hold_back(c, &x, &plan, err));
	PL_TRY(read_graph(c, &c->job[0], pool, &r, err));
	t[1] = now();
	pl_progress("replaying");
	rc = measure(&r, err);
	changed = c->plan || c->expand || x.plan.n_rw;
	worth = c->worth && wants(c, SEC_WORTH);
	if (rc >= 0 && !changed)
		rc = find_spread(&r, false, err);
	if (rc >= 0 && (changed || worth || c->table == SEC_ALL))
		rc = judge_recording(&r, err);
	if (rc >= 0 && worth) {
		find_types(&r);
		find_framework(&r);
	}
	if (rc >= 0 && changed)
		rc = test_graph(&r, worth, err);
	if (rc >= 0 && x.structural)
		rc = use_lines(c, &plan, &x, &r, err);
	if (rc >= 0 && c->expand)
		rc = use_expansion(c, &plan, &r, err);
	if (rc >= 0) /* of the planned graph */
		rc = use_changes(c, &x, &r, err);
	if (rc == PL_EUSAGE) /* of a line, not of the graph */
		goto out;
	if (rc >= 0)
		rc = explain(&r, changed, pool, err);
	if (rc >= 0 && changed) {
		correct_for_extra(&r);
		rc = find_interval(&r, err);
		if (rc >= 0)
			rc = find_spread(&r, true, err);
	}
	if (rc < 0) {
		pl_wrap(err, "%s", pl_inputs_all(&c->job[0].inputs));
		goto out;
	}
	if (draws(c))
		PL_TRY(find_picture(&r, err));
	/* changes alter when operations take place, but not the times of find_memory() */
	r.memory_over_time = c->to == AS_HTML && isnan(r.predicted_mean);
	if (!c->per && c->table == SEC_ALL &&
	    (c->to == AS_TEXT || c->to == AS_JSON || c->to == AS_HTML))
		PL_TRY(pl_verdict_find(&r.g, r.s, &r.run, &r.path, &r.account, &r.new_memory,
				       &r.verdict, err));
	if (worth && !changed)
		PL_TRY(advise_settings(&r, pool, err));
	if (wants(c, SEC_MEMORY))
		PL_TRY(find_memory(&r, err));
	if (wants(c, SEC_SLOWEST) || wants(c, SEC_WORTH))
		PL_TRY(find_slow(&r, err));
	if (timeline)
		PL_TRY(write_timeline(c, &r, pool, timeline, err));
	if (c->per) {
		rc = print_per(c, &r, out, err);
		goto out;
	}
	pl_sim_run_fini(&r.run);
	if (worth && !only_simulates(&r))
		PL_TRY(pl_rewrite_contention(&r.g, &r.basis.contention, err));
	drop_columns(c, &r);
	if (!changed && (worth || c->table == SEC_ALL))
		PL_TRY(test_graph(&r, worth, err));
	t[2] = now();
	pl_progress("looking for the changes worth most");
	if (worth) {
		PL_TRY(find_worth(&r, pool, err));
		PL_TRY(find_advice(&r, err));
	}
	t[3] = now();
	pl_say(&c->c.log, PL_LOG_NOTE,
	       "%llu operations: read in %.3f s, replayed and explained in %.3f s, changes tried "
	       "in %.3f "
	       "s; %.1f M operations/s",
	       (unsigned long long)r.ops, t[1] - t[0], t[2] - t[1], t[3] - t[2],
	       (double)r.ops / (t[3] - t[0]) / 1e6);
	rc = draws(c) ? print_picture(c, &r, out, err) : print(c, &r, out, err);
out:
	report_fini(&r);
	pl_plan_fini(&plan);
	changes_fini(&x);
	return rc;
}

/* ---- two jobs -------------------------------------------------------------------------------- */

/* Both jobs are compared by the same measure: where steps of one overlap, by periods, if both have
 * steps that follow one another; else by the lengths of steps. */
static void use_one_measure(struct report *r)
{
	bool periods = false;
	double mean[2];

	for (int i = 0; i < 2; i++)
		periods |= pl_sim_steps_overlap(r[i].s);
	for (int i = 0; i < 2; i++)
		mean[i] = pl_sim_run_mean_period(r[i].s, &r[i].run);
	periods &= isfinite(mean[0]) && isfinite(mean[1]);
	for (int i = 0; i < 2; i++) {
		r[i].mean = periods ? mean[i] : pl_sim_run_mean_step(r[i].s, &r[i].run);
		r[i].by_period = periods;
	}
}

static int compare(struct config *c, struct pl_pool *pool, struct pl_out *out, struct pl_err *err)
{
	struct changes x = { 0 };
	const struct report none = { .changes = &x, .whole = true, .compared = true };
	struct report r[2] = { none, none };
	int rc;

	pl_plan_init(&x.plan);
	PL_TRY(read_changes(c, &x, err));
	for (int i = 0; i < 2; i++) {
		rc = read_graph(c, &c->job[i], pool, &r[i], err);
		if (rc >= 0 && (rc = measure(&r[i], err)) >= 0 &&
		    (rc = judge_recording(&r[i], err)) >= 0 &&
		    (rc = test_graph(&r[i], false, err)) >= 0 &&
		    (rc = use_changes(c, &x, &r[i], err)) == PL_EUSAGE)
			goto out;
		if (rc >= 0)
			rc = explain(&r[i], x.plan.n_rw, pool, err);
		if (rc < 0) {
			pl_wrap(err, "%s", pl_inputs_all(&c->job[i].inputs));
			goto out;
		}
	}
	use_one_measure(r);
	rc = print_difference(c, &r[0], &r[1], out, err);
out:
	report_fini(&r[0]);
	report_fini(&r[1]);
	changes_fini(&x);
	return rc;
}

static bool is_stdout(const char *path)
{
	return !path || !strcmp(path, "-");
}

static int check_expansion(const struct config *c, struct pl_err *err)
{
	const struct {
		const char *name;
		int64_t v, least;
	} number[] = { { "channels", c->channels, 1 },
		       { "chunks", c->chunks, 0 },
		       { "servers", c->servers, 1 } };
	const int64_t most = 1 << 20;

	for (size_t i = 0; i < PL_LEN(number); i++)
		if (number[i].v < number[i].least || number[i].v > most)
			return pl_fail(err, PL_EUSAGE, "--%s: %lld is not %lld to %lld",
				       number[i].name, (long long)number[i].v,
				       (long long)number[i].least, (long long)most);
	return 0;
}

/* A job of run(1), which may have servers. */
static bool is_job(const struct config *c)
{
	const struct pl_inputs *i = &c->job[0].inputs;

	return c->n_jobs == 1 && i->n == 1 && i->v[0].job && i->v[0].file;
}

static int check(const struct config *c, size_t jobs, bool from_stdin, struct pl_err *err)
{
	bool two = jobs == 2;
	bool what_if = c->whatif.n || c->whatif_file.n;
	const struct {
		bool bad;
		const char *why;
	} rules[] = {
		{ c->top < 0, "--top is negative" },
		{ c->step_ns && (c->c.behind >= 0 || (c->n_jobs && !is_job(c))),
		  "--step is for a job with a parameter server" },
		{ !c->worth && c->table == SEC_WORTH, "--no-worth leaves --table=worth nothing" },
		{ c->keep && c->c.behind < 0, "--keep is for a command, which stands behind --" },
		{ two && c->timeline, "--timeline is for one graph, not for two" },
		{ two && c->table != SEC_ALL, "--table is for one graph, not for two" },
		{ draws(c) && c->table != SEC_ALL, "--table is not for -O html and svg" },
		{ draws(c) && c->stragglers, "--stragglers is not for -O html and svg" },
		{ two && c->to == AS_SVG, "-O svg is for one graph, not for two" },
		{ c->per && (two || draws(c) || c->table != SEC_ALL || c->stragglers),
		  "--per is a table of its own, of one graph" },
		{ c->plan && (two || c->stragglers), "--plan is for the report of one graph" },
		{ c->explain && !c->plan, "--explain is for --plan" },
		{ c->expand && (two || c->stragglers), "--expand is for the report of one graph" },
		{ !c->expand && (c->channels != 1 || c->chunks || c->servers != 1),
		  "--channels, --chunks and --servers are for --expand" },
		{ c->topology && !c->plan && !c->expand && !what_if,
		  "--topology is for --plan, --expand and --what-if" },
		{ c->model && !c->plan && !what_if, "--model is for --plan and --what-if" },
		{ !c->model && (c->device || c->folder.n),
		  "--device and --devices are for --model" },
		{ c->plan && !strcmp(c->plan, "-") && from_stdin,
		  "graph and plan cannot both be standard input" },
		{ c->timeline && is_stdout(c->timeline) && is_stdout(c->c.output),
		  "report and timeline cannot both go to standard output; use -o FILE for the "
		  "report" },
	};

	for (size_t i = 0; i < PL_LEN(rules); i++)
		if (rules[i].bad)
			return pl_fail(err, PL_EUSAGE, "%s", rules[i].why);
	return check_expansion(c, err);
}

static bool is_whole_job(const struct pl_input *i)
{
	return i->kind == PL_KIND_GRAPH || i->merged;
}

/* Two folders are two jobs, and so are two graphs or merged traces; other files are one. */
static int find_jobs(struct config *c, int argc, char **argv, struct pl_err *err)
{
	const struct pl_inputs_opts o = { .log = &c->c.log, .pairs = true };
	struct pl_inputs *a = &c->job[0].inputs, *b = &c->job[1].inputs;

	if (argc == 2 && pl_inputs_is_folder(argv[0]) && pl_inputs_is_folder(argv[1])) {
		c->n_jobs = 2;
		PL_CHECK(pl_inputs_find(a, &o, 1, argv, err));
		PL_CHECK(pl_inputs_find(b, &o, 1, argv + 1, err));
	} else {
		c->n_jobs = 1;
		PL_CHECK(pl_inputs_find(a, &o, argc, argv, err));
		if (a->n == 2 && is_whole_job(&a->v[0]) && is_whole_job(&a->v[1])) {
			c->n_jobs = 2;
			PL_CHECK(pl_append(&b->v, &b->n, &b->cap, &a->v[1], sizeof(*b->v), err));
			a->n = 1;
		}
	}
	for (size_t i = 0; i < c->n_jobs && !is_job(c); i++) {
		PL_CHECK(pl_inputs_are_graphs(&c->job[i].inputs, &c->job[i].graph, err));
		if (c->job[i].graph && c->job[i].inputs.n > 1)
			return pl_fail(err, PL_EUSAGE,
				       "more than two graphs; one is explained, two are compared");
	}
	return 0;
}

/* The operands are files and folders. */
static int explain_files(struct config *c, int argc, char **argv, struct pl_err *err)
{
	struct pl_out *out = NULL, *timeline = NULL;
	struct pl_pool *pool = NULL;
	bool from_stdin = !argc, servers = false;
	int rc;

	for (int i = 0; i < argc; i++)
		from_stdin |= is_stdout(argv[i]);
	PL_TRY(check(c, 1, from_stdin, err)); /* mistakes in options come before those in files */
	PL_TRY(find_jobs(c, argc, argv, err));
	PL_TRY(check(c, c->n_jobs, from_stdin, err));
	out = pl_out_open(c->c.output, false, err);
	PL_TRY(out ? 0 : err->code);
	pool = pl_pool_new((int)c->c.threads, err);
	if (pool && c->timeline)
		timeline = pl_out_open(c->timeline, true, err);
	if (!pool || (c->timeline && !timeline)) {
		rc = err->code;
		goto out;
	}
	if (is_job(c)) {
		PL_TRY(replay_servers(c, &c->job[0].inputs.v[0], out, &servers, err));
		if (!servers) /* says what to do with a job */
			rc = pl_inputs_are_graphs(&c->job[0].inputs, &c->job[0].graph, err);
		goto out;
	}
	if (c->stragglers)
		PL_TRY(find_stragglers(c, pool, out, err));
	else if (c->n_jobs == 2)
		PL_TRY(compare(c, pool, out, err));
	else
		PL_TRY(replay(c, pool, out, timeline, err));
	if (timeline) {
		rc = pl_out_close(timeline, err);
		timeline = NULL;
	}
out:
	pl_pool_free(pool);
	pl_inputs_fini(&c->job[0].inputs);
	pl_inputs_fini(&c->job[1].inputs);
	pl_out_abort(timeline);
	return out ? pl_out_finish(out, rc, err) : rc;
}

static int run(void *config, int argc, char **argv, struct pl_err *err)
{
	struct config *c = config;
	struct recording r = { .name = NULL };
	int rc;

	PL_CHECK(pl_record_check(&c->record, &c->c, argc, argv, err));
	if (c->c.behind < 0)
		return explain_files(c, argc, argv, err);
	PL_CHECK(check(c, 1, false, err));
	PL_CHECK(record(c, &r, argv, err));
	rc = explain_files(c, 1, &r.name, err);
	record_end(c, &r, rc < 0);
	return rc;
}

static const struct pl_lang_schema *const languages[] = { &pl_plan_schema, &pl_topology_schema,
							  NULL };

const struct pl_cmd pl_command = {
	.name = "replay",
	.synopsis = "[OPTION]... [GRAPH [GRAPH]|FILE...|FOLDER [FOLDER]|-- COMMAND]",
	.summary = "Replay a job's graph: where its time goes, and what if something changed.",
	.details = "The files of a profiler, one of each rank, and traces become a graph first, as "
		   "by trace | merge | graph. With two graphs or folders: what changed from the "
		   "first job to the second. Without a file: standard input. "
		   "A command is recorded first.\n"
		   "Changes are the rewrites of plans, such as scale, remove, set, fix, bandwidth, "
		   "latency and\n"
		   "ranks; --help=scale shows what one takes.",
	.examples = "replay -- torchrun --nproc-per-node 2 train.py\n"
		    "replay *.pt.trace.json.gz\n"
		    "replay --what-if 'scale kind=comm by 0.5' job.graph\n"
		    "replay before.graph after.graph",
	.opts = options,
	.config_size = sizeof(struct config),
	.defaults = defaults,
	.languages = languages,
	.help = pl_lang_help,
	.run = run,
};
