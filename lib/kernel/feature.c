/*
 * Bounds and features of operations.
 *
 * Products: a library divides C into tiles of a x b. A multiprocessor works through its tiles one
 * after another (or several at a time, which is as fast), so the one with ceil(tiles /
 * multiprocessors) tiles decides; this is the wave quantisation of CUDA's guides, and of NeuSight
 * (ASPLOS 2025), but for each multiprocessor, not for the device. Each tile takes 2 a b k
 * operations at the rate of a multiprocessor. Measured on A100 and P100, this explains batched
 * products to 4 % with one constant.
 *
 * Others move bytes. Beside the bandwidth of memory, the requests that a multiprocessor can have
 * under way limit them (Little's law): a device with much bandwidth for each multiprocessor does
 * not use all of it. How many clocks a byte takes there is learned (model.c).
 *
 * A larger compute or memory bound may not make the time shorter: these features are monotone, and
 * the time is a product with them. Other features of a product, such as how full the last wave is,
 * are free, and so is the bound by requests: monotone, it makes the errors on devices that were
 * left out larger (softmax 20.1 to 21.0 %, add 15.7 to 17.4 %; layer norm 12.8 % both).
 */
#include <math.h>

#include "kernel/feature.h"

enum { PRODUCT, ROWS, BYTES, COMM, FREE, KINDS };
static const char *const names[KINDS][PL_FEATURES] = {
	[PRODUCT] = { "compute", "memory", "m", "n", "k", "batch", "tile a", "tile b",
		      "sliced tile", "tiles of a multiprocessor", "fill of the last wave",
		      "waste of tiles", "generation", "alignment of k", "alignment of n",
		      "power, or blocks of n" },
	[ROWS] = { "memory", "bytes by multiprocessor", "rows", "columns", "rows by multiprocessor",
		   "bytes by cache", "generation", "alignment of columns", "row in bytes" },
	[BYTES] = { "memory", "bytes by multiprocessor", "elements", "bytes by cache", "generation",
		    "inputs" },
	[COMM] = { "bytes", "ranks", "ranks of a host" },
	[FREE] = { "a", "b", "c", "d", "product" },
};

static int kind_of(unsigned family)
{
	switch (family) {
	case PL_KERNEL_GEMM:
	case PL_KERNEL_CONV:
		return PRODUCT;
	case PL_KERNEL_SOFTMAX:
	case PL_KERNEL_NORM:
	case PL_KERNEL_EMBEDDING:
		return ROWS;
	case PL_KERNEL_ELEMENTWISE:
	case PL_KERNEL_MOVE:
		return BYTES;
	default:
		return pl_kernel_is_comm(family) ? COMM : FREE;
	}
}

const char *pl_kernel_feature_name(unsigned family, unsigned i)
{
	return names[kind_of(family)][i];
}

uint32_t pl_kernel_n_features(unsigned family)
{
	uint32_t n = 0;

	while (n < PL_FEATURES && pl_kernel_feature_name(family, n))
		n++;
	return n;
}

int pl_kernel_feature_direction(unsigned family, unsigned i)
{
	int kind = kind_of(family);

	return (kind == PRODUCT && i < 2) || ((kind == ROWS || kind == BYTES) && i < 1) ||
	       (kind == COMM && i < 1);
}

/* ---- devices --------------------------------------------------------------------------------- */

int pl_device_generation(const struct pl_device *d)
{
	return d->capability >= 1 && d->capability < PL_GENERATIONS ? (int)d->capability : 0;
}

/* Operations that a watt pays for, by that of the processes of 12 to 16 nm: what the makers state
 * of their processes (7 nm: 40 % less power than 10 to 12 nm; 4 to 5 nm: 30 % less again). */
static double process(const struct pl_device *d)
{
	return isnan(d->capability) || d->capability < 7.9 ? 1
	       : d->capability < 8.05			   ? 1.7
	       : d->capability < 8.85			   ? 1.5
							   : 2.4;
}

void pl_feature_rates_init(struct pl_rates *r)
{
	*r = (struct pl_rates){ .flops_per_watt = INFINITY };
}

static double per_watt(const struct pl_rates *r, const struct pl_device *d)
{
	return process(d) * fmax(r->flops_per_watt, r->least[pl_device_generation(d)]);
}

