/*
 * From one flat list of nodes and edges to steps and shapes.
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
 * 3. An edge from an earlier step becomes an edge from the ENTRY node of the resource of its
 * source. In a replay, the time of this node is the end of the earlier work of the resource.
 * 4. Steps with the same structure share a shape. A hash of the structure finds candidates, then
 * the structures are compared.
 *
 * The order of the nodes of a step depends on its structure, not on its times. O(V + E).
 * Independent parts (successors and predecessors; nodes, edges and times of a step) run in the
 * pool. Each part writes its own arrays, so the result does not depend on the number of threads.
 */
#include <stdlib.h>
#include <string.h>

#include "core/pool.h"
#include "derive/internal.h"

/* Steps that differ only in these columns share a shape, which has the values of the first step. */
#define DESCRIPTIVE (PL_HAS_phase | PL_HAS_module | PL_HAS_work)

struct cut {
	struct gb *b;
	uint32_t *out_off, *out; /* by node: its successors */
	uint32_t *in_off, *in;	 /* by node: its predecessors, in the order of the edges */
	uint8_t *in_type;
	int32_t *step; /* by node */
	uint32_t *order;
	uint32_t *left;	     /* predecessors in the step not ordered yet; then number in the step */
	struct edge *cross;  /* edges from an earlier step, by step */
	uint32_t *cross_off; /* by step + 1 */
	uint32_t *entry;     /* by resource: ENTRY node in the current step, PL_NONE */
	pl_ns *tail;	     /* by resource: end of its nodes in earlier steps, INT64_MIN: none */
	struct pl_shape s;   /* being built */
	unsigned has;	     /* its optional columns */
	size_t cap_nodes, cap_edges;
	uint64_t *hash; /* by shape */
	size_t cap_hash;
	uint32_t *slot; /* shape + 1 by hash, open addressing; at most half of them are used */
	size_t n_slots;
	pl_ns epoch;
	struct put { /* the current step: nodes order[from] .. order[to - 1] */
		int32_t step;
		size_t from, to;
		struct pl_gstep *st;
		int64_t dropped; /* dropped edges, written edges */
		uint32_t edges;
	} put;
	struct pl_queue *queue;
};

/* Run the jobs in the pool, or one after the other. */
static void together(struct cut *c, void (*const *job)(void *), size_t n)
{
	for (size_t i = 0; i < n; i++)
		pl_queue_put(c->queue, job[i], c);
	while (pl_queue_get(c->queue))
		;
}

/* Degrees, counted two places up, become first places, one up, which filling moves to the end. */
static void sum_up(uint32_t *off, size_t n)
{
	for (size_t i = 0; i < n; i++)
		off[i + 2] += off[i + 1];
}

static void list_successors(void *arg)
{
	struct cut *c = arg;
	const struct gb *b = c->b;

	for (size_t i = 0; i < b->n_edges; i++)
		c->out_off[b->edge[i].src + 2]++;
	sum_up(c->out_off, b->n_nodes);
	for (size_t i = 0; i < b->n_edges; i++)
		c->out[c->out_off[b->edge[i].src + 1]++] = b->edge[i].dst;
}

static void list_predecessors(void *arg)
{
	struct cut *c = arg;
	const struct gb *b = c->b;

	for (size_t i = 0; i < b->n_edges; i++)
		c->in_off[b->edge[i].dst + 2]++;
	sum_up(c->in_off, b->n_nodes);
	for (size_t i = 0; i < b->n_edges; i++) {
		uint32_t at = c->in_off[b->edge[i].dst + 1]++;

		c->in[at] = b->edge[i].src;
		c->in_type[at] = b->edge[i].type;
	}
}

/* ---- order
 * -----------------------------------------------------------------------------------------------
 */

static void describe(const struct gb *b, uint32_t n, struct pl_buf *text)
{
	const struct node *x = &b->node[n];
	struct pl_err ignore = { 0 };

	if (pl_buf_printf(text, &ignore, "%s%s (rank %d)", text->n ? " -> " : "",
			  pl_intern_get(&b->g->str, x->name),
			  x->res == PL_NONE ? -1 : b->g->res[x->res].rank) < 0)
		return;
}

