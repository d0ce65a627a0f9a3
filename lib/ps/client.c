/*
 * A worker: takes local steps, commits when its order says so, and waits for the reply.
 *
 * It keeps the weights that it pulled last, so that a commit is a difference. If its connection
 * breaks, it greets the server again until the server is given up. A commit whose reply never came
 * is sent again if the server has not applied it. If the server's weights have changed meanwhile,
 * what the worker computed since its last commit is lost: it began from weights that are old by
 * now.
 */
#include <math.h>
#include <signal.h>

#include "ps/internal.h"

/* A server that is started again takes a moment; it is given up after so many timeouts. */
#define PATIENCE 10
/* A reply may have to wait for workers that are far slower. */
#define REPLY_PATIENCE 200

struct worker {
	struct pl_ps *p;
	struct pl_train *t;
	uint32_t connection;
	bool connected, ended;
	struct pl_policy_order order; /* first: on the own clock */
	pl_ns due;		      /* of the next commit; INT64_MAX: it goes by steps */
	uint64_t id;		      /* of the last commit */
	bool pending;		      /* it has no reply */
	bool in_steps; /* it connected again between two commits, and has the weights of its steps
			*/
	uint64_t applied, version;
	int64_t batch;		 /* of the order that the steps obey; 0: the job's */
	float *base;		 /* the weights as they were pulled */
	char *commit;		 /* the body: head, then U */
	struct pl_ps_commit now; /* what the next commit is of */
	double loss_sum, step_sum;
	pl_ns last_commit_ns;
	struct pl_ps_counts counts;
};

static float *change_of(const struct worker *k)
{
	return (float *)(void *)(k->commit + PL_PS_HEAD);
}

static void take_order(struct worker *k, const struct pl_endpoint_event *ev)
{
	struct pl_policy_order o;

	if (ev->message.bytes != sizeof(o))
		return;
	memcpy(&o, ev->message.body, sizeof(o));
	o.first += pl_now_ns();
	k->order = o;
	k->due = o.every > 0 ? o.first : INT64_MAX;
}

/* The weights of a reply become those of the worker. */
static int take_reply(struct worker *k, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	size_t bytes = pl_ps_vector_size(&k->p->vector) * sizeof(float);

	if (ev->message.bytes != bytes)
		return pl_fail(err, PL_EIO, "the server sent weights of a wrong size");
	k->applied = ev->message.value[0];
	if (k->in_steps && !k->pending && ev->message.value[1] == k->version)
		return 0; /* the steps since then go on */
	k->in_steps = false;
	k->version = ev->message.value[1];
	memcpy(k->base, ev->message.body, bytes);
	pl_ps_vector_write(&k->p->w.view, k->base);
	pl_net_changed(k->p->w.net);
	return 0;
}

static int take_end(struct worker *k, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	const char *why = ev->message.body;

	k->ended = true;
	if (!ev->message.bytes || why[ev->message.bytes - 1])
		return 0;
	return pl_fail(err, PL_EIO, "the server ended the training: %.300s", why);
}

enum { NOTHING, REPLIED, OTHER };

/* One event; returns what it was. */
static int one_event(struct worker *k, pl_ns until, struct pl_err *err)
{
	struct pl_endpoint_event ev;
	int rc = 0, what = OTHER;

	PL_CHECK(pl_comm_endpoint_next(k->p->end, until, &ev, err));
	if (ev.kind == PL_ENDPOINT_NOTHING)
		return NOTHING;
	if (ev.kind == PL_ENDPOINT_LOST && ev.connection == k->connection)
		k->connected = false;
	if (ev.kind != PL_ENDPOINT_MESSAGE)
		return OTHER;
	if (ev.connection == k->connection)
		switch (ev.message.kind) {
		case PL_PS_REPLY:
			rc = take_reply(k, &ev, err);
			k->counts.wait_ns += (pl_ns)ev.message.value[2];
			k->counts.commit_ns -= (pl_ns)ev.message.value[2];
			what = REPLIED;
			break;
		case PL_PS_ORDER:
			take_order(k, &ev);
			break;
		case PL_PS_END:
			rc = take_end(k, &ev, err);
			break;
		case PL_PS_REFUSED:
			rc = pl_fail(err, PL_EDATA, "the server refused this worker: %.*s",
				     (int)pl_min_size(ev.message.bytes, 200),
				     (const char *)ev.message.body);
			break;
		default:
			break;
		}
	pl_comm_endpoint_release(k->p->end, &ev);
	return rc < 0 ? rc : what;
}

