/*
 * plan.h - what to change about a job: paceline-plan(5). Data and text; nothing here knows graphs.
 *
 * A plan names its base (the tensors that the job synchronises, with their sizes) and lists
 * rewrites in the order in which they apply. Rewrites address tensors and operations by name, so
 * that a plan made from one trace fits the next trace of the same job, and can be written by hand.
 */
#ifndef PL_PLAN_H
#define PL_PLAN_H

#include "core/core.h"
#include "core/words.h"
#include "io/stream.h"
#include "lang/lang.h"
#include "plan/buckets.h"

#define PL_PLAN_MAJOR 1
#define PL_PLAN_MINOR 9

/*
 * The kinds of rewrites: the name, its struct pl_rewrite_kind (lib/rewrite), and why the settings
 * of a framework do not express it, unless the file of the framework does. The number of a kind is
 * part of paceline-plan(5), so a new one stands last.
 *
 * The rows of pl_plan_schema have the fields of each kind; paceline-plan(5) has its meaning. The
 * members of struct pl_rewrite hold it: `word` an algorithm, a precision or a link; `arg` names of
 * tensors, operations, layers or ranks; `k` parts, microbatches, servers or ranks; `x` a share or a
 * factor; `to` a time; `select` the operations that a change of durations concerns.
 */
#define PL_PLAN_REWRITES(X)                                                                        \
	X(FUSE_TENSORS, fuse_tensors, "no setting groups tensors")                                 \
	X(PARTITION_TENSOR, partition_tensor, "no setting splits the communication of a tensor")   \
	X(FUSE_OPS, fuse_ops, "compilers fuse operations by rules of their own")                   \
	X(ORDER, order, "communication is issued as gradients become ready")                       \
	X(ACCUMULATE, accumulate, "the training loop decides")                                     \
	X(RECOMPUTE, recompute, "no setting names the layers")                                     \
	X(PRECISION, precision, "no setting for this precision, or for some operations alone")     \
	X(ALGORITHM, algorithm,                                                                    \
	  "the communication library chooses; NCCL can be told ring or tree, for all tensors "     \
	  "alike")                                                                                 \
	X(RANKS, ranks, "the number of workers is given when the job is started")                  \
	X(BANDWIDTH, bandwidth, "another machine, not a setting")                                  \
	X(LATENCY, latency, "another machine, not a setting")                                      \
	X(SPEED, speed, "another machine, not a setting")                                          \
	X(PRIORITY, priority, "communication is carried out as it was issued")                     \
	X(SCALE, scale, "a question, not a setting")                                               \
	X(REMOVE, remove, "a question, not a setting")                                             \
	X(SET, set, "a question, not a setting")                                                   \
	X(FIX, fix, "a question, not a setting")                                                   \
	X(BATCH, batch, "the training loop decides")                                               \
	X(NO_SYNC, no_sync, "the training loop decides, with no_sync()")                           \
	X(BUCKET_MB, bucket_mb, "no setting fills buckets up to a size")                           \
	X(LOADER_WORKERS, loader_workers, "the loader's own setting: DataLoader(num_workers=N)")   \
	X(WRAP, wrap, "no setting groups sharded parameters")                                      \
	X(OVERLAP, overlap, "a question, not a setting")                                           \
	X(PREFETCH, prefetch, "not written for this framework")                                    \
	X(DEVICE, device, "another machine, not a setting")                                        \
	X(TENSOR_PARALLEL, tensor_parallel, "the program divides the layers of its model")         \
	X(NO_RESHARD, no_reshard, "not written for this framework")

enum pl_rw {
#define NUMBER(name, kind, why) PL_RW_##name,
	PL_PLAN_REWRITES(NUMBER)
#undef NUMBER
		PL_RW_COUNT_
};
const char *pl_plan_rewrite_name(unsigned op); /* "fuse-tensors" ... */
int pl_plan_rewrite_find(const char *name);    /* -1 if there is none */
bool pl_plan_names_tensors(unsigned op);       /* are the names of the rewrite those of tensors? */
extern const struct pl_lang_schema pl_plan_schema; /* its first rows are the rewrites */

/*
 * The keys of a selector, each with the type of its pattern, flags and a line of documentation. An
 * operation is selected if all patterns that are given match; lib/graph/select.h.
 */
