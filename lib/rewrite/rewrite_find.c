/*
 * The recorded synchronisation of gradients: the tensors, the communication that carries each of
 * them, the nodes that let this communication arrive, and the nodes that waited for it.
 *
 * A communication does not begin when the operation that makes its last tensor ends. Between the
 * two there is host time: hooks, copies into the bucket, the call. This lag is measured once for
 * each communication and used for each of its tensors, as if that tensor had been the last.
 *
 * A step with several backward passes has a tensor several times on a rank, in the order of the
 * passes. The edit keeps this order, which is that of the graph.
 */
#include <stdlib.h>

#include "rewrite/rewrite_internal.h"

static bool is_grad(const struct pl_edit *e, const struct pl_etensor *x)
{
	return !x->dead && e->g->tensor[x->tensor].role == PL_TR_GRAD && x->arrive != PL_NONE;
}

/* ---- ranks and tensors ----------------------------------------------------------------------- */

static int find_ranks(struct pl_rewriter *r, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	size_t n = 0;

	PL_CHECK(pl_arena_array(&r->arena, &r->rank, e->n_tensors + 1, sizeof(*r->rank), err));
	for (size_t i = 0; i < e->n_tensors; i++)
		if (is_grad(e, &e->tensor[i]))
			r->rank[n++] = e->tensor[i].rank;
	pl_sort(r->rank, n, sizeof(*r->rank), pl_compare_i32);
	for (size_t i = 0; i < n; i++)
		if (!r->n_ranks || r->rank[r->n_ranks - 1] != r->rank[i])
			r->rank[r->n_ranks++] = r->rank[i];
	pl_rewrite_only_step(r, PL_NONE);
	return 0;
}

static uint32_t index_of_rank(const struct pl_rewriter *r, int32_t rank)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, r->n_ranks, r->rank[i] < rank);
	return i < r->n_ranks && r->rank[i] == rank ? i : PL_NONE;
}

uint32_t pl_rewrite_slot(const struct pl_rewriter *r, uint32_t pass, int32_t rank)
{
	uint32_t i = index_of_rank(r, rank);

	return i == PL_NONE ? PL_NONE : pass * r->n_ranks + i;
}

struct seen { /* a tensor somewhere */
	uint32_t name, group;
	uint32_t step, rank; /* rank: index into rewriter.rank */
	uint32_t inst;
	uint32_t pass; /* of its step */
};

PL_COMPARATOR(by_name, struct seen, name, group, step, rank, inst);

/* Number the passes of each tensor in each step and rank, and count those of each step. */
static int find_passes(struct pl_rewriter *r, struct seen *v, size_t n, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	uint32_t p = 0;

	PL_CHECK(pl_arena_array(&r->arena, &r->step_pass, e->n_steps + 1, sizeof(*r->step_pass),
				err));
	for (uint32_t k = 0; k <= e->n_steps; k++)
		r->step_pass[k] = 1;
	for (size_t i = 0; i < n; i++) {
		bool again = i && v[i].name == v[i - 1].name && v[i].group == v[i - 1].group &&
			     v[i].step == v[i - 1].step && v[i].rank == v[i - 1].rank;
		uint32_t *most = &r->step_pass[v[i].step];

		v[i].pass = again ? v[i - 1].pass + 1 : 0;
		*most = v[i].pass >= *most ? v[i].pass + 1 : *most;
	}
	for (uint32_t k = 0; k <= e->n_steps; k++) { /* their sum up to there */
		uint32_t passes = r->step_pass[k];

		r->step_pass[k] = p;
		p += passes;
	}
	r->n_passes = r->step_pass[e->n_steps];
	r->n_slots = r->n_ranks * r->n_passes;
	PL_CHECK(pl_arena_array(&r->arena, &r->pass_step, r->n_passes, sizeof(*r->pass_step), err));
	for (uint32_t k = 0; k < e->n_steps; k++)
		for (p = r->step_pass[k]; p < r->step_pass[k + 1]; p++)
			r->pass_step[p] = k;
	return 0;
}

static uint32_t group_index(struct pl_rewriter *r, uint32_t group)
{
	uint32_t i = 0;

	while (i < r->n_groups && r->group[i] != group)
		i++;
	if (i == r->n_groups)
		r->group[r->n_groups++] = group;
	return i;
}

