/*
 * The server: tells the policy what happens, carries out its actions, and never computes a
 * gradient.
 *
 * One thread: each event of the endpoint becomes at most one event of the policy, whose actions are
 * carried out in their order. What the event changed becomes valid in the store before anything is
 * sent, so a worker never learns of a commit that could be lost, and no reader sees a part of an
 * update. Replies share copies of the weights: one copy for all workers that get the same version.
 */
#include <math.h>
#include <signal.h>

#include "ps/internal.h"

#define TURN_NS 50000000 /* so often the server looks whether somebody asked it to end */
/* At the end, workers finish the local step in which they are. */
#define LAST_STEPS 3
/* Workers come within so many timeouts. */
#define LATE 10

struct copy { /* of the weights, as a body */
	float *v;
	uint32_t used; /* by messages that are not sent yet */
	uint64_t version;
};
struct client { /* a worker */
	bool connected, hello, joined;
	uint32_t connection;
	pl_ns arrived;
	struct copy *copy; /* of its last reply, until that is sent */
	bool ended;	   /* it said BYE */
};
struct server {
	struct pl_ps *p;
	struct pl_train *t;
	const struct pl_log *log;
	struct pl_policy *policy;
	struct pl_ps_store *store;
	struct pl_ps_evaluator *evaluator;
	struct client *client; /* [workers] */
	struct copy *copy;
	size_t n_copies;
	bool begun, ending;
	bool again;	  /* it goes on where a server before it was */
	const char *why;  /* it ends; NULL: all is well */
	uint64_t save_at; /* steps of all workers: the next checkpoint; 0: none */
	pl_ns wake;	  /* the policy's; INT64_MAX: none */
	pl_ns run_begin, elapsed_before;
	uint64_t budget; /* steps of all workers together */
};

/* ---- sending --------------------------------------------------------------------------------- */

static int send_small(struct server *s, uint32_t worker, uint32_t kind, const void *body,
		      size_t bytes, struct pl_err *err)
{
	struct pl_message m = { .kind = kind, .body = body, .bytes = bytes };

	if (!s->client[worker].connected)
		return 0;
	return pl_comm_endpoint_send(s->p->end, s->client[worker].connection, &m, NULL, err);
}

/* The weights as they are, in memory that messages may use. */
static int copy_of(struct server *s, struct copy **out, struct pl_err *err)
{
	size_t n = pl_ps_vector_size(&s->p->vector);
	uint64_t version = pl_ps_store_progress(s->store)->version;
	struct copy *free = NULL;

	for (size_t i = 0; i < s->n_copies; i++) {
		if (s->copy[i].used && s->copy[i].version == version) {
			*out = &s->copy[i];
			return 0;
		}
		if (!s->copy[i].used)
			free = &s->copy[i];
	}
	if (!free) { /* there are as many as workers at most: each waits for one reply */
		free = &s->copy[s->n_copies];
		free->v = pl_comm_endpoint_alloc(s->p->end, n * sizeof(float), err);
		if (!free->v)
			return err->code;
		s->n_copies++;
	}
	memcpy(free->v, pl_ps_store_weights(s->store), n * sizeof(float));
	free->version = version;
	*out = free;
	return 0;
}

static int send_order(struct server *s, uint32_t worker, const struct pl_policy_order *o, pl_ns now,
		      struct pl_err *err)
{
	struct pl_policy_order relative = *o;
	uint64_t done = pl_ps_store_progress(s->store)->steps;
	uint64_t left = s->budget > done ? s->budget - done : 1;

	relative.first -= now;
	/* so that one worker alone does not go beyond the end */
	if (!relative.steps || relative.steps > left)
		relative.steps = left;
	return send_small(s, worker, PL_PS_ORDER, &relative, sizeof(relative), err);
}

static void release_copy(struct client *c)
{
	if (c->copy)
		c->copy->used--;
	c->copy = NULL;
}

static int send_reply(struct server *s, uint32_t worker, const struct pl_policy_order *o, pl_ns now,
		      struct pl_err *err)
{
	struct client *c = &s->client[worker];
	struct pl_message m = { .kind = PL_PS_REPLY,
				.bytes = pl_ps_vector_size(&s->p->vector) * sizeof(float) };
	struct copy *copy = NULL;

