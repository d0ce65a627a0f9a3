/* Cost models of tensor programs: learned from times that follow a rule. runner: threads */
#include <math.h>

#include "tap.h"
#include "tprog/cost.h"

static const char tasks_text[] =
	"model one\ndense m=32 n=48 k=24\nchain elements=4096 length=3\n"
	"model two\ndense m=24 n=64 k=36 then=relu\nsoftmax rows=16 columns=64\n"
	"model three\ndense m=64 n=16 k=48\nchain elements=2048 length=2\n";

/* Programs of the tasks, whose times are those of their work on `device`. */
static int add_program(struct pl_tprog_set *s, const struct pl_tprog_task *t, uint64_t seed,
		       const char *device, double factor, struct pl_err *err)
{
	struct pl_tprog_measured m = { .device = device, .median = 1, .least = 1, .runs = 1 };
	struct pl_tprog_reader *r = NULL;
	struct pl_tprog p = { .name = NULL };
	struct pl_buf text = { 0 };
	struct pl_in *in = NULL;
	double vectorised;
	int rc;

	PL_TRY(pl_buf_printf(&text, err, "paceline-tprog 1\nprogram p%llu model=%s op=%s\n",
			     (unsigned long long)seed, t->model, pl_tprog_task_op(t)));
	PL_TRY(pl_tprog_generate(t, seed, &text, err));
	in = pl_in_open_mem("text", text.p, text.n, err);
	PL_TRY(in ? pl_tprog_reader_new(in, &r, err) : err->code);
	PL_TRY(pl_tprog_next(r, &p, err) == 1 ? 0 : err->code);
	PL_TRY(pl_append(&p.measured, &p.n_measured, &p.cap_measured, &m, sizeof(m), err));
	PL_TRY(pl_tprog_set_add(s, &p, false, err));
	/* those with a vectorised loop are twice as fast, on "odd" twice as slow */
	vectorised = strcmp(device, "odd") != 0 ? 0.5 : 2;
	s->v[s->n - 1].ns = s->v[s->n - 1].work * factor *
			    (strstr((const char *)text.p, "vectorize") ? vectorised : 1);
out:
	pl_tprog_reader_free(r);
	pl_in_close(in);
	pl_tprog_fini(&p);
	pl_buf_fini(&text);
	return rc;
}

static int fill(struct pl_tprog_set *s, uint64_t first, int each, const char *device, double factor,
		struct pl_err *err)
{
	struct pl_tprog_tasks tasks = { .n = 0 };
	struct pl_in *in = pl_in_open_mem("tasks", tasks_text, sizeof(tasks_text) - 1, err);
	int rc = in ? pl_tprog_tasks_read(in, &tasks, err) : err->code;

	for (size_t i = 0; i < tasks.n && rc >= 0; i++)
		for (int k = 0; k < each && rc >= 0; k++)
			rc = add_program(s, &tasks.v[i], first + (uint64_t)k, device, factor, err);
	pl_tprog_tasks_fini(&tasks);
	pl_in_close(in);
	return rc;
}

static double mean_error(struct pl_tprog_model *m, const struct pl_tprog_set *s, struct pl_err *err)
{
	struct pl_tprog_time *t = NULL;
	double sum = 0;

	if (pl_alloc(&t, s->n, sizeof(*t), err) < 0 || pl_tprog_apply(m, s, t, err) < 0)
		sum = INFINITY;
	for (size_t i = 0; i < s->n && isfinite(sum); i++)
		sum += fabs(t[i].ns / s->v[i].ns - 1);
	pl_free(t);
	return sum / (double)s->n;
}

static char *model_file(const struct pl_tprog_model *m, size_t *n, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, err);

	if (!out || pl_out_finish(out, pl_tprog_model_write(m, "a test", out, 1, err), err) < 0)
		return NULL;
	*n = b.n;
	return (char *)b.p;
}

