/*
 * aware_mpi - an MPI that takes pointers to memory of the fake device (fake_device.h), for
 * tests/cli/mpi.t: a real one, REAL, which is linked to this and gets pointers that a host may
 * touch. It is stricter than that: what is sent may not change until MPI_Test has said that it is
 * over, and where something comes in there is nothing but NaN until it came. Who lets MPI begin
 * before the device's queue is done with the memory, or the device before MPI is, gets wrong
 * numbers or ends. -DLIKE_MPICH: it says so as MPICH does.
 *
 * AWARE_LOG=FILE: at the end each rank adds a line, how many messages in memory of the device it
 * had. AWARE_DIE=RANK:N: the rank dies in its N-th.
 */
#include <dlfcn.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST   4096

typedef uintptr_t handle; /* of either kind of MPI: as wide as a pointer */

struct request {
	handle real;
	const uint8_t *sent;
	size_t bytes;
	uint64_t sum;
	int used;
};
static struct request request[MOST];
static uint8_t *device, *host;
static size_t room;
static int messages;

static void *real(const char *name)
{
	static void *lib;

	if (!lib)
		lib = dlopen(REAL, RTLD_NOW);
	return lib ? dlsym(lib, name) : NULL;
}

static void broken(const char *why)
{
	fprintf(stderr, "aware_mpi: %s\n", why);
	abort();
}

/* Ends in a message, at the worst time that there is. */
static void may_die(void)
{
	const char *die = getenv("AWARE_DIE"), *rank = getenv("OMPI_COMM_WORLD_RANK");
	int r = -1, n = 0;

	rank = rank ? rank : getenv("PMI_RANK");
	if (die && rank && sscanf(die, "%d:%d", &r, &n) == 2 && r == atoi(rank) && n == messages)
		raise(SIGKILL);
}

/* NULL: it is no memory of the device. */
static uint8_t *reach(const void *p)
{
	const char *where = getenv("FAKE_DEVICE");
	void *d = NULL, *h = NULL;
	uintptr_t at = (uintptr_t)p;

	if (!room && where && sscanf(where, "%p %p %zu", &d, &h, &room) == 3) {
		device = d;
		host = h;
	}
	if (!room || at < (uintptr_t)device || at >= (uintptr_t)device + room)
		return NULL;
	messages++;
	return host + (at - (uintptr_t)device);
}

static uint64_t sum_of(const uint8_t *p, size_t n)
{
	uint64_t h = 14695981039346656037u; /* FNV-1a, by eight bytes */

	for (size_t i = 0; i + 8 <= n; i += 8) {
		uint64_t v;

		memcpy(&v, p + i, 8);
		h = (h ^ v) * 1099511628211u;
	}
	return h;
}

static struct request *new_request(handle *out)
{
	for (size_t i = 0; i < MOST; i++) {
		if (request[i].used)
			continue;
		request[i] = (struct request){ .used = 1 };
		*out = i + 1;
		return &request[i];
	}
	broken("too many requests");
	return NULL;
}

#ifdef LIKE_MPICH /* some of which break when they are asked in the other way */
EXPORT int MPIX_GPU_query_support(int kind, int *yes);
EXPORT int MPIX_GPU_query_support(int kind, int *yes)
{
	*yes = kind == 0;
	return 0;
}
#endif

EXPORT int MPIX_Query_cuda_support(void);
EXPORT int MPIX_Query_cuda_support(void)
{
#ifdef LIKE_MPICH
	broken("asked in a way that is not MPICH's");
#endif
	return 1;
}

EXPORT int MPI_Isend(const void *p, int n, handle type, int to, int tag, handle comm, handle *out);
EXPORT int MPI_Isend(const void *p, int n, handle type, int to, int tag, handle comm, handle *out)
{
	int (*isend)(const void *, int, handle, int, int, handle, handle *);
	void *f = real("MPI_Isend");
	struct request *r = new_request(out);
	const uint8_t *at = reach(p);
	int rc;

	memcpy(&isend, &f, sizeof(f));
	if (at) {
		r->sent = at;
		r->bytes = (size_t)n;
		r->sum = sum_of(at, r->bytes);
	}
	rc = isend(at ? at : p, n, type, to, tag, comm, &r->real);
	if (at)
		may_die();
	return rc;
}

EXPORT int MPI_Irecv(void *p, int n, handle type, int from, int tag, handle comm, handle *out);
EXPORT int MPI_Irecv(void *p, int n, handle type, int from, int tag, handle comm, handle *out)
{
	int (*irecv)(void *, int, handle, int, int, handle, handle *);
	void *f = real("MPI_Irecv");
	struct request *r = new_request(out);
	uint8_t *at = reach(p);

	memcpy(&irecv, &f, sizeof(f));
	if (at) {
		memset(at, 0xff, (size_t)n);
		may_die();
	}
	return irecv(at ? at : p, n, type, from, tag, comm, &r->real);
}

EXPORT int MPI_Test(handle *h, int *over, void *status);
EXPORT int MPI_Test(handle *h, int *over, void *status)
{
	int (*test)(handle *, int *, void *);
	void *f = real("MPI_Test");
	struct request *r = *h && *h <= MOST ? &request[*h - 1] : NULL;
	int rc;

	memcpy(&test, &f, sizeof(f));
	if (!r || !r->used)
		broken("an unknown request");
	rc = test(&r->real, over, status);
	if (!rc && !*over)
		return 0;
	if (r->sent && sum_of(r->sent, r->bytes) != r->sum)
		broken("memory was written to while it was sent");
	r->used = 0;
	return rc;
}

EXPORT int MPI_Finalize(void);
EXPORT int MPI_Finalize(void)
{
	int (*finalize)(void);
	void *f = real("MPI_Finalize");
	const char *log = getenv("AWARE_LOG");
	FILE *to = log ? fopen(log, "a") : NULL;

	memcpy(&finalize, &f, sizeof(f));
	if (to) {
		fprintf(to, "%d\n", messages);
		fclose(to);
	}
	return finalize();
}
