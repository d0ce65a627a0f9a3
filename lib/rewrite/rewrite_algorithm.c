/* algorithm: the algorithm that carries out collectives. lib/cost gives the duration. */
#include "rewrite/rewrite_internal.h"

static int apply_algorithm(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	int algo = pl_algo_find(rw->word), rc;

	if (algo < 0)
		return pl_fail(err, PL_EDATA, "there is no algorithm \"%s\"", rw->word);
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		bool wanted = !rw->n_args;

		for (uint32_t i = 0; i < rw->n_args; i++) {
			uint32_t x;

			if ((rc = pl_rewrite_find_arg(r, rw, i, &x, err)) < 0)
				return rc;
			wanted |= s->b.set[x] == s->b.set[t];
		}
		if (!wanted)
			continue;
		s->algo[t] = (uint8_t)algo;
		s->servers[t] = rw->k > 0 ? (uint32_t)rw->k : 1;
	}
	return 0;
}

static int explain_algorithm(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			     struct pl_buf *out, struct pl_err *err)
{
	static const char *const why[PL_ALGO_COUNT_] = {
		[PL_ALGO_RING] = "each link carries the least data, in many messages",
		[PL_ALGO_TREE] = "few messages follow one another, which suits small buckets",
		[PL_ALGO_HALVING] = "few messages follow one another, and links carry little data",
		[PL_ALGO_HIERARCHICAL] =
			"ranks of a host add up first, so the network carries less",
		[PL_ALGO_PS] = "servers add up what the ranks push to them",
	};
	int algo = pl_algo_find(rw->word);

	return pl_buf_printf(out, err, "%u buckets are communicated by %s: %s",
			     rw->n_args ? rw->n_args : rw_now(r)->b.n_sets, rw->word,
			     algo < 0 ? "" : why[algo]);
}

const struct pl_rewrite_kind pl_rewrite_algorithm = { .comm = true,
						      .apply = apply_algorithm,
						      .explain = explain_algorithm };
