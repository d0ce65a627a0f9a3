/*
 * Foreign gzip (RFC 1952) as an input: many members, a cut tail, trailing garbage.
 *
 * Two buffers of 1 MiB are used by turns: while the reader uses one, a job of the pool fills the
 * other. The reader's unread tail moves to the space before the next buffer, so that the window
 * stays contiguous and only that tail (usually part of one record) is copied. The header and
 * trailer of a member are read here, the fastest crc32 checks them, and zlib inflates.
 *
 * A regular file of one member that is small both packed and unpacked is inflated in one piece by
 * libdeflate (two to three times faster than zlib). All other files, and damaged ones, are inflated
 * by zlib. All inputs together hold at most WHOLE_SUM bytes for this.
 */
#include <stdatomic.h>
#include <zlib.h>

#include "config.h"
#include "io/internal.h"

#define CHUNK	   ((size_t)1 << 20)
#define HEADROOM   ((size_t)128 << 10)
#define HEADER_MAX ((size_t)256 << 10)
#define RAW_WANT   ((size_t)64 << 10)
#define WHOLE_IN   ((int64_t)16 << 20)
#define WHOLE_OUT  ((int64_t)64 << 20)
#define WHOLE_SUM  ((int64_t)96 << 20)

static atomic_llong whole_held; /* bytes, packed and unpacked, of all inputs */

enum gz_state { GZ_START, GZ_HEADER, GZ_BODY, GZ_DONE };

struct chunk {
	struct pl_gunzip *gz;
	uint8_t *mem; /* HEADROOM + CHUNK, or a whole file */
	size_t n;
	bool last, whole;
	struct pl_err fail;
};

struct pl_gunzip {
	struct pl_in *raw;
	struct pl_queue *queue;
	struct chunk chunk[2];
	unsigned turn; /* the next chunk to take */
	bool ahead;    /* a job is filling it */
	enum gz_state state;
	z_stream z;
	bool z_ready;
	uint32_t crc, length;
	unsigned members;
	int64_t held;
};

static voidpf z_take(voidpf arg, uInt n, uInt size)
{
	(void)arg;
	return pl_calloc(n, size);
}

static void z_give(voidpf arg, voidpf p)
{
	(void)arg;
	pl_free(p);
}

/* Bytes of the gzip header at p, 0 if it is longer than n, -1 if there is none. */
static int64_t header_length(const uint8_t *p, size_t n)
{
	size_t at = 10;

	if (n < 10)
		return 0;
	if (p[2] != 8 || (p[3] & 0xe0))
		return -1;
	if (p[3] & 4) {
		if (n < at + 2)
			return 0;
		at += 2 + (size_t)pl_le16_get(p + at);
	}
	for (unsigned flag = 8; flag <= 16; flag *= 2) { /* name, comment */
		const uint8_t *end;

		if (!(p[3] & flag))
			continue;
		end = at < n ? memchr(p + at, 0, n - at) : NULL;
		if (!end)
			return 0;
		at = (size_t)(end - p) + 1;
	}
	at += p[3] & 2 ? 2 : 0;
	return at <= n ? (int64_t)at : 0;
}

static void cut(struct pl_gunzip *gz, struct chunk *c, const char *what)
{
	pl_fail(&c->fail, PL_EDATA, "%s: %s at byte %lld of the gzip file", gz->raw->name, what,
		(long long)pl_in_offset(gz->raw));
	gz->state = GZ_DONE;
}

static void no_memory(struct pl_gunzip *gz, struct chunk *c)
{
	pl_fail(&c->fail, PL_ENOMEM, "%s: out of memory", gz->raw->name);
	gz->state = GZ_DONE;
}

/* Read raw bytes, at least one unless the input is at its end. A failure goes into the chunk. */
static int64_t look(struct pl_gunzip *gz, struct chunk *c, size_t want, const uint8_t **p)
{
	int64_t n = pl_in_peek(gz->raw, want, p, &c->fail);

	if (n < 0)
		gz->state = GZ_DONE;
	return n;
}

