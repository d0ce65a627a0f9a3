/*
 * Settings of the network: random search with successive halving (Jamieson and Talwalkar, AISTATS
 * 2016; its asynchronous form is ASHA, Li et al., MLSys 2020).
 *
 * All trials learn for a ninth of the usual time, the best third of them for a third of it, the
 * best third of these for all of it, each from the beginning, so that its rate of learning falls as
 * it will in the end. What counts is the error on programs of models that no trial has seen:
 * programs of one operation differ little, and a random part of them would say that any network is
 * good. Trials of a rung run at the same time, a thread each. Rungs end together, so that the
 * result does not depend on the number of threads.
 */
#include <math.h>

#include "core/progress.h"
#include "core/sort.h"
#include "tprog/network.h"

#define HELD  5 /* of so many models, one is left out */
#define THIRD 3

struct tuner {
	const struct pl_tprog_set *s;
	const struct pl_tprog_fit_opts *o;
	size_t *use; /* rows that trials learn from, then those left out */
	size_t n_learned, n_held;
	float *y; /* [n_learned] */
	int rung;
};
struct job {
	const struct tuner *t;
	struct pl_tprog_trial *trial;
	struct pl_err err;
	int rc;
};

/* ---- what is tried --------------------------------------------------------------------------- */

/* From lo to hi, its logarithm evenly distributed. */
static double draw(uint64_t *rng, double lo, double hi)
{
	double u = (double)(pl_rng_next(rng) >> 11) * 0x1p-53;

	return lo * exp(u * log(hi / lo));
}

/* The next power of two, or three quarters of it. */
static int draw_size(uint64_t *rng, int lo, int hi)
{
	double v = draw(rng, lo, hi * 1.2);
	int size = lo;

	while (size * 1.4 < v && size < hi)
		size = (size & (size - 1)) ? size / 3 * 4 : size / 2 * 3;
	return size;
}

static struct pl_tprog_settings draw_settings(uint64_t *rng)
{
	struct pl_tprog_settings s = { .layers = 1 + (int)(pl_rng_next(rng) % 4),
				       .heads = 1 << pl_rng_next(rng) % 4 };

	s.width = draw_size(rng, 32, 128);
	s.latent = draw_size(rng, 32, 256);
	s.batch = draw_size(rng, 32, 256);
	s.rate = draw(rng, 3e-4, 6e-3);
	s.relative = draw(rng, 0.1, 10);
	s.power = pl_rng_next(rng) % 2 ? NAN : 0; /* 0: the logarithm */
	return s;
}

/* ---- one trial ------------------------------------------------------------------------------- */

static double mean_error(double *error, size_t n)
{
	double shift, sum = 0;

	pl_sort(error, n, sizeof(*error), pl_compare_double);
	shift = pl_tprog_best_shift(error, n);
	for (size_t i = 0; i < n; i++)
		sum += fabs(exp(shift - error[i]) - 1);
	return isfinite(sum) ? sum / (double)n : INFINITY;
}

static int run(const struct tuner *t, struct pl_tprog_trial *trial, struct pl_err *err)
{
	static const double share[PL_TPROG_RUNGS] = { 1.0 / 9, 1.0 / 3, 1 };
	struct pl_tprog_fit_opts o = *t->o;
	struct pl_tprog_network *net = NULL;
	double *y = NULL;
	int rc;

	o.settings = &trial->settings;
	o.share = share[t->rung];
	o.threads = 1;
	PL_TRY(pl_alloc(&y, t->n_held, sizeof(*y), err));
	PL_TRY(pl_tprog_network_fit(t->s, t->use, t->n_learned, t->y, &o, &net, err));
	PL_TRY(pl_tprog_network_apply(net, t->s, t->use + t->n_learned, t->n_held, y, err));
	for (size_t i = 0; i < t->n_held; i++)
		y[i] = pl_tprog_unit(&t->s->v[t->use[t->n_learned + i]]) - y[i];
	trial->error[t->rung] = mean_error(y, t->n_held);
	trial->rungs = t->rung + 1;
out:
	pl_tprog_network_free(net);
	pl_free(y);
	return rc;
}

