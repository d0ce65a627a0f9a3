/*
 * Jobs: paceline-job(5), the schema; read, set by options, written. Linear.
 */
#include <ctype.h>
#include <math.h>
#include <unistd.h>

#include "core/cmd.h"
#include "core/words.h"
#include "plan/internal.h"
#include "plan/job.h"

#define COUNT_MAX 0x1p40
#define RANKS_MAX 65536

/* ---- schema ---------------------------------------------------------------------------------- */

#define KEY   PL_LANG_KEY
#define BOUND (PL_LANG_KEY | PL_LANG_BOUND)
#define ABOVE PL_LANG_ABOVE
#define BELOW PL_LANG_BELOW
#define ADAM  .only = "adam|adamw"
/* A key of an optimiser, a schedule or a policy, which is a member of struct pl_job. */
#define OPTION(key, kind, more, what, member, ...)                                                 \
	PL_LANG_FIELD(key, kind, BOUND | (more), what, .offset = offsetof(struct pl_job, member),  \
		      __VA_ARGS__)
/* A statement of one value, which is a member of struct pl_job. */
#define ONE(key, kind, more, low, high, member, usual, words, what)                                \
	{                                                                                          \
		PL_LANG_ROW(key, EXECUTION, what,                                                  \
			    PL_LANG_FIELD(key, kind, PL_LANG_NEED | PL_LANG_BOUND | (more), what,  \
					  .min = low, .max = high, .choices = words,               \
					  .value = usual,                                          \
					  .offset = offsetof(struct pl_job, member))),             \
			.once = true                                                               \
	}
#define KIND(key, words, usual)                                                                    \
	PL_LANG_FIELD(#key, CHOICE, PL_LANG_NEED | PL_LANG_BOUND, "kind", .choices = words,        \
		      .value = usual, .offset = offsetof(struct pl_job, key))
/* The same key with another default for some policies. */
#define LOCAL_STEPS(usual, policies)                                                               \
	OPTION("local-steps", INT, 0, "local steps between two commits, or averages", local_steps, \
	       .min = 1, .max = COUNT_MAX, .value = usual, .only = policies)
#define LINK(m)	    .offset = offsetof(struct pl_job_link, m)
#define POLICIES_PS "bsp|ssp|asp|local|fixed-adacomm|adacomm|adsp|adsp++|batchtune|diloco|dylu"
#define PACE(m)	    .offset = offsetof(struct pl_job_pace, m)
#define RANK(key, more, what, ...)                                                                 \
	PL_LANG_FIELD(key, INT, PL_LANG_BOUND | (more), what, .max = RANKS_MAX - 1,                \
		      .choices = "any|all|*", __VA_ARGS__)

