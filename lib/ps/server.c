/*
 * Server 0: tells the policy what happens, carries out its actions, and never computes a gradient.
 *
 * One thread: each event of the endpoint becomes at most one event of the policy, whose actions are
 * carried out in their order. What the event changed becomes valid in the store before anything is
 * sent, so a worker never learns of a commit that could be lost, and no reader sees a part of an
 * update. The other servers get the same actions (others.c). O(numbers of the slice) for a commit.
 */
#include <math.h>
#include <signal.h>

#include "ps/internal.h"

/* ---- sending --------------------------------------------------------------------------------- */

static int send_small(struct pl_ps_server *s, uint32_t worker, uint32_t kind, const void *body,
		      size_t bytes, struct pl_err *err)
{
	struct pl_message m = { .kind = kind, .body = body, .bytes = bytes };

	if (!s->client[worker].connected)
		return 0;
	return pl_comm_endpoint_send(s->p->end, s->client[worker].connection, &m, NULL, err);
}

/* Steps of the job in a step of the worker: those of all present workers, by their number. */
static double pace_of(const struct pl_ps_server *s, uint32_t worker)
{
	double steps = 0, own = (double)pl_policy_worker(s->policy, worker)->step_ns;
	double n = s->p->workers;

	for (uint32_t i = 0; i < s->p->workers; i++) {
		const struct pl_policy_worker *w = pl_policy_worker(s->policy, i);

		if (w->present && !s->waits && !(w->step_ns > 0 && own > 0))
			return 1; /* it is not known yet */
		if (w->present)
			steps += s->waits ? 1 : own / (double)w->step_ns;
	}
	return steps / n;
}

static int send_order(struct pl_ps_server *s, uint32_t worker, const struct pl_policy_order *o,
		      pl_ns now, struct pl_err *err)
{
	struct pl_ps_order relative = { .policy = *o };
	uint64_t done = pl_ps_store_progress(s->store)->steps;
	uint64_t left = s->budget > done ? s->budget - done : 1;

	relative.step = (double)done / s->p->workers;
	relative.pace = pace_of(s, worker);
	relative.applied = pl_ps_store_applied(s->store, worker)->id;
	relative.policy.first -= now;
	/* so that one worker alone does not go beyond the end */
	if (!relative.policy.steps || relative.policy.steps > left)
		relative.policy.steps = left;
	return send_small(s, worker, PL_PS_ORDER, &relative, sizeof(relative), err);
}

static int send_reply(struct pl_ps_server *s, uint32_t worker, uint64_t number, pl_ns now,
		      struct pl_err *err)
{
	struct pl_ps_client *c = &s->client[worker];
	struct pl_message m = { .value = { pl_ps_store_applied(s->store, worker)->id, 0,
					   (uint64_t)(now - c->arrived), number } };

	if (!c->connected)
		return 0;
	return pl_ps_copies_send(&s->copies, s->store, c->connection, &c->sent, &m, err);
}

/* ---- the policy ------------------------------------------------------------------------------ */

static int save_policy(struct pl_ps_server *s, struct pl_err *err)
{
	size_t *n;
	uint8_t *to = pl_ps_store_policy(s->store, &n);

	return pl_policy_put(s->policy, to, PL_PS_POLICY_BYTES(s->p->workers), n, err);
}

/* A row of the log, in which only the progress is known. */
static struct pl_train_row row_at(struct pl_ps_server *s, pl_ns now)
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
static int put_note(struct pl_ps_server *s, const char *text, pl_ns now, struct pl_err *err)
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

/* The actions for all servers: updates, then replies, which so have all updates. */
static int act(struct pl_ps_server *s, const struct pl_policy_action *a, size_t n,
	       const struct pl_ps_action *of, struct pl_err *err)
{
	for (int kind = PL_PS_UPDATE; kind <= PL_PS_SEND; kind++)
		for (size_t i = 0; i < n; i++) {
			struct pl_ps_action x = *of;

			if (a[i].kind !=
			    (kind == PL_PS_UPDATE ? PL_POLICY_UPDATE : PL_POLICY_REPLY))
				continue;
			x.kind = (uint32_t)kind;
			x.update = a[i].update;
			if (kind == PL_PS_SEND)
				x.worker = a[i].worker;
			PL_CHECK(pl_ps_others_act(s, &x, err));
		}
	return 0;
}

