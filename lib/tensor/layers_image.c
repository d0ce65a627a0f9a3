/*
 * Layers of images (C, H, W): convolution, pooling, batch normalisation (Ioffe and Szegedy, ICML
 * 2015; one feature a channel, or of (C) alone).
 */
#include <math.h>
#include <string.h>

#include "tensor/net_internal.h"

static void need_image(struct pl_builder *b)
{
	char dims[64];

	if (b->n_dims != 3)
		pl_tensor_build_bad(
			b,
			"%s comes in, should be channels x height x width, as of \"input 3 32 32\"",
			pl_tensor_build_dims(dims, sizeof(dims), b->n_dims, b->dim));
}

/* pad=N, or pad=same: (size - 1) / 2, which keeps the size where the stride is 1 */
static int padding(struct pl_builder *b, int size)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, "pad");

	if (!k || !k->text || strcmp(k->text, "same") != 0)
		return pl_tensor_build_int(b, "pad", 0, 0);
	if (size % 2 == 0)
		pl_tensor_build_bad(b, "pad=same needs an odd size, not %d", size);
	return (size - 1) / 2;
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

static struct pl_conv conv_shape(struct pl_builder *b)
{
	struct pl_conv d = { .n = b->net->o.batch, .c = b->dim[0], .h = b->dim[1], .w = b->dim[2] };

	need_image(b);
	d.k = pl_tensor_build_num(b, 0, "the number of filters");
	d.r = d.s = pl_tensor_build_num(b, 1, "the size");
	if (b->text[b->at].n_num > 2)
		d.s = pl_tensor_build_num(b, 2, "the width");
	d.stride = pl_tensor_build_int(b, "stride", 1, 1);
	if (d.s != d.r && pl_tensor_build_key(b, "pad") && d.s % 2 != d.r % 2)
		pl_tensor_build_bad(b, "a padded filter should be as wide as it is high");
	d.pad = padding(b, d.r);
	d.p = windows(d.h, d.r, d.stride, d.pad);
	d.q = windows(d.w, d.s, d.stride, d.pad);
	if (d.p < 1 || d.q < 1 || d.pad >= d.r || d.pad >= d.s)
		pl_tensor_build_bad(b,
				    "filters of %dx%d with padding %d do not fit images of %dx%d",
				    d.r, d.s, d.pad, d.h, d.w);
	return d;
}

static void build_conv(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	struct pl_conv d = conv_shape(b);
	bool bias = pl_tensor_build_switch(b, "bias", true);
	double std = pl_tensor_build_real(b, "std", 1e6, -1), fan_in = (double)d.c * d.r * d.s;
	struct pl_init init = std >= 0 ? (struct pl_init){ PL_INIT_NORMAL, std }
				       : (struct pl_init){ PL_INIT_UNIFORM, 1 / sqrt(fan_in) };
	struct pl_node *nd;

	if (b->rc < 0)
		return;
	b->dim[0] = d.k;
	b->dim[1] = d.p;
	b->dim[2] = d.q;
	nd = pl_tensor_build_node(b, &pl_tensor_layer_conv, NULL);
	nd->conv = d;
	net->layer[net->n - 1].flops = 2 * fan_in * d.k * d.p * d.q;
	nd->weight = pl_tensor_build_tensor(b, "weight", 4, (int[]){ d.k, d.c, d.r, d.s }, init);
	if (std >= 0)
		init.kind = PL_INIT_ZERO;
	if (bias)
		nd->bias = pl_tensor_build_tensor(b, "bias", 1, &d.k, init);
}

const struct pl_layer_type pl_tensor_layer_conv = {
	.op = "conv",
	.flags = PL_READS_X | PL_READS_Y | PL_MAY_END,
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

static void build_pool(struct pl_builder *b, const struct pl_layer_type *type, bool max)
{
	struct pl_net *net = b->net;
	struct pl_pool2d d = {
		.n = net->o.batch, .c = b->dim[0], .h = b->dim[1], .w = b->dim[2], .max = max
	};
	struct pl_node *nd;

	need_image(b);
	d.r = pl_tensor_build_num(b, 0, "the size");
	d.stride = pl_tensor_build_int(b, "stride", 1, d.r);
	d.pad = padding(b, d.r);
	d.p = windows(d.h, d.r, d.stride, d.pad);
	d.q = windows(d.w, d.r, d.stride, d.pad);
	if (d.p < 1 || d.q < 1 || 2 * (int64_t)d.pad > d.r)
		pl_tensor_build_bad(
			b,
			"windows of %dx%d with padding %d do not fit images of %dx%d (padding "
			"is at most half the size)",
			d.r, d.r, d.pad, d.h, d.w);
	if (b->rc < 0)
		return;
	b->dim[1] = d.p;
	b->dim[2] = d.q;
	nd = pl_tensor_build_node(b, type, NULL);
	nd->pool = d;
	if (max)
		nd->save_bytes = nd->ny * (size_t)net->o.batch * sizeof(int32_t);
	net->layer[net->n - 1].flops = (double)nd->ny * d.r * d.r;
}

static void build_maxpool(struct pl_builder *b)
{
	build_pool(b, &pl_tensor_layer_maxpool, true);
}
static void build_avgpool(struct pl_builder *b)
{
	build_pool(b, &pl_tensor_layer_avgpool, false);
}

const struct pl_layer_type pl_tensor_layer_maxpool = {
	.op = "maxpool",
	.build = build_maxpool,
	.forward = pool_forward,
	.backward = pool_backward,
};
const struct pl_layer_type pl_tensor_layer_avgpool = {
	.op = "avgpool",
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

static void build_batchnorm(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	double eps = pl_tensor_build_real(b, "eps", 1, 1e-5);
	double momentum = pl_tensor_build_real(b, "momentum", 1, 0.1);
	struct pl_node *nd;

	if (b->n_dims == 2)
		pl_tensor_build_bad(b, "sequences come in; use layernorm");
	nd = pl_tensor_build_node(b, &pl_tensor_layer_batchnorm, NULL);
	nd->c = b->dim[0];
	nd->k = b->n_dims == 3 ? b->dim[1] * b->dim[2] : 1;
	nd->eps = (float)eps;
	nd->momentum = (float)momentum;
	nd->save_bytes = 4 * (size_t)nd->c * sizeof(float);
	net->layer[net->n - 1].flops = 8 * (double)nd->ny;
	pl_tensor_build_norm(b, nd);
	nd->state = pl_tensor_build_state(b, "running_mean", nd->c);
	/* the backend has both as one array (2, C), so nothing may lie between */
	net->state.n = nd->state + (size_t)nd->c;
	net->state.n = pl_net_round(pl_tensor_build_state(b, "running_var", nd->c) + (size_t)nd->c);
}

const struct pl_layer_type pl_tensor_layer_batchnorm = {
	.op = "batchnorm",
	.flags = PL_READS_X,
	.build = build_batchnorm,
	.forward = batchnorm_forward,
	.backward = batchnorm_backward,
};
