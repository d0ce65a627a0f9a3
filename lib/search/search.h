/*
 * search.h - the best set of rewrites, under limits.
 *
 * The search follows dPRO (Hu et al., MLSys 2022: along the critical path, on a coarsened view, by
 * partial replay, with symmetry), in an exact form. Dynamic programming finds the boundaries of
 * buckets over the gradients in the order of readiness. Then a local search simulates every
 * candidate incrementally on the graph itself. With a given `seed` and `evaluations` the result is
 * deterministic for any number of threads.
 */
#ifndef PL_SEARCH_H
#define PL_SEARCH_H

#include "core/pool.h"
#include "rewrite/rewrite.h"
#include "sim/sim.h"

/* Default buckets of frameworks. */
enum pl_preset {
	PL_PRESET_SEARCH,  /* no default: search */
	PL_PRESET_BEST,	   /* the best default; no search */
	PL_PRESET_NONE,	   /* as recorded */
	PL_PRESET_DDP,	   /* PyTorch DDP: 25 MiB, the first 1 MiB */
	PL_PRESET_HOROVOD, /* fused up to 128 MiB, its default since 0.21 */
	PL_PRESET_EACH,	   /* one tensor at a time */
	PL_PRESET_ALL,	   /* all in one */
	PL_PRESET_COUNT_
};

/* Random differences between ranks and between steps of a recording, as a share of the mean. */
struct pl_search_noise {
	double work; /* the work of one rank in a step, without waits */
	double step; /* the length of a step */
	/* The mean step, or the mean period where steps overlap, before steps were folded or left
	 * out: a plan has its times by it. 0: not known */
	double mean_ns;
	size_t steps; /* of so many steps are both the standard errors; 0: not known */
};
/* The standard deviations from step to step; 0 if there is only one step. */
int pl_search_noise_find(const struct pl_graph *g, struct pl_search_noise *noise,
			 struct pl_err *err) PL_MUST;

struct pl_search_opts {
	enum pl_preset preset;
	/* Standard errors of the times in the graph. A caller that folds steps or leaves steps out
	 * measures them before that; all 0: the search measures them from the steps of the graph.
	 * Ranks that are alike within the noise are simulated as one. */
	struct pl_search_noise noise;
	pl_ns limit_ns;	     /* wall time; 0: none */
	int64_t evaluations; /* simulations; 0: none */
	uint64_t seed;
	int64_t memory_bytes;				  /* peak allowed; 0: any */
	bool fuse, partition, order, algorithm, priority; /* rewrites that may be used */
	bool accumulate, recompute;			  /* only where memory_bytes needs them */
	bool wrap, prefetch, keep; /* groups of sharded parameters are joined; are gathered earlier;
				    * keep them until the backward pass */
	bool loader;		   /* workers that read batches */
	bool any;		   /* propose the best plan even if its saving may be an error */
	bool precision;		   /* bf16 for all operations, if that helps */
	bool device, batch;	   /* another device, another batch; the caller has a cost model */
	bool tensor;		   /* layers divided among 2, 4 or 8 ranks */
	bool keep_ranks; /* with `tensor` alone: of the same ranks, with the same samples a step */
	bool fuse_ops;	 /* operations that follow one another */
	const char *const
		*fuse_glob; /* names of operations that may be fused; none: pl_search_fusable() */
	size_t n_fuse_globs;
	double fuse_share; /* time of fused operations as a share of the sum; 0: 1 */
	struct pl_memory_opts memory;
	const struct pl_log *log; /* NULL: silence */
	struct pl_pool *pool;	  /* NULL: this thread */
	volatile const int *stop; /* nonzero: stop and write the best plan so far; NULL: never */
};
/*
 * Fills the empty plan: base, rewrites with their savings, baseline, prediction, bound, peak. The
 * bound is the longer of two times: the step with free synchronisation, and the step with all
 * gradients in one message that begins when the first gradient is ready. All steps of the graph
 * have equal weight. The prediction has them in sequence; the search has them apart. Without a
 * limit the search ends when no single change helps; with a limit it continues from other plans
 * until then. A graph without communication gives a valid plan without rewrites. PL_ENO (the answer
 * is "no"): no plan fits the memory, and *p is the smallest one found.
 *
 * With `tensor` the layers are divided among 2, 4 or 8 ranks, if that makes the time for a sample
 * shorter; the other lines are those of the search of the divided graph.
 *
 * With another batch, baseline_ns is the time of the recorded steps for as many samples.
 *
 * The model of communication has errors, which are mostly the same before and after a change.
 * Therefore the prediction is the recorded step plus the modelled change: model_ns less the
 * modelled step with the recorded buckets.
 */
int pl_search(const struct pl_graph *g, const struct pl_cost *cost, const struct pl_search_opts *o,
	      struct pl_plan *p, struct pl_err *err) PL_MUST;

/* Do compilers usually fuse this operator? Elementwise and normalisations: yes; products: no. */
bool pl_search_fusable(unsigned op);

/* ---- parts ----------------------------------------------------------------------------------- */

/*
 * Boundaries of buckets by dynamic programming. Tensors i = 0 .. n-1 in the order of readiness;
 * ready_ns ascending; one channel that carries buckets one after the other; a bucket of tensors
 * i..j takes t(bytes of i..j) and begins when j is ready and the one before is done. Minimises the
 * end of the last. O(n^2) calls of t. first[b] is bucket b's first tensor; *n_buckets of them.
 */
struct pl_bucket_problem {
	size_t n;
	const pl_ns *ready_ns;
	const int64_t *bytes;
	pl_ns (*transfer)(void *arg, int64_t bytes);
	void *arg;
	pl_ns issue_ns; /* additional time of the channel for each bucket */
};
int pl_search_bucket_dp(const struct pl_bucket_problem *p, uint32_t *first, uint32_t *n_buckets,
			pl_ns *end_ns, struct pl_err *err) PL_MUST;

#endif
