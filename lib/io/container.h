/*
 * container.h - paceline's one binary format, paceline-container(5): a series of gzip members, each
 * with its size in the extra field, so that zcat works and members compress and check in parallel.
 *
 * A stream is one or more segments. A segment is: header member, blocks, index block, end member.
 * Each block has a four-letter type, a version, a count and a payload whose layout is the business
 * of the stream's kind (trace(5), graph(5) ...).
 */
#ifndef PL_CONTAINER_H
#define PL_CONTAINER_H

#include "io/stream.h"

#define PL_FOURCC(a, b, c, d)                                                                      \
	((uint32_t)(a) | (uint32_t)(b) << 8 | (uint32_t)(c) << 16 | (uint32_t)(d) << 24)

enum pl_kind {
	PL_KIND_TRACE = PL_FOURCC('T', 'R', 'A', 'C'),
	PL_KIND_GRAPH = PL_FOURCC('G', 'R', 'P', 'H'),
	PL_KIND_PLAN = PL_FOURCC('P', 'L', 'A', 'N'),
	PL_KIND_MODEL = PL_FOURCC('M', 'O', 'D', 'L'),
};
#define PL_BLOCK_PROVENANCE PL_FOURCC('P', 'R', 'O', 'V') /* UTF-8 text, one line a program */
#define PL_BLOCK_MAX	    (256u << 20) /* a bigger payload is refused: PL_ELIMIT */

/* ---- writing --------------------------------------------------------------------------- */

struct pl_container_writer;

struct pl_container_writer_opts {
	uint32_t kind;	       /* enum pl_kind */
	uint16_t major, minor; /* version of the kind's format */
	uint64_t incompat;     /* feature bits that a reader must know */
	int level;	       /* 0 stored .. 12 */
	struct pl_pool *pool;  /* may be NULL */
};

/* Writes to `out` (borrowed). Blocks are compressed by the pool and written in order. */
struct pl_container_writer *pl_container_writer_open(struct pl_out *out,
						     const struct pl_container_writer_opts *opts,
						     struct pl_err *err);
/* Takes the payload: b is left empty and valid. `records` counts into the totals. */
int pl_container_writer_put(struct pl_container_writer *w, uint32_t type, uint16_t version,
			    uint32_t count, struct pl_buf *b, struct pl_err *err) PL_MUST;
/* End the segment (index and end member written) and begin another of the same options. */
int pl_container_writer_next_segment(struct pl_container_writer *w, struct pl_err *err) PL_MUST;
/* Copy one already compressed member, as pl_container_reader_raw() gave it, into the stream. A
 * header member begins, an end member ends a segment; only whole segments may be copied. */
int pl_container_writer_copy(struct pl_container_writer *w, const void *member, size_t n,
			     struct pl_err *err) PL_MUST;
/* End the last segment and free; the output stays open. */
int pl_container_writer_close(struct pl_container_writer *w, struct pl_err *err) PL_MUST;
void pl_container_writer_abort(struct pl_container_writer *w); /* NULL is fine */

/* ---- reading --------------------------------------------------------------------------- */

struct pl_container_reader;

struct pl_block {
	uint32_t type; /* 0: a segment begins here (kind, version below); see PL_BLOCK_* */
	uint16_t version;
	uint32_t count;
	const uint8_t *p; /* payload, valid until the next call */
	size_t n;
	uint32_t segment; /* index of its segment in the stream, from 0 */
	uint32_t ordinal; /* index of the block in its segment, from 0; the header is none */
	int64_t offset;	  /* of the member in the stream */
	uint32_t kind;	  /* of the segment */
	uint16_t major, minor;
};
#define PL_BLOCK_SEGMENT 0u

struct pl_container_reader_opts {
	uint32_t kind;	/* what is expected, 0: any */
	uint16_t major; /* the highest that the caller can read */
	uint64_t known; /* feature bits that the caller knows */
	bool salvage;	/* keep whole blocks of a damaged or cut stream instead of failing */
	bool raw;	/* keep each member's compressed bytes for pl_container_reader_raw() */
	struct pl_pool *pool; /* may be NULL: inflation runs ahead */
	const struct pl_log *log;
};

/* Do these first bytes look like our stream? Needs 18 bytes. */
bool pl_container_probe(const uint8_t *p, size_t n);
/* Reads the kind of the stream, PL_KIND_GRAPH ..., without consuming it; PL_NONE: ours, but cut in
 * its header; 0: not ours. PL_EDATA: the input is empty. */
