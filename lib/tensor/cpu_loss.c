/*
 * Losses. Rows are processed in parts. The number of parts depends only on the number of rows; a
 * part sums its rows in double, and the parts are summed in order.
 */
#include <math.h>

#include "tensor/internal.h"

struct loss {
	struct pl_cpu *cpu;
	int n, c, each; /* rows a part */
	const float *x, *target;
	const int32_t *y;
	float scale;
	float *dx;
};

/* The class with the largest value, the first of equals. */
static int class_of(const struct pl_kernels *k, const float *row, int c, float *largest)
{
	int best = 0;

	*largest = k->max((size_t)c, row);
	while (best < c - 1 && row[best] != *largest)
		best++;
	return best;
}

/* Divide the sum by `count`. */
static void run(struct loss *l, void (*fn)(void *arg, int i, struct pl_slot *slot), double count,
		struct pl_loss_sum *to)
{
	double sum = 0;
	int64_t right = 0;
	int parts;

	l->each = (l->n / PL_PARTS + 8) / 8 * 8;
	parts = (l->n + l->each - 1) / l->each;
	pl_tensor_cpu_each(l->cpu, parts, 4.0 * l->n * l->c, fn, l);
	for (int i = 0; i < parts; i++) {
		sum += l->cpu->part[i].sum;
		right += l->cpu->part[i].hits;
	}
	*to = (struct pl_loss_sum){ .loss = sum / count, .hits = right };
}

static void xent_part(void *arg, int i, struct pl_slot *slot)
{
	struct loss *l = arg;
	const struct pl_kernels *k = l->cpu->k;
	struct pl_part *part = &l->cpu->part[i];
	size_t c = (size_t)l->c;

	*part = (struct pl_part){ 0 };
	for (int r = i * l->each; r < l->n && r < (i + 1) * l->each; r++) {
		const float *row = l->x + (size_t)r * c;
		float largest, *to = l->dx ? l->dx + (size_t)r * c : NULL;
		double sum = 0, own = (double)row[l->y[r]]; /* `to` may be the row */

		part->hits += class_of(k, row, l->c, &largest) == l->y[r];
		for (size_t at = 0; at < c; at += PL_BLOCK) {
			size_t n = pl_min_size(PL_BLOCK, c - at);

			sum += (double)k->exp_sum(n, 1, largest, row + at,
						  to ? to + at : slot->block);
		}
		/* one term is 1 */
		/* cppcheck-suppress invalidFunctionArg */
		part->sum += (double)largest + log(sum) - own;
		if (!to)
			continue;
		k->scale(c, (float)((double)l->scale / (sum * l->n)), to);
		to[l->y[r]] -= l->scale / (float)l->n;
	}
}

void pl_tensor_cpu_softmax_xent(void *ctx, int n, int c, const float *x, const int32_t *y,
				float scale, float *dx, struct pl_loss_sum *sum)
{
	struct loss l = { .cpu = ctx, .n = n, .c = c, .x = x, .y = y, .scale = scale, .dx = dx };

	run(&l, xent_part, n, sum);
}

static void squared_part(void *arg, int i, struct pl_slot *slot)
{
	struct loss *l = arg;
	double sum = 0, f = 2 * (double)l->scale / ((double)l->n * l->c);

	(void)slot;
	for (int r = i * l->each; r < l->n && r < (i + 1) * l->each; r++) {
		size_t at = (size_t)r * (size_t)l->c;

		for (size_t e = at + (size_t)l->c; at < e; at++) {
			double d = (double)l->x[at] - (double)l->target[at];

			sum += d * d;
			if (l->dx)
				l->dx[at] = (float)(f * d);
		}
	}
	l->cpu->part[i] = (struct pl_part){ .sum = sum };
}

void pl_tensor_cpu_squared(void *ctx, int n, int c, const float *x, const float *y, float scale,
			   float *dx, struct pl_loss_sum *sum)
{
	struct loss l = {
		.cpu = ctx, .n = n, .c = c, .x = x, .target = y, .scale = scale, .dx = dx
	};

	run(&l, squared_part, (double)n * c, sum);
}

static void hinge_part(void *arg, int i, struct pl_slot *slot)
{
	struct loss *l = arg;
	struct pl_part *part = &l->cpu->part[i];
	float f = (float)((double)l->scale / ((double)l->n * l->c)), largest;

	(void)slot;
	*part = (struct pl_part){ 0 };
	for (int r = i * l->each; r < l->n && r < (i + 1) * l->each; r++) {
		const float *row = l->x + (size_t)r * (size_t)l->c;
		float *to = l->dx ? l->dx + (size_t)r * (size_t)l->c : NULL;
		int over = 0, y = l->y[r];
		double own = (double)row[y]; /* `to` may be the row */

		part->hits += class_of(l->cpu->k, row, l->c, &largest) == y;
		for (int j = 0; j < l->c; j++) {
			double margin = 1 - own + (double)row[j];
			bool on = j != y && margin > 0;

			part->sum += on ? margin : 0;
			over += on;
			if (to)
				to[j] = on ? f : 0;
		}
		if (to)
			to[y] = -f * (float)over;
	}
}

void pl_tensor_cpu_hinge(void *ctx, int n, int c, const float *x, const int32_t *y, float scale,
			 float *dx, struct pl_loss_sum *sum)
{
	struct loss l = { .cpu = ctx, .n = n, .c = c, .x = x, .y = y, .scale = scale, .dx = dx };

	run(&l, hinge_part, (double)n * c, sum);
}
