/*
 * What AMD's rocprofv3 writes with --output-format json: of each process the names first (kernels,
 * calls, ranges), then records by type: kernels, copies, calls of HIP, HSA and RCCL, ranges,
 * events. Records refer to names by number. One pass; memory is that of the names.
 *
 * Streams are those of HIP where they were recorded, else the queues of the device. A record of an
 * event tells which stream waits for which ("hip_event").
 */
#include "import/objects.h"

#define WHOLE PL_OBJECTS_WHOLE
enum section {
	NONE = -1,
	DOCUMENT,
	TOOL,
	PROCESS,
	STRINGS,
	RECORDS,
	METADATA = WHOLE,
	AGENT,
	NAMES,
	RANGE_NAME,
	SYMBOL,
	KERNEL,
	COPY,
	CALL,
	HOST_OP,
	RANGE,
	EVENT
};

enum { OF_KERNEL = 'k', OF_CALL = 'c', OF_RANGE = 'r', OF_AGENT = 'a', OF_EVENT = 'e' };
struct value {
	const char *s; /* a name; n bytes */
	size_t n;
	int64_t corr;	  /* of an event: the call that recorded it; of an agent: its number */
	int64_t stream;	  /* of an event */
	const char *coll; /* of a kernel: the collective, NULL none */
	bool comm;	  /* of a kernel: communication */
};
struct roc {
	struct pl_objects_in in;
	struct pl_arena arena;
	struct pl_intern key; /* type and number -> value */
	struct value *value;
	size_t cap_values;
	int section;
	unsigned processes;
	int64_t pid, kinds, devices; /* of the process */
	char host[128];
};

/* ---- names --------------------------------------------------------------------------------- */

static int put(struct roc *d, char type, int64_t number, const struct value *v, struct pl_err *err)
{
	const int64_t key[] = { type, number };
	pl_id id;

	PL_CHECK(pl_intern_add(&d->key, (const char *)key, sizeof(key), &id, err));
	PL_CHECK(pl_grow(&d->value, &d->cap_values, id + (size_t)1, sizeof(*d->value), err));
	d->value[id] = *v;
	return 0;
}

/* A text, as JSON writes it. */
static int put_name(struct roc *d, char type, int64_t number, const char *s, size_t n,
		    struct pl_err *err)
{
	struct value v = { 0 };
	char *text;

	PL_CHECK(pl_arena_array(&d->arena, &text, n + 1, 1, err));
	v.n = pl_json_unescape(s, n, text);
	v.s = text;
	v.comm = type == OF_KERNEL && pl_import_name_class(v.s, v.n) == PL_N_DEVCOMM;
	v.coll = v.comm ? pl_trace_coll_from_name(v.s, v.n) : NULL;
	return put(d, type, number, &v, err);
}

static const struct value *get(const struct roc *d, char type, int64_t number)
{
	const int64_t key[] = { type, number };
	pl_id id = pl_intern_find(&d->key, (const char *)key, sizeof(key));

	return id == PL_NONE ? NULL : &d->value[id];
}

static int64_t call_key(int64_t kind, int64_t operation)
{
	return kind < 0 || operation < 0 || kind > 1 << 20 ? -1 : kind << 32 | (uint32_t)operation;
}

/* {"kind": "HIP_RUNTIME_API", "operations": ["hipApiName", ...]}: the kinds in order. */
static int operations(struct roc *d, const struct pl_object *o, struct pl_err *err)
{
	const struct pl_object_member *m = pl_objects_get(o, "operations");
	const char *p = m && m->type == '[' ? m->s : NULL, *end = p ? p + m->n : NULL;
	int64_t kind = d->kinds++;
	unsigned flags;

	for (int64_t i = 0; p && (p = memchr(p, '"', (size_t)(end - p))); i++) {
		const char *q = pl_scan_string(p + 1, end, &flags);

		if (q >= end)
			break;
		PL_CHECK(put_name(d, OF_CALL, call_key(kind, i), p + 1, (size_t)(q - p - 1), err));
		p = q + 1;
	}
	return 0;
}

static int named(struct roc *d, const struct pl_object *o, char type, const char *number,
		 const char *name, struct pl_err *err)
{
	int64_t v = pl_objects_int(o, number, -1);
	size_t n;
	const char *s = pl_objects_text(o, name, &n);

	return v >= 0 && s ? put_name(d, type, v, s, n, err) : 0;
}

