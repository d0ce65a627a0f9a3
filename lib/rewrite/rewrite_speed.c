/* speed: faster or slower ranks or hosts. */
#include "rewrite/rewrite_internal.h"

static int apply_speed(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct pl_edit *e = r->e;
	uint64_t hits = 0;
	int rc = 0;

	for (uint32_t i = 0; rc == 0 && i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		const struct pl_resource *res;
		bool wanted = !rw->n_args;
		char rank[32];

		if (!rw_computes(n) || n->res == PL_NONE)
			continue;
		res = &e->res[n->res];
		snprintf(rank, sizeof(rank), "rank %d", res->rank);
		for (uint32_t k = 0; k < rw->n_args && !wanted; k++)
			wanted = pl_glob(rw->arg[k], rank) ||
				 (res->host != PL_NONE &&
				  pl_glob(rw->arg[k], pl_intern_get(&e->g->str, res->host)));
		if (!wanted)
			continue;
		hits++;
		rc = pl_edit_set_dur(e, i, rw_times(n->dur, 1 / rw->x), err);
	}
	return rc == 0 && !hits ? pl_fail(err, PL_EDATA, "no such rank or host in the graph") : rc;
}

static int explain_speed(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			 struct pl_buf *out, struct pl_err *err)
{
	(void)r;
	return pl_buf_printf(out, err, "%s compute %g times as fast",
			     rw->n_args ? "the ranks or hosts of the line" : "all ranks", rw->x);
}

const struct pl_rewrite_kind pl_rewrite_speed = { .apply = apply_speed, .explain = explain_speed };
