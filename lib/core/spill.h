/*
 * spill.h - an array that may become larger than memory should: from a size on it is the mapping of
 * an unlinked temporary file in TMPDIR, whose pages the system may take at any time.
 */
#ifndef PL_SPILL_H
#define PL_SPILL_H

#include "core/core.h"

#define PL_SPILL_BYTES ((size_t)16 << 20) /* up to this size an array is in memory */

struct pl_spill { /* all zeros: empty; its elements begin at p */
	void *p;
	size_t cap; /* bytes */
	bool file;  /* p is a mapping */
	int fd;	    /* of that file */
};
/* Make room for `need` bytes; p may move. New bytes are not cleared. */
int pl_spill_grow(struct pl_spill *s, size_t need, struct pl_err *err) PL_MUST;
/* The pages of a mapping leave memory; they come back from the file when they are used. Call it
 * now and then in a loop over all elements. */
void pl_spill_rest(const struct pl_spill *s);
void pl_spill_fini(struct pl_spill *s);
/* An unlinked temporary file in TMPDIR: its descriptor, which the caller closes, or an error. */
int pl_spill_file(struct pl_err *err) PL_MUST;

#endif
