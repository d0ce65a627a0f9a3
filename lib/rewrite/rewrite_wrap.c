/*
 * wrap: other groups of sharded parameters, as other calls of fully_shard make them; no-reshard:
 * groups keep their parameters after the forward pass, and are not gathered again.
 *
 * Groups that follow one another in the forward pass become one. Their parameters are gathered
 * together where the first of them was needed, in both passes. Their gradients are reduced together
 * where the last of them was reduced. The outermost group keeps its parameters after the forward
 * pass, so what joins it is not gathered again.
 *
 * On the edit the communication that stays takes the time of all of them together, less what the
 * fitted line says that fewer of them save: the latency. The others take no time, nobody waits for
 * their members, and their calls take no time. What the host does around them, such as copies in
 * and out, depends on the parameters and stays. O(n log n) in transfers.
 *
 * Groups cannot be divided: the recording does not say which operation needs which parameter.
 */
#include "rewrite/rewrite_internal.h"

#define GONE (PL_NONE - 1) /* in place of a communication: its group keeps its parameters */

struct wrap {
	struct pl_rewriter *r;
	uint32_t *into; /* [comm]: the one that carries it; PL_NONE: it stays as it is */
	double *share;	/* [comm]: of the time of all that it carries */
	double *whole;	/* [comm]: the time of all that it carries by the fit */
	bool differ;	/* ranks have other groups for the same communication */
};

/* Over the network of the plan. */
static double cost_of(const struct wrap *w, uint32_t arrive, int64_t bytes)
{
	const struct rw_network *net = &rw_now(w->r)->network;
	struct pl_cost_comm c = rw_comm_of(w->r->e, arrive, (uint32_t)w->r->e->g->n_ranks);
	uint32_t transfer = pl_edit_transfer(w->r->e, arrive);

	if (transfer != PL_NONE)
		c.n = pl_rewrite_members(w->r, transfer, c.n);
	c.change = net->change;
	c.n_changes = net->n_changes;
	c.bytes = bytes;
	return (double)pl_cost_transfer(w->r->c, &c);
}

/* One of the communications of groups [i, i + n) carries all of them: that which is first issued,
 * or last for gradients, which must all be ready. */
static void join(struct wrap *w, const struct rw_pass *p, uint32_t i, uint32_t n, unsigned what)
{
	const struct pl_edit *e = w->r->e;
	bool last = what == RW_REDUCE || what == RW_AVERAGE;
	uint32_t to = PL_NONE, comm;
	int64_t bytes = 0;
	double parts = 0;

	for (uint32_t k = i; k < i + n; k++) {
		uint32_t x = rw_arrival(w->r, p, k, what);

		if (x != PL_NONE &&
		    (to == PL_NONE || last == (e->node[x].start > e->node[to].start)))
			to = x;
	}
	for (uint32_t k = i; k < i + n; k++) {
		uint32_t x = rw_arrival(w->r, p, k, what);

		if (x == PL_NONE)
			continue;
		comm = e->node[x].comm;
		w->differ |= w->into[comm] != PL_NONE && w->into[comm] != e->node[to].comm;
		w->into[comm] = e->node[to].comm;
		bytes = pl_add_sat(bytes, pl_edit_comm(e, x)->bytes);
		parts += cost_of(w, x, pl_edit_comm(e, x)->bytes);
	}
	if (to == PL_NONE)
		return;
	comm = e->node[to].comm;
	w->whole[comm] = cost_of(w, to, bytes);
	w->share[comm] = parts > 0 ? fmin(1, w->whole[comm] / parts) : 1;
}

/* The groups [i, i + n), which follow one another, become one. */
static void join_groups(struct wrap *w, const struct rw_pass *p, uint32_t i, uint32_t n)
{
	bool keeps = false;

	for (uint32_t k = i; k < i + n; k++)
		keeps |= rw_arrival(w->r, p, k, RW_GATHER) != PL_NONE &&
			 rw_arrival(w->r, p, k, RW_GATHER_AGAIN) == PL_NONE;
	for (unsigned what = 0; what < RW_GROUP_COMMS; what++)
		if (what != RW_GATHER_AGAIN || !keeps)
			join(w, p, i, n, what);
	for (uint32_t k = i; keeps && k < i + n; k++) {
		uint32_t x = rw_arrival(w->r, p, k, RW_GATHER_AGAIN);

		if (x != PL_NONE)
			w->into[w->r->e->node[x].comm] = GONE;
	}
}

