/*
 * The model of operations: a sum of terms (enum pl_work_term), each in proportion to
 * a feature.
 *
 * Nodes with the same name, work and type of resource are a group. Where no operation has sizes,
 * the operations of hosts are groups of the same name, which grow with the samples but for a fixed
 * time. An operation whose inner operations are recorded has several parts, of which the short ones
 * only prepare. The typical duration is the median with the roots of the durations as weights: many
 * short parts have little weight, and single long durations do not have all. Parts of less than
 * PART of it do not compute. A group of short operations that would be WRAPS times as fast as the
 * products in which half of the time was spent only calls another operation, which has the same
 * work.
 *
 * The fixed time is the usual time of operations on next to nothing; of a device, that of its
 * shortest kernels. Operations that only move data then have one unknown, the time of a byte, and
 * each group says its own. The quarter of the bytes that moves fastest, in large groups, gives the
 * rate of memory; others are slower, because the system provides new memory for their results.
 *
 * Products have several unknowns that most recordings hardly separate: with the same number of
 * rows, the bytes of parameters and the operations grow alike. So the fit begins with what is known
 * beforehand: the fixed time, the usual rate, and for bytes the rate of memory, where a product on
 * a processor first copies its matrices into another order (it reads, writes and reads again:
 * COPIES; Goto, van de Geijn, ACM TOMS 34, 2008). Both are uncertain; what the groups show replaces
 * them as far as they show it. What caches keep may cost less, so small products say little about
 * the bytes of large ones. Caches keep a share of the bytes of a product: LARGE / (all + LARGE). A
 * byte that they keep costs less by an unknown, which is from 0 to what a byte takes.
 * A gradient of
 * parameters often goes to memory that the system has to provide first, which can take longer than
 * the product; the products that make other things show how long. This is a linear regression of
 * relative errors with a normal prior (Bishop, Pattern Recognition and Machine Learning, 3.3),
 * repeated with less weight for groups that fit badly (Huber, Ann. Math. Statist. 35, 1964). What
 * remains uncertain is the covariance.
 *
 * O(n log n) in nodes.
 */
#include <math.h>

#include "cost/internal.h"

#define STEPS	    9	 /* of a shape, whose median is the duration of a node */
#define PART	    0.25 /* shorter parts do not compute */
#define WRAPS	    4
#define SHORT	    8	      /* times the fixed time */
#define TINY	    16384     /* bytes of an operation on next to nothing */
#define ENOUGH_TINY 8	      /* groups of such operations that show the fixed time */
#define LARGE	    (1 << 18) /* bytes from which the rate of memory shows */
#define COPIES	    3
#define UNSURE	    0.6 /* standard error of a prior value, as a share of it */
/* On a host a library of layers first finds or makes the code for these sizes and brings parameters
 * into its own order: a multiple of the time of an operation on next to nothing. */
#define FIXED_LAYER  30
#define OPAQUE_ERROR 0.55  /* of an operation nobody knows: each share of it may be fixed */
#define LEAST_BYTE   0.01  /* of the prior value, for what caches save of it */
#define UNKNOWN	     100   /* standard error of a prior value that says nothing */
#define SCATTER	     0.04  /* least relative standard error of groups */
#define ENOUGH	     6	   /* groups that tell unknowns apart without that */
#define LITTLE	     0.002 /* of the time: groups that take less count less */
#define TURNS	     20
#define HUBER	     1.345
#define LEFT	     0.1 /* least share of a product that is left for its operations */

struct duration {
	uint32_t group;
	pl_ns ns;
	uint32_t shape, node;
};

PL_COMPARATOR(by_group, struct duration, group, ns, shape, node);

/* ---- groups ---------------------------------------------------------------------------------- */

static int group_of(struct pl_work_model *m, const struct pl_shape *s, uint32_t i, uint32_t *group,
		    struct pl_err *err)
{
	const struct pl_graph *g = m->g;
	bool sizes = m->batch.any;
	const uint32_t key[3] = { s->name[i], sizes ? s->work[i] : (uint32_t)g->n_work,
				  s->res[i] != PL_NONE &&
					  g->res[s->res[i]].track_type == PL_T_STREAM };

