/*
 * The meeting: the ranks find one another, then all pairs of ranks connect.
 *
 * Rank 0 listens at tcp:HOST:PORT. Each other rank connects, sends its own address, and gets the
 * table of all ranks. This connection stays as the control connection of the two. With dir:PATH,
 * rank 0 listens at a free port and writes its address to a file there. Then each rank connects to
 * all lower ranks: for control, and, if data go over TCP, for messages and for each channel. Ranks
 * reach rank 0 by the address at which they met it, so a proxy in front of rank 0 sees all traffic.
 *
 * The side that connects proves that it knows the token: a stranger costs one connection.
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "comm/internal.h"

/* Times for the address in a file, which an earlier run may have left: to connect, until it answers
 * (at least; it may be another program), and between two looks at the token in the folder. */
#define FILE_NS	 50000000
#define GREET_NS 1000000000
#define TOKEN_NS 500000000

struct meeting {
	struct pl_world *w;
	struct pl_err *err;
	pl_ns until, token_at; /* token_at: when to look at the token again */
	char host[256];	       /* of rank 0 */
	int port;	       /* of rank 0; 0: any free port */
	char file[600];	       /* has both; "": both are known */
	struct pl_acceptor acceptor;
};

/* ---- this rank ---- */

uint64_t pl_comm_host_id(const char *of)
{
	char name[256] = "", boot[64], space[64] = "", all[512];
	int n;

	gethostname(name, sizeof(name) - 1);
	pl_read_small("/proc/sys/kernel/random/boot_id", boot, sizeof(boot));
	if (readlink("/proc/self/ns/pid", space, sizeof(space) - 1) < 0)
		space[0] = '\0';
	n = snprintf(all, sizeof(all), "%s %s %s %ld %.128s", name, boot, space, (long)getuid(),
		     of ? of : "");
	return pl_hash(all, pl_min_size((size_t)n, sizeof(all) - 1));
}

/* The file in which rank 0 of the job with this token leaves its address. */
static void name_file(struct meeting *m)
{
	const struct pl_world *w = m->w;

	snprintf(m->file, sizeof(m->file), "%s/paceline-%016llx", w->meet + 4,
		 (unsigned long long)pl_hash(w->token, strlen(w->token)));
}

static int parse_meet(struct meeting *m)
{
	const struct pl_world *w = m->w;

	if (strncmp(w->meet, "dir:", 4) != 0 || !w->meet[4])
		return pl_comm_net_parse(w->meet, m->host, sizeof(m->host), &m->port, m->err);
	name_file(m);
	snprintf(m->host, sizeof(m->host), "127.0.0.1");
	return 0;
}

static int listen_at(struct meeting *m, const char *at, int port)
{
	struct pl_world *w = m->w;
	struct pl_rank_info *me = &w->peer[w->rank].who;
	bool named = m->file[0] || w->o.free_port;
	int rc = pl_comm_net_listen_as(w->o.bind, at, named, &m->acceptor.listener, &port,
				       me->address, m->err);

	me->port = (uint16_t)port;
	return rc < 0 ? pl_wrap(m->err, "meeting") : 0;
}

/* ---- the file ---- */

/* Where rank 0 listens. */
static void name_place(const struct meeting *m, char *to, size_t size)
{
	const struct pl_rank_info *me = &m->w->peer[0].who;

	snprintf(to, size, strchr(me->address, ':') ? "tcp:[%s]:%d" : "tcp:%s:%d", me->address,
		 me->port);
}

static int write_file(struct meeting *m)
{
	char at[150], text[200];

	name_place(m, at, sizeof(at));
	snprintf(text, sizeof(text), "%s %llx", at, (unsigned long long)m->w->peer[0].who.host);
	if (pl_comm_leave_file(AT_FDCWD, m->file, text) < 0)
		return pl_fail_sys(m->err, "meeting: cannot write %s", m->file);
	return 0;
}

static int read_file(struct meeting *m)
{
	char text[200], *host;

	if (pl_read_small(m->file, text, sizeof(text)) <= 0 || !(host = strchr(text, ' ')))
		return pl_fail(m->err, PL_EIO, "it has left no address");
	*host++ = '\0';
	m->w->peer[0].who.host = strtoull(host, NULL, 16);
	return pl_comm_net_parse(text, m->host, sizeof(m->host), &m->port, m->err);
}

