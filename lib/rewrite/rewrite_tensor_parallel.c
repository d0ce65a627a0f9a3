/*
 * tensor-parallel: the weights of each layer of a transformer are divided among so many ranks.
 *
 * What is divided follows from operators, sizes and order (rewrite_blocks.c): the first products of
 * a pair by columns, the second by rows, and what stands between by heads or columns; the product
 * that makes the logits by columns of the vocabulary. All else is whole on each rank. An all-reduce
 * follows the second product in the forward pass, the gradient of the first products' input in the
 * backward pass, and an embedding that is divided with the logits (Shoeybi et al., Megatron-LM,
 * arXiv 1909.08053, 2019). Nothing runs beside these all-reduces.
 *
 * A recorded rank stands for the group that takes its place: its ranks do the same at the same
 * time. The group lies inside a host as far as it can, so the replicas of one part are farther
 * apart: their communication gets the time of ranks that leave so many others between them, and
 * carries the gradients of a part.
 *
 * A divided operation takes its recorded time, multiplied by the ratio of a cost model's times with
 * the sizes of a part and with the recorded ones. Without a model the time follows the work, but
 * for a fixed time (cost/work.h); then all of it may be wrong in one direction.
 *
 * One pass over the nodes for each of these.
 */
#include "rewrite/rewrite_blocks.h"
#include "rewrite/rewrite_predicted.h"

#define TENSOR "tensor-parallel" /* name of the group, and of its resource on each rank */

struct part_key { /* equal in every byte: operations that become the same */
	uint32_t work, part, pass;
	int64_t m, k, n;
	struct rw_block block;
};
struct part {	      /* what an operation becomes */
	uint32_t row; /* of work */
	bool changes;
	double flops, bytes; /* ratios */
};
struct question_key {
	uint32_t name, work, row;
};
struct divided {
	struct pl_rewriter *r;
	int64_t degree;
	struct rw_blocks blocks;
	struct pl_work_model work;
	struct pl_intern part_keys, question_keys;
	struct part *part; /* [part_keys] */
	size_t n_parts, cap_parts;
	uint32_t *of_node;     /* [node]: its part, PL_NONE: it stays */
	uint32_t *question;    /* [node], PL_NONE */
	uint32_t *group, *res; /* [rank]: the group that it stands for, the resource of that */
	struct pl_predictor_op *now, *then;
	struct pl_predictor_ratio *ratio; /* [question] */
	size_t n_questions, cap_now, cap_then;
	double *params, *params_now; /* [rank]: bytes of parameters before, and of a part */
};

/* ---- sizes of a part ------------------------------------------------------------------------- */

/* A vocabulary is filled up so that it can be divided. */
static int64_t part_of(const struct divided *d, int64_t size)
{
	return (size + d->degree - 1) / d->degree;
}

static void divide_axis(const struct divided *d, struct pl_dims *t, int axis)
{
	int64_t now = part_of(d, t->size[axis]);

	t->elements = t->elements / t->size[axis] * now;
	t->size[axis] = now;
}

static void divide_product(const struct divided *d, const struct rw_division *x, struct rw_sizes *s)
{
	struct rw_product p;
	bool columns = x->part == RW_COLUMNS;
	struct pl_dims *a, *b;
	int other;

	if (!pl_rewrite_product(s, &p))
		return;
	a = &s->t[p.a];
	b = &s->t[p.b];
	other = p.sum_axis == b->n - 1 ? b->n - 2 : b->n - 1;
	/* inputs before the factors: a bias, or the gradient of the output */
	for (int i = 0; i < p.a && columns && x->pass != RW_WEIGHT_GRAD; i++)
		if (s->t[i].n >= 1 && s->t[i].size[s->t[i].n - 1] == x->n)
			divide_axis(d, &s->t[i], s->t[i].n - 1);
	if (x->pass == RW_WEIGHT_GRAD) { /* the sum is over rows */
		bool straight = p.rows == x->k && p.columns == x->n;

		if (straight == columns)
			divide_axis(d, b, other);
		else
			divide_axis(d, a, a->n - 2);
	} else if ((x->pass == RW_INPUT_GRAD) == columns) {
		divide_axis(d, a, a->n - 1);
		divide_axis(d, b, p.sum_axis);
	} else {
		divide_axis(d, b, other);
	}
}

