/*
 * The types of layers: how a statement becomes nodes, and their two passes; see the last table.
 *
 * A dense layer or a convolution computes the activation after it, while its output is still in the
 * cache. But it does not do so at the end of a block, because the backward pass of the activation
 * overwrites a gradient that the other branch of the block also needs. Residual blocks are those of
 * He et al. (CVPR 2016) with the identity as the other branch; gelu is that of Hendrycks and Gimpel
 * (2016) in its tanh form; batch normalisation that of Ioffe and Szegedy (ICML 2015), where each
 * channel is a feature, or of (C) alone; layer normalisation that of Ba et al. (2016); causal
 * self-attention that of Vaswani et al. (NeurIPS 2017) in the form and with the names of GPT-2.
 */
#include <math.h>

#include "tensor/net_internal.h"

/* ---- input ----------------------------------------------------------------------------------- */

static void build_input(struct pl_builder *b)
{
	struct pl_net *net = b->net;

	b->n_dims = (int)b->text[b->at].n_num;
	net->nx = 1;
	for (int i = 0; i < b->n_dims && b->rc >= 0; i++) {
		b->dim[i] = pl_tensor_build_num(b, (uint32_t)i, 1);
		net->nx *= (size_t)b->dim[i];
		if (net->nx > (size_t)INT32_MAX / (size_t)net->o.batch)
			pl_tensor_build_bad(b, "a batch of %d samples has more than 2^31 inputs",
					    net->o.batch);
	}
	net->shape.n_dims = b->n_dims;
	memcpy(net->shape.dim, b->dim, sizeof(b->dim));
}

/* ---- dense ----------------------------------------------------------------------------------- */

static void dense_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->dense(net->ctx, p->rows, nd->c, nd->k, p->x, p->weight, p->bias, nd->act,
		       nd->act == PL_ACT_GELU ? p->save : NULL, p->y);
}

/*
 * Does the next layer with a gradient undo the gelu of this layer, while that gradient is in the
 * cache? It must be dense and the only reader, and no layer between may compute. The input of gelu
 * must be in memory at that time; recomputation in another segment would make it too late.
 */
static bool undone_by_reader(const struct pl_net *net, const struct pl_node *nd)
{
	const struct pl_node *reader = nd + 1;

	if (nd->op != PL_LAYER_DENSE || nd->act != PL_ACT_GELU)
		return false;
	while (reader->alias && reader->op != PL_LAYER_RESIDUAL)
		reader++;
	return reader->op == PL_LAYER_DENSE && !reader->alias && &net->node[reader->x] == nd &&
	       (nd->segment == PL_NONE || nd->segment == reader->segment);
}

static void dense_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	const struct pl_node *before = nd->x == PL_NET_INPUT ? NULL : &net->node[nd->x];
	const void *from = NULL;

	if (before && p->dx && undone_by_reader(net, before))
		from = net->acts + before->save_at;
	net->be->dense_back(net->ctx, p->rows, nd->c, nd->k, p->x, p->weight,
			    undone_by_reader(net, nd) ? PL_ACT_NONE : nd->act,
			    nd->act == PL_ACT_GELU ? p->save : NULL, p->y, p->dy, from, p->dx,
			    p->dweight, p->dbias);
}

/* The weight, unless another layer owns it, and the bias. std below 0: PyTorch's initial values. */
static void add_weights(struct pl_builder *b, struct pl_node *nd, int n_dims, const int *dim,
			double std)
{
	struct pl_init init = { PL_INIT_NORMAL, std };
	double fan_in = 1;

	for (int i = 1; i < n_dims; i++)
		fan_in *= dim[i];
	if (std < 0)
		init = (struct pl_init){ PL_INIT_UNIFORM, 1 / sqrt(fan_in) };
	if (nd->weight == PL_NONE)
		nd->weight = pl_tensor_build_tensor(b, "weight", n_dims, dim, init);
	if (std >= 0)
		init.kind = PL_INIT_ZERO;
	if (pl_tensor_build_switch(b, "bias", true))
		nd->bias = pl_tensor_build_tensor(b, "bias", 1, dim, init);
}

