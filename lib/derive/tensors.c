/*
 * Gradients of traces: the tensors that the data-parallel communication of a step carries.
 *
 * PyTorch's autograd runs one AccumulateGrad for each parameter, in the order in which gradients
 * become ready; with record_shapes its inputs give shape and type. DistributedDataParallel collects
 * gradients in buckets and issues the all-reduce of a bucket when its last gradient is ready (Li et
 * al., VLDB 2020, section 3.2). So a communication that is issued during the backward pass carries
 * gradients that were accumulated since the bucket before:
 *
 *	all of them, if their sizes add up to the payload;
 *	else the first of them, if their sizes add up to the payload; the others wait for the next
 *	bucket;
 *	else those whose sizes add up to nearly the payload, because programs align the tensors of a
 *	fused communication, so that it has gaps; sizes stay as recorded;
 *	else the same by half of each size, because communication may use half precision
 *	(estimated);
 *	else all of them, if the sum of sizes differs from the payload by at most a factor of 2; the
 *	sizes are scaled to the payload (estimated);
 *	else none, because the communication carries other data.
 *
 * Programs that reduce each gradient by itself do so once all of them are ready, in the order of
 * their parameters, which is nearly the reverse: then each communication carries the gradient of
 * its size. One of a few bytes that fits none is something else, such as a loss. If most bytes of
 * the reductions after the first gradient carry none, the few that do may do so by chance, and the
 * step has no communication of gradients.
 *
 * What is issued behind the optimizer, which has used the gradients by then, carries parameters or
 * other data: programs average parameters after some steps, or moving averages of them.
 *
 * A step can have several parts and backward passes (tensor_passes.c). A communication carries
 * gradients of one pass. A gradient has the same name in each pass: it is one tensor that is made
 * several times.
 *
 * Without shapes the payload is divided equally (estimated). If another operation than a
 * communication waits for the result before the last gradient is ready, the communication belongs
 * to the model (tensor parallelism), which needs the result at once.
 *
 * Traces without AccumulateGrad (kernels only, operation tables) get one tensor for each
 * communication that carries gradients. If a communication of the step has a name for gradients,
 * names decide. Otherwise groups decide: a group carries gradients if the step has two or more of
 * its reductions, if each was issued before a wait for the one before, and if there is a wait for
 * at least one result. Reductions of a few bytes (a loss, a norm) are ignored.
 *
 * All times are the times at which the host issued an operation, so that the lead of the host over
 * its device has no effect. O(nodes + edges), and O(n log n) in gradients.
 */
#include "derive/tensors.h"

#define SMALL_BYTES 256 /* a loss or a norm has fewer bytes, gradients have more */
#define BACK	    256 /* calls searched for the last launch before a gradient is ready */
#define NAME_MAX_   96
#define GRAD_MAX    ((int64_t)1 << 50) /* elements: greater numbers are damage, and bytes overflow */
#define NEAR	    1024	       /* gradients searched for the one of a communication */

/* The operators of PyTorch and of run(1). PyTorch gives one the name of its type as the compiler
 * writes it; MSVC says that it is a struct. */
static const char own[] = "paceline::gradient";
static const char *const accumulates[] = { "torch::autograd::AccumulateGrad",
					   "struct torch::autograd::AccumulateGrad", own };

struct finder {
	struct builder *b;
	struct pl_graph *g;
	bool *parallel; /* [group]: may be data-parallel */
};

/* Which groups may be data-parallel? Their ranks hold the same layers, so they are in the same
 * stage of the pipeline, if stages are known. A group of one rank reduces nothing. */
