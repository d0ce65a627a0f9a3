/*
 * What NCCL reports to a profiler that it loads (its "profiler plugin" interface).
 *
 * NCCL reports calls of its interface (in groups), the launches of kernels, the collectives and
 * transfers of each group, every step of every channel on a network, and when each channel of a
 * kernel began and ended. The number of a group is given to the trace of the device while its
 * kernels are launched (CUPTI's external correlation), and is reported with each collective, so
 * that readers can join kernels and collectives. Version 4 does not report launches: its
 * collectives have no number, and are paired with kernels by order.
 *
 * The number of a collective counts the earlier ones of its communicator, which is the same on all
 * its ranks. NCCL's own number counts each type of collective separately.
 *
 * NCCL's stop of a collective means only that it was issued. It is over when all channels of its
 * kernel are, or, without such events, when its network operations are.
 *
 * A handle is the number of the event, and finds its slot in a ring that is much longer than the
 * number of events in progress. The slot knows the number, so a handle that is used too late, or
 * twice, is noticed and counted. NCCL may use a handle as a parent long after its end. Locks are of
 * a part of the slots each: NCCL's threads seldom meet.
 *
 * Without a receiver that records, communicators are told to report no events, so NCCL makes no
 * calls. Other programs may also load this file (NCCL_PROFILER_PLUGIN is inherited).
 */
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "record/gpu_clock.h"
#include "record/internal.h"
#include "record/nccl.h"

#define RING	   16384
#define LOCKS	   64
#define LEFT_OUT   64 /* slots in a row, at most */
#define AWAITED_NS 30000000000

struct comm {
	struct pl_nccl_comm c; /* first */
	struct comm *before;   /* made earlier */
	_Atomic int64_t colls; /* number of collectives so far */
	struct pl_gpu_clock clock;
	void *next; /* context of the other plugin */
	int mask, next_mask;
};

struct slot {
	uint64_t number; /* 0: never used */
	struct comm *comm;
	void *next;   /* handle of the other plugin */
	void *parent; /* handle of ours */
	void *coll;   /* of a network operation and its steps: handle of the collective */
	pl_ns kernel; /* of a collective: when its kernel began, 0: not known */
	bool wanted, stopped, told;
	bool captured; /* a call whose collectives run later, as a graph */
	uint8_t channels_done;
	struct pl_nccl_event e;
	uint64_t gpu[2];  /* of a channel: times of the device, 0 none */
	pl_ns device[2];  /* of a collective: of its channels, on the clock of the host; 0: none */
	pl_ns network[2]; /* of its network operations */
	char func[24], dtype[20], algo[16], proto[16];
};

static struct {
	const struct pl_nccl_receiver *to;
	pthread_mutex_t lock; /* of the ring's making */
	pthread_mutex_t part[LOCKS];
	struct slot *ring;
	_Atomic uint64_t used, launches, lost;
	struct comm *_Atomic last; /* the communicator that was made last */
} st = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* That of operations which another process has given to this one: the rank and the number of the
 * collective are not known here. */
static struct comm elsewhere = { .c = { .ranks = -1, .rank = -1 } };

void pl_nccl_receive(const struct pl_nccl_receiver *r)
{
	st.to = r;
}

uint64_t pl_nccl_lost(void)
{
	return atomic_load(&st.lost);
}

static bool recording(void)
{
	return st.to && st.to->on();
}

/* ---- slots --------------------------------------------------------------------------------- */

/* The ring is never freed: NCCL may keep handles until the process ends. */
static bool have_ring(void)
{
	bool have;

	pthread_mutex_lock(&st.lock);
	if (!st.ring) {
		for (size_t i = 0; i < LOCKS; i++)
			pthread_mutex_init(&st.part[i], NULL);
		st.ring = pl_calloc(RING, sizeof(*st.ring));
	}
	have = st.ring != NULL;
	pthread_mutex_unlock(&st.lock);
	return have;
}

static struct slot *slot_lock(uint64_t number)
{
	pthread_mutex_lock(&st.part[number % LOCKS]);
	return &st.ring[number % RING];
}

static void slot_unlock(const struct slot *s)
{
	pthread_mutex_unlock(&st.part[(size_t)(s - st.ring) % LOCKS]);
}

