/*
 * A server that is not the first: it keeps the slices of commits, and carries out the actions of
 * server 0 on its slice of the vector, in their order.
 *
 * A slice is copied into the store before server 0 is told of it, so an action finds the slices
 * that it needs even if this server is killed. What was carried out is valid in the store before
 * anybody learns of it. One thread; O(numbers of the slice) for a commit.
 */
#include <signal.h>

#include "ps/internal.h"
#include "ps/passes.h"

#define TURN_NS 50000000

/* ---- to server 0 ----------------------------------------------------------------------------- */

static struct pl_ps_peer *lead_of(struct pl_ps_follower *f)
{
	return &f->peer[f->p->workers];
}

static int tell(struct pl_ps_follower *f, uint32_t kind, uint64_t a, uint64_t b, uint64_t c,
		struct pl_err *err)
{
	struct pl_message m = { .kind = kind, .value = { a, b, c } };

	if (!lead_of(f)->connected)
		return 0;
	return pl_comm_endpoint_send(f->p->end, lead_of(f)->connection, &m, NULL, err);
}

static int tell_kept(struct pl_ps_follower *f, uint32_t worker, struct pl_err *err)
{
	const struct pl_ps_applied *a = pl_ps_store_applied(f->store, worker);

	return a->kept > a->id ? tell(f, PL_PS_HAVE, a->kept, a->session, worker, err) : 0;
}

int pl_ps_follower_connect(struct pl_ps_follower *f, pl_ns until, struct pl_err *err)
{
	struct pl_ps *p = f->p;
	struct pl_ps_hello h = { .job = p->job, .n = pl_ps_vector_size(&p->vector) };
	struct pl_message m = { .kind = PL_PS_SERVER,
				.value = { pl_ps_store_progress(f->store)->actions,
					   pl_ps_store_number(f->store) },
				.body = &h,
				.bytes = sizeof(h) };
	struct pl_ps_peer *l = lead_of(f);

	if (!pl_ps_in_folder(p))
		snprintf(h.at, sizeof(h.at), "%s", pl_comm_endpoint_address(p->end));
	PL_CHECK(pl_comm_endpoint_connect(p->end, p->meeting->at, 0, until, &l->connection, err));
	l->connected = true;
	PL_CHECK(pl_comm_endpoint_send(p->end, l->connection, &m, NULL, err));
	for (uint32_t i = 0; i < p->workers; i++)
		PL_CHECK(tell_kept(f, i, err));
	return 0;
}

/* ---- actions --------------------------------------------------------------------------------- */

static int send_weights(struct pl_ps_follower *f, struct pl_ps_peer *to, uint64_t number,
			struct pl_err *err)
{
	struct pl_message m = { .value = { 0, 0, 0, number } };

	pl_ps_store_commit(f->store);
	if (!to->connected)
		return 0;
	return pl_ps_copies_send(&f->copies, f->store, to->connection, &to->sent, &m, err);
}

/* replies: weights are sent after it. */
static int update(struct pl_ps_follower *f, const struct pl_ps_action *a, bool replies,
		  struct pl_err *err)
{
	struct pl_ps_applied *k = pl_ps_store_applied(f->store, a->worker);
	struct pl_ps_change u = { 0 };

	if (a->id && (k->kept != a->id || k->session != a->session))
		return pl_fail(err, PL_EINTERNAL,
			       "the slice of commit %llu of worker %u is not here",
			       (unsigned long long)a->id, a->worker);
	if (a->id) {
		u.to = pl_ps_store_kept(f->store, a->worker);
		f->usual = a->update;
	}
	PL_CHECK(pl_ps_copies_update(&f->copies, f->store, &a->update, &u, replies, err));
	if (a->id)
		k->id = a->id;
	return 0;
}

static int carry_out(struct pl_ps_follower *f, const struct pl_ps_action *a, bool replies,
		     struct pl_err *err)
{
	struct pl_ps_progress *g = pl_ps_store_progress(f->store);

