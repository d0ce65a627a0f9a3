/*
 * Recorded allocations as tensors of the shapes.
 *
 * Each shape has the allocations of its first step. The node that allocates a tensor is its
 * producer, and the node after which its memory is free is its consumer. Tensors with the same
 * producer, consumer and purpose are one tensor. A tensor from before the step that is freed in the
 * step has no producer. Tensors that stay during the whole step have neither: parameters (as many
 * bytes as gradients) and optimiser state, if the recording shows them.
 *
 * The allocation of a gradient is found by its size: it was made before the gradient was
 * accumulated, and is in use when the last gradient of its backward pass is ready. The tensor of
 * the allocation then takes memory, and the tensor that communication carries is marked as taking
 * none. A gradient without such an allocation was added to an existing one.
 *
 * Each rank and shape keeps at most LIMIT tensors, the largest. The peak of the other tensors
 * counts during the whole step. O(n log n) in allocations, for each shape.
 */
#include "derive/memory.h"

#define LIMIT	 4096
#define BLOCK	 512  /* PyTorch's allocator of device memory gives multiples of that */
#define BEHIND	 8192 /* allocations searched for that of a gradient */
#define NAME_MAX 160

struct item {
	pl_ns from, to;
	int64_t bytes;
	uint32_t producer, consumer; /* of the builder, PL_NONE */
	pl_id name;
	uint8_t role, flags;
};
struct put {
	struct builder *b;
	struct mem_rank *m;
	uint32_t *last; /* [step]: the node of the rank that ends last */
	struct item *item;
	size_t n, cap;
	int32_t step;
	int64_t stays; /* bytes made before the step and freed after it, in the recording */
	int64_t grads;
	pl_id s_activation, s_temporary, s_gradient;
};

/* ---- gradients ------------------------------------------------------------------------------- */

static bool fits(const struct builder *b, const struct mem_alloc *a, const struct grad *g,
		 pl_ns last)
{
	int64_t blocks = (g->bytes + BLOCK - 1) / BLOCK * BLOCK;

	return !a->grad && !a->inner && a->first != PL_NONE && a->to > last &&
	       (a->bytes == g->bytes || a->bytes == blocks) && b->node_step[a->first] == g->step;
}

/* When autograd is done with the gradient. */
static pl_ns done_with(const struct builder *b, const struct mem_rank *m, const struct grad *g)
{
	pl_ns end = pl_derive_end(b, g->op);

	for (size_t i = m->n_back; i-- > 0 && m->back[i].end >= g->start;)
		if (m->back[i].start <= g->start && m->back[i].res == b->node[g->op].res)
			end = pl_max_i64(end, m->back[i].end);
	return end;
}

/* The last of the gradients g[i] .. g[n - 1] that are made before the next activation is: those of
 * one backward pass. */
static size_t last_of_pass(const struct mem_rank *m, const struct grad *g, size_t i, size_t n)
{
	size_t k = 0;

	PL_LOWER_BOUND(k, m->n_allocs, m->alloc[k].from <= g[i].end);
	while (k < m->n_allocs && !m->alloc[k].kept)
		k++;
	while (k < m->n_allocs && i + 1 < n && g[i + 1].start < m->alloc[k].from)
		i++;
	return k < m->n_allocs ? i : n - 1;
}

void pl_derive_memory_grads(struct builder *b, size_t rank, struct grad *g, size_t n)
{
	struct mem_rank *m = b->memory ? &b->memory[rank] : NULL;
	size_t end_of_pass = 0;
	bool any = false;
	pl_ns last = 0;

	if (!m || !m->known || !n)
		return;
	for (size_t i = 0; i < n; i++) {
		pl_ns end = pl_derive_end(b, g[i].op);
		size_t lo = 0;

		if (!i || i > end_of_pass) {
			end_of_pass = last_of_pass(m, g, i, n);
			last = done_with(b, m, &g[end_of_pass]);
		}
		PL_LOWER_BOUND(lo, m->n_allocs, m->alloc[lo].from <= end);
		for (size_t k = lo; g[i].bytes > 0 && k-- > 0 && lo - k <= BEHIND;) {
			if (!fits(b, &m->alloc[k], &g[i], last))
				continue;
			m->alloc[k].grad = any = true;
			break;
		}
	}
	for (size_t i = 0; any && i < n; i++)
		g[i].elsewhere = true;
}

/* ---- items ----------------------------------------------------------------------------------- */

static void add(struct put *p, struct item x)
{
	PL_DERIVE_ADD(p->b->err, p->item, p->n, p->cap, x);
}