#define PL_PLAN_SELECTOR(X)                                                                        \
	X(KIND, "kind", GLOB, 0, "kind, or one of comm, gap and all")                              \
	X(NAME, "name", GLOB, COMMAS, "name of the operation")                                     \
	X(HOST, "host", GLOB, 0, "name of the host")                                               \
	X(RANK, "rank", NUMBERS, 0, "rank")                                                        \
	X(STAGE, "stage", NUMBERS, 0, "pipeline stage")                                            \
	X(DP, "dp", NUMBERS, 0, "data-parallel rank")                                              \
	X(STEP, "step", NUMBERS, 0, "step")                                                        \
	X(SIZE, "size", SIZES, 0, "bytes of a communication or copy")                              \
	X(LAYER, "layer", NUMBERS, 0, "layer")                                                     \
	X(MB, "mb", NUMBERS, 0, "microbatch")                                                      \
	X(PHASE, "phase", GLOB, 0, "forward, backward, optimizer, ...")                            \
	X(MODULE, "module", GLOB, 0, "path of the module")
enum pl_plan_key {
#define KEY(name, ...) PL_SEL_##name,
	PL_PLAN_SELECTOR(KEY)
#undef KEY
		PL_SEL_COUNT_
};
struct pl_selector {
	const char *key[PL_SEL_COUNT_]; /* patterns; NULL: any */
	bool all;			/* there is no pattern */
};

struct pl_rewrite {
	uint8_t op;	  /* enum pl_rw */
	const char *word; /* NULL if the operation takes none */
	const char **arg; /* n_args names; NULL if none */
	uint32_t n_args;
	const uint32_t *column; /* of each name in the text that it came from; NULL: no text */
	int64_t k;		/* 0: not given */
	double x;		/* 0: not given */
	pl_ns to;		/* of set */
	struct pl_selector select;
	pl_ns alone_ns;	  /* what it saves alone; INT64_MIN: not known */
	pl_ns in_plan_ns; /* what leaving it out of the plan would cost; INT64_MIN: not known */
	uint32_t line;	  /* of the text that it came from, 0: none */
	const char *text; /* the whole statement, if it was given as an option; NULL */
};

#define PL_PLAN_SETS 0x80000000u /* numbers of sets are less */

/* A tensor that the base job synchronises, in the order in which gradients become ready. */
struct pl_ptensor {
	const char *name;
	int64_t bytes;
	uint32_t set;	/* the base synchronises those of one number as one; PL_NONE: by itself */
	bool estimated; /* the size was not in the input */
	int64_t stage;	/* of the pipeline whose ranks have it, from 0 */
	uint32_t line, column; /* of its name in the text that it came from, 0: none */
};

/* Zero-initialised is empty and valid. Strings belong to the arena. */
struct pl_plan {
	struct pl_arena arena;
	const char *base; /* what it was made from: a file's or job's name; NULL */
	const char *file; /* where it was read from, for messages; NULL */
	struct pl_ptensor *tensor;
	size_t n_tensors, cap_tensors;
	struct pl_rewrite *rw;
	size_t n_rw, cap_rw;
	int64_t ranks; /* data-parallel replicas of the base; 0 unknown */
	/* Mean step; INT64_MIN: not known. What was recorded, what the plan makes of it, what no
	 * plan can be below; and what the model alone says of the plan, its bias included.
	 * error_ns: half of the 90 % interval of the prediction. */
	pl_ns baseline_ns, predicted_ns, error_ns, bound_ns, model_ns;
	int64_t evaluations, peak_bytes; /* -1: not known */
	bool complete;			 /* the search ended by itself, not by a limit or signal */
	struct pl_buf provenance;	 /* UTF-8, one line a program */
};
void pl_plan_init(struct pl_plan *p);
void pl_plan_fini(struct pl_plan *p);
/* By itself, in a set of its own. */
int pl_plan_add_tensor(struct pl_plan *p, const char *name, int64_t bytes, bool estimated,
		       struct pl_err *err) PL_MUST;
