/*
 * Worlds whose operations a library carries: a library of this test's own, in memory that the ranks
 * had before they were forked. It sums well, and on demand fails, hangs or never ends what it
 * began. Every rank learns why within the deadlines, nothing hangs, abort and close are called as
 * promised.
 *
 * runner: waits, threads
 */
#include "comm_fixture.h"

#include <sys/mman.h>

#include "comm/internal.h"

#define RANKS	   3
#define MOST	   4096
#define TURNS	   8
#define TIMEOUT_NS 400000000
#define PART_PATIENCE_NS                                                                           \
	6000000000 /* of a world that is a part: more than a library has to end                    \
		    */

enum fault {
	NONE,
	FAIL_LOAD,
	OTHER_LIBRARY,
	FAIL_OPEN,
	HANG_OPEN,
	FAIL_BEGIN,
	FAIL_TEST,
	HANG_TEST,
	HANG_AND_HEED, /* until abort */
	HANG_AND_TALK, /* reports events */
	SLOW_ABORT,    /* after an error at a beginning */
	NEVER_ENDS,
	HANG_CLOSE,
	DIE,
	LATE, /* begins nothing any more */
	LEAVE,
};

struct report {
	int rc, closed;
	bool kept, told;
	char msg[600];
	double began, ended;
	_Atomic int aborts, closes, opens, begins, inside;
};
struct area { /* of all ranks */
	_Atomic uint64_t posted[RANKS], taken[RANKS];
	float data[RANKS][TURNS][MOST];
	struct report report[RANKS];
};
static struct area *area;

static struct trial {
	enum fault fault;
	int victim;
	uint64_t at; /* collective */
} trial;

#define LATE_BYTES 256
static uint8_t *late; /* what the library may write to when nobody calls it any more */

struct lib {
	struct pl_world *w;
	struct report *r;
	uint64_t begun;
	_Atomic bool stop;
};

/* ---- the library ---- */

static void hang(struct lib *l, bool heeds)
{
	while (!heeds || !atomic_load(&l->stop))
		nap_ms(5);
}

static bool is_now(const struct lib *l, enum fault fault, uint64_t seq)
{
	return trial.fault == fault && l->w->rank == trial.victim && seq == trial.at;
}

static int lib_load(struct pl_world *w, void **state, struct pl_ready *own, struct pl_err *err)
{
	struct lib *l = pl_calloc(1, sizeof(*l));

	l->w = w;
	l->r = &area->report[w->rank];
	*state = l;
	if (is_now(l, FAIL_LOAD, 0))
		return pl_fail(err, PL_EABSENT, "the library is not there");
	memset(own->id, 'a' + w->rank, sizeof(own->id));
	snprintf(own->text, sizeof(own->text), "version %d", is_now(l, OTHER_LIBRARY, 0));
	return 0;
}

static int lib_open(void *state, struct pl_err *err)
{
	struct lib *l = state;

	atomic_fetch_add(&l->r->opens, 1);
	l->r->told = l->w->library.first.id[0] == 'a' && l->w->library.first.id[127] == 'a';
	if (is_now(l, FAIL_OPEN, 0))
		return pl_fail(err, PL_EABSENT, "the library does not work");
	if (is_now(l, HANG_OPEN, 0))
		hang(l, false);
	return 0;
}

static int lib_begin(void *state, struct pl_work *k, struct pl_err *err)
{
	struct lib *l = state;
	uint64_t turn = l->begun;

	atomic_fetch_add(&l->r->begins, 1);
	if (is_now(l, FAIL_BEGIN, k->seq) || is_now(l, SLOW_ABORT, k->seq))
		return pl_fail(err, PL_EIO, "the library broke");
	if (k->seq != turn || k->a.count > MOST)
		return pl_fail(err, PL_EINTERNAL, "begun out of order");
	if (is_now(l, NEVER_ENDS, k->seq)) {
		late = k->temp = pl_malloc(LATE_BYTES);
		memset(late, 'x', LATE_BYTES);
	}
	/* room is made by those who read; the test leaves TURNS - 1 under way at most */
	l->begun++;
	if (k->a.count)
		memcpy(area->data[l->w->rank][turn % TURNS], k->a.src, k->a.count * sizeof(float));
	atomic_store(&area->posted[l->w->rank], turn + 1);
	return 0;
}

