/*
 * From one event of a Chrome trace to a row: kinds, tracks, and the phases that come in pairs.
 *
 * A begin (B, b) is kept as text until its end is read. Its text is then read again, and the
 * arguments of the end are added, so pairs need no store of incomplete columns. An end finds its
 * begin through a stack for each track (B, E) or for each (process, category, id) (b, e).
 */
#include "import/internal.h"

#define MAX_OPEN_BYTES ((size_t)32 << 20)

static const char *name_of(const struct pl_doc *d, size_t *n)
{
	const struct pl_intern *str = &d->rows.seg.str;
	pl_id id = d->ev.f.name;

	*n = id == PL_NONE ? 0 : str->len[id];
	return pl_intern_get(str, id);
}

/* ---- kinds --------------------------------------------------------------------------------- */

static int classify(struct pl_doc *d, uint8_t *nclass, uint8_t *cat)
{
	const struct pl_intern *str = &d->rows.seg.str;
	const struct pl_fields *f = &d->ev.f;
	struct pl_strinfo *info;

	*nclass = PL_N_PLAIN;
	*cat = PL_K_COUNT_;
	if (PL_LIKELY(f->name != PL_NONE)) {
		info = pl_import_event_info(&d->ev, f->name);
		if (!info)
			return d->ev.rc;
		if (!info->name)
			info->name = pl_import_name_class(pl_intern_get(str, f->name),
							  str->len[f->name]);
		*nclass = info->name;
	}
	if (PL_LIKELY(f->cat != PL_NONE)) {
		info = pl_import_event_info(&d->ev, f->cat);
		if (!info)
			return d->ev.rc;
		if (!info->cat)
			info->cat =
				pl_import_cat_kind(pl_intern_get(str, f->cat), str->len[f->cat]) +
				1;
		*cat = info->cat - 1;
	}
	return 0;
}

static bool on_device(uint8_t kind)
{
	return kind == PL_K_KERNEL || kind == PL_K_COPY || kind == PL_K_SET || kind == PL_K_SYNC ||
	       kind == PL_K_GPU_ANNOTATION;
}

/* The kind of an event that has a duration. */
static uint8_t kind_of(const struct pl_doc *d, uint8_t nclass, uint8_t cat)
{
	const struct pl_fields *f = &d->ev.f;

	if (cat == PL_K_COUNT_) {
		if (d->chrome || f->cat == PL_NONE)
			cat = PL_K_HOST_OP;
		else
			cat = pl_has(f, PL_R_STREAM) && pl_has(f, PL_A_DEVICE) ? PL_K_KERNEL
									       : PL_K_OTHER;
	}
	if (on_device(cat))
		return cat == PL_K_KERNEL && nclass == PL_N_DEVCOMM ? PL_K_COLLECTIVE : cat;
	if (cat != PL_K_HOST_OP && cat != PL_K_ANNOTATION)
		return cat;
	switch (nclass) {
	case PL_N_STEP:
		return PL_K_STEP;
	case PL_N_DATA:
		return PL_K_DATA;
	case PL_N_HOSTCOMM:
		return PL_K_COLLECTIVE;
	default:
		return cat;
	}
}

/* ---- communication ------------------------------------------------------------------------- */

static const char *read_coll(const char *s, size_t n, bool argument)
{
	const char *coll = pl_trace_coll_from_name(s, n);
	char text[80];

	if (coll || !argument)
		return coll;
	/* "send", "_reduce_scatter_base": words of a library */
	snprintf(text, sizeof(text), "nccl:%s", s);
	return pl_trace_coll_from_name(text, strlen(text));
}

/* The collective that a string names, NULL: none. It is determined once for each string: info->coll
 * is 0 before that, 1 for none, else the number of the collective + 2. */
