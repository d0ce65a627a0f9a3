/*
 * Policies train: simulated workers descend a noisy quadratic bowl, and a server of a few lines
 * carries out the updates in double. bsp equals serial training with the sum of the batches, one
 * worker equals serial training under every policy, sums are exact, outer momentum follows the
 * published formulas step by step, and the rate of commits from which adsp begins is a good one.
 */
#include "policy_fixture.h"

#include "policy/simulate.h"

#define DIMS	8
#define WORKERS 8

struct lab {
	double w[DIMS], s[DIMS], v[DIMS]; /* of the server */
	double u[WORKERS][DIMS], pulled[WORKERS][DIMS], factor[WORKERS];
	double rate, noise;
	uint64_t seed, taken[WORKERS]; /* steps of each worker */
	bool integers;		       /* commits are random whole numbers */
	double sum[DIMS];	       /* of all commits */
	double target, last;	       /* loss; last: mean loss of late updates */
	uint32_t updates;
	pl_ns reached; /* 0: never */
	/* reference of outer momentum: after each update, W as by the published formula */
	void (*formula)(struct lab *l, const double *u);
	double ref_w[DIMS], ref_m[DIMS], ref_d[DIMS], error;
	uint32_t commits, m;
	uint32_t moves, comparisons; /* notes that a setting was taken, and of comparisons */
};

static double curvature(int k)
{
	return pow(10, -2.0 * k / (DIMS - 1));
}

static double loss_at(const double *w)
{
	double sum = 0;

	for (int k = 0; k < DIMS; k++)
		sum += curvature(k) / 2 * w[k] * w[k];
	return sum;
}

/* About normal. */
static double noise_of(uint64_t *seed)
{
	double sum = -6;

	for (int i = 0; i < 12; i++)
		sum += (double)(pl_rng_next(seed) >> 11) * 0x1p-53;
	return sum;
}

/* Gradient of step t of a worker; returns the loss that it sees. */
static double gradient(const struct lab *l, uint32_t worker, uint64_t t, const double *w, double *g)
{
	uint64_t seed = l->seed * 1000003 + worker * 7919 + t * 104729;

	for (int k = 0; k < DIMS; k++)
		g[k] = curvature(k) * w[k] + l->noise * sqrt(curvature(k)) * noise_of(&seed);
	return loss_at(w) * (1 + l->noise * noise_of(&seed));
}

/* The local steps of a commit. */
static int work(void *arg, struct pl_policy_event *e, struct pl_err *err)
{
	struct lab *l = arg;
	uint32_t i = e->worker;
	double x[DIMS], g[DIMS], loss = 0;

	(void)err;
	if (e->kind != PL_POLICY_COMMITTED)
		return 0;
	memcpy(x, l->pulled[i], sizeof(x));
	for (uint64_t t = 0; t < e->steps; t++) {
		loss += gradient(l, i, l->taken[i]++, x, g);
		for (int k = 0; k < DIMS; k++)
			x[k] -= l->rate * l->factor[i] * g[k];
	}
	for (int k = 0; k < DIMS; k++) {
		l->u[i][k] = x[k] - l->pulled[i][k];
		if (l->integers)
			l->u[i][k] = (double)(pl_rng_next(&l->seed) % 2001) - 1000;
		l->sum[k] += l->u[i][k];
	}
	e->loss = l->integers ? (double)NAN : loss / (double)e->steps;
	return 0;
}

static void apply(struct lab *l, const struct pl_policy_update *f, const double *u, pl_ns now)
{
	for (int k = 0; k < DIMS; k++) {
		l->s[k] += f->s_u * u[k];
		l->v[k] = f->v_v * l->v[k] + f->v_u * u[k] + f->v_s * l->s[k];
		l->w[k] += f->w_u * u[k] + f->w_s * l->s[k] + f->w_v * l->v[k];
		if (f->clear)
			l->s[k] = 0;
	}
	if (l->formula) {
		l->formula(l, u);
		for (int k = 0; k < DIMS; k++)
			l->error = worse(l->error, fabs(l->w[k] - l->ref_w[k]));
	}
	if (!l->reached && loss_at(l->w) < l->target)
		l->reached = now;
	l->updates++;
	l->last += (loss_at(l->w) - l->last) / (l->updates < 500 ? l->updates : 500);
}

