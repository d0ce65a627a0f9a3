/*
 * Collectives with recorded messages: the messages, as measured, replace the one transfer of each
 * member.
 *
 * A message is two nodes, a send and a receive, each on a resource of its rank and channel. The
 * receive begins when the send has ended, because the receiver waited before that. If the send took
 * longer than the receive, the receive begins right after the start of the send. The recording does
 * not tell the dependencies of a message. On each rank and channel they are inferred:
 *
 *   A message follows the message before it in the same direction (its end, or its start if the two
 *   overlap). The first message follows the arrival of the member.
 *   A send follows the latest receive that had ended when the send began. If chunks are recorded,
 *   this is the latest receive of the same chunk, on any channel; a chunk that the rank did not
 *   receive is its own, and its send waits for no receive. Otherwise it is the latest receive of
 *   the channel.
 *
 * The transfer of a member is the rest of its collective after its last message. A member without
 * messages waits for the last arrival, and its transfer begins there. Edges that contradict the
 * recorded times are left out, so that a replay reproduces these times. Neither starts nor ends
 * decrease along the other edges, and from a receive to a dependent send at least one of them
 * increases. Therefore there is no cycle. O(n log n) in messages.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

struct member {
	int32_t rank;
	uint32_t arrive;
	pl_ns end;  /* of the collective there */
	bool any;   /* the member has messages */
	pl_ns last; /* end of its last message */
};
struct message_end { /* one end of a message: the send or the receive */
	uint32_t member, channel;
	bool recv;
	pl_ns start, end;
	uint32_t node;
	int32_t chunk;
};
struct chunks {
	struct gb *b;
	struct member *m;
	uint32_t n;
	struct message_end *v;
	size_t n_v, cap_v;
	struct message_end *recv; /* receives of v with a chunk, by member, chunk and end */
	size_t n_recv;
};

uint32_t pl_derive_messages(const struct gb *b, uint32_t match)
{
	const struct pl_merge *m = &b->t->merge;
	uint32_t n = 0;

	while (!b->o->fold && match + 1 + n < m->n_matches &&
	       m->match[match + 1 + n].flags & PL_MATCH_MESSAGE)
		n++;
	return m->match[match].flags & PL_MATCH_P2P ? 0 : n;
}

/* ---- members --------------------------------------------------------------------------------- */

PL_COMPARATOR(by_rank, struct member, rank);

static int find_members(struct chunks *c, const struct pl_match *m, struct pl_err *err)
{
	struct gb *b = c->b;
	int rc = pl_alloc(&c->m, m->n + 1u, sizeof(*c->m), err);

	for (uint32_t i = 0; i < m->n && rc >= 0; i++) {
		uint32_t a = pl_derive_arrival(b, &b->t->merge.member[m->first + i]);

		if (a == PL_NONE)
			continue;
		b->node[a].group = b->node[a + 1].group = m->group;
		c->m[c->n++] = (struct member){ .rank = b->g->res[b->node[a].res].rank,
						.arrive = a,
						.end = pl_derive_end(b, a + 1) };
	}
	if (c->n)
		pl_sort(c->m, c->n, sizeof(*c->m), by_rank);
	return rc;
}

static uint32_t member_of(const struct chunks *c, int64_t rank)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, c->n, c->m[i].rank < rank);
	return i < c->n && c->m[i].rank == rank ? i : PL_NONE;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Finds or adds the resource of a channel of the member's rank. */
static int link_of(struct chunks *c, uint32_t member, uint32_t channel, uint32_t *res,
		   struct pl_err *err)
{
	struct gb *b = c->b;
	const struct pl_resource *like = &b->g->res[b->node[c->m[member].arrive].res];
	uint32_t index = b->ri[b->node[c->m[member].arrive].res].rank_index;
	struct pl_resource r = *like;
	uint64_t key[2] = { index, channel };
	char name[40];
	pl_id id;
	int rc;

