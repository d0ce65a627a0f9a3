/*
 * Changes of an edit, and undo.
 *
 * Each edge is in two doubly linked lists, by source and by target. A removed edge keeps its links,
 * so that undo in reverse order puts it back at the same place (Knuth's dancing links). The indices
 * of nodes and edges do not change. Undo deletes added nodes and edges.
 *
 * The length of a step follows from the start of its sink, a node that exists only in the edit.
 * Every live node that counts for the step leads to the sink or to another such node. Functions
 * that remove edges keep this true.
 */
#include <stddef.h>
#include <stdlib.h>

#include "graph/edit_internal.h"

int pl_edit_log(struct pl_edit *e, enum eundo_op op, uint32_t id, int64_t old, struct pl_err *err)
{
	struct pl_eundo u = { old, id, (uint8_t)op };

	return pl_append(&e->undo, &e->n_undo, &e->cap_undo, &u, sizeof(u), err);
}

size_t pl_edit_mark(const struct pl_edit *e)
{
	return e->n_undo;
}

void pl_edit_commit(struct pl_edit *e)
{
	e->n_undo = 0;
}

/* ---- the lists ------------------------------------------------------------------------------- */

/* Put the edge between its neighbours in both lists, or take it out. The edge keeps its links. Undo
 * runs in reverse order, so the neighbours are those of the time of removal. */
static void set_there(struct pl_edit *e, uint32_t edge, bool there)
{
	struct pl_eedge *x = &e->edge[edge];
	uint32_t *out =
		x->out_prev == PL_NONE ? &e->node[x->src].out : &e->edge[x->out_prev].out_next;
	uint32_t *in = x->in_prev == PL_NONE ? &e->node[x->dst].in : &e->edge[x->in_prev].in_next;

	*out = there ? edge : x->out_next;
	*in = there ? edge : x->in_next;
	if (x->out_next != PL_NONE)
		e->edge[x->out_next].out_prev = there ? edge : x->out_prev;
	if (x->in_next != PL_NONE)
		e->edge[x->in_next].in_prev = there ? edge : x->in_prev;
	x->dead = !there;
}

void pl_edit_link(struct pl_edit *e, uint32_t edge)
{
	struct pl_eedge *x = &e->edge[edge];

	x->out_prev = x->in_prev = PL_NONE;
	x->out_next = e->node[x->src].out;
	x->in_next = e->node[x->dst].in;
	set_there(e, edge, true);
}

/* ---- undo ------------------------------------------------------------------------------------ */

/* For each operation: a table (0: the edit itself is the row), and a member of its rows. */
static const struct value {
	size_t table, row, member, size;
} values[EU_VALUES] = {
#define ROW(type, m)		 sizeof(struct type), offsetof(struct type, m), sizeof(((struct type *)NULL)->m)
#define VALUE(op, table, row, m) [op] = { offsetof(struct pl_edit, table), ROW(row, m) }
#define COUNT(op, m)		 [op] = { 0, ROW(pl_edit, m) }
	VALUE(EU_START, node, pl_enode, start),
	VALUE(EU_DUR, node, pl_enode, dur),
	VALUE(EU_FIXED, node, pl_enode, fixed),
	VALUE(EU_STRETCH, share, pl_eshare, stretch),
	VALUE(EU_NODE_DEAD, node, pl_enode, dead),
	VALUE(EU_WEIGHT, edge, pl_eedge, w),
	VALUE(EU_LAG, edge, pl_eedge, lag),
	VALUE(EU_ARRIVE, tensor, pl_etensor, arrive),
	VALUE(EU_REMADE, tensor, pl_etensor, remade),
	VALUE(EU_TENSOR_DEAD, tensor, pl_etensor, dead),
	VALUE(EU_TENSOR_BYTES, tensor, pl_etensor, bytes),
	VALUE(EU_NODE_COMM, node, pl_enode, comm),
	VALUE(EU_NODE_BYTES, node, pl_enode, bytes),
	VALUE(EU_NODE_WORK, node, pl_enode, work),
	COUNT(EU_NODES, n_nodes),
	COUNT(EU_TENSORS, n_tensors),
	COUNT(EU_RESOURCES, n_res),
	COUNT(EU_GROUPS, n_groups),
	COUNT(EU_GROUP_RANKS, n_group_ranks),
	COUNT(EU_COMMS, n_comms),
	COUNT(EU_WORK, n_work),
	COUNT(EU_GONE, n_gone),
#undef ROW
#undef VALUE
#undef COUNT
};

