/*
 * A graph as one JSON object, "paceline.graph/1": everything that paceline-graph(5) stores. What is
 * not known is left out of an object. Compact.
 */
#include <string.h>

#include "graph/show.h"

struct json {
	const struct pl_graph *g;
	struct pl_writer w;
};

static void kname(struct json *j, const char *key, pl_id id)
{
	if (id == PL_NONE)
		return;
	pl_json_key(&j->w, key);
	pl_json_put_str(&j->w, j->g->str.str[id], j->g->str.len[id]);
}

/* A number unless it is `none`. */
static void knum(struct json *j, const char *key, int64_t v, int64_t none)
{
	if (v != none) {
		pl_json_int(&j->w, key, v);
		return;
	}
}

static void open_key(struct json *j, const char *key, char bracket)
{
	pl_json_key(&j->w, key);

	pl_json_open(&j->w, bracket);
}

static void knums(struct json *j, const char *key, const uint32_t *v, uint32_t n)
{
	open_key(j, key, '[');
	for (uint32_t i = 0; i < n; i++)
		pl_json_put_int(&j->w, v[i]);
	pl_json_close(&j->w);
}

static void resource(struct json *j, size_t i)
{
	static const char *const coord[PL_COORDS] = { "dp", "pp", "tp", "ep" };
	const struct pl_resource *r = &j->g->res[i];

	pl_json_open(&j->w, '{');
	pl_json_str(&j->w, "type", pl_trace_track_type_name(r->track_type));
	kname(j, "name", r->name);
	kname(j, "host", r->host);
	knum(j, "rank", r->rank, -1);
	knum(j, "device", r->device, -1);
	knum(j, "capacity", r->capacity, -1);
	knum(j, "discipline", r->discipline, -1);
	for (int k = 0; k < PL_COORDS; k++)
		knum(j, coord[k], r->coord[k], -1);
	knum(j, "launch_ns", r->launch_ns, -1);
	knum(j, "dispatch_ns", r->dispatch_ns, -1);
	knum(j, "early_ns", r->early_ns, -1);
	pl_json_close(&j->w);
}

static void group(struct json *j, size_t i)
{
	const struct pl_ggroup *p = &j->g->group[i];

	pl_json_open(&j->w, '{');
	kname(j, "name", p->name);
	pl_json_bool(&j->w, "inferred", p->flags & PL_GROUP_INFERRED);
	knums(j, "ranks", j->g->group_rank + p->rank, p->n);
	pl_json_close(&j->w);
}

static void link_(struct json *j, size_t i)
{
	const struct pl_link *l = &j->g->link[i];

	pl_json_open(&j->w, '{');
	knum(j, "from", l->from, -1);
	knum(j, "to", l->to, -1);
	pl_json_real(&j->w, "bytes_per_ns", l->bytes_per_ns);
	knum(j, "latency_ns", l->latency_ns, -1);
	pl_json_close(&j->w);
}

static void tensor(struct json *j, size_t i)
{
	const struct pl_tensor *t = &j->g->tensor[i];

	pl_json_open(&j->w, '{');
	kname(j, "name", t->name);
	kname(j, "type", t->type);
	pl_json_str(&j->w, "role", pl_graph_tensor_role_name(t->role));
	knum(j, "bytes", t->bytes, -1);
	knum(j, "shape", t->shape, PL_NONE);
	knum(j, "producer", t->producer, PL_NONE);
	knums(j, "consumers", j->g->consumer + t->consumer, t->n_consumers);
	pl_json_bool(&j->w, "estimated", t->flags & PL_TF_ESTIMATED);
	pl_json_close(&j->w);
}

static void preds(struct json *j, const struct pl_shape *s, uint32_t i)
{
	open_key(j, "after", '[');
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		pl_json_open(&j->w, '{');
		pl_json_int(&j->w, "node", s->src[e]);
		pl_json_str(&j->w, "type", pl_graph_edge_type_name(PL_E_TYPE(s->etype[e])));
		if (s->etype[e] & PL_E_INFERRED) {
			pl_json_bool(&j->w, "inferred", true);
		}
		pl_json_close(&j->w);
	}
	pl_json_close(&j->w);
}

static void node(struct json *j, const struct pl_shape *s, uint32_t i)
{
	pl_json_open(&j->w, '{');
	for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++) {
		const struct pl_node_column *c = &pl_graph_node_columns[k];
		int64_t v = pl_graph_shape_value(s, c, i);
		char buf[SHOW_WORD];
		const char *word = pl_graph_show_word(c, v, buf);

		if (word)
			pl_json_str(&j->w, c->word, word);
		else if (c->values == PL_CV_STRING)
			kname(j, c->word, (pl_id)v);
		else
			knum(j, c->word, v, c->unknown);
	}
	if (s->off[i + 1] > s->off[i])
		preds(j, s, i);
	pl_json_close(&j->w);
}

