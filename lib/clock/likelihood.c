/*
 * How likely is a division of streams into groups?
 *
 * The model: the members of a group end together, a transfer after the last of them has begun,
 *     end = last start + transfer + jitter,
 * and groups of one division need about the same time for the same operation. So each occurrence
 * gives as many residuals as there are streams, for every division: the ends against the median end
 * of their group, and the transfers against that of the median group. Both have a Cauchy
 * distribution in the model, because outliers then cost little, with the scale that fits the
 * division best. A too fine division counts waits as transfers, and these differ. In a too coarse
 * division the ends differ, or an end is before the last start, which is impossible.
 *
 * The model does not hold for collectives with a root, because members leave before others begin.
 * They are left out where there are other collectives.
 *
 * Clocks that no collective has joined yet get, for each division, the offsets and drifts that suit
 * it best (medians along a tree), since several groups over two clocks have one offset.
 *
 * Cost of a division: O(streams x occurrences x log + partitions squared), for at most
 * MAX_OCCURRENCES of them.
 */
#include <math.h>
#include <stdlib.h>

#include "clock/likelihood.h"

#define MAX_OCCURRENCES 48 /* more take more time and change no result */
/* Profilers round to it, so that jitter cannot be seen to be less. */
#define LEAST_US   (PL_CLOCK_RESOLUTION_NS / 1e3)
#define VARIES	   0.05 /* transfers of one kind differ by so much, as messages in a network do */
#define MATTERS_US 20.0 /* less than a launch: nobody changes a job for it */

/* ---- times ----------------------------------------------------------------------------------- */

/* Times of one partition can be compared. That all ranks share one clock is only what the user
 * says: there the recording has to show it for each rank. */
static uint32_t local_partition(struct pl_likelihood *l, const struct pl_align *a,
				const struct pl_comm *ev)
{
	const struct pl_clock *c = &a->m->clock[ev->clock];
	uint32_t n = l->n_partitions, component = a->component[ev->clock];
	uint32_t id = a->o.by == PL_CLOCK_ONE ? (uint32_t)ev->rank : a->partition[ev->clock];
	pl_ns base = pl_trace_clock_apply(c, ev->end);

	for (uint32_t i = n; i-- > 0;) {
		if (l->part[i].id == id)
			return i;
		base = l->part[i].component == component ? l->part[i].base : base;
	}
	l->part[n] = (struct pl_likelihood_partition){
		.id = id,
		.component = component,
		.error = fmax((double)c->offset_ci_ns / 1e3, LEAST_US),
		.base = base,
	};
	return l->n_partitions++;
}

/* The model does not hold for collectives with a root: those are left out if most have none. */
static void look_for_roots(struct pl_likelihood *l, const struct pl_align *a,
			   const struct pl_seq *s, uint32_t step)
{
	uint32_t rooted = 0, all = 0;

	for (uint32_t k = 0; k < s->n; k += step, all++)
		rooted += (a->ev[s->ev[k]].coll_is & PL_COLL_ROOTED) != 0;
	l->skips_rooted = 2 * rooted <= all;
	l->rooted = rooted && !l->skips_rooted;
}

static double us_since(pl_ns base, const struct pl_clock *c, pl_ns t)
{
	return (double)pl_sub_sat(pl_trace_clock_apply(c, t), base) / 1e3;
}

static void fill_times(struct pl_likelihood *l, const struct pl_align *a,
		       const struct pl_stream *const *v, uint32_t step)
{
	const struct pl_clock *clock = a->m->clock;

	look_for_roots(l, a, &v[0]->s, step);
	for (uint32_t i = 0; i < l->n; i++)
		for (uint32_t k = 0; k < l->k; k++) {
			int64_t at = (int64_t)k * step - v[i]->shift;
			bool is = at >= 0 && at < v[i]->s.n;
			const struct pl_comm *e = is ? &a->ev[v[i]->s.ev[at]] : NULL;
			pl_ns base = l->part[l->partition[i]].base;

			is = is && !(l->skips_rooted && e->coll_is & PL_COLL_ROOTED);
			l->start[i * l->k + k] = is ? us_since(base, &clock[e->clock], e->ts) : NAN;
			l->end[i * l->k + k] = is ? us_since(base, &clock[e->clock], e->end) : NAN;
		}
}

