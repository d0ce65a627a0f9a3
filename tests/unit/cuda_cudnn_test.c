/*
 * Convolution by cuDNN: the declarations of ours against its header, where that is installed; the
 * battery, and a network that is trained, through a library that stands in for it
 * (tests/emu/fake_cudnn.c) on the emulated device; and all that can be wrong with a library, after
 * which our kernels serve, to their own bits. make test-gpu has the battery through the real one.
 */
#include <dlfcn.h>

#include "cuda_fixture.h"
#include "fake_cudnn.h"
#include "tensor/cuda/cudnn.h"
#include "tensor/cuda/cudnn_abi.h"

#if defined(__has_include)
#if __has_include(<cudnn.h>) && __has_include(<cuda_runtime.h>)
#define HAVE_HEADER 1
#endif
#endif

#ifdef HAVE_HEADER
#pragma GCC diagnostic ignored "-Wstrict-prototypes"
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
#pragma GCC diagnostic ignored "-Wundef"
#include <cudnn.h>

#define EQUAL(ours, theirs) _Static_assert((long)(ours) == (long)(theirs), #theirs)
#define SAME(field, theirs, name)                                                                  \
	_Static_assert(offsetof(struct pl_cudnn_offer, field) == offsetof(theirs, name) &&         \
			       sizeof(((struct pl_cudnn_offer *)0)->field) ==                      \
				       sizeof(((theirs *)0)->name),                                \
		       #theirs "." #name)
#define OFFER(theirs)                                                                              \
	SAME(algo, theirs, algo);                                                                  \
	SAME(status, theirs, status);                                                              \
	SAME(time, theirs, time);                                                                  \
	SAME(memory, theirs, memory);                                                              \
	SAME(determinism, theirs, determinism);                                                    \
	SAME(math, theirs, mathType);                                                              \
	_Static_assert(sizeof(struct pl_cudnn_offer) == sizeof(theirs), #theirs)
OFFER(cudnnConvolutionFwdAlgoPerf_t);
OFFER(cudnnConvolutionBwdDataAlgoPerf_t);
OFFER(cudnnConvolutionBwdFilterAlgoPerf_t);
EQUAL(PL_CUDNN_MAJOR, CUDNN_MAJOR);
EQUAL(PL_CUDNN_SUCCESS, CUDNN_STATUS_SUCCESS);
EQUAL(PL_CUDNN_FLOAT, CUDNN_DATA_FLOAT);
EQUAL(PL_CUDNN_BFLOAT16, CUDNN_DATA_BFLOAT16);
EQUAL(PL_CUDNN_NCHW, CUDNN_TENSOR_NCHW);
EQUAL(PL_CUDNN_CROSS_CORRELATION, CUDNN_CROSS_CORRELATION);
EQUAL(PL_CUDNN_DETERMINISTIC, CUDNN_DETERMINISTIC);
EQUAL(PL_CUDNN_DEFAULT_MATH, CUDNN_DEFAULT_MATH);
EQUAL(PL_CUDNN_TENSOR_MATH, CUDNN_TENSOR_OP_MATH);
EQUAL(PL_CUDNN_CONVERT_MATH, CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION);
EQUAL(PL_CUDNN_FMA_MATH, CUDNN_FMA_MATH);
EQUAL(PL_CUDNN_Y_IMPLICIT, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM);
EQUAL(PL_CUDNN_Y_PRECOMPUTED, CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM);
EQUAL(PL_CUDNN_Y_GEMM, CUDNN_CONVOLUTION_FWD_ALGO_GEMM);
EQUAL(PL_CUDNN_Y_DIRECT, CUDNN_CONVOLUTION_FWD_ALGO_DIRECT);
EQUAL(PL_CUDNN_DX_1, CUDNN_CONVOLUTION_BWD_DATA_ALGO_1);
EQUAL(PL_CUDNN_DW_1, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1);
/* enumerations are passed as int is, descriptors as pointers are */
_Static_assert(sizeof(cudnnStatus_t) == sizeof(int) && sizeof(cudnnDataType_t) == sizeof(int) &&
		       sizeof(cudnnHandle_t) == sizeof(void *),
	       "arguments");

/* Compiles if the header's functions take what ours are given, in that order; never called. */
__attribute__((unused)) static void call_all(cudnnHandle_t h, cudnnTensorDescriptor_t x,
					     cudnnTensorDescriptor_t y, cudnnFilterDescriptor_t w,
					     cudnnConvolutionDescriptor_t c, cudaStream_t s,
					     float *p, size_t n, int i)
{
	const cudnnDataType_t f = CUDNN_DATA_FLOAT;
	cudnnConvolutionFwdAlgoPerf_t py;
	cudnnConvolutionBwdDataAlgoPerf_t px;
	cudnnConvolutionBwdFilterAlgoPerf_t pw;

	n = cudnnGetVersion();
	(void)cudnnGetErrorString(CUDNN_STATUS_SUCCESS);
	(void)(cudnnCreate(&h) + cudnnSetStream(h, s) + cudnnDestroy(h));
	(void)(cudnnCreateTensorDescriptor(&x) + cudnnDestroyTensorDescriptor(x));
	(void)cudnnSetTensor4dDescriptor(x, CUDNN_TENSOR_NCHW, f, 1, 2, 3, 4);
	(void)(cudnnCreateFilterDescriptor(&w) + cudnnDestroyFilterDescriptor(w));
	(void)cudnnSetFilter4dDescriptor(w, f, CUDNN_TENSOR_NCHW, 1, 2, 3, 4);
	(void)(cudnnCreateConvolutionDescriptor(&c) + cudnnDestroyConvolutionDescriptor(c));
	(void)cudnnSetConvolution2dDescriptor(c, 1, 2, 3, 4, 5, 6, CUDNN_CROSS_CORRELATION, f);
	(void)cudnnSetConvolutionMathType(c, CUDNN_FMA_MATH);
	(void)cudnnGetConvolutionForwardAlgorithm_v7(h, x, w, c, y, 1, &i, &py);
	(void)cudnnGetConvolutionForwardWorkspaceSize(h, x, w, c, y, py.algo, &n);
	(void)cudnnConvolutionForward(h, p, x, p, w, p, c, py.algo, p, n, p, y, p);
	(void)cudnnGetConvolutionBackwardDataAlgorithm_v7(h, w, y, c, x, 1, &i, &px);
	(void)cudnnGetConvolutionBackwardDataWorkspaceSize(h, w, y, c, x, px.algo, &n);
	(void)cudnnConvolutionBackwardData(h, p, w, p, y, p, c, px.algo, p, n, p, x, p);
	(void)cudnnGetConvolutionBackwardFilterAlgorithm_v7(h, x, y, c, w, 1, &i, &pw);
	(void)cudnnGetConvolutionBackwardFilterWorkspaceSize(h, x, y, c, w, pw.algo, &n);
	(void)cudnnConvolutionBackwardFilter(h, p, x, p, y, p, c, pw.algo, p, n, p, w, p);
}
#endif

static char folder[500];
static const struct fake_cudnn_count *count;

/* The real library, if it is here: it has all that is used, and takes descriptors without a GPU. */
static void test_real(void)
{
	struct {
#define MEMBER(member, symbol, type, args) type(*member) args;
		PL_CUDNN_FUNCTIONS(MEMBER)
#undef MEMBER
		int (*size)(void *conv, void *x, void *w, int *n, int *c, int *h, int *width);
	} f = { 0 };
	void *lib = dlopen("libcudnn.so.9", RTLD_LAZY | RTLD_LOCAL), *x = NULL, *w = NULL,
	     *c = NULL;
	int lost = 0, rc, y[4] = { 0 };

	if (!lib) {
		ok(true, "the library itself # SKIP no libcudnn.so.9");
		return;
	}
#define ONE(member, symbol, type, args) lost += !pl_symbol(lib, symbol, &f.member);
#define THREE(which, first, second, third)                                                         \
	lost += !dlsym(lib, first) + !dlsym(lib, second) + !dlsym(lib, third);
	PL_CUDNN_FUNCTIONS(ONE)
	PL_CUDNN_PASS_FUNCTIONS(THREE)
	lost += !pl_symbol(lib, "cudnnGetConvolution2dForwardOutputDim", &f.size);
	is_i64(lost, 0, "what is used of the library is there");
	if (lost)
		return;
	is_i64((int64_t)f.version() / 10000, PL_CUDNN_MAJOR, "it is of our version");
	rc = f.tensor_new(&x) | f.filter_new(&w) | f.conv_new(&c);
	rc |= f.tensor_set(x, PL_CUDNN_NCHW, PL_CUDNN_BFLOAT16, 2, 3, 20, 17);
	rc |= f.filter_set(w, PL_CUDNN_BFLOAT16, PL_CUDNN_NCHW, 5, 3, 4, 3);
	rc |= f.conv_set(c, 1, 1, 2, 2, 1, 1, PL_CUDNN_CROSS_CORRELATION, PL_CUDNN_FLOAT);
	rc |= f.conv_math(c, PL_CUDNN_FMA_MATH);
	rc |= f.size(c, x, w, &y[0], &y[1], &y[2], &y[3]);
	ok(!rc && y[0] == 2 && y[1] == 5 && y[2] == 10 && y[3] == 9,
	   "it understands our descriptors: %d, %d x %d x %d x %d", rc, y[0], y[1], y[2], y[3]);
	is_i64(f.tensor_free(x) | f.filter_free(w) | f.conv_free(c), 0, "and takes them back");
}

/* ---- the battery ------------------------------------------------------------------------------
 */

static void use(const char *file, const char *words)
{
	char path[600];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	setenv("PACELINE_CUDNN", strcmp(file, "none") ? path : file, 1);
	setenv("FAKE_CUDNN", words, 1);
}

static void test_battery(enum pl_store store)
{
	const char *word = store == PL_STORE_BF16 ? "bfloat16" : "float32";
	const struct fake_cudnn_count before = *count;
	int y, dx, dw;

	use("fake_cudnn.so", "");
	if (!open_battery(store, word))
		return;
	battery.rounds *= 3; /* it is fast */
	run_battery(word, "gemm, dense, act, pool, embed, batchnorm, attn, layernorm, losses, "
			  "elements, optimisers");
	close_battery();
	y = count->run[PL_CUDNN_Y] - before.run[PL_CUDNN_Y];
	dx = count->run[PL_CUDNN_DX] - before.run[PL_CUDNN_DX];
	dw = count->run[PL_CUDNN_DW] - before.run[PL_CUDNN_DW];
	ok(y > 0 && dx > 0, "%s: cuDNN computed y, %d times, and dx, %d times", word, y, dx);
	if (store == PL_STORE_FP32) {
		ok(dw >= dx, "%s: and dw, %d times", word, dw);
		is_i64(count->exact - before.exact, y + dx + dw, "in float32 that stays it");
	} else {
		ok(!dw, "%s: not dw, whose sums it would round", word);
	}
}

/* ---- one convolution and its way back ----------------------------------------------------------
 */

#define PARTS 4 /* y, dx, dw, db */
static const struct pl_conv shape = { .n = 2,
				      .c = 3,
				      .h = 9,
				      .w = 8,
				      .k = 5,
				      .r = 3,
				      .s = 3,
				      .stride = 1,
				      .pad = 1,
				      .p = 9,
				      .q = 8 };
struct outcome {
	float part[PARTS][2 * 5 * 9 * 8];
	char said[1200];
	enum pl_level level;
	int asked; /* heuristics at the second pass */
	int runs;
	uint64_t mallocs;
};

static void listen(void *arg, enum pl_level level, const char *text)
{
	struct outcome *o = arg;

	snprintf(o->said, sizeof(o->said), "%s", text);
	o->level = level;
}

/* Twice, the second time upon what the first one left in dw and db. Filters are not aligned. */
static bool convolve(enum pl_precision p, struct outcome *o)
{
	const size_t size[] = { 720, 432, 135, 5, 720 };
	const struct pl_log log = { listen, o };
	struct pl_backend_opts opts = { 0 };
	float *part[PARTS + 1], *x, *w, *b, host[720];
	struct pl_err err = { 0 };
	void *ctx;

	memset(o, 0, sizeof(*o));
	o->runs = count->run[0] + count->run[1] + count->run[2];
	if (!ok(be->open(&opts, &ctx, &err) == 0, "opened: %s", err.msg))
		return false;
	seed = 77;
	for (int i = 0; i <= PARTS; i++)
		part[i] = be->alloc(ctx, size[i] * sizeof(float));
	x = be->alloc(ctx, 432 * 4), w = be->alloc(ctx, 136 * 4), b = be->alloc(ctx, 20);
	for (float **to = (float *[]){ x, w, b, NULL }; *to; to++) {
		for (int j = 0; j < 432; j++)
			host[j] = number();
		be->put(ctx, *to, host, *to == x ? 432 * 4 : *to == w ? 136 * 4 : 20);
	}
	o->mallocs = emu_device.mallocs;
	be->precision(ctx, p);
	be->conv_work(ctx, &shape);
	for (int pass = 0; pass < 2; pass++) {
		o->asked = count->asked;
		be->conv(ctx, &shape, x, w + 1, b, PL_ACT_TANH, part[0], NULL);
		be->copy(ctx, part[PARTS], part[0], 720 * 4);
		be->conv_back(ctx, &shape, x, w + 1, PL_ACT_TANH, part[0], part[PARTS], part[1],
			      part[2], part[3], NULL);
	}
	o->asked = count->asked - o->asked;
	o->runs = count->run[0] + count->run[1] + count->run[2] - o->runs;
	o->mallocs = emu_device.mallocs - o->mallocs;
	for (int i = 0; i < PARTS; i++)
		be->get(ctx, o->part[i], part[i], size[i] * sizeof(float));
	be->remarks(ctx, &log);
	ok(be->sync(ctx, &err) == 0, "nothing failed: %s", err.msg);
	for (int i = 0; i <= PARTS; i++)
		be->free(ctx, part[i]);
	be->free(ctx, x);
	be->free(ctx, w);
	be->free(ctx, b);
	be->close(ctx);
	return true;
}

static double max_difference(const struct outcome *a, const struct outcome *b)
{
	double far = 0;

	for (int i = 0; i < PARTS; i++)
		for (size_t j = 0; j < PL_LEN(a->part[i]); j++)
			far = worse(far, fabs((double)a->part[i][j] - (double)b->part[i][j]));
	return far;
}

static struct outcome own; /* by our kernels */

static void test_kinds(void)
{
	struct outcome full, again, small;
	double far;

	use("none", "");
	if (!convolve(PL_FP32, &own))
		return;
	ok(own.level == PL_LOG_NOTE && strstr(own.said, "without cuDNN"), "none: %s", own.said);
	use("fake_cudnn.so", "");
	if (!convolve(PL_FP32, &full) || !convolve(PL_TF32, &small))
		return;
	use("fake_cudnn.so", "work=2000"); /* more than our kernels want */
	if (!convolve(PL_FP32, &again))
		return;
	far = max_difference(&own, &full);
	ok(far < 1e-4, "float32: as our kernels (%.1e)", far);
	ok(full.level == PL_LOG_NOTE && strstr(full.said, "cuDNN 9.1.0"), "%s", full.said);
	ok(!memcmp(full.part, again.part, sizeof(full.part)), "again, to the bit");
	is_i64(full.asked, 0, "algorithms are asked for once a shape");
	far = max_difference(&full, &small);
	ok(far > 1e-5 && far < 0.1, "tf32 is rounded, and no more (%.1e)", far);
}

/* ---- what can be wrong with a library ----------------------------------------------------------
 */

static void test_faults(void)
{
	static const struct {
		const char *file, *words, *said;
		int runs, mallocs; /* that are asked for, more than without */
	} bad[] = {
		{ "no_such_file.so", "", "cannot load", 0, 0 },
		{ "fake_nccl.so", "", "is not cuDNN", 0, 0 },
		{ "fake_cudnn_short.so", "", "cuDNN 9.99.0, has no cudnn", 0, 0 },
		{ "fake_cudnn.so", "version=8907", "is cuDNN 8.9.7, version 9 is needed", 0, 0 },
		{ "fake_cudnn.so", "version=100000", "is cuDNN 10.0.0, version 9 is needed", 0, 0 },
		{ "fake_cudnn.so", "create=1001", "cannot be set up: CUDNN_STATUS_SOME_ERROR", 0,
		  0 },
		/* and what no user needs to know */
		{ "fake_cudnn.so", "shape=3000", NULL, 0, 0 },
		{ "fake_cudnn.so", "offer=3000", NULL, 0, 0 },
		{ "fake_cudnn.so", "loose=1", NULL, 0, 0 },
		{ "fake_cudnn.so", "run=3000", NULL, 3, 0 },
		{ "fake_cudnn.so", "recorded=3000", NULL, 6, 0 },
		{ "fake_cudnn.so", "spoil=1", NULL, 6, 0 },
		{ "fake_cudnn.so", "work=1200000000", NULL, 0, 0 },
		{ "fake_cudnn.so", "work=900000000", NULL, 0, 3 }, /* more than there is */
	};
	const size_t memory = emu_device.memory;
	struct outcome o;

	for (size_t i = 0; i < PL_LEN(bad); i++) {
		use(bad[i].file, bad[i].words);
		emu_device.memory = (size_t)100 << 20;
		if (!convolve(PL_FP32, &o))
			continue;
		ok(!memcmp(o.part, own.part, sizeof(o.part)), "%s %s: our kernels serve",
		   bad[i].file, bad[i].words);
		if (bad[i].said)
			ok(o.level == PL_LOG_WARN && strstr(o.said, bad[i].said) &&
				   strstr(o.said, "PACELINE_CUDNN"),
			   "%s", o.said);
		else
			ok(o.level == PL_LOG_NOTE, "%s", o.said);
		ok(o.runs == bad[i].runs && o.mallocs == own.mallocs + (uint64_t)bad[i].mallocs,
		   "which is found out once: %d runs, %llu for memory", o.runs,
		   (unsigned long long)o.mallocs);
	}
	emu_device.memory = memory;
	use("fake_cudnn.so", "run=3000,from=3");
	if (convolve(PL_FP32, &o))
		ok(max_difference(&own, &o) > 0 && max_difference(&own, &o) < 1e-4 &&
			   !memcmp(o.part[1], own.part[1], sizeof(own.part[1])),
		   "refused in the middle: the rest by our kernels");
}

/* ---- networks ---------------------------------------------------------------------------------
 */

/* Filters of the second convolution are not aligned. */
static void test_training(void)
{
	static const char cnn[] = "input 3 8 8 / conv 3 3 pad=same / relu / maxpool 2 / batchnorm "
				  "/ conv 5 3 / tanh / "
				  "flatten / dense 3 / loss softmax-cross-entropy";
	struct trained cpu = { 0 }, full = cpu, eager = cpu, ours = cpu, half = cpu, again = cpu;
	struct trained refused = cpu, spoilt = cpu;
	double far;

	use("fake_cudnn.so", "");
	if (!train(cnn, &pl_backend_cpu, PL_STORE_FP32, false, 2, STEPS, &cpu) ||
	    !train(cnn, be, PL_STORE_FP32, true, 2, STEPS, &full) ||
	    !train(cnn, be, PL_STORE_FP32, false, 2, STEPS, &eager) ||
	    !train(cnn, be, PL_STORE_BF16, true, 2, STEPS, &half) ||
	    !train(cnn, be, PL_STORE_BF16, false, 2, STEPS, &again))
		return;
	use("fake_cudnn.so", "recorded=3000");
	if (!train(cnn, be, PL_STORE_FP32, true, 2, STEPS, &refused))
		return;
	use("fake_cudnn.so", "spoil=1");
	if (!train(cnn, be, PL_STORE_FP32, true, 2, STEPS, &spoilt))
		return;
	use("none", "");
	if (!train(cnn, be, PL_STORE_FP32, true, 2, STEPS, &ours))
		return;
	far = loss_difference(&cpu, &full, STEPS);
	ok(far < 1e-3, "trained: losses in float32 are the CPU's (%.1e)", far);
	far = loss_difference(&cpu, &half, STEPS);
	ok(far < 0.05 && far > 0, "trained: losses in bfloat16 are near (%.1e)", far);
	ok(equal(&full, &eager) && equal(&half, &again), "recorded as not recorded, to the bit");
	ok(!equal(&full, &ours), "it was another who computed");
	ok(equal(&refused, &ours), "a library that refuses to be recorded is not used");
	ok(equal(&spoilt, &ours), "nor is one that spoils what is recorded");
	for (struct trained **t = (struct trained *[]){ &cpu, &full, &eager, &ours, &half, &again,
							&refused, &spoilt, NULL };
	     *t; t++)
		free((*t)->params);
}

int main(int argc, char **argv)
{
	const char *slash = strrchr(argv[0], '/');
	char path[600];
	const struct fake_cudnn_count *(*counts)(void) = NULL;
	void *fake;

	(void)argc;
	snprintf(folder, sizeof(folder), "%.*s/../emu", slash ? (int)(slash - argv[0]) : 1,
		 slash ? argv[0] : ".");
	snprintf(path, sizeof(path), "%s/fake_cudnn.so", folder);
#ifdef HAVE_HEADER
	ok(true, "declared as cudnn.h has it");
#else
	ok(true, "declared as cudnn.h has it # SKIP no cudnn.h");
#endif
	test_real();
	fake = dlopen(path, RTLD_NOW | RTLD_LOCAL);
	if (!ok(fake && pl_symbol(fake, "fake_cudnn_counts", &counts), "the stand-in: %s",
		fake ? path : dlerror()))
		return done_testing();
	count = counts();
	test_battery(PL_STORE_FP32);
	test_battery(PL_STORE_BF16);
	test_kinds();
	test_faults();
	test_training();
	is_i64(count->misuse, 0, "nothing that the library would not have taken");
	is_i64(count->live, 0, "all that was created is destroyed");
	is_i64((int64_t)emu_leaks(), 0, "everything is given back");
	is_i64((int64_t)emu_overruns(), 0, "nothing was written beyond its end");
	return done_testing();
}
