/*
 * kgen_kinds.c - kinds of jobs: one row and one function each.
 *
 * A row has the defaults of the kind, the schedule of its microbatches, and what it adds at the
 * boundaries of layers (kgen_model.h).
 */
#include "kgen_model.h"

#include <string.h>

static const struct kg_kernel k_split = {
	"void at::native::(anonymous "
	"namespace)::split_with_sizes_copy_out_contiguous_no_cast_kernel"
	"<c10::BFloat16>(char**, char**, long*)",
	24, 0, 2048, 256
};
static const struct kg_kernel k_route = { "void at::native::sbtopk::gatherTopK<c10::BFloat16, "
					  "unsigned int, 2, false>(at::cuda::detail"
					  "::TensorInfo<c10::BFloat16 const, unsigned int>)",
					  40, 4096, 1024, 512 };

/* ---- sharded layers -------------------------------------------------------------------------- */

/* Begins to gather a layer: not before the use of the one before the last has ended. */
static void gather(struct kg_build *b, int layer, bool by_host)
{
	struct kg_emit *e = &b->e;
	uint32_t free;

	kg_begin(e, KG_CAT_ANNOTATION, kg_strf("FSDP::all_gather (layers.%d)", layer), NULL);
	if (b->n_gathered >= 2) {
		free = b->released[b->n_gathered % 2];
		if (by_host)
			kg_host_wait(e, free);
		else
			kg_stream_wait(e, KG_S_GATHER, free);
	} else {
		kg_stream_wait(e, KG_S_GATHER, kg_event(e, KG_S_COMPUTE));
	}
	b->gathered[b->n_gathered++ % 2] = kg_collective(e, KG_C_ALLGATHER, KG_S_GATHER,
							 KG_S_GATHER, (uint64_t)kg_layer_bytes(b));
	kg_end(e);
}

static void use_gathered(struct kg_build *b, int number)
{
	struct kg_emit *e = &b->e;

	kg_stream_wait(e, KG_S_COMPUTE, b->gathered[number % 2]);
	kg_begin(e, KG_CAT_OP, "fsdp::split_with_sizes_copy", NULL);
	kg_host(e, e->cfg->host_us);
	kg_kernel(e, &k_split, 0.02 * e->cfg->compute_us);
	kg_end(e);
}

static void release(struct kg_build *b)
{
	b->released[b->n_released++ % 2] = kg_event(&b->e, KG_S_COMPUTE);
}

static void reduce(struct kg_build *b, int layer)
{
	struct kg_emit *e = &b->e;

	kg_begin(e, KG_CAT_ANNOTATION, kg_strf("FSDP::post_backward_reduce (layers.%d)", layer),
		 NULL);
	if (b->n_reduced++ % b->n_layers)
		kg_stream_wait(e, KG_S_COMPUTE, b->reduced);
	b->reduced = kg_collective(e, KG_C_REDUCE_SCATTER, KG_S_SCATTER, KG_S_COMPUTE,
				   (uint64_t)kg_layer_bytes(b));
	if (b->n_reduced % b->n_layers == 0) /* the last one of the step */
		kg_stream_wait(e, KG_S_COMPUTE, b->reduced);
	kg_end(e);
}

static void sharded(struct kg_build *b, int pass, int layer, int at, bool by_host)
{
	bool ahead = pass == KG_BACKWARD && layer + 1 < b->n_layers;

	if (pass == KG_FORWARD && at == 0) {
		gather(b, layer, by_host);
		use_gathered(b, b->n_gathered - 1);
	} else if (pass == KG_BACKWARD && at == KG_LAYER_END) {
		if (!ahead)
			gather(b, layer, by_host);
		use_gathered(b, b->n_gathered - 1);
		if (layer)
			gather(b, layer - 1, by_host);
	} else if (pass == KG_FORWARD && at == KG_LAYER_END) {
		release(b);
	} else if (pass == KG_BACKWARD && at == 0) {
		release(b);
		reduce(b, layer);
	}
}

/* Streams wait for one another. */
static void fsdp(struct kg_build *b, int pass, int layer, int at)
{
	sharded(b, pass, layer, at, false);
}

/* The host waits before it gathers a third layer. */
static void fsdp_limit(struct kg_build *b, int pass, int layer, int at)
{
	sharded(b, pass, layer, at, true);
}

/* ---- experts --------------------------------------------------------------------------------- */

