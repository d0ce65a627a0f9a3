/*
 * Logs of NCCL's Inspector plugin: one JSON object for each collective, send or receive that has
 * ended, of all communicators of a process. Up to version 4.2 each object names its communicator;
 * from 4.3 on the marker before a batch ("dump_stats") does, for the objects up to the next one.
 *
 * NCCL counts each operation of a communicator for itself ("coll_sn"), so the number of an event is
 * that count and the operation together. Its time is that of its kernels, which only verbose logs
 * have: without them the end is the time of the dump, which is an upper bound. One pass, constant
 * memory.
 */
#include "import/objects.h"

struct inspector {
	struct pl_objects_in in;
	char comm[80], host[256], name[80]; /* of the batch */
	int64_t rank, size, pid, dumped_us;
	int64_t world, world_rank; /* largest communicator, and the rank there */
	int64_t ranked;		   /* the one of which job_rank comes */
	int32_t job_rank;	   /* -1 unknown */
	int64_t most;		   /* ranks of the largest one, also of those that come soon */
	uint64_t peers;		   /* that were taken for ranks of the job */
	bool begun, any, inferred;
};

/* The value of a key; a line without the key has the value of the line before. */
static void copy(const struct pl_object *o, const char *key, char *to, size_t size)
{
	if (pl_objects_get(o, key))
		pl_objects_copy(o, key, to, size);
}

/* The log may begin with another communicator than that of all ranks. */
static void look_ahead(struct inspector *x)
{
	static const char key[] = "\"n_ranks\"";
	const char *p = x->in.src.base, *end = x->in.src.end;

	while ((p = memmem(p, (size_t)(end - p), key, sizeof(key) - 1))) {
		int64_t n = 0;

		p += sizeof(key) - 1;
		while (p < end && (*p == ':' || *p == ' '))
			p++;
		for (; p < end && *p >= '0' && *p <= '9' && n < INT32_MAX; p++)
			n = 10 * n + (*p - '0');
		x->most = pl_max_i64(x->most, n);
	}
}

/* The rank in the job, by the largest communicator. */
static int find_rank(struct inspector *x, struct pl_err *err)
{
	if (x->ranked && x->ranked == x->world)
		return 0;
	x->ranked = x->world;
	return pl_import_member_rank(x->in.o, x->in.rows.path,
				     x->world ? (int32_t)x->world_rank : -1, x->world, &x->job_rank,
				     err);
}

/* Is the largest communicator only a part of the job? */
static bool is_part(const struct inspector *x)
{
	return x->ranked && x->job_rank != x->world_rank;
}

/* Peers are numbers in their communicator: those of the largest one are ranks of the job. */
static void put_peer(struct inspector *x, int64_t peer)
{
	if (x->size < x->most || is_part(x))
		return;
	pl_import_put_int(&x->in.rows, PL_R_PEER, NULL, peer);
	x->peers++;
}

/* The communicator of this object, and of those that follow without one. */
static int read_header(struct inspector *x, const struct pl_object *o, struct pl_err *err)
{
	if (!pl_objects_get(o, "n_ranks"))
		return 0;
	copy(o, "id", x->comm, sizeof(x->comm));
	copy(o, "comm_name", x->name, sizeof(x->name));
	copy(o, "hostname", x->host, sizeof(x->host));
	x->rank = pl_objects_int(o, "rank", -1);
	x->size = pl_objects_int(o, "n_ranks", 0);
	x->pid = pl_objects_int(o, "pid", 0);
	x->dumped_us = pl_objects_int(o, "dump_timestamp_us", 0);
	if (x->size > x->most && x->peers)
		pl_say(x->in.o->log, PL_LOG_WARN,
		       "%s: a communicator of %lld ranks comes after %llu messages in one of %lld: "
		       "the "
		       "peers of those messages are numbers in the smaller one",
		       x->in.report.file, (long long)x->size, (unsigned long long)x->peers,
		       (long long)x->most);
	x->most = pl_max_i64(x->most, x->size);
	if (x->size <= x->world || x->rank < 0 || x->rank >= x->size || x->rank >= INT32_MAX)
		return 0;
	x->world = x->size;
	x->world_rank = x->rank;
	return x->size < x->most ? 0 : find_rank(x, err); /* else a larger one comes soon */
}

/* First start and last end of the kernels of all channels, in us. */
static void kernels(const struct pl_object *o, int64_t *start, int64_t *end)
{
	size_t n;
	const char *s = NULL;
	enum pl_json_type t;
	struct pl_json j;
	bool begins = false, ends = false;
	int64_t v;

	*start = *end = 0;
	for (unsigned i = 0; i < o->n; i++) /* of event_trace_ts, the last one of this name */
		if (o->m[i].n_key == 13 && !memcmp(o->m[i].key, "kernel_events", 13)) {
			s = o->m[i].s;
			n = o->m[i].n;
		}
	if (!s)
		return;
	pl_json_init(&j, s, n);
	while ((t = pl_json_next(&j)) != PL_JSON_END && t != PL_JSON_ERROR) {
		if (t == PL_JSON_KEY) {
			begins = j.len == 15 && !memcmp(j.text, "kernel_start_ts", 15);
			ends = j.len == 14 && !memcmp(j.text, "kernel_stop_ts", 14);
		}
		if ((!begins && !ends) || t != PL_JSON_NUMBER || !pl_json_i64(j.text, j.len, &v) ||
		    v <= 0)
			continue;
		if (begins && (!*start || v < *start))
			*start = v;
		if (ends && v > *end)
			*end = v;
	}
}

