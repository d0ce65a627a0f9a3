/*
 * A graph as lines of tab-separated fields, the first of which says what the line is: the text form
 * of paceline-graph(5). "-" stands for what there is not; strings are escaped so that they can
 * neither hold a tab or newline nor be mistaken for it.
 */
#include <string.h>

#include "graph/show.h"

#define FLUSH ((size_t)64 << 10)

struct text {
	const struct pl_graph *g;
	struct pl_writer w;
};

static bool is_plain(char c, size_t n)
{
	return (unsigned char)c >= 0x20 && c != 0x7f && c != '\\' && !(c == '-' && n == 1);
}

static void put_string(struct text *t, const char *s, size_t n)
{
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i; k < n && is_plain(s[k], n); k++)
			;
		pl_write(&t->w, s + i, k - i);
		if (k < n)
			pl_write_format(&t->w, "\\x%02x", (unsigned char)s[k++]);
	}
}

/* A field: the string, "-" when there is none. */
static void put_name(struct text *t, pl_id id)
{
	pl_write_char(&t->w, '\t');
	if (id == PL_NONE)
		pl_write_char(&t->w, '-');
	else
		put_string(t, t->g->str.str[id], t->g->str.len[id]);
}

/* A field: the number, "-" when it is `none`. */
static void put_num(struct text *t, int64_t v, int64_t none)
{
	pl_write_char(&t->w, '\t');
	if (v == none)
		pl_write_char(&t->w, '-');
	else
		pl_write_int(&t->w, v);
}

static void put_word(struct text *t, const char *s)
{
	pl_write_char(&t->w, '\t');
	pl_write_text(&t->w, s);
}

/* A line begins with what it is and, of most things, their number. */
static void begin(struct text *t, const char *what, size_t i)
{
	pl_write_text(&t->w, what);
	put_num(t, (int64_t)i, -1);
}

static void end(struct text *t)
{
	pl_write_char(&t->w, '\n');
	pl_writer_flush(&t->w, FLUSH);
}

static void number_line(struct text *t, const char *what, int64_t v)
{
	pl_write_text(&t->w, what);
	put_num(t, v, INT64_MIN);
	end(t);
}

static void head(struct text *t)
{
	const struct pl_graph *g = t->g;
	const char *p = (const char *)g->provenance.p, *stop = p ? p + g->provenance.n : p;

	pl_write_format(&t->w, "graph\t%d.%d\n", PL_GRAPH_MAJOR, PL_GRAPH_MINOR);
	while (p && p < stop) {
		const char *nl = memchr(p, '\n', (size_t)(stop - p));

		pl_write_text(&t->w, "provenance\t");
		put_string(t, p, (size_t)((nl ? nl : stop) - p));
		end(t);
		p = nl ? nl + 1 : stop;
	}
	number_line(t, "epoch_ns", g->epoch_ns);
	number_line(t, "stepless", g->stepless);
	number_line(t, "described", g->described);
	number_line(t, "inferred_waits", g->inferred_waits);
	number_line(t, "recorded_waits", g->recorded_waits);
	number_line(t, "inferred_threads", g->inferred_threads);
	number_line(t, "dropped_edges", g->dropped_edges);
	number_line(t, "unmatched_comm", g->unmatched_comm);
	for (int32_t i = 0; i < g->n_ranks; i++)
		number_line(t, "rank", g->rank[i]);
}

static void resource(struct text *t, size_t i)
{
	const struct pl_resource *r = &t->g->res[i];

	begin(t, "resource", i);
	if (r->track_type < PL_T_COUNT_)
		put_word(t, pl_trace_track_type_name(r->track_type));
	else
		put_num(t, r->track_type, -1);
	put_num(t, r->rank, -1);
	put_num(t, r->device, -1);
	put_num(t, r->capacity, -1);
	put_num(t, r->discipline, -1);
	put_name(t, r->name);
	put_name(t, r->host);
	for (int k = 0; k < PL_COORDS; k++)
		put_num(t, r->coord[k], -1);
	put_num(t, r->launch_ns, -1);
	put_num(t, r->dispatch_ns, -1);
	put_num(t, r->early_ns, -1);
	end(t);
}

static void list(struct text *t, const uint32_t *v, uint32_t n)
{
	if (!n)
		put_word(t, "-");
	for (uint32_t i = 0; i < n; i++) {
		pl_write_char(&t->w, i ? ',' : '\t');
		pl_write_int(&t->w, v[i]);
	}
}

static void group(struct text *t, size_t i)
{
	const struct pl_ggroup *p = &t->g->group[i];

	begin(t, "group", i);
	put_num(t, p->flags, -1);
	put_name(t, p->name);
	list(t, t->g->group_rank + p->rank, p->n);
	end(t);
}

