/*
 * Products of matrices: op(A) op(B) is cut into blocks of C whose part of B is packed into panels
 * as wide as a tile, small enough for the second-level cache; tiles then run over the rows of A.
 *
 * A is read in place, by rows or, transposed, by columns (columns are copied first if several
 * panels use them). Either operand can be packed, because C^T = op(B)^T op(A)^T. Packing costs a
 * pass over the operand, and more where it is transposed, so the cheaper choice is used. With small
 * batches the packed operand is the batch, and the large matrix of weights is read once, without a
 * copy. The sum of each element of C runs over k in order in either case, in blocks of KC, so that
 * neither threads nor the choice change a bit.
 *
 * For bfloat16, operands are rounded when they are packed; A is copied for this. The products use
 * the kernels of float32, because sums must be in float32, and the AVX-512 instruction for bfloat16
 * was measured to take twice as long as that for floats.
 */
#include "tensor/internal.h"

#define KC 512 /* of B in a block: its panels stay in the second-level cache */
#define MC 48  /* rows of A for each pass over a panel: they stay in that cache, too */

_Static_assert(MC *KC <= PL_TILES, "the room of a thread holds a block of A");

typedef float v4 __attribute__((vector_size(16)));
typedef float v4u __attribute__((vector_size(16), aligned(4), may_alias));

/* 4 x 4 elements; rows of `from` are columns of `to`. */
static inline void transpose(const float *from, ptrdiff_t ld, float *to, ptrdiff_t ld_to)
{
	v4 a = *(const v4u *)from, b = *(const v4u *)(from + ld);
	v4 c = *(const v4u *)(from + 2 * ld), d = *(const v4u *)(from + 3 * ld);
	v4 ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
	v4 ab2 = __builtin_shufflevector(a, b, 2, 6, 3, 7);
	v4 cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
	v4 cd2 = __builtin_shufflevector(c, d, 2, 6, 3, 7);

	*(v4u *)to = __builtin_shufflevector(ab, cd, 0, 1, 4, 5);
	*(v4u *)(to + ld_to) = __builtin_shufflevector(ab, cd, 2, 3, 6, 7);
	*(v4u *)(to + 2 * ld_to) = __builtin_shufflevector(ab2, cd2, 0, 1, 4, 5);
	*(v4u *)(to + 3 * ld_to) = __builtin_shufflevector(ab2, cd2, 2, 3, 6, 7);
}

/* Packs the edges outside whole blocks: to[l nr + j] = from[j ld + l] for l, j in the ranges. */
static void pack_rest(const float *from, ptrdiff_t ld, int l0, int k, int j0, int n, int nr,
		      float *to)
{
	for (int j = j0; j < n; j++)
		for (int l = l0; l < k; l++)
			to[(ptrdiff_t)l * nr + j] = from[j * ld + l];
}

void pl_tensor_pack_transposed(const float *from, ptrdiff_t ld, int k, int n, int nr, float *to)
{
	int k4 = k & ~3, n4 = n & ~3;

	for (int j = 0; j < n4; j += 4) {
		const float *s = from + j * ld;
		float *d = to + j;

		for (int l = 0; l < k4; l += 4, s += 4, d += 4 * (ptrdiff_t)nr)
			transpose(s, ld, d, nr);
	}
	pack_rest(from, ld, k4, k, 0, n4, nr, to);
	pack_rest(from, ld, 0, k, n4, n, nr, to);
	for (int l = 0; n < nr && l < k; l++)
		memset(to + (ptrdiff_t)l * nr + n, 0, (size_t)(nr - n) * sizeof(*to));
}

static void pack_plain(const float *from, ptrdiff_t ld, int k, int n, int nr, float *to)
{
	for (int l = 0; l < k; l++, from += ld, to += nr) {
		if (n == nr) {
			for (int j = 0; j < nr; j += 4)
				*(v4u *)(to + j) = *(const v4u *)(from + j);
			continue;
		}
		memcpy(to, from, (size_t)n * sizeof(*to));
		memset(to + n, 0, (size_t)(nr - n) * sizeof(*to));
	}
}

/* One product: rows of A are broadcast, B is packed. */
struct job {
	const struct pl_kernels *k;
	const float *a, *b;
	ptrdiff_t lda, ldb;
	bool ta, tb;  /* use A by columns; transpose B */
	bool half;    /* of both rounded to bfloat16 */
	float *tiles; /* room for MC rows of A */
	float *c;
	ptrdiff_t row, col; /* of C: from one row, one column, to the next */
	float beta;
};

