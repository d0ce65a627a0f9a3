/* program.h - what the files of the program `trace` share. */
#ifndef TRACE_PROGRAM_H
#define TRACE_PROGRAM_H

#include <sys/types.h>

#include "core/cmd.h"
#include "export/export.h"
#include "import/import.h"
#include "trace/filter.h"

struct config {
	struct pl_common c; /* first */
	const char *from, *to, *time, *kind, *name, *rank_from, *columns;
	struct pl_list rank, step;
	int64_t top;
	bool check, salvage;
};

/* ---- inputs.c -------------------------------------------------------------------------------- */

struct input {
	char *path;
	struct pl_in *in; /* standard input, looked into; NULL: open the path */
	bool et;	  /* an execution trace */
	bool file;	  /* a regular file: this one */
	dev_t dev;
	ino_t ino;
};
struct inputs {
	struct input *v;
	size_t n, cap, twice; /* twice: left out, because they are there already */
};
/* Operands to inputs: folders become the traces that lie in them. */
int inputs_find(struct inputs *in, const struct config *c, int argc, char **argv,
		struct pl_err *err) PL_MUST;
struct pl_in *input_open(struct input *i, struct pl_err *err); /* once an input */
const char *input_name(const struct input *i);		       /* as messages show it */
void inputs_fini(struct inputs *in);
/* The options for reading, except threads and execution traces. */
struct pl_import_opts import_opts(const struct config *c, const struct pl_log *log, int32_t order);

/* ---- select.c -------------------------------------------------------------------------------- */

struct selection {
	struct pl_filter f;
	int64_t *rank, *step;
	bool any;
};
int selection_parse(struct selection *s, const struct config *c, struct pl_err *err) PL_MUST;
void selection_fini(struct selection *s);

/* ---- tap.c: a sink that counts and passes on ------------------------------------------------- */

struct progress {
	uint64_t events;
	size_t files, n_files;
};
void progress_add(struct progress *p, uint64_t events);

struct tap {
	struct pl_sink sink;			     /* first */
	struct pl_sink *next;			     /* may be NULL */
	struct progress *progress;		     /* may be NULL */
	int (*after)(void *arg, struct pl_err *err); /* a batch was passed on; may be NULL */
	void *arg;
	uint64_t events;
	uint32_t segments, merges;
	bool check; /* look at every event */
	uint64_t *seg_events;
	uint32_t base;		/* number of segments before the last merge table */
	struct pl_member *last; /* by segment: the last event that a match names */
	size_t cap_seg, cap_last, n_last;
	uint8_t *rank; /* bit set of the ranks seen */
	size_t cap_rank;
	size_t ranks;
};
void tap_init(struct tap *t, struct pl_sink *next, struct progress *p);
void tap_fini(struct tap *t);
int tap_check(const struct tap *t, struct pl_err *err) PL_MUST; /* after the end, with t->check */

/* ---- load.c: inputs into sinks --------------------------------------------------------------- */

/* All inputs, in order, as one trace in the form that the options ask for. */
int load_all(struct config *c, struct inputs *in, const struct selection *sel,
	     struct pl_err *err) PL_MUST;

/* ---- check.c --------------------------------------------------------------------------------- */

int check_all(struct config *c, struct inputs *in, struct pl_err *err) PL_MUST;

#endif
