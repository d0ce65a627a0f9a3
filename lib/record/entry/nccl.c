/*
 * libpaceline-nccl.so: NCCL's profiler as a recorder of its own.
 *
 * Where libpaceline-cuda.so records the kernels, it is told which collectives they carry, and
 * writes those; or PACELINE_NCCL_KERNELS=other says that another profiler records them. Then
 * collectives and steps are annotations here: they must not be there twice.
 *
 * A collective is an event of a stream, with the times that its kernel told (its channels, each of
 * which has a track, too). Calls of NCCL's interface and launches are on the tracks of their
 * threads; network operations, and what their steps waited for, on tracks of their channel. A step
 * is a message of its collective (paceline-trace(5)), if the rank at the other end is known, and
 * else an annotation.
 */
#include <dlfcn.h>
#include <errno.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "record/entry/process.h"
#include "record/entry/together.h"
#include "record/nccl.h"
#include "record/variables.h"

#define CHANNELS 64
#define STREAMS	 64
#define OWN_CORR ((int64_t)1 << 41) /* other recorders of the process count from 0 */

enum { NETWORK, PROXY, KERNEL, ROWS };

static struct {
	pthread_mutex_t lock; /* of the streams */
	uint64_t stream[STREAMS];
	pl_id stream_track[STREAMS];
	size_t n_streams;
	_Atomic pl_id channel[ROWS][CHANNELS]; /* the track plus one, 0: none yet */
	struct {			       /* libpaceline-cuda.so; NULL: it is not there */
		bool (*on)(void);
		void (*report)(const struct pl_device_event *e);
		void (*push)(uint64_t launch);
		void (*pop)(void);
	} cuda;
	bool other;					   /* another profiler records kernels */
	struct comm *comms;				   /* that are not the job */
	pl_id algorithm, protocol, channels, times, steps; /* keys */
} st = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Thread_local struct {
	uint32_t thread; /* 0: none yet */
	pl_id track;
} own;

/* ---- ranks of the job -------------------------------------------------------------------------
 *
 * NCCL numbers the ranks of a communicator from 0, and does not say which ranks of the job they
 * are. Each process knows that of its own rank. So it leaves a symbolic link in the folder of the
 * traces, .nccl/COMMUNICATOR.RANK, whose text is the rank of the job, and removes it at the end. A
 * communicator that is the job needs none.
 */

struct comm {
	struct comm *next;
	const struct pl_nccl_comm *of;
	_Atomic int32_t *job; /* by rank: the rank of the job plus one; 0: not known */
};

/* Of the link of a rank; -1: of the folder. */
static bool link_path(char *path, size_t size, uint64_t number, int rank)
{
	const char *folder = getenv(PL_RECORD_DIR);
	int n = snprintf(path, size, "%s/.nccl", folder ? folder : "");

	if (rank >= 0)
		n = snprintf(path, size, "%s/.nccl/%016" PRIx64 ".%d", folder ? folder : "", number,
			     rank);
	return folder && n < (int)size;
}

/* Are the ranks of the communicator those of the job? */
static bool of_job(const struct pl_process *p, const struct pl_nccl_comm *c)
{
	return p->size ? c->ranks == p->size && c->rank == p->rank : c->rank == p->rank;
}

static void on_comm(struct pl_nccl_comm *c)
{
	const struct pl_process *p = pl_process_now();
	char path[4096], rank[16];
	struct comm *x;

	if (!p || p->rank < 0 || of_job(p, c) || !(x = pl_calloc(1, sizeof(*x))))
		return;
	x->of = c;
	x->job = pl_calloc((size_t)c->ranks, sizeof(*x->job));
	if (x->job)
		c->user = x;
	pthread_mutex_lock(&st.lock);
	x->next = st.comms;
	st.comms = x;
	pthread_mutex_unlock(&st.lock);
	/* if this fails, the others do not learn this rank */
	snprintf(rank, sizeof(rank), "%d", p->rank);
	if (link_path(path, sizeof(path), 0, -1) && (mkdir(path, 0777) == 0 || errno == EEXIST) &&
	    link_path(path, sizeof(path), c->number, c->rank))
		(void)!symlink(rank, path);
}

