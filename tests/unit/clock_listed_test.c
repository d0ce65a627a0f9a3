/* Groups that headers of files list: read in all their forms, used, doubted. */
#include <stdlib.h>
#include <time.h>

#include "clock_fixture.h"
#include "core/core.h"

#define RANKS 4
#define MANY  40

struct job {
	const char *header[RANKS]; /* "%d" becomes the rank; NULL: none */
	const char *own;	   /* group that the events name */
	int pairs;		   /* 2: ranks 0 and 2 end together; 1: pairs of neighbours do */
	bool disjoint;		   /* the pairs do not even overlap */
};

static pl_ns noise(uint64_t *seed, pl_ns most)
{
	return (pl_ns)(pl_rng_next(seed) % (uint64_t)most);
}

static void make(const struct job *j, int rank, struct ev *e)
{
	int pair = j->pairs == 2 ? rank % 2 : rank / 2;
	uint64_t together = j->pairs ? 77 + (uint64_t)pair : 77, alone = 5 + (uint64_t)rank;

	for (int i = 0; i < MANY; i++) {
		pl_ns late = noise(&together, 1000000) + noise(&alone, 150000);
		pl_ns t = 20000000 * (i + 1) + (j->disjoint && pair == i / 4 % 2 ? 8000000 : 0);

		e[i] = (struct ev){ .kind = PL_K_COLLECTIVE,
				    .name = "gloo:all_reduce",
				    .coll = "allreduce",
				    .group = j->own,
				    .stream = 7,
				    .seq = -1,
				    .peer = -1,
				    .ts = t + noise(&alone, 1000000),
				    .dur = 2000000 };
		e[i].dur = t + 4000000 + late - e[i].ts;
	}
}

static void run(const struct job *j, struct result *x, struct pl_align **a)
{
	*a = new_align(PL_CLOCK_ONE, PL_DUP_REFUSE, false);
	memset(x, 0, sizeof(*x));
	for (int r = 0; r < RANKS && *a; r++) {
		struct ev e[MANY];
		char text[512], file[16];
		size_t n = 0;

		make(j, r, e);
		for (const char *s = j->header[r]; s && *s && n + 1 < sizeof(text); n++, s++)
			text[n] = *s == '%' && s[1] == 'd' ? (char)('0' + (s++, r)) : *s;
		text[n] = '\0';
		header = j->header[r] ? text : NULL;
		snprintf(file, sizeof(file), "rank%d", r);
		is_i64(feed(*a, r, "host", file, e, MANY, &x->err), 0, "a rank is taken");
	}
	header = NULL;
	solve(*a, x);
	is_i64(x->rc, 0, "solved");
}

/* "name:0,1,2,3 name:..."; inferred groups end in '?' */
static const char *groups(const struct result *x)
{
	static char text[256];
	size_t n = 0;

	text[0] = '\0';
	for (uint32_t g = 0; g < x->m.n_groups; g++) {
		const struct pl_group *p = &x->m.group[g];

		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%s:", g ? " " : "", p->name);
		for (uint32_t i = 0; i < p->n; i++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%u", i ? "," : "",
					      p->rank[i]);
		if (p->flags & PL_GROUP_INFERRED)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "?");
	}
	return text;
}

/* warns: what a warning says, NULL: there is none. */
static void check(const char *what, const struct job *j, const char *want, uint32_t doubtful,
		  const char *warns)
{
	struct pl_align *a;
	struct result x;

	run(j, &x, &a);
	is_str(groups(&x), want, what);
	is_i64(x.r.doubtful, doubtful, "... doubtful ones");
	ok(warns ? strstr(said, warns) != NULL : !said[0], "... warnings: %s", said);
	done(a, &x);
}

#define WORLD "{\"backend\":\"gloo\",\"rank\":%d,\"world_size\":4,\"pg_config\":"
#define EVERY(s)                                                                                   \
	{                                                                                          \
		s, s, s, s                                                                         \
	}

