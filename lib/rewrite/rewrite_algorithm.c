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
		s->choice[t].algo = (uint8_t)algo;
		s->choice[t].servers = rw->k > 0 ? (uint32_t)rw->k : 1;
	}
	return 0;
}

const struct pl_rewrite_kind pl_rewrite_algorithm = {
	.comm = true,
	.apply = apply_algorithm,
	.explain = "{names} buckets are communicated by {word}: {reason}",
	.explain_less = "all buckets are communicated by {word}: {reason}"
};
