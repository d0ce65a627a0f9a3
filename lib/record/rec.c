/*
 * A recorder: threads write events into rings, and a thread writes the trace from them.
 *
 * Each thread that records has a ring of its own with one writer and one reader (they share only
 * the indices, each on a cache line of its own), so recording takes no lock. The encoder thread
 * empties all rings into a batch in columns and hands full batches to the writer of traces. Waking
 * disturbs the threads that compute, so it sleeps long, and a thread whose ring is half full wakes
 * it. If the disk is slower than the run, events are lost and counted, and the run goes on.
 *
 * A thread finds its ring in a thread-local variable, which is checked by the recorder's number: a
 * program may have one recorder after another. A thread that ends leaves its ring to the next new
 * one. Events of a device come by the thousand, from threads that nobody measures, so pl_rec_put()
 * does without a ring.
 *
 * Threads that record also look up names. The names have a lock of their own, which nobody holds
 * while a block is compressed or written: the encoder copies new names into the segment, where they
 * have the same numbers, and writes them from there.
 *
 * fork() copies rings and locks, but not the encoder. So all recorders are locked while a process
 * forks, and those of the child are off.
 *
 * Times count from the opening. Events are in the order in which rings were emptied; readers sort.
 */
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "record/rec.h"

#define RING	    16384 /* events of a thread; a power of two */
#define PERIOD_NS   200000000
#define THREADS_MAX 64
#define TEXTS_MAX   ((size_t)16 << 20) /* of different texts, and of different lists of values */

struct ring {
	_Atomic int users;     /* the recorder, and the thread */
	_Atomic bool taken;    /* a thread has it */
	_Atomic uint64_t head; /* written so far */
	char padding[64];
	_Atomic uint64_t tail; /* read so far */
	char padding2[64];
	_Atomic uint64_t lost; /* written by the owner of the ring */
	struct pl_rec_event ev[RING];
};

struct pl_recorder {
	struct pl_recorder *next; /* in the list of those that are open */
	uint64_t number;	  /* which recorder of this process, from 1 */
	_Atomic bool off;	  /* events are ignored: closed, or in a child of fork() */
	_Atomic bool forked;
	pl_ns flush_ns, flushed; /* of the options; when blocks were written */
	uint64_t nameless;	 /* events whose name found no room */
	uint64_t told_lost;	 /* number of lost events that the trace says */
	pthread_mutex_t lock;	 /* of the tracks, and of the members below the rings */
	pthread_cond_t wake;
	pthread_mutex_t names_lock; /* of the next three; taken last, and held shortly */
	struct pl_intern names;
	struct pl_intern attrs;	  /* lists of pl_rec_attr, as bytes */
	struct pl_err names_full; /* there was no memory for one */
	pthread_t encoder;
	bool started, stop;
	struct ring *ring[THREADS_MAX];
	_Atomic uint32_t n_rings;
	_Atomic uint64_t without_ring; /* events of threads beyond THREADS_MAX, or without memory */

	struct pl_out *out;
	struct pl_sink *sink;
	struct pl_segment seg;
	struct pl_batch batch;
	int rank;
	pl_ns base;
	pl_id host, pid, process, type_float, key_tag, key_root;
	pl_id key[PL_R_COUNT_]; /* of columns; PL_NONE: the role says enough */
	struct pl_err err;	/* the first failure of the encoder */
	bool failed;
};

static _Atomic uint64_t recorders;
static _Thread_local struct {
	uint64_t number;
	struct ring *ring;
} own_ring;

/* ---- all recorders, and fork() --------------------------------------------------------------- */

static struct {
	pthread_once_t once;
	pthread_mutex_t lock;
	struct pl_recorder *first;
	pthread_key_t thread_ends;
	bool have_key;
} all = { .once = PTHREAD_ONCE_INIT, .lock = PTHREAD_MUTEX_INITIALIZER };

static void before_fork(void)
{
	pthread_mutex_lock(&all.lock);
	for (struct pl_recorder *r = all.first; r; r = r->next) {
		pthread_mutex_lock(&r->lock);
		pthread_mutex_lock(&r->names_lock);
	}
}

static void after_fork(void)
{
	for (struct pl_recorder *r = all.first; r; r = r->next) {
		pthread_mutex_unlock(&r->names_lock);
		pthread_mutex_unlock(&r->lock);
	}
	pthread_mutex_unlock(&all.lock);
}

