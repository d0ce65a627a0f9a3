/*
 * accumulate: a batch is divided into k microbatches, with one synchronisation.
 *
 * The size of the batch stays the same: the kernels, copies and messages of a microbatch take 1/k
 * of their time. The calls of the host and the time between them do not change, because each
 * microbatch launches everything again. Only the gradients of the last microbatch are synchronised.
 *
 * What is done once a step stays as it is: reading the batch, evaluation, saving, the optimizer. A
 * microbatch does not wait for it, so the times in which nothing else is done are in no period, and
 * the other microbatches come behind what the step does so first. Where phases are known, only
 * threads and streams of the two passes count.
 *
 * The edit holds the last microbatch, after one operation of k-1 periods. Host and device work at
 * the same time on different microbatches. Therefore a period is the busy time of the host or of
 * the device for one microbatch, whichever is longer, and the operation is of its kind. It stands
 * for the work of the other microbatches. Therefore every other rewrite that changes operations is
 * applied first. A rank that synchronises nothing has gradients too.
 *
 * The gradients of a shorter backward pass become ready closer together. Where recorded transfers
 * of a rank overlapped, they shared the link, and each took the longer for it. They overlap more
 * now, so their recorded durations do not hold: the communication is built again.
 */
#include "core/spans.h"
#include "rewrite/rewrite_internal.h"

struct slot { /* a rank in a step */
	uint32_t step;
	int32_t rank;
	pl_ns end;	    /* of the operation that makes its last gradient; INT64_MIN: none */
	pl_ns period;	    /* of the present microbatch */
	pl_ns lost;	    /* of computation to the recorded communication */
	uint8_t role, kind; /* of the operations whose time is the period */
	pl_ns later;	    /* begin of the last microbatch */
};
struct passes {
	struct slot *slot; /* [step][rank] */
	size_t n_slots, n_ranks;
	uint32_t *of_rank; /* [rank of the graph]: number among the ranks of slots, PL_NONE */
	struct slot **of;  /* [node]: whose forward or backward pass it is in; NULL: none's */
	bool *aside;	   /* [node]: done once a step */
	bool *behind;	   /* [node] ... behind something that is repeated */
	bool any_aside;
	bool *works;	  /* [resource]: some of its operations are known to be of a pass */
	bool (*known)[2]; /* [rank of slots][of a device] some such resource */
	struct pl_spans repeated[2],
		all[2]; /* [of a device]: by slot, when it works; with `aside` */
	uint32_t n_nodes;
	uint32_t *node; /* those with one, by slot */
	size_t *first;	/* [slot + 1]: into node */
	uint32_t name;	/* of the operations that stand for the other microbatches */
};

static struct slot *slot_at(const struct pl_rewriter *r, const struct passes *p, uint32_t step,
			    int32_t rank)
{
	uint32_t at = pl_graph_rank_index(r->e->g, rank);

	if (at == PL_NONE || p->of_rank[at] == PL_NONE || step >= r->e->n_steps)
		return NULL;
	return &p->slot[step * p->n_ranks + p->of_rank[at]];
}

static size_t rank_of(const struct passes *p, const struct slot *s)
{
	return (size_t)(s - p->slot) % p->n_ranks;
}

/* The end of the operation that makes the last gradient of each slot. */
static void find_ends(const struct pl_rewriter *r, const struct passes *p)
{
	const struct pl_edit *e = r->e;

	for (size_t k = 0; k < p->n_slots; k++)
		p->slot[k].end = INT64_MIN;
	for (size_t i = 0; i < e->n_tensors; i++) {
		const struct pl_etensor *x = &e->tensor[i];
		struct slot *s;

		if (x->dead || x->producer == PL_NONE ||
		    e->g->tensor[x->tensor].role != PL_TR_GRAD ||
		    (r->n_tensors && x->arrive == PL_NONE))
			continue;
		s = slot_at(r, p, x->step, x->rank);
		if (s)
			s->end = pl_max_i64(s->end, pl_edit_end(e, x->producer));
	}
}

/* Does the step do it once, however many microbatches there are? */
static bool is_once(const struct pl_enode *n)
{
	return n->type == PL_N_OP && n->role != PL_RO_MARK &&
	       (n->phase == PL_PH_OPTIMIZER || pl_graph_phase_holds(n->phase));
}

