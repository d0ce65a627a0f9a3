/*
 * Calls of MPI in an export of Nsight Systems, with the meaning that libpaceline-mpi.so gives them
 * (paceline-record(5)): sends and receives with the rank of the job at the other end and their
 * number among those with the same communicator, ranks and tag; collectives with their number in
 * the communicator. A call that names a request lasts until the wait for that request has ended. A
 * library uses the handle of a request again, so the wait must come before the next call with it.
 *
 * Memory: 40 bytes for each call with a request and each wait for one, and the communicators.
 */
#include <stdlib.h>

#include "import/nsys.h"

#define TRACKS	 8 /* of collectives with a request */
#define OWN_CORR ((int64_t)1 << 42)
#define NO_END	 INT64_MIN /* a call of which the export has no end */

struct wait { /* for a request, or a call that makes one */
	int64_t process, request;
	pl_ns start, end;
	bool call, taken;
};
struct comm { /* a communicator, as one rank has it */
	int64_t rank, handle, at, local, size, root, uid;
	pl_id group, ranks; /* in `texts`; PL_NONE unknown */
};
struct mpi {
	struct pl_nsys *x;
	struct wait *wait;
	struct comm *comm;
	size_t n_waits, cap_waits, n_comms, cap_comms;
	struct pl_intern texts, counters, members;
	int64_t *rank; /* [members]: of a communicator and its rank there, that in the job */
	size_t cap_rank;
	int64_t *count; /* [counters] */
	size_t cap_count;
	pl_ns (*busy)[TRACKS]; /* [process] */
	size_t cap_busy;
	int64_t corr;
};

PL_COMPARATOR(by_request, struct wait, process, request, start);
PL_COMPARATOR(by_rank, struct comm, rank, handle, at);
PL_COMPARATOR(by_place, struct comm, local, rank);

/* ---- communicators ------------------------------------------------------------------------- */

static bool same_group(const struct comm *a, const struct comm *b)
{
	return a->uid == b->uid && a->root == b->root && a->size == b->size;
}

static int add_member(struct mpi *m, const struct comm *c, struct pl_err *err)
{
	const int64_t key[4] = { c->uid, c->root, c->size, c->local };
	pl_id id;

	PL_CHECK(pl_intern_add(&m->members, (const char *)key, sizeof(key), &id, err));
	PL_CHECK(pl_grow(&m->rank, &m->cap_rank, id + (size_t)1, sizeof(*m->rank), err));
	m->rank[id] = c->rank;
	return 0;
}

/* What identifies it on all ranks, and its members if all of them are in this export. */
static int name_comm(struct mpi *m, struct comm *c, struct pl_err *err)
{
	struct comm *member = NULL;
	size_t n = 0, cap = 0;
	struct pl_buf text = { 0 };
	int rc = 0;

	if (c->uid < 0 || c->group != PL_NONE)
		return 0;
	for (size_t i = 0; i < m->n_comms; i++)
		if (same_group(c, &m->comm[i]))
			PL_TRY(pl_append(&member, &n, &cap, &m->comm[i], sizeof(*member), err));
	PL_TRY(pl_buf_printf(&text, err, c->root < 0 ? "comm %lld" : "comm %lld.%lld",
			     (long long)(c->root < 0 ? c->uid : c->root), (long long)c->uid));
	PL_TRY(pl_intern_add(&m->texts, (const char *)text.p, text.n, &c->group, err));
	pl_sort(member, n, sizeof(*member), by_place);
	text.n = 0;
	for (size_t i = 0; i < n; i++)
		PL_TRY(pl_buf_printf(&text, err, "%s%lld", i ? ", " : "[",
				     (long long)member[i].rank));
	PL_TRY(pl_buf_printf(&text, err, "]"));
	if ((int64_t)n == c->size)
		PL_TRY(pl_intern_add(&m->texts, (const char *)text.p, text.n, &c->ranks, err));
	for (size_t i = 0; i < m->n_comms; i++)
		if (same_group(c, &m->comm[i])) {
			m->comm[i].group = c->group;
			m->comm[i].ranks = c->ranks;
		}
out:
	pl_buf_fini(&text);
	pl_free(member);
	return rc;
}

