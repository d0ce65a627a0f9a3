/* Jobs: text there and back, defaults, options, errors with their lines, checks. */
#include <math.h>
#include <stdlib.h>

#include "plan/job.h"
#include "tap.h"

static struct pl_err err;

static int read_str(const char *s, struct pl_job *j)
{
	struct pl_in *in;
	int rc;

	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("test", s, strlen(s), &err);
	rc = pl_job_read(in, "test", j, &err);
	pl_in_close(in);
	return rc;
}

static const char *written(const struct pl_job *j, struct pl_buf *b)
{
	struct pl_out *out;

	memset(&err, 0, sizeof(err));
	memset(b, 0, sizeof(*b));
	out = pl_out_open_buf(b, &err);
	if (pl_job_write(j, out, &err) < 0 || pl_out_close(out, &err) < 0 ||
	    pl_buf_put(b, "", 1, &err) < 0)
		abort();
	return (const char *)b->p;
}

#define ALL                                                                                        \
	"paceline-job 1\n"                                                                         \
	"name \"a job\"\n"                                                                         \
	"model cnn:1x28x28\n"                                                                      \
	"data idx:images.gz,labels.gz\n"                                                           \
	"split 0.8\n"                                                                              \
	"precision bf16\n"                                                                         \
	"batch 64\n"                                                                               \
	"accumulate 2\n"                                                                           \
	"steps 500\n"                                                                              \
	"epochs 3\n"                                                                               \
	"target-loss 0.1\n"                                                                        \
	"patience 5 delta=0.01\n"                                                                  \
	"monitor accuracy\n"                                                                       \
	"warmup 10\n"                                                                              \
	"seed 9223372036854775807\n"                                                               \
	"ranks 4\n"                                                                                \
	"hosts 3,1\n"                                                                              \
	"threads 2\n"                                                                              \
	"transport tcp\n"                                                                          \
	"algorithm halving-doubling\n"                                                             \
	"meet tcp:127.0.0.1:4000\n"                                                                \
	"timeout 1500000000ns\n"                                                                   \
	"bucket-mb 1.5\n"                                                                          \
	"checkpoint \"my run.safetensors\"\n"                                                      \
	"checkpoint-every 100\n"                                                                   \
	"checkpoint-keep 3\n"                                                                      \
	"checkpoint-best best.st\n"                                                                \
	"resume old\n"                                                                             \
	"eval-every 50\n"                                                                          \
	"optimizer sgd lr=0.2 momentum=0.9 nesterov clip=1 decay-all no-decay=wte.*|wpe.*\n"       \
	"schedule cosine steps=400\n"                                                              \
	"link rate=0.125GB/s latency=200000ns\n"                                                   \
	"link rate=0.0125GB/s latency=0ns from=0 to=3\n"                                           \
	"pace any ms=0.5 factor=1\n"                                                               \
	"pace 3 ms=0 factor=1.5\n"

static void text(void)
{
	struct pl_job j, k;
	struct pl_buf b, c;

	is_i64(read_str(ALL, &j), 0, "read");
	is_str(written(&j, &b), ALL, "every statement is written as it was");
	is_i64(read_str((char *)b.p, &k), 0, "what is written is read");
	is_str(written(&k, &c), ALL, "and is the same");
	is_str(j.name, "a job", "a quoted name");
	ok(j.batch == 64 && j.split == 0.8 && j.timeout_ns == 1500000000 && j.seed == INT64_MAX,
	   "values");
	ok(j.n_links == 2 && j.link[0].from == -1 && j.link[1].to == 3 &&
		   j.link[1].bytes_per_ns == 0.0125 && j.link[0].latency_ns == 200000,
	   "links");
	ok(j.n_paces == 2 && j.pace[0].rank == -1 && j.pace[0].ms == 0.5 && j.pace[1].factor == 1.5,
	   "paces");
	ok(j.lr == 0.2 && j.nesterov && j.schedule_steps == 400 && j.b1 == 0.9,
	   "numbers of the optimiser and the schedule");
	is_i64(pl_job_check(&j, &err), 0, "and it can run");
	is_i64(j.line, 35, "its last line");
	ok(j.patience == 5 && j.delta == 0.01 && j.checkpoint_keep == 3 && j.decay_all &&
		   !strcmp(j.no_decay, "wte.*|wpe.*") && !strcmp(j.monitor, "accuracy"),
	   "evaluations, checkpoints, decay");
	pl_buf_fini(&b);
	pl_buf_fini(&c);
	pl_job_fini(&j);
	pl_job_fini(&k);
}

