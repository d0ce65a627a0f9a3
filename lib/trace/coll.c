/*
 * The collective that a name means.
 *
 * Names come from many sources: kernels of every version of NCCL, operators of frameworks, MPI
 * calls, operation tables, compilers. So a name is cut into words: at characters that are neither
 * letter nor digit, and before capitals that begin a word. Of the known sequences of words, the
 * first one in the name decides, and of several at the same place the longest. Words with other
 * meanings ("gather", "reduce", "send" ...) count only if the name is about communication: after
 * the name of a library, or at the end of a name in the style of operation tables (letters and
 * dashes). The text after the first '<' or '(' is a signature and is ignored.
 */
#include <ctype.h>

#include "trace/trace.h"

#define MAX_WORDS 24
#define MAX_WORD  24

struct words {
	char w[MAX_WORDS][MAX_WORD]; /* lower case */
	int n;
};

static const char anonymous[] = "(anonymous namespace)";

static void add(struct words *w, const char *s, size_t n)
{
	if (w->n == MAX_WORDS)
		return;
	n = pl_min_size(n, MAX_WORD - 1);
	for (size_t i = 0; i < n; i++)
		w->w[w->n][i] = (char)tolower((unsigned char)s[i]);
	w->w[w->n++][n] = '\0';
}

/* Does a word begin at s[i], inside a run of letters and digits? "ncclAll", "NCCLAll". */
static bool begins(const char *s, size_t i, size_t n)
{
	bool upper = isupper((unsigned char)s[i]);

	if (!upper)
		return false;
	return !isupper((unsigned char)s[i - 1]) || (i + 1 < n && islower((unsigned char)s[i + 1]));
}

static void split(const char *s, size_t n, struct words *w)
{
	w->n = 0;
	for (size_t i = 0, at = 0; i <= n; i++) { /* a word from `at` on, none if that is i */
		bool skip = n - i >= sizeof(anonymous) - 1 &&
			    !memcmp(s + i, anonymous, sizeof(anonymous) - 1);
		bool end = i == n || (!skip && (s[i] == '<' || s[i] == '('));
		bool inside = !end && !skip && isalnum((unsigned char)s[i]);

		if (at < i && (!inside || begins(s, i, n))) {
			add(w, s + at, i - at);
			at = i;
		}
		if (end)
			return;
		if (!inside)
			at = (i += skip ? sizeof(anonymous) - 2 : 0) + 1;
	}
}

#define WORD(name, word) word,
static const char *const colls[] = { PL_TRACE_COLLS(WORD) };

/* If several sequences begin at one word, the first one in this table counts. */
static const struct {
	const char *word[3];
	uint8_t coll;
	bool clear; /* means communication at any place */
} known[] = {
	{ { "all", "gather", "copy" }, PL_COLL_COUNT_, true }, /* into and out of its buffer */
	{ { "reduce", "scatter", "copy" }, PL_COLL_COUNT_, true },
	{ { "cross", "device", "reduce" }, PL_COLL_ALLREDUCE, true },
	{ { "all", "to", "all" }, PL_COLL_ALLTOALL, true },
	{ { "all", "reduce" }, PL_COLL_ALLREDUCE, true },
	{ { "all", "gather" }, PL_COLL_ALLGATHER, true },
	{ { "reduce", "scatter" }, PL_COLL_REDUCE_SCATTER, true },
	{ { "collective", "permute" }, PL_COLL_SENDRECV, true },
	{ { "collective", "broadcast" }, PL_COLL_BROADCAST, true },
	{ { "send", "recv" }, PL_COLL_SENDRECV, false },
	/* JAX */
	{ { "psum", "scatter" }, PL_COLL_REDUCE_SCATTER, true },
	{ { "psum" }, PL_COLL_ALLREDUCE, true },
	{ { "pmean" }, PL_COLL_ALLREDUCE, true },
	{ { "pmax" }, PL_COLL_ALLREDUCE, true },
	{ { "pmin" }, PL_COLL_ALLREDUCE, true },
	{ { "ppermute" }, PL_COLL_SENDRECV, true },
	{ { "allreduce" }, PL_COLL_ALLREDUCE, true },
	{ { "allgather" }, PL_COLL_ALLGATHER, true },
	{ { "reducescatter" }, PL_COLL_REDUCE_SCATTER, true },
	{ { "alltoall" }, PL_COLL_ALLTOALL, true },
	{ { "sendrecv" }, PL_COLL_SENDRECV, false },
	{ { "broadcast" }, PL_COLL_BROADCAST, false },
	{ { "bcast" }, PL_COLL_BROADCAST, false },
	{ { "reduce" }, PL_COLL_REDUCE, false },
	{ { "gather" }, PL_COLL_GATHER, false },
	{ { "scatter" }, PL_COLL_SCATTER, false },
	{ { "send" }, PL_COLL_SEND, false },
	{ { "recv" }, PL_COLL_RECV, false },
	{ { "receive" }, PL_COLL_RECV, false },
	{ { "barrier" }, PL_COLL_BARRIER, false },
};

static const char *const libraries[] = { "nccl", "rccl",    "gloo",  "c10d",   "mpi",
					 "ucc",	 "xccl",    "hccl",  "ccl",    "oneccl",
					 "hvd",	 "horovod", "msccl", "mscclpp" };

/* Words for operations inside one processor. */
static const char *const local[] = { "block", "warp", "thread", "subgroup", "quad", "cta", "wave" };

