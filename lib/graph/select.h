/*
 * select.h - operations that a selector of a plan or what-if selects; keys: paceline-replay(1).
 *
 * A graph has far fewer names, resources and kinds than nodes. Therefore globs are matched once for
 * each of these, and a node is looked up in three tables. The other keys are compared for each
 * node, if the selector has them.
 */
#ifndef PL_SELECT_H
#define PL_SELECT_H

#include "graph/edit.h"
#include "plan/plan.h"

/* A zeroed struct selects nothing and needs no pl_graph_select_fini(). */
struct pl_graph_select {
	const struct pl_selector *keys;
	char *text[PL_SEL_COUNT_]; /* patterns of numbers, cut into ranges */
	struct pl_lang_range *range[PL_SEL_COUNT_];
	size_t n_ranges[PL_SEL_COUNT_];
	uint8_t *name, *res; /* 1: selected; the last entry: no name, no resource */
	uint32_t n_names, n_res;
	uint8_t *module; /* by id of the string, as name; NULL: any */
	uint8_t kind[PL_RO_COUNT_][256], phase[PL_PH_COUNT_];
	bool by_node; /* size, layer, microbatch, phase or module */
};
/* Is a node of this role and kind selected by kind=comm: a transfer, or an operator that issues it?
 */
static inline bool pl_graph_select_is_comm(unsigned role, unsigned kind)
{
	return role == PL_RO_TRANSFER || (role == PL_RO_COMPUTE && pl_trace_kind_is_comm(kind));
}
/* Check that all patterns can be read and that some kind matches. PL_EDATA. */
int pl_graph_select_check(const struct pl_selector *keys, struct pl_err *err) PL_MUST;
/* Prepare for the nodes of a graph and of its edit, unless `e` is NULL. `keys` must outlive x. */
int pl_graph_select_init(struct pl_graph_select *x, const struct pl_selector *keys,
			 const struct pl_graph *g, const struct pl_edit *e,
			 struct pl_err *err) PL_MUST;
/* PL_EDATA, with the nearest name, if no operation of the graph is selected (select_refuse.c). */
int pl_graph_select_refuse(const struct pl_selector *keys, const struct pl_graph *g,
			   struct pl_err *err) PL_MUST;
bool pl_graph_select_is_number(int key);	  /* are its patterns numbers? */
bool pl_graph_select_has_duration(unsigned role); /* only such nodes are selected */
void pl_graph_select_fini(struct pl_graph_select *x);
/* Does the selector exclude the step of this number (INT64_MIN: the step has none)? */
bool pl_graph_select_step(const struct pl_graph_select *x, int64_t number);

/* The columns that are compared for each node. */
struct pl_graph_select_node {
	int64_t bytes;
	int64_t layer, mb;
	uint8_t phase;
	pl_id module;
};
bool pl_graph_select_more(const struct pl_graph_select *x, const struct pl_graph_select_node *n);

/* Look the node up in the tables: 0 or 1. No branches, because a processor cannot predict which
 * nodes are selected. If x->by_node, pl_graph_select_more() must hold as well. */
static inline unsigned pl_graph_select_tables(const struct pl_graph_select *x, uint8_t role,
					      uint8_t kind, pl_id res, pl_id name)
{
	return x->kind[role][kind] & x->res[res < x->n_res ? res : x->n_res] &
	       x->name[name < x->n_names ? name : x->n_names];
}
/* Node i of a shape: 0 or 1. */
static inline unsigned pl_graph_selects(const struct pl_graph_select *x, const struct pl_shape *s,
					uint32_t i)
{
	unsigned hit = pl_graph_select_tables(x, s->role[i], s->kind[i], s->res[i], s->name[i]);

	if (PL_LIKELY(!x->by_node) || !hit)
		return hit;
	return pl_graph_select_more(x, &(struct pl_graph_select_node){
					       s->bytes ? s->bytes[i] : -1,
					       s->layer ? s->layer[i] : -1, s->mb ? s->mb[i] : -1,
					       s->phase ? s->phase[i] : PL_PH_UNKNOWN,
					       s->module ? s->module[i] : PL_NONE });
}
/* The same for a node of the edit. */
static inline unsigned pl_graph_selects_edited(const struct pl_graph_select *x,
					       const struct pl_enode *n)
{
	return pl_graph_select_tables(x, n->role, n->kind, n->res, n->name) &&
	       (!x->by_node ||
		pl_graph_select_more(x, &(struct pl_graph_select_node){ n->bytes, n->layer, n->mb,
									n->phase, n->module }));
}

#endif
