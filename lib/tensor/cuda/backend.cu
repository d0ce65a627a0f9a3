/*
 * backend.cu - the CUDA backend: a context, its memory and streams, and the table.
 *
 * Operations are queued in one stream, in order. A second stream is for communication, and events
 * order the two. A third stream, independent of both, sums received data. Only get(), sync() and
 * sum_squares() wait for the device. Batches are copied through a few pinned buffers by turns, so
 * that the caller can continue during the copy. Operations are our own kernels (kernels.h) or
 * products (matmul.cu); both may be recorded (graph.cu).
 * products (matmul.cu); both may be recorded (graph.cu).
 */
#include <stdlib.h>
#include <string.h>

#include "tensor/cuda/context.h"

#define NEED_MAJOR 8 /* compute capability: bfloat16 in tensor cores, asynchronous copies */

/* ---- opening -----------------------------------------------------------------------------------
 */

static int no_devices(cudaError_t e, struct pl_err *err)
{
	int driver = 0, runtime = 0;

	cudaDriverGetVersion(&driver);
	cudaRuntimeGetVersion(&runtime);
	if (!driver)
		return pl_fail(err, PL_EABSENT,
			       "no NVIDIA driver is installed here (libcuda.so.1 cannot be "
			       "loaded); run on a machine with one, or with device cpu");
	if (e == cudaErrorInsufficientDriver)
		return pl_fail(err, PL_EABSENT,
			       "the NVIDIA driver is for CUDA %d.%d, this backend was built with "
			       "%d.%d; a newer driver is needed, or a build with an older toolkit",
			       driver / 1000, driver % 1000 / 10, runtime / 1000,
			       runtime % 1000 / 10);
	if (e == cudaSuccess || e == cudaErrorNoDevice)
		return pl_fail(err, PL_EABSENT,
			       "no CUDA device is here, or CUDA_VISIBLE_DEVICES hides them all; "
			       "device cpu needs none");
	return pl_fail(err, PL_EABSENT, "CUDA devices cannot be listed: %s (%s)",
		       cudaGetErrorString(e), cudaGetErrorName(e));
}

/* Choose a device that can run the code of this build. */
static int choose_device(struct pl_cuda *c, const struct pl_backend_opts *o, struct pl_err *err)
{
	struct cudaDeviceProp prop;
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);

	if (e != cudaSuccess || n < 1)
		return no_devices(e, err);
	c->device = o->device < 0 ? o->local_rank % n : o->device;
	if (c->device >= n)
		return pl_fail(err, PL_EABSENT, "there is no device cuda:%d, %s %d of them%s",
			       c->device, n == 1 ? "there is" : "there are", n,
			       n == 1 ? " (cuda:0)" : ", from cuda:0");
	e = cudaSetDevice(c->device);
	if (e == cudaSuccess)
		e = cudaGetDeviceProperties(&prop, c->device);
	if (e != cudaSuccess)
		return pl_fail(err, PL_EABSENT, "device cuda:%d cannot be used: %s (%s)", c->device,
			       cudaGetErrorString(e), cudaGetErrorName(e));
	if (prop.major < NEED_MAJOR)
		return pl_fail(
			err, PL_EABSENT,
			"device cuda:%d, %.100s, is of compute capability %d.%d; the backend "
			"needs %d.0 or newer (A100, H100 and their like)",
			c->device, prop.name, prop.major, prop.minor, NEED_MAJOR);
	c->k.sms = prop.multiProcessorCount;
	c->k.hopper = prop.major == 9 && prop.minor == 0;
	c->k.shared = prop.sharedMemPerBlockOptin;
	return 0;
}

static cudaError_t make_queue(struct pl_cuda_queue *q)
{
	cudaError_t e = cudaStreamCreateWithFlags(&q->stream, cudaStreamNonBlocking);

	for (int i = 0; i < PL_CUDA_MARKS && e == cudaSuccess; i++)
		e = cudaEventCreateWithFlags(&q->mark[i], cudaEventDisableTiming);
	return e;
}

