/*
 * Fusion of operations: several operations that follow one another become one.
 *
 * The recording shows the time that is certainly saved: the usual dispatch latency of the device
 * between two operations, and on the host the calls that launched the second and later operations.
 * A recording does not show how much shorter the work becomes. The plan gives the duration; the
 * default is the sum. With a cost model of kernels, operations that only move data and whose bytes
 * are known become one that does not write and read again what stands between them: the sum gets
 * the ratio of the model's times. Time between two operations beyond the usual latency has an
 * unknown cause and is kept.
 *
 * On the edit the first operation takes the time of all of them. The other operations stay directly
 * after it, with no duration. So a node that waited for one of them now waits for the fused
 * operation: gradients of fused operations become ready together (Hu et al., MLSys 2022, section
 * 5). The first call launches all of them. This is correct only if the host waits for nothing
 * between the calls, because then no result could change what the host launches. O(nodes that have
 * the first name, and host operations between the calls).
 */
#include <stdlib.h>

#include "graph/dims.h"
#include "rewrite/rewrite_predicted.h"

#define CALLS_MAX 100000 /* host operations between two launches; more: not fused */

/* ---- may they be fused? ---------------------------------------------------------------------- */

/* The edge to the operation that follows on the same resource, PL_NONE. */
static uint32_t next_edge(const struct pl_edit *e, uint32_t node)
{
	for (uint32_t x = e->node[node].out; x != PL_NONE; x = e->edge[x].out_next) {
		const struct pl_enode *d = &e->node[e->edge[x].dst];

		if (PL_E_TYPE(e->edge[x].type) == PL_E_SEQ && d->res == e->node[node].res &&
		    d->step == e->node[node].step && d->type == PL_N_OP)
			return x;
	}
	return PL_NONE;
}

/* Does the node wait for something other than what is before it on its resource? */
static bool waits(const struct pl_edit *e, uint32_t node, uint32_t before)
{
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next)
		if (e->edge[x].src != before && !rw_launches(&e->edge[x]))
			return true;
	return false;
}

/* The edge from the call that launched it, PL_NONE. */
static uint32_t launch_edge(const struct pl_edit *e, uint32_t node)
{
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next)
		if (rw_launches(&e->edge[x]))
			return x;
	return PL_NONE;
}

/* The second part of a launching call, in which it waits for room in the queue. PL_NONE: none. */
static uint32_t second_part(const struct pl_edit *e, uint32_t call)
{
	uint32_t x = next_edge(e, call), next;

	if (x == PL_NONE || e->node[call].role != PL_RO_HOST)
		return PL_NONE;
	next = e->edge[x].dst;
	return e->node[next].role == PL_RO_SYNC && e->node[next].name == e->node[call].name
		       ? next
		       : PL_NONE;
}

/* Does the host operation wait for anything but the thread itself, or room for its launch? */
static bool learns(const struct pl_edit *e, uint32_t node, uint32_t before)
{
	const struct pl_enode *n = &e->node[node];

	if (n->type != PL_N_OP || (n->role == PL_RO_SYNC && second_part(e, before) != node))
		return true;
	for (uint32_t x = n->in; x != PL_NONE; x = e->edge[x].in_next)
		if (PL_E_TYPE(e->edge[x].type) != PL_E_SEQ &&
		    PL_E_TYPE(e->edge[x].type) != PL_E_START)
			return true;
	return false;
}

/* From one call to the other the thread waits for nothing. */
static bool goes_on(const struct pl_edit *e, uint32_t from, uint32_t to)
{
	uint32_t res = e->node[from].res;

	for (int i = 0; i < CALLS_MAX && from != to; i++) {
		uint32_t x = next_edge(e, from);

		if (x == PL_NONE || e->node[e->edge[x].dst].res != res ||
		    learns(e, e->edge[x].dst, from))
			return false;
		from = e->edge[x].dst;
	}
	return from == to;
}

