/*
 * schema.h - paceline-schema(5): how a table of measurements (CSV) says which operation took how
 * long on which device; and the reading of such tables.
 */
#ifndef PL_KERNEL_SCHEMA_H
#define PL_KERNEL_SCHEMA_H

#include "io/csv.h"
#include "kernel/device.h"
#include "kernel/kernel.h"
#include "lang/lang.h"

extern const struct pl_lang_schema pl_schema_schema; /* the language */

struct pl_schema; /* opaque; constant while it is used */
/* A name of one that is built in ("neusight", "vidur", "mist"), or a file. */
int pl_schema_open(const char *name, struct pl_schema **s, struct pl_err *err) PL_MUST;
/* From text, for models that keep theirs. `name`: for messages. */
int pl_schema_parse(const char *text, const char *name, struct pl_schema **s,
		    struct pl_err *err) PL_MUST;
void pl_schema_free(struct pl_schema *s); /* NULL is fine */
const char *pl_schema_name(const struct pl_schema *s);
const char *pl_schema_text(const struct pl_schema *s);
/* Is a row of the table one operation, whose columns may be repeated in the output? Else a row has
 * several, each in columns of its own. */
bool pl_schema_is_long(const struct pl_schema *s);

/* The tile of a product that a kernel's name says ("ampere_sgemm_128x64_tn"); all 0: none. */
struct pl_tile {
	uint16_t a, b;
	uint8_t sliced; /* threads of a block divide the sum among them */
};
struct pl_tile pl_tiles_from_name(const char *name);

/* An operation of a table. Texts live until the callback returns. */
struct pl_measure {
	struct pl_kernel k; /* k.op has no meaning */
	bool known;	    /* the schema knows the operation: k is valid */
	const char *op;	    /* its name */
	const char *model;  /* what it is a part of; "" unknown */
	uint32_t device;    /* index into devices */
	double ns;	    /* NAN: not measured */
	struct pl_tile tile;
	int64_t line;	 /* of the table, from 1 */
	int64_t row;	 /* of its data, from 1 */
	uint32_t column; /* of the latency, from 1; 0: there is none */
};

struct pl_measure_opts {
	const struct pl_schema *schema;
	const struct pl_devices *devices;
	const char *device; /* all rows are of it, whatever the table says; NULL: as it says */
	double unit_ns;	    /* of latencies, in place of the schema's; 0 */
	bool measured;	    /* each operation must have a latency */
	bool no_latencies;  /* they are not read: pl_measure.ns is NAN */
	const struct pl_log *log;
	void *arg;
	/* The names of the columns; may be NULL. */
	int (*header)(void *arg, const struct pl_csv_row *raw, struct pl_err *err);
	int (*measure)(void *arg, const struct pl_measure *m, const struct pl_csv_row *raw,
		       struct pl_err *err);
};
/*
 * Read a table. Calls measure() for each operation in the order of the rows, and for unknown
 * operations of rows too. What was not measured (the schema's `missing`) is left out if `measured`
 * is set, and counted in a warning. PL_EDATA names file, line and column.
 */
int pl_table_read(struct pl_in *in, const struct pl_measure_opts *o, struct pl_err *err) PL_MUST;

/* "ns", "us", "ms", "s"; 0: none of them. */
double pl_schema_unit(const char *word);

#endif