static const struct pl_lang_row rows[] = {
	ONE("name", NAME, 0, 0, 0, name, NULL, NULL, "what the job is called"),
	ONE("model", NAME, 0, 0, 0, model, NULL, NULL,
	    "a preset like mlp:784-512-10, or a file of paceline-model(5)"),
	ONE("data", NAME, 0, 0, 0, data, NULL, NULL,
	    "idx:IMAGES,LABELS, csv:FILE, npy:X,Y, tokens:FILE or synthetic:KEY=VALUE,..."),
	ONE("split", REAL, ABOVE, 0, 1, split, "1", NULL,
	    "share of the samples to train on; the others are held out for evaluation"),
	ONE("eval-data", NAME, 0, 0, 0, eval_data, NULL, NULL,
	    "samples to evaluate on, in a file of their own, in place of split"),
	ONE("precision", CHOICE, 0, 0, 0, precision, "fp32", PL_WORDS_JOB_PRECISION("|"),
	    "precision in which layers multiply"),
	ONE("device", NAME, 0, 0, 0, device, "cpu", NULL,
	    "what each rank computes on: cpu, cuda or cuda:N"),
	ONE("batch", INT, 0, 1, 1 << 24, batch, "32", NULL, "samples of a rank and step"),
	ONE("accumulate", INT, 0, 1, 65536, accumulate, "1", NULL,
	    "parts of a batch whose gradients are added and synchronised once"),
	ONE("steps", INT, 0, 0, COUNT_MAX, steps, NULL, NULL,
	    "steps to train; 0: the weights to begin with are evaluated and exported"),
	ONE("epochs", INT, 0, 1, COUNT_MAX, epochs, NULL, NULL,
	    "passes over the samples to train, without steps"),
	ONE("target-loss", REAL, ABOVE, 0, 1e30, target_loss, NULL, NULL,
	    "mean loss of training at which to stop"),
	{ PL_LANG_ROW("patience", EXECUTION, "stop when evaluations do not get better",
		      PL_LANG_FIELD("patience", INT, PL_LANG_NEED | PL_LANG_BOUND,
				    "evaluations in a row that are not better than the best one",
				    .min = 1, .max = COUNT_MAX,
				    .offset = offsetof(struct pl_job, patience)),
		      OPTION("delta", REAL, 0, "what a better one is better by, at least", delta,
			     .max = 1e30, .value = "0")),
	  .once = true },
	ONE("monitor", CHOICE, 0, 0, 0, monitor, "loss", "loss|accuracy",
	    "which number of evaluations says which one is the best"),
	ONE("warmup", INT, 0, 0, COUNT_MAX, warmup, "0", NULL,
	    "steps in which the learning rate rises from 0"),
	ONE("seed", INT, 0, 0, 0x1p63, seed, "1", NULL, "seed of everything random"),
	ONE("ranks", INT, 0, 1, RANKS_MAX, ranks, "1", NULL, "processes"),
	ONE("hosts", COUNTS, 0, 1, RANKS_MAX, hosts, "1", NULL,
	    "hosts that the ranks are on, each with as many; or the ranks of each host"),
	ONE("threads", INT, 0, 1, 1024, threads, "1", NULL, "threads of each rank"),
	{ PL_LANG_ROW(
		  "engine", EXECUTION,
		  "how ranks work together; dp: they sum gradients or weights; ps: servers hold "
		  "the weights, and apply what workers commit",
		  KIND(engine, "dp|ps", "dp"),
		  OPTION("servers", INT, 0, "servers, each with a part of the weights", servers,
			 .min = 1, .max = RANKS_MAX, .value = "1", .only = "ps"),
		  OPTION("group", INT, 0,
			 "ranks that are one worker: they sum their gradients in each step; host: "
			 "those of a host",
			 group, .min = 1, .max = RANKS_MAX, .choices = "host", .value = "1",
			 .only = "ps"),
		  OPTION("overlap", FLAG, 0,
			 "workers go on with steps until the reply to a commit comes, where the "
			 "policy allows it",
			 overlap, .only = "ps")),
	  .once = true },
	{ PL_LANG_ROW(
		  "policy", EXECUTION,
		  "how ranks synchronise; bsp: in each step; local-sgd: weights, after several "
		  "steps of each rank; the others are for servers",
		  KIND(policy,
		       "bsp|local-sgd|ssp|asp|local|fixed-adacomm|adacomm|adsp|adsp++|batchtune|"
		       "diloco|dylu",
		       "bsp"),
		  LOCAL_STEPS("8", "local-sgd|local"), LOCAL_STEPS("40", "fixed-adacomm|adacomm"),
		  LOCAL_STEPS("100", "diloco"), LOCAL_STEPS("50", "dylu"),
		  OPTION("staleness", INT, 0, "steps by which a worker may be ahead of the slowest",
			 staleness, .max = COUNT_MAX, .value = "40", .only = "ssp"),
		  OPTION("commits", INT, 0,
			 "commits of each worker a period; 0: the policy searches", commits,
			 .max = COUNT_MAX, .value = "0", .only = "adsp"),
		  OPTION("period", TIME, 0, "time between two checks; 0: by the slowest worker",
			 period, .max = 3.6e12, .value = "0", .only = "adacomm|adsp|adsp++"),
		  OPTION("epoch", TIME, 0, "time between two searches; 0: by the period", epoch,
			 .max = 3.6e13, .value = "0", .only = "adsp|adsp++"),
		  OPTION("min-workers", INT, 0,
			 "workers without which nobody goes on; 0: as the policy needs them",
			 min_workers, .max = RANKS_MAX, .value = "0", .only = POLICIES_PS)),
	  .once = true },
	ONE("transport", CHOICE, 0, 0, 0, transport, "auto", "auto|shm|tcp|mpi|nccl",
	    "what carries messages"),
	ONE("algorithm", CHOICE, 0, 0, 0, algorithm, "auto", PL_WORDS_COMM_ALGORITHM("|"),
	    "how ranks add up gradients"),
	ONE("meet", NAME, 0, 0, 0, meet, NULL, NULL,
	    "where ranks find each other: tcp:HOST:PORT or dir:FOLDER"),
	ONE("timeout", TIME, 0, 1e6, 3.6e12, timeout_ns, "3s", NULL,
	    "time after which a silent rank counts as dead"),
	ONE("bucket-mb", REAL, ABOVE, 0, 1e6, bucket_mb, "25", NULL,
	    "size of the sets in which gradients travel, in MiB"),
	ONE("checkpoint", NAME, 0, 0, 0, checkpoint, NULL, NULL, "file for the state"),
	ONE("checkpoint-every", INT, 0, 1, COUNT_MAX, checkpoint_every, NULL, NULL,
	    "steps between checkpoints"),
	ONE("checkpoint-keep", INT, 0, 1, 1000000, checkpoint_keep, NULL, NULL,
	    "the last checkpoints, this many, stay as FILE.STEP"),
	ONE("checkpoint-best", NAME, 0, 0, 0, checkpoint_best, NULL, NULL,
	    "file for the state after the best evaluation"),
	ONE("resume", NAME, 0, 0, 0, resume, NULL, NULL, "state to begin with"),
	ONE("eval-every", INT, 0, 1, COUNT_MAX, eval_every, NULL, NULL,
	    "steps between evaluations"),
	{ PL_LANG_ROW(
		  "optimizer", EXECUTION, "how gradients change the weights",
		  KIND(optimizer, "sgd|adam|adamw", "sgd"),
		  OPTION("lr", REAL, BELOW, "learning rate", lr, .max = 1e6, .value = "0.1",
			 .only = "sgd"),
		  OPTION("lr", REAL, BELOW, "learning rate", lr, .max = 1e6, .value = "0.001",
			 ADAM),
		  OPTION("momentum", REAL, BELOW, "share of the last step to keep", momentum,
			 .max = 1, .value = "0", .only = "sgd"),
		  OPTION("nesterov", FLAG, 0, "look ahead along the momentum", nesterov,
			 .value = "no", .only = "sgd"),
		  OPTION("b1", REAL, BELOW, "decay of the first moment", b1, .max = 1,
			 .value = "0.9", ADAM),
		  OPTION("b2", REAL, BELOW, "decay of the second moment", b2, .max = 1,
			 .value = "0.999", ADAM),
		  OPTION("eps", REAL, ABOVE | BELOW, "added to the second moment's root", eps,
			 .max = 1, .value = "1e-8", ADAM),
		  OPTION("decay", REAL, BELOW,
			 "decay of weights, which with adamw does not pass through the moments",
			 decay, .max = 1e6, .value = "0", .only = "sgd|adam"),
		  OPTION("decay", REAL, BELOW, "decay of weights", decay, .max = 1e6,
			 .value = "0.01", .only = "adamw"),
		  OPTION("clip", REAL, BELOW, "greatest norm of all gradients together; 0: any",
			 clip, .max = 1e30, .value = "0"),
		  OPTION("decay-all", FLAG, 0, "biases and normalisation decay, too", decay_all,
			 .value = "no"),
		  OPTION("no-decay", GLOB, 0, "names of parameters that do not decay", no_decay)),
	  .once = true },
	{ PL_LANG_ROW("schedule", EXECUTION, "how the learning rate changes",
		      KIND(schedule, "constant|step|cosine|linear", "constant"),
		      OPTION("every", INT, ABOVE | BELOW,
			     "steps after which the rate is multiplied by gamma", every,
			     .max = COUNT_MAX, .value = "0", .only = "step"),
		      OPTION("gamma", REAL, ABOVE | BELOW, "factor of the rate", gamma, .max = 1,
			     .value = "0.1", .only = "step"),
		      OPTION("steps", INT, ABOVE | BELOW,
			     "steps until the rate is 0; those of the job if not given",
			     schedule_steps, .max = COUNT_MAX, .value = "0",
			     .only = "cosine|linear")),
	  .once = true },
	{ PL_LANG_ROW("link", EXECUTION, "make messages between ranks as slow as over this link",
		      PL_LANG_FIELD("rate", RATE, BOUND, "bandwidth", LINK(bytes_per_ns)),
		      PL_LANG_FIELD("latency", TIME, BOUND, "time of each message", .max = 3.6e12,
				    LINK(latency_ns)),
		      RANK("from", KEY, "rank that sends", .value = "any", LINK(from)),
		      RANK("to", KEY, "rank that receives", .value = "any", LINK(to)),
		      PL_LANG_FIELD("shared", FLAG, BOUND,
				    "a rank has one link for all that it sends", .value = "no",
				    LINK(shared))),
	  .commas = true },
	{ PL_LANG_ROW(
		  "pace", EXECUTION, "make the computation of a rank slower",
		  RANK("rank", PL_LANG_NEED, "rank; RANK:MS and RANK:xF are short for one key",
		       PACE(rank)),
		  PL_LANG_FIELD("ms", REAL, BOUND, "milliseconds that a step takes more",
				.max = 3.6e6, .value = "0", PACE(ms)),
		  PL_LANG_FIELD("factor", REAL, BOUND, "times as long that a step takes", .min = 1,
				.max = 1000, .value = "1", PACE(factor)),
		  PL_LANG_FIELD("speed", REAL, BOUND,
				"steps per second at most: a step that ends early waits; 0: any",
				.max = 1e6, .value = "0", PACE(speed))),
	  .commas = true },
};
const struct pl_lang_schema pl_job_schema = {
	.name = "job", .version = 1, .row = rows, .n_rows = PL_LEN(rows)
};

