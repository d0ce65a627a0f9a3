/* Tensor programs as text, and as functions in C. */
#include <stdlib.h>

#include "tprog/internal.h"

/* ---- expressions ----------------------------------------------------------------------------- */

static void put_list(const struct pl_tprog *p, uint32_t arg, uint32_t n, const struct pl_tprog_c *c,
		     struct pl_writer *w)
{
	for (uint32_t i = 0; i < n; i++) {
		pl_write_text(w, i ? ", " : "");
		pl_tprog_put_expr(p, p->arg[arg + i], c, w);
	}
}

/* The element of a buffer in memory: b_A_0[((i) * 64 + (j))]. */
static void put_element(const struct pl_tprog *p, uint32_t buffer, uint32_t arg,
			const struct pl_tprog_c *c, struct pl_writer *w)
{
	const struct pl_tprog_buffer *b = &p->buffer[buffer];
	int first = c->skip ? c->skip[buffer] : 0;

	pl_tprog_put_buffer_name(p, buffer, w);
	pl_write_text(w, "[");
	for (int d = first + 1; d < b->n_dims; d++)
		pl_write_text(w, "(");
	for (int d = first; d < b->n_dims; d++) {
		if (d > first)
			pl_write_format(w, " * %lld + ", (long long)b->dim[d]);
		pl_write_text(w, "(");
		pl_tprog_put_expr(p, p->arg[arg + (uint32_t)d], c, w);
		pl_write_text(w, d > first ? "))" : ")");
	}
	pl_write_text(w, first == b->n_dims ? "0]" : "]");
}

/* Names of C: a dot becomes two underscores; a letter before it, so that no word of C is one. */
static void put_c_name(const char *name, char kind, struct pl_writer *w)
{
	pl_write_format(w, "%c_", kind);
	for (const char *s = name; *s; s++)
		pl_write_format(w, *s == '.' ? "__" : "%c", *s);
}

void pl_tprog_put_loop_name(const struct pl_tprog *p, uint32_t node, struct pl_writer *w)
{
	put_c_name(p->node[node].name, 'i', w);
	pl_write_format(w, "_%u", node); /* "a.b" and "a__b" are one name in C */
}

void pl_tprog_put_buffer_name(const struct pl_tprog *p, uint32_t buffer, struct pl_writer *w)
{
	put_c_name(p->buffer[buffer].name, 'b', w);
	pl_write_format(w, "_%u", buffer); /* an inner one may have the name of an outer one */
}

#define NUMBER_TEXT 40 /* bytes */

/* As many digits as it takes to read the same number back, and at least `digits`. */
static void shortest(double v, int digits, char *text)
{
	do
		snprintf(text, NUMBER_TEXT, "%.*g", digits, v);
	while (strtod(text, NULL) != v && digits++ < 17);
}

/* With a point or a power: without both it would be a whole number, which C divides otherwise. */
static void put_number(const struct pl_tprog_expr *e, bool c, struct pl_writer *w)
{
	char text[NUMBER_TEXT];

	if (e->integer) {
		pl_write_format(w, "%lld", (long long)e->number);
		return;
	}
	shortest(e->number, 9, text);
	pl_write_format(w, "%s%s%s", text, strpbrk(text, ".e") ? "" : ".0", c ? "f" : "");
}

/* Operands that do not bind closer have parentheses. */
static void put_operand(const struct pl_tprog *p, uint32_t expr, int binds,
			const struct pl_tprog_c *c, struct pl_writer *w)
{
	int inner = pl_tprog_binds(p->expr[expr].op);
	bool open = inner && inner <= binds;

	pl_write_text(w, open ? "(" : "");
	pl_tprog_put_expr(p, expr, c, w);
	pl_write_text(w, open ? ")" : "");
}

#define TWICE 3 /* levels of max and min whose operands are written twice each */

/* How many max and min are in one another, at most. */
static int levels(const struct pl_tprog *p, uint32_t expr)
{
	const struct pl_tprog_expr *e = &p->expr[expr];
	int most = 0;

	for (uint32_t i = 0; i < e->n_args; i++)
		most = (int)pl_max_i64(most, levels(p, p->arg[e->arg + i]));
	return most + (e->op == PL_TPROG_MAX || e->op == PL_TPROG_MIN);
}

/* max and min. Both operands are written twice, which doubles the text with each level, so that
 * those of many levels get names. */
static void put_c_choice(const struct pl_tprog *p, uint32_t expr, const struct pl_tprog_c *c,
			 struct pl_writer *w)
{
	const struct pl_tprog_expr *e = &p->expr[expr];
	const char *word = e->op == PL_TPROG_MAX ? ">" : "<";
	const uint32_t *arg = &p->arg[e->arg];
	int binds = pl_tprog_binds(PL_TPROG_LESS);

