/*
 * A worker and its servers: connections, commits, and replies, which come in slices.
 *
 * The worker takes a reply when it has the slices of all servers of one number. If a connection
 * breaks, it greets that server again until the server is given up. Server 0 is then told that the
 * worker is ready, if it was server 0 that was lost or if a slice may be lost.
 *
 * Weights stay where they came, in the messages, which are released when the next ones are whole.
 * Their servers have them until then, too. So a commit is what the weights have become, and each
 * server computes the difference itself. When a connection breaks before the reply, that commit
 * becomes a difference, because the one that follows the server may not have the weights, or be
 * asked later.
 */
#include <signal.h>
#include <unistd.h>

#include "ps/internal.h"
#include "ps/passes.h"

/* The weights of a message are needed no more. */
static void let_go(struct pl_ps_session *s, struct pl_endpoint_event *ev)
{
	if (ev->kind == PL_ENDPOINT_MESSAGE)
		pl_comm_endpoint_release(s->p->end, ev);
	*ev = (struct pl_endpoint_event){ 0 };
}

int pl_ps_session_open(struct pl_ps_session *s, struct pl_ps *p, struct pl_err *err)
{
	int64_t seed[2] = { pl_now_ns(), getpid() };

	s->p = p;
	s->session = pl_hash(seed, sizeof(seed)) | 1;
	return pl_alloc(&s->server, p->servers, sizeof(*s->server), err);
}

/* The end may come while a commit is being sent: its memory lasts as long as the endpoint. */
void pl_ps_session_close(struct pl_ps_session *s)
{
	for (uint32_t k = 0; s->server && k < s->p->servers; k++) {
		let_go(s, &s->server[k].held);
		let_go(s, &s->server[k].comes);
	}
	pl_free(s->server);
}

bool pl_ps_session_connected(const struct pl_ps_session *s)
{
	for (uint32_t k = 0; k < s->p->servers; k++)
		if (!s->server[k].connected)
			return false;
	return true;
}

/* ---- commits --------------------------------------------------------------------------------- */

const float *pl_ps_session_base(const struct pl_ps_session *s, uint32_t k)
{
	return pl_ps_reply_weights(&s->server[k].held.message, pl_ps_slice_size(s->p, k));
}

static uint64_t base_version(const struct pl_ps_at *x)
{
	return x->held.kind == PL_ENDPOINT_MESSAGE ? x->held.message.value[1] : UINT64_MAX;
}

bool pl_ps_session_has_base(struct pl_ps_session *s)
{
	bool good = true;

	for (uint32_t k = 0; k < s->p->servers; k++)
		good &= s->server[k].held.kind != PL_ENDPOINT_MESSAGE ||
			pl_ps_reply_is(&s->server[k].held.message);
	if (good)
		return true;
	s->waiting = true;
	s->in_steps = false;
	s->version = UINT64_MAX; /* no reply has it */
	pl_say(s->p->w.o.log, PL_LOG_WARN,
	       "another process has taken the place of worker %u meanwhile: the steps of this one "
	       "since its last commit are lost",
	       pl_ps_number(s->p));
	return false;
}

static float *numbers(const char *commit)
{
	return (float *)(void *)(uintptr_t)(commit + PL_PS_HEAD);
}

/* The place of a commit. */
static int make_room(struct pl_ps_session *s, char **commit, struct pl_err *err)
{
	size_t bytes = PL_PS_HEAD + pl_ps_vector_size(&s->p->vector) * sizeof(float);

	if (!*commit)
		*commit = pl_comm_endpoint_alloc(s->p->end, bytes, err);
	return *commit ? 0 : err->code;
}

/* u = the numbers - base; also: a copy of the numbers, if it is not NULL. */
static void subtract(const struct pl_ps_session *s, float *u, float *also, const float *from)
{
	bool stream = pl_ps_streams(pl_ps_vector_size(&s->p->vector));

	for (uint32_t k = 0; k < s->p->servers; k++) {
		size_t at = pl_ps_slice_at(s->p, k);

		pl_ps_pass_subtract(u + at, also ? also + at : NULL, from + at,
				    pl_ps_session_base(s, k), pl_ps_slice_size(s->p, k), stream);
	}
	pl_ps_pass_end();
}