	PL_CHECK(pl_intern_add(&m->keys, (const char *)key, sizeof(key), group, err));
	if (*group < m->n_groups)
		return 0;
	PL_CHECK(pl_grow(&m->group, &m->cap_groups, m->n_groups + 1, sizeof(*m->group), err));
	m->group[m->n_groups++] = (struct pl_work_group){
		.name = s->name[i],
		.work = key[1],
		.op = (uint8_t)pl_node_operator(g, s, i),
		.device = key[2],
	};
	return 0;
}

/* The steps of a shape that are looked at. */
static size_t steps_of(const struct pl_graph *g, size_t shape, const struct pl_gstep **step)
{
	size_t n = 0;

	for (size_t k = 0; k < g->n_steps && n < STEPS; k++)
		if (g->step[k].shape == shape)
			step[n++] = &g->step[k];
	return n;
}

static int add_shape(struct pl_work_model *m, uint32_t shape, struct duration **v, size_t *n,
		     size_t *cap, struct pl_err *err)
{
	const struct pl_shape *s = &m->g->shape[shape];
	const struct pl_gstep *step[STEPS];
	size_t n_steps = steps_of(m->g, shape, step);
	pl_ns ns[STEPS];

	PL_CHECK(pl_alloc(&m->of_node[shape], (size_t)s->n_nodes + 1, sizeof(**m->of_node), err));
	memset(m->of_node[shape], 0xff, s->n_nodes * sizeof(**m->of_node));
	for (uint32_t i = s->n_entries; i < s->n_nodes && n_steps; i++) {
		uint32_t row = s->work ? s->work[i] : PL_NONE, group;

		if (m->batch.any ? row == PL_NONE || m->g->work[row].dims == PL_NONE
				 : s->kind[i] != PL_K_HOST_OP)
			continue;
		if (s->role[i] != PL_RO_COMPUTE && s->role[i] != PL_RO_COPY)
			continue;
		PL_CHECK(group_of(m, s, i, &group, err));
		for (size_t k = 0; k < n_steps; k++)
			ns[k] = step[k]->dur[i];
		PL_CHECK(pl_grow(v, cap, *n + 1, sizeof(**v), err));
		(*v)[(*n)++] = (struct duration){ group, pl_median_i64(ns, n_steps), shape, i };
	}
	return 0;
}

/* v: the n durations of a group, ascending. */
static void find_typical(struct pl_work_model *m, struct pl_work_group *x, const struct duration *v,
			 size_t n)
{
	double sum = 0, half = 0, part;
	size_t i = 0, first = 0;

	for (size_t k = 0; k < n; k++) {
		sum += sqrt((double)v[k].ns);
		x->share += (double)v[k].ns;
	}
	while (i + 1 < n && (half += sqrt((double)v[i].ns)) < sum / 2)
		i++;
	part = PART * (double)v[i].ns;
	while (first < n && (double)v[first].ns < part)
		first++;
	x->ns = (double)v[first + (n - first - 1) / 2].ns;
	for (size_t k = first; k < n; k++)
		m->of_node[v[k].shape][v[k].node] = v[k].group;
}

static int find_groups(struct pl_work_model *m, struct pl_err *err)
{
	const struct pl_graph *g = m->g;
	struct duration *v = NULL;
	size_t n = 0, cap = 0;
	double all = 0;
	int rc;

	PL_TRY(pl_alloc(&m->of_node, g->n_shapes + 1, sizeof(*m->of_node), err));
	for (uint32_t k = 0; k < g->n_shapes; k++)
		PL_TRY(add_shape(m, k, &v, &n, &cap, err));
	pl_sort(v, n, sizeof(*v), by_group);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i; k < n && v[k].group == v[i].group;)
			k++;
		find_typical(m, &m->group[v[i].group], v + i, k - i);
		all += m->group[v[i].group].share;
	}
	for (size_t i = 0; i < m->n_groups; i++)
		m->group[i].share /= fmax(all, 1);
out:
	pl_free(v);
	return rc;
}

/* ---- what only moves --------------------------------------------------------------------------
 */

static double bytes_of(const struct pl_work *w)
{
	return w->sample_bytes + w->other_bytes + w->gradient_bytes;
}

