/*
 * Dumps of PyTorch's Flight Recorder, of one rank: JSON, or a pickle (io/tree.h; nothing of it is
 * carried out). The recorder is a ring of the last communications, so a dump is small and is held
 * as a whole: O(its size).
 *
 * An entry has the time at which the program issued the communication, and the times at which the
 * watchdog of PyTorch noticed that it had started and ended, which is later than it did. With the
 * duration that TORCH_NCCL_ENABLE_TIMING adds, the start is the end less the duration. Entries that
 * have not ended are kept without a duration: merge shows which rank lacks them.
 */
#include "import/internal.h"
#include "io/tree.h"

#define MOST	    ((size_t)512 << 20) /* the largest dump that is read */
#define MAX_TENSORS 65536

struct group {
	const char *name;
	size_t n;
	int64_t id;
	int64_t last; /* collective_seq_id of the entry before, -1 none */
	const struct pl_tree *ranks;
};
struct flight {
	struct pl_report report;
	struct pl_rows rows;
	struct pl_arena mem;
	const struct pl_import_opts *o;
	struct group *group;
	size_t n_groups, cap_groups;
	const struct pl_tree *root;
	bool pickle;
	int64_t at; /* number of the entry, from 1 */
	pl_id *track;
	size_t cap_track;
};

static pl_id key_of(struct flight *f, const char *key)
{
	return pl_import_rows_text(&f->rows, key, strlen(key));
}

static void put_int(struct flight *f, uint8_t role, const char *key, int64_t v)
{
	if (v >= 0)
		pl_import_rows_put(&f->rows, role, PL_V_INT, key ? key_of(f, key) : PL_NONE, v);
}

static void put_text(struct flight *f, uint8_t role, const char *key, const char *s, size_t n)
{
	if (s)
		pl_import_rows_put(&f->rows, role, PL_V_STR, key ? key_of(f, key) : PL_NONE,
				   pl_import_rows_text(&f->rows, s, n));
}

/* ---- groups -------------------------------------------------------------------------------- */

/* The name of an entry's group: ("0", "default_pg"), in early versions only the number. */
static int group_of(struct flight *f, const struct pl_tree *e, struct group **out,
		    struct pl_err *err)
{
	const struct pl_tree *t = pl_tree_get(e, "process_group");
	struct group g = { .id = pl_tree_int(pl_tree_get(e, "pg_id"), -1), .last = -1 };
	char number[24];
	size_t i = 0;

	g.name = pl_tree_text(pl_tree_item(t, 0), &g.n);
	if (!g.name) {
		g.n = (size_t)snprintf(number, sizeof(number), "%lld", (long long)g.id);
		g.name = number;
	}
	while (i < f->n_groups && (f->group[i].n != g.n || memcmp(f->group[i].name, g.name, g.n)))
		i++;
	if (i == f->n_groups) {
		g.name = pl_arena_dup(&f->mem, g.name, g.n);
		if (!g.name)
			return pl_fail(err, PL_ENOMEM, "out of memory (groups)");
		g.ranks = pl_tree_get(pl_tree_get(pl_tree_get(f->root, "pg_config"), g.name),
				      "ranks");
		PL_CHECK(pl_append(&f->group, &f->n_groups, &f->cap_groups, &g, sizeof(g), err));
		PL_CHECK(pl_grow(&f->track, &f->cap_track, f->n_groups, sizeof(*f->track), err));
		f->track[i] = PL_NONE;
	}
	*out = &f->group[i];
	return 0;
}

static int track_of(struct flight *f, const struct pl_tree *e, const struct group *g, pl_id *id,
		    struct pl_err *err)
{
	pl_id *track = &f->track[g - f->group];
	struct pl_track t;
	const char *desc;
	size_t n;

	if (*track == PL_NONE) {
		pl_trace_track_init(&t);
		t.type = PL_T_STREAM;
		t.stream = g - f->group;
		t.sort = (int32_t)t.stream;
		t.pid = pl_import_rows_format(&f->rows, "0");
		t.tid = pl_import_rows_format(&f->rows, "%lld", (long long)t.stream);
		desc = pl_tree_text(pl_tree_item(pl_tree_get(e, "process_group"), 1), &n);
		t.name = pl_import_rows_format(&f->rows, "process group %.*s%s%.*s%s", (int)g->n,
					       g->name, desc && n ? " (" : "",
					       (int)pl_min_size(n, 60), desc ? desc : "",
					       desc && n ? ")" : "");
		PL_CHECK(f->rows.rc);
		PL_CHECK(pl_trace_segment_track(&f->rows.seg, &t, track, err));
	}
	*id = *track;
	return 0;
}

