/*
 * sim.h - replay of a graph: simulation, what-if, critical path, and where the time went.
 *
 * A node starts when its last predecessor allows it, plus its *unexplained* time: the recorded time
 * between the latest modelled predecessor and the recorded start. What-if does not change
 * unexplained time; it stays after the predecessor that it followed. Reports never count it as
 *work. All times are integer ns since the graph's epoch.
 *
 *	s = pl_sim_new(g, err);            prepare: latencies, unexplained time
 *	pl_sim_run(s, NULL, &base, err);   identity replay
 *	pl_sim_run(s, whatif, &pred, err); the same job with changed durations
 *
 * Graphs without RESOURCE nodes take one static pass (sim.c). Where resources are shared the event
 * core decides (events.h, shared.c).
 */
#ifndef PL_SIM_H
#define PL_SIM_H

#include "graph/graph.h"

/* ---- what-if --------------------------------------------------------------------------------- */

/*
 * Statements that change how long operations take, one after the other: the grammar is in
 * paceline-replay(1), section WHAT-IF. Communication changes its transfer, never its wait.
 */
struct pl_lang_schema;
struct pl_whatif_model;
struct pl_whatif {
	struct pl_change *change;
	size_t n, cap;
	const struct pl_whatif_model *model; /* borrowed; NULL: none */
};
extern const struct pl_lang_schema pl_sim_whatif_schema;
/* If the text cannot be parsed: PL_EUSAGE with the statement and the expected word. */
int pl_sim_whatif_add(struct pl_whatif *w, const char *text, struct pl_err *err) PL_MUST;
void pl_sim_whatif_fini(struct pl_whatif *w);
/*
 * What fix, bandwidth, latency and ranks need to know of the whole graph, for the statements that w
 * has now, whose `model` it can become, and of any other that begins with the same ones. Statements
 * added later must be of the other verbs. `topo` (NULL: that of the graph's hosts, with usual
 * links) says which links there are; it is copied. PL_EUSAGE for a link that there is not. Only
 * read afterwards, also by several threads at once.
 */
struct pl_topology;
struct pl_whatif_model *pl_sim_whatif_model_new(const struct pl_whatif *w, const struct pl_graph *g,
						const struct pl_topology *topo, struct pl_err *err);
void pl_sim_whatif_model_free(struct pl_whatif_model *m);
/* Was the data-parallel communication guessed? If the graph does not mark it, a statement `ranks`
 * uses the communication of all ranks. */
bool pl_sim_whatif_model_guessed(const struct pl_whatif_model *m);
/* hits[i]: how many nodes of the graph the i-th statement selects, all steps together. */
int pl_sim_whatif_hits(const struct pl_whatif *w, const struct pl_graph *g, uint64_t *hits,
		       struct pl_err *err) PL_MUST;

/* ---- simulation ----------------------------------------------------------------------------- */

struct pl_sim; /* borrows the graph, which must be valid */
struct pl_sim *pl_sim_new(const struct pl_graph *g, struct pl_err *err);
void pl_sim_free(struct pl_sim *s);

struct pl_run {
	size_t n_steps;
	pl_ns **start;		      /* [step][node] */
	bool *shared;		      /* [step]: start is the graph's, which has the same */
	float **factor;		      /* [step]: of durations, or NULL: all 1 */
	pl_ns **dur;		      /* [step]: durations, or NULL: the recorded ones */
	int32_t **w;		      /* [step]: delays of edges, or NULL: the recorded ones */
	pl_ns *step_start, *step_end; /* [step]; of the steps whose number is not INT64_MIN */
	uint64_t **from; /* [step][entry]: (step << 32 | node) that the entry carries; UINT64_MAX
			    none */
	uint64_t ops;	 /* simulated */
};
int pl_sim_run(const struct pl_sim *s, const struct pl_whatif *w, struct pl_run *r,
	       struct pl_err *err) PL_MUST;
void pl_sim_run_fini(struct pl_run *r);
/* The mean step of such a run, without keeping it. May be called by several threads at once. */
int pl_sim_mean(const struct pl_sim *s, const struct pl_whatif *w, double *mean,
		struct pl_err *err) PL_MUST;
/* The same for each of n changes (none may be NULL): mean[i] is that of w[i]. Up to
 * PL_SIM_SIDE_BY_SIDE changes are simulated in one pass, which costs less than two. */
#define PL_SIM_SIDE_BY_SIDE 4
/* How many changes like w can be simulated together: 1 for very long steps, and for changes that do
 * not only scale. */
size_t pl_sim_side_by_side(const struct pl_sim *s, const struct pl_whatif *w);
int pl_sim_means(const struct pl_sim *s, const struct pl_whatif *const *w, size_t n, double *mean,
		 struct pl_err *err) PL_MUST;
