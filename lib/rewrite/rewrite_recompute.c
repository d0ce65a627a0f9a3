/*
 * Recomputation in traces. A layer is an annotated range that keeps activations (memory.c): the
 * tensors with the name of the range. The range's output is not among them, because the next layer
 * keeps or begins with it. In the graph of a layer table, the layer is one operation.
 *
 * The operations of the range run again when the first of its activations is used. On a rank
 * without a device, the thread that uses the activation runs them. Otherwise they run on the stream
 * of the next operation that this thread launches. The host time of launching again is not added.
 * If a range ran several times in a step (microbatches), each time has its own number. Fused
 * operations have given their time to another node; therefore a range with fused operations is
 * refused. O(nodes log nodes) for all layers of a line.
 */
#include <stdlib.h>

#include "rewrite/rewrite_internal.h"

#define AHEAD 256 /* operations of a thread searched for the next launch */

struct ran { /* a range, once; or a layer of a table */
	uint32_t step, res;
	int32_t layer;
	uint32_t forward; /* the operation that is the whole layer, PL_NONE: many are the range */
	uint32_t use;	  /* the first node that needs what it kept */
};

const char *pl_rewrite_layer(const struct pl_edit *e, const struct pl_etensor *x)
{
	const struct pl_tensor *t = &e->g->tensor[x->tensor];
	const struct pl_enode *p = x->producer == PL_NONE ? NULL : &e->node[x->producer];

	if (x->dead || t->role != PL_TR_ACTIVATION || t->flags & PL_TF_OUTPUT || !p ||
	    !t->n_consumers || p->layer < 0)
		return NULL;
	return pl_edit_name(e, p->flags & PL_NF_LAYER ? p->module : t->name);
}

/* Where it is used last: consumers are of the same step. */
static uint32_t use_of(const struct pl_edit *e, const struct pl_etensor *x)
{
	const struct pl_tensor *t = &e->g->tensor[x->tensor];
	uint32_t last = PL_NONE;

	for (uint32_t c = 0; c < t->n_consumers; c++) {
		uint32_t node = e->step[x->step].first + e->g->consumer[t->consumer + c];

		if (!e->node[node].dead &&
		    (last == PL_NONE || pl_edit_end(e, node) > pl_edit_end(e, last)))
			last = node;
	}
	return last;
}

PL_COMPARATOR(by_place, struct ran, step, res, layer, forward, use);

/* Each range once, with its first use. */
static size_t unite(const struct pl_edit *e, struct ran *v, size_t n)
{
	size_t kept = 0;

	pl_sort(v, n, sizeof(*v), by_place);
	for (size_t i = 0; i < n; i++) {
		struct ran *last = kept ? &v[kept - 1] : NULL;

		if (!last || last->step != v[i].step || last->res != v[i].res ||
		    last->layer != v[i].layer || last->forward != v[i].forward)
			v[kept++] = v[i];
		else if (e->node[v[i].use].start < e->node[last->use].start)
			last->use = v[i].use;
	}
	return kept;
}

/* ---- what belongs to the layers of a line ---------------------------------------------------- */

struct kept { /* a tensor that a layer keeps */
	uint32_t arg, tensor;
};
struct inside { /* an operation or a pause of a range */
	uint32_t step;
	int32_t layer, rank;
	uint32_t node;
};
PL_COMPARATOR(by_arg, struct kept, arg, tensor);
PL_COMPARATOR(by_range, struct inside, step, layer, rank, node);

struct found {
	struct kept *kept; /* by layer of the line */
	struct inside *inside;
	size_t n_kept, cap_kept, n_inside, cap_inside;
	struct pl_intern layers; /* numbers of those that keep them */
};

static void found_fini(struct found *f)
{
	pl_free(f->kept);
	pl_free(f->inside);
	pl_intern_fini(&f->layers);
}

static int find_kept(struct found *f, const struct pl_edit *e, const struct pl_rewrite *rw,
		     struct pl_err *err)
{
	struct pl_intern names = { 0 };
	pl_id id;
	int rc = 0;

	for (uint32_t i = 0; i < rw->n_args; i++) /* the names differ */
		PL_TRY(pl_intern_add(&names, rw->arg[i], strlen(rw->arg[i]), &id, err));
	for (size_t i = 0; i < e->n_tensors; i++) {
		const char *layer = pl_rewrite_layer(e, &e->tensor[i]);
		struct kept x = { .tensor = (uint32_t)i };

		x.arg = layer ? pl_intern_find(&names, layer, strlen(layer)) : PL_NONE;
		if (x.arg != PL_NONE)
			PL_TRY(pl_append(&f->kept, &f->n_kept, &f->cap_kept, &x, sizeof(x), err));
	}
	pl_sort(f->kept, f->n_kept, sizeof(*f->kept), by_arg);
out:
	pl_intern_fini(&names);
	return rc;
}

static int find_inside(struct found *f, const struct pl_edit *e, struct pl_err *err)
{
	pl_id id;

	for (size_t i = 0; i < f->n_kept; i++) {
		int32_t layer = e->node[e->tensor[f->kept[i].tensor].producer].layer;

		PL_CHECK(pl_intern_add(&f->layers, (const char *)&layer, sizeof(layer), &id, err));
	}
	for (uint32_t i = 0; i < e->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		struct inside x = { n->step, n->layer, 0, i };

		if (n->dead || n->res == PL_NONE || n->layer < 0 ||
		    !(rw_computes(n) || n->role == PL_RO_GAP) ||
		    pl_intern_find(&f->layers, (const char *)&n->layer, sizeof(n->layer)) ==
			    PL_NONE)
			continue;
		x.rank = e->res[n->res].rank;
		PL_CHECK(pl_append(&f->inside, &f->n_inside, &f->cap_inside, &x, sizeof(x), err));
	}
	pl_sort(f->inside, f->n_inside, sizeof(*f->inside), by_range);
	return 0;
}

