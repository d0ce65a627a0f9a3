/*
 * Gradients of traces: when their communication was issued, and when its result was first waited
 * for.
 *
 * A pause of a thread may have another cause than a wait, but look like a wait for a communication
 * that ended during the pause. If a communication carries exactly the gradients that were just
 * accumulated, no operation waits for it before the last gradient of the backward pass. Therefore
 * waits of threads before the last gradient that were inferred from single pauses (service.c,
 * handover.c) are removed. Waits of streams and in calls stay: they were inferred from calls, and
 * sharded parameters do wait there for the reduction of the layer before. Without sizes other steps
 * and ranks say what carries gradients.
 *
 * All times are those of the host, as in tensors.c. O(nodes + edges), and O(n log n) in gradients.
 */
#include "derive/tensors.h"

struct transfer {
	uint32_t node;
	struct comm *comm;
};
struct waits {
	struct builder *b;
	uint32_t *issuer;	   /* [node]: the node that launched it, PL_NONE */
	struct transfer *transfer; /* of the communications, by node */
	size_t n_transfers;
};

PL_COMPARATOR(by_ready, struct grad, step, start, node);
PL_COMPARATOR(by_issue, struct comm, step, issue, arrive);

/* The time at which the host issued the operation of the node, or executed it. */
static pl_ns host_time(const struct waits *f, uint32_t node)
{
	uint32_t by = f->issuer[node];

	return f->b->node[by == PL_NONE ? node : by].start;
}

/* Completes communication with the facts that only the whole graph of a rank shows. */
static void complete(const struct waits *f, const struct rank *rank, struct found *found)
{
	const struct builder *b = f->b;

	for (size_t i = 0; i < found->n_comms; i++) {
		struct comm *x = &found->comm[i];
		const struct node *n = &b->node[x->arrive];

		x->issue = host_time(f, x->arrive);
		x->bytes = b->attr[n->attr].bytes;
		x->group = n->group;
		x->named = rank->table && strstr(pl_intern_get(&b->g->str, n->name), "grad");
	}
}

/* Do the last of these gradients add up to `bytes`? */
static bool ends_with(const struct grad *v, size_t n, int64_t bytes)
{
	int64_t sum = 0;

	while (n-- > 0 && sum < bytes) {
		if (v[n].bytes < 0)
			return false;
		sum += v[n].bytes;
	}
	return bytes > 0 && sum == bytes;
}

/* Does a communication of `bytes`, issued at `at`, carry the latest gradients so far? */
static bool carries(const struct found *x, pl_ns at, int64_t bytes)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, x->n_grads, x->grad[i].start <= at);
	return ends_with(x->grad, i, bytes);
}

/* Behind the last gradient of a backward pass, from g on, which is behind some gradient of the
 * pass. Where `end` was found for the same pass, it is the result: all gradients are looked at
 * once. */
static size_t end_of_pass(const struct waits *f, const struct rank *rank, const struct found *x,
			  size_t g, size_t end, int32_t step)
{
	end = end > g ? end : g;
	while (end < x->n_grads && pl_grads_pass_together(&x->grad[end], &x->grad[g - 1]) &&
	       pl_derive_step_at(f->b, rank, x->grad[end].start, NULL) == step)
		end++;
	return end;
}

/* The time at which the last gradients of the pass are issued, of those from communication `first`
 * on; `at` if none carries exactly them. `end`: behind the last gradient. */
static pl_ns last_issue(const struct waits *f, const struct rank *rank, const struct found *x,
			size_t first, int32_t step, size_t end)
{
	pl_ns at = x->grad[end - 1].start;

	for (size_t k = first; k < x->n_comms; k++) {
		const struct comm *c = &x->comm[k];

		if (pl_derive_step_at(f->b, rank, c->issue, NULL) != step ||
		    (end < x->n_grads && c->issue >= x->grad[end].start))
			break;
		if (c->issue >= at && carries(x, c->issue, c->bytes))
			at = c->issue;
	}
	return at;
}

