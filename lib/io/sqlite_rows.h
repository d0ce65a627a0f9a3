/*
 * sqlite_rows.h - the rows of a table of an SQLite database, read from the pages of the file.
 * Private to sqlite.c, which finds the table and asks SQLite where this reader does not apply.
 */
#ifndef PL_SQLITE_ROWS_H
#define PL_SQLITE_ROWS_H

#include "core/core.h"

struct pl_sqlite_rows;
struct pl_sqlite_table { /* of plain rows: with a rowid, nothing generated */
	const char *name;
	uint32_t root; /* page */
	uint64_t file_bytes;
	const int *slot; /* of each column: its place among those wanted, -1 none */
	unsigned n_columns, n_wanted;
};

/* fd and name are borrowed. *out NULL without an error: the file is one that SQLite has to read. */
int pl_sqlite_rows_open(const struct pl_sqlite_table *t, int fd, const char *name,
			struct pl_sqlite_rows **out, struct pl_err *err) PL_MUST;
void pl_sqlite_rows_close(struct pl_sqlite_rows *r); /* NULL is allowed */
/* As the functions of sqlite.h. A value that no column of the table has is NULL. */
int pl_sqlite_rows_next(struct pl_sqlite_rows *r, struct pl_err *err) PL_MUST;
bool pl_sqlite_rows_null(const struct pl_sqlite_rows *r, int column);
int64_t pl_sqlite_rows_int(const struct pl_sqlite_rows *r, int column, int64_t none);
const char *pl_sqlite_rows_text(struct pl_sqlite_rows *r, int column, size_t *n);

#endif
