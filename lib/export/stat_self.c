/*
 * Self time of host operations. The events of a thread are nested, so one pass in order of start
 * (longer ones first) with a stack finds each event's parent. The self time is the duration less
 * that of the direct children, as far as they lie inside the event. Linear if the source is sorted
 * (profilers sort each thread), else O(n log n).
 */
#include "export/stat.h"

struct order {
	pl_ns ts, end;
	uint32_t event;
	pl_id name;
	uint8_t kind;
};
struct open {
	struct order e;
	pl_ns inside; /* time of children */
};

static bool is_host_op(unsigned kind)
{
	return kind == PL_K_HOST_OP || kind == PL_K_PYTHON || kind == PL_K_ANNOTATION ||
	       kind == PL_K_DATA || kind == PL_K_OTHER;
}

static int by_start(const void *pa, const void *pb)
{
	const struct order *a = pa, *b = pb;
	int c = PL_COMPARE(a->ts, b->ts);

	if (!c)
		c = PL_COMPARE(b->end, a->end);
	return c ? c : PL_COMPARE(a->event, b->event);
}

static int account(struct stat *s, const struct pl_segment *seg, const struct open *o,
		   struct pl_err *err)
{
	unsigned table = o->e.kind == PL_K_RUNTIME ? S_RUNTIME : S_HOST;
	pl_ns dur = pl_sub_sat(o->e.end, o->e.ts);
	struct stat_agg *a;

	if (table == S_HOST && !is_host_op(o->e.kind))
		return 0;
	a = pl_export_stat_sum(s, seg, table, o->e.kind, o->e.name, err);
	if (!a)
		return PL_ENOMEM;
	a->n++;
	a->total = pl_add_sat(a->total, dur);
	a->self = pl_add_sat(a->self, pl_max_i64(pl_sub_sat(dur, o->inside), 0));
	a->max = pl_max_i64(a->max, dur);
	return 0;
}

static int walk(struct stat *s, const struct pl_segment *seg, const struct order *v, size_t n,
		struct open **stack, size_t *cap, struct pl_err *err)
{
	size_t depth = 0;

	for (size_t i = 0; i < n; i++) {
		while (depth && (*stack)[depth - 1].e.end <= v[i].ts)
			PL_CHECK(account(s, seg, &(*stack)[--depth], err));
		if (depth) {
			struct open *o = &(*stack)[depth - 1];

			o->inside = pl_add_sat(o->inside, pl_min_i64(v[i].end, o->e.end) - v[i].ts);
		}
		PL_CHECK(pl_grow(stack, cap, depth + 1, sizeof(**stack), err));
		(*stack)[depth++] = (struct open){ v[i], 0 };
	}
	while (depth)
		PL_CHECK(account(s, seg, &(*stack)[--depth], err));
	return 0;
}

static bool counts(const struct pl_segment *seg, const struct pl_batch *b, size_t i, bool threads)
{
	unsigned type;

	if (b->dur[i] < 0 || b->track[i] >= seg->n_tracks || b->kind[i] == PL_K_FLOW_IN ||
	    b->kind[i] == PL_K_FLOW_OUT || b->kind[i] == PL_K_COUNTER)
		return false;
	type = seg->track[b->track[i]].type;
	/* tracks other than threads ("Spans") have no operations */
	return type == PL_T_THREAD || (!threads && type == PL_T_OTHER);
}

int pl_export_stat_self_times(struct stat *s, const struct pl_segment *seg, struct pl_err *err)
{
	const struct pl_hold *h = &s->x.hold;
	size_t *first = NULL, cap = 0, total = 0;
	struct order *v = NULL;
	struct open *stack = NULL;
	bool threads = false;
	int rc;

	for (uint32_t i = 0; i < seg->n_tracks; i++)
		threads |= seg->track[i].type == PL_T_THREAD;
	PL_TRY(pl_alloc(&first, (size_t)seg->n_tracks + 2, sizeof(*first), err));
	for (size_t j = 0; j < h->n; j++)
		for (uint32_t i = 0; i < h->b[j].n; i++)
			if (counts(seg, &h->b[j], i, threads)) {
				first[h->b[j].track[i] + 2]++;
				total++;
			}
	for (uint32_t i = 2; i < seg->n_tracks + 2; i++)
		first[i] += first[i - 1];
	PL_TRY(pl_alloc(&v, total + 1, sizeof(*v), err));
	total = 0;
	for (size_t j = 0; j < h->n; j++) {
		const struct pl_batch *b = &h->b[j];

		for (uint32_t i = 0; i < b->n; i++)
			if (counts(seg, b, i, threads))
				v[first[b->track[i] + 1]++] =
					(struct order){ b->ts[i], pl_add_sat(b->ts[i], b->dur[i]),
							(uint32_t)total++, b->name[i], b->kind[i] };
	}
	for (uint32_t t = 0; t < seg->n_tracks; t++) {
		struct order *o = v + first[t];
		size_t n = first[t + 1] - first[t];

		pl_sort(o, n, sizeof(*o), by_start);
		PL_TRY(walk(s, seg, o, n, &stack, &cap, err));
	}
out:
	pl_free(first);
	pl_free(v);
	pl_free(stack);
	return rc;
}
