/* precision: operations compute in another precision. */
#include "rewrite/rewrite_internal.h"

/* What costs say of kernels is said of units for it, which processors of hosts do not have. A host
 * also issues communication, which computes nothing. */
static int apply_precision(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	uint64_t hits = 0;

	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		const struct pl_gwork *work = pl_edit_work(e, i);
		bool wanted = !rw->n_args;
		const char *name;
		double x;

		if (!rw_computes(n) || n->role != PL_RO_COMPUTE)
			continue;
		name = pl_edit_name(e, n->name);
		for (uint32_t k = 0; k < rw->n_args && !wanted; k++)
			wanted = !strcmp(rw->arg[k], name);
		if (!wanted)
			continue;
		x = rw->x;
		if (x <= 0)
			x = n->kind == PL_K_HOST_OP || pl_trace_kind_is_comm(n->kind)
				    ? 1
				    : pl_cost_precision(work ? work->op : PL_OP_UNKNOWN,
							work && work->type != PL_NONE
								? pl_edit_name(e, work->type)
								: NULL,
							rw->word);
		hits++;
		rw_set_dur(r, i, rw_times(n->dur, x));
	}
	return !hits ? pl_fail(err, PL_EDATA, "no such operation in the graph") : 0;
}

const struct pl_rewrite_kind pl_rewrite_precision = {
	.apply = apply_precision,
	.explain = "{names} kinds of operations compute in {word}, for which devices have faster "
		   "units",
	.explain_less =
		"all operations of devices compute in {word}, for which these have faster units"
};
