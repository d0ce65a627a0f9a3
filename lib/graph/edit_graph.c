/*
 * An edit as a graph: each step has its own shape, and the settled starts are its recorded times.
 * The edit also decides the times of later steps, so a shorter step moves all later ones.
 */
#include <stdlib.h>

#include "graph/edit_internal.h"

struct put {
	const struct pl_edit *e;
	struct pl_graph *out;
	uint32_t *order; /* live nodes, by step, in topological order within it */
	size_t *first;	 /* [step + 1]: its first node in `order` */
	size_t n;
	uint32_t *local; /* number within the step, PL_NONE: not in the graph */
	uint32_t *res;	 /* [resource of the edit]: number in the graph */
	uint32_t *comm;	 /* number of a communication within its step, PL_NONE: not used so far */
};

static bool is_there(const void *edit, int32_t rank)
{
	const struct pl_edit *e = edit;

	for (size_t i = 0; i < e->n_gone; i++)
		if (e->gone[i] == rank)
			return false;
	return true;
}

/* Copy the ranks that remain, and their resources. */
static int put_resources(struct put *p, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	struct pl_graph *o = p->out;
	size_t ranks = (size_t)o->n_ranks, cap = ranks;

	PL_CHECK(pl_alloc(&p->res, e->n_res, sizeof(*p->res), err));
	for (size_t i = o->n_res; i < e->n_res; i++) {
		const struct pl_resource *r = &e->res[i];

		PL_CHECK(pl_append(&o->res, &o->n_res, &o->cap_res, r, sizeof(*r), err));
		if (r->rank < 0 || pl_graph_rank_index(o, r->rank) != PL_NONE)
			continue;
		PL_CHECK(pl_append(&o->rank, &ranks, &cap, &r->rank, sizeof(r->rank), err));
		o->n_ranks++;
		pl_sort(o->rank, ranks, sizeof(*o->rank), pl_compare_i32);
	}
	pl_graph_keep_ranks(o, is_there, e, p->res);
	return 0;
}

static int put_groups(struct put *p, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	struct pl_graph *o = p->out;

	o->n_groups = o->n_group_ranks = 0;
	for (size_t i = 0; i < e->n_groups; i++) {
		struct pl_ggroup x = e->group[i];

		x.rank = (uint32_t)o->n_group_ranks;
		for (uint32_t k = 0; k < x.n; k++) {
			const uint32_t *rank = &e->group_rank[e->group[i].rank + k];

			if (is_there(e, (int32_t)*rank))
				PL_CHECK(pl_append(&o->group_rank, &o->n_group_ranks,
						   &o->cap_group_ranks, rank, sizeof(*rank), err));
		}
		x.n = (uint32_t)o->n_group_ranks - x.rank;
		PL_CHECK(pl_append(&o->group, &o->n_groups, &o->cap_groups, &x, sizeof(x), err));
	}
	return 0;
}

static int put_tables(struct put *p, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	pl_id id;

	PL_CHECK(pl_graph_copy_tables(e->g, p->out, err));
	for (size_t i = 0; i < e->added.n; i++)
		PL_CHECK(pl_intern_add(&p->out->str, e->added.str[i], e->added.len[i], &id, err));
	for (size_t i = 0; i < e->n_work; i++)
		PL_CHECK(pl_append(&p->out->work, &p->out->n_work, &p->out->cap_work, &e->work[i],
				   sizeof(*e->work), err));
	PL_CHECK(put_resources(p, err));
	return put_groups(p, err);
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
	st->dur[i] = pl_edit_end(e, node) - n->start;
	if (n->type == PL_N_ENTRY)
		return;
	for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next) {
		const struct pl_eedge *ed = &e->edge[x];

		if (e->node[ed->src].step != n->step)
			continue; /* only entries connect steps */
		st->lag[s->n_edges] = ed->lag;
		s->src[s->n_edges] = p->local[ed->src];
		s->etype[s->n_edges++] = ed->type;
	}
	if (n->k >= s->n_edges - s->off[i] && s->k)
		s->k[i] = 0; /* some of its members were removed */
}

