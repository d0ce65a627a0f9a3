/*
 * kgen_write.c - the profiler file of one rank, laid out as PyTorch's Kineto writes it: host
 * ranges thread by thread, then runtime calls mixed with the GPU activities they caused, then
 * metadata.  External ids and correlation numbers are given here, in the order of recorded starts.
 *
 * The recorded clock of a rank is true + offset + drift * (true - epoch); GPU and host times of a
 * rank share one clock.
 */
#include "kgen_emit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CALLS_PER_BUFFER  256 /* runtime calls between two blocks of GPU activities */
#define FIRST_CORRELATION 5000
#define NUM_SMS		  108

struct span { /* an annotation as seen from the GPU */
	uint32_t thread, hop;
	int stream;
	int64_t start, end;
};

struct call_ref {
	uint8_t thread;
	uint32_t hop;
};

struct writer {
	const struct kg_job *job;
	const struct kg_cfg *cfg;
	struct kg_rank *r;
	struct kg_out *o;
	int64_t base_ns;
	uint64_t ev_idx;
	struct call_ref *call;
	size_t n_call, cap_call;
	struct span *span;
	size_t n_span, cap_span;
	const struct kg_gop *dropped;
	bool any;
};

static int64_t recorded(const struct writer *w, int64_t t)
{
	return t + w->r->offset_ns + (int64_t)((double)(t - KG_EPOCH_NS) * w->r->drift_ppm * 1e-6);
}

static void put_time(struct writer *w, int64_t t)
{
	t = recorded(w, t) - w->base_ns;
	if (w->cfg->integer_us)
		kg_put_u64(w->o, (uint64_t)(t / 1000));
	else
		kg_put_us(w->o, t);
}

static void put_span(struct writer *w, int64_t start, int64_t end)
{
	int64_t a = recorded(w, start), b = recorded(w, end);

	kg_puts(w->o, "\n    \"ts\": ");
	put_time(w, start);
	kg_puts(w->o, ", \"dur\": ");
	if (w->cfg->integer_us)
		kg_put_u64(w->o, (uint64_t)(b / 1000 - a / 1000));
	else
		kg_put_us(w->o, b - a);
	kg_puts(w->o, ",\n    \"args\": {\n      ");
}

static void begin_event(struct writer *w)
{
	kg_puts(w->o, w->any ? ",\n  {\n" : "\n  {\n");
	w->any = true;
}

static void end_args(struct writer *w)
{
	kg_puts(w->o, "\n    }\n  }");
}

static void begin_complete(struct writer *w, const char *cat, const char *name, int pid, int tid)
{
	begin_event(w);
	kg_puts(w->o, "    \"ph\": \"X\", \"cat\": \"");
	kg_puts(w->o, cat);
	kg_puts(w->o, "\", \"name\": \"");
	kg_puts(w->o, name);
	kg_putf(w->o, "\", \"pid\": %d, \"tid\": %d,", pid, tid);
}

static void flow(struct writer *w, bool start, uint32_t id, int pid, int tid, int64_t t,
		 const char *cat)
{
	if (w->cfg->no_flows)
		return;
	begin_event(w);
	kg_putf(w->o, "    \"ph\": \"%c\", \"id\": %u, \"pid\": %d, \"tid\": %d, \"ts\": ",
		start ? 's' : 'f', id, pid, tid);
	put_time(w, t);
	kg_putf(w->o, ",\n    \"cat\": \"%s\", \"name\": \"%s\"%s\n  }", cat, cat,
		start ? "" : ", \"bp\": \"e\"");
}

static int tid_of(const struct writer *w, int thread)
{
	return w->r->pid + thread * 1160;
}

static void number_call(struct writer *w, struct kg_thread *t, int thread, uint32_t *corr)
{
	struct kg_hop *h = &t->op[t->pc];

	/* Calls the profiler leaves out use up numbers too. */
	*corr += 1 + (uint32_t)(kg_hash(*corr, w->cfg->seed) % 5);
	h->corr = *corr;
	for (int d = t->depth - 1; d >= 0; d--) {
		const struct kg_hop *range = &t->op[t->open[d]];

		if (!h->ext && range->cat != KG_CAT_PYTHON)
			h->ext = range->ext;
		if (h->annotation == KG_NONE && range->cat == KG_CAT_ANNOTATION && d > 0)
			h->annotation = t->open[d];
	}
	w->call = kg_grow(w->call, w->n_call, &w->cap_call, sizeof(*w->call));
	w->call[w->n_call].thread = (uint8_t)thread;
	w->call[w->n_call++].hop = (uint32_t)t->pc;
}

