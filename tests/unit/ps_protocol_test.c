/*
 * The protocol of workers and servers, without processes: the servers and sessions of the engine in
 * one thread, on a network that is made here. A random walk chooses which connection delivers its
 * next message. It breaks connections that have messages on their way. It kills workers and servers
 * between two events or in the middle of one, and starts them again. Besides, all sequences of a
 * few such events are tried.
 *
 * All numbers of the vector begin as 0, and each commit changes all of them by one amount, which
 * differs from commit to commit. So a vector of mixed versions, or one that had another commit in
 * one of its slices, has numbers that differ. Afterwards nothing fails any more, and every worker
 * must come on.
 *
 * One file because walks, sequences and single cases share the processes.
 */
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "ps/internal.h"
#include "ps_network.h"
#include "tap.h"

#define N	80 /* numbers of the network */
#define UNHURT	12 /* commits of each worker afterwards */
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

/* The first worker stays with server 0: training ends where nobody is left. */
static void hurt(uint32_t i)
{
	uint32_t what = any(6);

	if (what < 4 && i == n_servers)
		return;

	if (what < 2)
		end(i);
	else if (what < 4)
		endpoint[i].sends_left = (int)any(4);
	else if (conn[i = any(CONNS)].open && (conn[i].from != n_servers || conn[i].to))
		cut(&conn[i]);
}

/* ---- walks ----------------------------------------------------------------------------------- */

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
static void recover(unsigned commits)
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

static void walk(uint64_t seed, int steps)
{
	begin_all(seed);
	for (int k = 0; k < steps && !failure; k++) {
		uint32_t i = any(n_all);

		if (!endpoint[i].alive && any(4) == 0)
			start(i);
		else if (endpoint[i].alive && any(60) == 0)
			hurt(i);
		else if (endpoint[i].alive)
			step(i);
	}
}

/* One version a commit, of asp: none is lost, none counted twice. */
static uint64_t sum_up(const char *policy)
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

static void test_policy(struct pl_job *job, const char *policy, uint32_t servers, uint32_t workers,
			int walks)
{
	struct pl_err err = { 0 };
	char line[80];
	uint64_t commits = 0;
	int k;

	n_servers = servers;
	n_workers = workers;
	n_all = servers + workers;
	evaluated = named = 0;
	snprintf(line, sizeof(line), "policy %s", policy);
	if (pl_job_set(job, line, &err) < 0)
		fails(err.msg, 0);
	for (k = 0; k < walks; k++) {
		walk((uint64_t)k * 7919 + servers * 31 + workers, 400);
		recover(UNHURT);
		commits += sum_up(job->policy);
		clean_up();
		if (failure)
			break;
	}
	ok(k == walks && named * 8 > commits,
	   "%s, %u servers, %u workers: %d walks, %llu commits, %llu with weights, %llu "
	   "evaluations",
	   policy, servers, workers, walks, (unsigned long long)commits, (unsigned long long)named,
	   (unsigned long long)evaluated);
	if (k < walks)
		printf("# walk %d: %s\n", k, failure);
}

/* ---- every sequence of a few events ------------------------------------------------------------
 */

/* One server and two workers that have committed once: what happens next, in all orders. */
enum happens {
	TAKES_FIRST, /* the server takes the next message of a worker */
	TAKES_SECOND,
	FIRST_ACTS, /* a worker commits if it may, else takes a message */
	SECOND_ACTS,
	CUT_EMPTY, /* the second worker's connection breaks: nothing that is on its way arrives, */
	CUT_FULL,  /* or up to three messages each way do */
	SERVER,	   /* it is killed; if it is away, it comes again */
	SERVER_INSIDE, /* it is killed before the first message that its next event sends */
	WORKER,	       /* the second worker is killed, or comes again */
	N_HAPPENS
};

static void happen(enum happens what)
{
	uint32_t first = n_servers, second = n_servers + 1;

	switch (what) {
	case TAKES_FIRST:
	case TAKES_SECOND:
		only = what == TAKES_FIRST ? first : second;
		if (endpoint[0].alive)
			step(0);
		only = MOST;
		break;
	case FIRST_ACTS:
	case SECOND_ACTS:
		if (endpoint[what == FIRST_ACTS ? first : second].alive)
			step(what == FIRST_ACTS ? first : second);
		break;
	case CUT_EMPTY:
	case CUT_FULL:
		forced = what == CUT_FULL ? 3 : 0;
		for (int k = 0; k < CONNS; k++)
			if (conn[k].open && conn[k].from == second)
				cut(&conn[k]);
		forced = 0;
		break;
	case SERVER_INSIDE:
		endpoint[0].sends_left = 0;
		break;
	case SERVER:
	case WORKER:
		if (endpoint[what == SERVER ? 0 : second].alive)
			end(what == SERVER ? 0 : second);
		else
			start(what == SERVER ? 0 : second);
		break;
	case N_HAPPENS:
		break;
	}
}

