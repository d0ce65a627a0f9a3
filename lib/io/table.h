/*
 * table.h - report tables: aligned text, CSV, TSV, JSON lines or a JSON array, from the same rows.
 */
#ifndef PL_TABLE_H
#define PL_TABLE_H

#include "io/write.h"

enum pl_table_format { PL_TABLE_TEXT, PL_TABLE_CSV, PL_TABLE_TSV, PL_TABLE_JSONL, PL_TABLE_JSON };

enum pl_cell { PL_CELL_STR, PL_CELL_I64, PL_CELL_NS, PL_CELL_BYTES, PL_CELL_REAL, PL_CELL_PERCENT };

struct pl_column {
	const char *key;   /* of CSV and JSON, with its unit: "self_ns" */
	const char *title; /* of text: "self" */
	enum pl_cell
		type; /* NS: a readable unit in text, plain ns elsewhere; PERCENT: a share 0..1 */
	int max;      /* of text: cut longer strings in the middle, 0: never */
};

struct pl_table; /* rows are collected, then printed at once */
struct pl_table *pl_table_new(const struct pl_column *cols, size_t n, struct pl_err *err);
/* One value a column: const char * for STR, int64_t for I64/NS/BYTES, double for REAL/PERCENT. NULL
 * strings and INT64_MIN are empty cells. */
int pl_table_row(struct pl_table *t, struct pl_err *err, ...) PL_MUST;
size_t pl_table_rows(const struct pl_table *t);
/* The same, into a writer. */
void pl_table_write(const struct pl_table *t, struct pl_writer *w, enum pl_table_format f,
		    const char *title);
/* `title`: a heading line in text (NULL none). JSON is an array; a report that is an object with a
 * "schema" uses pl_table_json(). */
int pl_table_print(const struct pl_table *t, struct pl_out *out, enum pl_table_format f,
		   const char *title, struct pl_err *err) PL_MUST;
/* As the value of the writer's current key: an array of objects. */
void pl_table_json(const struct pl_table *t, struct pl_writer *w);
void pl_table_free(struct pl_table *t);

#endif
