/*
 * fake_profiler - a profiler plugin of NCCL that another one calls (versions 4 and 5). It checks
 * what it gets: contexts and handles must be its own, and parents the right ones.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "record/nccl.h"

#define EXPORT __attribute__((visibility("default")))
#define MAGIC  0x70726f66u

struct context {
	unsigned magic;
};
struct handle {
	unsigned magic;
	uint64_t type;
	_Atomic int ended;
};

static struct context context = { MAGIC };
static struct handle all[1 << 16];
static _Atomic size_t used;
static _Atomic long started, stopped, states, wrong;

/* Starts, stops, states, and what was wrong. */
EXPORT void fake_profiler_counts(long *n);
EXPORT void fake_profiler_counts(long *n)
{
	n[0] = started;
	n[1] = stopped;
	n[2] = states;
	n[3] = wrong;
}

static bool own(const void *p)
{
	return (const char *)p >= (const char *)all && (const char *)p < (const char *)(all + used);
}

static int start(void *c, void **handle, uint64_t type, void *parent, uint64_t parent_type)
{
	struct handle *h = &all[atomic_fetch_add(&used, 1) % (sizeof(all) / sizeof(all[0]))];

	started++;
	wrong += c != &context;
	if (parent && !own(parent))
		wrong++;
	else if (parent && parent_type && ((struct handle *)parent)->type != parent_type)
		wrong++;
	h->magic = MAGIC;
	h->type = type;
	*handle = h;
	return 0;
}

static int stop(void *handle)
{
	struct handle *h = handle;

	stopped++;
	wrong += !own(h) || h->magic != MAGIC || atomic_fetch_add(&h->ended, 1);
	return 0;
}

static int state(void *handle, int s, union np_args *args)
{
	(void)s;
	(void)args;
	states++;
	wrong += !own(handle);
	return 0;
}

static int finalize(void *c)
{
	wrong += c != &context;
	return 0;
}

static int init_v4(void **c, int *mask, const char *name, uint64_t hash, int nodes, int ranks,
		   int rank, void *log)
{
	(void)nodes;
	(void)ranks;
	(void)rank;
	(void)log;
	wrong += !name || strcmp(name, "world") || hash != 0xabc;
	*c = &context;
	*mask = NP_GROUP | NP_COLL | NP_PROXY_OP | NP_KERNEL_CH;
	return 0;
}

static int start_v4(void *c, void **handle, struct np_event_v4 *e)
{
	return start(c, handle, e->type, e->parent,
		     e->type == NP_COLL	      ? NP_GROUP
		     : e->type == NP_PROXY_OP ? NP_COLL
					      : 0);
}

EXPORT const struct np_v4 ncclProfiler_v4 = { "fake", init_v4, start_v4, stop, state, finalize };

#ifndef ONLY_V4
static int init_v5(void **c, uint64_t hash, int *mask, const char *name, int nodes, int ranks,
		   int rank, void *log)
{
	init_v4(c, mask, name, hash, nodes, ranks, rank, log);
	*mask = NP_COLL_API | NP_COLL | NP_PROXY_OP | NP_KERNEL_CH;
	return 0;
}

static int start_v5(void *c, void **handle, struct np_event_v5 *e)
{
	return start(c, handle, e->type, e->parent,
		     e->type == NP_COLL	      ? NP_COLL_API
		     : e->type == NP_PROXY_OP ? NP_COLL
					      : 0);
}

EXPORT const struct np_v5 ncclProfiler_v5 = { "fake", init_v5, start_v5, stop, state, finalize };
#endif
