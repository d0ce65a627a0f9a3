/*
 * Communicators, requests and events of MPI.
 *
 * A communicator is named after its members (ranks of MPI_COMM_WORLD) and how many earlier ones had
 * the same: making one is collective, so all members count alike.
 *
 * A send has the number of earlier ones with its communicator, destination and tag, and a receive
 * with its source and tag, because MPI delivers those in order. Receives from any source or with
 * any tag count when they are complete. A number is not enough where such receives overtake others.
 * The handle of a communicator that was freed may be given to another one, so communicators are
 * told apart by a number of their own. A receive that was cancelled gives its number back.
 *
 * A send or receive that a request completes lasts from its call until a wait or test has said that
 * it is complete, on the thread that called. A collective with a request is an operation of a track
 * of its own, with the correlation of the call and of the wait for it (paceline-trace(5)).
 *
 * A library may give one request to several sends that are complete already. They are taken in
 * turn.
 */
#include <dlfcn.h>
#include <inttypes.h>
#include <link.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "record/entry/mpi.h"

#define TRACKS	     8 /* of collectives with a request */
#define REQUESTS     65536
#define SLOTS	     4096   /* of the table of requests; a power of two */
#define COUNTERS     262144 /* of messages; a program may use each tag once */
#define NAMES	     128    /* of calls; a power of two */
#define LISTED_RANKS 1024
#define OWN_CORR     ((int64_t)1 << 42) /* other recorders of the process count from 0 */

struct pl_mpi pl_mpi;

struct request {
	struct request *next;
	pl_mpi_handle handle;
	struct pl_mpi_call call;
	struct pl_mpi_comm comm;
	pl_id thread;
	int64_t seq, corr;
	int track;
	bool cancel; /* the program has asked for that */
};
struct chain {
	struct request *first, *last;
};
static struct {
	pthread_mutex_t lock;
	struct pl_mpi_comm *comm;
	size_t n_comms, cap_comms;
	uint64_t comms;		  /* so far */
	struct pl_intern members; /* lists of ranks */
	uint32_t *same;		  /* by list: communicators with these members */
	size_t cap_same;
	struct pl_intern counters; /* keys of counters */
	int64_t *count;
	size_t cap_count;
	struct chain slot[SLOTS];
	struct request *spare;
	size_t n_requests;
	int64_t corr;
	bool busy[TRACKS];
	_Atomic pl_id coll_track[TRACKS]; /* the track plus one, 0: none yet */
	struct {
		const char *_Atomic text; /* a literal; NULL: the place is free */
		_Atomic pl_id name;	  /* plus one, 0: not known yet */
	} name[NAMES];
	pl_id name_step;
	pl_ns step_begin;
	int64_t step;
} st = { .lock = PTHREAD_MUTEX_INITIALIZER };

/* ---- the library ----------------------------------------------------------------------------- */

/* Libraries of MPI have many names: libmpi.so.40, libmpich.so.12, libmpi_gnu_123.so.12. */
struct search {
	size_t skip; /* files that were tried */
	char path[4096];
};

static int may_be_mpi(struct dl_phdr_info *info, size_t size, void *arg)
{
	struct search *s = arg;
	const char *slash = strrchr(info->dlpi_name, '/'),
		   *name = slash ? slash + 1 : info->dlpi_name;

	(void)size;
	if (strncmp(name, "libmpi", 6) != 0 || s->skip-- > 0)
		return 0;
	snprintf(s->path, sizeof(s->path), "%s", info->dlpi_name);
	return 1;
}

/* The first of the loaded files with such a name that has MPI. */
static void *library(void)
{
	struct search s;
	void *lib = NULL;

	for (size_t tried = 0; !lib; tried++) {
		s.skip = tried;
		if (!dl_iterate_phdr(may_be_mpi, &s))
			break;
		lib = dlopen(s.path, RTLD_NOW | RTLD_NOLOAD);
		if (lib && !dlsym(lib, "PMPI_Init")) {
			dlclose(lib);
			lib = NULL;
		}
	}
	return lib;
}

