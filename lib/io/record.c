/*
 * Tables in payloads: see record.h. Input is not trusted: a list is no longer than the bytes that
 * are left, and numbers must fit their members. Linear.
 */
#include "io/record.h"
#include "io/internal.h"

#define TABLE_BYTES (256u << 10) /* a block of entries ends after this size */

static const uint8_t value_size[] = {
	[PL_F_U8] = 1,
	[PL_F_U32] = 4,
	[PL_F_ID] = 4,
	[PL_F_I32] = 4,
	[PL_F_I64] = 8,
	[PL_F_SIZE] = 8,
	[PL_F_F64] = 8,
	[PL_F_TEXT] = sizeof(char *),
	[PL_F_MAYBE_TEXT] = sizeof(char *),
};

int pl_record_get_short(struct pl_err *err)
{
	return pl_fail(err, PL_EDATA, "the payload ends too early");
}

/* ---- fields ---------------------------------------------------------------------------------- */

static void put_value(struct pl_buf *b, unsigned type, const void *p)
{
	uint32_t u;
	char *s;

	switch (type) {
	case PL_F_U8:
		pl_io_put_u8(b, *(const uint8_t *)p);
		break;
	case PL_F_U32:
		pl_io_put_varint(b, *(const uint32_t *)p);
		break;
	case PL_F_ID:
		u = *(const uint32_t *)p;
		pl_io_put_varint(b, u == PL_NONE ? 0 : (uint64_t)u + 1);
		break;
	case PL_F_I32:
		pl_io_put_svarint(b, *(const int32_t *)p);
		break;
	case PL_F_I64:
		pl_io_put_svarint(b, *(const int64_t *)p);
		break;
	case PL_F_SIZE:
		pl_io_put_varint(b, (uint64_t) * (const int64_t *)p);
		break;
	case PL_F_F64:
		pl_io_put_f64(b, *(const double *)p);
		break;
	default:
		memcpy(&s, p, sizeof(s));
		if (type == PL_F_MAYBE_TEXT)
			pl_io_put_u8(b, s != NULL);
		pl_io_put_str(b, s ? s : "", s ? strlen(s) : 0);
	}
}

static uint32_t get_u32(struct pl_cur *c)
{
	uint64_t v = pl_io_get_varint(c);

	c->bad |= v > UINT32_MAX;
	return (uint32_t)v;
}

static int32_t get_i32(struct pl_cur *c)
{
	int64_t v = pl_io_get_svarint(c);

	c->bad |= v < INT32_MIN || v > INT32_MAX;
	return (int32_t)v;
}

static int64_t get_size(struct pl_cur *c)
{
	uint64_t v = pl_io_get_varint(c);

	c->bad |= v > INT64_MAX;
	return (int64_t)v;
}

/* Texts have no zero byte, because they end with one in memory. */
static int get_text(struct pl_cur *c, bool is, struct pl_arena *arena, void *out,
		    struct pl_err *err)
{
	size_t n;
	const char *p = pl_io_get_str(c, &n);
	char *s = NULL;

	if (c->bad)
		return 0;
	if (memchr(p, '\0', n))
		return pl_fail(err, PL_EDATA, "a text with the byte 0");
	if (is) {
		s = arena ? pl_arena_take(arena, n + 1) : pl_malloc(n + 1);
		if (!s)
			return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", n);
		memcpy(s, p, n);
		s[n] = '\0';
	}
	memcpy(out, &s, sizeof(s));
	return 0;
}

static int get_value(struct pl_cur *c, unsigned type, void *p, struct pl_arena *arena,
		     struct pl_err *err)
{
	switch (type) {
	case PL_F_U8:
		*(uint8_t *)p = pl_io_get_u8(c);
		return 0;
	case PL_F_U32:
		*(uint32_t *)p = get_u32(c);
		return 0;
	case PL_F_ID:
		*(uint32_t *)p = get_u32(c) - 1u; /* 0 is PL_NONE */
		return 0;
	case PL_F_I32:
		*(int32_t *)p = get_i32(c);
		return 0;
	case PL_F_I64:
		*(int64_t *)p = pl_io_get_svarint(c);
		return 0;
	case PL_F_SIZE:
		*(int64_t *)p = get_size(c);
		return 0;
	case PL_F_F64:
		*(double *)p = pl_io_get_f64(c);
		return 0;
	default:
		return get_text(c, type == PL_F_TEXT || pl_io_get_u8(c), arena, p, err);
	}
}

void pl_record_put_fields(struct pl_buf *b, const struct pl_record *r, const void *row)
{
	for (const struct pl_field *f = r->field; f < r->field + r->n_fields; f++) {
		const char *p = (const char *)row + f->offset, *end = p + f->bytes;

		do
			put_value(b, f->type, p);
		while ((p += value_size[f->type]) < end);
	}
}

