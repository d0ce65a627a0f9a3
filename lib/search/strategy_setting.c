/*
 * The device and the batch of a job, of which a cost model of kernels knows the times.
 *
 * Each device is tried with each batch, and the pair with the shortest time for a sample is taken;
 * a line that does not make it shorter by WORTH is left out. They stand before all other changes,
 * which are searched as if the job had been recorded so. A batch of `samples` times the recorded
 * one is compared with as many recorded steps. Each pair costs one simulation. What the rewriter
 * refuses is no alternative. With a limit of memory the batch stays: activations would grow with
 * it, and the recording does not say which.
 */
#include <math.h>

#include "cost/predictor.h"
#include "search/internal.h"

#define WORTH 0.02 /* of the time for a sample: worth a line */

struct setting {
	const char *device; /* NULL: as recorded */
	double batch;	    /* 1: as recorded */
	double time;	    /* for the samples of a recorded step */
};

static int add_lines(struct search *s, const struct setting *x, struct pl_err *err)
{
	struct pl_rewrite rw = { .to = -1, .alone_ns = INT64_MIN, .in_plan_ns = INT64_MIN };

	if (x->device) {
		rw.op = PL_RW_DEVICE;
		rw.word = x->device;
		PL_CHECK(pl_search_extra_add(s, &rw, err));
	}
	if (x->batch == 1)
		return 0;
	rw.op = PL_RW_BATCH;
	rw.word = NULL;
	rw.x = x->batch;
	return pl_search_extra_add(s, &rw, err);
}

/* The time that is compared: each line has to gain WORTH. */
static double with_lines(const struct setting *x)
{
	return x->time / pow(1 - WORTH, (x->device ? 1 : 0) + (x->batch == 1 ? 0 : 1));
}

/* *best becomes this pair, if it is better. */
static int try_setting(struct search *s, struct setting x, struct setting *best, struct pl_err *err)
{
	size_t before = s->n_extra;
	int rc;

	PL_CHECK(add_lines(s, &x, err));
	rc = pl_search_workers_root(s, before, err);
	x.time = rc < 0 ? INFINITY : pl_edit_mean_step(&s->worker[0].e) / x.batch;
	s->evaluations += rc == 0;
	s->n_extra = before;
	if (with_lines(&x) < with_lines(best))
		*best = x;
	return pl_search_allow_refusal(rc, err);
}

static int try_batches(struct search *s, const char *device, struct setting *best,
		       struct pl_err *err)
{
	static const double by[] = { 1, 0.5, 2, 4, 8 };
	size_t n = s->o->batch && !s->o->memory_bytes ? PL_LEN(by) : 1;

	for (size_t i = 0; i < n; i++)
		if ((device || i) && !pl_search_over(s))
			PL_CHECK(try_setting(s, (struct setting){ device, by[i], 0 }, best, err));
	return 0;
}

static int choose(struct search *s, struct setting *best, struct pl_err *err)
{
	const struct pl_predictor *p = s->o->device ? s->cost->predictor : NULL;

	PL_CHECK(try_batches(s, NULL, best, err));
	for (uint32_t d = 0; p && d < pl_predictor_n_devices(p); d++)
		if (d != pl_predictor_recorded(p))
			PL_CHECK(try_batches(s, pl_predictor_device_name(p, d), best, err));
	return 0;
}

int pl_search_setting(struct search *s, struct pl_err *err)
{
	struct setting best = { .batch = 1 };
	size_t before = s->n_extra;

	if (s->o->preset != PL_PRESET_SEARCH || (!s->o->device && !s->o->batch))
		return 0;
	if (s->o->batch && s->o->memory_bytes)
		pl_say(s->o->log, PL_LOG_WARN,
		       "no other batch is tried under --memory: the recording does not say what "
		       "memory it would need");
	PL_CHECK(pl_search_workers_root(s, before, err));
	best.time = pl_edit_mean_step(&s->worker[0].e);
	PL_CHECK(choose(s, &best, err));
	PL_CHECK(pl_search_workers_root(s, before, err));
	if (!best.device && best.batch == 1)
		return 0;
	PL_CHECK(pl_search_find_bias(s, err));
	PL_CHECK(add_lines(s, &best, err));
	s->samples = best.batch;
	return pl_search_workers_root(s, before, err);
}
