/* Writing into new memory, see new_memory.h. */
#include "cost/new_memory.h"
#include "cost/kernels.h"
#include "cost/work.h"
#include "graph/dims.h"

#define LEAST_BYTES ((int64_t)1 << 20) /* smaller ones are in caches */
#define LEAST_N	    8		       /* copies that say how fast copies are */
#define TIMES	    3
#define LEAST_FLOPS 10000000 /* a product that makes a MiB has more, if it is one of some rows */

static int add(struct pl_new_memory *m, uint32_t shape, uint32_t node, double ns,
	       struct pl_err *err)
{
	struct pl_new_memory_op x = { shape, node, (pl_ns)ns };

	return pl_append(&m->op, &m->n, &m->cap, &x, sizeof(x), err);
}

/* ---- copies ---------------------------------------------------------------------------------- */

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

static int find_rates(const struct pl_graph *g, struct rates *x, struct pl_err *err)
{
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

static int find_copies(const struct pl_graph *g, struct pl_new_memory *m, struct pl_err *err)
{
	struct rates x = { 0 };
	double rate;
	int rc;

	PL_TRY(find_rates(g, &x, err));
	if (x.n < LEAST_N)
		goto out;
	rate = (double)pl_max_i64(1, pl_percentile_i64(x.v, x.n, 75));
	for (uint32_t k = 0; k < g->n_shapes; k++)
		for (uint32_t i = g->shape[k].n_entries; i < g->shape[k].n_nodes; i++) {
			double bytes = (double)copied(g, &g->shape[k], i);

			if (bytes > 0)
				PL_TRY(add(m, k, i, 1e6 * bytes / rate, err));
		}
out:
	pl_free(x.v);
	return rc;
}

/* ---- products -------------------------------------------------------------------------------- */

static bool is_product(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	uint32_t row = sh->work ? sh->work[i] : PL_NONE;

	return sh->kind[i] == PL_K_HOST_OP && row != PL_NONE && g->work[row].flops > 0 &&
	       g->work[row].dims != PL_NONE;
}

/* Are some large products so much slower than others, by their floating-point operations, that it
 * is worth while to fit a model? */
static int find_slow_products(const struct pl_graph *g, bool *slow, struct pl_err *err)
{
	int64_t *v = NULL;
	size_t n = 0, cap = 0;
	int rc = 0;

	*slow = false;
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *sh = &g->shape[st->shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			int64_t rate; /* ps for 1,000 operations */

			if (!is_product(g, sh, i) || g->work[sh->work[i]].flops < LEAST_FLOPS)
				continue;
			rate = (int64_t)(1e6 * (double)st->dur[i] /
					 (double)g->work[sh->work[i]].flops);
			PL_TRY(pl_append(&v, &n, &cap, &rate, sizeof(rate), err));
		}
	}
	if (n)
		*slow = pl_percentile_i64(v, n, 97) > TIMES * pl_percentile_i64(v, n, 25);
out:
	pl_free(v);
	return rc;
}

static int find_gradients(const struct pl_graph *g, struct pl_new_memory *m, struct pl_err *err)
{
	struct pl_work_model work;
	bool slow;
	int rc = 0;

	PL_CHECK(find_slow_products(g, &slow, err));
	if (!slow)
		return 0;
	PL_CHECK(pl_work_fit(g, &work, err));
	for (uint32_t k = 0; k < g->n_shapes; k++)
		for (uint32_t i = g->shape[k].n_entries; i < g->shape[k].n_nodes; i++) {
			uint32_t group = work.of_node[k] ? work.of_node[k][i] : PL_NONE;
			double ns;

			if (group == PL_NONE || !is_product(g, &g->shape[k], i) ||
			    work.work[work.group[group].work].gradient_bytes < (double)LEAST_BYTES)
				continue;
			ns = pl_work_in_used_memory(&work, group);
			/* A thread that loses its processor makes few of a group slow. */
			if (ns >= 1 && work.group[group].ns > TIMES * ns)
				PL_TRY(add(m, k, i, ns, err));
		}
out:
	pl_work_fini(&work);
	return rc;
}

/* ---- both ------------------------------------------------------------------------------------ */

PL_COMPARATOR(by_node, struct pl_new_memory_op, shape, node);

static size_t first_of(const struct pl_new_memory *m, uint32_t shape, uint32_t node)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, m->n,
		       m->op[i].shape < shape || (m->op[i].shape == shape && m->op[i].node < node));
	return i;
}

static pl_ns beyond(const struct pl_gstep *st, const struct pl_new_memory_op *x)
{
	pl_ns ns = st->dur[x->node];

	return ns > TIMES * x->usual ? ns - x->usual : 0;
}

/* Most operations are never slow: only the others are looked for again and again. */
static int keep_slow(const struct pl_graph *g, struct pl_new_memory *m, struct pl_err *err)
{
	size_t kept = 0;
	bool *slow;

	PL_CHECK(pl_alloc(&slow, m->n + 1, sizeof(*slow), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		uint32_t shape = g->step[k].shape;

		for (size_t i = first_of(m, shape, 0); i < m->n && m->op[i].shape == shape; i++)
			slow[i] |= beyond(&g->step[k], &m->op[i]) > 0;
	}
	for (size_t i = 0; i < m->n; i++)
		if (slow[i])
			m->op[kept++] = m->op[i];
	m->n = kept;
	pl_free(slow);
	return 0;
}

int pl_new_memory_find(const struct pl_graph *g, struct pl_new_memory *m, struct pl_err *err)
{
	int rc;

	*m = (struct pl_new_memory){ 0 };
	PL_TRY(find_copies(g, m, err));
	PL_TRY(find_gradients(g, m, err));
	pl_sort(m->op, m->n, sizeof(*m->op), by_node);
	PL_TRY(keep_slow(g, m, err));
	return 0;
out:
	pl_new_memory_fini(m);
	return rc;
}

void pl_new_memory_fini(struct pl_new_memory *m)
{
	pl_free(m->op);
	*m = (struct pl_new_memory){ 0 };
}

pl_ns pl_new_memory_time(const struct pl_new_memory *m, const struct pl_graph *g, size_t step,
			 uint32_t node)
{
	const struct pl_gstep *st = &g->step[step];
	size_t i = first_of(m, st->shape, node);

	return i < m->n && m->op[i].shape == st->shape && m->op[i].node == node
		       ? beyond(st, &m->op[i])
		       : 0;
}
