/* names.h - the meaning of the names of operations; modules above derive read no names. */
#ifndef PL_DERIVE_NAMES_H
#define PL_DERIVE_NAMES_H

#include "graph/graph.h"

struct pl_name_says {
	uint8_t op;	       /* enum pl_operator */
	uint8_t phase;	       /* enum pl_phase */
	uint8_t coll;	       /* enum pl_coll */
	bool communicates;     /* coll may be PL_COLL_OTHER: it does not say which */
	const char *type;      /* of the elements, NULL: not said */
	const char *algorithm; /* of a communication, NULL: not said */
	const char *module;    /* of a pass of a whole layer, in the name; NULL: it is none */
};
/* By the words of the name, whole words only: "conv" is not in "convert", nor "linear" in
 * "bilinear". Words end at all that is no letter, at capitals and where digits begin or end. */
void pl_derive_name_read(const char *name, size_t n, struct pl_name_says *says);

/* The module in the name of a range in which PyTorch gathers or reduces sharded parameters,
 * "FSDP::all_gather (blocks.0)"; NULL: it is another range. *n: bytes. */
const char *pl_derive_sharded_module(const char *name, size_t *n);

/* Names that were read, so that each is read once; zeroed at first. */
struct pl_names_read {
	struct pl_intern str;
	struct pl_name_says *says; /* by number in str */
	size_t cap;
};
/* As pl_derive_name_read(); the result is there until the next call. If there is no memory, it says
 * nothing. */
const struct pl_name_says *pl_derive_name_once(struct pl_names_read *r, const char *name, size_t n,
					       struct pl_err *err);
void pl_derive_names_fini(struct pl_names_read *r);

#endif
