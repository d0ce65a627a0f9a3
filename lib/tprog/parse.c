/*
 * The text of tensor programs: lines into nodes, and expressions by recursive descent. Linear.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "tprog/internal.h"

#define FILE_MOST    ((size_t)1 << 30)
#define NAME_MOST    128
#define NODES_MOST   4096
#define EXPRS_MOST   (1u << 16)
#define NESTED_MOST  2048 /* operations in one another: functions call themselves for each */
#define BUFFERS_MOST 1024
#define DEPTH_MOST   64
#define EXTENT_MOST  ((int64_t)1 << 31)
#define NUMBERS_MOST ((int64_t)1 << 36)

#define WORD_(name, word, ...)		word,
#define OPERANDS_(name, word, operands) operands,
const char *const pl_tprog_bind_word[PL_TPROG_BINDS_] = { PL_TPROG_BINDS(WORD_) };
const char *const pl_tprog_expr_word[PL_TPROG_EXPRS_] = { PL_TPROG_EXPRS(WORD_) };
const uint8_t pl_tprog_operands[PL_TPROG_EXPRS_] = { PL_TPROG_EXPRS(OPERANDS_) };
const char *const pl_tprog_update_word[] = { "=", "+=", "max=" };

int pl_tprog_binds(unsigned op)
{
	static const uint8_t strength[PL_TPROG_EXPRS_] = {
		[PL_TPROG_AND] = 1, [PL_TPROG_LESS] = 2, [PL_TPROG_EQUAL] = 2, [PL_TPROG_ADD] = 3,
		[PL_TPROG_SUB] = 3, [PL_TPROG_MUL] = 4,	 [PL_TPROG_DIV] = 4,   [PL_TPROG_MOD] = 4
	};

	return strength[op];
}

struct pl_tprog_reader {
	struct pl_buf text;
	char *name, *at, *line; /* at: the next line; line: the present one */
	uint32_t number;	/* of the line */
	const char *s;		/* in it */
	struct pl_tprog *p;
	uint32_t open[DEPTH_MOST]; /* nodes that enclose */
	int depth, nested;	   /* of nodes, of expressions */
	bool began;		   /* the header was read */
	bool held;		   /* the word "program" of the next program was read */
	struct pl_err *err;
};

void pl_tprog_fini(struct pl_tprog *p)
{
	pl_free(p->buffer);
	pl_free(p->node);
	pl_free(p->expr);
	pl_free(p->arg);
	pl_free(p->measured);
	pl_arena_fini(&p->arena);
	memset(p, 0, sizeof(*p));
}

/* Lines become texts, which a byte 0 would end. */
static int check_text(const struct pl_buf *b, const char *name, struct pl_err *err)
{
	const uint8_t *zero = b->n ? memchr(b->p, 0, b->n) : NULL, *begin = zero;
	size_t line = 1;

	if (!zero)
		return 0;
	while (begin > b->p && begin[-1] != '\n')
		begin--;
	for (const uint8_t *s = b->p; s < begin; s++)
		line += *s == '\n';
	return pl_fail(err, PL_EDATA, "%s: line %zu, column %zu: a byte 0, which no text has", name,
		       line, (size_t)(zero - begin) + 1);
}

int pl_tprog_reader_new(struct pl_in *in, struct pl_tprog_reader **out, struct pl_err *err)
{
	struct pl_tprog_reader *r;
	int rc;

	*out = NULL;
	PL_CHECK(pl_alloc(&r, 1, sizeof(*r), err));
	PL_TRY(pl_in_read_all(in, FILE_MOST, &r->text, err));
	PL_TRY(check_text(&r->text, pl_in_name(in), err));
	PL_TRY(pl_buf_put(&r->text, "", 1, err));
	r->name = pl_strdup(pl_in_name(in));
	PL_TRY(r->name ? 0 : pl_fail(err, PL_ENOMEM, "out of memory"));
	r->at = (char *)r->text.p;
	*out = r;
	r = NULL;
out:
	pl_tprog_reader_free(r);
	return rc;
}

void pl_tprog_reader_free(struct pl_tprog_reader *r)
{
	if (!r)
		return;
	pl_buf_fini(&r->text);
	pl_free(r->name);
	pl_free(r);
}