/* A dense layer, or a dense part of another layer. tie: the tensor of its weight, PL_NONE. */
static void add_dense(struct pl_builder *b, const char *name, int outputs, double std, uint32_t tie)
{
	struct pl_net *net = b->net;
	int c = b->dim[b->n_dims - 1];
	char dims[64];
	struct pl_node *nd;

	/* (C), or (T, C): rows of C. The user must flatten other shapes. */
	if (b->n_dims > 2)
		pl_tensor_build_bad(b, "%s comes in; put \"flatten\" before it",
				    pl_tensor_build_dims(dims, sizeof(dims), b->n_dims, b->dim));
	b->dim[b->n_dims - 1] = outputs;
	nd = pl_tensor_build_node(b, PL_LAYER_DENSE, name);
	nd->rows = b->n_dims == 2 ? b->dim[0] : 1;
	nd->c = c;
	nd->k = outputs;
	nd->weight = tie;
	net->layer[net->n - 1].flops = 2.0 * nd->rows * c * nd->k;
	add_weights(b, nd, 2, (int[]){ nd->k, c }, std);
	if (tie == PL_NONE)
		net->tensor[nd->weight].transposed = pl_tensor_build_switch(b, "conv1d", false);
}

/* The weight of the earlier layer that `tie` names; PL_NONE: no tie. */
static uint32_t find_tie(struct pl_builder *b, int outputs)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, "tie");
	const struct pl_net *net = b->net;
	int c = b->dim[b->n_dims - 1];

	if (!k)
		return PL_NONE;
	for (uint32_t i = 0; i < net->n; i++) {
		const struct pl_net_tensor *t;

		if (strcmp(net->layer[i].name, k->text) != 0 || net->node[i].weight == PL_NONE)
			continue;
		t = &net->tensor[net->node[i].weight];
		if (t->n_dims != 2 || t->dim[0] != outputs || t->dim[1] != c)
			pl_tensor_build_bad(
				b, "the weight of \"%.60s\" is %dx%d, this one is %dx%d", k->text,
				t->dim[0], t->n_dims > 1 ? t->dim[1] : 1, outputs, c);
		return net->node[i].weight;
	}
	pl_tensor_build_bad(b, "tie=%.60s: no layer above has this name and a weight", k->text);
	return PL_NONE;
}

static void build_dense(struct pl_builder *b)
{
	int outputs = pl_tensor_build_num(b, 0, 1);

	add_dense(b, NULL, outputs, pl_tensor_build_real(b, "std", -1), find_tie(b, outputs));
}

/* ---- activations ----------------------------------------------------------------------------- */

static void act_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->act(net->ctx, nd->act, p->n, p->x, p->y);
}

static void act_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->act_back(net->ctx, nd->act, p->n, p->x, p->y, p->dy, p->dx);
}

/* Does the block end after this statement, with no computation between? */
static bool ends_block(const struct pl_builder *b)
{
	size_t i = b->at + 1;

	while (i < b->n_text && !strcmp(b->text[i].op, "flatten"))
		i++;
	return i < b->n_text && !strcmp(b->text[i].op, "end");
}

static void build_act(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	struct pl_node *last = net->n ? &net->node[net->n - 1] : NULL;
	struct pl_node *nd = pl_tensor_build_node(b, b->op, NULL);
	bool fits;

	nd->act = PL_ACT_RELU + (b->op - PL_LAYER_RELU); /* both lists have the same order */
	/* a convolution does not keep the value that gelu needs in the backward pass */
	fits = last && (last->op == PL_LAYER_DENSE ||
			(last->op == PL_LAYER_CONV && nd->act != PL_ACT_GELU));
	if (!fits || last->act != PL_ACT_NONE || ends_block(b))
		return;
	nd->alias = true;
	nd->y = nd->x;
	last->act = nd->act;
	if (nd->act == PL_ACT_GELU)
		last->save_bytes = nd->ny * (size_t)net->o.batch * pl_net_width(net);
}