	if (!c->connected)
		return 0;
	PL_CHECK(send_order(s, worker, o, now, err));
	PL_CHECK(copy_of(s, &copy, err));
	release_copy(c);
	copy->used++;
	c->copy = copy;
	m.body = copy->v;
	m.value[0] = pl_ps_store_applied(s->store, worker)->id;
	m.value[1] = copy->version;
	m.value[2] = (uint64_t)(now - c->arrived);
	return pl_comm_endpoint_send(s->p->end, c->connection, &m, c, err);
}

/* ---- the policy ------------------------------------------------------------------------------ */

static int save_policy(struct server *s, struct pl_err *err)
{
	size_t *n;
	uint8_t *to = pl_ps_store_policy(s->store, &n);

	return pl_policy_put(s->policy, to, PL_PS_POLICY_BYTES(s->p->workers), n, err);
}

/* A row of the log, in which only the progress is known. */
static struct pl_train_row row_at(struct server *s, pl_ns now)
{
	const struct pl_ps_progress *g = pl_ps_store_progress(s->store);

	return (struct pl_train_row){ .at = now,
				      .step = (int64_t)(g->steps / s->p->workers),
				      .samples = (int64_t)g->samples,
				      .loss = NAN,
				      .accuracy = NAN,
				      .lr = NAN,
				      .grad_norm = NAN,
				      .heterogeneity = pl_policy_heterogeneity(s->policy) };
}

/* A decision of the policy: to the user, into the log and the trace. */
static int put_note(struct server *s, const char *text, pl_ns now, struct pl_err *err)
{
	struct pl_train_row row = row_at(s, now);
	struct pl_tracer *t = s->p->w.o.tracer;
	struct pl_rec_event e;

	row.note = text;
	pl_say(s->log, PL_LOG_NOTE, "%s", text);
	if (t) {
		e = pl_rec_event(t->main, PL_K_INSTANT, pl_rec_name(t->rec, text), now, now);
		e.step = (int32_t)row.step;
		pl_rec(t->rec, &e);
	}
	return s->t->row(s->t->arg, &row, err);
}

/* u: of a commit, with its id. */
static int tell(struct server *s, const struct pl_policy_event *e, const float *u, uint64_t id,
		struct pl_err *err)
{
	const struct pl_policy_action *a;
	size_t n;

	PL_CHECK(pl_policy_handle(s->policy, e, &a, &n, err));
	for (size_t i = 0; i < n; i++)
		if (a[i].kind == PL_POLICY_UPDATE)
			pl_ps_store_update(s->store, &a[i].update, u);
		else if (a[i].kind == PL_POLICY_FAIL)
			return pl_fail(err, PL_EIO, "%s", a[i].text);
	if (u)
		pl_ps_store_applied(s->store, e->worker)->id = id;
	pl_ps_store_progress(s->store)->elapsed_ns = s->elapsed_before + e->now - s->run_begin;
	PL_CHECK(save_policy(s, err));
	pl_ps_store_commit(s->store);
	for (size_t i = 0; i < n && !s->ending; i++)
		switch (a[i].kind) {
		case PL_POLICY_REPLY:
			PL_CHECK(send_reply(s, a[i].worker, &a[i].order, e->now, err));
			break;
		case PL_POLICY_ORDER:
			PL_CHECK(send_order(s, a[i].worker, &a[i].order, e->now, err));
			break;
		case PL_POLICY_WAKE:
			s->wake = a[i].at;
			break;
		case PL_POLICY_NOTE:
			PL_CHECK(put_note(s, a[i].text, e->now, err));
			break;
		default:
			break;
		}
	return 0;
}

/* ---- workers come and go --------------------------------------------------------------------- */

static int join(struct server *s, uint32_t worker, struct pl_err *err)
{
	struct pl_policy_event e = { .kind = PL_POLICY_JOINED,
				     .worker = worker,
				     .now = pl_now_ns() };

	s->client[worker].joined = true;
	s->client[worker].arrived = e.now;
	return tell(s, &e, NULL, 0, err);
}

static int begin(struct server *s, struct pl_err *err)
{
	s->begun = pl_ps_store_progress(s->store)->begun = true;
	s->run_begin = pl_now_ns();
	s->t->begin = s->run_begin - s->elapsed_before;
	for (uint32_t i = 0; i < s->p->workers; i++)
		if (s->client[i].hello)
			PL_CHECK(join(s, i, err));
	return 0;
}

