/*
 * The engine carries out steps from the heads of the queues as far as possible, and never blocks.
 *
 * A segment is a header of PL_HEADER_BYTES and its data. Data that will be added is received into a
 * stage of 64 KiB, which stays in the cache, and is summed from there as it arrives. A connection
 * is read only after epoll has reported it (edge-triggered), but callers that spin always read it.
 *
 * Shaped links: a segment that becomes ready at t leaves a link of rate r at max(t, free) +
 * bytes/r. The link is busy until then, and the segment arrives `latency` later. The sender writes
 * it at once, and its step ends when the segment has left. The header says when the segment
 * arrives, and the receiver does not use the data before. Where the two ranks have no common clock,
 * or more data is in flight than the transport can hold, the sender waits until the segment
 * arrives. The clock of the link is virtual: a late wake-up delays the link only by what exceeds
 * the time of the segment. A send over such a link is recorded for the time in which it occupies
 * the link. The latency and the real time of the transport are part of the recorded receive.
 */
#include <errno.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "comm/internal.h"

#define LIBRARY_NS_A_BYTE 20		    /* 50 MB/s */
#define SOCKET_BYTES	  ((size_t)4 << 20) /* that a socket holds by default on Linux */

/*
 * Large vectors are sent and received by turns, in portions. One rank copies a portion into the
 * kernel, and the peer copies it out of the cache. On loopback this is twice as fast from 4 MiB on.
 * Portions of 48 KiB and more may lose this gain. Small vectors are faster in one portion.
 */
static size_t portion(size_t bytes)
{
	if (bytes < (size_t)1 << 20)
		return SIZE_MAX;
	return bytes < (size_t)4 << 20 ? (size_t)56 << 10 : (size_t)40 << 10;
}

/* ---- bytes ---- */

/* Writes v to the ring (out), or reads from it into v, as far as possible. */
static size_t ring_move(struct pl_ring *r, const struct iovec *v, int n, bool out)
{
	_Atomic uint64_t *own = out ? &r->head : &r->tail;
	uint64_t other = atomic_load_explicit(out ? &r->tail : &r->head, memory_order_acquire);
	uint64_t pos = atomic_load_explicit(own, memory_order_relaxed);
	/* the peer can write its counter, so the counter is not trusted */
	size_t used = pl_min_size((size_t)(out ? pos - other : other - pos), PL_RING_BYTES);
	size_t left = out ? PL_RING_BYTES - used : used, total = 0;

	for (int i = 0; i < n && left; i++) {
		uint8_t *p = v[i].iov_base;
		size_t m = pl_min_size(v[i].iov_len, left);
		size_t at = (size_t)pos & (PL_RING_BYTES - 1);
		size_t first = pl_min_size(m, PL_RING_BYTES - at);

		if (out) {
			memcpy(r->data + at, p, first);
			memcpy(r->data, p + first, m - first);
		} else {
			memcpy(p, r->data + at, first);
			memcpy(p + first, r->data, m - first);
		}
		pos += m;
		left -= m;
		total += m;
	}
	atomic_store_explicit(own, pos, memory_order_release);
	return total;
}

static void connection_broken(struct pl_world *w, struct pl_conn *c, const char *why)
{
	struct pl_peer *p = &w->peer[c->peer];

	c->broken = true;
	if (!atomic_load(&p->broken)) {
		snprintf(p->broken_why, sizeof(p->broken_why), "%s", why);
		atomic_store(&p->broken, pl_now_ns());
	}
	pl_comm_kick(w->control_wake);
}

