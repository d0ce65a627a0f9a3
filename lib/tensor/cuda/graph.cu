/*
 * graph.cu - calls recorded and launched again (CUDA graphs).
 *
 * A step of a network is some hundred launches of 2 to 5 us each on the host; a recorded sequence
 * is one launch. The network makes the same calls as before. While a recorded sequence is launched,
 * they return at once, and only a hash of their result addresses is computed, which must equal that
 * of the recording. Values that change from step to step are in memory of the device (vary()) and
 * are written there before.
 */
#include "tensor/cuda/context.h"

#define RECORDING "recording a pass (" PL_CUDA_ENV "=eager does without)"

void pl_cuda_note(struct pl_cuda *c, cudaError_t e, const char *what)
{
	if (e == cudaSuccess || c->failed != cudaSuccess)
		return;
	c->failed = e;
	snprintf(c->what, sizeof(c->what), "%s", what);
}

bool pl_cuda_go(struct pl_cuda *c, const void *p)
{
	if (c->now)
		c->calls = (c->calls ^ (uint64_t)(uintptr_t)p) * 0x9e3779b97f4a7c15u + 1;
	return c->mode != PL_CUDA_LAUNCH;
}

void pl_cuda_done(struct pl_cuda *c, const char *what)
{
	pl_cuda_note(c, cudaGetLastError(), what);
}

/* ---- parts ------------------------------------------------------------------------------------
 */

static void free_parts(struct pl_cuda_graph *g)
{
	for (size_t i = 0; i < g->n_parts; i++)
		if (g->part[i])
			cudaGraphExecDestroy(g->part[i]);
	pl_free(g->part);
	memset(g, 0, sizeof(*g));
}

void pl_cuda_forget_graphs(struct pl_cuda *c)
{
	if (c->mode == PL_CUDA_RECORD) /* the current recording is invalid, too */
		pl_cuda_note(c, cudaErrorStreamCaptureInvalidated, RECORDING);
	for (int i = 0; i < PL_CUDA_GRAPHS; i++)
		if (&c->graph[i] != c->now)
			free_parts(&c->graph[i]);
}

/* The mode is relaxed, because during a recording the thread may query events and allocate staging
 * memory. CUDA refuses these calls otherwise, and the recording is lost. */
static void begin_part(struct pl_cuda *c)
{
	c->cut_calls = c->calls;
	pl_cuda_note(c, cudaStreamBeginCapture(c->k.stream, cudaStreamCaptureModeRelaxed),
		     RECORDING);
}

/* The calls recorded since the last cut become a part; no calls: no part. */
static void end_part(struct pl_cuda *c)
{
	struct pl_cuda_graph *g = c->now;
	cudaGraph_t graph = NULL;
	cudaGraphExec_t exec = NULL;
	cudaError_t e = cudaStreamEndCapture(c->k.stream, &graph);

	if (e == cudaSuccess && c->calls != c->cut_calls)
		e = cudaGraphInstantiate(&exec, graph, 0);
	if (graph)
		cudaGraphDestroy(graph);
	if (e == cudaSuccess &&
	    pl_grow(&g->part, &g->cap_parts, g->n_parts + 1, sizeof(*g->part), NULL) < 0) {
		cudaGraphExecDestroy(exec);
		e = cudaErrorMemoryAllocation;
	}
	pl_cuda_note(c, e, RECORDING);
	if (e == cudaSuccess)
		g->part[g->n_parts++] = exec;
}

static void launch_part(struct pl_cuda *c)
{
	struct pl_cuda_graph *g = c->now;

	if (c->part >= g->n_parts)
		pl_cuda_note(c, cudaErrorInvalidValue, "a pass that is not the recorded one");
	else if (g->part[c->part])
		pl_cuda_note(c, cudaGraphLaunch(g->part[c->part], c->k.stream),
			     "launching a recorded pass");
	c->part++;
}

void pl_cuda_cut(struct pl_cuda *c)
{
	if (c->mode == PL_CUDA_RECORD)
		end_part(c);
	if (c->mode != PL_CUDA_RUN)
		launch_part(c);
}

void pl_cuda_cut_over(struct pl_cuda *c)
{
	if (c->mode == PL_CUDA_RECORD)
		begin_part(c);
}

/* ---- sequences ---------------------------------------------------------------------------------
 */

/* The sequence of this number, or an unused place, or the place of the sequence that was unused for
 * longest. */
static struct pl_cuda_graph *find(struct pl_cuda *c, uint64_t id)
{
	struct pl_cuda_graph *oldest = &c->graph[0];

	for (int i = 0; i < PL_CUDA_GRAPHS; i++) {
		if (c->graph[i].id == id)
			return &c->graph[i];
		if (c->graph[i].used < oldest->used)
			oldest = &c->graph[i];
	}
	if (oldest->id)
		free_parts(oldest);
	oldest->id = id;
	return oldest;
}

static void end(struct pl_cuda *c)
{
	struct pl_cuda_graph *g = c->now;

	if (!g)
		return;
	pl_cuda_cut(c);
	if (c->mode == PL_CUDA_LAUNCH && (c->calls != g->calls || c->part != g->n_parts))
		pl_cuda_note(c, cudaErrorInvalidValue, "a pass that is not the recorded one");
	if (c->mode == PL_CUDA_RECORD) {
		g->calls = c->calls;
		g->ready = c->failed == cudaSuccess;
	}
	g->ran = true;
	c->now = NULL;
	c->mode = PL_CUDA_RUN;
}

void pl_cuda_record(void *ctx, uint64_t id)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	end(c);
	if (!id || c->eager)
		return;
	c->now = find(c, id);
	c->now->used = ++c->n_used;
	c->calls = c->part = 0;
	if (c->now->ready)
		c->mode = PL_CUDA_LAUNCH;
	else if (c->now->ran && !c->now->n_parts && c->failed == cudaSuccess)
		c->mode = PL_CUDA_RECORD;
	pl_cuda_cut_over(c);
}
