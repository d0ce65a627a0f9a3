/*
 * Worlds: opening and ending, waiting, and the thread that drives the engine.
 *
 * A thread that waits first drives the engine itself, without sleep, because a change of thread
 * takes three times as long as a small operation. With more ranks than processors it yields its
 * processor in every round. After that the progress thread drives. It sleeps in epoll until a
 * socket, the doorbell of shared memory or the time of a shaped link wakes it. While another thread
 * drives, the progress thread sleeps, and checks every 10 ms whether it is needed.
 */
#include <errno.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "comm/internal.h"

/* Waiting without sleep for about as long as a sleep costs: two changes of thread, each of 5 to 50
 * us with the time until a processor has left its idle state (Karlin et al., SOSP 1991). */
#define SPIN_NS	 100000
#define YIELD_NS 5000	/* of that, before the first yield: the time of a small operation */
#define SLICE_NS 100000 /* the shortest slice that Linux grants (sched_setattr(2)) */
/* Between two checks of the progress of a device. A check costs about 1 us, so this takes 2 % of a
 * processor, and a copy that has ended waits for 25 us on average. */
#define LOOK_NS	 50000
#define TAKEN_NS 2000 /* a longer yield let another thread run; alone it takes 0.3 us */
/* Between two sleeps that may move this thread to another processor: shorter than the 3 ms and more
 * of a slice, in which two ranks would go on to share one. */
#define MOVE_NS 2000000

static void pause_processor(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#endif
}

void pl_comm_wait_for(pthread_cond_t *c, pthread_mutex_t *lock, pl_ns ns)
{
	pl_ns until = pl_now_ns() + ns;
	struct timespec t = { until / 1000000000, until % 1000000000 };

	pthread_cond_timedwait(c, lock, &t);
}

int pl_comm_thread_start(pthread_t *t, void *(*main)(void *), void *arg, struct pl_err *err)
{
	errno = pl_fail_now() ? EAGAIN : pthread_create(t, NULL, main, arg);
	return errno ? pl_fail_sys(err, "cannot start a thread") : 0;
}

void pl_comm_close(int *fd)
{
	if (*fd >= 0)
		close(*fd);
	*fd = -1;
}

void pl_comm_kick(int fd)
{
	uint64_t one = 1;

	if (write(fd, &one, sizeof(one)) < 0)
		return; /* the counter is full, so the thread is awake */
}

/*
 * Lets other threads run on this processor. One of them may be the rank that this one waits for;
 * then the two would share a processor for tens of milliseconds while another one is idle, because
 * both look busy to the kernel. A short sleep puts the thread on an idle processor.
 */
static void yield_processor(struct pl_world *w)
{
	pl_ns from = pl_now_ns(), now;

	sched_yield();
	now = pl_now_ns();
	if (now - from < TAKEN_NS || now < w->next_migration)
		return;
	w->next_migration = now + MOVE_NS;
	pl_sleep_ns(1);
}

/* ---- the progress thread ---- */

static void drain(int fd)
{
	uint8_t some[64];

	while (fd >= 0 && read(fd, some, sizeof(some)) == (ssize_t)sizeof(some))
		;
}

/* Sleeps until a descriptor is ready or the time has come. */
static void sleep_until_ready(struct pl_world *w, bool busy, pl_ns due)
{
	struct epoll_event e[32];
	int n;

	if (due) {
		struct itimerspec t = { .it_value = { due / 1000000000, due % 1000000000 } };

		timerfd_settime(w->timer, TFD_TIMER_ABSTIME, &t, NULL);
	}
	n = epoll_wait(w->epoll, e, PL_LEN(e), busy ? 25 : 1000);
	for (int i = 0; i < n; i++) {
		struct pl_conn *c = e[i].data.ptr;

		if (e[i].data.ptr == &w->wake) {
			drain(w->wake);
		} else if (e[i].data.ptr == &w->timer) {
			drain(w->timer);
		} else if (e[i].data.ptr == &w->doorbell) {
			while (recv(w->doorbell, &(char){ 0 }, 1, MSG_DONTWAIT) >= 0)
				;
		} else {
			if (e[i].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR))
				atomic_store(&c->readable, true);
			if (e[i].events & (EPOLLOUT | EPOLLHUP | EPOLLERR))
				atomic_store(&c->writable, true);
		}
	}
}

