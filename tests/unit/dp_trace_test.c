/*
 * Device events become a trace: what belongs together is joined, in whatever order it was told.
 *
 * runner: threads
 */
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "record/rec.h"
#include "tap.h"
#include "train/tracer.h"

/* ---- a source that tells a list ------------------------------------------------------------- */

struct list {
	struct pl_device_event e[64];
	int n, told;
	bool fails;
	pl_device_event_fn *event;
	void *arg;
	int flushes, stops;
	const char *why;
};

static int start(void *ctx, pl_device_event_fn *event, void *arg, void **trace, struct pl_err *err)
{
	struct list *l = ctx;

	if (l->fails)
		return pl_fail(err, PL_EABSENT, "no such device");
	l->event = event;
	l->arg = arg;
	*trace = l;
	return 0;
}

static void source(void *trace, struct pl_device_source *s)
{
	struct list *l = trace;

	*s = (struct pl_device_source){
		.name = "list", .why = l->why, .calls = true, .lost = l->flushes > 0 ? 5 : 0
	};
}

static int flush(void *trace, struct pl_err *err)
{
	struct list *l = trace;

	(void)err;
	l->flushes++;
	for (; l->told < l->n; l->told++)
		l->event(l->arg, &l->e[l->told]);
	return 0;
}

static void stop(void *trace, bool idle)
{
	struct list *l = trace;

	(void)idle;
	l->stops++;
}

static const struct pl_device_trace device = { start, source, NULL, flush, stop };

static struct pl_device_event *add(struct list *l, uint8_t kind, const char *name, pl_ns at,
				   uint64_t corr)
{
	l->e[l->n] = pl_device_event(kind, name, at, at + 100, corr);
	return &l->e[l->n++];
}

static struct pl_device_event *on(struct list *l, uint8_t kind, const char *name, pl_ns at,
				  uint64_t corr, uint32_t stream)
{
	struct pl_device_event *e = add(l, kind, name, at, corr);

	e->stream = stream;
	return e;
}

static struct pl_device_event *event(struct list *l, uint8_t kind, uint64_t corr, uint32_t stream,
				     uint64_t number, uint64_t instance)
{
	struct pl_device_event *e = on(l, kind, NULL, (pl_ns)corr * 1000, corr, stream);

	e->event = number;
	e->instance = instance;
	return e;
}

static struct pl_device_event *comm(struct list *l, const char *name, uint64_t launch, int64_t seq,
				    int64_t bytes, int32_t peer)
{
	struct pl_device_event *e = add(l, PL_DEV_COMM, name, 0, 0);

	e->launch = launch;
	e->seq = seq;
	e->bytes = bytes;
	e->peer = peer;
	e->group = "world";
	return e;
}

/* ---- through the recorder -------------------------------------------------------------------- */

static void written(struct list *l, const char *path, struct pl_trace *t)
{
	const struct pl_rec_opts o = { .path = path, .size = 1, .host = "box" };
	const struct pl_trace_reader_opts ro = { 0 };
	struct pl_err err = { 0 };
	struct pl_recorder *r;
	struct pl_tracer *tracer;
	struct pl_in *in;
	uint64_t lost = 0;
	int rc = pl_rec_open(&o, &r, &err);

	rc = rc < 0 ? rc : pl_train_tracer_new(r, &tracer, &err);
	rc = rc < 0 ? rc : pl_train_tracer_device(tracer, &device, l, NULL, &err);
	rc = rc < 0 ? rc : pl_train_tracer_stop(tracer, true, &lost, &err);
	if (rc == 0) {
		pl_train_tracer_free(tracer);
		rc = pl_rec_close(r, NULL, &err);
	}
	memset(t, 0, sizeof(*t));
	in = rc < 0 ? NULL : pl_in_open(path, &err);
	rc = in ? pl_trace_load(in, &ro, t, &err) : -1;
	pl_in_close(in);
	if (!ok(rc == 0 && l->stops == 1 && lost == 5, "written and read: %s", err.msg))
		exit(done_testing());
}