static void after_fork_in_child(void)
{
	for (struct pl_recorder *r = all.first; r; r = r->next) {
		atomic_store(&r->off, true);
		atomic_store(&r->forked, true);
	}
	after_fork();
}

static void ring_free(struct ring *x)
{
	if (x && atomic_fetch_sub(&x->users, 1) == 1)
		pl_free(x);
}

static void leave_ring(void *ring)
{
	struct ring *x = ring;

	if (!x)
		return;
	/* something later in the end of this thread may record: into another ring */
	if (own_ring.ring == x) {
		own_ring.ring = NULL;
		own_ring.number = 0;
	}
	atomic_store_explicit(&x->taken, false, memory_order_release);
	ring_free(x);
}

static void prepare(void)
{
	all.have_key = pthread_key_create(&all.thread_ends, leave_ring) == 0;
	pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static void enlist(struct pl_recorder *r)
{
	pthread_once(&all.once, prepare);
	pthread_mutex_lock(&all.lock);
	r->next = all.first;
	all.first = r;
	pthread_mutex_unlock(&all.lock);
}

static void delist(struct pl_recorder *r)
{
	struct pl_recorder **at = &all.first;

	pthread_mutex_lock(&all.lock);
	while (*at && *at != r)
		at = &(*at)->next;
	if (*at)
		*at = r->next;
	pthread_mutex_unlock(&all.lock);
}

/* ---- into the rings -------------------------------------------------------------------------- */

static bool is_empty(const struct ring *x)
{
	return atomic_load_explicit(&x->head, memory_order_relaxed) ==
	       atomic_load_explicit(&x->tail, memory_order_relaxed);
}

/* A ring that no thread has, an empty one if possible, or a new one. Under the lock. */
static struct ring *free_ring(struct pl_recorder *r)
{
	uint32_t n = atomic_load(&r->n_rings);
	struct pl_err ignore = { 0 };
	struct ring *x, *full = NULL;

	for (uint32_t i = 0; i < n; i++) {
		x = r->ring[i];
		if (atomic_load_explicit(&x->taken, memory_order_acquire))
			continue;
		if (is_empty(x))
			return x;
		full = x;
	}
	if (n == THREADS_MAX || pl_alloc(&x, 1, sizeof(*x), &ignore) < 0)
		return full;
	atomic_store(&x->users, 1);
	r->ring[n] = x;
	atomic_store(&r->n_rings, n + 1);
	return x;
}

static struct ring *new_ring(struct pl_recorder *r)
{
	struct ring *x;

	leave_ring(own_ring.ring); /* of an earlier recorder */
	pthread_mutex_lock(&r->lock);
	x = free_ring(r);
	if (x) {
		atomic_fetch_add(&x->users, 1);
		atomic_store(&x->taken, true);
	}
	pthread_mutex_unlock(&r->lock);
	if (all.have_key)
		pthread_setspecific(all.thread_ends, x);
	own_ring.number = r->number;
	own_ring.ring = x;
	return x;
}

void pl_rec(struct pl_recorder *r, const struct pl_rec_event *e)
{
	struct ring *x;
	uint64_t head, waiting;

	if (!r || PL_UNLIKELY(atomic_load_explicit(&r->off, memory_order_relaxed)))
		return;
	x = own_ring.number == r->number ? own_ring.ring : new_ring(r);
	if (PL_UNLIKELY(!x)) {
		atomic_fetch_add(&r->without_ring, 1);
		return;
	}
	head = atomic_load_explicit(&x->head, memory_order_relaxed);
	waiting = head - atomic_load_explicit(&x->tail, memory_order_acquire);
	if (PL_UNLIKELY(waiting == RING)) {
		atomic_fetch_add_explicit(&x->lost, 1, memory_order_relaxed);
		return;
	}
	x->ev[head & (RING - 1)] = *e;
	atomic_store_explicit(&x->head, head + 1, memory_order_release);
	if (PL_UNLIKELY(waiting == RING / 2 || waiting == RING / 4 * 3))
		pthread_cond_signal(&r->wake); /* twice: the first may come before it sleeps */
}

/* The number of the bytes in a table; PL_NONE: out of memory, which is a failure, or too many. */
static pl_id add_bytes(struct pl_recorder *r, struct pl_intern *t, const void *p, size_t n)
{
	pl_id id;

	pthread_mutex_lock(&r->names_lock);
	id = pl_intern_find(t, p, n);
	if (id == PL_NONE && pl_intern_bytes(t) < TEXTS_MAX &&
	    pl_intern_add(t, p, n, &id, &r->names_full) < 0)
		id = PL_NONE;
	pthread_mutex_unlock(&r->names_lock);
	return id;
}

pl_id pl_rec_name(struct pl_recorder *r, const char *name)
{
	return r ? add_bytes(r, &r->names, name, strlen(name)) : PL_NONE;
}

pl_id pl_rec_attrs(struct pl_recorder *r, const struct pl_rec_attr *a, size_t n)
{
	return r ? add_bytes(r, &r->attrs, a, n * sizeof(*a)) : PL_NONE;
}

const char *pl_rec_text(struct pl_recorder *r, pl_id name)
{
	const char *text;

	pthread_mutex_lock(&r->names_lock);
	text = pl_intern_get(&r->names, name);
	pthread_mutex_unlock(&r->names_lock);
	return text;
}

/* Names that came since the last time go into the segment. Under the lock. */
static int copy_names(struct pl_recorder *r, struct pl_err *err)
{
	int rc = 0;

	pthread_mutex_lock(&r->names_lock);
	if (r->names_full.code < 0)
		rc = pl_fail_as(err, &r->names_full);
	for (pl_id i = (pl_id)r->seg.str.n, id; rc >= 0 && i < r->names.n; i++)
		rc = pl_intern_add(&r->seg.str, r->names.str[i], r->names.len[i], &id, err);
	pthread_mutex_unlock(&r->names_lock);
	return rc;
}

/* A name for which there is always room. */
static int intern(struct pl_recorder *r, pl_id *id, const char *text, struct pl_err *err)
{
	int rc;

	pthread_mutex_lock(&r->names_lock);
	rc = pl_intern_add(&r->names, text, strlen(text), id, err);
	pthread_mutex_unlock(&r->names_lock);
	return rc;
}

/* Under the lock. */
static int put_meta(struct pl_recorder *r, const char *key, const char *json, struct pl_err *err)
{
	pl_id id;

	/* the segment takes both for names */
	PL_CHECK(intern(r, &id, key, err));
	PL_CHECK(intern(r, &id, json, err));
	PL_CHECK(copy_names(r, err));
	return pl_trace_segment_meta(&r->seg, key, strlen(key), json, strlen(json), err);
}

static pl_id add_track(struct pl_recorder *r, uint8_t type, int32_t device, int64_t stream,
		       const char *tid, const char *name)
{
	struct pl_track t;
	pl_id id = PL_NONE, text = pl_rec_name(r, name), number = pl_rec_name(r, tid);

	if (text == PL_NONE || number == PL_NONE)
		return PL_NONE;
	pl_trace_track_init(&t);
	t.type = type;
	t.device = device;
	t.stream = stream;
	t.rank = t.psort = r->rank;
	t.coord[PL_COORD_DP] = r->rank;
	t.host = r->host;
	t.pid = r->pid;
	t.process = r->process;
	t.tid = number;
	t.name = text;
	pthread_mutex_lock(&r->lock);
	t.sort = (int32_t)r->seg.n_tracks;
	for (uint32_t i = 0; i < r->seg.n_tracks && id == PL_NONE; i++) {
		const struct pl_track *x = &r->seg.track[i];

		if (x->type == type && x->tid == number && x->device == device)
			id = i;
	}
	if (id == PL_NONE && pl_trace_segment_track(&r->seg, &t, &id, &r->err) < 0)
		r->failed = true;
	pthread_mutex_unlock(&r->lock);
	return id;
}

pl_id pl_rec_track(struct pl_recorder *r, uint8_t type, const char *name)
{
	return add_track(r, type, -1, -1, name, name);
}

pl_id pl_rec_stream(struct pl_recorder *r, int32_t device, int64_t stream, const char *name)
{
	return add_track(r, PL_T_STREAM, device, stream, name, name);
}

pl_id pl_rec_thread(struct pl_recorder *r, int64_t tid, const char *name)
{
	char number[24], text[32];

	snprintf(number, sizeof(number), "%" PRId64, tid);
	snprintf(text, sizeof(text), "thread %s", number);
	return r ? add_track(r, PL_T_THREAD, -1, -1, number, name ? name : text) : PL_NONE;
}

void pl_rec_meta(struct pl_recorder *r, const char *key, const char *json)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	if (put_meta(r, key, json, &r->err) < 0)
		r->failed = true;
	pthread_mutex_unlock(&r->lock);
}

