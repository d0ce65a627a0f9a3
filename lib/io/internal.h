/*
 * internal.h - declarations that the files of lib/io share: inputs, and deflate.
 */
#ifndef PL_IO_INTERNAL_H
#define PL_IO_INTERNAL_H

#include <pthread.h>

#include "core/bytes.h"
#include "io/container.h"

/* ---- inputs ------------------------------------------------------------------------------ */

/*
 * The unread bytes are p[0..n). refill() adds at least one, or sets `eof`, and may move them. Its
 * failure goes into `fail`, and pl_in_peek() reports it if the caller wants more bytes than there
 * are: PL_EDATA (a cut gzip) once, so that the rest can be read; any other failure each time.
 */
struct pl_in {
	char *name;
	const uint8_t *p;
	size_t n;
	int64_t offset; /* of p[0] */
	int64_t size;	/* of the whole, -1 unknown */
	bool eof;
	struct pl_err fail;
	void (*refill)(struct pl_in *in);
	void (*fini)(struct pl_in *in);
	uint8_t *buf; /* owned, or NULL */
	size_t cap;
	int fd;
	struct pl_gunzip *gz;
};

struct pl_in *pl_in_alloc(const char *name, struct pl_err *err);
/* Make room for `more` bytes behind the unread ones, which are in in->buf or are moved there. */
int pl_in_room(struct pl_in *in, size_t more);

struct pl_spool {
	struct pl_buf mem;
	int fd; /* -1: all bytes are in memory */
};
/* An input that reads the file from its beginning, wherever the position of the descriptor is. */
struct pl_in *pl_in_open_fd(const char *name, int fd, struct pl_err *err);

/* After ENOENT: the failure of opening the path, with the names that the user may have meant. */
int pl_in_missing(const char *path, struct pl_err *err);

/* ---- deflate ----------------------------------------------------------------------------- */

uint32_t pl_deflate_crc32(uint32_t crc, const void *p, size_t n);

/*
 * Compressors and decompressors for many threads: each job borrows one.
 */
struct pl_codec;
struct pl_codecs {
	pthread_mutex_t lock;
	struct pl_codec *free;
	int level;
};
void pl_deflate_codecs_init(struct pl_codecs *cs, int level);
void pl_deflate_codecs_fini(struct pl_codecs *cs);

/*
 * Append to `out` the raw deflate form of head and body: head (at most 65535 bytes) as one stored
 * block, body at the level, or stored if that is smaller.
 */
int pl_deflate(struct pl_codecs *cs, const uint8_t *head, size_t n_head, const uint8_t *body,
	       size_t n_body, struct pl_buf *out, struct pl_err *err) PL_MUST;
/* Inflate raw deflate data; both lengths must fit exactly. 0, PL_EDATA or PL_ENOMEM. */
int pl_deflate_inflate(struct pl_codecs *cs, const uint8_t *in, size_t n, uint8_t *out,
		       size_t n_out) PL_MUST;
/* One whole gzip member, only by libdeflate; 0 only if everything fits exactly. */
int pl_gunzip_whole(const uint8_t *in, size_t n, uint8_t *out, size_t n_out) PL_MUST;

/* ---- columns: column.c reads, colput.c writes ---------------------------------------------- */

#define PL_COL_PIECE  1024u /* values of a narrow column that are converted at a time */
#define PL_VARINT_MAX 10u   /* bytes */
#define PL_COL_SIGNED 0x80u /* of a width */

enum pl_coding { PL_C_VALUES, PL_C_DELTAS, PL_C_EQUAL, PL_C_FIXED, PL_C_RUNS, PL_C_DELTA_RUNS };

static inline size_t pl_varint_size(uint64_t v)
{
	return ((63u - (unsigned)__builtin_clzll(v | 1)) * 9 + 73) / 64;
}
/* The end of the buffer, with room for n bytes; NULL: there is no memory, now or before. */
static inline uint8_t *pl_io_room(struct pl_buf *b, size_t n)
{
	if (PL_UNLIKELY(b->cap - b->n < n) && !b->failed)
		b->failed = pl_buf_need(b, n, NULL) < 0;
	return PL_UNLIKELY(b->failed) ? NULL : b->p + b->n;
}
/* Plain form: one byte at a time. At most PL_VARINT_MAX bytes. */
static inline uint8_t *pl_varint_put(uint8_t *q, uint64_t v)
{
	for (; v >= 0x80; v >>= 7)
		*q++ = (uint8_t)(v | 0x80);
	*q++ = (uint8_t)v;
	return q;
}

/* ---- the container's outer form, paceline-container(5) ------------------------------------- */

#define PL_MEMBER_MIN	24u /* bytes of a member that tell its role and size */
#define PL_MEMBER_END	34u /* the whole end member */
#define PL_MEMBER_TAIL	8u  /* crc32 and length */
#define PL_HEADER_BYTES 40u /* fixed part of a header's payload */
#define PL_HEADER_MAX	65536u
#define PL_BLOCK_HEAD	16u /* of a block's payload */
#define PL_INDEX_HEAD	40u /* of an index's payload, block header included */
#define PL_INDEX_ENTRY	20u
#define PL_PAYLOAD_MAX	(PL_BLOCK_MAX + PL_BLOCK_HEAD)
#define PL_MEMBER_MAX	(PL_PAYLOAD_MAX + PL_PAYLOAD_MAX / 1024 + 1024)
#define PL_REVISION	1u
/* Blocks with fewer bytes than this are compressed or inflated in place, because waking a thread
 * would take longer; if they are stored, with fewer than PL_QUICK_STORED. */
#define PL_QUICK_PACKED 4096u
#define PL_QUICK_STORED (1u << 20)

enum pl_container_member_role {
	PL_ROLE_HEADER = 'H',
	PL_ROLE_BLOCK = 'B',
	PL_ROLE_INDEX = 'X',
	PL_ROLE_END = 'E'
};

struct pl_container_member {
	uint8_t role;
	uint32_t size; /* of the member */
	uint32_t kind; /* of a header */
	size_t head;   /* bytes before the deflate data */
};
extern const uint8_t pl_container_member_end[PL_MEMBER_END];
/* Could these bytes, which may be cut, be the first of a member? */
bool pl_container_member_starts(const uint8_t *p, size_t n);
/* Read the first PL_MEMBER_MIN (header: + 4) bytes of a member. NULL, or the fault. */
const char *pl_container_member_parse(struct pl_container_member *m, const uint8_t *p, size_t n);

#define PL_FNV_START 0xcbf29ce484222325u
static inline uint64_t pl_fnv(uint64_t h, const uint8_t *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		h = (h ^ p[i]) * 0x100000001b3u;
	return h;
}
/* One entry of the index. */
static inline void pl_index_entry(uint8_t e[PL_INDEX_ENTRY], uint32_t type, uint16_t version,
				  uint32_t count, uint32_t bytes, uint32_t crc)
{
	pl_le32_put(e, type);
	pl_le16_put(e + 4, version);
	pl_le16_put(e + 6, 0);
	pl_le32_put(e + 8, count);
	pl_le32_put(e + 12, bytes);
	pl_le32_put(e + 16, crc);
}

#endif
