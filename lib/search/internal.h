/* internal.h - declarations that the files of the search share. */
#ifndef PL_SEARCH_INTERNAL_H
#define PL_SEARCH_INTERNAL_H

#include "search/search.h"

/* A candidate: one choice of buckets for the tensors. */
struct cand {
	struct pl_buckets b;
	bool ordered;  /* issued in the order of numbers; else by readiness */
	bool urgent;   /* carried by s->priority, not in the order of issue */
	uint8_t *algo; /* [set] */
	double mean;   /* the step, simulated; INFINITY: it cannot be done */
};

/* A copy of the edit for one thread; the present candidate of the search is applied to it. */
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
	struct pl_plan *p;
	const struct pl_graph *whole;
	const struct pl_graph *g; /* reduced, if it could be */
	struct pl_graph reduced;
	double tolerance; /* of the reduced graph, see pl_search_reduce() */
	struct pl_sim *sim;
	struct worker *worker;
	uint32_t n_workers;
	struct pl_queue *queue;
	struct pl_arena arena; /* of arrays and names */
	uint32_t n;	       /* tensors of the base, in order of readiness */
	const struct pl_rewriter_tensor *tensor;
	pl_ns *ready;
	uint32_t *priority; /* [tensor]: 1 is needed first; NULL: all are equally urgent */
	uint8_t *algos;	    /* [tensor]: its bucket may have the first so many of enum pl_algo */
	uint32_t servers;   /* of buckets with PL_ALGO_PS */
	struct cand now, best, recorded; /* present, best ever, as recorded */
	struct cand spare;
	uint32_t n_groups; /* of tensors that may share buckets */
	uint32_t *alike;   /* [tensor]: the first of its name; NULL: names are of one group each */
	uint64_t version;  /* of now */
	struct cand *batch;
	size_t n_batch, cap_batch;
	int rc; /* while candidates were added: the first failure; pl_search_batch_run() returns it
		 */
	struct pl_err failure;
	uint32_t *count, *member; /* [set + 1], [tensor]: members of the sets of now */
	uint32_t *scratch;	  /* [2 n] */
	uint8_t *hot;		  /* [tensor] */
	struct pl_rewrite
		*extra; /* applied before the buckets; strings live as long as the search */
	size_t n_extra, cap_extra;
	double baseline, bound;
	double bias; /* modelled time of the recorded buckets, less their recorded time; or NAN */
	int64_t evaluations;
	int64_t limit_bytes; /* candidates that need more are refused; 0: no limit */
	pl_ns begun;
	bool over; /* a limit was reached, or a stop was requested */
	bool swept;
	uint64_t rng;
};

struct peak { /* of memory */
	int64_t bytes;
	int32_t rank;  /* -1: none is known */
	uint32_t name; /* of the operation that begins it, PL_NONE */
};

/*
 * A strategy shortens the step: one function in one file, and one row in search.c. It improves
 * s->best and the extras, within the budget, or does nothing where it is not wanted. PL_ENO: no
 * plan fits the memory; the strategies after this one are left out.
 */
typedef int strategy(struct search *s, struct pl_err *err);
strategy pl_search_precision, pl_search_buckets, pl_search_servers, pl_search_memory,
	pl_search_fusion, pl_search_anneal;

/* ---- strategy_buckets.c ---- */
/* Find the tensors that are synchronised, and put them into the base of the plan. */
int pl_search_buckets_open(struct search *s, struct pl_err *err) PL_MUST;
/* Search from the best candidate and from new cuts: from the best of all, and from up to two others
 * that differ. */
int pl_search_buckets_improve(struct search *s, struct pl_err *err) PL_MUST;
/* The bound: with any buckets, no step can be shorter. */
double pl_search_buckets_bound(const struct search *s);

/* ---- symmetry.c ---- */
/* Reduce the graph to one rank of each class of equal ranks, if its step then takes the same time;
 * else to one of each class of ranks that are alike but for noise. *tolerance: how far, in ns, the
 * mean step may be from that of the whole graph; 0: it is the same. */
