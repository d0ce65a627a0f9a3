/*
 * Counts of a graph: one pass over the nodes and edges of each shape, and one over the times of
 * each step. Nodes and edges count once for each shape, times and communications for each step.
 */
#include "graph/stat.h"

static int count_hosts(struct graph_stat *s, struct pl_err *err)
{
	uint8_t *seen; /* [string] */

	PL_CHECK(pl_alloc(&seen, s->g->str.n, sizeof(*seen), err));
	for (int32_t i = 0; i < s->g->n_ranks; i++) {
		pl_id host = s->rank[i].host;

		if (host == PL_NONE || seen[host])
			continue;
		seen[host] = 1;
		s->n_hosts++;
	}
	pl_free(seen);
	return 0;
}

static void count_resources(struct graph_stat *s)
{
	const struct pl_graph *g = s->g;

	for (int32_t i = 0; i < g->n_ranks; i++)
		s->rank[i].host = PL_NONE;
	for (size_t i = 0; i < g->n_res; i++) {
		const struct pl_resource *r = &g->res[i];
		struct stat_rank *k;

		s->rank_of[i] = pl_graph_rank_index(g, r->rank);
		if (s->rank_of[i] == PL_NONE)
			continue;
		k = &s->rank[s->rank_of[i]];
		if (r->host != PL_NONE)
			k->host = r->host;
		if (r->track_type == PL_T_THREAD)
			k->threads++;
		else if (r->track_type == PL_T_STREAM)
			k->streams++;
		else
			k->others++;
	}
}

static void count_shape(struct graph_stat *s, size_t id)
{
	const struct pl_shape *p = &s->g->shape[id];

	for (uint32_t i = 0; i < p->n_nodes; i++)
		s->type[p->type[i]].n++;
	for (uint32_t e = 0; e < p->n_edges; e++) {
		bool inferred = p->etype[e] & PL_E_INFERRED;

		s->edge[PL_E_TYPE(p->etype[e])][inferred]++;
		s->shape[id].inferred += inferred;
	}
	s->nodes += p->n_nodes;
	s->edges += p->n_edges;
}

static int find_comm(struct graph_stat *s, const struct pl_shape *p, uint32_t node,
		     struct stat_comm **c, struct pl_err *err)
{
	unsigned kind = pl_node_coll(p, node);
	const char *coll = kind == PL_COLL_OTHER ? pl_trace_kind_name(p->kind[node])
						 : pl_trace_coll_name(kind);
	int rc;

	for (size_t i = 0; i < s->n_comm; i++) {
		if (!strcmp(s->comm[i].name, coll)) {
			*c = &s->comm[i];
			return 0;
		}
	}
	rc = pl_append(&s->comm, &s->n_comm, &s->cap_comm, &(struct stat_comm){ .name = coll },
		       sizeof(**c), err);
	*c = rc == 0 ? &s->comm[s->n_comm - 1] : NULL;
	return rc;
}

static int count_transfer(struct graph_stat *s, const struct pl_shape *p, const struct pl_gstep *t,
			  uint32_t i, struct pl_err *err)
{
	uint32_t arrive = pl_node_arrival(p, i);
	pl_ns wait = arrive == PL_NONE ? 0 : pl_max_i64(0, t->start[i] - t->start[arrive]);
	struct stat_comm *c;

	PL_CHECK(find_comm(s, p, i, &c, err));
	c->n++;
	if (!p->bytes || p->bytes[i] < 0)
		c->unknown++;
	else
		c->bytes = pl_add_sat(c->bytes, p->bytes[i]);
	c->transfer_ns = pl_add_sat(c->transfer_ns, t->dur[i]);
	c->wait_ns = pl_add_sat(c->wait_ns, wait);
	c->missing += (p->flags[i] & PL_NF_MISSING) != 0;
	if (p->group[i] != PL_NONE) {
		s->group[p->group[i]].n++;
		s->group[p->group[i]].ns = pl_add_sat(s->group[p->group[i]].ns, t->dur[i]);
	}
	if (p->res[i] != PL_NONE && s->rank_of[p->res[i]] != PL_NONE) {
		struct stat_rank *r = &s->rank[s->rank_of[p->res[i]]];

		r->transfer_ns = pl_add_sat(r->transfer_ns, t->dur[i]);
		r->wait_ns = pl_add_sat(r->wait_ns, wait);
	}
	return 0;
}

