/*
 * Local SGD: each rank takes `local-steps` steps with its own gradients, then all ranks take the
 * mean of their weights (Stich, Local SGD Converges Fast and Communicates Little, ICLR 2019; the
 * same as federated averaging with all members, McMahan et al., AISTATS 2017).
 *
 * All ranks take the mean of the weights, the running means of the network and the state of the
 * optimiser (as
 * Yu, Jin and Yang, ICML 2019, average the momentum). So all ranks are equal after a round, and the
 * checkpoint of rank 0 continues the training of all exactly. A checkpoint or an evaluation within
 * a round would need a mean that the training does not take. So both must fall on the ends of
 * rounds, and a checkpoint of another step is refused. Only the end of the training may be within a
 * round: the mean is taken there.
 *
 * Each rank takes the same number of samples in each step (train/feed.c), so the mean has no
 * weights. All values are summed first and divided after that.
 */
#include "dp/dp.h"
#include "train/worker.h"

struct local_sgd {
	struct pl_worker w; /* first */
	int64_t equal;	    /* the ranks were last equal after this number of steps */
	int64_t next;	    /* the next step */
};

static int average_slab(struct pl_worker *w, uint32_t number, float *v, size_t n,
			struct pl_err *err)
{
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE,
				  .algo = w->algo,
				  .src = v,
				  .dst = v,
				  .count = n,
				  .tag = pl_tag_of(w->step, number) };

	PL_CHECK(pl_train_worker_collective(w, PL_NAME_ISSUE, &a, err));
	w->view.be->scale(w->view.ctx, n, 1.0f / (float)w->ranks, v);
	return 0;
}

/* Make all ranks equal, unless they are. All ranks call it after the same step. */
static int average(struct local_sgd *l, struct pl_err *err)
{
	struct pl_worker *w = &l->w;
	float *slab[4] = { w->view.params, w->view.state };
	size_t n[4] = { w->view.n_params, w->view.n_state }, n_optim;
	uint32_t slabs;

	if (!w->o.world || l->equal == l->next)
		return 0;
	slabs = pl_optim_slabs(w->optim, slab + 2, &n_optim);
	for (uint32_t i = 0; i < 2 + slabs; i++)
		if (i >= 2 || n[i])
			PL_CHECK(average_slab(w, i, slab[i], i < 2 ? n[i] : n_optim, err));
	PL_CHECK(pl_comm_world_settle(w->o.world, err));
	pl_net_changed(w->net);
	l->equal = l->next;
	return 0;
}

static int local_step(struct pl_worker *w, int64_t step, struct pl_step_result *r,
		      struct pl_err *err)
{
	struct local_sgd *l = (struct local_sgd *)w;
	pl_ns begin;
	int rc;

	pl_train_worker_begin_step(w, step, r);
	PL_TRY(pl_train_worker_compute(w, 1, r, err));
	PL_TRY(pl_train_worker_update(w, r, err));
	l->next = step + 1;
	begin = pl_now_ns();
	if (l->next % w->round == 0)
		PL_TRY(average(l, err));
	r->wait_ns += pl_now_ns() - begin;
out:
	pl_train_worker_end_step(w, rc == 0, r);
	return rc;
}

/* ---- what needs equal ranks ----------------------------------------------------------------- */

static int local_eval(struct pl_worker *w, double *loss, int64_t *hits, int64_t *samples,
		      struct pl_err *err)
{
	PL_CHECK(average((struct local_sgd *)w, err));
	return pl_train_worker_eval(w, loss, hits, samples, err);
}

static int local_save(struct pl_worker *w, const char *path, int64_t step, struct pl_err *err)
{
	PL_CHECK(average((struct local_sgd *)w, err));
	return pl_train_worker_save(w, path, step, err);
}

static int local_export(struct pl_worker *w, const char *path, struct pl_err *err)
{
	PL_CHECK(average((struct local_sgd *)w, err));
	return pl_train_worker_export(w, path, err);
}

static int local_load(struct pl_worker *w, const char *path, bool to_train, int64_t *step,
		      struct pl_err *err)
{
	struct local_sgd *l = (struct local_sgd *)w;

	PL_CHECK(pl_train_worker_load(w, path, to_train, step, err));
	if (to_train && *step % w->round)
		return pl_fail(err, PL_EDATA,
			       "checkpoint %s: it was written after step %lld, within a round of "
			       "%lld local steps, and training without that end would not have "
			       "averaged there; to begin anew from its weights: --import",
			       path, (long long)*step, (long long)w->round);
	l->equal = l->next = *step;
	return 0;
}

/* ---- begin and end -------------------------------------------------------------------------- */

static int check_rounds(const struct pl_worker *w, struct pl_err *err)
{
	const struct {
		const char *name;
		int64_t v;
	} every[] = { { "eval-every", w->o.job->eval_every },
		      { "checkpoint-every", w->o.job->checkpoint_every } };

	for (size_t i = 0; i < PL_LEN(every); i++)
		if (every[i].v % w->round)
			return pl_fail(err, PL_EDATA,
				       "%s %lld is no multiple of local-steps=%lld: the ranks have "
				       "one network only at the ends of rounds",
				       every[i].name, (long long)every[i].v, (long long)w->round);
	return 0;
}

/* No bucket is sent, but the names of a plan must be tensors of the network. */
static int check_plan(const struct pl_worker *w, struct pl_err *err)
{
	const struct pl_plan *p = w->o.plan;
	struct pl_dp_buckets b;

	PL_CHECK(pl_dp_buckets(w->view.tensor, w->view.n_tensors, 0, w->algo, p, NULL, &b, err));
	pl_dp_buckets_fini(&b);
	for (size_t i = 0; p && !w->rank && i < p->n_rw; i++)
		if (!pl_train_worker_obeys(p->rw[i].op))
			pl_say(w->o.log, PL_LOG_WARN,
			       "the plan's %s is left out: local SGD sends no gradients",
			       pl_plan_rewrite_name(p->rw[i].op));
	return 0;
}

static int local_prepare(struct pl_worker *w, const struct pl_engine_opts *o, struct pl_err *err)
{
	PL_CHECK(pl_train_worker_init(w, o, NULL, err));
	w->round = o->job->local_steps;
	PL_CHECK(check_rounds(w, err));
	PL_CHECK(check_plan(w, err));
	return o->tracer ? pl_train_tracer_names(o->tracer, w->net, o->job, 4, err) : 0;
}

const struct pl_engine pl_dp_local_sgd_engine = {
	.name = "local-sgd",
	.policy = "local-sgd",
	.size = sizeof(struct local_sgd),
	.prepare = local_prepare,
	.control = pl_train_lockstep,
	.step = local_step,
	.eval = local_eval,
	.save = local_save,
	.load = local_load,
	.export_weights = local_export,
	.import_weights = pl_train_worker_import,
	.finish = pl_train_worker_fini,
};
