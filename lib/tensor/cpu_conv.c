/*
 * Convolution as a product of matrices whose second operand is never stored.
 *
 * An image is copied once, with zeros around it. Row (c, r, s) of the "im2col" matrix is then the
 * image itself, shifted by a constant offset. So a vector of neighbouring outputs reads its inputs
 * directly, at this offset. For a stride t the copy splits the image into t x t images of every
 * t-th pixel, because the inputs of neighbouring outputs are neighbours in these.
 *
 * - forward: a tile of filters against two vectors of outputs (pl_kernels.taps). Vectors lie in
 * rows of outputs, or cover the whole plane and also compute the columns of padding, whichever
 * needs fewer vectors.
 * - dx: the same with dy, spread by the stride, and the filters rotated by 180 degrees. (For
 * strides above 1 most of these products are with zeros; nets have few such layers.)
 * - dw: shifted images are the rows, dy transposed is the packed operand (pl_kernels.rows); one
 * image after the other, so that the order of the sum is that of the images. Runs of at most RUN
 * pixels are summed in float32 and the runs in float64: if dy sums to zero, as after batch
 * normalisation, the gradient is a small difference of large sums.
 */
#include "tensor/internal.h"

#define IMAGES 8 /* of a block in dw, copied before the threads divide its rows */
#define SLACK  ((size_t)4 * PL_NR_MAX)
/* Pixels whose products are summed in float32, because the error of a sum grows with its length.
 * The end of a run costs as much as some four pixels, which is little beside 1024. */
#define RUN 1024

/* The layout of a copied image, and the result: `filters` planes of p x q. */
struct shape {
	int c, h, w, stride, pad_y, pad_x; /* the source; pads may be negative */
	int spread;			   /* steps from one source pixel to the next in the copy */
	int r, s, p, q, filters;
	int rows, pitch;    /* of a plane of the copy */
	int taps;	    /* c r s */
	bool whole;	    /* vectors run over the whole plane */
	int width, vectors; /* floats in a vector; vectors of a plane, an even number */
	int out_pitch;
	size_t image, out; /* floats of the copy; of all planes of results */
};

static void shape_init(struct shape *g, const struct pl_kernels *k)
{
	int t = g->stride, w = k->nr / 2, by_row, whole;

	g->rows = g->p - 1 + (g->r - 1) / t + 1;
	g->pitch = g->q - 1 + (g->s - 1) / t + 1;
	g->taps = g->c * g->r * g->s;
	g->width = w;
	by_row = g->p * ((g->q + w - 1) / w);
	whole = ((g->p - 1) * g->pitch + g->q + w - 1) / w;
	g->whole = whole < by_row;
	g->vectors = ((g->whole ? whole : by_row) + 1) & ~1;
	g->out_pitch = g->whole ? g->pitch : (g->q + w - 1) / w * w;
	g->image = ((size_t)g->c * (size_t)(t * t) * (size_t)g->rows * (size_t)g->pitch + SLACK +
		    (size_t)g->pitch + 15) /
		   16 * 16;
	g->out = (size_t)g->filters * (size_t)g->vectors * (size_t)w;
}

/* The shape of the forward pass; back: of dx, a convolution of dy with rotated filters. */
static void shape_of(struct shape *g, const struct pl_kernels *k, const struct pl_conv *d,
		     bool back)
{
	*g = (struct shape){ .c = back ? d->k : d->c,
			     .h = back ? d->p : d->h,
			     .w = back ? d->q : d->w,
			     .stride = back ? 1 : d->stride,
			     .pad_y = back ? d->r - 1 - d->pad : d->pad,
			     .pad_x = back ? d->s - 1 - d->pad : d->pad,
			     .spread = back ? d->stride : 1,
			     .r = d->r,
			     .s = d->s,
			     .p = back ? d->h : d->p,
			     .q = back ? d->w : d->q,
			     .filters = back ? d->c : d->k };
	shape_init(g, k);
}

