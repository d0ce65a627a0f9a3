/*
 * plan - search for changes that make the step of a job shorter; or show or export a plan.
 *
 * The first interrupt ends the search but not the program: the best plan so far is written. Then
 * the signal is raised again, so the shell learns of it. A second one ends the program at once.
 */
#include <math.h>
#include <signal.h>

#include "config.h"
#include "core/progress.h"
#include "derive/describe.h"
#include "program.h"

#define AT(m) offsetof(struct config, m)

static const struct pl_opt options[] = {
	PL_OPTS_HEADING("used most"),
	PL_OPTS_OUTPUT,
	{ 'O', "to", "FORMAT",
	  "write plan (default), text, json, or settings: ddp, fsdp, horovod, byteps, deepspeed, "
	  "megatron, xla",
	  PL_OPT_CHOICE, AT(to), "plan|text|json|ddp|fsdp|horovod|byteps|deepspeed|megatron|xla" },
	{ 0, "minutes", "T", "limit the search to T minutes", PL_OPT_REAL, AT(minutes), NULL },
	{ 0, "memory", "SIZE", "limit the memory of each rank", PL_OPT_SIZE, AT(memory), NULL },
	{ 0, "optimizer", "NAME",
	  "count the state of this optimizer as memory: sgd, momentum, adam (default)",
	  PL_OPT_CHOICE, AT(optimizer), "adam|momentum|sgd" },
	{ 0, "topology", "SPEC", "set hosts and links: HOSTSxRANKS, HOSTSxRANKS:PRESET, or a file",
	  PL_OPT_STR, AT(topology), NULL },
	{ 0, "speeds", "LIST",
	  "with a job: steps a second of each worker (\"1,1,2,4\"), in place of its paces",
	  PL_OPT_STR, AT(speeds), NULL },
	PL_OPTS_HEADING("a cost model"),
	{ 'm', "model", "FILE",
	  "take times in other precisions, of fused operations, on other devices and of other "
	  "batches from the cost model FILE "
	  "(predict --train)",
	  PL_OPT_STR, AT(model), NULL },
	{ 0, "device", "NAME",
	  "the job was recorded on the device NAME (default: the one that the model was measured "
	  "on)",
	  PL_OPT_STR, AT(device), NULL },
	{ 0, "devices", "FOLDER",
	  "also take data sheets of devices from FOLDER (NAME.json); repeatable", PL_OPT_LIST,
	  AT(folder), NULL },
	PL_OPTS_HEADING("the search"),
	{ 0, "allow", "LIST", "use only these rewrites (\"fuse-tensors,order\")", PL_OPT_LIST,
	  AT(allow), NULL },
	{ 0, "forbid", "LIST", "do not use these rewrites", PL_OPT_LIST, AT(forbid), NULL },
	{ 0, "keep-ranks", NULL,
	  "with --allow=tensor-parallel: no more ranks; the samples of a step stay, too",
	  PL_OPT_FLAG, AT(keep_ranks), NULL },
	{ 0, "fuse-ops", "GLOB",
	  "also fuse consecutive operations with matching names; \"default\": elementwise, "
	  "activations, normalisations",
	  PL_OPT_LIST, AT(fuse_ops), NULL },
	{ 0, "fuse-share", "X", "multiply the time of fused operations by X (default 1)",
	  PL_OPT_REAL, AT(fuse_share), NULL },
	{ 0, "any", NULL,
	  "propose the best plan even if the prediction may err by more than it saves", PL_OPT_FLAG,
	  AT(any), NULL },
	{ 0, "preset", "NAME",
	  "do not search; take a default: none, ddp, horovod, each, all, or the best of these",
	  PL_OPT_CHOICE, AT(preset), "search|best|none|ddp|horovod|each|all" },
	{ 0, "evaluations", "N",
	  "limit the number of simulations; 0: only the defaults of frameworks", PL_OPT_INT,
	  AT(evaluations), NULL },
	{ 0, "step", "LIST", "plan for these steps (\"3,10-20\")", PL_OPT_LIST, AT(step), NULL },
	{ 0, "fold", "HOW",
	  "choose the step that stands for many: auto (default), none, mean, median", PL_OPT_CHOICE,
	  AT(fold), "auto|none|mean|median" },
	PL_OPTS_HEADING("general"),
	PL_OPTS_STREAM,
	PL_OPTS_THREADS,
	PL_OPTS_COMMON,
};

