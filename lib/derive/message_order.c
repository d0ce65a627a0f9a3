/*
 * Messages that share a link: of several collectives, and of several channels.
 *
 * Collectives that overlap share their channels: a message of one waits for earlier messages of the
 * other. So the messages of one channel, direction and peer are ordered by start. If two neighbours
 * belong to different collectives, the later message follows the end of the earlier one, or its
 * start if the two overlap. (messages.c adds these edges within a collective.)
 *
 * Channels may share a link by turns. They do if the messages from a rank to a peer hardly ever
 * overlap on two channels (SERIAL); then all messages to this peer are in one order. If a rank has
 * several peers, the same test is made for all messages that it sends.
 *
 * One thread of a rank takes what arrives, in an order that its algorithm may fix: ranks add in the
 * same order. A receive that begins although its data came earlier waited for that thread, so it
 * follows the receive that ended last. Its data came when the send had ended and the shortest time
 * between a send and a receive of these two ranks had passed.
 *
 * Such edges are marked as inferred; edges within a collective are not. An edge is added only if
 * time passes from the first message to the second, so there is no cycle. O(n log n) in messages.
 */
#include "derive/internal.h"

#define SERIAL 0.001 /* largest share of the sending time in which several messages overlap */

PL_COMPARATOR(by_time, struct pl_derive_message, start, end, node);
PL_COMPARATOR(by_channel, struct pl_derive_message, res, start, end, node);

/* Direction, rank, peer; then by time. */
PL_COMPARATOR_FALLING(by_pair, struct pl_derive_message, recv, rank, peer, start, end, node);

static void follow(struct builder *b, const struct pl_derive_message *x,
		   const struct pl_derive_message *y)
{
	if (x->res == y->res && x->arrive == y->arrive)
		return;
	if (x->end <= y->start && (x->start < y->start || x->end < y->end))
		pl_derive_edge(b, x->node, y->node, PL_E_SEQ | PL_E_INFERRED);
	else if (x->start < y->start)
		pl_derive_edge(b, x->node, y->node, PL_E_START | PL_E_INFERRED);
}

/* v: messages from a rank to a peer, by time. */
static bool is_serial(const struct pl_derive_message *v, size_t n)
{
	pl_ns end = v->end;
	double busy = 0, twice = 0;

	for (size_t i = 0; i < n; i++) {
		busy += (double)(v[i].end - v[i].start);
		if (i && v[i].start < end)
			twice += (double)(pl_min_i64(v[i].end, end) - v[i].start);
		end = pl_max_i64(end, v[i].end);
	}
	return twice <= SERIAL * busy;
}

/* Messages of a pair and direction, by time. */
static void order(struct builder *b, struct pl_derive_message *v, size_t n)
{
	bool serial = !v->recv && is_serial(v, n);

	if (!serial)
		pl_sort(v, n, sizeof(*v), by_channel);
	for (size_t i = 1; i < n; i++)
		if (serial || v[i].res == v[i - 1].res)
			follow(b, &v[i - 1], &v[i]);
}

/* All that a rank sends: neighbours to different peers, if it shared a link. */
static void order_rank(struct builder *b, struct pl_derive_message *v, size_t n)
{
	bool several = false;

	for (size_t i = 1; i < n; i++)
		several |= v[i].peer != v[0].peer;
	if (!several)
		return;
	pl_sort(v, n, sizeof(*v), by_time);
	if (!is_serial(v, n))
		return;
	for (size_t i = 1; i < n; i++)
		if (v[i].peer != v[i - 1].peer)
			follow(b, &v[i - 1], &v[i]);
}

/* v: receives of a rank from a peer. `sent` becomes the time at which the data was there. */
static void find_arrivals(struct pl_derive_message *v, size_t n)
{
	pl_ns flight = INT64_MAX;

	for (size_t i = 0; i < n; i++)
		if (v[i].sent <= v[i].start)
			flight = pl_min_i64(flight, v[i].start - v[i].sent);
	for (size_t i = 0; i < n; i++)
		v[i].sent = pl_add_sat(v[i].sent, flight);
}

/* v: all receives of a rank. */
static void order_receives(struct builder *b, struct pl_derive_message *v, size_t n)
{
	const struct pl_derive_message *last = NULL;

	pl_sort(v, n, sizeof(*v), by_time);
	for (size_t i = 0; i < n; i++) {
		if (last && last->end <= v[i].start && last->end > v[i].sent)
			follow(b, last, &v[i]);
		if (!last || v[i].end >= last->end)
			last = &v[i];
	}
}

void pl_derive_message_order(struct builder *b)
{
	struct pl_derive_message *v = b->message;
	size_t n = b->n_messages;

	pl_sort(v, n, sizeof(*v), by_pair);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i; k < n && v[k].recv == v[i].recv && v[k].rank == v[i].rank &&
			    v[k].peer == v[i].peer;
		     k++)
			;
		if (v[i].recv)
			find_arrivals(v + i, k - i);
		order(b, v + i, k - i);
	}
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i; k < n && v[k].recv == v[i].recv && v[k].rank == v[i].rank; k++)
			;
		if (v[i].recv)
			order_receives(b, v + i, k - i);
		else
			order_rank(b, v + i, k - i);
	}
	pl_free(b->message);
	b->message = NULL;
	b->n_messages = b->cap_messages = 0;
}