/* A program that opens MPI itself may have it in a scope of its own. */
void *pl_mpi_next(const char *name)
{
	void *f = dlsym(RTLD_NEXT, name), *lib = f ? NULL : library();

	return f ? f : lib ? dlsym(lib, name) : NULL;
}

static bool find_library(void)
{
	void *world = pl_mpi_next("ompi_mpi_comm_world"), *p;
	bool all = true;

	pl_mpi.kind = world ? PL_MPI_OPENMPI : PL_MPI_MPICH;
	pl_mpi.world = world ? (pl_mpi_handle)world : PL_MPICH_COMM_WORLD;
	pl_mpi.byte = world ? (pl_mpi_handle)pl_mpi_next("ompi_mpi_byte") : PL_MPICH_BYTE;
	pl_mpi.null_request =
		world ? (pl_mpi_handle)pl_mpi_next("ompi_request_null") : PL_MPICH_REQUEST_NULL;
	pl_mpi.null_comm =
		world ? (pl_mpi_handle)pl_mpi_next("ompi_mpi_comm_null") : PL_MPICH_COMM_NULL;
#define FIND(member, symbol, args)                                                                 \
	p = pl_mpi_next(symbol);                                                                   \
	all &= p != NULL;                                                                          \
	memcpy(&pl_mpi.member, &p, sizeof(p));
	PL_MPI_OWN_CALLS(FIND)
#undef FIND
	return all && pl_mpi.byte;
}

static void prepare(struct pl_recorder *r)
{
	st.name_step = pl_rec_name(r, "step");
}

bool pl_mpi_begin(void)
{
	int rank, size;

	if (!pl_process_wanted() || pl_process_now())
		return pl_mpi_on();
	if (!find_library()) {
		pl_process_say("mpi", "this MPI library has not the functions of MPI 3");
		return false;
	}
	if (pl_mpi.comm_rank(pl_mpi.world, &rank) || pl_mpi.comm_size(pl_mpi.world, &size))
		return false;
	return pl_process_open("mpi", rank, size, prepare) != NULL;
}

bool pl_mpi_on(void)
{
	return pl_process_now() != NULL;
}

/* Requests that never were complete are lost. */
void pl_mpi_end(void)
{
	uint64_t open = 0;

	if (!pl_process_is_this()) /* the child of a fork, in which the lock may be held for ever */
		return;
	pthread_mutex_lock(&st.lock);
	for (size_t i = 0; i < SLOTS; i++)
		for (const struct request *q = st.slot[i].first; q; q = q->next)
			open++;
	pthread_mutex_unlock(&st.lock);
	pl_process_close(open);
}

/* ---- communicators --------------------------------------------------------------------------- */

/* The ranks of the communicator in MPI_COMM_WORLD; NULL: they cannot be known. */
static int *world_ranks(pl_mpi_handle comm, int size)
{
	pl_mpi_handle group = 0, world = 0;
	int *v = pl_calloc((size_t)size * 2, sizeof(*v));
	bool good = false;

	for (int i = 0; v && i < size; i++)
		v[size + i] = i;
	if (v && pl_mpi.comm_group(comm, &group) == 0) {
		if (pl_mpi.comm_group(pl_mpi.world, &world) == 0) {
			good = pl_mpi.translate(group, size, v + size, world, v) == 0;
			pl_mpi.group_free(&world);
		}
		pl_mpi.group_free(&group);
	}
	for (int i = 0; v && i < size; i++)
		good &= v[i] >= 0;
	if (good)
		return v;
	pl_free(v);
	return NULL;
}

/* "[0, 1, 2]", or nothing if there are too many. */
static pl_id list_of(struct pl_recorder *r, const struct pl_mpi_comm *c)
{
	struct pl_buf text = { 0 };
	pl_id id = PL_NONE;
	int rc = 0;

	if (c->size > LISTED_RANKS)
		return PL_NONE;
	for (int i = 0; i < c->size && rc >= 0; i++)
		rc = pl_buf_printf(&text, NULL, "%s%d", i ? ", " : "[", c->world[i]);
	if (rc >= 0 && pl_buf_put(&text, "]", 2, NULL) >= 0)
		id = pl_rec_name(r, (const char *)text.p);
	pl_buf_fini(&text);
	return id;
}