	if (levels(p, expr) > TWICE) {
		pl_write_format(w, "({ %s x_ = ", e->integer ? "long long" : "float");
		pl_tprog_put_expr(p, arg[0], c, w);
		pl_write_text(w, ", y_ = ");
		pl_tprog_put_expr(p, arg[1], c, w);
		pl_write_format(w, "; x_ %s y_ ? x_ : y_; })", word);
		return;
	}
	pl_write_text(w, "(");
	put_operand(p, arg[0], binds, c, w);
	pl_write_format(w, " %s ", word);
	put_operand(p, arg[1], binds, c, w);
	pl_write_text(w, " ? ");
	pl_tprog_put_expr(p, arg[0], c, w);
	pl_write_text(w, " : ");
	pl_tprog_put_expr(p, arg[1], c, w);
	pl_write_text(w, ")");
}

static void put_c_call(const struct pl_tprog *p, const struct pl_tprog_expr *e,
		       const struct pl_tprog_c *c, struct pl_writer *w)
{
	static const char *const function[PL_TPROG_EXPRS_] = {
		[PL_TPROG_EXP] = "expf",   [PL_TPROG_LOG] = "logf", [PL_TPROG_SQRT] = "sqrtf",
		[PL_TPROG_TANH] = "tanhf", [PL_TPROG_ERF] = "erff",
	};
	const uint32_t *arg = &p->arg[e->arg];

	if (e->op == PL_TPROG_MAX || e->op == PL_TPROG_MIN) {
		put_c_choice(p, (uint32_t)(e - p->expr), c, w);
		return;
	}
	if (e->op == PL_TPROG_SELECT) {
		pl_write_text(w, "(");
		pl_tprog_put_expr(p, arg[0], c, w);
		pl_write_text(w, " ? ");
		pl_tprog_put_expr(p, arg[1], c, w);
		pl_write_text(w, " : ");
		pl_tprog_put_expr(p, arg[2], c, w);
		pl_write_text(w, ")");
		return;
	}
	pl_write_format(w, "%s(", function[e->op]);
	put_list(p, e->arg, e->n_args, c, w);
	pl_write_text(w, ")");
}

void pl_tprog_put_expr(const struct pl_tprog *p, uint32_t expr, const struct pl_tprog_c *c,
		       struct pl_writer *w)
{
	const struct pl_tprog_expr *e = &p->expr[expr];
	int binds = pl_tprog_binds(e->op);
	/* < and == go from left to right here, while in C < binds closer */
	int left = binds - !(c && binds == pl_tprog_binds(PL_TPROG_LESS));

	if (binds) {
		put_operand(p, p->arg[e->arg], left, c, w);
		pl_write_format(w, " %s ", pl_tprog_expr_word[e->op]);
		put_operand(p, p->arg[e->arg + 1], binds, c, w);
	} else if (e->op == PL_TPROG_NUMBER) {
		put_number(e, c != NULL, w);
	} else if (e->op == PL_TPROG_LOOP && c) {
		pl_tprog_put_loop_name(p, e->ref, w);
	} else if (e->op == PL_TPROG_LOOP) {
		pl_write_text(w, p->node[e->ref].name);
	} else if (e->op == PL_TPROG_LOAD) {
		if (c) {
			put_element(p, e->ref, e->arg, c, w);
			return;
		}
		pl_write_format(w, "%s[", p->buffer[e->ref].name);
		put_list(p, e->arg, e->n_args, NULL, w);
		pl_write_text(w, "]");
	} else if (c) {
		put_c_call(p, e, c, w);
	} else {
		pl_write_format(w, "%s(", pl_tprog_expr_word[e->op]);
		put_list(p, e->arg, e->n_args, NULL, w);
		pl_write_text(w, ")");
	}
}

/* ---- text ------------------------------------------------------------------------------------ */

void pl_tprog_indent(int depth, struct pl_writer *w)
{
	for (int i = 0; i < depth; i++)
		pl_write_text(w, "  ");
}

static void put_text_buffer(const char *word, const struct pl_tprog_buffer *b, struct pl_writer *w)
{
	pl_write_format(w, "%s %s float32", word, b->name);
	for (int d = 0; d < b->n_dims; d++)
		pl_write_format(w, " %lld", (long long)b->dim[d]);
	pl_write_text(w, b->shared ? " shared\n" : "\n");
}

static void put_text_node(const struct pl_tprog *p, const struct pl_tprog_node *x, int depth,
			  struct pl_writer *w)
{
	const struct pl_tprog_buffer *b = x->kind == PL_TPROG_FOR ? NULL : &p->buffer[x->buffer];