/* The reason why a connection to rank r may have failed. */
static int wrap_remedy(struct meeting *m, int r, const char *address)
{
	const struct pl_peer *p = m->w->peer;

	if (!strcmp(address, "127.0.0.1") && p[r].who.host &&
	    p[r].who.host != p[m->w->rank].who.host)
		pl_wrap(m->err, "it is on another host, and listens at its loopback (meet by "
				"tcp:HOST:PORT, or say --bind)");
	return m->err->code;
}

/* ---- rank 0 ---- */

/* List the ranks that are missing, and the connections that were rejected. */
static void list_missing(struct meeting *m, const bool *came, char *text, size_t size)
{
	const struct pl_world *w = m->w;
	pl_ns waited = w->o.meet_ns > 0 ? w->o.meet_ns : w->timeout;
	int n = 0, shown = 0;
	size_t at;

	for (int r = 0; r < w->size; r++)
		n += !came[r];
	at = (size_t)snprintf(text, size, "after %.1f s rank%s", (double)waited / 1e9,
			      n == 1 ? "" : "s");
	for (int r = 0; r < w->size && shown < 16; r++)
		if (!came[r] && ++shown)
			at += (size_t)snprintf(text + at, size - at, " %d", pl_comm_name(w, r));
	if (n > shown)
		at += (size_t)snprintf(text + at, size - at, " and %d more", n - shown);
	at += (size_t)snprintf(text + at, size - at, " never came");
	if (m->acceptor.n_rejected)
		snprintf(text + at, size - at, "; %u connection%s rejected: %s",
			 m->acceptor.n_rejected, m->acceptor.n_rejected == 1 ? " was" : "s were",
			 m->acceptor.rejected);
}

/* The number in messages of a rank that came, perhaps from another job. */
static int name_of(const struct pl_world *w, const struct pl_rank_info *h)
{
	return (int)h->size == w->size ? pl_comm_name(w, (int)h->rank) : (int)h->rank;
}

/* Rank 0 waits for all. */
static int receive_all(struct meeting *m, bool *came)
{
	struct pl_world *w = m->w;
	struct sockaddr_storage at;
	char text[500];

	came[0] = true;
	for (int n = 1; n < w->size;) {
		socklen_t len = sizeof(at);
		struct pl_frame hello;
		struct pl_rank_info *h = &hello.greeting.member;
		struct pl_link link;
		int rc = pl_comm_accept(&m->acceptor, m->until, &hello, &link, m->err);

		if (rc < 0)
			return rc;
		if (rc == 0) {
			list_missing(m, came, text, sizeof(text));
			for (int r = 1; r < w->size; r++)
				if (came[r])
					pl_comm_refuse(&w->peer[r].control, text);
			return pl_fail(m->err, PL_EIO, "meeting at %s: %s", w->meet, text);
		}
		if (hello.greeting.connection || (int)h->size != w->size || came[h->rank]) {
			if ((int)h->size != w->size)
				snprintf(text, sizeof(text), "rank %u of %u is not one of %d",
					 h->rank, h->size, w->size);
			else
				snprintf(text, sizeof(text), "rank %d %s", name_of(w, h),
					 hello.greeting.connection ? "does not meet in order"
								   : "came twice");
			pl_comm_reject(&m->acceptor, text);
			pl_comm_refuse(&link, text);
			continue;
		}
		if (!h->address[0] && getpeername(link.fd, (struct sockaddr *)&at, &len) == 0)
			pl_comm_net_name(&at, len, h->address, sizeof(h->address));
		came[h->rank] = true;
		w->peer[h->rank].control = link;
		w->peer[h->rank].who = *h;
		n++;
	}
	return 0;
}

static int host_meeting(struct meeting *m)
{
	struct pl_world *w = m->w;
	bool *came = NULL;
	int rc = pl_alloc(&came, (size_t)w->size, sizeof(*came), m->err);

	if (rc >= 0)
		rc = receive_all(m, came);
	pl_free(came);
	for (int r = 1; r < w->size && rc >= 0; r++)
		for (int q = 0; q < w->size && rc >= 0; q++) {
			struct pl_frame f = { .kind = PL_FRAME_MEMBER, .member = w->peer[q].who };

			rc = pl_comm_link_write(&w->peer[r].control, &f, m->until + w->timeout,
						m->err);
			if (rc < 0)
				pl_wrap(m->err, "meeting: rank %d", pl_comm_name(w, r));
		}
	return rc;
}

/* ---- the others ---- */