/* Reports messages for ever. */
static void talk(struct pl_work *k)
{
	for (;;) {
		struct pl_step s = { .kind = PL_STEP_SEND, .work = k };

		k->steps_left = 2;
		pl_comm_step_done(k->w, &s);
		nap_ms(10);
	}
}

static int lib_test(void *state, struct pl_work *k, struct pl_err *err)
{
	struct lib *l = state;
	float *d = k->a.dst;

	if (atomic_fetch_add(&l->r->inside, 1))
		return pl_fail(err, PL_EINTERNAL, "two at a time");
	atomic_store(&l->r->inside, 0);
	if (is_now(l, FAIL_TEST, k->seq))
		return pl_fail(err, PL_EIO, "the library broke");
	if (is_now(l, HANG_AND_TALK, k->seq))
		talk(k);
	if (is_now(l, HANG_TEST, k->seq) || is_now(l, HANG_AND_HEED, k->seq))
		hang(l, trial.fault == HANG_AND_HEED);
	if (trial.fault == NEVER_ENDS && k->seq == trial.at)
		return 0;
	for (int r = 0; r < l->w->size; r++)
		if (atomic_load(&area->posted[r]) <= k->seq)
			return 0;
	for (size_t i = 0; i < k->a.count; i++) {
		d[i] = 0;
		for (int r = 0; r < l->w->size; r++)
			d[i] += area->data[r][k->seq % TURNS][i];
	}
	return 1;
}

static void lib_abort(void *state)
{
	struct lib *l = state;

	atomic_fetch_add(&l->r->aborts, 1);
	atomic_store(&l->stop, true);
	if (trial.fault == SLOW_ABORT)
		nap_ms(TIMEOUT_NS / 1000000);
}

static void lib_close(void *state)
{
	struct lib *l = state;

	atomic_fetch_add(&l->r->closes, 1);
	if (is_now(l, HANG_CLOSE, 0))
		hang(l, false);
	pl_free(l);
}

static struct pl_comm_library library = { .name = "library",
					  .load = lib_load,
					  .open = lib_open,
					  .begin = lib_begin,
					  .test = lib_test,
					  .abort = lib_abort,
					  .close = lib_close };

/* ---- ranks ---- */

#define IN_PROGRESS 3

static int sum_some(struct pl_world *w, int turn, struct pl_err *err)
{
	static float buf[IN_PROGRESS][MOST];
	struct pl_work *k[IN_PROGRESS];
	int n = 0, rc = 0, rank = pl_comm_world_rank(w), size = pl_comm_world_size(w);

	for (; n < IN_PROGRESS && rc == 0; n++) {
		struct pl_coll_args a = { .op = PL_OP_ALLREDUCE,
					  .src = buf[n],
					  .dst = buf[n],
					  .count = (size_t)(1 + 97 * turn + n) % MOST };

		for (size_t i = 0; i < a.count; i++)
			buf[n][i] = (float)((i + (size_t)(rank + turn + n)) % 64);
		rc = pl_comm_world_begin(w, &a, &k[n], err);
		if (rc < 0)
			break;
	}
	for (int j = 0; j < n; j++) {
		int one = pl_comm_work_wait(k[j], err);

		rc = rc < 0 ? rc : one;
		for (size_t i = 0; one == 0 && i < (size_t)(1 + 97 * turn + j) % MOST; i++) {
			float want = 0;

			for (int r = 0; r < size; r++)
				want += (float)((i + (size_t)(r + turn + j)) % 64);
			if (buf[j][i] < want || buf[j][i] > want)
				rc = pl_fail(err, PL_EINTERNAL, "a wrong sum");
		}
	}
	return rc;
}

static _Atomic int in_callback, callbacks;

static void slow_event(void *arg, const struct pl_comm_event *e)
{
	(void)arg;
	if (e->op != PL_OP_SEND) /* the library's own words alone are slow */
		return;
	atomic_store(&in_callback, 1);
	nap_ms(1500);
	atomic_fetch_add(&callbacks, 1);
	atomic_store(&in_callback, 0);
}

/* The callback and its argument may go when the world has ended. */
static bool is_silent(void)
{
	int before = atomic_load(&callbacks);
	bool silent = !atomic_load(&in_callback);

	nap_ms(50);
	return silent && !atomic_load(&in_callback) && atomic_load(&callbacks) == before;
}