static int32_t step_of(const struct builder *b, uint32_t node)
{
	return node == PL_NONE ? INT32_MIN : b->node_step[node];
}

static void set_name(struct put *p, size_t i, struct item *x)
{
	const struct mem_alloc *a = &p->m->alloc[i];
	const struct mem_range *r = a->range == PL_NONE ? NULL : &p->m->range[a->range];
	struct pl_intern *str = &p->b->g->str;
	char text[NAME_MAX];

	x->name = a->kept ? p->s_activation : a->grad ? p->s_gradient : p->s_temporary;
	if (!a->kept || !r || r->name == PL_NONE || r->layer < 0)
		return;
	x->name = r->name;
	if (r->output != i)
		return;
	x->flags = PL_TF_OUTPUT;
	snprintf(text, sizeof(text), "output of %.140s", pl_intern_get(str, r->name));
	x->name = pl_derive_intern_text(p->b->err, str, text);
}

static void add_alloc(struct put *p, size_t i)
{
	const struct builder *b = p->b;
	const struct mem_alloc *a = &p->m->alloc[i];
	int32_t made = step_of(b, a->first), gone = step_of(b, a->freed);
	struct item x = { a->from, a->to, a->bytes, PL_NONE, p->last[p->step], PL_NONE, 0, 0 };

	if (a->inner || (a->first == PL_NONE && a->from != INT64_MIN))
		return;
	if (a->freed == PL_NONE)
		gone = INT32_MAX;
	if (made > p->step || gone < p->step)
		return;
	if (made < p->step && gone > p->step) {
		p->stays = pl_add_sat(p->stays, a->from == INT64_MIN ? 0 : a->bytes);
		return;
	}
	if (made == p->step)
		x.producer = a->first;
	if (gone == p->step)
		x.consumer = step_of(b, a->last) == p->step ? a->last : a->freed;
	x.role = a->kept ? PL_TR_ACTIVATION : a->grad ? PL_TR_GRAD : PL_TR_TEMP;
	if (a->grad)
		p->grads = pl_add_sat(p->grads, a->bytes);
	set_name(p, i, &x);
	add(p, x);
}

PL_COMPARATOR(by_nodes, struct item, producer, consumer, name, role);

static int by_size(const void *pa, const void *pb)
{
	const struct item *a = pa, *c = pb;
	int order = PL_COMPARE(c->bytes, a->bytes);

	return order ? order : by_nodes(pa, pb);
}

static void unite(struct put *p)
{
	size_t n = 0;

	pl_sort(p->item, p->n, sizeof(*p->item), by_nodes);
	for (size_t i = 0; i < p->n; i++) {
		if (n && !by_nodes(&p->item[n - 1], &p->item[i]))
			p->item[n - 1].bytes = pl_add_sat(p->item[n - 1].bytes, p->item[i].bytes);
		else
			p->item[n++] = p->item[i];
	}
	p->n = n;
}

struct change {
	pl_ns at;
	int64_t bytes;
};

PL_COMPARATOR(by_at, struct change, at, bytes);