static void start_member(struct pl_gunzip *gz, struct chunk *c)
{
	const uint8_t *p;
	int64_t n = look(gz, c, 18, &p), head = 0;

	if (n < 0)
		return;
	if (n < 2 || p[0] != 0x1f || p[1] != 0x8b) { /* the end, padding or garbage */
		if (!gz->members)
			cut(gz, c, n ? "not a gzip member" : "empty gzip input");
		gz->state = GZ_DONE;
		return;
	}
	for (size_t want = RAW_WANT; want <= HEADER_MAX; want *= 2) {
		n = look(gz, c, want, &p);
		if (n < 0)
			return;
		head = header_length(p, (size_t)n);
		if (head || (size_t)n < want)
			break;
	}
	if (head <= 0) {
		cut(gz, c, head < 0 || (size_t)n >= HEADER_MAX ? "bad gzip header" : "cut short");
		return;
	}
	pl_in_skip(gz->raw, (size_t)head);
	gz->crc = gz->length = 0;
	gz->members++;
	if (gz->z_ready) {
		inflateReset(&gz->z);
	} else {
		gz->z.zalloc = z_take;
		gz->z.zfree = z_give;
		if (inflateInit2(&gz->z, -15) != Z_OK) {
			no_memory(gz, c);
			return;
		}
		gz->z_ready = true;
	}
	gz->state = GZ_BODY;
}

static void end_member(struct pl_gunzip *gz, struct chunk *c)
{
	const uint8_t *p;
	int64_t n = look(gz, c, 8, &p);

	if (n < 0)
		return;
	gz->state = GZ_HEADER;
	if (n < 8) {
		cut(gz, c, "cut short");
		return;
	}
#ifndef PL_FUZZ
	if (pl_le32_get(p) != gz->crc)
		cut(gz, c, "crc32 mismatch");
	else if (pl_le32_get(p + 4) != gz->length)
		cut(gz, c, "length mismatch");
#endif
	pl_in_skip(gz->raw, 8);
}

/* Inflate the available raw bytes into the rest of the chunk. */
static void body(struct pl_gunzip *gz, struct chunk *c, uint8_t *out)
{
	const uint8_t *p;
	int64_t n = look(gz, c, 1, &p);
	size_t room = CHUNK - c->n, made;
	int z;

	if (n <= 0) {
		if (!n)
			cut(gz, c, "cut short");
		return;
	}
	gz->z.next_in = (Bytef *)(uintptr_t)p;
	gz->z.avail_in = (uInt)pl_min_size((size_t)n, (size_t)1 << 30);
	gz->z.next_out = out + c->n;
	gz->z.avail_out = (uInt)room;
	z = inflate(&gz->z, Z_NO_FLUSH);
	pl_in_skip(gz->raw, (size_t)(gz->z.next_in - p));
	made = room - gz->z.avail_out;
	gz->crc = pl_deflate_crc32(gz->crc, out + c->n, made);
	gz->length += (uint32_t)made;
	c->n += made;
	if (z == Z_STREAM_END) {
		end_member(gz, c);
	} else if (z == Z_MEM_ERROR) {
		no_memory(gz, c);
	} else if (z != Z_OK && z != Z_BUF_ERROR) {
		cut(gz, c, "damaged deflate data");
	}
}

/* Inflates the whole file in one piece, if it is small and regular. */
static bool take_whole(struct pl_gunzip *gz, struct chunk *c)
{
	struct pl_in *raw = gz->raw;
	int64_t size = raw->size - raw->offset, want;
	const uint8_t *p;
	uint8_t *mem;

	if (!HAVE_LIBDEFLATE || raw->size < 0 || size < 20 || size > WHOLE_IN)
		return false;
	if (pl_in_peek(raw, (size_t)size, &p, &c->fail) != size) {
		if (c->fail.code == PL_EDATA)
			c->fail.code = 0;
		return false;
	}
	want = pl_le32_get(p + size - 4);
	if (want > WHOLE_OUT || want / 1032 > size)
		return false;
	gz->held = size + want;
	if (atomic_fetch_add(&whole_held, gz->held) + gz->held > WHOLE_SUM)
		return false;
	mem = pl_malloc((size_t)want + 1);
	if (!mem || pl_gunzip_whole(p, (size_t)size, mem, (size_t)want) < 0) {
		pl_free(mem);
		return false;
	}
	pl_free(c->mem);
	c->mem = mem;
	c->n = (size_t)want;
	c->whole = true;
	pl_in_skip(raw, (size_t)size);
	pl_free(raw->buf); /* the packed bytes are no longer needed */
	raw->buf = NULL;
	raw->p = NULL;
	raw->cap = 0;
	gz->state = GZ_DONE;
	return true;
}

