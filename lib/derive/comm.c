/*
 * Communication across ranks, from the matches that merge found.
 *
 * A collective is a rendezvous: edges lead from the arrival of every member to the rendezvous, and
 * from the rendezvous to the transfer of every member. A transfer lasts from the last arrival to
 * the end of its member. A send and its receive are a rendezvous of two members: the receive cannot
 * begin before its data, and a send without a buffer not before its receiver, so both transfers
 * begin at the later start.
 *
 * A sender to the root of a reduce or gather need not wait. A receiver from the root of a broadcast
 * or scatter need wait only for the root. Implementations differ, so the recorded times decide. A
 * member that had not ended at the last arrival waited for it. A member that had ended waited only
 * for the root, or, as a sender, for no member. The recording does not name the root. The root had
 * arrived before the first member ended, and communications with the same name, size and group have
 * the same root.
 *
 * Frameworks issue a send and a receive as one batch and record one span for both. With such twins
 * (same rank, same start, same end), the transfer of the one would last as long as the wait of the
 * other. Therefore the transfer of a twin ends with the transfer of its partner.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

#define TWIN_NS	 1000
#define EARLY_NS 50000 /* clocks are aligned better than this */

static void copy_groups(struct gb *b)
{
	const struct pl_merge *m = &b->t->merge;

	for (uint32_t i = 0; i < m->n_groups; i++)
		pl_derive_put_group(b->g, m->group[i].name ? m->group[i].name : "",
				    m->group[i].flags, m->group[i].rank, 0, m->group[i].n, b->err);
}

void pl_derive_add_arrival(struct gb *b, const struct op *op)
{
	struct seginfo *x = &b->seg[op->seg];

	PL_DERIVE_ADD(b->err, x->arrival, x->n_arrivals, x->cap_arrivals,
		      (struct arrival){ op->ev, op->node });
}

PL_COMPARATOR(by_event, struct arrival, event);

uint32_t pl_derive_arrival(const struct gb *b, const struct pl_member *m)
{
	const struct seginfo *x = m->segment < b->t->n_segs ? &b->seg[m->segment] : NULL;
	size_t i = 0, n = x ? x->n_arrivals : 0;

	PL_LOWER_BOUND(i, n, x->arrival[i].event < m->event);
	return i < n && x->arrival[i].event == m->event ? x->arrival[i].node : PL_NONE;
}

/* Marks the communications of a rank that have the same span as another one of the rank. */
static void find_twins(struct gb *b, const struct rankinfo *rk, uint8_t *twin)
{
	for (size_t k = 0; k < rk->n_res; k++) {
		const struct resinfo *ri = &b->ri[rk->res[k]];

		for (size_t l = k + 1; l < rk->n_res; l++) {
			const struct resinfo *rj = &b->ri[rk->res[l]];
			uint32_t j = 0;

			for (uint32_t i = 0; i < ri->n; i++) {
				const struct op *p = &ri->op[i], *q;

				while (j < rj->n && rj->op[j].start < p->start - TWIN_NS)
					j++;
				q = j < rj->n ? &rj->op[j] : NULL;
				if (q && p->node != q->node && p->node != PL_NONE &&
				    q->node != PL_NONE && llabs(q->start - p->start) <= TWIN_NS &&
				    llabs(q->end - p->end) <= TWIN_NS) {
					twin[p->node] = twin[q->node] = 1;
				}
			}
		}
	}
}

static void set_transfer(struct gb *b, uint32_t arrive, pl_ns from, pl_ns until, bool missing)
{
	struct node *t = &b->node[arrive + 1];
	pl_ns end = pl_min_i64(t->start + t->dur, until);

	t->start = pl_max_i64(b->node[arrive].start, pl_min_i64(from, end));
	t->dur = pl_max_i64(0, end - t->start);
	t->flags = (uint8_t)(missing ? t->flags | PL_NF_MISSING : t->flags & ~PL_NF_MISSING);
	b->node[arrive].flags = (uint8_t)(missing ? b->node[arrive].flags | PL_NF_MISSING
						  : b->node[arrive].flags & ~PL_NF_MISSING);
}

/* For which members does a member wait that ends before the last arrival? */
enum bound {
	BY_ALL,	 /* every member waits for all; an early end means a wrong match or a buffered send
		  */
	BY_ROOT, /* receivers wait only for the root */
	AT_ROOT, /* senders to the root wait for no member */
};

struct match {
	const struct pl_match *m;
	const struct pl_member *mem;
	uint32_t found, first; /* members with nodes; the first of them */
	pl_ns last, left;      /* the last arrival, the first end */
	bool early;	       /* a member ended well before the last arrival */
	enum bound bound;
};