/* Follow unfinished predecessors until a node comes back. */
static int report_cycle(const struct cut *c, int32_t step, struct pl_err *err)
{
	const uint32_t *left = c->left;
	const struct gb *b = c->b;
	struct pl_buf text = { 0 };
	uint8_t *seen;
	uint32_t n = 0, stop;
	int rc = pl_alloc(&seen, b->n_nodes, 1, err);

	if (rc < 0)
		return rc;
	while (c->step[n] != step || !left[n])
		n++;
	for (int pass = 0; pass < 2;
	     pass++) { /* the first pass reaches the cycle, the second lists it */
		stop = n;
		do {
			uint32_t next = n;

			seen[n] = 1;
			if (pass && text.n < 700)
				describe(b, n, &text);
			for (uint32_t e = c->in_off[n]; e < c->in_off[n + 1]; e++)
				if (c->step[c->in[e]] == step && left[c->in[e]])
					next = c->in[e];
			n = next;
		} while (pass ? n != stop : !seen[n]);
	}
	rc = pl_fail(err, PL_EDATA, "the dependencies form a cycle (each waits for the next): %.*s",
		     (int)pl_min_size(text.n, 800), text.p ? (const char *)text.p : "");
	pl_buf_fini(&text);
	pl_free(seen);
	return rc;
}

/*
 * Order the nodes of a step, which have left[] set to the number of their predecessors among them;
 * `n` of them lie in v[] in order of id. Depth first along the chains, so that a node's
 * predecessors are mostly near, and by structure alone, so that equal steps get equal orders.
 * Returns the number of ordered nodes. The stack is the end of v, because ordered and waiting nodes
 * together are at most n.
 */
static size_t sort_nodes(const struct cut *c, uint32_t *v, size_t n, int32_t step)
{
	uint32_t *const end = v + n, *top = end;
	size_t done = 0;

	for (size_t i = n; i-- > 0;)
		if (!c->left[v[i]])
			*--top = v[i];
	while (top < end) {
		uint32_t x = *top++;

		v[done++] = x;
		for (uint32_t e = c->out_off[x + 1]; e-- > c->out_off[x];) {
			uint32_t d = c->out[e];

			if (c->step[d] == step && !--c->left[d])
				*--top = d;
		}
	}
	return done;
}

/* ---- steps
 * ------------------------------------------------------------------------------------------------
 */