/* One round of the engine; releases the lock meanwhile. *busy and *due limit the thread's sleep. */
static bool drive(struct pl_world *w, bool all, bool *busy, pl_ns *due)
{
	bool moved;

	w->driving = true;
	pthread_mutex_unlock(&w->lock);
	moved = pl_comm_engine_step(w, all);
	if (!moved)
		pl_comm_engine_check(w, pl_now_ns());
	*busy = w->active;
	*due = w->device.held ? pl_now_ns() + LOOK_NS : w->next_wakeup;
	pthread_mutex_lock(&w->lock);
	w->driving = false;
	return moved;
}

/*
 * Asks for short slices of a processor. This thread sleeps most of the time. With short slices
 * Linux (from 6.12, EEVDF) lets it run before threads that compute; with the default slice a
 * segment often waits for a millisecond. Other systems ignore this.
 */
static void request_short_slices(void)
{
	struct {
		uint32_t size, policy;
		uint64_t flags;
		int32_t nice;
		uint32_t priority;
		uint64_t runtime, deadline, period;
	} attr = { .size = sizeof(attr), .flags = 8 /* SCHED_FLAG_KEEP_POLICY */ };

	attr.nice = getpriority(PRIO_PROCESS, 0);
	attr.runtime = SLICE_NS;

	if (syscall(SYS_sched_setattr, 0, &attr, 0u) < 0)
		errno = 0;
}

