/*
 * Attention's kernels, on the emulated device or (compiled by nvcc) a real one. Stored as float32
 * they are held against the plain backend; as bfloat16, against the plain backend on the same
 * rounded numbers, within what rounding each product's operands and the result can do, element by
 * element. All of it twice, in other orders of blocks and threads: bit for bit the same.
 */
#include <math.h>
#include <stdlib.h>
#include <vector>

#include "../oracle/plain.h"
#include "tap.h"
#include "tensor/cuda/device.cuh"

typedef std::vector<float> numbers;

#define U     0.00390625 /* 2^-8: what rounding to bfloat16 changes, relative */
#define GUARD 64	 /* bytes behind an array, which nobody may write */

static uint64_t seed = 11;
static bool hopper; /* with wgmma */

/* A sanitizer and the search for races take many times as long, and a second order shows them the
 * same accesses. */
#if defined(__SANITIZE_ADDRESS__)
#define ONCE true
#elif defined(PL_EMU)
#define ONCE emu_told
#else
#define ONCE false
#endif

static void random_order(void)
{
#ifdef PL_EMU
	emu_seed(pl_rng_next(&seed));
#endif
}

/* Why there is none; NULL: there is one. */
static const char *no_device(void)
{
#ifdef PL_EMU
	return NULL;
#else
	int n = 0;
	cudaError_t e = cudaGetDeviceCount(&n);

	return e != cudaSuccess ? cudaGetErrorString(e) : n < 1 ? "no device" : NULL;
#endif
}

static bool have_hopper(void)
{
#ifdef PL_EMU
	return true;
#else
	int major = 0, minor = 0;

	return cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0) ==
		       cudaSuccess &&
	       cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0) ==
		       cudaSuccess &&
	       major == 9 && minor == 0;
#endif
}

/* ---- memory of the device -------------------------------------------------------------------- */

static char *take(size_t bytes)
{
	char *p = NULL;

#ifdef PL_EMU
	p = (char *)aligned_alloc(256, (bytes + GUARD + 255) / 256 * 256);
#else
	if (cudaMallocHost((void **)&p, bytes + GUARD) != cudaSuccess)
		abort();
#endif
	memset(p, 0xff, bytes + GUARD);
	return p;
}

/* Waits for the device. */
static void give(char *p, size_t bytes)
{
	bool same = true;

#ifndef PL_EMU
	cudaError_t e = cudaDeviceSynchronize();

	same = e == cudaSuccess;
	if (!same)
		printf("# %s\n", cudaGetErrorString(e));
#endif
	for (size_t i = 0; i < GUARD; i++)
		same = same && p[bytes + i] == (char)0xff;
	if (!same)
		ok(false, "nothing behind an array is written");
#ifdef PL_EMU
	free(p);
#else
	cudaFreeHost(p);
#endif
}

/* Activations as they are stored, `off` elements behind where they are aligned. */
struct stored {
	bool half;
	size_t n, off;
	char *all, *p;

	stored(bool half_, size_t n_, size_t off_) : half(half_), n(n_), off(off_)
	{
		all = take(bytes());
		p = all + off * (half ? 2 : 4);
	}
	~stored()
	{
		give(all, bytes());
	}
	stored(const stored &) = delete;
	size_t bytes() const
	{
		return (n + off) * (half ? 2 : 4);
	}
	void put(const numbers &v)
	{
		for (size_t i = 0; i < n; i++)
			if (half)
				((bf16 *)p)[i] = __float2bfloat16_rn(v[i]);
			else
				((float *)p)[i] = v[i];
	}
	numbers get() const
	{
		numbers v(n);

#ifndef PL_EMU
		cudaDeviceSynchronize();
#endif
		for (size_t i = 0; i < n; i++)
			v[i] = half ? __bfloat162float(((bf16 *)p)[i]) : ((float *)p)[i];
		return v;
	}
};

/* ---- what is compared ------------------------------------------------------------------------ */

struct results {
	numbers y, save, dqkv;
};

static numbers random_numbers(size_t n, float gain)
{
	numbers v(n);

	for (float &x : v) /* already rounded */
		x = __bfloat162float(__float2bfloat16_rn(
			gain * ((float)(pl_rng_next(&seed) % 4001) / 1000 - 2)));
	return v;
}

