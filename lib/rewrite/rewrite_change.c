/*
 * Changes of durations: applied to an edit, or to a simulator if a plan changes nothing else.
 *
 * A kind says once for a graph which operations it concerns and what it makes of their durations
 * (struct rw_change). Nodes that a plan has added have no class, because they were not recorded. A
 * simulator takes some 5 ns for each operation and change, in place of the 800 ns in which a graph
 * is taken apart and put together again.
 */
#include "rewrite/rewrite_internal.h"

static void change_fini(struct rw_change *c)
{
	pl_graph_select_fini(&c->select);
	for (size_t i = 0; i < c->n_shapes; i++)
		pl_free(c->class[i]);
	if (c->n_shapes)
		pl_free(c->class);
	pl_free(c->of_class);
	pl_free(c->line);
	pl_free(c->stays);
}

void pl_rewrite_facts_fini(struct rw_facts *x)
{
	pl_rewrite_comms_free(x->comms);
	pl_rewrite_groups_free(x->groups);
	pl_cost_fini(&x->own);
}

/* Set *v to the factor or the duration for operations of the class; false: they stay. */
static inline bool value_of(const struct rw_change *c, uint32_t class, double *v)
{
	if (c->class && class == PL_NONE)
		return false;
	*v = c->class ? c->of_class[class] : c->value;
	return !isnan(*v);
}

/* The changed duration. A transfer that takes longer than its line by chance or contention still
 * does so with another latency: only the line gets the factor. */
static inline double changed(const struct rw_change *c, uint32_t class, double v, double ns)
{
	if (c->sets)
		return v;
	return c->keeps_rest && (v > 1 || ns > c->line[class]) ? ns + (v - 1) * c->line[class]
							       : ns * v;
}

/* Does the change concern step k, which has that number? */
static bool in_step(const struct rw_change *c, size_t k, int64_t number)
{
	if (c->stays && c->stays[k])
		return false;
	return !c->select.keys || pl_graph_select_step(&c->select, number);
}

/* ---- on an edit ------------------------------------------------------------------------------ */

static int change_node(struct pl_edit *e, uint32_t i, const struct rw_change *c, uint64_t *hits,
		       struct pl_err *err)
{
	const struct pl_enode *n = &e->node[i];
	uint32_t class = PL_NONE;
	double v;

	if (n->dead)
		return 0;
	if (c->class && n->origin != PL_NONE)
		class = c->class[e->g->step[n->step].shape][n->origin];
	if (!value_of(c, class, &v))
		return 0;
	if (!in_step(c, n->step, e->step[n->step].number) ||
	    (c->select.keys && !pl_graph_selects_edited(&c->select, n)))
		return 0;
	++*hits;
	return pl_edit_set_dur(e, i, llround(changed(c, class, v, (double)n->dur)), err);
}

void pl_rewrite_add_basis(struct pl_rewrite_basis *to, const struct pl_rewrite_basis *x)
{
	to->guessed |= x->guessed;
	to->assumed |= x->assumed;
	to->links_assumed |= x->links_assumed;
	to->links_unknown |= x->links_unknown;
	to->rearranged |= x->rearranged;
	to->at_once |= x->at_once;
	to->one_size |= x->one_size;
	to->no_batch |= x->no_batch;
	to->unused_link |= x->unused_link;
	to->batch = pl_max_i64(to->batch, x->batch);
	to->work_ns += x->work_ns;
	to->other_share = fmax(to->other_share, x->other_share);
	to->known_ns += x->known_ns;
	to->changed_ns += x->changed_ns;
	to->error = fmax(to->error, x->error);
	to->samples = x->samples > to->samples ? x->samples : to->samples;
	to->unknown = x->unknown > to->unknown ? x->unknown : to->unknown;
	to->collectives = x->collectives > to->collectives ? x->collectives : to->collectives;
}

void pl_rewrite_note_ranks(const struct rw_network *n, struct pl_rewrite_basis *to)
{
	if (!n->of_job)
		return;
	to->ranks = n->of_job;
	if (!to->recorded_ranks)
		to->recorded_ranks = n->recorded;
}

int pl_rewrite_apply_change(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_change c = { 0 };
	uint64_t hits = 0;
	int rc;

	r->facts.network = &rw_now(r)->network;
	PL_TRY(pl_rewrite_kinds[rw->op]->change(&r->facts, rw, &c, err));
	for (uint32_t i = 0; i < r->e->n_nodes; i++)
		PL_TRY(change_node(r->e, i, &c, &hits, err));
	c.basis.unused_link = !hits && pl_rewrite_is_network(rw->op) && rw->op != PL_RW_RANKS;
	pl_rewrite_add_basis(&rw_now(r)->basis, &c.basis);
	if (!hits)
		PL_TRY(pl_graph_select_refuse(&rw->select, r->facts.g, err));
	rc = hits || c.class ? 0 : pl_fail(err, PL_EDATA, "it selects no operation of the graph");
out:
	change_fini(&c);
	return rc;
}

