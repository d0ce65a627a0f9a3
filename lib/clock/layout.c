/*
 * How likely is a division of streams into groups?
 *
 * The model: the members of a group end together, a transfer after the last of them has begun,
 *     end = last start + transfer + jitter,
 * and groups of one division need about the same time for the same operation. So an occurrence of a
 * division gives as many residuals as it has streams, for each division: the ends against the
 * median end of their group, and the transfers against that of the median group. Both have a Cauchy
 * distribution in the model (outliers cost little), with the scale that fits the division best. A
 * transfer may also be an exception of unknown magnitude (log-uniform over 14 e-folds). A division
 * that is too fine counts waits as transfers, and these then differ. In a division that is too
 * coarse the ends differ, or an end is before the last start, which is impossible.
 *
 * The model does not hold for collectives with a root, because members leave before others begin.
 * They are left out where there are other collectives.
 *
 * Clocks that no collective has joined yet get, for each division, the offsets that suit it best
 * (medians along a tree), since several groups over the same two clocks have the same offset
 * between them.
 *
 * Cost of a division: O(streams x occurrences x log), for at most MAX_OCCURRENCES of them.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock/layout.h"

#define MAX_OCCURRENCES 48
#define SLACK_US	3.0
#define DRIFT		20e-6 /* of clocks not joined yet: usual */
#define VARIES		0.05  /* transfers of one kind differ by so much */
#define MAGNITUDES	14.0
#define LEAST_US	1.0 /* profilers round to it */
#define SCALES		11  /* 1 us, 2 us ... 1 ms */
#define ENOUGH		3   /* occurrences */
#define MIN_SLOPE	6
#define MAX_SLOPE	500e-6
#define PLAIN		4.0  /* a drift that makes differences so much less */
#define COMPONENT_US	50.0 /* error of offsets from sends and receives */
#define JOIN_COST	2.0 /* nats: an offset between offset components, which could be anything */
#define NEAR_JOIN	6.0 /* what such a one may have bought */
#define NEAR_COST	3.0 /* nats: 1 to 20 */
#define MATTERS_US	20.0
#define MATTERS_PART	0.1

/* ---- times -------------------------------------------------------------------------------------
 */

static uint32_t local_partition(struct pl_layout *l, const struct pl_partitions *is,
				const struct pl_comm *ev)
{
	uint32_t n = l->n_partitions;

	for (uint32_t i = 0; i < n; i++)
		if (l->partition_of[i] == is->partition[ev->clock])
			return i;
	l->partition_of[n] = is->partition[ev->clock];
	l->base[n] = pl_trace_clock_apply(&is->clock[ev->clock], ev->end);
	l->component[n] = n;
	for (uint32_t i = 0; i < n && l->component[n] == n; i++)
		if (is->component[l->partition_of[i]] == is->component[ev->clock]) {
			l->component[n] = l->component[i];
			l->base[n] = l->base[i];
		}
	return l->n_partitions++;
}

/* Are there enough collectives without a root? The model does not hold for those with a root. */
static bool skips_rooted(const struct pl_layout *l, const struct pl_align *a, uint32_t step)
{
	uint32_t others = 0;

	for (uint32_t k = 0; k < l->comm_stream[0]->n; k += step)
		others += !pl_clock_seq_rooted(a, &a->ev[l->comm_stream[0]->ev[k]]);
	return others >= ENOUGH;
}

static void fill_times(struct pl_layout *l, const struct pl_align *a, const struct pl_clock *clock)
{
	uint32_t step = l->occurrences / MAX_OCCURRENCES + 1;
	bool skips = skips_rooted(l, a, step);

	l->k = (l->occurrences + step - 1) / step;
	for (uint32_t i = 0; i < l->n; i++) {
		for (uint32_t k = 0; k < l->k; k++) {
			double *t = &l->start[i * l->k + k], *e = &l->end[i * l->k + k];
			const struct pl_comm *ev;
			const struct pl_clock *c;

			*t = *e = NAN;
			if (k * step >= l->comm_stream[i]->n)
				continue;
			ev = &a->ev[l->comm_stream[i]->ev[k * step]];
			if (skips && pl_clock_seq_rooted(a, ev))
				continue;
			c = &clock[ev->clock];
			*t = (double)pl_sub_sat(pl_trace_clock_apply(c, ev->ts),
						l->base[l->partition[i]]) /
			     1e3;
			*e = (double)pl_sub_sat(pl_trace_clock_apply(c, ev->end),
						l->base[l->partition[i]]) /
			     1e3;
		}
	}
}