static uint32_t n_there(const struct server *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->p->workers; i++)
		n += s->client[i].hello && !s->client[i].ended;
	return n;
}

static int refuse(struct server *s, const struct pl_endpoint_event *ev, const char *why,
		  struct pl_err *err)
{
	struct pl_message m = { .kind = PL_PS_REFUSED, .body = why, .bytes = strlen(why) + 1 };

	pl_say(s->log, PL_LOG_WARN, "worker %u was refused: %s", ev->peer - s->p->servers, why);
	return pl_comm_endpoint_send(s->p->end, ev->connection, &m, NULL, err);
}

static int leave(struct server *s, uint32_t worker, const char *why, struct pl_err *err)
{
	struct client *c = &s->client[worker];
	struct pl_policy_event e = { .kind = PL_POLICY_LEFT, .worker = worker, .now = pl_now_ns() };
	bool joined = c->joined;

	release_copy(c);
	c->connected = c->hello = c->joined = false;
	if (!joined || s->ending || c->ended)
		return 0;
	if (why)
		pl_say(s->log, PL_LOG_WARN, "worker %u is lost: %s", worker, why);
	return tell(s, &e, NULL, 0, err);
}

static int send_end(struct server *s, uint32_t worker, struct pl_err *err)
{
	return send_small(s, worker, PL_PS_END, s->why, s->why ? strlen(s->why) + 1 : 0, err);
}

static int on_hello(struct server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	uint32_t worker = ev->peer - s->p->servers;
	struct client *c = &s->client[worker];
	struct pl_ps_hello h;

	if (ev->message.bytes != sizeof(h))
		return refuse(s, ev, "its greeting is that of another version of this program",
			      err);
	memcpy(&h, ev->message.body, sizeof(h));
	if (h.job != s->p->job || h.n != pl_ps_vector_size(&s->p->vector))
		return refuse(s, ev,
			      "its job is not that of the server; start all with the same files "
			      "and options",
			      err);
	if (c->joined) /* it comes back before its old connection was found broken */
		PL_CHECK(leave(s, worker, "it came again", err));
	c->connected = c->hello = true;
	c->ended = false;
	c->connection = ev->connection;
	if (s->ending)
		return send_end(s, worker, err);
	if (s->begun)
		return join(s, worker, err);
	return n_there(s) == s->p->workers ? begin(s, err) : 0;
}

/* ---- commits --------------------------------------------------------------------------------- */

static int put_row(struct server *s, const struct pl_ps_commit *c, pl_ns now, struct pl_err *err)
{
	uint64_t steps = pl_ps_store_progress(s->store)->steps;
	struct pl_train_row row = row_at(s, now);
	struct pl_train *t = s->t;

	row.loss = c->loss;
	if (c->classified)
		row.accuracy = (double)c->hits / (double)c->classified;
	row.lr = pl_optim_lr(&s->p->w.optim_opts, pl_max_i64(0, row.step - 1));
	t->step = t->steps_done = row.step;
	t->samples_all = row.samples;
	t->last_loss = c->loss;
	PL_CHECK(t->row(t->arg, &row, err));
	if (pl_ps_evaluator_due(s->evaluator, steps))
		pl_ps_evaluator_put(s->evaluator, pl_ps_store_weights(s->store), &row);
	return 0;
}

static int apply(struct server *s, uint32_t worker, const struct pl_endpoint_event *ev,
		 struct pl_err *err)
{
	const char *body = ev->message.body;
	struct pl_ps_progress *g;
	struct pl_ps_commit c;
	struct pl_policy_event e = { .kind = PL_POLICY_COMMITTED,
				     .worker = worker,
				     .now = pl_now_ns() };

	memcpy(&c, body, sizeof(c));
	s->p->counts[worker] = c.counts;
	s->client[worker].arrived = e.now;
	if (!isfinite(c.loss))
		return pl_fail(err, PL_EDATA,
			       "the loss of worker %u is %g: training diverged; a smaller lr, or "
			       "clip=1 of "
			       "the optimizer, may help",
			       worker, c.loss);
	e.steps = c.steps;
	e.samples = c.samples;
	e.base = c.base;
	e.loss = c.loss;
	e.step_ns = c.step_ns;
	e.commit_ns = c.commit_ns;
	g = pl_ps_store_progress(s->store);
	g->steps += c.steps;
	g->samples += c.samples;
	PL_CHECK(tell(s, &e, (const float *)(const void *)(body + PL_PS_HEAD), ev->message.value[0],
		      err));
	return put_row(s, &c, e.now, err);
}

