/*
 * bandwidth, latency and ranks: another network, or another number of data-parallel replicas.
 *
 * A class is the communications that cost the same. For each class lib/cost gives the line a + b S
 * that was fitted to the graph, for the recorded network and for the present one. A recorded
 * transfer is multiplied by the line after the rewrite divided by the line before, so that an
 * unusually long or short transfer stays so. If the messages of collectives were recorded, a lower
 * bandwidth multiplies only the line. Communication that a plan builds anew has its duration
 * from the same lines (rewrite_sync.c).
 *
 * The data-parallel communication is found by the first rule that applies: communication whose
 * members have several data-parallel coordinates; if the graph has no coordinates, communication of
 * groups that carry gradients or shards of parameters, and of other groups with the same members;
 * if it has none of them either, communication of all ranks.
 *
 * One pass over the nodes of each shape; 4 bytes for each node of a shape.
 */
#include "rewrite/rewrite_internal.h"

struct comm_key { /* equal in every byte: of one class */
	int64_t bytes;
	uint32_t n, replicas;
	uint16_t kind, coll;
	uint16_t message;   /* one side of a recorded message, as its kind says */
	uint16_t algorithm; /* as pl_cost_comm.was, and ASSUMED */
};
enum { ASSUMED = 0x100 };

struct rw_comms {
	uint32_t **class; /* [shape][node]; PL_NONE: no communication */
	size_t n_shapes;
	struct pl_intern keys; /* struct comm_key of each class */
	double *uses;	       /* [class]: its transfers in all steps */
	struct pl_cost_sides sides;
	bool guessed, messages; /* messages: of collectives, recorded */
	bool copies;		/* of all shards of parameters */
};

/* ---- which communication is data-parallel ---------------------------------------------------- */

struct parallel {
	const struct pl_graph *g;
	int32_t *dp;	   /* [rank index; the last of no rank]: coordinate, -1 unknown */
	bool known;	   /* of any rank */
	bool *gradients;   /* [group] */
	bool any_gradient; /* of any group */
	bool copies;	   /* there are several copies of all shards */
	bool guessed;	   /* nothing of both was known, and all ranks took part */
	int32_t *scratch;
	size_t cap;
};

static int32_t *coordinate(const struct parallel *x, int64_t rank)
{
	uint32_t at = pl_graph_rank_index(x->g, rank > INT32_MAX ? -1 : (int32_t)rank);

	return &x->dp[at == PL_NONE ? (uint32_t)x->g->n_ranks : at];
}

static void parallel_fini(struct parallel *x)
{
	pl_free(x->dp);
	pl_free(x->gradients);
	pl_free(x->scratch);
}

/* Of groups of sharded parameters. */
static int find_sharded(struct parallel *x, struct rw_facts *facts, struct pl_err *err)
{
	const struct rw_groups *v;

	if (!pl_rewrite_gathers(x->g))
		return 0;
	PL_CHECK(pl_rewrite_groups_find(facts, err));
	v = facts->groups;
	for (size_t k = 0; k < v->n_passes; k++) {
		const struct rw_pass *p = &v->pass[k];
		const struct pl_shape *s = &x->g->shape[x->g->step[p->step].shape];

		for (uint32_t i = 0; i < p->n * RW_GROUP_COMMS; i++) {
			const struct rw_group *group = &v->group[p->first + i / RW_GROUP_COMMS];
			uint32_t arrive = group->arrive[i % RW_GROUP_COMMS];

			if (arrive == PL_NONE || s->group[arrive] == PL_NONE)
				continue;
			x->gradients[s->group[arrive]] = x->any_gradient = true;
			x->copies |= i % RW_GROUP_COMMS == RW_AVERAGE;
		}
	}
	return 0;
}

/* Groups with the members of one that carries gradients. */
static void find_alike(struct parallel *x)
{
	const struct pl_graph *g = x->g;

	for (size_t i = 0; i < g->n_groups; i++)
		for (size_t k = 0; k < g->n_groups && !x->gradients[i]; k++)
			x->gradients[i] = x->gradients[k] && g->group[i].n == g->group[k].n &&
					  !memcmp(&g->group_rank[g->group[i].rank],
						  &g->group_rank[g->group[k].rank],
						  g->group[i].n * sizeof(*g->group_rank));
}