	PL_TRY(pl_intern_add(&b->link_key, (const char *)key, sizeof(key), &id, err));
	PL_TRY(pl_grow(&b->link, &b->cap_link, id + 1u, sizeof(*b->link), err));
	if (id < b->n_link) {
		*res = b->link[id];
		return 0;
	}
	PL_TRY(pl_grow(&b->g->res, &b->g->cap_res, b->g->n_res + 1, sizeof(*b->g->res), err));
	PL_TRY(pl_grow(&b->ri, &b->cap_ri, b->g->n_res + 1, sizeof(*b->ri), err));
	snprintf(name, sizeof(name), "channel %u", channel);
	PL_TRY(pl_intern_add(&b->g->str, name, strlen(name), &r.name, err));
	r.track_type = PL_T_LINK;
	memset(&b->ri[b->g->n_res], 0, sizeof(*b->ri));
	b->ri[b->g->n_res].rank_index = index;
	b->g->res[b->g->n_res] = r;
	b->link[b->n_link++] = *res = (uint32_t)b->g->n_res++;
out:
	return rc;
}

static int64_t value(const int64_t *col, uint32_t ev, int64_t none)
{
	return !col || col[ev] == INT64_MIN ? none : col[ev];
}

/* Adds a send or a receive. *out is NULL if its rank is no member. `sent`: the send of a receive.
 */
static int add_message_end(struct chunks *c, const struct pl_member *x, bool recv,
			   const struct message_end *sent, struct message_end **out,
			   struct pl_err *err)
{
	struct gb *b = c->b;
	const struct pl_events *e = b->t->seg[x->segment];
	const struct pl_track *track = &e->seg.track[e->track[x->event]];
	const struct pl_clock *clock = b->seg[x->segment].clock[e->track[x->event]];
	pl_ns start = pl_add_sat(e->ts[x->event], e->seg.base_ns);
	pl_ns low, end = pl_trace_clock_apply(clock,
					      pl_add_sat(start, pl_max_i64(0, e->dur[x->event])));
	struct op op = { .seg = x->segment, .ev = x->event };
	struct message_end s = { .member = member_of(c, track->rank < 0 ? 0 : track->rank),
				 .recv = recv };
	int64_t channel = value(e->channel, x->event, 0);
	struct member *m;
	struct node n;
	uint32_t res;
	int rc;

	*out = NULL;
	if (s.member == PL_NONE || channel < 0 || channel >= UINT32_MAX)
		return 0;
	m = &c->m[s.member];
	s.channel = (uint32_t)channel;
	s.chunk = (int32_t)pl_max_i64(-1, pl_min_i64(value(e->chunk, x->event, -1), INT32_MAX));
	s.end = pl_max_i64(b->node[m->arrive].start, pl_min_i64(end, m->end));
	low = b->node[m->arrive].start;
	if (sent)
		low = pl_max_i64(low, sent->end <= s.end ? sent->end : sent->start + 1);
	start = pl_max_i64(pl_trace_clock_apply(clock, start), low);
	s.start = op.start = pl_min_i64(start, s.end);
	op.end = s.end;
	PL_TRY(link_of(c, s.member, s.channel, &res, err));
	PL_TRY(pl_derive_node_of(b, &op, res, true, &n, err));
	n.role = PL_RO_TRANSFER;
	n.flags = PL_NF_MESSAGE;
	n.group = b->node[m->arrive].group;
	PL_TRY(pl_derive_node(b, &n, &s.node, err));
	PL_TRY(pl_grow(&c->v, &c->cap_v, c->n_v + 1, sizeof(*c->v), err));
	m->last = m->any ? pl_max_i64(m->last, s.end) : s.end;
	m->any = true;
	c->v[c->n_v] = s;
	*out = &c->v[c->n_v++];
	PL_TRY(pl_grow(&b->message, &b->cap_messages, b->n_messages + 1, sizeof(*b->message), err));
	b->message[b->n_messages++] =
		(struct pl_derive_message){ .res = res,
					    .node = s.node,
					    .arrive = m->arrive,
					    .peer = value(e->peer, x->event, -1),
					    .recv = recv,
					    .start = s.start,
					    .end = s.end };
out:
	return rc;
}

/* Adds a send and its receive. If the receive was not recorded, the data arrives at the end of the
 * send. */
