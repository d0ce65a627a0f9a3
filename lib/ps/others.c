/*
 * Server 0 and the other servers.
 *
 * What server 0 decides is a list of numbered actions, which it keeps in its store until all others
 * have carried them out. Each connection gets those that its server has not carried out, in their
 * order, and then each new one. O(1) for an action and a server.
 *
 * The whole vector at one version is gathered by an action, too: each server sends its slice when
 * it comes to that action, so nobody waits.
 */
#include "ps/internal.h"

struct kept { /* the slice of a commit */
	uint64_t id, session;
};
struct pl_ps_other {
	bool connected;
	uint32_t connection;
	uint64_t sent, done; /* numbers of actions: sent on this connection, carried out */
	uint64_t bytes_sent;
	uint64_t memory;	/* its number; 0: it has never come */
	pl_ns lost;		/* since then */
	char at[PL_PS_ADDRESS]; /* "": it has never come */
	struct kept *have;	/* [worker] */
};
struct pl_ps_gather {
	uint64_t number; /* of the action; 0: nothing is gathered */
	float *to;
	int evaluation; /* its number; -1: of s->whole */
	uint32_t missing;
	bool *has; /* [server] */
};

#define GATHERS (PL_PS_EVALUATIONS + 1)

int pl_ps_others_open(struct pl_ps_server *s, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&s->other, s->p->servers, sizeof(*s->other), err));
	for (uint32_t k = 1; k < s->p->servers; k++) {
		PL_CHECK(pl_alloc(&s->other[k].have, s->p->workers, sizeof(struct kept), err));
		s->other[k].done = pl_ps_store_progress(s->store)->actions; /* until it says */
		s->other[k].lost = pl_now_ns();
	}
	PL_CHECK(pl_alloc(&s->gather, GATHERS, sizeof(*s->gather), err));
	for (int i = 0; i < GATHERS; i++)
		PL_CHECK(pl_alloc(&s->gather[i].has, s->p->servers, sizeof(bool), err));
	return 0;
}

void pl_ps_others_close(struct pl_ps_server *s)
{
	for (uint32_t k = 1; s->other && k < s->p->servers; k++)
		pl_free(s->other[k].have);
	for (int i = 0; s->gather && i < GATHERS; i++)
		pl_free(s->gather[i].has);
	pl_free(s->gather);
	pl_free(s->other);
	pl_free(s->whole);
}

bool pl_ps_others_there(const struct pl_ps_server *s)
{
	for (uint32_t k = 1; k < s->p->servers; k++)
		if (!s->other[k].at[0])
			return false;
	return true;
}

bool pl_ps_others_have(const struct pl_ps_server *s, uint32_t worker, uint64_t id, uint64_t session)
{
	for (uint32_t k = 1; k < s->p->servers; k++) {
		const struct kept *h = &s->other[k].have[worker];

		if (h->id != id || h->session != session)
			return false;
	}
	return true;
}

void pl_ps_others_at(const struct pl_ps_server *s, char *to, size_t size)
{
	size_t n = 0;

	to[0] = '\0';
	for (uint32_t k = 1; k < s->p->servers && n < size; k++)
		n += (size_t)snprintf(to + n, size - n, "%s\n", s->other[k].at);
}

uint64_t pl_ps_others_sent(const struct pl_ps_server *s)
{
	uint64_t sum = 0;

	for (uint32_t k = 1; k < s->p->servers; k++)
		sum += s->other[k].bytes_sent;
	return sum;
}

/* ---- actions --------------------------------------------------------------------------------- */

int pl_ps_others_act(struct pl_ps_server *s, const struct pl_ps_action *a, struct pl_err *err)
{
	uint64_t number = ++pl_ps_store_progress(s->store)->actions;
	struct pl_ps_action *to;

	if (s->p->servers == 1)
		return 0;
	for (uint32_t k = 1; k < s->p->servers; k++)
		if (number - s->other[k].done > pl_ps_actions(s->p))
			return pl_fail(err, PL_EIO, "server %u is %llu actions behind", k,
				       (unsigned long long)(number - s->other[k].done));
	to = pl_ps_store_action(s->store, number);
	*to = *a;
	to->number = number;
	return 0;
}