bool pl_record_same_fields(const struct pl_record *r, const void *a, const void *b)
{
	for (const struct pl_field *f = r->field; f < r->field + r->n_fields; f++)
		if (memcmp((const char *)a + f->offset, (const char *)b + f->offset, f->bytes) != 0)
			return false;
	return true;
}

static int bad_record(const struct pl_record *r, struct pl_err *err)
{
	return pl_fail(err, PL_EDATA, "a %s is cut short or has a number out of range", r->what);
}

int pl_record_get_fields(struct pl_cur *c, const struct pl_record *r, void *row,
			 struct pl_arena *arena, struct pl_err *err)
{
	for (const struct pl_field *f = r->field; f < r->field + r->n_fields; f++) {
		char *p = (char *)row + f->offset, *end = p + f->bytes;

		do
			PL_CHECK(get_value(c, f->type, p, arena, err));
		while ((p += value_size[f->type]) < end);
	}
	return c->bad ? bad_record(r, err) : 0;
}

/* ---- entries --------------------------------------------------------------------------------- */

int pl_record_put_entry(struct pl_buf *b, const struct pl_record *r, const void *row,
			const void *arg, struct pl_err *err)
{
	size_t at = b->n, n, more;
	int rc;

	pl_io_put_u8(b, 0); /* most sizes are one byte, so most entries need not move for them */
	pl_record_put_fields(b, r, row);
	if (r->put_rest && (rc = r->put_rest(b, row, arg, err)) < 0)
		return rc;
	n = b->n - at - 1;
	more = pl_varint_size(n) - 1;
	if (!pl_io_room(b, more))
		return 0;
	if (more)
		memmove(b->p + at + 1 + more, b->p + at + 1, n);
	pl_varint_put(b->p + at, n);
	b->n += more;
	return 0;
}

int pl_container_writer_put_table(struct pl_container_writer *w, uint32_t type, uint16_t version,
				  const struct pl_record *r, const void *rows, size_t n,
				  const void *arg, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	size_t first = 0;
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		PL_TRY(pl_record_put_entry(&b, r, (const char *)rows + i * r->size, arg, err));
		if (b.n < TABLE_BYTES && i + 1 < n)
			continue;
		PL_TRY(pl_container_writer_put(w, type, version, (uint32_t)(i + 1 - first), &b,
					       err));
		first = i + 1;
	}
out:
	pl_buf_fini(&b);
	return rc;
}

int pl_record_get_part(struct pl_cur *c, uint64_t size, struct pl_cur *part, struct pl_err *err)
{
	*part = (struct pl_cur){ .p = c->p, .end = c->p };
	if (c->bad || size > (size_t)(c->end - c->p))
		return pl_record_get_short(err);
	part->end += size;
	c->p += size;
	return 0;
}

int pl_record_get_entry(struct pl_cur *c, const struct pl_record *r, void *row,
			struct pl_arena *arena, void *arg, struct pl_err *err)
{
	struct pl_cur part;

	PL_CHECK(pl_record_get_part(c, pl_io_get_varint(c), &part, err));
	PL_CHECK(pl_record_get_fields(&part, r, row, arena, err));
	if (r->get_rest)
		PL_CHECK(r->get_rest(&part, row, arg, err));
	return part.bad ? bad_record(r, err) : 0;
}

int pl_record_get_table(struct pl_cur *c, uint32_t count, const struct pl_record *r, void *array,
			size_t *n, size_t *cap, struct pl_arena *arena, void *arg,
			struct pl_err *err)
{
	int rc = 0;

	for (uint32_t i = 0; i < count; i++) {
		char *rows;

		PL_TRY(pl_grow(array, cap, *n + 1, r->size, err));
		memcpy(&rows, array, sizeof(rows));
		memset(rows + *n * r->size, 0, r->size);
		rc = pl_record_get_entry(c, r, rows + (*n)++ * r->size, arena, arg, err);
		if (rc < 0) {
			pl_wrap(err, "entry %u", i);
			goto out;
		}
	}
out:
	return rc;
}

void pl_record_put_numbers(struct pl_buf *b, const uint32_t *v, uint32_t n)
{
	int64_t last = 0;

	pl_io_put_varint(b, n);
	for (uint32_t i = 0; i < n; last = v[i++])
		pl_io_put_svarint(b, (int64_t)v[i] - last);
}

