/*
 * Optimisers: SGD with momentum (Sutskever et al., ICML 2013, in PyTorch's form), Adam (Kingma and
 * Ba, ICLR 2015), AdamW (Loshchilov and Hutter, ICLR 2019); clipping of the norm of all gradients
 * (Pascanu et al., ICML 2013); schedules of the learning rate.
 *
 * State has the same layout as the slab of parameters. So each range of floats can be updated by
 * itself, in any order, as soon as its gradients are complete, with the same result. Weight decay
 * changes only at the beginning of tensors; the padding between tensors is zero and stays zero.
 */
#include <math.h>

#include "tensor/net_internal.h"

struct pl_optim {
	struct pl_net *net;
	struct pl_optim_opts o;
	float *slab[2]; /* momentum; first and second moments */
	uint32_t n_slabs;
	size_t n;
	struct pl_decay decay;
	size_t *cut;	   /* of `decay` */
	double rate;	   /* factor of the learning rate */
	int64_t at, count; /* added to the step: of the schedule, and of Adam */
};

static int find_decay(struct pl_optim *opt, struct pl_err *err)
{
	const struct pl_net *net = opt->net;
	const char *without = opt->o.no_decay;
	bool decays = false, any = false;

	PL_CHECK(pl_alloc(&opt->cut, net->n_tensors, sizeof(*opt->cut), err));
	for (uint32_t i = 0; i < net->n_tensors; i++) {
		const struct pl_net_tensor *t = &net->tensor[i];
		bool out = without && pl_glob(without, t->name);

		any |= out;
		if (((t->decay || opt->o.decay_all) && !out) != decays) {
			opt->cut[opt->decay.n++] = t->offset;
			decays = !decays;
		}
	}
	opt->decay.rate = (float)opt->o.decay;
	opt->decay.cut = opt->o.decay == 0 ? NULL : opt->cut;
	if (without && !any)
		return pl_fail(err, PL_EDATA,
			       "optimizer: no-decay=%.200s: no parameter has such a name; they are "
			       "called as \"%.100s\"",
			       without, net->n_tensors ? net->tensor[0].name : "");
	return 0;
}

int pl_optim_new(struct pl_net *net, const struct pl_optim_opts *o, struct pl_optim **out,
		 struct pl_err *err)
{
	struct pl_optim *opt = NULL;
	int rc;

	*out = NULL;
	if (o->schedule != PL_SCHED_CONST && o->schedule != PL_SCHED_STEP && o->steps <= o->warmup)
		return pl_fail(err, PL_EUSAGE,
			       "schedule: %lld steps, %lld of them to warm up; should be more",
			       (long long)o->steps, (long long)o->warmup);
	PL_TRY(pl_alloc(&opt, 1, sizeof(*opt), err));
	opt->net = net;
	opt->o = *o;
	opt->n = net->params.n;
	opt->rate = 1;
	PL_TRY(find_decay(opt, err));
	opt->n_slabs = o->kind != PL_OPTIM_SGD ? 2 : o->momentum != 0;
	for (uint32_t i = 0; i < opt->n_slabs; i++)
		PL_TRY(pl_net_alloc(net, &opt->slab[i], opt->n * sizeof(float),
				    "the optimizer's state", err));
	*out = opt;
	opt = NULL;
out:
	pl_optim_free(opt);
	return rc;
}

void pl_optim_free(struct pl_optim *opt)
{
	if (!opt)
		return;
	for (uint32_t i = 0; i < 2; i++)
		if (opt->slab[i])
			opt->net->be->free(opt->net->ctx, opt->slab[i]);
	pl_free(opt->cut);
	pl_free(opt);
}

void pl_optim_rate(struct pl_optim *opt, double factor)
{
	opt->rate = factor;
}

void pl_optim_shift(struct pl_optim *opt, int64_t rate, int64_t count)
{
	opt->at = rate;
	opt->count = count;
}

void pl_optim_set_steps(struct pl_optim *opt, int64_t steps)
{
	opt->o.steps = pl_max_i64(steps, opt->o.warmup + 1);
}

uint32_t pl_optim_slabs(struct pl_optim *opt, float **slab, size_t *n)
{
	for (uint32_t i = 0; i < opt->n_slabs; i++)
		slab[i] = opt->slab[i];
	*n = opt->n;
	return opt->n_slabs;
}

double pl_optim_lr(const struct pl_optim_opts *o, int64_t step)
{
	static const double pi = 3.141592653589793;
	double part;

	if (step < o->warmup)
		return o->lr * (double)(step + 1) / (double)o->warmup;
	if (o->schedule == PL_SCHED_STEP)
		return o->lr * pow(o->gamma, (double)((step - o->warmup) / o->every));
	if (o->schedule == PL_SCHED_CONST)
		return o->lr;
	part = (double)(step - o->warmup) / (double)(o->steps - o->warmup);
	if (part > 1)
		part = 1;
	return o->lr * (o->schedule == PL_SCHED_COSINE ? (1 + cos(pi * part)) / 2 : 1 - part);
}

static void update(struct pl_optim *opt, size_t first, size_t n)
{
	const struct pl_optim_opts *o = &opt->o;
	struct pl_net *net = opt->net;

	if (o->kind == PL_OPTIM_SGD)
		net->be->sgd(net->ctx, first, n, (float)o->momentum, &opt->decay, o->nesterov,
			     net->grads.p, opt->slab[0], net->params.p);
	else
		net->be->adam(net->ctx, first, n, (float)o->b1, (float)o->b2, (float)o->eps,
			      &opt->decay, o->kind == PL_OPTIM_ADAMW, net->grads.p, opt->slab[0],
			      opt->slab[1], net->params.p);
}

void pl_optim_step(struct pl_optim *opt, int64_t step, size_t first, size_t n, double norm)
{
	struct pl_net *net = opt->net;
	size_t end = n > opt->n - pl_min_size(first, opt->n) ? opt->n : first + n;
	bool clip = opt->o.clip > 0, whole = first == 0 && end == opt->n && isnan(norm);

	if (first >= end)
		return;
	net->vary.lr = (float)(opt->rate * pl_optim_lr(&opt->o, step + opt->at));
	net->vary.t = step + opt->count + 1;
	net->be->vary(net->ctx, &net->vary);
	if (whole) {
		pl_net_record(net, PL_NET_OPTIM, (uint64_t)(uintptr_t)opt);
		if (clip)
			net->be->clip(net->ctx, opt->n, opt->o.clip, net->grads.p);
		update(opt, first, end - first);
		pl_net_record(net, 0, 0);
		return;
	}
	if (clip && isnan(norm))
		norm = sqrt(net->be->sum_squares(net->ctx, opt->n, net->grads.p));
	if (clip && opt->o.clip < norm + 1e-6)
		net->be->scale(net->ctx, end - first, (float)(opt->o.clip / (norm + 1e-6)),
			       net->grads.p + first);
	update(opt, first, end - first);
}
