/*
 * Logs (CSV or JSON lines) as a picture: loss against time on the left, against steps on the right,
 * a colour a log. Lines are losses of training, dots those of evaluations. A log of many rows is
 * thinned to what a picture can show: the mean of each of POINTS stretches.
 */
#include <math.h>
#include <stdlib.h>

#include "io/csv.h"
#include "io/json.h"
#include "plot.h"

#define POINTS 400

struct point {
	double time, step, loss, eval;
};
struct curve {
	const char *name;
	struct point *v;
	size_t n, cap;
	int column[4]; /* of the file: time_s, step, loss, eval_loss; -1 missing */
	bool header;
};

static const char *const colors[] = { "#0072b2", "#d55e00", "#009e73", "#cc79a7",
				      "#e69f00", "#56b4e9", "#000000", "#7f7f7f",
				      "#882255", "#44aa99", "#999933", "#332288" };

const char *plot_color(int k)
{
	return colors[(size_t)k % PL_LEN(colors)];
}

/* ---- reading --------------------------------------------------------------------------------- */

static double field(const struct pl_csv_row *r, int column)
{
	char *end;
	double v;

	if (column < 0 || (size_t)column >= r->n || !r->len[column])
		return NAN;
	v = strtod(r->field[column], &end);
	return *end ? NAN : v;
}

static const char *const names[] = { "time_s", "step", "loss", "eval_loss" };

static int read_row(void *arg, const struct pl_csv_row *r, struct pl_err *err)
{
	struct curve *c = arg;
	struct point p;

	if (!c->header) {
		for (int k = 0; k < 4; k++) {
			c->column[k] = -1;
			for (size_t i = 0; i < r->n; i++)
				if (!strcmp(r->field[i], names[k]))
					c->column[k] = (int)i;
		}
		c->header = true;
		if (c->column[0] < 0 || c->column[1] < 0 || c->column[2] < 0)
			return pl_fail(err, PL_EDATA,
				       "line %lld: no log: its header lacks time_s, step or loss",
				       (long long)r->line);
		return 0;
	}
	p = (struct point){ field(r, c->column[0]), field(r, c->column[1]), field(r, c->column[2]),
			    field(r, c->column[3]) };
	if (!isfinite(p.time) || !isfinite(p.step))
		return pl_fail(err, PL_EDATA, "line %lld: time or step is no number",
			       (long long)r->line);
	return pl_append(&c->v, &c->n, &c->cap, &p, sizeof(p), err);
}

/* One object of JSON lines; members that are not drawn are skipped. */
static int read_object(struct curve *c, const char *s, size_t n, int64_t line, struct pl_err *err)
{
	double v[4] = { (double)NAN, (double)NAN, (double)NAN, (double)NAN };
	struct pl_json j;
	enum pl_json_type t;
	struct point p;
	size_t k = 0, len;
	const char *at;
	char text[64];

	pl_json_init(&j, s, n);
	t = pl_json_next(&j);
	while (t == PL_JSON_OBJECT && (t = pl_json_next(&j)) == PL_JSON_KEY) {
		for (k = 0; k < PL_LEN(names); k++)
			if (j.len == strlen(names[k]) && !memcmp(j.text, names[k], j.len))
				break;
		if (pl_json_skip(&j, &at, &len) < 0)
			break;
		snprintf(text, sizeof(text), "%.*s", (int)pl_min_size(len, sizeof(text) - 1), at);
		if (k < PL_LEN(names) && !pl_decimal(text, &v[k]))
			v[k] = (double)NAN;
		t = PL_JSON_OBJECT;
	}
	p = (struct point){ v[0], v[1], v[2], v[3] };
	if (t != PL_JSON_OBJECT_END || !isfinite(p.time) || !isfinite(p.step))
		return pl_fail(err, PL_EDATA,
			       "line %lld: no log: an object with time_s and step is expected",
			       (long long)line);
	return pl_append(&c->v, &c->n, &c->cap, &p, sizeof(p), err);
}

static int read_lines(struct pl_in *in, struct curve *c, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int64_t line = 0;
	int rc = pl_in_read_all(in, (size_t)1 << 32, &b, err);

	for (const char *s = (char *)b.p, *end = s + b.n; rc >= 0 && s < end;) {
		const char *stop = memchr(s, '\n', (size_t)(end - s));

		stop = stop ? stop : end;
		line++;
		if (stop > s)
			rc = read_object(c, s, (size_t)(stop - s), line, err);
		s = stop + 1;
	}
	pl_buf_fini(&b);
	return rc;
}

