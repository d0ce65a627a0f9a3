/*
 * The rows of a whole table of an SQLite database, from its pages. SQLite's own interpreter takes
 * longer to read the rows than an importer takes to use them. SQLite's documentation has the format
 * under "Database File Format": a table is a B-tree, whose leaves hold a record for each row; what
 * does not fit into a leaf continues on a list of pages.
 *
 * Memory: a window of the file, one page for each level of the tree, and the longest record.
 */
#include <stdlib.h>
#include <unistd.h>

#include "io/internal.h"
#include "io/sqlite_rows.h"

#define MAX_LEVELS 20
#define MAX_RECORD ((uint64_t)1 << 30)
#define WINDOW	   ((size_t)64 << 10) /* the largest page */

enum { INTERIOR = 5, LEAF = 13 };

struct level { /* an interior page that is being visited */
	uint8_t *page;
	uint32_t number;
	unsigned header, next, n; /* child that comes; cells: child n is the one to the right */
};
struct value {
	uint64_t type; /* of a record; 0 NULL */
	const uint8_t *p;
	uint32_t n;
};
struct pl_sqlite_rows {
	int fd;
	const char *name; /* for messages */
	uint64_t pages, seen;
	uint32_t root; /* 0: the first leaf has been reached */
	uint32_t page_bytes, usable;
	uint8_t *window;
	uint64_t at; /* of the window in the file */
	size_t n_window;
	struct level level[MAX_LEVELS];
	unsigned depth;
	const uint8_t *leaf;
	uint32_t leaf_number;
	unsigned cell, n_cells, header; /* of the leaf */
	struct pl_buf record, text;
	struct value *value; /* of the columns that are wanted */
	int *slot;	     /* of each column of the table: its place in value[], -1 none */
	unsigned n_columns, n_values;
	uint8_t link[4];
	bool no_memory; /* for a text: the next row fails */
	char number[32], table[64];
};

static uint32_t be16(const uint8_t *p)
{
	return (uint32_t)p[0] << 8 | p[1];
}

static uint32_t be32(const uint8_t *p)
{
	return be16(p) << 16 | be16(p + 2);
}

static int damaged(const struct pl_sqlite_rows *r, uint32_t page, const char *what,
		   struct pl_err *err)
{
	return pl_fail(err, PL_EDATA, "%s: table %s: page %u: %s; the database is cut or damaged",
		       r->name, r->table, page, what);
}

/* Up to nine bytes, the last of which has eight bits. NULL: it does not end before `end`. */
static inline const uint8_t *take(const uint8_t *p, const uint8_t *end, uint64_t *v)
{
	uint64_t x = 0;

	if (PL_LIKELY(p < end && *p < 0x80)) {
		*v = *p;
		return p + 1;
	}
	for (unsigned i = 0; i < 9 && p < end; i++) {
		uint8_t c = *p++;

		if (i == 8) {
			*v = x << 8 | c;
			return p;
		}
		x = x << 7 | (c & 0x7f);
		if (c < 0x80) {
			*v = x;
			return p;
		}
	}
	return NULL;
}

/* ---- pages --------------------------------------------------------------------------------- */

static int read_at(struct pl_sqlite_rows *r, uint8_t *to, uint64_t at, size_t n, struct pl_err *err)
{
	while (n) {
		ssize_t k = pl_fail_now() ? -1 : pread(r->fd, to, n, (off_t)at);

		if (k < 0)
			return pl_fail_sys(err, "%s", r->name);
		if (!k)
			return pl_fail(err, PL_EDATA, "%s: the file became shorter", r->name);
		to += k;
		at += (uint64_t)k;
		n -= (size_t)k;
	}
	return 0;
}

/* Valid until the next call. */
static int get_page(struct pl_sqlite_rows *r, uint32_t number, const uint8_t **page,
		    struct pl_err *err)
{
	uint64_t at = (uint64_t)(number - 1) * r->page_bytes;
	size_t want = WINDOW;

	if (!number || number > r->pages)
		return damaged(r, number, "is not in the file", err);
	if (r->seen++ > 2 * r->pages)
		return damaged(r, number, "is there more than once", err);
	if (at < r->at || at + r->page_bytes > r->at + r->n_window) {
		want = pl_min_size(want, (size_t)(r->pages * r->page_bytes - at));
		r->n_window = 0;
		PL_CHECK(read_at(r, r->window, at, want, err));
		r->at = at;
		r->n_window = want;
	}
	*page = r->window + (at - r->at);
	return 0;
}

/* The next child of an interior page. */
static int child(struct pl_sqlite_rows *r, struct level *l, uint32_t *number, struct pl_err *err)
{
	const uint8_t *header = l->page + l->header;
	unsigned i = l->next++;
	size_t at = i < l->n ? be16(header + 12 + 2 * (size_t)i) : l->header + (size_t)8;

	if (at + 4 > r->usable)
		return damaged(r, l->number, "a cell outside of its page", err);
	*number = be32(l->page + at);
	return 0;
}

