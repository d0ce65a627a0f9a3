/*
 * rewrite.h - the rewrites of a plan, carried out on an edit: paceline-plan(5) says what each
 * means and when it may be applied.
 *
 * Communication is addressed by the tensors that it carries. A *bucket* is the set of tensors that
 * one communication carries; on every rank it is an ARRIVE node, a RENDEZVOUS of all ranks of the
 * group, and a TRANSFER node whose duration lib/cost gives.
 */
#ifndef PL_REWRITE_H
#define PL_REWRITE_H

#include "cost/cost.h"
#include "plan/plan.h"

/*
 * The state of a plan on an edit. The synchronisation of gradients is rebuilt as the plan has it:
 * buckets follow one another on one channel a rank, in order of issue; a bucket arrives when its
 * last tensor is ready and was issued, and what waited for the communication that carried a tensor
 * waits for the bucket that carries it now. Buckets that are as recorded keep their recorded
 * arrival; lib/cost gives the duration of their transfer, too. Until a rewrite concerns
 * communication, what was recorded stays.
 */
struct pl_rewriter;
struct pl_rewriter *pl_rewriter_new(struct pl_edit *e, const struct pl_cost *c, struct pl_err *err);
void pl_rewriter_free(struct pl_rewriter *r);
/* Apply one rewrite, in all steps and on all ranks. PL_EDATA, with what does not fit, when a name
 * is unknown or the precondition is broken; the edit is then as before. Not settled. What changes
 * operations must come before accumulation. */
int pl_rewrite(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err) PL_MUST;
/* One sentence: what the rewrite changes in this graph, and why that helps. Of a rewrite that was
 * applied. */
int pl_rewrite_explain(const struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_buf *out,
		       struct pl_err *err) PL_MUST;
/* Does the rewrite change communication, so that the model of it counts? */
bool pl_rewrite_is_comm(unsigned op);
/* Rebuild the communication as the state has it, without a rewrite: what the model makes of the
 * recorded buckets. */
int pl_rewrite_model(struct pl_rewriter *r, struct pl_err *err) PL_MUST;
/* Replace the buckets: set_of[i] is the bucket of base tensor i, numbered from 0 in order of issue.
 * For searches. */
int pl_rewrite_buckets(struct pl_rewriter *r, const uint32_t *set_of, uint32_t n_sets,
		       struct pl_err *err) PL_MUST;
/* The same with all that a bucket can be. */
struct pl_bucketing {
	uint32_t n_sets;
	const uint32_t *set_of;	  /* [tensor]: set, numbered from 0 in order of issue */
	const uint32_t *parts;	  /* [set], NULL: whole */
	const uint8_t *algo;	  /* [set]: enum pl_algo, NULL: as it is */
	const uint32_t *priority; /* [tensor]: 1 the highest, 0 none; NULL: in order of issue */
};
int pl_rewrite_bucketing(struct pl_rewriter *r, const struct pl_bucketing *b,
			 struct pl_err *err) PL_MUST;
/* The present buckets: set_of has room for every tensor. Returns how many. */
uint32_t pl_rewriter_buckets(const struct pl_rewriter *r, uint32_t *set_of);
uint32_t pl_rewriter_group(const struct pl_rewriter *r, uint32_t tensor); /* only equal ones fuse */
/* Does each rank carry the group's communication on one channel? */
bool pl_rewriter_one_channel(const struct pl_rewriter *r, uint32_t group);
/* 0 or more; where the graph does not know it, a share of what the recorded transfer allows. */
int64_t pl_rewriter_bytes(const struct pl_rewriter *r, uint32_t tensor);
/* The communication that carries the tensor, as lib/cost is asked for it; borrows from r. */
struct pl_cost_comm pl_rewriter_comm(const struct pl_rewriter *r, uint32_t tensor);
/* Which tensors' communication lies on the critical path of the settled edit; hot[tensor]. */
int pl_rewriter_hot(const struct pl_rewriter *r, uint8_t *hot, struct pl_err *err) PL_MUST;
uint32_t pl_rewriter_tensors(const struct pl_rewriter *r);   /* of the base */
int64_t pl_rewriter_accumulate(const struct pl_rewriter *r); /* microbatches, 1: none */
/* Does anything wait for some of the tensors and not for others? Else no priority can help. */
bool pl_rewriter_needs_differ(const struct pl_rewriter *r);
/* When it is first waited for, of the settled edit: the earliest over ranks, from the step's begin.
 */
pl_ns pl_rewriter_need(const struct pl_rewriter *r, uint32_t tensor);
/* Its name, equal for tensors of different groups that are called the same. */
uint32_t pl_rewriter_name(const struct pl_rewriter *r, uint32_t tensor);
/* Name of the operation that makes the tensor, PL_NONE. */
uint32_t pl_rewriter_producer(const struct pl_rewriter *r, uint32_t tensor);
/* Names of operations on the critical path of the settled edit: hot[name], room for every name of
 * the graph. */
int pl_rewriter_hot_ops(const struct pl_rewriter *r, uint8_t *hot, struct pl_err *err) PL_MUST;
/* When the tensor is ready and could be issued: the latest over ranks, the mean over steps, from
 * the step's begin. Of the settled edit; its operations may have been changed. */
pl_ns pl_rewriter_ready(const struct pl_rewriter *r, uint32_t tensor);
/* All of a plan, accumulation behind what else changes operations; messages name the line. Settles.
 */
int pl_rewrite_plan(struct pl_rewriter *r, const struct pl_plan *p, struct pl_err *err) PL_MUST;
/* Is it the plan of this job? Tensors that it names must be there, with their sizes unless these
 * are estimates. PL_EDATA names the line. */
int pl_rewrite_check_base(const struct pl_rewriter *r, const struct pl_plan *p,
			  struct pl_err *err) PL_MUST;
/* pl_edit_mark() and pl_edit_undo() that take the rewriter's own state along. */
size_t pl_rewriter_mark(const struct pl_rewriter *r);
void pl_rewriter_undo(struct pl_rewriter *r, size_t mark);

/* A sequence of operations that fuse-ops could make one, as long as it can be, and in how many
 * places of the edit it stands. Names are ids of the graph. */
struct pl_op_run {
	uint32_t name, n; /* into pl_op_runs.name */
	uint64_t places;
};
struct pl_op_runs {
	struct pl_op_run *run;
	uint32_t *name;
	size_t n_runs, cap_runs, n_names, cap_names;
};
/* Those of operations for which `may` says yes (asked once a name), of one layer or neighbouring
 * ones where layers are known, in the order in which the graph has them first; none twice. *out
 * needs no initialisation. Of the edit as it is: what is fused is passed over. */
int pl_rewriter_runs(struct pl_rewriter *r,
		     bool (*may)(void *arg, const struct pl_edit *e, uint32_t node), void *arg,
		     struct pl_op_runs *out, struct pl_err *err) PL_MUST;
void pl_op_runs_fini(struct pl_op_runs *runs);

/* The tensors that are synchronised, in order of readiness, into the empty plan's base. A name that
 * several groups of ranks have is followed by "@" and the group's number. */
int pl_rewrite_base(const struct pl_rewriter *r, struct pl_plan *p, struct pl_err *err) PL_MUST;

#endif
