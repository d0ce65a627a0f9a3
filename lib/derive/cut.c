/*
 * From one flat list of nodes and edges to steps and shapes.
 *
 * order.c gives every node a step, and the nodes of each step an order. Then:
 *
 * 1. An edge from an earlier step becomes an edge from the ENTRY node of the resource of its
 * source. In a replay, the time of this node is the end of the earlier work of the resource.
 * 2. Steps with the same structure share a shape. A hash of the structure finds candidates, then
 * the structures are compared.
 *
 * O(V + E). Independent parts run in the pool. Each part writes its own arrays, so the result does
 * not depend on the number of threads.
 *
 * A large job has gigabytes of nodes, so each array is freed as soon as the next one holds what it
 * said. The last part gives up the builder's nodes piece by piece while the columns of the graph
 * fill: both never exist as a whole.
 */
#include "derive/cut.h"
#include "core/pool.h"

/* Steps that differ only in these columns share a shape, which has the values of the first step. */
#define DESCRIPTIVE (PL_HAS_phase | PL_HAS_module | PL_HAS_work | PL_HAS_line)
#define GIVE_BACK   (1u << 18) /* the memory of so many nodes at a time */

/* ---- shapes ---------------------------------------------------------------------------------- */

/* Leaves out columns in which no node has a value. */
static unsigned columns_needed(const struct builder *b)
{
	unsigned has = b->has;

#define NEEDED(member, word, type, unknown, values, bit)                                           \
	has |= b->attr[i].member != (type)(unknown) ? bit##u : 0;
	for (size_t i = 1; i < b->n_attrs; i++) {
		PL_NODE_OPTIONAL_COLUMNS(NEEDED)
	}
	return has;
}

static bool same_node(const struct builder *b, const struct node *x, const struct node *y)
{
	const struct attr *a = &b->attr[x->attr], *d = &b->attr[y->attr];
	bool same =
		x->type == y->type && x->role == y->role && x->kind == y->kind &&
		x->flags == y->flags && x->res == y->res && x->name == y->name &&
		(x->phase == y->phase || (x->phase <= PL_PH_OTHER && y->phase <= PL_PH_OTHER)) &&
		(x->group == y->group || !pl_derive_may_group(x));

	if (a == d || !same)
		return same;
#define SAME(member, word, type, unknown, values, bit)                                             \
	same &= (bit & DESCRIPTIVE) || a->member == d->member;
	PL_NODE_OPTIONAL_COLUMNS(SAME)
	return same;
}

static uint64_t hash_structure(const struct cut *c, const struct part *p)
{
	const struct pl_shape *s = &c->s;
	uint64_t h = s->n_entries;

	for (size_t k = p->from; k < p->to; k++) {
		const struct node *n = &c->b->node[c->order[k]];

		h = (h ^ ((uint64_t)n->role << 56 | (uint64_t)n->res << 24 | n->name)) *
		    0x9e3779b97f4a7c15u;
		h ^= h >> 32;
	}
	h = h * 31 + pl_hash(s->off, (s->n_nodes + 1) * sizeof(*s->off));
	h = h * 31 + pl_hash(s->src, s->n_edges * sizeof(*s->src));
	return h * 31 + pl_hash(s->etype, s->n_edges);
}

/* Is the structure of the current step, which is that of part p, the one of the shape? */
static bool same_structure(const struct cut *c, const struct part *p, uint32_t shape)
{
	const struct pl_shape *x = &c->b->g->shape[shape], *y = &c->s;
	const struct part *q = &c->part[c->seen[shape].part];

	if (x->n_nodes != y->n_nodes || x->n_edges != y->n_edges || x->n_entries != y->n_entries ||
	    memcmp(x->off, y->off, (x->n_nodes + (size_t)1) * sizeof(*x->off)) ||
	    (x->n_edges && (memcmp(x->src, y->src, x->n_edges * sizeof(*x->src)) ||
			    memcmp(x->etype, y->etype, x->n_edges))))
		return false;
	for (uint32_t i = 0; i < x->n_entries; i++)
		if (c->entry[x->res[i]] != i)
			return false;
	for (size_t k = 0; k < p->to - p->from; k++)
		if (!same_node(c->b, &c->b->node[c->order[p->from + k]],
			       &c->b->node[c->order[q->from + k]]))
			return false;
	return true;
}

