/*
 * devtrace - traces of a job on devices that were never there: a simulated step of training on each
 * rank, told to the real recorder as a backend's source of device events would tell it.
 *
 * usage: devtrace FILE [KEY=VALUE]...
 *
 *     ranks=N     writes FILE.0 ... FILE.N-1; with 1 (and no collectives): FILE
 *     steps=N     (4)
 *     seed=N      of the durations, which vary by a few percent
 *     order=KIND  in which events are told: time, mixed, late (what is joined comes in the wrong
 *                 order and much later)
 *     instances=0 events have no numbers of their own, as older profilers have it
 *     launches=0  the communication library does not say by which launch it started what
 *     comm=US     what a collective takes (70)
 *     call=NS     what a launch takes (3500)
 *     thread=1    another thread launches the collectives
 *     poll=1      the host waits for an event at the end of a step, not for a stream
 *     half=L      the kernels of layer L take half the time
 *     lost=1      every 50th kernel and every wait of the side stream is not told
 *
 * On standard output what a graph should find: "waits=N" of streams, "syncs=N" of the host,
 * "kernels=N", "collectives=N", over all ranks.
 *
 * The device: a stream runs its queue in order, an operation begins 4 us after its launch returned,
 * at the earliest 1 us after the one before it and after the event that its stream was made to wait
 * for. A collective ends on all ranks at once. Hosts: forward and backward of LAYERS layers of two
 * kernels each, a bucket of gradients for each two layers, in which one event is used again and
 * again to fork to the side stream; the optimizer waits for the side stream; then the loss is
 * copied and waited for.
 */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "train/tracer.h"

#define LAYERS	6
#define BUCKETS (LAYERS / 2)
#define MAIN	7
#define SIDE	13
#define COPY	14
#define FORK	3 /* events */
#define JOIN	4
#define LOADED	5
#define OVER	6
#define RANKS	16
#define OTHER	UINT32_MAX /* the thread that launches collectives; its number comes later */

struct script {
	struct pl_device_event *dev;
	struct pl_rec_event *host; /* name: see names[] */
	uint8_t *host_name;
	size_t n_dev, cap_dev, n_host, cap_host;
	/* the simulation */
	pl_ns now, other, free_main, free_side, free_copy, fork_ready[BUCKETS], start[BUCKETS];
	uint64_t corr, instance, launch, latest[8]; /* latest record of each event */
	pl_ns ready[8];
	size_t comm[BUCKETS];		     /* kernels, in dev[] */
	struct pl_comm_event *comm_launches; /* what the other thread launched */
	size_t n_comm_launches, cap_comm_launches;
};

enum { FORWARD, BACKWARD = LAYERS, BATCH = 2 * LAYERS, OPTIMIZER, ISSUE, STEP, WAIT, NAMES };

static struct {
	int ranks, steps, instances, launches, poll, lost, comm, call, thread, half;
	uint64_t seed;
	const char *order, *file;
} opt = { .ranks = 1,
	  .steps = 4,
	  .instances = 1,
	  .launches = 1,
	  .seed = 1,
	  .comm = 70,
	  .call = 3500,
	  .half = -1,
	  .order = "time" };
static uint64_t noise;
static long waits, syncs, kernels, collectives;

static _Noreturn void die(const char *what)
{
	fprintf(stderr, "devtrace: %s\n", what);
	exit(70);
}

static pl_ns about(pl_ns ns)
{
	double u = (double)(pl_rng_next(&noise) >> 11) * 0x1p-53;

	/* short times vary more: by 20 % */
	return (pl_ns)((double)ns * (1 + (ns < 5000 ? 0.4 : 0.06) * (u - 0.5)));
}

static struct pl_device_event *tell(struct script *s, uint8_t kind, const char *name, pl_ns begin,
				    pl_ns end, uint64_t corr)
{
	struct pl_err err = { 0 };

	if (pl_grow(&s->dev, &s->cap_dev, s->n_dev + 1, sizeof(*s->dev), &err) < 0)
		die(err.msg);
	s->dev[s->n_dev] = pl_device_event(kind, name, begin, end, corr);
	s->dev[s->n_dev].thread = (uint32_t)syscall(SYS_gettid);
	return &s->dev[s->n_dev++];
}

