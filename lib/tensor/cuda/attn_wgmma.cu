/*
 * attn_wgmma.cu - forward pass of causal attention on the tensor cores of Hopper (sm_90a;
 * wgmma.cuh). The algorithm is that of attn_mma.cu, see there. mma.sync reaches 0.6 of the rate;
 * here k and v need no fragments, so the rate is higher.
 *
 * A block is 3 warpgroups (heads of 128: 2) with 64 queries each. If T does not fill all blocks,
 * the first block is shorter, because it has the fewest keys. A block reads the keys up to its
 * diagonal, 128 at a time; meanwhile the next ones are copied into the other of two stages, so one
 * barrier for each turn is enough. Nothing else orders the warpgroups: while one computes
 * probabilities, the tensor cores compute the products of another. For 64 queries and 128 keys an
 * SM needs 512 clock cycles for products with heads of 64, as many for ex2, and some 300 for other
 * arithmetic; with heads of 128, 1,024 for products. Shared memory: 48 of 64 cycles (q k^T, both
 * operands) and 32 of 64 (p v).
 *
 * Flops and bytes: as in attn_mma.cu, but k and v once for every 192 (128) queries.
 *
 * Share of the limit, measured: never run on a GPU (bench/gpu attention).
 */
#include "tensor/cuda/attn_rows.cuh"
#include "tensor/cuda/wgmma.cuh"

/* Chosen so that ptxas (13.0) does not spill: 65,536 registers for all threads of an SM. */
template <int SIZE> struct tuned {
	static constexpr int groups = SIZE <= 64 ? 3 : 2, keys = 128;
	static constexpr int rows = 64 * groups, threads = 128 * groups;
	using own = plw_tile<SIZE, rows>;
	using side = plw_tile<SIZE, keys>;
	static constexpr int stage = 2 * side::bytes; /* k, v */
	static constexpr int shared = own::bytes + 2 * stage;
};

template <int SIZE>
static __global__ __launch_bounds__(tuned<SIZE>::threads, 1) void forward(struct plk_heads d,
									  const bf16 *qkv, bf16 *y,
									  float *save)
{
	using f = tuned<SIZE>;
	using own = typename f::own;
	using side = typename f::side;
	constexpr int N = f::keys / 8;
	PL_DYNAMIC(shared, char);
	plm_addr q = plm_shared(shared), stages = q + own::bytes;
	int lane = (int)threadIdx.x % 32, first = (int)threadIdx.x / 32 * 16; /* of the warp */
	int group = plw_group();
	int end = d.t - (int)blockIdx.x % d.blocks * f::rows, t0 = max(end - f::rows, 0);
	int turns = (end + f::keys - 1) / f::keys;
	struct plk_at at = plk_head_at(d, (int)blockIdx.x / d.blocks);
	int step = 3 * d.c;
	float acc[1][SIZE / 8][4], most[1][2] = { { -INFINITY, -INFINITY } }, sum[1][2] = {};

	qkv += at.column;
	auto fetch = [&](int turn) {
		fetch_keys<side, f::threads>(stages + (turn & 1) * f::stage, qkv, d, at,
					     turn * f::keys);
	};

	own::template fetch<f::threads>(q, qkv, at.row + t0, step, end - t0, d.size);
	fetch(0);
	plm_clear(acc);
	q += group * PLW_ROW;
	for (int turn = 0; turn < turns; turn++) {
		plm_addr from = stages + (turn & 1) * f::stage;
		int ahead = t0 + first - turn * f::keys; /* of the first query to the first key */
		float s[1][N][4];
		uint32_t p[N / 2][4];

		plm_wait<0>();
		plw_show();
		__syncthreads();
		if (turn + 1 < turns)
			fetch(turn + 1);
		if (t0 + group + 64 <= turn * f::keys || t0 + group >= end)
			continue;
		plw_fence();
		plw_dots<SIZE>(s[0], q, own::panel, from, side::panel);
		plw_commit();
		plw_wait<0>();
		plw_keep(s[0]);
		if (ahead < f::keys - 1)
			plm_mask<false>(s, ahead, lane);
		online_softmax<SIZE>(s, d.scale2, most, sum, acc);
		plw_round(s[0], p);
		plw_keep(p);
		plw_keep(acc[0]);
		plw_fence();
		plw_combine(acc[0], p, from + side::bytes, side::panel);
		plw_commit();
		plw_wait<0>();
		plw_keep(p);
		plw_keep(acc[0]);
	}
	__syncthreads();
	at = plk_head_at(d, (int)plm_again((unsigned)at.n));
	t0 += first;
	finish<SIZE>(most, sum, acc, save + plk_line(d, at, t0), end - t0, lane);
	plm_put<own, SIZE, 1>(shared + first * PLW_ROW, acc, y + plk_row(at, t0, d.c), d.c,
			      end - t0, d.size);
}

template <int SIZE>
static void launch(const struct plk *k, const struct pl_attn *d, const bf16 *qkv, bf16 *y,
		   float *save)
{
	struct plk_heads h = plk_heads_of(d, tuned<SIZE>::rows);

	PL_LAUNCH((forward<SIZE>), (unsigned)(d->b * d->heads * h.blocks), tuned<SIZE>::threads,
		  tuned<SIZE>::shared, k->stream, h, qkv, y, save);
}

void plk_attn_wgmma(const struct plk *k, const struct pl_attn *d, const bf16 *qkv, bf16 *y,
		    float *save)
{
	if (d->c / d->heads <= 64)
		launch<64>(k, d, qkv, y, save);
	else
		launch<128>(k, d, qkv, y, save);
}