static int add_message(struct chunks *c, const struct pl_match *m, struct pl_err *err)
{
	const struct pl_member *x = &c->b->t->merge.member[m->first];
	struct message_end *s, sent;
	int rc;

	if (!m->n || (rc = add_message_end(c, x, false, NULL, &s, err)) < 0 || !s)
		return m->n ? rc : 0;
	sent = *s;
	if (m->n > 1) {
		if ((rc = add_message_end(c, x + 1, true, &sent, &s, err)) < 0 || !s)
			return rc;
		if (sent.end <= s->start)
			return pl_derive_edge(c->b, sent.node, s->node, PL_E_DATA, err);
		return sent.start >= s->start
			       ? 0
			       : pl_derive_edge(c->b, sent.node, s->node, PL_E_START, err);
	}
	/* no receive was recorded: the data arrives at the end of the send */
	sent.member = member_of(c, value(c->b->t->seg[x->segment]->peer, x->event, -1));
	if (sent.member == PL_NONE || sent.end > c->m[sent.member].end)
		return 0;
	c->m[sent.member].last =
		c->m[sent.member].any ? pl_max_i64(c->m[sent.member].last, sent.end) : sent.end;
	c->m[sent.member].any = true;
	sent.recv = true;
	if ((rc = pl_grow(&c->v, &c->cap_v, c->n_v + 1, sizeof(*c->v), err)) < 0)
		return rc;
	c->v[c->n_v++] = sent;
	return 0;
}

/* ---- dependencies of messages ---------------------------------------------------------------- */

static int by_end(const struct message_end *a, const struct message_end *b)
{
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->node < b->node ? -1 : a->node > b->node;
}

/* By member, channel and direction; then sends by start, and receives by end and start. With this
 * order, a receive that is before() a send comes first. */
static int by_place(const void *pa, const void *pb)
{
	const struct message_end *a = pa, *b = pb;
	pl_ns x = a->recv ? a->end : a->start, y = b->recv ? b->end : b->start;

	if (a->member != b->member)
		return a->member < b->member ? -1 : 1;
	if (a->channel != b->channel)
		return a->channel < b->channel ? -1 : 1;
	if (a->recv != b->recv)
		return a->recv ? -1 : 1;
	if (x != y)
		return x < y ? -1 : 1;
	return by_end(a, b);
}

/* Had the receive ended when the send began? Two messages of no duration at one instant have no
 * order. */
static bool before(const struct message_end *recv, const struct message_end *send)
{
	return recv->end <= send->start && (recv->start < send->start || recv->end < send->end);
}

/* The last receive of recv[0 .. n) that is before() the send; NULL: none. The array has the order
 * of by_place() or by_chunk(). */
static const struct message_end *latest(const struct message_end *recv, size_t n,
					const struct message_end *send)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, n, before(&recv[i], send));
	return i ? &recv[i - 1] : NULL;
}

static int by_chunk(const void *pa, const void *pb)
{
	const struct message_end *a = pa, *b = pb;
	int c = PL_COMPARE_FIELDS(a, b, member, chunk);

	return c ? c : by_end(a, b);
}

static int find_chunks(struct chunks *c, struct pl_err *err)
{
	int rc = pl_alloc(&c->recv, c->n_v + 1, sizeof(*c->recv), err);

	for (size_t i = 0; i < c->n_v && rc >= 0; i++)
		if (c->v[i].recv && c->v[i].chunk >= 0)
			c->recv[c->n_recv++] = c->v[i];
	if (c->n_recv)
		pl_sort(c->recv, c->n_recv, sizeof(*c->recv), by_chunk);
	return rc;
}

/* Index of the first receive of this chunk or a later one. */
static size_t chunk_at(const struct chunks *c, uint32_t member, int64_t chunk)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, c->n_recv,
		       c->recv[i].member < member ||
			       (c->recv[i].member == member && c->recv[i].chunk < chunk));
	return i;
}

/* The receive whose data the send passes on; NULL: none. recv[0 .. n): receives of its channel. */
static const struct message_end *find_received(const struct chunks *c,
					       const struct message_end *recv, size_t n,
					       const struct message_end *send)
{
	size_t from;

	if (send->chunk < 0)
		return latest(recv, n, send);
	from = chunk_at(c, send->member, send->chunk);
	return latest(c->recv + from, chunk_at(c, send->member, send->chunk + 1ll) - from, send);
}

static bool recorded_by_member(const struct chunks *c, const struct message_end *s)
{
	const struct gb *b = c->b;

	return b->ri[b->node[s->node].res].rank_index ==
	       b->ri[b->node[c->m[s->member].arrive].res].rank_index;
}

/* Joins the messages of one channel and direction in order. The order of the ends of receives may
 * differ from the order of their starts. */
