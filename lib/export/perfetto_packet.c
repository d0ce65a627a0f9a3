/*
 * The packets of a Perfetto trace. Field numbers and their names are those of Perfetto's public
 * .proto files. All packets are one sequence, so that interned strings stay valid to the end.
 */
#include <math.h>

#include "export/perfetto.h"
#include "io/pb.h"

enum {
	TRACE_PACKET = 1,
	PACKET_TIMESTAMP = 8,
	PACKET_SEQUENCE = 10,
	PACKET_TRACK_EVENT = 11,
	PACKET_INTERNED = 12,
	PACKET_FLAGS = 13,
	PACKET_TRACK = 60,
	TRACK_UUID = 1,
	TRACK_NAME = 2,
	TRACK_PROCESS = 3,
	TRACK_THREAD = 4,
	TRACK_PARENT = 5,
	TRACK_COUNTER = 8,
	TRACK_CHILD_ORDERING = 11,
	TRACK_SIBLING_RANK = 12,
	PROCESS_PID = 1,
	PROCESS_NAME = 6,
	PROCESS_LABELS = 8,
	THREAD_PID = 1,
	THREAD_TID = 2,
	THREAD_NAME = 5,
	EVENT_CATEGORY_IIDS = 3,
	EVENT_ANNOTATIONS = 4,
	EVENT_TYPE = 9,
	EVENT_NAME_IID = 10,
	EVENT_TRACK_UUID = 11,
	EVENT_COUNTER_VALUE = 30,
	EVENT_DOUBLE_COUNTER = 44,
	EVENT_FLOW_IDS = 47,
	EVENT_TERMINATING_FLOW_IDS = 48,
	ANNOTATION_NAME_IID = 1,
	ANNOTATION_BOOL = 2,
	ANNOTATION_INT = 4,
	ANNOTATION_DOUBLE = 5,
	ANNOTATION_STRING = 6,
	ANNOTATION_STRING_IID = 17,
	INTERNED_IID = 1,
	INTERNED_TEXT = 2,
};
enum { TYPE_BEGIN = 1, TYPE_END = 2, TYPE_INSTANT = 3, TYPE_COUNTER = 4 };
enum { FLAG_CLEARED = 1, FLAG_NEEDS_STATE = 2 };
#define SEQUENCE     1
#define EXPLICIT     3			/* order of children */
#define INTERN_LIMIT ((size_t)16 << 20) /* memory for the dictionary of argument texts */

static const uint32_t interned_field[P_TABLES] = {
	[P_CATEGORY] = 1, [P_NAME] = 2, [P_KEY] = 3, [P_TEXT] = 29
};

/* Begin a packet of an event; the first one clears the interned state. */
static size_t open_packet(struct perfetto *p, pl_ns ts)
{
	struct pl_writer *t = &p->x.t;
	size_t at = pl_pb_open(t, TRACE_PACKET);

	pl_pb_varint(t, PACKET_TIMESTAMP, (uint64_t)pl_max_i64(pl_add_sat(ts, p->shift), 0));
	pl_pb_varint(t, PACKET_SEQUENCE, SEQUENCE);
	pl_pb_varint(t, PACKET_FLAGS,
		     p->began ? FLAG_NEEDS_STATE : FLAG_CLEARED | FLAG_NEEDS_STATE);
	p->began = true;
	return at;
}

/* Close a packet. p->event holds its event, p->fresh the strings that it interns. */
static void finish_packet(struct perfetto *p, size_t at)
{
	struct pl_writer *t = &p->x.t;

	if (!t->fail.code && (p->event.fail.code || p->fresh.fail.code))
		t->fail = p->event.fail.code ? p->event.fail : p->fresh.fail;
	if (p->fresh.b.n)
		pl_pb_bytes(t, PACKET_INTERNED, p->fresh.b.p, p->fresh.b.n);
	pl_pb_bytes(t, PACKET_TRACK_EVENT, p->event.b.p, p->event.b.n);
	pl_pb_close(t, at);
	p->event.b.n = p->fresh.b.n = 0;
}

/* ---- interned strings ------------------------------------------------------------------------ */

static uint64_t intern(struct perfetto *p, unsigned table, const char *s, size_t n)
{
	struct pl_intern *in = &p->table[table];
	size_t before = in->n, at;
	pl_id id = 0;

	if (p->fresh.fail.code < 0)
		return 0;
	p->fresh.fail.code = pl_intern_add(in, s, n, &id, &p->fresh.fail);
	if (p->fresh.fail.code < 0 || id < before)
		return (uint64_t)id + 1;
	at = pl_pb_open(&p->fresh, interned_field[table]);
	pl_pb_varint(&p->fresh, INTERNED_IID, (uint64_t)id + 1);
	pl_pb_bytes(&p->fresh, INTERNED_TEXT, s, n);
	pl_pb_close(&p->fresh, at);
	return (uint64_t)id + 1;
}

