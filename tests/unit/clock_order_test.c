/*
 * One recorded group on two streams: each stream has its order, but which of the two is ahead
 * chance decides on each rank. Then a group that nobody recorded, on two service threads that take
 * what one thread issues. The truth is known, so every match is looked at.
 */
#include <stdlib.h>

#include "clock_fixture.h"

#define RANKS 4
#define EACH  40 /* collectives of a stream */
#define ALL   (2 * EACH)
#define AT    17 /* where something is wrong */

enum numbers { NONE, SHARED, OF_STREAM };
struct job {
	const char *name[2]; /* of the collectives of each stream */
	int64_t bytes[2];
	enum numbers numbers;
	bool third;   /* the last rank divides the second stream between two */
	bool other;   /* rank 1 calls something else at AT of the second stream */
	bool missing; /* rank 2 has nothing there */
	bool swapped; /* all in one order, but the last rank numbers its streams the other way */
};

static uint64_t rng;
static int truth[RANKS][ALL]; /* which collective each event is */

static int64_t draw(int64_t n)
{
	return (int64_t)(pl_rng_next(&rng) % (uint64_t)n);
}

PL_COMPARATOR(by_start, struct ev, ts);

/* Ends of a collective are those of all ranks but for jitter; starts, and with them the order of
 * the streams, are the rank's own. `seq` carries the truth until the events are sorted. */
static size_t make_rank(const struct job *j, int rank, const pl_ns end[2][EACH], struct ev *e)
{
	size_t n = 0;

	for (int s = 0; s < 2; s++)
		for (int i = 0; i < EACH; i++) {
			pl_ns stop = end[s][i] + draw(8000);
			pl_ns dur = 200000 + (j->swapped ? 0 : draw(6000000));
			bool is_swapped = j->swapped && rank == RANKS - 1;
			bool odd = s && i == AT;

			if (odd && j->missing && rank == 2)
				continue;
			e[n++] = (struct ev){ .kind = PL_K_COLLECTIVE,
					      .name = j->name[s],
					      .coll = j->name[s],
					      .group = "shards",
					      .stream = 20 + 8 * (is_swapped ? !s : s),
					      .seq = s * EACH + i,
					      .peer = -1,
					      .ts = stop - dur,
					      .dur = dur,
					      .bytes = j->bytes[s] };
			if (odd && j->other && rank == 1)
				e[n - 1].name = e[n - 1].coll = "broadcast";
			if (s && i % 2 && j->third && rank == RANKS - 1)
				e[n - 1].stream = 36;
		}
	qsort(e, n, sizeof(*e), by_start);
	for (size_t i = 0; i < n; i++) {
		truth[rank][i] = (int)e[i].seq;
		e[i].seq = j->numbers == SHARED ? e[i].seq
			   : j->numbers == NONE ? -1
						: e[i].seq % EACH;
		e[i].ts += rank * 55555555;
	}
	return n;
}

static void run_job(const struct job *j, uint64_t seed, struct pl_align **a, struct result *x)
{
	struct ev e[ALL];
	pl_ns end[2][EACH];
	int rc = 0;

	rng = seed;
	for (int s = 0; s < 2; s++)
		for (int i = 0; i < EACH; i++)
			end[s][i] = 10000000 * (int64_t)(i + 1) +
				    (j->swapped ? 5000000 * s : draw(3000000));
	*a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	for (int r = 0; r < RANKS; r++)
		rc |= feed(*a, r, NULL, "", e, make_rank(j, r, (const pl_ns(*)[EACH])end, e), NULL);
	solve(*a, x);
	if (rc < 0 || x->rc < 0)
		ok(false, "seed %d: solved", (int)seed);
}

static bool is_right(const struct result *x, const struct pl_match *k)
{
	const struct pl_member *v = &x->m.member[k->first];

	for (uint32_t i = 1; i < k->n; i++)
		if (truth[v[i].segment][v[i].event] != truth[v[0].segment][v[0].event])
			return false;
	return true;
}

