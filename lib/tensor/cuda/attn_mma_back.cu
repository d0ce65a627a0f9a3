/*
 * attn_mma_back.cu - backward pass of causal attention on tensor cores. The probabilities are
 * computed again from the saved log-sum-exps (Dao et al. 2022, algorithm 4). With delta = dy y of a
 * row,
 *	p = 2^(c q k^T - lse), ds = p (dy v^T - delta),
 *	dv = p^T dy, dk = scale ds^T q, dq = scale ds k.
 *
 * Two kernels, one after the other. Rows: a block owns 128 queries, reads the keys up to its
 * diagonal and sums dq (3 products); before that it computes delta, which the other kernel also
 * uses. Columns: a block owns 128 keys, reads the queries from its diagonal on and sums dk and dv
 * (4 products). One kernel would need 5 products instead of 7. But in that kernel, every block of
 * keys would add to the dq of all later queries in memory, in float32: 8 size bytes for each query
 * and 128 keys, for 1,280 size flops, which is 2.5 TB/s at 400 TFLOPS; and the order would change
 * from run to run unless blocks wait for each other. Here no element is written twice, no block
 * waits, and each element is summed in one order. The 2 extra products cost at most 40 %: the
 * kernels reach about 0.7 of the rate of one kernel.
 *
 * The columns kernel computes the transposed matrices, s^T = k q^T and dp^T = v dy^T. So the
 * registers of a warp hold rows of its own keys, in the layout of the next product's operand
 * (mma.cuh). No kernel writes p or ds to memory. Copies as in attn_mma.cu: two stages, cp.async,
 * one barrier for each turn.
 *
 * Flops: 7 T^2 size for each head, of which 5 count. Shared memory for each mma: 171 bytes (rows,
 * heads of 64), 213 (rows, 128), 192 (columns, 64), 268 (columns, 128: the sums of dk and dv leave
 * room for only 16 keys of a warp, of which k and most of v stay in registers). An SM moves 128
 * bytes in a clock cycle, so at most 0.75, 0.6, 0.67 and 0.48 mma; mma.sync allows about 0.6
 * (sm_90).
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu attention).
 */
#include "tensor/cuda/attn_rows.cuh"

/* Fragments of v that fit into registers in addition to those of k, for heads of more than 64. */
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define SPARE 0
#else
#define SPARE 5
#endif

/*
 * The warps of a block, of 16 m rows each; the rows of a turn; the contents of shared memory: own
 * rows of two tensors, two stages. Chosen so that ptxas (13.0; sm_80, sm_90) needs at most 255
 * registers without spilling, and two blocks fit an SM of sm_90; large heads: one block of 8 warps.
 */
template <int SIZE> struct by_rows {
	static constexpr int m = 2, warps = 4, go = SIZE <= 64 ? 64 : 32;
	static constexpr int rows = warps * 16 * m;
	static constexpr int stage = 2 * go * plm_tile<SIZE>::bytes; /* k, v */
	static constexpr int shared = 2 * rows * plm_tile<SIZE>::bytes + 2 * stage;
	static_assert(shared <= PL_LEAST_SHARED);
};
template <int SIZE> struct by_columns {
	static constexpr int m = SIZE <= 64 ? 2 : 1, warps = SIZE <= 64 ? 4 : 8, go = 32;
	static constexpr int rows = warps * 16 * m;
	/* fragments of k and of v that stay in registers */
	static constexpr int hold_k = SIZE > 64 ? SIZE / 16 : 0, hold_v = SIZE > 64 ? SPARE : 0;
	static constexpr int side = go * plm_tile<SIZE>::bytes;
	static constexpr int stage = 2 * side + PLM_ALIGN * (8 * go / PLM_ALIGN); /* q, dy, own */
	static constexpr int shared = 2 * rows * plm_tile<SIZE>::bytes + 2 * stage;
	static_assert(shared <= PL_LEAST_SHARED);
};

/* ---- dq -------------------------------------------------------------------------------------- */