static void run_job(void *arg)
{
	struct job *j = arg;

	j->rc = run(j->t, j->trial, &j->err);
}

static int collect(struct pl_queue *q, struct pl_err *err)
{
	const struct job *j = pl_queue_get(q);

	if (j && j->rc < 0 && err->code >= 0)
		*err = j->err;
	return err->code;
}

static int run_rung(struct tuner *t, struct pl_tprog_trial **trial, size_t n, struct pl_err *err)
{
	struct pl_queue *q = pl_queue_new(t->o->pool, (int)n, err);
	struct job *job = NULL;
	int rc = q ? pl_alloc(&job, n, sizeof(*job), err) : err->code;

	for (size_t i = 0; i < n && rc >= 0; i++) {
		pl_progress("rung %d of %d, trial %zu of %zu", t->rung + 1, PL_TPROG_RUNGS, i + 1,
			    n);
		job[i] = (struct job){ .t = t, .trial = trial[i] };
		pl_queue_put(q, run_job, &job[i]);
	}
	for (size_t i = 0; i < n && rc >= 0; i++)
		rc = collect(q, err);
	pl_queue_free(q);
	pl_free(job);
	return rc;
}

/* ---- all of them ----------------------------------------------------------------------------- */

static int divide(struct tuner *t, struct pl_err *err)
{
	const struct pl_tprog_set *s = t->s;
	size_t n = 0, models = 0;
	pl_id *seen = NULL;
	int rc;

	PL_TRY(pl_alloc(&seen, s->names.n + 1, sizeof(*seen), err));
	PL_TRY(pl_alloc(&t->use, s->n + 1, sizeof(*t->use), err));
	PL_TRY(pl_alloc(&t->y, s->n + 1, sizeof(*t->y), err));
	for (size_t i = 0; i < s->n; i++)
		if (!seen[s->v[i].model])
			seen[s->v[i].model] = (pl_id)++models;
	for (int held = 0; held < 2; held++) {
		for (size_t i = 0; i < s->n; i++)
			if ((seen[s->v[i].model] % HELD == 1) == held)
				t->use[n++] = i;
		t->n_learned = held ? t->n_learned : n;
	}
	t->n_held = n - t->n_learned;
	for (size_t i = 0; i < t->n_learned; i++)
		t->y[i] = (float)pl_tprog_unit(&s->v[t->use[i]]);
	if (models < 2)
		rc = pl_fail(err, PL_EDATA,
			     "the programs are of one model, and settings are judged on models "
			     "that were left out");
out:
	pl_free(seen);
	return rc;
}

/* By the error of the last rung that both saw; pointers are in the order of the trials. */
static int by_error(const void *pa, const void *pb)
{
	const struct pl_tprog_trial *const *a = pa, *const *b = pb;
	int rung = (*a)->rungs - 1;
	int c = PL_COMPARE((*a)->error[rung], (*b)->error[rung]);

	return c ? c : PL_COMPARE(*a, *b);
}

int pl_tprog_tune(const struct pl_tprog_set *s, const struct pl_tprog_fit_opts *o,
		  struct pl_tprog_trial *trial, size_t n, size_t *best, struct pl_err *err)
{
	struct tuner t = { .s = s, .o = o };
	struct pl_tprog_trial **alive = NULL;
	uint64_t rng = o->seed + 7;
	size_t left = n;
	int rc;

	PL_CHECK(pl_tprog_check_rows(s, err));
	PL_TRY(pl_alloc(&alive, n, sizeof(struct pl_tprog_trial *), err));
	PL_TRY(divide(&t, err));
	for (size_t i = 0; i < n; i++) {
		trial[i] = (struct pl_tprog_trial){ .settings = i ? draw_settings(&rng)
								  : pl_tprog_usual };
		alive[i] = &trial[i];
	}
	for (; t.rung < PL_TPROG_RUNGS; t.rung++) {
		PL_TRY(run_rung(&t, alive, left, err));
		pl_sort(alive, left, sizeof(struct pl_tprog_trial *), by_error);
		left = (left + THIRD - 1) / THIRD;
	}
	*best = (size_t)(alive[0] - trial);
out:
	pl_free(alive);
	pl_free(t.use);
	pl_free(t.y);
	return rc;
}
