/* program.h - declarations that the files of the program `replay` share. */
#ifndef REPLAY_PROGRAM_H
#define REPLAY_PROGRAM_H

#include "core/cmd.h"
#include "cost/expand.h"
#include "cost/new_memory.h"
#include "cost/predictor.h"
#include "inputs/inputs.h"
#include "io/table.h"
#include "record/command.h"
#include "report/picture.h"
#include "report/verdict.h"
#include "rewrite/rewrite.h"
#include "sim/selftest.h"

enum fold { FOLD_NONE, FOLD_MEAN, FOLD_MEDIAN };
enum format { AS_TEXT, AS_JSON, AS_CSV, AS_TSV, AS_JSONL, AS_HTML, AS_SVG };
enum per_key { PER_NONE, PER_MODULE, PER_LAYER, PER_LINE, PER_OPERATOR, PER_PHASE };
enum section {
	SEC_ALL,
	SEC_STEPS,
	SEC_RANKS,
	SEC_RESOURCES,
	SEC_PATH,
	SEC_EVENTS,
	SEC_MEMORY,
	SEC_SLOWEST,
	SEC_WORTH,
	SEC_RECORDED_STEPS,  /* without the last columns, for predictions */
	SEC_ESTIMATED_STEPS, /* of durations that are predictions themselves */
	SEC_DEVICES_PATH,    /* with the device */
};

struct job {
	struct pl_inputs inputs;
	bool graph; /* the input is a graph; else the inputs are the files of one recording */
};

struct config {
	struct pl_common c; /* first */
	struct pl_list whatif, whatif_file;
	int fold, to, table, optimizer, per;
	int64_t top; /* rows of a table in text, 0: all */
	const char *timeline, *plan, *topology;
	const char *model, *device; /* a cost model, and the device of the recording */
	struct pl_list folder;	    /* of data sheets */
	int expand;		    /* 0: no; else 1 + enum pl_algo */
	int64_t channels, chunks, servers;
	pl_ns step_ns; /* of a job with servers; 0: not given */
	bool path, resources, worth, stragglers, explain;
	struct pl_record record;
	const char *keep; /* the folder for the recording of a command */
	struct job job[2];
	size_t n_jobs; /* 2: they are compared */
};

struct step_row {
	int64_t number;
	pl_ns recorded, replayed;
	pl_ns replayed_lo, replayed_hi; /* the 90 % interval; only if durations are predictions */
	pl_ns period, predicted;	/* INT64_MIN: none */
	pl_ns simulated; /* predicted, with what corrections take out; else replayed */
	double error;	 /* of replayed, a signed share of recorded */
};

struct path_row { /* of the critical path: all of one operation, kind and rank */
	const char *name, *kind;
	int32_t rank, device; /* -1 none; device: only where a rank has several */
	uint64_t count;
	pl_ns ns, longest_ns; /* of all; of one */
	double share;
	uint8_t role; /* enum pl_node_role; PL_RO_NONE: latency, unexplained */
	uint8_t node_kind;
	pl_id id; /* of the name, PL_NONE: latency, unexplained */
};

struct slow_row {
	int32_t rank;
	pl_ns idle_ns, median_idle_ns; /* a step: its own, and the median of the others */
	int32_t most;		       /* rank that waited longest for it, -1 */
	pl_ns most_ns;		       /* a step */
	char why[400];
};

/* What a change saves of the mean step, and the 90 % interval of this share. */
struct saving {
	double share, least, most;
};
/* The simulation of operations that take `factor` times as long, 0 to 1. */
struct halving {
	double mean;		/* of the steps */
	const pl_ns *length;	/* [reported step] */
	double factor, touched; /* touched: by which share operations of a class get shorter */
	bool comm, pauses;	/* communication, pauses of threads are among them */
	bool in_graph;		/* in place of a change of the graph: without contention */
	double extra_error;	/* as in struct trust */
};

struct change_row {
	char *change;	 /* as --what-if takes it */
	double saves_ns; /* of the step */
	struct saving saves;
	struct halving run;
};

#define ADVICES 3
enum framework { NO_FRAMEWORK, TORCH, JAX, TENSORFLOW, FRAMEWORKS };
struct advice_row {
	char what[192]; /* to do */
	struct saving saves;
	bool at_most;	 /* not simulated */
	bool no_setting; /* nothing that one can set makes it so */
	char change[96]; /* as --what-if takes it, "" none */
};

