/*
 * simulate.h - workers and a server in simulated time, driven by a policy.
 *
 * Workers take steps of known length, and commit to one server. The server serves commits in the
 * order of their arrival, one after another; messages take time on the way, and the server's
 * replies may have one link for all of them, which sends one after another. The policy that decides
 * is the one that decides in run(1), so commits, waiting, staleness and throughput follow for any
 * speeds. Nothing is trained, but callbacks may: the weights can be carried along, and losses be
 * told to the policy. Equal options give equal results.
 */
#ifndef PL_POLICY_SIMULATE_H
#define PL_POLICY_SIMULATE_H

#include "policy/policy.h"

struct pl_policy_sim_worker {
	/* Of a step with its own batch, at least 1; in proportion with other batches. */
	pl_ns step_ns;
	int64_t batch; /* samples of a step, unless the policy says how many; 0: policy->batch */
	pl_ns link_ns; /* of a message between the worker and the server, one direction */
	/* Before that, of a reply on the link that all replies share; 0: they share none. */
	pl_ns shared_ns;
	pl_ns joins; /* time at which it joins; negative: by a change */
};
enum pl_policy_sim_what { PL_POLICY_SIM_SPEED, PL_POLICY_SIM_LEAVES, PL_POLICY_SIM_JOINS };
struct pl_policy_sim_change {
	pl_ns at;
	uint32_t worker;
	uint8_t what;  /* enum pl_policy_sim_what */
	pl_ns step_ns; /* SPEED: from the end of the present step */
};

struct pl_policy_sim_opts {
	const struct pl_policy_opts *policy;
	const struct pl_policy_sim_worker *worker; /* [policy->workers] */
	pl_ns service_ns;			   /* of a commit at the server */
	bool overlap; /* commits overlap with steps, if the policy allows it */
	pl_ns own_ns; /* that such a commit still takes from the steps of its worker */
	pl_ns until;  /* end of the simulation */
	const struct pl_policy_sim_change *changes; /* in order of time */
	size_t n_changes;
	/* Callbacks, NULL: none. `event` is called before the policy handles e, and may set
	 * e->loss; `act` for each action, in order. What fails ends the simulation. */
	int (*event)(void *arg, struct pl_policy_event *e, struct pl_err *err);
	int (*act)(void *arg, const struct pl_policy *p, const struct pl_policy_action *a,
		   pl_ns now, struct pl_err *err);
	void *arg;
};

/* Of one worker. The four times and the time in which it is absent add up to `until`. */
struct pl_policy_sim_result {
	struct pl_policy_worker seen; /* by the policy, at the end */
	uint64_t steps, samples;      /* ended, whether committed or not */
	pl_ns computing_ns,	      /* in steps, the one at the end included */
		sending_ns, /* on links and in their queue, in that of the server and in its
			     * service; own_ns */
		waiting_ns; /* for others: from the end of the service to the reply's departure */
	pl_ns absent_ns;
};

/* *r: policy->workers results. PL_ESTOP: the policy said PL_POLICY_FEW, whose text is the message;
 * the results are those until then. PL_EUSAGE: options out of range; and what the callbacks return.
 */
int pl_policy_simulate(const struct pl_policy_sim_opts *o, struct pl_policy_sim_result *r,
		       struct pl_err *err) PL_MUST;

#endif