static int on_commit(struct server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	uint32_t worker = ev->peer - s->p->servers;
	struct client *c = &s->client[worker];
	size_t bytes = PL_PS_HEAD + pl_ps_vector_size(&s->p->vector) * sizeof(float);

	if (!c->joined || c->connection != ev->connection || s->ending)
		return 0; /* END is on its way, or it was refused */
	if (ev->message.bytes != bytes) {
		pl_comm_endpoint_drop(s->p->end, ev->connection, "a commit of a wrong size");
		return leave(s, worker, "it sent a commit of a wrong size", err);
	}
	if (ev->message.value[0] > pl_ps_store_applied(s->store, worker)->id)
		return apply(s, worker, ev, err);
	pl_comm_endpoint_drop(s->p->end, ev->connection, "a commit that was applied before");
	return leave(s, worker, "it sent a commit again that it knows to be applied", err);
}

/* Of which worker is the connection? NULL: of none, or of one that has a newer one. */
static struct client *client_of(struct server *s, const struct pl_endpoint_event *ev)
{
	uint32_t worker = ev->peer - s->p->servers;
	struct client *c =
		ev->peer >= s->p->servers && worker < s->p->workers ? &s->client[worker] : NULL;

	return c && c->connected && c->connection == ev->connection ? c : NULL;
}

static int on_bye(struct server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	uint32_t worker = ev->peer - s->p->servers;

	if (!client_of(s, ev))
		return 0;
	if (ev->message.bytes == sizeof(s->p->counts[worker]))
		memcpy(&s->p->counts[worker], ev->message.body, ev->message.bytes);
	s->client[worker].ended = true;
	if (!s->ending) { /* a signal to one process ends the job, as in other engines */
		s->t->done = s->t->interrupted = true;
		*s->t->stop = *s->t->stop ? *s->t->stop : SIGTERM;
	}
	return leave(s, worker, NULL, err);
}

/* ---- the loop -------------------------------------------------------------------------------- */

static int on_message(struct server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	uint32_t worker = ev->peer - s->p->servers;

	if (ev->peer < s->p->servers || worker >= s->p->workers) {
		pl_comm_endpoint_drop(s->p->end, ev->connection, "no worker has this number");
		return 0;
	}
	switch (ev->message.kind) {
	case PL_PS_HELLO:
		return on_hello(s, ev, err);
	case PL_PS_COMMIT:
		return on_commit(s, ev, err);
	case PL_PS_BYE:
		return on_bye(s, ev, err);
	default:
		pl_comm_endpoint_drop(s->p->end, ev->connection, "an unknown message");
		return leave(s, worker, "it sent an unknown message", err);
	}
}

static int one_event(struct server *s, pl_ns until, bool *nothing, struct pl_err *err)
{
	struct pl_endpoint_event ev;
	struct client *c;
	int rc = 0;

	PL_CHECK(pl_comm_endpoint_next(s->p->end, until, &ev, err));
	*nothing = ev.kind == PL_ENDPOINT_NOTHING;
	switch (ev.kind) {
	case PL_ENDPOINT_MESSAGE:
		rc = on_message(s, &ev, err);
		pl_comm_endpoint_release(s->p->end, &ev);
		break;
	case PL_ENDPOINT_SENT:
		if ((c = client_of(s, &ev)))
			release_copy(c);
		break;
	case PL_ENDPOINT_LOST:
		if ((c = client_of(s, &ev)))
			rc = leave(s, (uint32_t)(c - s->client), ev.why, err);
		break;
	default:
		break;
	}
	return rc;
}

static int on_time(struct server *s, pl_ns now, struct pl_err *err)
{
	struct pl_policy_event e = { .kind = PL_POLICY_TIMER, .now = now };

	if (!s->begun || now < s->wake)
		return 0;
	s->wake = INT64_MAX;
	return tell(s, &e, NULL, 0, err);
}

static void name_missing(const struct server *s, char *to, size_t size)
{
	size_t n = 0;

	to[0] = '\0';
	for (uint32_t i = 0; i < s->p->workers && n + 16 < size; i++)
		if (!s->client[i].hello)
			n += (size_t)snprintf(to + n, size - n, "%s%u", n ? ", " : "", i);
}