static int64_t handle(const struct pl_object *o, const char *key)
{
	const struct pl_object_member *m = pl_objects_get(o, key);
	int64_t v;

	if (!m || m->type == '[')
		return -1;
	if (m->type == '{') /* {"handle": N} */
		m = m + 1 < o->m + o->n ? m + 1 : NULL;
	return m && pl_json_i64(m->s, m->n, &v) ? v : -1;
}

/* GPUs are numbered in the order of the list, as HIP does. */
static int agent(struct roc *d, const struct pl_object *o, struct pl_err *err)
{
	struct value v = { .corr = d->devices };

	if (pl_objects_int(o, "type", 0) != 2)
		return 0;
	d->devices++;
	return put(d, OF_AGENT, handle(o, "id"), &v, err);
}

/* ---- tracks -------------------------------------------------------------------------------- */

static int thread_of(struct roc *d, const struct pl_object *o, pl_id *id, struct pl_err *err)
{
	char name[40];
	const struct pl_lane l = { .type = PL_T_THREAD,
				   .process = d->pid,
				   .number = pl_objects_int(o, "thread_id", 0),
				   .name = name,
				   .rank = -1 };

	pl_import_lane_name(name, sizeof(name), "thread", l.number);
	return pl_import_lane(&d->in.lanes, &l, id, err);
}

static int stream_of(struct roc *d, const struct pl_object *o, const char *agent_key, pl_id *id,
		     struct pl_err *err)
{
	const struct value *v = get(d, OF_AGENT, handle(o, agent_key));
	int64_t device = v ? v->corr : -1, stream = handle(o, "stream_id"),
		queue = handle(o, "queue_id");
	char name[80];
	const struct pl_lane l = { .type = stream <= 0 && queue < 0 ? PL_T_COPY_ENGINE
								    : PL_T_STREAM,
				   .process = d->pid,
				   .number = device,
				   .name = name,
				   .rank = -1 };

	if (stream > 0)
		pl_import_lane_name(name, sizeof(name), "stream", stream);
	else if (queue >= 0)
		pl_import_lane_name(name, sizeof(name), "queue", queue);
	else
		snprintf(name, sizeof(name), "copies");
	PL_CHECK(pl_import_lane(&d->in.lanes, &l, id, err));
	d->in.rows.seg.track[*id].device = (int32_t)device;
	return 0;
}

/* ---- records ------------------------------------------------------------------------------- */

static int event(struct roc *d, const struct pl_object *o, uint8_t kind, pl_id track, const char *s,
		 size_t n, struct pl_err *err)
{
	pl_ns start, end;

	if (!pl_objects_time(o, "start_timestamp", 1, &start) ||
	    !pl_objects_time(o, "end_timestamp", 1, &end) || end < start) {
		pl_import_rows_undo(&d->in.rows); /* else the next record would have its values */
		return pl_import_report(&d->in.report, PL_BAD, o->at, "a record without its time",
					err);
	}
	return pl_import_rows_event(&d->in.rows, kind, track,
				    pl_import_rows_text(&d->in.rows, s, n), start,
				    kind == PL_K_INSTANT ? -1 : end - start, err);
}

static void put_corr(struct roc *d, const struct pl_object *o)
{
	int64_t corr = pl_objects_int(o, "internal", -1);

	if (corr >= 0)
		pl_import_put_int(&d->in.rows, PL_R_CORR, NULL, corr);
}

static int kernel(struct roc *d, const struct pl_object *o, struct pl_err *err)
{
	int64_t number = pl_objects_int(o, "kernel_id", -1);
	const struct value *v = get(d, OF_KERNEL, number);
	char unknown[40];
	pl_id track;
	struct value none = { .s = unknown };

	if (!v) {
		none.n = (size_t)snprintf(unknown, sizeof(unknown), "kernel %lld",
					  (long long)number);
		v = &none;
	}
	PL_CHECK(stream_of(d, o, "agent_id", &track, err));
	put_corr(d, o);
	if (v->coll)
		pl_import_put_text(&d->in.rows, PL_R_COLL, NULL, v->coll, strlen(v->coll));
	return event(d, o, v->comm ? PL_K_COLLECTIVE : PL_K_KERNEL, track, v->s, v->n, err);
}

