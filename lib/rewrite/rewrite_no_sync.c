/*
 * no-sync: gradients are synchronised in every K-th backward pass only, as with no_sync() of
 * PyTorch.
 *
 * Of sharded parameters the reductions of their groups carry gradients; parameters are gathered in
 * every pass. In the other passes the transfers that carry gradients take no time, and neither does
 * what hosts do to put gradients into buckets and back. What waits for the transfers still waits,
 * and so do ranks for one another.
 *
 * If a step has one pass that synchronises, the last of K backward passes does, counted from the
 * first step of the graph. So the mean of the steps is that of the job if K divides their number;
 * else basis.other_share says how wrong the change is. Steps without a backward pass, as of an
 * evaluation, do not count. The job may have no_sync() already, so that only each p-th pass
 * synchronises: then K is a multiple of p, and the last of K / p such passes stays as it is. If a
 * step has several passes that synchronise, its last one does, and K must divide their number,
 * because the optimiser needs all gradients of the step.
 */
#include "rewrite/rewrite_internal.h"

#define LEFT_OUT 0 /* the class of operations that take no time */

struct carrier { /* a gradient that communication carries */
	pl_id name;
	uint32_t rank; /* place in the graph */
	uint32_t tensor;
};
PL_COMPARATOR(by_name, struct carrier, name, rank, tensor);

struct finder {
	const struct pl_graph *g;
	const struct rw_groups *groups; /* NULL: nothing is sharded */
	const struct pl_shape *s;
	const struct pl_gstep *st; /* the first step of the shape */
	uint32_t *pass_of; /* [node]: of an arrival, its pass + 1; 0: it carries no gradients */
	uint32_t n_passes;
	pl_ns *begin; /* [rank in the graph][pass]: the first gradient is made */
};

static void carries(struct finder *f, uint32_t arrive, uint32_t pass)
{
	f->pass_of[arrive] = pass + 1;
	f->n_passes = pass + 1 > f->n_passes ? pass + 1 : f->n_passes;
}

/* What reduces the gradients of groups of sharded parameters. */
static int find_reducing(struct finder *f, struct pl_err *err)
{
	const struct rw_groups *v = f->groups;
	uint32_t *n; /* [rank]: passes of the step that reduce, so far */

	PL_CHECK(pl_alloc(&n, (size_t)f->g->n_ranks + 1, sizeof(*n), err));
	for (size_t k = 0; k < v->n_passes; k++) {
		const struct rw_pass *p = &v->pass[k];
		bool any = false;

		for (uint32_t i = 0; &f->g->step[p->step] == f->st && i < p->n; i++)
			for (unsigned what = RW_REDUCE; what <= RW_AVERAGE; what++) {
				uint32_t arrive = v->group[p->first + i].arrive[what];

				if (arrive == PL_NONE)
					continue;
				carries(f, arrive, n[p->rank]);
				any = true;
			}
		n[p->rank] += any;
	}
	pl_free(n);
	return 0;
}

/* The rank of a node, as its place in the graph; PL_NONE. */
static uint32_t rank_of(const struct finder *f, uint32_t node)
{
	uint32_t res = f->s->res[node];

	return res == PL_NONE ? PL_NONE : pl_graph_rank_index(f->g, f->g->res[res].rank);
}

static int list_carriers(const struct finder *f, struct carrier **v, size_t *n, struct pl_err *err)
{
	const struct pl_graph *g = f->g;

	PL_CHECK(pl_alloc(v, g->n_tensors + 1, sizeof(**v), err));
	*n = 0;
	for (uint32_t i = 0; i < g->n_tensors; i++) {
		const struct pl_tensor *t = &g->tensor[i];

		if (t->role == PL_TR_GRAD && &g->shape[t->shape] == f->s && t->n_consumers)
			(*v)[(*n)++] = (struct carrier){ t->name,
							 rank_of(f, g->consumer[t->consumer]), i };
	}
	pl_sort(*v, *n, sizeof(**v), by_name);
	return 0;
}

/* A tensor that a rank has several times is one of several passes. */
static uint32_t next_pass(const struct carrier *v, size_t i, uint32_t pass)
{
	return i && v[i].name == v[i - 1].name && v[i].rank == v[i - 1].rank ? pass + 1 : 0;
}