/* Duration of a node in a run. */
pl_ns pl_sim_run_dur(const struct pl_sim *s, const struct pl_run *r, size_t step, uint32_t node);
/* Mean of end - start over the reported steps. */
double pl_sim_run_mean_step(const struct pl_sim *s, const struct pl_run *r);
/* Is it a step (not work before, between or after them), with a beginning and an end? */
bool pl_sim_reported(const struct pl_sim *s, size_t step);
/* Recorded start and end of a step by the same definition. */
void pl_sim_recorded(const struct pl_sim *s, size_t step, pl_ns *start, pl_ns *end);
/* Unexplained time before the node (0 if none). */
pl_ns pl_sim_unexplained(const struct pl_sim *s, size_t step, uint32_t node);

/* ---- critical path -------------------------------------------------------------------------- */

/* LATE: the path ends at an operation without a recorded cause, later than the first step's start:
 * that rank began late. A boundary of the recording, not a gap between operations. */
enum pl_path_part { PL_PP_NODE, PL_PP_LATENCY, PL_PP_UNEXPLAINED, PL_PP_LATE };
struct pl_path_item { /* in order of time */
	uint32_t step, node;
	uint8_t part; /* enum pl_path_part: of the time before the node, or the node's own */
	pl_ns start, ns;
};
struct pl_path {
	struct pl_path_item *item;
	size_t n, cap;
	pl_ns length; /* from the first step's start to the last one's end */
	pl_ns unexplained, latency, late;
};
int pl_sim_path_find(const struct pl_sim *s, const struct pl_run *r, struct pl_path *p,
		     struct pl_err *err) PL_MUST;
void pl_sim_path_fini(struct pl_path *p);

/* ---- where the time went -------------------------------------------------------------------- */

enum pl_idle {
	PL_I_WAIT,   /* arrived at a collective or receive; others had not */
	PL_I_LAUNCH, /* launch or dispatch latency */
	PL_I_TAIL,   /* nothing more to do; other ranks or the host finish the step */
	PL_I_COUNT_
};
const char *pl_sim_idle_name(unsigned cause);

struct pl_rank_time { /* of a rank, over all reported steps; the parts sum to span_ns */
	int32_t rank;
	pl_ns span_ns;
	pl_ns compute_ns;	  /* without communication at the same time */
	pl_ns comm_overlapped_ns; /* communication while the rank computes */
	pl_ns comm_exposed_ns;	  /* without */
	pl_ns copy_ns, host_ns, unexplained_ns, idle_ns[PL_I_COUNT_];
	int32_t waits_for; /* rank that it waited for longest, -1 */
	pl_ns waits_for_ns;
	pl_ns awaited_ns; /* how long other ranks waited for this one, all together */
};
/* One resource, over the same span; the parts sum to it unless operations overlap on the resource.
 */
struct pl_res_time {
	uint32_t res;
	pl_ns compute_ns, comm_ns, copy_ns, host_ns, gap_ns, wait_ns, unexplained_ns, latency_ns;
	pl_ns idle_ns;
	uint64_t ops;
};
struct pl_account {
	struct pl_rank_time *rank;
	size_t n_ranks;
	struct pl_res_time *res;
	size_t n_res;
};
int pl_sim_account_make(const struct pl_sim *s, const struct pl_run *r, struct pl_account *a,
			struct pl_err *err) PL_MUST;
void pl_sim_account_fini(struct pl_account *a);

/* Make an edit of steps [first, first + n), with the delays of the simulator. */
struct pl_edit;
int pl_sim_edit(const struct pl_sim *s, size_t first, size_t n, struct pl_edit *e,
		struct pl_err *err) PL_MUST;

/* Fold the messages of each collective back into one transfer for each member, as recorded, for
 * code that knows only whole collectives. A graph without messages does not change. */
int pl_sim_fold_messages(struct pl_graph *g, struct pl_err *err) PL_MUST;

/* The replayed run as a trace (segment format "replay"): one event a node, waits included. */
int pl_sim_timeline(const struct pl_sim *s, const struct pl_run *r, struct pl_sink *sink,
		    struct pl_err *err) PL_MUST;

/*
 * A graph of one step that stands for many: those that do the same operations in the same order on
 * every resource, the largest such set. Durations and starts (from the beginning of the step) are
 * the mean or median over them, so that the folded step replays to their mean (median) length; what
 * averaging takes from waits (the mean of the last is later than the last of the means) becomes
 * unexplained. *n_folded (may be NULL): how many steps went in. Writes into the empty graph `out`.
 */
int pl_sim_fold(const struct pl_graph *g, bool median, struct pl_graph *out, size_t *n_folded,
		struct pl_err *err) PL_MUST;

#endif
