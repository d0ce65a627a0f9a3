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

static const char *const no_keys[] = { NULL };

/* ---- input ----------------------------------------------------------------------------------- */

static int build_input(struct pl_builder *b, struct pl_err *err)
{
	struct pl_net *net = b->net;
	int rc;

	b->n_dims = (int)b->text[b->at].n_num;
	net->nx = 1;
	for (int i = 0; i < b->n_dims; i++) {
		PL_TRY(pl_tensor_build_num(b, (uint32_t)i, "a dimension", &b->dim[i], err));
		net->nx *= (size_t)b->dim[i];
	}
	if (net->nx > (size_t)INT32_MAX / (size_t)net->o.batch)
		return pl_tensor_build_bad(
			b, err, "a batch of %d samples has more than 2^31 inputs", net->o.batch);
	net->shape.n_dims = b->n_dims;
	memcpy(net->shape.dim, b->dim, sizeof(b->dim));
	rc = 0;
out:
	return rc;
}

const struct pl_layer_type pl_tensor_layer_input = {
	.op = "input",
	.usage = "D [D [D]]",
	.min_num = 1,
	.max_num = 3,
	.key = no_keys,
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
 * there by then: it is not if it is made again only before this layer's own way back.
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

/* (C) or (T, C): rows of C. Anything else has to be said by the user. */
static int rows_of(struct pl_builder *b, int *rows, int *c, struct pl_err *err)
{
	char dims[64];

	*rows = b->n_dims == 2 ? b->dim[0] : 1;
	*c = b->dim[b->n_dims - 1];
	if (b->n_dims > 2)
		return pl_tensor_build_bad(
			b, err, "%s comes in; put \"flatten\" before it",
			pl_tensor_build_dims(dims, sizeof(dims), b->n_dims, b->dim));
	return 0;
}

static struct pl_init uniform_or_normal(double std, int fan_in)
{
	if (std >= 0)
		return (struct pl_init){ PL_INIT_NORMAL, std };
	return (struct pl_init){ PL_INIT_UNIFORM, 1 / sqrt(fan_in) };
}

int pl_tensor_build_dense(struct pl_builder *b, const struct pl_dense_args *a, struct pl_err *err)
{
	struct pl_net *net = b->net;
	int rows, c, rc = rows_of(b, &rows, &c, err);
	struct pl_node *nd;

	if (rc < 0)
		return rc;
	b->dim[b->n_dims - 1] = a->outputs;
	nd = pl_tensor_build_node(b, &pl_tensor_layer_dense, a->name);
	nd->rows = rows;
	nd->c = c;
	nd->k = a->outputs;
	nd->weight = a->tie;
	net->layer[net->n - 1].flops = 2.0 * rows * c * nd->k;
	if (a->tie == PL_NONE) {
		int dim[] = { nd->k, c };

		rc = pl_tensor_build_tensor(b, "weight", 2, dim, uniform_or_normal(a->std, c),
					    &nd->weight, err);
		if (rc < 0)
			return rc;
		net->tensor[nd->weight].transposed = a->transposed;
	}
	if (a->bias) {
		struct pl_init init = uniform_or_normal(a->std, c);

		if (a->std >= 0)
			init.kind = PL_INIT_ZERO;
		rc = pl_tensor_build_tensor(b, "bias", 1, &nd->k, init, &nd->bias, err);
	}
	return rc;
}

/* The weight of the layer above that `tie` names. */
static int find_tie(struct pl_builder *b, int outputs, uint32_t *tie, struct pl_err *err)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, "tie");
	const struct pl_net *net = b->net;
	int c = b->dim[b->n_dims - 1];

	if (!k)
		return 0;
	for (uint32_t i = 0; i < net->n; i++) {
		const struct pl_net_tensor *t;

		if (!k->text || strcmp(net->layer[i].name, k->text) != 0 ||
		    net->node[i].weight == PL_NONE)
			continue;
		t = &net->tensor[net->node[i].weight];
		if (t->n_dims != 2 || t->dim[0] != outputs || t->dim[1] != c)
			return pl_tensor_build_bad(
				b, err, "the weight of \"%.60s\" is %dx%d, this one is %dx%d",
				k->text, t->dim[0], t->n_dims > 1 ? t->dim[1] : 1, outputs, c);
		*tie = net->node[i].weight;
		return 0;
	}
	return pl_tensor_build_bad(b, err, "tie=%.60s: no layer above has this name and a weight",
				   k->text ? k->text : "");
}

static int build_dense(struct pl_builder *b, struct pl_err *err)
{
	struct pl_dense_args a = { .bias = true, .std = -1, .tie = PL_NONE };
	int rc;

	PL_TRY(pl_tensor_build_num(b, 0, "the number of outputs", &a.outputs, err));
	PL_TRY(pl_tensor_build_switch(b, "bias", &a.bias, err));
	PL_TRY(pl_tensor_build_switch(b, "conv1d", &a.transposed, err));
	PL_TRY(pl_tensor_build_real(b, "std", 0, 1e6, &a.std, err));
	PL_TRY(find_tie(b, a.outputs, &a.tie, err));
	PL_TRY(pl_tensor_build_dense(b, &a, err));
out:
	return rc;
}