static void find_groups(struct finder *f)
{
	const struct pl_graph *g = f->g;
	int32_t *stage = NULL; /* by rank of the graph */
	int rc;

	PL_TRY(pl_alloc(&f->parallel, g->n_groups, sizeof(*f->parallel), f->b->err));
	PL_TRY(pl_alloc(&stage, (size_t)g->n_ranks, sizeof(*stage), f->b->err));
	memset(stage, 0xff, (size_t)g->n_ranks * sizeof(*stage));
	for (size_t i = 0; i < g->n_res; i++) {
		uint32_t at = pl_graph_rank_index(g, g->res[i].rank);

		if (at != PL_NONE && g->res[i].coord[PL_COORD_PP] >= 0)
			stage[at] = g->res[i].coord[PL_COORD_PP];
	}
	for (size_t i = 0; i < g->n_groups; i++) {
		int32_t first = -1;

		f->parallel[i] = g->group[i].n > 1;
		for (uint32_t k = 0; k < g->group[i].n; k++) {
			int32_t rank = (int32_t)g->group_rank[g->group[i].rank + k];
			uint32_t at = pl_graph_rank_index(g, rank);
			int32_t pp = at == PL_NONE ? -1 : stage[at];

			f->parallel[i] &= first < 0 || pp < 0 || pp == first;
			first = pp >= 0 ? pp : first;
		}
	}
out:
	pl_free(stage);
}

/* ---- gradients ------------------------------------------------------------------------------- */

/* Type, bytes and dimensions ("100x768") of the first tensor, as far as they were recorded. */
static void read_size(struct builder *b, const struct op *op, struct grad *x)
{
	const struct pl_events *e = b->t->seg[op->seg];
	const char *dims = pl_derive_text(e, e->dims, op->ev), *s = dims;
	const char *type = pl_derive_text(e, e->types, op->ev);
	size_t n = type && !strncmp(type, "[\"", 2) ? strcspn(type + 2, "\"") : 0, at = 0;
	struct pl_dims t;

	x->bytes = -1;
	if (!n) /* not recorded; an empty list of sizes has no meaning either */
		return;
	x->type = pl_derive_intern(b->err, &b->g->str, type + 2, n);
	if (!dims || strncmp(dims, "[[", 2) != 0 || !pl_dims_next(&dims, &t) || t.elements < 0 ||
	    t.elements > GRAD_MAX)
		return;
	if (pl_trace_dtype(type + 2, n, NULL))
		x->bytes = t.elements * pl_trace_dtype(type + 2, n, NULL);
	if (!t.n)
		at = (size_t)snprintf(x->dims, sizeof(x->dims), "scalar");
	for (s += 2; *s && *s != ']' && at + 1 < sizeof(x->dims); s++)
		if (strchr("0123456789,", *s))
			x->dims[at++] = *s == ',' ? 'x' : *s;
	x->dims[*s == ']' ? at : 0] = '\0'; /* longer than the room: no text */
}

/* run(1) records which parameter the gradient is of. */
static void read_param(struct builder *b, const struct op *op, struct grad *x)
{
	const struct pl_events *e = b->t->seg[op->seg];
	const char *param = pl_derive_text(e, e->values, op->ev);
	char name[NAME_MAX_ * 4];

	if (!param || strcmp(pl_intern_get(&e->seg.str, e->name[op->ev]), own) != 0)
		return;
	snprintf(name, sizeof(name), "grad %s", param);
	x->name = pl_derive_intern_text(b->err, &b->g->str, name);
}

/* The last device operation that this thread launched before `t`, PL_NONE if none is near. */
static uint32_t last_launched(const struct builder *b, const struct rank *rank, uint32_t res,
			      pl_ns t)
{
	size_t lo = 0;

	PL_LOWER_BOUND(lo, rank->n_calls, rank->call[lo].start <= t);
	for (size_t i = lo; i-- > 0 && lo - i <= BACK;) {
		const struct call *c = &rank->call[i];

		for (uint32_t k = c->n_ops; c->res == res && k-- > 0;) {
			const struct op *op = rank->by_call[c->first_op + k];

			if (op->last != PL_NONE && !pl_grads_is_comm(&b->node[op->last]))
				return op->last;
		}
	}
	return PL_NONE;
}

static void add_grad(struct builder *b, const struct op *op, struct found *found)
{
	struct grad x = { .start = op->start,
			  .end = pl_derive_end(b, op->last),
			  .op = op->last,
			  .node = op->last,
			  .type = PL_NONE,
			  .name = PL_NONE,
			  .comm = PL_NONE };

	read_size(b, op, &x);
	read_param(b, op, &x);
	PL_DERIVE_ADD(b->err, found->grad, found->n_grads, found->cap_grads, x);
}

