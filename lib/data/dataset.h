/*
 * dataset.h - training samples in memory: from IDX, CSV, NPY or token files, or made from a seed.
 */
#ifndef PL_DATASET_H
#define PL_DATASET_H

#include "core/core.h"
#include "io/stream.h"

struct pl_dataset {
	size_t n;	    /* samples; of tokens: of the text */
	int n_dims, dim[4]; /* of a sample; images of IDX: (1, H, W) */
	size_t size;	    /* values of a sample: the product of dim */
	float *x;	    /* (n, dim...) as in the file; NULL for tokens */
	int32_t *y;	    /* (n): classes from 0; NULL */
	float *target;	    /* (n, n_targets): regression; NULL */
	int n_targets, classes;
	int32_t *token; /* (n): a text; NULL */
	int vocab;
	size_t train;	  /* of n, if samples to hold out were joined; 0: none were */
	uint64_t columns; /* a hash of the names of a table's columns, without the label; 0: none */
	char **word;	  /* (vocab) the text of a token, (classes) the name of a class; NULL */
	size_t n_words;	  /* of `word` */
};
/*
 * "idx:IMAGES,LABELS" (gzip or plain), "csv:FILE[,label=COLUMN][,target=COLUMN]..." (libcsv; a
 * header line; numbers; by default the last column is the label), "npy:X,Y" (Y whole numbers:
 * classes, else targets), "tokens:FILE[,type=u16|bytes]" (.npy; .bin and u16: the format of
 * nanoGPT; else a text: each different byte is a token, in their order),
 * "synthetic:samples=N,dims=3x32x32, classes=10[,noise=F]", "synthetic:samples=N,dims=8,targets=2"
 * or "synthetic:tokens=N,vocab=V", made from the seed so that it can be learned. PL_EUSAGE for a
 * text that names no data; PL_EDATA names file and place.
 */
int pl_dataset_open(const char *spec, uint64_t seed, struct pl_dataset *d,
		    struct pl_err *err) PL_MUST;
void pl_dataset_fini(struct pl_dataset *d);
/*
 * Appends the samples of `held`, to be held out: then pl_dataset_train() is the number of those
 * before, whatever its split. Classes and tokens that have words get the numbers that the words
 * have in d. `held` stays the caller's. PL_EDATA if kind, shape, columns or words are not those of
 * d; `name` of held is for that message.
 */
int pl_dataset_join(struct pl_dataset *d, const struct pl_dataset *held, const char *name,
		    struct pl_err *err) PL_MUST;
/* The number of training samples; the others are held out. n x split, rounded, at least 1 (of a
 * text: at least 2) and, with a split below 1, at most n - 1. */
size_t pl_dataset_train(const struct pl_dataset *d, double split);
/*
 * Normalise x to mean 0 and variance 1 over the first `train` samples: by column if a sample has
 * one dimension, by channel for images (C, H, W), else all values together. Constant values become
 * 0. The other samples are moved and scaled by the same numbers.
 */
void pl_dataset_normalise(struct pl_dataset *d, size_t train);

/*
 * The samples of a step, of n from `first` on: without replacement within an epoch, shuffled by the
 * seed, the same for any number of ranks. Rank r of R with batch B takes the r-th B of the step's R
 * x B, and an epoch may end inside a step. Of tokens: places in the text, drawn, with context + 1
 * tokens behind them (the caller checks n > context). n > 0; index has room for B.
 */
void pl_dataset_draw(const struct pl_dataset *d, size_t first, size_t n, uint64_t seed,
		     int64_t step, int rank, int ranks, int batch, int context, size_t *index);
/* The same for `batch` samples from number `at` on, counted over all epochs. */
void pl_dataset_draw_from(const struct pl_dataset *d, size_t first, size_t n, uint64_t seed,
			  uint64_t at, int batch, int context, size_t *index);
/*
 * The samples as a batch; NULL: not wanted. x (B, dim...), y (B), target (B, n_targets). For
 * tokens: ids (B, context), and in y (B, context) the tokens that follow.
 */
void pl_dataset_batch(const struct pl_dataset *d, const size_t *index, int batch, int context,
		      float *x, int32_t *ids, int32_t *y, float *target);

#endif
