/*
 * The loops that templates of AutoTVM make for GPUs: those of TVM, in topi/gpu and topi/cuda.
 *
 * Two things differ from TVM, so that the text means the same when its loops run one after another:
 * the threads of a block have a loop of their own between any two points where they wait for one
 * another, and what a thread keeps over such points has the threads as its first dimensions. Shared
 * buffers are single where TVM fills one of two while it reads the other.
 */
#include "tprog/autotvm_internal.h"

/* dense_small_batch: the threads of a block share the sum of one number of the result. */
enum autotvm_is pl_autotvm_dense_small_batch(struct autotvm_build *b)
{
	struct autotvm_product *o = b->of;
	const char *kk;
	enum autotvm_is is;
	int64_t k[2];

	if ((is = pl_autotvm_tiles(b->r, "tile_k", o->k, 2, k)))
		return is;
	pl_autotvm_parameters(b);
	pl_autotvm_loop(b, "i", o->m, "block.y");
	pl_autotvm_loop(b, "j", o->n, "block.x");
	pl_autotvm_alloc(b, "red float32 %lld shared", (long long)k[1]);
	pl_autotvm_loop(b, "t", k[1], "thread.x");
	pl_autotvm_alloc(b, "CF float32 1");
	pl_autotvm_line(b, "CF[0] = 0.0");
	pl_autotvm_loop(b, "ko", k[0], REDUCE);
	kk = pl_autotvm_sum(b, "ko", k[0], "t", k[1]);
	pl_autotvm_line(b, "CF[0] += %s * %s", pl_autotvm_a(b, NULL, "i", kk),
			pl_autotvm_b(b, NULL, "j", kk));
	pl_autotvm_close(b, 5);
	pl_autotvm_line(b, "red[t] = CF[0]");
	pl_autotvm_close(b, 3);
	/* in each step half of the threads add what the other half has */
	for (int64_t n = k[1]; n > 1; n -= n / 2) {
		pl_autotvm_loop(b, "t", n / 2, "thread.x");
		pl_autotvm_line(b, "red[t] += red[t + %lld]", (long long)(n - n / 2));
		pl_autotvm_close(b, 3);
	}
	pl_autotvm_line(b, "C[i, j] = red[0]");
	pl_autotvm_close(b, 0);
	return AUTOTVM_FINE;
}

/* An axis that n threads divide, each with `each` neighbours; turns: how often they begin again. */
struct load {
	int64_t turns, threads, each;
};

/* Each thread gets as many as are needed. */
static struct load load_parts(int64_t extent, int64_t n)
{
	struct load l = { 1, n, (extent + n - 1) / n };

	l.threads = (extent + l.each - 1) / l.each;
	return l;
}

/* Each thread gets four, and again. */
static struct load load_fours(int64_t extent, int64_t n)
{
	struct load l = { (extent + 4 * n - 1) / (4 * n), n, 4 };

	if (l.turns == 1)
		l.threads = (extent + 3) / 4;
	return l;
}

static int64_t padded(const struct load *l)
{
	return l->turns * l->threads * l->each;
}

/* Index of an axis, but not behind its end. */
static const char *inside(struct autotvm_build *b, const char *index, const struct load *l,
			  int64_t extent)
{
	char *out = pl_autotvm_text(b);

	if (padded(l) == extent)
		return index;
	snprintf(out, sizeof(b->text[0]), "min(%s, %lld)", index, (long long)extent - 1);
	return out;
}

/* A tile of an operand, rows by columns, that begins at row and column; threads bring it into the
 * shared buffer "AA" or "BB". most: statements that a loop may become. */
struct fill {
	const char *batch, *row, *column;
	struct load y, x;
	int64_t rows, columns, most;
};

static void put_fill(struct autotvm_build *b, char name, const struct fill *f)
{
	int depth = b->at.depth;
	int64_t steps = 1;
	bool x = pl_autotvm_unrolled(f->x.each, f->most, &steps),
	     y = pl_autotvm_unrolled(f->y.each, f->most, &steps);
	const char *row, *column, *r, *c;

	pl_autotvm_loop(b, "ty", f->y.threads, "thread.y");
	pl_autotvm_loop(b, "tx", f->x.threads, "thread.x");
	pl_autotvm_loop_if(b, "r", f->y.each, y ? UNROLL : SERIAL);
	pl_autotvm_loop_if(b, "turn", f->x.turns, SERIAL);
	pl_autotvm_loop_if(b, "c", f->x.each, x ? UNROLL : SERIAL);
	row = pl_autotvm_sum(b, "ty", f->y.threads, "r", f->y.each);
	column = pl_autotvm_sum(b, "turn", f->x.turns, "tx", f->x.threads, "c", f->x.each);
	r = pl_autotvm_plus(b, f->row, inside(b, row, &f->y, f->rows));
	c = pl_autotvm_plus(b, f->column, inside(b, column, &f->x, f->columns));
	pl_autotvm_line(b, "%c%c[%s, %s] = %s", name, name, row, column,
			name == 'A' ? pl_autotvm_a(b, f->batch, r, c)
				    : pl_autotvm_b(b, f->batch, r, c));
	pl_autotvm_close(b, depth);
}