	pl_tprog_indent(depth, w);
	if (x->kind == PL_TPROG_FOR) {
		pl_write_format(w, "for %s %lld%s%s%s\n", x->name, (long long)x->extent,
				x->reduce ? " reduce" : "", x->bind ? " " : "",
				x->bind ? pl_tprog_bind_word[x->bind] : "");
	} else if (x->kind == PL_TPROG_ALLOC) {
		put_text_buffer("alloc", b, w);
	} else {
		pl_write_format(w, "%s[", b->name);
		put_list(p, x->arg, (uint32_t)b->n_dims, NULL, w);
		pl_write_format(w, "] %s ", pl_tprog_update_word[x->update]);
		pl_tprog_put_expr(p, x->value, NULL, w);
		pl_write_text(w, "\n");
	}
}

typedef void put_node(const struct pl_tprog *p, const struct pl_tprog_node *x, int depth,
		      struct pl_writer *w);

/* Calls put() for each node, and close() for each one whose body ends. */
static void walk(const struct pl_tprog *p, struct pl_writer *w, put_node *put, put_node *close)
{
	int depth = 0;

	for (uint32_t i = 0; i < p->n_nodes; i++) {
		const struct pl_tprog_node *x = &p->node[i];

		put(p, x, depth, w);
		depth += x->kind != PL_TPROG_STORE;
		if (x->kind != PL_TPROG_STORE && x->end > i + 1)
			continue;
		/* what encloses the node and ends with it */
		for (uint32_t k = x->kind == PL_TPROG_STORE ? x->parent : i;
		     k != PL_NONE && p->node[k].end == i + 1; k = p->node[k].parent)
			close(p, &p->node[k], --depth, w);
	}
}

void pl_tprog_write_header(struct pl_writer *w)
{
	pl_write_format(w, "paceline-tprog %d\n", PL_TPROG_MAJOR);
}

static void close_text_node(const struct pl_tprog *p, const struct pl_tprog_node *x, int depth,
			    struct pl_writer *w)
{
	(void)p;
	(void)x;
	pl_tprog_indent(depth, w);
	pl_write_text(w, "end\n");
}

static void put_measured(const struct pl_tprog_measured *m, struct pl_writer *w)
{
	char median[NUMBER_TEXT], least[NUMBER_TEXT];

	/* whole numbers below 10^15, which no time exceeds, have no power */
	shortest(m->median, 15, median);
	shortest(m->least, 15, least);
	pl_write_format(w, "measured %s %s least=%s runs=%lld\n", m->device, median, least,
			(long long)m->runs);
}

void pl_tprog_write(const struct pl_tprog *p, struct pl_writer *w)
{
	pl_write_format(w, "program %s%s%s%s%s\n", p->name, *p->model ? " model=" : "", p->model,
			*p->op ? " op=" : "", p->op);
	for (size_t i = 0; i < p->n_buffers; i++)
		if (p->buffer[i].node == PL_NONE)
			put_text_buffer("buffer", &p->buffer[i], w);
	walk(p, w, put_text_node, close_text_node);
	for (size_t i = 0; i < p->n_measured; i++)
		put_measured(&p->measured[i], w);
}

/* ---- C --------------------------------------------------------------------------------------- */

static void put_c_loop(const struct pl_tprog *p, const struct pl_tprog_node *x, int depth,
		       struct pl_writer *w)
{
	uint32_t node = (uint32_t)(x - p->node);

	if (x->bind == PL_TPROG_PARALLEL)
		pl_write_text(w, "#pragma omp parallel for\n");
	else if (x->bind == PL_TPROG_VECTORIZE)
		pl_write_text(w, "#pragma omp simd\n");
	else if (x->bind == PL_TPROG_UNROLL)
		pl_write_format(w, "#pragma GCC unroll %lld\n",
				(long long)pl_min_i64(x->extent, 64));
	pl_tprog_indent(depth, w);
	pl_write_text(w, "for (long ");
	pl_tprog_put_loop_name(p, node, w);
	pl_write_text(w, " = 0; ");
	pl_tprog_put_loop_name(p, node, w);
	pl_write_format(w, " < %lld; ", (long long)x->extent);
	pl_tprog_put_loop_name(p, node, w);
	pl_write_text(w, "++) {\n");
}

