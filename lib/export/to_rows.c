/*
 * One line for each event: CSV with fixed columns and a JSON column of arguments, and JSON lines.
 *
 * Both have absolute times (base included); a merged stream has times of the common clock. CSV has
 * the same columns for every trace, so that files of several jobs can be concatenated; a column for
 * each argument key would need the whole trace before the first line.
 */
#include "export/internal.h"

/* Columns with the value of a role, in this order. */
static const struct {
	uint8_t role;
	const char *name;
} role_col[] = {
	{ PL_R_CAT, "category" },      { PL_R_PH, "phase" },
	{ PL_R_STEP, "step" },	       { PL_R_CORR, "correlation" },
	{ PL_R_EXTERNAL, "external" }, { PL_R_FLOW, "flow" },
	{ PL_R_COLL, "collective" },   { PL_R_GROUP, "group" },
	{ PL_R_SEQ, "seq" },	       { PL_R_PEER, "peer" },
	{ PL_R_BYTES, "bytes" },       { PL_R_MB, "microbatch" },
	{ PL_R_CHUNK, "chunk" },       { PL_R_LAYER, "layer" },
	{ PL_R_CHANNEL, "channel" },   { PL_R_OF, "of" },
};
#define N_ROLES PL_LEN(role_col)

struct rows {
	struct pl_export_base x; /* first */
	struct pl_writer args;
	bool headed;
};

/* For each role: index of its value in the entries of the row, plus 1; 0: none. */
static void find_roles(const struct pl_batch *b, const struct pl_row_values *r, uint32_t i,
		       uint32_t at[PL_R_COUNT_])
{
	memset(at, 0, PL_R_COUNT_ * sizeof(*at));
	for (uint32_t e = r->off[i]; e < r->off[i + 1]; e++) {
		unsigned role = b->col[r->ent[e].col].role;

		if (role == PL_R_SRC || role == PL_R_DST)
			role = PL_R_PEER; /* these roles share one column */
		if (role < PL_R_COUNT_ && !at[role])
			at[role] = e + 1;
	}
}

/* Write the values without a column into x->args. */
static void put_args(struct rows *x, const struct pl_segment *s, const struct pl_batch *b,
		     uint32_t i, const uint32_t at[PL_R_COUNT_])
{
	const struct pl_row_values *r = &x->x.rows;
	struct pl_writer *t = &x->args;

	t->b.n = 0;
	for (uint32_t e = r->off[i]; e < r->off[i + 1]; e++) {
		const struct pl_col *c = &b->col[r->ent[e].col];
		bool own = false; /* a column has the value */

		for (size_t j = 0; j < N_ROLES && !own; j++)
			own = at[role_col[j].role] == e + 1;
		if (own)
			continue;
		pl_write_char(t, t->b.n ? ',' : '{');
		pl_export_key_json(t, s, c, pl_export_role_key(c->role));
		pl_export_value_json(t, s, c, r->ent[e].k);
	}
	if (t->b.n)
		pl_write_char(t, '}');
	if (t->fail.code && !x->x.t.fail.code)
		x->x.t.fail = t->fail;
}

static void csv_head(struct pl_writer *t)
{
	pl_write_text(
		t,
		"segment,event,rank,host,track_type,pid,tid,device,stream,kind,name,start_ns,dur_"
		"ns");
	for (size_t j = 0; j < N_ROLES; j++) {
		pl_write_char(t, ',');
		pl_write_text(t, role_col[j].name);
	}
	pl_write_text(t, ",args\n");
}

static void csv_id(struct pl_writer *t, const struct pl_segment *s, pl_id id)
{
	size_t n;
	const char *p = pl_trace_segment_str(s, id, &n);

	pl_write_csv(t, p, n);
	pl_write_char(t, ',');
}

static void csv_track(struct pl_writer *t, const struct pl_segment *s, uint32_t track)
{
	const struct pl_track *k = track < s->n_tracks ? &s->track[track] : NULL;

	if (!k) {
		pl_write_text(t, ",,,,,,,");
		return;
	}
	if (k->rank >= 0)
		pl_write_int(t, k->rank);
	pl_write_char(t, ',');
	csv_id(t, s, k->host);
	pl_write_text(t, pl_trace_track_type_name(k->type));
	pl_write_char(t, ',');
	csv_id(t, s, k->pid);
	csv_id(t, s, k->tid);
	if (k->device >= 0)
		pl_write_int(t, k->device);
	pl_write_char(t, ',');
	if (k->stream >= 0)
		pl_write_int(t, k->stream);
	pl_write_char(t, ',');
}

