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

struct awaited { /* a communication, by its transfer */
	uint32_t transfer;
	struct comm *comm;
};

PL_COMPARATOR(by_transfer, struct awaited, transfer);

/* Finds the first wait for the result of each communication. One bit for each node limits the
 * search to the edges that matter. */
int pl_derive_grads_waits(struct finder *f, struct pl_err *err)
{
	const struct gb *b = f->b;
	struct awaited *v = NULL;
	uint64_t *bit = NULL;
	size_t n = 0;
	int rc;

	for (size_t r = 0; r < b->n_ranks; r++)
		n += b->grads->rank[r].n_comms;
	PL_TRY(pl_alloc(&v, n, sizeof(*v), err));
	PL_TRY(pl_alloc(&bit, b->n_nodes / 64 + 1, sizeof(*bit), err));
	n = 0;
	for (size_t r = 0; r < b->n_ranks; r++)
		for (size_t c = 0; c < b->grads->rank[r].n_comms; c++) {
			struct comm *x = &b->grads->rank[r].comm[c];

			v[n++] = (struct awaited){ x->arrive + 1, x };
			bit[(x->arrive + 1) / 64] |= 1ull << (x->arrive + 1) % 64;
		}
	pl_sort(v, n, sizeof(*v), by_transfer);
	for (size_t i = 0; n && i < b->n_edges; i++) {
		const struct edge *e = &b->edge[i];
		struct awaited key = { e->src, NULL }, *at;

		if (!(bit[e->src / 64] >> e->src % 64 & 1) || grads_is_comm(&b->node[e->dst]))
			continue;
		at = bsearch(&key, v, n, sizeof(*v), by_transfer);
		at->comm->await = pl_min_i64(at->comm->await, grads_host_time(f, e->dst));
	}
out:
	pl_free(v);
	pl_free(bit);
	return rc;
}
