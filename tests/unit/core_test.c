/* core: errors, memory, interning, numbers, globs, options' single values. */
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/cmd.h"
#include "core/spans.h"
#include "core/spill.h"
#include "tap.h"

static void test_errors(void)
{
	struct pl_err err = { 0 };
	char big[2000];

	is_i64(pl_fail(&err, PL_EDATA, "block %d is bad", 17), PL_EDATA,
	       "pl_fail returns its code");
	is_i64(pl_fail(&err, PL_EIO, "later"), PL_EDATA, "the first failure wins");
	is_i64(pl_wrap(&err, "%s: rank %d", "merge", 3), PL_EDATA, "pl_wrap returns the code");
	is_str(err.msg, "merge: rank 3: block 17 is bad", "context comes before");
	pl_wrap(&err, "trace merge");
	is_str(err.msg, "trace merge: rank 3: block 17 is bad", "a name is said once");
	pl_wrap(&err, "retrace merge: rank");
	is_str(err.msg, "retrace merge: rank: trace merge: rank 3: block 17 is bad",
	       "not where it is part of another");
	pl_wrap(&err, "xretrace merge");
	ok(!strncmp(err.msg, "xretrace merge: retrace merge: ", 31),
	   "nor where it is a word's end");
	is_i64(pl_fail(NULL, PL_ELIMIT, "nobody listens"), PL_ELIMIT, "err may be NULL");
	memset(&err, 0, sizeof(err));
	errno = ENOENT;
	is_i64(pl_fail_sys(&err, "cannot open %s", "x"), PL_EIO, "a system call");
	ok(strstr(err.msg, "cannot open x: ") && err.sys == ENOENT, "with errno's text: %s",
	   err.msg);
	memset(&err, 0, sizeof(err));
	errno = ENOMEM;
	is_i64(pl_fail_sys(&err, "mmap"), PL_ENOMEM, "without memory");
	memset(&err, 0, sizeof(err));
	memset(big, 'x', sizeof(big) - 1);
	big[sizeof(big) - 1] = '\0';
	pl_fail(&err, PL_EDATA, "%s", big);
	is_i64((long long)strlen(err.msg), sizeof(err.msg) - 1, "a long text is cut");
	pl_wrap(&err, "front");
	ok(!strncmp(err.msg, "front: xxx", 10) && strlen(err.msg) < sizeof(err.msg), "and wrapped");
}

static void test_exit_status(void)
{
	static const int want[][2] = { { PL_OK, 0 },	 { PL_ENO, 1 },	    { PL_EUSAGE, 2 },
				       { PL_EDATA, 3 },	 { PL_EIO, 4 },	    { PL_ENOMEM, 5 },
				       { PL_ELIMIT, 5 }, { PL_EABSENT, 6 }, { PL_EINTERNAL, 70 } };

	for (size_t i = 0; i < PL_LEN(want); i++)
		is_i64(pl_exit_status(want[i][0]), want[i][1], "exit status");
}

static void test_buffers(void)
{
	struct pl_err err = { 0 };
	struct pl_buf b = { 0 };
	int rc = pl_buf_put(&b, "", 0, &err);

	for (int i = 0; i < 1000 && rc >= 0; i++)
		rc = pl_buf_printf(&b, &err, "%d,", i);
	is_i64(rc, 0, "a buffer grows");
	ok(b.n == 3890 && !memcmp(b.p + b.n - 8, "998,999,", 8), "and holds everything");
	is_i64(pl_buf_need(&b, SIZE_MAX - 5, &err), PL_ENOMEM, "not beyond all memory");
	pl_buf_fini(&b);
	ok(!b.p && !b.n, "and is empty and valid afterwards");
}

static void test_grow(void)
{
	struct pl_err err = { 0 };
	uint64_t *v = NULL;
	size_t cap = 0;
	int rc = 0;

	for (uint64_t i = 0; i < 5000 && rc >= 0; i++) {
		rc = pl_grow(&v, &cap, i + 1, sizeof(*v), &err);
		if (rc >= 0)
			v[i] = i * i;
	}
	ok(rc == 0 && v[4999] == 4999 * 4999 && cap >= 5000 && cap <= 10000, "an array doubles");
	is_i64(pl_grow(&v, &cap, SIZE_MAX / 4, sizeof(*v), &err), PL_ENOMEM, "overflow is seen");
	is_i64((long long)v[3], 9, "and leaves the array");
	pl_free(v);
}