static void defaults(void *config)
{
	struct config *c = config;

	c->evaluations = c->memory = -1;
	c->minutes = c->fuse_share = -1;
}

/* ---- signals --------------------------------------------------------------------------------- */

static volatile int stopped; /* the signal */

static void on_signal(int sig)
{
	stopped = sig;
	signal(sig, SIG_DFL);
}

static void catch_signals(void)
{
	static const int sigs[] = { SIGINT, SIGTERM };
	struct sigaction act = { .sa_handler = on_signal }, old;

	for (size_t i = 0; i < PL_LEN(sigs); i++)
		if (!sigaction(sigs[i], NULL, &old) && old.sa_handler == SIG_DFL)
			sigaction(sigs[i], &act, NULL);
}

/* ---- searching ------------------------------------------------------------------------------- */

static int set_limits(const struct config *c, struct pl_search_opts *o, struct pl_err *err)
{
	static const double bytes[] = { 2, 1, 0 }; /* adam, momentum, sgd */

	if (c->minutes >= 0 && !isfinite(c->minutes * 6e10))
		return pl_fail(err, PL_EUSAGE, "--minutes: that is too long");
	if (c->minutes < 0 && c->minutes != -1)
		return pl_fail(err, PL_EUSAGE, "--minutes: must not be negative");
	if (c->evaluations < -1)
		return pl_fail(err, PL_EUSAGE, "--evaluations: must not be negative");
	if (c->memory != -1 && c->memory <= 0)
		return pl_fail(err, PL_EUSAGE, "--memory: must be above 0");
	o->preset = (enum pl_preset)c->preset;
	if (o->preset == PL_PRESET_SEARCH && (c->minutes == 0 || c->evaluations == 0))
		o->preset = PL_PRESET_BEST;
	o->limit_ns = c->minutes > 0 ? (pl_ns)fmin(c->minutes * 6e10, 9e18) + 1 : 0;
	o->evaluations = c->evaluations > 0 ? c->evaluations : 0;
	o->memory_bytes = c->memory > 0 ? c->memory : 0;
	o->memory.optimizer_bytes = bytes[c->optimizer];
	o->seed = (uint64_t)c->c.seed;
	o->any = c->any;
	o->keep_ranks = c->keep_ranks;
	PL_CHECK(choose_rewrites(c, o, err));
	return check_keep_ranks(o, err);
}

/* Are sizes of operations recorded? */
static bool has_sizes(const struct pl_graph *g)
{
	for (size_t i = 0; i < g->n_work; i++)
		if (g->work[i].dims != PL_NONE)
			return true;
	return false;
}

/* The file without its folders; of several, the first one with its folder, which tells jobs apart.
 */
static const char *base_of(const struct pl_inputs *in)
{
	const char *name = pl_inputs_name(&in->v[0]), *at = name + strlen(name);
	int parts = in->n > 1 ? 2 : 1;

	while (at > name && (at[-1] != '/' || --parts))
		at--;
	return at;
}