/* The rank of the job; -1: not known. */
static int32_t job_rank(const struct pl_process *p, const struct pl_nccl_comm *c, int32_t rank)
{
	struct comm *x = c->user;
	char path[4096], text[16];
	const char *at = text;
	int64_t job;
	ssize_t n;

	if (of_job(p, c) || rank < 0)
		return rank;
	if (!x || rank >= c->ranks)
		return -1;
	if (atomic_load(&x->job[rank]))
		return atomic_load(&x->job[rank]) - 1;
	n = link_path(path, sizeof(path), c->number, rank) ? readlink(path, text, sizeof(text) - 1)
							   : -1;
	text[n > 0 ? n : 0] = '\0';
	job = pl_take_digits(&at);
	if (job < 0 || job >= INT32_MAX)
		return -1;
	atomic_store(&x->job[rank], (int32_t)job + 1);
	return (int32_t)job;
}

static void remove_links(void)
{
	char path[4096];

	for (const struct comm *x = st.comms; x; x = x->next)
		if (link_path(path, sizeof(path), x->of->number, x->of->rank))
			unlink(path);
	if (st.comms && link_path(path, sizeof(path), 0, -1))
		rmdir(path); /* the last one succeeds */
}

/* ---- libpaceline-cuda.so --------------------------------------------------------------------- */

static bool cuda_records(void)
{
	return st.cuda.on && st.cuda.on();
}

/* It stands beside this file; the driver has loaded it, or it is not wanted. */
static void find_cuda(void)
{
	Dl_info info;
	const char *slash;
	char path[4096];
	void *lib;

	if (!dladdr(&ncclProfiler_v5, &info) || !(slash = strrchr(info.dli_fname, '/')))
		return;
	snprintf(path, sizeof(path), "%.*s/libpaceline-cuda.so", (int)(slash - info.dli_fname),
		 info.dli_fname);
	lib = dlopen(path, RTLD_NOW | RTLD_NOLOAD);
	if (!lib || !pl_symbol(lib, "paceline_cuda_report", &st.cuda.report) ||
	    !pl_symbol(lib, "paceline_cuda_push", &st.cuda.push) ||
	    !pl_symbol(lib, "paceline_cuda_pop", &st.cuda.pop))
		return;
	pl_symbol(lib, "paceline_cuda_on", &st.cuda.on);
}

static void push(uint64_t launch)
{
	if (cuda_records())
		st.cuda.push(launch);
}

static void pop(void)
{
	if (cuda_records())
		st.cuda.pop();
}

static void tell_cuda(const struct pl_nccl_event *n)
{
	char text[64];
	struct pl_device_event e = pl_nccl_device_event(n, text, sizeof(text));

	e.peer = job_rank(pl_process_now(), n->comm, n->peer);
	st.cuda.report(&e);
}

/* ---- tracks -------------------------------------------------------------------------------- */

/* Mostly of the calling thread. */
static pl_id thread_track(struct pl_recorder *r, uint32_t thread)
{
	if (own.thread != thread) {
		own.track = pl_rec_thread(r, thread, NULL);
		own.thread = thread;
	}
	return own.track;
}

static pl_id channel_track(struct pl_recorder *r, int row, int32_t channel)
{
	static const char *const what[ROWS] = { "network channel", "proxy of channel",
						"kernel channel" };
	size_t at = channel >= 0 ? (size_t)channel % CHANNELS : 0;
	pl_id t = atomic_load(&st.channel[row][at]);
	char text[48];

	if (t)
		return t - 1;
	snprintf(text, sizeof(text), "%s %zu", what[row], at);
	t = pl_rec_track(r, row == NETWORK ? PL_T_LINK : PL_T_OTHER, text);
	atomic_store(&st.channel[row][at], t + 1);
	return t;
}

/* Handles of streams are addresses, and different on each rank: they are numbered as they come. */
static pl_id stream_track(struct pl_recorder *r, uint64_t stream)
{
	pl_id track;
	char text[32];
	size_t i = 0;

	pthread_mutex_lock(&st.lock);
	while (i < st.n_streams && st.stream[i] != stream)
		i++;
	i -= i == STREAMS; /* further ones share the last track */
	snprintf(text, sizeof(text), "NCCL stream %zu", i);
	track = i < st.n_streams ? st.stream_track[i] : pl_rec_stream(r, 0, (int64_t)i, text);
	if (i == st.n_streams && track != PL_NONE) {
		st.stream[i] = stream;
		st.stream_track[st.n_streams++] = track;
	}
	pthread_mutex_unlock(&st.lock);
	return track;
}

/* ---- events -------------------------------------------------------------------------------- */

static pl_id name_of(struct pl_recorder *r, const char *func)
{
	char text[40];

	snprintf(text, sizeof(text), "nccl%.32s", func ? func : "");
	return pl_rec_name(r, text);
}