/* ---- words ----------------------------------------------------------------------------------- */

static int bad(struct pl_tprog_reader *r, const char *fmt, ...) PL_PRINTF(2, 3);

/* The first failure stays. */
static int bad(struct pl_tprog_reader *r, const char *fmt, ...)
{
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (!r->err->code)
		pl_fail(r->err, PL_EDATA, "%s: line %u, column %zu: %s", r->name, r->number,
			(size_t)(r->s - r->line) + 1, what);
	return r->err->code;
}

static void skip_blanks(struct pl_tprog_reader *r)
{
	while (*r->s == ' ' || *r->s == '\t')
		r->s++;
	if (*r->s == '#')
		r->s += strlen(r->s);
}

/* The next line that is not empty; false: the text ends. Lines become texts of their own. */
static bool next_line(struct pl_tprog_reader *r)
{
	do {
		char *end;

		if (!*r->at)
			return false;
		r->number++;
		r->s = r->line = r->at;
		end = strchr(r->at, '\n');
		r->at = end ? end + 1 : r->at + strlen(r->at);
		if (end)
			*end = '\0';
		if (end && end > r->line && end[-1] == '\r')
			end[-1] = '\0';
		skip_blanks(r);
	} while (!*r->s);
	return true;
}

/* A name does not begin like a number. */
static bool is_begin(const char *s)
{
	return isalpha((unsigned char)*s) || *s == '_' ||
	       (*s == '.' && !isdigit((unsigned char)s[1]));
}

static bool is_word(char c)
{
	return isalnum((unsigned char)c) || c == '_' || c == '.';
}

/* A word of letters, digits, "_" and "."; its length, 0: there is none. */
static size_t peek_word(struct pl_tprog_reader *r)
{
	size_t n = 0;

	skip_blanks(r);
	while (is_word(r->s[n]))
		n++;
	return n;
}

static bool take(struct pl_tprog_reader *r, const char *token)
{
	size_t n = strlen(token);

	skip_blanks(r);
	if (strncmp(r->s, token, n) != 0 || (is_word(token[n - 1]) && is_word(r->s[n])))
		return false;
	r->s += n;
	return true;
}

static void need(struct pl_tprog_reader *r, const char *token)
{
	if (!take(r, token))
		bad(r, "\"%s\" should be here", token);
}

static const char *keep(struct pl_tprog_reader *r, const char *s, size_t n)
{
	const char *text = r->err->code ? NULL : pl_arena_dup(&r->p->arena, s, n);

	if (!text && !r->err->code)
		pl_fail(r->err, PL_ENOMEM, "out of memory");
	return text ? text : "";
}

bool pl_tprog_is_name(const char *s)
{
	bool good = is_begin(s);

	for (; *s; s++)
		good &= is_word(*s);
	return good;
}

/* A name that is kept. */
static const char *take_name(struct pl_tprog_reader *r, const char *of)
{
	size_t n = peek_word(r);
	const char *s = r->s;

	if (!n || !is_begin(s) || n > NAME_MOST) {
		bad(r, "the name of %s should be here, of letters, digits, _ and .", of);
		return "";
	}
	r->s += n;
	return keep(r, s, n);
}

/* A decimal number, which ends at *end; if there is none, that is where the reader is. */
static double peek_number(const struct pl_tprog_reader *r, char **end)
{
	double v = strtod(r->s, end);

	for (const char *c = r->s; c < *end; c++)
		if (!strchr("+-.0123456789eE", *c)) /* "0x1p-1", "nan" */
			*end = (char *)r->s;
	return *end == r->s ? 0 : v;
}

static int64_t take_size(struct pl_tprog_reader *r, const char *of)
{
	char *end;
	long long v;

	skip_blanks(r);
	v = strtoll(r->s, &end, 10);
	if (end == r->s || v < 1 || v > EXTENT_MOST)
		bad(r, "%s should be here, 1 to %lld", of, (long long)EXTENT_MOST);
	else
		r->s = end;
	return r->err->code ? 1 : v;
}

/* ---- expressions ----------------------------------------------------------------------------- */

