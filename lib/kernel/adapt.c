/*
 * Adapting a model to a device of which little was measured.
 *
 * Short operations show the floor, long ones how much slower or faster the device is than its data
 * sheet says. A part that was measured n times gets the median of its n errors, drawn towards that
 * of the whole device as if PRIOR errors more had it: few measurements move a part little. Of k
 * measured parts the median of the device is taken k / (k + 1) times: parts differ about as much as
 * devices do, so what one operation shows holds half for the others.
 *
 * The floors and offsets of the training are kept. A second adaptation to the same device begins
 * with them: medians drawn from medians would draw less and less, and the same measurements would
 * count twice.
 */
#include <math.h>

#include "kernel/model_internal.h"

#define PRIOR	     1.5
#define ADAPT_ENOUGH 20

struct adapt {
	struct pl_kernel_model *m;
	const struct pl_samples *s;
	uint32_t device; /* of the model */
	struct pl_kernel_time *t;
	size_t *part;  /* [sample]; SIZE_MAX: none */
	double *error; /* [sample]: log(measured / predicted) */
	double *left;  /* room */
	/* [2 * part + 1 if short, else + 0]: errors, sorted; behind the parts those of all together
	 */
	struct sorted {
		double *v;
		size_t n;
	} * sorted;
	double *room;	 /* of sorted[].v */
	size_t parts[2]; /* [short]: parts that have measurements */
	size_t ops[2];	 /* parts of operations: all of them, and those that have measurements */
};

static bool is_short(const struct adapt *a, size_t i)
{
	return a->t[i].ns < 2 * a->t[i].floor_ns;
}

/* ---- what the training found ----------------------------------------------------------------- */

int pl_kernel_find_trained(struct pl_kernel_model *m, struct pl_err *err)
{
	size_t n = m->devices.n;

	pl_free(m->trained_on);
	PL_CHECK(pl_alloc(&m->trained_on, n + 1, sizeof(*m->trained_on), err));
	for (size_t k = 0; k < m->n_parts * n; k++)
		m->trained_on[k % n] |= !isnan(m->trained[k].floor);
	return 0;
}

/* Keep it, or make the levels of this device what they were. */
static int begin_as_trained(struct pl_kernel_model *m, const char *device, struct pl_err *err)
{
	uint32_t d = pl_device_named(&m->devices, device);
	size_t n = m->devices.n;

	if (!m->trained) {
		PL_CHECK(pl_alloc(&m->trained, m->n_parts * n + 1, sizeof(*m->trained), err));
		for (size_t i = 0; i < m->n_parts; i++)
			for (size_t k = 0; k < n; k++)
				m->trained[i * n + k] = (struct level){ m->part[i].device_floor[k],
									m->part[i].offset[k] };
		return pl_kernel_find_trained(m, err);
	}
	for (size_t i = 0; i < m->n_parts && d != PL_NONE; i++) {
		m->part[i].device_floor[d] = m->trained[i * n + d].floor;
		m->part[i].offset[d] = m->trained[i * n + d].offset;
	}
	return 0;
}

/* The training has seen nothing of the device that is number `n`, and the last one. */
static int add_trained(struct pl_kernel_model *m, size_t n, struct pl_err *err)
{
	struct level *more;

	PL_CHECK(pl_alloc(&more, m->n_parts * (n + 1) + 1, sizeof(*more), err));
	for (size_t i = 0; i < m->n_parts; i++) {
		memcpy(more + i * (n + 1), m->trained + i * n, n * sizeof(*more));
		more[i * (n + 1) + n] = (struct level){ NAN, 0 };
	}
	pl_free(m->trained);
	m->trained = more;
	return pl_kernel_find_trained(m, err);
}

/* ---- levels of the device -------------------------------------------------------------------- */

