/*
 * Tables of measurements, read by a schema.
 *
 * When the header of a table is known, each expression of the schema becomes a program over
 * numbered values: the columns that some expression needs, and the variables. Expressions that need
 * a column which the table lacks are left out with their operation; an operation that occurs and
 * was left out is an error that names the column. Linear in the table.
 */
#include <ctype.h>
#include <math.h>

#include "core/words.h"
#include "kernel/expr.h"
#include "kernel/internal.h"

#define NAME_MAX_ 256
#define NS_LEAST  1e-3 /* of a latency */
#define NS_MOST	  1e18

struct condition { /* of a statement */
	struct pl_expr *e;
	uint32_t value;	  /* number of a value whose text is compared; PL_NONE: see e */
	const char *word; /* that it must be */
};
struct let {
	struct pl_expr *e;
	struct condition when;
	uint32_t to;	   /* number of the value */
	struct pl_err why; /* the table lacks a column that it needs */
};
struct op {
	const struct schema_op *s;
	struct pl_expr *dim[PL_KERNEL_DIMS];
	double otherwise[PL_KERNEL_DIMS]; /* where there is no expression */
	bool whole[PL_KERNEL_DIMS];
	unsigned n_dims;
	struct condition when;
	struct pl_err why; /* the table lacks a column that it needs */
	bool no_when;	   /* its condition needs that column */
};
struct named { /* operations of rows, by their names */
	struct pl_intern name;
	bool **fits; /* [name][operation of the schema] */
	size_t cap;
	pl_id last; /* that was asked for */
};
struct latency { /* a column */
	size_t column;
	char *star; /* what "*" stands for, NULL: the pattern has none */
	bool *fits; /* [operation of the schema]: by its name; NULL: names differ by row */
};
struct reader {
	const struct pl_measure_opts *o;
	const struct pl_schema *s;
	const char *name; /* of the input */
	struct schema_name from;
	struct pl_arena arena;
	bool begun;
	char **column;
	size_t n_columns;
	char **variable; /* names of values behind the columns and texts */
	size_t n_variables, cap_variables;
	double *value;	      /* columns, texts, variables */
	bool *used;	      /* [column] */
	bool *needed;	      /* [variable]: room of find_cell() */
	struct pl_buf joined; /* name of an operation of two columns: room of read_row() */
	struct let *let;
	struct op *op;
	struct named named;
	struct latency *latency;
	size_t n_latencies, cap_latencies;
	size_t operation, device, model, kernel; /* columns; SIZE_MAX: none */
	char device_name[NAME_MAX_];		 /* of the last row, and its index */
	uint32_t device_at;
	int64_t rows, left_out;
	const struct pl_err *lacks; /* why the variable that was not found is not there; NULL */
	struct pl_err *err;
};

/* ---- places ---------------------------------------------------------------------------------- */

static int fail_at(const struct reader *r, int64_t line, size_t column, const char *what)
{
	return pl_fail(r->err, PL_EDATA, "%s: line %lld, column %zu (%s): %s", r->name,
		       (long long)line, column + 1, r->column[column], what);
}

/* ---- the header ------------------------------------------------------------------------------ */

static size_t column_of(const struct reader *r, const char *name)
{
	for (size_t i = 0; name && i < r->n_columns; i++)
		if (!strcmp(r->column[i], name))
			return i;
	return SIZE_MAX;
}

static size_t first_variable(const struct reader *r)
{
	return r->n_columns + r->from.n;
}

static uint32_t find_variable(const struct reader *r, const char *name)
{
	for (size_t i = 0; i < r->n_variables; i++)
		if (!strcmp(r->variable[i], name))
			return (uint32_t)(first_variable(r) + i);
	return PL_NONE;
}

/* Why the variable cannot be known: a statement that might set it lacks a column, and none behind
 * that sets it in any case. NULL: it can. */
static const struct pl_err *lack_of(const struct reader *r, const char *name)
{
	const struct pl_err *why = NULL;

	for (size_t i = 0; i < r->s->n_lets; i++) {
		const struct let *x = &r->let[i];

		if (strcmp(r->s->let[i].name, name) == 0 &&
		    (x->why.code || (x->e && !r->s->let[i].when)))
			why = x->why.code ? &x->why : NULL;
	}
	return why;
}