/* Could what launched `b` be left out, if `a` is launched for both? */
static bool one_launch(const struct pl_edit *e, uint32_t a, uint32_t b)
{
	uint32_t xa = launch_edge(e, a), xb = launch_edge(e, b), n = 0, ca, cb;

	if (xb == PL_NONE)
		return true;
	if (xa == PL_NONE)
		return false;
	ca = e->edge[xa].src;
	cb = e->edge[xb].src;
	if (ca == cb) /* a graph launched as a whole */
		return true;
	for (uint32_t x = e->node[cb].out; x != PL_NONE; x = e->edge[x].out_next)
		n += rw_launches(&e->edge[x]);
	return n == 1 && e->node[cb].role == PL_RO_HOST && goes_on(e, ca, cb);
}

/* The operation behind `node`, if both can be one; else PL_NONE. */
static uint32_t partner(const struct pl_rewriter *r, uint32_t node)
{
	const struct pl_edit *e = r->e;
	uint32_t x = next_edge(e, node), next;

	if (x == PL_NONE)
		return PL_NONE;
	next = e->edge[x].dst;
	if (!rw_computes(&e->node[next]) || rw_fused(r, next) || waits(e, next, node) ||
	    !one_launch(e, node, next))
		return PL_NONE;
	return next;
}

/* ---- nodes by name --------------------------------------------------------------------------- */

static int index_names(struct pl_rewriter *r, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	size_t names = e->g->str.n;
	uint32_t *first;
	int rc;

	if (r->name_first)
		return 0;
	PL_TRY(pl_alloc(&r->name_node, r->n_recorded, sizeof(*r->name_node), err));
	PL_TRY(pl_alloc(&first, names + 3, sizeof(*first), err));
	for (uint32_t i = 0; i < r->n_recorded; i++)
		if (rw_computes(&e->node[i]) && e->node[i].name < names)
			first[e->node[i].name + 2]++;
	for (size_t k = 2; k < names + 3; k++)
		first[k] += first[k - 1];
	for (uint32_t i = 0; i < r->n_recorded; i++)
		if (rw_computes(&e->node[i]) && e->node[i].name < names)
			r->name_node[first[e->node[i].name + 1]++] = i;
	r->name_first = first;
	rc = 0;
out:
	if (rc < 0) {
		pl_free(r->name_node);
		r->name_node = NULL;
	}
	return rc;
}

/* ---- fusing ---------------------------------------------------------------------------------- */

void pl_rewrite_unfuse(struct pl_rewriter *r, size_t n_fused)
{
	/* entries above were made by states that are gone; the array may hold older ones still */
	while (r->n_fused > n_fused)
		r->fused[r->fused_log[--r->n_fused].node] = 0;
}

static void mark_fused(struct pl_rewriter *r, uint32_t node, uint32_t first)
{
	if (r->rc == 0 && !r->fused)
		r->rc = pl_alloc(&r->fused, r->n_recorded, sizeof(*r->fused), &r->failure);
	if (r->rc == 0)
		r->rc = pl_grow(&r->fused_log, &r->cap_fused, r->n_fused + 1, sizeof(*r->fused_log),
				&r->failure);
	if (r->rc < 0)
		return;
	r->fused_log[r->n_fused++] =
		(struct rw_fused){ .node = node, .first = first, .dur = r->e->node[node].dur };
	r->fused[node] = (uint32_t)r->n_fused;
	rw_now(r)->n_fused = r->n_fused;
}

/* The part of an edge's delay that nothing explains. */
static pl_ns unexplained(const struct pl_eedge *x)
{
	return x->w - x->lag;
}