static int make_queues(struct pl_cuda *c, struct pl_err *err)
{
	const unsigned plain = cudaEventDisableTiming;
	cudaError_t e = cudaStreamCreateWithFlags(&c->k.stream, cudaStreamNonBlocking);

	if (e == cudaSuccess)
		e = make_queue(&c->side);
	if (e == cudaSuccess)
		e = make_queue(&c->sums);
	if (e == cudaSuccess)
		e = cudaStreamCreateWithFlags(&c->clear, cudaStreamNonBlocking);
	if (e == cudaSuccess)
		e = cudaEventCreateWithFlags(&c->forked, plain);
	if (e == cudaSuccess)
		e = cudaEventCreateWithFlags(&c->joined, plain);
	for (int i = 0; i < PL_CUDA_STAGES && e == cudaSuccess; i++) {
		e = cudaMallocHost(&c->stage[i].p, PL_CUDA_STAGE);
		if (e == cudaSuccess)
			e = cudaEventCreateWithFlags(&c->stage[i].over, plain);
	}
	if (e == cudaSuccess)
		e = cudaMalloc((void **)&c->vary, sizeof(*c->vary));
	if (e == cudaSuccess) {
		plk_zero(&c->k, c->vary, sizeof(*c->vary));
		/* the first kernel: does the build have code for this device? */
		plk_scale(&c->k, 1, 1, (float *)c->vary);
	}
	if (e == cudaSuccess)
		e = cudaStreamSynchronize(c->k.stream);
	if (e == cudaSuccess)
		e = cudaGetLastError();
	if (e == cudaSuccess)
		return 0;
	return pl_fail(err, e == cudaErrorMemoryAllocation ? PL_ENOMEM : PL_EABSENT,
		       "device cuda:%d cannot be set up: %s (%s)", c->device, cudaGetErrorString(e),
		       cudaGetErrorName(e));
}

static void cuda_close(void *ctx)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	if (!c)
		return;
	if (c->k.stream)
		cudaStreamSynchronize(c->k.stream);
	c->now = NULL;
	c->mode = PL_CUDA_RUN;
	pl_cuda_forget_graphs(c);
	pl_cuda_products_close(c);
	pl_cuda_conv_close(c);
	for (int i = 0; i < PL_CUDA_STAGES; i++) {
		if (c->stage[i].p)
			cudaFreeHost(c->stage[i].p);
		if (c->stage[i].over)
			cudaEventDestroy(c->stage[i].over);
	}
	for (void *p : { (void *)c->vary, c->half, c->k.scratch })
		if (p)
			cudaFree(p);
	for (cudaEvent_t e : { c->forked, c->joined })
		if (e)
			cudaEventDestroy(e);
	for (struct pl_cuda_queue *q : { &c->side, &c->sums })
		for (cudaEvent_t e : q->mark)
			if (e)
				cudaEventDestroy(e);
	pthread_mutex_destroy(&c->mark_lock);
	for (cudaStream_t s : { c->k.stream, c->side.stream, c->sums.stream, c->clear })
		if (s)
			cudaStreamDestroy(s);
	pl_free(c);
}

static int cuda_open(const struct pl_backend_opts *o, void **ctx, struct pl_err *err)
{
	const char *said = getenv(PL_CUDA_ENV);
	struct pl_cuda *c = NULL;
	int rc;

	*ctx = NULL;
	PL_TRY(pl_alloc(&c, 1, sizeof(*c), err));
	pthread_mutex_init(&c->mark_lock, NULL);
	PL_TRY(choose_device(c, o, err));
	c->k.bf16 = o->store == PL_STORE_BF16;
	c->eager = said && strstr(said, "eager");
	c->plain = said && strstr(said, "plain");
	PL_TRY(make_queues(c, err));
	PL_TRY(pl_cuda_products_open(c, err));
	*ctx = c;
	return 0;
out:
	cuda_close(c);
	return rc;
}

/* ---- memory ------------------------------------------------------------------------------------
 */

/* Any thread may call it, also while the first stream is being recorded: so memory is cleared in
 * its own stream. */
static void *cuda_alloc(void *ctx, size_t bytes)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	cudaError_t e = cudaSetDevice(c->device);
	void *p = NULL;

	if (e == cudaSuccess)
		e = pl_fail_now() ? cudaErrorMemoryAllocation : cudaMalloc(&p, bytes ? bytes : 1);
	if (e == cudaSuccess)
		e = cudaMemsetAsync(p, 0, bytes, c->clear);
	if (e == cudaSuccess)
		e = cudaStreamSynchronize(c->clear);
	if (e == cudaSuccess)
		return p;
	cudaFree(p);
	cudaGetLastError(); /* NULL reports it; the next launch must not */
	return NULL;
}

