/*
 * Which ranks are which worker: so many successive ones each, or those of one host.
 *
 * Ranks that one process forked know their hosts: those that the job imitates. Where a launcher
 * started them, each tells server 0 on which host it is, and server 0 tells all processes which
 * worker each rank belongs to. A process that is started again asks as well, and the answer is
 * what it was when training began. O(processes) messages, once.
 */
#include "ps/internal.h"

/* A launcher starts ranks on one host after the other: they come within so many timeouts. */
#define LATE 10

uint32_t pl_ps_size(const struct pl_ps *p, uint32_t worker)
{
	return p->places.first[worker + 1] - p->places.first[worker];
}

const uint32_t *pl_ps_ranks(const struct pl_ps *p, uint32_t worker)
{
	return p->places.rank + p->places.first[worker];
}

int64_t pl_ps_member(const struct pl_ps *p, int64_t rank, uint32_t *worker)
{
	int64_t member = 0;

	*worker = p->places.worker[rank];
	while (pl_ps_ranks(p, *worker)[member] != rank)
		member++;
	return member;
}

const char *pl_ps_name_ranks(const struct pl_ps *p, uint32_t worker, char text[PL_PS_RANKS])
{
	char *to = text, *end = text + PL_PS_RANKS - 32; /* one more entry and the end fit */
	const uint32_t *rank;
	uint32_t n;

	text[0] = '\0';
	if (p->workers == p->ranks)
		return text;
	rank = pl_ps_ranks(p, worker);
	n = pl_ps_size(p, worker);
	to += snprintf(to, 16, n > 1 ? " (ranks" : " (rank");
	for (uint32_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && rank[k] == rank[k - 1] + 1;)
			k++;
		if (to > end) {
			to += snprintf(to, 8, " ...");
			break;
		}
		to += snprintf(to, 16, k - i > 1 ? "%s%u-%u" : "%s%u", i ? "," : " ", rank[i],
			       rank[k - 1]);
	}
	snprintf(to, 8, ")");
	return text;
}

/* ---- from the worker of each rank ---------------------------------------------------------------
 */

/* Workers are numbered by their first ranks. PL_EDATA: they are not. */
static int arrange(struct pl_ps *p, struct pl_err *err)
{
	struct pl_ps_places *v = &p->places;
	uint32_t n = 0, at = 0;

	p->workers = 0;
	for (uint32_t r = 0; r < p->ranks; r++) {
		if (v->worker[r] > p->workers)
			return pl_fail(err, PL_EDATA, "server 0 sent places that cannot be");
		p->workers += v->worker[r] == p->workers;
	}
	PL_CHECK(pl_alloc(&v->first, (size_t)p->workers + 1, sizeof(*v->first), err));
	PL_CHECK(pl_alloc(&v->rank, p->ranks, sizeof(*v->rank), err));
	for (; n < p->workers; n++) {
		v->first[n] = at;
		for (uint32_t r = 0; r < p->ranks; r++)
			if (v->worker[r] == n)
				v->rank[at++] = r;
	}
	v->first[n] = at;
	return 0;
}

static void group_by_host(struct pl_ps *p, const uint64_t *host)
{
	uint32_t n = 0, *worker = p->places.worker;

	for (uint32_t r = 0, q; r < p->ranks; r++) {
		for (q = 0; host[q] != host[r];)
			q++;
		worker[r] = q < r ? worker[q] : n++;
	}
}

/* ---- hosts of a launcher --------------------------------------------------------------------- */

struct meeting { /* of server 0 */
	struct pl_endpoint *e;
	uint32_t *connection; /* [process]; 0: it has not come */
	uint64_t *host;	      /* [rank] */
};

static void name_missing(const struct pl_ps *p, const struct meeting *m, char *to, size_t size)
{
	size_t n = 0;

	to[0] = '\0';
	for (uint32_t i = 1; i < p->servers + p->ranks && n + 24 < size; i++) {
		bool server = i < p->servers;

		if (m->connection[i])
			continue;
		n += (size_t)snprintf(to + n, size - n, "%s%s %u", n ? ", " : "",
				      server ? "server" : "rank", server ? i : i - p->servers);
	}
}

static void take_host(struct pl_ps *p, struct meeting *m, const struct pl_endpoint_event *ev,
		      uint32_t *n)
{
	uint32_t process = ev->peer - pl_ps_askers(p);

	if (ev->message.kind != PL_PS_PLACES || process >= p->servers + p->ranks)
		return;
	*n += !m->connection[process];
	m->connection[process] = ev->connection;
	if (process >= p->servers)
		m->host[process - p->servers] = ev->message.value[0];
}

static int refuse(const struct pl_ps *p, const struct meeting *m, const char *missing,
		  struct pl_err *err)
{
	char why[PL_PS_ADDRESS];
	struct pl_message x = { .kind = PL_PS_REFUSED, .body = why };

	x.bytes = (size_t)snprintf(why, sizeof(why), "these never came: %s", missing) + 1;
	for (uint32_t i = 1; i < p->servers + p->ranks; i++)
		if (m->connection[i])
			PL_CHECK(pl_comm_endpoint_send(m->e, m->connection[i], &x, NULL, err));
	return pl_fail(err, PL_EIO, "%s", why);
}