/* ---- connecting ------------------------------------------------------------------------------ */

static int wait_for_reply(struct worker *k, struct pl_err *err)
{
	pl_ns until = pl_now_ns() + REPLY_PATIENCE * k->p->timeout_ns;

	while (k->connected && !k->ended) {
		int what = one_event(k, until, err);

		if (what < 0 || what == REPLIED)
			return what;
		if (what == NOTHING && pl_now_ns() >= until)
			return pl_fail(err, PL_EIO, "the server did not answer for %lld s",
				       (long long)(REPLY_PATIENCE * k->p->timeout_ns / 1000000000));
	}
	return 0;
}

static int greet(struct worker *k, pl_ns until, struct pl_err *err)
{
	struct pl_ps_hello h = { .job = k->p->job, .n = pl_ps_vector_size(&k->p->vector) };
	struct pl_message m = {
		.kind = PL_PS_HELLO, .value = { k->id }, .body = &h, .bytes = sizeof(h)
	};

	PL_CHECK(pl_comm_endpoint_connect(k->p->end, k->p->w.o.meeting->at, 0, until,
					  &k->connection, err));
	k->connected = true;
	return pl_comm_endpoint_send(k->p->end, k->connection, &m, NULL, err);
}

static int send_commit(struct worker *k, struct pl_err *err)
{
	struct pl_message m = { .kind = PL_PS_COMMIT,
				.value = { k->id },
				.body = k->commit,
				.bytes = PL_PS_HEAD +
					 pl_ps_vector_size(&k->p->vector) * sizeof(float) };

	return pl_comm_endpoint_send(k->p->end, k->connection, &m, k, err);
}

/* Until the worker has weights and an order, and its last commit is applied. */
static int join(struct worker *k, struct pl_err *err)
{
	bool again = k->id > 0;
	int what;

	for (;;) {
		pl_ns until = pl_now_ns() + PATIENCE * k->p->timeout_ns;
		struct pl_err why = { 0 };
		int rc = greet(k, until, &why);

		if (rc < 0)
			return pl_fail(err, rc, "server 0 is lost%s: %s",
				       again ? ", and did not come back" : "", why.msg);
		PL_CHECK(what = wait_for_reply(k, err));
		if (what == REPLIED && k->pending && k->applied < k->id) {
			PL_CHECK(send_commit(k, err));
			PL_CHECK(what = wait_for_reply(k, err));
		}
		if (what == REPLIED) {
			k->pending = false;
			/* this process may be in place of one that has made commits */
			k->id = k->applied > k->id ? k->applied : k->id;
		}
		if (what == REPLIED || k->ended)
			return 0;
	}
}

/* ---- steps and commits ----------------------------------------------------------------------- */

static void begin_commit(struct worker *k)
{
	memset(&k->now, 0, sizeof(k->now));
	k->now.base = k->version;
	k->now.commit_ns = k->last_commit_ns;
	k->loss_sum = k->step_sum = 0;
}