static size_t put_text(struct pl_recorder *r, struct pl_rec_attr *a, size_t n, pl_id key,
		       unsigned role, const char *text)
{
	pl_id name = text ? pl_rec_name(r, text) : PL_NONE;

	if (name == PL_NONE)
		return n;
	a[n] = pl_rec_attr(key, role, PL_V_STR, (int64_t)name);
	return n + 1;
}

static size_t put_number(struct pl_rec_attr *a, size_t n, pl_id key, unsigned role, int64_t v)
{
	if (v < 0)
		return n;
	a[n] = pl_rec_attr(key, role, PL_V_INT, v);
	return n + 1;
}

static pl_id attrs_of(struct pl_recorder *r, const struct pl_nccl_event *e)
{
	struct pl_rec_attr a[8];
	size_t n = put_text(r, a, 0, PL_NONE, PL_R_DTYPE, e->dtype);

	n = put_text(r, a, n, st.algorithm, PL_R_ARG, e->algo);
	n = put_text(r, a, n, st.protocol, PL_R_ARG, e->proto);
	n = put_text(r, a, n, st.times, PL_R_ARG, e->times);
	n = put_number(a, n, st.channels, PL_R_ARG, e->channels);
	n = put_number(a, n, st.steps, PL_R_ARG, e->steps);
	n = put_number(a, n, PL_NONE, PL_R_SIZE, e->comm->ranks);
	return n ? pl_rec_attrs(r, a, n) : PL_NONE;
}

static struct pl_rec_event event_of(struct pl_recorder *r, const struct pl_nccl_event *e,
				    uint8_t kind, pl_id track, pl_id name)
{
	struct pl_rec_event x = pl_rec_event(track, kind, name, e->begin, e->end);

	/* none: an operation of another process */
	x.group = e->comm->group[0] ? pl_rec_name(r, e->comm->group) : PL_NONE;
	x.corr = e->launch ? OWN_CORR + (int64_t)e->launch : -1;
	x.bytes = e->bytes;
	return x;
}

static void put_transfer(const struct pl_process *p, const struct pl_nccl_event *e)
{
	bool p2p = e->type == NP_P2P, sends = p2p && e->func && !strcmp(e->func, "Send");
	bool twice = st.other || cuda_records();
	struct pl_rec_event x = event_of(p->rec, e,
					 twice	 ? PL_K_GPU_ANNOTATION
					 : !p2p	 ? PL_K_COLLECTIVE
					 : sends ? PL_K_SEND
						 : PL_K_RECV,
					 stream_track(p->rec, e->stream), name_of(p->rec, e->func));
	const char *coll = e->func ? pl_trace_coll_from_name(e->func, strlen(e->func)) : NULL;

	x.seq = e->seq;
	x.coll = coll && !twice ? pl_rec_name(p->rec, coll) : PL_NONE;
	x.attrs = attrs_of(p->rec, e);
	x.root = p2p ? -1 : e->root;
	x.peer = p2p ? job_rank(p, e->comm, e->peer) : -1;
	pl_rec(p->rec, &x);
}

static void put_call(struct pl_recorder *r, const struct pl_nccl_event *e)
{
	bool group = e->type == NP_GROUP_API, launch = e->type == NP_KERNEL_LAUNCH;
	struct pl_rec_event x = event_of(r, e,
					 group	  ? PL_K_ANNOTATION
					 : launch ? PL_K_RUNTIME
						  : PL_K_HOST_OP,
					 thread_track(r, e->thread),
					 group	  ? pl_rec_name(r, "NCCL group")
					 : launch ? pl_rec_name(r, "ncclLaunchKernel")
						  : name_of(r, e->func));

	if (!launch)
		x.corr = -1;
	pl_rec(r, &x);
}

/* What a step waited for: each wait lasts until the next one, or the end. */
static void put_waits(struct pl_recorder *r, const struct pl_nccl_event *e)
{
	const struct {
		const char *name;
		pl_ns at;
	} wait[] = { { e->sends ? "send waits for the GPU" : "receive waits for the GPU",
		       e->gpu_wait },
		     { "send waits for the peer", e->peer_wait },
		     { e->sends ? "send on the network" : "receive from the network", e->wait },
		     { "receive is flushed", e->flush_wait } };
	pl_id track = channel_track(r, PROXY, e->channel);

	for (size_t i = 0; i < PL_LEN(wait); i++) {
		struct pl_rec_event x;
		pl_ns end = e->over;

		for (size_t k = 0; k < PL_LEN(wait); k++)
			if (wait[k].at > wait[i].at)
				end = pl_min_i64(end, wait[k].at);
		if (!wait[i].at)
			continue;
		x = pl_rec_event(track, PL_K_ANNOTATION, pl_rec_name(r, wait[i].name), wait[i].at,
				 pl_max_i64(end, wait[i].at));
		x.peer = -1;
		x.channel = e->channel;
		pl_rec(r, &x);
	}
}

