/*
 * Many alike steps become one step.
 *
 * Steps are alike if every resource does the same operations in the same order. The resources may
 * take turns in different orders, so the order of nodes in the file may differ. Therefore nodes are
 * compared in an order of their own: by resource and place on it. A node on no resource (a
 * rendezvous) is placed by the first operation that it lets begin. The largest set of alike steps
 * is folded, with the edges of its most frequent shape.
 *
 * The duration and the start of a node (from the begin of the step) are the mean or median over the
 * set. Means of starts and ends keep the order of the edges. Medians may not; then a start is moved
 * to the earliest time that its predecessors allow. A rendezvous starts at its last arrival. A node
 * after a rendezvous starts at its own mean. The mean of the last arrivals is later than the last
 * of the mean arrivals, and the difference becomes unexplained time. Thus the folded step replays
 * to the mean of the steps (less the difference if other ranks began or other operations ended some
 * steps).
 *
 * O(n) per step, except for sorting entries and nodes on no resource; a hash finds alike shapes. 8
 * bytes for each node of each shape.
 */
#include <stdlib.h>

#include "graph/graph.h"
#include "sim/sim.h"

struct order {		 /* of a shape */
	uint32_t *node;	 /* in canonical order, without entries */
	uint32_t *entry; /* by resource; of shapes that are folded */
	uint32_t n;
	uint64_t hash;
};
struct hashed {
	uint64_t hash;
	uint32_t shape;
};

struct fold {
	const struct pl_graph *g;
	struct pl_graph *out;
	struct order *order; /* by shape */
	uint32_t *like;	     /* by shape: the first that does the same */
	size_t *step;	     /* the steps that are folded */
	size_t n_steps;
	pl_ns *begin; /* of each */
	int64_t *value;
	bool median;
};

/* ---- the order that does not depend on time -------------------------------------------------- */

struct loose {		      /* a node on no resource */
	uint32_t first, node; /* smallest place of what it lets begin */
};

PL_COMPARATOR(by_first, struct loose, first, node);

/* Nodes on resources, by resource; *n_loose: how many others there are. */
static int by_resource(const struct pl_graph *g, const struct pl_shape *sh, struct order *o,
		       struct pl_err *err)
{
	uint32_t *at;

	PL_CHECK(pl_alloc(&at, g->n_res + 1, sizeof(*at), err));
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
		if (sh->res[i] != PL_NONE)
			at[sh->res[i] + 1]++;
	for (size_t r = 0; r < g->n_res; r++)
		at[r + 1] += at[r];
	o->n = at[g->n_res];
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
		if (sh->res[i] != PL_NONE)
			o->node[at[sh->res[i]]++] = i;
	pl_free(at);
	return 0;
}

static int add_loose(const struct pl_shape *sh, struct order *o, struct pl_err *err)
{
	uint32_t *place = NULL, *first = NULL, n = 0;
	struct loose *v = NULL;
	int rc;

	PL_TRY(pl_alloc(&place, sh->n_nodes, sizeof(*place), err));
	PL_TRY(pl_alloc(&first, sh->n_nodes, sizeof(*first), err));
	PL_TRY(pl_alloc(&v, sh->n_nodes - sh->n_entries - o->n, sizeof(*v), err));
	memset(first, 0xff, sh->n_nodes * sizeof(*first));
	for (uint32_t i = 0; i < o->n; i++)
		place[o->node[i]] = i;
	for (uint32_t i = sh->n_nodes; i-- > sh->n_entries;) {
		uint32_t own = sh->res[i] == PL_NONE ? first[i] : place[i];

		for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
			if (own < first[sh->src[e]])
				first[sh->src[e]] = own;
	}
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
		if (sh->res[i] == PL_NONE)
			v[n++] = (struct loose){ first[i], i };
	qsort(v, n, sizeof(*v), by_first);
	for (uint32_t i = 0; i < n; i++)
		o->node[o->n++] = v[i].node;
out:
	pl_free(place);
	pl_free(first);
	pl_free(v);
	return rc;
}

