/*
 * stream.h - input and output of bytes: files, pipes, compressed data.
 *
 * Nothing here seeks. Input is read into a buffer that callers can look at (pl_in_peek), so that
 * formats are recognised by content. Output to a regular file has a temporary name in the same
 * folder; pl_out_close() renames it, pl_out_abort() removes it.
 */
#ifndef PL_STREAM_H
#define PL_STREAM_H

#include "core/core.h"
#include "core/pool.h"

struct pl_in;
struct pl_out;

/* "-" is standard input. A missing file is PL_EIO; the message has similar names that exist. */
struct pl_in *pl_in_open(const char *path, struct pl_err *err);
/* Bytes in memory (borrowed until close), for tests and fuzzing. */
struct pl_in *pl_in_open_mem(const char *name, const void *p, size_t n, struct pl_err *err);
/*
 * A new input that inflates `raw` (gzip, several members; trailing garbage is ignored). Takes
 * `raw`. With more than one thread in `pool`, another one inflates ahead. A cut or damaged tail:
 * the bytes before it are read, then reading fails once with PL_EDATA, then the input ends.
 */
struct pl_in *pl_in_gunzip(struct pl_in *raw, struct pl_pool *pool, struct pl_err *err);
/* As pl_in_open(); gzip is inflated in this thread. */
struct pl_in *pl_in_open_any(const char *path, struct pl_err *err);
/* The same of an open input, which it takes; NULL: open failed. */
struct pl_in *pl_in_any(struct pl_in *in, struct pl_err *err);
void pl_in_close(struct pl_in *in); /* NULL is allowed */

/*
 * Sets *p to at least `want` unread bytes (fewer only at the end of input), without consuming them.
 * *p is valid until the next call. Returns the number of these bytes, or a negative code.
 */
int64_t pl_in_peek(struct pl_in *in, size_t want, const uint8_t **p, struct pl_err *err) PL_MUST;
void pl_in_skip(struct pl_in *in, size_t n); /* n <= what peek returned */
/* Append the rest of the input; PL_ELIMIT if the buffer would have more than `most` bytes. */
int pl_in_read_all(struct pl_in *in, size_t most, struct pl_buf *b, struct pl_err *err) PL_MUST;
const char *pl_in_name(const struct pl_in *in); /* path, "-" shown as "stdin" */
/* Warns that an empty input among several is left out. */
void pl_in_say_empty(const struct pl_log *log, const char *name);
int64_t pl_in_offset(const struct pl_in *in); /* of the next unread byte */

/* NULL or "-" is standard output. `binary` output is refused (PL_EUSAGE) when it is a terminal. */
struct pl_out *pl_out_open(const char *path, bool binary, struct pl_err *err);
/* A new file that has its name from the beginning, and keeps what was written if the process dies.
 * PL_EIO with EEXIST in err->sys: the file exists. */
struct pl_out *pl_out_open_new(const char *path, struct pl_err *err);
int pl_out_write(struct pl_out *o, const void *p, size_t n, struct pl_err *err) PL_MUST;
int pl_out_flush(struct pl_out *o, struct pl_err *err) PL_MUST; /* to the system, not to the disk */
/* A regular file will be on the disk before it has its name, and its name before pl_out_close()
 * returns. So after a loss of power either the file is whole or the one before it is there. */
void pl_out_durable(struct pl_out *o);
/* Flush, check, rename into place. The handle is freed in every case. */
int pl_out_close(struct pl_out *o, struct pl_err *err) PL_MUST;
/* Temporary files are removed when a signal ends the process. The first one that is opened does
 * this; a program that catches signals itself calls it before. */
void pl_out_hook(void);
void pl_out_abort(struct pl_out *o); /* no file with the final name is made; NULL is allowed */
/* Close the output if rc, the result of the writing, is no error; else abort and return rc. */
int pl_out_finish(struct pl_out *o, int rc, struct pl_err *err) PL_MUST;
/* An output that collects bytes in `b` (borrowed). */
struct pl_out *pl_out_open_buf(struct pl_buf *b, struct pl_err *err);
/* Write all bytes of the input. */
int pl_out_copy(struct pl_out *o, struct pl_in *in, struct pl_err *err) PL_MUST;

/*
 * Bytes that are written first and read later, once or several times. The first megabytes are in
 * memory; then all are in a temporary file without a name, in $TMPDIR or /tmp.
 */
struct pl_spool;
struct pl_spool *pl_io_spool_new(struct pl_err *err);
void pl_io_spool_free(struct pl_spool *s); /* NULL is allowed */
/* An output that appends to the spool. */
struct pl_out *pl_io_spool_write(struct pl_spool *s, struct pl_err *err);
/* An input of all bytes from the first one on; `name` is for messages. Nothing is written to the
 * spool while it is open. */
struct pl_in *pl_io_spool_read(struct pl_spool *s, const char *name, struct pl_err *err);

/* Append the raw deflate form of n > 0 bytes, at level 1 to 12. */
int pl_io_deflate(const void *p, size_t n, int level, struct pl_buf *out,
		  struct pl_err *err) PL_MUST;

#endif