/* Store a value of 1, 4 or 8 bytes; returns the old one. */
static int64_t exchange(struct pl_edit *e, enum eundo_op op, size_t id, int64_t to)
{
	const struct value *v = &values[op];
	char *rows = (char *)e;
	void *at;
	int64_t old;

	if (v->table)
		memcpy(&rows, rows + v->table, sizeof(e->node)); /* all tables are pointers */
	at = rows + id * v->row + v->member;
	if (v->size == sizeof(bool)) {
		old = *(bool *)at;
		*(bool *)at = to;
	} else if (v->size == sizeof(uint32_t)) {
		old = *(uint32_t *)at;
		*(uint32_t *)at = (uint32_t)to;
	} else {
		old = *(int64_t *)at;
		*(int64_t *)at = to;
	}
	return old;
}

static int set_value(struct pl_edit *e, enum eundo_op op, size_t id, int64_t to, struct pl_err *err)
{
	PL_CHECK(pl_edit_log(e, op, (uint32_t)id, 0, err));
	e->undo[e->n_undo - 1].old = exchange(e, op, id, to);
	return 0;
}

void pl_edit_undo(struct pl_edit *e, size_t mark)
{
	while (e->n_undo > mark) {
		struct pl_eundo u = e->undo[--e->n_undo];

		switch ((enum eundo_op)u.op) {
		case EU_START: /* the most frequent */
			e->node[u.id].start = u.old;
			break;
		case EU_ADD_EDGE:
			set_there(e, u.id, false);
			e->n_edges = u.id;
			break;
		case EU_DROP_EDGE:
			set_there(e, u.id, true);
			break;
		case EU_BEGIN:
			e->node[e->step[u.id].begin[--e->step[u.id].n_begin]].begins = false;
			break;
		case EU_TOUCH:
			pl_edit_untouch(e, u.id);
			break;
		case EU_SEED:
			pl_edit_touch_again(e, u.id);
			break;
		default:
			exchange(e, (enum eundo_op)u.op, u.id, u.old);
			break;
		}
	}
}

/* ---- changes --------------------------------------------------------------------------------- */

static int new_edge(struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type, pl_ns w,
		    pl_ns lag, struct pl_err *err)
{
	PL_CHECK(pl_grow(&e->edge, &e->cap_edges, e->n_edges + 1, sizeof(*e->edge), err));
	PL_CHECK(pl_edit_touch(e, dst, err));
	PL_CHECK(pl_edit_log(e, EU_ADD_EDGE, (uint32_t)e->n_edges, 0, err));
	e->edge[e->n_edges] = (struct pl_eedge){ .src = src,
						 .dst = dst,
						 .w = w,
						 .lag = (int32_t)pl_min_i64(lag, INT32_MAX),
						 .type = (uint8_t)type };
	pl_edit_link(e, (uint32_t)e->n_edges++);
	return 0;
}

static int add_edge(struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type, pl_ns w,
		    pl_ns lag, struct pl_err *err)
{
	if (src >= e->n_nodes || dst >= e->n_nodes || src == dst || e->node[src].dead ||
	    e->node[dst].dead)
		return pl_fail(err, PL_EINTERNAL, "edge %u -> %u of an edit with %zu nodes", src,
			       dst, e->n_nodes);
	if (e->n_edges >= PL_NONE - 1)
		return pl_fail(err, PL_ELIMIT, "more than %u edges", PL_NONE - 1);
	return new_edge(e, src, dst, type, w, lag, err);
}

int pl_edit_add_edge(struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type, pl_ns w,
		     struct pl_err *err)
{
	return add_edge(e, src, dst, type, w, w, err);
}

int pl_edit_add_edge_like(struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type,
			  const struct pl_eedge *like, pl_ns more, struct pl_err *err)
{
	return add_edge(e, src, dst, type, like->w + more, like->lag + more, err);
}