/* Greets rank 0 and reads the table. */
static int get_table(struct meeting *m, struct pl_link *l)
{
	struct pl_world *w = m->w;
	pl_ns until = m->until + w->timeout / 3, greet_until = until;
	int rc;

	if (m->file[0])
		greet_until = pl_min_i64(until, pl_now_ns() + pl_max_i64(w->timeout / 3, GREET_NS));
	rc = pl_comm_link_greet(l, w->token, &w->peer[w->rank].who, 0, greet_until, m->err);

	for (int q = 0; q < w->size && rc >= 0; q++) {
		struct pl_frame f;

		rc = pl_comm_link_read(l, &f, until, m->err);
		if (rc < 0)
			return rc;
		if (f.kind != PL_FRAME_MEMBER || (int)f.member.size != w->size ||
		    f.member.rank != (uint32_t)q)
			return pl_fail(m->err, PL_EDATA, "its table of ranks is damaged");
		if (q != w->rank)
			w->peer[q].who = f.member;
	}
	return rc;
}

/* Other ranks reach this host at the address from which it reaches rank 0: loopback, if rank 0 is
 * met there. If the name of the meeting place means loopback on this host alone, this rank shares
 * the host with rank 0, and others reach it by that name. */
static int listen_as_met(struct meeting *m, int fd)
{
	struct sockaddr_storage at;
	socklen_t len = sizeof(at);
	char name[PL_ADDRESS_MAX] = "127.0.0.1";

	if (strlen(m->host) < PL_ADDRESS_MAX && pl_comm_net_is_alias(m->host))
		return listen_at(m, m->host, 0);
	if (getsockname(fd, (struct sockaddr *)&at, &len) == 0)
		pl_comm_net_name(&at, len, name, sizeof(name));
	return listen_at(m, name, 0);
}

/* The token may be that of an earlier run until rank 0 has replaced it. */
static void look_at_token(struct meeting *m)
{
	struct pl_world *w = m->w;
	pl_ns now = pl_now_ns();

	if (!w->o.launch || now < m->token_at)
		return;
	m->token_at = now + TOKEN_NS;
	if (pl_comm_launch_token(w->o.launch, w->token, sizeof(w->token)))
		name_file(m);
}

static int join_meeting(struct meeting *m)
{
	struct pl_link *l = &m->w->peer[0].control;
	int rc;

	for (;;) {
		pl_ns until = m->file[0] ? pl_now_ns() + FILE_NS : m->until;

		if (m->file[0])
			look_at_token(m);
		rc = m->file[0] ? read_file(m) : 0;
		if (rc >= 0)
			rc = pl_comm_net_connect(m->host, m->port, until, &l->fd, m->err);
		if (rc < 0 && wrap_remedy(m, 0, m->host))
			pl_wrap(m->err, "rank %d never came", pl_comm_name(m->w, 0));
		if (rc >= 0 && m->acceptor.listener < 0 && (rc = listen_as_met(m, l->fd)) < 0)
			return rc;
		if (rc >= 0)
			rc = get_table(m, l);
		/* a forwarder closes without an answer while rank 0 does not listen yet */
		if (rc >= 0 || l->heard || pl_now_ns() > m->until)
			return rc < 0 ? pl_wrap(m->err, "meeting at %s", m->w->meet) : 0;
		pl_comm_link_close(l);
		pl_sleep_ns(m->file[0] ? 5000000 : 50000000);
		m->err->code = 0;
	}
}

/* ---- connections ---- */

/* Find the ranks that share a host, and memory. */
static int place_ranks(struct meeting *m)
{
	struct pl_world *w = m->w;
	uint64_t mine = w->peer[w->rank].who.host;

	for (int r = 0; r < w->size; r++) {
		w->leader_of[r] = r;
		for (int q = r - 1; q >= 0; q--)
			if (w->peer[q].who.host == w->peer[r].who.host)
				w->leader_of[r] = q;
		w->n_hosts += w->leader_of[r] == r;
		if (w->peer[r].who.host != mine)
			continue;
		if (r == w->rank)
			w->local_rank = w->n_local;
		w->local[w->n_local++] = r;
	}
	if (w->n_local > PL_LOCAL_MAX)
		w->shares = false;
	if (w->o.transport && !strcmp(w->o.transport, "shm") &&
	    (!w->shares || w->n_local < w->size))
		return pl_fail(
			m->err, PL_EUSAGE,
			"transport shm: rank %d shares its host with %d of %d ranks (at most "
			"%d); take auto or tcp",
			pl_comm_name(w, w->rank), w->n_local, w->size, PL_LOCAL_MAX);
	w->all_local = w->shares && w->n_local == w->size;
	for (int i = 0; i < w->n_local; i++)
		w->peer[w->local[i]].local = w->shares;
	if (w->o.local_size > 0 && w->o.local_size != w->n_local)
		pl_say(w->o.log, PL_LOG_NOTE,
		       "rank %d: the launcher reports %d ranks on this host, the meeting found "
		       "%d",
		       pl_comm_name(w, w->rank), w->o.local_size, w->n_local);
	return 0;
}

