/*
 * weights.h - named tensors in a file: safetensors, to exchange with other frameworks.
 * Little-endian; sizes are checked before memory is allocated.
 */
#ifndef PL_WEIGHTS_H
#define PL_WEIGHTS_H

#include "data/dtype.h"
#include "io/stream.h"

struct pl_weight {
	char *name;    /* owned: pl_strdup() */
	uint8_t dtype; /* enum pl_dtype */
	int n_dims;    /* 0: one number */
	int64_t dim[8];
	const void *data; /* in `memory`, or the caller's; aligned as in the file */
	size_t bytes;
};
struct pl_weights { /* zero-initialised is empty; fini() frees names and meta */
	struct pl_weight *w;
	size_t n, cap;
	char **meta; /* key, value, key, value ...: n_meta strings */
	size_t n_meta, cap_meta;
	uint8_t *memory; /* owned: the data that was read */
};
/* Read tensors in the order of their data in the file. PL_EDATA names the input and the place. */
int pl_weights_read(struct pl_in *in, const char *name, struct pl_weights *w,
		    struct pl_err *err) PL_MUST;
/*
 * Write larger elements first, then by name. So each tensor is at a multiple of its element's size,
 * and the same tensors give the same bytes in any order. The data begin at a multiple of 64.
 */
int pl_weights_write(const struct pl_weights *w, struct pl_out *out, struct pl_err *err) PL_MUST;
/* Add a float32 tensor to be written; the name is copied, the data borrowed. */
int pl_weights_add(struct pl_weights *w, const char *name, int n_dims, const int64_t *dim,
		   const float *data, struct pl_err *err) PL_MUST;
int pl_weights_add_meta(struct pl_weights *w, const char *key, const char *value,
			struct pl_err *err) PL_MUST;
void pl_weights_fini(struct pl_weights *w);
const struct pl_weight *pl_weights_find(const struct pl_weights *w, const char *name);
const char *pl_weights_meta(const struct pl_weights *w, const char *key); /* NULL */
/* Convert the values to float32; PL_EDATA unless there are n of them. */
int pl_weights_f32(const struct pl_weight *w, float *out, size_t n, struct pl_err *err) PL_MUST;

#endif
