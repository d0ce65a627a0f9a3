/*
 * Memory: counted allocation that can be made to fail, byte buffers, arenas.
 *
 * PL_FAIL=n fails the n-th fallible call of the process (counted from 1), once; PL_FAIL=n+ fails it
 * and all that follow. The count is atomic: with one thread it repeats exactly.
 */
#include <errno.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "core/core.h"

static atomic_long fail_countdown;
static atomic_int fail_state; /* 0 not read yet, 1 off, 2 once, 3 persistent */

static int fail_setup(void)
{
	const char *s = getenv("PL_FAIL");
	char *end;
	int state = 1;

	if (s && *s) {
		atomic_store(&fail_countdown, strtol(s, &end, 10));
		state = *end == '+' ? 3 : 2;
	}
	atomic_store(&fail_state, state);
	return state;
}

bool pl_fail_now(void)
{
	int state = atomic_load_explicit(&fail_state, memory_order_relaxed);
	long left;

	if (PL_LIKELY(state == 1))
		return false;
	if (!state && (state = fail_setup()) == 1)
		return false;
	left = atomic_fetch_sub(&fail_countdown, 1);
	if (left == 1 || (left < 1 && state == 3)) {
		errno = ENOMEM;
		return true;
	}
	return false;
}

void *pl_malloc(size_t size)
{
	return pl_fail_now() ? NULL : malloc(size ? size : 1);
}

void *pl_calloc(size_t n, size_t size)
{
	return pl_fail_now() ? NULL : calloc(n ? n : 1, size ? size : 1);
}

void *pl_realloc(void *p, size_t size)
{
	return pl_fail_now() ? NULL : realloc(p, size ? size : 1);
}

char *pl_strdup(const char *s)
{
	size_t n = strlen(s) + 1;
	char *p = pl_malloc(n);

	return p ? memcpy(p, s, n) : NULL;
}

void pl_free(void *p)
{
	free(p);
}

void pl_mem_trim(void)
{
#ifdef __GLIBC__
	malloc_trim(0);
#endif
}

void pl_mem_discard(void *p, size_t n)
{
	const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = ((uintptr_t)p + page - 1) / page * page;
	uintptr_t to = ((uintptr_t)p + n) / page * page;

	if (to > from)
		(void)madvise((void *)from, to - from, MADV_DONTNEED);
}

int pl_alloc(void *out, size_t n, size_t size, struct pl_err *err)
{
	void *p = pl_calloc(n, size);

	memcpy(out, &p, sizeof(p)); /* also if NULL, because many callers free it at their end */
	return p ? 0 : pl_fail(err, PL_ENOMEM, "out of memory (%zu x %zu bytes)", n, size);
}

int pl_grow_slow(void *array, size_t *cap, size_t need, size_t size, struct pl_err *err)
{
	size_t n = *cap < 8 ? 8 : *cap;
	void *old, *p;

	while (n < need && n <= SIZE_MAX / 2)
		n *= 2;
	if (n < need || n > SIZE_MAX / size)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu x %zu bytes)", need, size);
	memcpy(&old, array, sizeof(old));
	p = pl_realloc(old, n * size);
	if (!p)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu x %zu bytes)", n, size);
	memcpy(array, &p, sizeof(p));
	*cap = n;
	return 0;
}

/* ---- byte buffers ---------------------------------------------------------------------------- */

void pl_buf_fini(struct pl_buf *b)
{
	pl_free(b->p);
	memset(b, 0, sizeof(*b));
}

int pl_buf_need(struct pl_buf *b, size_t more, struct pl_err *err)
{
	if (more > SIZE_MAX - b->n)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", more);
	return pl_grow(&b->p, &b->cap, b->n + more, 1, err);
}

int pl_buf_put(struct pl_buf *b, const void *p, size_t n, struct pl_err *err)
{
	PL_CHECK(pl_buf_need(b, n, err));
	if (n)
		memcpy(b->p + b->n, p, n);
	b->n += n;
	return 0;
}

int pl_buf_printf(struct pl_buf *b, struct pl_err *err, const char *fmt, ...)
{
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(NULL, 0, fmt, ap);
	va_end(ap);
	if (n < 0)
		return pl_fail(err, PL_EINTERNAL, "cannot format \"%s\"", fmt);
	PL_CHECK(pl_buf_need(b, (size_t)n + 1, err));
	va_start(ap, fmt);
	vsnprintf((char *)b->p + b->n, (size_t)n + 1, fmt, ap);
	va_end(ap);
	b->n += (size_t)n;
	return 0;
}

/* ---- arenas ---------------------------------------------------------------------------------- */

struct pl_chunk {
	struct pl_chunk *next;
	size_t size;
	_Alignas(16) uint8_t data[];
};

#define CHUNK_MIN ((size_t)32 << 10)
#define CHUNK_MAX ((size_t)4 << 20)

void *pl_arena_take(struct pl_arena *a, size_t size)
{
	void *p;

	size = (size + 7) & ~(size_t)7;
	if (PL_UNLIKELY(!a->head || size > a->size - a->used)) {
		size_t want = a->head ? pl_min_size(a->size * 2, CHUNK_MAX)
				      : (a->size ? a->size : CHUNK_MIN);
		struct pl_chunk *c;

		if (want < size)
			want = size;
		c = pl_malloc(sizeof(*c) + want);
		if (!c)
			return NULL;
		c->next = a->head;
		c->size = want;
		a->head = c;
		a->used = 0;
		a->size = want;
		a->total += want;
	}
	p = a->head->data + a->used;
	a->used += size;
	return p;
}

int pl_arena_array(struct pl_arena *a, void *out, size_t n, size_t size, struct pl_err *err)
{
	void *p = n > (SIZE_MAX - 8) / size ? NULL : pl_arena_take(a, n * size);

	if (!p)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu x %zu bytes)", n, size);
	memcpy(out, &p, sizeof(p));
	return 0;
}

char *pl_arena_dup(struct pl_arena *a, const char *s, size_t n)
{
	char *p = pl_arena_take(a, n + 1);

	if (p) {
		memcpy(p, s, n);
		p[n] = '\0';
	}
	return p;
}

int pl_dup(struct pl_arena *a, void *out, const char *s, struct pl_err *err)
{
	char *p = a ? pl_arena_dup(a, s, strlen(s)) : pl_strdup(s);

	memcpy(out, &p, sizeof(p));
	return p ? 0 : pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", strlen(s) + 1);
}

void pl_arena_reset(struct pl_arena *a)
{
	struct pl_chunk *c = a->head, *next;

	if (!c)
		return;
	for (; c->next; c = next) {
		next = c->next;
		pl_free(c);
	}
	a->head = c;
	a->used = 0;
	a->size = a->total = c->size;
}

void pl_arena_fini(struct pl_arena *a)
{
	struct pl_chunk *c, *next;

	for (c = a->head; c; c = next) {
		next = c->next;
		pl_free(c);
	}
	memset(a, 0, sizeof(*a));
}