int pl_ps_session_fill(struct pl_ps_session *s, bool flies, struct pl_err *err)
{
	const struct pl_net_view *net = &s->p->w.view;
	const float *host = pl_ps_vector_in_host(net);
	char *own = s->p->memory.commit;

	s->weights = true;
	for (uint32_t k = 0; k < s->p->servers; k++)
		s->weights &= s->server[k].has;
	if (s->weights && own && !flies) {
		s->commit = own;
		return 0;
	}
	if (s->weights || flies || !host)
		PL_CHECK(make_room(s, &s->x, err));
	s->commit = s->x;
	if (s->weights || !host)
		pl_ps_vector_read(net, numbers(s->x));
	if (s->weights)
		return 0;
	PL_CHECK(make_room(s, &s->u, err));
	s->commit = s->u;
	if (host)
		subtract(s, numbers(s->u), flies ? numbers(s->x) : NULL, host);
	else
		subtract(s, numbers(s->u), NULL, numbers(s->x));
	return 0;
}

int pl_ps_session_scratch(struct pl_ps_session *s, float **to, struct pl_err *err)
{
	PL_CHECK(make_room(s, &s->u, err));
	*to = numbers(s->u);
	return 0;
}

/* The commit that waits for its reply becomes a difference. A server may still read what was sent,
 * so that stays. */
static int make_difference(struct pl_ps_session *s, struct pl_err *err)
{
	PL_CHECK(make_room(s, &s->u, err));
	memcpy(s->u, s->commit, PL_PS_HEAD);
	subtract(s, numbers(s->u), NULL, numbers(s->commit));
	s->commit = s->u;
	s->weights = false;
	return 0;
}

static int send_slice(struct pl_ps_session *s, uint32_t k, struct pl_err *err)
{
	size_t at = pl_ps_slice_at(s->p, k), bytes = pl_ps_slice_size(s->p, k) * sizeof(float);
	struct pl_message m = { .kind = PL_PS_SLICE,
				.value = { s->id, s->session, base_version(&s->server[k]),
					   s->weights },
				.body = s->commit + PL_PS_HEAD + at * sizeof(float),
				.bytes = bytes };

	if (!k) {
		m.kind = PL_PS_COMMIT;
		m.body = s->commit;
		m.bytes += PL_PS_HEAD;
	}
	if (!s->server[k].connected)
		return 0;
	return pl_comm_endpoint_send(s->p->end, s->server[k].connection, &m, s, err);
}

int pl_ps_session_commit(struct pl_ps_session *s, struct pl_err *err)
{
	s->id++;
	s->pending = s->waiting = true;
	s->again = s->resend = false;
	for (uint32_t k = s->p->servers; k-- > 0;)
		PL_CHECK(send_slice(s, k, err));
	return 0;
}

int pl_ps_session_connect(struct pl_ps_session *s, uint32_t k, pl_ns until, struct pl_err *err)
{
	struct pl_ps_at *x = &s->server[k];
	struct pl_ps_hello h = { .job = s->p->job, .n = pl_ps_vector_size(&s->p->vector) };
	struct pl_message m = { .kind = PL_PS_HELLO,
				.value = { s->id, base_version(x), x->memory },
				.body = &h,
				.bytes = sizeof(h) };

	PL_CHECK(pl_comm_endpoint_connect(s->p->end, x->at[0] ? x->at : s->p->meeting->at, k, until,
					  &x->connection, err));
	x->connected = true;
	x->welcome = x->has = false;
	s->ready &= k != 0;
	return pl_comm_endpoint_send(s->p->end, x->connection, &m, NULL, err);
}

/* Server 0 is told when all are there. */
static int say_ready(struct pl_ps_session *s, struct pl_err *err)
{
	struct pl_message m = { .kind = PL_PS_READY };

	for (uint32_t k = 0; k < s->p->servers; k++)
		if (!s->server[k].connected || !s->server[k].welcome)
			return 0;
	/* a part of a reply that server 0 has not sent is not lost */
	if (s->ready && !(s->waiting && s->again && s->server[0].reply > s->taken))
		return 0;
	s->waiting |= !s->ready;
	s->ready = true;
	s->again = false;
	return pl_comm_endpoint_send(s->p->end, s->server[0].connection, &m, NULL, err);
}

/* ---- what comes ------------------------------------------------------------------------------ */

/* A line for each server but the first; "-": as the meeting says. */
static void take_addresses(struct pl_ps_session *s, const struct pl_message *m)
{
	const char *at = m->body;

	if (!m->bytes || at[m->bytes - 1])
		return;
	for (uint32_t k = 1; k < s->p->servers && *at; k++) {
		size_t n = strcspn(at, "\n");

		if (at[0] != '-' && n < PL_PS_ADDRESS)
			snprintf(s->server[k].at, PL_PS_ADDRESS, "%.*s", (int)n, at);
		at += n + (at[n] == '\n');
	}
}

