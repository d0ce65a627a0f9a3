/*
 * Boosted trees against a slow version that tries each split of each leaf on the samples
 * themselves; order of monotone features, values that are not known, threads, the form in bytes.
 *
 * runner: threads
 */
#include <math.h>

#include "learn/boost.h"
#include "tap.h"

#define FEATURES 4
#define SAMPLES	 240
#define LEAVES	 8

static uint64_t seed = 1;

static double uniform(void)
{
	return (double)(pl_rng_next(&seed) >> 11) * 0x1p-53;
}

/* Samples in columns that a test owns. */
struct set {
	size_t n;
	uint32_t features;
	float *x[16], *y, *weight, *start;
	struct pl_boost_data d;
};

/* `different`: values of a feature, 0: all. `unknown`: share of values that are not known. */
static void set_init(struct set *s, size_t n, uint32_t features, uint32_t different, double unknown)
{
	*s = (struct set){ .n = n, .features = features };
	s->y = pl_calloc(n, sizeof(*s->y));
	s->weight = pl_calloc(n, sizeof(*s->weight));
	s->start = pl_calloc(n, sizeof(*s->start));
	for (uint32_t f = 0; f < features; f++) {
		s->x[f] = pl_calloc(n, sizeof(**s->x));
		for (size_t i = 0; i < n; i++)
			s->x[f][i] = uniform() < unknown ? NAN
				     : different ? floorf((float)(uniform() * different)) * 0.37f
						 : (float)uniform();
	}
	for (size_t i = 0; i < n; i++) {
		s->y[i] = (float)(uniform() * 2);
		for (uint32_t f = 0; f < features; f++)
			s->y[i] += isnan(s->x[f][i]) ? 0.3f : (float)(f + 1) * s->x[f][i];
		s->weight[i] = (float)(0.5 + uniform());
		s->start[i] = (float)uniform();
	}
	s->d = (struct pl_boost_data){
		.n = n, .n_features = features, .x = (const float *const *)s->x, .y = s->y
	};
}

static void set_fini(struct set *s)
{
	for (uint32_t f = 0; f < s->features; f++)
		pl_free(s->x[f]);
	pl_free(s->y);
	pl_free(s->weight);
	pl_free(s->start);
}

static void row(const struct set *s, size_t i, float *x)
{
	for (uint32_t f = 0; f < s->features; f++)
		x[f] = s->x[f][i];
}

static struct pl_boost fit(const struct set *s, const struct pl_boost_opts *o)
{
	struct pl_err err = { 0 };
	struct pl_boost m;

	if (pl_boost_fit(&s->d, o, &m, &err) < 0)
		ok(false, "fit: %s", err.msg);
	return m;
}

static bool same_bytes(const struct pl_boost *a, const struct pl_boost *b)
{
	struct pl_buf x = { 0 }, y = { 0 };
	bool same;

	pl_boost_put(a, &x);
	pl_boost_put(b, &y);
	same = x.n > 100 && x.n == y.n && !memcmp(x.p, y.p, x.n);
	pl_buf_fini(&x);
	pl_buf_fini(&y);
	return same;
}

/* ---- the slow version ------------------------------------------------------------------------ */

struct slow {
	const struct set *s;
	struct pl_boost_opts o;
	double now[SAMPLES], gradient[SAMPLES];
	int leaf[SAMPLES], depth[LEAVES], n_leaves;
};
struct slow_split {
	double gain;
	uint32_t feature;
	float value;
	bool missing_right;
};

static double weight_of(const struct set *s, size_t i)
{
	return s->d.weight ? (double)s->d.weight[i] : 1;
}

static bool goes_right(const struct slow_split *x, float v)
{
	return isnan(v) ? x->missing_right : v > x->value;
}

static double loss(const struct slow *w, double gradient, double weight)
{
	return -gradient * gradient / (weight + w->o.lambda);
}

static void try_slow(const struct slow *w, int leaf, struct slow_split x, struct slow_split *best)
{
	double g[2] = { 0, 0 }, h[2] = { 0, 0 };

	for (size_t i = 0; i < w->s->n; i++) {
		int side = goes_right(&x, w->s->x[x.feature][i]);

		if (w->leaf[i] != leaf)
			continue;
		g[side] += w->gradient[i];
		h[side] += weight_of(w->s, i);
	}
	if (h[0] < w->o.least || h[1] < w->o.least)
		return;
	x.gain = loss(w, g[0] + g[1], h[0] + h[1]) - loss(w, g[0], h[0]) - loss(w, g[1], h[1]);
	if (x.gain > best->gain + 1e-9)
		*best = x;
}