static void tensor(struct text *t, size_t i)
{
	const struct pl_tensor *p = &t->g->tensor[i];

	begin(t, "tensor", i);
	put_name(t, p->name);
	put_name(t, p->type);
	put_word(t, pl_graph_tensor_role_name(p->role));
	put_num(t, p->bytes, -1);
	put_num(t, p->shape, PL_NONE);
	put_num(t, p->producer, PL_NONE);
	list(t, p->n_consumers ? t->g->consumer + p->consumer : NULL, p->n_consumers);
	put_word(t, p->flags & PL_TF_ESTIMATED ? "estimated" : "-");
	end(t);
}

static void node(struct text *t, const struct pl_shape *s, uint32_t i)
{
	begin(t, "node", i);
	for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++) {
		const struct pl_node_column *c = &pl_graph_node_columns[k];
		int64_t v = pl_graph_shape_value(s, c, i);
		char buf[SHOW_WORD];
		const char *word = pl_graph_show_word(c, v, buf);

		if (word || c->values == PL_CV_FLAGS || c->values == PL_CV_PHASE)
			put_word(t, word ? word : "-");
		else if (c->values == PL_CV_STRING)
			put_name(t, (pl_id)v);
		else
			put_num(t, v, c->unknown ? c->unknown : INT64_MIN);
	}
	end(t);
}

static void edges(struct text *t, const struct pl_shape *s, uint32_t i)
{
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		begin(t, "edge", s->src[e]);
		put_num(t, i, -1);
		put_word(t, pl_graph_edge_type_name(PL_E_TYPE(s->etype[e])));
		if (s->etype[e] & PL_E_INFERRED)
			pl_write_char(&t->w, '?');
		end(t);
	}
}

static void work(struct text *t, size_t i)
{
	const struct pl_gwork *p = &t->g->work[i];

	begin(t, "work", i);
	put_word(t, pl_graph_operator_name(p->op));
	put_name(t, p->type);
	put_name(t, p->dims);
	put_num(t, p->flops, -1);
	put_num(t, p->bytes, -1);
	end(t);
}

static void comm(struct text *t, const struct pl_shape *s, uint32_t i)
{
	const struct pl_gcomm *c = &s->comms[i];

	begin(t, "comm", i);
	put_word(t, pl_trace_coll_name(c->kind));
	put_name(t, c->algorithm);
	put_name(t, c->type);
	put_num(t, c->group, PL_NONE);
	put_num(t, c->members, -1);
	put_num(t, c->rounds, 0);
	put_num(t, c->root, -1);
	put_num(t, c->bytes, -1);
	end(t);
}

static void shape(struct text *t, size_t i)
{
	const struct pl_shape *s = &t->g->shape[i];

	pl_write_format(&t->w, "shape\t%zu\t%u\t%u\t%u\n", i, s->n_nodes, s->n_edges, s->n_entries);
	for (uint32_t n = 0; n < s->n_comms; n++)
		comm(t, s, n);
	for (uint32_t n = 0; n < s->n_nodes; n++) {
		node(t, s, n);
		edges(t, s, n);
	}
}

static void step(struct text *t, size_t i)
{
	const struct pl_gstep *p = &t->g->step[i];

	begin(t, "step", i);
	put_num(t, p->number, INT64_MIN);
	put_num(t, p->shape, -1);
	end(t);
	for (uint32_t n = 0; n < t->g->shape[p->shape].n_nodes; n++) {
		begin(t, "time", n);
		put_num(t, p->start[n], INT64_MIN);
		put_num(t, p->dur[n], INT64_MIN);
		end(t);
	}
}

int pl_graph_show_text(const struct pl_graph *g, struct pl_out *out, struct pl_err *err)
{
	struct text t = { .g = g };

	pl_writer_init(&t.w, out, 0);
	head(&t);
	for (size_t i = 0; i < g->n_res; i++)
		resource(&t, i);
	for (size_t i = 0; i < g->n_groups; i++)
		group(&t, i);
	for (size_t i = 0; i < g->n_links; i++)
		pl_write_format(&t.w, "link\t%zu\t%u\t%u\t%.17g\t%lld\n", i, g->link[i].from,
				g->link[i].to, g->link[i].bytes_per_ns,
				(long long)g->link[i].latency_ns);
	for (size_t i = 0; i < g->n_work; i++)
		work(&t, i);
	for (size_t i = 0; i < g->n_shapes; i++)
		shape(&t, i);
	for (size_t i = 0; i < g->n_tensors; i++)
		tensor(&t, i);
	for (size_t i = 0; i < g->n_steps; i++)
		step(&t, i);
	return pl_writer_end(&t.w, err);
}
