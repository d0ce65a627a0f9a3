/*
 * kgen_model.c - the training job: a transformer of equal layers under tensor, data and pipeline
 * parallelism, as scripts for kgen_sim.c.
 *
 * A layer is a table of operators with their share of the forward time of one layer.  Tensor
 * parallelism reduces after the row-parallel products forward and after the input gradient of
 * the column-parallel ones backward, and joins at once.  Data parallelism reduces two buckets per
 * layer during the last backward pass and joins at its end (or at once with --sync-comm).
 * Pipeline stages follow the one-forward-one-backward schedule.  Ranks are numbered tensor index
 * first, then data, then stage.
 */
#include "kgen_model.h"

#include <stdlib.h>

#define NSLOT		     KG_LAYER_END
#define SLOT_ATTENTION_END   4 /* first operator of the second half of a layer */
#define EMBEDDING_GRAD_BYTES (2ULL * KG_HIDDEN * 8192)

#define NODE "autograd::engine::evaluate_function: "

#define ELEMENTWISE(op)                                                                            \
	"void at::native::vectorized_elementwise_kernel<4, at::native::" op                        \
	"(at::TensorIteratorBase&)::{lambda()#1}::operator()() const::{lambda()#1}::operator()() " \
	"const::{lambda(c10::BFloat16)#1}, at::detail::Array<char*, 2> >(int, at::native::" op     \
	"(at::TensorIteratorBase&)::{lambda()#1}, at::detail::Array<char*, 2>)"

static const struct kg_kernel k_gemm_tn = {
	"ampere_bf16_s16816gemm_bf16_256x128_ldg8_f2f_stages_64x3_tn", 238, 147456, 512, 256
};
static const struct kg_kernel k_gemm_nn = {
	"ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_64x3_nn", 230, 98304, 1024, 128
};
static const struct kg_kernel k_gemm_nt = {
	"void "
	"cutlass::Kernel2<cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nt_align8>"
	"(cutlass_80_tensorop_bf16_s16816gemm_relu_bf16_256x128_32x3_nt_align8::Params)",
	230, 73728, 768, 256
};
static const struct kg_kernel k_attn = {
	"void flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, "
	"cutlass::bfloat16_t, Flash_kernel_traits<128, 128, 64, 4, cutlass::bfloat16_t> >, false, "
	"true, false, false, true, true, false>(Flash_fwd_params)",
	255, 65536, 512, 128
};
static const struct kg_kernel k_attn_bwd = {
	"void flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, "
	"8, "
	"2, 4, 2, false, false, cutlass::bfloat16_t> >(Flash_bwd_params)",
	255, 147456, 512, 256
};
static const struct kg_kernel k_norm = {
	"void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
	"(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, "
	"float*, c10::BFloat16*)",
	32, 64, 4096, 128
};
static const struct kg_kernel k_norm_bwd = {
	"void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized"
	"<c10::BFloat16, float>(c10::BFloat16 const*, c10::BFloat16 const*, float const*, "
	"float const*, c10::BFloat16 const*, c10::BFloat16*, int)",
	40, 128, 4096, 256
};
static const struct kg_kernel k_gelu = { ELEMENTWISE("GeluCUDAKernelImpl"), 32, 0, 32768, 128 };
static const struct kg_kernel k_gelu_bwd = { ELEMENTWISE("GeluBackwardCUDAKernelImpl"), 40, 0,
					     32768, 128 };
static const struct kg_kernel k_drop_add = { "triton_poi_fused_add_native_dropout_0", 28, 0, 16384,
					     256 };
static const struct kg_kernel k_drop_bwd = { "triton_poi_fused_native_dropout_backward_1", 24, 0,
					     16384, 256 };