int pl_clock_layout_init(struct pl_layout *l, const struct pl_align *a,
			 const struct pl_partitions *is, const struct pl_seq *const *comm_stream,
			 uint32_t n, struct pl_err *err)
{
	size_t cells;
	int rc;

	memset(l, 0, sizeof(*l));
	l->n = n;
	for (uint32_t i = 0; i < n; i++)
		l->occurrences =
			comm_stream[i]->n > l->occurrences ? comm_stream[i]->n : l->occurrences;
	cells = (size_t)n * pl_min_size(l->occurrences, MAX_OCCURRENCES) + 1;
	PL_TRY(pl_alloc(&l->comm_stream, n + 1u, sizeof(*l->comm_stream), err));
	PL_TRY(pl_alloc(&l->kind, n + 1u, sizeof(*l->kind), err));
	PL_TRY(pl_alloc(&l->partition, n + 1u, sizeof(*l->partition), err));
	PL_TRY(pl_alloc(&l->partition_of, n + 1u, sizeof(*l->partition_of), err));
	PL_TRY(pl_alloc(&l->component, n + 1u, sizeof(*l->component), err));
	PL_TRY(pl_alloc(&l->slope, n + 1u, sizeof(*l->slope), err));
	PL_TRY(pl_alloc(&l->diff, cells, sizeof(*l->diff), err));
	PL_TRY(pl_alloc(&l->base, n + 1u, sizeof(*l->base), err));
	PL_TRY(pl_alloc(&l->delta, n + 1u, sizeof(*l->delta), err));
	PL_TRY(pl_alloc(&l->placed, n + 1u, sizeof(*l->placed), err));
	PL_TRY(pl_alloc(&l->leads, n + 1u, sizeof(*l->leads), err));
	PL_TRY(pl_alloc(&l->order, n + 1u, sizeof(*l->order), err));
	PL_TRY(pl_alloc(&l->first, n + 2u, sizeof(*l->first), err));
	PL_TRY(pl_alloc(&l->took, 2u * (size_t)n + 1, sizeof(*l->took), err));
	PL_TRY(pl_alloc(&l->start, cells, sizeof(*l->start), err));
	PL_TRY(pl_alloc(&l->end, cells, sizeof(*l->end), err));
	PL_TRY(pl_alloc(&l->tmp, cells, sizeof(*l->tmp), err));
	PL_TRY(pl_alloc(&l->res, 2 * cells, sizeof(*l->res), err));
	for (uint32_t i = 0; i < n; i++) {
		const struct pl_comm *ev = &a->ev[comm_stream[i]->ev[0]];

		l->comm_stream[i] = comm_stream[i];
		l->kind[i] = comm_stream[i]->n;
		l->partition[i] = local_partition(l, is, ev);
	}
	fill_times(l, a, is->clock);
out:
	return rc;
}

void pl_clock_layout_fini(struct pl_layout *l)
{
	pl_free(l->comm_stream);
	pl_free(l->kind);
	pl_free(l->partition);
	pl_free(l->partition_of);
	pl_free(l->component);
	pl_free(l->slope);
	pl_free(l->diff);
	pl_free(l->base);
	pl_free(l->delta);
	pl_free(l->placed);
	pl_free(l->leads);
	pl_free(l->order);
	pl_free(l->first);
	pl_free(l->took);
	pl_free(l->start);
	pl_free(l->end);
	pl_free(l->tmp);
	pl_free(l->res);
}

/* ---- one division ------------------------------------------------------------------------------
 */

static double lower_median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), pl_compare_double);
	return v[(n - 1) / 2];
}

/* Streams by group; groups are 0 .. n_groups - 1 and none is empty. */
static void sort_comm_streams(struct pl_layout *l, const uint32_t *group, uint32_t n_groups)
{
	memset(l->first, 0, (n_groups + 1u) * sizeof(*l->first));
	for (uint32_t i = 0; i < l->n; i++)
		l->first[group[i] + 1]++;
	for (uint32_t g = 0; g < n_groups; g++)
		l->first[g + 1] += l->first[g];
	for (uint32_t i = 0; i < l->n; i++)
		l->order[l->first[group[i]]++] = i;
	for (uint32_t g = n_groups; g > 0; g--)
		l->first[g] = l->first[g - 1];
	l->first[0] = 0;
}

