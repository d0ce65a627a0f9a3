/*
 * Arithmetic: recursive descent into a program for a stack machine.
 *
 * The depth of the stack is known when the program is made, so running it checks nothing. Linear.
 */
#include <ctype.h>
#include <math.h>
#include <stdlib.h>

#include "kernel/expr.h"

#define DEPTH_MAX 64 /* of the stack, and of parentheses */
#define NAME_MAX_ 128

enum op {
	NUMBER,
	VALUE,
	ADD,
	SUBTRACT,
	MULTIPLY,
	DIVIDE,
	REMAINDER,
	NEGATE,
	EQUAL,
	UNEQUAL,
	LESS,
	LESS_EQUAL,
	GREATER,
	GREATER_EQUAL,
	MIN,
	MAX,
	CEIL,
	FLOOR
};
struct code {
	uint8_t op;
	uint32_t value; /* VALUE */
	double number;	/* NUMBER */
};
struct pl_expr {
	struct code *code;
	size_t n, cap;
};
struct parser {
	struct pl_expr *e;
	const char *text, *s;
	pl_expr_find *find;
	void *arg;
	int depth, nested; /* values on the stack, open parentheses */
	struct pl_err *err;
};

static int parse_compare(struct parser *p);

static int fail(struct parser *p, const char *what)
{
	return pl_fail(p->err, PL_EDATA, "\"%.100s\": %s at byte %zu", p->text, what,
		       (size_t)(p->s - p->text) + 1);
}

/* `grows`: what it changes of the number of values on the stack. */
static int emit(struct parser *p, struct code c, int grows)
{
	p->depth += grows;
	if (p->depth > DEPTH_MAX)
		return fail(p, "too deep");
	return pl_append(&p->e->code, &p->e->n, &p->e->cap, &c, sizeof(c), p->err);
}

static char peek(struct parser *p)
{
	while (isspace((unsigned char)*p->s))
		p->s++;
	return *p->s;
}

static bool take(struct parser *p, const char *token)
{
	size_t n = strlen(token);

	peek(p);
	if (strncmp(p->s, token, n) != 0)
		return false;
	p->s += n;
	return true;
}

static bool is_name(char c, bool first)
{
	return isalpha((unsigned char)c) || c == '_' ||
	       (!first && (isdigit((unsigned char)c) || c == '.'));
}

/* The arguments of a function, up to its parenthesis. */
static int parse_arguments(struct parser *p, int n)
{
	for (int i = 0; i < n; i++) {
		if (i && !take(p, ","))
			return fail(p, "a comma is missing");
		PL_CHECK(parse_compare(p));
	}
	return take(p, ")") ? 0 : fail(p, "\")\" is missing");
}

static int push_value(struct parser *p, const char *name)
{
	uint32_t value = p->find(p->arg, name);

	if (value == PL_NONE && !strcmp(p->text, name))
		return pl_fail(p->err, PL_EDATA, "there is no column or variable \"%s\"", name);
	if (value == PL_NONE)
		return pl_fail(p->err, PL_EDATA,
			       "\"%.100s\": there is no column or variable \"%s\"", p->text, name);
	return emit(p, (struct code){ .op = VALUE, .value = value }, 1);
}

/* A name between quotes may hold any other character. */
static int parse_quoted(struct parser *p)
{
	size_t n = strcspn(++p->s, "'");
	char name[NAME_MAX_];

	if (p->s[n] != '\'' || n >= sizeof(name))
		return fail(p, "a quote is missing");
	memcpy(name, p->s, n);
	name[n] = '\0';
	p->s += n + 1;
	return push_value(p, name);
}

static int parse_name(struct parser *p)
{
	static const struct {
		const char *name;
		uint8_t op;
		int arguments;
	} functions[] = {
		{ "min", MIN, 2 }, { "max", MAX, 2 }, { "ceil", CEIL, 1 }, { "floor", FLOOR, 1 }
	};
	char name[NAME_MAX_];
	size_t n = 0;

	while (is_name(p->s[n], n == 0))
		n++;
	if (n >= sizeof(name))
		return fail(p, "a name is too long");
	memcpy(name, p->s, n);
	name[n] = '\0';
	for (size_t i = 0; i < PL_LEN(functions); i++) {
		if (strcmp(name, functions[i].name) != 0 || p->s[n] != '(')
			continue;
		p->s += n + 1;
		if (++p->nested > DEPTH_MAX)
			return fail(p, "too many functions");
		PL_CHECK(parse_arguments(p, functions[i].arguments));
		p->nested--;
		return emit(p, (struct code){ .op = functions[i].op }, 1 - functions[i].arguments);
	}
	p->s += n;
	return push_value(p, name);
}

