/*
 * SQLite exports of Nsight Systems (nsys export --type sqlite).
 *
 * Each table is read row by row, in its own order, so memory does not grow with the export, except
 * for the records of CUDA events (32 bytes each), which waits refer to. Columns differ between
 * versions: those that a table lacks count as NULL, and a table without a column that is needed is
 * left out with a warning.
 *
 * A wait names the record of its event by eventSyncId. Exports without that column are older: there
 * it is the latest record of the event whose call came before the wait, since correlations ascend
 * in the order of calls. Kernels of NCCL get size and group from the ranges in which they were
 * launched (nsys_nccl.c, join.c).
 */
#include "import/nsys.h"

/* ---- schema -------------------------------------------------------------------------------- */

int pl_nsys_select(struct pl_nsys *x, const char *table, const char *columns, unsigned need,
		   const char *where, struct pl_sqlite_query **q, struct pl_err *err)
{
	struct pl_buf sql = { 0 };
	unsigned i = 0;
	int rc = 0;

	*q = NULL;
	if (!pl_sqlite_has_table(x->db, table))
		return 0;
	PL_TRY(pl_buf_printf(&sql, err, "SELECT "));
	for (const char *s = columns; *s; i++) {
		int n = (int)strcspn(s, ",");
		char column[64];

		snprintf(column, sizeof(column), "%.*s", n, s);
		s += n + (s[n] == ',');
		if (pl_sqlite_has_column(x->db, table, column)) {
			PL_TRY(pl_buf_printf(&sql, err, "%s\"%s\"", i ? ", " : "", column));
			continue;
		}
		if (i < need) {
			pl_say(x->o->log, PL_LOG_WARN,
			       "%s: table %s has no column %s (schema %s); the table is left out; "
			       "if "
			       "another version of nsys made the export, export the report again "
			       "with "
			       "a newer one",
			       x->report.file, table, column, *x->version ? x->version : "unknown");
			rc = 0;
			goto out;
		}
		PL_TRY(pl_buf_printf(&sql, err, "%sNULL", i ? ", " : ""));
	}
	if (!where)
		PL_TRY(pl_sqlite_table(x->db, table, columns, q, err));
	if (*q)
		goto out;
	PL_TRY(pl_buf_printf(&sql, err, " FROM \"%s\" %s", table, where ? where : ""));
	PL_TRY(pl_buf_put(&sql, "", 1, err));
	*q = pl_sqlite_query(x->db, (const char *)sql.p, err);
	rc = *q ? 0 : err->code;
out:
	pl_buf_fini(&sql);
	return rc;
}

int pl_nsys_process(struct pl_nsys *x, int64_t global, uint32_t *index, struct pl_err *err)
{
	const struct pl_nsys_process p = {
		.key = pl_nsys_process_key(global), .device = -1, .rank = -1, .member = -1
	};

	for (size_t i = 0; i < x->n_processes; i++)
		if (x->process[i].key == p.key) {
			*index = (uint32_t)i;
			return 0;
		}
	if (x->n_processes >= 1 << 20)
		return pl_fail(err, PL_ELIMIT, "%s: more than 2^20 processes", x->report.file);
	*index = (uint32_t)x->n_processes;
	return pl_append(&x->process, &x->n_processes, &x->cap_processes, &p, sizeof(p), err);
}

/* ---- rows ---------------------------------------------------------------------------------- */

#define N_DIMS 256

struct track_key {
	int64_t type, process, a, b, c; /* thread: tid; stream: device, context, stream */
};
struct dims { /* of a grid or block, and their text */
	int64_t v[3];
	pl_id text; /* + 1; 0: empty */
};
struct reader {
	struct pl_nsys x;     /* first */
	struct pl_intern key; /* tracks by struct track_key */
	struct dims dims[N_DIMS];
	struct pl_nsys_waits sync;
	size_t waits, resolved; /* waits of streams, and those whose record was found */
	char *host;
	int64_t base_ns, world;
};

static pl_id key_of(struct reader *d, const char *key)
{
	return pl_import_rows_text(&d->x.rows, key, strlen(key));
}

/* An integer argument, if the row has it. */
static void put_arg(struct reader *d, struct pl_sqlite_query *q, int column, const char *key)
{
	if (!pl_sqlite_null(q, column))
		pl_import_rows_put(&d->x.rows, PL_R_ARG, PL_V_INT, key_of(d, key),
				   pl_sqlite_int(q, column, 0));
}