static void look_at(const struct gb *b, const struct pl_match *m, struct match *x)
{
	*x = (struct match){
		m, b->t->merge.member + m->first, 0, PL_NONE, INT64_MIN, INT64_MAX, false, BY_ALL
	};
	for (uint32_t i = 0; i < m->n; i++) {
		uint32_t a = pl_derive_arrival(b, &x->mem[i]);

		if (a == PL_NONE)
			continue;
		x->first = x->found++ ? x->first : a;
		x->last = pl_max_i64(x->last, b->node[a].start);
		x->left = pl_min_i64(x->left, pl_derive_end(b, a + 1));
	}
	x->early = x->found > 1 && x->left + EARLY_NS < x->last;
	if (!x->early || m->flags & PL_MATCH_P2P)
		return;
	switch (pl_trace_coll_find(pl_intern_get(&b->g->str, b->node[x->first].name),
				   b->g->str.len[b->node[x->first].name])) {
	case PL_COLL_BROADCAST:
	case PL_COLL_SCATTER:
		/* without the root nobody's wait is known */
		x->bound = m->flags & PL_MATCH_MISSING ? AT_ROOT : BY_ROOT;
		break;
	case PL_COLL_REDUCE:
	case PL_COLL_GATHER:
		x->bound = AT_ROOT;
		break;
	default:
		break;
	}
}

/* ---- roots ----------------------------------------------------------------------------------- */

/* Communications alike, as far as the graph tells, have one root: how often each rank could be it.
 */
struct roots {
	struct pl_intern key;
	uint32_t *count;
	size_t cap;
};

static uint32_t *count_of(struct roots *r, const struct gb *b, const struct match *x, uint32_t a)
{
	const int64_t key[4] = { x->m->group, b->node[a].name, b->attr[b->node[a].attr].bytes,
				 b->g->res[b->node[a].res].rank };
	size_t n = r->key.n;
	pl_id id = pl_derive_intern(b->err, &r->key, key, sizeof(key));

	if (id == n)
		PL_DERIVE_ADD(b->err, r->count, n, r->cap, 0);
	return b->err->code ? NULL : &r->count[id];
}

/* The root had arrived when the first member ended, within the error of the clocks. */
static bool could_be_root(const struct gb *b, const struct match *x, uint32_t a, pl_ns slack)
{
	return a != PL_NONE && b->node[a].start <= x->left + slack;
}

static void count_roots(struct roots *r, const struct gb *b, const struct pl_match *m)
{
	struct match x;

	look_at(b, m, &x);
	for (uint32_t i = 0; i < m->n && x.bound == BY_ROOT; i++) {
		uint32_t a = pl_derive_arrival(b, &x.mem[i]), *n = NULL;

		if (could_be_root(b, &x, a, EARLY_NS))
			n = count_of(r, b, &x, a);
		if (n)
			++*n;
	}
}

/* Arrival of the member that most often could be the root; of such, the last to come. */
static uint32_t root_of(struct roots *r, const struct gb *b, const struct match *x)
{
	uint32_t best = PL_NONE, most = 0;

	for (uint32_t i = 0; i < x->m->n; i++) {
		uint32_t a = pl_derive_arrival(b, &x->mem[i]), *n = NULL;

		if (could_be_root(b, x, a, 0))
			n = count_of(r, b, x, a);
		if (n && (*n > most || (*n == most && b->node[a].start > b->node[best].start))) {
			best = a;
			most = *n;
		}
	}
	return best;
}

/* ---- one match ------------------------------------------------------------------------------- */

/* Nobody to wait for, or nobody recorded. */
static void alone(struct gb *b, const struct match *x)
{
	bool missing = x->m->n > 1 || x->m->flags & PL_MATCH_MISSING;

	if (x->first == PL_NONE)
		return;
	b->g->unmatched_comm += missing;
	b->node[x->first].group = b->node[x->first + 1].group = x->m->group;
	set_transfer(b, x->first, b->node[x->first].start, INT64_MAX, missing);
}

static uint32_t rendezvous(struct gb *b, const struct match *x)
{
	struct node n = { .start = x->last,
			  .type = PL_N_RENDEZVOUS,
			  .kind = PL_K_COLLECTIVE,
			  .res = PL_NONE,
			  .name = b->s_rendezvous,
			  .group = x->m->group };
	struct attr all = GB_NO_ATTR;

	for (uint32_t i = 0; i < x->m->n; i++) {
		uint32_t a = pl_derive_arrival(b, &x->mem[i]);

		if (a == PL_NONE)
			continue;
		n.name = b->node[a].name;
		n.kind = b->node[a].kind;
		all.bytes = pl_max_i64(all.bytes, b->attr[b->node[a].attr].bytes);
	}
	n.attr = pl_derive_attr(b, &all);
	return pl_derive_node(b, &n);
}