static uint32_t add_expr(struct pl_tprog_reader *r, const struct pl_tprog_expr *x,
			 const uint32_t *arg)
{
	struct pl_tprog *p = r->p;
	struct pl_tprog_expr e = *x;

	if (r->err->code)
		return 0;
	if (p->n_exprs >= EXPRS_MOST) {
		bad(r, "more than %u operations in a program", EXPRS_MOST);
		return 0;
	}
	e.arg = (uint32_t)p->n_args;
	e.depth = 1;
	for (uint32_t i = 0; i < e.n_args; i++)
		e.depth = (uint16_t)pl_max_i64(e.depth, p->expr[arg[i]].depth + 1);
	if (e.depth > NESTED_MOST) {
		bad(r, "more than %d operations in one another", NESTED_MOST);
		return 0;
	}
	for (uint32_t i = 0; i < e.n_args; i++)
		if (pl_append(&p->arg, &p->n_args, &p->cap_args, &arg[i], sizeof(*arg), r->err) < 0)
			return 0;
	if (pl_append(&p->expr, &p->n_exprs, &p->cap_exprs, &e, sizeof(e), r->err) < 0)
		return 0;
	return (uint32_t)p->n_exprs - 1;
}

static bool is_integer(const struct pl_tprog_reader *r, uint32_t expr)
{
	return !r->err->code && r->p->expr[expr].integer;
}

static void need_integer(struct pl_tprog_reader *r, uint32_t expr, const char *what)
{
	if (!r->err->code && !r->p->expr[expr].integer)
		bad(r, "%s is of loops and whole numbers", what);
}

static uint32_t parse_expr(struct pl_tprog_reader *r, int binds);

/* Operands between parentheses, which are open. */
static uint32_t take_call(struct pl_tprog_reader *r, unsigned op)
{
	struct pl_tprog_expr e = { .op = (uint8_t)op, .n_args = pl_tprog_operands[op] };
	uint32_t arg[3] = { 0 };

	for (uint32_t i = 0; i < e.n_args && !r->err->code; i++) {
		if (i)
			need(r, ",");
		arg[i] = parse_expr(r, 0);
	}
	need(r, ")");
	if (op == PL_TPROG_SELECT)
		need_integer(r, arg[0], "a condition");
	e.integer = op != PL_TPROG_SELECT && e.n_args == 2 && is_integer(r, arg[0]) &&
		    is_integer(r, arg[1]);
	if (op == PL_TPROG_SELECT)
		e.integer = is_integer(r, arg[1]) && is_integer(r, arg[2]);
	return add_expr(r, &e, arg);
}

/* Is this the word at s? */
static bool is_named(const char *name, const char *s, size_t n)
{
	return !strncmp(name, s, n) && !name[n];
}

static uint32_t find_buffer(const struct pl_tprog_reader *r, const char *s, size_t n)
{
	const struct pl_tprog *p = r->p;

	for (int d = r->depth; d-- > 0;) { /* the innermost one */
		const struct pl_tprog_node *x = &p->node[r->open[d]];

		if (x->kind == PL_TPROG_ALLOC && is_named(p->buffer[x->buffer].name, s, n))
			return x->buffer;
	}
	for (size_t i = p->n_buffers; i-- > 0;)
		if (p->buffer[i].node == PL_NONE && is_named(p->buffer[i].name, s, n))
			return (uint32_t)i;
	return PL_NONE;
}

/* The indices of a buffer, behind "[". */
static void take_indices(struct pl_tprog_reader *r, uint32_t buffer, uint32_t *arg)
{
	int n = r->p->buffer[buffer].n_dims;

	for (int d = 0; d < n && !r->err->code; d++) {
		if (d)
			need(r, ",");
		arg[d] = parse_expr(r, 0);
		need_integer(r, arg[d], "an index");
	}
	need(r, "]");
}

