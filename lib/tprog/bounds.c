/*
 * Are all indices of a program inside of their buffers, and is nothing divided by 0? Programs that
 * are compiled do not look.
 *
 * The range of an index follows from those of the loops in it. Where that does not show enough, as
 * where select() guards an index, the iterations of the loops that the store depends on are gone
 * through, unless they are too many. Otherwise linear.
 */
#include <math.h>

#include "tprog/leaf.h"

#define MOST_TURNS 0x1p22 /* iterations that are gone through, for a store */
#define MOST_WHOLE 0x1p53 /* beyond, a double does not hold all whole numbers */

struct range {
	double lo, hi;
};
struct bounds {
	const struct pl_tprog *p;
	struct pl_err *err;
	int64_t *loop; /* [node]: the value of its variable; -1: the store does not depend on it */
	bool doubt;    /* ranges do not show that the store is right; the first reason: */
	uint32_t buffer; /* PL_NONE: a division, or a number beyond all */
	int dim;
	struct range index;
};

static int refuse(const struct bounds *b, const char *fmt, ...) PL_PRINTF(2, 3);

/* The first failure stays. */
static int refuse(const struct bounds *b, const char *fmt, ...)
{
	char what[256];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(what, sizeof(what), fmt, ap);
	va_end(ap);
	if (!b->err->code)
		pl_fail(b->err, PL_EDATA, "program %.100s, which line %u begins: %s", b->p->name,
			b->p->line, what);
	return b->err->code;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static void doubt(struct bounds *b, uint32_t buffer, int dim, struct range index)
{
	if (b->doubt)
		return;
	b->doubt = true;
	b->buffer = buffer;
	b->dim = dim;
	b->index = index;
}

static struct range product(struct range x, struct range y)
{
	double v[4] = { x.lo * y.lo, x.lo * y.hi, x.hi * y.lo, x.hi * y.hi };

	return (struct range){ fmin(fmin(v[0], v[1]), fmin(v[2], v[3])),
			       fmax(fmax(v[0], v[1]), fmax(v[2], v[3])) };
}

/* Rounded down, or what is left of it. */
static struct range quotient(struct bounds *b, unsigned op, struct range x, struct range y)
{
	double most = fmax(fabs(x.lo), fabs(x.hi));

	if (y.lo <= 0 && y.hi >= 0)
		doubt(b, PL_NONE, 0, y);
	if (x.lo < 0 || y.lo <= 0)
		return (struct range){ -most, most };
	if (op == PL_TPROG_DIV)
		return (struct range){ floor(x.lo / y.hi), floor(x.hi / y.lo) };
	return x.hi < y.lo ? x : (struct range){ 0, fmin(x.hi, y.hi - 1) };
}

static struct range combine(struct bounds *b, unsigned op, const struct range *r)
{
	struct range x = r[0], y = r[1];

	switch (op) {
	case PL_TPROG_ADD:
		return (struct range){ x.lo + y.lo, x.hi + y.hi };
	case PL_TPROG_SUB:
		return (struct range){ x.lo - y.hi, x.hi - y.lo };
	case PL_TPROG_MUL:
		return product(x, y);
	case PL_TPROG_DIV:
	case PL_TPROG_MOD:
		return quotient(b, op, x, y);
	case PL_TPROG_MAX:
		return (struct range){ fmax(x.lo, y.lo), fmax(x.hi, y.hi) };
	case PL_TPROG_MIN:
		return (struct range){ fmin(x.lo, y.lo), fmin(x.hi, y.hi) };
	case PL_TPROG_SELECT:
		return (struct range){ fmin(y.lo, r[2].lo), fmax(y.hi, r[2].hi) };
	case PL_TPROG_AND: /* of the bits of both, where they are not comparisons */
		if (x.lo >= 0 && y.lo >= 0)
			return (struct range){ 0, fmin(x.hi, y.hi) };
		return (struct range){ -MOST_WHOLE, MOST_WHOLE };
	default:
		return (struct range){ 0, 1 };
	}
}

static struct range range_of(struct bounds *b, uint32_t expr);

static void look_at_element(struct bounds *b, uint32_t buffer, uint32_t arg)
{
	const struct pl_tprog_buffer *x = &b->p->buffer[buffer];

	for (int d = 0; d < x->n_dims; d++) {
		struct range r = range_of(b, b->p->arg[arg + (uint32_t)d]);

		if (!(r.lo >= 0 && r.hi < (double)x->dim[d]))
			doubt(b, buffer, d, r);
	}
}

/* Of a whole number; {0, 0} of others. */
static struct range range_of(struct bounds *b, uint32_t expr)
{
	const struct pl_tprog_expr *e = &b->p->expr[expr];
	struct range r[3] = { { 0, 0 } };

	if (e->op == PL_TPROG_NUMBER)
		return (struct range){ e->number, e->number };
	if (e->op == PL_TPROG_LOOP) {
		b->loop[e->ref] = 0;
		return (struct range){ 0, (double)b->p->node[e->ref].extent - 1 };
	}
	if (e->op == PL_TPROG_LOAD) {
		look_at_element(b, e->ref, e->arg);
		return r[0];
	}
	for (uint32_t i = 0; i < e->n_args; i++)
		r[i] = range_of(b, b->p->arg[e->arg + i]);
	if (!e->integer)
		return (struct range){ 0, 0 };
	r[0] = combine(b, e->op, r);
	if (!(r[0].lo >= -MOST_WHOLE && r[0].hi <= MOST_WHOLE))
		doubt(b, PL_NONE, 0, r[0]);
	return r[0];
}

/* ---- iterations ------------------------------------------------------------------------------ */

/* The value of a whole number. */
static int64_t value_of(struct bounds *b, uint32_t expr)
{
	const struct pl_tprog_expr *e = &b->p->expr[expr];
	const uint32_t *arg = &b->p->arg[e->arg];
	int64_t x, y;
	double v;

	switch (e->op) {
	case PL_TPROG_NUMBER:
		return (int64_t)e->number;
	case PL_TPROG_LOOP:
		return b->loop[e->ref];
	case PL_TPROG_SELECT:
		return value_of(b, arg[value_of(b, arg[0]) ? 1 : 2]);
	default:
		break;
	}
	x = value_of(b, arg[0]);
	y = value_of(b, arg[1]);
	if (!y && (e->op == PL_TPROG_DIV || e->op == PL_TPROG_MOD))
		refuse(b, "a whole number is divided by 0");
	v = pl_tprog_of_whole(e->op, x, y);
	if (fabs(v) > MOST_WHOLE)
		refuse(b, "an index is beyond all numbers");
	return pl_tprog_whole(v);
}

static void check_element(struct bounds *b, uint32_t buffer, uint32_t arg)
{
	const struct pl_tprog_buffer *x = &b->p->buffer[buffer];

	for (int d = 0; d < x->n_dims; d++) {
		int64_t v = value_of(b, b->p->arg[arg + (uint32_t)d]);

		if (v < 0 || v >= x->dim[d])
			refuse(b, "index %d of %.100s is %lld, and there are %lld", d + 1, x->name,
			       (long long)v, (long long)x->dim[d]);
	}
}

/* What this iteration computes. */
static void check_value(struct bounds *b, uint32_t expr)
{
	const struct pl_tprog_expr *e = &b->p->expr[expr];
	const uint32_t *arg = &b->p->arg[e->arg];

	if (e->integer) {
		(void)value_of(b, expr);
	} else if (e->op == PL_TPROG_LOAD) {
		check_element(b, e->ref, e->arg);
	} else if (e->op == PL_TPROG_SELECT) {
		check_value(b, arg[value_of(b, arg[0]) ? 1 : 2]);
	} else {
		for (uint32_t i = 0; i < e->n_args; i++)
			check_value(b, arg[i]);
	}
}

/* ---- all ------------------------------------------------------------------------------------- */

/* The ranges do not show it, and there are too many iterations. */
static int refuse_doubt(const struct bounds *b)
{
	const struct pl_tprog_buffer *x = b->buffer == PL_NONE ? NULL : &b->p->buffer[b->buffer];

	if (!x)
		return refuse(b, "a whole number may be divided by 0, or be beyond all numbers");
	return refuse(b,
		      "index %d of %.100s may be %.0f to %.0f, and there are %lld (0 to %lld); "
		      "max and min keep it there",
		      b->dim + 1, x->name, b->index.lo, b->index.hi, (long long)x->dim[b->dim],
		      (long long)x->dim[b->dim] - 1);
}

static int check_store(struct bounds *b, uint32_t node)
{
	const struct pl_tprog_node *x = &b->p->node[node];
	uint32_t loop[PL_TPROG_LOOPS];
	double turns = 1;
	int n = 0, l;

	for (uint32_t k = x->parent; k != PL_NONE; k = b->p->node[k].parent)
		b->loop[k] = -1;
	b->doubt = false;
	look_at_element(b, x->buffer, x->arg);
	(void)range_of(b, x->value);
	if (!b->doubt)
		return 0;
	for (uint32_t k = x->parent; k != PL_NONE; k = b->p->node[k].parent)
		if (b->p->node[k].kind == PL_TPROG_FOR && !b->loop[k]) {
			loop[n++] = k;
			turns *= (double)b->p->node[k].extent;
		}
	if (turns > MOST_TURNS)
		return refuse_doubt(b);
	do {
		check_element(b, x->buffer, x->arg);
		check_value(b, x->value);
		for (l = 0; l < n && ++b->loop[loop[l]] == b->p->node[loop[l]].extent; l++)
			b->loop[loop[l]] = 0;
	} while (l < n && !b->err->code);
	return b->err->code;
}

int pl_tprog_check(const struct pl_tprog *p, struct pl_err *err)
{
	struct bounds b = { .p = p, .err = err };
	int rc;

	PL_CHECK(pl_alloc(&b.loop, p->n_nodes + 1, sizeof(*b.loop), err));
	rc = 0;
	for (uint32_t i = 0; i < p->n_nodes && rc >= 0; i++)
		if (p->node[i].kind == PL_TPROG_STORE)
			rc = check_store(&b, i);
	pl_free(b.loop);
	return rc;
}
