/*
 * Report tables. Cells are kept as values; each format renders them: text with readable units and
 * aligned columns (two passes, the first for the widths), the others with plain numbers.
 */
#include <math.h>
#include <string.h>

#include "io/csv.h"
#include "io/table.h"

union cell {
	int64_t i;
	double r;
	const char *s; /* in the arena, or NULL */
};

struct pl_table {
	struct pl_column *col;
	size_t n_cols, n_rows;
	union cell *cell; /* (row, column) */
	size_t cap;
	struct pl_arena text;
};

struct pl_table *pl_table_new(const struct pl_column *cols, size_t n, struct pl_err *err)
{
	struct pl_table *t;

	if (pl_alloc(&t, 1, sizeof(*t), err) < 0)
		return NULL;
	if (pl_alloc(&t->col, n, sizeof(*t->col), err) < 0) {
		pl_free(t);
		return NULL;
	}
	memcpy(t->col, cols, n * sizeof(*cols));
	t->n_cols = n;
	return t;
}

void pl_table_free(struct pl_table *t)
{
	if (!t)
		return;
	pl_arena_fini(&t->text);
	pl_free(t->cell);
	pl_free(t->col);
	pl_free(t);
}

int pl_table_row(struct pl_table *t, struct pl_err *err, ...)
{
	size_t at = t->n_rows * t->n_cols;
	int rc = pl_grow(&t->cell, &t->cap, at + t->n_cols, sizeof(*t->cell), err);
	va_list ap;

	if (rc < 0)
		return rc;
	va_start(ap, err);
	for (size_t i = 0; i < t->n_cols; i++) {
		union cell *c = &t->cell[at + i];
		const char *s;

		switch (t->col[i].type) {
		case PL_CELL_STR:
			s = va_arg(ap, const char *);
			c->s = s ? pl_arena_dup(&t->text, s, strlen(s)) : NULL;
			if (s && !c->s)
				rc = pl_fail(err, PL_ENOMEM, "out of memory (a table)");
			break;
		case PL_CELL_REAL:
		case PL_CELL_PERCENT:
			c->r = va_arg(ap, double);
			break;
		default:
			c->i = va_arg(ap, int64_t);
		}
	}
	va_end(ap);
	if (rc >= 0)
		t->n_rows++;
	return rc;
}

size_t pl_table_rows(const struct pl_table *t)
{
	return t->n_rows;
}

static bool empty(enum pl_cell type, const union cell *c)
{
	switch (type) {
	case PL_CELL_STR:
		return !c->s;
	case PL_CELL_REAL:
	case PL_CELL_PERCENT:
		return !isfinite(c->r);
	default:
		return c->i == INT64_MIN;
	}
}

/* ---- text ------------------------------------------------------------------------------------ */

/* Columns on a screen: code points, near enough. */
static size_t shown(const char *s, size_t n)
{
	size_t w = 0;

	for (size_t i = 0; i < n; i++)
		w += ((unsigned char)s[i] & 0xc0) != 0x80;
	return w;
}

/* Bytes of the first `w` code points. */
static size_t bytes_of(const char *s, size_t n, size_t w)
{
	size_t i = 0;

	for (; i < n; i++) {
		if (((unsigned char)s[i] & 0xc0) == 0x80)
			continue;
		if (!w--)
			break;
	}
	return i;
}

/* A string for one line of text: no control characters, cut in the middle to `max` code points. */
static int put_text(struct pl_buf *b, const char *s, size_t max, struct pl_err *err)
{
	size_t n = strlen(s), w = shown(s, n), from = b->n, left, right;
	int rc;

	if (!max || w <= max) {
		PL_TRY(pl_buf_put(b, s, n, err));
	} else {
		left = bytes_of(s, n, max / 2);
		right = bytes_of(s, n, w - (max - max / 2 - 1));
		PL_TRY(pl_buf_put(b, s, left, err));
		PL_TRY(pl_buf_put(b, "\xe2\x80\xa6", 3, err));
		PL_TRY(pl_buf_put(b, s + right, n - right, err));
	}
	for (size_t i = from; i < b->n; i++)
		if (b->p[i] < ' ' || b->p[i] == 0x7f)
			b->p[i] = '?';
	rc = 0;
out:
	return rc;
}