/* A member of the group whose partition has its offset already, or PL_NONE. */
static uint32_t placed_member(const struct pl_layout *l, uint32_t g)
{
	for (uint32_t i = l->first[g]; i < l->first[g + 1]; i++)
		if (l->placed[l->partition[l->order[i]]])
			return l->order[i];
	return PL_NONE;
}

/* A time of stream p under the offsets of the division. */
static double moved(const struct pl_layout *l, uint32_t p, double t)
{
	uint32_t c = l->partition[p];

	return t + l->delta[c] + l->slope[c] * t;
}

/* Differences of ends between partition `c` and the placed ones. */
static size_t differences(struct pl_layout *l, uint32_t n_groups, uint32_t c)
{
	size_t n = 0;

	for (uint32_t g = 0; g < n_groups; g++) {
		uint32_t p = placed_member(l, g);

		for (uint32_t i = l->first[g]; p != PL_NONE && i < l->first[g + 1]; i++) {
			uint32_t q = l->order[i];

			for (uint32_t k = 0; l->partition[q] == c && k < l->k; k++) {
				double t = l->end[q * l->k + k];
				double d = moved(l, p, l->end[p * l->k + k]) - t;

				if (!isnan(d))
					l->diff[n++] = (struct pl_clock_layout_diff){ t, d };
			}
		}
	}
	return n;
}

PL_COMPARATOR(by_time, struct pl_clock_layout_diff, t, d);

/* The offset that suits n differences under a slope; how far they typically are from it. */
static double offset_for(struct pl_layout *l, size_t n, double slope, double *scatter)
{
	double mid;

	for (size_t i = 0; i < n; i++)
		l->tmp[i] = l->diff[i].d - slope * l->diff[i].t;
	mid = lower_median(l->tmp, n);
	for (size_t i = 0; i < n; i++)
		l->tmp[i] = fabs(l->tmp[i] - mid);
	*scatter = lower_median(l->tmp, n);
	return mid;
}

/* Offset of partition c, and its drift if that is plain. */
static void fit_partition(struct pl_layout *l, size_t n, uint32_t c)
{
	double still, moving, slope, offset;
	size_t half = n / 2, m = 0;

	l->slope[c] = 0;
	l->delta[c] = offset_for(l, n, 0, &still);
	if (n < MIN_SLOPE)
		return;
	qsort(l->diff, n, sizeof(*l->diff), by_time);
	for (size_t i = 0; i + half < n; i++) {
		double dt = l->diff[i + half].t - l->diff[i].t;

		if (dt > LEAST_US)
			l->tmp[m++] = (l->diff[i + half].d - l->diff[i].d) / dt;
	}
	slope = m ? lower_median(l->tmp, m) : 0;
	if (fabs(slope) > MAX_SLOPE)
		return;
	offset = offset_for(l, n, slope, &moving);
	if (still < PLAIN * fmax(moving, LEAST_US))
		return;
	l->delta[c] = offset;
	l->slope[c] = slope;
}

/* What the offset of an partition costs: about 0 against others on its offset component, any
 * against the rest. */
static double misfit(const struct pl_layout *l, uint32_t c, uint32_t *joins)
{
	for (uint32_t i = 0; i < l->n_partitions; i++)
		if (i != c && l->placed[i] && l->component[i] == l->component[c]) {
			double z = (l->delta[c] - l->delta[i]) / COMPONENT_US;

			return log1p(z * z);
		}
	++*joins;
	return JOIN_COST;
}

/* Offsets of partitions that suit the division. Returns how many could be anything. */
static uint32_t fit_offsets(struct pl_layout *l, uint32_t n_groups, double *cost)
{
	uint32_t joins = 0;

	memset(l->placed, 0, l->n_partitions * sizeof(*l->placed));
	*cost = 0;
	for (uint32_t left = l->n_partitions; left; left--) {
		uint32_t best = PL_NONE;
		size_t most = 0, n;

		for (uint32_t c = 0; c < l->n_partitions && left < l->n_partitions; c++) {
			n = l->placed[c] ? 0 : differences(l, n_groups, c);
			if (n > most) {
				most = n;
				best = c;
			}
		}
		for (uint32_t c = 0; c < l->n_partitions && best == PL_NONE; c++)
			best = l->placed[c] ? PL_NONE : c;
		l->delta[best] = l->slope[best] = 0;
		if (most) {
			fit_partition(l, differences(l, n_groups, best), best);
			*cost += misfit(l, best, &joins);
		}
		l->placed[best] = true;
	}
	return joins;
}