static void put_role(struct reader *d, uint8_t role, int64_t v)
{
	if (v >= 0)
		pl_import_rows_put(&d->x.rows, role, PL_V_INT, PL_NONE, v);
}

static int track_of(struct reader *d, const struct track_key *key, pl_id *id, struct pl_err *err)
{
	struct pl_rows *r = &d->x.rows;
	struct pl_track t;

	PL_CHECK(pl_intern_add(&d->key, (const char *)key, sizeof(*key), id, err));
	if (*id < r->seg.n_tracks)
		return 0;
	pl_trace_track_init(&t);
	t.type = (uint8_t)key->type;
	t.psort = (int32_t)key->process;
	t.pid = pl_import_rows_format(r, "%lld",
				      (long long)pl_nsys_pid(d->x.process[key->process].key));
	if (key->type == PL_T_THREAD) {
		t.tid = pl_import_rows_format(r, "%lld", (long long)key->a);
	} else {
		t.flags = PL_TRACK_TID_STR;
		t.device = (int32_t)key->a;
		t.sort = 1;
		if (key->type == PL_T_STREAM) {
			t.stream = key->c;
			t.sort = key->c < INT32_MAX - 1 ? (int32_t)key->c + 1 : 1;
			t.name = pl_import_rows_format(r, "stream %lld", (long long)key->c);
			t.tid = pl_import_rows_format(r, "device %lld context %lld stream %lld",
						      (long long)key->a, (long long)key->b,
						      (long long)key->c);
		} else {
			t.name = pl_import_rows_format(r, "synchronisation");
			t.tid = pl_import_rows_format(r, "device %lld", (long long)key->a);
		}
	}
	return pl_trace_segment_track(&r->seg, &t, id, err);
}

int pl_nsys_thread(struct pl_nsys *x, int64_t global, uint32_t *process, pl_id *id,
		   struct pl_err *err)
{
	struct track_key key = { .type = PL_T_THREAD, .a = pl_nsys_tid(global) };

	PL_CHECK(pl_nsys_process(x, global, process, err));
	key.process = *process;
	return track_of((struct reader *)x, &key, id, err);
}

int pl_nsys_extra_track(struct pl_nsys *x, uint32_t process, int number, const char *name,
			pl_id *id, struct pl_err *err)
{
	/* threads have numbers of 24 bits */
	const struct track_key key = { .type = PL_T_THREAD,
				       .process = process,
				       .a = ((int64_t)1 << 24) + number };
	pl_id text;

	PL_CHECK(track_of((struct reader *)x, &key, id, err));
	PL_CHECK(pl_import_rows_str(&x->rows, name, strlen(name), &text, err));
	x->rows.seg.track[*id].name = text;
	return 0;
}

static int thread_track(struct reader *d, int64_t global, uint32_t *process, pl_id *id,
			struct pl_err *err)
{
	return pl_nsys_thread(&d->x, global, process, id, err);
}

#define NO_STREAM UINT32_MAX /* CUPTI's invalid value */

static int stream_track(struct reader *d, struct pl_sqlite_query *q, int first, uint32_t *process,
			pl_id *id, struct pl_err *err)
{
	struct track_key key = { .type = PL_T_STREAM,
				 .a = pl_sqlite_int(q, first + 1, 0),
				 .b = pl_sqlite_int(q, first + 2, 0),
				 .c = pl_sqlite_int(q, first + 3, 0) };

	PL_CHECK(pl_nsys_process(&d->x, pl_sqlite_int(q, first, 0), process, err));
	key.process = *process;
	if (key.a < 0 || key.a >= INT32_MAX)
		key.a = 0;
	if (key.c < 0 || key.c >= NO_STREAM) {
		key.type = PL_T_OTHER;
		key.b = key.c = 0;
	}
	PL_CHECK(track_of(d, &key, id, err));
	if (key.type == PL_T_STREAM)
		put_role(d, PL_R_STREAM, key.c);
	return 0;
}