static int make_order(const struct pl_graph *g, const struct pl_shape *sh, struct order *o,
		      struct pl_err *err)
{
	PL_CHECK(pl_alloc(&o->node, sh->n_nodes, sizeof(*o->node), err));
	PL_CHECK(by_resource(g, sh, o, err));
	if (o->n < sh->n_nodes - sh->n_entries)
		PL_CHECK(add_loose(sh, o, err));
	o->hash = o->n;
	for (uint32_t i = 0; i < o->n; i++) {
		uint32_t x = o->node[i];
		uint64_t v = (uint64_t)sh->name[x] << 32 | sh->res[x];

		o->hash = (o->hash ^ v ^ (uint64_t)sh->role[x] << 56) * 0x9e3779b97f4a7c15u;
		o->hash ^= o->hash >> 29;
	}
	return 0;
}

static bool same(const struct pl_shape *a, const struct order *x, const struct pl_shape *b,
		 const struct order *y)
{
	if (x->hash != y->hash || x->n != y->n)
		return false;
	for (uint32_t i = 0; i < x->n; i++) {
		uint32_t p = x->node[i], q = y->node[i];

		if (a->name[p] != b->name[q] || a->res[p] != b->res[q] ||
		    a->type[p] != b->type[q] || a->role[p] != b->role[q] ||
		    a->kind[p] != b->kind[q])
			return false;
	}
	return true;
}

/* ---- which steps ----------------------------------------------------------------------------- */

/* The recorded begin of a step; false for work outside any. */
static bool begins(const struct pl_graph *g, size_t k, pl_ns *begin)
{
	const struct pl_gstep *st = &g->step[k];
	const struct pl_shape *sh = &g->shape[st->shape];

	*begin = INT64_MAX;
	for (uint32_t i = 0; i < sh->n_nodes; i++)
		if (sh->flags[i] & PL_NF_STEP_BEGIN)
			*begin = pl_min_i64(*begin, st->start[i]);
	return st->number != INT64_MIN && *begin != INT64_MAX;
}

PL_COMPARATOR(by_hash, struct hashed, hash, shape);

/* like[i]: the first shape that does the same as shape i. */
static int find_alike(struct fold *f, struct pl_err *err)
{
	const struct pl_graph *g = f->g;
	struct hashed *v;

	PL_CHECK(pl_alloc(&v, g->n_shapes, sizeof(*v), err));
	for (uint32_t i = 0; i < g->n_shapes; i++)
		v[i] = (struct hashed){ f->order[i].hash, i };
	pl_sort(v, g->n_shapes, sizeof(*v), by_hash);
	for (size_t i = 0, first = 0; i < g->n_shapes; i++) {
		uint32_t a = v[i].shape;

		if (v[i].hash != v[first].hash)
			first = i;
		f->like[a] = a;
		for (size_t j = first; j < i && f->like[a] == a; j++) {
			uint32_t b = v[j].shape;

			if (f->like[b] == b &&
			    same(&g->shape[a], &f->order[a], &g->shape[b], &f->order[b]))
				f->like[a] = b;
		}
	}
	pl_free(v);
	return 0;
}

/* The shapes that do the same, the largest set of steps that have one of them, and its shape. */
static int choose(struct fold *f, uint32_t *shape, struct pl_err *err)
{
	const struct pl_graph *g = f->g;
	size_t *steps = NULL, *in_set = NULL;
	uint32_t best = PL_NONE;
	pl_ns begin;
	int rc;

	PL_TRY(pl_alloc(&steps, g->n_shapes, sizeof(*steps), err));
	PL_TRY(pl_alloc(&in_set, g->n_shapes, sizeof(*in_set), err));
	PL_TRY(find_alike(f, err));
	for (size_t k = 0; k < g->n_steps; k++) {
		if (begins(g, k, &begin)) {
			steps[g->step[k].shape]++;
			in_set[f->like[g->step[k].shape]]++;
		}
	}
	for (uint32_t i = 0; i < g->n_shapes; i++)
		if (in_set[i] && (best == PL_NONE || in_set[i] > in_set[best]))
			best = i;
	if (best == PL_NONE) {
		rc = pl_fail(err, PL_EDATA, "the graph has no step with a beginning to fold");
		goto out;
	}
	*shape = best;
	for (uint32_t i = 0; i < g->n_shapes; i++)
		if (f->like[i] == best && steps[i] > steps[*shape])
			*shape = i;
	for (size_t k = 0; k < g->n_steps; k++)
		if (f->like[g->step[k].shape] == best && begins(g, k, &begin)) {
			f->step[f->n_steps] = k;
			f->begin[f->n_steps++] = begin;
		}
out:
	pl_free(steps);
	pl_free(in_set);
	return rc;
}

/* ---- copying --------------------------------------------------------------------------------- */

