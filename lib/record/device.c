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
 * - A message of a collective on a network begins with its kernel, or later.
 *
 * Others join while the device works. Then the halves of a pair may be told at different joins, in
 * any order, and a kernel that waits for other ranks comes minutes after its collective. So what
 * may still be asked for is kept; of each sort not more than some ten thousand, and the oldest are
 * written as they are, or counted.
 *
 * O(n log n) in the events that are kept.
 */
#include <pthread.h>

#include "record/device.h"

#define KEPT	   65536      /* of each sort */
#define RECORDS_NS 5000000000 /* waits are told at most that long after a record */
#define LAUNCHES   1024	      /* that may have kernels which come after those of later ones */

struct pending { /* an event that has to be joined, with its texts */
	struct pl_device_event e;
	pl_id name, group;
	uint8_t coll;	/* enum pl_coll */
	uint64_t order; /* of arrival */
	pl_ns arrived;
	bool done;
};
struct pending_list {
	struct pending *v;
	size_t n, cap;
};
struct span { /* of a collective on the device */
	pl_id group;
	int64_t seq;
	pl_ns begin, end;
};
struct track_key { /* of a stream, a thread or a channel */
	uint64_t key;
	pl_id track;
};

struct pl_device_join {
	struct pl_recorder *rec;
	pl_id main;
	uint32_t main_thread;
	pthread_mutex_t lock;
	struct track_key *track;
	size_t n_tracks, cap_tracks;
	struct pending_list wait, record, kernel, launch, comm, range, message;
	struct span *span; /* of kernels that are known, for messages that come later */
	size_t n_spans, cap_spans;
	bool told_comm;	   /* a library tells its collectives */
	size_t n_new;	   /* pending events since the last join */
	pl_ns joined_ns;   /* time of the last join */
	uint64_t order;	   /* events that were pending so far */
	uint64_t launched; /* greatest launch whose kernel was joined */
	uint64_t lost;	   /* there was no room for them */
};

static void remove_done(struct pending_list *l)
{
	size_t n = 0;

	for (size_t i = 0; i < l->n; i++)
		if (!l->v[i].done)
			l->v[n++] = l->v[i];
	l->n = n;
}

/* ---- tracks -------------------------------------------------------------------------------- */

enum { STREAM = 1, THREAD, CHANNEL, MEMORY };

static pl_id new_track(struct pl_device_join *x, unsigned type, uint32_t device, uint32_t number)
{
	char text[64];

	switch (type) {
	case STREAM:
		snprintf(text, sizeof(text), device ? "stream %u of device %u" : "stream %u",
			 number, device);
		return pl_rec_stream(x->rec, (int32_t)device, number, text);
	case THREAD:
		return pl_rec_thread(x->rec, number, NULL);
	case MEMORY:
		snprintf(text, sizeof(text), "memory of device %u", device);
		return pl_rec_track(x->rec, PL_T_OTHER, text);
	default:
		snprintf(text, sizeof(text), "network channel %u", number);
		return pl_rec_track(x->rec, PL_T_LINK, text);
	}
}

/* PL_NONE: out of memory; the recorder fails when it is closed. */
static pl_id track_of(struct pl_device_join *x, unsigned type, uint32_t device, uint32_t number)
{
	uint64_t key = (uint64_t)type << 60 | (uint64_t)device << 32 | number;
	struct pl_err ignore = { 0 };

	if (type == THREAD && x->main != PL_NONE && (number == x->main_thread || !number))
		return x->main;
	for (size_t i = 0; i < x->n_tracks; i++)
		if (x->track[i].key == key)
			return x->track[i].track;
	if (pl_grow(&x->track, &x->cap_tracks, x->n_tracks + 1, sizeof(*x->track), &ignore) < 0)
		return PL_NONE;
	x->track[x->n_tracks] = (struct track_key){ key, new_track(x, type, device, number) };
	return x->track[x->n_tracks++].track;
}

/* ---- complete events ----------------------------------------------------------------------- */

