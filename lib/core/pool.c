/*
 * The pool: one list of runnable jobs under one lock; each queue keeps its jobs in a ring in the
 * order of arrival. Jobs are coarse (a block to deflate, a file to import: 0.1 ms and more), so one
 * lock is enough. A caller that waits runs jobs itself, so a pool of 1 needs no thread, and a queue
 * inside a job cannot starve.
 */
#include <errno.h>
#include <pthread.h>
#include <unistd.h>

#include "core/pool.h"

enum state { WAITING, RUNNING, DONE };

struct job {
	void (*fn)(void *arg);
	void *arg;
	struct job *next; /* in the pool's list of runnable jobs */
	enum state state;
};

struct pl_queue {
	struct pl_pool *pool;
	struct job *ring;
	unsigned bound, head, n;
};

struct pl_pool {
	pthread_mutex_t lock;
	pthread_cond_t work, done;
	struct job *first, **last;
	pthread_t *thread;
	int n_threads; /* started threads, without the caller */
	bool stop;
};

/* The caller holds the lock. Runs the oldest waiting job, if any. */
static bool run_one(struct pl_pool *p)
{
	struct job *j = p->first;

	if (!j)
		return false;
	p->first = j->next;
	if (!p->first)
		p->last = &p->first;
	j->state = RUNNING;
	pthread_mutex_unlock(&p->lock);
	j->fn(j->arg);
	pthread_mutex_lock(&p->lock);
	j->state = DONE;
	pthread_cond_broadcast(&p->done);
	return true;
}

static void *worker(void *arg)
{
	struct pl_pool *p = arg;

	pthread_mutex_lock(&p->lock);
	while (!p->stop) {
		if (!run_one(p))
			pthread_cond_wait(&p->work, &p->lock);
	}
	pthread_mutex_unlock(&p->lock);
	return NULL;
}

struct pl_pool *pl_pool_new(int threads, struct pl_err *err)
{
	struct pl_pool *p;

	if (threads <= 0)
		threads = pl_processors();
	if (pl_alloc(&p, 1, sizeof(*p), err) < 0)
		return NULL;
	pthread_mutex_init(&p->lock, NULL);
	pthread_cond_init(&p->work, NULL);
	pthread_cond_init(&p->done, NULL);
	p->last = &p->first;
	if (pl_alloc(&p->thread, (size_t)threads, sizeof(*p->thread), err) < 0) {
		pl_pool_free(p);
		return NULL;
	}
	for (int i = 0; i + 1 < threads; i++) {
		int e = pl_fail_now() ? EAGAIN : pthread_create(&p->thread[i], NULL, worker, p);

		if (e) /* fewer threads, or none, give the same output */
			break;
		p->n_threads++;
	}
	return p;
}

void pl_pool_free(struct pl_pool *p)
{
	if (!p)
		return;
	pthread_mutex_lock(&p->lock);
	p->stop = true;
	pthread_cond_broadcast(&p->work);
	pthread_mutex_unlock(&p->lock);
	for (int i = 0; i < p->n_threads; i++)
		pthread_join(p->thread[i], NULL);
	pthread_cond_destroy(&p->work);
	pthread_cond_destroy(&p->done);
	pthread_mutex_destroy(&p->lock);
	pl_free(p->thread);
	pl_free(p);
}

int pl_pool_threads(const struct pl_pool *p)
{
	return p ? p->n_threads + 1 : 1;
}

struct pl_queue *pl_queue_new(struct pl_pool *p, int bound, struct pl_err *err)
{
	struct pl_queue *q;

	if (pl_alloc(&q, 1, sizeof(*q), err) < 0)
		return NULL;
	q->pool = p;
	q->bound = bound < 1 ? 1 : (unsigned)bound;
	if (pl_alloc(&q->ring, q->bound, sizeof(*q->ring), err) < 0) {
		pl_free(q);
		return NULL;
	}
	return q;
}

void pl_queue_free(struct pl_queue *q)
{
	if (!q)
		return;
	while (pl_queue_get(q))
		;
	pl_free(q->ring);
	pl_free(q);
}

bool pl_queue_full(const struct pl_queue *q)
{
	return q->n == q->bound;
}

static struct job *add(struct pl_queue *q, void (*fn)(void *arg), void *arg, enum state state)
{
	struct job *j = &q->ring[(q->head + q->n++) % q->bound];

	*j = (struct job){ .fn = fn, .arg = arg, .state = state };
	return j;
}

void pl_queue_run(struct pl_queue *q, void (*fn)(void *arg), void *arg)
{
	add(q, fn, arg, DONE);
	fn(arg);
}

void pl_queue_put(struct pl_queue *q, void (*fn)(void *arg), void *arg)
{
	struct pl_pool *p = q->pool;
	struct job *j;

	if (!p || !p->n_threads) {
		pl_queue_run(q, fn, arg);
		return;
	}
	j = add(q, fn, arg, WAITING);
	pthread_mutex_lock(&p->lock);
	*p->last = j;
	p->last = &j->next;
	pthread_cond_signal(&p->work);
	pthread_mutex_unlock(&p->lock);
}

static void *fetch(struct pl_queue *q, bool wait)
{
	struct job *j = &q->ring[q->head];
	struct pl_pool *p = q->pool;
	bool done = true;

	if (!q->n)
		return NULL;
	if (p && p->n_threads) {
		pthread_mutex_lock(&p->lock);
		while (wait && j->state != DONE) {
			/* another thread runs the job: run another job meanwhile */
			if (!run_one(p))
				pthread_cond_wait(&p->done, &p->lock);
		}
		done = j->state == DONE;
		pthread_mutex_unlock(&p->lock);
	}
	if (!done)
		return NULL;
	q->head = (q->head + 1) % q->bound;
	q->n--;
	return j->arg;
}

void *pl_queue_get(struct pl_queue *q)
{
	return fetch(q, true);
}

void *pl_queue_poll(struct pl_queue *q)
{
	return fetch(q, false);
}
