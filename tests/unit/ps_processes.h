/*
 * Workers and servers of the engine in one thread, on the network of ps_network.h: each step() is
 * one event of a process. Processes can be killed between two events or in the middle of one, and
 * started again.
 *
 * All numbers of the vector begin as 0, and each commit changes all of them by one amount, which
 * differs from commit to commit. So a vector of mixed versions, or one that had another commit in
 * one of its slices, has numbers that differ.
 */
#ifndef PS_PROCESSES_H
#define PS_PROCESSES_H

#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ps/internal.h"
#include "ps_network.h"
#include "tap.h"

#define N	80 /* numbers of the network */
#define IDS	4096
#define TIMEOUT ((pl_ns)3600000000000)

/* ---- evaluations: the whole vector has one version ------------------------------------------- */

struct pl_ps_evaluator {
	float w[PL_PS_EVALUATIONS][N];
	bool used[PL_PS_EVALUATIONS];
};
static uint64_t evaluated;

static bool is_one(const float *w)
{
	for (int i = 1; i < N; i++)
		if (w[i] != w[0])
			return false;
	return true;
}

struct pl_ps_evaluator *pl_ps_evaluator_new(struct pl_train *t, struct pl_err *err)
{
	(void)t;
	(void)err;
	return calloc(1, sizeof(struct pl_ps_evaluator));
}

void pl_ps_evaluator_free(struct pl_ps_evaluator *e)
{
	free(e);
}

bool pl_ps_evaluator_due(const struct pl_ps_evaluator *e, uint64_t steps)
{
	return steps % 5 == 0 && !(e->used[0] && e->used[1] && e->used[2] && e->used[3]);
}

int pl_ps_evaluator_begin(struct pl_ps_evaluator *e, const struct pl_train_row *row,
			  float **weights)
{
	int i = 0;

	(void)row;
	while (e->used[i])
		i++;
	e->used[i] = true;
	*weights = e->w[i];
	return i;
}

void pl_ps_evaluator_put(struct pl_ps_evaluator *e, int i)
{
	if (!is_one(e->w[i]))
		fails("an evaluation has mixed versions", 0);
	e->used[i] = false;
	evaluated++;
}

void pl_ps_evaluator_drop(struct pl_ps_evaluator *e, int i)
{
	e->used[i] = false;
}

int pl_ps_evaluator_take(struct pl_ps_evaluator *e, bool wait, struct pl_err *err)
{
	(void)e;
	(void)wait;
	(void)err;
	return 0;
}

/* ---- processes ------------------------------------------------------------------------------- */

struct process {
	struct pl_ps ps;
	struct pl_engine_meeting meeting;
	int memory;   /* of a server */
	char *before; /* what was in its memory when it was killed in an event */
	size_t bytes;
	struct pl_ps_server server;
	struct pl_ps_follower follower;
	struct pl_ps_session session;
	uint64_t acknowledged, commits; /* of a worker: id, and number since the beginning */
	bool sent;			/* its commit has no reply yet */
	float amount[IDS];		/* of its commits, by id */
};
static struct process process[MOST];
static struct pl_ps_store
	*store[4096]; /* of servers that have ended; workers read what they sent */
static size_t n_stores;
static uint32_t n_servers, n_workers, n_all;
static struct pl_worker worker;
static struct pl_train train;
static atomic_int stop;

static int no_row(void *arg, const struct pl_train_row *row, struct pl_err *err)
{
	(void)arg;
	(void)row;
	(void)err;
	return 0;
}

static void start(uint32_t i)
{
	static uint32_t each[MOST + 1] = { 0, 1, 2, 3, 4, 5, 6, 7, 8 }; /* a worker is a rank */
	struct process *x = &process[i];
	struct pl_err err = { 0 };
	int rc;

	endpoint[i] = (struct pl_endpoint){
		.id = i, .alive = true, .sends_left = -1, .shares = i < n_servers || any(4)
	};
	x->ps = (struct pl_ps){ .w = worker,
				.ranks = n_workers,
				.workers = n_workers,
				.places = { each, each, each },
				.g.size = 1,
				.servers = n_servers,
				.process = i,
				.vector = { worker.view.n_params, worker.view.n_state },
				.job = 1,
				.end = &endpoint[i],
				.timeout_ns = TIMEOUT };
	x->meeting = (struct pl_engine_meeting){ .at = "dir:", .memory = x->memory };
	x->ps.meeting = &x->meeting;
	x->sent = false;
	rc = pl_alloc(&x->ps.counts, n_workers, sizeof(*x->ps.counts), &err);
	if (rc < 0) {
		;
	} else if (!i) {
		x->server = (struct pl_ps_server){ .p = &x->ps, .t = &train };
		rc = pl_ps_server_open(&x->server, &err);
	} else if (i < n_servers) {
		x->follower = (struct pl_ps_follower){ .p = &x->ps, .t = &train };
		rc = pl_ps_follower_open(&x->follower, &err);
	} else {
		x->session = (struct pl_ps_session){ 0 };
		x->ps.memory.commit = memory[n_memory++] = calloc(1, PL_PS_HEAD + N * 4);
		x->ps.w.view.params = (float *)(void *)(x->ps.memory.commit + PL_PS_HEAD);
		if (any(4) == 0)
			x->ps.memory.commit = NULL;
		rc = pl_ps_session_open(&x->session, &x->ps, &err);
	}
	if (rc < 0)
		fails(err.msg, i);
}

