/*
 * Operation tables in CSV: one row for each operation, as traces of production jobs are published.
 *
 * Two tables below give the meaning of the words in such a file: the role of each column (--columns
 * adds to this table), and the kind, collective, group and peer of each type of operation.
 *
 * If start times begin again in every step, the steps are placed one after the other in the order
 * of their numbers: a step begins where the longest rank of the previous step ended. Therefore all
 * rows are held (about 100 bytes each) and sorted by (step, rank, start). An event for each rank
 * and step is added and marked as inferred. O(n log n).
 */
#include <stdlib.h>

#include "core/words.h"
#include "import/internal.h"
#include "io/csv.h"

/* ---- what columns mean --------------------------------------------------------------------- */

enum column {
	C_RANK,
	C_NAME,
	C_START,
	C_DUR,
	C_END,
	C_STEP,
	C_DP,
	C_PP,
	C_TP,
	C_SEQ,
	C_CHUNK,
	C_MB,
	C_BYTES,
	C_PEER,
	C_OF,
	C_CHANNEL,
	C_GROUP,
	C_HOST,
	C_COUNT
};

static const char *const column_names[C_COUNT] = {
	"rank", "name",	 "start", "dur",   "end",  "step", "dp",      "pp",    "tp",
	"seq",	"chunk", "mb",	  "bytes", "peer", "of",   "channel", "group", "host",
};
static const char default_columns[] = "rank=rank,name=optype,start=start_ts:s,dur=duration:s,step="
				      "step,dp=dp_rank,pp=stage,tp=tp_rank,"
				      "seq=seq_id,chunk=mc,mb=mb_id";

/* ---- what operations mean ------------------------------------------------------------------ */

enum grouping {
	G_NONE,
	G_DP,	 /* over dp within a stage */
	G_EMBED, /* first and last stage of one dp rank */
	G_ALL,	 /* all ranks */
	G_SELF,	 /* the rank of the row alone */
	G_NEXT,	 /* point to point with stage + 1 of the same dp rank */
	G_PREV,	 /* ... with stage - 1 */
};

/* The first line decides whose word is in the type: at its end, or with a leading '*' anywhere. */
static const struct meaning {
	const char *word;
	uint8_t kind;
	uint8_t group;
	const char *coll;
} meanings[] = {
	{ "forward-send", PL_K_SEND, G_NEXT, "send" },
	{ "forward-recv", PL_K_RECV, G_PREV, "recv" },
	{ "backward-send", PL_K_SEND, G_PREV, "send" },
	{ "backward-recv", PL_K_RECV, G_NEXT, "recv" },
	{ "*clip-main-grad", PL_K_COLLECTIVE, G_ALL, "rendezvous" },
	{ "*embedding-grads-all-reduce", PL_K_COLLECTIVE, G_EMBED, "allreduce" },
	{ "*layernorm-grads-all-reduce", PL_K_COLLECTIVE, G_SELF, "allreduce" },
	{ "grads-reduce-scatter", PL_K_COLLECTIVE, G_DP, "reduce_scatter" },
	{ "params-all-gather", PL_K_COLLECTIVE, G_DP, "allgather" },
	{ "reduce-scatter", PL_K_COLLECTIVE, G_NONE, "reduce_scatter" },
	{ "all-gather", PL_K_COLLECTIVE, G_NONE, "allgather" },
	{ "all-reduce", PL_K_COLLECTIVE, G_NONE, "allreduce" },
	{ "all-to-all", PL_K_COLLECTIVE, G_NONE, "alltoall" },
	{ "broadcast", PL_K_COLLECTIVE, G_NONE, "broadcast" },
	{ "barrier", PL_K_COLLECTIVE, G_NONE, "barrier" },
	{ "send", PL_K_SEND, G_NONE, "send" },
	{ "recv", PL_K_RECV, G_NONE, "recv" },
	{ "compute", PL_K_KERNEL, G_NONE, NULL },
	{ "*optimizer", PL_K_KERNEL, G_NONE, NULL },
	{ "gc", PL_K_HOST_OP, G_NONE, NULL },
	{ "*data", PL_K_DATA, G_NONE, NULL },
};
static const struct meaning unknown_meaning = { "", PL_K_HOST_OP, G_NONE, NULL };

