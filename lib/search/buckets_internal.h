/*
 * buckets_internal.h - the choice of buckets, which only the strategies of buckets know: the sets
 * of tensors, their order, their chunks and their algorithms.
 */
#ifndef PL_SEARCH_BUCKETS_INTERNAL_H
#define PL_SEARCH_BUCKETS_INTERNAL_H

#include "search/internal.h"

/* One choice of buckets for the tensors. */
struct bucket_choice {
	struct candidate head;
	struct pl_buckets b;
	bool ordered;  /* issued in the order of numbers; else by readiness */
	bool urgent;   /* carried by s->priority, not in the order of issue */
	uint8_t *algo; /* [set]: enum pl_algo, PL_REWRITE_SAME_ALGORITHM */
	struct bucket_choice *next;
};

struct choices {
	struct search *search;
	const struct pl_search_opts *o; /* of the search */
	const struct pl_cost *cost;
	struct pl_arena arena;
	uint32_t n; /* tensors of the base, in order of readiness */
	const struct pl_rewrite_tensor *tensor;
	pl_ns *ready;
	uint32_t *priority; /* [tensor]: 1 is the most urgent; NULL: all are equal */
	uint8_t *algos;	    /* [tensor]: its bucket may have the first so many of enum pl_algo */
	uint8_t plain;	    /* if none is chosen: ring, or PL_REWRITE_SAME_ALGORITHM */
	uint32_t servers;   /* of buckets with PL_ALGO_PS */
	struct bucket_choice *now, *best, *recorded; /* those of the search */
	struct candidate *spare;
	struct bucket_choice *all; /* that were made */
	uint32_t n_groups;	   /* of tensors that may share buckets */
	uint32_t *alike; /* [tensor]: the first of its name; NULL: each name is in one group */
	struct candidate **batch;
	size_t n_batch, had_batch, cap_batch;
	int rc; /* the first failure while choices were added */
	struct pl_err failure;
	uint32_t *count, *member; /* [set + 1], [tensor]: members of the sets of now */
	uint32_t *scratch;	  /* [2 n] */
	uint8_t *hot;		  /* [tensor] */
	uint64_t rng;
	uint32_t n_probes;
};

static inline struct bucket_choice *pl_search_batch_at(const struct choices *s, size_t i)
{
	return (struct bucket_choice *)s->batch[i];
}

/* ---- strategy_buckets.c ---- */
/* Search from the best choice, and from new cuts: the best and up to two others. */
int pl_search_buckets_improve(struct choices *s, struct pl_err *err) PL_MUST;

/* ---- buckets_candidates.c ---- */
/* Number the sets from 0 without gaps, by readiness or in their present order. */
void pl_search_cand_number(struct choices *s, struct bucket_choice *c);
bool pl_search_cand_same(const struct choices *s, const struct candidate *a,
			 const struct candidate *b);
/* Is a shorter than b, or equally long and simpler? */
bool pl_search_cand_better(const struct candidate *a, const struct candidate *b);
/* The greatest number of algorithms that any bucket may have. */
unsigned pl_search_algos(const struct choices *s);
/* Add a copy of `from` to the end of the batch. After a failure it is not part of the batch. */
struct bucket_choice *pl_search_batch_add(struct choices *s, const struct bucket_choice *from);

/* ---- buckets_local.c ---- */
/* The tensors of a set of the present choice, in order of readiness. */
static inline uint32_t pl_search_set_size(const struct choices *s, uint32_t set)
{
	return s->count[set + 1] - s->count[set];
}
static inline const uint32_t *pl_search_set_members(const struct choices *s, uint32_t set)
{
	return s->member + s->count[set];
}
/* If there are few tensors, repeat the best of all single changes; if many, do nothing. */
int pl_search_steepest(struct choices *s, struct pl_err *err) PL_MUST;

#endif
