/*
 * Worlds on another library (struct pl_comm_library): its thread, and what happens if it hangs.
 *
 * Such libraries move data only during calls, and some want all calls from one thread. So one
 * thread opens the library, calls it in rounds while operations are active, and closes it. After a
 * round without progress it yields its processor; later it sleeps, each time longer, up to 200 us,
 * because each round takes time from the computation.
 *
 * A call may not return in time, or may continue after the world has failed. Then the thread is
 * abandoned: nobody joins it, and all memory that it can reach stays allocated and unchanged (also
 * the world, on a list, because the process ends soon). The operations fail without it. Any thread
 * that waits, or the control thread, notices this.
 */
#include <sched.h>

#include "comm/internal.h"

#define SPIN_NS	 100000	  /* as in world.c */
#define NAP_NS	 20000	  /* waking up takes longer than less */
#define NAP_MAX	 200000	  /* 5,000 rounds in a second, each of some us: 1 to 2 % of a processor */
#define LOOK_NS	 20000000 /* between two looks of a caller at a library that may be stuck */
#define END_LATE 5	  /* timeouts that a library may take to close */

static const struct pl_comm_library *const libraries[] = { &pl_comm_library_mpi,
							   &pl_comm_library_nccl };

/* Memory that is never freed. It stays reachable, so a search for leaks does not report it. */
static void *kept;
static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;

void pl_comm_library_keep(void *p, void **next)
{
	pthread_mutex_lock(&kept_lock);
	*next = kept;
	kept = p;
	pthread_mutex_unlock(&kept_lock);
}

const struct pl_comm_library *pl_comm_library_find(const char *transport)
{
	for (size_t i = 0; transport && i < PL_LEN(libraries); i++)
		if (!strcmp(transport, libraries[i]->name))
			return libraries[i];
	return NULL;
}

/* ---- in the library ---- */

/* This thread is in the library until leave_library(). The caller does not hold the lock. */
static void enter_library(struct pl_world *w)
{
	pthread_mutex_lock(&w->lock);
	w->library.stopped_ns = atomic_load(&w->stopped_ns);
	w->library.since = pl_now_ns();
	pthread_mutex_unlock(&w->lock);
}

/* false: the world was abandoned meanwhile, and this thread may not use it. */
static bool leave_library(struct pl_world *w)
{
	bool left;

	pthread_mutex_lock(&w->lock);
	w->library.since = 0;
	left = w->library.abandoned;
	pthread_mutex_unlock(&w->lock);
	return !left;
}

static void fail_works(struct pl_work *k)
{
	for (; k; k = k->next) {
		k->failed = true;
		atomic_store(&k->done, true);
	}
}

static void abandon(struct pl_world *w)
{
	const struct pl_comm_library *by = w->library.calls;
	bool opened = w->library.opened, aborted = w->library.aborted;

	w->library.abandoned = true;
	pthread_detach(w->progress);
	pl_comm_library_keep(w, &w->library.next_kept);
	pthread_mutex_unlock(&w->lock);
	pl_comm_world_end_events(w);
	if (by->abort && opened && !aborted)
		(by->abort)(w->library.state);
	pthread_mutex_lock(&w->lock);
	fail_works(w->active);
	fail_works(w->queued);
	pthread_cond_broadcast(&w->changed);
}

void pl_comm_library_watch(struct pl_world *w)
{
	pl_ns now = pl_now_ns(), in, limit = 2 * w->timeout;

	/* the control thread has not noticed yet that this process was stopped */
	if (!w->library.since || w->library.abandoned ||
	    now - atomic_load(&w->due) > PL_STOPPED_NS(w))
		return;
	in = now - w->library.since - (atomic_load(&w->stopped_ns) - w->library.stopped_ns);
	if (atomic_load(&w->failed)) {
		/* The failure may be older than the call, or as new as this look. The others are
		 * told first: abandon() may wait for a callback, and if the control thread waits
		 * there, the others would hear nothing and blame this rank for its silence. */
		if (in > pl_max_i64(w->timeout / 4, 50000000) && (w->failure_told || w->size == 1))
			abandon(w);
		return;
	}
	if (!w->library.opened)
		limit = pl_max_i64(PL_LIBRARY_LATE * w->timeout, w->o.meet_ns);
	else if (w->stop) /* processes outside the world may still compute */
		limit = w->o.of.size && w->library.calls->ends_with_all ? w->patience
									: END_LATE * w->timeout;
	if (in <= limit)
		return;
	pthread_mutex_unlock(&w->lock);
	pl_comm_world_fail(w, w->rank, "rank %d: %s has not returned for %.1f s%s",
			   pl_comm_name(w, w->rank), w->library.calls->name, (double)in / 1e9,
			   !w->library.opened ? " from its start, in which all ranks take part"
			   : w->stop	      ? " from its end, in which all ranks take part"
					      : "");
	pthread_mutex_lock(&w->lock);
}