/* ---- communication --------------------------------------------------------------------------- */

/* Reductions over ranks, whose result every rank (or its part) needs. */
static bool reduces(const struct builder *b, const struct op *op)
{
	const struct pl_events *e = b->t->seg[op->seg];
	const char *coll = pl_derive_text(e, e->coll, op->ev);
	pl_id name = e->name[op->ev];

	if (!coll)
		coll = pl_trace_coll_from_name(pl_intern_get(&e->seg.str, name),
					       e->seg.str.len[name]);
	return coll && (!strcmp(coll, "allreduce") || !strcmp(coll, "reduce_scatter"));
}

static void init_grads(struct builder *b)
{
	int rc;

	PL_TRY(pl_alloc(&b->grads.rank, b->n_ranks, sizeof(*b->grads.rank), b->err));
	PL_TRY(pl_alloc(&b->grads.accumulate, b->t->n_segs, sizeof(*b->grads.accumulate), b->err));
	for (uint32_t i = 0; i < b->t->n_segs; i++) {
		const struct pl_intern *str = &b->t->seg[i]->seg.str;
		pl_id *name = &b->grads.accumulate[i];

		*name = PL_NONE;
		for (size_t k = 0; k < PL_LEN(accumulates) && *name == PL_NONE; k++)
			*name = pl_intern_find(str, accumulates[k], strlen(accumulates[k]));
		b->accumulates |= *name != PL_NONE;
	}
out:;
}

/* An operation of the optimizer, which joins the one before it on its thread. */
static void add_update(struct builder *b, const struct op *op, bool joins, struct found *found)
{
	struct update x = { op->start, op->end };

	if (joins)
		found->update[found->n_updates - 1].end = op->end;
	else
		PL_DERIVE_ADD(b->err, found->update, found->n_updates, found->cap_updates, x);
}

static bool updates_params(const struct builder *b, const struct op *op)
{
	return op->phase == PL_PH_OPTIMIZER &&
	       !pl_graph_sets_zero(pl_intern_get(&b->g->str, b->node[op->node].name));
}

void pl_derive_collect_tensors(struct builder *b, struct rank *rank)
{
	struct found *found;

	if (!b->grads.rank)
		init_grads(b);
	if (b->err->code)
		return;
	found = &b->grads.rank[rank - b->rank];
	for (size_t k = 0; k < rank->n_res; k++) {
		const struct resource *resource = &b->resource[rank->res[k]];
		bool updates = false;

		for (uint32_t i = 0; (resource->comm || b->accumulates) && i < resource->n; i++) {
			const struct op *op = &resource->op[i];

			if (op->node == PL_NONE)
				continue;
			if (updates_params(b, op)) {
				add_update(b, op, updates, found);
				updates = !b->err->code;
			} else {
				updates = false;
			}
			if (b->node[op->node].role == PL_RO_ARRIVE) {
				if (op->kind == PL_K_COLLECTIVE && reduces(b, op))
					PL_DERIVE_ADD(b->err, found->comm, found->n_comms,
						      found->cap_comms,
						      (struct comm){ .await = INT64_MAX,
								     .free_until = INT64_MIN,
								     .arrive = op->node });
			} else if (b->t->seg[op->seg]->name[op->ev] ==
				   b->grads.accumulate[op->seg]) {
				add_grad(b, op, found);
			}
		}
	}
}

void pl_derive_find_producers(struct builder *b, const struct rank *rank)
{
	struct found *found = &b->grads.rank[rank - b->rank];

	for (size_t i = 0; i < found->n_grads && rank->has_device; i++) {
		struct grad *x = &found->grad[i];

		x->node = last_launched(b, rank, b->node[x->op].res, x->end);
	}
}

PL_COMPARATOR(by_ready, struct grad, step, start, node);
PL_COMPARATOR(by_issue, struct comm, step, issue, arrive);

/* Was it issued when the optimizer had used the gradients before it, and before the next ones? An
 * optimizer that goes on behind it may synchronise them itself. */
