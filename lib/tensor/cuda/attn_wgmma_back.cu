/*
 * attn_wgmma_back.cu - backward pass of causal attention on the tensor cores of Hopper (sm_90a;
 * wgmma.cuh): the two kernels of attn_mma_back.cu, see there.
 *
 * Rows: a block is 3 warpgroups with 64 queries each (attn_wgmma.cu), 64 keys for each turn.
 * Columns: 3 warpgroups (heads of 128: 2) with 64 keys each, 64 queries for each turn. A warpgroup
 * starts two products of a turn, and computes the softmax of the first while the second runs. The
 * columns kernel continues so: dv is summed while ds is computed. Its transposed matrices are in
 * registers and become operand A of the next products without a change.
 *
 * A product of 64 x 64 with both operands in shared memory takes as long to read as to multiply,
 * one with A in registers half as long (128 bytes and 2,048 multiply-adds in a clock cycle of an
 * SM). The turn of a warpgroup is 384 cycles of products and 320 of reading (rows, heads of 64),
 * 512 and 384 (columns), twice as much with heads of 128. Copies can use the remaining cycles.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu attention).
 */
#include "tensor/cuda/attn_rows.cuh"
#include "tensor/cuda/wgmma.cuh"

#define GO 64 /* rows of a turn */

/* Chosen so that ptxas (13.0) does not spill. */
template <int SIZE> struct by_rows {
	static constexpr int groups = 3;
	static constexpr int rows = 64 * groups, threads = 128 * groups;
	using own = plw_tile<SIZE, rows>;
	using side = plw_tile<SIZE, GO>;
	static constexpr int stage = 2 * side::bytes; /* k, v */
	static constexpr int shared = 2 * own::bytes + 2 * stage;
};
template <int SIZE> struct by_columns {
	static constexpr int groups = SIZE <= 64 ? 3 : 2;
	static constexpr int rows = 64 * groups, threads = 128 * groups;
	using own = plw_tile<SIZE, rows>;
	using side = plw_tile<SIZE, GO>;
	static constexpr int stage = 2 * side::bytes + PLW_ALIGN; /* q, dy, own */
	static constexpr int shared = 2 * own::bytes + 2 * stage;
};

/* ---- dq -------------------------------------------------------------------------------------- */