static bool is_width(const struct rw_block *b, int64_t size)
{
	int64_t all = 0;

	for (uint32_t i = 0; i < b->n_columns; i++) {
		if (size == b->n[i])
			return true;
		all += b->n[i];
	}
	return size == b->sum || size == all;
}

/* Is it a gradient of the product's weights, or of a bias or table behind it? */
static bool is_gradient(const struct divided *d, const struct rw_division *x,
			const struct pl_dims *t)
{
	int64_t all = x->k * x->n, table = d->blocks.vocabulary * d->blocks.width;
	int64_t first = t->size[0], last = t->size[t->n - 1];

	if (x->pass == RW_FORWARD)
		return false;
	if (t->elements == all && last != all) /* where rows are as many, it may be anything */
		return t->n == 2 && first != x->m && (first == x->k || first == x->n);
	return t->elements == all ||
	       (x->part == RW_SUMS && (t->elements == x->n || t->elements == table));
}

/* A tensor between the products of a pair, or a gradient of its weights; false: it stays. */
static bool divide_inner(const struct divided *d, const struct rw_division *x, struct pl_dims *t)
{
	const struct rw_block *b = &d->blocks.block[x->block];
	int axis = -1;

	if (t->n < 1 || t->elements < 2)
		return false;
	if (is_gradient(d, x, t) || (x->part == RW_INNER && is_width(b, t->size[t->n - 1]) &&
				     t->elements / t->size[t->n - 1] == b->m))
		axis = t->n - 1;
	for (int i = 1; i < 3 && axis < 0 && t->n > 3 && x->part == RW_INNER && b->heads; i++)
		axis = t->size[i] == b->heads ? i : -1;
	if (axis < 0 && x->part == RW_INNER &&
	    ((b->heads && t->n <= 3 && t->size[0] % b->heads == 0) ||
	     (t->n == 1 && t->elements == b->m * b->sum)))
		axis = 0;
	if (axis >= 0)
		divide_axis(d, t, axis);
	return axis >= 0;
}

/* What a kernel reads and writes, in numbers. */
static double volume(const struct rw_sizes *s, bool product)
{
	struct rw_product p;
	double sum = 0;

	if (product && pl_rewrite_product(s, &p)) {
		double batch = (double)s->t[p.a].elements / ((double)p.rows * (double)p.sum);

		return (double)s->t[p.a].elements + (double)s->t[p.b].elements +
		       batch * (double)p.rows * (double)p.columns;
	}
	for (int i = 0; i < s->n; i++)
		sum += s->t[i].elements > 0 ? (double)s->t[i].elements : 0;
	return sum;
}

static int too_unclear(const struct divided *d, uint32_t node, const struct pl_gwork *w,
		       struct pl_err *err)
{
	const struct pl_edit *e = d->r->e;

	return pl_fail(
		err, PL_EDATA,
		"\"%.80s\" of %.120s stands between two products of a layer, and its sizes do "
		"not say how it is divided",
		pl_edit_name(e, e->node[node].name),
		w->dims == PL_NONE ? "unknown sizes" : pl_edit_name(e, w->dims));
}

/* Operations as small as these may stay whole: a mask, a bias. */
static bool is_small(const struct divided *d, const struct rw_division *x, const struct rw_sizes *s)
{
	const struct rw_block *b = &d->blocks.block[x->block];
	double most = 0;

	for (int i = 0; i < s->n; i++)
		most = fmax(most, (double)s->t[i].elements);
	return most < (double)b->m * (double)pl_min_i64(b->width, x->n) / (double)d->degree;
}

