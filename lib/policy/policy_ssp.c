/*
 * ssp:S: stale synchronous parallel (Ho et al., NIPS 2013). Each commit of one step is applied at
 * once. A worker whose steps exceed those of the slowest present worker by more than S waits for
 * its reply.
 *
 * Steps are counted by a clock for each worker. A worker that joins has current weights, so it
 * takes the clock of the slowest one: it delays nobody for the time in which it was not there. The
 * slowest clock and the number of workers that have it are kept, so all workers are looked at only
 * when the last of these moves: O(1) for a commit on average.
 */
#include "policy/internal.h"

struct ssp {
	uint64_t slowest;
	uint32_t n; /* present workers whose clock that is; 0: none is present */
};
struct ssp_worker {
	uint64_t clock;
};

static struct ssp_worker *worker_of(const struct pl_policy *p, uint32_t worker)
{
	return pl_policy_state_of(p, worker);
}

/* The last of the slowest workers has moved or left. */
static void find_slowest(struct pl_policy *p)
{
	struct ssp *s = p->state;

	s->slowest = UINT64_MAX;
	s->n = 0;
	for (uint32_t i = 0; i < p->o.workers; i++) {
		uint64_t c = worker_of(p, i)->clock;

		if (!p->w[i].present || c > s->slowest)
			continue;
		s->n = c < s->slowest ? 1 : s->n + 1;
		s->slowest = c;
	}
}

static void reply_within(struct pl_policy *p, uint32_t worker)
{
	const struct ssp *s = p->state;

	if (worker_of(p, worker)->clock - s->slowest <= (uint64_t)p->o.argument)
		pl_policy_reply(p, worker);
}

static void reply_all_within(struct pl_policy *p)
{
	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].waiting)
			reply_within(p, i);
}

static void joined(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct ssp *s = p->state;

	if (!s->n)
		s->slowest = worker_of(p, e->worker)->clock;
	worker_of(p, e->worker)->clock = s->slowest;
	s->n++;
	pl_policy_reply(p, e->worker);
}

static void moved(struct pl_policy *p, uint64_t clock)
{
	struct ssp *s = p->state;

	if (clock != s->slowest || --s->n)
		return;
	find_slowest(p);
	if (s->n)
		reply_all_within(p);
}

static void left(struct pl_policy *p, const struct pl_policy_event *e)
{
	moved(p, worker_of(p, e->worker)->clock);
}

static void committed(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct ssp_worker *w = worker_of(p, e->worker);
	uint64_t before = w->clock;

	pl_policy_apply_at_once(p, e);
	w->clock += e->steps;
	moved(p, before);
	reply_within(p, e->worker);
}

const struct pl_policy_kind pl_policy_ssp = {
	.name = "ssp",
	.help = "as asp, but a worker waits that is more than S steps before the slowest one",
	.argument = "S",
	.least = 0,
	.most = 1e9,
	.usual = 40,
	.state = sizeof(struct ssp),
	.of_worker = sizeof(struct ssp_worker),
	.joined = joined,
	.left = left,
	.committed = committed,
};