static void alloc_fill(struct autotvm_build *b, char name, const struct fill *f)
{
	pl_autotvm_alloc(b, "%c%c float32 %lld %lld shared", name, name, (long long)padded(&f->y),
			 (long long)padded(&f->x));
}

/* The indices of C in a block of dense_large_batch, in its virtual threads and threads. */
#define LARGE_ROW(b, x)	   pl_autotvm_sum(b, "bx", (x)[0], "vx", (x)[1], "tx", (x)[2], "xi", (x)[3])
#define LARGE_COLUMN(b, y) pl_autotvm_sum(b, "by", (y)[0], "vy", (y)[1], "ty", (y)[2], "yi", (y)[3])

static void large_threads(struct autotvm_build *b, const int64_t *x, const int64_t *y)
{
	pl_autotvm_loop(b, "ty", y[2], "thread.y");
	pl_autotvm_loop(b, "tx", x[2], "thread.x");
}
static void large_vthreads(struct autotvm_build *b, const int64_t *x, const int64_t *y)
{
	pl_autotvm_loop_if(b, "vy", y[1], "vthread");
	pl_autotvm_loop_if(b, "vx", x[1], "vthread");
}

/* CC of the thread and virtual thread. */
static const char *large_sum(struct autotvm_build *b, const int64_t *x, const int64_t *y)
{
	char *out = pl_autotvm_text(b);

	snprintf(out, sizeof(b->text[0]), "CC[ty, tx, %s, %s, %s, %s]", y[1] > 1 ? "vy" : "0",
		 x[1] > 1 ? "vx" : "0", x[3] > 1 ? "xi" : "0", y[3] > 1 ? "yi" : "0");
	return out;
}

/* The sums. The numbers are in shared memory; a thread first copies those that it reads often. */
static void put_large_sum(struct autotvm_build *b, const int64_t *x, const int64_t *y,
			  const int64_t *k)
{
	const char *q = k[2] > 1 ? "ki" : "0", *kk = pl_autotvm_sum(b, "kt", k[1], "ki", k[2]);
	const char *vx = x[1] > 1 ? "vx" : "0", *vy = y[1] > 1 ? "vy" : "0",
		   *xi = x[3] > 1 ? "xi" : "0", *yi = y[3] > 1 ? "yi" : "0";
	int inside;

	large_threads(b, x, y);
	pl_autotvm_loop(b, "kt", k[1], REDUCE_UNROLL);
	pl_autotvm_alloc(b, "AL float32 %lld %lld %lld", (long long)x[1], (long long)x[3],
			 (long long)k[2]);
	pl_autotvm_alloc(b, "BL float32 %lld %lld %lld", (long long)y[1], (long long)y[3],
			 (long long)k[2]);
	inside = b->at.depth;
	pl_autotvm_loop_if(b, "vx", x[1], "vthread");
	pl_autotvm_loop_if(b, "xi", x[3], SERIAL);
	pl_autotvm_loop_if(b, "ki", k[2], SERIAL);
	pl_autotvm_line(b, "AL[%s, %s, %s] = AA[%s, %s]", vx, xi, q,
			pl_autotvm_sum(b, "vx", x[1], "tx", x[2], "xi", x[3]), kk);
	pl_autotvm_close(b, inside);
	pl_autotvm_loop_if(b, "vy", y[1], "vthread");
	pl_autotvm_loop_if(b, "yi", y[3], SERIAL);
	pl_autotvm_loop_if(b, "ki", k[2], SERIAL);
	pl_autotvm_line(b, "BL[%s, %s, %s] = BB[%s, %s]", vy, yi, q,
			pl_autotvm_sum(b, "vy", y[1], "ty", y[2], "yi", y[3]), kk);
	pl_autotvm_close(b, inside);
	large_vthreads(b, x, y);
	pl_autotvm_loop_if(b, "ki", k[2], REDUCE);
	pl_autotvm_loop_if(b, "xi", x[3], SERIAL);
	pl_autotvm_loop_if(b, "yi", y[3], SERIAL);
	pl_autotvm_line(b, "%s += AL[%s, %s, %s] * BL[%s, %s, %s]", large_sum(b, x, y), vx, xi, q,
			vy, yi, q);
}

