/*
 * local:TAU: local SGD (Stich, ICLR 2019). Rounds as under bsp, with TAU local steps a commit.
 * fixed-adacomm:TAU is the same under the name by which ADSP's authors compare with it: ADACOMM
 * without adaptation, TAU = 40 in their figures.
 */
#include "policy/internal.h"

#define LOCAL                                                                                      \
	.argument = "TAU", .least = 1, .most = 1e9, .state = sizeof(struct pl_policy_round),       \
	.of_worker = sizeof(struct pl_policy_round_worker), .kept = PL_POLICY_ROUND_KEPT,          \
	PL_POLICY_ROUND, .apply = pl_policy_round_mean, .order = pl_policy_argument_steps

const struct pl_policy_kind pl_policy_local = {
	.name = "local",
	.help = "all workers commit after TAU steps and wait for one another",
	.usual = 8,
	LOCAL,
};

const struct pl_policy_kind pl_policy_fixed_adacomm = {
	.name = "fixed-adacomm",
	.help = "local under the name of ADACOMM with a fixed TAU",
	.usual = 40,
	LOCAL,
};