static uint32_t take_name_value(struct pl_tprog_reader *r)
{
	size_t n = peek_word(r);
	const char *s = r->s;
	struct pl_tprog_expr e = { .op = PL_TPROG_LOAD };
	uint32_t arg[PL_TPROG_DIMS] = { 0 };

	r->s += n;
	if (take(r, "(")) {
		for (unsigned op = PL_TPROG_MAX; op < PL_TPROG_EXPRS_; op++)
			if (strlen(pl_tprog_expr_word[op]) == n &&
			    !memcmp(pl_tprog_expr_word[op], s, n))
				return take_call(r, op);
		r->s = s;
		bad(r, "there is no function \"%.*s\"", (int)(n < 40 ? n : 40), s);
		return 0;
	}
	if (take(r, "[")) {
		e.ref = find_buffer(r, s, n);
		if (e.ref == PL_NONE) {
			r->s = s;
			bad(r, "there is no buffer \"%.*s\" here", (int)(n < 40 ? n : 40), s);
			return 0;
		}
		take_indices(r, e.ref, arg);
		e.n_args = (uint32_t)r->p->buffer[e.ref].n_dims;
		return add_expr(r, &e, arg);
	}
	for (int d = r->depth; d-- > 0;) {
		const struct pl_tprog_node *x = &r->p->node[r->open[d]];

		if (x->kind != PL_TPROG_FOR || !is_named(x->name, s, n))
			continue;
		e = (struct pl_tprog_expr){ .op = PL_TPROG_LOOP,
					    .integer = true,
					    .ref = r->open[d] };
		return add_expr(r, &e, NULL);
	}
	r->s = s;
	bad(r, "there is no loop \"%.*s\" around this", (int)(n < 40 ? n : 40), s);
	return 0;
}

static uint32_t parse_operand(struct pl_tprog_reader *r)
{
	struct pl_tprog_expr e = { .op = PL_TPROG_NUMBER };
	uint32_t inner;
	char *end;

	skip_blanks(r);
	if (take(r, "(")) {
		inner = parse_expr(r, 0);
		need(r, ")");
		return inner;
	}
	if (is_begin(r->s))
		return take_name_value(r);
	e.number = peek_number(r, &end);
	if (end == r->s || !(e.number > -1e300 && e.number < 1e300)) {
		bad(r, "a number, a loop or a buffer should be here");
		return 0;
	}
	e.integer = fabs(e.number) < 0x1p53;
	for (const char *c = r->s; c < end; c++)
		e.integer &= !strchr(".eE", *c);
	r->s = end;
	return add_expr(r, &e, NULL);
}

/* The operator here, if it binds closer than `binds`; PL_TPROG_NUMBER: none. */
static unsigned take_operator(struct pl_tprog_reader *r, int binds)
{
	skip_blanks(r);
	for (unsigned op = 0; op < PL_TPROG_EXPRS_; op++) {
		const char *word = pl_tprog_expr_word[op];

		if (pl_tprog_binds(op) <= binds || strncmp(r->s, word, strlen(word)) != 0)
			continue;
		r->s += strlen(word);
		return op;
	}
	return PL_TPROG_NUMBER;
}

/* Operators that bind closer than `binds`, from left to right. */
static uint32_t parse_expr(struct pl_tprog_reader *r, int binds)
{
	uint32_t left;
	unsigned op;

	if (r->nested++ >= DEPTH_MOST)
		bad(r, "more than %d parentheses in one another", DEPTH_MOST);
	left = r->err->code ? 0 : parse_operand(r);
	while (!r->err->code && (op = take_operator(r, binds)) != PL_TPROG_NUMBER) {
		uint32_t arg[2] = { left, parse_expr(r, pl_tprog_binds(op)) };
		bool both = is_integer(r, arg[0]) && is_integer(r, arg[1]);
		bool whole = op == PL_TPROG_MOD || op == PL_TPROG_LESS || op == PL_TPROG_EQUAL ||
			     op == PL_TPROG_AND;

		if (whole && !both)
			bad(r, "\"%s\" is of whole numbers", pl_tprog_expr_word[op]);
		left = add_expr(
			r,
			&(struct pl_tprog_expr){ .op = (uint8_t)op, .integer = both, .n_args = 2 },
			arg);
	}
	r->nested--;
	return left;
}

/* ---- statements ------------------------------------------------------------------------------ */