static void cuda_free(void *ctx, void *p)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	cudaSetDevice(c->device); /* otherwise the first call of a thread opens device 0 */
	if (p)
		pl_cuda_note(c, cudaFree(p), "giving memory back");
}

static void cuda_room(void *ctx, size_t *room, size_t *total)
{
	pl_cuda_note((struct pl_cuda *)ctx, cudaMemGetInfo(room, total), "asking for free memory");
}

bool pl_cuda_room(struct pl_cuda *c, void **p, size_t *have, size_t bytes)
{
	size_t more = bytes + bytes / 8;

	if (bytes <= *have)
		return true;
	if (*p) { /* cudaFree() waits for running operations */
		pl_cuda_forget_graphs(c);
		cudaFree(*p);
	}
	*p = NULL;
	*have = 0;
	if (cudaMalloc(p, more) != cudaSuccess) {
		cudaGetLastError();
		return false;
	}
	*have = more;
	return true;
}

bool pl_cuda_scratch(struct pl_cuda *c, size_t bytes)
{
	char what[96];

	if (pl_cuda_room(c, &c->k.scratch, &c->k.scratch_bytes, bytes))
		return true;
	snprintf(what, sizeof(what), "scratch memory of kernels, %zu bytes", bytes + bytes / 8);
	pl_cuda_note(c, cudaErrorMemoryAllocation, what);
	return false;
}

static void cuda_put(void *ctx, void *dst, const void *host, size_t bytes)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	for (size_t at = 0; at < bytes; at += PL_CUDA_STAGE) {
		struct pl_cuda_stage *s = &c->stage[c->n_staged++ % PL_CUDA_STAGES];
		size_t n = pl_min_size(PL_CUDA_STAGE, bytes - at);

		if (s->busy)
			pl_cuda_note(c, cudaEventSynchronize(s->over), "copying to the device");
		memcpy(s->p, (const char *)host + at, n);
		pl_cuda_note(c,
			     cudaMemcpyAsync((char *)dst + at, s->p, n, cudaMemcpyHostToDevice,
					     c->k.stream),
			     "copying to the device");
		pl_cuda_note(c, cudaEventRecord(s->over, c->k.stream), "copying to the device");
		s->busy = true;
	}
}

static void cuda_get(void *ctx, void *host, const void *src, size_t bytes)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	cudaError_t e = cudaMemcpyAsync(host, src, bytes, cudaMemcpyDeviceToHost, c->k.stream);

	pl_cuda_note(c, e, "copying from the device");
	pl_cuda_note(c, cudaStreamSynchronize(c->k.stream), "copying from the device");
}

static void cuda_copy(void *ctx, void *dst, const void *src, size_t bytes)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	if (pl_cuda_go(c, dst))
		pl_cuda_note(
			c, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDeviceToDevice, c->k.stream),
			"copying within the device");
}

static void cuda_zero(void *ctx, void *p, size_t bytes)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	if (!pl_cuda_go(c, p))
		return;
	pl_cuda_note(c, cudaMemsetAsync(p, 0, bytes, c->k.stream), "clearing memory");
}

static int cuda_sync(void *ctx, struct pl_err *err)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	pl_cuda_note(c, cudaStreamSynchronize(c->k.stream), "waiting for the device");
	if (c->failed == cudaSuccess)
		return 0;
	return pl_fail(err, c->failed == cudaErrorMemoryAllocation ? PL_ENOMEM : PL_EIO,
		       "device cuda:%d: %s: %s (%s)", c->device, c->what,
		       cudaGetErrorString(c->failed), cudaGetErrorName(c->failed));
}

static void cuda_pin(void *ctx, void *host, size_t bytes, bool on)
{
	cudaSetDevice(((struct pl_cuda *)ctx)->device);
	if ((on ? cudaHostRegister(host, bytes, cudaHostRegisterDefault)
		: cudaHostUnregister(host)) != cudaSuccess)
		cudaGetLastError(); /* copies are slower then */
}

