/*
 * A segment in memory, for exporters and filters: copies of its batches in an arena, the values of
 * each row in order (a counting sort by row, linear), and the clocks of its merged stream.
 */
#include "trace/hold.h"

/* ---- held batches ---------------------------------------------------------------------------- */

static void *take(struct pl_arena *a, size_t n, size_t size)
{
	return pl_arena_take(a, n ? n * size : size);
}

static int copy_fixed(struct pl_arena *a, struct pl_batch *d, const struct pl_batch *b,
		      const uint32_t *row, uint32_t n, struct pl_err *err)
{
	d->kind = take(a, n, sizeof(*d->kind));
	d->track = take(a, n, sizeof(*d->track));
	d->name = take(a, n, sizeof(*d->name));
	d->ts = take(a, n, sizeof(*d->ts));
	d->dur = take(a, n, sizeof(*d->dur));
	if (!d->kind || !d->track || !d->name || !d->ts || !d->dur)
		return pl_fail(err, PL_ENOMEM, "out of memory for %u events", n);
	for (uint32_t i = 0; i < n; i++) {
		uint32_t r = row ? row[i] : i;

		d->kind[i] = b->kind[r];
		d->track[i] = b->track[r];
		d->name[i] = b->name[r];
		d->ts[i] = b->ts[r];
		d->dur[i] = b->dur[r];
	}
	d->n = n;
	d->first = b->first;
	return 0;
}

/* to[row]: the new number of the row, PL_NONE: dropped; NULL: all rows stay. */
static int copy_col(struct pl_arena *a, struct pl_col *d, const struct pl_col *c,
		    const uint32_t *to, struct pl_err *err)
{
	*d = *c;
	d->n = 0;
	d->cap = c->n;
	d->row = take(a, c->n, sizeof(*d->row));
	d->val = take(a, c->n, sizeof(*d->val));
	d->scale = c->scale ? take(a, c->n, 1) : NULL;
	if (!d->row || !d->val || (c->scale && !d->scale))
		return pl_fail(err, PL_ENOMEM, "out of memory for %u values", c->n);
	for (uint32_t k = 0; k < c->n; k++) {
		uint32_t r = to ? to[c->row[k]] : c->row[k];

		if (r == PL_NONE)
			continue;
		d->row[d->n] = r;
		d->val[d->n] = c->val[k];
		if (c->scale)
			d->scale[d->n] = c->scale[k];
		d->n++;
	}
	return 0;
}

static int copy_batch(struct pl_hold *h, const struct pl_batch *b, const uint32_t *row,
		      const uint32_t *to, uint32_t n, struct pl_err *err)
{
	struct pl_batch *d;

	PL_CHECK(pl_grow(&h->b, &h->cap, h->n + 1, sizeof(*h->b), err));
	d = &h->b[h->n];
	memset(d, 0, sizeof(*d));
	PL_CHECK(copy_fixed(&h->mem, d, b, row, n, err));
	d->col = take(&h->mem, b->n_cols, sizeof(*d->col));
	if (!d->col)
		return pl_fail(err, PL_ENOMEM, "out of memory for %u columns", b->n_cols);
	for (uint32_t i = 0; i < b->n_cols; i++) {
		unsigned role = b->col[i].role;

		if (!b->col[i].n || (h->roles && (role > 63 || !(h->roles >> role & 1))))
			continue;
		PL_CHECK(copy_col(&h->mem, &d->col[d->n_cols], &b->col[i], to, err));
		if (d->col[d->n_cols].n)
			d->n_cols++;
	}
	d->cap_cols = d->n_cols;
	h->n++;
	return 0;
}

int pl_trace_hold_add(struct pl_hold *h, const struct pl_batch *b, const uint8_t *mask,
		      struct pl_err *err)
{
	uint32_t *row = NULL, *to, n = 0;
	int rc;

	if (!mask)
		return copy_batch(h, b, NULL, NULL, b->n, err);
	PL_CHECK(pl_alloc(&row, 2 * (size_t)b->n + 1, sizeof(*row), err));
	to = row + b->n;
	for (uint32_t i = 0; i < b->n; i++) {
		to[i] = mask[i] ? n : PL_NONE;
		if (mask[i])
			row[n++] = i;
	}
	rc = n ? copy_batch(h, b, row, to, n, err) : 0;
	pl_free(row);
	return rc;
}

void pl_trace_hold_reset(struct pl_hold *h)
{
	h->n = 0;
	pl_arena_reset(&h->mem);
}

void pl_trace_hold_fini(struct pl_hold *h)
{
	pl_free(h->b);
	pl_arena_fini(&h->mem);
	memset(h, 0, sizeof(*h));
}

/* ---- rows ------------------------------------------------------------------------------------ */

int pl_trace_row_values_build(struct pl_row_values *r, const struct pl_batch *b, struct pl_err *err)
{
	size_t total = 0;

	for (uint32_t c = 0; c < b->n_cols; c++)
		total += b->col[c].n;
	PL_CHECK(pl_grow(&r->off, &r->cap_off, (size_t)b->n + 2, sizeof(*r->off), err));
	PL_CHECK(pl_grow(&r->ent, &r->cap_ent, total + 1, sizeof(*r->ent), err));
	memset(r->off, 0, ((size_t)b->n + 2) * sizeof(*r->off));
	for (uint32_t c = 0; c < b->n_cols; c++)
		for (uint32_t k = 0; k < b->col[c].n; k++)
			r->off[b->col[c].row[k] + 2]++;
	for (uint32_t i = 2; i < b->n + 2; i++)
		r->off[i] += r->off[i - 1];
	/* off[row + 1] moves from the start of the row to its end while the entries are placed */
	for (uint32_t c = 0; c < b->n_cols; c++)
		for (uint32_t k = 0; k < b->col[c].n; k++)
			r->ent[r->off[b->col[c].row[k] + 1]++] = (struct pl_row_entry){ c, k };
	return 0;
}

void pl_trace_row_values_fini(struct pl_row_values *r)
{
	pl_free(r->off);
	pl_free(r->ent);
}

/* ---- corrected times ------------------------------------------------------------------------- */

void pl_trace_merge_context_begin(struct pl_merge_context *x)
{
	if (x->n_segs++)
		x->rel++;
}

int pl_trace_merge_context_take(struct pl_merge_context *x, const struct pl_merge *m,
				struct pl_err *err)
{
	pl_trace_merge_fini(&x->m);
	x->present = true;
	x->rel = x->n_segs ? UINT32_MAX : 0; /* the next segment is number 0 */
	return pl_trace_merge_dup(m, &x->m, err);
}

void pl_trace_merge_context_fini(struct pl_merge_context *x)
{
	pl_trace_merge_fini(&x->m);
	memset(x, 0, sizeof(*x));
}

const struct pl_clock *pl_trace_merge_context_clock(const struct pl_merge_context *x, int32_t rank)
{
	return x->present ? pl_trace_merge_clock(&x->m, x->rel, rank) : NULL;
}