/* Underscores count as dashes: all_reduce is all-reduce. */
static const struct meaning *meaning_of(const char *s, size_t n)
{
	char text[128];

	if (n >= sizeof(text))
		return &unknown_meaning;
	for (size_t i = 0; i <= n; i++)
		text[i] = s[i] == '_' || s[i] == ' ' ? '-' : s[i];
	for (size_t i = 0; i < PL_LEN(meanings); i++) {
		const char *w = meanings[i].word;
		size_t k = strlen(w);

		if (*w == '*' ? strstr(text, w + 1) != NULL
			      : n >= k && !strcmp(text + n - k, w) &&
					(n == k || text[n - k - 1] == '-'))
			return &meanings[i];
	}
	return &unknown_meaning;
}

/* ---- reading ------------------------------------------------------------------------------- */

#define NO_VALUE INT64_MIN

struct row {
	int64_t step, dp, pp, tp, seq, chunk, mb, bytes, peer, of, channel; /* NO_VALUE */
	pl_ns start, dur;
	uint32_t order; /* in the file */
	int32_t rank;
	pl_id name, group, host;
	uint8_t meaning; /* index + 1, 0 unknown */
};

/* The numbers of a row, and the role of those that become values of its event. */
static const struct {
	uint8_t column, role;
	size_t offset;
} numbers[] = {
	{ C_STEP, PL_R_STEP, offsetof(struct row, step) },
	{ C_DP, PL_R_ARG, offsetof(struct row, dp) },
	{ C_PP, PL_R_ARG, offsetof(struct row, pp) },
	{ C_TP, PL_R_ARG, offsetof(struct row, tp) },
	{ C_SEQ, PL_R_SEQ, offsetof(struct row, seq) },
	{ C_CHUNK, PL_R_CHUNK, offsetof(struct row, chunk) },
	{ C_MB, PL_R_MB, offsetof(struct row, mb) },
	{ C_BYTES, PL_R_BYTES, offsetof(struct row, bytes) },
	{ C_PEER, PL_R_PEER, offsetof(struct row, peer) },
	{ C_OF, PL_R_OF, offsetof(struct row, of) },
	{ C_CHANNEL, PL_R_CHANNEL, offsetof(struct row, channel) },
};

struct extra { /* a cell of a column without a known meaning */
	uint32_t order;
	uint16_t col;
	uint8_t type, scale;
	int64_t v;
};

struct table {
	const struct pl_import_opts *o;
	struct pl_report report;
	struct pl_rows rows;
	char *col_name[C_COUNT]; /* names in the header */
	bool asked[C_COUNT];	 /* the user named the column: it must exist */
	int64_t unit_ns[C_COUNT];
	int at[C_COUNT]; /* field number, -1 absent */
	uint8_t *mapped; /* [field]: it has a meaning */
	pl_id *key;	 /* [field]: its name */
	size_t n_fields;
	bool header;
	struct row *row;
	size_t n, cap;
	struct extra *extra;
	size_t n_extra, cap_extra;
	uint32_t *first_extra;	 /* [place of the row in the file] */
	struct pl_intern places; /* dp, pp, tp */
	int32_t *at_place;	 /* [places]: the rank there, that of the first row */
	size_t n_places, cap_places;
	int64_t tp;		   /* of the first row that has one */
	bool several_tp;	   /* others have another one */
	int64_t stages;		   /* number of them */
	struct pl_intern families; /* "rank:name" of the tracks, in their order */
	uint32_t *n_tracks;	   /* [rank_key]: number of its tracks */
	struct pl_intern rank_key;
	size_t cap_tracks;
};

static int64_t unit_of(const char *s)
{
	static const int64_t ns[] = { 1, 1000, 1000000, 1000000000 };
	int unit = pl_words_find("ns|us|ms|s", s);

	return unit < 0 ? 0 : ns[unit];
}

static int set_column(struct table *t, const char *item, bool asked, struct pl_err *err)
{
	const char *eq = strchr(item, '='), *unit = strrchr(item, ':');
	size_t n = eq ? (size_t)(eq - item) : 0, c = 0;
	int64_t ns = 1000000000;
	char *name;

	while (c < C_COUNT &&
	       (strlen(column_names[c]) != n || memcmp(column_names[c], item, n) != 0))
		c++;
	if (!eq || c == C_COUNT)
		return pl_fail(
			err, PL_EUSAGE,
			"--columns: \"%s\" is not WHAT=HEADER[:UNIT] with WHAT one of rank, name, "
			"start, dur, end, step, dp, pp, tp, seq, chunk, mb, bytes, group, peer, "
			"host",
			item);
	if (unit && unit > eq && (ns = unit_of(unit + 1)) == 0)
		return pl_fail(err, PL_EUSAGE,
			       "--columns: \"%s\": the unit must be ns, us, ms or s", item);
	name = pl_strdup(eq + 1);
	if (!name)
		return pl_fail(err, PL_ENOMEM, "out of memory (columns)");
	if (unit && unit > eq)
		name[unit - eq - 1] = '\0';
	pl_free(t->col_name[c]);
	t->col_name[c] = name;
	t->unit_ns[c] = ns;
	t->asked[c] = asked;
	return 0;
}

