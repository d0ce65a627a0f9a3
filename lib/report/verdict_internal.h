/* verdict_internal.h - the critical path cut into parts, and what the ranks did meanwhile. */
#ifndef PL_REPORT_VERDICT_INTERNAL_H
#define PL_REPORT_VERDICT_INTERNAL_H

#include "core/spans.h"
#include "graph/calls.h"
#include "report/verdict.h"

struct verdict_part {	       /* of the path: an operation, or the time before it */
	pl_ns start, ns, left; /* left: without the time that counts for another cause */
	pl_ns new_memory;      /* of that, the time for new memory */
	pl_ns host; /* of a loader's inferred operation: how long the host does other work meanwhile
		     */
	uint32_t step, node;
	uint32_t rank; /* its place in g->rank, PL_NONE */
	uint32_t run;  /* of host parts of a rank with a device: into study.run; PL_NONE */
	uint8_t part;  /* enum pl_path_part */
	uint8_t role, phase, cause;
	pl_id name, module, line;
};
/* Host parts that follow one another while the device has nothing to do. */
struct verdict_run {
	pl_id waited; /* name of the call that had waited for the device before, PL_NONE */
	bool memory;  /* that call allocates, releases or copies */
	pl_ns host, covered, device; /* device: of the path, until the next run begins */
};
struct verdict_rank {
	bool device;
	int32_t stage, stages;	    /* its stage, -1 unknown, and how many there are */
	uint64_t sends;		    /* messages to other stages */
	uint64_t forward, backward; /* of these: behind operations of a forward, backward pass */
	pl_ns compute;		    /* over the span, without that of phases that are causes */
	pl_ns held;		    /* computation in those phases, in the span */
	pl_ns phase[PL_PH_COUNT_];  /* only the time of phases that are causes */
};
/* Of a rank in a step. */
struct verdict_cell {
	pl_ns compute;	     /* without that of phases that are causes */
	pl_ns last_backward; /* its end, INT64_MIN: none */
	/* passes and updates: the first begins, the last ends; INT64_MAX, INT64_MIN: none */
	pl_ns model_begin, model_end;
};
struct verdict_product { /* by step, place of the rank, start */
	uint32_t step, rank;
	pl_ns start;
	bool backward;
};
struct verdict_tail {	   /* of a step: what the path does behind the backward pass */
	pl_ns ns, longest; /* of all, and of one operation or gap */
	bool products;	   /* it multiplies matrices or the like */
};
struct verdict_transfers { /* of one group or pair of ranks, of one kind and size */
	uint32_t size;	   /* which kind and size */
	bool compared;	   /* its group or pair is */
	int64_t who;	   /* a group, or -1 - (a << 31 | b) for the ranks a < b */
	pl_ns ns;
	uint64_t n;
};
struct verdict_study {
	const struct pl_graph *g;
	const struct pl_sim *s;
	const struct pl_run *r;
	const struct pl_path *path;
	const struct pl_account *account;
	const struct pl_new_memory *memory;
	struct verdict_part *part;
	size_t n_parts;
	struct verdict_run *run;
	size_t n_runs, cap_runs;
	struct verdict_rank *rank;
	uint32_t *rank_of;	   /* by resource: place in g->rank, PL_NONE */
	struct verdict_cell *cell; /* [step][rank] */
	struct verdict_tail *tail; /* [step] */
	/* The steps of a shape: the first, by shape, and the one after each, PL_NONE: no more. */
	uint32_t *alike, *first_alike, *next_alike; /* the last two are parts of the first */
	pl_ns usual_tail;
	size_t long_tails;		 /* that something unusual makes long */
	pl_ns lost;			 /* operations lose up to this time: see verdict_pauses.c */
	struct pl_spans comm;		 /* transfers, by place of the rank */
	struct verdict_product *product; /* those of passes, if the path copies to a device */
	size_t n_products, cap_products;
	bool *gradients; /* [first_comm[shape] + communication]: it carries gradients */
	size_t *first_comm;
	struct pl_intern sizes, pairs;
	struct verdict_transfers *transfers;
	size_t n_transfers, cap_transfers;
	bool messages_between_stages; /* there are sends and receives that are no parts of
					 collectives */
	pl_ns ns[PL_VERDICT_CAUSES_];
	pl_ns new_memory; /* of those of memory-stall: writing into new memory */
	/* Of the path, in parts that a computation covers: they count as computation. */
	pl_ns hidden[PL_VERDICT_CAUSES_];
	/* what the rows say */
	uint32_t slow_rank;    /* place, PL_NONE: none */
	int64_t slow_link;     /* as who above; INT64_MIN: none */
	double slower, uneven; /* shares of its computation: slower operations, more work */
	bool imbalance_moves;  /* the rank that computes most changes */
	bool equal_work;       /* ranks do the same operations, of the same shapes, in each step */
	bool updates;	       /* there are operations of an optimizer */
};

