/*
 * What a processor sees of a leaf, behind the vector of CDMPP: PL_TPROG_OWN entries.
 *
 *	15  the three innermost loops, the innermost first: extent; summed up, vectorised, unrolled;
 *	    the loop that is vectorised: extent, rest, places of its vectors by numbers in them
 *	15  by how many numbers the place changes with each of these loops: of the store, and of the
 *	    four buffers that are read with most lines
 *	16  for an iteration: reads and writes of memory, where a number that no inner loop changes
 *	    stays in a register; lines that must come into a cache of 2^15, 2^18, 2^20, 2^22 and
 *	    2^25 bytes; pages that must come into tables of 64 and 2048 pages; instructions that
 *	    move numbers, that compute, and that end loops, where vectors and threads share them;
 *	    writes to lines that another thread writes, too; vectors that may lie in two lines;
 *	    cycles of sums that wait for one another; cycles, by all of these
 *	 5  iterations of a chain of sums that wait for one another; sums that do not, from one
 *	    to the next update of a place; iterations of the parallel loop, rounded up to the
 *	    threads; how often it begins
 *
 * Lines into a cache: of the loops whose data fit into it together, the outermost one; what the
 * loop around it uses again comes from the cache, too. A cache has 8 places for lines whose
 * addresses are equal modulo an eighth of its size, so data that lie far apart by such steps fill
 *it sooner.
 */
#include "tprog/leaf.h"

#define INNERMOST     3
#define OTHERS	      4
#define VECTOR	      8
#define THREADS	      2
#define ASSOCIATIVITY 8
#define PAGE	      4096

/* Caches, and tables of pages. */
static const struct cache {
	double bytes, line;
	bool hashed; /* addresses far apart do not meet */
} caches[] = {
	{ 0x1p15, PL_TPROG_LINE, false }, { 0x1p18, PL_TPROG_LINE, false },
	{ 0x1p20, PL_TPROG_LINE, false }, { 0x1p22, PL_TPROG_LINE, true },
	{ 0x1p25, PL_TPROG_LINE, true },  { 64 * PAGE, PAGE, true },
	{ 2048 * PAGE, PAGE, true },
};

static const struct pl_tprog_node *loop_at(const struct pl_tprog_nest *f, int l)
{
	return &f->p->node[f->loop[l]];
}

/* Values of an index, and from the first to the last of them, in the loops from `from` on. */
static double values(const struct pl_tprog_nest *f, const struct pl_tprog_access *a, int d,
		     int from, double *span)
{
	double n = 1;

	*span = 1;
	for (int l = from; l < f->n; l++) {
		double step = fabs(a->step[l][d]);

		*span += step * (f->extent[l] - 1);
		if (step > 0)
			n *= f->extent[l];
	}
	*span = fmin(*span, (double)f->p->buffer[a->buffer].dim[d]);
	return fmin(n, *span);
}

/* Lines that the loops from `from` on use. */
static double lines(const struct pl_tprog_nest *f, const struct pl_tprog_access *a, int from,
		    double line)
{
	const struct pl_tprog_buffer *b = &f->p->buffer[a->buffer];
	double n, span, v, row;
	int d = b->n_dims - 1;

	v = values(f, a, d, from, &span);
	row = span * sizeof(float);
	/* whole rows stand behind one another */
	while (d > 0 && span >= (double)b->dim[d]) {
		v = values(f, a, --d, from, &span);
		row *= v;
	}
	n = fmax(1, row / line);
	if (d == b->n_dims - 1)
		n = fmin(n + (row > sizeof(float)) * 0.5, v);
	while (d-- > 0)
		n *= values(f, a, d, from, &span);
	return n;
}