static int collective_of_text(struct pl_doc *d, pl_id id, bool argument, const char **coll)
{
	const struct pl_intern *str = &d->rows.seg.str;
	struct pl_strinfo *info = pl_import_event_info(&d->ev, id);
	uint8_t *number = info ? &info->coll[argument] : NULL;

	if (!number)
		return d->ev.rc;
	*coll = *number > 1 ? pl_trace_coll_name(*number - 2u) : NULL;
	if (*number)
		return 0;
	*coll = read_coll(str->str[id], str->len[id], argument);
	*number = *coll ? 2 : 1;
	while (*coll && pl_trace_coll_name(*number - 2u) != *coll)
		++*number;
	return 0;
}

/* The collective of the event, from its argument, else from its name. */
static int coll_of(struct pl_doc *d, const char **coll)
{
	const struct pl_fields *f = &d->ev.f;
	const char *by_name = NULL;

	*coll = NULL;
	if (pl_has(f, PL_R_COLL) && f->arg_type[PL_R_COLL] == PL_V_STR)
		PL_CHECK(collective_of_text(d, (pl_id)f->arg[PL_R_COLL], true, coll));
	if (*coll && strcmp(*coll, "sendrecv") != 0 && strcmp(*coll, "collective") != 0)
		return 0;
	if (f->name != PL_NONE)
		PL_CHECK(collective_of_text(d, f->name, false, &by_name));
	*coll = by_name ? by_name : *coll;
	return 0;
}

static int64_t arg_int(const struct pl_fields *f, unsigned a)
{
	return pl_has(f, a) && f->arg_type[a] == PL_V_INT ? f->arg[a] : -1;
}

static const char *arg_text(const struct pl_doc *d, unsigned a, uint8_t type, size_t *n)
{
	const struct pl_fields *f = &d->ev.f;

	if (!pl_has(f, a) || f->arg_type[a] != type)
		return NULL;
	*n = d->rows.seg.str.len[f->arg[a]];
	return pl_intern_get(&d->rows.seg.str, (pl_id)f->arg[a]);
}

/*
 * The size of the whole buffer, as in nccl-tests: an all-gather's recorded input is not enough.
 */
static void own_size(const struct pl_doc *d, const char *coll, int64_t *elements, int64_t *bytes)
{
	const struct pl_fields *f = &d->ev.f;
	int64_t in = arg_int(f, PL_R_ELEMENTS), out = arg_int(f, PL_R_ELEMENTS_OUT), size, group;
	const char *s, *types;
	size_t n;

	*elements = *bytes = -1;
	if (in >= 0 || out >= 0) {
		*elements = in > out ? in : out;
		s = arg_text(d, PL_R_DTYPE, PL_V_STR, &n);
		size = s ? pl_trace_dtype(s, n, NULL) : 0;
		if (size && *elements <= INT64_MAX / 16)
			*bytes = *elements * size;
		return;
	}
	s = arg_text(d, PL_R_DIMS, PL_V_JSON, &n);
	types = arg_text(d, PL_R_TYPES, PL_V_JSON, &n);
	if (!s || !types)
		return;
	pl_import_dims_size(s, types, elements, bytes);
	if (coll && !strcmp(coll, "allgather") && *bytes >= 0) {
		group = arg_int(f, PL_R_SIZE);
		*bytes = group > 0 && group < 1 << 24 && *bytes <= INT64_MAX >> 24 ? *bytes * group
										   : -1;
	}
}

/* The group of an event without "Process Group Name": the ranks, if all of them are listed. */
static pl_id other_group(const struct pl_doc *d)
{
	const struct pl_fields *f = &d->ev.f;
	size_t n;
	const char *s = arg_text(d, PL_R_RANKS, PL_V_STR, &n);

	if (s && n > 2 && !strstr(s, "..."))
		return (pl_id)f->arg[PL_R_RANKS];
	s = arg_text(d, PL_A_DESC, PL_V_STR, &n);
	return s && n ? (pl_id)f->arg[PL_A_DESC] : PL_NONE;
}

