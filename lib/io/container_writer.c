/*
 * The writer of paceline-container(5). A block becomes a member in a job of the pool; members are
 * written in the order in which the blocks were put, and each is a function of its payload, its
 * ordinal and the level alone, so the bytes do not depend on the number of threads.
 *
 * Jobs are recycled with their buffers, and the caller gets a used payload buffer back for the one
 * that it handed over: a steady stream allocates nothing, and touches no fresh pages. At most 2
 * blocks a thread are in memory. The index costs PL_INDEX_ENTRY bytes a block until its segment
 * ends.
 */
#include "io/internal.h"

struct wjob {
	struct wjob *next; /* in the list of free ones */
	struct pl_codecs *codecs;
	uint8_t role;
	uint8_t head[PL_INDEX_HEAD]; /* fixed part of the payload */
	size_t n_head;
	uint32_t kind;
	struct pl_buf body, out;
	uint32_t crc;
	struct pl_err err;
};

struct pl_container_writer {
	struct pl_out *out;
	struct pl_container_writer_opts opts;
	struct pl_codecs codecs;
	struct pl_queue *queue;
	struct wjob *free;
	bool open;	 /* a segment of ours has begun */
	bool copied;	 /* the last thing written was a whole copied segment */
	bool wrote;	 /* there is at least one segment */
	uint8_t copying; /* role of the last copied member of an unfinished segment, or 0 */
	uint32_t blocks; /* of the open segment */
	uint64_t records, bytes;
	struct pl_buf index;
	struct pl_err fail; /* the first failure: nothing is written after it */
};

/* ---- members ------------------------------------------------------------------------------- */

/* A whole member into j->out. Runs in any thread. */
static void pack(void *arg)
{
	struct wjob *j = arg;
	size_t xlen = j->role == PL_ROLE_HEADER ? 16 : 12, n = j->n_head + j->body.n;
	uint8_t h[28] = { 0x1f, 0x8b, 8, 4, 0, 0, 0, 0, 0, 0xff };
	uint8_t tail[PL_MEMBER_TAIL];

	h[10] = (uint8_t)xlen;
	h[12] = 'P';
	h[13] = 'L';
	h[14] = (uint8_t)(xlen - 4);
	h[16] = j->role;
	h[17] = PL_REVISION;
	pl_le32_put(h + 24, j->kind);
	j->out.n = 0;
	if (pl_buf_put(&j->out, h, 12 + xlen, &j->err) < 0 ||
	    pl_deflate(j->codecs, j->head, j->n_head, j->body.p, j->body.n, &j->out, &j->err) < 0)
		return;
	j->crc = pl_deflate_crc32(pl_deflate_crc32(0, j->head, j->n_head), j->body.p, j->body.n);
	pl_le32_put(tail, j->crc);
	pl_le32_put(tail + 4, (uint32_t)n);
	if (pl_buf_put(&j->out, tail, sizeof(tail), &j->err) < 0)
		return;
	pl_le32_put(j->out.p + 20, (uint32_t)j->out.n);
}

static void emit(struct pl_container_writer *w, const void *p, size_t n)
{
	if (!w->fail.code && pl_out_write(w->out, p, n, &w->fail) < 0)
		w->copied = false;
}

static void job_free(struct wjob *j)
{
	pl_buf_fini(&j->body);
	pl_buf_fini(&j->out);
	pl_free(j);
}

static struct wjob *job_take(struct pl_container_writer *w)
{
	struct wjob *j = w->free;

	if (j)
		w->free = j->next;
	else if (pl_alloc(&j, 1, sizeof(*j), &w->fail) < 0)
		return NULL;
	j->codecs = &w->codecs;
	j->body.n = 0;
	j->body.failed = false;
	j->crc = 0;
	j->kind = 0;
	return j;
}

static void block_head(uint8_t *h, uint32_t type, uint16_t version, uint32_t count,
		       uint32_t ordinal)
{
	pl_le32_put(h, type);
	pl_le16_put(h + 4, version);
	pl_le16_put(h + 6, 0);
	pl_le32_put(h + 8, count);
	pl_le32_put(h + 12, ordinal);
}