static void add_node(struct pl_tprog_reader *r, struct pl_tprog_node *x)
{
	struct pl_tprog *p = r->p;

	x->parent = r->depth ? r->open[r->depth - 1] : PL_NONE;
	x->end = (uint32_t)p->n_nodes + 1;
	if (p->n_nodes >= NODES_MOST)
		bad(r, "more than %d loops and stores in a program", NODES_MOST);
	if (!r->err->code &&
	    pl_append(&p->node, &p->n_nodes, &p->cap_nodes, x, sizeof(*x), r->err) < 0)
		return;
}

static void open_node(struct pl_tprog_reader *r, struct pl_tprog_node *x)
{
	add_node(r, x);
	if (r->depth == DEPTH_MOST)
		bad(r, "more than %d loops in one another", DEPTH_MOST);
	if (!r->err->code)
		r->open[r->depth++] = (uint32_t)r->p->n_nodes - 1;
}

/* A name, "float32" and dimensions. */
static void take_buffer(struct pl_tprog_reader *r, uint32_t node)
{
	struct pl_tprog *p = r->p;
	struct pl_tprog_buffer b = { .name = take_name(r, "a buffer"), .node = node, .n = 1 };

	need(r, "float32");
	skip_blanks(r);
	while (isdigit((unsigned char)*r->s) && b.n_dims < PL_TPROG_DIMS && !r->err->code) {
		b.dim[b.n_dims] = take_size(r, "a dimension");
		if (b.dim[b.n_dims] > NUMBERS_MOST / b.n)
			bad(r, "the buffer has more than %lld numbers", (long long)NUMBERS_MOST);
		else
			b.n *= b.dim[b.n_dims];
		b.n_dims++;
		skip_blanks(r);
	}
	if (!b.n_dims)
		bad(r, "the dimensions of the buffer should be here, 1 to %d of them",
		    PL_TPROG_DIMS);
	b.shared = node != PL_NONE && take(r, "shared");
	if (p->n_buffers >= BUFFERS_MOST)
		bad(r, "more than %d buffers in a program", BUFFERS_MOST);
	if (!r->err->code &&
	    pl_append(&p->buffer, &p->n_buffers, &p->cap_buffers, &b, sizeof(b), r->err) < 0)
		return;
}

static void parse_for(struct pl_tprog_reader *r)
{
	struct pl_tprog_node x = { .kind = PL_TPROG_FOR, .name = take_name(r, "a loop") };

	x.extent = take_size(r, "the number of iterations");
	x.reduce = take(r, "reduce");
	for (unsigned b = 1; b < PL_TPROG_BINDS_; b++)
		if (take(r, pl_tprog_bind_word[b])) {
			x.bind = (uint8_t)b;
			break;
		}
	if (x.reduce && x.bind == PL_TPROG_PARALLEL)
		bad(r, "a loop that sums up is not parallel: threads would change a number at the "
		       "same time");
	open_node(r, &x);
}

static void parse_store(struct pl_tprog_reader *r)
{
	size_t n = peek_word(r);
	const char *s = r->s;
	struct pl_tprog_node x = { .kind = PL_TPROG_STORE, .buffer = find_buffer(r, s, n) };
	uint32_t index[PL_TPROG_DIMS] = { 0 };
	struct pl_tprog *p = r->p;
	int dims;

	if (!n || x.buffer == PL_NONE) {
		bad(r,
		    "there is no statement or buffer \"%.*s\" here; there are buffer, for, alloc, "
		    "end, measured and BUFFER[...] = ...",
		    (int)(n < 40 ? n : 40), s);
		return;
	}
	r->s += n;
	need(r, "[");
	take_indices(r, x.buffer, index);
	x.update = take(r, "+=") ? PL_TPROG_PLUS : take(r, "max=") ? PL_TPROG_MOST : PL_TPROG_SET;
	if (x.update == PL_TPROG_SET)
		need(r, "=");
	x.value = r->err->code ? 0 : parse_expr(r, 0);
	if (r->err->code)
		return;
	dims = p->buffer[x.buffer].n_dims;
	x.arg = (uint32_t)p->n_args;
	for (int d = 0; d < dims; d++)
		if (pl_append(&p->arg, &p->n_args, &p->cap_args, &index[d], sizeof(*index),
			      r->err) < 0)
			return;
	add_node(r, &x);
}

