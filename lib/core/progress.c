/* The line of progress: one text under a lock; a thread draws it five times a second. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

#include "core/progress.h"

#define FIRST_NS 1000000000
#define EVERY_NS 200000000

static struct {
	pthread_mutex_t lock;
	pthread_cond_t wake;
	pthread_t thread;
	const char *program;
	pl_ns begin;
	atomic_bool on;
	bool at_once, terminal; /* constant while the program runs */
	bool runs, stop;	/* the thread */
	bool drawn;		/* the terminal shows the line */
	char text[160], last[160];
} bar = { .lock = PTHREAD_MUTEX_INITIALIZER };

static void put(const char *line, size_t n)
{
	if (write(STDERR_FILENO, line, n) < 0)
		bar.on = false; /* nobody reads */
}

/* The caller holds the lock. A file gets a line only if the text has changed. */
static void draw(void)
{
	double s = (double)(pl_now_ns() - bar.begin) / 1e9;
	char line[256];
	int n;

	if (!bar.on || (!bar.terminal && !strcmp(bar.text, bar.last)))
		return;
	n = snprintf(line, sizeof(line), "%s%s: %s, %.0f s%s", bar.terminal ? "\r\033[K" : "",
		     bar.program, bar.text, s, bar.terminal ? "" : "\n");
	put(line, pl_min_size((size_t)n, sizeof(line) - 1));
	memcpy(bar.last, bar.text, sizeof(bar.last));
	bar.drawn = bar.terminal;
}

static void wait_ns(pl_ns ns)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	ns += at.tv_nsec;
	at.tv_sec += (time_t)(ns / 1000000000);
	at.tv_nsec = (long)(ns % 1000000000);
	pthread_cond_timedwait(&bar.wake, &bar.lock, &at);
}

static void *draw_main(void *arg)
{
	pthread_mutex_lock(&bar.lock);
	if (!bar.at_once)
		wait_ns(pl_max_i64(0, bar.begin + FIRST_NS - pl_now_ns()));
	while (!bar.stop) {
		draw();
		wait_ns(EVERY_NS);
	}
	pthread_mutex_unlock(&bar.lock);
	return arg;
}

/* The caller holds the lock. Without a thread, only a line that is due at once is drawn. */
static void start(void)
{
	pthread_condattr_t attr;

	if (bar.at_once)
		draw();
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&bar.wake, &attr);
	pthread_condattr_destroy(&attr);
	bar.stop = false;
	bar.runs = !pthread_create(&bar.thread, NULL, draw_main, NULL);
	if (!bar.runs)
		bar.on = false;
}

void pl_progress_begin(const struct pl_common *c)
{
	bar.program = c->program;
	bar.begin = pl_now_ns();
	bar.terminal = pl_is_tty(c, STDERR_FILENO);
	bar.at_once = c->progress == 1;
	bar.on = bar.at_once || (c->progress == 0 && bar.terminal && !c->quiet);
}

void pl_progress(const char *fmt, ...)
{
	va_list ap;

	if (!bar.on)
		return;
	pthread_mutex_lock(&bar.lock);
	va_start(ap, fmt);
	vsnprintf(bar.text, sizeof(bar.text), fmt, ap);
	va_end(ap);
	if (!bar.runs)
		start();
	pthread_mutex_unlock(&bar.lock);
}

/* The caller holds the lock. */
static void erase(void)
{
	if (bar.drawn)
		put("\r\033[K", 4);
	bar.drawn = false;
}

void pl_progress_hide(void)
{
	if (!bar.on)
		return;
	pthread_mutex_lock(&bar.lock);
	erase();
	pthread_mutex_unlock(&bar.lock);
}

void pl_progress_end(void)
{
	bool runs;

	pthread_mutex_lock(&bar.lock);
	runs = bar.runs;
	erase();
	if (runs && !bar.terminal) /* a file keeps the last text */
		draw();
	bar.on = bar.runs = false;
	bar.stop = true;
	pthread_mutex_unlock(&bar.lock);
	if (!runs)
		return;
	pthread_cond_signal(&bar.wake);
	pthread_join(bar.thread, NULL);
	pthread_cond_destroy(&bar.wake);
}
