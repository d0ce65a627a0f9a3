/*
 * An edit from a graph.
 *
 * Entries of the first step keep their recorded times. Later ones follow the last nodes of their
 * resource in the step before, and the entry of that step, which stands for all earlier steps.
 */
#include <stdlib.h>

#include "graph/edit_internal.h"

#define LABEL_SHIFT 20

struct build {
	struct pl_edit *e;
	uint32_t **tail; /* by resource: nodes that its next entry follows */
	size_t *n_tail, *cap_tail;
	uint32_t *node; /* of the current step, by node of the shape */
};

static int put_edge(struct pl_edit *e, uint32_t src, uint32_t dst, unsigned type, pl_ns w,
		    int32_t lag, struct pl_err *err)
{
	struct pl_eedge x = { .src = src, .dst = dst, .w = w, .lag = lag, .type = (uint8_t)type };

	PL_CHECK(pl_append(&e->edge, &e->n_edges, &e->cap_edges, &x, sizeof(x), err));
	pl_edit_link(e, (uint32_t)e->n_edges - 1);
	return 0;
}

static int put_node(struct pl_edit *e, const struct pl_gstep *st, const struct pl_shape *sh,
		    const struct pl_edit_delays *d, uint32_t i, uint32_t step, struct pl_err *err)
{
	struct pl_enode *n;

	/* filled in its place: a copy would load in other sizes what was just stored, and wait */
	PL_CHECK(pl_grow(&e->node, &e->cap_nodes, e->n_nodes + 1, sizeof(*n), err));
	n = &e->node[e->n_nodes];
	*n = pl_edit_blank_node();
	n->start = st->start[i];
	n->dur = d->work ? d->work[i] : st->dur[i];
	if (e->share)
		e->share[e->n_nodes] = (struct pl_eshare){ d->hold[i], st->dur[i] - n->dur };
	n->step = step;
	n->origin = i;
	n->label = (uint64_t)e->n_nodes++ << LABEL_SHIFT;
#define TAKE(member, ...)                                                                          \
	if (sh->member)                                                                            \
		n->member = sh->member[i];
	PL_NODE_COLUMNS(TAKE)
	if (n->k >= sh->off[i + 1] - sh->off[i])
		n->k = 0; /* all, however many edges are added */
	if (n->comm != PL_NONE)
		n->comm += (uint32_t)e->n_comms;
	return 0;
}

/* An entry of the first step keeps its recorded time; others follow the tail of the resource. */
static int put_entry(struct build *b, uint32_t node, struct pl_err *err)
{
	struct pl_edit *e = b->e;
	uint32_t res = e->node[node].res;

	if (!b->n_tail[res]) {
		e->node[node].fixed = e->node[node].start;
		return 0;
	}
	for (size_t i = 0; i < b->n_tail[res]; i++) {
		uint32_t src = b->tail[res][i];

		PL_CHECK(put_edge(e, src, node, PL_E_SEQ, 0, 0, err));
		e->step[e->node[src].step].next[res] = node;
	}
	return 0;
}

static int put_step_end(struct pl_edit *e, uint32_t first, uint32_t step, struct pl_err *err)
{
	struct pl_estep *s = &e->step[step];
	uint32_t sink = (uint32_t)e->n_nodes;
	bool begin = false, in = false;
	struct pl_enode end = pl_edit_blank_node();

	s->sink = sink;
	end.start = end.fixed = INT64_MIN / 4;
	end.step = step;
	end.label = UINT64_MAX;
	end.type = PL_N_RENDEZVOUS;
	PL_CHECK(pl_append(&e->node, &e->n_nodes, &e->cap_nodes, &end, sizeof(end), err));
	for (uint32_t i = first; i < sink; i++) {
		const struct pl_enode *n = &e->node[i];
		bool last = n->flags & PL_NF_IN_STEP, head = n->flags & PL_NF_STEP_BEGIN;

		for (uint32_t x = n->out; last && x != PL_NONE; x = e->edge[x].out_next)
			last = !pl_edit_covers(e, &e->edge[x]);
		for (uint32_t x = n->in; head && x != PL_NONE; x = e->edge[x].in_next) {
			const struct pl_enode *p = &e->node[e->edge[x].src];

			head = !(p->flags & PL_NF_STEP_BEGIN && p->step == step);
		}
		in |= last;
		begin |= head;
		if (last)
			PL_CHECK(put_edge(e, i, sink, PL_E_SEQ, 0, 0, err));
		if (head)
			PL_CHECK(pl_edit_may_begin(e, i, err));
	}
	s->reported = s->number != INT64_MIN && begin && in;
	return 0;
}