/* Start and end are the first two columns of every query. */
static int finish_row(struct reader *d, struct pl_sqlite_query *q, uint8_t kind, pl_id track,
		      pl_id name, struct pl_err *err)
{
	pl_ns start = pl_sqlite_int(q, 0, 0), end = pl_sqlite_int(q, 1, -1);
	pl_ns dur = pl_sqlite_null(q, 1) ? -1 : pl_sub_sat(end, start);

	if (PL_UNLIKELY(!pl_sqlite_null(q, 1) && dur < 0)) {
		dur = 0;
		PL_CHECK(pl_import_report(&d->x.report, PL_BAD_VALUE, d->x.row,
					  "an end before its start (0 stands for the duration)",
					  err));
	}
	return pl_import_rows_event(&d->x.rows, kind, track, name, start, dur, err);
}

/* ---- tables -------------------------------------------------------------------------------- */

enum {
	NVTX_CATEGORY = 33,
	NVTX_MARK = 34,
	NVTX_THREAD = 39,
	NVTX_DOMAIN = 75,
	NVTX_DOMAIN_END = 76
};
#define NVTX "start,end,text,textId,globalTid,eventType,domainId,jsonText"

static int nvtx_row(struct reader *d, struct pl_sqlite_query *q, struct pl_err *err)
{
	int64_t type = pl_sqlite_int(q, 5, 0), step;
	uint8_t kind = PL_K_ANNOTATION;
	const char *s, *json;
	uint32_t process, op_len;
	const struct pl_nsys_text *e;
	pl_id track, name;
	size_t n;

	if (type == NVTX_CATEGORY || type == NVTX_THREAD || type == NVTX_DOMAIN ||
	    type == NVTX_DOMAIN_END || pl_sqlite_null(q, 4))
		return 0;
	s = pl_sqlite_text(q, 2, &n);
	if (s) {
		op_len = pl_nsys_op_length(s, n);
		PL_CHECK(pl_import_rows_str(&d->x.rows, s, n, &name, err));
	} else {
		PL_CHECK(pl_nsys_text(&d->x, pl_sqlite_int(q, 3, -1), &e, err));
		op_len = e->op_len;
		name = e->s;
	}
	s = d->x.rows.seg.str.str[name];
	n = d->x.rows.seg.str.len[name];
	PL_CHECK(thread_track(d, pl_sqlite_int(q, 4, 0), &process, &track, err));
	if (pl_sqlite_null(q, 1)) {
		kind = PL_K_INSTANT;
	} else if (pl_import_step_number(s, n, &step)) {
		kind = PL_K_STEP;
		put_role(d, PL_R_STEP, step);
	} else if (n > 4 && !memcmp(s, "nccl", 4)) {
		kind = PL_K_HOST_OP;
	} else if (op_len) {
		kind = PL_K_HOST_OP;
		pl_import_rows_put(&d->x.rows, PL_R_ARG, PL_V_STR, key_of(d, "nvtx"), name);
		name = pl_import_rows_text(&d->x.rows, s, op_len);
	}
	if (!pl_sqlite_null(q, 6) && pl_sqlite_int(q, 6, 0))
		put_arg(d, q, 6, "domain");
	json = pl_sqlite_text(q, 7, &n);
	if (json && pl_import_json_check(json, n) == 0)
		pl_import_rows_put(&d->x.rows, PL_R_ARG, PL_V_JSON, key_of(d, "payload"),
				   pl_import_rows_text(&d->x.rows, json, n));
	return finish_row(d, q, kind, track, name, err);
}

#define HOST "start,end,globalTid,nameId"

static int host_row(struct reader *d, struct pl_sqlite_query *q, struct pl_err *err)
{
	uint32_t process;
	pl_id track, name;

	PL_CHECK(pl_nsys_string(&d->x, pl_sqlite_int(q, 3, -1), &name, err));
	PL_CHECK(thread_track(d, pl_sqlite_int(q, 2, 0), &process, &track, err));
	return finish_row(d, q, PL_K_HOST_OP, track, name, err);
}

#define RUNTIME "start,end,globalTid,nameId,correlationId,returnValue"

/* Calls without the version that CUPTI puts behind: cudaLaunchKernel_v7000. */
static int call_name(struct reader *d, int64_t number, pl_id *name, struct pl_err *err)
{
	const char *s, *v;

	PL_CHECK(pl_nsys_string(&d->x, number, name, err));
	s = pl_intern_get(&d->x.rows.seg.str, *name);
	v = strrchr(s, '_');
	if (v && v > s && v[1] == 'v' && v[2] && strspn(v + 2, "0123456789") == strlen(v + 2))
		PL_CHECK(pl_import_rows_str(&d->x.rows, s, (size_t)(v - s), name, err));
	return 0;
}