struct memory_row {
	struct pl_memory_rank peak;
	char at[128]; /* the operation that begins then, "" none */
};

/* Time on a path that the job may not have without the profiler, as shares of the path: the
 * profiler's own, and what hosts take longer for writing into new memory. */
struct extra {
	double profiler, memory;
};

enum trust_level { TRUST_HIGH, TRUST_MEDIUM, TRUST_LOW };
struct trust {
	int level; /* enum trust_level */
	char reason[8][200];
	size_t n, n_low;   /* the first n_low make it low */
	char missing[112]; /* ", as rank 1 was not recorded", "": none is missing */
	bool contradiction, not_joined;
	double drift;		      /* find_drift() */
	bool unlike_work;	      /* likewise */
	struct pl_selftest_path path; /* of the recorded run */
	double part_ns;	    /* that the profiler takes for a part of an operation; 0: not known */
	struct extra extra; /* of the recorded path */
	double extra_error; /* half of the 90 % interval of the ratio, as this is estimated */
	double work[2];	    /* recorded: communication and other operations, ns */
	/* the 90 % interval of predicted / replayed, less the predicted ratio: low <= 0 <= high */
	double low, high;
	/* The same for the first line of the report. It states the mean period if steps overlap. */
	double first_low, first_high;
	/* By how much a changed step may be shorter and longer because the durations of the graph
	 * are predictions; 0: they are not. It widens the interval of the step, and leaves the
	 * interval of the gain as it is. */
	double less_ns, more_ns;
};

/* A wait that nobody recorded. */
struct wait_row {
	char text[240];
	double ns;     /* of a step */
	bool inferred; /* a rendezvous; else nothing is known of its cause */
};

struct changes;

/* What there is to say of one graph. */
struct report {
	const struct changes *changes;
	struct pl_graph g;
	struct pl_sim *s;
	bool messages_folded;	     /* of collectives, into whole transfers */
	size_t n_folded, n_recorded; /* --fold: how many steps of how many */
	struct step_row *step;
	size_t n_steps;
	uint64_t ops;
	double recorded_mean, replayed_mean, predicted_mean; /* ns; predicted NAN without changes */
	bool planned;					     /* a plan changed the graph */
	bool estimated; /* steps have replayed_lo and replayed_hi */
	/* share of the predicted time whose operations have no interval */
	double open_share;
	bool overlap; /* steps overlap, as recorded or with the changes: the next three are mean
		       * periods, else the same */
	double recorded_step, replayed_step, predicted_step;
	bool of_some_ranks; /* the changes are of some ranks, which may then be early */
	double recorded_period, replayed_period; /* NAN: no two steps follow one another */
	/* [step of g] and the mean: model less recorded replay; NULL and NAN without a model */
	pl_ns *bias;
	double bias_mean, bias_period; /* the second where steps overlap */
	bool bias_out;		       /* predicted times are corrected for the bias */
	struct trust trust;
	struct pl_new_memory new_memory; /* find_unusual() */
	struct pl_node_time *slow_op;	 /* by shape and node: find_unusual() */
	size_t n_slow_ops;
	double scatter;		       /* of equal operations: find_unusual() */
	struct extra path_extra;       /* of `path`: find_worth() */
	double vanishing_ns;	       /* time of `path` that the job may not have: find_worth() */
	struct pl_rewrite_basis basis; /* of the prediction */
	struct pl_expanded expanded;   /* --expand */
	double mean_abs_error, worst_error;
	int64_t start_p50, start_p95, start_max; /* |replayed - recorded| of starts, if n_starts */
	uint64_t n_starts;
	bool start_device; /* of device operations, else of all */
	/* of the predicted run if there are changes, else of the replayed one */
	struct pl_run run;
	double mean;
	bool by_period; /* of two jobs that are compared: `mean` is the mean period of both */
	struct pl_path path;
	double unexplained_share;
	struct path_row *row;
	size_t n_rows, cap_rows;
	bool devices; /* a rank has several */
	struct pl_account account;
	struct pl_verdict verdict;
	/* Does most of it have numbers of 16 bits or fewer? Of products if there are any: with
	 * autocast they have, and other operations have not. */
	bool half_computation, half_comm[PL_COLL_COUNT_]; /* [enum pl_coll] */
	uint8_t framework;
	struct advice_row advice[ADVICES];
	size_t n_advice;
	struct wait_row wait[3];
	size_t n_waits;
	struct slow_row *slow;
	size_t n_slow;
	struct pl_writer explained; /* a line for each rewrite of the plan */
	struct change_row *change;
	size_t n_changes;
	struct memory_row *memory; /* by rank */
	size_t n_memory;
	int optimizer;		   /* as --optimizer */
	bool whole;		   /* with all columns of the graph */
	bool compared;		   /* with another job, both as they were recorded */
	bool memory_over_time;	   /* note it in `picture` */
	struct pl_picture picture; /* of -O html and svg */
};