/* Walks both threads in the order of starts and numbers ranges and calls. */
static void number(struct writer *w)
{
	uint32_t ext = 0, corr = FIRST_CORRELATION;

	for (int i = 0; i < 2; i++)
		w->r->th[i].pc = w->r->th[i].depth = 0;
	for (;;) {
		struct kg_thread *next = NULL;

		for (int i = 0; i < 2; i++) {
			struct kg_thread *t = &w->r->th[i];

			for (; t->pc < t->n; t->pc++) {
				int kind = t->op[t->pc].kind;

				if (kind == KG_H_BEGIN || kind == KG_H_CALL)
					break;
				if (kind == KG_H_END)
					t->depth--;
			}
			if (t->pc < t->n &&
			    (!next || t->op[t->pc].start < next->op[next->pc].start))
				next = t;
		}
		if (!next)
			return;
		if (next->op[next->pc].kind == KG_H_CALL) {
			number_call(w, next, (int)(next - w->r->th), &corr);
		} else {
			if (next->op[next->pc].cat != KG_CAT_PYTHON)
				next->op[next->pc].ext = ++ext;
			next->open[next->depth++] = (uint32_t)next->pc;
		}
		next->pc++;
	}
}

static const char *coll_name(const struct kg_group *g, const struct kg_rank *r, int op)
{
	if (!g->p2p)
		return kg_coll_name(op);
	return g->rank[0] == r->id ? "send" : "recv";
}

static void put_ranks(struct kg_out *o, const struct kg_group *g)
{
	bool down = g->rank[0] > g->rank[g->n - 1]; /* a pair in the order of its messages */

	for (int i = 0; i < g->n; i++)
		kg_putf(o, "%s%d", i ? ", " : "[", g->rank[down ? g->n - 1 - i : i]);
	kg_puts(o, "]");
}

static void put_group(struct writer *w, const struct kg_coll *c, bool wait)
{
	const struct kg_group *g = &w->job->group[c->group];
	unsigned long long n = wait ? 0 : c->nelems, shard = n / (unsigned)g->n;

	kg_putf(w->o,
		"\"Collective name\": \"%s\", \"In msg nelems\": %llu, \"Out msg nelems\": %llu, "
		"\"Group size\": %d, \"dtype\": \"%s\", \"In split size\": \"[]\", "
		"\"Out split size\": \"[]\", \"Process Group Name\": \"%d\", "
		"\"Process Group Description\": \"%s\", \"Process Group Ranks\": \"",
		wait ? "wait" : coll_name(g, w->r, c->op), c->op == KG_C_ALLGATHER ? shard : n,
		c->op == KG_C_REDUCE_SCATTER ? shard : n, g->n, wait ? "Byte" : "BFloat16",
		g->id + 1, g->desc);
	put_ranks(w->o, g);
	kg_puts(w->o, "\"");
	if (wait)
		return;
	if (g->p2p)
		kg_putf(w->o, ", \"Src Rank\": %d, \"Dst Rank\": %d", g->rank[0], g->rank[1]);
	kg_putf(w->o, ", \"Rank\": %d, \"Seq\": %u", w->r->id, c->seq + 1);
}

static void put_coll_dims(struct writer *w, const struct kg_hop *h)
{
	unsigned long long n = w->job->coll[h->coll].nelems;

	if (h->comm_wait)
		return;
	if (h->cat == KG_CAT_ANNOTATION)
		kg_putf(w->o, "\"Input type\": [\"c10::BFloat16\"], \"Input Dims\": [[%llu]], ", n);
	else
		kg_putf(w->o,
			"\"Concrete Inputs\": [\"\", \"\", \"\", \"\", \"-1\"], \"Input type\": "
			"[\"TensorList\", \"\", \"\", \"\", \"Scalar\"], \"Input Dims\": "
			"[[[%llu]], [], [], [], []], ",
			n);
}

