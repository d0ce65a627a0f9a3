/*
 * policies.h - which synchronisation policy suits a job whose workers differ in speed: every policy
 * simulated (servers.h), beside an all-reduce without servers.
 *
 * The simulation tells samples a second, not how many samples training needs. So the time to a loss
 * is estimated: a policy counts with the greatest factor of samples, by those of bsp for the same
 * loss, that bench/policies measured (docs/RESULTS.md). Policies that change the optimizer or the
 * batch, or sometimes never came to the loss, have no estimate: only a trial tells.
 */
#ifndef PL_SIM_POLICIES_H
#define PL_SIM_POLICIES_H

#include "sim/servers.h"

struct pl_sim_policy {
	const char *name;     /* "all-reduce" or the policy's; static */
	const char *no;	      /* the simulation failed, or the policy is no choice; NULL: neither */
	double samples_per_s; /* of all workers together */
	/* Shares of a worker's time, the mean of the workers. */
	double computing, waiting, committing;
	double commits_per_s; /* of all workers together */
	double staleness;     /* mean of all commits */
	double samples;	      /* factor of the samples to a loss, by bsp's; NAN: not known */
	double time;	      /* factor of the time to a loss, by bsp's; NAN: not known */
};
/* How the changes of all workers are summed, and how long once takes. */
struct pl_sim_sum {
	uint32_t servers; /* on hosts of their own */
	bool colocated;	  /* servers beside each worker, too (none alone: an all-reduce) */
	double share;	  /* of the bytes, on each of the hosts of their own */
	double ns;
};
#define PL_SIM_SUMS 7
struct pl_sim_policies {
	struct pl_sim_policy *row;
	size_t n, best; /* best: the least time */
	struct pl_sim_sum sum[PL_SIM_SUMS];
	size_t n_sums;
	uint32_t workers;
	double heterogeneity;
};
/*
 * o->job is of any engine; its statements engine and policy do not count, and are changed by this
 * function. o->until and o->steps do not count either: each policy runs for so many steps of the
 * slowest worker.
 */
#define PL_SIM_POLICY_STEPS 400
int pl_sim_policies(struct pl_job *job, const struct pl_sim_servers_opts *o,
		    struct pl_sim_policies *p, struct pl_err *err) PL_MUST;
void pl_sim_policies_fini(struct pl_sim_policies *p);

#endif
