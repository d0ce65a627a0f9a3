/*
 * Sums of a few numbers over the ranks of a job: integers are exact, other numbers nearly, and all
 * ranks have the same bits.
 *
 * runner: threads
 */
#include "comm_fixture.h"

#include <sys/mman.h>

#include "train/worker.h"

#define NUMBERS (PL_TRAIN_SUMS + 20) /* more than one operation sums */

enum { LARGE, HUGE_INTEGERS, NEGATIVE, FRACTION, SMALL, TINY, FAR, ENDLESS, NONE, MANY };

static bool near(double got, double want, double relative)
{
	return fabs(got - want) <= relative * fabs(want);
}

/* arg: a hash for each rank, in memory of all */
static int sums(struct pl_world_opts *o, void *arg)
{
	static struct pl_worker w;
	struct pl_err e = { 0 };
	double v[NUMBERS], n = o->size, all = n * (n - 1) / 2; /* of the ranks' numbers */
	int r = o->rank;

	NEED(pl_comm_world_open(o, &w.o.world, &e) == 0);
	v[LARGE] = r ? 1 : 16777216;
	v[HUGE_INTEGERS] = 0x1p50 + 2 * r + 1;
	v[NEGATIVE] = -0x1p40 - r;
	v[FRACTION] = 0.1 * (r + 1);
	v[SMALL] = 1e-9 * (r + 1);
	v[TINY] = 1e-20 * (r + 1);
	v[FAR] = 1e30 * (r + 1);
	v[ENDLESS] = r == 1 ? INFINITY : 1;
	v[NONE] = r == 1 ? NAN : 1;
	for (int i = MANY; i < NUMBERS; i++)
		v[i] = 1000003.0 * i * (r - 1);
	NEED(pl_train_worker_sum(&w, v, NUMBERS, &e) == 0);
	NEED(v[LARGE] == 16777216 + n - 1);
	NEED(v[HUGE_INTEGERS] == n * 0x1p50 + 2 * all + n);
	NEED(v[NEGATIVE] == -n * 0x1p40 - all);
	NEED(near(v[FRACTION], 0.1 * (all + n), 1e-15));
	NEED(near(v[SMALL], 1e-9 * (all + n), 1e-9));
	NEED(near(v[TINY], 1e-20 * (all + n), 1e-6));
	NEED(near(v[FAR], 1e30 * (all + n), 1e-6));
	NEED(n < 2 || (isinf(v[ENDLESS]) && isnan(v[NONE])));
	for (int i = MANY; i < NUMBERS; i++)
		NEED(v[i] == 1000003.0 * i * (all - n));
	((uint64_t *)arg)[r] = pl_hash(v, sizeof(v));
	NEED(pl_comm_world_close(w.o.world, &e) == 0);
	return 0;
}

int main(void)
{
	static const char *const transport[] = { "shm", "tcp" };
	uint64_t *hash =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	for (int i = 0; i < 2; i++)
		for (int n = 1; n <= 5; n += 2) {
			struct pl_world_opts o = { .transport = transport[i],
						   .meet = meeting(false) };
			bool same = true;

			ok(run_ranks(n, &o, sums, hash, 20), "%s, %d ranks: sums", transport[i], n);
			for (int r = 1; r < n; r++)
				same &= hash[r] == hash[0];
			ok(same, "... have the same bits on all");
		}
	return done_testing();
}