static int join_run(struct chunks *c, const struct message_end *v, size_t n, struct pl_err *err)
{
	uint32_t arrive = c->m[v->member].arrive;
	const struct message_end *before = NULL;
	int rc = 0;

	for (size_t i = 0; i < n && rc >= 0; i++) {
		if (!recorded_by_member(c, &v[i]))
			continue; /* the send of another rank: the receive was not recorded */
		if (!before)
			rc = pl_derive_edge(c->b, arrive, v[i].node, PL_E_SEQ, err);
		else if (before->end <= v[i].start)
			rc = pl_derive_edge(c->b, before->node, v[i].node, PL_E_SEQ, err);
		else if (before->start <= v[i].start)
			rc = pl_derive_edge(c->b, before->node, v[i].node, PL_E_START, err);
		else
			rc = pl_derive_edge(c->b, arrive, v[i].node, PL_E_SEQ, err);
		before = &v[i];
	}
	return rc;
}

static size_t end_of_run(const struct chunks *c, size_t i)
{
	size_t k = i;

	while (k < c->n_v && c->v[k].member == c->v[i].member &&
	       c->v[k].channel == c->v[i].channel && c->v[k].recv == c->v[i].recv)
		k++;
	return k;
}

/* The message of the run that ends last leads to the transfer of the member. */
static int join_transfer(struct chunks *c, const struct message_end *v, size_t n,
			 struct pl_err *err)
{
	const struct message_end *last = v;

	for (size_t i = 1; i < n; i++)
		if (v[i].end > last->end)
			last = &v[i];
	return last->end > c->m[v->member].last
		       ? 0
		       : pl_derive_edge(c->b, last->node, c->m[v->member].arrive + 1,
					last->recv ? PL_E_DATA : PL_E_SEQ, err);
}

static int add_dependencies(struct chunks *c, struct pl_err *err)
{
	const struct message_end *recv = NULL;
	size_t n_recv = 0;
	int rc;

	if (c->n_v)
		pl_sort(c->v, c->n_v, sizeof(*c->v), by_place);
	PL_TRY(find_chunks(c, err));
	for (size_t i = 0, k; i < c->n_v; i = k) {
		const struct message_end *v = &c->v[i];

		k = end_of_run(c, i);
		PL_TRY(join_run(c, v, k - i, err));
		if (c->m[v->member].any)
			PL_TRY(join_transfer(c, v, k - i, err));
		if (v->recv) {
			recv = v;
			n_recv = k - i;
			continue;
		}
		if (recv && (recv->member != v->member || recv->channel != v->channel))
			n_recv = 0;
		for (size_t s = i; s < k; s++) {
			const struct message_end *from = find_received(c, recv, n_recv, &c->v[s]);

			if (from)
				PL_TRY(pl_derive_edge(c->b, from->node, c->v[s].node,
						      PL_E_DATA | PL_E_INFERRED, err));
		}
	}
out:
	return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int set_transfers(struct chunks *c, uint32_t meet, struct pl_err *err)
{
	struct gb *b = c->b;
	int rc = 0;

	for (uint32_t i = 0; i < c->n && rc >= 0; i++) {
		const struct member *m = &c->m[i];
		pl_ns from = m->any ? m->last : pl_min_i64(b->node[meet].start, m->end);

		b->node[m->arrive + 1].start = from;
		b->node[m->arrive + 1].dur = m->end - from;
		b->node[m->arrive].flags &= (uint8_t)~PL_NF_MISSING;
		b->node[m->arrive + 1].flags &= (uint8_t)~PL_NF_MISSING;
		rc = pl_derive_edge(b, m->arrive, meet, PL_E_COMM, err);
		if (rc >= 0 && !m->any && m->end >= b->node[meet].start)
			rc = pl_derive_edge(b, meet, m->arrive + 1, PL_E_COMM, err);
	}
	return rc;
}

int pl_derive_chunks(struct gb *b, uint32_t match, uint32_t meet, struct pl_err *err)
{
	struct chunks c = { .b = b };
	uint32_t n = pl_derive_messages(b, match);
	int rc;

	PL_TRY(find_members(&c, &b->t->merge.match[match], err));
	for (uint32_t i = 1; i <= n; i++)
		PL_TRY(add_message(&c, &b->t->merge.match[match + i], err));
	PL_TRY(set_transfers(&c, meet, err));
	rc = add_dependencies(&c, err);
out:
	pl_free(c.m);
	pl_free(c.v);
	pl_free(c.recv);
	return rc;
}