/* Variables hide texts, which hide columns. */
static uint32_t find_value(void *arg, const char *name)
{
	struct reader *r = arg;
	uint32_t variable = find_variable(r, name);

	r->lacks = lack_of(r, name);
	if (r->lacks || variable != PL_NONE) /* not a column of that name */
		return r->lacks ? PL_NONE : variable;
	for (size_t i = 0; i < r->from.n; i++)
		if (!strcmp(r->from.text[i].name, name))
			return (uint32_t)(r->n_columns + i);
	for (size_t i = 0; i < r->n_columns; i++)
		if (!strcmp(r->column[i], name))
			return (uint32_t)i;
	return PL_NONE;
}

static void use_value(void *arg, uint32_t value)
{
	struct reader *r = arg;

	if (value < r->n_columns)
		r->used[value] = true;
}

static int compile(struct reader *r, const char *text, struct pl_expr **e, struct pl_err *err)
{
	int rc = pl_expr_new(text, find_value, r, e, err);

	if (rc >= 0)
		pl_expr_uses(*e, use_value, r);
	else if (rc == PL_EDATA && r->lacks)
		*err = *r->lacks;
	return rc;
}

/* The name in front of the "=", which may stand in quotes, as in expressions. */
static void name_before(const char *when, const char *equal, char *name)
{
	bool quoted = equal - when > 2 && *when == '\'' && equal[-1] == '\'';

	snprintf(name, NAME_MAX_, "%.*s", (int)(equal - when) - 2 * quoted, when + quoted);
}

/* "NAME=WORD" compares a text, anything else is an expression. NULL: always true. */
static int compile_when(struct reader *r, const char *when, struct condition *c, struct pl_err *err)
{
	const char *equal = when ? pl_schema_equal(when) : NULL;
	char name[NAME_MAX_];

	c->value = PL_NONE;
	if (!when)
		return 0;
	if (!equal)
		return compile(r, when, &c->e, err);
	name_before(when, equal, name);
	c->word = equal + 1;
	c->value = find_value(r, name);
	if (c->value < r->n_columns)
		r->used[c->value] = true;
	if (c->value == PL_NONE && r->lacks)
		return pl_fail_as(err, r->lacks);
	if (c->value != PL_NONE && c->value >= first_variable(r))
		return pl_fail(err, PL_EDATA,
			       "\"%.100s\" compares a text, and the variable %s is a number; "
			       "write %s==NUMBER",
			       when, name, name);
	return c->value != PL_NONE
		       ? 0
		       : pl_fail(err, PL_EDATA, "\"%.100s\": there is no column or variable \"%s\"",
				 when, name);
}

static int compile_lets(struct reader *r)
{
	for (size_t i = 0; i < r->s->n_lets; i++) {
		const struct schema_let *l = &r->s->let[i];
		struct let *x = &r->let[i];
		int rc = compile_when(r, l->when, &x->when, &x->why);

		if (rc >= 0)
			rc = compile(r, l->value, &x->e, &x->why);
		if (rc == PL_ENOMEM)
			return pl_fail_as(r->err, &x->why);
		if (rc < 0) /* an operation that needs it says so */
			continue;
		x->to = find_variable(r, l->name);
		if (x->to == PL_NONE) {
			char *name = pl_arena_dup(&r->arena, l->name, strlen(l->name));

			if (!name)
				return pl_fail(r->err, PL_ENOMEM, "out of memory");
			PL_CHECK(pl_append(&r->variable, &r->n_variables, &r->cap_variables, &name,
					   sizeof(name), r->err));
			x->to = (uint32_t)(first_variable(r) + r->n_variables - 1);
		}
	}
	return 0;
}

static int compile_ops(struct reader *r)
{
	for (size_t i = 0; i < r->s->n_ops; i++) {
		struct op *x = &r->op[i];
		int rc;

		x->s = &r->s->op[i];
		while (x->n_dims < PL_KERNEL_DIMS &&
		       pl_kernel_dim(x->s->family, x->n_dims, &x->otherwise[x->n_dims])) {
			x->whole[x->n_dims] = pl_kernel_dim_is_whole(x->s->family, x->n_dims);
			x->n_dims++;
		}
		rc = compile_when(r, x->s->when, &x->when, &x->why);
		x->no_when = rc < 0;
		for (unsigned k = 0; k < PL_KERNEL_DIMS && rc >= 0; k++)
			if (x->s->dim[k])
				rc = compile(r, x->s->dim[k], &x->dim[k], &x->why);
		if (rc == PL_ENOMEM)
			return pl_fail_as(r->err, &x->why);
	}
	return 0;
}

