/*
 * Layers of images (C, H, W): convolution, pooling, batch normalisation (Ioffe and Szegedy, ICML
 * 2015; one feature a channel, or of (C) alone).
 */
#include <math.h>
#include <string.h>

#include "tensor/net_internal.h"

static int need_image(struct pl_builder *b, struct pl_err *err)
{
	char dims[64];

	if (b->n_dims != 3)
		return pl_tensor_build_bad(
			b, err,
			"%s comes in, should be channels x height x width, as of "
			"\"input 3 32 32\"",
			pl_tensor_build_dims(dims, sizeof(dims), b->n_dims, b->dim));
	return 0;
}

/* pad=N, or pad=same: (size - 1) / 2, which keeps the size where the stride is 1 */
static int padding(struct pl_builder *b, int size, int *pad, struct pl_err *err)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, "pad");

	*pad = 0;
	if (!k || !k->text || strcmp(k->text, "same") != 0)
		return pl_tensor_build_int(b, "pad", 0, pad, err);
	if (size % 2 == 0)
		return pl_tensor_build_bad(b, err, "pad=same needs an odd size, not %d", size);
	*pad = (size - 1) / 2;
	return 0;
}

/* How many windows of `size` there are along `in`; < 1: none. */
static int windows(int in, int size, int stride, int pad)
{
	int64_t room = (int64_t)in + 2 * (int64_t)pad - size;

	return room < 0 ? 0 : (int)(room / stride) + 1;
}

/* ---- convolution ----------------------------------------------------------------------------- */

static void conv_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	nd->conv.n = net->samples;
	net->be->conv(net->ctx, &nd->conv, p->x, p->weight, p->bias, nd->act, p->y, net->work);
}

static void conv_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	nd->conv.n = net->samples;
	net->be->conv_back(net->ctx, &nd->conv, p->x, p->weight, nd->act, p->y, p->dy, p->dx,
			   p->dweight, p->dbias, net->work);
}

static int conv_shape(struct pl_builder *b, struct pl_conv *d, struct pl_err *err)
{
	int rc;

	*d = (struct pl_conv){ .n = b->net->o.batch, .stride = 1 };
	PL_TRY(need_image(b, err));
	d->c = b->dim[0];
	d->h = b->dim[1];
	d->w = b->dim[2];
	PL_TRY(pl_tensor_build_num(b, 0, "the number of filters", &d->k, err));
	PL_TRY(pl_tensor_build_num(b, 1, "the size", &d->r, err));
	d->s = d->r;
	if (b->text[b->at].n_num > 2)
		PL_TRY(pl_tensor_build_num(b, 2, "the width", &d->s, err));
	PL_TRY(pl_tensor_build_int(b, "stride", 1, &d->stride, err));
	if (d->s != d->r && pl_tensor_build_key(b, "pad") && d->s % 2 != d->r % 2)
		return pl_tensor_build_bad(b, err,
					   "a padded filter should be as wide as it is high");
	PL_TRY(padding(b, d->r, &d->pad, err));
	d->p = windows(d->h, d->r, d->stride, d->pad);
	d->q = windows(d->w, d->s, d->stride, d->pad);
	if (d->p < 1 || d->q < 1 || d->pad >= d->r || d->pad >= d->s)
		return pl_tensor_build_bad(
			b, err, "filters of %dx%d with padding %d do not fit images of %dx%d", d->r,
			d->s, d->pad, d->h, d->w);
out:
	return rc;
}

static int build_conv(struct pl_builder *b, struct pl_err *err)
{
	struct pl_net *net = b->net;
	struct pl_init init = { PL_INIT_UNIFORM, 0 };
	struct pl_conv d;
	struct pl_node *nd;
	double std = -1, fan_in;
	bool bias = true;
	int rc;

	PL_TRY(conv_shape(b, &d, err));
	PL_TRY(pl_tensor_build_switch(b, "bias", &bias, err));
	PL_TRY(pl_tensor_build_real(b, "std", 0, 1e6, &std, err));
	b->dim[0] = d.k;
	b->dim[1] = d.p;
	b->dim[2] = d.q;
	nd = pl_tensor_build_node(b, &pl_tensor_layer_conv, NULL);
	nd->conv = d;
	fan_in = (double)d.c * d.r * d.s;
	net->layer[net->n - 1].flops = 2 * fan_in * d.k * d.p * d.q;
	init = std >= 0 ? (struct pl_init){ PL_INIT_NORMAL, std }
			: (struct pl_init){ PL_INIT_UNIFORM, 1 / sqrt(fan_in) };
	PL_TRY(pl_tensor_build_tensor(b, "weight", 4, (int[]){ d.k, d.c, d.r, d.s }, init,
				      &nd->weight, err));
	if (std >= 0)
		init.kind = PL_INIT_ZERO;
	if (bias)
		PL_TRY(pl_tensor_build_tensor(b, "bias", 1, &d.k, init, &nd->bias, err));
out:
	return rc;
}

static const char *const conv_keys[] = { "stride", "pad", "bias", "std", NULL };
const struct pl_layer_type pl_tensor_layer_conv = {
	.op = "conv",
	.usage = "FILTERS SIZE [WIDTH] [stride=1] [pad=0|same] [bias=1] [std=S]",
	.min_num = 2,
	.max_num = 3,
	.flags = PL_READS_X | PL_READS_Y | PL_MAY_END,
	.key = conv_keys,
	.build = build_conv,
	.forward = conv_forward,
	.backward = conv_backward,
};

/* ---- pooling --------------------------------------------------------------------------------- */

static void pool_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	nd->pool.n = net->samples;
	net->be->pool(net->ctx, &nd->pool, p->x, p->y, nd->pool.max ? p->save : NULL);
}