/* Note the last nodes of each resource: the entries of the next step follow them. */
static int note_tails(struct build *b, uint32_t first, uint32_t end, struct pl_err *err)
{
	struct pl_edit *e = b->e;

	/* the entry of the step, if it has one, follows the nodes of earlier steps */
	for (uint32_t i = first; i < end && e->node[i].type == PL_N_ENTRY; i++)
		b->n_tail[e->node[i].res] = 0;
	for (uint32_t i = first; i < end; i++) {
		const struct pl_enode *n = &e->node[i];
		uint32_t r = n->res;
		bool last = r != PL_NONE;

		for (uint32_t x = n->out; last && x != PL_NONE; x = e->edge[x].out_next) {
			const struct pl_enode *d = &e->node[e->edge[x].dst];

			last = pl_edit_from_start(e->edge[x].type) || d->res != r ||
			       d->step != n->step;
		}
		if (last)
			PL_CHECK(pl_append(&b->tail[r], &b->n_tail[r], &b->cap_tail[r], &i,
					   sizeof(i), err));
	}
	return 0;
}

static int put_step(struct build *b, const struct pl_gstep *st, const struct pl_edit_delays *d,
		    uint32_t step, struct pl_err *err)
{
	struct pl_edit *e = b->e;
	const struct pl_shape *sh = &e->g->shape[st->shape];
	uint32_t first = (uint32_t)e->n_nodes;

	e->step[step].number = st->number;
	e->step[step].first = first;
	if (step + 1 < e->n_steps) {
		PL_CHECK(pl_alloc(&e->step[step].next, e->g->n_res, sizeof(uint32_t), err));
		memset(e->step[step].next, 0xff, e->g->n_res * sizeof(uint32_t));
	}
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		uint32_t n = first + i;

		PL_CHECK(put_node(e, st, sh, d, i, step, err));
		if (i < sh->n_entries)
			PL_CHECK(put_entry(b, n, err));
		for (uint32_t k = sh->off[i]; k < sh->off[i + 1]; k++)
			PL_CHECK(put_edge(e, first + sh->src[k], n, sh->etype[k], d->w[k],
					  d->lag[k], err));
		if (i >= sh->n_entries && sh->off[i] == sh->off[i + 1])
			e->node[n].fixed = st->start[i];
	}
	for (uint32_t i = 0; i < sh->n_comms; i++)
		PL_CHECK(pl_append(&e->comm, &e->n_comms, &e->cap_comms, &sh->comms[i],
				   sizeof(*sh->comms), err));
	PL_CHECK(note_tails(b, first, (uint32_t)e->n_nodes, err));
	return put_step_end(e, first, step, err);
}

/* ---- tensors --------------------------------------------------------------------------------- */

