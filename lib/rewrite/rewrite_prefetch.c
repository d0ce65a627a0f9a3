/*
 * prefetch: sharded parameters are gathered earlier, beside the computation of the groups before.
 *
 * In each pass the gather of a group leaves when the group that stands so many places before it has
 * its parameters, after the work of the host that the gather needs. It takes the place of that
 * group's gather in the order of its thread. The work of the host keeps its place: only its order
 * differs from the job that prefetches. Gathers of one pass follow one another.
 *
 * On a device gathers are queued far ahead already, and the memory for parameters decides when one
 * begins. The recording does not say how much there is, so such jobs are refused. O(nodes).
 */
#include "rewrite/rewrite_internal.h"

/* The gather of a group on a rank, as recorded. */
struct gather {
	pl_ns start;
	uint32_t arrive, transfer;
	uint32_t launch;       /* edge from its call */
	uint32_t ready;	       /* the last operation of the host that it needs, such as a copy */
	uint32_t before, next; /* on its thread, PL_NONE: a gather of the pass, or nothing */
	pl_ns work;	       /* of the host, until it leaves */
};

/* How long the host works for the communication that `call` issues, before it leaves. */
static pl_ns work_for(const struct pl_edit *e, uint32_t call, uint32_t arrive)
{
	uint32_t first = call, x;

	while (!pl_rewrite_waits_for_comm(e, first) &&
	       (x = pl_rewrite_chained(e, first, true)) != PL_NONE &&
	       pl_rewrite_is_for_comm(e, e->edge[x].src))
		first = e->edge[x].src;
	return pl_max_i64(0, e->node[arrive].start - e->node[first].start);
}

/* The last operation that the host does for a communication, from the one that waits for it on. */
static uint32_t last_for_comm(const struct pl_edit *e, uint32_t node)
{
	for (uint32_t x, next; (x = pl_rewrite_chained(e, node, false)) != PL_NONE; node = next) {
		next = e->edge[x].dst;
		if (!pl_rewrite_is_for_comm(e, next))
			break;
		for (x = e->node[next].out; x != PL_NONE; x = e->edge[x].out_next)
			if (rw_launches(&e->edge[x]))
				return node;
	}
	return node;
}

static int no_wait(struct pl_err *err)
{
	return pl_fail(err, PL_EDATA,
		       "no thread waits for a gather of parameters as soon as it has issued it, so "
		       "they may run beside computation already");
}

static int find_gather(const struct pl_rewriter *r, uint32_t arrive, struct gather *g,
		       struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	uint32_t call = PL_NONE;

	*g = (struct gather){ e->node[arrive].start,
			      arrive,
			      pl_edit_transfer(e, arrive),
			      PL_NONE,
			      PL_NONE,
			      PL_NONE,
			      PL_NONE,
			      0 };
	if (!pl_rewrite_on_thread(e, arrive))
		return pl_fail(err, PL_EDATA,
			       "devices gather the parameters, and the recording does not say how "
			       "much memory there is for more of them at a time; overlap says what "
			       "it would save at most");
	for (uint32_t x = e->node[arrive].in; x != PL_NONE; x = e->edge[x].in_next)
		if (rw_launches(&e->edge[x]) && pl_rewrite_on_thread(e, e->edge[x].src))
			g->launch = x;
	if (g->transfer == PL_NONE)
		return no_wait(err);
	if (g->launch != PL_NONE)
		call = e->edge[g->launch].src;
	for (uint32_t x = e->node[g->transfer].out; call != PL_NONE && x != PL_NONE;
	     x = e->edge[x].out_next)
		if (PL_E_TYPE(e->edge[x].type) == PL_E_WAIT &&
		    e->node[e->edge[x].dst].res == e->node[call].res)
			g->ready = last_for_comm(e, e->edge[x].dst);
	if (g->ready == PL_NONE)
		return no_wait(err);
	g->work = work_for(e, call, arrive);
	return 0;
}

