/*
 * run - trains a network with several workers under a plan, and traces itself.
 *
 * Without ranks of a launcher the process forks them. Each rank then opens its trace, meets the
 * others, and drives an engine (dp.h) step by step: train.c.
 */
#include "program.h"

#define AT(m)	    offsetof(struct config, m)
#define BENCH_RANKS 2

static const struct pl_opt options[] = {
	PL_OPTS_HEADING("used most"),
	{ 'n', "ranks", "N", "fork N ranks on this machine", PL_OPT_INT, AT(ranks), NULL },
	{ 'p', "plan", "FILE", "train as this plan says", PL_OPT_STR, AT(plan), NULL },
	{ 't', "trace", "FILE", "write a trace to FILE; of several ranks FILE.0, FILE.1 ...",
	  PL_OPT_STR, AT(trace), NULL },
	{ 0, "set", "KEY=VALUE", "replace a statement of the job (\"batch=128\")", PL_OPT_LIST,
	  AT(set), NULL },
	{ 0, "log", "FILE", "write a row for each step: CSV, FILE.jsonl, or TensorBoard to FOLDER/",
	  PL_OPT_LIST, AT(log), NULL },
	{ 0, "report", "FILE", "write measurements as JSON", PL_OPT_STR, AT(report), NULL },
	{ 0, "device", "NAME", "compute on cpu (default), cuda or cuda:N", PL_OPT_STR, AT(device),
	  NULL },
	{ 'O', "to", "FORMAT", "write text (default), json, csv; svg: plot logs", PL_OPT_CHOICE,
	  AT(to), "text|json|csv|svg" },
	PL_OPTS_OUTPUT,
	PL_OPTS_HEADING("ranks and links"),
	{ 0, "transport", "NAME", "send through auto (default), shm, tcp, mpi, nccl", PL_OPT_STR,
	  AT(transport), NULL },
	{ 0, "meet", "WHERE", "let ranks meet at tcp:HOST:PORT or dir:PATH", PL_OPT_STR, AT(meet),
	  NULL },
	{ 0, "bind", "ADDRESS", "listen at ADDRESS (\"*\": any; or an interface), not at loopback",
	  PL_OPT_STR, AT(bind), NULL },
	{ 0, "timeout", "T", "give up operations that take longer (default 3s)", PL_OPT_TIME,
	  AT(timeout_ns), NULL },
	{ 0, "link", "SPEC", "slow links down: rate=1Gbit,latency=200us[,from=R][,to=R]",
	  PL_OPT_LIST, AT(link), NULL },
	{ 0, "pace", "RANK:MS", "slow a rank's steps down by MS ms (\"*\": all), or RANK:xFACTOR",
	  PL_OPT_LIST, AT(pace), NULL },
	PL_OPTS_HEADING("parameter servers"),
	{ 0, "policies", "LIST",
	  "compare policies: train under each (\"bsp,ssp:40,adsp\"), a row each", PL_OPT_STR,
	  AT(policies), NULL },
	{ 0, "speeds", "LIST",
	  "let worker 0, 1 ... make so many steps per second at most (\"1,1,2,4\")", PL_OPT_STR,
	  AT(speeds), NULL },
	{ 0, "seeds", "N", "train N times under each policy, with other seeds (default 1)",
	  PL_OPT_INT, AT(seeds), NULL },
	{ 0, "lr", "LIST", "train with each of these learning rates (\"0.1,0.03\")", PL_OPT_STR,
	  AT(rates), NULL },
	{ 0, "target-loss", "LOSS", "end at this loss: with servers, of held-out samples",
	  PL_OPT_REAL, AT(target_loss), NULL },
	PL_OPTS_HEADING("weights and checkpoints"),
	{ 0, "checkpoint", "FILE", "write a checkpoint at the end (and as often as the job says)",
	  PL_OPT_STR, AT(checkpoint), NULL },
	{ 0, "checkpoint-best", "FILE", "write a checkpoint after each evaluation that is the best",
	  PL_OPT_STR, AT(checkpoint_best), NULL },
	{ 0, "resume", "FILE", "continue from a checkpoint", PL_OPT_STR, AT(resume), NULL },
	{ 0, "export", "FILE", "write the weights as safetensors", PL_OPT_STR, AT(export_to),
	  NULL },
	{ 0, "import", "FILE", "begin with these weights", PL_OPT_STR, AT(import_from), NULL },
	{ 0, "eval", NULL, "evaluate on the held-out samples, without training", PL_OPT_FLAG,
	  AT(eval), NULL },
	{ 0, "layers", NULL, "print the layers of the model with their work, without training",
	  PL_OPT_FLAG, AT(layers), NULL },
	{ 0, "kernels", NULL,
	  "print what a step computes, as --bench kernels measures it, without training",
	  PL_OPT_FLAG, AT(kernels), NULL },
	PL_OPTS_HEADING("measuring"),
	{ 0, "bench", "WHAT",
	  "measure WHAT instead of running a job: comm, kernels (layers), machine (a data sheet)",
	  PL_OPT_STR, AT(bench), NULL },
	{ 0, "op", "NAME", "measure only this operation (\"allreduce\")", PL_OPT_LIST, AT(op),
	  NULL },
	{ 0, "min-size", "SIZE", "measure messages of SIZE and more (default 4K)", PL_OPT_SIZE,
	  AT(min_size), NULL },
	{ 0, "max-size", "SIZE", "measure messages up to SIZE (default 64M)", PL_OPT_SIZE,
	  AT(max_size), NULL },
	{ 0, "iterations", "N", "repeat each measurement N times (default 20)", PL_OPT_INT,
	  AT(iterations), NULL },
	{ 0, "networks", "N", "measure the layers of N random networks (default 100)", PL_OPT_INT,
	  AT(networks), NULL },
	PL_OPTS_HEADING("general"),
	PL_OPTS_STREAM,
	{ '@', "threads", "N",
	  "compute with N threads in each rank (default 1, or as the job says; 0 = cores)",
	  PL_OPT_INT, AT(threads), NULL },
	PL_OPTS_COMMON,
};

