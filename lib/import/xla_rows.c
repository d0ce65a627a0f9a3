/*
 * The rows of an XLA profile. The first time it is found what is kept of them: the events of hosts,
 * but those that their names explain; of devices only the executions and the times of operations.
 * The second time the rows become what xla.c found.
 *
 * Columns are read one after the other into arrays by row, because a row has few of them.
 */
#include <errno.h>
#include <stdlib.h>

#include "import/xla_internal.h"

enum { ADDED = 9 }; /* columns */

struct pl_xla_facts {
	bool has[PL_XS_COUNT_ + 1]; /* the batch has this; [PL_XS_COUNT_]: categories */
	int64_t step[PL_BATCH_ROWS], run[PL_BATCH_ROWS], corr[PL_BATCH_ROWS], flops[PL_BATCH_ROWS],
		moved[PL_BATCH_ROWS], bytes[PL_BATCH_ROWS], program[PL_BATCH_ROWS];
	pl_id op[PL_BATCH_ROWS], module[PL_BATCH_ROWS], text[PL_BATCH_ROWS];
	int32_t device[PL_BATCH_ROWS]; /* -1 none */
	uint8_t cat[PL_BATCH_ROWS];
	struct pl_col added[ADDED];
	uint32_t row[ADDED][PL_BATCH_ROWS];
	int64_t val[ADDED][PL_BATCH_ROWS];
	struct {
		const char *coll; /* static */
		pl_id id;
	} coll[16];
};

/* ---- columns ------------------------------------------------------------------------------- */

static int64_t number(const struct pl_xla *x, const struct pl_col *c, uint32_t k)
{
	int64_t v;

	if (c->type == PL_V_INT || c->type == PL_V_BOOL)
		return c->val[k];
	if (c->type == PL_V_STR &&
	    pl_json_i64(text(x, (pl_id)c->val[k]), x->seg->str.len[c->val[k]], &v))
		return v;
	return INT64_MIN;
}

/* The number of a program has 64 bits and no sign; XPlane's reader keeps a great one as text. */
static int64_t program_of(const struct pl_xla *x, const struct pl_col *c, uint32_t k)
{
	int64_t v = number(x, c, k);
	const char *s;
	char *end;

	if (v != INT64_MIN || c->type != PL_V_STR)
		return v;
	s = text(x, (pl_id)c->val[k]);
	if (*s < '0' || *s > '9')
		return INT64_MIN;
	errno = 0;
	v = (int64_t)strtoull(s, &end, 10);
	return errno || *end ? INT64_MIN : v;
}

/* "kind_src:pageable kind_dst:device size:4096 ...", "num_bytes:4096 addr..." */
static int64_t size_in(const char *details)
{
	static const char *const keys[] = { "size:", "num_bytes:" };

	for (size_t i = 0; i < PL_LEN(keys); i++) {
		const char *s = strstr(details, keys[i]);

		if (s && s[strlen(keys[i])] >= '0' && s[strlen(keys[i])] <= '9') {
			s += strlen(keys[i]);
			return pl_take_digits(&s);
		}
	}
	return INT64_MIN;
}

static int64_t *numbers(struct pl_xla_facts *f, unsigned stat)
{
	int64_t *const to[PL_XS_COUNT_] = {
		[PL_XS_STEP] = f->step,	      [PL_XS_RUN] = f->run,	  [PL_XS_CORR] = f->corr,
		[PL_XS_FLOPS] = f->flops,     [PL_XS_MOVED] = f->moved,	  [PL_XS_BYTES] = f->bytes,
		[PL_XS_PROGRAM] = f->program, [PL_XS_DETAILS] = f->bytes,
	};

	return to[stat];
}

static pl_id *words(struct pl_xla_facts *f, unsigned stat)
{
	return stat == PL_XS_OP	      ? f->op
	       : stat == PL_XS_MODULE ? f->module
	       : stat == PL_XS_NAME   ? f->text
				      : NULL;
}