static inline struct verdict_cell *verdict_cell(const struct verdict_study *x, size_t step,
						uint32_t rank)
{
	return &x->cell[step * (size_t)x->g->n_ranks + rank];
}
static inline const struct pl_shape *verdict_shape(const struct verdict_study *x, size_t step)
{
	return &x->g->shape[x->g->step[step].shape];
}
static inline const char *verdict_name(const struct verdict_study *x, pl_id name)
{
	return pl_intern_get(&x->g->str, name);
}
/* A study that looks at one of so many nodes looks at enough of them. It is an odd number, as jobs
 * repeat in even ones. */
#define VERDICT_SAMPLED (1u << 17)
static inline uint64_t verdict_every(const struct verdict_study *x)
{
	uint64_t all = 0;

	for (size_t k = 0; k < x->g->n_steps; k++)
		all += verdict_shape(x, k)->n_nodes;
	return (all / VERDICT_SAMPLED) | 1;
}
/* Is the part of a communication that carries gradients? */
static inline bool verdict_carries_gradients(const struct verdict_study *x,
					     const struct verdict_part *p)
{
	const struct pl_shape *sh = verdict_shape(x, p->step);

	return pl_node_comm(sh, p->node) &&
	       x->gradients[x->first_comm[x->g->step[p->step].shape] + sh->comm[p->node]];
}
/* Is the phase of the part not in the input? */
static inline bool verdict_phase_inferred(const struct verdict_study *x,
					  const struct verdict_part *p)
{
	return p->part == PL_PP_NODE && verdict_shape(x, p->step)->flags[p->node] & PL_NF_PHASE;
}

/* Is it an operation that only models do? */
static inline bool verdict_is_product(const struct pl_graph *g, const struct pl_shape *sh,
				      uint32_t node)
{
	unsigned op = pl_node_operator(g, sh, node);

	return sh->role[node] == PL_RO_COMPUTE &&
	       (pl_graph_is_product(op) || op == PL_OP_NORMALIZATION);
}
/* The direction in which a part copies. PL_COPY_OTHER: it is no copy between host and device. */
static inline enum pl_copy_direction verdict_direction(const struct verdict_study *x,
						       const struct verdict_part *p)
{
	return p->role == PL_RO_COPY && p->name != PL_NONE
		       ? pl_graph_copy_direction(verdict_name(x, p->name))
		       : PL_COPY_OTHER;
}
/* The same of an operation, but PL_COPY_OTHER where pageable memory stops the host. */
static inline enum pl_copy_direction verdict_copies(const struct verdict_study *x,
						    const struct verdict_part *p)
{
	enum pl_copy_direction direction = verdict_direction(x, p);
	bool stops = direction != PL_COPY_OTHER && pl_glob("*Pageable*", verdict_name(x, p->name));

	return p->part != PL_PP_NODE || stops ? PL_COPY_OTHER : direction;
}
/* Does a thread issue communication, or wait in it? That computes nothing. */
static inline bool verdict_issues(const struct verdict_study *x, unsigned role, unsigned phase,
				  uint32_t rank)
{
	return role == PL_RO_COMPUTE && phase == PL_PH_COMM && rank != PL_NONE &&
	       !x->rank[rank].device;
}
static inline bool verdict_computes(const struct verdict_study *x, const struct pl_shape *sh,
				    uint32_t node, uint32_t rank)
{
	return sh->role[node] == PL_RO_COMPUTE &&
	       !verdict_issues(x, sh->role[node], sh->phase ? sh->phase[node] : 0, rank);
}
/* A phase that holds is a cause of its own. What it computes would count twice if ranks were
 * compared by it too. */
