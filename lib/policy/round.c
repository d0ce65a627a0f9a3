/*
 * Rounds: all present workers commit, then the server applies their weighted mean and replies to
 * all. A policy whose workers wait for one another differs from others in the steps of a commit
 * (order), in what it makes of the mean (apply), and in what it decides between two rounds
 * (decide).
 *
 * S collects a commit times its weight: the batch of its steps in batches of the job. At the end of
 * a round the server divides by the sum of the weights. So commits of different batches count by
 * their samples, and sums of whole numbers stay exact. A worker that leaves after it has committed
 * stays in the mean; if it comes back in the same round, it waits for the end of it, so it counts
 * once. Any other worker that joins gets the weights at once, because they do not change within a
 * round, and belongs to the round. O(1) for an event, O(workers) for the end of a round.
 */
#include "policy/internal.h"

static struct pl_policy_round_worker *round_worker(const struct pl_policy *p, uint32_t worker)
{
	return pl_policy_state_of(p, worker);
}

void pl_policy_round_mean(const struct pl_policy *p, double weight, struct pl_policy_update *u)
{
	(void)p;
	u->w_s = 1 / weight;
}

bool pl_policy_round_valid(const struct pl_policy *p)
{
	const struct pl_policy_round *r = p->state;

	return r->weight >= 0 && r->weight < INFINITY;
}

/* In the first round some may not have joined yet. */
uint64_t pl_policy_round_most(const struct pl_policy *p)
{
	const struct pl_policy_round *r = p->state;
	uint64_t left = p->o.steps > r->begun ? p->o.steps - r->begun : 1;
	uint32_t n = r->begun ? p->present : p->o.workers;

	return (left + n - 1) / n;
}

/* Have all present workers committed, and are there enough? */
static bool complete(const struct pl_policy *p)
{
	return p->present && p->in_round == p->present && !pl_policy_held(p);
}

/* End the round; *u says what becomes of the last commit. */
static void end_round(struct pl_policy *p, uint32_t worker, struct pl_policy_update *u)
{
	struct pl_policy_round *r = p->state;

	p->o.kind->apply(p, r->weight, u);
	u->clear = true;
	pl_policy_update(p, worker, u);
	r->weight = 0;
	r->begun = 0;
	p->in_round = 0;
	if (p->o.kind->decide)
		p->o.kind->decide(p);
	for (uint32_t i = 0; i < p->o.workers; i++) {
		round_worker(p, i)->committed = 0;
		r->begun += p->w[i].steps;
	}
	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present)
			pl_policy_reply(p, i);
}

/* A worker whose commit is in S already, because it was lost or the server was restarted in this
 * round, has its reply at the end of the round: another commit would count twice. */
void pl_policy_round_joined(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct pl_policy_update u = { .v_v = 1 };

	if (!round_worker(p, e->worker)->committed) {
		pl_policy_reply(p, e->worker);
		return;
	}
	p->in_round++;
	if (complete(p))
		end_round(p, e->worker, &u);
}

void pl_policy_round_left(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct pl_policy_update u = { .v_v = 1 };
	uint32_t first = 0;

	p->in_round -= round_worker(p, e->worker)->committed;
	if (!complete(p))
		return;
	while (!p->w[first].present)
		first++;
	end_round(p, first, &u);
}

void pl_policy_round_committed(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct pl_policy_round *r = p->state;
	double weight = (double)e->samples / (double)e->steps / (double)p->o.batch;
	struct pl_policy_update u = { .v_v = 1 };

	if (!(weight > 0 && weight < INFINITY))
		weight = 1;
	r->weight += weight;
	round_worker(p, e->worker)->committed = 1;
	p->in_round++;
	u.s_u = weight;
	if (complete(p))
		end_round(p, e->worker, &u);
	else
		pl_policy_update(p, e->worker, &u);
}
