/*
 * expand.h - a collective as its sends and receives, in place of one transfer a member.
 *
 * On an edit, the transfers of a rendezvous become messages: nodes of type DELAY, one a message,
 * named "send R>Q" after the members' places in the group. Messages of one link follow one another
 * (SEQ), what is received is passed on (DATA, after the link's latency), and each member starts at
 * its own arrival and not at the last one's: where members arrive at different times the last to
 * end ends no earlier than if all had waited, but the others get on with what does not need the
 * late one. Folding back is pl_edit_undo().
 */
#ifndef PL_COST_EXPAND_H
#define PL_COST_EXPAND_H

#include "cost/cost.h"

struct pl_expand {
	const struct pl_topology *topo; /* member i of the group is its rank i */
	struct pl_comm comm; /* algo, coll and bytes count; bytes -1: those of the rendezvous */
	uint32_t channels;   /* that share each link equally; 0: 1 */
	uint32_t chunks; /* a channel's data passes in so many pieces, one after the other; 0: as
			  * analysis has it: whole (ring, halving-doubling), as fine as can be
			  * (tree: passed on while it arrives) */
};
/*
 * Ring (all-reduce, reduce-scatter, all-gather), tree and halving-doubling (all-reduce). With equal
 * links, arrivals at one time and chunks 0, the last member ends after pl_cost_analytic() to the
 * nanosecond, whatever the number of channels. Nodes: channels x chunks x steps x members. Not
 * settled. PL_EABSENT for other algorithms and collectives, and for halving-doubling of a number
 * that is no power of two; PL_EDATA when the node is no rendezvous with an arrival and a transfer
 * of each member, its size is not known, or the topology has fewer ranks. After a failure undo to a
 * mark.
 */
int pl_cost_expand(struct pl_edit *e, uint32_t rendezvous, const struct pl_expand *x,
		   struct pl_err *err) PL_MUST;

#endif
