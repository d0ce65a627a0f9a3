/*
 * sim.h - replay of a graph: simulation, critical path, and where the time went.
 *
 * A node starts when its last predecessor allows it, plus its *unexplained* time: the recorded time
 * between the latest modelled predecessor and the recorded start. Other durations do not change
 * unexplained time; it stays after the predecessor that it followed. Reports never count it as
 * work. All times are integer ns since the graph's epoch.
 *
 *	s = pl_sim_new(g, err);                   prepare: latencies, unexplained time
 *	pl_sim_run(s, &base, err);                identity replay
 *	pl_sim_set_durations(s, step, ns, err);   lib/rewrite says which
 *	pl_sim_run(s, &predicted, err);           the same job with these durations
 *
 * Graphs without RESOURCE nodes take one static pass (sim.c). Where resources are shared the event
 * core decides (events.h, shared.c).
 */
#ifndef PL_SIM_H
#define PL_SIM_H

#include "graph/select.h"

/* ---- simulation ----------------------------------------------------------------------------- */

struct pl_sim; /* borrows the graph, which must be valid */
struct pl_sim *pl_sim_new(const struct pl_graph *g, struct pl_err *err);
void pl_sim_free(struct pl_sim *s);

/*
 * Durations and latencies for all later runs. Nothing else of the recording changes.
 */
/* Set the durations of all nodes of a step, rounded. PL_ELIMIT if all together exceed 2^61 ns. */
int pl_sim_set_durations(struct pl_sim *s, size_t step, const double *ns,
			 struct pl_err *err) PL_MUST;
/* Nobody waits at this rendezvous of a step any more: each member goes on when it arrives. Without
 * effect in graphs with RESOURCE nodes. */
int pl_sim_set_alone(struct pl_sim *s, size_t step, uint32_t node, struct pl_err *err) PL_MUST;
/* Present durations of a step by node, without what users of a resource cost one another. */
const pl_ns *pl_sim_durations(const struct pl_sim *s, size_t step);
/* A collective's message takes `to` (-1: as recorded) times `by` to its receiver. At most once. */
void pl_sim_set_latency(struct pl_sim *s, pl_ns to, double by);

struct pl_run {
	size_t n_steps;
	pl_ns **start;		      /* [step][node] */
	bool *shared;		      /* [step]: start is the graph's, which has the same */
	pl_ns **dur;		      /* [step]: durations, or NULL: those of pl_sim_durations() */
	pl_ns *step_start, *step_end; /* [step]; of the steps whose number is not INT64_MIN */
	uint64_t **from; /* [step][entry]: (step << 32 | node) that the entry carries; UINT64_MAX
			    none */
	uint64_t ops;	 /* simulated */
};
int pl_sim_run(const struct pl_sim *s, struct pl_run *r, struct pl_err *err) PL_MUST;
void pl_sim_run_fini(struct pl_run *r);
/* The mean step of such a run, without keeping it. May be called by several threads at once. */
int pl_sim_mean(const struct pl_sim *s, double *mean, struct pl_err *err) PL_MUST;
/* The same where selected operations take `factor` times as long: mean[i] is that of scale[i]. If
 * pl_sim_steps_overlap(), it is the mean period.
 * Up to PL_SIM_SIDE_BY_SIDE of them are simulated in one pass, which costs less than two. */
#define PL_SIM_SIDE_BY_SIDE 4
struct pl_sim_scale {
	const struct pl_graph_select *select;
	float factor;
	pl_ns *length; /* out, or NULL: of each reported step, in order */
};
int pl_sim_means(const struct pl_sim *s, const struct pl_sim_scale *scale, size_t n, double *mean,
		 struct pl_err *err) PL_MUST;
/* How many can be simulated together: 1 for very long steps and for graphs with shared resources.
 */
size_t pl_sim_side_by_side(const struct pl_sim *s);
/* The bytes of memory that pl_sim_means() needs while it runs. */
size_t pl_sim_means_memory(const struct pl_sim *s);
/* Duration of a node in a run. */
pl_ns pl_sim_run_dur(const struct pl_sim *s, const struct pl_run *r, size_t step, uint32_t node);
/* Mean of end - start over the reported steps. */
double pl_sim_run_mean_step(const struct pl_sim *s, const struct pl_run *r);
/*
 * Where ranks begin a step before others have ended the one before (pipelines), a step is longer
 * than the time from one to the next. True if the recorded steps overlap by a hundredth of their
 * time.
 */
bool pl_sim_steps_overlap(const struct pl_sim *s);
/* The same of a run: changes of one rank let it begin steps before others have ended theirs. */
bool pl_sim_run_overlaps(const struct pl_sim *s, const struct pl_run *r);
/* Mean time from the end of a step to the end of the next one; the first step, too, if it was
 * longer or shorter (lib/sim/internal.h). Of the run, and (r NULL) as recorded. NAN: no two steps
 * have consecutive numbers. */
double pl_sim_run_mean_period(const struct pl_sim *s, const struct pl_run *r);
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
	int32_t waits_for;  /* rank that it waited for longest, -1 */
	pl_ns waits_for_ns; /* of idle_ns[PL_I_WAIT] */
	pl_ns awaited_ns;   /* how long other ranks waited for this one, all together */
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
/*
 * Update the starts of an edit after changes. Without RESOURCE nodes this is pl_edit_settle(). With
 * them the event core simulates all steps from the beginning: O(nodes) a call. pl_edit_undo()
 * reverts it. PL_EDATA if the changes made a cycle.
 */
int pl_sim_settle(struct pl_edit *e, struct pl_err *err) PL_MUST;

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
 * unexplained. *n_folded (may be NULL): how many steps went in. `out` may be g.
 */
int pl_sim_fold(const struct pl_graph *g, bool median, struct pl_graph *out, size_t *n_folded,
		struct pl_err *err) PL_MUST;

#endif
