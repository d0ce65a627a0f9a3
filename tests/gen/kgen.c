/*
 * kgen - write the profiler files of a simulated distributed training job
 *
 * SYNOPSIS
 *	kgen [options] -o DIR
 *	kgen [--seed=N] [-z] [--distinct-shapes] --big=MB FILE
 *
 * DESCRIPTION
 *	Simulates every rank of a small training job (host threads, streams, events, collectives)
 *	and writes what PyTorch's profiler would have recorded: DIR/rankN.json per rank, plus
 *	DIR/truth.json with the true time of every step and the clock error of every rank.  Two
 *	runs with the same seed and one changed option form a before/after pair whose cause is
 *	known.  The model shares no code with the programs it tests.  With --big, writes one file
 *	of about MB million bytes without simulating anything, for timing readers.
 *
 *	See README.md for the model, and --help for the options.
 *
 * BUILD
 *	cc -std=c11 -O2 -o kgen tests/gen/kgen*.c -lz
 *
 * EXIT STATUS
 *	0 done, 2 usage, 4 input or output, 5 out of memory, 70 internal error.
 */
#define _POSIX_C_SOURCE 200809L

#include "kgen.h"

#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

void kg_die(int status, const char *fmt, ...)
{
	va_list ap;

	fputs("kgen: ", stderr);
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
	exit(status);
}

void *kg_alloc(size_t n, size_t size)
{
	void *p = calloc(n ? n : 1, size);

	if (!p)
		kg_die(KG_EXIT_LIMIT, "out of memory");
	return p;
}

void *kg_grow(void *p, size_t n, size_t *cap, size_t size)
{
	if (n < *cap)
		return p;
	*cap = *cap ? 2 * *cap : 64;
	p = realloc(p, *cap * size);
	if (!p)
		kg_die(KG_EXIT_LIMIT, "out of memory");
	return p;
}

char *kg_strf(const char *fmt, ...)
{
	va_list ap;
	char *s;
	int n;

	va_start(ap, fmt);
	n = fmt ? vsnprintf(NULL, 0, fmt, ap) : -1;
	va_end(ap);
	if (n < 0)
		kg_die(KG_EXIT_BUG, "bad format");
	s = kg_alloc((size_t)n + 1, 1);
	va_start(ap, fmt);
	vsnprintf(s, (size_t)n + 1, fmt, ap);
	va_end(ap);
	return s;
}

double kg_rule_value(const struct kg_rules *rules, int rank, int host, double none, bool multiply)
{
	double v = none;

	for (int i = 0; i < rules->n; i++) {
		const struct kg_rule *r = &rules->r[i];

		if (r->index != (r->by_host ? host : rank))
			continue;
		v = multiply ? v * r->value : v + r->value;
	}
	return v;
}

/* The finaliser of splitmix64. */
static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ULL;
	x = (x ^ x >> 27) * 0x94d049bb133111ebULL;
	return x ^ x >> 31;
}

uint64_t kg_hash(uint64_t a, uint64_t b)
{
	return mix(mix(a + 0x9e3779b97f4a7c15ULL) + b * 0xd1342543de82ef95ULL + 1);
}

double kg_uniform(uint64_t key)
{
	return (double)(mix(key) >> 11) * 0x1p-53;
}

/*
 * Near-normal factor around 1 (sum of four uniforms: no library function whose last digit depends
 * on the machine), kept away from zero.
 */
double kg_factor(const struct kg_cfg *cfg, uint64_t key)
{
	double sum = -2;

	for (uint64_t i = 0; i < 4; i++)
		sum += kg_uniform(kg_hash(key, i));
	sum = 1 + cfg->jitter * 1.7320508075688772 * sum;
	return sum < 0.2 ? 0.2 : sum;
}