static const struct kg_kernel k_bias = {
	"void at::native::reduce_kernel<128, 4, at::native::ReduceOp<c10::BFloat16, "
	"at::native::func_wrapper_t<c10::BFloat16, at::native::sum_functor<c10::BFloat16, float, "
	"c10::BFloat16> >, unsigned int, c10::BFloat16, 4> >(at::native::ReduceOp<c10::BFloat16>)",
	48, 2048, 32, 128
};
static const struct kg_kernel k_add = { ELEMENTWISE("CUDAFunctor_add"), 20, 0, 16384, 128 };
static const struct kg_kernel k_embed = {
	"void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, "
	"unsigned int, 2, 2, -2, true>(at::cuda::detail::TensorInfo<c10::BFloat16, unsigned int>)",
	32, 0, 864, 128
};
static const struct kg_kernel k_embed_bwd = {
	"void at::native::(anonymous namespace)::embedding_backward_feature_kernel<c10::BFloat16, "
	"float, long>(long const*, c10::BFloat16 const*, c10::BFloat16*, int, long, int)",
	48, 6144, 128, 1024
};
static const struct kg_kernel k_xent = {
	"void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, "
	"float, "
	"at::native::(anonymous namespace)::LogSoftMaxForwardEpilogue>(float*, c10::BFloat16*, "
	"int)",
	30, 2064, 4096, 1024
};
static const struct kg_kernel k_xent_bwd = {
	"void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, float, float, "
	"c10::BFloat16, "
	"at::native::(anonymous namespace)::LogSoftMaxBackwardEpilogue>(c10::BFloat16*, float*, "
	"int)",
	32, 128, 4096, 1024
};
static const struct kg_kernel k_norm2 = {
	"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
	"namespace)::TensorListMetadata<1>, at::native::(anonymous namespace)::LpNormFunctor<"
	"c10::BFloat16, (at::native::NormType)1, 1, 1, 0>, float*, int>(int)",
	36, 64, 320, 512
};
static const struct kg_kernel k_adam = {
	"void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous "
	"namespace)::FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::"
	"FusedAdamMathFunctor<float, 4, (at::native::ADAM_MODE)1, false>, float const*, double, "
	"double, double, double, bool>(int)",
	64, 0, 640, 512
};

enum { TP_NONE, TP_AFTER_FORWARD, TP_AFTER_FIRST_BACKWARD };

/* Times are shares of the forward time of a layer. */
struct slot {
	const char *op, *inner, *args;
	const char *node; /* NODE and the name of the autograd function */
	const struct kg_kernel *fwd;
	double fwd_share;
	int tp;
	struct {
		const char *op;
		const struct kg_kernel *k;
		double share;
	} bwd[3];
};

#define ARGS_X "\"Input type\": [\"c10::BFloat16\"], \"Input Dims\": [[4, 1024, 4096]]"
#define ARGS_XY                                                                                    \
	"\"Concrete Inputs\": [\"\", \"\", \"1\"], \"Input type\": [\"c10::BFloat16\", "           \
	"\"c10::BFloat16\", \"Scalar\"], \"Input Dims\": [[4, 1024, 4096], [4, 1024, 4096], []]"
#define ARGS_NORM                                                                                  \
	"\"Concrete Inputs\": [\"\", \"[4096]\", \"\", \"\", \"1.0000000000000001e-05\"], "        \
	"\"Input type\": [\"c10::BFloat16\", \"ScalarList\", \"c10::BFloat16\", "                  \
	"\"c10::BFloat16\", \"Scalar\"], \"Input Dims\": [[4, 1024, 4096], [], [4096], [4096], "   \
	"[]]"
#define ARGS_LINEAR(in, out)                                                                       \
	"\"Concrete Inputs\": [\"\", \"\", \"\"], \"Input type\": [\"c10::BFloat16\", "            \
	"\"c10::BFloat16\", \"c10::BFloat16\"], \"Input Dims\": [[4096, " in "], [" out ", " in    \
	"], [" out "]]"
#define GRAD_BIAS                                                                                  \
	{                                                                                          \
		"aten::sum", &k_bias, 0.01                                                         \
	}