static int commit(struct worker *k, struct pl_err *err)
{
	size_t n = pl_ps_vector_size(&k->p->vector);
	float *u = change_of(k);
	pl_ns begin = pl_now_ns(), waited = k->counts.wait_ns;
	int what;

	/* the reply to the last commit came after the server had read it, so nobody reads the body
	 */
	pl_ps_vector_read(&k->p->w.view, u);
	for (size_t i = 0; i < n; i++)
		u[i] -= k->base[i];
	k->now.loss = k->loss_sum / (double)k->now.steps;
	k->now.step_ns = (pl_ns)(k->step_sum / (double)k->now.steps);
	k->counts.commits++;
	k->counts.bytes_sent = pl_comm_endpoint_sent(k->p->end);
	k->counts.end = begin;
	k->now.counts = k->counts;
	memcpy(k->commit, &k->now, sizeof(k->now));
	k->id++;
	k->pending = true;
	if (k->order.every > 0) /* the next one may be due already */
		k->due += k->order.every;
	PL_CHECK(send_commit(k, err));
	PL_CHECK(what = wait_for_reply(k, err));
	if (what == REPLIED)
		k->pending = false;
	else if (!k->ended)
		PL_CHECK(join(k, err));
	k->last_commit_ns = pl_now_ns() - begin - (k->counts.wait_ns - waited);
	k->counts.commit_ns += pl_now_ns() - begin;
	begin_commit(k);
	return 0;
}

static bool is_due(const struct worker *k)
{
	return (k->order.steps && k->now.steps >= k->order.steps) || pl_now_ns() >= k->due;
}

static int local_step(struct worker *k, struct pl_err *err)
{
	struct pl_train *t = k->t;
	struct pl_step_result r;

	if (k->order.batch != k->batch) {
		/* from now on the numbers of batches drawn and of steps differ */
		k->p->w.drawn = k->p->w.drawn ? k->p->w.drawn : t->step;
		k->batch = k->p->w.samples = k->order.batch;
	}
	pl_optim_rate(k->p->w.optim, k->order.rate > 0 ? k->order.rate : 1);
	PL_CHECK(t->engine->step(&k->p->w, t->step, &r, err));
	k->now.steps++;
	k->now.samples += (uint64_t)r.samples;
	k->now.hits += r.hits;
	k->now.classified += r.classified;
	k->loss_sum += r.loss;
	k->step_sum += (double)r.step_ns;
	k->counts.steps++;
	k->counts.samples += (uint64_t)r.samples;
	k->counts.compute_ns += r.step_ns;
	t->step++;
	t->steps_done++;
	return 0;
}

/* What has come while the worker computed. */
static int look(struct worker *k, struct pl_err *err)
{
	int what;

	do
		PL_CHECK(what = one_event(k, 0, err));
	while (what != NOTHING);
	if (k->connected || k->ended)
		return 0;
	k->in_steps = true;
	PL_CHECK(join(k, err));
	if (!k->in_steps)
		begin_commit(k);
	return 0;
}

static int train(struct worker *k, struct pl_err *err)
{
	PL_CHECK(join(k, err));
	begin_commit(k);
	k->counts.begin = pl_now_ns();
	while (!k->ended && !*k->t->stop) {
		PL_CHECK(local_step(k, err));
		PL_CHECK(look(k, err));
		if (!k->ended && is_due(k))
			PL_CHECK(commit(k, err));
	}
	return 0;
}

static void say_bye(struct worker *k)
{
	struct pl_message m = { .kind = PL_PS_BYE, .body = &k->counts, .bytes = sizeof(k->counts) };
	struct pl_err ignore = { 0 };

	k->counts.end = pl_now_ns();
	k->counts.bytes_sent = pl_comm_endpoint_sent(k->p->end);
	if (k->connected)
		(void)!pl_comm_endpoint_send(k->p->end, k->connection, &m, NULL, &ignore);
}

int pl_ps_work(struct pl_ps *p, struct pl_train *t, struct pl_err *err)
{
	size_t n = pl_ps_vector_size(&p->vector);
	struct worker k = { .p = p, .t = t, .due = INT64_MAX };
	int rc;

	PL_TRY(pl_alloc(&k.base, n, sizeof(*k.base), err));
	k.commit = pl_comm_endpoint_alloc(p->end, PL_PS_HEAD + n * sizeof(float), err);
	if (!k.commit) {
		rc = err->code;
		goto out;
	}
	rc = train(&k, err);
	if (rc >= 0) /* else the server sees that this worker is lost */
		say_bye(&k);
	t->end = pl_now_ns();
	if (*t->stop && rc >= 0)
		t->interrupted = true;
out:
	/* the end may have come while a commit is being sent: k.commit lasts as long as the
	 * endpoint */
	pl_free(k.base);
	return rc;
}