static bool enough(struct server *s)
{
	const struct pl_ps_progress *g = pl_ps_store_progress(s->store);
	struct pl_train *t = s->t;

	if (*t->stop && !t->done && !g->over)
		t->done = t->interrupted = true;
	return t->done || g->over || g->steps >= s->budget;
}

/* A server that is started again waits for all workers: those that come first would have weights
 * of a round, or the factor of a commit, without the others. Those that are lost never come. */
static int wait_for_workers(struct server *s, pl_ns waited, struct pl_err *err)
{
	pl_ns step = 0;
	char missing[200];

	for (uint32_t i = 0; i < s->p->workers && s->again; i++)
		step = pl_max_i64(step, pl_policy_worker(s->policy, i)->step_ns);
	step *= LAST_STEPS; /* a worker looks at its connection between two steps */
	name_missing(s, missing, sizeof(missing));
	if (s->again && waited > 2 * s->p->timeout_ns + step &&
	    n_there(s) >= pl_policy_min_workers(s->policy)) {
		pl_say(s->log, PL_LOG_WARN, "these workers did not come back: %s", missing);
		return begin(s, err);
	}
	if (waited <= LATE * s->p->timeout_ns + step)
		return 0;
	return pl_fail(err, PL_EIO,
		       s->again ? "these workers did not come back: %s"
				: "these workers never came: %s",
		       missing);
}

/* While it is written, workers wait. */
static int checkpoint(struct server *s, struct pl_err *err)
{
	uint64_t steps = pl_ps_store_progress(s->store)->steps;
	uint64_t every = (uint64_t)s->t->job->checkpoint_every * s->p->workers;

	if (!every || steps < s->save_at || steps >= s->budget)
		return 0;
	if (s->save_at) {
		/* evaluations use the same network */
		PL_CHECK(pl_ps_evaluator_take(s->evaluator, true, err));
		pl_ps_vector_write(&s->p->w.view, pl_ps_store_weights(s->store));
		pl_net_changed(s->p->w.net);
		PL_CHECK(pl_train_checkpoint(s->t, err));
		s->t->saved = -1; /* weights change within a step of all workers, too */
	}
	s->save_at = (steps / every + 1) * every;
	return 0;
}

static int serve(struct server *s, struct pl_err *err)
{
	pl_ns first = pl_now_ns(), empty = INT64_MAX;

	while (!enough(s)) {
		pl_ns now = pl_now_ns();
		bool nothing;

		PL_CHECK(one_event(s, pl_min_i64(now + TURN_NS, s->wake), &nothing, err));
		PL_CHECK(on_time(s, pl_now_ns(), err));
		PL_CHECK(pl_ps_evaluator_take(s->evaluator, false, err));
		PL_CHECK(checkpoint(s, err));
		s->t->progress(s->t->arg);
		if (!s->begun)
			PL_CHECK(wait_for_workers(s, now - first, err));
		/* every worker is lost: one of them may come back */
		empty = !s->begun || n_there(s) ? INT64_MAX : pl_min_i64(empty, now);
		if (empty != INT64_MAX && now > empty + 2 * s->p->timeout_ns)
			return pl_fail(err, PL_EIO, "all workers are lost");
	}
	return 0;
}

/* Workers to tell. Those of the server before this one have to come again. */
static uint32_t n_left(const struct server *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->p->workers; i++)
		n += !s->client[i].ended && (s->client[i].hello || s->again);
	return n;
}

/* Workers learn that it is over, and say BYE with what they counted. */
static void end_workers(struct server *s, const char *why)
{
	struct pl_err ignore = { 0 };
	pl_ns until = pl_now_ns() + s->p->timeout_ns, step = 0;
	bool nothing;

	s->ending = true;
	s->why = why;
	for (uint32_t i = 0; i < s->p->workers; i++) {
		const struct pl_policy_worker *k = pl_policy_worker(s->policy, i);

		step = pl_max_i64(step, k->step_ns);
		(void)!send_end(s, i, &ignore);
	}
	until += LAST_STEPS * step;
	while (n_left(s) && pl_now_ns() < until && one_event(s, until, &nothing, &ignore) >= 0)
		;
}

