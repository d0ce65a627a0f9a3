/*
 * The reader of paceline-container(5).
 *
 * Two halves. fill() cuts the input into members by the sizes that they state and hands each to a
 * job that inflates it and checks its CRC; accept() takes the results in order, follows the grammar
 * of a segment and checks blocks against the index, of which it needs no copy: both sides reduce to
 * one fingerprint and two sums.
 *
 * Nothing is allocated on the word of the input alone: a member's bytes must have arrived, and
 * deflate cannot expand by more than MAX_RATIO. Read-ahead is bounded by the queue and by
 * AHEAD_BYTES.
 *
 * Salvage: a bad block is skipped; when the framing itself is lost, the input is
 * searched for the next member; a segment whose header is bad is skipped up to the next header.
 *
 * Built with PL_FUZZ defined, checksums are not compared, so that a fuzzer gets past them.
 */
#include "io/internal.h"

#define MAX_RATIO   1032u
#define AHEAD_BYTES ((size_t)64 << 20)
#define SEARCH	    ((size_t)64 << 10)

struct rjob {
	struct rjob *next; /* in the list of free ones */
	struct pl_codecs *codecs;
	struct pl_container_member m;
	int64_t offset;
	struct pl_buf member, payload;
	uint32_t crc;
	const char *what; /* what is wrong, or NULL */
	bool no_memory;
};

enum expect { WANT_HEADER, WANT_BLOCK, WANT_END };

struct pl_container_reader {
	struct pl_in *in;
	struct pl_container_reader_opts opts;
	struct pl_codecs codecs;
	struct pl_queue *queue;
	struct rjob *free, *now;
	size_t ahead; /* compressed bytes in the queue */
	/* the cutting half */
	bool cut_done, cut_open; /* nothing more to cut; a segment has no end yet */
	bool any;		 /* a whole member was cut */
	struct pl_err fail;	 /* why cutting ended, unless at the proper end */
	/* the accepting half */
	enum expect expect;
	bool skip;			   /* salvage: the segment's header was bad */
	bool damaged;			   /* salvage: something of this segment was lost */
	uint32_t segments, ordinal, shown; /* shown: segments whose header was good */
	uint64_t records, bytes, print;
	struct pl_block seg; /* kind and version of the segment */
	struct pl_err dead;  /* a failure was returned: return it again */
};

/* ---- inflating ----------------------------------------------------------------------------- */

static void unpack(void *arg)
{
	struct rjob *j = arg;
	const uint8_t *p = j->member.p, *tail = p + j->m.size - PL_MEMBER_TAIL;
	size_t packed = j->m.size - j->m.head - PL_MEMBER_TAIL;
	uint32_t n = pl_le32_get(tail + 4);
	int rc;

	j->payload.n = 0;
	if (n > PL_PAYLOAD_MAX || n / MAX_RATIO > packed) {
		j->what = "impossible length of the payload";
		return;
	}
	rc = pl_buf_need(&j->payload, (size_t)n + 1, NULL);
	if (!rc)
		rc = pl_deflate_inflate(j->codecs, p + j->m.head, packed, j->payload.p, n);
	j->no_memory = rc == PL_ENOMEM;
	if (rc < 0) {
		j->what = j->no_memory ? "out of memory" : "damaged deflate data";
		return;
	}
	j->payload.n = n;
	j->crc = pl_le32_get(tail);
#ifndef PL_FUZZ
	if (pl_deflate_crc32(0, j->payload.p, n) != j->crc)
		j->what = "crc32 mismatch";
#endif
}

static void job_free(struct rjob *j)
{
	if (!j)
		return;
	pl_buf_fini(&j->member);
	pl_buf_fini(&j->payload);
	pl_free(j);
}

static struct rjob *job_take(struct pl_container_reader *r)
{
	struct rjob *j = r->free;