/* What --what-if and --what-if-file ask for. */
struct changes {
	struct pl_plan plan; /* with the lines of --plan first, if these only change durations */
	size_t first;	     /* how many are of --plan */
	struct pl_topology topo;
	bool has_topology;
	struct pl_predictor *predictor; /* -m; NULL: none */
	/* --plan, if it changes more than durations: then it is not in `plan`; else NULL */
	const struct pl_plan *structural;
	struct pl_plan all; /* `plan`, and what of --plan waits for it; empty: nothing does */
	uint64_t *hits; /* [rewrite]: operations that it changed in the graph; NULL: not counted */
	uint64_t *hits_of_a; /* the same of the first of two jobs, when `hits` is of the second */
};

/* ---- planned.c ---- */
/* Replace r->g and r->s by what the plan makes of them; r->run is gone. */
int use_plan(const struct pl_plan *p, const struct changes *x, struct report *r,
	     struct pl_err *err) PL_MUST;
/* A line for each rewrite: r->explained. rw may be NULL if all only change durations. */
int explain_plan(const struct pl_rewriter *rw, const struct pl_plan *p, struct report *r,
		 struct pl_err *err) PL_MUST;

/* ---- expanded.c ---- */
/* Replace r->g and r->s by the same with collectives as messages; r->run is gone. */
int use_expansion(const struct config *c, const struct pl_plan *p, struct report *r,
		  struct pl_err *err) PL_MUST;

/* ---- record.c ---- */
struct recording {
	char folder[512];
	char *name;		/* the folder, once it holds files */
	bool temporary, failed; /* failed: the command */
};
/* The operands end with a command, which stands behind "--". Without failure r->name is there. */
int record(struct config *c, struct recording *r, char **argv, struct pl_err *err) PL_MUST;
void record_end(const struct config *c, const struct recording *r, bool failed);

/* ---- input.c ---- */
/* The graph that the edit makes replaces r->g, a simulator of it replaces r->s; r->run is gone. */
int take_graph(struct report *r, const struct pl_edit *e, struct pl_err *err) PL_MUST;
/* Fitted to the graph, on the topology if there is one. Takes nothing. */
/* Drop the columns that only the verdict and the memory read, unless this run may need them again.
 */
void drop_columns(const struct config *c, struct report *r);
struct pl_rewrite_known what_is_known(const struct changes *x);
int fit_cost(const struct changes *x, const struct pl_graph *g, struct pl_cost *cost,
	     struct pl_err *err) PL_MUST;
int read_changes(const struct config *c, struct changes *x, struct pl_err *err) PL_MUST;
void changes_fini(struct changes *x);
/* Line i of all that apply, those of --plan first; NULL: there are no more. */
const struct pl_rewrite *change_line(const struct changes *x, size_t i);
/* Does a device compute? */
bool has_streams(const struct pl_graph *g);
/* Replace r->g and r->s by what the lines of a plan, of which some change the structure of the
 * graph, make of them; r->run is gone. */
int use_lines(const struct config *c, const struct pl_plan *p, const struct changes *x,
	      struct report *r, struct pl_err *err) PL_MUST;
/* Lines of --plan such as accumulate, p, are applied together with those of --what-if. */
int hold_back(const struct config *c, struct changes *x, struct pl_plan *p,
	      struct pl_err *err) PL_MUST;
/* Changes the durations of r->s, or the graph if needed; warns of changes that select nothing. */
int use_changes(const struct config *c, struct changes *x, struct report *r,
		struct pl_err *err) PL_MUST;
