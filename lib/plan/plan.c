/*
 * Plans in memory: the schema of paceline-plan(5), adding, checking.
 *
 * Checks are linear but for names that must differ, which are sorted.
 */
#include <math.h>
#include <stdlib.h>

#include "core/words.h"
#include "plan/internal.h"

/* ---- schema ---------------------------------------------------------------------------------- */

#define NEED   (PL_LANG_NEED | PL_LANG_BOUND)
#define KEY    (PL_LANG_KEY | PL_LANG_BOUND)
#define DIFFER PL_LANG_DIFFER
#define COMMAS PL_LANG_COMMAS
#define RW(m)  .offset = offsetof(struct pl_rewrite, m)
/* Fields that several rewrites have: names, a whole number, a factor, a link. */
#define NAMES(key, least, more, what)                                                              \
	PL_LANG_FIELD(key, NAME, PL_LANG_LIST | (more), what, .min = least)
#define COUNT(key, most, what) PL_LANG_FIELD(key, INT, NEED, what, .min = 2, .max = most, RW(k))
#define FACTOR(key, more, most, what)                                                              \
	PL_LANG_FIELD(key, REAL, KEY | PL_LANG_ABOVE | (more), what, .max = most, .word = "x",     \
		      RW(x))
#define LINK                                                                                       \
	PL_LANG_FIELD("link", NAME, PL_LANG_BOUND, "link of the topology; all if not given",       \
		      RW(word))