static void put_entries(const struct cut *c, const struct pl_shape *s)
{
	const struct builder *b = c->b;

	for (uint32_t r = 0; r < b->g->n_res; r++) {
		uint32_t i = c->entry[r];

		if (i == PL_NONE)
			continue;
		s->type[i] = PL_N_ENTRY;
		s->role[i] = PL_RO_NONE;
		s->kind[i] = s->flags[i] = 0;
		s->res[i] = r;
		s->name[i] = b->g->res[r].name;
		s->group[i] = PL_NONE;
#define PUT(member, ...)                                                                           \
	if (s->member)                                                                             \
		s->member[i] = b->attr[0].member;
		PL_NODE_OPTIONAL_COLUMNS(PUT)
#undef PUT
	}
}

/* The shape of the current step, which is that of part p. The nodes of a new shape are still
 * missing, except its entries. The number of a shape is that of its hash in c->hash; a shape takes
 * the next hash if another one has its own. */
static uint32_t find_shape(struct cut *c, struct part *p)
{
	struct pl_graph *g = c->b->g;
	uint32_t id = PL_NONE;
	int rc;

	for (uint64_t h = hash_structure(c, p);; h++) {
		PL_TRY(pl_intern_add(&c->hash, (const char *)&h, sizeof(h), &id, c->b->err));
		if (id == g->n_shapes)
			break;
		if (same_structure(c, p, id))
			goto out;
	}
	PL_TRY(pl_graph_shape_room_nodes(&c->s, c->has, c->s.n_nodes, c->b->err));
	put_entries(c, &c->s);
	PL_TRY(pl_grow(&c->seen, &c->cap_seen, id + (size_t)1, sizeof(*c->seen), c->b->err));
	c->seen[id] = (struct seen){ .part = (uint32_t)(p - c->part) };
	PL_TRY(pl_grow(&g->shape, &g->cap_shapes, id + (size_t)1, sizeof(*g->shape), c->b->err));
	g->shape[g->n_shapes++] = c->s;
	memset(&c->s, 0, sizeof(c->s));
	p->first = true;
out:
	pl_graph_shape_fini(&c->s);
	return id;
}

/* ---- one step -------------------------------------------------------------------------------- */

/* May the edge become an edge from the entry of its resource? */
static bool carried(const struct cut *c, uint32_t from, uint32_t to, uint8_t type)
{
	const struct node *src = &c->b->node[from], *dst = &c->b->node[to];

	return src->res != PL_NONE && PL_E_TYPE(type) != PL_E_EARLY &&
	       PL_E_TYPE(type) != PL_E_START && c->tail[src->res] <= dst->start + 2000;
}

/* Numbers the entries and nodes of a step. The resources whose earlier work a node waits for get an
 * entry. *edges: at most that many. */
static void number_nodes(struct cut *c, const struct part *p, size_t *edges)
{
	struct pl_shape *s = &c->s;
	uint8_t type;

	*edges = 0;
	memset(c->entry, 0xff, c->b->g->n_res * sizeof(*c->entry));
	for (size_t k = p->from; k < p->to; k++) {
		uint32_t x = c->order[k], end, first = pl_cut_preds(c, x, &end);

		*edges += end - first;
		for (uint32_t e = first; e != end; e++) {
			uint32_t src = pl_cut_pred(c, x, first, e, &type);

			if (c->step[src] != p->step && carried(c, src, x, type))
				c->entry[c->b->node[src].res] = 0;
		}
	}
	for (uint32_t r = 0; r < c->b->g->n_res; r++)
		if (c->entry[r] != PL_NONE)
			c->entry[r] = s->n_nodes++;
	s->n_entries = s->n_nodes;
	for (size_t k = p->from; k < p->to; k++)
		c->left[c->order[k]] = s->n_nodes++;
}

/* The edges into node x, as the last of the shape. */
static uint32_t put_edges_of(const struct cut *c, const struct part *p, uint32_t x, uint32_t first)
{
	uint32_t n = first, *to = c->s.src, entries = c->s.n_entries;
	uint32_t end, from = pl_cut_preds(c, x, &end);
	uint8_t type, *etype = c->s.etype;

	for (uint32_t e = from; e != end; e++) {
		uint32_t src = pl_cut_pred(c, x, from, e, &type), k = first;

		if (c->step[src] == p->step) {
			src = c->left[src];
		} else if (carried(c, src, x, type)) {
			src = c->entry[c->b->node[src].res];
		} else {
			c->b->g->dropped_edges++;
			continue;
		}
		/* several edges may come from one entry, and a wait may be found twice */
		if (src < entries || end - from <= 16) {
			while (k < n && (to[k] != src || etype[k] != type))
				k++;
			if (k < n)
				continue;
		}
		to[n] = src;
		etype[n++] = type;
	}
	return n;
}