static void test_sequences(struct pl_job *job, const char *policy, int length)
{
	struct pl_err err = { 0 };
	char line[80], which[80] = "";
	long n = 1, k;

	for (int i = 0; i < length; i++)
		n *= N_HAPPENS;
	n_servers = 1;
	n_workers = 2;
	n_all = 3;
	snprintf(line, sizeof(line), "policy %s", policy);
	if (pl_job_set(job, line, &err) < 0)
		fails(err.msg, 0);
	for (k = 0; k < n && !failure; k++) {
		long code = k;

		forced = 0;
		begin_all(1);
		for (int i = 0; i < 300 && (!process[1].acknowledged || !process[2].acknowledged);
		     i++)
			step((uint32_t)i % n_all);
		for (int i = 0; i < length && !failure; i++, code /= N_HAPPENS)
			happen((enum happens)(code % N_HAPPENS));
		forced = -1;
		rng = (uint64_t)k;
		recover(2);
		sum_up(job->policy);
		code = k;
		for (int i = 0; failure && i < length; i++, code /= N_HAPPENS)
			snprintf(which + strlen(which), sizeof(which) - strlen(which), " %ld",
				 code % N_HAPPENS);
		clean_up();
	}
	forced = -1;
	ok(!failure, "%s: all %ld sequences of %d events", policy, n, length);
	if (failure)
		printf("# events%s: %s\n", which, failure);
}

/* ---- too few workers ------------------------------------------------------------------------- */

static char said[1100]; /* last, by server 0 */

static void hear(void *arg, enum pl_level level, const char *words)
{
	(void)arg;
	(void)level;
	snprintf(said, sizeof(said), "%s", words);
}

/* Server 0, and worker i if it is alive, until so many are there. */
static void until_present(uint32_t i, uint32_t n)
{
	for (int k = 0; pl_ps_server_present(&process[0].server) != n; k++) {
		if (k == 10000)
			return fails("a worker does not come or go", i);
		step(0);
		if (endpoint[n_servers + i].alive)
			step(n_servers + i);
	}
}

static void lose(uint32_t i)
{
	end(n_servers + i);
	until_present(i, pl_ps_server_present(&process[0].server) - 1);
}

static void come(uint32_t i)
{
	start(n_servers + i);
	until_present(i, pl_ps_server_present(&process[0].server) + 1);
}

/* So many timeouts later: "fails: ...", or what was said. */
static const char *later(int timeouts)
{
	struct pl_ps_server *s = &process[0].server;
	struct pl_err err = { 0 };

	said[0] = '\0';
	for (uint32_t i = 0; i < n_workers; i++)
		s->client[i].left -= timeouts * TIMEOUT;
	s->few_since -= s->few_since == INT64_MAX ? 0 : timeouts * TIMEOUT;
	if (pl_ps_server_few(s, pl_now_ns(), &err) < 0)
		snprintf(said, sizeof(said), "fails: %s", err.msg);
	return said;
}

#define NEEDS_3 "workers remain, and bsp needs 3; "

/* So many bodies take memory. */
static uint64_t bodies_written(const struct process *x)
{
	uint64_t version, n = 0;

	for (uint32_t i = 0; i < pl_ps_bodies(&x->ps); i++) {
		memcpy(&version, pl_ps_store_body(x->server.store, i), sizeof(version));
		n += version > 0;
	}
	return n;
}

static void test_bsp(struct pl_job *job)
{
	static const struct pl_log log = { .say = hear };
	struct pl_err err = { 0 };

	n_servers = 1;
	n_workers = 3;
	n_all = 4;
	if (pl_job_set(job, "policy bsp", &err) < 0)
		fails(err.msg, 0);
	begin_all(1);
	process[0].server.log = &log;
	for (int k = 0; k < 2000; k++)
		step(any(n_all));
	ok(pl_ps_store_progress(process[0].server.store)->version > 20, "three workers");
	is_i64((int64_t)bodies_written(&process[0]), 2, "memory for weights: written by turns");
	lose(1);
	come(1);
	ok(strstr(said, "is lost"), "one is lost, and comes back at once: %s", said);
	lose(0);
	is_str(later(7), "worker 0 has left: 2 of 3 " NEEDS_3 "training waits for it to come back",
	       "one is lost for some time");
	lose(2);
	come(0);
	ok(strstr(said, "is lost"), "... and comes back while another one is missing: %s", said);
	is_str(later(7), "", "... which has its own time");
	come(2);
	is_str(said, "enough workers are there again: training goes on", "... and comes back");
	lose(0);
	later(3);
	lose(2);
	later(5);
	come(2);
	is_str(later(5),
	       "fails: worker 0 has left: 2 of 3 " NEEDS_3
	       "rank 0 did not come back within 4.32e+04 s",
	       "the one is named that was away");
	is_str(failure ? failure : "", "", "all went as told");
	clean_up();
}