/* The rank in the job of member `i` of a group, whose list is text: "[0, 1]". */
static int64_t member(const struct group *g, int64_t i)
{
	size_t n;
	const char *s = pl_tree_text(g->ranks, &n);

	if (g->ranks && g->ranks->type == PL_TREE_LIST)
		return pl_tree_int(pl_tree_item(g->ranks, (size_t)i), -1);
	while (s && *s && (*s < '0' || *s > '9'))
		s++;
	for (; s && *s; i--) {
		int64_t v = pl_take_digits(&s);

		if (!i || v < 0)
			return v;
		while (*s && (*s < '0' || *s > '9'))
			s++;
	}
	return g->ranks ? -1 : i;
}

/* ---- entries ------------------------------------------------------------------------------- */

/* Elements and bytes of all tensors of a list of sizes; -1 unknown. */
static void size_of(const struct pl_tree *sizes, const struct pl_tree *types, int64_t *elements,
		    int64_t *bytes)
{
	*elements = *bytes = -1;
	for (size_t i = 0; i < pl_tree_count(sizes) && i < MAX_TENSORS; i++) {
		const struct pl_tree *dims = pl_tree_item(sizes, i);
		/* older versions have one type for all */
		const struct pl_tree *type =
			pl_tree_item(types, i) ? pl_tree_item(types, i) : pl_tree_item(types, 0);
		int64_t n = 1, one;
		size_t len;
		const char *s = pl_tree_text(type, &len);

		for (size_t k = 0; k < pl_tree_count(dims) && k < 64; k++) {
			int64_t d = pl_tree_int(pl_tree_item(dims, k), -1);

			if (d < 0 || __builtin_mul_overflow(n, d, &n)) {
				*elements = *bytes = -1;
				return;
			}
		}
		one = s ? pl_trace_dtype(s, len, NULL) : 0;
		*elements = pl_add_sat(i ? *elements : 0, n);
		if (!one || n > INT64_MAX / 32 || (i && *bytes < 0))
			*bytes = -1;
		else
			*bytes = pl_add_sat(i ? *bytes : 0, n * one);
	}
}

static void put_sizes(struct flight *f, const struct pl_tree *e)
{
	const struct pl_tree *types = pl_tree_get(e, "input_dtypes");
	int64_t in, in_bytes, out, out_bytes;
	const char *s;
	size_t n;

	size_of(pl_tree_get(e, "input_sizes"), types, &in, &in_bytes);
	size_of(pl_tree_get(e, "output_sizes"), pl_tree_get(e, "output_dtypes"), &out, &out_bytes);
	put_int(f, PL_R_BYTES, NULL, pl_max_i64(in_bytes, out_bytes));
	put_int(f, PL_R_ELEMENTS, NULL, in);
	put_int(f, PL_R_ELEMENTS_OUT, NULL, out);
	s = pl_tree_text(pl_tree_item(types, 0), &n);
	put_text(f, PL_R_DTYPE, NULL, s, n);
}

/* The Python frames, innermost first, as one text. */
static int put_frames(struct flight *f, const struct pl_tree *e, struct pl_err *err)
{
	const struct pl_tree *frames = pl_tree_get(e, "frames");
	struct pl_buf b = { 0 };
	size_t n, k;
	int rc = 0;

	for (size_t i = 0; i < pl_tree_count(frames) && i < 256 && b.n < 16384; i++) {
		const struct pl_tree *x = pl_tree_item(frames, i);
		const char *name = pl_tree_text(pl_tree_get(x, "name"), &n);
		const char *file = pl_tree_text(pl_tree_get(x, "filename"), &k);

		PL_TRY(pl_buf_printf(&b, err, "%s%.*s %.*s:%lld", i ? "; " : "", (int)n,
				     name ? name : "", (int)k, file ? file : "",
				     (long long)pl_tree_int(pl_tree_get(x, "line"), 0)));
	}
	if (b.n)
		put_text(f, PL_R_ARG, "frames", (const char *)b.p, b.n);
out:
	pl_buf_fini(&b);
	return rc;
}

/* "nccl:send 0->1", "nccl:recv 1<-0": ranks of the group. */
static void put_peer(struct flight *f, const struct group *g, const char *name)
{
	const char *s = strstr(name, "->");
	int64_t peer;

	s = s ? s : strstr(name, "<-");
	if (!s)
		return;
	s += 2;
	peer = pl_take_digits(&s);
	put_int(f, PL_R_PEER, NULL, peer < 0 ? -1 : member(g, peer));
}