/* Sends v (out), or receives into it, what is possible now. */
static size_t conn_move(struct pl_world *w, struct pl_conn *c, struct iovec *v, int n, bool out)
{
	struct msghdr m = { .msg_iov = v, .msg_iovlen = (size_t)n };
	_Atomic bool *ready = out ? &c->writable : &c->readable;
	ssize_t got;

	if (c->out) {
		size_t done = ring_move(out ? c->out : c->in, v, n, out);

		if (done)
			pl_comm_world_wake_rank(w, c->peer);
		return done;
	}
	/* cleared before the call, because an edge during the call sets it again */
	atomic_store(ready, false);
	got = out ? sendmsg(c->fd, &m, MSG_NOSIGNAL | MSG_DONTWAIT)
		  : recvmsg(c->fd, &m, MSG_DONTWAIT);
	if (got > 0 || (got < 0 && errno == EINTR))
		atomic_store(ready, true);
	else if (got == 0)
		connection_broken(w, c, "the connection was closed");
	else if (errno != EAGAIN && errno != EWOULDBLOCK)
		connection_broken(w, c, strerror(errno));
	return got > 0 ? (size_t)got : 0;
}

/* ---- steps ---- */

bool pl_comm_step_ready(const struct pl_step *s)
{
	for (uint32_t i = 0; i < s->n_after; i++)
		if (!s->work->step[s->after + i].done)
			return false;
	return true;
}

/*
 * The time from which a step could have run: its collective had begun, the steps before it were
 * done, and its connection was free. This thread serves one connection after another, so it may
 * look at the step later. In the events, that delay is part of the step.
 */
pl_ns pl_comm_step_could_begin(const struct pl_step *s, pl_ns freed)
{
	pl_ns t = pl_max_i64(s->work->begin, freed);

	for (uint32_t i = 0; i < s->n_after; i++)
		t = pl_max_i64(t, s->work->step[s->after + i].end);
	return t;
}

void pl_comm_step_done(struct pl_world *w, struct pl_step *s)
{
	struct pl_work *k = s->work;
	bool sends = s->kind == PL_STEP_SEND, moves = s->kind <= PL_STEP_RECV_BEFORE;

	k->last_progress = s->end = pl_now_ns();
	if (sends)
		atomic_fetch_add_explicit(&w->sent, s->bytes, memory_order_relaxed);
	if (w->o.event && moves && k->a.op > PL_OP_RECV) {
		struct pl_comm_event e = {
			.op = sends ? PL_OP_SEND : PL_OP_RECV,
			.peer = s->peer,
			.channel = s->channel,
			.chunk = s->chunk,
			.bytes = s->bytes,
			.begin = s->ready,
			.end = s->departure ? s->departure : k->last_progress,
		};
		pl_comm_work_report(k, &e);
	}
	s->done = true;
	if (--k->steps_left == 0)
		k->state = PL_WORK_DONE;
}

/* Does the receiver delay the data of this connection? Only if the ranks have one clock, and the
 * transport can hold the data in flight. The answer is always the same. It is not kept, because it
 * takes less time than reading the clock, which every caller does next. */
static bool receiver_delays(const struct pl_world *w, const struct pl_conn *c)
{
	const struct pl_peer *p = &w->peer[c->peer];
	double in_flight = p->bytes_per_ns * (double)p->latency + (double)w->segment;

	return p->who.clock == w->peer[w->rank].who.clock && p->bytes_per_ns > 0 &&
	       in_flight <= (double)(c->out ? PL_RING_BYTES : SOCKET_BYTES);
}

/* The time in which a segment that is ready occupies its link. A thread that had to wait for a
 * processor writes a segment later than a network would have taken it. That time counts as part of
 * the send, or else nothing would explain why the data came so late. */
static void occupy(struct pl_peer *p, struct pl_step *s)
{
	s->ready = pl_comm_step_could_begin(s, *p->link_free_at);
	s->departure = s->ready;
	if (p->bytes_per_ns > 0)
		s->departure += (pl_ns)((double)s->bytes / p->bytes_per_ns);
	*p->link_free_at = s->departure = pl_max_i64(s->departure, pl_now_ns());
}

/* false: it is not `due` yet, and the engine must check again then */
static bool reached(struct pl_world *w, pl_ns due)
{
	if (due <= pl_now_ns())
		return true;
	if (!w->next_wakeup || due < w->next_wakeup)
		w->next_wakeup = due;
	return false;
}

