/*
 * Memory of an endpoint that its peers read in place.
 *
 * Each piece is a memfd (memory.c). The first message of a connection that lies in it is announced
 * by its descriptor, and the receiver maps it for reading; later messages name the region and the
 * place. The receiver says when it needs a message no more. Pages belong to the kernel's file, so a
 * process that is killed gives back everything, and a body that a living peer reads stays valid
 * after the sender has died.
 *
 * Whether two endpoints can share memory is tried while they greet: each opens a page of the other
 * and looks for the random number that it was told. Containers may have one name and not one host.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include "comm/endpoint_internal.h"

#define PAGE ((size_t)4096)

/* ---- own regions ---- */

int pl_comm_end_probe_open(struct pl_endpoint *e, struct pl_err *err)
{
	if (!e->may_share)
		return 0;
	PL_CHECK(pl_comm_random(&e->nonce, sizeof(e->nonce), err));
	PL_CHECK(pl_comm_memory_make(PAGE, &e->probe, err));
	if (pwrite(e->probe, &e->nonce, sizeof(e->nonce), 0) != (ssize_t)sizeof(e->nonce))
		return pl_fail_sys(err, "cannot write to shared memory");
	return 0;
}

bool pl_comm_end_probe(const struct pl_frame *theirs)
{
	uint64_t nonce = 0;
	int fd;
	bool same;

	if (theirs->endpoint.fd < 0 ||
	    pl_comm_memory_open(theirs->endpoint.pid, theirs->endpoint.fd, PAGE, &fd, NULL) < 0)
		return false;
	same = pread(fd, &nonce, sizeof(nonce), 0) == (ssize_t)sizeof(nonce) &&
	       nonce == theirs->endpoint.nonce;
	pl_comm_close(&fd);
	return same;
}

static void region_free(struct pl_end_region *r)
{
	if (r->base && !r->lent)
		munmap(r->base, r->bytes);
	if (!r->lent)
		pl_comm_close(&r->fd);
	pl_free(r);
}

static void region_add(struct pl_endpoint *e, struct pl_end_region *r)
{
	pthread_mutex_lock(&e->lock);
	r->number = e->n_regions++;
	r->next = e->regions;
	e->regions = r;
	pthread_mutex_unlock(&e->lock);
}