/* The first column of a statistic in a batch of n rows. */
static void clear(struct pl_xla_facts *f, unsigned stat, uint32_t n)
{
	int64_t *v = numbers(f, stat);
	pl_id *w = words(f, stat);

	if (f->has[stat])
		return;
	f->has[stat] = true;
	if (stat == PL_XS_BYTES || stat == PL_XS_DETAILS) /* these have one array */
		f->has[PL_XS_BYTES] = f->has[PL_XS_DETAILS] = true;
	for (uint32_t i = 0; v && i < n; i++)
		v[i] = INT64_MIN;
	for (uint32_t i = 0; w && i < n; i++)
		w[i] = PL_NONE;
	for (uint32_t i = 0; stat == PL_XS_DEVICE && i < n; i++)
		f->device[i] = -1;
}

static void read_column(struct pl_xla *x, const struct pl_batch *b, const struct pl_col *c,
			unsigned stat)
{
	struct pl_xla_facts *f = x->facts;
	int64_t *v = numbers(f, stat);
	pl_id *w = words(f, stat);

	clear(f, stat, b->n);
	for (uint32_t k = 0; k < c->n; k++) {
		pl_id id = c->type == PL_V_STR ? (pl_id)c->val[k] : PL_NONE;

		if (stat == PL_XS_DETAILS) {
			v[c->row[k]] = size_in(text(x, id));
		} else if (stat == PL_XS_DEVICE) {
			int64_t d = number(x, c, k);

			if (d >= 0 && d < PL_XLA_NUMBERS)
				f->device[c->row[k]] = (int32_t)d;
		} else if (v) {
			v[c->row[k]] =
				stat == PL_XS_PROGRAM ? program_of(x, c, k) : number(x, c, k);
		} else {
			w[c->row[k]] = id;
		}
	}
}

/* Of several columns of one statistic the last one counts. */
static int read_columns(struct pl_xla *x, const struct pl_batch *b, struct pl_err *err)
{
	struct pl_xla_facts *f;

	if (!x->facts)
		PL_CHECK(pl_alloc(&x->facts, 1, sizeof(*x->facts), err));
	f = x->facts;
	memset(f->has, 0, sizeof(f->has));
	for (uint32_t i = 0; i < b->n_cols; i++) {
		const struct pl_col *c = &b->col[i];
		const char *key = c->key == PL_NONE ? "" : text(x, c->key);
		unsigned stat = c->n ? pl_import_xla_stat(key, strlen(key)) : PL_XS_OTHER;

		if (c->n && c->role == PL_R_CAT) {
			if (!f->has[PL_XS_COUNT_])
				memset(f->cat, 0, b->n);
			f->has[PL_XS_COUNT_] = true;
			for (uint32_t k = 0; k < c->n; k++)
				f->cat[c->row[k]] = 1;
		} else if (stat != PL_XS_OTHER && stat != PL_XS_GLOBAL) {
			read_column(x, b, c, stat);
		}
	}
	return 0;
}

/* ---- what is kept -------------------------------------------------------------------------- */

enum what { FOREIGN, NAMED, KEPT, PLAIN };

/* Most events of a host need no more than their names. */
static bool said_by_name(struct pl_xla *x, pl_id name, uint8_t *kind)
{
	switch (pl_import_xla_class_of(x, name)) {
	case PL_XC_PYTHON:
		*kind = PL_K_PYTHON;
		return true;
	case PL_XC_WAIT:
		*kind = PL_K_WAIT;
		return true;
	case PL_XC_NOTE:
		*kind = PL_K_OTHER;
		return true;
	default:
		return false;
	}
}

/* What is known of a row: FOREIGN are those that the reader itself could explain, or of no host or
 * device; NAMED have *kind. */
static enum what look(struct pl_xla *x, const struct pl_batch *b, uint32_t r, uint8_t *kind)
{
	const struct pl_xla_facts *f = x->facts;
	const struct place *p = &x->place[b->track[r]];

