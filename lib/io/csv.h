/* csv.h - reading CSV through libcsv, row by row. */
#ifndef PL_CSV_H
#define PL_CSV_H

#include "io/stream.h"

struct pl_csv_row {
	const char *const *field; /* NUL-terminated, valid during the call */
	const size_t *len;
	size_t n;
	int64_t line; /* of its first byte, from 1 */
	/* The row as pl_write_csv() writes it, of n_text bytes without the end of the line; NULL:
	 * it was written in another way. */
	const char *text;
	size_t n_text;
};
/* Call row() for each row; a negative return ends the reading with that code. Skips empty lines. */
int pl_csv_read(struct pl_in *in,
		int (*row)(void *arg, const struct pl_csv_row *r, struct pl_err *err), void *arg,
		struct pl_err *err) PL_MUST;

#endif
