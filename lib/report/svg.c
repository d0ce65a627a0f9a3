/*
 * A picture as SVG. Events that nest are drawn below each other, three levels deep. A first pass
 * over the events of the rows that are drawn only counts the shapes; while there are too many, the
 * width below which events are merged doubles. Two passes as a rule, O(events) each.
 */
#include "report/svg.h"
#include "io/json.h"
#include "io/write.h"

#define LEFT   128 /* pixels, as all of these */
#define WIDTH  896
#define HIGH   14 /* of a level of a row */
#define LEVELS 3
#define LETTER 5.4 /* mean width of a letter of a name */
#define SHAPES 3000
#define ROWS   96 /* more are not drawn one by one */
#define NARROW 1.0
#define TURN   4.0 /* between turns of the path; more of them would hide the rows */

#define PATH_COLOUR "#c81e3c"

struct run { /* events that are merged into one shape */
	double x0, x1;
	pl_ns most, sum, of[PL_PICTURE_CLASSES_];
	uint64_t n;
	uint32_t style; /* of the longest */
};
struct drawing {
	const struct pl_picture *p;
	pl_ns from, to;
	double narrow; /* narrower shapes are merged */
	uint32_t *row; /* that are drawn, in order */
	size_t n_rows, left_out;
	int *y; /* [row of the picture]: of its middle; -1: not drawn */
	bool used[PL_PICTURE_CLASSES_];
	size_t shapes;
	struct pl_writer *w; /* NULL: only count */
};

static double at(const struct drawing *d, pl_ns t)
{
	t = pl_max_i64(d->from, pl_min_i64(t, d->to));
	return LEFT + WIDTH * (double)(t - d->from) / (double)(d->to - d->from);
}

/* Text of XML; characters that XML 1.0 forbids and malformed ones become '?'. `most`: of
 * characters. */
static void put_text(struct pl_writer *w, const char *s, size_t most)
{
	const char *end = s + strlen(s);
	size_t k;

	for (size_t n = 0; s < end && n < most; n++, s += k) {
		unsigned char c = (unsigned char)*s;
		bool whole;

		k = pl_json_utf8((const unsigned char *)s, (const unsigned char *)end);
		whole = k && strncmp(s, "\xef\xbf\xbe", 3) != 0 &&
			strncmp(s, "\xef\xbf\xbf", 3) != 0;
		if (c == '&' || c == '<' || c == '>' || c == '"')
			pl_write_format(w, "&#%d;", c);
		else if (!whole || c < 0x20 || c == 0x7f)
			pl_write_char(w, '?');
		else
			pl_write(w, s, k);
		k = k ? k : 1;
	}
}

/* ---- rows ------------------------------------------------------------------------------------ */

static bool visible(const struct drawing *d, const struct pl_picture_event *e)
{
	return e->start < d->to && e->start + e->dur > d->from;
}

static bool has_events(const struct drawing *d, const struct pl_picture_row *r)
{
	for (size_t i = r->first; i < r->first + r->n; i++)
		if (visible(d, &d->p->event[i]))
			return true;
	return false;
}

