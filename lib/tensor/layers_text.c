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

static void build_embedding(struct pl_builder *b)
{
	int dim[] = { pl_tensor_build_num(b, 0, "the number of tokens"),
		      pl_tensor_build_num(b, 1, "the width") };
	double std = pl_tensor_build_real(b, "std", 1e6, 1);
	struct pl_node *nd;

	if (b->at != 1)
		pl_tensor_build_bad(b, "it must stand right behind \"input\"");
	if (b->n_dims != 1)
		pl_tensor_build_bad(b, "tokens come in as \"input LENGTH\"");
	b->net->shape.vocab = dim[0];
	b->n_dims = 2;
	b->dim[1] = dim[1];
	nd = pl_tensor_build_node(b, &pl_tensor_layer_embedding, NULL);
	nd->rows = b->dim[0];
	nd->k = dim[1];
	nd->weight = pl_tensor_build_tensor(b, "weight", 2, dim,
					    (struct pl_init){ PL_INIT_NORMAL, std });
}

const struct pl_layer_type pl_tensor_layer_embedding = {
	.op = "embedding",
	.flags = PL_MAY_END,
	.build = build_embedding,
	.forward = embedding_forward,
	.backward = embedding_backward,
};

/* Added by the embedding before it, in one pass. */
static void build_position(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	struct pl_node *last = net->n ? &net->node[net->n - 1] : NULL;
	double std = pl_tensor_build_real(b, "std", 1e6, 1);

	if (!last || last->type != &pl_tensor_layer_embedding) {
		pl_tensor_build_bad(b, "it must stand right behind \"embedding\"");
		return;
	}
	pl_tensor_build_alias(b, &pl_tensor_layer_position);
	last->position = pl_tensor_build_tensor(b, "weight", 2, b->dim,
						(struct pl_init){ PL_INIT_NORMAL, std });
}

const struct pl_layer_type pl_tensor_layer_position = {
	.op = "position",
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

static void build_layernorm(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	struct pl_node *nd = pl_tensor_build_node(b, &pl_tensor_layer_layernorm, NULL);

	nd->eps = (float)pl_tensor_build_real(b, "eps", 1, 1e-5);
	nd->c = b->dim[b->n_dims - 1];
	nd->rows = (int)(nd->ny / (size_t)nd->c);
	nd->save_bytes = 2 * (size_t)net->o.batch * (size_t)nd->rows * sizeof(float);
	net->layer[net->n - 1].flops = 8 * (double)nd->ny;
	pl_tensor_build_norm(b, nd);
}

const struct pl_layer_type pl_tensor_layer_layernorm = {
	.op = "layernorm",
	.flags = PL_READS_X,
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
static void build_attention(struct pl_builder *b)
{
	struct pl_net *net = b->net;
	int heads = pl_tensor_build_num(b, 0, "the number of heads"), t = b->dim[0], c = b->dim[1];
	double std = pl_tensor_build_real(b, "std", 1e6, -1);
	struct pl_dense_args in = { .outputs = 3 * c,
				    .bias = pl_tensor_build_switch(b, "bias", true),
				    .transposed = pl_tensor_build_switch(b, "conv1d", false),
				    .std = std,
				    .tie = PL_NONE };
	struct pl_dense_args out = in;
	struct pl_node *nd;

	if (b->n_dims != 2)
		pl_tensor_build_bad(b, "it takes sequences of rows, as an embedding makes");
	else if (c % heads || c > PL_NET_DIM_MAX / 3)
		pl_tensor_build_bad(b, "%d heads do not divide the width %d", heads, c);
	if (b->rc < 0)
		return;
	out.std = pl_tensor_build_real(b, "std_out", 1e6, std);
	out.outputs = c;
	in.name = pl_tensor_build_text(b, "%s.c_attn", b->name);
	out.name = pl_tensor_build_text(b, "%s.c_proj", b->name);
	pl_tensor_build_dense(b, &in);
	b->dim[1] = c;
	nd = pl_tensor_build_node(b, &pl_tensor_layer_attention, NULL);
	nd->attn = (struct pl_attn){ .b = net->o.batch, .t = t, .c = c, .heads = heads };
	nd->save_bytes = net->be->attn_save(net->ctx, &nd->attn) * sizeof(float);
	/* scores and their use, half of them behind the mask */
	net->layer[net->n - 1].flops = 2.0 * t * t * c + 5.0 * t * t * heads / 2;
	pl_tensor_build_dense(b, &out);
}

const struct pl_layer_type pl_tensor_layer_attention = {
	.op = "attention",
	.flags = PL_READS_X | PL_READS_Y,
	.build = build_attention,
	.forward = attention_forward,
	.backward = attention_backward,
};