/* May the head of the queue be written now? A sender that delays its data must know early when the
 * segments behind the head leave, because they follow one another on the link. */
static bool can_send(struct pl_world *w, struct pl_conn *c, struct pl_step *s)
{
	struct pl_peer *p = &w->peer[c->peer];

	if (!s->ready && !pl_comm_step_ready(s))
		return false;
	if (!w->shaped) {
		if (!s->ready)
			s->ready = pl_comm_step_could_begin(s, c->sends.freed);
		return true;
	}
	if (!s->departure)
		occupy(p, s);
	if (c->sent > 0 || receiver_delays(w, c))
		return true;
	for (struct pl_step *k = s->next; k && pl_comm_step_ready(k); k = k->next)
		if (!k->departure)
			occupy(p, k);
	return reached(w, s->departure + p->latency);
}

/* The head of the queue is written. Over a shaped link its step ends at the departure. */
static bool end_send(struct pl_world *w, struct pl_conn *c, struct pl_step *s)
{
	if (!reached(w, s->departure))
		return false;
	c->sent = 0;
	c->sends.head = c->sends.head->next;
	pl_comm_step_done(w, s);
	c->sends.freed = s->end;
	return true;
}

static bool pump_send(struct pl_world *w, struct pl_conn *c, bool all)
{
	struct pl_step *s = c->sends.head;
	struct iovec v[2];
	int n = 0;
	size_t done, body;

	if (!s || c->broken || !can_send(w, c, s))
		return false;
	if (c->sent == PL_HEADER_BYTES + s->bytes)
		return end_send(w, c, s);
	if (!c->out && !all && !atomic_load(&c->writable))
		return false;
	if (c->sent == 0) {
		struct pl_header h = { .op = s->work->a.op,
				       .algo = s->work->a.algo,
				       .chunk = s->chunk,
				       .bytes = (uint32_t)s->bytes,
				       .seq = s->work->seq,
				       .tag = s->work->a.tag };

		if (w->shaped && receiver_delays(w, c))
			h.due = s->departure + w->peer[c->peer].latency;
		pl_comm_header_put(c->header_out, &h);
	}
	if (c->sent < PL_HEADER_BYTES)
		v[n++] = (struct iovec){ c->header_out + c->sent, PL_HEADER_BYTES - c->sent };
	body = c->sent > PL_HEADER_BYTES ? c->sent - PL_HEADER_BYTES : 0;
	if (body < s->bytes)
		v[n++] = (struct iovec){ (void *)(uintptr_t)(s->a + body),
					 pl_min_size(s->bytes - body, s->work->portion) };
	done = conn_move(w, c, v, n, true);
	c->sent += done;
	atomic_fetch_add_explicit(&w->peer[c->peer].bytes_sent, done, memory_order_relaxed);
	if (done)
		s->work->last_progress = pl_now_ns();
	if (c->sent == PL_HEADER_BYTES + s->bytes)
		end_send(w, c, s);
	return done > 0;
}

/* The header of a segment is received. It must belong to the step. It says when the data arrive. */
static bool receive_header(struct pl_world *w, struct pl_conn *c, const struct pl_step *s)
{
	struct pl_err e = { 0 };
	struct pl_header h = { 0 };
	const struct pl_work *k = s->work;
	uint8_t op = k->a.op == PL_OP_RECV ? PL_OP_SEND : k->a.op;

	if (pl_comm_header_get(c->header_in, &h, &e) < 0) {
		pl_comm_world_fail(w, c->peer, "rank %d: %s", pl_comm_name(w, c->peer), e.msg);
		return false;
	}
	if (h.op == op && h.algo == k->a.algo && h.seq == k->seq && h.chunk == s->chunk &&
	    h.bytes == s->bytes) {
		c->due = h.due;
		return true;
	}
	pl_comm_world_fail(
		w, c->peer,
		"rank %d sent %u bytes (piece %u) of %s %llu by %s, expected were %zu (piece %u) "
		"of %s %llu by %s: ranks must begin the same operations with the same sizes",
		pl_comm_name(w, c->peer), h.bytes, h.chunk, pl_comm_operation_name(h.op),
		(unsigned long long)h.seq, pl_comm_algorithm_name(h.algo), s->bytes, s->chunk,
		pl_comm_operation_name(op), (unsigned long long)k->seq,
		pl_comm_algorithm_name(k->a.algo));
	return false;
}

