/*
 * What the exporters stand on: batches of one segment copied into an arena, the values of each row
 * in order (a counting sort of the columns' entries by row, linear), and times put on the common
 * clock of a merged stream.
 */
#include <stdlib.h>
#include <string.h>

#include "export/internal.h"

/* ---- held batches ------------------------------------------------------------------------------
 */

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

/* to[row]: the row's new number, PL_NONE when it is dropped; NULL: all stay. */
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

static int copy_batch(struct x_hold *h, const struct pl_batch *b, const uint32_t *row,
		      const uint32_t *to, uint32_t n, struct pl_err *err)
{
	struct pl_batch *d;
	int rc = pl_grow(&h->b, &h->cap, h->n + 1, sizeof(*h->b), err);

	if (rc < 0)
		return rc;
	d = &h->b[h->n];
	memset(d, 0, sizeof(*d));
	rc = copy_fixed(&h->mem, d, b, row, n, err);
	if (rc < 0)
		return rc;
	d->col = take(&h->mem, b->n_cols, sizeof(*d->col));
	if (!d->col)
		return pl_fail(err, PL_ENOMEM, "out of memory for %u columns", b->n_cols);
	for (uint32_t i = 0; i < b->n_cols; i++) {
		if (!b->col[i].n)
			continue;
		rc = copy_col(&h->mem, &d->col[d->n_cols], &b->col[i], to, err);
		if (rc < 0)
			return rc;
		if (d->col[d->n_cols].n)
			d->n_cols++;
	}
	d->cap_cols = d->n_cols;
	h->n++;
	return 0;
}

int x_hold_add(struct x_hold *h, const struct pl_batch *b, const uint8_t *mask, struct pl_err *err)
{
	uint32_t *row = NULL, *to, n = 0;
	int rc;

	if (!mask)
		return copy_batch(h, b, NULL, NULL, b->n, err);
	rc = pl_alloc(&row, 2 * (size_t)b->n + 1, sizeof(*row), err);
	if (rc < 0)
		return rc;
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

void x_hold_reset(struct x_hold *h)
{
	h->n = 0;
	pl_arena_reset(&h->mem);
}

void x_hold_fini(struct x_hold *h)
{
	pl_free(h->b);
	pl_arena_fini(&h->mem);
	memset(h, 0, sizeof(*h));
}

/* ---- rows --------------------------------------------------------------------------------------
 */

int x_rows_build(struct x_rows *r, const struct pl_batch *b, struct pl_err *err)
{
	size_t total = 0;
	int rc;

	for (uint32_t c = 0; c < b->n_cols; c++)
		total += b->col[c].n;
	PL_TRY(pl_grow(&r->off, &r->cap_off, (size_t)b->n + 2, sizeof(*r->off), err));
	PL_TRY(pl_grow(&r->ent, &r->cap_ent, total + 1, sizeof(*r->ent), err));
	memset(r->off, 0, ((size_t)b->n + 2) * sizeof(*r->off));
	for (uint32_t c = 0; c < b->n_cols; c++)
		for (uint32_t k = 0; k < b->col[c].n; k++)
			r->off[b->col[c].row[k] + 2]++;
	for (uint32_t i = 2; i < b->n + 2; i++)
		r->off[i] += r->off[i - 1];
	/* off[row + 1] runs from the row's start to its end while the entries are placed */
	for (uint32_t c = 0; c < b->n_cols; c++)
		for (uint32_t k = 0; k < b->col[c].n; k++)
			r->ent[r->off[b->col[c].row[k] + 1]++] = (struct x_ent){ c, k };
	rc = 0;
out:
	return rc;
}

void x_rows_fini(struct x_rows *r)
{
	pl_free(r->off);
	pl_free(r->ent);
}

/* ---- corrected times ---------------------------------------------------------------------------
 */

int x_merge_take(struct x_merge *x, const struct pl_merge *m, struct pl_err *err)
{
	x_merge_fini(x);
	x->present = true;
	return pl_merge_dup(m, &x->m, err);
}

void x_merge_fini(struct x_merge *x)
{
	pl_merge_fini(&x->m);
	memset(x, 0, sizeof(*x));
}

const struct pl_clock *x_merge_clock(const struct x_merge *x, int32_t rank)
{
	return x->present ? pl_merge_clock(&x->m, x->rel, rank) : NULL;
}

PL_COMPARATOR(by_event, struct x_member, segment, event, match);

int x_members_build(const struct pl_merge *m, struct x_member **v, size_t *n, struct pl_err *err)
{
	size_t k = 0;
	int rc = pl_alloc(v, (size_t)m->n_members + 1, sizeof(**v), err);

	*n = 0;
	if (rc < 0)
		return rc;
	for (uint32_t i = 0; i < m->n_matches; i++) {
		const struct pl_match *t = &m->match[i];

		for (uint32_t j = 0; j < t->n && t->first + j < m->n_members && k < m->n_members;
		     j++) {
			const struct pl_member *e = &m->member[t->first + j];

			(*v)[k++] = (struct x_member){ e->segment, e->event, i };
		}
	}
	qsort(*v, k, sizeof(**v), by_event);
	*n = k;
	return 0;
}

uint32_t x_member_find(const struct x_member *v, size_t n, uint32_t segment, uint32_t event)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, n,
		       v[i].segment < segment || (v[i].segment == segment && v[i].event < event));
	return i < n && v[i].segment == segment && v[i].event == event ? v[i].match : PL_NONE;
}

/* ---- the base of exporters ---------------------------------------------------------------------
 */

static int base_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct x_base *x = (struct x_base *)s;

	(void)seg;
	(void)err;
	if (x->n_segs++)
		x->merge.rel++;
	x_hold_reset(&x->hold);
	return 0;
}

static int base_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		      struct pl_err *err)
{
	(void)seg;
	return x_hold_add(&((struct x_base *)s)->hold, b, NULL, err);
}

static int base_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct x_base *x = (struct x_base *)s;
	int rc;

	x->t.err = err;
	rc = x->emit(x, seg, err);
	if (rc >= 0 && x->t.rc < 0)
		rc = x->t.rc;
	x_hold_reset(&x->hold);
	return rc;
}

static int base_merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err)
{
	struct x_base *x = (struct x_base *)s;
	int rc = x_merge_take(&x->merge, m, err);

	x->merge.rel = UINT32_MAX; /* the next segment is number 0 */
	if (!x->n_segs)
		x->merge.rel = 0;
	x->t.err = err;
	return rc < 0 || !x->on_merge ? rc : x->on_merge(x, m, err);
}

void *x_base_open(size_t size, struct pl_out *out, const struct pl_export_opts *o,
		  int (*emit)(struct x_base *, struct pl_segment *, struct pl_err *),
		  struct pl_err *err)
{
	struct x_base *x;

	if (pl_alloc(&x, 1, size, err) < 0)
		return NULL;
	x->sink = (struct pl_sink){ base_begin, base_batch, base_end, base_merge };
	x->o = *o;
	x->t.out = out;
	x->emit = emit;
	return x;
}

int x_base_finish(struct x_base *x, struct pl_err *err)
{
	x->t.err = err;
	x_flush(&x->t, 0);
	return x->t.rc;
}

void x_base_fini(struct x_base *x)
{
	x_text_fini(&x->t);
	x_hold_fini(&x->hold);
	x_rows_fini(&x->rows);
	x_merge_fini(&x->merge);
}