static int add_row(struct divided *d, const struct pl_gwork *w, const struct rw_sizes *was,
		   const struct rw_sizes *is, struct part *out, struct pl_err *err)
{
	bool product = pl_graph_is_product(w->op);
	struct pl_gwork to = *w;
	char text[PL_WORK_TEXT];

	out->bytes = volume(is, product) / fmax(volume(was, product), 1);
	out->flops = product ? 1 / (double)d->degree : out->bytes;
	if (to.flops > 0)
		to.flops = llround((double)to.flops * out->flops);
	if (to.bytes > 0)
		to.bytes = llround((double)to.bytes * out->bytes);
	if (!pl_rewrite_sizes_text(is, text, sizeof(text)))
		return pl_fail(err, PL_ELIMIT, "the sizes of an operation are too long");
	PL_CHECK(pl_edit_add_name(d->r->e, text, &to.dims, err));
	out->changes = true;
	return pl_edit_add_work(d->r->e, &to, &out->row, err);
}

/* What a node that belongs to a pair becomes. */
static int make_part(struct divided *d, uint32_t node, const struct rw_division *x,
		     struct part *out, struct pl_err *err)
{
	const struct pl_edit *e = d->r->e;
	const struct pl_gwork w = *pl_edit_work(e, node);
	struct rw_sizes was, is;
	bool any = false;

	*out = (struct part){ .row = e->node[node].work, .flops = 1, .bytes = 1 };
	if (!pl_rewrite_sizes(e, &w, &was)) /* the loss may make its gradient in the forward pass */
		return x->part == RW_SUMS || d->blocks.block[x->block].vocabulary
			       ? 0
			       : too_unclear(d, node, &w, err);
	is = was;
	if (x->part == RW_COLUMNS || x->part == RW_ROWS) {
		divide_product(d, x, &is);
		return add_row(d, &w, &was, &is, out, err);
	}
	for (int i = 0; i < is.n; i++)
		any |= divide_inner(d, x, &is.t[i]);
	if (any)
		return add_row(d, &w, &was, &is, out, err);
	return x->part == RW_SUMS || is_small(d, x, &was) ? 0 : too_unclear(d, node, &w, err);
}

static int find_part(struct divided *d, uint32_t node, struct pl_err *err)
{
	const struct rw_division *x = &d->blocks.of[node];
	struct part_key key;
	struct part p;
	pl_id id;

	memset(&key, 0, sizeof(key));
	key.work = d->r->e->node[node].work;
	key.part = x->part;
	key.pass = x->pass;
	key.m = x->m;
	key.k = x->k;
	key.n = x->n;
	memcpy(&key.block, &d->blocks.block[x->block], sizeof(key.block));
	PL_CHECK(pl_intern_add(&d->part_keys, (const char *)&key, sizeof(key), &id, err));
	d->of_node[node] = id;
	if (id < d->n_parts)
		return 0;
	PL_CHECK(make_part(d, node, x, &p, err));
	return pl_append(&d->part, &d->n_parts, &d->cap_parts, &p, sizeof(p), err);
}

/* ---- times of a part ------------------------------------------------------------------------- */

static int ask(struct divided *d, uint32_t node, struct pl_err *err)
{
	const struct pl_edit *e = d->r->e;
	const struct pl_enode *n = &e->node[node];
	const struct part *p = &d->part[d->of_node[node]];
	const struct question_key key = { n->name, n->work, p->row };
	const struct pl_gwork *to = &e->work[p->row - e->g->n_work];
	struct pl_predictor_op op;
	pl_id id;

	PL_CHECK(pl_intern_add(&d->question_keys, (const char *)&key, sizeof(key), &id, err));
	d->question[node] = id;
	if (id < d->n_questions)
		return 0;
	PL_CHECK(pl_grow(&d->now, &d->cap_now, d->n_questions + 1, sizeof(op), err));
	PL_CHECK(pl_grow(&d->then, &d->cap_then, d->n_questions + 1, sizeof(op), err));
	op = pl_predictor_edit_op(d->r->facts.predictor, e, node);
	d->now[d->n_questions] = op;
	op.work = *to;
	op.dims = pl_edit_name(e, to->dims);
	d->then[d->n_questions++] = op;
	return 0;
}

