/* What the statements of a job say together, checked; what the name of a device means. */
#include <math.h>

#include "plan/job.h"

static int check_ranks(const struct pl_job *j, struct pl_err *err)
{
	int64_t n = j->ranks;

	if (pl_job_hosts_check(j->hosts, n, err) < 0)
		return j->hosts_line
			       ? pl_wrap(err, "line %u, column %u", j->hosts_line, j->hosts_column)
			       : err->code;
	for (size_t i = 0; i < j->n_links; i++)
		if (j->link[i].from >= n || j->link[i].to >= n)
			return pl_fail(
				err, PL_EDATA,
				"a link from or to rank %lld (--link); there are ranks 0 to %lld",
				(long long)pl_max_i64(j->link[i].from, j->link[i].to),
				(long long)n - 1);
	for (size_t i = 0; i < j->n_paces; i++)
		if (j->pace[i].rank >= n)
			return pl_fail(err, PL_EDATA,
				       "a pace of rank %lld (--pace); there are ranks 0 to %lld",
				       (long long)j->pace[i].rank, (long long)n - 1);
	return 0;
}

static int check_learning(const struct pl_job *j, struct pl_err *err)
{
	bool steps = j->steps >= 0 || j->epochs || j->schedule_steps > 0;

	if (j->nesterov && !(j->momentum > 0))
		return pl_fail(err, PL_EDATA, "nesterov needs a momentum; write momentum=0.9");
	if (!strcmp(j->schedule, "step") && !j->every)
		return pl_fail(err, PL_EDATA,
			       "schedule step needs every=STEPS, after which the learning rate is "
			       "multiplied by gamma");
	if ((!strcmp(j->schedule, "cosine") || !strcmp(j->schedule, "linear")) && !steps)
		return pl_fail(
			err, PL_EDATA,
			"schedule %s needs to know when it ends; write steps=N behind it, or "
			"give the job steps or epochs",
			j->schedule);
	if (j->steps > 0 && j->warmup > j->steps)
		return pl_fail(err, PL_EDATA, "warmup of %lld steps in a job of %lld",
			       (long long)j->warmup, (long long)j->steps);
	return 0;
}

bool pl_job_device(const char *name, bool *cuda, int *number)
{
	const char *s = name;

	*cuda = !strncmp(s, "cuda", 4);
	*number = -1;
	if (!*cuda || !s[4])
		return *cuda || !strcmp(s, "cpu");
	s += 5;
	*number = (int)pl_take_digits(&s);
	return name[4] == ':' && !*s && *number >= 0 && strlen(name) < 9;
}

static int check_device(const struct pl_job *j, struct pl_err *err)
{
	bool cuda;
	int number;

	if (pl_job_device(j->device, &cuda, &number) && !cuda && !strcmp(j->precision, "tf32"))
		return pl_fail(err, PL_EDATA,
			       "precision tf32 is that of GPUs; write device cuda with it, or "
			       "precision fp32");
	return 0;
}

double pl_job_policy_argument(const struct pl_job *j)
{
	if (!strcmp(j->policy, "ssp"))
		return (double)j->staleness;
	if (!strcmp(j->policy, "adsp"))
		return j->commits ? (double)j->commits : NAN;
	return j->local_steps ? (double)j->local_steps : NAN;
}

/* Ranks that commit to servers. */
static int check_workers(const struct pl_job *j, struct pl_err *err)
{
	bool nccl = !strcmp(j->transport, "nccl"), mpi = !strcmp(j->transport, "mpi");
	bool group = j->group != 1, cuda = false;
	int number;

	if (group && nccl && (!pl_job_device(j->device, &cuda, &number) || !cuda))
		return pl_fail(err, PL_EDATA,
			       "transport nccl is for the memory of GPUs; write: device cuda, or "
			       "another transport");
	if (j->group > 0)
		PL_CHECK(pl_job_workers_check(j, err));
	/* a launcher may place the ranks on any number of hosts */
	if (j->group > 1 && j->min_workers > pl_job_workers(j))
		return pl_fail(err, PL_EDATA,
			       "min-workers=%lld, but there are %lld groups of %lld ranks, and "
			       "each is one worker",
			       (long long)j->min_workers, (long long)pl_job_workers(j),
			       (long long)j->group);
	if (strcmp(j->transport, "auto") && strcmp(j->transport, "shm") &&
	    strcmp(j->transport, "tcp") && !(group && (nccl || mpi)))
		return pl_fail(err, PL_EDATA,
			       "transport %s: servers take auto, shm and tcp; groups of ranks "
			       "also mpi and nccl",
			       j->transport);
	return 0;
}

