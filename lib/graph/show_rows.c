/*
 * All values of a graph (paceline-graph(5)) in two forms.
 *
 * The text form has lines of tab-separated fields. The first field names the type of the line. "-"
 * stands for a missing value; strings are escaped, so that they contain no tab or newline and
 * cannot be taken for "-". The JSON form is one object, "paceline.graph/1", without unknown values.
 */
#include "graph/show.h"

#define FLUSH ((size_t)64 << 10)

struct view {
	const struct pl_graph *g;
	struct pl_writer w;
	bool json;
};

/* ---- fields of a line, members of an object -------------------------------------------------- */

static bool is_plain(char c, size_t n)
{
	return (unsigned char)c >= 0x20 && c != 0x7f && c != '\\' && !(c == '-' && n == 1);
}

static void put_escaped(struct view *v, const char *s, size_t n)
{
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i; k < n && is_plain(s[k], n); k++)
			;
		pl_write(&v->w, s + i, k - i);
		if (k < n)
			pl_write_format(&v->w, "\\x%02x", (unsigned char)s[k++]);
	}
}

static void put_word(struct view *v, const char *key, const char *s)
{
	if (v->json) {
		pl_json_str(&v->w, key, s);
		return;
	}
	pl_write_char(&v->w, '\t');
	pl_write_text(&v->w, s);
}

/* Text: write "-" for a missing value. JSON: write nothing. */
static void put_none(struct view *v)
{
	if (!v->json)
		pl_write(&v->w, "\t-", 2);
}

static void put_name(struct view *v, const char *key, pl_id id)
{
	const struct pl_intern *str = &v->g->str;

	if (id == PL_NONE) {
		put_none(v);
	} else if (v->json) {
		pl_json_key(&v->w, key);
		pl_json_put_str(&v->w, str->str[id], str->len[id]);
	} else {
		pl_write_char(&v->w, '\t');
		put_escaped(v, str->str[id], str->len[id]);
	}
}

/* Write a number; `none` is the value that stands for a missing one. */
static void put_num(struct view *v, const char *key, int64_t x, int64_t none)
{
	if (x == none) {
		put_none(v);
	} else if (v->json) {
		pl_json_int(&v->w, key, x);
	} else {
		pl_write_char(&v->w, '\t');
		pl_write_int(&v->w, x);
	}
}

/* Open a list; text only writes the fields of its elements. */
static void open_array(struct view *v, const char *key)
{
	if (!v->json)
		return;
	pl_json_key(&v->w, key);
	pl_json_open(&v->w, '[');
}

static void close_array(struct view *v)
{
	if (v->json)
		pl_json_close(&v->w);
}

static void put_list(struct view *v, const char *key, const uint32_t *all, uint32_t first,
		     uint32_t n)
{
	open_array(v, key);
	if (!n)
		put_none(v);
	for (uint32_t i = 0; i < n; i++) {
		if (!v->json)
			pl_write_char(&v->w, i ? ',' : '\t');
		(v->json ? pl_json_put_int : pl_write_int)(&v->w, all[first + i]);
	}
	close_array(v);
}

/* Begin a line or an object: its type and, for most types, its number. */
static void begin(struct view *v, const char *what, int64_t i)
{
	if (v->json) {
		pl_json_open(&v->w, '{');
		return;
	}
	pl_write_text(&v->w, what);
	put_num(v, NULL, i, INT64_MIN);
}

static void end(struct view *v)
{
	if (v->json) {
		pl_json_close(&v->w);
		return;
	}
	pl_write_char(&v->w, '\n');
	pl_write_flush(&v->w, FLUSH);
}

/* Rows: lines, or objects of an array. */
static void put_rows(struct view *v, const char *key, size_t n,
		     void (*one)(struct view *v, size_t i))
{
	open_array(v, key);
	for (size_t i = 0; i < n; i++)
		one(v, i);
	close_array(v);
}

/* ---- rows of tables -------------------------------------------------------------------------- */

/* In JSON, the names come first. */
static void resource_names(struct view *v, const struct pl_resource *r)
{
	put_name(v, "name", r->name);
	put_name(v, "host", r->host);
}

static void resource(struct view *v, size_t i)
{
	static const char *const coord[PL_COORDS] = { "dp", "pp", "tp", "ep" };
	const struct pl_resource *r = &v->g->res[i];

	begin(v, "resource", (int64_t)i);
	if (v->json || r->track_type < PL_T_COUNT_)
		put_word(v, "type", pl_trace_track_type_name(r->track_type));
	else
		put_num(v, NULL, r->track_type, -1);
	if (v->json)
		resource_names(v, r);
	put_num(v, "rank", r->rank, -1);
	put_num(v, "device", r->device, -1);
	put_num(v, "capacity", r->capacity, -1);
	put_num(v, "discipline", r->discipline, -1);
	if (!v->json)
		resource_names(v, r);
	for (int k = 0; k < PL_COORDS; k++)
		put_num(v, coord[k], r->coord[k], -1);
	put_num(v, "launch_ns", r->launch_ns, -1);
	put_num(v, "dispatch_ns", r->dispatch_ns, -1);
	put_num(v, "early_ns", r->early_ns, -1);
	end(v);
}