/* dense_large_batch: x is the rows of A, y those of B. */
enum autotvm_is pl_autotvm_dense_large_batch(struct autotvm_build *b)
{
	struct autotvm_product *o = b->of;
	int64_t x[4], y[4], k[3];
	struct fill a, w;
	enum autotvm_is is;

	if ((is = pl_autotvm_tiles(b->r, "tile_x", o->m, 4, x)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_y", o->n, 4, y)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_k", o->k, 3, k)))
		return is;
	a = (struct fill){ .rows = o->m / x[0], .columns = o->k / k[0] };
	w = (struct fill){ .rows = o->n / y[0], .columns = o->k / k[0] };
	a.y = load_parts(a.rows, x[2]);
	a.x = load_fours(a.columns, x[2]);
	w.y = load_parts(w.rows, y[2]);
	w.x = load_fours(w.columns, y[2]);
	pl_autotvm_parameters(b);
	pl_autotvm_loop(b, "by", y[0], "block.y");
	pl_autotvm_loop(b, "bx", x[0], "block.x");
	pl_autotvm_alloc(b, "CC float32 %lld %lld %lld %lld %lld %lld", (long long)y[2],
			 (long long)x[2], (long long)y[1], (long long)x[1], (long long)x[3],
			 (long long)y[3]);
	large_threads(b, x, y);
	large_vthreads(b, x, y);
	pl_autotvm_loop_if(b, "xi", x[3], SERIAL);
	pl_autotvm_loop_if(b, "yi", y[3], SERIAL);
	pl_autotvm_line(b, "%s = 0.0", large_sum(b, x, y));
	pl_autotvm_close(b, 3);
	pl_autotvm_loop(b, "ko", k[0], REDUCE);
	alloc_fill(b, 'A', &a);
	alloc_fill(b, 'B', &w);
	a.row = pl_autotvm_sum(b, "bx", x[0], "", a.rows);
	w.row = pl_autotvm_sum(b, "by", y[0], "", w.rows);
	a.column = w.column = pl_autotvm_sum(b, "ko", k[0], "", a.columns);
	put_fill(b, 'A', &a);
	w.column = pl_autotvm_sum(b, "ko", k[0], "", a.columns);
	put_fill(b, 'B', &w);
	put_large_sum(b, x, y, k);
	pl_autotvm_close(b, 3);
	large_threads(b, x, y);
	large_vthreads(b, x, y);
	pl_autotvm_loop_if(b, "yi", y[3], SERIAL);
	pl_autotvm_loop_if(b, "xi", x[3], SERIAL);
	pl_autotvm_line(b, "%s = %s", pl_autotvm_c(b, NULL, LARGE_ROW(b, x), LARGE_COLUMN(b, y)),
			large_sum(b, x, y));
	pl_autotvm_close(b, 0);
	return AUTOTVM_FINE;
}

/* The sums. The numbers are in shared memory. y and x: blocks, threads, numbers. */
static void put_tile_sum(struct autotvm_build *b, const int64_t *y, const int64_t *x, int64_t k,
			 int64_t most)
{
	int64_t steps = 1, rows = 1, columns = 1;
	bool ux = pl_autotvm_unrolled(x[2], most, &steps),
	     uy = pl_autotvm_unrolled(y[2], most, &steps),
	     ul = pl_autotvm_unrolled(y[2], most, &rows),
	     ur = pl_autotvm_unrolled(x[2], most, &columns), uk;
	int inside;

	steps = steps && rows && columns ? steps + rows + columns : 0;
	uk = pl_autotvm_unrolled(k, most, &steps);
	pl_autotvm_loop(b, "ty", y[1], "thread.y");
	pl_autotvm_loop(b, "tx", x[1], "thread.x");
	pl_autotvm_loop(b, "ki", k, uk ? REDUCE_UNROLL : REDUCE);
	pl_autotvm_alloc(b, "AL float32 %lld", (long long)y[2]);
	pl_autotvm_alloc(b, "BL float32 %lld", (long long)x[2]);
	inside = b->at.depth;
	pl_autotvm_loop(b, "yi", y[2], ul ? UNROLL : SERIAL);
	pl_autotvm_line(b, "AL[yi] = AA[%s, ki]", pl_autotvm_sum(b, "ty", y[1], "yi", y[2]));
	pl_autotvm_close(b, inside);
	pl_autotvm_loop(b, "xi", x[2], ur ? UNROLL : SERIAL);
	pl_autotvm_line(b, "BL[xi] = BB[%s, ki]", pl_autotvm_sum(b, "tx", x[1], "xi", x[2]));
	pl_autotvm_close(b, inside);
	pl_autotvm_loop(b, "yi", y[2], uy ? UNROLL : SERIAL);
	pl_autotvm_loop(b, "xi", x[2], ux ? UNROLL : SERIAL);
	pl_autotvm_line(b, "CC[ty, tx, yi, xi] += AL[yi] * BL[xi]");
}

