/*
 * devrank - a rank of a launcher's job that puts a world over MPI to the test of device_fixture.h,
 * with memory of a device that stands in for a real one, or of the one that run(1) would take; for
 * tests/cli/mpi_device.t and tests/gpu.
 *
 * usage: mpirun -n N devrank [SEGMENT [cuda|late|hang|large]]
 *
 * SEGMENT: bytes of a message (0: as the world likes)
 *
 * late: in place of all that, an operation ends while one that was begun later cannot begin, since
 * what is before it in the first queue takes long. hang: an all-gather, in which the device of a
 * rank (FAKE_DEVICE_HANG=1) hangs in the copy of that rank's own part; all say whose. large:
 * messages that are longer than a segment of the host's, some of which pass through the host.
 */
#include "../unit/device_fixture.h"

#include <stdatomic.h>

#include "../emu/fake_device.h"
#include "tensor/plugin.h"

static void until_let(void *let)
{
	while (!atomic_load((_Atomic bool *)let))
		nap_ms(1);
}

static int late(struct pl_world_opts *o)
{
	static _Atomic bool let;
	struct pl_err e = { 0 };
	struct trip first, second;
	struct rank r;

	NEED(open_rank(o, &pl_backend_fake, &r, &e) == 0);
	NEED(prepare(&r, &first, PL_OP_ALLREDUCE, 50000, true, 1));
	NEED(prepare(&r, &second, PL_OP_ALLREDUCE, 50000, true, 2));
	load(&r, &first);
	NEED(pl_comm_world_begin(r.w, &first.a, &first.work, &e) == 0);
	queue_put(&((struct fake *)r.ctx)->main, until_let, (void *)&let);
	load(&r, &second);
	NEED(pl_comm_world_begin(r.w, &second.a, &second.work, &e) == 0);
	NEED(pl_comm_work_wait(first.work, &e) == 0);
	atomic_store(&let, true);
	r.b->copy(r.ctx, first.copy, first.dst, first.n_dst * sizeof(float));
	NEED(pl_comm_work_wait(second.work, &e) == 0);
	r.b->copy(r.ctx, second.copy, second.dst, second.n_dst * sizeof(float));
	NEED(check(&r, &first) && check(&r, &second));
	return close_rank(&r, &e) == 0 ? 0 : 1;
}

static int hang(struct pl_world_opts *o)
{
	struct pl_err e = { 0 };
	struct trip t;
	struct rank r;

	o->meet_ns = o->timeout_ns; /* ranks may start one long after the other */
	o->timeout_ns = 600000000;
	NEED(open_rank(o, &pl_backend_fake, &r, &e) == 0);
	NEED(prepare(&r, &t, PL_OP_ALLGATHER, 50000, false, 1));
	load(&r, &t);
	NEED(pl_comm_world_begin(r.w, &t.a, &t.work, &e) == 0);
	if (pl_comm_work_wait(t.work, &e) == 0)
		NEED(pl_comm_world_do(r.w, &(struct pl_coll_args){ .op = PL_OP_BARRIER }, &e) < 0);
	fprintf(stderr, "devrank: %s\n", e.msg);
	_exit(1); /* the device's queue never ends */
}

static int large(struct pl_world_opts *o)
{
	enum { COUNT = 100000 };
	static float v[COUNT];
	struct pl_coll_args a = {
		.op = PL_OP_ALLREDUCE, .count = COUNT, .src = v, .dst = v, .on_host = true
	};
	struct pl_err e = { 0 };
	struct trip t;
	struct rank r;

	NEED(open_rank(o, &pl_backend_fake, &r, &e) == 0);
	NEED(overlap(o, &r, COUNT) == 0);
	NEED(prepare(&r, &t, PL_OP_ALLREDUCE, COUNT, true, 1));
	t.a.algo = PL_CA_DIRECT;
	load(&r, &t);
	NEED(pl_comm_world_do(r.w, &t.a, &e) == 0);
	r.b->copy(r.ctx, t.copy, t.dst, t.n_dst * sizeof(float));
	NEED(pl_comm_world_settle(r.w, &e) == 0);
	NEED(check(&r, &t));
	for (size_t i = 0; i < COUNT; i++)
		v[i] = input(o->rank, i, 2);
	NEED(pl_comm_world_do(r.w, &a, &e) == 0);
	for (size_t i = 0; i < COUNT; i++)
		NEED(v[i] == expected(&a, o->rank, o->size, i, 2));
	return close_rank(&r, &e) == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	const struct pl_backend *b = &pl_backend_fake;
	struct pl_world_opts o = { .transport = "mpi", .timeout_ns = 20000000000 };
	struct pl_launch l;
	struct pl_err e = { 0 };
	int rc = pl_comm_launch_find(&l, &e);

	if (rc == 0)
		rc = pl_comm_launch_share(&l, o.timeout_ns, &e);
	if (rc == 0 && argc > 2 && !strcmp(argv[2], "cuda"))
		rc = pl_backend_cuda(&b, &e);
	if (rc < 0) {
		fprintf(stderr, "devrank: %s\n", e.msg);
		return 2;
	}
	o.rank = l.rank;
	o.size = l.size;
	o.meet = l.meet;
	o.token = l.token;
	o.segment = argc > 1 ? (size_t)atol(argv[1]) : 0;
	alarm(60);
	if (argc > 2 && !strcmp(argv[2], "hang"))
		return hang(&o);
	if (argc > 2 && !strcmp(argv[2], "late"))
		rc = late(&o);
	else if (argc > 2 && !strcmp(argv[2], "large"))
		rc = large(&o);
	else
		rc = everything(&o, b);
	pl_comm_launch_unshare(&l);
	return rc;
}
