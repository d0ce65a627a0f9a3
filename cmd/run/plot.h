/* plot.h - panels of a picture beside one another, each with its axes: SVG. */
#ifndef RUN_PLOT_H
#define RUN_PLOT_H

#include "io/write.h"
#include "program.h"

#define WIDTH  560 /* of a panel */
#define HEIGHT 360
#define LEFT   64
#define TOP    40
#define BELOW  64

struct plot_scale {
	double lo, hi, tick;
};
/* From lo to hi with some five ticks. */
void plot_set_scale(struct plot_scale *s, double lo, double hi);
/* Places in the picture. */
double plot_x(const struct plot_scale *s, int panel, double v);
double plot_y(const struct plot_scale *s, double v);
/* What comes before the first panel; the caller ends with "</svg>". */
void plot_begin(struct pl_writer *w, int panels, const char *title);
/* Lines and numbers of both axes; title: below the panel. */
void plot_axes(struct pl_writer *w, int panel, const struct plot_scale *x,
	       const struct plot_scale *y, const char *title);
/* A line of text below the panels. */
void plot_note(struct pl_writer *w, const char *s);
const char *plot_color(int k);
void plot_text(struct pl_writer *w, const char *s); /* escaped */

#endif
