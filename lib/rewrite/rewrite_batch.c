/*
 * batch: each rank takes in X times as many samples, or N samples.
 *
 * The work that grows with the samples follows from the recorded sizes of tensors, and its time
 * from the model that was fitted to the recording (cost/work.h): products that are bound by reading
 * their parameters and short operations shrink less than the batch. Input takes X times as long.
 * What a rank does for parameters takes the time that it took: the optimiser (but see MAYBE), the
 * communication of gradients, gathered parameters. So does the time of a host thread between
 * operations, an operation of a host without sizes, which does no work of its own, and host work on
 * a rank whose device computes: it launches as many kernels as before.
 *
 * Where no operation has sizes, operations of the passes on hosts take X times as long but for a
 * fixed time, and the interval is wider. Kernels without sizes take X times as long.
 *
 * With a cost model of kernels there is a second estimate for each operation that the model knows:
 * the ratio of the model's times for both sizes. An error that both times share cancels there. The
 * mean of both estimates, weighted by their precision, counts (Aitken, Proc. R. Soc. Edinburgh 55,
 * 1935): a model of precise measurements decides, one of noisy ones changes little. Errors of the
 * rule are alike for all operations, those of the model for one kind of operation.
 *
 * Messages between ranks, all-to-all, and reductions that carry no gradients in a graph that knows
 * its gradients move samples: their bytes grow, and the line that was fitted to the graph gives
 * the time. So do gathers and scattered sums of groups that scatter in the forward pass, too: these
 * are of activations. The fit says how wrong the line may be; where sizes are not known or all the
 * same, all of the change may be.
 *
 * Of some ranks alone, what they compute changes, and so do the messages that they carry. A line
 * behind it counts from what its ranks take in, which must be as much on all of them: there is one
 * factor for each class of operations.
 *
 * One pass over the nodes of each shape, and one over the steps.
 */
#include "rewrite/rewrite_predicted.h"

/* Classes: input; computation by that rule; the groups of the model; then communication. */
#define INPUT	 0
#define COMPUTES 1
#define MAYBE	 2 /* it follows the samples, or it does not */
#define PAUSE	 3 /* perhaps a wait for input, which nothing says */
#define GROUPS	 4

struct comm_of_batch { /* equal in every byte: of one class */
	int64_t bytes;
	uint32_t n;
	uint16_t kind, coll;
};

struct batch {
	struct rw_facts *x;
	const struct rw_change *c;
	double before, by; /* times the recorded samples: with the lines so far, with this one */
	struct pl_work_model work;
	struct pl_predictor_ratio *ratio; /* [group]: by the cost model; NULL: there is none */
	struct pl_intern comm;		  /* struct comm_of_batch of each class */
	bool *device;			  /* [resource]: its rank computes on a device */
	bool *carries;			  /* [node of the shape]: the arrival carries a gradient */
	bool *activations;		  /* [group]: it carries these */
	bool gradients;			  /* the graph knows some */
	bool sparse;			  /* so are some gradients */
};

/* Are there gradients with the rows alone that samples use? Their update takes time by the rows: by
 * the samples where these use rows of their own, less where they share them. */
static bool uses_sparse(const struct pl_graph *g)
{
	static const char names[] = "*SparseAdam*|aten::coalesce|aten::_coalesce|"
				    "aten::_sparse_*|aten::sparse_coo_tensor*|aten::sparse_mask";

	for (size_t k = 0; k < g->n_shapes; k++) {
		const struct pl_shape *s = &g->shape[k];

		for (uint32_t i = s->n_entries; s->phase && i < s->n_nodes; i++)
			if (s->phase[i] == PL_PH_OPTIMIZER && s->role[i] != PL_RO_GAP &&
			    pl_glob(names, pl_intern_get(&g->str, s->name[i])))
				return true;
	}
	return false;
}

/* ---- what grows with the samples ------------------------------------------------------------- */

/* Does the node compute on samples? */
static bool computes_samples(const struct batch *b, const struct pl_shape *s, uint32_t i)
{
	unsigned phase = s->phase ? s->phase[i] : PL_PH_UNKNOWN;

	if (phase != PL_PH_FORWARD && !pl_graph_is_backward(phase))
		return false;
	return !pl_work_shows_params(phase, pl_node_operator(b->x->g, s, i));
}