	if (j)
		r->free = j->next;
	else if (pl_alloc(&j, 1, sizeof(*j), &r->fail) < 0)
		return NULL;
	j->codecs = &r->codecs;
	j->member.n = j->payload.n = 0;
	j->what = NULL;
	j->no_memory = false;
	return j;
}

static void job_give(struct pl_container_reader *r, struct rjob *j)
{
	if (!j)
		return;
	j->next = r->free;
	r->free = j;
}

/* ---- cutting the input into members ---------------------------------------------------------- */

#define CUT_SHORT "cut short"

/* Only traces are of use without the blocks that were lost. */
static const char *remedy(const struct pl_container_reader *r)
{
	return r->opts.salvage || (r->opts.kind && r->opts.kind != PL_KIND_TRACE)
		       ? "copy or make it again"
		       : "copy or make it again, or keep the whole blocks with trace --salvage";
}

static void cut_end(struct pl_container_reader *r, int64_t at, const char *what, const char *help)
{
	r->cut_done = true;
	pl_fail(&r->fail, PL_EDATA, "%s: byte %lld: %s (%s)", pl_in_name(r->in), (long long)at,
		what, help);
}

/* Salvage: go on to what looks like the next member. False: there is none. */
static bool search(struct pl_container_reader *r)
{
	struct pl_container_member m;
	const uint8_t *p;
	int64_t n;

	pl_in_skip(r->in, 1);
	while ((n = pl_in_peek(r->in, SEARCH, &p, &r->fail)) >= (int64_t)PL_MEMBER_MIN + 4) {
		size_t last = (size_t)n - PL_MEMBER_MIN - 4, i = 0;

		while (i <= last) {
			const uint8_t *q = memchr(p + i, 0x1f, last - i + 1);

			i = q ? (size_t)(q - p) : last + 1;
			if (q && !pl_container_member_parse(&m, q, (size_t)n - i)) {
				pl_in_skip(r->in, i);
				return true;
			}
			i += q != NULL;
		}
		pl_in_skip(r->in, last + 1);
		if ((size_t)n < SEARCH)
			break;
	}
	return false;
}

/*
 * The size of the member at the front of the input, whose bytes are there at *p. 0: the input ends
 * here. Negative: *what is wrong and, unless *what is NULL, r->fail is not set yet.
 */
static int64_t next_member(struct pl_container_reader *r, struct pl_container_member *m,
			   const uint8_t **p, const char **what)
{
	int64_t n = pl_in_peek(r->in, PL_MEMBER_MIN + 4, p, &r->fail);

	*what = NULL;
	if (n <= 0)
		return n;
	*what = pl_container_member_parse(m, *p, (size_t)n);
	if (*what)
		return PL_EDATA;
	n = pl_in_peek(r->in, m->size, p, &r->fail);
	if (n < 0)
		return n;
	if ((uint64_t)n < m->size) {
		*what = CUT_SHORT;
		return PL_EDATA;
	}
	return m->size;
}

static void input_ended(struct pl_container_reader *r)
{
	int64_t at = pl_in_offset(r->in);

	r->cut_done = true;
	if (!r->any)
		cut_end(r, at, "the input is empty", "did the program before it fail?");
	else if (r->cut_open)
		cut_end(r, at, "truncated: the end member is missing", remedy(r));
}

/* No whole member is at the front of the input (n as next_member() gave it): say why. */
static void no_member(struct pl_container_reader *r, int64_t n, int64_t at, const char *what)
{
	r->cut_done = true;
	if (!n)
		input_ended(r);
	else if (what && !strcmp(what, CUT_SHORT))
		cut_end(r, at, "truncated: the input ends inside a member", remedy(r));
	else if (what)
		cut_end(r, at, what, r->any ? remedy(r) : "is this a paceline stream?");
}

/*
 * Salvage: is the size that this member states its real one? Yes if another follows or the input
 * ends there; else (the next one may be what is damaged) if its contents are good.
 */
