/*
 * The meeting: the ranks find one another, then all pairs of ranks connect.
 *
 * tcp:HOST:PORT: rank 0 listens there. Each other rank connects, says where it listens, and gets
 * the table of all ranks. This connection stays as the control connection of the two. dir:PATH:
 * each rank writes into a file there where it listens, and reads the files of the others. Then each
 * rank connects to all lower ranks: for control, and where data go over TCP, for messages and for
 * each channel. Ranks reach rank 0 by the address at which they met it, so a proxy in front of rank
 * 0 sees all traffic.
 *
 * Who connects proves that it knows the token (protocol.h), so a stranger costs one connection
 * until the meeting ends. A file holds the same proof.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "comm/internal.h"

#define NAP_NS 10000000 /* until what failed may work */

struct meeting {
	struct pl_world *w;
	struct pl_err *err;
	pl_ns until;
	char host[256]; /* of rank 0 */
	int port;
	const char *dir; /* NULL: by tcp */
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

static bool any_address(const char *s)
{
	return !strcmp(s, "0.0.0.0") || !strcmp(s, "::") || !strcmp(s, "*");
}

static int parse_meet(struct meeting *m)
{
	const char *s = m->w->meet, *colon;
	char *end;
	long port;

	if (!strncmp(s, "dir:", 4) && s[4]) {
		m->dir = s + 4;
		return 0;
	}
	if (strncmp(s, "tcp:", 4) != 0 || !(colon = strrchr(s + 4, ':')))
		return pl_fail(m->err, PL_EUSAGE, "meeting \"%s\": tcp:HOST:PORT or dir:PATH", s);
	port = strtol(colon + 1, &end, 10);
	if (end == colon + 1 || *end || port < 1 || port > 65535)
		return pl_fail(m->err, PL_EUSAGE, "meeting \"%s\": ports are 1 to 65535", s);
	m->port = (int)port;
	s += 4;
	if (*s == '[' && colon[-1] == ']') /* [::1]:29500 */
		snprintf(m->host, sizeof(m->host), "%.*s", (int)(colon - s - 2), s + 1);
	else
		snprintf(m->host, sizeof(m->host), "%.*s", (int)(colon - s), s);
	return 0;
}

/* at: an address of this host, or a name by which others reach it */
static int listen_at(struct meeting *m, const char *at)
{
	struct pl_world *w = m->w;
	struct pl_rank_info *me = &w->peer[w->rank].who;
	bool first = w->rank == 0 && !m->dir;
	char own[PL_ADDRESS_MAX], found[PL_ADDRESS_MAX];
	const char *bind = w->o.bind ? w->o.bind : at;
	bool alias = !w->o.bind && pl_comm_net_is_alias(at);
	int port, rc;

	if (w->o.bind && pl_comm_net_interface(bind, own, sizeof(own)))
		bind = own;
	rc = pl_comm_net_listen(alias || any_address(bind) ? "*" : bind, first ? m->port : 0,
				&m->acceptor.listener, &port, found, m->err);
	if (rc < 0)
		return pl_wrap(m->err, "meeting");
	me->rank = (uint32_t)w->rank;
	me->size = (uint32_t)w->size;
	me->host = pl_comm_host_id(w->host);
	me->port = (uint16_t)port;
	if (first)
		return 0; /* others know where */
	if (alias)
		snprintf(me->address, sizeof(me->address), "%s", at);
	else if (!any_address(found))
		snprintf(me->address, sizeof(me->address), "%s", found);
	else if (m->dir)
		gethostname(me->address, sizeof(me->address) - 1);
	return 0;
}

/* ---- tcp: rank 0 ---- */

/* Which ranks never came, and what came instead. */
static void say_missing(struct meeting *m, const bool *came, char *text, size_t size)
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
			at += (size_t)snprintf(text + at, size - at, " %d", r);
	if (n > shown)
		at += (size_t)snprintf(text + at, size - at, " and %d more", n - shown);
	at += (size_t)snprintf(text + at, size - at, " never came");
	if (m->acceptor.n_turned_away)
		snprintf(text + at, size - at, "; %u connection%s turned away: %s",
			 m->acceptor.n_turned_away,
			 m->acceptor.n_turned_away == 1 ? " was" : "s were",
			 m->acceptor.turned_away);
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
			say_missing(m, came, text, sizeof(text));
			for (int r = 1; r < w->size; r++)
				if (came[r])
					pl_comm_refuse(&w->peer[r].control, text);
			return pl_fail(m->err, PL_EIO, "meeting at %s: %s", w->meet, text);
		}
		if (hello.greeting.connection || (int)h->size != w->size || came[h->rank]) {
			snprintf(text, sizeof(text),
				 (int)h->size != w->size     ? "rank %u of %u is not one of %d"
				 : hello.greeting.connection ? "rank %u of %u does not meet in "
							       "order (%d)"
							     : "rank %u of %u came twice (of %d)",
				 h->rank, h->size, w->size);
			pl_comm_turn_away(&m->acceptor, text);
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
				pl_wrap(m->err, "meeting: rank %d", r);
		}
	return rc;
}

