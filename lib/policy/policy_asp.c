/*
 * asp: asynchronous parallel. One local step a commit, which is applied at once; nobody waits, and
 * nothing bounds the staleness (Downpour SGD: Dean et al., NIPS 2012).
 */
#include "policy/internal.h"

static void joined(struct pl_policy *p, const struct pl_policy_event *e)
{
	pl_policy_reply(p, e->worker);
}

static void committed(struct pl_policy *p, const struct pl_policy_event *e)
{
	pl_policy_apply_at_once(p, e);
	pl_policy_reply(p, e->worker);
}

const struct pl_policy_kind pl_policy_asp = {
	.name = "asp",
	.help = "each commit of one step is applied at once, and nobody waits",
	.overlaps = true,
	.joined = joined,
	.committed = committed,
};
