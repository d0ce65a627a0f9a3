/*
 * A graph as one JSON object, "paceline.graph/1": everything that paceline-graph(5) stores. What is
 * not known is left out of an object. Compact.
 */
#include <string.h>

#include "graph/show.h"

struct json {
	const struct pl_graph *g;
	struct pl_jsonw w;
};

static int kname(struct json *j, const char *key, pl_id id, struct pl_err *err)
{
	int rc;

	if (id == PL_NONE)
		return 0;
	rc = pl_jsonw_key(&j->w, key, err);
	return rc < 0 ? rc : pl_jsonw_str(&j->w, j->g->str.str[id], j->g->str.len[id], err);
}

/* A number unless it is `none`. */
static int knum(struct json *j, const char *key, int64_t v, int64_t none, struct pl_err *err)
{
	return v == none ? 0 : pl_jsonw_ki64(&j->w, key, v, err);
}

static int open_key(struct json *j, const char *key, char bracket, struct pl_err *err)
{
	int rc = pl_jsonw_key(&j->w, key, err);

	return rc < 0 ? rc : pl_jsonw_open(&j->w, bracket, err);
}

static int knums(struct json *j, const char *key, const uint32_t *v, uint32_t n, struct pl_err *err)
{
	int rc;

	PL_TRY(open_key(j, key, '[', err));
	for (uint32_t i = 0; i < n; i++)
		PL_TRY(pl_jsonw_i64(&j->w, v[i], err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int resource(struct json *j, size_t i, struct pl_err *err)
{
	static const char *const coord[PL_COORDS] = { "dp", "pp", "tp", "ep" };
	const struct pl_resource *r = &j->g->res[i];
	int rc;

	PL_TRY(pl_jsonw_open(&j->w, '{', err));
	PL_TRY(pl_jsonw_kstr(&j->w, "type", pl_trace_track_type_name(r->track_type), err));
	PL_TRY(kname(j, "name", r->name, err));
	PL_TRY(kname(j, "host", r->host, err));
	PL_TRY(knum(j, "rank", r->rank, -1, err));
	PL_TRY(knum(j, "device", r->device, -1, err));
	PL_TRY(knum(j, "capacity", r->capacity, -1, err));
	PL_TRY(knum(j, "discipline", r->discipline, -1, err));
	for (int k = 0; k < PL_COORDS; k++)
		PL_TRY(knum(j, coord[k], r->coord[k], -1, err));
	PL_TRY(knum(j, "launch_ns", r->launch_ns, -1, err));
	PL_TRY(knum(j, "dispatch_ns", r->dispatch_ns, -1, err));
	PL_TRY(knum(j, "early_ns", r->early_ns, -1, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int group(struct json *j, size_t i, struct pl_err *err)
{
	const struct pl_ggroup *p = &j->g->group[i];
	int rc;

	PL_TRY(pl_jsonw_open(&j->w, '{', err));
	PL_TRY(kname(j, "name", p->name, err));
	PL_TRY(pl_jsonw_key(&j->w, "inferred", err));
	PL_TRY(pl_jsonw_bool(&j->w, p->flags & PL_GROUP_INFERRED, err));
	PL_TRY(knums(j, "ranks", j->g->group_rank + p->rank, p->n, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int link_(struct json *j, size_t i, struct pl_err *err)
{
	const struct pl_link *l = &j->g->link[i];
	int rc;

	PL_TRY(pl_jsonw_open(&j->w, '{', err));
	PL_TRY(knum(j, "from", l->from, -1, err));
	PL_TRY(knum(j, "to", l->to, -1, err));
	PL_TRY(pl_jsonw_kreal(&j->w, "bytes_per_ns", l->bytes_per_ns, err));
	PL_TRY(knum(j, "latency_ns", l->latency_ns, -1, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int tensor(struct json *j, size_t i, struct pl_err *err)
{
	const struct pl_tensor *t = &j->g->tensor[i];
	int rc;

	PL_TRY(pl_jsonw_open(&j->w, '{', err));
	PL_TRY(kname(j, "name", t->name, err));
	PL_TRY(kname(j, "type", t->type, err));
	PL_TRY(pl_jsonw_kstr(&j->w, "role", pl_tensor_role_name(t->role), err));
	PL_TRY(knum(j, "bytes", t->bytes, -1, err));
	PL_TRY(knum(j, "shape", t->shape, PL_NONE, err));
	PL_TRY(knum(j, "producer", t->producer, PL_NONE, err));
	PL_TRY(knums(j, "consumers", j->g->consumer + t->consumer, t->n_consumers, err));
	PL_TRY(pl_jsonw_key(&j->w, "estimated", err));
	PL_TRY(pl_jsonw_bool(&j->w, t->flags & PL_TF_ESTIMATED, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int preds(struct json *j, const struct pl_shape *s, uint32_t i, struct pl_err *err)
{
	int rc;

	PL_TRY(open_key(j, "after", '[', err));
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
		PL_TRY(pl_jsonw_open(&j->w, '{', err));
		PL_TRY(pl_jsonw_ki64(&j->w, "node", s->src[e], err));
		PL_TRY(pl_jsonw_kstr(&j->w, "type", pl_edge_type_name(PL_E_TYPE(s->etype[e])),
				     err));
		if (s->etype[e] & PL_E_INFERRED) {
			PL_TRY(pl_jsonw_key(&j->w, "inferred", err));
			PL_TRY(pl_jsonw_bool(&j->w, true, err));
		}
		PL_TRY(pl_jsonw_close(&j->w, err));
	}
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int node(struct json *j, const struct pl_shape *s, uint32_t i, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_open(&j->w, '{', err));
	for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++) {
		const struct pl_node_column *c = &pl_node_columns[k];
		int64_t v = pl_shape_value(s, c, i);
		char buf[SHOW_WORD];
		const char *word = show_word(c, v, buf);

		if (word)
			PL_TRY(pl_jsonw_kstr(&j->w, c->word, word, err));
		else if (c->values == PL_CV_STRING)
			PL_TRY(kname(j, c->word, (pl_id)v, err));
		else
			PL_TRY(knum(j, c->word, v, c->unknown, err));
	}
	if (s->off[i + 1] > s->off[i])
		PL_TRY(preds(j, s, i, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int work(struct json *j, size_t i, struct pl_err *err)
{
	const struct pl_gwork *p = &j->g->work[i];
	int rc;

	PL_TRY(pl_jsonw_open(&j->w, '{', err));
	if (p->op)
		PL_TRY(pl_jsonw_kstr(&j->w, "operator", pl_operator_name(p->op), err));
	PL_TRY(kname(j, "type", p->type, err));
	PL_TRY(kname(j, "dims", p->dims, err));
	PL_TRY(knum(j, "flops", p->flops, -1, err));
	PL_TRY(knum(j, "bytes", p->bytes, -1, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int comm(struct json *j, const struct pl_gcomm *c, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_open(&j->w, '{', err));
	PL_TRY(pl_jsonw_kstr(&j->w, "kind", pl_trace_coll_name(c->kind), err));
	PL_TRY(kname(j, "algorithm", c->algorithm, err));
	PL_TRY(kname(j, "type", c->type, err));
	PL_TRY(knum(j, "group", c->group, PL_NONE, err));
	PL_TRY(knum(j, "members", c->members, -1, err));
	PL_TRY(knum(j, "rounds", c->rounds, 0, err));
	PL_TRY(knum(j, "root", c->root, -1, err));
	PL_TRY(knum(j, "bytes", c->bytes, -1, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int shape(struct json *j, size_t i, struct pl_err *err)
{
	const struct pl_shape *s = &j->g->shape[i];
	int rc;

	PL_TRY(pl_jsonw_open(&j->w, '{', err));
	PL_TRY(knum(j, "n_nodes", s->n_nodes, -1, err));
	PL_TRY(knum(j, "n_edges", s->n_edges, -1, err));
	PL_TRY(knum(j, "n_entries", s->n_entries, -1, err));
	PL_TRY(open_key(j, "comms", '[', err));
	for (uint32_t n = 0; n < s->n_comms; n++)
		PL_TRY(comm(j, &s->comms[n], err));
	PL_TRY(pl_jsonw_close(&j->w, err));
	PL_TRY(open_key(j, "nodes", '[', err));
	for (uint32_t n = 0; n < s->n_nodes; n++)
		PL_TRY(node(j, s, n, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int times(struct json *j, const char *key, const pl_ns *v, uint32_t n, struct pl_err *err)
{
	int rc;

	PL_TRY(open_key(j, key, '[', err));
	for (uint32_t i = 0; i < n; i++)
		PL_TRY(pl_jsonw_i64(&j->w, v[i], err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int step(struct json *j, size_t i, struct pl_err *err)
{
	const struct pl_gstep *p = &j->g->step[i];
	uint32_t n = j->g->shape[p->shape].n_nodes;
	int rc;

	PL_TRY(pl_jsonw_open(&j->w, '{', err));
	PL_TRY(knum(j, "step", p->number, INT64_MIN, err));
	PL_TRY(knum(j, "shape", p->shape, -1, err));
	PL_TRY(times(j, "start_ns", p->start, n, err));
	PL_TRY(times(j, "dur_ns", p->dur, n, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int head(struct json *j, struct pl_err *err)
{
	const struct pl_graph *g = j->g;
	int rc;

	PL_TRY(pl_jsonw_kstr(&j->w, "schema", "paceline.graph/1", err));
	PL_TRY(pl_jsonw_ki64(&j->w, "epoch_ns", g->epoch_ns, err));
	PL_TRY(pl_jsonw_key(&j->w, "stepless", err));
	PL_TRY(pl_jsonw_bool(&j->w, g->stepless, err));
	PL_TRY(pl_jsonw_ki64(&j->w, "inferred_waits", g->inferred_waits, err));
	PL_TRY(pl_jsonw_ki64(&j->w, "recorded_waits", g->recorded_waits, err));
	PL_TRY(pl_jsonw_ki64(&j->w, "inferred_threads", g->inferred_threads, err));
	PL_TRY(pl_jsonw_ki64(&j->w, "dropped_edges", g->dropped_edges, err));
	PL_TRY(pl_jsonw_ki64(&j->w, "unmatched_comm", g->unmatched_comm, err));
	PL_TRY(pl_jsonw_key(&j->w, "provenance", err));
	PL_TRY(pl_jsonw_str(&j->w, g->provenance.n ? (const char *)g->provenance.p : "",
			    g->provenance.n, err));
	PL_TRY(open_key(j, "ranks", '[', err));
	for (int32_t i = 0; i < g->n_ranks; i++)
		PL_TRY(pl_jsonw_i64(&j->w, g->rank[i], err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

static int array(struct json *j, const char *key, size_t n,
		 int (*one)(struct json *j, size_t i, struct pl_err *err), struct pl_err *err)
{
	int rc;

	PL_TRY(open_key(j, key, '[', err));
	for (size_t i = 0; i < n; i++)
		PL_TRY(one(j, i, err));
	PL_TRY(pl_jsonw_close(&j->w, err));
out:
	return rc;
}

int show_json(const struct pl_graph *g, struct pl_out *out, struct pl_err *err)
{
	struct json j = { .g = g };
	int rc;

	pl_jsonw_init(&j.w, out, 0);
	PL_TRY(pl_jsonw_open(&j.w, '{', err));
	PL_TRY(head(&j, err));
	PL_TRY(array(&j, "resources", g->n_res, resource, err));
	PL_TRY(array(&j, "groups", g->n_groups, group, err));
	PL_TRY(array(&j, "links", g->n_links, link_, err));
	PL_TRY(array(&j, "work", g->n_work, work, err));
	PL_TRY(array(&j, "shapes", g->n_shapes, shape, err));
	PL_TRY(array(&j, "tensors", g->n_tensors, tensor, err));
	PL_TRY(array(&j, "steps", g->n_steps, step, err));
	PL_TRY(pl_jsonw_close(&j.w, err));
	PL_TRY(pl_out_write(out, "\n", 1, err));
out:
	return rc;
}