static struct pl_rec_event event_of(struct pl_device_join *x, const struct pl_device_event *e,
				    uint8_t kind, unsigned type, uint32_t number, pl_id name)
{
	struct pl_rec_event r =
		pl_rec_event(track_of(x, type, type == STREAM ? e->device : 0, number), kind, name,
			     e->begin, pl_max_i64(e->begin, e->end));

	r.corr = e->corr ? (int64_t)e->corr : -1;
	r.bytes = e->bytes;
	return r;
}

static pl_id text_of(struct pl_device_join *x, const char *name)
{
	return name ? pl_rec_name(x->rec, name) : PL_NONE;
}

static void put_event(struct pl_device_join *x, const struct pl_device_event *e)
{
	static const uint8_t kind[] = { [PL_DEV_CALL] = PL_K_RUNTIME,
					[PL_DEV_KERNEL] = PL_K_KERNEL,
					[PL_DEV_COPY] = PL_K_COPY,
					[PL_DEV_SET] = PL_K_SET };
	bool call = e->kind == PL_DEV_CALL;
	struct pl_rec_event r =
		event_of(x, e, kind[e->kind], call ? THREAD : STREAM, call ? e->thread : e->stream,
			 text_of(x, e->name ? e->name : "unnamed"));

	pl_rec_put(x->rec, &r, NULL);
}

static void put_memory(struct pl_device_join *x, const struct pl_device_event *e)
{
	struct pl_rec_event r = pl_rec_event(track_of(x, MEMORY, e->device, 0), PL_K_INSTANT,
					     text_of(x, e->name), e->begin, e->begin);

	r.bytes = e->bytes < 0 ? -e->bytes : e->bytes;
	pl_rec_put(x->rec, &r, NULL);
}

PL_COMPARATOR(by_number, struct pending, e.launch, e.end, order);

/* The start and the end of a range have one number, and come in any order. */
static void join_ranges(struct pl_device_join *x, bool last)
{
	struct pending *v = x->range.v;

	pl_sort(v, x->range.n, sizeof(*v), by_number);
	for (size_t i = 0; i < x->range.n; i++) {
		bool pair = i + 1 < x->range.n && v[i].e.launch == v[i + 1].e.launch &&
			    v[i].e.begin && v[i + 1].e.end;
		struct pl_rec_event r;

		v[i].done |= last;
		x->lost += last && !pair;
		if (!pair)
			continue;
		r = pl_rec_event(track_of(x, THREAD, 0, v[i].e.thread), PL_K_ANNOTATION, v[i].name,
				 v[i].e.begin, pl_max_i64(v[i].e.begin, v[i + 1].e.end));
		pl_rec_put(x->rec, &r, NULL);
		v[i].done = v[i + 1].done = true;
		i++;
	}
	remove_done(&x->range);
}

/* ---- waits --------------------------------------------------------------------------------- */

/* The names that profilers use. */
static const char *const sync_names[2][3] = {
	{ "Stream Wait Event", "Stream Wait Event", "Stream Wait Event" },
	{ "Context Sync", "Stream Sync", "Event Sync" },
};