/* Tokens go to the ranks of their experts and back; the share of a rank varies by a quarter. */
static void experts(struct kg_build *b, int pass, int layer, int at)
{
	struct kg_emit *e = &b->e;
	uint64_t share = kg_hash((uint64_t)e->r->id, (uint64_t)(e->step * 1000 + layer));
	bool into = at == (pass == KG_FORWARD ? 6 : 9);

	if (at != 6 && at != 9)
		return;
	kg_begin(e, KG_CAT_OP, pass == KG_FORWARD ? "_AllToAll" : "_AllToAllBackward", NULL);
	if (pass == KG_FORWARD && into)
		kg_kernel(e, &k_route, 0.02 * e->cfg->compute_us * b->work);
	kg_join(e, KG_S_EXPERT,
		kg_collective(e, KG_C_ALLTOALL, KG_S_EXPERT, KG_S_COMPUTE,
			      (uint64_t)(2 * kg_activation_bytes(b))));
	kg_end(e);
	b->slot_work = into ? 0.75 + 0.5 * kg_uniform(kg_hash(e->cfg->seed, share)) : 1;
}

/* ---- the host waits -------------------------------------------------------------------------- */

static void item(struct kg_build *b, int pass, int layer, int at)
{
	struct kg_emit *e = &b->e;

	(void)layer;
	if (pass != KG_FORWARD || at != KG_LAYER_END)
		return;
	kg_begin(e, KG_CAT_OP, "aten::item", NULL);
	kg_begin(e, KG_CAT_OP, "aten::_local_scalar_dense", NULL);
	kg_host(e, 0.2 * e->cfg->host_us);
	kg_copy_out_sync(e);
	kg_end(e);
	kg_end(e);
	kg_host(e, e->cfg->planted * 1000);
}

static void wait_device(struct kg_build *b, int pass, int layer, int at)
{
	(void)layer;
	if (pass != KG_FORWARD || at != KG_LAYER_END)
		return;
	kg_device_sync(&b->e);
	kg_host(&b->e, b->e.cfg->planted * 1000);
}

static void wait_event(struct kg_build *b, int pass, int layer, int at)
{
	struct kg_emit *e = &b->e;

	(void)layer;
	if (pass != KG_FORWARD)
		return;
	if (at == 8) /* behind the first half of the layer and some more */
		b->released[0] = kg_event(e, KG_S_COMPUTE);
	if (at != KG_LAYER_END)
		return;
	kg_host_wait(e, b->released[0]);
	kg_host(e, e->cfg->planted * 2000);
}

static void blocking_copy(struct kg_build *b, int pass, int layer, int at)
{
	struct kg_emit *e = &b->e;

	(void)layer;
	if (pass != KG_FORWARD || at != KG_LAYER_END)
		return;
	kg_begin(e, KG_CAT_OP, "aten::copy_", NULL);
	kg_copy_out_blocking(e);
	kg_end(e);
	kg_host(e, e->cfg->planted * 1000);
}

/* ---- memory ---------------------------------------------------------------------------------- */

static void pageable(struct kg_build *b, int pass, int layer, int at)
{
	struct kg_emit *e = &b->e;
	double planted = e->cfg->planted;

	(void)layer;
	if (pass != KG_FORWARD || at != 0 || planted <= 0)
		return;
	kg_begin(e, KG_CAT_OP, "aten::to", NULL);
	kg_begin(e, KG_CAT_OP, "aten::copy_", NULL);
	kg_host(e, e->cfg->host_us);
	kg_copy_pageable(e, (uint64_t)(planted * (1 << 25)), planted * 5600);
	kg_end(e);
	kg_end(e);
}

/* The allocator has no block that fits: it returns cached ones, which waits for the device. */
static void allocator(struct kg_build *b, int pass, int layer, int at)
{
	struct kg_emit *e = &b->e;

	(void)layer;
	if (pass == KG_FORWARD || at != 6 || e->cfg->planted <= 0)
		return;
	kg_begin(e, KG_CAT_OP, "aten::empty", NULL);
	kg_host(e, 0.3 * e->cfg->host_us);
	kg_call(e, KG_API_FREE, e->cfg->planted * 900);
	kg_call(e, KG_API_MALLOC, e->cfg->planted * 1400);
	kg_end(e);
}

/* ---- others ---------------------------------------------------------------------------------- */

/* A layer is one compiled region on the main thread, and one function of autograd. */
static void compiled(struct kg_build *b, int pass, int layer, int at)
{
	struct kg_emit *e = &b->e;
	bool begin = at == (pass == KG_FORWARD ? 0 : KG_LAYER_END);

	if (begin) {
		if (pass == KG_FORWARD)
			kg_begin(e, KG_CAT_OP, kg_strf("Torch-Compiled Region: %d/0", layer), NULL);
		else
			kg_begin(e, KG_CAT_OP, "CompiledFunctionBackward", NULL);
		kg_begin(e, KG_CAT_OP, kg_strf("## Call CompiledFxGraph f%07d ##", 4711 + layer),
			 NULL);
		kg_host(e, 2 * e->cfg->host_us);
		e->compiled = true;
	} else if (at == KG_LAYER_END - (pass == KG_FORWARD ? 0 : KG_LAYER_END)) {
		e->compiled = false;
		kg_end(e);
		kg_end(e);
	}
}

