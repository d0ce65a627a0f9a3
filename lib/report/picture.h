/*
 * picture.h - what a timeline shows: rows of events, and the critical path through them. svg.h and
 * html.h draw it.
 *
 * A picture is made from a replayed run or from a trace. A row is a thread, a stream or a link of a
 * rank; its events are in order of start, the longer one first. Times are ns from the first event.
 */
#ifndef PL_REPORT_PICTURE_H
#define PL_REPORT_PICTURE_H

#include "sim/sim.h"

/* The classes of events: X(name, word, colour on white, colour on black). */
#define PL_PICTURE_CLASSES(X)                                                                      \
	X(RANGE, "range", "#c9ced6", "#565d68")                                                    \
	X(INPUT, "input", "#c2a83e", "#d3bb57")                                                    \
	X(FORWARD, "forward", "#5b8fd6", "#6c9ee2")                                                \
	X(BACKWARD, "backward", "#3f9c8f", "#4fb3a5")                                              \
	X(OPTIMIZER, "optimizer", "#9d7cc9", "#b394dd")                                            \
	X(COMPUTE, "computation", "#86b36b", "#8fbd74")                                            \
	X(COMM, "communication", "#e0843b", "#ee9650")                                             \
	X(COPY, "copy", "#c0699b", "#d37fb0")                                                      \
	X(HOST, "host", "#a9c0dd", "#7f97b5")                                                      \
	X(GAP, "host gap", "#dcd6c8", "#5e594e")                                                   \
	X(WAIT, "wait", "#eceef1", "#33383f")                                                      \
	X(UNEXPLAINED, "unexplained", "#e8a0a0", "#8d4a4a")
#define PL_PICTURE_NUMBER_(name, ...) PL_PICTURE_##name,
enum pl_picture_class { PL_PICTURE_CLASSES(PL_PICTURE_NUMBER_) PL_PICTURE_CLASSES_ };
#undef PL_PICTURE_NUMBER_
struct pl_picture_class_look {
	const char *word, *light, *dark;
};
extern const struct pl_picture_class_look pl_picture_classes[PL_PICTURE_CLASSES_];

struct pl_picture_style {   /* what many events have in common */
	pl_id name, module; /* strings; module: PL_NONE unknown */
	uint8_t class;
};
struct pl_picture_event {
	pl_ns start, dur;
	uint32_t row, style;
	uint32_t node; /* of a run: its number, through all steps; PL_NONE: a wait, or of a trace */
	int32_t mb;    /* microbatch, -1 unknown */
	int64_t bytes; /* of communication, -1 unknown */
};
struct pl_picture_row {
	int32_t rank;	 /* -1: of no rank */
	uint8_t type;	 /* enum pl_track_type */
	pl_id name;	 /* string */
	size_t first, n; /* events */
	pl_ns busy;	 /* without ranges, waits and gaps */
};
struct pl_picture_step {
	int64_t number; /* INT64_MIN: not a step */
	pl_ns start, end;
};
struct pl_picture_path { /* a part of the critical path, in order of time */
	uint32_t row;
	uint8_t part; /* enum pl_path_part */
	pl_ns start, dur;
};
struct pl_picture_memory { /* in use from then on; by rank and time */
	int32_t rank;
	pl_ns at;
	int64_t bytes;
};

struct pl_picture_mark { /* the events that a change selects */
	pl_id change;	 /* string: the line of a what-if */
	size_t first, n; /* in `runs`: how many events it leaves, then how many it selects, by turns
			  */
};

struct pl_picture { /* zero-initialised is empty and valid */
	struct pl_intern str, styles;
	struct pl_picture_style *style;
	struct pl_picture_event *event;
	struct pl_picture_row *row;
	struct pl_picture_step *step;
	struct pl_picture_path *path;
	struct pl_picture_memory *memory;
	struct pl_picture_mark *mark;
	uint32_t *runs;
	size_t n_marks, cap_marks, n_runs, cap_runs;
	size_t n_styles, cap_styles, n_events, cap_events, n_rows, cap_rows, n_steps, cap_steps,
		n_path, cap_path, n_memory, cap_memory;
	pl_ns span;   /* end of the last event */
	pl_ns origin; /* what was taken off all times */
};
void pl_picture_fini(struct pl_picture *p);

/* The run of the graph; `path` may be NULL. */
int pl_picture_of_run(struct pl_picture *p, const struct pl_graph *g, const struct pl_sim *s,
		      const struct pl_run *r, const struct pl_path *path,
		      struct pl_err *err) PL_MUST;

/* Mark the events of this picture of a run of the graph that a line of a what-if selects; once for
 * each line. Without effect if it selects none. */
int pl_picture_mark(struct pl_picture *p, const struct pl_graph *g, const char *change,
		    const struct pl_selector *keys, struct pl_err *err) PL_MUST;

/* A sink that adds the events of a trace. pl_picture_close() ends it and orders the picture, which
 * the caller then owns; pl_picture_abort() only frees the sink. */
struct pl_sink *pl_picture_open(struct pl_picture *p, struct pl_err *err);
int pl_picture_close(struct pl_sink *s, struct pl_err *err) PL_MUST;
void pl_picture_abort(struct pl_sink *s);

#endif
