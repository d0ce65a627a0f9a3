/* Writing into new memory, see new_memory.h. */
#include "cost/new_memory.h"
#include "cost/internal.h"
#include "cost/kernels.h"
#include "cost/work.h"
#include "graph/dims.h"

#define LEAST_BYTES ((int64_t)1 << 20) /* smaller ones are in caches */
#define LEAST_N	    8		       /* copies that say how fast copies are */
#define TIMES	    3
#define PART	    0.25
#define LEAST_FLOPS 10000000 /* a product that makes a MiB has more, if it is one of some rows */

static int add(struct pl_new_memory *m, uint32_t shape, uint32_t node, double ns,
	       struct pl_err *err)
{
	struct pl_node_time x = { shape, node, (pl_ns)ns };

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

struct products {
	struct pl_work_batch batch;
	struct pl_work *work; /* [row of the graph's work] */
	struct rate *rate;    /* ns for a floating-point operation, by time, of products that make
			       * no gradient of parameters */
	size_t n, cap;
	uint32_t *slow, *all; /* [row]: operations that compute */
};

static const struct pl_work *product_of(const struct products *x, const struct pl_graph *g,
					const struct pl_shape *sh, uint32_t i)
{
	uint32_t row = sh->work ? sh->work[i] : PL_NONE;
	const struct pl_work *w = row == PL_NONE ? NULL : &x->work[row];

	return w && sh->kind[i] == PL_K_HOST_OP && w->product && w->flops >= LEAST_FLOPS &&
			       g->work[row].dims != PL_NONE
		       ? w
		       : NULL;
}

/* What a floating-point operation takes in products that make no gradient: half of their time is in
 * slower ones. 0: there are none. */
static int find_usual(const struct pl_graph *g, struct products *x, double *usual,
		      struct pl_err *err)
{
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *sh = &g->shape[st->shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			const struct pl_work *w = product_of(x, g, sh, i);
			double ns = (double)st->dur[i];
			struct rate r;

			if (!w || w->gradient_bytes > 0 || !(ns > 0))
				continue;
			r = (struct rate){ ns / w->flops, ns, 0 };
			PL_CHECK(pl_append(&x->rate, &x->n, &x->cap, &r, sizeof(r), err));
		}
	}
	*usual = pl_cost_at_share(x->rate, x->n, 0.5);
	return 0;
}

static const struct pl_work *gradient_of(const struct products *x, const struct pl_graph *g,
					 const struct pl_shape *sh, uint32_t i)
{
	const struct pl_work *w = product_of(x, g, sh, i);

	return w && w->gradient_bytes >= (double)LEAST_BYTES ? w : NULL;
}

/* How many of the gradients of each size are slow. */
static void count_slow(const struct pl_graph *g, struct products *x, double usual)
{
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *sh = &g->shape[st->shape];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			const struct pl_work *w = gradient_of(x, g, sh, i);
			double ns = (double)st->dur[i];

			if (!w || ns < PART * usual * w->flops)
				continue; /* a part that only prepares */
			x->all[sh->work[i]]++;
			x->slow[sh->work[i]] += ns > TIMES * usual * w->flops;
		}
	}
}

/* Jobs whose devices compute have none on their hosts. */
static bool any_on_host(const struct pl_graph *g)
{
	for (size_t k = 0; k < g->n_shapes; k++) {
		const struct pl_shape *sh = &g->shape[k];

		for (uint32_t i = sh->n_entries; sh->work && i < sh->n_nodes; i++)
			if (sh->kind[i] == PL_K_HOST_OP && sh->work[i] != PL_NONE &&
			    g->work[sh->work[i]].flops >= LEAST_FLOPS)
				return true;
	}
	return false;
}

static int find_gradients(const struct pl_graph *g, struct pl_new_memory *m, struct pl_err *err)
{
	struct products x = { 0 };
	double usual;
	int rc;

	if (!any_on_host(g))
		return 0;
	PL_TRY(pl_work_batch_find(g, &x.batch, err));
	PL_TRY(pl_alloc(&x.work, g->n_work + 1, sizeof(*x.work), err));
	PL_TRY(pl_alloc(&x.slow, g->n_work + 1, sizeof(*x.slow), err));
	PL_TRY(pl_alloc(&x.all, g->n_work + 1, sizeof(*x.all), err));
	for (size_t i = 0; i < g->n_work; i++)
		pl_work_describe(g, &x.batch, (uint32_t)i, &x.work[i]);
	PL_TRY(find_usual(g, &x, &usual, err));
	count_slow(g, &x, usual);
	for (uint32_t k = 0; k < g->n_shapes; k++) {
		const struct pl_shape *sh = &g->shape[k];

		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
			const struct pl_work *w = gradient_of(&x, g, sh, i);

			/* a thread that loses its processor makes few of them slow */
			if (w && usual > 0 && 2 * x.slow[sh->work[i]] > x.all[sh->work[i]])
				PL_TRY(add(m, k, i, usual * w->flops, err));
		}
	}
out:
	pl_work_batch_fini(&x.batch);
	pl_free(x.work);
	pl_free(x.rate);
	pl_free(x.slow);
	pl_free(x.all);
	return rc;
}

/* ---- both ------------------------------------------------------------------------------------ */

PL_COMPARATOR(by_node, struct pl_node_time, shape, node);

static pl_ns beyond(const struct pl_gstep *st, const struct pl_node_time *x)
{
	pl_ns ns = st->dur[x->node];

	return ns > TIMES * x->ns ? ns - x->ns : 0;
}

/* Most operations are never slow: only the others are looked for again and again. */
static int keep_slow(const struct pl_graph *g, struct pl_new_memory *m, struct pl_err *err)
{
	size_t kept = 0;
	bool *slow;

	PL_CHECK(pl_alloc(&slow, m->n + 1, sizeof(*slow), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		uint32_t shape = g->step[k].shape;

		for (size_t i = pl_node_time_first(m->op, m->n, shape, 0);
		     i < m->n && m->op[i].shape == shape; i++)
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
	const struct pl_node_time *x = pl_node_time_find(m->op, m->n, st->shape, node);

	return x ? beyond(st, x) : 0;
}