/* ---- what varies, parameters -------------------------------------------------------------------
 */

static void cuda_vary(void *ctx, const struct pl_vary *v)
{
	cuda_put(ctx, ((struct pl_cuda *)ctx)->vary, v, sizeof(*v));
}

static void cuda_weights(void *ctx, const float *slab, size_t n)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	if (!c->k.bf16)
		return;
	if (c->half && (c->slab != slab || c->n_slab != n)) {
		pl_cuda_forget_graphs(c);
		pl_cuda_note(c, cudaFree(c->half), "giving memory back");
		c->half = NULL;
	}
	c->slab = slab;
	c->n_slab = n;
	if (!n)
		return;
	if (!c->half)
		c->half = cuda_alloc(ctx, 2 * n);
	if (!c->half)
		pl_cuda_note(c, cudaErrorMemoryAllocation, "a copy of the parameters in bfloat16");
	else
		plk_round(&c->k, n, slab, c->half);
	pl_cuda_done(c, "weights");
}

void *pl_cuda_half(const struct pl_cuda *c, const float *w, size_t n)
{
	bool in = c->half && w >= c->slab && w + n <= c->slab + c->n_slab;

	return in ? (char *)c->half + 2 * (size_t)(w - c->slab) : NULL;
}

/* ---- the second queue --------------------------------------------------------------------------
 */

static void *cuda_comm_stream(void *ctx)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	/* the caller gives it to a library, which uses the thread's device */
	cudaSetDevice(c->device);
	return c->side.stream;
}

static void after(struct pl_cuda *c, cudaStream_t first, cudaEvent_t e, cudaStream_t then)
{
	pl_cuda_note(c, cudaEventRecord(e, first), "holding two queues together");
	pl_cuda_note(c, cudaStreamWaitEvent(then, e, 0), "holding two queues together");
}

static void cuda_fork(void *ctx)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	pl_cuda_cut(c);
	after(c, c->k.stream, c->forked, c->side.stream);
	pl_cuda_cut_over(c);
}

static void cuda_join(void *ctx)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	pl_cuda_cut(c);
	after(c, c->side.stream, c->joined, c->k.stream);
	pl_cuda_cut_over(c);
}

/* Any thread may call it, so event_passed() reports failures. */
static void note_in(struct pl_cuda *c, struct pl_cuda_queue *q, cudaError_t e)
{
	pthread_mutex_lock(&c->mark_lock);
	if (q->failed == cudaSuccess)
		q->failed = e;
	pthread_mutex_unlock(&c->mark_lock);
}

static void cuda_copy_async(void *ctx, void *dst, const void *src, size_t bytes)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	cudaSetDevice(c->device);
	note_in(c, &c->side, cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, c->side.stream));
}

static int cuda_idle(void *ctx, struct pl_err *err)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	cudaError_t e = cudaSetDevice(c->device);

	if (e == cudaSuccess)
		e = cudaPeekAtLastError(); /* of this thread: of a copy that did not begin */
	if (e == cudaSuccess || e == cudaErrorNotReady)
		e = cudaStreamQuery(c->side.stream);
	if (e == cudaSuccess)
		return 1;
	if (e == cudaErrorNotReady) {
		cudaGetLastError();
		return 0;
	}
	return pl_fail(err, PL_EIO, "device cuda:%d: communication: %s (%s)", c->device,
		       cudaGetErrorString(e), cudaGetErrorName(e));
}

static uint64_t mark_in(struct pl_cuda *c, struct pl_cuda_queue *q)
{
	cudaError_t e = cudaSetDevice(c->device);
	uint64_t n;

	pthread_mutex_lock(&c->mark_lock);
	n = ++q->marks;
	if (e == cudaSuccess)
		e = cudaEventRecord(q->mark[n % PL_CUDA_MARKS], q->stream);
	if (q->failed == cudaSuccess)
		q->failed = e;
	pthread_mutex_unlock(&c->mark_lock);
	return n;
}

static uint64_t cuda_event_record(void *ctx)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;

	return mark_in(c, &c->side);
}

#define OF_SUMS ((uint64_t)1 << 63) /* an event of the third stream */

