/*
 * Shared memory of the ranks of one host: a segment with slots and rings, and pieces for users.
 *
 * The first rank of the host makes them, and the others open them (memory.c). A doorbell is a
 * datagram socket with an abstract name. Before a rank sleeps, it sets a flag in the segment,
 * checks once more, and sleeps in epoll. A rank that changes data then sends it a byte.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/internal.h"
#include "tensor/backend.h"

#define SHARED_MAGIC 0x6e77656361707331u

#define PAGE ((size_t)4096)
/* the length of a doorbell's address; a name that begins with a zero byte is abstract */
#define DOORBELL_BYTES                                                                             \
	(offsetof(struct sockaddr_un, sun_path) + sizeof("_paceline-0123456789abcdef") - 1)

static size_t whole_pages(size_t n)
{
	return (n + PAGE - 1) & ~(PAGE - 1);
}

static size_t rings_at(int n)
{
	return sizeof(struct pl_shared) + (size_t)n * sizeof(struct pl_shared_rank);
}

static size_t shared_bytes(int n)
{
	return whole_pages(rings_at(n) + (size_t)n * (size_t)n * 2 * sizeof(struct pl_ring));
}

/* ---- doorbells ---- */

static int open_doorbell(struct pl_world *w, struct pl_err *err)
{
	for (int i = 0; i < w->n_local; i++) {
		struct sockaddr_un *a = &w->peer[w->local[i]].doorbell;
		char text[PL_TOKEN_MAX + 64];
		int m = snprintf(text, sizeof(text), "%s %llx %d", w->token,
				 (unsigned long long)w->shared->nonce, i);

		a->sun_family = AF_UNIX;
		snprintf(a->sun_path + 1, sizeof(a->sun_path) - 1, "paceline-%016llx",
			 (unsigned long long)pl_hash(text, (size_t)m));
	}
	w->doorbell =
		pl_fail_now() ? -1 : socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (w->doorbell < 0)
		return pl_fail_sys(err, "cannot make a socket");
	if (bind(w->doorbell, (struct sockaddr *)&w->peer[w->rank].doorbell, DOORBELL_BYTES) < 0)
		return pl_fail_sys(err, "cannot bind a socket of this host");
	return 0;
}

void pl_comm_world_wake_rank(struct pl_world *w, int rank)
{
	struct pl_peer *p = &w->peer[rank];

	if (rank == w->rank || !p->shared)
		return;
	/* the change must be visible to the other rank before this one reads its flag */
	atomic_thread_fence(memory_order_seq_cst);
	if (!atomic_load_explicit(&p->shared->asleep, memory_order_relaxed) ||
	    !atomic_exchange(&p->shared->asleep, 0))
		return;
	/* a full socket wakes the rank as well */
	if (sendto(w->doorbell, "", 1, MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&p->doorbell,
		   DOORBELL_BYTES) < 0)
		return;
}

/* ---- the segment ---- */

static void lay_out(struct pl_world *w)
{
	uint8_t *base = (uint8_t *)w->shared;
	struct pl_shared_rank *s =
		(struct pl_shared_rank *)(void *)(base + sizeof(struct pl_shared));
	struct pl_ring *ring = (struct pl_ring *)(void *)(base + rings_at(w->n_local));

	for (int i = 0; i < w->n_local; i++) {
		struct pl_peer *p = &w->peer[w->local[i]];

		p->local_rank = i;
		p->shared = &s[i];
		for (int k = 0; k < 2 && i != w->local_rank; k++) {
			int out = (w->local_rank * w->n_local + i) * 2 + k;
			int in = (i * w->n_local + w->local_rank) * 2 + k;

			p->conn[k].out = &ring[out];
			p->conn[k].in = &ring[in];
		}
	}
}

static int make_shared(struct pl_world *w, pl_ns until, struct pl_err *err)
{
	struct pl_frame f = { .kind = PL_FRAME_MEMORY, .rank = (uint32_t)w->rank };
	int rc;

	PL_TRY(pl_comm_memory_make(w->shared_bytes, &w->shared_fd, err));
	PL_TRY(pl_comm_memory_map(w->shared_fd, w->shared_bytes, &w->shared, err));
	w->shared->nonce = (uint64_t)pl_now_ns() ^ (uint64_t)getpid() << 44;
	atomic_store(&w->shared->magic, SHARED_MAGIC);
	f.memory.pid = getpid();
	f.memory.fd = w->shared_fd;
	f.memory.bytes = w->shared_bytes;
	for (int i = 1; i < w->n_local; i++) {
		rc = pl_comm_link_write(&w->peer[w->local[i]].control, &f, until, err);
		if (rc < 0)
			return pl_wrap(err, "meeting: rank %d", pl_comm_name(w, w->local[i]));
	}
out:
	return rc;
}

static int take_shared(struct pl_world *w, pl_ns until, struct pl_err *err)
{
	int leader = w->local[0], rc;
	struct pl_frame f;

	rc = pl_comm_link_read(&w->peer[leader].control, &f, until, err);
	if (rc >= 0 && (f.kind != PL_FRAME_MEMORY || f.memory.bytes != w->shared_bytes))
		rc = pl_fail(err, PL_EDATA, "it announced other memory than expected");
	if (rc < 0)
		return pl_wrap(err, "meeting: rank %d", pl_comm_name(w, leader));
	PL_TRY(pl_comm_memory_open(f.memory.pid, f.memory.fd, w->shared_bytes, &w->shared_fd, err));
	PL_TRY(pl_comm_memory_map(w->shared_fd, w->shared_bytes, &w->shared, err));
	if (atomic_load(&w->shared->magic) != SHARED_MAGIC)
		rc = pl_fail(err, PL_EDATA, "the shared memory of rank %d is something else",
			     pl_comm_name(w, leader));
out:
	return rc;
}

