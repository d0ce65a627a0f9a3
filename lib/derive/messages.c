/*
 * Collectives with recorded messages: these, as measured, replace the one transfer of each member.
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
#include "derive/internal.h"

struct member {
	int32_t rank;
	uint32_t arrive;
	pl_ns end;  /* of the collective there */
	bool any;   /* the member has messages */
	pl_ns last; /* end of its last message */
};
struct chunks {
	struct builder *b;
	struct member *m;
	uint32_t n;
	struct pl_derive_message *v;
	size_t n_v, cap_v;
	struct pl_derive_message *recv; /* receives of v with a chunk, by member, chunk and end */
	size_t n_recv;
};

uint32_t pl_derive_messages(const struct builder *b, uint32_t match)
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

static void find_members(struct chunks *c, const struct pl_match *m)
{
	struct builder *b = c->b;

	if (pl_alloc(&c->m, m->n + 1u, sizeof(*c->m), b->err) < 0)
		return;
	for (uint32_t i = 0; i < m->n; i++) {
		uint32_t a = pl_derive_arrival(b, &b->t->merge.member[m->first + i]);

		if (a == PL_NONE)
			continue;
		b->node[a].group = b->node[a + 1].group = m->group;
		c->m[c->n++] = (struct member){ .rank = b->g->res[b->node[a].res].rank,
						.arrive = a,
						.end = pl_derive_end(b, a + 1) };
	}
	pl_sort(c->m, c->n, sizeof(*c->m), by_rank);
}

static uint32_t member_of(const struct chunks *c, int64_t rank)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, c->n, c->m[i].rank < rank);
	return i < c->n && c->m[i].rank == rank ? i : PL_NONE;
}

/* ---- messages -------------------------------------------------------------------------------- */

/* The resource of a channel of the member's rank, which is added if it is new. */
static uint32_t link_of(struct builder *b, const struct member *m, uint32_t channel)
{
	uint32_t like = b->node[m->arrive].res, index = b->resource[like].rank_index, res;
	struct pl_resource r = b->g->res[like];
	uint64_t key[2] = { index, channel };
	pl_id id = pl_derive_intern(b->err, &b->link_key, key, sizeof(key));
	char name[40];

	if (id < b->n_link)
		return b->link[id];
	snprintf(name, sizeof(name), "channel %u", channel);
	r.name = pl_derive_intern_text(b->err, &b->g->str, name);
	r.track_type = PL_T_LINK;
	res = pl_derive_resource(b, &r, index);
	if (res == PL_NONE)
		return like;
	PL_DERIVE_ADD(b->err, b->link, b->n_link, b->cap_link, res);
	return res;
}

static void add_end(struct chunks *c, const struct pl_derive_message *x)
{
	struct member *m = &c->m[x->member];

	m->last = m->any ? pl_max_i64(m->last, x->end) : x->end;
	m->any = true;
	PL_DERIVE_ADD(c->b->err, c->v, c->n_v, c->cap_v, *x);
}

/* Adds a send or a receive. False: its rank is no member. `sent`: the send of a receive. */
static bool add_message_end(struct chunks *c, const struct pl_member *x, bool recv,
			    const struct pl_derive_message *sent, struct pl_derive_message *out)
{
	struct builder *b = c->b;
	const struct pl_events *e = b->t->seg[x->segment];
	const struct pl_track *track = &e->seg.track[e->track[x->event]];
	const struct pl_clock *clock = b->seg[x->segment].clock[e->track[x->event]];
	pl_ns start = pl_add_sat(e->ts[x->event], e->seg.base_ns);
	pl_ns low, end = pl_trace_clock_apply(clock,
					      pl_add_sat(start, pl_max_i64(0, e->dur[x->event])));
	struct op op = { .seg = x->segment, .ev = x->event };
	struct pl_derive_message s = { .member = member_of(c, track->rank < 0 ? 0 : track->rank),
				       .peer = pl_derive_value(e->peer, x->event, -1),
				       .recv = recv,
				       .sent = sent ? sent->end : INT64_MAX };
	int64_t channel = pl_derive_value(e->channel, x->event, 0);
	const struct member *m;
	struct node n;

	if (s.member == PL_NONE || channel < 0 || channel >= UINT32_MAX)
		return false;
	m = &c->m[s.member];
	s.arrive = m->arrive;
	s.channel = (uint32_t)channel;
	s.chunk = (int32_t)pl_max_i64(
		-1, pl_min_i64(pl_derive_value(e->chunk, x->event, -1), INT32_MAX));
	low = b->node[m->arrive].start;
	s.end = op.end = pl_max_i64(low, pl_min_i64(end, m->end));
	if (sent)
		low = pl_max_i64(low, sent->end <= s.end ? sent->end : sent->start + 1);
	start = pl_max_i64(pl_trace_clock_apply(clock, start), low);
	s.start = op.start = pl_min_i64(start, s.end);
	s.res = link_of(b, m, s.channel);
	s.rank = b->resource[s.res].rank_index;
	n = pl_derive_node_of(b, &op, s.res, true);
	n.role = PL_RO_TRANSFER;
	n.flags = PL_NF_MESSAGE;
	n.group = b->node[m->arrive].group;
	s.node = pl_derive_node(b, &n);
	add_end(c, &s);
	*out = s;
	return true;
}