static void write_range(struct writer *w, int thread, const struct kg_hop *h, uint32_t pyid,
			uint32_t parent)
{
	static const char *const cats[] = { "cpu_op", "user_annotation", "python_function" };
	int tid = tid_of(w, thread);

	begin_complete(w, cats[h->cat], h->name, w->r->pid, tid);
	put_span(w, h->start, h->end);
	if (h->cat == KG_CAT_PYTHON) {
		if (parent)
			kg_putf(w->o, "\"Python parent id\": %u, ", parent);
		kg_putf(w->o, "\"Python id\": %u, ", pyid);
	} else {
		kg_putf(w->o, "\"External id\": %u,", h->ext);
	}
	if (h->seq)
		kg_putf(w->o, "\"Sequence number\": %u, \"Fwd thread id\": %d, ", h->seq, thread);
	if (h->args) {
		kg_puts(w->o, h->args);
		kg_puts(w->o, ", ");
	}
	if (h->coll != KG_NONE) {
		put_coll_dims(w, h);
		if (w->cfg->record_groups && h->cat == KG_CAT_OP &&
		    !strcmp(h->name, "record_param_comms")) {
			put_group(w, &w->job->coll[h->coll], h->comm_wait);
			kg_puts(w->o, ", ");
		}
	}
	kg_putf(w->o, "\"Ev Idx\": %llu", (unsigned long long)w->ev_idx++);
	end_args(w);
	if (h->seq && (thread == 0 || !strncmp(h->name, "autograd::", 10)))
		flow(w, thread == 0, h->seq, w->r->pid, tid, h->start, "fwdbwd");
}

static void write_ranges(struct writer *w)
{
	uint32_t pyid = 0, py[48];

	for (int i = 0; i < 2; i++) {
		const struct kg_thread *t = &w->r->th[i];
		int depth = 0, n_py = 0;
		bool is_py[48];

		for (size_t k = 0; k < t->n; k++) {
			const struct kg_hop *h = &t->op[k];

			if (h->kind == KG_H_END && is_py[--depth])
				n_py--;
			if (h->kind != KG_H_BEGIN)
				continue;
			is_py[depth] = h->cat == KG_CAT_PYTHON;
			if (is_py[depth++])
				py[n_py++] = ++pyid;
			write_range(w, i, h, pyid, n_py > 1 ? py[n_py - 2] : 0);
		}
	}
}

static void write_call(struct writer *w, const struct kg_hop *h, int thread)
{
	const struct kg_api *api = &kg_apis[h->api];
	int tid = tid_of(w, thread);

	begin_complete(w, api->cat ? api->cat : "cuda_runtime", api->name, w->r->pid, tid);
	put_span(w, h->start, h->end);
	kg_putf(w->o, "\"External id\": %u,      \"cbid\": %d, \"correlation\": %u", h->ext,
		api->cbid, h->corr);
	end_args(w);
	flow(w, api->flow_start, h->corr, w->r->pid, tid, h->start, "ac2g");
}

static void write_copy(struct writer *w, const struct kg_gop *g, const struct kg_hop *h)
{
	int stream = kg_stream_id[g->stream];

	begin_complete(w, g->kind == KG_G_MEMCPY ? "gpu_memcpy" : "gpu_memset", g->kernel->name,
		       w->r->dev, stream);
	put_span(w, g->start, g->end);
	kg_putf(w->o,
		"\"External id\": %u,\n      \"device\": %d, \"context\": 1,\n      \"stream\": "
		"%d, "
		"\"correlation\": %u,\n      \"bytes\": %llu, \"memory bandwidth (GB/s)\": %.6g",
		h->ext, w->r->dev, stream, h->corr, (unsigned long long)g->bytes,
		(double)g->bytes / (double)(g->end > g->start ? g->end - g->start : 1));
	end_args(w);
}