/* The factor of a duration by its work, but for a fixed time. */
static double by_rule(const struct divided *d, uint32_t node, const struct part *p)
{
	const struct pl_enode *n = &d->r->e->node[node];
	uint32_t group = d->work.of_node[d->r->e->g->step[n->step].shape][n->origin];
	const struct pl_work_group *x = group == PL_NONE ? NULL : &d->work.group[group];
	double fixed = x && x->ns > 0 ? fmin(d->work.fixed_ns[x->device] / x->ns, 1) : 0;

	return fixed + (1 - fixed) * p->flops;
}

static int change_times(struct divided *d, struct pl_err *err)
{
	const struct pl_edit *e = d->r->e;
	struct rw_errors errors = { 0 };
	int rc = 0;

	for (uint32_t i = 0; i < d->r->n_recorded; i++) {
		uint32_t id = d->of_node[i];
		const struct pl_predictor_ratio *m;
		double ns = (double)e->node[i].dur, factor, error;

		if (id == PL_NONE || !d->part[id].changes)
			continue;
		m = d->question[i] != PL_NONE ? &d->ratio[d->question[i]] : NULL;
		if (m && isnan(m->factor))
			m = NULL;
		factor = m ? m->factor : by_rule(d, i, &d->part[id]);
		error = m ? m->error : PL_WORK_RULE_ERROR * fabs(1 - factor);
		if (e->step[e->node[i].step].reported)
			PL_TRY(pl_rewrite_add_error(&errors, m ? m->part : PL_NONE, ns, ns * error,
						    err));
		rw_set_dur(d->r, i, rw_times(e->node[i].dur, factor));
	}
	rw_now(d->r)->basis.work_ns += pl_rewrite_error(&errors) / (double)pl_rewrite_steps(e->g) /
				       (double)(e->g->n_ranks ? e->g->n_ranks : 1);
out:
	pl_rewrite_errors_fini(&errors);
	return rc;
}

static int divide_operations(struct divided *d, struct pl_err *err)
{
	const struct pl_edit *e = d->r->e;
	bool asks = d->r->facts.predictor;
	pl_ns sum = 0;

	for (uint32_t i = 0; i < d->r->n_recorded; i++) {
		if (d->blocks.of[i].part == RW_WHOLE)
			continue;
		sum += e->node[i].dur;
		PL_CHECK(find_part(d, i, err));
		if (asks && d->part[d->of_node[i]].changes && e->node[i].name < e->g->str.n)
			PL_CHECK(ask(d, i, err));
	}
	if (!sum)
		return pl_fail(err, PL_EDATA,
			       "the operations have no durations; predict -O graph finds them");
	if (d->n_questions) {
		PL_CHECK(pl_alloc(&d->ratio, d->n_questions, sizeof(*d->ratio), err));
		PL_CHECK(pl_predictor_ratios(d->r->facts.predictor, d->now, d->then, d->n_questions,
					     log((double)d->degree), d->ratio, err));
	}
	PL_CHECK(change_times(d, err));
	for (uint32_t i = 0; i < d->r->n_recorded; i++)
		if (d->of_node[i] != PL_NONE && d->part[d->of_node[i]].changes)
			rw_set_work(d->r, i, d->part[d->of_node[i]].row);
	return 0;
}

/* ---- all-reduces of the group ---------------------------------------------------------------- */

/* The rank, and others that nobody recorded. */
static int add_group(struct divided *d, uint32_t at, const struct pl_resource *like,
		     struct pl_err *err)
{
	struct pl_edit *e = d->r->e;
	int64_t others = e->g->n_ranks + (int64_t)at * (d->degree - 1);
	struct pl_resource r = *like;
	int32_t *rank;
	pl_id name;
	int rc;

