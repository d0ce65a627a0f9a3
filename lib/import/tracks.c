/*
 * Tracks: a pair of pid and tid as the source wrote them, found through a small cache; and the
 * metadata events of tracks, which may come before or after the events, even in another segment.
 *
 * A track is a device stream if its events have "stream" and "device". The numbers of the track do
 * not decide: a stream may have pid 0 and tid 7 (device 0, stream 7), while the process has another
 * pid. Names, ranks and hosts are filled in when the segment ends.
 */
#include "import/internal.h"

void pl_import_tracks_init(struct pl_tracks *t, struct pl_rows *rows, bool chrome)
{
	memset(t, 0, sizeof(*t));
	t->rows = rows;
	t->chrome = chrome;
	pl_import_tracks_renew(t);
}

void pl_import_tracks_fini(struct pl_tracks *t)
{
	for (size_t i = 0; i < t->note_key.n; i++)
		pl_free(t->note[i].track);
	pl_free(t->note);
	pl_intern_fini(&t->key);
	pl_intern_fini(&t->text);
	pl_intern_fini(&t->note_key);
	pl_buf_fini(&t->tmp);
}

void pl_import_tracks_renew(struct pl_tracks *t)
{
	for (size_t i = 0; i < PL_LEN(t->recent); i++)
		t->recent[i].track = PL_NONE;
	if (t->key.n != t->rows->seg.n_tracks)
		pl_intern_reset(&t->key);
	for (size_t i = 0; i < t->note_key.n; i++)
		t->note[i].used = false;
}

/* Append text. A NUL ends the parts of a key, so a NUL in the text is written as in JSON. */
static int put_text(struct pl_tracks *t, const char *s, size_t n, struct pl_err *err)
{
	const char *nul;

	for (; n && (nul = memchr(s, '\0', n)); n -= (size_t)(nul + 1 - s), s = nul + 1) {
		PL_CHECK(pl_buf_put(&t->tmp, s, (size_t)(nul - s), err));
		PL_CHECK(pl_buf_put(&t->tmp, "\\u0000", 6, err));
	}
	return pl_buf_put(&t->tmp, s, n, err);
}

/* Append the flag and the text of a pid. */
static int put_pid(struct pl_tracks *t, const struct pl_pid *p, struct pl_err *err)
{
	const struct pl_intern *str = &t->rows->seg.str;

	switch (p->tok) {
	case PL_TOK_INT:
		return pl_buf_printf(&t->tmp, err, "i%lld", (long long)p->v);
	case PL_TOK_NONE:
		return pl_buf_printf(&t->tmp, err, "i0");
	default:
		PL_CHECK(pl_buf_printf(&t->tmp, err, "%c", p->tok == PL_TOK_STR ? 's' : 'r'));
		return put_text(t, pl_intern_get(str, (pl_id)p->v), str->len[p->v], err);
	}
}

/* tmp: pid, NUL, tid. */
int pl_import_tracks_key(struct pl_tracks *t, const struct pl_fields *f, struct pl_err *err)
{
	t->tmp.n = 0;
	PL_CHECK(put_pid(t, &f->pid, err));
	PL_CHECK(pl_buf_put(&t->tmp, "", 1, err));
	PL_CHECK(put_pid(t, &f->tid, err));
	PL_CHECK(pl_buf_put(&t->tmp, "", 1, err)); /* ends the text; no part of the key */
	t->tmp.n--;
	return 0;
}