static int act(void *arg, const struct pl_policy *p, const struct pl_policy_action *a, pl_ns now,
	       struct pl_err *err)
{
	struct lab *l = arg;

	(void)err;
	(void)p;
	if (a->kind == PL_POLICY_UPDATE)
		apply(l, &a->update, l->u[a->worker], now);
	if (a->kind == PL_POLICY_REPLY)
		memcpy(l->pulled[a->worker], l->w, sizeof(l->w));
	if (a->kind == PL_POLICY_REPLY || a->kind == PL_POLICY_ORDER)
		l->factor[a->worker] = a->order.rate;
	l->moves += a->kind == PL_POLICY_NOTE && strstr(a->text, "taken") != NULL;
	if (l->reached)
		return PL_ESTOP; /* what was asked is known */
	l->comparisons += a->kind == PL_POLICY_NOTE && strstr(a->text, "loss falls") != NULL;
	return 0;
}

static struct pl_policy_sim_result result[WORKERS];

static bool train(struct lab *l, const char *policy, const double *speed, uint32_t n, pl_ns until)
{
	struct pl_policy_opts p = policy_opts(policy, n);
	struct pl_policy_sim_worker w[WORKERS];
	struct pl_policy_sim_opts o = {
		.policy = &p, .worker = w, .until = until, .event = work, .act = act, .arg = l
	};
	struct pl_err err = { 0 };
	int rc;

	for (uint32_t i = 0; i < n; i++)
		w[i] = (struct pl_policy_sim_worker){ .step_ns = (pl_ns)(0.1 * S / speed[i]) +
								 i * 1000 };
	for (int k = 0; k < DIMS; k++)
		l->w[k] = l->ref_w[k] = l->integers ? 0 : 3;
	l->m = n;
	rc = pl_policy_simulate(&o, result, &err);
	return rc == (l->reached ? PL_ESTOP : 0);
}

/* ---- equalities ------------------------------------------------------------------------------ */

static double serial_error(const struct lab *l, uint32_t workers, uint64_t steps)
{
	double w[DIMS], g[DIMS], mean[DIMS], error = 0;

	for (int k = 0; k < DIMS; k++)
		w[k] = 3;
	for (uint64_t t = 0; t < steps; t++) {
		memset(mean, 0, sizeof(mean));
		for (uint32_t i = 0; i < workers; i++) {
			gradient(l, i, t, w, g);
			for (int k = 0; k < DIMS; k++)
				mean[k] += g[k] / workers;
		}
		for (int k = 0; k < DIMS; k++)
			w[k] -= l->rate * mean[k];
	}
	for (int k = 0; k < DIMS; k++)
		error = worse(error, fabs(w[k] - l->w[k]));
	return error;
}

static void serial(void)
{
	static const char *const one[] = { "bsp",     "ssp",  "asp",	"local:7", "fixed-adacomm",
					   "adacomm", "adsp", "adsp:3", "adsp++",  "batchtune" };
	static const double speed[] = { 1, 2, 3, 4 };
	struct lab l = { .rate = 0.3, .noise = 0.5, .seed = 5 };

	ok(train(&l, "bsp", speed, 4, 50 * S), "bsp with 4 workers");
	ok(serial_error(&l, 4, result[0].seen.steps) < 1e-12 && result[0].seen.steps == 500,
	   "... is serial training with 4 times the batch: %.1e",
	   serial_error(&l, 4, result[0].seen.steps));
	for (size_t i = 0; i < PL_LEN(one); i++) {
		struct lab alone = { .rate = 0.3, .noise = 0.5, .seed = 5 };
		bool done = train(&alone, one[i], speed, 1, 100 * S);

		ok(done && serial_error(&alone, 1, result[0].seen.steps) < 1e-12 &&
			   result[0].seen.steps > 950,
		   "%s with one worker is serial training", one[i]);
	}
}