static const struct pl_lang_row *row_of(const char *name)
{
	return pl_lang_row(&pl_job_schema, name);
}

void pl_job_init(struct pl_job *j)
{
	memset(j, 0, sizeof(*j));
	for (size_t i = 0; i < PL_LEN(rows); i++)
		if (rows[i].once) /* the others are bound to links and paces */
			pl_lang_defaults(&rows[i], NULL, j);
	j->steps = -1;
}

void pl_job_fini(struct pl_job *j)
{
	pl_arena_fini(&j->arena);
	pl_free(j->link);
	pl_free(j->pace);
	memset(j, 0, sizeof(*j));
}

/* Does the statement have options behind its kind, like "optimizer adam lr=0.001"? */
static bool has_options(const struct pl_lang_row *row)
{
	return row->once && row->field[1].name;
}

/* ---- statements ------------------------------------------------------------------------------ */

static int add_link(struct pl_job *j, const struct pl_lang_reader *r, struct pl_err *err)
{
	struct pl_job_link l = { 0 };

	pl_lang_defaults(r->st.row, NULL, &l);
	PL_CHECK(pl_lang_bind(&r->st, &l, &j->arena, err));
	if (!pl_lang_get(&r->st, "rate") && !pl_lang_get(&r->st, "latency"))
		return pl_lang_fail(r, r->word[0].column, err,
				    "a link needs a rate or a latency; write: link rate=1Gbit/s "
				    "latency=200us from=0 to=1");
	if (l.from >= 0 && l.from == l.to)
		return pl_lang_fail(r, pl_lang_get(&r->st, "to")->column, err,
				    "a link from rank %lld to itself", (long long)l.from);
	return pl_append(&j->link, &j->n_links, &j->cap_links, &l, sizeof(l), err);
}