static bool follows_update(const struct found *x, const struct comm *c)
{
	size_t g = 0, u = 0;

	PL_LOWER_BOUND(g, x->n_grads,
		       x->grad[g].step < c->step ||
			       (x->grad[g].step == c->step && x->grad[g].start <= c->issue));
	if (!g || x->grad[g - 1].step != c->step)
		return false;
	PL_LOWER_BOUND(u, x->n_updates, x->update[u].start <= c->issue);
	return u && x->update[u - 1].start >= x->grad[g - 1].start &&
	       x->update[u - 1].end <= c->issue &&
	       (u == x->n_updates || (g < x->n_grads && x->grad[g].start <= x->update[u].start));
}

/* After nodes have steps: sorts the entries, and drops those of steps that are not used. What
 * follows an update is decided while the gradients of all steps are there, as the updates are. */
static void settle(const struct finder *f, struct found *x)
{
	const struct builder *b = f->b;
	size_t n = 0;

	for (size_t i = 0; i < x->n_grads; i++) {
		struct grad *g = &x->grad[i];

		g->step = b->node_step[g->op];
		if (g->node != PL_NONE && b->node_step[g->node] != g->step)
			g->node = PL_NONE;
	}
	pl_sort(x->grad, x->n_grads, sizeof(*x->grad), by_ready);
	for (size_t i = 0; i < x->n_comms; i++) {
		struct comm *c = &x->comm[i];

		c->step = b->node_step[c->arrive];
		if (pl_derive_shows_step(b, c->step) &&
		    (c->group == PL_NONE || f->parallel[c->group]) && !follows_update(x, c))
			x->comm[n++] = *c;
	}
	x->n_comms = n;
	pl_sort(x->comm, x->n_comms, sizeof(*x->comm), by_issue);
	n = 0;
	for (size_t i = 0; i < x->n_grads; i++)
		if (pl_derive_shows_step(b, x->grad[i].step))
			x->grad[n++] = x->grad[i];
	x->n_grads = n;
}

/* ---- which communication carries which gradients --------------------------------------------- */

#define GAP_BYTES 64 /* at most, behind a gradient in a fused communication */

/* The first gradients of v[0] .. v[n - 1], of each a part `per`, that add up to `bytes` with `gap`
 * bytes or fewer behind each, which are less than the gradients: how many; 0 if none do. */
static size_t adding_up(const struct grad *v, size_t n, int64_t bytes, int64_t gap, int64_t per)
{
	int64_t sum = 0, gaps = 0;
	size_t found = 0;

	for (size_t i = 0; i < n && v[i].bytes >= 0; i++) {
		sum += v[i].bytes / per;
		gaps += gap;
		if (sum > bytes)
			return found;
		if (bytes - sum <= pl_min_i64(gaps, sum))
			found = i + 1;
	}
	return found;
}

/* Share `bytes` out by size, or equally where sizes are unknown; the rounded shares add up. */
static void share_out(struct grad *v, size_t n, int64_t bytes, int64_t sum)
{
	double total = sum > 0 ? (double)sum : (double)n, part = 0;
	int64_t shared = 0;

	for (size_t i = 0; i < n; i++) {
		int64_t upto;

		part += sum > 0 ? (double)v[i].bytes : 1.0;
		upto = i + 1 == n ? bytes : (int64_t)(part / total * (double)bytes);
		v[i].bytes = pl_max_i64(0, upto - shared);
		v[i].estimated = true;
		shared += v[i].bytes;
	}
}

/* How many of the gradients v[0] .. v[n - 1] does a communication of `bytes` carry by their sizes?
 */
static size_t carried_by_size(const struct grad *v, size_t n, int64_t bytes)
{
	size_t k = adding_up(v, n, bytes, 0, 1);

	return k ? k : adding_up(v, n, bytes, GAP_BYTES, 1);
}

/* The same by half of each size, which the sizes of those it carries become. */
static size_t carried_by_halves(struct grad *v, size_t n, int64_t bytes)
{
	size_t k = adding_up(v, n, bytes, 0, 2);

	for (size_t i = 0; i < k; i++) {
		v[i].bytes /= 2;
		v[i].estimated = true; /* in memory it is larger */
	}
	return k;
}