static int send_to(struct pl_ps_server *s, uint32_t k, struct pl_err *err)
{
	uint64_t last = pl_ps_store_progress(s->store)->actions;
	struct pl_ps_other *o = &s->other[k];
	struct pl_ps_action *a;
	struct pl_message m = { .kind = PL_PS_ACTIONS };
	size_t n = (size_t)(last - o->sent);
	int rc;

	if (!o->connected || !n)
		return 0;
	PL_CHECK(pl_alloc(&a, n, sizeof(*a), err));
	for (size_t i = 0; i < n; i++)
		a[i] = *pl_ps_store_action(s->store, o->sent + 1 + i);
	m.body = a;
	m.bytes = n * sizeof(*a);
	rc = pl_comm_endpoint_send(s->p->end, o->connection, &m, NULL, err);
	pl_free(a);
	o->sent = last;
	return rc;
}

int pl_ps_others_send(struct pl_ps_server *s, struct pl_err *err)
{
	for (uint32_t k = 1; k < s->p->servers; k++)
		PL_CHECK(send_to(s, k, err));
	return 0;
}

/* ---- the whole vector ------------------------------------------------------------------------ */

static void gather_end(struct pl_ps_server *s, struct pl_ps_gather *g, bool good)
{
	g->number = 0;
	if (g->evaluation < 0)
		return;
	if (good)
		pl_ps_evaluator_put(s->evaluator, g->evaluation);
	else
		pl_ps_evaluator_drop(s->evaluator, g->evaluation);
}

/* An action asks for the slices of the others. */
static int gather_begin(struct pl_ps_server *s, struct pl_ps_gather *g, struct pl_err *err)
{
	const struct pl_ps_action a = { .kind = PL_PS_COPY };

	memcpy(g->to, pl_ps_store_weights(s->store), pl_ps_slice_size(s->p, 0) * sizeof(float));
	g->missing = s->p->servers - 1;
	memset(g->has, 0, s->p->servers * sizeof(bool));
	if (!g->missing) {
		gather_end(s, g, true);
		return 0;
	}
	PL_CHECK(pl_ps_others_act(s, &a, err));
	g->number = pl_ps_store_progress(s->store)->actions;
	pl_ps_store_commit(s->store);
	return pl_ps_others_send(s, err);
}

int pl_ps_whole_begin(struct pl_ps_server *s, const struct pl_train_row *row, struct pl_err *err)
{
	struct pl_ps_gather *g = &s->gather[PL_PS_EVALUATIONS];

	if (row) {
		for (g = s->gather; g->number; g++)
			; /* there are as many as evaluations */
		g->evaluation = pl_ps_evaluator_begin(s->evaluator, row, &g->to);
		return gather_begin(s, g, err);
	}
	if (!s->whole)
		PL_CHECK(pl_alloc(&s->whole, pl_ps_vector_size(&s->p->vector), sizeof(float), err));
	g->to = s->whole;
	g->evaluation = -1;
	return gather_begin(s, g, err);
}

bool pl_ps_whole_there(const struct pl_ps_server *s)
{
	return !s->gather[PL_PS_EVALUATIONS].number;
}

/* A slice; of an action that nobody waits for any more: it is ignored. */
static void take_slice(struct pl_ps_server *s, uint32_t k, const struct pl_message *m)
{
	for (int i = 0; i < GATHERS; i++) {
		struct pl_ps_gather *g = &s->gather[i];

		/* a slice of mixed versions comes only on a connection that is lost */
		if (g->number != m->value[3] || !g->number || g->has[k] ||
		    !pl_ps_reply_take(m, g->to + pl_ps_slice_at(s->p, k),
				      pl_ps_slice_size(s->p, k)))
			continue;
		g->has[k] = true;
		if (!--g->missing)
			gather_end(s, g, true);
	}
}

/* The slice of a server that was lost may never come: an evaluation is left out, and what is needed
 * is asked for again. */
static int gather_again(struct pl_ps_server *s, uint32_t k, struct pl_err *err)
{
	for (int i = 0; i < GATHERS; i++) {
		struct pl_ps_gather *g = &s->gather[i];

		if (!g->number || g->has[k])
			continue;
		if (g->evaluation >= 0)
			gather_end(s, g, false);
		else
			PL_CHECK(gather_begin(s, g, err));
	}
	return 0;
}

/* ---- they come and go ------------------------------------------------------------------------ */