/* All commit, then all pull: with one step a commit this is synchronous training. */
static void lock_step(const char *policy)
{
	struct lab l = { .rate = 0.3, .noise = 0.5, .seed = 9, .m = 4 };
	struct pl_policy *p = policy_new(policy, 4);
	double error = 0;

	for (int k = 0; k < DIMS; k++)
		l.w[k] = 3;
	for (uint32_t i = 0; i < 4; i++) {
		joins(p, i, 0);
		l.factor[i] = 1;
	}
	for (int t = 1; t <= 40; t++) {
		for (uint32_t i = 0; i < 4; i++)
			memcpy(l.pulled[i], l.w, sizeof(l.w));
		for (uint32_t i = 0; i < 4; i++) {
			struct pl_policy_event e = commit_of(p, i, t * 10 * MS, 1, 10 * MS);
			const struct pl_policy_action *a;
			struct pl_err err = { 0 };
			size_t n = 0;

			if (work(&l, &e, &err) < 0 || pl_policy_handle(p, &e, &a, &n, &err) < 0)
				error = INFINITY;
			for (size_t k = 0; k < n; k++)
				if (a[k].kind == PL_POLICY_UPDATE)
					apply(&l, &a[k].update, l.u[i], e.now);
		}
	}
	error = worse(error, serial_error(&l, 4, 40));
	ok(error < 1e-12, "%s in lock step is synchronous training: %.1e", policy, error);
	pl_policy_free(p);
}

/* Commits of whole numbers, divided by four: no sum is rounded. */
static void exact_sums(void)
{
	static const char *const policies[] = { "bsp",	"ssp:3",     "asp",    "local:4",
						"adsp", "adacomm:4", "adsp:5", "adsp++" };
	static const double speed[] = { 1, 1.3, 2.1, 3.7 };

	for (size_t i = 0; i < PL_LEN(policies); i++) {
		struct lab l = { .integers = true, .seed = 3 };
		bool equal = train(&l, policies[i], speed, 4, 30 * S);

		for (int k = 0; k < DIMS; k++) /* the round that is open is in S */
			equal = equal && 4 * l.w[k] + l.s[k] == l.sum[k] && l.w[k] != 0;
		ok(equal, "%s: the sum of all commits is the change of W, exactly", policies[i]);
	}
}

/* ---- outer momentum -------------------------------------------------------------------------- */

/* DiLoCo: the outer gradient is the mean of W - W_i, for SGD with Nesterov as PyTorch has it. */
static void diloco_formula(struct lab *l, const double *u)
{
	for (int k = 0; k < DIMS; k++)
		l->ref_d[k] -= u[k];
	if (++l->commits % l->m)
		return;
	for (int k = 0; k < DIMS; k++) {
		double g = l->ref_d[k] / l->m;

		l->ref_m[k] = 0.9 * l->ref_m[k] + g;
		l->ref_w[k] -= 0.7 * (g + 0.9 * l->ref_m[k]);
		l->ref_d[k] = 0;
	}
}

/* Delayed Nesterov, with g = -U. */
static void dylu_formula(struct lab *l, const double *u)
{
	bool last = ++l->commits % l->m == 0;

	for (int k = 0; k < DIMS; k++) {
		double g = -u[k];

		l->ref_w[k] -= 0.7 * g / l->m;
		l->ref_d[k] += g;
		if (!last)
			continue;
		l->ref_m[k] = 0.9 * l->ref_m[k] + l->ref_d[k] / l->m;
		l->ref_w[k] -= 0.7 * 0.9 * l->ref_m[k];
		l->ref_d[k] = 0;
	}
}

static void outer_momentum(void)
{
	static const double speed[] = { 1, 1.3, 2.1 };
	struct lab a = { .rate = 0.02, .noise = 0.5, .seed = 4, .formula = diloco_formula };
	struct lab b = { .rate = 0.02, .noise = 0.5, .seed = 4, .formula = dylu_formula };
	bool done = train(&a, "diloco:5", speed, 3, 60 * S);

	ok(done && a.error < 1e-12 && a.updates > 300,
	   "diloco is the formula after each of %u updates: %.1e", a.updates, a.error);
	done = train(&b, "dylu:6", speed, 3, 60 * S);
	ok(done && b.error < 1e-12 && b.updates > 300,
	   "dylu is the formula after each of %u updates: %.1e", b.updates, b.error);
}

/* ---- the rate of commits --------------------------------------------------------------------- */