static int find_carrying(struct finder *f, struct pl_err *err)
{
	const struct pl_graph *g = f->g;
	struct carrier *v = NULL;
	uint32_t pass = 0;
	size_t n = 0;
	int rc;

	PL_TRY(list_carriers(f, &v, &n, err));
	for (size_t i = 0; i < n; i++) {
		const struct pl_tensor *t = &g->tensor[v[i].tensor];

		pass = next_pass(v, i, pass);
		for (uint32_t k = 0; k < t->n_consumers; k++)
			carries(f, g->consumer[t->consumer + k], pass);
	}
	PL_TRY(pl_alloc(&f->begin, (size_t)g->n_ranks * f->n_passes + 1, sizeof(*f->begin), err));
	for (size_t i = 0; i < (size_t)g->n_ranks * f->n_passes; i++)
		f->begin[i] = INT64_MAX;
	for (size_t i = 0; i < n; i++) {
		uint32_t made = g->tensor[v[i].tensor].producer;

		pass = next_pass(v, i, pass);
		if (made != PL_NONE && v[i].rank != PL_NONE && pass < f->n_passes) {
			pl_ns *begin = &f->begin[v[i].rank * f->n_passes + pass];

			*begin = pl_min_i64(*begin, f->st->start[made]);
		}
	}
out:
	pl_free(v);
	return rc;
}

/* What one member of a communication carries, all of them do. */
static int share_passes(const struct finder *f, struct pl_err *err)
{
	const struct pl_shape *s = f->s;
	uint32_t *of_comm;

	if (!s->comm)
		return 0;
	PL_CHECK(pl_alloc(&of_comm, (size_t)s->n_comms + 1, sizeof(*of_comm), err));
	for (uint32_t i = 0; i < s->n_nodes; i++)
		if (f->pass_of[i] && s->comm[i] != PL_NONE)
			of_comm[s->comm[i]] = f->pass_of[i];
	for (uint32_t i = 0; i < s->n_nodes; i++)
		if (s->role[i] == PL_RO_ARRIVE && s->comm[i] != PL_NONE)
			f->pass_of[i] = of_comm[s->comm[i]];
	pl_free(of_comm);
	return 0;
}

/* The pass for whose gradients the node is, + 1; 0: it is for none. */
static uint32_t pass_of_node(const struct finder *f, uint32_t i)
{
	const struct pl_shape *s = f->s;
	uint32_t rank, pass = 0;

	if (s->role[i] == PL_RO_TRANSFER) {
		uint32_t arrive = pl_node_arrival(s, i);

		return arrive == PL_NONE ? 0 : f->pass_of[arrive];
	}
	if (!f->begin || s->role[i] != PL_RO_COMPUTE || s->kind[i] != PL_K_HOST_OP || !s->phase ||
	    s->phase[i] != PL_PH_COMM || (rank = rank_of(f, i)) == PL_NONE)
		return 0;
	while (pass < f->n_passes && f->begin[rank * f->n_passes + pass] <= f->st->start[i])
		pass++;
	return pass;
}

static int refuse_number(const struct finder *f, int64_t k, struct pl_err *err)
{
	return pl_fail(err, PL_EDATA,
		       "a step synchronises gradients in %u backward passes, and the optimiser "
		       "needs all of them: %lld does not divide %u",
		       f->n_passes, (long long)k, f->n_passes);
}

enum { SYNCHRONISES = 1, HAS_BACKWARD = 2 }; /* what a shape does */

/* The classes of the nodes of a shape, and what it does. */
static int classify(struct finder *f, int64_t every, uint32_t **class, uint8_t *does,
		    struct pl_err *err)
{
	const struct pl_shape *s = f->s;
	int rc;

	for (size_t k = 0; k < f->g->n_steps && !f->st; k++)
		if (&f->g->shape[f->g->step[k].shape] == s)
			f->st = &f->g->step[k];
	PL_TRY(pl_alloc(&f->pass_of, (size_t)s->n_nodes + 1, sizeof(*f->pass_of), err));
	PL_TRY(pl_alloc(class, s->n_nodes, sizeof(**class), err));
	memset(*class, 0xff, s->n_nodes * sizeof(**class));
	if (!f->st) {
		rc = 0;
		goto out;
	}
	PL_TRY(f->groups ? find_reducing(f, err) : find_carrying(f, err));
	PL_TRY(share_passes(f, err));
	if (f->n_passes > 1 && f->n_passes % every != 0) {
		rc = refuse_number(f, every, err);
		goto out;
	}
	for (uint32_t i = s->n_entries; i < s->n_nodes; i++) {
		uint32_t pass = pass_of_node(f, i);

		if (pass > 0)
			*does |= SYNCHRONISES;
		if (s->phase && pl_graph_is_backward(s->phase[i]))
			*does |= HAS_BACKWARD;
		if (pass && (f->n_passes == 1 || pass % every != 0))
			(*class)[i] = LEFT_OUT;
	}
out:
	pl_free(f->pass_of);
	pl_free(f->begin);
	return rc;
}

/* Does the step have a backward pass? Where no phases are known, all have one. */
static bool has_pass(const struct pl_graph *g, size_t step, const uint8_t *does, bool phases)
{
	return pl_graph_is_step(g, step) && (!phases || does[g->step[step].shape]);
}

/* One of how many backward passes synchronises in the recording; 0: the distances differ, or only
 * one does. */