/* All numbers of the thread's tile: "= 0.0", or into C. */
static void put_tile(struct autotvm_build *b, const int64_t *y, const int64_t *x, int64_t most,
		     const char *to)
{
	int depth = b->at.depth;
	int64_t steps = 1;
	bool ux = pl_autotvm_unrolled(x[2], most, &steps),
	     uy = pl_autotvm_unrolled(y[2], most, &steps);

	pl_autotvm_loop(b, "ty", y[1], "thread.y");
	pl_autotvm_loop(b, "tx", x[1], "thread.x");
	pl_autotvm_loop(b, "yi", y[2], uy ? UNROLL : SERIAL);
	pl_autotvm_loop(b, "xi", x[2], ux ? UNROLL : SERIAL);
	if (to)
		pl_autotvm_line(b, "%s = CC[ty, tx, yi, xi]", to);
	else
		pl_autotvm_line(b, "CC[ty, tx, yi, xi] = 0.0");
	pl_autotvm_close(b, depth);
}

enum autotvm_is pl_autotvm_batch_matmul_cuda(struct autotvm_build *b)
{
	struct autotvm_product *o = b->of;
	int64_t y[3], x[3], k[2], most = pl_autotvm_number(b->r, "auto_unroll_max_step", 16);
	struct fill a, w;
	enum autotvm_is is;

	if ((is = pl_autotvm_tiles(b->r, "tile_y", o->m, 3, y)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_x", o->n, 3, x)) ||
	    (is = pl_autotvm_tiles(b->r, "tile_k", o->k, 2, k)))
		return is;
	a = (struct fill){ .batch = "b", .rows = o->m / y[0], .columns = k[1], .most = most };
	w = (struct fill){ .batch = "b", .rows = o->n / x[0], .columns = k[1], .most = most };
	a.y = load_parts(a.rows, y[1]);
	w.y = load_parts(w.rows, y[1]);
	a.x = w.x = load_parts(k[1], x[1]);
	pl_autotvm_parameters(b);
	pl_autotvm_loop(b, "b", o->batch, "block.z");
	pl_autotvm_loop(b, "by", y[0], "block.y");
	pl_autotvm_loop(b, "bx", x[0], "block.x");
	pl_autotvm_alloc(b, "CC float32 %lld %lld %lld %lld", (long long)y[1], (long long)x[1],
			 (long long)y[2], (long long)x[2]);
	put_tile(b, y, x, most, NULL);
	pl_autotvm_loop(b, "ko", k[0], REDUCE);
	alloc_fill(b, 'A', &a);
	alloc_fill(b, 'B', &w);
	a.row = pl_autotvm_sum(b, "by", y[0], "", a.rows);
	a.column = pl_autotvm_sum(b, "ko", k[0], "", k[1]);
	put_fill(b, 'A', &a);
	w.row = pl_autotvm_sum(b, "bx", x[0], "", w.rows);
	w.column = pl_autotvm_sum(b, "ko", k[0], "", k[1]);
	put_fill(b, 'B', &w);
	put_tile_sum(b, y, x, k[1], most);
	pl_autotvm_close(b, 4);
	put_tile(b, y, x, most,
		 pl_autotvm_c(b, "b", pl_autotvm_sum(b, "by", y[0], "ty", y[1], "yi", y[2]),
			      pl_autotvm_sum(b, "bx", x[0], "tx", x[1], "xi", x[2])));
	pl_autotvm_close(b, 0);
	return AUTOTVM_FINE;
}