/* So that a server that is killed while it writes the results is followed by one that does. */
static void keep_result(struct server *s)
{
	struct pl_ps_progress *g = pl_ps_store_progress(s->store);

	g->to_target_s = s->t->time_to_target_s;
	g->to_target_samples = s->t->samples_to_target;
	g->over = true;
	pl_ps_store_commit(s->store);
}

static void count(struct server *s)
{
	for (uint32_t i = 0; i < s->p->workers; i++)
		s->p->seen[i] = *pl_policy_worker(s->policy, i);
	s->t->bytes_sent = pl_comm_endpoint_sent(s->p->end);
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int make_policy(struct server *s, struct pl_err *err)
{
	const struct pl_ps *p = s->p;
	const struct pl_job *j = p->w.o.job;
	struct pl_policy_opts o = { .workers = p->workers,
				    .min_workers = (uint32_t)j->min_workers,
				    .batch = j->batch,
				    .period = j->period,
				    .epoch = j->epoch,
				    .target_loss = j->target_loss,
				    .seed = (uint64_t)j->seed };

	PL_CHECK(pl_policy_parse(j->policy, &o, err));
	o.argument = pl_job_policy_argument(j);
	return pl_policy_new(&o, &s->policy, err);
}

static int open_store(struct server *s, struct pl_err *err)
{
	struct pl_ps *p = s->p;
	struct pl_ps_progress *g;
	bool fresh;
	size_t *n;
	const uint8_t *policy;

	PL_CHECK(pl_ps_store_open(p->w.o.meeting->memory, pl_ps_vector_size(&p->vector), p->workers,
				  &s->store, &fresh, err));
	g = pl_ps_store_progress(s->store);
	if (fresh) {
		pl_ps_vector_read(&p->w.view, pl_ps_store_begin(s->store));
		g->steps = (uint64_t)s->t->step * p->workers;
		g->samples =
			(uint64_t)pl_train_feed_samples(&p->w.feed, (int)p->workers, s->t->step);
	} else {
		policy = pl_ps_store_policy(s->store, &n);
		if (g->begun)
			PL_CHECK(pl_policy_get(s->policy, policy, *n, err));
		s->again = g->begun;
		s->run_begin = pl_now_ns();
		s->t->begin = s->run_begin - g->elapsed_ns;
		s->t->step = (int64_t)(g->steps / p->workers);
		if (g->over) {
			s->t->time_to_target_s = g->to_target_s;
			s->t->samples_to_target = g->to_target_samples;
		}
		pl_say(s->log, PL_LOG_WARN,
		       "the server was started again, at version %llu of the weights",
		       (unsigned long long)g->version);
	}
	s->elapsed_before = g->elapsed_ns;
	pl_ps_store_commit(s->store);
	return 0;
}

static int open_server(struct server *s, struct pl_err *err)
{
	struct pl_train *t = s->t;
	struct pl_ps *p = s->p;

	s->wake = INT64_MAX;
	t->steps = pl_train_worker_steps(&p->w, (int)p->workers);
	s->budget = (uint64_t)t->steps * p->workers;
	PL_CHECK(pl_alloc(&s->client, p->workers, sizeof(*s->client), err));
	PL_CHECK(pl_alloc(&s->copy, (size_t)p->workers + 1, sizeof(*s->copy), err));
	PL_CHECK(make_policy(s, err));
	PL_CHECK(open_store(s, err));
	s->evaluator = pl_ps_evaluator_new(t, err);
	return s->evaluator ? 0 : err->code;
}

static void close_server(struct server *s)
{
	pl_ps_evaluator_free(s->evaluator);
	pl_ps_store_close(s->store);
	pl_policy_free(s->policy);
	pl_free(s->copy);
	pl_free(s->client);
}

int pl_ps_serve(struct pl_ps *p, struct pl_train *t, struct pl_err *err)
{
	struct server s = { .p = p, .t = t, .log = p->w.o.log };
	int rc;

	PL_TRY(open_server(&s, err));
	rc = serve(&s, err);
	t->end = pl_now_ns();
	if (rc >= 0)
		keep_result(&s);
	end_workers(&s, rc < 0 ? err->msg : NULL);
	if (rc < 0)
		goto out;
	count(&s);
	PL_TRY(pl_ps_evaluator_take(s.evaluator, true, err));
	pl_ps_vector_write(&p->w.view, pl_ps_store_weights(s.store));
	pl_net_changed(p->w.net);
out:
	close_server(&s);
	return rc;
}
