/* bandwidth and latency: faster or slower links. */
#include <string.h>

#include "rewrite/rewrite_internal.h"

static int check_link(const struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct rw_state *s = rw_now(r);

	if (!pl_cost_has_link(r->c, rw->word))
		return pl_fail(
			err, PL_EDATA,
			"the topology has no link \"%s\"; without --topology links are \"pcie\" "
			"and \"nic\", and \"*\" is all of them",
			rw->word);
	if (s->n_changes == PL_LEN(s->change))
		return pl_fail(err, PL_ELIMIT, "more than %zu changes of links", PL_LEN(s->change));
	return 0;
}

static int apply_bandwidth(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	int rc = check_link(r, rw, err);

	if (rc < 0)
		return rc;
	s->change[s->n_changes++] = (struct pl_link_change){ rw->word, rw->x, 1 };
	return 0;
}

static int apply_latency(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	int rc = check_link(r, rw, err);

	if (rc < 0)
		return rc;
	s->change[s->n_changes++] = (struct pl_link_change){ rw->word, 1, rw->x };
	return 0;
}

static int put_link(const struct pl_rewrite *rw, struct pl_buf *out, struct pl_err *err)
{
	if (!strcmp(rw->word, "*"))
		return pl_buf_printf(out, err, "every link has %g times", rw->x);
	return pl_buf_printf(out, err, "the link %s has %g times", rw->word, rw->x);
}

static int explain_bandwidth(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			     struct pl_buf *out, struct pl_err *err)
{
	int rc = put_link(rw, out, err);

	(void)r;
	return rc < 0 ? rc
		      : pl_buf_printf(out, err,
				      " the recorded bandwidth, which counts for large buckets");
}

static int explain_latency(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			   struct pl_buf *out, struct pl_err *err)
{
	int rc = put_link(rw, out, err);

	(void)r;
	return rc < 0 ? rc
		      : pl_buf_printf(out, err,
				      " the recorded latency, which counts for each message");
}

const struct pl_rewrite_kind pl_rewrite_bandwidth = { .comm = true,
						      .apply = apply_bandwidth,
						      .explain = explain_bandwidth };
const struct pl_rewrite_kind pl_rewrite_latency = { .comm = true,
						    .apply = apply_latency,
						    .explain = explain_latency };