static int set_columns(struct table *t, const char *spec, bool asked, struct pl_err *err)
{
	char *copy = pl_strdup(spec), *save = NULL;
	int rc = copy ? 0 : pl_fail(err, PL_ENOMEM, "out of memory (columns)");

	for (char *s = copy ? strtok_r(copy, ",", &save) : NULL; !rc && s;
	     s = strtok_r(NULL, ",", &save))
		rc = set_column(t, s, asked, err);
	pl_free(copy);
	return rc;
}

static int read_header(struct table *t, const struct pl_csv_row *r, struct pl_err *err)
{
	t->header = true;
	t->n_fields = r->n;
	PL_CHECK(pl_alloc(&t->mapped, r->n, 1, err));
	PL_CHECK(pl_alloc(&t->key, r->n, sizeof(*t->key), err));
	for (size_t c = 0; c < C_COUNT; c++)
		t->at[c] = -1;
	for (size_t i = 0; i < r->n; i++) {
		const char *s = r->field[i];

		t->key[i] = pl_import_rows_text(&t->rows, s, r->len[i]);
		for (size_t c = 0; c < C_COUNT; c++) {
			if (t->col_name[c] && t->at[c] < 0 && !strcmp(t->col_name[c], s)) {
				t->at[c] = (int)i;
				t->mapped[i] = 1;
			}
		}
	}
	for (int c = 0; c < C_COUNT; c++)
		if (t->at[c] < 0 && (t->asked[c] || (c >= C_NAME && c <= C_START)))
			return pl_fail(err, PL_EDATA,
				       "%s: line %lld: no column \"%s\" for the %s; map it with "
				       "--columns=%s=...",
				       t->report.file, (long long)r->line,
				       t->col_name[c] ? t->col_name[c] : "", column_names[c],
				       column_names[c]);
	if (t->at[C_DUR] < 0 && t->at[C_END] < 0)
		return pl_fail(err, PL_EDATA,
			       "%s: line %lld: no column \"%s\" for the duration; map it with "
			       "--columns=dur=... or end=...",
			       t->report.file, (long long)r->line, t->col_name[C_DUR]);
	return t->rows.rc;
}

static bool has_cell(const struct table *t, const struct pl_csv_row *r, unsigned c)
{
	return t->at[c] >= 0 && (size_t)t->at[c] < r->n;
}

/* An integer cell, NO_VALUE if absent or empty; "3.0" is 3. *bad: the cell holds something else. */
static int64_t cell_int(const struct table *t, const struct pl_csv_row *r, unsigned c, bool *bad)
{
	size_t n;
	const char *s, *dot;
	int64_t v;

	if (!has_cell(t, r, c) || !r->len[t->at[c]])
		return NO_VALUE;
	s = r->field[t->at[c]];
	n = r->len[t->at[c]];
	dot = memchr(s, '.', n);
	if (dot && strspn(dot + 1, "0") == n - (size_t)(dot - s) - 1)
		n = (size_t)(dot - s);
	if (pl_json_i64(s, n, &v))
		return v;
	*bad = true;
	return NO_VALUE;
}

static pl_ns cell_time(const struct table *t, const struct pl_csv_row *r, enum column c, bool *bad)
{
	pl_ns ns = 0;

	if (!has_cell(t, r, c) ||
	    !pl_json_time_ns(r->field[t->at[c]], r->len[t->at[c]], t->unit_ns[c], &ns))
		*bad = true;
	return ns;
}

static pl_id cell_str(struct table *t, const struct pl_csv_row *r, enum column c)
{
	if (!has_cell(t, r, c) || !r->len[t->at[c]])
		return PL_NONE;
	return pl_import_rows_text(&t->rows, r->field[t->at[c]], r->len[t->at[c]]);
}