/* ---- out of the rings ------------------------------------------------------------------------ */

static int put_value(struct pl_recorder *r, uint8_t role, uint8_t type, int64_t v, unsigned scale,
		     struct pl_err *err)
{
	struct pl_batch *b = &r->batch;
	uint32_t index;

	PL_CHECK(pl_trace_batch_col(b, role, type, r->key[role], &index, err));
	return pl_trace_col_put(&b->col[index], b->n, v, scale, err);
}

/* The number of a string, -1: none. */
static int64_t number_of(pl_id string)
{
	return string == PL_NONE ? -1 : (int64_t)string;
}

static int put_argument(struct pl_recorder *r, pl_id key, int32_t v, struct pl_err *err)
{
	uint32_t index;

	if (v < 0)
		return 0;
	PL_CHECK(pl_trace_batch_col(&r->batch, PL_R_ARG, PL_V_INT, key, &index, err));
	return pl_trace_col_put(&r->batch.col[index], r->batch.n, v, 0, err);
}

static int put_attrs(struct pl_recorder *r, pl_id attrs, struct pl_err *err)
{
	struct pl_batch *b = &r->batch;
	const char *list = NULL;
	size_t n = 0;

	if (attrs == PL_NONE)
		return 0;
	pthread_mutex_lock(&r->names_lock);
	if (attrs < r->attrs.n) {
		list = r->attrs.str[attrs]; /* stays where it is */
		n = r->attrs.len[attrs] / sizeof(struct pl_rec_attr);
	}
	pthread_mutex_unlock(&r->names_lock);
	for (size_t i = 0; i < n; i++) {
		struct pl_rec_attr a;
		uint32_t index;

		memcpy(&a, list + i * sizeof(a), sizeof(a));
		PL_CHECK(pl_trace_batch_col(b, (uint8_t)a.role, (uint8_t)a.type, a.key, &index,
					    err));
		PL_CHECK(pl_trace_col_put(&b->col[index], b->n, a.v, 0, err));
	}
	return 0;
}