static const struct slot slots[NSLOT] = {
	{ "aten::layer_norm",
	  "aten::native_layer_norm",
	  ARGS_NORM,
	  NODE "NativeLayerNormBackward0",
	  &k_norm,
	  0.03,
	  TP_NONE,
	  { { "aten::native_layer_norm_backward", &k_norm_bwd, 0.05 } } },
	{ "aten::linear",
	  "aten::addmm",
	  ARGS_LINEAR("4096", "12288"),
	  NODE "AddmmBackward0",
	  &k_gemm_tn,
	  0.17,
	  TP_AFTER_FIRST_BACKWARD,
	  { { "aten::mm", &k_gemm_nn, 0.17 }, { "aten::mm", &k_gemm_nt, 0.17 }, GRAD_BIAS } },
	{ "aten::scaled_dot_product_attention",
	  "aten::_flash_attention_forward",
	  "\"Input type\": [\"c10::BFloat16\", \"c10::BFloat16\", \"c10::BFloat16\"], "
	  "\"Input Dims\": [[4, 32, 1024, 128], [4, 32, 1024, 128], [4, 32, 1024, 128]]",
	  NODE "ScaledDotProductFlashAttentionBackward0",
	  &k_attn,
	  0.16,
	  TP_NONE,
	  { { "aten::_flash_attention_backward", &k_attn_bwd, 0.36 } } },
	{ "aten::linear",
	  "aten::addmm",
	  ARGS_LINEAR("4096", "4096"),
	  NODE "AddmmBackward0",
	  &k_gemm_tn,
	  0.07,
	  TP_AFTER_FORWARD,
	  { { "aten::mm", &k_gemm_nn, 0.07 }, { "aten::mm", &k_gemm_nt, 0.07 }, GRAD_BIAS } },
	{ "aten::dropout",
	  "aten::native_dropout",
	  ARGS_XY,
	  NODE "NativeDropoutBackward0",
	  &k_drop_add,
	  0.03,
	  TP_NONE,
	  { { "aten::native_dropout_backward", &k_drop_bwd, 0.03 } } },
	{ "aten::layer_norm",
	  "aten::native_layer_norm",
	  ARGS_NORM,
	  NODE "NativeLayerNormBackward0",
	  &k_norm,
	  0.03,
	  TP_NONE,
	  { { "aten::native_layer_norm_backward", &k_norm_bwd, 0.05 } } },
	{ "aten::linear",
	  "aten::addmm",
	  ARGS_LINEAR("4096", "16384"),
	  NODE "AddmmBackward0",
	  &k_gemm_tn,
	  0.22,
	  TP_AFTER_FIRST_BACKWARD,
	  { { "aten::mm", &k_gemm_nn, 0.22 }, { "aten::mm", &k_gemm_nt, 0.22 }, GRAD_BIAS } },
	{ "aten::gelu",
	  NULL,
	  ARGS_X,
	  NODE "GeluBackward0",
	  &k_gelu,
	  0.04,
	  TP_NONE,
	  { { "aten::gelu_backward", &k_gelu_bwd, 0.06 } } },
	{ "aten::linear",
	  "aten::addmm",
	  ARGS_LINEAR("16384", "4096"),
	  NODE "AddmmBackward0",
	  &k_gemm_tn,
	  0.22,
	  TP_AFTER_FORWARD,
	  { { "aten::mm", &k_gemm_nn, 0.22 }, { "aten::mm", &k_gemm_nt, 0.22 }, GRAD_BIAS } },
	{ "aten::dropout",
	  "aten::native_dropout",
	  ARGS_XY,
	  NODE "NativeDropoutBackward0",
	  &k_drop_add,
	  0.03,
	  TP_NONE,
	  { { "aten::native_dropout_backward", &k_drop_bwd, 0.03 } } },
};

static const struct slot embedding = {
	"aten::embedding",
	"aten::index_select",
	"\"Input type\": [\"c10::BFloat16\", \"long int\", \"Scalar\"], "
	"\"Input Dims\": [[8192, 4096], [4, 1024], []]",
	NODE "EmbeddingBackward0",
	&k_embed,
	0.05,
	TP_NONE,
	{ { "aten::embedding_dense_backward", &k_embed_bwd, 0.1 } }
};
static const struct slot head[2] = {
	{ "aten::linear",
	  "aten::addmm",
	  ARGS_LINEAR("4096", "8192"),
	  NODE "AddmmBackward0",
	  &k_gemm_tn,
	  0.3,
	  TP_NONE,
	  { { "aten::mm", &k_gemm_nn, 0.3 }, { "aten::mm", &k_gemm_nt, 0.3 } } },
	{ "aten::cross_entropy_loss",
	  "aten::log_softmax",
	  "\"Input type\": [\"c10::BFloat16\", \"long int\"], \"Input Dims\": [[4096, 8192], "
	  "[4096]]",
	  NODE "LogSoftmaxBackward0",
	  &k_xent,
	  0.08,
	  TP_NONE,
	  { { "aten::_log_softmax_backward_data", &k_xent_bwd, 0.08 } } },
};