static bool framed(struct pl_container_reader *r, const struct pl_container_member *m,
		   const uint8_t **p)
{
	struct rjob j = { .codecs = &r->codecs, .m = *m };
	int64_t n = pl_in_peek(r->in, (size_t)m->size + 10, p, &r->fail);

	if (n < 0)
		return true;
	if (pl_container_member_starts(*p + m->size, (size_t)n - m->size))
		return true;
	j.member.p = (uint8_t *)(uintptr_t)*p; /* borrowed */
	unpack(&j);
	pl_buf_fini(&j.payload);
	return !j.what;
}

static bool is_quick(const struct rjob *j)
{
	size_t packed = j->m.size - j->m.head - PL_MEMBER_TAIL;

	return packed < PL_QUICK_PACKED ||
	       (packed < PL_QUICK_STORED && pl_le32_get(j->member.p + j->m.size - 4) <= packed);
}

/* Take one member into the queue, or set cut_done. */
static void cut_one(struct pl_container_reader *r)
{
	struct pl_container_member m = { 0 };
	const char *what;
	const uint8_t *p;
	struct rjob *j;
	int64_t n = next_member(r, &m, &p, &what), at = pl_in_offset(r->in);

	if (r->opts.salvage && n > 0 && !framed(r, &m, &p)) {
		n = PL_EDATA;
		what = "wrong size of a member";
	}
	if (r->opts.salvage && what && search(r)) {
		pl_say(r->opts.log, PL_LOG_WARN,
		       "%s: byte %lld: %s: went on to what looks like a member at byte %lld",
		       pl_in_name(r->in), (long long)at, what, (long long)pl_in_offset(r->in));
		return;
	}
	if (n <= 0) {
		no_member(r, n, at, what);
		return;
	}
	r->any = true;
	r->cut_open = m.role != PL_ROLE_END;
	j = job_take(r);
	if (!j || pl_buf_put(&j->member, p, m.size, &r->fail) < 0) {
		job_give(r, j);
		r->cut_done = true;
		return;
	}
	j->m = m;
	j->offset = at;
	pl_in_skip(r->in, m.size);
	r->ahead += m.size;
	if (is_quick(j))
		pl_queue_run(r->queue, unpack, j);
	else
		pl_queue_put(r->queue, unpack, j);
}

static void fill(struct pl_container_reader *r)
{
	while (!r->cut_done && !pl_queue_full(r->queue) && r->ahead < AHEAD_BYTES)
		cut_one(r);
}

/* ---- accepting members in order -------------------------------------------------------------- */

/* "NAME: segment 2: block 17 at byte 1048812: what (remedy)"; segment 0 is not mentioned. */
static int refuse(const struct pl_container_reader *r, const struct rjob *j, int code,
		  const char *what, const char *help, struct pl_err *err)
{
	char where[64] = "", segment[32] = "";
	uint32_t s = r->segments - (r->segments > 0);

	if (j->m.role == PL_ROLE_BLOCK)
		snprintf(where, sizeof(where), "block %u", r->ordinal);
	else
		snprintf(where, sizeof(where), "%s",
			 j->m.role == PL_ROLE_HEADER  ? "header"
			 : j->m.role == PL_ROLE_INDEX ? "index"
						      : "end");
	if (s)
		snprintf(segment, sizeof(segment), "segment %u: ", s);
	return pl_fail(err, code, "%s: %s%s at byte %lld: %s (%s)", pl_in_name(r->in), segment,
		       where, (long long)j->offset, what, help);
}

static int damaged(const struct pl_container_reader *r, const struct rjob *j, const char *what,
		   struct pl_err *err)
{
	char text[96];

	snprintf(text, sizeof(text), "damaged: %s", remedy(r));
	return refuse(r, j, PL_EDATA, what, text, err);
}

