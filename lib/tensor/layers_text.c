/*
 * Layers of sequences (T, C): embedding of tokens and places, layer normalisation (Ba et al.,
 * 2016), causal self-attention (Vaswani et al., NeurIPS 2017) in the form and with the names of
 * GPT-2.
 */
#include <string.h>

#include "tensor/net_internal.h"

/* ---- embedding ------------------------------------------------------------------------------- */

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

static int build_embedding(struct pl_builder *b, struct pl_err *err)
{
	struct pl_net *net = b->net;
	double std = 1;
	struct pl_node *nd;
	int dim[2], rc;

	if (b->at != 1)
		return pl_tensor_build_bad(b, err, "it must stand right behind \"input\"");
	if (b->n_dims != 1)
		return pl_tensor_build_bad(b, err, "tokens come in as \"input LENGTH\"");
	PL_TRY(pl_tensor_build_num(b, 0, "the number of tokens", &dim[0], err));
	PL_TRY(pl_tensor_build_num(b, 1, "the width", &dim[1], err));
	PL_TRY(pl_tensor_build_real(b, "std", 0, 1e6, &std, err));
	net->shape.vocab = dim[0];
	b->n_dims = 2;
	b->dim[1] = dim[1];
	nd = pl_tensor_build_node(b, &pl_tensor_layer_embedding, NULL);
	nd->rows = b->dim[0];
	nd->k = dim[1];
	PL_TRY(pl_tensor_build_tensor(b, "weight", 2, dim, (struct pl_init){ PL_INIT_NORMAL, std },
				      &nd->weight, err));
out:
	return rc;
}

static const char *const embedding_keys[] = { "std", NULL };
const struct pl_layer_type pl_tensor_layer_embedding = {
	.op = "embedding",
	.usage = "VOCABULARY WIDTH [std=1]",
	.min_num = 2,
	.max_num = 2,
	.flags = PL_MAY_END,
	.key = embedding_keys,
	.build = build_embedding,
	.forward = embedding_forward,
	.backward = embedding_backward,
};

/* Added by the embedding before it, in one pass. */
static int build_position(struct pl_builder *b, struct pl_err *err)
{
	struct pl_net *net = b->net;
	struct pl_node *last = net->n ? &net->node[net->n - 1] : NULL, *nd;
	double std = 1;
	int rc;

	if (!last || last->type != &pl_tensor_layer_embedding)
		return pl_tensor_build_bad(b, err, "it must stand right behind \"embedding\"");
	PL_TRY(pl_tensor_build_real(b, "std", 0, 1e6, &std, err));
	nd = pl_tensor_build_node(b, &pl_tensor_layer_position, NULL);
	nd->alias = true;
	nd->y = nd->x;
	PL_TRY(pl_tensor_build_tensor(b, "weight", 2, b->dim,
				      (struct pl_init){ PL_INIT_NORMAL, std }, &last->position,
				      err));
out:
	return rc;
}

const struct pl_layer_type pl_tensor_layer_position = {
	.op = "position",
	.usage = "[std=1]",
	.key = embedding_keys,
	.build = build_position,
};

/* ---- layer normalisation ------------------------------------------------------------------- */

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

static int build_layernorm(struct pl_builder *b, struct pl_err *err)
{
	struct pl_net *net = b->net;
	double eps = 1e-5;
	struct pl_node *nd;
	int rc;

	PL_TRY(pl_tensor_build_real(b, "eps", 0, 1, &eps, err));
	nd = pl_tensor_build_node(b, &pl_tensor_layer_layernorm, NULL);
	nd->c = b->dim[b->n_dims - 1];
	nd->rows = (int)(nd->ny / (size_t)nd->c);
	nd->eps = (float)eps;
	nd->save_bytes = 2 * (size_t)net->o.batch * (size_t)nd->rows * sizeof(float);
	net->layer[net->n - 1].flops = 8 * (double)nd->ny;
	PL_TRY(pl_tensor_build_tensor(b, "weight", 1, &nd->c, (struct pl_init){ PL_INIT_ONE, 0 },
				      &nd->weight, err));
	PL_TRY(pl_tensor_build_tensor(b, "bias", 1, &nd->c, (struct pl_init){ PL_INIT_ZERO, 0 },
				      &nd->bias, err));
out:
	return rc;
}

static const char *const layernorm_keys[] = { "eps", NULL };
const struct pl_layer_type pl_tensor_layer_layernorm = {
	.op = "layernorm",
	.usage = "[eps=1e-5]",
	.flags = PL_READS_X,
	.key = layernorm_keys,
	.build = build_layernorm,
	.forward = layernorm_forward,
	.backward = layernorm_backward,
};

/* ---- attention ------------------------------------------------------------------------------- */

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

/* The projection to queries, keys and values; what the heads do; the projection back. */
static int build_attention(struct pl_builder *b, struct pl_err *err)
{
	struct pl_net *net = b->net;
	struct pl_dense_args in = { .bias = true, .std = -1, .tie = PL_NONE }, out;
	double std_out = -1;
	struct pl_node *nd;
	int heads, t, c, rc;

	PL_TRY(pl_tensor_build_num(b, 0, "the number of heads", &heads, err));
	if (b->n_dims != 2)
		return pl_tensor_build_bad(b, err,
					   "it takes sequences of rows, as an embedding makes");
	t = b->dim[0];
	c = b->dim[1];
	if (c % heads || c > PL_NET_DIM_MAX / 3)
		return pl_tensor_build_bad(b, err, "%d heads do not divide the width %d", heads, c);
	PL_TRY(pl_tensor_build_switch(b, "bias", &in.bias, err));
	PL_TRY(pl_tensor_build_switch(b, "conv1d", &in.transposed, err));
	PL_TRY(pl_tensor_build_real(b, "std", 0, 1e6, &in.std, err));
	std_out = in.std;
	PL_TRY(pl_tensor_build_real(b, "std_out", 0, 1e6, &std_out, err));
	out = in;
	out.std = std_out;
	in.outputs = 3 * c;
	out.outputs = c;
	PL_TRY(pl_tensor_build_text(b, &in.name, err, "%s.c_attn", b->name));
	PL_TRY(pl_tensor_build_text(b, &out.name, err, "%s.c_proj", b->name));
	PL_TRY(pl_tensor_build_dense(b, &in, err));
	b->dim[1] = c;
	nd = pl_tensor_build_node(b, &pl_tensor_layer_attention, NULL);
	nd->attn = (struct pl_attn){ .b = net->o.batch, .t = t, .c = c, .heads = heads };
	nd->save_bytes = net->be->attn_save(net->ctx, &nd->attn) * sizeof(float);
	/* scores and their use, half of them behind the mask */
	net->layer[net->n - 1].flops = 2.0 * t * t * c + 5.0 * t * t * heads / 2;
	PL_TRY(pl_tensor_build_dense(b, &out, err));
out:
	return rc;
}

static const char *const attention_keys[] = { "bias", "std", "std_out", "conv1d", NULL };
const struct pl_layer_type pl_tensor_layer_attention = {
	.op = "attention",
	.usage = "HEADS [bias=1] [std=S] [std_out=S] [conv1d]",
	.min_num = 1,
	.max_num = 1,
	.flags = PL_READS_X | PL_READS_Y,
	.key = attention_keys,
	.build = build_attention,
	.forward = attention_forward,
	.backward = attention_backward,
};
