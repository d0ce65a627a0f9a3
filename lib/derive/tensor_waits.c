/*
 * Finds the first wait for each communication that may carry gradients, and the operation that
 * issued it, in two passes over the edges of the builder.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/tensors.h"

int pl_derive_grads_issuers(struct finder *f, struct pl_err *err)
{
	const struct gb *b = f->b;
	int rc = pl_derive_room(&f->issuer, b->n_nodes, sizeof(*f->issuer), err);

	if (rc < 0)
		return rc;
	memset(f->issuer, 0xff, b->n_nodes * sizeof(*f->issuer));
	for (size_t i = 0; i < b->n_edges; i++) {
		unsigned type = PL_E_TYPE(b->edge[i].type);

		if (type == PL_E_LAUNCH || type == PL_E_EARLY)
			f->issuer[b->edge[i].dst] = b->edge[i].src;
	}
	return 0;
}

PL_COMPARATOR(by_node, struct transfer, node);

/* One bit for each node limits the search to the nodes that matter. */
int pl_derive_grads_transfers(struct finder *f, struct pl_err *err)
{
	const struct gb *b = f->b;
	size_t n = 0;
	int rc;

	for (size_t r = 0; r < b->n_ranks; r++)
		n += b->grads->rank[r].n_comms;
	PL_TRY(pl_alloc(&f->transfer, n, sizeof(*f->transfer), err));
	PL_TRY(pl_alloc(&f->is_transfer, b->n_nodes / 64 + 1, sizeof(*f->is_transfer), err));
	for (size_t r = 0; r < b->n_ranks; r++)
		for (size_t c = 0; c < b->grads->rank[r].n_comms; c++) {
			struct comm *x = &b->grads->rank[r].comm[c];
			uint32_t node = x->arrive + 1;

			f->transfer[f->n_transfers++] = (struct transfer){ node, x };
			f->is_transfer[node / 64] |= 1ull << node % 64;
		}
	pl_sort(f->transfer, n, sizeof(*f->transfer), by_node);
out:
	return rc;
}

struct comm *pl_derive_grads_comm(const struct finder *f, uint32_t node)
{
	size_t i = 0;

	if (!(f->is_transfer[node / 64] >> node % 64 & 1))
		return NULL;
	PL_LOWER_BOUND(i, f->n_transfers, f->transfer[i].node < node);
	return f->transfer[i].comm;
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