static struct slow_split best_of(const struct slow *w, int leaf)
{
	struct slow_split best = { 0 };

	if (w->o.depth && w->depth[leaf] >= (int)w->o.depth)
		return best;
	for (uint32_t f = 0; f < w->s->features; f++)
		for (size_t i = 0; i < w->s->n; i++) {
			float v = w->s->x[f][i];

			if (w->leaf[i] != leaf || isnan(v))
				continue;
			try_slow(w, leaf, (struct slow_split){ 0, f, v, true }, &best);
			try_slow(w, leaf, (struct slow_split){ 0, f, v, false }, &best);
		}
	return best;
}

static void slow_tree(struct slow *w)
{
	double g[LEAVES] = { 0 }, h[LEAVES] = { 0 };

	memset(w->leaf, 0, sizeof(w->leaf));
	memset(w->depth, 0, sizeof(w->depth));
	for (size_t i = 0; i < w->s->n; i++)
		w->gradient[i] = (w->now[i] - (double)w->s->y[i]) * weight_of(w->s, i);
	for (w->n_leaves = 1; w->n_leaves < (int)w->o.leaves; w->n_leaves++) {
		struct slow_split best = { 0 }, x;
		int at = -1;

		for (int l = 0; l < w->n_leaves; l++)
			if ((x = best_of(w, l)).gain > best.gain) {
				best = x;
				at = l;
			}
		if (at < 0)
			break;
		for (size_t i = 0; i < w->s->n; i++)
			if (w->leaf[i] == at && goes_right(&best, w->s->x[best.feature][i]))
				w->leaf[i] = w->n_leaves;
		w->depth[w->n_leaves] = ++w->depth[at];
	}
	for (size_t i = 0; i < w->s->n; i++) {
		g[w->leaf[i]] += w->gradient[i];
		h[w->leaf[i]] += weight_of(w->s, i);
	}
	for (size_t i = 0; i < w->s->n; i++)
		w->now[i] -= w->o.rate * g[w->leaf[i]] / (h[w->leaf[i]] + w->o.lambda);
}

static void test_slow(void)
{
	int wrong = 0, leaves = 0;
	double worst = 0;

	for (int turn = 0; turn < CASES(40); turn++) {
		struct set s;
		struct slow w = { .s = &s };
		struct pl_boost m;
		float x[FEATURES];
		double sum = 0, weight = 0;

		set_init(&s, SAMPLES, FEATURES, 3 + (uint32_t)turn % 9, turn % 3 ? 0.15 : 0);
		if (turn % 2)
			s.d.weight = s.weight;
		w.o = (struct pl_boost_opts){ .rounds = 1 + (uint32_t)turn % 3,
					      .leaves = 2 + (uint32_t)turn % (LEAVES - 1),
					      .depth = turn % 5 == 4 ? 2 : 0,
					      .rate = turn % 4 ? 0.5 : 1,
					      .lambda = turn % 7 ? 0.25 : 3,
					      .least = 6.125,
					      .start = turn % 6 == 5 ? s.start : NULL };
		for (size_t i = 0; i < s.n; i++) {
			sum += weight_of(&s, i) * (double)s.y[i];
			weight += weight_of(&s, i);
		}
		for (size_t i = 0; i < s.n; i++)
			w.now[i] = w.o.start ? (double)s.start[i] : sum / weight;
		for (uint32_t r = 0; r < w.o.rounds; r++)
			slow_tree(&w);
		m = fit(&s, &w.o);
		for (size_t i = 0; i < s.n; i++) {
			double add = w.o.start ? (double)s.start[i] : 0, off;

			row(&s, i, x);
			off = fabs(pl_boost_apply(&m, x) + add - w.now[i]);
			worst = worse(worst, off);
			wrong += !(off < 1e-4);
		}
		leaves += w.n_leaves;
		pl_boost_fini(&m);
		set_fini(&s);
	}
	ok(wrong == 0, "trees are those of trying each split (worst %.2g)", worst);
	ok(leaves > CASES(40) * 3, "which have %d leaves", leaves);
}

/* ---- properties ------------------------------------------------------------------------------ */

