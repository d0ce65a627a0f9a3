/* speed: faster or slower ranks or hosts. */
#include "rewrite/rewrite_internal.h"

static bool is_named(const struct rw_facts *x, const struct pl_rewrite *rw,
		     const struct pl_resource *res)
{
	bool named = !rw->n_args;
	char rank[32];

	snprintf(rank, sizeof(rank), "rank %d", res->rank);
	for (uint32_t k = 0; k < rw->n_args && !named; k++)
		named = pl_glob(rw->arg[k], rank) ||
			(res->host != PL_NONE &&
			 pl_glob(rw->arg[k], pl_intern_get(&x->g->str, res->host)));
	return named;
}

static int change_speed(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
			struct pl_err *err)
{
	static const struct pl_selector all = { .all = true };
	const struct pl_resource *res = x->e ? x->e->res : x->g->res;
	struct pl_graph_select *s = &c->select;
	bool any = false;
	int rc;

	c->value = 1 / rw->x;
	PL_TRY(pl_graph_select_init(s, &all, x->g, x->e, err));
	for (uint32_t i = 0; i < s->n_res; i++)
		any |= s->res[i] = is_named(x, rw, &res[i]);
	s->res[s->n_res] = 0;
	for (unsigned role = 0; role < PL_RO_COUNT_; role++)
		if (role != PL_RO_COMPUTE && role != PL_RO_COPY)
			memset(s->kind[role], 0, sizeof(s->kind[role]));
	if (!any)
		rc = pl_fail(err, PL_EDATA,
			     "there is no such rank or host, \"%.100s\"; a rank is written with "
			     "quotes: speed \"rank 0\" factor=2",
			     rw->arg[0]);
out:
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_speed = {
	.change = change_speed,
	.explain = "the ranks or hosts of the line compute {x} times as fast",
	.explain_less = "all ranks compute {x} times as fast"
};