static void group(struct view *v, size_t i)
{
	const struct pl_ggroup *p = &v->g->group[i];

	begin(v, "group", (int64_t)i);
	if (!v->json)
		put_num(v, NULL, p->flags, -1);
	put_name(v, "name", p->name);
	if (v->json)
		pl_json_bool(&v->w, "inferred", p->flags & PL_GROUP_INFERRED);
	put_list(v, "ranks", v->g->group_rank, p->rank, p->n);
	end(v);
}

static void link_row(struct view *v, size_t i)
{
	const struct pl_link *l = &v->g->link[i];

	begin(v, "link", (int64_t)i);
	put_num(v, "from", l->from, -1);
	put_num(v, "to", l->to, -1);
	if (v->json)
		pl_json_real(&v->w, "bytes_per_ns", l->bytes_per_ns);
	else
		pl_write_format(&v->w, "\t%.17g", l->bytes_per_ns);
	put_num(v, "latency_ns", l->latency_ns, -1);
	end(v);
}

static void work(struct view *v, size_t i)
{
	const struct pl_gwork *p = &v->g->work[i];

	begin(v, "work", (int64_t)i);
	if (p->op)
		put_word(v, "operator", pl_graph_operator_name(p->op));
	else
		put_none(v);
	put_name(v, "type", p->type);
	put_name(v, "dims", p->dims);
	put_num(v, "flops", p->flops, -1);
	put_num(v, "bytes", p->bytes, -1);
	put_name(v, "name", p->name);
	end(v);
}

static void tensor(struct view *v, size_t i)
{
	const struct pl_tensor *t = &v->g->tensor[i];

	begin(v, "tensor", (int64_t)i);
	put_name(v, "name", t->name);
	put_name(v, "type", t->type);
	put_word(v, "role", pl_graph_tensor_role_name(t->role));
	put_num(v, "bytes", t->bytes, -1);
	put_num(v, "shape", t->shape, PL_NONE);
	put_num(v, "producer", t->producer, PL_NONE);
	put_list(v, "consumers", v->g->consumer, t->consumer, t->n_consumers);
	if (v->json)
		pl_json_bool(&v->w, "estimated", t->flags & PL_TF_ESTIMATED);
	else
		put_word(v, NULL, t->flags & PL_TF_ESTIMATED ? "estimated" : "-");
	end(v);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static void comm(struct view *v, const struct pl_gcomm *c, uint32_t i)
{
	begin(v, "comm", i);
	put_word(v, "kind", pl_trace_coll_name(c->kind));
	put_name(v, "algorithm", c->algorithm);
	put_name(v, "type", c->type);
	put_num(v, "group", c->group, PL_NONE);
	put_num(v, "members", c->members, -1);
	put_num(v, "rounds", c->rounds, 0);
	put_num(v, "root", c->root, -1);
	put_num(v, "bytes", c->bytes, -1);
	end(v);
}

/* In JSON, edges are members of the node. */
static void edges(struct view *v, const struct pl_shape *s, uint32_t i)
{
	open_array(v, "after");
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		bool inferred = s->etype[e] & PL_E_INFERRED;

		begin(v, "edge", s->src[e]);
		put_num(v, "node", v->json ? s->src[e] : i, -1);
		put_word(v, "type", pl_graph_edge_type_name(PL_E_TYPE(s->etype[e])));
		if (v->json && inferred)
			pl_json_bool(&v->w, "inferred", true);
		else if (inferred)
			pl_write_char(&v->w, '?');
		end(v);
	}
	close_array(v);
}

static void node(struct view *v, const struct pl_shape *s, uint32_t i)
{
	begin(v, "node", i);
	for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++) {
		const struct pl_node_column *c = &pl_graph_node_columns[k];
		int64_t x = pl_graph_shape_value(s, c, i);
		char buf[SHOW_WORD];
		const char *word = pl_graph_show_word(c, x, buf);

		if (word)
			put_word(v, c->word, word);
		else if (c->values == PL_CV_STRING)
			put_name(v, c->word, (pl_id)x);
		else if (!v->json && (c->values == PL_CV_FLAGS || c->values == PL_CV_PHASE))
			put_none(v);
		else
			put_num(v, c->word, x, v->json || c->unknown ? c->unknown : INT64_MIN);
	}
	if (v->json && s->off[i + 1] > s->off[i])
		edges(v, s, i);
	end(v);
	if (!v->json)
		edges(v, s, i);
}