static void write_kernel(struct writer *w, const struct kg_gop *g, const struct kg_hop *h)
{
	const struct kg_kernel *k = g->kernel;
	int stream = kg_stream_id[g->stream];

	begin_complete(w, "kernel", k->name, w->r->dev, stream);
	put_span(w, g->start, g->end);
	kg_putf(w->o,
		"\"External id\": %u,\n      \"queued\": 0, \"device\": %d, \"context\": 1,\n"
		"      \"stream\": %d, \"correlation\": %u,\n",
		h->ext, w->r->dev, stream, h->corr);
	if (g->graph_node)
		kg_putf(w->o, "      \"graph node id\": %u,\n", g->graph_node);
	if (g->kind == KG_G_COLL && w->cfg->record_groups) {
		kg_puts(w->o, "      ");
		put_group(w, &w->job->coll[g->dep], false);
		kg_puts(w->o, ",\n");
	}
	kg_putf(w->o,
		"      \"registers per thread\": %d,\n      \"shared memory\": %d,\n"
		"      \"blocks per SM\": %.8g,\n      \"warps per SM\": %.8g,\n"
		"      \"grid\": [%d, 1, 1],\n      \"block\": [%d, 1, 1],\n"
		"      \"est. achieved occupancy %%\": %d",
		k->regs, k->shared, (double)k->grid / NUM_SMS,
		(double)k->grid * k->block / 32 / NUM_SMS, k->grid, k->block,
		k->grid < NUM_SMS ? 0 : 100 * k->block / 2048);
	end_args(w);
}

/* With --cuda-sync: what the profiler says about waits, on top of the calls. */
static void write_sync(struct writer *w, const struct kg_hop *h, const struct kg_gop *g)
{
	int stream = g ? kg_stream_id[g->stream] : kg_stream_id[h->sync_stream];
	const char *kind = g ? "Stream Wait Event" : "Stream Sync";
	const struct kg_gop *ev = g ? &w->r->gop[g->dep] : NULL;
	int64_t start = h->start + 300, end = h->end - 200;

	if (!w->cfg->cuda_sync)
		return;
	if (!g && h->sync == KG_SYNC_DEVICE) {
		kind = "Context Sync";
		stream = -1;
	} else if (!g && h->sync == KG_SYNC_EVENT) {
		kind = "Event Sync";
		stream = -1;
		ev = &w->r->gop[h->limit];
	}
	begin_complete(w, "cuda_sync", kind, w->r->dev, stream);
	put_span(w, start, end > start ? end : start);
	kg_putf(w->o, "\"External id\": %u,\n      \"cuda_sync_kind\": \"%s\",\n", h->ext, kind);
	if (ev)
		kg_putf(w->o,
			"      \"wait_on_stream\": %d,\n"
			"      \"wait_on_cuda_event_record_corr_id\": %u,\n"
			"      \"wait_on_cuda_event_id\": %d,\n",
			kg_stream_id[ev->stream], w->r->th[ev->thread].op[ev->thread_hop].corr,
			ev->event_id);
	kg_putf(w->o,
		"      \"stream\": %d, \"correlation\": %u,\n      \"device\": %d, \"context\": 1",
		stream, h->corr, w->r->dev);
	end_args(w);
	flow(w, false, h->corr, w->r->dev, stream, start, "ac2g");
}

static void note_span(struct writer *w, const struct kg_gop *g, const struct kg_hop *h)
{
	struct span *s = w->n_span ? &w->span[w->n_span - 1] : NULL;

	if (h->annotation == KG_NONE)
		return;
	if (!s || s->hop != h->annotation || s->thread != g->thread) {
		w->span = kg_grow(w->span, w->n_span, &w->cap_span, sizeof(*w->span));
		s = &w->span[w->n_span++];
		s->thread = g->thread;
		s->hop = h->annotation;
		s->stream = g->stream;
		s->start = g->start;
	}
	s->end = g->end;
}

static void write_gpu_of(struct writer *w, const struct kg_hop *h)
{
	if (kg_apis[h->api].waits)
		write_sync(w, h, NULL);
	for (uint32_t i = h->first; i < h->first + h->n; i++) {
		const struct kg_gop *g = &w->r->gop[i];

		if (g == w->dropped || g->kind == KG_G_RECORD ||
		    (g->kind == KG_G_WAIT && g->graph_node))
			continue;
		if (g->kind == KG_G_WAIT) {
			write_sync(w, h, g);
			continue;
		}
		if (g->kind == KG_G_MEMCPY || g->kind == KG_G_MEMSET)
			write_copy(w, g, h);
		else
			write_kernel(w, g, h);
		flow(w, false, h->corr, w->r->dev, kg_stream_id[g->stream], g->start, "ac2g");
		note_span(w, g, h);
	}
}

