/*
 * edit_messages.h - collectives with messages.
 *
 * In a graph such a collective has
 *
 * - an arrival of each member,
 * - a rendezvous without successors, which marks the nodes as one collective,
 * - messages: nodes with PL_NF_MESSAGE and role transfer, of kind send or recv, and
 * - a transfer of each member, which follows its arrival and its last messages and lasts for the
 *   rest of the collective.
 *
 * A member continues as soon as its own messages allow it; it does not wait for all arrivals.
 */
#ifndef PL_EDIT_MESSAGES_H
#define PL_EDIT_MESSAGES_H

#include "graph/edit.h"

bool pl_graph_has_messages(const struct pl_graph *g);
/* Add a link named "channel C" for each rank of the graph and each channel. (*link)[i * channels +
 * c] is the link of the i-th rank and channel c; the caller frees *link with pl_free(). */
int pl_graph_add_links(struct pl_graph *g, uint32_t channels, uint32_t **link,
		       struct pl_err *err) PL_MUST;
/* Replace the messages of collectives in a settled edit by one transfer for each member, from the
 * last arrival to the member's end. Settles the edit. *n (may be NULL): how many collectives. */
int pl_edit_fold_messages(struct pl_edit *e, uint64_t *n, struct pl_err *err) PL_MUST;

#endif