static void test_arena(void)
{
	struct pl_arena a = { 0 };
	char *first = pl_arena_dup(&a, "hello", 5), *p;
	bool aligned = true, kept = true;

	for (size_t i = 1; i < 3000; i++) {
		p = pl_arena_take(&a, i % 200 + 1);
		aligned &= ((uintptr_t)p & 7) == 0;
		memset(p, 0xee, i % 200 + 1);
	}
	kept = !strcmp(first, "hello");
	p = pl_arena_take(&a, 10 << 20);
	ok(aligned, "memory of an arena is aligned");
	ok(kept, "and apart");
	ok(p != NULL, "big pieces too");
	pl_arena_reset(&a);
	ok(pl_arena_take(&a, 8) != NULL, "an arena can be used again");
	pl_arena_fini(&a);
	is_i64((long long)a.total, 0, "or given back");
}

static void test_intern_keep(struct pl_intern *t)
{
	struct pl_err err = { 0 };
	size_t n = t->n, total = t->arena.total;
	bool *keep, same = true;
	pl_id id = PL_NONE;

	if (pl_alloc(&keep, n, sizeof(*keep), &err) < 0)
		abort();
	keep[2] = keep[20000] = true;
	is_i64(pl_intern_keep(t, keep, &err), 0, "strings are given up");
	ok(t->n == n && t->arena.total < 64 && total > 200000, "with their memory, not their ids");
	is_str(pl_intern_get(t, 2), "string 15838", "one that is kept");
	ok(t->len[20000] == 3 && !memcmp(t->str[20000], "a\0b", 3), "another, with a NUL byte");
	is_str(pl_intern_get(t, 3), "", "one that is given up");
	same = pl_intern_add(t, "string 15838", 12, &id, &err) == 0 && id == 2;
	ok(same && pl_intern_find(t, "string 0", 8) == PL_NONE, "they are found, or not");
	for (uint32_t i = 0; i < 40000; i++) {
		char name[32];
		int len = snprintf(name, sizeof(name), "later %u", i);

		same &= pl_intern_add(t, name, (size_t)len, &id, &err) == 0 && id == n + i;
	}
	ok(same && pl_intern_find(t, "string 15838", 12) == 2, "later strings get new ids");
	pl_free(keep);
}

static void test_intern(void)
{
	struct pl_err err = { 0 };
	struct pl_intern t = { 0 };
	char name[32];
	bool same = true, found = true;
	pl_id id;

	is_i64(pl_intern_find(&t, "x", 1), PL_NONE, "nothing is in an empty table");
	for (int pass = 0; pass < 2; pass++) {
		for (uint32_t i = 0; i < 20000; i++) {
			int n = snprintf(name, sizeof(name), "string %u", i * 7919u);

			if (pl_intern_add(&t, name, (size_t)n, &id, &err) < 0)
				break;
			same &= id == i;
		}
	}
	ok(same && t.n == 20000, "each string has one number, in order of arrival");
	for (uint32_t i = 0; i < 20000; i += 11) {
		const char *s = pl_intern_get(&t, i);

		found &= pl_intern_find(&t, s, strlen(s)) == i;
	}
	ok(found, "and is found");
	same = pl_intern_add(&t, "a\0b", 3, &id, &err) == 0 && t.len[id] == 3;
	ok(same && pl_intern_find(&t, "a\0c", 3) == PL_NONE, "NUL bytes are bytes");
	same = pl_intern_add(&t, "", 0, &id, &err) == 0;
	ok(same && !strcmp(pl_intern_get(&t, id), ""), "so is no byte at all");
	is_str(pl_intern_get(&t, PL_NONE), "", "none is the empty text");
	test_intern_keep(&t);
	pl_intern_reset(&t);
	ok(!t.n && pl_intern_find(&t, "string 0", 8) == PL_NONE, "everything can be forgotten");
	pl_intern_fini(&t);
}

