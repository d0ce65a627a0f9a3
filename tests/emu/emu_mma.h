/*
 * emu_mma.h - mma.cuh's instructions on the emulated device, lane by lane as the PTX ISA lays out
 * their fragments. Products of bfloat16 are exact in float32; how tensor cores add them NVIDIA does
 * not say. Here it is done as A100s were found to do it (Fasi et al., Numerical behavior of NVIDIA
 * tensor cores, 2021), newer ones being no worse.
 *
 * A copy that was asked for happens when its plm_wait() is called and not before: until then its
 * place in shared memory holds NaN, as whoever reads it too early may find anything there.
 */
#ifndef PL_EMU_MMA_H
#define PL_EMU_MMA_H

#include <stdio.h>
#include <stdlib.h>

typedef uintptr_t plm_addr;

static inline plm_addr plm_shared(const void *p)
{
	return (plm_addr)p;
}

static inline float emu_half(uint32_t pair, unsigned which)
{
	return __uint_as_float(which ? pair & 0xffff0000u : pair << 16);
}

/* c + 8 products: all are cut off at a bit behind the last of the greatest, added, and the sum is
 * rounded towards zero. */
static inline float emu_add(float c, const float *product)
{
	unsigned most = __float_as_uint(fabsf(c));
	double unit, sum = c;
	int64_t units;
	float r;

	for (unsigned k = 0; k < 8; k++)
		most = most > __float_as_uint(fabsf(product[k]))
			       ? most
			       : __float_as_uint(fabsf(product[k]));
	if (most >> 23 == 255) {
		for (unsigned k = 0; k < 8; k++)
			sum += product[k];
		return (float)sum;
	}
	unit = (double)__uint_as_float((254 - (most >> 23 ? most >> 23 : 1)) << 23) * (1 << 24);
	units = (int64_t)(sum * unit);
	for (unsigned k = 0; k < 8; k++)
		units += (int64_t)(product[k] * unit);
	sum = (double)units / unit;
	r = (float)sum;
	return fabs((double)r) > fabs(sum) ? nextafterf(r, 0) : r;
}

static inline void plm_mma(float *c, const uint32_t *a, const uint32_t *b)
{
	struct fragments {
		uint32_t a[4], b[2];
	} own;
	const char *all;
	unsigned g = emu_lane() / 4, i = emu_lane() % 4;

	memcpy(own.a, a, sizeof(own.a));
	memcpy(own.b, b, sizeof(own.b));
	all = emu_warp("mma", 0xffffffffu, &own, sizeof(own));
	for (unsigned e = 0; e < 4; e++) {
		unsigned column = 2 * i + e % 2; /* of C; the row is g + 8 (e / 2) */

		for (unsigned half = 0; half < 2; half++) {
			float product[8];

			for (unsigned k = 0; k < 8; k++) {
				const struct fragments *left =
					(const struct fragments *)(all +
								   (4 * g + k / 2) * EMU_LANE);
				const struct fragments *right =
					(const struct fragments *)(all +
								   (4 * column + k / 2) * EMU_LANE);

				product[k] = emu_half(left->a[2 * half + e / 2], k % 2) *
					     emu_half(right->b[half], k % 2);
			}
			c[e] = emu_add(c[e], product);
		}
	}
}

/* The address that lane 8 matrix + row gave. */
static inline const uint16_t *emu_row(const char *all, unsigned matrix, unsigned row)
{
	return (const uint16_t *)emu_from<plm_addr>(all, 8 * matrix + row);
}

static inline const char *emu_rows(const char *op, plm_addr from)
{
	if (from % 16) {
		fprintf(stderr, "emulated device: %s of a row that is not aligned\n", op);
		abort();
	}
	emu_touch((const void *)from, 16, EMU_READS); /* of a row that others get, too */
	return emu_warp(op, 0xffffffffu, &from, sizeof(from));
}

static inline void plm_load(uint32_t *r, plm_addr from)
{
	const char *all = emu_rows("ldmatrix", from);

	for (unsigned m = 0; m < 4; m++)
		memcpy(&r[m], emu_row(all, m, emu_lane() / 4) + emu_lane() % 4 * 2, 4);
}

static inline void plm_load_across(uint32_t *r, plm_addr from)
{
	const char *all = emu_rows("ldmatrix.trans", from);
	unsigned g = emu_lane() / 4, i = emu_lane() % 4;

	for (unsigned m = 0; m < 4; m++)
		r[m] = emu_row(all, m, 2 * i)[g] | (uint32_t)emu_row(all, m, 2 * i + 1)[g] << 16;
}

/* What a thread of a block has asked for and not waited for. */
struct emu_copies {
	int n, groups; /* committed so far */
	struct {
		plm_addr to;
		const void *from;
		int bytes, group;
		bool valid;
	} list[192];
	bool hidden; /* something has come that wgmma does not see, see emu_wgmma.h; */
	uint64_t launch;
	unsigned block; /* in this */
};
inline struct emu_copies emu_copies[1024];

static inline struct emu_copies *emu_own_copies()
{
	return &emu_copies[threadIdx.x + blockDim.x * threadIdx.y];
}

template <int N> static inline void plm_copy(plm_addr to, const void *from, bool valid)
{
	const struct emu_aside aside;
	struct emu_copies *c = emu_own_copies();

	static_assert(N == 4 || N == 8 || N == 16, "a size that cp.async has");
	if (c->n == 192 || to % N || (uintptr_t)from % N) {
		fprintf(stderr, "emulated device: cp.async not aligned, or too many\n");
		abort();
	}
	emu_touch((void *)to, N, EMU_WRITES);
	memset((void *)to, 0xff, N);
	c->list[c->n++] = { to, from, N, c->groups, valid };
}

static inline void plm_commit()
{
	const struct emu_aside aside;

	emu_own_copies()->groups++;
}

template <int N> static inline void plm_wait()
{
	const struct emu_aside aside;
	struct emu_copies *c = emu_own_copies();
	int kept = 0;

	if (c->launch != emu_launches || c->block != blockIdx.x)
		c->hidden = false;
	c->hidden = c->hidden || c->n;
	c->launch = emu_launches;
	c->block = blockIdx.x;
	for (int i = 0; i < c->n; i++) {
		void *to = (void *)c->list[i].to;
		size_t bytes = (size_t)c->list[i].bytes;

		if (c->list[i].group >= c->groups - N) {
			c->list[kept++] = c->list[i];
			continue;
		}
		emu_touch(to, bytes, EMU_WRITES);
		if (c->list[i].valid) {
			emu_touch(c->list[i].from, bytes, EMU_READS);
			memcpy(to, c->list[i].from, bytes);
		} else {
			memset(to, 0, bytes);
		}
	}
	c->n = kept;
}

static inline float2 plm_two(plm_addr from)
{
	return *(const float2 *)from;
}

static inline unsigned plm_again(unsigned x)
{
	return x;
}

static inline float plm_exp2(float x)
{
	return emu_exp2(x);
}

#endif