static int search(const struct config *c, struct pl_graph *g, struct pl_pool *pool,
		  const char *name, struct pl_plan *p, struct pl_err *err)
{
	struct pl_search_opts o = { .log = &c->c.log, .pool = pool, .stop = &stopped };
	struct pl_predictor *predictor = NULL;
	struct pl_topology topo = { 0 };
	struct pl_cost cost;
	bool fitted = false;
	size_t estimated;
	int rc;

	PL_TRY(set_limits(c, &o, err));
	if (c->topology) {
		PL_TRY(pl_topology_parse(c->topology, &topo, err));
		PL_TRY(pl_topology_check(&topo, g->n_ranks, err));
	}
	if (!c->model && (c->device || c->folder.n))
		PL_TRY(pl_fail(err, PL_EUSAGE, "--device and --devices are for --model"));
	if (c->model)
		PL_TRY(pl_predictor_open(
			&(struct pl_predictor_opts){ .model = c->model,
						     .folder = (const char *const *)c->folder.v,
						     .n_folders = c->folder.n,
						     .device = c->device,
						     .log = &c->c.log },
			&predictor, err));
	pl_progress("fitting costs");
	PL_TRY(pl_sim_fold_messages(g,
				    err)); /* buckets are whole collectives, in the fit as well */
	PL_TRY(pl_cost_fit(g, c->topology ? &topo : NULL, &cost, err));
	fitted = true;
	cost.predictor = predictor;
	PL_TRY(choose_steps(c, g, &o.noise, err));
	pl_progress("searching");
	PL_TRY(pl_dup(&p->arena, &p->base, name, err));
	PL_TRY(pl_buf_put(&p->provenance, g->provenance.p, g->provenance.n, err));
	rc = pl_search(g, &cost, &o, p, err);
	estimated = rc < 0 ? 0 : pl_plan_estimated(p);
	if (estimated)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "the sizes of %zu of %zu gradients are estimated, because %s", estimated,
		       p->n_tensors,
		       has_sizes(g) ? "what is sent has other sizes than they (compressed, sparse)"
				    : "the recording does not have them: record with "
				      "record_shapes=True");
	if (stopped)
		pl_say(&c->c.log, PL_LOG_WARN, "stopped; this is the best plan so far");
out:
	if (fitted)
		pl_cost_fini(&cost);
	pl_topology_fini(&topo);
	pl_predictor_free(predictor);
	return rc;
}

/* ---- what there is to read ------------------------------------------------------------------- */

static bool asks_for_search(const struct config *c)
{
	return c->minutes != -1 || c->evaluations != -1 || c->memory != -1 || c->topology ||
	       c->model || c->device || c->folder.n || c->allow.n || c->forbid.n || c->fuse_ops.n ||
	       c->fuse_share != -1 || c->any || c->keep_ranks || c->preset || c->step.n || c->fold;
}

/* A graph, or the recording that all inputs are. */
static int load_graph(const struct config *c, struct pl_inputs *in, struct pl_pool *pool,
		      struct pl_plan *p, struct pl_err *err)
{
	struct pl_inputs_graph o;
	struct pl_in *one = NULL;
	struct pl_graph g;
	bool graph;
	int rc;

	pl_graph_init(&g);
	PL_TRY(pl_inputs_are_graphs(in, &graph, err));
	pl_inputs_graph_init(&o, &c->c, pool);
	if (graph && in->n > 1)
		PL_TRY(pl_fail(err, PL_EUSAGE, "one graph or plan at a time"));
	if (graph) {
		one = pl_inputs_open(&in->v[0], err);
		PL_TRY(one ? pl_derive_read(one, pool, &g, err) : err->code);
	} else {
		PL_TRY(pl_inputs_graph(in, &o, &g, err));
	}
	rc = search(c, &g, pool, base_of(in), p, err);
	if (rc < 0 && rc != PL_EUSAGE)
		pl_wrap(err, "%s", pl_inputs_all(in));
out:
	pl_in_close(one);
	pl_graph_fini(&g);
	return rc;
}

static int load(const struct config *c, struct pl_inputs *inputs, struct pl_pool *pool,
		struct pl_plan *p, struct pl_err *err)
{
	struct pl_input *i = &inputs->v[0];
	struct pl_in *in;
	int rc;

	if (inputs->n > 1 || i->known || i->et || i->operations ||
	    (i->kind && i->kind != PL_KIND_PLAN))
		return load_graph(c, inputs, pool, p, err);
	in = pl_inputs_open(i, err);
	if (!in)
		return err->code;
	rc = pl_plan_read(in, pl_in_name(in), p, err);
	if (rc == 0 && asks_for_search(c))
		rc = pl_fail(err, PL_EUSAGE, "%s is a plan already; there is nothing to search",
			     pl_inputs_name(i));
	pl_in_close(in);
	return rc;
}