static bool moves_samples(const struct batch *b, const struct pl_shape *s, uint32_t i)
{
	uint32_t arrive = pl_node_arrival(s, i);

	switch (pl_node_coll(s, i)) {
	case PL_COLL_SEND:
	case PL_COLL_RECV:
	case PL_COLL_SENDRECV:
	case PL_COLL_ALLTOALL:
		return true;
	case PL_COLL_ALLREDUCE:
		return b->gradients && arrive != PL_NONE && !b->carries[arrive];
	case PL_COLL_ALLGATHER:
	case PL_COLL_REDUCE_SCATTER:
		return s->group[i] != PL_NONE && b->activations[s->group[i]] &&
		       !(arrive != PL_NONE && b->carries[arrive]);
	default:
		return false;
	}
}

/* The class of a transfer of samples. */
static int comm_class(struct batch *b, const struct pl_shape *s, uint32_t i, uint32_t *class,
		      struct pl_err *err)
{
	uint32_t meet = pl_node_meeting(s, i), group = s->group[i];
	struct comm_of_batch key;
	pl_id id;

	memset(&key, 0, sizeof(key));
	key.bytes = s->bytes ? s->bytes[i] : -1;
	if (meet != PL_NONE && s->bytes)
		key.bytes = pl_max_i64(key.bytes, s->bytes[meet]);
	key.n = group != PL_NONE  ? b->x->g->group[group].n
		: meet != PL_NONE ? s->off[meet + 1] - s->off[meet]
				  : 2;
	key.kind = s->kind[i];
	key.coll = (uint16_t)pl_node_coll(s, i);
	if (key.coll == PL_COLL_SEND || key.coll == PL_COLL_RECV)
		key.n = 2;
	PL_CHECK(pl_intern_add(&b->comm, (const char *)&key, sizeof(key), &id, err));
	*class = GROUPS + (uint32_t)b->work.n_groups + id;
	return 0;
}

/* By how much the line of such a communication grows, and by which share of the time before that
 * may be wrong: what its latency is taken for too much, its bytes are taken for too little. */
static double comm_factor(const struct batch *b, pl_id id, double *wrong, bool *one_size)
{
	const struct rw_network *net = b->x->network;
	struct comm_of_batch key;
	struct pl_cost_comm comm;
	struct pl_cost_line line;
	const struct pl_fit *fit;
	double bytes, before, factor, grows = b->by / b->before;

	memcpy(&key, pl_intern_get(&b->comm, id), sizeof(key));
	comm = (struct pl_cost_comm){ .kind = (uint8_t)key.kind,
				      .coll = (uint8_t)key.coll,
				      .group = PL_NONE,
				      .n = key.n,
				      .recorded = key.n,
				      .bytes = key.bytes,
				      .change = net->change,
				      .n_changes = net->n_changes };
	*wrong = key.bytes < 0 ? fabs(grows - 1) : 0;
	if (key.bytes < 0 || !pl_cost_line(b->x->cost, &comm, &line))
		return 1;
	bytes = line.b_ns_per_byte * (double)key.bytes;
	before = line.a_ns + bytes * b->before;
	if (before < 1)
		return 1;
	factor = (line.a_ns + bytes * b->by) / before;
	fit = pl_cost_find_fit(b->x->cost, &comm);
	*one_size |= fit && fit->one_size;
	*wrong = !fit || fit->estimated ? 1 : fmin(fit->a_off_ns / before, 1);
	*wrong = fmin(*wrong * fabs(grows - 1), fmax(fabs(factor - 1), fabs(grows - factor)));
	return factor;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Which arrivals of the shape carry gradients. */
static int find_gradients(struct batch *b, const struct pl_shape *s, struct pl_err *err)
{
	const struct pl_graph *g = b->x->g;

	pl_free(b->carries);
	PL_CHECK(pl_alloc(&b->carries, (size_t)s->n_nodes + 1, sizeof(*b->carries), err));
	for (size_t i = 0; i < g->n_tensors; i++) {
		const struct pl_tensor *t = &g->tensor[i];

		for (uint32_t k = 0;
		     t->role == PL_TR_GRAD && &g->shape[t->shape] == s && k < t->n_consumers; k++)
			b->carries[g->consumer[t->consumer + k]] = true;
		b->gradients |= t->role == PL_TR_GRAD && t->n_consumers > 0;
	}
	return 0;
}

/* The class of an operation of a pass. */
static uint32_t work_class(const struct batch *b, const struct pl_shape *s, uint32_t i)
{
	uint32_t shape = (uint32_t)(s - b->x->g->shape), group = b->work.of_node[shape][i];

	if (group != PL_NONE)
		return GROUPS + group;
	if (s->kind[i] == PL_K_HOST_OP) /* without sizes, or a part that does not compute */
		return PL_NONE;
	return !b->work.batch.any || (s->res[i] != PL_NONE &&
				      b->x->g->res[s->res[i]].track_type == PL_T_STREAM &&
				      (!s->work || s->work[i] == PL_NONE ||
				       b->x->g->work[s->work[i]].dims == PL_NONE))
		       ? COMPUTES
		       : PL_NONE;
}

static int classify(struct batch *b, const struct pl_shape *s, uint32_t *class, struct pl_err *err)
{
	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		bool host = s->role[i] == PL_RO_HOST || s->role[i] == PL_RO_GAP;
		bool launches =
			s->kind[i] == PL_K_HOST_OP && s->res[i] != PL_NONE && b->device[s->res[i]];

		if (s->role[i] == PL_RO_TRANSFER && moves_samples(b, s, i))
			PL_CHECK(comm_class(b, s, i, &class[i], err));
		else if (s->phase && s->phase[i] == PL_PH_INPUT &&
			 (host || s->role[i] == PL_RO_COPY || s->role[i] == PL_RO_COMPUTE))
			class[i] = s->role[i] == PL_RO_GAP && s->flags[i] & PL_NF_INFERRED ? PAUSE
											   : INPUT;
		else if ((s->role[i] == PL_RO_COMPUTE || s->role[i] == PL_RO_COPY) && !launches &&
			 computes_samples(b, s, i))
			class[i] = work_class(b, s, i);
		else if (b->sparse && s->role[i] == PL_RO_COMPUTE && !launches && s->phase &&
			 s->phase[i] == PL_PH_OPTIMIZER)
			class[i] = MAYBE;
	}
	return 0;
}