/* Also the epoch: the first start of all. */
static void label_steps(void *arg)
{
	struct cut *c = arg;
	struct gb *b = c->b;
	bool inside, empty;

	for (size_t i = 0; i < b->n_nodes; i++) {
		struct node *n = &b->node[i];

		c->epoch = pl_min_i64(c->epoch, n->start);
		c->step[i] = n->flags & PL_NF_STEP_BEGIN ? n->step : GB_BEFORE;
		if (n->res == PL_NONE || n->flags & PL_NF_MESSAGE)
			continue; /* gets the step of its predecessors */
		if (b->ri[n->res].queue) {
			c->step[i] = n->step; /* has a step already */
			continue;
		}
		/* an empty node at the end of a window belongs to the step of this window */
		empty = !n->dur && !(n->flags & PL_NF_STEP_BEGIN) && !b->ri[n->res].device;
		c->step[i] = pl_derive_step_at(b, &b->rank[b->ri[n->res].rank_index],
					       n->start - empty, &inside);
		if (b->g->stepless) {
			n->flags |= PL_NF_IN_STEP | PL_NF_STEP_BEGIN;
		} else if (n->role == PL_RO_MARK && !(n->flags & PL_NF_STEP_BEGIN)) {
			n->flags |= PL_NF_IN_STEP;
		} else if (inside && b->ri[n->res].device) {
			n->flags |= PL_NF_IN_STEP;
		}
	}
	for (size_t r = 0; r < b->g->n_res; r++) {
		const struct resinfo *ri = &b->ri[r];
		const struct rankinfo *rk = &b->rank[ri->rank_index];

		for (uint32_t i = 0; i < ri->n && !b->g->stepless; i++) {
			const struct op *op = &ri->op[i];

			if (op->call == PL_NONE)
				continue;
			for (uint32_t k = op->node; k <= op->last; k++) {
				c->step[k] =
					pl_derive_step_at(b, rk, rk->call[op->call].start, &inside);
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
	size_t top = 0;

	c->order[top++] = x;
	while (top) {
		x = c->order[--top];
		for (uint32_t e = c->out_off[x]; e < c->out_off[x + 1]; e++) {
			uint32_t d = c->out[e];

			if (c->step[d] < step) {
				c->step[d] = step;
				c->order[top++] = d;
			}
		}
	}
}

/*
 * No node may have an earlier step than its predecessors, so each node gets the latest step of all
 * nodes before it. A path from a node of this step has an edge that leads to an earlier step.
 * Therefore it is enough to raise the targets of such edges, latest step first.
 */
static int raise_steps(struct cut *c, struct pl_err *err)
{
	const struct gb *b = c->b;
	uint32_t *from = NULL, *at = NULL;
	size_t n = 0, steps = b->n_steps + 2;
	int rc = pl_alloc(&at, steps + 1, sizeof(*at), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < b->n_edges; i++) {
		if (c->step[b->edge[i].dst] < c->step[b->edge[i].src]) {
			at[steps - 1 - (size_t)(c->step[b->edge[i].src] + 1) + 1]++;
			n++;
		}
	}
	for (size_t s = 0; s < steps; s++)
		at[s + 1] += at[s];
	PL_TRY(pl_derive_room(&from, n, sizeof(*from), err));
	for (size_t i = 0; i < b->n_edges && n; i++)
		if (c->step[b->edge[i].dst] < c->step[b->edge[i].src])
			from[at[steps - 1 - (size_t)(c->step[b->edge[i].src] + 1)]++] =
				b->edge[i].src;
	for (size_t i = 0; i < n; i++)
		raise_from(c, from[i]);
out:
	pl_free(from);
	pl_free(at);
	return rc;
}

/* Counts predecessors within the step, and lists edges from earlier steps by step. */
static int split_edges(struct cut *c, struct pl_err *err)
{
	const struct gb *b = c->b;
	size_t n = 0;
	int rc = pl_alloc(&c->cross_off, b->n_steps + 4, sizeof(*c->cross_off), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < b->n_edges; i++) {
		uint32_t d = b->edge[i].dst;
		bool same = c->step[b->edge[i].src] == c->step[d];

		c->left[d] += same;
		c->cross_off[c->step[d] + 3] += !same;
		n += !same;
	}
	sum_up(c->cross_off, b->n_steps + 2);
	rc = pl_alloc(&c->cross, n, sizeof(*c->cross), err);
	for (size_t i = 0; rc == 0 && n && i < b->n_edges; i++)
		if (c->step[b->edge[i].src] != c->step[b->edge[i].dst])
			c->cross[c->cross_off[c->step[b->edge[i].dst] + 2]++] = b->edge[i];
	return rc;
}

/* ---- shapes
 * -----------------------------------------------------------------------------------------------
 */

/* Leaves out columns in which no node has a value. */
static unsigned columns_needed(const struct gb *b)
{
	unsigned has = b->has;

#define NEEDED(member, word, type, unknown, values, bit)                                           \
	has |= b->attr[i].member != (type)(unknown) ? bit##u : 0;
	for (size_t i = 1; i < b->n_attrs; i++) {
		PL_NODE_OPTIONAL_COLUMNS(NEEDED)
	}
	return has;
}

static uint64_t hash_structure(const struct pl_shape *s)
{
	uint64_t h = pl_hash(s->type, s->n_nodes);

	h = h * 31 + pl_hash(s->role, s->n_nodes);
	h = h * 31 + pl_hash(s->name, s->n_nodes * sizeof(*s->name));
	h = h * 31 + pl_hash(s->res, s->n_nodes * sizeof(*s->res));
	h = h * 31 + pl_hash(s->off, (s->n_nodes + 1) * sizeof(*s->off));
	h = h * 31 + pl_hash(s->src, s->n_edges * sizeof(*s->src));
	return h * 31 + pl_hash(s->etype, s->n_edges);
}

/* The slot of the current shape, or the free slot for it. */
static uint32_t *shape_slot(const struct cut *c, uint64_t h)
{
	for (size_t i = h;; i++) {
		uint32_t *p = &c->slot[i & (c->n_slots - 1)];

		if (!*p || (c->hash[*p - 1] == h &&
			    pl_graph_shape_same(&c->b->g->shape[*p - 1], &c->s, DESCRIPTIVE)))
			return p;
	}
}

static int grow_slots(struct cut *c, size_t n_shapes, struct pl_err *err)
{
	size_t n = c->n_slots ? 2 * c->n_slots : 16;
	uint32_t *slot;
	int rc;

	if (n_shapes + 1 <= c->n_slots / 2)
		return 0;
	rc = pl_alloc(&slot, n, sizeof(*slot), err);
	if (rc < 0)
		return rc;
	for (size_t k = 0; k < n_shapes; k++) {
		size_t i = c->hash[k];

		while (slot[i & (n - 1)])
			i++;
		slot[i & (n - 1)] = (uint32_t)k + 1;
	}
	pl_free(c->slot);
	c->slot = slot;
	c->n_slots = n;
	return 0;
}

static int find_shape(struct cut *c, uint32_t *id, struct pl_err *err)
{
	struct pl_graph *g = c->b->g;
	uint64_t h = hash_structure(&c->s);
	uint32_t *slot;
	int rc = grow_slots(c, g->n_shapes, err);

	if (rc < 0)
		return rc;
	slot = shape_slot(c, h);
	if (*slot) {
		*id = *slot - 1;
		return 0;
	}
	if ((rc = pl_grow(&g->shape, &g->cap_shapes, g->n_shapes + 1, sizeof(*g->shape), err)) <
		    0 ||
	    (rc = pl_grow(&c->hash, &c->cap_hash, g->n_shapes + 1, sizeof(*c->hash), err)) < 0)
		return rc;
	if (c->cap_nodes - c->s.n_nodes <=
	    c->s.n_nodes / 8 + g->n_res) { /* the arrays fit well: move them */
		g->shape[g->n_shapes] = c->s;
		memset(&c->s, 0, sizeof(c->s));
		c->cap_nodes = c->cap_edges = 0;
	} else {
		memset(&g->shape[g->n_shapes], 0, sizeof(*g->shape));
		if ((rc = pl_graph_shape_dup(&c->s, &g->shape[g->n_shapes], err)) < 0) {
			pl_graph_shape_fini(&g->shape[g->n_shapes]);
			return rc;
		}
	}
	c->hash[g->n_shapes] = h;
	*id = (uint32_t)g->n_shapes++;
	*slot = *id + 1;
	return 0;
}

/* ---- one step
 * ---------------------------------------------------------------------------------------------- */

/* May the edge become an edge from the entry of its resource? */
static bool carried(const struct cut *c, uint32_t from, uint32_t to, uint8_t type)
{
	const struct node *src = &c->b->node[from], *dst = &c->b->node[to];

	return src->res != PL_NONE && PL_E_TYPE(type) != PL_E_EARLY &&
	       PL_E_TYPE(type) != PL_E_START && c->tail[src->res] <= dst->start + 2000;
}

static void put_attr(struct pl_shape *s, uint32_t i, const struct attr *a)
{
#define PUT(member, ...)                                                                           \
	if (s->member)                                                                             \
		s->member[i] = a->member;
	PL_NODE_OPTIONAL_COLUMNS(PUT)
}

static void put_entries(struct cut *c, int32_t step)
{
	struct gb *b = c->b;
	struct pl_shape *s = &c->s;

	memset(c->entry, 0xff, b->g->n_res * sizeof(*c->entry));
	for (uint32_t i = c->cross_off[step + 1]; i < c->cross_off[step + 2]; i++) {
		const struct edge *e = &c->cross[i];

		if (carried(c, e->src, e->dst, e->type))
			c->entry[b->node[e->src].res] = 0;
	}
	s->n_nodes = 0;
	for (uint32_t r = 0; r < b->g->n_res; r++) {
		uint32_t n = s->n_nodes;

		if (c->entry[r] == PL_NONE)
			continue;
		c->entry[r] = s->n_nodes++;
		s->type[n] = PL_N_ENTRY;
		s->role[n] = PL_RO_NONE;
		s->kind[n] = s->flags[n] = 0;
		s->res[n] = r;
		s->name[n] = b->g->res[r].name;
		s->group[n] = PL_NONE;
		s->off[n] = 0;
		put_attr(s, n, &b->attr[0]);
	}
	s->n_entries = s->n_nodes;
}

/* Most nodes say nothing in the columns that are attributes. The unknown value of each such column
 * has equal bytes: it is 0 or -1. */
static void clear_attrs(struct pl_shape *s, size_t n)
{
	for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++) {
		const struct pl_node_column *c = &pl_graph_node_columns[k];
		char *p = c->bit ? pl_graph_shape_column(s, c) : NULL;

		if (p)
			memset(p + s->n_entries * c->size, (int)(c->unknown & 0xff), n * c->size);
	}
}

static void put_nodes(void *arg)
{
	const struct cut *c = arg;
	const struct gb *b = c->b;
	struct pl_shape s = c->s; /* a local copy: the stores below cannot change it */
	uint32_t i = s.n_entries;

	clear_attrs(&s, c->put.to - c->put.from);
	for (size_t k = c->put.from; k < c->put.to; k++, i++) {
		const struct node *n = &b->node[c->order[k]];

		s.type[i] = n->type;
		s.role[i] = n->role;
		s.kind[i] = n->kind;
		s.flags[i] = n->flags;
		s.res[i] = n->res;
		s.name[i] = n->name;
		s.group[i] = n->group;
		if (n->attr)
			put_attr(&s, i, &b->attr[n->attr]);
		if (s.phase)
			s.phase[i] = n->phase;
		if (s.work)
			s.work[i] = pl_derive_may_work(n) ? n->work : PL_NONE;
	}
}

/* The edges into node x, as the last of the shape. */
static uint32_t put_edges_of(struct cut *c, uint32_t x, uint32_t first)
{
	const struct pl_shape *s = &c->s;
	uint32_t n = first, lo = c->in_off[x], hi = c->in_off[x + 1];
	bool few = hi - lo <= 16;

	for (uint32_t e = lo; e < hi; e++) {
		uint32_t src, k;

		if (c->step[c->in[e]] == c->put.step)
			src = c->left[c->in[e]];
		else if (carried(c, c->in[e], x, c->in_type[e]))
			src = c->entry[c->b->node[c->in[e]].res];
		else {
			c->put.dropped++;
			continue;
		}
		/* several edges may come from one entry, and a wait may be found twice */
		for (k = first; k < n && (src < s->n_entries || few); k++)
			if (s->src[k] == src && s->etype[k] == c->in_type[e])
				break;
		if (k < n && (src < s->n_entries || few))
			continue;
		s->src[n] = src;
		s->etype[n++] = c->in_type[e];
	}
	return n;
}

static void put_edges(void *arg)
{
	struct cut *c = arg;
	uint32_t i = c->s.n_entries, n = 0;

	for (size_t k = c->put.from; k < c->put.to; k++) {
		c->s.off[i++] = n;
		n = put_edges_of(c, c->order[k], n);
	}
	c->s.off[i] = n;
	c->put.edges = n;
}

static void put_times(void *arg)
{
	const struct cut *c = arg;
	pl_ns *start = c->put.st->start + c->s.n_entries, *dur = c->put.st->dur + c->s.n_entries;

	for (uint32_t i = 0; i < c->s.n_entries; i++) {
		c->put.st->start[i] = c->tail[c->s.res[i]] - c->epoch;
		c->put.st->dur[i] = 0;
	}
	for (size_t k = c->put.from; k < c->put.to; k++) {
		const struct node *n = &c->b->node[c->order[k]];

		*start++ = n->start - c->epoch;
		*dur++ = n->dur;
	}
}

/* Room for a step's nodes, entries and edges. */
static int make_room(struct cut *c, size_t from, size_t to, struct pl_err *err)
{
	size_t nodes = to - from + c->b->g->n_res, edges = 0;
	int rc;

	for (size_t i = from; i < to; i++)
		edges += c->in_off[c->order[i] + 1] - c->in_off[c->order[i]];
	if (nodes <= c->cap_nodes && edges <= c->cap_edges)
		return 0;
	pl_graph_shape_fini(&c->s);
	c->cap_nodes = c->cap_edges = 0;
	if ((rc = pl_graph_shape_room(&c->s, c->has, nodes, edges, err)) < 0)
		return rc;
	c->cap_nodes = nodes;
	c->cap_edges = edges;
	return 0;
}

static int put_step(struct cut *c, int32_t step, size_t from, size_t to, struct pl_err *err)
{
	static void (*const jobs[])(void *) = { put_edges, put_nodes, put_times };
	struct gb *b = c->b;
	struct pl_graph *g = b->g;
	struct pl_gstep *st;
	int rc;

	if (sort_nodes(c, c->order + from, to - from, step) != to - from)
		return report_cycle(c, step, err);
	if ((rc = make_room(c, from, to, err)) < 0)
		return rc;
	put_entries(c, step);
	c->s.n_nodes = c->s.n_entries;
	for (size_t i = from; i < to; i++)
		c->left[c->order[i]] = c->s.n_nodes++;
	if ((rc = pl_grow(&g->step, &g->cap_steps, g->n_steps + 1, sizeof(*g->step), err)) < 0)
		return rc;
	st = &g->step[g->n_steps++];
	memset(st, 0, sizeof(*st));
	st->number = step < 0 || step >= (int32_t)b->n_steps ? INT64_MIN : b->step[step];
	if ((rc = pl_derive_room(&st->start, c->s.n_nodes, sizeof(*st->start), err)) < 0 ||
	    (rc = pl_derive_room(&st->dur, c->s.n_nodes, sizeof(*st->dur), err)) < 0)
		return rc;
	c->put = (struct put){ .step = step, .from = from, .to = to, .st = st };
	together(c, jobs, PL_LEN(jobs));
	c->s.n_edges = c->put.edges;
	g->dropped_edges += c->put.dropped;
	for (size_t i = from; i < to; i++) {
		const struct node *n = &b->node[c->order[i]];

		if (n->res != PL_NONE)
			c->tail[n->res] = pl_max_i64(c->tail[n->res], n->start + n->dur);
	}
	rc = find_shape(c, &st->shape, err);
	if (rc == 0 && step >= 0 && step < (int32_t)b->n_steps)
		b->step_shape[step] = st->shape;
	return rc;
}

/* Counting sort of all nodes by step, by id within; step s is at start[s + 1] .. start[s + 2]. */
static void by_step(struct cut *c, size_t *start)
{
	struct gb *b = c->b;

	for (size_t i = 0; i < b->n_nodes; i++)
		start[c->step[i] + 2]++;
	for (size_t s = 0; s < b->n_steps + 2; s++)
		start[s + 1] += start[s];
	for (uint32_t i = 0; i < b->n_nodes; i++)
		c->order[start[c->step[i] + 1]++] = i;
	memmove(start + 1, start, (b->n_steps + 2) * sizeof(*start));
	start[0] = 0;
}

static int rank_list(struct gb *b, struct pl_err *err)
{
	struct pl_graph *g = b->g;
	int rc = pl_alloc(&g->rank, b->n_ranks, sizeof(*g->rank), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < b->n_ranks; i++)
		g->rank[i] = b->rank[i].rank;
	pl_sort(g->rank, b->n_ranks, sizeof(*g->rank), pl_compare_i32);
	g->n_ranks = (int32_t)b->n_ranks;
	return 0;
}

static void cut_fini(struct cut *c)
{
	pl_queue_free(c->queue);
	pl_free(c->out_off);
	pl_free(c->out);
	pl_free(c->in_off);
	pl_free(c->in);
	pl_free(c->in_type);
	pl_free(c->step);
	pl_free(c->order);
	pl_free(c->left);
	pl_free(c->cross);
	pl_free(c->cross_off);
	pl_free(c->entry);
	pl_free(c->tail);
	pl_free(c->hash);
	pl_free(c->slot);
	pl_graph_shape_fini(&c->s);
}

static int cut_init(struct cut *c, struct gb *b, struct pl_err *err)
{
	int rc;

	*c = (struct cut){ .b = b, .epoch = INT64_MAX, .has = columns_needed(b) };
	c->queue = pl_queue_new(b->o->pool, 3, err);
	if (!c->queue)
		return err->code;
	PL_TRY(pl_alloc(&c->out_off, b->n_nodes + 2, sizeof(*c->out_off), err));
	PL_TRY(pl_derive_room(&c->out, b->n_edges, sizeof(*c->out), err));
	PL_TRY(pl_alloc(&c->in_off, b->n_nodes + 2, sizeof(*c->in_off), err));
	PL_TRY(pl_derive_room(&c->in, b->n_edges, sizeof(*c->in), err));
	PL_TRY(pl_derive_room(&c->in_type, b->n_edges, 1, err));
	PL_TRY(pl_derive_room(&c->step, b->n_nodes, sizeof(*c->step), err));
	PL_TRY(pl_derive_room(&c->order, b->n_nodes, sizeof(*c->order), err));
	PL_TRY(pl_alloc(&c->left, b->n_nodes, sizeof(*c->left), err));
	PL_TRY(pl_alloc(&c->entry, b->g->n_res, sizeof(*c->entry), err));
	PL_TRY(pl_alloc(&c->tail, b->g->n_res, sizeof(*c->tail), err));
	for (size_t r = 0; r < b->g->n_res; r++)
		c->tail[r] = INT64_MIN;
out:
	return rc;
}

int pl_derive_cut(struct gb *b, struct pl_err *err)
{
	static void (*const jobs[])(void *) = { list_predecessors, list_successors, label_steps };
	struct cut c;
	size_t *start = NULL;
	int rc;

	PL_TRY(cut_init(&c, b, err));
	PL_TRY(rank_list(b, err));
	PL_TRY(pl_alloc(&b->step_shape, b->n_steps, sizeof(*b->step_shape), err));
	memset(b->step_shape, 0xff, b->n_steps * sizeof(*b->step_shape));
	PL_TRY(pl_alloc(&start, b->n_steps + 4, sizeof(*start), err));
	together(&c, jobs, PL_LEN(jobs));
	b->g->epoch_ns = b->n_nodes ? c.epoch : 0;
	PL_TRY(raise_steps(&c, err));
	PL_TRY(split_edges(&c, err));
	pl_derive_drop_ops(b);
	by_step(&c, start);
	for (size_t s = 0; s < b->n_steps + 2; s++)
		if (start[s + 1] > start[s])
			PL_TRY(put_step(&c, (int32_t)s - 1, start[s], start[s + 1], err));
	b->local = c.left;
	b->node_step = c.step;
	c.left = NULL;
	c.step = NULL;
out:
	pl_free(start);
	cut_fini(&c);
	return rc;
}
