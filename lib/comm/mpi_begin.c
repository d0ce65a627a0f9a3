/*
 * MPI in a process: its begin, and processes that take part in nothing else.
 *
 * All processes of a launcher take part in MPI_Init and MPI_Finalize. A world of some of them needs
 * the others for these two calls. In each of the others a thread makes them: it begins MPI, sleeps
 * until it is told that the process has done its work, and ends MPI. It makes all calls of MPI of
 * this process. Nobody waits for it longer than a deadline, after which it is abandoned, together
 * with the memory that it can reach.
 */
#include <poll.h>
#include <stdlib.h>
#include <unistd.h>

#include "comm/internal.h"
#include "comm/mpi_lib.h"

int pl_comm_mpi_failed(const struct pl_mpi_lib *lib, const char *what, int code, struct pl_err *err)
{
	char text[PL_MPI_ERROR_TEXT + 1] = "";
	int n = 0;

	if (lib->error_string(code, text, &n) != 0 || n < 0 || n > PL_MPI_ERROR_TEXT)
		n = 0;
	text[n] = '\0';
	for (char *s = text; *s; s++)
		*s = *s == '\n' ? ' ' : *s;
	return pl_fail(err, PL_EIO, "%s of %s: %s", what, lib->version, text);
}

/*
 * Did a launcher of MPI start this process? Each gives its processes variables of PMI or PMIx, or
 * its own. Without one, MPI_Init makes a world of this process alone. Open MPI's then starts a
 * daemon, and daemons of several processes remove one another's folders.
 */
static bool launched_by_mpi(void)
{
	static const char *const prefixes[] = { "PMI",	 "OMPI_COMM_", "SLURM_", "FLUX_",
						"PALS_", "ALPS_",      "MV2_",	 "JSM_" };

	for (char **v = environ; *v; v++)
		for (size_t i = 0; i < PL_LEN(prefixes); i++)
			if (!strncmp(*v, prefixes[i], strlen(prefixes[i])))
				return true;
	return false;
}

/* A launcher of MPICH's kind closes its connection when the first program that it started has ended
 * MPI. MPI_Init would then kill a second program of the same process. */
static bool launcher_hung_up(void)
{
	const char *fd = getenv("PMI_FD");
	struct pollfd p = { .fd = fd ? atoi(fd) : -1 };

	return p.fd > 2 && poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLNVAL));
}

static int initialise(const struct pl_mpi_lib *lib, struct pl_err *err)
{
	int before = 0, after = 0, level = -1, code;

	if (launcher_hung_up())
		return pl_fail(err, PL_EUSAGE,
			       "the launcher does not listen any more: one mpirun or srun starts "
			       "one program that uses MPI, not several in turn");
	lib->initialized(&before);
	lib->finalized(&after);
	if (after)
		return pl_fail(err, PL_EUSAGE,
			       "MPI has ended in this process, and begins but once in one");
	if (before)
		return pl_fail(err, PL_EUSAGE, "somebody else uses MPI in this process");
	code = lib->init(NULL, NULL, PL_MPI_FUNNELED, &level);
	if (code)
		return pl_comm_mpi_failed(lib, "MPI_Init_thread", code, err);
	if (level < PL_MPI_FUNNELED)
		return pl_fail(err, PL_EABSENT,
			       "%s has no threads at all (MPI_THREAD_FUNNELED is needed)",
			       lib->version);
	return 0;
}

/* As srun names what this library understands. */
static const char *launcher_of(const struct pl_mpi_lib *lib)
{
	return lib->kind == PL_MPI_OPENMPI ? "pmix" : "pmi2";
}

/* Checks that the process has the same number in MPI. */
int pl_comm_mpi_begin(const struct pl_mpi_lib *lib, int size, int rank, struct pl_err *err)
{
	int n = 0, r = -1, code;

	if (size > 1 && !launched_by_mpi())
		return pl_fail(err, PL_EUSAGE,
			       "no launcher of MPI started this process: start it by the mpirun "
			       "of %s, or by srun --mpi=%s",
			       pl_comm_mpi_kind_name(lib->kind), launcher_of(lib));
	PL_CHECK(initialise(lib, err));
	code = lib->set_errhandler(lib->world, lib->errors_return);
	if (!code)
		code = lib->size(lib->world, &n);
	if (!code && n != size)
		return pl_fail(
			err, PL_EUSAGE,
			"%s sees %d rank%s where the job has %d: start it by the mpirun of %s, "
			"or by srun --mpi=%s",
			lib->version, n, n == 1 ? "" : "s", size, pl_comm_mpi_kind_name(lib->kind),
			launcher_of(lib));
	if (!code)
		code = lib->rank(lib->world, &r);
	if (code)
		return pl_comm_mpi_failed(lib, "MPI_Comm_rank", code, err);
	if (r != rank)
		return pl_fail(err, PL_EUSAGE, "MPI has another rank %d", rank);
	return 0;
}