/* Write a finished member, note it in the index, recycle the job. */
static void finish(struct pl_container_writer *w, struct wjob *j)
{
	uint8_t e[PL_INDEX_ENTRY];

	if (!w->fail.code && j->err.code)
		w->fail = j->err;
	emit(w, j->out.p, j->out.n);
	if (!w->fail.code && j->role == PL_ROLE_BLOCK) {
		pl_index_entry(e, pl_le32_get(j->head), pl_le16_get(j->head + 4),
			       pl_le32_get(j->head + 8), (uint32_t)j->body.n, j->crc);
		if (pl_buf_put(&w->index, e, sizeof(e), &w->fail) < 0)
			w->index.n = 0;
	}
	j->next = w->free;
	w->free = j;
}

static void drain(struct pl_container_writer *w, bool wait)
{
	struct wjob *j;

	while ((j = wait ? pl_queue_get(w->queue) : pl_queue_poll(w->queue)))
		finish(w, j);
}

static void submit(struct pl_container_writer *w, struct wjob *j)
{
	if (pl_queue_full(w->queue))
		finish(w, pl_queue_get(w->queue));
	if (j->body.n < (w->codecs.level ? PL_QUICK_PACKED : PL_QUICK_STORED))
		pl_queue_run(w->queue, pack, j);
	else
		pl_queue_put(w->queue, pack, j);
	drain(w, false);
}

/* ---- segments ------------------------------------------------------------------------------ */

static int begin(struct pl_container_writer *w, struct pl_err *err)
{
	struct wjob *j;

	if (w->open || w->fail.code)
		return pl_fail_as(err, &w->fail);
	if (w->copying)
		return pl_fail(err, PL_EINTERNAL, "a copied segment has no end");
	j = job_take(w);
	if (!j)
		return pl_fail_as(err, &w->fail);
	j->role = PL_ROLE_HEADER;
	j->kind = w->opts.kind;
	j->n_head = PL_HEADER_BYTES;
	memset(j->head, 0, sizeof(j->head));
	memcpy(j->head, "paceline", 8);
	pl_le32_put(j->head + 8, w->opts.kind);
	pl_le16_put(j->head + 12, w->opts.major);
	pl_le16_put(j->head + 14, w->opts.minor);
	pl_le64_put(j->head + 32, w->opts.incompat);
	submit(w, j);
	w->open = w->wrote = true;
	w->copied = false;
	w->blocks = 0;
	w->records = w->bytes = 0;
	w->index.n = 0;
	return pl_fail_as(err, &w->fail);
}

static int end(struct pl_container_writer *w, struct pl_err *err)
{
	struct wjob *j;

	drain(w, true);
	if (w->fail.code || !w->open)
		return pl_fail_as(err, &w->fail);
	j = job_take(w);
	if (!j)
		return pl_fail_as(err, &w->fail);
	j->role = PL_ROLE_INDEX;
	j->n_head = PL_BLOCK_HEAD;
	block_head(j->head, PL_BLOCK_INDEX, 1, w->blocks, w->blocks);
	pl_io_put_u64(&j->body, w->records);
	pl_io_put_u64(&j->body, w->bytes);
	pl_io_put_u64(&j->body, pl_fnv(PL_FNV_START, w->index.p, w->index.n));
	if (pl_buf_put(&j->body, w->index.p, w->index.n, &w->fail) < 0 ||
	    (j->body.failed && pl_fail(&w->fail, PL_ENOMEM, "out of memory (index)") < 0)) {
		job_free(j);
		return pl_fail_as(err, &w->fail);
	}
	submit(w, j);
	drain(w, true);
	pl_buf_fini(
		&j->body); /* j is among the free ones; blocks need no buffer of an index's size */
	emit(w, pl_container_member_end, PL_MEMBER_END);
	w->open = false;
	return pl_fail_as(err, &w->fail);
}

/* ---- interface ----------------------------------------------------------------------------- */

struct pl_container_writer *pl_container_writer_open(struct pl_out *out,
						     const struct pl_container_writer_opts *opts,
						     struct pl_err *err)
{
	int threads = pl_pool_threads(opts->pool);
	struct pl_container_writer *w;