/* The graph of a job, folded if asked for. */
int read_graph(const struct config *c, struct job *job, struct pl_pool *pool, struct report *r,
	       struct pl_err *err) PL_MUST;

/* ---- servers.c ---- */
/* *is: the input is a job of run(1) with a parameter server, and this was its report. */
int replay_servers(struct config *c, struct pl_input *input, struct pl_out *out, bool *is,
		   struct pl_err *err) PL_MUST;

/* ---- measure.c ---- */
/* r->g is there: simulates it as it was recorded and compares, step by step. */
int measure(struct report *r, struct pl_err *err) PL_MUST;
/* The rest but slow and change; `changed`: of another run than that which was measured. */
int explain(struct report *r, bool changed, struct pl_pool *pool, struct pl_err *err) PL_MUST;
void report_fini(struct report *r);

/* By how much the predicted mean may be wrong, because lines were fitted to transfers; 0: not known
 */
double doubt(const struct report *r);

/* ---- profiler.c ---- */
/* What the profiler costs, from the recorded graph: r->trust.part_ns. */
int find_profiler(struct report *r, struct pl_err *err) PL_MUST;
/* Of a path of the simulator. */
struct extra extra_time(const struct report *r, const struct pl_sim *s, const struct pl_path *p);
bool is_extra(const struct extra *x);
/* By how much a ratio of steps changes without the profiler's time and with half of that for new
 * memory, if these are the shares before and after; *error: half of the 90 % interval. */
double extra_correction(const struct extra *before, const struct extra *after, double *error);
/* Make the predicted times those of a job without this time, as shares of the recorded one. */
void correct_for_extra(struct report *r);

/* ---- unusual.c ---- */
/* Which operations of hosts take several times as long as others of the same work: r->new_memory,
 * r->slow_op, r->scatter. Needs the columns of names and work. */
int find_unusual(struct report *r, struct pl_err *err) PL_MUST;
/* Of a graph that changes have made: r->new_memory alone. */
int find_new_memory(struct report *r, struct pl_err *err) PL_MUST;
/* What a node of the recorded step takes longer than those; 0: nothing. Not the time for new
 * memory, of which predictions have half, but where a model of sizes predicts. */
pl_ns slower_by(const struct report *r, size_t step, uint32_t node);

/* ---- trust.c ---- */
/* What speaks against the recording: ranks that are not there, equal operations that take unlike
 * times. Before test_graph(), and before columns are dropped. */
int judge_recording(struct report *r, struct pl_err *err) PL_MUST;
/* The self-test of the recorded graph, before its durations are changed. If r->path is not found
 * yet, r->run is the replay as recorded. `worth`: find_worth() follows. */
int test_graph(struct report *r, bool worth, struct pl_err *err) PL_MUST;
/* A reason, if so many of n gradients have estimated sizes. */
void note_sizes(struct trust *t, size_t estimated, size_t n);
/* The interval of the prediction: r->trust. PL_ENO: a step gets longer although all changes make
 * operations shorter, or the reverse. */
int find_interval(struct report *r, struct pl_err *err) PL_MUST;
/* How far the ends of the interval of a predicted step are from it, ns, below 0 and above. `share`:
 * that end of the interval of the gain, as a share of replayed_ns, the replayed step. */
double low_ns(const struct report *r, double share, double replayed_ns);
double high_ns(const struct report *r, double share, double replayed_ns);
/* Time on the path of the described run that the job may not have, ns. */
double vanishing_time(const struct report *r);
/* What such a change saves, and the interval. */
void find_saving(const struct report *r, const struct halving *x, struct saving *s);
/* If operations that take `factor` times as long change the step in the wrong direction: a reason.
 */
void note_contradiction(struct trust *t, const char *what, float factor, double before,
			double after);
/* Can a change of these operations reveal a contradiction? Not those of some ranks: these ranks may
 * begin the next step earlier than the others, and then steps overlap. */
bool can_contradict(const struct pl_selector *keys);
/* Does the prediction rest on what the self-test refutes? */
bool is_unreliable(const struct report *r);
/* A line behind `head`: "trust:". */
void print_trust(const char *head, const struct report *r, struct pl_writer *w);
void put_trust(struct pl_writer *w, const struct report *r);