static double data_bytes(const struct kg_cfg *cfg, double bytes)
{
	/* --host-bound is a small model: little to compute, little to send. */
	return cfg->host_bound ? bytes / 10 : bytes;
}

double kg_activation_bytes(const struct kg_build *b)
{
	return data_bytes(b->e.cfg, KG_ACTIVATION_BYTES * b->work);
}

double kg_layer_bytes(const struct kg_build *b)
{
	return data_bytes(b->e.cfg, KG_LAYER_GRAD_BYTES) / b->e.cfg->tp;
}

static uint32_t *seq_of(struct kg_build *b, int mb, int layer, int slot)
{
	return &b->seq[((size_t)mb * (size_t)(b->n_layers + 2) + (size_t)layer) * NSLOT +
		       (size_t)slot];
}

static void tp_allreduce(struct kg_build *b, double bytes, const char *op)
{
	struct kg_emit *e = &b->e;

	if (e->r->group[KG_S_TP] < 0)
		return;
	kg_graph_end(e, false);
	kg_begin(e, KG_CAT_OP, op, ARGS_X);
	kg_join(e, KG_S_TP, kg_allreduce(e, KG_S_TP, (uint64_t)bytes));
	kg_end(e);
}

static void forward_op(struct kg_build *b, const struct slot *s, uint32_t *seq)
{
	struct kg_emit *e = &b->e;
	double host = e->cfg->host_us;
	uint32_t h;

	kg_host(e, 0.35 * host);
	*seq = ++e->seq;
	h = kg_begin(e, KG_CAT_OP, s->op, s->args);
	kg_host(e, 0.2 * host);
	if (s->inner)
		h = kg_begin(e, KG_CAT_OP, s->inner, s->args);
	if (h != KG_NONE)
		e->r->th[0].op[h].seq = *seq;
	kg_host(e, 0.15 * host);
	kg_kernel(e, s->fwd, s->fwd_share * e->cfg->compute_us * b->work * b->slot_work);
	kg_host(e, 0.1 * host);
	if (s->inner)
		kg_end(e);
	kg_host(e, 0.2 * host);
	kg_end(e);
}

static void boundary(struct kg_build *b, int pass, int layer, int at)
{
	if (b->boundary)
		b->boundary(b, pass, layer, at);
}

static void forward_layer(struct kg_build *b, int mb, int layer)
{
	struct kg_emit *e = &b->e;

	kg_scope(e, KG_PH_FWD, mb, b->first_layer + layer);
	if (e->cfg->python_stacks)
		kg_frame(e, kg_strf("nn.Module: TransformerLayer_%d", b->first_layer + layer));
	kg_graph_begin(e, false);
	for (int i = 0; i < NSLOT; i++) {
		boundary(b, KG_FORWARD, layer, i);
		forward_op(b, &slots[i], seq_of(b, mb, layer, i));
		if (slots[i].tp == TP_AFTER_FORWARD) {
			tp_allreduce(b, kg_activation_bytes(b), "_ReduceFromModelParallelRegion");
			if (!e->in_graph)
				kg_graph_begin(e, false);
		}
	}
	boundary(b, KG_FORWARD, layer, NSLOT);
	kg_graph_end(e, false);
	kg_frame_end(e);
}

static void begin_node(struct kg_emit *e, const char *name, uint32_t seq)
{
	uint32_t h = kg_begin(e, KG_CAT_OP, name, NULL);

	if (h != KG_NONE)
		e->r->th[1].op[h].seq = seq;
	kg_host(e, 0.15 * e->cfg->host_us);
	h = kg_begin(e, KG_CAT_OP, name + sizeof(NODE) - 1, NULL);
	if (h != KG_NONE)
		e->r->th[1].op[h].seq = seq;
	kg_host(e, 0.1 * e->cfg->host_us);
}

static void end_node(struct kg_emit *e)
{
	kg_end(e);
	kg_host(e, 0.1 * e->cfg->host_us);
	kg_end(e);
}