static void test_hash(void)
{
	uint8_t data[96];
	uint64_t seen[97];
	bool differ = true;

	for (size_t i = 0; i < sizeof(data); i++)
		data[i] = (uint8_t)(i * 37);
	for (size_t n = 0; n <= sizeof(data); n++) {
		seen[n] = pl_hash(data, n);
		for (size_t k = 0; k < n; k++)
			differ &= seen[k] != seen[n];
	}
	ok(differ, "hashes of prefixes differ");
	for (size_t i = 0; i < sizeof(data); i++) {
		data[i] ^= 1;
		differ &= pl_hash(data, sizeof(data)) != seen[96];
		data[i] ^= 1;
	}
	ok(differ, "and every byte counts");
}

static void test_numbers(void)
{
	static const int64_t v[] = { 0, 1, -1, 63, -64, INT64_MAX, INT64_MIN };
	bool back = true;

	for (size_t i = 0; i < PL_LEN(v); i++)
		back &= pl_unzigzag(pl_zigzag(v[i])) == v[i];
	ok(back && pl_zigzag(-1) == 1 && pl_zigzag(1) == 2, "zigzag");
	is_i64(pl_add_sat(INT64_MAX, 1), INT64_MAX, "sums stay below 2^63");
	is_i64(pl_add_sat(INT64_MIN, -1), INT64_MIN, "and above -2^63");
	is_i64(pl_sub_sat(INT64_MIN, 1), INT64_MIN, "differences too");
	is_i64(pl_sub_sat(0, INT64_MIN), INT64_MAX, "even of the smallest number");
	is_i64(pl_add_sat(5, -7), -2, "others are exact");
}

static void test_selection(void)
{
	uint64_t rng = 4;
	bool median = true, mean = true, p95 = true;

	for (size_t n = 1; n < 300; n++) {
		int64_t v[300], sorted[300], low, high;
		double real[300];
		size_t rank = (n * 95 + 99) / 100;

		for (size_t i = 0; i < n; i++)
			real[i] = (double)(v[i] = sorted[i] = (int64_t)(pl_rng_next(&rng) %
									(n % 3 ? 1000 : 4)) -
							      2);
		qsort(sorted, n, sizeof(*sorted), pl_compare_i64);
		low = sorted[(n - 1) / 2];
		high = sorted[n / 2];
		median &= pl_median_i64(v, n) == low;
		mean &= pl_median_mean_i64(v, n) == low + (high - low) / 2;
		mean &= pl_median_double(real, n) == (double)(low + high) / 2;
		p95 &= pl_percentile_i64(v, n, 95) == sorted[rank - 1];
		p95 &= pl_percentile_i64(v, n, 0) == sorted[0];
		p95 &= pl_percentile_i64(v, n, 100) == sorted[n - 1];
	}
	ok(median, "medians");
	ok(mean, "of an even number, also the mean of the middle two");
	ok(p95, "percentiles");
}

struct item {
	uint32_t key, tag;
	char rest[24];
};

PL_COMPARATOR(by_key, struct item, key);

/* Lists one after the other, and what has no order: in order afterwards, and nothing lost. */
static void test_sort(void)
{
	unsigned bad = 0;
	uint64_t seed = 77;

	for (unsigned round = 0; round < 3000; round++) {
		size_t n = pl_rng_next(&seed) % 300, run = 1 + pl_rng_next(&seed) % 100;
		struct item *v = calloc(n + 1, sizeof(*v));
		uint8_t *seen = calloc(n + 1, 1);

		for (size_t i = 0; i < n; i++) {
			v[i].key = (uint32_t)(pl_rng_next(&seed) % 50);
			if (i % run && v[i].key < v[i - 1].key)
				v[i].key = v[i - 1].key;
			v[i].tag = (uint32_t)i;
		}
		pl_sort(round % 7 ? v : n ? v : NULL, n, sizeof(*v), by_key);
		for (size_t i = 0; i < n; i++) {
			bad += i && v[i].key < v[i - 1].key;
			bad += v[i].tag >= n || seen[v[i].tag]++;
		}
		free(v);
		free(seen);
	}
	ok(!bad, "what is sorted is in order, and all of it there");
}

