/* Parts of a graph that several files of this module add: groups and tensors. */
#include "derive/put.h"

uint32_t pl_derive_put_group(struct pl_graph *g, const char *name, uint8_t flags,
			     const uint32_t *rank, uint32_t first, uint32_t n, struct pl_err *err)
{
	const struct pl_ggroup group = { .name = pl_derive_intern_text(err, &g->str, name),
					 .flags = flags,
					 .rank = (uint32_t)g->n_group_ranks,
					 .n = n };

	PL_DERIVE_ADD(err, g->group, g->n_groups, g->cap_groups, group);
	for (uint32_t i = 0; i < n; i++)
		PL_DERIVE_ADD(err, g->group_rank, g->n_group_ranks, g->cap_group_ranks,
			      rank ? rank[i] : first + i);
	return (uint32_t)g->n_groups - 1;
}

void pl_derive_put_tensor(struct pl_graph *g, const struct pl_tensor *t, const uint32_t *consumer,
			  uint32_t n, struct pl_err *err)
{
	struct pl_tensor x = *t;

	x.consumer = (uint32_t)g->n_consumers;
	x.n_consumers = n;
	PL_DERIVE_ADD(err, g->tensor, g->n_tensors, g->cap_tensors, x);
	for (uint32_t i = 0; i < n; i++)
		PL_DERIVE_ADD(err, g->consumer, g->n_consumers, g->cap_consumers, consumer[i]);
}