static int check_job(const struct config *c, struct pl_err *err)
{
	if (asks_for_search(c) || c->to > AS_JSON)
		return pl_fail(
			err, PL_EUSAGE,
			"a job gets a choice of policies (-O text or json); the search needs "
			"a recording or a graph: graph JOB | plan");
	return 0;
}

static int add_provenance(const struct config *c, struct pl_plan *p, struct pl_err *err)
{
	struct pl_buf line = { 0 };
	int rc = pl_provenance(&c->c, &line, err);

	if (!c->c.provenance)
		p->provenance.n = 0;
	if (rc >= 0 && line.p)
		rc = pl_buf_printf(&p->provenance, err, "%s\n", (const char *)line.p);
	pl_buf_fini(&line);
	return rc;
}

static int write_plan(const struct config *c, const struct pl_plan *p, struct pl_out *out,
		      struct pl_err *err)
{
	switch (c->to) {
	case AS_PLAN:
		return pl_plan_write(p, out, (int)c->c.level, err);
	case AS_TEXT:
		return pl_plan_write_text(p, out, err);
	case AS_JSON:
		return pl_plan_write_json(p, out, err);
	default: /* --to names the frameworks in the order of the list */
		return pl_settings_write(pl_settings[c->to - AS_SETTINGS], p, out, err);
	}
}

static int run(void *config, int argc, char **argv, struct pl_err *err)
{
	const struct config *c = config;
	const struct pl_inputs_opts o = { .log = &c->c.log, .pairs = true };
	struct pl_inputs inputs = { 0 };
	struct pl_pool *pool = NULL;
	struct pl_out *out = NULL;
	struct pl_plan p;
	int rc, sig;
	bool job;

	pl_plan_init(&p);
	catch_signals(); /* before the output hooks those that have no action yet */
	pl_progress("reading %s", argc ? argv[0] : "standard input");
	PL_TRY(pl_inputs_find(&inputs, &o, argc, argv, err));
	job = inputs.n == 1 && inputs.v[0].job;
	out = pl_out_open(c->c.output, c->to == AS_PLAN && !job, err);
	pool = out ? pl_pool_new((int)c->c.threads, err) : NULL;
	PL_TRY(pool ? 0 : err->code);
	if (job) {
		PL_TRY(check_job(c, err));
		rc = plan_policies(c, &inputs.v[0], out, err);
		goto out;
	}
	if (c->speeds)
		PL_TRY(pl_fail(err, PL_EUSAGE, "--speeds: only a job has workers"));
	PL_TRY(load(c, &inputs, pool, &p, err));
	PL_TRY(add_provenance(c, &p, err));
	rc = write_plan(c, &p, out, err);
out:
	pl_inputs_fini(&inputs);
	pl_plan_fini(&p);
	pl_pool_free(pool);
	rc = pl_out_finish(out, rc, err);
	sig = stopped;
	if (rc == 0 && sig)
		raise(sig); /* its action is the default again */
	return rc;
}

static const struct pl_lang_schema *const languages[] = { &pl_plan_schema, &pl_topology_schema,
							  NULL };

const struct pl_cmd pl_command = {
	.name = "plan",
	.synopsis = "[OPTION]... [GRAPH | FILE... | FOLDER | PLAN | JOB]",
	.summary = "Search for changes that make the step of a job shorter.",
	.details =
		"With a graph, or the files of a profiler, one of each rank: search. With a plan: "
		"show it, or export it as settings of a framework. With a job of run(1): choose "
		"the\n"
		"synchronisation policy of its workers.\n"
		"Without a file: read standard input.",
	.examples = "plan -o job.plan job.graph\n"
		    "plan -O ddp job.plan\n"
		    "replay -p job.plan job.graph\n"
		    "plan --speeds=1,1,2,4 my.job",
	.opts = options,
	.config_size = sizeof(struct config),
	.defaults = defaults,
	.languages = languages,
	.help = pl_lang_help,
	.run = run,
};
