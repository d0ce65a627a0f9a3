/*
 * What the ranks did while the critical path was elsewhere: one pass over all nodes.
 *
 * The parts of the path follow one another in time. The nodes of a resource do so too, except where
 * steps overlap. So each resource has a place on the path, which mostly moves forward: O(n) for all
 * nodes, and a computation is compared only with parts at the same time.
 */
#include "report/verdict_internal.h"

struct pass {
	struct verdict_study *x;
	const pl_ns *start, *dur; /* of the nodes of the step */
	size_t *at; /* [resource]: the part of the path at the time of its last node */
	struct pl_spans cover, busy; /* busy: of the parts of loaders, also by the host */
	bool loaders, copies;	     /* the path has such parts, has copies to devices */
	uint32_t *least;	     /* [rank]: a lesser one of its pipeline, or itself */
	uint32_t *side; /* [communication of the shape]: a rank that is part of it, PL_NONE */
	size_t n_side, cap_side;
	struct first *first;	     /* [rank] */
	struct direction *direction; /* [rank] */
	size_t steps, in_order; /* reported steps; those in which a rank receives, then sends */
	pl_ns t0, t1;		/* the span of the accounts */
};
struct first {		      /* of the messages of a rank in a step; INT64_MAX: none */
	pl_ns sent, received; /* the begin of a send, the end of a receive */
};
struct direction {		       /* the ranks of a pipeline, by its least rank */
	uint32_t ranks, send, receive; /* how many; how many of them only send, only receive */
};
#define NEAR_HOPS 256 /* from the call that sends back to a product of its pass */

int64_t pl_verdict_who(const struct pl_graph *g, const struct pl_shape *sh, uint32_t node)
{
	const struct pl_gcomm *c = pl_node_comm(sh, node);
	int64_t rank = pl_node_rank(g, sh, node), peer = sh->peer ? sh->peer[node] : -1;

	if (peer >= 0 && rank >= 0 && pl_node_coll(sh, node) >= PL_COLL_SEND)
		return -1 - (pl_min_i64(rank, peer) << 31 | pl_max_i64(rank, peer));
	if (c && c->group != PL_NONE)
		return c->group;
	return sh->group[node] == PL_NONE ? INT64_MIN : (int64_t)sh->group[node];
}

/* Does the group have ranks of several hosts? Links between hosts are slower than those inside. */
static bool crosses_hosts(const struct pl_graph *g, int64_t who)
{
	const struct pl_ggroup *group = who >= 0 ? &g->group[who] : NULL;
	uint32_t pair[2] = { (uint32_t)((-1 - who) >> 31), (uint32_t)((-1 - who) & INT32_MAX) };
	const uint32_t *rank = group ? &g->group_rank[group->rank] : pair;
	pl_id host = PL_NONE;

	for (uint32_t k = 0; k < (group ? group->n : 2); k++)
		for (size_t i = 0; i < g->n_res; i++) {
			if (g->res[i].rank != (int32_t)rank[k])
				continue;
			if (host != PL_NONE && host != g->res[i].host)
				return true;
			host = g->res[i].host;
			break;
		}
	return false;
}

/* What a rank takes whose partners were not recorded is also its wait for them. */
static int add_transfer(struct verdict_study *x, const struct pl_shape *sh, uint32_t i, pl_ns ns,
			struct pl_err *err)
{
	const struct pl_gcomm *c = pl_node_comm(sh, i);
	bool message = sh->flags[i] & PL_NF_MESSAGE;
	int64_t who = pl_verdict_who(x->g, sh, i), key[4];
	int64_t bytes = message && sh->bytes ? sh->bytes[i] : -1;
	struct verdict_transfers t = { .who = who };
	pl_id id;

