/*
 * internal.h - what a policy is made of: one struct pl_policy_kind in a file policy_NAME.c, and the
 * common part (policy.c), which counts, checks the events and collects the actions.
 *
 * The common part calls a function of the kind after it has entered the event into the counts. The
 * kind answers with pl_policy_update(), pl_policy_reply() and so on, in the order in which the
 * server carries them out.
 */
#ifndef PL_POLICY_INTERNAL_H
#define PL_POLICY_INTERNAL_H

#include <math.h>

#include "policy/policy.h"

struct pl_policy_kind {
	const char *name, *help;
	const char *argument; /* the letter in "ssp:S"; NULL: it takes none */
	/* The range of the argument, which is a whole number, and its default. */
	double least, most, usual;
	bool waits;
	bool overlaps; /* each commit has its reply at once, and makes one version */
	/* Bytes of the state of the policy and of that of each worker, which begin as zeros. */
	size_t state, of_worker;
	/* The state of the policy begins with so many members of 8 bytes that put() keeps; that of
	 * a worker, if it has one, begins with one. */
	uint32_t kept;
	void (*begin)(struct pl_policy *p); /* before the first event, or after get(); NULL */
	void (*joined)(struct pl_policy *p, const struct pl_policy_event *e);
	void (*left)(struct pl_policy *p, const struct pl_policy_event *e); /* NULL */
	void (*committed)(struct pl_policy *p, const struct pl_policy_event *e);
	void (*timer)(struct pl_policy *p, const struct pl_policy_event *e); /* NULL */
	/* What the worker does until its next commit; *o asks for one local step. NULL: that. */
	void (*order)(const struct pl_policy *p, uint32_t worker, struct pl_policy_order *o);
	/* Are the members that get() read possible? NULL: all are. */
	bool (*valid)(const struct pl_policy *p);
	/* Of a kind whose workers wait for one another: the part that differs, see round.c. */
	void (*apply)(const struct pl_policy *p, double weight, struct pl_policy_update *u);
	void (*decide)(struct pl_policy *p); /* between two rounds; NULL */
};

struct pl_policy {
	struct pl_policy_opts o;    /* with the defaults filled in */
	struct pl_policy_worker *w; /* [worker] */
	bool *ready; /* [worker]: the kind has replied, but too few workers are present */
	void *state, *each;
	uint32_t present, n_ready;
	uint32_t in_round; /* round.c: present workers that have committed in this round */
	uint64_t version;
	pl_ns now;
	struct pl_policy_action *a;
	size_t n, cap;
};

extern const struct pl_policy_kind pl_policy_bsp, pl_policy_ssp, pl_policy_asp, pl_policy_local,
	pl_policy_fixed_adacomm, pl_policy_adacomm, pl_policy_adsp, pl_policy_adsp_plus,
	pl_policy_batchtune, pl_policy_diloco, pl_policy_dylu;

/* ---- actions --------------------------------------------------------------------------------- */

/* The worker may go on. The common part sends the reply later if too few workers are present. */
void pl_policy_reply(struct pl_policy *p, uint32_t worker);
void pl_policy_update(struct pl_policy *p, uint32_t worker, const struct pl_policy_update *u);
/* The order of now to a worker that computes; nothing for other workers. */
void pl_policy_send_order(struct pl_policy *p, uint32_t worker);
void pl_policy_wake(struct pl_policy *p, pl_ns at);
void pl_policy_note(struct pl_policy *p, uint32_t worker, const char *fmt, ...) PL_PRINTF(3, 4);
/* Too few workers are present: nobody goes on. */
bool pl_policy_held(const struct pl_policy *p);

static inline void *pl_policy_state_of(const struct pl_policy *p, uint32_t worker)
{
	return (char *)p->each + p->o.kind->of_worker * worker;
}
/* Add 1/M of U to W: M workers are present. */
void pl_policy_apply_at_once(struct pl_policy *p, const struct pl_policy_event *e);
/* The order of policies with tau local steps a commit. */
void pl_policy_argument_steps(const struct pl_policy *p, uint32_t worker,
			      struct pl_policy_order *o);

/* ---- rounds (round.c) ------------------------------------------------------------------------ */

