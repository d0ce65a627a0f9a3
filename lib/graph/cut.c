/*
 * From one flat list of nodes and edges to steps and shapes.
 *
 * 1. Topological order (Kahn's algorithm, depth first). Nodes left over lie on a cycle, which is
 * reported.
 * 2. Every node gets a step: a host node the one in whose window it starts, a device node the one
 * of its launch, communication the latest of its members; then never an earlier one than a
 * predecessor's.
 * 3. Within a step, an edge from an earlier step becomes an edge from the ENTRY node of the
 * resource that it came from: at replay that is the time at which the resource finished what it did
 * before.
 * 4. Steps of the same structure share a shape: found by a hash over the structure, then compared.
 *
 * The order of a step's nodes depends on its structure, not on its times. O(V + E).
 */
#include <stdlib.h>
#include <string.h>

#include "graph/internal.h"

#define BEFORE (-1)	 /* step of nodes before the first step; after the last: n_steps */
#define ANY    INT32_MIN /* every step */

struct csr {
	uint32_t *off, *to; /* edge indices */
};

struct cut {
	struct gb *b;
	struct csr out, in;
	uint32_t *order;	/* topological, then by step */
	uint32_t *left, *stack; /* scratch of sort_nodes() */
	uint32_t *local;	/* number within its step */
	uint32_t *entry;	/* by resource: ENTRY node in the current step, PL_NONE */
	pl_ns *tail;		/* by resource: end of what earlier steps did; INT64_MIN nothing */
	struct pl_shape s;	/* being built */
	size_t cap_nodes, cap_edges;
	uint64_t *hash; /* by shape */
	size_t cap_hash;
	pl_ns epoch;
};

