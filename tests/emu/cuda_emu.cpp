/*
 * The emulated device. A block is run by one scheduler and a fiber for each thread. The fibers are
 * made once, as many as the largest block so far, and run thread after thread: a fiber that ended
 * one waits for the next. The scheduler goes through the threads in an order that changes with
 * every block, letting each run until it waits or ends, until all have ended; a round in which none
 * could run is a deadlock.
 */
#include "cuda_emu.h"
#include "emu_timed.h"
#include "tensor/cuda/device.cuh"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define EMU_ASAN 1
#endif
#endif
#ifdef EMU_ASAN
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(p, n)	  ((void)(p), (void)(n))
#define ASAN_UNPOISON_MEMORY_REGION(p, n) ((void)(p), (void)(n))
#endif

/* Limits of compute capability 9.0; of what nobody asks for more of, too. */
#define MOST_THREADS 1024
#define MOST_STATIC  (48 << 10)

#define STACK (256 << 10)
#define GAP   64 /* between two shared variables */
#define VARS  32
#define RING  64

#define SHARED (EMU_MOST_SHARED + 1024 + VARS * (GAP + 1024)) /* with gaps, and aligned */

dim3 threadIdx, blockIdx, blockDim, gridDim;
uint64_t emu_launches;
size_t emu_most_shared;
bool emu_unswizzled;
const char *emu_last_kernel;

enum state { READY, AT_BARRIER, AT_WARP, ENDED };

static struct fiber {
	void *sp;
	enum state state;
	dim3 at;
	int barrier;
	unsigned mask; /* of the warp operation that it is in */
	const char *op, *result, *stack;
} fiber[MOST_THREADS];
static unsigned n_fibers; /* that have a stack */

static struct warp {
	unsigned here; /* lanes that wait in an operation */
	unsigned next; /* of the ring */
	unsigned phase;
	char in[32 * EMU_LANE], ring[RING][32 * EMU_LANE];
} warp[MOST_THREADS / 32];

static struct {
	unsigned here, count;
} barrier[16];

static struct var {
	const void *tag;
	char *p;
} var[VARS];
static unsigned n_vars;
static char *shared; /* EMU_MOST_SHARED and gaps */
static size_t shared_used, shared_gaps, dynamic_bytes;

static const char *kernel;
static void (*kernel_call)(void *arg);
static void *kernel_arg;
static void *scheduler;
static unsigned self, n_threads, live;
static uint64_t seed;

__thread struct emu_now emu_now;

void emu_fail(const char *what, const char *which)
{
	fprintf(stderr,
		"emulated device: kernel %s, block (%u, %u, %u), thread (%u, %u, %u): %s%s\n",
		kernel, blockIdx.x, blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z,
		what, which);
	abort();
}

/* ---- fibers ---------------------------------------------------------------------------------- */

#ifdef __x86_64__
/* Saves what the called keep (System V ABI) on the own stack, goes on with another. */
extern "C" void emu_switch(void **from, void *to);
__asm__(".text\n"
	".globl emu_switch\n"
	".hidden emu_switch\n"
	".type emu_switch, @function\n"
	"emu_switch:\n"
	"	pushq %rbp\n	pushq %rbx\n	pushq %r12\n"
	"	pushq %r13\n	pushq %r14\n	pushq %r15\n"
	"	movq %rsp, (%rdi)\n	movq %rsi, %rsp\n"
	"	popq %r15\n	popq %r14\n	popq %r13\n"
	"	popq %r12\n	popq %rbx\n	popq %rbp\n"
	"	ret\n"
	".size emu_switch, . - emu_switch\n");

static void *first_frame(char *stack, void (*entry)(void))
{
	void **sp = (void **)(void *)(stack + STACK);

	*--sp = NULL; /* where entry would return to; it does not; and 8 bytes off 16, as called */
	*--sp = (void *)entry;
	for (int i = 0; i < 6; i++)
		*--sp = NULL;
	return sp;
}
#else
#include <ucontext.h>

static void emu_switch(void **from, void *to)
{
	ucontext_t own;

	*from = &own;
	swapcontext(&own, (ucontext_t *)to);
}

static void *first_frame(char *stack, void (*entry)(void))
{
	ucontext_t *c = (ucontext_t *)malloc(sizeof(*c));

	if (!c || getcontext(c))
		emu_fail("no context for a fiber", "");
	c->uc_stack.ss_sp = stack;
	c->uc_stack.ss_size = STACK;
	c->uc_link = NULL;
	makecontext(c, entry, 0);
	return c;
}
#endif

