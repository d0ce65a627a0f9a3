/*
 * What processes ask server 0 before they train, each with an endpoint that it closes afterwards.
 *
 * Where a group meets, if all processes meet at one address: its first rank listens at a free port
 * of its own host, and server 0 tells the others where.
 */
#include "ps/internal.h"

/* ---- a process that asks -----------------------------------------------------------------------
 */

/* The body of the answer into `to`, *bytes of it at most; *bytes becomes its size. */
static int take_answer(struct pl_endpoint *e, uint32_t kind, pl_ns until, void *to, size_t *bytes,
		       struct pl_err *err)
{
	for (;;) {
		struct pl_endpoint_event ev;
		bool there;

		PL_CHECK(pl_comm_endpoint_next(e, until, &ev, err));
		if (ev.kind == PL_ENDPOINT_NOTHING)
			return pl_fail(err, PL_EIO, "server 0 has not answered");
		if (ev.kind == PL_ENDPOINT_LOST)
			return pl_fail(err, PL_EIO, "server 0: %s", ev.why);
		if (ev.kind == PL_ENDPOINT_MESSAGE && ev.message.kind == PL_PS_REFUSED) {
			pl_fail(err, PL_EIO, "server 0: %.*s",
				(int)pl_min_size(ev.message.bytes, 200),
				ev.message.bytes ? (const char *)ev.message.body : "");
			pl_comm_endpoint_release(e, &ev);
			return err->code;
		}
		there = ev.kind == PL_ENDPOINT_MESSAGE && ev.message.kind == kind &&
			ev.message.bytes <= *bytes;
		if (there) {
			*bytes = ev.message.bytes;
			memcpy(to, ev.message.body, *bytes);
		}
		pl_comm_endpoint_release(e, &ev);
		if (there)
			return 0;
	}
}

int pl_ps_ask(const struct pl_ps *p, const struct pl_message *m, pl_ns until, void *to,
	      size_t *bytes, struct pl_err *err)
{
	const struct pl_engine_meeting *g = p->meeting;
	const struct pl_endpoint_opts o = { .id = pl_ps_askers(p) + (uint32_t)g->rank,
					    .token = g->token,
					    .transport = "tcp",
					    .timeout_ns = g->timeout_ns,
					    .body_max = *bytes > PL_PS_ADDRESS ? *bytes
									       : PL_PS_ADDRESS };
	struct pl_endpoint *e;
	uint32_t connection;
	int rc;

	PL_CHECK(pl_comm_endpoint_open(&o, &e, err));
	PL_TRY(pl_comm_endpoint_connect(e, g->at, 0, until, &connection, err));
	PL_TRY(pl_comm_endpoint_send(e, connection, m, NULL, err));
	rc = take_answer(e, m->kind, until, to, bytes, err);
out:
	pl_comm_endpoint_close(e);
	return rc;
}

/* own: where the world's first rank listens, for server 0; "": it says so, into `at`. */
static int meet(const struct pl_ps *p, const char *own, char at[PL_PS_ADDRESS], struct pl_err *err)
{
	pl_ns until = pl_now_ns() + PL_PS_PATIENCE * p->timeout_ns;
	const struct pl_message m = { .kind = PL_PS_MEET,
				      .value = { pl_ps_number(p) },
				      .body = *own ? own : NULL,
				      .bytes = *own ? strlen(own) + 1 : 0 };
	size_t bytes = PL_PS_ADDRESS;

	PL_CHECK(pl_ps_ask(p, &m, until, at, &bytes, err));
	at[PL_PS_ADDRESS - 1] = '\0';
	return 0;
}

int pl_ps_meet_find(const struct pl_ps *p, char at[PL_PS_ADDRESS], struct pl_err *err)
{
	int rc = meet(p, "", at, err);

	return rc < 0 ? pl_wrap(err, "where to meet rank %u", pl_ps_ranks(p, pl_ps_number(p))[0])
		      : 0;
}

int pl_ps_meet_tell(void *ps, const char *at, struct pl_err *err)
{
	char same[PL_PS_ADDRESS];

	return meet(ps, at, same, err);
}

/* ---- server 0 ---------------------------------------------------------------------------------
 */

/* The address in a MEET; false: there is none. */
static bool address_of(const struct pl_message *m, char at[PL_PS_ADDRESS])
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

	if (ev->message.kind == PL_PS_PLACES)
		return pl_ps_places_answer(s, ev, err);
	if (ev->message.kind != PL_PS_MEET || worker >= s->p->workers) {
		pl_comm_endpoint_drop(s->p->end, ev->connection, "an unknown message");
		return 0;
	}
	g = &s->meets[worker];
	/* one that waits may have gone meanwhile: then nobody reads the answer */
	PL_CHECK(pl_append(&g->waits, &g->n, &g->cap, &ev->connection, sizeof(*g->waits), err));
	if (ev->message.bytes && !address_of(&ev->message, g->at))
		return 0;
	for (; g->at[0] && g->n; g->n--)
		PL_CHECK(tell(s, g->waits[g->n - 1], (uint32_t)worker, err));
	return 0;
}

void pl_ps_meet_lost(struct pl_ps_server *s, uint32_t worker)
{
	s->meets[worker].at[0] = '\0';
}
