/*
 * Events of a device that are joined while it works: the halves of a pair come at different joins,
 * and what never finds its other half does not stay for ever.
 *
 * runner: threads
 */
#include <stdlib.h>
#include <unistd.h>

#include "record/device.h"
#include "record_fixture.h"
#include "tap.h"

#define KERNEL "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)"

static char path[64];
static struct pl_device_join *join;
static struct pl_recorder *rec;

static bool begin(void)
{
	const struct pl_rec_opts o = {
		.path = path, .rank = 0, .size = 1, .host = "box", .level = 1
	};
	struct pl_err err = { 0 };

	return ok(pl_rec_open(&o, &rec, &err) == 0 &&
			  pl_device_join_new(rec, PL_NONE, 0, &join, &err) == 0,
		  "a trace: %s", err.msg);
}

static bool end(struct pl_trace *t)
{
	struct pl_err err = { 0 };

	pl_device_join_now(join, true);
	pl_device_join_free(join);
	return ok(pl_rec_close(rec, NULL, &err) == 0 && load(path, t, &err) == 0 && t->n_segs == 1,
		  "... is whole: %s", err.msg);
}

static void tell(struct pl_device_event e)
{
	pl_device_join_event(join, &e);
}

static void launch(uint64_t corr, uint64_t number)
{
	struct pl_device_event e = pl_device_event(PL_DEV_LAUNCH, NULL, 0, 0, corr);

	e.launch = number;
	tell(e);
}

static void collective(uint64_t number, int64_t seq)
{
	struct pl_device_event e = pl_device_event(PL_DEV_COMM, "ncclAllReduce", 100, 100, 0);

	e.launch = number;
	e.group = "world";
	e.seq = seq;
	tell(e);
}

static void kernel(uint64_t corr)
{
	struct pl_device_event e = pl_device_event(PL_DEV_KERNEL, KERNEL, 200, 300, corr);

	e.stream = 7;
	tell(e);
}

/* A buffer of the source that is not full comes later than the one before. */
static void test_late_kernel(void)
{
	struct pl_trace t = { 0 };

	if (!begin())
		return;
	launch(5, 1);
	collective(1, 0);
	launch(6, 2);
	collective(2, 1);
	pl_device_join_now(join, false);
	kernel(6);
	pl_device_join_now(join, false);
	pl_device_join_now(join, false);
	kernel(5);
	if (end(&t))
		ok(t.seg[0]->n == 2 && t.seg[0]->seq && t.seg[0]->seq[0] + t.seg[0]->seq[1] == 1,
		   "kernels that come later have the numbers of their collectives");
	pl_trace_fini(&t);
}

static void test_late_wait(void)
{
	struct pl_device_event e = pl_device_event(PL_DEV_RECORD, NULL, 0, 0, 0);
	struct pl_trace t = { 0 };

	if (!begin())
		return;
	e.event = 9;
	e.stream = 3;
	for (e.corr = 10; e.corr < 13; e.corr++)
		tell(e);
	pl_device_join_now(join, false);
	e = pl_device_event(PL_DEV_WAIT, NULL, 100, 100, 11);
	e.event = 9;
	e.stream = 4;
	tell(e);
	if (end(&t))
		ok(t.seg[0]->n == 1 && t.seg[0]->wait_corr && t.seg[0]->wait_corr[0] == 10,
		   "a wait that comes later finds the record before it");
	pl_trace_fini(&t);
}

static void test_bounds(void)
{
	struct pl_trace t = { 0 };

	if (!begin())
		return;
	for (unsigned i = 0; i < 200000; i++) {
		collective(1000000 + i, i); /* of launches that are not told */
		kernel(1 + i);
		if (i % 50000 == 0)
			pl_device_join_now(join, false);
	}
	pl_device_join_now(join, false);
	ok(pl_device_join_lost(join) > 100000, "collectives without a kernel are counted");
	if (end(&t))
		is_i64((long long)t.seg[0]->n, 200000, "kernels without a collective are written");
	pl_trace_fini(&t);
}

int main(void)
{
	snprintf(path, sizeof(path), "/tmp/device_join_test.%ld", (long)getpid());
	test_late_kernel();
	test_late_wait();
	test_bounds();
	unlink(path);
	return done_testing();
}
