/*
 * The types of layers: dense, element-wise, blocks, losses.
 *
 * An activation after a dense layer or a convolution is computed by that layer, while its output is
 * still in the cache. It is not right before the end of a block, because its backward pass
 * overwrites a gradient that the other branch of the block also needs. Residual blocks are those of
 * He et al. (CVPR 2016) with the identity as the other branch; gelu is that of Hendrycks and Gimpel
 * (2016) in its tanh form.
 */
#include <math.h>
#include <string.h>

#include "tensor/net_internal.h"

/* ---- input ----------------------------------------------------------------------------------- */

static void build_input(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	uint32_t n = b->text[b->at].n_num;

	if (n < 1 || n > 3) {
		pl_tensor_build_bad(b, "%u dimensions, should be 1 to 3", n);
		return;
	}
	b->n_dims = (int)n;
	net->nx = 1;
	for (uint32_t i = 0; i < n && b->rc >= 0; i++) {
		b->dim[i] = pl_tensor_build_num(b, i, "a dimension");
		net->nx *= (size_t)b->dim[i];
		if (net->nx > (size_t)INT32_MAX / (size_t)net->o.batch)
			pl_tensor_build_bad(b, "a batch of %d samples has more than 2^31 inputs",
					    net->o.batch);
	}
	net->shape.n_dims = b->n_dims;
	memcpy(net->shape.dim, b->dim, sizeof(b->dim));
}

const struct pl_layer_type pl_tensor_layer_input = {
	.op = "input",
	.build = build_input,
};

/* ---- dense -------------------------------------------------------------------------------------
 */

static void dense_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->dense(net->ctx, p->rows, nd->c, nd->k, p->x, p->weight, p->bias, nd->act,
		       nd->act == PL_ACT_GELU ? p->save : NULL, p->y);
}

/*
 * Does the layer that reads this one's gelu undo it, while the gradient is at hand? So it is for a
 * dense one that alone reads it, with nothing between that computes, if what went into gelu is
 * there by then: it is not if it is made again only before this layer's own backward pass.
 */
static bool undone_above(const struct pl_net *net, const struct pl_node *nd)
{
	const struct pl_node *reader = nd + 1;

	if (nd->type != &pl_tensor_layer_dense || nd->act != PL_ACT_GELU)
		return false;
	while (reader->alias && reader->type != &pl_tensor_layer_residual)
		reader++;
	return reader->type == &pl_tensor_layer_dense && !reader->alias &&
	       &net->node[reader->x] == nd &&
	       (nd->segment == PL_NONE || nd->segment == reader->segment);
}

static void dense_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	const struct pl_node *before = nd->x == PL_NET_INPUT ? NULL : &net->node[nd->x];
	const void *from = NULL;

	if (before && p->dx && undone_above(net, before))
		from = net->acts + before->save_at;
	net->be->dense_back(net->ctx, p->rows, nd->c, nd->k, p->x, p->weight,
			    undone_above(net, nd) ? PL_ACT_NONE : nd->act,
			    nd->act == PL_ACT_GELU ? p->save : NULL, p->y, p->dy, from, p->dx,
			    p->dweight, p->dbias);
}

static struct pl_init uniform_or_normal(double std, int fan_in)
{
	if (std >= 0)
		return (struct pl_init){ PL_INIT_NORMAL, std };
	return (struct pl_init){ PL_INIT_UNIFORM, 1 / sqrt(fan_in) };
}