static int parallel_init(struct parallel *x, struct rw_facts *facts, struct pl_err *err)
{
	const struct pl_graph *g = x->g = facts->g;

	PL_CHECK(pl_alloc(&x->dp, (size_t)g->n_ranks + 1, sizeof(*x->dp), err));
	PL_CHECK(pl_alloc(&x->gradients, g->n_groups, sizeof(*x->gradients), err));
	memset(x->dp, 0xff, ((size_t)g->n_ranks + 1) * sizeof(*x->dp));
	for (size_t i = 0; i < g->n_res; i++) {
		int32_t dp = g->res[i].coord[PL_COORD_DP];

		if (pl_graph_rank_index(g, g->res[i].rank) == PL_NONE || dp < 0)
			continue;
		*coordinate(x, g->res[i].rank) = dp;
		x->known = true;
	}
	for (size_t i = 0; i < g->n_tensors; i++) {
		const struct pl_tensor *t = &g->tensor[i];

		for (uint32_t k = 0; t->role == PL_TR_GRAD && k < t->n_consumers; k++) {
			const struct pl_shape *s = &g->shape[t->shape];
			uint32_t node = g->consumer[t->consumer + k], group = s->group[node];

			if (s->role[node] == PL_RO_ARRIVE && group != PL_NONE)
				x->gradients[group] = x->any_gradient = true;
		}
	}
	PL_CHECK(find_sharded(x, facts, err));
	find_alike(x);
	return 0;
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

/* Adds the coordinate of the rank to those of the communication, if it is recorded. */
static void add_coordinate(struct parallel *x, int64_t rank, size_t *n)
{
	if (pl_graph_rank_index(x->g, rank > INT32_MAX ? -1 : (int32_t)rank) != PL_NONE)
		x->scratch[(*n)++] = *coordinate(x, rank);
}

/* How many data-parallel replicas take part in the communication; 0: it is not data-parallel. */
static int replicas(struct parallel *x, const struct pl_shape *s, uint32_t meet, uint32_t group,
		    uint32_t n, uint32_t *out, struct pl_err *err)
{
	const struct pl_graph *g = x->g;
	size_t k = 0;

	if (!x->known && x->any_gradient) {
		*out = group != PL_NONE && x->gradients[group] ? n : 0;
		return 0;
	}
	if (!x->known) {
		*out = (int64_t)n == g->n_ranks ? n : 0;
		x->guessed |= *out > 0;
		return 0;
	}
	PL_CHECK(pl_grow(&x->scratch, &x->cap, n, sizeof(*x->scratch), err));
	if (group != PL_NONE)
		for (uint32_t i = 0; i < n; i++)
			add_coordinate(x, g->group_rank[g->group[group].rank + i], &k);
	else
		for (uint32_t e = s->off[meet]; e < s->off[meet + 1]; e++)
			add_coordinate(x, pl_node_rank(g, s, s->src[e]), &k);
	if (k == 1 && n > 1) { /* the others are not in the recording */
		*out = group != PL_NONE && x->gradients[group] ? n : 0;
		return 0;
	}
	*out = distinct(x->scratch, k);
	*out = *out < 2 ? 0 : (uint32_t)(*out * (uint64_t)n / k);
	return 0;
}

/* ---- classes of communication ---------------------------------------------------------------- */

/* What the transfer is; as lib/cost sees it when it fits. Sets *is to false if it has no line. */
static int describe(struct parallel *x, const struct pl_shape *s, uint32_t i, struct comm_key *key,
		    bool *is, struct pl_err *err)
{
	uint32_t meet = pl_node_meeting(s, i), group = s->group[i];
	const struct pl_gcomm *c = s->comm && s->comm[i] != PL_NONE ? &s->comms[s->comm[i]] : NULL;
	const char *name = c ? pl_intern_get(&x->g->str, c->algorithm) : NULL;

	*key = (struct comm_key){ .bytes = s->bytes ? s->bytes[i] : -1,
				  .kind = s->kind[i],
				  .coll = (uint16_t)pl_node_coll(s, i),
				  .algorithm = pl_cost_algorithm(name) };
	if (!name || !*name)
		key->algorithm |= ASSUMED;
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
		       ? replicas(x, s, meet, group, key->n, &key->replicas, err)
		       : 0;
}

static int classify(struct rw_comms *c, struct parallel *x, struct pl_err *err)
{
	c->n_shapes = x->g->n_shapes;
	PL_CHECK(pl_alloc(&c->class, c->n_shapes, sizeof(*c->class), err));
	for (size_t k = 0; k < c->n_shapes; k++) {
		const struct pl_shape *s = &x->g->shape[k];
		uint32_t *class;

		PL_CHECK(pl_alloc(&class, s->n_nodes, sizeof(*class), err));
		c->class[k] = class;
		for (uint32_t i = 0; i < s->n_nodes; i++) {
			struct comm_key key;
			bool is;

			class[i] = PL_NONE;
			/* messages have all that depends on the network */
			if (s->role[i] != PL_RO_TRANSFER || pl_node_is_rest(s, i))
				continue;
			PL_CHECK(describe(x, s, i, &key, &is, err));
			if (!is)
				continue;
			c->messages |= key.message;
			PL_CHECK(pl_intern_add(&c->keys, (const char *)&key, sizeof(key), &class[i],
					       err));
		}
	}
	return 0;
}

/* How many transfers of each class there are. */
static int count_uses(struct rw_comms *c, const struct pl_graph *g, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&c->uses, c->keys.n, sizeof(*c->uses), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const uint32_t *class = c->class[g->step[k].shape];

		for (uint32_t i = 0; i < g->shape[g->step[k].shape].n_nodes; i++)
			if (class[i] != PL_NONE)
				c->uses[class[i]]++;
	}
	return 0;
}