/* For each (c, r, s): the offset of the first output's input. */
static void shape_taps(const struct shape *g, ptrdiff_t *at)
{
	int t = g->stride, plane = g->rows * g->pitch;

	for (int c = 0; c < g->c; c++)
		for (int r = 0; r < g->r; r++)
			for (int s = 0; s < g->s; s++)
				*at++ = ((ptrdiff_t)c * t * t + r % t * t + s % t) * plane +
					r / t * g->pitch + s / t;
}

/* A row of the copy: its pixel x is pixel (x0 + x * step) / spread of the source. */
static void copy_row(const struct shape *g, const float *from, int x0, float *to)
{
	int t = g->stride, first = 0, last = g->pitch;

	if (g->spread == 1 && t == 1) {
		first = x0 < 0 ? -x0 : 0;
		last = g->w - x0 < g->pitch ? g->w - x0 : g->pitch;
		if (last > first)
			memcpy(to + first, from + x0 + first, (size_t)(last - first) * sizeof(*to));
		return;
	}
	for (int x = 0; x < g->pitch; x++) {
		int at = x0 + x * t;

		if (at >= 0 && at % g->spread == 0 && at / g->spread < g->w)
			to[x] = from[at / g->spread];
	}
}

static void copy_image(const struct shape *g, const float *x, float *to)
{
	int t = g->stride;

	memset(to, 0, g->image * sizeof(*to));
	for (int c = 0; c < g->c; c++, x += (size_t)g->h * (size_t)g->w)
		for (int phase = 0; phase < t * t; phase++)
			for (int y = 0; y < g->rows; y++, to += g->pitch) {
				int at = y * t + phase / t - g->pad_y;

				if (at < 0 || at % g->spread || at / g->spread >= g->h)
					continue;
				copy_row(g, x + (size_t)(at / g->spread) * (size_t)g->w,
					 phase % t - g->pad_x, to);
			}
}

static ptrdiff_t vector_at(const struct shape *g, int v)
{
	int row = g->out_pitch / g->width, all = g->p * row;

	if (g->whole)
		return (ptrdiff_t)v * g->width;
	v = v < all ? v : all - 1; /* a repeated vector makes the number even */
	return (ptrdiff_t)(v / row) * g->pitch + (ptrdiff_t)(v % row) * g->width;
}

/* out (filters, vectors) = w (filters, taps) . copy */
static void run_taps(const struct shape *g, const struct pl_kernels *k, const float *copy,
		     const float *w, const ptrdiff_t *at, float *out)
{
	_Alignas(64) float tile[PL_MR_MAX * PL_NR_MAX];
	ptrdiff_t plane = (ptrdiff_t)g->vectors * g->width;

	for (int f = 0; f < g->filters; f += k->mr) {
		int n = g->filters - f < k->mr ? g->filters - f : k->mr;
		const float *row[PL_MR_MAX];

		for (int i = 0; i < k->mr; i++)
			row[i] = w + (ptrdiff_t)(f + (i < n ? i : 0)) * g->taps;
		for (int v = 0; v < g->vectors; v += 2) {
			const float *b0 = copy + vector_at(g, v), *b1 = copy + vector_at(g, v + 1);
			float *to = out + f * plane + (ptrdiff_t)v * g->width;

			if (n == k->mr) {
				k->taps(row, g->taps, at, b0, b1, to, plane);
				continue;
			}
			k->taps(row, g->taps, at, b0, b1, tile, k->nr);
			for (int i = 0; i < n; i++)
				memcpy(to + i * plane, tile + (ptrdiff_t)i * k->nr,
				       (size_t)k->nr * sizeof(*to));
		}
	}
}