enum {
	O_KIND = 256,
	O_RANKS,
	O_HOSTS,
	O_TP,
	O_PP,
	O_STEPS,
	O_LAYERS,
	O_MICROBATCHES,
	O_SEED,
	O_NOISE_SEED,
	O_JITTER,
	O_HOST_BOUND,
	O_SYNC_COMM,
	O_ASYNC_COMM,
	O_COMM_SCALE,
	O_SLOW_RANK,
	O_BYTES_SCALE,
	O_COMPUTE_US,
	O_HOST_US,
	O_DATA_US,
	O_ALPHA_US,
	O_GBPS,
	O_INTRA_GBPS,
	O_RECORD_GROUPS,
	O_CUDA_SYNC,
	O_BASE_TIME,
	O_CLOCK_OFFSET,
	O_CLOCK_DRIFT,
	O_STEP_GAP_MS,
	O_CUDA_GRAPHS,
	O_PYTHON_STACKS,
	O_NO_FLOWS,
	O_TRUNCATE_LAST,
	O_HANDLER_NAMES,
	O_DEVICE_SYNC,
	O_NO_ITEM,
	O_QUEUE_DEPTH,
	O_QUEUE_PER_STREAM,
	O_INTEGER_US,
	O_NO_HOST_NAME,
	O_DISTINCT_SHAPES,
	O_PLANTED,
	O_BATCH,
	O_BIG,
	O_HELP
};

static const struct kg_option {
	int value;
	const char *name, *arg, *help;
} options[] = {
	{ 'o', NULL, "DIR", "write the files into DIR (made if absent)" },
	{ 'z', NULL, NULL, "compress with gzip" },
	{ O_KIND, "kind", "NAME", "kind of job, with its defaults: give it first" },
	{ O_RANKS, "ranks", "N", "number of ranks [8]" },
	{ O_HOSTS, "hosts", "N", "number of hosts [one per 4 ranks]" },
	{ O_TP, "tp", "N", "tensor-parallel size [2 if 4 divides ranks / pp, else 1]" },
	{ O_PP, "pp", "N", "pipeline stages [1]; data-parallel size is ranks / tp / pp" },
	{ O_STEPS, "steps", "N", "training steps [3]" },
	{ O_LAYERS, "layers", "N", "layers of the model [4]" },
	{ O_MICROBATCHES, "microbatches", "N", "microbatches per step [1]" },
	{ O_SEED, "seed", "N", "seed of the job [1]" },
	{ O_NOISE_SEED, "noise-seed", "N", "seed of the jitter [that of the job]" },
	{ O_JITTER, "jitter", "PCT", "standard deviation of every duration [3]" },
	{ O_HOST_BOUND, "host-bound", NULL, "small kernels, slow host, small messages" },
	{ O_SYNC_COMM, "sync-comm", NULL, "join each gradient bucket at once" },
	{ O_ASYNC_COMM, "async-comm", NULL, "join buckets after the backward pass [default]" },
	{ O_COMM_SCALE, "comm-scale", "X", "multiply the time of all transfers [1]" },
	{ O_BYTES_SCALE, "bytes-scale", "X", "multiply the size of all messages [1]" },
	{ O_SLOW_RANK, "slow-rank", "R:X", "kernels of rank R (or host:H) take X times as long" },
	{ O_COMPUTE_US, "compute-us", "US", "forward kernels of one layer [6000; host-bound 600]" },
	{ O_HOST_US, "host-us", "US", "host time of one operator [25; host-bound 90]" },
	{ O_DATA_US, "data-us", "US", "host time of data loading [1500]" },
	{ O_ALPHA_US, "alpha-us", "US", "latency of a collective [15]" },
	{ O_GBPS, "gbps", "X", "bus bandwidth across hosts, gigabits per second [400]" },
	{ O_INTRA_GBPS, "intra-gbps", "X", "the same within a host [800]" },
	{ O_RECORD_GROUPS, "record-groups", NULL, "write groups, sizes and Seq of collectives" },
	{ O_CUDA_SYNC, "cuda-sync", NULL, "write cuda_sync events" },
	{ O_BASE_TIME, "base-time", NULL, "times relative to baseTimeNanoseconds" },
	{ O_INTEGER_US, "integer-us", NULL, "whole microseconds, as older profilers wrote" },
	{ O_CLOCK_OFFSET, "clock-offset", "R:NS", "clock error of rank R (or host:H:NS)" },
	{ O_CLOCK_DRIFT, "clock-drift", "R:PPM", "drift of rank R (or host:H:PPM)" },
	{ O_STEP_GAP_MS, "step-gap-ms", "MS", "idle host time between steps [0]" },
	{ O_DEVICE_SYNC, "device-sync", NULL, "cudaDeviceSynchronize at the end of a step" },
	{ O_NO_ITEM, "no-item", NULL, "do not read the loss: the host runs ahead" },
	{ O_QUEUE_DEPTH, "queue-depth", "N", "launches in flight before the driver blocks [1024]" },
	{ O_QUEUE_PER_STREAM, "queue-per-stream", NULL, "each stream has a launch queue" },
	{ O_CUDA_GRAPHS, "cuda-graphs", NULL, "forward layers run as graphs" },
	{ O_PYTHON_STACKS, "python-stacks", NULL, "write python_function events" },
	{ O_NO_FLOWS, "no-flows", NULL, "no flow events" },
	{ O_TRUNCATE_LAST, "truncate-last", NULL,
	  "half of the ranks lose their last collective kernel" },
	{ O_HANDLER_NAMES, "handler-names", NULL, "names as tensorboard_trace_handler gives" },
	{ O_NO_HOST_NAME, "no-host-name", NULL, "no host_name in the files" },
	{ O_PLANTED, "planted", "X", "multiply the times that the kind adds [1]" },
	{ O_BATCH, "batch", "X", "multiply the samples of a microbatch [1]" },
	{ O_DISTINCT_SHAPES, "distinct-shapes", NULL,
	  "of --big: every operator has shapes of its own" },
	{ O_BIG, "big", "MB", "write one file of about MB million bytes; needs FILE" },
	{ O_HELP, "help", NULL, "this text" },
};
#define N_OPTION (sizeof(options) / sizeof(options[0]))

