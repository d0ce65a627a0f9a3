/* ranks: another number of data-parallel ranks; each works like the recorded ranks. */
#include "rewrite/rewrite_internal.h"

static int apply_ranks(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	(void)err;
	rw_now(r)->ranks = (uint32_t)rw->k;
	return 0;
}

static int explain_ranks(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			 struct pl_buf *out, struct pl_err *err)
{
	return pl_buf_printf(
		out, err,
		"%lld ranks instead of %u: a step takes in that many more samples, and "
		"its communication has more members",
		(long long)rw->k, r->n_ranks);
}

const struct pl_rewrite_kind pl_rewrite_ranks = { .comm = true,
						  .apply = apply_ranks,
						  .explain = explain_ranks };
