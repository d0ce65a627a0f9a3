/*
 * pool.h - one pool of threads, many queues of jobs, results in order.
 *
 * A queue takes jobs and returns their results in the same order, so output never depends on the
 * number of threads. `threads` includes the caller: with 1, every job runs inside pl_queue_put(). A
 * caller that waits for a result runs other jobs meanwhile.
 */
#ifndef PL_POOL_H
#define PL_POOL_H

#include "core/core.h"

struct pl_pool;
struct pl_queue;

/* threads: 1 = start no thread; 0 = one for each core. */
struct pl_pool *pl_pool_new(int threads, struct pl_err *err);
void pl_pool_free(struct pl_pool *p);	      /* after all its queues; NULL is allowed */
int pl_pool_threads(const struct pl_pool *p); /* 1 for NULL */

/* At most `bound` jobs are waiting or unfetched at a time. */
struct pl_queue *pl_queue_new(struct pl_pool *p, int bound, struct pl_err *err);
void pl_queue_free(struct pl_queue *q); /* runs the rest, drops the results; NULL is allowed */
/*
 * Queue fn(arg) for any thread; it reports through arg. If pl_queue_full(), fetch first.
 */
void pl_queue_put(struct pl_queue *q, void (*fn)(void *arg), void *arg);
/* The same, but the caller runs it at once: for jobs that take less time than waking a thread. */
void pl_queue_run(struct pl_queue *q, void (*fn)(void *arg), void *arg);
bool pl_queue_full(const struct pl_queue *q);
/* Waits for the oldest job, and returns its arg. NULL: the queue is empty. */
void *pl_queue_get(struct pl_queue *q);
/* The same, but NULL also when the oldest job is not finished yet: never waits. */
void *pl_queue_poll(struct pl_queue *q);

#endif