/* What the range computed; with the pauses of its thread, if that computes. -1: some is fused. */
static pl_ns forward_of(const struct pl_rewriter *r, const struct found *f, const struct ran *x)
{
	const struct pl_edit *e = r->e;
	const struct inside at = { x->step, x->layer, e->res[x->res].rank, 0 };
	pl_ns sum = 0, pauses = 0;
	size_t k = 0;

	if (x->forward != PL_NONE)
		return rw_fused(r, x->forward) ? -1 : e->node[x->forward].dur;
	PL_LOWER_BOUND(k, f->n_inside, by_range(&f->inside[k], &at) < 0);
	for (; k < f->n_inside; k++) {
		const struct inside *in = &f->inside[k];
		const struct pl_enode *n = &e->node[in->node];

		if (in->step != at.step || in->layer != at.layer || in->rank != at.rank)
			break;
		if (rw_computes(n)) {
			if (rw_fused(r, in->node))
				return -1;
			sum += n->dur;
			if (n->res != x->res) /* a device does */
				pauses = INT64_MIN;
		} else if (n->res == x->res && pauses != INT64_MIN) {
			pauses += n->dur;
		}
	}
	return sum + pl_max_i64(0, pauses);
}

/* ---- making a layer again -------------------------------------------------------------------- */

/* What it launches that computes, PL_NONE. */
static uint32_t launched(const struct pl_edit *e, uint32_t node)
{
	for (uint32_t x = e->node[node].out; x != PL_NONE; x = e->edge[x].out_next)
		if (rw_launches(&e->edge[x]) && rw_computes(&e->node[e->edge[x].dst]))
			return e->edge[x].dst;
	return PL_NONE;
}

static uint32_t next_on(const struct pl_edit *e, uint32_t node)
{
	for (uint32_t x = e->node[node].out; x != PL_NONE; x = e->edge[x].out_next) {
		const struct pl_enode *d = &e->node[e->edge[x].dst];

		if (PL_E_TYPE(e->edge[x].type) == PL_E_SEQ && d->res == e->node[node].res &&
		    d->step == e->node[node].step)
			return e->edge[x].dst;
	}
	return PL_NONE;
}

/* The operation that gets longer: on a device if one is launched soon. */
static uint32_t takes_it(const struct pl_edit *e, uint32_t use)
{
	uint32_t at = use, found = PL_NONE;

	for (int i = 0; i < AHEAD && at != PL_NONE && found == PL_NONE; i++) {
		found = launched(e, at);
		at = next_on(e, at);
	}
	return found == PL_NONE ? use : found;
}

/* The layer that keeps the tensors from `begin` to `end` of f->kept. */
static int recompute_layer(struct pl_rewriter *r, const struct found *f, size_t begin, size_t end,
			   const char *name, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct ran *v = NULL;
	size_t n = 0;
	int rc;

	PL_TRY(pl_alloc(&v, end - begin + 1, sizeof(*v), err));
	for (size_t i = begin; i < end; i++) {
		const struct pl_etensor *x = &e->tensor[f->kept[i].tensor];
		const struct pl_enode *p = &e->node[x->producer];
		uint32_t use = use_of(e, x);

		if (use == PL_NONE)
			continue;
		if (x->remade) {
			rc = pl_fail(err, PL_EDATA, "\"%s\" is made again already; name it once",
				     name);
			goto out;
		}
		v[n++] = (struct ran){ x->step, p->res, p->layer,
				       p->flags & PL_NF_LAYER ? x->producer : PL_NONE, use };
		rw_set_remade(r, f->kept[i].tensor, true);
	}
	n = unite(e, v, n);
	for (size_t i = 0; i < n; i++) {
		pl_ns more = forward_of(r, f, &v[i]);
		uint32_t node = takes_it(e, v[i].use);

		if (more < 0 || rw_fused(r, node)) {
			rc = pl_fail(err, PL_EDATA,
				     "operations of \"%s\" are fused with others; put recompute "
				     "before fuse-ops",
				     name);
			goto out;
		}
		rw_set_dur(r, node, e->node[node].dur + more);
	}
	rc = n ? 0
	       : pl_fail(err, PL_EDATA,
			 "the graph has no layer \"%s\" with a forward and a backward operation, "
			 "nor an annotated range of that name that keeps activations",
			 name);
out:
	pl_free(v);
	return rc;
}

static int apply_recompute(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct found f = { 0 };
	size_t end = 0;
	int rc;

	PL_TRY(find_kept(&f, r->e, rw, err));
	PL_TRY(find_inside(&f, r->e, err));
	for (uint32_t i = 0; i < rw->n_args; i++) {
		size_t begin = end;

		while (end < f.n_kept && f.kept[end].arg == i)
			end++;
		PL_TRY(recompute_layer(r, &f, begin, end, rw->arg[i], err));
	}
out:
	found_fini(&f);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_recompute = {
	.apply = apply_recompute,
	.explain = "the activations of {names} layers are not kept but made again in the backward "
		   "pass: less memory, more computation"
};
