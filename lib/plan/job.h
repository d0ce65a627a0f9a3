/*
 * job.h - what to run: paceline-job(5). Data and text.
 *
 * One "key value" a line, like
 *
 *     paceline-job 1
 *     model mlp:784-512-512-10         # a preset, or a file in the form of model(5)
 *     data idx:IMAGES,LABELS           # csv:FILE  npy:X,Y  tokens:FILE  synthetic:classes=10
 *     split 0.8
 *     batch 64                         # samples a rank and step
 *     optimizer sgd lr=0.1 momentum=0.9
 *     steps 500                        # or: epochs 3, target-loss 0.1, patience 5
 *     ranks 2
 */
#ifndef PL_JOB_H
#define PL_JOB_H

#include "lang/lang.h"
#include "plan/model.h"

struct pl_job_link {
	int64_t from, to;    /* -1: any */
	double bytes_per_ns; /* 0: as fast as it goes */
	pl_ns latency_ns;
	bool shared; /* the rate is that of all that a rank sends there, not for each receiver */
};
struct pl_job_pace {
	int64_t rank;  /* -1: all */
	double ms;     /* added to each step's computation */
	double factor; /* computation takes so many times as long; 1 */
	double speed;  /* steps per second at most; 0: any */
};
/* Zero-initialised, then pl_job_init(). Strings belong to the arena. */
struct pl_job {
	struct pl_arena arena;
	/* NULL: not given. transport, algorithm, policy, precision, device, optimizer, schedule,
	 * monitor: a name that is known, the default if none was given. */
	const char *name, *model, *data, *transport, *meet, *checkpoint, *resume, *algorithm,
		*policy, *precision, *device, *engine;
	const char *optimizer, *schedule, *monitor;
	const char *hosts; /* "2": so many, each with as many ranks; "3,1": the ranks of each */
	const char *eval_data, *checkpoint_best;
	/* What is said behind optimizer, schedule and policy; the defaults of that kind. */
	double lr, momentum, b1, b2, eps, decay, clip, gamma;
	bool nesterov, decay_all;
	const char *no_decay; /* names of parameters; NULL: none */
	int64_t every, schedule_steps, local_steps, staleness, commits, min_workers;
	pl_ns period, epoch;
	struct pl_job_link *link; /* of several for one pair the last counts */
	size_t n_links, cap_links;
	struct pl_job_pace *pace; /* of several for one rank ms add up, factors multiply */
	size_t n_paces, cap_paces;
	double split;		       /* share of the samples that are trained on; 1 */
	double target_loss, bucket_mb; /* 0: none; bucket_mb: default 25, the first 1 */
	int64_t servers, group;	 /* of engine ps; group: ranks that are one worker, -1: of a host */
	bool overlap;		 /* of commits with steps */
	int64_t steps;		 /* below 0: not given */
	int64_t patience;	 /* evaluations; 0: any number */
	double delta;		 /* what a better evaluation is better by, at least */
	int64_t checkpoint_keep; /* 0: not given */
	int64_t ranks_said;	 /* `ranks`, if the job or --speeds says it; 0 */
	int64_t batch, epochs, ranks, seed, accumulate, eval_every, checkpoint_every, threads,
		warmup; /* warmup: steps in which the learning rate rises from 0 */
	pl_ns timeout_ns;
	uint32_t line; /* of the last statement read */
	/* of the statements data, eval-data and hosts; 0: an option, or none */
	uint32_t data_line, data_column, eval_line, eval_column, hosts_line, hosts_column;
};
void pl_job_init(struct pl_job *j);
void pl_job_fini(struct pl_job *j);
/* pl_job_check() is not part of it: statements may still be set. */
int pl_job_read(struct pl_in *in, const char *name, struct pl_job *j, struct pl_err *err) PL_MUST;
/* Do these first bytes look like a job? Their first word is a statement of jobs. */
bool pl_job_probe(const uint8_t *p, size_t n);
/* The model of a job that was read from `path`: a preset, or a file, whose name counts as it stands
 * or in the folder of the job. */
int pl_job_model(const struct pl_job *j, const char *path, struct pl_model *m,
		 struct pl_err *err) PL_MUST;
/* Every statement that is not the default; read back, it is the same job. */
int pl_job_write(const struct pl_job *j, struct pl_out *out, struct pl_err *err) PL_MUST;
/* One statement, as of an option "--set batch=128" or "--set 'optimizer adam lr=0.001'", in place
 * of what was said before (links and paces: as well); PL_EUSAGE, and then the job is as it was. */
int pl_job_set(struct pl_job *j, const char *statement, struct pl_err *err) PL_MUST;
/* "1,1,2.5": workers that make so many steps a second: ranks, and the pace of each; PL_EUSAGE. */
int pl_job_set_speeds(struct pl_job *j, const char *speeds, struct pl_err *err) PL_MUST;
/* Everything that can be said before data and model are read: steps or target given, batch > 0 ...
 */
int pl_job_check(const struct pl_job *j, struct pl_err *err) PL_MUST;
/* What a device's name means: *cuda, and its number, below 0: that of the rank's place on its host.
 * False: there is no such name; no job has one. */
bool pl_job_device(const char *name, bool *cuda, int *number);
/* How many hosts the statement `hosts` names, and on which of them a rank of so many is. */
int64_t pl_job_hosts(const char *hosts);
int64_t pl_job_host(const char *hosts, int64_t ranks, int64_t rank);
/* Do these hosts have so many ranks? PL_EDATA. */
int pl_job_hosts_check(const char *hosts, int64_t ranks, struct pl_err *err) PL_MUST;
/* What commits to servers: ranks, groups of them, or, where hosts are groups, the hosts that the
 * job says. How many, and the ranks of each: first[i] to first[i + 1] - 1, to be freed by
 * pl_free(). PL_EDATA: groups or hosts do not have all ranks. */
int64_t pl_job_workers(const struct pl_job *j);
int pl_job_workers_check(const struct pl_job *j, struct pl_err *err) PL_MUST;
int pl_job_workers_find(const struct pl_job *j, uint32_t **first, struct pl_err *err) PL_MUST;
/* The number of a policy of servers (policy/policy.h): "ssp:40" has 40. NAN: the policy's own. */
double pl_job_policy_argument(const struct pl_job *j);
/* The samples of each of `parts` microbatches of a batch; PL_EDATA: they cannot have one size. */
int pl_job_microbatch(const struct pl_job *j, int64_t parts, int *size, struct pl_err *err) PL_MUST;
/* How many numbers the optimiser reads and writes for a parameter: parameters, gradients and its
 * state are read, all but the gradients written. */
int pl_job_update_numbers(const struct pl_job *j);
extern const struct pl_lang_schema pl_job_schema;

#endif