/* A host operation that describes communication: noted for the kernels that it launches. */
static int note_op(struct pl_doc *d, bool rpc, struct pl_err *err)
{
	const struct pl_fields *f = &d->ev.f;
	struct pl_comm_op op = {
		.t0 = f->ts, .t1 = pl_add_sat(f->ts, f->dur), .rpc = rpc, .peer = -1
	};
	const char *s;
	size_t n;

	if (f->pid.tok != PL_TOK_INT || f->tid.tok != PL_TOK_INT)
		return 0;
	op.rf = arg_int(f, PL_R_RECORD);
	op.seq = arg_int(f, PL_R_SEQ);
	PL_CHECK(coll_of(d, &op.coll));
	op.group = PL_NONE;
	own_size(d, op.coll, &op.elements, &op.bytes);
	op.tensors = arg_text(d, PL_R_DIMS, PL_V_JSON, &n) ? op.elements > 0 : -1;
	s = arg_text(d, PL_R_GROUP, PL_V_STR, &n);
	if (!s) {
		pl_id g = other_group(d);

		s = g == PL_NONE ? NULL : pl_intern_get(&d->rows.seg.str, g);
		n = s ? d->rows.seg.str.len[g] : 0;
	}
	if (s && n)
		PL_CHECK(pl_import_comm_text(d->rows.comm, s, n, &op.group, err));
	return pl_import_comm_add_op(d->rows.comm, f->pid.v, f->tid.v, &op, err);
}

/*
 * The peer of an operator that posts a send or receive: the last but one of its recorded inputs,
 * ["", "", "PEER", "TAG"]. The event of the communication itself, which has no peer, begins inside
 * the operator and comes after it.
 */
static void note_post(struct pl_doc *d)
{
	const struct pl_fields *f = &d->ev.f;
	int64_t v[2] = { -1, -1 };
	enum pl_json_type t;
	struct pl_json j;
	size_t n;
	const char *s = arg_text(d, PL_R_VALUES, PL_V_JSON, &n);

	pl_json_init(&j, s ? s : "", s ? n : 0);
	while ((t = pl_json_next(&j)) != PL_JSON_END && t != PL_JSON_ERROR) {
		if (t != PL_JSON_STRING)
			continue;
		v[0] = v[1];
		if (!pl_json_i64(j.text, j.len, &v[1]))
			v[1] = -1;
	}
	d->post = (struct pl_post){ f->pid, f->tid, f->ts, pl_add_sat(f->ts, f->dur), v[0] };
}

static bool same_pid(const struct pl_pid *a, const struct pl_pid *b)
{
	return a->tok == b->tok && a->v == b->v;
}

static void put_peer(struct pl_doc *d, const char *coll)
{
	const struct pl_fields *f = &d->ev.f;
	const struct pl_post *p = &d->post;

	if (coll && (!strcmp(coll, "send") || !strcmp(coll, "recv")) && p->peer >= 0 &&
	    same_pid(&p->pid, &f->pid) && same_pid(&p->tid, &f->tid) && f->ts >= p->t0 &&
	    f->ts <= p->t1)
		pl_import_rows_put(&d->rows, PL_R_PEER, PL_V_INT, PL_NONE, p->peer);
}

/* rank_from of the file so far, for several execution traces of one pid. */
static int find_et(struct pl_doc *d, struct pl_err *err)
{
	int32_t rank;
	char pid[24];
	int rc = pl_import_pick_rank(d->o, d->rows.path, -1, &rank, err);

	snprintf(pid, sizeof(pid), "%lld", (long long)d->ev.f.pid.v);
	pl_import_comm_use_et(d->rows.comm, d->o->et, pid, rank);
	return rc;
}

