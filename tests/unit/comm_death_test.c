/*
 * A rank that dies inside each operation, over each way that data take, at its first, in the middle
 * and at its last; ranks that are slow and not dead; worlds beside one another.
 *
 * runner: waits, threads
 */
#include "comm_fixture.h"

#include <sys/mman.h>

#define RANKS	   4
#define TIMEOUT_NS 1000000000
#define TURNS	   12
#define COUNT	   30000	     /* elements of an operation, of all ranks */
#define LARGE	   ((size_t)1 << 20) /* more than sockets hold for a peer that reads nothing */

struct report { /* of a rank, in memory of all */
	int rc, turn;
	double ended;
	char msg[500];
};
struct trial {
	const char *transport;
	size_t count;	    /* elements of who is late */
	bool hosts, shared; /* two hosts; memory of the world */
	uint8_t op;
	int victim, turn; /* dies inside that one */
	long after_ns;	  /* that it began it */
	double *died;
	struct report *report;
};

static struct pl_coll_args args_of(const struct trial *t, int rank, float *p)
{
	struct pl_coll_args a = { .op = t->op, .src = p, .dst = p, .count = COUNT };
	bool part = t->op == PL_OP_REDUCE_SCATTER || t->op == PL_OP_ALLGATHER ||
		    t->op == PL_OP_ALLTOALL;

	if (part)
		a.count /= RANKS;
	if (t->op == PL_OP_BARRIER)
		a.count = 0;
	if (t->op == PL_OP_REDUCE_SCATTER)
		a.dst = p + (size_t)rank * a.count;
	if (t->op == PL_OP_ALLGATHER)
		a.src = p + (size_t)rank * a.count;
	if (t->op == PL_OP_BROADCAST)
		a.root = 1;
	return a;
}

/* Messages go round; everything else is one operation. */
static int begin(struct pl_world *w, const struct trial *t, float *p, struct pl_work *k[2],
		 struct pl_err *err)
{
	struct pl_coll_args a = args_of(t, pl_comm_world_rank(w), p), b;
	int rc;

	k[1] = NULL;
	if (t->op != PL_OP_SEND)
		return pl_comm_world_begin(w, &a, &k[0], err);
	b = a;
	a.root = (pl_comm_world_rank(w) + 1) % RANKS;
	b.op = PL_OP_RECV;
	b.root = (pl_comm_world_rank(w) + RANKS - 1) % RANKS;
	b.dst = p + COUNT;
	rc = pl_comm_world_begin(w, &a, &k[0], err);
	return rc < 0 ? rc : pl_comm_world_begin(w, &b, &k[1], err);
}

static int one(struct pl_world *w, const struct trial *t, float *p, int turn, struct pl_err *err)
{
	bool dies = pl_comm_world_rank(w) == t->victim && turn == t->turn;
	struct timespec nap = { 0, t->after_ns };
	struct pl_work *k[2] = { NULL, NULL };
	int rc = begin(w, t, p, k, err);

	if (dies) {
		if (t->after_ns)
			nanosleep(&nap, NULL);
		*t->died = now_s();
		raise(SIGKILL);
	}
	for (int i = 0; i < 2; i++) {
		int own = k[i] ? pl_comm_work_wait(k[i], err) : 0;

		rc = rc < 0 ? rc : own;
	}
	return rc;
}

static int rank_main(struct pl_world_opts *o, void *arg)
{
	const struct trial *t = arg;
	struct report *r = &t->report[o->rank];
	struct pl_err e = { 0 };
	size_t bytes = 2 * COUNT * sizeof(float);
	struct pl_world *w;
	float *p;

	o->transport = t->transport;
	o->host = t->hosts ? (o->rank < 2 ? "a" : "b") : NULL;
	o->timeout_ns = TIMEOUT_NS;
	o->meet_ns = 10000000000;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	p = t->shared ? pl_comm_world_alloc(w, bytes, &e) : calloc(1, bytes);
	if (!p) /* a rank is that soon dead */
		r->rc = pl_comm_world_do(w, &(struct pl_coll_args){ .op = PL_OP_BARRIER }, &e);
	NEED(p || r->rc < 0);
	for (r->turn = 0; r->turn < TURNS && r->rc == 0; r->turn++)
		r->rc = one(w, t, p, r->turn, &e);
	if (r->rc == 0)
		r->rc = pl_comm_world_close(w, &e);
	else
		pl_comm_world_abort(w, "failed");
	r->ended = now_s();
	snprintf(r->msg, sizeof(r->msg), "%.490s", e.msg);
	return 0;
}

