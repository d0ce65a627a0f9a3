/*
 * attn_mma.cu - forward pass of causal attention on tensor cores, without a T x T matrix in memory
 * (Dao et al., FlashAttention, 2022). A warp owns rows, so that softmax needs no other warp (Dao,
 * FlashAttention-2, 2023).
 *
 * A block is 4 warps with 32 queries each, so that every fragment of k and v from shared memory is
 * multiplied twice: a mma of 4,096 flops reads 128 bytes (192 if q comes from there, too). An SM
 * moves 128 bytes in a clock cycle and completes about 0.6 mma.sync (sm_90; sm_80: 0.5). A block
 * reads the keys up to its diagonal, 64 at a time; meanwhile the next 64 of k and v are copied
 * (cp.async) into the other of two stages, so one barrier for each turn is enough. S = q k^T stays
 * in registers, and softmax leaves it in the layout of the next product's operand (mma.cuh). Only
 * tiles on the diagonal are masked; a warp skips tiles beyond it.
 *
 * Flops: 2 T^2 size for each head (half of the square, two products). Bytes: q, y once; k and v
 * once for every 128 queries: 2.7 TB/s at 350 TFLOPS from the L2 cache, because the blocks of a
 * head run at the same time. The block with the most work comes first. Each element is summed in
 * one order.
 *
 * On Hopper, attn_wgmma.cu computes heads of more than 32, if it works there (attend.cu).
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu attention).
 */
#include "tensor/cuda/attn_rows.cuh"

#define WARPS 4

/*
 * keys: of a turn. Chosen so that ptxas (13.0; sm_80, sm_90) needs at most 255 registers without
 * spilling, and two blocks fit an SM of sm_90 (heads of 128: 96 KB of shared memory each).
 */
template <int SIZE> struct tuned {
	static constexpr int m = 2, keys = 64;
	static constexpr int hold = SIZE <= 64 ? SIZE / 16 : 0; /* fragments of q */
	static constexpr int rows = WARPS * 16 * m;
	static constexpr int stage = 2 * keys * plm_tile<SIZE>::bytes; /* k, v */
	static constexpr int shared = rows * plm_tile<SIZE>::bytes + 2 * stage;
	static_assert(shared <= PL_LEAST_SHARED);
};

template <int SIZE>
static __global__ __launch_bounds__(WARPS * 32, 2) void forward(struct plk_heads d, const bf16 *qkv,
								bf16 *y, float *save)
{
	using t = plm_tile<SIZE>;
	using f = tuned<SIZE>;
	constexpr int M = f::m, N = f::keys / 8;
	PL_DYNAMIC(shared, char);
	plm_addr q = plm_shared(shared), stages = q + f::rows * t::bytes;
	int lane = (int)threadIdx.x % 32, own = (int)threadIdx.x / 32 * 16 * M;
	int t0 = (d.blocks - 1 - (int)blockIdx.x % d.blocks) * f::rows;
	int turns = (min(t0 + f::rows, d.t) + f::keys - 1) / f::keys;
	struct plk_at at = plk_head_at(d, (int)blockIdx.x / d.blocks);
	int step = 3 * d.c;
	float acc[M][SIZE / 8][4], most[M][2], sum[M][2] = {};
	uint32_t held[M][PLM_HELD(f::hold)][4];

	qkv += at.column;
	auto fetch = [&](int turn) {
		plm_addr to = stages + (turn & 1) * f::stage;
		int u0 = turn * f::keys;

		t::template fetch<f::keys, WARPS * 32>(to, qkv + d.c, at.row + u0, step, d.t - u0,
						       d.size);
		t::template fetch<f::keys, WARPS * 32>(to + f::stage / 2, qkv + 2 * d.c,
						       at.row + u0, step, d.t - u0, d.size);
		plm_commit();
	};

	t::template fetch<f::rows, WARPS * 32>(q, qkv, at.row + t0, step, d.t - t0, d.size);
	fetch(0);
	plm_clear(acc);
	for (int m = 0; m < M; m++)
		most[m][0] = most[m][1] = -INFINITY;
	q += own * t::bytes + t::lane_a(lane);
	for (int turn = 0; turn < turns; turn++) {
		plm_addr from = stages + (turn & 1) * f::stage;
		int ahead = t0 + own - turn * f::keys; /* of the first query to the first key */
		float s[M][N][4];

		plm_wait<0>();
		__syncthreads();
		if (turn + 1 < turns)
			fetch(turn + 1);
		if (turn == 0)
			plm_hold<SIZE, f::hold>(held, q);
		if (ahead + 16 * M <= 0 || t0 + own >= d.t)
			continue;
		plm_clear(s);
		plm_dots<SIZE, f::hold>(s, held, q, from + t::lane_b(lane));
		if (ahead < f::keys - 1)
			plm_mask<false>(s, ahead, lane);
		online_softmax<SIZE>(s, d.scale2, most, sum, acc);
		plm_combine<SIZE, M, N>(acc, s, from + f::stage / 2 + t::lane_a(lane));
	}
	at = plk_head_at(d, (int)plm_again((unsigned)at.n));
	t0 += own;
	finish<SIZE>(most, sum, acc, save + plk_line(d, at, t0), d.t - t0, lane);
	plm_put<t, SIZE, M>(shared + own * t::bytes, acc, y + plk_row(at, t0, d.c), d.c, d.t - t0,
			    d.size);
}

template <int SIZE>
static void launch(const struct plk *k, const struct pl_attn *d, const bf16 *qkv, bf16 *y,
		   float *save)
{
	struct plk_heads h = plk_heads_of(d, tuned<SIZE>::rows);

	PL_LAUNCH((forward<SIZE>), (unsigned)(d->b * d->heads * h.blocks), WARPS * 32,
		  tuned<SIZE>::shared, k->stream, h, qkv, y, save);
}

void plk_attn_mma(const struct plk *k, const struct pl_attn *d, const bf16 *qkv, bf16 *y,
		  float *save)
{
	int size = d->c / d->heads;

	if (size <= 32)
		launch<32>(k, d, qkv, y, save);
	else if (size <= 64)
		launch<64>(k, d, qkv, y, save);
	else if (size <= 96)
		launch<96>(k, d, qkv, y, save);
	else
		launch<128>(k, d, qkv, y, save);
}
