/* Tables of a model's operations, read; and the graph of a step that computes them. */
#include <stdlib.h>

#include "derive/describe.h"
#include "derive/opgraph.h"
#include "derive/put.h"
#include "graph/program.h"
#include "io/csv.h"

#define ROWS_MAX   (1u << 20)
#define OPS_MAX	   (1u << 26) /* of the graph */
#define SIZES_MAX  64	      /* numbers of one operation */
#define TENSOR_MAX 8
#define DEPTH_MAX  8 /* of brackets */
#define WORK_MAX   0x1p62

enum column { C_NAME, C_OP, C_FORWARD, C_BACKWARD, C_ADDED, C_BEFORE, C_INPUTS, COLUMNS };
static const struct {
	const char *name;
	bool needed;
} columns[COLUMNS] = { [C_NAME] = { "Name", true },	     [C_OP] = { "OpName", true },
		       [C_FORWARD] = { "FwOps", true },	     [C_BACKWARD] = { "BwOps", false },
		       [C_ADDED] = { "AccOps", false },	     [C_BEFORE] = { "Prev", false },
		       [C_INPUTS] = { "InputShapes", false } };

/* Sizes of tensors: of tensor i, v[end[i - 1]] to v[end[i] - 1]. */
struct sizes {
	int64_t v[SIZES_MAX];
	uint32_t end[TENSOR_MAX];
	uint32_t n, tensors;
};
struct op {
	pl_id name;
	uint32_t work;
};
struct ops { /* of a row, in one pass: into reader.op */
	uint32_t first, n;
};
struct row {
	pl_id name;
	struct ops forward, backward, added;
	uint32_t before, n_before; /* into reader.before */
};
struct reader {
	const struct pl_opgraph_opts *o;
	struct pl_graph *g;
	struct pl_err *err;
	const char *file;
	bool header;
	size_t at[COLUMNS]; /* SIZE_MAX: the table lacks it */
	struct row *row;
	struct op *op;
	pl_id *before; /* names */
	size_t n_rows, cap_rows, n_ops, cap_ops, n_before, cap_before;
	struct pl_intern name; /* of rows: their numbers */
	struct pl_derive_work rows;
	double element; /* bytes of one */
	pl_id type;
	size_t first, last; /* rows that are repeated; first > last: none */
};

/* ---- the notation of Python ------------------------------------------------------------------ */

static const char *skip_blanks(const char *p)
{
	while (*p == ' ')
		p++;
	return p;
}

/* "(8, 512)" is one tensor, "((8, 512), (8,))" two. Returns what follows, NULL: this is neither. */
static const char *read_nested(const char *p, struct sizes *s, int depth)
{
	p = skip_blanks(p);
	if ((*p != '(' && *p != '[') || depth == DEPTH_MAX)
		return NULL;
	for (p = skip_blanks(p + 1); *p != ')' && *p != ']';) {
		if (*p == '(' || *p == '[') {
			p = read_nested(p, s, depth + 1);
		} else {
			char *end;
			long long v = strtoll(p, &end, 10);

			if (end == p || v < 1 || v > INT32_MAX || s->n == SIZES_MAX)
				return NULL;
			s->v[s->n++] = v;
			p = end;
		}
		if (!p)
			return NULL;
		p = skip_blanks(p);
		if (*p == ',')
			p = skip_blanks(p + 1);
	}
	if (s->n > (s->tensors ? s->end[s->tensors - 1] : 0)) {
		if (s->tensors == TENSOR_MAX)
			return NULL;
		s->end[s->tensors++] = s->n;
	}
	return skip_blanks(p + 1);
}

static const char *read_sizes(const char *p, struct sizes *s)
{
	return read_nested(p, s, 0);
}

/* The text between quotes at p. Returns what follows, NULL: there is none. */
static const char *read_quoted(const char *p, const char **text, size_t *n)
{
	const char *end;

	p = skip_blanks(p);
	end = *p == '\'' || *p == '"' ? strchr(p + 1, *p) : NULL;
	if (!end)
		return NULL;
	*text = p + 1;
	*n = (size_t)(end - p - 1);
	return skip_blanks(end + 1);
}

static double elements(const struct sizes *s, uint32_t tensor)
{
	double n = 1;

	for (uint32_t i = tensor ? s->end[tensor - 1] : 0; i < s->end[tensor]; i++)
		n *= (double)s->v[i];
	return n;
}

/* ---- operations ------------------------------------------------------------------------------ */