static void write_calls(struct writer *w)
{
	size_t flushed = 0;

	for (size_t i = 0; i < w->n_call; i++) {
		const struct call_ref *c = &w->call[i];

		write_call(w, &w->r->th[c->thread].op[c->hop], c->thread);
		if (i + 1 - flushed < CALLS_PER_BUFFER && i + 1 < w->n_call)
			continue;
		for (; flushed <= i; flushed++)
			write_gpu_of(w,
				     &w->r->th[w->call[flushed].thread].op[w->call[flushed].hop]);
	}
	for (size_t i = 0; i < w->n_span; i++) {
		const struct span *s = &w->span[i];
		const struct kg_hop *h = &w->r->th[s->thread].op[s->hop];

		begin_complete(w, "gpu_user_annotation", h->name, w->r->dev,
			       kg_stream_id[s->stream]);
		put_span(w, s->start, s->end);
		kg_putf(w->o, "\"External id\": %u", h->ext);
		end_args(w);
	}
}

static void metadata(struct writer *w, int64_t t, const char *what, int pid, int tid,
		     const char *args)
{
	begin_event(w);
	kg_putf(w->o, "    \"name\": \"%s\", \"ph\": \"M\", \"ts\": ", what);
	put_time(w, t);
	kg_putf(w->o, ", \"pid\": %d, \"tid\": %d,\n    \"args\": {\n      %s", pid, tid, args);
	end_args(w);
}

static void write_metadata(struct writer *w, int64_t first, int64_t last)
{
	const struct kg_rank *r = w->r;
	int devices = (w->cfg->ranks + w->cfg->hosts - 1) / w->cfg->hosts;
	char args[128];

	metadata(w, first, "process_name", r->pid, 0, "\"name\": \"python\"");
	metadata(w, first, "process_labels", r->pid, 0, "\"labels\": \"CPU\"");
	snprintf(args, sizeof(args), "\"sort_index\": %d", r->pid);
	metadata(w, first, "process_sort_index", r->pid, 0, args);
	for (int d = 0; d < devices; d++) {
		metadata(w, first, "process_name", d, 0, "\"name\": \"python\"");
		snprintf(args, sizeof(args), "\"labels\": \"GPU %d\"", d);
		metadata(w, first, "process_labels", d, 0, args);
		snprintf(args, sizeof(args), "\"sort_index\": %d", 16777216 + d);
		metadata(w, first, "process_sort_index", d, 0, args);
	}
	for (int s = 0; s < KG_NSTREAM; s++) {
		if (!r->q[s].n)
			continue;
		snprintf(args, sizeof(args), "\"name\": \"stream %d \"", kg_stream_id[s]);
		metadata(w, first, "thread_name", r->dev, kg_stream_id[s], args);
	}
	for (int i = 0; i < 2; i++) {
		snprintf(args, sizeof(args), "\"name\": \"thread %d (%s)\"", tid_of(w, i),
			 i ? "pt_autograd_0" : "python");
		metadata(w, first, "thread_name", r->pid, tid_of(w, i), args);
	}
	begin_event(w);
	kg_puts(w->o, "    \"ph\": \"X\", \"cat\": \"Trace\", \"ts\": ");
	put_time(w, first - 200000);
	kg_puts(w->o, ", \"dur\": ");
	kg_put_u64(w->o, (uint64_t)(last - first + 400000) / 1000);
	kg_puts(w->o, ",\n    \"pid\": \"Spans\", \"tid\": \"PyTorch Profiler\",\n"
		      "    \"name\": \"PyTorch Profiler (0)\",\n    \"args\": {\n"
		      "      \"Op count\": 0");
	end_args(w);
	begin_event(w);
	kg_puts(w->o, "    \"name\": \"Iteration Start: PyTorch Profiler\", \"ph\": \"i\", \"s\": "
		      "\"g\",\n    \"pid\": \"Traces\", \"tid\": \"Trace PyTorch Profiler\", "
		      "\"ts\": ");
	put_time(w, first - 200000);
	kg_puts(w->o, "\n  }");
	begin_event(w);
	kg_puts(w->o, "    \"name\": \"Record Window End\", \"ph\": \"i\", \"s\": \"g\",\n"
		      "    \"pid\": \"\", \"tid\": \"\", \"ts\": ");
	put_time(w, last + 200000);
	kg_puts(w->o, "\n  }");
}