static bool is_aside(const struct passes *p, uint32_t node)
{
	return node < p->n_nodes && p->aside[node];
}

/* Is there an operation of the step before the node that is repeated? Marks are none. Nodes come
 * behind those that they depend on. */
static bool follows(const struct pl_edit *e, const struct passes *p, uint32_t node)
{
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next) {
		uint32_t src = e->edge[x].src;
		const struct pl_enode *n = &e->node[src];

		if (n->step == e->node[node].step && n->type != PL_N_ENTRY &&
		    n->role != PL_RO_MARK && (!is_aside(p, src) || p->behind[src]))
			return true;
	}
	return false;
}

static bool on_device(const struct pl_edit *e, uint32_t res)
{
	return e->res[res].track_type != PL_T_THREAD;
}

/* Which operations are of the forward and backward pass of a slot. */
static int find_nodes(const struct pl_rewriter *r, struct passes *p, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	size_t n = 0;

	PL_CHECK(pl_alloc(&p->first, p->n_slots + 1, sizeof(*p->first), err));
	for (uint32_t i = 0; i < p->n_nodes; i++) {
		const struct pl_enode *x = &e->node[i];
		struct slot *s;

		if (x->dead || (x->type != PL_N_OP && x->type != PL_N_RESOURCE) ||
		    x->res == PL_NONE)
			continue;
		s = slot_at(r, p, x->step, e->res[x->res].rank);
		if (!s || s->end == INT64_MIN || x->start >= s->end)
			continue;
		if (is_once(x)) {
			p->any_aside = p->aside[i] = true;
			p->behind[i] = follows(e, p, i);
			continue;
		}
		p->of[i] = s;
		if (x->phase == PL_PH_FORWARD || pl_graph_is_backward(x->phase))
			p->works[x->res] = p->known[rank_of(p, s)][on_device(e, x->res)] = true;
		p->first[s - p->slot]++;
		n++;
	}
	PL_CHECK(pl_alloc(&p->node, n, sizeof(*p->node), err));
	for (size_t k = 0, sum = 0; k <= p->n_slots; k++) {
		sum += p->first[k];
		p->first[k] = sum; /* its end, which goes down to its begin */
	}
	for (uint32_t i = p->n_nodes; i-- > 0;)
		if (p->of[i])
			p->node[--p->first[p->of[i] - p->slot]] = i;
	return 0;
}

/* Is it where the passes of the slot are? */
static bool counts(const struct pl_edit *e, const struct passes *p, const struct slot *s,
		   uint32_t res)
{
	return p->works[res] || !p->known[rank_of(p, s)][on_device(e, res)];
}

/* Does it take time of a period? */
static bool is_work(const struct passes *p, const struct pl_enode *n)
{
	return n->name != p->name && (n->role == PL_RO_COMPUTE || n->role == PL_RO_COPY ||
				      n->role == PL_RO_HOST || n->role == PL_RO_GAP);
}

/* When threads and devices work, in the settled edit. */
static int find_times(const struct pl_rewriter *r, struct passes *p, struct pl_err *err)
{
	const struct pl_edit *e = r->e;

	for (int i = 0; i < 2; i++) {
		pl_spans_clear(&p->repeated[i]);
		pl_spans_clear(&p->all[i]);
	}
	for (uint32_t i = 0; p->any_aside && i < p->n_nodes; i++) {
		const struct pl_enode *n = &e->node[i];
		const struct slot *s = p->of[i];
		bool device;
		int32_t group;

		if (n->dead || (!s && !p->aside[i]) || !is_work(p, n))
			continue;
		s = s ? s : slot_at(r, p, n->step, e->res[n->res].rank);
		if (!counts(e, p, s, n->res))
			continue;
		group = (int32_t)(s - p->slot);
		device = on_device(e, n->res);
		if (!p->aside[i])
			PL_CHECK(pl_spans_add(&p->repeated[device], group, n->start,
					      pl_edit_end(e, i), err));
		if (!device)
			PL_CHECK(pl_spans_add(&p->all[0], group, n->start, pl_edit_end(e, i), err));
		if (device || p->aside[i]) /* which has nothing to do while its thread waits */
			PL_CHECK(pl_spans_add(&p->all[1], group, n->start, pl_edit_end(e, i), err));
	}
	for (int i = 0; i < 2; i++) {
		pl_spans_unite(&p->repeated[i]);
		pl_spans_unite(&p->all[i]);
	}
	return 0;
}