template <int SIZE>
static __global__ __launch_bounds__(by_rows<SIZE>::threads,
				    1) void back_rows(struct plk_heads d, const bf16 *qkv,
						      const bf16 *y, const float *save,
						      const bf16 *dy, bf16 *dqkv, float *own_rows)
{
	using f = by_rows<SIZE>;
	using own = typename f::own;
	using side = typename f::side;
	constexpr int N = GO / 8;
	PL_DYNAMIC(shared, char);
	plm_addr q = plm_shared(shared), stages = q + 2 * own::bytes;
	int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * 16; /* of the warp */
	int group = plw_group();
	int end = d.t - (int)blockIdx.x % d.blocks * f::rows, t0 = max(end - f::rows, 0);
	int turns = (end + GO - 1) / GO;
	struct plk_at at = plk_head_at(d, (int)blockIdx.x / d.blocks);
	int step = 3 * d.c;
	float acc[1][SIZE / 8][4], lse[2], delta[2];

	qkv += at.column;
	auto fetch = [&](int turn) {
		fetch_keys<side, f::threads>(stages + (turn & 1) * f::stage, qkv, d, at, turn * GO);
	};

	own::template fetch<f::threads>(q, qkv, at.row + t0, step, end - t0, d.size);
	own::template fetch<f::threads>(q + own::bytes, dy + at.column, at.row + t0, d.c, end - t0,
					d.size);
	fetch(0);
#pragma unroll
	for (int h = 0; h < 2; h++) {
		int row = t0 + first + 8 * h + lane / 4, in = min(row, end - 1);
		size_t from = plk_row(at, in, d.c), line = plk_line(d, at, in);

		/* a row that does not exist: p = 2^-infinity, which adds nothing */
		lse[h] = row < end ? save[line] * PLK_LOG2E : INFINITY;
		delta[h] = row_delta<SIZE>(y + from, dy + from, d.size, lane);
		if (row < end && lane % 4 == 0) {
			own_rows[line] = lse[h];
			own_rows[d.rows + line] = delta[h];
		}
	}
	plm_clear(acc);
	q += group * PLW_ROW;
	for (int turn = 0; turn < turns; turn++) {
		plm_addr from = stages + (turn & 1) * f::stage;
		int ahead = t0 + first - turn * GO; /* of the first query to the first key */
		float p[1][N][4], dp[N][4];
		uint32_t ds[N / 2][4];

		plm_wait<0>();
		plw_show();
		__syncthreads();
		if (turn + 1 < turns)
			fetch(turn + 1);
		if (t0 + group + 64 <= turn * GO || t0 + group >= end)
			continue;
		plw_fence();
		plw_dots<SIZE>(p[0], q, own::panel, from, side::panel);
		plw_commit();
		plw_dots<SIZE>(dp, q + own::bytes, own::panel, from + side::bytes, side::panel);
		plw_commit();
		plw_wait<1>();
		plw_keep(p[0]);
		if (ahead < GO - 1)
			plm_mask<false>(p, ahead, lane);
#pragma unroll
		for (int i = 0; i < 4 * N; i++)
			p[0][i / 4][i % 4] =
				plm_exp2(fmaf(p[0][i / 4][i % 4], d.scale2, -lse[i % 4 / 2]));
		plw_wait<0>();
		plw_keep(dp);
#pragma unroll
		for (int i = 0; i < 4 * N; i++)
			p[0][i / 4][i % 4] *= dp[i / 4][i % 4] - delta[i % 4 / 2];
		plw_round(p[0], ds);
		plw_keep(ds);
		plw_keep(acc[0]);
		plw_fence();
		plw_combine(acc[0], ds, from, side::panel);
		plw_commit();
		plw_wait<0>();
		plw_keep(ds);
		plw_keep(acc[0]);
	}
	__syncthreads();
	at = plk_head_at(d, (int)plm_again((unsigned)at.n));
	plm_scale(acc, d.scale);
	t0 += first;
	plm_put<own, SIZE, 1>(shared + first * PLW_ROW, acc, dqkv + plk_row(at, t0, step), step,
			      end - t0, d.size);
}

/* ---- dk, dv ---------------------------------------------------------------------------------- */