static void *progress_main(void *arg)
{
	struct pl_world *w = arg;
	struct pl_shared_rank *own = w->peer[w->rank].shared;
	bool all = true, armed = false, busy = false;
	pl_ns due = 0;

	request_short_slices();
	pthread_mutex_lock(&w->lock);
	while (!w->stop) {
		if (w->driving || atomic_load(&w->spinners) || atomic_load(&w->failed)) {
			if (atomic_load(&w->failed) && !w->driving)
				pl_comm_engine_fail(w);
			w->progress_rests = true;
			pl_comm_wait_for(&w->resume, &w->lock, 10000000);
			w->progress_rests = false;
			all = true;
			continue;
		}
		if (drive(w, all, &busy, &due)) {
			armed = false;
			continue;
		}
		all = false;
		if (!armed) {
			/* checks once more: a later change wakes this thread */
			if (own)
				atomic_store(&own->asleep, 1);
			atomic_thread_fence(memory_order_seq_cst);
			armed = true;
			continue;
		}
		if (atomic_load(&w->has_queued))
			continue; /* begun since the last check, without a wake-up */
		w->progress_sleeps = true;
		pthread_mutex_unlock(&w->lock);
		sleep_until_ready(w, busy, due);
		pthread_mutex_lock(&w->lock);
		w->progress_sleeps = false;
		armed = false;
	}
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

void pl_comm_world_call(struct pl_world *w)
{
	bool rests = w->progress_rests, sleeps = w->progress_sleeps;

	pthread_mutex_unlock(&w->lock);
	if (rests)
		pthread_cond_signal(&w->resume);
	else if (sleeps)
		pl_comm_kick(w->wake);
}

/* ---- waiting ---- */

bool pl_comm_work_done(struct pl_work *work)
{
	return atomic_load_explicit(&work->done, memory_order_acquire);
}

/* Drive until the work has ended, or nothing has moved for a while. */
static void drive_until_done(struct pl_world *w, struct pl_work *k)
{
	pl_ns since = pl_now_ns();
	bool mine = false;

	if (w->library
		    .calls) { /* the library's thread drives; looking on would take its processor */
		while (!w->oversubscribed && !pl_comm_work_done(k) && !atomic_load(&w->failed) &&
		       pl_now_ns() - since < SPIN_NS)
			pause_processor();
		return;
	}
	atomic_fetch_add(&w->spinners, 1);
	while (!mine && !pl_comm_work_done(k) && !atomic_load(&w->failed)) {
		pthread_mutex_lock(&w->lock);
		mine = !w->driving;
		w->driving = true;
		pthread_mutex_unlock(&w->lock);
		if (!mine) {
			if (pl_now_ns() - since > SPIN_NS)
				break;
			sched_yield();
		}
	}
	for (unsigned i = 0; mine && !pl_comm_work_done(k); i++) {
		if (pl_comm_engine_step(w, true)) {
			since = 0;
		} else if (atomic_load(&w->failed)) {
			break;
		} else if (!since) {
			since = pl_now_ns();
		} else if ((i & 3) == 0) {
			pl_ns idle = pl_now_ns() - since;

			if (idle > SPIN_NS)
				break;
			if (w->oversubscribed)
				sched_yield();
			else if (idle > YIELD_NS)
				yield_processor(w);
		} else {
			pause_processor();
		}
	}
	if (mine) {
		pthread_mutex_lock(&w->lock);
		w->driving = false;
		pthread_mutex_unlock(&w->lock);
	}
	atomic_fetch_sub(&w->spinners, 1);
}

/* Wait until the other ranks know of the failure, so that all ranks name the same one. */
static void wait_until_told(struct pl_world *w)
{
	pl_ns until = pl_now_ns() + 200000000;

	while (!w->failure_told && pl_now_ns() < until)
		pl_comm_wait_for(&w->changed, &w->lock, 10000000);
}

int pl_comm_work_wait(struct pl_work *k, struct pl_err *err)
{
	struct pl_world *w = k->w;
	bool keep;
	int rc = 0;

	if (w->device.b && pl_comm_device_detach(k))
		return 0;
	if (!pl_comm_work_done(k))
		drive_until_done(w, k);
	pthread_mutex_lock(&w->lock);
	w->waiters++;
	/* do not wake a sleeping thread without need */
	if (!pl_comm_work_done(k) || (!w->driving && (w->active || w->queued))) {
		pl_comm_world_call(w);
		pthread_mutex_lock(&w->lock);
	}
	while (!pl_comm_work_done(k)) {
		pl_comm_library_watch(w);
		if (atomic_load(&w->failed) && !w->driving && !w->library.calls)
			pl_comm_engine_fail(w);
		else
			pl_comm_wait_for(&w->changed, &w->lock, 50000000);
	}
	w->waiters--;
	if (k->failed) {
		wait_until_told(w);
		rc = pl_comm_work_failure(w, &k->a, k->seq, err);
	}
	keep = w->library.abandoned;
	pthread_mutex_unlock(&w->lock);
	if (keep) /* a thread that was left in the library may still use it */
		return rc;
	if (w->device.b)
		pl_comm_device_waited(k);
	pl_comm_work_free(k);
	return rc;
}

int pl_comm_world_settle(struct pl_world *w, struct pl_err *err)
{
	int rc = 0;

	if (!w->device.b)
		return 0;
	pthread_mutex_lock(&w->lock);
	w->waiters++;
	while (w->device.detached && !atomic_load(&w->failed)) {
		pl_comm_library_watch(w);
		pl_comm_wait_for(&w->changed, &w->lock, 50000000);
	}
	w->waiters--;
	if (atomic_load(&w->failed)) {
		wait_until_told(w);
		rc = pl_fail(err, PL_EIO, "%s", w->failure);
	}
	pthread_mutex_unlock(&w->lock);
	if (rc == 0)
		pl_comm_device_settled(w);
	return rc;
}

int pl_comm_world_do(struct pl_world *w, const struct pl_coll_args *a, struct pl_err *err)
{
	struct pl_work *k;
	int rc = pl_comm_work_begin(w, a, false, &k, err);

	return rc < 0 ? rc : pl_comm_work_wait(k, err);
}

/* ---- opening ---- */

static int take_opts(struct pl_world *w, const struct pl_world_opts *o, struct pl_err *err)
{
	size_t n = o->token ? strlen(o->token) : 0;

	if (o->size < 1 || o->size > PL_RANKS_MAX || o->rank < 0 || o->rank >= o->size)
		return pl_fail(err, PL_EUSAGE, "rank %d of %d: ranks are 0 to %d of at most %d",
			       o->rank, o->size, o->size - 1, PL_RANKS_MAX);
	if (o->size > 1 && (n < PL_TOKEN_MIN || n > PL_TOKEN_MAX))
		return pl_fail(err, PL_EUSAGE, "token of %zu characters: %d to %d are needed", n,
			       PL_TOKEN_MIN, PL_TOKEN_MAX);
	if (o->size > 1 && !o->meet)
		return pl_fail(err, PL_EUSAGE,
			       "no place to meet: tcp:HOST:PORT or dir:PATH is needed");
	if (o->meet && strlen(o->meet) >= sizeof(w->meet))
		return pl_fail(err, PL_EUSAGE, "meeting \"%.40s...\": longer than %zu characters",
			       o->meet, sizeof(w->meet) - 1);
	if (o->connections < 0 || o->connections > PL_CHANNELS)
		return pl_fail(err, PL_EUSAGE, "%d connections a pair: at most %d", o->connections,
			       PL_CHANNELS);
	w->library.calls = o->library ? o->library : pl_comm_library_find(o->transport);
	if (o->transport && !w->library.calls && strcmp(o->transport, "auto") != 0 &&
	    strcmp(o->transport, "shm") != 0 && strcmp(o->transport, "tcp") != 0)
		return pl_fail(err, PL_EUSAGE,
			       "transport \"%s\": there are auto, shm, tcp, mpi, nccl",
			       o->transport);
	w->o = *o;
	w->rank = o->rank;
	w->size = o->size;
	memcpy(w->token, o->token ? o->token : "", n);
	snprintf(w->meet, sizeof(w->meet), "%s", o->meet ? o->meet : "");
	snprintf(w->host, sizeof(w->host), "%s", o->host ? o->host : "");
	w->timeout = o->timeout_ns > 0 ? o->timeout_ns : PL_TIMEOUT_NS;
	w->heartbeat_ns = o->heartbeat_ns > 0 ? o->heartbeat_ns : w->timeout / 3;
	w->patience = o->patience_ns > 0 ? o->patience_ns : 100 * w->timeout;
	w->segment = (o->segment ? o->segment : PL_SEGMENT) & ~(size_t)3;
	if (w->segment < 4 || w->segment > (size_t)1 << 30)
		return pl_fail(err, PL_EUSAGE, "segments of %zu bytes: 4 to 2^30", o->segment);
	w->channels = w->library.calls ? 1 : o->connections ? o->connections : 2;
	w->n_conns = 1 + w->channels;
	w->shares = !w->library.calls && (!o->transport || strcmp(o->transport, "tcp") != 0);
	if (w->library.calls && o->n_shapes)
		return pl_fail(err, PL_EUSAGE,
			       "transport %s: its links cannot be made slower; take tcp or shm",
			       w->library.calls->name);
	pl_comm_device_init(w, o->backend, o->backend_ctx);
	return 0;
}

/* The shaped links of this rank, and the time of the slowest for a segment. */
static void take_shapes(struct pl_world *w)
{
	for (int r = 0; r < w->size; r++)
		w->peer[r].link_free_at = &w->peer[r].free_at;
	for (size_t i = 0; i < w->o.n_shapes; i++) {
		const struct pl_link_shape *s = &w->o.shape[i];
		pl_ns takes = s->latency_ns;

		w->shaped = true;
		if (s->bytes_per_ns > 0)
			takes += (pl_ns)(2 * (double)w->segment / s->bytes_per_ns);
		w->slowest_segment_ns = pl_max_i64(w->slowest_segment_ns, takes);
		w->max_latency = pl_max_i64(w->max_latency, s->latency_ns);
		if (s->bytes_per_ns > 0 &&
		    (s->bytes_per_ns < w->min_bytes_per_ns || w->min_bytes_per_ns <= 0))
			w->min_bytes_per_ns = s->bytes_per_ns;
		if (s->from >= 0 && s->from != w->rank)
			continue;
		for (int r = 0; r < w->size; r++) {
			if (r == w->rank || (s->to >= 0 && s->to != r))
				continue;
			w->peer[r].bytes_per_ns = s->bytes_per_ns; /* of several the last counts */
			w->peer[r].latency = s->latency_ns;
			w->peer[r].link_free_at = s->shared ? &w->free_at : &w->peer[r].free_at;
		}
	}
}

static void take_processors(struct pl_world *w)
{
	int all = (int)pl_max_i64(sysconf(_SC_NPROCESSORS_ONLN), 1);

	/* Where a launcher binds each rank to a processor of its own this is wrong, but costs
	 * little: a rank that waits offers a processor that no other rank can use. */
	w->oversubscribed = w->n_local * (w->library.calls ? 2 : 1) > pl_processors();
	/* All ranks must choose the same algorithms, so what one rank may use does not count. */
	w->processors = w->n_hosts == 1 ? all : w->size;
}

static int add_to_epoll(struct pl_world *w, int fd, void *ptr, uint32_t events, struct pl_err *err)
{
	struct epoll_event e = { .events = events, .data.ptr = ptr };

	if (fd < 0)
		return 0;
	if (pl_fail_now() || epoll_ctl(w->epoll, EPOLL_CTL_ADD, fd, &e) < 0)
		return pl_fail_sys(err, "cannot watch a socket");
	return 0;
}

static int start_progress(struct pl_world *w, struct pl_err *err)
{
	w->epoll = pl_fail_now() ? -1 : epoll_create1(EPOLL_CLOEXEC);
	w->wake = pl_fail_now() ? -1 : eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	w->timer = pl_fail_now() ? -1 : timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
	if (w->epoll < 0 || w->wake < 0 || w->timer < 0)
		return pl_fail_sys(err, "cannot make a descriptor");
	PL_CHECK(add_to_epoll(w, w->wake, &w->wake, EPOLLIN, err));
	PL_CHECK(add_to_epoll(w, w->timer, &w->timer, EPOLLIN, err));
	PL_CHECK(add_to_epoll(w, w->doorbell, &w->doorbell, EPOLLIN, err));
	for (int r = 0; r < w->size; r++)
		for (int i = 0; w->peer[r].conn && i < w->n_conns; i++)
			PL_CHECK(add_to_epoll(w, w->peer[r].conn[i].fd, &w->peer[r].conn[i],
					      EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, err));
	PL_CHECK(pl_comm_thread_start(&w->progress, progress_main, w, err));
	w->progress_runs = true;
	return 0;
}

static struct pl_world *world_new(struct pl_err *err)
{
	struct pl_world *w;
	pthread_condattr_t a;

	if (pl_alloc(&w, 1, sizeof(*w), err) < 0)
		return NULL;
	w->epoll = w->doorbell = w->wake = w->timer = w->control_wake = w->shared_fd = -1;
	atomic_store(&w->due, INT64_MAX);
	pthread_mutex_init(&w->lock, NULL);
	pthread_mutex_init(&w->event_lock, NULL);
	pthread_condattr_init(&a);
	pthread_condattr_setclock(&a, CLOCK_MONOTONIC);
	pthread_cond_init(&w->changed, &a);
	pthread_cond_init(&w->resume, &a);
	pthread_condattr_destroy(&a);
	return w;
}

static int make_peers(struct pl_world *w, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&w->peer, (size_t)w->size, sizeof(*w->peer), err));
	for (int r = 0; r < w->size; r++)
		w->peer[r].control.fd = -1;
	PL_CHECK(pl_alloc(&w->local, (size_t)w->size, sizeof(*w->local), err));
	PL_CHECK(pl_alloc(&w->leader_of, (size_t)w->size, sizeof(*w->leader_of), err));
	PL_CHECK(pl_alloc(&w->polls, (size_t)w->size + 1, sizeof(*w->polls), err));
	for (int r = 0; r < w->size; r++) {
		struct pl_peer *p = &w->peer[r];

		if (r == w->rank)
			continue;
		PL_CHECK(pl_alloc(&p->conn, (size_t)w->n_conns, sizeof(*p->conn), err));
		for (int i = 0; i < w->n_conns; i++) /* whatever fails, nothing else is closed */
			p->conn[i].fd = -1;
		for (int i = 0; i < w->n_conns; i++) {
			struct pl_conn *c = &p->conn[i];

			c->peer = r;
			c->channel = (uint16_t)i;
			c->stage = pl_malloc(PL_STAGE);
			if (!c->stage)
				return pl_fail(err, PL_ENOMEM, "out of memory");
		}
	}
	return 0;
}