static struct pl_tprog_model *read_file(const char *p, size_t n, struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem("file", p, n, err);
	struct pl_tprog_model *m = NULL;

	if (in && pl_tprog_model_read(in, &m, err) < 0)
		m = NULL;
	pl_in_close(in);
	return m;
}

static void test_file(const struct pl_tprog_model *m, const struct pl_tprog_set *s)
{
	struct pl_err err = { 0 };
	struct pl_tprog_model *again;
	size_t n = 0, wrong = 0;
	char *file = model_file(m, &n, &err), *copy;

	again = file ? read_file(file, n, &err) : NULL;
	if (!ok(again != NULL, "a file, and back: %s", err.msg))
		return;
	is_i64((long long)(1e9 * mean_error(again, s, &err)),
	       (long long)(1e9 * mean_error((struct pl_tprog_model *)m, s, &err)),
	       "its predictions are the same");
	copy = model_file(again, &wrong, &err);
	ok(copy && wrong == n && !memcmp(copy, file, n), "... and its bytes");
	pl_tprog_model_free(again);
	wrong = 0;
	for (size_t i = 0; i < n; i += n / 40 + 1) {
		struct pl_err e = { 0 };

		again = read_file(file, i, &e);
		wrong += again != NULL;
		pl_tprog_model_free(again);
		file[i] = (char)~file[i];
		again = read_file(file, n, &e);
		file[i] = (char)~file[i];
		wrong += again != NULL;
		pl_tprog_model_free(again);
	}
	is_i64((long long)wrong, 0, "a file that is cut off or changed is refused");
	pl_free(copy);
	pl_free(file);
}

static const struct pl_tprog_settings small = { .layers = 1,
						.heads = 2,
						.width = 16,
						.latent = 12,
						.batch = 32,
						.rate = 4e-3,
						.relative = 1,
						.power = NAN };

/* Adaptation with a network: some programs of `odd` are measured, all are known. */
static void test_network(struct pl_tprog_model *m, const struct pl_tprog_set *odd,
			 const struct pl_tprog_set *other)
{
	struct pl_tprog_adapt_opts o = { .target = odd, .seed = 1 };
	struct pl_tprog_set few = *odd, least = *odd;
	double before = 0, loose = 0, held = 0, d = 0, offsets, error;
	struct pl_err err = { 0 };

	few.n = odd->n / 2;
	least.n = 6;
	ok(pl_tprog_adapt(m, &least, &o, &err) == 0, "six programs %s", err.msg);
	offsets = mean_error(m, odd, &err);
	ok(offsets > 0.3, "... are too few for a network: error %g", offsets);
	ok(pl_tprog_discrepancy(m, odd, &before, &err) == 0 && before > 0 &&
		   pl_tprog_adapt(m, &few, &o, &err) == 0 &&
		   pl_tprog_discrepancy(m, odd, &loose, &err) == 0,
	   "from %zu it learns on %s", few.n, err.msg);
	error = mean_error(m, odd, &err);
	ok(error < 0.7 * offsets, "... which offsets do not say: error %g", error);
	o.discrepancy = 10;
	ok(pl_tprog_adapt(m, &few, &o, &err) == 0 && pl_tprog_discrepancy(m, odd, &held, &err) == 0,
	   "... with its moments held %s", err.msg);
	error = mean_error(m, odd, &err);
	ok(error < 0.9 * offsets, "... error %g", error);
	ok(held < 0.5 * loose,
	   "... which makes their discrepancy less: %g, and %g without; "
	   "%g before",
	   held, loose, before);
	o.discrepancy = 0;
	ok(pl_tprog_adapt(m, &few, &o, &err) == 0 && pl_tprog_discrepancy(m, odd, &d, &err) == 0,
	   "again without");
	is_i64((long long)(1e9 * d), (long long)(1e9 * loose),
	       "... it begins with the network as it was fitted");
	ok(pl_tprog_adapt(m, other, &o, &err) == 0, "... and goes back");
	error = mean_error(m, other, &err);
	ok(error < 0.2, "... error %g", error);
	ok(pl_tprog_adapt(m, &few, &o, &err) == 0, "... and to the odd one");
}