/* `b` right behind `a`, launched with it and with `first`. */
static void attach(struct pl_rewriter *r, uint32_t first, uint32_t a, uint32_t b)
{
	const struct pl_edit *e = r->e;
	uint32_t seq = next_edge(e, a), x = launch_edge(e, b), xa = launch_edge(e, a);
	pl_ns w = unexplained(&e->edge[seq]);

	if (x != PL_NONE && xa != PL_NONE && e->edge[x].src != e->edge[xa].src) {
		uint32_t call = e->edge[x].src, rest = second_part(e, call);

		w += unexplained(&e->edge[x]);
		rw_drop_edge(r, x);
		rw_set_dur(r, call, 0);
		if (rest != PL_NONE)
			rw_set_dur(r, rest, 0);
	}
	rw_set_weight(r, seq, w);
	mark_fused(r, b, first);
	rw_set_dur(r, b, 0);
}

/* How many operations from *at on have these names and may be one. *at becomes the last. */
static uint32_t follow(const struct pl_rewriter *r, const uint32_t *name, uint32_t n, uint32_t *at)
{
	for (uint32_t i = 1; i < n; i++) {
		uint32_t next = partner(r, *at);

		if (next == PL_NONE || r->e->node[next].name != name[i])
			return i;
		*at = next;
	}
	return n;
}

/* Bytes of the largest input, which are about those of the output; 0: not known. */
static double largest(const struct pl_edit *e, const struct pl_gwork *w)
{
	const char *type = w->type == PL_NONE ? "" : pl_edit_name(e, w->type);
	const char *dims = w->dims == PL_NONE ? "" : pl_edit_name(e, w->dims);
	int64_t element = pl_trace_dtype(type, strlen(type), NULL);
	struct pl_dims t;
	double most = 0;

	while (pl_dims_next(&dims, &t))
		most = fmax(most, (double)t.elements);
	return most * (double)(element > 0 ? element : 4);
}

/* The time of the fused operation by that of its parts; 0: their bytes are not known. */
static double share_by_model(const struct pl_rewriter *r, uint32_t first, uint32_t n)
{
	double bytes = 0, before = 0, between = 0;
	const struct pl_edit *e = r->e;

	for (uint32_t i = 0, at = first; i < n && r->moves; i++) {
		const struct pl_gwork *w = pl_edit_work(e, at);

		if (!w || w->bytes <= 0 || pl_graph_is_product(w->op) || !(largest(e, w) > 0))
			return 0;
		before += pl_predictor_move(r->moves, (double)w->bytes);
		bytes += fmax((double)w->bytes - (i ? between : 0), 0);
		between = largest(e, w);
		bytes -= i + 1 < n ? fmin(between, bytes) : 0;
		at = i + 1 < n ? e->edge[next_edge(e, at)].dst : at;
	}
	return before > 0 ? fmin(pl_predictor_move(r->moves, bytes) / before, 1) : 0;
}

static int ask_model(struct pl_rewriter *r, struct pl_err *err)
{
	int rc;

	if (!r->facts.predictor || r->moves)
		return 0;
	PL_CHECK(pl_alloc(&r->moves, 1, sizeof(*r->moves), err));
	rc = pl_predictor_moves(r->facts.predictor, r->moves, err);
	if (rc < 0 || isnan(r->moves->ns[0])) {
		pl_free(r->moves);
		r->moves = NULL;
	}
	return rc;
}

static void fuse_here(struct pl_rewriter *r, uint32_t first, uint32_t n, double x)
{
	const struct pl_edit *e = r->e;
	double by_model = x > 0 ? 0 : share_by_model(r, first, n);
	pl_ns sum = e->node[first].dur;
	size_t log = r->n_fused;

	mark_fused(r, first, first);
	for (uint32_t i = 1, at = first; i < n; i++) {
		uint32_t next = e->edge[next_edge(e, at)].dst;

		sum = pl_add_sat(sum, e->node[next].dur);
		attach(r, first, at, next);
		at = next;
	}
	for (size_t i = log; i < r->n_fused; i++)
		r->fused_log[i].share = sum > 0 ? (double)r->fused_log[i].dur / (double)sum : 0;
	rw_set_dur(r, first, rw_times(sum, x > 0 ? x : by_model > 0 ? by_model : 1));
	if (by_model > 0) /* it was never measured */
		rw_now(r)->basis.work_ns += PL_PREDICTOR_UNKNOWN * by_model * (double)sum /
					    (double)pl_rewrite_steps(e->g) /
					    (double)(e->g->n_ranks ? e->g->n_ranks : 1);
}