static void wait(enum state s)
{
	fiber[self].state = s;
	emu_switch(&fiber[self].sp, scheduler);
}

static void release(int id)
{
	emu_now.phase += id == 0;
	for (unsigned i = 0; i < n_threads; i++)
		if (fiber[i].state == AT_BARRIER && fiber[i].barrier == id)
			fiber[i].state = READY;
	barrier[id].here = barrier[id].count = 0;
}

static void fiber_main(void)
{
	for (;;) {
		kernel_call(kernel_arg);
		live--;
		if (live && barrier[0].here == live)
			release(0);
		wait(ENDED);
	}
}

static void more_fibers(unsigned n)
{
	for (; n_fibers < n; n_fibers++) {
		void *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE,
				   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

		if (stack == MAP_FAILED)
			emu_fail("no memory for a stack", "");
		fiber[n_fibers].sp = first_frame((char *)stack, fiber_main);
		fiber[n_fibers].stack = (const char *)stack;
	}
	if (!shared) {
		shared = (char *)aligned_alloc(1024, SHARED);
		if (!shared)
			emu_fail("no shared memory", "");
	}
}

/* ---- a launch -------------------------------------------------------------------------------- */

void emu_seed(uint64_t s)
{
	seed = s;
}

static uint64_t chance(void)
{
	if (!seed)
		return 0;
	seed ^= seed << 13;
	seed ^= seed >> 7;
	seed ^= seed << 17;
	return seed;
}

/* i-th of n in an order: first + i step, step and n without a common factor. */
struct order {
	uint64_t n, first, step;
};

static struct order shuffled(uint64_t n)
{
	struct order o = { n, chance() % n, 1 + chance() % n };

	for (;; o.step++) {
		uint64_t a = o.step, b = n;

		while (b) {
			uint64_t r = a % b;

			a = b;
			b = r;
		}
		if (a == 1)
			return o;
	}
}

static uint64_t place(const struct order *o, uint64_t i)
{
	return (o->first + i * o->step) % o->n;
}

static void begin_block(void)
{
	for (unsigned i = 0; i < n_threads; i++)
		fiber[i].state = READY;
	for (unsigned i = 0; i < (n_threads + 31) / 32; i++)
		warp[i].here = warp[i].phase = 0;
	emu_now.block++;
	emu_now.phase = 0;
	emu_now.shared = shared;
	emu_now.shared_bytes = SHARED;
	memset(barrier, 0, sizeof(barrier));
	live = n_threads;
	n_vars = 0;
	shared_used = shared_gaps = 0;
	ASAN_POISON_MEMORY_REGION(shared, SHARED);
	if (dynamic_bytes)
		emu_shared(&shared, dynamic_bytes, 1024);
}

/* Lets each thread of a warp that can run do so; were there any? */
static bool run_warp(unsigned first, const struct order *lanes)
{
	bool moved = false;

	for (unsigned i = 0; i < 32; i++) {
		self = first + (unsigned)place(lanes, i);
		if (self >= n_threads || fiber[self].state != READY)
			continue;
		moved = true;
		threadIdx = fiber[self].at;
		emu_now.thread = self;
		emu_now.warp_phase = warp[first / 32].phase;
		emu_now.stack = fiber[self].stack;
		emu_now.stack_bytes = STACK;
		emu_now.on = true;
		emu_switch(&scheduler, fiber[self].sp);
		emu_now.on = false;
	}
	return moved;
}

static void stuck(void)
{
	for (unsigned i = 0; i < n_threads; i++) {
		if (fiber[i].state == ENDED)
			continue;
		threadIdx = fiber[i].at;
		emu_fail("waits for ever in ",
			 fiber[i].state == AT_WARP ? fiber[i].op : "a barrier");
	}
}

/* Warps take turns, or (every other time) each goes on until the block has to wait for others. */
static void run_block(void)
{
	struct order warps = shuffled((n_threads + 31) / 32), lanes = shuffled(32);
	bool alone = chance() >> 20 & 1;

	begin_block();
	while (live) {
		bool moved = false;

		for (unsigned i = 0; i < warps.n; i++) {
			unsigned first = (unsigned)place(&warps, i) * 32;

			while (run_warp(first, &lanes)) {
				moved = true;
				if (!alone)
					break;
			}
		}
		if (!moved)
			stuck();
	}
	emu_most_shared = shared_used > emu_most_shared ? shared_used : emu_most_shared;
}

