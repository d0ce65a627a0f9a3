/*
 * What the leaves of a tensor program compute: the computation vector of CDMPP (EuroSys 2024),
 * which is that of Ansor (OSDI 2020), for each store.
 *
 * Counts are slog(x) = sign(x) log2(|x| + 1). The 164 entries, in their order:
 *
 *	57  floats: mad, add, mul, div, comparisons, functions, other; integers: the same;
 *conditions; selections: operations times iterations. For vectorised, unrolled and parallel loops
 *	    each: number, product of their extents, extent of the innermost, and where they are (one
 *	    of 8). Is it for a GPU; extents of block x y z, thread x y z, vthread
 *	90  5 buffers, those with most lines of a cache first, 18 each: read, written or both;
 *bytes, different bytes, lines, different lines; how it is used again (by a loop, by a later store,
 *not); iterations and bytes between, number of uses; bytes and lines by uses; stride 10  operations
 *for a byte, at ten depths of the nest 4   the buffer of the store: bytes; times the loops around
 *its allocation; these; the loops inside. CDMPP has them at a node that is no leaf, where they were
 *always 0 3   iterations, loops, steps of automatic unrolling (0)
 *
 * An index is taken as linear in each loop: what it changes from the first iteration to the last.
 * O(leaves x loops x buffers).
 */
#include <math.h>

#include "tprog/leaf.h"

#define CURVE (PL_TPROG_X_ALLOCATION - PL_TPROG_X_CURVE)

enum place { NOWHERE, INNER, MIDDLE, OUTER, REDUCE_ = 3, MIXED = 7, PLACES = 8 };

/* ---- indices --------------------------------------------------------------------------------- */

/* The value of an index where one loop has a value and all others are 0. */
static double index_at(const struct pl_tprog *p, uint32_t expr, uint32_t loop, double value)
{
	const struct pl_tprog_expr *e = &p->expr[expr];
	const uint32_t *arg = &p->arg[e->arg];
	double a, b;

	switch (e->op) {
	case PL_TPROG_NUMBER:
		return e->number;
	case PL_TPROG_LOOP:
		return e->ref == loop ? value : 0;
	case PL_TPROG_SELECT:
		return index_at(p, arg[1], loop, value);
	default:
		break;
	}
	if (e->n_args < 2)
		return 0;
	a = index_at(p, arg[0], loop, value);
	b = index_at(p, arg[1], loop, value);
	return pl_tprog_of_whole(e->op, pl_tprog_whole(a), pl_tprog_whole(b));
}

static void set_steps(const struct pl_tprog_nest *f, struct pl_tprog_access *a, uint32_t arg)
{
	int dims = f->p->buffer[a->buffer].n_dims;

	for (int l = 0; l < f->n; l++)
		for (int d = 0; d < dims; d++) {
			uint32_t index = f->p->arg[arg + (uint32_t)d];
			double last = f->extent[l] - 1;

			a->step[l][d] = last > 0 ? (index_at(f->p, index, f->loop[l], last) -
						    index_at(f->p, index, f->loop[l], 0)) /
							   last
						 : 0;
		}
}

/* How many values an index takes in the loops from `from` on. */
static double range(const struct pl_tprog_nest *f, const struct pl_tprog_access *a, int d, int from)
{
	double n = 1;

	for (int l = from; l < f->n; l++)
		n += fabs(a->step[l][d]) * (f->extent[l] - 1);
	return fmin(n, (double)f->p->buffer[a->buffer].dim[d]);
}

static double touched(const struct pl_tprog_nest *f, const struct pl_tprog_access *a, int from)
{
	double n = sizeof(float);

	for (int d = 0; d < f->p->buffer[a->buffer].n_dims; d++)
		n *= range(f, a, d, from);
	return n;
}