/* If the end of the node no longer counts for its step, add an edge to the sink. */
static int keep_covered(struct pl_edit *e, uint32_t node, struct pl_err *err)
{
	const struct pl_enode *n = &e->node[node];

	if (n->dead || !(n->flags & PL_NF_IN_STEP))
		return 0;
	for (uint32_t x = n->out; x != PL_NONE; x = e->edge[x].out_next)
		if (pl_edit_covers(e, &e->edge[x]))
			return 0;
	return new_edge(e, node, e->step[n->step].sink, PL_E_SEQ, 0, 0, err);
}

int pl_edit_may_begin(struct pl_edit *e, uint32_t node, struct pl_err *err)
{
	uint32_t step = e->node[node].step;
	struct pl_estep *s = &e->step[step];

	if (!(e->node[node].flags & PL_NF_STEP_BEGIN) || e->node[node].begins)
		return 0;
	PL_CHECK(pl_grow(&s->begin, &s->cap_begin, s->n_begin + 1, sizeof(node), err));
	PL_CHECK(pl_edit_log(e, EU_BEGIN, step, 0, err));
	s->begin[s->n_begin++] = node;
	e->node[node].begins = true;
	return 0;
}

static int drop_edge(struct pl_edit *e, uint32_t edge, struct pl_err *err)
{
	uint32_t dst = e->edge[edge].dst;

	PL_CHECK(pl_edit_may_begin(e, dst, err));
	PL_CHECK(pl_edit_touch(e, dst, err));
	PL_CHECK(pl_edit_log(e, EU_DROP_EDGE, edge, 0, err));
	set_there(e, edge, false);
	return 0;
}

int pl_edit_drop_edge(struct pl_edit *e, uint32_t edge, struct pl_err *err)
{
	uint32_t src = e->edge[edge].src;

	if (edge >= e->n_edges || e->edge[edge].dead)
		return pl_fail(err, PL_EINTERNAL, "edge %u of an edit is not there", edge);
	PL_CHECK(drop_edge(e, edge, err));
	return keep_covered(e, src, err);
}

/* Let the entry of the next step that follows this resource also follow the node. */
static int follow(struct pl_edit *e, uint32_t node, uint32_t res, struct pl_err *err)
{
	const uint32_t *next = e->step[e->node[node].step].next;

	return !next || res >= e->g->n_res || next[res] == PL_NONE
		       ? 0
		       : new_edge(e, node, next[res], PL_E_SEQ, 0, 0, err);
}

int pl_edit_add_node(struct pl_edit *e, const struct pl_enode *n, uint32_t after, uint32_t *id,
		     struct pl_err *err)
{
	struct pl_enode *to;

	if (n->step >= e->n_steps)
		return pl_fail(err, PL_EINTERNAL, "step %u of an edit with %u", n->step,
			       e->n_steps);
	if (e->n_nodes >= PL_NONE - 1)
		return pl_fail(err, PL_ELIMIT, "more than %u nodes", PL_NONE - 1);
	PL_CHECK(pl_grow(&e->node, &e->cap_nodes, e->n_nodes + 1, sizeof(*e->node), err));
	if (e->share || n->type == PL_N_RESOURCE) {
		bool first = !e->share;

		PL_CHECK(pl_grow(&e->share, &e->cap_share, e->n_nodes + 1, sizeof(*e->share), err));
		if (first)
			memset(e->share, 0, e->n_nodes * sizeof(*e->share));
		e->share[e->n_nodes] = (struct pl_eshare){ 0 };
	}
	PL_CHECK(pl_edit_log(e, EU_NODES, 0, *id = (uint32_t)e->n_nodes, err));
	to = &e->node[e->n_nodes++];
	*to = *n;
	to->in = to->out = PL_NONE;
	to->label = after == PL_NONE ? 0 : e->node[after].label + 1;
	to->dead = to->queued = to->begins = false;
	PL_CHECK(pl_edit_touch(e, *id, err));
	PL_CHECK(pl_edit_may_begin(e, *id, err));
	PL_CHECK(follow(e, *id, n->res, err));
	return keep_covered(e, *id, err);
}

