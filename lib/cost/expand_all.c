/*
 * Expansion of all collectives of an edit into messages. For each, this file finds the hosts of its
 * members and, if the messages shall take as long as recorded, the recorded transfer time.
 */
#include "cost/expand_internal.h"

struct all {
	struct pl_edit *e;
	const struct pl_expand_all *x;
	struct pl_topology topo; /* of the members: links are those of x->topo */
	uint32_t *rank;		 /* members, as places among the graph's ranks, ascending */
	uint32_t *res;
	size_t cap_ranks, cap_res;
	uint32_t n;
};

static int find_ranks(struct all *a, uint32_t meet, struct pl_err *err)
{
	const struct pl_edit *e = a->e;
	int rc = 0;

	a->n = 0;
	for (uint32_t i = e->node[meet].in; i != PL_NONE && rc >= 0; i = e->edge[i].in_next) {
		uint32_t res = e->node[e->edge[i].src].res;

		rc = pl_grow(&a->rank, &a->cap_ranks, a->n + 1u, sizeof(*a->rank), err);
		if (rc >= 0)
			a->rank[a->n++] = res == PL_NONE
						  ? PL_NONE
						  : pl_graph_rank_index(e->g, e->res[res].rank);
	}
	if (a->n)
		pl_sort(a->rank, a->n, sizeof(*a->rank), pl_compare_u32);
	return rc;
}

/* Members on one host become a host of the group's topology. */
static int find_hosts(struct all *a, struct pl_err *err)
{
	struct pl_topology *t = &a->topo;
	uint32_t last = PL_NONE;

	t->n_hosts = 0;
	t->n_ranks = a->n;
	for (uint32_t i = 0; i < a->n; i++) {
		uint32_t host = pl_topology_host(a->x->topo, a->rank[i]);
		struct pl_thost h = { a->x->topo->host[host].name, i, 1 };

		if (t->n_hosts && host == last) {
			t->host[t->n_hosts - 1].n++;
			continue;
		}
		PL_CHECK(pl_append(&t->host, &t->n_hosts, &t->cap_hosts, &h, sizeof(h), err));
		last = host;
	}
	return 0;
}

static int find_links(struct all *a, uint32_t channels, struct pl_err *err)
{
	int rc = pl_grow(&a->res, &a->cap_res, (size_t)a->n * channels, sizeof(*a->res), err);

	for (uint32_t i = 0; i < a->n && rc >= 0; i++)
		memcpy(a->res + (size_t)i * channels, a->x->link + (size_t)a->rank[i] * channels,
		       channels * sizeof(*a->res));
	return rc;
}

/* The recorded time from the last arrival to the last end. */
static pl_ns recorded(const struct pl_edit *e, uint32_t meet)
{
	pl_ns end = e->node[meet].start;

	for (uint32_t i = e->node[meet].out; i != PL_NONE; i = e->edge[i].out_next)
		end = pl_max_i64(end, pl_edit_end(e, e->edge[i].dst));
	return end - e->node[meet].start;
}

/* The factor that makes the messages last as long as recorded; 0: there is none. */
static double stretch(const struct all *a, uint32_t meet, const struct pl_cost_comm *comm)
{
	struct pl_cost_comm was = *comm;
	pl_ns took = recorded(a->e, meet), model;
	const struct pl_cost *c = a->x->cost;
	const struct pl_fit *fit = c ? pl_cost_find_fit(c, comm) : NULL;

	was.algo = comm->was;
	was.servers = a->x->was_servers;
	if (fit && fit->flight_ns > 0 && comm->algo != comm->was)
		took = pl_min_i64(took, pl_cost_transfer(c, &was) + pl_cost_flight(c, &was));
	model = pl_cost_analytic(&a->topo, &was);
	return model > 0 ? (double)took / (double)model : 0;
}

/* The messages of a tree are those of one link a rank, on which data go down when all are up. Where
 * the graph says the links, analysis has another tree; this factor gives them its time. */
static double tree_factor(const struct all *a, const struct pl_cost_comm *comm)
{
	struct pl_topology plain = a->topo;
	pl_ns messages;

	plain.pairs = false;
	plain.message_bytes = 0;
	messages = pl_cost_analytic(&plain, comm);
	return messages > 0 ? (double)pl_cost_analytic(&a->topo, comm) / (double)messages : 1;
}

static int expand_one(struct all *a, uint32_t meet, struct pl_expanded *n, struct pl_err *err)
{
	const struct pl_expand_all *x = a->x;
	struct pl_expand one = { .topo = &a->topo, .channels = x->channels, .chunks = x->chunks };
	size_t mark = pl_edit_mark(a->e), nodes = a->e->n_nodes;
	struct pl_err why = { 0 };
	int rc;

	n->left++;
	if ((rc = find_ranks(a, meet, err)) < 0 || a->n < 2 || a->rank[a->n - 1] == PL_NONE ||
	    a->rank[a->n - 1] >= x->topo->n_ranks || (rc = find_hosts(a, err)) < 0)
		return rc;
	one.comm = (struct pl_cost_comm){ .kind = PL_K_COLLECTIVE,
					  .coll = pl_edit_coll(a->e, meet),
					  .algo = x->algo,
					  .was = pl_cost_algorithm(pl_edit_algorithm(a->e, meet)),
					  .group = a->e->node[meet].group,
					  .n = a->n,
					  .servers = x->servers,
					  .bytes = a->e->node[meet].bytes };
	one.stretch = x->recorded ? stretch(a, meet, &one.comm) : 1;
	if (one.stretch <= 0)
		return 0;
	one.stretch *= tree_factor(a, &one.comm);
	if (x->link && (rc = find_links(a, x->channels ? x->channels : 1, err)) < 0)
		return rc;
	one.res = x->link ? a->res : NULL;
	rc = pl_cost_expand(a->e, meet, &one, &why);
	if (rc == PL_EABSENT || rc == PL_EDATA) { /* as it was */
		pl_edit_undo(a->e, mark);
		return 0;
	}
	if (rc < 0)
		return pl_fail(err, rc, "%s", why.msg);
	n->left--;
	n->collectives++;
	for (; nodes < a->e->n_nodes; nodes++)
		n->messages += a->e->node[nodes].kind == PL_K_SEND;
	return 0;
}

int pl_cost_expand_all(struct pl_edit *e, const struct pl_expand_all *x, struct pl_expanded *n,
		       struct pl_err *err)
{
	struct all a = { .e = e, .x = x, .topo = *x->topo };
	size_t recorded_nodes = e->n_nodes;
	int rc = 0;

	a.topo.host = NULL;
	a.topo.cap_hosts = a.topo.n_hosts = 0;
	*n = (struct pl_expanded){ 0 };
	for (uint32_t i = 0; i < recorded_nodes; i++) {
		const struct pl_enode *v = &e->node[i];

		if (!v->dead && v->type == PL_N_RENDEZVOUS && v->role != PL_RO_MARK &&
		    v->kind == PL_K_COLLECTIVE)
			PL_TRY(expand_one(&a, i, n, err));
	}
	rc = pl_edit_settle(e, err);
out:
	pl_free(a.topo.host);
	pl_free(a.rank);
	pl_free(a.res);
	return rc;
}