/* Another thread may be launching a kernel, so this only reads constant members of the context. */
static uint64_t cuda_sum_async(void *ctx, size_t n, const float *a, const float *b, float *d)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	struct plk k = {};

	cudaSetDevice(c->device);
	k.stream = c->sums.stream;
	k.sms = c->k.sms;
	cudaGetLastError(); /* clears "not ready" of an earlier query; a permanent failure stays */
	if (b)
		plk_add(&k, n, a, b, d);
	else
		cudaMemcpyAsync(d, a, n * sizeof(*a), cudaMemcpyDeviceToDevice, k.stream);
	note_in(c, &c->sums, cudaGetLastError());
	return mark_in(c, &c->sums) | OF_SUMS;
}

/* If a later event uses the place of this one, query the later one. */
static int cuda_event_passed(void *ctx, uint64_t mark, struct pl_err *err)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	struct pl_cuda_queue *q = mark & OF_SUMS ? &c->sums : &c->side;
	cudaError_t e = cudaSetDevice(c->device);
	bool over;

	mark &= ~OF_SUMS;
	pthread_mutex_lock(&c->mark_lock);
	if (e == cudaSuccess)
		e = q->failed;
	while (q->passed < mark && e == cudaSuccess) {
		uint64_t next = q->passed + 1;

		if (next + PL_CUDA_MARKS <= q->marks)
			next = q->marks - PL_CUDA_MARKS + 1;
		e = cudaEventQuery(q->mark[next % PL_CUDA_MARKS]);
		if (e == cudaSuccess)
			q->passed = next;
	}
	over = q->passed >= mark;
	pthread_mutex_unlock(&c->mark_lock);
	if (e == cudaErrorNotReady)
		cudaGetLastError();
	if (over || e == cudaErrorNotReady)
		return over;
	return pl_fail(err, PL_EIO, "device cuda:%d: communication: %s (%s)", c->device,
		       cudaGetErrorString(e), cudaGetErrorName(e));
}

/* ---- kernels -----------------------------------------------------------------------------------
 */

static void cuda_precision(void *ctx, enum pl_precision p)
{
	((struct pl_cuda *)ctx)->k.precision = p;
}

static void cuda_adds(void *ctx, bool adds)
{
	((struct pl_cuda *)ctx)->k.fresh = !adds;
}

/* A call of the table. It does nothing while a recorded sequence is launched; `need`: bytes of
 * scratch memory. */
#define CALL(what, to, need, ...)                                                                  \
	struct pl_cuda *c_ = (struct pl_cuda *)ctx;                                                \
	const struct plk *k = &c_->k;                                                              \
                                                                                                   \
	if (!pl_cuda_go(c_, to) || !pl_cuda_scratch(c_, need))                                     \
		return;                                                                            \
	__VA_ARGS__;                                                                               \
	pl_cuda_done(c_, what)

static void cuda_load(void *ctx, size_t n, const float *x, float *y)
{
	CALL("load", y, 0, plk_load(k, n, x, y));
}

static void cuda_act(void *ctx, enum pl_act act, size_t n, const float *x, float *y)
{
	CALL("act", y, 0, plk_act(k, act, n, x, y));
}

static void cuda_act_back(void *ctx, enum pl_act act, size_t n, const float *x, const float *y,
			  const float *dy, float *dx)
{
	CALL("act_back", dx, 0, plk_act_back(k, act, n, x, y, dy, dx));
}

static void cuda_pool(void *ctx, const struct pl_pool2d *d, const float *x, float *y, int32_t *at)
{
	CALL("pool", y, 0, plk_pool(k, d, x, y, at));
}

static void cuda_pool_back(void *ctx, const struct pl_pool2d *d, const int32_t *at, const float *dy,
			   float *dx)
{
	CALL("pool_back", dx, 0, plk_pool_back(k, d, at, dy, dx));
}

static void cuda_batchnorm(void *ctx, int n, int c, int s, const float *x, const float *gamma,
			   const float *beta, float eps, float momentum, bool eval, float *running,
			   float *save, float *y)
{
	CALL("batchnorm", y, plk_batchnorm_scratch(k, n, c, s),
	     plk_batchnorm(k, n, c, s, x, gamma, beta, eps, momentum, eval, running, save, y));
}