/* What the survivors say; false: not what they should. */
static bool judge(const struct trial *t, const struct ranks *ranks)
{
	char name[32];
	bool fine = true;

	snprintf(name, sizeof(name), "rank %d ", t->victim);
	for (int r = 0; r < RANKS; r++) {
		const struct report *p = &t->report[r];
		double after = p->ended - *t->died;

		if (r == t->victim ||
		    (p->rc == PL_EIO && strstr(p->msg, name) && ranks->status[r] == 0 &&
		     after < 2 * TIMEOUT_NS / 1e9 + ranks->held))
			continue;
		printf("# %s%s%s, %s: rank %d dies in turn %d: rank %d: %d in turn %d after %.2f "
		       "s, status %d: %s\n",
		       t->transport, t->hosts ? ", two hosts" : "",
		       t->shared ? ", memory of the world" : "", pl_comm_operation_name(t->op),
		       t->victim, t->turn, r, p->rc, p->turn, after, ranks->status[r], p->msg);
		fine = false;
	}
	return fine;
}

static void test_deaths(struct trial *t)
{
	static const struct {
		const char *transport, *what;
		bool hosts, shared;
	} setup[] = {
		{ "tcp", "TCP", false, false },
		{ "shm", "rings", false, false },
		{ "shm", "shared memory", false, true },
		{ "auto", "two hosts", true, true },
	};
	static const int turn[] = { 0, TURNS / 2, TURNS - 1 };
	unsigned n = 0;

	for (size_t i = 0; i < PL_LEN(setup); i++) {
		for (t->op = 0; t->op < PL_OP_COUNT_; t->op++) {
			bool fine = true;

			if (t->op == PL_OP_RECV)
				continue; /* with the send */
			for (int j = 0; j < 3; j++, n++) {
				struct pl_world_opts o = { .meet = meeting(false) };
				struct ranks r;

				t->transport = setup[i].transport;
				t->hosts = setup[i].hosts;
				t->shared = setup[i].shared;
				t->turn = turn[j];
				t->victim = (int)(n % RANKS);
				t->after_ns = n / RANKS % 3 * 60000;
				memset(t->report, 0, RANKS * sizeof(*t->report));
				r = start_ranks(RANKS, &o, rank_main, t);
				fine &= end_ranks(&r, 20);
				fine &= judge(t, &r);
			}
			ok(fine, "%s, %s: whoever dies in it is named, soon", setup[i].what,
			   pl_comm_operation_name(t->op));
		}
	}
}

/* ---- alive ---- */

/* One rank after the other does nothing for the world, for several timeouts. */
static int slow(struct pl_world_opts *o, void *arg)
{
	const struct trial *t = arg;
	struct pl_err e = { 0 };
	static float v[LARGE];
	struct pl_world *w;
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = t->count, .src = v, .dst = v };

	o->transport = t->transport;
	o->host = t->hosts ? (o->rank < 2 ? "a" : "b") : NULL;
	o->timeout_ns = 200000000;
	o->heartbeat_ns = 20000000;
	o->meet_ns = 10000000000;
	NEED(pl_comm_world_open(o, &w, &e) == 0);
	for (int i = 0; i < RANKS; i++) {
		double until = now_s() + (i == o->rank ? 0.6 : 0);

		for (size_t j = 0; j < t->count; j++)
			v[j] = (float)o->rank;
		while (now_s() < until)
			nap_ms(i % 2 ? 1 : 200); /* at work, or asleep */
		NEED(pl_comm_world_do(w, &a, &e) == 0);
		for (size_t j = 0; j < t->count; j++)
			NEED(v[j] == RANKS * (RANKS - 1) / 2);
	}
	NEED(pl_comm_world_close(w, &e) == 0);
	return 0;
}