/* The number of data connections to rank r: over TCP one for messages, and the channels. */
static int data_connections(const struct pl_world *w, int r)
{
	return w->peer[r].local || w->library.calls ? 0 : w->n_conns;
}

/* The place for the descriptor of a connection to rank r; number 0: control. */
static int *descriptor(struct pl_world *w, int r, int number)
{
	struct pl_peer *p = &w->peer[r];

	return number ? &p->conn[number - 1].fd : &p->control.fd;
}

static int store_connection(struct meeting *m, int r, int number, struct pl_link *l)
{
	int *to = descriptor(m->w, r, number);
	/* an operation on data may begin late; heartbeats are always read */
	int rc = pl_comm_net_tune(l->fd, number ? PL_NO_TIMEOUT : m->w->timeout, m->err);

	if (rc >= 0 && *to >= 0)
		rc = pl_fail(m->err, PL_EIO, "rank %d connected twice", pl_comm_name(m->w, r));
	if (rc < 0)
		pl_comm_link_close(l);
	else
		*to = l->fd;
	return rc;
}

static int connect_to(struct meeting *m, int r, int number)
{
	struct pl_world *w = m->w;
	const struct pl_rank_info *to = &w->peer[r].who, *me = &w->peer[w->rank].who;
	struct pl_link l = { .fd = -1 };
	int rc = pl_comm_net_connect(r ? to->address : m->host, r ? to->port : m->port, m->until,
				     &l.fd, m->err);

	if (rc >= 0)
		rc = pl_comm_link_greet(&l, w->token, me, (unsigned)number, m->until, m->err);
	if (rc >= 0)
		return store_connection(m, r, number, &l);
	pl_comm_link_close(&l);
	wrap_remedy(m, r, to->address);
	return pl_wrap(m->err, "rank %d", pl_comm_name(w, r));
}

/* Fails with the first higher rank that has not connected. */
static int fail_missing(struct meeting *m)
{
	struct pl_world *w = m->w;

	for (int r = w->rank + 1; r < w->size; r++)
		for (int i = 0; i <= data_connections(w, r); i++)
			if (*descriptor(w, r, i) < 0)
				return pl_fail(m->err, PL_EIO,
					       "meeting: waited %.1f s for rank %d to connect",
					       (double)w->timeout / 1e9, pl_comm_name(w, r));
	return pl_fail(m->err, PL_EINTERNAL, "meeting: lost count");
}

static int accept_rest(struct meeting *m)
{
	struct pl_world *w = m->w;
	int left = 0, rc = 0;

	for (int r = w->rank + 1; r < w->size; r++)
		left += data_connections(w, r) + (w->peer[r].control.fd < 0);
	while (left > 0 && rc >= 0) {
		struct pl_frame hello;
		const struct pl_rank_info *h = &hello.greeting.member;
		struct pl_link link;
		int got = pl_comm_accept(&m->acceptor, m->until, &hello, &link, m->err);

		if (got <= 0)
			return got < 0 ? got : fail_missing(m);
		if ((int)h->rank <= w->rank || (int)h->size != w->size ||
		    hello.greeting.connection > data_connections(w, (int)h->rank)) {
			pl_say(w->o.log, PL_LOG_WARN,
			       "meeting: an unexpected connection of rank %d was rejected",
			       name_of(w, h));
			pl_comm_link_close(&link);
			continue;
		}
		rc = store_connection(m, (int)h->rank, hello.greeting.connection, &link);
		left--;
	}
	return rc;
}

/* All ranks must have the same library. Each compares with rank 0's, so all report the same. */
static int compare_library(struct meeting *m, int r, const struct pl_ready *x,
			   const struct pl_ready *first)
{
	if (m->err->code)
		return m->err->code;
	if (x->code < 0)
		return pl_fail(m->err, x->code, "rank %d: %s", pl_comm_name(m->w, r), x->text);
	if (strcmp(x->text, first->text) != 0)
		return pl_fail(
			m->err, PL_EABSENT,
			"rank %d has %s and rank %d has %s: all ranks of a job need the same "
			"library",
			pl_comm_name(m->w, 0), first->text, pl_comm_name(m->w, r), x->text);
	return 0;
}