PL_COMPARATOR(by_rate, struct rate, x, group);

double pl_cost_at_share(struct rate *v, size_t n, double share)
{
	double sum = 0, part = 0;
	size_t i = 0;

	pl_sort(v, n, sizeof(*v), by_rate);
	for (size_t k = 0; k < n; k++)
		sum += v[k].weight;
	while (i + 1 < n && (part += v[i].weight) < share * sum)
		i++;
	return n ? v[i].x : 0;
}

static void find_rates(struct pl_work_model *m, bool device, struct rate *v)
{
	const unsigned plain = 1u << PL_OP_ELEMENTWISE | 1u << PL_OP_COPY | 1u << PL_OP_UPDATE;
	size_t n = 0;

	for (uint32_t i = 0; i < m->n_groups; i++) {
		const struct pl_work_group *x = &m->group[i];

		if (x->device == device && x->ns > 0 && !m->work[x->work].product &&
		    (device || bytes_of(&m->work[x->work]) <= TINY))
			v[n++] = (struct rate){ x->ns, 1, i };
	}
	m->fixed_ns[device] = n >= ENOUGH_TINY ? pl_cost_at_share(v, n,
								  device	 ? 0.05
								  : m->batch.any ? 0.5
										 : 0.25)
					       : 0;
	n = 0;
	for (uint32_t i = 0; i < m->n_groups; i++) {
		const struct pl_work_group *x = &m->group[i];
		double bytes = bytes_of(&m->work[x->work]);

		if (x->device == device && plain >> x->op & 1 && bytes >= LARGE &&
		    x->ns > (device ? 1 : SHORT) * m->fixed_ns[device]) /* else it may be a view */
			v[n++] = (struct rate){ (x->ns - m->fixed_ns[device]) / bytes,
						x->share * bytes / x->ns, i };
	}
	m->ns_per_byte[device] = pl_cost_at_share(v, n, 0.25);
}

/* ---- products ---------------------------------------------------------------------------------
 */

#define N PL_WORK_TERMS

struct sample { /* a group */
	double x[N], ns;
	double share, weight; /* weight: less than share where it fits badly */
	double model;	      /* the time by the last turn, to which errors are relative */
};

static double square(double x)
{
	return x * x;
}

/* Solve a z = y and set `inverse` to that of `a`, for the unknowns of `use`; the others are 0. */
static void solve(const double a[N][N], const double y[N], unsigned use, double z[N],
		  double inverse[N][N])
{
	double m[N][2 * N] = { { 0 } };

	for (int i = 0; i < N; i++) {
		for (int k = 0; k < N; k++)
			m[i][k] = (use >> i & use >> k & 1) ? a[i][k] : i == k;
		m[i][N + i] = 1;
	}
	for (int i = 0; i < N;
	     i++) { /* `a` is positive definite in the unknowns of `use`: no pivots */
		double d = m[i][i];

		for (int k = 0; k < 2 * N; k++)
			m[i][k] /= d;
		for (int j = 0; j < N; j++) {
			double f = j == i ? 0 : m[j][i];

			for (int k = 0; k < 2 * N; k++)
				m[j][k] -= f * m[i][k];
		}
	}
	for (int i = 0; i < N; i++) {
		z[i] = 0;
		for (int k = 0; k < N; k++) {
			inverse[i][k] = (use >> i & use >> k & 1) ? m[i][N + k] : 0;
			z[i] += use >> i & 1 ? inverse[i][k] * y[k] : 0;
		}
	}
}

/* Makes unknown `to` of both: as if they were one. own: what is known of the other one alone. */
static void join(double a[N][N], double y[N], int to, int other, double own)
{
	a[other][other] -= own;
	y[to] += y[other];
	for (int i = 0; i < N; i++)
		a[to][i] += a[other][i];
	for (int i = 0; i < N; i++)
		a[i][to] += a[i][other];
}

/* One turn, from the unknowns of the last one in z: the best ones of `use` for these weights, none
 * below 0. Caches save no more of a byte than it takes. */