/* The longer of the times from the first to the last operation on threads, and on devices, without
 * those in which they only do what is done once. Without a device the work of threads is the
 * computation. */
static pl_ns period_of(const struct pl_edit *e, const struct passes *p, struct slot *s)
{
	const int32_t group = (int32_t)(s - p->slot);
	pl_ns from[2] = { INT64_MAX, INT64_MAX }, to[2] = { INT64_MIN, INT64_MIN }, ns[2];
	uint8_t kind[2] = { PL_K_HOST_OP, PL_K_KERNEL };
	bool device;

	for (size_t k = p->first[s - p->slot]; k < p->first[s - p->slot + 1]; k++) {
		const uint32_t i = p->node[k];
		const struct pl_enode *n = &e->node[i];

		if (!is_work(p, n) || !counts(e, p, s, n->res))
			continue;
		device = on_device(e, n->res);
		from[device] = pl_min_i64(from[device], n->start);
		to[device] = pl_max_i64(to[device], pl_min_i64(pl_edit_end(e, i), s->end));
		if (n->role == PL_RO_COMPUTE)
			kind[device] = n->kind;
	}
	for (int i = 0; i < 2; i++) {
		ns[i] = pl_sub_sat(to[i], from[i]);
		if (ns[i] > 0 && p->any_aside)
			ns[i] -= pl_spans_cover(&p->all[i], group, from[i], to[i]) -
				 pl_spans_cover(&p->repeated[i], group, from[i], to[i]);
	}
	device = ns[1] >= ns[0];
	s->role = device || ns[1] < 0 ? PL_RO_COMPUTE : PL_RO_HOST;
	s->kind = kind[device];
	return pl_max_i64(0, ns[device]);
}

/* Is its work that of the batch, of which a microbatch has a part? */
static bool shrinks(const struct pl_rewriter *r, const struct passes *p, uint32_t node)
{
	const struct pl_enode *n = &r->e->node[node];

	if (n->name == p->name)
		return false;
	if (n->role == PL_RO_TRANSFER)
		return node < r->n_recorded && !r->is_grad_comm[node];
	return n->role == PL_RO_COMPUTE || n->role == PL_RO_COPY;
}

/* Put the operation that stands for the other microbatches before `node`. */
static uint32_t put_before(struct pl_rewriter *r, const struct passes *p, const struct slot *s,
			   uint32_t node, uint32_t after)
{
	struct pl_enode n = pl_edit_blank_node();
	uint32_t id;

	n.type = PL_N_OP;
	n.role = s->role;
	n.kind = s->kind;
	n.flags = r->e->node[node].flags & PL_NF_IN_STEP;
	n.name = p->name;
	n.step = s->step;
	n.res = r->e->node[node].res;
	n.start = r->e->node[node].start;
	n.dur = pl_max_i64(0, s->later);
	id = rw_add_node(r, &n, after);
	rw_add_edge(r, id, node, PL_E_SEQ, 0);
	return id;
}

static void move_edge(struct pl_rewriter *r, uint32_t edge, uint32_t to)
{
	const struct pl_eedge was = r->e->edge[edge];

	rw_add_edge_like(r, was.src, to, &was, was.type, 0);
	rw_drop_edge(r, edge);
}

/* Does the node come behind something of the step that is done once, and that begins the step? */
static bool waits_for_input(const struct pl_edit *e, const struct passes *p, uint32_t node)
{
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next)
		if (is_aside(p, e->edge[x].src) && !p->behind[e->edge[x].src])
			return true;
	return false;
}

/* Does nothing of the step precede it but what is done once? */
static bool is_first(const struct pl_edit *e, const struct passes *p, uint32_t node)
{
	bool input = waits_for_input(e, p, node);

	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next) {
		uint32_t src = e->edge[x].src;

		if (e->node[src].step == e->node[node].step && e->node[src].type != PL_N_ENTRY &&
		    !(is_aside(p, src) && !p->behind[src]) &&
		    !(input && e->node[src].role == PL_RO_MARK))
			return false;
	}
	return true;
}

