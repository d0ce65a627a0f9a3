/*
 * kgen_emit.c - primitives of the training script; see kgen_emit.h.
 *
 * The event pattern of a collective is that of PyTorch's NCCL process group: record an event on
 * the compute stream, let the NCCL stream wait for it, launch, record the end; whoever needs the
 * result later lets the compute stream wait for that end.
 */
#include "kgen_emit.h"

#include <string.h>

#define LAUNCH_US 5.5
#define SHORT_US  1.3 /* a call that only queues something */

const int kg_stream_id[KG_NSTREAM] = { 7, 13, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56 };

const struct kg_api kg_apis[] = {
	[KG_API_LAUNCH] = { "cudaLaunchKernel", 211, .flow_start = true },
	[KG_API_LAUNCH_EX] = { "cudaLaunchKernelExC", 430, .flow_start = true },
	[KG_API_MEMCPY] = { "cudaMemcpyAsync", 41, .flow_start = true },
	[KG_API_MEMSET] = { "cudaMemsetAsync", 51, .flow_start = true },
	[KG_API_RECORD] = { "cudaEventRecord", 135, .flow_start = false },
	[KG_API_WAIT] = { "cudaStreamWaitEvent", 147, .flow_start = true },
	[KG_API_STREAM_SYNC] = { "cudaStreamSynchronize", 131, .flow_start = true, .waits = true },
	[KG_API_DEVICE_SYNC] = { "cudaDeviceSynchronize", 165, .flow_start = true, .waits = true },
	[KG_API_GRAPH] = { "cudaGraphLaunch", 311, .flow_start = true },
	[KG_API_CAPTURING] = { "cudaStreamIsCapturing", 317, .flow_start = false },
	[KG_API_QUERY] = { "cudaEventQuery", 136, .flow_start = false },
	[KG_API_EVENT_SYNC] = { "cudaEventSynchronize", 137, .flow_start = true, .waits = true },
	[KG_API_MEMCPY_SYNC] = { "cudaMemcpy", 31, .flow_start = true },
	[KG_API_MALLOC] = { "cudaMalloc", 20, .flow_start = false },
	[KG_API_FREE] = { "cudaFree", 22, .flow_start = false },
	[KG_API_DRIVER_LAUNCH] = { "cuLaunchKernel", 307, .flow_start = true,
				   .cat = "cuda_driver" },
};

/* How a collective appears: operator, range, kernel; which share of its bytes a rank moves. */
static const struct coll_words {
	const char *op, *range, *name;
	struct kg_kernel kernel;
	double moved; /* times (n - 1) / n, but for sends */
} coll_words[] = {
	[KG_C_ALLREDUCE] = { "c10d::allreduce_",
			     "nccl:all_reduce",
			     "allreduce",
			     { "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<"
			       "4096ul>)",
			       96, 88016, 24, 544 },
			     2 },
	[KG_C_ALLGATHER] = { "c10d::_allgather_base_",
			     "nccl:_all_gather_base",
			     "_allgather_base",
			     { "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
			       96, 88016, 24, 544 },
			     1 },
	[KG_C_REDUCE_SCATTER] = { "c10d::_reduce_scatter_base_",
				  "nccl:_reduce_scatter_base",
				  "_reduce_scatter_base",
				  { "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL("
				    "ncclDevKernelArgsStorage<4096ul>)",
				    96, 88016, 24, 544 },
				  1 },
	[KG_C_ALLTOALL] = { "c10d::alltoall_base_",
			    "nccl:all_to_all",
			    "all_to_all",
			    { "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 96, 88016,
			      4, 544 },
			    1 },
	[KG_C_P2P] = { NULL,
		       NULL,
		       NULL,
		       { "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", 96, 88016, 4,
			 544 },
		       1 },
};

static const struct kg_kernel htod = { "Memcpy HtoD (Pinned -> Device)", 0, 0, 0, 0 };
static const struct kg_kernel htod_pageable = { "Memcpy HtoD (Pageable -> Device)", 0, 0, 0, 0 };
static const struct kg_kernel dtoh = { "Memcpy DtoH (Device -> Pageable)", 0, 0, 0, 0 };
static const struct kg_kernel memset_dev = { "Memset (Device)", 0, 0, 0, 0 };