struct occurrence {
	uint32_t k;
	double wide; /* for drift */
	size_t n;    /* residuals so far */
	uint64_t cross;
	uint32_t impossible;
};

/* The k-th of one group: residuals of its ends; what its transfer took, NAN if it was not there. */
static double look(struct pl_layout *l, uint32_t g, struct occurrence *o)
{
	double last = -INFINITY, mid;
	uint32_t partition = PL_NONE, at = 0;
	bool middle = false, cross = false, known = false; /* known: the drift */
	size_t n = 0;

	for (uint32_t i = l->first[g]; i < l->first[g + 1]; i++) {
		uint32_t p = l->order[i];
		double e = l->end[p * l->k + o->k];

		if (isnan(e))
			continue;
		last = fmax(last, moved(l, p, l->start[p * l->k + o->k]));
		l->tmp[n++] = moved(l, p, e);
		known |= l->slope[l->partition[p]] != 0;
		cross |= partition != PL_NONE && partition != l->partition[p];
		o->cross += partition != PL_NONE && partition != l->partition[p];
		partition = l->partition[p];
	}
	if (!n)
		return NAN;
	mid = lower_median(l->tmp, n);
	for (at = 0; at < n; at++) {
		if (!middle && l->tmp[at] == mid) { /* the middle one itself is no residual */
			middle = true;
			continue;
		}
		l->res[o->n++] =
			(struct pl_clock_layout_residual){ l->tmp[at] - mid,
							   cross && !known ? o->wide : 0, 0 };
	}
	if (mid - last < -SLACK_US) {
		l->res[o->n++] = (struct pl_clock_layout_residual){ mid - last, 0, -1 };
		o->impossible++;
	}
	return fmax(mid - last, LEAST_US);
}

/* Transfers of the groups of one kind against the middle one. Returns the cost of that one. */
static double tie(struct pl_layout *l, uint32_t n_groups, uint32_t kind, struct occurrence *o)
{
	double *sorted = l->took + n_groups, mid;
	bool middle = false;
	size_t n = 0;

	for (uint32_t g = 0; g < n_groups; g++)
		if (l->kind[l->order[l->first[g]]] == kind && !isnan(l->took[g]))
			sorted[n++] = l->took[g];
	if (!n)
		return 0;
	mid = lower_median(sorted, n);
	for (size_t i = 0; i < n; i++) {
		if (!middle && sorted[i] == mid) {
			middle = true;
			continue;
		}
		l->res[o->n++] = (struct pl_clock_layout_residual){ sorted[i] - mid, VARIES * mid,
								    log(MAGNITUDES * sorted[i]) };
	}
	return log(MAGNITUDES * mid);
}

static double cost_at(const struct pl_clock_layout_residual *v, size_t n, double scale)
{
	double cost = 0;

	for (size_t i = 0; i < n; i++) {
		double s = sqrt(scale * scale + v[i].wide * v[i].wide), z = v[i].r / s;
		double c = log1p(z * z);

		if (v[i].most >= 0)
			c += log(s * 3.14159265);
		cost += v[i].most > 0 && c > v[i].most ? v[i].most : c;
	}
	return cost;
}

static bool first_of_kind(const struct pl_layout *l, uint32_t g)
{
	uint32_t kind = l->kind[l->order[l->first[g]]];

	for (uint32_t h = 0; h < g; h++)
		if (l->kind[l->order[l->first[h]]] == kind)
			return false;
	return true;
}

