/*
 * bsp: bulk synchronous parallel. One local step a commit; the mean of all commits of a round is
 * applied at once. It is synchronous SGD with the sum of the batches (Valiant, A bridging model for
 * parallel computation, CACM 1990, gave the name).
 */
#include "policy/internal.h"

const struct pl_policy_kind pl_policy_bsp = {
	.name = "bsp",
	.help = "all workers commit after each step and wait for one another",
	.state = sizeof(struct pl_policy_round),
	.of_worker = sizeof(struct pl_policy_round_worker),
	.kept = PL_POLICY_ROUND_KEPT,
	PL_POLICY_ROUND,
	.apply = pl_policy_round_mean,
};