static void shape(struct view *v, size_t i)
{
	const struct pl_shape *s = &v->g->shape[i];

	begin(v, "shape", (int64_t)i);
	put_num(v, "n_nodes", s->n_nodes, -1);
	put_num(v, "n_edges", s->n_edges, -1);
	put_num(v, "n_entries", s->n_entries, -1);
	if (!v->json)
		end(v);
	open_array(v, "comms");
	for (uint32_t n = 0; n < s->n_comms; n++)
		comm(v, &s->comms[n], n);
	close_array(v);
	open_array(v, "nodes");
	for (uint32_t n = 0; n < s->n_nodes; n++)
		node(v, s, n);
	close_array(v);
	if (v->json)
		end(v);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static void json_times(struct view *v, const char *key, const pl_ns *t, uint32_t n)
{
	open_array(v, key);
	for (uint32_t i = 0; i < n; i++)
		pl_json_put_int(&v->w, t[i]);
	close_array(v);
}

static void step(struct view *v, size_t i)
{
	const struct pl_gstep *p = &v->g->step[i];
	uint32_t n = v->g->shape[p->shape].n_nodes;

	begin(v, "step", (int64_t)i);
	put_num(v, "step", p->number, INT64_MIN);
	put_num(v, "shape", p->shape, -1);
	if (v->json) {
		json_times(v, "start_ns", p->start, n);
		json_times(v, "dur_ns", p->dur, n);
	}
	end(v);
	for (uint32_t k = 0; !v->json && k < n; k++) {
		begin(v, "time", k);
		put_num(v, NULL, p->start[k], INT64_MIN);
		put_num(v, NULL, p->dur[k], INT64_MIN);
		end(v);
	}
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void provenance_lines(struct view *v)
{
	const char *p = (const char *)v->g->provenance.p, *stop = p ? p + v->g->provenance.n : p;

	while (p && p < stop) {
		const char *nl = memchr(p, '\n', (size_t)(stop - p));

		pl_write_text(&v->w, "provenance\t");
		put_escaped(v, p, (size_t)((nl ? nl : stop) - p));
		end(v);
		p = nl ? nl + 1 : stop;
	}
}

/* A line, or a member of the outermost object. */
static void head_num(struct view *v, const char *key, int64_t x)
{
	if (v->json) {
		pl_json_int(&v->w, key, x);
		return;
	}
	begin(v, key, x);
	end(v);
}

static void head(struct view *v)
{
	const struct pl_graph *g = v->g;

	if (v->json) {
		pl_json_str(&v->w, "schema", "paceline.graph/1");
	} else {
		pl_write_format(&v->w, "graph\t%d.%d\n", PL_GRAPH_MAJOR, PL_GRAPH_MINOR);
		provenance_lines(v);
	}
	head_num(v, "epoch_ns", g->epoch_ns);
	if (v->json) {
		pl_json_bool(&v->w, "stepless", g->stepless);
	} else {
		head_num(v, "stepless", g->stepless);
		head_num(v, "described", g->described);
	}
#define COUNT(name) head_num(v, #name, g->name);
	PL_GRAPH_COUNTS(COUNT)
	if (v->json) {
		pl_json_key(&v->w, "provenance");
		pl_json_put_str(&v->w, g->provenance.n ? (const char *)g->provenance.p : "",
				g->provenance.n);
	}
	open_array(v, "ranks");
	for (int32_t i = 0; i < g->n_ranks; i++) {
		if (v->json)
			pl_json_put_int(&v->w, g->rank[i]);
		else
			head_num(v, "rank", g->rank[i]);
	}
	close_array(v);
}

int pl_graph_show_rows(const struct pl_graph *g, bool json, struct pl_out *out, struct pl_err *err)
{
	struct view v = { .g = g, .json = json };

	pl_write_init(&v.w, out, 0);
	if (json)
		pl_json_open(&v.w, '{');
	head(&v);
	put_rows(&v, "resources", g->n_res, resource);
	put_rows(&v, "groups", g->n_groups, group);
	put_rows(&v, "links", g->n_links, link_row);
	put_rows(&v, "work", g->n_work, work);
	put_rows(&v, "shapes", g->n_shapes, shape);
	put_rows(&v, "tensors", g->n_tensors, tensor);
	put_rows(&v, "steps", g->n_steps, step);
	if (!json)
		return pl_write_end(&v.w, err);
	pl_json_close(&v.w);
	return pl_json_end(&v.w, err);
}