static void put_step(const struct pl_process *p, const struct pl_nccl_event *e)
{
	int32_t peer = job_rank(p, e->comm, e->peer);
	bool message = e->seq >= 0 && peer >= 0 && !st.other;
	struct pl_rec_event x = event_of(p->rec, e,
					 !message   ? PL_K_ANNOTATION
					 : e->sends ? PL_K_SEND
						    : PL_K_RECV,
					 channel_track(p->rec, NETWORK, e->channel),
					 pl_rec_name(p->rec, e->sends ? "send" : "recv"));

	x.corr = -1;
	x.channel = e->channel;
	x.seq = message ? e->seq : -1;
	x.peer = message ? peer : -1;
	pl_rec(p->rec, &x);
	put_waits(p->rec, e);
}

static void put_part(struct pl_recorder *r, const struct pl_nccl_event *e)
{
	bool kernel = e->type == NP_KERNEL_CH;
	struct pl_rec_event x = event_of(r, e, kernel ? PL_K_GPU_ANNOTATION : PL_K_ANNOTATION,
					 channel_track(r, kernel ? KERNEL : PROXY, e->channel),
					 name_of(r, e->func));

	x.corr = -1;
	x.channel = e->channel;
	x.attrs = attrs_of(r, e);
	pl_rec(r, &x);
}

static void prepare_names(struct pl_recorder *r)
{
	find_cuda();
	st.algorithm = pl_rec_name(r, "algorithm");
	st.protocol = pl_rec_name(r, "protocol");
	st.channels = pl_rec_name(r, "channels");
	st.times = pl_rec_name(r, "times");
	st.steps = pl_rec_name(r, "steps");
}

/* NCCL makes its first communicator when CUDA is there. */
static bool on(void)
{
	return pl_process_open("nccl", -1, 0, prepare_names) != NULL;
}

static void on_event(const struct pl_nccl_event *e)
{
	const struct pl_process *p = pl_process_now();

	if (!p)
		return;
	switch (e->type) {
	case NP_COLL:
	case NP_P2P:
	case NP_CE_COLL:
		if (!e->issued)
			put_transfer(p, e);
		else if (cuda_records() && e->type != NP_CE_COLL)
			tell_cuda(e);
		break;
	case NP_GROUP_API:
	case NP_COLL_API:
	case NP_P2P_API:
	case NP_KERNEL_LAUNCH:
		put_call(p->rec, e);
		break;
	case NP_PROXY_STEP:
		put_step(p, e);
		break;
	case NP_PROXY_OP:
	case NP_KERNEL_CH:
		put_part(p->rec, e);
		break;
	}
}

/* ---- begin and end ------------------------------------------------------------------------- */

static void flush(void)
{
	const struct pl_process *p = pl_process_now();

	if (p)
		pl_rec_flush(p->rec);
}

static const struct pl_nccl_receiver receiver = {
	.on = on,
	.unique = true,
	.mask = NP_COLL | NP_P2P | NP_PROXY_OP | NP_PROXY_STEP | NP_KERNEL_CH | NP_GROUP_API |
		NP_COLL_API | NP_P2P_API | NP_KERNEL_LAUNCH | NP_CE_COLL,
	.comm = on_comm,
	.event = on_event,
	.push = push,
	.pop = pop,
	.finalize = flush,
};

__attribute__((constructor)) static void begin(void)
{
	const char *next = getenv(PL_RECORD_NCCL_NEXT), *other = getenv("PACELINE_NCCL_KERNELS");
	struct pl_err err = { 0 };

	if (!pl_process_wanted())
		return;
	st.other = other && !strcmp(other, "other");
	pl_nccl_receive(&receiver);
	if (next && *next && pl_nccl_chain(next, &err) < 0)
		pl_process_say("nccl", err.msg);
}

__attribute__((destructor)) static void end(void)
{
	if (pl_process_is_this()) {
		pl_nccl_end();
		remove_links();
	}
	pl_process_close(pl_nccl_lost());
}
