/*
 * Groups of sharded parameters, as fully_shard makes them, found in what the ranks communicate.
 *
 * The parameters of a group are gathered before their layers work in the forward pass, and again in
 * the backward pass, in the other order. Then their gradients are summed and scattered (over gloo:
 * summed). So in a step the gathers before the first operation of the backward pass are the groups
 * in order. Those behind it belong to the same groups from the last one on, and so do the
 * reductions: each belongs to the next group that has its size. A group that is not gathered again
 * keeps its parameters after the forward pass. PyTorch does that with the outermost module, whose
 * group comes first.
 *
 * All steps must have the same groups: one forward and one backward pass, with sizes. O(nodes), and
 * the square of the groups of a step.
 */
#include <stdlib.h>

#include "rewrite/rewrite_internal.h"

/* A communication in a step. */
struct item {
	uint32_t step, arrive; /* of the first rank that has it */
	pl_ns start;	       /* when the host issues it, which runs ahead of a device */
	int64_t bytes;
	bool gathers;
};
struct finder {
	const struct pl_rewriter *r;
	struct item *item;
	size_t n, cap;
	pl_ns *backward; /* [step]: its first operation of a backward pass */
};

PL_COMPARATOR(by_time, struct item, step, start, arrive);

static bool is_backward(unsigned phase)
{
	return phase == PL_PH_BACKWARD || phase == PL_PH_WEIGHT_GRAD || phase == PL_PH_INPUT_GRAD;
}

/* When the arrival's call begins; without a call, the arrival. */
static pl_ns issued(const struct pl_edit *e, uint32_t arrive)
{
	for (uint32_t x = e->node[arrive].in; x != PL_NONE; x = e->edge[x].in_next)
		if (rw_launches(&e->edge[x]) && e->node[e->edge[x].src].type == PL_N_OP)
			return e->node[e->edge[x].src].start;
	return e->node[arrive].start;
}

/* Gathers and reductions of one rank, which all ranks of its group have. */
static int find_items(struct finder *f, struct pl_err *err)
{
	const struct pl_edit *e = f->r->e;
	int32_t rank = e->g->n_ranks ? e->g->rank[0] : 0;

	for (uint32_t k = 0; k < e->n_steps; k++)
		f->backward[k] = INT64_MAX;
	for (uint32_t i = 0; i < f->r->n_recorded; i++) {
		const struct pl_enode *n = &e->node[i];
		struct item x = { .step = n->step, .arrive = i };
		unsigned coll;

		if (n->dead || n->res == PL_NONE || e->res[n->res].rank != rank)
			continue;
		if (is_backward(n->phase))
			f->backward[n->step] = pl_min_i64(f->backward[n->step], n->start);
		if (n->role != PL_RO_ARRIVE || n->comm == PL_NONE)
			continue;
		coll = pl_edit_coll(e, i);
		x.gathers = coll == PL_COLL_ALLGATHER;
		x.start = issued(e, i);
		x.bytes = pl_edit_comm(e, i)->bytes;
		if (x.bytes <= 0)
			continue;
		if (x.gathers || coll == PL_COLL_REDUCE_SCATTER || coll == PL_COLL_ALLREDUCE)
			PL_CHECK(pl_append(&f->item, &f->n, &f->cap, &x, sizeof(x), err));
	}
	pl_sort(f->item, f->n, sizeof(*f->item), by_time);
	return 0;
}

/* The next group below *at that has the size of the item. */
static bool belongs(const struct item *x, const struct rw_group *g, uint32_t *at)
{
	for (uint32_t i = *at; i-- > 0;)
		if (g[i].bytes == x->bytes) {
			*at = i;
			return true;
		}
	return false;
}

/* The groups of a step from items [i, end). Returns how many; 0: these are not the communications
 * of groups. Reductions that are of none, such as those of a norm, are left out. */
