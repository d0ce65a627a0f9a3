/*
 * Are the other ranks alive? A connection to each of them carries only heartbeats, aborts and
 * good-byes, and one thread serves all these connections, whatever other threads do.
 *
 * A rank counts as dead if its connection ends without a good-bye, or if nothing came from it for
 * the timeout. The rank that notices this tells all others which rank failed. Each rank reports the
 * first failure that it learns of. If only a connection for data breaks, no rank is blamed at once:
 * the other side may have closed it because of a third rank, and then its abort arrives soon.
 *
 * If a machine stops for a while, all its ranks stop together. So deadlines count only the time in
 * which this thread could run. It knows the time at which it wanted to wake up.
 */
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "comm/internal.h"

/* A full buffer is no error here: other code notices the silence of the other side later. */
static void queue_frame(struct pl_peer *p, const struct pl_frame *f)
{
	if (!p->disconnected)
		pl_comm_link_send(&p->control, f);
}

/* The next read reports an error. */
static void flush_link(struct pl_peer *p)
{
	if (!p->disconnected && pl_comm_link_flush(&p->control, NULL) < 0)
		return;
}

void pl_comm_world_fail(struct pl_world *w, int rank, const char *fmt, ...)
{
	bool first;
	va_list ap;

	pthread_mutex_lock(&w->lock);
	first = !atomic_load(&w->failed);
	if (first) {
		va_start(ap, fmt);
		vsnprintf(w->failure, sizeof(w->failure), fmt, ap);
		va_end(ap);
		w->failed_rank = rank;
		atomic_store(&w->failed, true);
	}
	pthread_cond_broadcast(&w->changed);
	pthread_cond_broadcast(&w->resume);
	pthread_mutex_unlock(&w->lock);
	if (first && w->o.lost)
		w->o.lost(w->o.lost_arg, w->failure);
	pl_comm_kick(w->wake);
	pl_comm_kick(w->control_wake);
}

/* ---- receiving ---- */

/* Has the other rank begun the same collectives? The rank that has begun more compares, because
 * NCCL does not: it would wait for ever, or sum data that do not belong together. */
static void compare_digests(struct pl_world *w, int rank, uint64_t n, uint64_t digest)
{
	struct pl_peer *p = &w->peer[rank];
	bool known, other;
	uint64_t own;

	pthread_mutex_lock(&w->lock);
	own = atomic_load(&w->begun);
	known = n && n <= own && own - n < PL_DIGESTS;
	other = known && w->device.digests[(n - 1) % PL_DIGESTS] != digest;
	pthread_mutex_unlock(&w->lock);
	if (other)
		pl_comm_world_fail(
			w, rank,
			"rank %d and rank %d did not begin the same collectives with the "
			"same sizes: one of number %llu to %llu differs",
			pl_comm_name(w, rank < w->rank ? rank : w->rank),
			pl_comm_name(w, rank < w->rank ? w->rank : rank),
			(unsigned long long)p->same_collectives, (unsigned long long)n - 1);
	else if (known)
		p->same_collectives = n;
}

static void handle_frame(struct pl_world *w, int rank, const struct pl_frame *f)
{
	struct pl_peer *p = &w->peer[rank];

	switch (f->kind) {
	case PL_FRAME_HEARTBEAT:
		atomic_store(&p->begun, f->heartbeat.begun);
		atomic_store(&p->messages, f->heartbeat.messages);
		atomic_store(&p->bytes_announced, f->heartbeat.bytes);
		if (w->device.native)
			compare_digests(w, rank, f->heartbeat.compared, f->heartbeat.digest);
		break;
	case PL_FRAME_ABORT:
		pl_comm_world_fail(w, (int)f->rank, "%s", f->text);
		break;
	case PL_FRAME_GOODBYE:
		atomic_store(&p->said_goodbye, true);
		pthread_mutex_lock(&w->lock);
		pthread_cond_broadcast(&w->changed);
		pthread_mutex_unlock(&w->lock);
		break;
	default:
		pl_comm_world_fail(w, rank, "rank %d sent a message that does not belong here",
				   pl_comm_name(w, rank));
	}
}

