/* fake_queue.h - the handle of the second queue of the fake device: what fake_nccl.c may do with
 * it. */
#ifndef PL_FAKE_QUEUE_H
#define PL_FAKE_QUEUE_H

struct fake_queue {
	/* fn(arg) when all before it in the queue is done */
	void (*put)(struct fake_queue *q, void (*fn)(void *arg), void *arg);
	void *(*reach)(struct fake_queue *q, const void *p); /* memory that kernels may touch */
};

#endif