/* What a part of a group takes beyond twice the usual: pages of new memory, which a profiler that
 * keeps sizes needs more often, or a wait for a processor. It need not follow the samples. */
static double beyond_usual(const struct batch *b, uint32_t class, pl_ns dur)
{
	return class >= GROUPS ? fmax((double)dur - 2 * b->work.group[class - GROUPS].ns, 0) : 0;
}

/* What a group becomes: the factor, and its standard errors by the rule and by the cost model. */
struct estimate {
	double factor, by_rule, by_model;
	uint32_t part; /* of the model; PL_NONE: it does not know the group */
};

/* How uncertain the changed durations are. v: by class. */
static int find_error(struct batch *b, struct rw_change *c, const struct estimate *v,
		      struct pl_err *err)
{
	const struct pl_graph *g = b->x->g;
	struct rw_errors e = { 0 };
	int rc = 0;

	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];

		if (!pl_graph_is_step(g, k))
			continue;
		for (uint32_t i = 0; i < g->shape[st->shape].n_nodes; i++) {
			uint32_t class = c->class[st->shape][i];
			double ns = (double)st->dur[i], more;

			if (class < COMPUTES || class >= GROUPS + b->work.n_groups)
				continue;
			more = fabs(1 - v[class].factor) * beyond_usual(b, class, st->dur[i]);
			PL_TRY(pl_rewrite_add_error(
				&e, PL_NONE,
				v[class].part == PL_NONE && v[class].factor != 1 ? ns : 0,
				v[class].by_rule * ns + more, err));
			if (v[class].part != PL_NONE)
				PL_TRY(pl_rewrite_add_error(&e, v[class].part, ns,
							    v[class].by_model * ns, err));
		}
	}
	c->basis.work_ns = pl_rewrite_error(&e) / (double)pl_rewrite_steps(g) /
			   (double)(g->n_ranks ? g->n_ranks : 1);
	c->basis.known_ns = e.known;
	c->basis.changed_ns = e.all;
out:
	pl_rewrite_errors_fini(&e);
	return rc;
}

/* Which share of the time of all transfers may be wrong. wrong: by class of communication. */
static void find_comm_error(const struct batch *b, struct rw_change *c, const double *wrong)
{
	const struct pl_graph *g = b->x->g;
	size_t first = GROUPS + b->work.n_groups;
	double sum = 0, all = 0;

	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_gstep *st = &g->step[k];
		const struct pl_shape *s = &g->shape[st->shape];

		if (!pl_graph_is_step(g, k))
			continue;
		for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
			uint32_t class = c->class[st->shape][i];
			double ns = (double)st->dur[i];

			if (s->role[i] != PL_RO_TRANSFER)
				continue;
			if (class == PL_NONE || class < first ||
			    (c->select.keys && !pl_graph_selects(&c->select, s, i))) {
				all += ns;
				continue;
			}
			all += ns * c->of_class[class];
			sum += ns * wrong[class - first];
		}
	}
	if (!(sum > 0))
		return;
	c->basis.error = fmin(sum / all, 1);
	pl_rewrite_count_basis(g, b->x->cost, &c->basis);
}

