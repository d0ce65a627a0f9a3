/*
 * policy.h - synchronisation policies of a parameter server: when workers commit, when they wait,
 * and how the server applies what they commit.
 *
 * A policy is a pure state machine. It is told what happened and when, and answers with actions. It
 * reads no clock, sends nothing and holds no weights, so the same code decides in the servers of
 * run(1) (lib/ps) and in the simulation of replay(1) (lib/sim): equal events give equal actions.
 *
 * Each worker repeats: take local steps from the weights W that it pulled last; commit, that is,
 * send the change U of its weights since then; wait for the reply, which carries the server's
 * weights. The *order* of the last reply says when it commits next. Where commits *overlap* with
 * steps, the worker goes on instead; when the reply comes, it adds what it has changed since the
 * commit to the server's weights, and that is the beginning of the next U.
 *
 * The server holds W, and two vectors of the same size that begin at 0: S, which collects commits
 * that are not applied yet, and V, the velocity. All updates of all policies are one linear form
 * (struct pl_policy_update), so a server needs no code of a policy.
 */
#ifndef PL_POLICY_H
#define PL_POLICY_H

#include "core/core.h"

/* ---- which policy ---------------------------------------------------------------------------- */

struct pl_policy_kind; /* internal.h: a file policy_NAME.c for each */

/* What a policy is made from. Members that a policy does not use have no effect. */
struct pl_policy_opts {
	const struct pl_policy_kind *kind;
	uint32_t workers; /* they are 0 .. workers - 1; each joins before it commits */
	/* Fewer than these: PL_POLICY_FEW. 0: all of them under a policy whose workers wait for
	 * one another (because the result would be that of another batch), else 1. Before so many
	 * have joined, and when fewer remain, replies are held. */
	uint32_t min_workers;
	int64_t batch;	    /* samples of a local step, the mean of all workers */
	int64_t rank_batch; /* of each rank of a worker; 0: it is one rank, so `batch` */
	double argument;    /* what "ssp:40" has behind the colon; NAN: the policy's default */
	/* of policies that decide by time (adsp, adsp++, adacomm) */
	/* The check period, Gamma; 0: PL_POLICY_PERIOD steps of the slowest worker, of adacomm as
	 * many rounds with its first tau. */
	pl_ns period;
	pl_ns epoch;	    /* from one search to the next; 0: PL_POLICY_EPOCH periods */
	double target_loss; /* 0: none */
	uint64_t seed;
	/* Of all workers together, at which training ends; 0: not known. Workers that wait for one
	 * another make no more of them than that in the last round. */
	uint64_t steps;
};
#define PL_POLICY_PERIOD 16
#define PL_POLICY_EPOCH	 20

/* "bsp", "ssp:40" ... into kind and argument. PL_EUSAGE: no such policy (the message names those
 * there are, and the nearest one), or an argument out of its range, or one where there is none. */
int pl_policy_parse(const char *text, struct pl_policy_opts *o, struct pl_err *err) PL_MUST;
/* In the order of the manual; NULL after the last one. */
const struct pl_policy_kind *pl_policy_kind_at(size_t i);
const char *pl_policy_name(const struct pl_policy_kind *k);
const char *pl_policy_help(const struct pl_policy_kind *k); /* one sentence */
/* Do workers wait for one another? (bsp, local, adacomm ...) */
bool pl_policy_waits(const struct pl_policy_kind *k);
/* May workers go on with steps until the reply to a commit comes? (asp, adsp, dylu ...) */
bool pl_policy_overlaps(const struct pl_policy_kind *k);

/* ---- what happens ---------------------------------------------------------------------------- */

enum pl_policy_event_kind {
	PL_POLICY_JOINED, /* the worker is there, for the first time or again; it waits for a reply
			   */
	PL_POLICY_LEFT,	  /* the worker is lost, or has ended */
	PL_POLICY_COMMITTED, /* its U has arrived; it waits for a reply */
	PL_POLICY_TIMER	     /* the time of the last PL_POLICY_WAKE has come */
};
struct pl_policy_event {
	uint8_t kind; /* enum pl_policy_event_kind */
	uint32_t worker;
	pl_ns now; /* never before that of the event before it */
	/* COMMITTED */
	uint64_t steps, samples; /* that U is of */
	uint64_t base;		 /* the version of the weights from which they began */
	double loss;		 /* mean training loss of these steps; NAN: unknown */
	pl_ns step_ns;		 /* mean time of one of them, pauses of a paced worker included */
	pl_ns commit_ns; /* time of its commit before this one, to the end of the reply (O_i); 0:
			    none */
	/* If the worker made steps meanwhile, commit_ns is the time that the commit took from them,
	 * and this the time until the reply, before which there is no other commit; else 0. */
	pl_ns reply_ns;
};