int pl_edit_drop_node(struct pl_edit *e, uint32_t node, struct pl_err *err)
{
	if (node >= e->n_nodes || e->node[node].dead)
		return pl_fail(err, PL_EINTERNAL, "node %u of an edit is not there", node);
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next) {
		uint32_t src = e->edge[x].src;

		if (e->node[src].res == e->node[node].res && e->node[src].type != PL_N_ENTRY)
			PL_CHECK(follow(e, src, e->node[src].res, err));
	}
	PL_CHECK(set_value(e, EU_NODE_DEAD, node, true, err));
	while (e->node[node].out != PL_NONE)
		PL_CHECK(drop_edge(e, e->node[node].out, err));
	while (e->node[node].in != PL_NONE)
		PL_CHECK(pl_edit_drop_edge(e, e->node[node].in, err));
	return 0;
}

/* Edges that count from the start of their source do not depend on its duration. */
int pl_edit_set_dur(struct pl_edit *e, uint32_t node, pl_ns dur, struct pl_err *err)
{
	if (e->node[node].dur == dur)
		return 0;
	for (uint32_t x = e->node[node].out; x != PL_NONE; x = e->edge[x].out_next)
		if (!pl_edit_from_start(e->edge[x].type))
			PL_CHECK(pl_edit_touch(e, e->edge[x].dst, err));
	return set_value(e, EU_DUR, node, dur, err);
}

int pl_edit_set_weight(struct pl_edit *e, uint32_t edge, pl_ns w, struct pl_err *err)
{
	pl_ns lag = pl_max_i64(0, e->edge[edge].lag + (w - e->edge[edge].w));

	if (e->edge[edge].w == w)
		return 0;
	PL_CHECK(set_value(e, EU_LAG, edge, pl_min_i64(lag, INT32_MAX), err));
	PL_CHECK(pl_edit_touch(e, e->edge[edge].dst, err));
	return set_value(e, EU_WEIGHT, edge, w, err);
}

int pl_edit_set_fixed(struct pl_edit *e, uint32_t node, pl_ns fixed, struct pl_err *err)
{
	PL_CHECK(pl_edit_touch(e, node, err));
	return set_value(e, EU_FIXED, node, fixed, err);
}

int pl_edit_set_times(struct pl_edit *e, uint32_t node, pl_ns start, pl_ns stretch,
		      struct pl_err *err)
{
	if (e->node[node].start != start)
		PL_CHECK(set_value(e, EU_START, node, start, err));
	return e->share[node].stretch == stretch ? 0 : set_value(e, EU_STRETCH, node, stretch, err);
}

int pl_edit_set_arrive(struct pl_edit *e, size_t tensor, uint32_t arrive, struct pl_err *err)
{
	return set_value(e, EU_ARRIVE, tensor, arrive, err);
}

int pl_edit_part_steps(struct pl_edit *e, struct pl_err *err)
{
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		struct pl_enode *n = &e->node[i];

		if (n->type != PL_N_ENTRY)
			continue;
		n->fixed = n->start;
		while (n->in != PL_NONE)
			PL_CHECK(pl_edit_drop_edge(e, n->in, err));
	}
	for (uint32_t k = 0; k < e->n_steps; k++) {
		pl_free(e->step[k].next);
		e->step[k].next = NULL;
	}
	PL_CHECK(pl_edit_settle(e, err));
	pl_edit_commit(e);
	return 0;
}

/* ---- tensors, resources, groups, ranks ------------------------------------------------------- */

int pl_edit_add_tensor(struct pl_edit *e, const struct pl_etensor *t, struct pl_err *err)
{
	PL_CHECK(pl_edit_log(e, EU_TENSORS, 0, (int64_t)e->n_tensors, err));
	return pl_append(&e->tensor, &e->n_tensors, &e->cap_tensors, t, sizeof(*t), err);
}

int pl_edit_drop_tensor(struct pl_edit *e, size_t tensor, struct pl_err *err)
{
	return set_value(e, EU_TENSOR_DEAD, tensor, true, err);
}

int pl_edit_add_resource(struct pl_edit *e, const struct pl_resource *r, uint32_t *id,
			 struct pl_err *err)
{
	PL_CHECK(pl_edit_log(e, EU_RESOURCES, 0, *id = (uint32_t)e->n_res, err));
	return pl_append(&e->res, &e->n_res, &e->cap_res, r, sizeof(*r), err);
}

