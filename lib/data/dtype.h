/*
 * dtype.h - types of numbers in files of arrays, and arrays from such files (NPY, IDX).
 */
#ifndef PL_DTYPE_H
#define PL_DTYPE_H

#include "io/stream.h"

enum pl_dtype {
	PL_DT_F32,
	PL_DT_F64,
	PL_DT_F16,
	PL_DT_BF16,
	PL_DT_I32,
	PL_DT_I64,
	PL_DT_U8,
	PL_DT_I8,
	PL_DT_I16,
	PL_DT_U16,
	PL_DT_U32,
	PL_DT_U64,
	PL_DT_BOOL,
	PL_DT_COUNT_
};
/* The type of that name in files of safetensors ("F32"), numpy ("f4") and IDX (a byte); -1. */
enum pl_dtype_names { PL_DT_SAFETENSORS, PL_DT_NUMPY, PL_DT_IDX };
int pl_dtype_find(enum pl_dtype_names of, const char *name, size_t n);
size_t pl_dtype_size(unsigned dtype);	   /* bytes of an element */
const char *pl_dtype_name(unsigned dtype); /* "F32", as in safetensors */
/* Convert n elements (little-endian, aligned or not) to float32, rounded to nearest. */
void pl_dtype_f32(unsigned dtype, const void *src, size_t n, float *out);
/* The same for integers. False: element *at is not whole, below 0, or above `max`. */
bool pl_dtype_i32(unsigned dtype, const void *src, size_t n, int32_t max, int32_t *out, size_t *at);

/* Row-major. Zero-initialised is empty. */
struct pl_array {
	uint8_t dtype; /* enum pl_dtype */
	int n_dims;
	int64_t dim[8];
	size_t n;	    /* elements */
	struct pl_buf data; /* n elements, little-endian */
};
void pl_data_array_fini(struct pl_array *a);
/*
 * Append the next n bytes of `in` to b, as they arrive: a wrong n costs nothing. PL_EDATA: fewer.
 */
int pl_data_array_take(struct pl_in *in, size_t n, struct pl_buf *b, struct pl_err *err) PL_MUST;
/* Read all elements; type and dimensions are known; big: big-endian in the input. */
int pl_data_array_read(struct pl_in *in, struct pl_array *a, bool big, struct pl_err *err) PL_MUST;
/* PL_EDATA "something behind WHAT" unless the input is at its end. */
int pl_data_array_end(struct pl_in *in, const char *what, struct pl_err *err) PL_MUST;

/*
 * numpy's format (NEP 1), versions 1.0 to 3.0, C order, not BF16. Data after the array is not read.
 */
int pl_npy_read(struct pl_in *in, struct pl_array *a, struct pl_err *err) PL_MUST;
bool pl_npy_probe(const uint8_t *p, size_t n); /* of the first 6 bytes */
/* IDX, the format of the MNIST files; big-endian. */
int pl_idx_read(struct pl_in *in, struct pl_array *a, struct pl_err *err) PL_MUST;

#endif