static void defaults(void)
{
	struct pl_job j;
	struct pl_buf b;

	is_i64(read_str("# nothing\n", &j), 0, "an empty job");
	is_str(written(&j, &b), "paceline-job 1\n", "says nothing");
	ok(j.split == 1 && j.batch == 32 && j.accumulate == 1 && j.ranks == 1 &&
		   !strcmp(j.hosts, "1") && j.seed == 1 && j.threads == 1 && j.bucket_mb == 25 &&
		   j.timeout_ns == 3000000000 && j.steps == -1 && !j.epochs && !j.model,
	   "defaults");
	is_str(j.transport, "auto", "transport");
	is_str(j.algorithm, "auto", "algorithm");
	is_str(j.policy, "bsp", "policy");
	is_str(j.precision, "fp32", "precision");
	is_str(j.device, "cpu", "device");
	ok(!strcmp(j.monitor, "loss") && !j.patience && !j.eval_data && !j.checkpoint_keep &&
		   !j.checkpoint_best && !j.decay_all && !j.no_decay,
	   "nothing is judged, one checkpoint, biases do not decay");
	ok(!strcmp(j.optimizer, "sgd") && j.lr == 0.1, "sgd");
	ok(j.decay == 0, "its numbers");
	pl_buf_fini(&b);
	pl_job_fini(&j);
	is_i64(read_str("optimizer adamw\n", &j), 0, "adamw");
	ok(j.lr == 0.001 && j.decay == 0.01 && j.b2 == 0.999 && j.eps == 1e-8, "its defaults");
	pl_job_fini(&j);
}

static int set(struct pl_job *j, const char *s)
{
	memset(&err, 0, sizeof(err));
	return pl_job_set(j, s, &err);
}

static void options(void)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "batch=0", "batch must be at least 1 and at most 16777216, not 0" },
		{ "batch", "batch is missing; write: batch BATCH" },
		{ "batch=1 2", "batch: \"2\" is too much here" },
		{ "bath=1", "there is no statement \"bath\"; did you mean batch?" },
		{ "", "there is nothing in it" },
		{ "  ", "there is nothing in it" },
		{ "optimizer sgd b1=0.9",
		  "optimizer: sgd has no \"b1\"; it has lr, momentum, nesterov, decay, clip" },
		{ "link from=0", "a link needs a rate or a latency" },
		{ "batch=1\nbatch=2", "one statement, on one line" },
		{ "paceline-job 1", "there is no statement" },
	};
	struct pl_job j;
	struct pl_buf b, c;

	if (read_str(ALL, &j) < 0)
		abort();
	is_i64(set(&j, "batch=128"), 0, "key=value");
	is_i64(set(&j, "split 0.5"), 0, "key value");
	is_i64(set(&j, "data=csv:a.csv,label=b"), 0, "a value with an equals sign");
	is_i64(set(&j, "optimizer=adam lr=0.01 b1=0.8"), 0, "another optimiser");
	ok(!j.decay_all && !j.no_decay, "... without what the first one did not let decay");
	is_i64(set(&j, "link=rate=1Gbit,latency=1ms,from=1,to=any"), 0, "a link with commas");
	is_i64(set(&j, "pace 2:7.5"), 0, "a pace in short");
	ok(j.batch == 128 && j.split == 0.5 && !strcmp(j.data, "csv:a.csv,label=b"), "are set");
	ok(j.lr == 0.01 && j.momentum == 0 && j.b1 == 0.8 && !j.nesterov && j.clip == 0 &&
		   j.schedule_steps == 400,
	   "options of the optimiser are replaced, those of the schedule are not");
	ok(j.n_links == 3 && j.link[2].from == 1 && j.link[2].to == -1 &&
		   j.link[2].bytes_per_ns == 0.125,
	   "links are added");
	ok(j.n_paces == 3 && j.pace[2].rank == 2 && j.pace[2].ms == 7.5 && j.pace[2].factor == 1,
	   "paces are added");
	written(&j, &b);
	for (size_t i = 0; i < PL_LEN(bad); i++) {
		int rc = set(&j, bad[i].text);

		if (!ok(rc == PL_EUSAGE && strstr(err.msg, bad[i].says) == err.msg, "refused: %s",
			bad[i].says))
			printf("# %d %s\n", rc, err.msg);
	}
	is_str(written(&j, &c), (char *)b.p, "what was refused changed nothing");
	pl_buf_fini(&b);
	pl_buf_fini(&c);
	pl_job_fini(&j);
}