/* ---- tcp: the others ---- */

/* Greets rank 0 and reads the table. */
static int ask(struct meeting *m, struct pl_link *l)
{
	struct pl_world *w = m->w;
	pl_ns until = m->until + w->timeout / 3;
	int rc = pl_comm_link_greet(l, w->token, &w->peer[w->rank].who, 0, until, m->err);

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
		return listen_at(m, m->host);
	if (getsockname(fd, (struct sockaddr *)&at, &len) == 0)
		pl_comm_net_name(&at, len, name, sizeof(name));
	return listen_at(m, name);
}

static int attend(struct meeting *m)
{
	struct pl_link *l = &m->w->peer[0].control;
	int rc;

	for (;;) {
		rc = pl_comm_net_connect(m->host, m->port, m->until, &l->fd, m->err);
		if (rc < 0)
			return pl_wrap(m->err, "meeting: rank 0 never came");
		rc = m->acceptor.listener < 0 ? listen_as_met(m, l->fd) : 0;
		if (rc < 0)
			return rc;
		rc = ask(m, l);
		/* a forwarder closes without an answer while rank 0 does not listen yet */
		if (rc >= 0 || l->heard || pl_now_ns() > m->until)
			break;
		pl_comm_link_close(l);
		pl_sleep_ns(50000000);
		m->err->code = 0;
	}
	return rc < 0 ? pl_wrap(m->err, "meeting: rank 0 at %s", m->w->meet) : 0;
}

/* ---- dir ---- */

static void file_of(const struct meeting *m, int rank, const char *tail, char *path, size_t size)
{
	const struct pl_world *w = m->w;

	snprintf(path, size, "%s/paceline-%016llx-%d%s", m->dir,
		 (unsigned long long)pl_hash(w->token, strlen(w->token)), rank, tail);
}

