/* svg.h - a timeline as an SVG picture. */
#ifndef PL_REPORT_SVG_H
#define PL_REPORT_SVG_H

#include "report/picture.h"

/*
 * Draw the part [from, to) of the picture: rows by rank, colours by class with a legend, the
 * critical path, a time axis, names where they fit. Events narrower than a pixel are merged with
 * their neighbours, so that there are a few thousand shapes at most. Of many rows only the busiest
 * of each rank is drawn, of many ranks the first; a line says so. `title` may be NULL.
 */
int pl_svg_draw(const struct pl_picture *p, const char *title, pl_ns from, pl_ns to,
		struct pl_out *out, struct pl_err *err) PL_MUST;

#endif