/* Which operations, the factor and the time of a change of durations. */
#define PICK(id, word, type, more, what)                                                           \
	PL_LANG_FIELD(word, type, KEY | (more), what, RW(select.key[PL_SEL_##id]),                 \
		      .min = PL_SEL_##id == PL_SEL_STEP ? -0x1p62 : 0),
#define SELECTOR                                                                                   \
	PL_PLAN_SELECTOR(PICK) PL_LANG_FIELD("all", FLAG, KEY, "all operations", RW(select.all))
#define BY(least, more, what)                                                                      \
	PL_LANG_FIELD("by", REAL, KEY | (more), what, .min = least, .max = 1e6, .word = "by",      \
		      .also = "factor|x", RW(x))
#define TO(more)                                                                                   \
	PL_LANG_FIELD("to", TIME, KEY | PL_LANG_LONG | (more), "time", .word = "to", RW(to))
/* A statement of one number of the plan itself. */
#define NUMBER(key, least, member, what)                                                           \
	PL_LANG_ROW(key, EXECUTION, what,                                                          \
		    PL_LANG_FIELD(key, INT, NEED, what, .min = least, .max = 0x1p63,               \
				  .offset = offsetof(struct pl_plan, member))),                    \
		.once = true

/* What a rewrite is worth. */
static const struct pl_lang_field worth[] = {
	PL_LANG_FIELD("alone", INT, KEY, "what it saves when nothing else is changed, in ns",
		      .word = "alone", RW(alone_ns)),
	PL_LANG_FIELD("in-plan", INT, KEY, "what leaving it out of the plan would cost, in ns",
		      .word = "in-plan", RW(in_plan_ns)),
	{ .name = NULL },
};

/* The rewrites stand first, by enum pl_rw. */
static const struct pl_lang_row rows[] = {
	[PL_RW_FUSE_TENSORS] = { PL_LANG_ROW("fuse-tensors", STRUCTURE,
					     "synchronise tensors as one",
					     NAMES("tensors", 1, DIFFER, "tensors")) },
	[PL_RW_PARTITION_TENSOR] = { PL_LANG_ROW(
		"partition-tensor", STRUCTURE, "synchronise the set of a tensor in chunks",
		PL_LANG_FIELD("tensors", NAME, PL_LANG_LIST, "tensor", .min = 1, .max = 1),
		COUNT("parts", 65536, "chunks of equal size")) },
	[PL_RW_FUSE_OPS] = { PL_LANG_ROW(
		"fuse-ops", STRUCTURE, "make operations that follow one another one operation",
		NAMES("operations", 2, 0, "operations"),
		FACTOR("share", 0, 1, "its time as a share of the sum; 1 if not given")) },
	[PL_RW_ORDER] = { PL_LANG_ROW("order", STRUCTURE, "issue the sets of tensors in this order",
				      NAMES("tensors", 2, DIFFER, "tensors")) },
	[PL_RW_ACCUMULATE] = { PL_LANG_ROW("accumulate", STRUCTURE,
					   "work through microbatches before one synchronisation",
					   COUNT("microbatches", 65536, "microbatches of a step")),
			       .elsewhere = "gradient_accumulation|gradient-accumulation|"
					    "gradient_accumulation_steps|grad_accum" },
	[PL_RW_RECOMPUTE] = { PL_LANG_ROW(
		"recompute", STRUCTURE, "make activations again in the backward pass",
		NAMES("layers", 1, DIFFER, "layers"),
		PL_LANG_FIELD("stage", INT, KEY, "pipeline stage that has them, from 0",
			      .max = PL_PLAN_SETS - 1, RW(k))) },
	[PL_RW_PRECISION] = { PL_LANG_ROW(
				      "precision", TIMING,
				      "compute operations in another precision",
				      PL_LANG_FIELD("precision", CHOICE, NEED, "precision",
						    RW(word),
						    .choices = PL_WORDS_PLAN_PRECISION("|")),
				      NAMES("operations", 0, 0, "operations; all if none is named"),
				      FACTOR("share", 0, 1e6,
					     "their time as a share of what it was; from the cost "
					     "model if not given")),
			      .elsewhere = "bf16|bfloat16|fp16|float16|amp|autocast|dtype" },
	[PL_RW_ALGORITHM] = { PL_LANG_ROW(
		"algorithm", STRUCTURE, "carry out the communication of tensors in another way",
		PL_LANG_FIELD("algorithm", CHOICE, NEED, "algorithm", RW(word),
			      .choices = PL_WORDS_PLAN_ALGORITHM("|"), .refused = "auto|direct",
			      .why = "is for jobs, the cost model has no formula for it"),
		NAMES("tensors", 0, 0, "tensors; all if none is named"),
		PL_LANG_FIELD("servers", INT, KEY, "parameter servers; 1 if not given", .min = 1,
			      .max = 10000, .only = "ps", .word = "k", RW(k))) },
	[PL_RW_RANKS] = { PL_LANG_ROW(
				  "ranks", TIMING, "change the number of data-parallel replicas",
				  PL_LANG_FIELD("ranks", INT, PL_LANG_BOUND,
						"replicas of the model, each like those recorded",
						.min = 1, .max = 1e6, RW(k)),
				  BY(1e-6, 0, "factor of the replicas")),
			  .elsewhere = "world_size|world-size|gpus|nodes|nproc" },
	[PL_RW_BANDWIDTH] = { PL_LANG_ROW("bandwidth", TIMING,
					  "make links carry X times as many bytes a second", LINK,
					  BY(1e-6, PL_LANG_NEED, "factor")) },
	[PL_RW_LATENCY] = { PL_LANG_ROW("latency", TIMING,
					"change what a message takes beside its bytes", LINK,
					BY(0, 0, "factor"), TO(0)) },
	[PL_RW_SPEED] = { PL_LANG_ROW(
		"speed", TIMING, "make the computation of ranks faster",
		NAMES("on", 0, 0, "patterns of ranks (rank 3) or hosts; all if none is named"),
		FACTOR("factor", PL_LANG_NEED, 1e6, "times as fast")) },
	[PL_RW_PRIORITY] = { PL_LANG_ROW(
		"priority", STRUCTURE, "carry out the communication of tensors by urgency",
		NAMES("tensors", 2, DIFFER, "tensors, the most urgent first")) },
	[PL_RW_SCALE] = { PL_LANG_ROW("scale", TIMING, "make operations take X times as long",
				      SELECTOR, BY(0, PL_LANG_NEED, "factor of the durations")),
			  .commas = true },
	[PL_RW_REMOVE] = { PL_LANG_ROW("remove", TIMING, "make operations take no time", SELECTOR),
			   .commas = true },
	[PL_RW_SET] = { PL_LANG_ROW("set", TIMING, "make operations take a given time", SELECTOR,
				    TO(PL_LANG_NEED)),
			.commas = true },
	[PL_RW_FIX] = { PL_LANG_ROW("fix", TIMING,
				    "make operations take what is typical of their peers", SELECTOR,
				    PL_LANG_FIELD("to", CHOICE, KEY, "what is typical", RW(word),
						  .choices = "mean|median", .word = "to")),
			.commas = true },
	[PL_RW_BATCH] = { PL_LANG_ROW("batch", TIMING, "give each rank other samples in a step",
				      PL_LANG_FIELD("samples", INT, PL_LANG_BOUND,
						    "samples of a rank in a step", .min = 1,
						    .max = 1e9, RW(k)),
				      PICK(RANK, "rank", NUMBERS, 0,
					   "ranks that take in others; all if not given")
					      BY(1e-6, 0, "factor of the samples of a step")),
			  .elsewhere = "batch_size|batch-size|batchsize|micro_batch_size" },
	[PL_RW_NO_SYNC] = { PL_LANG_ROW("no-sync", TIMING,
					"synchronise gradients in every K-th backward pass only",
					COUNT("passes", 65536, "passes for one synchronisation")) },
	[PL_RW_BUCKET_MB] = { PL_LANG_ROW("bucket-mb", STRUCTURE,
					  "fill buckets of gradients as "
					  "DistributedDataParallel(bucket_cap_mb=MIB) does",
					  PL_LANG_FIELD(
						  "mib", REAL, NEED | PL_LANG_ABOVE,
						  "MiB of gradients with which a bucket is full",
						  .max = 1e6, RW(x)),
					  PL_LANG_FIELD(
						  "first", INT, KEY,
						  "MiB of the first bucket; as the others if not "
						  "given",
						  .min = 1, .max = 1e6, .word = "first", RW(k))),
			      .elsewhere = "bucket_cap_mb|bucket-cap-mb|bucket_size|buckets" },
	[PL_RW_LOADER_WORKERS] = { PL_LANG_ROW(
					   "loader-workers", STRUCTURE,
					   "read batches in N processes beside the job (what-if: "
					   "also workers)",
					   PL_LANG_FIELD("workers", INT, NEED,
							 "processes that read batches; 0: the job "
							 "itself reads",
							 .max = 65536, RW(k)),
					   PL_LANG_FIELD(
						   "was", REAL, KEY,
						   "processes of the recorded job, if it had any",
						   .min = 1, .max = 65536, .word = "was", RW(x))),
				   .also = "workers", .elsewhere = "num_workers|num-workers|dataloader-workers" },
	[PL_RW_WRAP] = { PL_LANG_ROW(
				 "wrap", STRUCTURE,
				 "join groups of sharded parameters, as fully_shard([a, b]) does",
				 PL_LANG_FIELD("layers", INT, KEY | PL_LANG_NEED,
					       "so many groups become one", .min = 1, .max = 65536,
					       .choices = "all", RW(k))),
			 .elsewhere = "fully_shard|fsdp|auto_wrap|shard" },
	[PL_RW_OVERLAP] = { PL_LANG_ROW("overlap", STRUCTURE,
					"run collectives beside the computation of their pass",
					SELECTOR),
			    .commas = true },
	[PL_RW_PREFETCH] = { PL_LANG_ROW(
		"prefetch", STRUCTURE, "gather sharded parameters some groups earlier",
		PL_LANG_FIELD("groups", INT, NEED, "so many groups earlier", .min = 1, .max = 65536,
			      RW(k))) },
	[PL_RW_DEVICE] = { PL_LANG_ROW(
		"device", TIMING, "compute on another device",
		PL_LANG_FIELD("device", NAME, NEED, "a device that has a data sheet", RW(word))) },
	[PL_RW_TENSOR_PARALLEL] = { PL_LANG_ROW(
					    "tensor-parallel", STRUCTURE,
					    "divide the weights of each layer among so many ranks",
					    PL_LANG_FIELD("by", INT, KEY | PL_LANG_NEED,
							  "ranks that share the weights", .min = 2,
							  .max = 1024, .word = "by", RW(k))),
				    .elsewhere = "tensor_parallel|tensor_model_parallel_size|"
						 "tensor-model-parallel-size|tp" },
	[PL_RW_NO_RESHARD] = { PL_LANG_ROW("no-reshard", STRUCTURE,
					   "keep sharded parameters whole until the backward pass",
					   { .name = NULL }),
			       .elsewhere = "reshard_after_forward|reshard" },
	{ PL_LANG_ROW("base", EXECUTION, "what the plan was made from",
		      PL_LANG_FIELD("base", NAME, NEED, "file or job",
				    .offset = offsetof(struct pl_plan, base))),
	  .once = true },
	{ NUMBER("replicas", 1, ranks,
		 "data-parallel replicas of the model in the base (older files: workers)"),
	  .also = "workers" }, /* the older name; in a what-if it is the other row that has it */
	{ NUMBER("baseline", 0, baseline_ns, "mean step of the base in ns") },
	{ NUMBER("predicted", 0, predicted_ns, "mean step with all rewrites in ns") },
	{ NUMBER("error", 0, error_ns, "half of the 90 % interval of the prediction, in ns") },
	{ NUMBER("bound", 0, bound_ns, "no change of communication makes it shorter, in ns") },
	{ NUMBER("model", 0, model_ns, "mean step as the cost model has it, in ns") },
	{ NUMBER("evaluations", 0, evaluations, "simulations that the search took") },
	{ NUMBER("peak", 0, peak_bytes, "greatest memory of a rank with all rewrites, in bytes") },
	{ .name = "incomplete",
	  .doc = "a limit or a signal ended the search",
	  .effect = PL_LANG_EXECUTION,
	  .once = true },
	{ PL_LANG_ROW("provenance", EXECUTION,
		      "a line of history: program, version and command line",
		      PL_LANG_FIELD("line", NAME, PL_LANG_NEED, "text")) },
	{ PL_LANG_ROW("tensor", EXECUTION,
		      "a tensor that the base synchronises, as its gradient becomes ready",
		      PL_LANG_FIELD("tensor", NAME, NEED, "name",
				    .offset = offsetof(struct pl_ptensor, name)),
		      PL_LANG_FIELD("bytes", INT, NEED, "size", .max = 0x1p63,
				    .offset = offsetof(struct pl_ptensor, bytes)),
		      PL_LANG_FIELD("estimated", FLAG, KEY, "the size was not in the input",
				    .offset = offsetof(struct pl_ptensor, estimated)),
		      PL_LANG_FIELD("stage", INT, KEY, "pipeline stage that has it, from 0",
				    .max = PL_PLAN_SETS - 1,
				    .offset = offsetof(struct pl_ptensor, stage)),
		      PL_LANG_FIELD("set", INT, PL_LANG_KEY,
				    "the base synchronises the tensors of one number as one",
				    .max = PL_PLAN_SETS - 1, .word = "set")) },
};
_Static_assert(PL_RW_COUNT_ == 27, "a rewrite without a row, here and in paceline-plan(5)");

const struct pl_lang_schema pl_plan_schema = { .name = "plan",
					       .version = PL_PLAN_MAJOR,
					       .header = true,
					       .row = rows,
					       .n_rows = PL_LEN(rows),
					       .extra = worth,
					       .n_extra = PL_RW_COUNT_ };

const char *pl_plan_rewrite_name(unsigned op)
{
	return op < PL_RW_COUNT_ ? rows[op].name : "unknown";
}

int pl_plan_rewrite_find(const char *name)
{
	for (int i = 0; i < PL_RW_COUNT_; i++)
		if (!strcmp(rows[i].name, name))
			return i;
	return -1;
}

bool pl_plan_names_tensors(unsigned op)
{
	return op < PL_RW_COUNT_ && pl_lang_field(&rows[op], "tensors", NULL);
}

void pl_plan_init(struct pl_plan *p)
{
	memset(p, 0, sizeof(*p));
	p->baseline_ns = p->predicted_ns = p->bound_ns = p->model_ns = p->error_ns = INT64_MIN;
	p->evaluations = p->peak_bytes = -1;
	p->complete = true;
}

void pl_plan_fini(struct pl_plan *p)
{
	pl_arena_fini(&p->arena);
	pl_free(p->tensor);
	pl_free(p->rw);
	pl_buf_fini(&p->provenance);
	pl_plan_init(p);
}

int pl_plan_add_tensor(struct pl_plan *p, const char *name, int64_t bytes, bool estimated,
		       struct pl_err *err)
{
	struct pl_ptensor t = { .bytes = bytes, .set = PL_NONE, .estimated = estimated };

	PL_CHECK(pl_dup(&p->arena, &t.name, name, err));
	return pl_append(&p->tensor, &p->n_tensors, &p->cap_tensors, &t, sizeof(t), err);
}

size_t pl_plan_estimated(const struct pl_plan *p)
{
	size_t n = 0;

	for (size_t i = 0; i < p->n_tensors; i++)
		n += p->tensor[i].estimated;
	return n;
}

int pl_plan_add(struct pl_plan *p, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_rewrite r = *rw;

	PL_CHECK(pl_grow(&p->rw, &p->cap_rw, p->n_rw + 1, sizeof(*p->rw), err));
	r.arg = NULL;
	r.column = NULL;
	if (rw->word)
		PL_CHECK(pl_dup(&p->arena, &r.word, rw->word, err));
	if (rw->n_args)
		PL_CHECK(pl_arena_array(&p->arena, &r.arg, rw->n_args, sizeof(*r.arg), err));
	for (uint32_t i = 0; i < rw->n_args; i++)
		PL_CHECK(pl_dup(&p->arena, &r.arg[i], rw->arg[i], err));
	if (rw->column && rw->n_args) {
		uint32_t *column;

		PL_CHECK(pl_arena_array(&p->arena, &column, rw->n_args, sizeof(*column), err));
		memcpy(column, rw->column, rw->n_args * sizeof(*column));
		r.column = column;
	}
	for (int i = 0; i < PL_SEL_COUNT_; i++)
		if (rw->select.key[i])
			PL_CHECK(pl_dup(&p->arena, &r.select.key[i], rw->select.key[i], err));
	p->rw[p->n_rw++] = r;
	return 0;
}

/* ---- checking -------------------------------------------------------------------------------- */

int pl_plan_statement(const struct pl_rewrite *rw, struct pl_lang_statement *st, struct pl_err *err)
{
	const struct pl_rewrite usual = { .to = -1,
					  /* no workers is a number, too */
					  .k = rw->op == PL_RW_LOADER_WORKERS ? -1 : 0,
					  .alone_ns = INT64_MIN,
					  .in_plan_ns = INT64_MIN };

	PL_CHECK(pl_lang_begin(st, &pl_plan_schema, &rows[rw->op], err));
	pl_lang_unbind(st, rw, &usual);
	PL_CHECK(pl_grow(&st->list, &st->cap_list, rw->n_args, sizeof(*st->list), err));
	for (uint32_t i = 0; i < rw->n_args; i++)
		st->list[st->n_list++] = rw->arg[i];
	return 0;
}

/* Has the rewrite a field for this member, or, of the offset 0, a list? */
static bool has(const struct pl_lang_row *row, size_t offset)
{
	for (const struct pl_lang_field *f = row->field; f->name; f++)
		if (offset ? f->flags & PL_LANG_BOUND && f->offset == offset
			   : f->flags & PL_LANG_LIST)
			return true;
	return false;
}

static bool selects(const struct pl_rewrite *rw)
{
	for (int i = 0; i < PL_SEL_COUNT_; i++)
		if (rw->select.key[i])
			return true;
	return false;
}

/* `st` is used for it, and for the next one again. */
static int check_rewrite(const struct pl_rewrite *rw, struct pl_lang_statement *st,
			 struct pl_err *err)
{
	const struct pl_lang_row *row;

	if (rw->op >= PL_RW_COUNT_)
		return pl_fail(err, PL_EDATA, "there is no rewrite %u", rw->op);
	row = &rows[rw->op];
	if (rw->n_args && !has(row, 0))
		return pl_fail(err, PL_EDATA, "it takes no names, not %u of them", rw->n_args);
	if (rw->word && !has(row, offsetof(struct pl_rewrite, word)))
		return pl_fail(err, PL_EDATA, "it takes no word, \"%.200s\"", rw->word);
	if (rw->k && !has(row, offsetof(struct pl_rewrite, k)))
		return pl_fail(err, PL_EDATA, "it takes no whole number");
	if (rw->x != 0 && !has(row, offsetof(struct pl_rewrite, x)))
		return pl_fail(err, PL_EDATA, "it takes no factor");
	if (has(row, offsetof(struct pl_rewrite, select.all)) && !rw->select.all && !selects(rw))
		return pl_fail(err, PL_EDATA,
			       "it does not say of which operations; write all, or KEY=PATTERN");
	if (rw->op == PL_RW_LATENCY && (rw->x > 0) == (rw->to >= 0))
		return pl_fail(err, PL_EDATA, "it needs by X or to TIME");
	if (rw->op == PL_RW_BATCH && (rw->x > 0) == (rw->k > 0))
		return pl_fail(err, PL_EDATA, "it needs a number of samples or by X");
	if (rw->op == PL_RW_RANKS && (rw->x > 0) == (rw->k > 0))
		return pl_fail(err, PL_EDATA, "it needs a number of replicas or by X");
	PL_CHECK(pl_plan_statement(rw, st, err));
	return pl_lang_check(st, err);
}

int pl_plan_check_rewrite(const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_lang_statement st = { 0 };
	int rc = check_rewrite(rw, &st, err);

	pl_lang_end(&st);
	return rc;
}

static int check_base(const struct pl_plan *p, struct pl_err *err)
{
	const pl_ns ns[] = { p->baseline_ns, p->predicted_ns, p->error_ns, p->bound_ns,
			     p->model_ns };
	const char **name = NULL, *twice;
	int rc = 0;

	if (p->ranks < 0)
		return pl_fail(err, PL_EDATA, "the base has %lld replicas", (long long)p->ranks);
	for (size_t i = 0; i < PL_LEN(ns); i++)
		if (ns[i] < 0 && ns[i] != INT64_MIN)
			return pl_fail(err, PL_EDATA, "a step of %lld ns", (long long)ns[i]);
	if (p->evaluations < -1 || p->peak_bytes < -1)
		return pl_fail(err, PL_EDATA, "evaluations or peak below 0");
	if (!p->n_tensors)
		return 0;
	PL_TRY(pl_alloc(&name, p->n_tensors, sizeof(*name), err));
	for (size_t i = 0; i < p->n_tensors; i++) {
		name[i] = p->tensor[i].name;
		if (!name[i][0])
			rc = pl_fail(err, PL_EDATA, "tensors of the base: a name is empty");
		if (p->tensor[i].bytes < 0)
			rc = pl_fail(err, PL_EDATA, "tensor \"%.200s\" has %lld bytes", name[i],
				     (long long)p->tensor[i].bytes);
		if (rc < 0)
			goto out;
	}
	twice = pl_sort_twice(name, p->n_tensors);
	if (twice)
		rc = pl_fail(err, PL_EDATA,
			     "tensors of the base: \"%.200s\" is there twice; name it once", twice);
out:
	pl_free(name);
	return rc;
}

int pl_plan_wrap(const char *file, const struct pl_rewrite *rw, size_t i, uint32_t arg,
		 struct pl_err *err)
{
	char place[64];

	if (rw->text && err->code == PL_EDATA)
		err->code = PL_EUSAGE;
	if (rw->text)
		return pl_wrap(err, "what-if \"%s\"", rw->text);
	if (!rw->line)
		snprintf(place, sizeof(place), "rewrite %zu", i + 1);
	else if (arg < rw->n_args && rw->column)
		snprintf(place, sizeof(place), "line %u, column %u", rw->line, rw->column[arg]);
	else
		snprintf(place, sizeof(place), "line %u", rw->line);
	pl_wrap(err, "%s: %s", place, pl_plan_rewrite_name(rw->op));
	return file ? pl_wrap(err, "%s", file) : err->code;
}

int pl_plan_wrap_tensor(const struct pl_plan *p, size_t i, bool is_name, struct pl_err *err)
{
	const struct pl_ptensor *t = &p->tensor[i];

	pl_wrap(err, "tensor");
	if (t->line && is_name)
		pl_wrap(err, "line %u, column %u", t->line, t->column);
	else if (t->line)
		pl_wrap(err, "line %u", t->line);
	return p->file ? pl_wrap(err, "%s", p->file) : err->code;
}

/* ---- names that are not known ---------------------------------------------------------------- */

struct pl_plan_near pl_plan_near_begin(const char *name)
{
	return (struct pl_plan_near){ .name = name, .near.s = name };
}

void pl_plan_near(struct pl_plan_near *x, const char *known)
{
	if (pl_plan_param(x->name) == x->name)
		known = pl_plan_param(known);
	pl_words_near(&x->near, known, strlen(known));
	if (strstr(known, x->name) && (!x->holds || strlen(known) < strlen(x->holds)))
		x->holds = known;
}

int pl_plan_no_name(const struct pl_plan_near *x, const char *what, const char *remedy,
		    struct pl_err *err)
{
	const char *near = x->near.distance ? x->near.word : x->holds;

	return pl_fail(err, PL_EDATA, "%s no tensor \"%.200s\"%s%.200s%s; %s", what, x->name,
		       near ? "; did you mean \"" : "", near ? near : "", near ? "\"?" : "",
		       remedy);
}

/* ---- the whole ------------------------------------------------------------------------------- */

int pl_plan_check(const struct pl_plan *p, struct pl_err *err)
{
	struct pl_lang_statement st = { 0 };
	struct pl_err why = { 0 };
	int rc = check_base(p, &why);

	for (size_t i = 0; i < p->n_rw && rc >= 0; i++) {
		rc = check_rewrite(&p->rw[i], &st, &why);
		if (rc < 0)
			pl_plan_wrap(NULL, &p->rw[i], i, PL_NONE, &why);
	}
	pl_lang_end(&st);
	return pl_fail_as(err, &why);
}