static int add_pace(struct pl_job *j, const struct pl_lang_reader *r, struct pl_err *err)
{
	struct pl_job_pace p = { 0 };

	pl_lang_defaults(r->st.row, NULL, &p);
	PL_CHECK(pl_lang_bind(&r->st, &p, &j->arena, err));
	if (!pl_lang_get(&r->st, "ms") && !pl_lang_get(&r->st, "factor") &&
	    !pl_lang_get(&r->st, "speed"))
		return pl_lang_fail(r, r->word[0].column, err,
				    "the pace is missing; write: pace RANK ms=5, pace RANK "
				    "factor=1.5, or pace RANK speed=2");
	return pl_append(&j->pace, &j->n_paces, &j->cap_paces, &p, sizeof(p), err);
}

/* "1:5" to "1 ms=5", and "1:x2" to "1 factor=2". */
static int expand_pace(struct pl_job *j, struct pl_lang_reader *r, struct pl_err *err)
{
	char *colon = r->n > 1 ? strchr(r->word[1].s, ':') : NULL;
	bool factor = colon && colon[1] == 'x' && colon[2];
	char text[128];
	const char *word;

	if (strcmp(r->word[0].s, "pace") != 0 || !colon)
		return 0;
	*colon = '\0';
	snprintf(text, sizeof(text), "%s=%s", factor ? "factor" : "ms", colon + 1 + factor);
	PL_CHECK(pl_dup(&j->arena, &word, text, err));
	return pl_lang_add_word(r, (char *)word, false,
				r->word[1].column + (uint32_t)(colon - r->word[1].s) + 1, err);
}