/* A communication is in the slot of its rank. If the tensor were in another rank's slot, both slots
 * would have the communication. */
static int check_rank(const struct pl_edit *e, const struct pl_etensor *x, struct pl_err *err)
{
	int32_t rank = e->res[e->node[x->arrive].res].rank;

	if (x->rank == rank)
		return 0;
	return pl_fail(err, PL_EDATA,
		       "in the graph rank %d sends the tensor \"%.200s\", but does not make it",
		       rank, pl_edit_name(e, e->g->tensor[x->tensor].name));
}

/* Tensors of the base, by name and group, and where they are in each slot. */
static int find_tensors(struct pl_rewriter *r, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct seen *v;
	size_t n = 0;
	int rc;

	PL_CHECK(pl_alloc(&v, e->n_tensors, sizeof(*v), err));
	PL_TRY(pl_arena_array(&r->arena, &r->group, e->n_groups + 1, sizeof(*r->group), err));
	for (uint32_t i = 0; i < e->n_tensors; i++)
		if (is_grad(e, &e->tensor[i]))
			v[n++] = (struct seen){ .name = e->g->tensor[e->tensor[i].tensor].name,
						.group = group_index(
							r, e->node[e->tensor[i].arrive].group),
						.step = e->tensor[i].step,
						.rank = index_of_rank(r, e->tensor[i].rank),
						.inst = i };
	pl_sort(v, n, sizeof(*v), by_name);
	PL_TRY(find_passes(r, v, n, err));
	for (size_t i = 0; i < n; i++)
		r->n_tensors += !i || v[i].name != v[i - 1].name || v[i].group != v[i - 1].group;
	PL_TRY(pl_arena_array(&r->arena, &r->tensor, r->n_tensors, sizeof(*r->tensor), err));
	if (r->n_tensors && r->n_slots > SIZE_MAX / 8 / r->n_tensors) {
		rc = pl_fail(err, PL_ELIMIT, "too many tensors, ranks and steps");
		goto out;
	}
	PL_TRY(pl_arena_array(&r->arena, &r->place, (size_t)r->n_slots * r->n_tensors,
			      sizeof(*r->place), err));
	for (size_t i = 0; i < (size_t)r->n_slots * r->n_tensors; i++)
		r->place[i] = (struct rw_place){ PL_NONE, PL_NONE, INT64_MIN };
	for (uint32_t i = 0, t = 0; i < n; i++) {
		const struct pl_etensor *x = &e->tensor[v[i].inst];
		const struct pl_tensor *g = &e->g->tensor[x->tensor];
		bool same = i && v[i].name == v[i - 1].name;

		PL_TRY(check_rank(e, x, err));
		if (!same || v[i].group != v[i - 1].group) {
			t += i > 0;
			r->tensor[t] = (struct pl_rewrite_tensor){
				.name = v[i].name, .group = v[i].group, .bytes = -1, .shared = same
			};
			if (same)
				r->tensor[t - 1].shared = true;
		}
		r->tensor[t].coll = pl_edit_coll(e, x->arrive);
		r->tensor[t].bytes = pl_max_i64(r->tensor[t].bytes, g->bytes);
		r->tensor[t].estimated |= (g->flags & PL_TF_ESTIMATED) != 0;
		rw_place(r, (r->step_pass[x->step] + v[i].pass) * r->n_ranks + v[i].rank, t)->inst =
			v[i].inst;
	}
	rc = 0;
out:
	pl_free(v);
	return rc;
}

/* ---- communication as recorded --------------------------------------------------------------- */

static int put_edge(struct pl_rewriter *r, uint32_t node, const struct pl_eedge *x,
		    struct pl_err *err)
{
	const struct rw_edge e = { node, *x };

	return pl_append(&r->edge, &r->n_edges, &r->cap_edges, &e, sizeof(e), err);
}

uint32_t pl_rewrite_meet_of(const struct pl_edit *e, uint32_t arrive)
{
	for (uint32_t x = e->node[arrive].out; x != PL_NONE; x = e->edge[x].out_next)
		if (e->node[e->edge[x].dst].type == PL_N_RENDEZVOUS &&
		    PL_E_TYPE(e->edge[x].type) == PL_E_COMM)
			return e->edge[x].dst;
	return PL_NONE;
}

