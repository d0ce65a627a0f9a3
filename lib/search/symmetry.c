/*
 * Symmetry: if several ranks do the same at the same time, one of them is enough.
 *
 * Two ranks are equal if three conditions hold. Their nodes, in order, have the same kind, name,
 * group and size. The nodes have the same predecessors (each in its own rank, or a rendezvous of
 * both) and the same recorded times in every step. Their resources and tensors are alike. A
 * rendezvous then waits for one rank of each class, because the others arrive at the same moment.
 * Each rank gets a hash over all of this, in one pass over nodes and edges. Afterwards the mean
 * step of the smaller graph is compared with that of the whole graph, to the nanosecond.
 */
#include <stdlib.h>
#include <string.h>

#include "search/internal.h"

struct rank_class {
	uint64_t hash;
	int32_t rank;
	uint32_t slot; /* in the graph's list of ranks */
};
struct symmetry {
	const struct pl_graph *g;
	uint64_t *hash;	 /* [rank slot] */
	uint32_t *count; /* [rank slot]: nodes of the shape so far */
	uint32_t *local; /* [node]: number within its rank */
	uint32_t *slot;	 /* [resource]: rank slot */
	uint32_t *res;	 /* [resource]: number within its rank */
};

static void mix(uint64_t *h, uint64_t v)
{
	*h = ((*h << 5 | *h >> 59) ^ v) * 0x9e3779b97f4a7c15u;
	*h ^= *h >> 32;
}

static void hash_resources(struct symmetry *s)
{
	const struct pl_graph *g = s->g;

	for (size_t i = 0; i < g->n_res; i++) {
		const struct pl_resource *r = &g->res[i];
		uint32_t slot = pl_graph_rank_index(s->g, r->rank);

		s->slot[i] = slot;
		if (slot == PL_NONE)
			continue;
		s->res[i] = s->count[slot]++;
		mix(&s->hash[slot],
		    r->track_type | (uint64_t)r->discipline << 8 | (uint64_t)r->capacity << 16);
		mix(&s->hash[slot], (uint64_t)r->launch_ns);
		mix(&s->hash[slot], (uint64_t)r->dispatch_ns);
		mix(&s->hash[slot], (uint64_t)r->early_ns);
	}
}

/* A predecessor: one's own by its number there; of no rank by its number in the shape. One of
 * another rank makes the rank unlike any other. */
static void hash_edge(struct symmetry *s, const struct pl_shape *sh, uint32_t slot, uint32_t src,
		      uint8_t type)
{
	uint32_t from = sh->res[src] == PL_NONE ? PL_NONE : s->slot[sh->res[src]];
	uint64_t *h = &s->hash[slot];

	if (from == PL_NONE)
		mix(h, (uint64_t)src << 8 | type | 1ull << 60);
	else if (from == slot)
		mix(h, (uint64_t)s->local[src] << 8 | type);
	else {
		mix(h, slot | 1ull << 61);
		mix(&s->hash[from], from | 1ull << 61);
	}
}

static void hash_node(struct symmetry *s, const struct pl_shape *sh, uint32_t i)
{
	uint32_t slot = s->slot[sh->res[i]];
	uint64_t *h = &s->hash[slot];

	s->local[i] = s->count[slot]++;
	mix(h, sh->type[i] | (uint64_t)sh->role[i] << 8 | (uint64_t)sh->kind[i] << 16 |
		       (uint64_t)sh->flags[i] << 24 | (uint64_t)s->res[sh->res[i]] << 32);
	mix(h, sh->name[i] | (uint64_t)sh->group[i] << 32);
	mix(h, sh->bytes ? (uint64_t)sh->bytes[i] : UINT64_MAX);
	mix(h,
	    (uint64_t)(sh->layer ? sh->layer[i] : -1) << 32 ^ (uint32_t)(sh->mb ? sh->mb[i] : -1));
	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
		hash_edge(s, sh, slot, sh->src[e], sh->etype[e]);
}

/* Who meets: the rank knows its part by the arrivals' numbers, which the rendezvous mixes in. */
static void hash_meeting(struct symmetry *s, const struct pl_shape *sh, uint32_t i)
{
	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++) {
		uint32_t src = sh->src[e];

		if (sh->res[src] != PL_NONE && s->slot[sh->res[src]] != PL_NONE)
			mix(&s->hash[s->slot[sh->res[src]]],
			    (uint64_t)i << 32 | (s->local[src] ^ (uint32_t)sh->etype[e] << 28));
	}
}

static void hash_times(struct symmetry *s, const struct pl_gstep *st)
{
	const struct pl_shape *sh = &s->g->shape[st->shape];

	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		uint32_t slot = sh->res[i] == PL_NONE ? PL_NONE : s->slot[sh->res[i]];

		if (slot == PL_NONE)
			continue;
		mix(&s->hash[slot], (uint64_t)st->start[i]);
		mix(&s->hash[slot], (uint64_t)st->dur[i]);
	}
}

