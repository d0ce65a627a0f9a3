/*
 * fake_mpi - a library of MPI with MPICH's binary interface, for one process: no message goes
 * anywhere. Handles come again at once, and calls do what the test asks for (fake_mpi.h).
 */
#include "fake_mpi.h"

#include <stdint.h>
#include <string.h>

#include "record/mpi_abi.h"

#define EXPORT __attribute__((visibility("default")))
#define CALL(name, params)                                                                         \
	EXPORT int name params;                                                                    \
	EXPORT int name params

EXPORT struct fake_mpi fake_mpi;

static int result(void)
{
	int rc = fake_mpi.fails ? 5 : 0;

	fake_mpi.fails = false;
	return rc;
}

/* As MPICH has it: two words for the size and whether it was cancelled, source, tag, error. */
static void set_status(void *status)
{
	const int v[] = { 4, fake_mpi.cancelled, fake_mpi.source, fake_mpi.tag, 0 };

	if (!pl_mpi_status_ignored(PL_MPI_MPICH, status))
		memcpy(status, v, sizeof(v));
}

/* ---- what a recorder asks -------------------------------------------------------------------- */

CALL(PMPI_Init, (int *argc, char ***argv))
{
	(void)argc;
	(void)argv;
	return 0;
}

CALL(PMPI_Comm_rank, (int comm, int *rank))
{
	(void)comm;
	*rank = 0;
	return 0;
}

CALL(PMPI_Comm_size, (int comm, int *size))
{
	(void)comm;
	*size = 2;
	return 0;
}

CALL(PMPI_Comm_group, (int comm, int *group))
{
	*group = comm;
	return 0;
}

CALL(PMPI_Comm_test_inter, (int comm, int *yes))
{
	(void)comm;
	*yes = 0;
	return 0;
}

CALL(PMPI_Group_translate_ranks, (int from, int n, const int *rank, int to, int *out))
{
	(void)from;
	(void)to;
	memcpy(out, rank, (size_t)n * sizeof(*out));
	return 0;
}

CALL(PMPI_Group_free, (int *group))
{
	*group = 0;
	return 0;
}

CALL(PMPI_Type_size, (int type, int *bytes))
{
	*bytes = type == FAKE_MPI_HUGE ? -32766 : 1;
	return 0;
}

CALL(PMPI_Get_count, (const void *status, int type, int *n))
{
	(void)type;
	memcpy(n, status, sizeof(*n));
	return 0;
}

CALL(PMPI_Test_cancelled, (const void *status, int *yes))
{
	memcpy(yes, (const int *)status + 1, sizeof(*yes));
	return 0;
}

/* ---- what a program calls -------------------------------------------------------------------- */

CALL(MPI_Init, (int *argc, char ***argv))
{
	(void)argc;
	(void)argv;
	return 0;
}

CALL(MPI_Finalize, (void))
{
	return 0;
}

CALL(MPI_Comm_dup, (int comm, int *out))
{
	*out = comm + 1;
	return 0;
}

CALL(MPI_Comm_free, (int *comm))
{
	*comm = (int)PL_MPICH_COMM_NULL;
	return 0;
}

CALL(MPI_Send, (const void *p, int n, int type, int to, int tag, int comm))
{
	(void)p;
	(void)n;
	(void)type;
	(void)to;
	(void)tag;
	(void)comm;
	return result();
}

CALL(MPI_Recv, (void *p, int n, int type, int from, int tag, int comm, void *status))
{
	(void)p;
	(void)n;
	(void)type;
	(void)from;
	(void)tag;
	(void)comm;
	set_status(status);
	return result();
}

CALL(MPI_Irecv, (void *p, int n, int type, int from, int tag, int comm, int *out))
{
	(void)p;
	(void)n;
	(void)type;
	(void)from;
	(void)tag;
	(void)comm;
	*out = fake_mpi.request;
	return 0;
}

CALL(MPI_Cancel, (int *request))
{
	(void)request;
	return 0;
}

CALL(MPI_Request_free, (int *request))
{
	*request = (int)PL_MPICH_REQUEST_NULL;
	return 0;
}

CALL(MPI_Wait, (int *request, void *status))
{
	set_status(status);
	*request = (int)PL_MPICH_REQUEST_NULL;
	return result();
}

CALL(MPI_Waitall, (int n, int *request, void *status))
{
	for (int i = 0; i < n; i++)
		request[i] = (int)PL_MPICH_REQUEST_NULL;
	if (!pl_mpi_status_ignored(PL_MPI_MPICH, status))
		memset(status, 0, (size_t)n * PL_MPICH_STATUS_BYTES);
	return result();
}