/* ---- on a simulator -------------------------------------------------------------------------- */

int pl_rewrite_add_line(struct pl_plan *p, const char *text, struct pl_err *err)
{
	struct pl_err why = { 0 };
	int rc;

	PL_CHECK(pl_plan_add_line(p, text, err));
	rc = pl_graph_select_check(&p->rw[p->n_rw - 1].select, &why);
	return rc < 0 ? pl_plan_refuse_line(p, &why, err) : 0;
}

bool pl_rewrite_is_timing(const struct pl_plan *p)
{
	for (size_t i = 0; i < p->n_rw; i++)
		if (!pl_rewrite_kinds[p->rw[i].op]->change)
			return false;
	return true;
}

bool pl_rewrite_carries_same(const struct pl_plan *p)
{
	for (size_t i = 0; i < p->n_rw; i++)
		if (!pl_rewrite_kinds[p->rw[i].op]->comm && !pl_rewrite_kinds[p->rw[i].op]->network)
			return false;
	return true;
}

/* Does the change concern node i of a step that it concerns? Sets *v as value_of(). */
static bool concerns(const struct rw_change *c, const uint32_t *class, const struct pl_shape *sh,
		     uint32_t i, double *v)
{
	return value_of(c, class ? class[i] : 0, v) &&
	       (!c->select.keys || pl_graph_selects(&c->select, sh, i));
}

/* Change the durations of a step. Returns of how many operations: a host call has parts. */
static uint64_t change_step(const struct rw_change *c, size_t k, const struct pl_gstep *st,
			    const struct pl_shape *sh, double *ns)
{
	const uint32_t *class = c->class ? c->class[st->shape] : NULL;
	const double factor[2] = { 1, c->value };
	uint64_t hits = 0, parts = 0;
	double v;

	if (!in_step(c, k, st->number))
		return 0;
	/* without a branch, which would be hard to foresee */
	for (uint32_t i = sh->n_entries; !class && !c->sets && i < sh->n_nodes; i++) {
		unsigned hit = pl_graph_selects(&c->select, sh, i);

		ns[i] *= factor[hit];
		hits += hit;
		parts += sh->flags[i] & PL_NF_PART ? hit : 0;
	}
	for (uint32_t i = sh->n_entries; (class || c->sets) && i < sh->n_nodes; i++) {
		if (!concerns(c, class, sh, i, &v))
			continue;
		ns[i] = changed(c, class ? class[i] : 0, v, ns[i]);
		hits++;
		parts += sh->flags[i] & PL_NF_PART ? 1 : 0;
	}
	return hits > parts ? hits - parts : hits;
}

/* Is the transfer removed from the step? */
static bool is_removed(const struct rw_change *c, size_t n, size_t k, const struct pl_gstep *st,
		       const struct pl_shape *sh, uint32_t i)
{
	bool removed = false;
	double v;

	for (size_t j = 0; j < n && !removed; j++)
		removed = c[j].removes && in_step(&c[j], k, st->number) &&
			  concerns(&c[j], c[j].class ? c[j].class[st->shape] : NULL, sh, i, &v);
	return removed;
}

/*
 * Ranks no longer wait for one another at a collective that all of them removed. Only where threads
 * carry it: which rank has to wait for a processor there is chance, so that another rank is late at
 * each collective. The last one of each thread in a step still joins the ranks, so that their steps
 * stay together.
 */
static int part_ranks(struct pl_sim *s, size_t k, const struct pl_graph *g,
		      const struct rw_change *c, size_t n, struct pl_err *err)
{
	enum { PARTS = 1, JOINS = 2 };
	const struct pl_gstep *st = &g->step[k];
	const struct pl_shape *sh = &g->shape[st->shape];
	uint8_t *what = NULL; /* [node]: what a rendezvous does */
	uint32_t *last;	      /* [resource]: its last transfer */
	int rc;

	PL_TRY(pl_alloc(&last, g->n_res, sizeof(*last), err));
	PL_TRY(pl_alloc(&what, sh->n_nodes, sizeof(*what), err));
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		uint32_t meet = PL_NONE;

		if (sh->role[i] == PL_RO_TRANSFER && sh->kind[i] == PL_K_COLLECTIVE)
			meet = pl_node_meeting(sh, i);
		if (meet == PL_NONE)
			continue;
		what[meet] |= is_removed(c, n, k, st, sh, i) ? PARTS : JOINS;
		if (sh->res[i] != PL_NONE &&
		    (!last[sh->res[i]] || st->start[i] >= st->start[last[sh->res[i]]]))
			last[sh->res[i]] = i;
	}
	for (size_t i = 0; i < g->n_res; i++)
		if (last[i])
			what[pl_node_meeting(sh, last[i])] |= JOINS;
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
		if (what[i] == PARTS)
			PL_TRY(pl_sim_set_alone(s, k, i, err));