struct six {
	int8_t a;
	uint16_t b;
	int32_t c;
	int64_t d;
	uint64_t e;
	double f;
};
PL_COMPARATOR(by_six, struct six, a, b, c, d, e, f);
PL_COMPARATOR(by_two, struct six, d, f);

static void test_comparing(void)
{
	static const struct six v[] = { /* in order by all six; each field alone decides once */
					{ -1, 9, 9, 9, 9, 9 },
					{ 0, 0, 9, 9, 9, 9 },
					{ 0, 65535, -7, 9, 9, 9 },
					{ 0, 65535, 7, INT64_MIN, 9, 9 },
					{ 0, 65535, 7, INT64_MAX, 0, 9 },
					{ 0, 65535, 7, INT64_MAX, UINT64_MAX, -0.5 },
					{ 0, 65535, 7, INT64_MAX, UINT64_MAX, 0.5 }
	};
	int32_t x = INT32_MIN, y = INT32_MAX;
	uint32_t a = 1, b = UINT32_MAX;
	double p = -0.25, q = 0.25;
	const char *s = "a", *t = "b";
	bool order = true;

	for (size_t i = 0; i < PL_LEN(v); i++)
		for (size_t k = 0; k < PL_LEN(v); k++)
			order &= by_six(&v[i], &v[k]) == PL_COMPARE(i, k);
	ok(order, "the first field that differs decides");
	ok(by_two(&v[0], &v[2]) == 0 && by_two(&v[3], &v[4]) < 0 && by_two(&v[6], &v[5]) > 0,
	   "two fields are enough");
	ok(pl_compare_i32(&x, &y) < 0 && pl_compare_u32(&a, &b) < 0 &&
		   pl_compare_double(&q, &p) > 0 && pl_compare_str(&s, &t) < 0 &&
		   pl_compare_str(&t, &t) == 0,
	   "numbers that are far apart, and strings, compare");
}

static void test_lower_bound(void)
{
	int v[40], n = 0;
	bool lower = true, upper = true, within = true;
	uint64_t rng = 9;

	for (n = 0; n < 40; n++) {
		for (int want = -1; want <= 12; want++) {
			uint32_t i = 0;
			size_t k = 0, first = 0, behind = 0;

			while (first < (size_t)n && v[first] < want)
				first++;
			for (behind = first; behind < (size_t)n && v[behind] == want; behind++)
				;
			PL_LOWER_BOUND(i, (size_t)n, v[i] < want);
			lower &= i == first;
			PL_LOWER_BOUND(k, (size_t)n, v[k] <= want);
			upper &= k == behind;
			k = (size_t)n / 2;
			PL_LOWER_BOUND(k, (size_t)n, v[k] < want);
			within &= k == (first > (size_t)n / 2 ? first : (size_t)n / 2);
		}
		v[n] = (n ? v[n - 1] : 0) + (int)(pl_rng_next(&rng) % 3 / 2);
	}
	ok(lower, "lower bounds");
	ok(upper, "upper bounds");
	ok(within, "a search that begins in the middle");
}

/* Spans of three groups in times 0 .. 63, beside a bit for each ns. */
/* An array across the size at which it goes to a file, and of pages that left memory. */
static void test_spill(void)
{
	const size_t n = 3 * PL_SPILL_BYTES / sizeof(uint64_t);
	struct pl_spill s = { 0 };
	struct pl_err err = { 0 };
	bool same = true, grown = true;
	uint64_t *v;
	int fd;

	for (size_t i = 0; i < n && grown; i++) {
		if (!(i & 0xffff)) {
			grown = pl_spill_grow(&s, (i + 0x10000) * sizeof(*v), &err) == 0;
			pl_spill_rest(&s);
		}
		v = s.p;
		if (grown)
			v[i] = i * 3;
		if (i == 1000)
			ok(!s.file, "a small array is in memory");
	}
	ok(grown && s.file, "a large one is in a file");
	pl_spill_rest(&s);
	v = s.p;
	for (size_t i = 0; i < n && grown; i++)
		same &= v[i] == i * 3;
	ok(same, "which has what was written, in the order of the elements");
	pl_spill_fini(&s);
	ok(!s.p && !s.cap, "its end");
	setenv("TMPDIR", "/nowhere/at/all", 1);
	is_i64(pl_spill_grow(&s, PL_SPILL_BYTES + 1, &err), PL_EIO, "without a folder for files");
	ok(strstr(err.msg, "/nowhere/at/all/paceline-") != NULL, "which is named: %s", err.msg);
	unsetenv("TMPDIR");
	memset(&err, 0, sizeof(err));
	fd = pl_spill_file(&err);
	ok(fd >= 0 && write(fd, "x", 1) == 1, "a file alone");
	close(fd);
	pl_spill_fini(&s);
}