/* ---- processes that take part in nothing else ------------------------------------------------ */

struct pl_attendance {
	struct pl_mpi_lib lib;
	int size, rank;
	pthread_t thread;
	pthread_mutex_t lock;
	pthread_cond_t changed;
	/* under the lock */
	bool begun, may_end, ended;
	struct pl_err err;
	void *next_kept;
};

static void *attend(void *arg)
{
	struct pl_attendance *a = arg;
	struct pl_err e = { 0 };
	int rc = pl_comm_mpi_begin(&a->lib, a->size, a->rank, &e);

	pthread_mutex_lock(&a->lock);
	a->err = e;
	a->begun = rc >= 0;
	while (rc >= 0 && !a->may_end)
		pthread_cond_wait(&a->changed, &a->lock);
	pthread_mutex_unlock(&a->lock);
	if (rc >= 0)
		a->lib.finalize();
	pthread_mutex_lock(&a->lock);
	a->ended = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
	return NULL;
}

static void free_attendance(struct pl_attendance *a)
{
	pthread_cond_destroy(&a->changed);
	pthread_mutex_destroy(&a->lock);
	pl_free(a);
}

int pl_comm_attend(const char *transport, int size, int rank, struct pl_attendance **out,
		   struct pl_err *err)
{
	struct pl_attendance *a;
	pthread_condattr_t c;
	int rc;

	*out = NULL;
	if (strcmp(transport, "mpi") != 0)
		return 0;
	PL_CHECK(pl_alloc(&a, 1, sizeof(*a), err));
	a->size = size;
	a->rank = rank;
	pthread_mutex_init(&a->lock, NULL);
	pthread_condattr_init(&c);
	pthread_condattr_setclock(&c, CLOCK_MONOTONIC);
	pthread_cond_init(&a->changed, &c);
	pthread_condattr_destroy(&c);
	rc = pl_comm_mpi_lib_open(&a->lib, err);
	if (rc < 0)
		pl_wrap(err, "transport mpi");
	if (rc >= 0)
		rc = pl_comm_thread_start(&a->thread, attend, a, err);
	if (rc < 0)
		free_attendance(a);
	else
		*out = a;
	return rc;
}

int pl_comm_attend_check(struct pl_attendance *a, struct pl_err *err)
{
	int rc = 0;

	if (!a)
		return 0;
	pthread_mutex_lock(&a->lock);
	if (a->err.code)
		rc = pl_fail(err, a->err.code, "transport mpi: %s", a->err.msg);
	pthread_mutex_unlock(&a->lock);
	return rc;
}

void pl_comm_attend_end(struct pl_attendance *a)
{
	if (!a)
		return;
	pthread_mutex_lock(&a->lock);
	a->may_end = true;
	pthread_cond_broadcast(&a->changed);
	pthread_mutex_unlock(&a->lock);
}

int pl_comm_attend_close(struct pl_attendance *a, pl_ns patience_ns, struct pl_err *err)
{
	pl_ns until = pl_now_ns() + patience_ns;
	bool ended, asked, failed;

	if (!a)
		return 0;
	pthread_mutex_lock(&a->lock);
	while (a->may_end && !a->ended && pl_now_ns() < until)
		pl_comm_wait_for(&a->changed, &a->lock, pl_max_i64(1, until - pl_now_ns()));
	failed = a->err.code != 0;
	while (failed && !a->ended) /* it has nothing to wait for */
		pl_comm_wait_for(&a->changed, &a->lock, 50000000);
	ended = a->ended;
	asked = a->may_end;
	pthread_mutex_unlock(&a->lock);
	if (ended) {
		pthread_join(a->thread, NULL);
		free_attendance(a);
		return 0;
	}
	pthread_detach(a->thread);
	pl_comm_library_keep(a, &a->next_kept);
	return asked ? pl_fail(err, PL_EIO,
			       "mpi has not returned for %.1f s from its end, in which all "
			       "processes take part",
			       (double)patience_ns / 1e9)
		     : 0;
}