	if (pl_alloc(&w, 1, sizeof(*w), err) < 0)
		return NULL;
	w->out = out;
	w->opts = *opts;
	pl_deflate_codecs_init(&w->codecs, opts->level);
	w->queue = pl_queue_new(opts->pool, threads > 1 ? 2 * threads : 1, err);
	if (w->queue)
		return w;
	pl_container_writer_abort(w);
	return NULL;
}

int pl_container_writer_put(struct pl_container_writer *w, uint32_t type, uint16_t version,
			    uint32_t count, struct pl_buf *b, struct pl_err *err)
{
	struct pl_buf used;
	struct wjob *j;

	PL_CHECK(begin(w, err));
	if (b->failed)
		return pl_fail(err, PL_ENOMEM, "out of memory (a block)");
	if (b->n > PL_BLOCK_MAX)
		return pl_fail(err, PL_ELIMIT, "a block of %zu bytes is over the limit of %u MiB",
			       b->n, PL_BLOCK_MAX >> 20);
	if (w->blocks >= (PL_BLOCK_MAX - PL_INDEX_HEAD) / PL_INDEX_ENTRY)
		return pl_fail(err, PL_ELIMIT, "more than %u blocks in a segment", w->blocks);
	if (pl_queue_full(w->queue))
		finish(w, pl_queue_get(w->queue));
	j = job_take(w);
	if (!j || w->fail.code) {
		if (j)
			job_free(j);
		return pl_fail_as(err, &w->fail);
	}
	used = j->body;
	j->body = *b;
	*b = used;
	j->role = PL_ROLE_BLOCK;
	j->n_head = PL_BLOCK_HEAD;
	block_head(j->head, type, version, count, w->blocks++);
	w->records += count;
	w->bytes += j->body.n;
	submit(w, j);
	return pl_fail_as(err, &w->fail);
}

int pl_container_writer_next_segment(struct pl_container_writer *w, struct pl_err *err)
{
	if (!w->open && w->copied)
		return pl_fail_as(err, &w->fail);
	PL_CHECK(begin(w, err));
	return end(w, err);
}

/* Which roles may follow this one in a stream? */
static const char *may_follow(uint8_t role)
{
	return !role ? "H" : role == PL_ROLE_INDEX ? "E" : "BX";
}

int pl_container_writer_copy(struct pl_container_writer *w, const void *member, size_t n,
			     struct pl_err *err)
{
	const char *what;
	struct pl_container_member m;
	int rc;

	if (w->fail.code)
		return pl_fail_as(err, &w->fail);
	what = pl_container_member_parse(&m, member, n);
	if (what || m.size != n)
		return pl_fail(err, PL_EINTERNAL, "cannot copy a member: %s",
			       what ? what : "size mismatch");
	if (!strchr(may_follow(w->copying), m.role))
		return pl_fail(err, PL_EINTERNAL, "cannot copy a member of role '%c' here", m.role);
	if (w->open && (rc = end(w, err)) < 0)
		return rc;
	emit(w, member, n);
	w->copying = m.role == PL_ROLE_END ? 0 : m.role;
	w->copied = m.role == PL_ROLE_END;
	w->wrote = true;
	return pl_fail_as(err, &w->fail);
}

int pl_container_writer_close(struct pl_container_writer *w, struct pl_err *err)
{
	int rc = 0;

	if (w->copying && !w->fail.code)
		rc = pl_fail(err, PL_EINTERNAL, "a copied segment has no end");
	if (!rc && !w->wrote)
		rc = begin(w, err);
	if (!rc)
		rc = end(w, err);
	pl_container_writer_abort(w);
	return rc;
}

void pl_container_writer_abort(struct pl_container_writer *w)
{
	struct wjob *j;

	if (!w)
		return;
	while (w->queue && (j = pl_queue_get(w->queue)))
		job_free(j);
	pl_queue_free(w->queue);
	while ((j = w->free)) {
		w->free = j->next;
		job_free(j);
	}
	pl_deflate_codecs_fini(&w->codecs);
	pl_buf_fini(&w->index);
	pl_free(w);
}
