/*
 * A graph as lines of tab-separated fields, the first of which says what the line is: the text form
 * of paceline-graph(5). "-" stands for what there is not; strings are escaped so that they can
 * neither hold a tab or newline nor be mistaken for it.
 */
#include <string.h>

#include "graph/show.h"

struct text {
	const struct pl_graph *g;
	struct pl_out *out;
	struct pl_buf line;
};

static int put_string(struct pl_buf *b, const char *s, size_t n, struct pl_err *err)
{
	static const char digit[] = "0123456789abcdef";
	int rc = pl_buf_need(b, 4 * n + 1, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < n; i++) {
		unsigned char c = (unsigned char)s[i];

		if (c < 0x20 || c == 0x7f || c == '\\' || (c == '-' && n == 1)) {
			const char esc[4] = { '\\', 'x', digit[c >> 4], digit[c & 15] };

			memcpy(b->p + b->n, esc, 4);
			b->n += 4;
		} else {
			b->p[b->n++] = c;
		}
	}
	return 0;
}

static int put_name(struct text *t, pl_id id, struct pl_err *err)
{
	int rc = pl_buf_put(&t->line, "\t", 1, err);

	if (rc < 0)
		return rc;
	if (id == PL_NONE)
		return pl_buf_put(&t->line, "-", 1, err);
	return put_string(&t->line, t->g->str.str[id], t->g->str.len[id], err);
}

/* A field: the number, or "-" when it is `none`. */
static int put_num(struct text *t, int64_t v, int64_t none, struct pl_err *err)
{
	char digits[24];
	char *p = digits + sizeof(digits);
	uint64_t u = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;

	if (v == none) {
		*--p = '-';
	} else {
		do
			*--p = (char)('0' + u % 10);
		while ((u /= 10) != 0);
		if (v < 0)
			*--p = '-';
	}
	*--p = '\t';
	return pl_buf_put(&t->line, p, (size_t)(digits + sizeof(digits) - p), err);
}

static int put_word(struct text *t, const char *s, struct pl_err *err)
{
	int rc = pl_buf_put(&t->line, "\t", 1, err);

	return rc < 0 ? rc : pl_buf_put(&t->line, s, strlen(s), err);
}

static int begin(struct text *t, const char *what, struct pl_err *err)
{
	t->line.n = 0;
	return pl_buf_put(&t->line, what, strlen(what), err);
}

static int end(struct text *t, struct pl_err *err)
{
	int rc = pl_buf_put(&t->line, "\n", 1, err);

	return rc < 0 ? rc : pl_out_write(t->out, t->line.p, t->line.n, err);
}

static int number_line(struct text *t, const char *what, int64_t v, struct pl_err *err)
{
	int rc;

	PL_TRY(begin(t, what, err));
	PL_TRY(put_num(t, v, INT64_MIN, err));
	PL_TRY(end(t, err));
out:
	return rc;
}

static int head(struct text *t, struct pl_err *err)
{
	const struct pl_graph *g = t->g;
	const char *p = (const char *)g->provenance.p, *stop = p ? p + g->provenance.n : p;
	int rc;

	PL_TRY(pl_out_printf(t->out, err, "graph\t%d.%d\n", PL_GRAPH_MAJOR, PL_GRAPH_MINOR));
	while (p && p < stop) {
		const char *nl = memchr(p, '\n', (size_t)(stop - p));

		PL_TRY(begin(t, "provenance\t", err));
		PL_TRY(put_string(&t->line, p, (size_t)((nl ? nl : stop) - p), err));
		PL_TRY(end(t, err));
		p = nl ? nl + 1 : stop;
	}
	PL_TRY(number_line(t, "epoch_ns", g->epoch_ns, err));
	PL_TRY(number_line(t, "stepless", g->stepless, err));
	PL_TRY(number_line(t, "described", g->described, err));
	PL_TRY(number_line(t, "inferred_waits", g->inferred_waits, err));
	PL_TRY(number_line(t, "recorded_waits", g->recorded_waits, err));
	PL_TRY(number_line(t, "inferred_threads", g->inferred_threads, err));
	PL_TRY(number_line(t, "dropped_edges", g->dropped_edges, err));
	PL_TRY(number_line(t, "unmatched_comm", g->unmatched_comm, err));
	for (int32_t i = 0; i < g->n_ranks; i++)
		PL_TRY(number_line(t, "rank", g->rank[i], err));
out:
	return rc;
}