	if (bytes < 0 && c)
		bytes = c->bytes;
	if (who == INT64_MIN || bytes < 0 || sh->flags[i] & PL_NF_MISSING)
		return 0;
	key[0] = c ? c->kind : PL_COLL_OTHER;
	key[1] = bytes;
	key[2] = c ? c->members : 0;
	key[3] = who;
	PL_CHECK(pl_intern_add(&x->pairs, (const char *)key, sizeof(key), &id, err));
	if (id == x->n_transfers) {
		key[3] = crosses_hosts(x->g, who);
		PL_CHECK(pl_intern_add(&x->sizes, (const char *)key, sizeof(key), &t.size, err));
		PL_CHECK(pl_append(&x->transfers, &x->n_transfers, &x->cap_transfers, &t, sizeof(t),
				   err));
	}
	x->transfers[id].ns += ns;
	x->transfers[id].n++;
	return 0;
}

/* Has this part's rank something else to do? What a loader does was inferred, beside the host. */
static bool is_loader(const struct verdict_study *x, const struct verdict_part *q)
{
	return q->phase == PL_PH_INPUT && q->role == PL_RO_HOST && q->part == PL_PP_NODE &&
	       verdict_shape(x, q->step)->flags[q->node] & PL_NF_INFERRED;
}

/* The parts of this rank's path during a computation are covered, as far as they are none. During
 * other work of the host those of loaders are. */
static int cover(struct pass *p, uint32_t res, uint32_t rank, pl_ns from, pl_ns to, bool computes,
		 struct pl_err *err)
{
	const struct verdict_part *part = p->x->part;
	size_t i = p->at[res], n = p->x->n_parts;

	while (i && part[i - 1].start + part[i - 1].ns > from)
		i--;
	while (i < n && part[i].start + part[i].ns <= from)
		i++;
	p->at[res] = i;
	for (; i < n && part[i].start < to; i++) {
		pl_ns a = pl_max_i64(from, part[i].start);
		pl_ns b = pl_min_i64(to, part[i].start + part[i].ns);

		if (part[i].rank != rank ||
		    (computes && part[i].role == PL_RO_COMPUTE && part[i].part == PL_PP_NODE))
			continue;
		if (computes)
			PL_CHECK(pl_spans_add(&p->cover, (int32_t)rank, a, b, err));
		if (is_loader(p->x, &part[i]))
			PL_CHECK(pl_spans_add(&p->busy, (int32_t)rank, a, b, err));
	}
	return 0;
}

/* The least rank of the pipeline of a rank. */
static uint32_t least_of(const struct pass *p, uint32_t rank)
{
	while (p->least[rank] != rank)
		rank = p->least[rank];
	return rank;
}

/* The two sides of a message are of one pipeline. */
static void stage_message(struct pass *p, size_t k, const struct pl_shape *sh, uint32_t i,
			  uint32_t rank)
{
	struct verdict_study *x = p->x;
	uint32_t comm = sh->comm ? sh->comm[i] : PL_NONE, other = PL_NONE, a, b;

	x->messages_between_stages = true;
	x->rank[rank].sends += sh->kind[i] == PL_K_SEND && pl_sim_reported(x->s, k);
	if (sh->peer && sh->peer[i] >= 0)
		other = pl_graph_rank_index(x->g, sh->peer[i]);
	if (other == PL_NONE && comm < p->n_side) {
		other = p->side[comm];
		p->side[comm] = rank;
	}
	if (other == PL_NONE)
		return;
	a = least_of(p, rank);
	b = least_of(p, other);
	p->least[a > b ? a : b] = a < b ? a : b;
}

/* The pass of the last product that the thread did before the call that began this send. Smaller
 * operations that prepare a message may belong to any pass. */
static uint8_t phase_before(const struct pl_graph *g, const struct pl_shape *sh, uint32_t i)
{
	for (int hops = 0; hops < NEAR_HOPS && i >= sh->n_entries; hops++) {
		uint32_t before = PL_NONE;

		for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
			if (!hops || sh->res[sh->src[e]] == sh->res[i])
				before = sh->src[e];
		if (before == PL_NONE)
			break;
		i = before;
		if (verdict_is_product(g, sh, i))
			return sh->phase[i];
	}
	return PL_PH_UNKNOWN;
}