	PL_CHECK(pl_alloc(&rank, (size_t)d->degree, sizeof(*rank), err));
	PL_TRY(others + d->degree > INT32_MAX
		       ? pl_fail(err, PL_ELIMIT, "that makes more than %d ranks", INT32_MAX)
		       : 0);
	rank[0] = like->rank;
	for (int64_t i = 1; i < d->degree; i++)
		rank[i] = (int32_t)(others + i - 1);
	PL_TRY(pl_edit_add_name(e, TENSOR, &name, err));
	PL_TRY(pl_edit_add_group(e, name, rank, (uint32_t)d->degree, &d->group[at], err));
	r.track_type = PL_T_STREAM;
	r.discipline = PL_DS_fifo;
	r.capacity = 1;
	r.name = name;
	r.launch_ns = r.dispatch_ns = r.early_ns = 0;
	PL_TRY(pl_edit_add_resource(e, &r, &d->res[at], err));
out:
	pl_free(rank);
	return rc;
}

/* The links of a host count where the ranks of a host are known, or the topology was given. Else
 * the fit to communication of the graph does, which lies inside one host. */
static pl_ns transfer_ns(const struct divided *d, const struct pl_cost_comm *c)
{
	const struct pl_cost *cost = d->r->c;

	return cost->user_topology || cost->topo.n_hosts > 1 ? pl_cost_analytic(&cost->topo, c)
							     : pl_cost_transfer(cost, c);
}

/* A host that predict(1) has put in front of the device launches the all-reduce, too: behind the
 * operation `after`, in as much time. */
static void add_launch(const struct divided *d, uint32_t after, uint32_t arrive)
{
	const struct pl_edit *e = d->r->e;
	uint32_t host = PL_NONE, next = PL_NONE, id;
	struct pl_enode n;

	for (uint32_t x = e->node[after].in; x != PL_NONE; x = e->edge[x].in_next)
		if (PL_E_TYPE(e->edge[x].type) == PL_E_LAUNCH)
			host = e->edge[x].src;
	if (host == PL_NONE || e->node[host].name == PL_NONE ||
	    strcmp(pl_edit_name(e, e->node[host].name), PL_GRAPH_LAUNCH) != 0)
		return;
	for (uint32_t x = e->node[host].out; x != PL_NONE; x = e->edge[x].out_next)
		if (e->node[e->edge[x].dst].res == e->node[host].res)
			next = e->edge[x].dst;
	n = e->node[host];
	n.origin = PL_NONE;
	id = rw_add_node(d->r, &n, host);
	rw_add_edge(d->r, host, id, PL_E_SEQ, 0);
	rw_add_edge(d->r, id, arrive, PL_E_LAUNCH, 0);
	if (next != PL_NONE)
		rw_add_edge(d->r, id, next, PL_E_SEQ, 0);
}

static int add_reduction(struct divided *d, const struct rw_reduction *x, struct pl_err *err)
{
	struct pl_edit *e = d->r->e;
	const struct rw_block *b = &d->blocks.block[x->block];
	const struct pl_enode *after = &e->node[x->after];
	uint32_t at = pl_graph_rank_index(e->g, e->res[after->res].rank), arrive, transfer;
	const char *type = x->type == PL_NONE ? "" : pl_edit_name(e, x->type);
	int64_t element = pl_trace_dtype(type, strlen(type), NULL);
	struct pl_gcomm comm = { .kind = PL_COLL_ALLREDUCE,
				 .type = x->type,
				 .members = (uint32_t)d->degree,
				 .root = -1,
				 .bytes = b->m * b->width * (element > 0 ? element : 4) };
	struct pl_cost_comm c = { .kind = PL_K_COLLECTIVE,
				  .coll = PL_COLL_ALLREDUCE,
				  .group = PL_NONE,
				  .n = (uint32_t)d->degree,
				  .recorded = (uint32_t)d->degree,
				  .bytes = comm.bytes };
	struct pl_enode n = pl_edit_blank_node();

	if (d->group[at] == PL_NONE)
		PL_CHECK(add_group(d, at, &e->res[after->res], err));
	comm.group = d->group[at];
	PL_CHECK(pl_edit_add_name(e, "ring", &comm.algorithm, err));
	PL_CHECK(pl_edit_add_comm(e, &comm, &n.comm, err));
	PL_CHECK(pl_edit_add_name(
		e, x->backward ? "allreduce gradient of input" : "allreduce output", &n.name, err));
	n.type = PL_N_OP;
	n.role = PL_RO_ARRIVE;
	n.kind = PL_K_COLLECTIVE;
	n.flags = PL_NF_IN_STEP | PL_NF_INFERRED;
	n.res = d->res[at];
	n.group = d->group[at];
	n.bytes = comm.bytes;
	n.phase = PL_PH_COMM;
	n.step = after->step;
	n.layer = after->layer;
	n.module = after->module;
	n.mb = after->mb;
	n.chunk = after->chunk;
	arrive = rw_add_node(d->r, &n, x->after);
	n.role = PL_RO_TRANSFER;
	n.dur = transfer_ns(d, &c);
	transfer = rw_add_node(d->r, &n, arrive);
	rw_add_edge(d->r, x->after, arrive, PL_E_DATA, 0);
	rw_add_edge(d->r, arrive, transfer, PL_E_SEQ, 0);
	add_launch(d, x->after, arrive);
	if (x->before != PL_NONE)
		rw_add_edge(d->r, transfer, x->before, PL_E_WAIT, 0);
	return rw_result(d->r, 0, err);
}