static struct results attend(const struct pl_attn *d, bool half, enum pl_precision precision,
			     size_t off, const numbers &qkv, const numbers &dy)
{
	struct plk k = {};
	struct stored x(half, qkv.size(), off), y(half, dy.size(), off), g(half, dy.size(), off);
	struct stored dx(half, qkv.size(), off);
	size_t bytes = plk_attn_save(&k, d) * sizeof(float);
	char *save = take(bytes);
	struct results r;

	k.sms = 4;
	k.bf16 = half;
	k.hopper = hopper;
	k.precision = precision;
	k.scratch_bytes = plk_attn_scratch(&k, d);
	k.scratch = take(k.scratch_bytes);
	x.put(qkv);
	g.put(dy);
	random_order();
	plk_attn(&k, d, x.p, y.p, (float *)save);
	random_order();
	plk_attn_back(&k, d, x.p, y.p, (float *)save, g.p, dx.p);
	r.y = y.get();
	r.dqkv = dx.get();
	r.save = numbers((float *)save, (float *)save + bytes / sizeof(float));
	give((char *)k.scratch, k.scratch_bytes);
	give(save, bytes);
	return r;
}

static bool equal(const numbers &a, const numbers &b)
{
	return a.size() == b.size() && !memcmp(a.data(), b.data(), a.size() * sizeof(float));
}

/* The greatest difference, in parts of what it may be: `share` of the greatest number and, where
 * that is known, `limit`. */
static double differs(const numbers &got, const numbers &want, const std::vector<double> &limit,
		      double share)
{
	double most = 1e-6, far = 0;

	for (float v : want)
		most = fmax(most, fabs((double)v));
	for (size_t i = 0; i < want.size(); i++) {
		double may = share * most;

		if (!limit.empty())
			may += 1.01 * U * (limit[i] + fabs((double)want[i]));
		far = worse(far, fabs((double)got[i] - (double)want[i]) / may);
	}
	return far;
}

/*
 * What rounding each element of p and ds, by U at most, can change: the sums with all terms
 * positive. y (B, T, C) and dqkv (B, T, 3C).
 */
static void limits(const struct pl_attn *d, const numbers &qkv, const numbers &dy,
		   const struct results *r, std::vector<double> &y, std::vector<double> &dqkv)
{
	size_t size = (size_t)(d->c / d->heads), c = (size_t)d->c;
	double scale = 1 / sqrt((double)size);

	y.assign(dy.size(), 0);
	dqkv.assign(qkv.size(), 0);
	for (size_t row = 0; row < r->save.size(); row++) {
		size_t t = row % (size_t)d->t, head = row / (size_t)d->t;
		size_t first = head / (size_t)d->heads * (size_t)d->t;
		size_t h = head % (size_t)d->heads * size;
		size_t q = (first + t) * 3 * c + h, out = (first + t) * c + h;

		for (size_t u = 0; u <= t; u++) {
			size_t k = (first + u) * 3 * c + c + h, v = k + c;
			double s = 0, dp = 0, p, ds;

			for (size_t j = 0; j < size; j++) {
				s += (double)qkv[q + j] * (double)qkv[k + j];
				dp += (double)dy[out + j] *
				      ((double)qkv[v + j] - (double)r->y[out + j]);
			}
			p = exp(s * scale - (double)r->save[row]);
			ds = fabs(p * dp * scale); /* dp - dy y = dy (v - y) */
			for (size_t j = 0; j < size; j++) {
				y[out + j] += p * fabs((double)qkv[v + j]);
				dqkv[v + j] += p * fabs((double)dy[out + j]);
				dqkv[k + j] += ds * fabs((double)qkv[q + j]);
				dqkv[q + j] += ds * fabs((double)qkv[k + j]);
			}
		}
	}
}

static double worst[3]; /* y, save, dqkv */
static bool same;

/* One shape, stored in both ways, or only as bfloat16. */
static void attention(bool both, int b, int t, int heads, int size, float gain, size_t off)
{
	struct pl_attn d = { b, t, heads * size, heads };
	const struct pl_backend *plain = &pl_backend_plain;
	numbers qkv = random_numbers((size_t)b * (size_t)t * 3 * (size_t)d.c, gain);
	numbers dy = random_numbers(qkv.size() / 3, 1);
	numbers y(dy.size()), save((size_t)(b * heads * t)), dqkv(qkv.size());
	std::vector<double> y_limit, dqkv_limit;
	double share = 0;

	plain->attn(NULL, &d, qkv.data(), y.data(), save.data());
	/* float32 is off by 2^-24 of the scores, a few times, and so are p */
	for (float v : save)
		share = fmax(share, fabs((double)v) / (1 << 22));
	for (int half = !both; half < 2; half++) {
		struct results r = attend(&d, half, PL_FP32, off, qkv, dy);
		struct results again = ONCE ? r : attend(&d, half, PL_FP32, off, qkv, dy);

		same = same && equal(r.y, again.y) && equal(r.save, again.save) &&
		       equal(r.dqkv, again.dqkv);
		if (half)
			limits(&d, qkv, dy, &r, y_limit, dqkv_limit);
		plain->attn_back(NULL, &d, qkv.data(), r.y.data(), r.save.data(), dy.data(),
				 dqkv.data());
		worst[0] = worse(worst[0], differs(r.y, y, y_limit, share + 3e-6));
		worst[1] = worse(worst[1], differs(r.save, save, {}, 2e-6));
		worst[2] = worse(worst[2], differs(r.dqkv, dqkv, dqkv_limit, share + 1e-5));
	}
}