/* The same of all buffers, for each loop; the ranges of indices grow from loop to loop. */
static void find_touched(struct pl_tprog_nest *f)
{
	memset(f->touched, 0, sizeof(f->touched));
	for (size_t i = 0; i < f->n_accesses; i++) {
		const struct pl_tprog_access *a = &f->access[i];
		const struct pl_tprog_buffer *b = &f->p->buffer[a->buffer];
		double range[PL_TPROG_DIMS] = { 1, 1, 1, 1, 1, 1, 1, 1 };

		for (int from = f->n; from >= 0; from--) {
			double n = sizeof(float);

			for (int d = 0; d < b->n_dims; d++) {
				if (from < f->n)
					range[d] += fabs(a->step[from][d]) * (f->extent[from] - 1);
				n *= fmin(range[d], (double)b->dim[d]);
			}
			f->touched[from] += n;
		}
	}
}

/* By how many numbers the place in memory changes with the loop. */
double pl_tprog_moves(const struct pl_tprog_nest *f, const struct pl_tprog_access *a, int loop)
{
	const struct pl_tprog_buffer *b = &f->p->buffer[a->buffer];
	double by = 1, sum = 0;

	for (int d = b->n_dims; d-- > 0;) {
		sum += by * a->step[loop][d];
		by *= (double)b->dim[d];
	}
	return fabs(sum);
}

/* ---- operations ------------------------------------------------------------------------------ */

static struct pl_tprog_access *access_of(struct pl_tprog_nest *f, uint32_t buffer, uint32_t arg)
{
	struct pl_tprog_access a = { .buffer = buffer };

	for (size_t i = 0; i < f->n_accesses; i++)
		if (f->access[i].buffer == buffer)
			return &f->access[i];
	set_steps(f, &a, arg);
	if (pl_append(&f->access, &f->n_accesses, &f->cap_accesses, &a, sizeof(a), f->err) < 0)
		return NULL;
	return &f->access[f->n_accesses - 1];
}

static enum pl_tprog_count count_of(unsigned op)
{
	switch (op) {
	case PL_TPROG_ADD:
	case PL_TPROG_SUB:
		return PL_TPROG_N_ADD;
	case PL_TPROG_MUL:
		return PL_TPROG_N_MUL;
	case PL_TPROG_DIV:
	case PL_TPROG_MOD:
		return PL_TPROG_N_DIV;
	case PL_TPROG_LESS:
	case PL_TPROG_EQUAL:
	case PL_TPROG_MAX:
	case PL_TPROG_MIN:
		return PL_TPROG_N_COMPARE;
	case PL_TPROG_EXP:
	case PL_TPROG_LOG:
	case PL_TPROG_SQRT:
	case PL_TPROG_TANH:
	case PL_TPROG_ERF:
		return PL_TPROG_N_FUNCTION;
	default:
		return PL_TPROG_N_OTHER;
	}
}

static bool is_product(const struct pl_tprog *p, uint32_t expr)
{
	return p->expr[expr].op == PL_TPROG_MUL && !p->expr[expr].integer;
}

/* `added`: the value is added to something, so that a product in it is part of a mad. */
static void count(struct pl_tprog_nest *f, uint32_t expr, bool added)
{
	const struct pl_tprog_expr *e = &f->p->expr[expr];
	double *to = e->integer ? f->integers : f->floats;
	bool sum = !e->integer && (e->op == PL_TPROG_ADD || e->op == PL_TPROG_SUB), mad = false;

	if (e->op == PL_TPROG_LOAD) {
		struct pl_tprog_access *a = access_of(f, e->ref, e->arg);

		if (a)
			a->reads = true;
	} else if (e->op == PL_TPROG_SELECT) {
		f->selections++;
	} else if (e->op == PL_TPROG_AND) {
		f->conditions++;
	} else if (e->op == PL_TPROG_MUL && !e->integer && added) {
		to[PL_TPROG_N_MAD]++;
	} else if (sum && (is_product(f->p, f->p->arg[e->arg]) ||
			   is_product(f->p, f->p->arg[e->arg + 1]))) {
		mad = true; /* counted with its product */
	} else if (e->n_args) {
		to[count_of(e->op)]++;
	}
	for (uint32_t i = 0; i < e->n_args; i++) {
		count(f, f->p->arg[e->arg + i], mad);
		mad = mad && !is_product(f->p, f->p->arg[e->arg + i]); /* one product only */
	}
}

