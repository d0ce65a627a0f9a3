/*
 * Tables of layers, read; and the graph that the generator of a statement makes of a table.
 */
#include <math.h>

#include "derive/generate_internal.h"
#include "io/csv.h"
#include "io/json.h"

#define LAYERS_MAX (1u << 20)
#define RANKS_MAX  (INT32_MAX / 2)

enum column {
	C_LAYER,
	C_FORWARD,
	C_BACKWARD,
	C_PARAM,
	C_ACT,
	C_UPDATE,
	C_OUTPUT,
	C_TENSOR,
	C_TYPE,
	C_KIND
};
#define N_COLUMNS (C_KIND + 1)

static const struct {
	const char *name; /* of a time: without its unit */
	bool needed, time;
} columns[N_COLUMNS] = {
	[C_LAYER] = { "layer", true, false },	       [C_FORWARD] = { "forward", true, true },
	[C_BACKWARD] = { "backward", true, true },     [C_PARAM] = { "param_bytes", true, false },
	[C_ACT] = { "activation_bytes", true, false }, [C_UPDATE] = { "update", false, true },
	[C_OUTPUT] = { "output_bytes", false, false }, [C_TENSOR] = { "tensor", false, false },
	[C_TYPE] = { "type", false, false },	       [C_KIND] = { "kind", false, false },
};

struct reader {
	struct layer_table table;
	struct pl_intern seen, tensors; /* names of layers, and of their parameters */
	bool header;
	size_t n_cells;	      /* of the header */
	size_t at[N_COLUMNS]; /* column of the file, SIZE_MAX if it has none */
	int64_t unit_ns[N_COLUMNS];
};

/* ---- layers ---------------------------------------------------------------------------------- */

static pl_id put_name(const struct layer_table *t, const char *before, const char *name)
{
	struct pl_buf b = { 0 };
	pl_id id = PL_NONE;

	if (pl_buf_printf(&b, t->err, "%s%s", before, name) >= 0)
		id = pl_derive_name(t, (const char *)b.p);
	pl_buf_fini(&b);
	return id;
}

static void put_names(const struct layer_table *t, struct layer *x, const char *name,
		      const char *tensor)
{
	x->reduce = put_name(t, "allreduce ", name);
	x->grad = put_name(t, "grad ", tensor);
	x->param = put_name(t, "", tensor);
	x->activation = put_name(t, "activation ", name);
}

/* The only operation of a pass. */
static struct layer_ops put_pass(struct layer_table *t, const char *before, const char *name)
{
	const struct layer_op op = { .name = put_name(t, before, name), .work = PL_NONE };

	PL_DERIVE_ADD(t->err, t->op, t->n_ops, t->cap_ops, op);
	return (struct layer_ops){ (uint32_t)t->n_ops - 1, 1 };
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Which column does the header cell name? -1: none. */
static int column_of(const char *cell, int64_t *unit_ns)
{
	static const struct {
		const char *suffix;
		int64_t ns;
	} unit[] = { { "_ns", 1 }, { "_us", 1000 }, { "_ms", 1000000 }, { "_s", 1000000000 } };

	for (int c = 0; c < N_COLUMNS; c++) {
		size_t n = strlen(columns[c].name);

		if (strncmp(cell, columns[c].name, n) != 0)
			continue;
		if (!columns[c].time && !cell[n])
			return c;
		for (size_t i = 0; columns[c].time && i < PL_LEN(unit); i++) {
			*unit_ns = unit[i].ns;
			if (!strcmp(cell + n, unit[i].suffix))
				return c;
		}
	}
	return -1;
}

static int read_header(struct reader *t, const struct pl_csv_row *r, struct pl_err *err)
{
	for (size_t c = 0; c < N_COLUMNS; c++)
		t->at[c] = SIZE_MAX;
	for (size_t i = 0; i < r->n; i++) {
		int64_t unit = 1;
		int c = column_of(r->field[i], &unit);

		if (c < 0) {
			pl_say(t->table.o->log, PL_LOG_WARN,
			       "%s: line %lld: column \"%.64s\" is not known and not used",
			       t->table.file, (long long)r->line, r->field[i]);
			continue;
		}
		if (t->at[c] != SIZE_MAX)
			return pl_fail(err, PL_EDATA,
				       "%s: line %lld: two columns for the same thing, the second "
				       "is \"%.64s\"",
				       t->table.file, (long long)r->line, r->field[i]);
		t->at[c] = i;
		t->unit_ns[c] = unit;
	}
	for (size_t c = 0; c < N_COLUMNS; c++)
		if (columns[c].needed && t->at[c] == SIZE_MAX)
			return pl_fail(err, PL_EDATA,
				       "%s: line %lld: no column \"%s%s\"; a table of layers "
				       "begins with layer,forward_ns,backward_ns,param_bytes,"
				       "activation_bytes",
				       t->table.file, (long long)r->line, columns[c].name,
				       columns[c].time ? "_ns" : "");
	t->header = true;
	t->n_cells = r->n;
	return 0;
}

/* The cell, NULL if the row has none or an empty one. */
static const char *cell(const struct reader *t, const struct pl_csv_row *r, size_t c, size_t *n)
{
	if (t->at[c] >= r->n || !r->len[t->at[c]])
		return NULL;
	*n = r->len[t->at[c]];
	return r->field[t->at[c]];
}

static int bad_cell(const struct reader *t, const struct pl_csv_row *r, size_t c, const char *want,
		    struct pl_err *err)
{
	size_t n;
	const char *s = cell(t, r, c, &n);