static int rank_main(struct pl_world_opts *o, void *arg)
{
	struct report *r = &area->report[o->rank];
	struct pl_err e = { 0 };
	struct pl_world *w = NULL;
	int turns = *(int *)arg;

	o->library = &library;
	if (trial.fault == HANG_AND_TALK)
		o->event = slow_event;
	o->timeout_ns = TIMEOUT_NS;
	o->patience_ns = o->of.size ? PART_PATIENCE_NS : 3 * (pl_ns)TIMEOUT_NS;
	o->meet_ns = 5000000000;
	r->began = now_s();
	r->rc = pl_comm_world_open(o, &w, &e);
	if (r->rc == 0)
		NEED(!strcmp(pl_comm_world_transport(w), "library"));
	for (int i = 0; i < turns && r->rc == 0; i++) {
		if (i == 5)
			r->began = now_s();
		if (i == 5 && o->rank == trial.victim && trial.fault == DIE)
			raise(SIGKILL);
		if (i == 5 && o->rank == trial.victim && trial.fault == LATE)
			nap_ms(4000);
		if (i == 5 && o->rank == trial.victim && trial.fault == LEAVE)
			break;
		r->rc = sum_some(w, i, &e);
		nap_ms(i % 4 == 3);
	}
	if (r->rc == 0) {
		r->rc = pl_comm_world_close(w, &e);
		r->closed = 1;
	} else {
		pl_comm_world_abort(w, "failed");
	}
	r->ended = now_s();
	if (trial.fault == HANG_AND_TALK)
		NEED(is_silent());
	r->kept = true;
	for (int i = 0; late && i < LATE_BYTES; i++)
		r->kept &= late[i]++ == 'x';
	snprintf(r->msg, sizeof(r->msg), "%.590s", e.msg);
	return 0;
}

/* ---- trials ---- */

static void start(enum fault fault, int victim, uint64_t at)
{
	memset((void *)area, 0, sizeof(*area));
	trial = (struct trial){ fault, victim, at };
}

static void all_well(int n)
{
	struct pl_world_opts o = { .meet = meeting(n == 2) };
	int turns = 60;
	bool counted = true, told = true;

	start(NONE, 0, 0);
	ok(run_ranks(n, &o, rank_main, &turns, 30), "%d ranks end", n);
	for (int r = 0; r < n; r++) {
		const struct report *p = &area->report[r];

		if (p->rc || p->opens != 1 || p->closes != 1 || p->aborts ||
		    p->begins != IN_PROGRESS * turns) {
			printf("# rank %d: %d (%s), %d opens, %d closes, %d aborts, %d begins\n", r,
			       p->rc, p->msg, p->opens, p->closes, p->aborts, p->begins);
			counted = false;
		}
		told &= p->told;
	}
	ok(counted, "... with right sums, opened and closed once");
	ok(told, "... and all know what rank 0 told");
}

/* All but a dead victim fail with `code` (the victim: own) within s seconds, and say text. */
static void fails(const char *what, int own, const char *text, double s)
{
	struct pl_world_opts o = { .meet = meeting(false) };
	int turns = 40;
	struct ranks ranks = start_ranks(RANKS, &o, rank_main, &turns);
	bool fine = end_ranks(&ranks, 20), said = true, quick = true, called = true;

	for (int r = 0; r < RANKS; r++) {
		const struct report *p = &area->report[r];
		bool victim = r == trial.victim;

		if (victim && (trial.fault == DIE || trial.fault == LEAVE))
			continue;
		fine &= p->rc == (victim ? own : PL_EIO) && ranks.status[r] == 0;
		said &= strstr(p->msg, text) != NULL;
		quick &= p->ended - p->began < s + ranks.held;
		called &=
			p->closes == 0 && p->aborts <= 1 && (p->aborts || trial.fault <= HANG_OPEN);
		if (!fine || !said || !quick || !called)
			printf("# rank %d: %d after %.2f s, status %d, %d aborts, %d closes: %s\n",
			       r, p->rc, p->ended - p->began, ranks.status[r], p->aborts, p->closes,
			       p->msg);
	}
	ok(fine, "%s: all others fail", what);
	ok(said, "... saying \"%s\"", text);
	ok(quick, "... within %.1f s", s + ranks.held);
	ok(called, "... and abort is called once where it is open, close never");
}

