/* internal.h - schemas as they are kept. */
#ifndef PL_KERNEL_INTERNAL_H
#define PL_KERNEL_INTERNAL_H

#include "kernel/schema.h"

enum schema_statement {
	SCHEMA_LATENCY,
	SCHEMA_OPERATION,
	SCHEMA_DEVICE,
	SCHEMA_MODEL,
	SCHEMA_KERNEL,
	SCHEMA_TYPE,
	SCHEMA_FILE,
	SCHEMA_LET,
	SCHEMA_OP,
	SCHEMA_STATEMENTS
};

struct schema_source { /* of a name: one of these, or none */
	const char *column;
	bool folder, file;
};
struct schema_let {
	const char *name, *value, *when; /* when NULL: always */
};
struct schema_op {
	const char *names, *as, *when; /* as NULL: its name */
	uint8_t family, type;
	const char *dim[PL_KERNEL_DIMS]; /* expressions; NULL: the default */
};
struct pl_schema {
	struct pl_arena arena;
	const char *name, *text;
	const char *latency, *operation, *kernel;
	double unit_ns, missing;
	struct schema_source device, model;
	uint8_t type;
	struct schema_let *let;
	size_t n_lets, cap_lets;
	struct schema_op *op;
	size_t n_ops, cap_ops;
	const char **file; /* patterns */
	size_t n_files, cap_files;
};

/* The "=" of a condition "NAME=WORD", which compares a text; NULL: it is an expression. */
const char *pl_schema_equal(const char *when);

struct schema_text { /* a variable of the name of a table */
	char *name, *value;
};
struct schema_name {		  /* of a table */
	char *folder, *file;	  /* "a40" and "phi-2" of "x/a40/phi-2.csv.gz" */
	struct schema_text *text; /* of the first pattern that fits; freed by the caller */
	size_t n, cap;
};
/* *to: zero-initialised; its names live as long as the arena. */
int pl_schema_read_name(const struct pl_schema *s, const char *name, struct pl_arena *a,
			struct schema_name *to, struct pl_err *err) PL_MUST;

extern const struct schema_built_in {
	const char *name, *text;
} pl_schema_built_in[]; /* the last has no name */

#endif
