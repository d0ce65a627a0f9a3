/* What nodes are: by the words of their names, and by the structure of a graph. */
#include <stdlib.h>
#include <string.h>

#include "derive/describe.h"
#include "derive/names.h"
#include "graph/calls.h"
#include "tap.h"

static struct pl_err err;

static void must(int rc)
{
	if (rc >= 0)
		return;
	printf("Bail out! %s\n", err.msg);
	exit(1);
}

static void operators(void)
{
	static const struct {
		const char *name;
		uint8_t op, phase;
	} cases[] = {
		{ "aten::conv2d", PL_OP_CONVOLUTION, PL_PH_UNKNOWN },
		{ "aten::convert_element_type", PL_OP_UNKNOWN, PL_PH_UNKNOWN },
		{ "cudnn::conv_relu_fwd", PL_OP_CONVOLUTION, PL_PH_FORWARD },
		{ "aten::linear", PL_OP_MATMUL, PL_PH_UNKNOWN },
		{ "aten::bilinear", PL_OP_UNKNOWN, PL_PH_UNKNOWN },
		{ "upsample_bilinear2d_backward_out_frame", PL_OP_UNKNOWN, PL_PH_BACKWARD },
		{ "ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn", PL_OP_MATMUL,
		  PL_PH_UNKNOWN },
		{ "sm80_xmma_wgrad_implicit_gemm_f16f16_f16f32_f32_nhwckrsc", PL_OP_CONVOLUTION,
		  PL_PH_WEIGHT_GRAD },
		{ "void at::native::vectorized_elementwise_kernel<4, "
		  "at::native::GeluCUDAKernelImpl>",
		  PL_OP_ELEMENTWISE, PL_PH_UNKNOWN },
		{ "void (anonymous namespace)::softmax_warp_forward<float, 10>", PL_OP_SOFTMAX,
		  PL_PH_FORWARD },
		{ "cunn_SoftMaxForward", PL_OP_SOFTMAX, PL_PH_FORWARD },
		{ "void at::native::vectorized_layer_norm_kernel<float>", PL_OP_NORMALIZATION,
		  PL_PH_UNKNOWN },
		{ "flash_fwd_kernel", PL_OP_ATTENTION, PL_PH_FORWARD },
		{ "autograd::engine::evaluate_function: AddmmBackward0", PL_OP_MATMUL,
		  PL_PH_BACKWARD },
		{ "torch::autograd::AccumulateGrad", PL_OP_UNKNOWN, PL_PH_WEIGHT_GRAD },
		{ "Optimizer.step#SGD.step", PL_OP_UPDATE, PL_PH_OPTIMIZER },
		{ "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", PL_OP_UNKNOWN,
		  PL_PH_INPUT },
		{ "forward conv1", PL_OP_CONVOLUTION, PL_PH_FORWARD },
		{ "backward h.0.attn", PL_OP_UNKNOWN, PL_PH_BACKWARD },
		{ "dense.backward_end", PL_OP_MATMUL, PL_PH_BACKWARD },
		{ "aten::embedding_dense_backward", PL_OP_EMBEDDING, PL_PH_BACKWARD },
		{ "aten::to_dense", PL_OP_COPY, PL_PH_UNKNOWN },
		{ "aten::_local_scalar_dense", PL_OP_UNKNOWN, PL_PH_UNKNOWN },
		{ "cudaLaunchKernel", PL_OP_UNKNOWN, PL_PH_UNKNOWN },
		{ "PjRtCpuClient::Compile", PL_OP_UNKNOWN, PL_PH_COMPILATION },
		{ "trace_to_jaxpr_dynamic", PL_OP_UNKNOWN, PL_PH_COMPILATION },
		{ "addendum", PL_OP_UNKNOWN, PL_PH_UNKNOWN },
		{ "", PL_OP_UNKNOWN, PL_PH_UNKNOWN },
	};
	struct pl_name_says says;

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		pl_derive_name_read(cases[i].name, strlen(cases[i].name), &says);
		ok(says.op == cases[i].op && says.phase == cases[i].phase, "%s: %s %s",
		   cases[i].name, pl_graph_operator_name(says.op), pl_graph_phase_name(says.phase));
	}
}

static void communication(void)
{
	static const char nccl[] = "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)";
	struct pl_name_says says;

	pl_derive_name_read(nccl, strlen(nccl), &says);
	is_i64(says.coll, PL_COLL_ALLREDUCE, "the collective of a kernel of NCCL");
	ok(says.type && !strcmp(says.type, "bfloat16"), "its type");
	ok(says.algorithm && !strcmp(says.algorithm, "ring"), "its algorithm");
	pl_derive_name_read("backward h.0.attn", 17, &says);
	ok(says.module && !strcmp(says.module, "h.0.attn"), "the module of a layer's pass");
}

/* ---- a graph: two ranks, one all-reduce, a message, one broadcast that a member left early -----
 */