struct pl_clock_layout_cost pl_clock_layout_cost(struct pl_layout *l, const uint32_t *group,
						 uint32_t n_groups)
{
	struct occurrence o = { 0 };
	struct pl_clock_layout_cost c = { .cost = INFINITY };
	double fixed, span = 0, t0 = NAN;
	sort_comm_streams(l, group, n_groups);
	c.joins = fit_offsets(l, n_groups, &fixed);
	for (uint32_t g = 0; g < n_groups; g++)
		l->leads[g] = first_of_kind(l, g);
	for (uint32_t k = 0; k < l->k; k++)
		if (!isnan(l->end[k])) {
			t0 = isnan(t0) ? l->end[k] : t0;
			span = l->end[k] - t0;
		}
	for (o.k = 0; o.k < l->k; o.k++) {
		double t = isnan(l->end[o.k]) ? span / 2 : l->end[o.k] - t0;

		o.wide = DRIFT * fabs(t - span / 2);
		for (uint32_t g = 0; g < n_groups; g++)
			l->took[g] = look(l, g, &o);
		for (uint32_t g = 0; g < n_groups; g++)
			if (l->leads[g])
				fixed += tie(l, n_groups, l->kind[l->order[l->first[g]]], &o);
	}
	for (int s = 0; s < SCALES; s++)
		c.cost = fmin(c.cost, fixed + cost_at(l->res, o.n, LEAST_US * (1 << s)));
	c.determined = !c.joins || o.cross > c.joins;
	c.impossible = o.impossible;
	return c;
}

/* Last start of the group of stream p at k, and its middle end: what the stream would have
 * transferred.
 */
static double transfer_of(struct pl_layout *l, const uint32_t *group, uint32_t p, uint32_t k)
{
	double last = -INFINITY;

	for (uint32_t i = 0; i < l->n; i++)
		if (group[i] == group[p] && !isnan(l->end[i * l->k + k]))
			last = fmax(last, moved(l, i, l->start[i * l->k + k]));
	return moved(l, p, l->end[p * l->k + k]) - last;
}

bool pl_clock_layout_differs(struct pl_layout *l, const uint32_t *x, uint32_t nx, const uint32_t *y,
			     uint32_t ny)
{
	size_t n = 0, cells = (size_t)l->n * l->k;
	bool differs = false;
	double cost;

	sort_comm_streams(l, x, nx);
	fit_offsets(l, nx, &cost);
	for (uint32_t p = 0; p < l->n; p++)
		for (uint32_t k = 0; k < l->k; k++)
			l->res[n++].r = transfer_of(l, x, p, k);
	sort_comm_streams(l, y, ny);
	fit_offsets(l, ny, &cost);
	for (size_t i = 0; i < cells && !differs; i++) {
		double t = transfer_of(l, y, (uint32_t)(i / l->k), (uint32_t)(i % l->k));
		double d = fabs(t - l->res[i].r);

		differs = d > MATTERS_US + MATTERS_PART * fmin(fabs(t), fabs(l->res[i].r));
	}
	return differs;
}

/* ---- regular divisions -------------------------------------------------------------------------
 */

/* `size` streams, `stride` apart, and `size2` of those, `stride2` apart. */
struct shape {
	uint32_t size, stride, size2, stride2;
};

static uint32_t divide(const struct shape *s, uint32_t n, uint32_t *group)
{
	uint32_t block = s->size2 > 1 ? s->size2 * s->stride2 : s->size * s->stride, next = 0;
	uint32_t inner = s->size * s->stride;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t in = i % block, lead = in;

		if (s->size2 > 1)
			lead = in % s->stride2;
		lead = i - in + lead / inner * inner + lead % s->stride;
		group[i] = lead == i ? next++ : group[lead];
	}
	return next;
}

static bool allowed(const struct pl_layout *l, const uint32_t *class, const uint32_t *group)
{
	for (uint32_t i = 0; i < l->n; i++)
		for (uint32_t k = 0; k < i; k++)
			if (group[k] == group[i]) {
				if (class[k] != class[i])
					return false;
				break;
			}
	return true;
}

struct choice {
	struct pl_layout *l;
	const uint32_t *class;
	struct pl_divided *d; /* all that were tried */
	size_t n, cap;
};

static int try_division(struct choice *c, const uint32_t *group, uint32_t n_groups, double more,
			struct pl_err *err)
{
	struct pl_clock_layout_cost cost;
	uint32_t *copy;
	int rc;

	if (!allowed(c->l, c->class, group))
		return 0;
	cost = pl_clock_layout_cost(c->l, group, n_groups);
	PL_TRY(pl_grow(&c->d, &c->cap, c->n + 1, sizeof(*c->d), err));
	PL_TRY(pl_alloc(&copy, c->l->n + 1u, sizeof(*copy), err));
	memcpy(copy, group, c->l->n * sizeof(*copy));
	c->d[c->n++] = (struct pl_divided){ .group = copy,
					    .n_groups = n_groups,
					    .joins = cost.joins,
					    .cost = cost.cost + more,
					    .determined = cost.determined };
out:
	return rc;
}