static int note_row(struct pl_doc *d, bool host, struct pl_err *err)
{
	const struct pl_fields *f = &d->ev.f;
	struct pl_held *h = d->rows.cur;
	struct pl_comm_row row = { .row = h->b.n, .host = host };
	int64_t elements;
	size_t n;
	const char *s;

	PL_CHECK(pl_grow(&h->row, &h->cap_rows, h->n_rows + 1, sizeof(*h->row), err));
	PL_CHECK(coll_of(d, &row.coll));
	s = arg_text(d, PL_R_COLL, PL_V_STR, &n);
	row.has_coll = s && row.coll && !strcmp(s, row.coll);
	row.has_bytes = arg_int(f, PL_R_BYTES) >= 0;
	row.has_group = arg_text(d, PL_R_GROUP, PL_V_STR, &n) != NULL;
	row.has_seq = arg_int(f, PL_R_SEQ) >= 0;
	row.corr = host ? -1 : arg_int(f, PL_R_CORR);
	row.rf = host ? arg_int(f, PL_R_RECORD) : -1;
	row.group = other_group(d);
	own_size(d, row.coll, &elements, &row.bytes);
	if (host && !pl_has(f, PL_R_PEER))
		put_peer(d, row.coll);
	h->row[h->n_rows++] = row;
	return 0;
}

static int communication(struct pl_doc *d, uint8_t kind, uint8_t nclass, pl_id track,
			 struct pl_err *err)
{
	const struct pl_fields *f = &d->ev.f;
	int64_t corr;

	if (kind == PL_K_RUNTIME) {
		corr = arg_int(f, PL_R_CORR);
		return corr < 0 ? 0
				: pl_import_comm_add_launch(d->rows.comm, track, f->pid.v, f->tid.v,
							    f->ts, corr, err);
	}
	if (pl_trace_kind_is_comm(kind)) {
		bool host = nclass == PL_N_HOSTCOMM;

		if (host && d->o->et)
			PL_CHECK(find_et(d, err));
		return note_row(d, host, err);
	}
	if (nclass == PL_N_POST && kind == PL_K_HOST_OP)
		note_post(d);
	if ((nclass == PL_N_RPC || nclass == PL_N_RANGE) &&
	    (kind == PL_K_HOST_OP || kind == PL_K_ANNOTATION)) {
		if (d->o->et)
			PL_CHECK(find_et(d, err));
		return note_op(d, nclass == PL_N_RPC, err);
	}
	return 0;
}

/* ---- rows ---------------------------------------------------------------------------------- */

static void put_ph(struct pl_doc *d, char ph)
{
	pl_import_rows_put(&d->rows, PL_R_PH, PL_V_STR, PL_NONE,
			   pl_import_rows_text(&d->rows, &ph, 1));
}

/* The id of the event, for which no column exists otherwise. */
static void put_id(struct pl_doc *d)
{
	const struct pl_fields *f = &d->ev.f;

	if (PL_UNLIKELY(f->has_id))
		pl_import_rows_put(&d->rows, PL_R_TOP, f->id_type,
				   pl_import_rows_text(&d->rows, "id", 2), f->id);
}

static void put_step(struct pl_doc *d)
{
	size_t n;
	const char *s = name_of(d, &n) + 13; /* after "ProfilerStep#" */
	int64_t step;

	if (pl_json_i64(s, n - 13, &step))
		pl_import_rows_put(&d->rows, PL_R_STEP, PL_V_INT, PL_NONE, step);
}

/* Events on a device make their track a device track. */
static void mark_track(struct pl_doc *d, pl_id id, uint8_t kind)
{
	struct pl_track *t = &d->rows.seg.track[id];
	const struct pl_fields *f = &d->ev.f;
	int64_t stream = arg_int(f, PL_R_STREAM), device = arg_int(f, PL_A_DEVICE);

	if (t->device < 0 && device >= 0 && device < INT32_MAX)
		t->device = (int32_t)device;
	if (t->type == PL_T_STREAM)
		return;
	if (kind == PL_K_SYNC && f->tid.tok == PL_TOK_INT && f->tid.v < 0) {
		t->type = PL_T_OTHER; /* "Context Sync" belongs to no stream */
		return;
	}
	if (stream < 0 && f->tid.tok == PL_TOK_INT)
		stream = f->tid.v;
	if (t->device < 0 && f->pid.tok == PL_TOK_INT && f->pid.v >= 0 && f->pid.v < 4096)
		t->device = (int32_t)f->pid.v;
	t->type = PL_T_STREAM;
	t->stream = stream;
}

