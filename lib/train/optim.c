/* The optimiser and schedule of a job, from its statements to what lib/tensor takes. */
#include <string.h>

#include "train/worker.h"

static int find(const char *const *names, size_t n, const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(names[i], name))
			return (int)i;
	return -1;
}

int pl_train_worker_optim_opts(const struct pl_job *j, int64_t steps, struct pl_optim_opts *o,
			       struct pl_err *err)
{
	static const char *const kinds[] = { "sgd", "adam", "adamw" };
	static const char *const schedules[] = { "constant", "step", "cosine", "linear" };
	int kind = find(kinds, PL_LEN(kinds), j->optimizer);
	int schedule = find(schedules, PL_LEN(schedules), j->schedule);
	double own = pl_job_number(j, "steps");

	if (kind < 0 || schedule < 0)
		return pl_fail(err, PL_EINTERNAL, "optimizer %.100s with schedule %.100s",
			       j->optimizer, j->schedule);
	*o = (struct pl_optim_opts){ .kind = (enum pl_optim_kind)kind,
				     .schedule = (enum pl_schedule)schedule,
				     .lr = pl_job_number(j, "lr"),
				     .momentum = pl_job_number(j, "momentum"),
				     .b1 = pl_job_number(j, "b1"),
				     .b2 = pl_job_number(j, "b2"),
				     .eps = pl_job_number(j, "eps"),
				     .decay = pl_job_number(j, "decay"),
				     .clip = pl_job_number(j, "clip"),
				     .nesterov = pl_job_number(j, "nesterov") > 0,
				     .gamma = pl_job_number(j, "gamma"),
				     .every = (int64_t)pl_job_number(j, "every"),
				     .warmup = j->warmup,
				     .steps = own > 0 ? (int64_t)own : steps };
	return 0;
}
