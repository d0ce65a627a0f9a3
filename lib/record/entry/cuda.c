/*
 * libpaceline-cuda.so: what a CUDA program does on its device, from CUPTI.
 *
 * The driver loads the file that CUDA_INJECTION64_PATH names, and calls InitializeInjection() when
 * the program uses CUDA for the first time. CUPTI serves one tool in a process: if another one is
 * there, nothing is recorded, and one line says so.
 *
 * A thread asks CUPTI twice a second for what it has, and joins it. libpaceline-nccl.so in the same
 * process tells which collectives the kernels carry, by the functions that this file shows.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "record/cuda.h"
#include "record/device.h"
#include "record/entry/process.h"
#include "record/entry/together.h"

#define EXPORT	  __attribute__((visibility("default")))
#define PERIOD_NS 500000000

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	pid_t pid;
	struct pl_device_join *join;
	void *trace;
	bool started, stop;
	_Atomic bool on;
} st = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void no_names(struct pl_recorder *r)
{
	(void)r;
}

/* ---- for libpaceline-nccl.so ------------------------------------------------------------------
 */

EXPORT bool paceline_cuda_on(void)
{
	return atomic_load(&st.on);
}

EXPORT void paceline_cuda_report(const struct pl_device_event *e)
{
	if (atomic_load(&st.on))
		pl_cuda_trace_report(e);
}

EXPORT void paceline_cuda_push(uint64_t launch)
{
	if (atomic_load(&st.on))
		pl_cuda_trace_cupti_push(launch);
}

EXPORT void paceline_cuda_pop(void)
{
	if (atomic_load(&st.on))
		pl_cuda_trace_cupti_pop();
}

/* ---- the thread ------------------------------------------------------------------------------ */

static void *flusher(void *arg)
{
	pthread_mutex_lock(&st.lock);
	while (!st.stop) {
		struct pl_err ignore = { 0 }; /* a later flush tells the same events */
		struct timespec until;

		clock_gettime(CLOCK_MONOTONIC, &until);
		until.tv_nsec += PERIOD_NS;
		until.tv_sec += until.tv_nsec / 1000000000;
		until.tv_nsec %= 1000000000;
		pthread_cond_timedwait(&st.wake, &st.lock, &until);
		if (st.stop)
			break;
		pthread_mutex_unlock(&st.lock);
		if (pl_cuda_trace_flush(st.trace, &ignore) >= 0)
			pl_device_join_now(st.join, false);
		pthread_mutex_lock(&st.lock);
	}
	pthread_mutex_unlock(&st.lock);
	return arg;
}

/* Signals of the program are for its own threads. */
static void start_thread(void)
{
	pthread_condattr_t attr;
	sigset_t every, before;

	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&st.wake, &attr);
	pthread_condattr_destroy(&attr);
	sigfillset(&every);
	pthread_sigmask(SIG_SETMASK, &every, &before);
	st.started = pthread_create(&st.thread, NULL, flusher, NULL) == 0;
	pthread_sigmask(SIG_SETMASK, &before, NULL);
}

/* ---- begin and end --------------------------------------------------------------------------- */

/* While the driver is still there. A child of fork() leaves CUPTI alone. */
static void end(void)
{
	struct pl_device_source source = { 0 };

	if (!st.join || st.pid != getpid() || !atomic_exchange(&st.on, false))
		return;
	pthread_mutex_lock(&st.lock);
	st.stop = true;
	if (st.started)
		pthread_cond_signal(&st.wake);
	pthread_mutex_unlock(&st.lock);
	if (st.started)
		pthread_join(st.thread, NULL);
	pl_cuda_trace_stop(st.trace, false);
	pl_cuda_trace_source(st.trace, &source);
	pl_device_join_now(st.join, true);
	pl_process_close(source.lost + pl_device_join_lost(st.join));
}

/* Ranges of NVTX come only from a program whose NVTX knows CUPTI. */
static void lead_nvtx(void)
{
	const char *file = pl_cuda_trace_cupti_file();

	if (file)
		setenv("NVTX_INJECTION64_PATH", file, 0);
}

static int begin(const struct pl_process *p, struct pl_err *err)
{
	const struct pl_cuda_trace_device device = { .more = true };
	struct pl_device_source source;

	PL_CHECK(pl_device_join_new(p->rec, PL_NONE, 0, &st.join, err));
	PL_CHECK(pl_cuda_trace_start(&device, NULL, pl_device_join_event, st.join, &st.trace, err));
	pl_cuda_trace_source(st.trace, &source);
	pl_rec_meta(p->rec, "device_trace", "\"cupti\"");
	pl_rec_meta(p->rec, "all_synchronization", source.calls ? "true" : "false");
	lead_nvtx();
	st.pid = getpid();
	atomic_store(&st.on, true);
	start_thread();
	atexit(end);
	return 0;
}

/* The driver calls it once; 1: all is well, which a recorder always says. */
EXPORT int InitializeInjection(void);
EXPORT int InitializeInjection(void)
{
	const struct pl_process *p;
	struct pl_err err = { 0 };

	if (atomic_load(&st.on) || st.join)
		return 1;
	p = pl_process_open("cuda", -1, 0, no_names);
	if (p && begin(p, &err) < 0) {
		pl_process_say("cuda", err.msg);
		pl_process_close(0);
	}
	return 1;
}