/* A value for the current row in a column whose number + 1 is kept in *col. */
static int put_fast(struct pl_doc *d, uint32_t *col, uint8_t role, uint8_t type, int64_t v,
		    struct pl_err *err)
{
	struct pl_batch *b = &d->rows.cur->b;

	if (PL_UNLIKELY(!*col)) {
		PL_CHECK(pl_import_rows_col(&d->rows, role, type, PL_NONE, col, err));
		++*col;
	}
	return pl_trace_col_put(&b->col[*col - 1], b->n, v, 0, err);
}

static int finish_row(struct pl_doc *d, uint8_t kind, pl_id track, pl_ns dur, struct pl_err *err)
{
	struct pl_rows *r = &d->rows;
	struct pl_fields *f = &d->ev.f;

	if (PL_UNLIKELY(f->name == PL_NONE))
		f->name = pl_import_rows_text(r, "", 0);
	if (PL_LIKELY(f->cat != PL_NONE))
		PL_CHECK(put_fast(d, &d->ev.col_cat, PL_R_CAT, PL_V_STR, f->cat, err));
	if (PL_UNLIKELY(f->odd_dur))
		pl_import_rows_put_dec(r, PL_R_ARG, f->dur_type, pl_import_rows_text(r, "dur", 3),
				       f->dur_raw, f->dur_scale);
	return pl_import_rows_event(r, kind, track, f->name, f->ts, dur, err);
}

/* What shows where steps begin, if nothing marks them. */
static int note_call(struct pl_doc *d, uint8_t kind, uint8_t nclass, struct pl_err *err)
{
	enum pl_called what = PL_CALL_FETCH;
	const char *s;
	size_t n;

	d->calls.marked |= kind == PL_K_STEP;
	if (nclass == PL_N_OPTIMIZER)
		what = PL_CALL_STEP;
	else if (nclass == PL_N_ZERO_GRAD)
		what = PL_CALL_ZERO_GRAD;
	else if (kind != PL_K_DATA)
		return 0;
	s = name_of(d, &n);
	return d->calls.marked ? 0 : pl_import_calls_add(&d->calls, what, s, n, &d->ev.f, err);
}

static int complete(struct pl_doc *d, struct pl_err *err)
{
	struct pl_fields *f = &d->ev.f;
	uint8_t nclass, cat, kind;
	pl_id track;

	PL_CHECK(classify(d, &nclass, &cat));
	kind = kind_of(d, nclass, cat);
	PL_CHECK(pl_import_tracks_find(&d->tracks, f, &track, err));
	if (on_device(kind) || (kind == PL_K_COLLECTIVE && nclass == PL_N_DEVCOMM))
		mark_track(d, track, kind);
	if (kind == PL_K_STEP && nclass == PL_N_STEP)
		put_step(d);
	if (PL_UNLIKELY(kind == PL_K_ANNOTATION || kind == PL_K_DATA || kind == PL_K_STEP))
		PL_CHECK(note_call(d, kind, nclass, err));
	if (d->rows.comm)
		PL_CHECK(communication(d, kind, nclass, track, err));
	if (PL_UNLIKELY(!f->has_dur))
		put_ph(d, 'X');
	put_id(d);
	return finish_row(d, kind, track, f->has_dur ? f->dur : -1, err);
}