static int answer(struct pl_ps_server *s, const struct pl_policy_action *a, size_t n, pl_ns now,
		  struct pl_err *err)
{
	uint64_t number = pl_ps_store_progress(s->store)->actions;

	for (size_t i = 0; i < n; i++)
		number -= a[i].kind == PL_POLICY_REPLY;
	for (size_t i = 0; i < n && !s->ending; i++)
		switch (a[i].kind) {
		case PL_POLICY_REPLY:
			PL_CHECK(send_order(s, a[i].worker, &a[i].order, now, err));
			PL_CHECK(send_reply(s, a[i].worker, ++number, now, err));
			break;
		case PL_POLICY_ORDER:
			PL_CHECK(send_order(s, a[i].worker, &a[i].order, now, err));
			break;
		case PL_POLICY_WAKE:
			s->wake = a[i].at;
			break;
		case PL_POLICY_NOTE:
			PL_CHECK(put_note(s, a[i].text, now, err));
			break;
		default:
			break;
		}
	return 0;
}

uint32_t pl_ps_server_present(const struct pl_ps_server *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->p->workers; i++)
		n += pl_policy_worker(s->policy, i)->present;
	return n;
}

/* A worker has joined. */
static void is_enough(struct pl_ps_server *s)
{
	if (s->few_since == INT64_MAX || pl_ps_server_present(s) < pl_policy_min_workers(s->policy))
		return;
	if (s->few_said)
		pl_say(s->log, PL_LOG_WARN, "enough workers are there again: training goes on");
	s->few_said = false;
	s->few_since = INT64_MAX;
}

/* What a commit says; NULL: nothing. The weights that it began from are held since it came. */
static int change_of(struct pl_ps_server *s, uint32_t worker, const struct pl_message *commit,
		     struct pl_ps_change *u, struct pl_err *err)
{
	*u = (struct pl_ps_change){ 0 };
	if (!commit)
		return 0;
	u->to = (const void *)((const char *)commit->body + PL_PS_HEAD);
	u->from = commit->value[3] ? pl_ps_sent_held(&s->client[worker].sent) : NULL;
	if (commit->value[3] && !u->from)
		return pl_fail(err, PL_EINTERNAL,
			       "the weights that commit %llu of worker %u began from are not here",
			       (unsigned long long)commit->value[0], worker);
	return 0;
}

void pl_ps_server_count(struct pl_ps_server *s)
{
	struct pl_ps_progress *g = pl_ps_store_progress(s->store);

	if (pl_policy_collects(s->policy))
		return;
	g->w_steps = g->steps;
	g->w_samples = g->samples;
}

/* commit: of which the event tells; NULL. */
static int tell(struct pl_ps_server *s, const struct pl_policy_event *e,
		const struct pl_message *commit, struct pl_err *err)
{
	struct pl_ps_change u;
	struct pl_ps_action of = { .worker = e->worker };
	const struct pl_policy_action *a;
	bool replies = false;
	size_t n;

	PL_CHECK(change_of(s, e->worker, commit, &u, err));
	PL_CHECK(pl_policy_handle(s->policy, e, &a, &n, err));
	for (size_t i = 0; i < n; i++)
		replies |= a[i].kind == PL_POLICY_REPLY;
	for (size_t i = 0; i < n; i++)
		if (a[i].kind == PL_POLICY_UPDATE) {
			s->usual = a[i].update;
			PL_CHECK(pl_ps_copies_update(&s->copies, s->store, &a[i].update, &u,
						     replies, err));
		} else if (a[i].kind == PL_POLICY_FEW)
			s->few_since = e->now;
	if (e->kind == PL_POLICY_JOINED)
		is_enough(s);
	pl_ps_server_count(s);
	if (commit) {
		of.id = pl_ps_store_applied(s->store, e->worker)->id = commit->value[0];
		of.session = commit->value[1];
	}
	pl_ps_store_progress(s->store)->bytes_sent = pl_ps_server_sent(s);
	PL_CHECK(act(s, a, n, &of, err));
	PL_CHECK(save_policy(s, err));
	pl_ps_store_commit(s->store);
	PL_CHECK(pl_ps_others_send(s, err));
	return answer(s, a, n, e->now, err);
}

/* ---- workers come and go --------------------------------------------------------------------- */

