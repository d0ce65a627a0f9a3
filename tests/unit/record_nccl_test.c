/*
 * libpaceline-nccl.so, driven as NCCL drives a profiler: many threads, events out of order, ends
 * that are missing, times of the device that are 0. What it was told is in the trace, or counted.
 *
 * runner: threads
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "record/gpu_clock.h"
#include "record/nccl.h"
#include "record/rec.h"
#include "record_fixture.h"
#include "tap.h"

#define THREADS	 4
#define COLLS	 240 /* of a thread */
#define CHANNELS 2
#define STEPS	 3
#define AHEAD	 16 /* collectives that are issued before the first one is carried out */
#define OFF	 1700000000000000000LL /* of the device's clock */

static char folder[64], lib[700], emu[600];

/* Layouts that NCCL's own compiler makes of its structures. */
_Static_assert(offsetof(struct np_coll, group) == 80 && offsetof(struct np_p2p, group) == 40,
	       "groups in version 5");
_Static_assert(offsetof(struct np_kernel_ch, timer) == 8, "a channel of a kernel");
_Static_assert(offsetof(struct np_api, stream) == 32 && offsetof(struct np_p2p_api, stream) == 24,
	       "calls");
_Static_assert(offsetof(struct np_ce_coll, type) == 48, "a collective of copy engines");

/* ---- as NCCL --------------------------------------------------------------------------------- */

struct nccl {
	const struct np_v4 *v4;
	const struct np_v5 *v5; /* or version 6 */
	void *context;
	_Atomic long expected; /* events that must be in the trace, or counted */
	_Atomic long issued;
};
static struct nccl n;

static void *start(uint64_t type, void *parent, const union np_what *what)
{
	struct np_event_v5 e5 = { .type = type, .parent = parent };
	struct np_event_v4 e4 = { .type = (uint8_t)type, .parent = parent };
	void *handle = NULL;

	if (what)
		e5.what = e4.what = *what;
	if (n.v5)
		n.v5->start(n.context, &handle, &e5);
	else
		n.v4->start(n.context, &handle, &e4);
	n.expected += type != NP_GROUP; /* which nobody wants */
	return handle;
}

static void stop(void *handle)
{
	(void)!(n.v5 ? n.v5->stop : n.v4->stop)(handle);
}

static void state(void *handle, int s, size_t v)
{
	union np_args args = { .timer = v };

	(void)!(n.v5 ? n.v5->state : n.v4->state)(handle, s, &args);
}

/* A collective up to its launch. Returns its handle. */
static void *issue(int i)
{
	union np_what what = { .api = { .func = "AllReduce",
					.count = 1000,
					.type = "ncclFloat32",
					.stream = (void *)0x1000 } };
	const union np_what launch = { .stream = (void *)0x1000 };
	void *group = NULL, *call = NULL, *old = start(NP_GROUP, NULL, NULL), *l, *c;

	if (n.v5) {
		group = start(NP_GROUP_API, NULL, &what);
		call = start(NP_COLL_API, group, &what);
		stop(call);
		l = start(NP_KERNEL_LAUNCH, group, &launch);
		stop(l);
	}
	what = (union np_what){ .coll = { .func = "AllReduce",
					  .count = 1000,
					  .type = "ncclFloat32",
					  .channels = CHANNELS,
					  .algo = i % 2 ? "RING" : "TREE",
					  .proto = "SIMPLE",
					  .group = old } };
	c = start(NP_COLL, n.v5 ? call : old, &what);
	stop(c);
	stop(old);
	if (group)
		stop(group);
	n.issued++;
	return c;
}

static void network(void *coll, int channel, bool sends, bool cut)
{
	const union np_what op = { .proxy_op = { .pid = getpid(),
						 .channel = (uint8_t)channel,
						 .peer = 2,
						 .steps = STEPS,
						 .chunk = 512,
						 .sends = sends } };
	void *o = start(NP_PROXY_OP, coll, &op);

	for (int s = 0; s < STEPS; s++) {
		const union np_what what = { .step = s };
		void *h = start(NP_PROXY_STEP, o, &what);

		if (cut && s == STEPS - 1)
			return; /* neither the step nor the operation ever ends */
		if (sends) {
			state(h, NP_SEND_GPU_WAIT, 0);
			state(h, NP_SEND_PEER_WAIT, 0);
			state(h, NP_SEND_WAIT, 512);
		} else {
			state(h, NP_RECV_WAIT, 0);
			state(h, NP_RECV_FLUSH_WAIT, 512);
			state(h, NP_RECV_GPU_WAIT, 512);
		}
		n.expected += 3; /* what it waited for */
		stop(h);
	}
	stop(o);
}