static int parse_primary(struct parser *p)
{
	char c = peek(p), *end;
	int rc;

	if (take(p, "(")) {
		if (++p->nested > DEPTH_MAX)
			return fail(p, "too many parentheses");
		rc = parse_arguments(p, 1);
		p->nested--;
		return rc;
	}
	if (take(p, "-")) {
		if (++p->nested > DEPTH_MAX)
			return fail(p, "too many signs");
		rc = parse_primary(p);
		p->nested--;
		return rc < 0 ? rc : emit(p, (struct code){ .op = NEGATE }, 0);
	}
	if (isdigit((unsigned char)c) || c == '.') {
		double v = strtod(p->s, &end);

		/* "0x10" is no decimal number */
		if (end == p->s || !isfinite(v) ||
		    tolower((unsigned char)p->s[strspn(p->s, "0123456789")]) == 'x')
			return fail(p, "not a number");
		p->s = end;
		return emit(p, (struct code){ .op = NUMBER, .number = v }, 1);
	}
	if (c == '\'')
		return parse_quoted(p);
	return is_name(c, true) ? parse_name(p) : fail(p, c ? "unexpected character" : "it ends");
}

static int parse_product(struct parser *p)
{
	PL_CHECK(parse_primary(p));
	for (;;) {
		uint8_t op = take(p, "*")   ? MULTIPLY
			     : take(p, "/") ? DIVIDE
			     : take(p, "%") ? REMAINDER
					    : 0;

		if (!op)
			return 0;
		PL_CHECK(parse_primary(p));
		PL_CHECK(emit(p, (struct code){ .op = op }, -1));
	}
}

static int parse_sum(struct parser *p)
{
	PL_CHECK(parse_product(p));
	for (;;) {
		uint8_t op = take(p, "+") ? ADD : take(p, "-") ? SUBTRACT : 0;

		if (!op)
			return 0;
		PL_CHECK(parse_product(p));
		PL_CHECK(emit(p, (struct code){ .op = op }, -1));
	}
}

static int parse_compare(struct parser *p)
{
	static const struct {
		const char *token;
		uint8_t op;
	} known[] = { { "==", EQUAL },	       { "!=", UNEQUAL }, { "<=", LESS_EQUAL },
		      { ">=", GREATER_EQUAL }, { "<", LESS },	  { ">", GREATER } };

	PL_CHECK(parse_sum(p));
	for (size_t i = 0; i < PL_LEN(known); i++)
		if (take(p, known[i].token)) {
			PL_CHECK(parse_sum(p));
			return emit(p, (struct code){ .op = known[i].op }, -1);
		}
	return 0;
}

int pl_expr_new(const char *text, pl_expr_find *find, void *arg, struct pl_expr **e,
		struct pl_err *err)
{
	struct parser p = { .text = text, .s = text, .find = find, .arg = arg, .err = err };
	int rc;

	PL_CHECK(pl_alloc(e, 1, sizeof(**e), err));
	p.e = *e;
	rc = parse_compare(&p);
	if (rc >= 0 && peek(&p))
		rc = fail(&p, "unexpected character");
	if (rc < 0) {
		pl_expr_free(*e);
		*e = NULL;
	}
	return rc;
}

void pl_expr_free(struct pl_expr *e)
{
	if (e)
		pl_free(e->code);
	pl_free(e);
}

static double two(uint8_t op, double a, double b)
{
	switch (op) {
	case ADD:
		return a + b;
	case SUBTRACT:
		return a - b;
	case MULTIPLY:
		return a * b;
	case DIVIDE:
		return a / b;
	case REMAINDER:
		return fmod(a, b);
	case MIN:
		return isnan(a) || isnan(b) ? NAN : fmin(a, b);
	case MAX:
		return isnan(a) || isnan(b) ? NAN : fmax(a, b);
	default:
		break;
	}
	if (isnan(a) || isnan(b))
		return NAN;
	switch (op) {
	case EQUAL:
		return a == b;
	case UNEQUAL:
		return a != b;
	case LESS:
		return a < b;
	case LESS_EQUAL:
		return a <= b;
	case GREATER:
		return a > b;
	default:
		return a >= b;
	}
}

double pl_expr_eval(const struct pl_expr *e, const double *value)
{
	double stack[DEPTH_MAX + 1];
	int n = 0;

	if (e->n == 1 && e->code[0].op == VALUE) /* most of them are a column */
		return value[e->code[0].value];
	stack[0] = NAN;
	for (size_t i = 0; i < e->n; i++) {
		const struct code *c = &e->code[i];

		switch (c->op) {
		case NUMBER:
			stack[n++] = c->number;
			break;
		case VALUE:
			stack[n++] = value[c->value];
			break;
		case NEGATE:
			stack[n - 1] = -stack[n - 1];
			break;
		case CEIL:
			stack[n - 1] = ceil(stack[n - 1]);
			break;
		case FLOOR:
			stack[n - 1] = floor(stack[n - 1]);
			break;
		default:
			n--;
			stack[n - 1] = two(c->op, stack[n - 1], stack[n]);
		}
	}
	return stack[0];
}

void pl_expr_uses(const struct pl_expr *e, void (*use)(void *arg, uint32_t value), void *arg)
{
	for (size_t i = 0; i < e->n; i++)
		if (e->code[i].op == VALUE)
			use(arg, e->code[i].value);
}