template <int SIZE>
static __global__ __launch_bounds__(by_rows<SIZE>::warps * 32,
				    2) void back_rows(struct plk_heads d, const bf16 *qkv,
						      const bf16 *y, const float *save,
						      const bf16 *dy, bf16 *dqkv, float *own)
{
	using t = plm_tile<SIZE>;
	using f = by_rows<SIZE>;
	constexpr int M = f::m, N = f::go / 8, threads = f::warps * 32;
	PL_DYNAMIC(shared, char);
	plm_addr q = plm_shared(shared), stages = q + 2 * f::rows * t::bytes;
	int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * 16 * M;
	int t0 = (d.blocks - 1 - (int)blockIdx.x % d.blocks) * f::rows;
	int turns = (min(t0 + f::rows, d.t) + f::go - 1) / f::go;
	struct plk_at at = plk_head_at(d, (int)blockIdx.x / d.blocks);
	int step = 3 * d.c;
	float acc[M][SIZE / 8][4], lse[M][2], delta[M][2];
	uint32_t none[M][PLM_HELD(0)][4]; /* no fragment is kept */

	qkv += at.column;
	auto fetch = [&](int turn) {
		plm_addr to = stages + (turn & 1) * f::stage;
		int u0 = turn * f::go;

		t::template fetch<f::go, threads>(to, qkv + d.c, at.row + u0, step, d.t - u0,
						  d.size);
		t::template fetch<f::go, threads>(to + f::stage / 2, qkv + 2 * d.c, at.row + u0,
						  step, d.t - u0, d.size);
		plm_commit();
	};

	t::template fetch<f::rows, threads>(q, qkv, at.row + t0, step, d.t - t0, d.size);
	t::template fetch<f::rows, threads>(q + f::rows * t::bytes, dy + at.column, at.row + t0,
					    d.c, d.t - t0, d.size);
	fetch(0);
#pragma unroll
	for (int i = 0; i < 2 * M; i++) {
		int row = t0 + first + 8 * i + lane / 4, in = min(row, d.t - 1);
		size_t from = plk_row(at, in, d.c), line = plk_line(d, at, in);

		/* a row that does not exist: p = 2^-infinity, which adds nothing */
		lse[i / 2][i % 2] = row < d.t ? save[line] * PLK_LOG2E : INFINITY;
		delta[i / 2][i % 2] = row_delta<SIZE>(y + from, dy + from, d.size, lane);
		if (row < d.t && lane % 4 == 0) {
			own[line] = lse[i / 2][i % 2];
			own[d.rows + line] = delta[i / 2][i % 2];
		}
	}
	plm_clear(acc);
	q += first * t::bytes + t::lane_a(lane);
	for (int turn = 0; turn < turns; turn++) {
		plm_addr from = stages + (turn & 1) * f::stage;
		int ahead = t0 + first - turn * f::go; /* of the first query to the first key */
		float p[M][N][4], dp[M][N][4];

		plm_wait<0>();
		__syncthreads();
		if (turn + 1 < turns)
			fetch(turn + 1);
		if (ahead + 16 * M <= 0 || t0 + first >= d.t)
			continue;
		plm_clear(p);
		plm_dots<SIZE, 0>(p, none, q, from + t::lane_b(lane));
#pragma unroll
		for (int i = 0; i < 4 * M * N; i++)
			dp[i / 4 / N][i / 4 % N][i % 4] = -delta[i / 4 / N][i % 4 / 2];
		plm_dots<SIZE, 0>(dp, none, q + f::rows * t::bytes,
				  from + f::stage / 2 + t::lane_b(lane));
		if (ahead < f::go - 1)
			plm_mask<false>(p, ahead, lane);
#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int n = 0; n < N; n++)
#pragma unroll
				for (int e = 0; e < 4; e++)
					p[m][n][e] = plm_exp2(fmaf(p[m][n][e], d.scale2,
								   -lse[m][e / 2])) *
						     dp[m][n][e];
		plm_combine<SIZE, M, N>(acc, p, from + t::lane_a(lane));
	}
	at = plk_head_at(d, (int)plm_again((unsigned)at.n));
	plm_scale(acc, d.scale);
	t0 += first;
	plm_put<t, SIZE, M>(shared + first * t::bytes, acc, dqkv + plk_row(at, t0, step), step,
			    d.t - t0, d.size);
}

/* ---- dk, dv ---------------------------------------------------------------------------------- */