/* Let what nothing of the step precedes begin later; behind the input, if that is first. */
static void delay_first(struct pl_rewriter *r, const struct passes *p, const struct slot *s,
			uint32_t node)
{
	const struct pl_edit *e = r->e;
	const struct pl_enode n = e->node[node];
	uint32_t first, dst, after = n.in == PL_NONE ? node : e->edge[n.in].src;

	if (n.name == p->name)
		rw_set_dur(r, node, pl_max_i64(0, pl_add_sat(n.dur, s->later)));
	for (uint32_t x = n.out, next; n.role == PL_RO_MARK && x != PL_NONE; x = next) {
		next = e->edge[x].out_next;
		dst = e->edge[x].dst;
		if (dst != e->step[n.step].sink && e->node[dst].name != p->name &&
		    !is_aside(p, dst) && !waits_for_input(e, p, dst))
			move_edge(r, x, put_before(r, p, s, dst, node));
	}
	if (n.role == PL_RO_MARK || n.name == p->name || !is_first(e, p, node))
		return;
	for (uint32_t x = n.in; x != PL_NONE; x = e->edge[x].in_next)
		if (e->node[e->edge[x].src].label > e->node[after].label)
			after = e->edge[x].src;
	first = put_before(r, p, s, node, after);
	if (n.in == PL_NONE)
		rw_set_fixed(r, first, n.start);
	for (uint32_t x = n.in, next; x != PL_NONE; x = next) {
		next = e->edge[x].in_next;
		if (e->edge[x].src != first)
			move_edge(r, x, first);
	}
}

/* Slots as they are, and which operations are of their passes. */
static int look(struct pl_rewriter *r, struct passes *p, struct pl_err *err)
{
	PL_CHECK(pl_sim_settle(r->e, err));
	find_ends(r, p);
	PL_CHECK(find_nodes(r, p, err));
	PL_CHECK(find_times(r, p, err));
	for (size_t k = 0; k < p->n_slots; k++) {
		struct slot *s = &p->slot[k];

		if (s->end == INT64_MIN)
			continue;
		s->period = period_of(r->e, p, s);
		s->lost = pl_rewrite_slowdown_lost(r, s->step, s->rank, s->end);
	}
	return 0;
}

static void delay_slot(struct pl_rewriter *r, struct slot *s, const struct passes *p, int64_t k)
{
	int64_t had = rw_now(r)->accumulate;
	pl_ns period, was = pl_max_i64(0, s->period - s->lost);
	double later;

	/* beside the other microbatches there is no communication */
	period = pl_max_i64(0, period_of(r->e, p, s) - s->lost / k);
	later = (double)(had * k - 1) * (double)period - (double)(had - 1) * (double)was;
	s->later = (pl_ns)fmin(fmax(later, -0x1p62), 0x1p62);
	for (size_t i = p->first[s - p->slot]; i < p->first[s - p->slot + 1]; i++)
		delay_first(r, p, s, p->node[i]);
}

/* Does the graph name another stage than the first, or do ranks pass something on? Messages of
 * collectives are none of these sends. */
static bool is_pipeline(const struct pl_rewriter *r)
{
	const struct pl_edit *e = r->e;

	for (uint32_t i = 0; i < e->n_res; i++)
		if (e->res[i].coord[1] > 0)
			return true;
	for (uint32_t i = 0; i < r->n_recorded; i++)
		if (e->node[i].kind == PL_K_SEND && e->node[i].role == PL_RO_TRANSFER &&
		    e->node[i].type == PL_N_OP && !(e->node[i].flags & PL_NF_MESSAGE))
			return true;
	return false;
}

static bool transfers_overlap(const struct pl_rewriter *r)
{
	for (uint32_t k = 0; k < r->n_slots; k++)
		for (uint32_t i = 1; i < r->slot[k].n_comms; i++) {
			const struct rw_comm *c = &r->comm[r->slot[k].comm + i];

			if (r->e->node[c->transfer].start < pl_edit_end(r->e, c[-1].transfer))
				return true;
		}
	return false;
}

