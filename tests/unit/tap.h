/* tap.h - the few lines a unit test needs: ok(), is(), skip(), done_testing(). */
#ifndef PL_TAP_H
#define PL_TAP_H

#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static int tap_n, tap_failed;

__attribute__((format(printf, 2, 3), unused)) static bool ok(bool cond, const char *fmt, ...)
{
	va_list ap;

	tap_n++;
	tap_failed += !cond;
	printf("%sok %d - ", cond ? "" : "not ", tap_n);
	va_start(ap, fmt);
	vprintf(fmt, ap);
	va_end(ap);
	putchar('\n');
	fflush(stdout);
	return cond;
}

__attribute__((unused)) static bool is_i64(long long got, long long want, const char *what)
{
	bool same = got == want;

	ok(same, "%s", what);
	if (!same)
		printf("# got %lld, want %lld\n", got, want);
	return same;
}

__attribute__((unused)) static bool is_str(const char *got, const char *want, const char *what)
{
	bool same = got && want ? !strcmp(got, want) : got == want;

	ok(same, "%s", what);
	if (!same)
		printf("# got  %s\n# want %s\n", got ? got : "(null)", want ? want : "(null)");
	return same;
}

/* The greater error; what is no number is worse than any, and stays. */
__attribute__((unused)) static double worse(double a, double b)
{
	return a != a || a > b ? a : b;
}

__attribute__((unused)) static void skip(const char *what, const char *why)
{
	printf("ok %d - %s # SKIP %s\n", ++tap_n, what, why);
}

/*
 * ALONE(call): a part of a slow test in which there is one thread (no pool is made). The thread
 * sanitizer, which is slow and can find nothing there, leaves it out; all other builds have it.
 */
#ifdef __SANITIZE_THREAD__
#define ALONE(call) (0 ? (void)(call) : skip(#call, "one thread"))
#else
#define ALONE(call) (call)
#endif

/*
 * CASES(n): how many random cases are compared with brute force. A sanitizer looks at how they are
 * computed, which is much alike, and gets an eighth; what comes out is the other builds' matter.
 * SIZE(n, few): how large one case is. With a sanitizer it is `few`, large enough for the same
 * code.
 */
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
#define CASES(n)     (((n) + 7) / 8)
#define SIZE(n, few) (few)
#else
#define CASES(n)     (n)
#define SIZE(n, few) (n)
#endif

__attribute__((unused)) static int done_testing(void)
{
	printf("1..%d\n", tap_n);
	return tap_failed ? 1 : 0;
}

#endif
