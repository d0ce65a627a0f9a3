/*
 * Collectives whose messages were recorded: these, as measured, in place of one transfer a member.
 *
 * A message is two nodes, what the sender and what the receiver spent on it, each on a resource of
 * its rank and channel. The receiver's begins when the sender's has ended (before, it waited),
 * or right after it began, where the sender took longer. What a message waited for is not recorded;
 * on each rank and channel it is taken to be
 *
 *   the message before it in the same direction (its end, or its start where the two overlap), and
 *   the collective's arrival for the first;
 *   for what is sent, the latest that was received and had come when it began: of the same chunk,
 *   on whatever channel, where chunks are recorded (a chunk that did not come is the rank's own:
 *   its sending waits for nobody), else the latest of the channel.
 *
 * A member's transfer is what is left of its collective after its last messages. A member without
 * messages waits for the last arrival and transfers from there. Edges that the recorded times
 * contradict are left out, so a replay reproduces them. Along those that are left neither starts
 * nor ends decrease, and from a reception to what passes it on one of them increases: there is no
 * cycle. O(n log n) in messages.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

struct member {
	int32_t rank;
	uint32_t arrive;
	pl_ns end; /* of the collective there */
	bool any;  /* it has messages */
	pl_ns last;
};
struct side { /* of a message */
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
	struct side *v;
	size_t n_v, cap_v;
	struct side *recv; /* those of v that have a chunk, by member and chunk, then by end */
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

/* The resource of a rank's channel. */
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

/* One side, unless it is of no member. `sent`: of what it receives. */
static int add_side(struct chunks *c, const struct pl_member *x, bool recv, const struct side *sent,
		    struct side **out, struct pl_err *err)
{
	struct gb *b = c->b;
	const struct pl_events *e = b->t->seg[x->segment];
	const struct pl_track *track = &e->seg.track[e->track[x->event]];
	const struct pl_clock *clock = b->clock[x->segment][e->track[x->event]];
	pl_ns start = pl_add_sat(e->ts[x->event], e->seg.base_ns);
	pl_ns low, end = pl_trace_clock_apply(clock,
					      pl_add_sat(start, pl_max_i64(0, e->dur[x->event])));
	struct op op = { .seg = x->segment, .ev = x->event };
	struct side s = { .member = member_of(c, track->rank < 0 ? 0 : track->rank), .recv = recv };
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

/* A send and its receive; or what was sent is there when it has been, if nothing says when. */
static int add_message(struct chunks *c, const struct pl_match *m, struct pl_err *err)
{
	const struct pl_member *x = &c->b->t->merge.member[m->first];
	struct side *s, sent;
	int rc;

	if (!m->n || (rc = add_side(c, x, false, NULL, &s, err)) < 0 || !s)
		return m->n ? rc : 0;
	sent = *s;
	if (m->n > 1) {
		if ((rc = add_side(c, x + 1, true, &sent, &s, err)) < 0 || !s)
			return rc;
		if (sent.end <= s->start)
			return pl_derive_edge(c->b, sent.node, s->node, PL_E_DATA, err);
		return sent.start >= s->start
			       ? 0
			       : pl_derive_edge(c->b, sent.node, s->node, PL_E_START, err);
	}
	/* it is there when it has been sent */
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

/* ---- what they waited for -------------------------------------------------------------------- */

static int by_end(const struct side *a, const struct side *b)
{
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	return a->node < b->node ? -1 : a->node > b->node;
}

/* By member, channel and direction; sends by start, receptions by end, then by start: so that what
 * is before() something comes first. */
static int by_place(const void *pa, const void *pb)
{
	const struct side *a = pa, *b = pb;
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

/* At one instant neither is first. */
static bool before(const struct side *recv, const struct side *send)
{
	return recv->end <= send->start && (recv->start < send->start || recv->end < send->end);
}

/* The last of recv[0 .. n), in an order in which what is before() it comes first; NULL: none. */
static const struct side *latest(const struct side *recv, size_t n, const struct side *send)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, n, before(&recv[i], send));
	return i ? &recv[i - 1] : NULL;
}

static int by_chunk(const void *pa, const void *pb)
{
	const struct side *a = pa, *b = pb;
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

/* Where receptions of the member's chunk begin, or those of the next one. */
static size_t chunk_at(const struct chunks *c, uint32_t member, int64_t chunk)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, c->n_recv,
		       c->recv[i].member < member ||
			       (c->recv[i].member == member && c->recv[i].chunk < chunk));
	return i;
}

/* The reception that a send passes on; recv[0 .. n): those of its channel. NULL: none had come. */
static const struct side *passes_on(const struct chunks *c, const struct side *recv, size_t n,
				    const struct side *send)
{
	size_t from;

	if (send->chunk < 0)
		return latest(recv, n, send);
	from = chunk_at(c, send->member, send->chunk);
	return latest(c->recv + from, chunk_at(c, send->member, send->chunk + 1ll) - from, send);
}

static bool own(const struct chunks *c, const struct side *s)
{
	const struct gb *b = c->b;

	return b->ri[b->node[s->node].res].rank_index ==
	       b->ri[b->node[c->m[s->member].arrive].res].rank_index;
}

/* One after the other; of receptions the order of ends is not always that of starts. */
static int chain(struct chunks *c, const struct side *v, size_t n, struct pl_err *err)
{
	uint32_t arrive = c->m[v->member].arrive;
	const struct side *before = NULL;
	int rc = 0;

	for (size_t i = 0; i < n && rc >= 0; i++) {
		if (!own(c, &v[i]))
			continue; /* a send of another's, known by its peer alone */
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

static size_t run_of(const struct chunks *c, size_t i)
{
	size_t k = i;

	while (k < c->n_v && c->v[k].member == c->v[i].member &&
	       c->v[k].channel == c->v[i].channel && c->v[k].recv == c->v[i].recv)
		k++;
	return k;
}

/* The last to end of a run leads to the member's transfer. */
static int close_run(struct chunks *c, const struct side *v, size_t n, struct pl_err *err)
{
	const struct side *last = v;

	for (size_t i = 1; i < n; i++)
		if (v[i].end > last->end)
			last = &v[i];
	return last->end > c->m[v->member].last
		       ? 0
		       : pl_derive_edge(c->b, last->node, c->m[v->member].arrive + 1,
					last->recv ? PL_E_DATA : PL_E_SEQ, err);
}

static int join(struct chunks *c, struct pl_err *err)
{
	const struct side *recv = NULL;
	size_t n_recv = 0;
	int rc;

	if (c->n_v)
		pl_sort(c->v, c->n_v, sizeof(*c->v), by_place);
	PL_TRY(find_chunks(c, err));
	for (size_t i = 0, k; i < c->n_v; i = k) {
		const struct side *v = &c->v[i];

		k = run_of(c, i);
		PL_TRY(chain(c, v, k - i, err));
		if (c->m[v->member].any)
			PL_TRY(close_run(c, v, k - i, err));
		if (v->recv) {
			recv = v;
			n_recv = k - i;
			continue;
		}
		if (recv && (recv->member != v->member || recv->channel != v->channel))
			n_recv = 0;
		for (size_t s = i; s < k; s++) {
			const struct side *from = passes_on(c, recv, n_recv, &c->v[s]);

			if (from)
				PL_TRY(pl_derive_edge(c->b, from->node, c->v[s].node,
						      PL_E_DATA | PL_E_INFERRED, err));
		}
	}
out:
	return rc;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int end_members(struct chunks *c, uint32_t meet, struct pl_err *err)
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
	PL_TRY(end_members(&c, meet, err));
	rc = join(&c, err);
out:
	pl_free(c.m);
	pl_free(c.v);
	pl_free(c.recv);
	return rc;
}
