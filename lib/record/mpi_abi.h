/*
 * mpi_abi.h - the two binary interfaces of MPI: that of Open MPI, whose handles are pointers to
 * objects of the library, and that of MPICH, Intel MPI, MVAPICH and Cray MPT, whose handles are
 * ints with fixed values (mpich.org/abi).
 *
 * The same declarations serve both, with handles as wide as a pointer: the calling conventions of
 * 64-bit Linux pass both types in the same registers, and a handle that is written through an
 * address is read back through it. Little-endian only. Of an int in a register the upper half means
 * nothing: pl_mpi_handle_of() leaves it out.
 */
#ifndef PL_RECORD_MPI_ABI_H
#define PL_RECORD_MPI_ABI_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

typedef uintptr_t pl_mpi_handle;
struct pl_mpi_status { /* room for both types */
	int v[10];
};

enum pl_mpi_kind { PL_MPI_ANY, PL_MPI_OPENMPI, PL_MPI_MPICH };

/* Values that MPICH's interface fixes. */
#define PL_MPICH_COMM_WORLD	0x44000000u
#define PL_MPICH_COMM_NULL	0x04000000u
#define PL_MPICH_BYTE		0x4c00010du
#define PL_MPICH_ERRORS_RETURN	0x54000001u
#define PL_MPICH_REQUEST_NULL	0x2c000000u
#define PL_MPICH_STATUS_BYTES	20
#define PL_OPENMPI_STATUS_BYTES 24

#define PL_MPI_ANY_TAG (-1)

static inline pl_mpi_handle pl_mpi_handle_of(enum pl_mpi_kind kind, pl_mpi_handle h)
{
	return kind == PL_MPI_MPICH ? (uint32_t)h : h;
}
/* The i-th handle of an array. */
static inline pl_mpi_handle pl_mpi_handle_at(enum pl_mpi_kind kind, const void *array, int i)
{
	const char *p = array;
	pl_mpi_handle h = 0;
	size_t n = kind == PL_MPI_MPICH ? sizeof(int) : sizeof(h);

	memcpy(&h, p + (size_t)i * n, n);
	return h;
}
/* Source and tag; in MPICH's status two words for the count come first. */
static inline int pl_mpi_source(enum pl_mpi_kind kind, const void *status)
{
	return ((const int *)status)[kind == PL_MPI_OPENMPI ? 0 : 2];
}
static inline int pl_mpi_tag(enum pl_mpi_kind kind, const void *status)
{
	return ((const int *)status)[kind == PL_MPI_OPENMPI ? 1 : 3];
}
static inline size_t pl_mpi_status_bytes(enum pl_mpi_kind kind)
{
	return kind == PL_MPI_MPICH ? PL_MPICH_STATUS_BYTES : PL_OPENMPI_STATUS_BYTES;
}
static inline bool pl_mpi_status_ignored(enum pl_mpi_kind kind, const void *status)
{
	return (uintptr_t)status == (kind == PL_MPI_MPICH ? 1 : 0);
}
static inline int pl_mpi_any_source(enum pl_mpi_kind kind)
{
	return kind == PL_MPI_MPICH ? -2 : -1;
}
static inline int pl_mpi_proc_null(enum pl_mpi_kind kind)
{
	return kind == PL_MPI_MPICH ? -1 : -2;
}

#endif