static int add_latency(struct reader *r, size_t column, const char *star, size_t n)
{
	struct latency x = { .column = column };

	if (star && !(x.star = pl_arena_dup(&r->arena, star, n)))
		return pl_fail(r->err, PL_ENOMEM, "out of memory");
	return pl_append(&r->latency, &r->n_latencies, &r->cap_latencies, &x, sizeof(x), r->err);
}

/* The columns of latencies. */
static int find_latencies(struct reader *r)
{
	const char *pattern = r->s->latency, *star = strchr(pattern, '*');
	size_t before = star ? (size_t)(star - pattern) : 0;
	size_t after = star ? strlen(star + 1) : 0;

	for (size_t i = 0; i < r->n_columns; i++) {
		const char *name = r->column[i];
		size_t n = strlen(name);

		if (!star && !r->n_latencies && !strcmp(name, pattern))
			PL_CHECK(add_latency(r, i, NULL, 0));
		if (star && n > before + after && !strncmp(name, pattern, before) &&
		    !strcmp(name + n - after, star + 1))
			PL_CHECK(add_latency(r, i, name + before, n - before - after));
	}
	if (r->n_latencies || (!star && !r->o->measured))
		return 0;
	return pl_fail(r->err, PL_EDATA,
		       "%s: line 1: there is no column \"%s\", from which the schema %s takes %s%s",
		       r->name, pattern, r->s->name, star ? "the operations" : "the latency",
		       r->o->measured ? "" : "; in queries its cells may be empty");
}

/* Which operations of the schema have that name: [operation of the schema]. */
static int match_ops(struct reader *r, const char *name, bool **fits)
{
	PL_CHECK(pl_arena_array(&r->arena, fits, r->s->n_ops + 1, sizeof(**fits), r->err));
	for (size_t k = 0; k < r->s->n_ops; k++)
		(*fits)[k] = pl_glob(r->s->op[k].names, name);
	return 0;
}

/* The same, for the operation of a row: each name is matched once. */
static int find_ops(struct reader *r, const char *name, const bool **fits)
{
	struct named *n = &r->named;
	size_t before = n->name.n, len = strlen(name);
	pl_id id = n->last;

	/* most rows have the name of the row before */
	if (id >= before || n->name.len[id] != len || memcmp(n->name.str[id], name, len) != 0)
		PL_CHECK(pl_intern_add(&n->name, name, len, &id, r->err));
	n->last = id;
	if (n->name.n > before) {
		PL_CHECK(pl_grow(&n->fits, &n->cap, n->name.n, sizeof(*n->fits), r->err));
		PL_CHECK(match_ops(r, name, &n->fits[id]));
	}
	*fits = n->fits[id];
	return 0;
}

/* Which operations of the schema have the names of columns. */
static int match_latencies(struct reader *r)
{
	for (size_t i = 0; i < r->n_latencies && r->operation == SIZE_MAX; i++) {
		struct latency *l = &r->latency[i];

		if (l->star)
			PL_CHECK(match_ops(r, l->star, &l->fits));
	}
	return 0;
}

static int need_column(const struct reader *r, const char *name, const char *what, size_t *at)
{
	*at = column_of(r, name);
	if (!name || *at != SIZE_MAX)
		return 0;
	return pl_fail(r->err, PL_EDATA,
		       "%s: line 1: there is no column \"%s\", from which the schema %s takes %s%s",
		       r->name, name, r->s->name, what,
		       r->n_columns == 1 ? "; the line has no comma: tables are CSV (run -O csv)"
					 : "");
}

