/*
 * core.h - the base of all modules: errors, memory, interning, hashing, random numbers.
 *
 * Library code never prints and never exits. A fallible function returns 0 (or a count) or a
 * negative PL_E code and fills the `struct pl_err` that is its last parameter; the first failure
 * wins, callers add context outward with pl_wrap(). All memory comes from here, so that it can be
 * counted and made to fail (PL_FAIL=n in the environment fails the n-th fallible call).
 */
#ifndef PL_CORE_H
#define PL_CORE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include "core/sort.h"

typedef int64_t pl_ns;	/* time or duration in nanoseconds */
typedef uint32_t pl_id; /* index of an interned string, a track, a node ... */
#define PL_NONE UINT32_MAX

#define PL_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define PL_MUST		     __attribute__((warn_unused_result))
#define PL_LEN(a)	     (sizeof(a) / sizeof((a)[0]))
#define PL_LIKELY(x)	     __builtin_expect(!!(x), 1)
#define PL_UNLIKELY(x)	     __builtin_expect(!!(x), 0)

static inline size_t pl_min_size(size_t a, size_t b)
{
	return a < b ? a : b;
}
static inline int64_t pl_min_i64(int64_t a, int64_t b)
{
	return a < b ? a : b;
}
static inline int64_t pl_max_i64(int64_t a, int64_t b)
{
	return a > b ? a : b;
}
/* Does the processor have vectors of 256 bits (AVX2)? All that have them have popcnt, too. */
static inline bool pl_has_avx2(void)
{
#ifdef __x86_64__
	return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("popcnt");
#else
	return false;
#endif
}
/* Saturating sum and difference: times near 2^63 must not wrap. */
int64_t pl_add_sat(int64_t a, int64_t b);
int64_t pl_sub_sat(int64_t a, int64_t b);

/* ---- errors ---------------------------------------------------------------------------- */

enum pl_code {
	PL_OK = 0,
	PL_ENO = -1,	   /* the answer to the question is "no" (exit 1) */
	PL_EUSAGE = -2,	   /* wrong options or arguments (exit 2) */
	PL_EDATA = -3,	   /* malformed, truncated or too new input (exit 3) */
	PL_EIO = -4,	   /* reading or writing failed (exit 4) */
	PL_ENOMEM = -5,	   /* out of memory (exit 5) */
	PL_ELIMIT = -6,	   /* a stated limit was reached (exit 5) */
	PL_EABSENT = -7,   /* a needed facility is absent (exit 6) */
	PL_EINTERNAL = -8, /* a bug here (exit 70) */
	PL_ESTOP = -9,	   /* a callback asked to stop early; never an error for the user */
};

struct pl_err {
	int code;	/* enum pl_code of the first failure, 0 if none */
	int sys;	/* errno of the first failure, 0 if it came from elsewhere */
	char msg[1024]; /* complete text, without program name or newline */
};

/* Record a failure (if none is recorded yet) and return `code`. `err` may be NULL. */
int pl_fail(struct pl_err *err, int code, const char *fmt, ...) PL_PRINTF(3, 4);
/* The same for a failed system call: PL_EIO (PL_ENOMEM for ENOMEM), text of errno appended. */
int pl_fail_sys(struct pl_err *err, const char *fmt, ...) PL_PRINTF(2, 3);
/* Record the failure `why`, if it is one and no other is recorded yet, and return its code. */
int pl_fail_as(struct pl_err *err, const struct pl_err *why);
/*
 * Put "context: " before the message. If the context ends with the name with which the message
 * begins, the name is written once. Returns err->code.
 */
int pl_wrap(struct pl_err *err, const char *fmt, ...) PL_PRINTF(2, 3);
int pl_exit_status(int code);

/* If the call fails, the function fails: PL_CHECK returns at once, PL_TRY goes to `out`. */
#define PL_CHECK(call)                                                                             \
	do {                                                                                       \
		int rc_ = (call);                                                                  \
                                                                                                   \
		if (rc_ < 0)                                                                       \
			return rc_;                                                                \
	} while (0)
#define PL_TRY(call)                                                                               \
	do {                                                                                       \
		if ((rc = (call)) < 0)                                                             \
			goto out;                                                                  \
	} while (0)

