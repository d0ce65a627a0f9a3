/* The optimiser and schedule of a job, from its statements to what lib/tensor takes. */
#include "core/words.h"
#include "train/worker.h"

int pl_train_worker_optim_opts(const struct pl_job *j, int64_t steps, struct pl_optim_opts *o,
			       struct pl_err *err)
{
	/* in the order of the enums in tensor/net.h */
	int kind = pl_words_find("sgd|adam|adamw", j->optimizer);
	int schedule = pl_words_find("constant|step|cosine|linear", j->schedule);

	if (kind < 0 || schedule < 0)
		return pl_fail(err, PL_EINTERNAL, "optimizer %.100s with schedule %.100s",
			       j->optimizer, j->schedule);
	*o = (struct pl_optim_opts){ .kind = (enum pl_optim_kind)kind,
				     .schedule = (enum pl_schedule)schedule,
				     .lr = j->lr,
				     .momentum = j->momentum,
				     .b1 = j->b1,
				     .b2 = j->b2,
				     .eps = j->eps,
				     .decay = j->decay,
				     .clip = j->clip,
				     .nesterov = j->nesterov,
				     .decay_all = j->decay_all,
				     .no_decay = j->no_decay,
				     .gamma = j->gamma,
				     .every = j->every,
				     .warmup = j->warmup,
				     .steps = j->schedule_steps ? j->schedule_steps : steps };
	if (!o->steps) /* no step is taken, so no schedule is too short */
		o->steps = j->warmup + 1;
	return 0;
}