static int put_values(struct pl_recorder *r, const struct pl_rec_event *e,
		      const struct pl_rec_sync *s, struct pl_err *err)
{
	bool message = e->kind == PL_K_SEND || e->kind == PL_K_RECV;
	const struct {
		uint8_t role, type;
		int64_t v;
	} column[] = {
		{ PL_R_STEP, PL_V_INT, e->step },
		{ PL_R_CORR, PL_V_INT, e->corr },
		{ PL_R_SEQ, PL_V_INT, message ? e->order : e->seq },
		{ PL_R_OF, PL_V_INT, message ? e->seq : -1 },
		{ PL_R_PEER, PL_V_INT, e->peer },
		{ PL_R_BYTES, PL_V_INT, e->bytes },
		{ PL_R_MB, PL_V_INT, e->mb },
		{ PL_R_CHUNK, PL_V_INT, e->chunk },
		{ PL_R_LAYER, PL_V_INT, e->layer },
		{ PL_R_CHANNEL, PL_V_INT, e->channel },
		{ PL_R_GROUP, PL_V_STR, number_of(e->group) },
		{ PL_R_COLL, PL_V_STR, number_of(e->coll) },
		{ PL_R_DIMS, PL_V_JSON, number_of(e->dims) },
		{ PL_R_VALUES, PL_V_STR, number_of(e->values) },
		{ PL_R_OP, PL_V_STR, number_of(e->op) },
		{ PL_R_FLOPS, PL_V_INT, e->flops },
		{ PL_R_MOVED, PL_V_INT, e->moved },
		{ PL_R_TYPES, PL_V_JSON, e->dims == PL_NONE ? -1 : number_of(r->type_float) },
		{ PL_R_ARG, PL_V_STR, number_of(e->precision) },
		{ PL_R_STREAM, PL_V_INT, s ? s->stream : -1 },
		{ PL_R_WAIT_STREAM, PL_V_INT, s ? s->on_stream : -1 },
		{ PL_R_WAIT_CORR, PL_V_INT, s ? s->record_corr : -1 },
		{ PL_R_WAIT_EVENT, PL_V_INT, s ? s->event : -1 },
	};

	for (size_t i = 0; i < PL_LEN(column); i++)
		if (column[i].v != -1)
			PL_CHECK(put_value(r, column[i].role, column[i].type, column[i].v, 0, err));
	PL_CHECK(put_attrs(r, e->attrs, err));
	PL_CHECK(put_argument(r, r->key_tag, e->tag, err));
	PL_CHECK(put_argument(r, r->key_root, e->root, err));
	if (e->kind == PL_K_COUNTER && e->value > -9e11 && e->value < 9e11)
		return put_value(r, PL_R_VALUE, PL_V_DEC, (int64_t)(e->value * 1e6), 6, err);
	return 0;
}