	if (b->kind[r] != PL_K_HOST_OP || b->dur[r] < 0 || (f->has[PL_XS_COUNT_] && f->cat[r]) ||
	    p->plane == PL_XP_OTHER)
		return FOREIGN;
	if (p->plane == PL_XP_HOST)
		return said_by_name(x, b->name[r], kind) ? NAMED : KEPT;
	return p->line == PL_XL_STEPS || (f->has[PL_XS_STEP] && f->step[r] != INT64_MIN) ? KEPT
											 : PLAIN;
}

static int64_t fact(const struct pl_xla_facts *f, unsigned stat, const int64_t *v, uint32_t r)
{
	return f->has[stat] ? v[r] : INT64_MIN;
}

static pl_id word(const struct pl_xla_facts *f, unsigned stat, const pl_id *v, uint32_t r)
{
	return f->has[stat] ? v[r] : PL_NONE;
}

static int32_t device_of(const struct pl_xla *x, const struct place *p, uint32_t r)
{
	const struct pl_xla_facts *f = x->facts;

	if (f->has[PL_XS_DEVICE] && f->device[r] >= 0)
		return f->device[r];
	return p->plane == PL_XP_DEVICE ? p->device : -1;
}

static struct event event_of(const struct pl_xla *x, const struct pl_batch *b, uint32_t r)
{
	const struct pl_xla_facts *f = x->facts;
	const struct place *p = &x->place[b->track[r]];

	return (struct event){ .at = x->row + r,
			       .ts = b->ts[r],
			       .end = pl_add_sat(b->ts[r], b->dur[r]),
			       .name = b->name[r],
			       .track = b->track[r],
			       .line = p->line,
			       .kind = b->kind[r],
			       .device = device_of(x, p, r),
			       .run = fact(f, PL_XS_RUN, f->run, r),
			       .step = fact(f, PL_XS_STEP, f->step, r),
			       .corr = fact(f, PL_XS_CORR, f->corr, r),
			       .bytes = fact(f, PL_XS_BYTES, f->bytes, r),
			       .program = fact(f, PL_XS_PROGRAM, f->program, r),
			       .seq = PL_NONE,
			       .name_op = word(f, PL_XS_OP, f->op, r),
			       .module = word(f, PL_XS_MODULE, f->module, r),
			       .text = word(f, PL_XS_NAME, f->text, r),
			       .group = PL_NONE };
}

static bool is_op_line(const struct place *p)
{
	return p->line == PL_XL_STREAM || p->line == PL_XL_OPS || p->line == PL_XL_ASYNC;
}

static int keep(struct pl_xla *x, const struct pl_batch *b, uint32_t r, struct pl_err *err)
{
	const struct place *p = &x->place[b->track[r]];
	struct event e = event_of(x, b, r);

	e.class = p->plane == PL_XP_HOST ? pl_import_xla_class_of(x, e.name) : PL_XC_NEW;
	PL_CHECK(pl_spill_grow(&x->events, (x->n + 1) * sizeof(e), err));
	x->v = x->events.p;
	*event_at(x, x->n++) = e;
	return 0;
}

PL_COMPARATOR(by_track_start, struct span, track, start);

/* The outer one first; then in the order of the source. */
static int by_span(const void *pa, const void *pb)
{
	const struct span *a = pa, *b = pb;
	int order = by_track_start(a, b);

	order = order ? order : PL_COMPARE(b->end, a->end);
	return order ? order : PL_COMPARE(a->at, b->at);
}

static int keep_span(struct pl_xla *x, const struct pl_batch *b, uint32_t r, struct pl_err *err)
{
	const struct span fresh = { b->ts[r], pl_add_sat(b->ts[r], b->dur[r]), b->track[r],
				    x->row + r };
	struct span *s;

	PL_CHECK(pl_spill_grow(&x->spans, (x->n_spans + 1) * sizeof(*s), err));
	if (PL_UNLIKELY(!(x->n_spans & 0xffff)))
		pl_spill_rest(&x->spans);
	s = x->spans.p;
	x->spans_mixed = x->spans_mixed || (x->n_spans && by_span(&s[x->n_spans - 1], &fresh) > 0);
	s[x->n_spans++] = fresh;
	return 0;
}