/* The same for a string of the segment; the result is cached. */
static uint64_t intern_id(struct perfetto *p, struct perfetto_seg *s, unsigned table, pl_id id)
{
	uint32_t *known = &s->iid[(size_t)table * (s->seg->str.n + 1) + id];

	if (!*known)
		*known = (uint32_t)intern(p, table, s->seg->str.str[id], s->seg->str.len[id]);
	return *known;
}

/* ---- descriptors ----------------------------------------------------------------------------- */

static bool number(const struct pl_segment *s, pl_id id, int64_t *v)
{
	size_t n;
	const char *p = pl_trace_segment_str(s, id, &n);

	return pl_export_number(p, n, v);
}

/* Begin a packet that describes a track, with the fields of all types of track. */
static size_t open_track(struct pl_writer *t, size_t *packet, uint64_t uuid)
{
	size_t at;

	*packet = pl_pb_open(t, TRACE_PACKET);
	pl_pb_varint(t, PACKET_SEQUENCE, SEQUENCE);
	at = pl_pb_open(t, PACKET_TRACK);
	pl_pb_varint(t, TRACK_UUID, uuid);
	return at;
}

/* Uuid and number of the track's process. Writes the description of a new process. */
static int process(struct perfetto *p, struct perfetto_seg *s, const struct pl_track *k,
		   uint64_t *uuid, int64_t *pid, struct pl_err *err)
{
	struct pl_writer *t = &p->x.t, title = { 0 };
	size_t n, packet, track, at;
	const char *text = pl_trace_segment_str(s->seg, k->pid, &n);
	pl_id slot = k->pid < s->seg->str.n ? k->pid : (pl_id)s->seg->str.n;
	int rc = pl_export_pid(&p->pids, p->first + p->x.merge.n_segs - 1, text, n, pid, err);

	if (rc < 0)
		return rc;
	if (*pid == INT64_MIN && !number(s->seg, k->pid, pid)) /* a text: a new number */
		PL_CHECK(pl_export_pid(&p->pids, UINT32_MAX, text, n, pid, err));
	*uuid = s->process[slot];
	if (*uuid)
		return 0;
	*uuid = s->process[slot] = ++p->uuid;
	pl_export_process_title(&title, s->seg, k, true);
	track = open_track(t, &packet, *uuid);
	pl_pb_varint(t, TRACK_CHILD_ORDERING, EXPLICIT);
	at = pl_pb_open(t, TRACK_PROCESS);
	pl_pb_varint(t, PROCESS_PID, (uint64_t)*pid);
	pl_pb_bytes(t, PROCESS_NAME, title.b.p, title.b.n);
	text = pl_trace_segment_str(s->seg, k->labels, &n);
	if (n)
		pl_pb_bytes(t, PROCESS_LABELS, text, n);
	pl_pb_close(t, at);
	pl_pb_close(t, track);
	pl_pb_close(t, packet);
	rc = pl_write_check(title.fail.code ? &title : t, err);
	pl_write_fini(&title);
	return rc;
}

static void put_track_name(struct pl_writer *t, const struct pl_segment *s,
			   const struct pl_track *k)
{
	size_t n;
	const char *name = pl_trace_segment_str(s, k->name, &n);

	if (n) {
		while (n && name[n - 1] == ' ')
			n--;
		pl_pb_bytes(t, TRACK_NAME, name, n);
		return;
	}
	struct pl_writer tmp = { 0 };

	pl_write_text(&tmp, pl_trace_track_type_name(k->type));
	pl_write_char(&tmp, ' ');
	name = pl_trace_segment_str(s, k->tid, &n);
	pl_write(&tmp, name, n);
	pl_pb_bytes(t, TRACK_NAME, tmp.b.p, tmp.b.n);
	if (!t->fail.code)
		t->fail = tmp.fail;
	pl_write_fini(&tmp);
}