/* ---- rounds ---- */

/*
 * An error of a library often follows from the death of a rank. The control thread will soon know
 * of this death, and its message is better. The caller does not hold the lock.
 */
static void report_error(struct pl_world *w, const struct pl_work *k, const char *why)
{
	pl_ns until = pl_now_ns() + pl_min_i64(w->timeout / 4, 200000000);

	while (w->size > 1 && !atomic_load(&w->failed) && pl_now_ns() < until)
		pl_sleep_ns(5000000);
	pl_comm_world_fail(w, w->rank, "rank %d: %s %llu: %s", pl_comm_name(w, w->rank),
			   pl_comm_operation_name(k->a.op), (unsigned long long)k->seq, why);
}

enum round { ABANDONED, FAILED, STILL, MOVED };

/* Lets the library advance a work; returns its answer. *left: the world was abandoned. */
static int advance_work(struct pl_world *w, struct pl_work *k, bool *left, struct pl_err *err)
{
	const struct pl_comm_library *by = w->library.calls;
	int rc = 0;

	enter_library(w);
	if (k->state == PL_WORK_QUEUED) {
		rc = by->begin(w->library.state, k, err);
		if (rc >= 0 && k->state == PL_WORK_QUEUED)
			k->state = PL_WORK_IN_LIBRARY;
	}
	if (rc >= 0 && k->state != PL_WORK_DONE)
		rc = by->test(w->library.state, k, err);
	*left = !leave_library(w);
	return rc;
}

static pl_ns last_moved(const struct pl_world *w)
{
	pl_ns t = 0;

	for (const struct pl_work *k = w->active; k != w->device.held; k = k->next)
		t = pl_max_i64(t, k->last_progress);
	return t;
}

/* Begin new works, and test all of them. A call for one work may advance another one. */
static enum round one_round(struct pl_world *w)
{
	enum round found = STILL;
	struct pl_err e = { 0 };
	pl_ns before;

	pl_comm_engine_take(w);
	before = last_moved(w);
	for (struct pl_work *k = w->active; k != w->device.held; k = k->next) {
		bool left, new = k->state == PL_WORK_QUEUED;
		int rc = advance_work(w, k, &left, &e);

		if (left)
			return ABANDONED;
		if (rc < 0) {
			report_error(w, k, e.msg);
			return FAILED;
		}
		if (rc > 0)
			k->state = PL_WORK_DONE;
		if (rc > 0 || new)
			found = MOVED;
	}
	return last_moved(w) != before ? MOVED : found;
}

/* Nothing has moved since `idle`. */
static void wait_between_rounds(struct pl_world *w, pl_ns idle, pl_ns *nap)
{
	bool operations_left = w->active;

	if (operations_left && pl_now_ns() - idle < SPIN_NS) {
		*nap = NAP_NS;
		sched_yield();
		return;
	}
	pthread_mutex_lock(&w->lock);
	if (!w->queued && !w->stop && !atomic_load(&w->failed)) {
		w->progress_rests = true;
		if (operations_left)
			pl_comm_wait_for(&w->resume, &w->lock, *nap);
		else
			pthread_cond_wait(&w->resume, &w->lock);
		w->progress_rests = false;
	}
	pthread_mutex_unlock(&w->lock);
	*nap = pl_min_i64(*nap * 2, NAP_MAX);
}

static bool is_over(struct pl_world *w)
{
	bool over;

	pthread_mutex_lock(&w->lock);
	over = w->stop || atomic_load(&w->failed);
	pthread_mutex_unlock(&w->lock);
	return over;
}