/* ---- a worker whose place another process takes ---------------------------------------------- */

/* A process, until it has made so many commits more. */
static void until_commits(uint32_t i, uint64_t n)
{
	struct process *x = &process[i];

	n += x->commits;
	for (int k = 0; x->commits < n || x->sent; k++) {
		if (k == 20000)
			return fails("a worker does not come on", i);
		step(0);
		step(i);
	}
}

/* The server finds the connection of worker 1 broken; the worker will with return_to(). */
static struct conn *cut_off(struct conn *kept)
{
	struct pl_endpoint_event lost = { .kind = PL_ENDPOINT_LOST, .why = "it is cut" };
	struct conn *c = find(process[2].session.server[0].connection);

	*kept = *c;
	c->open = false;
	c->queue[0] = c->queue[1] = NULL;
	drop_events(kept, 1, 0); /* a commit does not come to the server */
	put_event(c, 1, &lost, NULL);
	return c;
}

static void return_to(struct conn *kept, struct conn *c)
{
	struct pl_endpoint_event lost = { .kind = PL_ENDPOINT_LOST, .why = "it is cut" };

	*c = *kept;
	c->open = false;
	put_event(c, 0, &lost, NULL);
}

/* Another process in place of worker 1, for some commits. */
static void replace(void)
{
	struct process old = process[2];

	start(2);
	until_commits(2, 8);
	end(2);
	until_present(0, 0);
	endpoint[2].alive = true;
	process[2] = old;
}

/* Workers 0 and 1, and worker 1 has made commits. With a commit of worker 1 that is on its way. */
static void begin_two(struct pl_job *job, bool pending)
{
	struct pl_ps_commit head = { .steps = 1, .samples = 1 };
	struct pl_ps_session *s = &process[2].session;
	struct pl_err err = { 0 };

	n_servers = 1;
	n_workers = 2;
	n_all = 3;
	if (pl_job_set(job, "policy asp", &err) < 0)
		fails(err.msg, 0);
	begin_all(5);
	endpoint[1].shares = endpoint[2].shares = true;
	for (int k = 0; pl_ps_server_present(&process[0].server) < 2; k++)
		step(any(n_all));
	until_commits(2, 3);
	if (!pending)
		return;
	for (int k = 0; k < N; k++)
		process[2].ps.w.view.params[k] += 6;
	process[2].amount[(s->id + 1) % IDS] = 6;
	ok(pl_ps_session_fill(s, false, &err) == 0 && s->weights, "a commit with weights");
	memcpy(s->commit, &head, sizeof(head));
	process[2].sent = true;
	if (pl_ps_session_commit(s, &err) < 0)
		fails(err.msg, 2);
}

/* Worker 1 finds that its connection is broken. */
static void until_lost(void)
{
	struct pl_err err = { 0 };

	while (process[2].session.server[0].connected)
		if (pl_ps_session_event(&process[2].session, 0, &err) < 0)
			return fails(err.msg, 2);
}

/* Another process, or the other worker, makes commits meanwhile. */
static void test_away(struct pl_job *job, bool pending, bool replaced)
{
	struct pl_ps_session *s = &process[2].session;
	struct conn kept, *c;
	uint64_t id;

	begin_two(job, pending);
	id = pl_ps_store_applied(process[0].server.store, 1)->id;
	c = cut_off(&kept);
	if (replaced) {
		lose(0);
		replace();
		id += 8;
	} else {
		until_commits(1, 8);
	}
	ok(pl_ps_store_applied(process[0].server.store, 1)->id >= id,
	   replaced ? "another process takes the place of a worker" : "a worker is cut off");
	return_to(&kept, c);
	if (replaced && !pending)
		ok(!pl_ps_session_has_base(s) && s->waiting,
		   "... whose weights are overwritten, as it finds");
	until_lost();
	if (replaced && pending) {
		process[2].sent = false;
		ok(!s->pending && s->waiting,
		   "... whose weights are overwritten: its commit is lost");
	} else if (!replaced) {
		ok(pl_ps_session_has_base(s) && s->pending == pending,
		   "... and its weights are there");
	}
	until_commits(2, 0);
	ok(replaced || pl_ps_store_applied(process[0].server.store, 1)->id == id + pending,
	   "it comes back, with its commit");
	until_commits(2, 8);
	is_str(failure ? failure : "", "", "... and goes on");
	clean_up();
}