	return pl_fail(err, PL_EDATA, "%s: line %lld: column %zu (%s): %s%.64s%s, should be %s",
		       t->table.file, (long long)r->line, t->at[c] + 1, columns[c].name,
		       s ? "\"" : "", s ? s : "nothing", s ? "\"" : "", want);
}

/* A number of bytes, or a time in ns; 0 for an optional cell that is not there. */
static int cell_number(const struct reader *t, const struct pl_csv_row *r, size_t c, int64_t *v,
		       struct pl_err *err)
{
	size_t n;
	const char *s = cell(t, r, c, &n);
	bool good = s && (columns[c].time ? pl_json_time_ns(s, n, t->unit_ns[c], v)
					  : pl_json_i64(s, n, v));

	if (!s && !columns[c].needed) {
		*v = 0;
		return 0;
	}
	if (good && *v >= 0 && *v <= TIME_MAX)
		return 0;
	return bad_cell(t, r, c,
			columns[c].time ? "a time of 0 or more" : "a whole number of 0 or more",
			err);
}

static int read_names(struct reader *t, const struct pl_csv_row *r, struct layer *x,
		      struct pl_err *err)
{
	size_t n, before = t->seen.n;
	const char *name = cell(t, r, C_LAYER, &n), *tensor, *type;
	pl_id id;
	int rc;

