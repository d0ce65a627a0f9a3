/*
 * Which operations are the layers of a transformer, by operators, sizes and order.
 *
 * The operations of a rank, in the order in which they run, are cut into passes. In a forward pass
 * products with weights are read in turn. The first one behind an operation on whole rows
 * (normalisation, embedding) begins a pair. Others that read as many columns belong to it. The one
 * that makes as many columns as the first one read ends it: that is clear if it reads another
 * number of columns, or if attention stands between. What stands between belongs to the pair. A
 * product alone behind all pairs, which makes more columns than it reads, makes the logits.
 *
 * The backward pass has the products of the forward pass from the last to the first, each up to
 * twice: for the gradient of the input and of the weights. The operations behind those of a pair's
 * second product, up to the last of its first products, belong to the pair.
 *
 * O(n log n) in operations.
 */
#include "rewrite/rewrite_blocks.h"
#include "rewrite/rewrite_internal.h"

enum what { PLAIN, PRODUCT, BATCHED, ROWS_WHOLE, TABLE };

struct op {
	uint32_t node;
	uint8_t what;
	struct rw_product p;
	int64_t head; /* BATCHED: columns of a head */
};
struct product { /* with weights, in a forward pass */
	uint32_t node;
	uint8_t part;
	uint32_t block; /* PL_NONE: it stays whole */
	uint32_t seen;	/* in the backward pass */
	int64_t m, k, n;
};
struct forward { /* a forward pass */
	int32_t mb, chunk;
	size_t first, n; /* into finder.product */
	uint32_t table;	 /* node of the first embedding, PL_NONE */
	bool used;
};
struct turn { /* a computing node */
	uint32_t step, rank;
	pl_ns start;
	uint32_t node;
};
PL_COMPARATOR(by_turn, struct turn, step, rank, start, node);

struct finder {
	const struct pl_edit *e;
	int64_t degree;
	struct rw_blocks *b;
	struct pl_err *err;
	struct op *op; /* of a pass */
	struct product *product;
	struct forward *pass;
	size_t n_ops, cap_ops, n_products, cap_products, n_passes, cap_passes;
};
/* The products of a pair so far, in a forward pass. */
struct group {
	size_t first, n; /* into finder.product */
	size_t op;	 /* the first product's place */
	int64_t head;	 /* of attention, 0: there is none */
};

/* ---- sizes ----------------------------------------------------------------------------------- */

bool pl_rewrite_sizes(const struct pl_edit *e, const struct pl_gwork *w, struct rw_sizes *s)
{
	const char *text = w && w->dims != PL_NONE ? pl_edit_name(e, w->dims) : "";

	s->n = 0;
	while (s->n < RW_TENSORS_MAX && pl_dims_next(&text, &s->t[s->n])) {
		if (s->t[s->n].n > PL_DIMS_MAX)
			return false;
		s->n++;
	}
	return s->n > 0 && s->n < RW_TENSORS_MAX;
}

bool pl_rewrite_sizes_text(const struct rw_sizes *s, char *text, size_t size)
{
	size_t n = 0;

	for (int i = 0; i < s->n && n < size; i++) {
		n += (size_t)snprintf(text + n, size - n, i ? ",[" : "[[");
		for (int k = 0; k < s->t[i].n && n < size; k++)
			n += (size_t)snprintf(text + n, size - n, k ? ",%lld" : "%lld",
					      (long long)s->t[i].size[k]);
		if (n < size)
			n += (size_t)snprintf(text + n, size - n, "]");
	}
	if (n < size)
		n += (size_t)snprintf(text + n, size - n, "]");
	return n < size;
}

/* The two factors are the last tensors of two sizes or more; weights may be transposed. */
bool pl_rewrite_product(const struct rw_sizes *s, struct rw_product *p)
{
	const struct pl_dims *a, *b;
	int64_t batch = 1;

	*p = (struct rw_product){ .a = -1, .b = -1 };
	for (int i = 0; i < s->n; i++)
		if (s->t[i].n >= 2 && s->t[i].elements > 0) {
			p->a = p->b;
			p->b = i;
		}
	if (p->a < 0)
		return false;
	a = &s->t[p->a];
	b = &s->t[p->b];
	p->sum = a->size[a->n - 1];
	p->batched = b->n > 2;
	p->sum_axis = b->size[b->n - 2] == p->sum ? b->n - 2 : b->n - 1;
	if (b->size[p->sum_axis] != p->sum)
		return false;
	p->columns = b->size[p->sum_axis == b->n - 1 ? b->n - 2 : b->n - 1];
	for (int i = 0; p->batched && i < a->n - 2; i++)
		batch *= a->size[i];
	p->rows = a->elements / (p->sum * batch);
	return true;
}

