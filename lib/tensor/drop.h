/*
 * drop.h - dropout: the choice of dropped elements, equal in all backends, also on a device.
 *
 * Two rounds of multiply and shift over the number of the element, each after adding one half of
 * the key; 32 bits, so that vectors can compute it. The multipliers are those of C. Wellons' search
 * for hashes of low bias. Elements beyond 2^32 use another key.
 */
#ifndef PL_TENSOR_DROP_H
#define PL_TENSOR_DROP_H

#include <stdint.h>

#ifdef __CUDACC__
#define PL_DROP static inline __host__ __device__
#else
#define PL_DROP static inline
#endif

/* The key of one layer's masks in one pass: a step of SplitMix64 (pl_rng_next). */
PL_DROP uint64_t pl_drop_key(uint64_t key, uint64_t salt)
{
	uint64_t z = key + salt + 0x9e3779b97f4a7c15u;

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}
PL_DROP uint32_t pl_drop_mix(uint32_t x)
{
	x ^= x >> 16;
	x *= 0x7feb352du;
	x ^= x >> 15;
	x *= 0x846ca68bu;
	return x ^ (x >> 16);
}
PL_DROP uint32_t pl_drop_hash(uint64_t key, uint64_t i)
{
	uint32_t lo = (uint32_t)key, hi = (uint32_t)(key >> 32) + (uint32_t)(i >> 32) * 0x9e3779b9u;

	return pl_drop_mix(pl_drop_mix((uint32_t)i ^ lo) ^ hi);
}
/* An element is dropped if its hash is below this. */
PL_DROP uint32_t pl_drop_limit(double p)
{
	double v = p * 4294967296.0;

	return v >= 4294967295.0 ? UINT32_MAX : v > 0 ? (uint32_t)v : 0;
}

#endif