void pl_comm_step_apply(const struct pl_step *s, const uint8_t *came, size_t at, size_t bytes)
{
	float *d = (float *)(void *)(s->dst + at);
	const float *own =
		s->a ? (const float *)(const void *)(s->a + at) : NULL; /* a receive has none */
	const float *in = (const float *)(const void *)came;
	size_t n = bytes / sizeof(float);

	switch (s->kind) {
	case PL_STEP_RECV:
		memcpy(d, in, bytes);
		break;
	case PL_STEP_RECV_ADD:
		pl_comm_sum(d, own, in, n);
		break;
	case PL_STEP_RECV_BEFORE:
		pl_comm_sum(d, in, own, n);
		break;
	case PL_STEP_ADD:
		pl_comm_sum(d, d, own, n);
		break;
	case PL_STEP_ADD_BEFORE:
		pl_comm_sum(d, own, d, n);
		break;
	default:
		memmove(d, own, bytes);
	}
}

/* Sums the whole floats of the stage. A rest of less than a float moves to its start. */
static void add_stage(struct pl_conn *c, const struct pl_step *s)
{
	size_t n = c->fill & ~(sizeof(float) - 1);

	pl_comm_step_apply(s, c->stage, c->summed, n);
	c->summed += n;
	c->fill -= n;
	memmove(c->stage, c->stage + n, c->fill);
}

static bool pump_recv(struct pl_world *w, struct pl_conn *c, bool all)
{
	struct pl_step *s = c->recvs.head;
	struct iovec v[2];
	size_t done, body, had = c->got;
	int n = 0;

	if (!s || c->broken || (!c->in && !all && !atomic_load(&c->readable)))
		return false;
	if (!s->ready) {
		if (!pl_comm_step_ready(s))
			return false;
		s->ready = pl_comm_step_could_begin(s, c->recvs.freed);
	}
	if (had == PL_HEADER_BYTES && !reached(w, c->due))
		return false;
	if (had < PL_HEADER_BYTES)
		v[n++] = (struct iovec){ c->header_in + had, PL_HEADER_BYTES - had };
	body = had > PL_HEADER_BYTES ? had - PL_HEADER_BYTES : 0;
	if (body < s->bytes && (had >= PL_HEADER_BYTES || !w->shaped)) {
		if (s->kind != PL_STEP_RECV)
			v[n++] = (struct iovec){ c->stage + c->fill,
						 pl_min_size(PL_STAGE - c->fill, s->bytes - body) };
		else
			v[n++] = (struct iovec){ s->dst + body,
						 pl_min_size(s->bytes - body, s->work->portion) };
	}
	done = n ? conn_move(w, c, v, n, false) : 0;
	if (n && !done)
		return false;
	c->got += done;
	w->peer[c->peer].bytes_received += done;
	s->work->last_progress = pl_now_ns();
	if (had <= PL_HEADER_BYTES && w->shaped)
		s->ready = s->work->last_progress;
	if (had < PL_HEADER_BYTES) {
		if (c->got < PL_HEADER_BYTES)
			return true;
		if (!receive_header(w, c, s))
			return false;
		if (w->shaped) /* the data may arrive later */
			return true;
		done = c->got - PL_HEADER_BYTES;
	}
	if (s->kind != PL_STEP_RECV) {
		c->fill += done;
		add_stage(c, s);
	}
	if (c->got == PL_HEADER_BYTES + s->bytes) {
		c->got = c->fill = c->summed = 0;
		c->recvs.head = c->recvs.head->next;
		pl_comm_step_done(w, s);
		c->recvs.freed = s->end;
	}
	return true;
}