static int join(struct pl_ps_server *s, uint32_t worker, struct pl_err *err)
{
	struct pl_policy_event e = { .kind = PL_POLICY_JOINED,
				     .worker = worker,
				     .now = pl_now_ns() };

	s->client[worker].joined = true;
	s->client[worker].arrived = e.now;
	return tell(s, &e, NULL, err);
}

int pl_ps_server_begin(struct pl_ps_server *s, struct pl_err *err)
{
	struct pl_ps_progress *g = pl_ps_store_progress(s->store);
	pl_ns now = pl_now_ns();

	if (!g->begun)
		g->begin = now;
	s->begun = g->begun = true;
	s->t->begin = g->begin; /* time in which no server was there counts */
	for (uint32_t i = 0; i < s->p->workers; i++) {
		s->client[i].left = now;
		if (s->client[i].ready)
			PL_CHECK(join(s, i, err));
		else /* what the server before this one sent it */
			pl_ps_sent_all(&s->client[i].sent);
	}
	return 0;
}

uint32_t pl_ps_server_there(const struct pl_ps_server *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->p->workers; i++)
		n += s->client[i].ready && !s->client[i].ended;
	return n;
}

int pl_ps_server_refuse(struct pl_ps_server *s, const struct pl_endpoint_event *ev, const char *why,
			struct pl_err *err)
{
	struct pl_message m = { .kind = PL_PS_REFUSED, .body = why, .bytes = strlen(why) + 1 };
	bool server = ev->peer < s->p->servers;
	uint32_t number = ev->peer - (server ? 0 : s->p->servers);
	char ranks[PL_PS_RANKS] = "";

	pl_say(s->log, PL_LOG_WARN, "%s %u%s was refused: %s", server ? "server" : "worker", number,
	       server ? "" : pl_ps_name_ranks(s->p, number, ranks), why);
	return pl_comm_endpoint_send(s->p->end, ev->connection, &m, NULL, err);
}

/* The commit that waited for slices of other servers is not decided: if it is not lost with its
 * worker, it comes again. */
static void release_commit(struct pl_ps_server *s, struct pl_ps_client *c)
{
	if (!c->commits)
		return;
	pl_ps_store_guess_drop(s->store);
	pl_ps_sent_let_go(&c->sent);
	pl_comm_endpoint_release(s->p->end, &c->commit);
	c->commits = false;
}

static int leave(struct pl_ps_server *s, uint32_t worker, const char *why, struct pl_err *err)
{
	struct pl_ps_client *c = &s->client[worker];
	struct pl_policy_event e = { .kind = PL_POLICY_LEFT, .worker = worker, .now = pl_now_ns() };
	bool joined = c->joined;
	char ranks[PL_PS_RANKS];

	if (c->ended) /* else it may still look at weights until it comes again */
		pl_ps_sent_all(&c->sent);
	pl_ps_meet_lost(s, worker);
	release_commit(s, c);
	c->connected = c->ready = c->joined = c->welcome = false;
	if (!joined || s->ending || c->ended)
		return 0;
	c->left = e.now;
	if (why)
		pl_say(s->log, PL_LOG_WARN, "worker %u%s is lost: %s", worker,
		       pl_ps_name_ranks(s->p, worker, ranks), why);
	return tell(s, &e, NULL, err);
}

int pl_ps_server_end(struct pl_ps_server *s, uint32_t worker, struct pl_err *err)
{
	return send_small(s, worker, PL_PS_END, s->why, s->why ? strlen(s->why) + 1 : 0, err);
}

const char *pl_ps_hello_get(const struct pl_ps *p, const struct pl_message *m,
			    struct pl_ps_hello *h)
{
	if (m->bytes != sizeof(*h))
		return "its greeting is that of another version of this program";
	memcpy(h, m->body, sizeof(*h));
	h->at[PL_PS_ADDRESS - 1] = '\0';
	return h->job == p->job && h->n == pl_ps_vector_size(&p->vector)
		       ? NULL
		       : "its job is not that of the server; start all with the same files and "
			 "options";
}