static int flow(struct pl_doc *d, struct pl_err *err)
{
	struct pl_fields *f = &d->ev.f;
	pl_id track;

	PL_CHECK(pl_import_tracks_find(&d->tracks, f, &track, err));
	if (PL_LIKELY(f->has_id))
		PL_CHECK(put_fast(d, &d->ev.col_flow[f->id_type], PL_R_FLOW, f->id_type, f->id,
				  err));
	if (f->ph == 't')
		put_ph(d, 't');
	return finish_row(d, f->ph == 's' ? PL_K_FLOW_OUT : PL_K_FLOW_IN, track, -1, err);
}

/* An event that is no operation of a thread. ph 0: from the kind. dur -1: kept as an argument. */
static int other(struct pl_doc *d, uint8_t kind, char ph, pl_ns dur, struct pl_err *err)
{
	struct pl_fields *f = &d->ev.f;
	pl_id track;

	PL_CHECK(pl_import_tracks_find(&d->tracks, f, &track, err));
	if (ph)
		put_ph(d, ph);
	put_id(d);
	if (dur < 0 && f->has_dur && !f->odd_dur) { /* in the source's unit, microseconds */
		bool whole = f->dur % 1000 == 0;

		pl_import_rows_put_dec(&d->rows, PL_R_TOP, whole ? PL_V_INT : PL_V_DEC,
				       pl_import_rows_text(&d->rows, "dur", 3),
				       whole ? f->dur / 1000 : f->dur, whole ? 0 : 3);
	}
	return finish_row(d, kind, track, dur, err);
}

/* Everything without a duration: instants, counters, and phases that are stored as they are. */
static int instant(struct pl_doc *d, uint8_t kind, struct pl_err *err)
{
	char ph = d->ev.f.ph;
	uint8_t nclass, cat;

	PL_CHECK(classify(d, &nclass, &cat));
	if (kind == PL_K_INSTANT && nclass == PL_N_MEMORY)
		kind = PL_K_MEMORY;
	return other(d, kind, ph == 'C' || (ph == 'i' && kind == PL_K_INSTANT) ? 0 : ph, -1, err);
}

/* ---- pairs --------------------------------------------------------------------------------- */

static int put_id_part(struct pl_doc *d, pl_id part, struct pl_err *err)
{
	const struct pl_intern *str = &d->rows.seg.str;

	return part == PL_NONE
		       ? 0
		       : pl_buf_printf(&d->tracks.tmp, err, "/%s", pl_intern_get(str, part));
}

/* Find the stack of begins of this track (B) or id (b). */
static int pair_key(struct pl_doc *d, uint32_t **top, struct pl_err *err)
{
	const struct pl_fields *f = &d->ev.f;
	const struct pl_intern *str = &d->rows.seg.str;
	struct pl_buf *b = &d->tracks.tmp;
	pl_id key;

	PL_CHECK(pl_import_tracks_key(&d->tracks, f, err));
	if (f->ph == 'b' || f->ph == 'e') {
		b->n = strlen((const char *)b->p);
		PL_CHECK(pl_buf_printf(b, err, "/%s/%d/", pl_intern_get(str, f->cat), f->id_type));
		if (f->has_id && f->id_type == PL_V_STR)
			PL_CHECK(pl_buf_put(b, pl_intern_get(str, (pl_id)f->id), str->len[f->id],
					    err));
		else if (f->has_id)
			PL_CHECK(pl_buf_printf(b, err, "%lld", (long long)f->id));
		PL_CHECK(put_id_part(d, f->id2, err));
		PL_CHECK(put_id_part(d, f->scope, err));
	}
	PL_CHECK(pl_grow(&d->top, &d->cap_top, d->open_key.n + 1, sizeof(*d->top), err));
	d->top[d->open_key.n] = 0;
	PL_CHECK(pl_intern_add(&d->open_key, (const char *)b->p, b->n, &key, err));
	*top = &d->top[key];
	return 0;
}