static void world_free(struct pl_world *w)
{
	if (w->library.calls && w->progress_runs)
		pl_comm_library_stop(w, NULL);
	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->resume);
	pthread_mutex_unlock(&w->lock);
	pl_comm_kick(w->wake);
	if (w->progress_runs)
		pthread_join(w->progress, NULL);
	pl_comm_control_stop(w);
	if (w->library.abandoned)
		return;
	for (int r = 0; r < w->size && w->peer; r++) {
		for (int i = 0; w->peer[r].conn && i < w->n_conns; i++) {
			pl_comm_close(&w->peer[r].conn[i].fd);
			pl_free(w->peer[r].conn[i].stage);
		}
		pl_free(w->peer[r].conn);
	}
	pl_comm_shared_close(w);
	pl_comm_device_fini(w);
	pl_comm_close(&w->epoll);
	pl_comm_close(&w->wake);
	pl_comm_close(&w->timer);
	pthread_cond_destroy(&w->changed);
	pthread_cond_destroy(&w->resume);
	pthread_mutex_destroy(&w->event_lock);
	pthread_mutex_destroy(&w->lock);
	if (!w->library.opened)
		pl_free(w->library.state);
	pl_free(w->peer);
	pl_free(w->local);
	pl_free(w->leader_of);
	pl_free(w->polls);
	pl_free(w);
}

