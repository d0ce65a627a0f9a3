/* program.h - what the files of the program `trace` share. */
#ifndef TRACE_PROGRAM_H
#define TRACE_PROGRAM_H

#include "core/cmd.h"
#include "export/export.h"
#include "inputs/inputs.h"
#include "record/command.h"
#include "trace/filter.h"

struct config {
	struct pl_common c; /* first */
	const char *from, *to, *time, *kind, *name, *rank_from, *columns;
	struct pl_list rank, step;
	int64_t top;
	bool check, salvage;
	struct pl_record record;
};

/* The options for reading, except threads and execution traces. */
struct pl_import_opts import_opts(const struct config *c);
/* Refuse options without effect: where a command is recorded, those of files; with --check, those
 * that choose events or say how they are written. */
int check_options(const struct config *c, struct pl_err *err) PL_MUST;

/* ---- select.c -------------------------------------------------------------------------------- */

struct selection {
	struct pl_filter f;
	int64_t *rank, *step;
	bool any;
};
int selection_parse(struct selection *s, const struct config *c, struct pl_err *err) PL_MUST;
void selection_fini(struct selection *s);

/* ---- load.c -----------------------------------------------------------------------------------
 */

/* The form of the output with this name, NULL. */
const struct pl_exporter *find_format(const char *name);
/* All inputs, in order, as one trace in the form that the options ask for. */
int load_all(struct config *c, struct pl_inputs *in, const struct selection *sel,
	     struct pl_err *err) PL_MUST;

/* ---- record.c -------------------------------------------------------------------------------- */

/* The operands end with a command, which stands behind "--". */
int record(struct config *c, char **argv, struct pl_err *err) PL_MUST;

/* ---- check.c --------------------------------------------------------------------------------- */

int check_all(struct config *c, struct pl_inputs *in, struct pl_err *err) PL_MUST;

#endif