/* The initial value of dp^T: -delta of each of these queries. */
template <int M, int N>
static __device__ __forceinline__ void begin(float (&dp)[M][N][4], plm_addr delta, int lane)
{
#pragma unroll
	for (int n = 0; n < N; n++) {
		float2 two = plm_two(delta + 32 * n + lane % 4 * 8);

#pragma unroll
		for (int m = 0; m < M; m++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				dp[m][n][e] = e % 2 ? -two.y : -two.x;
	}
}

template <int SIZE>
static __global__ __launch_bounds__(by_columns<SIZE>::warps * 32,
				    by_columns<SIZE>::warps == 4
					    ? 2
					    : 1) void back_columns(struct plk_heads d,
								   const bf16 *qkv, const bf16 *dy,
								   bf16 *dqkv, const float *own)
{
	using t = plm_tile<SIZE>;
	using f = by_columns<SIZE>;
	constexpr int M = f::m, N = f::go / 8, threads = f::warps * 32;
	PL_DYNAMIC(shared, char);
	plm_addr k = plm_shared(shared), v = k + f::rows * t::bytes;
	plm_addr stages = k + 2 * f::rows * t::bytes;
	int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * 16 * M;
	int u0 = (int)blockIdx.x % d.blocks * f::rows;
	int turn = u0 / f::go, turns = (d.t + f::go - 1) / f::go;
	struct plk_at at = plk_head_at(d, (int)blockIdx.x / d.blocks);
	int step = 3 * d.c;
	float dk[M][SIZE / 8][4], dv[M][SIZE / 8][4];
	uint32_t k_held[M][PLM_HELD(f::hold_k)][4], v_held[M][PLM_HELD(f::hold_v)][4];

	qkv += at.column;
	dy += at.column;
	auto fetch = [&](int go) {
		plm_addr to = stages + (go & 1) * f::stage;
		int q0 = go * f::go, i = (int)threadIdx.x;

		t::template fetch<f::go, threads>(to, qkv, at.row + q0, step, d.t - q0, d.size);
		t::template fetch<f::go, threads>(to + f::side, dy, at.row + q0, d.c, d.t - q0,
						  d.size);
		if (i < 2 * f::go) {
			int row = q0 + i % f::go;
			size_t line =
				(size_t)plm_again((unsigned)at.n) * (unsigned)d.t + (unsigned)row;

			plm_copy<4>(to + 2 * f::side + 4 * i, own + (i < f::go ? 0 : d.rows) + line,
				    row < d.t);
		}
		plm_commit();
	};

	t::template fetch<f::rows, threads>(k, qkv + d.c, at.row + u0, step, d.t - u0, d.size);
	t::template fetch<f::rows, threads>(v, qkv + 2 * d.c, at.row + u0, step, d.t - u0, d.size);
	fetch(turn);
	plm_clear(dk);
	plm_clear(dv);
	k += first * t::bytes + t::lane_a(lane);
	v += first * t::bytes + t::lane_a(lane);
	if constexpr (f::hold_k > 0) {
		plm_wait<0>();
		__syncthreads();
		plm_hold<SIZE, f::hold_k>(k_held, k);
		plm_hold<SIZE, f::hold_v>(v_held, v);
	}
	for (; turn < turns; turn++) {
		plm_addr q = stages + (turn & 1) * f::stage;
		int ahead = turn * f::go - u0 - first; /* of the first query to the first key */
		float p[M][N][4], dp[M][N][4];

		plm_wait<0>();
		__syncthreads();
		if (turn + 1 < turns)
			fetch(turn + 1);
		if (ahead + f::go <= 0 || u0 + first >= d.t)
			continue;
		plm_clear(p);
		plm_dots<SIZE, f::hold_k>(p, k_held, k, q + t::lane_b(lane));
		if (ahead < 16 * M - 1)
			plm_mask<true>(p, ahead, lane);
		probabilities_of_keys(p, q + 2 * f::side, d.scale2, lane);
		plm_combine<SIZE, M, N>(dv, p, q + f::side + t::lane_a(lane));
		begin(dp, q + 2 * f::side + 4 * f::go, lane);
		plm_dots<SIZE, f::hold_v>(dp, v_held, v, q + f::side + t::lane_b(lane));
#pragma unroll
		for (int i = 0; i < 4 * M * N; i++)
			dp[i / 4 / N][i / 4 % N][i % 4] *= p[i / 4 / N][i / 4 % N][i % 4];
		plm_combine<SIZE, M, N>(dk, dp, q + t::lane_a(lane));
	}
	at = plk_head_at(d, (int)plm_again((unsigned)at.n));
	plm_scale(dk, d.scale);
	u0 += first;
	dqkv += plk_row(at, u0, step) + d.c;
	plm_put<t, SIZE, M>(shared + first * t::bytes, dk, dqkv, step, d.t - u0, d.size);
	plm_put<t, SIZE, M>(shared + (f::rows + first) * t::bytes, dv, dqkv + d.c, step, d.t - u0,
			    d.size);
}

/* ---- launches -------------------------------------------------------------------------------- */

template <int SIZE>
static void launch(const struct plk *k, const struct pl_attn *d, const bf16 *qkv, const bf16 *y,
		   const float *save, const bf16 *dy, bf16 *dqkv, float *own)
{
	struct plk_heads rows = plk_heads_of(d, by_rows<SIZE>::rows);
	struct plk_heads columns = plk_heads_of(d, by_columns<SIZE>::rows);
	unsigned heads = (unsigned)(d->b * d->heads);

	PL_LAUNCH((back_rows<SIZE>), heads * rows.blocks, by_rows<SIZE>::warps * 32,
		  by_rows<SIZE>::shared, k->stream, rows, qkv, y, save, dy, dqkv, own);
	PL_LAUNCH((back_columns<SIZE>), heads * columns.blocks, by_columns<SIZE>::warps * 32,
		  by_columns<SIZE>::shared, k->stream, columns, qkv, dy, dqkv, own);
}

void plk_attn_mma_back(const struct plk *k, const struct pl_attn *d, const bf16 *qkv, const bf16 *y,
		       const float *save, const bf16 *dy, bf16 *dqkv, float *own)
{
	int size = d->c / d->heads;

	if (size <= 32)
		launch<32>(k, d, qkv, y, save, dy, dqkv, own);
	else if (size <= 64)
		launch<64>(k, d, qkv, y, save, dy, dqkv, own);
	else if (size <= 96)
		launch<96>(k, d, qkv, y, save, dy, dqkv, own);
	else
		launch<128>(k, d, qkv, y, save, dy, dqkv, own);
}