/* Of the tensors those of the shape that stays. */
static int copy_tensors(struct fold *f, uint32_t shape, struct pl_err *err)
{
	const struct pl_graph *g = f->g;
	struct pl_graph *o = f->out;

	PL_CHECK(pl_copy_array(&o->consumer, &o->n_consumers, &o->cap_consumers, g->consumer,
			       g->n_consumers, sizeof(*o->consumer), err));
	for (size_t i = 0; i < g->n_tensors; i++) {
		struct pl_tensor t = g->tensor[i];

		t.shape = 0;
		if (g->tensor[i].shape == shape)
			PL_CHECK(pl_append(&o->tensor, &o->n_tensors, &o->cap_tensors, &t,
					   sizeof(t), err));
	}
	return 0;
}

/* ---- averaging ------------------------------------------------------------------------------- */

static int64_t average(struct fold *f, size_t n)
{
	int64_t q = 0, r = 0, m = (int64_t)n;

	if (f->median)
		return pl_median_i64(f->value, n);
	for (size_t i = 0; i < n; i++) { /* the sum need not fit */
		q += f->value[i] / m;
		r += f->value[i] % m;
	}
	return q + (r + (r < 0 ? -m / 2 : m / 2)) / m;
}

static void average_nodes(struct fold *f, uint32_t shape, pl_ns begin)
{
	struct pl_gstep *to = &f->out->step[0];
	const struct order *o = &f->order[shape];

	for (uint32_t i = 0; i < o->n; i++) {
		uint32_t x = o->node[i];

		for (size_t k = 0; k < f->n_steps; k++) {
			const struct pl_gstep *st = &f->g->step[f->step[k]];

			f->value[k] = st->start[f->order[st->shape].node[i]] - f->begin[k];
		}
		to->start[x] = begin + average(f, f->n_steps);
		for (size_t k = 0; k < f->n_steps; k++) {
			const struct pl_gstep *st = &f->g->step[f->step[k]];

			f->value[k] = st->dur[f->order[st->shape].node[i]];
		}
		to->dur[x] = average(f, f->n_steps);
	}
}

struct at {
	pl_id res;
	uint32_t entry;
};

PL_COMPARATOR(by_res, struct at, res, entry);

static int sort_entries(const struct pl_shape *sh, struct order *o, struct pl_err *err)
{
	struct at *v = NULL;
	int rc;

	if (o->entry)
		return 0;
	PL_TRY(pl_alloc(&v, (size_t)sh->n_entries + 1, sizeof(*v), err));
	PL_TRY(pl_alloc(&o->entry, (size_t)sh->n_entries + 1, sizeof(*o->entry), err));
	for (uint32_t i = 0; i < sh->n_entries; i++)
		v[i] = (struct at){ sh->res[i], i };
	pl_sort(v, sh->n_entries, sizeof(*v), by_res);
	for (uint32_t i = 0; i < sh->n_entries; i++)
		o->entry[i] = v[i].entry;
out:
	pl_free(v);
	return rc;
}

/* The entry of the resource, PL_NONE if the shape has none. */
static uint32_t entry_of(const struct pl_shape *sh, const struct order *o, pl_id res)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, sh->n_entries, sh->res[o->entry[i]] < res);
	return i < sh->n_entries && sh->res[o->entry[i]] == res ? o->entry[i] : PL_NONE;
}

/* Entries, by resource; not every step of the set need have them. */
static int average_entries(struct fold *f, pl_ns begin, struct pl_err *err)
{
	const struct pl_shape *sh = &f->out->shape[0];

	for (size_t k = 0; k < f->n_steps; k++) {
		uint32_t shape = f->g->step[f->step[k]].shape;

		PL_CHECK(sort_entries(&f->g->shape[shape], &f->order[shape], err));
	}
	for (uint32_t i = 0; i < sh->n_entries; i++) {
		size_t n = 0;

		for (size_t k = 0; k < f->n_steps; k++) {
			const struct pl_gstep *st = &f->g->step[f->step[k]];
			uint32_t x =
				entry_of(&f->g->shape[st->shape], &f->order[st->shape], sh->res[i]);

			if (x != PL_NONE)
				f->value[n++] = st->start[x] - f->begin[k];
		}
		f->out->step[0].start[i] = begin + average(f, n);
	}
	return 0;
}