void pl_rewrite_comms_free(struct rw_comms *c)
{
	if (!c)
		return;
	for (size_t i = 0; c->class && i < c->n_shapes; i++)
		pl_free(c->class[i]);
	pl_free(c->class);
	pl_free(c->uses);
	pl_intern_fini(&c->keys);
	pl_free(c);
}

/* The cost of communication and its classes. */
static int find_comms(struct rw_facts *x, struct pl_err *err)
{
	struct parallel p = { 0 };
	int rc = 0;

	if (x->comms)
		return 0;
	if (!x->cost) {
		PL_TRY(pl_cost_fit(x->g, x->topo, &x->own, err));
		x->cost = &x->own;
	}
	PL_TRY(pl_alloc(&x->comms, 1, sizeof(*x->comms), err));
	PL_TRY(parallel_init(&p, x, err));
	PL_TRY(classify(x->comms, &p, err));
	PL_TRY(count_uses(x->comms, x->g, err));
	rc = pl_cost_sides(x->g, &x->comms->sides, err);
	x->comms->guessed = p.guessed;
	x->comms->copies = p.copies && !p.known;
out:
	parallel_fini(&p);
	return rc;
}

/* ---- lines of classes ------------------------------------------------------------------------ */

static struct comm_key key_of(const struct rw_comms *c, size_t class)
{
	struct comm_key key;

	memcpy(&key, pl_intern_get(&c->keys, (pl_id) class), sizeof(key));
	return key;
}

/* How many members a communication of n has over the network. Smaller groups, such as those of
 * experts, grow by the same factor. */
static uint32_t members(uint32_t n, uint32_t replicas, const struct rw_network *net)
{
	uint64_t now = n;

	if (replicas && net->ranks)
		now = now / replicas *
		      (uint64_t)fmax(1, round((double)replicas * net->ranks / net->replicas));
	return (uint32_t)(now < UINT32_MAX ? now : UINT32_MAX);
}

uint32_t pl_rewrite_members(const struct pl_rewriter *r, uint32_t transfer, uint32_t n)
{
	const struct rw_network *net = &rw_now(r)->network;
	const struct rw_comms *comms = r->facts.comms;
	const struct pl_enode *x = &r->e->node[transfer];
	uint32_t class;

	if (!net->ranks || !net->replicas || !comms || x->origin == PL_NONE)
		return n;
	class = comms->class[r->e->g->step[x->step].shape][x->origin];
	return class == PL_NONE ? n : members(n, key_of(comms, class).replicas, net);
}

