/*
 * rewrite.h - apply the rewrites of a plan to an edit. paceline-plan(5) gives the meaning of each
 * rewrite and says when it may be applied.
 *
 * Rewrites name communication by the tensors that it carries. A *bucket* is the set of tensors of
 * one communication. On every rank it is an ARRIVE node, a RENDEZVOUS of all ranks of the group,
 * and a TRANSFER node. lib/cost gives the duration of the transfer.
 */
#ifndef PL_REWRITE_H
#define PL_REWRITE_H

#include "cost/cost.h"
#include "plan/plan.h"

/*
 * The state of a plan on an edit. The recorded communication stays until a rewrite changes
 * communication. Then buckets follow one another on one channel of each rank, in order of issue. A
 * bucket arrives when its last tensor is ready and was issued. A node that waited for the recorded
 * communication of a tensor now waits for its bucket. A bucket that is the same as in the recording
 * keeps its recorded arrival, but lib/cost gives the duration of its transfer.
 */
struct pl_sim;
struct pl_rewriter;
struct pl_rewriter *pl_rewrite_new(struct pl_edit *e, const struct pl_cost *c, struct pl_err *err);
void pl_rewrite_free(struct pl_rewriter *r);
/* Apply one rewrite, in all steps and on all ranks. The edit is not settled. If a name is unknown
 * or a precondition does not hold: PL_EDATA with the reason, and the edit does not change. Rewrites
 * that change operations must come before accumulation. */
int pl_rewrite(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err) PL_MUST;
/* Write a line about a rewrite that was applied: its effect in this graph, and the reason why this
 * effect helps. r may be NULL if the rewrite only changes durations. */
void pl_rewrite_explain(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			struct pl_writer *w);
/* pl_plan_add_line(), which also refuses kinds and phases that no graph can have. */
int pl_rewrite_add_line(struct pl_plan *p, const char *text, struct pl_err *err) PL_MUST;
/* Does every rewrite of the plan change durations alone? */
bool pl_rewrite_is_timing(const struct pl_plan *p);
/* Does the rewrite change the durations of operations, and nothing else? Not that of a network:
 * what other rewrites build has that network, too. */
bool pl_rewrite_changes_durations(unsigned op);
/* Is it applied to a graph alone? Other rewrites apply to the graph that it makes. */
bool pl_rewrite_is_first(unsigned op);
bool pl_rewrite_is_last(unsigned op);	 /* is it applied behind all others? */
bool pl_rewrite_is_network(unsigned op); /* does it change what communication costs? */
/* A warning: layers are divided, and the times of links are not known. */
#define PL_REWRITE_LINKS_UNKNOWN                                                                   \
	"tensor-parallel: the graph has no communication that shows what links take, so links of " \
	"a common network between hosts are assumed; --topology=1x8:dgx-a100 or such says what "   \
	"they are"
/* What a prediction for another network or another number of ranks depends on. */
struct pl_rewrite_basis {
	bool guessed; /* the graph does not say which communication is data-parallel, and `ranks`
		       * took that of all ranks */
	bool assumed; /* that collectives are rings, because the graph does not say their algorithm
		       */
	bool links_assumed; /* that a rank has one link for all that it sends */
	bool links_unknown; /* of ranks that share layers: PL_REWRITE_LINKS_UNKNOWN */
	bool unused_link;   /* no communication uses a link that a rewrite changes */
	/* share of all transfer time that may be wrong, because no messages were recorded */
	double error;
	double work_ns;	    /* standard error of the changed operations, of a rank in a step */
	double other_share; /* share of the change that is wrong, because more or fewer of the
			     * recorded steps change than of the job's */
	/* times of operations that change, in all steps; by a cost model of kernels, by it and by
	 * rules
	 */
	double known_ns, changed_ns;
	bool no_batch;	  /* the sizes of tensors do not say which of them follow the batch */
	int64_t batch;	  /* where it changes: samples of a rank in a recorded step; 0: unknown */
	bool one_size;	  /* some transfers have one size or an unknown one, so the topology alone
			   * tells    latency from bandwidth */
	uint64_t samples; /* transfers that were fitted */
	/* Some operations or messages may take longer, some may take less time than before. If only
	 * one of both is true, the prediction has a direction: a step is the longest of sums of
	 * durations, so it cannot change the other way. With shared resources both are true,
	 * because another order there can change the step either way. */
	bool longer, shorter;
	bool as_recorded;  /* the communication, after a plan */
	bool carries_same; /* communication carries what it carried, perhaps in other parts or over
			    * another network */
	bool in_other_parts; /* likewise, in other buckets or by another algorithm */
	/* communication runs beside computation that waited for it, or that of sharded parameters
	 * has other groups */
	bool rearranged;
	bool at_once; /* ... and that may need its result at once */
	/* that the job has in the prediction, 0: as recorded; and those of the recorded job then,
	 * of which the recording may have some only */
	uint32_t ranks, recorded_ranks;
	uint64_t collectives, unknown; /* in all steps, and those of unknown algorithm */
	/* how many times as long as alone computation takes beside communication; 0: not found yet;
	 * 1: as long, or not known */
	double contention;
};
/* Set *factor, a basis' contention, unless it is above 0: then it was found already. */
int pl_rewrite_contention(const struct pl_graph *g, double *factor, struct pl_err *err) PL_MUST;
/* What the prediction of the present communication depends on, if it has other algorithms than the
 * recorded ones. */
