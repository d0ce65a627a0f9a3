/*
 * Batches and segments: trace(5) in memory.
 *
 * A hash of (role, type, key) finds the columns of a batch: a source with a different argument in
 * every event makes as many columns as events, so a search must not be linear.
 */
#include "trace/internal.h"

/* ---- columns --------------------------------------------------------------------------------- */

int pl_trace_col_reserve(struct pl_col *c, uint32_t need, struct pl_err *err)
{
	uint32_t cap = c->cap < 32 ? 32 : c->cap;
	void *p;

	if (need <= c->cap)
		return 0;
	while (cap < need && cap <= UINT32_MAX / 2)
		cap *= 2;
	if (cap < need)
		return pl_fail(err, PL_ELIMIT, "a column of more than %u values", need);
	p = pl_realloc(c->row, (size_t)cap * sizeof(*c->row));
	if (!p)
		goto fail;
	c->row = p;
	p = pl_realloc(c->val, (size_t)cap * sizeof(*c->val));
	if (!p)
		goto fail;
	c->val = p;
	if (c->type == PL_V_DEC) {
		p = pl_realloc(c->scale, cap);
		if (!p)
			goto fail;
		c->scale = p;
	}
	c->cap = cap;
	return 0;
fail:
	return pl_fail(err, PL_ENOMEM, "out of memory (column of %u values)", cap);
}

int pl_trace_col_put_slow(struct pl_col *c, struct pl_err *err)
{
	if (c->cap > UINT32_MAX / 2)
		return pl_fail(err, PL_ELIMIT, "a column of more than %u values", c->cap);
	return pl_trace_col_reserve(c, c->cap + 1, err);
}

void pl_trace_col_drop(struct pl_col *c)
{
	pl_free(c->row);
	pl_free(c->val);
	pl_free(c->scale);
	c->row = NULL;
	c->val = NULL;
	c->scale = NULL;
	c->n = c->cap = 0;
}

/* ---- batches --------------------------------------------------------------------------------- */

int pl_trace_batch_init(struct pl_batch *b, struct pl_err *err)
{
	int rc;

	memset(b, 0, sizeof(*b));
	PL_TRY(pl_alloc(&b->kind, PL_BATCH_ROWS, sizeof(*b->kind), err));
	PL_TRY(pl_alloc(&b->track, PL_BATCH_ROWS, sizeof(*b->track), err));
	PL_TRY(pl_alloc(&b->name, PL_BATCH_ROWS, sizeof(*b->name), err));
	PL_TRY(pl_alloc(&b->ts, PL_BATCH_ROWS, sizeof(*b->ts), err));
	PL_TRY(pl_alloc(&b->dur, PL_BATCH_ROWS, sizeof(*b->dur), err));
	return 0;
out:
	pl_trace_batch_fini(b);
	return rc;
}

void pl_trace_batch_clear(struct pl_batch *b)
{
	b->n = 0;
	for (uint32_t i = 0; i < b->n_cols; i++)
		b->col[i].n = 0;
}

void pl_trace_batch_forget(struct pl_batch *b)
{
	b->n = b->n_cols = 0;
	if (b->slot)
		memset(b->slot, 0, b->n_slots * sizeof(*b->slot));
}

void pl_trace_batch_fini(struct pl_batch *b)
{
	for (uint32_t i = 0; i < b->n_kept; i++)
		pl_trace_col_drop(&b->col[i]);
	pl_free(b->kind);
	pl_free(b->track);
	pl_free(b->name);
	pl_free(b->ts);
	pl_free(b->dur);
	pl_free(b->col);
	pl_free(b->slot);
	memset(b, 0, sizeof(*b));
}

static uint32_t col_hash(uint8_t role, uint8_t type, pl_id key)
{
	uint64_t h = (uint64_t)key | (uint64_t)role << 32 | (uint64_t)type << 40;

	return (uint32_t)(h * 0x9e3779b97f4a7c15u >> 32);
}

static int grow_slots(struct pl_batch *b, struct pl_err *err)
{
	uint32_t size = b->n_slots ? b->n_slots * 2 : 128;
	uint32_t *slot;

	if (b->n_slots > UINT32_MAX / 4)
		return pl_fail(err, PL_ELIMIT, "more than %u columns", b->n_cols);
	PL_CHECK(pl_alloc(&slot, size, sizeof(*slot), err));
	for (uint32_t i = 0; i < b->n_cols; i++) {
		const struct pl_col *c = &b->col[i];
		uint32_t k = col_hash(c->role, c->type, c->key) & (size - 1);

		while (slot[k])
			k = (k + 1) & (size - 1);
		slot[k] = i + 1;
	}
	pl_free(b->slot);
	b->slot = slot;
	b->n_slots = size;
	return 0;
}

