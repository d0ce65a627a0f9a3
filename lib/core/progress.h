/*
 * progress.h - the line on standard error that shows the current work of a program.
 *
 * One rule for every program: "auto" draws on a terminal (or with --fake-tty), after one second,
 * and not with -q; "always" draws at once, also to a file, a line for each text; "never" draws
 * nothing. The line belongs to the process, because standard error does. A thread draws it, so that
 * it moves while the program is inside one long call; the thread starts with the first text.
 */
#ifndef PL_PROGRESS_H
#define PL_PROGRESS_H

#include "core/cmd.h"

/* pl_main() calls both: one before the program runs, the other before its messages. */
void pl_progress_begin(const struct pl_common *c);
void pl_progress_end(void);

/* Set the current work: "reading 3 of 16 files". Cheap if nothing is drawn. */
void pl_progress(const char *fmt, ...) PL_PRINTF(1, 2);
/* Remove the line from the terminal before other output. */
void pl_progress_hide(void);

#endif