static int render(struct pl_buf *b, const struct pl_column *col, const union cell *c,
		  struct pl_err *err)
{
	char text[64];

	b->n = 0;
	if (empty(col->type, c))
		return 0;
	switch (col->type) {
	case PL_CELL_STR:
		return put_text(b, c->s, col->max > 0 ? (size_t)col->max : 0, err);
	case PL_CELL_I64:
		return pl_buf_printf(b, err, "%lld", (long long)c->i);
	case PL_CELL_NS:
		return pl_buf_printf(b, err, "%s", pl_fmt_ns(text, sizeof(text), c->i));
	case PL_CELL_BYTES:
		return pl_buf_printf(b, err, "%s", pl_fmt_bytes(text, sizeof(text), (double)c->i));
	case PL_CELL_REAL:
		return pl_buf_printf(b, err, "%.4g", c->r);
	case PL_CELL_PERCENT:
		return pl_buf_printf(b, err, "%.1f%%", 100 * c->r);
	}
	return pl_fail(err, PL_EINTERNAL, "unknown type of a cell");
}

static int put_spaces(struct pl_out *out, size_t n, struct pl_err *err)
{
	int rc = 0;

	for (; rc >= 0 && n; n--)
		rc = pl_out_write(out, " ", 1, err);
	return rc;
}

/* One line. `cells` NULL: the titles. No spaces at the end of a line. */
static int text_line(const struct pl_table *t, const union cell *cells, const size_t *width,
		     struct pl_buf *b, struct pl_out *out, struct pl_err *err)
{
	size_t owed = 0;
	int rc;

	for (size_t i = 0; i < t->n_cols; i++) {
		bool left = t->col[i].type == PL_CELL_STR;
		size_t pad;

		b->n = 0;
		if (cells)
			PL_TRY(render(b, &t->col[i], &cells[i], err));
		else
			PL_TRY(put_text(b, t->col[i].title, 0, err));
		pad = width[i] - shown((const char *)b->p, b->n);
		if (b->n) {
			PL_TRY(put_spaces(out, owed + (left ? 0 : pad), err));
			PL_TRY(pl_out_write(out, b->p, b->n, err));
			owed = left ? pad : 0;
		} else {
			owed += width[i];
		}
		owed += 2;
	}
	rc = pl_out_write(out, "\n", 1, err);
out:
	return rc;
}

static int print_text(const struct pl_table *t, struct pl_out *out, const char *title,
		      struct pl_err *err)
{
	struct pl_buf b = { 0 };
	size_t *width = NULL;
	int rc;

	PL_TRY(pl_alloc(&width, t->n_cols, sizeof(*width), err));
	for (size_t i = 0; i < t->n_cols; i++)
		width[i] = shown(t->col[i].title, strlen(t->col[i].title));
	for (size_t r = 0; r < t->n_rows; r++) {
		for (size_t i = 0; i < t->n_cols; i++) {
			size_t w;

			PL_TRY(render(&b, &t->col[i], &t->cell[r * t->n_cols + i], err));
			w = shown((const char *)b.p, b.n);
			width[i] = w > width[i] ? w : width[i];
		}
	}
	if (title)
		PL_TRY(pl_out_printf(out, err, "%s\n", title));
	PL_TRY(text_line(t, NULL, width, &b, out, err));
	for (size_t r = 0; r < t->n_rows; r++)
		PL_TRY(text_line(t, t->cell + r * t->n_cols, width, &b, out, err));
out:
	pl_free(width);
	pl_buf_fini(&b);
	return rc;
}

/* ---- CSV and TSV -------------------------------------------------------------------------------
 */