int pl_trace_batch_col(struct pl_batch *b, uint8_t role, uint8_t type, pl_id key, uint32_t *index,
		       struct pl_err *err)
{
	size_t cap = b->cap_cols;
	struct pl_col *c;
	uint32_t k;

	if (b->n_cols >= b->n_slots / 2)
		PL_CHECK(grow_slots(b, err));
	for (k = col_hash(role, type, key) & (b->n_slots - 1); b->slot[k];
	     k = (k + 1) & (b->n_slots - 1)) {
		c = &b->col[b->slot[k] - 1];
		if (c->role == role && c->type == type && c->key == key) {
			*index = b->slot[k] - 1;
			return 0;
		}
	}
	PL_CHECK(pl_grow(&b->col, &cap, (size_t)b->n_cols + 1, sizeof(*b->col), err));
	b->cap_cols = (uint32_t)cap;
	c = &b->col[b->n_cols];
	if (b->n_cols == b->n_kept)
		memset(&b->col[b->n_kept++], 0, sizeof(*c));
	else if (c->type != type)
		pl_trace_col_drop(c); /* decimals have one more array */
	c->n = 0;
	c->role = role;
	c->type = type;
	c->key = key;
	*index = b->n_cols++;
	b->slot[k] = *index + 1;
	return 0;
}

/* ---- segments -------------------------------------------------------------------------------- */

void pl_trace_track_init(struct pl_track *t)
{
	memset(t, 0, sizeof(*t));
	t->rank = t->device = -1;
	for (int i = 0; i < PL_COORDS; i++)
		t->coord[i] = -1;
	t->stream = -1;
	t->host = t->pid = t->tid = t->name = t->process = t->labels = PL_NONE;
}

int pl_trace_segment_init(struct pl_segment *s, struct pl_err *err)
{
	memset(s, 0, sizeof(*s));
	s->source = pl_strdup("");
	s->format = pl_strdup("");
	if (s->source && s->format)
		return 0;
	pl_trace_segment_fini(s);
	return pl_fail(err, PL_ENOMEM, "out of memory (segment)");
}

void pl_trace_segment_fini(struct pl_segment *s)
{
	pl_intern_fini(&s->str);
	pl_free(s->track);
	pl_free(s->meta);
	pl_free(s->source);
	pl_free(s->format);
	pl_buf_fini(&s->provenance);
	memset(s, 0, sizeof(*s));
}

bool pl_trace_segment_devices(const struct pl_segment *s, int32_t rank)
{
	int32_t device = -1;

	for (uint32_t i = 0; i < s->n_tracks; i++) {
		const struct pl_track *t = &s->track[i];

		if (t->type != PL_T_STREAM || t->rank != rank || t->device < 0)
			continue;
		if (device >= 0 && t->device != device)
			return true;
		device = t->device;
	}
	return false;
}

int pl_trace_segment_track(struct pl_segment *s, const struct pl_track *t, pl_id *id,
			   struct pl_err *err)
{
	if (s->n_tracks == PL_NONE)
		return pl_fail(err, PL_ELIMIT, "more than %u tracks", s->n_tracks);
	PL_CHECK(pl_grow(&s->track, &s->cap_tracks, (size_t)s->n_tracks + 1, sizeof(*s->track),
			 err));
	s->track[s->n_tracks] = *t;
	*id = s->n_tracks++;
	return 0;
}

int pl_trace_segment_meta(struct pl_segment *s, const char *key, size_t nk, const char *value,
			  size_t nv, struct pl_err *err)
{
	struct pl_meta m;

	PL_CHECK(pl_intern_add(&s->str, key, nk, &m.key, err));
	PL_CHECK(pl_intern_add(&s->str, value, nv, &m.value, err));
	return pl_trace_segment_add_meta(s, &m, err);
}

int pl_trace_segment_add_meta(struct pl_segment *s, const struct pl_meta *m, struct pl_err *err)
{
	if (s->n_meta == PL_NONE)
		return pl_fail(err, PL_ELIMIT, "more than %u metadata members", s->n_meta);
	PL_CHECK(pl_grow(&s->meta, &s->cap_meta, (size_t)s->n_meta + 1, sizeof(*s->meta), err));
	s->meta[s->n_meta++] = *m;
	return 0;
}

/* If the source has a key twice, the last value counts, as JSON readers agree. */
const char *pl_trace_segment_meta_get(const struct pl_segment *s, const char *key)
{
	pl_id id = pl_intern_find(&s->str, key, strlen(key));

	if (id == PL_NONE)
		return NULL;
	for (uint32_t i = s->n_meta; i-- > 0;)
		if (s->meta[i].key == id)
			return pl_intern_get(&s->str, s->meta[i].value);
	return NULL;
}