/* Under the lock. Of a communicator with these ranks; what it keeps of them is in the table of
 * lists, because operations may outlive their communicator. */
static void name_comm(struct pl_recorder *r, struct pl_mpi_comm *c, const int *world)
{
	const size_t n = (size_t)c->size * sizeof(*world);
	struct pl_err ignore = { 0 };
	struct pl_rec_attr a[2];
	size_t n_attrs = 0;
	char text[64];
	size_t old = st.cap_same;
	pl_id list, members;

	if (pl_intern_add(&st.members, (const char *)world, n, &list, &ignore) < 0 ||
	    pl_grow(&st.same, &st.cap_same, (size_t)list + 1, sizeof(*st.same), &ignore) < 0)
		return;
	for (size_t i = old; i < st.cap_same; i++)
		st.same[i] = 0;
	c->world = (const int *)(const void *)st.members.str[list];
	if (c->handle == pl_mpi.world)
		snprintf(text, sizeof(text), "MPI_COMM_WORLD");
	else
		snprintf(text, sizeof(text), "comm %016" PRIx64 ".%u", pl_hash(world, n),
			 st.same[list]++);
	c->group = pl_rec_name(r, text);
	members = list_of(r, c);
	if (members != PL_NONE)
		a[n_attrs++] = pl_rec_attr(PL_NONE, PL_R_RANKS, PL_V_STR, (int64_t)members);
	a[n_attrs++] = pl_rec_attr(PL_NONE, PL_R_SIZE, PL_V_INT, c->size);
	c->attrs = pl_rec_attrs(r, a, n_attrs);
}

static struct pl_mpi_comm *find_comm(pl_mpi_handle handle)
{
	for (size_t i = 0; i < st.n_comms; i++)
		if (st.comm[i].handle == handle)
			return &st.comm[i];
	return NULL;
}

/* Under the lock: the communicator, which may be new; NULL: no memory. */
static struct pl_mpi_comm *know_comm(pl_mpi_handle handle)
{
	struct pl_mpi_comm *c = find_comm(handle), new = { .handle = handle };
	struct pl_err ignore = { 0 };
	int inter = 1, *world = NULL;

	if (c)
		return c;
	new.group = new.attrs = PL_NONE;
	new.number = ++st.comms;
	if (pl_mpi.comm_test_inter(handle, &inter) == 0 && !inter &&
	    pl_mpi.comm_size(handle, &new.size) == 0 && pl_mpi.comm_rank(handle, &new.rank) == 0)
		world = world_ranks(handle, new.size);
	if (world)
		name_comm(pl_process_now()->rec, &new, world);
	if (!new.world)
		new.size = 0;
	pl_free(world);
	if (pl_append(&st.comm, &st.n_comms, &st.cap_comms, &new, sizeof(new), &ignore) < 0)
		return NULL;
	return &st.comm[st.n_comms - 1];
}

void pl_mpi_comm_made(pl_mpi_handle comm)
{
	comm = pl_mpi_handle_of(pl_mpi.kind, comm);
	if (!pl_mpi_on() || comm == pl_mpi.null_comm)
		return;
	pthread_mutex_lock(&st.lock);
	know_comm(comm);
	pthread_mutex_unlock(&st.lock);
}

/* Its handle may be given to the next one. */
void pl_mpi_comm_free(pl_mpi_handle comm)
{
	struct pl_mpi_comm *c;

	if (!pl_mpi_on())
		return;
	pthread_mutex_lock(&st.lock);
	c = find_comm(pl_mpi_handle_of(pl_mpi.kind, comm));
	if (c)
		*c = st.comm[--st.n_comms];
	pthread_mutex_unlock(&st.lock);
}