double pl_device_rate(const struct pl_device *d, unsigned type, const struct pl_rates *r,
		      double *peak)
{
	bool half = type == PL_KERNEL_FLOAT16 || type == PL_KERNEL_BFLOAT16;

	*peak = half			    ? d->half_flops
		: type == PL_KERNEL_TF32    ? d->half_flops / 2
		: type == PL_KERNEL_FLOAT8  ? d->half_flops * 2
		: type == PL_KERNEL_INT8    ? d->half_flops * 2
		: type == PL_KERNEL_FLOAT64 ? d->flops / 2
					    : d->flops;
	/* tensor cores do more for a watt, and nothing measured shows a limit of theirs */
	if (type != PL_KERNEL_FLOAT32 || isnan(d->watts))
		return *peak;
	return fmin(*peak, d->watts * per_watt(r, d));
}

/* ---- features -------------------------------------------------------------------------------- */

/* Is v a multiple of a power of two? Dividing by one is exact, and fmod() is slow. */
static bool is_multiple(double v, double of)
{
	return fabs(v) < 0x1p53 ? v / of == (double)(int64_t)(v / of) : fmod(v, of) == 0;
}

/* How many of the powers of two 4, 32 divide it. */
static double alignment(double v)
{
	return is_multiple(v, 4) + is_multiple(v, 32);
}

struct pl_kernel pl_kernel_as_gemm(const struct pl_kernel *k)
{
	const double *d = k->dim;
	double out = floor((d[3] + 2 * d[6] - d[4]) / fmax(d[5], 1)) + 1;

	return k->family != PL_KERNEL_CONV
		       ? *k
		       : (struct pl_kernel){ .op = k->op,
					     .family = PL_KERNEL_GEMM,
					     .type = k->type,
					     .dim = { d[7], d[0] * fmax(out, 1) * fmax(out, 1),
						      d[2] / d[7], d[1] / d[7] * d[4] * d[4] } };
}

/* Features 0 .. n - 1, as a set. */
#define FIRST(n) ((1u << (n)) - 1)

/* These give the features, and the set of those of which the logarithm is taken. */
static unsigned of_product(const struct pl_kernel *conv, const struct pl_device *d,
			   const struct pl_rates *r, struct pl_tile tile, struct pl_physics *p,
			   double *x)
{
	const struct pl_kernel gemm = pl_kernel_as_gemm(conv), *k = &gemm;
	double batch = k->dim[0], m = k->dim[1], n = k->dim[2], depth = k->dim[3];
	double a = tile.a ? tile.a : 128, b = tile.b ? tile.b : 128, peak;
	double rate = pl_device_rate(d, k->type, r, &peak) / d->sms;
	/* libraries store by columns: a lies along n */
	double tiles = ceil(n / a) * ceil(m / b) * batch, most = ceil(tiles / d->sms);

	p->compute_ns = most * 2 * a * b * depth / rate;
	p->memory_ns = pl_kernel_work(conv).bytes / d->bandwidth;
	x[0] = p->compute_ns;
	x[1] = p->memory_ns;
	x[2] = m;
	x[3] = n;
	x[4] = depth;
	x[5] = batch;
	x[6] = a;
	x[7] = b;
	x[8] = tile.sliced;
	x[9] = most;
	x[10] = tiles / d->sms / most;
	x[11] = tiles * a * b / (m * n * batch);
	x[12] = pl_device_generation(d);
	x[13] = alignment(depth);
	x[14] = alignment(n);
	x[15] = peak / d->sms / rate;
	if (conv->family == PL_KERNEL_CONV) { /* its filter says more than alignments */
		x[13] = conv->dim[4];
		x[14] = conv->dim[5];
	}
	if (!(d->cpu > 0))
		return FIRST(8) | 1u << 9 | 1u << 11 | 1u << 15;
	/* vectors and their blocks are along n; power limits nothing */
	x[15] = is_multiple(n, 8) + is_multiple(n, 16) + is_multiple(n, 64);
	return FIRST(8) | 1u << 9 | 1u << 11;
}

static unsigned of_rows(const struct pl_kernel *k, const struct pl_device *d, struct pl_physics *p,
			double *x)
{
	double bytes = pl_kernel_work(k).bytes, row = k->dim[1] * pl_kernel_type_bytes(k->type);

	p->memory_ns = bytes / d->bandwidth;
	p->request_ns = bytes / d->sms / d->clock_ghz;
	x[0] = p->memory_ns;
	x[1] = p->request_ns;
	x[2] = k->dim[0];
	x[3] = k->dim[1];
	x[4] = k->dim[0] / d->sms;
	x[5] = bytes / d->l2_bytes;
	x[6] = pl_device_generation(d);
	x[7] = alignment(k->dim[1]);
	x[8] = row;
	return FIRST(6) | 1u << 8;
}