static int runtime_row(struct reader *d, struct pl_sqlite_query *q, struct pl_err *err)
{
	int64_t global = pl_sqlite_int(q, 2, 0), corr = pl_sqlite_int(q, 4, -1);
	uint32_t process;
	pl_id track, name;

	PL_CHECK(call_name(d, pl_sqlite_int(q, 3, -1), &name, err));
	PL_CHECK(thread_track(d, global, &process, &track, err));
	put_role(d, PL_R_CORR, corr);
	if (pl_sqlite_int(q, 5, 0))
		put_arg(d, q, 5, "return value");
	if (corr >= 0)
		PL_CHECK(pl_import_comm_add_launch(d->x.rows.comm, track, d->x.process[process].key,
						   pl_nsys_tid(global), pl_sqlite_int(q, 0, 0),
						   pl_nsys_corr(process, corr), err));
	return finish_row(d, q, PL_K_RUNTIME, track, name, err);
}

#define KERNEL                                                                                     \
	"start,end,globalPid,deviceId,contextId,streamId,correlationId,demangledName,shortName,"   \
	"gridX,gridY,gridZ,blockX,blockY,blockZ,registersPerThread,staticSharedMemory,"            \
	"dynamicSharedMemory,graphNodeId"

static void put_dims(struct reader *d, struct pl_sqlite_query *q, int column, const char *key)
{
	const int64_t v[3] = { pl_sqlite_int(q, column, 1), pl_sqlite_int(q, column + 1, 1),
			       pl_sqlite_int(q, column + 2, 1) };
	struct dims *e = &d->dims[(uint64_t)(v[0] * 31 + v[1] * 7 + v[2]) % N_DIMS];

	if (pl_sqlite_null(q, column))
		return;
	if (!e->text || memcmp(e->v, v, sizeof(v)) != 0) {
		memcpy(e->v, v, sizeof(v));
		e->text = pl_import_rows_format(&d->x.rows, "[%lld, %lld, %lld]", (long long)v[0],
						(long long)v[1], (long long)v[2]) +
			  1;
	}
	pl_import_rows_put(&d->x.rows, PL_R_ARG, PL_V_JSON, key_of(d, key), e->text - 1);
}

/* Kernels of communication get what their launch says. */
static int note_comm(struct reader *d, uint32_t process, int64_t corr, pl_id name,
		     struct pl_err *err)
{
	struct pl_held *h = d->x.rows.cur;
	struct pl_comm_row row = { .row = h->b.n,
				   .corr = corr < 0 ? -1 : pl_nsys_corr(process, corr),
				   .rf = -1,
				   .bytes = -1,
				   .group = PL_NONE };

	row.coll =
		pl_trace_coll_from_name(d->x.rows.seg.str.str[name], d->x.rows.seg.str.len[name]);
	return pl_append(&h->row, &h->n_rows, &h->cap_rows, &row, sizeof(row), err);
}

/* With a key: the joiner adds sizes of communication later, to a column without one. */
static void put_bytes(struct reader *d, struct pl_sqlite_query *q, int column)
{
	if (!pl_sqlite_null(q, column))
		pl_import_rows_put(&d->x.rows, PL_R_BYTES, PL_V_INT, key_of(d, "bytes"),
				   pl_sqlite_int(q, column, 0));
}

/* An operation of a stream that moves bytes, or none (column -1). */
static int stream_row(struct reader *d, struct pl_sqlite_query *q, uint8_t kind, pl_id name,
		      int bytes, int graph_node, struct pl_err *err)
{
	uint32_t process;
	pl_id track;

	PL_CHECK(stream_track(d, q, 2, &process, &track, err));
	put_role(d, PL_R_CORR, pl_sqlite_int(q, 6, -1));
	if (bytes >= 0)
		put_bytes(d, q, bytes);
	if (graph_node >= 0)
		put_arg(d, q, graph_node, "graph node id");
	return finish_row(d, q, kind, track, name, err);
}

