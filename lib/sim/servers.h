/*
 * servers.h - a job with a parameter server, in simulated time: how often each worker commits, how
 * long it waits, how many samples all of them make, and how old the weights are that they begin
 * from.
 *
 * The policy is the code that decides in run(1) (policy/policy.h). The times come from the job: a
 * worker of a given speed takes 1 / speed for a step, and messages take the time of the job's
 * links. A group of ranks is one worker: its step is that of its slowest rank, and a sum of the
 * gradients of all. Losses are not simulated: they are all equal. So a policy that compares
 * settings by them spends time on that, as in run(1), and stays with what it begins with.
 */
#ifndef PL_SIM_SERVERS_H
#define PL_SIM_SERVERS_H

#include "plan/job.h"
#include "plan/model.h"
#include "policy/simulate.h"

#define PL_SIM_BYTES_PER_NS 6	  /* of memory */
#define PL_SIM_MESSAGE_NS   50000 /* of a message, without its link */

struct pl_sim_servers_opts {
	const struct pl_job *job;
	size_t n;	  /* numbers that a commit changes */
	int64_t steps;	  /* of all workers together, at which training ends; 0: `until` */
	pl_ns until;	  /* 0: steps */
	pl_ns step_ns;	  /* of a worker whose speed the job does not give; 0: not known */
	pl_ns service_ns; /* of a commit at the server; below 0: that of moving the numbers */
};
struct pl_sim_servers {
	uint32_t workers;
	struct pl_policy_sim_result *worker;
	pl_ns end_ns;
	uint64_t steps, samples, commits; /* that the server has applied */
	double heterogeneity;
};
/* PL_EDATA: the job has no servers, or a worker has no speed; PL_EIO: the policy ends the training.
 */
int pl_sim_servers(const struct pl_sim_servers_opts *o, struct pl_sim_servers *s,
		   struct pl_err *err) PL_MUST;
void pl_sim_servers_fini(struct pl_sim_servers *s);

/* Of which the simulation is made: steps of the workers, alone. */
struct pl_sim_times {
	pl_ns slowest;
	double mean, heterogeneity; /* ns; H = mean(v) / min(v), v = 1 / step */
};
int pl_sim_servers_times(const struct pl_sim_servers_opts *o, struct pl_sim_times *t,
			 struct pl_err *err) PL_MUST;
/* ns of n numbers from a process to others, as the job's links have it: a slice to each of so many
 * servers, which take one link after another, or each its own. from, to -1: any. */
double pl_sim_servers_link(const struct pl_job *j, int64_t from, int64_t to, double n,
			   int64_t servers);
/* How many numbers a commit of the job changes: opts.n. */
int pl_sim_servers_numbers(const struct pl_job *j, const struct pl_model *m, size_t *n,
			   struct pl_err *err) PL_MUST;

#endif
