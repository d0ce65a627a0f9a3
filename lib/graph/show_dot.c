/*
 * A graph for graphviz: a cluster for each rank, a colour for each role, dashed where an edge was
 * inferred. Shapes are drawn once each, with the durations of the first step that has them.
 */
#include <string.h>

#include "graph/show.h"

#define LABEL_MAX 40 /* longer names are cut in the middle */

static const char *const fill[PL_RO_COUNT_] = {
	[PL_RO_NONE] = "#eeeeee",     [PL_RO_COMPUTE] = "#a6d96a", [PL_RO_HOST] = "#c6dbef",
	[PL_RO_GAP] = "#ffffff",      [PL_RO_COPY] = "#fdae61",	   [PL_RO_ARRIVE] = "#fde0dd",
	[PL_RO_TRANSFER] = "#f768a1", [PL_RO_SYNC] = "#bcbddc",	   [PL_RO_MARK] = "#ffff99",
};

static const char *const line[PL_E_COUNT_] = {
	[PL_E_SEQ] = "#555555",	  [PL_E_LAUNCH] = "#3182bd", [PL_E_WAIT] = "#e6550d",
	[PL_E_COMM] = "#c51b8a",  [PL_E_START] = "#999999",  [PL_E_DATA] = "#31a354",
	[PL_E_EARLY] = "#9ecae1",
};

/* A quoted string of the language, cut to `max` bytes (at least 8). */
static int put_quoted(struct pl_out *out, const char *s, size_t n, size_t max, struct pl_err *err)
{
	size_t head = n > max ? (max - 3) / 2 : n, tail = n > max ? max - 3 - head : 0;
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (n > max && i == head) {
			PL_TRY(pl_out_write(out, "...", 3, err));
			i = n - tail;
			c = (unsigned char)s[i];
		}
		if (c == '"' || c == '\\')
			PL_TRY(pl_out_write(out, "\\", 1, err));
		if (c < 0x20 || c >= 0x7f) /* a cut may split a character */
			c = '?';
		PL_TRY(pl_out_write(out, &c, 1, err));
	}
out:
	return rc;
}

static int put_name(const struct pl_graph *g, struct pl_out *out, pl_id id, struct pl_err *err)
{
	return id == PL_NONE ? 0 : put_quoted(out, g->str.str[id], g->str.len[id], LABEL_MAX, err);
}

static const char *node_shape(unsigned type)
{
	switch (type) {
	case PL_N_RENDEZVOUS:
		return "diamond";
	case PL_N_ENTRY:
		return "cds";
	case PL_N_DELAY:
		return "ellipse";
	case PL_N_RESOURCE:
		return "box3d";
	case PL_N_POLICY:
		return "hexagon";
	default:
		return "box";
	}
}

static int node(const struct pl_graph *g, struct pl_out *out, size_t shape, uint32_t i,
		struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[shape];
	const struct pl_gstep *p = pl_graph_show_first_step(g, shape);
	char dur[32] = "";
	int rc;

	if (p)
		pl_fmt_ns(dur, sizeof(dur), p->dur[i]);
	PL_TRY(pl_out_printf(out, err, "\t\tn%zu_%u [shape=%s, fillcolor=\"%s\", label=\"", shape,
			     i, node_shape(s->type[i]), fill[s->role[i]]));
	PL_TRY(put_name(g, out, s->name[i], err));
	if (s->type[i] == PL_N_OP || s->type[i] == PL_N_DELAY || s->type[i] == PL_N_RESOURCE)
		PL_TRY(pl_out_printf(out, err, "\\n%s %s", pl_graph_node_role_name(s->role[i]),
				     dur));
	else
		PL_TRY(pl_out_printf(out, err, "\\n%s", pl_graph_node_type_name(s->type[i])));
	if (s->res[i] != PL_NONE) {
		PL_TRY(pl_out_write(out, "\\n", 2, err));
		PL_TRY(put_name(g, out, g->res[s->res[i]].name, err));
	}
	PL_TRY(pl_out_printf(out, err, "\"%s];\n",
			     s->flags[i] & PL_NF_INFERRED ? ", style=\"filled,dashed\"" : ""));
out:
	return rc;
}

/* Node numbers grouped by rank: those of no rank first. *first has n_ranks + 2 offsets. */
static int by_rank(const struct pl_graph *g, const struct pl_shape *s, uint32_t **order,
		   uint32_t **first, struct pl_err *err)
{
	size_t n = (size_t)g->n_ranks + 1;
	uint32_t *slot; /* of a resource, 0: no rank */
	int rc = pl_alloc(&slot, g->n_res + 1, sizeof(*slot), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < g->n_res; i++)
		for (int32_t k = 0; k < g->n_ranks; k++)
			if (g->rank[k] == g->res[i].rank)
				slot[i] = (uint32_t)k + 1;
	PL_TRY(pl_alloc(first, n + 2, sizeof(**first), err));
	PL_TRY(pl_alloc(order, s->n_nodes, sizeof(**order), err));
	for (uint32_t i = 0; i < s->n_nodes; i++)
		(*first)[(s->res[i] == PL_NONE ? 0 : slot[s->res[i]]) + 2]++;
	for (size_t k = 0; k < n; k++)
		(*first)[k + 2] += (*first)[k + 1];
	for (uint32_t i = 0; i < s->n_nodes; i++)
		(*order)[(*first)[(s->res[i] == PL_NONE ? 0 : slot[s->res[i]]) + 1]++] = i;
out:
	pl_free(slot);
	return rc;
}

static int clusters(const struct pl_graph *g, struct pl_out *out, size_t shape, struct pl_err *err)
{
	uint32_t *order = NULL, *first = NULL;
	int rc;

	PL_TRY(by_rank(g, &g->shape[shape], &order, &first, err));
	for (int32_t k = 0; k <= g->n_ranks; k++) {
		if (first[k] == first[k + 1])
			continue;
		if (k)
			PL_TRY(pl_out_printf(
				out, err, "\tsubgraph cluster_%zu_%d {\n\t\tlabel=\"rank %d\";\n",
				shape, g->rank[k - 1], g->rank[k - 1]));
		for (uint32_t i = first[k]; i < first[k + 1]; i++)
			PL_TRY(node(g, out, shape, order[i], err));
		if (k)
			PL_TRY(pl_out_write(out, "\t}\n", 3, err));
	}
out:
	pl_free(order);
	pl_free(first);
	return rc;
}

static int edges(const struct pl_graph *g, struct pl_out *out, size_t shape, struct pl_err *err)
{
	const struct pl_shape *s = &g->shape[shape];
	int rc = 0;

	for (uint32_t i = 0; i < s->n_nodes; i++) {
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
			unsigned type = PL_E_TYPE(s->etype[e]);

			PL_TRY(pl_out_printf(out, err, "\tn%zu_%u -> n%zu_%u [color=\"%s\"%s];\n",
					     shape, s->src[e], shape, i, line[type],
					     s->etype[e] & PL_E_INFERRED ? ", style=dashed" : ""));
		}
	}
out:
	return rc;
}

int pl_graph_show_dot(const struct pl_graph *g, struct pl_out *out, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_out_printf(out, err,
			     "digraph paceline {\n\trankdir=LR;\n"
			     "\tnode [style=filled, fontname=\"sans-serif\", fontsize=9];\n"
			     "\tedge [arrowsize=0.6];\n"));
	for (size_t i = 0; i < g->n_shapes; i++) {
		PL_TRY(clusters(g, out, i, err));
		PL_TRY(edges(g, out, i, err));
	}
	PL_TRY(pl_out_write(out, "}\n", 2, err));
out:
	return rc;
}