/* Cells of unmapped columns are arguments: integers, exact decimals, else strings. */
static int add_extra(struct table *t, const struct pl_csv_row *r, struct pl_err *err)
{
	for (size_t i = 0; i < r->n && i < t->n_fields; i++) {
		struct extra x = { .order = (uint32_t)t->n, .col = (uint16_t)i };
		const char *s = r->field[i];
		int scale;

		if (t->mapped[i] || !r->len[i] || i > UINT16_MAX)
			continue;
		if (pl_json_i64(s, r->len[i], &x.v)) {
			x.type = PL_V_INT;
		} else if (pl_json_decimal(s, r->len[i], &x.v, &scale) && scale <= 18) {
			x.type = PL_V_DEC;
			x.scale = (uint8_t)scale;
		} else {
			x.type = PL_V_STR;
			x.v = pl_import_rows_text(&t->rows, s, r->len[i]);
		}
		PL_CHECK(pl_append(&t->extra, &t->n_extra, &t->cap_extra, &x, sizeof(x), err));
	}
	return 0;
}

static int note_place(struct table *t, const struct row *r, struct pl_err *err)
{
	const int64_t key[3] = { r->dp, r->pp, r->tp };
	pl_id id;

	t->tp = t->tp == NO_VALUE ? r->tp : t->tp;
	t->several_tp |= r->tp != NO_VALUE && r->tp != t->tp;
	if (r->pp == NO_VALUE || r->pp < 0 || r->pp >= 1 << 20)
		return 0;
	if (r->pp >= t->stages)
		t->stages = r->pp + 1;
	PL_CHECK(pl_intern_add(&t->places, (const char *)key, sizeof(key), &id, err));
	return id < t->n_places ? 0
				: pl_append(&t->at_place, &t->n_places, &t->cap_places, &r->rank,
					    sizeof(r->rank), err);
}

static int read_row(struct table *t, const struct pl_csv_row *r, struct pl_err *err)
{
	struct row x = { .order = (uint32_t)t->n };
	bool bad = false, odd = false;
	const struct meaning *m;
	int64_t rank;

	x.name = cell_str(t, r, C_NAME);
	PL_CHECK(t->rows.rc);
	x.start = cell_time(t, r, C_START, &bad);
	x.dur = t->at[C_DUR] >= 0 ? cell_time(t, r, C_DUR, &bad)
				  : pl_sub_sat(cell_time(t, r, C_END, &bad), x.start);
	rank = cell_int(t, r, C_RANK, &bad);
	for (size_t i = 0; i < PL_LEN(numbers); i++) {
		int64_t v = cell_int(t, r, numbers[i].column,
				     numbers[i].column == C_STEP ? &bad : &odd);

		memcpy((char *)&x + numbers[i].offset, &v, sizeof(v));
	}
	if (x.name == PL_NONE || bad || rank > INT32_MAX || (rank < 0 && rank != NO_VALUE))
		return pl_import_report(
			&t->report, PL_BAD, r->line,
			"a row without a usable name, rank, step, start or duration", err);
	x.rank = rank == NO_VALUE ? t->o->order : (int32_t)rank;
	if (odd)
		PL_CHECK(pl_import_report(&t->report, PL_BAD_VALUE, r->line,
					  "a cell that is not an integer", err));
	if (x.dur < 0) {
		PL_CHECK(pl_import_report(&t->report, PL_BAD_VALUE, r->line,
					  "a negative duration (0 stands for it)", err));
		x.dur = 0;
	}
	x.group = cell_str(t, r, C_GROUP);
	x.host = cell_str(t, r, C_HOST);
	m = meaning_of(pl_intern_get(&t->rows.seg.str, x.name), t->rows.seg.str.len[x.name]);
	x.meaning = m == &unknown_meaning ? 0 : (uint8_t)(m - meanings + 1);
	if (t->n >= UINT32_MAX)
		return pl_fail(err, PL_ELIMIT, "%s: line %lld: more than 2^32 rows", t->report.file,
			       (long long)r->line);
	PL_CHECK(add_extra(t, r, err));
	PL_CHECK(note_place(t, &x, err));
	PL_CHECK(pl_append(&t->row, &t->n, &t->cap, &x, sizeof(x), err));
	return t->rows.rc;
}