/* An operation of a device: its device and its execution. Those of one execution mostly follow one
 * another. */
static int keep_operation(struct pl_xla *x, const struct pl_batch *b, uint32_t r,
			  struct pl_err *err)
{
	const struct place *p = &x->place[b->track[r]];
	int64_t run = fact(x->facts, PL_XS_RUN, x->facts->run, r);
	int32_t number = device_of(x, p, r);
	pl_ns end = pl_add_sat(b->ts[r], b->dur[r]);
	struct run *last = x->n_runs ? &x->run[x->n_runs - 1] : NULL;
	struct device *d;

	PL_CHECK(pl_import_xla_note_device(x, number, &d, err));
	d->streams |= p->line == PL_XL_STREAM;
	if (run == INT64_MIN)
		return 0;
	if (!last || last->device != number || last->number != run)
		return pl_append(&x->run, &x->n_runs, &x->cap_runs,
				 &(struct run){ number, run, b->ts[r], end, 0, 0 }, sizeof(*x->run),
				 err);
	last->start = pl_min_i64(last->start, b->ts[r]);
	last->end = pl_max_i64(last->end, end);
	return 0;
}

/* Calls may say the number of their device in the job; the last one counts. */
static int keep_global(struct pl_xla *x, int32_t device, int64_t number, struct pl_err *err)
{
	const struct global g = { device, (int32_t)number };
	size_t i = 0;

	if (number < 0 || number >= PL_XLA_NUMBERS)
		return 0;
	while (i < x->n_globals && x->global[i].device != device)
		i++;
	if (i < x->n_globals)
		x->global[i] = g;
	else if (i < PL_XLA_DEVICES)
		return pl_append(&x->global, &x->n_globals, &x->cap_globals, &g, sizeof(g), err);
	return 0;
}

static int keep_globals(struct pl_xla *x, const struct pl_batch *b, struct pl_err *err)
{
	for (uint32_t i = 0; i < b->n_cols; i++) {
		const struct pl_col *c = &b->col[i];
		const char *key = c->key == PL_NONE ? "" : text(x, c->key);

		if (!c->n || pl_import_xla_stat(key, strlen(key)) != PL_XS_GLOBAL)
			continue;
		for (uint32_t k = 0; k < c->n; k++) {
			const char *name = text(x, b->name[c->row[k]]);

			if (*name == '[')
				PL_CHECK(keep_global(x, pl_import_xla_launches_for(name),
						     number(x, c, k), err));
		}
	}
	return 0;
}

int pl_import_xla_complete(struct pl_xla *x, struct pl_err *err)
{
	size_t n = x->seg->str.n + 1, old = x->n_strings;

	if (n > old) {
		size_t cap = old, cap_word = old;

		PL_CHECK(pl_grow(&x->class, &cap, n, 1, err));
		PL_CHECK(pl_grow(&x->word, &cap_word, n, sizeof(*x->word), err));
		x->n_strings = pl_min_size(cap, cap_word);
		memset(x->class + old, 0, x->n_strings - old);
		memset(x->word + old, 0, (x->n_strings - old) * sizeof(*x->word));
	}
	PL_CHECK(pl_grow(&x->place, &x->cap_places, (size_t)x->seg->n_tracks + 1, sizeof(*x->place),
			 err));
	for (; x->n_places < x->seg->n_tracks; x->n_places++) {
		const struct pl_track *t = &x->seg->track[x->n_places];
		struct place *p = &x->place[x->n_places];

		p->plane = pl_import_xla_plane(text(x, t->process), &p->device);
		p->line = pl_import_xla_line(text(x, t->name), &p->stream);
	}
	return 0;
}

int pl_import_xla_learn(struct pl_xla *x, struct pl_segment *seg, const struct pl_batch *b,
			struct pl_err *err)
{
	const struct pl_xla_facts *f;
	uint8_t kind;