static void check_forms(void)
{
	static const char *const form[] = {
		WORLD "[{\"pg_name\":\"0\",\"pg_size\":4,\"ranks\":[0,1,2,3]}]}",
		WORLD "[{\"ranks\":[3,1,2,0],\"pg_name\":0}]}",
		WORLD "\"[{\\\"pg_name\\\": \\\"0\\\", \\\"ranks\\\": [0, 1, 2, 3]}]\"}",
		WORLD "\"[{'pg_name': '0', 'ranks': [0, 1, 2, 3], 'uid': None}]\"}",
		WORLD "[{\"pg_name\":\"0\",\"ranks\":\"[0, 1, 2, 3]\"}]}",
		WORLD "[{\"pg_name\":\"0\",\"group_size\":4,\"ranks\":[]}]}",
		WORLD "[{\"pg_name\":\"0\",\"ranks\":null}]}",
		WORLD "[{\"pg_name\":\"0\",\"pg_size\":4}]}",
		WORLD "{\"0\":{\"pg_name\":\"0\",\"ranks\":[0,1,2,3]}}}",
		WORLD
		"[{\"pg_name\":\"9\",\"ranks\":[%d]},{\"pg_name\":\"0\",\"ranks\":[0,1,2,3]}]}",
		WORLD "[{\"pg_name\":\"0\",\"ranks\":[]},{\"pg_name\":\"1\",\"ranks\":[0,1,2,3]}]}",
		"{\"pg_config\":[{\"pg_name\":\"0\",\"ranks\":[0,1,2,3]}],\"world_size\":4}",
	};

	for (size_t i = 0; i < PL_LEN(form); i++) {
		struct job j = { .header = EVERY(form[i]), .pairs = 2 };

		check(form[i], &j, "0:0,1,2,3", 0, NULL);
	}
}

static void check_unusable(void)
{
	static const char *const form[] = {
		WORLD "[{\"pg_name\":\"0\",\"pg_size\":4,\"ranks\":[0,1]}]}",
		WORLD "[{\"pg_name\":\"0\",\"ranks\":[0,\"...\",3]}]}",
		WORLD "[{\"pg_name\":\"0\",\"pg_size\":8,\"ranks\":[]}]}",
		WORLD "[{\"pg_name\":\"0\",\"ranks\":{}}]}",
		WORLD "[]}",
		WORLD "\"...\"}",
		WORLD "[{\"pg_name\":\"0\",\"ranks\":[0,1,2,3",
		"{\"rank\":9,\"world_size\":4,\"pg_config\":[{\"ranks\":[0,1,2,3]}]}",
		"{\"world_size\":2000000000,\"pg_config\":[{\"ranks\":[]}]}",
		"{\"rank\":%d,\"pg_config\":[{\"ranks\":[4,5]}]}",
	};

	for (size_t i = 0; i < PL_LEN(form); i++) {
		struct job j = { .header = EVERY(form[i]) };

		check(form[i], &j, "inferred0:0,1,2,3?", 0, NULL);
	}
}

#define ALL   "{\"pg_name\":\"0\",\"ranks\":[0,1,2,3]}"
#define LOWER "{\"pg_name\":\"1\",\"ranks\":[0,1]}"
#define UPPER "{\"pg_name\":\"2\",\"ranks\":[2,3]}"

/* A first run of four ranks is left out. What counts as the group of all is that of the two ranks
 * of the second run. */
static void check_left_out(void)
{
	static const struct job j = { .own = NULL };
	static const char *const second[] = { "{\"pg_name\":\"1\",\"ranks\":[0,5]}",
					      "{\"pg_name\":\"2\",\"ranks\":[1,6]}" };
	struct pl_align *a = new_align(PL_CLOCK_ONE, PL_DUP_NEWEST, false);
	struct result x;
	int rc = 0;

	for (int k = 0; k < RANKS + 2; k++) {
		struct ev e[MANY];
		char text[512], file[16];

		make(&j, k % RANKS, e);
		snprintf(file, sizeof(file), "file%d", k);
		for (int i = 0; i < MANY; i++)
			e[i].ts += k < RANKS ? 0 : 100000000000;
		snprintf(text, sizeof(text), "{\"world_size\":4,\"pg_config\":[" ALL "%s%s]}",
			 k < RANKS ? "" : ",", k < RANKS ? "" : second[k % RANKS]);
		header = text;
		rc |= feed(a, k % RANKS, "host", file, e, MANY, NULL);
	}
	header = NULL;
	solve(a, &x);
	ok(rc == 0 && x.rc == 0 && x.r.dropped == 4, "the first run is left out");
	is_str(groups(&x), "inferred0:0,1?", "... and its ranks are not missed");
	done(a, &x);
}

/* ---- threads of groups ----------------------------------------------------------------------- */

#define KINDS 3 /* of groups: all ranks, rows and columns of 2 x 2 ranks */

/* The threads of each group on a rank; each works in turn, one that is 0 never. */
struct threads {
	const char *header;
	int64_t tid[KINDS][2];
	int64_t bytes; /* of the last collective of a row */
	int64_t pid;   /* 0: one process; else each group has one, from this number on */
	bool unused;   /* the group of all ranks has no collectives */
	pl_ns delay;   /* rows, and columns, take turns to begin first; 0: the first always does */
};

