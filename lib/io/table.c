/*
 * Report tables. Cells are kept as values; each format renders them: text with readable units and
 * aligned columns (two passes, the first for the widths), the others with plain numbers.
 */
#include <math.h>

#include "io/table.h"

#define FLUSH ((size_t)64 << 10)

#define A_FEW 4 /* a table may have this many rows more than `top` */

void pl_table_fini(struct pl_table *t)
{
	pl_arena_fini(&t->text);
	pl_free(t->cell);
	t->cell = NULL;
	t->n_rows = t->cap = 0;
}

void pl_table_row(struct pl_table *t, ...)
{
	size_t at = t->n_rows * t->n_cols;
	va_list ap;

	if (t->fail.code ||
	    pl_grow(&t->cell, &t->cap, at + t->n_cols, sizeof(*t->cell), &t->fail) < 0)
		return;
	va_start(ap, t);
	for (size_t i = 0; i < t->n_cols; i++) {
		union pl_table_cell *c = &t->cell[at + i];
		const char *s;

		switch (t->col[i].type) {
		case PL_CELL_STR:
			s = va_arg(ap, const char *);
			c->s = NULL;
			if (s)
				(void)!pl_dup(&t->text, &c->s, s, &t->fail);
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
	t->n_rows++;
}

static bool empty(enum pl_cell type, const union pl_table_cell *c)
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

/* Width on a screen; counting code points is accurate enough. */
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
static void put_text(struct pl_writer *w, const char *s, size_t max)
{
	size_t n = strlen(s), width = shown(s, n), from = w->b.n, right;

	if (!max || width <= max) {
		pl_write(w, s, n);
	} else {
		right = bytes_of(s, n, width - (max - max / 2 - 1));
		pl_write(w, s, bytes_of(s, n, max / 2));
		pl_write_text(w, "\xe2\x80\xa6");
		pl_write(w, s + right, n - right);
	}
	for (size_t i = from; i < w->b.n; i++)
		if (w->b.p[i] < ' ' || w->b.p[i] == 0x7f)
			w->b.p[i] = '?';
}

/* The cell as text, alone in the buffer of w. */
static void render(struct pl_writer *w, const struct pl_column *col, const union pl_table_cell *c)
{
	char text[64];

	w->b.n = 0;
	if (empty(col->type, c))
		return;
	switch (col->type) {
	case PL_CELL_STR:
		put_text(w, c->s, col->max > 0 ? (size_t)col->max : 0);
		break;
	case PL_CELL_I64:
		pl_write_int(w, c->i);
		break;
	case PL_CELL_NS:
		pl_write_text(w, pl_fmt_ns(text, sizeof(text), c->i));
		break;
	case PL_CELL_BYTES:
		pl_write_text(w, pl_fmt_bytes(text, sizeof(text), (double)c->i));
		break;
	case PL_CELL_REAL:
		pl_write_format(w, "%.4g", c->r);
		break;
	case PL_CELL_PERCENT:
		pl_write_format(w, "%.1f%%", 100 * c->r);
		break;
	}
}

/* One line. `cells` NULL: the titles. No spaces at the end of a line. */
static void text_line(const struct pl_table *t, const union pl_table_cell *cells,
		      const size_t *width, struct pl_writer *cell, struct pl_writer *w)
{
	size_t owed = 0;

	for (size_t i = 0; i < t->n_cols; i++) {
		bool left = t->col[i].type == PL_CELL_STR;
		size_t pad;

		cell->b.n = 0;
		if (cells)
			render(cell, &t->col[i], &cells[i]);
		else
			put_text(cell, t->col[i].title, 0);
		pad = width[i] - shown((const char *)cell->b.p, cell->b.n);
		if (cell->b.n) {
			for (owed += left ? 0 : pad; owed; owed--)
				pl_write_char(w, ' ');
			pl_write(w, cell->b.p, cell->b.n);
			owed = left ? pad : 0;
		} else {
			owed += width[i];
		}
		owed += 2;
	}
	pl_write_char(w, '\n');
}

static void print_text(const struct pl_table *t, struct pl_writer *w, const char *title)
{
	struct pl_writer cell = { 0 };
	size_t *width = NULL;

	if (pl_alloc(&width, t->n_cols, sizeof(*width), &w->fail) < 0)
		return;
	for (size_t i = 0; i < t->n_cols; i++)
		width[i] = shown(t->col[i].title, strlen(t->col[i].title));
	for (size_t r = 0; r < t->n_rows; r++) {
		for (size_t i = 0; i < t->n_cols; i++) {
			size_t n;

			render(&cell, &t->col[i], &t->cell[r * t->n_cols + i]);
			n = shown((const char *)cell.b.p, cell.b.n);
			width[i] = n > width[i] ? n : width[i];
		}
	}
	if (title)
		pl_write_format(w, "%s\n", title);
	text_line(t, NULL, width, &cell, w);
	for (size_t r = 0; r < t->n_rows && !cell.fail.code; r++) {
		text_line(t, t->cell + r * t->n_cols, width, &cell, w);
		pl_write_flush(w, FLUSH);
	}
	if (cell.fail.code)
		w->fail = cell.fail;
	pl_free(width);
	pl_write_fini(&cell);
}

/* ---- CSV and TSV ----------------------------------------------------------------------------- */

/* TSV: escape characters that would break a line with backslashes. */
static void put_tsv(struct pl_writer *w, const char *s)
{
	static const char from[] = "\t\n\r\\", to[] = "tnr\\";

	for (; *s; s++) {
		const char *p = strchr(from, *s);

		if (p)
			pl_write_char(w, '\\');
		pl_write_char(w, p ? to[p - from] : *s);
	}
}

/* A number in the form of CSV. */
static void put_number(struct pl_writer *w, enum pl_cell type, const union pl_table_cell *c)
{
	if (type == PL_CELL_REAL || type == PL_CELL_PERCENT)
		pl_write_real(w, c->r);
	else
		pl_write_int(w, c->i);
}

static void separated_line(const struct pl_table *t, const union pl_table_cell *cells,
			   struct pl_writer *w, bool tsv)
{
	for (size_t i = 0; i < t->n_cols; i++) {
		const struct pl_column *col = &t->col[i];
		const char *s = cells ? cells[i].s : col->key;

		if (i)
			pl_write_char(w, tsv ? '\t' : ',');
		if (cells && empty(col->type, &cells[i]))
			continue;
		if (cells && col->type != PL_CELL_STR)
			put_number(w, col->type, &cells[i]);
		else if (tsv)
			put_tsv(w, s);
		else
			pl_write_csv(w, s, strlen(s));
	}
	pl_write_char(w, '\n');
	pl_write_flush(w, FLUSH);
}

/* ---- JSON ------------------------------------------------------------------------------------ */

static void json_row(const struct pl_table *t, size_t r, struct pl_writer *w)
{
	pl_json_open(w, '{');
	for (size_t i = 0; i < t->n_cols; i++) {
		const union pl_table_cell *c = &t->cell[r * t->n_cols + i];
		enum pl_cell type = t->col[i].type;

		if (type == PL_CELL_STR)
			pl_json_str(w, t->col[i].key, c->s);
		else if (type == PL_CELL_REAL || type == PL_CELL_PERCENT)
			pl_json_real(w, t->col[i].key, c->r);
		else if (c->i == INT64_MIN)
			pl_json_str(w, t->col[i].key, NULL);
		else
			pl_json_int(w, t->col[i].key, c->i);
	}
	pl_json_close(w);
}

/* Pass the failure of a table on to the writer. */
static bool is_whole(const struct pl_table *t, struct pl_writer *w)
{
	if (t->fail.code && !w->fail.code)
		w->fail = t->fail;
	return !t->fail.code;
}

void pl_table_json(const struct pl_table *t, struct pl_writer *w)
{
	if (!is_whole(t, w))
		return;
	pl_json_open(w, '[');
	for (size_t r = 0; r < t->n_rows; r++)
		json_row(t, r, w);
	pl_json_close(w);
}

int pl_table_print(const struct pl_table *t, struct pl_out *out, enum pl_table_format f,
		   const char *title, struct pl_err *err)
{
	struct pl_writer w;

	pl_write_init(&w, out, 0);
	pl_table_write(t, &w, f, title);
	return pl_write_end(&w, err);
}

void pl_table_write(const struct pl_table *t, struct pl_writer *w, enum pl_table_format f,
		    const char *title)
{
	if (!is_whole(t, w))
		return;
	switch (f) {
	case PL_TABLE_TEXT:
		print_text(t, w, title);
		break;
	case PL_TABLE_CSV:
	case PL_TABLE_TSV:
		separated_line(t, NULL, w, f == PL_TABLE_TSV);
		for (size_t r = 0; r < t->n_rows; r++)
			separated_line(t, t->cell + r * t->n_cols, w, f == PL_TABLE_TSV);
		break;
	case PL_TABLE_JSON:
		pl_table_json(t, w);
		pl_write_char(w, '\n');
		break;
	case PL_TABLE_JSONL:
		for (size_t r = 0; r < t->n_rows; r++)
			json_row(t, r, w);
		if (t->n_rows)
			pl_write_char(w, '\n');
		break;
	}
}

/* ---- sections -------------------------------------------------------------------------------- */

void pl_table_sections_json(const struct pl_table_section *s, size_t n, void *report,
			    struct pl_writer *w)
{
	for (size_t i = 0; i < n; i++) {
		struct pl_table t = { .col = s[i].col, .n_cols = s[i].n_cols };

		s[i].fill(report, &t);
		pl_json_key(w, s[i].key);
		pl_table_json(&t, w);
		pl_table_fini(&t);
	}
}

void pl_table_sections_text(const struct pl_table_section *s, size_t n, void *report, size_t top,
			    const char *more, struct pl_writer *w)
{
	for (size_t i = 0; i < n; i++) {
		struct pl_table t = { .col = s[i].col, .n_cols = s[i].n_cols };
		size_t all;

		s[i].fill(report, &t);
		all = t.n_rows;
		if (top && all > top + A_FEW)
			t.n_rows = top;
		if (all)
			pl_write_char(w, '\n');
		if (all || t.fail.code)
			pl_table_write(&t, w, PL_TABLE_TEXT, s[i].title);
		if (t.n_rows < all)
			pl_write_format(w, "(%zu more%s)\n", all - t.n_rows, more);
		pl_table_fini(&t);
	}
}