void pl_tensor_build_dense(struct pl_builder *b, const struct pl_dense_args *a)
{
	struct pl_net *net = b->net;
	int c = b->dim[b->n_dims - 1];
	char dims[64];
	struct pl_node *nd;

	/* (C), or (T, C): rows of C. Anything else has to be said by the user. */
	if (b->n_dims > 2)
		pl_tensor_build_bad(b, "%s comes in; put \"flatten\" before it",
				    pl_tensor_build_dims(dims, sizeof(dims), b->n_dims, b->dim));
	b->dim[b->n_dims - 1] = a->outputs;
	nd = pl_tensor_build_node(b, &pl_tensor_layer_dense, a->name);
	nd->rows = b->n_dims == 2 ? b->dim[0] : 1;
	nd->c = c;
	nd->k = a->outputs;
	nd->weight = a->tie;
	net->layer[net->n - 1].flops = 2.0 * nd->rows * c * nd->k;
	if (a->tie == PL_NONE) {
		nd->weight = pl_tensor_build_tensor(b, "weight", 2, (int[]){ nd->k, c },
						    uniform_or_normal(a->std, c));
		net->tensor[nd->weight].transposed = a->transposed;
	}
	if (a->bias) {
		struct pl_init init = uniform_or_normal(a->std, c);

		if (a->std >= 0)
			init.kind = PL_INIT_ZERO;
		nd->bias = pl_tensor_build_tensor(b, "bias", 1, &nd->k, init);
	}
}

/* The weight of the layer above that `tie` names; PL_NONE: none is named. */
static uint32_t find_tie(struct pl_builder *b, int outputs)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, "tie");
	const struct pl_net *net = b->net;
	int c = b->dim[b->n_dims - 1];

	if (!k)
		return PL_NONE;
	for (uint32_t i = 0; i < net->n; i++) {
		const struct pl_net_tensor *t;

		if (!k->text || strcmp(net->layer[i].name, k->text) != 0 ||
		    net->node[i].weight == PL_NONE)
			continue;
		t = &net->tensor[net->node[i].weight];
		if (t->n_dims != 2 || t->dim[0] != outputs || t->dim[1] != c)
			pl_tensor_build_bad(
				b, "the weight of \"%.60s\" is %dx%d, this one is %dx%d", k->text,
				t->dim[0], t->n_dims > 1 ? t->dim[1] : 1, outputs, c);
		return net->node[i].weight;
	}
	pl_tensor_build_bad(b, "tie=%.60s: no layer above has this name and a weight",
			    k->text ? k->text : "");
	return PL_NONE;
}

static void build_dense(struct pl_builder *b)
{
	struct pl_dense_args a = { .outputs = pl_tensor_build_num(b, 0, "the number of outputs"),
				   .bias = pl_tensor_build_switch(b, "bias", true),
				   .transposed = pl_tensor_build_switch(b, "conv1d", false),
				   .std = pl_tensor_build_real(b, "std", 1e6, -1) };

	a.tie = find_tie(b, a.outputs);
	pl_tensor_build_dense(b, &a);
}

const struct pl_layer_type pl_tensor_layer_dense = {
	.op = "dense",
	.flags = PL_READS_X | PL_READS_Y | PL_MAY_END,
	.build = build_dense,
	.forward = dense_forward,
	.backward = dense_backward,
};

/* ---- activations -------------------------------------------------------------------------------
 */

static void act_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->act(net->ctx, nd->act, p->n, p->x, p->y);
}

static void act_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->act_back(net->ctx, nd->act, p->n, p->x, p->y, p->dy, p->dx);
}

/* Does the block end behind the statement at hand, with nothing that computes between? */
static bool ends_block(const struct pl_builder *b)
{
	size_t i = b->at + 1;

	while (i < b->n_text && !strcmp(b->text[i].op, "flatten"))
		i++;
	return i < b->n_text && !strcmp(b->text[i].op, "end");
}

static void build_act(struct pl_builder *b, const struct pl_layer_type *type, enum pl_act act,
		      double flops)
{
	struct pl_net *net = b->net;
	struct pl_node *last = net->n ? &net->node[net->n - 1] : NULL, *nd;
	/* a convolution does not keep the value that gelu needs in the backward pass */
	bool fits = last && ((last->type == &pl_tensor_layer_dense) ||
			     (last->type == &pl_tensor_layer_conv && act != PL_ACT_GELU));

	nd = pl_tensor_build_node(b, type, NULL);
	nd->act = act;
	net->layer[net->n - 1].flops = flops * (double)nd->ny;
	if (!fits || last->act != PL_ACT_NONE || ends_block(b))
		return;
	nd->alias = true;
	nd->y = nd->x;
	last->act = act;
	if (act == PL_ACT_GELU)
		last->save_bytes = nd->ny * (size_t)net->o.batch * pl_net_width(net);
}