	if (!name)
		return bad_cell(t, r, C_LAYER, "the name of the layer", err);
	PL_TRY(pl_intern_add(&t->seen, name, n, &id, err));
	if (id != before)
		return pl_fail(err, PL_EDATA,
			       "%s: line %lld: a second layer \"%.64s\"; each needs a name of its "
			       "own",
			       t->table.file, (long long)r->line, name);
	tensor = cell(t, r, C_TENSOR, &n);
	tensor = tensor ? tensor : name;
	before = t->tensors.n;
	PL_TRY(pl_intern_add(&t->tensors, tensor, strlen(tensor), &id, err));
	if (id != before)
		return pl_fail(err, PL_EDATA,
			       "%s: line %lld: a second tensor \"%.64s\"; parameters that layers "
			       "share belong to one of them, the others have 0 bytes and no name",
			       t->table.file, (long long)r->line, tensor);
	x->forward = put_pass(&t->table, "forward ", name);
	x->backward = put_pass(&t->table, "backward ", name);
	put_names(&t->table, x, name, tensor);
	x->module = PL_NONE;
	type = cell(t, r, C_TYPE, &n);
	x->type = type ? pl_derive_intern(err, &t->table.g->str, type, n) : PL_NONE;
out:
	return err->code;
}

static int read_layer(struct reader *r, const struct pl_csv_row *row, struct pl_err *err)
{
	struct layer_table *t = &r->table;
	struct layer x = { 0 };
	pl_ns forward, backward;
	size_t n;

	if (t->n >= LAYERS_MAX)
		return pl_fail(err, PL_ELIMIT, "%s: line %lld: more than %u layers", t->file,
			       (long long)row->line, LAYERS_MAX);
	if (row->n > r->n_cells)
		return pl_fail(err, PL_EDATA, "%s: line %lld: %zu cells under a header of %zu",
			       t->file, (long long)row->line, row->n, r->n_cells);
	PL_CHECK(read_names(r, row, &x, err));
	PL_CHECK(cell_number(r, row, C_FORWARD, &forward, err));
	PL_CHECK(cell_number(r, row, C_BACKWARD, &backward, err));
	t->op[x.forward.first].ns = forward;
	t->op[x.backward.first].ns = backward;
	x.weight = forward + backward;
	PL_CHECK(cell_number(r, row, C_PARAM, &x.param_bytes, err));
	PL_CHECK(cell_number(r, row, C_ACT, &x.activation_bytes, err));
	PL_CHECK(cell_number(r, row, C_UPDATE, &x.update_ns, err));
	PL_CHECK(cell_number(r, row, C_OUTPUT, &x.output_bytes, err));
	/* without the column nothing is known of inputs */
	if (t->n && r->at[C_OUTPUT] != SIZE_MAX)
		x.input_bytes = pl_min_i64(t->layer[t->n - 1].output_bytes, x.activation_bytes);
	if (x.input_bytes)
		x.input = put_name(t, "input of ", cell(r, row, C_LAYER, &n));
	if (!cell(r, row, C_OUTPUT, &n))
		x.output_bytes = x.activation_bytes;
	t->update_ns = pl_add_sat(t->update_ns, x.update_ns);
	t->total_ns = pl_add_sat(t->total_ns, forward);
	t->total_ns = pl_add_sat(t->total_ns, pl_add_sat(backward, x.update_ns));
	if (t->total_ns > TIME_MAX)
		return pl_fail(err, PL_ELIMIT, "%s: line %lld: " TOO_LONG, t->file,
			       (long long)row->line);
	return pl_append(&t->layer, &t->n, &t->cap, &x, sizeof(x), err);
}

static int on_row(void *arg, const struct pl_csv_row *r, struct pl_err *err)
{
	struct reader *t = arg;

	if (r->n && r->field[0][0] == '#')
		return 0;
	return t->header ? read_layer(t, r, err) : read_header(t, r, err);
}

static int read_table(struct reader *t, struct pl_in *in, struct pl_err *err)
{
	PL_CHECK(pl_csv_read(in, on_row, t, err));
	if (!t->table.n)
		return pl_fail(err, PL_EDATA, "%s: no layers in this table", t->table.file);
	return 0;
}

/* ---- tables in memory ------------------------------------------------------------------------ */

static struct layer_op put_op(struct layer_table *t, const struct pl_layers_op *op, pl_id type)
{
	const struct pl_gwork w = { .op = op->op,
				    .type = type,
				    .dims = op->dims ? pl_derive_name(t, op->dims) : PL_NONE,
				    .flops = op->flops,
				    .bytes = op->bytes,
				    .name = PL_NONE };

