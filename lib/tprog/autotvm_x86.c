/*
 * The loops that templates of AutoTVM make for processors: those of TVM, in topi/x86.
 */
#include "tprog/autotvm_internal.h"

/* dense_nopack.x86: the sum is divided into the numbers of a vector, which are added at the end. */
enum autotvm_is pl_autotvm_dense_nopack(struct autotvm_build *b)
{
	struct autotvm_product *o = b->of;
	int64_t y[2], x[2], k[2];
	const char *i, *j, *kk;
	enum autotvm_is is;

	if ((is = pl_autotvm_tiles(b->r, "tile_y", o->m, 2, y)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_x", o->n, 2, x)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_k", o->k, 2, k)))
		return is;
	pl_autotvm_parameters(b);
	pl_autotvm_loop(b, "yx", y[0] * x[0], "parallel");
	i = pl_autotvm_sum(b, pl_autotvm_part(b, "yx", 1, y[0], x[0]), y[0], "y", y[1]);
	j = pl_autotvm_sum(b, pl_autotvm_part(b, "yx", y[0], x[0], 1), x[0], "x", x[1]);
	kk = pl_autotvm_sum(b, "k", k[0], "v", k[1]);
	pl_autotvm_alloc(b, "CC float32 %lld %lld %lld", (long long)y[1], (long long)x[1],
			 (long long)k[1]);
	for (int init = 1; init >= 0; init--) {
		if (!init)
			pl_autotvm_loop(b, "k", k[0], REDUCE);
		pl_autotvm_loop(b, "y", y[1], UNROLL);
		pl_autotvm_loop(b, "x", x[1], UNROLL);
		pl_autotvm_loop(b, "v", k[1], VECTOR);
		if (init)
			pl_autotvm_line(b, "CC[y, x, v] = 0.0");
		else
			pl_autotvm_line(b, "CC[y, x, v] += %s * %s", pl_autotvm_a(b, NULL, i, kk),
					pl_autotvm_b(b, NULL, j, kk));
		pl_autotvm_close(b, 2);
	}
	pl_autotvm_loop_if(b, "y", y[1], SERIAL);
	pl_autotvm_loop_if(b, "x", x[1], SERIAL);
	pl_autotvm_line(b, "%s = 0.0", pl_autotvm_c(b, NULL, i, j));
	pl_autotvm_loop(b, "v", k[1], REDUCE_UNROLL);
	pl_autotvm_line(b, "%s += CC[%s, %s, v]", pl_autotvm_c(b, NULL, i, j), y[1] > 1 ? "y" : "0",
			x[1] > 1 ? "x" : "0");
	pl_autotvm_close(b, 0);
	return AUTOTVM_FINE;
}

/* The sums of a tile, in groups of `group` rows; what does not fill a group comes last. */
static void put_packed_sum(struct autotvm_build *b, int64_t rows, int64_t group, int64_t wide,
			   const int64_t *k, const char *row, const char *weight)
{
	int depth = b->at.depth;

	for (int64_t first = 0; first < rows;) {
		int64_t groups = (rows - first) / group, n = groups ? group : rows - first;
		char from[24];
		const char *y;

		groups = pl_max_i64(groups, 1);
		snprintf(from, sizeof(from), "%lld", (long long)first);
		y = pl_autotvm_plus(b, from, pl_autotvm_sum(b, "yo", groups, "yi", n));
		pl_autotvm_loop_if(b, "yo", groups, UNROLL);
		pl_autotvm_loop(b, "ki", k[1], REDUCE_UNROLL);
		pl_autotvm_loop_if(b, "yi", n, UNROLL);
		pl_autotvm_loop(b, "x", wide, VECTOR);
		pl_autotvm_line(b, "CC[%s, x] += %s * %s", y,
				pl_autotvm_a(b, NULL, pl_autotvm_plus(b, row, y),
					     pl_autotvm_sum(b, "ko", k[0], "ki", k[1])),
				weight);
		pl_autotvm_close(b, depth);
		first += groups * n;
	}
}