/* Numbers within the rank are made anew for each shape: s->count is reset. */
static int hash_shape(struct symmetry *s, uint32_t shape, struct pl_err *err)
{
	const struct pl_graph *g = s->g;
	const struct pl_shape *sh = &g->shape[shape];
	int rc = pl_alloc(&s->local, sh->n_nodes, sizeof(*s->local), err);

	if (rc < 0)
		return rc;
	memset(s->count, 0, (size_t)g->n_ranks * sizeof(*s->count));
	for (uint32_t i = 0; i < sh->n_nodes; i++) {
		if (sh->res[i] == PL_NONE)
			hash_meeting(s, sh, i);
		else if (s->slot[sh->res[i]] != PL_NONE)
			hash_node(s, sh, i);
	}
	for (size_t t = 0; t < g->n_tensors; t++) {
		const struct pl_tensor *x = &g->tensor[t];
		uint32_t at = x->producer;

		if (x->shape != shape)
			continue;
		if (at == PL_NONE && x->n_consumers)
			at = g->consumer[x->consumer];
		if (at == PL_NONE || sh->res[at] == PL_NONE || s->slot[sh->res[at]] == PL_NONE)
			continue;
		mix(&s->hash[s->slot[sh->res[at]]],
		    (uint64_t)x->name << 32 ^ (uint64_t)s->local[at] << 4 ^ x->role);
		mix(&s->hash[s->slot[sh->res[at]]], (uint64_t)x->bytes ^ (uint64_t)x->flags << 62);
		for (uint32_t c = 0; c < x->n_consumers; c++)
			mix(&s->hash[s->slot[sh->res[at]]], s->local[g->consumer[x->consumer + c]]);
	}
	pl_free(s->local);
	s->local = NULL;
	return 0;
}

PL_COMPARATOR(by_hash, struct rank_class, hash, rank);

/* The first rank of each class, as pairs for pl_graph_pick(). */
static int classes(const struct symmetry *s, int64_t **pair, size_t *n, struct pl_err *err)
{
	size_t ranks = (size_t)s->g->n_ranks;
	struct rank_class *v = NULL;
	int rc = pl_alloc(&v, ranks, sizeof(*v), err);

	*n = 0;
	if (rc == 0 && (rc = pl_alloc(pair, 2 * ranks, sizeof(**pair), err)) == 0) {
		for (uint32_t i = 0; i < ranks; i++)
			v[i] = (struct rank_class){ s->hash[i], s->g->rank[i], i };
		pl_sort(v, ranks, sizeof(*v), by_hash);
		for (size_t i = 0; i < ranks; i++) {
			if (i && v[i].hash == v[i - 1].hash)
				continue;
			(*pair)[2 * *n] = (*pair)[2 * *n + 1] = v[i].rank;
			++*n;
		}
	}
	pl_free(v);
	return rc;
}

static int find_classes(const struct pl_graph *g, int64_t **pair, size_t *n, struct pl_err *err)
{
	struct symmetry s = { .g = g };
	int rc;

	PL_TRY(pl_alloc(&s.hash, (size_t)g->n_ranks, sizeof(*s.hash), err));
	PL_TRY(pl_alloc(&s.count, (size_t)g->n_ranks, sizeof(*s.count), err));
	PL_TRY(pl_alloc(&s.slot, g->n_res, sizeof(*s.slot), err));
	PL_TRY(pl_alloc(&s.res, g->n_res, sizeof(*s.res), err));
	hash_resources(&s);
	for (uint32_t i = 0; i < g->n_shapes; i++)
		PL_TRY(hash_shape(&s, i, err));
	for (size_t k = 0; k < g->n_steps; k++)
		hash_times(&s, &g->step[k]);
	PL_TRY(classes(&s, pair, n, err));
out:
	pl_free(s.hash);
	pl_free(s.count);
	pl_free(s.slot);
	pl_free(s.res);
	return rc;
}

/* Communication whose ranks are known to the graph keeps their number when ranks are left out; and
 * what misses partners already cannot be told from what would miss them then. */
static bool may_leave_out(const struct pl_graph *g)
{
	for (size_t k = 0; k < g->n_shapes; k++) {
		const struct pl_shape *sh = &g->shape[k];

		for (uint32_t i = 0; i < sh->n_nodes; i++)
			if (sh->flags[i] & PL_NF_MISSING ||
			    (sh->role[i] == PL_RO_ARRIVE && sh->group[i] >= g->n_groups))
				return false;
	}
	return g->n_ranks > 1;
}

int pl_search_reduce(const struct pl_graph *g, struct pl_graph *out, bool *reduced,
		     struct pl_err *err)
{
	struct pl_graph_part part = { 0 };
	struct pl_sim *whole = NULL, *some = NULL;
	int64_t *pair = NULL;
	double a = 0, b = 1;
	int rc = 0;

	*reduced = false;
	if (!may_leave_out(g))
		return 0;
	PL_TRY(find_classes(g, &pair, &part.n_ranks, err));
	if (part.n_ranks == (size_t)g->n_ranks)
		goto out;
	part.rank = pair;
	PL_TRY(pl_graph_pick(g, &part, out, err));
	for (size_t k = 0; k < out->n_shapes; k++)
		for (uint32_t i = 0; i < out->shape[k].n_nodes; i++)
			out->shape[k].flags[i] &= (uint8_t)~PL_NF_MISSING;
	whole = pl_sim_new(g, err);
	some = whole ? pl_sim_new(out, err) : NULL;
	if (!some) {
		rc = err->code;
	} else if ((rc = pl_sim_mean(whole, NULL, &a, err)) == 0) {
		rc = pl_sim_mean(some, NULL, &b, err);
	}
	*reduced = rc == 0 && a == b;
	if (!*reduced)
		pl_graph_fini(out);
out:
	pl_sim_free(whole);
	pl_sim_free(some);
	pl_free(pair);
	return rc;
}