	return (struct layer_op){ .name = pl_derive_name(t, op->name),
				  .work = op->dims ? pl_derive_add_work(t->g, t->work, &w, t->err)
						   : PL_NONE,
				  .phase = op->phase };
}

static void put_row(struct layer_table *t, const struct pl_layers_row *row, pl_id type)
{
	struct layer x = { .module = pl_derive_name(t, row->name),
			   .type = type,
			   .param_bytes = row->param_bytes,
			   .activation_bytes = row->activation_bytes,
			   .output_bytes = row->output_bytes };
	double flops = 0;

	put_names(t, &x, row->name, row->tensor);
	x.forward = (struct layer_ops){ (uint32_t)t->n_ops, row->n_forward };
	x.backward = (struct layer_ops){ (uint32_t)t->n_ops + row->n_forward, row->n_backward };
	for (uint32_t i = 0; i < row->n_forward + row->n_backward; i++) {
		PL_DERIVE_ADD(t->err, t->op, t->n_ops, t->cap_ops, put_op(t, &row->op[i], type));
		flops += row->op[i].flops > 0 ? (double)row->op[i].flops : 0;
	}
	x.weight = (int64_t)fmin(flops / 1000, 0x1p40);
	if (t->n)
		x.input_bytes = pl_min_i64(t->layer[t->n - 1].output_bytes, x.activation_bytes);
	if (x.input_bytes)
		x.input = put_name(t, "input of ", row->name);
	PL_DERIVE_ADD(t->err, t->layer, t->n, t->cap, x);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int begin_table(struct layer_table *t)
{
	uint32_t ranks = t->o->n_ranks;

	pl_graph_init(t->g);
	t->n_ranks = ranks;
	if (ranks && (ranks == PL_NONE || ranks <= RANKS_MAX))
		return 0;
	return pl_fail(t->err, PL_EUSAGE, "%u ranks: there must be 1 to %d", ranks, RANKS_MAX);
}

static int generate(struct layer_table *t, const char *program)
{
	struct pl_lang_reader r;
	struct pl_err why = { 0 };
	pl_derive_generator *program_of = NULL;
	int rc;

	PL_TRY(pl_lang_open_text(&r, &pl_derive_programs, program, &why));
	PL_TRY(pl_lang_next(&r, &why));
	if (!rc)
		pl_fail(&why, PL_EUSAGE, "there is no statement in it");
	else
		program_of = pl_derive_generator_of(&r.st);
	if (program_of)
		program_of(t, &r.st);
out:
	pl_lang_close(&r);
	if (why.code)
		pl_fail(t->err, why.code == PL_EDATA ? PL_EUSAGE : why.code, "program \"%s\": %s",
			program, why.msg);
	return t->err->code;
}

/* The options say it; a name does not, as a layer may be called "tree". */
static int put_algorithm(const struct pl_layers_opts *o, struct pl_graph *g, struct pl_err *err)
{
	pl_id name = PL_NONE;

	if (o->algorithm)
		PL_CHECK(pl_intern_add(&g->str, o->algorithm, strlen(o->algorithm), &name, err));
	for (size_t i = 0; i < g->n_shapes; i++)
		for (uint32_t k = 0; k < g->shape[i].n_comms; k++)
			if (g->shape[i].comms[k].kind == PL_COLL_ALLREDUCE)
				g->shape[i].comms[k].algorithm = name;
	return 0;
}

/* Is the first line, after comments, the header of a table of layers? */
bool pl_derive_is_layers(const uint8_t *p, size_t n)
{
	size_t at = 0, end;

	for (;;) {
		const uint8_t *nl = memchr(p + at, '\n', n - at);

		end = nl ? (size_t)(nl - p) : n;
		if (end > at && p[at] != '#' && p[at] != '\r')
			break;
		if (!nl)
			return false;
		at = end + 1;
	}
	while (at < end && (p[at] == ' ' || p[at] == '\t'))
		at++;
	if (at < end && (p[at] == '{' || p[at] == '[')) /* JSON in one line, which names layers */
		return false;
	/* one of the columns may be missing, which the reader of tables says */
	return memmem(p + at, end - at, "layer", 5) && (memmem(p + at, end - at, "forward_", 8) ||
							memmem(p + at, end - at, "backward_", 9));
}

/* The graph of a table whose layers are there. */
static int end_table(struct layer_table *t)
{
	PL_CHECK(t->err->code);
	PL_CHECK(generate(t, t->o->program ? t->o->program : "data-parallel"));
	PL_CHECK(pl_derive_describe(t->g, NULL, t->err));
	return put_algorithm(t->o, t->g, t->err);
}

static void free_table(struct layer_table *t, int rc)
{
	pl_free(t->layer);
	pl_free(t->op);
	if (rc < 0)
		pl_graph_fini(t->g);
}

int pl_derive_layers(struct pl_in *in, const struct pl_layers_opts *o, struct pl_graph *g,
		     struct pl_err *err)
{
	struct reader r = { .table = { .o = o, .g = g, .err = err, .file = pl_in_name(in) } };
	int rc;

	PL_TRY(begin_table(&r.table));
	PL_TRY(read_table(&r, in, err));
	r.table.update = pl_derive_name(&r.table, "optimizer");
	rc = end_table(&r.table);
out:
	pl_intern_fini(&r.seen);
	pl_intern_fini(&r.tensors);
	free_table(&r.table, rc);
	return rc;
}

int pl_derive_layers_table(const struct pl_layers_table *table, const struct pl_layers_opts *o,
			   struct pl_graph *g, struct pl_err *err)
{
	struct pl_derive_work work = { .cap = 0 };
	struct layer_table t = { .o = o, .g = g, .err = err, .file = table->name, .work = &work };
	pl_id type;
	int rc;

	PL_TRY(begin_table(&t));
	type = pl_derive_name(&t, table->type);
	t.update = pl_derive_name(&t, table->update);
	t.update_numbers = table->update_numbers;
	for (size_t i = 0; i < table->n && !err->code; i++)
		put_row(&t, &table->row[i], type);
	rc = end_table(&t);
out:
	pl_derive_work_fini(&work);
	free_table(&t, rc);
	return rc;
}