static void kill_inside(uint32_t i)
{
	struct process *x = &process[i];

	endpoint[i].dead = true;
	if (i >= n_servers)
		return;
	x->bytes = (size_t)lseek(x->memory, 0, SEEK_END);
	x->before = malloc(x->bytes);
	if (pread(x->memory, x->before, x->bytes, 0) != (ssize_t)x->bytes)
		fails("cannot read the memory of a server", i);
}

static void end(uint32_t i)
{
	struct process *x = &process[i];

	endpoint[i].alive = false;
	for (int k = 0; k < CONNS; k++)
		if (conn[k].open && (conn[k].from == i || conn[k].to == i))
			cut(&conn[k]);
	for (int k = 0; k < CONNS; k++)
		if (conn[k].from == i || conn[k].to == i)
			drop_events(&conn[k], conn[k].to == i, 0);
	if (!i)
		pl_ps_server_close(&x->server);
	else if (i < n_servers)
		pl_ps_follower_close(&x->follower);
	else
		pl_ps_session_close(&x->session);
	if (x->ps.store)
		store[n_stores++] = x->ps.store;
	x->ps.store = NULL;
	pl_free(x->ps.counts);
	if (x->before && pwrite(x->memory, x->before, x->bytes, 0) != (ssize_t)x->bytes)
		fails("cannot write the memory of a server", i);
	free(x->before);
	x->before = NULL;
}

/* ---- what they do ---------------------------------------------------------------------------- */

static void check_reply(struct process *x, uint32_t i)
{
	float *w = x->ps.w.view.params;

	for (uint32_t k = 0; k < n_servers; k++)
		memcpy(w + pl_ps_slice_at(&x->ps, k), pl_ps_session_base(&x->session, k),
		       pl_ps_slice_size(&x->ps, k) * sizeof(*w));
	if (!is_one(w))
		fails("a worker has mixed versions", i);
	if (x->sent && x->session.applied < x->session.id)
		fails("a reply without the commit that it is for", i);
	if (x->session.applied < x->acknowledged)
		fails("an acknowledged commit is lost", i);
	x->acknowledged = x->session.id;
	x->sent = false;
}

static uint64_t named; /* commits with weights in place of a difference */

static int work(struct process *x, uint32_t i, struct pl_err *err)
{
	struct pl_ps_session *s = &x->session;
	struct pl_ps_commit head = { .steps = 1,
				     .samples = s->order.batch ? (uint64_t)s->order.batch : 1,
				     .base = s->version,
				     .step_ns = 1000,
				     .commit_ns = 500 };
	float amount = (float)((x->commits * n_workers + i) % 61 * 12);
	int what;

	for (uint32_t k = 0; k < n_servers; k++)
		if (!s->server[k].connected && endpoint[k].alive)
			return pl_ps_session_connect(s, k, 0, err);
	if (s->ready && !s->waiting && pl_ps_session_connected(s) && any(3) == 0) {
		for (int k = 0; k < N; k++)
			x->ps.w.view.params[k] += amount;
		PL_CHECK(pl_ps_session_fill(s, any(3) == 0, err));
		named += s->weights;
		x->amount[(s->id + 1) % IDS] = amount;
		memcpy(s->commit, &head, sizeof(head));
		x->commits++;
		x->sent = true;
		s->in_steps = false;
		return pl_ps_session_commit(s, err);
	}
	what = pl_ps_session_event(s, 0, err);
	if (!pl_ps_session_connected(s) && !s->waiting)
		s->in_steps = true;
	if (what == PL_PS_REPLIED)
		check_reply(x, i);
	return what;
}

/* Of asp: weights change by one commit, divided by the number of workers that are present. */
static int lead(struct process *x, struct pl_err *err)
{
	struct pl_ps_store *s = x->server.store;
	uint64_t id[MOST];
	float was = pl_ps_store_weights(s)[0], by = 0;
	bool nothing;

	for (uint32_t i = 0; i < n_workers; i++)
		id[i] = pl_ps_store_applied(s, i)->id;
	PL_CHECK(pl_ps_server_event(&x->server, 0, &nothing, err));
	/* not always, because orders would come faster than a worker takes them */
	if (forced < 0 && any(8) == 0)
		PL_CHECK(pl_ps_server_time(&x->server, pl_now_ns(), err));
	for (uint32_t i = 0; i < n_workers; i++)
		if (pl_ps_store_applied(s, i)->id > id[i])
			by = process[n_servers + i].amount[pl_ps_store_applied(s, i)->id % IDS] /
			     (float)pl_ps_server_present(&x->server);
	if (!strcmp(train.job->policy, "asp") && pl_ps_store_weights(s)[0] != was + by)
		fails("the weights have not changed by a commit", 0);
	return 0;
}

