/* internal.h - the data that preparation derives from the recording; one pass over a step. */
#ifndef PL_SIM_INTERNAL_H
#define PL_SIM_INTERNAL_H

#include "sim/sim.h"

struct long_gap { /* unexplained time that does not fit into 31 bits */
	uint32_t node, edge;
	pl_ns gap;
};

struct prep { /* of one step */
	/* [edge]: how long after its source the edge lets the node start. Modelled latency, never
	 * more than the recording leaves room for; on the edge that came last also the unexplained
	 * time. */
	int32_t *w;
	struct long_gap *long_gap; /* by node */
	size_t n_long_gaps, cap_long_gaps;
	pl_ns *resource_gap; /* [node], where there are RESOURCE nodes: their unexplained time;
			else NULL */
	pl_ns *work; /* [node], if the durations of some depend on other operations: the duration
			without these; else NULL */
	pl_ns rec_start, rec_end;
	bool reported;
};

struct pl_sim {
	const struct pl_graph *g;
	struct prep *step;
	bool has_shared; /* RESOURCE nodes: the event core decides */
	double total;	 /* of all durations and delays: no run takes longer */
};

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
	const pl_ns *dur; /* durations, but for: */
	const float *f;	  /* their factors, NULL: all 1. pl_sim_pass_shared() replaces both if
			     durations depend on other operations */
	const int32_t *w; /* delays of edges */
	pl_ns *end;
	struct last_end *last_end;
	struct resource_places *places; /* of graphs with RESOURCE nodes */
	pl_ns step_start, step_end;	/* out */
};
void pl_sim_pass(struct pass *p);
/* shared.c: the same with RESOURCE nodes. *shared: NULL before the first step; kept from step to
 * step, freed by pl_sim_shared_free(). */
struct sim_shared;
int pl_sim_pass_shared(struct pass *p, struct sim_shared **shared, struct pl_err *err) PL_MUST;
void pl_sim_shared_free(struct sim_shared *x);
int pl_sim_slots_init(const struct pl_graph *g, struct resource_places *x,
		      struct pl_err *err) PL_MUST;
void pl_sim_slots_fini(struct resource_places *x);
/*
 * Find the unexplained time of RESOURCE nodes: the time that neither their predecessors nor the
 * resource explain. p->resource_gap[] says when each was ready, and becomes the unexplained time.
 * Sets p->work.
 */
int pl_sim_shared_unexplained(struct prep *p, const struct pl_graph *g, const struct pl_gstep *st,
			      struct resource_places *x, struct pl_err *err) PL_MUST;
/* Does this edge count from the start of its source? */
static inline bool edge_from_start(uint8_t type)
{
	return 0x50u >> (type & 7) & 1; /* PL_E_START, PL_E_EARLY */
}

static inline pl_ns scaled(pl_ns dur, const float *f, size_t node)
{
	return f ? (pl_ns)((double)dur * (double)f[node] + 0.5) : dur;
}

/* The edge that lets the node start in this run (PL_NONE: it has none) and when. */
uint32_t pl_sim_binding(const struct pl_sim *s, const struct pl_run *r, size_t step, uint32_t node,
			pl_ns *t);
/* The delay of an edge in the run, in its two parts: modelled latency and unexplained time. */
void pl_sim_delay_in(const struct pl_sim *s, const struct pl_run *r, size_t step, uint32_t node,
		     uint32_t e, pl_ns *lat, pl_ns *gap);
/* The same in the recording. */
void pl_sim_delay(const struct pl_sim *s, size_t step, uint32_t node, uint32_t e, pl_ns *lat,
		  pl_ns *gap);

/* ---- what-if: selections, compiled against a graph ------------------------------------------- */

struct select;
int pl_sim_select_new(const struct pl_whatif *w, const struct pl_graph *g, struct select **x,
		      struct pl_err *err) PL_MUST;
void pl_sim_select_free(struct select *x);
/* Do all statements scale? Then a factor a node is enough, else it takes struct changed_dur. */
bool pl_sim_select_scales(const struct select *x);
double pl_sim_select_most(const struct select *x); /* no node's factor is greater; at least 1 */
/* Multiply the factors of the step's nodes. How many were selected. */
uint64_t pl_sim_select_scale(struct select *x, size_t step, float *f);

struct changed_dur { /* a duration while statements are applied: base * factor */
	double base;
	float factor;
};
/* Apply all statements to the durations of the step's nodes (d may be NULL: only count). Adds to
 * hits[statement] (unless NULL) how many it selects; their sum. */
uint64_t pl_sim_select_apply(struct select *x, size_t step, struct changed_dur *d, uint64_t *hits);
/* Does a statement change the modelled latency of messages? The latency after the changes. */
bool pl_sim_changes_latency(const struct pl_whatif *w);
pl_ns pl_sim_latency(const struct pl_whatif *w, pl_ns ns);
/* The selections of changes under which times stay in range (PL_ELIMIT). */
int pl_sim_select_for(const struct pl_sim *s, const struct pl_whatif *w, struct select **x,
		      struct pl_err *err) PL_MUST;
/*
 * Several selections as one: each change has a bit, a node's mask has those that select it, and
 * factor[] what such a mask makes of its duration under each selection.
 */
#define SIM_SIDES     PL_SIM_SIDE_BY_SIDE
#define SIM_MASK_BITS 8
struct masks {
	struct select *select[SIM_SIDES];
	size_t n;
	uint8_t *name, *res; /* by id and, behind the last, of none */
	uint8_t kind[PL_RO_COUNT_][256];
	float factor[1 << SIM_MASK_BITS][SIM_SIDES];
	uint32_t n_names, n_res;
};
/* Do masks express the changes? Only if these scale, and select by name, kind and resource. */
bool pl_sim_masks_can(const struct pl_whatif *w);
/* Masks express w[0] .. w[n - 1], which have SIM_MASK_BITS changes at most. pl_sim_masks_fini() is
 * due even after a failure. */
int pl_sim_masks_init(struct masks *m, const struct pl_sim *s, const struct pl_whatif *const *w,
		      size_t n, struct pl_err *err) PL_MUST;
void pl_sim_masks_fini(struct masks *m);
/* The changes that concern the step. */
uint8_t pl_sim_masks_of_step(const struct masks *m, size_t step);
static inline uint8_t sim_mask(const struct masks *m, const struct pl_shape *sh, uint32_t i)
{
	uint32_t res = sh->res[i] < m->n_res ? sh->res[i] : m->n_res;
	uint32_t name = sh->name[i] < m->n_names ? sh->name[i] : m->n_names;

	return m->kind[sh->role[i]][sh->kind[i]] & m->res[res] & m->name[name];
}
/* Nodes of the longest step. */
size_t pl_sim_longest_step(const struct pl_sim *s);

#endif