static int feed_rank(struct pl_align *a, const struct threads *t, int rank, struct pl_err *err)
{
	struct ev e[MANY] = { { 0 } };
	struct thread_args g[MANY];
	uint64_t seed = 9 + (uint64_t)rank;
	char file[16];

	for (int i = 0; i < MANY; i++) {
		int kind = t->unused ? 1 + i % (KINDS - 1) : i % KINDS;
		int nth = (i / KINDS + rank) % 2;
		pl_ns delay = t->delay ? t->delay : 100000;
		int first = t->delay ? i / KINDS % 2 : 0;
		pl_ns at = 5000000 * (i + 1) + delay * ((kind == 1 ? rank / 2 : rank % 2) != first);

		e[i] = (struct ev){ .kind = PL_K_COLLECTIVE,
				    .name = "gloo:all_reduce",
				    .coll = "allreduce",
				    .seq = -1,
				    .peer = -1,
				    .bytes = kind == 1 && i + KINDS >= MANY ? t->bytes : 4096,
				    .ts = at + noise(&seed, 20000) };
		e[i].dur = at + 1000000 + noise(&seed, 20000) - e[i].ts;
		g[i] = (struct thread_args){ t->tid[kind][t->tid[kind][1] ? nth : 0], "[]", 0,
					     t->pid ? t->pid + kind : 0 };
	}
	snprintf(file, sizeof(file), "rank%d", rank);
	header = t->header;
	return feed_threads(a, rank, "host", file, e, g, MANY, err);
}

static void check_thread_groups(const char *what, const struct threads *t, const char *want)
{
	struct pl_align *a = new_align(PL_CLOCK_ONE, PL_DUP_REFUSE, false);
	struct result x = { .rc = 0 };
	int rc = 0;

	for (int r = 0; r < RANKS; r++)
		rc |= feed_rank(a, &t[r], r, &x.err);
	header = NULL;
	solve(a, &x);
	ok(!rc && !x.rc, "solved %s", x.err.msg);
	is_str(groups(&x), want, what);
	done(a, &x);
}

#define LIST(row, column) "{\"world_size\":4,\"pg_config\":[" ALL "," row "," column "]}"
#define EVEN		  "{\"pg_name\":\"3\",\"ranks\":[0,2]}"
#define ODD		  "{\"pg_name\":\"4\",\"ranks\":[1,3]}"

static void check_threads(void)
{
	static const char found[] = "0:0,1,2,3 1:0,1 3:0,2 4:1,3 2:2,3";
	static const char solo[] =
		"{\"world_size\":4,\"pg_config\":[" ALL ",{\"pg_name\":\"7\",\"ranks\":[%d]}]}";
	/* rank 1 made threads while rank 2 did; one thread of rank 3 had nothing to do */
	struct threads t[RANKS] = {
		{ LIST(LOWER, EVEN), { { 10, 11 }, { 20, 21 }, { 30, 31 } }, 4096, 0, false, 0 },
		{ LIST(LOWER, ODD), { { 9, 12 }, { 22, 24 }, { 32, 34 } }, 4096, 0, false, 0 },
		{ LIST(UPPER, EVEN), { { 13, 14 }, { 23, 25 }, { 33, 35 } }, 4096, 0, false, 0 },
		{ LIST(UPPER, ODD), { { 15, 16 }, { 26, 0 }, { 28, 29 } }, 4096, 0, false, 0 },
	};
	char all[RANKS][128];

	check_thread_groups("threads tell groups apart", t, found);
	t[1].bytes = 8192;
	check_thread_groups("... unless members differ", t,
			    "inferred0:0,1,2,3? inferred1:0,1,2,3? inferred2:0,1,2,3?");
	t[1].bytes = 4096;
	for (int r = 0; r < RANKS; r++) {
		t[r].unused = true;
		t[r].delay = 2000000;
	}
	check_thread_groups("a group without collectives", t,
			    "inferred0:0,1? inferred1:2,3? inferred2:0,2? inferred3:1,3?");
	for (int r = 0; r < RANKS; r++) {
		t[r].unused = false;
		t[r].delay = 0;
	}
	t[1].tid[1][1] = 0;
	t[1].tid[2][0] = 23;
	t[1].tid[2][1] = 0;
	check_thread_groups("... or two of one pair would be alone", t, "inferred0:0,1,2,3?");
	t[1].tid[1][0] = t[1].tid[2][0] = t[1].tid[0][0] = INT64_MAX;
	t[1].tid[0][1] = 0;
	t[1].pid = 50;
	check_thread_groups("... or they are of several processes", t, "inferred0:0,1,2,3?");
	t[1].pid = 0;
	for (int r = 0; r < RANKS; r++) {
		const int64_t one[KINDS][2] = { { 10, 11 }, { 10, 11 }, { 10, 11 } };

		snprintf(all[r], sizeof(all[r]), "%.*s%d]}]}", (int)(sizeof(solo) - 7), solo, r);
		t[r].header = all[r];
		memcpy(t[r].tid, one, sizeof(one));
	}
	check_thread_groups("two threads of one group that is in use", t, "0:0,1,2,3");
}

