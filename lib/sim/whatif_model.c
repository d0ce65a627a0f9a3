/*
 * What-if: facts about the whole graph that statements need, found once for all runs.
 *
 * fix needs typical durations (straggler_typical.c). bandwidth, latency and ranks need the class of
 * a communication: all communications of a class have the same cost. For each class lib/cost gives
 * the line a + b S that was fitted to the graph. A statement changes the line. The duration of a
 * transfer is multiplied by the ratio of the line after the change to the line before, so that an
 * unusually long or short transfer stays so.
 *
 * The data-parallel communication is found by the first rule that applies: communication whose
 * members have several data-parallel coordinates; if the graph has no coordinates, communication of
 * groups that carry gradients; if it has no gradients either, communication of all ranks.
 *
 * One pass over the nodes of each shape; 4 bytes for each node of a shape, 8 for each class and
 * statement.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cost/cost.h"
#include "sim/whatif.h"

/* ---- typical durations ----------------------------------------------------------------------- */

static int find_typical(struct pl_whatif_model *m, const struct pl_whatif *w,
			const struct pl_graph *g, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < w->n; i++) {
		const struct pl_change *c = &w->change[i];

		if (c->verb == V_FIX && !m->typical[c->how].class)
			rc = pl_sim_typical_find(g, c->how, &m->typical[c->how], err);
	}
	return rc;
}

/* ---- which communication is data-parallel ------------------------------------------------------
 */

struct parallel {
	const struct pl_graph *g;
	int32_t *dp;	   /* [n_ranks]: coordinate of the rank, -1 unknown */
	bool known;	   /* of any rank */
	bool *gradients;   /* [group] */
	bool any_gradient; /* of any group */
	bool guessed;	   /* nothing of both was known, and all ranks had part */
	int32_t *scratch;
	size_t cap;
};

/* A rank's place in the order of the graph's ranks, n_ranks if it has none. */
static size_t rank_at(const struct pl_graph *g, int64_t rank)
{
	int32_t r = rank > INT32_MAX ? -1 : (int32_t)rank;
	uint32_t at = pl_graph_rank_index(g, r);

	return at == PL_NONE ? (size_t)g->n_ranks : at;
}

static void parallel_fini(struct parallel *x)
{
	pl_free(x->dp);
	pl_free(x->gradients);
	pl_free(x->scratch);
}

static int parallel_init(struct parallel *x, const struct pl_graph *g, struct pl_err *err)
{
	int rc;

	x->g = g;
	PL_TRY(pl_alloc(&x->dp, (size_t)g->n_ranks + 1, sizeof(*x->dp), err));
	PL_TRY(pl_alloc(&x->gradients, g->n_groups, sizeof(*x->gradients), err));
	for (int32_t i = 0; i <= g->n_ranks; i++)
		x->dp[i] = -1;
	for (size_t i = 0; i < g->n_res; i++) {
		size_t at = rank_at(g, g->res[i].rank);

		if (at == (size_t)g->n_ranks || g->res[i].coord[PL_COORD_DP] < 0)
			continue;
		x->dp[at] = g->res[i].coord[PL_COORD_DP];
		x->known = true;
	}
	for (size_t i = 0; i < g->n_tensors; i++) {
		const struct pl_tensor *t = &g->tensor[i];

		for (uint32_t k = 0; t->role == PL_TR_GRAD && k < t->n_consumers; k++) {
			const struct pl_shape *s = &g->shape[t->shape];
			uint32_t node = g->consumer[t->consumer + k], group = s->group[node];

			if (s->role[node] != PL_RO_ARRIVE || group == PL_NONE)
				continue;
			x->gradients[group] = x->any_gradient = true;
		}
	}
out:
	return rc;
}

static uint32_t distinct(int32_t *v, size_t n)
{
	uint32_t kept = 0;

	pl_sort(v, n, sizeof(*v), pl_compare_i32);
	for (size_t i = 0; i < n; i++)
		if (v[i] >= 0 && (!i || v[i] != v[i - 1]))
			kept++;
	return kept;
}