/* Two worlds of the same ranks; rank 2 gives one up, the other goes on. */
static int two(struct pl_world_opts *o, void *arg)
{
	const char *const *meet = arg;
	struct pl_err e = { 0 };
	struct pl_world *w[2];
	struct pl_work *k[2];
	float v[2][1000];
	struct pl_coll_args a = { .op = PL_OP_ALLREDUCE, .count = 1000 };

	o->timeout_ns = TIMEOUT_NS;
	o->meet_ns = 10000000000; /* a busy machine starts ranks late */
	for (int i = 0; i < 2; i++) {
		o->meet = meet[i];
		o->transport = i ? "tcp" : "shm";
		NEED(pl_comm_world_open(o, &w[i], &e) == 0);
	}
	for (int turn = 0; turn < 50; turn++)
		for (int i = 0; i < 2; i++) {
			int x = (i + turn) % 2;

			for (int j = 0; j < 1000; j++)
				v[x][j] = (float)(x + 1);
			a.src = a.dst = v[x];
			NEED(pl_comm_world_begin(w[x], &a, &k[x], &e) == 0);
			if (!i)
				continue;
			NEED(pl_comm_work_wait(k[0], &e) == 0 && pl_comm_work_wait(k[1], &e) == 0);
			for (int j = 0; j < 1000; j++)
				NEED(v[0][j] == (float)o->size && v[1][j] == (float)(2 * o->size));
		}
	/* nobody is in the first one any more */
	NEED(pl_comm_world_do(w[1], &(struct pl_coll_args){ .op = PL_OP_BARRIER }, &e) == 0);
	a.src = a.dst = v[0];
	if (o->rank == 2) {
		pl_comm_world_abort(w[0], "enough of this one");
	} else {
		NEED(pl_comm_world_do(w[0], &a, &e) == PL_EIO && strstr(e.msg, "rank 2 gave up"));
		pl_comm_world_abort(w[0], "it is lost");
	}
	e.code = 0;
	for (int turn = 0; turn < 50; turn++) {
		a.src = a.dst = v[1];
		NEED(pl_comm_world_do(w[1], &a, &e) == 0);
	}
	NEED(pl_comm_world_close(w[1], &e) == 0);
	return 0;
}

static void test_alive(struct trial *t)
{
	static const struct {
		const char *transport;
		size_t count;
	} late[] = {
		{ "tcp", 1 }, { "shm", 1 }, { "auto", 1 }, { "tcp", LARGE }, { "auto", LARGE },
	};
	struct pl_world_opts o = { 0 };
	char at[2][600];
	const char *meet[2] = { at[0], at[1] };

	for (size_t i = 0; i < PL_LEN(late); i++) {
		o.meet = meeting(false);
		t->transport = late[i].transport;
		t->count = late[i].count;
		t->hosts = !strcmp(late[i].transport, "auto");
		ok(run_ranks(RANKS, &o, slow, t, 20),
		   "%s, %zu elements: who is late for three timeouts is not dead",
		   late[i].transport, late[i].count);
	}
	for (int i = 0; i < 2; i++)
		snprintf(at[i], sizeof(at[i]), "%s", meeting(false));
	ok(run_ranks(3, &o, two, meet, 20), "of two worlds one fails, the other does not");
}

int main(void)
{
	uint8_t *m = mmap(NULL, 65536, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	struct trial t = { .died = (double *)(void *)m,
			   .report = (struct report *)(void *)(m + 64) };

	signal(SIGPIPE, SIG_IGN);
	test_alive(&t);
	test_deaths(&t);
	return done_testing();
}