/* Make room for one more device in each part. */
static int add_device(struct adapt *a, const struct pl_device *d, struct pl_err *err)
{
	struct pl_kernel_model *m = a->m;
	struct quantiles *adapted;
	size_t n = m->devices.n;

	a->device = pl_device_named(&m->devices, d->name);
	if (a->device == PL_NONE) {
		PL_CHECK(pl_device_copy(&m->devices, d, &a->device, err));
		for (size_t i = 0; i < m->n_parts; i++) {
			struct part *p = &m->part[i];
			double *floor, *offset;

			PL_CHECK(pl_alloc(&floor, n + 2, sizeof(*floor), err));
			memcpy(floor, p->device_floor, n * sizeof(*floor));
			pl_free(p->device_floor);
			p->device_floor = floor;
			floor[n] = NAN;
			PL_CHECK(pl_alloc(&offset, n + 2, sizeof(*offset), err));
			memcpy(offset, p->offset, n * sizeof(*offset));
			pl_free(p->offset);
			p->offset = offset;
		}
		PL_CHECK(add_trained(m, n, err));
	}
	PL_CHECK(pl_alloc(&adapted, m->devices.n + 1, sizeof(*adapted), err));
	if (m->adapted)
		memcpy(adapted, m->adapted, n * sizeof(*adapted));
	pl_free(m->adapted);
	m->adapted = adapted;
	return 0;
}

static int sort_errors(struct adapt *a, struct pl_err *err)
{
	size_t all = a->m->n_parts, n_groups = 2 * all + 2;
	double *at;

	PL_CHECK(pl_alloc(&a->sorted, n_groups, sizeof(*a->sorted), err));
	PL_CHECK(pl_alloc(&a->room, 2 * a->s->n + 1, sizeof(*a->room), err));
	for (size_t i = 0; i < a->s->n; i++) {
		if (a->part[i] == SIZE_MAX)
			continue;
		a->error[i] = log((double)a->s->v[i].ns / a->t[i].ns);
		a->sorted[2 * a->part[i] + is_short(a, i)].n++;
		a->sorted[2 * all + is_short(a, i)].n++;
	}
	at = a->room;
	for (size_t k = 0; k < n_groups; k++) {
		a->sorted[k].v = at;
		at += a->sorted[k].n;
		a->sorted[k].n = 0;
	}
	for (size_t i = 0; i < a->s->n; i++)
		for (int k = 0; k < 2 && a->part[i] != SIZE_MAX; k++) {
			struct sorted *g = &a->sorted[2 * (k ? all : a->part[i]) + is_short(a, i)];

			g->v[g->n++] = a->error[i];
		}
	for (size_t k = 0; k < n_groups; k++)
		pl_sort(a->sorted[k].v, a->sorted[k].n, sizeof(double), pl_compare_double);
	return 0;
}

