/* internal.h - declarations that the files dataset*.c share. */
#ifndef PL_DATA_INTERNAL_H
#define PL_DATA_INTERNAL_H

#include "data/dataset.h"
#include "data/dtype.h"

#define PL_CLASSES_MAX 65536
#define PL_VALUES_MAX  ((size_t)1 << 34) /* of x */

/* "a,b,key=value": the parts of a description, cut at commas. Zero-initialised is empty. */
struct pl_data_parts {
	char *text;	   /* owned; the parts point into it */
	const char **part; /* n of them */
	size_t n, cap;
};
/* The value of part i if it is "key=VALUE"; NULL if its key is another. */
const char *pl_data_parts_value(const struct pl_data_parts *p, size_t i, const char *key);

/* Each fills an empty dataset. The caller frees it, after a failure too. */
int pl_dataset_csv(const struct pl_data_parts *p, struct pl_dataset *d, struct pl_err *err) PL_MUST;
int pl_dataset_tokens(const struct pl_data_parts *p, struct pl_dataset *d,
		      struct pl_err *err) PL_MUST;
int pl_dataset_synthetic(const struct pl_data_parts *p, uint64_t seed, struct pl_dataset *d,
			 struct pl_err *err) PL_MUST;
/* d->size from the dimensions. */
void pl_dataset_size(struct pl_dataset *d);

/* Random numbers that depend only on these three numbers. */
uint64_t pl_dataset_hash(uint64_t seed, uint64_t a, uint64_t b);

#endif