/* Go down to the first leaf below this page. */
static int descend(struct pl_sqlite_rows *r, uint32_t number, struct pl_err *err)
{
	for (;;) {
		unsigned header = number == 1 ? 100 : 0;
		const uint8_t *page = NULL;
		struct level *l;
		uint32_t n;

		PL_CHECK(get_page(r, number, &page, err));
		n = be16(page + header + 3);
		if (page[header] == LEAF) {
			r->leaf = page;
			r->leaf_number = number;
			r->header = header;
			r->cell = 0;
			r->n_cells = n;
		} else if (page[header] != INTERIOR || r->depth == MAX_LEVELS) {
			return damaged(r, number, "is no page of a table", err);
		}
		if (header + 12 + 2 * (size_t)n > r->usable)
			return damaged(r, number, "more cells than there is room for", err);
		if (page[header] == LEAF)
			return 0;
		l = &r->level[r->depth];
		if (!l->page)
			PL_CHECK(pl_alloc(&l->page, r->page_bytes, 1, err));
		r->depth++;
		memcpy(l->page, page, r->page_bytes);
		l->number = number;
		l->header = header;
		l->next = 0;
		l->n = n;
		PL_CHECK(child(r, l, &number, err));
	}
}

/* The whole record, part of which is on further pages. */
static int gather(struct pl_sqlite_rows *r, const uint8_t *p, size_t local, size_t n,
		  struct pl_err *err)
{
	uint32_t next = be32(p + local);
	size_t part = r->usable - 4;

	r->record.n = 0;
	PL_CHECK(pl_buf_put(&r->record, p, local, err));
	while (r->record.n < n) {
		size_t k = pl_min_size(part, n - r->record.n);
		uint64_t at = (uint64_t)(next - 1) * r->page_bytes;

		if (!next || next > r->pages || r->seen++ > 2 * r->pages)
			return damaged(r, next, "is not in the file", err);
		PL_CHECK(pl_buf_need(&r->record, k + 4, err));
		PL_CHECK(read_at(r, r->link, at, 4, err));
		PL_CHECK(read_at(r, (uint8_t *)r->record.p + r->record.n, at + 4, k, err));
		r->record.n += k;
		next = be32(r->link);
	}
	return 0;
}

/* ---- records ------------------------------------------------------------------------------- */

static uint64_t size_of(uint64_t type)
{
	static const uint8_t sizes[] = { 0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0 };

	return type < PL_LEN(sizes) ? sizes[type] : (type - 12) / 2;
}

/* The values of a record of n bytes. */
static int values(struct pl_sqlite_rows *r, const uint8_t *p, size_t n, struct pl_err *err)
{
	const uint8_t *end = p + n, *body, *header_end;
	uint64_t header = 0, type;
	const uint8_t *q = take(p, end, &header);

	for (unsigned i = 0; i < r->n_values; i++)
		r->value[i].type = 0;
	if (!q || header > n || header < (size_t)(q - p))
		return damaged(r, r->leaf_number, "a record that is none", err);
	body = header_end = p + header;
	for (unsigned c = 0; c < r->n_columns && q < header_end; c++) {
		uint64_t k;

		q = take(q, header_end, &type);
		k = q ? size_of(type) : 0;
		if (!q || k > (size_t)(end - body))
			return damaged(r, r->leaf_number, "a record that is none", err);
		if (r->slot[c] >= 0)
			r->value[r->slot[c]] = (struct value){ type, body, (uint32_t)k };
		body += k;
	}
	return 0;
}

static int record(struct pl_sqlite_rows *r, struct pl_err *err)
{
	const uint8_t *page = r->leaf, *end = page + r->usable, *p;
	size_t at = be16(page + r->header + 8 + 2 * (size_t)r->cell++), most = r->usable - 35;
	uint64_t n, key;
	size_t least, local;

	p = at < r->usable ? take(page + at, end, &n) : NULL;
	p = p ? take(p, end, &key) : NULL;
	if (!p || n > MAX_RECORD)
		return damaged(r, r->leaf_number, "a cell outside of its page", err);
	local = (size_t)n;
	if (n > most) {
		least = (r->usable - 12) * 32 / 255 - 23;
		local = least + (size_t)(n - least) % (r->usable - 4);
		local = local <= most ? local : least;
	}
	if (local + (n > most ? 4 : 0) > (size_t)(end - p))
		return damaged(r, r->leaf_number, "a cell outside of its page", err);
	if (n <= most)
		return values(r, p, (size_t)n, err);
	PL_CHECK(gather(r, p, local, (size_t)n, err));
	return values(r, (const uint8_t *)r->record.p, (size_t)n, err);
}

int pl_sqlite_rows_next(struct pl_sqlite_rows *r, struct pl_err *err)
{
	uint32_t root = r->root;

	r->root = 0;
	if (r->no_memory)
		return pl_fail(err, PL_ENOMEM, "%s: out of memory for a text", r->name);
	if (root)
		PL_CHECK(descend(r, root, err));
	while (r->cell >= r->n_cells) {
		struct level *l = r->depth ? &r->level[r->depth - 1] : NULL;
		uint32_t number = 0;

		if (!l)
			return 0;
		if (l->next > l->n) {
			r->depth--;
			continue;
		}
		PL_CHECK(child(r, l, &number, err));
		PL_CHECK(descend(r, number, err));
	}
	PL_CHECK(record(r, err));
	return 1;
}