/* ---- what the server does -------------------------------------------------------------------- */

/* When a worker commits next. It commits at the end of the first local step at which one of the two
 * conditions holds that are given; at least one local step comes before each commit. */
struct pl_policy_order {
	uint64_t steps;	    /* after so many local steps; 0: not given */
	pl_ns first, every; /* at the times first, first + every ... of `now`; every 0: not given.
			     * A commit that is late by several times counts for the first one of
			     * them: the others are still due, so a worker catches up. */
	int64_t batch;	    /* samples of a local step; 0: as the job says */
	double rate;	    /* factor of the local learning rate; 1 */
};
/* In this order, with U that of the worker's last commit:
 *     S = S + s_u U
 *     V = v_v V + v_u U + v_s S
 *     W = W + w_u U + w_s S + w_v V
 *     clear: S = 0
 * W gets a new version if a factor of its line is not 0. v_v is 1 where V stays as it is. Factors
 * of U are not 0 only in the answer to the COMMITTED event of that worker: U may be forgotten then.
 */
struct pl_policy_update {
	double s_u, v_v, v_u, v_s, w_u, w_s, w_v;
	bool clear;
};
enum pl_policy_action_kind {
	PL_POLICY_UPDATE,
	PL_POLICY_REPLY, /* send W and the order to the worker, which goes on */
	PL_POLICY_ORDER, /* send the order alone to a worker that computes: it replaces its last one
			  */
	PL_POLICY_WAKE,	 /* send a TIMER event at `at`; it replaces the one before it */
	PL_POLICY_NOTE,	 /* a decision, for trace and log: `text` */
	PL_POLICY_FEW	 /* too few workers remain: nobody goes on until others join; `text` names
			  * the worker that has left */
};
struct pl_policy_action {
	uint8_t kind; /* enum pl_policy_action_kind */
	uint32_t worker;
	struct pl_policy_update update;
	struct pl_policy_order order;
	pl_ns at;
	char text[160];
};

struct pl_policy; /* opaque */
int pl_policy_new(const struct pl_policy_opts *o, struct pl_policy **p, struct pl_err *err) PL_MUST;
void pl_policy_free(struct pl_policy *p); /* NULL is fine */
/*
 * The actions, in the order in which they are to be carried out, belong to the policy until the
 * next call. Each worker that joined or committed gets exactly one REPLY, now or as a consequence
 * of a later event, unless it leaves before. PL_EINTERNAL: an event that cannot be (a worker that
 * has not joined commits, or one that waits for a reply commits again); PL_ENOMEM.
 */
int pl_policy_handle(struct pl_policy *p, const struct pl_policy_event *e,
		     const struct pl_policy_action **a, size_t *n, struct pl_err *err) PL_MUST;

/* ---- what it has seen ------------------------------------------------------------------------ */

struct pl_policy_worker {
	bool present, waiting; /* waiting: for its reply */
	uint64_t commits, steps, samples;
	uint64_t version; /* of the weights that it pulled last */
	/* of its commits: updates of W by others between its pull and its commit */
	double staleness_mean;
	uint64_t staleness_max;
	pl_ns step_ns, commit_ns; /* of its last commit; 0: none yet */
};
const struct pl_policy_worker *pl_policy_worker(const struct pl_policy *p, uint32_t worker);
uint64_t pl_policy_version(const struct pl_policy *p);	   /* number of UPDATEs that changed W */
uint32_t pl_policy_min_workers(const struct pl_policy *p); /* the default filled in */
/* Are there commits in S, so that the weights do not have all that was committed? Training ends, is
 * evaluated and is saved when there are none. */
bool pl_policy_collects(const struct pl_policy *p);
/* "worker 1 has left: 2 of 3 workers remain, and bsp needs 3" */
void pl_policy_few(const struct pl_policy *p, uint32_t worker, char *text, size_t size);
/* H = mean(v) / min(v) of the workers that are present and have committed, v = 1 / step_ns; NAN:
 * none has. */
double pl_policy_heterogeneity(const struct pl_policy *p);

/*
 * A server that was restarted goes on where it was: put() appends the counts of all workers and
 * what the policy decided (the rate of commits, tau ...) to *b, in less than 1 KiB and 64 bytes a
 * worker; get() takes them into a new policy of the same kind and number of workers, in which no
 * worker is present. PL_EDATA: other bytes.
 */
int pl_policy_put(const struct pl_policy *p, uint8_t *to, size_t size, size_t *n,
		  struct pl_err *err) PL_MUST;
int pl_policy_get(struct pl_policy *p, const uint8_t *from, size_t n, struct pl_err *err) PL_MUST;

#endif