/* Gets messages of library functions that are no failures. */
enum pl_level { PL_LOG_WARN, PL_LOG_NOTE, PL_LOG_DEBUG };
struct pl_log {
	void (*say)(void *arg, enum pl_level level, const char *text);
	void *arg;
};
/* `log` NULL: do nothing. */
void pl_say(const struct pl_log *log, enum pl_level level, const char *fmt, ...) PL_PRINTF(3, 4);

/* ---- the operating system -------------------------------------------------------------- */

pl_ns pl_now_ns(void); /* CLOCK_MONOTONIC */
/* What must be added to pl_now_ns() to get the time since 1970: from the closest of a few pairs of
 * readings. */
pl_ns pl_epoch_ns(void);
void pl_sleep_ns(pl_ns ns);
int pl_processors(void); /* number that this process may use, at least 1 */
/* Read at most size - 1 bytes of a small file, and add '\0'. Returns their number; -1: failure. */
int pl_read_small(const char *path, void *to, size_t size);
/* Remove a folder and the files in it, as far as that is possible. */
void pl_remove_folder(const char *path);
/* *(function pointer *)function = the function of that name in a dlopen() handle; false: NULL. */
bool pl_symbol(void *lib, const char *name, void *function);

/* ---- memory ---------------------------------------------------------------------------- */

/* True if PL_FAIL demands that this fallible call (allocation, read, write ...) fails. */
bool pl_fail_now(void);

void *pl_malloc(size_t size);		/* NULL on failure */
void *pl_calloc(size_t n, size_t size); /* zeroed; NULL on failure or overflow */
void *pl_realloc(void *p, size_t size); /* p stays valid on failure */
char *pl_strdup(const char *s);		/* NULL on failure */
void pl_free(void *p);
/* Return freed pages to the system. Call it after freeing much memory. */
void pl_mem_trim(void);
/* Return whole pages of unneeded contents to the system. The memory stays allocated. */
void pl_mem_discard(void *p, size_t n);
int pl_alloc(void *out, size_t n, size_t size,
	     struct pl_err *err) PL_MUST; /* *(void **)out, zeroed; NULL on failure */

/*
 * Grow the array *(T **)array of *cap elements to hold at least `need`; doubles. The tail is not
 * cleared. The usual use: PL_TRY(pl_grow(&v, &cap, n + 1, sizeof(*v), err)).
 */
int pl_grow_slow(void *array, size_t *cap, size_t need, size_t size, struct pl_err *err);
static inline int PL_MUST pl_grow(void *array, size_t *cap, size_t need, size_t size,
				  struct pl_err *err)
{
	return PL_LIKELY(need <= *cap) ? 0 : pl_grow_slow(array, cap, need, size, err);
}

/* Append a copy of the element of `size` bytes to *(T **)array, which has *n. */
static inline int PL_MUST pl_append(void *array, size_t *n, size_t *cap, const void *element,
				    size_t size, struct pl_err *err)
{
	int rc = pl_grow(array, cap, *n + 1, size, err);
	char *to;

	if (rc < 0)
		return rc;
	memcpy(&to, array, sizeof(to));
	memcpy(to + (*n)++ * size, element, size);
	return 0;
}
/* Make the empty array *(T **)array a copy of `count` elements. */
static inline int PL_MUST pl_copy_array(void *array, size_t *n, size_t *cap, const void *from,
					size_t count, size_t size, struct pl_err *err)
{
	int rc = pl_grow(array, cap, count, size, err);
	void *to;

	memcpy(&to, array, sizeof(to));
	if (rc == 0 && count)
		memcpy(to, from, count * size);
	*n = rc == 0 ? count : 0;
	return rc;
}

/* A growable byte string. Zero-initialised is empty and valid. */
struct pl_buf {
	uint8_t *p;
	size_t n, cap;
	bool failed; /* of payloads (io/container.h): appending failed */
};
void pl_buf_fini(struct pl_buf *b);
int pl_buf_need(struct pl_buf *b, size_t more, struct pl_err *err) PL_MUST;
int pl_buf_put(struct pl_buf *b, const void *p, size_t n, struct pl_err *err) PL_MUST;
int pl_buf_printf(struct pl_buf *b, struct pl_err *err, const char *fmt, ...)
	PL_PRINTF(3, 4) PL_MUST;