/* How often the prediction falls (rises, if direction < 0) with greater values of a feature. */
static int falls(const struct pl_boost *m, uint32_t feature, int direction)
{
	int count = 0;

	for (int k = 0; k < 200; k++) {
		float x[3];
		double before = 0;

		for (int f = 0; f < 3; f++)
			x[f] = uniform() < 0.1 ? NAN : (float)uniform();
		for (int i = 0; i <= 50; i++) {
			double now;

			x[feature] = (float)i / 50 * 1.2f - 0.1f;
			now = pl_boost_apply(m, x);
			count += i && direction * (now - before) < 0;
			before = now;
		}
	}
	return count;
}

static void test_monotone(void)
{
	static const int8_t direction[] = { 1, -1, 0 };
	struct pl_boost_opts o = { .rounds = 60, .leaves = 24, .rate = 0.3, .least = 4 };
	struct set s;
	struct pl_boost m;

	for (int turn = 0; turn < 4; turn++) {
		set_init(&s, 700, 3, turn == 1 ? 12 : 0, turn == 2 ? 0.1 : 0);
		for (size_t i = 0; i < s.n; i++)
			s.y[i] = (float)(uniform() + 2 * sin(7 * (double)s.x[0][i]) -
					 cos(9 * (double)s.x[1][i]) *
						 (turn == 3 ? 3 * (double)s.x[2][i] : 1));
		for (size_t i = 0; i < s.n; i++)
			s.y[i] = isnan(s.y[i]) ? (float)uniform() : s.y[i];
		o.loss = turn == 3 ? PL_BOOST_ABSOLUTE : PL_BOOST_SQUARE;
		o.monotone = NULL;
		m = fit(&s, &o);
		ok(falls(&m, 0, 1) > 100 && falls(&m, 1, -1) > 100, "free features go both ways");
		pl_boost_fini(&m);
		o.monotone = direction;
		m = fit(&s, &o);
		is_i64(falls(&m, 0, 1), 0, "a prediction does not fall");
		is_i64(falls(&m, 1, -1), 0, "a prediction does not rise");
		ok(m.gain[0] > 0 && m.gain[1] > 0, "and depends on both features");
		pl_boost_fini(&m);
		set_fini(&s);
	}
}

static void test_unknown(void)
{
	struct pl_boost_opts o = { .rounds = 40, .rate = 0.5, .least = 5 };
	float x[3] = { NAN, NAN, NAN };
	struct set s;
	struct pl_boost m;

	for (int turn = 0; turn < 2; turn++) {
		set_init(&s, 400, 3, 0, 0);
		for (size_t i = 0; i < s.n; i++) {
			s.x[2][i] = NAN;
			if (i % 4 == 0)
				s.x[0][i] = NAN;
			/* unknown ones are like the great values, or like none */
			s.y[i] = i % 4 == 0 ? (turn ? 9 : 5) : s.x[0][i] > 0.5f ? 5 : 1;
		}
		m = fit(&s, &o);
		ok(fabs(pl_boost_apply(&m, x) - (turn ? 9 : 5)) < 0.05, "an unknown value counts");
		x[0] = 0.2f;
		ok(fabs(pl_boost_apply(&m, x) - 1) < 0.05, "small values beside it");
		x[0] = 0.9f;
		ok(fabs(pl_boost_apply(&m, x) - 5) < 0.05, "great values beside it");
		x[0] = 1e6f;
		ok(fabs(pl_boost_apply(&m, x) - 5) < 0.05, "... greater than any that was seen");
		x[0] = NAN;
		ok(m.gain[2] == 0, "a feature that is never known is not used");
		pl_boost_fini(&m);
		for (size_t i = 0; i < s.n; i++) {
			s.x[0][i] = i % 4 == 0 ? NAN : 3;
			s.x[1][i] = 0;
			s.y[i] = i % 4 == 0 ? 9 : 5;
		}
		m = fit(&s, &o);
		ok(fabs(pl_boost_apply(&m, x) - 9) < 0.05, "known or not is a split");
		x[0] = 3;
		ok(fabs(pl_boost_apply(&m, x) - 5) < 0.05, "of a value");
		x[0] = NAN;
		pl_boost_fini(&m);
		set_fini(&s);
	}
}