/* When the k-th of the node's predecessors (0: the last) lets it start; `t` has room for them. */
static pl_ns arrival(const struct pl_shape *sh, const struct pl_gstep *st, uint32_t i, uint32_t k,
		     int64_t *t)
{
	uint32_t n = 0;

	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++) {
		unsigned type = PL_E_TYPE(sh->etype[e]);

		t[n] = st->start[sh->src[e]];
		if (type != PL_E_EARLY && type != PL_E_START)
			t[n] += st->dur[sh->src[e]];
		n++;
	}
	if (!n)
		return INT64_MIN;
	if (k)
		return pl_percentile_i64(t, n, 100.0 * (k - 0.5) / n);
	for (uint32_t x = 1; x < n; x++)
		t[0] = pl_max_i64(t[0], t[x]);
	return t[0];
}

static int keep_order(struct fold *f, struct pl_err *err)
{
	const struct pl_shape *sh = &f->out->shape[0];
	struct pl_gstep *st = &f->out->step[0];
	uint32_t most = 0;
	int64_t *t;

	for (uint32_t i = 0; i < sh->n_nodes; i++)
		if (sh->off[i + 1] - sh->off[i] > most)
			most = sh->off[i + 1] - sh->off[i];
	PL_CHECK(pl_alloc(&t, most, sizeof(*t), err));
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		bool meet = sh->type[i] == PL_N_RENDEZVOUS && sh->role[i] != PL_RO_MARK;
		pl_ns at = arrival(sh, st, i, meet && sh->k ? sh->k[i] : 0, t);

		if (at == INT64_MIN)
			continue;
		st->start[i] = meet ? at : pl_max_i64(st->start[i], at);
	}
	pl_free(t);
	return 0;
}

static int make_step(struct fold *f, uint32_t shape, struct pl_err *err)
{
	struct pl_graph *o = f->out;
	uint32_t n = f->g->shape[shape].n_nodes;

	PL_CHECK(pl_alloc(&o->shape, 1, sizeof(*o->shape), err));
	o->n_shapes = o->cap_shapes = 1;
	PL_CHECK(pl_graph_shape_dup(&f->g->shape[shape], &o->shape[0], err));
	PL_CHECK(pl_alloc(&o->step, 1, sizeof(*o->step), err));
	o->n_steps = o->cap_steps = 1;
	o->step[0].number = f->g->step[f->step[0]].number;
	PL_CHECK(pl_alloc(&o->step[0].start, n, sizeof(pl_ns), err));
	PL_CHECK(pl_alloc(&o->step[0].dur, n, sizeof(pl_ns), err));
	average_nodes(f, shape, f->begin[0]);
	PL_CHECK(average_entries(f, f->begin[0], err));
	PL_CHECK(keep_order(f, err));
	return 0;
}

int pl_sim_fold(const struct pl_graph *g, bool median, struct pl_graph *out, size_t *n_folded,
		struct pl_err *err)
{
	struct pl_graph made = { 0 };
	struct fold f = { .g = g, .out = &made, .median = median };
	uint32_t shape = 0;
	int rc;

	PL_TRY(pl_alloc(&f.order, g->n_shapes, sizeof(*f.order), err));
	PL_TRY(pl_alloc(&f.like, g->n_shapes, sizeof(*f.like), err));
	PL_TRY(pl_alloc(&f.step, g->n_steps, sizeof(*f.step), err));
	PL_TRY(pl_alloc(&f.begin, g->n_steps, sizeof(*f.begin), err));
	PL_TRY(pl_alloc(&f.value, g->n_steps + 1, sizeof(*f.value), err));
	for (size_t i = 0; i < g->n_shapes; i++)
		PL_TRY(make_order(g, &g->shape[i], &f.order[i], err));
	PL_TRY(choose(&f, &shape, err));
	PL_TRY(pl_graph_copy_tables(g, &made, err));
	PL_TRY(copy_tensors(&f, shape, err));
	PL_TRY(make_step(&f, shape, err));
	if (n_folded)
		*n_folded = f.n_steps;
out:
	for (size_t i = 0; f.order && i < g->n_shapes; i++) {
		pl_free(f.order[i].node);
		pl_free(f.order[i].entry);
	}
	pl_free(f.order);
	pl_free(f.like);
	pl_free(f.step);
	pl_free(f.begin);
	pl_free(f.value);
	if (rc < 0)
		pl_graph_fini(&made);
	else if (out == g)
		pl_graph_fini(out);
	if (rc >= 0 || out != g)
		*out = made;
	return rc;
}
