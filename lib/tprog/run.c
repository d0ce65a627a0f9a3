/*
 * Tensor programs carried out one operation after another: what compiled ones are compared with.
 * Numbers are floats, as in compiled programs; indices are checked.
 */
#include <math.h>

#include "tprog/internal.h"

struct machine {
	const struct pl_tprog *p;
	float **memory; /* of each buffer */
	int64_t *loop;	/* of each node: the present value of the variable */
	struct pl_err *err;
};

static double value_of(struct machine *m, uint32_t expr);

int64_t pl_tprog_whole(double v)
{
	return v > 0x1p53 ? (int64_t)1 << 53 : v < -0x1p53 ? -((int64_t)1 << 53) : (int64_t)v;
}

/* The element that indices mean; NULL: it is outside. */
static float *element(struct machine *m, uint32_t buffer, uint32_t arg)
{
	const struct pl_tprog_buffer *b = &m->p->buffer[buffer];
	int64_t index[PL_TPROG_DIMS];

	for (int d = 0; d < b->n_dims; d++) {
		index[d] = pl_tprog_whole(value_of(m, m->p->arg[arg + (uint32_t)d]));
		if (index[d] >= 0 && index[d] < b->dim[d])
			continue;
		if (!m->err->code)
			pl_fail(m->err, PL_EDATA,
				"program %.100s: index %d of %.100s is %lld, and there are %lld",
				m->p->name, d + 1, b->name, (long long)index[d],
				(long long)b->dim[d]);
		return NULL;
	}
	return m->memory[buffer] + pl_tprog_place(b, index);
}

double pl_tprog_of_whole(unsigned op, int64_t a, int64_t b)
{
	switch (op) {
	case PL_TPROG_ADD:
		return (double)(a + b);
	case PL_TPROG_SUB:
		return (double)(a - b);
	case PL_TPROG_MUL:
		return (double)a * (double)b;
	case PL_TPROG_DIV:
		return b ? (double)(a / b) : 0;
	case PL_TPROG_MOD:
		return b ? (double)(a % b) : 0;
	case PL_TPROG_LESS:
		return a < b;
	case PL_TPROG_EQUAL:
		return a == b;
	case PL_TPROG_AND:
		return a & b;
	case PL_TPROG_MAX:
		return (double)pl_max_i64(a, b);
	default:
		return (double)pl_min_i64(a, b);
	}
}

static float of_floats(unsigned op, float a, float b)
{
	switch (op) {
	case PL_TPROG_ADD:
		return a + b;
	case PL_TPROG_SUB:
		return a - b;
	case PL_TPROG_MUL:
		return a * b;
	case PL_TPROG_DIV:
		return a / b;
	case PL_TPROG_MAX:
		return a > b ? a : b;
	case PL_TPROG_MIN:
		return a < b ? a : b;
	case PL_TPROG_EXP:
		return expf(a);
	case PL_TPROG_LOG:
		return logf(a);
	case PL_TPROG_SQRT:
		return sqrtf(a);
	case PL_TPROG_TANH:
		return tanhf(a);
	default:
		return erff(a);
	}
}

static double value_of(struct machine *m, uint32_t expr)
{
	const struct pl_tprog_expr *e = &m->p->expr[expr];
	const uint32_t *arg = &m->p->arg[e->arg];
	float *x;

	switch (e->op) {
	case PL_TPROG_NUMBER:
		return e->number;
	case PL_TPROG_LOOP:
		return (double)m->loop[e->ref];
	case PL_TPROG_LOAD:
		x = element(m, e->ref, e->arg);
		return x ? *x : 0;
	case PL_TPROG_SELECT:
		return value_of(m, arg[value_of(m, arg[0]) != 0 ? 1 : 2]);
	default:
		if (e->integer)
			return pl_tprog_of_whole(e->op, pl_tprog_whole(value_of(m, arg[0])),
						 pl_tprog_whole(value_of(m, arg[1])));
		return of_floats(e->op, (float)value_of(m, arg[0]),
				 e->n_args > 1 ? (float)value_of(m, arg[1]) : 0);
	}
}

static void run_nodes(struct machine *m, uint32_t from, uint32_t end);

static void run_node(struct machine *m, uint32_t i)
{
	const struct pl_tprog_node *x = &m->p->node[i];
	float *to, v;

	if (x->kind == PL_TPROG_FOR) {
		for (m->loop[i] = 0; m->loop[i] < x->extent && !m->err->code; m->loop[i]++)
			run_nodes(m, i + 1, x->end);
		return;
	}
	if (x->kind == PL_TPROG_ALLOC) {
		if (pl_alloc(&m->memory[x->buffer], (size_t)m->p->buffer[x->buffer].n,
			     sizeof(float), m->err) < 0)
			return;
		run_nodes(m, i + 1, x->end);
		pl_free(m->memory[x->buffer]);
		m->memory[x->buffer] = NULL;
		return;
	}
	v = (float)value_of(m, x->value);
	to = element(m, x->buffer, x->arg);
	if (!to)
		return;
	*to = x->update == PL_TPROG_SET ? v : x->update == PL_TPROG_PLUS ? *to + v : fmaxf(*to, v);
}

static void run_nodes(struct machine *m, uint32_t from, uint32_t end)
{
	for (uint32_t i = from; i < end && !m->err->code; i = m->p->node[i].end)
		run_node(m, i);
}

int pl_tprog_run(const struct pl_tprog *p, float *const *buffer, struct pl_err *err)
{
	struct machine m = { .p = p, .err = err };
	int rc;

	PL_TRY(pl_alloc(&m.memory, p->n_buffers + 1, sizeof(*m.memory), err));
	PL_TRY(pl_alloc(&m.loop, p->n_nodes + 1, sizeof(*m.loop), err));
	for (size_t i = 0; i < p->n_buffers; i++)
		if (p->buffer[i].node == PL_NONE)
			m.memory[i] = *buffer++;
	run_nodes(&m, 0, (uint32_t)p->n_nodes);
	rc = err->code;
out:
	pl_free(m.memory);
	pl_free(m.loop);
	return rc;
}