static void test_spans(void)
{
	uint64_t rng = 3;
	bool cover = true, length = true, overlap = true;
	struct pl_spans none = { 0 };

	pl_spans_unite(&none);
	ok(pl_spans_length(&none) == 0 && pl_spans_cover(&none, 0, 0, 9) == 0, "no spans");
	for (unsigned round = 0; round < 500; round++) {
		struct pl_spans s[2] = { 0 };
		uint64_t bits[2][3] = { 0 };
		int64_t sum = 0, both = 0;

		for (unsigned i = 0; i < 40; i++) {
			unsigned which = pl_rng_next(&rng) % 2, group = pl_rng_next(&rng) % 3;
			int64_t start = (int64_t)(pl_rng_next(&rng) % 60);
			int64_t end = start + (int64_t)(pl_rng_next(&rng) % 4) - 1;

			if (pl_spans_add(&s[which], (int32_t)group - 1, start, end, NULL) < 0)
				abort();
			for (int64_t t = start; t < end; t++)
				bits[which][group] |= 1ull << t;
			if (i % 20 == 19) /* united more than once */
				pl_spans_unite(&s[which]);
		}
		pl_spans_unite(&s[0]);
		pl_spans_unite(&s[1]);
		for (int g = 0; g < 3; g++) {
			int64_t start = (int64_t)(pl_rng_next(&rng) % 64), want = 0;
			int64_t end = start + (int64_t)(pl_rng_next(&rng) % (uint64_t)(65 - start));

			for (int64_t t = 0; t < 64; t++) {
				sum += bits[0][g] >> t & 1;
				both += (bits[0][g] & bits[1][g]) >> t & 1;
				want += t >= start && t < end && bits[0][g] >> t & 1;
			}
			cover &= pl_spans_cover(&s[0], g - 1, start, end) == want;
		}
		length &= pl_spans_length(&s[0]) == sum;
		overlap &= pl_spans_overlap(&s[0], &s[1]) == both &&
			   pl_spans_overlap(&s[1], &s[0]) == both;
		pl_spans_fini(&s[0]);
		pl_spans_fini(&s[1]);
	}
	ok(cover, "how much of a time spans cover");
	ok(length, "how long united spans are");
	ok(overlap, "what two sets of spans have in common");
}

static void test_globs(void)
{
	static const struct {
		const char *glob, *text;
		bool hit;
	} cases[] = {
		{ "abc", "abc", true },
		{ "abc", "abcd", false },
		{ "", "", true },
		{ "*", "", true },
		{ "a*c", "abbbc", true },
		{ "a*c", "abbbd", false },
		{ "*b*b*", "abcb", true },
		{ "?", "x", true },
		{ "?", "", false },
		{ "[a-c]x", "bx", true },
		{ "[!a-c]x", "bx", false },
		{ "[!a-c]x", "dx", true },
		{ "\\*", "*", true },
		{ "\\*", "x", false },
		{ "send|recv*", "recv_x", true },
		{ "send|recv*", "se", false },
		{ "a\\|b", "a|b", true },
		{ "*a*a*a*b", "aaaaaaaaac", false },
		{ "[]]", "]", true },
		{ "[x", "[x", true },
		{ "[", "[", true },
		{ "[!", "[!", true },
		{ "[!]", "[!]", true }, /* the set is not closed */
		{ "[^]", "[^]", true },
		{ "[!]", "x", false },
		{ "[!]|x", "x", true },
		{ "[!]a]", "b", true },
		{ "[^]a]", "]", false },
		{ "[a-]", "-", true },
		{ "[!a-]", "b", true },
		{ "[a-c", "[a-c", true },
		{ "|x", "", true },
		{ "Kernel", "kernel", false },
	};

	for (size_t i = 0; i < PL_LEN(cases); i++) {
		char *glob = strdup(cases[i].glob); /* what is read behind it is seen */

		ok(pl_glob(glob, cases[i].text) == cases[i].hit, "\"%s\" %s \"%s\"", glob,
		   cases[i].hit ? "matches" : "does not match", cases[i].text);
		free(glob);
	}
}

