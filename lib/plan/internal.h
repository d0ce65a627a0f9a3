/* internal.h - what the files of lib/plan share: the text forms' words, and what a rewrite takes.
 */
#ifndef PL_PLAN_INTERNAL_H
#define PL_PLAN_INTERNAL_H

#include "io/container.h"
#include "io/json.h"
#include "io/write.h"
#include "plan/job.h"
#include "plan/plan.h"
#include "plan/topology.h"

/* ---- rewrites ------------------------------------------------------------------------------- */

/* The rewrite as a statement, whose texts are those of the rewrite. */
int pl_plan_statement(const struct pl_rewrite *rw, struct pl_lang_statement *st,
		      struct pl_err *err) PL_MUST;
/* What pl_plan_check() checks of each. */
int pl_plan_check_rewrite(const struct pl_rewrite *rw, struct pl_err *err) PL_MUST;
int pl_plan_read_text(struct pl_in *in, const char *name, struct pl_plan *p,
		      struct pl_err *err) PL_MUST;

/* ---- settings ------------------------------------------------------------------------------- */

/* The sets of a plan as the settings need them. Zero-initialised is empty. */
struct pl_sets {
	const struct pl_plan *p; /* in a pipeline: first_stage */
	struct pl_plan first_stage;
	struct pl_buckets b;
	uint32_t n;	  /* sets; 0: the plan names no tensors */
	uint32_t *first;  /* n + 1 offsets into `tensor` */
	uint32_t *tensor; /* tensors by set, ascending inside */
};

/* What a framework's file fills: all that follows the head. */
struct pl_setter {
	const struct pl_plan *p;
	struct pl_sets s;
	struct pl_writer w;  /* its first failure is that of the whole */
	unsigned done;	     /* rewrites that it expresses, a bit each: no comment for those */
	bool pipeline;	     /* ranks of the base have different layers */
	bool groups;	     /* tensors are those of several groups of ranks */
	const char *no_sets; /* why nothing can be said about the sets; NULL */
};
/* ---- settings: one size for all buckets ---- */

/* After which of the sets' tensors does one end (n_tensors, to be freed with pl_free())? runs: each
 * set is a run of the order of readiness, and they are issued in it. Needs tensors. */
int pl_settings_ends(const struct pl_sets *s, bool **end, bool *runs, struct pl_err *err) PL_MUST;

/* When a framework closes a bucket: at the tensor with which the size is reached, or before the one
 * with which it would be exceeded. */
enum pl_close { PL_CLOSE_REACHED, PL_CLOSE_BEFORE };

struct pl_one_size {
	int64_t size;	 /* in units, at least 1 */
	uint32_t differ; /* ends of buckets that only the plan has, or only the framework */
	bool runs;	 /* pl_settings_ends() */
};
/* The size for all buckets that comes closest to the plan's sets; of 1, one tensor at a time, if
 * that is exact. `unit` in bytes: what the framework counts in. Needs tensors. */
void pl_settings_one_size(struct pl_setter *s, enum pl_close rule, int64_t unit,
			  struct pl_one_size *out);
/* What the plan's sets lose by it, as a comment; nothing where they are kept. */
void pl_settings_put_differ(struct pl_setter *s, const struct pl_one_size *o);

/* ---- settings: questions ---- */

/* Microbatches that all lines make together, 0 if there are none. They count as expressed. */
int64_t pl_settings_accumulate(struct pl_setter *s);
/* The last rewrite of that sort, NULL if there is none. */
const struct pl_rewrite *pl_settings_last(const struct pl_plan *p, unsigned op);
/* The precision that all operations get, NULL if there is none. */
const char *pl_settings_precision(const struct pl_plan *p);
/* torch's name for the half precision of all operations, NULL: none; the line for float16. */
const char *pl_settings_half(const struct pl_plan *p);
extern const char pl_settings_scaler[];
/* The algorithm that all communication gets, -1 if there is none. */
int pl_settings_algorithm(const struct pl_plan *p);
/* What NCCL_ALGO has to be for it, and then it counts as expressed; NULL where NCCL cannot be told.
 * rings_alone: the framework has communication that NCCL does along rings alone. */
const char *pl_settings_nccl(struct pl_setter *s, bool rings_alone);
/* Do names say nothing of parameters? Those of graphs without them are "grad NUMBER SHAPE". */
bool pl_settings_nameless(const struct pl_plan *p);
#define PL_SETTINGS_READY                                                                          \
	"# gradients number by readiness: the parameters backward, where modules run in the "      \
	"order "                                                                                   \
	"of their definition\n"                                                                    \
	"ready = list(model.parameters())[::-1]\n"
/* The names of a set as a Python tuple in a line of its own; their numbers if the plan is nameless.
 */
void pl_settings_tuple(struct pl_setter *s, uint32_t set, bool numbers);
/* Autocast or TF32, the loader, checkpoints, and the algorithm of NCCL, as code for torch. */
void pl_settings_torch_precision(struct pl_setter *s);
void pl_settings_torch_loader(struct pl_setter *s);
void pl_settings_torch_recompute(struct pl_setter *s);
void pl_settings_torch_nccl(struct pl_setter *s, bool rings_alone);

extern const struct pl_settings pl_settings_ddp, pl_settings_fsdp, pl_settings_horovod,
	pl_settings_byteps, pl_settings_deepspeed, pl_settings_megatron, pl_settings_xla;

#endif
