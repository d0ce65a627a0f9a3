/*
 * inputs.h - the files that people name: which they are and what each holds; the events of several
 * files as one trace; and the graph of a job from the files of a profiler, by the stages that the
 * programs trace, merge and graph are in a pipe.
 */
#ifndef PL_INPUTS_H
#define PL_INPUTS_H

#include <sys/types.h>

#include "core/cmd.h"
#include "graph/graph.h"
#include "import/import.h"
#include "plan/job.h"
#include "plan/model.h"

/* ---- find.c: which files there are ----------------------------------------------------------- */

struct pl_input {
	char *path;
	struct pl_in *in; /* a pipe, looked into; NULL: open the path */
	uint32_t kind;	  /* of a stream (enum pl_kind); PL_NONE: cut in its header; 0: foreign */
	bool merged;	  /* a trace that begins with a merge */
	bool et;	  /* an execution trace */
	bool known;	  /* an importer recognises it, or it cannot be told yet (an empty file) */
	bool layers;	  /* a table of layers */
	bool operations;  /* a table of operations, opgraph */
	bool chakra;	  /* an execution trace of Chakra, which is the graph of a rank */
	bool job;	  /* a job of run(1) */
	bool xla;	  /* a profile of JAX or TensorFlow */
	int32_t process; /* whose profile it is, from 1; 0: the only one, or its name tells the rank
			  */
	bool file;	 /* a regular file: this one */
	dev_t dev;
	ino_t ino;
};
struct pl_inputs {
	struct pl_input *v;
	size_t n, cap, twice; /* twice: left out, because they are there already */
	const char *folder;   /* the only operand, if it is a folder; not owned */
};
struct pl_inputs_opts {
	const struct pl_log *log;
	bool every_kind; /* take streams of every kind from folders, not only traces */
	bool forced;	 /* the format is given: nothing counts as execution trace */
	bool pairs;	 /* a graph, merged trace or table that is named twice is two inputs */
};
bool pl_inputs_is_folder(const char *path);
/* Operands to inputs, in their order, and each folder to the traces in it; no operand: standard
 * input. */
int pl_inputs_find(struct pl_inputs *in, const struct pl_inputs_opts *o, int argc, char **argv,
		   struct pl_err *err) PL_MUST;
struct pl_in *pl_inputs_open(struct pl_input *i, struct pl_err *err); /* once an input */
const char *pl_inputs_name(const struct pl_input *i);		      /* as messages show it */
/* The name of the only one or of their folder, else "these files". */
const char *pl_inputs_all(const struct pl_inputs *in);
/* A job of run(1) and its model; both are the caller's, also after a failure. */
int pl_inputs_job(struct pl_input *i, struct pl_job *j, struct pl_model *m,
		  struct pl_err *err) PL_MUST;
void pl_inputs_fini(struct pl_inputs *in);

/* ---- tap.c: a sink that counts and passes on ------------------------------------------------- */

struct pl_inputs_progress {
	uint64_t events;
	size_t files, n_files;
};
void pl_inputs_progress_add(struct pl_inputs_progress *p, uint64_t events);

struct pl_inputs_tap {
	struct pl_sink sink;		     /* first */
	struct pl_sink *next;		     /* may be NULL */
	struct pl_inputs_progress *progress; /* may be NULL */
	uint64_t events, lost;		     /* lost: as the recorders of the segments say */
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
void pl_inputs_tap_init(struct pl_inputs_tap *t, struct pl_sink *next,
			struct pl_inputs_progress *p);
void pl_inputs_tap_fini(struct pl_inputs_tap *t);
/* After the end, with t->check. */
int pl_inputs_tap_check(const struct pl_inputs_tap *t, struct pl_err *err) PL_MUST;

/* ---- load.c: the stage `trace` --------------------------------------------------------------- */

struct pl_inputs_load {
	struct pl_import_opts import;	/* order, pool and execution traces are filled in */
	const struct pl_importer *from; /* NULL: recognised by content */
	struct pl_pool *pool;
	/* of streams */
	int level;
	const char *provenance;
	/* results */
	uint64_t events;
	uint32_t segments;
	size_t inputs;
};
/* PL_EDATA: there are only execution traces. */
int pl_inputs_check(const struct pl_inputs *in, struct pl_err *err) PL_MUST;
/*
 * Read all inputs in their order, into the sink; or, if that is NULL, each as a stream of its own
 * into `out`. With several threads every input is read by a job of its own; the bytes are the same.
 */
int pl_inputs_load(struct pl_inputs *in, struct pl_inputs_load *l, struct pl_out *out,
		   struct pl_sink *sink, struct pl_err *err) PL_MUST;

/* ---- graph.c: the stage `graph`, and the whole chain ----------------------------------------- */

enum { PL_STAGE_TRACE, PL_STAGE_MERGE, PL_STAGE_GRAPH, PL_STAGES };

struct pl_inputs_graph {
	struct pl_stage_log stage[PL_STAGES];
	struct pl_pool *pool;
	bool infer, fold, salvage, /* as in struct pl_derive_opts, struct pl_trace_reader_opts */
		verbose;	   /* describe the clocks in notes */
};
/* Set the options that all programs share; infer is true. */
void pl_inputs_graph_init(struct pl_inputs_graph *o, const struct pl_common *c,
			  struct pl_pool *pool);
/*
 * Are all inputs graphs, or do they become one? Otherwise PL_EDATA, or PL_EUSAGE for a graph among
 * other files; the message says what to type.
 */
int pl_inputs_are_graphs(const struct pl_inputs *in, bool *graphs, struct pl_err *err) PL_MUST;
/* A graph of traces that were merged, or of one rank. */
int pl_inputs_from_traces(struct pl_inputs *in, const struct pl_inputs_graph *o, struct pl_graph *g,
			  struct pl_err *err) PL_MUST;
/*
 * A graph of any traces and files of profilers: what trace | merge | graph makes of them. The
 * events are kept in a spool, without compression. A trace that is merged goes to the last stage at
 * once. Errors begin with the name of their stage.
 */
int pl_inputs_graph(struct pl_inputs *in, const struct pl_inputs_graph *o, struct pl_graph *g,
		    struct pl_err *err) PL_MUST;

#endif