static void regress(const struct sample *v, size_t n, const double prior[N], unsigned use,
		    double sigma, double z[N], double cov[N][N])
{
	const int byte = PL_WORK_BYTE, cached = PL_WORK_CACHED_BYTE;
	double a[N][N] = { { 0 } }, y[N], own = 0;
	bool joined = false;

	for (int i = 0; i < N; i++) { /* of a greater value the share is greater */
		double share = i == PL_WORK_GRADIENT_BYTE ? UNKNOWN : UNSURE;
		double usual = i == cached ? fmax(z[byte], LEAST_BYTE * prior[byte])
					   : fmax(prior[i], z[i]);
		double precision =
			usual > 0 && (prior[i] > 0 || i == cached) ? 1 / square(share * usual) : 0;

		a[i][i] = precision;
		y[i] = precision * prior[i];
		own = i == cached ? precision : own;
	}
	for (size_t k = 0; k < n; k++) {
		double precision = v[k].weight / square(sigma * v[k].model);

		for (int i = 0; i < N; i++) {
			for (int j = 0; j < N; j++)
				a[i][j] += precision * v[k].x[i] * v[k].x[j];
			y[i] += precision * v[k].x[i] * v[k].ns;
		}
	}
	for (int i = 0; i < N; i++) /* nothing says how long it takes, and no group has any of it */
		use &= a[i][i] > 0 ? use : ~(1u << i);
	for (int turn = 0; turn <= N; turn++) {
		double least = 0;
		int worst = -1;

		solve(a, y, use, z, cov);
		if (use >> cached & 1 && z[cached] > fmax(z[byte], 0)) {
			join(a, y, byte, cached, own);
			use &= ~(1u << cached);
			joined = true;
			continue;
		}
		for (int i = 0; i < N; i++)
			if (z[i] < 0 && z[i] / fmax(prior[i], z[i] * -1e-9) < least) {
				least = z[i] / fmax(prior[i], z[i] * -1e-9);
				worst = i;
			}
		if (worst < 0)
			break;
		use &= ~(1u << worst);
	}
	if (!joined)
		return;
	z[cached] = z[byte];
	memcpy(cov[cached], cov[byte], sizeof(cov[byte]));
	for (int i = 0; i < N; i++)
		cov[i][cached] = cov[i][byte];
}

/* Mark the groups that only call others. `v` has room for all groups. */
static void find_wrappers(struct pl_work_model *m, bool device, uint8_t op, struct rate *v)
{
	double usual, fixed = m->fixed_ns[device];
	size_t n = 0;

	for (uint32_t i = 0; i < m->n_groups; i++) {
		const struct pl_work_group *x = &m->group[i];

		if (x->device == device && x->op == op && m->work[x->work].product)
			v[n++] = (struct rate){ fmax(x->ns, 1) / m->work[x->work].flops, x->share,
						i };
	}
	usual = pl_cost_at_share(v, n, 0.5);
	for (size_t k = 0; k < n; k++) {
		struct pl_work_group *x = &m->group[v[k].group];

		/* who says what the operation is also knows that it does the work */
		x->wraps = v[k].x * WRAPS < usual && (!(fixed > 0) || x->ns < SHORT * fixed) &&
			   m->g->work[x->work].name == PL_NONE;
	}
}

static double time_of(const double ns[N], const double x[N])
{
	double sum = 0;

	for (int i = 0; i < N; i++)
		sum += ns[i] * x[i];
	return sum;
}

/* The fixed time of an operation, in those on next to nothing. */
static double calls(unsigned op, bool device)
{
	const unsigned layers =
		1u << PL_OP_UNKNOWN | 1u << PL_OP_CONVOLUTION | 1u << PL_OP_ATTENTION;

	return device ? 1 : layers >> op & 1 ? FIXED_LAYER : 1;
}

/* The groups of products of one operator, into v; returns how many. */
static size_t list_products(const struct pl_work_model *m, bool device, uint8_t op,
			    struct sample *v)
{
	size_t n = 0;

	for (size_t i = 0; i < m->n_groups; i++) {
		const struct pl_work_group *x = &m->group[i];
		const struct pl_work *w = &m->work[x->work];

		if (x->device != device || x->op != op || !w->product || x->wraps || !(x->ns > 0))
			continue;
		pl_work_features(w, 1, v[n].x);
		v[n].ns = x->ns;
		v[n].share = v[n].weight = fmin(1, x->share / LITTLE);
		n++;
	}
	return n;
}