static void look_at_store(struct pl_tprog_nest *f)
{
	const struct pl_tprog_node *x = &f->p->node[f->node];
	struct pl_tprog_access *a = access_of(f, x->buffer, x->arg);

	if (!a)
		return;
	a->writes = true;
	a->reads = x->update != PL_TPROG_SET;
	for (int d = 0; d < f->p->buffer[x->buffer].n_dims; d++)
		count(f, f->p->arg[x->arg + (uint32_t)d], false);
	if (x->update == PL_TPROG_PLUS && !is_product(f->p, x->value))
		f->floats[PL_TPROG_N_ADD]++;
	if (x->update == PL_TPROG_MOST)
		f->floats[PL_TPROG_N_COMPARE]++;
	count(f, x->value, x->update == PL_TPROG_PLUS);
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* A loop that does not change the place uses the same numbers again. */
static bool find_loop_reuse(const struct pl_tprog_nest *f, struct pl_tprog_access *a)
{
	for (int l = f->n; l-- > 0;) {
		if (pl_tprog_moves(f, a, l) > 0 || f->extent[l] < 2)
			continue;
		a->reuse = 0;
		a->away_iterations = f->inner[l + 1];
		a->away_bytes = f->touched[l + 1];
		a->uses = f->extent[l];
		return true;
	}
	return false;
}

/* Calls each() for each buffer that an expression reads. */
static void each_read(const struct pl_tprog *p, uint32_t expr,
		      void (*each)(struct pl_tprog_users *u, uint32_t buffer, uint32_t store),
		      struct pl_tprog_users *u, uint32_t store)
{
	const struct pl_tprog_expr *e = &p->expr[expr];

	if (e->op == PL_TPROG_LOAD)
		each(u, e->ref, store);
	for (uint32_t i = 0; i < e->n_args; i++)
		each_read(p, p->arg[e->arg + i], each, u, store);
}

static void count_user(struct pl_tprog_users *u, uint32_t buffer, uint32_t store)
{
	(void)store;
	u->first[buffer + 1]++;
}

static void put_user(struct pl_tprog_users *u, uint32_t buffer, uint32_t store)
{
	u->store[u->first[buffer]++] = store;
}

static int find_users(const struct pl_tprog *p, struct pl_tprog_users *u, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&u->first, p->n_buffers + 2, sizeof(*u->first), err));
	PL_CHECK(pl_alloc(&u->store, p->n_exprs + p->n_nodes + 1, sizeof(*u->store), err));
	for (int round = 0; round < 2; round++) {
		for (uint32_t i = 0; i < p->n_nodes; i++) {
			const struct pl_tprog_node *x = &p->node[i];

			if (x->kind != PL_TPROG_STORE)
				continue;
			(round ? put_user : count_user)(u, x->buffer, i);
			each_read(p, x->value, round ? put_user : count_user, u, i);
		}
		for (size_t b = 0; b < p->n_buffers && !round; b++)
			u->first[b + 1] += u->first[b];
	}
	/* put_user() has moved each to its end, where the next one begins */
	memmove(u->first + 1, u->first, p->n_buffers * sizeof(*u->first));
	u->first[0] = 0;
	return 0;
}

/* Loops that the store and this one have in common. */
static int common_loops(const struct pl_tprog_nest *f, uint32_t store)
{
	int n = 0;

	while (n < f->n && f->loop[n] < store && store < f->p->node[f->loop[n]].end)
		n++;
	return n;
}

/* Another store that works on the buffer: how many loops it has in common with this one, which are
 * most for the nearest ones before and behind it; -1: there is none. */