static int kernel_row(struct reader *d, struct pl_sqlite_query *q, struct pl_err *err)
{
	int64_t corr = pl_sqlite_int(q, 6, -1);
	uint8_t kind = PL_K_KERNEL;
	uint32_t process;
	const struct pl_nsys_text *e;
	pl_id track, name;

	PL_CHECK(pl_nsys_text(&d->x, pl_sqlite_int(q, pl_sqlite_null(q, 7) ? 8 : 7, -1), &e, err));
	name = e->s;
	PL_CHECK(stream_track(d, q, 2, &process, &track, err));
	put_role(d, PL_R_CORR, corr);
	put_dims(d, q, 9, "grid");
	put_dims(d, q, 12, "block");
	put_arg(d, q, 15, "registers per thread");
	if (!pl_sqlite_null(q, 16))
		pl_import_rows_put(&d->x.rows, PL_R_ARG, PL_V_INT, key_of(d, "shared memory"),
				   pl_add_sat(pl_sqlite_int(q, 16, 0), pl_sqlite_int(q, 17, 0)));
	put_arg(d, q, 18, "graph node id");
	if (e->comm) {
		kind = PL_K_COLLECTIVE;
		PL_CHECK(note_comm(d, process, corr, name, err));
	}
	return finish_row(d, q, kind, track, name, err);
}

#define GRAPH "start,end,globalPid,deviceId,contextId,streamId,correlationId,graphId"

/* Graphs that were recorded as a whole: one operation each. */
static int graph_row(struct reader *d, struct pl_sqlite_query *q, struct pl_err *err)
{
	pl_id name = pl_import_rows_format(&d->x.rows, "CUDA graph %lld",
					   (long long)pl_sqlite_int(q, 7, 0));

	return stream_row(d, q, PL_K_KERNEL, name, -1, -1, err);
}

#define COPY                                                                                       \
	"start,end,globalPid,deviceId,contextId,streamId,correlationId,bytes,copyKind,srcKind,"    \
	"dstKind,graphNodeId"

static const char *memory_kind(int64_t kind)
{
	static const char *const names[] = { "Pageable", "Pinned",  "Device",
					     "Array",	 "Managed", "Device" };

	return kind >= 0 && kind < (int64_t)PL_LEN(names) ? names[kind] : "Unknown";
}

/* Names as PyTorch's profiler gives them. */
static int copy_row(struct reader *d, struct pl_sqlite_query *q, struct pl_err *err)
{
	static const char *const kinds[] = { "Unknown", "HtoD", "DtoH", "HtoA", "AtoH", "AtoA",
					     "AtoD",	"DtoA", "DtoD", "HtoH", "PtoP" };
	int64_t kind = pl_sqlite_int(q, 8, 0);
	const char *what = kind >= 0 && kind < (int64_t)PL_LEN(kinds) ? kinds[kind] : kinds[0];
	pl_id name;

	if (pl_sqlite_null(q, 9) || pl_sqlite_null(q, 10))
		name = pl_import_rows_format(&d->x.rows, "Memcpy %s", what);
	else
		name = pl_import_rows_format(&d->x.rows, "Memcpy %s (%s -> %s)", what,
					     memory_kind(pl_sqlite_int(q, 9, -1)),
					     memory_kind(pl_sqlite_int(q, 10, -1)));
	return stream_row(d, q, PL_K_COPY, name, 7, 11, err);
}

#define SET                                                                                        \
	"start,end,globalPid,deviceId,contextId,streamId,correlationId,bytes,memKind,graphNodeId"

static int set_row(struct reader *d, struct pl_sqlite_query *q, struct pl_err *err)
{
	pl_id name = pl_import_rows_format(&d->x.rows, "Memset (%s)",
					   memory_kind(pl_sqlite_int(q, 8, -1)));

	return stream_row(d, q, PL_K_SET, name, 7, 9, err);
}

/* ---- synchronisation ----------------------------------------------------------------------- */

#define SYNC                                                                                       \
	"start,end,globalPid,deviceId,contextId,streamId,correlationId,syncType,eventId,"          \
	"eventSyncId"