	x->seg = seg;
	if (b->n > UINT32_MAX - x->row)
		return pl_fail(err, PL_ELIMIT, "more than %u events of one profile", UINT32_MAX);
	PL_CHECK(pl_import_xla_complete(x, err));
	PL_CHECK(read_columns(x, b, err));
	f = x->facts;
	for (uint32_t r = 0; r < b->n; r++) {
		enum what what = look(x, b, r, &kind);
		const struct place *p = &x->place[b->track[r]];

		if (what == FOREIGN || what == NAMED)
			continue;
		x->corr = pl_max_i64(x->corr, fact(f, PL_XS_CORR, f->corr, r));
		if (what == KEPT)
			PL_CHECK(keep(x, b, r, err));
		if (p->plane != PL_XP_DEVICE || !is_op_line(p))
			continue;
		PL_CHECK(keep_span(x, b, r, err));
		if (what == PLAIN)
			PL_CHECK(keep_operation(x, b, r, err));
	}
	PL_CHECK(keep_globals(x, b, err));
	x->row += b->n;
	return 0;
}

/* ---- operations that contain others -------------------------------------------------------- */

#define DEPTH 256

int pl_import_xla_outer(struct pl_xla *x, struct pl_err *err)
{
	struct span *v = x->spans.p, stack[DEPTH];
	int depth = 0;

	PL_CHECK(pl_alloc(&x->outer, (size_t)x->row / 8 + 1, 1, err));
	if (x->spans_mixed)
		pl_sort(v, x->n_spans, sizeof(*v), by_span);
	for (size_t i = 0; i < x->n_spans; i++) {
		if (!(i & 0xffff))
			pl_spill_rest(&x->spans);
		while (depth &&
		       (stack[depth - 1].track != v[i].track || stack[depth - 1].end <= v[i].start))
			depth--;
		if (depth) /* those further out are known since the top came */
			x->outer[stack[depth - 1].at / 8] |=
				(uint8_t)(1u << stack[depth - 1].at % 8);
		if (depth < DEPTH)
			stack[depth++] = v[i];
	}
	pl_spill_fini(&x->spans);
	return 0;
}

/* ---- what rows become ---------------------------------------------------------------------- */

static const struct {
	uint8_t role, type;
} added[ADDED] = { { PL_R_STEP, PL_V_INT },  { PL_R_CORR, PL_V_INT },  { PL_R_BYTES, PL_V_INT },
		   { PL_R_FLOPS, PL_V_INT }, { PL_R_MOVED, PL_V_INT }, { PL_R_SEQ, PL_V_INT },
		   { PL_R_GROUP, PL_V_STR }, { PL_R_RANKS, PL_V_STR }, { PL_R_COLL, PL_V_STR } };
enum { A_STEP, A_CORR, A_BYTES, A_FLOPS, A_MOVED, A_SEQ, A_GROUP, A_RANKS, A_COLL };

static void put(struct pl_xla_facts *f, unsigned a, uint32_t r, int64_t v)
{
	struct pl_col *c = &f->added[a];

	if (v == INT64_MIN)
		return;
	c->row[c->n] = r;
	c->val[c->n++] = v;
}

static int put_coll(struct pl_xla *x, uint32_t r, const char *coll, struct pl_err *err)
{
	struct pl_xla_facts *f = x->facts;
	size_t slot = (uintptr_t)coll / 8 % PL_LEN(f->coll);

	if (f->coll[slot].coll != coll) {
		PL_CHECK(pl_intern_add(&x->seg->str, coll, strlen(coll), &f->coll[slot].id, err));
		f->coll[slot].coll = coll;
	}
	put(f, A_COLL, r, f->coll[slot].id);
	return 0;
}