/* The event of a kind with this correlation, or with this number of its collective. */
static int64_t find(const struct pl_events *e, uint8_t kind, int64_t corr)
{
	for (uint64_t i = 0; i < e->n; i++)
		if (e->kind[i] == kind && e->corr && e->corr[i] == corr)
			return (int64_t)i;
	ok(false, "an event of kind %d with correlation %lld", kind, (long long)corr);
	exit(done_testing());
}

static const char *name_of(const struct pl_events *e, int64_t i)
{
	return pl_intern_get(&e->seg.str, e->name[i]);
}

static const struct pl_track *track_of(const struct pl_events *e, int64_t i)
{
	return &e->seg.track[e->track[i]];
}

static const char *coll_of(const struct pl_events *e, int64_t i)
{
	return e->coll ? pl_intern_get(&e->seg.str, e->coll[i]) : "";
}

static void test_whole(const char *path)
{
	uint32_t self = (uint32_t)syscall(SYS_gettid);
	struct list l = { 0 };
	const struct pl_events *e;
	struct pl_trace t;
	int64_t i;

	add(&l, PL_DEV_CALL, "cudaLaunchKernel", 1000, 1)->thread = self;
	add(&l, PL_DEV_CALL, "cudaMemcpyAsync", 1200, 2)->thread = self + 1;
	add(&l, PL_DEV_CALL, "cudaMemsetAsync", 1400, 3);
	on(&l, PL_DEV_KERNEL, "gemm", 2000, 1, 7)->device = 1;
	on(&l, PL_DEV_COPY, "Memcpy HtoD", 2200, 2, 9)->bytes = 4096;
	on(&l, PL_DEV_SET, "Memset", 2400, 3, 7)->bytes = 64;
	written(&l, path, &t);
	e = t.seg[0];
	is_i64((long long)e->n, 6, "all of them, once");
	i = find(e, PL_K_KERNEL, 1);
	ok(track_of(e, i)->type == PL_T_STREAM && track_of(e, i)->stream == 7 &&
		   track_of(e, i)->device == 1,
	   "a kernel is on the track of its stream");
	is_str(name_of(e, i), "gemm", "its name");
	is_i64(e->ts[i] + e->seg.base_ns, 2000, "its time");
	is_i64(e->dur[i], 100, "how long it lasted");
	i = find(e, PL_K_COPY, 2);
	ok(track_of(e, i)->stream == 9 && track_of(e, i)->device == 0 && e->bytes[i] == 4096,
	   "a copy, with its size");
	i = find(e, PL_K_SET, 3);
	ok(track_of(e, i) != track_of(e, find(e, PL_K_KERNEL, 1)) && e->bytes[i] == 64,
	   "streams of two devices are two tracks");
	is_str(pl_intern_get(&e->seg.str, track_of(e, find(e, PL_K_RUNTIME, 1))->name), "main",
	       "calls of the thread that trains");
	ok(track_of(e, find(e, PL_K_RUNTIME, 2)) != track_of(e, find(e, PL_K_RUNTIME, 1)) &&
		   track_of(e, find(e, PL_K_RUNTIME, 2))->type == PL_T_THREAD,
	   "calls of another thread are on its own");
	ok(track_of(e, find(e, PL_K_RUNTIME, 3)) == track_of(e, find(e, PL_K_RUNTIME, 1)),
	   "of an unknown one: as of that which trains");
	is_str(pl_trace_segment_meta_get(&e->seg, "all_synchronization"), "true",
	       "the trace says that it is complete");
	pl_trace_fini(&t);
}

