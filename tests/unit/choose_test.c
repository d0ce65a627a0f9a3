/*
 * Which algorithm: where MPI reaches memory of devices, what is large enough to lie there is not
 * summed by all from all, which would stage it; and where ranks outnumber processors.
 */
#include "comm/internal.h"
#include "tap.h"

static uint8_t chosen(const struct pl_world *w, size_t bytes)
{
	return pl_comm_algo(w, PL_OP_ALLREDUCE, PL_CA_AUTO, bytes);
}

int main(void)
{
	struct pl_world w = { .segment = (size_t)4 << 20 };
	int bad = 0, small = 0;

	for (w.size = 2; w.size <= 1024; w.size += 1 + w.size / 8)
		for (int each = 1; each <= w.size; each *= 2) { /* ranks of a host */
			w.n_hosts = (w.size + each - 1) / each;
			for (int p = 1; p <= 64; p *= 4) {
				w.processors = w.n_hosts == 1 ? p : w.size;
				for (size_t n = (size_t)64 << 10; n <= (size_t)1 << 31; n *= 2)
					bad += pl_comm_algo(&w, PL_OP_ALLREDUCE, PL_CA_AUTO, n) ==
					       PL_CA_DIRECT;
				small += pl_comm_algo(&w, PL_OP_ALLREDUCE, PL_CA_AUTO, 16) ==
					 PL_CA_DIRECT;
			}
		}
	is_i64(bad, 0, "from 64 KiB on no sum is direct by itself");
	ok(small > 0, "a small one may be");
	/* Measured over loopback: ring 2.8 ms, tree 2.2, halving 2.1 (4 MiB); tree 61 us, halving
	 * 80, ring 86 (128 KiB). */
	w.size = 3;
	w.n_hosts = 1;
	w.segment = (size_t)256 << 10;
	w.processors = 2;
	is_i64(chosen(&w, (size_t)4 << 20), PL_CA_HALVING,
	       "three ranks on two processors: a ring would take two turns a hop");
	is_i64(chosen(&w, (size_t)128 << 10), PL_CA_TREE, "... less goes over a tree");
	/* 256 KiB: tree less than halving by 1.1 to 1.4 times, of 8 ranks by 1.2 to 1.35 */
	is_i64(chosen(&w, (size_t)256 << 10), PL_CA_TREE, "... and a little more");
	w.size = 8;
	is_i64(chosen(&w, (size_t)256 << 10), PL_CA_TREE, "... and that of eight ranks");
	is_i64(chosen(&w, (size_t)1 << 20), PL_CA_HALVING, "... but no large one");
	w.size = w.processors = 3;
	is_i64(chosen(&w, (size_t)4 << 20), PL_CA_RING, "on three processors it is a ring");
	return done_testing();
}