static int put_values(struct pl_xla *x, uint32_t r, const struct event *e, struct pl_err *err)
{
	struct pl_xla_facts *f = x->facts;

	if (e->kind == PL_K_STEP)
		put(f, A_STEP, r, e->step);
	if (!e->join)
		put(f, A_CORR, r, e->corr);
	if (e->kind == PL_K_KERNEL) {
		put(f, A_FLOPS, r, fact(f, PL_XS_FLOPS, f->flops, r));
		put(f, A_MOVED, r, fact(f, PL_XS_MOVED, f->moved, r));
	} else {
		put(f, A_BYTES, r, e->bytes);
	}
	if (e->kind == PL_K_COLLECTIVE && e->group != PL_NONE) {
		put(f, A_GROUP, r, e->group);
		put(f, A_RANKS, r, e->group);
	}
	if (!pl_trace_kind_is_comm(e->kind))
		return 0;
	if (e->seq != PL_NONE)
		put(f, A_SEQ, r, e->seq);
	return e->coll ? put_coll(x, r, e->coll, err) : 0;
}

/* A row of a device; `kept`: what was kept of it, or NULL. */
static int give_device(struct pl_xla *x, const struct pl_batch *b, uint32_t r,
		       const struct event *kept, struct pl_err *err)
{
	struct event e = event_of(x, b, r);

	e.op = is_op_line(&x->place[e.track]);
	e.outer = e.op && is_outer(x, e.at);
	e.device = pl_import_xla_device_number(x, e.device, e.op);
	pl_import_xla_settle(x, &e);
	if (kept) {
		e.step = kept->step;
		e.kind = kept->kind == PL_K_STEP ? PL_K_STEP : e.kind;
	}
	b->kind[r] = e.kind;
	b->track[r] = e.track;
	return put_values(x, r, &e, err);
}

static int give_rows(struct pl_xla *x, const struct pl_batch *b, struct pl_err *err)
{
	uint8_t kind = 0;

	for (uint32_t r = 0; r < b->n; r++) {
		const struct event *e;

		switch (look(x, b, r, &kind)) {
		case FOREIGN:
			break;
		case NAMED:
			b->kind[r] = kind;
			break;
		case PLAIN:
			PL_CHECK(give_device(x, b, r, NULL, err));
			break;
		case KEPT:
			if (x->next == x->n || x->v[x->next].at != x->row + r)
				return pl_fail(err, PL_EINTERNAL,
					       "an XLA profile reads differently twice");
			e = event_at(x, x->next++);
			if (x->place[b->track[r]].plane == PL_XP_DEVICE) {
				PL_CHECK(give_device(x, b, r, e, err));
				break;
			}
			b->kind[r] = e->kind;
			b->track[r] = e->track;
			PL_CHECK(put_values(x, r, e, err));
			break;
		}
	}
	return 0;
}

int pl_import_xla_give(struct pl_xla *x, const struct pl_batch *b, struct pl_err *err)
{
	struct pl_batch out = *b;
	struct pl_xla_facts *f;

	PL_CHECK(read_columns(x, b, err));
	f = x->facts;
	for (unsigned a = 0; a < ADDED; a++)
		f->added[a] = (struct pl_col){ .role = added[a].role,
					       .type = added[a].type,
					       .key = PL_NONE,
					       .row = f->row[a],
					       .val = f->val[a],
					       .cap = PL_BATCH_ROWS };
	PL_CHECK(give_rows(x, b, err));
	x->row += b->n;
	PL_CHECK(pl_grow(&x->cols, &x->cap_cols, (size_t)b->n_cols + ADDED, sizeof(*x->cols), err));
	out.col = x->cols;
	out.n_cols = 0;
	for (uint32_t i = 0; i < b->n_cols; i++)
		if (b->col[i].n)
			out.col[out.n_cols++] = b->col[i];
	for (unsigned a = 0; a < ADDED; a++)
		if (f->added[a].n)
			out.col[out.n_cols++] = f->added[a];
	out.cap_cols = out.n_cols;
	out.n_kept = 0;
	out.slot = NULL;
	out.n_slots = 0;
	return x->to->batch ? x->to->batch(x->to, x->seg, &out, err) : 0;
}