static void test_waits(const char *path)
{
	struct list l = { 0 };
	const struct pl_events *e;
	struct pl_trace t;
	int64_t i;

	/* told before what they are joined with; event 4 is used three times */
	event(&l, PL_DEV_WAIT, 20, 7, 4, 0);
	event(&l, PL_DEV_WAIT, 40, 8, 4, 0);
	event(&l, PL_DEV_WAIT, 41, 8, 4, 101);
	event(&l, PL_DEV_WAIT, 42, 8, 5, 0);
	event(&l, PL_DEV_SYNC, 43, PL_DEV_NO_STREAM, 4, 0);
	event(&l, PL_DEV_SYNC, 44, 7, PL_DEV_NO_EVENT, 0);
	event(&l, PL_DEV_SYNC, 45, PL_DEV_NO_STREAM, PL_DEV_NO_EVENT, 0);
	event(&l, PL_DEV_RECORD, 60, 12, 4, 103);
	event(&l, PL_DEV_RECORD, 30, 11, 4, 102);
	event(&l, PL_DEV_RECORD, 10, 10, 4, 101);
	written(&l, path, &t);
	e = t.seg[0];
	is_i64((long long)e->n, 7, "a record is no event of its own: its call is one");
	i = find(e, PL_K_SYNC, 20);
	ok(e->stream[i] == 7 && e->wait_stream[i] == 10 && e->wait_corr[i] == 10 &&
		   e->wait_event[i] == 4,
	   "a wait for an event: the stream that waits, on which it was recorded, by which call");
	is_str(name_of(e, i), "Stream Wait Event", "as profilers call it");
	ok(track_of(e, i)->stream == 7, "on the stream that waits");
	i = find(e, PL_K_SYNC, 40);
	ok(e->wait_stream[i] == 11 && e->wait_corr[i] == 30,
	   "an event used again: its latest record");
	i = find(e, PL_K_SYNC, 41);
	ok(e->wait_stream[i] == 10 && e->wait_corr[i] == 10,
	   "unless the number of the record is known");
	i = find(e, PL_K_SYNC, 42);
	ok(e->stream[i] == 8 && e->wait_stream[i] == INT64_MIN && e->wait_corr[i] == INT64_MIN,
	   "an event recorded before the trace began: that is all there is to say");
	i = find(e, PL_K_SYNC, 43);
	ok(e->stream[i] == INT64_MIN && e->wait_stream[i] == 11 && e->wait_corr[i] == 30 &&
		   !strcmp(name_of(e, i), "Event Sync"),
	   "the host waits for an event");
	i = find(e, PL_K_SYNC, 44);
	ok(e->stream[i] == 7 && !strcmp(name_of(e, i), "Stream Sync"), "for a stream");
	i = find(e, PL_K_SYNC, 45);
	ok(e->stream[i] == INT64_MIN && !strcmp(name_of(e, i), "Context Sync"), "for all");
	pl_trace_fini(&t);
}

static void launched(struct list *l, const char *kernel, uint64_t corr, uint64_t launch)
{
	on(l, PL_DEV_KERNEL, kernel, (pl_ns)corr * 1000, corr, 13);
	add(l, PL_DEV_LAUNCH, NULL, 0, corr)->launch = launch;
}

static void test_comm(const char *path)
{
	static const char all[] = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)";
	static const char pair[] = "ncclDevKernel_SendRecv(x)";
	struct list l = { 0 };
	const struct pl_events *e;
	struct pl_trace t;
	int64_t i;

	launched(&l, all, 4, 2); /* two kernels of one launch, told backwards */
	launched(&l, all, 3, 2);
	launched(&l, all, 2, 1);
	launched(&l, pair, 5, 3);
	launched(&l, pair, 6, 4);
	launched(&l, all, 7, 5);
	launched(&l, all, 8, 6); /* nothing is known of it */
	comm(&l, "ncclAllReduce", 1, 0, 100, -1);
	comm(&l, "ncclAllReduce", 2, 1, 200, -1);
	comm(&l, "ncclAllReduce", 2, 2, 300, -1);
	comm(&l, "ncclSend", 3, -1, 40, 1);
	comm(&l, "ncclSend", 4, -1, 50, 1);
	comm(&l, "ncclRecv", 4, -1, 60, 1);
	comm(&l, "ncclAllReduce", 5, 3, 1000, -1); /* two collectives in one kernel */
	comm(&l, "ncclAllReduce", 5, 4, 24, -1);
	written(&l, path, &t);
	e = t.seg[0];
	is_i64((long long)e->n, 7, "an event for each kernel");
	i = find(e, PL_K_COLLECTIVE, 2);
	ok(e->seq[i] == 0 && e->bytes[i] == 100 && !strcmp(coll_of(e, i), "allreduce") &&
		   !strcmp(pl_intern_get(&e->seg.str, e->group[i]), "world"),
	   "a kernel of the library: which collective, number, size, group");
	ok(!strcmp(name_of(e, i), all) && track_of(e, i)->stream == 13, "its own name and stream");
	i = find(e, PL_K_COLLECTIVE, 3);
	ok(e->seq[i] == 1 && e->bytes[i] == 200, "of two in one launch the first");
	i = find(e, PL_K_COLLECTIVE, 4);
	ok(e->seq[i] == 2 && e->bytes[i] == 300, "and the second");
	i = find(e, PL_K_SEND, 5);
	ok(e->peer[i] == 1 && e->bytes[i] == 40 && e->seq[i] == INT64_MIN, "a single transfer");
	i = find(e, PL_K_COLLECTIVE, 6);
	ok(e->bytes[i] == 110 && !strcmp(coll_of(e, i), "sendrecv"), "several transfers at once");
	i = find(e, PL_K_COLLECTIVE, 7);
	ok(e->seq[i] == 3 && e->bytes[i] == 1024, "several collectives in one kernel");
	i = find(e, PL_K_COLLECTIVE, 8);
	ok(e->seq[i] == INT64_MIN && e->group[i] == PL_NONE && !strcmp(coll_of(e, i), "allreduce"),
	   "one of which nothing was said: what its name says");
	pl_trace_fini(&t);
}

