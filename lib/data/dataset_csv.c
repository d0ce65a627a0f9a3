/*
 * Samples from CSV: a header line with the names of the columns, then a line for each sample.
 *
 * Labels may be whole numbers or words; words become classes in alphabetical order, so that the
 * order of the lines does not matter. Linear, but for the sort of the words.
 */
#include <math.h>

#include "data/internal.h"
#include "io/csv.h"

#define COLUMNS_MAX 65536

enum role { R_VALUE, R_LABEL, R_TARGET };

struct reader {
	const struct pl_data_parts *p;
	struct pl_dataset *d;
	const char *file;
	struct pl_intern column, label;
	uint8_t *role;
	size_t n_columns;
	size_t cap_x, cap_y, cap_target; /* in values */
	bool header;
};

/* The role that part i of the description gives to a column; *name: the column, NULL: none. */
static enum role role_of_part(const struct pl_data_parts *p, size_t i, const char **name)
{
	*name = pl_data_parts_value(p, i, "label");
	if (*name)
		return R_LABEL;
	*name = pl_data_parts_value(p, i, "target");
	return R_TARGET;
}

static int check_parts(const struct pl_data_parts *p, struct pl_err *err)
{
	bool label = false, target = false;

	for (size_t i = 1; i < p->n; i++) {
		const char *name;
		enum role r = role_of_part(p, i, &name);

		if (!name || !*name)
			return pl_fail(err, PL_EUSAGE,
				       "data csv: \"%.100s\" is no label=COLUMN or target=COLUMN",
				       p->part[i]);
		if (r == R_LABEL ? label || target : label)
			return pl_fail(err, PL_EUSAGE,
				       "data csv: one label, or one or more targets, not both");
		label = label || r == R_LABEL;
		target = target || r == R_TARGET;
	}
	if (!*p->part[0])
		return pl_fail(err, PL_EUSAGE, "data csv: needs a file, as in csv:FILE");
	return 0;
}

/* ---- the header ------------------------------------------------------------------------------ */

static int give_roles(struct reader *r, const struct pl_csv_row *row, struct pl_err *err)
{
	for (size_t i = 1; i < r->p->n; i++) {
		const char *name;
		enum role role = role_of_part(r->p, i, &name);
		pl_id c = pl_intern_find(&r->column, name, strlen(name));

		if (c == PL_NONE)
			return pl_fail(err, PL_EDATA,
				       "%s: line %lld: no column \"%.100s\" in the header", r->file,
				       (long long)row->line, name);
		r->role[c] = (uint8_t)role;
	}
	if (r->p->n == 1)
		r->role[r->n_columns - 1] = R_LABEL;
	return 0;
}

static int read_header(struct reader *r, const struct pl_csv_row *row, struct pl_err *err)
{
	struct pl_dataset *d = r->d;

	if (row->n < 2 || row->n > COLUMNS_MAX)
		return pl_fail(err, PL_EDATA,
			       "%s: line %lld: %zu columns; 2 to %d are read, a label or target "
			       "among them",
			       r->file, (long long)row->line, row->n, COLUMNS_MAX);
	for (size_t i = 0; i < row->n; i++) {
		pl_id id;

		PL_CHECK(pl_intern_add(&r->column, row->field[i], row->len[i], &id, err));
		if (id != i)
			return pl_fail(err, PL_EDATA,
				       "%s: line %lld: two columns are named \"%.100s\"", r->file,
				       (long long)row->line, row->field[i]);
	}
	r->n_columns = row->n;
	PL_CHECK(pl_alloc(&r->role, row->n, 1, err));
	PL_CHECK(give_roles(r, row, err));
	d->n_dims = 1;
	for (size_t i = 0; i < row->n; i++) {
		d->dim[0] += r->role[i] == R_VALUE;
		d->n_targets += r->role[i] == R_TARGET;
		if (r->role[i] != R_LABEL) {
			uint64_t so_far[] = { d->columns, pl_hash(row->field[i], row->len[i]),
					      r->role[i] };

			d->columns = pl_hash(so_far, sizeof(so_far));
		}
	}
	if (!d->dim[0])
		return pl_fail(err, PL_EDATA, "%s: line %lld: no column is left to learn from",
			       r->file, (long long)row->line);
	pl_dataset_size(d);
	r->header = true;
	return 0;
}

/* ---- samples --------------------------------------------------------------------------------- */

static int number(const struct reader *r, const struct pl_csv_row *row, size_t i, float *out,
		  struct pl_err *err)
{
	double v;

	if (!pl_decimal(row->field[i], &v) || !isfinite((float)v))
		return pl_fail(err, PL_EDATA,
			       "%s: line %lld: column %zu (%.64s): \"%.64s\" is no number", r->file,
			       (long long)row->line, i + 1, pl_intern_get(&r->column, (pl_id)i),
			       row->field[i]);
	*out = (float)v;
	return 0;
}