static void test_tune(void)
{
	struct pl_tprog_fit_opts o = { .learner = PL_TPROG_NET, .seed = 3 };
	struct pl_tprog_trial a[4], b[4];
	struct pl_tprog_set s = { .n = 0 }, one = { .n = 0 };
	size_t best = 9, again = 9, rungs[PL_TPROG_RUNGS + 1] = { 0 }, differ = 0, worse = 0;
	struct pl_pool *pool = NULL;
	struct pl_err err = { 0 };

	if (!ok(fill(&s, 1, 4, "box", 1, &err) == 0, "programs %s", err.msg))
		goto out;
	memset(a, 0, sizeof(a));
	memset(b, 0, sizeof(b));
	o.pool = pool = pl_pool_new(1, &err);
	ok(pool && pl_tprog_tune(&s, &o, a, 4, &best, &err) == 0, "four trials %s", err.msg);
	pl_pool_free(pool);
	o.pool = pool = pl_pool_new(3, &err);
	ok(pool && pl_tprog_tune(&s, &o, b, 4, &again, &err) == 0, "... by three threads");
	for (int i = 0; i < 4; i++) {
		rungs[a[i].rungs]++;
		differ += a[i].rungs != b[i].rungs ||
			  memcmp(a[i].error, b[i].error, sizeof(a[i].error)) != 0;
		worse += best < 4 && a[i].rungs == PL_TPROG_RUNGS && i != (int)best &&
			 !(a[i].error[PL_TPROG_RUNGS - 1] > 0);
	}
	is_i64((long long)differ, 0, "... have the same errors");
	ok(best < 4 && best == again && a[best].rungs == PL_TPROG_RUNGS && !worse,
	   "... and the same best one, which took part in all rungs");
	ok(rungs[1] == 2 && rungs[2] == 1 && rungs[3] == 1, "a third of them goes on each time");
	for (int i = 0; i < 4; i++) /* who went on was better than who did not */
		for (int k = 0; k < 4; k++)
			worse += a[i].rungs > a[k].rungs &&
				 a[i].error[a[k].rungs - 1] > a[k].error[a[k].rungs - 1];
	is_i64((long long)worse, 0, "... the better ones");
	ok(a[0].settings.width == pl_tprog_usual.width && a[1].settings.rate != a[2].settings.rate,
	   "the first are the usual settings, the others differ");
	one = s;
	one.n = 8; /* of the first model */
	ok(pl_tprog_tune(&one, &o, b, 1, &best, &err) == PL_EDATA, "one model is too few: %s",
	   err.msg);
out:
	pl_pool_free(pool);
	pl_tprog_set_fini(&s);
}