/* How many tensors have an estimated size? */
size_t pl_plan_estimated(const struct pl_plan *p);
/* Copies what `rw` points to. */
int pl_plan_add(struct pl_plan *p, const struct pl_rewrite *rw, struct pl_err *err) PL_MUST;
/* Is every rewrite complete and within its limits (number of names, k, x, known words)? PL_EDATA
 * names the line (or the number of the rewrite). Done by the readers. */
int pl_plan_check(const struct pl_plan *p, struct pl_err *err) PL_MUST;

/* Adds a rewrite from an option, in which nothing is quoted: "scale kind=comm by 0.5". PL_EUSAGE
 * with the text and the expected form. */
int pl_plan_add_line(struct pl_plan *p, const char *text, struct pl_err *err) PL_MUST;
/* The parameter of a tensor: graphs name gradients "grad NAME", lines of plans may name either. */
const char *pl_plan_param(const char *tensor);
/*
 * For the message about an unknown name: give all known names to pl_plan_near(). pl_plan_no_name()
 * then names the nearest one: PL_EDATA, `there is no tensor "a"; did you mean "b"?`. `remedy`
 * follows, if no name is near or if there is another way out.
 */
struct pl_plan_near {
	const char *name;	   /* the unknown name */
	struct pl_words_near near; /* .s = name */
	const char *holds;	   /* the shortest known name that contains it; NULL */
};
struct pl_plan_near pl_plan_near_begin(const char *name);
void pl_plan_near(struct pl_plan_near *near, const char *known);
int pl_plan_no_name(const struct pl_plan_near *near, const char *what, const char *remedy,
		    struct pl_err *err);
/* Puts the place of rewrite i before the message: file (NULL: none), line, the column of its name
 * number `arg` (PL_NONE: no column), and the statement. Returns the code. */
int pl_plan_wrap(const char *file, const struct pl_rewrite *rw, size_t i, uint32_t arg,
		 struct pl_err *err);
/* The same for tensor i of the base; with the column if its name is wrong. */
int pl_plan_wrap_tensor(const struct pl_plan *p, size_t i, bool is_name, struct pl_err *err);
/* Removes the last rewrite of the plan. `why` is the message and the code. */
int pl_plan_refuse_line(struct pl_plan *p, const struct pl_err *why, struct pl_err *err);

/* ---- files ---------------------------------------------------------------------------------- */

/* Reads a plan as text or binary, recognised by content. `name` is for messages. An invalid plan is
 * PL_EDATA with line (text) or block (binary). */
int pl_plan_read(struct pl_in *in, const char *name, struct pl_plan *p, struct pl_err *err) PL_MUST;
int pl_plan_read_file(const char *path, struct pl_plan *p, struct pl_err *err) PL_MUST;
int pl_plan_write(const struct pl_plan *p, struct pl_out *out, int level,
		  struct pl_err *err) PL_MUST; /* binary */
/* Give each rewrite its statement as `text`, if it was not given as an option. */
int pl_plan_add_texts(struct pl_plan *p, struct pl_err *err) PL_MUST;
int pl_plan_write_text(const struct pl_plan *p, struct pl_out *out, struct pl_err *err) PL_MUST;
/* "paceline.plan/1" */
int pl_plan_write_json(const struct pl_plan *p, struct pl_out *out, struct pl_err *err) PL_MUST;

/* ---- settings of frameworks ----------------------------------------------------------------- */

struct pl_setter;
struct pl_settings {	  /* one for each framework */
	const char *name; /* ddp, fsdp, horovod, byteps, deepspeed, megatron, xla */
	const char *summary;
	void (*body)(struct pl_setter *s); /* writes the text after the first comments */
};
extern const struct pl_settings *const pl_settings[]; /* NULL at the end */
/* Writes options, environment or code, and comments about the parts of the plan that the framework
 * cannot express. PL_OK also if it can express none. */
int pl_settings_write(const struct pl_settings *s, const struct pl_plan *p, struct pl_out *out,
		      struct pl_err *err) PL_MUST;

/* The tensors as the plan synchronises them, numbered in order of issue. base[i]: the base's set of
 * tensor i, any number; NULL: as the plan says. Empty after a failure. */
int pl_plan_buckets(const struct pl_plan *p, const uint32_t *base, struct pl_buckets *b,
		    struct pl_err *err) PL_MUST;

#endif
