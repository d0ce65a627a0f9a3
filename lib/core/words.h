/*
 * words.h - words that several modules use, each list once; lists of words "a|b|c".
 *
 * A list is a macro whose argument separates the words: "|" in options, "\0" for pl_words_name().
 */
#ifndef PL_WORDS_H
#define PL_WORDS_H

#include "core/core.h"

#define PL_WORDS_NETWORK(S) "ring" S "tree" S "halving-doubling" S "hierarchical"
/* Algorithms of collectives: in plans (enum pl_algo), and in `run` (enum pl_calgo). */
#define PL_WORDS_PLAN_ALGORITHM(S) PL_WORDS_NETWORK(S) S "ps"
#define PL_WORDS_COMM_ALGORITHM(S) "auto" S PL_WORDS_NETWORK(S) S "direct"
/* Precisions of jobs, and of plans, which also have those of other frameworks. */
#define PL_WORDS_JOB_PRECISION(S)  "fp32" S "tf32" S "bf16"
#define PL_WORDS_PLAN_PRECISION(S) PL_WORDS_JOB_PRECISION(S) S "fp16" S "fp8"

/* Word i of a list with "\0" between its words; NULL after the last. */
const char *pl_words_name(const char *list, unsigned i);
/* The index of s in "a|b|c", -1. */
int pl_words_find(const char *list, const char *s);

/* PL_EDATA if the glob (may be NULL) matches none of n words, because it may be misspelt. */
int pl_words_check(const char *glob, const char *what, const char *(*word)(unsigned), unsigned n,
		   struct pl_err *err);

/* The known word that differs least from `s`. Initialise as { .s = s }. */
struct pl_words_near {
	const char *s;
	size_t distance; /* of the nearest word, 0: no word is near */
	char word[64];
};
/* Compare with one more known word, of n bytes. */
void pl_words_near(struct pl_words_near *near, const char *word, size_t n);
/* "; did you mean WORD?", or nothing, into `out`. */
const char *pl_words_near_text(const struct pl_words_near *near, char *out, size_t size);

#endif
