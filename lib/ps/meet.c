/*
 * Where a group meets, if all processes meet at one address: its first rank listens at a free port
 * of its own host, and server 0 tells the others where. For that each rank of a group has an
 * endpoint, which it closes afterwards.
 */
#include "ps/internal.h"

/* ---- a rank -----------------------------------------------------------------------------------
 */

/* own: where the world's first rank listens, for server 0; NULL: it says so, into `at`. */
static int ask(const struct pl_ps *p, struct pl_endpoint *e, const char *own,
	       char at[PL_PS_ADDRESS], struct pl_err *err)
{
	pl_ns until = pl_now_ns() + PL_PS_PATIENCE * p->timeout_ns;
	struct pl_message m = { .kind = PL_PS_MEET,
				.value = { pl_ps_number(p) },
				.body = own,
				.bytes = own ? strlen(own) + 1 : 0 };
	struct pl_endpoint_event ev;
	uint32_t connection;

	PL_CHECK(pl_comm_endpoint_connect(e, p->g.meeting->at, 0, until, &connection, err));
	PL_CHECK(pl_comm_endpoint_send(e, connection, &m, NULL, err));
	for (;;) {
		bool there;

		PL_CHECK(pl_comm_endpoint_next(e, until, &ev, err));
		if (ev.kind == PL_ENDPOINT_NOTHING)
			return pl_fail(err, PL_EIO,
				       "server 0 knows no place to meet: rank 0 has "
				       "never come");
		if (ev.kind == PL_ENDPOINT_LOST)
			return pl_fail(err, PL_EIO, "server 0: %s", ev.why);
		there = ev.kind == PL_ENDPOINT_MESSAGE && ev.message.kind == PL_PS_MEET &&
			pl_ps_meet_address(&ev.message, at);
		pl_comm_endpoint_release(e, &ev);
		if (there)
			return 0;
	}
}

static int meet(const struct pl_ps *p, const char *own, char at[PL_PS_ADDRESS], struct pl_err *err)
{
	const struct pl_engine_meeting *m = p->g.meeting;
	const struct pl_endpoint_opts o = { .id = p->servers + p->workers +
						  pl_ps_number(p) * p->g.size + p->g.member,
					    .token = m->token,
					    .transport = "tcp",
					    .timeout_ns = m->timeout_ns,
					    .body_max = PL_PS_ADDRESS };
	struct pl_endpoint *e;
	int rc;

	PL_CHECK(pl_comm_endpoint_open(&o, &e, err));
	rc = ask(p, e, own, at, err);
	pl_comm_endpoint_close(e);
	return rc;
}

int pl_ps_meet_find(const struct pl_ps *p, char at[PL_PS_ADDRESS], struct pl_err *err)
{
	return meet(p, NULL, at, err);
}

int pl_ps_meet_tell(void *ps, const char *at, struct pl_err *err)
{
	char same[PL_PS_ADDRESS];

	return meet(ps, at, same, err);
}

/* ---- server 0 ---------------------------------------------------------------------------------
 */

bool pl_ps_meet_address(const struct pl_message *m, char at[PL_PS_ADDRESS])
{
	const char *text = m->body;

	if (!m->bytes || m->bytes > PL_PS_ADDRESS || text[m->bytes - 1])
		return false;
	snprintf(at, PL_PS_ADDRESS, "%s", text);
	return at[0] != '\0';
}

static int tell(struct pl_ps_server *s, uint32_t connection, uint32_t worker, struct pl_err *err)
{
	const char *at = s->meets[worker].at;
	struct pl_message m = { .kind = PL_PS_MEET, .body = at, .bytes = strlen(at) + 1 };

	return pl_comm_endpoint_send(s->p->end, connection, &m, NULL, err);
}

int pl_ps_meet_message(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
		       struct pl_err *err)
{
	uint64_t worker = ev->message.value[0];
	struct pl_ps_meets *g;

	if (ev->message.kind != PL_PS_MEET || worker >= s->p->workers) {
		pl_comm_endpoint_drop(s->p->end, ev->connection, "an unknown message");
		return 0;
	}
	g = &s->meets[worker];
	/* one that waits may have gone meanwhile: then nobody reads the answer */
	PL_CHECK(pl_append(&g->waits, &g->n, &g->cap, &ev->connection, sizeof(*g->waits), err));
	if (ev->message.bytes && !pl_ps_meet_address(&ev->message, g->at))
		return 0;
	for (; g->at[0] && g->n; g->n--)
		PL_CHECK(tell(s, g->waits[g->n - 1], (uint32_t)worker, err));
	return 0;
}

void pl_ps_meet_lost(struct pl_ps_server *s, uint32_t worker)
{
	s->meets[worker].at[0] = '\0';
}
