/*
 * expand.h - replace the transfers of a collective by its messages (sends and receives).
 *
 * On an edit, the transfers of a rendezvous become messages. A message is a node of kind send with
 * the name "send R>Q"; R and Q are the places of the members in the group. Messages of one link
 * follow one another (SEQ). A member passes on the data that it received (DATA, after the latency
 * of the link). Each member starts at its own arrival, not at the last arrival. If members arrive
 * at different times, the last member ends no earlier than if all had waited. But the other members
 * can already do work that does not need the late member. The rendezvous stays, and nothing waits
 * for it; it shows that the messages are one collective. pl_edit_undo() or pl_edit_fold_messages()
 * folds the messages back.
 */
#ifndef PL_COST_EXPAND_H
#define PL_COST_EXPAND_H

#include "cost/cost.h"

struct pl_expand {
	const struct pl_topology *topo; /* member i of the group is its rank i */
	struct pl_cost_comm comm; /* algo, coll, servers and bytes count; bytes -1: those of the
				   * rendezvous */
	uint32_t channels;	  /* that share each link equally; 0: 1 */
	uint32_t chunks; /* a channel's data passes in so many pieces, one after the other; 0: as
			  * analysis has it: whole (where members take turns), as fine as can be
			  * (trees, chains, servers: passed on while it arrives) */
	const uint32_t *res; /* [member * channels + channel]: resource of the graph on which what
			      * the member sends lies (messages are then operations on it); NULL:
			      * on none (delays). With it latencies are nodes too: nothing
			      * is left that a replay of the edit could not explain */
	double stretch; /* all latencies and times of bytes become so many times as long; 0: 1 */
};
/*
 * Ring: all-reduce, reduce-scatter, all-gather, and broadcast and reduce down and up a chain. Tree:
 * all these, and gather, scatter and barrier whatever the algorithm. Halving-doubling: all-reduce
 * and its halves; for numbers of members that are no power of two over circulant distances.
 * Hierarchical and ps (servers that are no members, each on a link of its own): the same.
 * All-to-all exchanges in pairs, inside the host first, whatever the algorithm. The root, where
 * there is one, is member 0: traces do not say.
 *
 * With arrivals at one time and chunks 0, the last member ends after pl_cost_analytic() to the
 * nanosecond, whatever the number of channels: for ring, tree, chain and halving-doubling with
 * equal links that are not shared; for halving-doubling of powers of two, hierarchical, all-to-all
 * and ps also with different or shared links, if all hosts have equally many members (and, for
 * halving-doubling, a power of two of them).
 *
 * Nodes: channels x chunks x steps x members. Not settled. PL_EABSENT for other collectives
 * (sends, receives), and for hierarchical over hosts that differ in size; PL_EDATA when the node is
 * no rendezvous with an arrival and a transfer of each member, its size is not known, or the
 * topology has fewer ranks. After a failure undo to a mark.
 */
int pl_cost_expand(struct pl_edit *e, uint32_t rendezvous, const struct pl_expand *x,
		   struct pl_err *err) PL_MUST;

struct pl_expand_all {
	const struct pl_topology *topo; /* its rank i is the i-th of the graph's ranks */
	uint8_t algo;
	uint32_t servers, channels, chunks;
	/* If all members arrive at once, the messages together take as long as the transfer of the
	 * edit, times the modelled ratio of the algorithm to the one that the edit says (a ring
	 * where it says none). False: they take the time of the links. */
	bool recorded;
	/* Where communications share the link, the time of a transfer has waits for the others.
	 * With another algorithm these waits are others, and messages wait by themselves. Then a
	 * transfer takes the time that the fit of this cost has for it alone, if that is shorter.
	 * NULL: nothing is known to share a link. */
	const struct pl_cost *cost;
	uint32_t was_servers; /* where the edit says ps; 0: 1 */
	const uint32_t *link; /* [rank * channels + channel]: resources, by pl_graph_add_links();
			       * NULL */
};
struct pl_expanded {
	uint64_t collectives, messages;
	uint64_t left; /* as they were: of unknown size, in part unmatched, without messages */
};
/* Every collective of the settled edit. The hosts of a group are those of its members. Settles. */
int pl_cost_expand_all(struct pl_edit *e, const struct pl_expand_all *x, struct pl_expanded *n,
		       struct pl_err *err) PL_MUST;

#endif
