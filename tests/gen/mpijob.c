/*
 * A job of MPI as other people's programs are: it calls MPI by name, so that a library in front of
 * MPI sees it. It needs no mpi.h: the library is opened at run time, and its handles are those of
 * record/mpi_abi.h. Several steps of computation (sleep), messages, and collectives. Each rank says
 * on standard output how many events of each kind a recorder of it should have.
 *
 * usage: mpirun -n N mpijob LIBRARY [STEPS] [kill]     LIBRARY: libmpi.so.40 or libmpich.so.12
 * With `kill` rank 1 kills itself after the last step, as soon as its recorder has written
 * something.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/core.h"
#include "record/mpi_abi.h"

#define CALLS(X)                                                                                   \
	X(Init, (int *, char ***))                                                                 \
	X(Finalize, (void))                                                                        \
	X(Pcontrol, (const int, ...))                                                              \
	X(Comm_rank, (pl_mpi_handle, int *))                                                       \
	X(Comm_size, (pl_mpi_handle, int *))                                                       \
	X(Comm_split, (pl_mpi_handle, int, int, pl_mpi_handle *))                                  \
	X(Comm_dup, (pl_mpi_handle, pl_mpi_handle *))                                              \
	X(Comm_free, (pl_mpi_handle *))                                                            \
	X(Isend, (const void *, int, pl_mpi_handle, int, int, pl_mpi_handle, pl_mpi_handle *))     \
	X(Irecv, (void *, int, pl_mpi_handle, int, int, pl_mpi_handle, pl_mpi_handle *))           \
	X(Send, (const void *, int, pl_mpi_handle, int, int, pl_mpi_handle))                       \
	X(Recv, (void *, int, pl_mpi_handle, int, int, pl_mpi_handle, void *))                     \
	X(Waitall, (int, void *, void *))                                                          \
	X(Wait, (void *, void *))                                                                  \
	X(Test, (void *, int *, void *))                                                           \
	X(Mprobe, (int, int, pl_mpi_handle, pl_mpi_handle *, void *))                              \
	X(Mrecv, (void *, int, pl_mpi_handle, pl_mpi_handle *, void *))                            \
	X(Imrecv, (void *, int, pl_mpi_handle, pl_mpi_handle *, pl_mpi_handle *))                  \
	X(Barrier, (pl_mpi_handle))                                                                \
	X(Bcast, (void *, int, pl_mpi_handle, int, pl_mpi_handle))                                 \
	X(Allreduce, (const void *, void *, int, pl_mpi_handle, pl_mpi_handle, pl_mpi_handle))     \
	X(Iallreduce, (const void *, void *, int, pl_mpi_handle, pl_mpi_handle, pl_mpi_handle,     \
		       pl_mpi_handle *))                                                           \
	X(Gather,                                                                                  \
	  (const void *, int, pl_mpi_handle, void *, int, pl_mpi_handle, int, pl_mpi_handle))      \
	X(Alltoall, (const void *, int, pl_mpi_handle, void *, int, pl_mpi_handle, pl_mpi_handle))

#define MEMBER(name, params) int(*name) params;
static struct {
	CALLS(MEMBER)
} mpi;
static pl_mpi_handle world, byte_, max_;
static enum pl_mpi_kind kind;

static int open_mpi(const char *file)
{
	void *lib = dlopen(file, RTLD_NOW | RTLD_GLOBAL), *p;

	if (!lib) {
		fprintf(stderr, "mpijob: %s\n", dlerror());
		return -1;
	}
#define FIND(name, params)                                                                         \
	p = dlsym(RTLD_DEFAULT, "MPI_" #name);                                                     \
	if (!p)                                                                                    \
		return -1;                                                                         \
	memcpy(&mpi.name, &p, sizeof(p));
	CALLS(FIND)
	world = (pl_mpi_handle)dlsym(lib, "ompi_mpi_comm_world");
	kind = world ? PL_MPI_OPENMPI : PL_MPI_MPICH;
	byte_ = world ? (pl_mpi_handle)dlsym(lib, "ompi_mpi_byte") : PL_MPICH_BYTE;
	max_ = world ? (pl_mpi_handle)dlsym(lib, "ompi_mpi_op_bor") : 0x58000008u;
	world = world ? world : PL_MPICH_COMM_WORLD;
	return 0;
}

static char a[1 << 17], b[1 << 17];

static void step(int rank, int size, pl_mpi_handle turned)
{
	/* MPICH's handles of requests are ints, so an array of them is shorter */
	pl_mpi_handle r[2] = { 0 }, coll = 0;
	char *second = (char *)r + (kind == PL_MPI_MPICH ? sizeof(int) : sizeof(r[0]));
	void *ignore = (void *)(uintptr_t)(kind == PL_MPI_MPICH);
	struct pl_mpi_status status;
	int flag = 0,
	    place = size - 1 - rank; /* in the communicator whose ranks are turned round */

	mpi.Pcontrol(1);
	usleep(1000 + 2000 * (useconds_t)rank); /* the others wait for the last rank */
	mpi.Irecv(b, 8000, byte_, (rank + size - 1) % size, 5, world, r);
	mpi.Isend(a, 8000, byte_, (rank + 1) % size, 5, world, (void *)second);
	usleep(500);
	mpi.Waitall(2, r, ignore);
	mpi.Iallreduce(a, b, 40000, byte_, max_, world, &coll);
	usleep(1000);
	mpi.Wait(&coll, ignore);
	for (int i = 1; i < size && rank == 0; i++)
		mpi.Recv(b, 100000, byte_, pl_mpi_any_source(kind), PL_MPI_ANY_TAG, world, &status);
	if (rank)
		mpi.Send(a, 1200, byte_, 0, 7 + rank, world);
	mpi.Send(a, 1, byte_, pl_mpi_proc_null(kind), 1, world); /* to nobody */
	mpi.Irecv(b, 8, byte_, (place + size - 1) % size, 6, turned, r);
	mpi.Send(a, 8, byte_, (place + 1) % size, 6, turned);
	while (!flag)
		mpi.Test(r, &flag, ignore);
	mpi.Allreduce(a, b, 40, byte_, max_, turned);
	mpi.Gather(a, 10, byte_, b, 10, byte_, 0, world);
	mpi.Alltoall(a, 100, byte_, b, 100, byte_, world);
	mpi.Bcast(a, 65536, byte_, 0, world);
	mpi.Barrier(world);
}