static void errors(void)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "paceline-job 2\n", "test: line 1, column 14: version 2 is newer" },
		{ "batch 1\npaceline-job 1\n",
		  "line 2, column 1: there is no statement \"paceline-job\"" },
		{ "batch 1\nbatch 1\n", "line 2, column 1: batch is there twice" },
		{ "\"batch\" 1\n", "there is no statement" },
		{ "batch 1.5\n", "batch must be a whole number" },
		{ "batch 16777217\n", "and at most 16777216, not 16777217" },
		{ "split 0\n", "split must be above 0 and at most 1" },
		{ "split 1.01\n", "split must be above 0" },
		{ "split nan\n", "split must be a decimal number" },
		{ "model\n", "model is missing" },
		{ "model \"\"\n", "model is empty" },
		{ "batch 1\nmodel gpt:layers=2,heads=3,width=32,context=8,vocab=9\n",
		  "test: line 2, column 7: gpt:layers=2,heads=3,width=32,context=8,vocab=9: width "
		  "32 is no "
		  "multiple of 3 heads; write width=33 or heads=2" },
		{ "model a b\n", "\"b\" is too much here" },
		{ "transport pigeon\n",
		  "transport must be one of auto|shm|tcp|mpi|nccl, not \"pigeon\"" },
		{ "precision fp16\n", "precision must be one of fp32|tf32|bf16" },
		{ "policy bps\n", "policy must be one of bsp|local-sgd|ssp|asp|local|" },
		{ "timeout 3\n",
		  "timeout must be a time of at most an hour, like 200us or 3s, not \"3\"" },
		{ "timeout 1us\n", "timeout must be at least 1ms and at most 3600s, not 1us" },
		{ "optimizer\n", "optimizer is missing; write: optimizer sgd|adam|adamw [lr=X]" },
		{ "optimizer adagrad\n", "optimizer must be one of sgd|adam|adamw" },
		{ "optimizer cosine\n", "optimizer must be one of sgd|adam|adamw" },
		{ "schedule exp\n", "must be one of constant|step|cosine|linear" },
		{ "schedule constant lr=1\n", "constant has no \"lr\"; it has none" },
		{ "optimizer sgd lr\n", "the value of lr is missing; write: lr=..." },
		{ "optimizer sgd lr=\n", "lr must be a decimal number, not \"\"" },
		{ "optimizer sgd lr=1e6\n", "lr must be at least 0 and below 1e+06" },
		{ "steps -1\n", "steps must be at least 0" },
		{ "patience 0\n", "patience must be at least 1" },
		{ "monitor f1\n", "monitor must be one of loss|accuracy" },
		{ "optimizer sgd lr=fast\n", "not \"fast\"" },
		{ "optimizer adam lr=-1\n", "lr must be at least 0" },
		{ "optimizer adam b1=1\n", "b1 must be at least 0 and below 1" },
		{ "optimizer sgd lr=1 lr=1\n", "lr is there twice" },
		{ "optimizer sgd momentum=1\n", "momentum must be at least 0 and below 1" },
		{ "optimizer sgd nesterov=2\n", "nesterov must be yes, no, 1 or 0" },
		{ "schedule step every=1.5\n", "every must be a whole number" },
		{ "link rate=1Gbit from=-1\n",
		  "line 1, column 17: link: from must be at least 0 and at most" },
		{ "link rate=fast\n", "link: rate must be a rate of 1 B/s to 1 PB/s, like 10Gbit/s "
				      "or 2GB/s, not \"fast\"" },
		{ "link rate=1GB latency=2h\n", "latency must be a time of at most an hour" },
		{ "link speed=1\n",
		  "link has no \"speed\"; it has rate, latency, from, to, shared" },
		{ "link 1Gbit\n", "\"1Gbit\" is too much here" },
		{ "link rate=1GB from=1 to=1\n", "a link from rank 1 to itself" },
		{ "link rate=1GB from=x\n", "from must be a whole number or any|all|*, not \"x\"" },
		{ "link rate=1GB from=70000\n", "from must be at least 0 and at most 65535" },
		{ "pace\n", "rank is missing; write: pace RANK [ms=X] [factor=X]" },
		{ "pace 1\n", "the pace is missing" },
		{ "pace 1:x\n", "ms must be a decimal number, not \"x\"" },
		{ "pace 1 factor=0.5\n", "factor must be at least 1 and at most 1000, not 0.5" },
		{ "hosts 0\n", "line 1, column 7: hosts must each be at least 1 and at most "
			       "65536, not 0" },
		{ "ranks 4\nhosts 3,0,1\n",
		  "line 2, column 9: hosts must each be at least 1 and at most 65536, not 0" },
		{ "hosts 1,99999999999999999999,2\n",
		  "column 9: hosts must each be at least 1 and at most 65536, not "
		  "99999999999999999999" },
		{ "hosts 3,,1\n",
		  "column 9: hosts must be a whole number, or several, like 3,1, not \"3,,1\"" },
		{ "hosts 3,1,\n", "hosts must be a whole number, or several, like 3,1" },
		{ "hosts 3;1\n", "\";\" has no meaning here" },
		{ "hosts 3, 1\n",
		  "hosts must be a whole number, or several, like 3,1, not \"3,\"" },
		{ "hosts 3,x\n", "column 9: hosts must be a whole number, or several" },
		{ "hosts -1\n", "column 7: hosts must be a whole number, or several" },
		{ "hosts two\n", "column 7: hosts must be a whole number, or several" },
		{ "pace 1 rate=2\n", "pace has no \"rate\"; it has ms, factor, speed" },
	};
	struct pl_job j;

	for (size_t i = 0; i < PL_LEN(bad); i++) {
		int rc = read_str(bad[i].text, &j);

		if (!ok(rc == PL_EDATA && strstr(err.msg, bad[i].says), "refused: %s", bad[i].says))
			printf("# %d %s\n", rc, err.msg);
		ok(!j.pace && !j.link && !j.arena.head, "and nothing is left");
	}
}