	if (a->number != g->actions + 1 || a->worker >= f->p->workers)
		return pl_fail(err, PL_EINTERNAL, "server 0 sent action %llu after %llu",
			       (unsigned long long)a->number, (unsigned long long)g->actions);
	g->actions = a->number;
	switch (a->kind) {
	case PL_PS_UPDATE:
		return update(f, a, replies, err);
	case PL_PS_SEND:
		return send_weights(f, &f->peer[a->worker], a->number, err);
	case PL_PS_COPY:
		return send_weights(f, lead_of(f), a->number, err);
	default:
		return pl_fail(err, PL_EINTERNAL, "server 0 sent an unknown action");
	}
}

static int on_actions(struct pl_ps_follower *f, const struct pl_message *m, struct pl_err *err)
{
	struct pl_ps_progress *g;

	for (size_t at = 0; at + sizeof(struct pl_ps_action) <= m->bytes;
	     at += sizeof(struct pl_ps_action)) {
		struct pl_ps_action a, then = { .kind = PL_PS_UPDATE };

		memcpy(&a, (const char *)m->body + at, sizeof(a));
		if (at + 2 * sizeof(a) <= m->bytes)
			memcpy(&then, (const char *)m->body + at + sizeof(a), sizeof(then));
		PL_CHECK(carry_out(f, &a, then.kind != PL_PS_UPDATE, err));
	}
	g = pl_ps_store_progress(f->store);
	g->bytes_sent = f->sent_before + pl_comm_endpoint_sent(f->p->end);
	pl_ps_store_commit(f->store);
	g = pl_ps_store_progress(f->store);
	return tell(f, PL_PS_DONE, g->actions, g->bytes_sent, 0, err);
}

/* ---- workers --------------------------------------------------------------------------------- */

static int on_hello(struct pl_ps_follower *f, const struct pl_endpoint_event *ev,
		    struct pl_err *err)
{
	uint32_t worker = ev->peer - f->p->servers;
	struct pl_ps_hello h;
	const char *why = pl_ps_hello_get(f->p, &ev->message, &h);
	struct pl_message m = { .kind = PL_PS_WELCOME };
	struct pl_ps_peer *w = &f->peer[worker];

	if (why) {
		m = (struct pl_message){ .kind = PL_PS_REFUSED,
					 .body = why,
					 .bytes = strlen(why) + 1 };
		return pl_comm_endpoint_send(f->p->end, ev->connection, &m, NULL, err);
	}
	m.value[2] = pl_ps_store_number(f->store);
	if (ev->message.value[2] && ev->message.value[2] != m.value[2])
		return pl_fail(err, PL_EIO, PL_PS_ANEW, f->p->process);
	w->connected = true;
	w->connection = ev->connection;
	m.value[0] = pl_ps_store_applied(f->store, worker)->id;
	m.value[1] = pl_ps_sent_keep(&w->sent, ev->message.value[1]);
	return pl_comm_endpoint_send(f->p->end, ev->connection, &m, NULL, err);
}

/* The slice of a commit. If no other one waits for its action, the pass computes also what the
 * action will probably be. */
static void keep(struct pl_ps_follower *f, uint32_t worker, const float *body, const float *base)
{
	size_t n = pl_ps_slice_size(f->p, f->p->process);
	float *to = pl_ps_store_kept(f->store, worker);
	const struct pl_ps_change u = { .to = body, .from = base };
	bool stream = pl_ps_streams(n), alone = true;

	for (uint32_t i = 0; i < f->p->workers; i++) {
		const struct pl_ps_applied *a = pl_ps_store_applied(f->store, i);

		alone &= a->kept <= a->id;
	}
	pl_ps_store_guess_drop(f->store); /* it may be of the slice that goes */
	if (alone && base && pl_ps_copies_guess(&f->copies, f->store, &f->usual, &u, to))
		return;
	if (base)
		pl_ps_pass_subtract(to, NULL, body, base, n, stream);
	else
		pl_ps_pass_copy(to, NULL, body, n, stream);
	pl_ps_pass_end();
}