/* Adds a send and its receive. If that was not recorded, data arrives at the end of the send. */
static void add_message(struct chunks *c, const struct pl_match *m)
{
	const struct pl_member *x = &c->b->t->merge.member[m->first];
	struct pl_derive_message sent, recv;

	if (!m->n || !add_message_end(c, x, false, NULL, &sent))
		return;
	if (m->n == 1) {
		sent.member =
			member_of(c, pl_derive_value(c->b->t->seg[x->segment]->peer, x->event, -1));
		sent.recv = true;
		sent.arrive = PL_NONE;
		if (sent.member != PL_NONE && sent.end <= c->m[sent.member].end)
			add_end(c, &sent);
	} else if (add_message_end(c, x + 1, true, &sent, &recv)) {
		if (sent.end <= recv.start)
			pl_derive_edge(c->b, sent.node, recv.node, PL_E_DATA);
		else if (sent.start < recv.start)
			pl_derive_edge(c->b, sent.node, recv.node, PL_E_START);
	}
}

/* ---- dependencies of messages ---------------------------------------------------------------- */

/* By member, channel and direction; then sends by start, and receives by end and start. With this
 * order, a receive that is before() a send comes first. */
static int by_place(const void *pa, const void *pb)
{
	const struct pl_derive_message *a = pa, *b = pb;
	int c = PL_COMPARE_FIELDS(a, b, member, channel);

	if (!c)
		c = PL_COMPARE(b->recv, a->recv);
	if (!c && !a->recv)
		c = PL_COMPARE(a->start, b->start);
	return c ? c : PL_COMPARE_FIELDS(a, b, end, start, node);
}

/* Had the receive ended when the send began? Messages of duration 0 at one time have no order. */
static bool before(const struct pl_derive_message *recv, const struct pl_derive_message *send)
{
	return recv->end <= send->start && (recv->start < send->start || recv->end < send->end);
}

/* The last receive of recv[0 .. n) that is before() the send; NULL: none. The array has the order
 * of by_place() or by_chunk(). */
static const struct pl_derive_message *latest(const struct pl_derive_message *recv, size_t n,
					      const struct pl_derive_message *send)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, n, before(&recv[i], send));
	return i ? &recv[i - 1] : NULL;
}

PL_COMPARATOR(by_chunk, struct pl_derive_message, member, chunk, end, start, node);

