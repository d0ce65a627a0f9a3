/* What the exporters stand on: the segment that waits for its end, and matches by event. */
#include <stdlib.h>
#include <string.h>

#include "export/internal.h"

/* ---- matches of events --------------------------------------------------------------------- */

PL_COMPARATOR(by_event, struct pl_export_member, segment, event, match);

int pl_export_members_build(const struct pl_merge *m, struct pl_export_member **v, size_t *n,
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
	qsort(*v, k, sizeof(**v), by_event);
	*n = k;
	return 0;
}

uint32_t pl_export_member_find(const struct pl_export_member *v, size_t n, uint32_t segment,
			       uint32_t event)
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
	struct pl_export_base *x = (struct pl_export_base *)s;

	(void)seg;
	(void)err;
	if (x->n_segs++)
		x->merge.rel++;
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
	int rc;

	rc = x->emit(x, seg, err);
	if (rc >= 0)
		rc = pl_writer_check(&x->t, err);
	pl_trace_hold_reset(&x->hold);
	return rc;
}

static int base_merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err)
{
	struct pl_export_base *x = (struct pl_export_base *)s;
	int rc = pl_trace_merge_context_take(&x->merge, m, err);

	x->merge.rel = UINT32_MAX; /* the next segment is number 0 */
	if (!x->n_segs)
		x->merge.rel = 0;
	return rc < 0 || !x->on_merge ? rc : x->on_merge(x, m, err);
}

void *pl_export_base_open(size_t size, struct pl_out *out, const struct pl_export_opts *o,
			  int (*emit)(struct pl_export_base *, struct pl_segment *,
				      struct pl_err *),
			  struct pl_err *err)
{
	struct pl_export_base *x;

	if (pl_alloc(&x, 1, size, err) < 0)
		return NULL;
	x->sink = (struct pl_sink){ base_begin, base_batch, base_end, base_merge };
	x->o = *o;
	x->t.out = out;
	x->emit = emit;
	return x;
}

int pl_export_base_finish(struct pl_export_base *x, struct pl_err *err)
{
	pl_writer_flush(&x->t, 0);
	return pl_writer_check(&x->t, err);
}

void pl_export_base_fini(struct pl_export_base *x)
{
	pl_writer_fini(&x->t);
	pl_trace_hold_fini(&x->hold);
	pl_trace_row_values_fini(&x->rows);
	pl_trace_merge_context_fini(&x->merge);
}