int pl_search_reduce(const struct pl_graph *g, const struct pl_search_noise *noise,
		     struct pl_graph *out, bool *reduced, double *tolerance,
		     struct pl_err *err) PL_MUST;

/* ---- workers.c ---- */
int pl_search_workers_open(struct search *s, struct pl_err *err) PL_MUST;
void pl_search_workers_close(struct search *s);
/* Set all workers to the recorded state with the extras applied. The first `keep` extras are on all
 * workers already. */
int pl_search_workers_root(struct search *s, size_t keep, struct pl_err *err) PL_MUST;
/* rc, or 0 if the rewriter refused the change (PL_EDATA). */
int pl_search_allow_refusal(int rc, struct pl_err *err) PL_MUST;
/* Apply the present candidate on worker 0 and settle. */
int pl_search_worker_show(struct search *s, const struct cand *c, struct pl_err *err) PL_MUST;
/* Simulate the whole batch. The result does not depend on the number of threads. */
int pl_search_batch_run(struct search *s, struct pl_err *err) PL_MUST;
/* Is the budget used up, or was a stop requested? */
bool pl_search_over(struct search *s);

/* ---- buckets_candidates.c ---- */
int pl_search_cand_init(const struct search *s, struct cand *c, struct pl_err *err) PL_MUST;
void pl_search_cand_fini(struct cand *c);
void pl_search_cand_copy(const struct search *s, struct cand *to, const struct cand *from);
/* Number the sets from 0 without gaps, by readiness or in their present order. */
void pl_search_cand_number(struct search *s, struct cand *c);
bool pl_search_cand_same(const struct search *s, const struct cand *a, const struct cand *b);
/* Is a shorter than b, or equally long and simpler? */
bool pl_search_cand_better(const struct cand *a, const struct cand *b);
/* The most algorithms that any bucket may have. */
unsigned pl_search_algos(const struct search *s);
/* Add a copy of `from` at the end of the batch. After a failure the copy is no part of it. */
struct cand *pl_search_batch_add(struct search *s, const struct cand *from);
/* Add the default buckets of a framework to the batch. */
void pl_search_add_preset(struct search *s, enum pl_preset preset);
/* Add the cuts of dynamic programming, for the times of lib/cost and the present times of
 * readiness, by the algorithm and those behind it. */
void pl_search_add_cuts(struct search *s, unsigned algo);
/* Add equal cuts, and the cuts of dynamic programming for the times of lib/cost. */
void pl_search_add_seeds(struct search *s);

/* ---- buckets_local.c ---- */
/* Make c, which is simulated, the present candidate. */
void pl_search_move(struct search *s, const struct cand *c);
/* The tensors of a set of the present candidate, in order of readiness. */
static inline uint32_t pl_search_set_size(const struct search *s, uint32_t set)
{
	return s->count[set + 1] - s->count[set];
}
static inline const uint32_t *pl_search_set_members(const struct search *s, uint32_t set)
{
	return s->member + s->count[set];
}
/* With few tensors: take the best of all single changes, again and again. With many: do nothing. */
int pl_search_steepest(struct search *s, struct pl_err *err) PL_MUST;
/* Search from the present candidate to a local optimum. */
int pl_search_local_search(struct search *s, struct pl_err *err) PL_MUST;

/* ---- strategy_memory.c ---- */
int pl_search_extra_add(struct search *s, const struct pl_rewrite *rw, struct pl_err *err) PL_MUST;
/* The highest peak of the worker, settled. */
int pl_search_worker_peak(struct worker *l, struct peak *out, struct pl_err *err) PL_MUST;

/* ---- lines.c ---- */
/* Apply the lines to a rewriter (of `e`) without changes; the mean step, INFINITY after a failure.
 */
int pl_search_carry_out_plan(const struct search *s, struct pl_edit *e, struct pl_rewriter *r,
			     const struct pl_plan *p, double *mean, struct pl_err *err) PL_MUST;
/* Write the best candidate as lines of the plan, each with the time that it saves. */
int pl_search_write_lines(struct search *s, struct pl_err *err) PL_MUST;

#endif