/* Messages may be on their way when their communicator is freed. */
static void outlive(int rank, int size)
{
	void *ignore = (void *)(uintptr_t)(kind == PL_MPI_MPICH);
	pl_mpi_handle copy = 0, r[2] = { 0 };
	char *second = (char *)r + (kind == PL_MPI_MPICH ? sizeof(int) : sizeof(r[0]));

	mpi.Comm_dup(world, &copy);
	mpi.Irecv(b, 8, byte_, (rank + size - 1) % size, 9, copy, r);
	mpi.Isend(a, 8, byte_, (rank + 1) % size, 9, copy, (void *)second);
	mpi.Comm_free(&copy);
	mpi.Waitall(2, r, ignore);
}

/* As Python's recv() does: a probe, then a receive. */
static void probe(int rank, int size)
{
	void *ignore = (void *)(uintptr_t)(kind == PL_MPI_MPICH);
	pl_mpi_handle message = 0, r = 0, sent[2] = { 0 };
	char *second = (char *)sent + (kind == PL_MPI_MPICH ? sizeof(int) : sizeof(sent[0]));
	int from = (rank + size - 1) % size;

	mpi.Isend(a, 80, byte_, (rank + 1) % size, 11, world, sent);
	mpi.Isend(a, 90, byte_, (rank + 1) % size, 11, world, (void *)second);
	mpi.Mprobe(pl_mpi_any_source(kind), 11, world, &message, ignore);
	mpi.Mrecv(b, 1000, byte_, &message, ignore);
	mpi.Mprobe(from, PL_MPI_ANY_TAG, world, &message, ignore);
	mpi.Imrecv(b, 1000, byte_, &message, &r);
	mpi.Wait(&r, ignore);
	mpi.Waitall(2, sent, ignore);
}

/* Until the recorder has written to the file of this rank; 10 s at most. */
static void wait_for_file(int rank)
{
	const char *folder = getenv("PACELINE_RECORD_DIR");
	char path[1024];
	struct stat st;

	snprintf(path, sizeof(path), "%.1000s/rank%d.mpi.trace", folder ? folder : ".", rank);
	for (int i = 0; i < 1000 && (stat(path, &st) < 0 || !st.st_size); i++)
		usleep(10000);
}

int main(int argc, char **argv)
{
	int rank, size, steps = argc > 2 ? atoi(argv[2]) : 5;
	pl_mpi_handle copy = 0;

	if (argc < 2 || open_mpi(argv[1]) < 0)
		return 77;
	if (mpi.Init(&argc, &argv) || mpi.Comm_rank(world, &rank) || mpi.Comm_size(world, &size) ||
	    mpi.Comm_split(world, 0, size - rank, &copy)) /* the ranks in the other order */
		return 1;
	for (int i = 0; i < steps; i++)
		step(rank, size, copy);
	mpi.Pcontrol(1);
	outlive(rank, size);
	probe(rank, size);
	if (argc > 3 && rank == 1) {
		wait_for_file(rank);
		kill(getpid(), SIGKILL);
	}
	mpi.Comm_free(&copy);
	printf("rank %d: %d collectives, %d sends, %d receives\n", rank, 6 * steps,
	       steps * (rank ? 3 : 2) + 3, steps * (rank ? 2 : 1 + size) + 3);
	return mpi.Finalize();
}