out:
	pl_free(last);
	pl_free(what);
	return rc;
}

static int change_all(struct pl_sim *s, const struct pl_graph *g, const struct rw_change *c,
		      size_t n, uint64_t *hits, struct pl_rewrite_basis *basis, struct pl_err *err)
{
	bool parts = false;
	size_t most = 0;
	double *ns;
	int rc;

	for (size_t i = 0; i < n; i++)
		parts |= c[i].removes;
	parts &= pl_cost_by_threads(g);
	for (size_t i = 0; i < g->n_shapes; i++) {
		most = g->shape[i].n_nodes > most ? g->shape[i].n_nodes : most;
		if (memchr(g->shape[i].type, PL_N_RESOURCE, g->shape[i].n_nodes))
			basis->longer = basis->shorter = true;
	}
	PL_TRY(pl_alloc(&ns, most, sizeof(*ns), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = &g->shape[g->step[k].shape];
		const pl_ns *now = pl_sim_durations(s, k);
		uint64_t any = 0;

		for (uint32_t i = 0; i < sh->n_nodes; i++)
			ns[i] = (double)now[i];
		for (size_t i = 0; i < n; i++) {
			uint64_t some = change_step(&c[i], k, &g->step[k], sh, ns);

			any += some;
			hits[i] += some;
		}
		for (uint32_t i = 0; any && i < sh->n_nodes; i++) {
			basis->longer |= ns[i] > (double)now[i];
			basis->shorter |= ns[i] < (double)now[i];
		}
		if (any)
			PL_TRY(pl_sim_set_durations(s, k, ns, err));
		if (any && parts)
			PL_TRY(part_ranks(s, k, g, c, n, err));
	}
out:
	pl_free(ns);
	return rc;
}

/* The latency of messages of collectives, which is between two nodes. */
static void change_latency(struct pl_sim *s, const struct rw_change *c, size_t n,
			   struct pl_rewrite_basis *basis)
{
	double by = 1;
	pl_ns to = -1;

	for (size_t i = 0; i < n; i++) {
		if (!c[i].messages.link)
			continue;
		by = c[i].messages.absolute ? 1 : by * c[i].messages.latency;
		to = c[i].messages.absolute ? (pl_ns)c[i].messages.latency : to;
	}
	if (by != 1 || to >= 0)
		pl_sim_set_latency(s, to, by);
	basis->longer |= by > 1 || to >= 0;
	basis->shorter |= by < 1 || to >= 0;
}

int pl_rewrite_durations(struct pl_sim *s, const struct pl_graph *g, const struct pl_plan *p,
			 const struct pl_rewrite_known *known, uint64_t *hits,
			 struct pl_rewrite_basis *basis, struct pl_err *err)
{
	struct rw_network network = { 0 };
	struct rw_facts x = { .g = g, .network = &network };
	struct rw_change *c;
	int rc;

	if (known) {
		x.topo = known->topo;
		x.predictor = known->predictor;
	}
	PL_TRY(pl_alloc(&c, p->n_rw, sizeof(*c), err));
	for (size_t i = 0; i < p->n_rw; i++) {
		hits[i] = 0;
		rc = pl_rewrite_kinds[p->rw[i].op]->change(&x, &p->rw[i], &c[i], err);
		if (rc < 0) {
			rc = pl_plan_wrap(p->file, &p->rw[i], i, PL_NONE, err);
			goto out;
		}
		pl_rewrite_add_basis(basis, &c[i].basis);
	}
	pl_rewrite_note_ranks(&network, basis);
	basis->carries_same = pl_rewrite_carries_same(p);
	PL_TRY(change_all(s, g, c, p->n_rw, hits, basis, err));
	change_latency(s, c, p->n_rw, basis);
	rc = pl_rewrite_overlapped(s, g, basis, err);
out:
	for (size_t i = 0; c && i < p->n_rw; i++)
		change_fini(&c[i]);
	pl_free(c);
	pl_rewrite_array_unref(network.batch_of);
	pl_rewrite_facts_fini(&x);
	return rc;
}