static void cuda_batchnorm_back(void *ctx, int n, int c, int s, const float *x, const float *gamma,
				const float *save, const float *dy, float *dx, float *dgamma,
				float *dbeta)
{
	CALL("batchnorm_back", dx, plk_batchnorm_scratch(k, n, c, s),
	     plk_batchnorm_back(k, n, c, s, x, gamma, save, dy, dx, dgamma, dbeta));
}

static void cuda_layernorm(void *ctx, int n, int c, const float *x, const float *gamma,
			   const float *beta, float eps, float *save, float *y)
{
	CALL("layernorm", y, 0, plk_layernorm(k, n, c, x, gamma, beta, eps, save, y));
}

static void cuda_layernorm_back(void *ctx, int n, int c, const float *x, const float *gamma,
				const float *save, const float *dy, float *dx, float *dgamma,
				float *dbeta)
{
	CALL("layernorm_back", dx, plk_rows_scratch(k, n, c),
	     plk_layernorm_back(k, n, c, x, gamma, save, dy, dx, dgamma, dbeta));
}

static void cuda_add_layernorm(void *ctx, int n, int c, const float *a, const float *b, float *sum,
			       const float *gamma, const float *beta, float eps, float *save,
			       float *y)
{
	CALL("add_layernorm", y, 0,
	     plk_add_layernorm(k, n, c, a, b, sum, gamma, beta, eps, save, y));
}

static void cuda_layernorm_back_add(void *ctx, int n, int c, const float *x, const float *gamma,
				    const float *save, const float *dy, const float *more,
				    float *dx, float *dgamma, float *dbeta)
{
	CALL("layernorm_back_add", dx, plk_rows_scratch(k, n, c),
	     plk_layernorm_back_add(k, n, c, x, gamma, save, dy, more, dx, dgamma, dbeta));
}

static void cuda_embed(void *ctx, int n, int c, const int32_t *id, const float *table,
		       const float *position, int t, float *y)
{
	CALL("embed", y, 0, plk_embed(k, n, c, id, table, position, t, y));
}

static void cuda_embed_back(void *ctx, int n, int c, const int32_t *id, int t, const float *dy,
			    float *dtable, float *dposition)
{
	CALL("embed_back", dtable, plk_embed_scratch(k, n, c),
	     plk_embed_back(k, n, c, id, t, dy, dtable, dposition));
}

static void cuda_attn(void *ctx, const struct pl_attn *d, const float *qkv, float *y, float *save)
{
	CALL("attn", y, plk_attn_scratch(k, d), plk_attn(k, d, qkv, y, save));
}

static void cuda_attn_back(void *ctx, const struct pl_attn *d, const float *qkv, const float *y,
			   const float *save, const float *dy, float *dqkv)
{
	CALL("attn_back", dqkv, plk_attn_scratch(k, d),
	     plk_attn_back(k, d, qkv, y, save, dy, dqkv));
}

static void cuda_dropout(void *ctx, size_t n, float p, uint64_t salt, const float *x, float *y)
{
	CALL("dropout", y, 0, plk_dropout(k, n, p, c_->vary, salt, x, y));
}

static void cuda_add(void *ctx, size_t n, const float *a, const float *b, float *y)
{
	CALL("add", y, 0, plk_add(k, n, a, b, y));
}

static void cuda_softmax_xent(void *ctx, int n, int c, const float *x, const int32_t *y,
			      float scale, float *dx, struct pl_loss_sum *sum)
{
	CALL("softmax_xent", sum, plk_rows_scratch(k, n, c),
	     plk_softmax_xent(k, n, c, x, y, scale, dx, sum));
}

static void cuda_squared(void *ctx, int n, int c, const float *x, const float *y, float scale,
			 float *dx, struct pl_loss_sum *sum)
{
	CALL("squared", sum, plk_rows_scratch(k, n, c), plk_squared(k, n, c, x, y, scale, dx, sum));
}

static void cuda_hinge(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
		       float *dx, struct pl_loss_sum *sum)
{
	CALL("hinge", sum, plk_rows_scratch(k, n, c), plk_hinge(k, n, c, x, y, scale, dx, sum));
}