static void write_distributed(struct writer *w)
{
	const struct kg_job *job = w->job;
	const char *sep = "";

	kg_putf(w->o,
		"  \"distributedInfo\": {\"backend\": \"nccl\", \"rank\": %d, "
		"\"world_size\": %d",
		w->r->id, w->cfg->ranks);
	if (w->cfg->record_groups) {
		kg_putf(w->o, ", \"pg_count\": %zu, \"pg_config\": [", job->n_group);
		for (size_t i = 0; i < job->n_group; i++) {
			const struct kg_group *g = &job->group[i];

			kg_putf(w->o,
				"%s{\"pg_name\": \"%d\", \"pg_desc\": \"%s\", "
				"\"backend_config\": \"cuda:nccl\", \"pg_size\": %d, \"ranks\": ",
				sep, g->id + 1, g->desc, g->n);
			put_ranks(w->o, g);
			kg_puts(w->o, "}");
			sep = ", ";
		}
		kg_puts(w->o, "], \"nccl_version\": \"2.20.5\"");
	}
	kg_puts(w->o, "},\n");
}

static void write_header(struct writer *w)
{
	int devices = (w->cfg->ranks + w->cfg->hosts - 1) / w->cfg->hosts;

	kg_puts(w->o, "\n{\n  \"schemaVersion\": 1,\n  \"deviceProperties\": [");
	for (int d = 0; d < devices; d++)
		kg_putf(w->o,
			"%s\n    {\n      \"id\": %d, \"name\": \"NVIDIA A100-SXM4-80GB\", "
			"\"totalGlobalMem\": 85174583296,\n      \"computeMajor\": 8, "
			"\"computeMinor\": 0,\n      \"maxThreadsPerBlock\": 1024, "
			"\"maxThreadsPerMultiprocessor\": 2048,\n      \"regsPerBlock\": 65536, "
			"\"regsPerMultiprocessor\": 65536, \"warpSize\": 32,\n"
			"      \"sharedMemPerBlock\": 49152, \"sharedMemPerMultiprocessor\": "
			"167936,\n      \"numSms\": %d, \"sharedMemPerBlockOptin\": 166912\n    }",
			d ? "," : "", d, NUM_SMS);
	kg_puts(w->o, "\n  ],\n");
	write_distributed(w);
	kg_puts(w->o, "  \"record_shapes\": 1,\n");
	if (w->cfg->python_stacks)
		kg_puts(w->o, "  \"with_stack\": 1,\n");
	if (!w->cfg->no_host_name)
		kg_putf(w->o, "  \"host_name\": \"node%02d\",\n", w->r->host);
	if (w->cfg->base_time)
		kg_putf(w->o, "  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": %lld,\n",
			(long long)w->base_ns);
	kg_puts(w->o, "  \"traceEvents\": [");
}

static void find_dropped(struct writer *w)
{
	/* By position, so that every group keeps some members and loses others. */
	if (!w->cfg->truncate_last || (w->r->tp + w->r->dp + w->r->pp) % 2 == 0)
		return;
	for (size_t i = 0; i < w->r->n_gop; i++) {
		const struct kg_gop *g = &w->r->gop[i];

		if (g->kind == KG_G_COLL && (!w->dropped || g->start > w->dropped->start))
			w->dropped = g;
	}
}

void kg_write_rank(const struct kg_job *job, struct kg_rank *rank)
{
	struct writer w = { .job = job, .cfg = &job->cfg, .r = rank };
	int64_t first = rank->th[0].op[0].start, last = rank->th[0].now;
	char *path;

	if (job->cfg.handler_names)
		path = kg_strf("%s/node%02d_%d.%lld.pt.trace.json%s", job->cfg.dir, rank->host,
			       rank->pid, (long long)recorded(&w, last),
			       job->cfg.gzip ? ".gz" : "");
	else
		path = kg_strf("%s/rank%d.json%s", job->cfg.dir, rank->id,
			       job->cfg.gzip ? ".gz" : "");
	/* Bases differ from host to host, so a reader which ignores them cannot get by. */
	if (job->cfg.base_time)
		w.base_ns = KG_EPOCH_NS - (rank->host + 1) * 1000000000LL;
	w.o = kg_out_open(path, job->cfg.gzip);
	number(&w);
	find_dropped(&w);
	write_header(&w);
	write_ranges(&w);
	write_calls(&w);
	write_metadata(&w, first, last);
	kg_putf(w.o, "\n  ],\n  \"traceName\": \"rank%d.json\"\n}\n", rank->id);
	kg_out_close(w.o);
	free(w.call);
	free(w.span);
	free(path);
}
