/*
 * Deflate, inflate and crc32 of whole blocks: by libdeflate if the build found it, else by zlib.
 * Level 0, and data that does not get smaller, is stored by our own code, so that these bytes are
 * the same in every build. Levels above 9 are level 9 of zlib.
 */
#include <zlib.h>

#include "config.h"
#include "io/internal.h"

#if HAVE_LIBDEFLATE
#include <libdeflate.h>
#endif

#define STORED_MAX 65535u

struct pl_codec {
	struct pl_codec *next;
#if HAVE_LIBDEFLATE
	struct libdeflate_compressor *pack;
	struct libdeflate_decompressor *unpack;
#else
	z_stream pack, unpack;
	bool has_pack, has_unpack;
#endif
};

void pl_deflate_codecs_init(struct pl_codecs *cs, int level)
{
	pthread_mutex_init(&cs->lock, NULL);
	cs->free = NULL;
	cs->level = level < 0 ? 0 : level > 12 ? 12 : level;
}

static struct pl_codec *codec_take(struct pl_codecs *cs)
{
	struct pl_codec *c;

	pthread_mutex_lock(&cs->lock);
	c = cs->free;
	if (c)
		cs->free = c->next;
	pthread_mutex_unlock(&cs->lock);
	return c ? c : pl_calloc(1, sizeof(*c));
}

static void codec_give(struct pl_codecs *cs, struct pl_codec *c)
{
	pthread_mutex_lock(&cs->lock);
	c->next = cs->free;
	cs->free = c;
	pthread_mutex_unlock(&cs->lock);
}

static void codec_free(struct pl_codec *c)
{
#if HAVE_LIBDEFLATE
	libdeflate_free_compressor(c->pack);
	libdeflate_free_decompressor(c->unpack);
#else
	if (c->has_pack)
		deflateEnd(&c->pack);
	if (c->has_unpack)
		inflateEnd(&c->unpack);
#endif
	pl_free(c);
}

void pl_deflate_codecs_fini(struct pl_codecs *cs)
{
	struct pl_codec *c = cs->free, *next;

	for (; c; c = next) {
		next = c->next;
		codec_free(c);
	}
	cs->free = NULL;
	pthread_mutex_destroy(&cs->lock);
}

uint32_t pl_deflate_crc32(uint32_t crc, const void *p, size_t n)
{
#if HAVE_LIBDEFLATE
	return n ? libdeflate_crc32(crc, p, n) : crc;
#else
	return n ? (uint32_t)crc32_z(crc, p, n) : crc;
#endif
}

/* Compress n > 0 bytes into `room`. Returns the length; 0: it does not fit; -1: no memory. */
static int64_t codec_pack(struct pl_codec *c, int level, const uint8_t *p, size_t n, uint8_t *out,
			  size_t room)
{
#if HAVE_LIBDEFLATE
	if (!c->pack && (pl_fail_now() || !(c->pack = libdeflate_alloc_compressor(level))))
		return -1;
	return (int64_t)libdeflate_deflate_compress(c->pack, p, n, out, room);
#else
	if (!c->has_pack) {
		if (pl_fail_now() || deflateInit2(&c->pack, level > 9 ? 9 : level, Z_DEFLATED, -15,
						  9, Z_DEFAULT_STRATEGY) != Z_OK)
			return -1;
		c->has_pack = true;
	} else {
		deflateReset(&c->pack);
	}
	c->pack.next_in = (Bytef *)(uintptr_t)p;
	c->pack.avail_in = (uInt)n;
	c->pack.next_out = out;
	c->pack.avail_out = (uInt)room;
	return deflate(&c->pack, Z_FINISH) == Z_STREAM_END ? (int64_t)(room - c->pack.avail_out)
							   : 0;
#endif
}