static void put_edges(struct cut *c, const struct part *p)
{
	struct pl_shape *s = &c->s;
	uint32_t i = 0;
	size_t edges;
	int rc;

	number_nodes(c, p, &edges);
	PL_TRY(pl_derive_room(&s->off, s->n_nodes + (size_t)1, sizeof(*s->off), c->b->err));
	PL_TRY(pl_graph_shape_room_edges(s, edges, c->b->err));
	while (i < s->n_entries)
		s->off[i++] = 0;
	for (size_t k = p->from; k < p->to; k++) {
		s->off[i++] = s->n_edges;
		s->n_edges = put_edges_of(c, p, c->order[k], s->n_edges);
	}
	s->off[i] = s->n_edges;
out:;
}

/* Shape and step of a part; the times of its nodes are still missing. */
static void put_part(struct cut *c, struct part *p)
{
	struct builder *b = c->b;
	struct pl_graph *g = b->g;
	bool inside = p->step >= 0 && p->step < (int32_t)b->n_steps;
	struct pl_gstep *st;
	uint32_t n;
	int rc;

	put_edges(c, p);
	if (b->err->code)
		return;
	n = c->s.n_nodes;
	PL_TRY(pl_grow(&g->step, &g->cap_steps, g->n_steps + 1, sizeof(*g->step), c->b->err));
	st = &g->step[g->n_steps++];
	*st = (struct pl_gstep){ .number = inside ? b->step[p->step] : INT64_MIN };
	PL_TRY(pl_derive_room(&st->start, n, sizeof(*st->start), c->b->err));
	PL_TRY(pl_derive_room(&st->dur, n, sizeof(*st->dur), c->b->err));
	for (uint32_t r = 0; r < g->n_res; r++)
		if (c->entry[r] != PL_NONE) {
			st->start[c->entry[r]] = c->tail[r] - c->epoch;
			st->dur[c->entry[r]] = 0;
		}
	st->shape = find_shape(c, p);
	if (b->err->code)
		return;
	if (inside) {
		b->step_shape[p->step] = st->shape;
		b->step_shows[p->step] = !c->seen[st->shape].shown;
		c->seen[st->shape].shown = true;
	}
	for (size_t k = p->from; k < p->to; k++) {
		const struct node *x = &b->node[c->order[k]];

		if (x->res != PL_NONE)
			c->tail[x->res] = pl_max_i64(c->tail[x->res], x->start + x->dur);
	}
out:;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* The nodes from .. to, which are of one step. */
static void put_run(const struct cut *c, const struct part *p, size_t from, size_t to)
{
	const struct builder *b = c->b;
	const struct pl_gstep *st = &b->g->step[p - c->part];
	const struct pl_shape s = b->g->shape[st->shape]; /* a copy, which no store below changes */
	pl_ns *start = st->start, *dur = st->dur;

	/* column by column: most shapes have few of them */
#define PUT(member, word, type, unknown, values, bit)                                              \
	for (size_t k = from;                                                                      \
	     (bit & ~(PL_HAS_phase | PL_HAS_work)) && p->first && s.member && k < to; k++)         \
		s.member[c->left[k]] = b->attr[b->node[k].attr].member;
	PL_NODE_OPTIONAL_COLUMNS(PUT)
#undef PUT
	for (size_t k = from; k < to; k++) {
		const struct node *n = &b->node[k];
		uint32_t i = c->left[k];

		start[i] = n->start - c->epoch;
		dur[i] = n->dur;
		if (!p->first)
			continue;
		s.type[i] = n->type;
		s.role[i] = n->role;
		s.kind[i] = n->kind;
		s.flags[i] = n->flags;
		s.res[i] = n->res;
		s.name[i] = n->name;
		s.group[i] = pl_derive_may_group(n) ? n->group : PL_NONE;
		if (s.phase)
			s.phase[i] = n->phase;
		if (s.work)
			s.work[i] = pl_derive_may_work(n) ? n->work : PL_NONE;
	}
}

/* One of the equal shares of put_from .. put_to. */
static void put_share(struct builder *b, uint32_t share, struct pl_err *err)
{
	const struct cut *c = b->cut;
	size_t n = c->put_to - c->put_from, shares = (size_t)pl_pool_threads(b->o->pool);
	size_t i = c->put_from + n * share / shares, k, to = c->put_from + n * (share + 1) / shares;

	(void)err;
	for (; i < to; i = k) {
		for (k = i; k < to && c->step[k] == c->step[i]; k++)
			;
		put_run(c, &c->part[c->part_of[c->step[i] + 1]], i, k);
	}
}

/* Columns of the shapes and times of the steps, from the builder's nodes. These are given up piece
 * by piece; the nodes of communication, which touch columns everywhere, are the last. */
static void put_nodes(struct cut *c)
{
	struct builder *b = c->b;

	for (; c->put_from < b->n_nodes; c->put_from = c->put_to) {
		size_t n = pl_min_size(GIVE_BACK, b->n_nodes - c->put_from);

		c->put_to = c->put_from + n;
		pl_derive_each(b, (uint32_t)pl_pool_threads(b->o->pool), put_share);
		if (b->n_nodes <= GIVE_BACK)
			continue;
		pl_mem_discard(b->node + c->put_from, n * sizeof(*b->node));
		pl_mem_discard(c->left + c->put_from, n * sizeof(*c->left));
		pl_mem_discard(c->step + c->put_from, n * sizeof(*c->step));
	}
}

/* ---- the whole ------------------------------------------------------------------------------- */

static void rank_list(struct builder *b)
{
	struct pl_graph *g = b->g;

	if (pl_alloc(&g->rank, b->n_ranks, sizeof(*g->rank), b->err) < 0)
		return;
	for (size_t i = 0; i < b->n_ranks; i++)
		g->rank[i] = b->rank[i].rank;
	pl_sort(g->rank, b->n_ranks, sizeof(*g->rank), pl_compare_i32);
	g->n_ranks = (int32_t)b->n_ranks;
}

static void cut_fini(struct cut *c)
{
	pl_cut_drop(&c->out);
	pl_cut_drop(&c->in);
	pl_free(c->in_type);
	pl_free(c->step);
	pl_free(c->order);
	pl_free(c->left);
	pl_free(c->part);
	pl_free(c->part_of);
	pl_free(c->entry);
	pl_free(c->tail);
	pl_free(c->seen);
	pl_intern_fini(&c->hash);
	pl_graph_shape_fini(&c->s);
}

/* The entries and edges of every step, its shape, and its place in the graph. */
static void put_steps(struct cut *c)
{
	struct builder *b = c->b;
	int rc;

	PL_TRY(pl_alloc(&b->step_shape, b->n_steps, sizeof(*b->step_shape), c->b->err));
	memset(b->step_shape, 0xff, b->n_steps * sizeof(*b->step_shape));
	PL_TRY(pl_alloc(&b->step_shows, b->n_steps, sizeof(*b->step_shows), b->err));
	PL_TRY(pl_alloc(&c->entry, b->g->n_res, sizeof(*c->entry), c->b->err));
	PL_TRY(pl_alloc(&c->tail, b->g->n_res, sizeof(*c->tail), c->b->err));
	for (size_t r = 0; r < b->g->n_res; r++)
		c->tail[r] = INT64_MIN;
	for (size_t i = 0; i < c->n_parts && !b->err->code; i++)
		put_part(c, &c->part[i]);
	pl_cut_drop(&c->in);
	pl_free(c->in_type);
	c->in_type = NULL;
	pl_free(c->order);
	c->order = NULL;
	pl_derive_freed(b, 2 * b->n_nodes * sizeof(*c->order));
out:;
}

void pl_derive_cut(struct builder *b)
{
	struct cut c = { .b = b, .epoch = INT64_MAX, .has = columns_needed(b) };

	b->cut = &c;
	rank_list(b);
	pl_derive_order_nodes(&c);
	b->g->epoch_ns = b->n_nodes ? c.epoch : 0;
	if (!b->err->code)
		put_steps(&c);
	if (b->err->code)
		goto out;
	b->local = c.left;
	b->node_step = c.step;
	pl_derive_put_tensors(b);
	pl_derive_put_memory(b);
	pl_derive_drop_tensors(b);
	pl_derive_drop_memory(b);
	pl_derive_freed(b, 2 * b->n_nodes * sizeof(uint32_t));
	put_nodes(&c);
out:
	b->cut = NULL;
	b->local = NULL;
	b->node_step = NULL;
	cut_fini(&c);
}