int pl_container_kind(struct pl_in *in, uint32_t *kind, struct pl_err *err) PL_MUST;
/* "trace", "graph" ...; of another kind its letters, in `out`. */
const char *pl_container_kind_name(uint32_t kind, char out[8]);
/* The commands for a stream of the kind, for messages. */
const char *pl_container_kind_use(uint32_t kind);
/* Reads from `in` (borrowed). */
struct pl_container_reader *pl_container_reader_open(struct pl_in *in,
						     const struct pl_container_reader_opts *opts,
						     struct pl_err *err);
/* 1 and *b, 0 at the proper end, or a negative code: "NAME: block 17 at byte 1048812: ...". Index
 * blocks are checked and not shown. */
int pl_container_reader_next(struct pl_container_reader *r, struct pl_block *b,
			     struct pl_err *err) PL_MUST;
/* The compressed member of the block just returned, or of the header. Index and end members come
 * too, with the flag `raw`, as blocks of type PL_BLOCK_INDEX and PL_BLOCK_END without payload. */
void pl_container_reader_raw(const struct pl_container_reader *r, const void **member, size_t *n);
#define PL_BLOCK_INDEX PL_FOURCC('I', 'N', 'D', 'X')
#define PL_BLOCK_END   PL_FOURCC('E', 'N', 'D', ' ')
void pl_container_reader_close(struct pl_container_reader *r); /* NULL is fine */

/* ---- payload encoding: little-endian, varint ------------------------------------------------ */

/* Without memory b->failed is set, and pl_container_writer_put() fails. */
void pl_io_put_u8(struct pl_buf *b, uint8_t v);
void pl_io_put_u32(struct pl_buf *b, uint32_t v);
void pl_io_put_u64(struct pl_buf *b, uint64_t v);
void pl_io_put_f32(struct pl_buf *b, float v);		       /* its bits, as u32 */
void pl_io_put_f64(struct pl_buf *b, double v);		       /* its bits, as u64 */
void pl_io_put_varint(struct pl_buf *b, uint64_t v);	       /* LEB128 */
void pl_io_put_svarint(struct pl_buf *b, int64_t v);	       /* zigzag */
void pl_io_put_str(struct pl_buf *b, const char *s, size_t n); /* len, bytes */
/* Appends zeros until b has n bytes. */
void pl_io_put_zeros(struct pl_buf *b, size_t n);

/* A cursor over a payload. Reading past the end sets `bad` and yields 0: check once at the end. */
struct pl_cur {
	const uint8_t *p, *end;
	bool bad;
};
uint8_t pl_io_get_u8(struct pl_cur *c);
uint32_t pl_io_get_u32(struct pl_cur *c);
uint64_t pl_io_get_u64(struct pl_cur *c);
float pl_io_get_f32(struct pl_cur *c);
double pl_io_get_f64(struct pl_cur *c);
uint64_t pl_io_get_varint(struct pl_cur *c);
int64_t pl_io_get_svarint(struct pl_cur *c);
const char *pl_io_get_str(struct pl_cur *c, size_t *n); /* borrowed, not NUL-terminated */

/*
 * Whole columns. `delta` codes differences between neighbours. Encoded: one byte of coding, then
 * data: 0 = varint of zigzag values, 1 = varint of zigzag differences, 2 = all equal (one value),
 * 3 = fixed little-endian of width w (one byte w), 4 = runs (value, length), 5 = runs of
 * differences. The writer picks a small one; a reader must know all. No rows take no bytes.
 */
void pl_column_put_i64(struct pl_buf *b, const int64_t *v, size_t n, bool delta);
void pl_column_put_u32(struct pl_buf *b, const uint32_t *v, size_t n, bool delta);
void pl_column_put_u8(struct pl_buf *b, const uint8_t *v, size_t n);
/* 0 or PL_EDATA ("column cut short", ...). */
int pl_column_get_i64(struct pl_cur *c, int64_t *v, size_t n, struct pl_err *err) PL_MUST;
int pl_column_get_u32(struct pl_cur *c, uint32_t *v, size_t n, struct pl_err *err) PL_MUST;
int pl_column_get_u8(struct pl_cur *c, uint8_t *v, size_t n, struct pl_err *err) PL_MUST;

#endif