const char *pl_container_kind_name(uint32_t kind, char out[8])
{
	static const struct {
		uint32_t kind;
		const char *name;
	} names[] = { { PL_KIND_TRACE, "trace" },
		      { PL_KIND_GRAPH, "graph" },
		      { PL_KIND_PLAN, "plan" },
		      { PL_KIND_MODEL, "model" } };

	for (size_t i = 0; i < PL_LEN(names); i++)
		if (names[i].kind == kind)
			return names[i].name;
	for (unsigned i = 0; i < 4; i++) {
		char c = (char)(kind >> (8 * i));

		out[i] = c >= ' ' && c <= '~' ? c : '?';
	}
	out[4] = '\0';
	return out;
}

const char *pl_container_kind_use(uint32_t kind)
{
	switch (kind) {
	case PL_KIND_TRACE:
		return "type: replay FILE, or graph -o GRAPH FILE";
	case PL_KIND_GRAPH:
		return "type: replay FILE, plan FILE, or graph -O stat FILE";
	case PL_KIND_PLAN:
		return "type: replay -p FILE GRAPH, or plan -O text FILE";
	case PL_KIND_MODEL:
		return "type: predict FILE, or predict -m FILE TABLE";
	default:
		return "is this the right input for the program?";
	}
}

static int accept_header(struct pl_container_reader *r, const struct rjob *j, struct pl_err *err)
{
	const uint8_t *p = j->payload.p;
	char text[160], a[8], b[8];
	struct pl_block *s = &r->seg;

	if (j->payload.n < PL_HEADER_BYTES || j->payload.n > PL_HEADER_MAX ||
	    memcmp(p, "paceline", 8) != 0)
		return damaged(r, j, "not the header of a paceline stream", err);
	memset(s, 0, sizeof(*s));
	s->kind = pl_le32_get(p + 8);
	s->major = pl_le16_get(p + 12);
	s->minor = pl_le16_get(p + 14);
	if (s->kind != j->m.kind)
		return damaged(r, j, "kind mismatch", err);
	if (r->opts.kind && s->kind != r->opts.kind) {
		snprintf(text, sizeof(text), "a %s, but a %s is expected",
			 pl_container_kind_name(s->kind, a),
			 pl_container_kind_name(r->opts.kind, b));
		return refuse(r, j, PL_EDATA, text, pl_container_kind_use(s->kind), err);
	}
	if (s->major > r->opts.major) {
		snprintf(text, sizeof(text), "%s format %u.%u is too new, %u is known",
			 pl_container_kind_name(s->kind, a), s->major, s->minor, r->opts.major);
		return refuse(r, j, PL_EDATA, text, "use a newer paceline", err);
	}
	if (pl_le64_get(p + 32) & ~r->opts.known) {
		snprintf(text, sizeof(text), "needs unknown features (mask %llx)",
			 (unsigned long long)(pl_le64_get(p + 32) & ~r->opts.known));
		return refuse(r, j, PL_EDATA, text, "use a newer paceline", err);
	}
	if (pl_le64_get(p + 24))
		pl_say(r->opts.log, PL_LOG_WARN,
		       "%s: has features of a newer version, which a rewritten stream will lack",
		       pl_in_name(r->in));
	s->segment = r->segments - 1;
	return 0;
}

static int accept_block(struct pl_container_reader *r, const struct rjob *j, struct pl_block *b,
			struct pl_err *err)
{
	const uint8_t *p = j->payload.p;
	uint8_t e[PL_INDEX_ENTRY];
	uint32_t ordinal;

	if (j->payload.n < PL_BLOCK_HEAD)
		return damaged(r, j, "payload cut short", err);
	b->type = pl_le32_get(p);
	b->version = pl_le16_get(p + 4);
	b->count = pl_le32_get(p + 8);
	b->p = p + PL_BLOCK_HEAD;
	b->n = j->payload.n - PL_BLOCK_HEAD;
	if (pl_le16_get(p + 6))
		return refuse(r, j, PL_EDATA, "unknown block flags", "use a newer paceline", err);
	if (!b->type || b->type == PL_BLOCK_INDEX || b->type == PL_BLOCK_END)
		return damaged(r, j, "block without a proper type", err);
	ordinal = pl_le32_get(p + 12);
	if (ordinal != r->ordinal) {
		if (!r->opts.salvage || ordinal < r->ordinal)
			return damaged(r, j, "block out of order: one is missing or repeated", err);
		r->damaged = true; /* a block was lost with the framing */
	}
	b->ordinal = ordinal;
	r->ordinal = ordinal + 1;
	r->records += b->count;
	r->bytes += b->n;
	pl_index_entry(e, b->type, b->version, b->count, (uint32_t)b->n, j->crc);
	r->print = pl_fnv(r->print, e, sizeof(e));
	return 0;
}