static const char *call_name(const struct roc *d, const struct pl_object *o, size_t *n)
{
	const struct value *v =
		get(d, OF_CALL,
		    call_key(pl_objects_int(o, "kind", -1), pl_objects_int(o, "operation", -1)));

	*n = v ? v->n : 7;
	return v ? v->s : "unknown";
}

static int copy(struct roc *d, const struct pl_object *o, struct pl_err *err)
{
	static const char to_host[] = "DEVICE_TO_HOST";
	size_t n;
	const char *s = call_name(d, o, &n);
	int64_t bytes = pl_objects_int(o, "bytes", -1);
	pl_id track;

	PL_CHECK(stream_of(
		d, o, memmem(s, n, to_host, sizeof(to_host) - 1) ? "src_agent_id" : "dst_agent_id",
		&track, err));
	put_corr(d, o);
	if (bytes >= 0)
		pl_import_put_int(&d->in.rows, PL_R_BYTES, NULL, bytes);
	return event(d, o, PL_K_COPY, track, s, n, err);
}

static int call(struct roc *d, const struct pl_object *o, uint8_t kind, struct pl_err *err)
{
	size_t n;
	const char *s = call_name(d, o, &n);
	pl_id track;

	PL_CHECK(thread_of(d, o, &track, err));
	if (kind == PL_K_RUNTIME)
		put_corr(d, o);
	return event(d, o, kind, track, s, n, err);
}

/* Ranges of roctx, whose text is that of their correlation. */
static int range(struct roc *d, const struct pl_object *o, struct pl_err *err)
{
	const struct value *v = get(d, OF_RANGE, pl_objects_int(o, "internal", -1));
	uint8_t kind = PL_K_ANNOTATION;
	size_t n;
	const char *s = call_name(d, o, &n);
	int64_t step;
	pl_id track;

	PL_CHECK(thread_of(d, o, &track, err));
	if (n >= 9 && !memcmp(s, "roctxMark", 9))
		kind = PL_K_INSTANT;
	if (v) {
		s = v->s;
		n = v->n;
		if (kind != PL_K_INSTANT && pl_import_step_number(s, n, &step)) {
			kind = PL_K_STEP;
			pl_import_put_int(&d->in.rows, PL_R_STEP, NULL, step);
		}
	}
	return event(d, o, kind, track, s, n, err);
}

/* An event is recorded on a stream (1), or a stream waits for it (2). */
static int hip_event(struct roc *d, const struct pl_object *o, struct pl_err *err)
{
	int64_t number = handle(o, "hip_event_handle"),
		operation = pl_objects_int(o, "operation", 0);
	struct value v = { .corr = pl_objects_int(o, "internal", -1) };
	const struct value *from = get(d, OF_EVENT, number);
	pl_id track;

	PL_CHECK(stream_of(d, o, "agent_id", &track, err));
	v.stream = d->in.rows.seg.track[track].stream;
	if (operation == 1)
		return put(d, OF_EVENT, number, &v, err);
	if (operation != 2)
		return 0;
	put_corr(d, o);
	pl_import_put_int(&d->in.rows, PL_R_STREAM, NULL, v.stream);
	if (from)
		pl_import_put_int(&d->in.rows, PL_R_WAIT_STREAM, NULL, from->stream);
	if (from && from->corr >= 0)
		pl_import_put_int(&d->in.rows, PL_R_WAIT_CORR, NULL, from->corr);
	return event(d, o, PL_K_SYNC, track, "Stream Wait Event", 17, err);
}

/* ---- the document -------------------------------------------------------------------------- */

static int begin_process(struct roc *d)
{
	pl_intern_reset(&d->key);
	d->kinds = d->devices = 0;
	d->processes++;
	d->pid = d->processes;
	return PROCESS;
}

