/* Sets of times: sorted, united if they touch, searched by bisection. */
#include <stdio.h>

#include "core/spans.h"

void pl_spans_fini(struct pl_spans *s)
{
	pl_free(s->v);
	*s = (struct pl_spans){ 0 };
}

void pl_spans_clear(struct pl_spans *s)
{
	s->n = s->united = 0;
}

int pl_spans_add(struct pl_spans *s, int32_t group, pl_ns start, pl_ns end, struct pl_err *err)
{
	int rc = pl_grow(&s->v, &s->cap, s->n + 1, sizeof(*s->v), err);

	if (rc == 0 && end > start)
		s->v[s->n++] = (struct pl_span){ start, end, group };
	return rc;
}

int pl_spans_add_number(struct pl_spans *s, int64_t v, struct pl_err *err)
{
	if (s->n > 1024 && s->n > 2 * s->united)
		pl_spans_unite(s);
	return pl_spans_add(s, 0, v, pl_add_sat(v, 1), err);
}

PL_COMPARATOR(by_start, struct pl_span, group, start);

void pl_spans_unite(struct pl_spans *s)
{
	size_t n = 0;

	if (s->united == s->n)
		return;
	pl_sort(s->v, s->n, sizeof(*s->v), by_start);
	for (size_t i = 0; i < s->n; i++) {
		struct pl_span *last = n ? &s->v[n - 1] : NULL;

		if (last && last->group == s->v[i].group && s->v[i].start <= last->end)
			last->end = pl_max_i64(last->end, s->v[i].end);
		else
			s->v[n++] = s->v[i];
	}
	s->n = s->united = n;
}

pl_ns pl_spans_length(const struct pl_spans *s)
{
	pl_ns sum = 0;

	for (size_t i = 0; i < s->n; i++)
		sum = pl_add_sat(sum, pl_sub_sat(s->v[i].end, s->v[i].start));
	return sum;
}

pl_ns pl_spans_cover(const struct pl_spans *s, int32_t group, pl_ns start, pl_ns end)
{
	struct pl_span key = { start, end, group };
	size_t i = 0;
	pl_ns sum = 0;

	PL_LOWER_BOUND(i, s->n, by_start(&s->v[i], &key) < 0);
	if (i && s->v[i - 1].group == group) /* the previous span may reach into the time */
		i--;
	for (; i < s->n && s->v[i].group == group && s->v[i].start < end; i++)
		sum += pl_max_i64(0,
				  pl_min_i64(s->v[i].end, end) - pl_max_i64(s->v[i].start, start));
	return sum;
}

pl_ns pl_spans_overlap(const struct pl_spans *a, const struct pl_spans *b)
{
	pl_ns sum = 0;

	for (size_t i = 0, k = 0; i < a->n && k < b->n;) {
		const struct pl_span *x = &a->v[i], *y = &b->v[k];
		pl_ns start = pl_max_i64(x->start, y->start), end = pl_min_i64(x->end, y->end);

		if (x->group == y->group && end > start)
			sum = pl_add_sat(sum, end - start);
		if (PL_COMPARE_FIELDS(x, y, group, end) < 0)
			i++;
		else
			k++;
	}
	return sum;
}

const char *pl_spans_text(const struct pl_spans *s, char *out, size_t size)
{
	size_t n = 0;

	*out = '\0';
	for (size_t i = 0; i < s->n; i++) {
		long long first = s->v[i].start, last = s->v[i].end - 1;
		char one[48];
		int k = first == last ? snprintf(one, sizeof(one), "%lld", first)
				      : snprintf(one, sizeof(one), "%lld-%lld", first, last);

		if (n + (size_t)k + sizeof(", ...") + 2 > size) {
			snprintf(out + n, size - n, "%s...", n ? ", " : "");
			break;
		}
		n += (size_t)snprintf(out + n, size - n, "%s%s", n ? ", " : "", one);
	}
	return out;
}
