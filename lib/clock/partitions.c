/*
 * Partitions and offset components: sets of clocks that the matches so far join to each other,
 * though perhaps not to the first clock. Collectives make a partition, within which ends can be
 * compared to the jitter. Partitions that only sends and receives join make an offset component; a
 * transfer there and one back tell an offset no better than the difference between their ways. Each
 * offset component is estimated on its own, against its lowest clock, so that times on it can be
 * compared while matching still goes on. Cost: that of one estimate of everything.
 */
#include <stdlib.h>
#include <string.h>

#include "clock/internal.h"

static void find_components(const struct pl_clock_fit_in *in, uint32_t *component)
{
	for (uint32_t c = 0; c < in->n_clocks; c++)
		component[c] = c;
	for (size_t i = 1; i < in->n_obs; i++)
		if (in->obs[i].match == in->obs[i - 1].match)
			pl_union_join(component, in->obs[i].clock, in->obs[i - 1].clock);
	for (uint32_t c = 0; c < in->n_clocks; c++)
		component[c] = pl_union_root(component, c);
}

static void find_partitions(const struct pl_align *a, uint32_t *partition)
{
	for (uint32_t c = 0; c < a->n_clocks; c++)
		partition[c] = c;
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *m = &a->match[i];
		const uint32_t *ev = a->member + m->first;

		if (m->group == PL_NONE || !(a->ev[ev[0]].coll_is & PL_COLL_MOVES_DATA))
			continue;
		for (uint32_t k = 1; k < m->n; k++)
			pl_union_join(partition, a->ev[ev[0]].clock, a->ev[ev[k]].clock);
	}
	for (uint32_t c = 0; c < a->n_clocks; c++)
		partition[c] = pl_union_root(partition, c);
}

struct part {
	struct pl_clock_fit_obs *obs;
	uint32_t *class;
	pl_ns *first;
	struct pl_clock_fit_clock *out;
};

/* The clock that stands for `c` when offset component `of` is fitted: its lowest comes first. */
static uint32_t place(uint32_t c, uint32_t of)
{
	return c == of ? 0 : c == 0 ? of : c;
}

static int fit_component(const struct pl_clock_fit_in *all, const uint32_t *component, uint32_t of,
			 struct part *p, struct pl_clock *clock, struct pl_err *err)
{
	struct pl_clock_fit_in in = *all;
	uint32_t last = PL_NONE;
	int rc;

	in.obs = p->obs;
	in.match_class = p->class;
	in.first_ns = p->first;
	in.n_obs = 0;
	in.n_matches = 0;
	for (size_t i = 0; i < all->n_obs; i++) {
		const struct pl_clock_fit_obs *o = &all->obs[i];

		if (component[o->clock] != of)
			continue;
		if (o->match != last)
			p->class[in.n_matches++] = all->match_class[o->match];
		last = o->match;
		p->obs[in.n_obs++] =
			(struct pl_clock_fit_obs){ in.n_matches - 1, place(o->clock, of), o->end };
	}
	for (uint32_t c = 0; c < in.n_clocks; c++)
		p->first[place(c, of)] = all->first_ns[c];
	PL_TRY(pl_clock_fit_clocks(&in, p->out, err));
	for (uint32_t c = 0; c < in.n_clocks; c++) {
		const struct pl_clock_fit_clock *f = &p->out[place(c, of)];

		if (component[c] != of || !f->connected)
			continue;
		clock[c].offset_ns = f->offset_ns;
		clock[c].drift_ppm = f->drift * 1e6;
		clock[c].offset_ci_ns = f->offset_ci > 0 ? (int64_t)f->offset_ci : 0;
	}
out:
	return rc;
}

int pl_clock_partitions(struct pl_align *a, struct pl_merge *m, struct pl_partitions *is,
			struct pl_err *err)
{
	struct pl_probes probes = { 0 };
	struct part p = { 0 };
	int rc;

	PL_TRY(pl_clock_probes_gather(a, &probes, err));
	if (!is->component)
		PL_TRY(pl_alloc(&is->component, m->n_clocks + 1u, sizeof(*is->component), err));
	if (!is->partition)
		PL_TRY(pl_alloc(&is->partition, m->n_clocks + 1u, sizeof(*is->partition), err));
	find_components(&probes.in, is->component);
	find_partitions(a, is->partition);
	is->clock = m->clock;
	PL_TRY(pl_alloc(&p.obs, probes.in.n_obs + 1, sizeof(*p.obs), err));
	PL_TRY(pl_alloc(&p.class, probes.in.n_matches + 1u, sizeof(*p.class), err));
	PL_TRY(pl_alloc(&p.first, m->n_clocks + 1u, sizeof(*p.first), err));
	PL_TRY(pl_alloc(&p.out, m->n_clocks + 1u, sizeof(*p.out), err));
	for (uint32_t c = 0; c < m->n_clocks; c++) {
		m->clock[c].offset_ns = 0;
		m->clock[c].drift_ppm = 0;
	}
	for (uint32_t c = 0, k; c < m->n_clocks; c++) {
		for (k = c + 1; k < m->n_clocks && is->component[k] != c;)
			k++;
		if (is->component[c] == c && k < m->n_clocks)
			PL_TRY(fit_component(&probes.in, is->component, c, &p, m->clock, err));
	}
out:
	pl_clock_probes_fini(&probes);
	pl_free(p.obs);
	pl_free(p.class);
	pl_free(p.first);
	pl_free(p.out);
	return rc;
}

void pl_clock_partitions_fini(struct pl_partitions *is)
{
	pl_free(is->component);
	pl_free(is->partition);
}