static int build_csr(const struct gb *b, struct csr *c, bool out, struct pl_err *err)
{
	int rc;

	if ((rc = pl_alloc(&c->off, b->n_nodes + 2, sizeof(*c->off), err)) < 0 ||
	    (rc = pl_alloc(&c->to, b->n_edges, sizeof(*c->to), err)) < 0)
		return rc;
	for (size_t i = 0; i < b->n_edges; i++)
		c->off[(out ? b->edge[i].src : b->edge[i].dst) + 2]++;
	for (size_t i = 0; i < b->n_nodes; i++)
		c->off[i + 2] += c->off[i + 1];
	for (size_t i = 0; i < b->n_edges; i++)
		c->to[c->off[(out ? b->edge[i].src : b->edge[i].dst) + 1]++] = (uint32_t)i;
	return 0;
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
static int report_cycle(const struct cut *c, const uint32_t *left, struct pl_err *err)
{
	const struct gb *b = c->b;
	struct pl_buf text = { 0 };
	uint8_t *seen;
	uint32_t n = 0, stop;
	int rc = pl_alloc(&seen, b->n_nodes, 1, err);

	if (rc < 0)
		return rc;
	while (n < b->n_nodes && !left[n])
		n++;
	for (int pass = 0; pass < 2; pass++) { /* first get onto the cycle, then walk it */
		stop = n;
		do {
			uint32_t next = n;

			seen[n] = 1;
			if (pass && text.n < 700)
				describe(b, n, &text);
			for (uint32_t e = c->in.off[n]; e < c->in.off[n + 1]; e++)
				if (left[b->edge[c->in.to[e]].src])
					next = b->edge[c->in.to[e]].src;
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
 * Order the nodes that have left[] set to the number of their predecessors among them; `n` of them
 * lie in v[] in order of id. Depth first along the chains, so that a node's predecessors are mostly
 * its neighbours, and by structure alone, never by time: equal steps get equal orders. Returns how
 * many could be ordered; they are in v[] then.
 */
static size_t sort_nodes(const struct cut *c, uint32_t *v, size_t n, uint32_t *left, int32_t step)
{
	const struct gb *b = c->b;
	size_t top = 0, done = 0;

	for (size_t i = n; i-- > 0;)
		if (!left[v[i]])
			c->stack[top++] = v[i];
	while (top) {
		uint32_t x = c->stack[--top];

		v[done++] = x;
		for (uint32_t e = c->out.off[x + 1]; e-- > c->out.off[x];) {
			uint32_t d = b->edge[c->out.to[e]].dst;

			if ((step == ANY || b->node[d].step == step) && !--left[d])
				c->stack[top++] = d;
		}
	}
	return done;
}

static int order(struct cut *c, struct pl_err *err)
{
	const struct gb *b = c->b;

	for (size_t i = 0; i < b->n_edges; i++)
		c->left[b->edge[i].dst]++;
	for (uint32_t i = 0; i < b->n_nodes; i++)
		c->order[i] = i;
	if (sort_nodes(c, c->order, b->n_nodes, c->left, ANY) != b->n_nodes)
		return report_cycle(c, c->left, err);
	return 0;
}

/* The nodes of one step, v[0] .. v[n - 1], in an order that depends on the step's structure alone.
 */
static void order_step(struct cut *c, int32_t step, uint32_t *v, size_t n)
{
	const struct gb *b = c->b;

	for (size_t i = 0; i < n; i++) {
		c->left[v[i]] = 0;
		for (uint32_t e = c->in.off[v[i]]; e < c->in.off[v[i] + 1]; e++)
			c->left[v[i]] += b->node[b->edge[c->in.to[e]].src].step == step;
	}
	sort_nodes(c, v, n, c->left, step);
}

/* ---- steps
 * ------------------------------------------------------------------------------------------------
 */

/* Step of time t on the rank; *inside: within the annotation, not between two. */
static int32_t step_at(const struct gb *b, const struct rankinfo *rk, pl_ns t, bool *inside)
{
	size_t lo = 0, hi = rk->n_win;

	*inside = true;
	if (b->g->stepless)
		return 0;
	*inside = false;
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (rk->win[mid].start <= t)
			lo = mid + 1;
		else
			hi = mid;
	}
	if (!lo)
		return BEFORE;
	*inside = t < rk->win[lo - 1].end;
	if (!*inside && lo == rk->n_win)
		return (int32_t)b->n_steps;
	return rk->win[lo - 1].step;
}

static void label_steps(struct cut *c)
{
	struct gb *b = c->b;
	bool inside, empty;

	for (size_t i = 0; i < b->n_nodes; i++) {
		struct node *n = &b->node[i];

		if (n->res == PL_NONE)
			continue; /* takes its predecessors' */
		/* what is empty and lies on a window's edge belongs to the step that it ends */
		empty = !n->dur && !(n->flags & PL_NF_STEP_BEGIN) && !b->ri[n->res].device;
		n->step = step_at(b, &b->rank[b->ri[n->res].rank_index], n->start - empty, &inside);
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
				b->node[k].step = step_at(b, rk, rk->call[op->call].start, &inside);
				b->node[k].flags =
					(uint8_t)(inside ? b->node[k].flags | PL_NF_IN_STEP
							 : b->node[k].flags & ~PL_NF_IN_STEP);
			}
		}
	}
}

static void raise_steps(struct cut *c)
{
	struct gb *b = c->b;

	for (size_t i = 0; i < b->n_nodes; i++) {
		uint32_t x = c->order[i];
		int32_t step = b->node[x].res == PL_NONE && !(b->node[x].flags & PL_NF_STEP_BEGIN)
				       ? BEFORE
				       : b->node[x].step;

		for (uint32_t e = c->in.off[x]; e < c->in.off[x + 1]; e++) {
			int32_t s = b->node[b->edge[c->in.to[e]].src].step;

			if (s > step)
				step = s;
		}
		b->node[x].step = step;
	}
}

/* ---- shapes
 * -----------------------------------------------------------------------------------------------
 */

static void shape_free(struct pl_shape *s)
{
	void *p[] = { s->type,	s->role, s->kind,  s->flags, s->res,  s->name, s->group, s->k,
		      s->bytes, s->mb,	 s->chunk, s->layer, s->peer, s->off,  s->src,	 s->etype };

	for (size_t i = 0; i < PL_LEN(p); i++)
		pl_free(p[i]);
	memset(s, 0, sizeof(*s));
}

static int shape_alloc(struct pl_shape *s, size_t nodes, size_t edges, struct pl_err *err)
{
	void *arr[] = { &s->type, &s->role,  &s->kind, &s->flags, &s->res,   &s->name, &s->group,
			&s->off,  &s->bytes, &s->mb,   &s->chunk, &s->layer, &s->peer };
	static const uint8_t size[] = { 1, 1, 1, 1, 4, 4, 4, 4, 8, 4, 4, 4, 4 };
	int rc;

	memset(s, 0, sizeof(*s));
	for (size_t i = 0; i < PL_LEN(arr); i++)
		if ((rc = pl_alloc(arr[i], nodes + 1, size[i], err)) < 0)
			return rc;
	if ((rc = pl_alloc(&s->src, edges, sizeof(*s->src), err)) < 0)
		return rc;
	return pl_alloc(&s->etype, edges, 1, err);
}

static uint64_t shape_hash(const struct pl_shape *s)
{
	uint64_t h = pl_hash(s->type, s->n_nodes);

	h = h * 31 + pl_hash(s->role, s->n_nodes);
	h = h * 31 + pl_hash(s->name, s->n_nodes * sizeof(*s->name));
	h = h * 31 + pl_hash(s->res, s->n_nodes * sizeof(*s->res));
	h = h * 31 + pl_hash(s->off, (s->n_nodes + 1) * sizeof(*s->off));
	h = h * 31 + pl_hash(s->src, s->n_edges * sizeof(*s->src));
	return h * 31 + pl_hash(s->etype, s->n_edges);
}

static bool same_column(const void *a, const void *c, size_t bytes)
{
	return !bytes || !memcmp(a, c, bytes);
}

static bool shape_same(const struct pl_shape *a, const struct pl_shape *c)
{
	size_t n = a->n_nodes, m = a->n_edges;

	return n == c->n_nodes && m == c->n_edges && a->n_entries == c->n_entries &&
	       same_column(a->type, c->type, n) && same_column(a->role, c->role, n) &&
	       same_column(a->kind, c->kind, n) && same_column(a->flags, c->flags, n) &&
	       same_column(a->res, c->res, 4 * n) && same_column(a->name, c->name, 4 * n) &&
	       same_column(a->group, c->group, 4 * n) && same_column(a->bytes, c->bytes, 8 * n) &&
	       same_column(a->mb, c->mb, 4 * n) && same_column(a->chunk, c->chunk, 4 * n) &&
	       same_column(a->layer, c->layer, 4 * n) && same_column(a->peer, c->peer, 4 * n) &&
	       same_column(a->off, c->off, 4 * (n + 1)) && same_column(a->src, c->src, 4 * m) &&
	       same_column(a->etype, c->etype, m);
}

/* An exact copy of what the scratch shape holds. */
static int shape_dup(const struct pl_shape *a, struct pl_shape *s, struct pl_err *err)
{
	size_t n = a->n_nodes, m = a->n_edges;
	int rc = shape_alloc(s, n, m, err);

	if (rc < 0)
		return rc;
	s->n_nodes = a->n_nodes;
	s->n_edges = a->n_edges;
	s->n_entries = a->n_entries;
	memcpy(s->type, a->type, n);
	memcpy(s->role, a->role, n);
	memcpy(s->kind, a->kind, n);
	memcpy(s->flags, a->flags, n);
	memcpy(s->res, a->res, 4 * n);
	memcpy(s->name, a->name, 4 * n);
	memcpy(s->group, a->group, 4 * n);
	memcpy(s->bytes, a->bytes, 8 * n);
	memcpy(s->mb, a->mb, 4 * n);
	memcpy(s->chunk, a->chunk, 4 * n);
	memcpy(s->layer, a->layer, 4 * n);
	memcpy(s->peer, a->peer, 4 * n);
	memcpy(s->off, a->off, 4 * (n + 1));
	memcpy(s->src, a->src, 4 * m);
	memcpy(s->etype, a->etype, m);
	return 0;
}

static int find_shape(struct cut *c, uint32_t *id, struct pl_err *err)
{
	struct pl_graph *g = c->b->g;
	uint64_t h = shape_hash(&c->s);
	int rc;

	for (size_t i = 0; i < g->n_shapes; i++) {
		if (c->hash[i] == h && shape_same(&g->shape[i], &c->s)) {
			*id = (uint32_t)i;
			return 0;
		}
	}
	if ((rc = pl_grow(&g->shape, &g->cap_shapes, g->n_shapes + 1, sizeof(*g->shape), err)) <
		    0 ||
	    (rc = pl_grow(&c->hash, &c->cap_hash, g->n_shapes + 1, sizeof(*c->hash), err)) < 0)
		return rc;
	if (c->cap_nodes - c->s.n_nodes <= c->s.n_nodes / 8 + g->n_res) { /* it fits: moved */
		g->shape[g->n_shapes] = c->s;
		memset(&c->s, 0, sizeof(c->s));
		c->cap_nodes = c->cap_edges = 0;
	} else if ((rc = shape_dup(&c->s, &g->shape[g->n_shapes], err)) < 0) {
		shape_free(&g->shape[g->n_shapes]);
		return rc;
	}
	c->hash[g->n_shapes] = h;
	*id = (uint32_t)g->n_shapes++;
	return 0;
}

/* ---- one step
 * ---------------------------------------------------------------------------------------------- */

/* May the edge be kept as one from the entry of its resource? */
static bool carried(const struct cut *c, const struct edge *e)
{
	const struct node *src = &c->b->node[e->src], *dst = &c->b->node[e->dst];

	return src->res != PL_NONE && PL_E_TYPE(e->type) != PL_E_EARLY &&
	       PL_E_TYPE(e->type) != PL_E_START && c->tail[src->res] <= dst->start + 2000;
}

static void find_entries(struct cut *c, int32_t step, size_t from, size_t to)
{
	struct gb *b = c->b;
	struct pl_shape *s = &c->s;

	memset(c->entry, 0xff, b->g->n_res * sizeof(*c->entry));
	for (size_t i = from; i < to; i++) {
		uint32_t x = c->order[i];

		for (uint32_t e = c->in.off[x]; e < c->in.off[x + 1]; e++) {
			const struct edge *ed = &b->edge[c->in.to[e]];

			if (b->node[ed->src].step != step && carried(c, ed))
				c->entry[b->node[ed->src].res] = 0;
		}
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
		s->bytes[n] = -1;
		s->mb[n] = s->chunk[n] = s->layer[n] = s->peer[n] = -1;
		s->off[n] = 0;
	}
	s->n_entries = s->n_nodes;
}

static void put_node(struct cut *c, uint32_t x)
{
	const struct node *n = &c->b->node[x];
	struct pl_shape *s = &c->s;
	uint32_t i = s->n_nodes++;

	c->local[x] = i;
	s->type[i] = n->type;
	s->role[i] = n->role;
	s->kind[i] = n->kind;
	s->flags[i] = n->flags;
	s->res[i] = n->res;
	s->name[i] = n->name;
	s->group[i] = n->group;
	s->bytes[i] = n->bytes;
	s->mb[i] = n->mb;
	s->chunk[i] = n->chunk;
	s->layer[i] = n->layer;
	s->peer[i] = n->peer;
	s->off[i] = s->n_edges;
}

static void put_edges(struct cut *c, int32_t step, uint32_t x)
{
	struct gb *b = c->b;
	struct pl_shape *s = &c->s;
	uint32_t first = s->n_edges;
	bool few = c->in.off[x + 1] - c->in.off[x] <= 16;

	for (uint32_t e = c->in.off[x]; e < c->in.off[x + 1]; e++) {
		const struct edge *ed = &b->edge[c->in.to[e]];
		uint32_t src;

		if (b->node[ed->src].step == step)
			src = c->local[ed->src];
		else if (carried(c, ed))
			src = c->entry[b->node[ed->src].res];
		else {
			b->g->dropped_edges++;
			continue;
		}
		/* several may come from one entry; a wait may have been found twice */
		for (uint32_t k = first; k < s->n_edges && (src < s->n_entries || few); k++)
			if (s->src[k] == src && s->etype[k] == ed->type)
				src = PL_NONE;
		if (src == PL_NONE)
			continue;
		s->src[s->n_edges] = src;
		s->etype[s->n_edges++] = ed->type;
	}
}

/* Room for a step's nodes, entries and edges. */
static int make_room(struct cut *c, size_t from, size_t to, struct pl_err *err)
{
	size_t nodes = to - from + c->b->g->n_res, edges = 0;
	int rc;

	for (size_t i = from; i < to; i++)
		edges += c->in.off[c->order[i] + 1] - c->in.off[c->order[i]];
	if (nodes <= c->cap_nodes && edges <= c->cap_edges)
		return 0;
	shape_free(&c->s);
	c->cap_nodes = c->cap_edges = 0;
	if ((rc = shape_alloc(&c->s, nodes, edges, err)) < 0)
		return rc;
	c->cap_nodes = nodes;
	c->cap_edges = edges;
	return 0;
}

static int put_step(struct cut *c, int32_t step, size_t from, size_t to, struct pl_err *err)
{
	struct gb *b = c->b;
	struct pl_graph *g = b->g;
	struct pl_shape *s = &c->s;
	struct pl_gstep *st;
	int rc;

	order_step(c, step, c->order + from, to - from);
	if ((rc = make_room(c, from, to, err)) < 0)
		return rc;
	find_entries(c, step, from, to);
	s->n_edges = 0;
	for (size_t i = from; i < to; i++) {
		put_node(c, c->order[i]);
		put_edges(c, step, c->order[i]);
	}
	s->off[s->n_nodes] = s->n_edges;
	if ((rc = pl_grow(&g->step, &g->cap_steps, g->n_steps + 1, sizeof(*g->step), err)) < 0)
		return rc;
	st = &g->step[g->n_steps];
	memset(st, 0, sizeof(*st));
	st->number = step < 0 || step >= (int32_t)b->n_steps ? INT64_MIN : b->step[step];
	if ((rc = find_shape(c, &st->shape, err)) < 0)
		return rc;
	g->n_steps++;
	if (step >= 0 && step < (int32_t)b->n_steps)
		b->step_shape[step] = st->shape;
	s = &g->shape[st->shape];
	if ((rc = pl_alloc(&st->start, s->n_nodes, sizeof(*st->start), err)) < 0 ||
	    (rc = pl_alloc(&st->dur, s->n_nodes, sizeof(*st->dur), err)) < 0)
		return rc;
	for (uint32_t i = 0; i < s->n_entries; i++)
		st->start[i] = c->tail[s->res[i]] - c->epoch;
	for (size_t i = from; i < to; i++) {
		const struct node *n = &b->node[c->order[i]];
		uint32_t k = c->local[c->order[i]];

		st->start[k] = n->start - c->epoch;
		st->dur[k] = n->dur;
		if (n->res != PL_NONE)
			c->tail[n->res] = pl_max_i64(c->tail[n->res], n->start + n->dur);
	}
	return 0;
}

/* Counting sort of all nodes by step, by id within; step s is at start[s + 1] .. start[s + 2]. */
static void by_step(struct cut *c, size_t *start)
{
	struct gb *b = c->b;

	for (size_t i = 0; i < b->n_nodes; i++)
		start[b->node[i].step + 2]++;
	for (size_t s = 0; s < b->n_steps + 2; s++)
		start[s + 1] += start[s];
	for (uint32_t i = 0; i < b->n_nodes; i++)
		c->order[start[b->node[i].step + 1]++] = i;
	memmove(start + 1, start, (b->n_steps + 2) * sizeof(*start));
	start[0] = 0;
}

static int rank_list(struct gb *b, struct pl_err *err)
{
	struct pl_graph *g = b->g;
	int rc = pl_alloc(&g->rank, b->n_ranks, sizeof(*g->rank), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < b->n_ranks; i++) {
		size_t k = i;

		for (; k && g->rank[k - 1] > b->rank[i].rank; k--)
			g->rank[k] = g->rank[k - 1];
		g->rank[k] = b->rank[i].rank;
	}
	g->n_ranks = (int32_t)b->n_ranks;
	return 0;
}

static void cut_fini(struct cut *c)
{
	pl_free(c->out.off);
	pl_free(c->out.to);
	pl_free(c->in.off);
	pl_free(c->in.to);
	pl_free(c->order);
	pl_free(c->left);
	pl_free(c->stack);
	pl_free(c->local);
	pl_free(c->entry);
	pl_free(c->tail);
	pl_free(c->hash);
	shape_free(&c->s);
}

int gb_cut(struct gb *b, struct pl_err *err)
{
	struct cut c = { .b = b, .epoch = INT64_MAX };
	size_t *start = NULL;
	int rc;

	PL_TRY(rank_list(b, err));
	PL_TRY(build_csr(b, &c.out, true, err));
	PL_TRY(build_csr(b, &c.in, false, err));
	PL_TRY(pl_alloc(&c.order, b->n_nodes, sizeof(*c.order), err));
	PL_TRY(pl_alloc(&c.left, b->n_nodes, sizeof(*c.left), err));
	PL_TRY(pl_alloc(&c.stack, b->n_nodes, sizeof(*c.stack), err));
	PL_TRY(pl_alloc(&c.local, b->n_nodes, sizeof(*c.local), err));
	PL_TRY(pl_alloc(&c.entry, b->g->n_res, sizeof(*c.entry), err));
	PL_TRY(pl_alloc(&c.tail, b->g->n_res, sizeof(*c.tail), err));
	PL_TRY(pl_alloc(&start, b->n_steps + 4, sizeof(*start), err));
	PL_TRY(pl_alloc(&b->step_shape, b->n_steps, sizeof(*b->step_shape), err));
	memset(b->step_shape, 0xff, b->n_steps * sizeof(*b->step_shape));
	PL_TRY(order(&c, err));
	label_steps(&c);
	raise_steps(&c);
	by_step(&c, start);
	for (size_t i = 0; i < b->n_nodes; i++)
		c.epoch = pl_min_i64(c.epoch, b->node[i].start);
	b->g->epoch_ns = b->n_nodes ? c.epoch : 0;
	for (size_t r = 0; r < b->g->n_res; r++)
		c.tail[r] = INT64_MIN;
	for (size_t s = 0; s < b->n_steps + 2; s++)
		if (start[s + 1] > start[s])
			PL_TRY(put_step(&c, (int32_t)s - 1, start[s], start[s + 1], err));
	b->local = c.local;
	c.local = NULL;
out:
	pl_free(start);
	cut_fini(&c);
	return rc;
}