/* A send begins. */
static void note_send(struct pass *p, const struct pl_shape *sh, uint32_t i, uint32_t rank)
{
	uint8_t phase = sh->phase ? phase_before(p->x->g, sh, i) : PL_PH_UNKNOWN;
	struct first *f = &p->first[rank];

	f->sent = pl_min_i64(f->sent, p->start[i]);
	p->x->rank[rank].forward += phase == PL_PH_FORWARD;
	p->x->rank[rank].backward += pl_graph_is_backward(phase);
}

static void begin_step(struct pass *p)
{
	for (int32_t i = 0; i < p->x->g->n_ranks; i++)
		p->first[i] = (struct first){ INT64_MAX, INT64_MAX };
}

/* Are there two stages that do nothing but a forward pass? Then the one only sends, and the other
 * only receives. */
static bool is_forward_only(const struct pass *p, size_t step)
{
	uint32_t n = (uint32_t)p->x->g->n_ranks;
	bool any = false;

	memset(p->direction, 0, n * sizeof(*p->direction));
	for (uint32_t i = 0; i < n; i++) {
		bool sends = p->first[i].sent < INT64_MAX;
		bool receives = p->first[i].received < INT64_MAX;
		struct direction *direction = &p->direction[least_of(p, i)];

		direction->ranks++;
		if (sends == receives || verdict_cell(p->x, step, i)->last_backward != INT64_MIN)
			continue;
		direction->send += sends;
		direction->receive += receives;
	}
	for (uint32_t i = 0; i < n; i++)
		any |= p->direction[i].ranks == 2 && p->direction[i].send == 1 &&
		       p->direction[i].receive == 1;
	return any;
}

static void end_step(struct pass *p, size_t step)
{
	bool in_order = false;

	for (int32_t i = 0; i < p->x->g->n_ranks; i++)
		in_order |=
			p->first[i].sent < INT64_MAX && p->first[i].sent >= p->first[i].received;
	p->in_order += in_order || is_forward_only(p, step);
	p->steps++;
}

static int add_product(struct pass *p, size_t step, uint32_t rank, uint8_t phase, pl_ns start,
		       struct pl_err *err)
{
	struct verdict_study *x = p->x;
	struct verdict_product product = { (uint32_t)step, rank, start,
					   pl_graph_is_backward(phase) };

	return pl_append(&x->product, &x->n_products, &x->cap_products, &product, sizeof(product),
			 err);
}

PL_COMPARATOR(by_place, struct verdict_product, step, rank, start);

bool pl_verdict_before_pass(const struct verdict_study *x, const struct verdict_part *p)
{
	const struct verdict_product at = { p->step, p->rank, p->start, false }, *v = x->product;
	size_t k = 0;
	bool follows;

	PL_LOWER_BOUND(k, x->n_products, by_place(&v[k], &at) < 0);
	if (!k || v[k - 1].step != at.step || v[k - 1].rank != at.rank)
		return true; /* the first of the step */
	follows = k < x->n_products && v[k].step == at.step && v[k].rank == at.rank;
	return v[k - 1].backward && follows && !v[k].backward; /* the next one of its batches */
}

static int one_node(struct pass *p, size_t k, const struct pl_shape *sh, uint32_t i,
		    struct pl_err *err)
{
	struct verdict_study *x = p->x;
	uint32_t res = sh->res[i], rank = x->rank_of[res];
	uint8_t role = sh->role[i], phase = sh->phase ? sh->phase[i] : PL_PH_UNKNOWN;
	pl_ns start = p->start[i], ns = p->dur[i];
	struct verdict_cell *cell = verdict_cell(x, k, rank);

