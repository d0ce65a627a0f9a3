/*
 * Events of a rank's device, as importers of profiles write them: calls on tracks of threads,
 * operations on tracks of streams, joined by correlation, and sync records, which name the awaited
 * operations.
 *
 * A source tells its events one by one, in no order and from several threads. Calls, kernels and
 * copies are complete, and are written at once. Others have to be joined. They are kept until the
 * device is idle between two steps, because by then the source has told everything:
 *
 * - A wait for an event needs the record of that event: the one with its instance number. Sources
 *   that have no such numbers give the latest record of the event whose call came before the call
 *   of the wait, since programs use an event many times. Correlations ascend in the order of calls.
 *   The last record of each event is kept for later waits.
 * - A kernel of the communication library needs the collective that it carries. The library says by
 *   which launch it started each collective, the source in which launch each call was made. An
 *   older library does not say; then kernels and collectives of one kind are paired in order.
 *
 * A source that tells only ranges tells no waits. Then this file adds the waits of the host for the
 * whole device, and the ranges of the optimiser and of gradients that leave the device.
 *
 * O(n log n) in the events that are kept.
 */
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "train/tracer.h"

#define JOIN_AT	  16384		      /* pending events */
#define PERIOD_NS 1000000000	      /* a source of ranges is flushed at least that often */
#define OWN_CORR  ((uint64_t)1 << 40) /* correlations of the waits that are added here */

struct pending { /* an event that has to be joined, with its texts */
	struct pl_device_event e;
	pl_id name, group;
	uint8_t coll;	/* enum pl_coll */
	uint64_t order; /* of arrival */
	bool done;
};
struct pending_list {
	struct pending *v;
	size_t n, cap;
};
struct track_key { /* of a stream, a thread or a channel */
	uint64_t key;
	pl_id track;
};

struct tracer_device {
	struct pl_tracer *t;
	const struct pl_device_trace *d;
	void *trace;
	struct pl_device_source source;
	uint32_t main;	   /* number of the thread that trains */
	pl_ns launched_ns; /* end of the last launch by the thread that communicates; before the
			    * first launch: the start of the trace */
	pthread_mutex_t lock;
	struct track_key *track;
	size_t n_tracks, cap_tracks;
	struct pending_list wait, record, kernel, launch, comm;
	size_t n_new;	 /* pending events since the last join */
	pl_ns joined_ns; /* time of the last join */
	uint64_t order;	 /* events that were pending so far */
	uint64_t synced; /* number of pl_train_tracer_synced() calls */
	uint64_t lost;	 /* there was no memory for them */
};

/* ---- tracks -------------------------------------------------------------------------------- */

enum { STREAM = 1, THREAD, CHANNEL };

static pl_id new_track(struct tracer_device *x, unsigned type, uint32_t device, uint32_t number)
{
	char text[64];

	switch (type) {
	case STREAM:
		snprintf(text, sizeof(text), device ? "stream %u of device %u" : "stream %u",
			 number, device);
		return pl_train_rec_stream(x->t->rec, (int32_t)device, number, text);
	case THREAD:
		snprintf(text, sizeof(text), "thread %u", number);
		return pl_train_rec_track(x->t->rec, PL_T_THREAD, text);
	default:
		snprintf(text, sizeof(text), "network channel %u", number);
		return pl_train_rec_track(x->t->rec, PL_T_LINK, text);
	}
}

/* PL_NONE: out of memory; the recorder fails when it is closed. */
static pl_id track_of(struct tracer_device *x, unsigned type, uint32_t device, uint32_t number)
{
	uint64_t key = (uint64_t)type << 60 | (uint64_t)device << 32 | number;
	struct pl_err ignore = { 0 };

	if (type == THREAD && (number == x->main || !number))
		return x->t->main;
	for (size_t i = 0; i < x->n_tracks; i++)
		if (x->track[i].key == key)
			return x->track[i].track;
	if (pl_grow(&x->track, &x->cap_tracks, x->n_tracks + 1, sizeof(*x->track), &ignore) < 0)
		return PL_NONE;
	x->track[x->n_tracks] = (struct track_key){ key, new_track(x, type, device, number) };
	return x->track[x->n_tracks++].track;
}

