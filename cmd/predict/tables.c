/* Reading tables of measurements. */
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
	if (!used && !w->c->adapt.n)
		return pl_fail(err, PL_EUSAGE,
			       "--device=%s stands behind the last table; it holds for the tables "
			       "after it",
			       device);
	return 0;
}

struct adder {
	const struct work *w;
	struct pl_samples *s;
	struct names names;	       /* that the schema does not know */
	int64_t unknown, unknown_line; /* the first one's */
	struct place *place;	       /* of each latency in the table */
	size_t n_places, cap_places;
};

/* ---- reading --------------------------------------------------------------------------------- */

static int add_measure(void *arg, const struct pl_measure *m, const struct pl_csv_row *raw,
		       struct pl_err *err)
{
	struct adder *a = arg;
	const struct place place = { m->line, m->column };

	(void)raw;
	if (!m->known) {
		a->unknown_line = a->unknown++ ? a->unknown_line : m->line;
		PL_CHECK(names_add(&a->names, m->op, 0, err));
	}
	PL_CHECK(pl_append(&a->place, &a->n_places, &a->cap_places, &place, sizeof(place), err));
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
	char text[NAMES_TEXT];
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
		       "left out: %s, from line %lld on",
		       path, (long long)a.unknown, pl_schema_name(w->schema),
		       names_text(&a.names, text, sizeof(text)), (long long)a.unknown_line);
	names_fini(&a.names);
	if (rc >= 0)
		rc = check_units(w, path, s, first, a.place, err);
	pl_free(a.place);
	return rc;
}

int read_tables(const struct work *w, struct pl_samples *s, struct pl_err *err)
{
	for (int i = 0; i < w->argc; i++)
		PL_CHECK(read_table(w, w->argv[i], w->device[i], s, err));
	if (!s->n && w->argc > 1)
		return pl_fail(err, PL_EDATA, "%s and the other tables hold no measurement",
			       w->argv[0]);
	if (!s->n)
		return pl_fail(err, PL_EDATA, "%s holds no measurement", w->argv[0]);
	return 0;
}