static void receive_frames(struct pl_world *w, int rank)
{
	struct pl_peer *p = &w->peer[rank];
	struct pl_err e = { 0 };
	struct pl_frame f;
	int rc;

	while ((rc = pl_comm_link_receive(&p->control, &f, &e)) > 0) {
		p->last_heard = pl_now_ns();
		handle_frame(w, rank, &f);
	}
	if (rc == PL_EDATA)
		pl_comm_world_fail(w, rank, "rank %d: %s", pl_comm_name(w, rank), e.msg);
	p->disconnected |= rc < 0;
	if (rc < 0 && !atomic_load(&p->said_goodbye))
		pl_comm_world_fail(w, rank, "rank %d is gone (%s)", pl_comm_name(w, rank), e.msg);
}

/* ---- sending ---- */

static void send_heartbeats(struct pl_world *w)
{
	uint64_t compared, digest;

	pthread_mutex_lock(&w->lock);
	compared = w->device.native ? atomic_load(&w->begun) : 0;
	digest = compared ? w->device.digests[(compared - 1) % PL_DIGESTS] : 0;
	pthread_mutex_unlock(&w->lock);
	for (int r = 0; r < w->size; r++) {
		struct pl_peer *p = &w->peer[r];
		struct pl_frame f = { .kind = PL_FRAME_HEARTBEAT, .rank = (uint32_t)w->rank };

		if (r == w->rank)
			continue;
		f.heartbeat.begun = atomic_load(w->device.b ? &w->device.ready : &w->begun);
		f.heartbeat.messages =
			atomic_load(w->device.b ? &p->sends_on_host : &p->sends_begun);
		f.heartbeat.bytes = atomic_load(&p->bytes_sent);
		f.heartbeat.compared = compared;
		f.heartbeat.digest = digest;
		queue_frame(p, &f);
	}
}

static void tell_all(struct pl_world *w, uint8_t kind)
{
	struct pl_frame f = { .kind = kind, .rank = (uint32_t)w->rank };

	if (kind == PL_FRAME_ABORT) {
		pthread_mutex_lock(&w->lock);
		f.rank = (uint32_t)w->failed_rank;
		snprintf(f.text, sizeof(f.text), "%.500s", w->failure);
		pthread_mutex_unlock(&w->lock);
	} else {
		send_heartbeats(w);
	}
	for (int r = 0; r < w->size; r++) {
		if (r == w->rank)
			continue;
		queue_frame(&w->peer[r], &f);
		flush_link(&w->peer[r]);
	}
}

/* ---- ranks that are silent ---- */

static void look_for_dead(struct pl_world *w, pl_ns now)
{
	for (int r = 0; r < w->size; r++) {
		struct pl_peer *p = &w->peer[r];
		pl_ns broken = atomic_load(&p->broken);

		if (r == w->rank || p->disconnected || atomic_load(&p->said_goodbye))
			continue;
		if (now - p->last_heard > w->timeout)
			pl_comm_world_fail(w, r, "rank %d gave no sign of life for %.1f s",
					   pl_comm_name(w, r), (double)(now - p->last_heard) / 1e9);
		else if (broken && now - broken > pl_min_i64(w->timeout / 4, 200000000))
			pl_comm_world_fail(w, r, "a connection to rank %d broke (%s)",
					   pl_comm_name(w, r), p->broken_why);
	}
}

static void wait_for_frames(struct pl_world *w, struct pollfd *p, pl_ns until)
{
	pl_ns left = until - pl_now_ns();
	uint64_t n;

	for (int r = 0; r < w->size; r++) {
		struct pl_peer *q = &w->peer[r];

		p[r].fd = q->disconnected || r == w->rank ? -1 : q->control.fd;
		p[r].events = (short)(POLLIN | (q->control.n_out ? POLLOUT : 0));
		p[r].revents = 0;
	}
	p[w->size] = (struct pollfd){ .fd = w->control_wake, .events = POLLIN };
	if (poll(p, (nfds_t)w->size + 1, (int)pl_max_i64(0, (left + 999999) / 1000000)) < 0)
		return;
	if (p[w->size].revents && read(w->control_wake, &n, sizeof(n)) < 0)
		return; /* another thread was faster */
}