/* ---- drift.c ---- */
/* By which factor each of the last steps takes longer than each of the first, for the same work, if
 * it is `least` or more; else less. *unlike: so do the steps, but their work does not. */
int find_drift(const struct report *r, double least, double *factor, bool *unlike,
	       struct pl_err *err) PL_MUST;

/* ---- waits.c ---- */
/* The longest waits that nobody recorded; p is the critical path. */
int find_waits(struct report *r, const struct pl_path *p, struct pl_err *err) PL_MUST;
void print_waits(const struct report *r, struct pl_writer *w);
void put_waits(struct pl_writer *w, const struct report *r);

/* ---- path.c ---- */
int sum_path(struct report *r, struct pl_err *err) PL_MUST;
/* What a part of the path is called. */
void path_item(const struct report *r, const struct pl_path_item *p, struct path_row *row);

/* ---- slow.c ---- */
int find_slow(struct report *r, struct pl_err *err) PL_MUST;
/* The ranks, the slowest first; pl_free(). */
int ranks_by_idle(const struct pl_account *a, struct pl_rank_time **v, struct pl_err *err) PL_MUST;

/* ---- verdict.c ---- */
/* What bounds the step of r->run, in a few lines; r->verdict. */
void print_verdict(const struct report *r, struct pl_writer *w);
void put_verdict(struct pl_writer *w, const struct report *r);

/* ---- tried.c ---- */
/* What a line that changes the graph saves, and the interval, as --what-if predicts both. All 0: it
 * cannot be applied to this job. While the columns are there. */
int try_setting(const struct report *r, const char *line, struct pl_pool *pool,
		struct saving *saves, struct pl_err *err) PL_MUST;

/* ---- advice.c ---- */
/* The framework that was recorded, which decides the words of advice: r->framework. */
void find_framework(struct report *r);
/* r->half_computation and r->half_comm, while the columns are there. */
void find_types(struct report *r);
/* What a user can do about the verdict: r->advice, what saves most first. First settings that
 * change the graph, while the columns are there. */
int advise_settings(struct report *r, struct pl_pool *pool, struct pl_err *err) PL_MUST;
int find_advice(struct report *r, struct pl_err *err) PL_MUST;
void print_advice(const struct report *r, struct pl_writer *w);
void put_advice(struct pl_writer *w, const struct report *r);

/* ---- per.c ---- */
/* The whole of --per. */
int print_per(const struct config *c, const struct report *r, struct pl_out *out,
	      struct pl_err *err) PL_MUST;

/* ---- memory.c ---- */
bool knows_memory(const struct pl_graph *g);
/* Peaks of the edit's steps, if they are higher than those there are; share: pl_memory_opts. */
int add_memory(const struct pl_edit *e, double share, struct report *r, struct pl_err *err) PL_MUST;
/* Of the recorded steps, if a plan has not said them. */
int find_memory(struct report *r, struct pl_err *err) PL_MUST;

/* ---- worth.c ---- */
/* The changes worth most, on top of those that were made. */
int find_worth(struct report *r, struct pl_pool *pool, struct pl_err *err) PL_MUST;
/* Are the changes simulated alone, although --what-if knows that communication slows down
 * computation beside it, and what the profiler costs? */
bool only_simulates(const struct report *r);
/* Is a graph of so many nodes too large to predict many changes in full? */
bool is_large(size_t nodes);
size_t count_nodes(const struct pl_graph *g); /* of all steps */
/* Predict the line as --what-if does, on top of the changes that were made. Sets x->mean and, in
 * `length`, the steps: x->length. */
int predict_line(const struct report *r, const char *line, struct halving *x, pl_ns *length,
		 struct pl_err *err) PL_MUST;
/* The times with a line that only changes durations. */
int simulate_line(const struct report *r, const char *line, struct halving *x, pl_ns *length,
		  struct pl_err *err) PL_MUST;

/* ---- tables.c ---- */
/* How a table is printed, by enum format. */
extern const enum pl_table_format table_format[];
/* Table of a section: its first `top` rows (0: all); pl_table_fini(). Returns how many it has. */
size_t make_table(const struct report *r, enum section which, int64_t top, struct pl_table *t);