static inline bool verdict_compares(const struct verdict_study *x, const struct pl_shape *sh,
				    uint32_t node, uint32_t rank)
{
	return verdict_computes(x, sh, node, rank) &&
	       !(sh->phase && pl_graph_phase_holds(sh->phase[node]));
}
/* Give ns of the part to another cause. */
static inline void verdict_move(struct verdict_study *x, struct verdict_part *p, unsigned to,
				pl_ns ns)
{
	ns = pl_max_i64(0, pl_min_i64(ns, p->left));
	p->left -= ns;
	x->ns[p->cause] -= ns;
	x->ns[to] += ns;
}
#define VERDICT_SILENT_NS 1000000
/* Does the host of a device do something for long that nothing records? What follows one another in
 * Python takes less. */
static inline bool verdict_is_silent(const struct verdict_study *x, const struct verdict_part *p)
{
	return p->role == PL_RO_GAP && p->part == PL_PP_NODE && p->rank != PL_NONE &&
	       x->rank[p->rank].device && p->ns >= VERDICT_SILENT_NS;
}
#define VERDICT_PAUSE_NS 500000 /* a shorter pause of a host thread is nothing unusual */
#define VERDICT_UNUSUAL	 3	/* times the median of the same pause in other steps */
/* Is a pause unusual that is `usual` long in the median, and no time that operations lose too? */
static inline bool pl_verdict_longer(const struct verdict_study *x, pl_ns ns, pl_ns usual)
{
	return ns > VERDICT_PAUSE_NS && ns > VERDICT_UNUSUAL * usual && ns - usual > 2 * x->lost;
}
/* Whose transfer it is, as struct verdict_transfers has it; INT64_MIN: not known. */
int64_t pl_verdict_who(const struct pl_graph *g, const struct pl_shape *sh, uint32_t node);

/* ---- verdict_words.c ---- */
/* The row of a cause. sum: memory for a time of each string of the graph. */
void pl_verdict_describe(struct verdict_study *x, unsigned cause, pl_ns *sum,
			 struct pl_verdict_row *row);

/* ---- verdict_facts.c ---- */
/* One pass over all nodes: rank, cell, comm, transfers, products, and which parts a computation
 * covers. */
int pl_verdict_facts(struct verdict_study *x, struct pl_err *err) PL_MUST;
/* After it: does this copy to a device come before the first product of a pass? Then it may bring
 * samples. */
bool pl_verdict_before_pass(const struct verdict_study *x, const struct verdict_part *p);
/* After it: of a step of a pipeline; 0: its messages do not say. */
unsigned pl_verdict_microbatches(const struct verdict_study *x);

/* ---- verdict_pauses.c ---- */
/* Sets x->lost. */
int pl_verdict_lost(struct verdict_study *x, struct pl_err *err) PL_MUST;
/* A pause that the same thread makes at the same place of some steps, but not of most. */
bool pl_verdict_unusual(const struct verdict_study *x, const struct verdict_part *p);
/* Sets what the row of `other` says of the phase `other`. */
void pl_verdict_between(const struct verdict_study *x, struct pl_verdict_row *row);

/* ---- verdict_ranks.c: time that moves from one cause to another, as ranks or sizes compare ----
 */
int pl_verdict_slow_link(struct verdict_study *x, struct pl_err *err) PL_MUST;
int pl_verdict_contention(struct verdict_study *x, struct pl_err *err) PL_MUST;
int pl_verdict_ranks(struct verdict_study *x, struct pl_err *err) PL_MUST;
/* The rank whose time is far more than that of the others, its place; PL_NONE: none. The time: in a
 * phase; in which its host launches or does other work; of a cause on the path. */
uint32_t pl_verdict_longest_phase(const struct verdict_study *x, unsigned phase);
uint32_t pl_verdict_longest_host(const struct verdict_study *x);
uint32_t pl_verdict_longest_path(const struct verdict_study *x, unsigned cause);

#endif