/* How many data-parallel workers have part in the communication; 0: it is not data-parallel. */
static int workers(struct parallel *x, const struct pl_shape *s, uint32_t meet, uint32_t group,
		   uint32_t n, uint32_t *out, struct pl_err *err)
{
	const struct pl_graph *g = x->g;
	size_t k = 0;
	int rc;

	*out = 0;
	if (!x->known && x->any_gradient) {
		*out = group != PL_NONE && x->gradients[group] ? n : 0;
		return 0;
	}
	if (!x->known) {
		*out = (int64_t)n == g->n_ranks ? n : 0;
		x->guessed |= *out > 0;
		return 0;
	}
	if ((rc = pl_grow(&x->scratch, &x->cap, n, sizeof(*x->scratch), err)) < 0)
		return rc;
	if (group != PL_NONE)
		for (; k < n; k++)
			x->scratch[k] = x->dp[rank_at(g, g->group_rank[g->group[group].rank + k])];
	else
		for (uint32_t e = s->off[meet]; e < s->off[meet + 1]; e++)
			x->scratch[k++] = x->dp[rank_at(g, pl_node_rank(g, s, s->src[e]))];
	*out = distinct(x->scratch, k);
	*out = *out < 2 ? 0 : *out;
	return 0;
}

/* ---- classes of communication ------------------------------------------------------------------
 */

struct comm_key { /* equal in every byte: of one class */
	int64_t bytes;
	uint32_t n, workers;
	uint16_t kind, coll;
	uint32_t message; /* one side of a recorded message, as its kind says */
};

static uint32_t meeting(const struct pl_shape *s, uint32_t i)
{
	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
		if (s->type[s->src[e]] == PL_N_RENDEZVOUS && PL_E_TYPE(s->etype[e]) == PL_E_COMM)
			return s->src[e];
	return PL_NONE;
}

/* What the transfer is; as lib/cost sees it when it fits. False: nothing that a line is for. */
static int describe(struct parallel *x, const struct pl_shape *s, uint32_t i, struct comm_key *key,
		    bool *is, struct pl_err *err)
{
	uint32_t meet = meeting(s, i), group = s->group[i];

	*key = (struct comm_key){ .bytes = s->bytes ? s->bytes[i] : -1,
				  .kind = s->kind[i],
				  .coll = (uint16_t)pl_node_coll(s, i) };
	if (group != PL_NONE)
		key->n = x->g->group[group].n;
	else if (meet != PL_NONE)
		key->n = s->off[meet + 1] - s->off[meet];
	if (meet != PL_NONE && s->bytes)
		key->bytes = pl_max_i64(key->bytes, s->bytes[meet]);
	*is = true;
	if (key->kind == PL_K_SEND || key->kind == PL_K_RECV || key->coll == PL_COLL_SEND ||
	    key->coll == PL_COLL_RECV) {
		key->n = 2;
		key->message = s->flags[i] & PL_NF_MESSAGE && key->bytes > 0;
		return 0;
	}
	*is = key->n >= 2;
	return *is && key->coll != PL_COLL_SENDRECV
		       ? workers(x, s, meet, group, key->n, &key->workers, err)
		       : 0;
}

static int classify(struct pl_whatif_model *m, struct parallel *x, struct pl_intern *keys,
		    struct pl_err *err)
{
	int rc;

	m->n_shapes = x->g->n_shapes;
	PL_TRY(pl_alloc(&m->class, m->n_shapes, sizeof(*m->class), err));
	for (size_t k = 0; k < m->n_shapes; k++) {
		const struct pl_shape *s = &x->g->shape[k];
		uint32_t *class;

		PL_TRY(pl_alloc(&class, s->n_nodes, sizeof(*class), err));
		m->class[k] = class;
		for (uint32_t i = 0; i < s->n_nodes; i++) {
			struct comm_key key;
			bool is;

			class[i] = PL_NONE;
			if (s->role[i] != PL_RO_TRANSFER)
				continue;
			PL_TRY(describe(x, s, i, &key, &is, err));
			if (is)
				PL_TRY(pl_intern_add(keys, (const char *)&key, sizeof(key),
						     &class[i], err));
		}
	}
	m->n_classes = keys->n;
out:
	return rc;
}

/* ---- lines that statements move ----------------------------------------------------------------
 */

struct moved { /* a class of communication, as the statements so far have it */
	struct pl_cost_comm comm;
	bool message, link; /* a side of a message; that on which the link is */
	uint32_t workers;
	struct pl_cost_line line; /* of `n` ranks, without changes of single links */
	uint32_t n;
	bool gone;	       /* one rank is left */
	double link_a, link_b; /* what changes of single links do */
};
struct mover {
	const struct pl_cost *cost;
	struct pl_link_change *change; /* of single links, so far */
	uint32_t n_changes;
	struct moved *v;
	size_t n;
};

static double transfer(const struct moved *x)
{
	return x->gone ? 0
		       : x->line.a_ns * x->link_a +
				 x->line.b_ns_per_byte * x->link_b * (double)x->line.bytes;
}

