/*
 * A worker and its servers: connections, commits, and replies, which come in slices.
 *
 * The worker takes a reply when it has the slices of all servers of one number. If a connection
 * breaks, it greets that server again until the server is given up. Server 0 is then told that the
 * worker is ready, if it was server 0 that was lost or if a slice may be lost.
 *
 * The weights of one server stay where they came, in the message, which is released when the next
 * ones are there; slices of several servers are copied, to be one vector.
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
	size_t n = pl_ps_vector_size(&p->vector), room = (n / PL_PS_LINE + 1) * PL_PS_LINE;
	int64_t seed[2] = { pl_now_ns(), getpid() };

	s->p = p;
	s->session = pl_hash(seed, sizeof(seed)) | 1;
	PL_CHECK(pl_alloc(&s->server, p->servers, sizeof(*s->server), err));
	if (p->servers > 1) {
		PL_CHECK(pl_ps_pass_alloc(&s->memory, 2 * room, &s->own, err));
		s->fresh = s->own + room;
	}
	s->commit = pl_comm_endpoint_alloc(p->end, PL_PS_HEAD + n * sizeof(float), err);
	return s->commit ? 0 : err->code;
}

/* The end may come while a commit is being sent: s->commit lasts as long as the endpoint. */
void pl_ps_session_close(struct pl_ps_session *s)
{
	let_go(s, &s->held);
	pl_free(s->server);
	pl_free(s->memory);
}

bool pl_ps_session_connected(const struct pl_ps_session *s)
{
	for (uint32_t k = 0; k < s->p->servers; k++)
		if (!s->server[k].connected)
			return false;
	return true;
}

/* ---- sending --------------------------------------------------------------------------------- */