/* Memory with one lifetime: freed whole. Zero-initialised is empty and valid. */
struct pl_arena {
	struct pl_chunk *head;
	size_t used, size; /* of the head chunk; without a chunk: of the next one */
	size_t total;	   /* bytes from the system */
};
void *pl_arena_take(struct pl_arena *a, size_t size); /* 8-byte aligned, not cleared; NULL */
/* *(void **)out: n elements, not cleared. */
int pl_arena_array(struct pl_arena *a, void *out, size_t n, size_t size,
		   struct pl_err *err) PL_MUST;
char *pl_arena_dup(struct pl_arena *a, const char *s, size_t n); /* NUL appended; NULL */
/* *(char **)out = a copy of the text, in the arena or else for pl_free(); NULL: it failed. */
int pl_dup(struct pl_arena *a, void *out, const char *s, struct pl_err *err) PL_MUST;
void pl_arena_reset(struct pl_arena *a); /* keeps the first chunk */
void pl_arena_fini(struct pl_arena *a);

/* ---- strings by id --------------------------------------------------------------------- */

uint64_t pl_hash(const void *p, size_t n); /* not cryptographic; same on every machine */

/* Each distinct byte string gets an id 0, 1, 2 ... in order of arrival. Ids never change. */
struct pl_intern {
	struct pl_arena arena;
	const char **str; /* [id]; NUL-terminated */
	uint32_t *len;
	uint64_t *slot; /* open addressing: high 32 bits of hash | id + 1 */
	size_t n, cap_str, cap_len, mask;
};
void pl_intern_fini(struct pl_intern *t);
void pl_intern_reset(struct pl_intern *t); /* forget all, keep the memory */
/* Each string i without keep[i] becomes empty, and its memory is freed. The ids stay. A string that
 * became empty gets a new id if it is added again. */
int pl_intern_keep(struct pl_intern *t, const bool *keep, struct pl_err *err) PL_MUST;
int pl_intern_add(struct pl_intern *t, const char *s, size_t n, pl_id *id,
		  struct pl_err *err) PL_MUST;
pl_id pl_intern_find(const struct pl_intern *t, const char *s, size_t n); /* PL_NONE if absent */
static inline const char *pl_intern_get(const struct pl_intern *t, pl_id id)
{
	return id < t->n ? t->str[id] : "";
}
/* Bytes of the strings and of the tables of their ids. */
static inline size_t pl_intern_bytes(const struct pl_intern *t)
{
	return t->arena.total + t->cap_str * sizeof(*t->str) + t->cap_len * sizeof(*t->len) +
	       (t->slot ? (t->mask + 1) * sizeof(*t->slot) : 0);
}

/* ---- numbers --------------------------------------------------------------------------- */

/* splitmix64: one word of state, good enough for seeds and jitter. */
static inline uint64_t pl_rng_next(uint64_t *state)
{
	uint64_t z = (*state += 0x9e3779b97f4a7c15u);

	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
	z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
	return z ^ (z >> 31);
}

static inline uint64_t pl_zigzag(int64_t v)
{
	return ((uint64_t)v << 1) ^ (uint64_t)(v >> 63);
}
static inline int64_t pl_unzigzag(uint64_t u)
{
	return (int64_t)(u >> 1) ^ -(int64_t)(u & 1);
}

/*
 * Does `text` match the shell pattern `glob` (* ? [set] [!set] and backslash)? Case matters.
 * Alternatives may be joined with '|': "send|recv*".
 */
bool pl_glob(const char *glob, const char *text);

/* Is the whole text a finite decimal number ("0x10", "inf" and " 1" are none)? */
bool pl_decimal(const char *s, double *v);

/* Read the whole number at *s and move *s behind it. -1: no digits, or more than 18. */
int64_t pl_take_digits(const char **s);

/* "12.3 ms" style, three significant digits; `out` of at least 24 bytes is returned. */
char *pl_fmt_ns(char *out, size_t size, pl_ns ns);
char *pl_fmt_bytes(char *out, size_t size, double bytes);
/* The shortest decimal that is read back as v. Returns `out`, at least 40 bytes. */
const char *pl_fmt_real(char *out, size_t size, double v);

#endif