static int codec_unpack(struct pl_codec *c, const uint8_t *in, size_t n, uint8_t *out, size_t n_out)
{
#if HAVE_LIBDEFLATE
	size_t used, made;

	if (!c->unpack && (pl_fail_now() || !(c->unpack = libdeflate_alloc_decompressor())))
		return PL_ENOMEM;
	if (libdeflate_deflate_decompress_ex(c->unpack, in, n, out, n_out, &used, &made) !=
	    LIBDEFLATE_SUCCESS)
		return PL_EDATA;
	return used == n && made == n_out ? 0 : PL_EDATA;
#else
	if (!c->has_unpack) {
		if (pl_fail_now() || inflateInit2(&c->unpack, -15) != Z_OK)
			return PL_ENOMEM;
		c->has_unpack = true;
	} else {
		inflateReset(&c->unpack);
	}
	c->unpack.next_in = (Bytef *)(uintptr_t)in;
	c->unpack.avail_in = (uInt)n;
	c->unpack.next_out = out;
	c->unpack.avail_out = (uInt)n_out;
	if (inflate(&c->unpack, Z_FINISH) != Z_STREAM_END)
		return PL_EDATA;
	return c->unpack.avail_in || c->unpack.avail_out ? PL_EDATA : 0;
#endif
}

static size_t stored_size(size_t n)
{
	return n + 5 * (n ? (n + STORED_MAX - 1) / STORED_MAX : 1);
}

/* One stored block, n <= STORED_MAX. */
static uint8_t *store(uint8_t *q, const uint8_t *p, size_t n, bool final)
{
	*q++ = final;
	pl_le16_put(q, (unsigned)n);
	pl_le16_put(q + 2, ~(unsigned)n & 0xffff);
	if (n)
		memcpy(q + 4, p, n);
	return q + 4 + n;
}

int pl_deflate(struct pl_codecs *cs, const uint8_t *head, size_t n_head, const uint8_t *body,
	       size_t n_body, struct pl_buf *out, struct pl_err *err)
{
	size_t room = stored_size(n_body);
	int64_t got = 0;
	uint8_t *q;

	PL_CHECK(pl_buf_need(out, stored_size(n_head) + room, err));
	q = store(out->p + out->n, head, n_head, !n_body);
	if (n_body && cs->level) {
		struct pl_codec *c = codec_take(cs);

		if (c) {
			got = codec_pack(c, cs->level, body, n_body, q, room - 1);
			codec_give(cs, c);
		}
		if (!c || got < 0)
			return pl_fail(err, PL_ENOMEM, "out of memory (a compressor)");
	}
	q += got;
	for (size_t k; n_body && !got; body += k, n_body -= k) {
		k = pl_min_size(n_body, STORED_MAX);
		q = store(q, body, k, k == n_body);
	}
	out->n = (size_t)(q - out->p);
	return 0;
}

int pl_io_deflate(const void *p, size_t n, int level, struct pl_buf *out, struct pl_err *err)
{
	struct pl_codecs cs;
	int rc;

	pl_deflate_codecs_init(&cs, level);
	rc = pl_deflate(&cs, NULL, 0, p, n, out, err);
	pl_deflate_codecs_fini(&cs);
	return rc;
}

int pl_deflate_inflate(struct pl_codecs *cs, const uint8_t *in, size_t n, uint8_t *out,
		       size_t n_out)
{
	struct pl_codec *c = codec_take(cs);
	int rc;

	if (!c)
		return PL_ENOMEM;
	rc = codec_unpack(c, in, n, out, n_out);
	codec_give(cs, c);
	return rc;
}

int pl_gunzip_whole(const uint8_t *in, size_t n, uint8_t *out, size_t n_out)
{
#if HAVE_LIBDEFLATE
	struct libdeflate_decompressor *d = pl_fail_now() ? NULL : libdeflate_alloc_decompressor();
	size_t used = 0, made = 0;
	bool good;

	if (!d)
		return PL_ENOMEM;
	good = libdeflate_gzip_decompress_ex(d, in, n, out, n_out, &used, &made) ==
	       LIBDEFLATE_SUCCESS;
	libdeflate_free_decompressor(d);
	return good && used == n && made == n_out ? 0 : PL_EDATA;
#else
	(void)in, (void)n, (void)out, (void)n_out;
	return PL_EABSENT;
#endif
}