static bool any_of(const char *word, const char *const *list, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (*word == *list[i] && !strcmp(word, list[i]))
			return true;
	return false;
}

/* Words of MPI: a letter before (i, b, s, r: mode of a send) and after (v, w: many sizes). */
static bool mpi_word(const char *word, const char *want)
{
	size_t n = strlen(word), k = strlen(want);

	if (n > k && strchr("ibsr", word[0]) && !strncmp(word + 1, want, k)) {
		word++;
		n--;
	}
	return !strncmp(word, want, k) && (n == k || (n == k + 1 && strchr("vw", word[k])));
}

static bool same_word(const char *word, const char *want, bool library)
{
	return (*word == *want && !strcmp(word, want)) || (library && mpi_word(word, want));
}

/* The number of words that match entry `k` from word `i` on, or 0. */
static int fits(const struct words *w, int i, size_t k, bool library)
{
	int n = 0;

	for (; n < 3 && known[k].word[n]; n++)
		if (i + n >= w->n || !same_word(w->w[i + n], known[k].word[n], library))
			return 0;
	return n;
}

/* Letters, digits, dots and at least one dash. */
static bool is_dashed(const char *s, size_t n)
{
	bool dash = false;

	for (size_t i = 0; i < n; i++) {
		if (s[i] == '-')
			dash = true;
		else if (!isalnum((unsigned char)s[i]) && s[i] != '.' && s[i] != '_')
			return false;
	}
	return dash;
}

/* Is word i the last one, except for numbers and the suffixes of an asynchronous operation? */
static bool is_last(const struct words *w, int i)
{
	for (; i < w->n; i++)
		if (!isdigit((unsigned char)w->w[i][0]) && strcmp(w->w[i], "start") != 0 &&
		    strcmp(w->w[i], "done") != 0)
			return false;
	return true;
}

/* PL_COLL_COUNT_: no communication. */
static unsigned find(const char *name, size_t n)
{
	bool dashed = is_dashed(name, n), library = false, kernel = false;
	struct words w;

	split(name, n, &w);
	for (int i = 0; i < w.n; i++) {
		if (any_of(w.w[i], libraries, PL_LEN(libraries))) {
			library = true;
			continue;
		}
		/* A kernel of such a library communicates, even if its name has no operation. */
		kernel |= library && (!strcmp(w.w[i], "kernel") || !strcmp(w.w[i], "coalesced"));
		for (size_t k = 0; k < PL_LEN(known); k++) {
			int words = fits(&w, i, k, library);

			if (!words || (i && any_of(w.w[i - 1], local, PL_LEN(local))))
				continue;
			if (known[k].clear || library || (dashed && is_last(&w, i + words)))
				return known[k].coll;
		}
	}
	return kernel ? PL_COLL_OTHER : PL_COLL_COUNT_;
}

const char *pl_trace_coll_from_name(const char *name, size_t n)
{
	unsigned coll = find(name, n);

	return coll < PL_COLL_COUNT_ ? colls[coll] : NULL;
}

size_t pl_trace_dims_text(const char *dims, bool first, char *text, size_t size)
{
	size_t n = 0;
	int depth = 0;

	for (; *dims; dims++) {
		bool skip = *dims == ' ' || *dims == '\n' || *dims == '\t' || *dims == '\r';

		depth -= *dims == ']';
		if (first && depth <= 1 && (*dims == ',' || depth <= 0) && n)
			break;
		skip |= first && depth <= 0;
		depth += *dims == '[';
		if (!skip && n + 1 < size)
			text[n++] = *dims;
	}
	text[n] = '\0';
	return n;
}

const char *pl_trace_coll_name(unsigned coll)
{
	return colls[coll < PL_COLL_COUNT_ ? coll : PL_COLL_OTHER];
}

unsigned pl_trace_coll_find(const char *name, size_t n)
{
	unsigned coll = find(name, n);

	return coll < PL_COLL_COUNT_ ? coll : PL_COLL_OTHER;
}

/* Properties in addition to PL_COLL_MOVES_DATA. */
static const uint8_t properties[PL_COLL_COUNT_] = {
	[PL_COLL_ALLREDUCE] = PL_COLL_MEETS | PL_COLL_SAME_SIZE,
	[PL_COLL_REDUCE_SCATTER] = PL_COLL_MEETS | PL_COLL_SAME_SIZE,
	[PL_COLL_ALLGATHER] = PL_COLL_MEETS | PL_COLL_SAME_SIZE,
	[PL_COLL_BROADCAST] = PL_COLL_ROOTED | PL_COLL_SAME_SIZE,
	[PL_COLL_ALLTOALL] = PL_COLL_MEETS,
	[PL_COLL_REDUCE] = PL_COLL_ROOTED,
	[PL_COLL_GATHER] = PL_COLL_ROOTED,
	[PL_COLL_SCATTER] = PL_COLL_ROOTED,
	[PL_COLL_SENDRECV] = PL_COLL_EXCHANGE,
};

unsigned pl_trace_coll_properties(const char *name)
{
	if (!strcmp(name, colls[PL_COLL_BARRIER]) || !strcmp(name, "rendezvous"))
		return PL_COLL_MEETS; /* the word "rendezvous" of operation tables */
	for (size_t i = 0; i < PL_COLL_COUNT_; i++)
		if (!strcmp(name, colls[i]))
			return properties[i] | PL_COLL_MOVES_DATA;
	return PL_COLL_MOVES_DATA;
}
