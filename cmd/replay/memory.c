/*
 * Memory of ranks, if the graph has activations: the peak of the reported steps, and its parts.
 *
 * Changes (--what-if) alter durations, but hardly which tensors are in memory at the same time. So
 * the peaks are those of the steps as recorded or as planned. One step at a time becomes an edit.
 */
#include "program.h"

bool knows_memory(const struct pl_graph *g)
{
	for (size_t i = 0; i < g->n_tensors; i++)
		if (g->tensor[i].role == PL_TR_ACTIVATION && g->tensor[i].bytes > 0)
			return true;
	return false;
}

static int over_time(void *arg, int32_t rank, pl_ns at, int64_t bytes, struct pl_err *err)
{
	return note_memory(arg, rank, at, bytes, err);
}

int add_memory(const struct pl_edit *e, double share, struct report *r, struct pl_err *err)
{
	static const double bytes[] = { 2, 1, 0 }; /* adam, momentum, sgd */
	struct pl_memory_opts o = { .optimizer_bytes = bytes[r->optimizer],
				    .activation_share = share,
				    .changed = r->memory_over_time ? over_time : NULL,
				    .arg = r };
	struct pl_memory_rank *rank = NULL;
	size_t n;
	int rc;

	PL_TRY(pl_memory_peak(e, &o, &rank, &n, err));
	if (!r->memory)
		PL_TRY(pl_alloc(&r->memory, n, sizeof(*r->memory), err));
	for (size_t i = 0; i < n; i++) {
		struct memory_row *x = &r->memory[i];

		if (r->n_memory && rank[i].peak_bytes <= x->peak.peak_bytes)
			continue;
		x->peak = rank[i];
		x->at[0] = '\0';
		if (rank[i].node != PL_NONE)
			snprintf(x->at, sizeof(x->at), "%s",
				 pl_edit_name(e, e->node[rank[i].node].name));
	}
	r->n_memory = n;
out:
	pl_free(rank);
	return rc;
}

int find_memory(struct report *r, struct pl_err *err)
{
	int rc = 0;

	if (r->n_memory || !knows_memory(&r->g))
		return 0;
	for (size_t k = 0; rc == 0 && k < r->g.n_steps; k++) {
		struct pl_edit e;

		rc = pl_sim_edit(r->s, k, 1, &e, err);
		if (rc < 0)
			break;
		rc = add_memory(&e, 0, r, err);
		pl_edit_fini(&e);
	}
	if (rc != PL_EABSENT) /* nodes that cannot be taken apart: no answer */
		return rc;
	memset(err, 0, sizeof(*err));
	return 0;
}