static int put_tensors(struct pl_edit *e, size_t first_step, struct pl_err *err)
{
	const struct pl_graph *g = e->g;

	for (uint32_t k = 0; k < e->n_steps; k++) {
		uint32_t shape = g->step[first_step + k].shape;
		const struct pl_shape *sh = &g->shape[shape];

		for (size_t t = 0; t < g->n_tensors; t++) {
			const struct pl_tensor *x = &g->tensor[t];
			struct pl_etensor y = { .tensor = (uint32_t)t,
						.producer = PL_NONE,
						.arrive = PL_NONE,
						.step = k,
						.rank = -1,
						.bytes = x->bytes };
			uint32_t at = x->producer;

			if (x->shape != shape)
				continue;
			for (uint32_t c = 0; c < x->n_consumers; c++) {
				uint32_t n = g->consumer[x->consumer + c];

				if (sh->role[n] == PL_RO_ARRIVE)
					y.arrive = e->step[k].first + n;
				if (at == PL_NONE)
					at = n;
			}
			if (x->producer != PL_NONE)
				y.producer = e->step[k].first + x->producer;
			if (at != PL_NONE)
				y.rank = pl_node_rank(g, sh, at);
			PL_CHECK(pl_append(&e->tensor, &e->n_tensors, &e->cap_tensors, &y,
					   sizeof(y), err));
		}
	}
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check(const struct pl_graph *g, size_t first, size_t n, struct pl_err *err)
{
	for (size_t k = first; k < first + n; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];

		for (uint32_t i = 0; i < sh->n_nodes; i++)
			if (sh->type[i] == PL_N_POLICY)
				return pl_fail(err, PL_EABSENT,
					       "the graph has policies, which plans cannot "
					       "change");
	}
	return 0;
}

static int put_tables(struct pl_edit *e, const struct pl_resource *res, size_t n_res,
		      const struct pl_ggroup *group, size_t n_groups, const uint32_t *rank,
		      size_t n_ranks, struct pl_err *err)
{
	PL_CHECK(pl_copy_array(&e->res, &e->n_res, &e->cap_res, res, n_res, sizeof(*res), err));
	PL_CHECK(pl_copy_array(&e->group, &e->n_groups, &e->cap_groups, group, n_groups,
			       sizeof(*group), err));
	PL_CHECK(pl_copy_array(&e->group_rank, &e->n_group_ranks, &e->cap_group_ranks, rank,
			       n_ranks, sizeof(*rank), err));
	return 0;
}

static void build_fini(struct build *b)
{
	for (size_t r = 0; b->tail && r < b->e->g->n_res; r++)
		pl_free(b->tail[r]);
	pl_free(b->tail);
	pl_free(b->n_tail);
	pl_free(b->cap_tail);
}

int pl_edit_init(struct pl_edit *e, const struct pl_graph *g, size_t first, size_t n,
		 const struct pl_edit_delays *delays, struct pl_err *err)
{
	struct build b = { .e = e };

	size_t nodes = 0, edges = 0;
	int rc;

	memset(e, 0, sizeof(*e));
	e->g = g;
	e->first_step = first;
	e->n_steps = (uint32_t)n;
	PL_TRY(check(g, first, n, err));
	for (size_t k = first; k < first + n; k++) {
		nodes += g->shape[g->step[k].shape].n_nodes + 1;
		edges += g->shape[g->step[k].shape].n_edges;
	}
	if (nodes >= PL_NONE / 2 || edges >= PL_NONE / 2) {
		rc = pl_fail(err, PL_ELIMIT,
			     "%zu nodes are too many to be changed at once: take "
			     "fewer steps, or fold them",
			     nodes);
		goto out;
	}
	PL_TRY(put_tables(e, g->res, g->n_res, g->group, g->n_groups, g->group_rank,
			  g->n_group_ranks, err));
	PL_TRY(pl_grow(&e->node, &e->cap_nodes, nodes, sizeof(*e->node), err));
	PL_TRY(pl_grow(&e->edge, &e->cap_edges, edges + nodes / 8, sizeof(*e->edge), err));
	if (n && delays->hold) {
		PL_TRY(pl_alloc(&e->share, nodes, sizeof(*e->share), err));
		e->cap_share = nodes;
	}
	PL_TRY(pl_alloc(&e->sched, 1, sizeof(*e->sched), err));
	PL_TRY(pl_alloc(&e->step, n, sizeof(*e->step), err));
	PL_TRY(pl_alloc(&b.tail, g->n_res, sizeof(*b.tail), err));
	PL_TRY(pl_alloc(&b.n_tail, g->n_res, sizeof(*b.n_tail), err));
	PL_TRY(pl_alloc(&b.cap_tail, g->n_res, sizeof(*b.cap_tail), err));
	for (size_t k = 0; k < n; k++)
		PL_TRY(put_step(&b, &g->step[first + k], &delays[k], (uint32_t)k, err));
	PL_TRY(put_tensors(e, first, err));
	PL_TRY(pl_edit_settle_full(e, err));
	pl_edit_commit(e);
out:
	build_fini(&b);
	if (rc < 0)
		pl_edit_fini(e);
	return rc;
}