int pl_ps_server_welcome(struct pl_ps_server *s, struct pl_err *err)
{
	size_t size = (size_t)s->p->servers * PL_PS_ADDRESS;
	struct pl_message m = { .kind = PL_PS_WELCOME };
	char *at;
	int rc = 0;

	if (!pl_ps_others_there(s))
		return 0;
	PL_CHECK(pl_alloc(&at, size, 1, err));
	pl_ps_others_at(s, at, size);
	m.body = at;
	m.bytes = strlen(at) + 1;
	for (uint32_t i = 0; i < s->p->workers && rc == 0; i++) {
		struct pl_ps_client *c = &s->client[i];

		if (!c->connected || c->welcome)
			continue;
		c->welcome = true;
		m.value[0] = pl_ps_store_applied(s->store, i)->id;
		m.value[1] = c->keeps;
		m.value[2] = pl_ps_store_number(s->store);
		rc = pl_comm_endpoint_send(s->p->end, c->connection, &m, NULL, err);
	}
	pl_free(at);
	return rc;
}

static int on_hello(struct pl_ps_server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	uint32_t worker = ev->peer - s->p->servers;
	struct pl_ps_client *c = &s->client[worker];
	struct pl_ps_hello h;
	const char *why = pl_ps_hello_get(s->p, &ev->message, &h);

	if (why)
		return pl_ps_server_refuse(s, ev, why, err);
	if (c->connected) /* it comes back before its old connection was found broken */
		PL_CHECK(leave(s, worker, "it came again", err));
	c->keeps = pl_ps_sent_keep(&c->sent, ev->message.value[1]);
	c->connected = true;
	c->ended = false;
	c->connection = ev->connection;
	if (!s->ending && ev->message.value[2] &&
	    ev->message.value[2] != pl_ps_store_number(s->store)) {
		s->again = true; /* the other workers come, too, and are told */
		return pl_fail(err, PL_EIO, PL_PS_ANEW, 0);
	}
	return s->ending ? pl_ps_server_end(s, worker, err) : pl_ps_server_welcome(s, err);
}

/* The worker has its reply, but not of all servers. */
static int reply_again(struct pl_ps_server *s, uint32_t worker, struct pl_err *err)
{
	const struct pl_ps_action a = { .kind = PL_PS_SEND, .worker = worker };
	pl_ns now = pl_now_ns();

	if (pl_policy_worker(s->policy, worker)->waiting)
		return 0; /* the reply is to come, for all servers */
	PL_CHECK(pl_ps_others_act(s, &a, err));
	pl_ps_store_commit(s->store);
	PL_CHECK(pl_ps_others_send(s, err));
	s->client[worker].arrived = now;
	return send_reply(s, worker, pl_ps_store_progress(s->store)->actions, now, err);
}

static int on_ready(struct pl_ps_server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	uint32_t worker = ev->peer - s->p->servers;
	struct pl_ps_client *c = &s->client[worker];

	if (!c->connected || c->connection != ev->connection || s->ending)
		return 0;
	if (c->joined)
		return reply_again(s, worker, err);
	c->ready = true;
	if (s->begun)
		return join(s, worker, err);
	return pl_ps_server_there(s) == s->p->workers ? pl_ps_server_begin(s, err) : 0;
}

/* ---- commits --------------------------------------------------------------------------------- */

/* Of the last commits of all workers; under a policy with rounds that is the last round, when it
 * ends. */
static double mean_loss(const struct pl_ps_server *s)
{
	double loss = 0, samples = 0;

	for (uint32_t i = 0; i < s->p->workers; i++) {
		loss += s->client[i].loss * s->client[i].samples;
		samples += s->client[i].samples;
	}
	return loss / samples;
}

static int put_row(struct pl_ps_server *s, const struct pl_ps_commit *c, pl_ns now,
		   struct pl_err *err)
{
	uint64_t steps = pl_ps_store_progress(s->store)->steps;
	struct pl_train_row row = row_at(s, now);
	struct pl_train *t = s->t;

	row.loss = c->loss;
	if (c->classified)
		row.accuracy = (double)c->hits / (double)c->classified;
	row.lr = c->lr;
	t->step = row.step;
	t->steps_done = row.step - s->p->w.feed.first_step;
	t->samples_all = row.samples - s->p->w.feed.first_sample;
	t->last_loss = mean_loss(s);
	PL_CHECK(t->row(t->arg, &row, err));
	/* within a round the weights are those of its beginning */
	if (pl_policy_collects(s->policy) || !pl_ps_evaluator_due(s->evaluator, steps))
		return 0;
	return pl_ps_whole_begin(s, &row, err);
}