/* ---- dropout, flatten ------------------------------------------------------------------------ */

/* Makes the masks of each layer different. All passes of a layer use the same number. */
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
	double p = b->text[b->at].num[0];

	if (p == 0)
		pl_tensor_build_alias(b);
	else
		pl_tensor_build_node(b, b->op, NULL)->p = (float)p;
}

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
	pl_tensor_build_alias(b);
}

/* ---- residual blocks ------------------------------------------------------------------------- */

static void build_residual(struct pl_builder *b)
{
	struct pl_block *open = &b->block[b->depth];
	struct pl_node *nd;

	if (b->depth == PL_NET_DEPTH) {
		pl_tensor_build_bad(b, "blocks nest deeper than %d", PL_NET_DEPTH);
		return;
	}
	nd = pl_tensor_build_alias(b);
	*open = (struct pl_block){ .skip = nd->x, .name = b->name, .n_dims = b->n_dims };
	memcpy(open->dim, b->dim, sizeof(b->dim));
	b->depth++;
}

static void end_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->add(net->ctx, p->n, pl_net_value(net, nd->skip), p->x, p->y);
}

static void build_end(struct pl_builder *b)
{
	struct pl_block *open = &b->block[--b->depth];
	char in[64], out[64];

	if (open->n_dims != b->n_dims ||
	    memcmp(open->dim, b->dim, (size_t)b->n_dims * sizeof(*b->dim)) != 0)
		pl_tensor_build_bad(
			b,
			"%s goes into the block and %s comes out; they are added, so they must "
			"be alike",
			pl_tensor_build_dims(in, sizeof(in), open->n_dims, open->dim),
			pl_tensor_build_dims(out, sizeof(out), b->n_dims, b->dim));
	pl_tensor_build_node(b, b->op, NULL)->skip = open->skip;
}

/* ---- images (C, H, W) ------------------------------------------------------------------------ */

static void need_image(struct pl_builder *b)
{
	char dims[64];

	if (b->n_dims != 3)
		pl_tensor_build_bad(
			b,
			"%s comes in, should be channels x height x width, as of \"input 3 32 32\"",
			pl_tensor_build_dims(dims, sizeof(dims), b->n_dims, b->dim));
}

/* pad=N, or pad=same: (size - 1) / 2, which keeps the size for stride 1 */
static int padding(struct pl_builder *b, int size)
{
	const struct pl_layer_key *k = pl_tensor_build_key(b, "pad");

	if (!k || strcmp(k->text, "same") != 0)
		return (int)pl_tensor_build_real(b, "pad", 0);
	if (size % 2 == 0)
		pl_tensor_build_bad(b, "pad=same needs an odd size, not %d", size);
	return (size - 1) / 2;
}

/* The number of windows of `size` along `in`; < 1: none. */
static int windows(int in, int size, int stride, int pad)
{
	int64_t room = (int64_t)in + 2 * (int64_t)pad - size;

	return room < 0 ? 0 : (int)(room / stride) + 1;
}

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

static void build_conv(struct pl_builder *b)
{
	struct pl_conv d = { .n = b->net->o.batch, .c = b->dim[0], .h = b->dim[1], .w = b->dim[2] };
	struct pl_node *nd;

	need_image(b);
	d.k = pl_tensor_build_num(b, 0, 1);
	d.r = pl_tensor_build_num(b, 1, 1);
	d.s = pl_tensor_build_num(b, 2, d.r);
	d.stride = (int)pl_tensor_build_real(b, "stride", 1);
	if (pl_tensor_build_key(b, "pad") && d.s % 2 != d.r % 2)
		pl_tensor_build_bad(b, "a padded filter should be as wide as it is high");
	d.pad = padding(b, d.r);
	d.p = windows(d.h, d.r, d.stride, d.pad);
	d.q = windows(d.w, d.s, d.stride, d.pad);
	if (d.p < 1 || d.q < 1 || d.pad < 0 || d.pad >= d.r || d.pad >= d.s)
		pl_tensor_build_bad(b,
				    "filters of %dx%d with padding %d do not fit images of %dx%d",
				    d.r, d.s, d.pad, d.h, d.w);
	if (b->rc < 0)
		return;
	memcpy(b->dim, (int[]){ d.k, d.p, d.q }, 3 * sizeof(int));
	nd = pl_tensor_build_node(b, b->op, NULL);
	nd->conv = d;
	b->net->layer[b->net->n - 1].flops = 2.0 * d.c * d.r * d.s * d.k * d.p * d.q;
	add_weights(b, nd, 4, (int[]){ d.k, d.c, d.r, d.s }, pl_tensor_build_real(b, "std", -1));
}

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