/* The track with the key [key, key + n). New tracks get the next number, as in t->key. */
static int by_key(struct pl_tracks *t, const char *key, size_t n, pl_id *id, struct pl_err *err)
{
	size_t np = strlen(key);
	struct pl_track track;
	pl_id check;

	PL_CHECK(pl_intern_add(&t->key, key, n, id, err));
	if (*id < t->rows->seg.n_tracks)
		return 0;
	pl_trace_track_init(&track);
	track.flags =
		(*key == 's' ? PL_TRACK_PID_STR : 0) | (key[np + 1] == 's' ? PL_TRACK_TID_STR : 0);
	track.pid = pl_import_rows_text(t->rows, key + 1, np - 1);
	track.tid = pl_import_rows_text(t->rows, key + np + 2, n - np - 2);
	/* "Spans", "Traces" and "" are rows of the profiler, not processes */
	track.type = !t->chrome && *key == 's' ? PL_T_OTHER : PL_T_THREAD;
	PL_CHECK(pl_trace_segment_track(&t->rows->seg, &track, &check, err));
	return check == *id ? 0 : pl_fail(err, PL_EINTERNAL, "track numbers disagree");
}

int pl_import_tracks_find(struct pl_tracks *t, const struct pl_fields *f, pl_id *track,
			  struct pl_err *err)
{
	uint64_t h =
		(uint64_t)f->pid.v * 0x9e3779b97f4a7c15u + (uint64_t)f->tid.v * 0xc2b2ae3d27d4eb4fu;
	size_t i = (h ^ h >> 32) & (PL_LEN(t->recent) - 1);

	if (PL_LIKELY(t->recent[i].track != PL_NONE && t->recent[i].pid.v == f->pid.v &&
		      t->recent[i].tid.v == f->tid.v && t->recent[i].pid.tok == f->pid.tok &&
		      t->recent[i].tid.tok == f->tid.tok)) {
		*track = t->recent[i].track;
		return 0;
	}
	PL_CHECK(pl_import_tracks_key(t, f, err));
	PL_CHECK(by_key(t, (const char *)t->tmp.p, t->tmp.n, track, err));
	t->recent[i].pid = f->pid;
	t->recent[i].tid = f->tid;
	t->recent[i].track = *track;
	return 0;
}

/* ---- metadata events ----------------------------------------------------------------------- */

static int note_get(struct pl_tracks *t, bool thread, const struct pl_fields *f,
		    struct pl_track_note **out, struct pl_err *err)
{
	size_t old = t->note_key.n;
	struct pl_track_note *note;
	const char *key;
	pl_id id;

	PL_CHECK(pl_import_tracks_key(t, f, err));
	key = (const char *)t->tmp.p;
	/* allocate first, so that a failure leaves no key without its note */
	PL_CHECK(pl_grow(&t->note, &t->cap_note, old + 1, sizeof(*t->note), err));
	PL_CHECK(pl_intern_add(&t->note_key, key, thread ? t->tmp.n : strlen(key), &id, err));
	note = &t->note[id];
	if (id == old) {
		*note = (struct pl_track_note){
			.name = PL_NONE, .labels = PL_NONE, .thread = thread, .n = t->tmp.n
		};
		PL_CHECK(pl_alloc(&note->track, t->tmp.n, 1, err));
		memcpy(note->track, key, t->tmp.n);
	}
	*out = note;
	return 0;
}

static int note_text(struct pl_tracks *t, const struct pl_fields *f, unsigned a, pl_id *id,
		     struct pl_err *err)
{
	const struct pl_intern *str = &t->rows->seg.str;
	pl_id s = (pl_id)f->arg[a];

	if (!pl_has(f, a) || f->arg_type[a] != PL_V_STR)
		return 0;
	return pl_intern_add(&t->text, pl_intern_get(str, s), str->len[s], id, err);
}