static int check_engine(const struct pl_job *j, struct pl_err *err)
{
	bool servers = !strcmp(j->engine, "ps");
	bool ranks_alone = !strcmp(j->policy, "bsp") || !strcmp(j->policy, "local-sgd");

	if (!servers && !ranks_alone)
		return pl_fail(
			err, PL_EDATA,
			"policy %s needs servers; write: engine ps (without them: policy bsp, "
			"or local-sgd)",
			j->policy);
	if (servers && !strcmp(j->policy, "local-sgd"))
		return pl_fail(
			err, PL_EDATA,
			"policy local-sgd has no servers; with engine ps the same is: policy "
			"local local-steps=%lld",
			(long long)j->local_steps);
	if (servers && j->target_loss > 0 && j->split >= 1 && !j->eval_data)
		return pl_fail(err, PL_EDATA,
			       "with engine ps the target-loss is one of held-out samples, but "
			       "nothing is held out; write: split 0.9, or eval-data and a file");
	return servers ? check_workers(j, err) : 0;
}

/* Evaluations, and what follows from them. */
static int check_evaluation(const struct pl_job *j, struct pl_err *err)
{
	const char *needs = j->patience		 ? "patience"
			    : j->checkpoint_best ? "checkpoint-best"
						 : NULL;

	if (j->eval_data && j->split < 1)
		return pl_fail(err, PL_EDATA,
			       "split holds samples out, eval-data has others; leave one");
	if (j->eval_data && !strncmp(j->eval_data, "synthetic:", 10))
		return pl_fail(err, PL_EDATA,
			       "eval-data synthetic: the seed would make the samples of data once "
			       "more; write: split 0.9");
	if (j->eval_every && j->split >= 1 && !j->eval_data)
		return pl_fail(err, PL_EDATA,
			       "eval-every, but nothing is held out; write: split 0.9, or "
			       "eval-data and a file");
	if (needs && !j->eval_every)
		return pl_fail(err, PL_EDATA, "%s judges evaluations; write: eval-every 100",
			       needs);
	return 0;
}

static int check_checkpoints(const struct pl_job *j, struct pl_err *err)
{
	if (j->checkpoint_every && !j->checkpoint)
		return pl_fail(err, PL_EDATA, "checkpoint-every without checkpoint FILE");
	if (j->checkpoint_keep && !j->checkpoint_every)
		return pl_fail(err, PL_EDATA,
			       "checkpoint-keep, but there is one checkpoint, at the end; write: "
			       "checkpoint-every 100");
	if (j->checkpoint_keep && j->checkpoint && !strcmp(j->checkpoint, "-"))
		return pl_fail(err, PL_EDATA, "checkpoint-keep needs a checkpoint with a name");
	if (j->checkpoint_best && j->checkpoint && !strcmp(j->checkpoint_best, j->checkpoint))
		return pl_fail(err, PL_EDATA,
			       "checkpoint and checkpoint-best are one file, %.200s: the last "
			       "would replace the best",
			       j->checkpoint);
	return 0;
}

int pl_job_check(const struct pl_job *j, struct pl_err *err)
{
	if (!j->model)
		return pl_fail(err, PL_EDATA,
			       "the job has no model; write: model mlp:784-512-10, or the name of "
			       "a file");
	if (!j->data)
		return pl_fail(err, PL_EDATA,
			       "the job has no data; write: data idx:IMAGES,LABELS, or csv:, npy:, "
			       "tokens:, synthetic:");
	if (j->steps < 0 && !j->epochs && !(j->target_loss > 0) && !j->patience)
		return pl_fail(err, PL_EDATA,
			       "the job never ends; write: steps N, epochs N, target-loss LOSS or "
			       "patience N");
	PL_CHECK(check_evaluation(j, err));
	PL_CHECK(check_checkpoints(j, err));
	PL_CHECK(check_device(j, err));
	PL_CHECK(check_engine(j, err));
	PL_CHECK(check_ranks(j, err));
	return check_learning(j, err);
}

int pl_job_microbatch(const struct pl_job *j, int64_t parts, int *size, struct pl_err *err)
{
	if (j->batch % parts)
		return pl_fail(err, PL_EDATA,
			       "a batch of %lld cannot be cut into %lld microbatches of one size",
			       (long long)j->batch, (long long)parts);
	*size = (int)(j->batch / parts);
	return 0;
}
