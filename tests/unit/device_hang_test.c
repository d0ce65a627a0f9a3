/*
 * A device that never comes to what it was told, on one rank or on all at once: every rank ends
 * with PL_EIO that says whose it is, once its patience is over, and the memory in between is left
 * where it is.
 *
 * runner: waits, threads
 */
#include "device_fixture.h"

#include <sys/mman.h>

#include "../emu/fake_device.h"

#define RANKS	    3
#define TIMEOUT_NS  200000000
#define PATIENCE_NS 1000000000

struct verdict {
	int rc;
	double seconds;
	char msg[500];
};
struct trial {
	const char *transport;
	int victim; /* -1: all */
	unsigned before;
	struct verdict *verdict;
};

static int hang(struct pl_world_opts *o, void *arg)
{
	const struct trial *t = arg;
	struct verdict *v = &t->verdict[o->rank];
	struct pl_err e = { 0 };
	struct rank r;
	struct trip trip[6];
	unsigned n = PL_LEN(trip);
	double from;

	o->transport = t->transport;
	o->timeout_ns = TIMEOUT_NS;
	o->patience_ns = PATIENCE_NS;
	o->meet_ns = 5000000000;
	NEED(open_rank(o, &pl_backend_fake, &r, &e) == 0);
	for (unsigned i = 0; i < n; i++)
		NEED(prepare(&r, &trip[i], PL_OP_ALLREDUCE, 5000, true, i));
	for (unsigned i = 0; i < n; i++) {
		if (i == t->before && (t->victim < 0 || t->victim == o->rank))
			queue_put(&((struct fake *)r.ctx)->main, hang_item, NULL);
		load(&r, &trip[i]);
		NEED(pl_comm_world_begin(r.w, &trip[i].a, &trip[i].work, &e) == 0);
	}
	from = now_s();
	for (unsigned i = 0; i < n; i++) {
		int rc = pl_comm_work_wait(trip[i].work, &e);

		NEED(rc == 0 || i >= t->before);
		v->rc = v->rc < 0 ? v->rc : rc;
	}
	v->seconds = now_s() - from;
	snprintf(v->msg, sizeof(v->msg), "%.490s", e.msg);
	pl_comm_world_abort(r.w, "its device hangs");
	NEED(now_s() - from < v->seconds + 2);
	fflush(stdout);
	_exit(0); /* the device's queue never ends */
}

/* ---- in what nobody communicates ---- */

static struct verdict *own;

static void lost(void *began, const char *why)
{
	own->seconds = now_s() - *(double *)began;
	own->rc = PL_EIO;
	snprintf(own->msg, sizeof(own->msg), "%.490s", why);
	ualarm(300000, 0); /* until all have heard it; the world's thread may not wait here */
}

static void leave(int sig)
{
	(void)sig;
	_exit(0);
}

/* Who waits for the device does not come back. */
static int hang_alone(struct pl_world_opts *o, void *arg)
{
	const struct trial *t = arg;
	struct pl_err e = { 0 };
	struct rank r;
	struct trip trip;
	double began;

	signal(SIGALRM, leave);
	own = &t->verdict[o->rank];
	o->transport = t->transport;
	o->timeout_ns = TIMEOUT_NS;
	o->patience_ns = PATIENCE_NS;
	o->meet_ns = 5000000000;
	o->lost = lost;
	o->lost_arg = &began;
	NEED(open_rank(o, &pl_backend_fake, &r, &e) == 0);
	NEED(prepare(&r, &trip, PL_OP_ALLREDUCE, 5000, true, 1));
	load(&r, &trip);
	NEED(pl_comm_world_begin(r.w, &trip.a, &trip.work, &e) == 0);
	NEED(pl_comm_work_wait(trip.work, &e) == 0);
	NEED(pl_comm_world_settle(r.w, &e) == 0 && r.b->sync(r.ctx, &e) == 0);
	nap_ms(PATIENCE_NS / 1000000 + 300); /* a device that is idle is not late */
	NEED(pl_comm_world_do(r.w, &(struct pl_coll_args){ .op = PL_OP_BARRIER }, &e) == 0);
	if (t->victim < 0 || t->victim == o->rank)
		queue_put(&((struct fake *)r.ctx)->main, hang_item, NULL);
	began = now_s();
	NEED(pl_comm_world_settle(r.w, &e) == 0 && r.b->sync(r.ctx, &e) == 0);
	nap_ms(10000); /* until it is over */
	return 1;
}

static void test_alone(struct trial *t)
{
	for (int i = 0; i < 2; i++) {
		struct pl_world_opts o = { .meet = meeting(false) };
		bool fine = true, over;
		struct ranks r;

		t->transport = i ? "shm" : "tcp";
		t->victim = i ? 1 : -1;
		memset(t->verdict, 0, RANKS * sizeof(*t->verdict));
		r = start_ranks(RANKS, &o, hang_alone, t);
		over = end_ranks(&r, 20);
		for (int k = 0; k < RANKS; k++) {
			const struct verdict *v = &t->verdict[k];
			bool good = r.status[k] == 0 && v->rc == PL_EIO &&
				    strstr(v->msg, i ? "rank 1 waited" : " for its device") &&
				    v->seconds > 0.9 * PATIENCE_NS / 1e9 &&
				    v->seconds < PATIENCE_NS / 1e9 + 1 + r.held;

			fine &= good;
			if (!good)
				printf("# rank %d: %d after %.2f s, status %d: %s\n", k, v->rc,
				       v->seconds, r.status[k], v->msg);
		}
		ok(over && fine, "%s hangs in its own work: every rank says whose",
		   i ? "one device" : "every device");
	}
}

int main(void)
{
	static const char *const transport[] = { "tcp", "shm" };
	struct trial t = { .verdict = mmap(NULL, 65536, PROT_READ | PROT_WRITE,
					   MAP_SHARED | MAP_ANONYMOUS, -1, 0) };

	for (unsigned i = 0; i < 8; i++) {
		struct pl_world_opts o = { .meet = meeting(false) };
		bool said = true, quick = true, over;
		char name[100];
		struct ranks r;

		t.transport = transport[i % 2];
		t.victim = i / 2 % 2 ? 1 : -1;
		t.before = i / 4 ? 3 : 0;
		memset(t.verdict, 0, RANKS * sizeof(*t.verdict));
		r = start_ranks(RANKS, &o, hang, &t);
		over = end_ranks(&r, 20);
		for (int k = 0; k < RANKS; k++) {
			const struct verdict *v = &t.verdict[k];
			const char *rank = strstr(v->msg, "rank ");

			said &= r.status[k] == 0 && v->rc == PL_EIO && rank &&
				(t.victim < 0 ? strstr(v->msg, "for its device") != NULL
					      : !strncmp(rank, "rank 1 ", 7));
			quick &= v->seconds > 0.9 * PATIENCE_NS / 1e9 &&
				 v->seconds < PATIENCE_NS / 1e9 + 1 + r.held;
			if (!said || !quick)
				printf("# rank %d: %d after %.2f s, status %d: %s\n", k, v->rc,
				       v->seconds, r.status[k], v->msg);
		}
		snprintf(name, sizeof(name), "%s, %s, %s", t.transport,
			 t.victim < 0 ? "all devices hang" : "one device hangs",
			 t.before ? "in the middle" : "from the beginning");
		ok(over && said, "%s: every rank says whose", name);
		ok(quick, "... when its patience is over");
	}
	test_alone(&t);
	return done_testing();
}