static void channel(void *coll, int c, int how)
{
	union np_what what = { .kernel_ch = { .channel = (uint8_t)c,
					      .timer = how == 1 ? 0
								: (uint64_t)(pl_now_ns() + OFF) } };
	void *h = start(NP_KERNEL_CH, coll, &what);

	if (how == 2)
		return; /* never ends */
	state(h, NP_KERNEL_CH_STOP, how == 1 ? 0 : (size_t)(pl_now_ns() + OFF));
	stop(h);
	if (how == 3)
		stop(h); /* twice */
}

/* What NCCL's own thread does of a collective, out of the order of issue. */
static void carry_out(void *coll, int i)
{
	for (int c = CHANNELS - 1; c >= 0; c--) {
		network(coll, c, i % 2, i % 50 == 7);
		channel(coll, c, i % 40 == 3 ? 1 : i % 40 == 5 ? 2 : i % 40 == 9 ? 3 : 0);
	}
}

static void *thread(void *arg)
{
	void *ahead[AHEAD];

	(void)arg;
	for (int i = 0; i < COLLS; i += AHEAD) {
		for (int k = 0; k < AHEAD; k++)
			ahead[k] = issue(i + k);
		for (int k = AHEAD - 1; k >= 0; k--)
			carry_out(ahead[k], i + k);
	}
	return NULL;
}

/* In a child: the library writes when the process ends. Returns its exit status. */
static int drive(int version)
{
	pthread_t t[THREADS];
	void *dl = dlopen(lib, RTLD_NOW | RTLD_LOCAL);
	int mask = 0;

	if (!dl)
		return 2;
	n.v4 = dlsym(dl, "ncclProfiler_v4");
	n.v5 = version == 4 ? NULL
			    : dlsym(dl, version == 6 ? "ncclProfiler_v6" : "ncclProfiler_v5");
	if (!n.v4 || (version > 4 && !n.v5))
		return 3;
	if (n.v5)
		n.v5->init(&n.context, 0xabc, &mask, "world", 1, 4, 1, NULL);
	else
		n.v4->init(&n.context, &mask, "world", 0xabc, 1, 4, 1, NULL);
	if (!(mask & NP_COLL) || !(mask & NP_KERNEL_CH) ||
	    (version == 4) != !(mask & NP_COLL_API) || (version == 6) != !!(mask & NP_CE_COLL))
		return 4;
	for (int i = 0; i < THREADS; i++)
		pthread_create(&t[i], NULL, thread, NULL);
	for (int i = 0; i < THREADS; i++)
		pthread_join(t[i], NULL);
	(void)!(n.v5 ? n.v5->finalize : n.v4->finalize)(n.context);
	dlclose(dl); /* as NCCL does; the recorder has a thread in it */
	return 0;
}

/* ---- what is in the trace -------------------------------------------------------------------- */

static long count(const struct pl_events *e, uint8_t kind)
{
	long k = 0;

	for (uint64_t i = 0; i < e->n; i++)
		k += e->kind[i] == kind;
	return k;
}

static void check_collectives(const struct pl_events *e)
{
	long good = 0, numbered = 0, total = 0;

	for (uint64_t i = 0; i < e->n; i++) {
		if (e->kind[i] != PL_K_COLLECTIVE)
			continue;
		total++;
		good += e->bytes[i] == 4000 && e->dur[i] >= 0 && e->dur[i] < 60000000000 &&
			e->ts[i] >= 0 && e->ts[i] < 600000000000 &&
			!strcmp(pl_intern_get(&e->seg.str, e->coll[i]), "allreduce") &&
			!strcmp(pl_intern_get(&e->seg.str, e->group[i]), "world 0000000000000abc");
		numbered += e->seq[i];
	}
	is_i64(total, THREADS * COLLS, "each collective is there, whatever its end");
	is_i64(good, total, "with size, group, and times on the clock of the host");
	is_i64(numbered, (int64_t)total * (total - 1) / 2, "each has its own number");
}