static int begin(struct pl_doc *d, const char *p, const char *q, int64_t at, struct pl_err *err)
{
	size_t n = (size_t)(q - p);
	struct pl_open *o;
	uint32_t *top, i;

	pl_import_rows_undo(&d->rows);
	if (d->open_bytes + n > MAX_OPEN_BYTES)
		return pl_import_report(&d->report, PL_BAD, at,
					"too many begins (B, b) without their end", err);
	PL_CHECK(pair_key(d, &top, err));
	if (d->free_open) {
		i = d->free_open - 1;
		d->free_open = d->open[i].below;
	} else {
		PL_CHECK(pl_grow(&d->open, &d->cap_open, d->n_open + 1, sizeof(*d->open), err));
		i = (uint32_t)d->n_open++;
	}
	o = &d->open[i];
	o->text = pl_malloc(n + PL_SLACK);
	if (!o->text)
		return pl_fail(err, PL_ENOMEM, "out of memory (event)");
	memcpy(o->text, p, n);
	memset(o->text + n, 0, PL_SLACK);
	o->n = n;
	o->at = at;
	o->below = *top;
	*top = i + 1;
	d->open_bytes += n;
	return 0;
}

static void drop(struct pl_doc *d, uint32_t i)
{
	struct pl_open *o = &d->open[i];

	d->open_bytes -= o->n;
	pl_free(o->text);
	o->text = NULL;
	o->below = d->free_open;
	d->free_open = i + 1;
}

/* The row of a pair: the fields of the begin, the arguments of the end, the time between them. */
static int end(struct pl_doc *d, const char *p, const char *q, int64_t at, struct pl_err *err)
{
	char ph = d->ev.f.ph;
	pl_ns t1 = d->ev.f.ts;
	struct pl_fields *f = &d->ev.f;
	uint32_t *top, i;

	PL_CHECK(pair_key(d, &top, err));
	pl_import_rows_undo(&d->rows);
	if (!*top)
		return pl_import_report(&d->report, PL_BAD, at, "an end (E, e) without its begin",
					err);
	i = *top - 1;
	*top = d->open[i].below;
	if (!pl_import_event_read(&d->ev, d->open[i].text, d->open[i].text + d->open[i].n + 1) ||
	    !pl_import_event_read_more(&d->ev, p, q + 1)) {
		pl_import_rows_undo(&d->rows);
		drop(d, i);
		return d->ev.rc < 0 ? d->ev.rc
				    : pl_import_report(&d->report, PL_BAD, at,
						       "a pair that cannot be read", err);
	}
	drop(d, i);
	f->dur = pl_sub_sat(t1, f->ts);
	f->has_dur = true;
	f->odd_dur = false;
	if (f->dur < 0) {
		f->dur = 0;
		PL_CHECK(pl_import_report(&d->report, PL_BAD_VALUE, at,
					  "an end before its begin (0 stands for the duration)",
					  err));
	}
	if (ph == 'E')
		return complete(d, err);
	/* asynchronous operations overlap, so they must not count as program order of the thread */
	return other(d, PL_K_ANNOTATION, 'b', f->dur, err);
}

int pl_import_doc_leftovers(struct pl_doc *d, struct pl_err *err)
{
	for (uint32_t i = 0; i < d->n_open; i++) {
		struct pl_open *o = &d->open[i];

		if (!o->text)
			continue;
		PL_CHECK(pl_import_rows_ready(&d->rows, err));
		PL_CHECK(pl_import_report(&d->report, PL_BAD_VALUE, o->at,
					  "a begin (B, b) without its end, hence no duration",
					  err));
		if (!pl_import_event_read(&d->ev, o->text, o->text + o->n + 1)) {
			PL_CHECK(d->ev.rc);
			pl_import_rows_undo(&d->rows);
			continue;
		}
		PL_CHECK(other(d, PL_K_OTHER, d->ev.f.ph, -1, err));
	}
	return 0;
}

