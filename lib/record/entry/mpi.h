/*
 * mpi.h - what libpaceline-mpi.so knows between two calls: the library behind it, communicators,
 * requests that are not complete; and how calls become events.
 */
#ifndef PL_RECORD_ENTRY_MPI_H
#define PL_RECORD_ENTRY_MPI_H

#include "record/entry/process.h"
#include "record/mpi_abi.h"

/* ---- the library ----------------------------------------------------------------------------- */

/* X(member, symbol, parameters): what the recorder itself calls; all return int */
#define PL_MPI_OWN_CALLS(X)                                                                        \
	X(comm_rank, "PMPI_Comm_rank", (pl_mpi_handle comm, int *rank))                            \
	X(comm_size, "PMPI_Comm_size", (pl_mpi_handle comm, int *size))                            \
	X(comm_group, "PMPI_Comm_group", (pl_mpi_handle comm, pl_mpi_handle * group))              \
	X(comm_test_inter, "PMPI_Comm_test_inter", (pl_mpi_handle comm, int *yes))                 \
	X(translate, "PMPI_Group_translate_ranks",                                                 \
	  (pl_mpi_handle from, int n, const int *ranks, pl_mpi_handle to, int *out))               \
	X(group_free, "PMPI_Group_free", (pl_mpi_handle * group))                                  \
	X(type_size, "PMPI_Type_size", (pl_mpi_handle type, int *bytes))                           \
	X(get_count, "PMPI_Get_count", (const void *status, pl_mpi_handle type, int *n))           \
	X(test_cancelled, "PMPI_Test_cancelled", (const void *status, int *yes))

struct pl_mpi {
	enum pl_mpi_kind kind;
	pl_mpi_handle world, byte, null_request, null_comm;
#define PL_MPI_OWN_MEMBER(member, symbol, args) int(*member) args;
	PL_MPI_OWN_CALLS(PL_MPI_OWN_MEMBER)
#undef PL_MPI_OWN_MEMBER
};
extern struct pl_mpi pl_mpi;

/* The function of that name behind this library: of MPI, or of another tool. NULL: there is none.
 */
void *pl_mpi_next(const char *name);

/* After MPI_Init: is this process recorded? */
bool pl_mpi_begin(void);
bool pl_mpi_on(void);
void pl_mpi_end(void); /* nothing more is recorded */

/* ---- communicators --------------------------------------------------------------------------- */

struct pl_mpi_comm {
	pl_mpi_handle handle;
	uint64_t number;    /* from 1, of all of this process: handles are given again */
	pl_id group, attrs; /* its name, the same on all ranks; its ranks and their number */
	int size, rank;	    /* 0: not known (an intercommunicator) */
	const int *world;   /* [size]: ranks in MPI_COMM_WORLD; they stay */
	int64_t colls;	    /* collectives so far */
};
/* A copy; all zeros with group PL_NONE if it cannot be known. */
struct pl_mpi_comm pl_mpi_comm(pl_mpi_handle comm);
void pl_mpi_comm_made(pl_mpi_handle comm); /* by a call that returned it */
void pl_mpi_comm_free(pl_mpi_handle comm);
int64_t pl_mpi_bytes(int64_t count, pl_mpi_handle type);

/* ---- calls that become events ---------------------------------------------------------------- */

struct pl_mpi_call {
	const char *name; /* "MPI_Send" */
	pl_mpi_handle comm, type;
	pl_ns begin, end; /* of the call that issued it */
	uint8_t kind;	  /* PL_K_SEND, PL_K_RECV, PL_K_COLLECTIVE */
	int peer, tag;	  /* of the communicator; -1 */
	int root;	  /* -1 */
	int64_t bytes;
	unsigned coll; /* enum pl_coll */
};
static inline struct pl_mpi_call pl_mpi_p2p(const char *name, uint8_t kind, pl_ns begin,
					    int64_t count, pl_mpi_handle type, int peer, int tag,
					    pl_mpi_handle comm)
{
	return (struct pl_mpi_call){ .name = name,
				     .comm = comm,
				     .type = type,
				     .begin = begin,
				     .end = pl_now_ns(),
				     .kind = kind,
				     .peer = peer,
				     .tag = tag,
				     .root = -1,
				     .bytes = pl_mpi_bytes(count, type) };
}
/* A call that is complete. status: of a receive, or NULL. */
void pl_mpi_put(const struct pl_mpi_call *c, const void *status);
/* One that a request completes. */
void pl_mpi_issue(const struct pl_mpi_call *c, pl_mpi_handle request);
/* The request is complete: a wait or test since `since` says so, or it was freed. */
void pl_mpi_complete(pl_mpi_handle request, const void *status, pl_ns since);
/* It failed, and was freed all the same: one that is lost. */
void pl_mpi_forget(pl_mpi_handle request);
/* The program asks that it be cancelled, before it is complete. */
void pl_mpi_cancel(pl_mpi_handle request);
/* A probe since `begin` has matched a message, which the call with this name receives later. */
void pl_mpi_matched(const char *name, pl_mpi_handle message, pl_mpi_handle comm, const void *status,
		    pl_ns begin);
/* It has been received; or, with a request (not null), its receive has begun. */
void pl_mpi_received(pl_mpi_handle message, const void *status, pl_mpi_handle request);
/* A span of this thread that is no communication: a wait for requests. */
void pl_mpi_span(const char *name, pl_ns begin);
/* The program says that a step begins. */
void pl_mpi_step(void);

#endif