void kg_scope(struct kg_emit *e, int phase, int microbatch, int layer)
{
	e->scope = (uint64_t)phase << 48 | (uint64_t)microbatch << 24 | (uint64_t)layer;
	e->n_compute = e->n_comm = 0;
}

static uint64_t next_key(struct kg_emit *e)
{
	uint64_t n = e->in_comm ? 1ULL << 32 | e->n_comm++ : e->n_compute++;
	uint64_t where = kg_hash((uint64_t)e->r->id, (uint64_t)e->step);

	return kg_hash(kg_hash(e->cfg->noise_seed, where), kg_hash(e->scope, n));
}

double kg_draw_uniform(struct kg_emit *e)
{
	return kg_uniform(next_key(e));
}

double kg_draw_factor(struct kg_emit *e)
{
	return kg_factor(e->cfg, next_key(e));
}

/* The pointer is good until the next push. */
static struct kg_hop *push_hop(struct kg_emit *e, int kind)
{
	struct kg_thread *t = &e->r->th[e->thread];
	struct kg_hop *h;

	t->op = kg_grow(t->op, t->n, &t->cap, sizeof(*t->op));
	h = &t->op[t->n++];
	memset(h, 0, sizeof(*h));
	h->kind = (uint8_t)kind;
	h->step = e->step;
	h->coll = h->annotation = KG_NONE;
	return h;
}

static uint32_t push_gop(struct kg_emit *e, int kind, int stream, const struct kg_kernel *k,
			 double us)
{
	struct kg_rank *r = e->r;
	struct kg_queue *q = &r->q[stream];
	uint32_t index = (uint32_t)r->n_gop;
	struct kg_gop *g;

	r->gop = kg_grow(r->gop, r->n_gop, &r->cap_gop, sizeof(*r->gop));
	g = &r->gop[r->n_gop++];
	memset(g, 0, sizeof(*g));
	g->kind = (uint8_t)kind;
	g->stream = (uint8_t)stream;
	g->step = e->step;
	g->kernel = k;
	g->dur = (int64_t)(us * 1000);
	g->thread = (uint8_t)e->thread;
	g->thread_hop = (uint32_t)r->th[e->thread].n; /* the call pushed next */
	q->item = kg_grow(q->item, q->n, &q->cap, sizeof(*q->item));
	g->place = (uint32_t)q->n;
	q->item[q->n++] = index;
	return index;
}

static struct kg_hop *push_call(struct kg_emit *e, int api, uint32_t first, uint32_t n, double us)
{
	static struct kg_hop none; /* captured: nobody sees the call */
	struct kg_hop *h = e->in_graph ? &none : push_hop(e, KG_H_CALL);

	h->api = (uint8_t)api;
	h->first = first;
	h->n = n;
	h->dur = (int64_t)(us * 1000 * kg_draw_factor(e));
	return h;
}

uint32_t kg_begin(struct kg_emit *e, int cat, const char *name, const char *args)
{
	struct kg_hop *h;

	if (e->in_graph || e->compiled)
		return KG_NONE;
	h = push_hop(e, KG_H_BEGIN);
	h->cat = (uint8_t)cat;
	h->name = name;
	h->args = args;
	return (uint32_t)e->r->th[e->thread].n - 1;
}

void kg_end(struct kg_emit *e)
{
	if (!e->in_graph && !e->compiled)
		push_hop(e, KG_H_END);
}

void kg_frame(struct kg_emit *e, const char *name)
{
	if (e->cfg->python_stacks)
		kg_begin(e, KG_CAT_PYTHON, name, NULL);
}

void kg_frame_end(struct kg_emit *e)
{
	if (e->cfg->python_stacks)
		kg_end(e);
}

void kg_host(struct kg_emit *e, double us)
{
	int64_t ns = (int64_t)(us * 1000 * e->r->host_factor * kg_draw_factor(e));

	if (!e->in_graph)
		push_hop(e, KG_H_BUSY)->dur = ns;
}

void kg_idle(struct kg_emit *e, double us)
{
	push_hop(e, KG_H_BUSY)->dur = (int64_t)(us * 1000);
}

/* Launch latency: the GPU front end needs 4 to 5.5 us from the call. */
static int64_t latency(struct kg_emit *e)
{
	return 4000 + (int64_t)(1500 * kg_draw_uniform(e));
}