static int enter(void *arg, int section, const char *key, size_t n)
{
	static const struct {
		int in;
		const char *key;
		int section;
	} table[] = {
		{ DOCUMENT, "rocprofiler-sdk-tool", TOOL },
		{ PROCESS, "metadata", METADATA },
		{ PROCESS, "agents", AGENT },
		{ PROCESS, "strings", STRINGS },
		{ PROCESS, "kernel_symbols", SYMBOL },
		{ PROCESS, "buffer_records", RECORDS },
		{ STRINGS, "buffer_records", NAMES },
		{ STRINGS, "marker_api", RANGE_NAME },
		{ RECORDS, "kernel_dispatch", KERNEL },
		{ RECORDS, "memory_copy", COPY },
		{ RECORDS, "hip_api", CALL },
		{ RECORDS, "hsa_api", CALL },
		{ RECORDS, "rccl_api", HOST_OP },
		{ RECORDS, "rocdecode_api", HOST_OP },
		{ RECORDS, "rocjpeg_api", HOST_OP },
		{ RECORDS, "marker_api", RANGE },
		{ RECORDS, "hip_event", EVENT },
	};
	struct roc *d = arg;

	d->section = NONE;
	if (section == PL_OBJECTS_TOP)
		return DOCUMENT;
	if (!key)
		return d->section = section == TOOL ? begin_process(d) : section;
	for (size_t i = 0; i < PL_LEN(table); i++)
		if (table[i].in == section && strlen(table[i].key) == n &&
		    !memcmp(table[i].key, key, n))
			d->section = table[i].section;
	return d->section;
}

static int metadata(struct roc *d, const struct pl_object *o)
{
	size_t n;
	const char *s = pl_objects_text(o, "hostname", &n);

	d->pid = pl_objects_int(o, "pid", d->pid);
	if (s)
		snprintf(d->host, sizeof(d->host), "%.*s", (int)pl_min_size(n, 120), s);
	return 0;
}

static int one(void *arg, const struct pl_object *o, struct pl_err *err)
{
	struct roc *d = arg;

	PL_CHECK(pl_import_rows_ready(&d->in.rows, err));
	switch (d->section) {
	case METADATA:
		return metadata(d, o);
	case AGENT:
		return agent(d, o, err);
	case NAMES:
		return operations(d, o, err);
	case RANGE_NAME:
		return named(d, o, OF_RANGE, "key", "value", err);
	case SYMBOL:
		return named(d, o, OF_KERNEL, "kernel_id",
			     pl_objects_get(o, "formatted_kernel_name") ? "formatted_kernel_name"
									: "kernel_name",
			     err);
	case KERNEL:
		return kernel(d, o, err);
	case COPY:
		return copy(d, o, err);
	case CALL:
		return call(d, o, PL_K_RUNTIME, err);
	case HOST_OP:
		return call(d, o, PL_K_HOST_OP, err);
	case RANGE:
		return range(d, o, err);
	default:
		return hip_event(d, o, err);
	}
}

static int finish(void *arg, struct pl_err *err)
{
	struct roc *d = arg;
	struct pl_segment *seg = &d->in.rows.seg;
	pl_id host =
		*d->host ? pl_import_rows_text(&d->in.rows, d->host, strlen(d->host)) : PL_NONE;
	int32_t rank;

	PL_CHECK(pl_import_pick_rank(d->in.o, d->in.rows.path, -1, &rank, err));
	if (d->processes > 1) /* the name says one rank at most */
		rank = -1;
	for (pl_id i = 0; i < seg->n_tracks; i++) {
		seg->track[i].rank = rank;
		seg->track[i].host = host;
	}
	if (rank < 0)
		return d->in.rows.rc;
	PL_CHECK(pl_objects_job(&d->in, rank, 0, err));
	return d->in.rows.rc;
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct roc d = { .in.o = o };
	int rc;

	PL_TRY(pl_objects_open(&d.in, in, o, sink, st, "rocprof", finish, &d, err));
	PL_TRY(pl_import_objects_within(&d.in.src, &d.in.report, enter, one, &d, err));
	if (d.processes > 1)
		pl_say(o->log, PL_LOG_WARN,
		       "%s: several processes in one file, whose ranks are unknown",
		       d.in.report.file);
	rc = pl_import_rows_close(&d.in.rows, err);
out:
	pl_objects_fini(&d.in);
	pl_intern_fini(&d.key);
	pl_arena_fini(&d.arena);
	pl_free(d.value);
	return rc;
}

static int probe(const uint8_t *p, size_t n)
{
	return n && *p == '{' && pl_import_has(p, n, "\"rocprofiler-sdk-tool\"") ? 90 : 0;
}

const struct pl_importer pl_import_rocprof = {
	.name = "rocprof",
	.summary = "JSON of AMD's rocprofv3",
	.probe = probe,
	.run = run,
};