static unsigned of_bytes(const struct pl_kernel *k, const struct pl_device *d, struct pl_physics *p,
			 double *x)
{
	double bytes = pl_kernel_work(k).bytes;

	p->memory_ns = bytes / d->bandwidth;
	p->request_ns = bytes / d->sms / d->clock_ghz;
	x[0] = p->memory_ns;
	x[1] = p->request_ns;
	x[2] = k->dim[0];
	x[3] = bytes / d->l2_bytes;
	x[4] = pl_device_generation(d);
	x[5] = k->dim[1];
	return FIRST(4);
}

void pl_feature_begin(const struct pl_kernel *k, const struct pl_device *d,
		      const struct pl_rates *r, struct pl_tile tile, struct pl_physics *p,
		      struct pl_raw_features *x)
{
	*p = (struct pl_physics){ 0 };
	for (int i = 0; i < PL_FEATURES; i++)
		x->v[i] = NAN;
	switch (kind_of(k->family)) {
	case PRODUCT:
		x->logged = of_product(k, d, r, tile, p, x->v);
		break;
	case ROWS:
		x->logged = of_rows(k, d, p, x->v);
		break;
	case BYTES:
		x->logged = of_bytes(k, d, p, x->v);
		break;
	case COMM:
		p->memory_ns = k->dim[0]; /* until a rate is learned: 1 byte per ns */
		memcpy(x->v, k->dim, 3 * sizeof(*x->v));
		x->logged = FIRST(1);
		break;
	default:
		memcpy(x->v, k->dim, 4 * sizeof(*x->v));
		x->v[4] = k->dim[0] * k->dim[1] * k->dim[2] * k->dim[3];
		x->logged = FIRST(5);
		break;
	}
}

void pl_feature_end(const struct pl_raw_features *raw, float *x)
{
	float logs[PL_FEATURES] = { 0 };
	size_t n = 0;

	while (raw->logged >> n)
		n += 4; /* are taken at once */
	pl_feature_logs(raw->v, n, logs);
	for (int i = 0; i < PL_FEATURES; i++)
		x[i] = raw->logged >> i & 1 ? logs[i] : (float)raw->v[i];
}

void pl_kernel_features(const struct pl_kernel *k, const struct pl_device *d,
			const struct pl_rates *r, struct pl_tile tile, struct pl_physics *p,
			float *x)
{
	struct pl_raw_features raw;

	pl_feature_begin(k, d, r, tile, p, &raw);
	pl_feature_end(&raw, x);
}

/* ---- rates ----------------------------------------------------------------------------------- */

#define LONG	1e6  /* ns of a product from which its rate is sustained */
#define LIMITED 0.75 /* of the peak: a board that sustains less is limited by its power */
#define PLENTY	0.02 /* W for a FLOP per ns: the power of such a board limits nothing */
#define MOST	0.8  /* quantile of the rates that counts as sustained */

/* What device d sustains, FLOP per ns; 0: too few products were measured. */
static double sustained(const struct pl_samples *s, const bool *use, uint32_t d, double *room)
{
	size_t n = 0;

	for (size_t i = 0; i < s->n; i++) {
		const struct pl_sample *x = &s->v[i];
		struct pl_kernel_work w;

		if ((use && !use[i]) || x->device != d || !x->known || !((double)x->ns >= LONG) ||
		    x->k.family != PL_KERNEL_GEMM || x->k.type != PL_KERNEL_FLOAT32)
			continue;
		w = pl_kernel_work(&x->k);
		if (w.flops / s->devices.v[d].flops > 2 * w.bytes / s->devices.v[d].bandwidth)
			room[n++] = w.flops / (double)x->ns;
	}
	if (n < 30)
		return 0;
	pl_sort(room, n, sizeof(*room), pl_compare_double);
	return room[(size_t)(MOST * (double)n)];
}

int pl_feature_rates(struct pl_rates *r, const struct pl_samples *s, const bool *use,
		     struct pl_err *err)
{
	double *room = NULL, *limited = NULL;
	size_t n = 0;
	int rc;

	pl_feature_rates_init(r);
	PL_TRY(pl_alloc(&room, s->n + 1, sizeof(*room), err));
	PL_TRY(pl_alloc(&limited, s->devices.n + 1, sizeof(*limited), err));
	for (uint32_t d = 0; d < s->devices.n; d++) {
		const struct pl_device *x = &s->devices.v[d];
		double rate = sustained(s, use, d, room), watt = rate / x->watts / process(x);
		double *least = &r->least[pl_device_generation(x)];

		if (rate > 0 && rate < LIMITED * x->flops && x->watts / x->flops < PLENTY)
			limited[n++] = watt;
		if (watt > *least)
			*least = watt;
	}
	if (n)
		r->flops_per_watt = pl_median_double(limited, n);
out:
	pl_free(room);
	pl_free(limited);
	return rc;
}