int pl_export_perfetto_track(struct perfetto *p, struct perfetto_seg *s, uint32_t track,
			     size_t subtrack, uint64_t *uuid, struct pl_err *err)
{
	const struct pl_track *k = &s->seg->track[track];
	struct pl_writer *t = &p->x.t;
	uint64_t parent;
	size_t packet, at, n;
	int64_t pid, tid;
	const char *name;

	PL_CHECK(process(p, s, k, &parent, &pid, err));
	*uuid = ++p->uuid;
	at = open_track(t, &packet, *uuid);
	pl_pb_varint(t, TRACK_PARENT, parent);
	put_track_name(t, s->seg, k);
	pl_pb_varint(t, TRACK_SIBLING_RANK, (uint64_t)(int64_t)k->sort);
	if (!subtrack && k->type == PL_T_THREAD && number(s->seg, k->tid, &tid)) {
		size_t th = pl_pb_open(t, TRACK_THREAD);

		pl_pb_varint(t, THREAD_PID, (uint64_t)pid);
		pl_pb_varint(t, THREAD_TID, (uint64_t)tid);
		name = pl_trace_segment_str(s->seg, k->name, &n);
		if (n)
			pl_pb_bytes(t, THREAD_NAME, name, n);
		pl_pb_close(t, th);
	}
	pl_pb_close(t, at);
	pl_pb_close(t, packet);
	return pl_write_check(t, err);
}

/* ---- events ---------------------------------------------------------------------------------- */

static void put_annotation(struct perfetto *p, struct perfetto_seg *s, const struct pl_col *c,
			   uint32_t k)
{
	struct pl_writer *t = &p->event;
	const char *key = pl_export_role_key(c->role);
	size_t at = pl_pb_open(t, EVENT_ANNOTATIONS);
	uint64_t name = c->key < s->seg->str.n ? intern_id(p, s, P_KEY, c->key)
					       : intern(p, P_KEY, key, strlen(key));

	pl_pb_varint(t, ANNOTATION_NAME_IID, name);
	if (c->type == PL_V_INT) {
		pl_pb_varint(t, ANNOTATION_INT, (uint64_t)c->val[k]);
	} else if (c->type == PL_V_DEC) {
		pl_pb_double(t, ANNOTATION_DOUBLE,
			     (double)c->val[k] / pow(10, c->scale ? c->scale[k] : 0));
	} else if (c->type == PL_V_BOOL) {
		pl_pb_varint(t, ANNOTATION_BOOL, c->val[k] != 0);
	} else if ((c->type == PL_V_STR || c->type == PL_V_JSON) &&
		   (uint64_t)c->val[k] < s->seg->str.n) {
		pl_id id = (pl_id)c->val[k];

		if (pl_intern_bytes(&p->table[P_TEXT]) < INTERN_LIMIT)
			pl_pb_varint(t, ANNOTATION_STRING_IID, intern_id(p, s, P_TEXT, id));
		else
			pl_pb_bytes(t, ANNOTATION_STRING, s->seg->str.str[id], s->seg->str.len[id]);
	} else {
		pl_pb_bytes(t, ANNOTATION_STRING, "null", 4);
	}
	pl_pb_close(t, at);
}

static void put_name(struct perfetto *p, struct perfetto_seg *s, const struct pl_batch *b,
		     uint32_t row)
{
	const char *kind = pl_trace_kind_name(b->kind[row]);

	if (b->name[row] < s->seg->str.n && s->seg->str.len[b->name[row]])
		pl_pb_varint(&p->event, EVENT_NAME_IID, intern_id(p, s, P_NAME, b->name[row]));
	else
		pl_pb_varint(&p->event, EVENT_NAME_IID, intern(p, P_NAME, kind, strlen(kind)));
}

int pl_export_perfetto_begin(struct perfetto *p, struct perfetto_seg *s,
			     const struct perfetto_item *it, uint64_t uuid, struct pl_err *err)
{
	const struct perfetto_where w = s->where[it->g];
	const struct pl_batch *b = &p->x.hold.b[w.batch];
	const struct pl_row_values *r = &s->rows[w.batch];
	struct pl_writer *t = &p->event;
	const char *kind = pl_trace_kind_name(b->kind[w.row]);
	uint64_t category = 0;
	size_t at = open_packet(p, it->ts);

	(void)err;
	pl_pb_varint(t, EVENT_TYPE, b->dur[w.row] < 0 ? TYPE_INSTANT : TYPE_BEGIN);
	pl_pb_varint(t, EVENT_TRACK_UUID, uuid);
	put_name(p, s, b, w.row);
	for (uint32_t e = r->off[w.row]; e < r->off[w.row + 1]; e++) {
		const struct pl_col *c = &b->col[r->ent[e].col];

		if (c->role == PL_R_CAT && c->type == PL_V_STR &&
		    (uint64_t)c->val[r->ent[e].k] < s->seg->str.n)
			category = intern_id(p, s, P_CATEGORY, (pl_id)c->val[r->ent[e].k]);
		else if (c->role != PL_R_PH && c->role != PL_R_CAT)
			put_annotation(p, s, c, r->ent[e].k);
	}
	if (!category)
		category = intern(p, P_CATEGORY, kind, strlen(kind));
	pl_pb_varint(t, EVENT_CATEGORY_IIDS, category);
	for (uint32_t f = s->head[it->g]; f != PL_NONE; f = s->bind[f].next)
		if (s->bind[f].id)
			pl_pb_fixed64(t,
				      s->bind[f].last ? EVENT_TERMINATING_FLOW_IDS : EVENT_FLOW_IDS,
				      s->bind[f].id);
	finish_packet(p, at);
	pl_write_flush(&p->x.t, (size_t)256 << 10);
	return pl_write_check(&p->x.t, err);
}