static int apply_accumulate(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_graph *g = r->e->g;
	const size_t n = r->n_tensors ? r->n_ranks : (size_t)g->n_ranks;
	const int32_t *rank = r->n_tensors ? r->rank : g->rank;
	struct passes p = { .n_nodes = (uint32_t)r->e->n_nodes,
			    .n_ranks = n,
			    .n_slots = n * r->e->n_steps };
	bool any = false;
	int rc;

	if (is_pipeline(r))
		return pl_fail(
			err, PL_EDATA,
			"the batch of a pipeline passes in microbatches already; their number "
			"is that of the graph (graph --program 'pipeline microbatches=N ...')");
	if (rw_repeats(r))
		return pl_fail(
			err, PL_EDATA,
			"a step has several backward passes, so its batch is divided already; "
			"no-sync leaves out the synchronisation in all but the last");
	if (rw_now(r)->accumulate > INT32_MAX / rw->k)
		return pl_fail(err, PL_ELIMIT, "more than %d microbatches", INT32_MAX);
	PL_TRY(pl_alloc(&p.slot, p.n_slots, sizeof(*p.slot), err));
	PL_TRY(pl_alloc(&p.of_rank, (size_t)g->n_ranks, sizeof(*p.of_rank), err));
	PL_TRY(pl_alloc(&p.of, p.n_nodes, sizeof(struct slot *), err));
	PL_TRY(pl_alloc(&p.aside, p.n_nodes, sizeof(*p.aside), err));
	PL_TRY(pl_alloc(&p.behind, p.n_nodes, sizeof(*p.behind), err));
	PL_TRY(pl_alloc(&p.works, r->e->n_res, sizeof(*p.works), err));
	PL_TRY(pl_alloc(&p.known, n, sizeof(*p.known), err));
	PL_TRY(pl_edit_add_name(r->e, "earlier microbatches", &p.name, err));
	memset(p.of_rank, 0xff, (size_t)g->n_ranks * sizeof(*p.of_rank));
	for (size_t i = 0; i < n; i++) {
		uint32_t at = pl_graph_rank_index(g, rank[i]);

		if (at != PL_NONE)
			p.of_rank[at] = (uint32_t)i;
	}
	for (size_t i = 0; i < p.n_slots; i++)
		p.slot[i] = (struct slot){ .step = (uint32_t)(i / n), .rank = rank[i % n] };
	PL_TRY(look(r, &p, err));
	rw_now(r)->overlaps |= !rw_now(r)->over && transfers_overlap(r);
	for (size_t i = 0; i < p.n_slots; i++)
		any |= p.slot[i].end != INT64_MIN;
	if (!any && !r->n_tensors) {
		rc = pl_fail(err, PL_EDATA, "the graph knows no gradients");
		goto out;
	}
	for (uint32_t i = 0; i < p.n_nodes; i++)
		if (p.of[i] && r->e->node[i].type == PL_N_RESOURCE) {
			rc = pl_fail(err, PL_EDATA,
				     "\"%.200s\" shares a resource with others; microbatches of "
				     "such operations are not modelled",
				     pl_edit_name(r->e, r->e->node[i].name));
			goto out;
		}
	for (uint32_t i = 0; i < p.n_nodes; i++)
		if (p.of[i] && shrinks(r, &p, i))
			rw_set_dur(r, i, rw_times(r->e->node[i].dur, 1.0 / (double)rw->k));
	PL_TRY(rw_result(r, 0, err));
	PL_TRY(pl_sim_settle(r->e, err));
	find_ends(r, &p);
	PL_TRY(find_times(r, &p, err));
	for (size_t i = 0; i < p.n_slots; i++)
		if (p.slot[i].end != INT64_MIN)
			delay_slot(r, &p.slot[i], &p, rw->k);
	rw_now(r)->accumulate *= rw->k;
out:
	pl_free(p.slot);
	pl_free(p.of_rank);
	pl_free(p.of);
	pl_free(p.node);
	pl_free(p.first);
	pl_free(p.aside);
	pl_free(p.behind);
	pl_free(p.works);
	pl_free(p.known);
	for (int i = 0; i < 2; i++) {
		pl_spans_fini(&p.repeated[i]);
		pl_spans_fini(&p.all[i]);
	}
	return rc;
}

const struct pl_rewrite_kind pl_rewrite_accumulate = {
	.last = true,
	.apply = apply_accumulate,
	.explain = "a batch passes in {k} microbatches with one synchronisation, so activations "
		   "need a part of the memory; the report has all but the last as one "
		   "operation, of the host or of the device, whichever takes longer"
};