/* A pass before the product stores B as [n / packed, k, packed]. */
static void pack(struct autotvm_build *b, int64_t wide)
{
	int64_t n = b->of->n / wide;

	pl_autotvm_alloc(b, "P float32 %lld %lld %lld", (long long)n, (long long)b->of->k,
			 (long long)wide);
	pl_autotvm_loop(b, "z", n, "parallel");
	pl_autotvm_loop(b, "x", wide, SERIAL);
	pl_autotvm_loop(b, "y", b->of->k, SERIAL);
	pl_autotvm_line(b, "P[z, y, x] = B[z * %lld + x, y]", (long long)wide);
	pl_autotvm_close(b, 1);
}

/* The tile at row and column, kept in CC and then stored. */
static void put_packed_tile(struct autotvm_build *b, const int64_t *y, const int64_t *x,
			    const int64_t *k, int64_t group, const char *row, const char *column,
			    const char *weight)
{
	int inside;

	pl_autotvm_alloc(b, "CC float32 %lld %lld", (long long)y[2], (long long)x[2]);
	inside = b->at.depth;
	pl_autotvm_loop(b, "y", y[2], UNROLL);
	pl_autotvm_loop(b, "x", x[2], VECTOR);
	pl_autotvm_line(b, "CC[y, x] = 0.0");
	pl_autotvm_close(b, inside);
	pl_autotvm_loop(b, "ko", k[0], REDUCE);
	put_packed_sum(b, y[2], group, x[2], k, row, weight);
	pl_autotvm_close(b, inside);
	pl_autotvm_loop(b, "y", y[2], UNROLL);
	pl_autotvm_loop(b, "x", x[2], VECTOR);
	pl_autotvm_line(b, "%s = CC[y, x]",
			pl_autotvm_c(b, NULL, pl_autotvm_plus(b, row, "y"),
				     pl_autotvm_plus(b, column, "x")));
}

/*
 * dense_pack.x86: B is stored in the order in which vectors read it. Logs with tile_inner measured
 * the product alone, with a B that is packed; older ones with the pass that packs it.
 */
enum autotvm_is pl_autotvm_dense_pack(struct autotvm_build *b)
{
	struct autotvm_product *o = b->of;
	const struct autotvm_knob *rows = pl_autotvm_knob(b->r, "tile_inner");
	bool older = !o->packed && !rows;
	int64_t y[3], x[3], k[2], group = rows ? rows->size[rows->n - 1] : 0;
	const char *panel, *column, *xt, *yt;
	char weight[600];
	enum autotvm_is is;

	if ((is = pl_autotvm_tiles(b->r, "tile_y", o->m, 3, y)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_x", o->n, 3, x)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_k", o->k, 2, k)))
		return is;
	if (!older && !o->packed)
		o->packed = x[2];
	pl_autotvm_parameters(b);
	if (older)
		pack(b, x[2]);
	pl_autotvm_loop(b, "yx", x[0] * y[0], "parallel");
	xt = older ? pl_autotvm_part(b, "yx", y[0], x[0], 1)
		   : pl_autotvm_part(b, "yx", 1, x[0], y[0]);
	yt = older ? pl_autotvm_part(b, "yx", 1, y[0], x[0])
		   : pl_autotvm_part(b, "yx", x[0], y[0], 1);
	pl_autotvm_loop_if(b, "y1", y[1], SERIAL);
	pl_autotvm_loop_if(b, "x1", x[1], SERIAL);
	panel = pl_autotvm_sum(b, xt, x[0], "x1", x[1]);
	column = pl_autotvm_sum(b, xt, x[0], "x1", x[1], "", x[2]);
	if (older || o->packed == x[2])
		snprintf(weight, sizeof(weight), "%s[%s, %s, x]", older ? "P" : "B", panel,
			 pl_autotvm_sum(b, "ko", k[0], "ki", k[1]));
	else
		snprintf(weight, sizeof(weight), "B[(%s) / %lld, %s, (%s) %% %lld]",
			 pl_autotvm_plus(b, column, "x"), (long long)o->packed,
			 pl_autotvm_sum(b, "ko", k[0], "ki", k[1]), pl_autotvm_plus(b, column, "x"),
			 (long long)o->packed);
	put_packed_tile(b, y, x, k, group > 1 ? pl_min_i64(group, y[2]) : y[2],
			pl_autotvm_sum(b, yt, y[0], "y1", y[1], "", y[2]), column, weight);
	pl_autotvm_close(b, 0);
	return AUTOTVM_FINE;
}