/* How many of the gradients v[0] .. v[n - 1] does a communication of `bytes` carry? */
static size_t carried(struct grad *v, size_t n, int64_t bytes)
{
	int64_t sum = 0;
	size_t k;

	if (bytes < 0) /* not known: all gradients */
		return n;
	k = carried_by_size(v, n, bytes);
	if (!k)
		k = carried_by_halves(v, n, bytes);
	if (k)
		return k;
	for (size_t i = 0; i < n && sum >= 0; i++)
		sum = v[i].bytes < 0 ? -1 : sum + v[i].bytes;
	if (sum >= 0 && (bytes > 2 * sum || sum > 2 * bytes))
		return 0;
	if (sum < 0 && bytes <= SMALL_BYTES)
		return 0;
	share_out(v, n, bytes, sum);
	return n;
}

/* Does a communication of the same group and size carry gradients of the last pass, which end
 * before g1? */
static bool is_repeated(const struct found *found, const struct comm *x, size_t last, size_t g1)
{
	for (size_t i = last; i < g1; i++) {
		const struct comm *c =
			found->grad[i].comm == PL_NONE ? NULL : &found->comm[found->grad[i].comm];

		if (c && c->group == x->group && c->bytes == x->bytes)
			return true;
	}
	return false;
}

/* The gradient of that size that no communication carries, among grad[first] .. grad[end - 1]: from
 * `at` backwards, and around. `end`: there is none near. */
static size_t find_single(const struct found *found, size_t first, size_t end, size_t at,
			  int64_t bytes)
{
	size_t near = bytes < 0 ? 0 : pl_min_size(end - first, NEAR);

	for (size_t k = 0; k < near; k++) {
		at = (at > first ? at : end) - 1;
		if (found->grad[at].comm == PL_NONE && found->grad[at].bytes == bytes)
			return at;
	}
	return end;
}

static bool small(const struct comm *x)
{
	return x->bytes >= 0 && x->bytes <= SMALL_BYTES;
}

/* Does each of the communications comm[c0] .. comm[c1 - 1] carry the next of the gradients
 * grad[first] .. grad[end - 1]? A small one need not, if no gradient has its size. */
static bool carry_in_order(const struct found *found, size_t first, size_t end, size_t c0,
			   size_t c1)
{
	size_t at = first;

	for (size_t c = c0; c < c1; c++) {
		const struct comm *x = &found->comm[c];
		size_t k = carried_by_size(found->grad + at, end - at, x->bytes);

		if (!k && (!small(x) || find_single(found, first, end, end, x->bytes) < end))
			return false;
		at += k;
	}
	return true;
}

/* The communications comm[c0] .. comm[c1 - 1] were issued when the gradients grad[first] ..
 * grad[end - 1] of a pass were ready. Sets the gradient of its size for each communication; a small
 * one need not have one. False: one has none, or their order and sums explain the communications.
 */
static bool assign_single(struct found *found, size_t first, size_t end, size_t c0, size_t c1)
{
	size_t at = end, hit, n = 0;
	bool all = true;

	if (c1 - c0 < 2 || carry_in_order(found, first, end, c0, c1))
		return false;
	for (size_t c = c0; c < c1 && all; c++) {
		hit = find_single(found, first, end, at, found->comm[c].bytes);
		if (hit == end) {
			all = small(&found->comm[c]);
			continue;
		}
		found->grad[hit].comm = (uint32_t)c;
		at = hit;
		n++;
	}
	all &= n >= 2;
	for (size_t i = first; !all && i < end; i++)
		found->grad[i].comm = PL_NONE;
	return all;
}

/* The first communication from c0 on that was issued from `t` on, at most c1. */
static size_t issued_from(const struct found *found, size_t c0, size_t c1, pl_ns t)
{
	size_t lo = 0;

	PL_LOWER_BOUND(lo, c1 - c0, found->comm[c0 + lo].issue < t);
	return c0 + lo;
}

/* The gradients grad[first] .. grad[end - 1] of a backward pass; the step's end before g1. A
 * communication carries gradients of the pass in which it was issued, and earlier passes have those
 * of the last one, or none (no_sync). Returns the bytes of communications that carry gradients less
 * the bytes of those that could and do not. */