static int take_memory(struct pl_likelihood *l, struct pl_err *err)
{
	size_t n = l->n + 2u, cells = (size_t)l->n * l->k + 1;

#define TAKE(array, size) PL_CHECK(pl_arena_array(&l->mem, &l->array, size, sizeof(*l->array), err))
	TAKE(length, n);
	TAKE(lengths, n);
	TAKE(partition, n);
	TAKE(part, n);
	TAKE(inhabitant, n);
	TAKE(inhabitant0, n);
	TAKE(start, cells);
	TAKE(end, cells);
	TAKE(member, n);
	TAKE(member0, n);
	TAKE(reference, n);
	TAKE(transfer, n);
	TAKE(sorted, n);
	TAKE(tmp, cells);
	TAKE(diff, cells);
	TAKE(residual, 2 * cells);
#undef TAKE
	return 0;
}

int pl_clock_likelihood_init(struct pl_likelihood *l, const struct pl_align *a,
			     const struct pl_stream *const *v, uint32_t n, struct pl_err *err)
{
	int64_t occurrences = 1;
	uint32_t step;

	*l = (struct pl_likelihood){ .n = n };
	for (uint32_t i = 0; i < n; i++)
		occurrences = pl_max_i64(occurrences, v[i]->s.n + v[i]->shift);
	step = (uint32_t)(occurrences / MAX_OCCURRENCES + 1);
	l->k = (uint32_t)((occurrences + step - 1) / step);
	PL_CHECK(take_memory(l, err));
	for (uint32_t i = 0, k; i < n; i++) {
		l->length[i] = v[i]->s.n;
		for (k = 0; k < l->n_lengths && l->lengths[k] != l->length[i];)
			k++;
		if (k == l->n_lengths)
			l->lengths[l->n_lengths++] = l->length[i];
		l->partition[i] = local_partition(l, a, &a->ev[v[i]->s.ev[0]]);
	}
	pl_clock_sort_by_key(l->partition, n, l->n_partitions, l->inhabitant, l->inhabitant0);
	fill_times(l, a, v, step);
	return 0;
}

/* ---- offsets of clocks that are not joined yet ----------------------------------------------- */

static double lower_median(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), pl_compare_double);
	return v[(n - 1) / 2];
}

/* A time of stream i under the offsets of the division. */
static double aligned(const struct pl_likelihood *l, uint32_t i, double t)
{
	uint32_t c = l->partition[i];

	return t + l->part[c].delta + l->part[c].slope * t;
}

/* The partition has an offset: its streams become references of groups that have none. */
static void set_offset(struct pl_likelihood *l, uint32_t partition)
{
	l->part[partition].differences = SIZE_MAX;
	for (uint32_t j = l->inhabitant0[partition]; j < l->inhabitant0[partition + 1]; j++) {
		uint32_t p = l->inhabitant[j], g = l->group[p];

		if (l->reference[g] != PL_NONE)
			continue;
		l->reference[g] = p;
		for (uint32_t i = l->member0[g]; i < l->member0[g + 1]; i++) {
			uint32_t q = l->member[i];
			size_t *n = &l->part[l->partition[q]].differences;

			if (*n < SIZE_MAX)
				*n += pl_min_size(l->length[p], l->length[q]);
		}
	}
}

/* Differences of ends between the partition and the references of its streams' groups. */
static size_t find_differences(struct pl_likelihood *l, uint32_t partition)
{
	size_t n = 0;

	for (uint32_t j = l->inhabitant0[partition]; j < l->inhabitant0[partition + 1]; j++) {
		uint32_t q = l->inhabitant[j], p = l->reference[l->group[q]];

		for (uint32_t k = 0; p != PL_NONE && k < l->k; k++) {
			double t = l->end[q * l->k + k],
			       d = aligned(l, p, l->end[p * l->k + k]) - t;

			if (!isnan(d))
				l->diff[n++] = (struct pl_difference){ t, d };
		}
	}
	return n;
}

PL_COMPARATOR(by_time, struct pl_difference, t, d);