/* Is it the order of the channel, not a condition of its own? */
static bool is_chain(const struct pl_edit *e, const struct pl_eedge *x)
{
	return PL_E_TYPE(x->type) == PL_E_SEQ && e->node[x->src].res == e->node[x->dst].res;
}

static int add_comm(struct pl_rewriter *r, uint32_t arrive, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct rw_comm c = { .arrive = arrive, .last = PL_NONE, .issue = PL_NONE };
	uint32_t sink;
	int rc = pl_grow(&r->comm, &r->cap_comms, r->n_comms + 1, sizeof(*r->comm), err);

	if (rc < 0)
		return rc;
	c.transfer = pl_edit_transfer(e, arrive);
	c.meet = pl_rewrite_meet_of(e, arrive);
	if (c.transfer == PL_NONE)
		return pl_fail(err, PL_EDATA, "the communication \"%s\" has no transfer",
			       pl_edit_name(e, e->node[arrive].name));
	c.gate_ns = INT64_MIN;
	c.gate = (uint32_t)r->n_edges;
	for (uint32_t x = e->node[arrive].in; x != PL_NONE; x = e->edge[x].in_next) {
		const struct pl_eedge *ed = &e->edge[x];
		const struct pl_enode *s = &e->node[ed->src];

		if (is_chain(e, ed))
			continue;
		if ((rc = put_edge(r, ed->src, ed, err)) < 0)
			return rc;
		c.gate_ns = pl_max_i64(c.gate_ns, pl_edit_edge_time(e, ed));
		if (s->role == PL_RO_HOST && s->dur > c.issue_dur) {
			c.issue = ed->src;
			c.issue_dur = s->dur;
			r->issues = true;
		}
	}
	if (c.gate_ns == INT64_MIN)
		c.gate_ns = e->node[arrive].start;
	c.n_gates = (uint32_t)r->n_edges - c.gate;
	c.use = (uint32_t)r->n_edges;
	sink = e->step[e->node[arrive].step].sink;
	for (uint32_t x = e->node[c.transfer].out; x != PL_NONE; x = e->edge[x].out_next)
		if (!is_chain(e, &e->edge[x]) && e->edge[x].dst != sink &&
		    e->node[e->edge[x].dst].type != PL_N_ENTRY &&
		    (rc = put_edge(r, e->edge[x].dst, &e->edge[x], err)) < 0)
			return rc;
	c.n_uses = (uint32_t)r->n_edges - c.use;
	r->is_grad_comm[c.arrive] = r->is_grad_comm[c.transfer] = 1;
	if (c.meet != PL_NONE)
		r->is_grad_comm[c.meet] = 1;
	r->comm[r->n_comms++] = c;
	return 0;
}

struct arrival {
	pl_ns start;
	uint64_t label;
	uint32_t node;
};

PL_COMPARATOR(by_arrival, struct arrival, start, label);

static pl_ns producer_end(const struct pl_edit *e, uint32_t inst)
{
	uint32_t p = e->tensor[inst].producer;

	return p == PL_NONE ? INT64_MIN : pl_edit_end(e, p);
}

/* Which communication carries each tensor of the slot, and when the tensor could be issued: the end
 * of its producer, plus the lag of the communication. */
static void own_tensors(struct pl_rewriter *r, uint32_t slot)
{
	const struct pl_edit *e = r->e;
	struct rw_slot *s = &r->slot[slot];

	for (uint32_t t = 0; t < r->n_tensors; t++) {
		struct rw_place *at = rw_place(r, slot, t);

		for (uint32_t c = s->comm; at->inst != PL_NONE && c < s->comm + s->n_comms; c++) {
			struct rw_comm *x = &r->comm[c];

			if (x->arrive != e->tensor[at->inst].arrive)
				continue;
			at->comm = c;
			x->n_tensors++;
			if (x->last == PL_NONE ||
			    producer_end(e, at->inst) > producer_end(e, x->last))
				x->last = at->inst;
		}
	}
	for (uint32_t c = s->comm; c < s->comm + s->n_comms; c++) {
		struct rw_comm *x = &r->comm[c];
		pl_ns made = producer_end(e, x->last);

		x->lag = made == INT64_MIN ? 0 : pl_max_i64(0, x->gate_ns - made);
	}
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		struct rw_place *at = rw_place(r, slot, t);
		const struct rw_comm *c = at->inst == PL_NONE ? NULL : &r->comm[at->comm];
		pl_ns made = c ? producer_end(e, at->inst) : INT64_MIN;

		if (c)
			at->ready = at->inst == c->last || made == INT64_MIN ? c->gate_ns
									     : made + c->lag;
	}
}