/* Why there is no place: they are never neighbours, or never may be one. */
static int nowhere(const struct pl_rewriter *r, const uint32_t *name, uint32_t n,
		   struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	uint32_t most = 0;
	bool never_adjacent = true;

	for (uint32_t k = r->name_first[name[0]]; k < r->name_first[name[0] + 1]; k++) {
		uint32_t at = r->name_node[k], i = follow(r, name, n, &at);
		uint32_t x = i < n ? next_edge(e, at) : PL_NONE;

		if (x == PL_NONE || e->node[e->edge[x].dst].name != name[i])
			continue;
		never_adjacent = false;
		most = i;
	}
	if (never_adjacent)
		return pl_fail(err, PL_EDATA,
			       "the operations do not follow one another anywhere in the graph");
	return pl_fail(err, PL_EDATA,
		       "\"%s\" cannot be fused with \"%s\": it waits for more than that, or does "
		       "not compute, or the host waited between their launches, or they are fused "
		       "already",
		       pl_edit_name(e, name[most]), pl_edit_name(e, name[most - 1]));
}

static int find_names(const struct pl_rewriter *r, const struct pl_rewrite *rw, uint32_t *name,
		      struct pl_err *err)
{
	for (uint32_t i = 0; i < rw->n_args; i++) {
		name[i] = pl_intern_find(&r->e->g->str, rw->arg[i], strlen(rw->arg[i]));
		if (name[i] == PL_NONE)
			return pl_fail(err, PL_EDATA,
				       "there is no operation \"%s\"; the operations do not follow "
				       "one another anywhere in the graph",
				       rw->arg[i]);
	}
	return 0;
}