/* ---- operations ------------------------------------------------------------------------------ */

static int refuse(const struct finder *f, uint32_t node, const char *why)
{
	const struct pl_gwork *w = pl_edit_work(f->e, node);

	return pl_fail(f->err, PL_EDATA, "\"%.80s\" of %.120s: %s",
		       pl_edit_name(f->e, f->e->node[node].name),
		       w && w->dims != PL_NONE ? pl_edit_name(f->e, w->dims) : "unknown sizes",
		       why);
}

static struct op describe(const struct finder *f, uint32_t node)
{
	const struct pl_gwork *w = pl_edit_work(f->e, node);
	struct op x = { .node = node };
	struct rw_sizes s;
	bool sizes = pl_rewrite_sizes(f->e, w, &s);

	switch (w ? w->op : PL_OP_UNKNOWN) {
	case PL_OP_MATMUL:
	case PL_OP_ATTENTION:
		if (!sizes || !pl_rewrite_product(&s, &x.p))
			break;
		x.what = x.p.batched || w->op == PL_OP_ATTENTION ? BATCHED : PRODUCT;
		x.head = x.p.sum;
		break;
	case PL_OP_NORMALIZATION:
		x.what = ROWS_WHOLE;
		break;
	case PL_OP_EMBEDDING:
		x.what = TABLE;
		break;
	default:
		break;
	}
	return x;
}

/* The type of the elements of an operation. */
static pl_id type_of(const struct finder *f, uint32_t node)
{
	const struct pl_gwork *w = pl_edit_work(f->e, node);

	return w ? w->type : PL_NONE;
}

static int add_reduction(struct finder *f, uint32_t after, uint32_t before, uint32_t block,
			 bool backward)
{
	const struct rw_reduction x = { after, before, block, type_of(f, after), backward };

	return pl_append(&f->b->reduce, &f->b->n_reduce, &f->b->cap_reduce, &x, sizeof(x), f->err);
}

static void set(struct finder *f, uint32_t node, unsigned part, unsigned pass, uint32_t block,
		const struct product *p)
{
	f->b->of[node] =
		(struct rw_division){ (uint8_t)part, (uint8_t)pass, block, p->m, p->k, p->n };
}

/* ---- forward --------------------------------------------------------------------------------- */

static int check_block(const struct finder *f, const struct group *x, const struct rw_block *b)
{
	const struct product *p = &f->product[x->first];
	int64_t d = f->degree;

	for (size_t i = 0; i < x->n; i++)
		if (p[i].n % d || p[i].m != b->m)
			return refuse(f, p[i].node,
				      p[i].n % d
					      ? "its columns cannot be divided into so many parts"
					      : "it has other rows than the product before it");
	if (b->sum % d)
		return refuse(f, p[x->n].node, "its rows cannot be divided into so many parts");
	if (!x->head)
		return 0;
	if (b->sum % x->head || (b->sum / x->head) % d)
		return pl_fail(f->err, PL_EDATA,
			       "an attention of %lld heads cannot be divided into %lld parts",
			       (long long)(b->sum / x->head), (long long)d);
	for (size_t i = 0; i < x->n; i++)
		if (p[i].n % x->head || p[i].n / x->head % d)
			return refuse(f, p[i].node,
				      "its heads cannot be divided into so many parts");
	return 0;
}

/* The group and the product behind it, which is that of operation `at`, are a pair. */
static int end_pair(struct finder *f, const struct group *x, size_t at, uint32_t next)
{
	struct product *p = &f->product[x->first];
	const struct product *last = &p[x->n];
	struct rw_block b = { .m = p->m, .width = p->k, .sum = last->k };
	uint32_t id = (uint32_t)f->b->n_blocks;

	if (x->n > RW_COLUMNS_MAX)
		return refuse(f, p->node, "too many products read the same input");
	for (size_t i = 0; i < x->n; i++)
		b.n[b.n_columns++] = p[i].n;
	b.heads = x->head ? last->k / x->head : 0;
	PL_CHECK(check_block(f, x, &b));
	PL_CHECK(
		pl_append(&f->b->block, &f->b->n_blocks, &f->b->cap_blocks, &b, sizeof(b), f->err));
	for (size_t i = x->op; i < at; i++)
		set(f, f->op[i].node, RW_INNER, RW_FORWARD, id, last);
	for (size_t i = 0; i <= x->n; i++) {
		p[i].part = i < x->n ? RW_COLUMNS : RW_ROWS;
		p[i].block = id;
		set(f, p[i].node, p[i].part, RW_FORWARD, id, &p[i]);
	}
	return add_reduction(f, last->node, next, id, false);
}