static void test_models(void)
{
	struct pl_tprog_fit_opts o = { .intervals = true, .threads = 1, .seed = 1 };
	const struct pl_tprog_adapt_opts adapt = { .discrepancy = 1 };
	struct pl_tprog_set s = { .n = 0 }, slow = { .n = 0 }, other = { .n = 0 };
	struct pl_tprog_set odd = { .n = 0 };
	struct pl_tprog_model *m = NULL;
	struct pl_tprog_time *t = NULL;
	struct pl_err err = { 0 };
	size_t inside = 0;

	if (!ok(fill(&s, 1, SIZE(60, 40), "box", 1, &err) == 0 &&
			fill(&other, 1001, 20, "box", 1, &err) == 0 &&
			fill(&slow, 2001, 4, "slow", 3, &err) == 0 &&
			fill(&odd, 3001, 12, "odd", 1, &err) == 0,
		"programs %s", err.msg))
		goto out;
	if (!ok(pl_tprog_fit(&s, &o, &m, &err) == 0, "trees %s", err.msg))
		goto out;
	ok(mean_error(m, &other, &err) < 0.1, "times that follow a rule are learned");
	ok(pl_alloc(&t, s.n, sizeof(*t), &err) == 0 && pl_tprog_apply(m, &s, t, &err) == 0,
	   "applied");
	for (size_t i = 0; i < s.n; i++)
		inside += t[i].inside && t[i].lo_ns <= t[i].ns && t[i].ns <= t[i].hi_ns;
	is_i64((long long)inside, (long long)s.n, "all are in range, and in their interval");
	test_file(m, &s);
	ok(mean_error(m, &slow, &err) > 0.6, "another device is slower");
	ok(pl_tprog_adapt(m, &slow, &adapt, &err) == 0 && mean_error(m, &slow, &err) < 0.1,
	   "... which a few programs tell");
	ok(pl_tprog_adapt(m, &other, &adapt, &err) == 0 && mean_error(m, &other, &err) < 0.1,
	   "it can be adapted again");
	ok(pl_tprog_adapt(m, &slow, &adapt, &err) == 0 && mean_error(m, &slow, &err) < 0.1,
	   "... and back");
	test_file(m, &slow);
	pl_tprog_model_free(m);
	o.learner = PL_TPROG_BOTH;
	o.settings = &small;
	o.intervals = false;
	if (ok(pl_tprog_fit(&s, &o, &m, &err) == 0, "trees and a network %s", err.msg)) {
		ok(mean_error(m, &other, &err) < 0.2, "... learn it, too");
		test_file(m, &other);
		test_network(m, &odd, &other);
		test_file(m, &odd);
	}
	ok(pl_tprog_set_add(&s, &(struct pl_tprog){ .name = "empty", .model = "", .op = "" }, true,
			    &err) < 0,
	   "a program that computes nothing is refused");
out:
	pl_free(t);
	pl_tprog_model_free(m);
	pl_tprog_set_fini(&s);
	pl_tprog_set_fini(&other);
	pl_tprog_set_fini(&slow);
	pl_tprog_set_fini(&odd);
}

/* A normal deviate, as the sum of twelve uniform ones. */
static double normal(uint64_t *rng)
{
	double sum = 0;

	for (int i = 0; i < 12; i++)
		sum += (double)(pl_rng_next(rng) >> 11) * 0x1p-53;
	return sum - 6;
}

/* Another device: three times as slow, by a factor of each operation, with noise. */
static int fill_far(struct pl_tprog_set *s, uint64_t first, int each, double noise,
		    struct pl_err *err)
{
	uint64_t rng = first;

	PL_CHECK(fill(s, first, each, "far", 3, err));
	for (size_t i = 0; i < s->n; i++)
		s->v[i].ns *= (1 + 0.3 * (double)(strlen(s->names.str[s->v[i].op]) % 4)) *
			      exp(noise * normal(&rng));
	return 0;
}

/* The share of the times that lie in their intervals, and the mean width of these, as logarithms.
 */
static int look_at_intervals(struct pl_tprog_model *m, const struct pl_tprog_set *s, double *held,
			     double *width, struct pl_err *err)
{
	struct pl_tprog_time *t;
	int rc;

	*held = *width = 0;
	PL_CHECK(pl_alloc(&t, s->n, sizeof(*t), err));
	rc = pl_tprog_apply(m, s, t, err);
	for (size_t i = 0; i < s->n && rc >= 0; i++) {
		*held += t[i].lo_ns <= s->v[i].ns && s->v[i].ns <= t[i].hi_ns;
		*width += log(t[i].hi_ns / t[i].lo_ns);
	}
	pl_free(t);
	*held /= (double)s->n;
	*width /= (double)s->n;
	return rc;
}

