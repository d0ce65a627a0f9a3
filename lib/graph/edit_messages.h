/*
 * edit_messages.h - collectives as the messages of which they consist.
 *
 * In a graph such a collective has its arrivals, a rendezvous for which nothing waits (it says that
 * this is one collective, and which), messages (nodes with PL_NF_MESSAGE: what a member sends has
 * kind send, what it receives kind recv, both role transfer), and of each member a transfer that
 * follows its arrival and its last messages, and holds what was left of the collective then. Each
 * member gets on as soon as its own messages let it.
 */
#ifndef PL_EDIT_MESSAGES_H
#define PL_EDIT_MESSAGES_H

#include "graph/edit.h"

bool pl_graph_has_messages(const struct pl_graph *g);
/* A resource for each rank of the graph and channel: a link, "channel C". (*link)[i * channels + c]
 * is that of the i-th rank; pl_free(). */
int pl_graph_add_links(struct pl_graph *g, uint32_t channels, uint32_t **link,
		       struct pl_err *err) PL_MUST;
/* Of the settled edit: messages become one transfer a member again, from the last arrival to where
 * the member ended. Settles; what was recorded stays where it was. *n (may be NULL): collectives.
 */
int pl_edit_fold_messages(struct pl_edit *e, uint64_t *n, struct pl_err *err) PL_MUST;

#endif