/* ---- values -------------------------------------------------------------------------------- */

bool pl_sqlite_rows_null(const struct pl_sqlite_rows *r, int column)
{
	return !r->value[column].type;
}

static int64_t of_double(const uint8_t *p)
{
	uint64_t bits = (uint64_t)be32(p) << 32 | be32(p + 4);
	double v;

	memcpy(&v, &bits, sizeof(v));
	return v >= 9223372036854775807.0   ? INT64_MAX
	       : v > -9223372036854775808.0 ? (int64_t)v
					    : INT64_MIN;
}

/* As SQLite: the digits that a text begins with. */
static int64_t of_text(const uint8_t *p, size_t n)
{
	char text[32];

	n = pl_min_size(n, sizeof(text) - 1);
	memcpy(text, p, n);
	text[n] = '\0';
	return strtoll(text, NULL, 10);
}

int64_t pl_sqlite_rows_int(const struct pl_sqlite_rows *r, int column, int64_t none)
{
	const struct value *v = &r->value[column];
	const uint8_t *p = v->p;

	switch (v->type) {
	case 0:
		return none;
	case 1:
		return (int8_t)p[0];
	case 2:
		return (int16_t)be16(p);
	case 3:
		return (int32_t)(be16(p) << 16 | (uint32_t)p[2] << 8) >> 8;
	case 4:
		return (int32_t)be32(p);
	case 5:
		return (int64_t)(int16_t)be16(p) * ((int64_t)1 << 32) + be32(p + 2);
	case 6:
		return (int64_t)((uint64_t)be32(p) << 32 | be32(p + 4));
	case 7:
		return of_double(p);
	case 8:
	case 9:
		return (int64_t)v->type - 8;
	default:
		return of_text(p, v->n);
	}
}

const char *pl_sqlite_rows_text(struct pl_sqlite_rows *r, int column, size_t *n)
{
	const struct value *v = &r->value[column];
	struct pl_err err = { 0 };

	*n = 0;
	if (!v->type)
		return NULL;
	if (v->type < 12) {
		*n = (size_t)snprintf(r->number, sizeof(r->number), "%lld",
				      (long long)pl_sqlite_rows_int(r, column, 0));
		return r->number;
	}
	r->text.n = 0;
	if (pl_buf_put(&r->text, v->p, v->n, &err) < 0 || pl_buf_put(&r->text, "", 1, &err) < 0) {
		r->no_memory = true;
		return NULL;
	}
	*n = v->n;
	return (const char *)r->text.p;
}

/* ---- lifetime ------------------------------------------------------------------------------ */

/* What the header of the file says; 0: a file that SQLite has to read. */
static int geometry(struct pl_sqlite_rows *r, uint64_t size, struct pl_err *err)
{
	uint8_t h[100];

	if (size < sizeof(h))
		return 0;
	PL_CHECK(read_at(r, h, 0, sizeof(h), err));
	r->page_bytes = be16(h + 16) == 1 ? 65536 : be16(h + 16);
	if (r->page_bytes < 512 || r->page_bytes & (r->page_bytes - 1) || be32(h + 56) != 1)
		return 0; /* another encoding than UTF-8 */
	r->usable = r->page_bytes - h[20];
	r->pages = size / r->page_bytes;
	return r->usable >= 480 && r->pages > 0;
}

int pl_sqlite_rows_open(const struct pl_sqlite_table *t, int fd, const char *name,
			struct pl_sqlite_rows **out, struct pl_err *err)
{
	struct pl_sqlite_rows *r;
	int rc;

	*out = NULL;
	PL_CHECK(pl_alloc(&r, 1, sizeof(*r), err));
	r->fd = fd;
	r->name = name;
	snprintf(r->table, sizeof(r->table), "%s", t->name);
	r->n_columns = t->n_columns;
	r->n_values = t->n_wanted;
	rc = geometry(r, t->file_bytes, err);
	if (rc <= 0)
		goto out;
	PL_TRY(pl_alloc(&r->window, WINDOW, 1, err));
	PL_TRY(pl_alloc(&r->value, t->n_wanted + (size_t)1, sizeof(*r->value), err));
	PL_TRY(pl_alloc(&r->slot, t->n_columns + (size_t)1, sizeof(*r->slot), err));
	memcpy(r->slot, t->slot, t->n_columns * sizeof(*r->slot));
	r->root = t->root;
	*out = r;
	return 0;
out:
	pl_sqlite_rows_close(r);
	return rc;
}

void pl_sqlite_rows_close(struct pl_sqlite_rows *r)
{
	if (!r)
		return;
	for (unsigned i = 0; i < MAX_LEVELS; i++)
		pl_free(r->level[i].page);
	pl_buf_fini(&r->record);
	pl_buf_fini(&r->text);
	pl_free(r->window);
	pl_free(r->value);
	pl_free(r->slot);
	pl_free(r);
}
