/*
 * Part of a graph: some ranks, some steps.
 *
 * A node stays if its resource belongs to a chosen rank. A node without a resource (a rendezvous)
 * stays if one of its predecessors stays. The order and the edges between these nodes do not
 * change. A rendezvous that lost members, and its transfers, are marked as a communication with
 * missing members. Linear in the nodes, edges and times of the graph.
 */
#include "core/spans.h"
#include "graph/graph.h"

struct pick {
	const struct pl_graph *g;
	const struct pl_graph_part *part;
	struct pl_graph *out;
	uint32_t *res;	 /* [resource]: new number, PL_NONE: left out */
	uint32_t *shape; /* [shape]: new number */
	uint32_t **node; /* [shape][node]: new number */
};

static bool chosen(const int64_t *pair, size_t n, int64_t v)
{
	for (size_t i = 0; i < n; i++)
		if (v >= pair[2 * i] && v <= pair[2 * i + 1])
			return true;
	return !n;
}

static bool has_rank(const void *arg, int32_t rank)
{
	const struct pl_graph_part *part = arg;

	return chosen(part->rank, part->n_ranks, rank);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Number the nodes that stay. */
static void number_nodes(const struct pick *p, const struct pl_shape *s, uint32_t *to,
			 uint32_t *nodes, uint32_t *edges)
{
	uint32_t n = 0, m = 0;

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		uint32_t in = 0;

		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			in += to[s->src[e]] != PL_NONE;
		if (s->res[i] == PL_NONE ? in || s->off[i] == s->off[i + 1]
					 : p->res[s->res[i]] != PL_NONE) {
			to[i] = n++;
			m += in;
		} else {
			to[i] = PL_NONE;
		}
	}
	*nodes = n;
	*edges = m;
}

static void copy_edges(const struct pl_shape *s, uint32_t i, const uint32_t *map,
		       struct pl_shape *o, uint32_t to)
{
	uint32_t lost = 0;

	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		uint32_t src = map[s->src[e]];

		if (src == PL_NONE) {
			lost++;
			continue;
		}
		if (o->type[src] == PL_N_RENDEZVOUS && (o->flags[src] & PL_NF_MISSING))
			o->flags[to] |= PL_NF_MISSING;
		o->src[o->n_edges] = src;
		o->etype[o->n_edges++] = s->etype[e];
	}
	o->off[to + 1] = o->n_edges;
	if (!lost || o->type[to] != PL_N_RENDEZVOUS)
		return;
	o->flags[to] |= PL_NF_MISSING;
	if (o->k && o->k[to] > o->n_edges - o->off[to])
		o->k[to] = o->n_edges - o->off[to];
}

static int pick_shape(struct pick *p, size_t id, struct pl_err *err)
{
	const struct pl_shape *s = &p->g->shape[id];
	struct pl_graph *g = p->out;
	uint32_t *map, nodes, edges;
	struct pl_shape *o;

	PL_CHECK(pl_alloc(&p->node[id], s->n_nodes, sizeof(*map), err));
	map = p->node[id];
	number_nodes(p, s, map, &nodes, &edges);
	p->shape[id] = (uint32_t)g->n_shapes;
	PL_CHECK(pl_append(&g->shape, &g->n_shapes, &g->cap_shapes, &(struct pl_shape){ 0 },
			   sizeof(*o), err));
	o = &g->shape[p->shape[id]];
	PL_CHECK(pl_graph_shape_room(o, pl_graph_shape_has(s), nodes, edges, err));
	PL_CHECK(pl_graph_shape_copy_comms(s, o, err));
	o->n_nodes = nodes;
	pl_graph_shape_copy_columns(s, map, o);
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		if (map[i] == PL_NONE)
			continue;
		if (s->res[i] != PL_NONE)
			o->res[map[i]] = p->res[s->res[i]];
		o->n_entries += s->type[i] == PL_N_ENTRY;
		copy_edges(s, i, map, o, map[i]);
	}
	return 0;
}