/* A type of more than 2 GiB has no size that an int could say: a number below 0. */
int64_t pl_mpi_bytes(int64_t count, pl_mpi_handle type)
{
	int each = 0;

	return pl_mpi_on() && pl_mpi.type_size(type, &each) == 0 && each >= 0 ? count * each : -1;
}

/* ---- events ---------------------------------------------------------------------------------- */

static _Thread_local pl_id own_track = PL_NONE;

static pl_id thread_track(struct pl_recorder *r)
{
	if (own_track == PL_NONE) {
		const long tid = (long)syscall(SYS_gettid);

		own_track = pl_rec_thread(r, tid, tid == (long)getpid() ? "main" : NULL);
	}
	return own_track;
}

/* The name of a call, whose text is a literal: the recorder is asked once for each, because it may
 * be writing to the disk. */
static pl_id name_of(struct pl_recorder *r, const char *text)
{
	size_t at = ((uintptr_t)text * 0x9e3779b97f4a7c15u) >> 57;
	pl_id name;

	for (size_t i = 0; i < NAMES; i++, at = (at + 1) % NAMES) {
		const char *is = NULL;

		if (!atomic_compare_exchange_strong(&st.name[at].text, &is, text) && is != text)
			continue;
		name = atomic_load(&st.name[at].name);
		if (name)
			return name - 1;
		name = pl_rec_name(r, text);
		if (name != PL_NONE)
			atomic_store(&st.name[at].name, name + 1);
		return name;
	}
	return pl_rec_name(r, text);
}

struct counted { /* messages that have one row of numbers; without padding */
	uint64_t comm;
	int32_t peer, tag, kind, zero;
};

static struct counted counted_of(const struct pl_mpi_call *c, const struct pl_mpi_comm *comm)
{
	return (struct counted){ comm->number, c->peer, c->tag, c->kind, 0 };
}

/* Under the lock: the number of earlier ones alike; -1: not known. */
static int64_t next_of(const struct counted *key)
{
	struct pl_err ignore = { 0 };
	size_t old = st.cap_count;
	pl_id id = pl_intern_find(&st.counters, (const void *)key, sizeof(*key));

	if (id == PL_NONE &&
	    (st.counters.n >= COUNTERS ||
	     pl_intern_add(&st.counters, (const char *)key, sizeof(*key), &id, &ignore) < 0))
		return -1;
	if (pl_grow(&st.count, &st.cap_count, (size_t)id + 1, sizeof(*st.count), &ignore) < 0)
		return -1;
	for (size_t i = old; i < st.cap_count; i++)
		st.count[i] = 0;
	return (int64_t)(uint32_t)key->tag << 32 | (st.count[id]++ & UINT32_MAX);
}

static bool is_wildcard(const struct pl_mpi_call *c)
{
	return c->kind == PL_K_RECV &&
	       (c->peer == pl_mpi_any_source(pl_mpi.kind) || c->tag == PL_MPI_ANY_TAG);
}

/* The number of the call in its communicator, in the order of issue; -1: not known yet. */
static int64_t number_of(const struct pl_mpi_call *c, const struct pl_mpi_comm *of)
{
	const struct counted key = counted_of(c, of);
	struct pl_mpi_comm *comm;
	int64_t n = -1;

	if (is_wildcard(c))
		return -1;
	pthread_mutex_lock(&st.lock);
	if (c->kind != PL_K_COLLECTIVE)
		n = of->number ? next_of(&key) : -1;
	else if ((comm = know_comm(pl_mpi_handle_of(pl_mpi.kind, c->comm))))
		n = comm->colls++;
	pthread_mutex_unlock(&st.lock);
	return n;
}

struct pl_mpi_comm pl_mpi_comm(pl_mpi_handle handle)
{
	struct pl_mpi_comm *c, copy = { .group = PL_NONE, .attrs = PL_NONE };

	pthread_mutex_lock(&st.lock);
	c = know_comm(pl_mpi_handle_of(pl_mpi.kind, handle));
	if (c)
		copy = *c;
	pthread_mutex_unlock(&st.lock);
	return copy;
}