void pl_edit_fini(struct pl_edit *e)
{
	for (uint32_t i = 0; e->step && i < e->n_steps; i++) {
		pl_free(e->step[i].begin);
		pl_free(e->step[i].next);
	}
	pl_free(e->step);
	pl_free(e->node);
	pl_free(e->share);
	pl_free(e->edge);
	pl_free(e->tensor);
	pl_free(e->res);
	pl_free(e->group);
	pl_free(e->group_rank);
	pl_free(e->gone);
	pl_free(e->comm);
	pl_free(e->work);
	pl_free(e->undo);
	if (e->sched)
		pl_free(e->sched->todo);
	pl_free(e->sched);
	pl_intern_fini(&e->added);
	memset(e, 0, sizeof(*e));
}

int pl_edit_dup(const struct pl_edit *e, struct pl_edit *to, struct pl_err *err)
{
	size_t shares = 0;
	pl_id id;
	int rc;

	memset(to, 0, sizeof(*to));
	to->g = e->g;
	to->n_steps = e->n_steps;
	PL_TRY(pl_copy_array(&to->node, &to->n_nodes, &to->cap_nodes, e->node, e->n_nodes,
			     sizeof(*e->node), err));
	if (e->share)
		PL_TRY(pl_copy_array(&to->share, &shares, &to->cap_share, e->share, e->n_nodes,
				     sizeof(*e->share), err));
	PL_TRY(pl_copy_array(&to->edge, &to->n_edges, &to->cap_edges, e->edge, e->n_edges,
			     sizeof(*e->edge), err));
	PL_TRY(pl_copy_array(&to->tensor, &to->n_tensors, &to->cap_tensors, e->tensor, e->n_tensors,
			     sizeof(*e->tensor), err));
	PL_TRY(put_tables(to, e->res, e->n_res, e->group, e->n_groups, e->group_rank,
			  e->n_group_ranks, err));
	PL_TRY(pl_copy_array(&to->gone, &to->n_gone, &to->cap_gone, e->gone, e->n_gone,
			     sizeof(*e->gone), err));
	PL_TRY(pl_copy_array(&to->comm, &to->n_comms, &to->cap_comms, e->comm, e->n_comms,
			     sizeof(*e->comm), err));
	PL_TRY(pl_copy_array(&to->work, &to->n_work, &to->cap_work, e->work, e->n_work,
			     sizeof(*e->work), err));
	PL_TRY(pl_alloc(&to->step, e->n_steps, sizeof(*e->step), err));
	for (uint32_t i = 0; i < e->n_steps; i++) {
		struct pl_estep *s = &to->step[i];
		size_t n = 0, cap = 0;

		*s = e->step[i];
		s->begin = s->next = NULL;
		s->cap_begin = 0;
		PL_TRY(pl_copy_array(&s->begin, &s->n_begin, &s->cap_begin, e->step[i].begin,
				     e->step[i].n_begin, sizeof(uint32_t), err));
		if (e->step[i].next)
			PL_TRY(pl_copy_array(&s->next, &n, &cap, e->step[i].next, e->g->n_res,
					     sizeof(uint32_t), err));
	}
	PL_TRY(pl_alloc(&to->sched, 1, sizeof(*to->sched), err));
	PL_TRY(pl_copy_array(&to->sched->todo, &to->sched->n, &to->sched->cap, e->sched->todo,
			     e->sched->n, sizeof(*e->sched->todo), err));
	for (size_t i = 0; i < e->added.n; i++)
		PL_TRY(pl_intern_add(&to->added, e->added.str[i], e->added.len[i], &id, err));
out:
	if (rc < 0)
		pl_edit_fini(to);
	return rc;
}
