/*
 * The emulated device finds what it is there to find: a missing barrier, memory that was not
 * written, order that matters; and tells lanes, blocks and launches apart.
 */
#include "tap.h"
#include "tensor/cuda/device.cuh"

#define N 128

/* Each thread's number goes to its mirror image; without the barrier some read what is not there.
 */
static __global__ void mirror(bool wait, float *y)
{
	PL_SHARED(room, float[N]);

	room[threadIdx.x] = (float)threadIdx.x;
	if (wait)
		__syncthreads();
	y[blockIdx.x * N + threadIdx.x] = room[N - 1 - threadIdx.x];
}

static int mirrored(bool wait, uint64_t seed)
{
	static float y[3 * N];
	int right = 0;

	emu_seed(seed);
	PL_LAUNCH(mirror, 3, N, 0, NULL, wait, y);
	for (int i = 0; i < 3 * N; i++)
		right += y[i] == (float)(N - 1 - i % N);
	return right;
}

/* sums by shuffles, ballots, a sum in an order that depends on the order of threads */
static __global__ void lanes(int *sum, unsigned *odd, unsigned *same, float *order)
{
	int lane = (int)threadIdx.x % 32;
	int v = pl_warp_sum(lane + (int)threadIdx.x / 32);
	unsigned ballot = __ballot_sync(PL_FULL, lane & 1);
	unsigned match = __match_any_sync(PL_FULL, lane % 3);

	sum[threadIdx.x] = v;
	odd[threadIdx.x] = ballot;
	same[threadIdx.x] = match;
	*order = *order * 0.75f + (float)threadIdx.x;
}

static void test_lanes(void)
{
	int sum[64];
	unsigned odd[64], same[64];
	float order[3] = { 0 };
	bool right = true;

	for (uint64_t s = 0; s < 3; s++) {
		emu_seed(s);
		PL_LAUNCH(lanes, 1, 64, 0, NULL, sum, odd, same, order + s);
	}
	for (int i = 0; i < 64; i++)
		right = right && sum[i] == 496 + i / 32 * 32 && odd[i] == 0xaaaaaaaau &&
			(same[i] >> (i % 32) & 1) &&
			__builtin_popcount(same[i]) == (i % 32 % 3 < 2 ? 11 : 10);
	ok(right, "lanes of a warp sum, vote and match");
	ok(order[1] != order[0] && order[2] != order[1], "another seed is another order");
}

static __global__ void dynamic(double *y)
{
	PL_DYNAMIC(room, double);

	y[threadIdx.x] = room[threadIdx.x];
	room[threadIdx.x] = 1;
}

static void test_poison(void)
{
	double y[64];
	int none = 0;

	PL_LAUNCH(dynamic, 2, 32, 32 * sizeof(double), NULL, y);
	for (int i = 0; i < 32; i++)
		none += y[i] != y[i];
	ok(none == 32, "shared memory is no number in each block until it is written");
	ok(emu_launches > 3 && emu_most_shared >= 32 * sizeof(double), "launches are counted");
}

int main(void)
{
	int right = 0, wrong = 0;

	for (uint64_t s = 1; s <= 10; s++) {
		right += mirrored(true, s) == 3 * N;
		wrong += mirrored(false, s) < 3 * N;
	}
	ok(right == 10, "a barrier holds in any order");
	ok(wrong == 10, "a missing barrier shows");
	test_lanes();
	test_poison();
	return done_testing();
}