/* Many draws: complete matches of each, none of them wrong, one group that is followed so. */
static void check_job(const char *what, const struct job *j, enum pl_matched_by by, int complete)
{
	int wrong = 0, full_least = ALL, full_most = 0, otherwise = 0, silent = 0, misled = 0;
	const char *place = j->other ? "rank 1 has" : "rank 2 has nothing";

	for (uint64_t seed = 1; seed <= 12; seed++) {
		struct pl_align *a;
		struct result x;
		int full = 0;

		run_job(j, seed, &a, &x);
		for (uint32_t i = 0; i < x.m.n_matches; i++) {
			wrong += !is_right(&x, &x.m.match[i]);
			full += x.m.match[i].n == RANKS;
		}
		full_least = full < full_least ? full : full_least;
		full_most = full > full_most ? full : full_most;
		otherwise += x.m.n_groups != 1 || x.r.group[0].by != by ||
			     x.r.reordered != (by != PL_BY_NUMBER && by != PL_BY_ORDER);
		if (j->other || j->missing) {
			silent += x.r.divergences == 0;
			misled += strstr(said, place) == NULL;
		} else {
			misled += said[0] != '\0' || x.r.divergences != 0;
		}
		done(a, &x);
	}
	ok(wrong == 0, "%s: no match joins different collectives", what);
	ok(full_least == complete && full_most == complete, "%s: %d to %d of %d are complete", what,
	   full_least, full_most, complete);
	ok(otherwise == 0, "%s: the report says by what", what);
	ok(silent == 0, "%s: no divergence is passed over", what);
	ok(misled == 0, "%s: the first divergence is named, and only a real one: %s", what, said);
}

/* ---- service threads ---------------------------------------------------------------------------
 */

#define PAIRS 50 /* of collectives that are issued back to back */
#define WORKS (2 * PAIRS)

enum known { BY_IDS, BY_SIZES, BY_KIND };
struct work {
	int kind;
	pl_ns start, end;
};
static int issued[RANKS][2 * WORKS]; /* which collective each event is, -1 for what issues */
static const char *const work_name[] = { "gloo:broadcast", "gloo:broadcast", "gloo:all_reduce" };
#define ONES "[[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1], "
/* DIMS_MAX: sizes that differ behind many others */
static const char *const work_dims[] = { ONES "[800]]", ONES "[7]]", ONES "[800]]" };
static const int64_t work_bytes[] = { 3200, 56, 3200 };
static const char *const op_name[] = { "c10d::broadcast_", "c10d::broadcast_", "c10d::allreduce_" };
static const char *const op_dims[] = { "[" ONES "[800]], [], []]", "[" ONES "[7]], [], []]",
				       "[" ONES "[800]], [], []]" };

static void swap_starts(struct ev *x, struct ev *y)
{
	pl_ns t = x->ts;

	x->ts = y->ts;
	y->ts = t;
}

/* Two are taken from the queue at once: which of them starts first, and on which thread, is chance.
 * Those that are alike start in order unless identifiers tell them apart. */
static void make_pair(const struct work *w, int k, enum known by, struct ev *e,
		      struct thread_args *g, int *what)
{
	bool first = draw(2), alike = w[0].kind == w[1].kind;

	if (by == BY_KIND)
		alike = (w[0].kind == 2) == (w[1].kind == 2);
	for (int i = 0; i < 2; i++) {
		int kind = w[i].kind;
		pl_ns begin = w[i].start + 50000 + 1000 * i;
		int64_t rf = by == BY_IDS ? 100 + 7 * (2 * k + i) : 0; /* 0: not counted */

		what[i] = -1;
		what[2 + i] = 2 * k + i;
		e[i] = (struct ev){ .kind = PL_K_HOST_OP,
				    .name = op_name[kind],
				    .seq = -1,
				    .peer = -1,
				    .ts = w[i].start + 500 * i,
				    .dur = 400 };
		g[i] = (struct thread_args){ 7, by == BY_KIND ? "[[], [], []]" : op_dims[kind], rf,
					     0 };
		e[2 + i] = (struct ev){ .kind = PL_K_COLLECTIVE,
					.name = work_name[kind],
					.coll = kind == 2 ? "allreduce" : "broadcast",
					.seq = -1,
					.peer = -1,
					.ts = begin,
					.dur = 0,
					.bytes = work_bytes[kind] };
		g[2 + i] = (struct thread_args){ 8 + (first == (i == 0)), work_dims[kind],
						 rf ? rf + 1 : 0, 0 };
	}
	if (draw(2) && (by == BY_IDS || !alike))
		swap_starts(&e[2], &e[3]);
	for (int i = 0; i < 2; i++)
		e[2 + i].dur = w[i].end + draw(4000) - e[2 + i].ts;
}

