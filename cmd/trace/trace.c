/* trace - record a command; import, cut, check and show traces. */
#include "program.h"

#define AT(m) offsetof(struct config, m)

static const struct pl_opt options[] = {
	PL_OPTS_HEADING("used most"),
	{ 'O', "to", "FORMAT",
	  "write trace (default), chrome, perfetto, perfetto-tar, csv, jsonl, text, svg, stat or "
	  "stat-json",
	  PL_OPT_STR, AT(to), NULL },
	PL_OPTS_OUTPUT,
	{ 0, "rank", "LIST", "select these ranks (\"0,4-7\")", PL_OPT_LIST, AT(rank), NULL },
	{ 0, "step", "LIST", "select these steps (\"3,10-20\")", PL_OPT_LIST, AT(step), NULL },
	{ 0, "time", "FROM..TO", "select this window, from the first event on (\"100ms..1.5s\")",
	  PL_OPT_STR, AT(time), NULL },
	{ 0, "kind", "GLOB", "select these kinds (\"kernel|copy\"; also comm)", PL_OPT_STR,
	  AT(kind), NULL },
	{ 0, "name", "GLOB", "select events with these names (\"aten::*\")", PL_OPT_STR, AT(name),
	  NULL },
	{ 0, "check", NULL, "verify the inputs, write no trace", PL_OPT_FLAG, AT(check), NULL },
	{ 0, "top", "N", "limit the rows of the tables of -O stat (default 15, 0: all)", PL_OPT_INT,
	  AT(top), NULL },
	PL_OPTS_HEADING("reading"),
	{ 'f', "from", "FORMAT",
	  "read as FORMAT instead of recognising it: kineto, xla, xplane, chrome, nsys, flight, "
	  "inspector, ncclprof, horovod, dpro, rocprof, optable, native",
	  PL_OPT_STR, AT(from), NULL },
	{ 0, "rank-from", "WHAT",
	  "take ranks from info, name, order, or a pattern of the file name with %d", PL_OPT_STR,
	  AT(rank_from), NULL },
	{ 0, "columns", "MAP",
	  "set the columns of an operation table (\"rank=gpu,start=begin:us,...\")", PL_OPT_STR,
	  AT(columns), NULL },
	{ 0, "strict", NULL, "refuse what is not valid instead of skipping it", PL_OPT_FLAG,
	  PL_COMMON(strict), NULL },
	{ 0, "salvage", NULL, "keep the whole blocks of a damaged stream", PL_OPT_FLAG, AT(salvage),
	  NULL },
	PL_OPTS_HEADING("recording a command"),
	PL_OPTS_RECORD(struct config, record),
	PL_OPTS_HEADING("general"),
	PL_OPTS_STREAM,
	PL_OPTS_THREADS,
	PL_OPTS_COMMON,
};

static void defaults(void *config)
{
	struct config *c = config;

	c->top = -1;
	c->to = "trace";
	pl_record_defaults(&c->record);
}

struct pl_import_opts import_opts(const struct config *c)
{
	return (struct pl_import_opts){ .strict = c->c.strict || c->check,
					.salvage = c->salvage,
					.log = &c->c.log,
					.rank_from = c->rank_from,
					.columns = c->columns };
}

int check_options(const struct config *c, struct pl_err *err)
{
	bool command = c->c.behind >= 0;
	const struct {
		bool set;
		const char *name;
		bool reads; /* says how files are read, which --check does, too */
	} of_files[] = {
		{ strcmp(c->to, "trace") != 0, "to", false },
		{ c->rank.n, "rank", false },
		{ c->step.n, "step", false },
		{ c->time, "time", false },
		{ c->kind, "kind", false },
		{ c->name, "name", false },
		{ c->check, "check", true },
		{ c->top >= 0, "top", false },
		{ c->from, "from", true },
		{ c->rank_from, "rank-from", true },
		{ c->columns, "columns", true },
		{ c->c.strict, "strict", true },
		{ c->salvage, "salvage", false },
	};

	for (size_t i = 0; i < PL_LEN(of_files); i++)
		if (of_files[i].set && (command || (c->check && !of_files[i].reads)))
			return pl_fail(err, PL_EUSAGE, "--%s is %s", of_files[i].name,
				       command ? "for files, not for recording a command"
					       : "not for --check, which reads whole inputs and "
						 "writes no trace");
	return 0;
}

static int run(void *config, int argc, char **argv, struct pl_err *err)
{
	struct config *c = config;
	const struct pl_inputs_opts o = { .log = &c->c.log,
					  .every_kind = c->check,
					  .forced = c->from != NULL };
	struct selection sel = { 0 };
	struct pl_inputs in = { 0 };
	int rc;

	PL_CHECK(pl_record_check(&c->record, &c->c, argc, argv, err));
	if (c->c.behind >= 0)
		return record(c, argv, err);
	if (!find_format(c->to))
		return pl_fail(err, PL_EUSAGE, "--to: \"%s\" is no format; see trace --help",
			       c->to);
	if (c->from && !pl_import_find(c->from))
		return pl_fail(err, PL_EUSAGE, "--from: \"%s\" is no format; see trace --help",
			       c->from);
	if (c->top < -1 || c->top > INT32_MAX)
		return pl_fail(err, PL_EUSAGE, "--top: %lld is no number of rows",
			       (long long)c->top);
	PL_CHECK(check_options(c, err));
	PL_TRY(selection_parse(&sel, c, err));
	PL_TRY(pl_inputs_find(&in, &o, argc, argv, err));
	rc = c->check ? check_all(c, &in, err) : load_all(c, &in, &sel, err);
out:
	pl_inputs_fini(&in);
	selection_fini(&sel);
	return rc;
}

const struct pl_cmd pl_command = {
	.name = "trace",
	.synopsis = "[OPTION]... [FILE|FOLDER]... | [OPTION]... -- COMMAND [ARG]...",
	.summary = "Record a command; import, cut, check and show traces.",
	.details =
		"With a command behind --: runs it, and records some steps of each rank. Else "
		"reads\n"
		"what profilers write (PyTorch, JAX, TensorFlow, Nsight Systems, NCCL, Horovod, "
		"BytePS,\n"
		"rocprofv3; --from has the list), Chrome trace JSON, operation tables in CSV and\n"
		"paceline's own stream, gzip or plain. Without a file: standard input.",
	.examples = "trace -o job -- torchrun --nproc-per-node 2 train.py\n"
		    "trace -O stat *.pt.trace.json.gz\n"
		    "trace -O perfetto -o job.pftrace *.pt.trace.json.gz\n"
		    "trace *.pt.trace.json.gz | merge | graph -o job.graph",
	.opts = options,
	.config_size = sizeof(struct config),
	.defaults = defaults,
	.run = run,
};
