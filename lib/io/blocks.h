/*
 * blocks.h - streams of one segment that are a list of blocks: the first one begins what the stream
 * holds, the last one ends it, and between them stand others, in any number and order. Cost models
 * are such streams.
 */
#ifndef PL_BLOCKS_H
#define PL_BLOCKS_H

#include "io/container.h"

struct pl_blocks_part {
	uint32_t type;
	/* Reads a block, whose payload is c. */
	int (*get)(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err);
};
struct pl_blocks_form {
	const char *what;   /* "model", for messages */
	const char *remedy; /* for a layout of another version: "train it again" */
	uint32_t kind;	    /* enum pl_kind */
	uint16_t major;	    /* of the kind */
	uint16_t version;   /* of all parts */
	const struct pl_blocks_part *part;
	size_t n_parts;
};

/* Calls the functions of the parts in the order of the stream, and skips blocks of other types.
 * PL_EDATA: a part is of another version, stands in a wrong place, or the first or the last one is
 * missing. */
int pl_blocks_read(struct pl_in *in, const struct pl_blocks_form *f, void *arg,
		   struct pl_err *err) PL_MUST;
/* put() writes all blocks. level: of the compression. */
int pl_blocks_write(struct pl_out *out, const struct pl_blocks_form *f, int level,
		    int (*put)(const void *arg, struct pl_container_writer *w, struct pl_err *err),
		    const void *arg, struct pl_err *err) PL_MUST;
/* Is the first block of the stream the first part? Consumes nothing. False also for what is no such
 * stream, or is cut short or damaged there. */
bool pl_blocks_is(struct pl_in *in, const struct pl_blocks_form *f);

#endif