#define ALONE_COST     2.0 /* a collective has partners: odds against its having none */
#define TWO_LEVEL_COST 2.5
#define STAGES_COST    -3.0 /* those that send to each other are often a group, too */
#define IRREGULAR_COST 0.5  /* times n log n: there are very many such */
#define TWO_LEVEL_MAX  64   /* streams */

static int try_shapes(struct choice *c, uint32_t *group, struct pl_err *err)
{
	uint32_t n = c->l->n;
	int rc = 0;

	for (uint32_t size = 2; size <= n; size++) {
		for (uint32_t stride = 1; stride * size <= n && n % size == 0; stride++) {
			struct shape s = { size, stride, 1, 1 };
			uint32_t block = size * stride;

			if (n % block)
				continue;
			PL_TRY(try_division(c, group, divide(&s, n, group), 0, err));
			for (s.size2 = 2; s.size2 <= n / block && n <= TWO_LEVEL_MAX; s.size2++)
				for (s.stride2 = 2 * block; s.size2 * s.stride2 <= n;
				     s.stride2 += block)
					if (n % (s.size2 * s.stride2) == 0)
						PL_TRY(try_division(c, group, divide(&s, n, group),
								    TWO_LEVEL_COST, err));
		}
	}
out:
	return rc;
}

/* A free offset makes a division look better than it is. */
static double near_to(const struct pl_divided *best, const struct pl_divided *other)
{
	uint32_t more = best->joins > other->joins ? best->joins - other->joins : 0;

	return NEAR_COST + NEAR_JOIN * more;
}

/* Is there another division about as likely that would give other transfers? */
static bool is_doubtful(struct choice *c, size_t best)
{
	size_t others = 0;

	for (size_t i = 0; i < c->n; i++)
		others += i != best && c->d[i].n_groups < c->l->n;
	if (!c->d[best].determined && others)
		return true;
	for (size_t i = 0; i < c->n; i++)
		if (i != best && c->d[i].cost < c->d[best].cost + near_to(&c->d[best], &c->d[i]) &&
		    pl_clock_layout_differs(c->l, c->d[best].group, c->d[best].n_groups,
					    c->d[i].group, c->d[i].n_groups))
			return true;
	return false;
}

/* Numbers of any kind become 0, 1 ... */
uint32_t pl_clock_layout_number(const uint32_t *any, uint32_t n, uint32_t *group)
{
	uint32_t next = 0;

	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = 0;

		while (k < i && any[k] != any[i])
			k++;
		group[i] = k < i ? group[k] : next++;
	}
	return next;
}

int pl_clock_layout_choose(struct pl_layout *l, const uint32_t *class, const uint32_t *stages,
			   uint32_t *group, uint32_t *n_groups, bool *doubtful, struct pl_err *err)
{
	struct choice c = { .l = l, .class = class };
	uint32_t *tmp = NULL, staged;
	size_t best = 0;
	int rc;

	PL_TRY(pl_alloc(&tmp, l->n + 1u, sizeof(*tmp), err));
	PL_TRY(try_division(&c, group, *n_groups,
			    *n_groups < l->n ? IRREGULAR_COST * l->n * log(l->n) : ALONE_COST,
			    err));
	for (uint32_t i = 0; i < l->n; i++)
		tmp[i] = i;
	PL_TRY(try_division(&c, tmp, l->n, ALONE_COST, err));
	staged = pl_clock_layout_number(stages, l->n, tmp);
	if (staged < l->n)
		PL_TRY(try_division(&c, tmp, staged, STAGES_COST, err));
	PL_TRY(try_shapes(&c, tmp, err));
	for (size_t i = 1; i < c.n; i++)
		best = c.d[i].cost < c.d[best].cost ? i : best;
	*doubtful = is_doubtful(&c, best);
	memcpy(group, c.d[best].group, l->n * sizeof(*group));
	*n_groups = c.d[best].n_groups;
out:
	for (size_t i = 0; i < c.n; i++)
		pl_free(c.d[i].group);
	pl_free(c.d);
	pl_free(tmp);
	return rc;
}