/* The slot of a handle, locked; NULL: it is no handle of ours, or its slot was taken again. */
static struct slot *slot_of(const void *handle)
{
	uint64_t number = (uint64_t)(uintptr_t)handle;
	struct slot *s;

	if (!number || !st.ring || number > atomic_load(&st.used))
		return NULL;
	s = slot_lock(number);
	if (s->number == number)
		return s;
	slot_unlock(s);
	return NULL;
}

static bool is_transfer(uint64_t type)
{
	return type == NP_COLL || type == NP_P2P || type == NP_CE_COLL;
}

static void tell(struct slot *s)
{
	s->e.func = s->func[0] ? s->func : NULL;
	s->e.dtype = s->dtype[0] ? s->dtype : NULL;
	s->e.algo = s->algo[0] ? s->algo : NULL;
	s->e.proto = s->proto[0] ? s->proto : NULL;
	if (recording())
		st.to->event(&s->e);
}

/* The times of a collective: from the device if it told them, else from the network. */
static void set_times(struct slot *s)
{
	const pl_ns *from = s->device[1] ? s->device : s->network[1] ? s->network : NULL;

	s->e.times = from == s->device ? "device" : from ? "network" : "enqueue";
	if (from) {
		s->e.begin = from[0];
		s->e.end = from[1];
	}
}

/* The slot is locked. */
static void end_times(struct slot *s)
{
	pl_ns now = pl_now_ns();

	s->e.over = now;
	if (s->e.type != NP_KERNEL_CH) {
		s->e.end = s->e.end ? s->e.end : now;
		return;
	}
	/* a time of the device that is 0 was not taken */
	s->e.begin = s->gpu[0] ? pl_gpu_clock_host(&s->comm->clock, s->gpu[0]) : s->e.begin;
	s->e.end = s->gpu[1] ? pl_gpu_clock_host(&s->comm->clock, s->gpu[1]) : now;
	s->e.end = pl_max_i64(s->e.begin, s->e.end);
}

/* The event of the slot is over, or cannot be waited for any longer. *out: what to tell. Events
 * that never ended are lost, except collectives and channels whose device told its end. */
static bool end_slot(struct slot *s, struct slot *out)
{
	bool coll = is_transfer(s->e.type);

	if (!s->number || s->told || !s->wanted)
		return false;
	s->told = true;
	if (!s->stopped && !coll && !s->gpu[1]) {
		atomic_fetch_add(&st.lost, 1);
		return false;
	}
	if (!s->stopped)
		end_times(s);
	if (coll)
		set_times(s);
	*out = *s;
	return true;
}

/* A transfer may wait in its stream while thousands of steps of others begin and end. */
static bool is_awaited(const struct slot *s, pl_ns now)
{
	return s->number && s->wanted && !s->told && is_transfer(s->e.type) &&
	       (s->comm->mask & NP_KERNEL_CH) && now - s->e.begin < AWAITED_NS;
}

/* Numbers whose slot is awaited are left out, if these are not too many. */
static void *new_handle(struct slot *filled, uint64_t type)
{
	uint64_t number = 0;
	struct slot *s = NULL, old;
	bool overtaken;

	for (int i = 0; i < LEFT_OUT; i++) {
		if (s)
			slot_unlock(s);
		number = atomic_fetch_add(&st.used, 1) + 1;
		s = slot_lock(number);
		if (!is_awaited(s, filled->e.begin))
			break;
	}
	overtaken = end_slot(s, &old);
	filled->number = number;
	filled->e.comm = &filled->comm->c;
	filled->e.type = type;
	*s = *filled;
	slot_unlock(s);
	if (overtaken)
		tell(&old);
	return (void *)(uintptr_t)number;
}

static void extend(pl_ns *span, pl_ns begin, pl_ns end)
{
	span[0] = span[1] ? pl_min_i64(span[0], begin) : begin;
	span[1] = pl_max_i64(span[1], end);
}

/* Tells what is not over, of a communicator or (NULL) of all. */
static void end_all(const struct comm *c)
{
	for (size_t i = 0; st.ring && i < RING; i++) {
		struct slot *s = slot_lock(i), done;
		bool is = (!c || s->comm == c) && end_slot(s, &done);

		slot_unlock(s);
		if (is)
			tell(&done);
	}
}

void pl_nccl_end(void)
{
	end_all(NULL);
}