/* Runs until the world ends or fails; false: the world was abandoned. */
static bool run_rounds(struct pl_world *w)
{
	pl_ns idle = pl_now_ns(), nap = NAP_NS;
	enum round found;

	while (!is_over(w)) {
		found = one_round(w);
		if (found == ABANDONED)
			return false;
		if (found == FAILED)
			break;
		if (pl_comm_engine_sweep(w) &&
		    w->active != w->device.held) /* it was in line until now */
			w->active->last_progress =
				pl_max_i64(w->active->last_progress, pl_now_ns());
		if (found == MOVED) {
			idle = pl_now_ns();
			continue;
		}
		pl_comm_engine_check(w, pl_now_ns());
		wait_between_rounds(w, idle, &nap);
	}
	return true;
}

static void *library_main(void *arg)
{
	struct pl_world *w = arg;
	const struct pl_comm_library *by = w->library.calls;
	struct pl_err e = { 0 };
	void *state = w->library.state;
	int rc;

	enter_library(w);
	rc = by->open(state, &e);
	if (!leave_library(w))
		return NULL;
	pthread_mutex_lock(&w->lock);
	w->library.err = e;
	w->library.opened = rc >= 0;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	if (rc >= 0 && !run_rounds(w))
		return NULL;
	if (rc >= 0 && atomic_load(&w->failed)) {
		pthread_mutex_lock(&w->lock);
		w->library.aborted = true; /* if it takes long, nobody aborts again */
		pthread_mutex_unlock(&w->lock);
		enter_library(w);
		if (by->abort)
			(by->abort)(state);
		if (!leave_library(w))
			return NULL;
	}
	pthread_mutex_lock(&w->lock);
	if (atomic_load(&w->failed))
		pl_comm_engine_fail(w);
	while (!w->stop)
		pthread_cond_wait(&w->resume, &w->lock);
	pthread_mutex_unlock(&w->lock);
	if (rc >= 0 && !atomic_load(&w->failed)) {
		enter_library(w);
		by->close(state);
		if (!leave_library(w))
			return NULL;
	}
	pthread_mutex_lock(&w->lock);
	w->library.ended = true;
	pthread_cond_broadcast(&w->changed);
	pthread_mutex_unlock(&w->lock);
	return NULL;
}

/* ---- beginning and end ---- */

int pl_comm_library_start(struct pl_world *w, struct pl_err *err)
{
	const char *name = w->library.calls->name;
	int rc = pl_comm_thread_start(&w->progress, library_main, w, err);

	if (rc < 0)
		return rc;
	w->progress_runs = w->driving = true;
	pthread_mutex_lock(&w->lock);
	while (!w->library.opened && !w->library.err.code && !w->library.abandoned) {
		pl_comm_library_watch(w);
		pl_comm_wait_for(&w->changed, &w->lock, LOOK_NS);
	}
	/* PL_EIO may follow from the failure of another rank */
	if (!w->library.opened && atomic_load(&w->failed) &&
	    (!w->library.err.code || w->library.err.code == PL_EIO))
		rc = pl_fail(err, PL_EIO, "%s", w->failure);
	else if (!w->library.opened)
		rc = pl_fail(err, w->library.err.code, "transport %s: %s", name,
			     w->library.err.msg);
	pthread_mutex_unlock(&w->lock);
	if (rc < 0) /* the others wait for this rank in theirs */
		pl_comm_world_fail(w, w->rank, "rank %d: %s", pl_comm_name(w, w->rank), err->msg);
	return rc;
}

int pl_comm_library_stop(struct pl_world *w, struct pl_err *err)
{
	int rc = 0;

	pthread_mutex_lock(&w->lock);
	w->stop = true;
	pthread_cond_broadcast(&w->resume);
	while (!w->library.ended && !w->library.abandoned) {
		pl_comm_library_watch(w);
		pl_comm_wait_for(&w->changed, &w->lock, LOOK_NS);
	}
	if (w->library.abandoned && err)
		rc = pl_fail(err, PL_EIO, "%s", w->failure);
	pthread_mutex_unlock(&w->lock);
	if (!w->library.abandoned)
		pthread_join(w->progress, NULL);
	w->progress_runs = false;
	return rc;
}
