/* program.h - what the files of predict share. */
#ifndef PREDICT_PROGRAM_H
#define PREDICT_PROGRAM_H

#include "core/cmd.h"
#include "core/pool.h"
#include "kernel/eval.h"

#define LEARNERS PL_KERNEL_LEARNERS("|") "|net|both"
enum { LEARNER_NET = 4 }; /* it and those behind it: of tensor programs only */
enum output { OUT_AUTO, OUT_CSV, OUT_JSON, OUT_TEXT, OUT_GRAPH, OUT_C, OUT_CUDA };

#define PROGRAMS_UNSET INT64_MIN

struct config {
	struct pl_common c; /* first */
	bool train, eval, explain, intervals;
	int cross;  /* enum pl_eval_by; 0: no */
	int import; /* 1: autotvm; 0: no */
	int to;	    /* enum output */
	int learner;
	const char *target, *model, *schema, *unit, *measure;
	double discrepancy; /* weight; NAN: not given */
	double host_us;	    /* of a launch; NAN: not given */
	int64_t tune;	    /* trials; 0: the usual settings */
	int64_t programs;   /* of an operation; PROGRAMS_UNSET */
	int64_t choose;	    /* programs; -1: not wanted */
	struct pl_list device, folder, adapt;
};

/* The tables, data sheets and the model that the command line names. */
struct work {
	const struct config *c;
	struct pl_in *in;	       /* the model, when find_schema() has opened it; NULL */
	struct pl_kernel_model *model; /* NULL: none */
	struct pl_schema *schema;
	struct pl_devices devices;
	struct pl_pool *pool;
	double unit_ns; /* 0: that of the schema */
	int argc;	/* the tables; at least one, perhaps "-" */
	char **argv;
	const char **device;	 /* [table]: what --device says of it; NULL */
	const char *device_name; /* the machine that programs are measured on */
};

/* names.c: operations for a warning, by their names. */
struct names {
	struct pl_intern intern;
	struct name_count {
		pl_id name;
		size_t times;
		double weight;
	} * v;
	size_t n, cap;
};
int names_add(struct names *n, const char *name, double weight, struct pl_err *err) PL_MUST;
#define NAMES_TEXT 400 /* bytes */
/* "24 \"copy\", 1 \"embedding\" and 3 more names": those of most weight first. Nothing can be added
 * after it. */
const char *names_text(struct names *n, char *out, size_t size);
void names_fini(struct names *n);

/* tables.c */

/* Which --device stands before each table. */
int find_table_devices(struct work *w, struct pl_err *err) PL_MUST;
struct place { /* of a latency in its table, from 1 */
	int64_t line;
	uint32_t column;
};
/* Are the latencies of the samples from `first` on in the unit of the schema? place[i]: of sample
 * first + i. */
int check_units(const struct work *w, const char *path, const struct pl_samples *s, size_t first,
		const struct place *place, struct pl_err *err) PL_MUST;
/* All measurements of the tables; checks their unit. */
int read_tables(const struct work *w, struct pl_samples *s, struct pl_err *err) PL_MUST;
/* Those of one. `device`: NULL: what the table says. */
int read_table(const struct work *w, const char *path, const char *device, struct pl_samples *s,
	       struct pl_err *err) PL_MUST;

/* query.c: predictions for the rows of the tables, as CSV or explained. */
int answer_queries(const struct work *w, struct pl_out *out, struct pl_err *err) PL_MUST;

/* graph.c: the graph that is the operand, with the durations that the model predicts; or what makes
 * them (--explain). */
int fill_graph(const struct work *w, struct pl_out *out, struct pl_err *err) PL_MUST;

/* programs.c: tensor programs of the operations of c->measure, measured here. */
int measure_programs(const struct work *w, struct pl_out *out, struct pl_err *err) PL_MUST;

/* program_models.c: learn from tensor programs, predict them, choose among them: what c says. */
bool is_of_programs(const struct config *c);
bool shows(const struct config *c); /* predict.c: is the operand a model that is shown? */
/* Opens the model, and sets c->schema where that says it. A model may be a pipe: it is opened once.
 */
void find_schema(struct work *w, struct config *c);
/* The model that find_schema() has opened, or PL_EIO, which says why it could not. */
int open_model(struct work *w, struct pl_in **in, struct pl_err *err) PL_MUST;
int check_programs(const struct config *c, int argc, char **argv, struct pl_err *err) PL_MUST;
/* argc: of the command line, 0: standard input is read. */
int use_programs(struct work *w, int argc, struct pl_out *out, struct pl_err *err) PL_MUST;

/* program_text.c: tensor programs of tuning logs; tensor programs as sources. */
bool is_of_text(const struct config *c); /* does c say that? */
int check_text(const struct config *c, struct pl_err *err) PL_MUST;
int write_text(const struct work *w, struct pl_out *out, struct pl_err *err) PL_MUST;

/* errors.c */
int write_errors(const struct work *w, const struct pl_samples *s, const struct pl_kernel_time *t,
		 struct pl_out *out, struct pl_err *err) PL_MUST;

#endif