static int send_slice(struct pl_ps_session *s, uint32_t k, struct pl_err *err)
{
	size_t at = pl_ps_slice_at(s->p, k), bytes = pl_ps_slice_size(s->p, k) * sizeof(float);
	struct pl_message m = { .kind = PL_PS_SLICE,
				.value = { s->id, s->session },
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
	struct pl_message m = {
		.kind = PL_PS_HELLO, .value = { s->id }, .body = &h, .bytes = sizeof(h)
	};

	PL_CHECK(pl_comm_endpoint_connect(s->p->end, x->at[0] ? x->at : s->p->meeting->at, k, until,
					  &x->connection, err));
	x->connected = true;
	x->welcome = false;
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

	x->welcome = true;
	x->applied = m->value[0];
	if (!k)
		take_addresses(s, m);
	else if (s->pending && x->applied < s->id)
		PL_CHECK(send_slice(s, k, err));
	return say_ready(s, err);
}

static void take_order(struct pl_ps_session *s, const struct pl_message *m)
{
	if (m->bytes != sizeof(s->order))
		return;
	memcpy(&s->order, m->body, sizeof(s->order));
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
	float *was = s->own;

	if (s->fresh) {
		s->base = s->own = s->fresh;
		s->fresh = was;
		return;
	}
	let_go(s, &s->held);
	s->held = s->comes;
	s->comes.kind = PL_ENDPOINT_NOTHING;
	s->base = pl_ps_reply_weights(&s->held.message, pl_ps_vector_size(&s->p->vector));
}

bool pl_ps_session_has_base(struct pl_ps_session *s)
{
	if (s->fresh || s->held.kind != PL_ENDPOINT_MESSAGE || pl_ps_reply_is(&s->held.message))
		return true;
	s->waiting = true;
	s->in_steps = false;
	s->version = UINT64_MAX; /* no reply has it */
	return false;
}

static int take_whole(struct pl_ps_session *s, struct pl_err *err)
{
	for (uint32_t k = 1; k < s->p->servers; k++)
		if (s->server[k].version != s->server[0].version)
			return pl_fail(err, PL_EINTERNAL, "slices of versions %llu and %llu",
				       (unsigned long long)s->server[0].version,
				       (unsigned long long)s->server[k].version);
	s->taken = s->server[0].reply;
	if (!s->waiting) /* server 0 has replied once more, for nothing */
		return PL_PS_OTHER;
	if (s->pending && s->applied < s->id) {
		if (s->resend)
			PL_CHECK(send_slice(s, 0, err));
		s->resend = false;
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

static int take_reply(struct pl_ps_session *s, uint32_t k, const struct pl_message *m,
		      struct pl_err *err)
{
	struct pl_ps_at *x = &s->server[k];
	size_t n = pl_ps_slice_size(s->p, k);

	if (m->bytes != pl_ps_reply_bytes(n))
		return pl_fail(err, PL_EIO, "server %u sent weights of a wrong size", k);
	x->reply = 0;
	/* weights of mixed versions come on a connection that is lost, as the next event says */
	if (s->fresh ? !pl_ps_reply_take(m, s->fresh + pl_ps_slice_at(s->p, k), n)
		     : !pl_ps_reply_is(m))
		return PL_PS_OTHER;
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

static int take_message(struct pl_ps_session *s, uint32_t k, const struct pl_message *m,
			struct pl_err *err)
{
	switch (m->kind) {
	case PL_PS_WELCOME:
		return take_welcome(s, k, m, err);
	case PL_PS_REPLY:
		return take_reply(s, k, m, err);
	case PL_PS_ORDER:
		take_order(s, m);
		return 0;
	case PL_PS_END:
		s->ended = true;
		return pl_ps_end_take(m, err);
	case PL_PS_REFUSED:
		return pl_fail(err, PL_EDATA, "the server refused this worker: %.*s",
			       (int)pl_min_size(m->bytes, 200), (const char *)m->body);
	default:
		return 0;
	}
}

static void lose(struct pl_ps_session *s, uint32_t k)
{
	s->server[k].connected = false;
	s->again = true;
	if (k)
		return;
	/* when the worker comes again, this server may not know what it has sent before */
	s->server[0].reply = s->taken;
	s->resend |= s->pending;
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
	s->comes = ev; /* take_base() may keep it */
	if (k < s->p->servers && ev.kind == PL_ENDPOINT_MESSAGE)
		rc = take_message(s, k, &ev.message, err);
	if (k < s->p->servers && ev.kind == PL_ENDPOINT_LOST)
		lose(s, k);
	let_go(s, &s->comes);
	return rc < 0 || rc == PL_PS_REPLIED ? rc : PL_PS_OTHER;
}

/* ---- waiting --------------------------------------------------------------------------------- */

/* Server 0 says where the others are. */
static bool can_connect(const struct pl_ps_session *s, uint32_t k)
{
	return !k || s->server[k].at[0] || pl_ps_in_folder(s->p);
}

static int connect_all(struct pl_ps_session *s, pl_ns until, struct pl_err *err)
{
	for (uint32_t k = 0; k < s->p->servers; k++) {
		struct pl_err why = { 0 };
		int rc;

		if (s->server[k].connected || !can_connect(s, k))
			continue;
		rc = pl_ps_session_connect(s, k, until, &why);
		if (rc < 0)
			return pl_fail(err, rc, "server %u is lost%s: %s", k,
				       s->taken ? ", and did not come back" : "", why.msg);
	}
	return 0;
}

/* So often a leader that waits looks whether its group is whole. */
#define TURN_NS 50000000

int pl_ps_session_wait(struct pl_ps_session *s, struct pl_err *err)
{
	pl_ns until = pl_now_ns() + PL_PS_REPLY_PATIENCE * s->p->timeout_ns;

	while (!s->ended && (s->waiting || !s->ready || !pl_ps_session_connected(s))) {
		int what;

		PL_CHECK(connect_all(s, pl_now_ns() + PL_PS_PATIENCE * s->p->timeout_ns, err));
		PL_CHECK(what = pl_ps_session_event(
				 s,
				 s->p->g.world ? pl_min_i64(until, pl_now_ns() + TURN_NS) : until,
				 err));
		if (what == PL_PS_REPLIED)
			return what;
		PL_CHECK(pl_ps_group_check(s->p, err));
		if (what == PL_PS_NOTHING && pl_now_ns() >= until)
			return pl_fail(
				err, PL_EIO, "the server did not answer for %lld s",
				(long long)(PL_PS_REPLY_PATIENCE * s->p->timeout_ns / 1000000000));
	}
	return PL_PS_OTHER;
}
