/*
 * kgen_big.c - one large profiler file, fast: for timing readers, not for replay.
 *
 * The file is made of blocks of units.  A unit is one operator: two or three nested host ranges, a
 * launch, a kernel, two flow arrows.  As in real files the host ranges of a block come first, then
 * its runtime calls, then its kernels; every value is a hash of the unit's number, so the three
 * passes over a block agree without storing anything.  All long strings are made beforehand.
 * Measured: 1.9 GB/s to a file in memory on a 2-core virtual machine.
 */
#include "kgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNITS_PER_BLOCK 4096
#define UNITS_PER_STEP	2500
#define UNIT_NS		41000
#define N_OP		400
#define N_ARGS		3000
#define N_STACK		300
#define N_KERNEL	4000
#define N_OCCUPANCY	500
#define PID		418237
#define FIRST_NS	1712867402332545817LL

struct text {
	char *s;
	size_t n;
};

struct big {
	struct kg_out *o;
	bool distinct_shapes;
	uint64_t seed, ev_idx;
	struct text op[N_OP], args[N_ARGS], stack[N_STACK], kernel[N_KERNEL], occ[N_OCCUPANCY];
};

#define PUT(b, literal) kg_put((b)->o, literal, sizeof(literal) - 1)

static void put_text(struct big *b, const struct text *t)
{
	kg_put(b->o, t->s, t->n);
}

static uint64_t pick(const struct big *b, uint64_t unit, uint64_t what)
{
	return kg_hash(b->seed + what * 0x51ed27ULL, unit);
}

/* Few names make up most of the calls. */
static size_t skewed(uint64_t h, size_t n)
{
	uint64_t a = h % n, c = (h >> 32) % n;

	return (size_t)(a * c / n);
}

static bool is_nccl(size_t kernel)
{
	return kernel % 40 == 7;
}

static struct text keep(char *s)
{
	struct text t = { s, strlen(s) };

	return t;
}

static void make_ops(struct big *b)
{
	static const char *const base[] = { "add",	   "mul",
					    "addmm",	   "linear",
					    "matmul",	   "empty",
					    "view",	   "reshape",
					    "transpose",   "as_strided",
					    "copy_",	   "to",
					    "_to_copy",	   "native_layer_norm",
					    "gelu",	   "softmax",
					    "cat",	   "index_select",
					    "embedding",   "sum",
					    "mean",	   "div",
					    "sub",	   "expand",
					    "permute",	   "slice",
					    "convolution", "relu_",
					    "max_pool2d",  "zeros",
					    "fill_",	   "native_dropout",
					    "split",	   "bmm" };
	static const char *const form[] = { "aten::%s",
					    "aten::_%s",
					    "autograd::engine::evaluate_function: %sBackward0",
					    "%sBackward0",
					    "aten::%s_backward",
					    "torch_dispatch::%s",
					    "fbgemm::%s_forward_cuda" };
	size_t nb = sizeof(base) / sizeof(base[0]), nf = sizeof(form) / sizeof(form[0]);

	for (size_t i = 0; i < N_OP; i++) {
		char tmp[128];
		const char *f = form[i / nb % nf], *hole = strstr(f, "%s");

		snprintf(tmp, sizeof(tmp), "%.*s%s%s", (int)(hole - f), f, base[i % nb], hole + 2);
		b->op[i] = keep(i < nb * nf ? kg_strf("%s", tmp) : kg_strf("%s_v%zu", tmp, i));
	}
}

static void make_args(struct big *b)
{
	static const char *const types[] = { "c10::BFloat16", "float", "long int", "c10::Half" };

	for (size_t i = 0; i < N_ARGS; i++) {
		uint64_t h = pick(b, i, 1);
		char in[600] = "", dims[600] = "", conc[600] = "";
		int n = 2 + (int)(h % 5), a = 0, d = 0, c = 0;

		for (int k = 0; k < n; k++) {
			uint64_t g = kg_hash(h, (uint64_t)k);
			const char *sep = k ? ", " : "";
			bool tensor = k == 0 || g % 3;

			a += snprintf(in + a, sizeof(in) - (size_t)a, "%s\"%s\"", sep,
				      tensor ? types[g % 4] : "Scalar");
			c += snprintf(conc + c, sizeof(conc) - (size_t)c, "%s\"%.*s\"", sep,
				      tensor ? 0 : 6, g % 2 ? "False" : "1.0000");
			if (!tensor)
				d += snprintf(dims + d, sizeof(dims) - (size_t)d, "%s[]", sep);
			else
				d += snprintf(dims + d, sizeof(dims) - (size_t)d, "%s[%d, %d, %d]",
					      sep, 1 << (g >> 8) % 7, 128 << (g >> 12) % 5,
					      32 * (1 + (int)((g >> 16) % 300)));
		}
		b->args[i] = keep(kg_strf("\"Concrete Inputs\": [%s], \"Input type\": [%s], "
					  "\"Input Dims\": [%s], ",
					  conc, in, dims));
	}
}