/* Checks that the schema cannot express: names of devices, presets of models. */
static int check_value(const struct pl_lang_reader *r, struct pl_err *err)
{
	const struct pl_lang_value *v = &r->st.value[0];
	struct pl_err why = { 0 };
	struct pl_model m;
	bool cuda;
	int number, rc = 0;

	if (!strcmp(r->st.row->name, "device") && !pl_job_device(v->s, &cuda, &number))
		return pl_lang_fail(r, v->column, err,
				    "device must be one of cpu|cuda|cuda:N, not \"%.100s\"", v->s);
	if (!strcmp(r->st.row->name, "model") && pl_model_is_preset(v->s)) {
		rc = pl_model_preset(v->s, &m, &why);
		pl_model_fini(&m);
	}
	if (rc == PL_EUSAGE)
		return pl_lang_fail(r, v->column, err, "%s", why.msg);
	return rc < 0 ? pl_fail(err, rc, "%s", why.msg) : 0;
}

static int statement(struct pl_job *j, struct pl_lang_reader *r, struct pl_err *err)
{
	const struct pl_lang_statement *st = &r->st;

	if (!strcmp(st->row->name, "link"))
		return add_link(j, r, err);
	if (!strcmp(st->row->name, "pace"))
		return add_pace(j, r, err);
	PL_CHECK(check_value(r, err));
	if (!strcmp(st->row->name, "data")) {
		j->data_line = r->name ? r->line : 0;
		j->data_column = st->value[0].column;
	}
	if (!strcmp(st->row->name, "eval-data")) {
		j->eval_line = r->name ? r->line : 0;
		j->eval_column = st->value[0].column;
	}
	if (!strcmp(st->row->name, "hosts")) {
		j->hosts_line = r->name ? r->line : 0;
		j->hosts_column = st->value[0].column;
	}
	if (!strcmp(st->row->name, "optimizer"))
		j->no_decay = NULL; /* it has no default */
	if (has_options(st->row))   /* they take the place of those that were there */
		pl_lang_defaults(st->row, st->value[0].s, j);
	PL_CHECK(pl_lang_bind(st, j, &j->arena, err));
	if (!strcmp(st->row->name, "ranks"))
		j->ranks_said = j->ranks;
	return 0;
}

/* Reads one statement and carries it out. 0: the end. */
static int next(struct pl_job *j, struct pl_lang_reader *r, struct pl_err *err)
{
	int rc = pl_lang_words(r, err);

	if (rc <= 0)
		return rc;
	PL_TRY(expand_pace(j, r, err));
	PL_TRY(pl_lang_parse(r, err));
	PL_TRY(statement(j, r, err));
	j->line = r->line;
	rc = 1;
out:
	return rc;
}

int pl_job_read(struct pl_in *in, const char *name, struct pl_job *j, struct pl_err *err)
{
	struct pl_lang_reader r;
	int rc;

	pl_job_init(j);
	rc = pl_lang_open(&r, &pl_job_schema, in, name, err);
	while (rc >= 0 && (rc = next(j, &r, err)) > 0)
		;
	pl_lang_close(&r);
	if (rc < 0)
		pl_job_fini(j);
	return rc;
}

bool pl_job_probe(const uint8_t *p, size_t n)
{
	char word[32];
	size_t at = 0, end;

	for (;;) { /* blanks, and lines of comments */
		while (at < n && strchr(" \t\r\n", p[at]) && p[at])
			at++;
		if (at == n || p[at] != '#')
			break;
		while (at < n && p[at] != '\n')
			at++;
	}
	for (end = at; end < n && end - at < sizeof(word) && (p[end] == '-' || isalpha(p[end]));)
		end++;
	if (end == n || end - at >= sizeof(word) || (p[end] != ' ' && p[end] != '\t'))
		return false;
	memcpy(word, p + at, end - at);
	word[end - at] = '\0';
	return !strcmp(word, "paceline-job") || pl_lang_row(&pl_job_schema, word);
}

