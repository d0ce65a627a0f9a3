/*
 * The recorder: what several threads record is in the trace, whole; names, tracks, lost events.
 *
 * runner: threads
 */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/rec.h"
#include "record_fixture.h"
#include "tap.h"

#define THREADS 4
#define EVENTS	20000

struct thread {
	pthread_t id;
	struct pl_recorder *r;
	pl_id track, name;
	int number;
};

static void *record(void *arg)
{
	struct thread *t = arg;

	for (int i = 0; i < EVENTS; i++) {
		struct pl_rec_event e =
			pl_rec_event(t->track, PL_K_HOST_OP, t->name, pl_now_ns(), pl_now_ns());

		e.step = i;
		e.bytes = t->number;
		pl_rec(t->r, &e);
		if (i % 1000 == 0)
			usleep(40000); /* this asks for no lost event: the coder, which is slow
					* under a sanitizer, must get its turn */
	}
	return NULL;
}

static void test_threads(const char *path)
{
	const struct pl_rec_opts o = {
		.path = path, .rank = 3, .size = 4, .host = "box", .level = 1
	};
	struct thread v[THREADS];
	struct pl_err err = { 0 };
	struct pl_recorder *r;
	struct pl_trace t;
	uint64_t lost = 1;
	int64_t sum[THREADS] = { 0 };

	ok(pl_rec_open(&o, &r, &err) == 0, "opens: %s", err.msg);
	for (int i = 0; i < THREADS; i++) {
		v[i] = (struct thread){ .r = r,
					.track = pl_rec_track(r, PL_T_THREAD, i ? "other" : "main"),
					.name = pl_rec_name(r, "op"),
					.number = i };
		pthread_create(&v[i].id, NULL, record, &v[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(v[i].id, NULL);
	ok(access(path, F_OK) != 0, "nothing under the name while it runs");
	ok(pl_rec_close(r, &lost, &err) == 0 && lost == 0, "closes, nothing lost: %s", err.msg);
	ok(load(path, &t, &err) == 0 && t.n_segs == 1, "reads back: %s", err.msg);
	is_i64((long long)t.seg[0]->n, THREADS * EVENTS, "all are there");
	for (uint64_t i = 0; i < t.seg[0]->n; i++)
		sum[t.seg[0]->bytes[i]] += t.seg[0]->step[i];
	for (int i = 0; i < THREADS; i++)
		is_i64(sum[i], (int64_t)EVENTS * (EVENTS - 1) / 2,
		       "each step of each thread, once");
	ok(t.seg[0]->seg.track[0].rank == 3 &&
		   !strcmp(pl_intern_get(&t.seg[0]->seg.str, t.seg[0]->seg.track[0].host), "box"),
	   "rank and host of a track");
	pl_trace_fini(&t);
}

static void test_columns(const char *path)
{
	const struct pl_rec_opts o = { .path = path, .rank = 0, .size = 1, .host = "box" };
	struct pl_err err = { 0 };
	struct pl_recorder *r;
	struct pl_rec_event e;
	struct pl_trace t;
	pl_id link;

	ok(pl_rec_open(&o, &r, &err) == 0, "another one in the same thread: %s", err.msg);
	link = pl_rec_track(r, PL_T_LINK, "channel 0");
	e = pl_rec_event(link, PL_K_SEND, pl_rec_name(r, "send"), 1000, 5000);
	e.seq = 7;
	e.peer = 1;
	e.chunk = 2;
	e.channel = 0;
	e.group = pl_rec_name(r, "world");
	pl_rec(r, &e);
	e.kind = PL_K_COLLECTIVE;
	e.coll = pl_rec_name(r, "allreduce");
	pl_rec(r, &e);
	ok(pl_rec_close(r, NULL, &err) == 0 && load(path, &t, &err) == 0, "writes: %s", err.msg);
	ok(t.seg[0]->of[0] == 7 && t.seg[0]->seq[0] == INT64_MIN,
	   "the number of a message is that of its collective");
	ok(t.seg[0]->seq[1] == 7 && t.seg[0]->of[1] == INT64_MIN, "a collective has its own");
	ok(t.seg[0]->peer[0] == 1 && t.seg[0]->chunk[0] == 2 && t.seg[0]->channel[0] == 0,
	   "peer, chunk, channel");
	is_i64(t.seg[0]->dur[0], 4000, "duration");
	is_i64(t.seg[0]->ts[0] + t.seg[0]->seg.base_ns, 1000, "time, with the base added");
	pl_trace_fini(&t);
}

static void test_failures(const char *path)
{
	struct pl_rec_opts o = { .path = "/dev/full", .size = 1, .host = "box" };
	struct pl_err err = { 0 };
	struct pl_recorder *r;
	struct pl_rec_event e;
	pl_id track, name;

	unlink(path);
	ok(pl_rec_open(&o, &r, &err) == 0, "a full disk is no matter at first: %s", err.msg);
	track = pl_rec_track(r, PL_T_THREAD, "main");
	name = pl_rec_name(r, "op");
	for (int i = 0; i < 3 * EVENTS; i++) {
		e = pl_rec_event(track, PL_K_HOST_OP, name, i, i + 1);
		pl_rec(r, &e);
	}
	ok(pl_rec_close(r, NULL, &err) == PL_EIO && strstr(err.msg, "full"),
	   "it is said at the end: %s", err.msg);
	o.path = "/nowhere/at/all";
	err.code = 0;
	ok(pl_rec_open(&o, &r, &err) == PL_EIO && !r, "a folder that is not there: %s", err.msg);
	o.path = path;
	err.code = 0;
	ok(pl_rec_open(&o, &r, &err) == 0, "opens: %s", err.msg);
	pl_rec_abort(r);
	ok(access(path, F_OK) != 0, "an aborted one leaves nothing");
}

/* ---- inside another program ------------------------------------------------------------------ */

static void put_some(struct pl_recorder *r, int n)
{
	pl_id track = pl_rec_thread(r, 7, NULL), name = pl_rec_name(r, "op");

	for (int i = 0; i < n; i++) {
		struct pl_rec_event e =
			pl_rec_event(track, PL_K_HOST_OP, name, pl_now_ns(), pl_now_ns());

		pl_rec(r, &e);
	}
}

static long count_of(const char *path, bool salvage, char *lost, size_t size)
{
	const struct pl_trace_reader_opts o = { .salvage = salvage };
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open(path, &err);
	struct pl_trace t = { 0 };
	int rc = in ? pl_trace_load(in, &o, &t, &err) : -1;
	long n = rc < 0 || t.n_segs != 1 ? -1 : (long)t.seg[0]->n;
	const char *meta = n < 0 ? NULL : pl_trace_segment_meta_get(&t.seg[0]->seg, PL_REC_LOST);

	snprintf(lost, size, "%s", meta ? meta : "");
	pl_in_close(in);
	if (rc >= 0)
		pl_trace_fini(&t);
	return n;
}

static void test_killed(const char *path)
{
	const struct pl_rec_opts o = {
		.path = path, .rank = 1, .host = "box", .flush_ns = 1000000000
	};
	char lost[32];
	pid_t pid = fork();
	int status;

	if (pid == 0) {
		struct pl_err err = { 0 };
		struct pl_recorder *r;

		if (pl_rec_open(&o, &r, &err) == 0) {
			put_some(r, 10);
			pl_rec_flush(r);
			put_some(r, 5);
			kill(getpid(), SIGKILL);
		}
		_exit(1);
	}
	waitpid(pid, &status, 0);
	ok(WIFSIGNALED(status), "a process is killed while it records");
	is_i64(count_of(path, false, lost, sizeof(lost)), -1, "its file has no end");
	ok(count_of(path, true, lost, sizeof(lost)) >= 10, "what was flushed can be salvaged");
	unlink(path);
}

static void test_forked(const char *path)
{
	const struct pl_rec_opts o = {
		.path = path, .rank = 1, .host = "box", .flush_ns = 1000000000
	};
	struct pl_err err = { 0 }, again = { 0 };
	struct pl_recorder *r, *other;
	char lost[32];
	int status;
	pid_t pid;

	ok(pl_rec_open(&o, &r, &err) == 0, "opens: %s", err.msg);
	ok(pl_rec_open(&o, &other, &again) == PL_EIO && again.sys == EEXIST,
	   "another one of that name is refused: %s", again.msg);
	put_some(r, 10);
	pid = fork();
	if (pid == 0) {
		put_some(r, 1000);
		pl_rec_put(r, &(struct pl_rec_event){ .track = 0 }, NULL);
		pl_rec_flush(r);
		_exit(pl_rec_close(r, NULL, &err) == 0 ? 0 : 1);
	}
	waitpid(pid, &status, 0);
	is_i64(status, 0, "a child records nothing, and ends");
	put_some(r, 10);
	pl_rec_lost(r, 3);
	ok(pl_rec_close(r, NULL, &err) == 0, "closes: %s", err.msg);
	put_some(r, 10);
	is_i64(count_of(path, false, lost, sizeof(lost)), 20,
	       "the parent's file has its own events");
	is_str(lost, "3", "and how many were lost");
	unlink(path);
}

static void *one_event(void *arg)
{
	put_some(arg, 1);
	return NULL;
}

/* There are 64 rings. */
static void test_many_threads(const char *path)
{
	const struct pl_rec_opts o = { .path = path, .size = 1, .host = "box" };
	struct pl_err err = { 0 };
	struct pl_recorder *r;
	pthread_t t;
	uint64_t lost = 1;
	char text[32];

	ok(pl_rec_open(&o, &r, &err) == 0, "opens: %s", err.msg);
	for (int i = 0; i < 200; i++)
		if (pthread_create(&t, NULL, one_event, r) == 0)
			pthread_join(t, NULL);
	ok(pl_rec_close(r, &lost, &err) == 0 && lost == 0, "threads that end leave their rings");
	is_i64(count_of(path, false, text, sizeof(text)), 200, "an event of each of 200 threads");
	unlink(path);
}

static void test_attrs(const char *path)
{
	const struct pl_rec_opts o = { .path = path, .size = 1, .host = "box" };
	struct pl_err err = { 0 };
	struct pl_recorder *r;
	struct pl_trace t = { 0 };
	bool good;

	ok(pl_rec_open(&o, &r, &err) == 0, "opens: %s", err.msg);
	for (int i = 0; i < 4; i++) {
		struct pl_rec_event e = pl_rec_event(pl_rec_track(r, PL_T_THREAD, "main"),
						     PL_K_SEND, pl_rec_name(r, "op"), i, i + 1);
		const struct pl_rec_attr a[] = {
			pl_rec_attr(PL_NONE, PL_R_DEVICE, PL_V_INT, i % 2),
			pl_rec_attr(PL_NONE, PL_R_MOVED, PL_V_INT, 9),
		};

		e.attrs = pl_rec_attrs(r, a, 2);
		ok(e.attrs == (pl_id)(i % 2), "equal lists have equal numbers");
		pl_rec(r, &e);
	}
	ok(pl_rec_close(r, NULL, &err) == 0 && load(path, &t, &err) == 0, "writes: %s", err.msg);
	good = t.seg[0]->n == 4 && t.seg[0]->seg.n_tracks == 1;
	for (uint64_t i = 0; good && i < 4; i++)
		good = t.seg[0]->device[i] == (int64_t)i % 2 && t.seg[0]->moved[i] == 9;
	ok(good, "shared values of events; one track of a name");
	pl_trace_fini(&t);
	unlink(path);
}

int main(void)
{
	char path[] = "/tmp/rec_test.XXXXXX";
	int fd = mkstemp(path);

	close(fd);
	unlink(path);
	test_threads(path);
	test_columns(path);
	test_failures(path);
	test_attrs(path);
	test_many_threads(path);
	test_killed(path);
	test_forked(path);
	return done_testing();
}