/* How many of the places in a cache that repeats after `period` bytes the lines can have. */
static double places(const struct pl_tprog_nest *f, const struct pl_tprog_access *a, int from,
		     double period)
{
	double n = 1, all = period / PL_TPROG_LINE;

	for (int l = from; l < f->n && n < all; l++) {
		double step = pl_tprog_moves(f, a, l) * sizeof(float), twos = 1;

		if (!(step > 0) || f->extent[l] < 2)
			continue;
		while (twos < period && fmod(step, 2 * twos) == 0)
			twos *= 2;
		n *= fmin(f->extent[l] * fmin(1, step / PL_TPROG_LINE) + 1,
			  period / fmax(twos, PL_TPROG_LINE));
	}
	return fmin(n, all);
}

/* Bytes of a cache that the data of the loops from `from` on take. */
static double taken(const struct pl_tprog_nest *f, int from, const struct cache *c)
{
	double sum = 0, period = c->bytes / ASSOCIATIVITY;

	for (size_t i = 0; i < f->n_accesses; i++) {
		double n = lines(f, &f->access[i], from, c->line);

		if (!c->hashed)
			n = fmax(n, n / places(f, &f->access[i], from, period) * period / c->line);
		sum += n * c->line;
	}
	return sum;
}

static double traffic(const struct pl_tprog_nest *f, const struct cache *c)
{
	double sum = 0;
	int from = f->n;

	while (from > 0 && taken(f, from - 1, c) <= c->bytes)
		from--;
	from -= from > 0;
	for (size_t i = 0; i < f->n_accesses; i++)
		sum += lines(f, &f->access[i], from, c->line);
	return sum * f->inner[0] / f->inner[from];
}

static float *put_loops(const struct pl_tprog_nest *f, float *x)
{
	double vector = 0;

	for (int k = 0; k < INNERMOST; k++) {
		const struct pl_tprog_node *loop = k < f->n ? loop_at(f, f->n - 1 - k) : NULL;

		*x++ = (float)(loop ? log2((double)loop->extent) : 0);
		*x++ = (float)(loop && loop->reduce);
		*x++ = (float)(loop && loop->bind == PL_TPROG_VECTORIZE);
		*x++ = (float)(loop && loop->bind == PL_TPROG_UNROLL);
	}
	for (int l = 0; l < f->n; l++)
		if (loop_at(f, l)->bind == PL_TPROG_VECTORIZE)
			vector = f->extent[l];
	*x++ = (float)vector;
	*x++ = (float)fmod(vector, VECTOR);
	*x++ = (float)(vector > 0 ? ceil(vector / VECTOR) * VECTOR / vector : 0);
	return x;
}

static float *put_moves(const struct pl_tprog_nest *f, const struct pl_tprog_access *a, float *x)
{
	for (int k = 0; k < INNERMOST; k++)
		*x++ = (float)(a && k < f->n ? pl_tprog_slog(pl_tprog_moves(f, a, f->n - 1 - k))
					     : -1);
	return x;
}

static float *put_all_moves(const struct pl_tprog_nest *f, float *x)
{
	uint32_t stored = f->p->node[f->node].buffer;
	int n = 0;

	for (size_t i = 0; i < f->n_accesses; i++)
		if (f->access[i].buffer == stored)
			x = put_moves(f, &f->access[i], x);
	for (size_t i = 0; i < f->n_accesses && n < OTHERS; i++)
		if (f->access[i].buffer != stored) {
			x = put_moves(f, &f->access[i], x);
			n++;
		}
	for (; n < OTHERS; n++)
		x = put_moves(f, NULL, x);
	return x;
}

/* The loop that is vectorised; -1: none. */
static int vector_loop(const struct pl_tprog_nest *f)
{
	int v = -1;

	for (int l = 0; l < f->n; l++)
		if (loop_at(f, l)->bind == PL_TPROG_VECTORIZE)
			v = l;
	return v;
}

/* A compiler makes whole vectors, of the rest one of half the size, and single numbers. */
static double vectors(double n)
{
	return floor(n / VECTOR) + floor(fmod(n, VECTOR) / (VECTOR / 2)) + fmod(n, VECTOR / 2);
}

/* By this the vectors of a loop make its iterations fewer. */
static double in_vectors(const struct pl_tprog_nest *f, int v)
{
	return v < 0 ? 1 : vectors(f->extent[v]) / f->extent[v];
}