static void cuda_sgd(void *ctx, size_t first, size_t n, float momentum,
		     const struct pl_decay *decay, bool nesterov, const float *g, float *v,
		     float *w)
{
	CALL("sgd", w + first, 0,
	     plk_sgd(k, first, n, c_->vary, momentum, decay, nesterov, g, v, w,
		     pl_cuda_half(c_, w + first, n)));
}

static void cuda_adam(void *ctx, size_t first, size_t n, float b1, float b2, float eps,
		      const struct pl_decay *decay, bool decoupled, const float *g, float *m,
		      float *v, float *w)
{
	CALL("adam", w + first, 0,
	     plk_adam(k, first, n, c_->vary, b1, b2, eps, decay, decoupled, g, m, v, w,
		      pl_cuda_half(c_, w + first, n)));
}

static void cuda_clip(void *ctx, size_t n, double limit, float *x)
{
	CALL("clip", x, plk_sum_scratch(k), plk_clip(k, n, limit, x));
}

static double cuda_sum_squares(void *ctx, size_t n, const float *x)
{
	struct pl_cuda *c = (struct pl_cuda *)ctx;
	size_t at = pl_cuda_place(plk_sum_scratch(&c->k));
	double sum = NAN, *to;

	if (!pl_cuda_scratch(c, at + sizeof(sum)))
		return sum;
	to = (double *)((char *)c->k.scratch + at);
	plk_sum_squares(&c->k, n, x, to);
	pl_cuda_done(c, "sum_squares");
	cuda_get(ctx, &sum, to, sizeof(sum));
	return sum;
}

static void cuda_scale(void *ctx, size_t n, float f, float *x)
{
	CALL("scale", x, 0, plk_scale(k, n, f, x));
}

/* In the order of the table, because C++17 has no designated initialisers. */
extern const struct pl_device_trace pl_cuda_trace; /* traced.cu */

static struct pl_backend table()
{
	struct pl_backend b = {};

	b.name = "cuda";
	b.device = b.half = true;
	b.open = cuda_open, b.close = cuda_close;
	b.alloc = cuda_alloc, b.free = cuda_free, b.room = cuda_room;
	b.put = cuda_put, b.get = cuda_get, b.copy = cuda_copy, b.zero = cuda_zero;
	b.sync = cuda_sync, b.graph = pl_cuda_record, b.vary = cuda_vary, b.weights = cuda_weights;
	b.comm_stream = cuda_comm_stream, b.fork = cuda_fork, b.join = cuda_join,
	b.copy_async = cuda_copy_async;
	b.sum_async = cuda_sum_async;
	b.idle = cuda_idle, b.event_record = cuda_event_record, b.event_passed = cuda_event_passed,
	b.pin = cuda_pin;
	b.trace = &pl_cuda_trace, b.remarks = pl_cuda_remarks;
	b.precision = cuda_precision, b.adds = cuda_adds, b.gemm = pl_cuda_gemm, b.load = cuda_load;
	b.dense = pl_cuda_dense, b.dense_back = pl_cuda_dense_back;
	b.act = cuda_act, b.act_back = cuda_act_back;
	b.conv_work = pl_cuda_conv_work, b.conv = pl_cuda_conv, b.conv_back = pl_cuda_conv_back;
	b.pool = cuda_pool, b.pool_back = cuda_pool_back;
	b.batchnorm = cuda_batchnorm, b.batchnorm_back = cuda_batchnorm_back;
	b.layernorm = cuda_layernorm, b.layernorm_back = cuda_layernorm_back;
	b.add_layernorm = cuda_add_layernorm, b.layernorm_back_add = cuda_layernorm_back_add;
	b.embed = cuda_embed, b.embed_back = cuda_embed_back;
	b.attn_save = pl_cuda_attn_save, b.attn = cuda_attn, b.attn_back = cuda_attn_back;
	b.dropout = cuda_dropout, b.add = cuda_add;
	b.softmax_xent = cuda_softmax_xent, b.squared = cuda_squared, b.hinge = cuda_hinge;
	b.sgd = cuda_sgd, b.adam = cuda_adam, b.clip = cuda_clip;
	b.sum_squares = cuda_sum_squares, b.scale = cuda_scale;
	return b;
}

extern "C" const struct pl_backend pl_backend_cuda_table = table();