#define COMMS "rank,commHandle,timestamp,localRank,size,groupRoot,groupRootUid,commUid"

static int read_comms(struct mpi *m, int64_t *world, struct pl_err *err)
{
	struct pl_sqlite_query *q;
	int rc;

	PL_CHECK(pl_nsys_select(m->x, "MPI_COMMUNICATORS", COMMS, 2, NULL, &q, err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		bool unique = !pl_sqlite_null(q, 7);
		const struct comm c = { .rank = pl_sqlite_int(q, 0, -1),
					.handle = pl_sqlite_int(q, 1, 0),
					.at = pl_sqlite_int(q, 2, 0),
					.local = pl_sqlite_int(q, 3, -1),
					.size = pl_sqlite_int(q, 4, 0),
					.root = unique ? -1 : pl_sqlite_int(q, 5, -1),
					.uid = unique ? pl_sqlite_int(q, 7, -1)
						      : pl_sqlite_int(q, 6, -1),
					.group = PL_NONE,
					.ranks = PL_NONE };

		*world = pl_max_i64(*world, c.size < 1 << 24 ? c.size : 0);
		if ((rc = pl_append(&m->comm, &m->n_comms, &m->cap_comms, &c, sizeof(c), err)) <
			    0 ||
		    (rc = add_member(m, &c, err)) < 0)
			break;
	}
	pl_sqlite_query_free(q);
	rc = pl_nsys_keep(m->x, "MPI_COMMUNICATORS", rc, err);
	for (size_t i = 0; i < m->n_comms && rc >= 0; i++)
		rc = name_comm(m, &m->comm[i], err);
	pl_sort(m->comm, m->n_comms, sizeof(*m->comm), by_rank);
	return rc;
}

/* A handle may be given to a later communicator; that of the world has no time of its own. */
static const struct comm *find_comm(const struct mpi *m, int64_t rank, int64_t handle, pl_ns at)
{
	const struct comm key = { .rank = rank, .handle = handle, .at = at };
	size_t i = 0;

	PL_LOWER_BOUND(i, m->n_comms, by_rank(&m->comm[i], &key) <= 0);
	if (i && m->comm[i - 1].rank == rank && m->comm[i - 1].handle == handle)
		return &m->comm[i - 1];
	return i < m->n_comms && m->comm[i].rank == rank && m->comm[i].handle == handle
		       ? &m->comm[i]
		       : NULL;
}

/* The rank of the job that has this rank in a communicator; -1 unknown. */
static int64_t rank_in_job(const struct mpi *m, const struct comm *c, int64_t local)
{
	pl_id id = PL_NONE;

	if (!m->n_comms) /* an older version: most jobs use the communicator of all */
		return local;
	if (c) {
		const int64_t key[4] = { c->uid, c->root, c->size, local };

		id = pl_intern_find(&m->members, (const char *)key, sizeof(key));
	}
	if (id != PL_NONE)
		return m->rank[id];
	return c && c->local == c->rank ? local : -1; /* of this export's ranks, perhaps all */
}

/* ---- waits --------------------------------------------------------------------------------- */

static int read_requests(struct mpi *m, const char *table, const char *where, bool call,
			 struct pl_err *err)
{
	struct pl_sqlite_query *q;
	int rc;

	PL_CHECK(pl_nsys_select(m->x, table, "start,end,globalTid,textId,requestHandle", 4, where,
				&q, err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		const struct wait w = { .process = pl_nsys_process_key(pl_sqlite_int(q, 2, 0)),
					.request = pl_sqlite_int(q, 4, 0),
					.start = pl_sqlite_int(q, 0, 0),
					.end = pl_sqlite_int(q, 1, 0),
					.call = call };

		if (!pl_sqlite_null(q, 4) && !pl_sqlite_null(q, 0) &&
		    (call ? w.request != 0 : !pl_sqlite_null(q, 1)) &&
		    (rc = pl_append(&m->wait, &m->n_waits, &m->cap_waits, &w, sizeof(w), err)) < 0)
			break;
	}
	pl_sqlite_query_free(q);
	return pl_nsys_keep(m->x, table, rc, err);
}

static int read_waits(struct mpi *m, struct pl_err *err)
{
	PL_CHECK(read_requests(m, "MPI_START_WAIT_EVENTS",
			       "WHERE textId IN (SELECT id FROM StringIds WHERE value GLOB "
			       "'MPI_Wait*')",
			       false, err));
	PL_CHECK(read_requests(m, "MPI_P2P_EVENTS", NULL, true, err));
	PL_CHECK(read_requests(m, "MPI_COLLECTIVES_EVENTS", NULL, true, err));
	pl_sort(m->wait, m->n_waits, sizeof(*m->wait), by_request);
	return 0;
}

struct call {
	pl_ns start, end;			    /* NO_END: unknown */
	int64_t global, text, comm_handle, request; /* 0: none */
	int64_t tag, peer, root, bytes;		    /* -1 unknown */
	uint32_t process;
	pl_id track, name; /* of the segment */
	const char *coll;  /* NULL: no communication */
	const struct comm *comm;
};

/* The first wait for the request of a call, after it, and before the next call that makes one with
 * the same handle; NULL: none was recorded, as the request was tested until it was complete. */
static struct wait *wait_of(struct mpi *m, const struct call *c)
{
	const struct wait key = { .process = pl_nsys_process_key(c->global),
				  .request = c->request,
				  .start = c->end == NO_END ? pl_add_sat(c->start, 1) : c->end };
	size_t i = 0;

	if (!c->request)
		return NULL;
	PL_LOWER_BOUND(i, m->n_waits, by_request(&m->wait[i], &key) < 0);
	while (i < m->n_waits && m->wait[i].process == key.process &&
	       m->wait[i].request == key.request && m->wait[i].taken)
		i++;
	if (i == m->n_waits || m->wait[i].process != key.process ||
	    m->wait[i].request != key.request || m->wait[i].call)
		return NULL;
	m->wait[i].taken = true;
	return &m->wait[i];
}

/* ---- calls --------------------------------------------------------------------------------- */

/* The ids of this segment. */
static int take_ids(struct mpi *m, struct call *c, struct pl_err *err)
{
	PL_CHECK(pl_nsys_string(m->x, c->text, &c->name, err));
	return pl_nsys_thread(m->x, c->global, &c->process, &c->track, err);
}

/* How many calls before this one have the same communicator, peer, tag and kind. A library gives
 * the handle of a communicator again after it was freed, so the handle counts only where nothing
 * else is known. */
static int64_t count_of(struct mpi *m, const struct call *c, int64_t peer, int64_t tag,
			uint8_t kind, struct pl_err *err)
{
	bool known = c->comm && c->comm->group != PL_NONE;
	const int64_t key[6] = { c->process, known, known ? c->comm->group : c->comm_handle,
				 peer,	     tag,   kind };
	size_t old = m->cap_count;
	pl_id id;

	if (pl_intern_add(&m->counters, (const char *)key, sizeof(key), &id, err) < 0 ||
	    pl_grow(&m->count, &m->cap_count, id + (size_t)1, sizeof(*m->count), err) < 0)
		return -1;
	for (size_t i = old; i < m->cap_count; i++)
		m->count[i] = 0;
	return m->count[id]++;
}

static void put(struct mpi *m, uint8_t role, const char *key, int64_t v)
{
	struct pl_rows *r = &m->x->rows;

	pl_import_rows_put(r, role, PL_V_INT,
			   key ? pl_import_rows_text(r, key, strlen(key)) : PL_NONE, v);
}

static void put_text(struct mpi *m, uint8_t role, const char *s)
{
	struct pl_rows *r = &m->x->rows;

	pl_import_rows_put(r, role, PL_V_STR, PL_NONE, pl_import_rows_text(r, s, strlen(s)));
}

static void put_comm(struct mpi *m, const struct comm *c)
{
	if (!c || c->group == PL_NONE)
		return;
	put_text(m, PL_R_GROUP, pl_intern_get(&m->texts, c->group));
	if (c->ranks != PL_NONE)
		put_text(m, PL_R_RANKS, pl_intern_get(&m->texts, c->ranks));
	put(m, PL_R_SIZE, NULL, c->size);
}

static int event(struct mpi *m, uint8_t kind, pl_id track, pl_id name, pl_ns start, pl_ns end,
		 struct pl_err *err)
{
	pl_ns dur = end == NO_END ? -1 : pl_sub_sat(end, start);

	if (end != NO_END && dur < 0) {
		dur = 0;
		PL_CHECK(pl_import_report(&m->x->report, PL_BAD_VALUE, m->x->row,
					  "an end before its start (0 stands for the duration)",
					  err));
	}
	return pl_import_rows_event(&m->x->rows, kind, track, name, start, dur, err);
}

static int transfer(struct mpi *m, const struct call *c, uint8_t kind, struct pl_err *err)
{
	int64_t peer = c->peer < 0 ? -1 : rank_in_job(m, c->comm, c->peer);
	const struct wait *w = wait_of(m, c);
	int64_t n;

	if (c->peer >= 0 && c->tag >= 0) { /* else a receive from any source */
		n = count_of(m, c, c->peer, c->tag, kind, err);
		PL_CHECK(n < 0 ? err->code : 0);
		put(m, PL_R_SEQ, NULL, c->tag << 32 | (n & UINT32_MAX));
		put(m, PL_R_ARG, "tag", c->tag);
	}
	if (peer >= 0)
		put(m, PL_R_PEER, NULL, peer);
	if (c->bytes >= 0)
		put(m, PL_R_BYTES, NULL, c->bytes);
	put_comm(m, c->comm);
	return event(m, kind, c->track, c->name, c->start, w ? w->end : c->end, err);
}

/* The number of a track that has no collective at this time. */
static int free_track(struct mpi *m, const struct call *c, pl_ns end, struct pl_err *err)
{
	size_t old = m->cap_busy;
	int k = 0;

	PL_CHECK(pl_grow(&m->busy, &m->cap_busy, c->process + (size_t)1, sizeof(*m->busy), err));
	if (m->cap_busy > old)
		memset(m->busy + old, 0, (m->cap_busy - old) * sizeof(*m->busy));
	while (k < TRACKS - 1 && m->busy[c->process][k] > c->start)
		k++;
	m->busy[c->process][k] = end;
	return k;
}

static int extra_track(struct mpi *m, const struct call *c, int number, pl_id *track,
		       struct pl_err *err)
{
	char name[40];

	snprintf(name, sizeof(name), "MPI collectives %d", number);
	return pl_nsys_extra_track(m->x, c->process, number, name, track, err);
}

/* The size of the whole: the table has what the rank sends and what it receives. Where both are
 * equal though the whole is not, they are parts of one rank. */
static int64_t whole(const struct call *c, int64_t sent, int64_t received)
{
	static const char *const parts[] = { "allgather", "reduce_scatter", "alltoall", "gather",
					     "scatter" };
	int64_t most = pl_max_i64(sent, received), n = c->comm ? c->comm->size : -1;

	for (size_t i = 0; i < PL_LEN(parts); i++)
		if (!strcmp(c->coll, parts[i]) && sent == received && most > 0)
			return n > 0 && most < INT64_MAX / n ? most * n : -1;
	return most;
}

static int collective(struct mpi *m, const struct call *c, struct pl_err *err)
{
	const struct wait *w = wait_of(m, c);
	int64_t n = count_of(m, c, -1, -1, PL_K_COLLECTIVE, err), corr = OWN_CORR + m->corr;
	struct call ids = *c; /* each row may end a segment, and the next one has other ids */
	pl_id track = c->track;
	int number;

	PL_CHECK(n < 0 ? err->code : 0);
	if (w) { /* the call, the wait for it, and between them the collective */
		m->corr++;
		number = free_track(m, c, w->end, err);
		PL_CHECK(number);
		put(m, PL_R_CORR, NULL, corr);
		PL_CHECK(event(m, PL_K_HOST_OP, c->track, c->name, c->start, c->end, err));
		PL_CHECK(take_ids(m, &ids, err));
		put(m, PL_R_CORR, NULL, corr);
		PL_CHECK(event(m, PL_K_WAIT, ids.track, pl_import_rows_text(&m->x->rows, "wait", 4),
			       w->start, w->end, err));
		PL_CHECK(take_ids(m, &ids, err));
		PL_CHECK(extra_track(m, c, number, &track, err));
		put(m, PL_R_CORR, NULL, corr);
	}
	put_text(m, PL_R_COLL, c->coll);
	put(m, PL_R_SEQ, NULL, n);
	if (c->bytes >= 0)
		put(m, PL_R_BYTES, NULL, c->bytes);
	if (c->root >= 0)
		put(m, PL_R_ARG, "root", c->root);
	put_comm(m, c->comm);
	return event(m, PL_K_COLLECTIVE, track, ids.name, c->start, w ? w->end : c->end, err);
}

/* ---- tables -------------------------------------------------------------------------------- */

#define P2P   "start,end,globalTid,textId,commHandle,requestHandle,tag,remoteRank,size"
#define COLLS "start,end,globalTid,textId,commHandle,requestHandle,rootRank,size,recvSize"
#define OTHER "start,end,globalTid,textId"

/* Does the name end in this word, perhaps in the form for large counts, "_c"? */
static bool ends_in(const char *name, const char *word)
{
	size_t n = strlen(name), k = strlen(word);

	n -= n > 2 && !strcmp(name + n - 2, "_c") ? 2 : 0;
	return n > k && !memcmp(name + n - k, word, k);
}

static int take_call(struct mpi *m, struct pl_sqlite_query *q, struct call *c, struct pl_err *err)
{
	const char *name;

	*c = (struct call){ .start = pl_sqlite_int(q, 0, 0),
			    .end = pl_sqlite_int(q, 1, NO_END),
			    .global = pl_sqlite_int(q, 2, 0),
			    .text = pl_sqlite_int(q, 3, -1),
			    .tag = -1,
			    .peer = -1,
			    .root = -1,
			    .bytes = -1 };
	PL_CHECK(take_ids(m, c, err));
	name = pl_intern_get(&m->x->rows.seg.str, c->name);
	/* MPI_Send_init prepares messages, and MPI_Reduce_local moves nothing */
	if (!ends_in(name, "_init") && !ends_in(name, "_local"))
		c->coll = pl_trace_coll_from_name(name, strlen(name));
	c->comm_handle = pl_sqlite_int(q, 4, 0);
	c->request = pl_sqlite_int(q, 5, 0);
	c->comm = find_comm(m, m->x->process[c->process].rank, c->comm_handle, c->start);
	return 0;
}

static int p2p_row(struct mpi *m, struct pl_sqlite_query *q, struct pl_err *err)
{
	struct call c;
	bool send, recv;

	PL_CHECK(take_call(m, q, &c, err));
	c.tag = pl_sqlite_int(q, 6, -1);
	c.peer = pl_sqlite_int(q, 7, -1);
	c.bytes = pl_sqlite_int(q, 8, -1);
	send = c.coll && !strcmp(c.coll, "send");
	recv = c.coll && !strcmp(c.coll, "recv");
	if (!send && !recv) /* MPI_Probe, MPI_Sendrecv, which says one of its ends */
		return event(m, PL_K_HOST_OP, c.track, c.name, c.start, c.end, err);
	return transfer(m, &c, send ? PL_K_SEND : PL_K_RECV, err);
}

static int coll_row(struct mpi *m, struct pl_sqlite_query *q, struct pl_err *err)
{
	struct call c;

	PL_CHECK(take_call(m, q, &c, err));
	if (!c.coll) /* making communicators, files */
		return event(m, PL_K_HOST_OP, c.track, c.name, c.start, c.end, err);
	c.root = pl_sqlite_int(q, 6, -1);
	c.bytes = whole(&c, pl_sqlite_int(q, 7, -1), pl_sqlite_int(q, 8, -1));
	return collective(m, &c, err);
}

static int call_row(struct mpi *m, struct pl_sqlite_query *q, uint8_t kind, struct pl_err *err)
{
	uint32_t process;
	pl_id track, name;

	PL_CHECK(pl_nsys_string(m->x, pl_sqlite_int(q, 3, -1), &name, err));
	PL_CHECK(pl_nsys_thread(m->x, pl_sqlite_int(q, 2, 0), &process, &track, err));
	return event(m, kind, track, name, pl_sqlite_int(q, 0, 0), pl_sqlite_int(q, 1, NO_END),
		     err);
}

/* What is waited for ends with the wait, which is no work of its own. */
static int wait_row(struct mpi *m, struct pl_sqlite_query *q, struct pl_err *err)
{
	return call_row(m, q, PL_K_ANNOTATION, err);
}

static int other_row(struct mpi *m, struct pl_sqlite_query *q, struct pl_err *err)
{
	return call_row(m, q, PL_K_HOST_OP, err);
}

/* Numbers count calls in their order. A wait for several requests has a row for each of them. */
static const struct table {
	const char *name, *columns, *where;
	unsigned need;
	int (*row)(struct mpi *m, struct pl_sqlite_query *q, struct pl_err *err);
} tables[] = {
	{ "MPI_P2P_EVENTS", P2P, "ORDER BY start", 4, p2p_row },
	{ "MPI_COLLECTIVES_EVENTS", COLLS, "ORDER BY start", 4, coll_row },
	{ "MPI_START_WAIT_EVENTS", OTHER, "GROUP BY globalTid, start, textId ORDER BY start", 4,
	  wait_row },
	{ "MPI_OTHER_EVENTS", OTHER, NULL, 4, other_row },
};

static int read_table(struct mpi *m, const struct table *t, struct pl_err *err)
{
	struct pl_nsys *x = m->x;
	struct pl_sqlite_query *q;
	int rc;

	PL_CHECK(pl_nsys_select(x, t->name, t->columns, t->need, t->where, &q, err));
	x->row = 0;
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		x->row++;
		if (pl_sqlite_null(q, 0))
			rc = pl_import_report(&x->report, PL_BAD, x->row, "a call without a start",
					      err);
		else if ((rc = pl_import_rows_ready(&x->rows, err)) >= 0)
			rc = t->row(m, q, err);
		if (rc < 0)
			break;
	}
	pl_sqlite_query_free(q);
	return pl_nsys_keep(x, t->name, rc, err);
}

int pl_nsys_mpi(struct pl_nsys *x, int64_t *world, struct pl_err *err)
{
	struct mpi m = { .x = x };
	int64_t size = 0;
	int rc;

	PL_TRY(read_comms(&m, &size, err));
	PL_TRY(read_waits(&m, err));
	*world = pl_max_i64(*world, size);
	for (size_t i = 0; i < PL_LEN(tables); i++)
		PL_TRY(read_table(&m, &tables[i], err));
	rc = 0;
out:
	pl_free(m.wait);
	pl_free(m.comm);
	pl_intern_fini(&m.texts);
	pl_intern_fini(&m.counters);
	pl_intern_fini(&m.members);
	pl_free(m.rank);
	pl_free(m.count);
	pl_free(m.busy);
	return rc;
}
