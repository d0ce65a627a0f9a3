/*
 * rewrite.h - the rewrites of a plan, carried out on an edit: paceline-plan(5) says what each
 * means and when it may be applied.
 *
 * Communication is addressed by the tensors that it carries. A *bucket* is the set of tensors that
 * one communication carries; on every rank it is an ARRIVE node, a RENDEZVOUS of all ranks of the
 * group, and a TRANSFER node whose duration is the coster's.
 */
#ifndef PL_REWRITE_H
#define PL_REWRITE_H

#include "graph/edit.h"
#include "plan/plan.h"
#include "plan/topology.h"

/* What a communication is, for who says how long it takes. */
struct pl_comm {
	uint8_t kind;	  /* enum pl_kind_id of the event: collective, send, receive */
	uint8_t coll;	  /* enum pl_coll */
	uint8_t algo;	  /* enum pl_algo */
	uint32_t group;	  /* graph.group, PL_NONE */
	uint32_t n;	  /* ranks */
	uint32_t servers; /* of PL_ALGO_PS */
	int64_t bytes;	  /* a rank's payload */
};
/* Implemented by lib/cost. */
struct pl_coster {
	void *arg;
	/* Duration of the transfer, from the last arrival on. */
	pl_ns (*transfer)(void *arg, const struct pl_comm *c);
	/* Host time that issuing one communication takes on the thread that issues it. */
	pl_ns (*issue)(void *arg, const struct pl_comm *c);
	/* Share of the time that an operation takes in that precision ("bf16"), given that it took
	 * 1 so far; 1 if it gains nothing. */
	double (*precision)(void *arg, const char *name, const char *word);
};

/* State of the plan on an edit: which algorithm, how many ranks, in what order. */
struct pl_rewriter;
struct pl_rewriter *pl_rewriter_new(struct pl_edit *e, const struct pl_coster *c,
				    struct pl_err *err);
void pl_rewriter_free(struct pl_rewriter *r);
/* Apply one rewrite, in all steps and on all ranks. PL_EDATA, with what does not fit, when a name
 * is unknown or the precondition is broken; the edit is then as before. Not settled. */
int pl_rewrite(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err) PL_MUST;
/* All of a plan; messages name the line. Settles. */
int pl_rewrite_plan(struct pl_rewriter *r, const struct pl_plan *p, struct pl_err *err) PL_MUST;
/* pl_edit_mark() and pl_edit_undo() that take the rewriter's own state along. */
size_t pl_rewriter_mark(const struct pl_rewriter *r);
void pl_rewriter_undo(struct pl_rewriter *r, size_t mark);

/* The tensors that are synchronised, in order of readiness (the mean over ranks and steps of their
 * producers' ends, by name where equal), into the empty plan's base. */
int pl_rewrite_base(const struct pl_edit *e, struct pl_plan *p, struct pl_err *err) PL_MUST;

#endif