static int track_of(struct inspector *x, pl_id *track, struct pl_err *err)
{
	char name[192];
	const struct pl_lane lane = {
		.type = PL_T_STREAM, .process = x->pid, .name = name, .rank = -1
	};
	bool named = x->name[0] && strcmp(x->name, "unknown") != 0;

	snprintf(name, sizeof(name), "communicator %s%s%s%s", x->comm, named ? " (" : "",
		 named ? x->name : "", named ? ")" : "");
	return pl_import_lane(&x->in.lanes, &lane, track, err);
}

/* The times of an operation that took exec_us by the clock that its timing_source names. */
static void times(struct inspector *x, const struct pl_object *o, int64_t exec_us, pl_ns *ts,
		  pl_ns *dur)
{
	int64_t start, end;

	kernels(o, &start, &end);
	if (end > 0 && end < INT64_MAX / 2000) {
		*dur = (exec_us > 0 ? exec_us : start > 0 && end > start ? end - start : 0) * 1000;
		*ts = end * 1000 - *dur;
		return;
	}
	*dur = exec_us * 1000;
	*ts = x->dumped_us * 1000 - *dur;
	pl_import_rows_put(&x->in.rows, PL_R_ARG, PL_V_BOOL,
			   pl_import_rows_text(&x->in.rows, "inferred", 8), 1);
	if (!x->inferred)
		pl_say(x->in.o->log, PL_LOG_WARN,
		       "%s: operations without times: they are placed before the time of their "
		       "dump, "
		       "and their order and distances mean nothing; NCCL_INSPECTOR_DUMP_VERBOSE=1 "
		       "records times",
		       x->in.report.file);
	x->inferred = true;
}

/* The size of the whole buffer, as in nccl-tests. The Inspector gives the part of one rank. */
static int64_t whole(const struct inspector *x, unsigned coll, int64_t bytes)
{
	if (coll != PL_COLL_ALLGATHER && coll != PL_COLL_REDUCE_SCATTER)
		return bytes;
	return x->size > 0 && bytes <= INT64_MAX / x->size ? bytes * x->size : -1;
}

static int operation(struct inspector *x, const struct pl_object *o, bool p2p, struct pl_err *err)
{
	static const char *const kept[] = { "coll_sn",
					    "p2p_sn",
					    "coll_algo",
					    "coll_proto",
					    "coll_timing_source",
					    "p2p_timing_source",
					    "coll_busbw_gbs" };
	int64_t sn = pl_objects_int(o, p2p ? "p2p_sn" : "coll_sn", -1);
	int64_t exec = pl_objects_int(o, p2p ? "p2p_exec_time_us" : "coll_exec_time_us", -1);
	int64_t bytes = pl_objects_int(o, p2p ? "p2p_msg_size_bytes" : "coll_msg_size_bytes", -1);
	struct pl_rows *r = &x->in.rows;
	uint8_t kind = PL_K_COLLECTIVE;
	char text[80] = "nccl";
	const char *coll;
	unsigned number;
	pl_id track, name;
	pl_ns ts, dur;

	copy(o, p2p ? "p2p" : "coll", text + 4, sizeof(text) - 4);
	name = pl_objects_string(r, o, p2p ? "p2p" : "coll");
	if (name == PL_NONE || exec < 0 || exec > INT64_MAX / 2000 || !x->comm[0] ||
	    x->dumped_us < 0 || x->dumped_us > INT64_MAX / 2000) {
		PL_CHECK(r->rc);
		return pl_import_report(&x->in.report, PL_BAD, o->at,
					"an operation without name, time or communicator", err);
	}
	PL_CHECK(track_of(x, &track, err));
	coll = pl_trace_coll_from_name(text, strlen(text));
	number = pl_trace_coll_find(text, strlen(text));
	if (number == PL_COLL_SEND || number == PL_COLL_RECV) {
		kind = number == PL_COLL_SEND ? PL_K_SEND : PL_K_RECV;
		put_peer(x, pl_objects_int(o, "p2p_peer", -1));
	} else if (sn >= 0 && sn < INT64_MAX / 64) {
		pl_import_put_int(r, PL_R_SEQ, NULL, sn * 32 + number);
	}
	if (coll)
		pl_import_put_text(r, PL_R_COLL, NULL, coll, strlen(coll));
	pl_import_put_text(r, PL_R_GROUP, NULL, x->comm, strlen(x->comm));
	if (x->size > 0)
		pl_import_put_int(r, PL_R_SIZE, NULL, x->size);
	bytes = bytes < 0 ? -1 : whole(x, number, bytes);
	if (bytes >= 0)
		pl_import_put_int(r, PL_R_BYTES, NULL, bytes);
	for (size_t i = 0; i < PL_LEN(kept); i++)
		pl_import_put_member(r, o, kept[i]);
	times(x, o, exec, &ts, &dur);
	x->any = true;
	return pl_import_rows_event(r, kind, track, name, ts, dur, err);
}