/* A receive whose message is known: from whom, and how much. */
static void received(struct pl_mpi_call *c, const void *status)
{
	int n = 0;

	if (c->kind != PL_K_RECV || !status)
		return;
	c->peer = pl_mpi_source(pl_mpi.kind, status);
	c->tag = pl_mpi_tag(pl_mpi.kind, status);
	if (pl_mpi.get_count(status, pl_mpi.byte, &n) == 0 && n >= 0)
		c->bytes = n;
}

static struct pl_rec_event event_of(struct pl_recorder *r, const struct pl_mpi_call *c,
				    const struct pl_mpi_comm *comm, pl_id track, int64_t seq,
				    pl_ns end)
{
	struct pl_rec_event e = pl_rec_event(track, c->kind, name_of(r, c->name), c->begin, end);

	e.group = comm->group;
	e.attrs = comm->attrs;
	e.bytes = c->bytes;
	e.seq = seq;
	if (c->kind == PL_K_COLLECTIVE)
		e.coll = name_of(r, pl_trace_coll_name(c->coll));
	else if (comm->world && c->peer >= 0 && c->peer < comm->size)
		e.peer = comm->world[c->peer];
	return e;
}

/* A message to or from nobody is none. */
static bool is_nothing(const struct pl_mpi_call *c)
{
	return c->kind != PL_K_COLLECTIVE && c->peer == pl_mpi_proc_null(pl_mpi.kind);
}

static void put_event(struct pl_recorder *r, struct pl_rec_event *e, const struct pl_mpi_call *c)
{
	/* the number of a message would be that of a collective (paceline-trace(5)) */
	if (c->kind != PL_K_COLLECTIVE) {
		e->order = e->seq;
		e->seq = -1;
	}
	e->tag = c->kind == PL_K_COLLECTIVE ? -1 : c->tag;
	e->root = c->root;
	pl_rec(r, e);
}

void pl_mpi_put(const struct pl_mpi_call *call, const void *status)
{
	struct pl_mpi_call c = *call;
	const struct pl_process *p = pl_process_now();
	struct pl_mpi_comm comm;
	struct pl_rec_event e;
	int64_t seq;

	if (!p || is_nothing(&c))
		return;
	comm = pl_mpi_comm(c.comm);
	seq = number_of(&c, &comm);
	received(&c, status);
	if (seq < 0)
		seq = number_of(&c, &comm);
	e = event_of(p->rec, &c, &comm, thread_track(p->rec), seq, c.end);
	put_event(p->rec, &e, &c);
}

/* ---- requests -------------------------------------------------------------------------------- */

static struct chain *chain_of(pl_mpi_handle request)
{
	return &st.slot[(request * 0x9e3779b97f4a7c15u) >> 52 & (SLOTS - 1)];
}

/* Under the lock. NULL: too many. */
static struct request *new_request(pl_mpi_handle handle)
{
	struct chain *in = chain_of(handle);
	struct request *q = st.spare;

	if (q)
		st.spare = q->next;
	else if (st.n_requests < REQUESTS && (q = pl_calloc(1, sizeof(*q))))
		st.n_requests++;
	if (!q)
		return NULL;
	*q = (struct request){ .handle = handle };
	if (in->last) /* they are taken in turn */
		in->last->next = q;
	else
		in->first = q;
	in->last = q;
	return q;
}

/* Under the lock. *before: in its chain, or NULL. */
static struct request *find_request(pl_mpi_handle handle, struct request **before)
{
	struct request *q = chain_of(handle)->first;

	for (*before = NULL; q && q->handle != handle; q = q->next)
		*before = q;
	return q;
}

static int free_track(void)
{
	int i = 0;

	while (i < TRACKS - 1 && st.busy[i])
		i++;
	st.busy[i] = true;
	return i;
}

static void put_issue(struct pl_recorder *r, const struct pl_mpi_call *c, int64_t corr)
{
	struct pl_rec_event e =
		pl_rec_event(thread_track(r), PL_K_HOST_OP, name_of(r, c->name), c->begin, c->end);

	e.corr = corr;
	e.bytes = c->bytes;
	pl_rec(r, &e);
}

