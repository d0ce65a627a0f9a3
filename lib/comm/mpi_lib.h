/*
 * mpi_lib.h - an MPI library, found and opened at run time.
 *
 * Both binary interfaces of MPI (record/mpi_abi.h) are served.
 */
#ifndef PL_COMM_MPI_LIB_H
#define PL_COMM_MPI_LIB_H

#include "core/core.h"
#include "record/mpi_abi.h"

#define PL_MPI_FUNNELED	  1
#define PL_MPI_ERROR_TEXT 512

/* X(member, symbol, parameters); all return int */
#define PL_MPI_FUNCTIONS(X)                                                                        \
	X(initialized, "MPI_Initialized", (int *flag))                                             \
	X(finalized, "MPI_Finalized", (int *flag))                                                 \
	X(init, "MPI_Init_thread", (int *argc, char ***argv, int required, int *provided))         \
	X(finalize, "MPI_Finalize", (void))                                                        \
	X(rank, "MPI_Comm_rank", (pl_mpi_handle comm, int *rank))                                  \
	X(size, "MPI_Comm_size", (pl_mpi_handle comm, int *size))                                  \
	X(group, "MPI_Comm_group", (pl_mpi_handle comm, pl_mpi_handle * out))                      \
	X(group_incl, "MPI_Group_incl",                                                            \
	  (pl_mpi_handle group, int n, const int *rank, pl_mpi_handle *out))                       \
	X(create_group, "MPI_Comm_create_group",                                                   \
	  (pl_mpi_handle comm, pl_mpi_handle group, int tag, pl_mpi_handle *out))                  \
	X(set_errhandler, "MPI_Comm_set_errhandler", (pl_mpi_handle comm, pl_mpi_handle handler))  \
	X(isend, "MPI_Isend",                                                                      \
	  (const void *p, int count, pl_mpi_handle type, int to, int tag, pl_mpi_handle comm,      \
	   pl_mpi_handle *request))                                                                \
	X(irecv, "MPI_Irecv",                                                                      \
	  (void *p, int count, pl_mpi_handle type, int from, int tag, pl_mpi_handle comm,          \
	   pl_mpi_handle *request))                                                                \
	X(test, "MPI_Test", (pl_mpi_handle * request, int *flag, struct pl_mpi_status *status))    \
	X(error_string, "MPI_Error_string", (int code, char *text, int *length))                   \
	X(library_version, "MPI_Get_library_version", (char *text, int *length))

struct pl_mpi_lib {
	enum pl_mpi_kind kind;
	char name[160];	   /* of the file */
	char version[100]; /* its own text: "Open MPI v4.1.4" */
	pl_mpi_handle world, byte, errors_return;
#define PL_MPI_MEMBER(member, symbol, args) int(*member) args;
	PL_MPI_FUNCTIONS(PL_MPI_MEMBER)
#undef PL_MPI_MEMBER
	/* extensions, NULL: missing */
	int (*gpu_support)(int kind, int *yes);
	int (*cuda_support)(void);
};

/*
 * Open the library of this process's launcher, else the first one found; or the one that
 * PACELINE_MPI names. It stays open until the process ends. PL_EABSENT: it does not exist, or is
 * not of the launcher's type.
 */
int pl_comm_mpi_lib_open(struct pl_mpi_lib *lib, struct pl_err *err) PL_MUST;
/* Does it report that messages may be in memory of a GPU? Call it after MPI_Init. */
bool pl_comm_mpi_takes_cuda(const struct pl_mpi_lib *lib);
const char *pl_comm_mpi_kind_name(enum pl_mpi_kind kind);
/* Begins MPI, in the thread that makes all calls: MPI_Init_thread, in which all processes of the
 * launcher take part. They are `size`, and this one is `rank`; else PL_EUSAGE. */
int pl_comm_mpi_begin(const struct pl_mpi_lib *lib, int size, int rank, struct pl_err *err) PL_MUST;
/* PL_EIO with the text of an error code of `what`. */
int pl_comm_mpi_failed(const struct pl_mpi_lib *lib, const char *what, int code,
		       struct pl_err *err);
int pl_comm_mpi_tag_of(const struct pl_mpi_lib *lib, const struct pl_mpi_status *s);
/* Does the error mean that a message was longer than expected? */
bool pl_comm_mpi_truncated(const struct pl_mpi_lib *lib, int code);

#endif