#define DATA "model cnn\ndata synthetic:\n"

static void checks(void)
{
	static const struct {
		const char *text, *says;
	} bad[] = {
		{ "steps 1\n", "the job has no model" },
		{ "model cnn\nsteps 1\n", "the job has no data" },
		{ DATA, "the job never ends" },
		{ DATA "steps 1\neval-every 1\n", "nothing is held out" },
		{ DATA "steps 1\ncheckpoint-every 1\n", "without checkpoint FILE" },
		{ DATA "steps 1\nranks 4\nhosts 3\n",
		  "line 5, column 7: 3 hosts with 4 ranks in all cannot have equally many" },
		{ DATA "hosts 3,1\nranks 3\nsteps 1\n",
		  "line 3, column 7: hosts 3,1 have 4 ranks, and the job 3; change hosts or "
		  "ranks" },
		{ DATA "hosts=2,1\nranks 4\nsteps 1\n", "line 3, column 7: hosts 2,1 have 3" },
		{ DATA "steps 1\nranks 2\nhosts 4\n", "4 hosts with 2 ranks" },
		{ DATA "steps 1\nlink rate=1GB to=1\n", "a link from or to rank 1" },
		{ DATA "steps 1\nranks 2\npace 2:1\n", "a pace of rank 2" },
		{ DATA "steps 1\noptimizer sgd nesterov\n", "nesterov needs a momentum" },
		{ DATA "steps 1\nschedule step\n", "schedule step needs every=STEPS" },
		{ DATA "target-loss 1\nschedule cosine\n", "schedule cosine needs to know" },
		{ DATA "steps 5\nwarmup 6\n", "warmup of 6 steps in a job of 5" },
		{ DATA "steps 5\neval-data npy:a,b\nsplit 0.8\n", "leave one" },
		{ DATA "steps 5\neval-data synthetic:dims=4\n", "once more" },
		{ DATA "steps 5\npatience 3\n", "patience judges evaluations" },
		{ DATA "steps 5\nsplit 0.9\ncheckpoint-best b\n", "checkpoint-best judges" },
		{ DATA "steps 5\ncheckpoint a\ncheckpoint-keep 2\n", "one checkpoint, at the end" },
		{ DATA "steps 5\nsplit 0.9\neval-every 1\ncheckpoint a\ncheckpoint-best a\n",
		  "would replace the best" },
	};
	static const char *const good[] = { DATA "steps 1\n",
					    DATA "epochs 1\n",
					    DATA "steps 1\nranks 4\nhosts 1,3\n",
					    DATA "target-loss 0.5\n",
					    DATA "steps 0\nwarmup 3\nschedule cosine\n",
					    DATA "eval-data npy:a,b\neval-every 1\npatience 1\n",
					    DATA "target-loss 1\nschedule cosine steps=5\n" };
	struct pl_job j;

	for (size_t i = 0; i < PL_LEN(bad); i++) {
		int rc = read_str(bad[i].text, &j);

		is_i64(rc, 0, "it can be read");
		rc = pl_job_check(&j, &err);
		if (!ok(rc == PL_EDATA && strstr(err.msg, bad[i].says), "but not: %s", bad[i].says))
			printf("# %d %s\n", rc, err.msg);
		pl_job_fini(&j);
	}
	for (size_t i = 0; i < PL_LEN(good); i++) {
		ok(read_str(good[i], &j) == 0 && pl_job_check(&j, &err) == 0, "can run: %zu", i);
		pl_job_fini(&j);
	}
}