/* Of two columns with one name, nobody can say which one is meant, if any is taken by its name. */
static int check_columns(struct reader *r)
{
	struct pl_intern names = { .n = 0 };
	size_t *first; /* [name]: its first column */
	bool *taken;   /* [column] */
	int rc = 0;

	PL_CHECK(pl_arena_array(&r->arena, &first, r->n_columns + 1, sizeof(*first), r->err));
	PL_CHECK(pl_arena_array(&r->arena, &taken, r->n_columns + 1, sizeof(*taken), r->err));
	for (size_t i = 0; i < r->n_columns; i++)
		taken[i] = r->used[i] || i == r->operation || i == r->device || i == r->model ||
			   i == r->kernel;
	for (size_t i = 0; i < r->n_latencies; i++)
		taken[r->latency[i].column] = true;
	for (size_t i = 0; i < r->n_columns; i++) {
		size_t before = names.n;
		pl_id id;

		PL_TRY(pl_intern_add(&names, r->column[i], strlen(r->column[i]), &id, r->err));
		if (names.n > before)
			first[id] = i;
		else if (taken[first[id]])
			PL_TRY(fail_at(r, 1, i, "an earlier column has the same name"));
	}
out:
	pl_intern_fini(&names);
	return rc;
}

/* A stream of another program has control characters in what would be its header. */
static int check_text(const struct reader *r, const struct pl_csv_row *raw)
{
	for (size_t i = 0; i < raw->n; i++)
		for (size_t k = 0; k < raw->len[i]; k++)
			if ((unsigned char)raw->field[i][k] < ' ' && !isspace(raw->field[i][k]))
				return pl_fail(r->err, PL_EDATA,
					       "%s: no table in CSV, but binary data (of a graph, "
					       "predict -O graph finds the durations)",
					       r->name);
	return 0;
}