#define ACTIVATION(name, NAME, flops)                                                              \
	static void build_##name(struct pl_builder *b)                                             \
	{                                                                                          \
		build_act(b, &pl_tensor_layer_##name, PL_ACT_##NAME, flops);                       \
	}                                                                                          \
	const struct pl_layer_type pl_tensor_layer_##name = {                                      \
		.op = #name,                                                                       \
		.flags = PL_READS_X | PL_READS_Y,                                                  \
		.build = build_##name,                                                             \
		.forward = act_forward,                                                            \
		.backward = act_backward,                                                          \
	}
ACTIVATION(relu, RELU, 1);
ACTIVATION(gelu, GELU, 12);
ACTIVATION(tanh, TANH, 8);
ACTIVATION(sigmoid, SIGMOID, 8);

/* ---- dropout, flatten ---------------------------------------------------------------------- */

/* Every layer has its own. The forward pass, its repetition and the backward pass of a layer use
 * the same one. */
static uint64_t salt_of(const struct pl_net *net, const struct pl_node *nd)
{
	return (uint64_t)(nd - net->node);
}

static void dropout_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->dropout(net->ctx, p->n, nd->p, salt_of(net, nd), p->x, p->y);
}

static void dropout_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->dropout(net->ctx, p->n, nd->p, salt_of(net, nd), p->dy, p->dx);
}

static void build_dropout(struct pl_builder *b)
{
	const struct pl_layer *l = &b->text[b->at];
	double p = l->n_num ? l->num[0] : NAN;

	if (!(p >= 0 && p < 1))
		pl_tensor_build_bad(b, "%g is dropped, should be 0 or more and less than 1", p);
	else if (p == 0)
		pl_tensor_build_alias(b, &pl_tensor_layer_dropout);
	else
		pl_tensor_build_node(b, &pl_tensor_layer_dropout, NULL)->p = (float)p;
}

const struct pl_layer_type pl_tensor_layer_dropout = {
	.op = "dropout",
	.build = build_dropout,
	.forward = dropout_forward,
	.backward = dropout_backward,
};

static void build_flatten(struct pl_builder *b)
{
	size_t n = 1;

	for (int i = 0; i < b->n_dims; i++)
		n *= (size_t)b->dim[i];
	if (n > PL_NET_DIM_MAX)
		pl_tensor_build_bad(b, "a sample has %zu numbers here, more than %d", n,
				    PL_NET_DIM_MAX);
	b->n_dims = 1;
	b->dim[0] = (int)n;
	pl_tensor_build_alias(b, &pl_tensor_layer_flatten);
	b->net->layer[b->net->n - 1].flops = 0;
}

const struct pl_layer_type pl_tensor_layer_flatten = {
	.op = "flatten",
	.build = build_flatten,
};

/* ---- residual blocks ------------------------------------------------------------------------- */

static void build_residual(struct pl_builder *b)
{
	struct pl_block *open = &b->block[b->depth];
	struct pl_node *nd;

	if (b->depth == PL_NET_DEPTH) {
		pl_tensor_build_bad(b, "blocks nest deeper than %d", PL_NET_DEPTH);
		return;
	}
	nd = pl_tensor_build_alias(b, &pl_tensor_layer_residual);
	b->net->layer[b->net->n - 1].flops = 0; /* it works in the backward pass only */
	*open = (struct pl_block){
		.node = b->net->n - 1, .skip = nd->x, .name = b->name, .n_dims = b->n_dims
	};
	memcpy(open->dim, b->dim, sizeof(b->dim));
	b->depth++;
}

const struct pl_layer_type pl_tensor_layer_residual = {
	.op = "residual",
	.build = build_residual,
};

static void end_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->add(net->ctx, p->n, pl_net_value(net, nd->skip), p->x, p->y);
}