/* An older library does not say what was launched where. */
static void test_order(const char *path)
{
	struct list l = { 0 };
	const struct pl_events *e;
	struct pl_trace t;

	on(&l, PL_DEV_KERNEL, "ncclDevKernel_Broadcast_RING_LL(x)", 3000, 3, 13);
	on(&l, PL_DEV_KERNEL, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 2000, 2, 13);
	on(&l, PL_DEV_KERNEL, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 1000, 1, 13);
	comm(&l, "ncclAllReduce", 0, 10, 1, -1);
	comm(&l, "ncclAllReduce", 0, 11, 2, -1);
	comm(&l, "ncclBroadcast", 0, 12, 3, -1);
	written(&l, path, &t);
	e = t.seg[0];
	ok(e->seq[find(e, PL_K_COLLECTIVE, 1)] == 10 && e->seq[find(e, PL_K_COLLECTIVE, 2)] == 11 &&
		   e->seq[find(e, PL_K_COLLECTIVE, 3)] == 12,
	   "collectives and kernels of one sort, in the order of both");
	pl_trace_fini(&t);
}

static void test_messages(const char *path)
{
	struct list l = { 0 };
	struct pl_device_event *m;
	struct pl_trace t;

	m = add(&l, PL_DEV_MESSAGE, NULL, 1000, 0);
	m->sends = true;
	m->seq = 7;
	m->peer = 2;
	m->channel = 3;
	m->bytes = 512;
	m->group = "world";
	add(&l, PL_DEV_MESSAGE, NULL, 1000, 0)->peer = 2; /* of a single transfer */
	written(&l, path, &t);
	is_i64((long long)t.seg[0]->n, 1, "messages of collectives only");
	ok(t.seg[0]->kind[0] == PL_K_SEND && t.seg[0]->of[0] == 7 && t.seg[0]->peer[0] == 2 &&
		   t.seg[0]->channel[0] == 3 && t.seg[0]->bytes[0] == 512,
	   "of which collective, to whom, over which channel, how much");
	ok(track_of(t.seg[0], 0)->type == PL_T_LINK, "on a link");
	pl_trace_fini(&t);
}

