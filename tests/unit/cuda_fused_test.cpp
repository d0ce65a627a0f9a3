/*
 * Kernels for CUDA that the battery of backends does not reach, on the emulated device: what is in
 * no table (bias with activation, sums over rows, a sum and its normalisation, rounded copies),
 * rows that no team of threads holds, many tokens. Each against plain loops, twice in different
 * orders.
 */
#include <stdlib.h>

#include <vector>

#include "../oracle/plain.h"
#include "tap.h"
#include "tensor/cuda/device.cuh"

typedef std::vector<float> floats;
typedef std::vector<bf16> halves;

static const struct pl_backend *const plain = &pl_backend_plain;
static uint64_t seed = 7;

static int pick(int lo, int hi)
{
	return lo + (int)(pl_rng_next(&seed) % (uint64_t)(hi - lo + 1));
}

/* Numbers that a bfloat16 holds. */
static floats numbers(size_t n)
{
	floats v(n);

	for (float &x : v)
		x = (float)pick(-100, 100) / 64;
	return v;
}

static halves rounded(const floats &v)
{
	halves h;

	for (float x : v)
		h.push_back(__float2bfloat16_rn(x));
	return h;
}

static floats widened(const halves &h)
{
	floats v;

	for (bf16 x : h)
		v.push_back(__bfloat162float(x));
	return v;
}

/* A context with poisoned scratch, in another order each time. */
static struct plk context(bool half, size_t bytes)
{
	static std::vector<double> room;
	struct plk k = { NULL, 3, half, PL_FP32, false, NULL, bytes, EMU_MOST_SHARED, false };

	room.assign(bytes / 8 + 1, (double)NAN);
	k.scratch = room.data();
	emu_seed(pl_rng_next(&seed));
	return k;
}

/* Greatest difference, by the greatest element. */
static double max_difference(const floats &a, const floats &b)
{
	double far = a.size() == b.size() ? 0 : (double)INFINITY, most = 1e-3;

	for (size_t i = 0; i < b.size(); i++) {
		most = fmax(most, fabs((double)b[i]));
		far = worse(far, fabs((double)a[i] - (double)b[i]));
	}
	return far / most;
}

static bool near(const floats &a, const floats &b, double limit, const char *what)
{
	double far = max_difference(a, b);

	if (ok(far <= limit, "%s", what))
		return true;
	printf("# differs by %.3g\n", far);
	return false;
}

static void test_bias_act(void)
{
	double far = 0;

	for (int round = 0; round < 40; round++) {
		enum pl_act act = (enum pl_act)pick(0, PL_ACT_COUNT_ - 1);
		int n = pick(1, 9), c = pick(1, 40) * (round % 2 ? 8 : 1);
		size_t all = (size_t)n * (size_t)c;
		floats x = numbers(all), bias = numbers((size_t)c), sum(all), want(all);
		bool with = pick(0, 3), keep = pick(0, 1), in_place = pick(0, 1);
		halves h = rounded(x), hy(all), hpre(all);
		floats y(all), pre(all);
		struct plk k = context(false, 0), kh = context(true, 0);

		for (size_t i = 0; i < all; i++)
			sum[i] = x[i] + (with ? bias[i % (size_t)c] : 0);
		plain->act(NULL, act, all, sum.data(), want.data());
		plk_bias_act(&k, n, c, with ? bias.data() : NULL, act, x.data(),
			     keep ? pre.data() : NULL, in_place ? x.data() : y.data());
		far = worse(far, max_difference(in_place ? x : y, want) / 1e-5);
		far = worse(far, keep ? max_difference(pre, sum) / 1e-5 : 0);
		plk_bias_act(&kh, n, c, with ? bias.data() : NULL, act, h.data(),
			     keep ? hpre.data() : NULL, hy.data());
		far = worse(far, max_difference(widened(hy), want) * 256);
		far = worse(far, keep ? max_difference(widened(hpre), sum) * 256 : 0);
	}
	ok(far <= 1, "bias_act: bias, activation, what went into it");
}