/* Drops the items from LIMIT on. Returns the most bytes that they take at a time. */
static int64_t limit(struct put *p)
{
	struct change *v;
	size_t n = p->n > LIMIT ? p->n - LIMIT : 0;
	int64_t sum = 0, most = 0;

	if (!n || pl_alloc(&v, 2 * n, sizeof(*v), p->b->err) < 0)
		return 0;
	pl_sort(p->item, p->n, sizeof(*p->item), by_size);
	for (size_t i = 0; i < n; i++) {
		const struct item *x = &p->item[LIMIT + i];

		v[2 * i] = (struct change){ x->from, x->bytes };
		v[2 * i + 1] = (struct change){ x->to, -x->bytes };
	}
	pl_sort(v, 2 * n, sizeof(*v), by_at);
	for (size_t i = 0; i < 2 * n; i++) {
		sum = pl_add_sat(sum, v[i].bytes);
		most = pl_max_i64(most, sum);
	}
	p->n = LIMIT;
	pl_free(v);
	return most;
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void put_tensor(struct put *p, const struct item *x)
{
	const uint32_t *local = p->b->local;
	const struct pl_tensor t = { .name = x->name,
				     .type = PL_NONE,
				     .role = x->role,
				     .flags = x->flags,
				     .bytes = x->bytes,
				     .shape = p->b->step_shape[p->step],
				     .producer = x->producer == PL_NONE ? PL_NONE
									: local[x->producer] };

	pl_derive_put_tensor(p->b->g, &t, x->consumer == PL_NONE ? NULL : &local[x->consumer],
			     x->consumer != PL_NONE, p->b->err);
}

/* Memory that is in use during the whole step. */
static void put_whole(struct put *p, const char *name, unsigned role, int64_t bytes)
{
	struct item x = { .bytes = bytes,
			  .producer = PL_NONE,
			  .consumer = p->last[p->step],
			  .role = (uint8_t)role };

	if (bytes <= 0)
		return;
	x.name = pl_derive_intern_text(p->b->err, &p->b->g->str, name);
	put_tensor(p, &x);
}

/*
 * Memory that stays from step to step. If memory was in use when the recording began, the recording
 * shows all of it: the parameters, which have as many bytes as the gradients, and optimiser state.
 * If no memory was in use, the recording shows at most optimiser state. It is such state only if it
 * has at least half as many bytes as the gradients.
 */
static void put_base(struct put *p)
{
	int64_t base = pl_add_sat(p->m->before, p->stays), params;

	for (size_t i = 0; i < p->m->n_allocs && p->m->alloc[i].from == INT64_MIN; i++)
		if (step_of(p->b, p->m->alloc[i].freed) <= p->step)
			base = pl_add_sat(base, -p->m->alloc[i].bytes);
	if (!p->m->before) {
		bool state = p->grads && base >= p->grads / 2;

		put_whole(p, state ? "optimizer state" : "kept from step to step",
			  state ? PL_TR_OPTIM : PL_TR_TEMP, base);
		return;
	}
	params = p->grads ? pl_min_i64(p->grads, base) : base;
	put_whole(p, "parameters", PL_TR_PARAM, params);
	put_whole(p, "optimizer state", PL_TR_OPTIM, pl_max_i64(base - params, 1));
}

static void one_step(struct put *p)
{
	int64_t rest;

	p->n = 0;
	p->stays = p->grads = 0;
	for (size_t i = 0; i < p->m->n_allocs; i++)
		add_alloc(p, i);
	for (size_t i = 0; i < p->m->n_inner; i++) {
		const struct mem_inner *in = &p->m->inner[i];

		if (step_of(p->b, in->node) == p->step)
			add(p, (struct item){ .bytes = in->bytes,
					      .from = p->b->node[in->node].start,
					      .to = pl_derive_end(p->b, in->node),
					      .producer = in->node,
					      .consumer = PL_NONE,
					      .name = p->s_temporary,
					      .role = PL_TR_TEMP });
	}
	unite(p);
	rest = limit(p);
	put_base(p);
	put_whole(p, "small tensors", PL_TR_TEMP, rest);
	for (size_t i = 0; i < p->n; i++)
		put_tensor(p, &p->item[i]);
}

/* The node of the rank's threads and streams that ends each step last. */
static void find_ends(struct put *p, const struct rank *rank)
{
	const struct builder *b = p->b;
	int rc;

	PL_TRY(pl_alloc(&p->last, b->n_steps + 1, sizeof(*p->last), p->b->err));
	memset(p->last, 0xff, (b->n_steps + 1) * sizeof(*p->last));
	for (size_t k = 0; k < rank->n_res; k++) {
		const struct resource *resource = &b->resource[rank->res[k]];

		for (uint32_t i = resource->node0; i < resource->node1; i++) {
			int32_t s = b->node_step[i];

			if (s < 0 || s >= (int32_t)b->n_steps)
				continue;
			if (p->last[s] == PL_NONE ||
			    pl_derive_end(b, i) >= pl_derive_end(b, p->last[s]))
				p->last[s] = i;
		}
	}
out:;
}

static void one_rank(struct builder *b, size_t rank)
{
	struct put p = { .b = b, .m = &b->memory[rank] };
	struct pl_intern *str = &b->g->str;

	p.s_activation = pl_derive_intern_text(b->err, str, "activation");
	p.s_temporary = pl_derive_intern_text(b->err, str, "temporary");
	p.s_gradient = pl_derive_intern_text(b->err, str, "gradient");
	find_ends(&p, &b->rank[rank]);
	for (; p.step < (int32_t)b->n_steps && !b->err->code; p.step++)
		if (pl_derive_shows_step(b, p.step) && p.last[p.step] != PL_NONE)
			one_step(&p);
	pl_free(p.item);
	pl_free(p.last);
}

void pl_derive_put_memory(struct builder *b)
{
	for (size_t r = 0; b->memory && r < b->n_ranks && !b->err->code; r++)
		if (b->memory[r].known)
			one_rank(b, r);
}
