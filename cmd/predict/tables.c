/* Reading tables of measurements. */
#include <math.h>

#include "core/progress.h"
#include "program.h"

int find_table_devices(struct work *w, struct pl_err *err)
{
	static const char option[] = "--device";
	const size_t n = sizeof(option) - 1;
	const char *device = NULL;
	bool used = true;
	int table = 0;

	PL_CHECK(pl_alloc(&w->device, (size_t)w->argc + 1, sizeof(*w->device), err));
	for (int i = 1; i < w->c->c.argc; i++) {
		char *s = w->c->c.typed[i];

		if (table < w->argc && s == w->argv[table]) {
			w->device[table++] = device;
			used = true;
		} else if (!strncmp(s, option, n) && (s[n] == '=' || !s[n])) {
			if (!used)
				return pl_fail(err, PL_EUSAGE,
					       "--device=%s holds for no table: another --device "
					       "follows",
					       device);
			device = s[n] ? s + n + 1 : w->c->c.typed[i + 1];
			used = false;
		}
	}
	if (table < w->argc) { /* standard input, which is no operand */
		w->device[table] = device;
		used = true;
	}
	if (!used && !w->c->adapt)
		return pl_fail(err, PL_EUSAGE,
			       "--device=%s stands behind the last table; it holds for the tables "
			       "after it",
			       device);
	return 0;
}

struct adder {
	const struct work *w;
	struct pl_samples *s;
	int64_t unknown, line; /* line, column: of the first latency */
	uint32_t column;
};

/* ---- units ----------------------------------------------------------------------------------- */

#define LAUNCH_NS 8000 /* what an operation takes at least, about; */
#define CALL_NS	  1000 /* on a processor, which launches nothing */
#define FAR_OFF	  31.6 /* the square root of 1000 */

/* What the data sheets allow at least; NAN: they do not say. */
static double allowed(const struct pl_samples *s, const struct pl_sample *x)
{
	const struct pl_device *d = &s->devices.v[x->device];
	float features[PL_FEATURES];
	struct pl_physics p;
	struct pl_rates r;

	pl_feature_rates_init(&r);
	if (!x->known || x->k.family == PL_KERNEL_OTHER || !(x->ns > 0))
		return NAN;
	pl_kernel_features(&x->k, d, &r, (struct pl_tile){ 0 }, &p, features);
	return (d->cpu > 0 ? CALL_NS : LAUNCH_NS) + fmax(p.compute_ns, p.memory_ns);
}

/* Latencies that are about 1000 times what the device allows, or a thousandth, have another unit.
 */
static int check_unit(const struct adder *a, const char *path, size_t first, struct pl_err *err)
{
	const struct pl_samples *s = a->s;
	const struct work *w = a->w;
	double *ratio, median = 1;
	size_t n = 0;

	if (w->unit_ns > 0)
		return 0;
	PL_CHECK(pl_alloc(&ratio, s->n - first + 1, sizeof(*ratio), err));
	for (size_t i = first; i < s->n; i++) {
		double least = allowed(s, &s->v[i]);

		if (least > 0)
			ratio[n++] = (double)s->v[i].ns / least;
	}
	if (n)
		median = pl_median_double(ratio, n);
	pl_free(ratio);
	if (median < FAR_OFF && median > 1 / FAR_OFF)
		return 0;
	return pl_fail(err, PL_EDATA,
		       "%s: from line %lld on, column %u: half of the latencies are %s %.3g times "
		       "what the data sheet of %s allows, so they seem to be in another unit than "
		       "the schema %s says; --unit=ns, us, ms or s says which",
		       path, (long long)a->line, a->column, median < 1 ? "below" : "above", median,
		       s->devices.v[s->v[s->n - 1].device].name, pl_schema_name(w->schema));
}

/* ---- reading --------------------------------------------------------------------------------- */

static int add_measure(void *arg, const struct pl_measure *m, const struct pl_csv_row *raw,
		       struct pl_err *err)
{
	struct adder *a = arg;

	(void)raw;
	a->unknown += !m->known;
	if (!a->line) {
		a->line = m->line;
		a->column = m->column;
	}
	return pl_samples_add(a->s, m, &a->w->devices, err);
}

int read_table(const struct work *w, const char *path, const char *device, struct pl_samples *s,
	       struct pl_err *err)
{
	struct adder a = { .w = w, .s = s };
	const struct pl_measure_opts o = { .schema = w->schema,
					   .devices = &w->devices,
					   .device = device,
					   .unit_ns = w->unit_ns,
					   .measured = true,
					   .log = &w->c->c.log,
					   .arg = &a,
					   .measure = add_measure };
	size_t first = s->n;
	struct pl_in *in;
	int rc;

	pl_progress("reading %s", path);
	in = pl_in_open_any(path, err);
	if (!in)
		return err->code;
	rc = pl_table_read(in, &o, err);
	pl_in_close(in);
	if (rc >= 0 && a.unknown)
		pl_say(&w->c->c.log, PL_LOG_WARN,
		       "%s: %lld measurements of operations that the schema %s does not know are "
		       "left out",
		       path, (long long)a.unknown, pl_schema_name(w->schema));
	return rc < 0 ? rc : check_unit(&a, path, first, err);
}

int read_tables(const struct work *w, struct pl_samples *s, struct pl_err *err)
{
	for (int i = 0; i < w->argc; i++)
		PL_CHECK(read_table(w, w->argv[i], w->device[i], s, err));
	if (!s->n)
		return pl_fail(err, PL_EDATA, "the tables hold no measurement");
	return 0;
}
