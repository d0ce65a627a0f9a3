/*
 * cudnn_abi.h - the part of libcudnn.so.9 that paceline uses, declared here so that the build does
 * not need its header: the convolutions of its older interface, which version 9 still has.
 * tests/unit/cuda_cudnn_test.c compares the declarations with cudnn.h if that is installed.
 *
 * Descriptors are opaque pointers. The functions of the three passes have the same parameters: two
 * operands, the convolution, the result; so one function type serves all three.
 */
#ifndef PL_CUDA_CUDNN_ABI_H
#define PL_CUDA_CUDNN_ABI_H

#include <stddef.h>

#define PL_CUDNN_MAJOR 9

enum { PL_CUDNN_SUCCESS = 0 };
enum { PL_CUDNN_FLOAT = 0, PL_CUDNN_BFLOAT16 = 9 };
enum { PL_CUDNN_NCHW = 0 };
enum { PL_CUDNN_CROSS_CORRELATION = 1 };
enum { PL_CUDNN_DETERMINISTIC = 1 };
/* Arithmetic: with DEFAULT float32 may become tf32, with FMA it stays float32, with CONVERT it may
 * become half precision. */
enum { PL_CUDNN_DEFAULT_MATH, PL_CUDNN_TENSOR_MATH, PL_CUDNN_CONVERT_MATH, PL_CUDNN_FMA_MATH };
/* Algorithms that multiply the operands themselves and add the products. */
enum {
	PL_CUDNN_Y_IMPLICIT = 0,
	PL_CUDNN_Y_PRECOMPUTED = 1,
	PL_CUDNN_Y_GEMM = 2,
	PL_CUDNN_Y_DIRECT = 3
};
enum { PL_CUDNN_DX_1 = 1, PL_CUDNN_DW_1 = 1 };

struct pl_cudnn_offer { /* an algorithm; the library sorts them by expected time */
	int algo, status;
	float time;
	size_t memory;
	int determinism, math, reserved[3];
};

typedef int pl_cudnn_heuristic_fn(void *handle, void *a, void *b, void *conv, void *out, int want,
				  int *found, struct pl_cudnn_offer *offer);
typedef int pl_cudnn_space_fn(void *handle, void *a, void *b, void *conv, void *out, int algo,
			      size_t *bytes);
typedef int pl_cudnn_run_fn(void *handle, const void *alpha, void *da, const void *a, void *db,
			    const void *b, void *conv, int algo, void *work, size_t bytes,
			    const void *beta, void *dout, void *out);

/* X(member, symbol, result type, parameters) */
#define PL_CUDNN_FUNCTIONS(X)                                                                      \
	X(version, "cudnnGetVersion", size_t, (void))                                              \
	X(error_string, "cudnnGetErrorString", const char *, (int status))                         \
	X(create, "cudnnCreate", int, (void **handle))                                             \
	X(destroy, "cudnnDestroy", int, (void *handle))                                            \
	X(set_stream, "cudnnSetStream", int, (void *handle, void *stream))                         \
	X(tensor_new, "cudnnCreateTensorDescriptor", int, (void **d))                              \
	X(tensor_set, "cudnnSetTensor4dDescriptor", int,                                           \
	  (void *d, int format, int type, int n, int c, int h, int w))                             \
	X(tensor_free, "cudnnDestroyTensorDescriptor", int, (void *d))                             \
	X(filter_new, "cudnnCreateFilterDescriptor", int, (void **d))                              \
	X(filter_set, "cudnnSetFilter4dDescriptor", int,                                           \
	  (void *d, int type, int format, int k, int c, int h, int w))                             \
	X(filter_free, "cudnnDestroyFilterDescriptor", int, (void *d))                             \
	X(conv_new, "cudnnCreateConvolutionDescriptor", int, (void **d))                           \
	X(conv_set, "cudnnSetConvolution2dDescriptor", int,                                        \
	  (void *d, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,              \
	   int dilation_w, int mode, int type))                                                    \
	X(conv_math, "cudnnSetConvolutionMathType", int, (void *d, int math))                      \
	X(conv_free, "cudnnDestroyConvolutionDescriptor", int, (void *d))

/* X(pass, symbols of its three functions) */
#define PL_CUDNN_PASS_FUNCTIONS(X)                                                                 \
	X(PL_CUDNN_Y, "cudnnGetConvolutionForwardAlgorithm_v7",                                    \
	  "cudnnGetConvolutionForwardWorkspaceSize", "cudnnConvolutionForward")                    \
	X(PL_CUDNN_DX, "cudnnGetConvolutionBackwardDataAlgorithm_v7",                              \
	  "cudnnGetConvolutionBackwardDataWorkspaceSize", "cudnnConvolutionBackwardData")          \
	X(PL_CUDNN_DW, "cudnnGetConvolutionBackwardFilterAlgorithm_v7",                            \
	  "cudnnGetConvolutionBackwardFilterWorkspaceSize", "cudnnConvolutionBackwardFilter")

#endif