/* Intervals of an adapted model hold programs of the new device that it has not seen. */
static void test_adapted_intervals(void)
{
	const struct pl_tprog_fit_opts o = { .intervals = true, .threads = 1, .seed = 1 };
	const struct pl_tprog_adapt_opts adapt = { .discrepancy = 1 };
	const double noise[] = { 0, 0.4, 0.8, 0 };
	struct pl_tprog_set s = { .n = 0 };
	struct pl_tprog_model *m = NULL;
	struct pl_err err = { 0 };
	double held = 0, width[PL_LEN(noise)] = { 0 };

	if (!ok(fill(&s, 1, 20, "box", 1, &err) == 0 && pl_tprog_fit(&s, &o, &m, &err) == 0,
		"a model %s", err.msg))
		goto out;
	for (size_t k = 0; k < PL_LEN(noise); k++) {
		struct pl_tprog_set few = { .n = 0 }, fresh = { .n = 0 };

		ok(fill_far(&few, 4001, 17, noise[k], &err) == 0 &&
			   fill_far(&fresh, 5001, 50, noise[k], &err) == 0,
		   "programs of a device with noise %g %s", noise[k], err.msg);
		few.n = pl_min_size(few.n, 100);
		ok(pl_tprog_adapt(m, &few, &adapt, &err) == 0 &&
			   look_at_intervals(m, &fresh, &held, &width[k], &err) == 0,
		   "... adapt it %s", err.msg);
		ok(held >= 0.85, "... its intervals hold %.3g of %zu others", held, fresh.n);
		pl_tprog_set_fini(&few);
		pl_tprog_set_fini(&fresh);
	}
	ok(width[0] < width[1] && width[1] < width[2], "more noise makes them wider");
	ok(width[3] == width[0], "... and less makes them what they were");
out:
	pl_tprog_model_free(m);
	pl_tprog_set_fini(&s);
}

/* By how much calibration moves predictions if the programs are those of n networks; as a
 * logarithm, of the program that it moves most. */
static int find_shift(struct pl_tprog_set *s, size_t n, double *shift, struct pl_err *err)
{
	struct pl_tprog_fit_opts o = { .threads = 1, .seed = 1 };
	struct pl_tprog_time *t = NULL;
	struct pl_tprog_model *m = NULL;
	int rc;

	PL_TRY(pl_alloc(&t, 2 * s->n, sizeof(*t), err));
	for (size_t i = 0; i < s->n; i++) {
		char name[32];

		snprintf(name, sizeof(name), "network %zu", i % n);
		PL_TRY(pl_intern_add(&s->names, name, strlen(name), &s->v[i].model, err));
	}
	for (int k = 0; k < 2; k++) {
		o.intervals = k;
		pl_tprog_model_free(m);
		PL_TRY(pl_tprog_fit(s, &o, &m, err));
		PL_TRY(pl_tprog_apply(m, s, t + (size_t)k * s->n, err));
	}
	*shift = 0;
	for (size_t i = 0; i < s->n; i++)
		*shift = fmin(*shift, log(t[s->n + i].ns / t[i].ns));
	rc = 0;
out:
	pl_tprog_model_free(m);
	pl_free(t);
	return rc;
}

/* Times with noise have the least relative error if predictions are short; a few networks are too
 * few to show by how much. */
static void test_few_networks(void)
{
	struct pl_tprog_set s = { .n = 0 };
	struct pl_err err = { 0 };
	double few = 0, many = 0;

	ok(fill_far(&s, 1, 20, 0.8, &err) == 0 && find_shift(&s, 3, &few, &err) == 0 &&
		   find_shift(&s, 40, &many, &err) == 0,
	   "programs with noise, of three networks and of 40 %s", err.msg);
	ok(many < -0.4, "forty networks make predictions shorter: by a factor of %.3g", exp(many));
	ok(few < 0 && few > 0.7 * many, "... three of them by less: by a factor of %.3g", exp(few));
	pl_tprog_set_fini(&s);
}

