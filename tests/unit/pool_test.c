/*
 * pool: results in order, whatever the number of threads; nothing is lost, run twice or stuck.
 *
 * runner: threads
 */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "tap.h"

struct task {
	uint64_t in, out;
	atomic_int runs;
	struct pl_pool *pool; /* of a task that has tasks of its own */
};

static uint64_t work(uint64_t x)
{
	uint64_t state = x, sum = 0;
	unsigned rounds = (unsigned)(x * 7919 % 997); /* some take longer than others */

	for (unsigned i = 0; i <= rounds; i++)
		sum ^= pl_rng_next(&state);
	return sum;
}

static void run_task(void *arg)
{
	struct task *t = arg;

	t->out = work(t->in);
	atomic_fetch_add(&t->runs, 1);
}

/* Put and fetch as a reader or writer of blocks does. */
static void test_order(int threads, int bound, bool poll)
{
	enum { N = 3000 };
	struct pl_err err = { 0 };
	struct pl_pool *p = pl_pool_new(threads, &err);
	struct pl_queue *q = pl_queue_new(p, bound, &err);
	struct task *task = calloc(N, sizeof(*task));
	uint32_t next = 0, right = 0;
	struct task *t;

	for (uint32_t i = 0; i < N; i++) {
		while (pl_queue_full(q) || (poll && next + 1 < i)) {
			t = poll ? pl_queue_poll(q) : pl_queue_get(q);
			if (poll && !t && !pl_queue_full(q))
				break;
			if (!t)
				t = pl_queue_get(q);
			right += t == &task[next] && t->out == work(t->in) && t->runs == 1;
			next++;
		}
		task[i].in = i;
		(i % 3 ? pl_queue_put : pl_queue_run)(q, run_task, &task[i]);
	}
	while ((t = pl_queue_get(q))) {
		right += t == &task[next] && t->out == work(t->in) && t->runs == 1;
		next++;
	}
	is_i64(right, N, poll ? "polled: all in order" : "fetched: all in order");
	ok(!pl_queue_poll(q) && !pl_queue_get(q), "threads %d, bound %d: then it is empty", threads,
	   bound);
	pl_queue_free(q);
	pl_pool_free(p);
	free(task);
}

/* What nobody fetches has run when the queue is gone. */
static void test_drop(int threads)
{
	struct pl_err err = { 0 };
	struct pl_pool *p = pl_pool_new(threads, &err);
	struct pl_queue *q = pl_queue_new(p, 40, &err);
	struct task task[40];
	int runs = 0;

	memset(task, 0, sizeof(task));
	for (int i = 0; i < 40; i++)
		pl_queue_put(q, run_task, &task[i]);
	ok(pl_queue_full(q), "a queue can be full");
	pl_queue_free(q);
	for (int i = 0; i < 40; i++)
		runs += task[i].runs;
	is_i64(runs, 40, "what is left runs, once");
	pl_pool_free(p);
}

/* A job that uses the pool itself, as the import of one file of many does. */
static void run_nested(void *arg)
{
	struct task *t = arg;
	struct pl_err err = { 0 };
	struct pl_queue *q = pl_queue_new(t->pool, 4, &err);
	struct task inner[16], *done;

	memset(inner, 0, sizeof(inner));
	for (size_t i = 0; i < PL_LEN(inner); i++) {
		if (pl_queue_full(q) && (done = pl_queue_get(q)))
			t->out += done->out;
		inner[i].in = t->in * 100 + i;
		pl_queue_put(q, run_task, &inner[i]);
	}
	while ((done = pl_queue_get(q)))
		t->out += done->out;
	pl_queue_free(q);
}

static void test_nested(int threads)
{
	enum { N = 60 };
	struct pl_err err = { 0 };
	struct pl_pool *p = pl_pool_new(threads, &err);
	struct pl_queue *q = pl_queue_new(p, 8, &err);
	struct task task[N], *t;
	int right = 0, fetched = 0;

	memset(task, 0, sizeof(task));
	for (int i = 0; i < N || (t = pl_queue_get(q)); i++) {
		uint64_t want = 0;

		t = i < N && !pl_queue_full(q) ? NULL : i < N ? pl_queue_get(q) : t;
		if (i < N) {
			task[i].in = (uint64_t)i;
			task[i].pool = p;
			pl_queue_put(q, run_nested, &task[i]);
		}
		if (!t)
			continue;
		for (uint64_t k = 0; k < 16; k++)
			want += work(t->in * 100 + k);
		right += t == &task[fetched++] && t->out == want;
	}
	is_i64(right, N, "queues inside jobs");
	pl_queue_free(q);
	pl_pool_free(p);
}

int main(void)
{
	static const int threads[] = { 1, 2, 4, 9 };
	struct pl_err err = { 0 };
	struct pl_pool *p = pl_pool_new(3, &err);

	is_i64(pl_pool_threads(p), 3, "a pool of three threads");
	is_i64(pl_pool_threads(NULL), 1, "none is one");
	pl_pool_free(p);
	pl_pool_free(NULL);
	pl_queue_free(NULL);
	for (size_t i = 0; i < PL_LEN(threads); i++) {
		test_order(threads[i], 1, false);
		test_order(threads[i], 7, false);
		test_order(threads[i], 64, true);
		test_drop(threads[i]);
		test_nested(threads[i]);
	}
	return done_testing();
}