/* The offset of a partition and, if several times are seen, its drift. */
static void fit_partition(struct pl_likelihood *l, size_t n, struct pl_likelihood_partition *p)
{
	size_t half = n / 2, m = 0;

	if (n >= PL_SEQ_PAIRS && l->k > 1)
		qsort(l->diff, n, sizeof(*l->diff), by_time);
	for (size_t i = 0; i + half < n && n >= PL_SEQ_PAIRS && l->k > 1; i++) {
		double dt = l->diff[i + half].t - l->diff[i].t;

		if (dt > LEAST_US)
			l->tmp[m++] = (l->diff[i + half].d - l->diff[i].d) / dt;
	}
	p->slope = m ? lower_median(l->tmp, m) : 0;
	for (size_t i = 0; i < n; i++)
		l->tmp[i] = l->diff[i].d - p->slope * l->diff[i].t;
	p->delta = lower_median(l->tmp, n);
}

/* The cost of a partition's offset against others of its offset component; any is as good against
 * the rest: *joins. */
static double misfit(const struct pl_likelihood *l, const struct pl_likelihood_partition *p,
		     uint32_t *joins)
{
	for (const struct pl_likelihood_partition *q = l->part; q < l->part + l->n_partitions; q++)
		if (q != p && q->differences == SIZE_MAX && q->component == p->component) {
			double z = (p->delta - q->delta) / p->error;

			return log1p(z * z);
		}
	++*joins;
	return 0;
}

/* Offsets of partitions that suit the division, those first that most ends tell. */
static double fit_offsets(struct pl_likelihood *l, const struct pl_division *d, uint32_t *joins)
{
	double cost = 0;

	*joins = 0;
	l->group = d->group;
	l->n_groups = d->n_groups;
	pl_clock_sort_by_key(d->group, l->n, d->n_groups, l->member, l->member0);
	memset(l->reference, 0xff, d->n_groups * sizeof(*l->reference));
	for (uint32_t c = 0; c < l->n_partitions; c++) {
		l->part[c].delta = l->part[c].slope = 0;
		l->part[c].differences = 0;
	}
	for (uint32_t left = l->n_partitions; left; left--) {
		uint32_t best = PL_NONE;
		size_t n;

		for (uint32_t c = 0; c < l->n_partitions; c++)
			if (l->part[c].differences < SIZE_MAX &&
			    (best == PL_NONE || l->part[c].differences > l->part[best].differences))
				best = c;
		n = l->part[best].differences ? find_differences(l, best) : 0;
		if (n) {
			fit_partition(l, n, &l->part[best]);
			cost += misfit(l, &l->part[best], joins);
		}
		set_offset(l, best);
	}
	return cost;
}

/* ---- residuals ------------------------------------------------------------------------------- */

struct occurrence {
	uint32_t k;
	size_t n; /* residuals so far */
	uint64_t cross;
	uint32_t impossible;
};

/* When the k-th of a group had begun on its last member; the ends, which come to l->tmp. */
static double last_start(struct pl_likelihood *l, uint32_t g, uint32_t k, size_t *n)
{
	double last = -INFINITY;

	*n = 0;
	for (uint32_t i = l->member0[g]; i < l->member0[g + 1]; i++) {
		uint32_t p = l->member[i];
		double e = l->end[p * l->k + k];

		if (isnan(e))
			continue;
		last = fmax(last, aligned(l, p, l->start[p * l->k + k]));
		l->tmp[(*n)++] = aligned(l, p, e);
	}
	return last;
}

/* How many neighbours in the group are of different partitions. */
static uint32_t crossings(const struct pl_likelihood *l, uint32_t g, uint32_t k)
{
	uint32_t before = PL_NONE, n = 0;

	for (uint32_t i = l->member0[g]; i < l->member0[g + 1]; i++) {
		uint32_t p = l->member[i], c = l->partition[p];

		if (isnan(l->end[p * l->k + k]))
			continue;
		n += before != PL_NONE && before != c;
		before = c;
	}
	return n;
}

/* The k-th of one group: residuals of its ends; the time of its transfer, NAN if it has none. */
static double add_residuals(struct pl_likelihood *l, uint32_t g, struct occurrence *o)
{
	size_t n;
	double last = last_start(l, g, o->k, &n), mid;

	if (!n)
		return NAN;
	mid = lower_median(l->tmp, n);
	for (size_t i = 0; i < n; i++)
		if (i != (n - 1) / 2) /* the middle one itself is no residual */
			l->residual[o->n++] = (struct pl_residual){ .r = l->tmp[i] - mid };
	o->cross += crossings(l, g, o->k);
	if (mid - last < -2 * LEAST_US && !l->rooted) { /* two rounded times */
		l->residual[o->n++] = (struct pl_residual){ .r = mid - last, .impossible = true };
		o->impossible++;
	}
	return fmax(mid - last, LEAST_US);
}