static int pick_step(struct pick *p, const struct pl_gstep *s, struct pl_err *err)
{
	struct pl_graph *g = p->out;
	uint32_t n = p->g->shape[s->shape].n_nodes;
	const uint32_t *map;
	struct pl_gstep *o;

	if (p->shape[s->shape] == PL_NONE)
		PL_CHECK(pick_shape(p, s->shape, err));
	map = p->node[s->shape];
	PL_CHECK(pl_append(&g->step, &g->n_steps, &g->cap_steps,
			   &(struct pl_gstep){ .number = s->number, .shape = p->shape[s->shape] },
			   sizeof(*o), err));
	o = &g->step[g->n_steps - 1];
	PL_CHECK(pl_alloc(&o->start, g->shape[o->shape].n_nodes, sizeof(*o->start), err));
	PL_CHECK(pl_alloc(&o->dur, g->shape[o->shape].n_nodes, sizeof(*o->dur), err));
	for (uint32_t i = 0; i < n; i++) {
		if (map[i] == PL_NONE)
			continue;
		o->start[map[i]] = s->start[i];
		o->dur[map[i]] = s->dur[i];
	}
	return 0;
}

static int pick_tensor(struct pick *p, const struct pl_tensor *t, struct pl_err *err)
{
	struct pl_graph *g = p->out;
	const uint32_t *map = t->shape == PL_NONE ? NULL : p->node[t->shape];
	struct pl_tensor o = *t;
	int rc = 0;

	if (t->shape != PL_NONE && p->shape[t->shape] == PL_NONE)
		return 0;
	o.shape = map ? p->shape[t->shape] : PL_NONE;
	o.producer = map && t->producer != PL_NONE ? map[t->producer] : PL_NONE;
	o.consumer = (uint32_t)g->n_consumers;
	for (uint32_t i = 0; map && i < t->n_consumers; i++) {
		uint32_t c = map[p->g->consumer[t->consumer + i]];

		if (c != PL_NONE)
			PL_TRY(pl_append(&g->consumer, &g->n_consumers, &g->cap_consumers, &c,
					 sizeof(c), err));
	}
	o.n_consumers = (uint32_t)g->n_consumers - o.consumer;
	if (!map || o.producer != PL_NONE || o.n_consumers)
		rc = pl_append(&g->tensor, &g->n_tensors, &g->cap_tensors, &o, sizeof(o), err);
out:
	return rc;
}

static int no_step(const struct pl_graph *g, struct pl_err *err)
{
	struct pl_spans seen = { 0 };
	char text[96];
	int rc;

	for (size_t i = 0; i < g->n_steps; i++)
		if (g->step[i].number != INT64_MIN)
			PL_TRY(pl_spans_add(&seen, 0, g->step[i].number, g->step[i].number + 1,
					    err));
	pl_spans_unite(&seen);
	rc = pl_fail(err, PL_EDATA,
		     "none of the steps asked for is in the graph; it has %s steps %s",
		     seen.n ? "the" : "no", pl_spans_text(&seen, text, sizeof(text)));
out:
	pl_spans_fini(&seen);
	return rc;
}

int pl_graph_pick(const struct pl_graph *g, const struct pl_graph_part *part, struct pl_graph *out,
		  struct pl_err *err)
{
	struct pl_graph made;
	struct pick p = { .g = g, .part = part, .out = &made };
	int rc;

	pl_graph_init(&made);
	PL_TRY(pl_graph_copy_tables(g, &made, err));
	PL_TRY(pl_alloc(&p.res, g->n_res, sizeof(*p.res), err));
	pl_graph_keep_ranks(&made, has_rank, part, p.res);
	if (!made.n_ranks)
		PL_TRY(pl_fail(err, PL_EDATA, "none of the ranks asked for is in the graph"));
	PL_TRY(pl_alloc(&p.shape, g->n_shapes, sizeof(*p.shape), err));
	PL_TRY(pl_alloc(&p.node, g->n_shapes, sizeof(*p.node), err));
	for (size_t i = 0; i < g->n_shapes; i++)
		p.shape[i] = PL_NONE;
	for (size_t i = 0; i < g->n_steps; i++)
		if (chosen(part->step, part->n_steps, g->step[i].number))
			PL_TRY(pick_step(&p, &g->step[i], err));
	if (!made.n_steps)
		rc = no_step(g, err);
	for (size_t i = 0; i < g->n_tensors && rc >= 0; i++)
		rc = pick_tensor(&p, &g->tensor[i], err);
out:
	for (size_t i = 0; p.node && i < g->n_shapes; i++)
		pl_free(p.node[i]);
	pl_free(p.node);
	pl_free(p.shape);
	pl_free(p.res);
	if (rc < 0)
		pl_graph_fini(&made);
	else if (out == g)
		pl_graph_fini(out);
	if (rc >= 0 || out != g)
		*out = made;
	return rc;
}