/* ---- sizes --------------------------------------------------------------------------------- */

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
static int64_t whole_bytes(const struct comm *c, const char *func, const char *type, size_t count)
{
	static const char *const parts[] = { "AllGather", "ReduceScatter", "AlltoAll", "Gather",
					     "Scatter" };
	int64_t each = type_bytes(type), n = 1;

	if (each < 0 || count > (size_t)1 << 48)
		return -1;
	for (size_t i = 0; func && i < PL_LEN(parts); i++)
		if (!strcmp(func, parts[i]))
			n = c->c.ranks;
	return each * (int64_t)count * n;
}

/* ---- what an event says -------------------------------------------------------------------- */

static void set_text(char *to, size_t size, const char *text)
{
	if (text)
		snprintf(to, size, "%s", text);
}
#define SET(member, text) set_text(s->member, sizeof(s->member), text)

static void begin_coll(struct slot *s, const struct np_coll *e)
{
	s->e.seq = atomic_fetch_add(&s->comm->colls, 1);
	s->e.bytes = whole_bytes(s->comm, e->func, e->type, e->count);
	s->e.count = e->count > INT64_MAX ? -1 : (int64_t)e->count;
	s->e.root = e->root;
	s->e.channels = e->channels;
	SET(func, e->func);
	SET(dtype, e->type);
	SET(algo, e->algo);
	SET(proto, e->proto);
}

static void begin_ce_coll(struct slot *s, const struct np_ce_coll *e)
{
	const struct np_coll c = {
		.func = e->func, .type = e->type, .count = e->count, .root = e->root, .algo = "CE"
	};

	begin_coll(s, &c);
}

static void begin_p2p(struct slot *s, const struct np_p2p *e)
{
	s->e.bytes = whole_bytes(s->comm, NULL, e->type, e->count);
	s->e.count = e->count > INT64_MAX ? -1 : (int64_t)e->count;
	s->e.peer = e->peer;
	s->e.channels = e->channels;
	SET(func, e->func);
	SET(dtype, e->type);
}

static void begin_api(struct slot *s, uint64_t type, const union np_what *w)
{
	bool coll = type == NP_COLL_API;

	SET(func, coll ? w->api.func : w->p2p_api.func);
	SET(dtype, coll ? w->api.type : w->p2p_api.type);
	s->e.bytes =
		whole_bytes(s->comm, s->func, s->dtype, coll ? w->api.count : w->p2p_api.count);
	s->e.stream = (uint64_t)(uintptr_t)(coll ? w->api.stream : w->p2p_api.stream);
	s->captured = coll ? w->api.captured : w->p2p_api.captured;
}

static void begin_proxy_op(struct slot *s, const struct np_proxy_op *e)
{
	s->e.peer = e->peer;
	s->e.channel = e->channel;
	s->e.sends = e->sends;
	s->e.steps = e->steps;
	s->e.bytes = e->chunk;
}

/* What an event has from its parent. */
static void inherit(struct slot *s, uint64_t type, const struct slot *parent)
{
	const struct pl_nccl_event *p = &parent->e;

	s->e.launch = parent->captured ? 0 : p->launch; /* a graph is launched by other calls */
	s->e.stream = p->stream;
	if (type == NP_PROXY_OP || type == NP_PROXY_STEP || type == NP_KERNEL_CH) {
		s->e.seq = p->seq;
		s->comm = parent->comm;
		SET(func, parent->func);
	}
	s->coll = type == NP_PROXY_STEP ? parent->coll : (void *)(uintptr_t)parent->number;
	if (type == NP_PROXY_STEP) {
		s->e.peer = p->peer;
		s->e.channel = p->channel;
		s->e.sends = p->sends;
	}
}

static uint32_t thread_number(void)
{
	static _Thread_local uint32_t number;

	if (!number)
		number = (uint32_t)syscall(SYS_gettid);
	return number;
}