/* Copy the results of run_taps() to y (filters, p, q) without padding; bias and activation. */
static void finish(const struct shape *g, const struct pl_kernels *k, const float *out,
		   const float *bias, enum pl_act act, float *y)
{
	ptrdiff_t plane = (ptrdiff_t)g->vectors * g->width;
	bool dense = g->out_pitch == g->q;
	int rows = dense ? 1 : g->p, n = dense ? g->p * g->q : g->q;

	for (int f = 0; f < g->filters; f++)
		for (int i = 0; i < rows; i++, y += n)
			k->bias_one((size_t)n, bias ? bias[f] : 0, act,
				    out + f * plane + (ptrdiff_t)i * g->out_pitch, y);
}

struct conv {
	struct pl_cpu *cpu;
	const struct pl_conv *d;
	struct shape fwd, back;
	const float *x, *w, *bias, *dy;
	enum pl_act act;
	const struct shape *shape; /* of one_image(): `fwd` or `back` */
	const float *in;	   /* images that it reads */
	float *out;		   /* that it writes */
	/* parts of the work space */
	ptrdiff_t *at; /* (taps) */
	float *turned; /* filters for dx (C, K, R, S); or rounded ones */
	double *sums;  /* dw transposed (taps, filters), in whole tiles */
	float *room; /* for each thread a copy and results; or copies and dy of a block of images */
	size_t room_one; /* floats of a thread */
	int panels;	 /* of filters in dw */
	int first, images, parts;
};

static int taps_of(const struct pl_conv *d)
{
	int fwd = d->c * d->r * d->s, back = d->k * d->r * d->s;

	return ((fwd > back ? fwd : back) + 31) / 32 * 32;
}

/* Divides the work space (NULL: computes sizes only); returns how many floats it needs. */
static size_t conv_init(struct conv *v, void *ctx, const struct pl_conv *d, float *work)
{
	const struct pl_kernels *k = ((struct pl_cpu *)ctx)->k;
	size_t at = (size_t)taps_of(d) * 2, turned, sums, one, back, block;

	v->cpu = ctx;
	v->d = d;
	shape_of(&v->fwd, k, d, false);
	shape_of(&v->back, k, d, true);
	v->panels = (d->k + k->nr - 1) / k->nr;
	turned = ((size_t)d->k * (size_t)(d->c * d->r * d->s) + 15) / 16 * 16;
	sums = (size_t)(v->fwd.taps + PL_MR_MAX) * (size_t)(v->panels * k->nr);
	one = v->fwd.image + v->fwd.out;
	back = v->back.image + v->back.out;
	v->room_one = ((one > back ? one : back) + 15) / 16 * 16;
	block = v->fwd.image + (size_t)d->p * (size_t)d->q * (size_t)(v->panels * k->nr);
	one = v->room_one * (size_t)v->cpu->threads;
	if (work) {
		v->at = (ptrdiff_t *)(void *)work;
		v->turned = work + at;
		v->sums = (double *)(void *)(v->turned + turned);
		v->room = v->turned + turned + 2 * sums;
	}
	return at + turned + 2 * sums + (one > IMAGES * block ? one : IMAGES * block);
}

size_t pl_tensor_cpu_conv_work(void *ctx, const struct pl_conv *d)
{
	struct conv v;

	return conv_init(&v, ctx, d, NULL);
}

/* Copy an image, rounded to bfloat16 if the precision demands it. */
static void copy_operand(const struct conv *v, const struct shape *g, const float *x, float *to)
{
	copy_image(g, x, to);
	if (v->cpu->half)
		v->cpu->k->round(g->image, to, to);
}

static double conv_flops(const struct conv *v)
{
	return (double)v->d->n * v->d->k * v->d->p * v->d->q * v->fwd.taps;
}

static void one_image(void *arg, int i, struct pl_slot *slot)
{
	struct conv *v = arg;
	const struct shape *g = v->shape;
	float *copy = v->room + (size_t)(slot - v->cpu->slot) * v->room_one;

	copy_operand(v, g, v->in + (size_t)i * (size_t)(g->c * g->h * g->w), copy);
	run_taps(g, v->cpu->k, copy, v->w, v->at, copy + g->image);
	finish(g, v->cpu->k, copy + g->image, v->bias, v->act,
	       v->out + (size_t)i * (size_t)(g->filters * g->p * g->q));
}

