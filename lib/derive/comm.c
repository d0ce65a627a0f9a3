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

#include "derive/internal.h"

#define TWIN_NS	 1000  /* profilers round times to microseconds */
#define EARLY_NS 50000 /* clocks are aligned better than this */

static void copy_groups(struct builder *b)
{
	const struct pl_merge *m = &b->t->merge;

	for (uint32_t i = 0; i < m->n_groups; i++)
		pl_derive_put_group(b->g, m->group[i].name ? m->group[i].name : "",
				    m->group[i].flags, m->group[i].rank, 0, m->group[i].n, b->err);
}

void pl_derive_add_arrival(struct builder *b, const struct op *op)
{
	struct segment *x = &b->seg[op->seg];

	PL_DERIVE_ADD(b->err, x->arrival, x->n_arrivals, x->cap_arrivals,
		      (struct arrival){ op->ev, op->node });
}

PL_COMPARATOR(by_event, struct arrival, event);

uint32_t pl_derive_arrival(const struct builder *b, const struct pl_member *m)
{
	const struct segment *x = m->segment < b->t->n_segs ? &b->seg[m->segment] : NULL;
	size_t i = 0, n = x ? x->n_arrivals : 0;

	PL_LOWER_BOUND(i, n, x->arrival[i].event < m->event);
	return i < n && x->arrival[i].event == m->event ? x->arrival[i].node : PL_NONE;
}

/* Marks the communications of a rank that have the same span as another one of the rank. */
static void find_twins(struct builder *b, const struct rank *rank, uint8_t *twin)
{
	for (size_t k = 0; k < rank->n_res; k++) {
		const struct resource *resource = &b->resource[rank->res[k]];

		for (size_t l = k + 1; l < rank->n_res; l++) {
			const struct resource *other = &b->resource[rank->res[l]];
			uint32_t j = 0;

			for (uint32_t i = 0; i < resource->n; i++) {
				const struct op *p = &resource->op[i], *q;

				while (j < other->n && other->op[j].start < p->start - TWIN_NS)
					j++;
				q = j < other->n ? &other->op[j] : NULL;
				if (q && p->node != q->node && p->node != PL_NONE &&
				    q->node != PL_NONE && llabs(q->start - p->start) <= TWIN_NS &&
				    llabs(q->end - p->end) <= TWIN_NS) {
					twin[p->node] = twin[q->node] = 1;
				}
			}
		}
	}
}

static void set_missing(struct node *n, bool missing)
{
	n->flags = (uint8_t)(missing ? n->flags | PL_NF_MISSING : n->flags & ~PL_NF_MISSING);
}

static void set_transfer(struct builder *b, uint32_t arrive, pl_ns from, pl_ns until, bool missing)
{
	struct node *t = &b->node[arrive + 1];
	pl_ns end = pl_min_i64(t->start + t->dur, until);

	t->start = pl_max_i64(b->node[arrive].start, pl_min_i64(from, end));
	t->dur = pl_max_i64(0, end - t->start);
	set_missing(t, missing);
	set_missing(&b->node[arrive], missing);
}

/* For which members does a member wait that ends before the last arrival? */
enum bound {
	BY_ALL,	 /* for all; an early end means a wrong match or a buffered send */
	BY_ROOT, /* receivers wait only for the root */
	AT_ROOT, /* senders to the root wait for no member */
};

struct matching {
	struct builder *b;
	uint8_t *twin;	  /* [node]: 1: an arrival of a twin */
	uint8_t *matched; /* [node]: 1: an arrival with a match */
	/* Communications alike in the graph have one root: how often each rank could be it. */
	struct pl_intern root;
	uint32_t *count;
	size_t cap_counts;
	/* the match at hand */
	const struct pl_match *m;
	uint32_t *at; /* arrivals of the members that have nodes */
	size_t n, cap;
	pl_ns last_arrival, first_end;
	enum bound bound;
};