int pl_edit_add_group(struct pl_edit *e, pl_id name, const int32_t *rank, uint32_t n, uint32_t *id,
		      struct pl_err *err)
{
	struct pl_ggroup x = { .name = name, .rank = (uint32_t)e->n_group_ranks, .n = n };

	PL_CHECK(pl_edit_log(e, EU_GROUPS, 0, *id = (uint32_t)e->n_groups, err));
	PL_CHECK(pl_edit_log(e, EU_GROUP_RANKS, 0, x.rank, err));
	for (uint32_t i = 0; i < n; i++)
		PL_CHECK(pl_append(&e->group_rank, &e->n_group_ranks, &e->cap_group_ranks, &rank[i],
				   sizeof(*e->group_rank), err));
	return pl_append(&e->group, &e->n_groups, &e->cap_groups, &x, sizeof(x), err);
}

int pl_edit_drop_rank(struct pl_edit *e, int32_t rank, struct pl_err *err)
{
	PL_CHECK(pl_edit_log(e, EU_GONE, 0, (int64_t)e->n_gone, err));
	PL_CHECK(pl_append(&e->gone, &e->n_gone, &e->cap_gone, &rank, sizeof(rank), err));
	for (size_t i = 0; i < e->n_tensors; i++)
		if (!e->tensor[i].dead && e->tensor[i].rank == rank)
			PL_CHECK(pl_edit_drop_tensor(e, i, err));
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];

		if (!n->dead && n->res != PL_NONE && e->res[n->res].rank == rank)
			PL_CHECK(pl_edit_drop_node(e, i, err));
	}
	return 0;
}

int pl_edit_set_remade(struct pl_edit *e, size_t tensor, bool remade, struct pl_err *err)
{
	return set_value(e, EU_REMADE, tensor, remade, err);
}

int pl_edit_set_bytes(struct pl_edit *e, size_t tensor, int64_t bytes, struct pl_err *err)
{
	return set_value(e, EU_TENSOR_BYTES, tensor, bytes, err);
}

/* ---- names ----------------------------------------------------------------------------------- */

const char *pl_edit_name(const struct pl_edit *e, uint32_t id)
{
	return id < e->g->str.n ? pl_intern_get(&e->g->str, id)
				: pl_intern_get(&e->added, id - (uint32_t)e->g->str.n);
}

const char *pl_edit_algorithm(const struct pl_edit *e, uint32_t node)
{
	const struct pl_gcomm *c = pl_edit_comm(e, node);

	return c && c->algorithm != PL_NONE ? pl_edit_name(e, c->algorithm) : NULL;
}

int pl_edit_add_comm(struct pl_edit *e, const struct pl_gcomm *c, uint32_t *id, struct pl_err *err)
{
	PL_CHECK(pl_edit_log(e, EU_COMMS, 0, *id = (uint32_t)e->n_comms, err));
	return pl_append(&e->comm, &e->n_comms, &e->cap_comms, c, sizeof(*c), err);
}

int pl_edit_set_comm(struct pl_edit *e, uint32_t node, uint32_t comm, int64_t bytes,
		     struct pl_err *err)
{
	PL_CHECK(set_value(e, EU_NODE_COMM, node, comm, err));
	return set_value(e, EU_NODE_BYTES, node, bytes, err);
}

int pl_edit_add_work(struct pl_edit *e, const struct pl_gwork *w, uint32_t *row, struct pl_err *err)
{
	PL_CHECK(pl_edit_log(e, EU_WORK, 0, (int64_t)e->n_work, err));
	*row = (uint32_t)(e->g->n_work + e->n_work);
	return pl_append(&e->work, &e->n_work, &e->cap_work, w, sizeof(*w), err);
}

int pl_edit_set_work(struct pl_edit *e, uint32_t node, uint32_t row, struct pl_err *err)
{
	return set_value(e, EU_NODE_WORK, node, row, err);
}

int pl_edit_add_name(struct pl_edit *e, const char *name, uint32_t *id, struct pl_err *err)
{
	size_t n = strlen(name);

	*id = pl_intern_find(&e->g->str, name, n);
	if (*id != PL_NONE)
		return 0;
	PL_CHECK(pl_intern_add(&e->added, name, n, id, err));
	*id += (uint32_t)e->g->str.n;
	return 0;
}