/* Is what a vector of the loop reads or writes neighbours, or one number? Where an index is
 * clamped, as around an image, a step is no whole number, and each number is moved by itself. */
static bool is_row(const struct pl_tprog_nest *f, const struct pl_tprog_access *a, int vector)
{
	double moves = pl_tprog_moves(f, a, vector);

	return moves == 0 || moves == 1;
}

/* Vectors whose places differ by less than a vector from one to another iteration of some loop. */
static double across(const struct pl_tprog_nest *f, int vector)
{
	double sum = 0;

	for (size_t i = 0; i < f->n_accesses && vector >= 0; i++) {
		const struct pl_tprog_access *a = &f->access[i];
		bool unaligned = false;

		if (pl_tprog_moves(f, a, vector) != 1)
			continue;
		for (int l = 0; l < f->n; l++)
			unaligned |= l != vector && fmod(pl_tprog_moves(f, a, l), VECTOR) != 0;
		if (unaligned)
			sum += f->inner[0] * in_vectors(f, vector);
	}
	return sum;
}

/* The loops from here on do not change the place: its number stays in a register over them. */
static int moved_at(const struct pl_tprog_nest *f, const struct pl_tprog_access *a)
{
	int l = f->n;

	while (l > 0 && !(pl_tprog_moves(f, a, l - 1) > 0))
		l--;
	return l;
}

/* Reads or writes, where numbers stay in registers over the innermost loops. `vector`: one for a
 * vector whose numbers are neighbours, or all the same. */
static double memory(const struct pl_tprog_nest *f, bool reads, bool writes, int vector)
{
	double sum = 0;

	for (size_t i = 0; i < f->n_accesses; i++) {
		const struct pl_tprog_access *a = &f->access[i];
		int l = moved_at(f, a);

		if (!(reads && a->reads) && !(writes && a->writes))
			continue;
		sum += f->inner[0] / f->inner[l] *
		       (1 + (reads && writes && a->reads && a->writes)) *
		       (vector >= 0 && vector < l && is_row(f, a, vector) ? in_vectors(f, vector)
									  : 1);
	}
	return sum;
}

/* Operations; of those on indices, the ones that are more than the next place in memory. */
static double computing(const struct pl_tprog_nest *f)
{
	double sum = f->conditions + f->selections + f->integers[PL_TPROG_N_COMPARE];

	for (int i = 0; i < PL_TPROG_N_COUNTS; i++)
		sum += f->floats[i] * (i == PL_TPROG_N_FUNCTION ? 10 : 1);
	return sum * f->inner[0];
}

/* How often a loop goes back to its begin. */
static double turns(const struct pl_tprog_nest *f, int vector)
{
	double sum = 0;

	for (int l = 0; l < f->n; l++)
		if (loop_at(f, l)->bind != PL_TPROG_UNROLL)
			sum += f->inner[0] / f->inner[l + 1] *
			       (l == vector ? in_vectors(f, vector) : 1);
	return sum;
}

/* Updates of other places between two of the same one, in vectors; *kept: in a register. */
static double independent(const struct pl_tprog_nest *f, int vector, bool *kept)
{
	uint32_t stored = f->p->node[f->node].buffer;
	double n = 1;

	*kept = false;
	for (size_t i = 0; i < f->n_accesses; i++) {
		const struct pl_tprog_access *a = &f->access[i];
		int l = f->n;

		if (a->buffer != stored || !a->reads)
			continue;
		while (l > 0 && pl_tprog_moves(f, a, l - 1) > 0) {
			l--;
			n *= l == vector ? vectors(f->extent[l]) : f->extent[l];
		}
		*kept = l == f->n;
		return l ? n : INFINITY; /* each place is updated once */
	}
	return INFINITY;
}

/* Writes to lines in which another thread writes. A thread has neighbouring iterations of the
 * parallel loop `p`, each as many. */
