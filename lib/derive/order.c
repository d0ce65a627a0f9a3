/*
 * The step of every node, and the order of the nodes of each step.
 *
 * 1. Every node gets a step. The step of a host node is the window in which it starts, the step of
 * a device node is the step of its launch, and the step of a communication is the latest step of
 * its members. A node must not have an earlier step than a predecessor. Only edges that lead to an
 * earlier step violate this rule. From the latest step down, the targets of these edges and all
 * nodes after them get the step of the source. So every node changes once, and no topological order
 * is needed.
 * 2. The nodes of each step get a topological order (Kahn's algorithm, depth first). If nodes are
 * left, they lie on a cycle or after one, and the cycle is reported. A cycle cannot span steps,
 * because no node has an earlier step than a predecessor.
 *
 * The order of the nodes of a step depends on its structure, not on its times. O(V + E).
 */
#include "derive/cut.h"

/* ---- lists of neighbours --------------------------------------------------------------------- */

void pl_cut_drop(struct neighbours *l)
{
	pl_free(l->has);
	pl_free(l->before);
	pl_free(l->off);
	pl_free(l->node);
	*l = (struct neighbours){ .has = NULL };
}

/* Room for lists of n nodes in all; node[i] is the one whose list entry i is for, and `stride` its
 * distance in bytes to the next. Afterwards pl_cut_list()[1] is the place of the first entry of a
 * list, and when the entries have been put there one by one, the place behind its last entry. */
static void make_lists(struct builder *b, struct neighbours *l, const void *node, size_t stride)
{
	const size_t words = b->n_nodes / 64 + 1;
	const char *at = node;
	uint32_t x, n = 0;
	int rc;

	PL_TRY(pl_alloc(&l->has, words, sizeof(*l->has), b->err));
	PL_TRY(pl_derive_room(&l->before, words, sizeof(*l->before), b->err));
	PL_TRY(pl_derive_room(&l->node, b->n_edges, sizeof(*l->node), b->err));
	for (size_t i = 0; i < b->n_edges; i++) {
		memcpy(&x, at + i * stride, sizeof(x));
		l->has[x / 64] |= (uint64_t)1 << x % 64;
	}
	for (size_t i = 0; i < words; i++) {
		l->before[i] = n;
		n += pl_cut_bits(l->has[i]);
	}
	PL_TRY(pl_alloc(&l->off, n + (size_t)2, sizeof(*l->off), b->err));
	for (size_t i = 0; i < b->n_edges; i++) {
		memcpy(&x, at + i * stride, sizeof(x));
		pl_cut_list(l, x)[2]++;
	}
	for (uint32_t i = 0; i < n; i++)
		l->off[i + 2] += l->off[i + 1];
out:;
}

static void list_predecessors(struct cut *c)
{
	struct builder *b = c->b;
	int rc;

	PL_TRY(pl_derive_room(&c->in_type, b->n_edges, 1, b->err));
	make_lists(b, &c->in, &b->edge->dst, sizeof(*b->edge));
	for (size_t i = 0; i < b->n_edges && !b->err->code; i++) {
		uint32_t at = pl_cut_list(&c->in, b->edge[i].dst)[1]++;

		c->in.node[at] = b->edge[i].src;
		c->in_type[at] = b->edge[i].type;
	}
	pl_free(b->edge);
	b->edge = NULL;
out:;
}

static void list_successors(struct cut *c)
{
	struct builder *b = c->b;
	const struct neighbours *in = &c->in;
	uint32_t k = 0; /* the lists are in the order of their nodes */

	make_lists(b, &c->out, in->node, sizeof(*in->node));
	for (uint32_t i = 0; i <= b->n_nodes / 64 && !b->err->code; i++)
		for (uint64_t has = in->has[i]; has; has &= has - 1, k++)
			for (uint32_t e = in->off[k]; e < in->off[k + 1]; e++)
				c->out.node[pl_cut_list(&c->out, in->node[e])[1]++] =
					i * 64 + (uint32_t)__builtin_ctzll(has);
}

/* ---- order ----------------------------------------------------------------------------------- */

static void describe(const struct builder *b, uint32_t n, struct pl_buf *text)
{
	const struct node *x = &b->node[n];
	struct pl_err ignore = { 0 };

	if (pl_buf_printf(text, &ignore, "%s%s (rank %d)", text->n ? " -> " : "",
			  pl_intern_get(&b->g->str, x->name),
			  x->res == PL_NONE ? -1 : b->g->res[x->res].rank) < 0)
		return;
}