	if (role == PL_RO_ARRIVE) {
		if (sh->kind[i] == PL_K_SEND && !(sh->flags[i] & PL_NF_MESSAGE))
			note_send(p, sh, i, rank);
		return 0;
	}
	if (role == PL_RO_TRANSFER) {
		bool message = sh->flags[i] & PL_NF_MESSAGE;

		if (!message && (sh->kind[i] == PL_K_SEND || sh->kind[i] == PL_K_RECV))
			stage_message(p, k, sh, i, rank);
		if (!message && sh->kind[i] == PL_K_RECV)
			p->first[rank].received = pl_min_i64(p->first[rank].received, start + ns);
		PL_CHECK(pl_spans_add(&x->comm, (int32_t)rank, start, start + ns, err));
		return add_transfer(x, sh, i, ns, err);
	}
	if (pl_graph_phase_holds(phase))
		x->rank[rank].phase[phase] += ns;
	if (pl_graph_is_backward(phase))
		cell->last_backward = pl_max_i64(cell->last_backward, start + ns);
	x->updates |= phase == PL_PH_OPTIMIZER;
	if (phase <= PL_PH_OPTIMIZER && verdict_computes(x, sh, i, rank) &&
	    (phase != PL_PH_UNKNOWN || verdict_is_product(x->g, sh, i))) {
		cell->model_begin = pl_min_i64(cell->model_begin, start);
		cell->model_end = pl_max_i64(cell->model_end, start + ns);
	}
	if (p->copies && !pl_graph_phase_holds(phase) && verdict_is_product(x->g, sh, i))
		PL_CHECK(add_product(p, k, rank, phase, start, err));
	if (role == PL_RO_HOST && p->loaders && phase != PL_PH_INPUT && x->rank[rank].device)
		return cover(p, res, rank, start, start + ns, false, err);
	if (!verdict_computes(x, sh, i, rank))
		return 0;
	if (verdict_compares(x, sh, i, rank))
		cell->compute += ns;
	else
		x->rank[rank].held +=
			pl_max_i64(0, pl_min_i64(start + ns, p->t1) - pl_max_i64(start, p->t0));
	return cover(p, res, rank, start, start + ns, true, err);
}

/* The account of a rank has the computation in phases that are causes, and the time in which a
 * thread issues communication. Another thread may compute meanwhile, so the time of threads is not
 * subtracted: no rank computes longer than its operations. A device does one of both at a time.
 */
static void leave_out(struct verdict_study *x, uint32_t rank)
{
	pl_ns sum = 0;

	if (x->rank[rank].device) {
		x->rank[rank].compute = pl_max_i64(0, x->rank[rank].compute - x->rank[rank].held);
		return;
	}
	for (size_t k = 0; k < x->g->n_steps; k++)
		if (pl_sim_reported(x->s, k))
			sum = pl_add_sat(sum, verdict_cell(x, k, rank)->compute);
	x->rank[rank].compute = pl_min_i64(x->rank[rank].compute, sum);
}

/* Where nothing says the stages: ranks that send messages to one another, in the order of ranks. */
static void find_stages(struct pass *p)
{
	struct verdict_study *x = p->x;
	uint32_t n = (uint32_t)x->g->n_ranks;

	for (uint32_t i = 0; i < n && x->messages_between_stages; i++) {
		int32_t before = 0, all = 0;

		for (uint32_t k = 0; k < n; k++) {
			all += least_of(p, k) == least_of(p, i);
			before += k < i && least_of(p, k) == least_of(p, i);
		}
		if (x->rank[i].stage < 0 && all > 1)
			x->rank[i].stage = before;
		x->rank[i].stages = all;
	}
}

/* What a computation covers of the path is no lost time. */
static void leave_uncovered(struct pass *p)
{
	struct verdict_study *x = p->x;

	pl_spans_unite(&p->cover);
	pl_spans_unite(&p->busy);
	for (size_t i = 0; i < x->n_parts; i++) {
		struct verdict_part *q = &x->part[i];

		if (q->rank == PL_NONE || (q->role == PL_RO_COMPUTE && q->part == PL_PP_NODE))
			continue;
		q->left -= pl_spans_cover(&p->cover, (int32_t)q->rank, q->start, q->start + q->ns);
		if (is_loader(x, q))
			q->host = q->left - q->ns +
				  pl_spans_cover(&p->busy, (int32_t)q->rank, q->start,
						 q->start + q->ns);
	}
}