static int room(struct reader *r, struct pl_err *err)
{
	struct pl_dataset *d = r->d;

	if ((d->n + 1) * d->size > PL_VALUES_MAX)
		return pl_fail(err, PL_ELIMIT, "%s: more than %zu values", r->file, PL_VALUES_MAX);
	PL_CHECK(pl_grow(&d->x, &r->cap_x, (d->n + 1) * d->size, sizeof(*d->x), err));
	if (d->n_targets)
		PL_CHECK(pl_grow(&d->target, &r->cap_target, (d->n + 1) * (size_t)d->n_targets,
				 sizeof(*d->target), err));
	else
		PL_CHECK(pl_grow(&d->y, &r->cap_y, d->n + 1, sizeof(*d->y), err));
	return 0;
}

static int read_sample(struct reader *r, const struct pl_csv_row *row, struct pl_err *err)
{
	struct pl_dataset *d = r->d;
	float *x, *t;
	pl_id id;

	if (row->n != r->n_columns)
		return pl_fail(err, PL_EDATA,
			       "%s: line %lld: %zu columns, where the header has %zu", r->file,
			       (long long)row->line, row->n, r->n_columns);
	PL_CHECK(room(r, err));
	x = d->x + d->n * d->size;
	t = d->target ? d->target + d->n * (size_t)d->n_targets : NULL;
	for (size_t i = 0; i < row->n; i++) {
		if (r->role[i] == R_VALUE) {
			PL_CHECK(number(r, row, i, x++, err));
		} else if (r->role[i] == R_TARGET) {
			PL_CHECK(number(r, row, i, t++, err));
		} else {
			PL_CHECK(pl_intern_add(&r->label, row->field[i], row->len[i], &id, err));
			if (id >= PL_CLASSES_MAX || !row->len[i])
				return pl_fail(err, PL_EDATA,
					       "%s: line %lld: %s; is the column a target?",
					       r->file, (long long)row->line,
					       row->len[i] ? "more labels than classes are read"
							   : "an empty label");
			d->y[d->n] = (int32_t)id;
		}
	}
	d->n++;
	return 0;
}

static int on_row(void *arg, const struct pl_csv_row *row, struct pl_err *err)
{
	struct reader *r = arg;

	for (size_t i = 0; i < row->n; i++)
		if (memchr(row->field[i], 0,
			   row->len[i])) /* a string ends at NUL, so the rest would be lost */
			return pl_fail(
				err, PL_EDATA,
				"%s: line %lld: column %zu holds the byte 0; this is no text",
				r->file, (long long)row->line, i + 1);
	return r->header ? read_sample(r, row, err) : read_header(r, row, err);
}

/* ---- classes --------------------------------------------------------------------------------- */

/* If all labels are whole numbers in range, they are the classes. */
static bool numeric(const struct reader *r, int32_t *class)
{
	for (pl_id i = 0; i < r->label.n; i++) {
		double v;

		if (!pl_decimal(pl_intern_get(&r->label, i), &v) || v < 0 || v >= PL_CLASSES_MAX ||
		    v != floor(v))
			return false;
		class[i] = (int32_t)v;
	}
	return true;
}

/* Number the words in alphabetical order. */
static int name_classes(struct reader *r, int32_t *class, struct pl_err *err)
{
	struct pl_dataset *d = r->d;
	size_t n = r->label.n;

	PL_CHECK(pl_alloc(&d->word, n, sizeof(*d->word), err));
	d->n_words = n;
	for (pl_id i = 0; i < n; i++)
		PL_CHECK(pl_dup(NULL, &d->word[i], pl_intern_get(&r->label, i), err));
	pl_sort(d->word, n, sizeof(*d->word), pl_compare_str);
	for (size_t i = 0; i < n; i++)
		class[pl_intern_find(&r->label, d->word[i], strlen(d->word[i]))] = (int32_t)i;
	return 0;
}

static int make_classes(struct reader *r, struct pl_err *err)
{
	struct pl_dataset *d = r->d;
	int32_t *class = NULL;
	int rc;

	PL_TRY(pl_alloc(&class, r->label.n, sizeof(*class), err));
	if (!numeric(r, class))
		PL_TRY(name_classes(r, class, err));
	for (size_t i = 0; i < d->n; i++) {
		d->y[i] = class[d->y[i]];
		d->classes = d->y[i] >= d->classes ? d->y[i] + 1 : d->classes;
	}
out:
	pl_free(class);
	return rc;
}

int pl_dataset_csv(const struct pl_data_parts *p, struct pl_dataset *d, struct pl_err *err)
{
	struct reader r = { .p = p, .d = d, .file = p->part[0] };
	struct pl_in *in;
	int rc;

	PL_CHECK(check_parts(p, err));
	in = pl_in_open_any(r.file, err);
	if (!in)
		return err->code;
	rc = pl_csv_read(in, on_row, &r, err);
	pl_in_close(in);
	if (rc >= 0 && !d->n)
		rc = pl_fail(err, PL_EDATA, "%s: no samples; a header line and samples are read",
			     r.file);
	if (rc >= 0 && d->y)
		rc = make_classes(&r, err);
	pl_intern_fini(&r.column);
	pl_intern_fini(&r.label);
	pl_free(r.role);
	return rc;
}
