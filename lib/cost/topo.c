/* The topology that the resources of a graph show. */
#include "cost/internal.h"

/* String id of the host of a rank, PL_NONE if no resource has one. */
static pl_id host_of(const struct pl_graph *g, int32_t rank)
{
	for (size_t i = 0; i < g->n_res; i++)
		if (g->res[i].rank == rank && g->res[i].host != PL_NONE)
			return g->res[i].host;
	return PL_NONE;
}

/* run(1) is what records links, and its messages have at most so many bytes. */
#define MESSAGE (256 << 10)

/* Time to wake the thread that receives a message. */
#define WAKE_NS 70000

bool pl_cost_by_threads(const struct pl_graph *g)
{
	bool any = false;

	for (size_t k = 0; k < g->n_shapes; k++) {
		const struct pl_shape *s = &g->shape[k];

		for (uint32_t i = 0; i < s->n_nodes; i++) {
			if (s->role[i] != PL_RO_TRANSFER || s->res[i] == PL_NONE ||
			    s->flags[i] & PL_NF_MESSAGE)
				continue;
			if (g->res[s->res[i]].track_type != PL_T_THREAD)
				return false;
			any = true;
		}
	}
	return any;
}

/* Consecutive ranks with the same name of a host are on one host. The default latencies are those
 * of devices. If threads carry messages, a message takes at least as long as waking a thread. */
int pl_cost_topo_detect(const struct pl_graph *g, struct pl_topology *t, struct pl_err *err)
{
	pl_id last = PL_NONE;

	PL_CHECK(pl_topology_default((uint32_t)(g->n_ranks > 0 ? g->n_ranks : 1), 0, t, err));
	t->n_hosts = 0;
	for (int32_t i = 0; i < g->n_ranks; i++) {
		pl_id host = host_of(g, g->rank[i]);
		struct pl_thost h = { .first = (uint32_t)i, .n = 1 };
		const char *name = host == PL_NONE ? "" : pl_intern_get(&g->str, host);

		if (i && host == last) {
			t->host[t->n_hosts - 1].n++;
			continue;
		}
		h.name = pl_arena_dup(&t->arena, name, strlen(name));
		if (!h.name)
			PL_CHECK(pl_fail(err, PL_ENOMEM,
					 "out of memory for the names of a topology"));
		PL_CHECK(pl_append(&t->host, &t->n_hosts, &t->cap_hosts, &h, sizeof(h), err));
		last = host;
	}
	for (size_t i = 0; pl_cost_by_threads(g) && i < t->n_links; i++)
		t->link[i].latency_ns = pl_max_i64(t->link[i].latency_ns, WAKE_NS);
	return 0;
}

void pl_cost_topo_recorded(const struct pl_graph *g, struct pl_topology *t)
{
	t->pairs = g->n_links > 0;
	t->message_bytes = t->pairs ? MESSAGE : 0;
	for (size_t i = 0; i < g->n_links; i++)
		t->pairs &= g->link[i].to != g->link[i].from;
}