static void build_pool(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	struct pl_pool2d d = { .n = net->o.batch,
			       .c = b->dim[0],
			       .h = b->dim[1],
			       .w = b->dim[2],
			       .max = b->op == PL_LAYER_MAXPOOL };
	struct pl_node *nd;

	need_image(b);
	d.r = pl_tensor_build_num(b, 0, 1);
	d.stride = (int)pl_tensor_build_real(b, "stride", d.r);
	d.pad = padding(b, d.r);
	d.p = windows(d.h, d.r, d.stride, d.pad);
	d.q = windows(d.w, d.r, d.stride, d.pad);
	if (d.p < 1 || d.q < 1 || d.pad < 0 || 2 * (int64_t)d.pad > d.r)
		pl_tensor_build_bad(
			b,
			"windows of %dx%d with padding %d do not fit images of %dx%d (padding "
			"is at most half the size)",
			d.r, d.r, d.pad, d.h, d.w);
	if (b->rc < 0)
		return;
	b->dim[1] = d.p;
	b->dim[2] = d.q;
	nd = pl_tensor_build_node(b, b->op, NULL);
	nd->pool = d;
	if (d.max)
		nd->save_bytes = nd->ny * (size_t)net->o.batch * sizeof(int32_t);
	net->layer[net->n - 1].flops = (double)nd->ny * d.r * d.r;
}

/* ---- normalisation --------------------------------------------------------------------------- */

static void batchnorm_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	/* recomputation must not update the running means a second time */
	float *running = net->again ? NULL : net->state.p + nd->state;

	net->be->batchnorm(net->ctx, net->samples, nd->c, nd->k, p->x, p->weight, p->bias, nd->eps,
			   nd->momentum, net->eval, running, p->save, p->y);
}

static void batchnorm_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->batchnorm_back(net->ctx, net->samples, nd->c, nd->k, p->x, p->weight, p->save,
				p->dy, p->dx, p->dweight, p->dbias);
}

/* A node that saves `saved` floats of a batch, with weights of 1 and biases of 0 for c features. */
static struct pl_node *add_norm(struct pl_builder *b, int c, size_t saved)
{
	struct pl_node *nd = pl_tensor_build_node(b, b->op, NULL);

	nd->c = c;
	nd->eps = (float)pl_tensor_build_real(b, "eps", 1e-5);
	nd->save_bytes = saved * sizeof(float);
	nd->weight = pl_tensor_build_tensor(b, "weight", 1, &c, (struct pl_init){ PL_INIT_ONE, 0 });
	nd->bias = pl_tensor_build_tensor(b, "bias", 1, &c, (struct pl_init){ PL_INIT_ZERO, 0 });
	return nd;
}

static void build_batchnorm(struct pl_builder *b)
{
	struct pl_slab *state = &b->net->state;
	struct pl_node *nd;

	if (b->n_dims == 2)
		pl_tensor_build_bad(b, "sequences come in; use layernorm");
	nd = add_norm(b, b->dim[0], 4 * (size_t)b->dim[0]);
	nd->k = b->n_dims == 3 ? b->dim[1] * b->dim[2] : 1;
	nd->momentum = (float)pl_tensor_build_real(b, "momentum", 0.1);
	nd->state = pl_tensor_build_state(b, "running_mean", nd->c);
	/* the backend uses both as one array (2, C), so no gap is allowed */
	state->n = nd->state + (size_t)nd->c;
	state->n = pl_net_round(pl_tensor_build_state(b, "running_var", nd->c) + (size_t)nd->c);
}

