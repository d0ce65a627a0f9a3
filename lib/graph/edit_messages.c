/* Messages of collectives: their links; their replacement by one transfer for each member. */
#include "graph/edit_messages.h"

bool pl_graph_has_messages(const struct pl_graph *g)
{
	for (size_t k = 0; k < g->n_shapes; k++)
		for (uint32_t i = 0; i < g->shape[k].n_nodes; i++)
			if (g->shape[k].flags[i] & PL_NF_MESSAGE)
				return true;
	return false;
}

int pl_graph_add_links(struct pl_graph *g, uint32_t channels, uint32_t **link, struct pl_err *err)
{
	size_t n = (size_t)g->n_ranks * channels;
	int rc;

	*link = NULL;
	PL_TRY(pl_alloc(link, n + 1, sizeof(**link), err));
	PL_TRY(pl_grow(&g->res, &g->cap_res, g->n_res + n, sizeof(*g->res), err));
	for (size_t i = 0; i < n; i++) {
		struct pl_resource *r = &g->res[g->n_res], *like = NULL;
		char name[40];

		for (size_t k = 0; k < g->n_res && !like; k++)
			if (g->res[k].rank == g->rank[i / channels])
				like = &g->res[k];
		*r = (struct pl_resource){ .track_type = PL_T_LINK,
					   .rank = g->rank[i / channels],
					   .device = like ? like->device : -1,
					   .capacity = 1,
					   .host = like ? like->host : PL_NONE };
		if (like)
			memcpy(r->coord, like->coord, sizeof(r->coord));
		else
			memset(r->coord, 0xff, sizeof(r->coord));
		snprintf(name, sizeof(name), "channel %zu", i % channels);
		PL_TRY(pl_intern_add(&g->str, name, strlen(name), &r->name, err));
		(*link)[i] = (uint32_t)g->n_res++;
	}
out:
	if (rc < 0) {
		pl_free(*link);
		*link = NULL;
	}
	return rc;
}

static bool has_message(const struct pl_edit *e, uint32_t transfer)
{
	for (uint32_t i = e->node[transfer].in; i != PL_NONE; i = e->edge[i].in_next)
		if (e->node[e->edge[i].src].flags & PL_NF_MESSAGE)
			return true;
	return false;
}

/* Replace the messages of one member. The end of the member does not change. */
static int fold_member(struct pl_edit *e, uint32_t meet, uint32_t arrive, bool *any,
		       struct pl_err *err)
{
	uint32_t t = pl_edit_transfer(e, arrive);
	pl_ns end, from = e->node[meet].start;

	if (t == PL_NONE || !has_message(e, t))
		return 0;
	*any = true;
	end = pl_edit_end(e, t);
	if (end >= from) {
		PL_CHECK(pl_edit_add_edge(e, meet, t, PL_E_COMM, 0, err));
	} else {
		from = e->node[arrive].start; /* the member did not wait for the last arrival */
	}
	return pl_edit_set_dur(e, t, pl_max_i64(0, end - from), err);
}

/* Is the node a rendezvous without a transfer behind it? */
static bool is_open(const struct pl_edit *e, uint32_t i)
{
	const struct pl_enode *n = &e->node[i];

	if (n->dead || n->type != PL_N_RENDEZVOUS || n->role == PL_RO_MARK)
		return false;
	for (uint32_t x = n->out; x != PL_NONE; x = e->edge[x].out_next)
		if (e->node[e->edge[x].dst].role == PL_RO_TRANSFER)
			return false;
	return true;
}

int pl_edit_fold_messages(struct pl_edit *e, uint64_t *n, struct pl_err *err)
{
	size_t nodes = e->n_nodes;
	uint64_t count = 0;
	int rc = 0;

	for (uint32_t i = 0; i < nodes && rc >= 0; i++) {
		bool any = false;

		if (!is_open(e, i))
			continue;
		for (uint32_t x = e->node[i].in; x != PL_NONE && rc >= 0; x = e->edge[x].in_next)
			rc = fold_member(e, i, e->edge[x].src, &any, err);
		count += any;
	}
	for (uint32_t i = 0; i < nodes && rc >= 0; i++)
		if (!e->node[i].dead && e->node[i].flags & PL_NF_MESSAGE)
			rc = pl_edit_drop_node(e, i, err);
	if (n)
		*n = count;
	return rc < 0 ? rc : pl_edit_settle(e, err);
}