static void done(const char *what)
{
	static const char *const names[] = { "y", "log-sum-exps", "gradients" };

	for (int i = 0; i < 3; i++) {
		if (!ok(worst[i] <= 1, "%s: %s as the plain backend's", what, names[i]))
			printf("# %.3g times as far as they may be\n", worst[i]);
		worst[i] = 0;
	}
	ok(same, "%s: the same in any order of blocks and threads", what);
	same = true;
}

/* Operands rounded, activations float32: as the plain backend does it, but p before it is divided
 * by its sum. */
static void rounded(void)
{
	struct pl_attn d = { 1, 70, 24, 2 };
	const struct pl_backend *plain = &pl_backend_plain;
	struct pl_backend_opts o = {};
	numbers qkv = random_numbers((size_t)d.t * 72, 1.01f),
		dy = random_numbers(qkv.size() / 3, 1);
	numbers y(dy.size()), save((size_t)(d.heads * d.t)), dqkv(qkv.size());
	struct results r, exact;
	struct pl_err err;
	void *ctx;

	for (float &x : qkv)
		x *= 1.003f;
	if (plain->open(&o, &ctx, &err)) {
		ok(false, "the plain backend opens");
		return;
	}
	plain->precision(ctx, PL_BF16);
	plain->attn(ctx, &d, qkv.data(), y.data(), save.data());
	r = attend(&d, false, PL_BF16, 0, qkv, dy);
	exact = attend(&d, false, PL_FP32, 0, qkv, dy);
	plain->attn_back(ctx, &d, qkv.data(), r.y.data(), r.save.data(), dy.data(), dqkv.data());
	plain->close(ctx);
	ok(differs(r.save, save, {}, 2e-6) <= 1 && differs(exact.save, save, {}, 2e-6) > 10,
	   "bfloat16 operands: scores of rounded numbers");
	ok(differs(r.y, y, {}, U) <= 1 && differs(r.dqkv, dqkv, {}, U) <= 1,
	   "bfloat16 operands: y and gradients");
}

/* All that tensor cores take, by mma.sync or by wgmma. */
static void on_tensor_cores(void)
{
	static const int sizes[] = { 16, 32, 40, 64, 80, 96, 128 };
	static const int times[] = { 1, 7, 63, 64, 65, 130 };

	for (int size : sizes)
		for (int t : times) {
			bool small = t * size < 500;

			if (ONCE &&
			    ((t != 7 && t != 130) || size == 16 || size == 40 || size >= 80))
				continue;
			if (hopper ? size > 32 && (t > 60 || t == 7)
				   : t < 100 || size == 64 || size == 128)
				attention(!hopper && (size == 16 || size == 40 || size == 64 ||
						      t == 7),
					  small ? 2 : 1, t, small ? 3 : 1, size, 1, 0);
		}
	if (hopper) { /* more than a block, and than two turns */
		attention(false, 1, 260, 1, 64, 1, 0);
		attention(false, 1, 200, 1, 128, 1, 0);
	} else if (ONCE)
		attention(false, 1, 65, 1, 128, 1, 0);
	done(hopper ? "wgmma, heads of 16 to 128" : "mma, heads of 16 to 128");
	if (ONCE)
		return;
	/* scores up to hundreds: most probabilities are 0 or 1, and a row's maximum grows late */
	attention(!hopper, 1, 130, 2, 64, 3, 0);
	attention(!hopper, 1, 200, 1, hopper ? 40 : 32, 6, 0);
	done(hopper ? "wgmma, great scores" : "mma, great scores");
}

int main(void)
{
	const char *none = no_device();

	if (none) {
		printf("1..0 # SKIP %s\n", none);
		return 0;
	}
	same = true;
	on_tensor_cores();
	hopper = have_hopper();
	if (hopper)
		on_tensor_cores();
	hopper = false;
	attention(true, 2, 65, 3, 5, 1, 0);
	attention(true, 1, 70, 1, 150, 1, 0);
	attention(true, 1, 3, 2, 20, 1, 0);
	attention(true, 1, 66, 2, 16, 1, 1);
	done("heads that tensor cores do not take");
	rounded();
	return done_testing();
}
