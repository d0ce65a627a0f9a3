/*
 * Clocks from the matches so far.
 *
 * While matching still goes on, clocks are sorted into partitions and offset components: sets that
 * the matches so far join to each other, though perhaps not to the first clock. Collectives make a
 * partition, within which ends can be compared to the jitter. Partitions that only sends and
 * receives join make an offset component; a transfer there and one back tell an offset no better
 * than the difference between their ways. Each offset component is estimated on its own, against
 * its lowest clock, so that times on it can be compared. Cost: that of one estimate of everything.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock/internal.h"

/* Of each clock the first one that matches join it to: any, or collectives that move data. */
static void find_joined(const struct pl_align *a, bool any, uint32_t *set)
{
	for (uint32_t c = 0; c < a->n_clocks; c++)
		set[c] = c;
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *m = &a->match[i];
		const uint32_t *ev = a->member + m->first;
		bool moves = m->group != PL_NONE && a->ev[ev[0]].coll_is & PL_COLL_MOVES_DATA;

		for (uint32_t k = 1; k < m->n && (any || moves); k++)
			pl_union_join(set, a->ev[ev[0]].clock, a->ev[ev[k]].clock);
	}
	for (uint32_t c = 0; c < a->n_clocks; c++)
		set[c] = pl_union_root(set, c);
}

/* What is found; 0 where nothing joins the clock. */
static void use_fit(struct pl_clock *c, const struct pl_clock_fit_clock *f)
{
	c->offset_ns = f->connected ? f->offset_ns : 0;
	c->drift_ppm = f->connected ? f->drift * 1e6 : 0;
	c->offset_ci_ns = f->offset_ci >= 0 ? (int64_t)llround(f->offset_ci) : -1;
	c->drift_ci_ppm = f->drift_ci >= 0 ? f->drift_ci * 1e6 : -1;
}

int pl_clock_partitions(struct pl_align *a, struct pl_err *err)
{
	static const struct pl_clock_fit_clock unknown = { .offset_ci = -1, .drift_ci = -1 };
	struct pl_arena mem = { 0 };
	struct pl_clock_fit_in in;
	struct pl_clock_fit_clock *out;
	int rc;

	PL_TRY(pl_clock_probes(a, &in, &mem, err));
	PL_TRY(pl_arena_array(&mem, &out, a->n_clocks + 1u, sizeof(*out), err));
	find_joined(a, true, a->component);
	find_joined(a, false, a->partition);
	in.component = a->component;
	for (uint32_t c = 0; c < a->n_clocks; c++)
		use_fit(&a->m->clock[c], &unknown);
	for (uint32_t c = 0, k; c < a->n_clocks; c++) {
		for (k = c + 1; k < a->n_clocks && a->component[k] != c;)
			k++;
		if (a->component[c] != c || k == a->n_clocks)
			continue;
		in.first_clock = c;
		PL_TRY(pl_clock_fit_clocks(&in, out, err));
		for (k = c; k < a->n_clocks; k++)
			if (a->component[k] == c)
				use_fit(&a->m->clock[k], &out[k]);
	}
out:
	pl_arena_fini(&mem);
	return rc;
}

int pl_clock_estimate(struct pl_align *a, struct pl_err *err)
{
	struct pl_arena mem = { 0 };
	struct pl_clock_fit_in in;
	struct pl_clock_fit_clock *out;
	int rc;

	PL_TRY(pl_clock_probes(a, &in, &mem, err));
	PL_TRY(pl_arena_array(&mem, &out, a->n_clocks + 1u, sizeof(*out), err));
	PL_TRY(pl_clock_fit_clocks(&in, out, err));
	for (uint32_t i = 0; i < a->n_clocks; i++) {
		struct pl_clock *c = &a->m->clock[i];

		use_fit(c, &out[i]);
		if (c->drift_ppm == 0 && c->offset_ns <= c->offset_ci_ns &&
		    c->offset_ns >= -c->offset_ci_ns)
			c->offset_ns = 0;
		a->rep->clock[i].offset_known = out[i].connected;
		a->rep->clock[i].drift_known = out[i].drift_ci >= 0;
		a->rep->unconnected += !out[i].connected;
	}
out:
	pl_arena_fini(&mem);
	return rc;
}
