/*
 * A graph for graphviz: a cluster for each rank, a colour for each role, dashed lines for inferred
 * edges. Each shape is drawn once, with the durations of the first step that has it.
 */
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

_Static_assert(PL_RO_COUNT_ == 9 && PL_E_COUNT_ == 7, "a role or edge without a colour");

/* Write a quoted string, cut in the middle to LABEL_MAX bytes. */
static void put_name(const struct pl_graph *g, struct pl_writer *w, pl_id id)
{
	size_t n = id == PL_NONE ? 0 : g->str.len[id];
	size_t head = n > LABEL_MAX ? (LABEL_MAX - 3) / 2 : n;
	size_t tail = n > LABEL_MAX ? LABEL_MAX - 3 - head : 0;

	for (size_t i = 0; i < n; i++) {
		char c;

		if (n > LABEL_MAX && i == head) {
			pl_write_text(w, "...");
			i = n - tail;
		}
		c = g->str.str[id][i];
		if (c == '"' || c == '\\')
			pl_write_char(w, '\\');
		pl_write_char(w, (unsigned char)c < 0x20 || (unsigned char)c > 0x7e
					 ? '?'
					 : c); /* a cut may split a character */
	}
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

static void node(const struct pl_graph *g, struct pl_writer *w, size_t shape, uint32_t i)
{
	const struct pl_shape *s = &g->shape[shape];
	const struct pl_gstep *p = pl_graph_show_first_step(g, shape);
	char dur[32] = "";

	if (p)
		pl_fmt_ns(dur, sizeof(dur), p->dur[i]);
	pl_write_format(w, "\t\tn%zu_%u [shape=%s, fillcolor=\"%s\", label=\"", shape, i,
			node_shape(s->type[i]), fill[s->role[i]]);
	put_name(g, w, s->name[i]);
	if (s->type[i] == PL_N_OP || s->type[i] == PL_N_DELAY || s->type[i] == PL_N_RESOURCE)
		pl_write_format(w, "\\n%s %s", pl_graph_node_role_name(s->role[i]), dur);
	else
		pl_write_format(w, "\\n%s", pl_graph_node_type_name(s->type[i]));
	if (s->res[i] != PL_NONE) {
		pl_write_text(w, "\\n");
		put_name(g, w, g->res[s->res[i]].name);
	}
	pl_write_format(w, "\"%s];\n",
			s->flags[i] & PL_NF_INFERRED ? ", style=\"filled,dashed\"" : "");
}

/* Sort node numbers by rank; nodes without a rank come first. *first has n_ranks + 2 offsets. */
static int by_rank(const struct pl_graph *g, const struct pl_shape *s, uint32_t **order,
		   uint32_t **first, struct pl_err *err)
{
	size_t n = (size_t)g->n_ranks + 1;
	uint32_t *slot; /* [resource]: place of its rank plus 1, 0: no rank */
	int rc;

	PL_CHECK(pl_alloc(&slot, g->n_res + 1, sizeof(*slot), err));
	for (size_t i = 0; i < g->n_res; i++)
		slot[i] = pl_graph_rank_index(g, g->res[i].rank) + 1; /* PL_NONE becomes 0 */
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

static void clusters(const struct pl_graph *g, struct pl_writer *w, size_t shape)
{
	uint32_t *order = NULL, *first = NULL;
	int rc = by_rank(g, &g->shape[shape], &order, &first, &w->fail);

	for (int32_t k = 0; rc >= 0 && k <= g->n_ranks; k++) {
		if (first[k] == first[k + 1])
			continue;
		if (k)
			pl_write_format(w, "\tsubgraph cluster_%zu_%d {\n\t\tlabel=\"rank %d\";\n",
					shape, g->rank[k - 1], g->rank[k - 1]);
		for (uint32_t i = first[k]; i < first[k + 1]; i++)
			node(g, w, shape, order[i]);
		if (k)
			pl_write_text(w, "\t}\n");
	}
	pl_free(order);
	pl_free(first);
}

static void edges(const struct pl_graph *g, struct pl_writer *w, size_t shape)
{
	const struct pl_shape *s = &g->shape[shape];

	for (uint32_t i = 0; i < s->n_nodes; i++)
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			pl_write_format(w, "\tn%zu_%u -> n%zu_%u [color=\"%s\"%s];\n", shape,
					s->src[e], shape, i, line[PL_E_TYPE(s->etype[e])],
					s->etype[e] & PL_E_INFERRED ? ", style=dashed" : "");
}

int pl_graph_show_dot(const struct pl_graph *g, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	pl_write_text(&w, "digraph paceline {\n\trankdir=LR;\n"
			  "\tnode [style=filled, fontname=\"sans-serif\", fontsize=9];\n"
			  "\tedge [arrowsize=0.6];\n");
	for (size_t i = 0; i < g->n_shapes; i++) {
		clusters(g, &w, i);
		edges(g, &w, i);
	}
	pl_write_text(&w, "}\n");
	return pl_write_end(&w, err);
}
