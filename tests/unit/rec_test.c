/*
 * The recorder: what several threads record is in the trace, whole; names, tracks, lost events.
 *
 * runner: threads
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tap.h"
#include "record/rec.h"

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

static int load(const char *path, struct pl_trace *t, struct pl_err *err)
{
	const struct pl_trace_reader_opts o = { 0 };
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	memset(t, 0, sizeof(*t));
	if (!in)
		return err->code;
	rc = pl_trace_load(in, &o, t, err);
	pl_in_close(in);
	return rc;
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
					.track = pl_rec_track(r, PL_T_THREAD,
								    i ? "other" : "main"),
					.name = pl_rec_name(r, "op"),
					.number = i };
		pthread_create(&v[i].id, NULL, record, &v[i]);
	}
	for (int i = 0; i < THREADS; i++)
		pthread_join(v[i].id, NULL);
	ok(access(path, F_OK) != 0, "nothing under the name while it runs");
	ok(pl_rec_close(r, &lost, &err) == 0 && lost == 0, "closes, nothing lost: %s",
	   err.msg);
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
	ok(pl_rec_close(r, NULL, &err) == 0 && load(path, &t, &err) == 0, "writes: %s",
	   err.msg);
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
	ok(pl_rec_open(&o, &r, &err) == PL_EIO && !r, "a folder that is not there: %s",
	   err.msg);
	o.path = path;
	err.code = 0;
	ok(pl_rec_open(&o, &r, &err) == 0, "opens: %s", err.msg);
	pl_rec_abort(r);
	ok(access(path, F_OK) != 0, "an aborted one leaves nothing");
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
	unlink(path);
	return done_testing();
}
