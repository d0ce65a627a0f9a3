/*
 * The protocol, byte by byte. One function describes each message, for both directions. Lengths in
 * a message are not trusted: fields have fixed places, and the only variable part (a text at the
 * end) ends where its frame ends.
 */
#include "comm/protocol.h"
#include "comm/comm.h"

static const char hello_magic[8] = "PLCOMM4\n"; /* with the version of the protocol */
#define HEADER_MAGIC 0x324d4c50u		/* "PLM2" */
#define HEAD_MAGIC   0x31454c50u		/* "PLE1" */

/* Writes fields to, or reads them from, the bytes at p. */
struct codec {
	uint8_t *p;	  /* place of the next field to write; NULL: reading */
	const uint8_t *q; /* place of the next field to read */
	size_t n;	  /* bytes written so far, or left to read */
	bool bad;	  /* the frame was shorter than its fields */
};

static void field(struct codec *c, void *v, size_t n)
{
	if (c->p) {
		memcpy(c->p + c->n, v, n);
		c->n += n;
		return;
	}
	c->bad |= n > c->n;
	if (c->bad)
		return;
	memcpy(v, c->q, n);
	c->q += n;
	c->n -= n;
}

/* Write v, or return the number that was read. */
static uint64_t number(struct codec *c, uint64_t v, size_t n)
{
	uint8_t p[8] = { 0 };

	for (size_t i = 0; i < n; i++)
		p[i] = (uint8_t)(v >> (8 * i));
	field(c, p, n);
	v = 0;
	for (size_t i = 0; i < n; i++)
		v |= (uint64_t)p[i] << (8 * i);
	return v;
}

/* ---- frames ---- */

static void member(struct codec *c, struct pl_rank_info *m)
{
	m->rank = (uint32_t)number(c, m->rank, 4);
	m->size = (uint32_t)number(c, m->size, 4);
	m->host = number(c, m->host, 8);
	m->clock = number(c, m->clock, 8);
	m->port = (uint16_t)number(c, m->port, 2);
	field(c, m->address, PL_ADDRESS_MAX);
}

/* A text up to the end of the frame, without control characters, as a terminal may show it. */
static void text(struct codec *c, char *s, size_t size)
{
	size_t n = c->p ? strnlen(s, size - 1) : pl_min_size(c->n, size - 1);

	field(c, s, n);
	if (c->p)
		return;
	c->n = 0;
	s[n] = '\0';
	for (; n--; s++)
		if ((uint8_t)*s < ' ' || *s == 127)
			*s = '?';
}

static void fields(struct codec *c, struct pl_frame *f)
{
	char magic[sizeof(hello_magic)];

	f->rank = (uint32_t)number(c, f->rank, 4);
	switch (f->kind) {
	case PL_FRAME_HELLO:
		memcpy(magic, hello_magic, sizeof(magic));
		field(c, magic, sizeof(magic));
		c->bad |= memcmp(magic, hello_magic, sizeof(magic)) != 0;
		field(c, f->greeting.nonce, PL_NONCE_BYTES);
		f->greeting.connection = (uint16_t)number(c, f->greeting.connection, 2);
		member(c, &f->greeting.member);
		break;
	case PL_FRAME_CHALLENGE:
		field(c, f->greeting.nonce, PL_NONCE_BYTES);
		field(c, f->greeting.proof, PL_PROOF_BYTES);
		break;
	case PL_FRAME_PROOF:
		field(c, f->greeting.proof, PL_PROOF_BYTES);
		break;
	case PL_FRAME_MEMBER:
		member(c, &f->member);
		break;
	case PL_FRAME_MEMORY:
		f->memory.pid = (int64_t)number(c, (uint64_t)f->memory.pid, 8);
		f->memory.fd = (int64_t)number(c, (uint64_t)f->memory.fd, 8);
		f->memory.bytes = number(c, f->memory.bytes, 8);
		break;
	case PL_FRAME_HEARTBEAT:
		f->heartbeat.begun = number(c, f->heartbeat.begun, 8);
		f->heartbeat.messages = number(c, f->heartbeat.messages, 8);
		f->heartbeat.bytes = number(c, f->heartbeat.bytes, 8);
		f->heartbeat.compared = number(c, f->heartbeat.compared, 8);
		f->heartbeat.digest = number(c, f->heartbeat.digest, 8);
		break;
	case PL_FRAME_READY:
		f->ready.code = (int32_t)number(c, (uint32_t)f->ready.code, 4);
		field(c, f->ready.id, sizeof(f->ready.id));
		text(c, f->ready.text, sizeof(f->ready.text));
		break;
	case PL_FRAME_ENDPOINT:
		f->endpoint.host = number(c, f->endpoint.host, 8);
		f->endpoint.pid = (int64_t)number(c, (uint64_t)f->endpoint.pid, 8);
		f->endpoint.fd = (int64_t)number(c, (uint64_t)f->endpoint.fd, 8);
		f->endpoint.nonce = number(c, f->endpoint.nonce, 8);
		f->endpoint.timeout = (int64_t)number(c, (uint64_t)f->endpoint.timeout, 8);
		break;
	case PL_FRAME_REFUSED:
	case PL_FRAME_ABORT:
		text(c, f->text, sizeof(f->text));
		break;
	default:
		break;
	}
}

size_t pl_comm_frame_put(uint8_t *to, const struct pl_frame *f)
{
	struct pl_frame copy = *f;
	struct codec c = { .p = to };
	size_t n;

	number(&c, f->kind, 4);
	number(&c, 0, 4);
	fields(&c, &copy);
	n = c.n;
	c.n = 4;
	number(&c, n - 8, 4);
	return n;
}