static void test_columns(void)
{
	double far = 0;

	for (int round = 0; round < 30; round++) {
		int n = pick(1, round % 5 ? 9 : 700), c = pick(1, 50) * (round % 2 ? 8 : 1);
		floats dy = numbers((size_t)n * (size_t)c), db = numbers((size_t)c), want = db;
		floats twice = db;
		halves h = rounded(dy);
		struct plk k = context(false, 0), kh = context(true, 0);

		for (size_t i = 0; i < dy.size(); i++)
			want[i % (size_t)c] += dy[i];
		k = context(false, plk_rows_scratch(&k, n, c));
		plk_columns(&k, n, c, dy.data(), db.data());
		far = worse(far, max_difference(db, want));
		kh = context(true, plk_rows_scratch(&kh, n, c));
		plk_columns(&kh, n, c, h.data(), twice.data());
		far = worse(far, max_difference(twice, want));
	}
	ok(far <= 1e-5, "columns: sums over rows, of float32 and bfloat16");
}

static void test_add_layernorm(void)
{
	int n = 5, c = 200;
	size_t all = (size_t)n * (size_t)c, ch = (size_t)c;
	floats a = numbers(all), b = numbers(all), g = numbers(ch), be = numbers(ch), sum(all);
	floats save(2 * (size_t)n), y(all), want_save(2 * (size_t)n), want(all), got(all);
	halves ha = rounded(a), hb = rounded(b), hy(all);
	struct plk k = context(false, 0), kh = context(true, 0);

	for (size_t i = 0; i < all; i++)
		sum[i] = a[i] + b[i];
	plain->layernorm(NULL, n, c, sum.data(), g.data(), be.data(), 1e-5f, want_save.data(),
			 want.data());
	plk_add_layernorm(&k, n, c, a.data(), b.data(), got.data(), g.data(), be.data(), 1e-5f,
			  save.data(), y.data());
	near(got, sum, 0, "add_layernorm: the sum");
	near(y, want, 1e-5, "add_layernorm: normalised");
	near(save, want_save, 1e-5, "add_layernorm: what the way back needs");
	plk_add_layernorm(&kh, n, c, ha.data(), hb.data(), hb.data(), g.data(), be.data(), 1e-5f,
			  save.data(), hy.data());
	near(widened(hb), sum, 0x1p-8, "add_layernorm: the sum, in bfloat16 and in place");
	near(widened(hy), want, 0x1p-6, "add_layernorm: normalised, in bfloat16");
}

/* Longer than PL_HELD vectors a thread of the largest team; and one whose way back has 48 KB of
 * dynamic shared memory, to the byte (as 768 bfloat16 have). */
static void test_long_rows(void)
{
	for (int c : { 384, 5000, 20000 }) {
		int n = 3;
		size_t all = (size_t)n * (size_t)c, ch = (size_t)c;
		floats x = numbers(all), g = numbers(ch), be = numbers(ch), dy = numbers(all);
		floats save(2 * (size_t)n), y(all), dx(all), dg = g, db = be;
		floats wsave(2 * (size_t)n), wy(all), wdx(all), wdg = g, wdb = be;
		struct plk k = context(false, 0);

		k = context(false, plk_rows_scratch(&k, n, c));
		plain->layernorm(NULL, n, c, x.data(), g.data(), be.data(), 1e-5f, wsave.data(),
				 wy.data());
		plain->layernorm_back(NULL, n, c, x.data(), g.data(), wsave.data(), dy.data(),
				      wdx.data(), wdg.data(), wdb.data());
		plk_layernorm(&k, n, c, x.data(), g.data(), be.data(), 1e-5f, save.data(),
			      y.data());
		plk_layernorm_back(&k, n, c, x.data(), g.data(), save.data(), dy.data(), dx.data(),
				   dg.data(), db.data());
		near(y, wy, 1e-5, "layernorm of a long row");
		near(dx, wdx, 1e-5, "layernorm of a long row, back");
		near(dg, wdg, 1e-5, "layernorm of a long row, gamma");
		near(db, wdb, 1e-5, "layernorm of a long row, beta");
	}
}