/* A sample of weight 2 is two samples, one of weight 0 none. */
static void test_weight(void)
{
	struct pl_boost_opts o = { .rounds = 10, .rate = 0.5, .least = 5 };
	struct set s, t;
	struct pl_boost a, b;
	double worst = 0, range = 0;
	size_t n = 0;

	set_init(&s, 300, 3, 9, 0.1);
	set_init(&t, 600, 3, 9, 0);
	for (size_t i = 0; i < s.n; i++) {
		s.weight[i] = (float)(pl_rng_next(&seed) % 3);
		for (int k = 0; k < (int)s.weight[i]; k++, n++) {
			for (uint32_t f = 0; f < 3; f++)
				t.x[f][n] = s.x[f][i];
			t.y[n] = s.y[i];
		}
	}
	s.d.weight = s.weight;
	t.d.n = n;
	a = fit(&s, &o);
	b = fit(&t, &o);
	for (size_t i = 0; i < s.n; i++) {
		float x[3];

		row(&s, i, x);
		worst = worse(worst, fabs(pl_boost_apply(&a, x) - pl_boost_apply(&b, x)));
		range = worse(range, fabs(pl_boost_apply(&a, x) - a.base));
	}
	ok(worst < 1e-4 && range > 1, "weights are numbers of samples (%.2g of %.2g)", worst,
	   range);
	pl_boost_fini(&a);
	pl_boost_fini(&b);
	set_fini(&s);
	set_fini(&t);
}

static void test_loss(void)
{
	struct pl_boost_opts o = { .rounds = 30, .loss = PL_BOOST_ABSOLUTE };
	const float x[1] = { 0.5f };
	struct set s;
	struct pl_boost m;

	set_init(&s, 500, 1, 1, 0);
	for (size_t i = 0; i < s.n; i++)
		s.y[i] = i % 5 == 0 ? 100 : 3;
	m = fit(&s, &o);
	ok(fabs(m.base - 3) < 0.1 && fabs(pl_boost_apply(&m, x) - 3) < 0.1, "near the median");
	pl_boost_fini(&m);
	o.loss = PL_BOOST_SQUARE;
	m = fit(&s, &o);
	ok(fabs(pl_boost_apply(&m, x) - 22.4) < 1e-3, "the mean");
	pl_boost_fini(&m);
	set_fini(&s);
}

static void test_threads(void)
{
	struct pl_boost_opts o = {
		.rounds = 12, .leaves = 20, .samples = 0.7, .features = 0.6, .seed = 5
	};
	struct pl_err err = { 0 };
	struct set s;
	struct pl_boost a, b;

	set_init(&s, 3000, 9, 0, 0.02);
	a = fit(&s, &o);
	for (int threads = 1; threads <= 3; threads++) {
		o.pool = pl_pool_new(threads, &err);
		b = fit(&s, &o);
		ok(o.pool && same_bytes(&a, &b), "the same model with %d threads", threads);
		pl_boost_fini(&b);
		pl_pool_free(o.pool);
	}
	o.pool = NULL;
	o.seed = 6;
	b = fit(&s, &o);
	ok(!same_bytes(&a, &b), "another one with another seed");
	pl_boost_fini(&a);
	pl_boost_fini(&b);
	set_fini(&s);
}

/* ---- application and bytes ------------------------------------------------------------------- */