static int64_t recorded_period(const struct pl_graph *g, const uint8_t *does)
{
	int64_t passes = 0, last = 0, first = 0, period = 0;
	bool phases = false, differ = false;

	for (size_t k = 0; k < g->n_shapes; k++)
		phases |= does[k] & HAS_BACKWARD;
	for (size_t k = 0; k < g->n_steps; k++) {
		if (!has_pass(g, k, does, phases))
			continue;
		passes++;
		if (!(does[g->step[k].shape] & SYNCHRONISES))
			continue;
		if (!last)
			first = passes;
		else if (!period)
			period = passes - last;
		else
			differ |= passes - last != period;
		last = passes;
	}
	if (passes == 1)
		period = 1;
	return differ || first > period || passes - last >= period ? 0 : period;
}

/* Which steps change, and how wrong their share is. */
static int choose_steps(const struct pl_graph *g, int64_t k, const uint8_t *does,
			struct rw_change *c, struct pl_err *err)
{
	int64_t n = 0, kept = 0, period = recorded_period(g, does), every;

	if (!period)
		return pl_fail(err, PL_EDATA,
			       "one of several backward passes synchronises gradients, and the "
			       "recording does not show of how many: the distances differ, or are "
			       "longer than it; 'remove kind=comm step=STEPS' removes the "
			       "communication of some steps");
	if (k % period || (period > 1 && k == period))
		return pl_fail(err, PL_EDATA,
			       "gradients are synchronised in one of %lld backward passes already; "
			       "give a greater multiple of %lld",
			       (long long)period, (long long)period);
	every = k / period;
	PL_CHECK(pl_alloc(&c->stays, g->n_steps, sizeof(*c->stays), err));
	for (size_t i = 0; i < g->n_steps; i++) {
		bool synchronises = pl_graph_is_step(g, i) && does[g->step[i].shape] & SYNCHRONISES;

		n += synchronises;
		c->stays[i] = !synchronises || n % every == 0;
		kept += synchronises && c->stays[i];
	}
	if (n > kept)
		c->basis.other_share = fabs(1 - (double)(every - 1) / (double)every * (double)n /
							(double)(n - kept));
	return 0;
}

static int change_no_sync(struct rw_facts *x, const struct pl_rewrite *rw, struct rw_change *c,
			  struct pl_err *err)
{
	bool any = false, one = false, several = false, sharded = pl_rewrite_gathers(x->g) > 0;
	uint8_t *does = NULL; /* [shape] */
	int rc;

	if (x->g->stepless)
		return pl_fail(err, PL_EDATA, "the recording has no steps");
	PL_CHECK(pl_rewrite_groups_find(x, err));
	if (sharded)
		PL_CHECK(pl_rewrite_groups_need(x, false, err));
	sharded |= x->groups->whole;
	PL_TRY(pl_alloc(&does, x->g->n_shapes, sizeof(*does), err));
	PL_TRY(pl_alloc(&c->class, x->g->n_shapes, sizeof(*c->class), err));
	c->n_shapes = x->g->n_shapes;
	for (uint32_t k = 0; k < c->n_shapes; k++) {
		struct finder f = { .g = x->g,
				    .groups = sharded ? x->groups : NULL,
				    .s = &x->g->shape[k] };

		PL_TRY(classify(&f, rw->k, &c->class[k], &does[k], err));
		any |= does[k] & SYNCHRONISES;
		one |= f.n_passes == 1;
		several |= f.n_passes > 1;
	}
	PL_TRY(pl_alloc(&c->of_class, 1, sizeof(*c->of_class), err));
	c->sets = c->removes = true;
	if (one && several)
		rc = pl_fail(err, PL_EDATA,
			     "some steps synchronise gradients in one backward pass, and some in "
			     "several");
	else if (!any)
		rc = pl_fail(
			err, PL_EDATA,
			"the graph knows no gradients that ranks synchronise; 'remove kind=comm' "
			"removes all communication");
	else if (!several)
		rc = choose_steps(x->g, rw->k, does, c, err);
out:
	pl_free(does);
	return rc;
}

int pl_rewrite_passes(const struct pl_graph *g, uint32_t *passes, struct pl_err *err)
{
	struct carrier *v = NULL;
	int rc = 0;

	*passes = 0;
	for (size_t k = 0; rc == 0 && k < g->n_shapes; k++) {
		const struct finder f = { .g = g, .s = &g->shape[k] };
		uint32_t pass = 0;
		size_t n = 0;

		rc = list_carriers(&f, &v, &n, err);
		for (size_t i = 0; i < n; i++) {
			pass = next_pass(v, i, pass);
			*passes = pass + 1 > *passes ? pass + 1 : *passes;
		}
		pl_free(v);
	}
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_no_sync = {
	.change = change_no_sync,
	.explain = "gradients are synchronised in one of {k} backward passes, which then work with "
		   "gradients of {k} batches"
};