/* ---- tensors, and the communication of gradients --------------------------------------------- */

/* How many bytes of a tensor of parameters, or of their gradient, a part has. */
static int64_t weights_of(const struct divided *d, int64_t bytes, int64_t k, int64_t n,
			  bool columns)
{
	int64_t element = bytes / pl_max_i64(pl_dims_product(k, n), 1), all = element * k * n;
	bool bias = bytes - all == element * n;

	if (element < 1)
		return bytes;
	return bytes - all + all / d->degree -
	       (bias && columns ? element * (n - n / d->degree) : 0);
}

static int64_t bytes_of(const struct divided *d, const struct pl_etensor *x)
{
	const struct pl_tensor *t = &d->r->e->g->tensor[x->tensor];
	const struct rw_division *of;
	uint32_t node = x->producer;

	if (t->role == PL_TR_PARAM && node == PL_NONE && t->n_consumers)
		node = d->r->e->step[x->step].first + d->r->e->g->consumer[t->consumer];
	if (node == PL_NONE || x->bytes <= 0)
		return x->bytes;
	of = &d->blocks.of[node];
	if (t->role == PL_TR_PARAM || t->role == PL_TR_GRAD) {
		int64_t table = d->blocks.width * d->blocks.vocabulary;

		if (of->part == RW_COLUMNS || of->part == RW_ROWS)
			return weights_of(d, x->bytes, of->k, of->n, of->part == RW_COLUMNS);
		return table && of->part != RW_INNER && x->bytes % table == 0
			       ? x->bytes / table * d->blocks.width *
					 part_of(d, d->blocks.vocabulary)
			       : x->bytes;
	}
	if (t->role != PL_TR_ACTIVATION && t->role != PL_TR_TEMP)
		return x->bytes;
	return of->part == RW_INNER || of->part == (t->flags & PL_TF_OUTPUT ? RW_ROWS : RW_COLUMNS)
		       ? x->bytes / d->degree
		       : x->bytes;
}

static void divide_tensors(struct divided *d)
{
	const struct pl_edit *e = d->r->e;

	for (uint32_t i = 0; i < e->n_tensors; i++) {
		const struct pl_etensor *x = &e->tensor[i];
		uint32_t rank = pl_graph_rank_index(e->g, x->rank);
		int64_t was = x->bytes, bytes = bytes_of(d, x);

		if (x->dead)
			continue;
		if (e->g->tensor[x->tensor].role == PL_TR_GRAD && rank != PL_NONE && was > 0) {
			d->params[rank] += (double)was;
			d->params_now[rank] += (double)bytes;
		}
		if (bytes != was)
			rw_set_bytes(d->r, i, bytes);
	}
}

/* The topology as the replicas of one part see it: so many ranks of a host as there are parts of
 * replicas on it, which share its links with those of the other parts. */
static struct pl_topology spread(const struct divided *d, struct pl_thost *host,
				 struct pl_tlink *link)
{
	const struct pl_topology *t = &d->r->c->topo;
	struct pl_topology s = *t;
	uint32_t each = t->n_hosts ? t->host[0].n : 1, left;