static struct pl_cost_comm comm_of(const struct comm_key *key, const struct rw_network *net)
{
	return (struct pl_cost_comm){ .kind = (uint8_t)key->kind,
				      .coll = (uint8_t)key->coll,
				      .algo = (uint8_t)key->algorithm,
				      .was = (uint8_t)key->algorithm,
				      .group = PL_NONE,
				      .n = members(key->n, key->replicas, net),
				      .recorded = key->n,
				      .bytes = key->bytes,
				      .change = net->change,
				      .n_changes = net->n_changes };
}

/* The time of a transfer of the class over a network. Of a message only the bytes change: its
 * latency is between the two sides. */
static double line_on(const struct rw_facts *x, size_t class, const struct rw_network *net)
{
	const struct comm_key key = key_of(x->comms, class);
	struct pl_cost_comm comm = comm_of(&key, net);
	struct pl_cost_line line = { 0 };
	double a, b;

	if (key.message) {
		line = x->comms->sides.side[key.kind == PL_K_RECV];
		pl_cost_links(x->cost, &comm, &a, &b);
		return line.a_ns + line.b_ns_per_byte * (key.kind == x->comms->sides.link ? b : 1) *
					   (double)key.bytes;
	}
	if (!pl_cost_line(x->cost, &comm, &line))
		return 0;
	return line.a_ns + line.b_ns_per_byte * (double)line.bytes;
}

static double line_of(const struct rw_facts *x, size_t class)
{
	return line_on(x, class, x->network);
}

/* The present network without all that rewrites of this kind changed. */
static struct rw_network without(const struct rw_network *now, unsigned op)
{
	struct rw_network net = *now;

	if (op == PL_RW_RANKS)
		net.ranks = 0;
	for (uint32_t i = 0; op == PL_RW_LATENCY && i < net.n_changes; i++) {
		net.change[i].latency = 1;
		net.change[i].absolute = false;
	}
	return net;
}

/* By how much a transfer of the class may be wrong over the present network, because its line may
 * have another latency: what the latency gains the bytes lose, and the network changes each of them
 * by a factor. Negative: the recording shows no sizes. */
static double doubt_of(const struct rw_facts *x, const struct comm_key *key)
{
	const struct rw_network recorded = { 0 };
	struct pl_cost_comm now = comm_of(key, x->network), then = comm_of(key, &recorded);
	const struct pl_fit *fit = pl_cost_find_fit(x->cost, &now);
	struct pl_cost_line after, before;
	double a, b;

	if (!fit || fit->estimated || !pl_cost_line(x->cost, &now, &after) ||
	    !pl_cost_line(x->cost, &then, &before))
		return -1;
	a = before.a_ns > 0 ? after.a_ns / before.a_ns : 1;
	b = before.b_ns_per_byte > 0 ? after.b_ns_per_byte / before.b_ns_per_byte : 1;
	return fabs(a - b) *
	       fmin(fit->a_off_ns, before.a_ns + before.b_ns_per_byte * (double)before.bytes);
}

/* Does communication of that class use the link? */
static bool uses(const struct rw_facts *x, const struct comm_key *key, const char *link)
{
	const struct rw_network probe = {
		.n_changes = 1, .change[0] = { .link = link, .bandwidth = 0.5, .latency = 2 }
	};
	struct pl_cost_comm comm = comm_of(key, &probe);
	double a, b;

	pl_cost_links(x->cost, &comm, &a, &b);
	return a != 1 || b != 1;
}

/* Does it change all links? */
static bool of_all(const struct pl_rewrite *rw)
{
	return !rw->word || !strcmp(rw->word, "*");
}

static bool concerns(const struct rw_facts *x, const struct pl_rewrite *rw,
		     const struct comm_key *key)
{
	if (rw->op == PL_RW_RANKS)
		return key->replicas > 0;
	if (key->message &&
	    key->kind != (rw->op == PL_RW_LATENCY ? PL_K_RECV : x->comms->sides.link))
		return false;
	return of_all(rw) || uses(x, key, rw->word);
}

/* ---- what the rewrites change ---------------------------------------------------------------- */