static const char *const dense_keys[] = { "bias", "std", "tie", "conv1d", NULL };
const struct pl_layer_type pl_tensor_layer_dense = {
	.op = "dense",
	.usage = "OUTPUTS [bias=1] [std=S] [tie=LAYER] [conv1d]",
	.min_num = 1,
	.max_num = 1,
	.flags = PL_READS_X | PL_READS_Y | PL_MAY_END,
	.key = dense_keys,
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

static int build_act(struct pl_builder *b, const struct pl_layer_type *type, enum pl_act act,
		     double flops, struct pl_err *err)
{
	struct pl_net *net = b->net;
	struct pl_node *last = net->n ? &net->node[net->n - 1] : NULL, *nd;
	/* a convolution does not keep the value that gelu needs in the backward pass */
	bool fits = last && ((last->type == &pl_tensor_layer_dense) ||
			     (last->type == &pl_tensor_layer_conv && act != PL_ACT_GELU));

	(void)err;
	nd = pl_tensor_build_node(b, type, NULL);
	nd->act = act;
	net->layer[net->n - 1].flops = flops * (double)nd->ny;
	if (!fits || last->act != PL_ACT_NONE || ends_block(b))
		return 0;
	nd->alias = true;
	nd->y = nd->x;
	last->act = act;
	if (act == PL_ACT_GELU)
		last->save_bytes = nd->ny * (size_t)net->o.batch * pl_net_width(net);
	return 0;
}

static int build_relu(struct pl_builder *b, struct pl_err *err)
{
	return build_act(b, &pl_tensor_layer_relu, PL_ACT_RELU, 1, err);
}
static int build_gelu(struct pl_builder *b, struct pl_err *err)
{
	return build_act(b, &pl_tensor_layer_gelu, PL_ACT_GELU, 12, err);
}
static int build_tanh(struct pl_builder *b, struct pl_err *err)
{
	return build_act(b, &pl_tensor_layer_tanh, PL_ACT_TANH, 8, err);
}
static int build_sigmoid(struct pl_builder *b, struct pl_err *err)
{
	return build_act(b, &pl_tensor_layer_sigmoid, PL_ACT_SIGMOID, 8, err);
}

#define ACTIVATION(name)                                                                           \
	const struct pl_layer_type pl_tensor_layer_##name = {                                      \
		.op = #name,                                                                       \
		.usage = "",                                                                       \
		.flags = PL_READS_X | PL_READS_Y,                                                  \
		.key = no_keys,                                                                    \
		.build = build_##name,                                                             \
		.forward = act_forward,                                                            \
		.backward = act_backward,                                                          \
	}
ACTIVATION(relu);
ACTIVATION(gelu);
ACTIVATION(tanh);
ACTIVATION(sigmoid);

/* ---- dropout, flatten ---------------------------------------------------------------------- */

/* The same for the way back and when it is made again: every layer has its own. */
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

static int build_dropout(struct pl_builder *b, struct pl_err *err)
{
	double p = b->text[b->at].num[0];
	struct pl_node *nd;

	if (!(p >= 0 && p < 1))
		return pl_tensor_build_bad(b, err,
					   "%g is dropped, should be 0 or more and less than 1", p);
	nd = pl_tensor_build_node(b, &pl_tensor_layer_dropout, NULL);
	nd->p = (float)p;
	if (p == 0) {
		nd->alias = true;
		nd->y = nd->x;
	}
	return 0;
}

const struct pl_layer_type pl_tensor_layer_dropout = {
	.op = "dropout",
	.usage = "P",
	.min_num = 1,
	.max_num = 1,
	.key = no_keys,
	.build = build_dropout,
	.forward = dropout_forward,
	.backward = dropout_backward,
};

static int build_flatten(struct pl_builder *b, struct pl_err *err)
{
	struct pl_node *nd;
	size_t n = 1;

	for (int i = 0; i < b->n_dims; i++)
		n *= (size_t)b->dim[i];
	if (n > PL_NET_DIM_MAX)
		return pl_tensor_build_bad(b, err, "a sample has %zu numbers here, more than %d", n,
					   PL_NET_DIM_MAX);
	b->n_dims = 1;
	b->dim[0] = (int)n;
	nd = pl_tensor_build_node(b, &pl_tensor_layer_flatten, NULL);
	nd->alias = true;
	nd->y = nd->x;
	b->net->layer[b->net->n - 1].flops = 0;
	return 0;
}

const struct pl_layer_type pl_tensor_layer_flatten = {
	.op = "flatten",
	.usage = "",
	.key = no_keys,
	.build = build_flatten,
};

/* ---- residual blocks ------------------------------------------------------------------------- */