/* ---- complete events ----------------------------------------------------------------------- */

static struct pl_rec_event event_of(struct tracer_device *x, const struct pl_device_event *e,
				    uint8_t kind, unsigned type, uint32_t number, pl_id name)
{
	struct pl_rec_event r =
		pl_rec_event(track_of(x, type, type == STREAM ? e->device : 0, number), kind, name,
			     e->begin, pl_max_i64(e->begin, e->end));

	r.corr = e->corr ? (int64_t)e->corr : -1;
	r.bytes = e->bytes;
	return r;
}

static pl_id text_of(struct tracer_device *x, const char *name)
{
	return name ? pl_train_rec_name(x->t->rec, name) : PL_NONE;
}

static void put_event(struct tracer_device *x, const struct pl_device_event *e)
{
	static const uint8_t kind[] = { [PL_DEV_CALL] = PL_K_RUNTIME,
					[PL_DEV_KERNEL] = PL_K_KERNEL,
					[PL_DEV_COPY] = PL_K_COPY,
					[PL_DEV_SET] = PL_K_SET };
	bool call = e->kind == PL_DEV_CALL;
	struct pl_rec_event r =
		event_of(x, e, kind[e->kind], call ? THREAD : STREAM, call ? e->thread : e->stream,
			 text_of(x, e->name ? e->name : "unnamed"));

	pl_train_rec_put(x->t->rec, &r, NULL);
}

/* The message of a single transfer has no number, because the transfer is matched by order. */
static void put_message(struct tracer_device *x, const struct pl_device_event *e)
{
	struct pl_rec_event r;

	if (e->seq < 0 || e->peer < 0)
		return;
	r = event_of(x, e, e->sends ? PL_K_SEND : PL_K_RECV, CHANNEL, (uint32_t)e->channel,
		     text_of(x, e->sends ? "send" : "recv"));
	r.corr = -1;
	r.seq = e->seq;
	r.peer = e->peer;
	r.channel = e->channel;
	r.group = text_of(x, e->group);
	pl_train_rec_put(x->t->rec, &r, NULL);
}

/* ---- waits --------------------------------------------------------------------------------- */

/* The names that profilers use. */
static const char *const sync_names[2][3] = {
	{ "Stream Wait Event", "Stream Wait Event", "Stream Wait Event" },
	{ "Context Sync", "Stream Sync", "Event Sync" },
};

static void put_sync(struct tracer_device *x, const struct pl_device_event *e,
		     const struct pl_device_event *record)
{
	bool stream = e->stream != PL_DEV_NO_STREAM, event = e->event != PL_DEV_NO_EVENT;
	struct pl_rec_sync s = { .stream = stream ? (int64_t)e->stream : -1,
				 .on_stream = record ? (int64_t)record->stream : -1,
				 .record_corr = record ? (int64_t)record->corr : -1,
				 .event = event ? (int64_t)(uint32_t)e->event : -1 };
	struct pl_rec_event r =
		event_of(x, e, PL_K_SYNC, stream ? STREAM : THREAD, stream ? e->stream : e->thread,
			 text_of(x, sync_names[e->kind == PL_DEV_SYNC][event ? 2 : stream]));

	r.bytes = -1;
	pl_train_rec_put(x->t->rec, &r, &s);
}

PL_COMPARATOR(by_event, struct pending, e.event, e.corr);

/* Records are in order of event and call. */
static const struct pl_device_event *record_of(const struct pending_list *l,
					       const struct pl_device_event *w)
{
	size_t i = 0;

	/* behind the last record of the event whose call was before that of the wait */
	PL_LOWER_BOUND(i, l->n, PL_COMPARE_FIELDS(&l->v[i].e, w, event, corr) < 0);
	while (i-- > 0 && l->v[i].e.event == w->event)
		if (!w->instance || l->v[i].e.instance == w->instance)
			return &l->v[i].e;
	return NULL;
}

static void remove_done(struct pending_list *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		if (!l->v[i].done)
			l->v[n++] = l->v[i];
	l->n = n;
}

