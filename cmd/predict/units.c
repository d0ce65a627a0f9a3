/*
 * Are the latencies of a table in the unit that the schema says?
 *
 * Each latency is compared with the time that the data sheet of its device allows at least. These
 * ratios are alike for most operations and sizes, so latencies in another unit stand apart by a
 * factor of 1000 or a million: all of a table or of a device, all of an operation, or a part of
 * them. Slow measurements also stand apart, but by other factors, and with others between them.
 * Links are up to 10,000 times as fast as others, and no data sheet says how fast they are, so
 * communication has no such ratios.
 */
#include <math.h>

#include "program.h"

#define LAUNCH_NS 8000 /* what an operation takes at least, about; */
#define CALL_NS	  1000 /* on a processor, which launches nothing */

/* Powers of ten. Of the tables that were looked at, an operation was up to 1.8 from the median of
 * its device, and 2 % of an operation were 2.7 from the others. */
#define FAR_OFF	  1.5  /* halfway to another unit */
#define OPERATION 0.5  /* an operation in another unit is this near to a factor of 1000 */
#define CENTRE	  0.5  /* the middle of a part in another unit is this near to the others */
#define VALLEY	  0.25 /* on each side of halfway there is next to nothing */
#define FEWEST	  3    /* latencies of another unit */
#define PART	  0.05 /* their least share of the latencies of the group */

static const double times[] = { -3, 3, -6, 6 };

struct ratio {
	double ten; /* the power of ten: measured by allowed */
	uint32_t device, op;
	size_t at; /* sample */
};

struct units {
	const struct pl_samples *s;
	const struct work *w;
	const struct place *place;
	const char *path;
	size_t first;
	struct ratio *v;
	size_t n;
};

/* What the data sheets allow at least; NAN: they do not say. */
static double allowed(const struct pl_samples *s, const struct pl_sample *x)
{
	const struct pl_device *d = &s->devices.v[x->device];
	float features[PL_FEATURES];
	struct pl_physics p;
	struct pl_rates r;

	pl_feature_rates_init(&r);
	if (!x->known || x->k.family == PL_KERNEL_OTHER || pl_kernel_is_comm(x->k.family) ||
	    !(x->ns > 0))
		return NAN;
	pl_kernel_features(&x->k, d, &r, (struct pl_tile){ 0 }, &p, features);
	return (d->cpu > 0 ? CALL_NS : LAUNCH_NS) + fmax(p.compute_ns, p.memory_ns);
}

static int find_ratios(struct units *u, struct pl_err *err)
{
	PL_CHECK(pl_alloc(&u->v, u->s->n - u->first + 1, sizeof(*u->v), err));
	for (size_t i = u->first; i < u->s->n; i++) {
		const struct pl_sample *x = &u->s->v[i];
		double least = allowed(u->s, x);

		if (least > 0)
			u->v[u->n++] = (struct ratio){ log10((double)x->ns / least), x->device,
						       x->k.op, i };
	}
	return 0;
}

/* ---- messages -------------------------------------------------------------------------------- */

static const char *unit_of(const struct units *u)
{
	return pl_schema_name(u->w->schema);
}

/* The place of the first of these latencies in the table. */
static struct place first_of(const struct units *u, const struct ratio *v, size_t n)
{
	size_t at = v->at;

	for (size_t i = 1; i < n; i++)
		at = v[i].at < at ? v[i].at : at;
	return u->place[at - u->first];
}

static int all_off(const struct units *u, const struct ratio *v, size_t n, double ten,
		   struct pl_err *err)
{
	struct place p = first_of(u, v, n);

	return pl_fail(err, PL_EDATA,
		       "%s: from line %lld on, column %u: half of the latencies are %s %.3g times "
		       "what the data sheet of %s allows, so they seem to be in another unit than "
		       "the schema %s says; --unit=ns, us, ms or s says which",
		       u->path, (long long)p.line, p.column, ten < 0 ? "below" : "above",
		       pow(10, ten), u->s->devices.v[v->device].name, unit_of(u));
}

/* n of so many latencies, all of them of one operation (op) or of any. */
static int some_off(const struct units *u, const struct ratio *v, size_t n, size_t of, bool op,
		    double ten, struct pl_err *err)
{
	struct place p = first_of(u, v, n);
	char what[120] = "", number[64];

	snprintf(number, sizeof(number), n == of ? "all %zu" : "%zu among %zu", n, of);
	if (op)
		snprintf(what, sizeof(what), " of \"%.80s\"", pl_intern_get(&u->s->op, v->op));
	return pl_fail(err, PL_EDATA,
		       "%s: line %lld, column %u: this latency is the first of %s%s on "
		       "%s that are about %s as long as the others, for what the data sheet "
		       "allows, so the table seems to mix units; convert them, or --unit=ns, us, "
		       "ms or s says that all have one unit",
		       u->path, (long long)p.line, p.column, number, what,
		       u->s->devices.v[v->device].name,
		       ten == 3	   ? "1000 times"
		       : ten == -3 ? "a thousandth"
		       : ten > 0   ? "a million times"
				   : "a millionth");
}