/* The usual time of an operation of floating point beside what is known of the other terms. */
static double usual_flop(const struct sample *v, size_t n, const double prior[N], struct rate *rate)
{
	for (uint32_t k = 0; k < n; k++) {
		double rest = v[k].ns - time_of(prior, v[k].x);

		rate[k] = (struct rate){ fmax(rest, LEFT * v[k].ns) / v[k].x[PL_WORK_FLOP],
					 v[k].share * v[k].ns, k };
	}
	return pl_cost_at_share(rate, n, 0.5);
}

static int fit_products(struct pl_work_model *m, bool device, uint8_t op, struct rate *r,
			struct pl_err *err)
{
	struct pl_work_fit *f = &m->fit[device][op];
	double rate = m->ns_per_byte[device], sigma = SCATTER, *e;
	double prior[N] = { [PL_WORK_FIXED] = m->fixed_ns[device] * calls(op, device),
			    [PL_WORK_BYTE] = (device ? 1 : COPIES) * rate,
			    [PL_WORK_GRADIENT_BYTE] = rate };
	unsigned use = (1u << N) - 1;
	struct sample *v;
	int rc;

	PL_TRY(pl_alloc(&v, m->n_groups + 1, sizeof(*v), err));
	rc = pl_alloc(&e, m->n_groups + 1, sizeof(*e), err);
	f->samples = rc < 0 ? 0 : list_products(m, device, op, v);
	prior[PL_WORK_FLOP] = usual_flop(v, f->samples, prior, r);
	memcpy(f->ns, prior, sizeof(prior));
	for (size_t k = 0; k < f->samples; k++)
		v[k].model = time_of(prior, v[k].x);
	for (int i = 0; i < PL_WORK_FLOP; i++) /* few groups alone cannot tell the unknowns apart */
		use &= prior[i] > 0 || f->samples >= ENOUGH ? ~0u : ~(1u << i);
	for (int turn = 0; turn < TURNS && f->samples; turn++) {
		regress(v, f->samples, prior, use, sigma, f->ns, f->cov);
		for (size_t k = 0; k < f->samples; k++) {
			v[k].model = fmax(time_of(f->ns, v[k].x), 1);
			e[k] = fabs(v[k].ns / v[k].model - 1);
		}
		sigma = fmax(SCATTER, 1.4826 * pl_median_double(e, f->samples));
		for (size_t k = 0; k < f->samples; k++)
			v[k].weight =
				v[k].share *
				fmin(1, HUBER * sigma / fmax(fabs(v[k].ns / v[k].model - 1), 1e-9));
	}
	pl_free(e);
out:
	pl_free(v);
	return rc;
}

/* ---- the whole --------------------------------------------------------------------------------
 */

int pl_work_fit(const struct pl_graph *g, struct pl_work_model *m, struct pl_err *err)
{
	struct rate *v = NULL;
	int rc;

	*m = (struct pl_work_model){ .g = g };
	PL_TRY(pl_work_batch_find(g, &m->batch, err));
	PL_TRY(pl_alloc(&m->work, g->n_work + 1, sizeof(*m->work), err));
	for (size_t i = 0; i < g->n_work; i++)
		pl_work_describe(g, &m->batch, (uint32_t)i, &m->work[i]);
	m->work[g->n_work] = (struct pl_work){ .of_samples = true };
	PL_TRY(find_groups(m, err));
	PL_TRY(pl_alloc(&v, m->n_groups + 1, sizeof(*v), err));
	for (int device = 0; device < 2; device++) {
		find_rates(m, device, v);
		for (uint8_t op = 0; op < PL_OP_COUNT_; op++) {
			find_wrappers(m, device, op, v);
			if (op != PL_OP_UNKNOWN) /* whose products are a guess */
				PL_TRY(fit_products(m, device, op, v, err));
		}
	}
out:
	pl_free(v);
	if (rc < 0)
		pl_work_fini(m);
	return rc;
}

void pl_work_fini(struct pl_work_model *m)
{
	pl_work_batch_fini(&m->batch);
	for (size_t k = 0; m->of_node && k < m->g->n_shapes; k++)
		pl_free(m->of_node[k]);
	pl_free(m->of_node);
	pl_free(m->work);
	pl_intern_fini(&m->keys);
	pl_free(m->group);
	*m = (struct pl_work_model){ 0 };
}