static double contended(const struct pl_tprog_nest *f, int p)
{
	double sum = 0;

	for (size_t i = 0; i < f->n_accesses && p >= 0; i++) {
		const struct pl_tprog_access *a = &f->access[i];
		double away =
			pl_tprog_moves(f, a, p) * sizeof(float) * ceil(f->extent[p] / THREADS);
		int l = moved_at(f, a);

		if (!a->writes || !(away > 0))
			continue;
		if (away < PL_TPROG_LINE)
			sum += f->inner[0] / f->inner[l];
		else if (fmod(away, PL_TPROG_LINE) > 0)
			sum += f->inner[0] / f->inner[l] * PL_TPROG_LINE / away;
	}
	return sum;
}

/* What an iteration needs of a thread. */
struct needs {
	double moves, computes, turns; /* instructions */
	double waits;		       /* cycles of sums that wait for one another */
	double contended;	       /* writes */
	double across;		       /* vectors that may lie in two lines */
};

/*
 * Cycles of one thread: four instructions at a time, of which two move numbers and two compute, or
 * what sums wait; and what moves of lines and pages are not hidden behind that. The numbers are
 * those of no certain processor. They need not be right, since trees learn what the entries change,
 * but together they say which part counts.
 */
static double cycles(const struct needs *n, const double *into)
{
	static const double each[PL_LEN(caches)] = { 1, 1, 2, 3, 8, 2, 8 };
	double sum =
		fmax(fmax(n->moves, n->computes) / 2, (n->moves + n->computes + 2 * n->turns) / 4);

	sum = fmax(sum, n->waits) + n->contended * 20 + n->across / 4;
	for (size_t i = 0; i < PL_LEN(caches); i++)
		sum += into[i] / caches[i].line * each[i];
	return sum;
}

void pl_tprog_put_own(const struct pl_tprog_nest *f, float *x)
{
	double chain = 1, each = 1, threads = 0, begins = 0, n = f->inner[0];
	double into[PL_LEN(caches)], between;
	struct needs need;
	int v = vector_loop(f), l = f->n, parallel = -1;
	bool kept;

	x = put_loops(f, x);
	x = put_all_moves(f, x);
	*x++ = pl_tprog_rate(memory(f, true, false, -1), n);
	*x++ = pl_tprog_rate(memory(f, false, true, -1), n);
	for (size_t i = 0; i < PL_LEN(caches); i++) {
		into[i] = traffic(f, &caches[i]);
		*x++ = pl_tprog_rate(into[i], n);
	}
	while (l-- > 0 && loop_at(f, l)->reduce && loop_at(f, l)->bind != PL_TPROG_VECTORIZE)
		chain *= f->extent[l];
	for (l = 0; l < f->n; l++)
		if (loop_at(f, l)->bind == PL_TPROG_PARALLEL) {
			parallel = l;
			threads = f->extent[l];
			begins = f->inner[0] / f->inner[l];
			each = ceil(threads / THREADS) / threads;
		}
	between = independent(f, v, &kept);
	need = (struct needs){ .moves = memory(f, true, true, v) * each,
			       .computes = computing(f) * in_vectors(f, v) * each,
			       .turns = turns(f, v) * each,
			       .waits = n * in_vectors(f, v) * each * (kept ? 4 : 10) / between,
			       .contended = contended(f, parallel) * each,
			       .across = across(f, v) * each };
	for (size_t i = 0; i < PL_LEN(caches); i++)
		into[i] *= each;
	*x++ = pl_tprog_rate(need.moves, n);
	*x++ = pl_tprog_rate(need.computes, n);
	*x++ = pl_tprog_rate(need.turns, n);
	*x++ = pl_tprog_rate(need.contended, n);
	*x++ = pl_tprog_rate(need.across, n);
	*x++ = pl_tprog_rate(need.waits, n);
	*x++ = pl_tprog_rate(cycles(&need, into), n);
	*x++ = (float)pl_tprog_slog(chain);
	*x++ = (float)(isfinite(between) ? pl_tprog_slog(between) : -1);
	*x++ = (float)pl_tprog_slog(threads);
	*x++ = (float)(each * THREADS);
	*x++ = (float)pl_tprog_slog(begins);
}
