/* internal.h - the data that preparation derives from the recording; one pass over a step. */
#ifndef PL_SIM_INTERNAL_H
#define PL_SIM_INTERNAL_H

#include <math.h>

#include "sim/sim.h"

#define SIM_AHEAD 16 /* edges: the times that these need are fetched into the cache early */

struct long_gap { /* unexplained time that does not fit into 31 bits */
	uint32_t node, edge;
	pl_ns gap;
};

struct prep { /* of one step */
	/* [edge]: how long after its source the edge lets the node start. Modelled latency, never
	 * more than the recording allows; on the edge that came last also the unexplained time. */
	int32_t *w;
	struct long_gap *long_gap; /* by node */
	size_t n_long_gaps, cap_long_gaps;
	pl_ns *resource_gap; /* [node], where there are RESOURCE nodes: their unexplained time;
			else NULL */
	pl_ns *work; /* [node], if the durations of some depend on other operations: the duration
			without these; else NULL */
	pl_ns rec_start, rec_end;
	bool reported;
	pl_ns *dur;    /* [node]: changed durations, NULL: as recorded */
	double *exact; /* [node]: the same before they were rounded, for further changes; or NULL */
	uint32_t *k;   /* [node]: in place of that of the shape; or NULL */
};

struct pl_sim {
	const struct pl_graph *g;
	struct prep *step;
	bool has_shared;   /* RESOURCE nodes: the event core decides */
	bool overlap;	   /* the recorded steps overlap */
	double total;	   /* of all durations and delays: no run takes longer */
	double latency_by; /* times what messages on their way take: */
	pl_ns latency_to;  /* -1: as recorded */
};

/* Valid times are within 2^61 ns. The sum of durations is bounded too: no time exceeds 64 bits. */
#define SIM_TOTAL_MAX 0x1p61
#define SIM_TOO_LONG                                                                               \
	"the changes make the durations sum to more than 2^61 ns: use smaller times or factors"

struct last_end { /* of the last operation of a resource */
	pl_ns end;
	uint64_t from; /* step << 32 | node, UINT64_MAX: nothing yet */
};

struct resource_places { /* of shared resources: when each of their places is free */
	pl_ns *free;
	uint32_t *off; /* [resource]; no places if no operation waits for it */
};

/* One step of one run. end has n_nodes; those of ENTRY nodes are filled from `last_end`. */
struct pass {
	const struct pl_sim *s;
	size_t k;
	const pl_ns
		*dur; /* pl_sim_pass_shared() replaces it if durations depend on other operations */
	pl_ns *end;
	/* operations that take `factor` times as long as `dur` (and `exact`) say; NULL: none */
	const struct pl_graph_select *select;
	const double *exact;
	float factor;
	const pl_ns *recorded; /* the recorded starts, if the pass only compares with them; NULL */
	struct last_end *last_end;
	struct resource_places *places; /* of graphs with RESOURCE nodes */
	pl_ns step_start, step_end;	/* out */
};
/* shared.c: the same with RESOURCE nodes. *shared: NULL before the first step; kept from step to
 * step, freed by pl_sim_shared_free(). */
struct sim_shared;
int pl_sim_pass_shared(struct pass *p, struct sim_shared **shared, struct pl_err *err) PL_MUST;
void pl_sim_shared_free(struct sim_shared *x);
int pl_sim_slots_init(const struct pl_resource *res, size_t n_res, struct resource_places *x,
		      struct pl_err *err) PL_MUST;
void pl_sim_slots_fini(struct resource_places *x);
/*
 * Find the unexplained time of RESOURCE nodes: what neither predecessors nor the resource explain.
 * p->resource_gap[] says when each was ready, and becomes the unexplained time. Sets p->work.
 */
int pl_sim_shared_unexplained(struct prep *p, const struct pl_graph *g, const struct pl_gstep *st,
			      struct resource_places *x, struct pl_err *err) PL_MUST;
/* With which arrival a rendezvous fires; 0: with the last, as everything else. */
static inline uint32_t sim_kth(const struct prep *p, const struct pl_shape *sh, uint32_t i)
{
	const uint32_t *k = p->k ? p->k : sh->k;

	return k && sh->type[i] == PL_N_RENDEZVOUS ? k[i] : 0;
}
/* Does this edge count from the start of its source? */
static inline bool edge_from_start(uint8_t type)
{
	return 0x50u >> (type & 7) & 1; /* PL_E_START, PL_E_EARLY */
}

/*
 * The mean step, or the mean period: sums over the reported steps, in order.
 *
 * A period is the time from the end of a step to the end of the next one. The first of some steps
 * that follow one another has none, but it may be the longest. Its time is between that to the
 * start of the next one, which is less where a host runs ahead, and its length, which is more where
 * steps overlap. It is taken to be the mean period, or the nearer of these two limits.
 */
struct sim_mean {
	double length, period, least, most; /* least, most: of the first steps */
	size_t n, n_periods, n_firsts;
	int64_t number; /* of the last step, its start and its end */
	pl_ns start, end;
	bool first; /* there is none before it */
};
static inline void sim_mean_add(struct sim_mean *m, int64_t number, pl_ns start, pl_ns end)
{
	bool follows = m->n && number == m->number + 1;

	m->length += (double)(end - start);
	if (follows) {
		m->period += (double)(end - m->end);
		m->n_periods++;
	}
	if (follows && m->first) {
		m->least += (double)(start - m->start);
		m->most += (double)(m->end - m->start);
		m->n_firsts++;
	}
	m->first = !follows;
	m->n++;
	m->number = number;
	m->start = start;
	m->end = end;
}
static inline double sim_mean_of(const struct sim_mean *m, bool period)
{
	double firsts;

	if (period && m->n_periods) {
		firsts = m->period / (double)m->n_periods * (double)m->n_firsts;
		firsts = fmax(fmin(firsts, fmax(m->least, m->most)), fmin(m->least, m->most));
		return (m->period + firsts) / (double)(m->n_periods + m->n_firsts);
	}
	return m->n ? m->length / (double)m->n : 0;
}
/* The edge that lets the node start in this run (PL_NONE: it has none) and when. */
uint32_t pl_sim_binding(const struct pl_sim *s, const struct pl_run *r, size_t step, uint32_t node,
			pl_ns *t);
/* The delay of an edge, in its two parts: modelled latency and unexplained time. */
void pl_sim_delay(const struct pl_sim *s, size_t step, uint32_t node, uint32_t e, pl_ns *lat,
		  pl_ns *gap);
/* A run of which only the mean step is kept; scale may be NULL. */
int pl_sim_mean_scaled(const struct pl_sim *s, const struct pl_sim_scale *scale, double *mean,
		       struct pl_err *err) PL_MUST;
/* The present duration of a node times a factor. exact, of the step, may be NULL. */
static inline pl_ns sim_scaled(const pl_ns *dur, const double *exact, uint32_t i, float factor)
{
	return (pl_ns)((exact ? exact[i] : (double)dur[i]) * (double)factor + 0.5);
}
/* From the start of the first reported step to the end of the last. */
void pl_sim_span(const struct pl_sim *s, const struct pl_run *r, pl_ns *start, pl_ns *end);
/* Nodes of the longest step. */
size_t pl_sim_longest_step(const struct pl_sim *s);

#endif