static void parse_end(struct pl_tprog_reader *r)
{
	if (!r->depth)
		bad(r, "no loop is open here");
	else
		r->p->node[r->open[--r->depth]].end = (uint32_t)r->p->n_nodes;
}

/* measured DEVICE NS least=NS runs=N */
static void parse_measured(struct pl_tprog_reader *r)
{
	struct pl_tprog *p = r->p;
	struct pl_tprog_measured m = { .device = take_name(r, "a device") };
	char *end;

	skip_blanks(r);
	m.median = peek_number(r, &end);
	if (end == r->s || !(m.median > 0 && m.median < 1e15))
		bad(r, "a time in ns should be here, above 0 and below 1e15");
	else
		r->s = end;
	m.least = take(r, "least=") ? peek_number(r, &end) : m.median;
	r->s = end;
	m.runs = take(r, "runs=") ? take_size(r, "a number of runs") : 1;
	if (!(m.least > 0 && m.least <= m.median))
		bad(r, "the least time is above 0, and not above the median");
	if (!r->err->code &&
	    pl_append(&p->measured, &p->n_measured, &p->cap_measured, &m, sizeof(m), r->err) < 0)
		return;
}

static void parse_line(struct pl_tprog_reader *r)
{
	struct pl_tprog_node alloc = { .kind = PL_TPROG_ALLOC };

	if (take(r, "buffer")) {
		if (r->p->n_nodes)
			bad(r, "parameters stand before the first loop; a buffer of a loop is an "
			       "\"alloc\"");
		take_buffer(r, PL_NONE);
	} else if (take(r, "for")) {
		parse_for(r);
	} else if (take(r, "alloc")) {
		alloc.buffer = (uint32_t)r->p->n_buffers;
		take_buffer(r, (uint32_t)r->p->n_nodes);
		open_node(r, &alloc);
	} else if (take(r, "end")) {
		parse_end(r);
	} else if (take(r, "measured")) {
		parse_measured(r);
	} else {
		parse_store(r);
	}
	skip_blanks(r);
	if (*r->s)
		bad(r, "nothing more should be here");
}

/* program NAME model=NAME op=NAME */
static void parse_program(struct pl_tprog_reader *r)
{
	struct pl_tprog *p = r->p;

	p->line = r->number;
	p->name = take_name(r, "a program");
	p->model = take(r, "model=") ? take_name(r, "a model") : "";
	p->op = take(r, "op=") ? take_name(r, "an operation") : "";
	skip_blanks(r);
	if (*r->s)
		bad(r, "nothing more should be here");
}

static void parse_header(struct pl_tprog_reader *r)
{
	char *end;
	long major;

	r->began = true;
	need(r, "paceline-tprog");
	skip_blanks(r);
	major = strtol(r->s, &end, 10);
	if (!r->err->code && (end == r->s || major != PL_TPROG_MAJOR))
		bad(r, "version %ld; this program reads %d", major, PL_TPROG_MAJOR);
	r->s = end;
	skip_blanks(r);
	if (*r->s)
		bad(r, "nothing more should be here");
}

int pl_tprog_next(struct pl_tprog_reader *r, struct pl_tprog *p, struct pl_err *err)
{
	r->p = p;
	r->err = err;
	r->depth = r->nested = 0;
	if (!r->began) {
		if (!next_line(r))
			return pl_fail(err, PL_EDATA, "%s: an empty file", r->name);
		parse_header(r);
	}
	if (err->code || (!r->held && !next_line(r)))
		return err->code;
	if (!r->held)
		need(r, "program");
	r->held = false;
	if (!err->code)
		parse_program(r);
	while (!err->code && next_line(r)) {
		r->held = take(r, "program");
		if (r->held)
			break;
		parse_line(r);
	}
	if (!err->code && r->depth)
		bad(r, "a loop has no \"end\"");
	if (!err->code && !p->n_nodes)
		bad(r, "the program \"%s\" computes nothing", p->name);
	return err->code ? err->code : 1;
}
