/*
 * Evaluations before the training of a step.
 *
 * Where a step ends with the optimizer, as recorders find steps, an evaluation between two updates
 * is at the begin of the second one's step. Its operations look like those of the forward pass. But
 * then the step has more products of matrices in its forward pass than other steps, and as many in
 * its backward pass: forward work without backward work. The products that are too many come first,
 * if the others are the forward pass of the other steps. What lies between the first and the last
 * of them is an evaluation, and on hosts, if the next batch is seen to be read, all until then.
 *
 * Linear in the nodes of the shapes, O(n log n) in products.
 */
#include "derive/describe.h"
#include "derive/put.h"

struct product {
	uint32_t rank;
	pl_ns start;
	uint32_t node;
};

struct window { /* of a resource */
	bool used;
	pl_ns begin, last, end, next; /* last: end of the last product; next: the first after it */
};

struct forward { /* of a rank in the steps of a shape */
	uint32_t rank;
	uint32_t backward;	     /* products of the backward pass */
	uint32_t n, shape;	     /* products of the forward pass */
	size_t first;		     /* in products */
	size_t steps;		     /* of the shape */
	const struct pl_gstep *step; /* the first of them */
};

PL_COMPARATOR(by_start, struct product, rank, start, node);
PL_COMPARATOR(by_kind, struct forward, rank, backward, n, shape);

struct found { /* the first `more` products of a forward pass are an evaluation */
	uint32_t shape, more;
	const struct forward *forward;
};

PL_COMPARATOR(by_shape, struct found, shape);

struct evaluation {
	struct pl_graph *g;
	struct pl_err *err;
	const uint32_t *rank; /* by resource */
	struct product *product;
	size_t n_products, cap_products;
	struct forward *forward;
	size_t n, cap;
	struct found *found;
	size_t n_found, cap_found;
	uint32_t *backward;    /* by rank: of the shape */
	struct window *window; /* by resource: of the shape */
};

static void list_products(struct evaluation *x, uint32_t shape, const struct pl_gstep *st,
			  size_t steps)
{
	const struct pl_shape *s = &x->g->shape[shape];
	size_t first = x->n_products;

	memset(x->backward, 0, (size_t)x->g->n_ranks * sizeof(*x->backward));
	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		uint32_t rank = s->res[i] == PL_NONE ? PL_NONE : x->rank[s->res[i]];

		if (rank == PL_NONE || s->role[i] != PL_RO_COMPUTE ||
		    !pl_graph_is_product(pl_node_operator(x->g, s, i)))
			continue;
		x->backward[rank] += pl_graph_is_backward(s->phase[i]);
		if (s->phase[i] == PL_PH_FORWARD)
			PL_DERIVE_ADD(x->err, x->product, x->n_products, x->cap_products,
				      (struct product){ rank, st->start[i], i });
	}
	if (first == x->n_products)
		return;
	pl_sort(x->product + first, x->n_products - first, sizeof(*x->product), by_start);
	for (size_t i = first, k; i < x->n_products; i = k) {
		uint32_t rank = x->product[i].rank;

		for (k = i; k < x->n_products && x->product[k].rank == rank;)
			k++;
		PL_DERIVE_ADD(x->err, x->forward, x->n, x->cap,
			      (struct forward){ .rank = rank,
						.backward = x->backward[rank],
						.n = (uint32_t)(k - i),
						.shape = shape,
						.first = i,
						.steps = steps,
						.step = st });
	}
}

/* Do the products of f end with those of `usual`? */
static bool ends_with(const struct evaluation *x, const struct forward *f,
		      const struct forward *usual)
{
	const struct product *p = &x->product[f->first + f->n - usual->n];
	const struct product *q = &x->product[usual->first];
	const pl_id *name = x->g->shape[f->shape].name, *other = x->g->shape[usual->shape].name;

	for (uint32_t i = 0; i < usual->n; i++)
		if (name[p[i].node] != other[q[i].node])
			return false;
	return true;
}

/* Find when the thread begins to read samples behind the last product of an evaluation. */
static void find_ends(const struct evaluation *x, const struct pl_shape *s,
		      const struct pl_gstep *st)
{
	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		struct window *w = s->res[i] == PL_NONE ? NULL : &x->window[s->res[i]];

		if (w && w->used && s->phase[i] == PL_PH_INPUT && st->start[i] >= w->last &&
		    st->start[i] < w->next)
			w->end = w->next = st->start[i];
	}
}

