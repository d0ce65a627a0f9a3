/*
 * Messages of several collectives on one link.
 *
 * Collectives that overlap share their channels: what one sends waits for what the other one put
 * there before. So the messages of one link, direction and peer are put in one order, by start, and
 * where two neighbours are of different collectives the later one follows the earlier one, from its
 * end, or from its start where they overlap (messages.c has done so within a collective). Such
 * edges are inferred, by which they are told from those within a collective. There is one only
 * where time passes from the one to the other, so there is no cycle. O(n log n) in messages.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

static int by_link(const void *pa, const void *pb)
{
	const struct gb_message *a = pa, *b = pb;

	if (a->res != b->res)
		return a->res < b->res ? -1 : 1;
	if (a->recv != b->recv)
		return a->recv ? -1 : 1;
	if (a->peer != b->peer)
		return a->peer < b->peer ? -1 : 1;
	if (a->start != b->start)
		return a->start < b->start ? -1 : 1;
	if (a->end != b->end)
		return a->end < b->end ? -1 : 1;
	return a->node < b->node ? -1 : a->node > b->node;
}

static int follow(struct gb *b, const struct gb_message *x, const struct gb_message *y,
		  struct pl_err *err)
{
	if (x->end <= y->start && (x->start < y->start || x->end < y->end))
		return gb_edge(b, x->node, y->node, PL_E_SEQ | PL_E_INFERRED, err);
	return x->start < y->start ? gb_edge(b, x->node, y->node, PL_E_START | PL_E_INFERRED, err)
				   : 0;
}

int gb_message_order(struct gb *b, struct pl_err *err)
{
	struct gb_message *v = b->message;
	int rc = 0;

	if (b->n_messages)
		pl_sort(v, b->n_messages, sizeof(*v), by_link);
	for (size_t i = 1; i < b->n_messages && rc >= 0; i++)
		if (v[i].res == v[i - 1].res && v[i].recv == v[i - 1].recv &&
		    v[i].peer == v[i - 1].peer && v[i].arrive != v[i - 1].arrive)
			rc = follow(b, &v[i - 1], &v[i], err);
	pl_free(b->message);
	b->message = NULL;
	b->n_messages = b->cap_messages = 0;
	return rc;
}