static bool any_broken(const struct pl_world *w)
{
	for (int r = 0; r < w->size; r++)
		if (atomic_load(&w->peer[r].broken))
			return true;
	return false;
}

/* Time in which this process could not run does not count: others may have been stopped too. */
static void excuse_others(struct pl_world *w, pl_ns now, pl_ns held)
{
	if (held < PL_STOPPED_NS(w))
		return;
	for (int r = 0; r < w->size; r++)
		w->peer[r].last_heard = pl_min_i64(now, w->peer[r].last_heard + held);
	atomic_fetch_add(&w->stopped_ns, held);
}

static void *control_main(void *arg)
{
	struct pl_world *w = arg;
	struct pollfd *p = w->polls;
	pl_ns next = pl_now_ns(), last = next;
	bool said_bye = false;

	for (int r = 0; r < w->size; r++)
		w->peer[r].last_heard = next;
	while (!atomic_load(&w->control_stop)) {
		/* after a failure, a library must be ended or abandoned soon */
		bool hurry = any_broken(w) || (w->library.calls && atomic_load(&w->failed));
		pl_ns until = hurry ? pl_min_i64(next, last + 20000000) : next, now;

		atomic_store(&w->due, until);
		wait_for_frames(w, p, until);
		now = pl_now_ns();
		for (int r = 0; r < w->size; r++)
			if (p[r].fd >= 0 && (p[r].revents & ~POLLOUT))
				receive_frames(w, r);
		if (atomic_load(&w->failed) && !w->failure_told) {
			tell_all(w, PL_FRAME_ABORT);
			pthread_mutex_lock(&w->lock);
			w->failure_told = true;
			pthread_cond_broadcast(&w->changed);
			pthread_mutex_unlock(&w->lock);
		}
		if (atomic_load(&w->closing) && !said_bye && !w->failure_told) {
			tell_all(w, PL_FRAME_GOODBYE);
			said_bye = true;
		}
		if (now >= next) {
			send_heartbeats(w);
			next = now + w->heartbeat_ns;
			if (w->device.b && !atomic_load(&w->failed))
				pl_comm_device_look(w, now);
		}
		for (int r = 0; r < w->size; r++)
			flush_link(&w->peer[r]);
		excuse_others(w, now, now - until);
		last = now;
		if (!atomic_load(&w->failed))
			look_for_dead(w, now);
		if (w->library.calls) {
			pthread_mutex_lock(&w->lock);
			pl_comm_library_watch(w);
			pthread_mutex_unlock(&w->lock);
		}
	}
	/* the last rank to close waits for no good-bye, and stops this thread at once */
	if (atomic_load(&w->closing) && !said_bye && !w->failure_told)
		tell_all(w, PL_FRAME_GOODBYE);
	return NULL;
}

int pl_comm_control_start(struct pl_world *w, struct pl_err *err)
{
	w->control_wake = pl_fail_now() ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (w->control_wake < 0)
		return pl_fail_sys(err, "cannot make an event descriptor");
	w->control_runs = pl_comm_thread_start(&w->control, control_main, w, err) == 0;
	return w->control_runs ? 0 : err->code;
}

void pl_comm_control_stop(struct pl_world *w)
{
	if (w->control_runs) {
		atomic_store(&w->control_stop, true);
		pl_comm_kick(w->control_wake);
		pthread_join(w->control, NULL);
	}
	for (int r = 0; r < w->size && w->peer; r++)
		if (w->peer[r].control.fd >= 0) {
			flush_link(&w->peer[r]);
			pl_comm_link_close(&w->peer[r].control);
		}
	pl_comm_close(&w->control_wake);
}