static void fill(void *arg)
{
	struct chunk *c = arg;
	struct pl_gunzip *gz = c->gz;

	c->n = 0;
	if (gz->state == GZ_START) {
		gz->state = GZ_HEADER;
		if (!take_whole(gz, c) && gz->held) {
			atomic_fetch_sub(&whole_held, gz->held);
			gz->held = 0;
		}
		if (c->fail.code)
			gz->state = GZ_DONE;
	}
	if (!c->whole && gz->state != GZ_DONE && !c->mem) {
		c->mem = pl_malloc(HEADROOM + CHUNK);
		if (!c->mem)
			no_memory(gz, c);
	}
	while (gz->state != GZ_DONE && c->n < CHUNK) {
		if (gz->state == GZ_HEADER)
			start_member(gz, c);
		else
			body(gz, c, c->mem + HEADROOM);
	}
	c->last = gz->state == GZ_DONE;
}

/* Move the unread tail before the new chunk or, if the tail is long, the chunk behind the tail. */
static void install(struct pl_in *in, struct chunk *c)
{
	uint8_t *data = c->whole ? c->mem : c->mem + HEADROOM;

	if (!c->n)
		return;
	if (!in->n) {
		in->p = data;
	} else if (!c->whole && in->n <= HEADROOM) {
		memmove(data - in->n, in->p, in->n);
		in->p = data - in->n;
	} else {
		if (pl_in_room(in, c->n) < 0)
			return;
		memcpy(in->buf + (in->p - in->buf) + in->n, data, c->n);
	}
	in->n += c->n;
}

static void gz_refill(struct pl_in *in)
{
	struct pl_gunzip *gz = in->gz;
	struct chunk *c = &gz->chunk[gz->turn];

	if (gz->ahead)
		pl_queue_get(gz->queue);
	else
		fill(c);
	gz->ahead = false;
	install(in, c);
	if (in->fail.code)
		return;
	if (c->last) {
		in->eof = true;
		in->fail = c->fail;
		return;
	}
	gz->turn ^= 1;
	if (gz->queue) {
		gz->ahead = true;
		pl_queue_put(gz->queue, fill, &gz->chunk[gz->turn]);
	}
}

static void gz_fini(struct pl_in *in)
{
	struct pl_gunzip *gz = in->gz;

	if (!gz)
		return;
	pl_queue_free(gz->queue);
	if (gz->z_ready)
		inflateEnd(&gz->z);
	atomic_fetch_sub(&whole_held, gz->held);
	pl_free(gz->chunk[0].mem);
	pl_free(gz->chunk[1].mem);
	pl_in_close(gz->raw);
	pl_free(gz);
}

struct pl_in *pl_in_gunzip(struct pl_in *raw, struct pl_pool *pool, struct pl_err *err)
{
	struct pl_in *in = pl_in_alloc(raw->name, err);

	if (!in || pl_alloc(&in->gz, 1, sizeof(*in->gz), err) < 0) {
		pl_in_close(in);
		pl_in_close(raw);
		return NULL;
	}
	in->refill = gz_refill;
	in->fini = gz_fini;
	in->gz->raw = raw;
	in->gz->chunk[0].gz = in->gz->chunk[1].gz = in->gz;
	if (pl_pool_threads(pool) > 1) {
		in->gz->queue = pl_queue_new(pool, 1, err);
		if (!in->gz->queue) {
			pl_in_close(in);
			return NULL;
		}
		in->gz->ahead = true;
		pl_queue_put(in->gz->queue, fill, &in->gz->chunk[0]);
	}
	return in;
}

struct pl_in *pl_in_open_any(const char *path, struct pl_err *err)
{
	return pl_in_any(pl_in_open(path, err), err);
}

struct pl_in *pl_in_any(struct pl_in *in, struct pl_err *err)
{
	const uint8_t *p;
	int64_t n;

	if (!in)
		return NULL;
	n = pl_in_peek(in, 3, &p, err);
	if (n < 0) {
		pl_in_close(in);
		return NULL;
	}
	if (n >= 3 && p[0] == 0x1f && p[1] == 0x8b && p[2] == 8)
		return pl_in_gunzip(in, NULL, err);
	return in;
}