static int accept_index(struct pl_container_reader *r, const struct rjob *j, struct pl_err *err)
{
	const uint8_t *p = j->payload.p;
	uint64_t n = j->payload.n;

	r->expect = WANT_END;
	if (n < PL_INDEX_HEAD || pl_le32_get(p) != PL_BLOCK_INDEX || pl_le16_get(p + 4) != 1 ||
	    n != PL_INDEX_HEAD + (uint64_t)pl_le32_get(p + 8) * PL_INDEX_ENTRY)
		return damaged(r, j, "malformed index", err);
	if (r->opts.salvage && (r->damaged || pl_le32_get(p + 8) > r->ordinal))
		return 0;
	if (pl_le32_get(p + 8) != r->ordinal || pl_le32_get(p + 12) != r->ordinal)
		return damaged(r, j, "a different number of blocks than the stream has", err);
#ifndef PL_FUZZ
	if (pl_le64_get(p + 16) != r->records || pl_le64_get(p + 24) != r->bytes ||
	    pl_le64_get(p + 32) != r->print ||
	    pl_fnv(PL_FNV_START, p + PL_INDEX_HEAD, n - PL_INDEX_HEAD) != r->print)
		return damaged(r, j, "does not agree with the blocks", err);
#endif
	return 0;
}

static void begin_segment(struct pl_container_reader *r)
{
	r->segments++;
	r->expect = WANT_BLOCK;
	r->ordinal = 0;
	r->records = r->bytes = 0;
	r->print = PL_FNV_START;
	r->damaged = r->skip = false;
}

/* Does this role fit the grammar here? */
static bool in_place(const struct pl_container_reader *r, uint8_t role)
{
	switch (role) {
	case PL_ROLE_HEADER:
		return r->expect == WANT_HEADER;
	case PL_ROLE_END:
		return r->expect == WANT_END;
	default:
		return r->expect == WANT_BLOCK;
	}
}

/* 1: b is to be shown; 0: not; or a failure. */
static int accept(struct pl_container_reader *r, const struct rjob *j, struct pl_block *b,
		  struct pl_err *err)
{
	int rc = 0;

	if (!r->opts.salvage && !in_place(r, j->m.role))
		return damaged(r, j,
			       j->m.role == PL_ROLE_HEADER
				       ? "truncated: the segment before has no end member"
				       : "out of place",
			       err);
	if (j->m.role == PL_ROLE_HEADER)
		begin_segment(r);
	if (j->what)
		return j->no_memory ? refuse(r, j, PL_ENOMEM, j->what, "use fewer threads", err)
				    : damaged(r, j, j->what, err);
	if (j->m.role == PL_ROLE_HEADER)
		rc = accept_header(r, j, err);
	if (rc < 0)
		return rc;
	*b = r->seg;
	b->offset = j->offset;
	switch (j->m.role) {
	case PL_ROLE_HEADER:
		b->p = j->payload.p;
		b->n = j->payload.n;
		r->shown++;
		return 1;
	case PL_ROLE_BLOCK:
		PL_CHECK(accept_block(r, j, b, err));
		return 1;
	case PL_ROLE_INDEX:
		b->type = PL_BLOCK_INDEX;
		PL_CHECK(accept_index(r, j, err));
		return r->opts.raw;
	default:
		r->expect = WANT_HEADER;
		b->type = PL_BLOCK_END;
		if (j->payload.n)
			return damaged(r, j, "the end member is not empty", err);
		return r->opts.raw;
	}
}