/* All ranks refuse at once, with the same words. */
static void missing(enum fault fault, const char *text)
{
	struct pl_world_opts o = { .meet = meeting(false) };
	int turns = 1;
	struct ranks ranks;
	bool fine;

	start(fault, 1, 0);
	ranks = start_ranks(RANKS, &o, rank_main, &turns);
	fine = end_ranks(&ranks, 20);
	for (int r = 0; r < RANKS; r++)
		fine &= area->report[r].rc == PL_EABSENT && !area->report[r].opens &&
			strstr(area->report[r].msg, text);
	ok(fine, "all say: %s (%s)", text, area->report[2].msg);
}

/* Its end hangs: this rank says so and goes, for the others all is over. */
static void hangs_at_end(int of, bool ends_with_all)
{
	struct pl_world_opts o = { .meet = meeting(false), .of.size = of };
	int turns = 3;
	struct ranks ranks;
	double took;

	library.ends_with_all = ends_with_all;
	start(HANG_CLOSE, 1, 0);
	ranks = start_ranks(RANKS, &o, rank_main, &turns);
	ok(end_ranks(&ranks, 20), "an end that hangs does not hang us");
	ok(area->report[1].rc == PL_EIO && strstr(area->report[1].msg, "from its end"),
	   "... but is told (%s)", area->report[1].msg);
	ok(area->report[0].closes == 1 && area->report[2].closes == 1, "... the others are closed");
	took = area->report[1].ended - area->report[1].began;
	if (of && ends_with_all)
		ok(took > 5.9, "... after the time of those outside the world (%.1f s)", took);
	else
		ok(took < 5.5 + ranks.held, "... soon (%.1f s)", took);
}

static int shaped(struct pl_world_opts *o, void *arg)
{
	static const struct pl_link_shape slow = { .from = -1, .to = -1, .bytes_per_ns = 1 };
	struct pl_err e = { 0 };
	struct pl_world *w;

	(void)arg;
	o->library = &library;
	o->shape = &slow;
	o->n_shapes = 1;
	NEED(pl_comm_world_open(o, &w, &e) == PL_EUSAGE);
	NEED(strstr(e.msg, "library"));
	return 0;
}

int main(void)
{
	struct pl_world_opts o = { .meet = meeting(false) };

	area = mmap(NULL, sizeof(*area), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	if (area == MAP_FAILED)
		return 1;
	for (int n = 1; n <= RANKS; n++)
		all_well(n);
	start(FAIL_OPEN, 1, 0);
	fails("a library that does not work", PL_EABSENT, "library does not work", 2);
	missing(FAIL_LOAD, "rank 1: transport library: the library is not there");
	missing(OTHER_LIBRARY, "rank 0 has version 0 and rank 1 has version 1");
	start(HANG_OPEN, 2, 0);
	fails("a start that hangs", PL_EIO, "rank 2 (its part), which lives but has not", 3);
	start(FAIL_BEGIN, 1, 17);
	fails("an error at a beginning", PL_EIO, "rank 1: all-reduce 17: the library broke", 2);
	start(SLOW_ABORT, 1, 17);
	fails("an abort that takes long", PL_EIO, "rank 1: all-reduce 17: the library broke", 3);
	start(FAIL_TEST, 0, 17);
	fails("an error later", PL_EIO, "rank 0: all-reduce 17: the library broke", 2);
	start(HANG_TEST, 1, 17);
	fails("a call that hangs", PL_EIO, "rank 1: library has not returned", 3);
	start(HANG_AND_HEED, 1, 17);
	fails("a call that hangs until abort", PL_EIO, "rank 1: library has not returned", 3);
	start(HANG_AND_TALK, 1, 17);
	fails("a call that hangs and reports events", PL_EIO, "rank 1: library has not returned",
	      4);
	start(NEVER_ENDS, 0, 17);
	fails("an operation that never ends", PL_EIO, "all-reduce 17", 3);
	ok(area->report[0].kept, "... and may write to its memory for ever");
	start(DIE, 2, 0);
	fails("a rank that dies", PL_EIO, "rank 2 is gone", 1);
	start(LATE, 1, 0);
	fails("a rank that does not come", PL_EIO, "rank 1 (its part), which lives but has not", 8);
	start(LEAVE, 1, 0);
	fails("a rank that leaves", PL_EIO, "rank 1 left before it", 3);
	hangs_at_end(0, false);
	hangs_at_end(RANKS + 1, false);
	hangs_at_end(RANKS + 1, true);
	library.ends_with_all = false;
	ok(run_ranks(2, &o, shaped, NULL, 5), "slow links are refused");
	return done_testing();
}