static int shared_loops(const struct pl_tprog_nest *f, uint32_t buffer)
{
	const uint32_t *v = f->users.store;
	uint32_t low = f->users.first[buffer], end = f->users.first[buffer + 1], high = end;
	int most = -1;

	while (low < high) {
		uint32_t middle = low + (high - low) / 2;

		if (v[middle] < f->node)
			low = middle + 1;
		else
			high = middle;
	}
	if (low > f->users.first[buffer])
		most = common_loops(f, v[low - 1]);
	while (low < end && v[low] == f->node)
		low++;
	return low < end ? (int)pl_max_i64(most, common_loops(f, v[low])) : most;
}

static void describe_access(const struct pl_tprog_nest *f, struct pl_tprog_access *a)
{
	const struct pl_tprog_buffer *b = &f->p->buffer[a->buffer];
	double same = 1, last;
	int l = f->n, common;

	while (l-- > 0 && !(pl_tprog_moves(f, a, l) > 0))
		same *= f->extent[l];
	a->stride = l >= 0 ? pl_tprog_moves(f, a, l) : 0;
	a->bytes = f->inner[0] * sizeof(float);
	a->unique = touched(f, a, 0);
	a->lines = fmax(1, f->inner[0] / same * fmin(1, a->stride * sizeof(float) / PL_TPROG_LINE));
	last = range(f, a, b->n_dims - 1, 0) * sizeof(float);
	a->unique_lines = fmax(1, a->unique / last * ceil(last / PL_TPROG_LINE));
	a->reuse = 2;
	a->uses = 0;
	if (find_loop_reuse(f, a))
		return;
	common = shared_loops(f, a->buffer);
	if (common < 0)
		return;
	a->reuse = 1;
	a->away_iterations = f->inner[common];
	a->away_bytes = f->touched[common];
	a->uses = 1;
}

static int by_lines(const void *pa, const void *pb)
{
	const struct pl_tprog_access *a = pa, *b = pb;
	int c = PL_COMPARE(b->lines, a->lines);

	c = c ? c : PL_COMPARE(b->bytes, a->bytes);
	return c ? c : PL_COMPARE(a->buffer, b->buffer);
}

static void put_access(const struct pl_tprog_access *a, float *x)
{
	double uses = a->uses > 0 ? a->uses : 1;
	const double v[PL_TPROG_A_ENTRIES] = { a->reads && !a->writes,
					       a->writes && !a->reads,
					       a->reads && a->writes,
					       pl_tprog_slog(a->bytes),
					       pl_tprog_slog(a->unique),
					       pl_tprog_slog(a->lines),
					       pl_tprog_slog(a->unique_lines),
					       a->reuse == 0,
					       a->reuse == 1,
					       a->reuse == 2,
					       pl_tprog_slog(a->away_iterations),
					       pl_tprog_slog(a->away_bytes),
					       pl_tprog_slog(a->uses),
					       pl_tprog_slog(a->bytes / uses),
					       pl_tprog_slog(a->unique / uses),
					       pl_tprog_slog(a->lines / uses),
					       pl_tprog_slog(a->unique_lines / uses),
					       pl_tprog_slog(a->stride) };

	for (int i = 0; i < PL_TPROG_A_ENTRIES; i++)
		x[i] = (float)v[i];
}

/* ---- loops ----------------------------------------------------------------------------------- */

/* Where a loop is among those of its kind: summed up, or not. */
static int place_of(const struct pl_tprog_nest *f, int l)
{
	bool reduce = f->p->node[f->loop[l]].reduce, before = false, behind = false;

	for (int k = 0; k < f->n; k++)
		if (k != l && f->p->node[f->loop[k]].reduce == reduce) {
			before |= k < l;
			behind |= k > l;
		}
	return (!behind ? INNER : before ? MIDDLE : OUTER) + (reduce ? REDUCE_ : 0);
}