bool pl_comm_engine_local(struct pl_world *w, struct pl_work *k)
{
	struct pl_step *s = k->local.head;

	if (!s || !pl_comm_step_ready(s))
		return false;
	pl_comm_step_apply(s, NULL, 0, s->bytes);
	k->local.head = k->local.head->next;
	pl_comm_step_done(w, s);
	return true;
}

/* ---- works ---- */

void pl_comm_engine_queue(struct pl_work *k)
{
	k->state = k->n_steps ? PL_WORK_STEPS : PL_WORK_DONE;
	k->steps_left = k->n_steps;
	k->portion = portion(pl_comm_coll_bytes(k->w, &k->a));
	for (size_t i = 0; i < k->n_steps; i++) {
		struct pl_step *s = &k->step[i];
		struct pl_queue_of_steps *q = &k->local;

		s->work = k;
		s->next = NULL;
		if (s->kind <= PL_STEP_RECV_BEFORE) {
			/* connection 0 carries sends and receives; the channels follow */
			struct pl_conn *c = &k->w->peer[s->peer].conn[s->channel];

			q = s->kind == PL_STEP_SEND ? &c->sends : &c->recvs;
			if (k->a.op > PL_OP_RECV)
				s->channel--;
		}
		if (q->head)
			q->last->next = s;
		else
			q->head = s;
		q->last = s;
	}
}

/* Lock held. */
static void take_queued(struct pl_world *w)
{
	if (w->active)
		w->active_last->next = w->queued;
	else
		w->active = w->queued;
	w->active_last = w->queued ? w->queued_last : w->active_last;
	if (w->device.b && !w->device.held)
		w->device.held = w->queued;
	w->queued = NULL;
	atomic_store(&w->has_queued, false);
}

void pl_comm_engine_take(struct pl_world *w)
{
	struct pl_work *k;

	if (atomic_load_explicit(&w->has_queued, memory_order_acquire)) {
		pthread_mutex_lock(&w->lock);
		take_queued(w);
		pthread_mutex_unlock(&w->lock);
	}
	while ((k = w->device.held) && pl_comm_device_ready(k)) {
		w->device.held = k->next;
		if (k->next) /* before that it waited for earlier works */
			k->next->last_progress = pl_now_ns();
	}
}

/* Advance the works without messages in the order of their beginning. */
static bool pump_works(struct pl_world *w)
{
	bool may_post = true, may_decide = true, moved = false;

	for (struct pl_work *k = w->active; k != w->device.held; k = k->next) {
		if (k->a.op <= PL_OP_RECV) {
			if (k->state == PL_WORK_QUEUED)
				pl_comm_engine_queue(k), moved = true;
			continue;
		}
		if (k->direct && k->state < PL_WORK_STEPS)
			moved |= pl_comm_shared_coll_step(w, k, may_post, may_decide);
		else if (k->state == PL_WORK_QUEUED && may_decide)
			pl_comm_engine_queue(k), moved = true;
		if (k->state == PL_WORK_STEPS)
			while (pl_comm_engine_local(w, k))
				moved = true;
		may_post &= !k->direct || k->state > PL_WORK_QUEUED;
		may_decide &= k->state > PL_WORK_POSTED;
	}
	return moved;
}

bool pl_comm_engine_sweep(struct pl_world *w)
{
	struct pl_work **at = &w->active, *k, *before = NULL;
	bool any = false;

	while ((k = *at)) {
		if (k->state != PL_WORK_DONE) {
			at = &k->next;
			before = k;
			continue;
		}
		any = true;
		*at = k->next;
		if (!k->next)
			w->active_last = before;
		pl_comm_work_end(k);
	}
	return any;
}