static void make_stacks(struct big *b)
{
	for (size_t i = 0; i < N_STACK; i++) {
		char s[1600];
		int n = 0;
		int depth = 4 + (int)(pick(b, i, 2) % 9);

		for (int k = 0; k < depth; k++)
			n += snprintf(s + n, sizeof(s) - (size_t)n,
				      "%storch/nn/modules/module_%d.py(%d): forward_%d",
				      k ? ";" : "", (int)(pick(b, i, 3) % 90), 20 + 37 * k + (int)i,
				      (int)(pick(b, i + (size_t)k, 4) % 50));
		b->stack[i] = keep(kg_strf("\"Call stack\": \"%s\", ", s));
	}
}

static void make_kernels(struct big *b)
{
	static const char *const functor[] = { "CUDAFunctor_add",    "BinaryFunctor",
					       "MulFunctor",	     "direct_copy_kernel_cuda",
					       "GeluCUDAKernelImpl", "FillFunctor",
					       "sigmoid_backward",   "where_kernel_impl" };

	for (size_t i = 0; i < N_KERNEL; i++) {
		uint64_t h = pick(b, i, 5);
		const char *f = functor[h % 8];
		int a = 1 << (h >> 8) % 6, c = (int)((h >> 16) % 97);

		if (is_nccl(i))
			b->kernel[i] = keep(kg_strf("ncclDevKernel_AllReduce_Sum_f16_RING_LL_%d("
						    "ncclDevComm*, unsigned long, ncclWork*)",
						    c));
		else if (i % 3 == 0)
			b->kernel[i] =
				keep(kg_strf("ampere_fp16_s16816gemm_fp16_%dx%d_ldg8_f2f_"
					     "stages_64x%d_%s",
					     64 * a, 64 + c, 1 + c % 5, h >> 40 & 1 ? "tn" : "nn"));
		else
			b->kernel[i] = keep(kg_strf(
				"void at::native::vectorized_elementwise_kernel<%d, at::native::%s<"
				"float, %d>::operator()() const::{lambda()#%d}::operator()() "
				"const::"
				"{lambda(float)#1}, at::detail::Array<char*, %d>, "
				"TrivialOffsetCalculator<%d, unsigned int>, at::native::memory::"
				"LoadWithCast<1>, at::native::memory::StoreWithCast<1> >(int, "
				"at::native::%s<float, %d>::operator()() const::{lambda()#%d}, "
				"at::detail::Array<char*, %d>, TrivialOffsetCalculator<%d, "
				"unsigned int>)",
				a, f, c, (int)(i % 9), 1 + c % 4, (int)(i % 7), f, c, (int)(i % 9),
				1 + c % 4, (int)(i % 7)));
	}
	for (size_t i = 0; i < N_OCCUPANCY; i++) {
		int grid = 1 + (int)(pick(b, i, 6) % 60000), block = 32 << pick(b, i, 7) % 6;

		b->occ[i] = keep(kg_strf(
			"      \"registers per thread\": %d,\n      \"shared memory\": %d,\n"
			"      \"blocks per SM\": %.8g,\n      \"warps per SM\": %.8g,\n"
			"      \"grid\": [%d, 1, 1],\n      \"block\": [%d, 1, 1],\n"
			"      \"est. achieved occupancy %%\": %d\n    }\n  },\n",
			16 + (int)(i % 240), (int)(i % 5) * 16384, grid / 108.0,
			grid * (block / 32) / 108.0, grid, block, (int)(i % 101)));
	}
}

/* The last part of each step runs on the thread of the backward pass. */
static void put_thread(struct big *b, uint64_t unit)
{
	if (unit % UNITS_PER_STEP < UNITS_PER_STEP / 3)
		PUT(b, "\"pid\": 418237, \"tid\": 418237");
	else
		PUT(b, "\"pid\": 418237, \"tid\": 419397");
}