static const struct pl_tlink *find_link(const struct pl_cost *c, const char *name)
{
	for (size_t i = 0; i < c->topo.n_links; i++)
		if (c->topo.link[i].name && !strcmp(c->topo.link[i].name, name))
			return &c->topo.link[i];
	return NULL;
}

static int change_link(const struct rw_facts *x, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_link_change change = { .link = rw->word, .bandwidth = 1, .latency = 1 };
	bool all = of_all(rw);
	const struct pl_topology *t = &x->cost->topo;
	const struct pl_tlink *link = all ? NULL : find_link(x->cost, rw->word);

	if (!all && !link)
		return pl_fail(
			err, PL_EDATA,
			"no link of the topology is called \"%s\", but \"%s\"%s%s%s; another "
			"topology can be given, and \"*\" is every link",
			rw->word, t->n_links ? t->link[0].name : "",
			t->n_links > 1 ? " and \"" : "", t->n_links > 1 ? t->link[1].name : "",
			t->n_links > 1 ? "\"" : "");
	if (rw->to >= 0 && link && link->latency_ns <= 0)
		return pl_fail(
			err, PL_EDATA,
			"in the topology that link has no latency that could become another; "
			"leave the link out, or give another topology");
	if (link && x->comms->messages && t->n_hosts > 1 && t->n_hosts < t->n_ranks)
		return pl_fail(err, PL_EDATA,
			       "messages inside and between hosts were recorded, and they cannot "
			       "change apart; fold them first: graph --fold-messages");
	if (x->network->n_changes == PL_COST_CHANGES)
		return pl_fail(err, PL_ELIMIT, "more than %d changes of links", PL_COST_CHANGES);
	if (all)
		change.link = "*";
	if (rw->op == PL_RW_BANDWIDTH) {
		change.bandwidth = rw->x;
	} else if (rw->to < 0) {
		change.latency = rw->x;
	} else {
		change.latency = (double)rw->to / (link ? (double)link->latency_ns : 1);
		change.absolute = all;
	}
	x->network->change[x->network->n_changes++] = change;
	return 0;
}

/*
 * What the prediction depends on. Recorded messages show what latency costs and how many of them
 * follow one another. Without them the number of messages is an assumption, so the whole effect of
 * another latency is in doubt, and that of other ranks if the graph does not say the algorithm; of
 * several such lines, that of all together. A class counts by its time in all steps.
 */
static void note_basis(const struct rw_facts *x, unsigned op, struct rw_change *c)
{
	const struct rw_network before = without(x->network, op);
	struct pl_rewrite_basis *b = &c->basis;
	double wrong = 0, all = 0;

	for (size_t i = 0; i < x->comms->keys.n && !x->comms->messages; i++) {
		const struct comm_key key = key_of(x->comms, i);
		struct pl_cost_comm comm = comm_of(&key, x->network);
		const struct pl_fit *fit = pl_cost_find_fit(x->cost, &comm);
		bool known = fit && !fit->one_size && !fit->estimated;
		bool changes = !isnan(c->of_class[i]) && c->of_class[i] != 1;
		double after = changes ? c->line[i] * c->of_class[i] : c->line[i];
		double error = doubt_of(x, &key);

		error = error < 0 ? after : error;
		all += after * x->comms->uses[i];
		if (!changes)
			continue;
		if (op == PL_RW_LATENCY || (op == PL_RW_RANKS && key.algorithm & ASSUMED))
			error = fmax(error, fabs(after - line_on(x, i, &before)));
		wrong += error * x->comms->uses[i];
		b->assumed |= key.algorithm & ASSUMED && key.kind == PL_K_COLLECTIVE;
		b->one_size |= !known;
	}
	b->error = all > 0 ? fmin(wrong / all, 1) : 0;
	pl_rewrite_count_basis(x->g, x->cost, b);
}

void pl_rewrite_count_basis(const struct pl_graph *g, const struct pl_cost *c,
			    struct pl_rewrite_basis *b)
{
	for (size_t i = 0; i < c->n_fits; i++)
		b->samples += c->fit[i].samples;
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *s = &g->shape[g->step[k].shape];

		for (uint32_t i = 0; i < s->n_comms; i++) {
			unsigned kind = s->comms[i].kind;

			if (kind == PL_COLL_SEND || kind == PL_COLL_RECV)
				continue;
			b->collectives++;
			b->unknown += s->comms[i].algorithm == PL_NONE;
		}
	}
}