/* The time before which nothing waits for the communication of the rank's gradients. */
static void find_free(const struct waits *f, const struct rank *rank, struct found *x)
{
	size_t ready = 0, end = 0, of = 0;
	pl_ns until = 0; /* of the pass that ends before gradient `of` */
	int32_t step;

	pl_sort(x->grad, x->n_grads, sizeof(*x->grad), by_ready);
	pl_derive_find_passes(f->b, rank, x);
	pl_sort(x->comm, x->n_comms, sizeof(*x->comm), by_issue);
	for (size_t i = 0; i < x->n_comms; i++) {
		struct comm *c = &x->comm[i];

		step = pl_derive_step_at(f->b, rank, c->issue, NULL);
		while (ready < x->n_grads && x->grad[ready].start <= c->issue)
			ready++;
		if (!ends_with(x->grad, ready, c->bytes))
			continue;
		end = end_of_pass(f, rank, x, ready, end, step);
		if (end == ready)
			continue;
		/* nothing waits before the last of them is issued */
		if (end != of)
			until = last_issue(f, rank, x, i + 1, step, end);
		of = end;
		c->free_until = until;
	}
}

/* ---- waits for communication -------------------------------------------------------------------
 */

static void find_issuers(struct waits *f)
{
	const struct builder *b = f->b;

	memset(f->issuer, 0xff, b->n_nodes * sizeof(*f->issuer));
	for (size_t i = 0; i < b->n_edges; i++) {
		unsigned type = PL_E_TYPE(b->edge[i].type);

		if (type == PL_E_LAUNCH || type == PL_E_EARLY)
			f->issuer[b->edge[i].dst] = b->edge[i].src;
	}
}

PL_COMPARATOR(by_node, struct transfer, node);

static void list_transfers(struct waits *f)
{
	const struct builder *b = f->b;
	size_t cap = 0;

	for (size_t r = 0; r < b->n_ranks; r++)
		for (size_t c = 0; c < b->grads.rank[r].n_comms; c++) {
			struct comm *x = &b->grads.rank[r].comm[c];

			PL_DERIVE_ADD(b->err, f->transfer, f->n_transfers, cap,
				      (struct transfer){ x->arrive + 1, x });
		}
	pl_sort(f->transfer, f->n_transfers, sizeof(*f->transfer), by_node);
}

static struct comm *carried_by(const struct waits *f, uint32_t node)
{
	const struct transfer *v = f->transfer;
	size_t i = 0;

	if (f->b->node[node].role != PL_RO_TRANSFER)
		return NULL;
	PL_LOWER_BOUND(i, f->n_transfers, v[i].node < node);
	return i < f->n_transfers && v[i].node == node ? v[i].comm : NULL;
}

/* The first wait for the result of each communication. */
static void find_waits(const struct waits *f)
{
	const struct builder *b = f->b;
	struct edge e;

	for (size_t i = 0; i < f->n_transfers; i++)
		f->transfer[i].comm->await = INT64_MAX;
	for (size_t at = 0; f->n_transfers && pl_derive_next_edge(b, &at, &e);) {
		struct comm *x = carried_by(f, e.src);

		if (x && !pl_grads_is_comm(&b->node[e.dst]))
			x->await = pl_min_i64(x->await, host_time(f, e.dst));
	}
}

/* A communication of unknown size that was issued between the gradients of a step. */
struct between {
	struct comm *comm;
	uint32_t number; /* of the communication in the step */
	uint32_t group;
	pl_id name;
	pl_ns last; /* the last gradient of its pass */
};

PL_COMPARATOR(by_place, struct between, number, group, name);

static void list_between(const struct waits *f, size_t r, struct between **v, size_t *n,
			 size_t *cap)
{
	const struct rank *rank = &f->b->rank[r];
	struct found *x = &f->b->grads.rank[r];
	size_t ready = 0, end = 0;
	uint32_t number = 0;
	int32_t before = INT32_MIN;

	for (size_t i = 0; i < x->n_comms; i++) {
		struct comm *c = &x->comm[i];
		int32_t step = pl_derive_step_at(f->b, rank, c->issue, NULL);

		number = step == before ? number + 1 : 0;
		before = step;
		while (ready < x->n_grads && x->grad[ready].start <= c->issue)
			ready++;
		if (c->bytes >= 0 || !ready ||
		    pl_derive_step_at(f->b, rank, x->grad[ready - 1].start, NULL) != step)
			continue;
		end = end_of_pass(f, rank, x, ready, end, step);
		if (end > ready)
			PL_DERIVE_ADD(f->b->err, *v, *n, *cap,
				      (struct between){ c, number, c->group,
							f->b->node[c->arrive].name,
							x->grad[end - 1].start });
	}
}

