/*
 * stolen.h - the time for which a virtual machine wanted processors and its host ran something else
 * ("steal" of /proc/stat, proc(5)).
 *
 * A recording contains that time: an operation looks as if it had computed. It is most where
 * processors are often idle, as in jobs that communicate: an idle processor is the host's, and
 * comes back some milliseconds late.
 */
#ifndef PL_RECORD_STOLEN_H
#define PL_RECORD_STOLEN_H

#include <stdbool.h>
#include <stdint.h>

struct pl_stolen {
	int64_t used, stolen; /* by all processors since the start of the system, in ticks */
};
/* From a file such as /proc/stat. False: it does not say. */
bool pl_stolen_read(const char *path, struct pl_stolen *s);
/* The stolen part of the time in which processors were wanted. 0: none was, or it is not known. */
double pl_stolen_share(const struct pl_stolen *before, const struct pl_stolen *after);

#endif
