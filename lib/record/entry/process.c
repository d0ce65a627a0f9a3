/*
 * The file of this process and its rank. A process may be killed, so the file is flushed four times
 * a second. A name that exists belongs to another process with the same rank (a worker that was
 * restarted, or a helper that inherited the variables), so the number of this process becomes part
 * of the name.
 */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "config.h"
#include "record/entry/process.h"
#include "record/variables.h"

#define FLUSH_NS 250000000

static struct {
	pthread_mutex_t lock;
	struct pl_process p;
	_Atomic(struct pl_process *) now;
	_Atomic bool failed, said;
	pid_t pid; /* that has opened it */
} st = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const char *const rank_words[] = { "RANK",     "OMPI_COMM_WORLD_RANK", "PMIX_RANK",
					  "PMI_RANK", "SLURM_PROCID",	      NULL };
static const char *const size_words[] = { "WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE",
					  "SLURM_NTASKS", NULL };

static int number_in(const char *const *word, int otherwise)
{
	for (; *word; word++) {
		const char *v = getenv(*word), *at = v;
		int64_t n = v ? pl_take_digits(&at) : -1;

		if (n >= 0 && n <= INT32_MAX && !*at)
			return (int)n;
	}
	return otherwise;
}

void pl_process_say(const char *kind, const char *text)
{
	if (!atomic_exchange(&st.said, true))
		dprintf(STDERR_FILENO, "libpaceline-%s: %s\n", kind, text);
}

bool pl_process_wanted(void)
{
	const char *folder = getenv(PL_RECORD_DIR);

	return folder && *folder && !atomic_load(&st.failed);
}

const struct pl_process *pl_process_now(void)
{
	return atomic_load_explicit(&st.now, memory_order_acquire);
}

bool pl_process_is_this(void)
{
	return pl_process_now() && st.pid == getpid();
}

static int open_file(const char *kind, struct pl_err *err)
{
	struct pl_rec_opts o = { .rank = st.p.rank,
				 .size = st.p.size,
				 .format = PL_TRACE_RECORDER,
				 .provenance = "libpaceline " PL_VERSION,
				 .level = 1,
				 .flush_ns = FLUSH_NS };
	const char *folder = getenv(PL_RECORD_DIR);
	char path[4096], who[48];
	int rc;

	snprintf(who, sizeof(who), "rank%d", st.p.rank);
	if (st.p.rank < 0)
		snprintf(who, sizeof(who), "pid%ld", (long)getpid());
	snprintf(path, sizeof(path), "%.4000s/%s.%.20s.trace", folder, who, kind);
	o.path = path;
	rc = pl_rec_open(&o, &st.p.rec, err);
	if (rc >= 0 || err->sys != EEXIST)
		return rc;
	*err = (struct pl_err){ 0 };
	snprintf(path, sizeof(path), "%.4000s/%s-pid%ld.%.20s.trace", folder, who, (long)getpid(),
		 kind);
	return pl_rec_open(&o, &st.p.rec, err);
}

const struct pl_process *pl_process_open(const char *kind, int rank, int size,
					 void (*first)(struct pl_recorder *r))
{
	struct pl_err err = { 0 };

	if (pl_process_now() || !pl_process_wanted())
		return pl_process_now();
	pthread_mutex_lock(&st.lock);
	if (!pl_process_now() && !atomic_load(&st.failed)) {
		st.p.rank = rank >= 0 ? rank : number_in(rank_words, -1);
		st.p.size = size > 0 ? size : number_in(size_words, 0);
		if (open_file(kind, &err) < 0) {
			atomic_store(&st.failed, true);
		} else {
			first(st.p.rec);
			st.pid = getpid();
			atomic_store_explicit(&st.now, &st.p, memory_order_release);
		}
	}
	pthread_mutex_unlock(&st.lock);
	if (err.code)
		pl_process_say(kind, err.msg);
	return pl_process_now();
}

void pl_process_close(uint64_t more_lost)
{
	const struct pl_process *p = pl_process_now();
	struct pl_err err = { 0 };

	if (!pl_process_is_this())
		return;
	pl_rec_lost(p->rec, more_lost);
	if (pl_rec_close(p->rec, NULL, &err) < 0)
		pl_process_say("record", err.msg);
}