/* Copy a tile that is not whole, or is transposed in C, to C; or (fetch) from C to the tile. */
static void exchange(const struct job *j, float *tile, int m, int n, float *c, bool fetch)
{
	int nr = j->k->nr, m4 = m & ~3, n4 = n & ~3;

	if (j->col == 1) {
		for (int i = 0; i < m; i++)
			memcpy(fetch ? tile + i * nr : c + i * j->row,
			       fetch ? c + i * j->row : tile + i * nr, (size_t)n * sizeof(*c));
		return;
	}
	/* rows of C are next to one another */
	for (int i = 0; i < m4; i += 4)
		for (int l = 0; l < n4; l += 4)
			if (fetch)
				transpose(c + l * j->col + i, j->col, tile + i * nr + l, nr);
			else
				transpose(tile + i * nr + l, nr, c + l * j->col + i, j->col);
	for (int i = 0; i < m; i++)
		for (int l = i < m4 ? n4 : 0; l < n; l++)
			if (fetch)
				tile[i * nr + l] = c[l * j->col + i];
			else
				c[l * j->col + i] = tile[i * nr + l];
}

/* Pack columns jc .. jc + n of B, rows lc .. lc + k, into a panel. */
static void pack_panel(const struct job *j, int jc, int n, int lc, int k, float *to)
{
	int nr = j->k->nr;

	if (j->tb)
		pl_tensor_pack_transposed(j->b + jc * j->ldb + lc, j->ldb, k, n, nr, to);
	else
		pack_plain(j->b + lc * j->ldb + jc, j->ldb, k, n, nr, to);
	if (j->half)
		j->k->round((size_t)k * (size_t)nr, to, to);
}

/* A by columns: pack m rows from i0 into tiles (k, mr), with zeros after the last row, because its
 * columns are far apart and each panel would read a tile again. A by rows: copy to round. */
static void pack_rows(const struct job *j, int i0, int m, int l0, int k)
{
	int mr = j->k->mr;

	for (int i = 0; !j->ta && i < m; i++)
		j->k->round((size_t)k, j->a + (i0 + i) * j->lda + l0, j->tiles + (ptrdiff_t)i * k);
	for (int i = 0; j->ta && i < m; i += mr) {
		const float *from = j->a + l0 * j->lda + i0 + i;
		float *to = j->tiles + (ptrdiff_t)i * k;
		int n = m - i < mr ? m - i : mr;

		for (int l = 0; l < k; l++, from += j->lda, to += mr)
			if (n == PL_MR_MAX) {
				*(v4u *)to = *(const v4u *)from;
				*(v4u *)(to + 4) = *(const v4u *)(from + 4);
			} else {
				for (int r = 0; r < mr; r++)
					to[r] = r < n ? from[r] : 0;
			}
		if (j->half)
			j->k->round((size_t)k * (size_t)mr, j->tiles + (ptrdiff_t)i * k,
				    j->tiles + (ptrdiff_t)i * k);
	}
}

/* C (m, n), up to a tile, = or += rows i0 .. of A (packed or NULL), l0 .. l0 + k, times a panel. */
static void tile(const struct job *j, const float *packed, int i0, int m, int n, int l0, int k,
		 const float *panel, float *c, bool add)
{
	_Alignas(64) float own[PL_MR_MAX * PL_NR_MAX];
	const struct pl_kernels *kn = j->k;
	bool whole = m == kn->mr && n == kn->nr && j->col == 1;
	float *to = whole ? c : own;
	ptrdiff_t ld = whole ? j->row : kn->nr;

	if (!whole && add) {
		if (m < kn->mr || n < kn->nr)
			memset(own, 0, sizeof(own));
		exchange(j, own, m, n, c, true);
	}
	if (!j->ta) {
		const float *row[PL_MR_MAX];

		for (int i = 0; i < kn->mr; i++)
			row[i] = packed ? packed + (ptrdiff_t)(i < m ? i : 0) * k
					: j->a + (i < m ? i0 + i : i0) * j->lda + l0;
		kn->rows(row, k, 1, 0, panel, to, ld, add);
	} else if (packed) {
		kn->cols(packed, kn->mr, k, panel, to, ld, add);
	} else {
		kn->cols(j->a + l0 * j->lda + i0, j->lda, k, panel, to, ld, add);
	}
	if (!whole)
		exchange(j, own, m, n, c, false);
}

/* C (m, n) += A (m, l0 .. l0 + k) panels (k, n) */
static void block(const struct job *j, int m, int n, int l0, int k, const float *panels, float *c,
		  bool add)
{
	int mr = j->k->mr, nr = j->k->nr;

	for (int ic = 0; ic < m; ic += MC) {
		int ie = ic + MC < m ? ic + MC : m;
		/* beyond the last row there may be no memory */
		bool packed = j->half || (j->ta && (n > 2 * nr || (ie - ic) % mr));

		if (packed)
			pack_rows(j, ic, ie - ic, l0, k);
		for (int jr = 0; jr < n; jr += nr)
			for (int ir = ic; ir < ie; ir += mr)
				tile(j, packed ? j->tiles + (ptrdiff_t)(ir - ic) * k : NULL, ir,
				     ie - ir < mr ? ie - ir : mr, n - jr < nr ? n - jr : nr, l0, k,
				     panels + (ptrdiff_t)jr * k, c + ir * j->row + jr * j->col,
				     add);
	}
}