/* All images, with the filters at w, which were rounded or copied to `turned`. */
static void all_images(struct conv *v, const struct shape *g, const float *in, float *out)
{
	shape_taps(g, v->at);
	v->shape = g;
	v->in = in;
	v->out = out;
	pl_tensor_cpu_each(v->cpu, v->d->n, conv_flops(v), one_image, v);
}

void pl_tensor_cpu_conv(void *ctx, const struct pl_conv *d, const float *x, const float *w,
			const float *bias, enum pl_act act, float *y, float *work)
{
	struct conv v = { .w = w, .bias = bias, .act = act };

	conv_init(&v, ctx, d, work);
	if (v.cpu->half) {
		v.cpu->k->round((size_t)d->k * (size_t)v.fwd.taps, w, v.turned);
		v.w = v.turned;
	}
	all_images(&v, &v.fwd, x, y);
}

/* ---- back ------------------------------------------------------------------------------------ */

/* turned (C, K, R, S) = w (K, C, R, S), with R and S reversed */
static void turn_filters(const struct conv *v)
{
	const struct pl_conv *d = v->d;
	int rs = d->r * d->s;

	for (int c = 0; c < d->c; c++)
		for (int k = 0; k < d->k; k++)
			for (int i = 0; i < rs; i++)
				v->turned[((size_t)c * (size_t)d->k + (size_t)k) * (size_t)rs +
					  (size_t)i] =
					v->w[((size_t)k * (size_t)d->c + (size_t)c) * (size_t)rs +
					     (size_t)(rs - 1 - i)];
}

/* Image i of the block: its copy, and dy (filters, pixels) as panels (pixels, nr). */
static void prepare_image(void *arg, int i, struct pl_slot *slot)
{
	struct conv *v = arg;
	const struct shape *g = &v->fwd;
	int nr = v->cpu->k->nr, pixels = g->p * g->q;
	size_t image = (size_t)(v->first + i);
	float *copy = v->room + (size_t)i * (g->image + (size_t)pixels * (size_t)(v->panels * nr));
	float *panel = copy + g->image;
	const float *dy = v->dy + image * (size_t)(g->filters * pixels);

	(void)slot;
	copy_operand(v, g, v->x + image * (size_t)(g->c * g->h * g->w), copy);
	for (int f = 0; f < g->filters; f += nr, panel += (size_t)pixels * (size_t)nr)
		pl_tensor_pack_transposed(dy + (size_t)f * (size_t)pixels, pixels, pixels,
					  g->filters - f < nr ? g->filters - f : nr, nr, panel);
	if (v->cpu->half)
		v->cpu->k->round((size_t)pixels * (size_t)(v->panels * nr), copy + g->image,
				 copy + g->image);
}

/* A tile of sums, from tap l and filter f on, over the images [first, end) of the block, in runs:
 * of lines of one image, or of whole images. */
static void sum_tile(const struct conv *v, int first, int end, int l, int f)
{
	_Alignas(64) float tile[PL_MR_MAX * PL_NR_MAX];
	const struct shape *g = &v->fwd;
	const struct pl_kernels *k = v->cpu->k;
	int nr = k->nr, pixels = g->p * g->q, lines = g->q < RUN ? RUN / g->q : 1;
	size_t one = g->image + (size_t)pixels * (size_t)(v->panels * nr);
	ptrdiff_t ld = (ptrdiff_t)v->panels * nr;
	double *to = v->sums + l * ld + (ptrdiff_t)f * nr;

	for (int i = first; i < end; i++) {
		const float *copy = v->room + (size_t)i * one, *row[PL_MR_MAX];
		const float *panel = copy + g->image + (size_t)f * (size_t)(pixels * nr);

		for (int y = 0; y < g->p; y += lines) {
			int n = g->p - y < lines ? g->p - y : lines;

			for (int j = 0; j < k->mr; j++)
				row[j] = copy + v->at[l + j < g->taps ? l + j : l] +
					 (ptrdiff_t)y * g->pitch;
			k->rows(row, g->q, n, g->pitch, panel + (ptrdiff_t)y * g->q * nr, tile, nr,
				i > first && g->p <= lines);
			if (g->p <= lines && i + 1 < end)
				continue;
			for (int j = 0; j < k->mr; j++)
				for (int c = 0; c < nr; c++)
					to[j * ld + c] += (double)tile[j * nr + c];
		}
	}
}