void pl_mpi_issue(const struct pl_mpi_call *c, pl_mpi_handle request)
{
	const struct pl_process *p = pl_process_now();
	struct pl_mpi_comm comm;
	struct request *q;
	int64_t seq, corr = -1;
	pl_id thread;

	request = pl_mpi_handle_of(pl_mpi.kind, request);
	if (!p || is_nothing(c) || request == pl_mpi.null_request)
		return;
	comm = pl_mpi_comm(c->comm);
	seq = number_of(c, &comm);
	thread = thread_track(p->rec);
	pthread_mutex_lock(&st.lock);
	q = new_request(request);
	if (q) {
		q->call = *c;
		q->comm = comm;
		q->seq = seq;
		q->thread = thread;
		q->corr = corr = c->kind == PL_K_COLLECTIVE ? OWN_CORR + st.corr++ : -1;
		q->track = corr >= 0 ? free_track() : -1;
	} else {
		pl_rec_lost(p->rec, 1);
	}
	pthread_mutex_unlock(&st.lock);
	if (corr >= 0)
		put_issue(p->rec, c, corr);
}

/* Takes the request out of the table. */
static bool take_request(pl_mpi_handle handle, struct request *out)
{
	struct chain *in = chain_of(handle);
	struct request *before, *q;

	pthread_mutex_lock(&st.lock);
	q = find_request(handle, &before);
	if (q) {
		*out = *q;
		*(before ? &before->next : &in->first) = q->next;
		in->last = in->last == q ? before : in->last;
		q->next = st.spare;
		st.spare = q;
		if (out->track >= 0)
			st.busy[out->track] = false;
	}
	pthread_mutex_unlock(&st.lock);
	return q != NULL;
}

void pl_mpi_cancel(pl_mpi_handle handle)
{
	struct request *before, *q;

	pthread_mutex_lock(&st.lock);
	q = find_request(pl_mpi_handle_of(pl_mpi.kind, handle), &before);
	if (q)
		q->cancel = true;
	pthread_mutex_unlock(&st.lock);
}

void pl_mpi_forget(pl_mpi_handle handle)
{
	const struct pl_process *p = pl_process_now();
	struct request q;

	if (p && take_request(pl_mpi_handle_of(pl_mpi.kind, handle), &q))
		pl_rec_lost(p->rec, 1);
}

/* Was it cancelled, as the program has asked? Of a receive that was freed nobody will know; most
 * were. */
static bool was_cancelled(const struct request *q, const void *status)
{
	int yes = q->call.kind == PL_K_RECV;

	return q->cancel && (!status || pl_mpi.test_cancelled(status, &yes) == 0) && yes;
}

/* A request that came to nothing: the later ones alike, which wait, move up. */
static void give_number_back(const struct request *gone)
{
	const struct counted key = counted_of(&gone->call, &gone->comm);
	pl_id id;

	if (gone->seq < 0 || gone->call.kind == PL_K_COLLECTIVE)
		return;
	pthread_mutex_lock(&st.lock);
	id = pl_intern_find(&st.counters, (const void *)&key, sizeof(key));
	if (id < st.cap_count && st.count[id] > 0)
		st.count[id]--;
	for (size_t i = 0; i < SLOTS; i++)
		for (struct request *q = st.slot[i].first; q; q = q->next) {
			const struct counted other = counted_of(&q->call, &q->comm);

			q->seq -= q->seq > gone->seq && !memcmp(&other, &key, sizeof(key));
		}
	pthread_mutex_unlock(&st.lock);
}

static pl_id coll_track(struct pl_recorder *r, int i)
{
	pl_id t = atomic_load(&st.coll_track[i]);
	char text[40];

	if (t)
		return t - 1;
	snprintf(text, sizeof(text), "MPI collectives %d", i);
	t = pl_rec_track(r, PL_T_THREAD, text);
	atomic_store(&st.coll_track[i], t + 1); /* of PL_NONE: none yet */
	return t;
}