static uint32_t one_step(const struct finder *f, size_t i, size_t end, struct rw_group *g)
{
	uint32_t n = 0, again, reduced, left;

	for (; i < end && f->item[i].start < f->backward[f->item[i].step]; i++)
		if (f->item[i].gathers)
			g[n++] = (struct rw_group){ f->item[i].bytes,
						    { f->item[i].arrive, PL_NONE, PL_NONE } };
	again = reduced = left = n;
	for (; i < end; i++) {
		const struct item *x = &f->item[i];

		if (x->gathers && !belongs(x, g, &again))
			return 0;
		if (x->gathers)
			g[again].arrive[RW_GATHER_AGAIN] = x->arrive;
		if (x->gathers || !belongs(x, g, &reduced))
			continue;
		g[reduced].arrive[RW_REDUCE] = x->arrive;
		left--;
	}
	return left ? 0 : n;
}

/* The end of the items of the step of item i. */
static size_t end_of_step(const struct finder *f, size_t i)
{
	size_t end = i + 1;

	while (end < f->n && f->item[end].step == f->item[i].step)
		end++;
	return end;
}

int pl_rewrite_groups_find(struct pl_rewriter *r, struct pl_err *err)
{
	struct finder f = { .r = r };
	struct rw_groups *x = &r->groups;
	size_t most = 0;
	int rc;

	if (x->found)
		return 0;
	x->found = true;
	PL_TRY(pl_alloc(&f.backward, r->e->n_steps, sizeof(*f.backward), err));
	PL_TRY(find_items(&f, err));
	for (size_t i = 0, end; i < f.n; i = end) {
		end = end_of_step(&f, i);
		most = end - i > most ? end - i : most;
	}
	PL_TRY(pl_arena_array(&r->arena, &x->v, (most + 1) * r->e->n_steps, sizeof(*x->v), err));
	for (size_t i = 0, end; i < f.n; i = end) {
		uint32_t n;

		end = end_of_step(&f, i);
		n = one_step(&f, i, end, x->v + (size_t)x->n_steps * x->n);
		if (!n || (x->n_steps && n != x->n)) {
			x->n = 0;
			break;
		}
		x->n = n;
		x->n_steps++;
	}
	rc = 0;
out:
	pl_free(f.item);
	pl_free(f.backward);
	return rc;
}

int pl_rewrite_no_groups(struct pl_err *err)
{
	return pl_fail(
		err, PL_EDATA,
		"the graph shows no groups of sharded parameters, with their sizes, in one "
		"forward and backward pass: sizes are unknown (record_shapes=True), or gathers "
		"and reductions do not correspond");
}

int pl_rewrite_groups(struct pl_rewriter *r, uint32_t *n, struct pl_err *err)
{
	PL_CHECK(pl_rewrite_groups_find(r, err));
	*n = r->groups.n;
	return 0;
}

/* ---- what the host does for a communication ---------------------------------------------------
 */

bool pl_rewrite_on_thread(const struct pl_edit *e, uint32_t node)
{
	return e->node[node].res != PL_NONE && e->node[node].type == PL_N_OP &&
	       e->res[e->node[node].res].track_type == PL_T_THREAD;
}

uint32_t pl_rewrite_chained(const struct pl_edit *e, uint32_t node, bool before)
{
	uint32_t x = before ? e->node[node].in : e->node[node].out;

	for (; x != PL_NONE; x = before ? e->edge[x].in_next : e->edge[x].out_next) {
		const struct pl_enode *n = &e->node[before ? e->edge[x].src : e->edge[x].dst];

		if (PL_E_TYPE(e->edge[x].type) == PL_E_SEQ && n->res == e->node[node].res &&
		    n->type == PL_N_OP && n->step == e->node[node].step)
			return x;
	}
	return PL_NONE;
}

bool pl_rewrite_is_for_comm(const struct pl_edit *e, uint32_t node)
{
	return e->node[node].phase == PL_PH_COMM || e->node[node].role == PL_RO_GAP;
}

bool pl_rewrite_waits_for_comm(const struct pl_edit *e, uint32_t node)
{
	for (uint32_t x = e->node[node].in; x != PL_NONE; x = e->edge[x].in_next)
		if (e->node[e->edge[x].src].role == PL_RO_TRANSFER)
			return true;
	return false;
}
