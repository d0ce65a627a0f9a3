/*
 * whole.h - the rest of an input as one piece of memory, however large: a great file is mapped, and
 * what comes from a pipe or out of gzip goes to a temporary file when it becomes great.
 */
#ifndef PL_WHOLE_H
#define PL_WHOLE_H

#include "core/spill.h"
#include "io/stream.h"

struct pl_whole { /* all zeros: empty */
	const uint8_t *p;
	size_t n;
	struct pl_spill own; /* of this, or else of a mapping of the file: */
	void *map;
	size_t mapped;
};
/* PL_ELIMIT if there are more than `most` bytes. A mapped file must not become shorter
 * while it is read. */
int pl_in_whole(struct pl_in *in, size_t most, struct pl_whole *w, struct pl_err *err) PL_MUST;
/* Pages that were read leave memory; they come back when they are used. */
void pl_whole_rest(const struct pl_whole *w);
void pl_whole_fini(struct pl_whole *w);

#endif