static void put_collective(struct pl_recorder *r, const struct request *q, pl_ns since, pl_ns now)
{
	struct pl_rec_event e =
		event_of(r, &q->call, &q->comm, coll_track(r, q->track), q->seq, now);

	e.corr = q->corr;
	put_event(r, &e, &q->call);
	e = pl_rec_event(thread_track(r), PL_K_WAIT, name_of(r, "wait"), since, now);
	e.corr = q->corr;
	pl_rec(r, &e);
}

void pl_mpi_complete(pl_mpi_handle handle, const void *status, pl_ns since)
{
	const struct pl_process *p = pl_process_now();
	pl_ns now = pl_now_ns();
	struct pl_rec_event e;
	struct request q;

	handle = pl_mpi_handle_of(pl_mpi.kind, handle);
	if (!p || handle == pl_mpi.null_request || !take_request(handle, &q))
		return;
	if (q.call.kind == PL_K_COLLECTIVE) {
		put_collective(p->rec, &q, since, now);
		return;
	}
	if (was_cancelled(&q, status)) {
		give_number_back(&q);
		return;
	}
	received(&q.call, status);
	if (q.seq < 0 && !is_wildcard(&q.call))
		q.seq = number_of(&q.call, &q.comm);
	e = event_of(p->rec, &q.call, &q.comm, q.thread, q.seq, now);
	put_event(p->rec, &e, &q.call);
}

/* Messages are kept in the table of requests: they have handles of the same type. */
void pl_mpi_matched(const char *name, pl_mpi_handle message, pl_mpi_handle handle,
		    const void *status, pl_ns begin)
{
	const struct pl_process *p = pl_process_now();
	struct pl_mpi_call c = { .name = name,
				 .comm = handle,
				 .begin = begin,
				 .kind = PL_K_RECV,
				 .root = -1,
				 .bytes = -1 };
	struct pl_mpi_comm comm;
	struct request *q;
	int64_t seq;

	received(&c, status);
	if (!p || is_nothing(&c))
		return;
	comm = pl_mpi_comm(handle);
	seq = number_of(&c, &comm);
	pthread_mutex_lock(&st.lock);
	q = new_request(pl_mpi_handle_of(pl_mpi.kind, message));
	if (q)
		*q = (struct request){ .next = q->next,
				       .handle = q->handle,
				       .call = c,
				       .comm = comm,
				       .seq = seq,
				       .thread = thread_track(p->rec),
				       .track = -1 };
	else
		pl_rec_lost(p->rec, 1);
	pthread_mutex_unlock(&st.lock);
}

void pl_mpi_received(pl_mpi_handle message, const void *status, pl_mpi_handle request)
{
	struct request q, *again;

	message = pl_mpi_handle_of(pl_mpi.kind, message);
	request = pl_mpi_handle_of(pl_mpi.kind, request);
	if (!pl_mpi_on())
		return;
	if (request == pl_mpi.null_request) {
		pl_mpi_complete(message, status, 0);
		return;
	}
	if (!take_request(message, &q))
		return;
	pthread_mutex_lock(&st.lock);
	again = new_request(request);
	if (again) {
		q.next = again->next;
		q.handle = request;
		*again = q;
	}
	pthread_mutex_unlock(&st.lock);
}

void pl_mpi_span(const char *name, pl_ns begin)
{
	const struct pl_process *p = pl_process_now();
	struct pl_rec_event e;

	if (!p)
		return;
	e = pl_rec_event(thread_track(p->rec), PL_K_ANNOTATION, name_of(p->rec, name), begin,
			 pl_now_ns());
	pl_rec(p->rec, &e);
}

void pl_mpi_step(void)
{
	const struct pl_process *p = pl_process_now();
	pl_ns now = pl_now_ns();
	struct pl_rec_event e;

	if (!p)
		return;
	e = pl_rec_event(thread_track(p->rec), PL_K_STEP, st.name_step, st.step_begin, now);
	e.step = (int32_t)st.step;
	if (st.step_begin) {
		pl_rec(p->rec, &e);
		st.step++;
	}
	st.step_begin = now;
}