/* The jobs of samples/ can run. */
static void samples(void)
{
	static const char *const names[] = { "patterns", "chain" };
	const char *src = getenv("SRC");

	for (size_t i = 0; i < PL_LEN(names); i++) {
		char path[1024];
		struct pl_model m;
		struct pl_job j;
		struct pl_in *in;
		int rc = -1;

		snprintf(path, sizeof(path), "%s/samples/%s.job", src ? src : ".", names[i]);
		memset(&err, 0, sizeof(err));
		in = pl_in_open(path, &err);
		if (in)
			rc = pl_job_read(in, path, &j, &err);
		pl_in_close(in);
		if (!ok(rc == 0 && pl_job_check(&j, &err) == 0, "samples/%s.job", names[i])) {
			printf("# %s\n", err.msg);
			continue;
		}
		is_i64(pl_model_parse(j.model, &m, &err), 0, "its model");
		is_str(j.name, names[i], "its name");
		pl_model_fini(&m);
		pl_job_fini(&j);
	}
}

static void probe(void)
{
	static const struct {
		const char *text;
		bool job;
	} cases[] = {
		{ "paceline-job 1\nmodel x\n", true },
		{ "# mine\n\n  model mlp:2-2\n", true },
		{ "batch\t64\n", true },
		{ "layer,forward_ns\nbatch 64\n", false },
		{ "batches 64\n", false },
		{ "model", false },
		{ "# model x\n", false },
		{ "", false },
		{ "a-word-that-is-much-longer-than-any-statement x\n", false },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++)
		ok(pl_job_probe((const uint8_t *)cases[i].text, strlen(cases[i].text)) ==
			   cases[i].job,
		   "case %zu is %s", i, cases[i].job ? "a job" : "none");
}

int main(void)
{
	text();
	probe();
	defaults();
	options();
	errors();
	checks();
	samples();
	return done_testing();
}
