/*
 * fake_device.h - a backend whose memory and queues are not the host's, for tests without a device;
 * for one source of a program.
 *
 * Memory is a file in memory that is mapped twice: pointers that the backend gives lie in a mapping
 * that nobody may touch, so a host that does ends at once; kernels reach it through the other one.
 * Calls that move memory are queued to a thread, as are those of the other two queues, and
 * each dawdles before it does what it was told: who forgets fork() or join() sees old numbers.
 * Kernels of networks are those of the CPU; they wait for the queue, and are done when they return.
 *
 * An item of one queue waits for one of the other by its number: fork and join are such items, a
 * mark is the number of the last item so far.
 */
#ifndef PL_FAKE_DEVICE_H
#define PL_FAKE_DEVICE_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "fake_queue.h"
#include "tensor/backend.h"

#define FAKE_ROOM ((size_t)1 << 30)   /* of addresses; pages come as they are touched */
#define OF_SUMS	  ((uint64_t)1 << 63) /* a mark of the third queue */

struct item {
	struct item *next;
	void (*fn)(void *arg);
	void *arg;
};
struct queue {
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	struct item *head, **tail;
	uint64_t put, done;
	uint64_t seed; /* of how long it dawdles */
	bool stop;
};
struct fake {
	struct fake_queue handle; /* first */
	struct queue main, side, sums;
	void *cpu;
	uint8_t *dev, *host; /* the same memory */
	size_t used;
	pthread_mutex_t lock;
};

/* ---- queues ---- */

static void *queue_main(void *arg)
{
	struct queue *q = arg;

	pthread_mutex_lock(&q->lock);
	for (;;) {
		struct item *i = q->head;
		struct timespec nap = { 0, 0 };

		if (!i && q->stop)
			break;
		if (!i) {
			pthread_cond_wait(&q->changed, &q->lock);
			continue;
		}
		q->head = i->next;
		if (!q->head)
			q->tail = &q->head;
		pthread_mutex_unlock(&q->lock);
		nap.tv_nsec = (long)(pl_rng_next(&q->seed) % 60000);
		nanosleep(&nap, NULL);
		i->fn(i->arg);
		free(i);
		pthread_mutex_lock(&q->lock);
		q->done++;
		pthread_cond_broadcast(&q->changed);
	}
	pthread_mutex_unlock(&q->lock);
	return NULL;
}

static void queue_open(struct queue *q, uint64_t seed)
{
	q->tail = &q->head;
	q->seed = seed;
	pthread_mutex_init(&q->lock, NULL);
	pthread_cond_init(&q->changed, NULL);
	if (pthread_create(&q->thread, NULL, queue_main, q))
		abort();
}

static uint64_t queue_put(struct queue *q, void (*fn)(void *arg), void *arg)
{
	struct item *i = calloc(1, sizeof(*i));
	uint64_t n;

	if (!i)
		abort();
	i->fn = fn;
	i->arg = arg;
	pthread_mutex_lock(&q->lock);
	*q->tail = i;
	q->tail = &i->next;
	n = ++q->put;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	return n;
}

static uint64_t queue_last(struct queue *q)
{
	uint64_t n;

	pthread_mutex_lock(&q->lock);
	n = q->put;
	pthread_mutex_unlock(&q->lock);
	return n;
}

static void queue_until(struct queue *q, uint64_t n)
{
	pthread_mutex_lock(&q->lock);
	while (q->done < n)
		pthread_cond_wait(&q->changed, &q->lock);
	pthread_mutex_unlock(&q->lock);
}

static void queue_close(struct queue *q)
{
	pthread_mutex_lock(&q->lock);
	q->stop = true;
	pthread_cond_broadcast(&q->changed);
	pthread_mutex_unlock(&q->lock);
	pthread_join(q->thread, NULL);
}

struct until {
	struct queue *q;
	uint64_t n;
};

static void wait_item(void *arg)
{
	struct until *u = arg;

	queue_until(u->q, u->n);
	free(u);
}

/* What is put into q from now on waits for what was put into `of`. */
static void queue_after(struct queue *q, struct queue *of)
{
	struct until *u = malloc(sizeof(*u));

	if (!u)
		abort();
	*u = (struct until){ of, queue_last(of) };
	queue_put(q, wait_item, u);
}

/* ---- memory ---- */

static void *reach(struct fake *f, const void *p)
{
	const uint8_t *b = p;

	if (b >= f->dev && b < f->dev + FAKE_ROOM)
		return f->host + (b - f->dev);
	return (void *)(uintptr_t)b;
}

struct move {
	void *dst;
	const void *src; /* NULL: zeros */
	size_t bytes;
	void *own;
};