static void add_counts(struct pl_ps_counts *a, const struct pl_ps_counts *b)
{
	a->steps += b->steps;
	a->bytes_sent += b->bytes_sent;
	a->compute_ns += b->compute_ns;
	a->wait_ns += b->wait_ns;
	a->commit_ns += b->commit_ns;
}

static void take_counts(struct pl_ps_server *s, uint32_t worker, uint64_t session,
			const struct pl_ps_counts *c)
{
	struct pl_ps_applied *a = pl_ps_store_applied(s->store, worker);

	if (a->counted != session)
		add_counts(&a->before, &a->counts);
	a->counted = session;
	a->counts = *c;
}

struct pl_ps_counts pl_ps_server_counts(struct pl_ps_server *s, uint32_t worker)
{
	struct pl_ps_counts all = pl_ps_store_applied(s->store, worker)->before;

	add_counts(&all, &pl_ps_store_applied(s->store, worker)->counts);
	return all;
}

uint64_t pl_ps_server_sent(const struct pl_ps_server *s)
{
	return s->sent_before + pl_comm_endpoint_sent(s->p->end);
}

static int apply(struct pl_ps_server *s, uint32_t worker, const struct pl_message *m,
		 struct pl_err *err)
{
	struct pl_ps_progress *g;
	struct pl_ps_commit c;
	struct pl_policy_event e = { .kind = PL_POLICY_COMMITTED,
				     .worker = worker,
				     .now = pl_now_ns() };

	memcpy(&c, m->body, sizeof(c));
	take_counts(s, worker, m->value[1], &c.counts);
	s->client[worker].arrived = e.now;
	if (!isfinite(c.loss)) {
		s->t->diverged = true;
		return pl_fail(err, PL_EDATA,
			       "the loss of worker %u is %g: training diverged; a smaller lr, or "
			       "clip=1 of "
			       "the optimizer, may help",
			       worker, fabs(c.loss));
	}
	e.steps = c.steps;
	e.samples = c.samples;
	e.base = c.base;
	e.loss = c.loss;
	e.step_ns = c.step_ns;
	e.commit_ns = c.commit_ns;
	e.reply_ns = c.reply_ns;
	s->client[worker].loss = c.loss;
	s->client[worker].samples = (double)c.samples;
	g = pl_ps_store_progress(s->store);
	g->steps += c.steps;
	g->samples += c.samples;
	PL_CHECK(tell(s, &e, m, err));
	return put_row(s, &c, e.now, err);
}

int pl_ps_server_try(struct pl_ps_server *s, uint32_t worker, struct pl_err *err)
{
	struct pl_ps_client *c = &s->client[worker];
	const struct pl_message *m = &c->commit.message;
	int rc;

	if (!c->commits || !pl_ps_others_have(s, worker, m->value[0], m->value[1]))
		return 0;
	rc = apply(s, worker, m, err);
	release_commit(s, c);
	return rc;
}

/* While the others still take their slices of the only commit that there is, server 0 computes what
 * the policy will probably say. */
static int guess(struct pl_ps_server *s, uint32_t worker, struct pl_err *err)
{
	struct pl_ps_change u;
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->p->workers; i++)
		n += s->client[i].commits;
	if (n != 1 || !s->client[worker].commits)
		return 0;
	PL_CHECK(change_of(s, worker, &s->client[worker].commit.message, &u, err));
	pl_ps_copies_guess(&s->copies, s->store, &s->usual, &u, NULL);
	return 0;
}

/* It keeps the message. */
static int on_commit(struct pl_ps_server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	uint32_t worker = ev->peer - s->p->servers;
	struct pl_ps_client *c = &s->client[worker];
	size_t bytes = PL_PS_HEAD + pl_ps_slice_size(s->p, 0) * sizeof(float);
	const char *why = NULL;

	if (!c->joined || c->connection != ev->connection || s->ending) {
		pl_comm_endpoint_release(s->p->end, ev);
		return 0; /* END is on its way, or it was refused */
	}
	if (ev->message.bytes != bytes || c->commits)
		why = "it sent a commit of a wrong size, or before its time";
	else if (ev->message.value[0] <= pl_ps_store_applied(s->store, worker)->id)
		why = "it sent a commit again that it knows to be applied";
	else if (ev->message.value[3] && !pl_ps_sent_hold(&c->sent, ev->message.value[2]))
		why = "its commit began from weights that it does not have";
	if (!why) {
		c->commits = true;
		c->commit = *ev;
		PL_CHECK(pl_ps_server_try(s, worker, err));
		return guess(s, worker, err);
	}
	pl_comm_endpoint_release(s->p->end, ev);
	pl_comm_endpoint_drop(s->p->end, ev->connection, why);
	return leave(s, worker, why, err);
}