/* The world could not be opened. The other ranks may have to be told. */
static void free_failed(struct pl_world *w)
{
	if (w->control_runs && atomic_load(&w->failed)) {
		pthread_mutex_lock(&w->lock);
		wait_until_told(w);
		pthread_mutex_unlock(&w->lock);
	}
	world_free(w);
}

int pl_comm_world_open(const struct pl_world_opts *o, struct pl_world **world, struct pl_err *err)
{
	struct pl_world *w = world_new(err);
	int rc;

	if (!w)
		return PL_ENOMEM;
	PL_TRY(take_opts(w, o, err));
	PL_TRY(make_peers(w, err));
	PL_TRY(pl_comm_meet(w, err));
	take_shapes(w);
	take_processors(w);
	if (!w->library.calls)
		PL_TRY(start_progress(w, err));
	if (w->size > 1)
		PL_TRY(pl_comm_control_start(w, err));
	if (w->library.calls)
		PL_TRY(pl_comm_library_start(w, err));
	PL_TRY(pl_comm_device_agree(w, err));
	*world = w;
out:
	if (rc < 0)
		free_failed(w);
	return rc;
}

/* ---- ending ---- */

/* The first rank that has not said good-bye; -1. */
static int first_open_rank(const struct pl_world *w)
{
	for (int r = 0; r < w->size; r++)
		if (r != w->rank && !atomic_load(&w->peer[r].said_goodbye))
			return r;
	return -1;
}