void pl_tprog_put_c_store(const struct pl_tprog *p, const struct pl_tprog_node *x,
			  const struct pl_tprog_c *c, struct pl_writer *w)
{
	put_element(p, x->buffer, x->arg, c, w);
	if (x->update == PL_TPROG_MOST) {
		pl_write_text(w, " = fmaxf(");
		put_element(p, x->buffer, x->arg, c, w);
		pl_write_text(w, ", ");
		pl_tprog_put_expr(p, x->value, c, w);
		pl_write_text(w, ");\n");
		return;
	}
	pl_write_format(w, " %s ", pl_tprog_update_word[x->update]);
	pl_tprog_put_expr(p, x->value, c, w);
	pl_write_text(w, ";\n");
}

#define ON_STACK   16384     /* numbers */
#define IN_THREADS (1 << 18) /* of the arrays of a thread together: a MiB on its stack */

enum storage { STACK, STATIC, HEAP };

/* Numbers on the stack of a thread, in the body of the node; *threads: is it in a parallel loop? */
static int64_t on_stack(const struct pl_tprog *p, uint32_t node, bool *threads)
{
	const struct pl_tprog_node *x = &p->node[node];
	int64_t used = x->parent == PL_NONE ? 0 : on_stack(p, x->parent, threads), n;

	*threads |= x->kind == PL_TPROG_FOR && x->bind == PL_TPROG_PARALLEL;
	n = x->kind == PL_TPROG_ALLOC && *threads ? p->buffer[x->buffer].n : 0;
	return used + n <= IN_THREADS ? used + n : used;
}

/* Where the array of the node is. Those of threads cannot be static, as each thread has its own. */
static enum storage storage_of(const struct pl_tprog *p, const struct pl_tprog_node *x)
{
	int64_t n = p->buffer[x->buffer].n;
	bool threads = false;
	int64_t used = x->parent == PL_NONE ? 0 : on_stack(p, x->parent, &threads);

	if (!threads)
		return n > ON_STACK ? STATIC : STACK;
	return used + n > IN_THREADS ? HEAP : STACK;
}

static void put_c_node(const struct pl_tprog *p, const struct pl_tprog_node *x, int depth,
		       struct pl_writer *w)
{
	enum storage storage;
	int64_t n;

	if (x->kind == PL_TPROG_FOR) {
		put_c_loop(p, x, depth + 1, w);
		return;
	}
	pl_tprog_indent(depth + 1, w);
	if (x->kind == PL_TPROG_STORE) {
		pl_tprog_put_c_store(p, x, &(struct pl_tprog_c){ NULL }, w);
		return;
	}
	storage = storage_of(p, x);
	n = p->buffer[x->buffer].n;
	if (storage == HEAP) {
		pl_write_text(w, "{ float *restrict ");
		pl_tprog_put_buffer_name(p, x->buffer, w);
		pl_write_format(w, " = aligned_alloc(64, %lld);\n",
				(long long)(n * (int64_t)sizeof(float) + 63) / 64 * 64);
		pl_tprog_indent(depth + 2, w);
		pl_write_text(w, "if (!");
		pl_tprog_put_buffer_name(p, x->buffer, w);
		pl_write_text(w, ")\n");
		pl_tprog_indent(depth + 3, w);
		pl_write_text(w, "__builtin_trap();\n");
		return;
	}
	pl_write_format(w, "{ %sfloat ", storage == STATIC ? "static " : "");
	pl_tprog_put_buffer_name(p, x->buffer, w);
	pl_write_format(w, "[%lld] __attribute__((aligned(64)));\n", (long long)n);
}

static void close_c_node(const struct pl_tprog *p, const struct pl_tprog_node *x, int depth,
			 struct pl_writer *w)
{
	if (x->kind == PL_TPROG_ALLOC && storage_of(p, x) == HEAP) {
		pl_tprog_indent(depth + 2, w);
		pl_write_text(w, "free(");
		pl_tprog_put_buffer_name(p, x->buffer, w);
		pl_write_text(w, ");\n");
	}
	pl_tprog_indent(depth + 1, w);
	pl_write_text(w, "}\n");
}

void pl_tprog_write_c_header(struct pl_writer *w)
{
	pl_write_text(w, "#include <math.h>\n#include <stdlib.h>\n");
}

void pl_tprog_write_c(const struct pl_tprog *p, const char *name, struct pl_writer *w)
{
	uint32_t n = 0;

	pl_write_format(w, "void %s(float *const *buffer)\n{\n", name);
	for (uint32_t i = 0; i < p->n_buffers; i++) {
		if (p->buffer[i].node != PL_NONE)
			continue;
		pl_write_text(w, "  float *restrict ");
		pl_tprog_put_buffer_name(p, i, w);
		pl_write_format(w, " = __builtin_assume_aligned(buffer[%u], 64);\n", n++);
	}
	walk(p, w, put_c_node, close_c_node);
	pl_write_text(w, "}\n");
}
