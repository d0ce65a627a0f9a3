/*
 * Samples of a second file behind those of the first, to be held out.
 *
 * Each file numbers its own classes and bytes, so words are looked up among those of the first
 * file. Both lists are sorted. O(samples).
 */
#include <string.h>

#include "data/internal.h"

/* Are the samples of one kind and shape? */
static int same_kind(const struct pl_dataset *d, const struct pl_dataset *held, const char *name,
		     struct pl_err *err)
{
	const char *what =
		!d->token != !held->token	  ? "tokens or numbers"
		: !d->y != !held->y		  ? "classes or targets"
		: d->n_targets != held->n_targets ? "number of targets"
		: !d->columns != !held->columns	  ? "a file with columns, or without"
		: d->columns != held->columns	  ? "names of columns"
		: !d->n_words != !held->n_words	  ? "words or numbers"
		: !d->token && (d->n_dims != held->n_dims ||
				memcmp(d->dim, held->dim, (size_t)d->n_dims * sizeof(*d->dim)) != 0)
			? "shape of a sample"
			: NULL;

	return what ? pl_fail(err, PL_EDATA, "%.200s differs from the data to train on: %s", name,
			      what)
		    : 0;
}

/* new_number[number in held]: the number that the word has in d. */
static int match_words(const struct pl_dataset *d, const struct pl_dataset *held, const char *name,
		       int32_t *new_number, struct pl_err *err)
{
	size_t at = 0;

	for (size_t i = 0; i < held->n_words; i++) {
		while (at < d->n_words && strcmp(d->word[at], held->word[i]) < 0)
			at++;
		if (at == d->n_words || strcmp(d->word[at], held->word[i]) != 0)
			return pl_fail(
				err, PL_EDATA,
				"%.200s has the %s \"%.60s\", which the data to train on lack",
				name, d->token ? "byte" : "class", held->word[i]);
		new_number[i] = (int32_t)at;
	}
	return 0;
}

/* *v of `n` elements with those of `more` behind them, `each` values a sample. */
static int append(void *v, size_t size, size_t each, const struct pl_dataset *d,
		  const struct pl_dataset *held, const void *more, struct pl_err *err)
{
	size_t cap = d->n * each;
	char *to;

	if (!more)
		return 0;
	PL_CHECK(pl_grow(v, &cap, (d->n + held->n) * each, size, err));
	memcpy(&to, v, sizeof(to));
	memcpy(to + d->n * each * size, more, held->n * each * size);
	return 0;
}

static int join(struct pl_dataset *d, const struct pl_dataset *held, const int32_t *new_number,
		struct pl_err *err)
{
	int32_t *number;

	PL_CHECK(append(&d->x, sizeof(*d->x), d->size, d, held, held->x, err));
	PL_CHECK(append(&d->target, sizeof(*d->target), (size_t)d->n_targets, d, held, held->target,
			err));
	PL_CHECK(append(&d->y, sizeof(*d->y), 1, d, held, held->y, err));
	PL_CHECK(append(&d->token, sizeof(*d->token), 1, d, held, held->token, err));
	number = d->y ? d->y : d->token;
	for (size_t i = d->n; new_number && number && i < d->n + held->n; i++)
		number[i] = new_number[number[i]];
	if (!new_number) {
		d->classes = held->classes > d->classes ? held->classes : d->classes;
		d->vocab = held->vocab > d->vocab ? held->vocab : d->vocab;
	}
	d->train = d->n;
	d->n += held->n;
	return 0;
}

int pl_dataset_join(struct pl_dataset *d, const struct pl_dataset *held, const char *name,
		    struct pl_err *err)
{
	int32_t *new_number = NULL;
	int rc;

	PL_TRY(same_kind(d, held, name, err));
	if (held->n_words) {
		PL_TRY(pl_alloc(&new_number, held->n_words, sizeof(*new_number), err));
		PL_TRY(match_words(d, held, name, new_number, err));
	}
	rc = join(d, held, new_number, err);
out:
	pl_free(new_number);
	return rc;
}
