/*
 * Messages that share a link: of several collectives, and of several channels.
 *
 * Collectives that overlap share their channels: what one sends waits for what the other one put
 * there before. So the messages of one channel, direction and peer are put in one order, by start,
 * and where two neighbours are of different collectives the later one follows the earlier one, from
 * its end, or from its start where they overlap (messages.c has done so within a collective).
 *
 * Channels may share a link in turn. Where what a rank sends to a peer was never under way on two
 * channels at a time, as good as (SERIAL), they did: then all that is sent there is in one order.
 * The same goes for all that a rank sends, to whomever, when it has more than one peer.
 *
 * Such edges are inferred, by which they are told from those within a collective. There is one only
 * where time passes from the one to the other, so there is no cycle. O(n log n) in messages.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

#define SERIAL                                                                                     \
	0.001 /* share of the time of sending in which more than one was under way, at most */

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

/* v: what a rank sends to a peer, by time. */
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