static void put_seq(struct flight *f, const struct pl_tree *e, struct group *g, bool p2p)
{
	int64_t seq = pl_tree_int(pl_tree_get(e, "collective_seq_id"), -1);

	if (seq < 0)
		seq = pl_tree_int(pl_tree_get(e, "seq_id"), -1); /* version 1 */
	if (p2p) { /* counted on each rank for itself */
		put_int(f, PL_R_ARG, "p2p_seq_id", pl_tree_int(pl_tree_get(e, "p2p_seq_id"), -1));
		return;
	}
	/* calls of one group share a number: they match by order */
	put_int(f, seq == g->last ? PL_R_ARG : PL_R_SEQ,
		seq == g->last ? "collective_seq_id" : NULL, seq);
	g->last = seq;
}

/* What it is: the operation, its group and number, size and peer. */
static int put_identity(struct flight *f, const struct pl_tree *e, struct group *g,
			const char *name, uint8_t *kind, struct pl_err *err)
{
	const char *coll = pl_trace_coll_from_name(name, strlen(name));
	bool p2p = pl_tree_int(pl_tree_get(e, "is_p2p"), 0) == 1;

	*kind = !coll			? PL_K_COLLECTIVE
		: !strcmp(coll, "send") ? PL_K_SEND
		: !strcmp(coll, "recv") ? PL_K_RECV
					: PL_K_COLLECTIVE;
	if (coll && strcmp(coll, "collective") != 0)
		put_text(f, PL_R_COLL, NULL, coll, strlen(coll));
	put_text(f, PL_R_GROUP, NULL, g->name, g->n);
	put_seq(f, e, g, p2p || *kind != PL_K_COLLECTIVE);
	if (*kind != PL_K_COLLECTIVE)
		put_peer(f, g, name);
	put_sizes(f, e);
	return put_frames(f, e, err);
}

static int entry(struct flight *f, const struct pl_tree *e, struct pl_err *err)
{
	static const char *const kept[] = { "record_id", "op_id", "timeout_ms" };
	int64_t created = pl_tree_int(pl_tree_get(e, "time_created_ns"), 0);
	int64_t started = pl_tree_int(pl_tree_get(e, "time_discovered_started_ns"), 0);
	int64_t ended = pl_tree_int(pl_tree_get(e, "time_discovered_completed_ns"), 0);
	const struct pl_tree *took = pl_tree_get(e, "duration_ms");
	const char *name, *s;
	struct group *g = NULL;
	uint8_t kind;
	pl_id track, id;
	size_t n;

	name = pl_tree_text(pl_tree_get(e, "profiling_name"), &n);
	if (!name || created <= 0)
		return pl_import_report(&f->report, PL_BAD, f->at,
					"an entry without a name or time", err);
	PL_CHECK(pl_import_rows_ready(&f->rows, err));
	PL_CHECK(group_of(f, e, &g, err));
	PL_CHECK(track_of(f, e, g, &track, err));
	PL_CHECK(put_identity(f, e, g, name, &kind, err));
	s = pl_tree_text(pl_tree_get(e, "state"), &n);
	put_text(f, PL_R_ARG, "state", s, n);
	put_int(f, PL_R_ARG, "time_created_ns", created);
	for (size_t i = 0; i < PL_LEN(kept); i++)
		put_int(f, PL_R_ARG, kept[i], pl_tree_int(pl_tree_get(e, kept[i]), -1));
	started = started > created ? started : created;
	if (ended > 0 && took && (took->type == PL_TREE_REAL || took->type == PL_TREE_INT)) {
		double ms = took->type == PL_TREE_REAL ? took->real : (double)pl_tree_int(took, 0);

		if (ms >= 0 && ms < 1e9)
			started = pl_max_i64(created, ended - (int64_t)(ms * 1e6));
	}
	id = key_of(f, name);
	return pl_import_rows_event(&f->rows, kind, track, id, started,
				    ended > 0 ? pl_max_i64(0, pl_sub_sat(ended, started)) : -1,
				    err);
}

/* ---- the dump ------------------------------------------------------------------------------ */

/* Rank and groups in the form of PyTorch's profiler. */
static int put_job(struct flight *f, int32_t rank, struct pl_err *err)
{
	const struct pl_tree *config = pl_tree_get(f->root, "pg_config");
	struct pl_buf b = { 0 };
	bool first = true;
	int rc;

	PL_TRY(pl_buf_printf(&b, err, "{"));
	if (rank >= 0)
		PL_TRY(pl_buf_printf(&b, err, "\"rank\": %d, ", (int)rank));
	PL_TRY(pl_buf_printf(&b, err, "\"pg_config\": ["));
	for (size_t i = 0; config && config->type == PL_TREE_DICT && i + 1 < config->n; i += 2) {
		size_t n, k;
		const char *name = pl_tree_text(config->v[i], &n);
		const char *ranks = pl_tree_text(pl_tree_get(config->v[i + 1], "ranks"), &k);

		if (!name || !n || !ranks || strspn(ranks, "[]0123456789, ") != k ||
		    strcspn(name, "\"\\") != n)
			continue;
		PL_TRY(pl_buf_printf(&b, err, "%s{\"pg_name\": \"%s\", \"ranks\": \"%s\"}",
				     first ? "" : ", ", name, ranks));
		first = false;
	}
	PL_TRY(pl_buf_printf(&b, err, "]}"));
	if ((rank >= 0 || !first) && pl_import_json_check((const char *)b.p, b.n) == 0)
		rc = pl_trace_segment_meta(&f->rows.seg, "distributedInfo", 15, (const char *)b.p,
					   b.n, err);
out:
	pl_buf_fini(&b);
	return rc;
}

