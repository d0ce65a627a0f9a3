/*
 * emu_wgmma.h - wgmma.cuh's instructions on the emulated device, thread by thread as the PTX ISA
 * lays out their fragments and what lies in shared memory.
 *
 * A product is made when it is asked for, and again when it is waited for: another result then says
 * that what it reads was not left alone (or not there yet). Until then its accumulators hold NaN.
 * Ends the program, too: a product without a fence since the last wait; registers that were not
 * kept before that, or changed since; a descriptor of something else; shared memory that a thread
 * of the block has copied to and not shown; a matrix that begins where swizzling does not.
 */
#ifndef PL_EMU_WGMMA_H
#define PL_EMU_WGMMA_H

#include <vector>

struct emu_matrix {
	plm_addr at;
	unsigned panel, rows; /* bytes to the next 64 columns, and to the next 8 rows */
	bool across;
};

struct emu_product {
	struct emu_matrix a, b;
	bool held;	     /* A was in registers: */
	uint32_t regs[4][4]; /* those of the lanes of its rows */
	const uint32_t *own; /* where this lane has them */
	bool add;
};
struct emu_accumulators {
	float *c;
	unsigned n; /* columns */
	int group;  /* of the last product */
	std::vector<float> before, after;
	std::vector<struct emu_product> products;
};
struct emu_kept {
	const void *at;
	std::vector<uint32_t> was;
};
struct emu_products {
	bool fenced;
	std::vector<struct emu_kept> kept,
		ordered; /* registers: by plw_keep(), and the fence after it */
	int groups;	 /* committed so far */
	std::vector<struct emu_accumulators> list;
};
inline struct emu_products emu_products[1024];

static inline void emu_wgmma_fail(const char *why)
{
	fprintf(stderr, "emulated device: wgmma: %s\n", why);
	abort();
}

/*
 * What a descriptor says: bits 0 to 13 where the matrix begins, 16 to 29 its leading, 32 to 45 its
 * stride byte offset, all in units of 16 bytes; 49 to 51 the offset of what does not begin where
 * swizzling does; 62, 63 swizzling, of 128 bytes: 1. Shared memory has less than 2^18 bytes: what
 * is above is known.
 */
static inline struct emu_matrix emu_matrix_of(plw_matrix m, bool across)
{
	plm_addr from = (plm_addr)emu_dynamic();
	unsigned begins = (unsigned)(m & 0x3fff) << 4;
	struct emu_matrix to = { from + ((begins - from) & 0x3ffff),
				 (unsigned)(m >> 16 & 0x3fff) << 4,
				 (unsigned)(m >> 32 & 0x3fff) << 4, across };

	if (m >> 62 != 1 || m << 2 >> 48)
		emu_wgmma_fail("a descriptor of something else than swizzling of 128 bytes");
	if (across ? to.at % 1024 : to.at % 1024 % 32 || to.at % 1024 > 96)
		emu_wgmma_fail("a matrix begins where swizzling does not");
	return to;
}

/* What swizzling makes of an address. */
static inline const uint16_t *emu_swizzled(plm_addr at)
{
	return (const uint16_t *)(emu_unswizzled ? at : at ^ (at >> 7 & 7) << 4);
}

/* The 16 elements that are summed of row (of A) or column (of B) mn. */
static inline void emu_line(const struct emu_matrix *m, unsigned mn, float *v)
{
	plm_addr along = m->at + mn / 8 * m->rows + mn % 8 * 128;
	plm_addr across = m->at + mn / 64 * m->panel + mn % 64 * 2;

	for (unsigned k = 0; k < 16; k++) {
		const uint16_t *at = m->across
					     ? emu_swizzled(across + k / 8 * m->rows + k % 8 * 128)
					     : emu_swizzled(along + k / 8 * 16) + k % 8;

		emu_touch(at, sizeof(*at), EMU_READS);
		v[k] = emu_half(*at, 0);
	}
}

/* A product may read all of A, whichever warp's rows they are. */
static inline void emu_touch_left(const struct emu_product *p)
{
	if (!p->held && emu_lane() == 0)
		for (unsigned row = 0; row < 64; row++)
			for (unsigned half = 0; half < 2; half++)
				emu_touch(emu_swizzled(p->a.at + row / 8 * p->a.rows +
						       row % 8 * 128 + half * 16),
					  16, EMU_READS);
}

static inline void emu_left(const struct emu_product *p, unsigned row, float *v)
{
	unsigned own = row / 8 % 2; /* of the warp's 16 rows, the lane's second? */

	if (!p->held) {
		emu_line(&p->a, row, v);
		return;
	}
	for (unsigned k = 0; k < 16; k++)
		v[k] = emu_half(p->regs[k % 8 / 2][k / 8 * 2 + own], k % 2);
}

static inline void emu_multiply(const struct emu_product *p, unsigned n, float *c)
{
	unsigned g = emu_lane() / 4, i = emu_lane() % 4, first = threadIdx.x / 32 % 4 * 16;
	float left[2][16], right[16];

	for (unsigned e = 0; e < 2; e++)
		emu_left(p, first + g + 8 * e, left[e]);
	for (unsigned at = 0; at < n / 4; at++) {
		emu_line(&p->b, at / 2 * 8 + 2 * i + at % 2, right);
		for (unsigned e = 0; e < 2; e++) {
			float *to = &c[at / 2 * 4 + 2 * e + at % 2];

			*to = p->add ? *to : 0;
			for (unsigned half = 0; half < 16; half += 8) {
				float product[8];

				for (unsigned k = 0; k < 8; k++)
					product[k] = left[e][half + k] * right[half + k];
				*to = emu_add(*to, product);
			}
		}
	}
}