static float *put_bound(const struct pl_tprog_nest *f, unsigned bind, float *x)
{
	double n = 0, product = 1, innermost = 0;
	int place = NOWHERE;

	for (int l = 0; l < f->n; l++) {
		int here = place_of(f, l);

		if (f->p->node[f->loop[l]].bind != bind)
			continue;
		n++;
		product *= f->extent[l];
		innermost = f->extent[l];
		place = place == NOWHERE || place == here ? here : MIXED;
	}
	*x++ = (float)pl_tprog_slog(n);
	*x++ = (float)pl_tprog_slog(n > 0 ? product : 0);
	*x++ = (float)pl_tprog_slog(innermost);
	for (int i = 0; i < PLACES; i++)
		*x++ = (float)(place == i);
	return x;
}

static double extent_of(const struct pl_tprog_nest *f, unsigned bind)
{
	double n = 1;

	for (int l = 0; l < f->n; l++)
		if (f->p->node[f->loop[l]].bind == bind)
			n *= f->extent[l];
	return n;
}

static double operations(const struct pl_tprog_nest *f)
{
	double sum = f->floats[PL_TPROG_N_MAD];

	for (int i = 0; i < PL_TPROG_N_COUNTS; i++)
		sum += f->floats[i];
	return sum;
}

/* Operations and bytes of the inner loops grow with their number; the curve is taken at equal steps
 * of the logarithm of operations. */
static void put_curve(const struct pl_tprog_nest *f, float *x)
{
	double ops[PL_TPROG_LOOPS + 1] = { 0 }, bytes[PL_TPROG_LOOPS + 1] = { 0 };

	for (int i = 0; i <= f->n; i++) {
		int from = f->n - i;

		ops[i] = log2(fmax(1, operations(f) * f->inner[from]));
		bytes[i] = log2(fmax(1, f->touched[from]));
	}
	for (int k = 0, i = 0; k < CURVE; k++) {
		double at = ops[f->n] * (k + 1) / CURVE, share;

		while (i < f->n && ops[i] < at)
			i++;
		if (!i || ops[i] <= ops[i - 1])
			share = 1;
		else
			share = fmin(1, (at - ops[i - 1]) / (ops[i] - ops[i - 1]));
		x[k] = (float)(at -
			       (i ? bytes[i - 1] + share * (bytes[i] - bytes[i - 1]) : bytes[0]));
	}
}

static void put_allocation(const struct pl_tprog_nest *f, float *x)
{
	const struct pl_tprog_buffer *b = &f->p->buffer[f->p->node[f->node].buffer];
	double outer = 1, bytes = (double)b->n * sizeof(float);

	for (int l = 0; l < f->n; l++)
		if (b->node != PL_NONE && f->loop[l] < b->node)
			outer *= f->extent[l];
	x[0] = (float)pl_tprog_slog(bytes);
	x[1] = (float)pl_tprog_slog(bytes * outer);
	x[2] = (float)pl_tprog_slog(outer);
	x[3] = (float)pl_tprog_slog(f->inner[0] / outer);
}

static void put_features(struct pl_tprog_nest *f, float *out)
{
	static const uint8_t bound[] = { PL_TPROG_VECTORIZE, PL_TPROG_UNROLL, PL_TPROG_PARALLEL };
	float *x = out + PL_TPROG_X_BOUND;
	bool gpu = false;

	for (int i = 0; i < PL_TPROG_N_COUNTS; i++) {
		out[PL_TPROG_X_FLOATS + i] = (float)pl_tprog_slog(f->floats[i] * f->inner[0]);
		out[PL_TPROG_X_INTEGERS + i] = (float)pl_tprog_slog(f->integers[i] * f->inner[0]);
	}
	out[PL_TPROG_X_CONDITIONS] = (float)pl_tprog_slog(f->conditions * f->inner[0]);
	out[PL_TPROG_X_SELECTIONS] = (float)pl_tprog_slog(f->selections * f->inner[0]);
	for (size_t i = 0; i < PL_LEN(bound); i++)
		x = put_bound(f, bound[i], x);
	for (int l = 0; l < f->n; l++)
		gpu |= f->p->node[f->loop[l]].bind >= PL_TPROG_BLOCK_X;
	x = out + PL_TPROG_X_GPU;
	*x++ = gpu;
	for (unsigned b = PL_TPROG_BLOCK_X; b <= PL_TPROG_VTHREAD; b++)
		*x++ = (float)pl_tprog_slog(gpu ? extent_of(f, b) : 0);
	pl_sort(f->access, f->n_accesses, sizeof(*f->access), by_lines);
	for (size_t i = 0; i < PL_TPROG_TOP && i < f->n_accesses; i++)
		put_access(&f->access[i], out + PL_TPROG_X_ACCESS + i * PL_TPROG_A_ENTRIES);
	put_curve(f, out + PL_TPROG_X_CURVE);
	put_allocation(f, out + PL_TPROG_X_ALLOCATION);
	out[PL_TPROG_X_ITERATIONS] = (float)pl_tprog_slog(f->inner[0]);
	out[PL_TPROG_X_ITERATIONS + 1] = (float)pl_tprog_slog(f->n);
	pl_tprog_put_own(f, out + PL_TPROG_CDMPP);
}