/* What the proxy thread sent or received over the network, and for which operation. */
static int proxy(struct inspector *x, const struct pl_object *o, struct pl_err *err)
{
	static const char *const kept[] = { "parent_type", "parent_sn", "proxy_op_sn",
					    "step",	   "n_steps",	"direction" };
	bool step = pl_objects_is(o, "record_type", "proxy_step");
	struct pl_lane lane = { .type = PL_T_LINK,
				.process = x->pid,
				.rank = -1,
				.number = pl_objects_int(o, "channel_id", 0) };
	char name[40];
	pl_id track;
	pl_ns start, end;

	if (!pl_objects_time(o, step ? "proxy_step_start_ts" : "proxy_op_start_ts", 1000, &start) ||
	    !pl_objects_time(o, step ? "proxy_step_stop_ts" : "proxy_op_stop_ts", 1000, &end))
		return pl_import_report(&x->in.report, PL_BAD, o->at,
					"a proxy record without times", err);
	snprintf(name, sizeof(name), "proxy of channel %lld", (long long)lane.number);
	lane.name = name;
	PL_CHECK(pl_import_lane(&x->in.lanes, &lane, &track, err));
	for (size_t i = 0; i < PL_LEN(kept); i++)
		pl_import_put_member(&x->in.rows, o, kept[i]);
	pl_import_put_int(&x->in.rows, PL_R_CHANNEL, NULL, lane.number);
	put_peer(x, pl_objects_int(o, "peer", -1));
	pl_import_put_int(&x->in.rows, PL_R_BYTES, NULL, pl_objects_int(o, "trans_size_bytes", 0));
	return pl_import_rows_event(&x->in.rows, PL_K_ANNOTATION, track,
				    pl_objects_string(&x->in.rows, o, "record_type"), start,
				    pl_max_i64(0, pl_sub_sat(end, start)), err);
}

static int one(void *arg, const struct pl_object *o, struct pl_err *err)
{
	struct inspector *x = arg;

	PL_CHECK(pl_import_rows_ready(&x->in.rows, err));
	if (!x->begun)
		look_ahead(x);
	x->begun = true;
	PL_CHECK(read_header(x, o, err));
	if (pl_objects_get(o, "coll"))
		return operation(x, o, false, err);
	if (pl_objects_get(o, "p2p"))
		return operation(x, o, true, err);
	if (pl_objects_get(o, "record_type"))
		return proxy(x, o, err);
	if (!pl_objects_get(o, "n_ranks"))
		return pl_import_report(&x->in.report, PL_BAD, o->at, "an object of another kind",
					err);
	if (pl_objects_int(o, "coll_dropped_since_last_dump", 0) > 0 ||
	    pl_objects_int(o, "p2p_dropped_since_last_dump", 0) > 0)
		return pl_import_report(&x->in.report, PL_TOLERATED, o->at,
					"the Inspector dropped operations here "
					"(NCCL_INSPECTOR_DUMP_COLL_RING_SIZE makes room)",
					err);
	return 0;
}

static int finish(void *arg, struct pl_err *err)
{
	struct inspector *x = arg;
	struct pl_segment *seg = &x->in.rows.seg;
	pl_id host =
		x->host[0] ? pl_import_rows_text(&x->in.rows, x->host, strlen(x->host)) : PL_NONE;

	PL_CHECK(find_rank(x, err));
	for (pl_id i = 0; i < seg->n_tracks; i++) {
		seg->track[i].rank = x->job_rank;
		seg->track[i].host = host;
	}
	if (!x->world || x->job_rank < 0)
		return x->in.rows.rc;
	PL_CHECK(pl_objects_job(&x->in, x->job_rank, is_part(x) ? 0 : x->world, err));
	return x->in.rows.rc;
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct inspector x = { .in.o = o };
	int rc;

	PL_TRY(pl_objects_open(&x.in, in, o, sink, st, "inspector", finish, &x, err));
	PL_TRY(pl_import_objects(&x.in.src, &x.in.report, one, &x, err));
	rc = pl_import_rows_close(&x.in.rows, err);
out:
	pl_objects_fini(&x.in);
	return rc;
}

static int probe(const uint8_t *p, size_t n)
{
	if (!n || *p != '{')
		return 0;
	if (pl_import_has(p, n, "\"inspector_output_format_version\""))
		return 95;
	return pl_import_has(p, n, "\"coll_perf\"") && pl_import_has(p, n, "\"coll_sn\"") ? 90 : 0;
}

const struct pl_importer pl_import_inspector = {
	.name = "inspector",
	.summary = "logs of NCCL's Inspector",
	.probe = probe,
	.run = run,
};