int pl_comm_endpoint_lend(struct pl_endpoint *e, int fd, void *p, size_t bytes, struct pl_err *err)
{
	struct pl_end_region *r;

	if (!e->may_share)
		return 0;
	if (fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
		return pl_fail_sys(err, "cannot share memory");
	PL_CHECK(pl_alloc(&r, 1, sizeof(*r), err));
	*r = (struct pl_end_region){ .base = p, .bytes = bytes, .fd = fd, .lent = true };
	region_add(e, r);
	return 0;
}

void *pl_comm_endpoint_alloc(struct pl_endpoint *e, size_t bytes, struct pl_err *err)
{
	struct pl_end_region *r;
	int rc;

	if (bytes > SIZE_MAX / 2) {
		pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", bytes);
		return NULL;
	}
	if (pl_alloc(&r, 1, sizeof(*r), err) < 0)
		return NULL;
	r->fd = -1;
	r->bytes = ((bytes ? bytes : 1) + PAGE - 1) & ~(PAGE - 1);
	rc = e->may_share ? pl_comm_memory_make(r->bytes, &r->fd, err) : 0;
	if (rc == 0)
		rc = pl_comm_memory_map(r->fd, r->bytes, &r->base, err);
	if (rc < 0) {
		region_free(r);
		return NULL;
	}
	region_add(e, r);
	return r->base;
}

static void forget_in(struct pl_end_conn *c, uint32_t region)
{
	for (; c; c = c->next)
		for (size_t i = 0; i < c->n_known; i++)
			c->known[i].freed |= c->known[i].region == region;
}

void pl_comm_endpoint_free(struct pl_endpoint *e, void *p)
{
	struct pl_end_region **at, *r;

	if (!p)
		return;
	pthread_mutex_lock(&e->lock);
	for (at = &e->regions; *at && (*at)->base != p; at = &(*at)->next)
		;
	r = *at;
	if (r) {
		*at = r->next;
		forget_in(e->conns, r->number);
		forget_in(e->arrivals, r->number);
		pl_comm_end_wake(e);
	}
	pthread_mutex_unlock(&e->lock);
	if (r)
		region_free(r);
}

struct pl_end_region *pl_comm_end_region(const struct pl_endpoint *e, const void *p, size_t bytes)
{
	uintptr_t a = (uintptr_t)p;

	for (struct pl_end_region *r = e->regions; r; r = r->next) {
		uintptr_t base = (uintptr_t)r->base;

		if (a >= base && a - base <= r->bytes && bytes <= r->bytes - (a - base))
			return r;
	}
	return NULL;
}

/* ---- the regions of peers ---- */

struct pl_end_map *pl_comm_end_map_find(const struct pl_end_conn *c, uint32_t region)
{
	struct pl_end_map *m = c->maps;

	while (m && m->region != region)
		m = m->next;
	return m;
}

int pl_comm_end_map(struct pl_end_conn *c, const struct pl_head *h, struct pl_err *err)
{
	struct pl_end_map *m;
	void *p = MAP_FAILED;
	int fd = -1, rc;

	if (!c->shared || !h->bytes || h->bytes > SIZE_MAX / 2 || h->at > INT32_MAX ||
	    pl_comm_end_map_find(c, h->region))
		return pl_fail(err, PL_EDATA, "it announced memory out of order");
	PL_CHECK(pl_alloc(&m, 1, sizeof(*m), err));
	m->region = h->region;
	m->bytes = (size_t)h->bytes;
	rc = pl_comm_memory_open(c->theirs.endpoint.pid, (int64_t)h->at, m->bytes, &fd, err);
	if (rc == 0 && !pl_fail_now())
		p = mmap(NULL, m->bytes, PROT_READ, MAP_SHARED, fd, 0);
	if (rc == 0 && p == MAP_FAILED)
		rc = pl_fail_sys(err, "cannot map %zu bytes of shared memory", m->bytes);
	pl_comm_close(&fd);
	if (rc < 0) {
		pl_free(m);
		return rc;
	}
	m->base = p;
	m->next = c->maps;
	c->maps = m;
	return 0;
}

static void map_free(struct pl_end_map **list, struct pl_end_map *m)
{
	while (*list != m)
		list = &(*list)->next;
	*list = m->next;
	munmap(m->base, m->bytes);
	pl_free(m);
}

void pl_comm_end_forget(struct pl_end_conn *c, uint32_t region)
{
	struct pl_end_map *m = pl_comm_end_map_find(c, region);

	if (!m)
		return;
	m->forgotten = true;
	if (!m->refs)
		map_free(&c->maps, m);
}

void pl_comm_end_unref(struct pl_endpoint *e, struct pl_end_conn *c, struct pl_end_map *m)
{
	if (!--m->refs && m->forgotten)
		map_free(c ? &c->maps : &e->orphans, m);
}

void pl_comm_end_maps_end(struct pl_endpoint *e, struct pl_end_conn *c)
{
	struct pl_end_map *m, *next;

	for (m = c->maps; m; m = next) {
		next = m->next;
		m->forgotten = true;
		if (m->refs) {
			m->next = e->orphans;
			e->orphans = m;
		} else {
			munmap(m->base, m->bytes);
			pl_free(m);
		}
	}
	c->maps = NULL;
}

void pl_comm_end_memory_fini(struct pl_endpoint *e)
{
	while (e->regions) {
		struct pl_end_region *r = e->regions;

		e->regions = r->next;
		region_free(r);
	}
	while (e->orphans)
		map_free(&e->orphans, e->orphans);
	pl_comm_close(&e->probe);
}