static int take_welcome(struct pl_ps_session *s, uint32_t k, const struct pl_message *m,
			struct pl_err *err)
{
	struct pl_ps_at *x = &s->server[k];

	if (x->memory && x->memory != m->value[2])
		return pl_fail(err, PL_EIO, PL_PS_ANEW, k);
	x->memory = m->value[2];
	x->welcome = true;
	x->applied = m->value[0];
	x->has = m->value[1] != UINT64_MAX && m->value[1] == base_version(x);
	if (!k)
		take_addresses(s, m);
	else if (s->pending && x->applied < s->id)
		PL_CHECK(send_slice(s, k, err));
	return say_ready(s, err);
}

static void take_order(struct pl_ps_session *s, const struct pl_message *m)
{
	struct pl_ps_order o;

	if (m->bytes != sizeof(o))
		return;
	memcpy(&o, m->body, sizeof(o));
	s->order = o.policy;
	s->job_step = o.step;
	s->pace = o.pace;
	s->ordered = o.applied;
	s->order.first += pl_now_ns();
	s->has_order = true;
}

static bool is_whole(const struct pl_ps_session *s)
{
	for (uint32_t k = 0; k < s->p->servers; k++)
		if (s->server[k].reply != s->server[0].reply)
			return false;
	return s->server[0].reply > s->taken;
}

static void take_base(struct pl_ps_session *s)
{
	for (uint32_t k = 0; k < s->p->servers; k++) {
		struct pl_ps_at *x = &s->server[k];

		let_go(s, &x->held);
		x->held = x->comes;
		x->comes.kind = PL_ENDPOINT_NOTHING;
		x->has = true;
	}
}

static int take_whole(struct pl_ps_session *s, struct pl_err *err)
{
	for (uint32_t k = 1; k < s->p->servers; k++)
		if (s->server[k].version != s->server[0].version)
			return pl_fail(err, PL_EINTERNAL, "slices of versions %llu and %llu",
				       (unsigned long long)s->server[0].version,
				       (unsigned long long)s->server[k].version);
	s->taken = s->server[0].reply;
	/* else server 0 has replied once more, for nothing */
	if (!s->waiting || (s->pending && s->applied < s->id)) {
		for (uint32_t k = 0; k < s->p->servers; k++)
			let_go(s, &s->server[k].comes);
		if (s->waiting && s->resend)
			PL_CHECK(send_slice(s, 0, err));
		s->resend &= !s->waiting;
		return PL_PS_OTHER;
	}
	/* this process may be in place of one that has made commits */
	s->id = s->applied > s->id ? s->applied : s->id;
	s->waiting = s->again = false;
	take_base(s);
	if (s->in_steps && !s->pending && s->server[0].version == s->version)
		return PL_PS_REPLIED; /* the steps since then go on */
	s->in_steps = s->pending = false;
	s->version = s->server[0].version;
	return PL_PS_REPLIED;
}

static int take_reply(struct pl_ps_session *s, uint32_t k, struct pl_endpoint_event *ev,
		      struct pl_err *err)
{
	const struct pl_message *m = &ev->message;
	struct pl_ps_at *x = &s->server[k];

	if (!pl_ps_reply_weights(m, pl_ps_slice_size(s->p, k)))
		return pl_fail(err, PL_EIO, "server %u sent weights of a wrong size", k);
	x->reply = 0;
	let_go(s, &x->comes);
	/* weights of mixed versions come on a connection that is lost, as the next event says */
	if (!pl_ps_reply_is(m))
		return PL_PS_OTHER;
	x->comes = *ev;
	ev->kind = PL_ENDPOINT_NOTHING;
	/* what is not in memory of both it keeps in place of the weights before */
	x->has &= pl_ps_shares(s->p, x->connection);
	m = &x->comes.message;
	x->version = m->value[1];
	x->reply = m->value[3];
	if (!k) {
		s->applied = m->value[0];
		s->waited = (pl_ns)m->value[2];
	}
	return is_whole(s) ? take_whole(s, err) : say_ready(s, err);
}

int pl_ps_end_take(const struct pl_message *m, struct pl_err *err)
{
	const char *why = m->body;

	if (!m->bytes || why[m->bytes - 1])
		return 0;
	return pl_fail(err, PL_EIO, "the server ended the training: %.300s", why);
}

static int take_message(struct pl_ps_session *s, uint32_t k, struct pl_endpoint_event *ev,
			struct pl_err *err)
{
	const struct pl_message *m = &ev->message;

