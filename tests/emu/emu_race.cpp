/*
 * Races of a kernel on the emulated device. Its sources are compiled once more with
 * -fsanitize=thread and linked not with the thread sanitizer, which does not know fibers, but with
 * this: the calls that the compiler puts before each access of memory come here.
 *
 * Order among the threads of a launch is simple enough to need no vector clocks. Two accesses by
 * two threads are ordered if they are of one block with a __syncthreads() between, or of one warp
 * with a __syncwarp() between; nothing else orders them (shuffles, votes, ldmatrix and products of
 * a warp do not, as CUDA's guide says). So of each two bytes are kept who wrote them last, and who
 * read them last, with a note that there were others, of other blocks, warps or lanes, in the
 * meantime. Launches are taken to follow each other; shared memory is another one in each block.
 *
 * Copies that are under way (cp.async) count when they are asked for and when they are waited for,
 * as do reads by wgmma: what lies between is theirs as well.
 */
#include "cuda_emu.h"

#include <stdio.h>
#include <unordered_map>

#define GRAIN 2 /* bytes */
#define PAGE  (1 << 12)
#define KNOWN 1024 /* pages that are found at once */

enum { BLOCKS = 1, WARPS = 2, LANES = 4 }; /* there were others */

/* Small, since most of the time of a test goes into fetching these; no test counts further. */
struct mark {
	uint32_t round; /* launch; of shared memory, block */
	uint32_t block;
	uint64_t phase : 24, warp_phase : 24, thread : 10, atomic : 1, others : 3;
};
struct cell {
	struct mark wrote, read;
};
static_assert(sizeof(struct cell) == 32, "half a line of the cache");
struct page {
	struct cell of[PAGE / GRAIN];
};

bool emu_told, emu_count_races;
uint64_t emu_races;

static thread_local int asides;
static std::unordered_map<uintptr_t, struct page> pages;
static struct known {
	uintptr_t number;
	struct page *page;
} known[KNOWN];

emu_aside::emu_aside()
{
	asides++;
}

emu_aside::~emu_aside()
{
	asides--;
}

static struct cell *cell_of(uintptr_t at)
{
	uintptr_t number = at / PAGE;
	struct known *k = &known[number % KNOWN];

	if (!k->page || k->number != number)
		*k = { number, &pages[number] };
	return &k->page->of[at % PAGE / GRAIN];
}

/* Is there nothing that orders the running thread behind this? */
static bool is_unordered(const struct mark *m, uint32_t round)
{
	const struct emu_now *now = &emu_now;

	if (m->round != round)
		return false;
	if (m->block != (uint32_t)now->block || m->others & BLOCKS)
		return true;
	if (m->phase != now->phase)
		return false;
	if (m->thread / 32 != now->thread / 32 || m->others & WARPS)
		return true;
	if (m->warp_phase != now->warp_phase)
		return false;
	return m->thread != now->thread || m->others & LANES;
}

static void add(struct mark *m, uint32_t round, enum emu_access access)
{
	const struct emu_now *now = &emu_now;
	struct mark own = { round,	 (uint32_t)now->block, now->phase, now->warp_phase,
			    now->thread, access == EMU_ATOMIC, 0 };

	if (access == EMU_WRITES || m->round != round) {
		*m = own;
	} else if (m->block != own.block) {
		m->others |= BLOCKS;
	} else if (m->phase != now->phase) {
		own.others = m->others & BLOCKS;
		*m = own;
	} else if (m->thread / 32 != now->thread / 32) {
		m->others |= WARPS;
	} else if (m->warp_phase != now->warp_phase) {
		own.others = m->others & (BLOCKS | WARPS);
		*m = own;
	} else if (m->thread != now->thread) {
		m->others |= LANES;
	}
}