static void move_ranks(struct moved *x, uint32_t ranks)
{
	struct pl_cost_comm now = x->comm, was = x->comm;
	uint64_t n = (uint64_t)x->comm.n / x->workers * ranks;
	double to[2], from[2];

	x->gone = n < 2;
	if (x->gone)
		return;
	was.n = x->n;
	now.n = x->n = (uint32_t)(n < UINT32_MAX ? n : UINT32_MAX);
	pl_cost_ring(&was, &from[0], &from[1]);
	pl_cost_ring(&now, &to[0], &to[1]);
	x->line.a_ns *= from[0] > 0 ? to[0] / from[0] : 1;
	x->line.b_ns_per_byte *= from[1] > 0 ? to[1] / from[1] : 1;
}

static void move_latency_to(struct moved *x, pl_ns to)
{
	struct pl_cost_comm now = x->comm;
	double messages, share;

	now.n = x->n;
	pl_cost_ring(&now, &messages, &share);
	x->line.a_ns = messages * (double)to;
}

static const struct pl_tlink *find_link(const struct mover *mv, const char *name)
{
	const struct pl_topology *t = &mv->cost->topo;

	for (size_t i = 0; i < t->n_links; i++)
		if (t->link[i].name && !strcmp(t->link[i].name, name))
			return &t->link[i];
	return NULL;
}

static int add_link_change(struct mover *mv, const struct pl_change *c, struct pl_err *err)
{
	struct pl_link_change *x = &mv->change[mv->n_changes];
	const struct pl_topology *t = &mv->cost->topo;
	const struct pl_tlink *link = find_link(mv, c->link);

	if (!link)
		return pl_fail(err, PL_EUSAGE,
			       "what-if \"%s\": no link of the topology is called \"%s\", but "
			       "\"%s\"%s%s%s; another topology can be given",
			       c->text, c->link, t->n_links ? t->link[0].name : "",
			       t->n_links > 1 ? " and \"" : "",
			       t->n_links > 1 ? t->link[1].name : "", t->n_links > 1 ? "\"" : "");
	if (c->to >= 0 && link->latency_ns <= 0)
		return pl_fail(
			err, PL_EUSAGE,
			"what-if \"%s\": in the topology that link has no latency that could "
			"become another; leave the link out, or give another topology",
			c->text);
	*x = (struct pl_link_change){ .link = c->link, .bandwidth = 1, .latency = 1 };
	if (c->verb == V_BANDWIDTH)
		x->bandwidth = c->by;
	else
		x->latency = c->to >= 0 ? (double)c->to / (double)link->latency_ns : c->by;
	mv->n_changes++;
	return 0;
}

/* Does communication of that class pass the link? */
static bool passes(const struct mover *mv, const struct moved *x, const char *link)
{
	const struct pl_link_change probe = { .link = link, .bandwidth = 0.5, .latency = 2 };
	struct pl_cost_comm comm = x->comm;
	double a, b;

	comm.change = &probe;
	comm.n_changes = 1;
	pl_cost_links(mv->cost, &comm, &a, &b);
	return a != 1 || b != 1;
}

/* False: the statement does not concern the class. */
static bool move(const struct mover *mv, struct moved *x, const struct pl_change *c)
{
	if (c->verb == V_RANKS) {
		if (x->workers)
			move_ranks(x, c->ranks);
		return x->workers > 0;
	}
	/* of a message bandwidth is on the link's side; latency is between the two, but concerns
	 * what is received (pl_whatif_latency()) */
	if (x->message && c->verb == V_LATENCY)
		return x->comm.kind == PL_K_RECV;
	if (x->message && !x->link)
		return false;
	if (!c->link) {
		if (c->verb == V_BANDWIDTH)
			x->line.b_ns_per_byte /= c->by;
		else if (c->to >= 0)
			move_latency_to(x, c->to);
		else
			x->line.a_ns *= c->by;
		return true;
	}
	if (!passes(mv, x, c->link))
		return false;
	x->comm.change = mv->change;
	x->comm.n_changes = mv->n_changes;
	pl_cost_links(mv->cost, &x->comm, &x->link_a, &x->link_b);
	return true;
}