	left = each / (uint32_t)d->degree;
	*host = (struct pl_thost){ .n = left ? left : 1 };
	s.host = host;
	s.n_hosts = 1;
	s.n_ranks = host->n;
	s.n_links = pl_min_size(t->n_links, 2);
	for (size_t i = 0; i < s.n_links; i++) {
		link[i] = t->link[i];
		if (link[i].shared)
			link[i].bytes_per_ns /= (double)pl_min_i64(d->degree, each);
	}
	s.link = link;
	return s;
}

/* The factor of a data-parallel transfer that carries so many bytes. */
static double transfer_factor(const struct divided *d, const struct pl_cost_comm *was,
			      int64_t bytes)
{
	const struct pl_cost *cost = d->r->c;
	struct pl_thost host;
	struct pl_tlink link[2];
	struct pl_cost_comm is = *was;
	struct pl_topology s = spread(d, &host, link);
	double before, factor;

	is.bytes = bytes;
	before = (double)pl_cost_transfer(cost, was);
	factor = before > 0 ? (double)pl_cost_transfer(cost, &is) / before : 1;
	if (cost->topo.n_hosts < 2)
		return factor;
	before = (double)pl_cost_analytic(&cost->topo, &is);
	return before > 0 ? factor * (double)pl_cost_analytic(&s, &is) / before : factor;
}

/* A communication of gradients: its nodes carry the part's bytes. now: of its tensors. */
static int divide_comm(struct divided *d, uint32_t arrive, int64_t was, int64_t now,
		       struct pl_err *err)
{
	struct pl_edit *e = d->r->e;
	uint32_t transfer = pl_edit_transfer(e, arrive), meet = pl_rewrite_meet_of(e, arrive), id;
	struct pl_cost_comm c = rw_comm_of(e, arrive, (uint32_t)e->g->n_ranks);
	struct pl_gcomm row;
	double share = was > 0 ? (double)now / (double)was : 1, factor;
	int64_t bytes;

	if (c.bytes < 0 && meet != PL_NONE)
		c.bytes = e->node[meet].bytes;
	if (c.bytes < 0)
		c.bytes = was;
	bytes = llround((double)c.bytes * share);
	factor = transfer_factor(d, &c, bytes);
	if (transfer != PL_NONE)
		rw_set_dur(d->r, transfer, rw_times(e->node[transfer].dur, factor));
	if (!pl_edit_comm(e, arrive))
		return 0;
	row = *pl_edit_comm(e, arrive);
	row.bytes = bytes;
	PL_CHECK(pl_edit_add_comm(e, &row, &id, err));
	rw_set_comm(d->r, arrive, id, bytes);
	if (transfer != PL_NONE)
		rw_set_comm(d->r, transfer, id, bytes);
	if (meet != PL_NONE)
		rw_set_comm(d->r, meet, id, bytes);
	return 0;
}

static int divide_gradients(struct divided *d, struct pl_err *err)
{
	const struct pl_edit *e = d->r->e;
	int64_t *was, *now = NULL;
	int rc;

	PL_TRY(pl_alloc(&was, d->r->n_recorded + (size_t)1, sizeof(*was), err));
	PL_TRY(pl_alloc(&now, d->r->n_recorded + (size_t)1, sizeof(*now), err));
	for (size_t i = 0; i < e->n_tensors; i++) {
		const struct pl_etensor *x = &e->tensor[i];

		if (x->dead || x->arrive == PL_NONE || x->bytes < 0)
			continue;
		was[x->arrive] += pl_max_i64(e->g->tensor[x->tensor].bytes, 0);
		now[x->arrive] += x->bytes;
	}
	for (uint32_t i = 0; i < d->r->n_recorded; i++)
		if (was[i] > 0)
			PL_TRY(divide_comm(d, i, was[i], now[i], err));
out:
	pl_free(was);
	pl_free(now);
	return rc;
}