static int check_member(const struct pl_rank_info *m, struct pl_err *err)
{
	if (m->size == 0 || m->size > PL_RANKS_MAX || m->rank >= m->size)
		return pl_fail(err, PL_EDATA, "rank %u of %u is out of range", m->rank, m->size);
	if (!memchr(m->address, 0, PL_ADDRESS_MAX))
		return pl_fail(err, PL_EDATA, "address without an end");
	for (const char *c = m->address; *c; c++)
		if (*c <= ' ' || *c > '~')
			return pl_fail(err, PL_EDATA, "address with odd characters");
	return 0;
}

int64_t pl_comm_frame_get(const uint8_t *p, size_t n, struct pl_frame *f, struct pl_err *err)
{
	struct codec c = { .q = p, .n = n };
	uint64_t kind, bytes;
	int rc = 0;

	if (n < 8)
		return 0;
	kind = number(&c, 0, 4);
	bytes = number(&c, 0, 4);
	c.bad = kind == 0 || kind >= PL_FRAME_COUNT_ || bytes < 4 || bytes > PL_FRAME_MAX;
	if (!c.bad && n < bytes + 8)
		return 0;
	memset(f, 0, sizeof(*f));
	f->kind = (uint8_t)kind;
	c.n = bytes;
	if (!c.bad)
		fields(&c, f);
	if (c.bad || c.n)
		return pl_fail(
			err, PL_EDATA,
			"message of kind %llu with %llu bytes, which no rank of this version "
			"sends (another program at this port?)",
			(unsigned long long)kind, (unsigned long long)bytes);
	if (kind == PL_FRAME_MEMBER || kind == PL_FRAME_HELLO)
		rc = check_member(kind == PL_FRAME_HELLO ? &f->greeting.member : &f->member, err);
	return rc < 0 ? rc : (int64_t)bytes + 8;
}

/* ---- headers of data ---- */

static void header(struct codec *c, struct pl_header *h)
{
	uint64_t magic = number(c, HEADER_MAGIC, 4), op = number(c, h->op, 2),
		 algo = number(c, h->algo, 2);

	c->bad = magic != HEADER_MAGIC || op >= PL_OP_COUNT_ || algo >= PL_CA_COUNT_;
	h->op = (uint8_t)op;
	h->algo = (uint8_t)algo;
	h->chunk = (uint32_t)number(c, h->chunk, 4);
	h->bytes = (uint32_t)number(c, h->bytes, 4);
	h->seq = number(c, h->seq, 8);
	h->tag = number(c, h->tag, 8);
	h->due = (int64_t)number(c, (uint64_t)h->due, 8);
}

void pl_comm_header_put(uint8_t *to, const struct pl_header *h)
{
	struct pl_header copy = *h;

	header(&(struct codec){ .p = to }, &copy);
}

int pl_comm_header_get(const uint8_t *p, struct pl_header *h, struct pl_err *err)
{
	struct codec c = { .q = p, .n = PL_HEADER_BYTES };

	header(&c, h);
	return c.bad ? pl_fail(err, PL_EDATA, "what came is no piece of data") : 0;
}

/* ---- heads ---- */

static void head(struct codec *c, struct pl_head *h)
{
	uint64_t magic = number(c, HEAD_MAGIC, 4), type = number(c, h->type, 4);

	c->bad |= magic != HEAD_MAGIC || type == 0 || type >= PL_HEAD_COUNT_;
	h->type = (uint8_t)type;
	h->kind = (uint32_t)number(c, h->kind, 4);
	h->region = (uint32_t)number(c, h->region, 4);
	h->at = number(c, h->at, 8);
	h->bytes = number(c, h->bytes, 8);
	for (size_t i = 0; i < PL_LEN(h->value); i++)
		h->value[i] = number(c, h->value[i], 8);
}

void pl_comm_head_put(uint8_t *to, const struct pl_head *h)
{
	struct pl_head copy = *h;

	head(&(struct codec){ .p = to }, &copy);
}

int pl_comm_head_get(const uint8_t *p, struct pl_head *h, struct pl_err *err)
{
	struct codec c = { .q = p, .n = PL_HEAD_BYTES };
	bool message, region, at, bytes, bad;

	head(&c, h);
	if (c.bad)
		return pl_fail(err, PL_EDATA, "what came is no message");
	message = h->type == PL_HEAD_MESSAGE || h->type == PL_HEAD_REFERENCE;
	region = h->type == PL_HEAD_REFERENCE || h->type == PL_HEAD_REGION ||
		 h->type == PL_HEAD_FORGET;
	at = h->type == PL_HEAD_REFERENCE || h->type == PL_HEAD_REGION ||
	     h->type == PL_HEAD_RELEASED;
	bytes = message || h->type == PL_HEAD_REGION || h->type == PL_HEAD_ABORT;
	bad = message != (h->kind != 0) || (!region && h->region) || (!at && h->at) ||
	      (!bytes && h->bytes) || (h->type == PL_HEAD_ABORT && h->bytes > PL_HEAD_TEXT) ||
	      (h->type == PL_HEAD_REFERENCE && !h->bytes);
	for (size_t i = 0; i < PL_LEN(h->value); i++)
		bad |= !message && h->value[i];
	return bad ? pl_fail(err, PL_EDATA, "a head of type %u has fields of another", h->type) : 0;
}