#define SEEDS CASES(5)

/* Median time to the target, s. */
static double time_to_target(const char *policy, double rate, double noise)
{
	static const double speed[] = { 1, 1, 1, 1, 2, 2, 4, 4 };
	double time[5];

	for (int i = 0; i < SEEDS; i++) {
		struct lab l = {
			.rate = rate, .noise = noise, .seed = (uint64_t)i + 1, .target = 0.02
		};
		bool done = train(&l, policy, speed, 8, 300 * S);

		time[i] = done && l.reached ? (double)l.reached / S : 1e9;
	}
	return pl_median_double(time, SEEDS);
}

/*
 * Commits that cost nothing: rates 1, 2, 4, 8 a period, a search that begins at its limit, which is
 * 8, and bsp. With small learning rates all rates are alike, since local steps are then nearly as
 * good as common ones; with great ones, more commits are better.
 */
static void rates(void)
{
	static const char *const policies[] = { "adsp:1", "adsp:2", "adsp:4",
						"adsp:8", "adsp",   "bsp" };
	static const double rate[] = { 0.05, 0.2, 0.8 };
	double t[3][PL_LEN(policies)], best, loss_of_start = 0;

	for (size_t r = 0; r < PL_LEN(rate); r++) {
		printf("# learning rate %g:", rate[r]);
		for (size_t i = 0; i < PL_LEN(policies); i++) {
			t[r][i] = time_to_target(policies[i], rate[r], 0.3);
			printf(" %s %.1f s", policies[i], t[r][i]);
		}
		printf("\n");
		best = fmin(fmin(t[r][0], t[r][1]), fmin(t[r][2], t[r][3]));
		loss_of_start = worse(loss_of_start, t[r][4] / best);
		ok(t[r][4] < 0.62 * t[r][5], "adsp needs %.2f of bsp's time (1 / H is 0.5)",
		   t[r][4] / t[r][5]);
	}
	ok(loss_of_start < 1.1, "... and at most %.2f of the time of the best rate", loss_of_start);
	ok(t[2][0] > 1.5 * t[2][4], "one commit a period would take %.2f of the time",
	   t[2][0] / t[2][4]);
}

/* ---- the search ------------------------------------------------------------------------------ */

/* Losses without a trend, from which nothing can be told. */
static int pure_noise(void *arg, struct pl_policy_event *e, struct pl_err *err)
{
	struct lab *l = arg;

	(void)err;
	e->loss = 1 + 0.2 * noise_of(&l->seed);
	return 0;
}

static void search(void)
{
	static const double speed[] = { 1, 1, 2, 4, 1, 1, 2, 4 };
	struct pl_policy_opts p = policy_opts("adsp++", 4);
	struct pl_policy_sim_worker w[4];
	struct lab noisy = { .seed = 2 }, plain = { .rate = 0.8, .noise = 1, .seed = 3 },
		   plus = plain;
	struct pl_policy_sim_opts o = { .policy = &p,
					.worker = w,
					.until = CASES(20000) * S,
					.event = pure_noise,
					.act = act,
					.arg = &noisy };
	struct pl_err err = { 0 };
	bool done;

	for (int i = 0; i < 4; i++)
		w[i] = (struct pl_policy_sim_worker){ .step_ns = (pl_ns)(0.1 * S / speed[i]) };
	done = pl_policy_simulate(&o, result, &err) == 0;
	ok(done && noisy.comparisons > CASES(1000) && noisy.moves * 50 < noisy.comparisons,
	   "noise moves the setting %u times in %u comparisons", noisy.moves, noisy.comparisons);
	/* At the floor of the noise, less of the learning rate is better. */
	done = train(&plain, "adsp", speed, 8, 300 * S) &&
	       train(&plus, "adsp++", speed, 8, 300 * S);
	ok(done && plus.moves > 0 && plus.last < plain.last / 3,
	   "adsp++ finds a smaller learning rate: loss %.3g, adsp %.3g", plus.last, plain.last);
}

int main(void)
{
	serial();
	lock_step("asp");
	lock_step("ssp:0");
	lock_step("adsp");
	lock_step("bsp");
	exact_sums();
	outer_momentum();
	rates();
	search();
	return done_testing();
}