/* The first operation after `from` on its thread that starts at `t` or later, PL_NONE in the step.
 */
static uint32_t next_on_thread(const struct pl_edit *e, uint32_t from, pl_ns t)
{
	uint32_t res = e->node[from].res;

	if (res == PL_NONE || e->res[res].track_type != PL_T_THREAD)
		return PL_NONE;
	do {
		uint32_t next = PL_NONE;

		for (uint32_t x = e->node[from].out; x != PL_NONE; x = e->edge[x].out_next) {
			const struct pl_enode *d = &e->node[e->edge[x].dst];

			if (PL_E_TYPE(e->edge[x].type) == PL_E_SEQ && d->res == res &&
			    d->type != PL_N_ENTRY && d->step == e->node[from].step)
				next = e->edge[x].dst;
		}
		from = next;
	} while (from != PL_NONE && e->node[from].start < t);
	return from;
}

/*
 * Some operation waits for each communication of gradients, because later operations need the
 * gradients. The recording does not always show this operation: the communication may have ended
 * before the wait began, or the waiting thread did not get a processor at once. Then the first
 * operation after the end that waited for another communication of the slot is used. If there is
 * none, the next operation of the thread that made the last gradient is used.
 */
static int find_use(struct pl_rewriter *r, const struct rw_slot *s, struct rw_comm *c,
		    struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct rw_edge best = { .node = PL_NONE, .edge.type = PL_E_WAIT | PL_E_INFERRED };
	uint32_t last = PL_NONE;

	for (uint32_t i = s->comm; i < s->comm + s->n_comms; i++) {
		const struct rw_comm *o = &r->comm[i];
		uint32_t made = e->tensor[o->last].producer;

		if (made != PL_NONE &&
		    (last == PL_NONE || e->node[made].start > e->node[last].start))
			last = made;
		for (uint32_t k = o->use; o != c && k < o->use + o->n_uses; k++) {
			pl_ns at = e->node[r->edge[k].node].start;

			if (at >= pl_edit_end(e, c->transfer) &&
			    (best.node == PL_NONE || at < e->node[best.node].start))
				best = r->edge[k];
		}
	}
	if (best.node == PL_NONE && last != PL_NONE)
		best.node = next_on_thread(e, last, pl_edit_end(e, c->transfer));
	if (best.node == PL_NONE)
		return 0;
	c->use = (uint32_t)r->n_edges;
	c->n_uses = 1;
	return put_edge(r, best.node, &best.edge, err);
}

/* A device's resource is a channel. Threads of a pool serve one queue, that of their group. */
static int find_channel(struct pl_rewriter *r, struct rw_slot *s, struct rw_comm *c,
			struct pl_err *err)
{
	const struct pl_enode *a = &r->e->node[c->arrive];
	bool thread = r->e->res[a->res].track_type == PL_T_THREAD;

	for (c->channel = s->channel; c->channel < s->channel + s->n_channels; c->channel++) {
		const struct rw_channel *x = &r->channel[c->channel];
		bool threads = r->e->res[x->res].track_type == PL_T_THREAD;

		if (thread ? threads && x->group == a->group : x->res == a->res)
			return 0;
	}
	PL_CHECK(pl_grow(&r->channel, &r->cap_channels, r->n_channels + 1, sizeof(*r->channel),
			 err));
	r->channel[r->n_channels++] = (struct rw_channel){
		.res = a->res, .group = a->group, .begin_mark = PL_NONE, .end_mark = PL_NONE
	};
	s->n_channels++;
	return 0;
}