static void begin_leaf(struct pl_tprog_nest *f, uint32_t node)
{
	f->node = node;
	f->n = 0;
	f->n_accesses = 0;
	memset(f->floats, 0, sizeof(f->floats));
	memset(f->integers, 0, sizeof(f->integers));
	f->conditions = f->selections = 0;
	for (uint32_t k = f->p->node[node].parent; k != PL_NONE; k = f->p->node[k].parent)
		f->n += f->p->node[k].kind == PL_TPROG_FOR;
	for (uint32_t k = f->p->node[node].parent, l = (uint32_t)f->n; k != PL_NONE;
	     k = f->p->node[k].parent)
		if (f->p->node[k].kind == PL_TPROG_FOR) {
			f->loop[--l] = k;
			f->extent[l] = (double)f->p->node[k].extent;
		}
	f->inner[f->n] = 1;
	for (int l = f->n; l-- > 0;)
		f->inner[l] = f->inner[l + 1] * f->extent[l];
	look_at_store(f);
}

/* ---- all ------------------------------------------------------------------------------------- */

int pl_tprog_leaves(const struct pl_tprog *p, struct pl_tprog_leaf **out, size_t *n,
		    struct pl_err *err)
{
	struct pl_tprog_nest f = { .p = p, .err = err };
	struct pl_tprog_leaf *v = NULL;
	uint32_t place = 0;
	size_t leaves = 0;
	int rc;

	for (uint32_t i = 0; i < p->n_nodes; i++)
		leaves += p->node[i].kind == PL_TPROG_STORE;
	*n = 0;
	PL_TRY(pl_alloc(&v, leaves + 1, sizeof(*v), err));
	PL_TRY(find_users(p, &f.users, err));
	for (uint32_t i = 0; i < p->n_nodes; i++, place++) {
		const struct pl_tprog_node *x = &p->node[i];

		if (x->kind == PL_TPROG_STORE) {
			begin_leaf(&f, i);
			PL_TRY(err->code);
			find_touched(&f);
			for (size_t k = 0; k < f.n_accesses; k++)
				describe_access(&f, &f.access[k]);
			v[*n].node = i;
			v[*n].place = place;
			put_features(&f, v[(*n)++].x);
		}
		for (uint32_t k = i; k != PL_NONE && p->node[k].end == i + 1; k = p->node[k].parent)
			place++; /* the marks at the ends */
	}
	*out = v;
	v = NULL;
out:
	pl_free(v);
	pl_free(f.access);
	pl_free(f.users.first);
	pl_free(f.users.store);
	return rc < 0 ? rc : 0;
}

double pl_tprog_flops(const struct pl_tprog *p)
{
	struct pl_err err = { 0 };
	struct pl_tprog_nest f = { .p = p, .err = &err };
	double sum = 0;

	for (uint32_t i = 0; i < p->n_nodes && !err.code; i++)
		if (p->node[i].kind == PL_TPROG_STORE) {
			begin_leaf(&f, i);
			sum += operations(&f) * f.inner[0];
		}
	pl_free(f.access);
	return sum;
}