static void usage(void)
{
	const char *name, *help;

	puts("usage: kgen [options] -o DIR\n       kgen [--seed=N] [-z] [--distinct-shapes] "
	     "--big=MB FILE\n");
	for (size_t i = 0; i < N_OPTION; i++) {
		const struct kg_option *o = &options[i];
		char left[40];

		if (o->name)
			snprintf(left, sizeof(left), "--%s%s%s", o->name, o->arg ? "=" : "",
				 o->arg ? o->arg : "");
		else
			snprintf(left, sizeof(left), "-%c %s", o->value, o->arg ? o->arg : "");
		printf("  %-22s %s\n", left, o->help);
	}
	puts("\nkinds:");
	for (size_t i = 0; kg_kind_get(i, &name, &help); i++)
		printf("  %-22s %s\n", name, help);
	if (fflush(stdout))
		kg_die(KG_EXIT_IO, "standard output: %s", strerror(errno));
}

static double number(const char *s, double min, double max)
{
	char *end;
	double v = strtod(s, &end);

	if (end == s || *end || !(v >= min && v <= max))
		kg_die(KG_EXIT_USAGE, "%s: want a number from %g to %g", s, min, max);
	return v;
}

static int count(const char *s, int max)
{
	double v = number(s, 1, max);

	if (v != (double)(int)v)
		kg_die(KG_EXIT_USAGE, "%s: want a whole number", s);
	return (int)v;
}

static uint64_t seed_of(const char *s)
{
	char *end;
	uint64_t v;

	errno = 0;
	v = strtoull(s, &end, 0);
	if (end == s || *end || errno || *s == '-')
		kg_die(KG_EXIT_USAGE, "%s: bad seed", s);
	return v;
}

static void add_rule(struct kg_rules *rules, const char *s, double min, double max)
{
	const char *text = s;
	struct kg_rule *r = &rules->r[rules->n];
	char *end;
	long index;

	if (rules->n == KG_MAX_RULES)
		kg_die(KG_EXIT_USAGE, "more than %d of one option", KG_MAX_RULES);
	r->by_host = !strncmp(s, "host:", 5);
	if (r->by_host)
		s += 5;
	index = strtol(s, &end, 10);
	if (end == s || *end != ':' || index < 0 || index > 1000000)
		kg_die(KG_EXIT_USAGE, "%s: want R:VALUE or host:H:VALUE", text);
	r->index = (int)index;
	r->value = number(end + 1, min, max);
	rules->n++;
}

struct command {
	struct kg_cfg cfg;
	double big;
	const char *file;
	double compute_us, host_us; /* negative = not given */
};

