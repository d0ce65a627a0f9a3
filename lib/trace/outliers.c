/*
 * Impossible times are replaced by possible ones.
 *
 * Profilers sometimes write a time or a duration near 2^63. Such an event must not spoil the
 * others, and later code must not have to check for overflow. The median of a segment shows the
 * usual times; most segments have close times and do not need it. Linear.
 */
#include <math.h>

#include "trace/trace.h"

#define SPREAD	 ((pl_ns)1 << 55) /* 417 days */
#define FARTHEST ((pl_ns)1 << 62)

struct range {
	pl_ns lo, hi;
};

static bool far(pl_ns t)
{
	return t < -FARTHEST || t > FARTHEST;
}

/* The range of the times within `from`, and the longest duration of all events. */
static struct range range_of(const struct pl_events *e, struct range from, pl_ns *longest)
{
	struct range r = { INT64_MAX, INT64_MIN };

	*longest = 0;
	for (uint64_t i = 0; i < e->n; i++) {
		pl_ns t = e->ts[i];

		*longest = pl_max_i64(*longest, e->dur[i]);
		if (t < from.lo || t > from.hi)
			continue;
		r.lo = pl_min_i64(r.lo, t);
		r.hi = pl_max_i64(r.hi, t);
	}
	return r;
}

static int median(const struct pl_events *e, pl_ns *m, struct pl_err *err)
{
	pl_ns *t;

	PL_CHECK(pl_alloc(&t, e->n, sizeof(*t), err));
	memcpy(t, e->ts, e->n * sizeof(*t));
	*m = pl_median_i64(t, e->n);
	pl_free(t);
	return 0;
}

static int clamp_segment(struct pl_events *e, uint32_t number, uint64_t *n, struct pl_err *err)
{
	struct range all = { INT64_MIN, INT64_MAX }, r;
	pl_ns longest, m;

	if (!e->n)
		return 0;
	r = range_of(e, all, &longest);
	if (longest > SPREAD || pl_sub_sat(r.hi, r.lo) > SPREAD) {
		PL_CHECK(median(e, &m, err));
		all = (struct range){ pl_sub_sat(m, SPREAD), pl_add_sat(m, SPREAD) };
		r = range_of(e, all, &longest);
		for (uint64_t i = 0; i < e->n; i++) {
			if (e->ts[i] >= r.lo && e->ts[i] <= r.hi && e->dur[i] <= SPREAD)
				continue;
			e->ts[i] = pl_max_i64(r.lo, pl_min_i64(r.hi, e->ts[i]));
			e->dur[i] = pl_min_i64(e->dur[i], 0);
			++*n;
		}
	}
	if (far(pl_add_sat(r.lo, e->seg.base_ns)) || far(pl_add_sat(r.hi, e->seg.base_ns)))
		return pl_fail(
			err, PL_EDATA,
			"segment %u (%s): its times lie beyond 2^62 ns, which no clock shows; "
			"leave it out",
			number, e->seg.source ? e->seg.source : "");
	return 0;
}

int pl_trace_clamp_outliers(struct pl_trace *t, uint64_t *n, struct pl_err *err)
{
	*n = 0;
	for (uint32_t i = 0; i < t->merge.n_clocks; i++) {
		const struct pl_clock *k = &t->merge.clock[i];

		if (far(k->offset_ns) || !(fabs(k->drift_ppm) < 1e6))
			return pl_fail(
				err, PL_EDATA,
				"clock %u: an offset beyond 2^62 ns, or a drift that no clock "
				"has: merge the traces again",
				i);
	}
	for (uint32_t i = 0; i < t->n_segs; i++)
		PL_CHECK(clamp_segment(t->seg[i], i, n, err));
	return 0;
}