/* The first operator of a node makes the gradient of its input, others those of its weights. */
static void backward_op(struct kg_build *b, const struct slot *s, uint32_t seq)
{
	struct kg_emit *e = &b->e;
	double host = e->cfg->host_us;
	int from = b->pass == KG_WEIGHTS ? 1 : 0, to = b->pass == KG_INPUTS ? 1 : 3;

	if (!s->bwd[from].op)
		return;
	begin_node(e, s->node, seq);
	for (int i = from; i < to && s->bwd[i].op; i++) {
		kg_begin(e, KG_CAT_OP, s->bwd[i].op, s->args);
		kg_host(e, 0.25 * host);
		kg_kernel(e, s->bwd[i].k,
			  s->bwd[i].share * e->cfg->compute_us * b->work * b->slot_work);
		kg_host(e, 0.15 * host);
		kg_end(e);
		if (i == 0 && s->tp == TP_AFTER_FIRST_BACKWARD)
			tp_allreduce(b, kg_activation_bytes(b),
				     "_CopyToModelParallelRegionBackward");
	}
	end_node(e);
	if (!s->bwd[1].op || b->pass == KG_INPUTS)
		return;
	begin_node(e, NODE "torch::autograd::AccumulateGrad", 0);
	kg_begin(e, KG_CAT_OP, "aten::add_", s->args);
	kg_host(e, 0.2 * host);
	kg_kernel(e, &k_add, 0.02 * e->cfg->compute_us);
	kg_host(e, 0.1 * host);
	kg_end(e);
	end_node(e);
}

/* Gradients of a bucket are complete: start their reduction over the data-parallel group. */
static void bucket(struct kg_build *b, double bytes)
{
	struct kg_emit *e = &b->e;
	uint32_t end;

	if (e->r->group[KG_S_DP] < 0 || !b->last_microbatch || b->pass == KG_INPUTS || b->shards)
		return;
	end = kg_allreduce(e, KG_S_DP, (uint64_t)data_bytes(e->cfg, bytes / e->cfg->tp));
	if (e->cfg->sync_comm)
		kg_join(e, KG_S_DP, end);
	else
		b->pending[b->n_pending++] = end;
}

/* Of the draws: the pass for weights alone has others. */
static int scope_of(const struct kg_build *b)
{
	return b->pass == KG_WEIGHTS ? KG_PH_WEIGHTS : KG_PH_BWD;
}

static void backward_layer(struct kg_build *b, int mb, int layer)
{
	struct kg_emit *e = &b->e;

	kg_scope(e, scope_of(b), mb, b->first_layer + layer);
	boundary(b, b->pass, layer, NSLOT);
	for (int i = NSLOT - 1; i >= 0; i--) {
		backward_op(b, &slots[i], *seq_of(b, mb, layer, i));
		boundary(b, b->pass, layer, i);
		if (i == SLOT_ATTENTION_END)
			bucket(b, KG_LAYER_GRAD_BYTES * 2.0 / 3.0);
	}
	bucket(b, KG_LAYER_GRAD_BYTES / 3.0);
}

static void pipe(struct kg_build *b, int stream)
{
	struct kg_emit *e = &b->e;
	uint32_t end;

	if (e->r->group[stream] < 0)
		return;
	end = kg_send_recv(e, stream, (uint64_t)kg_activation_bytes(b));
	if (stream == KG_S_FWD_IN || stream == KG_S_BWD_IN) {
		kg_join(e, stream, end);
	} else {
		b->send[b->n_sends].stream = stream;
		b->send[b->n_sends++].event = end;
	}
}

/* The layers of a chunk are [first_of(chunk), first_of(chunk + 1)) of the stage. */
static int first_of(const struct kg_build *b, int chunk)
{
	return b->n_layers * chunk / b->e.cfg->chunks;
}

static bool is_first(const struct kg_build *b, int chunk)
{
	return b->e.r->pp == 0 && chunk == 0;
}

static bool is_last(const struct kg_build *b, int chunk)
{
	return b->e.r->pp == b->e.cfg->pp - 1 && chunk == b->e.cfg->chunks - 1;
}

void kg_forward(struct kg_build *b, int mb, int chunk)
{
	struct kg_emit *e = &b->e;

	kg_scope(e, KG_PH_P2P, mb, 4 * chunk);
	if (!is_first(b, chunk))
		pipe(b, KG_S_FWD_IN);
	kg_frame(e, "train.py(112): forward_step");
	kg_scope(e, KG_PH_FWD, mb, e->cfg->layers);
	if (is_first(b, chunk))
		forward_op(b, &embedding, seq_of(b, mb, b->n_layers, 0));
	for (int l = first_of(b, chunk); l < first_of(b, chunk + 1); l++)
		forward_layer(b, mb, l);
	kg_scope(e, KG_PH_FWD, mb, e->cfg->layers + 1);
	for (int i = 0; i < 2 && is_last(b, chunk); i++)
		forward_op(b, &head[i], seq_of(b, mb, b->n_layers + 1, i));
	kg_frame_end(e);
	kg_scope(e, KG_PH_P2P, mb, 4 * chunk + 1);
	if (!is_last(b, chunk))
		pipe(b, KG_S_FWD_OUT);
}