static int sync_row(struct reader *d, struct pl_sqlite_query *q, struct pl_err *err)
{
	static const char *const names[PL_NSYS_SYNC_TYPES] = { "Sync", "Event Sync",
							       "Stream Wait Event", "Stream Sync",
							       "Context Sync" };
	int64_t number = pl_sqlite_int(q, 7, 0), corr = pl_sqlite_int(q, 6, -1);
	int64_t event = pl_sqlite_int(q, 8, -1);
	int64_t type = number >= 0 && number < (int64_t)PL_LEN(d->sync.type) ? d->sync.type[number]
									     : PL_NSYS_SYNC_OTHER;
	const struct pl_nsys_record *r = NULL;
	uint32_t process;
	pl_id track;

	PL_CHECK(stream_track(d, q, 2, &process, &track, err));
	put_role(d, PL_R_CORR, corr);
	if (type == PL_NSYS_SYNC_WAIT || type == PL_NSYS_SYNC_EVENT) {
		if (event < NO_STREAM)
			put_role(d, PL_R_WAIT_EVENT, event);
		r = pl_nsys_waits_find(&d->sync, d->x.process[process].key,
				       d->sync.by_sync_id ? pl_sqlite_int(q, 9, -1) : event, corr);
	}
	if (r) {
		put_role(d, PL_R_WAIT_STREAM, r->stream < NO_STREAM ? r->stream : -1);
		put_role(d, PL_R_WAIT_CORR, r->corr);
	}
	d->waits += type == PL_NSYS_SYNC_WAIT;
	d->resolved += type == PL_NSYS_SYNC_WAIT && r && r->corr >= 0;
	return finish_row(d, q, PL_K_SYNC, track, key_of(d, names[type]), err);
}

/* ---- the whole export ---------------------------------------------------------------------- */

/* Synchronisation first: every segment says whether all of it is known. */
static const struct table {
	const char *name, *columns;
	unsigned need;
	int (*row)(struct reader *d, struct pl_sqlite_query *q, struct pl_err *err);
} tables[] = {
	{ "CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", SYNC, 2, sync_row },
	{ "NVTX_EVENTS", NVTX, 2, nvtx_row },
	{ "CUDNN_EVENTS", HOST, 4, host_row },
	{ "CUBLAS_EVENTS", HOST, 4, host_row },
	{ "CUPTI_ACTIVITY_KIND_RUNTIME", RUNTIME, 4, runtime_row },
	{ "CUPTI_ACTIVITY_KIND_KERNEL", KERNEL, 2, kernel_row },
	{ "CUPTI_ACTIVITY_KIND_GRAPH_TRACE", GRAPH, 2, graph_row },
	{ "CUPTI_ACTIVITY_KIND_MEMCPY", COPY, 2, copy_row },
	{ "CUPTI_ACTIVITY_KIND_MEMSET", SET, 2, set_row },
};

/* Tables of names are read for each segment. */
static bool was_said(struct pl_nsys *x, const char *what)
{
	uint64_t hash = pl_hash(what, strlen(what));

	for (unsigned i = 0; i < x->n_kept; i++)
		if (x->kept[i] == hash)
			return true;
	if (x->n_kept < PL_LEN(x->kept))
		x->kept[x->n_kept++] = hash;
	return false;
}

int pl_nsys_keep(struct pl_nsys *x, const char *table, int rc, struct pl_err *err)
{
	if (rc != PL_EDATA || x->o->strict)
		return rc;
	if (!was_said(x, err->msg))
		pl_say(x->o->log, PL_LOG_WARN, "%s; what could be read of table %s is kept",
		       err->msg, table);
	if (!x->report.st->first[0])
		snprintf(x->report.st->first, sizeof(x->report.st->first), "%.255s", err->msg);
	x->report.st->truncated = true;
	if (x->rows.cur) /* a row may be under way */
		pl_import_rows_undo(&x->rows);
	err->code = 0;
	return 0;
}

static int read_table(struct reader *d, const struct table *t, struct pl_err *err)
{
	struct pl_sqlite_query *q;
	int rc;

	PL_CHECK(pl_nsys_select(&d->x, t->name, t->columns, t->need, NULL, &q, err));
	d->x.row = 0;
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		d->x.row++;
		if (pl_sqlite_null(q, 0)) {
			rc = pl_import_report(&d->x.report, PL_BAD, d->x.row,
					      "an event without a start", err);
			if (rc < 0)
				break;
			continue;
		}
		if ((rc = pl_import_rows_ready(&d->x.rows, err)) < 0 ||
		    (rc = t->row(d, q, err)) < 0)
			break;
	}
	rc = pl_nsys_keep(&d->x, t->name, rc, err);
	pl_sqlite_query_free(q);
	return rc;
}

/* A copy of the text in a column that is not NULL. */
static int copy_text(struct pl_sqlite_query *q, int column, char **value, struct pl_err *err)
{
	size_t n;
	const char *s = pl_sqlite_text(q, column, &n);

	return s ? pl_dup(NULL, value, s, err) : pl_fail(err, PL_ENOMEM, "out of memory (text)");
}