static int finish(void *arg, struct pl_err *err)
{
	struct flight *f = arg;
	int32_t rank;

	PL_CHECK(pl_import_pick_rank(f->o, f->rows.path, -1, &rank, err));
	for (pl_id i = 0; i < f->rows.seg.n_tracks; i++)
		f->rows.seg.track[i].rank = rank;
	return put_job(f, rank, err);
}

static void renew(void *arg)
{
	struct flight *f = arg;

	for (size_t i = 0; i < f->n_groups && !f->rows.seg.n_tracks; i++)
		f->track[i] = PL_NONE;
}

/* Version 2.10 or the like; of a later one what is known is read. */
static int check_version(struct flight *f, struct pl_err *err)
{
	size_t n;
	const char *s = pl_tree_text(pl_tree_get(f->root, "version"), &n);

	if (!pl_tree_get(f->root, "entries"))
		return pl_fail(err, PL_EDATA,
			       "%s: no list \"entries\": not a dump of the Flight Recorder with "
			       "communications (_dump_fr_trace(includeCollectives=True) makes one)",
			       f->report.file);
	if (s && *s != '1' && *s != '2')
		return pl_import_report(&f->report, PL_TOLERATED, 0,
					"a version of the dump other than 1 or 2: what is known of "
					"it is read; a newer paceline may know more",
					err);
	return 0;
}

static int parse(struct flight *f, const struct pl_buf *b, struct pl_err *err)
{
	struct pl_tree *root = NULL;
	int rc;

	f->pickle = b->n && b->p[0] == 0x80;
	rc = f->pickle ? pl_tree_pickle(&f->mem, b->p, b->n, &root, err)
		       : pl_tree_json(&f->mem, (const char *)b->p, b->n, &root, err);
	f->root = root;
	if (rc != PL_EDATA)
		return rc;
	pl_wrap(err, "%s", f->report.file);
	if (f->report.o->strict || !pl_tree_get(root, "entries"))
		return rc;
	pl_say(f->report.o->log, PL_LOG_WARN, "%s; what came before is kept", err->msg);
	snprintf(f->report.st->first, sizeof(f->report.st->first), "%.255s", err->msg);
	f->report.st->truncated = true;
	err->code = 0;
	return 0;
}

static int read_dump(struct flight *f, struct pl_in *in, struct pl_buf *b, struct pl_err *err)
{
	const struct pl_tree *entries;

	PL_CHECK(pl_in_read_all(in, MOST, b, err));
	PL_CHECK(parse(f, b, err));
	PL_CHECK(check_version(f, err));
	PL_CHECK(pl_import_rows_open(&f->rows, err));
	entries = pl_tree_get(f->root, "entries");
	for (size_t i = 0; i < pl_tree_count(entries); i++) {
		f->at = (int64_t)i + 1;
		PL_CHECK(entry(f, pl_tree_item(entries, i), err));
	}
	return pl_import_rows_close(&f->rows, err);
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct flight f = { .o = o };
	struct pl_buf b = { 0 };
	int rc;

	pl_import_rows_init(&f.rows, &f.report, in, o, sink, st, "flight", &f);
	f.report.unit = "entry";
	f.rows.finish = finish;
	f.rows.renew = renew;
	rc = read_dump(&f, in, &b, err);
	pl_import_rows_fini(&f.rows);
	pl_arena_fini(&f.mem);
	pl_free(f.group);
	pl_free(f.track);
	pl_buf_fini(&b);
	return rc;
}

static int probe(const uint8_t *p, size_t n)
{
	bool pickle = n > 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5;

	if (!n || (!pickle && p[0] != '{' && p[0] > ' ') || pl_import_has(p, n, "\"traceEvents\""))
		return 0;
	if (pl_import_has(p, n, "profiling_name") && pl_import_has(p, n, "time_created_ns"))
		return 95;
	return pl_import_has(p, n, "pg_config") && (pickle || pl_import_has(p, n, "\"pg_status\""))
		       ? 70
		       : 0;
}

const struct pl_importer pl_import_flight = {
	.name = "flight",
	.summary = "PyTorch Flight Recorder, JSON or pickle",
	.probe = probe,
	.run = run,
};