static struct pl_rec_event *host(struct script *s, uint8_t kind, uint8_t name, pl_ns begin)
{
	struct pl_err err = { 0 };
	size_t cap = s->cap_host;

	if (pl_grow(&s->host, &s->cap_host, s->n_host + 1, sizeof(*s->host), &err) < 0 ||
	    pl_grow(&s->host_name, &cap, s->n_host + 1, 1, &err) < 0)
		die(err.msg);
	s->host_name[s->n_host] = name;
	s->host[s->n_host] = pl_rec_event(PL_NONE, kind, PL_NONE, begin, s->now);
	return &s->host[s->n_host++];
}

static uint64_t call(struct script *s, const char *name, pl_ns lasts)
{
	pl_ns begin = s->now;

	s->now += about(lasts);
	tell(s, PL_DEV_CALL, name, begin, s->now, ++s->corr);
	s->now += about(1500);
	return s->corr;
}

/* An operation on a stream whose time `*free` is; returns its place in the script. */
static size_t launch(struct script *s, const char *api, uint8_t kind, const char *name,
		     uint32_t stream, pl_ns *free_at, pl_ns lasts, int64_t bytes)
{
	uint64_t corr = call(s, api, strcmp(api, "cudaLaunchKernel") ? 3500 : opt.call);
	pl_ns returned = s->dev[s->n_dev - 1].end,
	      begin = pl_max_i64(returned + about(4000), *free_at);
	struct pl_device_event *e;

	*free_at = begin + about(lasts);
	e = tell(s, kind, name, begin, *free_at, corr);
	e->stream = stream;
	e->bytes = bytes;
	*free_at += about(1000);
	kernels += kind == PL_DEV_KERNEL;
	return s->n_dev - 1;
}

static void record(struct script *s, uint32_t event, uint32_t stream, pl_ns free_at)
{
	struct pl_device_event *e =
		tell(s, PL_DEV_RECORD, NULL, s->now, s->now, call(s, "cudaEventRecord", 900));

	e->event = event;
	e->stream = stream;
	s->latest[event] = e->instance = ++s->instance;
	s->ready[event] = free_at;
}

static void wait_event(struct script *s, uint32_t event, uint32_t stream, pl_ns *free_at)
{
	pl_ns begin = s->now;
	uint64_t corr = call(s, "cudaStreamWaitEvent", 800);
	struct pl_device_event *e = tell(s, PL_DEV_WAIT, NULL, begin, begin + 500, corr);

	e->event = event;
	e->instance = s->latest[event];
	e->stream = stream;
	*free_at = pl_max_i64(*free_at, s->ready[event]);
	waits++;
}

/* The host goes on 6 us after what it waited for. */
static void wait_host(struct script *s, bool event)
{
	pl_ns begin = s->now, until = pl_max_i64(begin + 2000, s->free_main - 1000 + 6000);
	struct pl_device_event *e;

	s->now = until;
	tell(s, PL_DEV_CALL, event ? "cudaEventSynchronize" : "cudaStreamSynchronize", begin, until,
	     ++s->corr);
	e = tell(s, PL_DEV_SYNC, NULL, begin + 300, until - 200, s->corr);
	if (event) {
		e->event = OVER;
		e->instance = s->latest[OVER];
	} else {
		e->stream = MAIN;
	}
	s->now += 1000;
	syncs++;
}

/* ---- a step -------------------------------------------------------------------------------- */

static void load_batch(struct script *s)
{
	pl_ns begin = s->now;

	s->now += about(30000);
	launch(s, "cudaMemcpyAsync", PL_DEV_COPY, "Memcpy HtoD", COPY, &s->free_copy, 25000,
	       1 << 18);
	record(s, LOADED, COPY, s->free_copy);
	wait_event(s, LOADED, MAIN, &s->free_main);
	host(s, PL_K_DATA, BATCH, begin);
}

static void layer(struct script *s, int l, bool back)
{
	pl_ns begin = s->now;
	int64_t each = (back ? 90000 : 45000) / (l == opt.half ? 2 : 1);

	s->now += about(2000);
	launch(s, "cudaLaunchKernel", PL_DEV_KERNEL, back ? "gemm_back" : "gemm", MAIN,
	       &s->free_main, each, -1);
	launch(s, "cudaLaunchKernel", PL_DEV_KERNEL, back ? "norm_back" : "norm", MAIN,
	       &s->free_main, each / 3, -1);
	host(s, PL_K_HOST_OP, (uint8_t)(back ? BACKWARD + l : FORWARD + l), begin)->layer = l;
}