static int find_slot(struct pl_rewriter *r, uint32_t slot, struct arrival *v, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	struct rw_slot *s = &r->slot[slot];
	size_t n = 0;
	int rc;

	for (uint32_t t = 0; t < r->n_tensors; t++) {
		uint32_t inst = rw_place(r, slot, t)->inst, a;

		if (inst == PL_NONE)
			continue;
		a = e->tensor[inst].arrive;
		v[n++] = (struct arrival){ e->node[a].start, e->node[a].label, a };
	}
	pl_sort(v, n, sizeof(*v), by_arrival);
	s->comm = (uint32_t)r->n_comms;
	s->channel = (uint32_t)r->n_channels;
	for (size_t i = 0; i < n; i++)
		if ((!i || v[i - 1].node != v[i].node) &&
		    ((rc = add_comm(r, v[i].node, err)) < 0 ||
		     (rc = find_channel(r, s, &r->comm[r->n_comms - 1], err)) < 0))
			return rc;
	s->n_comms = (uint32_t)r->n_comms - s->comm;
	own_tensors(r, slot);
	for (uint32_t c = s->comm; c < r->n_comms; c++)
		if (!r->comm[c].n_uses && (rc = find_use(r, s, &r->comm[c], err)) < 0)
			return rc;
	return 0;
}

/* ---- unknown sizes --------------------------------------------------------------------------- */

/* The size for which lib/cost gives this duration; 0: it is too large. */
static int64_t size_that_takes(const struct pl_rewriter *r, struct pl_cost_comm c, pl_ns ns)
{
	const int64_t most = (int64_t)1 << 44;

	c.bytes = 0;
	PL_LOWER_BOUND(c.bytes, most, pl_cost_transfer(r->c, &c) < ns);
	return c.bytes < most ? c.bytes : 0;
}

/* The size of a communication: as recorded, or estimated from its shortest transfer. All ranks of a
 * step have the same size. */
static int64_t size_of_comm(const struct pl_rewriter *r, uint32_t slot, uint32_t comm)
{
	const struct pl_edit *e = r->e;
	const struct rw_comm *x = &r->comm[comm];
	pl_ns ns = e->node[x->transfer].dur;
	uint32_t first = slot / r->n_ranks * r->n_ranks, ranks = 0;
	struct pl_cost_comm c;

	if (e->node[x->arrive].bytes >= 0)
		return e->node[x->arrive].bytes;
	for (uint32_t i = first; i < first + r->n_ranks; i++)
		for (uint32_t k = r->slot[i].comm; k < r->slot[i].comm + r->slot[i].n_comms; k++) {
			const struct rw_comm *o = &r->comm[k];

			if (k != comm && (o->meet == PL_NONE || o->meet != x->meet))
				continue;
			ranks++;
			ns = pl_min_i64(ns, e->node[o->transfer].dur);
		}
	c = rw_comm_of(e, x->arrive, ranks);
	return size_that_takes(r, c, ns);
}

/* Divide the bytes of the communication without its known tensors equally among the others. */
static void estimate_sizes(struct pl_rewriter *r)
{
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		const struct rw_place *row = rw_first(r, t) - t;
		uint32_t slot = (uint32_t)((size_t)(row - r->place) / r->n_tensors), n = 0;
		int64_t rest;

		if (r->tensor[t].bytes >= 0)
			continue;
		rest = size_of_comm(r, slot, row[t].comm);
		for (uint32_t u = t; u < r->n_tensors; u++)
			n += row[u].comm == row[t].comm && r->tensor[u].bytes < 0;
		/* those before have their share already */
		for (uint32_t u = 0; u < r->n_tensors; u++)
			if (row[u].comm == row[t].comm)
				rest -= pl_max_i64(r->tensor[u].bytes, 0);
		r->tensor[t].bytes = pl_max_i64(rest, 0) / n;
		r->tensor[t].estimated = true;
		r->tensor[t].guessed = r->e->node[r->comm[row[t].comm].arrive].bytes < 0;
	}
}

/* ---- the order of readiness ------------------------------------------------------------------ */

struct key {
	pl_ns ready;
	uint32_t tensor;
	const char *name;
};

static int by_ready(const void *pa, const void *pb)
{
	const struct key *a = pa, *b = pb;
	int c = PL_COMPARE(a->ready, b->ready);

	return c ? c : strcmp(a->name, b->name);
}