static void count(struct tally *t, pl_ns ns)
{
	t->n++;
	t->ns = pl_add_sat(t->ns, ns);
}

static int count_step(struct graph_stat *s, size_t id, struct pl_err *err)
{
	const struct pl_gstep *t = &s->g->step[id];
	const struct pl_shape *p = &s->g->shape[t->shape];
	pl_ns start = INT64_MAX, end = INT64_MIN;
	int rc;

	for (uint32_t i = 0; i < p->n_nodes; i++) {
		uint32_t rank = p->res[i] == PL_NONE ? PL_NONE : s->rank_of[p->res[i]];

		count(&s->phase[p->phase ? p->phase[i] : PL_PH_UNKNOWN], t->dur[i]);
		count(&s->op[pl_node_operator(s->g, p, i)], t->dur[i]);
		count(&s->role[p->role[i]], t->dur[i]);
		if (rank != PL_NONE && p->type[i] != PL_N_ENTRY) {
			s->rank[rank].nodes++;
			if (p->role[i] == PL_RO_COMPUTE)
				s->rank[rank].compute_ns =
					pl_add_sat(s->rank[rank].compute_ns, t->dur[i]);
		}
		if (p->role[i] == PL_RO_TRANSFER && (rc = count_transfer(s, p, t, i, err)) < 0)
			return rc;
		if (p->flags[i] & PL_NF_STEP_BEGIN)
			start = pl_min_i64(start, t->start[i]);
		if (p->flags[i] & PL_NF_IN_STEP)
			end = pl_max_i64(end, t->start[i] + t->dur[i]);
	}
	s->node_rows += p->n_nodes;
	s->shape[t->shape].steps++;
	s->step[id].start_ns = start == INT64_MAX ? INT64_MIN : start;
	s->step[id].recorded_ns = start == INT64_MAX || end < start ? INT64_MIN : end - start;
	return 0;
}

static void count_tensors(struct graph_stat *s)
{
	const struct pl_graph *g = s->g;

	for (size_t i = 0; i < g->n_tensors; i++) {
		struct stat_tensor *t = &s->tensor[g->tensor[i].role];

		t->n++;
		t->estimated += (g->tensor[i].flags & PL_TF_ESTIMATED) != 0;
		s->tensors_estimated += (g->tensor[i].flags & PL_TF_ESTIMATED) != 0;
		if (g->tensor[i].bytes < 0)
			t->unknown++;
		else if (!(g->tensor[i].flags & PL_TF_ELSEWHERE))
			t->bytes = pl_add_sat(t->bytes, g->tensor[i].bytes);
	}
}

int pl_graph_stat_collect(const struct pl_graph *g, struct graph_stat *s, struct pl_err *err)
{
	memset(s, 0, sizeof(*s));
	s->g = g;
	PL_CHECK(pl_alloc(&s->rank_of, g->n_res, sizeof(*s->rank_of), err));
	PL_CHECK(pl_alloc(&s->rank, (size_t)g->n_ranks, sizeof(*s->rank), err));
	PL_CHECK(pl_alloc(&s->step, g->n_steps, sizeof(*s->step), err));
	PL_CHECK(pl_alloc(&s->shape, g->n_shapes, sizeof(*s->shape), err));
	PL_CHECK(pl_alloc(&s->group, g->n_groups, sizeof(*s->group), err));
	count_resources(s);
	PL_CHECK(count_hosts(s, err));
	for (size_t i = 0; i < g->n_groups; i++)
		s->groups_inferred += (g->group[i].flags & PL_GROUP_INFERRED) != 0;
	for (size_t i = 0; i < g->n_shapes; i++)
		count_shape(s, i);
	count_tensors(s);
	for (size_t i = 0; i < g->n_steps; i++)
		PL_CHECK(count_step(s, i, err));
	return 0;
}

void pl_graph_stat_fini(struct graph_stat *s)
{
	pl_free(s->rank_of);
	pl_free(s->rank);
	pl_free(s->step);
	pl_free(s->shape);
	pl_free(s->group);
	pl_free(s->comm);
}