static void run_works(enum known by, uint64_t seed, struct pl_align **a, struct result *x)
{
	static struct ev e[2 * WORKS];
	static struct thread_args g[2 * WORKS];
	struct work all[WORKS];
	int rc = 0;

	rng = seed;
	for (int i = 0; i < WORKS; i++)
		all[i] = (struct work){ .kind = (int)draw(3),
					.end = 2000000 * (int64_t)(i / 2 + 1) + draw(300000) };
	*a = new_align(PL_CLOCK_AUTO, PL_DUP_REFUSE, false);
	for (int r = 0; r < RANKS; r++) {
		for (int k = 0; k < PAIRS; k++) {
			struct work *w = all + (size_t)2 * k;

			w[0].start = w[1].start =
				2000000 * (int64_t)(k + 1) - 300000 - draw(900000);
			make_pair(w, k, by, e + (size_t)4 * k, g + (size_t)4 * k,
				  issued[r] + (size_t)4 * k);
		}
		for (int i = 0; i < 2 * WORKS; i++)
			e[i].ts += r * 55555555;
		rc |= feed_threads(*a, r, NULL, "", e, g, 2 * WORKS, NULL);
	}
	solve(*a, x);
	if (rc < 0 || x->rc < 0)
		ok(false, "seed %d: solved", (int)seed);
}

static void check_works(const char *what, enum known by)
{
	int wrong = 0, full = 0, others = 0, seeds = 12;

	for (int seed = 1; seed <= seeds; seed++) {
		struct pl_align *a;
		struct result x;

		run_works(by, (uint64_t)seed, &a, &x);
		for (uint32_t i = 0; i < x.m.n_matches; i++) {
			const struct pl_match *k = &x.m.match[i];
			const struct pl_member *v = &x.m.member[k->first];

			full += k->n == RANKS;
			for (uint32_t m = 1; m < k->n; m++)
				wrong += issued[v[m].segment][v[m].event] !=
					 issued[v[0].segment][v[0].event];
		}
		others += x.m.n_groups != 1 || x.r.divergences || x.r.doubtful ||
			  x.r.unmatched_collectives;
		done(a, &x);
	}
	ok(wrong == 0, "%s: %d members of another collective", what, wrong);
	ok(full == seeds * WORKS, "%s: %d of %d are complete", what, full, seeds * WORKS);
	ok(others == 0, "%s: one group, nothing doubtful, nothing said: %s", what, said);
}

/* ---- ends that are noticed late ----------------------------------------------------------------
 */

#define LATE_N 120

struct late {
	const char *what;
	int often;   /* in a thousand ends: noticed 0.1 to 2 ms late */
	int lasting; /* so many in a row */
	int missing; /* elements in a row */
};

/* A collective ends for all soon after the last has begun, but a rank on a busy processor may
 * notice that late, and begin the next one then. They come in bursts, all alike. */
