/*
 * allreduce_mpi - how fast MPI's all-reduce is, for bench/comm, which builds it with mpicc.
 *
 * usage: allreduce_mpi FROM TO      (bytes; times 4 from one to the next)
 *
 * Prints "BYTES MEDIAN-US BUSBW" a line: bus bandwidth in GB/s as nccl-tests define it. Every
 * element is written before and checked after each operation, outside the time that is taken.
 */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

static int ascending(const void *pa, const void *pb)
{
	double a = *(const double *)pa, b = *(const double *)pb;

	return a < b ? -1 : a > b;
}

/* Median of what the slowest rank took, in seconds. */
static double measure(float *in, float *out, size_t n, int turns, int rank, int ranks)
{
	double *took = calloc((size_t)turns, sizeof(*took)), median;

	for (int i = -1 - turns / 5; i < turns; i++) {
		float base = (float)((i + turns) % 8);
		float want = (float)ranks * base + (float)(ranks * (ranks - 1) / 2);
		double t;

		for (size_t k = 0; k < n; k++)
			in[k] = base + (float)rank;
		MPI_Barrier(MPI_COMM_WORLD);
		t = MPI_Wtime();
		MPI_Allreduce(in, out, (int)n, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
		t = MPI_Wtime() - t;
		for (size_t k = 0; k < n; k++)
			if (out[k] < want || out[k] > want)
				MPI_Abort(MPI_COMM_WORLD, 1);
		if (i >= 0)
			took[i] = t;
	}
	MPI_Allreduce(MPI_IN_PLACE, took, turns, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
	qsort(took, (size_t)turns, sizeof(*took), ascending);
	median = took[turns / 2];
	free(took);
	return median;
}

int main(int argc, char **argv)
{
	size_t to = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
	int rank, ranks;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &ranks);
	for (size_t s = argc > 1 ? strtoul(argv[1], NULL, 10) : 4; s <= to; s *= 4) {
		int turns = s > 16 << 20 ? 5 : s > 1 << 20 ? 10 : s > 64 << 10 ? 50 : 500;
		float *in = malloc(s), *out = malloc(s);
		double t = in && out ? measure(in, out, s / 4, turns, rank, ranks) : 0;

		if (rank == 0 && t > 0)
			printf("%zu %.1f %.2f\n", s, t * 1e6,
			       (double)s / t / 1e9 * 2 * (ranks - 1) / ranks);
		fflush(stdout);
		free(in);
		free(out);
	}
	MPI_Finalize();
	return 0;
}