template <int SIZE>
static __global__ __launch_bounds__(by_columns<SIZE>::threads,
				    1) void back_columns(struct plk_heads d, const bf16 *qkv,
							 const bf16 *dy, bf16 *dqkv,
							 const float *own_rows)
{
	using f = by_columns<SIZE>;
	using own = typename f::own;
	using side = typename f::side;
	constexpr int N = GO / 8;
	PL_DYNAMIC(shared, char);
	plm_addr k = plm_shared(shared), stages = k + 2 * own::bytes;
	int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * 16; /* of the warp */
	int group = plw_group();
	int u0 = (int)blockIdx.x % d.blocks * f::rows;
	int turn = u0 / GO, turns = (d.t + GO - 1) / GO;
	struct plk_at at = plk_head_at(d, (int)blockIdx.x / d.blocks);
	int step = 3 * d.c;
	float dk[1][SIZE / 8][4], dv[1][SIZE / 8][4];

	qkv += at.column;
	dy += at.column;
	auto fetch = [&](int go) {
		plm_addr to = stages + (go & 1) * f::stage;
		int q0 = go * GO, i = (int)threadIdx.x;

		side::template fetch<f::threads>(to, qkv, at.row + q0, step, d.t - q0, d.size);
		side::template fetch<f::threads>(to + side::bytes, dy, at.row + q0, d.c, d.t - q0,
						 d.size);
		if (i < 2 * GO) {
			int row = q0 + i % GO;
			size_t line = plk_line(d, at, row);

			plm_copy<4>(to + 2 * side::bytes + 4 * i,
				    own_rows + (i < GO ? 0 : d.rows) + line, row < d.t);
		}
		plm_commit();
	};

	own::template fetch<f::threads>(k, qkv + d.c, at.row + u0, step, d.t - u0, d.size);
	own::template fetch<f::threads>(k + own::bytes, qkv + 2 * d.c, at.row + u0, step, d.t - u0,
					d.size);
	fetch(turn);
	plm_clear(dk);
	plm_clear(dv);
	k += group * PLW_ROW;
	for (; turn < turns; turn++) {
		plm_addr q = stages + (turn & 1) * f::stage, lse = q + 2 * side::bytes;
		int ahead = turn * GO - u0 - first; /* of the first query to the first key */
		float p[1][N][4], dp[N][4];
		uint32_t a[N / 2][4], b[N / 2][4];

		plm_wait<0>();
		plw_show();
		__syncthreads();
		if (turn + 1 < turns)
			fetch(turn + 1);
		if (turn * GO + GO <= u0 + group || u0 + group >= d.t)
			continue;
		plw_fence();
		plw_dots<SIZE>(p[0], k, own::panel, q, side::panel);
		plw_commit();
		plw_dots<SIZE>(dp, k + own::bytes, own::panel, q + side::bytes, side::panel);
		plw_commit();
		plw_wait<1>();
		plw_keep(p[0]);
		if (ahead < 16 - 1)
			plm_mask<true>(p, ahead, lane);
		probabilities_of_keys(p, lse, d.scale2, lane);
		plw_round(p[0], a);
		plw_keep(a);
		plw_keep(dv[0]);
		plw_fence();
		plw_combine(dv[0], a, q + side::bytes, side::panel);
		plw_commit();
		plw_wait<1>(); /* dp is complete, dv is not */
		plw_keep(dp);
#pragma unroll
		for (int n = 0; n < N; n++) {
			float2 delta = plm_two(lse + 4 * GO + 32 * n + lane % 4 * 8);

#pragma unroll
			for (int e = 0; e < 4; e++)
				p[0][n][e] *= dp[n][e] - (e % 2 ? delta.y : delta.x);
		}
		plw_round(p[0], b);
		plw_keep(b);
		plw_keep(dk[0]);
		plw_fence();
		plw_combine(dk[0], b, q, side::panel);
		plw_commit();
		plw_wait<0>();
		plw_keep(a);
		plw_keep(b);
		plw_keep(dv[0]);
		plw_keep(dk[0]);
	}
	__syncthreads();
	at = plk_head_at(d, (int)plm_again((unsigned)at.n));
	plm_scale(dk, d.scale);
	u0 += first;
	dqkv += plk_row(at, u0, step) + d.c;
	plm_put<own, SIZE, 1>(shared + first * PLW_ROW, dk, dqkv, step, d.t - u0, d.size);
	plm_put<own, SIZE, 1>(shared + own::bytes + first * PLW_ROW, dv, dqkv + d.c, step, d.t - u0,
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

	PL_LAUNCH((back_rows<SIZE>), heads * rows.blocks, by_rows<SIZE>::threads,
		  by_rows<SIZE>::shared, k->stream, rows, qkv, y, save, dy, dqkv, own);
	PL_LAUNCH((back_columns<SIZE>), heads * columns.blocks, by_columns<SIZE>::threads,
		  by_columns<SIZE>::shared, k->stream, columns, qkv, dy, dqkv, own);
}

void plk_attn_wgmma_back(const struct plk *k, const struct pl_attn *d, const bf16 *qkv,
			 const bf16 *y, const float *save, const bf16 *dy, bf16 *dqkv, float *own)
{
	if (d->c / d->heads <= 64)
		launch<64>(k, d, qkv, y, save, dy, dqkv, own);
	else
		launch<128>(k, d, qkv, y, save, dy, dqkv, own);
}
