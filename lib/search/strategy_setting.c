/*
 * The device and the batch of a job, of which a cost model of kernels knows the times.
 *
 * The device with the shortest step is taken, then the batch with the shortest time for a sample.
 * Both stand before all other changes, which are searched as if the job had been recorded so. A
 * batch of `samples` times the recorded one is compared with as many recorded steps. Each
 * alternative costs one simulation. What the rewriter refuses is no alternative. With a limit of
 * memory the batch stays: activations would grow with it, and the recording does not say which.
 */
#include <math.h>

#include "cost/predictor.h"
#include "search/internal.h"

#define WORTH 0.02 /* of the time for a sample: worth a change */

static struct pl_rewrite line(unsigned op, const char *word, double x)
{
	return (struct pl_rewrite){ .op = (uint8_t)op,
				    .word = word,
				    .x = x,
				    .to = -1,
				    .alone_ns = INT64_MIN,
				    .in_plan_ns = INT64_MIN };
}

/* *least becomes the time for the samples of a recorded step, and *best the line, if it is less. */
static int try_line(struct search *s, const struct pl_rewrite *rw, double samples, double *least,
		    struct pl_rewrite *best, struct pl_err *err)
{
	double ns;
	int rc;

	PL_CHECK(pl_search_extra_add(s, rw, err));
	rc = pl_search_workers_root(s, s->n_extra - 1, err);
	ns = rc < 0 ? INFINITY : pl_edit_mean_step(&s->worker[0].e) / samples;
	s->evaluations += rc == 0;
	s->n_extra--;
	if (ns < *least) {
		*least = ns;
		*best = *rw;
	}
	return pl_search_allow_refusal(rc, err);
}

/* Take the best line, if it is worth it: op PL_RW_COUNT_: there is none. */
static int take(struct search *s, const struct pl_rewrite *best, double before, double least,
		struct pl_err *err)
{
	PL_CHECK(pl_search_workers_root(s, s->n_extra, err));
	if (best->op == PL_RW_COUNT_ || !(least < (1 - WORTH) * before))
		return 0;
	PL_CHECK(pl_search_find_bias(s, err));
	PL_CHECK(pl_search_extra_add(s, best, err));
	if (best->op == PL_RW_BATCH)
		s->samples = best->x;
	return pl_search_workers_root(s, s->n_extra - 1, err);
}

static int choose_device(struct search *s, struct pl_err *err)
{
	const struct pl_predictor *p = s->cost->predictor;
	double before = pl_edit_mean_step(&s->worker[0].e), least = before;
	struct pl_rewrite best = line(PL_RW_COUNT_, NULL, 0);

	for (uint32_t d = 0; p && d < pl_predictor_n_devices(p); d++) {
		const struct pl_rewrite rw = line(PL_RW_DEVICE, pl_predictor_device_name(p, d), 0);

		if (d != pl_predictor_recorded(p) && !pl_search_over(s))
			PL_CHECK(try_line(s, &rw, 1, &least, &best, err));
	}
	return take(s, &best, before, least, err);
}

static int choose_batch(struct search *s, struct pl_err *err)
{
	static const double by[] = { 0.5, 2, 4, 8 };
	double before = pl_edit_mean_step(&s->worker[0].e), least = before;
	struct pl_rewrite best = line(PL_RW_COUNT_, NULL, 0);

	if (s->o->memory_bytes) {
		pl_say(s->o->log, PL_LOG_WARN,
		       "no other batch is tried under --memory: the recording does not say what "
		       "memory it would need");
		return 0;
	}
	for (size_t i = 0; i < PL_LEN(by); i++) {
		const struct pl_rewrite rw = line(PL_RW_BATCH, NULL, by[i]);

		if (!pl_search_over(s))
			PL_CHECK(try_line(s, &rw, by[i], &least, &best, err));
	}
	return take(s, &best, before, least, err);
}

int pl_search_setting(struct search *s, struct pl_err *err)
{
	if (s->o->preset != PL_PRESET_SEARCH || (!s->o->device && !s->o->batch))
		return 0;
	PL_CHECK(pl_search_workers_root(s, s->n_extra, err));
	if (s->o->device)
		PL_CHECK(choose_device(s, err));
	return s->o->batch ? choose_batch(s, err) : 0;
}