/* All ranks are connected. Load the library for operations, if any, and wait for all ranks. */
static int exchange_ready(struct meeting *m)
{
	struct pl_world *w = m->w;
	struct pl_frame mine = { .kind = PL_FRAME_READY, .rank = (uint32_t)w->rank }, f;
	struct pl_ready *own = &mine.ready, *first = &w->library.first;
	struct pl_err e = { 0 };
	int rc = 0;

	if (w->library.calls) {
		own->code = w->library.calls->load(w, &w->library.state, own, &e);
		if (own->code < 0)
			snprintf(own->text, sizeof(own->text), "transport %s: %.300s",
				 w->library.calls->name, e.msg);
		m->until = pl_now_ns() + PL_LIBRARY_LATE * w->timeout;
	}
	for (int r = 0; r < w->size && rc >= 0; r++)
		if (r != w->rank)
			rc = pl_comm_link_write(&w->peer[r].control, &mine, m->until, m->err);
	for (int r = 0; r < w->size && rc >= 0; r++) {
		f = mine;
		if (r != w->rank)
			rc = pl_comm_link_read(&w->peer[r].control, &f, m->until, &e);
		if (rc >= 0 && f.kind != PL_FRAME_READY)
			rc = pl_fail(&e, PL_EDATA, "it is not ready");
		if (rc < 0)
			return pl_fail(m->err, rc, "meeting: rank %d: %s", pl_comm_name(w, r),
				       e.msg);
		*first = r ? *first : f.ready;
		(void)compare_library(m, r, &f.ready, first);
	}
	return rc < 0 ? rc : m->err->code;
}

static int connect_all(struct meeting *m)
{
	struct pl_world *w = m->w;

	PL_CHECK(place_ranks(m));
	m->until = pl_now_ns() + pl_max_i64(w->timeout, w->o.meet_ns);
	for (int r = 0; r < w->rank; r++)
		for (int i = w->peer[r].control.fd >= 0; i <= data_connections(w, r); i++)
			PL_CHECK(connect_to(m, r, i));
	PL_CHECK(accept_rest(m));
	for (int r = 0; r < w->size; r++)
		if (w->peer[r].control.fd >= 0)
			PL_CHECK(pl_comm_net_tune(w->peer[r].control.fd, w->timeout, m->err));
	PL_CHECK(pl_comm_shared_open(w, m->until, m->err));
	return exchange_ready(m);
}

static int begin_hosting(struct meeting *m)
{
	const struct pl_world_opts *o = &m->w->o;
	bool free = o->free_port && !m->file[0];
	char at[150];

	if (free) {
		PL_CHECK(pl_comm_net_route(m->host, sizeof(m->host), m->port, m->err));
		m->port = 0;
	}
	PL_CHECK(listen_at(m, m->host, m->port));
	if (m->file[0])
		return write_file(m);
	name_place(m, at, sizeof(at));
	return free && o->listens ? o->listens(o->listens_arg, at, m->err) : 0;
}

static int prepare(struct meeting *m)
{
	struct pl_world *w = m->w;
	struct pl_rank_info *me = &w->peer[w->rank].who;

	m->until = pl_now_ns() + (w->o.meet_ns > 0 ? w->o.meet_ns : w->timeout);
	PL_CHECK(pl_comm_acceptor_init(&m->acceptor, (size_t)w->size, m->err));
	m->acceptor.token = w->token;
	m->acceptor.log = w->o.log;
	PL_CHECK(parse_meet(m));
	me->rank = (uint32_t)w->rank;
	me->size = (uint32_t)w->size;
	me->host = pl_comm_host_id(w->host);
	me->clock = pl_comm_host_id(NULL);
	return w->rank ? 0 : begin_hosting(m);
}

int pl_comm_meet(struct pl_world *w, struct pl_err *err)
{
	struct meeting m = { .w = w, .err = err, .acceptor.listener = -1 };
	int rc;

	w->n_local = w->size == 1;
	if (w->size == 1)
		return exchange_ready(&m);
	PL_TRY(prepare(&m));
	PL_TRY(w->rank == 0 ? host_meeting(&m) : join_meeting(&m));
	PL_TRY(connect_all(&m));
out:
	if (m.file[0] && w->rank == 0) /* nobody needs it any more */
		unlink(m.file);
	pl_comm_acceptor_fini(&m.acceptor);
	return rc;
}