pl_ns pl_rewrite_mean_ready(const struct pl_rewriter *r, uint32_t t,
			    pl_ns (*when)(const struct pl_rewriter *r, uint32_t slot, uint32_t t))
{
	double sum = 0;
	uint32_t n = 0;

	for (uint32_t k = 0; k < r->n_passes; k++) {
		pl_ns last = INT64_MIN;

		for (uint32_t i = 0; i < r->n_ranks; i++)
			last = pl_max_i64(last, when(r, k * r->n_ranks + i, t));
		if (last == INT64_MIN)
			continue;
		sum += (double)(last - r->begin[k]);
		n++;
	}
	return n ? (pl_ns)(sum / n) : 0;
}

static pl_ns when_ready(const struct pl_rewriter *r, uint32_t slot, uint32_t tensor)
{
	return rw_place(r, slot, tensor)->ready;
}

static int order_tensors(struct pl_rewriter *r, struct pl_err *err)
{
	struct pl_rewrite_tensor *old = NULL;
	struct rw_place *row = NULL;
	struct key *key = NULL;
	size_t n = r->n_tensors;
	int rc;

	PL_TRY(pl_alloc(&key, n, sizeof(*key), err));
	PL_TRY(pl_alloc(&old, n, sizeof(*old), err));
	PL_TRY(pl_alloc(&row, n, sizeof(*row), err));
	for (uint32_t t = 0; t < n; t++) {
		key[t] = (struct key){ pl_rewrite_mean_ready(r, t, when_ready), t,
				       pl_edit_name(r->e, r->tensor[t].name) };
		old[t] = r->tensor[t];
	}
	pl_sort(key, n, sizeof(*key), by_ready);
	for (uint32_t t = 0; t < n; t++) {
		r->tensor[t] = old[key[t].tensor];
		r->tensor[t].ready = key[t].ready;
	}
	for (uint32_t s = 0; n && s < r->n_slots; s++) {
		memcpy(row, rw_place(r, s, 0), n * sizeof(*row));
		for (uint32_t t = 0; t < n; t++)
			*rw_place(r, s, t) = row[key[t].tensor];
	}
out:
	pl_free(key);
	pl_free(old);
	pl_free(row);
	return rc;
}

static pl_ns begin_of_step(const struct pl_edit *e, const struct pl_estep *s)
{
	pl_ns begin = s->n_begin ? e->node[s->begin[0]].start : 0;

	for (size_t i = 1; i < s->n_begin; i++)
		begin = pl_min_i64(begin, e->node[s->begin[i]].start);
	return begin;
}

/* The time at which everything of a pass was sent; no earlier than `end`. */
static pl_ns end_of_pass(const struct pl_rewriter *r, uint32_t pass, pl_ns end)
{
	for (uint32_t s = pass * r->n_ranks; s < (pass + 1) * r->n_ranks; s++)
		for (uint32_t c = r->slot[s].comm; c < r->slot[s].comm + r->slot[s].n_comms; c++)
			end = pl_max_i64(end, pl_edit_end(r->e, r->comm[c].transfer));
	return end;
}

static int find_begins(struct pl_rewriter *r, struct pl_err *err)
{
	int rc = pl_arena_array(&r->arena, &r->begin, r->n_passes, sizeof(*r->begin), err);

	for (uint32_t p = 0; rc == 0 && p < r->n_passes; p++) {
		bool first = !p || r->pass_step[p] != r->pass_step[p - 1];

		r->begin[p] = first ? begin_of_step(r->e, &r->e->step[r->pass_step[p]])
				    : end_of_pass(r, p - 1, r->begin[p - 1]);
	}
	return rc;
}

/*
 * A step that trains two models in turn updates the one before the gradients of the other are made.
 * Then gradients of both cannot travel together. So tensors, which are in order of readiness, are
 * of different parts if between them a rank updates parameters and has a forward pass. The first
 * rank says so in the first step.
 */
