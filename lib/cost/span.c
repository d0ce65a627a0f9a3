/* Times at which a rank does something, for asking how much of another time they cover: sorted,
 * those that touch united, looked up by halving. */
#include "cost/internal.h"

int cost_span_add(struct cost_spans *s, int32_t rank, pl_ns start, pl_ns end, struct pl_err *err)
{
	int rc = pl_grow(&s->v, &s->cap, s->n + 1, sizeof(*s->v), err);

	if (rc < 0)
		return rc;
	s->v[s->n++] = (struct cost_span){ start, end, rank };
	return 0;
}

PL_COMPARATOR(by_span, struct cost_span, rank, start, end);

void cost_spans_unite(struct cost_spans *s)
{
	size_t kept = 0;

	pl_sort(s->v, s->n, sizeof(*s->v), by_span);
	for (size_t i = 0; i < s->n; i++) {
		struct cost_span *last = kept ? &s->v[kept - 1] : NULL, *x = &s->v[i];

		if (last && last->rank == x->rank && x->start <= last->end)
			last->end = pl_max_i64(last->end, x->end);
		else
			s->v[kept++] = *x;
	}
	s->n = kept;
}

pl_ns cost_spans_cover(const struct cost_spans *s, int32_t rank, pl_ns start, pl_ns end)
{
	struct cost_span key = { start, INT64_MIN, rank };
	size_t lo = 0;
	pl_ns sum = 0;

	/* the first that begins at `start` or later */
	PL_LOWER_BOUND(lo, s->n, by_span(&s->v[lo], &key) < 0);
	for (size_t i = lo ? lo - 1 : 0; i < s->n; i++) {
		const struct cost_span *c = &s->v[i];

		if (i >= lo && (c->rank != rank || c->start >= end))
			break;
		if (c->rank == rank)
			sum += pl_max_i64(0, pl_min_i64(c->end, end) - pl_max_i64(c->start, start));
	}
	return sum;
}
