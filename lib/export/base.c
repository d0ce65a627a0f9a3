/* The common part of exporters: a segment in memory until its end, and the matches of events. */
#include "export/internal.h"

/* ---- matches of events --------------------------------------------------------------------- */

PL_COMPARATOR(by_event, struct pl_export_member, segment, event, match);

static int build_members(const struct pl_merge *m, struct pl_export_member **v, size_t *n,
			 struct pl_err *err)
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

			(*v)[k++] = (struct pl_export_member){ e->segment, e->event, i };
		}
	}
	pl_sort(*v, k, sizeof(**v), by_event);
	*n = k;
	return 0;
}

uint32_t pl_export_match(const struct pl_export_base *x, uint64_t event)
{
	const struct pl_export_member *v = x->member;
	uint32_t segment = x->merge.rel;
	size_t i = 0;

	if (!x->merge.present)
		return PL_NONE;
	PL_LOWER_BOUND(i, x->n_members,
		       v[i].segment < segment || (v[i].segment == segment && v[i].event < event));
	return i < x->n_members && v[i].segment == segment && v[i].event == event ? v[i].match
										  : PL_NONE;
}

/* ---- the base of exporters ------------------------------------------------------------------- */

#define FLUSH ((size_t)256 << 10)

static int base_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_export_base *x = (struct pl_export_base *)s;

	(void)seg;
	(void)err;
	pl_trace_merge_context_begin(&x->merge);
	pl_trace_hold_reset(&x->hold);
	return 0;
}

static int base_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		      struct pl_err *err)
{
	(void)seg;
	return pl_trace_hold_add(&((struct pl_export_base *)s)->hold, b, NULL, err);
}

static int base_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct pl_export_base *x = (struct pl_export_base *)s;
	int rc = pl_export_base_clocks(x, seg, err);

	if (rc >= 0)
		rc = x->kind->emit(x, seg, err);
	if (rc >= 0)
		rc = pl_write_check(&x->t, err);
	pl_trace_hold_reset(&x->hold);
	return rc;
}

int pl_export_base_merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err)
{
	struct pl_export_base *x = (struct pl_export_base *)s;

	PL_CHECK(pl_trace_merge_context_take(&x->merge, m, err));
	pl_free(x->member);
	x->member = NULL;
	if (x->kind->matches)
		PL_CHECK(build_members(m, &x->member, &x->n_members, err));
	return x->kind->on_merge ? x->kind->on_merge(x, m, err) : 0;
}

struct pl_sink *pl_export_base_open(const struct pl_export_kind *kind, struct pl_out *out,
				    const struct pl_export_opts *o, struct pl_err *err)
{
	struct pl_export_base *x;

	if (pl_alloc(&x, 1, kind->size, err) < 0)
		return NULL;
	x->sink = (struct pl_sink){ base_begin, base_batch, base_end, pl_export_base_merge };
	x->kind = kind;
	x->o = *o;
	x->t.out = out;
	if (kind->init)
		kind->init(x);
	return &x->sink;
}

int pl_export_base_close(struct pl_sink *s, struct pl_err *err)
{
	struct pl_export_base *x = (struct pl_export_base *)s;
	int rc;

	if (x->kind->last)
		x->kind->last(x);
	pl_write_flush(&x->t, 0);
	rc = pl_write_check(&x->t, err);
	pl_export_base_abort(s);
	return rc;
}

void pl_export_base_abort(struct pl_sink *s)
{
	struct pl_export_base *x = (struct pl_export_base *)s;

	if (!x)
		return;
	if (x->kind->fini)
		x->kind->fini(x);
	pl_write_fini(&x->t);
	pl_trace_hold_fini(&x->hold);
	pl_trace_row_values_fini(&x->rows);
	pl_trace_merge_context_fini(&x->merge);
	pl_free(x->clock);
	pl_free(x->member);
	pl_free(x);
}

/* ---- the events of a segment ----------------------------------------------------------------- */

int pl_export_base_batch(struct pl_export_base *x, const struct pl_segment *seg,
			 const struct pl_batch *b, pl_export_event *event, struct pl_err *err)
{
	int rc = pl_trace_row_values_build(&x->rows, b, err);

	for (uint32_t i = 0; rc >= 0 && i < b->n; i++) {
		event(x, seg, b, i);
		pl_write_flush(&x->t, FLUSH);
	}
	return rc < 0 ? rc : pl_write_check(&x->t, err);
}

int pl_export_base_events(struct pl_export_base *x, const struct pl_segment *seg,
			  pl_export_event *event, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < x->hold.n && rc >= 0; i++)
		rc = pl_export_base_batch(x, seg, &x->hold.b[i], event, err);
	return rc;
}

int pl_export_base_clocks(struct pl_export_base *x, const struct pl_segment *seg,
			  struct pl_err *err)
{
	int rc;

	pl_free(x->clock);
	x->clock = NULL;
	rc = pl_alloc(&x->clock, (size_t)seg->n_tracks + 1, sizeof(x->clock[0]), err);
	for (uint32_t i = 0; rc >= 0 && i < seg->n_tracks; i++)
		x->clock[i] = pl_trace_merge_context_clock(&x->merge, seg->track[i].rank);
	return rc;
}

pl_ns pl_export_start(const struct pl_export_base *x, const struct pl_segment *seg,
		      const struct pl_batch *b, uint32_t row)
{
	const struct pl_clock *c = b->track[row] < seg->n_tracks ? x->clock[b->track[row]] : NULL;

	return pl_trace_clock_apply(c, pl_add_sat(b->ts[row], seg->base_ns));
}