static int put_step(struct put *p, uint32_t step, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	struct pl_graph *o = p->out;
	size_t nodes = 0, edges = 0, comms = 0;
	unsigned has = 0;
	struct pl_shape *s;
	struct pl_gstep *st;

	for (size_t i = p->first[step]; i < p->first[step + 1]; i++) {
		const struct pl_enode *n = &e->node[p->order[i]];

		nodes++;
		comms += n->comm != PL_NONE;
#define HAS(member, word, type, unknown, values, bit)                                              \
	has |= n->member != (type)(unknown) ? (bit) : 0u;
		PL_NODE_OPTIONAL_COLUMNS(HAS)
		for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next)
			edges++;
	}
	PL_CHECK(pl_append(&o->shape, &o->n_shapes, &o->cap_shapes, &(struct pl_shape){ 0 },
			   sizeof(*s), err));
	PL_CHECK(pl_append(&o->step, &o->n_steps, &o->cap_steps,
			   &(struct pl_gstep){ .number = e->step[step].number, .shape = step },
			   sizeof(*st), err));
	s = &o->shape[o->n_shapes - 1];
	st = &o->step[o->n_steps - 1];
	PL_CHECK(pl_graph_shape_room(s, has, nodes, edges, err));
	PL_CHECK(pl_alloc(&s->comms, comms, sizeof(*s->comms), err));
	PL_CHECK(pl_alloc(&st->start, nodes, sizeof(pl_ns), err));
	PL_CHECK(pl_alloc(&st->dur, nodes, sizeof(pl_ns), err));
	PL_CHECK(pl_alloc(&st->lag, edges, sizeof(*st->lag), err));
	for (int pass = 0; pass < 2; pass++) { /* entries first */
		for (size_t i = p->first[step]; i < p->first[step + 1]; i++) {
			const struct pl_enode *n = &e->node[p->order[i]];

			if (p->order[i] != e->step[step].sink && (n->type == PL_N_ENTRY) == !pass)
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

	return node == PL_NONE || p->local[node] == PL_NONE
		       ? 0
		       : pl_append(&o->consumer, &o->n_consumers, &o->cap_consumers,
				   &p->local[node], sizeof(*p->local), err);
}

/* Copy a tensor. The current communication replaces the recorded one among its consumers. */
static int put_tensor(struct put *p, const struct pl_etensor *x, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	const struct pl_tensor *from = &e->g->tensor[x->tensor];
	struct pl_graph *o = p->out;
	struct pl_tensor t = *from;

	t.bytes = x->bytes;
	t.shape = x->step;
	t.producer = x->producer == PL_NONE ? PL_NONE : p->local[x->producer];
	t.consumer = (uint32_t)o->n_consumers;
	PL_CHECK(put_consumer(p, x->arrive, err));
	for (uint32_t c = 0; c < from->n_consumers; c++) {
		uint32_t node = e->step[x->step].first + e->g->consumer[from->consumer + c];

		if (e->node[node].role != PL_RO_ARRIVE)
			PL_CHECK(put_consumer(p, node, err));
	}
	t.n_consumers = (uint32_t)o->n_consumers - t.consumer;
	return pl_append(&o->tensor, &o->n_tensors, &o->cap_tensors, &t, sizeof(t), err);
}

/* Steps may be interleaved in the order of all nodes: a counting sort keeps that of each step. */
static int sort_by_step(struct put *p, struct pl_err *err)
{
	const struct pl_edit *e = p->e;
	uint32_t *sorted = NULL;
	size_t *next = NULL;
	int rc;

	PL_TRY(pl_alloc(&p->first, e->n_steps + (size_t)1, sizeof(*p->first), err));
	PL_TRY(pl_alloc(&next, e->n_steps + (size_t)1, sizeof(*next), err));
	PL_TRY(pl_alloc(&sorted, p->n, sizeof(*sorted), err));
	for (size_t i = 0; i < p->n; i++)
		p->first[e->node[p->order[i]].step + 1]++;
	for (uint32_t k = 0; k < e->n_steps; k++)
		p->first[k + 1] += p->first[k];
	memcpy(next, p->first, (e->n_steps + (size_t)1) * sizeof(*next));
	for (size_t i = 0; i < p->n; i++)
		sorted[next[e->node[p->order[i]].step]++] = p->order[i];
	pl_free(p->order);
	p->order = sorted;
	sorted = NULL;
out:
	pl_free(sorted);
	pl_free(next);
	return rc;
}

int pl_edit_graph(const struct pl_edit *e, struct pl_graph *out, struct pl_err *err)
{
	struct put p = { .e = e, .out = out };
	int rc;

	pl_graph_init(out);
	PL_TRY(pl_edit_order(e, &p.order, &p.n, err));
	PL_TRY(sort_by_step(&p, err));
	PL_TRY(pl_alloc(&p.local, e->n_nodes, sizeof(*p.local), err));
	memset(p.local, 0xff, e->n_nodes * sizeof(*p.local));
	PL_TRY(pl_alloc(&p.comm, e->n_comms, sizeof(*p.comm), err));
	memset(p.comm, 0xff, e->n_comms * sizeof(*p.comm));
	PL_TRY(put_tables(&p, err));
	for (uint32_t k = 0; k < e->n_steps; k++)
		PL_TRY(put_step(&p, k, err));
	for (size_t i = 0; i < e->n_tensors; i++)
		if (!e->tensor[i].dead)
			PL_TRY(put_tensor(&p, &e->tensor[i], err));
out:
	pl_free(p.order);
	pl_free(p.first);
	pl_free(p.local);
	pl_free(p.res);
	pl_free(p.comm);
	if (rc < 0)
		pl_graph_fini(out);
	return rc;
}