/* batch_matmul.x86: the sum is divided into the numbers of a vector, and the tile kept for each. */
enum autotvm_is pl_autotvm_batch_matmul(struct autotvm_build *b)
{
	struct autotvm_product *o = b->of;
	int64_t y[2], x[2], k[2], steps[2] = { 1, 1 };
	const char *batch, *i, *j, *kk;
	bool wide, vector, flat;
	enum autotvm_is is;

	if ((is = pl_autotvm_tiles(b->r, "tile_y", o->m, 2, y)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_x", o->n, 2, x)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_k", o->k, 2, k)))
		return is;
	wide = pl_autotvm_unrolled(k[0], 16, &steps[0]);
	steps[0] += wide; /* the begin of the sum */
	flat = pl_autotvm_unrolled(y[1] * x[1], 16, &steps[0]);
	vector = pl_autotvm_unrolled(k[1], 16, &steps[1]);
	pl_autotvm_parameters(b);
	pl_autotvm_loop(b, "byx", o->batch * y[0] * x[0], "parallel");
	batch = pl_autotvm_part(b, "byx", 1, o->batch, y[0] * x[0]);
	i = pl_autotvm_sum(b, pl_autotvm_part(b, "byx", o->batch, y[0], x[0]), y[0], "y", y[1]);
	j = pl_autotvm_sum(b, pl_autotvm_part(b, "byx", o->batch * y[0], x[0], 1), x[0], "x", x[1]);
	kk = pl_autotvm_sum(b, "ko", k[0], "v", k[1]);
	pl_autotvm_alloc(b, "CC float32 %lld %lld", (long long)y[1], (long long)x[1]);
	pl_autotvm_alloc(b, "part float32 %lld %lld %lld", (long long)k[1], (long long)y[1],
			 (long long)x[1]);
	pl_autotvm_loop(b, "y", y[1], flat ? UNROLL : SERIAL);
	pl_autotvm_loop(b, "x", x[1], flat ? UNROLL : SERIAL);
	pl_autotvm_loop(b, "v", k[1], VECTOR);
	pl_autotvm_line(b, "part[v, y, x] = 0.0");
	pl_autotvm_close(b, 5);
	pl_autotvm_loop(b, "ko", k[0], wide ? REDUCE_UNROLL : REDUCE);
	pl_autotvm_loop(b, "v", k[1], VECTOR);
	pl_autotvm_line(b, "part[v, y, x] += %s * %s", pl_autotvm_a(b, batch, i, kk),
			pl_autotvm_b(b, batch, j, kk));
	pl_autotvm_close(b, 3);
	pl_autotvm_loop(b, "y", y[1], SERIAL);
	pl_autotvm_loop(b, "x", x[1], SERIAL);
	pl_autotvm_line(b, "CC[y, x] = 0.0");
	pl_autotvm_loop(b, "v", k[1], vector ? REDUCE_UNROLL : REDUCE);
	pl_autotvm_line(b, "CC[y, x] += part[v, y, x]");
	pl_autotvm_close(b, 2);
	pl_autotvm_loop(b, "y", y[1], SERIAL);
	pl_autotvm_loop(b, "x", x[1], SERIAL);
	pl_autotvm_line(
		b, "%s = CC[y, x]",
		pl_autotvm_c(b, batch,
			     pl_autotvm_sum(b, pl_autotvm_part(b, "byx", o->batch, y[0], x[0]),
					    y[0], "y", y[1]),
			     pl_autotvm_sum(b, pl_autotvm_part(b, "byx", o->batch * y[0], x[0], 1),
					    x[0], "x", x[1])));
	pl_autotvm_close(b, 0);
	return AUTOTVM_FINE;
}