/* All rows; or, if these are too many, the busiest of each rank, and of the first ranks. */
static int choose_rows(struct drawing *d, struct pl_err *err)
{
	const struct pl_picture_row *row = d->p->row;
	size_t n = 0;

	PL_CHECK(pl_alloc(&d->row, d->p->n_rows + 1, sizeof(*d->row), err));
	for (size_t i = 0; i < d->p->n_rows; i++)
		if (has_events(d, &row[i]))
			d->row[n++] = (uint32_t)i;
	if (n > ROWS) {
		size_t all = n;

		n = 0;
		for (size_t i = 0; i < all; i++) {
			const struct pl_picture_row *x = &row[d->row[i]];

			if (!n || row[d->row[n - 1]].rank != x->rank)
				d->row[n++] = d->row[i];
			else if (x->busy > row[d->row[n - 1]].busy)
				d->row[n - 1] = d->row[i];
		}
		d->n_rows = pl_min_size(n, ROWS);
		d->left_out = all - d->n_rows;
		return 0;
	}
	d->n_rows = n;
	return 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

static void put_shape(struct drawing *d, const struct run *r, int y)
{
	const struct pl_picture_style *s = &d->p->style[r->style];
	const char *name = pl_intern_get(&d->p->str, s->name);
	double width = r->x1 - r->x0;
	uint8_t class = s->class;
	char ns[32];

	for (uint8_t c = 0; c < PL_PICTURE_CLASSES_; c++)
		if (r->of[c] > r->of[class])
			class = c;
	d->used[class] = true;
	d->shapes++;
	if (!d->w)
		return;
	pl_write_format(d->w,
			"<rect class=\"c%d\" x=\"%.1f\" y=\"%d\" width=\"%.1f\" height=\"%d\">",
			class, r->x0, y, width < 0.3 ? 0.3 : width, HIGH - 2);
	pl_write_text(d->w, "<title>");
	if (r->n > 1)
		pl_write_format(d->w, "%llu operations, most: ", (unsigned long long)r->n);
	put_text(d->w, name, 200);
	pl_write_format(d->w, ", %s</title></rect>\n", pl_fmt_ns(ns, sizeof(ns), r->sum));
	if (r->n == 1 && width >= 4 * LETTER + 3 && class != PL_PICTURE_WAIT) {
		pl_write_format(d->w, "<text class=\"n\" x=\"%.1f\" y=\"%d\">", r->x0 + 2, y + 9);
		put_text(d->w, name, (size_t)((width - 3) / LETTER));
		pl_write_text(d->w, "</text>\n");
	}
}

static void end_run(struct drawing *d, struct run *r, int y)
{
	if (r->n)
		put_shape(d, r, y);
	*r = (struct run){ 0 };
}

/* A narrow event joins the narrow ones right before it. */
static void put_event(struct drawing *d, struct run *r, const struct pl_picture_event *e, int y)
{
	double x0 = at(d, e->start), x1 = at(d, e->start + e->dur);
	bool narrow = x1 - x0 < d->narrow;

	if (r->n && (!narrow || x0 - r->x1 > d->narrow || r->x1 - r->x0 >= 8 * d->narrow))
		end_run(d, r, y);
	if (!r->n)
		r->x0 = x0;
	r->x1 = x1 > r->x1 ? x1 : r->x1;
	r->n++;
	r->sum += e->dur;
	r->of[d->p->style[e->style].class] += e->dur;
	if (e->dur > r->most) {
		r->most = e->dur;
		r->style = e->style;
	}
	if (!narrow)
		end_run(d, r, y);
}

/* Returns how many levels the row has. */
static int put_row(struct drawing *d, const struct pl_picture_row *row, int y)
{
	struct run run[LEVELS] = { { 0 } };
	pl_ns end[LEVELS];
	int depth = 0, levels = 1;

	for (size_t i = row->first; i < row->first + row->n; i++) {
		const struct pl_picture_event *e = &d->p->event[i];

		if (!visible(d, e))
			continue;
		while (depth && e->start >= end[depth - 1])
			depth--;
		if (depth == LEVELS)
			continue;
		put_event(d, &run[depth], e, y + depth * HIGH);
		end[depth++] = e->start + e->dur;
		levels = depth > levels ? depth : levels;
	}
	for (int k = 0; k < LEVELS; k++)
		end_run(d, &run[k], y + k * HIGH);
	return levels;
}

/* "thread 7 (python)": what is in parentheses says more. Set *n to the length of the short name. */
static const char *short_name(const char *s, size_t *n)
{
	const char *open = strrchr(s, '(');

	*n = strlen(s);
	if (!open || s[*n - 1] != ')' || open[1] == ')')
		return s;
	*n = strlen(open) - 2;
	return open + 1;
}

static const char *name_of(const struct drawing *d, size_t i)
{
	return pl_intern_get(&d->p->str, d->p->row[d->row[i]].name);
}

/* Two rows of a rank with one short name keep their whole names. */
static bool has_twin(const struct drawing *d, size_t i)
{
	size_t n, m;
	const char *name = short_name(name_of(d, i), &n);

	for (size_t k = 0; k < d->n_rows; k++) {
		const char *other = short_name(name_of(d, k), &m);

		if (k != i && d->p->row[d->row[k]].rank == d->p->row[d->row[i]].rank && n == m &&
		    !memcmp(name, other, n))
			return true;
	}
	return false;
}

static void put_label(struct drawing *d, size_t i, int y)
{
	const struct pl_picture_row *row = &d->p->row[d->row[i]];
	bool first = !i || d->p->row[d->row[i - 1]].rank != row->rank;
	const char *name = name_of(d, i);
	size_t n = strlen(name);

	if (!d->w)
		return;
	if (!has_twin(d, i))
		name = short_name(name, &n);
	if (first && row->rank >= 0)
		pl_write_format(d->w, "<text x=\"8\" y=\"%d\">rank %d</text>\n", y + 10, row->rank);
	pl_write_format(d->w, "<text class=\"l\" x=\"%d\" y=\"%d\">", LEFT - 4, y + 9);
	put_text(d->w, name, pl_min_size(n, 16));
	pl_write_text(d->w, "</text>\n");
}

/* Returns the place below the last row. */
static int put_rows(struct drawing *d, int y)
{
	d->shapes = 0;
	for (size_t i = 0; i < d->n_rows; i++) {
		const struct pl_picture_row *row = &d->p->row[d->row[i]];

		if (i && d->p->row[d->row[i - 1]].rank != row->rank)
			y += 8;
		d->y[d->row[i]] = y + HIGH - 2;
		put_label(d, i, y);
		y += put_row(d, row, y) * HIGH;
	}
	return y;
}

/* ---- the critical path, the axis, the legend ------------------------------------------------- */

/* A line below the operations of the path that goes from row to row. What is narrower than half a
 * pixel is left out, and a row that the drawing leaves out interrupts the line. */
static void put_path(const struct drawing *d)
{
	double x = -1, turned = -TURN;
	int y = -1;

	pl_write_text(d->w, "<path class=\"p\" d=\"");
	for (size_t i = 0; i < d->p->n_path; i++) {
		const struct pl_picture_path *q = &d->p->path[i];
		int to = q->row == PL_NONE ? -1 : d->y[q->row];
		double x0 = at(d, q->start), x1 = at(d, q->start + q->dur);

		if (to < 0 || q->start >= d->to || q->start + q->dur <= d->from || x1 - x < 0.5)
			continue;
		if (y < 0 || (to != y && x0 - turned < TURN)) {
			pl_write_format(d->w, "M%.1f %d", x0, to);
		} else if (to != y) {
			pl_write_format(d->w, "V%d", to);
			turned = x0;
		}
		pl_write_format(d->w, "H%.1f", x1);
		y = to;
		x = x1;
	}
	pl_write_text(d->w, "\"/>\n");
}

static void put_axis(const struct drawing *d, int top, int bottom)
{
	pl_ns span = d->to - d->from, step = 1;
	char ns[32];

	for (int i = 0; span / step > 10; i++)
		step = i % 3 == 1 ? step / 2 * 5 : step * 2; /* 1, 2, 5, 10 ... */
	for (pl_ns t = 0; t <= span; t += step) {
		double x = at(d, d->from + t);

		pl_write_format(d->w, "<path class=\"g\" d=\"M%.1f %dV%d\"/>", x, top, bottom);
		pl_write_format(d->w, "<text class=\"a\" x=\"%.1f\" y=\"%d\">%s</text>\n", x,
				top - 4, t ? pl_fmt_ns(ns, sizeof(ns), t) : "0");
	}
}

static void put_legend(const struct drawing *d, int y)
{
	size_t x = 8;

	for (int c = 0; c < PL_PICTURE_CLASSES_; c++) {
		if (!d->used[c])
			continue;
		pl_write_format(
			d->w,
			"<rect class=\"c%d\" x=\"%zu\" y=\"%d\" width=\"12\" height=\"12\"/>"
			"<text x=\"%zu\" y=\"%d\">%s</text>\n",
			c, x, y, x + 16, y + 10, pl_picture_classes[c].word);
		x += 36 + 6 * strlen(pl_picture_classes[c].word);
	}
	if (d->p->n_path)
		pl_write_format(
			d->w,
			"<path class=\"p\" d=\"M%zu %dh14\"/><text x=\"%zu\" y=\"%d\">critical "
			"path</text>\n",
			x, y + 6, x + 18, y + 10);
}

static void put_head(const struct drawing *d, int height)
{
	struct pl_writer *w = d->w;

	pl_write_format(
		w,
		"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" width=\"%d\" "
		"height=\"%d\" font-family=\"sans-serif\" font-size=\"11\">\n",
		LEFT + WIDTH + 24, height, LEFT + WIDTH + 24, height);
	pl_write_text(w, "<style>.n{font-size:9px}.l{font-size:8px;fill:#666;text-anchor:end}"
			 ".a{fill:#666;text-anchor:middle}.g{stroke:#e3e6ea}"
			 ".p{stroke:" PATH_COLOUR ";stroke-width:1.5;fill:none}");
	for (int c = 0; c < PL_PICTURE_CLASSES_; c++)
		pl_write_format(w, ".c%d{fill:%s}", c, pl_picture_classes[c].light);
	pl_write_text(w, "</style>\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n");
}

static void draw(struct drawing *d, const char *title)
{
	int top = title ? 42 : 22, bottom;
	struct pl_writer *w = d->w;

	d->w = NULL;
	do {
		d->narrow *= d->shapes ? 2 : 1;
		bottom = put_rows(d, top + 4);
	} while (d->shapes > SHAPES && d->narrow < WIDTH);
	d->w = w;
	put_head(d, bottom + (d->left_out ? 50 : 34));
	if (title) {
		pl_write_text(w, "<text x=\"8\" y=\"18\" font-size=\"13\">");
		put_text(w, title, 140);
		pl_write_text(w, "</text>\n");
	}
	put_axis(d, top, bottom);
	put_rows(d, top + 4);
	if (d->p->n_path)
		put_path(d);
	put_legend(d, bottom + 12);
	if (d->left_out)
		pl_write_format(
			w,
			"<text x=\"8\" y=\"%d\">%zu more rows are not drawn: of each rank only "
			"the busiest one, of the ranks the first %zu</text>\n",
			bottom + 44, d->left_out, d->n_rows);
	pl_write_text(w, "</svg>\n");
}

int pl_svg_draw(const struct pl_picture *p, const char *title, pl_ns from, pl_ns to,
		struct pl_out *out, struct pl_err *err)
{
	struct pl_writer w;
	struct drawing d = {
		.p = p, .from = from, .to = pl_max_i64(to, from + 1), .narrow = NARROW
	};
	int rc;

	PL_TRY(choose_rows(&d, err));
	PL_TRY(pl_alloc(&d.y, p->n_rows + 1, sizeof(*d.y), err));
	memset(d.y, 0xff, (p->n_rows + 1) * sizeof(*d.y));
	pl_write_init(&w, out, 0);
	d.w = &w;
	draw(&d, title);
	rc = pl_write_end(&w, err);
out:
	pl_free(d.row);
	pl_free(d.y);
	return rc;
}