static void layernorm_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->layernorm(net->ctx, p->rows, nd->c, p->x, p->weight, p->bias, nd->eps, p->save,
			   p->y);
}

static void layernorm_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->layernorm_back(net->ctx, p->rows, nd->c, p->x, p->weight, p->save, p->dy, p->dx,
				p->dweight, p->dbias);
}

static void build_layernorm(struct pl_builder *b)
{
	size_t rows = 1;

	for (int i = 0; i + 1 < b->n_dims; i++)
		rows *= (size_t)b->dim[i];
	add_norm(b, b->dim[b->n_dims - 1], 2 * rows * (size_t)b->net->o.batch)->rows = (int)rows;
}

/* ---- sequences (T, C) ------------------------------------------------------------------------ */

static void embedding_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->embed(net->ctx, p->rows, nd->k, net->ids, p->weight,
		       pl_net_weight(net, nd->position), nd->rows, p->y);
}

static void embedding_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	net->be->embed_back(net->ctx, p->rows, nd->k, net->ids, nd->rows, p->dy, p->dweight,
			    pl_net_dweight(net, nd->position));
}

static struct pl_init table_init(struct pl_builder *b)
{
	return (struct pl_init){ PL_INIT_NORMAL, pl_tensor_build_real(b, "std", 1) };
}

static void build_embedding(struct pl_builder *b)
{
	int dim[] = { pl_tensor_build_num(b, 0, 1), pl_tensor_build_num(b, 1, 1) };
	struct pl_node *nd;

	if (b->at != 1)
		pl_tensor_build_bad(b, "it must stand right behind \"input\"");
	if (b->n_dims != 1)
		pl_tensor_build_bad(b, "tokens come in as \"input LENGTH\"");
	b->net->shape.vocab = dim[0];
	b->n_dims = 2;
	b->dim[1] = dim[1];
	nd = pl_tensor_build_node(b, b->op, NULL);
	nd->rows = b->dim[0];
	nd->k = dim[1];
	nd->weight = pl_tensor_build_tensor(b, "weight", 2, dim, table_init(b));
}

/* The embedding before it adds the positions, in one pass. */
static void build_position(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	struct pl_node *last = net->n ? &net->node[net->n - 1] : NULL;

	if (!last || last->op != PL_LAYER_EMBEDDING) {
		pl_tensor_build_bad(b, "it must stand right behind \"embedding\"");
		return;
	}
	pl_tensor_build_alias(b);
	last->position = pl_tensor_build_tensor(b, "weight", 2, b->dim, table_init(b));
}

static void attention_forward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	nd->attn.b = net->samples;
	net->be->attn(net->ctx, &nd->attn, p->x, p->y, p->save);
}

static void attention_backward(struct pl_net *net, struct pl_node *nd, const struct pl_pass *p)
{
	nd->attn.b = net->samples;
	net->be->attn_back(net->ctx, &nd->attn, p->x, p->y, p->save, p->dy, p->dx);
}

/* The projection to queries, keys and values; the heads; the projection back. */
static void build_attention(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	int heads = pl_tensor_build_num(b, 0, 1), t = b->dim[0], c = b->dim[1];
	double std = pl_tensor_build_real(b, "std", -1);
	struct pl_node *nd;

	if (b->n_dims != 2)
		pl_tensor_build_bad(b, "it takes sequences of rows, as an embedding makes");
	else if (c % heads || c > PL_NET_DIM_MAX / 3)
		pl_tensor_build_bad(b, "%d heads do not divide the width %d", heads, c);
	if (b->rc < 0)
		return;
	add_dense(b, pl_tensor_build_text(b, "%s.c_attn", b->name), 3 * c, std, PL_NONE);
	b->dim[1] = c;
	nd = pl_tensor_build_node(b, b->op, NULL);
	nd->attn = (struct pl_attn){ .b = net->o.batch, .t = t, .c = c, .heads = heads };
	nd->save_bytes = net->be->attn_save(net->ctx, &nd->attn) * sizeof(float);
	/* scores and their use, half of which is masked */
	net->layer[net->n - 1].flops = 2.0 * t * t * c + 5.0 * t * t * heads / 2;
	add_dense(b, pl_tensor_build_text(b, "%s.c_proj", b->name), c,
		  pl_tensor_build_real(b, "std_out", std), PL_NONE);
}