void kg_kernel(struct kg_emit *e, const struct kg_kernel *k, double us)
{
	uint32_t g = push_gop(e, KG_G_KERNEL, KG_S_COMPUTE, k, us * e->r->slow * kg_draw_factor(e));

	e->r->gop[g].latency = latency(e);
	push_call(e, e->compiled ? KG_API_DRIVER_LAUNCH : KG_API_LAUNCH, g, 1, LAUNCH_US);
}

void kg_memset(struct kg_emit *e, uint64_t bytes, double us)
{
	uint32_t g = push_gop(e, KG_G_MEMSET, KG_S_COMPUTE, &memset_dev, us * kg_draw_factor(e));

	e->r->gop[g].bytes = bytes;
	e->r->gop[g].latency = latency(e);
	push_call(e, KG_API_MEMSET, g, 1, LAUNCH_US);
}

static uint32_t record(struct kg_emit *e, int stream, int event_id)
{
	uint32_t g = push_gop(e, KG_G_RECORD, stream, NULL, 0);

	e->r->gop[g].event_id = (uint8_t)event_id;
	e->r->gop[g].latency = 600;
	push_call(e, KG_API_RECORD, g, 1, SHORT_US);
	return g;
}

static void wait_event(struct kg_emit *e, int stream, uint32_t event)
{
	uint32_t g = push_gop(e, KG_G_WAIT, stream, NULL, 0);

	e->r->gop[g].dep = event;
	push_call(e, KG_API_WAIT, g, 1, SHORT_US);
}

void kg_copy_in(struct kg_emit *e, uint64_t bytes, double us)
{
	uint32_t g = push_gop(e, KG_G_MEMCPY, KG_S_COPY, &htod, us * kg_draw_factor(e));

	e->r->gop[g].bytes = bytes;
	e->r->gop[g].latency = latency(e);
	push_call(e, KG_API_MEMCPY, g, 1, LAUNCH_US);
	wait_event(e, KG_S_COMPUTE, record(e, KG_S_COPY, 1));
}

void kg_copy_out_sync(struct kg_emit *e)
{
	uint32_t g = push_gop(e, KG_G_MEMCPY, KG_S_COMPUTE, &dtoh, 1.6 * kg_draw_factor(e));
	struct kg_hop *h;

	e->r->gop[g].bytes = 4;
	e->r->gop[g].latency = latency(e);
	/* A copy to pageable memory keeps the caller until the data has arrived. */
	h = push_call(e, KG_API_MEMCPY, g, 1, LAUNCH_US);
	h->sync = KG_SYNC_STREAM;
	h->sync_stream = KG_S_COMPUTE;
	h->limit = g + 1;
	h = push_call(e, KG_API_STREAM_SYNC, 0, 0, 2.5);
	h->sync = KG_SYNC_STREAM;
	h->sync_stream = KG_S_COMPUTE;
	h->limit = g + 1;
}

void kg_copy_pageable(struct kg_emit *e, uint64_t bytes, double us)
{
	uint32_t g = push_gop(e, KG_G_MEMCPY, KG_S_COMPUTE, &htod_pageable, us * kg_draw_factor(e));
	struct kg_hop *h;

	e->r->gop[g].bytes = bytes;
	e->r->gop[g].latency = latency(e);
	h = push_call(e, KG_API_MEMCPY, g, 1, LAUNCH_US);
	h->sync = KG_SYNC_STREAM;
	h->sync_stream = KG_S_COMPUTE;
	h->limit = g + 1;
}

void kg_copy_out_blocking(struct kg_emit *e)
{
	uint32_t g = push_gop(e, KG_G_MEMCPY, KG_S_COMPUTE, &dtoh, 1.6 * kg_draw_factor(e));
	struct kg_hop *h;

	e->r->gop[g].bytes = 4;
	e->r->gop[g].latency = latency(e);
	h = push_call(e, KG_API_MEMCPY_SYNC, g, 1, LAUNCH_US);
	h->sync = KG_SYNC_STREAM;
	h->sync_stream = KG_S_COMPUTE;
	h->limit = g + 1;
}

