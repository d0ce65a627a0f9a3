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
	uint32_t *res;	 /* [resource of the edit]: number in the graph */
	uint32_t *comm;	 /* number of a communication within its step, PL_NONE: not yet */
};

static bool is_gone(const struct pl_edit *e, int32_t rank)
{
	for (size_t i = 0; i < e->n_gone; i++)
		if (e->gone[i] == rank)
			return true;
	return false;
}

static int by_number(const void *a, const void *b)
{
	int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;

	return x < y ? -1 : x > y;
}

/* The resources of ranks that are there, and these ranks. */
static int put_resources(struct put *p, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	struct pl_graph *o = p->out;
	size_t cap = 0, links = 0;
	int rc = pl_grow(&o->res, &o->cap_res, e->n_res, sizeof(*o->res), err);

	if (rc == 0)
		rc = pl_alloc(&p->res, e->n_res, sizeof(*p->res), err);
	pl_free(o->rank);
	o->rank = NULL;
	if (rc < 0 || (rc = pl_grow(&o->rank, &cap, (size_t)e->g->n_ranks + e->n_res,
				    sizeof(*o->rank), err)) < 0)
		return rc;
	o->n_res = 0;
	o->n_ranks = 0;
	for (int32_t i = 0; i < e->g->n_ranks; i++)
		if (!is_gone(e, e->g->rank[i]))
			o->rank[o->n_ranks++] = e->g->rank[i];
	for (size_t i = 0; i < e->n_res; i++) {
		const struct pl_resource *r = &e->res[i];

		p->res[i] = is_gone(e, r->rank) ? PL_NONE : (uint32_t)o->n_res;
		if (p->res[i] == PL_NONE)
			continue;
		o->res[o->n_res++] = *r;
		if (i < e->g->n_res || r->rank < 0 || pl_graph_rank_index(o, r->rank) != PL_NONE)
			continue;
		o->rank[o->n_ranks++] = r->rank;
		pl_sort(o->rank, (size_t)o->n_ranks, sizeof(*o->rank), by_number);
	}
	for (size_t i = 0; i < o->n_links; i++) {
		struct pl_link l = o->link[i];

		l.from = p->res[l.from];
		l.to = p->res[l.to];
		if (l.from != PL_NONE && l.to != PL_NONE)
			o->link[links++] = l;
	}
	o->n_links = links;
	return 0;
}

static int put_groups(struct put *p, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	struct pl_graph *o = p->out;
	int rc = pl_grow(&o->group, &o->cap_groups, e->n_groups, sizeof(*o->group), err);

	if (rc < 0 || (rc = pl_grow(&o->group_rank, &o->cap_group_ranks, e->n_group_ranks,
				    sizeof(*o->group_rank), err)) < 0)
		return rc;
	o->n_group_ranks = 0;
	for (size_t i = 0; i < e->n_groups; i++) {
		struct pl_ggroup x = e->group[i];

		x.rank = (uint32_t)o->n_group_ranks;
		for (uint32_t k = 0; k < e->group[i].n; k++) {
			uint32_t rank = e->group_rank[e->group[i].rank + k];

			if (!is_gone(e, (int32_t)rank))
				o->group_rank[o->n_group_ranks++] = rank;
		}
		x.n = (uint32_t)o->n_group_ranks - x.rank;
		o->group[i] = x;
	}
	o->n_groups = e->n_groups;
	return 0;
}

static int put_tables(struct put *p, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	int rc = pl_graph_copy_tables(e->g, p->out, err);
	pl_id id;

	for (size_t i = 0; rc == 0 && i < e->added.n; i++)
		rc = pl_intern_add(&p->out->str, e->added.str[i], e->added.len[i], &id, err);
	if (rc == 0)
		rc = put_resources(p, err);
	return rc == 0 ? put_groups(p, err) : rc;
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
	if (n->res != PL_NONE)
		s->res[i] = p->res[n->res];
	if (n->comm != PL_NONE) {
		if (p->comm[n->comm] == PL_NONE) {
			s->comms[s->n_comms] = e->comm[n->comm];
			p->comm[n->comm] = s->n_comms++;
		}
		s->comm[i] = p->comm[n->comm];
	}
	s->off[i] = s->n_edges;
	st->start[i] = n->start;
	st->dur[i] = n->dur;
	if (n->type == PL_N_ENTRY)
		return;
	for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next) {
		const struct pl_eedge *ed = &e->edge[x];

		if (e->node[ed->src].step != n->step)
			continue; /* steps meet in entries alone */
		st->lag[s->n_edges] = ed->lag;
		s->src[s->n_edges] = p->local[ed->src];
		s->etype[s->n_edges++] = ed->type;
	}
	if (n->k >= s->n_edges - s->off[i] && s->k)
		s->k[i] = 0; /* some of its members are gone */
}

static int put_step(struct put *p, uint32_t step, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	struct pl_graph *o = p->out;
	size_t nodes = 0, edges = 0, comms = 0;
	unsigned has = 0;
	struct pl_shape *s;
	struct pl_gstep *st;
	int rc;

	for (size_t i = 0; i < p->n; i++) {
		const struct pl_enode *n = &e->node[p->order[i]];

		if (n->step != step)
			continue;
		nodes++;
		comms += n->comm != PL_NONE;
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
	if ((rc = pl_graph_shape_room(s, has, nodes, edges, err)) < 0 ||
	    (rc = pl_alloc(&s->comms, comms, sizeof(*s->comms), err)) < 0 ||
	    (rc = pl_alloc(&st->start, nodes, sizeof(pl_ns), err)) < 0 ||
	    (rc = pl_alloc(&st->dur, nodes, sizeof(pl_ns), err)) < 0 ||
	    (rc = pl_alloc(&st->lag, edges, sizeof(*st->lag), err)) < 0)
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
		if (!p->e->tensor[i].dead)
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
	PL_TRY(pl_alloc(&p.comm, e->n_comms, sizeof(*p.comm), err));
	memset(p.comm, 0xff, e->n_comms * sizeof(*p.comm));
	PL_TRY(put_tables(&p, err));
	for (uint32_t k = 0; k < e->n_steps; k++)
		PL_TRY(put_step(&p, k, err));
	PL_TRY(put_tensors(&p, err));
out:
	pl_free(p.order);
	pl_free(p.local);
	pl_free(p.res);
	pl_free(p.comm);
	if (rc < 0)
		pl_graph_fini(out);
	return rc;
}