static void move_item(void *arg)
{
	struct move *m = arg;

	if (m->src)
		memmove(m->dst, m->src, m->bytes);
	else
		memset(m->dst, 0, m->bytes);
	free(m->own);
	free(m);
}

static uint64_t move(struct fake *f, struct queue *q, void *dst, const void *src, size_t bytes,
		     void *own)
{
	struct move *m = malloc(sizeof(*m));

	if (!m)
		abort();
	*m = (struct move){ reach(f, dst), src ? reach(f, src) : NULL, bytes, own };
	return queue_put(q, move_item, m);
}

static void side_put(struct fake_queue *h, void (*fn)(void *arg), void *arg)
{
	queue_put(&((struct fake *)(void *)h)->side, fn, arg);
}

static void *side_reach(struct fake_queue *h, const void *p)
{
	return reach((struct fake *)(void *)h, p);
}

static int fake_open(const struct pl_backend_opts *o, void **ctx, struct pl_err *err)
{
	struct fake *f = calloc(1, sizeof(*f));
	int fd = memfd_create("fake-device", MFD_CLOEXEC);
	char where[80];

	*ctx = f;
	if (!f || fd < 0 || ftruncate(fd, (off_t)FAKE_ROOM) < 0)
		return pl_fail_sys(err, "fake device");
	f->handle = (struct fake_queue){ side_put, side_reach };
	f->dev = mmap(NULL, FAKE_ROOM, PROT_NONE, MAP_SHARED, fd, 0);
	f->host = mmap(NULL, FAKE_ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (f->dev == MAP_FAILED || f->host == MAP_FAILED)
		return pl_fail_sys(err, "fake device");
	snprintf(where, sizeof(where), "%p %p %zu", (void *)f->dev, (void *)f->host, FAKE_ROOM);
	setenv("FAKE_DEVICE", where, 1); /* for aware_mpi.c */
	pthread_mutex_init(&f->lock, NULL);
	queue_open(&f->main, 11);
	queue_open(&f->side, 22);
	queue_open(&f->sums, 33);
	return pl_backend_cpu.open(o, &f->cpu, err);
}

static void fake_close(void *ctx)
{
	struct fake *f = ctx;

	queue_close(&f->main);
	queue_close(&f->side);
	queue_close(&f->sums);
	pl_backend_cpu.close(f->cpu);
	munmap(f->dev, FAKE_ROOM);
	munmap(f->host, FAKE_ROOM);
	free(f);
}

static void *fake_alloc(void *ctx, size_t bytes)
{
	struct fake *f = ctx;
	void *p = NULL;

	if (pl_fail_now())
		return NULL;
	bytes = (bytes + 63) & ~(size_t)63;
	pthread_mutex_lock(&f->lock);
	if (bytes <= FAKE_ROOM - f->used) {
		p = f->dev + f->used;
		f->used += bytes;
	}
	pthread_mutex_unlock(&f->lock);
	return p;
}

static void fake_free(void *ctx, void *p)
{
	(void)ctx; /* nothing is used twice, so what was freed is never right again */
	(void)p;
}

static void fake_put(void *ctx, void *dst, const void *host, size_t bytes)
{
	void *own = malloc(bytes ? bytes : 1);

	if (!own)
		abort();
	memcpy(own, host, bytes);
	move(ctx, &((struct fake *)ctx)->main, dst, own, bytes, own);
}

static void fake_get(void *ctx, void *host, const void *src, size_t bytes)
{
	struct fake *f = ctx;

	queue_until(&f->main, move(f, &f->main, host, src, bytes, NULL));
}

static void fake_copy(void *ctx, void *dst, const void *src, size_t bytes)
{
	move(ctx, &((struct fake *)ctx)->main, dst, src, bytes, NULL);
}

static void fake_zero(void *ctx, void *p, size_t bytes)
{
	move(ctx, &((struct fake *)ctx)->main, p, NULL, bytes, NULL);
}

/* ---- waiting ---- */

static int fake_sync(void *ctx, struct pl_err *err)
{
	struct fake *f = ctx;

	(void)err;
	queue_until(&f->main, queue_last(&f->main));
	return 0;
}

static void *fake_comm_stream(void *ctx)
{
	return ctx;
}

static void fake_fork(void *ctx)
{
	struct fake *f = ctx;

	queue_after(&f->side, &f->main);
}

static void fake_join(void *ctx)
{
	struct fake *f = ctx;

	queue_after(&f->main, &f->side);
}

static void fake_copy_async(void *ctx, void *dst, const void *src, size_t bytes)
{
	move(ctx, &((struct fake *)ctx)->side, dst, src, bytes, NULL);
}

struct sum {
	const float *a, *b;
	float *d;
	size_t n;
};

static void sum_item(void *arg)
{
	struct sum *s = arg;

	for (size_t i = 0; i < s->n; i++)
		s->d[i] = s->b ? s->a[i] + s->b[i] : s->a[i];
	free(s);
}

static void hang_item(void *arg)
{
	(void)arg;
	for (;;)
		pause();
}

/* FAKE_DEVICE_HANG=N: it hangs before the N-th. */
static uint64_t fake_sum_async(void *ctx, size_t n, const float *a, const float *b, float *d)
{
	const char *hang = getenv("FAKE_DEVICE_HANG");
	static int sums;
	struct fake *f = ctx;
	struct sum *s = malloc(sizeof(*s));

	if (!s)
		abort();
	if (hang && ++sums == atoi(hang))
		queue_put(&f->sums, hang_item, NULL);
	*s = (struct sum){ reach(f, a), b ? reach(f, b) : NULL, reach(f, d), n };
	return queue_put(&f->sums, sum_item, s) | OF_SUMS;
}

static uint64_t fake_event_record(void *ctx)
{
	return queue_last(&((struct fake *)ctx)->side);
}

static int fake_event_passed(void *ctx, uint64_t mark, struct pl_err *err)
{
	struct fake *f = ctx;
	struct queue *q = mark & OF_SUMS ? &f->sums : &f->side;
	bool over;

	(void)err;
	pthread_mutex_lock(&q->lock);
	over = q->done >= (mark & ~OF_SUMS);
	pthread_mutex_unlock(&q->lock);
	return over;
}

static int fake_idle(void *ctx, struct pl_err *err)
{
	return fake_event_passed(ctx, fake_event_record(ctx), err);
}

static void fake_pin(void *ctx, void *host, size_t bytes, bool on)
{
	(void)ctx;
	(void)host;
	(void)bytes;
	(void)on;
}

/* ---- kernels ---- */

/* All that was queued is done; kernels are when they return. */
static struct fake *idle(void *ctx)
{
	struct fake *f = ctx;

	queue_until(&f->main, queue_last(&f->main));
	return f;
}

#define F     struct fake *f = idle(ctx)
#define C     f->cpu
#define D(p)  reach(f, p)
#define ON(x) pl_backend_cpu.x

static void fake_graph(void *ctx, uint64_t id)
{
	(void)ctx;
	(void)id;
}

static void fake_vary(void *ctx, const struct pl_vary *v)
{
	F;
	ON(vary)(C, v);
}

static void fake_weights(void *ctx, const float *slab, size_t n)
{
	(void)ctx;
	(void)slab;
	(void)n;
}

static void fake_precision(void *ctx, enum pl_precision p)
{
	F;
	ON(precision)(C, p);
}

static void fake_gemm(void *ctx, bool ta, bool tb, int m, int n, int k, const float *a, int lda,
		      const float *b, int ldb, float beta, float *c, int ldc)
{
	F;
	ON(gemm)(C, ta, tb, m, n, k, D(a), lda, D(b), ldb, beta, D(c), ldc);
}

static void fake_load(void *ctx, size_t n, const float *x, float *y)
{
	F;
	ON(load)(C, n, D(x), D(y));
}

static void fake_dense(void *ctx, int n, int c, int k, const float *x, const float *w,
		       const float *bias, enum pl_act act, float *pre, float *y)
{
	F;
	ON(dense)(C, n, c, k, D(x), D(w), D(bias), act, D(pre), D(y));
}

static void fake_dense_back(void *ctx, int n, int c, int k, const float *x, const float *w,
			    enum pl_act act, const float *pre, const float *y, float *dy,
			    const float *from, float *dx, float *dw, float *db)
{
	F;
	ON(dense_back)
	(C, n, c, k, D(x), D(w), act, D(pre), D(y), D(dy), D(from), D(dx), D(dw), D(db));
}

static void fake_act(void *ctx, enum pl_act act, size_t n, const float *x, float *y)
{
	F;
	ON(act)(C, act, n, D(x), D(y));
}

static void fake_act_back(void *ctx, enum pl_act act, size_t n, const float *x, const float *y,
			  const float *dy, float *dx)
{
	F;
	ON(act_back)(C, act, n, D(x), D(y), D(dy), D(dx));
}

static void fake_batchnorm(void *ctx, int n, int c, int s, const float *x, const float *gamma,
			   const float *beta, float eps, float momentum, bool eval, float *running,
			   float *save, float *y)
{
	F;
	ON(batchnorm)
	(C, n, c, s, D(x), D(gamma), D(beta), eps, momentum, eval, D(running), D(save), D(y));
}

static void fake_batchnorm_back(void *ctx, int n, int c, int s, const float *x, const float *gamma,
				const float *save, const float *dy, float *dx, float *dgamma,
				float *dbeta)
{
	F;
	ON(batchnorm_back)
	(C, n, c, s, D(x), D(gamma), D(save), D(dy), D(dx), D(dgamma), D(dbeta));
}

static void fake_layernorm(void *ctx, int n, int c, const float *x, const float *gamma,
			   const float *beta, float eps, float *save, float *y)
{
	F;
	ON(layernorm)(C, n, c, D(x), D(gamma), D(beta), eps, D(save), D(y));
}

static void fake_layernorm_back(void *ctx, int n, int c, const float *x, const float *gamma,
				const float *save, const float *dy, float *dx, float *dgamma,
				float *dbeta)
{
	F;
	ON(layernorm_back)(C, n, c, D(x), D(gamma), D(save), D(dy), D(dx), D(dgamma), D(dbeta));
}

static void fake_dropout(void *ctx, size_t n, float p, uint64_t salt, const float *x, float *y)
{
	F;
	ON(dropout)(C, n, p, salt, D(x), D(y));
}

static void fake_add(void *ctx, size_t n, const float *a, const float *b, float *y)
{
	F;
	ON(add)(C, n, D(a), D(b), D(y));
}

static void fake_softmax_xent(void *ctx, int n, int c, const float *x, const int32_t *y,
			      float scale, float *dx, struct pl_loss_sum *sum)
{
	F;
	ON(softmax_xent)(C, n, c, D(x), D(y), scale, D(dx), D(sum));
}

static void fake_squared(void *ctx, int n, int c, const float *x, const float *y, float scale,
			 float *dx, struct pl_loss_sum *sum)
{
	F;
	ON(squared)(C, n, c, D(x), D(y), scale, D(dx), D(sum));
}

static void fake_sgd(void *ctx, size_t first, size_t n, float momentum,
		     const struct pl_decay *decay, bool nesterov, const float *g, float *v,
		     float *w)
{
	F;
	ON(sgd)(C, first, n, momentum, decay, nesterov, D(g), D(v), D(w));
}

static void fake_adam(void *ctx, size_t first, size_t n, float b1, float b2, float eps,
		      const struct pl_decay *decay, bool decoupled, const float *g, float *m,
		      float *v, float *w)
{
	F;
	ON(adam)(C, first, n, b1, b2, eps, decay, decoupled, D(g), D(m), D(v), D(w));
}

static void fake_clip(void *ctx, size_t n, double limit, float *x)
{
	F;
	ON(clip)(C, n, limit, D(x));
}

static double fake_sum_squares(void *ctx, size_t n, const float *x)
{
	F;
	return ON(sum_squares)(C, n, D(x));
}

static void fake_scale(void *ctx, size_t n, float s, float *x)
{
	F;
	ON(scale)(C, n, s, D(x));
}

/* Without what networks of the tests that use it do not have. */
__attribute__((unused)) static const struct pl_backend pl_backend_fake = {
	.name = "fake",
	.device = true,
	.open = fake_open,
	.close = fake_close,
	.alloc = fake_alloc,
	.free = fake_free,
	.put = fake_put,
	.get = fake_get,
	.copy = fake_copy,
	.zero = fake_zero,
	.sync = fake_sync,
	.graph = fake_graph,
	.vary = fake_vary,
	.weights = fake_weights,
	.comm_stream = fake_comm_stream,
	.fork = fake_fork,
	.join = fake_join,
	.copy_async = fake_copy_async,
	.sum_async = fake_sum_async,
	.event_record = fake_event_record,
	.event_passed = fake_event_passed,
	.idle = fake_idle,
	.pin = fake_pin,
	.precision = fake_precision,
	.gemm = fake_gemm,
	.load = fake_load,
	.dense = fake_dense,
	.dense_back = fake_dense_back,
	.act = fake_act,
	.act_back = fake_act_back,
	.batchnorm = fake_batchnorm,
	.batchnorm_back = fake_batchnorm_back,
	.layernorm = fake_layernorm,
	.layernorm_back = fake_layernorm_back,
	.dropout = fake_dropout,
	.add = fake_add,
	.softmax_xent = fake_softmax_xent,
	.squared = fake_squared,
	.sgd = fake_sgd,
	.adam = fake_adam,
	.clip = fake_clip,
	.sum_squares = fake_sum_squares,
	.scale = fake_scale,
};

#undef F
#undef C
#undef D
#undef ON
#endif
