/*
 * json.h - a streaming pull reader for the JSON of real profilers.
 *
 * The reader works on a byte range in memory that holds one whole value (an event, a metadata
 * value); the importers cut such ranges out of the stream (import/scan.h). It accepts and reports
 * known faults of profilers (inf, nan, N/A without quotes; control characters in strings; bad
 * escapes and UTF-8); other faults are errors with a byte offset.
 */
#ifndef PL_JSON_H
#define PL_JSON_H

#include "io/stream.h"

enum pl_json_type {
	PL_JSON_END,
	PL_JSON_OBJECT,	    /* { */
	PL_JSON_OBJECT_END, /* } */
	PL_JSON_ARRAY,	    /* [ */
	PL_JSON_ARRAY_END,  /* ] */
	PL_JSON_KEY,	    /* text = the key */
	PL_JSON_STRING,
	PL_JSON_NUMBER, /* text = the number as written */
	PL_JSON_TRUE,
	PL_JSON_FALSE,
	PL_JSON_NULL,
	PL_JSON_WORD, /* inf, nan, N/A ... without quotes: text = as written */
	PL_JSON_ERROR,
};

struct pl_json {
	const char *p, *end, *start;
	const char *text; /* of the token: raw bytes between the quotes, or the number */
	size_t len;
	bool escaped; /* the string has backslashes: pl_json_unescape() */
	bool lenient; /* something that is not JSON was accepted; sticky */
	int depth;
	uint8_t stack[64]; /* '{' or '['; deeper nesting is an error */
	const char *what;  /* of an error: static text */
};

void pl_json_init(struct pl_json *j, const char *p, size_t n);
enum pl_json_type pl_json_next(struct pl_json *j);
/* Skip the value that begins with the next token; *p, *n: its text. 0 or PL_EDATA. */
int pl_json_skip(struct pl_json *j, const char **p, size_t *n);
/* Decode escapes; invalid ones stay, lone surrogates become U+FFFD. Returns the length, <= n. */
size_t pl_json_unescape(const char *s, size_t n, char *out);

/* Length of the UTF-8 sequence at s; 0: malformed (RFC 3629: no overlong forms, no surrogates). */
size_t pl_json_utf8(const unsigned char *s, const unsigned char *end);

/* Exact decimal: value = mantissa / 10^scale. False when it has an exponent or over 18 digits. */
bool pl_json_decimal(const char *s, size_t n, int64_t *mantissa, int *scale);
/* A decimal number of `unit_ns` units (1000: microseconds) in ns, exactly; digits below 1 ns are
 * rounded half away from zero; out of range saturates and returns false. */
bool pl_json_time_ns(const char *s, size_t n, int64_t unit_ns, pl_ns *ns);
bool pl_json_i64(const char *s, size_t n, int64_t *v);

#endif