static int write_batch(struct pl_recorder *r, struct pl_err *err)
{
	int rc = copy_names(r, err);

	if (rc >= 0 && r->batch.n) {
		rc = r->sink->batch(r->sink, &r->seg, &r->batch, err);
		r->seg.n_events += r->batch.n;
		pl_trace_batch_clear(&r->batch);
		r->batch.first = r->seg.n_events;
	}
	return rc;
}

static int encode(struct pl_recorder *r, const struct pl_rec_event *e, const struct pl_rec_sync *s,
		  struct pl_err *err)
{
	struct pl_batch *b = &r->batch;

	if (e->track == PL_NONE || e->name == PL_NONE) { /* too many names, or out of memory */
		r->nameless++;
		return 0;
	}
	PL_CHECK(put_values(r, e, s, err));
	b->kind[b->n] = e->kind;
	b->track[b->n] = e->track;
	b->name[b->n] = e->name;
	b->ts[b->n] = e->begin - r->base;
	b->dur[b->n] = e->kind == PL_K_COUNTER || e->kind == PL_K_INSTANT ? -1 : e->end - e->begin;
	b->n++;
	return b->n == PL_BATCH_ROWS ? write_batch(r, err) : 0;
}

void pl_rec_put(struct pl_recorder *r, const struct pl_rec_event *e, const struct pl_rec_sync *s)
{
	if (!r || atomic_load(&r->forked))
		return;
	pthread_mutex_lock(&r->lock);
	if (!r->failed && !r->stop && encode(r, e, s, &r->err) < 0)
		r->failed = true;
	pthread_mutex_unlock(&r->lock);
}

/* Encodes all events that are in the rings now. After a failure it drops them. Under the lock. */
static void drain(struct pl_recorder *r)
{
	uint32_t n = atomic_load(&r->n_rings);

	for (uint32_t i = 0; i < n; i++) {
		struct ring *x = r->ring[i];
		uint64_t head = atomic_load_explicit(&x->head, memory_order_acquire);
		uint64_t tail = atomic_load_explicit(&x->tail, memory_order_relaxed);

		for (; tail < head; tail++) {
			if (!r->failed && encode(r, &x->ev[tail & (RING - 1)], NULL, &r->err) < 0)
				r->failed = true;
			if (!(tail &
			      255)) /* free places early: encoding is slower than recording */
				atomic_store_explicit(&x->tail, tail, memory_order_release);
		}
		atomic_store_explicit(&x->tail, tail, memory_order_release);
	}
}

void pl_rec_lost(struct pl_recorder *r, uint64_t n)
{
	atomic_fetch_add(&r->without_ring, n);
}

static uint64_t count_lost(struct pl_recorder *r)
{
	uint64_t n = atomic_load(&r->without_ring) + r->nameless;

	for (uint32_t i = 0; i < atomic_load(&r->n_rings); i++)
		n += atomic_load_explicit(&r->ring[i]->lost, memory_order_relaxed);
	return n;
}

/* A later number counts for readers, so it is written only when it has become twice as large, or at
 * the end. Under the lock. */
static int tell_lost(struct pl_recorder *r, bool last, struct pl_err *err)
{
	uint64_t n = count_lost(r);
	char text[24];

	if (n == r->told_lost || (!last && n < 2 * r->told_lost))
		return 0;
	r->told_lost = n;
	snprintf(text, sizeof(text), "%" PRIu64, n);
	return put_meta(r, PL_REC_LOST, text, err);
}

