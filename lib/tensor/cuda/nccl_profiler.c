/*
 * The collectives that NCCL reports: a profiler that NCCL loads from the file with this code
 * (NCCL's "profiler plugin" interface).
 *
 * NCCL reports calls of its interface (in groups), the launches of kernels, the collectives and
 * transfers of each group, and every step of every channel on a network. The number of a group is
 * given to the trace of the device while its kernels are launched (CUPTI's external correlation),
 * and is reported with each collective, so that readers can join kernels and collectives. Version 4
 * does not report launches: its collectives have no number, and are paired with kernels by order.
 *
 * The number of a collective counts the earlier ones of its communicator, which is the same on all
 * its ranks. NCCL's own number counts each type of collective separately.
 *
 * NCCL keeps handles of events, and may use one as a parent long after its end (a network step of a
 * collective that has been issued). Handles are taken in turn from a ring that is much longer than
 * the number of events in progress.
 *
 * Without a trace, communicators are told to report no events, so NCCL makes no calls. Other
 * programs may also load this file (NCCL_PROFILER_PLUGIN is inherited).
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tensor/cuda/nccl_profiler.h"
#include "tensor/cuda/trace.h"

#define RING	8192
#define EXPORT	__attribute__((visibility("default")))
#define MASK_V4 (NP_GROUP | NP_COLL | NP_P2P | NP_PROXY_OP | NP_PROXY_STEP)
#define MASK_V5                                                                                    \
	(NP_COLL | NP_P2P | NP_PROXY_OP | NP_PROXY_STEP | NP_GROUP_API | NP_COLL_API |             \
	 NP_P2P_API | NP_KERNEL_LAUNCH)

struct comm {
	struct comm *next;
	char group[64];
	int ranks;
	_Atomic int64_t colls; /* number of collectives so far */
};

struct handle {
	uint64_t type;
	struct comm *comm;
	uint64_t launch;
	int64_t seq;
	/* of a proxy operation and its steps */
	int32_t peer, channel;
	bool sends;
	pl_ns begin, end;
	int64_t bytes;
};

static struct {
	pthread_mutex_t lock;
	struct handle *ring;
	struct comm *comms; /* all communicators so far */
	_Atomic uint64_t used, launches;
	char path[512];
} st = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- handles ------------------------------------------------------------------------------- */

/* The ring is never freed: NCCL may keep handles until the process ends. */
static bool have_ring(void)
{
	bool have;

	pthread_mutex_lock(&st.lock);
	if (!st.ring)
		st.ring = pl_calloc(RING, sizeof(*st.ring));
	have = st.ring != NULL;
	pthread_mutex_unlock(&st.lock);
	return have;
}

static struct handle *new_handle(struct comm *c, uint64_t type)
{
	struct handle *h = &st.ring[atomic_fetch_add(&st.used, 1) % RING];

	*h = (struct handle){ .type = type, .comm = c, .seq = -1, .peer = -1, .channel = -1 };
	return h;
}

/* NULL: no handle of this ring. */
static const struct handle *own_handle(const void *p)
{
	uintptr_t at = (uintptr_t)p, first = (uintptr_t)st.ring;

	return at >= first && at < first + RING * sizeof(*st.ring) ? p : NULL;
}

/* ---- collectives --------------------------------------------------------------------------- */

/* Bytes of an element: "ncclFloat32", "ncclBfloat16", "ncclDouble", "ncclFloat8e4m3". */
static int64_t type_bytes(const char *type)
{
	static const struct {
		const char *part;
		int64_t bytes;
	} known[] = { { "64", 8 }, { "Double", 8 }, { "16", 2 },    { "Half", 2 }, { "32", 4 },
		      { "8", 1 },  { "Char", 1 },   { "Float", 4 }, { "Int", 4 },  { "int", 4 } };

	for (size_t i = 0; type && i < PL_LEN(known); i++)
		if (strstr(type, known[i].part))
			return known[i].bytes;
	return -1;
}

/* Bytes of the whole data: the most that a rank sends or receives. */
static int64_t whole_bytes(const struct comm *c, const struct np_coll *e)
{
	int64_t each = type_bytes(e->type), n = 1;

	if (each < 0 || e->count > (size_t)1 << 48)
		return -1;
	if (e->func && (!strcmp(e->func, "AllGather") || !strcmp(e->func, "ReduceScatter") ||
			!strcmp(e->func, "AlltoAll")))
		n = c->ranks;
	return each * (int64_t)e->count * n;
}

static void report_comm(const struct handle *h, const char *func, int64_t bytes, int32_t peer)
{
	char text[64];
	struct pl_device_event e;
	pl_ns now = pl_now_ns();

	snprintf(text, sizeof(text), "nccl%.40s", func ? func : "");
	e = pl_device_event(PL_DEV_COMM, text, now, now, 0);
	e.launch = h->launch;
	e.group = h->comm->group;
	e.seq = h->seq;
	e.bytes = bytes;
	e.peer = peer;
	pl_cuda_trace_report(&e);
}

static void begin_coll(struct handle *h, const struct np_coll *e)
{
	h->seq = atomic_fetch_add(&h->comm->colls, 1);
	report_comm(h, e->func, whole_bytes(h->comm, e), -1);
}

static void begin_p2p(struct handle *h, const struct np_p2p *e)
{
	int64_t each = type_bytes(e->type);

	report_comm(h, e->func,
		    each < 0 || e->count > (size_t)1 << 48 ? -1 : each * (int64_t)e->count,
		    e->peer);
}

/* ---- the network --------------------------------------------------------------------------- */