static double assign_pass(struct found *found, size_t first, size_t end, size_t g1, size_t last,
			  size_t c0, size_t c1)
{
	size_t next = first, ready = first;
	double balance = 0;

	if (end == g1 && assign_single(found, first, end,
				       issued_from(found, c0, c1, found->grad[end - 1].start), c1))
		return 0;
	for (size_t c = c0; c < c1; c++) {
		const struct comm *x = &found->comm[c];
		size_t n;

		if (end < g1 && x->issue >= found->grad[end].start)
			break;
		if (x->await < found->grad[end - 1].start ||
		    (end < g1 && !is_repeated(found, x, last, g1)))
			continue;
		while (ready < end && found->grad[ready].start <= x->issue)
			ready++;
		if (ready == next)
			continue;
		n = carried(found->grad + next, ready - next, x->bytes);
		balance += (n ? 1 : -1) * (double)pl_max_i64(x->bytes, 0);
		for (; n; n--)
			found->grad[next++].comm = (uint32_t)c;
	}
	return balance;
}

/* The gradients grad[g0] .. grad[g1 - 1] of a part, from the last pass to the first. */
static void assign_part(struct found *found, size_t g0, size_t g1, size_t c0, size_t c1)
{
	size_t last = g1;
	double balance = 0;

	for (size_t end = g1, first; end > g0; end = first) {
		for (first = end - 1; first > g0 && pl_grads_pass_together(&found->grad[first - 1],
									   &found->grad[end - 1]);)
			first--;
		last = end == g1 ? first : last;
		balance += assign_pass(found, first, end, g1, last, c0, c1);
	}
	for (size_t i = g0; balance < 0 && i < g1; i++)
		found->grad[i].comm = PL_NONE;
}

/* The gradients grad[g0] .. grad[g1 - 1] of a step. A communication carries gradients of the part
 * in which it was issued. */
static void assign(struct found *found, size_t g0, size_t g1, size_t c0, size_t c1)
{
	for (size_t end; g0 < g1; g0 = end) {
		size_t next = c1;

		for (end = g0 + 1; end < g1 && found->grad[end].part == found->grad[g0].part;)
			end++;
		if (end < g1)
			next = issued_from(found, c0, c1, found->grad[end].start);
		assign_part(found, g0, end, c0, next);
		c0 = next;
	}
}

/* ---- writing --------------------------------------------------------------------------------- */

/* `name`: NULL if the tensor has its name already. */
static void put_tensor(struct finder *f, const char *name, struct pl_tensor *t, uint32_t consumer)
{
	const uint32_t *local = f->b->local;

	t->role = PL_TR_GRAD;
	if (name)
		t->name = pl_derive_intern_text(f->b->err, &f->g->str, name);
	pl_derive_put_tensor(f->g, t, consumer == PL_NONE ? NULL : &local[consumer],
			     consumer != PL_NONE, f->b->err);
}

static void put_grads(struct finder *f, const struct found *found, size_t g0, size_t g1)
{
	size_t number = 0; /* of the first gradient of a part */

	for (size_t i = g0, first = g0; i < g1; i++) {
		const struct grad *x = &found->grad[i];
		struct pl_tensor t = { .name = x->name,
				       .type = x->type,
				       .flags = (uint8_t)((x->estimated ? PL_TF_ESTIMATED : 0) |
							  (x->elsewhere ? PL_TF_ELSEWHERE : 0)),
				       .bytes = x->bytes,
				       .shape = f->b->step_shape[x->step],
				       .producer = x->node == PL_NONE ? PL_NONE
								      : f->b->local[x->node] };
		char name[NAME_MAX_];

		if (x->part != found->grad[first].part)
			number += i - first;
		if (!pl_grads_pass_together(x, &found->grad[first]))
			first = i;
		snprintf(name, sizeof(name), "grad %zu%s%s", number + i - first,
			 x->dims[0] ? " " : "", x->dims);
		put_tensor(f, x->name == PL_NONE ? name : NULL, &t,
			   x->comm == PL_NONE ? PL_NONE : found->comm[x->comm].arrive);
	}
}