int pl_job_model(const struct pl_job *j, const char *path, struct pl_model *m, struct pl_err *err)
{
	const char *slash = strrchr(path, '/'), *model = j->model;
	char in_folder[1024];

	snprintf(in_folder, sizeof(in_folder), "%.*s%s", slash ? (int)(slash - path + 1) : 0, path,
		 model);
	if (slash && !pl_model_is_preset(model) && access(model, R_OK) && !access(in_folder, R_OK))
		model = in_folder;
	return pl_model_parse(model, m, err);
}

int pl_job_set(struct pl_job *j, const char *statement, struct pl_err *err)
{
	struct pl_lang_reader r = { 0 };
	struct pl_err why = { 0 };
	char *copy, *equal;
	int rc;

	if (strchr(statement, '\n'))
		return pl_fail(err, PL_EUSAGE, "one statement, on one line");
	PL_CHECK(pl_dup(NULL, &copy, statement, err));
	/* "batch=128": the first "=" in place of the blank behind the name */
	equal = copy + strcspn(copy, "= \t");
	if (*equal == '=')
		*equal = ' ';
	rc = pl_lang_open_text(&r, &pl_job_schema, copy, &why);
	if (rc >= 0)
		rc = next(j, &r, &why);
	if (rc == 0)
		rc = pl_fail(&why, PL_EUSAGE, "there is nothing in it");
	if (rc < 0)
		rc = pl_fail(err, rc == PL_EDATA ? PL_EUSAGE : rc, "%s", why.msg);
	pl_lang_close(&r);
	pl_free(copy);
	return rc < 0 ? rc : 0;
}

#define SPEEDS_MAX 1024

int pl_job_set_speeds(struct pl_job *j, const char *speeds, struct pl_err *err)
{
	double *v;
	size_t n;
	int rc = pl_alloc(&v, SPEEDS_MAX, sizeof(*v), err);

	if (rc < 0)
		return rc;
	rc = pl_parse_reals(speeds, true, v, SPEEDS_MAX, &n, err);
	if (rc < 0)
		pl_wrap(err, "--speeds");
	else
		j->ranks = j->ranks_said = (int64_t)n;
	if (rc >= 0)
		j->n_paces = 0; /* they stand in place of these */
	for (size_t i = 0; rc >= 0 && i < n; i++) {
		char statement[80];

		snprintf(statement, sizeof(statement), "pace %zu speed=%.17g", i, v[i]);
		rc = pl_job_set(j, statement, err);
	}
	pl_free(v);
	return rc;
}

int pl_job_update_numbers(const struct pl_job *j)
{
	return strcmp(j->optimizer, "sgd") != 0 ? 7 : j->momentum > 0 ? 5 : 3;
}

/* ---- writing --------------------------------------------------------------------------------- */

int pl_job_write(const struct pl_job *j, struct pl_out *out, struct pl_err *err)
{
	/* no link or pace has these values: all keys are written, ends of a link unless "any" */
	const struct pl_job_link link = { .from = -1, .to = -1, .latency_ns = -1 };
	const struct pl_job_pace pace = { .rank = -2, .ms = -1 };
	const struct pl_lang_schema *s = &pl_job_schema;
	struct pl_lang_statement st = { 0 };
	struct pl_writer w;
	struct pl_job usual;

	pl_job_init(&usual);
	pl_write_init(&w, out, 0);
	pl_write_format(&w, "paceline-job %d\n", s->version);
	pl_lang_defaults(row_of("optimizer"), j->optimizer, &usual);
	for (size_t i = 0; rows[i].once; i++)
		pl_lang_write_struct(&w, &st, s, &rows[i], j, &usual);
	for (size_t i = 0; i < j->n_links; i++)
		pl_lang_write_struct(&w, &st, s, row_of("link"), &j->link[i], &link);
	for (size_t i = 0; i < j->n_paces; i++)
		pl_lang_write_struct(&w, &st, s, row_of("pace"), &j->pace[i], &pace);
	pl_lang_end(&st);
	pl_job_fini(&usual);
	return pl_write_end(&w, err);
}