static void join_waits(struct tracer_device *x, bool last)
{
	pl_sort(x->record.v, x->record.n, sizeof(*x->record.v), by_event);
	for (size_t i = 0; i < x->wait.n; i++) {
		struct pending *w = &x->wait.v[i];
		const struct pl_device_event *record = record_of(&x->record, &w->e);

		w->done = record || last;
		if (w->done)
			put_sync(x, &w->e, record);
	}
	remove_done(&x->wait);
	for (size_t i = 0; i + 1 < x->record.n; i++)
		x->record.v[i].done = x->record.v[i].e.event == x->record.v[i + 1].e.event;
	remove_done(&x->record);
}

/* ---- communication ------------------------------------------------------------------------- */

PL_COMPARATOR(by_corr, struct pending, e.corr);

/* The launch that made the call with this correlation; 0: the source did not report it. */
static uint64_t launch_of(const struct pending_list *l, uint64_t corr)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, l->n, l->v[i].e.corr < corr);
	return i < l->n && l->v[i].e.corr == corr ? l->v[i].e.launch : 0;
}

/* The kernel carries the collectives c[0 .. n); n 0: they are not known. */
static void put_comm(struct tracer_device *x, const struct pending *k, struct pending *const *c,
		     size_t n)
{
	uint8_t coll = n ? c[0]->coll : k->coll;
	struct pl_rec_event r = event_of(x, &k->e, PL_K_COLLECTIVE, STREAM, k->e.stream, k->name);

	for (size_t i = 0; i < n; i++) {
		r.bytes = r.bytes < 0 ? c[i]->e.bytes
				      : pl_add_sat(r.bytes, pl_max_i64(0, c[i]->e.bytes));
		c[i]->done = true;
	}
	if (n) {
		r.group = c[0]->group;
		r.seq = c[0]->e.seq;
	}
	if (n == 1 && (coll == PL_COLL_SEND || coll == PL_COLL_RECV)) {
		r.kind = coll == PL_COLL_SEND ? PL_K_SEND : PL_K_RECV;
		r.peer = c[0]->e.peer;
	} else if (coll == PL_COLL_SEND || coll == PL_COLL_RECV) {
		coll = PL_COLL_SENDRECV; /* several at once */
	}
	r.coll = pl_train_rec_name(x->t->rec, pl_trace_coll_name(coll));
	pl_train_rec_put(x->t->rec, &r, NULL);
}

PL_COMPARATOR(by_launch, struct pending, e.launch, order);

#define AT_ONCE 64 /* collectives of one launch */

/* Collectives of the launch that have no kernel yet, in order. */
static size_t pending_of_launch(struct pending_list *l, uint64_t launch, struct pending **c)
{
	size_t i = 0, n = 0;

	PL_LOWER_BOUND(i, l->n, l->v[i].e.launch < launch);
	for (; i < l->n && l->v[i].e.launch == launch && n < AT_ONCE; i++)
		if (!l->v[i].done)
			c[n++] = &l->v[i];
	return n;
}

/* Kernels from .. to - 1 belong to one launch. If it has as many collectives, both are in the same
 * order; else the first kernel carries all. */
static void put_launch(struct tracer_device *x, size_t from, size_t to, uint64_t launch)
{
	struct pending *c[AT_ONCE];
	size_t n = pending_of_launch(&x->comm, launch, c);

	for (size_t i = from; i < to; i++) {
		if (n == to - from)
			put_comm(x, &x->kernel.v[i], &c[i - from], 1);
		else
			put_comm(x, &x->kernel.v[i], c, i == from ? n : 0);
		x->kernel.v[i].done = true;
	}
}

static bool same_kind(const struct pending *kernel, const struct pending *comm)
{
	bool transfer = comm->coll == PL_COLL_SEND || comm->coll == PL_COLL_RECV;

	return kernel->coll == comm->coll || (kernel->coll == PL_COLL_SENDRECV && transfer);
}

