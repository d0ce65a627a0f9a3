/*
 * diloco:H: DiLoCo (Douillard et al., arXiv 2311.08105, 2023). Rounds of H local steps; the mean D
 * of the commits goes through Nesterov's momentum, with rate 0.7 and momentum 0.9:
 *
 *     V = 0.9 V + D
 *     W = W + 0.7 (D + 0.9 V)
 */
#include "policy/internal.h"

#define OUTER_RATE     0.7
#define OUTER_MOMENTUM 0.9

static void apply(const struct pl_policy *p, double weight, struct pl_policy_update *u)
{
	(void)p;
	u->v_v = OUTER_MOMENTUM;
	u->v_s = 1 / weight;
	u->w_s = OUTER_RATE / weight;
	u->w_v = OUTER_RATE * OUTER_MOMENTUM;
}

const struct pl_policy_kind pl_policy_diloco = {
	.name = "diloco",
	.help = "rounds of H steps, and Nesterov's momentum at the server",
	.argument = "H",
	.least = 1,
	.most = 1e9,
	.usual = 100,
	.state = sizeof(struct pl_policy_round),
	.of_worker = sizeof(struct pl_policy_round_worker),
	.kept = PL_POLICY_ROUND_KEPT,
	PL_POLICY_ROUND,
	.apply = apply,
	.order = pl_policy_argument_steps,
};