static int read_header(struct reader *r, const struct pl_csv_row *raw)
{
	size_t most = raw->n + r->from.n + r->s->n_lets + 1;

	r->begun = true;
	PL_CHECK(check_text(r, raw));
	PL_CHECK(pl_arena_array(&r->arena, &r->column, raw->n, sizeof(*r->column), r->err));
	for (size_t i = 0; i < raw->n; i++)
		if (!(r->column[r->n_columns++] =
			      pl_arena_dup(&r->arena, raw->field[i], raw->len[i])))
			return pl_fail(r->err, PL_ENOMEM, "out of memory");
	PL_CHECK(pl_alloc(&r->value, most, sizeof(*r->value), r->err));
	PL_CHECK(pl_alloc(&r->used, raw->n + 1, sizeof(*r->used), r->err));
	PL_CHECK(pl_alloc(&r->needed, r->s->n_lets + 1, sizeof(*r->needed), r->err));
	PL_CHECK(pl_alloc(&r->let, r->s->n_lets, sizeof(*r->let), r->err));
	PL_CHECK(pl_alloc(&r->op, r->s->n_ops, sizeof(*r->op), r->err));
	for (size_t i = 0; i < most; i++)
		r->value[i] = NAN;
	for (size_t i = 0; i < r->from.n; i++)
		if (!pl_decimal(r->from.text[i].value, &r->value[r->n_columns + i]))
			r->value[r->n_columns + i] = NAN;
	PL_CHECK(need_column(r, r->s->operation, "the operation", &r->operation));
	if (r->o->device)
		r->device = SIZE_MAX;
	else
		PL_CHECK(need_column(r, r->s->device.column, "the device", &r->device));
	r->model = column_of(r, r->s->model.column);
	r->kernel = column_of(r, r->s->kernel);
	PL_CHECK(find_latencies(r));
	PL_CHECK(match_latencies(r));
	PL_CHECK(compile_lets(r));
	PL_CHECK(compile_ops(r));
	PL_CHECK(check_columns(r));
	return r->o->header ? r->o->header(r->o->arg, raw, r->err) : 0;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static double number_of(const char *s)
{
	double v;

	if (pl_decimal(s, &v))
		return v;
	return !strcmp(s, "True") || !strcmp(s, "true")	    ? 1
	       : !strcmp(s, "False") || !strcmp(s, "false") ? 0
							    : NAN;
}

static const char *text_of_value(const struct reader *r, const struct pl_csv_row *raw,
				 uint32_t value)
{
	if (value < r->n_columns)
		return value < raw->n ? raw->field[value] : "";
	return r->from.text[value - r->n_columns].value; /* variables of "let" have none */
}

static bool holds(const struct reader *r, const struct pl_csv_row *raw, const struct condition *c)
{
	double v;

	if (c->value != PL_NONE)
		return !strcmp(text_of_value(r, raw, c->value), c->word);
	if (!c->e)
		return true;
	v = pl_expr_eval(c->e, r->value);
	return !isnan(v) && v != 0;
}

static void set_values(struct reader *r, const struct pl_csv_row *raw)
{
	for (size_t i = 0; i < r->n_columns; i++)
		if (r->used[i])
			r->value[i] = i < raw->n ? number_of(raw->field[i]) : NAN;
	for (size_t i = 0; i < r->n_variables; i++)
		r->value[first_variable(r) + i] = NAN;
	for (size_t i = 0; i < r->s->n_lets; i++)
		if (r->let[i].e && holds(r, raw, &r->let[i].when))
			r->value[r->let[i].to] = pl_expr_eval(r->let[i].e, r->value);
}

static int find_device(struct reader *r, const struct pl_csv_row *raw, uint32_t *at)
{
	const struct schema_source *d = &r->s->device;
	const char *name = r->o->device ? r->o->device
			   : d->folder	? r->from.folder
			   : d->file	? r->from.file
					: NULL;

	if (!name && r->device < raw->n)
		name = raw->field[r->device];
	if (!name || !*name)
		return pl_fail(
			r->err, PL_EDATA,
			"%s: line %lld: the table does not say on which device it was measured; "
			"--device=NAME says it",
			r->name, (long long)raw->line);
	if (strcmp(name, r->device_name) != 0 || !r->device_name[0]) {
		r->device_at = pl_device_find(r->o->devices, name);
		if (r->device_at == PL_NONE) {
			pl_device_missing(r->o->devices, name, r->err);
			if (r->device >= raw->n) /* no column says it */
				return pl_wrap(r->err, "%s: line %lld", r->name,
					       (long long)raw->line);
			return pl_wrap(r->err, "%s: line %lld, column %zu (%s)", r->name,
				       (long long)raw->line, r->device + 1, r->column[r->device]);
		}
		snprintf(r->device_name, sizeof(r->device_name), "%s", name);
	}
	*at = r->device_at;
	return 0;
}

/* NAN: not measured. 1: the row says that there is no measurement. */
static int read_latency(const struct reader *r, const struct pl_csv_row *raw, size_t column,
			double *ns)
{
	const char *s = column < raw->n ? raw->field[column] : "";
	char what[160];
	double v = NAN;

	*ns = NAN;
	if (r->o->no_latencies)
		return 0;
	if (!*s)
		return r->o->measured && pl_schema_is_long(r->s)
			       ? fail_at(r, raw->line, column, "the latency is missing")
			       : r->o->measured;
	if (pl_decimal(s, &v) && v >= r->s->missing)
		return r->o->measured;
	if (!(v > 0) || !isfinite(v)) {
		snprintf(what, sizeof(what), "a latency must be a number above 0, not \"%.60s\"",
			 s);
		return r->o->measured ? fail_at(r, raw->line, column, what) : 0;
	}
	v *= r->o->unit_ns > 0 ? r->o->unit_ns : r->s->unit_ns;
	if (v < NS_LEAST || v > NS_MOST) {
		snprintf(what, sizeof(what), "a latency of %.3g ns is out of range", v);
		return r->o->measured ? fail_at(r, raw->line, column, what) : 0;
	}
	*ns = v;
	return 0;
}

struct culprit {
	const struct reader *r;
	size_t column; /* whose number makes no size; SIZE_MAX: none found yet */
	double size; /* that is not whole: the column of just this number; NAN: any that is no size
		      */
};

static bool is_fraction(double v)
{
	return fabs(v) < 0x1p62 && v != (double)(int64_t)v; /* floor() is slow */
}

/* A value of an expression: a column, or a variable, whose expressions are to be looked at. */
static void find_culprit(void *arg, uint32_t value)
{
	struct culprit *c = arg;
	const struct reader *r = c->r;

	if (value >= first_variable(r))
		r->needed[value - first_variable(r)] = true;
	if (value < r->n_columns && c->column == SIZE_MAX &&
	    (isnan(c->size) ? !(r->value[value] > 0 && r->value[value] <= 1e18)
			    : r->value[value] == c->size))
		c->column = value;
}

/* The cell from which the expression has its number. Expressions of variables need only what stands
 * above them, perhaps under the same name, so each is looked at once, from the last to the first.
 */
static void find_cell(struct culprit *c, const struct pl_expr *e)
{
	const struct reader *r = c->r;

	memset(r->needed, 0, r->n_variables * sizeof(*r->needed));
	pl_expr_uses(e, find_culprit, c);
	for (size_t i = r->s->n_lets; i-- > 0;)
		if (r->let[i].e && r->needed[r->let[i].to - first_variable(r)])
			pl_expr_uses(r->let[i].e, find_culprit, c);
}

/* The sizes of an operation are refused: name the cell, if one is to blame. */
static int refuse_dims(const struct reader *r, const struct pl_csv_row *raw, const struct op *x,
		       const struct pl_measure *m)
{
	struct culprit c = { r, SIZE_MAX, NAN };
	struct pl_err why = { 0 };

	if (pl_kernel_check(&m->k, &why) >= 0)
		return 0;
	for (unsigned i = 0; i < x->n_dims; i++) {
		double v = m->k.dim[i];
		bool good = (v > 0 && v <= 1e18) || (v == 0 && x->otherwise[i] <= 0);

		if (x->dim[i] && !good)
			find_cell(&c, x->dim[i]);
	}
	if (c.column < raw->n && !raw->len[c.column])
		return pl_fail(
			r->err, PL_EDATA,
			"%s: line %lld, column %zu (%s): the cell is empty, and operation \"%s\" "
			"needs a number there",
			r->name, (long long)raw->line, c.column + 1, r->column[c.column], m->op);
	if (c.column == SIZE_MAX)
		return pl_fail(r->err, PL_EDATA, "%s: line %lld: operation \"%s\": %s", r->name,
			       (long long)raw->line, m->op, why.msg);
	return pl_fail(r->err, PL_EDATA,
		       "%s: line %lld, column %zu (%s): operation \"%s\": %s; the cell holds "
		       "\"%.60s\"",
		       r->name, (long long)raw->line, c.column + 1, r->column[c.column], m->op,
		       why.msg, c.column < raw->n ? raw->field[c.column] : "");
}

/* Dimension i is not whole. It may be computed by the schema, but no cell may say so. */
static int check_fraction(const struct reader *r, const struct pl_csv_row *raw, const struct op *x,
			  unsigned i, const struct pl_measure *m)
{
	struct culprit c = { r, SIZE_MAX, m->k.dim[i] };
	double otherwise;

	if (x->dim[i])
		find_cell(&c, x->dim[i]);
	if (c.column == SIZE_MAX)
		return 0;
	return pl_fail(r->err, PL_EDATA,
		       "%s: line %lld, column %zu (%s): operation \"%s\": %s of %s must be whole; "
		       "the cell holds \"%.60s\"",
		       r->name, (long long)raw->line, c.column + 1, r->column[c.column], m->op,
		       pl_kernel_dim(x->s->family, i, &otherwise),
		       pl_kernel_family_word(x->s->family), raw->field[c.column]);
}

static int set_dims(const struct reader *r, const struct pl_csv_row *raw, const struct op *x,
		    struct pl_measure *m)
{
	if (x->why.code)
		return pl_fail(r->err, PL_EDATA, "%s: line %lld: operation \"%s\": %s", r->name,
			       (long long)raw->line, m->op, x->why.msg);
	m->k = (struct pl_kernel){ .family = x->s->family, .type = x->s->type };
	for (unsigned i = 0; i < x->n_dims; i++)
		m->k.dim[i] = x->dim[i] ? pl_expr_eval(x->dim[i], r->value) : x->otherwise[i];
	if (pl_kernel_check(&m->k, NULL) < 0)
		return refuse_dims(r, raw, x, m);
	for (unsigned i = 0; i < x->n_dims; i++)
		if (x->whole[i] && is_fraction(m->k.dim[i]))
			PL_CHECK(check_fraction(r, raw, x, i, m));
	m->known = true;
	return 0;
}

static int one_measure(struct reader *r, const struct pl_csv_row *raw, const struct latency *l,
		       const char *op, struct pl_measure m)
{
	const bool *fits = l ? l->fits : NULL;
	int rc = l ? read_latency(r, raw, l->column, &m.ns) : 0;

	if (rc != 0) {
		r->left_out += rc > 0;
		return rc < 0 ? rc : 0;
	}
	m.op = op;
	m.column = l ? (uint32_t)l->column + 1 : 0;
	if (!fits)
		PL_CHECK(find_ops(r, op, &fits));
	for (size_t i = 0; i < r->s->n_ops && !m.known; i++) {
		const struct op *x = &r->op[i];

		if (!fits[i] || (!x->no_when && !holds(r, raw, &x->when)))
			continue;
		m.op = x->s->as ? x->s->as : op;
		PL_CHECK(set_dims(r, raw, x, &m));
	}
	return r->o->measure(r->o->arg, &m, raw, r->err);
}

/* The name of an operation of which the row has several latencies. */
static int join_name(struct reader *r, const char *op, const char *star, const char **name)
{
	r->joined.n = 0;
	PL_CHECK(pl_buf_put(&r->joined, op, strlen(op), r->err));
	PL_CHECK(pl_buf_put(&r->joined, ":", 1, r->err));
	PL_CHECK(pl_buf_put(&r->joined, star, strlen(star) + 1, r->err));
	*name = (const char *)r->joined.p;
	return 0;
}

static int read_row(struct reader *r, const struct pl_csv_row *raw)
{
	const struct schema_source *d = &r->s->model;
	const char *op = r->operation < raw->n ? raw->field[r->operation] : NULL;
	struct pl_measure m = { .line = raw->line, .row = ++r->rows, .ns = NAN };

	if (raw->n != r->n_columns)
		return pl_fail(r->err, PL_EDATA, "%s: line %lld: %zu cells, and the header has %zu",
			       r->name, (long long)raw->line, raw->n, r->n_columns);
	PL_CHECK(find_device(r, raw, &m.device));
	m.model = r->model < raw->n ? raw->field[r->model]
		  : d->folder	    ? r->from.folder
		  : d->file	    ? r->from.file
				    : "";
	if (r->kernel < raw->n)
		m.tile = pl_tiles_from_name(raw->field[r->kernel]);
	set_values(r, raw);
	if (!r->n_latencies)
		return one_measure(r, raw, NULL, op ? op : "", m);
	for (size_t i = 0; i < r->n_latencies; i++) {
		const struct latency *l = &r->latency[i];
		const char *name = l->star ? l->star : op;

		if (op && l->star)
			PL_CHECK(join_name(r, op, l->star, &name));
		PL_CHECK(one_measure(r, raw, l, name, m));
	}
	return 0;
}

static int on_row(void *arg, const struct pl_csv_row *raw, struct pl_err *err)
{
	struct reader *r = arg;

	(void)err; /* the same as r->err */
	return r->begun ? read_row(r, raw) : read_header(r, raw);
}

static void reader_fini(struct reader *r)
{
	for (size_t i = 0; r->let && i < r->s->n_lets; i++) {
		pl_expr_free(r->let[i].e);
		pl_expr_free(r->let[i].when.e);
	}
	for (size_t i = 0; r->op && i < r->s->n_ops; i++) {
		pl_expr_free(r->op[i].when.e);
		for (unsigned k = 0; k < PL_KERNEL_DIMS; k++)
			pl_expr_free(r->op[i].dim[k]);
	}
	pl_free(r->let);
	pl_free(r->op);
	pl_free(r->from.text);
	pl_free(r->variable);
	pl_free(r->value);
	pl_free(r->used);
	pl_free(r->needed);
	pl_buf_fini(&r->joined);
	pl_free(r->latency);
	pl_intern_fini(&r->named.name);
	pl_free(r->named.fits);
	pl_arena_fini(&r->arena);
}

int pl_table_read(struct pl_in *in, const struct pl_measure_opts *o, struct pl_err *err)
{
	struct reader r = { .o = o,
			    .s = o->schema,
			    .name = pl_in_name(in),
			    .operation = SIZE_MAX,
			    .device = SIZE_MAX,
			    .model = SIZE_MAX,
			    .kernel = SIZE_MAX,
			    .err = err };
	int rc;

	PL_TRY(pl_schema_read_name(r.s, r.name, &r.arena, &r.from, err));
	PL_TRY(pl_csv_read(in, on_row, &r, err));
	if (!r.begun)
		rc = pl_fail(err, PL_EDATA, "%s: the table is empty", r.name);
	else if (r.left_out && o->measured && isfinite(o->schema->missing))
		pl_say(o->log, PL_LOG_WARN,
		       "%s: %lld operations were not measured, and are left out", r.name,
		       (long long)r.left_out);
out:
	reader_fini(&r);
	return rc;
}