/* Under the lock: what is encoded goes into the file, so that it survives this process. */
static void flush(struct pl_recorder *r, bool now)
{
	if (!r->flush_ns || r->failed || (!now && pl_now_ns() - r->flushed < r->flush_ns))
		return;
	if (tell_lost(r, false, &r->err) < 0 || write_batch(r, &r->err) < 0 ||
	    pl_out_flush(r->out, &r->err) < 0)
		r->failed = true;
	r->flushed = pl_now_ns();
}

void pl_rec_flush(struct pl_recorder *r)
{
	if (!r || atomic_load(&r->off))
		return;
	pthread_mutex_lock(&r->lock);
	if (!r->stop) {
		drain(r);
		flush(r, true);
	}
	pthread_mutex_unlock(&r->lock);
}

static void *encoder(void *arg)
{
	struct pl_recorder *r = arg;

	pthread_mutex_lock(&r->lock);
	while (!r->stop) {
		struct timespec until;
		pl_ns at;

		clock_gettime(CLOCK_MONOTONIC, &until);
		at = (pl_ns)until.tv_nsec + PERIOD_NS;
		until.tv_sec += (time_t)(at / 1000000000);
		until.tv_nsec = (long)(at % 1000000000);
		pthread_cond_timedwait(&r->wake, &r->lock, &until);
		drain(r);
		flush(r, false);
	}
	drain(r);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void destroy(struct pl_recorder *r)
{
	delist(r);
	for (uint32_t i = 0; i < atomic_load(&r->n_rings); i++)
		ring_free(r->ring[i]);
	pl_intern_fini(&r->names);
	pl_intern_fini(&r->attrs);
	pl_trace_segment_fini(&r->seg);
	pl_trace_batch_fini(&r->batch);
	pthread_mutex_destroy(&r->lock);
	pthread_mutex_destroy(&r->names_lock);
	pthread_cond_destroy(&r->wake);
	pl_free(r);
}

static void stop(struct pl_recorder *r)
{
	pthread_mutex_lock(&r->lock);
	r->stop = true;
	pthread_cond_signal(&r->wake);
	pthread_mutex_unlock(&r->lock);
	if (r->started)
		pthread_join(r->encoder, NULL);
	r->started = false;
}

/* Metadata about this rank, as importers write them. */
static int describe(struct pl_recorder *r, const struct pl_rec_opts *o, struct pl_err *err)
{
	static const uint8_t keyed[] = { PL_R_DIMS,	 PL_R_TYPES,	   PL_R_VALUES,
					 PL_R_OP,	 PL_R_FLOPS,	   PL_R_MOVED,
					 PL_R_STREAM,	 PL_R_WAIT_STREAM, PL_R_WAIT_CORR,
					 PL_R_WAIT_EVENT };
	const char *base = strrchr(o->path, '/');
	char host[256] = "", text[160];

	if (!o->host && gethostname(host, sizeof(host) - 1) < 0)
		snprintf(host, sizeof(host), "localhost");
	PL_CHECK(intern(r, &r->host, o->host ? o->host : host, err));
	snprintf(text, sizeof(text), "%ld", o->flush_ns ? (long)getpid() : (long)o->rank);
	PL_CHECK(intern(r, &r->pid, text, err));
	if (o->rank < 0)
		snprintf(text, sizeof(text), "process %ld", (long)getpid());
	else
		snprintf(text, sizeof(text), "rank %d", o->rank);
	PL_CHECK(intern(r, &r->process, text, err));
	memset(r->key, 0xff, sizeof(r->key)); /* PL_NONE */
	PL_CHECK(intern(r, &r->key[PL_R_ARG], "precision", err));
	PL_CHECK(intern(r, &r->key_tag, "tag", err));
	PL_CHECK(intern(r, &r->key_root, "root", err));
	PL_CHECK(intern(r, &r->type_float, "[\"float\"]", err));
	/* keys for exporters, as profilers have them */
	for (size_t i = 0; i < PL_LEN(keyed); i++)
		PL_CHECK(intern(r, &r->key[keyed[i]], pl_trace_role_key(keyed[i]), err));
	snprintf(text, sizeof(text), "{\"backend\":\"paceline\",\"rank\":%d,\"world_size\":%d}",
		 o->rank, o->size);
	if (o->rank >= 0)
		PL_CHECK(put_meta(r, "distributedInfo", text, err));
	pl_free(r->seg.source);
	pl_free(r->seg.format);
	r->seg.source = r->seg.format = NULL;
	r->seg.base_ns = r->base + (o->flush_ns ? pl_epoch_ns() : 0);
	PL_CHECK(pl_dup(NULL, &r->seg.source, base ? base + 1 : o->path, err));
	return pl_dup(NULL, &r->seg.format, o->format ? o->format : "run", err);
}

/* Signals of the program are for its own threads. */
static int start_encoder(struct pl_recorder *r)
{
	sigset_t every, before;
	int rc;

	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	rc = pthread_create(&r->encoder, NULL, encoder, r);
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return rc;
}

static int begin(struct pl_recorder *r, const struct pl_rec_opts *o, struct pl_err *err)
{
	const struct pl_trace_writer_opts w = { .level = o->level, .provenance = o->provenance };
	int rc;

	PL_TRY(pl_trace_segment_init(&r->seg, err));
	PL_TRY(pl_trace_batch_init(&r->batch, err));
	PL_TRY(describe(r, o, err));
	r->out = o->flush_ns ? pl_out_open_new(o->path, err) : pl_out_open(o->path, true, err);
	r->sink = r->out ? pl_trace_writer_open(r->out, &w, err) : NULL;
	PL_TRY(r->sink ? 0 : err->code);
	PL_TRY(copy_names(r, err));
	PL_TRY(r->sink->begin(r->sink, &r->seg, err));
	rc = start_encoder(r);
	if (rc) {
		errno = rc;
		rc = pl_fail_sys(err, "a thread to write the trace");
		goto out;
	}
	r->started = true;
out:
	return rc;
}

int pl_rec_open(const struct pl_rec_opts *o, struct pl_recorder **out, struct pl_err *err)
{
	struct pl_recorder *r;
	pthread_condattr_t attr;
	int rc = pl_alloc(&r, 1, sizeof(*r), err);

	*out = NULL;
	if (rc < 0)
		return rc;
	pthread_mutex_init(&r->lock, NULL);
	pthread_mutex_init(&r->names_lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->wake, &attr);
	pthread_condattr_destroy(&attr);
	r->number = atomic_fetch_add(&recorders, 1) + 1;
	r->rank = o->rank;
	r->base = r->flushed = pl_now_ns();
	r->flush_ns = o->flush_ns;
	enlist(r);
	rc = begin(r, o, err);
	if (rc < 0) {
		pl_wrap(err, "%s", o->path);
		pl_rec_abort(r);
		return rc;
	}
	*out = r;
	return 0;
}

static int finish(struct pl_recorder *r, struct pl_err *err)
{
	char name[256];
	int rc = r->failed ? r->err.code : tell_lost(r, true, &r->err);

	snprintf(name, sizeof(name), "%s", r->seg.source);
	if (rc >= 0)
		rc = write_batch(r, &r->err);
	if (rc >= 0)
		rc = r->sink->end(r->sink, &r->seg, &r->err);
	if (rc >= 0)
		rc = pl_trace_writer_close(r->sink, &r->err);
	else
		pl_trace_writer_abort(r->sink);
	rc = pl_out_finish(r->out, rc, &r->err);
	if (rc < 0) {
		pl_fail_as(err, &r->err);
		pl_wrap(err, "trace %s", name);
	}
	return rc;
}

int pl_rec_close(struct pl_recorder *r, uint64_t *lost, struct pl_err *err)
{
	int rc;

	if (lost)
		*lost = 0;
	if (atomic_load(&r->forked)) /* the rest of it is the parent's; the list keeps it */
		return 0;
	if (r->flush_ns && atomic_exchange(&r->off, true))
		return 0; /* closed already */
	stop(r);
	pthread_mutex_lock(&r->lock);
	if (lost)
		*lost = count_lost(r);
	rc = finish(r, err);
	pthread_mutex_unlock(&r->lock);
	if (!r->flush_ns)
		destroy(r);
	return rc;
}

void pl_rec_abort(struct pl_recorder *r)
{
	if (!r || atomic_load(&r->forked))
		return;
	stop(r);
	pl_trace_writer_abort(r->sink);
	pl_out_abort(r->out);
	destroy(r);
}
