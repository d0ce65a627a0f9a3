/*
 * gpu_attn.cu - how fast attention's kernels are: for each T and head size, forward, and forward
 * and back together, in microseconds (median), TFLOPS that count (2 T^2 size a head forward, 5 more
 * back: causal, nothing made twice) and their share of what the device's tensor cores come to in a
 * large product by cuBLASLt, which is measured first. On Hopper by wgmma, or with PACELINE_ATTN=mma
 * in the environment by mma.sync, which can do 0.6 of that.
 *
 * gpu_attn			a table
 * gpu_attn T SIZE		one line: the two times and the limit's TFLOPS, for gpu_attn.py
 *
 * 16,384 tokens of 2,048 channels: 200 MB of qkv, more than any cache. Numbers are random. Ends
 * with 1 if something fails, or if what the tensor cores make of T = 1,000 is not what exact
 * float32 multiply-adds do.
 */
#include <algorithm>
#include <stdlib.h>
#include <vector>

#include "tensor/cuda/context.h" /* cuBLASLt */
#include "tensor/cuda/device.cuh"

#define TOKENS	 16384
#define CHANNELS 2048
#define REPEATS	 20

static void must(cudaError_t e, const char *what)
{
	if (e == cudaSuccess)
		return;
	fprintf(stderr, "gpu_attn: %s: %s\n", what, cudaGetErrorString(e));
	exit(1);
}

static void *room(size_t bytes)
{
	void *p;

	must(cudaMalloc(&p, bytes), "memory of the device");
	return p;
}

/* Between -2 and 2: a hash of the place. */
template <typename T> static __global__ void fill(size_t n, unsigned seed, T *x)
{
	for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
		unsigned h = ((unsigned)i ^ seed) * 0x9e3779b1u;

		h ^= h >> 15;
		h *= 0x85ebca77u;
		h ^= h >> 13;
		pl_store(x + i, pl_float(__float2bfloat16_rn((float)(h >> 8) / (1 << 22) - 2)));
	}
}

/* ---- time ------------------------------------------------------------------------------------ */

/* Microseconds: the median of REPEATS, after 3 that do not count; a run before each keeps the
 * device from waiting for the host. */
template <typename F> static double median(cudaStream_t stream, F run)
{
	std::vector<float> ms(REPEATS);
	cudaEvent_t begin, end;

	must(cudaEventCreate(&begin), "an event");
	must(cudaEventCreate(&end), "an event");
	for (int r = -3; r < REPEATS; r++) {
		run();
		must(cudaEventRecord(begin, stream), "an event");
		run();
		must(cudaEventRecord(end, stream), "an event");
		must(cudaEventSynchronize(end), "a kernel");
		if (r >= 0)
			must(cudaEventElapsedTime(&ms[r], begin, end), "a time");
	}
	cudaEventDestroy(begin);
	cudaEventDestroy(end);
	std::sort(ms.begin(), ms.end());
	return (double)ms[REPEATS / 2] * 1e3;
}

/* ---- the limit ------------------------------------------------------------------------------- */

#define SIDE ((size_t)8192)

static void must_lt(cublasStatus_t rc)
{
	if (rc == CUBLAS_STATUS_SUCCESS)
		return;
	fprintf(stderr, "gpu_attn: a product: %s\n", cublasLtGetStatusName(rc));
	exit(1);
}

/* What a product of bfloat16 matrices with SIDE rows and columns comes to, a^T b as cuBLASLt likes
 * it best. */
static double limit_tflops(const struct plk *k)
{
	const cublasOperation_t turned = CUBLAS_OP_T;
	const float one = 1, zero = 0;
	const size_t bytes = SIDE * SIDE * sizeof(bf16), work = (size_t)32 << 20;
	cublasLtHandle_t lt;
	cublasLtMatmulDesc_t desc;
	cublasLtMatrixLayout_t all;
	cublasLtMatmulPreference_t how;
	cublasLtMatmulHeuristicResult_t found;
	bf16 *a = (bf16 *)room(bytes), *b = (bf16 *)room(bytes);
	void *d = room(bytes), *w = room(work);
	int n = 0;
	double us;

	PL_LAUNCH(fill<bf16>, 1024, 256, 0, k->stream, SIDE * SIDE, 5u, a);
	PL_LAUNCH(fill<bf16>, 1024, 256, 0, k->stream, SIDE * SIDE, 55u, b);
	must_lt(cublasLtCreate(&lt));
	must_lt(cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
	must_lt(cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &turned,
					       sizeof(turned)));
	must_lt(cublasLtMatrixLayoutCreate(&all, CUDA_R_16BF, SIDE, SIDE, SIDE));
	must_lt(cublasLtMatmulPreferenceCreate(&how));
	must_lt(cublasLtMatmulPreferenceSetAttribute(how, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
						     &work, sizeof(work)));
	must_lt(cublasLtMatmulAlgoGetHeuristic(lt, desc, all, all, all, all, how, 1, &found, &n));
	us = median(k->stream, [&] {
		must_lt(cublasLtMatmul(lt, desc, &one, a, all, b, all, &zero, d, all, d, all,
				       &found.algo, w, work, k->stream));
	});
	cublasLtMatmulPreferenceDestroy(how);
	cublasLtMatrixLayoutDestroy(all);
	cublasLtMatmulDescDestroy(desc);
	cublasLtDestroy(lt);
	cudaFree(a);
	cudaFree(b);
	cudaFree(d);
	cudaFree(w);
	return 2.0 * SIDE * SIDE * SIDE / us / 1e6;
}

/* ---- attention ------------------------------------------------------------------------------- */

