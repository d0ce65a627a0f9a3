/*
 * libpaceline-mpi.so: the calls of MPI that communicate or wait, in front of the library's own.
 *
 * Each function calls the next one of its name, which may be that of another tool. mpi.h of one
 * implementation would not suit the others, so the interface is declared here, with handles as wide
 * as a pointer (record/mpi_abi.h). MPI_Pcontrol(1) begins a step.
 */
#include <pthread.h>
#include <stdatomic.h>

#include "record/entry/mpi.h"

#define EXPORT	  __attribute__((visibility("default")))
#define ERR_OTHER 16 /* MPI_ERR_OTHER of Open MPI; of MPICH another error */
#define AT_ONCE	  32 /* requests of a call whose handles need no memory */

static int no_library(void)
{
	pl_process_say("mpi", "no library of MPI is found behind this one, so calls of MPI fail: "
			      "trace --no-mpi leaves this one out");
	return ERR_OTHER;
}

/* MPI_NAME, whose body follows, and next_NAME(), what it would be without this library. */
#define WRAP(name, params, args)                                                                   \
	static int next_##name params                                                              \
	{                                                                                          \
		static void *_Atomic known_;                                                       \
		void *next_ = atomic_load_explicit(&known_, memory_order_relaxed);                 \
		int(*call_) params;                                                                \
                                                                                                   \
		if (!next_)                                                                        \
			next_ = pl_mpi_next("MPI_" #name);                                         \
		atomic_store_explicit(&known_, next_, memory_order_relaxed);                       \
		memcpy(&call_, &next_, sizeof(call_));                                             \
		return call_ ? call_ args : no_library();                                          \
	}                                                                                          \
	EXPORT int MPI_##name params;                                                              \
	EXPORT int MPI_##name params

typedef pl_mpi_handle handle;

/* ---- begin and end --------------------------------------------------------------------------- */

WRAP(Init, (int *argc, char ***argv), (argc, argv))
{
	int rc = next_Init(argc, argv);

	if (rc == 0)
		pl_mpi_begin();
	return rc;
}

WRAP(Init_thread, (int *argc, char ***argv, int required, int *provided),
     (argc, argv, required, provided))
{
	int rc = next_Init_thread(argc, argv, required, provided);

	if (rc == 0)
		pl_mpi_begin();
	return rc;
}

/* Later nothing comes, and a launcher may kill what does not end at once. */
WRAP(Finalize, (void), ())
{
	pl_mpi_end();
	return next_Finalize();
}

WRAP(Abort, (handle comm, int code), (comm, code))
{
	pl_mpi_end();
	return next_Abort(comm, code);
}

__attribute__((destructor)) static void end(void)
{
	pl_mpi_end();
}

WRAP(Pcontrol, (const int level, ...), (level))
{
	if (level == 1)
		pl_mpi_step();
	return next_Pcontrol(level);
}

/* ---- communicators --------------------------------------------------------------------------- */

/* made(NAME, PARAMETERS, ARGUMENTS): a call that makes the communicator *out */
#define MADE(name, params, args)                                                                   \
	WRAP(name, params, args)                                                                   \
	{                                                                                          \
		int rc = next_##name args;                                                         \
                                                                                                   \
		if (rc == 0 && pl_mpi_on())                                                        \
			pl_mpi_comm_made(pl_mpi_handle_at(pl_mpi.kind, out, 0));                   \
		return rc;                                                                         \
	}
MADE(Comm_dup, (handle comm, handle *out), (comm, out))
MADE(Comm_dup_with_info, (handle comm, handle info, handle *out), (comm, info, out))
MADE(Comm_split, (handle comm, int color, int key, handle *out), (comm, color, key, out))
MADE(Comm_split_type, (handle comm, int type, int key, handle info, handle *out),
     (comm, type, key, info, out))
MADE(Comm_create, (handle comm, handle group, handle *out), (comm, group, out))
MADE(Comm_create_group, (handle comm, handle group, int tag, handle *out), (comm, group, tag, out))
MADE(Cart_create,
     (handle comm, int n, const int *dims, const int *periods, int reorder, handle *out),
     (comm, n, dims, periods, reorder, out))
MADE(Cart_sub, (handle comm, const int *keep, handle *out), (comm, keep, out))

WRAP(Comm_free, (handle * comm), (comm))
{
	if (pl_mpi_on())
		pl_mpi_comm_free(pl_mpi_handle_at(pl_mpi.kind, comm, 0));
	return next_Comm_free(comm);
}

WRAP(Comm_disconnect, (handle * comm), (comm))
{
	if (pl_mpi_on())
		pl_mpi_comm_free(pl_mpi_handle_at(pl_mpi.kind, comm, 0));
	return next_Comm_disconnect(comm);
}

/* ---- sends and receives ---------------------------------------------------------------------- */

#define SEND(name)                                                                                 \
	WRAP(name, (const void *p, int n, handle type, int to, int tag, handle comm),              \
	     (p, n, type, to, tag, comm))                                                          \
	{                                                                                          \
		pl_ns begin = pl_now_ns();                                                         \
		int rc = next_##name(p, n, type, to, tag, comm);                                   \
		struct pl_mpi_call c;                                                              \
                                                                                                   \
		if (rc || !pl_mpi_on())                                                            \
			return rc;                                                                 \
		c = pl_mpi_p2p("MPI_" #name, PL_K_SEND, begin, n, type, to, tag, comm);            \
		pl_mpi_put(&c, NULL);                                                              \
		return rc;                                                                         \
	}
#define ISEND(name)                                                                                \
	WRAP(name, (const void *p, int n, handle type, int to, int tag, handle comm, handle *out), \
	     (p, n, type, to, tag, comm, out))                                                     \
	{                                                                                          \
		pl_ns begin = pl_now_ns();                                                         \
		int rc = next_##name(p, n, type, to, tag, comm, out);                              \
		struct pl_mpi_call c;                                                              \
                                                                                                   \
		if (rc || !pl_mpi_on())                                                            \
			return rc;                                                                 \
		c = pl_mpi_p2p("MPI_" #name, PL_K_SEND, begin, n, type, to, tag, comm);            \
		pl_mpi_issue(&c, pl_mpi_handle_at(pl_mpi.kind, out, 0));                           \
		return rc;                                                                         \
	}
SEND(Send)
SEND(Bsend)
SEND(Ssend)
SEND(Rsend)
ISEND(Isend)
ISEND(Ibsend)
ISEND(Issend)
ISEND(Irsend)

/* What the caller gave for the status, or `own` if it wants none: the sender must be known. */
static void *status_or(void *status, struct pl_mpi_status *own)
{
	return pl_mpi_on() && pl_mpi_status_ignored(pl_mpi.kind, status) ? own : status;
}

WRAP(Recv, (void *p, int n, handle type, int from, int tag, handle comm, void *status),
     (p, n, type, from, tag, comm, status))
{
	struct pl_mpi_status own;
	struct pl_mpi_call c;
	pl_ns begin = pl_now_ns();
	int rc;

	status = status_or(status, &own);
	rc = next_Recv(p, n, type, from, tag, comm, status);
	if (rc || !pl_mpi_on())
		return rc;
	c = pl_mpi_p2p("MPI_Recv", PL_K_RECV, begin, n, type, from, tag, comm);
	pl_mpi_put(&c, status);
	return rc;
}

WRAP(Irecv, (void *p, int n, handle type, int from, int tag, handle comm, handle *out),
     (p, n, type, from, tag, comm, out))
{
	pl_ns begin = pl_now_ns();
	int rc = next_Irecv(p, n, type, from, tag, comm, out);
	struct pl_mpi_call c;

	if (rc || !pl_mpi_on())
		return rc;
	c = pl_mpi_p2p("MPI_Irecv", PL_K_RECV, begin, n, type, from, tag, comm);
	pl_mpi_issue(&c, pl_mpi_handle_at(pl_mpi.kind, out, 0));
	return rc;
}

static void put_exchange(const char *name, pl_ns begin, int n, handle type, int to, int tag, int n2,
			 handle type2, int from, int tag2, handle comm, const void *status)
{
	struct pl_mpi_call c = pl_mpi_p2p(name, PL_K_SEND, begin, n, type, to, tag, comm);

	pl_mpi_put(&c, NULL);
	c = pl_mpi_p2p(name, PL_K_RECV, begin, n2, type2, from, tag2, comm);
	pl_mpi_put(&c, status);
}

WRAP(Sendrecv,
     (const void *p, int n, handle type, int to, int tag, void *p2, int n2, handle type2, int from,
      int tag2, handle comm, void *status),
     (p, n, type, to, tag, p2, n2, type2, from, tag2, comm, status))
{
	struct pl_mpi_status own;
	pl_ns begin = pl_now_ns();
	int rc;

	status = status_or(status, &own);
	rc = next_Sendrecv(p, n, type, to, tag, p2, n2, type2, from, tag2, comm, status);
	if (!rc && pl_mpi_on())
		put_exchange("MPI_Sendrecv", begin, n, type, to, tag, n2, type2, from, tag2, comm,
			     status);
	return rc;
}

WRAP(Sendrecv_replace,
     (void *p, int n, handle type, int to, int tag, int from, int tag2, handle comm, void *status),
     (p, n, type, to, tag, from, tag2, comm, status))
{
	struct pl_mpi_status own;
	pl_ns begin = pl_now_ns();
	int rc;

	status = status_or(status, &own);
	rc = next_Sendrecv_replace(p, n, type, to, tag, from, tag2, comm, status);
	if (!rc && pl_mpi_on())
		put_exchange("MPI_Sendrecv_replace", begin, n, type, to, tag, n, type, from, tag2,
			     comm, status);
	return rc;
}

/* ---- messages that a probe matched ------------------------------------------------------------
 */

WRAP(Mprobe, (int from, int tag, handle comm, handle *message, void *status),
     (from, tag, comm, message, status))
{
	struct pl_mpi_status own;
	pl_ns begin = pl_now_ns();
	int rc;

	status = status_or(status, &own);
	rc = next_Mprobe(from, tag, comm, message, status);
	if (!rc && pl_mpi_on())
		pl_mpi_matched("MPI_Mrecv", pl_mpi_handle_at(pl_mpi.kind, message, 0), comm, status,
			       begin);
	return rc;
}

WRAP(Improbe, (int from, int tag, handle comm, int *flag, handle *message, void *status),
     (from, tag, comm, flag, message, status))
{
	struct pl_mpi_status own;
	pl_ns begin = pl_now_ns();
	int rc;

	status = status_or(status, &own);
	rc = next_Improbe(from, tag, comm, flag, message, status);
	if (!rc && *flag && pl_mpi_on())
		pl_mpi_matched("MPI_Mrecv", pl_mpi_handle_at(pl_mpi.kind, message, 0), comm, status,
			       begin);
	return rc;
}

WRAP(Mrecv, (void *p, int n, handle type, handle *message, void *status),
     (p, n, type, message, status))
{
	struct pl_mpi_status own;
	handle m = pl_mpi_on() ? pl_mpi_handle_at(pl_mpi.kind, message, 0) : 0;
	int rc;

	status = status_or(status, &own);
	rc = next_Mrecv(p, n, type, message, status);
	if (!rc && pl_mpi_on())
		pl_mpi_received(m, status, pl_mpi.null_request);
	return rc;
}

WRAP(Imrecv, (void *p, int n, handle type, handle *message, handle *out),
     (p, n, type, message, out))
{
	handle m = pl_mpi_on() ? pl_mpi_handle_at(pl_mpi.kind, message, 0) : 0;
	int rc = next_Imrecv(p, n, type, message, out);

	if (!rc && pl_mpi_on())
		pl_mpi_received(m, NULL, pl_mpi_handle_at(pl_mpi.kind, out, 0));
	return rc;
}

/* ---- waits and tests ------------------------------------------------------------------------- */

/* The requests of a call, before it sets those that are complete to null; and its statuses. */
struct many {
	handle own[AT_ONCE], *request;
	struct pl_mpi_status own_status[AT_ONCE];
	void *status; /* of all, in the library's layout; NULL: there are none */
	int n;
};

/* *status: replaced where the caller wants none. */
static void many_init(struct many *m, int n, const handle *request, void **status)
{
	*m = (struct many){ .n = pl_mpi_on() && n > 0 ? n : 0, .request = m->own };
	if (m->n > AT_ONCE)
		m->request = pl_calloc((size_t)n, sizeof(*m->request));
	if (!m->request)
		m->n = 0;
	for (int i = 0; i < m->n; i++)
		m->request[i] = pl_mpi_handle_at(pl_mpi.kind, request, i);
	if (!m->n)
		return;
	if (!pl_mpi_status_ignored(pl_mpi.kind, *status))
		m->status = *status;
	else if (m->n <= AT_ONCE)
		m->status = *status = m->own_status;
	else if ((m->status = pl_calloc((size_t)n, sizeof(struct pl_mpi_status))))
		*status = m->status;
}

/* The request is complete; `at`: the place of its status. */
static void many_done(const struct many *m, int request, int at, pl_ns since)
{
	const char *s = m->status;

	if (request >= 0 && request < m->n)
		pl_mpi_complete(m->request[request],
				s ? s + (size_t)at * pl_mpi_status_bytes(pl_mpi.kind) : NULL,
				since);
}

/* A call that failed has freed the requests that failed, and their handles will be those of others.
 * `was`: before the call. */
static void one_failed(handle was, const handle *request, int i)
{
	if (was != pl_mpi.null_request &&
	    pl_mpi_handle_at(pl_mpi.kind, request, i) == pl_mpi.null_request)
		pl_mpi_forget(was);
}

/* failed: the caller's requests after a call that failed, or NULL */
static void many_fini(const struct many *m, const void *callers, const handle *failed)
{
	for (int i = 0; failed && i < m->n; i++)
		one_failed(m->request[i], failed, i);
	if (m->request != m->own)
		pl_free(m->request);
	if (m->status != callers && m->status != (const void *)m->own_status)
		pl_free(m->status);
}

WRAP(Wait, (handle * request, void *status), (request, status))
{
	struct pl_mpi_status own;
	handle q = pl_mpi_on() ? pl_mpi_handle_at(pl_mpi.kind, request, 0) : 0;
	pl_ns begin = pl_now_ns();
	int rc;

	status = status_or(status, &own);
	rc = next_Wait(request, status);
	if (!pl_mpi_on())
		return rc;
	if (rc) {
		one_failed(q, request, 0);
		return rc;
	}
	pl_mpi_complete(q, status, begin);
	pl_mpi_span("MPI_Wait", begin);
	return rc;
}

WRAP(Test, (handle * request, int *flag, void *status), (request, flag, status))
{
	struct pl_mpi_status own;
	handle q = pl_mpi_on() ? pl_mpi_handle_at(pl_mpi.kind, request, 0) : 0;
	pl_ns begin = pl_now_ns();
	int rc;

	status = status_or(status, &own);
	rc = next_Test(request, flag, status);
	if (rc && pl_mpi_on())
		one_failed(q, request, 0);
	else if (pl_mpi_on() && *flag)
		pl_mpi_complete(q, status, begin);
	return rc;
}

WRAP(Waitall, (int n, handle *request, void *status), (n, request, status))
{
	void *callers = status;
	pl_ns begin = pl_now_ns();
	struct many m;
	int rc;

	many_init(&m, n, request, &status);
	rc = next_Waitall(n, request, status);
	for (int i = 0; i < m.n && !rc; i++)
		many_done(&m, i, i, begin);
	if (m.n)
		pl_mpi_span("MPI_Waitall", begin);
	many_fini(&m, callers, rc ? request : NULL);
	return rc;
}

WRAP(Testall, (int n, handle *request, int *flag, void *status), (n, request, flag, status))
{
	void *callers = status;
	pl_ns begin = pl_now_ns();
	struct many m;
	int rc;

	many_init(&m, n, request, &status);
	rc = next_Testall(n, request, flag, status);
	for (int i = 0; i < m.n && !rc && *flag; i++)
		many_done(&m, i, i, begin);
	many_fini(&m, callers, rc ? request : NULL);
	return rc;
}

WRAP(Waitany, (int n, handle *request, int *index, void *status), (n, request, index, status))
{
	void *callers = status;
	pl_ns begin = pl_now_ns();
	struct many m;
	int rc;

	many_init(&m, n, request, &status);
	rc = next_Waitany(n, request, index, status);
	if (!rc && m.n) {
		many_done(&m, *index, 0, begin);
		pl_mpi_span("MPI_Waitany", begin);
	}
	many_fini(&m, callers, rc ? request : NULL);
	return rc;
}

WRAP(Testany, (int n, handle *request, int *index, int *flag, void *status),
     (n, request, index, flag, status))
{
	void *callers = status;
	pl_ns begin = pl_now_ns();
	struct many m;
	int rc;

	many_init(&m, n, request, &status);
	rc = next_Testany(n, request, index, flag, status);
	if (!rc && m.n && *flag)
		many_done(&m, *index, 0, begin);
	many_fini(&m, callers, rc ? request : NULL);
	return rc;
}

#define SOME(name)                                                                                 \
	WRAP(name, (int n, handle *request, int *done, int *index, void *status),                  \
	     (n, request, done, index, status))                                                    \
	{                                                                                          \
		void *callers = status;                                                            \
		pl_ns begin = pl_now_ns();                                                         \
		struct many m;                                                                     \
		int rc;                                                                            \
                                                                                                   \
		many_init(&m, n, request, &status);                                                \
		rc = next_##name(n, request, done, index, status);                                 \
		for (int i = 0; !rc && m.n && i < *done; i++)                                      \
			many_done(&m, index[i], i, begin);                                         \
		many_fini(&m, callers, rc ? request : NULL);                                       \
		return rc;                                                                         \
	}
SOME(Waitsome)
SOME(Testsome)

WRAP(Request_free, (handle * request), (request))
{
	handle q = pl_mpi_on() ? pl_mpi_handle_at(pl_mpi.kind, request, 0) : 0;
	int rc = next_Request_free(request);

	if (!rc && pl_mpi_on())
		pl_mpi_complete(q, NULL, pl_now_ns());
	return rc;
}

WRAP(Cancel, (handle * request), (request))
{
	int rc = next_Cancel(request);

	if (!rc && pl_mpi_on())
		pl_mpi_cancel(pl_mpi_handle_at(pl_mpi.kind, request, 0));
	return rc;
}

/* ---- collectives ----------------------------------------------------------------------------- */

static struct pl_mpi_call coll_of(const char *name, unsigned coll, pl_ns begin, int64_t bytes,
				  int root, handle comm)
{
	return (struct pl_mpi_call){ .name = name,
				     .comm = comm,
				     .begin = begin,
				     .end = pl_now_ns(),
				     .kind = PL_K_COLLECTIVE,
				     .peer = -1,
				     .tag = -1,
				     .root = root,
				     .bytes = bytes,
				     .coll = coll };
}

static int64_t of_all(int n, handle type, handle comm)
{
	int size = pl_mpi_comm(comm).size;

	return size > 0 ? pl_mpi_bytes((int64_t)n * size, type) : -1;
}

static int64_t sum_of(const int *n, handle type, handle comm)
{
	int64_t sum = 0;
	int size = pl_mpi_comm(comm).size;

	for (int i = 0; i < size; i++)
		sum += n[i];
	return size > 0 ? pl_mpi_bytes(sum, type) : -1;
}

static bool is_root(int root, handle comm)
{
	return pl_mpi_comm(comm).rank == root;
}

/* A collective, and the same with a request. BYTES is evaluated while the process is recorded. */
#define COLL(name, iname, coll_, root_, size_, params, args, iparams, iargs)                       \
	WRAP(name, params, args)                                                                   \
	{                                                                                          \
		pl_ns begin = pl_now_ns();                                                         \
		int rc = next_##name args;                                                         \
		struct pl_mpi_call c;                                                              \
                                                                                                   \
		if (rc || !pl_mpi_on())                                                            \
			return rc;                                                                 \
		c = coll_of("MPI_" #name, coll_, begin, -1, root_, comm);                          \
		c.bytes = size_;                                                                   \
		pl_mpi_put(&c, NULL);                                                              \
		return rc;                                                                         \
	}                                                                                          \
	WRAP(iname, iparams, iargs)                                                                \
	{                                                                                          \
		pl_ns begin = pl_now_ns();                                                         \
		int rc = next_##iname iargs;                                                       \
		struct pl_mpi_call c;                                                              \
                                                                                                   \
		if (rc || !pl_mpi_on())                                                            \
			return rc;                                                                 \
		c = coll_of("MPI_" #iname, coll_, begin, -1, root_, comm);                         \
		c.bytes = size_;                                                                   \
		pl_mpi_issue(&c, pl_mpi_handle_at(pl_mpi.kind, out, 0));                           \
		return rc;                                                                         \
	}
#define P(...) (__VA_ARGS__)
#define I(...) (__VA_ARGS__, handle * out)
#define J(...) (__VA_ARGS__, out)
/* COLL with the parameters of both */
#define BOTH(name, iname, coll_, root_, size_, params, args)                                       \
	COLL(name, iname, coll_, root_, size_, P params, P args, I params, J args)

BOTH(Barrier, Ibarrier, PL_COLL_BARRIER, -1, -1, (handle comm), (comm))
BOTH(Bcast, Ibcast, PL_COLL_BROADCAST, root, pl_mpi_bytes(n, type),
     (void *p, int n, handle type, int root, handle comm), (p, n, type, root, comm))
BOTH(Reduce, Ireduce, PL_COLL_REDUCE, root, pl_mpi_bytes(n, type),
     (const void *p, void *q, int n, handle type, handle op, int root, handle comm),
     (p, q, n, type, op, root, comm))
BOTH(Allreduce, Iallreduce, PL_COLL_ALLREDUCE, -1, pl_mpi_bytes(n, type),
     (const void *p, void *q, int n, handle type, handle op, handle comm),
     (p, q, n, type, op, comm))
BOTH(Reduce_scatter, Ireduce_scatter, PL_COLL_REDUCE_SCATTER, -1, sum_of(n, type, comm),
     (const void *p, void *q, const int *n, handle type, handle op, handle comm),
     (p, q, n, type, op, comm))
BOTH(Reduce_scatter_block, Ireduce_scatter_block, PL_COLL_REDUCE_SCATTER, -1, of_all(n, type, comm),
     (const void *p, void *q, int n, handle type, handle op, handle comm),
     (p, q, n, type, op, comm))
/* sent from p, received in q; sizes of the receiving side, which MPI_IN_PLACE does not make vain */
BOTH(Allgather, Iallgather, PL_COLL_ALLGATHER, -1, of_all(m, to, comm),
     (const void *p, int n, handle type, void *q, int m, handle to, handle comm),
     (p, n, type, q, m, to, comm))
BOTH(Allgatherv, Iallgatherv, PL_COLL_ALLGATHER, -1, sum_of(m, to, comm),
     (const void *p, int n, handle type, void *q, const int *m, const int *at, handle to,
      handle comm),
     (p, n, type, q, m, at, to, comm))
BOTH(Alltoall, Ialltoall, PL_COLL_ALLTOALL, -1, of_all(m, to, comm),
     (const void *p, int n, handle type, void *q, int m, handle to, handle comm),
     (p, n, type, q, m, to, comm))
BOTH(Alltoallv, Ialltoallv, PL_COLL_ALLTOALL, -1, sum_of(m, to, comm),
     (const void *p, const int *n, const int *from, handle type, void *q, const int *m,
      const int *at, handle to, handle comm),
     (p, n, from, type, q, m, at, to, comm))
/* some arguments matter on the root alone */
BOTH(Gather, Igather, PL_COLL_GATHER, root,
     is_root(root, comm) ? of_all(m, to, comm) : of_all(n, type, comm),
     (const void *p, int n, handle type, void *q, int m, handle to, int root, handle comm),
     (p, n, type, q, m, to, root, comm))
BOTH(Gatherv, Igatherv, PL_COLL_GATHER, root,
     is_root(root, comm) ? sum_of(m, to, comm) : pl_mpi_bytes(n, type),
     (const void *p, int n, handle type, void *q, const int *m, const int *at, handle to, int root,
      handle comm),
     (p, n, type, q, m, at, to, root, comm))
BOTH(Scatter, Iscatter, PL_COLL_SCATTER, root,
     is_root(root, comm) ? of_all(n, type, comm) : of_all(m, to, comm),
     (const void *p, int n, handle type, void *q, int m, handle to, int root, handle comm),
     (p, n, type, q, m, to, root, comm))
BOTH(Scatterv, Iscatterv, PL_COLL_SCATTER, root,
     is_root(root, comm) ? sum_of(n, type, comm) : pl_mpi_bytes(m, to),
     (const void *p, const int *n, const int *at, handle type, void *q, int m, handle to, int root,
      handle comm),
     (p, n, at, type, q, m, to, root, comm))