static void race(const struct mark *by, bool wrote, uintptr_t at, enum emu_access access)
{
	static const char *const does[] = { "reads", "writes", "changes" };
	uintptr_t shared = at - (uintptr_t)emu_now.shared;
	char text[200];

	emu_races++;
	if (emu_count_races)
		return;
	snprintf(text, sizeof(text),
		 "%s what thread %u%s %s, and nothing orders them: %s memory at %#zx", does[access],
		 (unsigned)by->thread,
		 by->block == (uint32_t)emu_now.block ? "" : " of another block",
		 wrote ? "writes" : "reads", shared < emu_now.shared_bytes ? "shared" : "global",
		 shared < emu_now.shared_bytes ? shared : at);
	emu_fail("a race: ", text);
}

void emu_touch(const void *p, size_t bytes, enum emu_access access)
{
	const struct emu_now *now = &emu_now;
	uintptr_t at = (uintptr_t)p, end = at + bytes;
	uint32_t round;

	if (!emu_told || !now->on || at - (uintptr_t)now->stack < now->stack_bytes)
		return;
	round = (uint32_t)(at - (uintptr_t)now->shared < now->shared_bytes ? now->block
									   : emu_launches);
	for (at = at / GRAIN * GRAIN; at < end; at += GRAIN) {
		struct cell *c = cell_of(at);

		if (is_unordered(&c->wrote, round) && !(c->wrote.atomic && access == EMU_ATOMIC))
			race(&c->wrote, true, at, access);
		if (access != EMU_READS && is_unordered(&c->read, round))
			race(&c->read, false, at, access);
		add(access == EMU_READS ? &c->read : &c->wrote, round, access);
	}
}

/* ---- what compilers call --------------------------------------------------------------------- */

static void compiled(const void *p, size_t bytes, enum emu_access access)
{
	if (!asides)
		emu_touch(p, bytes, access);
}

#define HOOK(name, bytes, access)                                                                  \
	extern "C" void __tsan_##name(void *p);                                                    \
	extern "C" void __tsan_##name(void *p)                                                     \
	{                                                                                          \
		compiled(p, bytes, access);                                                        \
	}
HOOK(read1, 1, EMU_READS)
HOOK(write1, 1, EMU_WRITES)
#define HOOKS(bytes)                                                                               \
	HOOK(read##bytes, bytes, EMU_READS)                                                        \
	HOOK(write##bytes, bytes, EMU_WRITES)                                                      \
	HOOK(unaligned_read##bytes, bytes, EMU_READS)                                              \
	HOOK(unaligned_write##bytes, bytes, EMU_WRITES)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

extern "C" {
void __tsan_init(void);
void __tsan_func_entry(void *from);
void __tsan_func_exit(void);
void __tsan_vptr_update(void **p, void *v);
void __tsan_read_range(void *p, size_t bytes);
void __tsan_write_range(void *p, size_t bytes);
void *__tsan_memcpy(void *to, const void *from, size_t bytes);
void *__tsan_memset(void *to, int value, size_t bytes);
uint8_t __tsan_atomic8_load(const volatile uint8_t *p, int order);

void __tsan_init(void)
{
	emu_told = true;
}
void __tsan_func_entry(void *from)
{
	(void)from;
}
void __tsan_func_exit(void)
{
}
void __tsan_vptr_update(void **p, void *v)
{
	(void)p;
	(void)v;
}
void __tsan_read_range(void *p, size_t bytes)
{
	compiled(p, bytes, EMU_READS);
}
void __tsan_write_range(void *p, size_t bytes)
{
	compiled(p, bytes, EMU_WRITES);
}
void *__tsan_memcpy(void *to, const void *from, size_t bytes)
{
	compiled(from, bytes, EMU_READS);
	compiled(to, bytes, EMU_WRITES);
	return memcpy(to, from, bytes);
}
void *__tsan_memset(void *to, int value, size_t bytes)
{
	compiled(to, bytes, EMU_WRITES);
	return memset(to, value, bytes);
}
uint8_t __tsan_atomic8_load(const volatile uint8_t *p, int order) /* of variables made once */
{
	(void)order;
	return *p;
}
}