/* The store says that nothing is kept while the memory is written. */
static int on_slice(struct pl_ps_follower *f, const struct pl_endpoint_event *ev,
		    struct pl_err *err)
{
	uint32_t worker = ev->peer - f->p->servers;
	uint64_t id = ev->message.value[0], session = ev->message.value[1];
	struct pl_ps_applied *a = pl_ps_store_applied(f->store, worker);
	size_t n = pl_ps_slice_size(f->p, f->p->process);
	const float *base;

	if (f->peer[worker].connection != ev->connection ||
	    ev->message.bytes != n * sizeof(float) || id <= a->id)
		return 0;
	if (a->kept != id || a->session != session) {
		base = pl_ps_sent_weights(&f->peer[worker].sent, ev->message.value[2]);
		if (ev->message.value[3] && !base) {
			pl_comm_endpoint_drop(
				f->p->end, ev->connection,
				"its commit began from weights that it does not have");
			f->peer[worker].connected = false;
			return 0;
		}
		a->kept = 0;
		pl_ps_store_commit(f->store);
		keep(f, worker, ev->message.body, ev->message.value[3] ? base : NULL);
		a = pl_ps_store_applied(f->store, worker);
		a->kept = id;
		a->session = session;
		pl_ps_store_commit(f->store);
	}
	return tell_kept(f, worker, err);
}

/* ---- events ---------------------------------------------------------------------------------- */

static int on_message(struct pl_ps_follower *f, const struct pl_endpoint_event *ev,
		      struct pl_err *err)
{
	uint32_t worker = ev->peer - f->p->servers;

	if (!ev->peer) {
		if (ev->connection != lead_of(f)->connection)
			return 0;
		if (ev->message.kind == PL_PS_ACTIONS)
			return on_actions(f, &ev->message, err);
		if (ev->message.kind == PL_PS_END) {
			f->ended = true;
			return pl_ps_end_take(&ev->message, err);
		}
		if (ev->message.kind == PL_PS_BYE) {
			pl_comm_attend_end(f->p->attends);
			return 0;
		}
		if (ev->message.kind == PL_PS_REFUSED)
			return pl_fail(err, PL_EDATA, "server 0 refused this server");
	} else if (ev->peer >= f->p->servers && worker < f->p->workers) {
		if (ev->message.kind == PL_PS_HELLO)
			return on_hello(f, ev, err);
		if (ev->message.kind == PL_PS_SLICE)
			return on_slice(f, ev, err);
	}
	pl_comm_endpoint_drop(f->p->end, ev->connection, "an unknown message");
	return 0;
}

static struct pl_ps_peer *peer_of(struct pl_ps_follower *f, const struct pl_endpoint_event *ev)
{
	for (uint32_t i = 0; i <= f->p->workers; i++)
		if (f->peer[i].connected && f->peer[i].connection == ev->connection)
			return &f->peer[i];
	return NULL;
}

int pl_ps_follower_event(struct pl_ps_follower *f, pl_ns until, struct pl_err *err)
{
	struct pl_endpoint_event ev;
	struct pl_ps_peer *x;
	int rc = 0;

	PL_CHECK(pl_comm_endpoint_next(f->p->end, until, &ev, err));
	if (ev.kind == PL_ENDPOINT_MESSAGE) {
		rc = on_message(f, &ev, err);
		pl_comm_endpoint_release(f->p->end, &ev);
		return rc;
	}
	x = peer_of(f, &ev);
	if (ev.kind == PL_ENDPOINT_SENT && x)
		pl_ps_sent_one(&x->sent, ev.done,
			       x != lead_of(f) && !pl_ps_shares(f->p, ev.connection));
	if (ev.kind != PL_ENDPOINT_LOST || !x)
		return 0;
	x->connected = false;
	if (x == lead_of(f)) /* a worker may still look at weights until it comes again */
		pl_ps_sent_all(&x->sent);
	f->ended |= x == lead_of(f) && ev.goodbye;
	return 0;
}