static void find_chunks(struct chunks *c)
{
	size_t cap = 0;

	for (size_t i = 0; i < c->n_v; i++)
		if (c->v[i].recv && c->v[i].chunk >= 0)
			PL_DERIVE_ADD(c->b->err, c->recv, c->n_recv, cap, c->v[i]);
	pl_sort(c->recv, c->n_recv, sizeof(*c->recv), by_chunk);
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
static const struct pl_derive_message *find_received(const struct chunks *c,
						     const struct pl_derive_message *recv, size_t n,
						     const struct pl_derive_message *send)
{
	size_t from;

	if (send->chunk < 0)
		return latest(recv, n, send);
	from = chunk_at(c, send->member, send->chunk);
	return latest(c->recv + from, chunk_at(c, send->member, send->chunk + 1ll) - from, send);
}

static bool recorded_by_member(const struct chunks *c, const struct pl_derive_message *s)
{
	const struct builder *b = c->b;

	return s->rank == b->resource[b->node[c->m[s->member].arrive].res].rank_index;
}

/* Joins the messages of one channel and direction in order. The order of the ends of receives may
 * differ from the order of their starts. */
static void join_run(struct chunks *c, const struct pl_derive_message *v, size_t n)
{
	uint32_t arrive = c->m[v->member].arrive;
	const struct pl_derive_message *before = NULL;

	for (size_t i = 0; i < n; i++) {
		if (!recorded_by_member(c, &v[i]))
			continue; /* the send of another rank: the receive was not recorded */
		if (!before || before->start > v[i].start)
			pl_derive_edge(c->b, arrive, v[i].node, PL_E_SEQ);
		else
			pl_derive_edge(c->b, before->node, v[i].node,
				       before->end <= v[i].start ? PL_E_SEQ : PL_E_START);
		before = &v[i];
	}
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
static void join_transfer(struct chunks *c, const struct pl_derive_message *v, size_t n)
{
	const struct pl_derive_message *last = v;

	for (size_t i = 1; i < n; i++)
		if (v[i].end > last->end)
			last = &v[i];
	if (last->end <= c->m[v->member].last)
		pl_derive_edge(c->b, last->node, c->m[v->member].arrive + 1,
			       last->recv ? PL_E_DATA : PL_E_SEQ);
}

static void add_dependencies(struct chunks *c)
{
	const struct pl_derive_message *recv = NULL;
	size_t n_recv = 0;

	pl_sort(c->v, c->n_v, sizeof(*c->v), by_place);
	find_chunks(c);
	for (size_t i = 0, k; i < c->n_v; i = k) {
		const struct pl_derive_message *v = &c->v[i];

		k = end_of_run(c, i);
		join_run(c, v, k - i);
		if (c->m[v->member].any)
			join_transfer(c, v, k - i);
		if (v->recv) {
			recv = v;
			n_recv = k - i;
			continue;
		}
		if (recv && (recv->member != v->member || recv->channel != v->channel))
			n_recv = 0;
		for (size_t s = i; s < k; s++) {
			const struct pl_derive_message *from =
				find_received(c, recv, n_recv, &c->v[s]);

			if (from)
				pl_derive_edge(c->b, from->node, c->v[s].node,
					       PL_E_DATA | PL_E_INFERRED);
		}
	}
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void set_transfers(struct chunks *c, uint32_t meet)
{
	struct builder *b = c->b;

	for (uint32_t i = 0; i < c->n; i++) {
		const struct member *m = &c->m[i];
		pl_ns from = m->any ? m->last : pl_min_i64(b->node[meet].start, m->end);

		b->node[m->arrive + 1].start = from;
		b->node[m->arrive + 1].dur = m->end - from;
		b->node[m->arrive].flags &= (uint8_t)~PL_NF_MISSING;
		b->node[m->arrive + 1].flags &= (uint8_t)~PL_NF_MISSING;
		pl_derive_edge(b, m->arrive, meet, PL_E_COMM);
		if (!m->any && m->end >= b->node[meet].start)
			pl_derive_edge(b, meet, m->arrive + 1, PL_E_COMM);
	}
}

void pl_derive_chunks(struct builder *b, uint32_t match, uint32_t meet)
{
	struct chunks c = { .b = b };
	uint32_t n = pl_derive_messages(b, match);

	find_members(&c, &b->t->merge.match[match]);
	for (uint32_t i = 1; i <= n; i++)
		add_message(&c, &b->t->merge.match[match + i]);
	set_transfers(&c, meet);
	add_dependencies(&c);
	for (size_t i = 0; i < c.n_v; i++)
		if (c.v[i].arrive != PL_NONE)
			PL_DERIVE_ADD(b->err, b->message, b->n_messages, b->cap_messages, c.v[i]);
	pl_free(c.m);
	pl_free(c.v);
	pl_free(c.recv);
}