/* Fills the fields of the match at hand. */
static void look_at(struct matching *x, const struct pl_match *m)
{
	const struct builder *b = x->b;

	x->m = m;
	x->n = 0;
	x->last_arrival = INT64_MIN;
	x->first_end = INT64_MAX;
	x->bound = BY_ALL;
	for (uint32_t i = 0; i < m->n; i++) {
		uint32_t a = pl_derive_arrival(b, &b->t->merge.member[m->first + i]);

		if (a == PL_NONE)
			continue;
		x->matched[a] = 1;
		PL_DERIVE_ADD(b->err, x->at, x->n, x->cap, a);
		x->last_arrival = pl_max_i64(x->last_arrival, b->node[a].start);
		x->first_end = pl_min_i64(x->first_end, pl_derive_end(b, a + 1));
	}
	if (x->n < 2 || x->first_end + EARLY_NS >= x->last_arrival || m->flags & PL_MATCH_P2P)
		return;
	switch (pl_trace_coll_find(pl_intern_get(&b->g->str, b->node[x->at[0]].name),
				   b->g->str.len[b->node[x->at[0]].name])) {
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

/* How often the member that arrives at `a` could be the root of communications like this one. The
 * root had arrived when the first member ended, within the error of the clocks; NULL: it had not.
 */
static uint32_t *count_of(struct matching *x, uint32_t a, pl_ns slack)
{
	const struct builder *b = x->b;
	const int64_t key[4] = { x->m->group, b->node[a].name, b->attr[b->node[a].attr].bytes,
				 b->g->res[b->node[a].res].rank };
	size_t n = x->root.n;
	pl_id id;

	if (b->node[a].start > x->first_end + slack)
		return NULL;
	id = pl_derive_intern(b->err, &x->root, key, sizeof(key));
	if (id == n)
		PL_DERIVE_ADD(b->err, x->count, n, x->cap_counts, 0);
	return b->err->code ? NULL : &x->count[id];
}

static void count_roots(struct matching *x)
{
	for (size_t i = 0; i < x->n && x->bound == BY_ROOT; i++) {
		uint32_t *n = count_of(x, x->at[i], EARLY_NS);

		if (n)
			++*n;
	}
}

/* Arrival of the member that most often could be the root; of such, the last to come. */
static uint32_t root_of(struct matching *x)
{
	const struct node *node = x->b->node;
	uint32_t best = PL_NONE, most = 0;

	for (size_t i = 0; i < x->n && x->bound == BY_ROOT; i++) {
		uint32_t a = x->at[i], *n = count_of(x, a, 0);

		if (n && (*n > most || (*n == most && node[a].start > node[best].start))) {
			best = a;
			most = *n;
		}
	}
	return best;
}

/* ---- one match ------------------------------------------------------------------------------- */

/* A match with one recorded member, which waits for no other one. */
static void alone(struct builder *b, const struct pl_match *m, uint32_t a)
{
	bool missing = m->n > 1 || m->flags & PL_MATCH_MISSING;

	b->g->unmatched_comm += missing;
	b->node[a].group = b->node[a + 1].group = m->group;
	set_transfer(b, a, b->node[a].start, INT64_MAX, missing);
}

uint32_t pl_derive_rendezvous(struct builder *b, const uint32_t *at, size_t members, pl_ns start,
			      uint32_t group)
{
	const struct node *last = &b->node[at[members - 1]];
	struct node n = { .start = start,
			  .type = PL_N_RENDEZVOUS,
			  .kind = last->kind,
			  .res = PL_NONE,
			  .name = last->name,
			  .group = group };
	struct attr all = NO_ATTRIBUTES;

	for (size_t i = 0; i < members; i++)
		all.bytes = pl_max_i64(all.bytes, b->attr[b->node[at[i]].attr].bytes);
	n.attr = pl_derive_attr(b, &all);
	return pl_derive_node(b, &n);
}

/* A member that ended before the last one arrived. The root may have waited for the members that
 * arrived before it ended, another member for the root. */
static void join_early(const struct matching *x, uint32_t a, uint32_t root)
{
	struct builder *b = x->b;
	pl_ns from = b->node[a].start, end = pl_derive_end(b, a + 1);

	for (size_t i = 0; i < x->n && root != PL_NONE; i++) {
		uint32_t o = x->at[i];

		if (o == a || (a != root && o != root) || b->node[o].start > end)
			continue;
		pl_derive_edge(b, o, a + 1, PL_E_COMM);
		from = pl_max_i64(from, b->node[o].start);
	}
	set_transfer(b, a, from, INT64_MAX, x->m->flags & PL_MATCH_MISSING);
}

/* One member's edges and transfer. */
static void join(const struct matching *x, uint32_t a, uint32_t root, uint32_t meet)
{
	bool twin = x->twin[a] && x->m->flags & PL_MATCH_P2P;
	struct builder *b = x->b;

	b->node[a].group = b->node[a + 1].group = x->m->group;
	pl_derive_edge(b, a, meet, PL_E_COMM);
	if (pl_derive_end(b, a + 1) + EARLY_NS < x->last_arrival) {
		b->g->unmatched_comm += x->bound == BY_ALL;
		if (x->bound != BY_ALL)
			join_early(x, a, root);
		return;
	}
	set_transfer(b, a, x->last_arrival, twin ? x->first_end : INT64_MAX,
		     x->m->flags & PL_MATCH_MISSING);
	pl_derive_edge(b, meet, a + 1, PL_E_COMM);
}

/* The bytes of the tensors that the event takes in, -1: not known, or not all of one type. */
static int64_t bytes_in(const struct builder *b, const struct pl_member *m)
{
	const struct pl_events *e = b->t->seg[m->segment];
	const char *dims = pl_derive_text(e, e->dims, m->event);
	const char *type = pl_derive_text(e, e->types, m->event);
	size_t n = type && !strncmp(type, "[\"", 2) ? strcspn(type + 2, "\"") : 0;
	int64_t elements = 0;
	struct pl_dims t;

	if (!dims || !n || strcmp(type + 2 + n, "\"]") != 0)
		return -1;
	while (pl_dims_next(&dims, &t))
		if (t.elements < 0 || __builtin_add_overflow(elements, t.elements, &elements))
			return -1;
	return elements ? pl_dims_product(elements, pl_trace_dtype(type + 2, n, NULL)) : -1;
}

/* The threads of gloo record what a member gives to an all-gather. Its size is that of the whole
 * buffer, which has a part of each member. */
static void size_gathered(const struct matching *x)
{
	struct builder *b = x->b;
	const struct pl_member *m = &b->t->merge.member[x->m->first];
	pl_id name = b->node[x->at[0]].name;

	if (b->attr[b->node[x->at[0]].attr].bytes >= 0 ||
	    pl_trace_coll_find(pl_intern_get(&b->g->str, name), b->g->str.len[name]) !=
		    PL_COLL_ALLGATHER)
		return;
	for (uint32_t i = 0; i < x->m->n; i++) {
		uint32_t a = pl_derive_arrival(b, &m[i]);
		int64_t bytes = a == PL_NONE ? -1 : bytes_in(b, &m[i]);
		struct attr attr;

		if (bytes <= 0)
			continue;
		attr = b->attr[b->node[a].attr];
		attr.bytes = pl_dims_product(bytes, x->m->n);
		b->node[a].attr = b->node[a + 1].attr = pl_derive_attr(b, &attr);
	}
}

/* Were both the send and its receive posted? sends.c joins these. */
static bool note_partner(const struct matching *x)
{
	struct posted *send, *recv;

	if (!(x->m->flags & PL_MATCH_P2P) || x->n != 2)
		return false;
	send = pl_derive_posted(x->b, x->at[0]);
	recv = pl_derive_posted(x->b, x->at[1]);
	if (!send || !recv)
		return false;
	send->partner = recv->arrive;
	return true;
}

static void one_match(struct matching *x, uint32_t match)
{
	struct builder *b = x->b;
	uint32_t meet, root;

	if (x->n < 2) {
		if (x->n)
			alone(b, x->m, x->at[0]);
		return;
	}
	if (note_partner(x))
		return;
	size_gathered(x);
	root = root_of(x);
	meet = pl_derive_rendezvous(b, x->at, x->n, x->last_arrival, x->m->group);
	if (pl_derive_messages(b, match)) {
		pl_derive_chunks(b, match, meet);
		return;
	}
	for (size_t i = 0; i < x->n; i++)
		join(x, x->at[i], root, meet);
}

/* Communication for which merge found no match at all. A rank alone has nobody to wait for. */
static void count_unmatched(const struct matching *x)
{
	const struct builder *b = x->b;

	for (uint32_t i = 0; b->n_ranks > 1 && i < b->t->n_segs; i++)
		for (size_t k = 0; k < b->seg[i].n_arrivals; k++)
			b->g->unmatched_comm += !x->matched[b->seg[i].arrival[k].node];
}

/* The end of a twin is that of its transfer. Operations after it must see this end, so the end of
 * each operation becomes that of its last node. */
static void refresh_ends(struct builder *b)
{
	for (uint32_t r = 0; r < b->g->n_res; r++)
		for (uint32_t i = 0; i < b->resource[r].n; i++)
			if (b->resource[r].op[i].last != PL_NONE)
				b->resource[r].op[i].end =
					pl_derive_end(b, b->resource[r].op[i].last);
}

void pl_derive_comm(struct builder *b)
{
	const struct pl_merge *m = &b->t->merge;
	struct matching x = { .b = b };

	if (pl_alloc(&x.twin, b->n_nodes, 1, b->err) < 0 ||
	    pl_alloc(&x.matched, b->n_nodes, 1, b->err) < 0)
		goto out;
	for (uint32_t i = 0; i < b->t->n_segs; i++)
		pl_sort(b->seg[i].arrival, b->seg[i].n_arrivals, sizeof(*b->seg[i].arrival),
			by_event);
	copy_groups(b);
	for (size_t r = 0; r < b->n_ranks; r++)
		if (b->rank[r].table)
			find_twins(b, &b->rank[r], x.twin);
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < m->n_matches && !b->err->code; i++) {
			const struct pl_match *k = &m->match[i];

			if (k->first > m->n_members || k->n > m->n_members - k->first)
				continue;
			look_at(&x, k);
			if (pass)
				one_match(&x, i);
			else
				count_roots(&x);
		}
	count_unmatched(&x);
	pl_derive_sends(b);
	pl_derive_message_order(b);
	refresh_ends(b);
out:
	pl_intern_fini(&x.root);
	pl_free(x.matched);
	pl_free(x.count);
	pl_free(x.at);
	pl_free(x.twin);
}