/* A server that was started again, without one of the workers: nothing stays for that one. */
static void test_gone(struct pl_job *job)
{
	struct pl_ps_server *s = &process[0].server;
	struct pl_err err = { 0 };

	n_servers = 1;
	n_workers = 3;
	n_all = 4;
	if (pl_job_set(job, "policy asp", &err) < 0)
		fails(err.msg, 0);
	begin_all(9);
	for (uint32_t i = 0; i < n_all; i++)
		endpoint[i].shares = true;
	for (int k = 0; k < 4000; k++)
		step(any(n_all));
	ok(bodies_written(&process[0]) > 2, "weights in several bodies");
	end(3);
	end(0);
	start(0);
	for (int k = 0; pl_ps_server_there(s) < 2 && k < 10000; k++)
		step(any(3));
	ok(pl_ps_server_begin(s, &err) == 0, "a server is started again, without one worker");
	until_commits(1, 20);
	until_commits(2, 20);
	is_i64(endpoint[0].allocs, 0, "... and writes weights to bodies that this one had");
	is_str(failure ? failure : "", "", "all went as told");
	clean_up();
}

/* A process that is stopped while it reads weights of another one, and the other one goes on. */
static void test_reply(void)
{
	struct {
		uint64_t version;
		char rest[512];
	} body = { .version = 7 };
	struct pl_message m = { .value = { 0, 7 }, .body = &body, .bytes = pl_ps_reply_bytes(N) };
	float to[N];

	ok(pl_ps_reply_take(&m, to, N), "weights of the version that was sent are taken");
	body.version = 8;
	ok(!pl_ps_reply_take(&m, to, N), "memory that has got another version meanwhile is not");
	m.value[1] = 8;
	ok(!pl_ps_reply_take(&m, to, N + 1), "nor weights of another number");
}

int main(void)
{
	/* asp, whose weights are known at each moment, has most of the walks */
	static const struct {
		const char *name;
		int walks;
	} policies[] = { { "asp", 320 },
			 { "bsp min-workers=1", 60 },
			 { "local local-steps=1 min-workers=1", 60 },
			 { "dylu", 60 },
			 { "ssp staleness=2", 80 },
			 { "adsp min-workers=1", 60 },
			 { "adsp++ min-workers=1", 60 },
			 { "batchtune min-workers=1", 60 },
			 { "diloco local-steps=1 min-workers=1", 40 } };
	struct pl_engine_opts opts = { 0 };
	struct pl_dataset data;
	struct pl_model model;
	struct pl_err err = { 0 };
	struct pl_job job;
	float zero[N] = { 0 };

	pl_job_init(&job);
	if (pl_job_set(&job, "data synthetic:samples=20,dims=3,classes=4", &err) < 0 ||
	    pl_job_set(&job, "engine ps", &err) < 0 || pl_job_set(&job, "batch 1", &err) < 0 ||
	    pl_job_set(&job, "steps 100000000", &err) < 0 ||
	    pl_dataset_open(job.data, 1, &data, &err) < 0 ||
	    pl_model_parse("mlp:3-5-4", &model, &err) < 0) {
		printf("Bail out! %s\n", err.msg);
		return 1;
	}
	opts.job = &job;
	opts.model = &model;
	opts.data = &data;
	if (pl_train_worker_init(&worker, &opts, NULL, &err) < 0) {
		printf("Bail out! %s\n", err.msg);
		return 1;
	}
	is_i64((long long)(worker.view.n_params + worker.view.n_state), N, "the vector");
	pl_ps_vector_write(&worker.view, zero);
	test_reply();
	train = (struct pl_train){
		.worker = &worker, .job = &job, .stop = &stop, .row = no_row, .ranks = 2
	};
	for (size_t i = 0; i < PL_LEN(policies); i++)
		for (uint32_t servers = 1; servers <= 3; servers++)
			test_policy(&job, policies[i].name, servers, 2 + servers % 2,
				    CASES(policies[i].walks));
	for (size_t i = 0; i < PL_LEN(policies); i++)
		test_sequences(&job, policies[i].name,
			       getenv("LONG") && *getenv("LONG") == '1' ? 5
			       : i					? SIZE(3, 2)
									: SIZE(4, 3));
	test_bsp(&job);
	test_gone(&job);
	for (int k = 0; k < 4; k++)
		test_away(&job, k & 1, k & 2);
	pl_train_worker_fini(&worker, false);
	pl_dataset_fini(&data);
	pl_model_fini(&model);
	pl_job_fini(&job);
	return done_testing();
}
