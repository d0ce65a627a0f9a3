/*
 * The choice of an algorithm: large sums are never direct, because MPI would stage what lies in
 * memory of devices; and where ranks share processors, messages and turns count.
 */
#include "comm/internal.h"
#include "tap.h"

static uint8_t chosen(struct pl_world *w, int ranks, size_t bytes)
{
	w->size = ranks;
	return pl_comm_algo(w, PL_OP_ALLREDUCE, PL_CA_AUTO, bytes);
}

/* How often a tree is chosen for more bytes than an algorithm with more messages. */
static int back_to_tree(struct pl_world *w, int ranks)
{
	bool parts = false;
	int n = 0;

	for (size_t bytes = 1024; bytes <= (size_t)64 << 20; bytes *= 2) {
		uint8_t algo = chosen(w, ranks, bytes);

		parts |= algo == PL_CA_HALVING || algo == PL_CA_RING;
		n += parts && algo == PL_CA_TREE;
	}
	return n;
}

int main(void)
{
	struct pl_world w = { .segment = (size_t)4 << 20 };
	int bad = 0, small = 0, other = 0;

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
	/*
	 * Measured over loopback on two processors, in us. Three ranks: ring 145, tree 94, halving
	 * 140 (128 KiB); 796, 638, 708 (1 MiB); 1591, 1365, 1492 (2 MiB). Four: 437, 279, 354 (256
	 * KiB); 1292, 1176, 1048 (1 MiB). Eight: 1643, 1234, 1344 (512 KiB); 3505, 3138, 3020 (1
	 * MiB).
	 */
	w.n_hosts = 1;
	w.segment = (size_t)256 << 10;
	w.processors = 2;
	for (size_t n = (size_t)128 << 10; n <= (size_t)64 << 20; n *= 2)
		other += chosen(&w, 3, n) != PL_CA_TREE;
	is_i64(other, 0, "three ranks on two processors use a tree, in which no rank forwards");
	is_i64(chosen(&w, 4, (size_t)256 << 10), PL_CA_TREE,
	       "four ranks: a message costs a change of process, and a tree has fewest");
	is_i64(chosen(&w, 4, (size_t)1 << 20), PL_CA_HALVING, "... which counts less for 1 MiB");
	is_i64(chosen(&w, 8, (size_t)256 << 10), PL_CA_TREE, "eight ranks: 256 KiB over a tree");
	is_i64(chosen(&w, 8, (size_t)512 << 10), PL_CA_TREE, "... and 512 KiB");
	is_i64(chosen(&w, 8, (size_t)1 << 20), PL_CA_HALVING, "... but not 1 MiB");
	for (w.processors = 1, other = 0; w.processors <= 64; w.processors++)
		for (int ranks = 2; ranks <= 64; ranks++)
			if (ranks <= w.processors || ranks % w.processors == 0)
				other += back_to_tree(&w, ranks);
	is_i64(other, 0, "where turns are full, more bytes never lead back to a tree");
	w.processors = 3;
	is_i64(chosen(&w, 3, (size_t)4 << 20), PL_CA_RING,
	       "three ranks on three processors use a ring");
	return done_testing();
}