static void product(const struct job *j, int m, int n, int k, float *pack)
{
	int nr = j->k->nr, parts = (k + KC - 1) / KC, kc = (k + parts - 1) / parts;
	int nc = (int)(PL_PACK / (size_t)kc) / nr * nr;

	for (int jc = 0; jc < n; jc += nc) {
		int ne = n - jc < nc ? n - jc : nc;

		for (int lc = 0; lc < k; lc += kc) {
			int ke = k - lc < kc ? k - lc : kc;

			for (int jr = 0; jr < ne; jr += nr) {
				int w = ne - jr < nr ? ne - jr : nr;
				pack_panel(j, jc + jr, w, lc, ke, pack + (ptrdiff_t)jr * ke);
			}
			block(j, m, ne, lc, ke, pack, j->c + jc * j->col, j->beta != 0 || lc);
		}
	}
}

static void scale_c(const struct pl_gemm *g)
{
	for (int i = 0; i < g->m; i++)
		for (int l = 0; l < g->n; l++)
			g->c[(ptrdiff_t)i * g->ldc + l] *= g->beta;
}

/* Is it cheaper to pack A than B? Costs are in steps of one element. */
static bool swapped(const struct pl_gemm *g)
{
	double parts = (g->k + KC - 1) / KC;
	double keep = (double)g->n * g->k * (g->tb ? 4 : 1);
	double swap = (double)g->m * g->k * (g->ta ? 1 : 4) + (double)g->m * g->n * 6 * parts;

	return swap < keep;
}

void pl_tensor_gemm_one(const struct pl_kernels *k, struct pl_slot *slot, const struct pl_gemm *g)
{
	struct job j = {
		.k = k, .c = g->c, .beta = g->beta, .half = g->half, .tiles = slot->pack + PL_PACK
	};
	bool swap;

	if (g->m <= 0 || g->n <= 0)
		return;
	if (g->beta != 0 && g->beta != 1)
		scale_c(g);
	if (g->k <= 0) {
		for (int i = 0; g->beta == 0 && i < g->m; i++)
			memset(g->c + (ptrdiff_t)i * g->ldc, 0, (size_t)g->n * sizeof(*g->c));
		return;
	}
	swap = swapped(g); /* compute the transposed product */
	j.a = swap ? g->b : g->a;
	j.lda = swap ? g->ldb : g->lda;
	j.ta = swap ? !g->tb : g->ta;
	j.b = swap ? g->a : g->b;
	j.ldb = swap ? g->lda : g->ldb;
	j.tb = swap ? !g->ta : g->tb;
	j.row = swap ? 1 : g->ldc;
	j.col = swap ? g->ldc : 1;
	product(&j, swap ? g->n : g->m, swap ? g->m : g->n, g->k, slot->pack);
}

/* ---- by all threads -------------------------------------------------------------------------- */

struct split {
	const struct pl_kernels *k;
	const struct pl_gemm *g;
	int rows, columns; /* parts of C */
};

static void part(void *arg, int i, struct pl_slot *slot)
{
	struct split *s = arg;
	struct pl_gemm g = *s->g;
	int r = i / s->columns, c = i % s->columns;
	/* whole tiles for each part */
	int rows = ((g.m + s->rows - 1) / s->rows + PL_MR_MAX - 1) / PL_MR_MAX * PL_MR_MAX;
	int cols = ((g.n + s->columns - 1) / s->columns + PL_NR_MAX - 1) / PL_NR_MAX * PL_NR_MAX;
	int i0 = r * rows, j0 = c * cols;

	g.m = g.m - i0 < rows ? g.m - i0 : rows;
	g.n = g.n - j0 < cols ? g.n - j0 : cols;
	if (g.m <= 0 || g.n <= 0)
		return;
	g.a += g.ta ? (ptrdiff_t)i0 : (ptrdiff_t)i0 * g.lda;
	g.b += g.tb ? (ptrdiff_t)j0 * g.ldb : (ptrdiff_t)j0;
	g.c += (ptrdiff_t)i0 * g.ldc + j0;
	pl_tensor_gemm_one(s->k, slot, &g);
}

void pl_tensor_gemm_all(struct pl_cpu *cpu, const struct pl_gemm *g)
{
	struct split s = { .k = cpu->k, .g = g, .rows = 1, .columns = 1 };
	double work = (double)g->m * g->n * g->k;

	if (cpu->blas && !g->half && pl_tensor_blas_gemm(cpu, g))
		return;
	if (cpu->threads > 1 && g->n >= g->m)
		s.columns = cpu->threads;
	else if (cpu->threads > 1)
		s.rows = cpu->threads;
	pl_tensor_cpu_each(cpu, s.rows * s.columns, work, part, &s);
}
