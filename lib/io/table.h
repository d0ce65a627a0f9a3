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

union pl_table_cell {
	int64_t i;
	double r;
	const char *s; /* in the arena, or NULL */
};
/* Rows are collected, then printed at once. Initialise as PL_TABLE(columns), which are borrowed. */
struct pl_table {
	const struct pl_column *col;
	size_t n_cols, n_rows, cap;
	union pl_table_cell *cell; /* (row, column) */
	struct pl_arena text;
	struct pl_err fail; /* the first failure; later rows are left out, and printing fails */
};
#define PL_TABLE(columns)                                                                          \
	{                                                                                          \
		.col = (columns), .n_cols = PL_LEN(columns)                                        \
	}
void pl_table_fini(struct pl_table *t);
/* One value for each column: const char * for STR, int64_t for I64/NS/BYTES, double for
 * REAL/PERCENT. NULL strings and INT64_MIN are empty cells. */
void pl_table_row(struct pl_table *t, ...);
/* `title`: a heading in text (NULL none). JSON: an array; for objects see pl_table_json(). */
void pl_table_write(const struct pl_table *t, struct pl_writer *w, enum pl_table_format f,
		    const char *title);
int pl_table_print(const struct pl_table *t, struct pl_out *out, enum pl_table_format f,
		   const char *title, struct pl_err *err) PL_MUST;
/* Writes the table as the value of the writer's current key, an array of objects. */
void pl_table_json(const struct pl_table *t, struct pl_writer *w);

/* A report of several tables is an array of these. */
struct pl_table_section {
	const char *key, *title; /* of JSON, of text */
	const struct pl_column *col;
	size_t n_cols;
	void (*fill)(void *report, struct pl_table *t); /* adds the rows */
};
/* All tables as members of a JSON object. */
void pl_table_sections_json(const struct pl_table_section *s, size_t n, void *report,
			    struct pl_writer *w);
/* Write each table with rows as text, after an empty line. A table much longer than `top` (0: no
 * limit) shows its first rows, then "(N more: WHERE)"; `more` is the text after the number. */
void pl_table_sections_text(const struct pl_table_section *s, size_t n, void *report, size_t top,
			    const char *more, struct pl_writer *w);

#endif