/* The product makes the logits, up to operation `end`: its columns are the vocabulary. */
static int end_logits(struct finder *f, const struct group *x, struct forward *pass, size_t end)
{
	struct product *p = &f->product[x->first];
	const struct rw_block b = {
		.m = p->m, .width = p->k, .n = { p->n }, .n_columns = 1, .vocabulary = true
	};
	uint32_t id = (uint32_t)f->b->n_blocks;

	PL_CHECK(
		pl_append(&f->b->block, &f->b->n_blocks, &f->b->cap_blocks, &b, sizeof(b), f->err));
	for (size_t i = x->op; i < end; i++)
		set(f, f->op[i].node, RW_INNER, RW_FORWARD, id, p);
	f->b->width = p->k;
	f->b->vocabulary = p->n;
	p->part = RW_COLUMNS;
	p->block = id;
	set(f, p->node, RW_COLUMNS, RW_FORWARD, id, p);
	for (size_t i = 0; i + 1 < f->n_ops; i++)
		if (f->op[i].node == pass->table)
			PL_CHECK(add_reduction(f, pass->table, f->op[i + 1].node, id, false));
	pass->table = PL_NONE;
	return 0;
}

/* Does the product bring back the width that the group read? */
static bool brings_back(const struct finder *f, const struct group *x, const struct rw_product *p)
{
	int64_t width = x->n ? f->product[x->first].k : 0;

	return x->n && p->columns == width && (p->sum != width || x->head > 0);
}

/* A group without a second product, which ends before operation `end`. *alone: such a product
 * behind pairs. */
static int end_group(struct finder *f, struct group *x, struct forward *pass, size_t end,
		     uint32_t *alone)
{
	const struct product *p = x->n ? &f->product[x->first] : NULL;

	if (x->n > 1)
		return refuse(
			f, p->node,
			"other products read the same input, but none behind them brings back "
			"its width, so this is no layer of a transformer");
	if (p && f->b->n_blocks) {
		*alone = p->node;
		if (p->n > p->k && !x->head)
			PL_CHECK(end_logits(f, x, pass, end));
	}
	x->n = 0;
	x->head = 0;
	return 0;
}

static int read_product(struct finder *f, struct group *x, struct forward *pass, size_t at,
			uint32_t next, uint32_t *alone)
{
	const struct op *o = &f->op[at];
	const struct product p = {
		.node = o->node, .block = PL_NONE, .m = o->p.rows, .k = o->p.sum, .n = o->p.columns
	};
	bool ends;

	if (x->n && p.m != f->product[x->first].m)
		PL_CHECK(end_group(f, x, pass, at, alone));
	ends = brings_back(f, x, &o->p);
	PL_CHECK(pl_append(&f->product, &f->n_products, &f->cap_products, &p, sizeof(p), f->err));
	if (ends && *alone != PL_NONE)
		return refuse(
			f, *alone,
			"it stands between the layers and has no partner, so its place is not "
			"known");
	if (ends) {
		PL_CHECK(end_pair(f, x, at, next));
		*x = (struct group){ 0 };
		return 0;
	}
	if (x->n && p.k != f->product[x->first].k)
		return refuse(f, o->node,
			      "it reads neither what the product before it reads nor brings that "
			      "back, so this is no layer of a transformer");
	if (!x->n)
		*x = (struct group){ .first = f->n_products - 1, .op = at };
	x->n++;
	return 0;
}