/* Salvage: 0 when only this member is lost; else the failure. */
static int forgive(struct pl_container_reader *r, const struct rjob *j, const struct pl_err *bad)
{
	bool foreign = j->m.role == PL_ROLE_HEADER && r->segments == 1 && !j->what;

	if (!r->opts.salvage || bad->code != PL_EDATA || foreign)
		return bad->code;
	pl_say(r->opts.log, PL_LOG_WARN, "%s; left out", bad->msg);
	r->damaged = true;
	r->ordinal += j->m.role == PL_ROLE_BLOCK;
	r->skip |= j->m.role == PL_ROLE_HEADER;
	return 0;
}

/* Salvage: members of a segment whose header is not known are of no use. */
static bool left_out(const struct pl_container_reader *r, uint8_t role)
{
	return r->opts.salvage && role != PL_ROLE_HEADER && (r->skip || r->expect == WANT_HEADER);
}

static int finish(struct pl_container_reader *r, struct pl_err *err)
{
	if (!r->fail.code && !r->shown)
		pl_fail(&r->fail, PL_EDATA, "%s: nothing could be salvaged", pl_in_name(r->in));
	if (!r->fail.code)
		return 0;
	if (r->opts.salvage && r->fail.code == PL_EDATA && r->shown) {
		pl_say(r->opts.log, PL_LOG_WARN, "%s", r->fail.msg);
		r->fail.code = 0;
		return 0;
	}
	return pl_fail_as(err, &r->fail);
}

/* ---- interface ------------------------------------------------------------------------------- */

struct pl_container_reader *pl_container_reader_open(struct pl_in *in,
						     const struct pl_container_reader_opts *opts,
						     struct pl_err *err)
{
	int threads = pl_pool_threads(opts->pool);
	struct pl_container_reader *r;

	if (pl_alloc(&r, 1, sizeof(*r), err) < 0)
		return NULL;
	r->in = in;
	r->opts = *opts;
	pl_deflate_codecs_init(&r->codecs, 1);
	r->queue = pl_queue_new(opts->pool, threads > 1 ? 2 * threads : 1, err);
	if (r->queue)
		return r;
	pl_container_reader_close(r);
	return NULL;
}

int pl_container_reader_next(struct pl_container_reader *r, struct pl_block *b, struct pl_err *err)
{
	if (r->dead.code)
		return pl_fail_as(err, &r->dead);
	for (;;) {
		struct pl_err bad = { 0 };
		int rc;

		job_give(r, r->now);
		r->now = NULL;
		fill(r);
		r->now = pl_queue_get(r->queue);
		if (!r->now) {
			rc = finish(r, &bad);
		} else {
			r->ahead -= r->now->m.size;
			if (left_out(r, r->now->m.role)) {
				if (r->now->m.role == PL_ROLE_END)
					r->expect = WANT_HEADER;
				continue;
			}
			rc = accept(r, r->now, b, &bad);
			if (!rc || (rc < 0 && !forgive(r, r->now, &bad)))
				continue;
		}
		r->dead = bad;
		return rc < 0 ? pl_fail_as(err, &bad) : rc;
	}
}

void pl_container_reader_raw(const struct pl_container_reader *r, const void **member, size_t *n)
{
	*member = r->now ? r->now->member.p : NULL;
	*n = r->now ? r->now->member.n : 0;
}

void pl_container_reader_close(struct pl_container_reader *r)
{
	struct rjob *j;

	if (!r)
		return;
	while (r->queue && (j = pl_queue_get(r->queue)))
		job_free(j);
	pl_queue_free(r->queue);
	job_free(r->now);
	while ((j = r->free)) {
		r->free = j->next;
		job_free(j);
	}
	pl_deflate_codecs_fini(&r->codecs);
	pl_free(r);
}