/* Two estimates of one factor, weighted by their precision: of logarithms, whose standard errors
 * are relative. If they differ by more than these say, the errors grow as much. */
static void combine(struct estimate *v, const struct pl_predictor_ratio *r)
{
	double a = v->by_rule / v->factor, b = r->error / r->factor;
	double differ = log(r->factor / v->factor), all = fmax(hypot(a, b), 1e-9);
	double of_model = a * a / (all * all), wrong = fmax(1, fabs(differ) / all);

	v->factor *= exp(differ * of_model);
	v->by_rule = v->factor * (1 - of_model) * a * wrong;
	v->by_model = v->factor * of_model * b * wrong;
	v->part = r->part;
}

/* A group by the rule and, if the cost model knows it, by that too. */
static struct estimate estimate(const struct batch *b, uint32_t i, bool rule)
{
	double caches = PL_WORK_CACHES * fabs(log2(b->by / b->before)), before;
	struct estimate v = { .part = PL_NONE };

	before = pl_work_factor(&b->work, i, b->before, &v.by_rule);
	v.factor = pl_work_factor(&b->work, i, b->by, &v.by_rule) / before;
	if (!b->work.group[i].device)
		v.by_rule = hypot(v.by_rule, caches * v.factor);
	if (rule)
		v.by_rule = fmax(v.by_rule, PL_WORK_RULE_ERROR * fabs(1 - v.factor));
	if (!b->ratio || !b->ratio[i].known || b->by == b->before)
		return v;
	v.by_rule = fmax(v.by_rule, caches * v.factor);
	combine(&v, &b->ratio[i]);
	return v;
}

static int set_factors(struct batch *b, struct rw_change *c, struct pl_err *err)
{
	bool rule = !b->work.batch.pass;
	size_t groups = b->work.n_groups;
	struct estimate *v = NULL;
	double *wrong = NULL;
	int rc;

	PL_TRY(pl_alloc(&v, GROUPS + groups, sizeof(*v), err));
	PL_TRY(pl_alloc(&wrong, b->comm.n, sizeof(*wrong), err));
	PL_TRY(pl_alloc(&c->of_class, GROUPS + groups + b->comm.n, sizeof(*c->of_class), err));
	v[INPUT] = v[PAUSE] = v[COMPUTES] =
		(struct estimate){ .factor = b->by / b->before, .part = PL_NONE };
	v[COMPUTES].by_rule = PL_WORK_RULE_ERROR * fabs(b->before - b->by);
	v[MAYBE] = (struct estimate){ .factor = (1 + b->by) / (1 + b->before), .part = PL_NONE };
	v[MAYBE].by_rule = v[PAUSE].by_rule = fabs(b->by - b->before) / 2;
	for (uint32_t i = 0; i < groups; i++)
		v[GROUPS + i] = estimate(b, i, rule);
	for (size_t i = 0; i < GROUPS + groups; i++)
		c->of_class[i] = v[i].factor;
	for (pl_id i = 0; i < b->comm.n; i++)
		c->of_class[GROUPS + groups + i] = comm_factor(b, i, &wrong[i], &c->basis.one_size);
	PL_TRY(find_error(b, c, v, err));
	find_comm_error(b, c, wrong);
	c->basis.no_batch = rule;
	c->basis.batch = pl_work_samples(&b->work);
out:
	pl_free(v);
	pl_free(wrong);
	return rc;
}

/* Does the line concern the resource? Sets *rank to the place of its rank. */
static bool is_concerned(const struct batch *b, size_t res, uint32_t *rank)
{
	*rank = pl_graph_rank_index(b->x->g, b->x->g->res[res].rank);
	return *rank != PL_NONE && (!b->c->select.keys || b->c->select.res[res]);
}

/* How many times the recorded samples the ranks take in by the lines before this one. */
static int find_before(struct batch *b, struct pl_err *err)
{
	const struct rw_network *net = b->x->network;
	uint32_t first = PL_NONE, rank;

	b->before = net->batch > 0 ? net->batch : 1;
	for (size_t i = 0; net->batch_of && i < b->x->g->n_res; i++) {
		if (!is_concerned(b, i, &rank))
			continue;
		if (first != PL_NONE && net->batch_of->v[rank] != b->before)
			return pl_fail(
				err, PL_EDATA,
				"lines before it give the ranks unlike numbers of samples (%g "
				"times the recorded ones on rank %d, %g times on rank %d); put "
				"batch of all ranks before batch of some",
				b->before, b->x->g->rank[first], net->batch_of->v[rank],
				b->x->g->rank[rank]);
		first = rank;
		b->before = net->batch_of->v[rank];
	}
	return 0;
}

