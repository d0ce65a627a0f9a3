/* The optimiser and schedule of a job, from its statements to what lib/tensor takes. */
#include "core/words.h"
#include "train/worker.h"

int pl_train_worker_optim_opts(const struct pl_job *j, int64_t steps, struct pl_optim_opts *o,
			       struct pl_err *err)
{
	/* in the order of the enums in tensor/net.h */
	int kind = pl_words_find("sgd|adam|adamw", j->optimizer);
	int schedule = pl_words_find("constant|step|cosine|linear", j->schedule);
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