/* How many groups of the pass from number i on become one (`layers` -1: all). */
static uint32_t wrapped(const struct rw_groups *x, const struct rw_pass *p, int64_t layers,
			uint32_t i)
{
	uint32_t n = 0;

	if (layers < 0)
		return p->n - i;
	while (n < layers && i + n < p->n && !x->group[p->first + i + n].outermost)
		n++;
	return n ? n : 1;
}

/* ---- the edit -------------------------------------------------------------------------------- */

/* A recorded transfer that changes. */
struct transfer {
	uint32_t into; /* the communication that carries it */
	int32_t rank;
	uint32_t node;
};
PL_COMPARATOR(by_carrier, struct transfer, into, rank, node);

/* Is it the arrival or the transfer of a communication that changes? */
static bool changes(const struct wrap *w, uint32_t node, unsigned role)
{
	const struct pl_enode *n = &w->r->e->node[node];

	return !n->dead && n->role == role && n->type == PL_N_OP && n->comm != PL_NONE &&
	       w->into[n->comm] != PL_NONE;
}

/* Does the operation issue a communication, or wait for one? */
static bool meets_comm(const struct pl_edit *e, uint32_t node)
{
	for (uint32_t x = e->node[node].out; x != PL_NONE; x = e->edge[x].out_next)
		if (rw_launches(&e->edge[x]) && e->node[e->edge[x].dst].role == PL_RO_ARRIVE)
			return true;
	return pl_rewrite_waits_for_comm(e, node);
}

/* The operations of the host from `node` on take no time, up to those for another communication. */
static void silence(struct pl_rewriter *r, uint32_t node, bool before)
{
	while (node != PL_NONE) {
		uint32_t x = pl_rewrite_chained(r->e, node, before);

		rw_set_dur(r, node, 0);
		if (x == PL_NONE)
			return;
		node = before ? r->e->edge[x].src : r->e->edge[x].dst;
		if (!pl_rewrite_is_for_comm(r->e, node) || meets_comm(r->e, node))
			return;
	}
}

/* Nobody waits for the members of the communication, and its call takes no time. If its data is not
 * needed, nobody waits for it either, and the copies of the host before the call and behind the
 * wait take no time. */
static void leave_out(struct pl_rewriter *r, uint32_t arrive, bool needed)
{
	const struct pl_edit *e = r->e;
	uint32_t meet = pl_rewrite_meet_of(e, arrive), transfer = pl_edit_transfer(e, arrive);

	if (meet != PL_NONE && !e->node[meet].dead)
		rw_drop_node(r, meet);
	for (uint32_t x = e->node[arrive].in; x != PL_NONE; x = e->edge[x].in_next) {
		uint32_t call = e->edge[x].src;

		if (!rw_launches(&e->edge[x]) || !pl_rewrite_on_thread(e, call))
			continue;
		if (needed)
			rw_set_dur(r, call, 0);
		else
			silence(r, call, true);
	}
	for (uint32_t x = transfer == PL_NONE ? PL_NONE : e->node[transfer].out, next;
	     !needed && x != PL_NONE; x = next) {
		uint32_t waits = e->edge[x].dst;

		next = e->edge[x].out_next;
		if (e->node[waits].res == e->node[transfer].res || !pl_rewrite_on_thread(e, waits))
			continue;
		silence(r, waits, false);
		rw_drop_edge(r, x);
	}
}

/* The transfers of a rank that one communication carries take no time, but for its own. That takes
 * the time of all of them, as recorded, or what the fit says where it is less: recorded parts took
 * longer beside computation. */
static void carry(const struct wrap *w, const struct transfer *t, size_t n)
{
	struct pl_rewriter *r = w->r;
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += (double)r->e->node[t[i].node].dur;
	for (size_t i = 0; i < n; i++)
		rw_set_dur(r, t[i].node,
			   r->e->node[t[i].node].comm == t->into
				   ? llround(fmin(sum * w->share[t->into], w->whole[t->into]))
				   : 0);
}

