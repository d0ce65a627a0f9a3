/*
 * Copies of hosts into memory that is new to the process.
 *
 * The kernel clears each page of such memory when it is written first, so a copy of some MiB takes
 * several times as long as into memory that was used before: 0.4 instead of 6 GB/s on a virtual
 * machine. An allocator gives memory back and takes it again, by what else was allocated, and a
 * profiler allocates, too. So the same program pays for new memory in one run and not in the next,
 * and nobody knows whether it will after a change. A copy that is less than a third as fast as the
 * fastest quarter of the recording's copies counts as one into new memory; what it takes longer
 * than these is in doubt.
 */
#include "cost/kernels.h"
#include "graph/dims.h"
#include "program.h"

#define LEAST_BYTES ((int64_t)1 << 20) /* read and written: smaller ones are in caches */
#define LEAST_N	    8		       /* copies that say how fast copies are */
#define TIMES	    3

/* What a copy of a host reads and writes, by the sizes of its inputs; 0: it is none, or is small.
 */
static int64_t copied(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	uint32_t row = sh->work ? sh->work[i] : PL_NONE;
	const struct pl_gwork *w = row == PL_NONE ? NULL : &g->work[row];
	const char *s;
	struct pl_dims t;
	int64_t elements = 0, bytes;

	if (!w || w->op != PL_OP_COPY || w->dims == PL_NONE || sh->kind[i] != PL_K_HOST_OP ||
	    sh->role[i] != PL_RO_COMPUTE)
		return 0;
	s = pl_intern_get(&g->str, w->dims);
	while (pl_dims_next(&s, &t))
		elements = pl_add_sat(elements, pl_max_i64(t.elements, 0));
	bytes = pl_dims_product(
		elements, (int64_t)pl_kernel_type_bytes(pl_cost_kernel_type(
				  w->type == PL_NONE ? NULL : pl_intern_get(&g->str, w->type))));
	return bytes >= LEAST_BYTES ? bytes : 0;
}

struct rates {
	int64_t *v; /* bytes in a millisecond, of each copy */
	size_t n, cap;
};

static int find_rates(const struct report *r, struct rates *x, struct pl_err *err)
{
	const struct pl_graph *g = &r->g;

	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *sh = &g->shape[st->shape];

		for (uint32_t i = sh->n_entries; pl_graph_is_step(g, k) && i < sh->n_nodes; i++) {
			double bytes = (double)copied(g, sh, i);
			int64_t rate;

			if (!(bytes > 0) || st->dur[i] <= 0)
				continue;
			rate = (int64_t)(1e6 * bytes / (double)st->dur[i]);
			PL_CHECK(pl_append(&x->v, &x->n, &x->cap, &rate, sizeof(rate), err));
		}
	}
	return 0;
}

static int find_usual(struct report *r, double rate, struct pl_err *err)
{
	const struct pl_graph *g = &r->g;

	for (uint32_t k = 0; k < g->n_shapes; k++)
		for (uint32_t i = g->shape[k].n_entries; i < g->shape[k].n_nodes; i++) {
			double bytes = (double)copied(g, &g->shape[k], i);
			struct usual_copy x = { k, i, (pl_ns)(1e6 * bytes / rate) };

			if (bytes > 0)
				PL_CHECK(pl_append(&r->copy, &r->n_copies, &r->cap_copies, &x,
						   sizeof(x), err));
		}
	return 0;
}

/* The first copy that is not before this node. */
static size_t first_copy(const struct report *r, uint32_t shape, uint32_t node)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, r->n_copies,
		       r->copy[i].shape < shape ||
			       (r->copy[i].shape == shape && r->copy[i].node < node));
	return i;
}

static pl_ns beyond(const struct pl_gstep *st, const struct usual_copy *x)
{
	pl_ns ns = st->dur[x->node];

	return ns > TIMES * x->ns ? ns - x->ns : 0;
}

pl_ns for_new_memory(const struct report *r, size_t step, uint32_t node)
{
	const struct pl_gstep *st = &r->g.step[step];
	size_t i = first_copy(r, st->shape, node);

	return i < r->n_copies && r->copy[i].shape == st->shape && r->copy[i].node == node
		       ? beyond(st, &r->copy[i])
		       : 0;
}

int find_new_memory(struct report *r, struct pl_err *err)
{
	struct rates x = { 0 };
	double sum = 0, steps = 0;
	int rc;

	r->n_copies = 0;
	PL_TRY(find_rates(r, &x, err));
	if (x.n < LEAST_N)
		goto out;
	PL_TRY(find_usual(r, (double)pl_max_i64(1, pl_percentile_i64(x.v, x.n, 75)), err));
	for (size_t k = 0; k < r->g.n_steps; k++) {
		const struct pl_gstep *st = &r->g.step[k];

		if (!pl_graph_is_step(&r->g, k))
			continue;
		for (size_t i = first_copy(r, st->shape, 0);
		     i < r->n_copies && r->copy[i].shape == st->shape; i++)
			sum += (double)beyond(st, &r->copy[i]);
		steps++;
	}
	r->new_memory_ns = steps > 0 ? sum / steps / (double)pl_max_i64(1, r->g.n_ranks) : 0;
out:
	pl_free(x.v);
	return rc;
}