static void step(uint32_t i)
{
	struct process *x = &process[i];
	struct pl_err err = { 0 };
	int rc;

	if (!i)
		rc = lead(x, &err);
	else if (i >= n_servers)
		rc = work(x, i, &err);
	else if (!x->follower.peer[n_workers].connected && endpoint[0].alive)
		rc = pl_ps_follower_connect(&x->follower, 0, &err);
	else
		rc = pl_ps_follower_event(&x->follower, 0, &err);
	if (rc < 0 && !endpoint[i].dead)
		fails(err.msg, i);
	if (endpoint[i].dead)
		end(i);
}

static void begin_all(uint64_t seed)
{
	rng = seed;
	failure = NULL;
	n_memory = 0;
	memset(process, 0, sizeof(process));
	for (uint32_t i = 0; i < n_all; i++) {
		process[i].memory = i < n_servers ? memfd_create("test", 0) : -1;
		start(i);
	}
}

/* Nothing fails any more: every worker must come on. */
__attribute__((unused)) static void recover(unsigned commits)
{
	uint64_t goal[MOST];
	bool all = false;

	for (uint32_t i = 0; i < n_all; i++) {
		if (!endpoint[i].alive)
			start(i);
		endpoint[i].sends_left = -1;
		goal[i] = process[i].commits + commits;
	}
	for (int k = 0; k < 40000 && !failure && !all; k++) {
		step(any(n_all));
		all = true;
		for (uint32_t i = n_servers; i < n_all; i++)
			all &= process[i].commits >= goal[i] && !process[i].sent;
	}
	if (!all)
		fails("a worker does not come on", 0);
}

/* One version a commit, of asp: none is lost, none counted twice. */
__attribute__((unused)) static uint64_t sum_up(const char *policy)
{
	struct pl_ps_store *s = process[0].server.store;
	uint64_t ids = 0;

	for (uint32_t i = 0; i < n_workers && !failure; i++) {
		ids += pl_ps_store_applied(s, i)->id;
		if (pl_ps_store_applied(s, i)->id < process[n_servers + i].acknowledged)
			fails("an acknowledged commit is lost", i);
	}
	if (!failure && !strcmp(policy, "asp") && pl_ps_store_progress(s)->version != ids)
		fails("versions are not commits", 0);
	return ids;
}

static void clean_up(void)
{
	for (uint32_t i = 0; i < n_all; i++)
		if (endpoint[i].alive)
			end(i);
	for (int k = 0; k < CONNS; k++) {
		drop_events(&conn[k], 0, 0);
		drop_events(&conn[k], 1, 0);
		conn[k] = (struct conn){ 0 };
	}
	for (size_t k = 0; k < n_memory; k++)
		free(memory[k]);
	for (size_t k = 0; k < n_stores; k++)
		pl_ps_store_close(store[k]);
	n_stores = 0;
	for (uint32_t i = 0; i < n_servers; i++)
		close(process[i].memory);
}

/* ---- begin and end of the tests ----------------------------------------------------------------
 */

static struct {
	struct pl_job job;
	struct pl_dataset data;
	struct pl_model model;
} made;

static bool begin_tests(void)
{
	struct pl_engine_opts opts = { 0 };
	struct pl_err err = { 0 };
	float zero[N] = { 0 };

	pl_job_init(&made.job);
	opts.job = &made.job;
	opts.model = &made.model;
	opts.data = &made.data;
	if (pl_job_set(&made.job, "data synthetic:samples=20,dims=3,classes=4", &err) < 0 ||
	    pl_job_set(&made.job, "engine ps", &err) < 0 ||
	    pl_job_set(&made.job, "batch 1", &err) < 0 ||
	    pl_job_set(&made.job, "steps 100000000", &err) < 0 ||
	    pl_dataset_open(made.job.data, 1, &made.data, &err) < 0 ||
	    pl_model_parse("mlp:3-5-4", &made.model, &err) < 0 ||
	    pl_train_worker_init(&worker, &opts, NULL, &err) < 0) {
		printf("Bail out! %s\n", err.msg);
		return false;
	}
	is_i64((long long)(worker.view.n_params + worker.view.n_state), N, "the vector");
	pl_ps_vector_write(&worker.view, zero);
	train = (struct pl_train){
		.worker = &worker, .job = &made.job, .stop = &stop, .row = no_row, .ranks = 2
	};
	return true;
}

static int end_tests(void)
{
	pl_train_worker_fini(&worker, false);
	pl_dataset_fini(&made.data);
	pl_model_fini(&made.model);
	pl_job_fini(&made.job);
	return done_testing();
}

#endif