static int read_log(const char *path, struct curve *c, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	const uint8_t *p;
	int rc;

	if (!in)
		return err->code;
	c->name = path;
	rc = (int)pl_in_peek(in, 1, &p, err);
	if (rc >= 0)
		rc = rc && *p == '{' ? read_lines(in, c, err) : pl_csv_read(in, read_row, c, err);
	if (rc >= 0 && !c->n)
		rc = pl_fail(err, PL_EDATA, "no rows: nothing was logged");
	if (rc < 0)
		pl_wrap(err, "%s", pl_in_name(in));
	pl_in_close(in);
	return rc;
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* Ticks of 1, 2 or 5 times a power of ten, some five of them. */
void plot_set_scale(struct plot_scale *s, double lo, double hi)
{
	double raw, power, m;

	if (!(hi > lo))
		hi = lo + (lo != 0 ? fabs(lo) : 1);
	raw = (hi - lo) / 5;
	power = pow(10, floor(log10(raw)));
	m = raw / power;
	s->tick = power * (m < 1.5 ? 1 : m < 3.5 ? 2 : m < 7.5 ? 5 : 10);
	s->lo = floor(lo / s->tick) * s->tick;
	s->hi = ceil(hi / s->tick) * s->tick;
}

static void bounds(const struct curve *c, int n, bool time, struct plot_scale *x,
		   struct plot_scale *y)
{
	double hi = 0, low = INFINITY, high = -INFINITY;

	for (int k = 0; k < n; k++)
		for (size_t i = 0; i < c[k].n; i++) {
			const struct point *p = &c[k].v[i];

			hi = fmax(hi, time ? p->time : p->step);
			low = fmin(low,
				   fmin(p->loss, p->eval)); /* of NaN and a number: the number */
			high = fmax(high, fmax(p->loss, p->eval));
		}
	plot_set_scale(x, 0, hi);
	plot_set_scale(y, isfinite(low) ? fmin(low, 0.9 * low) : 0, isfinite(high) ? high : 1);
}

/* ---- drawing --------------------------------------------------------------------------------- */

double plot_x(const struct plot_scale *s, int panel, double v)
{
	return panel * (WIDTH + LEFT) + LEFT + (v - s->lo) / (s->hi - s->lo) * (WIDTH - 24);
}

double plot_y(const struct plot_scale *s, double v)
{
	return TOP + HEIGHT - (v - s->lo) / (s->hi - s->lo) * HEIGHT;
}

void plot_axes(struct pl_writer *w, int panel, const struct plot_scale *x,
	       const struct plot_scale *y, const char *title)
{
	double left = plot_x(x, panel, x->lo), right = plot_x(x, panel, x->hi);

	for (double v = y->lo; v < y->hi + y->tick / 2; v += y->tick)
		pl_write_format(w,
				"<path class=\"g\" d=\"M%.1f %.1fH%.1f\"/><text x=\"%.1f\" "
				"y=\"%.1f\" text-anchor=\"end\">%.6g</text>\n",
				left, plot_y(y, v), right, left - 6, plot_y(y, v) + 4,
				fabs(v) < y->tick / 100 ? 0.0 : v);
	for (double v = x->lo; v < x->hi + x->tick / 2; v += x->tick)
		pl_write_format(w,
				"<path class=\"g\" d=\"M%.1f %dV%d\"/><text x=\"%.1f\" "
				"y=\"%d\" text-anchor=\"middle\">%.6g</text>\n",
				plot_x(x, panel, v), TOP, TOP + HEIGHT, plot_x(x, panel, v),
				TOP + HEIGHT + 16, v);
	pl_write_format(w, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\">%s</text>\n",
			(left + right) / 2, TOP + HEIGHT + 36, title);
}

void plot_note(struct pl_writer *w, const char *s)
{
	pl_write_format(w, "<text x=\"%d\" y=\"%d\" fill=\"#555\">%s</text>\n", LEFT,
			TOP + HEIGHT + 56, s);
}

static void line(struct pl_writer *w, int panel, const struct curve *c, const struct plot_scale *x,
		 const struct plot_scale *y, const char *color)
{
	size_t step = c->n / POINTS + 1;
	bool any = false;

	pl_write_format(w, "<path class=\"l\" stroke=\"%s\" d=\"", color);
	for (size_t i = 0; i < c->n; i += step) {
		double at = 0, loss = 0;
		int n = 0;

		for (size_t k = i; k < c->n && k < i + step; k++) {
			if (!isfinite(c->v[k].loss))
				continue;
			at += panel ? c->v[k].step : c->v[k].time;
			loss += c->v[k].loss;
			n++;
		}
		if (!n)
			continue;
		/* h0: a line of one point is a dot */
		pl_write_format(w, "%s%.1f %.1f%s", any ? "L" : "M", plot_x(x, panel, at / n),
				plot_y(y, loss / n), any ? "" : "h0");
		any = true;
	}
	pl_write_text(w, "\"/>\n");
	for (size_t i = 0; i < c->n; i++)
		if (isfinite(c->v[i].eval))
			pl_write_format(w,
					"<circle r=\"3\" cx=\"%.1f\" cy=\"%.1f\" fill=\"%s\"/>\n",
					plot_x(x, panel, panel ? c->v[i].step : c->v[i].time),
					plot_y(y, c->v[i].eval), color);
}

void plot_text(struct pl_writer *w, const char *s)
{
	for (; *s; s++)
		if (*s == '<' || *s == '&' || *s == '>')
			pl_write_text(w, *s == '<' ? "&lt;" : *s == '&' ? "&amp;" : "&gt;");
		else
			pl_write_char(w, *s);
}

/* The shortest name that no other log has. */
static const char *label(const struct curve *c, int n, int k)
{
	const char *slash = strrchr(c[k].name, '/'), *name = slash ? slash + 1 : c[k].name;

	for (int i = 0; i < n; i++) {
		const char *other = strrchr(c[i].name, '/');

		if (i != k && !strcmp(other ? other + 1 : c[i].name, name))
			return c[k].name;
	}
	return name;
}

static void legend(struct pl_writer *w, const struct curve *c, int n)
{
	for (int k = 0; k < n; k++) {
		int y = TOP + 18 + 18 * k, right = LEFT + WIDTH - 36;

		pl_write_format(w,
				"<path class=\"l\" stroke=\"%s\" d=\"M%d %dh24\"/><text "
				"x=\"%d\" y=\"%d\" text-anchor=\"end\">",
				plot_color(k), right - 24, y - 4, right - 30, y);
		plot_text(w, label(c, n, k));
		pl_write_text(w, "</text>\n");
	}
}

void plot_begin(struct pl_writer *w, int panels, const char *title)
{
	pl_write_format(w,
			"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" "
			"font-family=\"sans-serif\" font-size=\"12\">\n"
			"<style>.g{stroke:#ddd;fill:none}.l{fill:none;stroke-width:1.5;"
			"stroke-linecap:round}</style>\n"
			"<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n"
			"<text x=\"%d\" y=\"24\" font-weight=\"bold\">%s</text>\n",
			panels * (WIDTH + LEFT), TOP + HEIGHT + BELOW, LEFT, title);
}

static void draw(struct pl_writer *w, const struct curve *c, int n)
{
	plot_begin(w, 2, "loss");
	for (int panel = 0; panel < 2; panel++) {
		struct plot_scale x, y;

		bounds(c, n, panel == 0, &x, &y);
		plot_axes(w, panel, &x, &y, panel ? "steps" : "seconds");
		for (int k = 0; k < n; k++)
			line(w, panel, &c[k], &x, &y, plot_color(k));
	}
	legend(w, c, n);
	plot_note(w,
		  "lines: loss of the steps; dots: loss of the samples held out, at evaluations");
	pl_write_text(w, "</svg>\n");
}

int plot_logs(char **path, int n, struct pl_out *out, struct pl_err *err)
{
	struct pl_writer w;
	struct curve *c;
	int rc = pl_alloc(&c, (size_t)n, sizeof(*c), err);

	if (rc < 0)
		return rc;
	for (int k = 0; k < n; k++)
		PL_TRY(read_log(path[k], &c[k], err));
	pl_write_init(&w, out, 0);
	draw(&w, c, n);
	rc = pl_write_end(&w, err);
out:
	for (int k = 0; k < n; k++)
		pl_free(c[k].v);
	pl_free(c);
	return rc;
}