static pl_id str(struct pl_graph *g, const char *s)
{
	pl_id id;

	must(pl_intern_add(&g->str, s, strlen(s), &id, &err));
	return id;
}

enum { RANKS = 2, MOST = 32 };

static void make(struct pl_graph *g)
{
	struct pl_shape *s;

	pl_graph_init(g);
	must(pl_alloc(&g->rank, RANKS, sizeof(*g->rank), &err));
	must(pl_grow(&g->res, &g->cap_res, RANKS, sizeof(*g->res), &err));
	for (int i = 0; i < RANKS; i++) {
		g->rank[i] = i;
		g->res[g->n_res++] =
			(struct pl_resource){ .rank = i, .capacity = 1, .name = str(g, "stream") };
	}
	g->n_ranks = RANKS;
	must(pl_alloc(&g->shape, 1, sizeof(*g->shape), &err));
	g->n_shapes = g->cap_shapes = 1;
	s = &g->shape[0];
	must(pl_graph_shape_room(s, PL_HAS_bytes, MOST, MOST, &err));
	must(pl_alloc(&g->step, 1, sizeof(*g->step), &err));
	g->n_steps = g->cap_steps = 1;
	must(pl_alloc(&g->step[0].start, MOST, sizeof(pl_ns), &err));
	must(pl_alloc(&g->step[0].dur, MOST, sizeof(pl_ns), &err));
}

static uint32_t put(struct pl_graph *g, unsigned type, unsigned role, uint32_t res,
		    const char *name, pl_ns start)
{
	struct pl_shape *s = &g->shape[0];
	uint32_t i = s->n_nodes++;

	s->type[i] = (uint8_t)type;
	s->role[i] = (uint8_t)role;
	s->kind[i] = PL_K_KERNEL;
	s->flags[i] = 0;
	s->res[i] = res;
	s->name[i] = str(g, name);
	s->group[i] = PL_NONE;
	s->bytes[i] = role == PL_RO_TRANSFER ? 100 + (int64_t)res : -1;
	s->off[i + 1] = s->n_edges;
	g->step[0].start[i] = start;
	return i;
}

static void after(struct pl_graph *g, uint32_t src, unsigned type)
{
	struct pl_shape *s = &g->shape[0];

	s->src[s->n_edges] = src;
	s->etype[s->n_edges++] = (uint8_t)type;
	s->off[s->n_nodes] = s->n_edges;
}

static void graph(void)
{
	static const char reduce[] = "nccl:all_reduce", cast[] = "ncclBroadcast";
	uint32_t early, back, late, a[RANKS], t[RANKS], b[RANKS], u[RANKS], meet, cast_meet;
	struct pl_graph g;
	const struct pl_shape *s;

	make(&g);
	early = put(&g, PL_N_OP, PL_RO_COMPUTE, 0, "aten::mm", 0);
	back = put(&g, PL_N_OP, PL_RO_COMPUTE, 0, "MmBackward0", 10);
	after(&g, early, PL_E_SEQ);
	late = put(&g, PL_N_OP, PL_RO_COMPUTE, 0, "aten::add_", 20);
	after(&g, back, PL_E_SEQ);
	for (uint32_t r = 0; r < RANKS; r++)
		a[r] = put(&g, PL_N_OP, PL_RO_ARRIVE, r, reduce, 30);
	meet = put(&g, PL_N_RENDEZVOUS, PL_RO_NONE, PL_NONE, reduce, 30);
	after(&g, a[0], PL_E_COMM);
	after(&g, a[1], PL_E_COMM);
	for (uint32_t r = 0; r < RANKS; r++) {
		t[r] = put(&g, PL_N_OP, PL_RO_TRANSFER, r, reduce, 30);
		after(&g, a[r], PL_E_SEQ);
		after(&g, meet, PL_E_COMM);
	}
	/* rank 1 has the data; rank 0 left as soon as it had got them */
	for (uint32_t r = 0; r < RANKS; r++) {
		b[r] = put(&g, PL_N_OP, PL_RO_ARRIVE, r, cast, 50);
		after(&g, t[r], PL_E_SEQ);
	}
	u[0] = put(&g, PL_N_OP, PL_RO_TRANSFER, 0, cast, 50);
	after(&g, b[0], PL_E_SEQ);
	after(&g, b[1], PL_E_COMM);
	cast_meet = put(&g, PL_N_RENDEZVOUS, PL_RO_NONE, PL_NONE, cast, 50);
	after(&g, b[0], PL_E_COMM);
	after(&g, b[1], PL_E_COMM);
	u[1] = put(&g, PL_N_OP, PL_RO_TRANSFER, 1, cast, 50);
	after(&g, b[1], PL_E_SEQ);
	after(&g, cast_meet, PL_E_COMM);
	must(pl_derive_describe(&g, NULL, &err));
	s = &g.shape[0];
	ok(pl_graph_valid(&g, &err), "a described graph is valid %s", err.msg);
	is_i64(s->n_comms, 2, "two communications");
	ok(s->comm[a[0]] == s->comm[meet] && s->comm[a[1]] == s->comm[meet] &&
		   s->comm[t[0]] == s->comm[meet] && s->comm[t[1]] == s->comm[meet],
	   "all nodes of one point to it");
	ok(s->comm[u[0]] == s->comm[cast_meet] && s->comm[u[1]] == s->comm[cast_meet],
	   "a transfer that was early, too");
	is_i64(pl_node_comm(s, meet)->kind, PL_COLL_ALLREDUCE, "its kind");
	is_i64(pl_node_comm(s, meet)->bytes, 101, "its payload: the most of any member");
	is_i64(pl_node_comm(s, meet)->members, 2, "its members");
	is_i64(pl_node_comm(s, cast_meet)->root, 1, "the root of the broadcast");
	ok(!pl_node_comm(s, early), "an operation is part of none");
	is_i64(s->phase[early], PL_PH_FORWARD, "before the backward pass: forward");
	is_i64(s->phase[back], PL_PH_BACKWARD, "backward by its name");
	is_i64(s->phase[late], PL_PH_OTHER, "after it: other");
	is_i64(s->phase[meet], PL_PH_COMM, "a rendezvous is communication");
	is_i64(pl_node_operator(&g, s, early), PL_OP_MATMUL, "a product");
	pl_graph_fini(&g);
}