/* Of which worker is the connection? NULL: of none, or of one that has a newer one. */
static struct pl_ps_client *client_of(struct pl_ps_server *s, const struct pl_endpoint_event *ev)
{
	uint32_t worker = ev->peer - s->p->servers;
	struct pl_ps_client *c =
		ev->peer >= s->p->servers && worker < s->p->workers ? &s->client[worker] : NULL;

	return c && c->connected && c->connection == ev->connection ? c : NULL;
}

static int on_bye(struct pl_ps_server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	struct pl_ps_counts counts;
	uint32_t worker = ev->peer - s->p->servers;

	if (!client_of(s, ev))
		return 0;
	if (ev->message.bytes == sizeof(counts)) {
		memcpy(&counts, ev->message.body, sizeof(counts));
		take_counts(s, worker, ev->message.value[0], &counts);
	}
	s->client[worker].ended = true;
	if (!s->ending) { /* a signal to one process ends the job, as in other engines */
		s->t->done = s->t->interrupted = true;
		*s->t->stop = *s->t->stop ? *s->t->stop : SIGTERM;
	}
	return leave(s, worker, NULL, err);
}

/* ---- events ---------------------------------------------------------------------------------- */

static int on_message(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
		      struct pl_err *err)
{
	uint32_t worker = ev->peer - s->p->servers;

	switch (ev->message.kind) {
	case PL_PS_HELLO:
		return on_hello(s, ev, err);
	case PL_PS_READY:
		return on_ready(s, ev, err);
	case PL_PS_BYE:
		return on_bye(s, ev, err);
	default:
		pl_comm_endpoint_drop(s->p->end, ev->connection, "an unknown message");
		return leave(s, worker, "it sent an unknown message", err);
	}
}

static int take_message(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
			struct pl_err *err)
{
	uint32_t servers = s->p->servers;
	int rc = 0;

	if (ev->peer >= servers && ev->peer - servers < s->p->workers &&
	    ev->message.kind == PL_PS_COMMIT)
		return on_commit(s, ev, err);
	if (ev->peer && ev->peer < servers)
		rc = pl_ps_others_message(s, ev, err);
	else if (ev->peer >= servers && ev->peer - servers < s->p->workers)
		rc = on_message(s, ev, err);
	else if (ev->peer && ev->peer - pl_ps_askers(s->p) < servers + s->p->ranks)
		rc = pl_ps_meet_message(s, ev, err);
	else
		pl_comm_endpoint_drop(s->p->end, ev->connection, "no process has this number");
	pl_comm_endpoint_release(s->p->end, ev);
	return rc;
}

int pl_ps_server_event(struct pl_ps_server *s, pl_ns until, bool *nothing, struct pl_err *err)
{
	struct pl_endpoint_event ev;
	struct pl_ps_client *c;

	PL_CHECK(pl_comm_endpoint_next(s->p->end, until, &ev, err));
	*nothing = ev.kind == PL_ENDPOINT_NOTHING;
	switch (ev.kind) {
	case PL_ENDPOINT_MESSAGE:
		return take_message(s, &ev, err);
	case PL_ENDPOINT_SENT:
		if ((c = client_of(s, &ev)))
			pl_ps_sent_one(&c->sent, ev.done, !pl_ps_shares(s->p, ev.connection));
		return 0;
	case PL_ENDPOINT_LOST:
		if (ev.peer < s->p->servers)
			return pl_ps_others_lost(s, &ev, err);
		if ((c = client_of(s, &ev))) {
			c->ended |= s->ending && ev.goodbye; /* it was told */
			return leave(s, (uint32_t)(c - s->client), ev.why, err);
		}
		return 0;
	default:
		return 0;
	}
}

int pl_ps_server_time(struct pl_ps_server *s, pl_ns now, struct pl_err *err)
{
	struct pl_policy_event e = { .kind = PL_POLICY_TIMER, .now = now };

	if (!s->begun || now < s->wake)
		return 0;
	s->wake = INT64_MAX;
	return tell(s, &e, NULL, err);
}
