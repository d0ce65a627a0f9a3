/*
 * The emulated device tells races: threads that touch the same memory, one of which writes it, with
 * nothing between that orders them; and only those, whatever the order in which threads run.
 */
#include "tap.h"
#include "tensor/cuda/mma.cuh"

#define N 128

enum { NO, LANES, THREADS }; /* what waits for what */

static __device__ void order(int how)
{
	if (how == LANES)
		__syncwarp();
	if (how == THREADS)
		__syncthreads();
}

/* What a thread wrote its mirror image in `across` lanes or threads reads. */
static __global__ void pass_on(int how, int across, float *y)
{
	PL_SHARED(room, float[N]);
	unsigned own = threadIdx.x;

	room[own] = (float)own;
	order(how);
	y[own] = room[own / across * across + across - 1 - own % across];
}

/* The same room again, in a loop. */
static __global__ void turns(int first, int second, float *y)
{
	PL_SHARED(room, float[N]);

	for (int i = 0; i < 3; i++) {
		room[threadIdx.x] = (float)i;
		order(first);
		y[threadIdx.x] = room[N - 1 - threadIdx.x];
		order(second);
	}
}

/* Two bytes each, beside each other; blocks share what is global, or do not. */
static __global__ void halves(int block_stride, bf16 *y)
{
	y[threadIdx.x + blockIdx.x * (unsigned)block_stride] = __float2bfloat16_rn(1);
}

static __global__ void count(bool atomic, unsigned *sum)
{
	if (atomic)
		atomicAdd(sum, 1u);
	else
		*sum += 1;
}

/* A copy that is under way is in the way of who still reads, or reads too early. */
static __global__ void copies(bool wait_before, bool wait_behind, const float *x, float *y)
{
	PL_SHARED(room, float[N]);
	unsigned next = (threadIdx.x + 1) % N;

	room[threadIdx.x] = 0;
	__syncthreads();
	y[threadIdx.x] = room[next];
	order(wait_before ? THREADS : NO);
	plm_copy<4>(plm_shared(&room[threadIdx.x]), x + threadIdx.x, true);
	plm_commit();
	plm_wait<0>();
	order(wait_behind ? THREADS : NO);
	y[threadIdx.x] += room[next];
}

/* Shuffles order nothing. */
static __global__ void shuffled(float *y)
{
	PL_SHARED(room, float[32]);

	room[threadIdx.x] = 1;
	y[threadIdx.x] = __shfl_xor_sync(PL_FULL, 2.f, 1) + room[threadIdx.x ^ 1];
}

/* Are there races just where there should be, in each of some orders? */
template <typename F> static void races(bool wanted, const char *what, F launch)
{
	int right = 0;

	for (uint64_t s = 0; s < 8; s++) {
		uint64_t before = emu_races;

		emu_seed(s);
		launch();
		right += (emu_races > before) == wanted;
	}
	ok(right == 8, "%s: %s", what, wanted ? "a race" : "none");
}

int main(void)
{
	static float x[N], y[4 * N];
	static bf16 half[4 * N];
	static unsigned sum;

	emu_count_races = true;
	races(true, "neighbours in a warp, nothing",
	      [] { PL_LAUNCH(pass_on, 2, 32, 0, NULL, NO, 2, y); });
	races(false, "neighbours in a warp, __syncwarp()",
	      [] { PL_LAUNCH(pass_on, 1, N, 0, NULL, LANES, 32, y); });
	races(true, "warps, __syncwarp()", [] { PL_LAUNCH(pass_on, 1, N, 0, NULL, LANES, N, y); });
	races(false, "warps, __syncthreads()",
	      [] { PL_LAUNCH(pass_on, 1, N, 0, NULL, THREADS, N, y); });
	races(true, "read, and written in the next turn",
	      [] { PL_LAUNCH(turns, 1, N, 0, NULL, THREADS, NO, y); });
	races(true, "written, and read in the same turn",
	      [] { PL_LAUNCH(turns, 1, N, 0, NULL, NO, THREADS, y); });
	races(false, "a barrier before and behind",
	      [] { PL_LAUNCH(turns, 1, N, 0, NULL, THREADS, THREADS, y); });
	races(true, "blocks that write the same",
	      [] { PL_LAUNCH(halves, 2, N, 0, NULL, N - 1, half); });
	races(false, "blocks and threads side by side", [] {
		PL_LAUNCH(halves, 2, N, 0, NULL, N, half);
		PL_LAUNCH(halves, 2, N, 0, NULL, N, half);
	});
	races(false, "atomic sums", [] { PL_LAUNCH(count, 3, N, 0, NULL, true, &sum); });
	races(true, "sums", [] { PL_LAUNCH(count, 3, 1, 0, NULL, false, &sum); });
	races(false, "copies", [] { PL_LAUNCH(copies, 1, N, 0, NULL, true, true, x, y); });
	races(true, "copies to what is read",
	      [] { PL_LAUNCH(copies, 1, N, 0, NULL, false, true, x, y); });
	races(true, "copies that others take",
	      [] { PL_LAUNCH(copies, 1, N, 0, NULL, true, false, x, y); });
	races(true, "a shuffle between", [] { PL_LAUNCH(shuffled, 1, 32, 0, NULL, y); });
	return done_testing();
}