/* Follow unfinished predecessors until a node is reached again. */
static void report_cycle(const struct cut *c, int32_t step, struct pl_err *err)
{
	const uint32_t *left = c->left;
	const struct builder *b = c->b;
	struct pl_buf text = { 0 };
	uint8_t *seen, type;
	uint32_t n = 0, stop;

	if (pl_alloc(&seen, b->n_nodes, 1, err) < 0)
		return;
	while (c->step[n] != step || !left[n])
		n++;
	for (int pass = 0; pass < 2;
	     pass++) { /* the first pass reaches the cycle, the second lists it */
		stop = n;
		do {
			uint32_t next = n, end, first = pl_cut_preds(c, n, &end);

			seen[n] = 1;
			if (pass && text.n < 700)
				describe(b, n, &text);
			for (uint32_t e = first; e != end; e++) {
				uint32_t x = pl_cut_pred(c, n, first, e, &type);

				if (c->step[x] == step && left[x])
					next = x;
			}
			n = next;
		} while (pass ? n != stop : !seen[n]);
	}
	pl_fail(err, PL_EDATA, "the dependencies form a cycle (each waits for the next): %.*s",
		(int)pl_min_size(text.n, 800), text.p ? (const char *)text.p : "");
	pl_buf_fini(&text);
	pl_free(seen);
}

/*
 * Order the nodes of a step. left[] has the number of predecessors of each node in the step; v[]
 * has the `n` nodes in order of id. The search is depth first along chains, so that predecessors
 * are near, and it uses only the structure, so that equal steps get equal orders. Returns how many
 * are ordered. The stack is the end of v: ordered and waiting nodes together are at most n.
 */