static int on_server(struct pl_ps_server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	struct pl_ps_other *o = &s->other[ev->peer];
	uint64_t last = pl_ps_store_progress(s->store)->actions, done = ev->message.value[0];
	struct pl_ps_hello h;
	const char *why = pl_ps_hello_get(s->p, &ev->message, &h);

	if (why) {
		PL_CHECK(pl_ps_server_refuse(s, ev, why, err));
		return pl_fail(err, PL_EDATA, "server %u: %s", ev->peer, why);
	}
	o->connected = true;
	o->connection = ev->connection;
	if (done > last)
		return pl_fail(err, PL_EIO, PL_PS_ANEW, 0);
	if ((o->memory && o->memory != ev->message.value[1]) || last - done > pl_ps_actions(s->p))
		return pl_fail(err, PL_EIO, PL_PS_ANEW, ev->peer);
	o->sent = o->done = done;
	o->memory = ev->message.value[1];
	snprintf(o->at, sizeof(o->at), "%s", h.at[0] ? h.at : "-");
	PL_CHECK(gather_again(s, ev->peer, err));
	PL_CHECK(send_to(s, ev->peer, err));
	return pl_ps_server_welcome(s, err);
}

static int on_have(struct pl_ps_server *s, const struct pl_endpoint_event *ev, struct pl_err *err)
{
	const uint64_t *v = ev->message.value;

	if (v[2] >= s->p->workers)
		return 0;
	s->other[ev->peer].have[v[2]] = (struct kept){ .id = v[0], .session = v[1] };
	return pl_ps_server_try(s, (uint32_t)v[2], err);
}

int pl_ps_others_message(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
			 struct pl_err *err)
{
	struct pl_ps_other *o = &s->other[ev->peer];

	if (ev->message.kind == PL_PS_SERVER)
		return on_server(s, ev, err);
	if (!o->connected || o->connection != ev->connection)
		return 0;
	switch (ev->message.kind) {
	case PL_PS_HAVE:
		return on_have(s, ev, err);
	case PL_PS_DONE:
		o->done = ev->message.value[0];
		o->bytes_sent = ev->message.value[1];
		return 0;
	case PL_PS_REPLY:
		take_slice(s, ev->peer, &ev->message);
		return 0;
	case PL_PS_BYE: /* somebody asked that process to end: the job ends */
		*s->t->stop = *s->t->stop ? *s->t->stop : (int)ev->message.value[0];
		return 0;
	default:
		return pl_fail(err, PL_EIO, "server %u sent an unknown message", ev->peer);
	}
}

int pl_ps_others_lost(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
		      struct pl_err *err)
{
	struct pl_ps_other *o = &s->other[ev->peer];

	if (!o->connected || o->connection != ev->connection)
		return 0;
	if (ev->goodbye)
		return pl_fail(err, PL_EIO, "server %u has given up", ev->peer);
	o->connected = false;
	o->lost = pl_now_ns();
	pl_say(s->log, PL_LOG_WARN, "server %u is lost: %s", ev->peer, ev->why);
	return 0;
}

void pl_ps_others_end(struct pl_ps_server *s)
{
	struct pl_message m = { .kind = PL_PS_END, .body = s->why, .bytes = strlen(s->why) + 1 };
	struct pl_err ignore = { 0 };

	for (uint32_t k = 1; k < s->p->servers; k++)
		if (s->other[k].connected)
			(void)!pl_comm_endpoint_send(s->p->end, s->other[k].connection, &m, NULL,
						     &ignore);
}

void pl_ps_others_over(struct pl_ps_server *s)
{
	const struct pl_message m = { .kind = PL_PS_BYE };
	struct pl_err ignore = { 0 };

	pl_comm_attend_end(s->p->attends);
	for (uint32_t k = 1; k < s->p->servers && s->p->attends; k++)
		if (s->other[k].connected)
			(void)!pl_comm_endpoint_send(s->p->end, s->other[k].connection, &m, NULL,
						     &ignore);
}

int pl_ps_others_check(const struct pl_ps_server *s, pl_ns now, struct pl_err *err)
{
	for (uint32_t k = 1; k < s->p->servers; k++) {
		const struct pl_ps_other *o = &s->other[k];

		if (!o->connected &&
		    (pl_ps_has_ended(s->p, k) || now > o->lost + PL_PS_PATIENCE * s->p->timeout_ns))
			return pl_fail(err, PL_EIO, "server %u is lost, and did not come back", k);
	}
	return 0;
}