static void work(struct json *j, size_t i)
{
	const struct pl_gwork *p = &j->g->work[i];

	pl_json_open(&j->w, '{');
	if (p->op)
		pl_json_str(&j->w, "operator", pl_graph_operator_name(p->op));
	kname(j, "type", p->type);
	kname(j, "dims", p->dims);
	knum(j, "flops", p->flops, -1);
	knum(j, "bytes", p->bytes, -1);
	pl_json_close(&j->w);
}

static void comm(struct json *j, const struct pl_gcomm *c)
{
	pl_json_open(&j->w, '{');
	pl_json_str(&j->w, "kind", pl_trace_coll_name(c->kind));
	kname(j, "algorithm", c->algorithm);
	kname(j, "type", c->type);
	knum(j, "group", c->group, PL_NONE);
	knum(j, "members", c->members, -1);
	knum(j, "rounds", c->rounds, 0);
	knum(j, "root", c->root, -1);
	knum(j, "bytes", c->bytes, -1);
	pl_json_close(&j->w);
}

static void shape(struct json *j, size_t i)
{
	const struct pl_shape *s = &j->g->shape[i];

	pl_json_open(&j->w, '{');
	knum(j, "n_nodes", s->n_nodes, -1);
	knum(j, "n_edges", s->n_edges, -1);
	knum(j, "n_entries", s->n_entries, -1);
	open_key(j, "comms", '[');
	for (uint32_t n = 0; n < s->n_comms; n++)
		comm(j, &s->comms[n]);
	pl_json_close(&j->w);
	open_key(j, "nodes", '[');
	for (uint32_t n = 0; n < s->n_nodes; n++)
		node(j, s, n);
	pl_json_close(&j->w);
	pl_json_close(&j->w);
}

static void times(struct json *j, const char *key, const pl_ns *v, uint32_t n)
{
	open_key(j, key, '[');
	for (uint32_t i = 0; i < n; i++)
		pl_json_put_int(&j->w, v[i]);
	pl_json_close(&j->w);
}

static void step(struct json *j, size_t i)
{
	const struct pl_gstep *p = &j->g->step[i];
	uint32_t n = j->g->shape[p->shape].n_nodes;

	pl_json_open(&j->w, '{');
	knum(j, "step", p->number, INT64_MIN);
	knum(j, "shape", p->shape, -1);
	times(j, "start_ns", p->start, n);
	times(j, "dur_ns", p->dur, n);
	pl_json_close(&j->w);
}

static void head(struct json *j)
{
	const struct pl_graph *g = j->g;

	pl_json_str(&j->w, "schema", "paceline.graph/1");
	pl_json_int(&j->w, "epoch_ns", g->epoch_ns);
	pl_json_bool(&j->w, "stepless", g->stepless);
	pl_json_int(&j->w, "inferred_waits", g->inferred_waits);
	pl_json_int(&j->w, "recorded_waits", g->recorded_waits);
	pl_json_int(&j->w, "inferred_threads", g->inferred_threads);
	pl_json_int(&j->w, "dropped_edges", g->dropped_edges);
	pl_json_int(&j->w, "unmatched_comm", g->unmatched_comm);
	pl_json_key(&j->w, "provenance");
	pl_json_put_str(&j->w, g->provenance.n ? (const char *)g->provenance.p : "",
			g->provenance.n);
	open_key(j, "ranks", '[');
	for (int32_t i = 0; i < g->n_ranks; i++)
		pl_json_put_int(&j->w, g->rank[i]);
	pl_json_close(&j->w);
}

static void array(struct json *j, const char *key, size_t n, void (*one)(struct json *j, size_t i))
{
	open_key(j, key, '[');
	for (size_t i = 0; i < n; i++)
		one(j, i);
	pl_json_close(&j->w);
}

int pl_graph_show_json(const struct pl_graph *g, struct pl_out *out, struct pl_err *err)
{
	struct json j = { .g = g };

	pl_writer_init(&j.w, out, 0);
	pl_json_open(&j.w, '{');
	head(&j);
	array(&j, "resources", g->n_res, resource);
	array(&j, "groups", g->n_groups, group);
	array(&j, "links", g->n_links, link_);
	array(&j, "work", g->n_work, work);
	array(&j, "shapes", g->n_shapes, shape);
	array(&j, "tensors", g->n_tensors, tensor);
	array(&j, "steps", g->n_steps, step);
	pl_json_close(&j.w);
	return pl_json_end(&j.w, err);
}