/* The same where the sizes are unknown: steps and ranks are compared. A wait before the last
 * gradient that less than half of the communications with this number in the step have was inferred
 * from a pause with another cause. Without steps nothing can be compared. */
static void find_free_by_others(const struct waits *f)
{
	struct between *v = NULL;
	size_t n = 0, cap = 0;

	for (size_t r = 0; r < f->b->n_ranks && !f->b->g->stepless; r++)
		list_between(f, r, &v, &n, &cap);
	if (n)
		find_waits(f);
	pl_sort(v, n, sizeof(*v), by_place);
	for (size_t i = 0, end; i < n; i = end) {
		size_t early = 0;

		for (end = i; end < n && !by_place(&v[end], &v[i]); end++)
			early += v[end].comm->await < v[end].last;
		for (size_t k = i; k < end && 2 * early < end - i; k++)
			v[k].comm->free_until = v[k].last;
	}
	pl_free(v);
}

/* Does the node end a single pause of a thread? */
static bool ends_single_pause(const struct builder *b, uint32_t node)
{
	const struct node *n = &b->node[node];
	const struct resource *resource = n->res == PL_NONE ? NULL : &b->resource[n->res];
	const struct rank *rank = resource ? &b->rank[resource->rank_index] : NULL;

	return resource && resource->thread && !resource->service && n->kind != PL_K_RUNTIME &&
	       (node < rank->waits0 || node >= rank->waits1);
}

/* Is it a wait for gradients at a time when nothing waits for them, inferred from one pause? */
static bool false_wait(const struct waits *f, const struct edge *e)
{
	const struct comm *c =
		e->type == (PL_E_WAIT | PL_E_INFERRED) ? carried_by(f, e->src) : NULL;

	return c && f->b->node[e->dst].start < c->free_until && ends_single_pause(f->b, e->dst);
}

/* A wait for a thread that also computes was counted as one of threads for one another. */
static void count_dropped(struct builder *b, const struct edge *e)
{
	const struct resource *resource = &b->resource[b->node[e->src].res];

	if (resource->thread && !resource->service)
		b->g->inferred_threads--;
	else
		b->g->inferred_waits--;
}

/* Was the node cut from the one before it, where the wait was to end? */
static bool is_piece(const struct node *before, const struct node *n)
{
	return before->res == n->res && before->role == n->role && before->name == n->name;
}

/* Removes false waits; the pause before a false wait is extended to the end of the wait. */
static void drop_false_waits(struct waits *f)
{
	struct builder *b = f->b;
	uint8_t *woken;
	struct edge e;
	size_t kept = 0;

	if (pl_alloc(&woken, b->n_nodes, 1, b->err) < 0)
		return;
	for (size_t i = 0; i < b->n_edges; i++) {
		e = b->edge[i];
		if (false_wait(f, &e)) {
			woken[e.dst] = 1;
			count_dropped(b, &e);
		} else {
			b->edge[kept++] = e;
		}
	}
	b->n_edges = kept;
	for (size_t at = 0; pl_derive_next_edge(b, &at, &e);) {
		struct node *n = &b->node[e.src];

		if (woken[e.dst] && PL_E_TYPE(e.type) == PL_E_SEQ &&
		    (n->role == PL_RO_GAP || is_piece(n, &b->node[e.dst])))
			n->dur = b->node[e.dst].start - n->start;
	}
	pl_free(woken);
}

void pl_derive_find_tensors(struct builder *b)
{
	struct waits f = { .b = b };
	int rc;

	PL_TRY(pl_derive_room(&f.issuer, b->n_nodes, sizeof(*f.issuer), b->err));
	find_issuers(&f);
	for (size_t r = 0; r < b->n_ranks; r++)
		complete(&f, &b->rank[r], &b->grads.rank[r]);
	for (size_t r = 0; r < b->n_ranks && b->accumulates; r++)
		find_free(&f, &b->rank[r], &b->grads.rank[r]);
	list_transfers(&f);
	if (b->accumulates) {
		find_free_by_others(&f);
		drop_false_waits(&f);
	}
	find_waits(&f);
out:
	pl_free(f.issuer);
	pl_free(f.transfer);
}