static void check_messages(const struct pl_events *e)
{
	long good = 0, total = 0;

	for (uint64_t i = 0; i < e->n; i++) {
		if (e->kind[i] != PL_K_SEND && e->kind[i] != PL_K_RECV)
			continue;
		total++;
		good += e->peer[i] == 2 && e->bytes[i] == 512 && e->of[i] >= 0 &&
			e->channel[i] >= 0 && e->channel[i] < CHANNELS;
	}
	ok(total > 0 && good == total, "%ld messages: peer, size, collective and channel", total);
}

static void check_trace(const char *path, long expected, int version)
{
	struct pl_err err = { 0 };
	struct pl_trace t;
	const char *lost;
	long counted;

	if (!ok(load(path, &t, &err) == 0 && t.n_segs == 1, "version %d: %s: %s", version, path,
		err.msg))
		return;
	lost = pl_trace_segment_meta_get(&t.seg[0]->seg, PL_REC_LOST);
	counted = lost ? atol(lost) : 0;
	ok(counted > 0, "ends that are missing are counted: %ld", counted);
	is_i64((long long)t.seg[0]->n + counted, expected, "nothing is lost that is not counted");
	check_collectives(t.seg[0]);
	check_messages(t.seg[0]);
	if (version > 4)
		ok(count(t.seg[0], PL_K_RUNTIME) == THREADS * COLLS &&
			   count(t.seg[0], PL_K_HOST_OP) == THREADS * COLLS,
		   "calls and launches");
	ok(count(t.seg[0], PL_K_GPU_ANNOTATION) > THREADS * COLLS, "channels of kernels");
	is_i64(t.seg[0]->seg.track[0].rank, 1, "the rank");
	pl_trace_fini(&t);
}

/* Runs drive() in another process. *expected: how many events the trace should have. counts: of the
 * plugin `next` (NULL: none). */