static int build_residual(struct pl_builder *b, struct pl_err *err)
{
	struct pl_block *open = &b->block[b->depth];
	struct pl_node *nd;

	if (b->depth == PL_NET_DEPTH)
		return pl_tensor_build_bad(b, err, "blocks nest deeper than %d", PL_NET_DEPTH);
	nd = pl_tensor_build_node(b, &pl_tensor_layer_residual, NULL);
	nd->alias = true;
	nd->y = nd->x;
	*open = (struct pl_block){
		.node = b->net->n - 1, .skip = nd->x, .name = b->name, .n_dims = b->n_dims
	};
	memcpy(open->dim, b->dim, sizeof(b->dim));
	b->depth++;
	return 0;
}

const struct pl_layer_type pl_tensor_layer_residual = {
	.op = "residual",
	.usage = "",
	.key = no_keys,
	.build = build_residual,
};

static void end_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->add(net->ctx, p->n, pl_net_value(net, nd->skip), p->x, p->y);
}

static int build_end(struct pl_builder *b, struct pl_err *err)
{
	struct pl_block *open;
	char in[64], out[64];
	struct pl_node *nd;

	if (!b->depth)
		return pl_tensor_build_bad(b, err, "no block is open; \"residual\" opens one");
	open = &b->block[--b->depth];
	if (open->n_dims != b->n_dims ||
	    memcmp(open->dim, b->dim, (size_t)b->n_dims * sizeof(*b->dim)) != 0)
		return pl_tensor_build_bad(
			b, err,
			"%s goes into the block and %s comes out; they are added, so "
			"they must be alike",
			pl_tensor_build_dims(in, sizeof(in), open->n_dims, open->dim),
			pl_tensor_build_dims(out, sizeof(out), b->n_dims, b->dim));
	nd = pl_tensor_build_node(b, &pl_tensor_layer_end, NULL);
	nd->skip = open->skip;
	return 0;
}

const struct pl_layer_type pl_tensor_layer_end = {
	.op = "end",
	.usage = "",
	.key = no_keys,
	.build = build_end,
	.forward = end_forward,
};

/* ---- losses ------------------------------------------------------------------------------------
 */

static const char *const losses[] = { "softmax-cross-entropy", "squared", "hinge" };

static int which_loss(struct pl_builder *b, int *loss, struct pl_err *err)
{
	const struct pl_layer_key *kind = pl_tensor_build_key(b, "kind");

	*loss = -1;
	for (size_t i = 0; i < PL_LEN(losses); i++) {
		bool said = pl_tensor_build_key(b, losses[i]) ||
			    (kind && kind->text && !strcmp(kind->text, losses[i]));

		if (said && *loss >= 0)
			return pl_tensor_build_bad(b, err, "one loss, please, not %s and %s",
						   losses[*loss], losses[i]);
		if (said)
			*loss = (int)i;
	}
	if (*loss < 0)
		return pl_tensor_build_bad(
			b, err, "which? there are softmax-cross-entropy, squared and hinge%s%.40s",
			kind ? ", not " : "", kind && kind->text ? kind->text : "");
	return 0;
}

static int build_loss(struct pl_builder *b, struct pl_err *err)
{
	struct pl_net *net = b->net;
	int n_dims = b->n_dims, dim[4], loss, rc = which_loss(b, &loss, err);
	struct pl_node *nd;
	size_t n = 1;

	if (rc < 0)
		return rc;
	if (loss != PL_LOSS_SQUARED && n_dims > 2)
		return pl_tensor_build_bad(b, err, "it takes classes; put \"flatten\" before it");
	memcpy(dim, b->dim, sizeof(dim));
	for (int i = 0; i < n_dims; i++)
		n *= (size_t)dim[i];
	b->n_dims = 1;
	b->dim[0] = 1;
	nd = pl_tensor_build_node(b, &pl_tensor_layer_loss, NULL);
	nd->loss = (uint8_t)loss;
	nd->rows = loss != PL_LOSS_SQUARED && n_dims == 2 ? dim[0] : 1;
	nd->c = (int)(n / (size_t)nd->rows);
	if (loss != PL_LOSS_SQUARED && nd->c < 2)
		return pl_tensor_build_bad(b, err, "it needs 2 classes or more; %d come in", nd->c);
	net->shape.rows = nd->rows;
	net->shape.classes = loss == PL_LOSS_SQUARED ? 0 : nd->c;
	net->shape.targets = loss == PL_LOSS_SQUARED ? nd->c : 0;
	net->layer[net->n - 1].flops = (loss == PL_LOSS_XENT ? 8.0 : 3.0) * (double)n;
	return 0;
}

static const char *const loss_keys[] = { "kind", "softmax-cross-entropy", "squared", "hinge",
					 NULL };
const struct pl_layer_type pl_tensor_layer_loss = {
	.op = "loss",
	.usage = "softmax-cross-entropy|squared|hinge",
	.key = loss_keys,
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

const char *pl_net_usage(uint32_t i, const char **op)
{
	*op = i < PL_LEN(types) ? types[i]->op : NULL;
	return i < PL_LEN(types) ? types[i]->usage : NULL;
}

const struct pl_layer_type *pl_tensor_layer_find(const char *op)
{
	for (size_t i = 0; i < PL_LEN(types); i++)
		if (!strcmp(types[i]->op, op))
			return types[i];
	return NULL;
}
