/*
 * dylu:H: asynchronous local SGD with dynamic local updates and delayed Nesterov (Liu et al., arXiv
 * 2401.09135, 2024). Nobody waits. Worker w commits after H_w = floor(v_w / v_max H) local steps,
 * at least 1; v is the speed at its last commit, and before its first commit H_w is 1. With outer
 * rate 0.7, momentum 0.9 and N, the number of present workers, each commit does
 *
 *     W = W + 0.7 U / N,  S = S + U
 *
 * and each N-th also
 *
 *     V = 0.9 V + S / N,  W = W + 0.7 0.9 V,  S = 0
 *
 * After workers have left, S may hold more than N commits: S is divided by what it holds.
 */
#include "policy/internal.h"

#define OUTER_RATE     0.7
#define OUTER_MOMENTUM 0.9

struct dylu {
	uint64_t held; /* commits in S */
	/* Not kept: the step of the fastest present worker, and whether it is known. */
	pl_ns fastest;
};

static void find_fastest(struct pl_policy *p)
{
	struct dylu *d = p->state;

	d->fastest = INT64_MAX;
	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present && p->w[i].step_ns > 0)
			d->fastest = pl_min_i64(d->fastest, p->w[i].step_ns);
}

static void joined(struct pl_policy *p, const struct pl_policy_event *e)
{
	find_fastest(p);
	pl_policy_reply(p, e->worker);
}

static void left(struct pl_policy *p, const struct pl_policy_event *e)
{
	(void)e;
	find_fastest(p);
}

static void committed(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct dylu *d = p->state;
	struct pl_policy_update u = { .s_u = 1, .v_v = 1, .w_u = OUTER_RATE / p->present };

	if (++d->held >= p->present) {
		u.v_v = OUTER_MOMENTUM;
		u.v_s = 1.0 / (double)d->held;
		u.w_v = OUTER_RATE * OUTER_MOMENTUM;
		u.clear = true;
		d->held = 0;
	}
	pl_policy_update(p, e->worker, &u);
	find_fastest(p);
	pl_policy_reply(p, e->worker);
}

static void order(const struct pl_policy *p, uint32_t worker, struct pl_policy_order *o)
{
	const struct dylu *d = p->state;
	pl_ns step = p->w[worker].step_ns;
	double steps = step > 0 ? floor(p->o.argument * (double)d->fastest / (double)step) : 1;

	o->steps = steps > 1 ? (uint64_t)steps : 1;
}

const struct pl_policy_kind pl_policy_dylu = {
	.name = "dylu",
	.help = "nobody waits; commits after H steps, fewer of slow workers; delayed Nesterov",
	.argument = "H",
	.least = 1,
	.most = 1e9,
	.usual = 50,
	.state = sizeof(struct dylu),
	.kept = 1,
	.overlaps = true,
	.joined = joined,
	.left = left,
	.committed = committed,
	.order = order,
};