static void set_phase(const struct pl_shape *s, uint32_t i)
{
	s->phase[i] = PL_PH_EVALUATION;
	s->flags[i] |= PL_NF_PHASE;
}

/* The evaluations v[0..n) of a shape: what is in their windows, and the calls that launch it. */
static void mark(const struct evaluation *x, const struct found *v, size_t n)
{
	const struct pl_shape columns = x->g->shape[v->forward->shape], *s = &columns;
	const struct pl_gstep *st = v->forward->step;

	memset(x->window, 0, x->g->n_res * sizeof(*x->window));
	for (size_t k = 0; k < n; k++) {
		const struct product *first = &x->product[v[k].forward->first];
		const struct product *last = first + v[k].more - 1;
		pl_ns end = last->start + st->dur[last->node];

		x->window[s->res[first->node]] = (struct window){
			.used = true,
			.begin = first->start,
			.last = end,
			.end = end,
			.next = last[1].start,
		};
	}
	find_ends(x, s, st);
	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		const struct window *w = s->res[i] == PL_NONE ? NULL : &x->window[s->res[i]];

		if (!w || !w->used || s->role[i] == PL_RO_MARK || st->start[i] < w->begin ||
		    st->start[i] >= w->end ||
		    (s->phase[i] != PL_PH_FORWARD && s->phase[i] != PL_PH_OTHER))
			continue;
		set_phase(s, i);
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			if (PL_E_TYPE(s->etype[e]) == PL_E_LAUNCH &&
			    s->phase[s->src[e]] == PL_PH_FORWARD)
				set_phase(s, s->src[e]);
	}
}

/* Forward passes v[0..n) of one rank, with equally many products in the backward pass. A step that
 * was cut may have fewer products than a forward pass: what two steps have is usual. */
static void compare(struct evaluation *x, const struct forward *v, size_t n)
{
	const struct forward *usual = NULL;

	for (size_t i = 0, k; i < n && !usual; i = k) {
		size_t steps = 0;

		for (k = i; k < n && v[k].n == v[i].n; k++)
			steps += v[k].steps;
		usual = steps > 1 ? &v[i] : NULL;
	}
	for (size_t i = 0; i < n && usual && v[0].backward; i++)
		if (v[i].n > usual->n && ends_with(x, &v[i], usual))
			PL_DERIVE_ADD(x->err, x->found, x->n_found, x->cap_found,
				      (struct found){ v[i].shape, v[i].n - usual->n, &v[i] });
}

int pl_derive_evaluation(struct pl_graph *g, const uint32_t *rank, struct pl_err *err)
{
	struct evaluation x = { .g = g, .err = err, .rank = rank };
	const struct pl_gstep **step = NULL; /* by shape: the first whole one */
	size_t *steps = NULL;
	int rc;

	PL_TRY(pl_alloc(&step, g->n_shapes, sizeof(const struct pl_gstep *), err));
	PL_TRY(pl_alloc(&steps, g->n_shapes, sizeof(*steps), err));
	PL_TRY(pl_alloc(&x.window, g->n_res, sizeof(*x.window), err));
	PL_TRY(pl_alloc(&x.backward, (size_t)g->n_ranks, sizeof(*x.backward), err));
	for (size_t k = 0; k < g->n_steps; k++) {
		uint32_t shape = g->step[k].shape;

		if (g->step[k].number == INT64_MIN)
			continue;
		step[shape] = step[shape] ? step[shape] : &g->step[k];
		steps[shape]++;
	}
	for (uint32_t i = 0; i < g->n_shapes && g->n_shapes > 1; i++)
		if (steps[i])
			list_products(&x, i, step[i], steps[i]);
	PL_TRY(err->code);
	pl_sort(x.forward, x.n, sizeof(*x.forward), by_kind);
	for (size_t i = 0, k; i < x.n; i = k) {
		for (k = i; k < x.n && x.forward[k].rank == x.forward[i].rank &&
			    x.forward[k].backward == x.forward[i].backward;)
			k++;
		compare(&x, x.forward + i, k - i);
	}
	PL_TRY(err->code);
	if (x.n_found)
		pl_sort(x.found, x.n_found, sizeof(*x.found), by_shape);
	for (size_t i = 0, k; i < x.n_found; i = k) {
		for (k = i; k < x.n_found && x.found[k].shape == x.found[i].shape;)
			k++;
		mark(&x, x.found + i, k - i);
	}
out:
	pl_free(step);
	pl_free(steps);
	pl_free(x.backward);
	pl_free(x.product);
	pl_free(x.forward);
	pl_free(x.found);
	pl_free(x.window);
	return rc;
}