static void set_flag(struct kg_cfg *c, int opt)
{
	switch (opt) {
	case 'z':
		c->gzip = true;
		break;
	case O_HOST_BOUND:
		c->host_bound = true;
		break;
	case O_SYNC_COMM:
		c->sync_comm = true;
		break;
	case O_ASYNC_COMM:
		c->sync_comm = false;
		break;
	case O_RECORD_GROUPS:
		c->record_groups = true;
		break;
	case O_CUDA_SYNC:
		c->cuda_sync = true;
		break;
	case O_BASE_TIME:
		c->base_time = true;
		break;
	case O_INTEGER_US:
		c->integer_us = true;
		break;
	case O_DEVICE_SYNC:
		c->device_sync = true;
		break;
	case O_NO_ITEM:
		c->no_item = true;
		break;
	case O_QUEUE_PER_STREAM:
		c->queue_per_stream = true;
		break;
	case O_CUDA_GRAPHS:
		c->cuda_graphs = true;
		break;
	case O_PYTHON_STACKS:
		c->python_stacks = true;
		break;
	case O_NO_FLOWS:
		c->no_flows = true;
		break;
	case O_TRUNCATE_LAST:
		c->truncate_last = true;
		break;
	case O_HANDLER_NAMES:
		c->handler_names = true;
		break;
	case O_DISTINCT_SHAPES:
		c->distinct_shapes = true;
		break;
	case O_NO_HOST_NAME:
		c->no_host_name = true;
		break;
	case O_HELP:
		usage();
		exit(0);
	default:
		fputs("Try 'kgen --help'.\n", stderr);
		exit(KG_EXIT_USAGE);
	}
}

static void set_option(struct command *cmd, int opt, const char *arg)
{
	struct kg_cfg *c = &cmd->cfg;

	switch (opt) {
	case 'o':
		c->dir = arg;
		break;
	case O_KIND:
		if (!kg_kind_set(c, arg))
			kg_die(KG_EXIT_USAGE, "%s: no such kind", arg);
		break;
	case O_PLANTED:
		c->planted = number(arg, 0, 1000);
		break;
	case O_BATCH:
		c->batch = number(arg, 0.01, 100);
		break;
	case O_RANKS:
		c->ranks = count(arg, 65536);
		break;
	case O_HOSTS:
		c->hosts = count(arg, 65536);
		break;
	case O_TP:
		c->tp = count(arg, 1024);
		break;
	case O_PP:
		c->pp = count(arg, 1024);
		break;
	case O_STEPS:
		c->steps = count(arg, 100000);
		break;
	case O_LAYERS:
		c->layers = count(arg, 1000);
		break;
	case O_MICROBATCHES:
		c->microbatches = count(arg, 1000);
		break;
	case O_SEED:
		c->seed = seed_of(arg);
		break;
	case O_NOISE_SEED:
		c->noise_seed = seed_of(arg);
		break;
	case O_JITTER:
		c->jitter = number(arg, 0, 50) / 100;
		break;
	case O_COMM_SCALE:
		c->comm_scale = number(arg, 0, 1000);
		break;
	case O_BYTES_SCALE:
		c->bytes_scale = number(arg, 0, 1000);
		break;
	case O_SLOW_RANK:
		add_rule(&c->slow, arg, 0, 1000);
		break;
	case O_COMPUTE_US:
		cmd->compute_us = number(arg, 0, 1e7);
		break;
	case O_HOST_US:
		cmd->host_us = number(arg, 0, 1e6);
		break;
	case O_DATA_US:
		c->data_us = number(arg, 0, 1e8);
		break;
	case O_ALPHA_US:
		c->alpha_us = number(arg, 0, 1e6);
		break;
	case O_GBPS:
		c->gbps = number(arg, 1e-3, 1e6);
		break;
	case O_INTRA_GBPS:
		c->intra_gbps = number(arg, 1e-3, 1e6);
		break;
	case O_CLOCK_OFFSET:
		add_rule(&c->offset, arg, -1e15, 1e15);
		break;
	case O_CLOCK_DRIFT:
		add_rule(&c->drift, arg, -1e4, 1e4);
		break;
	case O_STEP_GAP_MS:
		c->step_gap_ms = number(arg, 0, 1e7);
		break;
	case O_QUEUE_DEPTH:
		c->queue_depth = count(arg, 1000000);
		break;
	case O_BIG:
		cmd->big = number(arg, 0.001, 1e7);
		break;
	default:
		set_flag(c, opt);
		break;
	}
}