/* ---- losses ---------------------------------------------------------------------------------- */

static void build_loss(struct pl_builder *b)
{
	static const char *const names[] = { "softmax-cross-entropy", "squared", "hinge" };
	struct pl_net *net = b->net;
	int loss = 0, rows;
	struct pl_node *nd;
	bool classes;
	size_t n = 1;

	while (loss < PL_LOSS_HINGE && !pl_tensor_build_key(b, names[loss]))
		loss++;
	classes = loss != PL_LOSS_SQUARED;
	rows = classes && b->n_dims == 2 ? b->dim[0] : 1;
	if (classes && b->n_dims > 2)
		pl_tensor_build_bad(b, "it takes classes; put \"flatten\" before it");
	for (int i = 0; i < b->n_dims; i++)
		n *= (size_t)b->dim[i];
	b->n_dims = 1;
	b->dim[0] = 1;
	nd = pl_tensor_build_node(b, b->op, NULL);
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

/* ---- the table ------------------------------------------------------------------------------- */

#define READS_BOTH PL_READS_X | PL_READS_Y

const struct pl_layer_type pl_tensor_layers[PL_LAYER_COUNT_] = {
	[PL_LAYER_INPUT] = { "input", 0, 0, build_input, NULL, NULL },
	[PL_LAYER_DENSE] = { "dense", READS_BOTH | PL_MAY_END, 0, build_dense, dense_forward,
			     dense_backward },
	[PL_LAYER_CONV] = { "conv", READS_BOTH | PL_MAY_END, 0, build_conv, conv_forward,
			    conv_backward },
	[PL_LAYER_MAXPOOL] = { "maxpool", 0, 0, build_pool, pool_forward, pool_backward },
	[PL_LAYER_AVGPOOL] = { "avgpool", 0, 0, build_pool, pool_forward, pool_backward },
	[PL_LAYER_BATCHNORM] = { "batchnorm", PL_READS_X, 8, build_batchnorm, batchnorm_forward,
				 batchnorm_backward },
	[PL_LAYER_LAYERNORM] = { "layernorm", PL_READS_X, 8, build_layernorm, layernorm_forward,
				 layernorm_backward },
	[PL_LAYER_EMBEDDING] = { "embedding", PL_MAY_END, 1, build_embedding, embedding_forward,
				 embedding_backward },
	[PL_LAYER_POSITION] = { "position", 0, 1, build_position, NULL, NULL },
	[PL_LAYER_ATTENTION] = { "attention", READS_BOTH, 0, build_attention, attention_forward,
				 attention_backward },
	[PL_LAYER_RELU] = { "relu", READS_BOTH, 1, build_act, act_forward, act_backward },
	[PL_LAYER_GELU] = { "gelu", READS_BOTH, 12, build_act, act_forward, act_backward },
	[PL_LAYER_TANH] = { "tanh", READS_BOTH, 8, build_act, act_forward, act_backward },
	[PL_LAYER_SIGMOID] = { "sigmoid", READS_BOTH, 8, build_act, act_forward, act_backward },
	[PL_LAYER_DROPOUT] = { "dropout", 0, 1, build_dropout, dropout_forward, dropout_backward },
	[PL_LAYER_FLATTEN] = { "flatten", 0, 0, build_flatten, NULL, NULL },
	/* computes in the backward pass only */
	[PL_LAYER_RESIDUAL] = { "residual", 0, 0, build_residual, NULL, NULL },
	[PL_LAYER_END] = { "end", 0, 1, build_end, end_forward, NULL },
	[PL_LAYER_LOSS] = { "loss", 0, 0, build_loss, NULL, NULL },
};