/* Do the reductions c[0] .. c[n - 1] of this group in a step overlap with later operations? */
static bool overlaps(const struct comm *c, size_t n, uint32_t group)
{
	const struct comm *last = NULL;
	bool waited = false;
	size_t count = 0;

	for (size_t i = 0; i < n; i++) {
		if (c[i].group != group || small(&c[i]))
			continue;
		if (last && last->await <= c[i].issue)
			return false;
		waited |= c[i].await != INT64_MAX;
		last = &c[i];
		count++;
	}
	return count >= 2 && waited;
}

static void put_buckets(struct finder *f, const struct comm *c, size_t n, uint32_t group, bool more)
{
	const struct builder *b = f->b;
	size_t number = 0;

	for (size_t i = 0; i < n; i++) {
		struct pl_tensor t = { .type = PL_NONE,
				       .bytes = c[i].bytes,
				       .shape = b->step_shape[c[i].step],
				       .producer = PL_NONE };
		char name[NAME_MAX_];

		if (c[i].group != group || (!c[i].named && small(&c[i])))
			continue;
		snprintf(name, sizeof(name), "bucket %zu", number++);
		if (more && group != PL_NONE)
			snprintf(name + strlen(name), sizeof(name) - strlen(name), " (%.60s)",
				 pl_intern_get(&b->g->str, b->g->group[group].name));
		put_tensor(f, name, &t, c[i].arrive);
	}
}

/* Reductions c[0] .. c[n - 1] of a step without recorded gradients. The tensors of the first group
 * of a rank have plain names. The names of tensors of other groups contain the group. */
static void bucket_step(struct finder *f, struct comm *c, size_t n)
{
	bool more = false, named = false;
	size_t left = 0;

	for (size_t i = 0; i < n; i++)
		named |= c[i].named;
	for (size_t i = 0; named && i < n; i++) /* then names decide */
		if (c[i].named)
			c[left++] = c[i];
	n = named ? left : n;
	for (size_t i = 0; i < n; i++) {
		bool seen = false;

		for (size_t k = 0; k < i && !seen; k++)
			seen = c[k].group == c[i].group;
		if (seen || (!named && !overlaps(c, n, c[i].group)))
			continue;
		put_buckets(f, c, n, c[i].group, more);
		more = true;
	}
}

static void one_rank(struct finder *f, struct found *found)
{
	size_t g = 0, c = 0;

	settle(f, found);
	while (g < found->n_grads || c < found->n_comms) {
		int32_t step = INT32_MAX;
		size_t g1 = g, c1 = c;

		if (g < found->n_grads)
			step = found->grad[g].step;
		if (c < found->n_comms && found->comm[c].step < step)
			step = found->comm[c].step;
		while (g1 < found->n_grads && found->grad[g1].step == step)
			g1++;
		while (c1 < found->n_comms && found->comm[c1].step == step)
			c1++;
		if (g1 > g) {
			assign(found, g, g1, c, c1);
			pl_derive_memory_grads(f->b, (size_t)(found - f->b->grads.rank),
					       found->grad + g, g1 - g);
			put_grads(f, found, g, g1);
		} else {
			bucket_step(f, found->comm + c, c1 - c);
		}
		g = g1;
		c = c1;
	}
}

void pl_derive_put_tensors(struct builder *b)
{
	struct finder f = { .b = b, .g = b->g };

	find_groups(&f);
	for (size_t r = 0; r < b->n_ranks && !b->err->code; r++)
		one_rank(&f, &b->grads.rank[r]);
	pl_free(f.parallel);
}

void pl_derive_drop_tensors(struct builder *b)
{
	for (size_t r = 0; b->grads.rank && r < b->n_ranks; r++) {
		pl_free(b->grads.rank[r].grad);
		pl_free(b->grads.rank[r].comm);
		pl_free(b->grads.rank[r].update);
	}
	pl_free(b->grads.rank);
	pl_free(b->grads.accumulate);
	memset(&b->grads, 0, sizeof(b->grads));
}