int pl_record_get_numbers(struct pl_cur *c, void *array, size_t *n, size_t *cap, uint32_t *first,
			  uint32_t *count, struct pl_err *err)
{
	uint64_t m = pl_io_get_varint(c);
	uint32_t **pool = array;
	int64_t v = 0;

	if (c->bad || m > (size_t)(c->end - c->p))
		return pl_record_get_short(err);
	if (*n + m >= PL_NONE)
		return pl_fail(err, PL_ELIMIT, "lists of more than %u numbers", PL_NONE - 1);
	PL_CHECK(pl_grow(pool, cap, *n + m, sizeof(**pool), err));
	*first = (uint32_t)*n;
	*count = (uint32_t)m;
	for (uint64_t i = 0; i < m; i++) {
		v = pl_add_sat(v, pl_io_get_svarint(c));
		c->bad |= v < 0 || v > UINT32_MAX;
		(*pool)[(*n)++] = (uint32_t)v;
	}
	return 0;
}

/* ---- strings, provenance --------------------------------------------------------------------- */

int pl_container_writer_put_strings(struct pl_container_writer *w, uint32_t type, uint16_t version,
				    const struct pl_intern *str, size_t first, size_t limit,
				    struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc = 0;

	for (size_t i = first; i < str->n; i++) {
		if (i == first)
			pl_io_put_varint(&b, first);
		pl_io_put_str(&b, str->str[i], str->len[i]);
		if (b.n < limit && i + 1 < str->n)
			continue;
		PL_TRY(pl_container_writer_put(w, type, version, (uint32_t)(i + 1 - first), &b,
					       err));
		first = i + 1;
	}
out:
	pl_buf_fini(&b);
	return rc;
}

int pl_record_get_strings(struct pl_cur *c, uint32_t count, struct pl_intern *str,
			  struct pl_err *err)
{
	uint64_t first = pl_io_get_varint(c);

	if (c->bad)
		return pl_record_get_short(err);
	if (first != str->n)
		return pl_fail(err, PL_EDATA, "strings from %llu on, but %zu are defined",
			       (unsigned long long)first, str->n);
	for (uint32_t i = 0; i < count; i++) {
		size_t n, before = str->n;
		const char *p = pl_io_get_str(c, &n);
		pl_id id;

		if (c->bad)
			return pl_record_get_short(err);
		PL_CHECK(pl_intern_add(str, p, n, &id, err));
		if (str->n == before)
			return pl_fail(err, PL_EDATA, "string %zu repeats string %u", before, id);
	}
	return 0;
}

static int end_line(struct pl_buf *b, struct pl_err *err)
{
	return b->n && b->p[b->n - 1] != '\n' ? pl_buf_put(b, "\n", 1, err) : 0;
}

int pl_container_writer_put_provenance(struct pl_container_writer *w, uint16_t version,
				       const void *text, size_t n, const char *line,
				       struct pl_err *err)
{
	struct pl_buf b = { 0 };
	uint32_t lines = 0;
	int rc;

	PL_TRY(pl_buf_put(&b, text, n, err));
	PL_TRY(end_line(&b, err));
	for (const char *s = line; s && *s; s++) {
		unsigned char c = (unsigned char)*s;

		if (c >= 0x20 && c != 0x7f)
			pl_io_put_u8(&b, c);
		else
			PL_TRY(pl_buf_printf(&b, err, "\\x%02x", c));
	}
	if (line)
		pl_io_put_u8(&b, '\n');
	for (size_t i = 0; i < b.n; i++)
		lines += b.p[i] == '\n';
	if (lines)
		rc = pl_container_writer_put(w, PL_BLOCK_PROVENANCE, version, lines, &b, err);
out:
	pl_buf_fini(&b);
	return rc;
}

int pl_record_get_provenance(struct pl_buf *lines, const struct pl_block *b, struct pl_err *err)
{
	PL_CHECK(pl_buf_put(lines, b->p, b->n, err));
	return end_line(lines, err);
}

/* ---- streams of one segment ------------------------------------------------------------------ */

int pl_container_reader_each(struct pl_in *in, const struct pl_container_reader_opts *opts,
			     const char *what,
			     int (*on_block)(void *arg, const struct pl_block *b,
					     struct pl_err *err),
			     void *arg, struct pl_err *err)
{
	struct pl_container_reader *r = pl_container_reader_open(in, opts, err);
	struct pl_block b;
	int rc = r ? 0 : err->code;

	while (rc >= 0 && (rc = pl_container_reader_next(r, &b, err)) > 0) {
		if (b.type == PL_BLOCK_SEGMENT && b.segment)
			rc = pl_fail(err, PL_EDATA,
				     "%s: a second %s begins at byte %lld; a stream holds one "
				     "%s, so give %ss as separate files",
				     pl_in_name(in), what, (long long)b.offset, what, what);
		else if ((rc = on_block(arg, &b, err)) < 0)
			pl_wrap(err, "%s: block %u at byte %lld", pl_in_name(in), b.ordinal,
				(long long)b.offset);
	}
	pl_container_reader_close(r);
	return rc;
}