static void build_end(struct pl_builder *b)
{
	struct pl_block *open;
	char in[64], out[64];

	if (!b->depth) {
		pl_tensor_build_bad(b, "no block is open; \"residual\" opens one");
		return;
	}
	open = &b->block[--b->depth];
	if (open->n_dims != b->n_dims ||
	    memcmp(open->dim, b->dim, (size_t)b->n_dims * sizeof(*b->dim)) != 0)
		pl_tensor_build_bad(
			b,
			"%s goes into the block and %s comes out; they are added, so they must "
			"be alike",
			pl_tensor_build_dims(in, sizeof(in), open->n_dims, open->dim),
			pl_tensor_build_dims(out, sizeof(out), b->n_dims, b->dim));
	pl_tensor_build_node(b, &pl_tensor_layer_end, NULL)->skip = open->skip;
}

const struct pl_layer_type pl_tensor_layer_end = {
	.op = "end",
	.build = build_end,
	.forward = end_forward,
};

/* ---- losses ------------------------------------------------------------------------------------
 */

static const char *const losses[] = { "softmax-cross-entropy", "squared", "hinge" };

static enum pl_loss which_loss(struct pl_builder *b)
{
	const struct pl_layer_key *kind = pl_tensor_build_key(b, "kind");
	int loss = -1;

	for (size_t i = 0; i < PL_LEN(losses); i++) {
		bool said = pl_tensor_build_key(b, losses[i]) ||
			    (kind && kind->text && !strcmp(kind->text, losses[i]));

		if (said && loss >= 0)
			pl_tensor_build_bad(b, "one loss, please, not %s and %s", losses[loss],
					    losses[i]);
		if (said)
			loss = (int)i;
	}
	if (loss < 0)
		pl_tensor_build_bad(
			b, "which? there are softmax-cross-entropy, squared and hinge%s%.40s",
			kind ? ", not " : "", kind && kind->text ? kind->text : "");
	return loss < 0 ? PL_LOSS_XENT : (enum pl_loss)loss;
}

static void build_loss(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	enum pl_loss loss = which_loss(b);
	bool classes = loss != PL_LOSS_SQUARED;
	int rows = classes && b->n_dims == 2 ? b->dim[0] : 1;
	struct pl_node *nd;
	size_t n = 1;

	if (classes && b->n_dims > 2)
		pl_tensor_build_bad(b, "it takes classes; put \"flatten\" before it");
	for (int i = 0; i < b->n_dims; i++)
		n *= (size_t)b->dim[i];
	b->n_dims = 1;
	b->dim[0] = 1;
	nd = pl_tensor_build_node(b, &pl_tensor_layer_loss, NULL);
	nd->loss = (uint8_t)loss;
	nd->rows = rows;
	nd->c = (int)(n / (size_t)rows);
	if (classes && nd->c < 2)
		pl_tensor_build_bad(b, "it needs 2 classes or more; %d come in", nd->c);
	net->shape.rows = rows;
	net->shape.classes = classes ? nd->c : 0;
	net->shape.targets = classes ? 0 : nd->c;
	net->layer[net->n - 1].flops = (loss == PL_LOSS_XENT ? 8.0 : 3.0) * (double)n;
}

const struct pl_layer_type pl_tensor_layer_loss = {
	.op = "loss",
	.build = build_loss,
};

/* ---- the registry ---------------------------------------------------------------------------- */

static const struct pl_layer_type *const types[] = {
	&pl_tensor_layer_input,	    &pl_tensor_layer_dense,	&pl_tensor_layer_conv,
	&pl_tensor_layer_maxpool,   &pl_tensor_layer_avgpool,	&pl_tensor_layer_batchnorm,
	&pl_tensor_layer_layernorm, &pl_tensor_layer_embedding, &pl_tensor_layer_position,
	&pl_tensor_layer_attention, &pl_tensor_layer_relu,	&pl_tensor_layer_gelu,
	&pl_tensor_layer_tanh,	    &pl_tensor_layer_sigmoid,	&pl_tensor_layer_dropout,
	&pl_tensor_layer_flatten,   &pl_tensor_layer_residual,	&pl_tensor_layer_end,
	&pl_tensor_layer_loss,
};

const char *pl_net_op(uint32_t i)
{
	return i < PL_LEN(types) ? types[i]->op : NULL;
}

const struct pl_layer_type *pl_tensor_layer_find(const char *op)
{
	for (size_t i = 0; i < PL_LEN(types); i++)
		if (!strcmp(types[i]->op, op))
			return types[i];
	return NULL;
}
