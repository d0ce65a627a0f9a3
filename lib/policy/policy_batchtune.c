/*
 * batchtune: synchronous training with batches by speed (R2SP: Chen et al., IEEE INFOCOM 2019).
 * Rounds as under bsp; worker i takes
 *
 *     b_i = B M v_i / (v_1 + ... + v_M)
 *
 * samples a step, so that all steps end together and a round has B M samples as under bsp. Commits
 * count by their samples. v_i is the speed in samples a second. It is measured in the first three
 * rounds, in which each worker has its own batch: that of the job, and of a group of ranks the sum
 * of theirs. B M is the sum of these. Later steps have other batches and say nothing about v_i
 * itself, but when they get longer or shorter by a fifth with the same batch, v_i has changed by as
 * much. The speed of a worker that comes back is measured anew, with any batch; its own batch stays
 * what it was.
 *
 * All times are medians of three steps: the time for which a process or its machine was stopped is
 * in one step, and says nothing about its speed.
 *
 * Batches are rounded to the greatest remainders, so that their sum stays B M. Each is at least 1
 * for each rank of the worker: what a worker with a smaller share gets too much is taken from those
 * whose shares are larger.
 */
#include "policy/internal.h"

#define CHANGED 0.2
#define STEPS	3

struct batchtune_worker {
	struct pl_policy_round_worker round;
	double speed; /* v_i, in batches of the job a second; 0: not known yet */
	double usual; /* ns of a step with `of` samples; 0: not known yet */
	int64_t of;
	double last[STEPS]; /* ns of the last steps with `of` samples */
	uint32_t n;	    /* of them so far */
};

struct batchtune {
	struct pl_policy_round round;
	bool changed; /* speeds, or who is present */
};

static struct batchtune_worker *worker_of(const struct pl_policy *p, uint32_t worker)
{
	return pl_policy_state_of(p, worker);
}

static void joined(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct batchtune *b = p->state;
	struct batchtune_worker *w = worker_of(p, e->worker);

	/* the batches of the others go with that of this worker, unless decide() came between */
	*w = (struct batchtune_worker){ .round = w->round };
	b->changed = true;
	pl_policy_round_joined(p, e);
}

static void left(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct batchtune *b = p->state;

	b->changed = true;
	pl_policy_round_left(p, e);
}

static double median(const double v[STEPS])
{
	double low = fmin(v[0], v[1]), high = fmax(v[0], v[1]);

	return fmax(low, fmin(high, v[2]));
}

static void measure(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct batchtune *b = p->state;
	struct batchtune_worker *w = worker_of(p, e->worker);
	double step;
	int64_t batch = (int64_t)(e->samples / e->steps);

	if (e->step_ns <= 0)
		return;
	batch = batch ? batch : p->o.batch;
	if (!w->round.own) /* the very first: not of a tuned batch */
		w->round.own = (uint32_t)pl_min_i64(batch, INT32_MAX) & INT32_MAX;
	if (w->of != batch)
		w->n = 0;
	w->usual = w->n ? w->usual : 0;
	w->of = batch;
	w->last[w->n++ % STEPS] = (double)e->step_ns;
	if (w->n < STEPS)
		return;
	step = median(w->last);
	if (w->speed == 0) {
		w->speed = 1e9 / step * ((double)batch / (double)p->o.batch);
		b->changed = true;
	} else if (w->usual > 0) {
		if (fabs(step / w->usual - 1) <= CHANGED)
			return;
		w->speed *= w->usual / step;
		b->changed = true;
	}
	w->usual = step;
}

static void committed(struct pl_policy *p, const struct pl_policy_event *e)
{
	measure(p, e);
	pl_policy_round_committed(p, e);
}

/* Samples that rounding down has left go one by one to the greatest remainders. */
static void round_up(struct pl_policy *p, int64_t rest, double share)
{
	for (; rest > 0; rest--) {
		uint32_t best = PL_NONE;
		double most = -INFINITY;

		for (uint32_t i = 0; i < p->o.workers; i++) {
			const struct batchtune_worker *w = worker_of(p, i);
			double left_over = w->speed * share - (double)w->round.batch;

			if (p->w[i].present && left_over > most) {
				most = left_over;
				best = i;
			}
		}
		worker_of(p, best)->round.batch++;
	}
}

/* Its own batch is that of the job for each of its ranks. */
static uint32_t least_of(const struct pl_policy *p, const struct batchtune_worker *w)
{
	uint32_t ranks = (uint32_t)(w->round.own / p->o.rank_batch);

	return ranks ? ranks : 1;
}

/* What the least batches have too much is taken one by one from the smallest remainders. */
static void round_down(struct pl_policy *p, int64_t rest, double share)
{
	for (; rest < 0; rest++) {
		uint32_t best = PL_NONE;
		double least = INFINITY;

		for (uint32_t i = 0; i < p->o.workers; i++) {
			const struct batchtune_worker *w = worker_of(p, i);
			double left_over = w->speed * share - (double)w->round.batch;

			if (p->w[i].present && w->round.batch > least_of(p, w) &&
			    left_over < least) {
				least = left_over;
				best = i;
			}
		}
		if (best == PL_NONE) /* all have the least */
			return;
		worker_of(p, best)->round.batch--;
	}
}

/* Choose the batches, if all speeds are known. */
static void decide(struct pl_policy *p)
{
	struct batchtune *b = p->state;
	double sum = 0, share;
	int64_t rest = 0, least = INT64_MAX, most = 0;

	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present) {
			if (worker_of(p, i)->speed == 0)
				return;
			sum += worker_of(p, i)->speed;
			rest += worker_of(p, i)->round.own;
		}
	if (!b->changed)
		return;
	b->changed = false;
	share = (double)rest / sum;
	for (uint32_t i = 0; i < p->o.workers; i++) {
		struct batchtune_worker *w = worker_of(p, i);

		w->round.batch = 0;
		w->of = 0;
		if (!p->w[i].present)
			continue;
		w->round.batch = (uint32_t)pl_max_i64(least_of(p, w), (int64_t)(w->speed * share));
		rest -= w->round.batch;
	}
	round_up(p, rest, share);
	round_down(p, rest, share);
	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present) {
			least = pl_min_i64(least, worker_of(p, i)->round.batch);
			most = pl_max_i64(most, worker_of(p, i)->round.batch);
		}
	pl_policy_note(p, PL_NONE, "batchtune: batches of %lld to %lld samples, by speed",
		       (long long)least, (long long)most);
}

static void order(const struct pl_policy *p, uint32_t worker, struct pl_policy_order *o)
{
	o->batch = worker_of(p, worker)->round.batch;
}

const struct pl_policy_kind pl_policy_batchtune = {
	.name = "batchtune",
	.help = "bsp with batches in proportion to the speeds of the workers",
	.state = sizeof(struct batchtune),
	.of_worker = sizeof(struct batchtune_worker),
	.kept = PL_POLICY_ROUND_KEPT,
	.waits = true,
	.joined = joined,
	.left = left,
	.committed = committed,
	.order = order,
	.valid = pl_policy_round_valid,
	.apply = pl_policy_round_mean,
	.decide = decide,
};