static void put_sync(struct pl_device_join *x, const struct pl_device_event *e,
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
	pl_rec_put(x->rec, &r, &s);
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

static void join_waits(struct pl_device_join *x, bool last)
{
	pl_ns now = pl_now_ns();

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
		x->record.v[i].done = x->record.v[i].e.event == x->record.v[i + 1].e.event &&
				      now - x->record.v[i].arrived > RECORDS_NS;
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
static void put_comm(struct pl_device_join *x, const struct pending *k, struct pending *const *c,
		     size_t n)
{
	uint8_t coll = n ? c[0]->coll : k->coll;
	struct pl_err ignore = { 0 };
	struct pl_rec_event r = event_of(x, &k->e, PL_K_COLLECTIVE, STREAM, k->e.stream, k->name);

	for (size_t i = 0; i < n; i++) {
		const struct span s = { c[i]->group, c[i]->e.seq, r.begin, r.end };

		if (s.seq >= 0 &&
		    pl_append(&x->span, &x->n_spans, &x->cap_spans, &s, sizeof(s), &ignore) < 0)
			x->lost++;
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
	r.coll = pl_rec_name(x->rec, pl_trace_coll_name(coll));
	pl_rec_put(x->rec, &r, NULL);
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
static void put_launch(struct pl_device_join *x, size_t from, size_t to, uint64_t launch)
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
static void pair_in_order(struct pl_device_join *x, bool last)
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

static void join_comm(struct pl_device_join *x, bool last)
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
		x->launched = launch > x->launched ? launch : x->launched;
	}
	pair_in_order(x, last);
	remove_done(&x->kernel);
	remove_done(&x->comm);
	for (size_t i = 0; i < x->launch.n; i++)
		x->launch.v[i].done = x->launch.v[i].e.launch + LAUNCHES <= x->launched;
	remove_done(&x->launch);
}

/* ---- messages ------------------------------------------------------------------------------ */

#define SPANS_NS 10000000000 /* messages are told at most that long after their kernel */

PL_COMPARATOR(by_collective, struct span, group, seq, begin);

static void put_message(struct pl_device_join *x, const struct pending *m, pl_ns begin)
{
	const struct pl_device_event *e = &m->e;
	struct pl_rec_event r =
		event_of(x, e, e->sends ? PL_K_SEND : PL_K_RECV, CHANNEL, (uint32_t)e->channel,
			 text_of(x, e->sends ? "send" : "recv"));

	r.begin = pl_min_i64(pl_max_i64(r.begin, begin), r.end);
	r.corr = -1;
	r.seq = e->seq;
	r.peer = e->peer;
	r.channel = e->channel;
	r.group = m->group;
	pl_rec_put(x->rec, &r, NULL);
}

/* A message lies in the span of its collective, but a receive may be posted before the kernel runs.
 * The message of a single transfer has no number, because the transfer is matched by order. */
static void join_messages(struct pl_device_join *x, bool last)
{
	size_t n = 0;

	pl_sort(x->span, x->n_spans, sizeof(*x->span), by_collective);
	for (size_t i = 0; i < x->message.n; i++) {
		struct pending *m = &x->message.v[i];
		const struct span key = { m->group, m->e.seq, INT64_MIN, 0 };
		size_t at = 0;
		bool found;

		PL_LOWER_BOUND(at, x->n_spans, by_collective(&x->span[at], &key) < 0);
		found = at < x->n_spans && x->span[at].group == key.group &&
			x->span[at].seq == key.seq;
		m->done = found || last || m->e.seq < 0 || m->e.peer < 0;
		if (m->done && m->e.seq >= 0 && m->e.peer >= 0)
			put_message(x, m, found ? x->span[at].begin : m->e.begin);
	}
	remove_done(&x->message);
	for (size_t i = 0; i < x->n_spans; i++)
		if (x->span[i].end > pl_now_ns() - SPANS_NS)
			x->span[n++] = x->span[i];
	x->n_spans = n;
}

/* ---- what is too much ---------------------------------------------------------------------- */

PL_COMPARATOR(by_arrival, struct pending, order);

/* How many are let go, which are first then, because they are the oldest. */
static size_t too_many(struct pending_list *l)
{
	if (l->n <= KEPT)
		return 0;
	pl_sort(l->v, l->n, sizeof(*l->v), by_arrival);
	return l->n - KEPT / 2;
}

static void let_go(struct pl_device_join *x)
{
	struct pending_list *const counted[] = { &x->comm, &x->range, &x->message };
	struct pending_list *const ignored[] = { &x->record, &x->launch };
	size_t n = too_many(&x->kernel);

	for (size_t i = 0; i < n; i++) {
		put_comm(x, &x->kernel.v[i], NULL, 0);
		x->kernel.v[i].done = true;
	}
	remove_done(&x->kernel);
	n = too_many(&x->wait);
	for (size_t i = 0; i < n; i++) {
		put_sync(x, &x->wait.v[i].e, NULL);
		x->wait.v[i].done = true;
	}
	remove_done(&x->wait);
	for (size_t k = 0; k < PL_LEN(counted) + PL_LEN(ignored); k++) {
		bool counts = k < PL_LEN(counted);
		struct pending_list *l = counts ? counted[k] : ignored[k - PL_LEN(counted)];

		n = too_many(l);
		x->lost += counts ? n : 0;
		for (size_t i = 0; i < n; i++)
			l->v[i].done = true;
		remove_done(l);
	}
}

/* ---- from the source ----------------------------------------------------------------------- */

static void add_pending(struct pl_device_join *x, struct pending_list *l,
			const struct pl_device_event *e)
{
	struct pl_err ignore = { 0 };
	struct pending h = { .e = *e,
			     .name = text_of(x, e->name),
			     .group = text_of(x, e->group),
			     .order = x->order++,
			     .arrived = pl_now_ns() };

	h.coll = (uint8_t)pl_trace_coll_find(e->name ? e->name : "", e->name ? strlen(e->name) : 0);
	h.e.name = h.e.group = NULL;
	if (pl_append(&l->v, &l->n, &l->cap, &h, sizeof(h), &ignore) < 0)
		x->lost++;
	else
		x->n_new++;
}

/* Where the event waits to be joined; NULL: it is complete. */
static struct pending_list *list_of(struct pl_device_join *x, const struct pl_device_event *e)
{
	bool event = e->event != PL_DEV_NO_EVENT;

	return e->kind == PL_DEV_RECORD						     ? &x->record
	       : e->kind == PL_DEV_WAIT || (e->kind == PL_DEV_SYNC && event)	     ? &x->wait
	       : e->kind == PL_DEV_LAUNCH					     ? &x->launch
	       : e->kind == PL_DEV_COMM						     ? &x->comm
	       : e->kind == PL_DEV_RANGE					     ? &x->range
	       : e->kind == PL_DEV_MESSAGE					     ? &x->message
	       : e->kind == PL_DEV_KERNEL && e->name && !strncmp(e->name, "nccl", 4) ? &x->kernel
										     : NULL;
}

void pl_device_join_event(void *arg, const struct pl_device_event *e)
{
	struct pl_device_join *x = arg;
	struct pending_list *l = list_of(x, e);

	pthread_mutex_lock(&x->lock);
	x->told_comm |= e->kind == PL_DEV_COMM;
	if (l)
		add_pending(x, l, e);
	else if (e->kind == PL_DEV_SYNC)
		put_sync(x, e, NULL);
	else if (e->kind == PL_DEV_MEMORY)
		put_memory(x, e);
	else
		put_event(x, e);
	pthread_mutex_unlock(&x->lock);
}

/* ---- begin and end ------------------------------------------------------------------------- */

void pl_device_join_now(struct pl_device_join *x, bool last)
{
	pthread_mutex_lock(&x->lock);
	join_waits(x, last);
	join_ranges(x, last);
	join_comm(x, last || !x->told_comm); /* nobody will say more of the kernels */
	join_messages(x, last);
	let_go(x);
	x->n_new = 0;
	x->joined_ns = pl_now_ns();
	pthread_mutex_unlock(&x->lock);
}

size_t pl_device_join_pending(struct pl_device_join *x, pl_ns *since_ns)
{
	size_t n;

	pthread_mutex_lock(&x->lock);
	n = x->n_new;
	if (since_ns)
		*since_ns = pl_now_ns() - x->joined_ns;
	pthread_mutex_unlock(&x->lock);
	return n;
}

pl_id pl_device_join_thread(struct pl_device_join *x, uint32_t thread)
{
	pl_id track;

	pthread_mutex_lock(&x->lock);
	track = track_of(x, THREAD, 0, thread);
	pthread_mutex_unlock(&x->lock);
	return track;
}

uint64_t pl_device_join_lost(const struct pl_device_join *x)
{
	return x->lost;
}

int pl_device_join_new(struct pl_recorder *rec, pl_id main, uint32_t main_thread,
		       struct pl_device_join **out, struct pl_err *err)
{
	struct pl_device_join *x;

	PL_CHECK(pl_alloc(out, 1, sizeof(**out), err));
	x = *out;
	x->rec = rec;
	x->main = main;
	x->main_thread = main_thread;
	pthread_mutex_init(&x->lock, NULL);
	return 0;
}

void pl_device_join_free(struct pl_device_join *x)
{
	if (!x)
		return;
	pl_free(x->wait.v);
	pl_free(x->record.v);
	pl_free(x->kernel.v);
	pl_free(x->launch.v);
	pl_free(x->comm.v);
	pl_free(x->range.v);
	pl_free(x->message.v);
	pl_free(x->span);
	pl_free(x->track);
	pthread_mutex_destroy(&x->lock);
	pl_free(x);
}
