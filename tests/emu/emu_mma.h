/*
 * emu_mma.h - mma.cuh's instructions on the emulated device, lane by lane as the PTX ISA lays out
 * their fragments. Products of bfloat16 are exact in float32; the 16 of a sum are added in order.
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

		for (unsigned k = 0; k < 16; k++) {
			unsigned half = k / 8, at = k % 8 / 2;
			const struct fragments *left =
				(const struct fragments *)(all + (4 * g + at) * EMU_LANE);
			const struct fragments *right =
				(const struct fragments *)(all + (4 * column + at) * EMU_LANE);

			c[e] += emu_half(left->a[2 * half + e / 2], k % 2) *
				emu_half(right->b[half], k % 2);
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
	struct emu_copies *c = emu_own_copies();

	static_assert(N == 4 || N == 8 || N == 16, "a size that cp.async has");
	if (c->n == 192 || to % N || (uintptr_t)from % N) {
		fprintf(stderr, "emulated device: cp.async not aligned, or too many\n");
		abort();
	}
	memset((void *)to, 0xff, N);
	c->list[c->n++] = { to, from, N, c->groups, valid };
}

static inline void plm_commit()
{
	emu_own_copies()->groups++;
}

template <int N> static inline void plm_wait()
{
	struct emu_copies *c = emu_own_copies();
	int kept = 0;

	if (c->launch != emu_launches || c->block != blockIdx.x)
		c->hidden = false;
	c->hidden = c->hidden || c->n;
	c->launch = emu_launches;
	c->block = blockIdx.x;
	for (int i = 0; i < c->n; i++)
		if (c->list[i].group >= c->groups - N)
			c->list[kept++] = c->list[i];
		else if (c->list[i].valid)
			memcpy((void *)c->list[i].to, c->list[i].from, (size_t)c->list[i].bytes);
		else
			memset((void *)c->list[i].to, 0, (size_t)c->list[i].bytes);
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
	float y = exp2f(x);

	return y < 1.17549435e-38f ? 0 : y; /* no number stays none */
}

#endif
