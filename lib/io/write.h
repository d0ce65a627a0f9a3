/*
 * write.h - writing text, JSON and CSV: one writer, which keeps its first failure.
 *
 * Functions here return no error. After the first failure every call does nothing, and
 * pl_write_end() or pl_write_check() reports it. So a report is a list of calls without checks.
 */
#ifndef PL_WRITE_H
#define PL_WRITE_H

#include "io/stream.h"

struct pl_writer {
	struct pl_buf b;    /* text that `out` has not got */
	struct pl_out *out; /* borrowed; NULL: all text stays in b */
	struct pl_err fail; /* the first failure */
	int indent;	    /* of JSON, per level; 0: compact */
	int depth;
	uint8_t has[64]; /* [depth]: has it a value, is it an object */
	bool key;	 /* a key waits for its value */
};
/* Zero-initialised is a writer into b, compact. */
void pl_write_init(struct pl_writer *w, struct pl_out *out, int indent);
/* Write the remaining text, free the buffer. Returns the first failure, or 0. */
int pl_write_end(struct pl_writer *w, struct pl_err *err) PL_MUST;
int pl_write_check(const struct pl_writer *w, struct pl_err *err) PL_MUST;
void pl_write_fini(struct pl_writer *w); /* drops the remaining text */
/* Pass on the text if it is more than `above` bytes. pl_write_format() and JSON do this by
 * themselves; the single pieces below do not, so that the caller can look at b after them. */
void pl_write_flush(struct pl_writer *w, size_t above);

/* ---- single pieces --------------------------------------------------------------------------- */

void pl_write(struct pl_writer *w, const void *p, size_t n);
void pl_write_text(struct pl_writer *w, const char *s);
void pl_write_char(struct pl_writer *w, char c);
void pl_write_format(struct pl_writer *w, const char *fmt, ...) PL_PRINTF(2, 3);
void pl_write_int(struct pl_writer *w, int64_t v);
void pl_write_decimal(struct pl_writer *w, int64_t mantissa, unsigned scale); /* 150, 2: 1.50 */
void pl_write_us(struct pl_writer *w, pl_ns ns); /* microseconds, exactly */
/* Write the fewest digits (15, 16 or 17) that are read back as the same double; v is finite. */
void pl_write_real(struct pl_writer *w, double v);
/* A JSON string with its quotes; each byte that is not UTF-8 becomes U+FFFD. */
void pl_write_json_str(struct pl_writer *w, const char *s, size_t n);
void pl_write_json_text(struct pl_writer *w, const char *s); /* the same; NULL: "" */
/* A JSON value of a file: copied if valid and on one line, else repaired (inf, N/A as strings). */
void pl_write_json(struct pl_writer *w, const char *s, size_t n);
/* Is it one or more valid JSON values on one line? */
bool pl_json_valid(const char *s, size_t n);
void pl_write_base64(struct pl_writer *w, const void *p, size_t n);
/* A cell of CSV, quoted if needed. */
void pl_write_csv(struct pl_writer *w, const char *s, size_t n);

/* ---- JSON: commas, line breaks and nesting are the writer's ---------------------------------- */

void pl_json_open(struct pl_writer *w, char bracket); /* '{' or '[' */
void pl_json_close(struct pl_writer *w);
void pl_json_key(struct pl_writer *w, const char *key);
void pl_json_put_str(struct pl_writer *w, const char *s, size_t n);
void pl_json_put_int(struct pl_writer *w, int64_t v);
void pl_json_put_real(struct pl_writer *w, double v); /* not finite: null */
void pl_json_put_bool(struct pl_writer *w, bool v);
void pl_json_put_null(struct pl_writer *w);
/* End a document: a line break, then pl_write_end(). */
int pl_json_end(struct pl_writer *w, struct pl_err *err) PL_MUST;
/* key and value in one call */
void pl_json_str(struct pl_writer *w, const char *key, const char *s); /* NULL: null */
void pl_json_int(struct pl_writer *w, const char *key, int64_t v);
void pl_json_real(struct pl_writer *w, const char *key, double v);
void pl_json_bool(struct pl_writer *w, const char *key, bool v);

#endif