/* The optimiser has a part of the parameters. */
static int divide_updates(struct divided *d, struct pl_err *err)
{
	struct pl_edit *e = d->r->e;

	for (uint32_t i = 0; i < d->r->n_recorded; i++) {
		const struct pl_enode *n = &e->node[i];
		const struct pl_gwork *w = pl_edit_work(e, i);
		uint32_t rank = n->res == PL_NONE ? PL_NONE
						  : pl_graph_rank_index(e->g, e->res[n->res].rank);
		struct rw_sizes was, is;
		struct part p;
		double share;

		if (!rw_computes(n) || !w || w->op != PL_OP_UPDATE || rank == PL_NONE ||
		    !(d->params[rank] > 0))
			continue;
		share = d->params_now[rank] / d->params[rank];
		rw_set_dur(d->r, i, rw_times(n->dur, share));
		if (!pl_rewrite_sizes(e, w, &was) || was.n != 1 || was.t[0].n != 1)
			continue;
		is = was;
		is.t[0].size[0] = is.t[0].elements = llround((double)was.t[0].elements * share);
		PL_CHECK(add_row(d, w, &was, &is, &p, err));
		rw_set_work(d->r, i, p.row);
	}
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int start(struct divided *d, struct pl_err *err)
{
	const struct pl_edit *e = d->r->e;
	size_t ranks = (size_t)e->g->n_ranks + 1;

	if (!d->r->c->topo.n_hosts && e->g->n_ranks < 1)
		return pl_fail(err, PL_EDATA, "the graph has no ranks");
	if (pl_rewrite_gathers(e->g) > 0)
		return pl_fail(err, PL_EDATA,
			       "parameters are sharded, and the graph does not say how much of "
			       "what is gathered belongs to the layers that are divided");
	PL_CHECK(pl_rewrite_blocks_find(e, d->degree, &d->blocks, err));
	PL_CHECK(pl_work_fit(e->g, &d->work, err));
	PL_CHECK(pl_alloc(&d->of_node, e->n_nodes + 1, sizeof(*d->of_node), err));
	PL_CHECK(pl_alloc(&d->question, e->n_nodes + 1, sizeof(*d->question), err));
	PL_CHECK(pl_alloc(&d->group, ranks, sizeof(*d->group), err));
	PL_CHECK(pl_alloc(&d->res, ranks, sizeof(*d->res), err));
	PL_CHECK(pl_alloc(&d->params, ranks, sizeof(*d->params), err));
	PL_CHECK(pl_alloc(&d->params_now, ranks, sizeof(*d->params_now), err));
	memset(d->of_node, 0xff, e->n_nodes * sizeof(*d->of_node));
	memset(d->question, 0xff, e->n_nodes * sizeof(*d->question));
	memset(d->group, 0xff, ranks * sizeof(*d->group));
	return 0;
}

static int apply_tensor_parallel(struct pl_rewriter *r, const struct pl_rewrite *rw,
				 struct pl_err *err)
{
	struct divided d = { .r = r, .degree = rw->k };
	int rc;

	PL_TRY(start(&d, err));
	PL_TRY(divide_operations(&d, err));
	divide_tensors(&d);
	PL_TRY(divide_gradients(&d, err));
	PL_TRY(divide_updates(&d, err));
	for (size_t i = 0; i < d.blocks.n_reduce; i++)
		PL_TRY(add_reduction(&d, &d.blocks.reduce[i], err));
	rw_now(r)->divided = true;
out:
	pl_rewrite_blocks_fini(&d.blocks);
	pl_work_fini(&d.work);
	pl_intern_fini(&d.part_keys);
	pl_intern_fini(&d.question_keys);
	pl_free(d.part);
	pl_free(d.of_node);
	pl_free(d.question);
	pl_free(d.group);
	pl_free(d.res);
	pl_free(d.now);
	pl_free(d.then);
	pl_free(d.ratio);
	pl_free(d.params);
	pl_free(d.params_now);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_tensor_parallel = {
	.first = true,
	.apply = apply_tensor_parallel,
	.explain =
		"the weights of each layer are divided among {k} ranks, which take less time for "
		"its products and add up what they make in all-reduces"
};