/* *parent: the handle of the parent event by the other plugin. */
static void fill(struct slot *s, uint64_t type, const void *parent_handle, const union np_what *w,
		 void **parent)
{
	/* an operation of another process: so is its parent */
	struct slot *p =
		type == NP_PROXY_OP && s->comm == &elsewhere ? NULL : slot_of(parent_handle);

	*parent = NULL;
	s->e = (struct pl_nccl_event){ .seq = -1,
				       .bytes = -1,
				       .count = -1,
				       .peer = -1,
				       .root = -1,
				       .channel = -1,
				       .channels = -1,
				       .steps = -1,
				       .step = -1,
				       .thread = thread_number(),
				       .begin = pl_now_ns() };
	if (p) {
		inherit(s, type, p);
		s->parent = (void *)(uintptr_t)p->number;
		*parent = p->next;
		slot_unlock(p);
	}
	switch (type) {
	case NP_GROUP_API:
		s->e.launch = atomic_fetch_add(&st.launches, 1) + 1;
		break;
	case NP_COLL_API:
	case NP_P2P_API:
		begin_api(s, type, w);
		break;
	case NP_KERNEL_LAUNCH:
		s->e.stream = (uint64_t)(uintptr_t)w->stream;
		break;
	case NP_COLL:
		begin_coll(s, &w->coll);
		break;
	case NP_CE_COLL:
		begin_ce_coll(s, &w->ce_coll);
		break;
	case NP_P2P:
		begin_p2p(s, &w->p2p);
		break;
	case NP_PROXY_OP:
		begin_proxy_op(s, &w->proxy_op);
		break;
	case NP_PROXY_STEP:
		s->e.step = w->step;
		break;
	case NP_KERNEL_CH:
		s->e.channel = w->kernel_ch.channel;
		s->gpu[0] = w->kernel_ch.timer;
		break;
	}
}

/* A receive may be posted before the kernel runs; a message lies in the span of its collective. */
static void begin_in_kernel(struct slot *step)
{
	struct slot *coll = slot_of(step->coll);

	if (!coll)
		return;
	if (coll->kernel > step->e.begin)
		step->e.begin = pl_min_i64(coll->kernel, step->e.end);
	slot_unlock(coll);
}

static void kernel_begins(const struct slot *channel)
{
	pl_ns at = pl_gpu_clock_host(&channel->comm->clock, channel->gpu[0]);
	struct slot *coll = slot_of(channel->parent);

	if (!coll)
		return;
	coll->kernel = coll->kernel ? pl_min_i64(coll->kernel, at) : at;
	slot_unlock(coll);
}

/* ---- whose event it is ------------------------------------------------------------------------
 *
 * With PXN a process carries the operations of another one: context and parent of such an operation
 * are addresses and handles there. The number of that process tells it; but in containers two
 * processes of a host may have the same number, so the context has to be one of ours, too.
 */

static bool is_ours(const void *context)
{
	const struct comm *c = atomic_load_explicit(&st.last, memory_order_acquire);

	while (c && c != context)
		c = c->before;
	return c != NULL;
}

/* The communicator of a part of an operation is that of its parent, which is in this process. */
static struct comm *comm_of_parent(const void *parent)
{
	struct slot *s = slot_of(parent);
	struct comm *c = s ? s->comm : &elsewhere;

	if (s)
		slot_unlock(s);
	return c;
}

/* NULL: nobody wants it. The context is followed only where it must be ours. */
static struct comm *comm_of(void *context, uint64_t type, const void *parent,
			    const union np_what *w)
{
	struct comm *c = context;

	if (type == NP_PROXY_OP && (w->proxy_op.pid != getpid() || !is_ours(context)))
		c = &elsewhere;
	if (type == NP_PROXY_STEP || type == NP_NET_PLUGIN)
		c = comm_of_parent(parent);
	return c && st.ring && (recording() || c->next_mask) ? c : NULL;
}

static bool is_wanted(const struct comm *c, uint64_t type)
{
	int mask = c != &elsewhere ? c->mask : recording() ? st.to->mask : 0;

	return ((uint64_t)mask & type) != 0;
}

/* ---- begin --------------------------------------------------------------------------------- */

/* Returns the handle. *next_parent: the parent by the other plugin. */
static void *begin(struct comm *c, uint64_t type, void *parent, const union np_what *w,
		   void **next_parent)
{
	struct slot s = { .comm = c, .wanted = is_wanted(c, type) };
	void *handle;

	fill(&s, type, parent, w, next_parent);
	if (s.gpu[0]) {
		pl_gpu_clock_reading(&s.comm->clock, s.gpu[0], s.e.begin);
		kernel_begins(&s);
	}
	handle = new_handle(&s, type);
	if (s.wanted && is_transfer(type)) {
		s.e.end = s.e.begin;
		s.e.issued = true;
		tell(&s);
	}
	if (type == NP_KERNEL_LAUNCH && s.wanted && s.e.launch && st.to->push && recording())
		st.to->push(s.e.launch);
	return handle;
}