/* A file may have two equal rows: a new row still gets a number of its own. */
static void equal_rows(void)
{
	static const struct pl_gwork row = { .op = PL_OP_COPY,
					     .type = PL_NONE,
					     .dims = PL_NONE,
					     .flops = -1,
					     .bytes = 8,
					     .name = PL_NONE };
	struct pl_graph g;
	uint32_t gemm;

	make(&g);
	gemm = put(&g, PL_N_OP, PL_RO_COMPUTE, 0, "sgemm_128x128_nn", 0);
	must(pl_grow(&g.work, &g.cap_work, 2, sizeof(*g.work), &err));
	g.work[g.n_work++] = row;
	g.work[g.n_work++] = row;
	must(pl_derive_describe(&g, NULL, &err));
	ok(g.shape[0].work[gemm] == 2 && g.n_work == 3, "the new row is behind the two equal ones");
	is_i64(pl_node_operator(&g, &g.shape[0], gemm), PL_OP_MATMUL, "the operator of its node");
	pl_graph_fini(&g);
}

/* Names of copies and calls, of devices of two makers, as several profilers write them. */
static void calls(void)
{
	static const struct {
		const char *name;
		enum pl_copy_direction direction;
	} copies[] = {
		{ "Memcpy HtoD (Pageable -> Device)", PL_COPY_TO_DEVICE },
		{ "Memcpy DtoH (Device -> Pinned)", PL_COPY_TO_HOST },
		{ "Memcpy DtoD (Device -> Device)", PL_COPY_OTHER },
		{ "Memcpy PtoP", PL_COPY_OTHER },
		{ "MemcpyH2D", PL_COPY_TO_DEVICE },
		{ "MemcpyD2H", PL_COPY_TO_HOST },
		{ "MemcpyD2D", PL_COPY_OTHER },
		{ "MEMORY_COPY_HOST_TO_DEVICE", PL_COPY_TO_DEVICE },
		{ "MEMORY_COPY_DEVICE_TO_HOST", PL_COPY_TO_HOST },
		{ "MEMORY_COPY_DEVICE_TO_DEVICE", PL_COPY_OTHER },
		{ "CopyHostToDevice", PL_COPY_TO_DEVICE },
		{ "CopyDeviceToHost", PL_COPY_TO_HOST },
	};
	static const struct {
		const char *name;
		bool memory, code;
	} call[] = {
		{ "cudaMalloc", true, false },
		{ "cudaFree", true, false },
		{ "cudaHostAlloc", true, false },
		{ "cuMemAlloc_v2", true, false },
		{ "hipMalloc", true, false },
		{ "hipFree", true, false },
		{ "hipHostMalloc", true, false },
		{ "hipHostUnregister", true, false },
		{ "hsa_amd_memory_pool_allocate", true, false },
		{ "cuModuleLoadData", false, true },
		{ "hipModuleLoadData", false, true },
		{ "cudaLaunchKernel", false, false },
		{ "hipLaunchKernel", false, false },
		{ "hipStreamSynchronize", false, false },
		{ "aten::free_memory", false, false },
	};

	for (size_t i = 0; i < PL_LEN(copies); i++)
		is_i64(pl_graph_copy_direction(copies[i].name), copies[i].direction,
		       copies[i].name);
	for (size_t i = 0; i < PL_LEN(call); i++)
		ok(pl_graph_manages_memory(call[i].name) == call[i].memory &&
			   pl_graph_loads_code(call[i].name) == call[i].code,
		   "%s", call[i].name);
}

int main(void)
{
	calls();
	operators();
	communication();
	graph();
	equal_rows();
	return done_testing();
}
