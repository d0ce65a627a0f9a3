/*
 * adacomm:TAU0: adaptive communication (Wang, Joshi, MLSys 2019). Rounds as under local, with tau
 * local steps. Once a period, at the end of a round:
 *
 *     tau' = sqrt(F / F0) TAU0
 *     tau  = ceil(tau')      if tau' < tau
 *            ceil(tau / 2)   else
 *
 * F is the mean training loss of the period, F0 that of the first period; where no losses come, tau
 * is halved. The default period is PL_POLICY_PERIOD rounds with TAU0 steps of the slowest worker:
 * within fewer, tau would be 1 before training has begun.
 */
#include "policy/internal.h"

struct adacomm {
	struct pl_policy_round round;
	uint64_t tau;
	double first_loss; /* F0; NAN: not known yet */
	int64_t period;	   /* 0: not known yet */
	/* not kept: of this period */
	pl_ns begun;
	bool counts; /* it has begun */
	double loss, steps;
};

static void begin(struct pl_policy *p)
{
	struct adacomm *a = p->state;

	a->tau = (uint64_t)p->o.argument;
	a->first_loss = NAN;
	a->period = p->o.period;
}

static bool valid(const struct pl_policy *p)
{
	const struct adacomm *a = p->state;

	return pl_policy_round_valid(p) && a->tau >= 1 && a->tau <= (uint64_t)p->o.argument &&
	       a->period >= 0;
}

static void committed(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct adacomm *a = p->state;

	if (isfinite(e->loss)) {
		a->loss += e->loss * (double)e->steps;
		a->steps += (double)e->steps;
	}
	pl_policy_round_committed(p, e);
}

static void order(const struct pl_policy *p, uint32_t worker, struct pl_policy_order *o)
{
	const struct adacomm *a = p->state;

	(void)worker;
	o->steps = a->tau;
}

static pl_ns default_period(const struct pl_policy *p)
{
	pl_ns slowest = 0;

	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present)
			slowest = pl_max_i64(slowest, p->w[i].step_ns);
	return (pl_ns)((double)slowest * p->o.argument * PL_POLICY_PERIOD);
}

static uint64_t next_tau(const struct pl_policy *p, double loss)
{
	const struct adacomm *a = p->state;
	double now = ceil(sqrt(loss / a->first_loss) * p->o.argument);

	/* the loss may be 0, or below it */
	if (sqrt(loss / a->first_loss) * p->o.argument < (double)a->tau)
		return now > 1 ? (uint64_t)now : 1;
	return (a->tau + 1) / 2;
}

static void decide(struct pl_policy *p)
{
	struct adacomm *a = p->state;
	double loss = a->steps > 0 ? a->loss / a->steps : NAN;
	uint64_t tau;

	if (p->o.period)
		a->period = p->o.period; /* which may be another one after a restart */
	else if (!a->period)
		a->period = default_period(p);
	if (!a->counts) {
		/* the first round of all ends; its losses belong to the first period */
		a->begun = p->now;
		a->counts = true;
		return;
	}
	if (p->now - a->begun < a->period)
		return;
	if (isnan(a->first_loss))
		a->first_loss = loss;
	tau = next_tau(p, loss);
	if (tau != a->tau)
		pl_policy_note(p, PL_NONE,
			       "adacomm: %llu local steps a commit in place of %llu: the loss is "
			       "%.4g, and "
			       "was %.4g at first",
			       (unsigned long long)tau, (unsigned long long)a->tau, loss,
			       a->first_loss);
	a->tau = tau;
	a->begun = p->now;
	a->loss = a->steps = 0;
}

static void left(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct adacomm *a = p->state;

	pl_policy_round_left(p, e);
	if (p->present)
		return;
	a->counts = false; /* as after a restart */
	a->loss = a->steps = 0;
}

const struct pl_policy_kind pl_policy_adacomm = {
	.name = "adacomm",
	.help = "local, with fewer steps a commit as the loss falls",
	.argument = "TAU0",
	.least = 1,
	.most = 1e9,
	.usual = 40,
	.state = sizeof(struct adacomm),
	.of_worker = sizeof(struct pl_policy_round_worker),
	.kept = PL_POLICY_ROUND_KEPT + 3,
	.waits = true,
	.begin = begin,
	.joined = pl_policy_round_joined,
	.left = left,
	.committed = committed,
	.order = order,
	.valid = valid,
	.apply = pl_policy_round_mean,
	.decide = decide,
};