static int on_row(void *arg, const struct pl_csv_row *r, struct pl_err *err)
{
	struct table *t = arg;

	return t->header ? read_row(t, r, err) : read_header(t, r, err);
}

/* ---- steps --------------------------------------------------------------------------------- */

PL_COMPARATOR(by_step_rank_start, struct row, step, rank, start, order);

/* The first start and last end of the step that begins at row i. Returns the row after it. */
static size_t extent(const struct table *t, size_t i, pl_ns *first, pl_ns *last)
{
	int64_t step = t->row[i].step;

	*first = INT64_MAX;
	*last = INT64_MIN;
	for (; i < t->n && t->row[i].step == step; i++) {
		*first = pl_min_i64(*first, t->row[i].start);
		*last = pl_max_i64(*last, pl_add_sat(t->row[i].start, t->row[i].dur));
	}
	return i;
}

/* Do start times begin again in every step? Then steps begin before the middle of the last one. */
static bool restarts(const struct table *t)
{
	pl_ns first, last, before = 0;
	size_t steps = 0, back = 0;

	for (size_t i = 0; i < t->n; steps++) {
		i = extent(t, i, &first, &last);
		back += steps && first < before;
		before = first / 2 + last / 2;
	}
	return back * 2 > steps - 1 && steps > 1;
}

/* ---- rows out ------------------------------------------------------------------------------ */

static int32_t rank_at(const struct table *t, int64_t dp, int64_t pp, int64_t tp)
{
	const int64_t key[3] = { dp, pp, tp };
	pl_id id = pl_intern_find(&t->places, (const char *)key, sizeof(key));

	return id == PL_NONE ? -1 : t->at_place[id];
}

/* The track of a row: one for all computation of a rank, one for each type of communication. */
static int track_of(struct table *t, const struct row *r, const char *family, uint8_t type,
		    pl_id *id, struct pl_err *err)
{
	struct pl_track track;
	char text[96];
	pl_id rank;
	uint32_t nth;
	int n = snprintf(text, sizeof(text), "%d:%s", (int)r->rank, family);

	PL_CHECK(pl_intern_add(&t->families, text, (size_t)n, id, err));
	if (*id < t->rows.seg.n_tracks)
		return 0;
	PL_CHECK(pl_grow(&t->n_tracks, &t->cap_tracks, t->rank_key.n + 1, sizeof(*t->n_tracks),
			 err));
	t->n_tracks[t->rank_key.n] = 0;
	PL_CHECK(pl_intern_add(&t->rank_key, (const char *)&r->rank, sizeof(r->rank), &rank, err));
	nth = t->n_tracks[rank]++;
	pl_trace_track_init(&track);
	track.type = type;
	track.rank = r->rank;
	track.stream = type == PL_T_STREAM ? (int64_t)nth : -1;
	track.sort = (int32_t)nth;
	track.psort = r->rank;
	track.coord[PL_COORD_DP] = r->dp == NO_VALUE ? -1 : (int32_t)r->dp;
	track.coord[PL_COORD_PP] = r->pp == NO_VALUE ? -1 : (int32_t)r->pp;
	track.coord[PL_COORD_TP] = r->tp == NO_VALUE ? -1 : (int32_t)r->tp;
	track.host = r->host;
	track.pid = pl_import_rows_format(&t->rows, "%d", (int)r->rank);
	track.tid = pl_import_rows_format(&t->rows, "%u", nth);
	track.process = pl_import_rows_format(&t->rows, "rank %d", (int)r->rank);
	track.name = pl_import_rows_format(&t->rows, "%s", family);
	return pl_trace_segment_track(&t->rows.seg, &track, id, err);
}

static pl_id key_of(const struct table *t, unsigned c)
{
	return t->at[c] < 0 ? PL_NONE : t->key[t->at[c]];
}

static void put_int(struct table *t, uint8_t role, unsigned c, int64_t v)
{
	if (v != NO_VALUE)
		pl_import_rows_put(&t->rows, role, PL_V_INT, key_of(t, c), v);
}

/* Where ranks of several tensor-parallel ranks communicate, each of these has a group of its own.
 */
static pl_id place_group(struct table *t, const char *what, int64_t place, int64_t tp)
{
	if (!t->several_tp || tp == NO_VALUE)
		return pl_import_rows_format(&t->rows, "%s%lld", what, (long long)place);
	return pl_import_rows_format(&t->rows, "%s%lld.t%lld", what, (long long)place,
				     (long long)tp);
}

