/*
 * The protocol, byte by byte. No length that a message claims is trusted: fields have fixed places,
 * the only variable part (a text, at most 511 bytes) ends where its frame ends.
 */
#include <string.h>

#include "comm/comm.h"
#include "comm/proto.h"

static const char hello_magic[8] = "PLCOMM2\n";
#define HEAD_MAGIC 0x314d4c50u /* "PLM1" */

static void put(uint8_t *p, uint64_t v, int bytes)
{
	for (int i = 0; i < bytes; i++)
		p[i] = (uint8_t)(v >> (8 * i));
}

static uint64_t get(const uint8_t *p, int bytes)
{
	uint64_t v = 0;

	for (int i = 0; i < bytes; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* Time does not tell how much of the token was right. */
static bool same_token(const uint8_t *p, const char *token)
{
	uint8_t want[PL_TOKEN_MAX] = { 0 };
	unsigned diff = 0;

	memcpy(want, token, strnlen(token, PL_TOKEN_MAX));
	for (size_t i = 0; i < PL_TOKEN_MAX; i++)
		diff |= (unsigned)(p[i] ^ want[i]);
	return !diff;
}

/* ---- hello: magic 8, token 128, then member() ---- */

#define MEMBER_BYTES (1 + 2 + 4 + 4 + 8 + 2 + PL_ADDRESS_MAX)

static void put_member(uint8_t *p, const struct pl_hello *h)
{
	put(p, h->lane, 1);
	put(p + 1, h->channel, 2);
	put(p + 3, h->rank, 4);
	put(p + 7, h->size, 4);
	put(p + 11, h->host, 8);
	put(p + 19, h->port, 2);
	memset(p + 21, 0, PL_ADDRESS_MAX);
	memcpy(p + 21, h->address, strnlen(h->address, PL_ADDRESS_MAX - 1));
}

static int get_member(const uint8_t *p, struct pl_hello *h, struct pl_err *err)
{
	h->lane = p[0];
	h->channel = (uint16_t)get(p + 1, 2);
	h->rank = (uint32_t)get(p + 3, 4);
	h->size = (uint32_t)get(p + 7, 4);
	h->host = get(p + 11, 8);
	h->port = (uint16_t)get(p + 19, 2);
	memcpy(h->address, p + 21, PL_ADDRESS_MAX);
	if (h->lane >= PL_LANE_COUNT_)
		return pl_fail(err, PL_EDATA, "connection of unknown kind %u", h->lane);
	if (h->size == 0 || h->size > PL_RANKS_MAX || h->rank >= h->size)
		return pl_fail(err, PL_EDATA, "rank %u of %u is out of range", h->rank, h->size);
	if (!memchr(h->address, 0, PL_ADDRESS_MAX))
		return pl_fail(err, PL_EDATA, "address without an end");
	for (const char *c = h->address; *c; c++)
		if (*c <= ' ' || *c > '~')
			return pl_fail(err, PL_EDATA, "address with odd characters");
	return 0;
}

void pl_comm_hello_put(uint8_t *to, const char *token, const struct pl_hello *h)
{
	memset(to, 0, PL_HELLO_BYTES);
	memcpy(to, hello_magic, sizeof(hello_magic));
	memcpy(to + 8, token, strnlen(token, PL_TOKEN_MAX));
	put_member(to + 8 + PL_TOKEN_MAX, h);
}

int pl_comm_hello_get(const uint8_t *p, size_t n, const char *token, struct pl_hello *h,
		      struct pl_err *err)
{
	if (n < PL_HELLO_BYTES)
		return pl_fail(err, PL_EDATA, "greeting of %zu bytes", n);
	if (memcmp(p, hello_magic, sizeof(hello_magic)) != 0)
		return pl_fail(err, PL_EDATA,
			       "not a rank of this version (another program at this port?)");
	if (!same_token(p + 8, token))
		return pl_fail(err, PL_EUSAGE,
			       "wrong token (give all ranks of the job the same PACELINE_TOKEN, "
			       "and another job another port)");
	return get_member(p + 8 + PL_TOKEN_MAX, h, err);
}

/* ---- frames ---- */

#define BEAT_BYTES 40

size_t pl_comm_frame_put(uint8_t *to, const struct pl_frame *f)
{
	uint8_t *p = to + 8;
	size_t n = 4;

	put(p, f->rank, 4);
	p += 4;
	switch (f->kind) {
	case PL_FRAME_MEMBER:
		put_member(p, &f->member);
		n += MEMBER_BYTES;
		break;
	case PL_FRAME_MEMORY:
		put(p, (uint64_t)f->memory.pid, 8);
		put(p + 8, (uint64_t)f->memory.fd, 8);
		put(p + 16, f->memory.bytes, 8);
		n += 24;
		break;
	case PL_FRAME_BEAT:
		put(p, f->beat.begun, 8);
		put(p + 8, f->beat.messages, 8);
		put(p + 16, f->beat.bytes, 8);
		put(p + 24, f->beat.listed, 8);
		put(p + 32, f->beat.digest, 8);
		n += BEAT_BYTES;
		break;
	case PL_FRAME_NOTE:
		put(p, f->note.turn, 4);
		memcpy(p + 4, f->note.data, pl_min_size(f->note.bytes, PL_NOTE_MAX));
		n += 4 + pl_min_size(f->note.bytes, PL_NOTE_MAX);
		break;
	case PL_FRAME_REFUSED:
	case PL_FRAME_ABORT: {
		size_t text = strnlen(f->text, sizeof(f->text) - 1);

		memcpy(p, f->text, text);
		n += text;
		break;
	}
	default:
		break;
	}
	put(to, f->kind, 4);
	put(to + 4, n, 4);
	return n + 8;
}

/* What comes from elsewhere may end in a terminal. */
static void get_text(const uint8_t *p, size_t n, struct pl_frame *f)
{
	n = pl_min_size(n, sizeof(f->text) - 1);
	for (size_t i = 0; i < n; i++)
		f->text[i] = p[i] < ' ' || p[i] == 127 ? '?' : (char)p[i];
	f->text[n] = '\0';
}

int64_t pl_comm_frame_get(const uint8_t *p, size_t n, struct pl_frame *f, struct pl_err *err)
{
	uint64_t kind, bytes;
	int rc = 0;

	if (n < 8)
		return 0;
	kind = get(p, 4);
	bytes = get(p + 4, 4);
	if (kind == 0 || kind >= PL_FRAME_COUNT_ || bytes < 4 || bytes > PL_FRAME_MAX)
		return pl_fail(err, PL_EDATA, "message of kind %llu with %llu bytes",
			       (unsigned long long)kind, (unsigned long long)bytes);
	if (n < bytes + 8)
		return 0;
	memset(f, 0, sizeof(*f));
	f->kind = (uint8_t)kind;
	f->rank = (uint32_t)get(p + 8, 4);
	p += 12;
	n = (size_t)bytes - 4;
	if ((kind == PL_FRAME_MEMBER && n != MEMBER_BYTES) ||
	    (kind == PL_FRAME_MEMORY && n != 24) || (kind == PL_FRAME_BEAT && n != BEAT_BYTES) ||
	    (kind == PL_FRAME_NOTE && (n < 4 || n > 4 + PL_NOTE_MAX)))
		return pl_fail(err, PL_EDATA, "message of kind %llu with %llu bytes",
			       (unsigned long long)kind, (unsigned long long)bytes);
	if (kind == PL_FRAME_MEMBER) {
		rc = get_member(p, &f->member, err);
	} else if (kind == PL_FRAME_MEMORY) {
		f->memory.pid = (int64_t)get(p, 8);
		f->memory.fd = (int64_t)get(p + 8, 8);
		f->memory.bytes = get(p + 16, 8);
	} else if (kind == PL_FRAME_BEAT) {
		f->beat.begun = get(p, 8);
		f->beat.messages = get(p + 8, 8);
		f->beat.bytes = get(p + 16, 8);
		f->beat.listed = get(p + 24, 8);
		f->beat.digest = get(p + 32, 8);
	} else if (kind == PL_FRAME_NOTE) {
		f->note.turn = (uint32_t)get(p, 4);
		f->note.bytes = (uint32_t)n - 4;
		memcpy(f->note.data, p + 4, n - 4);
	} else if (kind == PL_FRAME_REFUSED || kind == PL_FRAME_ABORT) {
		get_text(p, n, f);
	}
	return rc < 0 ? rc : (int64_t)bytes + 8;
}

/* ---- heads of data ---- */

void pl_comm_head_put(uint8_t *to, const struct pl_head *h)
{
	put(to, HEAD_MAGIC, 4);
	put(to + 4, h->op, 2);
	put(to + 6, h->algo, 2);
	put(to + 8, h->chunk, 4);
	put(to + 12, h->bytes, 4);
	put(to + 16, h->seq, 8);
	put(to + 24, h->tag, 8);
}

int pl_comm_head_get(const uint8_t *p, struct pl_head *h, struct pl_err *err)
{
	uint64_t op = get(p + 4, 2), algo = get(p + 6, 2);

	if (get(p, 4) != HEAD_MAGIC || op >= PL_OP_COUNT_ || algo >= PL_CA_COUNT_)
		return pl_fail(err, PL_EDATA, "what came is no piece of data");
	h->op = (uint8_t)op;
	h->algo = (uint8_t)algo;
	h->chunk = (uint32_t)get(p + 8, 4);
	h->bytes = (uint32_t)get(p + 12, 4);
	h->seq = get(p + 16, 8);
	h->tag = get(p + 24, 8);
	return 0;
}