static uint32_t length_of(const struct pl_likelihood *l, uint32_t g)
{
	return l->length[l->member[l->member0[g]]];
}

/* Transfers of groups of one length against the middle one. Returns its cost, of any magnitude. */
static double compare_transfers(struct pl_likelihood *l, uint32_t length, struct occurrence *o)
{
	double mid;
	size_t n = 0;

	for (uint32_t g = 0; g < l->n_groups; g++)
		if (length_of(l, g) == length && !isnan(l->transfer[g]))
			l->sorted[n++] = l->transfer[g];
	if (!n)
		return 0;
	mid = lower_median(l->sorted, n);
	for (size_t i = 0; i < n; i++)
		if (i != (n - 1) / 2)
			l->residual[o->n++] = (struct pl_residual){ .r = l->sorted[i] - mid,
								    .wide = VARIES * mid };
	return log(mid);
}

/* The sum of log((1 + z^2) s pi) with z = r / s, without s pi if impossible. That is the logarithm
 * of a quotient of products: logarithms, roots and divisions for each would take most of the time.
 */
static double cost_at(const struct pl_residual *v, size_t n, double scale)
{
	double cost = 0, up = 1, down = 1; /* the root of `down` is meant */

	for (size_t i = 0; i < n; i++) {
		double s2 = scale * scale + v[i].wide * v[i].wide;

		up *= (s2 + v[i].r * v[i].r) * (v[i].impossible ? 1 : 3.14159265);
		down *= v[i].impossible ? s2 * s2 : s2;
		if (up > 1e100 || up < 1e-100 || down > 1e100 || down < 1e-100) {
			cost += log(up) - log(down) / 2;
			up = down = 1;
		}
	}
	return cost + log(up) - log(down) / 2;
}

void pl_clock_likelihood_of(struct pl_likelihood *l, struct pl_division *d)
{
	struct occurrence o = { 0 };
	double fixed = fit_offsets(l, d, &d->joins), most = LEAST_US;

	for (o.k = 0; o.k < l->k; o.k++) {
		for (uint32_t g = 0; g < l->n_groups; g++)
			l->transfer[g] = add_residuals(l, g, &o);
		for (uint32_t i = 0; i < l->n_lengths; i++)
			fixed += compare_transfers(l, l->lengths[i], &o);
	}
	for (size_t i = 0; i < o.n; i++)
		most = fmax(most, fabs(l->residual[i].r));
	d->cost = INFINITY;
	for (double scale = LEAST_US; scale < 2 * most; scale *= 2)
		d->cost = fmin(d->cost, cost_at(l->residual, o.n, scale));
	d->cost += fixed;
	d->determined = !d->joins || o.cross > d->joins;
	if (o.impossible > PL_SEQ_IMPOSSIBLE * l->k * d->n_groups)
		d->cost = INFINITY;
}

/* ---- two divisions --------------------------------------------------------------------------- */

/* The time that each stream's transfers would take; NAN: no such event. */
static void find_transfers(struct pl_likelihood *l, const struct pl_division *d, double *took)
{
	uint32_t joins;
	size_t n;

	fit_offsets(l, d, &joins);
	for (uint32_t g = 0; g < d->n_groups; g++)
		for (uint32_t k = 0; k < l->k; k++) {
			double last = last_start(l, g, k, &n);

			for (uint32_t i = l->member0[g]; i < l->member0[g + 1]; i++) {
				size_t cell = (size_t)l->member[i] * l->k + k;

				took[cell] = aligned(l, l->member[i], l->end[cell]) - last;
			}
		}
}

bool pl_clock_likelihood_differs(struct pl_likelihood *l, const struct pl_division *x,
				 const struct pl_division *y, double *took, bool known)
{
	size_t cells = (size_t)l->n * l->k;
	double *other = took + cells;

	if (!known)
		find_transfers(l, x, took);
	find_transfers(l, y, other);
	for (size_t i = 0; i < cells; i++)
		if (fabs(took[i] - other[i]) > MATTERS_US)
			return true;
	return false;
}