static void test_formats(void)
{
	static const struct {
		pl_ns ns;
		const char *want;
	} times[] = {
		{ 0, "0 ns" },
		{ 999, "999 ns" },
		{ 1000, "1.00 us" },
		{ 12345678, "12.3 ms" },
		{ -12345678, "-12.3 ms" },
		{ 603000000, "603 ms" },
		{ 1500000000, "1.50 s" },
	};
	char s[32];

	for (size_t i = 0; i < PL_LEN(times); i++)
		is_str(pl_fmt_ns(s, sizeof(s), times[i].ns), times[i].want, "a time");
	is_str(pl_fmt_bytes(s, sizeof(s), 1000), "1000 B", "bytes");
	is_str(pl_fmt_bytes(s, sizeof(s), 1536), "1.5 KiB", "in units");
}

static void test_values(void)
{
	struct pl_err err = { 0 };
	int64_t v = 0;
	double d = 0;

	ok(pl_parse_int("-12", &v, &err) == 0 && v == -12, "an integer");
	ok(pl_parse_real("0.5", &d, &err) == 0 && d == 0.5, "a real number");
	ok(pl_parse_size("3K", &v, &err) == 0 && v == 3072, "a size");
	ok(pl_parse_size("24GB", &v, &err) == 0 && v == 24000000000, "in powers of 1000");
	ok(pl_parse_time("2ms", &v, &err) == 0 && v == 2000000, "a time");
	ok(pl_parse_time("1.5s", &v, &err) == 0 && v == 1500000000, "in seconds");
	ok(pl_parse_time("0", &v, &err) == 0 && v == 0, "0 needs no unit");
	is_i64(pl_parse_time("5", &v, &err), PL_EUSAGE, "others need one");
	ok(strstr(err.msg, "write 5us or 5ms") != NULL, "... with the remedy: %s", err.msg);
	memset(&err, 0, sizeof(err));
	is_i64(pl_parse_int("12x", &v, &err), PL_EUSAGE, "not an integer");
	memset(&err, 0, sizeof(err));
	is_i64(pl_parse_int("", &v, &err), PL_EUSAGE, "nothing");
	memset(&err, 0, sizeof(err));
	is_i64(pl_parse_int("99999999999999999999", &v, &err), PL_EUSAGE, "too much");
	memset(&err, 0, sizeof(err));
	is_i64(pl_parse_size("3Q", &v, &err), PL_EUSAGE, "no such unit");
	memset(&err, 0, sizeof(err));
	is_i64(pl_parse_time("soon", &v, &err), PL_EUSAGE, "no time");
	ok(err.msg[0] != '\0', "with words: %s", err.msg);
}