int pl_import_tracks_meta(struct pl_tracks *t, const struct pl_fields *f, struct pl_err *err)
{
	const char *s = f->name == PL_NONE ? "" : pl_intern_get(&t->rows->seg.str, f->name);
	bool thread = !strncmp(s, "thread_", 7);
	struct pl_track_note *note = NULL;

	if (strncmp(s, "process_", 8) != 0 && !thread)
		return 0;
	s += thread ? 7 : 8;
	if (strcmp(s, "name") != 0 && strcmp(s, "labels") != 0 && strcmp(s, "sort_index") != 0)
		return 0;
	PL_CHECK(note_get(t, thread, f, &note, err));
	if (*s == 'n')
		PL_CHECK(note_text(t, f, PL_A_NAME, &note->name, err));
	else if (*s == 'l')
		PL_CHECK(note_text(t, f, PL_A_LABELS, &note->labels, err));
	else if (pl_has(f, PL_A_SORT) && f->arg_type[PL_A_SORT] == PL_V_INT) {
		int64_t v = f->arg[PL_A_SORT];

		note->sort = v > INT32_MAX ? INT32_MAX : v < INT32_MIN ? INT32_MIN : (int32_t)v;
	}
	return 1;
}

/* ---- the end of a segment ------------------------------------------------------------------ */

static pl_id copy_text(struct pl_tracks *t, pl_id from)
{
	return from == PL_NONE ? PL_NONE
			       : pl_import_rows_text(t->rows, pl_intern_get(&t->text, from),
						     t->text.len[from]);
}

/* The rank in the name of a process, -1: none. Profilers take the name from the system, so in their
 * documents the name must begin so: "rank 3 python (GPU 0)", as paceline exports ranks. */
static int32_t named_rank(const struct pl_tracks *t, const struct pl_track_note *n)
{
	const char *s;

	if (n->name == PL_NONE)
		return -1;
	s = pl_intern_get(&t->text, n->name);
	if (!t->chrome && (!t->named || strncmp(s, "rank ", 5) != 0))
		return -1;
	return pl_import_number_after(s, s + strlen(s), "rank");
}

static void fill_in(struct pl_tracks *t, pl_id id, int32_t rank, pl_id host)
{
	const char *key = t->key.str[id];
	pl_id process = pl_intern_find(&t->note_key, key, strlen(key));
	pl_id thread = pl_intern_find(&t->note_key, key, t->key.len[id]);
	struct pl_track *track = &t->rows->seg.track[id];

	if (process != PL_NONE) {
		struct pl_track_note *n = &t->note[process];

		n->used = true;
		track->process = copy_text(t, n->name);
		track->labels = copy_text(t, n->labels);
		track->psort = n->sort;
		rank = named_rank(t, n) >= 0 ? named_rank(t, n) : rank;
	}
	if (thread != PL_NONE) {
		t->note[thread].used = true;
		track->name = copy_text(t, t->note[thread].name);
		track->sort = t->note[thread].sort;
	}
	if (t->chrome || *key != 's') {
		track->rank = rank;
		track->host = host;
	}
}

/* Named threads or processes without events get a track too, so that their names are kept. */
static int add_unused(struct pl_tracks *t, bool thread, int32_t rank, pl_id host,
		      struct pl_err *err)
{
	pl_id first = t->rows->seg.n_tracks, id;

	for (size_t i = 0; i < t->note_key.n; i++) {
		const struct pl_track_note *n = &t->note[i];

		if (n->thread != thread || n->used)
			continue;
		PL_CHECK(by_key(t, n->track, n->n, &id, err));
		t->rows->seg.track[id].type = PL_T_OTHER;
		for (; first < t->rows->seg.n_tracks; first++)
			fill_in(t, first, rank, host);
	}
	return 0;
}

int pl_import_tracks_finish(struct pl_tracks *t, int32_t rank, const char *host, size_t host_len,
			    struct pl_err *err)
{
	pl_id h = PL_NONE;

	if (host)
		h = pl_import_rows_text(t->rows, host, host_len);
	/* a document with several ranks has no rank as a whole */
	for (pl_id i = 0; i < t->note_key.n && !t->chrome; i++)
		if (!t->note[i].thread && named_rank(t, &t->note[i]) >= 0)
			rank = -1;
	for (pl_id i = 0; i < t->rows->seg.n_tracks; i++)
		fill_in(t, i, rank, h);
	PL_CHECK(add_unused(t, true, rank, h, err));
	PL_CHECK(add_unused(t, false, rank, h, err));
	return t->rows->rc;
}