/* Group and peer, if no column of the table names them and the type of the operation decides. */
static void put_group(struct table *t, const struct row *r, const struct meaning *m)
{
	int64_t stages = t->stages, to;
	struct pl_rows *rows = &t->rows;
	pl_id group = r->group;
	int32_t peer;

	if (group != PL_NONE) {
		pl_import_rows_put(rows, PL_R_GROUP, PL_V_STR, key_of(t, C_GROUP), group);
		return;
	}
	if (m->group == G_DP && r->pp != NO_VALUE)
		group = place_group(t, "dp.s", r->pp, r->tp);
	else if (m->group == G_EMBED && r->dp != NO_VALUE)
		group = place_group(t, "emb.d", r->dp, r->tp);
	else if (m->group == G_ALL)
		group = pl_import_rows_format(rows, "all");
	else if (m->group == G_SELF)
		group = pl_import_rows_format(rows, "self.r%d", (int)r->rank);
	if (group != PL_NONE)
		pl_import_rows_put(rows, PL_R_GROUP, PL_V_STR, PL_NONE, group);
	if ((m->group != G_NEXT && m->group != G_PREV) || r->pp == NO_VALUE || stages < 2 ||
	    r->peer != NO_VALUE)
		return;
	/* after the last stage comes the first one, with the next chunk of the model */
	to = (r->pp + (m->group == G_NEXT ? 1 : stages - 1)) % stages;
	peer = rank_at(t, r->dp, to, r->tp);
	if (peer >= 0)
		pl_import_rows_put(rows, PL_R_PEER, PL_V_INT, PL_NONE, peer);
}

static void put_extras(struct table *t, const struct row *r)
{
	for (uint32_t i = t->first_extra[r->order]; i < t->first_extra[r->order + 1]; i++) {
		const struct extra *x = &t->extra[i];

		pl_import_rows_put_dec(&t->rows, PL_R_ARG, x->type, t->key[x->col], x->v, x->scale);
	}
}

static int put_row(struct table *t, const struct row *r, struct pl_err *err)
{
	const struct meaning *m = r->meaning ? &meanings[r->meaning - 1] : &unknown_meaning;
	const char *name = pl_intern_get(&t->rows.seg.str, r->name);
	char family[64];
	pl_id track;
	int64_t v;

	snprintf(family, sizeof(family), "%s", pl_trace_kind_is_comm(m->kind) ? name : "compute");
	PL_CHECK(track_of(t, r, family, PL_T_STREAM, &track, err));
	for (size_t i = 0; i < PL_LEN(numbers); i++) {
		memcpy(&v, (const char *)r + numbers[i].offset, sizeof(v));
		if (numbers[i].role != PL_R_ARG)
			put_int(t, numbers[i].role, numbers[i].column, v);
	}
	if (m->coll)
		pl_import_rows_put(&t->rows, PL_R_COLL, PL_V_STR, PL_NONE,
				   pl_import_rows_text(&t->rows, m->coll, strlen(m->coll)));
	put_group(t, r, m);
	put_extras(t, r);
	return pl_import_rows_event(&t->rows, m->kind, track, r->name, r->start, r->dur, err);
}

/* The step of a rank: from the common origin of the step to the end of its last operation. */
static int put_step(struct table *t, const struct row *r, pl_ns origin, pl_ns last,
		    struct pl_err *err)
{
	struct pl_rows *rows = &t->rows;
	pl_id track, name;

	PL_CHECK(track_of(t, r, "steps", PL_T_OTHER, &track, err));
	name = pl_import_rows_format(rows, "step %lld", (long long)r->step);
	put_int(t, PL_R_STEP, C_STEP, r->step);
	pl_import_rows_put(rows, PL_R_ARG, PL_V_BOOL, pl_import_rows_text(rows, "inferred", 8), 1);
	return pl_import_rows_event(rows, PL_K_STEP, track, name, origin, pl_sub_sat(last, origin),
				    err);
}

/* The rows of one rank in one step. */
static int put_part(struct table *t, size_t i, size_t end, pl_ns origin, struct pl_err *err)
{
	pl_ns last = origin;

	for (size_t k = i; k < end; k++)
		last = pl_max_i64(last, pl_add_sat(t->row[k].start, t->row[k].dur));
	if (t->row[i].step != NO_VALUE)
		PL_CHECK(put_step(t, &t->row[i], origin, last, err));
	for (size_t k = i; k < end; k++)
		PL_CHECK(put_row(t, &t->row[k], err));
	return 0;
}