/* A member that left before the last one came: a root may have waited for those who came before it
 * left, others have for the root. */
static void join_early(struct gb *b, const struct match *x, uint32_t a, uint32_t root)
{
	pl_ns from = b->node[a].start, end = pl_derive_end(b, a + 1);

	for (uint32_t i = 0; i < x->m->n && root != PL_NONE; i++) {
		uint32_t o = pl_derive_arrival(b, &x->mem[i]);

		if (o == PL_NONE || o == a || (a != root && o != root) || b->node[o].start > end)
			continue;
		pl_derive_edge(b, o, a + 1, PL_E_COMM);
		from = pl_max_i64(from, b->node[o].start);
	}
	set_transfer(b, a, from, INT64_MAX, x->m->flags & PL_MATCH_MISSING);
}

/* One member's edges and transfer. */
static void join(struct gb *b, const struct match *x, uint32_t a, uint32_t root, uint32_t meet,
		 pl_ns until)
{
	b->node[a].group = b->node[a + 1].group = x->m->group;
	pl_derive_edge(b, a, meet, PL_E_COMM);
	if (pl_derive_end(b, a + 1) + EARLY_NS < x->last) {
		b->g->unmatched_comm += x->bound == BY_ALL;
		if (x->bound != BY_ALL)
			join_early(b, x, a, root);
		return;
	}
	set_transfer(b, a, x->last, until, x->m->flags & PL_MATCH_MISSING);
	pl_derive_edge(b, meet, a + 1, PL_E_COMM);
}

static void one_match(struct gb *b, uint32_t match, const uint8_t *twin, struct roots *r)
{
	const struct pl_match *m = &b->t->merge.match[match];
	struct match x;
	uint32_t meet, root;
	pl_ns until;

	look_at(b, m, &x);
	if (x.found < 2) {
		alone(b, &x);
		return;
	}
	until = m->flags & PL_MATCH_P2P ? x.left : INT64_MAX;
	root = x.bound == BY_ROOT ? root_of(r, b, &x) : PL_NONE;
	meet = rendezvous(b, &x);
	if (pl_derive_messages(b, match)) {
		pl_derive_chunks(b, match, meet);
		return;
	}
	for (uint32_t i = 0; i < m->n; i++) {
		uint32_t a = pl_derive_arrival(b, &x.mem[i]);

		if (a != PL_NONE)
			join(b, &x, a, root, meet, twin[a] ? until : INT64_MAX);
	}
}

/* Twins end when their own transfer does; operations after them must still see the recorded end, so
 * the operation's end in the lists follows its node. */
static void refresh_ends(struct gb *b)
{
	for (uint32_t r = 0; r < b->g->n_res; r++)
		for (uint32_t i = 0; i < b->ri[r].n; i++)
			if (b->ri[r].op[i].last != PL_NONE)
				b->ri[r].op[i].end = pl_derive_end(b, b->ri[r].op[i].last);
}

static bool is_within(const struct pl_merge *m, const struct pl_match *k)
{
	return k->first <= m->n_members && k->n <= m->n_members - k->first;
}

void pl_derive_comm(struct gb *b)
{
	const struct pl_merge *m = &b->t->merge;
	struct roots roots = { 0 };
	uint8_t *twin;

	if (pl_alloc(&twin, b->n_nodes, 1, b->err) < 0)
		return;
	for (uint32_t i = 0; i < b->t->n_segs; i++)
		pl_sort(b->seg[i].arrival, b->seg[i].n_arrivals, sizeof(*b->seg[i].arrival),
			by_event);
	copy_groups(b);
	for (size_t r = 0; r < b->n_ranks; r++)
		if (b->rank[r].table)
			find_twins(b, &b->rank[r], twin);
	for (uint32_t i = 0; i < m->n_matches; i++)
		if (is_within(m, &m->match[i]))
			count_roots(&roots, b, &m->match[i]);
	for (uint32_t i = 0; i < m->n_matches; i++)
		if (is_within(m, &m->match[i]) && !b->err->code)
			one_match(b, i, twin, &roots);
	pl_derive_message_order(b);
	refresh_ends(b);
	pl_intern_fini(&roots.key);
	pl_free(roots.count);
	pl_free(twin);
}