/* Every second step the interpreter of one rank looks for garbage. */
static void collector(struct kg_build *b, int pass, int layer, int at)
{
	struct kg_emit *e = &b->e;

	if (pass != KG_FORWARD || layer != 1 || at != 2 || e->r->id != 1 || e->step % 2 == 0)
		return;
	kg_begin(e, KG_CAT_PYTHON, "Python GC", NULL);
	kg_host(e, e->cfg->planted * 60000);
	kg_end(e);
}

/* ---- the table ------------------------------------------------------------------------------- */

struct kg_kind {
	const char *name, *help;
	kg_boundary *boundary;
	kg_schedule *schedule;		  /* NULL: one forward, one backward */
	int ranks, layers;		  /* 0: 4 */
	int tp, pp, microbatches, chunks; /* 0: 1 */
	unsigned streams;		  /* a bit for each that only this kind has */
	double contention;		  /* see kg_cfg */
	bool lengths;
};

#define STREAM(s) (1u << (s))
#define SHARDED	  (STREAM(KG_S_GATHER) | STREAM(KG_S_SCATTER))

static const struct kg_kind kinds[] = {
	{ .name = "fsdp",
	  .help = "sharded layers, at most two gathered; streams wait",
	  .boundary = fsdp,
	  .streams = SHARDED,
	  .layers = 6 },
	{ .name = "fsdp-limit",
	  .help = "the same; the host waits",
	  .boundary = fsdp_limit,
	  .streams = SHARDED,
	  .layers = 6 },
	{ .name = "interleaved",
	  .help = "pipeline, two parts of the model on a stage",
	  .schedule = kg_interleaved,
	  .pp = 4,
	  .microbatches = 8,
	  .layers = 8,
	  .chunks = 2 },
	{ .name = "zero-bubble",
	  .help = "pipeline, gradients of weights fill the bubble",
	  .schedule = kg_zero_bubble,
	  .pp = 4,
	  .microbatches = 8,
	  .layers = 8 },
	{ .name = "three",
	  .help = "tensor, pipeline and data groups",
	  .ranks = 8,
	  .tp = 2,
	  .pp = 2,
	  .microbatches = 4 },
	{ .name = "experts",
	  .help = "all-to-all before and behind experts",
	  .boundary = experts,
	  .streams = STREAM(KG_S_EXPERT) },
	{ .name = "captured",
	  .help = "both passes are one CUDA graph",
	  .schedule = kg_captured,
	  .microbatches = 2 },
	{ .name = "item", .help = "a number of each layer is read", .boundary = item },
	{ .name = "wait-device", .help = "the host waits for the device", .boundary = wait_device },
	{ .name = "wait-event", .help = "the host waits for an event", .boundary = wait_event },
	{ .name = "blocking-copy",
	  .help = "the host copies with cudaMemcpy",
	  .boundary = blocking_copy },
	{ .name = "pageable", .help = "copies from pageable memory", .boundary = pageable },
	{ .name = "allocator",
	  .help = "cudaFree waits, cudaMalloc is slow",
	  .boundary = allocator },
	{ .name = "contention",
	  .help = "kernels are slower beside those of NCCL",
	  .contention = 1.4 },
	{ .name = "compiled", .help = "kernels without operators", .boundary = compiled },
	{ .name = "collector", .help = "garbage collection on rank 1", .boundary = collector },
	{ .name = "lengths", .help = "sequences of unlike length", .lengths = true },
};
#define N_KIND (sizeof(kinds) / sizeof(kinds[0]))

bool kg_kind_set(struct kg_cfg *c, const char *name)
{
	for (size_t i = 0; i < N_KIND; i++) {
		const struct kg_kind *k = &kinds[i];

		if (strcmp(k->name, name) != 0)
			continue;
		c->kind = k;
		c->ranks = k->ranks ? k->ranks : 4;
		c->layers = k->layers ? k->layers : 4;
		c->tp = k->tp ? k->tp : 1;
		c->pp = k->pp ? k->pp : 1;
		c->microbatches = k->microbatches ? k->microbatches : 1;
		c->chunks = k->chunks ? k->chunks : 1;
		c->contention = k->contention;
		c->lengths = k->lengths;
		return true;
	}
	return false;
}

bool kg_kind_get(size_t i, const char **name, const char **help)
{
	if (i >= N_KIND)
		return false;
	*name = kinds[i].name;
	*help = kinds[i].help;
	return true;
}

bool kg_uses(const struct kg_cfg *c, int stream)
{
	return c->kind && c->kind->streams >> stream & 1;
}

kg_boundary *kg_kind_boundary(const struct kg_cfg *c)
{
	return c->kind ? c->kind->boundary : NULL;
}

void kg_run_schedule(struct kg_build *b)
{
	const struct kg_kind *k = b->e.cfg->kind;

	(k && k->schedule ? k->schedule : kg_one_forward_one_backward)(b);
}
