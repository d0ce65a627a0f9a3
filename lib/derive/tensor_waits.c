/*
 * Finds the first wait for each communication that may carry gradients, and the operation that
 * issued it, in two passes over the edges of the builder.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/tensors.h"

void pl_derive_grads_issuers(struct finder *f)
{
	const struct gb *b = f->b;

	memset(f->issuer, 0xff, b->n_nodes * sizeof(*f->issuer));
	for (size_t i = 0; i < b->n_edges; i++) {
		unsigned type = PL_E_TYPE(b->edge[i].type);

		if (type == PL_E_LAUNCH || type == PL_E_EARLY)
			f->issuer[b->edge[i].dst] = b->edge[i].src;
	}
}

PL_COMPARATOR(by_node, struct transfer, node);

void pl_derive_grads_transfers(struct finder *f)
{
	const struct gb *b = f->b;
	size_t cap = 0;

	for (size_t r = 0; r < b->n_ranks; r++)
		for (size_t c = 0; c < b->grads->rank[r].n_comms; c++) {
			struct comm *x = &b->grads->rank[r].comm[c];

			PL_DERIVE_ADD(b->err, f->transfer, f->n_transfers, cap,
				      (struct transfer){ x->arrive + 1, x });
		}
	pl_sort(f->transfer, f->n_transfers, sizeof(*f->transfer), by_node);
}

struct comm *pl_derive_grads_comm(const struct finder *f, uint32_t node)
{
	const struct transfer *v = f->transfer;
	size_t i = 0;

	if (f->b->node[node].role != PL_RO_TRANSFER)
		return NULL;
	PL_LOWER_BOUND(i, f->n_transfers, v[i].node < node);
	return i < f->n_transfers && v[i].node == node ? v[i].comm : NULL;
}

/* The first wait for the result of each communication. */
void pl_derive_grads_waits(struct finder *f)
{
	const struct gb *b = f->b;
	struct edge e;

	for (size_t at = 0; f->n_transfers && pl_derive_next_edge(b, &at, &e);) {
		struct comm *x = pl_derive_grads_comm(f, e.src);

		if (x && !grads_is_comm(&b->node[e.dst]))
			x->await = pl_min_i64(x->await, grads_host_time(f, e.dst));
	}
}