static void csv_value(struct rows *x, const struct pl_segment *s, const struct pl_col *c,
		      uint32_t k)
{
	struct pl_writer *t = &x->x.t;
	size_t n;
	const char *p;

	if (c->type == PL_V_STR || c->type == PL_V_JSON) {
		p = pl_trace_segment_str(s, (pl_id)c->val[k], &n);
		pl_write_csv(t, p, n);
	} else if (c->type != PL_V_NULL) {
		pl_export_value_json(t, s, c, k);
	}
}

static void csv_event(struct pl_export_base *base, const struct pl_segment *s,
		      const struct pl_batch *b, uint32_t i)
{
	struct rows *x = (struct rows *)base;
	struct pl_writer *t = &base->t;
	uint32_t at[PL_R_COUNT_];

	find_roles(b, &x->x.rows, i, at);
	pl_write_int(t, x->x.merge.n_segs - 1);
	pl_write_char(t, ',');
	pl_write_int(t, (int64_t)(b->first + i));
	pl_write_char(t, ',');
	csv_track(t, s, b->track[i]);
	pl_write_text(t, pl_trace_kind_name(b->kind[i]));
	pl_write_char(t, ',');
	csv_id(t, s, b->name[i]);
	pl_write_int(t, pl_export_start(base, s, b, i));
	pl_write_char(t, ',');
	if (b->dur[i] >= 0)
		pl_write_int(t, b->dur[i]);
	for (size_t j = 0; j < N_ROLES; j++) {
		uint32_t e = at[role_col[j].role];

		pl_write_char(t, ',');
		if (e)
			csv_value(x, s, &b->col[x->x.rows.ent[e - 1].col], x->x.rows.ent[e - 1].k);
	}
	put_args(x, s, b, i, at);
	pl_write_char(t, ',');
	if (x->args.b.n)
		pl_write_csv(t, (const char *)x->args.b.p, x->args.b.n);
	pl_write_char(t, '\n');
}

static int csv_emit(struct pl_export_base *base, struct pl_segment *seg, struct pl_err *err)
{
	struct rows *x = (struct rows *)base;

	if (!x->headed)
		csv_head(&base->t);
	x->headed = true;
	return pl_export_base_events(base, seg, csv_event, err);
}

/* ---- JSON lines ------------------------------------------------------------------------------ */

static void member(struct pl_writer *t, const char *key)
{
	pl_write_text(t, ",\"");
	pl_write_text(t, key);
	pl_write_text(t, "\":");
}

static void member_id(struct pl_writer *t, const struct pl_segment *s, const char *key, pl_id id)
{
	if (id == PL_NONE)
		return;
	member(t, key);
	pl_export_string_json(t, s, id);
}

static void member_i64(struct pl_writer *t, const char *key, int64_t v, int64_t none)
{
	if (v == none)
		return;
	member(t, key);
	pl_write_int(t, v);
}

static void jsonl_segment(struct rows *x, const struct pl_segment *s)
{
	struct pl_writer *t = &x->x.t;

	pl_write_text(t, "{\"type\":\"segment\",\"segment\":");
	pl_write_int(t, x->x.merge.n_segs - 1);
	member(t, "source");
	pl_write_json_text(t, s->source);
	member(t, "format");
	pl_write_json_text(t, s->format);
	member_i64(t, "base_ns", s->base_ns, INT64_MIN);
	member(t, "members");
	pl_export_members_json(t, s);
	pl_write_text(t, "}\n");
}

static void jsonl_track(struct rows *x, const struct pl_segment *s, uint32_t i)
{
	static const char *const coord[PL_COORDS] = { "dp", "pp", "tp", "ep" };
	const struct pl_track *k = &s->track[i];
	struct pl_writer *t = &x->x.t;

	pl_write_text(t, "{\"type\":\"track\",\"segment\":");
	pl_write_int(t, x->x.merge.n_segs - 1);
	member_i64(t, "track", i, -1);
	member(t, "track_type");
	pl_write_json_text(t, pl_trace_track_type_name(k->type));
	member_i64(t, "rank", k->rank, -1);
	member_id(t, s, "host", k->host);
	member_id(t, s, "pid", k->pid);
	member_id(t, s, "tid", k->tid);
	member_i64(t, "device", k->device, -1);
	member_i64(t, "stream", k->stream, -1);
	member_id(t, s, "name", k->name);
	member_id(t, s, "process", k->process);
	member_id(t, s, "labels", k->labels);
	for (unsigned j = 0; j < PL_COORDS; j++)
		member_i64(t, coord[j], k->coord[j], -1);
	pl_write_text(t, "}\n");
}