static int new_wrap(struct wrap *w, struct pl_rewriter *r, struct pl_err *err)
{
	*w = (struct wrap){ .r = r };
	if (rw_now(r)->wrap || rw_now(r)->overlapped || rw_now(r)->kept)
		return pl_fail(err, PL_EDATA, "the groups are changed already");
	PL_CHECK(pl_alloc(&w->into, r->e->n_comms, sizeof(*w->into), err));
	PL_CHECK(pl_alloc(&w->share, r->e->n_comms, sizeof(*w->share), err));
	PL_CHECK(pl_alloc(&w->whole, r->e->n_comms, sizeof(*w->whole), err));
	memset(w->into, 0xff, r->e->n_comms * sizeof(*w->into));
	return 0;
}

static void wrap_fini(struct wrap *w)
{
	pl_free(w->into);
	pl_free(w->share);
	pl_free(w->whole);
}

static int carry_out(const struct wrap *w, struct pl_err *err)
{
	struct pl_rewriter *r = w->r;
	const struct pl_edit *e = r->e;
	struct transfer *v = NULL, t;
	size_t n = 0, cap = 0;
	int rc = 0;

	for (uint32_t i = 0; i < r->n_recorded; i++) {
		if (!changes(w, i, PL_RO_TRANSFER))
			continue;
		t = (struct transfer){ w->into[e->node[i].comm], e->res[e->node[i].res].rank, i };
		PL_TRY(pl_append(&v, &n, &cap, &t, sizeof(t), err));
	}
	pl_sort(v, n, sizeof(*v), by_carrier);
	for (size_t i = 0, k; i < n; i += k) {
		for (k = 1; i + k < n && v[i + k].into == v[i].into && v[i + k].rank == v[i].rank;
		     k++)
			;
		carry(w, &v[i], k);
	}
	for (uint32_t i = 0; i < r->n_recorded; i++) {
		uint32_t comm = e->node[i].comm;

		if (changes(w, i, PL_RO_ARRIVE) && w->into[comm] != comm)
			leave_out(r, i, w->into[comm] != GONE);
	}
out:
	pl_free(v);
	return rc;
}

static int apply_wrap(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct rw_groups *x;
	struct wrap w;
	int rc;

	PL_CHECK(pl_rewrite_groups_need(&r->facts, true, err));
	x = r->facts.groups;
	PL_TRY(new_wrap(&w, r, err));
	if (x->most == 1 && rw->k >= 0) {
		rc = pl_fail(err, PL_EDATA,
			     "all sharded parameters are one group, which cannot be divided: a "
			     "recording does not say which operation needs which parameter");
		goto out;
	}
	rw_now(r)->wrap = rw->k;
	for (size_t k = 0; k < x->n_passes; k++)
		for (uint32_t i = 0, n; i < x->pass[k].n; i += n) {
			n = wrapped(x, &x->pass[k], rw->k, i);
			if (n > 1)
				join_groups(&w, &x->pass[k], i, n);
		}
	if (w.differ) {
		rc = pl_fail(err, PL_EDATA, "ranks that gather together have different groups");
		goto out;
	}
	rc = carry_out(&w, err);
out:
	wrap_fini(&w);
	return rc;
}

/* Nothing is gathered again. */
static int apply_no_reshard(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct rw_groups *x;
	struct wrap w;
	bool any = false;
	int rc;

	(void)rw;
	PL_CHECK(pl_rewrite_groups_need(&r->facts, false, err));
	x = r->facts.groups;
	PL_TRY(new_wrap(&w, r, err));
	rw_now(r)->kept = true;
	for (size_t k = 0; k < x->n_passes; k++)
		for (uint32_t i = 0; i < x->pass[k].n; i++) {
			uint32_t arrive = rw_arrival(r, &x->pass[k], i, RW_GATHER_AGAIN);

			if (arrive == PL_NONE)
				continue;
			w.into[r->e->node[arrive].comm] = GONE;
			any = true;
		}
	if (any)
		rc = carry_out(&w, err);
	else
		rc = pl_fail(err, PL_EDATA,
			     "no parameters are gathered again in a backward pass: each group "
			     "keeps them already");
out:
	wrap_fini(&w);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_wrap = {
	.apply = apply_wrap,
	.explain = "groups of sharded parameters are joined, so that fewer and larger messages are "
		   "sent; more parameters are whole at a time, which takes memory"
};

const struct pl_rewrite_kind pl_rewrite_no_reshard = {
	.apply = apply_no_reshard,
	.explain = "sharded parameters stay whole from the forward to the backward pass, which "
		   "does not gather them again; all of them are whole at a time, which takes memory"
};