static void set_next(void *handle, void *next)
{
	struct slot *s = next ? slot_of(handle) : NULL;

	if (!s)
		return;
	s->next = next;
	slot_unlock(s);
}

/* ---- end ----------------------------------------------------------------------------------- */

/* Part of a collective is over: of its kernel (a channel), or a network operation. *out: the
 * collective, if that was its last part. */
static bool add_to_parent(const struct slot *part, struct slot *out)
{
	struct slot *p = slot_of(part->parent);
	bool over;

	if (!p)
		return false;
	if (part->e.type == NP_KERNEL_CH) {
		extend(p->device, part->e.begin, part->e.end);
		p->channels_done++;
	} else {
		extend(p->network, part->e.begin, part->e.end);
	}
	over = is_transfer(p->e.type) && p->stopped && p->e.channels > 0 &&
	       p->channels_done == p->e.channels && end_slot(p, out);
	slot_unlock(p);
	return over;
}

/* Calls the other plugin, whose handle of the event is *next. */
static void end_event(void *handle, void **next)
{
	struct slot *s = slot_of(handle), done, coll;
	bool tells, launched, over = false;

	if (!s || s->stopped) { /* counted when its slot was taken again; or it ended before */
		if (s)
			slot_unlock(s);
		return;
	}
	*next = s->next;
	end_times(s);
	s->stopped = true;
	tells = (!is_transfer(s->e.type) || s->e.type == NP_CE_COLL ||
		 (s->e.channels > 0 && s->channels_done >= s->e.channels)) &&
		end_slot(s, &done);
	launched = s->e.type == NP_KERNEL_LAUNCH && s->wanted && s->e.launch;
	slot_unlock(s);
	if (launched && st.to->pop && recording())
		st.to->pop();
	if (!tells)
		return;
	if (done.e.type == NP_KERNEL_CH || done.e.type == NP_PROXY_OP)
		over = add_to_parent(&done, &coll);
	if (done.e.type == NP_PROXY_STEP)
		begin_in_kernel(&done);
	tell(&done);
	if (over)
		tell(&coll);
}

/* ---- states -------------------------------------------------------------------------------- */

/* The slot is locked. What a step waits for; a receive ends when the data has arrived. */
static void step_state(struct slot *s, int state, const union np_args *args)
{
	pl_ns now = pl_now_ns();

	if ((state == NP_SEND_GPU_WAIT || state == NP_RECV_GPU_WAIT) && !s->e.gpu_wait)
		s->e.gpu_wait = now;
	if (state == NP_SEND_PEER_WAIT && !s->e.peer_wait)
		s->e.peer_wait = now;
	if ((state == NP_SEND_WAIT || state == NP_RECV_WAIT) && !s->e.wait)
		s->e.wait = now;
	if (state == NP_RECV_FLUSH_WAIT && !s->e.flush_wait)
		s->e.flush_wait = now;
	if (state == NP_SEND_WAIT)
		s->e.begin = now; /* the device has filled the buffer */
	if ((state == NP_RECV_FLUSH_WAIT || state == NP_RECV_GPU_WAIT) && !s->e.end)
		s->e.end = now;
	if (args && args->step_bytes &&
	    (state == NP_SEND_WAIT || state == NP_RECV_FLUSH_WAIT || state == NP_RECV_GPU_WAIT))
		s->e.bytes = (int64_t)pl_min_size(args->step_bytes, (size_t)1 << 48);
}

int pl_nccl_state(void *handle, int state, union np_args *args)
{
	struct slot *s = slot_of(handle);
	void *next;

	if (!s)
		return 0;
	next = s->next;
	if (s->e.type == NP_PROXY_STEP && !s->stopped)
		step_state(s, state, args);
	if (s->e.type == NP_KERNEL_CH && state == NP_KERNEL_CH_STOP && args && !s->stopped) {
		s->gpu[1] = args->timer;
		if (args->timer)
			pl_gpu_clock_reading(&s->comm->clock, args->timer, pl_now_ns());
	}
	slot_unlock(s);
	pl_nccl_next_state(next, state, args);
	return 0;
}

/* The handle by the other plugin of the event with our handle `p`. */
static void *next_of(void *p)
{
	struct slot *s = slot_of(p);
	void *next = s ? s->next : NULL;

	if (s)
		slot_unlock(s);
	return next;
}