/* The part-th share of the taps: sums over the images of the block. */
static void sum_taps(void *arg, int part, struct pl_slot *slot)
{
	struct conv *v = arg;
	const struct shape *g = &v->fwd;
	int mr = v->cpu->k->mr, tiles = (g->taps + mr - 1) / mr;
	int from = (int)((int64_t)tiles * part / v->parts) * mr;
	int to = (int)((int64_t)tiles * (part + 1) / v->parts) * mr;
	int together = g->p * g->q < RUN ? RUN / (g->p * g->q) : 1;

	(void)slot;
	for (int i = 0; i < v->images; i += together)
		for (int f = 0; f < v->panels; f++)
			for (int l = from; l < to; l += mr)
				sum_tile(v, i, i + together < v->images ? i + together : v->images,
					 l, f);
}

static void weights_back(struct conv *v, float *dw)
{
	const struct pl_conv *d = v->d;
	int ld = v->panels * v->cpu->k->nr;

	v->parts = v->cpu->threads;
	memset(v->sums, 0, (size_t)(v->fwd.taps + PL_MR_MAX) * (size_t)ld * sizeof(*v->sums));
	for (v->first = 0; v->first < d->n; v->first += IMAGES) {
		v->images = d->n - v->first < IMAGES ? d->n - v->first : IMAGES;
		pl_tensor_cpu_each(v->cpu, v->images, conv_flops(v) / d->n * v->images,
				   prepare_image, v);
		pl_tensor_cpu_each(v->cpu, v->parts, conv_flops(v) / d->n * v->images, sum_taps, v);
	}
	for (int f = 0; f < d->k; f++)
		for (int l = 0; l < v->fwd.taps; l++, dw++)
			*dw = (float)((double)*dw + v->sums[(ptrdiff_t)l * ld + f]);
}

static void bias_back(const struct conv *v, float *db)
{
	const struct pl_conv *d = v->d;
	size_t plane = (size_t)d->p * (size_t)d->q;

	for (int f = 0; f < d->k; f++) {
		double sum = 0;

		for (int i = 0; i < d->n; i++)
			sum += v->cpu->k->sum(
				plane, v->dy + ((size_t)i * (size_t)d->k + (size_t)f) * plane);
		db[f] = (float)((double)db[f] + sum);
	}
}

void pl_tensor_cpu_conv_back(void *ctx, const struct pl_conv *d, const float *x, const float *w,
			     enum pl_act act, const float *y, float *dy, float *dx, float *dw,
			     float *db, float *work)
{
	struct conv v = { .x = x, .w = w, .dy = dy };

	conv_init(&v, ctx, d, work);
	if (act != PL_ACT_NONE)
		pl_backend_cpu.act_back(ctx, act, (size_t)d->n * (size_t)(d->k * d->p * d->q), y, y,
					dy, dy);
	if (db)
		bias_back(&v, db);
	shape_taps(&v.fwd, v.at);
	weights_back(&v, dw);
	if (!dx)
		return;
	turn_filters(&v);
	v.w = v.turned;
	if (v.cpu->half)
		v.cpu->k->round((size_t)d->k * (size_t)v.fwd.taps, v.turned, v.turned);
	all_images(&v, &v.back, dy, dx);
}