static int in_child(int version, const char *next, long *expected, long counts[4])
{
	int ends[2], status = -1;
	long all[5] = { 0 };
	pid_t pid;

	if (pipe(ends) < 0)
		return -1;
	pid = fork();
	if (pid == 0) {
		void (*tell)(long *) = NULL;
		void *fake = NULL;

		if (next) {
			setenv("PACELINE_NCCL_NEXT", next, 1);
			fake = dlopen(next, RTLD_NOW | RTLD_LOCAL);
			pl_symbol(fake, "fake_profiler_counts", &tell);
		}
		status = drive(version);
		all[0] = n.expected;
		if (tell)
			tell(all + 1);
		if (write(ends[1], all, sizeof(all)) != (ssize_t)sizeof(all))
			status = 9;
		exit(status);
	}
	close(ends[1]);
	if (read(ends[0], all, sizeof(all)) != (ssize_t)sizeof(all))
		all[0] = -1;
	close(ends[0]);
	waitpid(pid, &status, 0);
	*expected = all[0];
	memcpy(counts, all + 1, 4 * sizeof(long));
	return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Is `text` in what BIN/`command` says? */
static bool says(const char *command, const char *text)
{
	const char *bin = getenv("BIN");
	char line[1024];
	bool found = false;
	FILE *f;

	snprintf(line, sizeof(line), "%s/%s 2>&1", bin ? bin : "bin", command);
	f = popen(line, "r");
	while (f && fgets(line, sizeof(line), f)) {
		found |= strstr(line, text) != NULL;
		if (!strncmp(line, "merge: ", 7))
			printf("# %s", line);
	}
	if (f)
		pclose(f);
	return found;
}

static void test_version(int version)
{
	char path[128], command[256];
	long expected, counts[4];

	setenv("PACELINE_RECORD_DIR", folder, 1);
	ok(in_child(version, NULL, &expected, counts) == 0, "version %d is driven", version);
	snprintf(path, sizeof(path), "%s/rank1.nccl.trace", folder);
	check_trace(path, expected, version);
	snprintf(command, sizeof(command), "trace -O stat %s", path);
	ok(version < 6 || says(command, "events are missing"), "who reads it is told");
	unlink(path);
}

static void test_chain(int version, const char *name)
{
	char path[128], next[700];
	long expected, c[4];

	setenv("PACELINE_RECORD_DIR", folder, 1);
	snprintf(next, sizeof(next), "%s/%s.so", emu, name);
	ok(in_child(version, next, &expected, c) == 0, "version %d with another plugin, %s",
	   version, name);
	ok(c[0] > 2 * THREADS * COLLS && c[1] > 0 && c[2] > 0,
	   "which gets the same calls: %ld, %ld ends, %ld states", c[0], c[1], c[2]);
	is_i64(c[3], 0, "with its own contexts, handles and parents");
	snprintf(path, sizeof(path), "%s/rank1.nccl.trace", folder);
	check_trace(path, expected, version);
	unlink(path);
}

/* ---- two ranks ------------------------------------------------------------------------------- */

#define RANKS  2 /* of a job of four: 1 and 3 */
#define ROUNDS 5

/* A ring of two: each rank sends to the other and receives from it, in both channels. Receives are
 * posted before the kernel runs. */
static void *network_op(void *coll, int c, int peer, bool sends)
{
	const union np_what op = {
		.proxy_op = { .pid = getpid(), .channel = (uint8_t)c, .peer = peer, .sends = sends }
	};

	return start(NP_PROXY_OP, coll, &op);
}

static void exchange(void *coll, int peer, void *const *step, pthread_barrier_t *meet)
{
	for (int c = 0; c < CHANNELS; c++) {
		const union np_what what = { .step = 0 };
		void *s = network_op(coll, c, peer, true), *ss = start(NP_PROXY_STEP, s, &what);

		state(ss, NP_SEND_WAIT, 2000);
		pthread_barrier_wait(meet);
		stop(ss);
		stop(s);
		state(step[c], NP_RECV_GPU_WAIT, 2000);
		stop(step[c]);
	}
}

/* Of a communicator that has two ranks of a job of four. */
static void transfer(int rank, pthread_barrier_t *meet)
{
	const union np_what what = { .p2p = { .func = rank ? "Recv" : "Send",
					      .type = "ncclFloat32",
					      .count = 25,
					      .peer = !rank,
					      .channels = 1 } };
	void *t = start(NP_P2P, NULL, &what);

	stop(t);
	pthread_barrier_wait(meet); /* both have opened it */
	channel(t, 0, 0);
}

static int clean_rank(int rank, pthread_barrier_t *meet)
{
	void *dl = dlopen(lib, RTLD_NOW | RTLD_LOCAL), *ch[CHANNELS], *op[CHANNELS],
	     *step[CHANNELS];
	int mask = 0;

	n.v5 = dl ? dlsym(dl, "ncclProfiler_v6") : NULL;
	if (!n.v5 || n.v5->init(&n.context, 0xabc, &mask, "world", 1, RANKS, rank, NULL))
		return 1;
	for (int i = 0; i < ROUNDS; i++) {
		void *c;

		usleep(rank * 2000u); /* the other one waits */
		c = issue(i);
		for (int k = 0; k < CHANNELS; k++) {
			const union np_what what = { .step = 0 };

			op[k] = network_op(c, k, !rank, false);
			step[k] = start(NP_PROXY_STEP, op[k], &what);
			state(step[k], NP_RECV_WAIT, 0);
		}
		usleep(500);
		for (int k = 0; k < CHANNELS; k++) {
			const union np_what what = {
				.kernel_ch = { .channel = (uint8_t)k,
					       .timer = (uint64_t)(pl_now_ns() + OFF) }
			};

			ch[k] = start(NP_KERNEL_CH, c, &what);
		}
		exchange(c, !rank, step, meet);
		for (int k = 0; k < CHANNELS; k++) {
			stop(op[k]);
			state(ch[k], NP_KERNEL_CH_STOP, (size_t)(pl_now_ns() + OFF));
			stop(ch[k]);
		}
	}
	if (n.v5->finalize(n.context) ||
	    n.v5->init(&n.context, 0xdef, &mask, "pair", 1, 2, rank, NULL))
		return 2;
	transfer(rank, meet);
	pthread_barrier_wait(meet);
	return n.v5->finalize(n.context);
}

static void test_ranks(void)
{
	pthread_barrier_t *meet = mmap(NULL, sizeof(*meet), PROT_READ | PROT_WRITE,
				       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_barrierattr_t attr;
	int status, bad = 0;
	char command[256];
	pid_t pid[RANKS];

	pthread_barrierattr_init(&attr);
	pthread_barrierattr_setpshared(&attr, PTHREAD_PROCESS_SHARED);
	pthread_barrier_init(meet, &attr, RANKS);
	setenv("PACELINE_RECORD_DIR", folder, 1);
	setenv("WORLD_SIZE", "4", 1);
	for (int i = 0; i < RANKS; i++) {
		pid[i] = fork();
		if (pid[i] == 0) {
			setenv("RANK", i ? "3" : "1", 1);
			exit(clean_rank(i, meet));
		}
	}
	for (int i = 0; i < RANKS; i++) {
		waitpid(pid[i], &status, 0);
		bad += status != 0;
	}
	is_i64(bad, 0, "two ranks");
	snprintf(command, sizeof(command),
		 "merge -v -o %s/merged %s/rank1.nccl.trace %s/rank3.nccl.trace", folder, folder,
		 folder);
	ok(says(command, "5 collectives and 1 transfers matched, 0 incomplete"),
	   "their collectives are matched");
	ok(says(command, "20 messages"), "and their messages");
	snprintf(command, sizeof(command), "trace -O text %s/rank1.nccl.trace", folder);
	ok(says(command, "name=\"ncclSend\" bytes=100 group=\"pair 0000000000000def\" peer=3"),
	   "a transfer names the rank of the job");
	snprintf(command, sizeof(command), "%s/.nccl", folder);
	ok(access(command, F_OK) != 0, "the links are gone");
	snprintf(command, sizeof(command), "graph -o %s/graph %s/merged", folder, folder);
	says(command, "");
	snprintf(command, sizeof(command), "replay %s/graph", folder);
	ok(says(command, "device operations, replayed against recorded"), "and its replay");
	munmap(meet, sizeof(*meet));
}

/* Reports come 2 us to 1 ms late; the device's clock is 30 ppm fast. */
static void test_clock(void)
{
	struct pl_gpu_clock k;
	uint64_t random = 1;
	pl_ns worst = 0, least = INT64_MAX;

	pl_gpu_clock_init(&k);
	for (pl_ns t = 1000000000; t < 3000000000; t += 1000000) {
		uint64_t gpu = (uint64_t)(t + OFF + (pl_ns)(30e-6 * (double)t));
		pl_ns late =
			2000 +
			(pl_ns)(pl_rng_next(&random) % 100 ? pl_rng_next(&random) % 1000000 : 0);
		pl_ns off;

		pl_gpu_clock_reading(&k, gpu, t + late);
		off = pl_gpu_clock_host(&k, gpu) - t;
		if (t < 1200000000)
			continue;
		worst = pl_max_i64(worst, off);
		least = pl_min_i64(least, off);
	}
	ok(least >= 0 && worst < 20000,
	   "times of a device are on the clock of the host: %lld to %lld ns off", (long long)least,
	   (long long)worst);
}

static void test_off(void)
{
	struct nccl x;
	int mask = 99, status;
	pid_t pid;

	unsetenv("PACELINE_RECORD_DIR");
	pid = fork();
	if (pid == 0) {
		void *dl = dlopen(lib, RTLD_NOW | RTLD_LOCAL);

		x.v5 = dl ? dlsym(dl, "ncclProfiler_v6") : NULL;
		_exit(x.v5 && x.v5->init(&x.context, 1, &mask, "w", 1, 2, 0, NULL) == 0 && !mask
			      ? 0
			      : 1);
	}
	waitpid(pid, &status, 0);
	is_i64(status, 0, "without a folder NCCL is told that nothing is of interest");
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/'), *bin = getenv("BIN");

	(void)argc;
	snprintf(emu, sizeof(emu), "%.*s/../emu", slash ? (int)(slash - argv[0]) : 1,
		 slash ? argv[0] : ".");
	snprintf(lib, sizeof(lib), "%s/libpaceline-nccl.so", bin ? bin : "bin");
	snprintf(folder, sizeof(folder), "/tmp/record_nccl_test.XXXXXX");
	if (!ok(mkdtemp(folder) && access(lib, R_OK) == 0, "the library: %s", lib))
		return done_testing();
	setenv("RANK", "1", 1);
	setenv("WORLD_SIZE", "4", 1);
	test_clock();
	test_off();
	test_version(4);
	test_version(5);
	test_version(6);
	test_chain(6, "fake_profiler");
	test_chain(4, "fake_profiler");
	test_chain(5, "fake_profiler_v4");
	test_ranks();
	pl_remove_folder(folder);
	return done_testing();
}