bool pl_comm_engine_step(struct pl_world *w, bool all)
{
	bool moved = false;

	if (atomic_load(&w->failed))
		return false;
	pl_comm_engine_take(w);
	if (w->active == w->device.held)
		return false;
	moved = pump_works(w);
	w->next_wakeup = 0;
	for (int r = 0; r < w->size; r++) {
		struct pl_conn *c = w->peer[r].conn;

		for (int i = 0; c && i < w->n_conns; i++) {
			moved |= pump_send(w, &c[i], all);
			moved |= pump_recv(w, &c[i], all);
		}
	}
	return pl_comm_engine_sweep(w) || moved;
}

void pl_comm_engine_fail(struct pl_world *w)
{
	struct pl_work *k;

	take_queued(w);
	w->device.held = NULL;
	for (int r = 0; r < w->size; r++)
		for (int i = 0; w->peer[r].conn && i < w->n_conns; i++) {
			struct pl_conn *c = &w->peer[r].conn[i];

			c->sends.head = c->recvs.head = NULL;
		}
	while ((k = w->active)) {
		w->active = k->next;
		k->failed = true;
		if (k->device.detached && !w->library.abandoned)
			pl_comm_work_free(k);
		else
			atomic_store(&k->done, true);
	}
	pthread_cond_broadcast(&w->changed);
}

/* ---- deadlines ---- */

/* Did the last heartbeat of the rank report the operation as begun? true if it takes no part. */
static bool has_begun(const struct pl_world *w, const struct pl_work *k, int r)
{
	if (r == w->rank || k->a.op == PL_OP_SEND || (k->a.op == PL_OP_RECV && r != k->a.root))
		return true;
	if (k->a.op == PL_OP_RECV)
		return atomic_load(&w->peer[r].messages) > k->seq;
	return atomic_load(&w->peer[r].begun) > k->seq;
}

/* The first rank that has not begun the operation (left: and has left the world); -1: none. */
static int not_begun(const struct pl_world *w, const struct pl_work *k, bool left)
{
	for (int r = 0; r < w->size; r++) {
		/* looked at first, because the last heartbeat comes just before the good-bye */
		bool counts = !left || atomic_load(&w->peer[r].said_goodbye);

		if (counts && !has_begun(w, k, r))
			return r;
	}
	return -1;
}

/*
 * Finds the rank that the operation waits for, and the reason; -1: no particular rank. sure: only a
 * rank that announced more data than arrived, because a rank that sends nothing may itself wait.
 */
static int waits_for(struct pl_world *w, const struct pl_work *k, bool sure, const char **what)
{
	int slow = pl_comm_shared_coll_waits_for(w, k);

	*what = "its part";
	if (slow >= 0)
		return slow;
	if (k->state == PL_WORK_STEPS && k->local.head && k->local.head->mark) {
		*what = "its device";
		return w->rank;
	}
	if (k->state == PL_WORK_IN_LIBRARY && (slow = not_begun(w, k, false)) >= 0)
		return slow;
	for (int r = 0; r < w->size; r++) {
		struct pl_conn *c = w->peer[r].conn;

		for (int i = 0; c && i < w->n_conns; i++) {
			const struct pl_step *in = c[i].recvs.head;

			if (in && in->work == k && in->mark) {
				*what = "its device";
				return w->rank;
			}
			if (in && in->work == k && pl_comm_step_ready(in) &&
			    (!sure || w->peer[r].bytes_received <
					      atomic_load(&w->peer[r].bytes_announced))) {
				*what = "data from it";
				return r;
			}
			if (sure)
				continue;
			if (c[i].sends.head && c[i].sends.head->work == k &&
			    pl_comm_step_ready(c[i].sends.head)) {
				*what = "it to take data";
				return r;
			}
		}
	}
	return -1;
}

/* Extends the deadlines of all works by the time in which this process was stopped. */
static void extend_deadlines(struct pl_world *w, pl_ns now)
{
	pl_ns more = atomic_load(&w->stopped_ns) - w->allowed_ns;

	w->allowed_ns += more;
	for (struct pl_work *k = w->active; k && more; k = k->next) {
		k->last_progress = pl_min_i64(now, k->last_progress + more);
		if (k->all_begun_at)
			k->all_begun_at = pl_min_i64(now, k->all_begun_at + more);
	}
}