void kg_device_sync(struct kg_emit *e)
{
	kg_call(e, KG_API_DEVICE_SYNC, 4.0);
}

void kg_call(struct kg_emit *e, int api, double us)
{
	struct kg_hop *h = push_call(e, api, 0, 0, us);

	if (api != KG_API_FREE && api != KG_API_DEVICE_SYNC)
		return;
	h->sync = KG_SYNC_DEVICE;
	h->limit = (uint32_t)e->r->n_gop;
}

uint32_t kg_event(struct kg_emit *e, int stream)
{
	/* A number that no collective has: those of the pool for results begin at 20. */
	return record(e, stream, 70 + stream);
}

void kg_stream_wait(struct kg_emit *e, int stream, uint32_t event)
{
	wait_event(e, stream, event);
}

void kg_host_wait(struct kg_emit *e, uint32_t event)
{
	struct kg_hop *h = push_call(e, KG_API_EVENT_SYNC, 0, 0, 2.5);

	h->sync = KG_SYNC_EVENT;
	h->sync_stream = e->r->gop[event].stream;
	h->limit = event;
}

void kg_graph_begin(struct kg_emit *e, bool whole)
{
	if (e->in_graph || !(whole || e->cfg->cuda_graphs))
		return;
	e->in_graph = true;
	e->whole = whole;
	e->graph_first = (uint32_t)e->r->n_gop;
}

void kg_graph_end(struct kg_emit *e, bool whole)
{
	uint32_t n = (uint32_t)e->r->n_gop - e->graph_first;

	if (!e->in_graph || e->whole != whole)
		return;
	e->in_graph = e->whole = false;
	for (uint32_t i = 0; i < n; i++)
		e->r->gop[e->graph_first + i].graph_node = i + 1;
	/* Nothing else was pushed on this thread, so thread_hop of each node is this call. */
	e->in_comm = true;
	if (n)
		push_call(e, KG_API_GRAPH, e->graph_first, n, 9.0);
	e->in_comm = false;
}

/* Finds or makes the collective with the next sequence number of the group of a stream. */
static uint32_t next_coll(struct kg_emit *e, int op, int stream, uint64_t bytes)
{
	struct kg_job *job = e->job;
	struct kg_rank *r = e->r;
	struct kg_group *g = &job->group[r->group[stream]];
	const struct kg_cfg *cfg = e->cfg;
	uint32_t seq = r->seq[stream]++;
	double us, moved;
	struct kg_coll *c;

	if (seq < g->n_coll)
		return g->coll[seq];
	job->coll = kg_grow(job->coll, job->n_coll, &job->cap_coll, sizeof(*job->coll));
	c = &job->coll[job->n_coll];
	memset(c, 0, sizeof(*c));
	c->group = g->id;
	c->seq = seq;
	c->op = op;
	c->nelems = (uint64_t)((double)bytes * cfg->bytes_scale / 2.0 + 0.5);
	if (!c->nelems)
		c->nelems = 1;
	/* An all-reduce along a ring moves each byte 2 (n - 1) / n times over the slowest link. */
	moved = 2.0 * (double)c->nelems * coll_words[op].moved;
	if (!g->p2p)
		moved = moved * (g->n - 1) / g->n;
	us = cfg->alpha_us + moved * 8e-3 / (g->inter_host ? cfg->gbps : cfg->intra_gbps);
	us *= cfg->comm_scale;
	us *= kg_factor(
		cfg, kg_hash(kg_hash(cfg->noise_seed, 0xc011ULL), kg_hash((uint64_t)g->id, seq)));
	c->transfer_ns = (int64_t)(us * 1000);
	c->gop = kg_alloc((size_t)g->n, sizeof(*c->gop));
	g->coll = kg_grow(g->coll, g->n_coll, &g->cap_coll, sizeof(*g->coll));
	g->coll[g->n_coll++] = (uint32_t)job->n_coll;
	return (uint32_t)job->n_coll++;
}

static int member_index(const struct kg_group *g, int rank)
{
	int i = 0;

	while (g->rank[i] != rank)
		i++;
	return i;
}

/* Calls by which NCCL orders its own bookkeeping; they constrain nothing else. */
static void internal_events(struct kg_emit *e)
{
	push_call(e, KG_API_RECORD, 0, 0, 0.6);
	push_call(e, KG_API_WAIT, 0, 0, 0.6);
}