int pl_import_doc_steps(struct pl_doc *d, struct pl_err *err)
{
	struct pl_fields *f = &d->ev.f;
	const char *host;
	size_t n, len;

	PL_CHECK(pl_import_calls_steps(&d->calls, &n, err));
	for (size_t i = 0; i < n; i++) {
		const struct pl_call *x = &d->calls.v[i];

		PL_CHECK(pl_import_rows_ready(&d->rows, err));
		pl_import_event_begin(&d->ev);
		f->ph = 'X';
		f->name = pl_import_rows_format(&d->rows, "ProfilerStep#%zu", i);
		f->cat = pl_import_rows_text(&d->rows, "user_annotation", 15);
		f->pid.tok = f->tid.tok = PL_TOK_INT;
		f->pid.v = x->pid;
		f->tid.v = x->tid;
		f->ts = x->start;
		f->dur = x->end - x->start;
		f->has_ts = f->has_dur = true;
		PL_CHECK(d->rows.rc);
		PL_CHECK(complete(d, err));
	}
	if (n) /* of many ranks the first says it */
		pl_say(d->o->log,
		       pl_import_name_rank(d->rows.path, &host, &len) > 0 ? PL_LOG_NOTE
									  : PL_LOG_WARN,
		       "%s: the program marks no steps (prof.step()); the calls of the optimizer "
		       "show %zu",
		       d->report.file, n);
	return 0;
}

void pl_import_doc_free_open(struct pl_doc *d)
{
	for (size_t i = 0; i < d->n_open; i++)
		pl_free(d->open[i].text);
	pl_free(d->open);
	pl_free(d->top);
	pl_intern_fini(&d->open_key);
}

/* ---- all phases ---------------------------------------------------------------------------- */

static int metadata(struct pl_doc *d, struct pl_err *err)
{
	int rc = pl_import_tracks_meta(&d->tracks, &d->ev.f, err);

	if (rc < 0)
		return rc;
	if (!rc)
		return instant(d, PL_K_OTHER, err);
	pl_import_rows_undo(&d->rows);
	return 0;
}

static int is_bad(struct pl_doc *d, int64_t at, const char *what, struct pl_err *err)
{
	pl_import_rows_undo(&d->rows);
	return pl_import_report(&d->report, PL_BAD, at, what, err);
}

int pl_import_doc_accept(struct pl_doc *d, const char *p, const char *q, int64_t at,
			 struct pl_err *err)
{
	struct pl_ev *e = &d->ev;
	struct pl_fields *f = &e->f;

	if (PL_UNLIKELY(e->tolerated))
		PL_CHECK(pl_import_report(&d->report, PL_TOLERATED, at, e->tolerated, err));
	if (PL_UNLIKELY(e->value_bad))
		PL_CHECK(pl_import_report(&d->report, PL_BAD_VALUE, at, e->value_bad, err));
	if (PL_UNLIKELY(!f->ph)) {
		if (*pl_scan_space(p + 1, q) == '}') /* the {} before ] that some writers leave */
			return 0;
		return is_bad(d, at, "an event without ph", err);
	}
	if (PL_UNLIKELY(!f->has_ts && f->ph != 'M'))
		return is_bad(d, at, "an event without ts", err);
	switch (f->ph) {
	case 'X':
		return complete(d, err);
	case 's':
	case 't':
	case 'f':
		return flow(d, err);
	case 'B':
	case 'b':
		return begin(d, p, q, at, err);
	case 'E':
	case 'e':
		return end(d, p, q, at, err);
	case 'M':
		return metadata(d, err);
	case 'C':
		return instant(d, PL_K_COUNTER, err);
	case 'i':
	case 'I':
	case 'R':
	case 'n':
		return instant(d, PL_K_INSTANT, err);
	default:
		return instant(d, PL_K_OTHER, err);
	}
	return 0;
}