/* The longest time without progress of a library: that of the data at a very low rate. */
static pl_ns library_time(const struct pl_world *w, const struct pl_work *k)
{
	return k->state == PL_WORK_IN_LIBRARY
		       ? (pl_ns)(pl_comm_coll_bytes(w, &k->a) * LIBRARY_NS_A_BYTE)
		       : 0;
}

static bool is_behind(const struct pl_work *k)
{
	return k->state == PL_WORK_QUEUED || k->state == PL_WORK_IN_LIBRARY;
}

static void report_late(struct pl_world *w, const struct pl_work *k, int r, const char *what,
			pl_ns still)
{
	const char *name = pl_comm_operation_name(k->a.op);
	unsigned long long seq = (unsigned long long)k->seq;

	if (r < 0 && k->state == PL_WORK_IN_LIBRARY)
		pl_comm_world_fail(w, w->rank,
				   "%s %llu: rank %d waited %.1f s for %s to end it; all ranks had "
				   "begun it",
				   name, seq, pl_comm_name(w, w->rank), (double)still / 1e9,
				   w->library.calls->name);
	else if (r == w->rank)
		pl_comm_world_fail(w, r, "%s %llu: rank %d waited %.1f s for %s", name, seq,
				   pl_comm_name(w, r), (double)still / 1e9, what);
	else
		pl_comm_world_fail(w, r < 0 ? w->rank : r,
				   "%s %llu: waited %.1f s for rank %d (%s)%s", name, seq,
				   (double)still / 1e9, pl_comm_name(w, r < 0 ? w->rank : r), what,
				   !k->all_begun_at ? ", which lives but has not begun it"
				   : k->direct	    ? ", which lives but moves no data"
						    : ", whose connection lets nothing through");
}

void pl_comm_engine_check(struct pl_world *w, pl_ns now)
{
	/* the control thread has not noticed yet that this process was stopped */
	if (now - w->checked < 20000000 || now - atomic_load(&w->due) > PL_STOPPED_NS(w))
		return;
	w->checked = now;
	extend_deadlines(w, now);
	/* other ranks may wait for this one's late device; if all wait so, none is active */
	if (w->device.held && now - w->device.held->last_progress >= w->patience)
		report_late(w, w->device.held, w->rank, "its device, which has not come to it",
			    now - w->device.held->last_progress);
	for (struct pl_work *k = w->active; k != w->device.held; k = k->next) {
		const char *what;
		pl_ns still, limit = w->timeout + w->slowest_segment_ns + library_time(w, k);
		int r = not_begun(w, k, true);

		if (r >= 0) {
			pl_comm_world_fail(w, r, "rank %d left before it", pl_comm_name(w, r));
			return;
		}
		if (!k->all_begun_at && not_begun(w, k, false) < 0)
			k->all_begun_at = now;
		still = now - pl_max_i64(k->last_progress, k->all_begun_at);
		/* an operation in a device's queue begins when the device reaches it */
		if (!k->all_begun_at || w->device.native)
			limit = pl_max_i64(limit, w->patience);
		if (k->a.op == PL_OP_SEND &&
		    !atomic_load(&w->peer[k->a.root].said_goodbye)) /* it may not receive yet */
			limit = pl_max_i64(limit, w->patience);
		if (still < limit || (k != w->active && is_behind(k)))
			continue;
		r = waits_for(w, k, true, &what);
		/* the rank at the broken connection reports first, if there is one */
		if (r < 0 && still < limit + w->timeout / 3)
			continue;
		if (r < 0)
			r = waits_for(w, k, false, &what);
		if (r < 0 && w->active != k)
			continue; /* it waits for an operation before it */
		report_late(w, k, r, what, still);
		return;
	}
}