static void begin_coll(struct kg_emit *e, int cat, const char *name, uint32_t coll)
{
	uint32_t h = kg_begin(e, cat, name, NULL);

	if (h != KG_NONE)
		e->r->th[e->thread].op[h].coll = coll;
}

static uint32_t collective(struct kg_emit *e, int op, int stream, int from, uint64_t bytes,
			   const char *name, const char *annotation)
{
	uint32_t coll = next_coll(e, op, stream, bytes), g, end;
	struct kg_group *group = &e->job->group[e->job->coll[coll].group];
	double host = e->cfg->host_us;

	e->in_comm = true;
	begin_coll(e, KG_CAT_OP, name, coll);
	kg_host(e, 0.5 * host);
	begin_coll(e, KG_CAT_OP, "record_param_comms", coll);
	kg_host(e, 0.2 * host);
	push_call(e, KG_API_CAPTURING, 0, 0, 0.9);
	if (from != stream)
		wait_event(e, stream, record(e, from, 2 + stream));
	begin_coll(e, KG_CAT_ANNOTATION, annotation, coll);
	kg_host(e, 0.3 * host);
	internal_events(e);
	g = push_gop(e, KG_G_COLL, stream, &coll_words[op].kernel, 0);
	e->r->gop[g].dep = coll;
	e->r->gop[g].latency = latency(e);
	e->job->coll[coll].gop[member_index(group, e->r->id)] = g;
	push_call(e, KG_API_LAUNCH_EX, g, 1, 1.6 * LAUNCH_US);
	internal_events(e);
	kg_host(e, 0.1 * host);
	kg_end(e);
	/* End events come from a cache and are reused, those of the start belong to the group. */
	end = record(e, stream, 20 + (int)(e->r->seq[stream] % 40));
	kg_host(e, 0.15 * host);
	kg_end(e);
	kg_host(e, 0.2 * host);
	kg_end(e);
	e->in_comm = false;
	return end;
}

uint32_t kg_collective(struct kg_emit *e, int op, int stream, int from, uint64_t bytes)
{
	return collective(e, op, stream, from, bytes, coll_words[op].op, coll_words[op].range);
}

uint32_t kg_allreduce(struct kg_emit *e, int stream, uint64_t bytes)
{
	return kg_collective(e, KG_C_ALLREDUCE, stream, KG_S_COMPUTE, bytes);
}

uint32_t kg_send_recv(struct kg_emit *e, int stream, uint64_t bytes)
{
	const struct kg_group *g = &e->job->group[e->r->group[stream]];
	bool send = g->rank[0] == e->r->id;
	const char *name = send ? kg_strf("nccl:send %d->%d", g->rank[0], g->rank[1])
				: kg_strf("nccl:recv %d<-%d", g->rank[1], g->rank[0]);

	return collective(e, KG_C_P2P, stream, KG_S_COMPUTE, bytes,
			  send ? "c10d::send" : "c10d::recv_", name);
}

const char *kg_coll_name(int op)
{
	return coll_words[op].name;
}

void kg_join(struct kg_emit *e, int stream, uint32_t event)
{
	uint32_t h;

	e->in_comm = true;
	h = kg_begin(e, KG_CAT_OP, "record_param_comms", NULL);
	if (h != KG_NONE) {
		e->r->th[e->thread].op[h].comm_wait = true;
		e->r->th[e->thread].op[h].coll =
			(uint32_t)e->job->group[e->r->group[stream]].coll[0];
	}
	kg_host(e, 0.1 * e->cfg->host_us);
	wait_event(e, KG_S_COMPUTE, event);
	kg_end(e);
	e->in_comm = false;
}

void kg_hand_over(struct kg_emit *e, int to_thread)
{
	struct kg_rank *r = e->r;
	uint32_t token = (uint32_t)r->n_token;

	if (e->in_graph)
		return;
	r->token = kg_grow(r->token, r->n_token, &r->cap_token, sizeof(*r->token));
	r->token[r->n_token++] = -1;
	push_hop(e, KG_H_POST)->token = token;
	e->thread = to_thread;
	push_hop(e, KG_H_AWAIT)->token = token;
}
