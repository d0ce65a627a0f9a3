/*
 * kgen_out.c - buffered text output to a plain or gzip file with fast integer formatting.
 * Any failure ends the program with status 4: a generator has no use for half a file.
 */
#include "kgen.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define OUT_SIZE (1u << 20)

struct kg_out {
	FILE *fp;
	gzFile gz;
	const char *path;
	size_t n;
	uint64_t flushed;
	char buf[OUT_SIZE];
};

struct kg_out *kg_out_open(const char *path, bool gzip)
{
	struct kg_out *o = kg_alloc(1, sizeof(*o));

	o->path = path;
	if (gzip)
		o->gz = gzopen(path, "wb1");
	else
		o->fp = fopen(path, "wb");
	if (!o->gz && !o->fp)
		kg_die(KG_EXIT_IO, "%s: %s", path, strerror(errno));
	/* The buffer above is the only one wanted. */
	if (o->fp)
		setvbuf(o->fp, NULL, _IONBF, 0);
	return o;
}

static void flush(struct kg_out *o)
{
	if (!o->n)
		return;
	if (o->gz) {
		if (gzwrite(o->gz, o->buf, (unsigned int)o->n) != (int)o->n)
			kg_die(KG_EXIT_IO, "%s: write failed", o->path);
	} else if (fwrite(o->buf, 1, o->n, o->fp) != o->n) {
		kg_die(KG_EXIT_IO, "%s: %s", o->path, strerror(errno));
	}
	o->flushed += o->n;
	o->n = 0;
}

void kg_out_close(struct kg_out *o)
{
	flush(o);
	if (o->gz ? gzclose(o->gz) != Z_OK : fclose(o->fp) != 0)
		kg_die(KG_EXIT_IO, "%s: close failed", o->path);
	free(o);
}

uint64_t kg_out_bytes(const struct kg_out *o)
{
	return o->flushed + o->n;
}

void kg_put(struct kg_out *o, const char *s, size_t n)
{
	if (n > OUT_SIZE - o->n)
		flush(o);
	if (n > OUT_SIZE)
		kg_die(KG_EXIT_BUG, "string of %zu bytes", n);
	memcpy(o->buf + o->n, s, n);
	o->n += n;
}

void kg_puts(struct kg_out *o, const char *s)
{
	kg_put(o, s, strlen(s));
}

/* Writes v so that it ends before p; returns the first digit. */
static char *digits_before(char *p, uint64_t v)
{
	while (v >= 100) {
		unsigned int two = (unsigned int)(v % 100);

		v /= 100;
		*--p = (char)('0' + two % 10);
		*--p = (char)('0' + two / 10);
	}
	if (v >= 10) {
		*--p = (char)('0' + v % 10);
		v /= 10;
	}
	*--p = (char)('0' + v);
	return p;
}

void kg_put_u64(struct kg_out *o, uint64_t v)
{
	char tmp[24], *end = tmp + sizeof(tmp), *p = digits_before(end, v);

	kg_put(o, p, (size_t)(end - p));
}

void kg_put_us(struct kg_out *o, int64_t ns)
{
	char tmp[32], *end = tmp + sizeof(tmp), *p;
	uint64_t v = ns < 0 ? (uint64_t)-ns : (uint64_t)ns;
	unsigned int frac = (unsigned int)(v % 1000);

	end[-1] = (char)('0' + frac % 10);
	end[-2] = (char)('0' + frac / 10 % 10);
	end[-3] = (char)('0' + frac / 100);
	end[-4] = '.';
	p = digits_before(end - 4, v / 1000);
	if (ns < 0)
		*--p = '-';
	kg_put(o, p, (size_t)(end - p));
}

void kg_putf(struct kg_out *o, const char *fmt, ...)
{
	char tmp[4096];
	va_list ap;
	int n;

	va_start(ap, fmt);
	n = vsnprintf(tmp, sizeof(tmp), fmt, ap);
	va_end(ap);
	if (n < 0 || (size_t)n >= sizeof(tmp))
		kg_die(KG_EXIT_BUG, "line of %d bytes", n);
	kg_put(o, tmp, (size_t)n);
}