void pl_rewrite_bases(const struct pl_rewriter *r, struct pl_rewrite_basis *basis);
/* What is known besides the graph; each may be NULL. */
struct pl_rewrite_known {
	const struct pl_topology *topo;
	const struct pl_predictor *predictor; /* a cost model of kernels */
};
/*
 * Apply such a plan to the durations of a simulator of the graph, without an edit. hits[i]: how
 * many operations rewrite i concerns, all steps together. `known` may be NULL. A rewrite
 * that was given as an option and cannot be applied is PL_EUSAGE. Adds to *basis.
 */
int pl_rewrite_durations(struct pl_sim *s, const struct pl_graph *g, const struct pl_plan *p,
			 const struct pl_rewrite_known *known, uint64_t *hits,
			 struct pl_rewrite_basis *basis, struct pl_err *err) PL_MUST;
/* Does communication carry what it carried, whatever network or parts the rewrites give it? */
bool pl_rewrite_carries_same(const struct pl_plan *p);
/* Does the rewrite change communication? Then the prediction depends on the cost model. */
bool pl_rewrite_is_comm(unsigned op);
/* Build the communication of the state without a rewrite: the recorded buckets get the durations of
 * the cost model. */
int pl_rewrite_model(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* Replace the buckets. For searches. */
#define PL_REWRITE_SAME_ALGORITHM 0xff /* of the set's first tensor, as it is */
struct pl_bucketing {
	uint32_t n_sets;
	const uint32_t *set_of; /* [tensor]: set, numbered from 0 in order of issue */
	const uint32_t *parts;	/* [set], NULL: whole */
	const uint8_t
		*algo;	  /* [set]: enum pl_algo, PL_REWRITE_SAME_ALGORITHM; NULL: all the same */
	uint32_t servers; /* of each set with PL_ALGO_PS */
	const uint32_t *priority; /* [tensor]: 1 the highest, 0 none; NULL: in order of issue */
};
int pl_rewrite_bucketing(struct pl_rewriter *r, const struct pl_bucketing *b,
			 struct pl_err *err) PL_MUST;
/* Give computation the durations that it would have without the communication beside it, that of
 * gradients or, where `sharded` is true, that of sharded parameters. pl_edit_undo() reverts it. */
int pl_rewrite_let_alone(struct pl_rewriter *r, bool sharded, struct pl_err *err) PL_MUST;
/* Does some rank synchronise gradients in the step? */
bool pl_rewrite_synchronises(const struct pl_rewriter *r, uint32_t step);
/* Until the next call, pl_rewrite_bucketing() builds the buckets of this step only, and its changes
 * must be undone. False: of all steps, because the step is PL_NONE, no buckets were built before,
 * or communication slows computation down. */
bool pl_rewrite_only_step(struct pl_rewriter *r, uint32_t step);
/* How many groups of sharded parameters a pass has at most; 0: `why` they cannot be told. */
int pl_rewrite_groups(struct pl_rewriter *r, uint32_t *n, const char **why,
		      struct pl_err *err) PL_MUST;
/* All-gathers of a rank in a step that bring sharded parameters back; 0: there are none. */
uint32_t pl_rewrite_gathers(const struct pl_graph *g);
/* Put the tensors into buckets by the rule, each number `fuses` alone: set[tensor]. Returns the
 * number of buckets. */
uint32_t pl_rewrite_fill_buckets(const struct pl_rewriter *r, struct pl_bucket_rule rule,
				 uint32_t *set);
/* In how many backward passes of a step ranks synchronise gradients at most. */
int pl_rewrite_passes(const struct pl_graph *g, uint32_t *passes, struct pl_err *err) PL_MUST;
/* The present buckets; set_of has room for every tensor. Returns the number of buckets. */
uint32_t pl_rewrite_buckets(const struct pl_rewriter *r, uint32_t *set_of);
/* A tensor that is synchronised. */
struct pl_rewrite_tensor {
	uint32_t name;	      /* id of the edit; tensors of several groups can have one name */
	const char *in_plans; /* then it is followed by "@" and the number of the group */
	uint32_t group;	      /* of ranks, numbered from 0 */
	uint8_t coll;	      /* enum pl_coll of its communication */
	uint32_t part;	      /* of the step, from 0; parameters are updated between them */
	uint32_t fuses;	      /* from 0; only tensors with the same number may share a bucket */
	int64_t bytes; /* 0 or more; if the graph has none, an estimate from the recorded transfer
			*/
	pl_ns ready;   /* as recorded, see pl_rewrite_ready() */
	bool estimated, shared; /* shared: other groups have a tensor of that name */
	bool guessed; /* estimated, and the size of its communication was not recorded either */
};
/* The n tensors of the base, in order of readiness. */
const struct pl_rewrite_tensor *pl_rewrite_tensors(const struct pl_rewriter *r, uint32_t *n);
/* Does each rank carry the communication of tensors with that number `fuses` on one channel? */
bool pl_rewrite_one_channel(const struct pl_rewriter *r, uint32_t fuses);
/* The communication that carries the tensor, as a question to lib/cost; borrows from r. */
struct pl_cost_comm pl_rewrite_comm(const struct pl_rewriter *r, uint32_t tensor);
/* What lies on the critical path of the settled edit: the communication of which tensors, and
 * operations of which names of the graph. Either may be NULL. */
int pl_rewrite_hot(const struct pl_rewriter *r, uint8_t *tensors, uint8_t *names,
		   struct pl_err *err) PL_MUST;
/* The name, for `recompute`, of the layer or annotated range that keeps the tensor; NULL: none. */
const char *pl_rewrite_layer(const struct pl_edit *e, const struct pl_etensor *x);
int64_t pl_rewrite_accumulated(const struct pl_rewriter *r); /* microbatches, 1: none */
/* Do different nodes wait for different tensors? If not, no priority can help. */
bool pl_rewrite_needs_differ(const struct pl_rewriter *r);
/* The first time at which a node waits for the tensor in the settled edit: the earliest over ranks,
 * counted from the begin of the step. */
pl_ns pl_rewrite_need(const struct pl_rewriter *r, uint32_t tensor);
/* Name of the operation that makes the tensor, PL_NONE. */
uint32_t pl_rewrite_producer(const struct pl_rewriter *r, uint32_t tensor);
/* When the tensor is ready and could be issued: the latest over ranks, the mean over steps, from
 * the step's begin. Of the settled edit; its operations may have been changed. */
pl_ns pl_rewrite_ready(const struct pl_rewriter *r, uint32_t tensor);
/* The same if no communication slowed computation down. */
pl_ns pl_rewrite_ready_alone(const struct pl_rewriter *r, uint32_t tensor);
/* Apply all rewrites of a plan and settle. Accumulation comes after the other rewrites that change
 * operations. Messages name the line. */
int pl_rewrite_plan(struct pl_rewriter *r, const struct pl_plan *p, struct pl_err *err) PL_MUST;
/* Does the plan belong to this job? The job must have the tensors that the plan names, with the
 * same sizes unless these are estimates. PL_EDATA names the line. */
int pl_rewrite_check_base(const struct pl_rewriter *r, const struct pl_plan *p,
			  struct pl_err *err) PL_MUST;
/* pl_edit_mark() and pl_edit_undo() for the edit together with the state of the rewriter. */
size_t pl_rewrite_mark(const struct pl_rewriter *r);
void pl_rewrite_undo(struct pl_rewriter *r, size_t mark);

/* A longest sequence of operations that fuse-ops can make one. Names are ids of the graph. */
struct pl_op_run {
	uint32_t name, n; /* into pl_rewrite_runs.name */
};
struct pl_rewrite_runs {
	struct pl_op_run *run;
	uint32_t *name;
	size_t n_runs, cap_runs, n_names, cap_names;
};
/* The sequences of operations that `may` allows (asked once for each name). If layers are known, a
 * sequence lies in one layer or in neighbouring layers. The order is that of the first place in the
 * graph; each sequence occurs once. Operations that are fused already are left out. *out needs no
 * initialisation. */
int pl_rewrite_runs(struct pl_rewriter *r,
		    bool (*may)(void *arg, const struct pl_edit *e, uint32_t node), void *arg,
		    struct pl_rewrite_runs *out, struct pl_err *err) PL_MUST;
void pl_rewrite_runs_fini(struct pl_rewrite_runs *runs);

/* The tensors that are synchronised, in order of readiness, into the empty plan's base. A name that
 * several groups of ranks have is followed by "@" and the group's number. */
int pl_rewrite_base(const struct pl_rewriter *r, struct pl_plan *p, struct pl_err *err) PL_MUST;

#endif