/* Texts of the target's tables: *value is the value of this name, or stays NULL. */
static int one_value(struct reader *d, const char *table, const char *columns, const char *where,
		     char **value, struct pl_err *err)
{
	struct pl_sqlite_query *q;
	int rc;

	PL_CHECK(pl_nsys_select(&d->x, table, columns, 1, where, &q, err));
	rc = q ? pl_sqlite_next(q, err) : 0;
	if (rc > 0 && !pl_sqlite_null(q, 0))
		rc = copy_text(q, 0, value, err);
	pl_sqlite_query_free(q);
	rc = pl_nsys_keep(&d->x, table, rc, err);
	return rc < 0 ? rc : 0;
}

static int names_of(struct reader *d, const char *table, const char *columns, bool threads,
		    struct pl_err *err)
{
	struct pl_sqlite_query *q;
	uint32_t process;
	int rc;

	PL_CHECK(pl_nsys_select(&d->x, table, columns, 2, NULL, &q, err));
	while ((rc = q ? pl_sqlite_next(q, err) : 0) > 0) {
		int64_t global = pl_sqlite_int(q, 0, 0);
		struct track_key key = { .type = PL_T_THREAD, .a = pl_nsys_tid(global) };
		pl_id id, name = PL_NONE;

		if ((rc = pl_nsys_process(&d->x, global, &process, err)) < 0)
			break;
		key.process = process;
		if (!threads) {
			if (!d->x.process[process].name && !pl_sqlite_null(q, 1))
				rc = copy_text(q, 1, &d->x.process[process].name, err);
		} else if ((id = pl_intern_find(&d->key, (const char *)&key, sizeof(key))) !=
			   PL_NONE) {
			rc = pl_nsys_string(&d->x, pl_sqlite_int(q, 1, -1), &name, err);
			d->x.rows.seg.track[id].name = name;
		}
		if (rc < 0)
			break;
	}
	pl_sqlite_query_free(q);
	return pl_nsys_keep(&d->x, table, rc, err);
}

/* Ranks, hosts and names of the tracks, and what the segment says about itself. */
static int finish(void *arg, struct pl_err *err)
{
	struct reader *d = arg;
	struct pl_segment *seg = &d->x.rows.seg;
	const struct pl_nsys_process *p;
	char text[96] = "{";
	size_t n = 0, ranks = 0;
	int k = 1;

	PL_CHECK(names_of(d, "ThreadNames", "globalTid,nameId", true, err));
	for (pl_id i = 0; i < seg->n_tracks; i++) {
		struct track_key key;

		memcpy(&key, d->key.str[i], sizeof(key));
		p = &d->x.process[key.process];
		seg->track[i].rank = p->rank;
		seg->track[i].host = d->host ? key_of(d, d->host) : PL_NONE;
		seg->track[i].process = p->name ? key_of(d, p->name) : PL_NONE;
	}
	for (size_t i = 0; i < d->x.n_processes; i++) {
		ranks += d->x.process[i].rank >= 0;
		n = d->x.process[i].rank >= 0 ? i : n;
	}
	if (ranks == 1 && !d->x.process[n].picked)
		k += snprintf(text + k, sizeof(text) - (size_t)k, "\"rank\": %d%s",
			      (int)d->x.process[n].rank, d->world ? ", " : "");
	if (d->world)
		k += snprintf(text + k, sizeof(text) - (size_t)k, "\"world_size\": %lld",
			      (long long)d->world);
	if (k > 1) {
		text[k++] = '}';
		PL_CHECK(pl_trace_segment_meta(seg, "distributedInfo", 15, text, (size_t)k, err));
	}
	if (d->waits && d->waits == d->resolved)
		PL_CHECK(pl_trace_segment_meta(seg, "all_synchronization", 19, "true", 4, err));
	seg->base_ns = d->base_ns;
	return d->x.rows.rc;
}

static void renew(void *arg)
{
	struct reader *d = arg;

	memset(d->x.text, 0, sizeof(d->x.text));
	memset(d->dims, 0, sizeof(d->dims));
	if (d->key.n != d->x.rows.seg.n_tracks)
		pl_intern_reset(&d->key);
}