static void defaults(void *config)
{
	struct config *c = config;

	c->c.seed = c->ranks = c->threads = c->timeout_ns = INT64_MIN; /* those of the job */
	c->min_size = 4096;
	c->max_size = 64 << 20;
	c->iterations = 20;
	c->networks = 100;
	c->seeds = 1;
}

static int plot(const struct config *c, int argc, char **argv, struct pl_err *err)
{
	struct pl_out *out;

	if (!argc)
		return pl_fail(err, PL_EUSAGE,
			       "-O svg plots logs, or tables of --policies: name one or more");
	out = pl_out_open(c->c.output, false, err);
	if (!out)
		return err->code;
	return pl_out_finish(out,
			     plot_is_comparison(argv[0]) ? plot_policies(argv, argc, out, err)
							 : plot_logs(argv, argc, out, err),
			     err);
}

static int bench(struct config *c, int argc, struct pl_err *err)
{
	int64_t n = c->ranks ? c->ranks : BENCH_RANKS;
	struct work w = { .c = c };
	unsigned ops;
	int rc;

	if (argc)
		return pl_fail(err, PL_EUSAGE, "--bench takes no job");
	if (c->min_size < 4 || c->max_size < c->min_size || c->max_size > (int64_t)1 << 32)
		return pl_fail(err, PL_EUSAGE,
			       "--min-size, --max-size: from 4 to 4G, and in order");
	if (c->iterations < 1 || c->iterations > 1000000)
		return pl_fail(err, PL_EUSAGE, "--iterations: from 1 to 1000000");
	if (c->networks < 1 || c->networks > 1000000)
		return pl_fail(err, PL_EUSAGE, "--networks: from 1 to 1000000");
	if (!strcmp(c->bench, "kernels"))
		return bench_kernels(c, err);
	if (!strcmp(c->bench, "machine"))
		return bench_machine(c, err);
	if (strcmp(c->bench, "comm"))
		return pl_fail(err, PL_EUSAGE,
			       "--bench: no \"%.100s\"; there are: comm, kernels, machine",
			       c->bench);
	PL_CHECK(bench_operations(c, &ops, err)); /* here, so that not every rank says it */
	for (size_t i = 0; i < c->set.n; i++)
		if (strncmp(c->set.v[i], "hosts", 5) != 0)
			return pl_fail(err, PL_EUSAGE,
				       "--bench takes --set hosts=HOSTS alone, not %.100s",
				       c->set.v[i]);
	pl_job_init(&w.job);
	PL_TRY(apply_options(c, &w.job, err));
	c->hosts = w.job.hosts;
	rc = pl_job_hosts_check(c->hosts, n, err);
	if (rc == PL_EDATA)
		err->code = rc = PL_EUSAGE; /* only options say both */
	if (rc >= 0)
		rc = start_ranks(c, BENCH_RANKS, bench_comm, &w, err);
out:
	pl_job_fini(&w.job);
	return rc;
}

/* Options whose values nobody else judges; afterwards 0 ranks, no time: not given. */
static int check_options(struct config *c, struct pl_err *err)
{
	if (c->ranks != INT64_MIN && (c->ranks < 1 || c->ranks > RANKS_MAX))
		return pl_fail(err, PL_EUSAGE, "-n: from 1 to %d ranks", RANKS_MAX);
	if (c->threads != INT64_MIN && (c->threads < 0 || c->threads > 1024))
		return pl_fail(err, PL_EUSAGE, "--threads: %lld is not between 0 and 1024",
			       (long long)c->threads);
	if (c->timeout_ns != INT64_MIN &&
	    (c->timeout_ns < 1000000 || c->timeout_ns > 3600000000000))
		return pl_fail(err, PL_EUSAGE, "--timeout: from 1ms to 1h");
	if (c->resume && c->import_from)
		return pl_fail(err, PL_EUSAGE,
			       "--resume has the weights of its checkpoint, --import has others; "
			       "leave one");
	c->ranks = pl_max_i64(c->ranks, 0);
	c->timeout_ns = pl_max_i64(c->timeout_ns, 0);
	return 0;
}

