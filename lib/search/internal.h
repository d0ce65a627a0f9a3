/*
 * internal.h - the shared part of strategies: workers that simulate, the budget, the bound, the
 * rewrites that are applied first, and the choice that is made jointly with these.
 *
 * This file does not know the content of a choice. The choice of buckets is in buckets_internal.h,
 * which only the strategies of buckets include (tests/lint).
 */
#ifndef PL_SEARCH_INTERNAL_H
#define PL_SEARCH_INTERNAL_H

#include "search/search.h"

/* The simulated object. The structure of a strategy begins with it. */
struct candidate {
	double mean; /* the step, simulated; INFINITY: it cannot be done */
};

/* A copy of the edit for one thread; the present choice of the search is applied to it. */
struct worker {
	struct search *s;
	struct pl_edit e;
	struct pl_rewriter *r;
	size_t root; /* mark after the extras */
	uint32_t depth, number;
	uint64_t at; /* version of the present choice */
	bool probed; /* some candidate was simulated in one step only */
	int rc;
	struct pl_err err;
};

/* Apply the candidate to the worker and settle. PL_EDATA: it cannot be done. */
typedef int apply_candidate(struct worker *l, const struct candidate *c, struct pl_err *err);

struct search {
	const struct pl_search_opts *o;
	const struct pl_cost *cost;
	struct pl_plan *p;
	const struct pl_graph *whole;
	const struct pl_graph *g; /* reduced, if possible */
	struct pl_graph reduced;
	double tolerance; /* of the reduced graph, see pl_search_reduce() */
	bool sharded;	  /* parameters are: the groups are chosen, and no buckets */
	bool parted;	  /* the workers have pl_edit_part_steps() */
	uint32_t probe;	  /* the only step that is simulated, PL_NONE: all */
	struct pl_sim *sim;
	struct worker *worker;
	uint32_t n_workers;
	struct pl_queue *queue;
	struct pl_arena arena; /* of arrays and names */
	/* the batch that the workers simulate, see pl_search_simulate() */
	struct candidate *const *batch;
	size_t n_batch;
	apply_candidate *apply;
	bool from_present;
	/* the choice that is made jointly with the extras */
	struct choices *choices;
	bool has_choices;			 /* false: there is nothing to choose */
	struct candidate *now, *best, *recorded; /* present, best ever, as recorded */
	uint64_t version;			 /* of now; 0: none is present */
	struct pl_rewrite
		*extra; /* applied before the choice; strings live as long as the search */
	size_t n_extra, cap_extra;
	size_t n_extra_lines; /* of the plan: they come first, and some may have been dropped */
	double baseline, bound;
	double bias; /* modelled time of the recorded choice, less its recorded time; or NAN */
	/* Of what a plan saves, from step to step: standard deviation, ns; of so many steps. */
	double scatter;
	size_t scatter_steps;
	double samples; /* of a step, by the recorded ones: of a batch that was chosen */
	double work_ns; /* standard error of the changed operations, by their cost model */
	int64_t evaluations;
	int64_t limit_bytes; /* candidates that need more are refused; 0: no limit */
	bool recorded_fits;  /* without a line; true without a limit */
	pl_ns begun;
	size_t reserve; /* simulations that are kept for later strategies */
	size_t needed;	/* candidates of the next batch that are simulated whatever the limit */
	bool over;	/* a limit was reached, or a stop was requested */
	bool swept;
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
strategy pl_search_setting, pl_search_precision, pl_search_alternatives, pl_search_buckets,
	pl_search_servers, pl_search_memory, pl_search_fusion, pl_search_anneal;

/* ---- symmetry.c ---- */
/* Reduce the graph to one rank of each class of equal ranks, if its step then takes the same time;
 * else to one of each class of ranks that are alike but for noise. *tolerance: how far, in ns, the
 * mean step may be from that of the whole graph; 0: it is the same. */
int pl_search_reduce(const struct pl_graph *g, const struct pl_search_noise *noise,
		     struct pl_graph *out, bool *reduced, double *tolerance,
		     struct pl_err *err) PL_MUST;

/* ---- search.c, degrees.c ---- */
/* The search of the graph as it is, and the one that also divides its layers among more ranks. */
int pl_search_undivided(const struct pl_graph *g, const struct pl_cost *cost,
			const struct pl_search_opts *o, struct pl_plan *p,
			struct pl_err *err) PL_MUST;
int pl_search_degrees(const struct pl_graph *g, const struct pl_cost *cost,
		      const struct pl_search_opts *o, struct pl_plan *p,
		      struct pl_err *err) PL_MUST;

/* ---- workers.c ---- */
int pl_search_workers_open(struct search *s, struct pl_err *err) PL_MUST;
void pl_search_workers_close(struct search *s);
/* Set all workers to the recorded state plus the extras, of which they have the first `keep`. */
int pl_search_workers_root(struct search *s, size_t keep, struct pl_err *err) PL_MUST;
/* Returns rc, or 0 if the rewriter refused the change (PL_EDATA). */
int pl_search_allow_refusal(int rc, struct pl_err *err) PL_MUST;
/* Apply the choice on worker 0 and settle. */
int pl_search_worker_show(struct search *s, const struct candidate *c, struct pl_err *err) PL_MUST;
/* Simulate n candidates, each alone, on the present choice or on the extras only. */
int pl_search_simulate(struct search *s, bool from_present, struct candidate *const *batch,
		       size_t n, apply_candidate *apply, struct pl_err *err) PL_MUST;
/* Is the budget used up, or was a stop requested? */
bool pl_search_over(struct search *s);

/* ---- the joint choice: strategy_buckets.c, buckets_*.c ---- */
int pl_search_choices_open(struct search *s, struct pl_err *err) PL_MUST;
void pl_search_choices_close(struct choices *c);
/* The workers have other extras, so the times of readiness change. */
void pl_search_choices_rooted(struct choices *c);
/* The bound: with any choice, no step can be shorter. */
double pl_search_choices_bound(const struct choices *c);
/* A choice with undefined content, which lives as long as the search. */
int pl_search_choice_new(struct choices *c, struct candidate **out, struct pl_err *err) PL_MUST;
void pl_search_choice_copy(const struct choices *c, struct candidate *to,
			   const struct candidate *from);
int pl_search_choice_apply(struct worker *l, const struct candidate *c, struct pl_err *err) PL_MUST;
/* Empty the batch of choices. */
void pl_search_choice_clear(struct choices *c);
/* Add to the batch: a copy; the default of a framework; cuts of dynamic programming for the present
 * times of readiness, for this algorithm and all after it; these and equal cuts; the present choice
 * with the wanted tensors ([tensor]) together. Simulating the batch reports failures. */
struct candidate *pl_search_choice_add(struct choices *c, const struct candidate *from);
struct candidate *pl_search_choice_add_preset(struct choices *c, enum pl_preset preset);
void pl_search_choice_add_cuts(struct choices *c, unsigned algo);
void pl_search_choice_add_seeds(struct choices *c);
void pl_search_choice_add_merged(struct choices *c, const uint8_t *wanted);
/* The failure while choices were added, or 0. */
int pl_search_choice_failed(const struct choices *c, struct pl_err *err) PL_MUST;
/* Simulate the batch. Its best candidate becomes s->best, if it is better. */
int pl_search_choice_simulate(struct choices *c, struct pl_err *err) PL_MUST;
/* Make a simulated choice the present one. */
void pl_search_choice_move(struct choices *c, const struct candidate *to);
/* Search from the present choice to a local optimum. */
int pl_search_choice_improve(struct choices *c, struct pl_err *err) PL_MUST;
/* Add the lines of the present choice to the plan. */
int pl_search_choice_lines(struct choices *c, struct pl_err *err) PL_MUST;

/* ---- strategy_precision.c ---- */
/* What the model predicts without any change, less the recorded step: before the first extra. */
int pl_search_find_bias(struct search *s, struct pl_err *err) PL_MUST;

/* ---- strategy_memory.c ---- */
int pl_search_extra_add(struct search *s, const struct pl_rewrite *rw, struct pl_err *err) PL_MUST;
/* The highest peak of the worker, settled. */
int pl_search_worker_peak(struct worker *l, struct peak *out, struct pl_err *err) PL_MUST;
/* The same with the lines of a plan, on worker 0, which is as recorded afterwards. */
int pl_search_plan_peak(struct search *s, const struct pl_plan *p, struct peak *out,
			struct pl_err *err) PL_MUST;
/* Fails with PL_ENO: the smallest plan has this peak. */
int pl_search_no_fit(struct search *s, const struct peak *p, struct pl_err *err) PL_MUST;

/* ---- lines.c ---- */
/* Apply the lines to a rewriter (of `e`) without changes. *mean: INFINITY after a failure. */
int pl_search_carry_out_plan(const struct search *s, struct pl_edit *e, struct pl_rewriter *r,
			     const struct pl_plan *p, double *mean, struct pl_err *err) PL_MUST;
/* Write the extras and the best choice as lines of the plan, each with the time that it saves. */
int pl_search_write_lines(struct search *s, struct pl_err *err) PL_MUST;
/* The search has steps apart. Where they overlap, a step that is shorter alone may not come sooner
 * after the one before it: the prediction becomes that of the mean period, and lines that do not
 * make it shorter are dropped. */
int pl_search_use_period(struct search *s, struct pl_err *err) PL_MUST;
/* Where no line changes communication, the prediction has it as recorded, not as the model has it,
 * and so has replay(1). */
int pl_search_use_recorded(struct search *s, struct pl_err *err) PL_MUST;
/* Drop the lines of the plan if what they save may be an error. none: the mean step without them,
 * predicted as s->best->mean is. */
void pl_search_judge_again(struct search *s, double none);
/* Half of the 90 % interval of a saving by what differs from step to step. Of one step it is
 * assumed, as replay(1) does. */
double pl_search_scatter(double deviation, size_t steps, double saving);
/* Half of the 90 % interval of a saving, ns. */
double pl_search_error(const struct search *s, double saving);

#endif