static void test_apply(void)
{
	enum { N = 150, STRIDE = 7, F = 5 }; /* two blocks and a part of one */
	struct pl_boost_opts o = { .rounds = 30, .least = 3 };
	static float x[N * STRIDE];
	double y[N], two[2 * N], worst = 0, spread = 0;
	int wrong = 0;
	struct set s;
	struct pl_boost m, pair[2];
	struct pl_boost_flat *both = NULL;
	struct pl_err err = { 0 };

	set_init(&s, 500, F, 0, 0.05);
	m = fit(&s, &o);
	for (size_t i = 0; i < N * STRIDE; i++)
		x[i] = uniform() < 0.1 ? NAN : (float)uniform();
	for (size_t n = 0; n <= N; n++) {
		for (size_t i = 0; i < N; i++)
			y[i] = -1;
		pl_boost_apply_many(&m, x, STRIDE, n, y);
		for (size_t i = 0; i < N; i++)
			wrong += y[i] != (i < n ? pl_boost_apply(&m, x + i * STRIDE) : -1);
	}
	is_i64(wrong, 0, "many at once are each by itself");
	for (o.leaves = 2; o.leaves <= 40;
	     o.leaves += o.leaves < 30 ? 14 : 1) { /* 32: still flat */
		struct pl_boost more = fit(&s, &o);

		pl_boost_apply_many(&more, x, STRIDE, N, y);
		wrong += !more.flat != (o.leaves > 32);
		for (size_t i = 0; i < N; i++)
			wrong += y[i] != pl_boost_apply(&more, x + i * STRIDE);
		pl_boost_fini(&more);
	}
	is_i64(wrong, 0, "... by trees of 2 to 40 leaves");
	o.leaves = 5;
	pair[0] = m;
	pair[1] = fit(&s, &o);
	for (int turn = 0; turn < 2; turn++) {
		if (turn)
			ok(pl_boost_flatten(pair, 2, &both, &err) == 0 && both, "two models");
		pl_boost_apply_each(pair, 2, both, x, STRIDE, N, two);
		for (size_t i = 0; i < 2 * N; i++)
			wrong += two[i] != pl_boost_apply(&pair[i / N], x + i % N * STRIDE);
	}
	is_i64(wrong, 0, "... by two models, together or not");
	pl_boost_flat_free(both);
	pl_boost_fini(&pair[1]);
	pl_boost_apply_many(&m, x, STRIDE, N, y);
	for (size_t i = 0; i < N; i++) {
		double part[F], sum;

		for (int f = 0; f < F; f++)
			part[f] = f;
		sum = pl_boost_explain(&m, x + i * STRIDE, part);
		for (int f = 0; f < F; f++) {
			sum += part[f] - f;
			spread = worse(spread, fabs(part[f] - f));
		}
		worst = worse(worst, fabs(sum - y[i]));
	}
	ok(worst < 1e-6 && spread > 0.1, "parts sum up to the prediction (%.2g)", worst);
	pl_boost_fini(&m);
	set_fini(&s);
}

/* A part of an explanation is what the feature does: here the only one that matters. */
static void test_explain(void)
{
	struct pl_boost_opts o = { .rounds = 1, .leaves = 2, .rate = 1, .lambda = 1e-9 };
	const float x[2] = { 0.1f, 0.9f };
	double part[2] = { 0, 0 }, none;
	struct set s;
	struct pl_boost m;

	set_init(&s, 100, 2, 0, 0);
	for (size_t i = 0; i < s.n; i++) {
		s.x[1][i] = i < 25 ? 0.2f : 0.8f;
		s.y[i] = i < 25 ? 2 : 6;
	}
	m = fit(&s, &o);
	none = pl_boost_explain(&m, x, part);
	ok(fabs(none - 5) < 1e-5 && part[0] == 0 && fabs(part[1] - 1) < 1e-5, "5 + 1 of a feature");
	pl_boost_fini(&m);
	set_fini(&s);
}

static int get(const uint8_t *p, size_t n, struct pl_boost *m, bool *whole)
{
	/* a block of its own, behind which nothing may be read */
	uint8_t *copy = pl_malloc(n ? n : 1);
	struct pl_cur c = { .p = copy, .end = copy + n };
	struct pl_err err = { 0 };
	int rc;

	if (n)
		memcpy(copy, p, n);
	rc = pl_boost_get(&c, m, &err);
	*whole = c.p == c.end;
	if (rc != err.code || (rc < 0 && !err.msg[0]))
		ok(false, "a failure has a message");
	pl_free(copy);
	return rc;
}

