/*
 * An edit as a graph: each step with a shape of its own, its recording the settled starts. Times of
 * later steps are those of the edit, so a shorter step moves all that follows.
 */
#include <stdlib.h>
#include <string.h>

#include "graph/edit_internal.h"

struct put {
	const struct pl_edit *e;
	struct pl_graph *out;
	uint32_t *order; /* live nodes, topological */
	size_t n;
	uint32_t *local; /* number within the step, PL_NONE: not in the graph */
};

static int put_tables(struct put *p, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	int rc = pl_graph_copy_tables(e->g, p->out, err);
	pl_id id;

	for (size_t i = 0; rc == 0 && i < e->added.n; i++)
		rc = pl_intern_add(&p->out->str, e->added.str[i], e->added.len[i], &id, err);
	return rc;
}

static void put_node(struct put *p, struct pl_shape *s, struct pl_gstep *st, uint32_t node)
{
	const struct pl_edit *e = p->e;
	const struct pl_enode *n = &e->node[node];
	uint32_t i = s->n_nodes++;

	p->local[node] = i;
#define PUT(member, ...)                                                                           \
	if (s->member)                                                                             \
		s->member[i] = n->member;
	PL_NODE_COLUMNS(PUT)
	s->off[i] = s->n_edges;
	st->start[i] = n->start;
	st->dur[i] = n->dur;
	if (n->type == PL_N_ENTRY)
		return;
	for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next) {
		const struct pl_eedge *ed = &e->edge[x];

		if (e->node[ed->src].step != n->step)
			continue; /* steps meet in entries alone */
		s->src[s->n_edges] = p->local[ed->src];
		s->etype[s->n_edges++] = ed->type;
	}
}

static int put_step(struct put *p, uint32_t step, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	struct pl_graph *o = p->out;
	size_t nodes = 0, edges = 0;
	unsigned has = 0;
	struct pl_shape *s;
	struct pl_gstep *st;
	int rc;

	for (size_t i = 0; i < p->n; i++) {
		const struct pl_enode *n = &e->node[p->order[i]];

		if (n->step != step)
			continue;
		nodes++;
#define HAS(member, word, type, unknown, values, bit)                                              \
	has |= n->member != (type)(unknown) ? (bit) : 0u;
		PL_NODE_OPTIONAL_COLUMNS(HAS)
		for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next)
			edges++;
	}
	if ((rc = pl_grow(&o->shape, &o->cap_shapes, o->n_shapes + 1, sizeof(*s), err)) < 0 ||
	    (rc = pl_grow(&o->step, &o->cap_steps, o->n_steps + 1, sizeof(*st), err)) < 0)
		return rc;
	s = &o->shape[o->n_shapes++];
	st = &o->step[o->n_steps++];
	memset(s, 0, sizeof(*s));
	*st = (struct pl_gstep){ .number = e->step[step].number, .shape = step };
	if ((rc = pl_shape_room(s, has, nodes, edges, err)) < 0 ||
	    (rc = pl_alloc(&st->start, nodes, sizeof(pl_ns), err)) < 0 ||
	    (rc = pl_alloc(&st->dur, nodes, sizeof(pl_ns), err)) < 0)
		return rc;
	for (int pass = 0; pass < 2; pass++) { /* entries come first */
		for (size_t i = 0; i < p->n; i++) {
			const struct pl_enode *n = &e->node[p->order[i]];

			if (n->step == step && p->order[i] != e->step[step].sink &&
			    (n->type == PL_N_ENTRY) == !pass)
				put_node(p, s, st, p->order[i]);
		}
		if (!pass)
			s->n_entries = s->n_nodes;
	}
	s->off[s->n_nodes] = s->n_edges;
	return 0;
}

static int put_consumer(struct put *p, uint32_t node, struct pl_err *err)
{
	struct pl_graph *o = p->out;
	int rc;

	if (node == PL_NONE || p->local[node] == PL_NONE)
		return 0;
	rc = pl_grow(&o->consumer, &o->cap_consumers, o->n_consumers + 1, sizeof(*o->consumer),
		     err);
	if (rc == 0) {
		o->consumer[o->n_consumers++] = p->local[node];
		o->tensor[o->n_tensors].n_consumers++;
	}
	return rc;
}

/* Consumers are those that it had, but for the communication, which is the present one. */
static int put_tensor(struct put *p, const struct pl_etensor *x, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	const struct pl_tensor *from = &e->g->tensor[x->tensor];
	struct pl_graph *o = p->out;
	struct pl_tensor *t;
	int rc = pl_grow(&o->tensor, &o->cap_tensors, o->n_tensors + 1, sizeof(*t), err);

	if (rc < 0)
		return rc;
	t = &o->tensor[o->n_tensors];
	*t = *from;
	t->shape = x->step;
	t->producer = x->producer == PL_NONE ? PL_NONE : p->local[x->producer];
	t->consumer = (uint32_t)o->n_consumers;
	t->n_consumers = 0;
	rc = put_consumer(p, x->arrive, err);
	for (uint32_t c = 0; rc == 0 && c < from->n_consumers; c++) {
		uint32_t node = e->step[x->step].first + e->g->consumer[from->consumer + c];

		if (e->node[node].role != PL_RO_ARRIVE)
			rc = put_consumer(p, node, err);
	}
	o->n_tensors += rc == 0;
	return rc;
}

static int put_tensors(struct put *p, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < p->e->n_tensors; i++)
		rc = put_tensor(p, &p->e->tensor[i], err);
	return rc;
}

int pl_edit_graph(const struct pl_edit *e, struct pl_graph *out, struct pl_err *err)
{
	struct put p = { .e = e, .out = out };
	int rc;

	pl_graph_init(out);
	PL_TRY(pl_edit_order(e, &p.order, &p.n, err));
	PL_TRY(pl_alloc(&p.local, e->n_nodes, sizeof(*p.local), err));
	memset(p.local, 0xff, e->n_nodes * sizeof(*p.local));
	PL_TRY(put_tables(&p, err));
	for (uint32_t k = 0; k < e->n_steps; k++)
		PL_TRY(put_step(&p, k, err));
	PL_TRY(put_tensors(&p, err));
out:
	pl_free(p.order);
	pl_free(p.local);
	if (rc < 0)
		pl_graph_fini(out);
	return rc;
}
