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

#include "clock/internal.h"

/* Of each clock the first one that matches join it to: any, or collectives that move data and whose
 * members end together. */
static void find_joined(const struct pl_align *a, bool any, uint32_t *set)
{
	for (uint32_t c = 0; c < a->n_clocks; c++)
		set[c] = c;
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *m = &a->match[i];
		const uint32_t *ev = a->member + m->first;
		unsigned is = a->ev[ev[0]].coll_is & (PL_COLL_MOVES_DATA | PL_COLL_ROOTED);

		if ((!any && (m->group == PL_NONE || is != PL_COLL_MOVES_DATA)) ||
		    !pl_clock_has_ends(a, m))
			continue;
		for (uint32_t k = 1; k < m->n; k++)
			pl_union_join(set, a->ev[ev[0]].clock, a->ev[ev[k]].clock);
	}
	for (uint32_t c = 0; c < a->n_clocks; c++)
		set[c] = pl_union_root(set, c);
}

/* Fit the clocks of each component against its lowest one; `component` NULL: all against the first.
 * found[clock], in mem. An offset is 0 where nothing joins the clock. */
static int fit_clocks(struct pl_align *a, const uint32_t *component, struct pl_arena *mem,
		      struct pl_clock_fit_clock **found, struct pl_err *err)
{
	struct pl_clock_fit_in in;
	struct pl_clock_fit_clock *out;

	PL_CHECK(pl_clock_probes(a, &in, mem, err));
	PL_CHECK(pl_arena_array(mem, &out, a->n_clocks + 1u, sizeof(*out), err));
	PL_CHECK(pl_arena_array(mem, found, a->n_clocks + 1u, sizeof(**found), err));
	in.component = component;
	for (uint32_t c = 0; c < a->n_clocks; c++)
		(*found)[c] = (struct pl_clock_fit_clock){ .offset_ci = -1, .drift_ci = -1 };
	for (uint32_t c = 0, next; c < (component ? a->n_clocks : 1); c++) {
		for (next = c + 1; component && next < a->n_clocks && component[next] != c;)
			next++;
		if (component && (component[c] != c || next == a->n_clocks))
			continue;
		in.first_clock = c;
		PL_CHECK(pl_clock_fit_clocks(&in, out, err));
		for (uint32_t k = c; k < a->n_clocks; k++)
			if (!component || component[k] == c)
				(*found)[k] = out[k];
	}
	for (uint32_t i = 0; i < a->n_clocks; i++) {
		struct pl_clock *c = &a->m->clock[i];
		const struct pl_clock_fit_clock *f = &(*found)[i];
		/* divisions are judged by how far ends scatter */
		double ci = component && f->connected ? f->scatter : f->offset_ci;

		c->offset_ns = f->connected ? f->offset_ns : 0;
		c->drift_ppm = f->connected ? f->drift * 1e6 : 0;
		c->offset_ci_ns = ci >= 0 ? (int64_t)llround(fmin(ci, 0x1p62)) : -1;
		c->drift_ci_ppm = f->drift_ci >= 0 ? f->drift_ci * 1e6 : -1;
	}
	return 0;
}

int pl_clock_partitions(struct pl_align *a, struct pl_err *err)
{
	struct pl_clock_fit_clock *found;
	struct pl_arena mem = { 0 };
	int rc;

	find_joined(a, true, a->component);
	find_joined(a, false, a->partition);
	rc = fit_clocks(a, a->component, &mem, &found, err);
	pl_arena_fini(&mem);
	return rc;
}

int pl_clock_estimate(struct pl_align *a, struct pl_err *err)
{
	struct pl_clock_fit_clock *found;
	struct pl_arena mem = { 0 };
	int rc = fit_clocks(a, NULL, &mem, &found, err);

	for (uint32_t i = 0; rc == 0 && i < a->n_clocks; i++) {
		struct pl_clock *c = &a->m->clock[i];

		if (c->drift_ppm == 0 && fabs((double)c->offset_ns) <= round(found[i].scatter))
			c->offset_ns = 0;
		a->rep->clock[i].offset_known = found[i].connected;
		a->rep->clock[i].drift_known = found[i].drift_ci >= 0;
		a->rep->unconnected += !found[i].connected;
	}
	pl_arena_fini(&mem);
	return rc;
}