struct tensors {
	struct pl_attn d;
	void *qkv, *y, *dy, *dqkv;
	float *save;
};

static struct tensors tensors_of(struct plk *k, int b, int t, int c, int size)
{
	struct tensors x = { { b, t, c, c / size }, NULL, NULL, NULL, NULL, NULL };
	size_t n = (size_t)b * (size_t)t * (size_t)c, each = k->bf16 ? sizeof(bf16) : sizeof(float);

	x.qkv = room(3 * n * each);
	x.y = room(n * each);
	x.dy = room(n * each);
	x.dqkv = room(3 * n * each);
	x.save = (float *)room(plk_attn_save(k, &x.d) * sizeof(float));
	k->scratch_bytes = plk_attn_scratch(k, &x.d);
	k->scratch = room(k->scratch_bytes);
	PL_STORED(k, T, PL_LAUNCH(fill<T>, 1024, 256, 0, k->stream, 3 * n, 1u, (T *)x.qkv);
		  PL_LAUNCH(fill<T>, 1024, 256, 0, k->stream, n, 77u, (T *)x.dy));
	must(cudaMemset(x.y, 0xff, n * each), "memory");
	must(cudaMemset(x.dqkv, 0xff, 3 * n * each), "memory");
	return x;
}

static void give(struct plk *k, struct tensors *x)
{
	cudaFree(x->qkv);
	cudaFree(x->y);
	cudaFree(x->dy);
	cudaFree(x->dqkv);
	cudaFree(x->save);
	cudaFree(k->scratch);
}

static void forward(const struct plk *k, const struct tensors *x)
{
	plk_attn(k, &x->d, x->qkv, x->y, x->save);
}

static void back(const struct plk *k, const struct tensors *x)
{
	plk_attn_back(k, &x->d, x->qkv, x->y, x->save, x->dy, x->dqkv);
}

static std::vector<float> numbers(const struct plk *k, const void *p, size_t n)
{
	std::vector<float> v(n);
	std::vector<bf16> half(n);

	if (!k->bf16) {
		must(cudaMemcpy(v.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost), "a copy");
		return v;
	}
	must(cudaMemcpy(half.data(), p, n * sizeof(bf16), cudaMemcpyDeviceToHost), "a copy");
	for (size_t i = 0; i < n; i++)
		v[i] = __bfloat162float(half[i]);
	return v;
}

/* How far the gradients, on which all else depends, are from float32's: |a - b| / |b|. */
static double max_difference(struct plk k, int size)
{
	std::vector<float> got[2];
	double far = 0, all = 0;

	for (int half = 0; half < 2; half++) {
		struct tensors x;

		k.bf16 = half;
		x = tensors_of(&k, 2, 1000, 2 * size, size);
		forward(&k, &x);
		back(&k, &x);
		must(cudaDeviceSynchronize(), "attention");
		got[half] = numbers(&k, x.dqkv, (size_t)12000 * (size_t)size);
		give(&k, &x);
	}
	for (size_t i = 0; i < got[0].size(); i++) {
		double by = (double)got[1][i] - (double)got[0][i];

		far += by * by;
		all += (double)got[0][i] * (double)got[0][i];
	}
	return sqrt(far / all);
}

/* Microseconds forward, and forward and back. */
static void measure(struct plk *k, int t, int size, double *once, double *both)
{
	struct tensors x = tensors_of(k, TOKENS / t, t, CHANNELS, size);

	*once = median(k->stream, [&] { forward(k, &x); });
	*both = median(k->stream, [&] {
		forward(k, &x);
		back(k, &x);
	});
	give(k, &x);
}

static void table(struct plk *k, double limit)
{
	printf("attention by %s; a product of 8192 x 8192: %.0f TFLOPS\n",
	       k->hopper ? "wgmma" : "mma.sync", limit);
	printf("%6s %5s %10s %7s %6s %10s %7s %6s\n", "T", "size", "forward us", "TFLOPS", "share",
	       "+ back us", "TFLOPS", "share");
	for (int size = 64; size <= 128; size *= 2)
		for (int t = 1024; t <= 8192; t *= 2) {
			double once, both, flops = 2.0 * t * TOKENS * CHANNELS;

			measure(k, t, size, &once, &both);
			printf("%6d %5d %10.0f %7.0f %5.0f%% %10.0f %7.0f %5.0f%%\n", t, size, once,
			       flops / once / 1e6, flops / once / 1e4 / limit, both,
			       3.5 * flops / both / 1e6, 3.5 * flops / both / 1e4 / limit);
			fflush(stdout);
		}
}

int main(int argc, char **argv)
{
	struct plk k = {};
	const char *by = getenv("PACELINE_ATTN");
	double limit, once, both;
	int major = 0, minor = 0;

	k.bf16 = true;
	must(cudaDeviceGetAttribute(&k.sms, cudaDevAttrMultiProcessorCount, 0), "a device");
	must(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0), "a device");
	must(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0), "a device");
	k.hopper = major == 9 && minor == 0 && !(by && !strcmp(by, "mma"));
	must(cudaStreamCreate(&k.stream), "a stream");
	for (int size = 64; size <= 128; size *= 2)
		if (!(max_difference(k, size) < 1e-2)) {
			fprintf(stderr, "gpu_attn: heads of %d: gradients are wrong\n", size);
			return 1;
		}
	limit = limit_tflops(&k);
	if (argc == 3) {
		measure(&k, atoi(argv[1]), atoi(argv[2]), &once, &both);
		printf("%.1f %.1f %.0f\n", once, both, limit);
	} else {
		table(&k, limit);
	}
	return 0;
}
