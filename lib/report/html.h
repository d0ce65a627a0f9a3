/*
 * html.h - a page that shows a report and its timeline in a browser: one file that is whole.
 *
 * The page is page.html, page.css and page.js, with two elements of data:
 *
 *	<script type="application/json" id="report">	the report, as replay -O json writes it
 *	<script type="application/octet-stream" id="events">	base64 of raw deflate
 *
 * The second is a line of JSON (classes, names, styles, rows, steps, marks, and how many of
 * everything) and then numbers as LEB128, signed ones as zigzag. Each of these is a list for
 * itself:
 *
 *	of each row the number of its events
 *	of each event, row after row: start less the end of the event before it in the row (signed),
 *		duration, style, microbatch + 1, bytes + 1
 *	of each part of the critical path: row + 1, part, start less the end of the part before
 *		(signed), duration
 *	of each change of memory: rank (signed), time less the one before (signed), bytes
 *	of each mark, which is of a change of the job: how many events it leaves, then how many it
 *		selects, by turns
 *
 * The first start of a row or list counts from 0.
 */
#ifndef PL_REPORT_HTML_H
#define PL_REPORT_HTML_H

#include "io/write.h"
#include "report/picture.h"

struct pl_html {
	const char *title;		  /* what the page is about: a file */
	const struct pl_buf *report;	  /* JSON: an object with "schema" */
	const struct pl_picture *picture; /* NULL: no timeline */
};
int pl_html_write(const struct pl_html *page, struct pl_out *out, struct pl_err *err) PL_MUST;

#endif