/* Joins kernels and collectives whose launch is unknown: such collectives begin their list. */
static void pair_in_order(struct tracer_device *x, bool last)
{
	size_t first = 0;

	for (size_t i = 0; i < x->kernel.n; i++) {
		struct pending *k = &x->kernel.v[i], *c = NULL;

		while (first < x->comm.n && x->comm.v[first].done)
			first++;
		for (size_t m = first; !k->done && m < x->comm.n && !x->comm.v[m].e.launch; m++) {
			c = &x->comm.v[m];
			if (!c->done && same_kind(k, c))
				break;
			c = NULL;
		}
		if (k->done || (!c && !last))
			continue;
		put_comm(x, k, &c, c != NULL);
		k->done = true;
	}
}

static void join_comm(struct tracer_device *x, bool last)
{
	pl_sort(x->kernel.v, x->kernel.n, sizeof(*x->kernel.v), by_corr);
	pl_sort(x->launch.v, x->launch.n, sizeof(*x->launch.v), by_corr);
	pl_sort(x->comm.v, x->comm.n, sizeof(*x->comm.v), by_launch);
	for (size_t i = 0, to; i < x->kernel.n; i = to) {
		uint64_t launch = launch_of(&x->launch, x->kernel.v[i].e.corr);

		for (to = i + 1; launch && to < x->kernel.n &&
				 launch_of(&x->launch, x->kernel.v[to].e.corr) == launch;)
			to++;
		if (launch)
			put_launch(x, i, to, launch);
	}
	pair_in_order(x, last);
	remove_done(&x->kernel);
	remove_done(&x->comm);
	x->launch.n = 0;
}

/* ---- from the source ----------------------------------------------------------------------- */

static void add_pending(struct tracer_device *x, struct pending_list *l,
			const struct pl_device_event *e)
{
	struct pl_err ignore = { 0 };
	struct pending h = { .e = *e,
			     .name = text_of(x, e->name),
			     .group = text_of(x, e->group),
			     .order = x->order++ };

	h.coll = (uint8_t)pl_trace_coll_find(e->name ? e->name : "", e->name ? strlen(e->name) : 0);
	h.e.name = h.e.group = NULL;
	if (pl_append(&l->v, &l->n, &l->cap, &h, sizeof(h), &ignore) < 0)
		x->lost++;
	else
		x->n_new++;
}

/* Where the event waits to be joined; NULL: it is complete. */
static struct pending_list *list_of(struct tracer_device *x, const struct pl_device_event *e)
{
	bool event = e->event != PL_DEV_NO_EVENT;

	return e->kind == PL_DEV_RECORD						     ? &x->record
	       : e->kind == PL_DEV_WAIT || (e->kind == PL_DEV_SYNC && event)	     ? &x->wait
	       : e->kind == PL_DEV_LAUNCH					     ? &x->launch
	       : e->kind == PL_DEV_COMM						     ? &x->comm
	       : e->kind == PL_DEV_KERNEL && e->name && !strncmp(e->name, "nccl", 4) ? &x->kernel
										     : NULL;
}

static void on_event(void *arg, const struct pl_device_event *e)
{
	struct tracer_device *x = arg;
	struct pending_list *l = list_of(x, e);

	pthread_mutex_lock(&x->lock);
	if (l)
		add_pending(x, l, e);
	else if (e->kind == PL_DEV_SYNC)
		put_sync(x, e, NULL);
	else if (e->kind == PL_DEV_MESSAGE)
		put_message(x, e);
	else
		put_event(x, e);
	pthread_mutex_unlock(&x->lock);
}

/* ---- the thread that communicates ---------------------------------------------------------- */

bool pl_train_tracer_takes(struct pl_tracer *t, const struct pl_comm_event *e)
{
	struct tracer_device *x = t->device;
	bool calls = x && x->source.calls;
	uint32_t self = (uint32_t)syscall(SYS_gettid);
	struct pl_rec_event r;
	pl_ns *since;

	if (!e->launched || !e->tag || !calls)
		return e->launched || (e->on_device && calls);
	/* the thread that trains may launch while it waits, which cuts its wait in two */
	since = self == x->main ? &t->waiting : &x->launched_ns;
	pthread_mutex_lock(&x->lock);
	r = pl_rec_event(track_of(x, THREAD, 0, self), PL_K_WAIT, t->name[PL_NAME_WAIT],
			 *since ? *since : e->begin, e->begin);
	*since = e->end;
	pthread_mutex_unlock(&x->lock);
	r.corr = (int64_t)e->tag;
	r.step = pl_tag_step(e->tag);
	pl_train_rec(t->rec, &r);
	return true;
}