static int apply_fuse(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	uint32_t *name = NULL, places = 0;
	int rc;

	PL_TRY(ask_model(r, err));
	PL_TRY(index_names(r, err));
	PL_TRY(pl_alloc(&name, rw->n_args, sizeof(*name), err));
	PL_TRY(find_names(r, rw, name, err));
	for (uint32_t k = r->name_first[name[0]]; k < r->name_first[name[0] + 1]; k++) {
		uint32_t first = r->name_node[k], last = first;

		if (rw_fused(r, first) || r->e->node[first].res == PL_NONE ||
		    !rw_computes(&r->e->node[first]) ||
		    follow(r, name, rw->n_args, &last) < rw->n_args)
			continue;
		fuse_here(r, first, rw->n_args, rw->x);
		places++;
	}
	rc = places ? 0 : nowhere(r, name, rw->n_args, err);
out:
	pl_free(name);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_fuse_ops = {
	.apply = apply_fuse,
	.explain = "{names} operations from \"{first}\" on become one wherever they follow one "
		   "another, so that there are fewer launches"
};

/* ---- what could be fused --------------------------------------------------------------------- */

struct finder {
	struct pl_rewriter *r;
	struct pl_rewrite_runs *out;
	uint8_t *may;	       /* [name]: 0 no; 1 yes; 2, 3 yes, of a forward, backward pass */
	uint8_t *inner;	       /* [node as recorded]: stands in a run, not as its first */
	struct pl_intern runs; /* names of each, by number */
};

/* Of one layer or neighbouring ones; and not of both passes, which nobody compiles as one. */
static bool layers_meet(const struct finder *f, const struct pl_enode *a, const struct pl_enode *b)
{
	if (f->may[a->name] + f->may[b->name] == 2 + 3)
		return false;
	return a->layer < 0 || b->layer < 0 ||
	       (a->layer - b->layer <= 1 && b->layer - a->layer <= 1);
}

static bool may_begin(const struct finder *f, uint32_t node)
{
	const struct pl_enode *n = &f->r->e->node[node];

	return rw_computes(n) && n->role == PL_RO_COMPUTE && n->res != PL_NONE &&
	       n->name < f->r->e->g->str.n && f->may[n->name] && !rw_fused(f->r, node);
}

static uint32_t goes_with(const struct finder *f, uint32_t node)
{
	uint32_t next = partner(f->r, node);

	return next != PL_NONE && next < f->r->n_recorded && may_begin(f, next) &&
			       layers_meet(f, &f->r->e->node[node], &f->r->e->node[next])
		       ? next
		       : PL_NONE;
}

/* The sequence from the node on becomes a run, if it is new. */
static int follow_run(struct finder *f, uint32_t node, struct pl_err *err)
{
	struct pl_rewrite_runs *o = f->out;
	size_t n = 0, known = f->runs.n;
	pl_id id;
	int rc;

	for (uint32_t at = node; at != PL_NONE; at = goes_with(f, at)) {
		PL_TRY(pl_grow(&o->name, &o->cap_names, o->n_names + n + 1, sizeof(*o->name), err));
		o->name[o->n_names + n++] = f->r->e->node[at].name;
	}
	rc = 0;
	if (n < 2)
		goto out;
	PL_TRY(pl_intern_add(&f->runs, (const char *)(o->name + o->n_names), n * sizeof(*o->name),
			     &id, err));
	if (id == known) {
		PL_TRY(pl_grow(&o->run, &o->cap_runs, o->n_runs + 1, sizeof(*o->run), err));
		o->run[o->n_runs++] = (struct pl_op_run){ (uint32_t)o->n_names, (uint32_t)n };
		o->n_names += n;
	}
out:
	return rc;
}

static int find_runs(struct finder *f, struct pl_err *err)
{
	struct pl_rewriter *r = f->r;
	int rc = 0;

	for (uint32_t i = 0; i < r->n_recorded; i++) {
		uint32_t next = may_begin(f, i) ? goes_with(f, i) : PL_NONE;

		if (next != PL_NONE)
			f->inner[next] = 1;
	}
	for (uint32_t i = 0; rc == 0 && i < r->n_recorded; i++)
		if (!f->inner[i] && may_begin(f, i))
			rc = follow_run(f, i, err);
	return rc;
}

int pl_rewrite_runs(struct pl_rewriter *r,
		    bool (*may)(void *arg, const struct pl_edit *e, uint32_t node), void *arg,
		    struct pl_rewrite_runs *out, struct pl_err *err)
{
	struct finder f = { .r = r, .out = out };
	size_t names = r->e->g->str.n;
	uint8_t *seen = NULL;
	int rc;

	memset(out, 0, sizeof(*out));
	PL_TRY(pl_alloc(&f.may, names + 1, 1, err));
	PL_TRY(pl_alloc(&f.inner, r->n_recorded, 1, err));
	PL_TRY(pl_alloc(&seen, names + 1, 1, err));
	for (uint32_t i = 0; i < r->n_recorded; i++) {
		const struct pl_enode *n = &r->e->node[i];
		bool layer = n->flags & PL_NF_LAYER;

		if (!rw_computes(n) || n->name >= names || seen[n->name])
			continue;
		seen[n->name] = 1;
		if (may(arg, r->e, i))
			f.may[n->name] = !layer ? 1 : n->phase == PL_PH_FORWARD ? 2 : 3;
	}
	rc = find_runs(&f, err);
out:
	pl_free(f.may);
	pl_free(f.inner);
	pl_intern_fini(&f.runs);
	pl_free(seen);
	if (rc < 0)
		pl_rewrite_runs_fini(out);
	return rc;
}

void pl_rewrite_runs_fini(struct pl_rewrite_runs *runs)
{
	pl_free(runs->run);
	pl_free(runs->name);
	memset(runs, 0, sizeof(*runs));
}
