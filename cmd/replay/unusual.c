/*
 * Operations of hosts that take several times as long as others of the same work: they write into
 * memory that is new (cost/new_memory.h), or equal operations of the recording are faster
 * (pl_selftest_scatter()), because their memory was not new or their thread kept its processor.
 * Another run of the job may not have what they take longer.
 */
#include "program.h"
#include "sim/selftest.h"

PL_COMPARATOR(by_node, struct pl_node_time, shape, node, ns);

int find_new_memory(struct report *r, struct pl_err *err)
{
	pl_new_memory_fini(&r->new_memory);
	pl_free(r->slow_op);
	r->slow_op = NULL;
	r->n_slow_ops = 0;
	return pl_new_memory_find(&r->g, &r->new_memory, err);
}

int find_unusual(struct report *r, struct pl_err *err)
{
	PL_CHECK(find_new_memory(r, err));
	PL_CHECK(pl_selftest_scatter(&r->g, &r->scatter, &r->slow_op, &r->n_slow_ops, err));
	pl_sort(r->slow_op, r->n_slow_ops, sizeof(*r->slow_op), by_node);
	return 0;
}

/* What the node takes longer than equal ones; 0: it is not much slower. */
static pl_ns slower_than_equal(const struct report *r, const struct pl_gstep *st, uint32_t node)
{
	const struct pl_node_time *x =
		pl_node_time_find(r->slow_op, r->n_slow_ops, st->shape, node);

	return x && st->dur[node] >= PL_SELFTEST_UNLIKE * x->ns ? st->dur[node] - x->ns : 0;
}

pl_ns slower_by(const struct report *r, size_t step, uint32_t node)
{
	pl_ns memory, ns;

	if (!r->n_slow_ops && !r->new_memory.n)
		return 0;
	memory = pl_new_memory_time(&r->new_memory, &r->g, step, node);
	ns = slower_than_equal(r, &r->g.step[step], node);
	return r->basis.work_ns > 0 ? pl_max_i64(ns, memory) : pl_max_i64(0, ns - memory);
}
