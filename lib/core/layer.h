/* layer.h - the statement of one layer of a network: plan/model.h reads it, tensor/net.h builds it.
 * The maker of the statement owns strings and arrays. */
#ifndef PL_LAYER_H
#define PL_LAYER_H

#include <stdint.h>

struct pl_layer_key { /* "name=value"; for a word without value: the word and "" */
	const char *key, *text;
	double v; /* NaN if text is no number */
};
/* "conv 64 5 pad=2 name=features.0". Blocks are statements, too: "residual" ... "end". */
struct pl_layer {
	const char *op;
	const double *num; /* positional numbers */
	uint32_t n_num;
	const struct pl_layer_key *key; /* each key occurs once */
	uint32_t n_keys;
	uint32_t line; /* of the text, for messages; 0: from a preset */
};

#endif