static void join_buckets(struct kg_build *b)
{
	kg_scope(&b->e, KG_PH_JOIN, 0, 0);
	for (int i = 0; i < b->n_pending; i++)
		kg_join(&b->e, KG_S_DP, b->pending[i]);
	b->n_pending = 0;
}

void kg_backward(struct kg_build *b, int mb, int chunk, int pass)
{
	struct kg_emit *e = &b->e;

	b->pass = pass;
	b->last_microbatch = mb == e->cfg->microbatches - 1;
	kg_scope(e, KG_PH_P2P, mb, 4 * chunk + 2);
	if (!is_last(b, chunk) && pass != KG_WEIGHTS)
		pipe(b, KG_S_BWD_IN);
	kg_frame(e, "torch/_tensor.py(522): backward");
	kg_scope(e, scope_of(b), mb, e->cfg->layers + 1);
	kg_hand_over(e, 1);
	for (int i = 1; i >= 0 && is_last(b, chunk); i--)
		backward_op(b, &head[i], *seq_of(b, mb, b->n_layers + 1, i));
	if (is_last(b, chunk))
		bucket(b, EMBEDDING_GRAD_BYTES);
	for (int l = first_of(b, chunk + 1) - 1; l >= first_of(b, chunk); l--)
		backward_layer(b, mb, l);
	kg_scope(e, scope_of(b), mb, e->cfg->layers);
	if (is_first(b, chunk)) {
		backward_op(b, &embedding, *seq_of(b, mb, b->n_layers, 0));
		bucket(b, EMBEDDING_GRAD_BYTES);
	}
	if (b->last_microbatch && pass != KG_INPUTS && chunk == 0)
		join_buckets(b);
	kg_hand_over(e, 0);
	kg_frame_end(e);
	kg_scope(e, KG_PH_P2P, mb, 4 * chunk + 3);
	if (!is_first(b, chunk) && pass != KG_WEIGHTS)
		pipe(b, KG_S_BWD_OUT);
}

void kg_finish_sends(struct kg_build *b)
{
	for (int i = 0; i < b->n_sends; i++)
		kg_join(&b->e, b->send[i].stream, b->send[i].event);
	b->n_sends = 0;
}

static void load_data(struct kg_build *b)
{
	struct kg_emit *e = &b->e;
	double host = e->cfg->host_us;

	kg_scope(e, KG_PH_START, 0, 0);
	kg_frame(e, "torch/utils/data/dataloader.py(630): __next__");
	kg_begin(e, KG_CAT_ANNOTATION,
		 "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", NULL);
	/* Loading varies more than anything else; 60 to 140 % unless there is no noise. */
	kg_host(e, e->cfg->data_us * (e->cfg->jitter > 0 ? 0.6 + 0.8 * kg_draw_uniform(e) : 1));
	kg_end(e);
	kg_frame_end(e);
	kg_begin(e, KG_CAT_OP, "aten::to", NULL);
	kg_begin(e, KG_CAT_OP, "aten::_to_copy", NULL);
	kg_host(e, 0.4 * host);
	kg_begin(e, KG_CAT_OP, "aten::copy_", NULL);
	kg_host(e, 0.3 * host);
	kg_copy_in(e, 8ULL * KG_TOKENS, 4.2);
	kg_end(e);
	kg_end(e);
	kg_end(e);
	kg_begin(e, KG_CAT_OP, "aten::zero_", NULL);
	kg_host(e, 0.3 * host);
	kg_memset(e, 1u << 28, 160);
	kg_end(e);
}

