/*
 * columns.cu - sums over rows: gradients of biases, and the last part of all such sums.
 *
 * columns: reads N C elements once. A block takes 32 vectors of columns and every 8th row of a
 * segment of the rows, so that a warp reads 512 bytes of a row at once, four rows at a time; there
 * are about 8 blocks of 256 threads for each multiprocessor. Each writes a row of sums, 1 / (rows
 * of a segment) of the input, and pl_fold() adds these in order, so the result does not depend on
 * the order in which blocks end.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu products: with sums of dy and
 * without).
 */
#include "tensor/cuda/device.cuh"

#define LINES 8	 /* rows that a block of columns() reads at once */
#define FOLDS 16 /* groups of partial sums */

/* grid: (columns / 32, 1 or 2: the half), block: (32, FOLDS) */
static __global__ void fold(const float *parts, int count, int width, int step, float *out0,
			    float *out1, bool fresh)
{
	PL_SHARED(sums, float[FOLDS][33]);
	int j = (int)(blockIdx.x * 32 + threadIdx.x), each = (count + FOLDS - 1) / FOLDS;
	int first = (int)threadIdx.y * each, end = min(first + each, count);
	float *out = blockIdx.y ? out1 : out0;
	float sum = 0;

	if (j < width)
		for (int i = first; i < end; i++)
			sum += parts[(size_t)i * step + (size_t)blockIdx.y * width + j];
	sums[threadIdx.y][threadIdx.x] = sum;
	__syncthreads();
	if (threadIdx.y || j >= width)
		return;
	for (int i = 1; i < FOLDS; i++)
		sum += sums[i][threadIdx.x];
	out[j] = fresh ? sum : out[j] + sum;
}

void pl_fold(const struct plk *k, const float *parts, int count, int width, float *out0,
	     float *out1)
{
	PL_LAUNCH(fold, dim3(pl_blocks((size_t)width, 32), out1 ? 2 : 1), dim3(32, FOLDS), 0,
		  k->stream, parts, count, width, out1 ? 2 * width : width, out0, out1, k->fresh);
}

/* The number of segments of the rows, for any V; at most as many as the scratch memory allows. */
static int segments(const struct plk *k, int n, int vecs)
{
	int across = (vecs + 31) / 32, most = (n + 4 * LINES - 1) / (4 * LINES);
	int wanted = 8 * k->sms / across;

	wanted = wanted > 4 * k->sms ? 4 * k->sms : wanted < 1 ? 1 : wanted;
	return wanted < most ? wanted : most;
}

/* parts (segments, C) */
template <typename T, int V>
static __global__ void __launch_bounds__(32 * LINES, 8) /* all blocks run at once */
	columns(int n, int c, int each, const T *dy, float *parts)
{
	PL_SHARED(sums, float[LINES][32 * V + 1]);
	int at = (int)(blockIdx.x * 32 + threadIdx.x) * V;
	int first = (int)blockIdx.y * each, end = min(first + each, n);
	float sum[V] = { 0 }, v[V];

	if (at < c)
#pragma unroll 4
		for (int i = first + (int)threadIdx.y; i < end; i += LINES) {
			pl_get<V>(dy + (size_t)i * c + at, v);
			for (int l = 0; l < V; l++)
				sum[l] += v[l];
		}
	for (int l = 0; l < V; l++)
		sums[threadIdx.y][threadIdx.x * V + l] = sum[l];
	__syncthreads();
	for (int j = (int)(threadIdx.y * 32 + threadIdx.x); j < 32 * V; j += 32 * LINES) {
		int to = (int)blockIdx.x * 32 * V + j;
		float all = 0;

		for (int i = 0; i < LINES; i++)
			all += sums[i][j];
		if (to < c)
			parts[(size_t)blockIdx.y * c + to] = all;
	}
}

template <typename T, int V> static void launch(const struct plk *k, int n, int c, const T *dy)
{
	int count = segments(k, n, c / V), each = (n + count - 1) / count;

	PL_LAUNCH((columns<T, V>), dim3(pl_blocks((size_t)c, 32 * V), (unsigned)count),
		  dim3(32, LINES), 0, k->stream, n, c, each, dy, (float *)k->scratch);
}

void plk_columns(const struct plk *k, int n, int c, const void *dy, float *db)
{
	PL_STORED(k, T, {
		const int V = pl_wide<T>::n;
		bool wide = pl_aligned((size_t)c * sizeof(T), dy);

		if (n < 1)
			return;
		if (wide)
			launch<T, V>(k, n, c, (const T *)dy);
		else
			launch<T, 1>(k, n, c, (const T *)dy);
		pl_fold(k, (const float *)k->scratch, segments(k, n, wide ? c / V : c), c, db,
			NULL);
	});
}

/* columns() needs segments x C, the backward pass of layernorm 2 blocks of 2 C for each
 * multiprocessor, losses 16 bytes for each block. */
size_t plk_rows_scratch(const struct plk *k, int n, int c)
{
	size_t sums = 4 * (size_t)k->sms * (size_t)c * sizeof(float);
	size_t losses = 32 * (size_t)k->sms * 16;

	(void)n;
	return sums > losses ? sums : losses;
}