/* The other end of a chained edge, unless it is a gather of the pass; the edge is dropped. */
static uint32_t unchain(struct pl_rewriter *r, const struct gather *g, uint32_t n, uint32_t node,
			bool before)
{
	uint32_t x = pl_rewrite_chained(r->e, node, before), other;

	if (x == PL_NONE)
		return PL_NONE;
	other = before ? r->e->edge[x].src : r->e->edge[x].dst;
	rw_drop_edge(r, x);
	for (uint32_t i = 0; i < n; i++)
		if (other == g[i].arrive || other == g[i].transfer)
			return PL_NONE;
	return other;
}

static void link_to(struct pl_rewriter *r, uint32_t from, uint32_t to)
{
	if (from != PL_NONE && to != PL_NONE)
		rw_add_edge(r, from, to, PL_E_SEQ, 0);
}

/* The n gathers of a pass on a rank leave `ahead` groups earlier. */
static void move(struct pl_rewriter *r, struct gather *g, uint32_t n, uint32_t ahead)
{
	for (uint32_t i = 0; i < n; i++) {
		g[i].before = unchain(r, g, n, g[i].arrive, true);
		g[i].next = unchain(r, g, n, g[i].transfer, false);
	}
	for (uint32_t i = 0; i < n; i++) {
		const struct gather *at = &g[i < ahead ? 0 : i - ahead], *next = at;

		while (next->next == PL_NONE && next < &g[i])
			next++;
		link_to(r, i ? g[i - 1].transfer : PL_NONE, g[i].arrive);
		link_to(r, at->before, g[i].arrive);
		link_to(r, g[i].transfer, next->next);
		if (i + ahead >= n && i)
			link_to(r, g[i].before, g[i].next);
		if (!i)
			continue;
		if (i < ahead)
			rw_add_edge(r, r->e->edge[g[0].launch].src, g[i].arrive, PL_E_EARLY,
				    g[i].work);
		else
			rw_add_edge(r, at->ready, g[i].arrive, PL_E_LAUNCH, g[i].work);
		rw_drop_edge(r, g[i].launch);
	}
}

PL_COMPARATOR(by_issue, struct gather, start, arrive);

/* Such gathers of a pass leave `ahead` groups earlier; *any: there are some. */
static int move_gathers(struct pl_rewriter *r, const struct rw_pass *p, unsigned what,
			struct gather *g, uint32_t ahead, bool *any, struct pl_err *err)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < p->n; i++) {
		uint32_t arrive = rw_arrival(r, p, i, what);

		if (arrive != PL_NONE)
			PL_CHECK(find_gather(r, arrive, &g[n++], err));
	}
	*any |= n > 0;
	pl_sort(g, n, sizeof(*g), by_issue);
	for (uint32_t i = 1; i < n; i++)
		if (r->e->node[g[i - 1].ready].start > g[i].start)
			return no_wait(err);
	move(r, g, n, ahead);
	return 0;
}

static int apply_prefetch(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct rw_groups *x;
	struct gather *g = NULL;
	bool any = false;
	int rc;

	PL_CHECK(pl_rewrite_groups_need(&r->facts, false, err));
	x = r->facts.groups;
	if (x->most == 1)
		return pl_fail(err, PL_EDATA,
			       "all sharded parameters are one group, so there is no computation "
			       "before it");
	if (rw_now(r)->wrap || rw_now(r)->overlapped || rw_now(r)->kept)
		return pl_fail(err, PL_EDATA, "the gathers are changed already");
	PL_TRY(pl_alloc(&g, x->most, sizeof(*g), err));
	for (size_t k = 0; k < x->n_passes; k++)
		for (unsigned what = RW_GATHER; what <= RW_GATHER_AGAIN; what++)
			PL_TRY(move_gathers(r, &x->pass[k], what, g, (uint32_t)rw->k, &any, err));
	rw_now(r)->overlapped = true;
	rc = any ? 0
		 : pl_fail(err, PL_EDATA,
			   "nothing gathers parameters: each rank has a copy of all of them");
out:
	pl_free(g);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_prefetch = {
	.apply = apply_prefetch,
	.explain = "sharded parameters are gathered {k} groups earlier, beside computation; more "
		   "parameters are whole at a time, which takes memory"
};