void pl_export_perfetto_end(struct perfetto *p, uint64_t uuid, pl_ns ts)
{
	size_t at = open_packet(p, ts);

	pl_pb_varint(&p->event, EVENT_TYPE, TYPE_END);
	pl_pb_varint(&p->event, EVENT_TRACK_UUID, uuid);
	finish_packet(p, at);
}

/* ---- counters: a track for each process, name and series ------------------------------------- */

static int counter_track(struct perfetto *p, struct perfetto_seg *s, const struct pl_batch *b,
			 uint32_t row, const struct pl_col *c, uint64_t *uuid, struct pl_err *err)
{
	const struct pl_track *k = &s->seg->track[b->track[row]];
	struct pl_writer *t = &p->x.t, key = { 0 };
	size_t before = p->counter.n, n, packet, at, prefix;
	uint64_t parent = 0;
	const char *text;
	int64_t pid;
	pl_id id = 0;
	int rc;

	PL_TRY(process(p, s, k, &parent, &pid, err));
	pl_write(&key, &parent, sizeof(parent));
	prefix = sizeof(parent);
	text = pl_trace_segment_str(s->seg, b->name[row], &n);
	pl_write(&key, text, n);
	text = pl_trace_segment_str(s->seg, c->key, &n);
	pl_write_text(&key, n ? " " : "");
	pl_write(&key, text, n);
	PL_TRY(pl_write_check(&key, err));
	PL_TRY(pl_intern_add(&p->counter, (const char *)key.b.p, key.b.n, &id, err));
	PL_TRY(pl_grow(&p->counter_uuid, &p->cap_counter, (size_t)id + 1, sizeof(uint64_t), err));
	if (id >= before) {
		p->counter_uuid[id] = ++p->uuid;
		at = open_track(t, &packet, p->uuid);
		pl_pb_varint(t, TRACK_PARENT, parent);
		pl_pb_bytes(t, TRACK_NAME, (const char *)key.b.p + prefix, key.b.n - prefix);
		pl_pb_bytes(t, TRACK_COUNTER, "", 0);
		pl_pb_close(t, at);
		pl_pb_close(t, packet);
	}
	*uuid = p->counter_uuid[id];
	rc = pl_write_check(t, err);
out:
	pl_write_fini(&key);
	return rc;
}

int pl_export_perfetto_counters(struct perfetto *p, struct perfetto_seg *s, uint32_t batch,
				struct pl_err *err)
{
	const struct pl_batch *b = &p->x.hold.b[batch];
	const struct pl_row_values *r = &s->rows[batch];
	int rc = 0;

	for (uint32_t i = 0; i < b->n; i++) {
		if (b->kind[i] != PL_K_COUNTER || b->track[i] >= s->seg->n_tracks)
			continue;
		for (uint32_t e = r->off[i]; e < r->off[i + 1]; e++) {
			const struct pl_col *c = &b->col[r->ent[e].col];
			uint32_t v = r->ent[e].k;
			uint64_t uuid;
			size_t at;

			if (c->role != PL_R_VALUE || (c->type != PL_V_INT && c->type != PL_V_DEC))
				continue;
			PL_TRY(counter_track(p, s, b, i, c, &uuid, err));
			at = open_packet(p, pl_export_start(&p->x, s->seg, b, i));
			pl_pb_varint(&p->event, EVENT_TYPE, TYPE_COUNTER);
			pl_pb_varint(&p->event, EVENT_TRACK_UUID, uuid);
			if (c->type == PL_V_INT)
				pl_pb_varint(&p->event, EVENT_COUNTER_VALUE, (uint64_t)c->val[v]);
			else
				pl_pb_double(&p->event, EVENT_DOUBLE_COUNTER,
					     (double)c->val[v] /
						     pow(10, c->scale ? c->scale[v] : 0));
			finish_packet(p, at);
			pl_write_flush(&p->x.t, (size_t)256 << 10);
		}
	}
out:
	return rc < 0 ? rc : pl_write_check(&p->x.t, err);
}
