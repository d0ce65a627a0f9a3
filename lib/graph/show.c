/* The views of a graph: the table of views, and the words that they share. */
#include "graph/show.h"

static const char *kind_word(unsigned kind, char *buf)
{
	if (kind < PL_K_COUNT_)
		return pl_trace_kind_name(kind);
	snprintf(buf, SHOW_WORD, "kind-%u", kind & 0xffu);
	return buf;
}

/* The names of the flags that are set, joined with commas. */
static const char *flag_words(unsigned flags, char *buf)
{
	static const char *const names[] = { "in_step", "step_begin", "missing", "inferred",
					     "message", "layer",      "part",	 "phase_inferred" };
	size_t n = 0;

	buf[0] = '\0';
	for (size_t i = 0; i < PL_LEN(names); i++)
		if (flags & 1u << i)
			n += (size_t)snprintf(buf + n, SHOW_WORD - n, "%s%s", n ? "," : "",
					      names[i]);
	if (flags >> PL_LEN(names))
		snprintf(buf + n, SHOW_WORD - n, "%s0x%x", n ? "," : "",
			 flags >> PL_LEN(names) << PL_LEN(names));
	return flags ? buf : NULL;
}

const char *pl_graph_show_word(const struct pl_node_column *c, int64_t v, char *buf)
{
	switch (c->values) {
	case PL_CV_NODE_TYPE:
		return pl_graph_node_type_name((unsigned)v);
	case PL_CV_NODE_ROLE:
		return pl_graph_node_role_name((unsigned)v);
	case PL_CV_KIND:
		return kind_word((unsigned)v, buf);
	case PL_CV_PHASE:
		return v ? pl_graph_phase_name((unsigned)v) : NULL;
	case PL_CV_FLAGS:
		return flag_words((unsigned)v, buf);
	default:
		return NULL;
	}
}

int pl_graph_show(const struct pl_graph *g, enum pl_graph_view v, struct pl_out *out,
		  struct pl_err *err)
{
	switch (v) {
	case PL_GV_STAT:
		return pl_graph_show_stat(g, false, out, err);
	case PL_GV_STAT_JSON:
		return pl_graph_show_stat(g, true, out, err);
	case PL_GV_TEXT:
		return pl_graph_show_rows(g, false, out, err);
	case PL_GV_DOT:
		return pl_graph_show_dot(g, out, err);
	case PL_GV_JSON:
		return pl_graph_show_rows(g, true, out, err);
	}
	return pl_fail(err, PL_EINTERNAL, "view %d of a graph", (int)v);
}