/* The kernel's times follow when all ranks have issued theirs. */
static void launch_comm(struct script *s, int bucket)
{
	pl_ns never = 0;

	s->launch++;
	s->comm[bucket] = launch(s, "cuLaunchKernelEx", PL_DEV_KERNEL,
				 "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgs)", SIDE,
				 &never, 0, -1);
}

/* The other thread wakes up 9 us after the issue, or when it has launched the one before. */
static void launch_elsewhere(struct script *s, int bucket, uint64_t tag)
{
	struct pl_err err = { 0 };
	pl_ns here = s->now, begin = pl_max_i64(s->other, here + about(9000));

	s->now = begin + about(2000);
	launch_comm(s, bucket);
	s->dev[s->comm[bucket] - 1].thread = OTHER;
	if (pl_grow(&s->comm_launches, &s->cap_comm_launches, s->n_comm_launches + 1,
		    sizeof(*s->comm_launches), &err) < 0)
		die(err.msg);
	s->comm_launches[s->n_comm_launches++] =
		(struct pl_comm_event){ .op = PL_OP_ALLREDUCE,
					.collective = PL_OP_ALLREDUCE,
					.peer = -1,
					.tag = tag,
					.begin = begin,
					.end = s->now,
					.launched = true };
	s->other = s->now;
	s->now = here;
}

static void issue(struct script *s, int bucket, int step)
{
	uint64_t tag = pl_tag_of(step, (uint32_t)bucket);
	struct pl_device_event *e;
	pl_ns begin = s->now;

	record(s, FORK, MAIN, s->free_main);
	wait_event(s, FORK, SIDE, &s->fork_ready[bucket]);
	if (opt.thread)
		launch_elsewhere(s, bucket, tag);
	else
		launch_comm(s, bucket);
	if (opt.launches)
		tell(s, PL_DEV_LAUNCH, NULL, 0, 0, s->dev[s->comm[bucket]].corr)->launch =
			s->launch;
	e = tell(s, PL_DEV_COMM, "ncclAllReduce", 0, 0, 0);
	e->launch = opt.launches ? s->launch : 0;
	e->group = "world";
	e->seq = step * BUCKETS + bucket;
	e->bytes = 1 << 20;
	host(s, PL_K_HOST_OP, ISSUE, begin)->corr = (int64_t)tag;
	collectives++;
}

static void backward(struct script *s, int step)
{
	for (int l = LAYERS; l-- > 0;) {
		layer(s, l, true);
		if (opt.ranks > 1 && l % 2 == 0)
			issue(s, BUCKETS - 1 - l / 2, step);
	}
}

/* A collective begins on a rank when its stream is there, and ends on all at once. */
static void communicate(struct script *s)
{
	for (int b = 0; b < BUCKETS && opt.ranks > 1; b++) {
		pl_ns all = 0, end;

		for (int r = 0; r < opt.ranks; r++) {
			struct pl_device_event *e = &s[r].dev[s[r].comm[b]];

			e->begin = pl_max_i64(e->begin,
					      pl_max_i64(s[r].free_side, s[r].fork_ready[b]));
			all = pl_max_i64(all, e->begin);
		}
		end = all + about((pl_ns)opt.comm * 1000);
		for (int r = 0; r < opt.ranks; r++) {
			s[r].dev[s[r].comm[b]].end = end;
			s[r].free_side = end + 1000;
		}
	}
}

static void finish_step(struct script *s, pl_ns begin)
{
	pl_ns at = s->now;

	for (int b = 0; b < BUCKETS && opt.thread && opt.ranks > 1; b++) {
		pl_ns from = s->now;

		s->now = pl_max_i64(from + 300,
				    s->comm_launches[s->n_comm_launches - BUCKETS + b].end + 6000);
		host(s, PL_K_WAIT, WAIT, from)->corr =
			(int64_t)s->comm_launches[s->n_comm_launches - BUCKETS + b].tag;
	}
	if (opt.ranks > 1) {
		record(s, JOIN, SIDE, s->free_side);
		wait_event(s, JOIN, MAIN, &s->free_main);
	}
	launch(s, "cudaLaunchKernel", PL_DEV_KERNEL, "adam", MAIN, &s->free_main, 60000, -1);
	host(s, PL_K_HOST_OP, OPTIMIZER, at);
	launch(s, "cudaMemcpyAsync", PL_DEV_COPY, "Memcpy DtoH", MAIN, &s->free_main, 2500, 16);
	if (opt.poll)
		record(s, OVER, MAIN, s->free_main);
	wait_host(s, opt.poll);
	host(s, PL_K_STEP, STEP, begin);
	s->now += about(15000);
}