/* Where the sorted errors have this one. */
static size_t place_of(const struct sorted *g, double error)
{
	size_t low = 0, high = g->n;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (g->v[middle] < error)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

/* The median error without that of sample `but`, which is one of them (SIZE_MAX: of all); 0 without
 * errors. *n: how many. */
static double median_error(const struct adapt *a, const struct sorted *g, size_t but, size_t *n)
{
	size_t gap = but == SIZE_MAX ? g->n : place_of(g, a->error[but]), high, low;

	*n = g->n - (but != SIZE_MAX);
	if (!*n)
		return 0;
	high = *n / 2;
	low = high - (*n % 2 == 0);
	return (g->v[low + (low >= gap)] + g->v[high + (high >= gap)]) / 2;
}

/* Measurements are of the part of a family only where an operation has none of its own, so parts of
 * families are no operations that could have been measured, unless there are no others. */
static void count_parts(struct adapt *a)
{
	bool families = true;

	for (size_t i = 0; i < a->m->n_parts; i++)
		families = families && a->m->part[i].op == PL_NONE;
	for (size_t i = 0; i < a->m->n_parts; i++) {
		bool has[2] = { a->sorted[2 * i].n > 0, a->sorted[2 * i + 1].n > 0 };

		a->parts[0] += has[0];
		a->parts[1] += has[1];
		if (!families && a->m->part[i].op == PL_NONE)
			continue;
		a->ops[0]++;
		a->ops[1] += has[0] || has[1];
	}
}

static double drawn(const struct adapt *a, size_t part, bool shorter, size_t but)
{
	size_t n, all;
	double parts = (double)a->parts[shorter];
	double device = median_error(a, &a->sorted[2 * a->m->n_parts + shorter], but, &all) *
			parts / (parts + 1);
	double own = median_error(a, &a->sorted[2 * part + shorter], but, &n);

	return ((double)n * own + PRIOR * device) / ((double)n + PRIOR);
}

static void set_parts(struct adapt *a)
{
	for (size_t i = 0; i < a->m->n_parts; i++) {
		struct part *p = &a->m->part[i];
		double floor_by = drawn(a, i, true, SIZE_MAX);
		double by = drawn(a, i, false, SIZE_MAX);

		if (isnan(p->device_floor[a->device]))
			p->device_floor[a->device] = p->floor_ns;
		/* the learned factor multiplies the floor too: what it gets twice is taken back */
		p->device_floor[a->device] *= exp(floor_by - by);
		p->offset[a->device] += by;
	}
}

/* What each sample would be off if it had not been there. Where most operations were not measured,
 * their errors are those of a device that was not. */
static void find_interval(struct adapt *a)
{
	const struct quantiles other =
		a->m->other.all.n ? a->m->other.all : pl_interval_of_others(&a->m->known.all);
	struct quantiles *q = &a->m->adapted[a->device];
	double *left = a->left;
	size_t n = 0;

	for (size_t i = 0; i < a->s->n; i++)
		if (a->part[i] != SIZE_MAX)
			left[n++] = a->error[i] - drawn(a, a->part[i], is_short(a, i), i);
	*q = other;
	if (n < ADAPT_ENOUGH)
		return;
	*q = pl_interval_quantiles(left, n);
	if (2 * a->ops[1] < a->ops[0])
		pl_interval_widen(q, &other);
}

int pl_kernel_adapt(struct pl_kernel_model *m, const struct pl_samples *s, struct pl_err *err)
{
	struct adapt a = { .m = m, .s = s };
	size_t known = 0;
	int rc;

	PL_TRY(pl_alloc(&a.t, s->n + 1, sizeof(*a.t), err));
	PL_TRY(pl_alloc(&a.part, s->n + 1, sizeof(*a.part), err));
	PL_TRY(pl_alloc(&a.error, s->n + 1, sizeof(*a.error), err));
	PL_TRY(pl_alloc(&a.left, s->n + 1, sizeof(*a.left), err));
	PL_TRY(begin_as_trained(m, s->devices.v[s->v[0].device].name, err));
	PL_TRY(pl_kernel_apply(m, s, s->v, s->n, a.t, err));
	for (size_t i = 0; i < s->n; i++) {
		const struct pl_sample *x = &s->v[i];
		pl_id op = pl_intern_find(&m->op, s->op.str[x->k.op], s->op.len[x->k.op]);
		const struct part *p =
			x->known ? pl_kernel_part(m, op, x->k.family, x->k.type) : NULL;

		if (x->device != s->v[0].device)
			PL_TRY(pl_fail(err, PL_EDATA,
				       "measurements of two devices, %s and %s: adapt the model to "
				       "one after the other",
				       s->devices.v[s->v[0].device].name,
				       s->devices.v[x->device].name));
		a.part[i] = p && a.t[i].ns > 0 && x->ns > 0 ? (size_t)(p - m->part) : SIZE_MAX;
		known += a.part[i] != SIZE_MAX;
	}
	PL_TRY(known ? 0
		     : pl_fail(err, PL_EDATA, "the model predicts none of the %zu measurements",
			       s->n));
	PL_TRY(add_device(&a, &s->devices.v[s->v[0].device], err));
	PL_TRY(sort_errors(&a, err));
	count_parts(&a);
	find_interval(&a);
	set_parts(&a);
out:
	pl_free(a.t);
	pl_free(a.part);
	pl_free(a.error);
	pl_free(a.left);
	pl_free(a.sorted);
	pl_free(a.room);
	return rc;
}