/* Completes the defaults that depend on other options, and checks the layout. */
static void settle(struct command *cmd)
{
	struct kg_cfg *c = &cmd->cfg;

	c->compute_us = c->host_bound ? 600 : 6000;
	c->host_us = c->host_bound ? 90 : 25;
	if (cmd->compute_us >= 0)
		c->compute_us = cmd->compute_us;
	if (cmd->host_us >= 0)
		c->host_us = cmd->host_us;
	if (!c->hosts)
		c->hosts = (c->ranks + 3) / 4;
	if (!c->tp)
		c->tp = c->ranks % (4 * c->pp) ? 1 : 2;
	c->dp = c->ranks / (c->tp * c->pp);
	if (c->dp * c->tp * c->pp != c->ranks)
		kg_die(KG_EXIT_USAGE, "%d ranks do not divide into tp %d x pp %d", c->ranks, c->tp,
		       c->pp);
	if (c->pp > c->layers)
		kg_die(KG_EXIT_USAGE, "%d stages for %d layers", c->pp, c->layers);
	if (c->chunks > 1 &&
	    (c->pp < 2 || c->microbatches % c->pp || c->layers < c->chunks * c->pp))
		kg_die(KG_EXIT_USAGE, "%d stages with %d parts each: %d microbatches, %d layers",
		       c->pp, c->chunks, c->microbatches, c->layers);
	if (c->hosts > c->ranks)
		kg_die(KG_EXIT_USAGE, "%d hosts for %d ranks", c->hosts, c->ranks);
	if (c->base_time && c->integer_us)
		kg_die(KG_EXIT_USAGE, "--base-time and --integer-us exclude each other");
}

static void parse(struct command *cmd, int argc, char **argv)
{
	static struct option longs[N_OPTION + 1];
	int opt, n = 0;
	bool noise = false;

	for (size_t i = 0; i < N_OPTION; i++) {
		if (!options[i].name)
			continue;
		longs[n].name = options[i].name;
		longs[n].has_arg = options[i].arg ? required_argument : no_argument;
		longs[n++].val = options[i].value;
	}
	while ((opt = getopt_long(argc, argv, "o:z", longs, NULL)) != -1) {
		set_option(cmd, opt, optarg);
		noise = noise || opt == O_NOISE_SEED;
	}
	if (!noise)
		cmd->cfg.noise_seed = cmd->cfg.seed;
	if (cmd->big > 0 && optind < argc)
		cmd->file = argv[optind++];
	if (optind < argc)
		kg_die(KG_EXIT_USAGE, "%s: unexpected argument", argv[optind]);
	if (cmd->big > 0 ? !cmd->file : !cmd->cfg.dir)
		kg_die(KG_EXIT_USAGE, "%s is missing", cmd->big > 0 ? "FILE" : "-o DIR");
	settle(cmd);
}

int main(int argc, char **argv)
{
	static struct command cmd = {
		.cfg = { .ranks = 8,
			 .pp = 1,
			 .chunks = 1,
			 .planted = 1,
			 .batch = 1,
			 .steps = 3,
			 .layers = 4,
			 .microbatches = 1,
			 .queue_depth = 1024,
			 .seed = 1,
			 .jitter = 0.03,
			 .comm_scale = 1,
			 .bytes_scale = 1,
			 .data_us = 1500,
			 .alpha_us = 15,
			 .gbps = 400,
			 .intra_gbps = 800 },
		.compute_us = -1,
		.host_us = -1,
	};
	/* Everything hangs off this until the end of the process; nothing is freed on the way. */
	static struct kg_job job;

	parse(&cmd, argc, argv);
	if (cmd.big > 0) {
		kg_big(&cmd.cfg, cmd.big, cmd.file);
		return 0;
	}
	job.cfg = cmd.cfg;
	if (mkdir(job.cfg.dir, 0777) && errno != EEXIST)
		kg_die(KG_EXIT_IO, "%s: %s", job.cfg.dir, strerror(errno));
	kg_make_job(&job);
	kg_build(&job);
	kg_simulate(&job);
	for (int i = 0; i < job.cfg.ranks; i++)
		kg_write_rank(&job, &job.rank[i]);
	kg_write_truth(&job);
	return 0;
}