static void test_long_loss(void)
{
	/* in shared memory, two of them or one; read again. Rows that begin anywhere; more
	 * of them than blocks. Where a block may not have so much, all are read again. */
	for (int c : { 15000, 15001, 28920, 40000, 70001, 15002 }) {
		int n = c < 20000 ? 15 : 2;
		size_t all = (size_t)n * (size_t)c;
		floats x = numbers(all), dx(all), want(all);
		std::vector<int32_t> y((size_t)n, c - 1);
		struct pl_loss_sum sum, half, wsum;
		struct plk k = context(false, 0), kh = context(true, 0);
		halves h;

		y[0] = 17;
		x[17] = 9;
		h = rounded(x);
		plain->softmax_xent(NULL, n, c, x.data(), y.data(), 1, want.data(), &wsum);
		for (int in_place = 0; in_place < 2; in_place++) {
			k = context(false, plk_rows_scratch(&k, n, c));
			k.shared = c == 15002 ? 48 << 10 : k.shared;
			plk_softmax_xent(&k, n, c, x.data(), y.data(), 1,
					 in_place ? x.data() : dx.data(), &sum);
			near(in_place ? x : dx, want, 1e-5, "softmax_xent of a long row");
			ok(sum.hits == wsum.hits && fabs(sum.loss - wsum.loss) < 1e-5 * wsum.loss,
			   "... of %d: loss and hits", c);
		}
		kh = context(true, plk_rows_scratch(&kh, n, c));
		plk_softmax_xent(&kh, n, c, h.data(), y.data(), 1, h.data(), &half);
		near(widened(h), want, 0x1p-7, "... in bfloat16");
		ok(half.hits == wsum.hits && fabs(half.loss - wsum.loss) < 1e-5 * wsum.loss,
		   "... of %d: loss and hits", c);
	}
}

/* Rows of few different numbers, at all alignments: the first of equals is on top. */
static void test_ties(void)
{
	bool right = true;

	for (int round = 0; round < 200; round++) {
		int n = pick(1, 6), c = pick(2, 60);
		size_t all = (size_t)n * (size_t)c;
		floats x(all), dx(all);
		std::vector<int32_t> y;
		struct pl_loss_sum want, sum, half, hinge;
		struct plk k = context(false, 0), kh = context(true, 0);
		halves h;

		for (float &v : x)
			v = (float)pick(0, 1);
		for (int i = 0; i < n; i++) { /* often the first of the greatest, or one behind */
			int first = 0;

			while (first < c - 1 && x[(size_t)(i * c + first)] == 0)
				first++;
			y.push_back(pick(0, 1) ? first : pick(0, c - 1));
		}
		h = rounded(x);
		plain->softmax_xent(NULL, n, c, x.data(), y.data(), 1, NULL, &want);
		k = context(false, plk_rows_scratch(&k, n, c));
		plk_softmax_xent(&k, n, c, x.data(), y.data(), 1, dx.data(), &sum);
		plk_hinge(&k, n, c, x.data(), y.data(), 1, NULL, &hinge);
		kh = context(true, plk_rows_scratch(&kh, n, c));
		plk_softmax_xent(&kh, n, c, h.data(), y.data(), 1, NULL, &half);
		right = right && sum.hits == want.hits && half.hits == want.hits &&
			hinge.hits == want.hits;
	}
	ok(right, "losses: of equals the first is on top");
}