/* Backslash escapes for what would break a line of TSV. */
static int put_tsv(struct pl_out *out, const char *s, size_t n, struct pl_err *err)
{
	static const char from[] = "\t\n\r\\", to[] = "tnr\\";
	int rc = 0;

	for (size_t i = 0; i < n && rc >= 0; i++) {
		const char *p = s[i] ? strchr(from, s[i]) : NULL;
		char pair[2] = { '\\', p ? to[p - from] : 0 };

		rc = p ? pl_out_write(out, pair, 2, err) : pl_out_write(out, s + i, 1, err);
	}
	return rc;
}

/* A number as JSON and CSV have it: through the JSON writer, which is the one that is exact. */
static int plain(struct pl_jsonw *w, const struct pl_column *col, const union cell *c,
		 struct pl_err *err)
{
	if (empty(col->type, c))
		return pl_jsonw_null(w, err);
	switch (col->type) {
	case PL_CELL_STR:
		return pl_jsonw_str(w, c->s, strlen(c->s), err);
	case PL_CELL_REAL:
	case PL_CELL_PERCENT:
		return pl_jsonw_real(w, c->r, err);
	default:
		return pl_jsonw_i64(w, c->i, err);
	}
}

static int separated_line(const struct pl_table *t, const union cell *cells, struct pl_out *out,
			  bool tsv, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < t->n_cols; i++) {
		const struct pl_column *col = &t->col[i];
		struct pl_jsonw w;

		if (i)
			PL_TRY(pl_out_write(out, tsv ? "\t" : ",", 1, err));
		if (cells && empty(col->type, &cells[i]))
			continue;
		if (!cells || col->type == PL_CELL_STR) {
			const char *s = cells ? cells[i].s : col->key;

			PL_TRY(tsv ? put_tsv(out, s, strlen(s), err)
				   : pl_csv_put(out, s, strlen(s), err));
			continue;
		}
		pl_jsonw_init(&w, out, 0);
		PL_TRY(plain(&w, col, &cells[i], err));
	}
	rc = pl_out_write(out, "\n", 1, err);
out:
	return rc;
}

static int print_separated(const struct pl_table *t, struct pl_out *out, bool tsv,
			   struct pl_err *err)
{
	int rc = separated_line(t, NULL, out, tsv, err);

	for (size_t r = 0; rc >= 0 && r < t->n_rows; r++)
		rc = separated_line(t, t->cell + r * t->n_cols, out, tsv, err);
	return rc;
}

/* ---- JSON --------------------------------------------------------------------------------------
 */

static int json_row(const struct pl_table *t, size_t r, struct pl_jsonw *w, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_open(w, '{', err));
	for (size_t i = 0; i < t->n_cols; i++) {
		PL_TRY(pl_jsonw_key(w, t->col[i].key, err));
		PL_TRY(plain(w, &t->col[i], &t->cell[r * t->n_cols + i], err));
	}
	rc = pl_jsonw_close(w, err);
out:
	return rc;
}

int pl_table_json(const struct pl_table *t, struct pl_jsonw *w, struct pl_err *err)
{
	int rc = pl_jsonw_open(w, '[', err);

	for (size_t r = 0; rc >= 0 && r < t->n_rows; r++)
		rc = json_row(t, r, w, err);
	return rc < 0 ? rc : pl_jsonw_close(w, err);
}

int pl_table_print(const struct pl_table *t, struct pl_out *out, enum pl_table_format f,
		   const char *title, struct pl_err *err)
{
	struct pl_jsonw w;
	int rc = 0;

	pl_jsonw_init(&w, out, 0);
	switch (f) {
	case PL_TABLE_TEXT:
		return print_text(t, out, title, err);
	case PL_TABLE_CSV:
	case PL_TABLE_TSV:
		return print_separated(t, out, f == PL_TABLE_TSV, err);
	case PL_TABLE_JSON:
		rc = pl_table_json(t, &w, err);
		break;
	case PL_TABLE_JSONL:
		for (size_t r = 0; rc >= 0 && r < t->n_rows; r++)
			rc = json_row(t, r, &w, err);
		if (!t->n_rows)
			return 0;
		break;
	}
	return rc < 0 ? rc : pl_out_write(out, "\n", 1, err);
}
