/*
 * Initial values. Number i of a tensor depends only on the seed, the tensor's name and i, not on
 * ranks, threads, or other layers: splitmix64 as a counter-based generator, Box and Muller's
 * transform for normal values. Distributions are PyTorch's defaults (kaiming_uniform with a = sqrt
 * 5 is uniform within 1/sqrt(fan_in)).
 */
#include <math.h>

#include "tensor/net_internal.h"

#define CHUNK 4096 /* numbers computed at a time; even, because normal values come in pairs */

static uint64_t word(uint64_t key, uint64_t i)
{
	uint64_t state = key + i * 0x9e3779b97f4a7c15u;

	return pl_rng_next(&state);
}

/* Box and Muller: numbers i and i + 1, i even, from one point of the unit square. */
static void normal_pair(uint64_t key, uint64_t i, double out[2])
{
	static const double turn = 6.283185307179586;
	double u = (double)((word(key, i) >> 11) + 1) * 0x1p-53;
	double angle = (double)(word(key, i + 1) >> 11) * 0x1p-53 * turn, r = sqrt(-2 * log(u));

	out[0] = r * cos(angle);
	out[1] = r * sin(angle);
}

/* Numbers first .. first + n - 1; first is even. */
static void fill(struct pl_init init, uint64_t key, size_t first, size_t n, float *out)
{
	double pair[2] = { 0, 0 };

	for (size_t i = 0; i < n; i++) {
		if (init.kind == PL_INIT_UNIFORM) {
			double u = (double)(word(key, first + i) >> 11) * 0x1p-53;

			out[i] = (float)((2 * u - 1) * init.v);
		} else if (init.kind == PL_INIT_NORMAL) {
			if (i % 2 == 0)
				normal_pair(key, first + i, pair);
			out[i] = (float)(init.v * pair[i % 2]);
		} else {
			out[i] = init.kind == PL_INIT_ONE;
		}
	}
}

static void put_values(struct pl_net *net, struct pl_init init, uint64_t key, float *to, size_t n,
		       float *chunk)
{
	for (size_t i = 0; i < n; i += CHUNK) {
		size_t m = pl_min_size(CHUNK, n - i);

		fill(init, key, i, m, chunk);
		net->be->put(net->ctx, to + i, chunk, m * sizeof(*chunk));
	}
}

int pl_net_init(struct pl_net *net, struct pl_err *err)
{
	float *chunk;

	PL_CHECK(pl_alloc(&chunk, CHUNK, sizeof(*chunk), err));
	net->be->zero(net->ctx, net->params.p, net->params.n * sizeof(float));
	net->be->zero(net->ctx, net->grads.p, net->grads.n * sizeof(float));
	if (net->state.n)
		net->be->zero(net->ctx, net->state.p, net->state.n * sizeof(float));
	for (uint32_t t = 0; t < net->n_tensors; t++) {
		const struct pl_net_tensor *at = &net->tensor[t];
		uint64_t seed = net->o.seed;
		uint64_t key = pl_rng_next(&seed) ^ pl_hash(at->name, strlen(at->name));

		key = pl_rng_next(&key);
		put_values(net, net->init[t], key, net->params.p + at->offset, at->n, chunk);
	}
	for (uint32_t i = 0; i < net->n; i++) {
		const struct pl_node *nd = &net->node[i];

		if (nd->op == PL_LAYER_BATCHNORM)
			put_values(net, (struct pl_init){ PL_INIT_ONE, 0 }, 0,
				   net->state.p + nd->state + nd->c, (size_t)nd->c, chunk);
	}
	pl_free(chunk);
	return 0;
}