static int resource(struct text *t, size_t i, struct pl_err *err)
{
	const struct pl_resource *r = &t->g->res[i];
	int rc;

	PL_TRY(begin(t, "resource", err));
	PL_TRY(put_num(t, (int64_t)i, -1, err));
	PL_TRY(r->track_type < PL_T_COUNT_
		       ? put_word(t, pl_trace_track_type_name(r->track_type), err)
		       : put_num(t, r->track_type, -1, err));
	PL_TRY(put_num(t, r->rank, -1, err));
	PL_TRY(put_num(t, r->device, -1, err));
	PL_TRY(put_num(t, r->capacity, -1, err));
	PL_TRY(put_num(t, r->discipline, -1, err));
	PL_TRY(put_name(t, r->name, err));
	PL_TRY(put_name(t, r->host, err));
	for (int k = 0; k < PL_COORDS; k++)
		PL_TRY(put_num(t, r->coord[k], -1, err));
	PL_TRY(put_num(t, r->launch_ns, -1, err));
	PL_TRY(put_num(t, r->dispatch_ns, -1, err));
	PL_TRY(put_num(t, r->early_ns, -1, err));
	PL_TRY(end(t, err));
out:
	return rc;
}

static int list(struct text *t, const uint32_t *v, uint32_t n, struct pl_err *err)
{
	int rc = n ? 0 : put_word(t, "-", err);

	for (uint32_t i = 0; i < n && rc >= 0; i++)
		rc = pl_buf_printf(&t->line, err, "%c%u", i ? ',' : '\t', v[i]);
	return rc;
}

static int group(struct text *t, size_t i, struct pl_err *err)
{
	const struct pl_ggroup *p = &t->g->group[i];
	int rc;

	PL_TRY(begin(t, "group", err));
	PL_TRY(put_num(t, (int64_t)i, -1, err));
	PL_TRY(put_num(t, p->flags, -1, err));
	PL_TRY(put_name(t, p->name, err));
	PL_TRY(list(t, t->g->group_rank + p->rank, p->n, err));
	PL_TRY(end(t, err));
out:
	return rc;
}

static int tensor(struct text *t, size_t i, struct pl_err *err)
{
	const struct pl_tensor *p = &t->g->tensor[i];
	int rc;

	PL_TRY(begin(t, "tensor", err));
	PL_TRY(put_num(t, (int64_t)i, -1, err));
	PL_TRY(put_name(t, p->name, err));
	PL_TRY(put_name(t, p->type, err));
	PL_TRY(put_word(t, pl_graph_tensor_role_name(p->role), err));
	PL_TRY(put_num(t, p->bytes, -1, err));
	PL_TRY(put_num(t, p->shape, PL_NONE, err));
	PL_TRY(put_num(t, p->producer, PL_NONE, err));
	PL_TRY(list(t, p->n_consumers ? t->g->consumer + p->consumer : NULL, p->n_consumers, err));
	PL_TRY(put_word(t, p->flags & PL_TF_ESTIMATED ? "estimated" : "-", err));
	PL_TRY(end(t, err));
out:
	return rc;
}

static int node(struct text *t, const struct pl_shape *s, uint32_t i, struct pl_err *err)
{
	int rc;

	PL_TRY(begin(t, "node", err));
	PL_TRY(put_num(t, i, -1, err));
	for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++) {
		const struct pl_node_column *c = &pl_graph_node_columns[k];
		int64_t v = pl_graph_shape_value(s, c, i);
		char buf[SHOW_WORD];
		const char *word = pl_graph_show_word(c, v, buf);

		if (word || c->values == PL_CV_FLAGS || c->values == PL_CV_PHASE)
			PL_TRY(put_word(t, word ? word : "-", err));
		else if (c->values == PL_CV_STRING)
			PL_TRY(put_name(t, (pl_id)v, err));
		else
			PL_TRY(put_num(t, v, c->unknown ? c->unknown : INT64_MIN, err));
	}
	PL_TRY(end(t, err));
out:
	return rc;
}

static int edges(struct text *t, const struct pl_shape *s, uint32_t i, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		PL_TRY(begin(t, "edge", err));
		PL_TRY(put_num(t, s->src[e], -1, err));
		PL_TRY(put_num(t, i, -1, err));
		PL_TRY(put_word(t, pl_graph_edge_type_name(PL_E_TYPE(s->etype[e])), err));
		if (s->etype[e] & PL_E_INFERRED)
			PL_TRY(pl_buf_put(&t->line, "?", 1, err));
		PL_TRY(end(t, err));
	}
