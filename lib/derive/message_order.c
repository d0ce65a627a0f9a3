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
 * Such edges are marked as inferred; edges within a collective are not. An edge is added only if
 * time passes from the first message to the second, so there is no cycle. O(n log n) in messages.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

#define SERIAL 0.001 /* largest share of the sending time in which several messages overlap */

static int by_time(const struct pl_derive_message *a, const struct pl_derive_message *b)
{
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	return a->node < b->node ? -1 : a->node > b->node;
}

/* Direction, rank, peer; then by time. */
static int by_pair(const void *pa, const void *pb)
{
	const struct pl_derive_message *a = pa, *b = pb;
	int c = PL_COMPARE(b->recv, a->recv);

	if (!c)
		c = PL_COMPARE_FIELDS(a, b, rank, peer);
	return c ? c : by_time(a, b);
}

static int by_channel(const void *pa, const void *pb)
{
	const struct pl_derive_message *a = pa, *b = pb;
	int c = PL_COMPARE(a->res, b->res);

	return c ? c : by_time(a, b);
}

static int follow(struct gb *b, const struct pl_derive_message *x,
		  const struct pl_derive_message *y, struct pl_err *err)
{
	if (x->res == y->res && x->arrive == y->arrive)
		return 0;
	if (x->end <= y->start && (x->start < y->start || x->end < y->end))
		return pl_derive_edge(b, x->node, y->node, PL_E_SEQ | PL_E_INFERRED, err);
	return x->start < y->start
		       ? pl_derive_edge(b, x->node, y->node, PL_E_START | PL_E_INFERRED, err)
		       : 0;
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
static int order(struct gb *b, struct pl_derive_message *v, size_t n, struct pl_err *err)
{
	bool serial = !v->recv && is_serial(v, n);
	int rc = 0;

	if (!serial)
		pl_sort(v, n, sizeof(*v), by_channel);
	for (size_t i = 1; i < n && rc >= 0; i++)
		if (serial || v[i].res == v[i - 1].res)
			rc = follow(b, &v[i - 1], &v[i], err);
	return rc;
}

static int by_start(const void *pa, const void *pb)
{
	return by_time(pa, pb);
}

/* All that a rank sends: neighbours to different peers, if it shared a link. */
static int order_rank(struct gb *b, struct pl_derive_message *v, size_t n, struct pl_err *err)
{
	bool several = false;
	int rc = 0;

	for (size_t i = 1; i < n; i++)
		several |= v[i].peer != v[0].peer;
	if (!several)
		return 0;
	pl_sort(v, n, sizeof(*v), by_start);
	if (!is_serial(v, n))
		return 0;
	for (size_t i = 1; i < n && rc >= 0; i++)
		if (v[i].peer != v[i - 1].peer)
			rc = follow(b, &v[i - 1], &v[i], err);
	return rc;
}

int pl_derive_message_order(struct gb *b, struct pl_err *err)
{
	struct pl_derive_message *v = b->message;
	size_t n = b->n_messages;
	int rc = 0;

	for (size_t i = 0; i < n; i++)
		v[i].rank = b->ri[v[i].res].rank_index;
	if (n)
		pl_sort(v, n, sizeof(*v), by_pair);
	for (size_t i = 0, k; i < n && rc >= 0; i = k) {
		for (k = i; k < n && v[k].recv == v[i].recv && v[k].rank == v[i].rank &&
			    v[k].peer == v[i].peer;
		     k++)
			;
		rc = order(b, v + i, k - i, err);
	}
	for (size_t i = 0, k; i < n && rc >= 0; i = k) {
		for (k = i; k < n && v[k].recv == v[i].recv && v[k].rank == v[i].rank; k++)
			;
		if (!v[i].recv)
			rc = order_rank(b, v + i, k - i, err);
	}
	pl_free(b->message);
	b->message = NULL;
	b->n_messages = b->cap_messages = 0;
	return rc;
}