/* A parent in another process is no handle of this ring: with PXN a process carries the operations
 * of another one. */
static void begin_proxy_op(struct handle *h, const struct handle *parent,
			   const struct np_proxy_op *e)
{
	bool known = parent && e->pid == getpid() && (parent->type & (NP_COLL | NP_P2P));

	h->seq = known ? parent->seq : -1;
	h->comm = known ? parent->comm : h->comm;
	h->peer = e->peer;
	h->channel = e->channel;
	h->sends = e->sends;
}

static void begin_step(struct handle *h, const struct handle *op)
{
	if (op && op->type == NP_PROXY_OP) {
		h->comm = op->comm;
		h->seq = op->seq;
		h->peer = op->peer;
		h->channel = op->channel;
		h->sends = op->sends;
	}
	h->begin = pl_now_ns();
	h->bytes = -1;
}

/* A send begins when the device has filled the buffer, a receive ends when the data has arrived. */
static void step_state(struct handle *h, int state, const union np_args *args)
{
	pl_ns now = pl_now_ns();

	if (state == NP_SEND_WAIT)
		h->begin = now;
	if ((state == NP_RECV_FLUSH_WAIT || state == NP_RECV_GPU_WAIT) && !h->end)
		h->end = now;
	if (args && args->step_bytes &&
	    (state == NP_SEND_WAIT || state == NP_RECV_FLUSH_WAIT || state == NP_RECV_GPU_WAIT))
		h->bytes = (int64_t)pl_min_size(args->step_bytes, (size_t)1 << 48);
}

static void end_step(const struct handle *h)
{
	struct pl_device_event e =
		pl_device_event(PL_DEV_MESSAGE, NULL, h->begin, h->end ? h->end : pl_now_ns(), 0);

	if (!h->comm || h->seq < 0)
		return;
	e.group = h->comm->group;
	e.seq = h->seq;
	e.peer = h->peer;
	e.channel = h->channel;
	e.sends = h->sends;
	e.bytes = h->bytes;
	pl_cuda_trace_report(&e);
}

/* ---- of both versions ---------------------------------------------------------------------- */

static struct handle *begin(struct comm *c, uint64_t type, const void *parent_handle,
			    const union np_what *what)
{
	const struct handle *parent = own_handle(parent_handle);
	struct handle *h;

	if (!c || !pl_cuda_trace_tracing())
		return NULL;
	h = new_handle(c, type);
	h->launch = parent ? parent->launch : 0;
	switch (type) {
	case NP_GROUP_API:
		h->launch = atomic_fetch_add(&st.launches, 1) + 1;
		break;
	case NP_KERNEL_LAUNCH:
		if (h->launch)
			pl_cuda_trace_cupti_push(h->launch);
		break;
	case NP_COLL:
		begin_coll(h, &what->coll);
		break;
	case NP_P2P:
		begin_p2p(h, &what->p2p);
		break;
	case NP_PROXY_OP:
		begin_proxy_op(h, parent, &what->proxy_op);
		break;
	case NP_PROXY_STEP:
		begin_step(h, parent);
		break;
	}
	return h;
}

static int stop(void *handle)
{
	struct handle *h = handle;

	if (h && h->type == NP_KERNEL_LAUNCH && h->launch)
		pl_cuda_trace_cupti_pop();
	if (h && h->type == NP_PROXY_STEP)
		end_step(h);
	return 0;
}

static int state(void *handle, int s, union np_args *args)
{
	struct handle *h = handle;

	if (h && h->type == NP_PROXY_STEP)
		step_state(h, s, args);
	return 0;
}

static struct comm *new_comm(const char *name, uint64_t hash, int ranks)
{
	struct comm *c = pl_cuda_trace_tracing() && have_ring() ? pl_calloc(1, sizeof(*c)) : NULL;

	if (!c)
		return NULL;
	if (name && *name)
		snprintf(c->group, sizeof(c->group), "%.60s", name);
	else
		snprintf(c->group, sizeof(c->group), "nccl %016llx", (unsigned long long)hash);
	c->ranks = ranks;
	return c;
}

/* The communicator is small and is not freed, because handles may outlive it. */
static int finalize(void *context)
{
	(void)context;
	return 0;
}

static int init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes, int ranks,
		   int rank, void *log)
{
	(void)nodes;
	(void)rank;
	(void)log;
	*context = new_comm(name, hash, ranks);
	*mask = *context ? MASK_V4 : 0;
	return 0;
}

static int start_v4(void *context, void **handle, struct np_event_v4 *e)
{
	*handle = begin(context, e->type, e->parent, &e->what);
	return 0;
}

static int init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes, int ranks,
		   int rank, void *log)
{
	(void)nodes;
	(void)rank;
	(void)log;
	*context = new_comm(name, hash, ranks);
	*mask = *context ? MASK_V5 : 0;
	return 0;
}

static int start_v5(void *context, void **handle, struct np_event_v5 *e)
{
	*handle = begin(context, e->type, e->parent, &e->what);
	return 0;
}

EXPORT const struct np_v4 ncclProfiler_v4 = {
	"paceline", init_v4, start_v4, stop, state, finalize
};
EXPORT const struct np_v5 ncclProfiler_v5 = {
	"paceline", init_v5, start_v5, stop, state, finalize
};

void pl_cuda_trace_nccl_set_profiler(void)
{
	Dl_info info;

	if (dladdr(&ncclProfiler_v5, &info) && info.dli_fname)
		setenv("NCCL_PROFILER_PLUGIN", info.dli_fname, 0);
}