/* Not all of them may be recorded. */
static double ranks_of_job(const struct pl_graph *g)
{
	int64_t n = g->n_ranks;

	for (size_t i = 0; i < g->n_groups; i++)
		for (uint32_t k = 0; k < g->group[i].n; k++)
			n = pl_max_i64(n, g->group_rank[g->group[i].rank + k] + 1);
	return (double)n;
}

/* The number of data-parallel replicas of the rewrite, for all groups. */
static int change_ranks(const struct rw_facts *x, const struct pl_rewrite *rw, struct pl_err *err)
{
	uint32_t replicas = 0;
	double ranks = (double)rw->k;

	for (size_t i = 0; i < x->comms->keys.n; i++) {
		const struct comm_key key = key_of(x->comms, i);

		replicas = key.replicas > replicas ? key.replicas : replicas;
	}
	if (x->comms->copies)
		return pl_fail(err, PL_EDATA,
			       "parameters are sharded, and the shards have copies: more ranks "
			       "could hold smaller shards or more copies");
	if (!rw->k && !replicas)
		return pl_fail(err, PL_EDATA, "no communication is known to be data-parallel");
	if (!rw->k)
		ranks = rw->x * (x->network->ranks ? x->network->ranks : replicas);
	if (!rw->k && (ranks < 1 || ranks > UINT32_MAX || ranks != floor(ranks)))
		return pl_fail(err, PL_EDATA, "that makes %g data-parallel replicas of %u", ranks,
			       replicas);
	x->network->ranks = (uint32_t)ranks;
	x->network->replicas = replicas;
	if (replicas) {
		x->network->of_job = (uint32_t)(ranks_of_job(x->g) / replicas * ranks);
		x->network->recorded = (uint32_t)(ranks_of_job(x->g) / replicas * replicas);
	}
	return 0;
}

static int change_network(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
			  struct pl_err *err)
{
	size_t n;

	PL_CHECK(find_comms(x, err));
	n = x->comms->keys.n;
	c->class = x->comms->class;
	PL_CHECK(pl_alloc(&c->of_class, n, sizeof(*c->of_class), err));
	PL_CHECK(pl_alloc(&c->line, n, sizeof(*c->line), err));
	for (size_t i = 0; i < n; i++)
		c->line[i] = line_of(x, i);
	if (rw->op == PL_RW_RANKS)
		PL_CHECK(change_ranks(x, rw, err));
	else
		PL_CHECK(change_link(x, rw, err));
	for (size_t i = 0; i < n; i++) {
		const struct comm_key key = key_of(x->comms, i);

		if (rw->op == PL_RW_LATENCY &&
		    (of_all(rw) || (key.message && concerns(x, rw, &key))))
			c->messages =
				(struct pl_link_change){ .link = "*",
							 .latency = rw->to < 0 ? rw->x
									       : (double)rw->to,
							 .absolute = rw->to >= 0 };
		c->of_class[i] = !concerns(x, rw, &key) ? NAN
				 : c->line[i] > 0	? line_of(x, i) / c->line[i]
							: 1;
	}
	note_basis(x, rw->op, c);
	/* a recorded message that waited for a processor waits as long on a slower network; a
	 * message that waited for others on a slow link waits less on a faster one */
	c->keeps_rest = rw->op == PL_RW_LATENCY ||
			(rw->op == PL_RW_BANDWIDTH && rw->x < 1 && x->comms->messages);
	c->basis.guessed = rw->op == PL_RW_RANKS && x->comms->guessed;
	return 0;
}

const struct pl_rewrite_kind pl_rewrite_bandwidth = {
	.network = true,
	.change = change_network,
	.explain = "{link} has {times} bandwidth, which counts for large buckets"
};
const struct pl_rewrite_kind pl_rewrite_latency = {
	.network = true,
	.change = change_network,
	.explain = "{link} has {times} latency, which counts for each message"
};
const struct pl_rewrite_kind pl_rewrite_ranks = {
	.network = true,
	.change = change_network,
	.explain =
		"{members} data-parallel replicas: a step takes in that many more samples, and its "
		"communication has more members"
};
