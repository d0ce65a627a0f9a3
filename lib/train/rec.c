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
 * program may have one recorder after another. Events of a device come by the thousand, from
 * threads that nobody measures, so pl_train_rec_put() does without a ring.
 *
 * Times count from the opening. Events are in the order in which rings were emptied; readers sort.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "train/rec.h"

#define RING	    16384 /* events of a thread; a power of two */
#define PERIOD_NS   200000000
#define THREADS_MAX 64

struct ring {
	_Atomic uint64_t head; /* written so far */
	char padding[64];
	_Atomic uint64_t tail; /* read so far */
	char padding2[64];
	uint64_t lost; /* written by the owner of the ring, read at the end */
	struct pl_rec_event ev[RING];
};

struct pl_recorder {
	uint64_t number;      /* which recorder of this process, from 1 */
	pthread_mutex_t lock; /* of strings and tracks, and of the members below the rings */
	pthread_cond_t wake;
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
	pl_id host, pid, process, type_float;
	pl_id key[PL_R_COUNT_]; /* of columns; PL_NONE: the role says enough */
	struct pl_err err;	/* the first failure of the encoder */
	bool failed;
};

static _Atomic uint64_t recorders;
static _Thread_local struct {
	uint64_t number;
	struct ring *ring;
} own_ring;

/* ---- into the rings -------------------------------------------------------------------------- */

static struct ring *new_ring(struct pl_recorder *r)
{
	struct pl_err ignore = { 0 };
	struct ring *x = NULL;
	uint32_t n;

	pthread_mutex_lock(&r->lock);
	n = atomic_load(&r->n_rings);
	if (n < THREADS_MAX && pl_alloc(&x, 1, sizeof(*x), &ignore) == 0) {
		r->ring[n] = x;
		atomic_store(&r->n_rings, n + 1);
	}
	pthread_mutex_unlock(&r->lock);
	own_ring.number = r->number;
	own_ring.ring = x;
	return x;
}

void pl_train_rec(struct pl_recorder *r, const struct pl_rec_event *e)
{
	struct ring *x;
	uint64_t head, waiting;

	if (!r)
		return;
	x = own_ring.number == r->number ? own_ring.ring : new_ring(r);
	if (PL_UNLIKELY(!x)) {
		atomic_fetch_add(&r->without_ring, 1);
		return;
	}
	head = atomic_load_explicit(&x->head, memory_order_relaxed);
	waiting = head - atomic_load_explicit(&x->tail, memory_order_acquire);
	if (PL_UNLIKELY(waiting == RING)) {
		x->lost++;
		return;
	}
	x->ev[head & (RING - 1)] = *e;
	atomic_store_explicit(&x->head, head + 1, memory_order_release);
	if (PL_UNLIKELY(waiting == RING / 2 || waiting == RING / 4 * 3))
		pthread_cond_signal(&r->wake); /* twice: the first may come before it sleeps */
}

pl_id pl_train_rec_name(struct pl_recorder *r, const char *name)
{
	pl_id id = PL_NONE;

	if (!r)
		return PL_NONE;
	pthread_mutex_lock(&r->lock);
	if (pl_intern_add(&r->seg.str, name, strlen(name), &id, &r->err) < 0)
		r->failed = true;
	pthread_mutex_unlock(&r->lock);
	return id;
}

const char *pl_train_rec_text(struct pl_recorder *r, pl_id name)
{
	const char *text;

	pthread_mutex_lock(&r->lock);
	text = pl_intern_get(&r->seg.str, name);
	pthread_mutex_unlock(&r->lock);
	return text;
}

static pl_id add_track(struct pl_recorder *r, uint8_t type, int32_t device, int64_t stream,
		       const char *name)
{
	struct pl_track t;
	pl_id id = PL_NONE, text = pl_train_rec_name(r, name);

	if (text == PL_NONE)
		return PL_NONE;
	pl_trace_track_init(&t);
	t.type = type;
	t.device = device;
	t.stream = stream;
	t.rank = t.psort = r->rank;
	t.sort = (int32_t)r->seg.n_tracks;
	t.coord[PL_COORD_DP] = r->rank;
	t.host = r->host;
	t.pid = r->pid;
	t.process = r->process;
	t.tid = t.name = text;
	pthread_mutex_lock(&r->lock);
	if (pl_trace_segment_track(&r->seg, &t, &id, &r->err) < 0)
		r->failed = true;
	pthread_mutex_unlock(&r->lock);
	return id;
}

pl_id pl_train_rec_track(struct pl_recorder *r, uint8_t type, const char *name)
{
	return add_track(r, type, -1, -1, name);
}

pl_id pl_train_rec_stream(struct pl_recorder *r, int32_t device, int64_t stream, const char *name)
{
	return add_track(r, PL_T_STREAM, device, stream, name);
}

void pl_train_rec_meta(struct pl_recorder *r, const char *key, const char *json)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	if (pl_trace_segment_meta(&r->seg, key, strlen(key), json, strlen(json), &r->err) < 0)
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
		{ PL_R_SEQ, PL_V_INT, message ? -1 : e->seq },
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
	if (e->kind == PL_K_COUNTER && e->value > -9e11 && e->value < 9e11)
		return put_value(r, PL_R_VALUE, PL_V_DEC, (int64_t)(e->value * 1e6), 6, err);
	return 0;
}