out:
	return rc;
}

static int work(struct text *t, size_t i, struct pl_err *err)
{
	const struct pl_gwork *p = &t->g->work[i];
	int rc;

	PL_TRY(begin(t, "work", err));
	PL_TRY(put_num(t, (int64_t)i, -1, err));
	PL_TRY(put_word(t, pl_graph_operator_name(p->op), err));
	PL_TRY(put_name(t, p->type, err));
	PL_TRY(put_name(t, p->dims, err));
	PL_TRY(put_num(t, p->flops, -1, err));
	PL_TRY(put_num(t, p->bytes, -1, err));
	PL_TRY(end(t, err));
out:
	return rc;
}

static int comm(struct text *t, const struct pl_shape *s, uint32_t i, struct pl_err *err)
{
	const struct pl_gcomm *c = &s->comms[i];
	int rc;

	PL_TRY(begin(t, "comm", err));
	PL_TRY(put_num(t, i, -1, err));
	PL_TRY(put_word(t, pl_trace_coll_name(c->kind), err));
	PL_TRY(put_name(t, c->algorithm, err));
	PL_TRY(put_name(t, c->type, err));
	PL_TRY(put_num(t, c->group, PL_NONE, err));
	PL_TRY(put_num(t, c->members, -1, err));
	PL_TRY(put_num(t, c->rounds, 0, err));
	PL_TRY(put_num(t, c->root, -1, err));
	PL_TRY(put_num(t, c->bytes, -1, err));
	PL_TRY(end(t, err));
out:
	return rc;
}

static int shape(struct text *t, size_t i, struct pl_err *err)
{
	const struct pl_shape *s = &t->g->shape[i];
	int rc;

	PL_TRY(pl_out_printf(t->out, err, "shape\t%zu\t%u\t%u\t%u\n", i, s->n_nodes, s->n_edges,
			     s->n_entries));
	for (uint32_t n = 0; n < s->n_comms; n++)
		PL_TRY(comm(t, s, n, err));
	for (uint32_t n = 0; n < s->n_nodes; n++) {
		PL_TRY(node(t, s, n, err));
		PL_TRY(edges(t, s, n, err));
	}
out:
	return rc;
}

static int step(struct text *t, size_t i, struct pl_err *err)
{
	const struct pl_gstep *p = &t->g->step[i];
	int rc;

	PL_TRY(begin(t, "step", err));
	PL_TRY(put_num(t, (int64_t)i, -1, err));
	PL_TRY(put_num(t, p->number, INT64_MIN, err));
	PL_TRY(put_num(t, p->shape, -1, err));
	PL_TRY(end(t, err));
	for (uint32_t n = 0; n < t->g->shape[p->shape].n_nodes; n++) {
		PL_TRY(begin(t, "time", err));
		PL_TRY(put_num(t, n, -1, err));
		PL_TRY(put_num(t, p->start[n], INT64_MIN, err));
		PL_TRY(put_num(t, p->dur[n], INT64_MIN, err));
		PL_TRY(end(t, err));
	}
out:
	return rc;
}

int pl_graph_show_text(const struct pl_graph *g, struct pl_out *out, struct pl_err *err)
{
	struct text t = { .g = g, .out = out };
	int rc;

	PL_TRY(head(&t, err));
	for (size_t i = 0; i < g->n_res; i++)
		PL_TRY(resource(&t, i, err));
	for (size_t i = 0; i < g->n_groups; i++)
		PL_TRY(group(&t, i, err));
	for (size_t i = 0; i < g->n_links; i++)
		PL_TRY(pl_out_printf(out, err, "link\t%zu\t%u\t%u\t%.17g\t%lld\n", i,
				     g->link[i].from, g->link[i].to, g->link[i].bytes_per_ns,
				     (long long)g->link[i].latency_ns));
	for (size_t i = 0; i < g->n_work; i++)
		PL_TRY(work(&t, i, err));
	for (size_t i = 0; i < g->n_shapes; i++)
		PL_TRY(shape(&t, i, err));
	for (size_t i = 0; i < g->n_tensors; i++)
		PL_TRY(tensor(&t, i, err));
	for (size_t i = 0; i < g->n_steps; i++)
		PL_TRY(step(&t, i, err));
out:
	pl_buf_fini(&t.line);
	return rc;
}