static int write_own(struct meeting *m)
{
	struct pl_world *w = m->w;
	char path[600], temp[600];
	uint8_t bytes[2 * (PL_FRAME_MAX + 8)];
	struct pl_frame hello = { .kind = PL_FRAME_HELLO }, proof = { .kind = PL_FRAME_PROOF };
	static const uint8_t no_nonce[PL_NONCE_BYTES];
	size_t n;
	int fd;
	bool ok;

	file_of(m, w->rank, "", path, sizeof(path));
	file_of(m, w->rank, ".new", temp, sizeof(temp));
	hello.greeting.member = w->peer[w->rank].who;
	pl_comm_prove(w->token, 'f', &hello, no_nonce, proof.greeting.proof);
	n = pl_comm_frame_put(bytes, &hello);
	n += pl_comm_frame_put(bytes + n, &proof);
	fd = pl_fail_now() ? -1 : open(temp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (fd < 0)
		return pl_fail_sys(m->err, "meeting: cannot write %s", temp);
	ok = write(fd, bytes, n) == (ssize_t)n;
	ok &= close(fd) == 0;
	if (!ok || rename(temp, path) < 0) {
		pl_fail_sys(m->err, "meeting: cannot write %s", path);
		unlink(temp);
		return PL_EIO;
	}
	return 0;
}

static bool read_other(struct meeting *m, int rank)
{
	char path[600];
	uint8_t bytes[2 * (PL_FRAME_MAX + 8) + 1], want[PL_PROOF_BYTES];
	static const uint8_t no_nonce[PL_NONCE_BYTES];
	struct pl_frame hello, proof;
	const struct pl_rank_info *h = &hello.greeting.member;
	int64_t first, n;

	file_of(m, rank, "", path, sizeof(path));
	n = pl_read_small(path, bytes, sizeof(bytes));
	first = n > 0 ? pl_comm_frame_get(bytes, (size_t)n, &hello, NULL) : 0;
	if (first <= 0 || hello.kind != PL_FRAME_HELLO || (int)h->rank != rank ||
	    (int)h->size != m->w->size ||
	    pl_comm_frame_get(bytes + first, (size_t)(n - first), &proof, NULL) <= 0)
		return false;
	pl_comm_prove(m->w->token, 'f', &hello, no_nonce, want);
	if (proof.kind != PL_FRAME_PROOF || !pl_comm_same_proof(proof.greeting.proof, want))
		return false;
	m->w->peer[rank].who = *h;
	return true;
}

static int meet_in_dir(struct meeting *m)
{
	struct pl_world *w = m->w;
	char text[500];
	bool *came = NULL;
	int n = 1, rc = write_own(m);

	if (rc >= 0)
		rc = pl_alloc(&came, (size_t)w->size, sizeof(*came), m->err);
	if (rc < 0)
		return rc;
	came[w->rank] = true;
	while (n < w->size) {
		for (int r = 0; r < w->size; r++)
			if (!came[r] && read_other(m, r))
				came[r] = true, n++;
		if (n == w->size)
			break;
		if (pl_now_ns() > m->until) {
			say_missing(m, came, text, sizeof(text));
			rc = pl_fail(m->err, PL_EIO, "meeting at %s: %s", w->meet, text);
			break;
		}
		pl_sleep_ns(5000000);
	}
	pl_free(came);
	return rc;
}

/* ---- connections ---- */

/* Which ranks share a host, and memory. */
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
			w->rank, w->n_local, w->size, PL_LOCAL_MAX);
	w->all_local = w->shares && w->n_local == w->size;
	for (int i = 0; i < w->n_local; i++)
		w->peer[w->local[i]].local = w->shares;
	if (w->o.local_size > 0 && w->o.local_size != w->n_local)
		pl_say(w->o.log, PL_LOG_NOTE,
		       "rank %d: the launcher speaks of %d ranks on this host, the meeting found "
		       "%d",
		       w->rank, w->o.local_size, w->n_local);
	return 0;
}

/* How many connections to rank r carry data: over TCP one for messages, and the channels. */
static int data_connections(const struct pl_world *w, int r)
{
	return w->peer[r].local || w->carry.by ? 0 : w->n_conns;
}

/* Where the descriptor of a connection to rank r belongs; number 0: control. */
static int *descriptor(struct pl_world *w, int r, int number)
{
	struct pl_peer *p = &w->peer[r];

	return number ? &p->conn[number - 1].fd : &p->control.fd;
}

static int keep(struct meeting *m, int r, int number, struct pl_link *l)
{
	int *to = descriptor(m->w, r, number);
	int rc = pl_comm_net_tune(l->fd, m->w->timeout, m->err);

	if (rc >= 0 && *to >= 0)
		rc = pl_fail(m->err, PL_EIO, "rank %d connected twice", r);
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
	bool first = r == 0 && !m->dir;
	struct pl_link l = { .fd = -1 };

	for (;;) {
		struct pl_err e = { 0 };
		/* a file of an earlier run may lie there still */
		pl_ns until = m->dir ? pl_now_ns() + 50000000 : m->until;
		int rc = pl_comm_net_connect(first ? m->host : to->address,
					     first ? m->port : to->port, until, &l.fd, &e);

		if (rc >= 0)
			rc = pl_comm_link_greet(&l, w->token, me, (unsigned)number, m->until, &e);
		if (rc >= 0)
			return keep(m, r, number, &l);
		pl_comm_link_close(&l);
		if (!m->dir || pl_now_ns() > m->until)
			return pl_fail(m->err, PL_EIO, "rank %d: %s%s", r, e.msg,
				       !strcmp(to->address, "127.0.0.1") && to->host != me->host
					       ? " (it is on another host, and listens "
						 "at its loopback; meet by "
						 "tcp:HOST:PORT, or say --bind)"
					       : "");
		if (!read_other(m, r))
			pl_sleep_ns(NAP_NS);
	}
}