static void pool_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	nd->pool.n = net->samples;
	net->be->pool_back(net->ctx, &nd->pool, nd->pool.max ? p->save : NULL, p->dy, p->dx);
}

static int build_pool(struct pl_builder *b, const struct pl_layer_type *type, bool max,
		      struct pl_err *err)
{
	struct pl_net *net = b->net;
	struct pl_pool2d d = { .n = net->o.batch, .max = max };
	struct pl_node *nd;
	int rc;

	PL_TRY(need_image(b, err));
	d.c = b->dim[0];
	d.h = b->dim[1];
	d.w = b->dim[2];
	PL_TRY(pl_tensor_build_num(b, 0, "the size", &d.r, err));
	d.stride = d.r;
	PL_TRY(pl_tensor_build_int(b, "stride", 1, &d.stride, err));
	PL_TRY(padding(b, d.r, &d.pad, err));
	d.p = windows(d.h, d.r, d.stride, d.pad);
	d.q = windows(d.w, d.r, d.stride, d.pad);
	if (d.p < 1 || d.q < 1 || 2 * (int64_t)d.pad > d.r)
		return pl_tensor_build_bad(
			b, err,
			"windows of %dx%d with padding %d do not fit images of %dx%d "
			"(padding is at most half the size)",
			d.r, d.r, d.pad, d.h, d.w);
	b->dim[1] = d.p;
	b->dim[2] = d.q;
	nd = pl_tensor_build_node(b, type, NULL);
	nd->pool = d;
	if (max)
		nd->save_bytes = nd->ny * (size_t)net->o.batch * sizeof(int32_t);
	net->layer[net->n - 1].flops = (double)nd->ny * d.r * d.r;
out:
	return rc;
}

static int build_maxpool(struct pl_builder *b, struct pl_err *err)
{
	return build_pool(b, &pl_tensor_layer_maxpool, true, err);
}
static int build_avgpool(struct pl_builder *b, struct pl_err *err)
{
	return build_pool(b, &pl_tensor_layer_avgpool, false, err);
}

static const char *const pool_keys[] = { "stride", "pad", NULL };
const struct pl_layer_type pl_tensor_layer_maxpool = {
	.op = "maxpool",
	.usage = "SIZE [stride=SIZE] [pad=0|same]",
	.min_num = 1,
	.max_num = 1,
	.key = pool_keys,
	.build = build_maxpool,
	.forward = pool_forward,
	.backward = pool_backward,
};
const struct pl_layer_type pl_tensor_layer_avgpool = {
	.op = "avgpool",
	.usage = "SIZE [stride=SIZE] [pad=0|same]",
	.min_num = 1,
	.max_num = 1,
	.key = pool_keys,
	.build = build_avgpool,
	.forward = pool_forward,
	.backward = pool_backward,
};

/* ---- batch normalisation ------------------------------------------------------------------- */

static void batchnorm_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	/* what is made again must not move the running means a second time */
	float *running = net->again ? NULL : net->state.p + nd->state;

	net->be->batchnorm(net->ctx, net->samples, nd->c, nd->k, p->x, p->weight, p->bias, nd->eps,
			   nd->momentum, net->eval, running, p->save, p->y);
}

static void batchnorm_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->batchnorm_back(net->ctx, net->samples, nd->c, nd->k, p->x, p->weight, p->save,
				p->dy, p->dx, p->dweight, p->dbias);
}

static int build_batchnorm(struct pl_builder *b, struct pl_err *err)
{
	struct pl_net *net = b->net;
	double eps = 1e-5, momentum = 0.1;
	struct pl_node *nd;
	size_t var;
	int rc;

	if (b->n_dims == 2)
		return pl_tensor_build_bad(b, err, "sequences come in; use layernorm");
	PL_TRY(pl_tensor_build_real(b, "eps", 0, 1, &eps, err));
	PL_TRY(pl_tensor_build_real(b, "momentum", 0, 1, &momentum, err));
	nd = pl_tensor_build_node(b, &pl_tensor_layer_batchnorm, NULL);
	nd->c = b->dim[0];
	nd->k = b->n_dims == 3 ? b->dim[1] * b->dim[2] : 1;
	nd->eps = (float)eps;
	nd->momentum = (float)momentum;
	nd->save_bytes = 4 * (size_t)nd->c * sizeof(float);
	net->layer[net->n - 1].flops = 8 * (double)nd->ny;
	PL_TRY(pl_tensor_build_tensor(b, "weight", 1, &nd->c, (struct pl_init){ PL_INIT_ONE, 0 },
				      &nd->weight, err));
	PL_TRY(pl_tensor_build_tensor(b, "bias", 1, &nd->c, (struct pl_init){ PL_INIT_ZERO, 0 },
				      &nd->bias, err));
	PL_TRY(pl_tensor_build_state(b, "running_mean", nd->c, &nd->state, err));
	/* the backend has both as one array (2, C), so nothing may lie between */
	net->state.n = nd->state + (size_t)nd->c;
	PL_TRY(pl_tensor_build_state(b, "running_var", nd->c, &var, err));
	net->state.n = pl_net_round(var + (size_t)nd->c);
out:
	return rc;
}

static const char *const batchnorm_keys[] = { "eps", "momentum", NULL };
const struct pl_layer_type pl_tensor_layer_batchnorm = {
	.op = "batchnorm",
	.usage = "[eps=1e-5] [momentum=0.1]",
	.flags = PL_READS_X,
	.key = batchnorm_keys,
	.build = build_batchnorm,
	.forward = batchnorm_forward,
	.backward = batchnorm_backward,
};