static void put_range(struct big *b, const struct text *name, uint64_t unit, int level,
		      int64_t start, int64_t dur)
{
	uint64_t h = pick(b, unit, 10 + (uint64_t)level);

	PUT(b, "  {\n    \"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"");
	put_text(b, name);
	PUT(b, "\", ");
	put_thread(b, unit);
	PUT(b, ",\n    \"ts\": ");
	kg_put_us(b->o, start);
	PUT(b, ", \"dur\": ");
	kg_put_us(b->o, dur);
	PUT(b, ",\n    \"args\": {\n      \"External id\": ");
	kg_put_u64(b->o, 5 * unit + (uint64_t)level + 1);
	PUT(b, ",\"Record function id\": 0, ");
	if (h % 8 == 0)
		put_text(b, &b->stack[(h >> 8) % N_STACK]);
	if (h % 4 == 1) {
		PUT(b, "\"Sequence number\": ");
		kg_put_u64(b->o, unit);
		PUT(b, ", \"Fwd thread id\": 0, ");
	}
	if (b->distinct_shapes) {
		PUT(b, "\"Input type\": [\"float\", \"float\"], \"Input Dims\": [[");
		kg_put_u64(b->o, b->ev_idx);
		PUT(b, ", 64], [64, ");
		kg_put_u64(b->o, h % 1000003);
		PUT(b, "]], ");
	} else {
		put_text(b, &b->args[skewed(h >> 4, N_ARGS)]);
	}
	PUT(b, "\"Ev Idx\": ");
	kg_put_u64(b->o, b->ev_idx++);
	PUT(b, "\n    }\n  },\n");
}

static int64_t unit_start(uint64_t unit)
{
	return FIRST_NS + (int64_t)unit * UNIT_NS;
}

static void put_step(struct big *b, uint64_t unit)
{
	PUT(b, "  {\n    \"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"ProfilerStep#");
	kg_put_u64(b->o, unit / UNITS_PER_STEP + 1);
	PUT(b, "\", \"pid\": 418237, \"tid\": 418237,\n    \"ts\": ");
	kg_put_us(b->o, unit_start(unit));
	PUT(b, ", \"dur\": ");
	kg_put_us(b->o, (int64_t)UNITS_PER_STEP * UNIT_NS);
	PUT(b, ",\n    \"args\": {\n      \"External id\": ");
	kg_put_u64(b->o, 5 * unit + 5);
	PUT(b, ",\"Ev Idx\": ");
	kg_put_u64(b->o, b->ev_idx++);
	PUT(b, "\n    }\n  },\n");
}

static void put_ranges(struct big *b, uint64_t unit)
{
	uint64_t h = pick(b, unit, 20);
	int64_t start = unit_start(unit) + 500 + (int64_t)(h % 4000);
	int64_t dur = 20000 + (int64_t)((h >> 12) % 12000);

	if (unit % UNITS_PER_STEP == 0)
		put_step(b, unit);
	put_range(b, &b->op[skewed(h >> 3, N_OP)], unit, 0, start, dur);
	put_range(b, &b->op[skewed(h >> 5, N_OP)], unit, 1, start + 2300, dur - 4100);
	if (h >> 57 & 1)
		put_range(b, &b->op[skewed(h >> 9, N_OP)], unit, 3, start + 20500, 800);
	if (h >> 60 & 7)
		put_range(b, &b->op[skewed(h >> 7, N_OP)], unit, 2, start + 3900, dur - 8000);
}

static int64_t launch_start(const struct big *b, uint64_t unit)
{
	return unit_start(unit) + 9000 + (int64_t)(pick(b, unit, 21) % 3000);
}

static void put_stream(struct big *b, bool nccl)
{
	if (nccl)
		PUT(b, "\"pid\": 0, \"tid\": 24");
	else
		PUT(b, "\"pid\": 0, \"tid\": 7");
}

static size_t kernel_of(const struct big *b, uint64_t unit)
{
	return skewed(pick(b, unit, 23) >> 6, N_KERNEL);
}

static void put_flow(struct big *b, char kind, uint64_t unit, uint64_t corr, int64_t t)
{
	if (kind == 's')
		PUT(b, "  {\n    \"ph\": \"s\", \"id\": ");
	else
		PUT(b, "  {\n    \"ph\": \"f\", \"id\": ");
	kg_put_u64(b->o, corr);
	PUT(b, ", ");
	if (kind == 'f')
		put_stream(b, is_nccl(kernel_of(b, unit)));
	else
		put_thread(b, unit);
	PUT(b, ", \"ts\": ");
	kg_put_us(b->o, t);
	if (kind == 's')
		PUT(b, ",\n    \"cat\": \"ac2g\", \"name\": \"ac2g\"\n  },\n");
	else
		PUT(b, ",\n    \"cat\": \"ac2g\", \"name\": \"ac2g\", \"bp\": \"e\"\n  },\n");
}

static void put_call(struct big *b, uint64_t unit)
{
	static const char *const call[] = { "cudaLaunchKernel", "cudaLaunchKernelExC" };
	int64_t start = launch_start(b, unit);
	uint64_t corr = 3 * unit + 1001;

	PUT(b, "  {\n    \"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"");
	kg_puts(b->o, call[pick(b, unit, 24) % 16 / 13]);
	PUT(b, "\", ");
	put_thread(b, unit);
	PUT(b, ",\n    \"ts\": ");
	kg_put_us(b->o, start);
	PUT(b, ", \"dur\": ");
	kg_put_us(b->o, 4000 + (int64_t)(pick(b, unit, 22) % 3000));
	PUT(b, ",\n    \"args\": {\n      \"External id\": ");
	kg_put_u64(b->o, 5 * unit + 2);
	PUT(b, ",      \"cbid\": 211, \"correlation\": ");
	kg_put_u64(b->o, corr);
	PUT(b, "\n    }\n  },\n");
	put_flow(b, 's', unit, corr, start);
}

static void put_kernel(struct big *b, uint64_t unit)
{
	uint64_t h = pick(b, unit, 23), corr = 3 * unit + 1001;
	size_t k = kernel_of(b, unit);
	int64_t start = launch_start(b, unit) + 5000 + (int64_t)(h % 2000);

	PUT(b, "  {\n    \"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"");
	put_text(b, &b->kernel[k]);
	PUT(b, "\", ");
	put_stream(b, is_nccl(k));
	PUT(b, ",\n    \"ts\": ");
	kg_put_us(b->o, start);
	PUT(b, ", \"dur\": ");
	kg_put_us(b->o, 1500 + (int64_t)((h >> 20) % 30000));
	PUT(b, ",\n    \"args\": {\n      \"External id\": ");
	kg_put_u64(b->o, 5 * unit + 2);
	PUT(b, ",\n      \"queued\": 0, \"device\": 0, \"context\": 1,\n"
	       "      \"stream\": ");
	kg_put_u64(b->o, is_nccl(k) ? 24 : 7);
	PUT(b, ", \"correlation\": ");
	kg_put_u64(b->o, corr);
	PUT(b, ",\n");
	put_text(b, &b->occ[(h >> 40) % N_OCCUPANCY]);
	put_flow(b, 'f', unit, corr, start);
}

static void free_texts(struct text *t, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(t[i].s);
}

static void finish(struct big *b)
{
	kg_putf(b->o, "  {\n    \"name\": \"process_name\", \"ph\": \"M\", \"ts\": ");
	kg_put_us(b->o, FIRST_NS);
	kg_putf(b->o,
		", \"pid\": %d, \"tid\": 0,\n    \"args\": {\n      \"name\": \"python\"\n"
		"    }\n  }\n  ],\n  \"traceName\": \"big.json\"\n}\n",
		PID);
	kg_out_close(b->o);
	free_texts(b->op, N_OP);
	free_texts(b->args, N_ARGS);
	free_texts(b->stack, N_STACK);
	free_texts(b->kernel, N_KERNEL);
	free_texts(b->occ, N_OCCUPANCY);
	free(b);
}

void kg_big(const struct kg_cfg *cfg, double megabytes, const char *path)
{
	struct big *b = kg_alloc(1, sizeof(*b));

	b->seed = cfg->seed;
	b->distinct_shapes = cfg->distinct_shapes;
	make_ops(b);
	make_args(b);
	make_stacks(b);
	make_kernels(b);
	b->o = kg_out_open(path, cfg->gzip);
	kg_putf(b->o,
		"\n{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [\n    {\n"
		"      \"id\": 0, \"name\": \"NVIDIA A100-SXM4-80GB\", \"numSms\": 108\n    }\n"
		"  ],\n  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": 0, "
		"\"world_size\": 1},\n  \"record_shapes\": 1,\n  \"traceEvents\": [\n");
	for (uint64_t first = 0; (double)kg_out_bytes(b->o) < megabytes * 1e6;) {
		uint64_t end = first + UNITS_PER_BLOCK;

		for (uint64_t u = first; u < end; u++)
			put_ranges(b, u);
		for (uint64_t u = first; u < end; u++)
			put_call(b, u);
		for (uint64_t u = first; u < end; u++)
			put_kernel(b, u);
		first = end;
	}
	finish(b);
}
