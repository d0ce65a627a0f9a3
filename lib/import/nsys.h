/*
 * nsys.h - what the files of the importer of Nsight Systems share: nsys.c turns tables into rows,
 * nsys_texts.c knows the names that they refer to, nsys_nccl.c reads what NCCL said in its NVTX
 * ranges, and finds the ranks of the processes.
 */
#ifndef PL_NSYS_H
#define PL_NSYS_H

#include "import/internal.h"
#include "io/sqlite.h"

struct pl_nsys_process {
	int64_t key;	/* of its global ids, see pl_nsys_process_key() */
	int64_t device; /* the first one with operations of it, -1 none */
	int32_t rank;	/* in the job, -1 unknown */
	int32_t member; /* its rank in the largest communicators of NCCL, -1 none */
	bool picked;	/* the rank comes from the file's name, not from what it holds */
	char *name;	/* NULL unknown */
};
struct pl_nsys_comm { /* a communicator as one of its members knows it */
	uint32_t process;
	uint64_t id;
	int32_t size, rank;
};
struct pl_nsys_field { /* of a binary payload */
	int64_t schema, offset;
	uint8_t what, bytes;
};

struct pl_nsys_text { /* a text that tables refer to by number */
	int64_t id;   /* of StringIds, + 1; 0: empty */
	pl_id s;
	bool known;	 /* what follows has been determined */
	bool comm;	 /* as a kernel: communication */
	uint32_t op_len; /* as a range: length of the operator's name, 0 it is none */
};
#define PL_NSYS_TEXTS 4096

struct pl_nsys {
	const struct pl_import_opts *o;
	struct pl_report report;
	struct pl_rows rows;
	struct pl_sqlite *db;
	struct pl_sqlite_query *string; /* text of a number of StringIds */
	struct pl_nsys_process *process;
	size_t n_processes, cap_processes;
	struct pl_nsys_text text[PL_NSYS_TEXTS]; /* of the segment, the latest by hash */
	struct pl_nsys_comm *comm;
	size_t n_comms, cap_comms;
	struct pl_nsys_field *field;
	size_t n_fields, cap_fields;
	char version[32]; /* of the schema, "" unknown */
	int64_t row;	  /* number of the row of this table, for messages */
	int32_t job;	  /* ranks of the communicators of NCCL that are of the whole job, 0 none */
	uint64_t kept[16]; /* hashes of the warnings about damage */
	unsigned n_kept;
};

/* "SELECT ..." of these columns, separated by commas; those that the table lacks are NULL. *q NULL:
 * there is no such table, or (reported) it lacks one of its first `need` columns. */
int pl_nsys_select(struct pl_nsys *x, const char *table, const char *columns, unsigned need,
		   const char *where, struct pl_sqlite_query **q, struct pl_err *err) PL_MUST;
/* A serialised id holds the host, the process (24 bits) and the thread (24 bits). */
static inline int64_t pl_nsys_process_key(int64_t global)
{
	return (int64_t)((uint64_t)global >> 24);
}
static inline int64_t pl_nsys_pid(int64_t key)
{
	return key & 0xffffff;
}
static inline int64_t pl_nsys_tid(int64_t global)
{
	return global & 0xffffff;
}
int pl_nsys_process(struct pl_nsys *x, int64_t global, uint32_t *index, struct pl_err *err) PL_MUST;
/* One number for a correlation in a process. */
static inline int64_t pl_nsys_corr(uint32_t process, int64_t corr)
{
	return (int64_t)process << 40 ^ corr;
}

/* ---- nsys.c -------------------------------------------------------------------------------- */

/* The result of reading a table, and what becomes of it: what came before damage is kept, unless
 * strict. */
int pl_nsys_keep(struct pl_nsys *x, const char *table, int rc, struct pl_err *err) PL_MUST;
/* The track of a thread, and its process. */
int pl_nsys_thread(struct pl_nsys *x, int64_t global, uint32_t *process, pl_id *id,
		   struct pl_err *err) PL_MUST;
/* The number-th track of a process that is no thread of it: operations under way. */
int pl_nsys_extra_track(struct pl_nsys *x, uint32_t process, int number, const char *name,
			pl_id *id, struct pl_err *err) PL_MUST;

/* ---- nsys_texts.c -------------------------------------------------------------------------- */

/* A text that tables refer to by number, as a string of the segment; empty if it is not there. */
int pl_nsys_string(struct pl_nsys *x, int64_t id, pl_id *s, struct pl_err *err) PL_MUST;
/* The same, with what it means as a name. Valid until the next call. */
int pl_nsys_text(struct pl_nsys *x, int64_t id, const struct pl_nsys_text **out,
		 struct pl_err *err) PL_MUST;
/* "aten::mm, op_id = 7": the length of the operator's name; 0: no operator of PyTorch's
 * emit_nvtx(). */
uint32_t pl_nsys_op_length(const char *s, size_t n);

/* ---- nsys_waits.c -------------------------------------------------------------------------- */

enum {
	PL_NSYS_SYNC_OTHER,
	PL_NSYS_SYNC_EVENT,
	PL_NSYS_SYNC_WAIT,
	PL_NSYS_SYNC_STREAM,
	PL_NSYS_SYNC_CONTEXT,
	PL_NSYS_SYNC_TYPES
};
struct pl_nsys_record { /* of a CUDA event: by process and number */
	int64_t process, number, corr, stream;
};
struct pl_nsys_waits {
	struct pl_nsys_record *record;
	size_t n_records, cap_records;
	bool by_sync_id; /* the number of a record is its eventSyncId, else its event */
	int64_t type[8]; /* by the number in this export */
};
int pl_nsys_waits_read(struct pl_nsys *x, struct pl_nsys_waits *w, struct pl_err *err) PL_MUST;
/* The record that a wait with this correlation refers to; NULL: not recorded. */
const struct pl_nsys_record *pl_nsys_waits_find(const struct pl_nsys_waits *w, int64_t process,
						int64_t number, int64_t corr);

/* ---- nsys_nccl.c --------------------------------------------------------------------------- */

/*
 * Find the ranks of the processes, and note all ranges of NCCL for the kernels that are launched in
 * them. *world: number of ranks of the job, 0 unknown.
 */
int pl_nsys_nccl(struct pl_nsys *x, int64_t *world, struct pl_err *err) PL_MUST;

/* ---- nsys_mpi.c ---------------------------------------------------------------------------- */

/* The calls of MPI, as rows. *world becomes the size of the largest communicator, if it is less. */
int pl_nsys_mpi(struct pl_nsys *x, int64_t *world, struct pl_err *err) PL_MUST;

#endif
