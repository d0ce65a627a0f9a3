/* internal.h - what the parts of the search share. */
#ifndef PL_SEARCH_INTERNAL_H
#define PL_SEARCH_INTERNAL_H

#include "search/search.h"

/* A way to synchronise the tensors. */
struct cand {
	struct pl_buckets b;
	bool ordered;  /* issued in the order of numbers; else by readiness */
	bool urgent;   /* carried by s->priority, whatever the order of issue */
	uint8_t *algo; /* [set] */
	double mean;   /* the step, simulated; INFINITY: it cannot be done */
};

/* A copy of the edit for one thread, on which the search's present candidate is carried out. */
struct worker {
	struct search *s;
	struct pl_edit e;
	struct pl_rewriter *r;
	size_t root; /* mark behind the extras */
	uint32_t depth, number;
	uint64_t at; /* version of the present candidate */
	int rc;
	struct pl_err err;
};

struct search {
	const struct pl_search_opts *o;
	const struct pl_cost *cost;
	const struct pl_graph *g; /* reduced, if it could be */
	struct pl_graph reduced;
	struct pl_sim *sim;
	struct worker *worker;
	uint32_t n_workers;
	struct pl_queue *queue;
	/* tensors of the base, in order of readiness */
	uint32_t n;
	uint32_t *group;
	int64_t *bytes;
	pl_ns *ready;
	uint32_t *priority; /* [tensor]: what is needed first has 1; NULL: none is more urgent */
	struct cand now, best, recorded; /* present, best ever, as recorded */
	struct cand spare;
	uint32_t *group_index; /* [tensor]: its group, numbered from 0 */
	uint32_t n_groups;
	uint32_t *alike;  /* [tensor]: the first of its name; NULL: names are of one group each */
	uint64_t version; /* of now */
	struct cand *batch;
	size_t n_batch, cap_batch;
	uint32_t *count, *member; /* [set + 1], [tensor]: members of the sets of now */
	uint32_t *scratch;	  /* [2 n] */
	uint8_t *hot;		  /* [tensor] */
	struct pl_rewrite *extra; /* carried out before the buckets; strings of the plan's arena */
	size_t n_extra, cap_extra;
	double baseline, bound;
	double bias; /* what the model makes of what was recorded, less that */
	int64_t evaluations;
	int64_t limit_bytes; /* candidates that need more are none; 0: no limit */
	pl_ns begun;
	bool over; /* a limit was reached, or somebody said stop */
	bool swept;
	uint64_t rng;
};

struct peak { /* of memory */
	int64_t bytes;
	int32_t rank;  /* -1: none is known */
	uint32_t name; /* of the operation that begins it, PL_NONE */
};

/* A way to shorten the step: one file, and one row in search.c. */
struct strategy {
	bool (*wanted)(const struct search *s);
	/* Improves s->best and the extras, within the budget. PL_ENO: no plan fits the memory;
	 * those that follow are left out. */
	int (*run)(struct search *s, struct pl_plan *p, struct pl_err *err);
};
extern const struct strategy pl_search_strategy_precision, pl_search_strategy_buckets,
	pl_search_strategy_memory, pl_search_strategy_fusion;

/* ---- search.c ---- */
/* The bound, if operations as the extras have them make it lower; worker 0 is at the root then. */
int pl_search_bound(struct search *s, struct pl_err *err) PL_MUST;

/* ---- strategy_buckets.c ---- */
/* The tensors that are synchronised, also into the base of the plan. */
int pl_search_buckets_open(struct search *s, struct pl_plan *p, struct pl_err *err) PL_MUST;
/* No step can be shorter, whatever the buckets. */
double pl_search_buckets_bound(const struct search *s);

/* ---- symmetry.c ---- */
/* A graph of one rank of each class of equal ones, if there are fewer and it takes as long. */
int pl_search_reduce(const struct pl_graph *g, struct pl_graph *out, bool *reduced,
		     struct pl_err *err) PL_MUST;

/* ---- workers.c ---- */
int pl_search_workers_open(struct search *s, struct pl_err *err) PL_MUST;
void pl_search_workers_close(struct search *s);
/* All workers to the state as it was recorded, with the extras on it. */
int pl_search_workers_root(struct search *s, struct pl_err *err) PL_MUST;
/* The same when the first `keep` extras are on all workers already. */
int pl_search_workers_root_from(struct search *s, size_t keep, struct pl_err *err) PL_MUST;
/* The present candidate, carried out and settled on worker 0. */
int pl_search_worker_show(struct search *s, const struct cand *c, struct pl_err *err) PL_MUST;
/* Simulate all of the batch; the number of threads changes nothing but the time. */
int pl_search_batch_run(struct search *s, struct pl_err *err) PL_MUST;
/* Is the budget used up, or was it told to stop? */
bool pl_search_over(struct search *s);

/* ---- buckets_candidates.c ---- */
int pl_search_cand_init(const struct search *s, struct cand *c, struct pl_err *err) PL_MUST;
void pl_search_cand_fini(struct cand *c);
void pl_search_cand_copy(const struct search *s, struct cand *to, const struct cand *from);
/* Number the sets from 0 without gaps, by readiness or in the order that they have. */
int pl_search_cand_number(struct search *s, struct cand *c, struct pl_err *err) PL_MUST;
bool pl_search_cand_same(const struct search *s, const struct cand *a, const struct cand *b);
/* Shorter; or as long and simpler. */
bool pl_search_cand_better(const struct cand *a, const struct cand *b);
/* A new one at the end of the batch, a copy of `from`. */
int pl_search_batch_add(struct search *s, const struct cand *from, struct cand **c,
			struct pl_err *err) PL_MUST;
/* The defaults of others, into the batch. */
int pl_search_add_preset(struct search *s, enum pl_preset preset, struct pl_err *err) PL_MUST;
/* What dynamic programming makes of the times of lib/cost, and of when gradients are ready now. */
int pl_search_add_cuts(struct search *s, struct pl_err *err) PL_MUST;
/* Equal cuts, and what dynamic programming makes of the times of lib/cost. */
int pl_search_add_seeds(struct search *s, struct pl_err *err) PL_MUST;

/* ---- buckets_local.c ---- */
/* Make c (simulated) the present one. */
void pl_search_move(struct search *s, const struct cand *c);
/* With few tensors the best of all changes at a time, not of one set's; with many nothing. */
int pl_search_steepest(struct search *s, struct pl_err *err) PL_MUST;
/* To a local optimum, from the present candidate. */
int pl_search_local_search(struct search *s, struct pl_err *err) PL_MUST;
/* Restarts until the budget is used up. */
int pl_search_anneal(struct search *s, struct pl_err *err) PL_MUST;

/* ---- strategy_memory.c ---- */
int pl_search_extra_add(struct search *s, const struct pl_rewrite *rw, struct pl_err *err) PL_MUST;
/* The highest peak of the worker, settled. */
int pl_search_worker_peak(struct worker *l, struct peak *out, struct pl_err *err) PL_MUST;

/* ---- lines.c ---- */
/* The best candidate as lines of the plan, each with what it saves. */
int pl_search_write_lines(struct search *s, struct pl_plan *p, struct pl_err *err) PL_MUST;

#endif