/* ---- of all versions ----------------------------------------------------------------------- */

static void add_comm(struct comm *c)
{
	c->before = atomic_load(&st.last);
	while (!atomic_compare_exchange_weak(&st.last, &c->before, c))
		;
}

/* *mask is that of all communicators of the process, which other threads may be using: a 0 in
 * between would leave collectives out that other ranks count. It is written once. */
static int init(void **context, int *mask, int version, const char *name, uint64_t hash, int nodes,
		int ranks, int rank, void *log)
{
	bool on = recording(), chained = pl_nccl_next_known();
	struct comm *c = (on || chained) && have_ring() ? pl_calloc(1, sizeof(*c)) : NULL;

	*context = c;
	if (!c) {
		if (!(on || chained) || !atomic_load(&st.last))
			*mask = 0;
		return 0;
	}
	pl_gpu_clock_init(&c->clock);
	if (!name || !*name)
		snprintf(c->c.group, sizeof(c->c.group), "nccl %016llx", (unsigned long long)hash);
	else if (on && st.to->unique)
		snprintf(c->c.group, sizeof(c->c.group), "%.60s %016llx", name,
			 (unsigned long long)hash);
	else
		snprintf(c->c.group, sizeof(c->c.group), "%.60s", name);
	c->c.number = hash;
	c->c.ranks = ranks;
	c->c.rank = rank;
	if (on && st.to->comm)
		st.to->comm(&c->c);
	c->mask = on ? st.to->mask & (version == 4   ? NP_TYPES_V4
				      : version == 5 ? NP_TYPES_V5
						     : ~0)
		     : 0;
	if (version > 4)
		c->mask &= ~NP_GROUP; /* the calls of the interface say more */
	if (chained)
		c->next_mask =
			pl_nccl_next_init(&c->next, version, name, hash, nodes, ranks, rank, log);
	add_comm(c);
	*mask = c->mask | c->next_mask;
	return 0;
}

int pl_nccl_init_v4(void **context, int *mask, const char *name, uint64_t hash, int nodes,
		    int ranks, int rank, void *log)
{
	return init(context, mask, 4, name, hash, nodes, ranks, rank, log);
}

int pl_nccl_init_v5(void **context, uint64_t hash, int *mask, const char *name, int nodes,
		    int ranks, int rank, void *log)
{
	return init(context, mask, 5, name, hash, nodes, ranks, rank, log);
}

int pl_nccl_init_v6(void **context, uint64_t hash, int *mask, const char *name, int nodes,
		    int ranks, int rank, void *log)
{
	return init(context, mask, 6, name, hash, nodes, ranks, rank, log);
}

int pl_nccl_start_v4(void *context, void **handle, struct np_event_v4 *e)
{
	struct comm *c = comm_of(context, e->type, e->parent, &e->what);
	void *parent, *next = NULL;

	*handle = NULL;
	if (!c)
		return 0;
	*handle = begin(c, e->type, e->parent, &e->what, &parent);
	if (c->next_mask & e->type) {
		next = pl_nccl_next_start_v4(c->next, e, parent);
		set_next(*handle, next);
	}
	return 0;
}

int pl_nccl_start_v5(void *context, void **handle, struct np_event_v5 *e)
{
	struct comm *c = comm_of(context, e->type, e->parent, &e->what);
	void *parent, *next = NULL;

	*handle = NULL;
	if (!c)
		return 0;
	*handle = begin(c, e->type, e->parent, &e->what, &parent);
	if ((uint64_t)c->next_mask & e->type) {
		void **group = pl_nccl_group_of(e);

		next = pl_nccl_next_start_v5(c->next, e, parent, group ? next_of(*group) : NULL);
		set_next(*handle, next);
	}
	return 0;
}

int pl_nccl_stop(void *handle)
{
	void *next = NULL;

	end_event(handle, &next);
	pl_nccl_next_stop(next);
	return 0;
}

/* The communicator is small and is not freed, because handles may outlive it. */
int pl_nccl_finalize(void *context)
{
	struct comm *c = context;

	if (!c)
		return 0;
	end_all(c);
	if (c->next_mask)
		pl_nccl_next_finalize(c->next);
	if (recording() && st.to->finalize)
		st.to->finalize();
	return 0;
}