static int check_work(const struct config *c, const struct work *w, struct pl_err *err)
{
	if (w->job.ranks > RANKS_MAX)
		return pl_fail(err, PL_ELIMIT, "%lld ranks; there are at most %d",
			       (long long)w->job.ranks, RANKS_MAX);
	if (!c->eval)
		return 0;
	if (w->job.split >= 1 && !w->job.eval_data)
		return pl_fail(
			err, PL_EDATA,
			"--eval, but nothing is held out; write: split 0.9, or --set split=0.9, "
			"or eval-data and a file");
	if (!w->job.resume && !c->import_from)
		pl_say(&c->c.log, PL_LOG_WARN,
		       "--eval without --resume or --import: these weights were never trained");
	return 0;
}

/* A launcher counts all processes, a user those that train. */
static int count_servers(struct config *c, struct work *w, struct pl_err *err)
{
	const struct pl_engine *e;
	int64_t said;

	PL_CHECK(find_engine(&w->job, w->planned ? &w->plan : NULL, &e, err));
	c->servers = e->servers ? e->servers(&w->job) : 0;
	if (!c->launch.launcher || !c->servers)
		return 0;
	if (c->launch.size <= c->servers)
		return pl_fail(err, PL_EUSAGE,
			       "%s started %d processes; %d of them are servers, and none is left "
			       "to train",
			       c->launch.launcher, c->launch.size, c->servers);
	said = w->job.ranks_said ? w->job.ranks_said : c->launch.size - c->servers;
	if (said != c->launch.size - c->servers)
		return pl_fail(err, PL_EUSAGE,
			       "%s started %d processes, %d server%s and %d worker%s, but the job "
			       "has ranks %lld; start %lld, or change ranks",
			       c->launch.launcher, c->launch.size, c->servers,
			       c->servers == 1 ? "" : "s", c->launch.size - c->servers,
			       c->launch.size - c->servers == 1 ? "" : "s", (long long)said,
			       (long long)(said + c->servers));
	c->ranks = w->job.ranks = c->launch.size - c->servers;
	return pl_job_check(&w->job, err);
}

/* A server takes no samples, so it would not know. Text is counted by contexts, later. */
static int check_samples(const struct config *c, const struct work *w, struct pl_err *err)
{
	const struct pl_job *j = &w->job;
	int64_t n = (int64_t)pl_dataset_train(&w->data, j->split);

	if (!c->servers || w->data.token || n >= j->batch * j->ranks)
		return 0;
	return pl_fail(err, PL_EDATA,
		       "a step takes %lld samples (batch %lld times ranks %lld), there are %lld to "
		       "train on; a smaller batch may do",
		       (long long)(j->batch * j->ranks), (long long)j->batch, (long long)j->ranks,
		       (long long)n);
}

static int run(void *config, int argc, char **argv, struct pl_err *err)
{
	struct config *c = config;
	struct work w = { 0 };
	int rc;

	flush_before_exit();
	PL_TRY(check_options(c, err));
	if (c->to == AS_SVG)
		return plot(c, argc, argv, err);
	PL_CHECK(read_launcher(c, err));
	if (c->bench)
		return bench(c, argc, err);
	if (c->to == AS_CSV && !c->layers && !c->kernels && !c->policies)
		return pl_fail(err, PL_EUSAGE,
			       "-O csv is for --bench, --layers and --kernels; of a job: --log "
			       "FILE.csv");
	if (argc > 1)
		return pl_fail(err, PL_EUSAGE, "one job at a time");
	PL_TRY(read_work(c, argc ? argv[0] : "-", &w, err));
	if (c->layers || c->kernels) {
		rc = c->layers ? report_layers(c, &w.model, err) : list_kernels(c, &w, err);
		goto out;
	}
	PL_TRY(check_work(c, &w, err));
	if (!c->meet)
		c->meet = w.job.meet;
	if (!c->timeout_ns)
		c->timeout_ns = w.job.timeout_ns;
	c->hosts = w.job.hosts;
	if (c->policies) {
		rc = compare_policies(c, &w, err);
		goto out;
	}
	PL_TRY(count_servers(c, &w, err));
	PL_TRY(check_samples(c, &w, err));
	rc = start_ranks(c, w.job.ranks, train, &w, err);
out:
	work_fini(&w);
	return rc;
}

static const struct pl_lang_schema *const languages[] = { &pl_job_schema, &pl_model_schema,
							  &pl_plan_schema, NULL };

const struct pl_cmd pl_command = {
	.name = "run",
	.synopsis = "[OPTION]... [JOB]",
	.summary = "Train a network with several workers, as a plan says, and trace it.",
	.details = "-O svg FILE...: plot logs, or tables of --policies. --bench: measure "
		   "communication, layers or the machine.\n"
		   "Without a file: standard input.",
	.examples = "run -n 2 -t job.trace my.job\n"
		    "run -n 2 -p job.plan my.job\n"
		    "run --bench comm -n 2 --max-size 64K",
	.opts = options,
	.config_size = sizeof(struct config),
	.defaults = defaults,
	.languages = languages,
	.help = pl_lang_help,
	.run = run,
};