static void simulate(struct script *s)
{
	pl_ns begin[RANKS];

	for (int step = 0; step < opt.steps; step++) {
		for (int r = 0; r < opt.ranks; r++) {
			begin[r] = s[r].now;
			load_batch(&s[r]);
			for (int l = 0; l < LAYERS; l++)
				layer(&s[r], l, false);
			backward(&s[r], step);
		}
		communicate(s);
		for (int r = 0; r < opt.ranks; r++)
			finish_step(&s[r], begin[r]);
	}
}

/* ---- telling ------------------------------------------------------------------------------- */

struct telling {
	const struct script *s;
	pl_device_event_fn *event;
	void *arg;
	size_t *order;
	size_t flushed;
	struct pl_tracer *tracer;
	uint32_t other;
};

static int start(void *ctx, pl_device_event_fn *event, void *arg, void **trace, struct pl_err *err)
{
	struct telling *t = ctx;

	(void)err;
	t->event = event;
	t->arg = arg;
	*trace = t;
	return 0;
}

static void source(void *trace, struct pl_device_source *s)
{
	(void)trace;
	*s = (struct pl_device_source){ .name = "script", .calls = true };
}

static bool missing(const struct pl_device_event *e, size_t i)
{
	return opt.lost && ((e->kind == PL_DEV_WAIT && e->stream == SIDE) ||
			    (e->kind == PL_DEV_KERNEL && i % 50 == 0));
}

static int flush(void *trace, struct pl_err *err)
{
	struct telling *t = trace;

	(void)err;
	for (; t->flushed < t->s->n_dev; t->flushed++) {
		struct pl_device_event e = t->s->dev[t->order[t->flushed]];

		if (!opt.instances)
			e.instance = 0;
		if (e.thread == OTHER)
			e.thread = t->other;
		if (!missing(&e, t->order[t->flushed]))
			t->event(t->arg, &e);
	}
	return 0;
}

static void stop(void *trace, bool idle)
{
	(void)trace;
	(void)idle;
}

static const struct pl_device_trace device = { start, source, NULL, flush, stop };

static bool joined(const struct pl_device_event *e)
{
	return e->kind == PL_DEV_WAIT || e->kind == PL_DEV_KERNEL;
}

/* Collectives are told by the host, in the order of their issue. */
static void keep_order(const struct script *s, size_t *v)
{
	size_t from = 0;

	for (size_t i = 0; i < s->n_dev; i++) {
		if (s->dev[v[i]].kind != PL_DEV_COMM)
			continue;
		while (s->dev[from].kind != PL_DEV_COMM)
			from++;
		v[i] = from++;
	}
}

/* Indices of the script in the order of the telling. */
static size_t *order_of(const struct script *s)
{
	struct pl_err err = { 0 };
	size_t *v, n = s->n_dev, left = 0;
	uint64_t rng = opt.seed;

	if (pl_alloc(&v, n + 1, sizeof(*v), &err) < 0)
		die(err.msg);
	for (size_t i = 0; i < n; i++)
		v[i] = i;
	if (!strcmp(opt.order, "mixed"))
		for (size_t i = n; i > 1; i--) {
			size_t k = pl_rng_next(&rng) % i, t = v[i - 1];

			v[i - 1] = v[k];
			v[k] = t;
		}
	/* late: waits and kernels backwards, then what they are joined with */
	for (int pass = 0; !strcmp(opt.order, "late") && pass < 2; pass++)
		for (size_t i = n; i-- > 0;)
			if (joined(&s->dev[i]) == !pass)
				v[left++] = i;
	keep_order(s, v);
	return v;
}