	switch (m->kind) {
	case PL_PS_WELCOME:
		return take_welcome(s, k, m, err);
	case PL_PS_REPLY:
		return take_reply(s, k, ev, err);
	case PL_PS_ORDER:
		take_order(s, m);
		return 0;
	case PL_PS_END:
		s->ended = true;
		return pl_ps_end_take(m, err);
	case PL_PS_REFUSED:
		return pl_fail(err, PL_EDATA, "the server refused this worker: %.*s",
			       (int)pl_min_size(m->bytes, 200),
			       m->bytes ? (const char *)m->body : "");
	default:
		return 0;
	}
}

/* A slice of a reply that is not whole comes again. */
static void forget(struct pl_ps_session *s, uint32_t k)
{
	struct pl_ps_at *x = &s->server[k];

	x->connected = x->has = false;
	x->reply = 0;
	let_go(s, &x->comes);
	s->again = true;
	if (k)
		return;
	/* when the worker comes again, this server may not know what it has sent before */
	x->reply = s->taken;
	s->resend |= s->pending;
}

static int lose(struct pl_ps_session *s, uint32_t k, struct pl_err *err)
{
	forget(s, k);
	if (!s->pending || !s->weights)
		return 0;
	PL_CHECK(make_difference(s, err));
	if (pl_ps_session_has_base(s))
		return 0;
	/* the commit is lost; the servers forget what they have of it */
	s->pending = s->resend = false;
	if (s->server[0].connected) {
		pl_comm_endpoint_drop(s->p->end, s->server[0].connection, "its commit is lost");
		forget(s, 0);
	}
	return 0;
}

int pl_ps_session_event(struct pl_ps_session *s, pl_ns until, struct pl_err *err)
{
	struct pl_endpoint_event ev;
	uint32_t k = 0;
	int rc = 0;

	PL_CHECK(pl_comm_endpoint_next(s->p->end, until, &ev, err));
	if (ev.kind == PL_ENDPOINT_NOTHING)
		return PL_PS_NOTHING;
	while (k < s->p->servers && s->server[k].connection != ev.connection)
		k++;
	if (k < s->p->servers && ev.kind == PL_ENDPOINT_MESSAGE)
		rc = take_message(s, k, &ev, err);
	if (k < s->p->servers && ev.kind == PL_ENDPOINT_LOST)
		rc = lose(s, k, err);
	let_go(s, &ev); /* take_reply() may have kept it */
	return rc < 0 || rc == PL_PS_REPLIED ? rc : PL_PS_OTHER;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Server 0 says where the others are. */
static bool can_connect(const struct pl_ps_session *s, uint32_t k)
{
	return !k || s->server[k].at[0] || pl_ps_in_folder(s->p);
}

/* For another server a timeout at a time: meanwhile server 0 may say that it is over. */
static int connect_all(struct pl_ps_session *s, struct pl_err *err)
{
	for (uint32_t k = 0; k < s->p->servers; k++) {
		pl_ns now = pl_now_ns(), patience = PL_PS_PATIENCE * s->p->timeout_ns;
		struct pl_ps_at *x = &s->server[k];
		struct pl_err why = { 0 };
		int rc;

		if (x->connected || !can_connect(s, k))
			continue;
		x->lost = x->lost ? x->lost : now;
		rc = pl_ps_session_connect(s, k, now + (k ? s->p->timeout_ns : patience), &why);
		if (rc < 0 && k && s->server[0].connected && !pl_ps_has_ended(s->p, k) &&
		    pl_now_ns() < x->lost + patience)
			continue;
		x->lost = 0;
		if (rc < 0)
			return pl_fail(err, rc, "server %u is lost%s: %s", k,
				       s->taken ? ", and did not come back" : "", why.msg);
	}
	return 0;
}

/* So often a worker that waits looks whether its group is whole, or a server is there. */
#define TURN_NS 50000000

/* There is no limit while all servers are connected: other workers may take any time for their
 * steps, and server 0 ends the training if a reply cannot come. A server that is lost is given up
 * by connect_all(). */
int pl_ps_session_wait(struct pl_ps_session *s, struct pl_err *err)
{
	pl_ns said = pl_now_ns();

	while (!s->ended && (s->waiting || !s->ready || !pl_ps_session_connected(s))) {
		int what;

		PL_CHECK(connect_all(s, err));
		PL_CHECK(what = pl_ps_session_event(s, pl_now_ns() + TURN_NS, err));
		if (what == PL_PS_REPLIED)
			return what;
		PL_CHECK(pl_ps_group_check(s->p, err));
		PL_CHECK(pl_ps_group_hold(s->p, &said, err));
	}
	return PL_PS_OTHER;
}