/* ---- spread.c ---- */

/* Are durations of the graph predictions with intervals? */
bool has_predictions(const struct pl_graph *g);
/* Which share of the predicted time, but for communication, has no interval. */
double open_share(const struct report *r);

/* The intervals of the replayed steps, where the graph's durations are predictions with intervals.
 * changed: those of the predicted run, which is r->run. */
int find_spread(struct report *r, bool changed, struct pl_err *err) PL_MUST;

/* ---- text.c, json.c ---- */
int print_text(const struct config *c, const struct report *r, struct pl_out *out,
	       struct pl_err *err) PL_MUST;
int print_json(const struct config *c, const struct report *r, struct pl_out *out,
	       struct pl_err *err) PL_MUST;
/* The member "changes", if there are any. */
void put_changes(struct pl_writer *w, const struct changes *x);
/* Behind an empty line, in bold if there is colour. */
void print_heading(const struct config *c, const char *text, struct pl_writer *w);
/* How many rows of n are not shown, if any, and how to see them. */
void print_rest(size_t n, size_t shown, const char *what, struct pl_writer *w);
/* A table of n rows of which some may be left out, in the format that was asked for. */
int print_table(const struct config *c, const struct pl_table *t, size_t n, struct pl_out *out,
		struct pl_err *err) PL_MUST;
/* Words of `text` after `head`, in lines of 100 columns; those after the first are indented. */
void print_wrapped(const char *head, const char *text, struct pl_writer *w);
/* A time with four significant digits: "603.2 ms". */
char *fmt_ns(char *out, size_t size, double ns);

/* ---- picture.c ---- */
/* Of r->run. */
int find_picture(struct report *r, struct pl_err *err) PL_MUST;
/* From `at` on, in time of the graph. */
int note_memory(struct report *r, int32_t rank, pl_ns at, int64_t bytes,
		struct pl_err *err) PL_MUST;
/* The page or the drawing; `path`: of the graph. */
int print_picture(const struct config *c, struct report *r, struct pl_out *out,
		  struct pl_err *err) PL_MUST;

/* ---- stragglers.c ---- */
/* The whole of --stragglers. */
int find_stragglers(struct config *c, struct pl_pool *pool, struct pl_out *out,
		    struct pl_err *err) PL_MUST;

/* ---- compare.c ---- */
int print_difference(const struct config *c, const struct report *a, const struct report *b,
		     struct pl_out *out, struct pl_err *err) PL_MUST;

/* ---- places.c ---- */
struct place {			 /* all operations of a phase, a module and an operator */
	const char *module, *op; /* module: "" unknown */
	uint8_t phase;		 /* enum pl_phase */
	int32_t rank;		 /* that most of the difference is on, -1 */
	const char *name[2];	 /* of each job: the operation that takes most of the time */
	double most[2];		 /* ... and its time */
	double count[2], total[2], path[2]; /* a step; count, total: mean of the ranks;
					     * path: on the critical path */
	uint32_t number;
};
/* What the steps of two jobs take by place, the largest difference on the path first; pl_free().
 * `keep` owns the texts. */
int find_differences(const struct report *a, const struct report *b, struct place **place,
		     size_t *n, struct pl_intern *keep, struct pl_err *err) PL_MUST;
void place_name(const struct place *p, char *out, size_t size);
/* Why the place takes another time, in words. */
void place_reason(const struct place *p, char *out, size_t size);

/* ---- tables.c: the parts that sum to a rank's span, in the order in which reports show them -- */
enum { PART_COMPUTE, PART_OVERLAPPED, PART_EXPOSED, PART_HOST = 4, PART_WAIT = 6, PARTS = 9 };
struct rank_part {
	size_t offset;		  /* in struct pl_rank_time */
	const char *title, *name; /* in few letters and in full */
	const char *color;
	char letter;	    /* in bars */
	const char *reason; /* why a rank with more of it is slow: "copies"; NULL: it is none */
	uint8_t role;	    /* enum pl_node_role of the operations whose time it is; PL_RO_NONE */
};
extern const struct rank_part rank_parts[PARTS];
pl_ns rank_part(const struct pl_rank_time *t, int i);
/* Waiting for other ranks, and nothing to do. */
pl_ns rank_idle(const struct pl_rank_time *t);

#endif