/* A receive is posted before the kernel of its collective runs. */
static void test_posted_early(const char *path)
{
	struct list l = { 0 };
	struct pl_device_event *m;
	struct pl_trace t;
	uint64_t k, r;

	m = add(&l, PL_DEV_MESSAGE, NULL, 1000, 0);
	m->seq = 10;
	m->peer = 2;
	m->channel = 0;
	m->group = "world";
	m->end = 50000;
	comm(&l, "ncclAllReduce", 0, 10, 1, -1);
	on(&l, PL_DEV_KERNEL, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(x)", 3000, 1, 13);
	written(&l, path, &t);
	k = find(t.seg[0], PL_K_COLLECTIVE, 1);
	for (r = 0; r < t.seg[0]->n && t.seg[0]->kind[r] != PL_K_RECV; r++)
		;
	ok(r < t.seg[0]->n && t.seg[0]->ts[r] == t.seg[0]->ts[k],
	   "a message begins with the kernel that it belongs to");
	pl_trace_fini(&t);
}

static char said[256];

static void say(void *arg, enum pl_level level, const char *text)
{
	(void)arg;
	(void)level;
	snprintf(said, sizeof(said), "%s", text);
}

/* Pieces are joined now and then during a long run; what still waits for its other half stays. */
static void test_settling(const char *path)
{
	const struct pl_rec_opts o = { .path = path, .size = 1, .host = "box" };
	const struct pl_log log = { say, NULL };
	struct list l = { .fails = true, .why = "no reason" };
	struct pl_device_event r = pl_device_event(PL_DEV_RECORD, NULL, 0, 0, 1), w = r;
	struct pl_err err = { 0 };
	struct pl_recorder *rec;
	struct pl_tracer *t;
	struct pl_trace tr;
	const struct pl_trace_reader_opts ro = { 0 };
	struct pl_in *in;
	uint64_t lost, n = 0;
	int rc;

	rc = pl_rec_open(&o, &rec, &err);
	rc = rc < 0 ? rc : pl_train_tracer_new(rec, &t, &err);
	if (!ok(rc == 0, "opens: %s", err.msg))
		return;
	ok(pl_train_tracer_device(t, &device, &l, &log, &err) == PL_EABSENT &&
		   err.code == PL_EABSENT,
	   "a device that cannot be traced: %s", err.msg);
	pl_train_tracer_join(t);
	ok(pl_train_tracer_stop(t, true, &lost, &err) == 0 && lost == 0,
	   "then there is nothing to stop");
	l.fails = false;
	memset(&err, 0, sizeof(err));
	ok(pl_train_tracer_device(t, &device, &l, &log, &err) == 0 && strstr(said, "no reason"),
	   "why a source is not the best is said");
	pl_train_tracer_join(t);
	is_i64(l.flushes, 0, "little is held: nothing is asked for");
	w.kind = PL_DEV_WAIT;
	w.stream = 1;
	r.event = w.event = 9;
	for (int i = 0; i < 17000; i++) {
		r.corr = (uint64_t)i + 1;
		r.stream = (uint32_t)i % 3;
		l.event(l.arg, &r);
	}
	w.corr = 17000;
	l.event(l.arg, &w);
	pl_train_tracer_join(t);
	pl_train_tracer_join(t);
	is_i64(l.flushes, 1, "much is held: joined, once");
	w.corr = 20000;
	l.event(l.arg, &w);
	w.corr = 20001;
	w.event = 10; /* recorded before, but told later */
	l.event(l.arg, &w);
	for (int i = 0; i < 17000; i++) {
		r.event = 11;
		l.event(l.arg, &r);
	}
	pl_train_tracer_join(t);
	r.event = 10;
	r.corr = 19000;
	r.stream = 77;
	l.event(l.arg, &r);
	ok(pl_train_tracer_stop(t, true, &lost, &err) == 0 && lost == 5,
	   "what the source lost is told");
	pl_train_tracer_free(t);
	ok(pl_rec_close(rec, NULL, &err) == 0, "written: %s", err.msg);
	memset(&tr, 0, sizeof(tr));
	in = pl_in_open(path, &err);
	rc = in ? pl_trace_load(in, &ro, &tr, &err) : -1;
	pl_in_close(in);
	if (!ok(rc == 0 && tr.seg[0]->n == 3, "each wait is there once: %s", err.msg))
		return;
	for (uint64_t i = 0; i < 3; i++) {
		int64_t corr = tr.seg[0]->corr[i], record = tr.seg[0]->wait_corr[i];

		n += (corr == 17000 && record == 16999) || (corr == 20000 && record == 17000) ||
		     (corr == 20001 && record == 19000);
	}
	is_i64((long long)n, 3, "with its record, an older one too, and one that was told later");
	pl_trace_fini(&tr);
}

int main(void)
{
	char path[] = "/tmp/dp_trace_test.XXXXXX";
	int fd = mkstemp(path);

	close(fd);
	unlink(path);
	test_whole(path);
	test_waits(path);
	test_comm(path);
	test_order(path);
	test_messages(path);
	test_posted_early(path);
	test_settling(path);
	unlink(path);
	return done_testing();
}