void emu_run(const char *name, dim3 grid, dim3 block, size_t bytes, void (*call)(void *arg),
	     void *arg)
{
	uint64_t blocks = (uint64_t)grid.x * grid.y * grid.z;
	struct order o;

	kernel = emu_last_kernel = name;
	kernel_call = call;
	kernel_arg = arg;
	gridDim = grid;
	blockDim = block;
	n_threads = block.x * block.y * block.z;
	dynamic_bytes = bytes;
	emu_launches++;
	if (!blocks || !n_threads || n_threads > MOST_THREADS || grid.x > 0x7fffffffu ||
	    grid.y > 65535 || grid.z > 65535 || block.z > 64)
		emu_fail("a launch of no blocks or threads, or too many", "");
	more_fibers(n_threads);
	for (unsigned i = 0; i < n_threads; i++)
		fiber[i].at = dim3(i % block.x, i / block.x % block.y, i / block.x / block.y);
	o = shuffled(blocks);
	for (uint64_t i = 0; i < blocks; i++) {
		uint64_t at = place(&o, i);

		blockIdx = dim3((unsigned)(at % grid.x), (unsigned)(at / grid.x % grid.y),
				(unsigned)(at / grid.x / grid.y));
		run_block();
	}
	ASAN_UNPOISON_MEMORY_REGION(shared, SHARED);
}

/* ---- what a kernel calls --------------------------------------------------------------------- */

void *emu_shared(const void *tag, size_t bytes, size_t align)
{
	size_t fixed, all;
	char *p;

	for (unsigned i = 0; i < n_vars; i++)
		if (var[i].tag == tag)
			return var[i].p;
	if (n_vars == VARS)
		emu_fail("too many shared variables", "");
	shared_used = (shared_used + align - 1) / align * align + bytes;
	fixed = shared_used - dynamic_bytes;
	/* what is dynamic comes behind the rest, aligned */
	all = dynamic_bytes + (dynamic_bytes ? (fixed + 1023) / 1024 * 1024 : fixed);
	if (all > EMU_MOST_SHARED || fixed > MOST_STATIC)
		emu_fail("too much shared memory", "");
	if (all > MOST_STATIC && dynamic_bytes <= PL_ASKS)
		emu_fail("shared memory that it did not ask for", "");
	p = shared + (shared_gaps + align - 1) / align * align;
	shared_gaps = (size_t)(p - shared) + bytes + GAP;
	ASAN_UNPOISON_MEMORY_REGION(p, bytes);
	memset(p, 0xff, bytes);
	var[n_vars++] = { tag, p };
	return p;
}

void *emu_dynamic(void)
{
	if (!dynamic_bytes)
		emu_fail("launched without dynamic shared memory", "");
	return var[0].p;
}

void emu_barrier(int id, unsigned count)
{
	if (id < 0 || id > 15)
		emu_fail("no such barrier", "");
	if (barrier[id].here && barrier[id].count != count)
		emu_fail("a barrier with different counts", "");
	barrier[id].count = count;
	if (++barrier[id].here == (count ? count : live)) {
		release(id);
		return;
	}
	fiber[self].barrier = id;
	wait(AT_BARRIER);
}

int __syncthreads_or(int p)
{
	static int any;

	emu_barrier(0, 0);
	any = 0;
	emu_barrier(0, 0);
	any |= !!p;
	emu_barrier(0, 0);
	return any;
}

unsigned emu_lane(void)
{
	return self % 32;
}

const char *emu_warp(const char *op, unsigned mask, const void *in, size_t bytes)
{
	struct warp *w = &warp[self / 32];
	struct fiber *lane = &fiber[self / 32 * 32];
	unsigned own = self % 32;
	char *all;

	if (!(mask >> own & 1))
		emu_fail("not in its own mask in ", op);
	if (bytes > EMU_LANE)
		emu_fail("too many bytes a lane in ", op);
	if (bytes)
		memcpy(w->in + own * EMU_LANE, in, bytes);
	w->here |= 1u << own;
	lane[own].mask = mask;
	lane[own].op = op;
	if ((w->here & mask) != mask) {
		wait(AT_WARP);
		return fiber[self].result;
	}
	all = w->ring[w->next++ % RING];
	for (unsigned i = 0; i < 32; i++) {
		if (!(mask >> i & 1))
			continue;
		if (lane[i].mask != mask || (lane[i].op != op && strcmp(lane[i].op, op)))
			emu_fail("lanes meet in different operations: ", op);
		if (bytes)
			memcpy(all + i * EMU_LANE, w->in + i * EMU_LANE, bytes);
		lane[i].result = all;
		lane[i].state = READY;
	}
	w->here &= ~mask;
	if (!bytes && !strcmp(op, "__syncwarp") && mask == 0xffffffffu)
		emu_now.warp_phase = ++w->phase;
	return all;
}