int pl_comm_world_close(struct pl_world *w, struct pl_err *err)
{
	pl_ns until;
	int rc = 0, late = -1;

	if (!w)
		return 0;
	until = pl_now_ns() + w->patience;
	atomic_store(&w->closing, true);
	if (w->size > 1)
		pl_comm_kick(w->control_wake);
	pthread_mutex_lock(&w->lock);
	w->waiters++;
	while (!atomic_load(&w->failed) && (late = first_open_rank(w)) >= 0 && pl_now_ns() < until)
		pl_comm_wait_for(&w->changed, &w->lock, 50000000);
	if (atomic_load(&w->failed)) {
		wait_until_told(w);
		rc = pl_fail(err, PL_EIO, "%s", w->failure);
	} else if (late >= 0) {
		rc = pl_fail(err, PL_EIO, "end: waited %.1f s for the good-bye of rank %d",
			     (double)w->patience / 1e9, pl_comm_name(w, late));
	}
	pthread_mutex_unlock(&w->lock);
	if (rc == 0 && w->library.calls)
		rc = pl_comm_library_stop(w, err);
	world_free(w);
	return rc;
}

void pl_comm_world_abort(struct pl_world *w, const char *why)
{
	if (!w)
		return;
	if (w->size > 1) {
		pl_comm_world_fail(w, w->rank, "rank %d gave up: %s", pl_comm_name(w, w->rank),
				   why ? why : "no reason given");
		pthread_mutex_lock(&w->lock);
		wait_until_told(w);
		pthread_mutex_unlock(&w->lock);
	}
	world_free(w);
}

int pl_comm_world_rank(const struct pl_world *w)
{
	return w->rank;
}

int pl_comm_world_name(const struct pl_world *w, int rank)
{
	return pl_comm_name(w, rank);
}

int pl_comm_world_size(const struct pl_world *w)
{
	return w->size;
}

uint64_t pl_comm_world_sent(const struct pl_world *w)
{
	return atomic_load(&w->sent);
}

const char *pl_comm_world_transport(const struct pl_world *w)
{
	if (w->library.calls)
		return w->library.calls->name;
	if (w->all_local)
		return "shm";
	return w->shared ? "shm+tcp" : "tcp";
}