/* The lines behind this one count from its samples. */
static int note_samples(struct batch *b, struct pl_err *err)
{
	struct rw_network *net = b->x->network;
	double usual = net->batch > 0 ? net->batch : 1;
	struct rw_array *a;
	uint32_t rank;

	if (!b->c->select.keys)
		net->batch = b->by;
	if (!b->c->select.keys && !net->batch_of)
		return 0;
	PL_CHECK(pl_rewrite_array_new((size_t)b->x->g->n_ranks, &a, err));
	for (int32_t i = 0; i < b->x->g->n_ranks; i++)
		a->v[i] = net->batch_of ? net->batch_of->v[i] : usual;
	for (size_t i = 0; i < b->x->g->n_res; i++)
		if (is_concerned(b, i, &rank))
			a->v[rank] = b->by;
	pl_rewrite_array_unref(net->batch_of);
	net->batch_of = a;
	return 0;
}

/* How many times the recorded samples there are, and the rewrite asks for. */
static int find_factor(struct batch *b, const struct pl_rewrite *rw, struct pl_err *err)
{
	int64_t recorded = pl_work_samples(&b->work);

	PL_CHECK(find_before(b, err));
	b->by = rw->x * b->before;
	if (rw->k && b->c->select.keys)
		return pl_fail(
			err, PL_EDATA,
			"a number of samples is one for all ranks; write: batch by=X rank=R");
	if (rw->k && b->work.batch.other_pass)
		return pl_fail(
			err, PL_EDATA,
			"ranks take unlike numbers of samples in a pass (rank %d %lld, others "
			"%lld), so no factor gives all of them as many; write: batch by=X, or "
			"scale rank=R,kind=host_op|kernel by X for one rank",
			b->work.batch.other_rank, (long long)b->work.batch.other_pass,
			(long long)b->work.batch.pass);
	if (rw->k && !recorded)
		return pl_fail(
			err, PL_EDATA,
			"the sizes of tensors do not say how many samples a rank takes in%s; "
			"write: batch by=X",
			b->work.batch.any ? "" : " (the recording has none)");
	if (rw->k)
		b->by = (double)rw->k / (double)recorded;
	return note_samples(b, err);
}

static int change_batch(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
			struct pl_err *err)
{
	struct batch b = { .x = x, .c = c };
	const struct pl_graph *g = x->g;
	int rc;

	if (rw->select.key[PL_SEL_RANK])
		PL_TRY(pl_graph_select_init(&c->select, &rw->select, g, x->e, err));
	if (!x->cost) {
		PL_TRY(pl_cost_fit(g, x->topo, &x->own, err));
		x->cost = &x->own;
	}
	PL_TRY(pl_work_fit(g, &b.work, err));
	PL_TRY(find_factor(&b, rw, err));
	if (x->predictor && (b.work.batch.pass || !b.work.batch.any)) {
		struct rw_setting from = pl_rewrite_setting(x), to = { b.by, from.device };

		from.batch = b.before;
		PL_TRY(pl_rewrite_ratios(x, &b.work, from, to, &b.ratio, err));
	}
	PL_TRY(pl_rewrite_devices(g, &b.device, err));
	b.sparse = uses_sparse(g);
	PL_TRY(pl_rewrite_activations(g, &b.activations, err));
	PL_TRY(pl_alloc(&c->class, g->n_shapes, sizeof(*c->class), err));
	c->n_shapes = g->n_shapes;
	for (size_t k = 0; k < g->n_shapes; k++) {
		size_t n = g->shape[k].n_nodes;

		PL_TRY(pl_alloc(&c->class[k], n, sizeof(**c->class), err));
		memset(c->class[k], 0xff, n * sizeof(**c->class));
		PL_TRY(find_gradients(&b, &g->shape[k], err));
		PL_TRY(classify(&b, &g->shape[k], c->class[k], err));
	}
	PL_TRY(set_factors(&b, c, err));
out:
	pl_work_fini(&b.work);
	pl_free(b.ratio);
	pl_intern_fini(&b.comm);
	pl_free(b.device);
	pl_free(b.carries);
	pl_free(b.activations);
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_batch = {
	.change = change_batch,
	.explain = "each rank takes in {samples} samples a step; what it does for parameters stays"
};