static void jsonl_event(struct pl_export_base *base, const struct pl_segment *s,
			const struct pl_batch *b, uint32_t i)
{
	struct rows *x = (struct rows *)base;
	struct pl_writer *t = &base->t;
	uint32_t at[PL_R_COUNT_];

	find_roles(b, &x->x.rows, i, at);
	pl_write_text(t, "{\"type\":\"event\",\"segment\":");
	pl_write_int(t, x->x.merge.n_segs - 1);
	member_i64(t, "event", (int64_t)(b->first + i), -1);
	member_i64(t, "track", b->track[i], PL_NONE);
	if (b->track[i] < s->n_tracks)
		member_i64(t, "rank", s->track[b->track[i]].rank, -1);
	pl_write_text(t, ",\"kind\":\"");
	pl_write_text(t, pl_trace_kind_name(b->kind[i]));
	pl_write_text(t, "\"");
	member_id(t, s, "name", b->name[i]);
	member_i64(t, "start_ns", pl_export_start(base, s, b, i), INT64_MIN);
	member_i64(t, "dur_ns", b->dur[i], -1);
	for (size_t j = 0; j < N_ROLES; j++) {
		uint32_t e = at[role_col[j].role];

		if (!e)
			continue;
		member(t, role_col[j].name);
		pl_export_value_json(t, s, &b->col[x->x.rows.ent[e - 1].col],
				     x->x.rows.ent[e - 1].k);
	}
	put_args(x, s, b, i, at);
	if (x->args.b.n) {
		member(t, "args");
		pl_write(t, x->args.b.p, x->args.b.n);
	}
	pl_write_text(t, "}\n");
}

static void jsonl_clocks(struct rows *x)
{
	struct pl_writer *t = &x->x.t;
	const struct pl_merge *m = &x->x.merge.m;

	for (uint32_t i = 0; i < m->n_clocks; i++) {
		pl_write_text(t, "{\"type\":\"clock\"");
		member_i64(t, "clock", i, -1);
		if (m->clock[i].host) {
			member(t, "host");
			pl_write_json_text(t, m->clock[i].host);
		}
		member_i64(t, "offset_ns", m->clock[i].offset_ns, INT64_MIN);
		member_i64(t, "offset_ci_ns", m->clock[i].offset_ci_ns, INT64_MIN);
		pl_write_format(t, ",\"drift_ppm\":%.9g}\n", m->clock[i].drift_ppm);
	}
}

static int jsonl_emit(struct pl_export_base *base, struct pl_segment *seg, struct pl_err *err)
{
	struct rows *x = (struct rows *)base;

	if (base->merge.present && !base->merge.rel)
		jsonl_clocks(x);
	jsonl_segment(x, seg);
	for (uint32_t i = 0; i < seg->n_tracks; i++)
		jsonl_track(x, seg, i);
	return pl_export_base_events(base, seg, jsonl_event, err);
}

/* ---- open and close -------------------------------------------------------------------------- */

static void rows_fini(struct pl_export_base *x)
{
	pl_write_fini(&((struct rows *)x)->args);
}

static void csv_last(struct pl_export_base *x)
{
	if (!((struct rows *)x)->headed)
		csv_head(&x->t);
}

const struct pl_exporter pl_export_csv = {
	.name = "csv",
	.summary = "one line an event, fixed columns, arguments as a JSON column",
	.kind = &(const struct pl_export_kind){ .size = sizeof(struct rows),
						.emit = csv_emit,
						.last = csv_last,
						.fini = rows_fini },
};
const struct pl_exporter pl_export_jsonl = {
	.name = "jsonl",
	.summary = "JSON lines: segments, tracks, events",
	.kind = &(const struct pl_export_kind){ .size = sizeof(struct rows),
						.emit = jsonl_emit,
						.fini = rows_fini },
};