/* How the sizes of an operation are meant. */
enum form { ROWS, PAIR, PRODUCT, BATCHED, MEMORY };
static const struct {
	const char *kind, *name;
	uint8_t op, form;
} kinds[] = {
	{ "Linear", "linear", PL_OP_MATMUL, PRODUCT },
	{ "BMM", "bmm", PL_OP_MATMUL, BATCHED },
	{ "MEM", "copy", PL_OP_COPY, MEMORY },
	{ "VECln", "ln", PL_OP_NORMALIZATION, ROWS },
	{ "VECsoftmax", "softmax", PL_OP_SOFTMAX, ROWS },
	{ "VECadd", "add", PL_OP_ELEMENTWISE, PAIR },
	{ "VECsub", "sub", PL_OP_ELEMENTWISE, PAIR },
	{ "VECmul", "mul", PL_OP_ELEMENTWISE, PAIR },
	{ "VECdiv", "div", PL_OP_ELEMENTWISE, PAIR },
	{ "VECpow", "pow", PL_OP_ELEMENTWISE, PAIR },
	{ "VEC", NULL, PL_OP_ELEMENTWISE, ROWS }, /* any other */
};

/* The sizes that an operation is written with become those of its inputs. False: there are not as
 * many as its form has. *made: numbers in the result. */
static bool set_inputs(unsigned form, struct sizes *s, double *made)
{
	const int64_t *v = s->v;

	if (form == MEMORY) {
		*made = s->tensors ? elements(s, s->tensors - 1) : 0;
		s->tensors -= s->tensors > 1;
		return s->tensors > 0;
	}
	if (s->tensors != 1 || s->n != (form == PRODUCT ? 3 : form == BATCHED ? 4 : 2))
		return false;
	if (form == PRODUCT) {
		*made = (double)v[0] * (double)v[2];
		*s = (struct sizes){ { v[0], v[1], v[1], v[2] }, { 2, 4 }, 4, 2 };
	} else if (form == BATCHED) {
		*made = (double)v[0] * (double)v[1] * (double)v[3];
		*s = (struct sizes){ { v[0], v[1], v[2], v[0], v[2], v[3] }, { 3, 6 }, 6, 2 };
	} else {
		*made = (double)v[0] * (double)v[1];
		if (form == PAIR)
			*s = (struct sizes){ { v[0], v[1], v[0], v[1] }, { 2, 4 }, 4, 2 };
	}
	return true;
}

/* One number beside a tensor is no input that is read, and an input that is spread is smaller than
 * the result. `of`: the inputs of the row. */
static void narrow_pair(struct sizes *s, const struct sizes *of, double made)
{
	struct sizes x = { .n = 0 };
	bool whole = false;

	for (uint32_t i = 0; i < of->tensors && i < 2; i++) {
		double n = elements(of, i);

		if (n > made)
			return;
		whole |= n == made;
		if (n == 1 && made > 1)
			continue;
		for (uint32_t k = i ? of->end[i - 1] : 0; k < of->end[i]; k++)
			x.v[x.n++] = of->v[k];
		x.end[x.tensors++] = x.n;
	}
	if (whole)
		*s = x;
}

static pl_id put_dims(const struct reader *t, const struct sizes *s)
{
	char text[SIZES_MAX * 12 + 64];
	size_t n = 0;

	for (uint32_t i = 0, k = 0; i < s->tensors; i++) {
		n += (size_t)snprintf(text + n, sizeof(text) - n, "%s", i ? ",[" : "[[");
		for (bool first = true; k < s->end[i]; k++, first = false)
			n += (size_t)snprintf(text + n, sizeof(text) - n, first ? "%lld" : ",%lld",
					      (long long)s->v[k]);
		text[n++] = ']';
	}
	text[n++] = ']';
	return pl_derive_intern(t->err, &t->g->str, text, n);
}

/* Sets the name, the operator and the work of an operation. `of`: the inputs of its row, NULL: they
 * are not those of the operation. */