static int put_all(struct table *t, struct pl_err *err)
{
	pl_ns origin = 0, first, last;
	bool moved;

	pl_sort(t->row, t->n, sizeof(*t->row), by_step_rank_start);
	PL_CHECK(pl_alloc(&t->first_extra, t->n + 1, sizeof(*t->first_extra), err));
	for (size_t i = 0, k = 0; i <= t->n; i++) {
		t->first_extra[i] = (uint32_t)k;
		while (k < t->n_extra && t->extra[k].order == i)
			k++;
	}
	moved = restarts(t);
	for (size_t i = 0, next; i < t->n; i = next) {
		next = extent(t, i, &first, &last);
		if (moved) { /* the step begins at the end of the previous one */
			first = pl_min_i64(first, 0);
			for (size_t k = i; k < next; k++)
				t->row[k].start =
					pl_add_sat(pl_sub_sat(t->row[k].start, first), origin);
			last = pl_add_sat(origin, pl_sub_sat(last, first));
		} else {
			origin = first;
		}
		for (size_t k = i, part; k < next; k = part) {
			for (part = k; part < next && t->row[part].rank == t->row[k].rank;)
				part++;
			PL_CHECK(put_part(t, k, part, origin, err));
		}
		origin = last;
	}
	return 0;
}

/* ---- the importer -------------------------------------------------------------------------- */

static void table_free(struct table *t)
{
	pl_import_rows_fini(&t->rows);
	for (size_t c = 0; c < C_COUNT; c++)
		pl_free(t->col_name[c]);
	pl_free(t->mapped);
	pl_free(t->key);
	pl_free(t->row);
	pl_free(t->extra);
	pl_free(t->first_extra);
	pl_intern_fini(&t->places);
	pl_free(t->at_place);
	pl_free(t->n_tracks);
	pl_intern_fini(&t->families);
	pl_intern_fini(&t->rank_key);
}

static int run(struct pl_in *in, const struct pl_import_opts *o, struct pl_sink *sink,
	       struct pl_import_stats *st, struct pl_err *err)
{
	struct table t = { .o = o, .tp = NO_VALUE };
	int rc;

	pl_import_rows_init(&t.rows, &t.report, in, o, sink, st, "optable", &t);
	t.report.unit = "line";
	t.rows.whole = true;
	PL_TRY(set_columns(&t, default_columns, false, err));
	if (o->columns)
		PL_TRY(set_columns(&t, o->columns, true, err));
	PL_TRY(pl_import_rows_open(&t.rows, err));
	rc = pl_csv_read(in, on_row, &t, err);
	if (rc == PL_EDATA && !o->strict && t.n) {
		/* a cut gzip: keep the rows before the cut */
		pl_say(o->log, PL_LOG_WARN, "%s; what could be read is kept", err->msg);
		snprintf(st->first, sizeof(st->first), "%.255s", err->msg);
		st->truncated = true;
		err->code = 0;
		rc = 0;
	}
	PL_TRY(rc);
	if (!t.header) {
		rc = pl_fail(err, PL_EDATA,
			     "%s: line 1: no header line; the first line must name the columns",
			     t.report.file);
		goto out;
	}
	PL_TRY(put_all(&t, err));
	rc = pl_import_rows_close(&t.rows, err);
out:
	table_free(&t);
	return rc;
}

/* Is the first line a header with the columns of an operation table? */
static int probe(const uint8_t *p, size_t n)
{
	static const char *const names[] = { "rank", "step", "start_ts", "duration", "optype" };
	const uint8_t *nl = memchr(p, '\n', n);
	size_t len = nl ? (size_t)(nl - p) : n;
	int found = 0;

	for (size_t i = 0; i < len; i++)
		if (p[i] < ' ' && p[i] != '\r' && p[i] != '\t')
			return 0;
	if (!memchr(p, ',', len) || *p == '{' || *p == '[')
		return 0;
	for (size_t i = 0; i < PL_LEN(names); i++)
		found += pl_import_has(p, len, names[i]);
	return found == (int)PL_LEN(names) ? 80 : found >= 2 ? 20 : 0;
}

const struct pl_importer pl_import_optable = {
	.name = "optable",
	.summary = "operation table in CSV, one row an operation (see --columns)",
	.probe = probe,
	.run = run,
};