/* ---- begin and end ------------------------------------------------------------------------- */

static void join_pending(struct tracer_device *x, bool last)
{
	pthread_mutex_lock(&x->lock);
	join_waits(x, last);
	join_comm(x, last);
	x->n_new = 0;
	x->joined_ns = pl_now_ns();
	pthread_mutex_unlock(&x->lock);
}

static void device_free(struct tracer_device *x)
{
	struct pending_list *l[] = { &x->wait, &x->record, &x->kernel, &x->launch, &x->comm };

	for (size_t i = 0; i < PL_LEN(l); i++)
		pl_free(l[i]->v);
	pl_free(x->track);
	pthread_mutex_destroy(&x->lock);
	pl_free(x);
}

int pl_train_tracer_device(struct pl_tracer *t, const struct pl_device_trace *d, void *ctx,
			   const struct pl_log *log, struct pl_err *err)
{
	struct tracer_device *x;
	char text[128];
	int rc;

	PL_CHECK(pl_alloc(&x, 1, sizeof(*x), err));
	x->t = t;
	x->d = d;
	x->main = (uint32_t)syscall(SYS_gettid);
	x->launched_ns = pl_now_ns();
	pthread_mutex_init(&x->lock, NULL);
	rc = d->start(ctx, on_event, x, &x->trace, err);
	if (rc < 0) {
		device_free(x);
		return pl_wrap(err, "tracing the device");
	}
	d->source(x->trace, &x->source);
	if (x->source.why)
		pl_say(log, PL_LOG_WARN, "the trace of the device is coarse: %s", x->source.why);
	snprintf(text, sizeof(text), "\"%s\"", x->source.name);
	pl_train_rec_meta(t->rec, "device_trace", text);
	pl_train_rec_meta(t->rec, "all_synchronization", x->source.calls ? "true" : "false");
	t->device = x;
	return 0;
}

void pl_train_tracer_range(struct pl_tracer *t, pl_id name, bool begin)
{
	struct tracer_device *x = t->device;

	if (x && x->source.ranges)
		x->d->range(x->trace, pl_train_rec_text(t->rec, name), begin);
}

void pl_train_tracer_synced(struct pl_tracer *t, pl_ns begin)
{
	struct tracer_device *x = t->device;
	struct pl_device_event e;

	if (!x || !x->source.ranges)
		return;
	e = pl_device_event(PL_DEV_CALL, "Synchronize", begin, pl_now_ns(), OWN_CORR + ++x->synced);
	e.thread = x->main;
	on_event(x, &e);
	e.kind = PL_DEV_SYNC;
	e.stream = 0; /* the stream of the ranges */
	on_event(x, &e);
}

void pl_train_tracer_join(struct pl_tracer *t)
{
	struct tracer_device *x = t ? t->device : NULL;
	struct pl_err ignore = { 0 }; /* a later flush tells the same events */
	bool due;

	if (!x)
		return;
	pthread_mutex_lock(&x->lock);
	due = x->n_new >= JOIN_AT || (x->source.ranges && pl_now_ns() - x->joined_ns > PERIOD_NS);
	pthread_mutex_unlock(&x->lock);
	if (due && x->d->flush(x->trace, &ignore) >= 0)
		join_pending(x, false);
}

int pl_train_tracer_stop(struct pl_tracer *t, bool idle, uint64_t *lost, struct pl_err *err)
{
	struct tracer_device *x = t ? t->device : NULL;
	int rc = 0;

	*lost = 0;
	if (!x)
		return 0;
	t->device = NULL;
	if (idle)
		rc = x->d->flush(x->trace, err);
	x->d->source(x->trace, &x->source);
	x->d->stop(x->trace, idle);
	join_pending(x, true);
	*lost = x->source.lost + x->lost;
	device_free(x);
	return rc < 0 ? pl_wrap(err, "tracing the device") : 0;
}