static bool put_op(struct reader *t, const char *kind, size_t n, struct sizes *s,
		   const struct sizes *of, bool gathers)
{
	struct pl_gwork w = { .type = t->type, .name = PL_NONE };
	struct op x;
	double made, bytes = 0, flops = 0;
	size_t k = 0;

	while (k < PL_LEN(kinds) &&
	       (kinds[k].name ? strlen(kinds[k].kind) != n || memcmp(kinds[k].kind, kind, n) != 0
			      : n < 4 || memcmp(kinds[k].kind, kind, 3) != 0))
		k++;
	if (k == PL_LEN(kinds) || !set_inputs(kinds[k].form, s, &made))
		return false;
	if (kinds[k].form == PAIR && of)
		narrow_pair(s, of, made);
	for (uint32_t i = 0; i < s->tensors; i++)
		bytes += t->element * elements(s, i);
	gathers &= kinds[k].form == MEMORY;
	bytes = gathers ? 2 * t->element * made : bytes + t->element * made;
	if (kinds[k].form == PRODUCT || kinds[k].form == BATCHED)
		flops = 2 * made * (double)s->v[s->end[0] - 1];
	else if (kinds[k].form != MEMORY)
		flops = made;
	if (bytes > WORK_MAX || flops > WORK_MAX)
		return false;
	w.op = gathers ? PL_OP_EMBEDDING : kinds[k].op;
	w.dims = put_dims(t, s);
	w.bytes = (int64_t)bytes;
	w.flops = (int64_t)flops;
	if (gathers)
		x.name = pl_derive_intern_text(t->err, &t->g->str, "embedding");
	else if (kinds[k].name)
		x.name = pl_derive_intern_text(t->err, &t->g->str, kinds[k].name);
	else
		x.name = pl_derive_intern(t->err, &t->g->str, kind + 3, n - 3);
	x.work = pl_derive_add_work(t->g, &t->rows, &w, t->err);
	PL_DERIVE_ADD(t->err, t->op, t->n_ops, t->cap_ops, x);
	return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

static const char *cell(const struct reader *t, const struct pl_csv_row *r, size_t c)
{
	return t->at[c] < r->n ? r->field[t->at[c]] : "";
}

static bool is_op(const struct reader *t, const struct pl_csv_row *r, const char *name)
{
	return !strcmp(cell(t, r, C_OP), name);
}

static int read_header(struct reader *t, const struct pl_csv_row *r, struct pl_err *err)
{
	for (size_t c = 0; c < COLUMNS; c++) {
		t->at[c] = 0;
		while (t->at[c] < r->n && strcmp(r->field[t->at[c]], columns[c].name) != 0)
			t->at[c]++;
		if (t->at[c] < r->n)
			continue;
		t->at[c] = SIZE_MAX;
		if (columns[c].needed || (t->o->train && c == C_BACKWARD))
			return pl_fail(err, PL_EDATA,
				       "%s: line %lld: no column \"%s\"; a table of operations "
				       "begins with Name,OpName,FwOps,BwOps,AccOps",
				       t->file, (long long)r->line, columns[c].name);
	}
	t->header = true;
	return 0;
}

/* The operations of a cell. */
static int read_ops(struct reader *t, const struct pl_csv_row *r, size_t c, struct ops *ops,
		    struct pl_err *err)
{
	const char *text = cell(t, r, c), *p = skip_blanks(text);
	struct sizes of = { .n = 0 };
	bool inputs = c == C_FORWARD && t->at[C_INPUTS] != SIZE_MAX &&
		      read_sizes(cell(t, r, C_INPUTS), &of);

	ops->first = (uint32_t)t->n_ops;
	if (!*p)
		return 0;
	if (*p++ != '[')
		goto bad;
	for (p = skip_blanks(p); *p != ']';) {
		struct sizes s = { .n = 0 };
		const char *kind;
		size_t n;

		if (*p != '[' && *p != '(')
			goto bad;
		p = read_quoted(p + 1, &kind, &n);
		if (!p || *p != ',')
			goto bad;
		p = read_sizes(p + 1, &s);
		if (!p || (*p != ']' && *p != ')'))
			goto bad;
		if (!put_op(t, kind, n, &s, inputs ? &of : NULL,
			    c == C_FORWARD && is_op(t, r, "EMBEDDING")))
			return pl_fail(err, PL_EDATA,
				       "%s: line %lld, column %s: \"%.*s\" with these sizes is not "
				       "known; there are Linear (m, k, n), BMM (batch, m, k, n), "
				       "VEC... (rows, columns) and MEM ((...), (...))",
				       t->file, (long long)r->line, columns[c].name,
				       (int)(n < 40 ? n : 40), kind);
		PL_CHECK(err->code);
		p = skip_blanks(p + 1);
		if (*p == ',')
			p = skip_blanks(p + 1);
	}
	/* views, and what does nothing in inference */
	if (is_op(t, r, "getitem") || (is_op(t, r, "dropout") && !t->o->train))
		t->n_ops = ops->first;
	ops->n = (uint32_t)t->n_ops - ops->first;
	return 0;
bad:
	return pl_fail(err, PL_EDATA,
		       "%s: line %lld, column %s: \"%.60s\" is not a list of operations such as "
		       "[['Linear', (512, 1024, 4096)]]",
		       t->file, (long long)r->line, columns[c].name, text);
}

/* The names of a set: {'a', 'b'}. */
static void read_before(struct reader *t, const char *p, struct row *x)
{
	const char *text;
	size_t n;

	x->before = (uint32_t)t->n_before;
	p = strchr(p, '{');
	while (p && (p = read_quoted(p + 1, &text, &n)) != NULL) {
		pl_id id = pl_derive_intern(t->err, &t->g->str, text, n);

		PL_DERIVE_ADD(t->err, t->before, t->n_before, t->cap_before, id);
		if (*p != ',')
			break;
	}
	x->n_before = (uint32_t)t->n_before - x->before;
}

static int read_row(struct reader *t, const struct pl_csv_row *r, struct pl_err *err)
{
	const char *name = cell(t, r, C_NAME);
	struct row x = { 0 };
	pl_id id;

	if (t->n_rows == ROWS_MAX)
		return pl_fail(err, PL_ELIMIT, "%s: line %lld: more than %u rows", t->file,
			       (long long)r->line, ROWS_MAX);
	PL_CHECK(pl_intern_add(&t->name, name, strlen(name), &id, err));
	if (!*name || id != t->n_rows)
		return pl_fail(err, PL_EDATA, "%s: line %lld: %s \"%.64s\"; names differ", t->file,
			       (long long)r->line, *name ? "a second row" : "no name:", name);
	x.name = pl_derive_intern_text(err, &t->g->str, name);
	PL_CHECK(read_ops(t, r, C_FORWARD, &x.forward, err));
	if (t->o->train) {
		PL_CHECK(read_ops(t, r, C_BACKWARD, &x.backward, err));
		PL_CHECK(read_ops(t, r, C_ADDED, &x.added, err));
	}
	read_before(t, cell(t, r, C_BEFORE), &x);
	return pl_append(&t->row, &t->n_rows, &t->cap_rows, &x, sizeof(x), err);
}

static int on_row(void *arg, const struct pl_csv_row *r, struct pl_err *err)
{
	struct reader *t = arg;

	if (r->n && r->field[0][0] == '#')
		return 0;
	return t->header ? read_row(t, r, err) : read_header(t, r, err);
}

/* ---- layers that are repeated ---------------------------------------------------------------- */

/* Does the name hold one of the texts, and no digit behind it? */
static bool matches(const char *name, const char *texts)
{
	for (const char *t = texts; *t;) {
		size_t n = strcspn(t, "|");

		for (const char *p = name; n && (p = memmem(p, strlen(p), t, n)) != NULL; p++)
			if (p[n] < '0' || p[n] > '9')
				return true;
		t += n + (t[n] == '|');
	}
	return false;
}

static bool is_inside(const struct reader *t, pl_id name)
{
	const char *text = pl_intern_get(&t->g->str, name);
	pl_id row = pl_intern_find(&t->name, text, strlen(text));

	return row != PL_NONE && row >= t->first && row <= t->last;
}

/* Is the row right behind the layer a sum of results of the layer, as that of a shortcut is? */
static bool ends_layer(const struct reader *t, const struct row *x)
{
	bool all = x->n_before > 1;

	for (uint32_t i = 0; i < x->n_before; i++)
		all &= is_inside(t, t->before[x->before + i]);
	return all;
}

static int find_layer(struct reader *t)
{
	t->first = SIZE_MAX;
	if (t->o->repeat == 1)
		return 0;
	for (size_t i = 0; i < t->n_rows; i++) {
		if (!matches(pl_intern_get(&t->g->str, t->row[i].name), t->o->match))
			continue;
		t->first = pl_min_size(t->first, i);
		t->last = i;
	}
	if (t->first == SIZE_MAX)
		return pl_fail(t->err, PL_EUSAGE,
			       "%s: no name holds \"%s\"; --repeat-match=TEXT|TEXT says which "
			       "rows are the layer that is repeated",
			       t->file, t->o->match);
	while (t->last + 1 < t->n_rows && ends_layer(t, &t->row[t->last + 1]))
		t->last++;
	return 0;
}

/* ---- the graph ------------------------------------------------------------------------------- */

struct step {
	struct reader *t;
	struct pl_program program;
};

/* An operation behind all others. */
static void put(struct step *s, struct pl_graph_program_op *x)
{
	struct reader *t = s->t;
	uint32_t id;

	if (t->err->code)
		return;
	if (s->program.n_ops >= OPS_MAX) {
		pl_fail(t->err, PL_ELIMIT, "%s: more than %u operations; take a smaller --repeat",
			t->file, OPS_MAX);
		return;
	}
	x->flags = s->program.n_ops ? PL_NF_IN_STEP : PL_NF_STEP_BEGIN;
	if (pl_graph_program_add(&s->program, x, &id, t->err) < 0 ||
	    (id && pl_graph_program_after(&s->program, id - 1, PL_E_SEQ, t->err) < 0))
		return;
}

static void put_mark(struct step *s, const char *name)
{
	struct pl_graph_program_op x = pl_graph_program_op_unknown;

	x.role = PL_RO_MARK;
	x.kind = PL_K_STEP;
	x.name = pl_derive_intern_text(s->t->err, &s->t->g->str, name);
	put(s, &x);
}

static void put_ops(struct step *s, const struct ops *ops, struct pl_graph_program_op *x)
{
	for (uint32_t i = ops->first; i < ops->first + ops->n; i++) {
		x->name = s->t->op[i].name;
		x->work = s->t->op[i].work;
		put(s, x);
	}
}

static void put_row(struct step *s, size_t row, int32_t layer, bool backward)
{
	const struct row *x = &s->t->row[row];
	struct pl_graph_program_op op = pl_graph_program_op_unknown;

	op.role = PL_RO_COMPUTE;
	op.kind = PL_K_KERNEL;
	op.layer = layer;
	op.phase = backward ? PL_PH_BACKWARD : PL_PH_FORWARD;
	op.module = x->name;
	put_ops(s, backward ? &x->backward : &x->forward, &op);
	if (backward)
		put_ops(s, &x->added, &op);
}

/* All rows, the layer as often as it is repeated; in a backward pass from the last to the first. */
static void put_pass(struct step *s, bool backward)
{
	const struct reader *t = s->t;
	size_t n = t->n_rows, inside = t->first == SIZE_MAX ? 0 : t->last - t->first + 1;
	size_t all = n + inside * (t->o->repeat - 1);

	if (all > OPS_MAX)
		pl_fail(t->err, PL_ELIMIT,
			"%s: %zu rows with repetitions, more than %u; take a smaller --repeat",
			t->file, all, OPS_MAX);
	for (size_t i = 0; i < all && !t->err->code; i++) {
		size_t at = backward ? all - 1 - i : i, behind = t->first;

		if (!inside || at < t->first) {
			put_row(s, at, -1, backward);
			continue;
		}
		behind += inside * t->o->repeat;
		if (at >= behind)
			put_row(s, at - behind + t->last + 1, -1, backward);
		else
			put_row(s, t->first + (at - t->first) % inside,
				(int32_t)((at - t->first) / inside), backward);
	}
}

static int make_step(struct reader *t)
{
	static const char *const resource[] = { "compute" };
	struct step s = { .t = t };
	struct pl_graph_program_nodes nodes = { .at = NULL };
	const struct pl_graph_program_job job = {
		.program = &s.program, .n_ranks = 1, .resource = resource, .n_resources = 1
	};
	int rc;

	put_mark(&s, "step begin");
	put_pass(&s, false);
	if (t->o->train)
		put_pass(&s, true);
	put_mark(&s, "step end");
	PL_TRY(t->err->code);
	PL_TRY(pl_graph_from_programs(&job, t->g, &nodes, t->err));
	t->g->described = true;
out:
	pl_graph_program_nodes_fini(&nodes);
	pl_graph_program_fini(&s.program);
	return rc;
}

int pl_derive_opgraph(struct pl_in *in, const struct pl_opgraph_opts *o, struct pl_graph *g,
		      struct pl_err *err)
{
	struct reader t = { .o = o, .g = g, .err = err, .file = pl_in_name(in) };
	int rc;

	pl_graph_init(g);
	t.element = (double)pl_trace_dtype(o->type, strlen(o->type), NULL);
	t.type = pl_derive_intern_text(err, &g->str, o->type);
	PL_TRY(err->code);
	PL_TRY(pl_csv_read(in, on_row, &t, err));
	PL_TRY(err->code);
	if (!t.n_rows)
		PL_TRY(pl_fail(err, PL_EDATA, "%s: no operations in this table", t.file));
	PL_TRY(find_layer(&t));
	PL_TRY(make_step(&t));
out:
	pl_derive_work_fini(&t.rows);
	pl_intern_fini(&t.name);
	pl_free(t.row);
	pl_free(t.op);
	pl_free(t.before);
	if (rc < 0)
		pl_graph_fini(g);
	return rc;
}

bool pl_derive_is_opgraph(const uint8_t *p, size_t n)
{
	const uint8_t *end = memchr(p, '\n', n);

	n = end ? (size_t)(end - p) : n;
	return memmem(p, n, "OpName", 6) && memmem(p, n, "FwOps", 5);
}