/* ---- begin and end --------------------------------------------------------------------------- */

int pl_ps_follower_open(struct pl_ps_follower *f, struct pl_err *err)
{
	struct pl_ps *p = f->p;
	const struct pl_ps_store_opts o = { .fd = p->meeting->memory,
					    .n = pl_ps_slice_size(p, p->process),
					    .workers = p->workers,
					    .bodies = pl_ps_bodies(p),
					    .keeps = true };
	bool fresh;

	f->copies = (struct pl_ps_copies){ .end = p->end, .n = o.n };
	PL_CHECK(pl_alloc(&f->peer, (size_t)p->workers + 1, sizeof(*f->peer), err));
	PL_CHECK(pl_ps_store_open(&o, &f->store, &fresh, err));
	if (fresh)
		PL_CHECK(pl_ps_slice_read(p, p->process, pl_ps_store_begin(f->store), err));
	else
		pl_say(p->w.o.log, PL_LOG_WARN,
		       "server %u was started again, at version %llu of the weights", p->process,
		       (unsigned long long)pl_ps_store_progress(f->store)->version);
	f->sent_before = pl_ps_store_progress(f->store)->bytes_sent;
	pl_ps_store_commit(f->store);
	PL_CHECK(pl_ps_copies_open(&f->copies, f->store, o.bodies, err));
	f->again = !fresh;
	for (uint32_t i = 0; i < p->workers; i++)
		PL_CHECK(pl_ps_copies_pin(&f->copies, &f->peer[i].sent, err));
	return 0;
}

/* What the server before this one sent to workers that have ended. */
static void forget_ended(struct pl_ps_follower *f)
{
	const struct pl_ps *p = f->p;

	for (uint32_t i = 0; f->again && i < p->workers; i++)
		if (!f->peer[i].connected && pl_ps_has_ended(p, p->servers + pl_ps_ranks(p, i)[0]))
			pl_ps_sent_all(&f->peer[i].sent);
}

void pl_ps_follower_close(struct pl_ps_follower *f)
{
	for (uint32_t i = 0; f->peer && i <= f->p->workers; i++)
		pl_ps_sent_fini(&f->peer[i].sent);
	pl_free(f->peer);
	pl_ps_copies_fini(&f->copies);
	f->p->store = f->store;
}

/* Server 0 ends the job: a signal to this process is told it. */
static int pass_on(struct pl_ps_follower *f, struct pl_err *err)
{
	int sig = *f->t->stop;

	if (!sig || f->asked || !lead_of(f)->connected)
		return 0;
	f->asked = true;
	return tell(f, PL_PS_BYE, (uint64_t)sig, 0, 0, err);
}

int pl_ps_follow(struct pl_ps *p, struct pl_train *t, struct pl_err *err)
{
	struct pl_ps_follower f = { .p = p, .t = t };
	int rc;

	PL_TRY(pl_ps_follower_open(&f, err));
	while (!f.ended) {
		pl_ns until = pl_now_ns() + PL_PS_PATIENCE * p->timeout_ns;
		struct pl_err why = { 0 };

		if (!lead_of(&f)->connected && pl_ps_follower_connect(&f, until, &why) < 0) {
			rc = pl_fail(err, PL_EIO, "server 0 is lost: %s", why.msg);
			goto out;
		}
		PL_TRY(pl_ps_follower_event(&f, pl_now_ns() + TURN_NS, err));
		PL_TRY(pass_on(&f, err));
		forget_ended(&f);
		PL_TRY(pl_ps_group_check(p, err));
	}
out:
	t->end = pl_now_ns();
	pl_ps_follower_close(&f);
	return rc;
}