static int write_batch(struct pl_recorder *r, struct pl_err *err)
{
	int rc = 0;

	if (r->batch.n) {
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

	if (e->track == PL_NONE || e->name == PL_NONE)
		return 0; /* out of memory for the name, which is a failure already */
	PL_CHECK(put_values(r, e, s, err));
	b->kind[b->n] = e->kind;
	b->track[b->n] = e->track;
	b->name[b->n] = e->name;
	b->ts[b->n] = e->begin - r->base;
	b->dur[b->n] = e->kind == PL_K_COUNTER || e->kind == PL_K_INSTANT ? -1 : e->end - e->begin;
	b->n++;
	return b->n == PL_BATCH_ROWS ? write_batch(r, err) : 0;
}

void pl_train_rec_put(struct pl_recorder *r, const struct pl_rec_event *e,
		      const struct pl_rec_sync *s)
{
	if (!r)
		return;
	pthread_mutex_lock(&r->lock);
	if (!r->failed && encode(r, e, s, &r->err) < 0)
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
	}
	drain(r);
	pthread_mutex_unlock(&r->lock);
	return NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

static void destroy(struct pl_recorder *r)
{
	for (uint32_t i = 0; i < atomic_load(&r->n_rings); i++)
		pl_free(r->ring[i]);
	pl_trace_segment_fini(&r->seg);
	pl_trace_batch_fini(&r->batch);
	pthread_mutex_destroy(&r->lock);
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

static int intern(struct pl_recorder *r, pl_id *id, const char *text, struct pl_err *err)
{
	return pl_intern_add(&r->seg.str, text, strlen(text), id, err);
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
	snprintf(text, sizeof(text), "%d", o->rank);
	PL_CHECK(intern(r, &r->pid, text, err));
	snprintf(text, sizeof(text), "rank %d", o->rank);
	PL_CHECK(intern(r, &r->process, text, err));
	memset(r->key, 0xff, sizeof(r->key)); /* PL_NONE */
	PL_CHECK(intern(r, &r->key[PL_R_ARG], "precision", err));
	PL_CHECK(intern(r, &r->type_float, "[\"float\"]", err));
	/* keys for exporters, as profilers have them */
	for (size_t i = 0; i < PL_LEN(keyed); i++)
		PL_CHECK(intern(r, &r->key[keyed[i]], pl_trace_role_key(keyed[i]), err));
	snprintf(text, sizeof(text), "{\"backend\":\"paceline\",\"rank\":%d,\"world_size\":%d}",
		 o->rank, o->size);
	PL_CHECK(pl_trace_segment_meta(&r->seg, "distributedInfo", 15, text, strlen(text), err));
	pl_free(r->seg.source);
	pl_free(r->seg.format);
	r->seg.source = r->seg.format = NULL;
	r->seg.base_ns = r->base;
	PL_CHECK(pl_dup(NULL, &r->seg.source, base ? base + 1 : o->path, err));
	return pl_dup(NULL, &r->seg.format, "run", err);
}

static int begin(struct pl_recorder *r, const struct pl_rec_opts *o, struct pl_err *err)
{
	const struct pl_trace_writer_opts w = { .level = o->level, .provenance = o->provenance };
	int rc;

	PL_TRY(pl_trace_segment_init(&r->seg, err));
	PL_TRY(pl_trace_batch_init(&r->batch, err));
	PL_TRY(describe(r, o, err));
	r->out = pl_out_open(o->path, true, err);
	r->sink = r->out ? pl_trace_writer_open(r->out, &w, err) : NULL;
	PL_TRY(r->sink ? 0 : err->code);
	PL_TRY(r->sink->begin(r->sink, &r->seg, err));
	rc = pthread_create(&r->encoder, NULL, encoder, r);
	if (rc) {
		errno = rc;
		rc = pl_fail_sys(err, "a thread to write the trace");
		goto out;
	}
	r->started = true;
out:
	return rc;
}

int pl_train_rec_open(const struct pl_rec_opts *o, struct pl_recorder **out, struct pl_err *err)
{
	struct pl_recorder *r;
	pthread_condattr_t attr;
	int rc = pl_alloc(&r, 1, sizeof(*r), err);

	*out = NULL;
	if (rc < 0)
		return rc;
	pthread_mutex_init(&r->lock, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&r->wake, &attr);
	pthread_condattr_destroy(&attr);
	r->number = atomic_fetch_add(&recorders, 1) + 1;
	r->rank = o->rank;
	r->base = pl_now_ns();
	rc = begin(r, o, err);
	if (rc < 0) {
		pl_wrap(err, "%s", o->path);
		pl_train_rec_abort(r);
		return rc;
	}
	*out = r;
	return 0;
}

int pl_train_rec_close(struct pl_recorder *r, uint64_t *lost, struct pl_err *err)
{
	char name[256];
	int rc;

	stop(r);
	if (lost) {
		*lost = atomic_load(&r->without_ring);
		for (uint32_t i = 0; i < atomic_load(&r->n_rings); i++)
			*lost += r->ring[i]->lost;
	}
	snprintf(name, sizeof(name), "%s", r->seg.source);
	rc = r->failed ? r->err.code : write_batch(r, &r->err);
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
	destroy(r);
	return rc;
}

void pl_train_rec_abort(struct pl_recorder *r)
{
	if (!r)
		return;
	stop(r);
	pl_trace_writer_abort(r->sink);
	pl_out_abort(r->out);
	destroy(r);
}
