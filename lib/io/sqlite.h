/*
 * sqlite.h - SQLite databases, read only, through the system's libsqlite3.
 *
 * The library is loaded when the first database is opened, so programs that never read one start
 * without it. A database is no stream: SQLite needs a file that it can seek in.
 */
#ifndef PL_SQLITE_H
#define PL_SQLITE_H

#include "io/stream.h"

struct pl_sqlite;
struct pl_sqlite_query;

/* Do these bytes begin a database? */
bool pl_sqlite_probe(const uint8_t *p, size_t n);
/*
 * The database that `in` (borrowed) holds. If `in` is a regular file of which nothing was read, the
 * file itself is opened; else its bytes are copied to a temporary file in $TMPDIR or /tmp.
 * PL_EABSENT: there is no libsqlite3. PL_EDATA: no database.
 */
struct pl_sqlite *pl_sqlite_open(struct pl_in *in, struct pl_err *err);
void pl_sqlite_close(struct pl_sqlite *d); /* NULL is allowed */
bool pl_sqlite_has_table(struct pl_sqlite *d, const char *table);
bool pl_sqlite_has_column(struct pl_sqlite *d, const char *table, const char *column);

/*
 * One statement of SQL. Errors begin with the name of the input. Damage that SQLite finds is
 * PL_EDATA.
 */
struct pl_sqlite_query *pl_sqlite_query(struct pl_sqlite *d, const char *sql, struct pl_err *err);
/*
 * All rows of a table with these columns (names separated by commas; those that it lacks are NULL),
 * read from the pages of the file, which takes a third of the time. *q NULL without an error: it is
 * no table of plain rows, and SQL has to ask for it.
 */
int pl_sqlite_table(struct pl_sqlite *d, const char *table, const char *columns,
		    struct pl_sqlite_query **q, struct pl_err *err) PL_MUST;
void pl_sqlite_query_free(struct pl_sqlite_query *q); /* NULL is allowed */
/* Execute it again, with this value for its only parameter. */
void pl_sqlite_bind(struct pl_sqlite_query *q, int64_t v);
/* 1: there is a row; 0: there are no more. */
int pl_sqlite_next(struct pl_sqlite_query *q, struct pl_err *err) PL_MUST;
/* Columns of the row, counted from 0. Pointers are valid until the next call for this query. */
bool pl_sqlite_null(struct pl_sqlite_query *q, int column);
/* `none` if it is NULL. Text that is a number is that number. */
int64_t pl_sqlite_int(struct pl_sqlite_query *q, int column, int64_t none);
/* NULL for NULL; ended by 0. */
const char *pl_sqlite_text(struct pl_sqlite_query *q, int column, size_t *n);
const uint8_t *pl_sqlite_blob(struct pl_sqlite_query *q, int column, size_t *n);

#endif