static void make_late(const struct late *l, struct ev e[RANKS][LATE_N], size_t *n)
{
	pl_ns t = 0, free_at[RANKS] = { 0 };
	int held[RANKS] = { 0 };

	memset(n, 0, RANKS * sizeof(*n));
	for (int i = 0; i < LATE_N; i++) {
		pl_ns begin[RANKS], go = 0;

		t += i % 8 ? 1000000 + draw(400000) : 18000000 + draw(4000000);
		for (int r = 0; r < RANKS; r++) {
			begin[r] = pl_max_i64(t + draw(300000), free_at[r] + 2000);
			go = pl_max_i64(go, begin[r]);
		}
		go += 200000 + draw(100000);
		for (int r = 0; r < RANKS; r++) {
			if (held[r] || draw(1000) < l->often)
				held[r] = (held[r] ? held[r] : l->lasting) - 1;
			else
				held[r] = -1;
			free_at[r] = go + (held[r] < 0 ? draw(50000) : 100000 + draw(1900000));
			held[r] = held[r] < 0 ? 0 : held[r];
			if (r == 2 && i >= LATE_N / 2 && i < LATE_N / 2 + l->missing)
				continue;
			e[r][n[r]++] = (struct ev){ .kind = PL_K_COLLECTIVE,
						    .name = "gloo:all_reduce",
						    .coll = "allreduce",
						    .group = "0",
						    .stream = 7,
						    .seq = -1,
						    .peer = -1,
						    .bytes = 4096,
						    .ts = begin[r],
						    .dur = free_at[r] - begin[r] };
		}
	}
}

static void check_late(const struct late *l)
{
	static struct ev e[RANKS][LATE_N];
	int wrong = 0;

	for (int seed = 1; seed <= 20; seed++) {
		struct pl_align *a = new_align(PL_CLOCK_ONE, PL_DUP_REFUSE, false);
		struct result x = { 0 };
		size_t n[RANKS];

		rng = (uint64_t)seed;
		make_late(l, e, n);
		for (int r = 0; r < RANKS && a; r++) {
			char file[16];

			snprintf(file, sizeof(file), "rank%d", r);
			wrong += feed(a, r, "host", file, e[r], n[r], &x.err) < 0;
		}
		solve(a, &x);
		wrong += x.rc < 0 || x.r.divergences != (l->missing > 0) ||
			 x.r.missing_matches != (uint64_t)l->missing;
		done(a, &x);
	}
	is_i64(wrong, 0, l->what);
}

int main(void)
{
	static const struct late late[] = {
		{ "ends that are noticed late now and then are no difference", 50, 1, 0 },
		{ "... nor several of a rank in a row", 50, 4, 0 },
		{ "... nor where many are late", 400, 4, 0 },
		{ "among ends that are noticed soon, a missing one shows", 10, 1, 1 },
		{ "SHIFT_MAX: ... and so do three in a row", 0, 1, 3 },
	};
	static const struct job shards = { .name = { "allgather", "reduce_scatter" },
					   .bytes = { 1 << 20, 1 << 20 } };
	struct job j = shards;

	check_job("two kinds", &j, PL_BY_STREAMS, ALL);
	j.numbers = SHARED;
	check_job("two kinds, numbered", &j, PL_BY_NUMBER, ALL);
	j.numbers = OF_STREAM;
	check_job("two kinds, numbered by stream", &j, PL_BY_NUMBER, ALL);
	j.name[1] = j.name[0];
	check_job("one kind, numbered by stream", &j, PL_BY_NUMBER, ALL);
	j.numbers = NONE;
	check_job("one kind, one size", &j, PL_BY_STREAMS, ALL);
	j.bytes[1] = 1 << 10;
	check_job("one kind, two sizes", &j, PL_BY_STREAMS, ALL);
	j = shards;
	j.third = true;
	check_job("streams that differ", &j, PL_BY_KINDS, ALL);
	j = shards;
	j.other = true;
	check_job("another collective", &j, PL_BY_STREAMS, ALL - 1);
	j.third = true;
	check_job("another collective, streams that differ", &j, PL_BY_KINDS, ALL - 1);
	j = shards;
	j.missing = true;
	check_job("one missing", &j, PL_BY_STREAMS, ALL - 1);
	j.third = true;
	check_job("one missing, streams that differ", &j, PL_BY_KINDS, ALL - 1);
	j = shards;
	j.name[1] = j.name[0];
	j.swapped = true;
	check_job("MUCH_TIGHTER: streams that are numbered otherwise", &j, PL_BY_ORDER, ALL);
	check_works("service threads, identifiers", BY_IDS);
	check_works("service threads, sizes of what issues", BY_SIZES);
	check_works("service threads, kinds of what issues", BY_KIND);
	for (size_t i = 0; i < PL_LEN(late); i++)
		check_late(&late[i]);
	return done_testing();
}