static int mover_init(struct mover *mv, const struct pl_graph *g, const struct pl_intern *keys,
		      size_t statements, struct pl_err *err)
{
	struct pl_cost_sides sides;
	int rc;

	PL_TRY(pl_cost_sides(g, &sides, err));
	PL_TRY(pl_alloc(&mv->change, statements, sizeof(*mv->change), err));
	PL_TRY(pl_alloc(&mv->v, keys->n, sizeof(*mv->v), err));
	mv->n = keys->n;
	for (size_t i = 0; i < mv->n; i++) {
		struct moved *x = &mv->v[i];
		struct comm_key key;

		memcpy(&key, pl_intern_get(keys, (pl_id)i), sizeof(key));
		*x = (struct moved){ .comm = { .kind = (uint8_t)key.kind,
					       .coll = (uint8_t)key.coll,
					       .algo = PL_ALGO_RING,
					       .group = PL_NONE,
					       .n = key.n,
					       .bytes = key.bytes },
				     .workers = key.workers,
				     .n = key.n,
				     .link_a = 1,
				     .link_b = 1 };
		x->message = key.message;
		x->link = x->message && key.kind == sides.link;
		if (x->message) {
			x->line = sides.side[key.kind == PL_K_RECV];
			x->line.bytes = key.bytes;
		} else {
			x->gone = !pl_cost_line(mv->cost, &x->comm, &x->line);
		}
	}
out:
	return rc;
}

static int find_ratios(struct pl_whatif_model *m, const struct pl_whatif *w, struct mover *mv,
		       struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&m->ratio, w->n * mv->n, sizeof(*m->ratio), err));
	for (size_t i = 0; i < w->n; i++) {
		const struct pl_change *c = &w->change[i];

		if (!verb_on_network(c->verb))
			continue;
		if (c->link)
			PL_TRY(add_link_change(mv, c, err));
		for (size_t k = 0; k < mv->n; k++) {
			double before = transfer(&mv->v[k]), after;
			bool selected = move(mv, &mv->v[k], c);

			after = transfer(&mv->v[k]);
			m->ratio[i * mv->n + k] = !selected ? NAN : before > 0 ? after / before : 1;
		}
	}
out:
	return rc;
}

static int find_lines(struct pl_whatif_model *m, const struct pl_whatif *w,
		      const struct pl_graph *g, const struct pl_topology *topo, struct pl_err *err)
{
	struct parallel x = { 0 };
	struct pl_intern keys = { 0 };
	struct pl_cost cost = { 0 };
	struct mover mv = { .cost = &cost };
	int rc;

	PL_TRY(parallel_init(&x, g, err));
	PL_TRY(pl_cost_fit(g, topo, &cost, err));
	PL_TRY(classify(m, &x, &keys, err));
	PL_TRY(mover_init(&mv, g, &keys, w->n, err));
	PL_TRY(find_ratios(m, w, &mv, err));
	for (size_t i = 0; i < w->n; i++)
		m->guessed |= w->change[i].verb == V_RANKS && x.guessed;
out:
	pl_free(mv.change);
	pl_free(mv.v);
	pl_cost_fini(&cost);
	pl_intern_fini(&keys);
	parallel_fini(&x);
	return rc;
}

/* ---- all ---------------------------------------------------------------------------------------
 */

struct pl_whatif_model *pl_sim_whatif_model_new(const struct pl_whatif *w, const struct pl_graph *g,
						const struct pl_topology *topo, struct pl_err *err)
{
	struct pl_whatif_model *m;
	bool network = false;
	int rc;

	if (pl_alloc(&m, 1, sizeof(*m), err) < 0)
		return NULL;
	m->n = w->n;
	for (size_t i = 0; i < w->n; i++)
		network |= verb_on_network(w->change[i].verb);
	rc = find_typical(m, w, g, err);
	if (rc >= 0 && network)
		rc = find_lines(m, w, g, topo, err);
	if (rc >= 0)
		return m;
	pl_sim_whatif_model_free(m);
	return NULL;
}

bool pl_sim_changes_latency(const struct pl_whatif *w)
{
	for (size_t i = 0; w && i < w->n; i++)
		if (w->change[i].verb == V_LATENCY && !w->change[i].link)
			return true;
	return false;
}

pl_ns pl_sim_latency(const struct pl_whatif *w, pl_ns ns)
{
	double now = (double)ns;

	for (size_t i = 0; i < w->n; i++) {
		const struct pl_change *c = &w->change[i];

		if (c->verb == V_LATENCY && !c->link)
			now = c->to >= 0 ? (double)c->to : now * c->by;
	}
	return (pl_ns)fmin(now, INT32_MAX / 2);
}

bool pl_sim_whatif_model_guessed(const struct pl_whatif_model *m)
{
	return m->guessed;
}

void pl_sim_whatif_model_free(struct pl_whatif_model *m)
{
	if (!m)
		return;
	for (size_t i = 0; i < TYPICAL_HOWS; i++)
		pl_sim_typical_fini(&m->typical[i]);
	for (size_t i = 0; m->class && i < m->n_shapes; i++)
		pl_free(m->class[i]);
	pl_free(m->class);
	pl_free(m->ratio);
	pl_free(m);
}