/* That of the accounts: it begins with the first reported step. */
static void find_span(struct pass *p)
{
	const struct verdict_study *x = p->x;

	p->t0 = INT64_MAX;
	for (size_t k = 0; k < x->g->n_steps; k++)
		if (pl_sim_reported(x->s, k))
			p->t0 = pl_min_i64(p->t0, x->r->step_start[k]);
	p->t1 = pl_add_sat(p->t0, x->g->n_ranks ? x->account->rank[0].span_ns : 0);
}

int pl_verdict_facts(struct verdict_study *x, struct pl_err *err)
{
	/* the roles that tell nothing here: a bit each */
	const unsigned skip = 1u << PL_RO_NONE | 1u << PL_RO_MARK;
	const struct pl_graph *g = x->g;
	struct pass p = { .x = x };
	int rc;

	PL_TRY(pl_alloc(&p.at, g->n_res, sizeof(*p.at), err));
	PL_TRY(pl_alloc(&p.least, (size_t)g->n_ranks, sizeof(*p.least), err));
	PL_TRY(pl_alloc(&p.first, (size_t)g->n_ranks, sizeof(*p.first), err));
	PL_TRY(pl_alloc(&p.direction, (size_t)g->n_ranks, sizeof(*p.direction), err));
	find_span(&p);
	for (uint32_t i = 0; i < (uint32_t)g->n_ranks; i++)
		p.least[i] = i;
	for (size_t i = 0; i < x->n_parts; i++) {
		p.loaders |= is_loader(x, &x->part[i]);
		p.copies |= verdict_copies(x, &x->part[i]) == PL_COPY_TO_DEVICE;
	}
	for (size_t k = 0; k < g->n_steps; k++) {
		const struct pl_shape *sh = verdict_shape(x, k);

		PL_TRY(pl_grow(&p.side, &p.cap_side, sh->n_comms, sizeof(*p.side), err));
		p.n_side = sh->n_comms;
		if (p.n_side)
			memset(p.side, 0xff, p.n_side * sizeof(*p.side));
		begin_step(&p);
		p.start = x->r->start[k];
		p.dur = x->r->dur[k] ? x->r->dur[k] : pl_sim_durations(x->s, k);
		for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
			if (!(skip >> sh->role[i] & 1) && sh->res[i] != PL_NONE &&
			    x->rank_of[sh->res[i]] != PL_NONE)
				PL_TRY(one_node(&p, k, sh, i, err));
		if (pl_sim_reported(x->s, k))
			end_step(&p, k);
	}
	/* all stages but the first and the last receive before they send, and these two do where
	 * there is a backward pass; ranks of a ring exchange. Half of the steps: on a busy machine
	 * an exchange may look like two messages */
	x->messages_between_stages &= 2 * p.in_order >= p.steps;
	find_stages(&p);
	for (uint32_t i = 0; i < (uint32_t)g->n_ranks; i++)
		leave_out(x, i);
	pl_spans_unite(&x->comm);
	pl_sort(x->product, x->n_products, sizeof(*x->product), by_place);
	leave_uncovered(&p);
out:
	pl_spans_fini(&p.cover);
	pl_spans_fini(&p.busy);
	pl_free(p.at);
	pl_free(p.least);
	pl_free(p.first);
	pl_free(p.direction);
	pl_free(p.side);
	return rc;
}

/* Of the microbatches of a step the first stage sends each one on, and so does the last one, back.
 * With several stages on each rank this is not so: then no rank sends in one direction only. */
unsigned pl_verdict_microbatches(const struct verdict_study *x)
{
	uint64_t sends = UINT64_MAX, steps = 0;
	bool on = false, back = false, known = false;

	for (size_t k = 0; k < x->g->n_steps; k++)
		steps += pl_sim_reported(x->s, k);
	for (uint32_t i = 0; i < (uint32_t)x->g->n_ranks; i++) {
		const struct verdict_rank *r = &x->rank[i];

		if (!r->sends)
			continue;
		known |= r->forward || r->backward;
		on |= 8 * r->backward < r->forward;
		back |= 8 * r->forward < r->backward;
		sends = pl_min_size(sends, r->sends);
	}
	return sends == UINT64_MAX || !steps || (known && !(on && back))
		       ? 0
		       : (unsigned)(sends / steps);
}