static void optimizer(struct kg_build *b)
{
	struct kg_emit *e = &b->e;
	double host = e->cfg->host_us, layer_us = e->cfg->compute_us;
	int last = b->n_layers;

	kg_scope(e, KG_PH_OPT, 0, b->first_layer);
	kg_frame(e, "torch/nn/utils/clip_grad.py(43): clip_grad_norm_");
	for (int l = 0; l < last; l++) {
		kg_begin(e, KG_CAT_OP, "aten::_foreach_norm", NULL);
		kg_host(e, host);
		kg_kernel(e, &k_norm2, 0.03 * layer_us);
		kg_end(e);
	}
	/* The norm is a sum over the ranks that share the model, so stages finish a step together.
	 */
	if (e->r->group[KG_S_TP] >= 0)
		kg_join(e, KG_S_TP, kg_allreduce(e, KG_S_TP, 2));
	if (e->r->group[KG_S_PP] >= 0)
		kg_join(e, KG_S_PP, kg_allreduce(e, KG_S_PP, 2));
	kg_frame_end(e);
	kg_begin(e, KG_CAT_ANNOTATION, "Optimizer.step#AdamW.step", NULL);
	for (int l = 0; l < last; l++) {
		kg_host(e, 0.5 * host);
		kg_begin(e, KG_CAT_OP, "aten::_fused_adamw_", NULL);
		kg_host(e, host);
		kg_kernel(e, &k_adam, 0.1 * layer_us);
		kg_host(e, 0.3 * host);
		kg_end(e);
	}
	kg_end(e);
	/* Ranks report the mean loss; a message of latency alone. */
	if (e->r->group[KG_S_DP] >= 0)
		kg_join(e, KG_S_DP, kg_allreduce(e, KG_S_DP, 2));
}

static void finish_step(struct kg_build *b)
{
	struct kg_emit *e = &b->e;

	kg_scope(e, KG_PH_OPT, 0, e->cfg->layers + 1);
	if (!e->cfg->no_item) {
		kg_begin(e, KG_CAT_OP, "aten::item", NULL);
		kg_begin(e, KG_CAT_OP, "aten::_local_scalar_dense", NULL);
		kg_host(e, 0.2 * e->cfg->host_us);
		kg_copy_out_sync(e);
		kg_end(e);
		kg_end(e);
	}
	if (e->cfg->device_sync)
		kg_device_sync(e);
	kg_host(e, e->cfg->host_us);
}

/* With --lengths: 60 to 140 % in a step, and every rank has its own samples. */
static double sequence_length(const struct kg_cfg *c, const struct kg_rank *r, int step)
{
	uint64_t key = kg_hash(c->seed ^ 0x1e46, (uint64_t)step);

	if (!c->lengths)
		return 1;
	return (0.6 + 0.8 * kg_uniform(key)) *
	       (0.92 + 0.16 * kg_uniform(kg_hash(key, (uint64_t)r->dp)));
}

static void build_rank(struct kg_job *job, struct kg_rank *r)
{
	const struct kg_cfg *c = &job->cfg;
	struct kg_build b = { .e = { .job = job, .cfg = c, .r = r } };
	size_t per_mb;

	b.first_layer = c->layers * r->pp / c->pp;
	b.n_layers = c->layers * (r->pp + 1) / c->pp - b.first_layer;
	b.boundary = kg_kind_boundary(c);
	b.shards = kg_uses(c, KG_S_SCATTER);
	b.slot_work = 1;
	per_mb = (size_t)(b.n_layers + 2) * NSLOT;
	b.seq = kg_alloc((size_t)c->microbatches * per_mb, sizeof(*b.seq));
	b.pending = kg_alloc(2 * (size_t)b.n_layers + 2, sizeof(*b.pending));
	b.send = kg_alloc(2 * (size_t)(c->microbatches * c->chunks), sizeof(*b.send));
	for (int s = 0; s < c->steps; s++) {
		b.e.step = s;
		b.work = c->batch * sequence_length(c, r, s);
		kg_begin(&b.e, KG_CAT_ANNOTATION, kg_strf("ProfilerStep#%d", s + 1), NULL);
		load_data(&b);
		kg_run_schedule(&b);
		kg_finish_sends(&b);
		optimizer(&b);
		finish_step(&b);
		kg_end(&b.e);
		if (c->step_gap_ms > 0)
			kg_idle(&b.e, c->step_gap_ms * 1000);
	}
	free(b.seq);
	free(b.pending);
	free(b.send);
}

void kg_build(struct kg_job *job)
{
	for (int i = 0; i < job->cfg.ranks; i++)
		build_rank(job, &job->rank[i]);
}