/* Which of five allocations fail, bit by bit, in a process of its own. */
static int failing(const char *setting)
{
	pid_t pid = fork();
	int status = 0, bits = 0;

	if (!pid) {
		setenv("PL_FAIL", setting, 1);
		for (int i = 0; i < 5; i++) {
			void *p = pl_malloc(1);

			bits |= !p << i;
			pl_free(p);
		}
		_exit(bits);
	}
	if (pid < 0 || waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		return -1;
	return WEXITSTATUS(status);
}

static void test_failing(void)
{
	is_i64(failing("3"), 4, "PL_FAIL=3 fails the third call");
	is_i64(failing("3+"), 28, "PL_FAIL=3+ those that follow as well");
	is_i64(failing("9"), 0, "PL_FAIL=9 none of five");
}

/* A shell reads the arguments of a line of provenance back. */
static void test_provenance(void)
{
	char *argv[] = { "prog",	"-o", "a b", "it's",	   "",	       "$HOME `x` \"y\" \\",
			 "*?[a]",	"~",  "a;b", "two\nlines", "tab\t'\\", "#c",
			 "--x=\xc3\xbc" };
	struct pl_common c = { .provenance = true, .program = "prog", .argv = argv };
	struct pl_buf line = { 0 };
	char got[256], want[256] = "";
	FILE *sh;
	size_t n = 0;

	c.argc = (int)PL_LEN(argv);
	ok(pl_provenance(&c, &line, NULL) == 0 && !strchr((char *)line.p, '\n'),
	   "provenance is one line");
	ok(strstr((char *)line.p, ": -o 'a b' ") != NULL, "plain words are not quoted");
	for (int i = 1; i < c.argc; i++)
		snprintf(want + strlen(want), sizeof(want) - strlen(want), "%s|", argv[i]);
	setenv("LINE", strchr((char *)line.p, ':') + 1, 1);
	sh = popen("bash -c 'eval \"set -- $LINE\"; printf \"%s|\" \"$@\"'", "r");
	if (sh)
		n = fread(got, 1, sizeof(got) - 1, sh);
	got[n] = '\0';
	if (sh)
		pclose(sh);
	is_str(got, want, "a shell reads it back");
	pl_buf_fini(&line);
}

static void test_processors(void)
{
	cpu_set_t before, one;
	int n = pl_processors();

	ok(n >= 1 && n <= sysconf(_SC_NPROCESSORS_ONLN), "processors: %d", n);
	sched_getaffinity(0, sizeof(before), &before);
	CPU_ZERO(&one);
	CPU_SET(sched_getcpu(), &one);
	sched_setaffinity(0, sizeof(one), &one);
	is_i64(pl_processors(), 1, "one, where this process may use one");
	sched_setaffinity(0, sizeof(before), &before);
}

static void test_alloc(void)
{
	struct pl_err err = { 0 };
	void *p = &err;

	ok(pl_alloc(&p, SIZE_MAX / 2, 4, &err) == PL_ENOMEM && !p,
	   "memory that there is not is NULL");
}

/* Decimals as strtod() reads them, to the bit. */
static void test_decimals(void)
{
	static const char *const bad[] = { "", "-", ".", "1.2.3", "1 ", "0x1", "nan", "1e", "--1" };
	static const char digit[] = "0123456789.";
	uint64_t seed = 5;
	int differ = 0, read = 0;

	for (int i = 0; i < 20000; i++) {
		char text[32], *end;
		size_t n = pl_rng_next(&seed) % 20 + 1, at = 0;
		double v = 7, want;

		if (pl_rng_next(&seed) % 4 == 0)
			text[at++] = '-';
		while (at < n)
			text[at++] = digit[pl_rng_next(&seed) % (sizeof(digit) - 1)];
		if (pl_rng_next(&seed) % 8 == 0)
			at += (size_t)snprintf(text + at, 5, "e-%d", (int)(i % 30));
		text[at] = '\0';
		want = strtod(text, &end);
		if (*end || end == text) {
			differ += pl_decimal(text, &v);
			continue;
		}
		read++;
		differ += !pl_decimal(text, &v) || memcmp(&v, &want, sizeof(v)) != 0;
	}
	ok(!differ && read > 5000, "%d decimals as strtod() reads them", read);
	for (size_t i = 0; i < PL_LEN(bad); i++) {
		double v;

		differ += pl_decimal(bad[i], &v);
	}
	is_i64(differ, 0, "others are no decimals");
}

int main(void)
{
	test_failing(); /* first: the setting is read once a process */
	test_errors();
	test_exit_status();
	test_buffers();
	test_grow();
	test_arena();
	test_intern();
	test_hash();
	test_numbers();
	test_selection();
	test_comparing();
	test_lower_bound();
	test_spans();
	test_spill();
	test_sort();
	test_globs();
	test_provenance();
	test_formats();
	test_values();
	test_processors();
	test_alloc();
	test_decimals();
	return done_testing();
}