void pl_work_features(const struct pl_work *w, double by, double *x)
{
	double bytes = w->other_bytes + by * w->sample_bytes, all = bytes + w->gradient_bytes;

	x[PL_WORK_FIXED] = 1;
	x[PL_WORK_BYTE] = bytes;
	x[PL_WORK_GRADIENT_BYTE] = w->gradient_bytes;
	x[PL_WORK_CACHED_BYTE] = -bytes * LARGE / (all + LARGE);
	x[PL_WORK_FLOP] = w->of_samples ? by * w->flops : w->flops;
}

double pl_work_time(const struct pl_work_fit *f, const double *x)
{
	return time_of(f->ns, x);
}

/* The time with the changed features by that before, and its standard error: the fit is linear, so
 * the gradient of the quotient follows from the features. */
static double quotient(const struct pl_work_fit *f, const double *now, const double *then,
		       double *error)
{
	double d[N], squares = 0, before = time_of(f->ns, now);
	double factor = time_of(f->ns, then) / before;

	for (int i = 0; i < N; i++)
		d[i] = (then[i] - factor * now[i]) / before;
	for (int i = 0; i < N; i++)
		for (int k = 0; k < N; k++)
			squares += d[i] * f->cov[i][k] * d[k];
	*error = sqrt(fmax(squares, 0));
	return factor;
}

/* The recording does not say how much of the time for new memory the job has without the profiler,
 * which allocates too. So the factor is the middle of that with all of this time and that with
 * none. */
static double factor_of_product(const struct pl_work_fit *f, const struct pl_work *w, double by,
				double *error)
{
	struct pl_work_fit none = *f;
	double now[N], then[N], with, without, ignored;

	pl_work_features(w, 1, now);
	pl_work_features(w, by, then);
	none.ns[PL_WORK_GRADIENT_BYTE] = fmin(f->ns[PL_WORK_GRADIENT_BYTE], f->ns[PL_WORK_BYTE]);
	if (!(time_of(none.ns, now) > 0)) {
		*error = PL_WORK_RULE_ERROR * fabs(1 - by);
		return by;
	}
	with = quotient(f, now, then, error);
	without = quotient(&none, now, then, &ignored);
	*error = hypot(*error, (with - without) / 2);
	return (with + without) / 2;
}

double pl_work_factor(const struct pl_work_model *m, uint32_t group, double by, double *error)
{
	const struct pl_work_group *x = &m->group[group];
	const struct pl_work *w = &m->work[x->work];
	bool guessed = x->op == PL_OP_UNKNOWN; /* the product, see batch.c */
	const struct pl_work_fit *f = &m->fit[x->device][guessed ? PL_OP_MATMUL : x->op];
	double fixed = fmin(m->fixed_ns[x->device], x->ns), bytes = bytes_of(w), factor;

	*error = 0;
	if (x->wraps || !(x->ns > 0) || (!w->of_samples && (!w->unsure || w->product)))
		return 1;
	if (!w->of_samples) { /* it follows the samples, or it does not */
		*error = fabs(1 - by) / 2;
		return (1 + by) / 2;
	}
	if (w->product && f->samples) {
		factor = factor_of_product(f, w, by, error);
		if (guessed)
			*error = fmax(*error, PL_WORK_RULE_ERROR * fabs(1 - factor));
		return factor;
	}
	/* what an operation does that nobody knows grows with its samples, or with all its bytes;
	 * it may be a layer of a library */
	if (w->product || x->op == PL_OP_UNKNOWN || !(bytes > 0)) {
		*error =
			(x->op == PL_OP_UNKNOWN ? OPAQUE_ERROR : PL_WORK_RULE_ERROR) * fabs(1 - by);
		if (!x->device)
			fixed = fmin(fixed * calls(x->op, false), x->ns / 2);
		return (fixed + (x->ns - fixed) * by) / x->ns;
	}
	factor = 1 + (by - 1) * w->sample_bytes / bytes;
	return (fixed + (x->ns - fixed) * factor) / x->ns;
}