/* ---- groups ---------------------------------------------------------------------------------- */

PL_COMPARATOR(by_ratio, struct ratio, ten, at);
PL_COMPARATOR(by_device, struct ratio, device, ten, at);
PL_COMPARATOR(by_op, struct ratio, device, op, ten, at);

/* One of them: in the middle between two units there is none. */
static double middle(const struct ratio *v, size_t n)
{
	return v[(n - 1) / 2].ten;
}

/* Those from low to high: the first, and *n. */
static const struct ratio *within(const struct ratio *v, size_t of, double low, double high,
				  size_t *n)
{
	size_t first = 0, end = 0;

	PL_LOWER_BOUND(first, of, v[first].ten < low);
	PL_LOWER_BOUND(end, of, v[end].ten <= high);
	*n = end - first;
	return v + first;
}

/* Is a part of the ratios, in ascending order, those of another unit? */
static int check_mixed(const struct units *u, const struct ratio *v, size_t of, bool op,
		       struct pl_err *err)
{
	double m = middle(v, of), half;
	size_t n, between;
	const struct ratio *part = within(v, of, m - FAR_OFF, m + FAR_OFF, &n);

	m = middle(part, n);
	for (size_t i = 0; i < PL_LEN(times); i++) {
		half = m + (times[i] > 0 ? FAR_OFF : -FAR_OFF);
		within(v, of, half - VALLEY, half + VALLEY, &between);
		part = within(v, of, m + times[i] - FAR_OFF, m + times[i] + FAR_OFF, &n);
		if (n >= FEWEST && (double)n >= PART * (double)of && 4 * between < n &&
		    fabs(middle(part, n) - times[i] - m) <= CENTRE)
			return some_off(u, part, n, of, op, times[i], err);
	}
	return 0;
}

/* The latencies of a device. */
static int check_device(const struct units *u, const struct ratio *v, size_t n, struct pl_err *err)
{
	double m = middle(v, n);

	return n >= FEWEST && fabs(m) >= FAR_OFF ? all_off(u, v, n, m, err) : 0;
}

/* The latencies of an operation on a device, whose middle is m. */
static int check_op(const struct units *u, const struct ratio *v, size_t n, double m,
		    struct pl_err *err)
{
	PL_CHECK(check_mixed(u, v, n, true, err));
	for (size_t i = 0; n >= FEWEST && i < PL_LEN(times); i++)
		if (fabs(middle(v, n) - m - times[i]) < OPERATION)
			return some_off(u, v, n, n, true, times[i], err);
	return 0;
}

static size_t run_length(const struct ratio *v, size_t n, bool op)
{
	size_t k = 1;

	while (k < n && v[k].device == v->device && (!op || v[k].op == v->op))
		k++;
	return k;
}

static int check_groups(struct units *u, struct pl_err *err)
{
	double *device; /* [device]: the middle */
	size_t n;
	int rc = 0;

	PL_CHECK(pl_alloc(&device, u->s->devices.n, sizeof(*device), err));
	pl_sort(u->v, u->n, sizeof(*u->v), by_device);
	for (size_t i = 0; i < u->n; i += n) {
		n = run_length(u->v + i, u->n - i, false);
		device[u->v[i].device] = middle(u->v + i, n);
		PL_TRY(check_device(u, u->v + i, n, err));
	}
	pl_sort(u->v, u->n, sizeof(*u->v), by_op);
	for (size_t i = 0; i < u->n; i += n) {
		n = run_length(u->v + i, u->n - i, true);
		PL_TRY(check_op(u, u->v + i, n, device[u->v[i].device], err));
	}
	/* few latencies of each operation: those of a device together */
	pl_sort(u->v, u->n, sizeof(*u->v), by_device);
	for (size_t i = 0; i < u->n; i += n) {
		n = run_length(u->v + i, u->n - i, false);
		PL_TRY(check_mixed(u, u->v + i, n, false, err));
	}
out:
	pl_free(device);
	return rc;
}

int check_units(const struct work *w, const char *path, const struct pl_samples *s, size_t first,
		const struct place *place, struct pl_err *err)
{
	struct units u = { .s = s, .w = w, .place = place, .path = path, .first = first };
	int rc;

	/* what run(1) wrote has one unit, and may be slow for any reason */
	if (w->unit_ns > 0 || !strcmp(pl_schema_name(w->schema), "run"))
		return 0;
	rc = find_ratios(&u, err);
	if (rc == 0 && u.n) {
		pl_sort(u.v, u.n, sizeof(*u.v), by_ratio);
		if (fabs(middle(u.v, u.n)) >= FAR_OFF)
			rc = all_off(&u, u.v, u.n, middle(u.v, u.n), err);
		else
			rc = check_groups(&u, err);
	}
	pl_free(u.v);
	return rc;
}