/* More than a tile of them, one that is in half of all places, ids of three bytes. */
static void test_tokens(void)
{
	int n = 5000, c = 3, t = 50, rows = 70000;
	size_t all = (size_t)n * (size_t)c;
	floats dy = numbers(all), table((size_t)rows * (size_t)c), place((size_t)t * (size_t)c);
	floats want = table, wplace = place, again = table;
	std::vector<int32_t> id;
	struct plk k = context(false, 0);

	for (int i = 0; i < n; i++)
		id.push_back(pick(0, 1) ? 66000 : pick(0, rows - 1));
	plain->embed_back(NULL, n, c, id.data(), t, dy.data(), want.data(), wplace.data());
	for (int round = 0; round < 2; round++) {
		k = context(false, plk_embed_scratch(&k, n, c));
		plk_embed_back(&k, n, c, id.data(), t, dy.data(),
			       round ? again.data() : table.data(), round ? NULL : place.data());
	}
	near(table, want, 1e-5, "embed_back of many tokens: the table");
	near(place, wplace, 1e-5, "embed_back of many tokens: the positions");
	ok(table == again, "embed_back of many tokens: the same in any order");
}

/* The rounded copy of optimisers is that of the weights. */
static void test_copies(void)
{
	size_t n = 1003;
	floats g = numbers(n), m(n), v(n), w = numbers(n), u(n), w2 = w;
	halves h(n), h2(n), h3(n);
	struct pl_vary vary = { 0, 0.1f, 3 };
	struct pl_decay decay = { 0.1f, NULL, 0 }, none = { 0, NULL, 0 };
	struct plk k = context(true, 0);

	plk_adam(&k, 0, n, &vary, 0.9f, 0.99f, 1e-5f, &decay, true, g.data(), m.data(), v.data(),
		 w.data(), h.data());
	near(widened(h), widened(rounded(w)), 0, "adam renews the rounded copy");
	plk_sgd(&k, 1, n - 1, &vary, 0.9f, &none, false, g.data(), u.data(), w2.data(),
		h2.data() + 1);
	h2[0] = __float2bfloat16_rn(w2[0]);
	near(widened(h2), widened(rounded(w2)), 0, "sgd renews the rounded copy, off alignment");
	plk_round(&k, n, w.data(), h3.data());
	near(widened(h3), widened(h), 0, "round makes the same copy");
	plk_load(&k, n, g.data(), h3.data());
	near(widened(h3), g, 0, "load stores as the context does");
}

/* More ranges that decay and such that do not than one launch takes: as each by itself. */
static void test_decay(void)
{
	size_t n = 9000, cut[500];
	floats g = numbers(n), m = numbers(n), v(n, 1), w = numbers(n), m2 = m, v2 = v, w2 = w;
	floats u = m, u2 = m, s = w, s2 = w;
	halves h(n), h2(n);
	struct pl_vary vary = { 0, 0.1f, 3 };
	struct pl_decay decay = { 0.1f, cut, 500 };
	struct plk k = context(true, 0);

	for (size_t i = 0; i < 500; i++)
		cut[i] = 16 * (i + 1);
	for (int first : { 0, 32, 40 }) {
		size_t at = (size_t)first;

		plk_adam(&k, at, n - at, &vary, 0.9f, 0.99f, 1e-5f, &decay, true, g.data(),
			 m.data(), v.data(), w.data(), h.data() + at);
		plk_sgd(&k, at, n - at, &vary, 0.9f, &decay, true, g.data(), u.data(), s.data(),
			NULL);
		for (size_t to; at < n; at = to) {
			struct pl_decay alike = { 0, NULL, 0 };

			to = pl_decay_piece(&decay, at, n, &alike.rate);
			plk_adam(&k, at, to - at, &vary, 0.9f, 0.99f, 1e-5f, &alike, true, g.data(),
				 m2.data(), v2.data(), w2.data(), h2.data() + at);
			plk_sgd(&k, at, to - at, &vary, 0.9f, &alike, true, g.data(), u2.data(),
				s2.data(), NULL);
		}
		ok(m == m2 && v == v2 && w == w2 && !memcmp(h.data(), h2.data(), 2 * n),
		   "adam of many ranges from %d on, to the bit", first);
		ok(u == u2 && s == s2, "and sgd");
	}
}

int main(void)
{
	test_decay();
	test_bias_act();
	test_columns();
	test_add_layernorm();
	test_long_rows();
	test_long_loss();
	test_ties();
	test_tokens();
	test_copies();
	return done_testing();
}
