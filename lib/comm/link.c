/*
 * Links: connections between two processes that know the same token. A link carries frames.
 *
 * Reading stops at the end of a frame, so the socket can carry other data after the greeting.
 * Frames to send wait in a buffer of the link until the socket takes them.
 */
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include "comm/internal.h"
#include "core/bytes.h"

void pl_comm_link_close(struct pl_link *l)
{
	pl_comm_close(&l->fd);
	l->n_in = l->n_out = 0;
}

bool pl_comm_link_send(struct pl_link *l, const struct pl_frame *f)
{
	uint8_t bytes[PL_FRAME_MAX + 8];
	size_t n = pl_comm_frame_put(bytes, f);

	if (n > sizeof(l->out) - l->n_out)
		return false;
	memcpy(l->out + l->n_out, bytes, n);
	l->n_out += n;
	return true;
}

int pl_comm_link_flush(struct pl_link *l, struct pl_err *err)
{
	while (l->n_out) {
		ssize_t n = send(l->fd, l->out, l->n_out, MSG_NOSIGNAL | MSG_DONTWAIT);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return errno == EAGAIN ? 0 : pl_fail_sys(err, "cannot send to it");
		l->n_out -= (size_t)n;
		memmove(l->out, l->out + n, l->n_out);
	}
	return 0;
}

int pl_comm_link_receive(struct pl_link *l, struct pl_frame *f, struct pl_err *err)
{
	for (;;) {
		int64_t took = pl_comm_frame_get(l->in, l->n_in, f, err);
		size_t want = l->n_in < 8 ? 8 : 8 + pl_le32_get(l->in + 4);
		ssize_t n;

		if (took) {
			l->n_in = 0;
			l->heard = true;
			return took < 0 ? (int)took : 1;
		}
		n = recv(l->fd, l->in + l->n_in, want - l->n_in, MSG_DONTWAIT);
		if (n == 0)
			return pl_fail(err, PL_EIO, "it closed the connection");
		if (n < 0 && (errno == EAGAIN || errno == EINTR))
			return 0;
		if (n < 0)
			return pl_fail_sys(err, "cannot receive from it");
		l->n_in += (size_t)n;
	}
}

int pl_comm_link_write(struct pl_link *l, const struct pl_frame *f, pl_ns until, struct pl_err *err)
{
	int rc = 0;

	if (pl_comm_link_send(l, f))
		rc = pl_comm_link_flush(l, err);
	while (rc >= 0 && l->n_out) {
		if (pl_comm_net_ready(l->fd, POLLOUT, until) <= 0)
			return pl_fail(err, PL_EIO, "it takes nothing");
		rc = pl_comm_link_flush(l, err);
	}
	return rc;
}

int pl_comm_link_read(struct pl_link *l, struct pl_frame *f, pl_ns until, struct pl_err *err)
{
	int rc;

	while ((rc = pl_comm_link_receive(l, f, err)) == 0)
		if (pl_comm_net_ready(l->fd, POLLIN, until) <= 0)
			return pl_fail(err, PL_EIO, "it says nothing");
	if (rc > 0 && f->kind == PL_FRAME_REFUSED)
		rc = pl_fail(err, PL_EIO, "%s", f->text);
	return rc < 0 ? rc : 0;
}

/* ---- greeting ---- */

int pl_comm_link_greet(struct pl_link *l, const char *token, const struct pl_rank_info *who,
		       unsigned connection, pl_ns until, struct pl_err *err)
{
	struct pl_frame hello = { .kind = PL_FRAME_HELLO, .rank = who->rank }, f;
	struct pl_frame proof = { .kind = PL_FRAME_PROOF, .rank = who->rank };
	uint8_t theirs[PL_PROOF_BYTES];
	int rc;

	hello.greeting.member = *who;
	hello.greeting.connection = (uint16_t)connection;
	PL_TRY(pl_comm_random(hello.greeting.nonce, PL_NONCE_BYTES, err));
	PL_TRY(pl_comm_link_write(l, &hello, until, err));
	PL_TRY(pl_comm_link_read(l, &f, until, err));
	pl_comm_prove(token, 'a', &hello, f.greeting.nonce, theirs);
	pl_comm_prove(token, 'c', &hello, f.greeting.nonce, proof.greeting.proof);
	/* the other side gets this proof, too, so that both know the reason */
	PL_TRY(pl_comm_link_write(l, &proof, until, err));
	if (f.kind != PL_FRAME_CHALLENGE || !pl_comm_same_proof(f.greeting.proof, theirs))
		rc = pl_fail(err, PL_EIO, PL_WRONG_TOKEN);
out:
	return rc;
}