static size_t sort_nodes(const struct cut *c, uint32_t *v, size_t n, int32_t step)
{
	uint32_t *const end = v + n, *top = end;
	size_t done = 0;

	for (size_t i = n; i-- > 0;)
		if (!c->left[v[i]])
			*--top = v[i];
	while (top < end) {
		uint32_t x = *top++, from, to;

		v[done++] = x;
		pl_cut_bounds(&c->out, x, &from, &to);
		for (uint32_t e = to; e-- > from;) {
			uint32_t d = c->out.node[e];

			if (c->step[d] == step && !--c->left[d])
				*--top = d;
		}
		if (pl_cut_follows(c, x + 1) && c->step[x + 1] == step && !--c->left[x + 1])
			*--top = x + 1;
	}
	return done;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Also the epoch: the first start of all. */
static void label_steps(struct cut *c)
{
	struct builder *b = c->b;
	bool inside, empty;

	for (size_t i = 0; i < b->n_nodes; i++) {
		struct node *n = &b->node[i];

		c->epoch = pl_min_i64(c->epoch, n->start);
		c->step[i] = n->flags & PL_NF_STEP_BEGIN ? n->step : BEFORE_FIRST_STEP;
		if (n->res == PL_NONE || n->flags & PL_NF_MESSAGE)
			continue; /* gets the step of its predecessors */
		if (b->resource[n->res].queue) {
			c->step[i] = n->step; /* has a step already */
			continue;
		}
		/* an empty node at the end of a window belongs to the step of this window */
		empty = !n->dur && !(n->flags & PL_NF_STEP_BEGIN) && !b->resource[n->res].device;
		c->step[i] = pl_derive_step_at(b, &b->rank[b->resource[n->res].rank_index],
					       n->start - empty, &inside);
		if (b->g->stepless)
			n->flags |= PL_NF_IN_STEP | PL_NF_STEP_BEGIN;
		else if ((n->role == PL_RO_MARK && !(n->flags & PL_NF_STEP_BEGIN)) ||
			 (inside && b->resource[n->res].device))
			n->flags |= PL_NF_IN_STEP;
	}
	for (size_t r = 0; r < b->g->n_res; r++) {
		const struct resource *resource = &b->resource[r];
		const struct rank *rank = &b->rank[resource->rank_index];

		for (uint32_t i = 0; i < resource->n && !b->g->stepless; i++) {
			const struct op *op = &resource->op[i];

			if (op->call == PL_NONE)
				continue;
			for (uint32_t k = op->node; k <= op->last; k++) {
				c->step[k] = pl_derive_step_at(b, rank, op->launched, &inside);
				b->node[k].flags =
					(uint8_t)(inside ? b->node[k].flags | PL_NF_IN_STEP
							 : b->node[k].flags & ~PL_NF_IN_STEP);
			}
		}
	}
}

/* All nodes after x get at least the step of x; the stack uses the array of the order. */
static void raise_from(struct cut *c, uint32_t x)
{
	int32_t step = c->step[x];
	uint32_t from, to;
	size_t top = 0;

	c->order[top++] = x;
	while (top) {
		x = c->order[--top];
		pl_cut_bounds(&c->out, x, &from, &to);
		for (uint32_t e = from; e < to; e++) {
			uint32_t d = c->out.node[e];

			if (c->step[d] < step) {
				c->step[d] = step;
				c->order[top++] = d;
			}
		}
		if (pl_cut_follows(c, x + 1) && c->step[x + 1] < step) {
			c->step[x + 1] = step;
			c->order[top++] = x + 1;
		}
	}
}

/* A node with a successor in an earlier step; the latest step first. */
struct late {
	int32_t minus_step;
	uint32_t node;
};

PL_COMPARATOR(by_late, struct late, minus_step, node);

/*
 * No node may have an earlier step than its predecessors, so each node gets the latest step of all
 * nodes before it. A path from a node of this step has an edge that leads to an earlier step.
 * Therefore it is enough to raise the targets of such edges, latest step first.
 */
static void raise_steps(struct cut *c)
{
	const uint32_t nodes = (uint32_t)c->b->n_nodes;
	const int32_t *step = c->step;
	struct late *late = NULL;
	size_t n = 0, cap = 0;
	uint32_t from, to;

	for (uint32_t i = 0; i < nodes; i++) {
		if (i && step[i] < step[i - 1] && pl_cut_follows(c, i))
			PL_DERIVE_ADD(c->b->err, late, n, cap,
				      (struct late){ -step[i - 1], i - 1 });
		pl_cut_bounds(&c->in, i, &from, &to);
		for (uint32_t e = from; e < to; e++) {
			uint32_t x = c->in.node[e];

			if (step[i] < step[x])
				PL_DERIVE_ADD(c->b->err, late, n, cap,
					      (struct late){ -step[x], x });
		}
	}
	pl_sort(late, n, sizeof(*late), by_late);
	for (size_t i = 0; i < n; i++)
		raise_from(c, late[i].node);
	pl_free(late);
}

/* Counting sort of all nodes by step, by number within; lists the steps that have nodes. */
static void split_steps(struct cut *c)
{
	const struct builder *b = c->b;
	size_t steps = b->n_steps + 2, *at = NULL; /* by step + 1: where its nodes begin */
	int rc;

	PL_TRY(pl_alloc(&at, steps + 1, sizeof(*at), c->b->err));
	PL_TRY(pl_alloc(&c->part, steps, sizeof(*c->part), c->b->err));
	PL_TRY(pl_alloc(&c->part_of, steps, sizeof(*c->part_of), c->b->err));
	for (size_t i = 0; i < b->n_nodes; i++)
		at[c->step[i] + 2]++;
	for (size_t s = 0; s < steps; s++) {
		size_t n = at[s + 1];

		at[s + 1] += at[s];
		c->part_of[s] = (uint32_t)c->n_parts;
		if (n)
			c->part[c->n_parts++] = (struct part){ .step = (int32_t)s - 1,
							       .from = at[s],
							       .to = at[s + 1] };
	}
	for (uint32_t i = 0; i < b->n_nodes; i++)
		c->order[at[c->step[i] + 1]++] = i;
out:
	pl_free(at);
}

static void order_part(struct builder *b, uint32_t part, struct pl_err *err)
{
	const struct cut *c = b->cut;
	const struct part *p = &c->part[part];
	const int32_t *step = c->step, own = p->step;
	size_t n = p->to - p->from;
	uint32_t from, to;

	for (size_t k = p->from; k < p->to; k++) {
		uint32_t x = c->order[k], left = pl_cut_follows(c, x) && step[x - 1] == own;

		pl_cut_bounds(&c->in, x, &from, &to);
		for (uint32_t e = from; e < to; e++)
			left += step[c->in.node[e]] == own;
		c->left[x] = left;
	}
	if (sort_nodes(c, c->order + p->from, n, own) != n)
		report_cycle(c, own, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

void pl_derive_order_nodes(struct cut *c)
{
	struct builder *b = c->b;
	int rc;

	PL_TRY(pl_derive_room(&c->step, b->n_nodes, sizeof(*c->step), c->b->err));
	label_steps(c);
	for (size_t r = 0; r < b->g->n_res; r++)
		pl_derive_drop_ops(b, &b->resource[r]);
	for (size_t r = 0; r < b->n_ranks; r++)
		pl_derive_drop_calls(b, &b->rank[r]);
	pl_derive_freed(b, 0);
	list_predecessors(c);
	if (!b->err->code)
		list_successors(c);
	PL_TRY(pl_derive_room(&c->order, b->n_nodes, sizeof(*c->order), b->err));
	PL_TRY(pl_derive_room(&c->left, b->n_nodes, sizeof(*c->left), b->err));
	PL_TRY(b->err->code);
	raise_steps(c);
	split_steps(c);
	PL_TRY(b->err->code);
	pl_derive_each(b, (uint32_t)c->n_parts, order_part);
	pl_cut_drop(&c->out);
	pl_derive_freed(b, 2 * b->n_edges * sizeof(*c->out.node));
out:;
}