/* The predictions for a group do not depend on its own measurements. */
static void test_cross(void)
{
	const struct pl_tprog_fit_opts o = { .intervals = true, .threads = 1, .seed = 1 };
	struct pl_tprog_set s = { .n = 0 };
	struct pl_tprog_time *t = NULL, *again = NULL;
	size_t differ = 0, others = 0, held = 0, n = 0;
	pl_id *group = NULL, last = 0;
	struct pl_err err = { 0 };

	if (!ok(fill(&s, 1, SIZE(60, 40), "box", 1, &err) == 0 &&
			pl_alloc(&group, s.n, sizeof(*group), &err) == 0 &&
			pl_alloc(&t, s.n, sizeof(*t), &err) == 0 &&
			pl_alloc(&again, s.n, sizeof(*again), &err) == 0,
		"programs %s", err.msg))
		goto out;
	for (size_t i = 0; i < s.n; i++)
		last = group[i] = s.v[i].model;
	ok(pl_tprog_cross(&s, group, &o, t, &err) == 0, "networks are left out %s", err.msg);
	for (size_t i = 0; i < s.n; i++)
		if (group[i] == last)
			s.v[i].ns *= 1000;
	ok(pl_tprog_cross(&s, group, &o, again, &err) == 0,
	   "... one of them takes 1000 times as long");
	for (size_t i = 0; i < s.n; i++) {
		bool same = t[i].ns == again[i].ns && t[i].lo_ns == again[i].lo_ns &&
			    t[i].hi_ns == again[i].hi_ns;

		differ += group[i] == last && !same;
		others += group[i] != last && !same;
		n += group[i] == last;
		held += t[i].lo_ns <= t[i].ns && t[i].ns <= t[i].hi_ns;
	}
	ok(n > 0 && held == s.n, "all have intervals");
	is_i64((long long)differ, 0, "its predictions and intervals stay the same");
	ok(others > 0, "... those of the others do not");
out:
	pl_free(group);
	pl_free(t);
	pl_free(again);
	pl_tprog_set_fini(&s);
}

static void test_choose(void)
{
	struct pl_tprog_set s = { .n = 0 };
	size_t chosen[24], all[360], wrong = 0;
	struct pl_err err = { 0 };

	if (!ok(fill(&s, 1, 4, "box", 1, &err) == 0, "programs %s", err.msg))
		goto out;
	ok(pl_tprog_choose(&s, 6, 1, chosen, &err) == 0, "six of them");
	for (int i = 0; i < 6; i++)
		for (int k = 0; k < i; k++) {
			wrong += chosen[k] >= chosen[i];
			wrong += s.v[chosen[k]].model == s.v[chosen[i]].model &&
				 s.v[chosen[k]].op == s.v[chosen[i]].op &&
				 s.v[chosen[k]].work == s.v[chosen[i]].work &&
				 !memcmp(s.v[chosen[k]].x, s.v[chosen[i]].x, sizeof(s.v[0].x));
		}
	is_i64((long long)wrong, 0, "... in order, and no two alike");
	ok(pl_tprog_choose(&s, s.n, 1, all, &err) == 0 && all[0] == 0 && all[s.n - 1] == s.n - 1,
	   "all of them");
	ok(pl_tprog_choose(&s, s.n + 1, 1, all, &err) < 0, "but not more");
out:
	pl_tprog_set_fini(&s);
}

/* A batch of one program has no room for one without a time. */
static void test_batch_of_one(void)
{
	struct pl_tprog_settings one = small;
	const struct pl_tprog_fit_opts o = {
		.learner = PL_TPROG_NET, .settings = &one, .share = 0.02, .threads = 1, .seed = 1
	};
	const struct pl_tprog_adapt_opts adapt = { .discrepancy = 1 };
	struct pl_tprog_set s = { .n = 0 };
	struct pl_tprog_model *m = NULL;
	struct pl_err err = { 0 };

	one.batch = 1;
	ok(fill(&s, 1, 4, "box", 1, &err) == 0 && pl_tprog_fit(&s, &o, &m, &err) == 0,
	   "a network learns from one program at a time %s", err.msg);
	ok(m && pl_tprog_adapt(m, &s, &adapt, &err) == 0, "... and is adapted so %s", err.msg);
	pl_tprog_model_free(m);
	pl_tprog_set_fini(&s);
}

int main(void)
{
	ALONE(test_models());
	ALONE(test_adapted_intervals());
	ALONE(test_few_networks());
	test_tune();
	test_batch_of_one();
	ALONE(test_cross());
	ALONE(test_choose());
	return done_testing();
}