int pl_comm_shared_open(struct pl_world *w, pl_ns until, struct pl_err *err)
{
	if (w->n_local < 2 || !w->shares)
		return 0;
	w->shared_bytes = shared_bytes(w->n_local);
	PL_CHECK(w->local_rank == 0 ? make_shared(w, until, err) : take_shared(w, until, err));
	lay_out(w);
	return open_doorbell(w, err);
}

void pl_comm_shared_close(struct pl_world *w)
{
	for (int i = 0; i < PL_REGIONS; i++)
		if (w->region[i].base && !pl_library_keeps(w))
			munmap(w->region[i].base, w->region[i].bytes);
	if (w->shared)
		munmap(w->shared, w->shared_bytes);
	pl_comm_close(&w->shared_fd);
	pl_comm_close(&w->doorbell);
}

/* ---- memory for users ---- */

uint32_t pl_comm_shared_find(const struct pl_world *w, const void *p, size_t bytes, uint64_t *at)
{
	uintptr_t a = (uintptr_t)p;

	for (uint32_t i = 0; i < PL_REGIONS; i++) {
		const struct pl_region *g = &w->region[i];
		uintptr_t own;

		if (!g->base)
			continue;
		own = (uintptr_t)g->base + (w->shared ? (uintptr_t)w->local_rank * g->stride : 0);
		if (a >= own && a - own < g->stride && bytes <= g->stride - (a - own)) {
			*at = a - own;
			return i;
		}
	}
	return PL_NONE;
}

int pl_comm_add_up(struct pl_world *w, float *v, size_t n, struct pl_err *err)
{
	struct pl_coll_args sum = {
		.op = PL_OP_ALLREDUCE, .count = n, .src = v, .dst = v, .on_host = true
	};

	return pl_comm_world_do(w, &sum, err);
}

int pl_comm_agree(struct pl_world *w, const struct pl_err *own, struct pl_err *err)
{
	float v[2] = { own->code != 0, own->code ? (float)pl_comm_name(w, w->rank) : 0 };
	int rc = pl_comm_add_up(w, v, 2, err);

	if (rc < 0 || v[0] <= 0)
		return rc;
	if (own->code)
		return pl_fail(err, own->code, "%s", own->msg);
	if (v[0] > 1)
		return pl_fail(err, PL_ENOMEM, "%d other ranks have no memory left", (int)v[0]);
	return pl_fail(err, PL_ENOMEM, "rank %d has no memory left", (int)v[1]);
}

/* Maps a new region, after the first rank of each host has made it. `own`: an earlier failure. */
static int map_region(struct pl_world *w, struct pl_region *g, struct pl_err *own,
		      struct pl_err *err)
{
	struct pl_coll_args barrier = { .op = PL_OP_BARRIER };
	int fd = -1, rc;

	if (w->shared && w->local_rank == 0) {
		w->shared->region.pid = getpid();
		w->shared->region.fd =
			own->code || pl_comm_memory_make(g->bytes, &fd, own) < 0 ? -1 : fd;
	}
	rc = pl_comm_world_do(w, &barrier, err);
	if (rc >= 0 && !own->code && w->shared && w->local_rank > 0 &&
	    pl_comm_memory_open(w->shared->region.pid, w->shared->region.fd, g->bytes, &fd, own) <
		    0)
		fd = -1;
	if (rc >= 0 && !own->code)
		(void)!pl_comm_memory_map(fd, g->bytes, &g->base, own); /* own has the error */
	if (rc >= 0)
		rc = pl_comm_agree(w, own, err);
	if (rc < 0 && g->base)
		munmap(g->base, g->bytes);
	pl_comm_close(&fd); /* the others have opened it now */
	return rc;
}

void *pl_comm_world_alloc(struct pl_world *w, size_t bytes, struct pl_err *err)
{
	struct pl_region g = { 0 }, *place;
	size_t parts = w->shared ? (size_t)w->n_local : 1;
	struct pl_err own = { 0 };

	if (w->device.b)
		return pl_comm_device_alloc(w, bytes, err);
	place = &w->region[w->n_allocs++ % PL_REGIONS];
	if (bytes > SIZE_MAX / parts - PAGE)
		pl_fail(&own, PL_ENOMEM, "out of memory (%zu bytes)", bytes);
	else if (place->base)
		pl_fail(&own, PL_ELIMIT, "more than %d pieces of memory of the world", PL_REGIONS);
	g.stride = own.code ? PAGE : whole_pages(bytes ? bytes : 1);
	g.bytes = g.stride * parts;
	if (map_region(w, &g, &own, err) < 0)
		return NULL;
	pthread_mutex_lock(&w->lock);
	*place = g;
	pthread_mutex_unlock(&w->lock);
	return g.base + (w->shared ? (size_t)w->local_rank * g.stride : 0);
}

void pl_comm_world_free(struct pl_world *w, void *p)
{
	uint64_t at;
	uint32_t i = p && !w->device.b ? pl_comm_shared_find(w, p, 0, &at) : PL_NONE;

	if (p && w->device.b)
		pl_comm_device_free(w, p);
	if (i == PL_NONE)
		return;
	if (!pl_library_keeps(w))
		munmap(w->region[i].base, w->region[i].bytes);
	w->region[i].base = NULL;
}