/* Are they registers that were kept before the fence, and have not changed since? */
static inline void emu_check_kept(const void *at, size_t bytes)
{
	for (auto &x : emu_products[threadIdx.x].ordered) {
		size_t from = (size_t)((uintptr_t)at - (uintptr_t)x.at);

		if (from < 4 * x.was.size() &&
		    !memcmp(at, (const char *)x.was.data() + from, bytes))
			return;
	}
	emu_wgmma_fail("registers that were not kept before the fence, or written after it");
}

static inline void emu_ask(float *c, unsigned n, struct emu_product p)
{
	const struct emu_aside aside;
	struct emu_products *all = &emu_products[threadIdx.x];
	struct emu_accumulators *to = NULL;

	if (!all->fenced)
		emu_wgmma_fail("no fence since the last wait");
	for (unsigned i = 0; i < blockDim.x; i++)
		if (emu_copies[i].hidden && emu_copies[i].launch == emu_launches &&
		    emu_copies[i].block == blockIdx.x)
			emu_wgmma_fail("shared memory that nobody has shown to the tensor cores");
	for (auto &x : all->list)
		if (x.c == c)
			to = &x;
	if (p.held)
		emu_check_kept(p.own, sizeof(p.regs[0]));
	if (!to) {
		if (p.add)
			emu_check_kept(c, n / 2 * sizeof(*c));
		all->list.push_back({ c, n, 0, {}, {}, {} });
		to = &all->list.back();
		to->before.assign(c, c + n / 2);
		to->after = to->before;
		memset(c, 0xff, n / 2 * sizeof(*c));
	}
	to->group = all->groups;
	to->products.push_back(p);
	emu_touch_left(&p);
	emu_multiply(&p, n, to->after.data());
}

/* c += a b, or without `add` c = a b */
template <int N> static inline void plw_mma(float (&c)[N][4], plw_matrix a, plw_matrix b, int add)
{
	emu_warp("wgmma", 0xffffffffu, NULL, 0);
	emu_ask(&c[0][0], N * 8,
		{ emu_matrix_of(a, false), emu_matrix_of(b, false), false, {}, NULL, add != 0 });
}
template <int N> static inline void plw_mma(float (&c)[N][4], const uint32_t (&a)[4], plw_matrix b)
{
	const char *all = emu_warp("wgmma of registers", 0xffffffffu, a, sizeof(a));
	struct emu_product p = { {}, emu_matrix_of(b, true), true, {}, a, true };

	for (unsigned i = 0; i < 4; i++)
		memcpy(p.regs[i], all + (emu_lane() / 4 * 4 + i) * EMU_LANE, sizeof(p.regs[i]));
	emu_ask(&c[0][0], N * 8, p);
}

static inline void plw_fence()
{
	const struct emu_aside aside;
	struct emu_products *all = &emu_products[threadIdx.x];

	all->fenced = true;
	all->ordered.swap(all->kept);
	all->kept.clear();
}

static inline void plw_commit()
{
	const struct emu_aside aside;

	emu_products[threadIdx.x].groups++;
}

static inline void emu_finish(struct emu_accumulators *x)
{
	std::vector<float> none(x->n / 2);

	memset(none.data(), 0xff, none.size() * sizeof(float));
	if (memcmp(x->c, none.data(), none.size() * sizeof(float)))
		emu_wgmma_fail("accumulators were written before the wait");
	for (auto &p : x->products) {
		if (p.held && memcmp(p.own, p.regs[emu_lane() % 4], sizeof(p.regs[0])))
			emu_wgmma_fail("registers were written before the wait");
		emu_touch_left(&p);
		emu_multiply(&p, x->n, x->before.data());
	}
	if (memcmp(x->before.data(), x->after.data(), none.size() * sizeof(float)))
		emu_wgmma_fail("shared memory was written before the wait");
	memcpy(x->c, x->after.data(), none.size() * sizeof(float));
}

template <int N> static inline void plw_wait()
{
	struct emu_products *all = &emu_products[threadIdx.x];

	emu_warp("wgmma.wait_group", 0xffffffffu, NULL, 0);

	const struct emu_aside aside;

	all->fenced = false;
	all->kept.clear();
	for (size_t i = 0; i < all->list.size();)
		if (all->list[i].group < all->groups - N) {
			emu_finish(&all->list[i]);
			all->list.erase(all->list.begin() + (long)i);
		} else {
			i++;
		}
}

static inline void plw_show()
{
	const struct emu_aside aside;

	emu_copies[threadIdx.x].hidden = false;
}

template <typename T, int N> static inline void plw_keep(T (&c)[N][4])
{
	const struct emu_aside aside;
	std::vector<uint32_t> now(N * 4);

	memcpy(now.data(), c, sizeof(c));
	emu_products[threadIdx.x].kept.push_back({ c, now });
}

#endif