/* The state of a kind whose workers wait for one another begins with it. */
struct pl_policy_round {
	double weight;	/* of the commits in S, 1 for a commit with the batch of the job */
	uint64_t begun; /* steps of all workers before this round */
};
#define PL_POLICY_ROUND_KEPT 2	/* members that put() keeps */
struct pl_policy_round_worker { /* 8 bytes, which put() keeps */
	uint32_t committed : 1; /* in this round */
	/* batchtune: samples of a step before any batch was chosen, 0: not known; and now, 0: the
	 * same. */
	uint32_t own : 31, batch;
};
#define PL_POLICY_ROUND                                                                            \
	.waits = true, .joined = pl_policy_round_joined, .left = pl_policy_round_left,             \
	.committed = pl_policy_round_committed, .valid = pl_policy_round_valid
void pl_policy_round_joined(struct pl_policy *p, const struct pl_policy_event *e);
void pl_policy_round_left(struct pl_policy *p, const struct pl_policy_event *e);
void pl_policy_round_committed(struct pl_policy *p, const struct pl_policy_event *e);
bool pl_policy_round_valid(const struct pl_policy *p);
/* Steps of a worker in this round: the rest of the training, divided by the workers. */
uint64_t pl_policy_round_most(const struct pl_policy *p);
/* W = W + S / weight. */
void pl_policy_round_mean(const struct pl_policy *p, double weight, struct pl_policy_update *u);

/* ---- losses over time (probe.c) -------------------------------------------------------------- */

/* A line through losses over time, by weighted least squares. Zero-initialised: no loss. */
struct pl_policy_probe {
	uint32_t n;
	double weight, weights2; /* sums of the weights and of their squares */
	double t, loss;		 /* means */
	double tt, tl, ll;	 /* weighted sums of squares and products about the means */
};
#define PL_POLICY_PROBE_LEAST 8 /* losses: fewer say nothing */
struct pl_policy_rate {
	double rate, error; /* per second, with its standard error */
};
/* Losses that are not finite are left out. */
void pl_policy_probe_add(struct pl_policy_probe *p, double seconds, double loss, double weight);
/* The relative speed of the loss: how fast its distance from `target` (NAN: 0) shrinks, divided by
 * this distance. False: there are too few losses, or the distance is 0 or less. */
bool pl_policy_probe_rate(const struct pl_policy_probe *p, double target, struct pl_policy_rate *r);
/* Standard error of the mean loss; INFINITY: one loss or none. */
double pl_policy_probe_error(const struct pl_policy_probe *p);

/* ---- adsp (policy_adsp.c), and its search (adsp_search.c) -------------------------------------
 */

enum pl_policy_knob { PL_POLICY_RATE, PL_POLICY_MOMENTUM, PL_POLICY_FACTOR, PL_POLICY_KNOBS };
struct pl_policy_setting {
	uint64_t at[PL_POLICY_KNOBS]; /* commits a period; places in the lists of values */
};
extern const double pl_policy_momenta[4], pl_policy_factors[2];

struct pl_policy_search {
	enum { PL_POLICY_IDLE, PL_POLICY_BEFORE, PL_POLICY_TRIAL, PL_POLICY_AFTER } phase;
	struct pl_policy_setting trial;
	uint32_t knob;
	int direction;
	bool moved;	  /* in this direction */
	bool forced;	  /* the loss rises: search at the next check */
	uint32_t periods; /* of this probe */
	struct pl_policy_probe probe;
	pl_ns since;		       /* losses of steps before it do not count */
	pl_ns next;		       /* begin of the next search */
	struct pl_policy_rate rate[3]; /* by the phase, less 1 */
};

struct pl_policy_adsp {
	/* kept */
	struct pl_policy_setting base; /* what the last search chose; 0 commits: none yet */
	uint64_t target;	       /* C: commits of each worker at the end of the period */
	int64_t period;		       /* 0: not known yet */
	/* not kept */
	bool running;	/* all speeds are known, and periods follow one another */
	pl_ns begun;	/* of this period */
	uint64_t grown; /* C in this period */
	struct pl_policy_probe losses, losses_before; /* of this period, and of that before */
	struct pl_policy_search search;
};

/* Periods begin: the first search is due. */
void pl_policy_search_start(const struct pl_policy *p, struct pl_policy_adsp *a);
/* A check period has ended. `most`: the limit of the commits a period. */
void pl_policy_search_check(struct pl_policy *p, struct pl_policy_adsp *a, uint64_t most);
/* Workers came or went: the comparison is made again. */
void pl_policy_search_again(const struct pl_policy *p, struct pl_policy_adsp *a);
/* The setting under which workers commit now. */
static inline const struct pl_policy_setting *
pl_policy_search_setting(const struct pl_policy_adsp *a)
{
	return a->search.phase == PL_POLICY_TRIAL ? &a->search.trial : &a->base;
}

#endif