/* CPU time of a job of two ranks where each has n collectives, of the group of 2^17 ranks that is
 * listed and of a group of two. Both are told by threads. */
static double seconds(size_t n)
{
	struct pl_align *a = new_align(PL_CLOCK_ONE, PL_DUP_REFUSE, false);
	struct ev *e = calloc(n, sizeof(*e));
	struct thread_args *g = calloc(n, sizeof(*g));
	struct result x = { .rc = 0 };
	clock_t begin = clock();
	int rc = 0;

	header = "{\"world_size\":131072,\"pg_config\":[{\"pg_name\":\"0\",\"ranks\":[]}," LOWER
		 "]}";
	for (int rank = 0; rank < 2 && a && e && g; rank++) {
		for (size_t i = 0; i < n; i++) {
			e[i] = (struct ev){ .kind = PL_K_COLLECTIVE,
					    .name = "gloo:all_reduce",
					    .coll = "allreduce",
					    .seq = -1,
					    .peer = -1,
					    .ts = 1000000 * (pl_ns)(i + 1),
					    .dur = 1000 };
			g[i] = (struct thread_args){ 10 + 10 * (int64_t)(i % 2), "[]", 0, 0 };
		}
		rc |= feed_threads(a, rank, "host", rank ? "rank1" : "rank0", e, g, n, &x.err);
	}
	header = NULL;
	solve(a, &x);
	ok(!rc && !x.rc, "%zu collectives of a group of many ranks", n);
	ok(x.m.n_groups == 2 && x.m.group[0].n + x.m.group[1].n == (1 << 17) + 2,
	   "... each of the group of its thread");
	done(a, &x);
	free(e);
	free(g);
	return (double)(clock() - begin) / CLOCKS_PER_SEC;
}

static void check_cost(void)
{
	double few = seconds(40), many = seconds(2000);

	ok(many < 10 * few, "members are not visited for each event: %.3f s, 50 times as many %.3f",
	   few, many);
}

int main(void)
{
	struct job j = { .header = EVERY(WORLD "[" ALL "]}") };

	check_forms();
	check_unusable();

	j.own = "mine";
	check("the group that events name counts", &j, "mine:0,1,2,3", 0, NULL);
	j.own = NULL;
	j.header[2] = NULL;
	check("a file without a header, in a group of the others", &j, "0:0,1,2,3", 0, NULL);
	j.pairs = 1;
	j.disjoint = true;
	check("two groups where one is listed", &j, "inferred0:0,1? inferred1:2,3?", 0,
	      "there seem to be more");
	j = (struct job){ .header = EVERY(WORLD "[" ALL "]}") };
	j.header[1] = WORLD "[" LOWER "]}";
	check("files that contradict each other", &j, "inferred0:0,1,2,3?", 0,
	      "the file of rank 1 does not");

	j = (struct job){ .pairs = 2 };
	check("jitter parts a group: a doubt", &j, "inferred0:0,2? inferred1:1,3?", 2,
	      "hardly likelier");
	j.header[0] = j.header[1] = WORLD "[" ALL "," LOWER "]}";
	j.header[2] = j.header[3] = WORLD "[" ALL "," UPPER "]}";
	check("... but not where others are listed", &j, "inferred0:0,1,2,3?", 1,
	      "hardly likelier");
	j.pairs = 1;
	j.disjoint = true;
	check("a listed one is inferred as it is", &j, "inferred0:0,1? inferred1:2,3?", 0, NULL);
	j = (struct job){ .header = { WORLD "[" LOWER "]}", WORLD "[" LOWER "]}",
				      WORLD "[" UPPER "]}", WORLD "[" UPPER "]}" } };
	check("two groups, each listed", &j, "1:0,1 2:2,3", 0, NULL);
	check_left_out();
	check_threads();
	check_cost();
	return done_testing();
}