/* Is it an export, and of which schema? */
static int examine(struct reader *d, struct pl_err *err)
{
	char *version = NULL, *epoch = NULL;
	bool any = false;
	int rc;

	for (size_t i = 0; i < PL_LEN(tables); i++)
		any |= pl_sqlite_has_table(d->x.db, tables[i].name);
	any |= pl_sqlite_has_table(d->x.db, "MPI_COLLECTIVES_EVENTS") ||
	       pl_sqlite_has_table(d->x.db, "MPI_P2P_EVENTS");
	PL_TRY(one_value(d, "META_DATA_EXPORT", "value", "WHERE name = 'EXPORT_SCHEMA_VERSION'",
			 &version, err));
	snprintf(d->x.version, sizeof(d->x.version), "%s", version ? version : "");
	if (!any || !pl_sqlite_has_table(d->x.db, "StringIds")) {
		rc = pl_fail(
			err, PL_EDATA,
			"%s: an SQLite database without the tables of an export of Nsight "
			"Systems (%s%s); make one with: nsys export --type sqlite REPORT, of a "
			"report that was recorded with --trace=cuda,nvtx",
			d->x.report.file,
			version ? "schema "
			: any	? "no StringIds"
				: "no events",
			d->x.version);
		goto out;
	}
	PL_TRY(one_value(d, "TARGET_INFO_SESSION_START_TIME", "utcEpochNs", NULL, &epoch, err));
	if (epoch)
		pl_json_i64(epoch, strlen(epoch), &d->base_ns);
	PL_TRY(one_value(d, "TARGET_INFO_SYSTEM_ENV", "value", "WHERE name = 'Hostname'", &d->host,
			 err));
	d->x.string = pl_sqlite_query(d->x.db, "SELECT value FROM StringIds WHERE id = ?1", err);
	rc = d->x.string ? 0 : err->code;
out:
	pl_free(version);
	pl_free(epoch);
	return rc;
}

static int read_all(struct reader *d, struct pl_in *in, struct pl_err *err)
{
	d->x.db = pl_sqlite_open(in, err);
	if (!d->x.db)
		return err->code;
	PL_CHECK(examine(d, err));
	d->x.rows.comm = pl_import_comm_new(d->x.rows.path, d->x.o->log, err);
	PL_CHECK(d->x.rows.comm ? 0 : err->code);
	PL_CHECK(names_of(d, "PROCESSES", "globalPid,name", false, err));
	PL_CHECK(pl_nsys_nccl(&d->x, &d->world, err));
	PL_CHECK(pl_nsys_waits_read(&d->x, &d->sync, err));
	PL_CHECK(pl_import_rows_open(&d->x.rows, err));
	for (size_t i = 0; i < PL_LEN(tables); i++)
		PL_CHECK(read_table(d, &tables[i], err));
	PL_CHECK(pl_nsys_mpi(&d->x, &d->world, err));
	if (d->waits > d->resolved)
		pl_say(d->x.o->log, PL_LOG_NOTE,
		       "%s: %zu of %zu waits of streams name an event whose record is missing "
		       "(nsys profile --cuda-event-trace=true records them)",
		       d->x.report.file, d->waits - d->resolved, d->waits);
	return pl_import_rows_close(&d->x.rows, err);
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct reader *d = NULL;
	int rc = pl_alloc(&d, 1, sizeof(*d), err);

	if (rc < 0)
		return rc;
	d->x.o = o;
	pl_import_rows_init(&d->x.rows, &d->x.report, in, o, sink, st, "nsys", d);
	d->x.report.unit = "row";
	d->x.rows.finish = finish;
	d->x.rows.renew = renew;
	rc = read_all(d, in, err);
	pl_import_rows_fini(&d->x.rows);
	pl_import_comm_free(d->x.rows.comm);
	pl_sqlite_query_free(d->x.string);
	pl_sqlite_close(d->x.db);
	for (size_t i = 0; i < d->x.n_processes; i++)
		pl_free(d->x.process[i].name);
	pl_free(d->x.process);
	pl_free(d->x.comm);
	pl_free(d->x.field);
	pl_free(d->sync.record);
	pl_free(d->host);
	pl_intern_fini(&d->key);
	pl_free(d);
	return rc;
}

static int probe(const uint8_t *p, size_t n)
{
	return pl_sqlite_probe(p, n) ? 70 : 0;
}

const struct pl_importer pl_import_nsys = {
	.name = "nsys",
	.summary = "Nsight Systems, exported as SQLite",
	.probe = probe,
	.run = run,
};