/* The first connection to a higher rank that has not come: waits for it no longer. */
static int missed(struct meeting *m)
{
	struct pl_world *w = m->w;

	for (int r = w->rank + 1; r < w->size; r++)
		for (int i = 0; i <= data_connections(w, r); i++)
			if (*descriptor(w, r, i) < 0)
				return pl_fail(m->err, PL_EIO,
					       "meeting: waited %.1f s for rank %d to connect",
					       (double)w->timeout / 1e9, r);
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
			return got < 0 ? got : missed(m);
		if ((int)h->rank <= w->rank || (int)h->size != w->size ||
		    hello.greeting.connection > data_connections(w, (int)h->rank)) {
			pl_say(w->o.log, PL_LOG_WARN,
			       "meeting: an unexpected connection of rank %u was turned away",
			       h->rank);
			pl_comm_link_close(&link);
			continue;
		}
		rc = keep(m, (int)h->rank, hello.greeting.connection, &link);
		left--;
	}
	return rc;
}

static int say_ready(struct meeting *m)
{
	struct pl_world *w = m->w;
	struct pl_frame f = { .kind = PL_FRAME_READY, .rank = (uint32_t)w->rank };
	int rc = 0;

	for (int i = 0; i < 2 * w->size && rc >= 0; i++) {
		int r = i % w->size;

		if (r == w->rank)
			continue;
		if (i < w->size)
			rc = pl_comm_link_write(&w->peer[r].control, &f, m->until, m->err);
		else
			rc = pl_comm_link_read(&w->peer[r].control, &f, m->until, m->err);
		if (rc >= 0 && f.kind != PL_FRAME_READY)
			rc = pl_fail(m->err, PL_EDATA, "it is not ready");
		if (rc < 0)
			pl_wrap(m->err, "meeting: rank %d", r);
	}
	return rc;
}

static int connect_all(struct meeting *m)
{
	struct pl_world *w = m->w;
	int rc = place_ranks(m);

	m->until = pl_now_ns() + pl_max_i64(w->timeout, w->o.meet_ns);
	for (int r = 0; r < w->rank && rc >= 0; r++)
		for (int i = w->peer[r].control.fd >= 0; i <= data_connections(w, r) && rc >= 0;
		     i++)
			rc = connect_to(m, r, i);
	if (rc >= 0)
		rc = accept_rest(m);
	for (int r = 0; r < w->size && rc >= 0; r++)
		if (w->peer[r].control.fd >= 0)
			rc = pl_comm_net_tune(w->peer[r].control.fd, w->timeout, m->err);
	if (rc >= 0)
		rc = pl_comm_shared_open(w, m->until, m->err);
	if (rc >= 0)
		rc = say_ready(m);
	return rc;
}

static int prepare(struct meeting *m)
{
	struct pl_world *w = m->w;
	int rc;

	m->until = pl_now_ns() + (w->o.meet_ns > 0 ? w->o.meet_ns : w->timeout);
	PL_TRY(pl_comm_acceptor_init(&m->acceptor, (size_t)w->size, m->err));
	m->acceptor.token = w->token;
	m->acceptor.log = w->o.log;
	PL_TRY(parse_meet(m));
	if (m->dir || w->rank == 0)
		PL_TRY(listen_at(m, m->dir ? "127.0.0.1" : m->host));
out:
	return rc;
}

int pl_comm_meet(struct pl_world *w, struct pl_err *err)
{
	struct meeting m = { .w = w, .err = err, .acceptor.listener = -1 };
	char path[600];
	int rc;

	w->n_local = w->size == 1;
	if (w->size == 1)
		return 0;
	rc = prepare(&m);
	if (rc >= 0 && m.dir)
		rc = meet_in_dir(&m);
	else if (rc >= 0)
		rc = w->rank == 0 ? host_meeting(&m) : attend(&m);
	if (rc >= 0)
		rc = connect_all(&m);
	if (m.dir) { /* all are connected: nobody needs it any more */
		file_of(&m, w->rank, "", path, sizeof(path));
		unlink(path);
	}
	pl_comm_acceptor_fini(&m.acceptor);
	return rc;
}