static void name_all(struct pl_recorder *r, pl_id *name)
{
	static const char *const other[] = { "batch", "optimizer", "issue allreduce", "step",
					     "wait" };
	char text[32];

	for (int i = 0; i < 2 * LAYERS; i++) {
		snprintf(text, sizeof(text), "%s l%d", i < LAYERS ? "forward" : "backward",
			 i % LAYERS);
		name[i] = pl_rec_name(r, text);
	}
	for (int i = BATCH; i < NAMES; i++)
		name[i] = pl_rec_name(r, other[i - BATCH]);
}

/* The thread that communicates, as it tells the tracer itself. */
static void *other_thread(void *arg)
{
	struct telling *t = arg;

	t->other = (uint32_t)syscall(SYS_gettid);
	for (size_t i = 0; i < t->s->n_comm_launches; i++)
		pl_train_tracer_comm(t->tracer, &t->s->comm_launches[i]);
	return NULL;
}

static void write_rank(const struct script *s, int rank)
{
	struct pl_rec_opts o = { .rank = rank, .size = opt.ranks, .host = "box", .level = 1 };
	struct telling t = { .s = s, .order = order_of(s) };
	struct pl_err err = { 0 };
	struct pl_recorder *r;
	struct pl_tracer *tracer;
	pthread_t other;
	pl_id name[NAMES];
	char path[1024];
	uint64_t lost;
	int step = 0;

	snprintf(path, sizeof(path), opt.ranks > 1 ? "%.1000s.%d" : "%.1000s", opt.file, rank);
	o.path = path;
	if (pl_rec_open(&o, &r, &err) < 0 || pl_train_tracer_new(r, &tracer, &err) < 0 ||
	    pl_train_tracer_device(tracer, &device, &t, NULL, &err) < 0)
		die(err.msg);
	name_all(r, name);
	t.tracer = tracer;
	if (pthread_create(&other, NULL, other_thread, &t) || pthread_join(other, NULL))
		die("a thread");
	for (size_t i = 0; i < s->n_host; i++) {
		struct pl_rec_event e = s->host[i];

		e.track = tracer->main;
		e.name = name[s->host_name[i]];
		e.step = step;
		step += e.kind == PL_K_STEP;
		pl_rec(r, &e);
	}
	if (pl_train_tracer_stop(tracer, true, &lost, &err) < 0)
		die(err.msg);
	pl_train_tracer_free(tracer);
	if (pl_rec_close(r, &lost, &err) < 0 || lost)
		die(lost ? "events were lost" : err.msg);
	pl_free(t.order);
}

static void option(const char *arg)
{
	const struct {
		const char *key;
		int *v;
	} known[] = { { "ranks=", &opt.ranks },		{ "steps=", &opt.steps },
		      { "instances=", &opt.instances }, { "launches=", &opt.launches },
		      { "poll=", &opt.poll },		{ "comm=", &opt.comm },
		      { "call=", &opt.call },		{ "thread=", &opt.thread },
		      { "half=", &opt.half },		{ "lost=", &opt.lost } };

	for (size_t i = 0; i < PL_LEN(known); i++)
		if (!strncmp(arg, known[i].key, strlen(known[i].key))) {
			*known[i].v = atoi(arg + strlen(known[i].key));
			return;
		}
	if (!strncmp(arg, "seed=", 5))
		opt.seed = (uint64_t)atoi(arg + 5);
	else if (!strncmp(arg, "order=", 6))
		opt.order = arg + 6;
	else
		die("unknown option");
}

int main(int argc, char **argv)
{
	static struct script s[RANKS];
	pl_ns begin = pl_now_ns() + 1000000000; /* no trace is opened later */

	for (int i = 2; i < argc; i++)
		option(argv[i]);
	if (argc < 2 || opt.ranks < 1 || opt.ranks > RANKS)
		die("usage: devtrace FILE [KEY=VALUE]...");
	opt.file = argv[1];
	noise = opt.seed;
	for (int r = 0; r < opt.ranks; r++) {
		s[r].now = begin + r * 20000;
		s[r].corr = 100;
	}
	simulate(s);
	for (int r = 0; r < opt.ranks; r++) {
		write_rank(&s[r], r);
		pl_free(s[r].dev);
		pl_free(s[r].host);
		pl_free(s[r].host_name);
		pl_free(s[r].comm_launches);
	}
	printf("waits=%ld\nsyncs=%ld\nkernels=%ld\ncollectives=%ld\n", waits, syncs, kernels,
	       collectives);
	return 0;
}