static void test_bytes(void)
{
	struct pl_boost_opts o = { .rounds = 4, .leaves = 6 };
	int refused = 0, accepted = 0, left = 0, differ = 0, unknown = 0;
	struct pl_buf b = { 0 };
	struct set s;
	struct pl_boost m, again;
	bool whole;
	float x[3];

	set_init(&s, 300, 3, 0, 0.1);
	for (size_t i = 0; i < s.n; i++) /* unknown values go right, too */
		s.y[i] += isnan(s.x[0][i]) ? 9 : 0;
	m = fit(&s, &o);
	pl_boost_put(&m, &b);
	ok(get(b.p, b.n, &again, &whole) == 0 && whole, "a model is read to its end");
	ok(same_bytes(&m, &again), "and written again");
	for (size_t i = 0; i <= s.n; i++) {
		row(&s, i < s.n ? i : 0, x);
		for (int f = 0; f < 3 && i == s.n; f++)
			x[f] = NAN;
		differ += pl_boost_apply(&m, x) != pl_boost_apply(&again, x);
		unknown += isnan(x[0]) || isnan(x[1]) || isnan(x[2]);
	}
	ok(differ == 0 && unknown > 30 && again.gain[0] == m.gain[0], "it predicts the same");
	row(&s, 7, x);
	pl_boost_fini(&again);
	for (size_t n = 0; n < b.n; n++) {
		refused += get(b.p, n, &again, &whole) == PL_EDATA;
		left += again.node != NULL || again.root != NULL;
	}
	is_i64(refused, (long long)b.n, "each shorter text is refused");
	is_i64(left, 0, "and leaves no model");
	refused = 0;
	for (size_t bit = 0; bit < b.n * 8; bit++) {
		b.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		if (get(b.p, b.n, &again, &whole) == 0) {
			double y, part[PL_BOOST_FEATURES] = { 0 };
			float any[PL_BOOST_FEATURES] = { x[0], NAN, x[2] };

			pl_boost_apply_many(&again, any, 0, 1, &y);
			pl_boost_explain(&again, any, part);
			accepted += y == pl_boost_apply(&again, any);
			pl_boost_fini(&again);
		} else {
			refused++;
		}
		b.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	ok(refused > 50 && accepted > 50 && refused + accepted == (int)b.n * 8,
	   "with a bit changed a model is refused (%d) or of use (%d)", refused, accepted);
	pl_buf_fini(&b);
	pl_boost_fini(&m);
	set_fini(&s);
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void refuse(const struct set *s, struct pl_boost_opts o, int code, const char *says)
{
	struct pl_err err = { 0 };
	struct pl_boost m;
	int rc = pl_boost_fit(&s->d, &o, &m, &err);

	ok(rc == code && strstr(err.msg, says), "%s: %s", says, err.msg);
	ok(!m.node && !m.root && !m.gain, "no model");
	if (rc >= 0)
		pl_boost_fini(&m);
}

static void test_errors(void)
{
	static const struct pl_boost_opts wrong[] = {
		{ .leaves = 1 },     { .leaves = 1025 }, { .rate = -1 },    { .rate = NAN },
		{ .lambda = -1 },    { .least = -1 },	 { .samples = -1 }, { .features = -0.5 },
		{ .features = NAN }, { .delta = -1 },	 { .least = NAN },  { .lambda = NAN },
	};
	const struct pl_boost_opts usual = { .rounds = 2 };
	struct pl_boost_opts start = usual;
	struct pl_boost m;
	struct set s;

	set_init(&s, 100, 2, 0, 0);
	for (size_t i = 0; i < PL_LEN(wrong); i++)
		refuse(&s, wrong[i], PL_EUSAGE, "out of range");
	s.d.n_features = 0;
	refuse(&s, usual, PL_EUSAGE, "1 to 256 features, not 0");
	s.d.n_features = 257;
	refuse(&s, usual, PL_EUSAGE, "1 to 256 features, not 257");
	s.d.n_features = 2;
	s.d.n = 0;
	refuse(&s, usual, PL_EDATA, "needs samples");
	s.d.n = 100;
	s.y[41] = NAN;
	refuse(&s, usual, PL_EDATA, "sample 41 of boosting is not finite");
	s.y[41] = INFINITY;
	refuse(&s, usual, PL_EDATA, "sample 41 of boosting is not finite");
	s.y[41] = 1;
	s.x[1][17] = -INFINITY;
	refuse(&s, usual, PL_EDATA, "feature 1 of sample 17 is not finite");
	s.x[1][17] = 0;
	start.start = s.start;
	s.start[3] = NAN;
	refuse(&s, start, PL_EDATA, "sample 3 of boosting is not finite");
	s.d.weight = s.weight;
	s.weight[9] = -1;
	refuse(&s, usual, PL_EDATA, "sample 9 of boosting is not finite");
	s.weight[9] = INFINITY;
	refuse(&s, usual, PL_EDATA, "sample 9 of boosting is not finite");
	memset(s.weight, 0, s.n * sizeof(*s.weight));
	refuse(&s, usual, PL_EDATA, "weight 0");
	s.weight[5] = 2;
	m = fit(&s, &usual);
	ok(m.n_trees == 2 && m.n_nodes == 2 && fabs(m.base - (double)s.y[5]) < 1e-6,
	   "one sample that counts is enough");
	pl_boost_fini(&m);
	set_fini(&s);
}

int main(void)
{
	test_slow();
	test_monotone();
	test_unknown();
	test_weight();
	test_loss();
	test_threads();
	test_apply();
	test_explain();
	test_bytes();
	test_errors();
	return done_testing();
}