static int find_parts(struct pl_rewriter *r, struct pl_err *err)
{
	const struct pl_edit *e = r->e;
	uint32_t n = r->n_tensors, part = 0;
	uint8_t *between = NULL; /* [tensor]: behind the one before; 1: an update, 2: forward */
	pl_ns *made = NULL, before = INT64_MIN;
	bool host = false; /* threads make the gradients */
	int rc;

	if (!n || !r->n_slots || rw_repeats(r))
		return 0;
	PL_TRY(pl_alloc(&between, n, sizeof(*between), err));
	PL_TRY(pl_alloc(&made, n, sizeof(*made), err));
	for (uint32_t t = 0; t < n; t++) {
		const struct rw_place *x = rw_place(r, 0, t);
		uint32_t by = x->inst == PL_NONE ? PL_NONE : e->tensor[x->inst].producer;

		if (by != PL_NONE && e->node[by].res != PL_NONE) {
			before = pl_max_i64(before, e->node[by].start);
			host = e->res[e->node[by].res].track_type == PL_T_THREAD;
		}
		made[t] = before;
	}
	for (uint32_t i = 0; i < r->n_recorded; i++) {
		const struct pl_enode *x = &e->node[i];
		uint32_t t = 0;

		if (x->dead || x->step != rw_step_of(r, 0) || x->res == PL_NONE ||
		    e->res[x->res].rank != r->rank[0] ||
		    (e->res[x->res].track_type == PL_T_THREAD) != host)
			continue;
		PL_LOWER_BOUND(t, n, made[t] <= x->start);
		if (t && t < n)
			between[t] |= (uint8_t)((x->phase == PL_PH_OPTIMIZER &&
						 !pl_graph_sets_zero(pl_edit_name(e, x->name))) |
						(x->phase == PL_PH_FORWARD) << 1);
	}
	for (uint32_t t = 0; t < n; t++) {
		part += between[t] == 3;
		r->tensor[t].part = part;
	}
out:
	pl_free(between);
	pl_free(made);
	return rc;
}

static int name_tensors(struct pl_rewriter *r, struct pl_err *err)
{
	struct pl_buf name = { 0 };
	uint32_t kinds = 0;
	int rc = 0;

	for (uint32_t t = 0; rc == 0 && t < r->n_tensors; t++) {
		struct pl_rewrite_tensor *x = &r->tensor[t], *same = r->tensor;

		while (same->group != x->group || same->coll != x->coll || same->part != x->part)
			same++;
		x->fuses = same < x ? same->fuses : kinds++;
		x->in_plans = pl_edit_name(r->e, x->name);
		name.n = 0;
		if (!x->shared)
			continue;
		rc = pl_buf_printf(&name, err, "%s@%u", x->in_plans, x->group);
		if (rc == 0 && !(x->in_plans = pl_arena_dup(&r->arena, (char *)name.p, name.n)))
			rc = pl_fail(err, PL_ENOMEM, "out of memory (names of tensors)");
	}
	pl_buf_fini(&name);
	return rc;
}

int pl_rewrite_find(struct pl_rewriter *r, struct pl_err *err)
{
	struct arrival *v = NULL;
	int rc;

	r->n_recorded = (uint32_t)r->e->n_nodes;
	PL_TRY(pl_arena_array(&r->arena, &r->is_grad_comm, r->n_recorded, 1, err));
	memset(r->is_grad_comm, 0, r->n_recorded);
	PL_TRY(find_ranks(r, err));
	PL_TRY(find_tensors(r, err));
	PL_TRY(pl_arena_array(&r->arena, &r->set_first, (size_t)r->n_tensors + 3,
			      sizeof(*r->set_first), err));
	PL_TRY(pl_arena_array(&r->arena, &r->set_member, r->n_tensors, sizeof(*r->set_member),
			      err));
	PL_TRY(pl_arena_array(&r->arena, &r->slot, r->n_slots, sizeof(*r->slot), err));
	memset(r->slot, 0, r->n_slots * sizeof(*r->slot));
	PL_TRY(pl_alloc(&v, r->n_tensors, sizeof(*v), err));
	for (uint32_t s = 0; s < r->n_slots; s++)
		PL_TRY(find_slot(r, s, v, err));
	estimate_sizes(r);
	PL_TRY(find_begins(r, err));
	PL_TRY(order_tensors(r, err));
	PL_TRY(find_parts(r, err));
	rc = name_tensors(r, err);
out:
	pl_free(v);
	return rc;
}
