/* layer.h - the statement of one layer of a network: what plan/model.h reads and tensor/net.h
 * builds. Strings and arrays belong to whoever made the statement. */
#ifndef PL_LAYER_H
#define PL_LAYER_H

#include <stdint.h>

struct pl_layer_key { /* "name=value"; of a bare word: the word, and an empty text */
	const char *key, *text;
	double v; /* NaN where text is no number */
};
/* "conv 64 5 pad=2 name=features.0". Blocks are statements, too: "residual" ... "end". */
struct pl_layer {
	const char *op;
	const double *num; /* positional numbers */
	uint32_t n_num;
	const struct pl_layer_key *key; /* no key twice */
	uint32_t n_keys;
	uint32_t line; /* of the text, for messages; 0: of a preset */
};

#endif
