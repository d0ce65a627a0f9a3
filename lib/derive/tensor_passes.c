/*
 * Backward passes of a step: which gradients come again.
 *
 * A job that accumulates gradients computes each of them once in every backward pass of a step.
 * Between two backward passes a host thread of the rank computes something else, the next forward
 * pass. What is computed again during a backward pass has the phase of that pass, so it does not
 * count. A step has several passes if these places divide its gradients into parts that are equal
 * in number, at least LEAST, and in the size and type of each gradient. Otherwise it counts as one
 * pass: a part of a model may have a backward pass of its own.
 *
 * If an optimizer also uses the gradients before such a place, they are synchronised by then: a
 * step that trains two models in turn, as adversarial networks do, has two parts. Each is looked at
 * by itself, and none of its gradients is one of another part.
 *
 * O(nodes of host threads + gradients log updates).
 */
#include "derive/tensors.h"

#define LEAST 2 /* gradients of a pass: a single one may be made between other operations */

static bool computes_forward(const struct node *n)
{
	return n->kind == PL_K_HOST_OP && (n->role == PL_RO_COMPUTE || n->role == PL_RO_HOST) &&
	       (n->phase == PL_PH_UNKNOWN || n->phase == PL_PH_FORWARD);
}

/* Marks the gradients before which something else than a backward pass was computed. */
static void mark_begins(const struct builder *b, const struct rank *rank, struct found *x)
{
	for (size_t k = 0; k < rank->n_res; k++) {
		const struct resource *r = &b->resource[rank->res[k]];
		size_t at = 0;

		for (uint32_t i = r->node0; r->thread && !r->service && i < r->node1; i++) {
			const struct node *n = &b->node[i];

			if (!computes_forward(n))
				continue;
			while (at < x->n_grads && x->grad[at].start <= n->start)
				at++;
			if (at == x->n_grads)
				break;
			x->grad[at].begins = true;
		}
	}
}

static bool alike(const struct grad *a, const struct grad *b)
{
	return a->bytes == b->bytes && a->type == b->type && a->name == b->name &&
	       !strcmp(a->dims, b->dims);
}

/* The gradients of a pass of the step v[0] .. v[n - 1]; n: it has one pass. */
static size_t pass_length(const struct grad *v, size_t n)
{
	size_t length = 1;

	while (length < n && !v[length].begins)
		length++;
	if (length < LEAST || n % length != 0)
		return n;
	for (size_t i = length; i < n; i++)
		if (v[i].begins != (i % length == 0) || !alike(&v[i], &v[i - length]))
			return n;
	return length;
}

PL_COMPARATOR(by_update, struct update, start, end);

/* Is gradient i the first one behind an update and a forward pass? */
static bool begins_part(const struct found *x, size_t i)
{
	size_t u = 0;

	PL_LOWER_BOUND(u, x->n_updates, x->update[u].start <= x->grad[i - 1].start);
	return x->grad[i].begins && u < x->n_updates && x->update[u].end <= x->grad[i].start;
}

void pl_derive_find_passes(const struct builder *b, const struct rank *rank, struct found *x)
{
	int32_t before = INT32_MIN;
	uint32_t part = 0;

	mark_begins(b, rank, x);
	pl_sort(x->update, x->n_updates, sizeof(*x->update), by_update);
	for (size_t i = 0, n; i < x->n_grads; i += n) {
		int32_t step = pl_derive_step_at(b, rank, x->grad[i].start, NULL);
		size_t length;

		part = step == before ? part + 1 : 0;
		before = step;
		for (n = 1; i + n < x->n_grads && !begins_part(x, i + n) &&
			    pl_derive_step_at(b, rank, x->grad[i + n].start, NULL) == step;)
			n++;
		length = pass_length(x->grad + i, n);
		for (size_t k = 0; k < n; k++) {
			x->grad[i + k].part = part;
			x->grad[i + k].pass = (uint32_t)(k / length);
		}
	}
}
