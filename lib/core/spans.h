/* spans.h - sets of times, as intervals that sorting unites. */
#ifndef PL_SPANS_H
#define PL_SPANS_H

#include "core/core.h"

struct pl_span {
	pl_ns start, end;
	int32_t group;
};

/* Spans of several groups, such as ranks; groups never touch. Zero-initialised is empty. */
struct pl_spans {
	struct pl_span *v;
	size_t n, cap, united; /* v[0 .. united) are sorted by group and start, and disjoint */
};
void pl_spans_fini(struct pl_spans *s);
void pl_spans_clear(struct pl_spans *s); /* empty, to be filled again */
/* Empty spans are ignored. */
int pl_spans_add(struct pl_spans *s, int32_t group, pl_ns start, pl_ns end,
		 struct pl_err *err) PL_MUST;
/* Add a whole number. Numbers are united from time to time, so equal ones take little memory. */
int pl_spans_add_number(struct pl_spans *s, int64_t v, struct pl_err *err) PL_MUST;
/* Join spans that touch; O(n log n). The functions below need it. */
void pl_spans_unite(struct pl_spans *s);
pl_ns pl_spans_length(const struct pl_spans *s); /* of all */
/* The part of start .. end that the spans of the group cover; O(log n). */
pl_ns pl_spans_cover(const struct pl_spans *s, int32_t group, pl_ns start, pl_ns end);
/* The length of the overlap of a and b, summed over groups. */
pl_ns pl_spans_overlap(const struct pl_spans *a, const struct pl_spans *b);
/* Write spans of whole numbers into out: "1-7, 9"; "..." stands for those that do not fit. */
const char *pl_spans_text(const struct pl_spans *s, char *out, size_t size);

#endif