/* next: the node behind the pass, PL_NONE. */
static int read_forward(struct finder *f, struct forward pass, uint32_t next)
{
	struct group x = { 0 };
	uint32_t alone = PL_NONE;

	pass.first = f->n_products;
	pass.table = PL_NONE;
	for (size_t i = 0; i < f->n_ops; i++) {
		const struct op *o = &f->op[i];

		if (o->what == PRODUCT)
			PL_CHECK(read_product(f, &x, &pass, i,
					      i + 1 < f->n_ops ? f->op[i + 1].node : next, &alone));
		else if (o->what == BATCHED && x.n && !x.head)
			x.head = o->head;
		else if (o->what == ROWS_WHOLE || o->what == TABLE)
			PL_CHECK(end_group(f, &x, &pass, i, &alone));
		if (o->what == TABLE && pass.table == PL_NONE)
			pass.table = o->node;
	}
	PL_CHECK(end_group(f, &x, &pass, f->n_ops, &alone));
	pass.n = f->n_products - pass.first;
	return pl_append(&f->pass, &f->n_passes, &f->cap_passes, &pass, sizeof(pass), f->err);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Which gradients of the product this one makes; false: it is another one's. */
static bool is_of(const struct finder *f, const struct op *o, const struct product *p,
		  uint8_t *pass)
{
	const struct rw_product *x = &o->p;
	unsigned phase = f->e->node[o->node].phase;
	bool input = x->rows == p->m && x->sum == p->n && x->columns == p->k;
	bool weight = x->sum == p->m && ((x->rows == p->k && x->columns == p->n) ||
					 (x->rows == p->n && x->columns == p->k));

	*pass = RW_BOTH_GRADS;
	if (x->a > 0 && x->rows == p->m && x->sum == p->k && x->columns == p->n)
		return p->seen == 0;
	*pass = input && (!weight || p->seen == 0) ? RW_INPUT_GRAD : RW_WEIGHT_GRAD;
	if (input && weight && phase == PL_PH_WEIGHT_GRAD)
		*pass = RW_WEIGHT_GRAD;
	return (input || weight) && p->seen < 2;
}

struct backward {
	struct forward *pass;
	size_t at;	 /* products of the pass from here on were met */
	uint32_t reduce; /* the gradient of the input of a pair's last product so far, PL_NONE */
	uint32_t before; /* the node behind it */
	uint32_t block;	 /* which pair that is */
};

/* The gradient of a pair's input is whole when all its parts are added up. */
static int end_input(struct finder *f, struct backward *x)
{
	uint32_t node = x->reduce;

	x->reduce = PL_NONE;
	return node == PL_NONE || x->before == PL_NONE
		       ? 0
		       : add_reduction(f, node, x->before, x->block, true);
}

static int meet_product(struct finder *f, struct backward *x, size_t i, uint32_t next)
{
	const struct op *o = &f->op[i];
	struct product *first = x->pass->n ? &f->product[x->pass->first] : NULL, *p;
	uint8_t pass;

	if (x->at == x->pass->n || !is_of(f, o, &first[x->at], &pass)) {
		if (!x->at || !is_of(f, o, &first[x->at - 1], &pass))
			return refuse(f, o->node,
				      "the products of the backward pass are not those of the "
				      "forward pass in reverse order");
		x->at--;
	}
	p = &first[x->at];
	p->seen += pass == RW_BOTH_GRADS ? 2 : 1;
	if (p->block != x->block)
		PL_CHECK(end_input(f, x));
	x->block = p->block;
	if (p->block == PL_NONE)
		return 0;
	set(f, o->node, p->part, pass, p->block, p);
	if (p->part == RW_COLUMNS && pass != RW_WEIGHT_GRAD) {
		x->reduce = o->node;
		x->before = i + 1 < f->n_ops ? f->op[i + 1].node : next;
	}
	return 0;
}

/* Is it the last product of its pair that the backward pass meets? */
static bool ends_pair(const struct backward *x, const struct product *p)
{
	return p->part != RW_ROWS && (!x->at || p[-1].block != p->block);
}

static void meet_other(struct finder *f, const struct backward *x, uint32_t node)
{
	const struct product *first, *p;

	if (!x->pass->n)
		return;
	first = &f->product[x->pass->first];
	p = &first[x->at];
	if (x->at == x->pass->n) { /* of the loss, if the last product makes the logits */
		p = &first[x->at - 1];
		if (p->block != PL_NONE && f->b->block[p->block].vocabulary)
			set(f, node, RW_INNER, RW_BOTH_GRADS, p->block, p);
	} else if (p->block != PL_NONE) {
		set(f, node, ends_pair(x, p) ? RW_SUMS : RW_INNER, RW_BOTH_GRADS, p->block, p);
	}
}

static int read_backward(struct finder *f, int32_t mb, int32_t chunk, uint32_t next)
{
	struct backward x = { .reduce = PL_NONE, .block = PL_NONE };

	for (size_t i = f->n_passes; i-- > 0 && !x.pass;)
		if (!f->pass[i].used && f->pass[i].mb == mb && f->pass[i].chunk == chunk)
			x.pass = &f->pass[i];
	if (!x.pass)
		return 0;
	x.pass->used = true;
	x.at = x.pass->n;
	for (size_t i = 0; i < f->n_ops; i++) {
		if (f->op[i].what == PRODUCT)
			PL_CHECK(meet_product(f, &x, i, next));
		else
			meet_other(f, &x, f->op[i].node);
	}
	PL_CHECK(end_input(f, &x));
	for (size_t i = 0; i < x.pass->n; i++)
		if (!f->product[x.pass->first + i].seen)
			return refuse(f, f->product[x.pass->first + i].node,
				      "the backward pass has no product for it");
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* 1: forward, 2: backward, 0: neither. */
static unsigned direction(const struct pl_enode *n)
{
	return n->phase == PL_PH_FORWARD ? 1 : pl_graph_is_backward(n->phase) ? 2 : 0;
}

static int end_pass(struct finder *f, const struct pl_enode *n, uint32_t next)
{
	int rc = 0;

	if (f->n_ops && direction(n) == 1)
		rc = read_forward(f, (struct forward){ .mb = n->mb, .chunk = n->chunk }, next);
	else if (f->n_ops)
		rc = read_backward(f, n->mb, n->chunk, next);
	f->n_ops = 0;
	return rc;
}

/* Behind backward operations: do forward ones without a product stand before backward ones? Then
 * they only mark something, as gradients that are ready. Returns the place of those. */
static size_t behind_marks(const struct finder *f, const struct turn *v, size_t i, size_t n)
{
	for (size_t k = i; k < n; k++) {
		const struct pl_enode *o = &f->e->node[v[k].node];

		if (direction(o) == 2)
			return k;
		if (direction(o) == 1 && describe(f, v[k].node).what == PRODUCT)
			break;
	}
	return i;
}

/* The n computing nodes of a rank in a step. */
static int read_rank(struct finder *f, const struct turn *v, size_t n)
{
	const struct pl_enode *last = NULL;

	f->n_products = f->n_passes = f->n_ops = 0;
	for (size_t i = 0; i < n; i++) {
		const struct pl_enode *o;
		struct op x;

		if (last && direction(last) == 2)
			i = behind_marks(f, v, i, n);
		o = &f->e->node[v[i].node];
		if (!direction(o))
			continue;
		if (last && (direction(o) != direction(last) || o->mb != last->mb ||
			     o->chunk != last->chunk))
			PL_CHECK(end_pass(f, last, v[i].node));
		last = o;
		if (o->work == PL_NONE)
			continue;
		x = describe(f, v[i].node);
		PL_CHECK(pl_append(&f->op, &f->n_ops, &f->cap_ops, &x, sizeof(x), f->err));
	}
	return last ? end_pass(f, last, PL_NONE) : 0;
}

int pl_rewrite_blocks_find(const struct pl_edit *e, int64_t degree, struct rw_blocks *b,
			   struct pl_err *err)
{
	struct finder f = { .e = e, .degree = degree, .b = b, .err = err };
	struct turn *v = NULL;
	size_t n = 0;
	int rc;

	*b = (struct rw_blocks){ 0 };
	PL_TRY(pl_alloc(&b->of, e->n_nodes + 1, sizeof(*b->of), err));
	PL_TRY(pl_alloc(&v, e->n_nodes + 1, sizeof(*v), err));
	for (uint32_t i = 0; i < e->n_nodes; i++)
		if (rw_computes(&e->node[i]) && e->node[i].res != PL_NONE)
			v[n++] = (struct turn){ e->node[i].step,
						(uint32_t)e->res[e->node[i].res].rank,
						e->node[i].start, i };
	pl_sort(v, n, sizeof(*v), by_turn);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k].step == v[i].step && v[k].rank == v[i].rank; k++)
			;
		PL_TRY(read_rank(&f, v + i, k - i));
	}
	if (!b->n_reduce)
		rc = pl_fail(err, PL_EDATA,
			     "the graph has no layers of a transformer: no product brings back the "
			     "width that products before it read, with sizes of both (a graph of a "
			     "job has them; PyTorch: record_shapes=True)");
out:
	pl_free(v);
	pl_free(f.op);
	pl_free(f.product);
	pl_free(f.pass);
	return rc;
}

void pl_rewrite_blocks_fini(struct rw_blocks *b)
{
	pl_free(b->of);
	pl_free(b->block);
	pl_free(b->reduce);
}