static int collect(struct pl_ps *p, struct meeting *m, struct pl_err *err)
{
	pl_ns until = pl_now_ns() + LATE * p->timeout_ns;
	char missing[PL_PS_ADDRESS - 32];

	for (uint32_t n = 1; n < p->servers + p->ranks;) {
		struct pl_endpoint_event ev;

		PL_CHECK(pl_comm_endpoint_next(m->e, until, &ev, err));
		if (ev.kind == PL_ENDPOINT_MESSAGE) {
			take_host(p, m, &ev, &n);
			pl_comm_endpoint_release(m->e, &ev);
		}
		if (ev.kind != PL_ENDPOINT_NOTHING)
			continue;
		name_missing(p, m, missing, sizeof(missing));
		return refuse(p, m, missing, err);
	}
	return 0;
}

static int answer(const struct pl_ps *p, struct pl_endpoint *e, uint32_t connection,
		  struct pl_err *err)
{
	const struct pl_message m = { .kind = PL_PS_PLACES,
				      .body = p->places.worker,
				      .bytes = p->ranks * sizeof(*p->places.worker) };

	return pl_comm_endpoint_send(e, connection, &m, NULL, err);
}

/* The endpoint is that of this meeting alone; the one of the training is opened afterwards. */
static int lead(struct pl_ps *p, struct pl_err *err)
{
	const struct pl_endpoint_opts o = { .token = p->meeting->token,
					    .listen = p->meeting->at,
					    .bind = p->meeting->bind,
					    .transport = "tcp",
					    .timeout_ns = p->meeting->timeout_ns,
					    .body_max = PL_PS_ADDRESS };
	struct meeting m = { 0 };
	int rc;

	PL_TRY(pl_alloc(&m.connection, (size_t)p->servers + p->ranks, sizeof(*m.connection), err));
	PL_TRY(pl_alloc(&m.host, p->ranks, sizeof(*m.host), err));
	PL_TRY(pl_comm_endpoint_open(&o, &m.e, err));
	PL_TRY(collect(p, &m, err));
	group_by_host(p, m.host);
	for (uint32_t i = 1; i < p->servers + p->ranks; i++)
		PL_TRY(answer(p, m.e, m.connection[i], err));
out:
	pl_comm_endpoint_close(m.e);
	pl_free(m.connection);
	pl_free(m.host);
	return rc;
}

static int follow(struct pl_ps *p, struct pl_err *err)
{
	struct pl_message m = { .kind = PL_PS_PLACES,
				.value = { pl_comm_host_id(p->meeting->host) } };
	size_t bytes = p->ranks * sizeof(*p->places.worker);

	PL_CHECK(pl_ps_ask(p, &m, pl_now_ns() + 2 * LATE * p->timeout_ns, p->places.worker, &bytes,
			   err));
	return bytes == p->ranks * sizeof(*p->places.worker)
		       ? 0
		       : pl_fail(err, PL_EDATA, "server 0 has another number of ranks");
}

int pl_ps_places_answer(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
			struct pl_err *err)
{
	return answer(s->p, s->p->end, ev->connection, err);
}

/* ---- begin and end ----------------------------------------------------------------------------
 */

static int find(struct pl_ps *p, const struct pl_job *j, bool alone, struct pl_err *err)
{
	uint32_t *first;

	PL_CHECK(pl_alloc(&p->places.worker, p->ranks, sizeof(*p->places.worker), err));
	if (j->group < 0 && pl_job_hosts(j->hosts) < 2 && !p->meeting->forked)
		return alone ? 0 : p->meeting->rank ? follow(p, err) : lead(p, err);
	PL_CHECK(pl_job_workers_find(j, &first, err));
	for (uint32_t i = 0; i < (uint32_t)pl_job_workers(j); i++)
		for (uint32_t r = first[i]; r < first[i + 1] && r < p->ranks; r++)
			p->places.worker[r] = i;
	pl_free(first);
	return 0;
}

int pl_ps_places_find(struct pl_ps *p, const struct pl_engine_opts *o, struct pl_err *err)
{
	const struct pl_job *j = o->job;

	PL_CHECK(find(p, j, o->alone, err));
	PL_CHECK(arrange(p, err));
	if (o->alone)
		return 0;
	if (j->min_workers > p->workers)
		return pl_fail(err, PL_EDATA,
			       "min-workers=%lld, but the ranks are %u worker%s; change "
			       "min-workers, or group",
			       (long long)j->min_workers, p->workers, p->workers > 1 ? "s" : "");
	if (j->group < 0 && p->workers == 1 && p->ranks > 1 && !p->meeting->rank)
		pl_say(o->log, PL_LOG_WARN,
		       "group=host: all ranks are on one host, so they are one worker, and the "
		       "policy has nothing to decide");
	return 0;
}

void pl_ps_places_fini(struct pl_ps *p)
{
	pl_free(p->places.worker);
	pl_free(p->places.first);
	pl_free(p->places.rank);
}
