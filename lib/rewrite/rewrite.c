/*
 * The state of a plan on an edit, and the table of the kinds of rewrites.
 *
 * A rewrite changes the state. Then the edit is changed to agree with the state (rewrite_sync.c).
 * There is a stack of states, one for each mark, so that undoing the edit also undoes the state.
 */
#include <stdlib.h>

#include "rewrite/rewrite_internal.h"

/* ---- states ---------------------------------------------------------------------------------- */

int pl_rewrite_array_new(size_t n, struct rw_array **a, struct pl_err *err)
{
	int rc;

	PL_CHECK(pl_alloc(a, 1, sizeof(**a), err));
	(*a)->refs = 1;
	rc = pl_alloc(&(*a)->v, n, sizeof(*(*a)->v), err);
	if (rc < 0) {
		pl_rewrite_array_unref(*a);
		*a = NULL;
	}
	return rc;
}

void pl_rewrite_array_unref(struct rw_array *a)
{
	if (!a || --a->refs)
		return;
	pl_free(a->v);
	pl_free(a);
}

static void state_fini(struct rw_state *s)
{
	for (uint32_t i = 0; s->built && i < s->n_built; i++)
		pl_rewrite_unref(s->built[i]);
	pl_plan_buckets_fini(&s->b);
	pl_free(s->choice);
	pl_rewrite_array_unref(s->ready_alone);
	pl_rewrite_array_unref(s->lost);
	pl_rewrite_array_unref(s->network.batch_of);
	pl_free(s->piece);
	pl_free(s->built);
}

/* Room for n tensors; sets are never more. */
static int state_init(struct rw_state *s, size_t n, struct pl_err *err)
{
	int rc;

	memset(s, 0, sizeof(*s));
	s->accumulate = 1;
	PL_TRY(pl_plan_buckets_init(&s->b, n, err));
	PL_TRY(pl_alloc(&s->choice, n, sizeof(*s->choice), err));
	PL_TRY(pl_alloc(&s->built, n, sizeof(*s->built), err));
out:
	if (rc < 0)
		state_fini(s);
	return rc;
}

int pl_rewrite_push_state(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_state arrays, to;
	size_t n = r->n_tensors;
	int rc = pl_grow(&r->state, &r->cap_states, r->n_states + 1, sizeof(*r->state), err);

	if (rc < 0 || (rc = state_init(&arrays, n, err)) < 0)
		return rc;
	to = *rw_now(r);
	rc = pl_grow(&arrays.piece, &arrays.cap_pieces, to.n_pieces, sizeof(*to.piece), err);
	if (rc < 0) {
		state_fini(&arrays);
		return rc;
	}
	if (to.n_pieces)
		memcpy(arrays.piece, to.piece, to.n_pieces * sizeof(*to.piece));
	pl_plan_buckets_copy(&arrays.b, &to.b);
	memcpy(arrays.choice, to.choice, n * sizeof(*to.choice));
	memcpy(arrays.built, to.built, n * sizeof(*to.built));
	to.piece = arrays.piece;
	to.cap_pieces = arrays.cap_pieces;
	to.b = arrays.b;
	to.choice = arrays.choice;
	to.built = arrays.built;
	if (to.ready_alone)
		to.ready_alone->refs++;
	if (to.lost)
		to.lost->refs++;
	if (to.network.batch_of)
		to.network.batch_of->refs++;
	to.undo = pl_edit_mark(r->e);
	for (uint32_t i = 0; i < to.n_built; i++)
		to.built[i]->refs++;
	r->state[r->n_states++] = to;
	return 0;
}

size_t pl_rewrite_mark(const struct pl_rewriter *r)
{
	return r->n_states;
}

void pl_rewrite_undo(struct pl_rewriter *r, size_t mark)
{
	while (r->n_states > mark && r->n_states > 1) {
		pl_edit_undo(r->e, rw_now(r)->undo);
		state_fini(rw_now(r));
		r->n_states--;
		pl_rewrite_unfuse(r, rw_now(r)->n_fused);
	}
}

/* Sets and algorithms as recorded: those of the first slot that has the tensor. */
static int recorded_sets(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	uint32_t n = 0;

	for (uint32_t t = 0; t < r->n_tensors; t++) {
		const struct rw_place *row = rw_first(r, t) - t;
		uint32_t same = PL_NONE;

		for (uint32_t u = 0; u < t && same == PL_NONE; u++)
			if (row[u].comm == row[t].comm)
				same = s->b.set[u];
		s->b.set[t] = same == PL_NONE ? n : same;
		n += same == PL_NONE;
		s->choice[t].algo = rw_comm_of(r->e, r->comm[row[t].comm].arrive, 0).algo;
		s->choice[t].servers = 1;
	}
	return pl_plan_buckets_number(&s->b, NULL, err);
}

struct pl_rewriter *pl_rewrite_new(struct pl_edit *e, const struct pl_cost *c, struct pl_err *err)
{
	struct pl_rewriter *r;

	if (pl_alloc(&r, 1, sizeof(*r), err) < 0)
		return NULL;
	r->e = e;
	r->c = c;
	r->facts = (struct rw_facts){ .g = e->g, .e = e, .predictor = c->predictor, .cost = c };
	if (pl_rewrite_find(r, err) < 0 || pl_rewrite_slowdown_init(r, err) < 0 ||
	    pl_grow(&r->state, &r->cap_states, 1, sizeof(*r->state), err) < 0 ||
	    state_init(&r->state[0], r->n_tensors, err) < 0) {
		pl_rewrite_free(r);
		return NULL;
	}
	r->n_states = 1;
	r->state[0].undo = pl_edit_mark(e);
	r->state[0].ops_changed = true; /* nothing is known of them yet */
	if (recorded_sets(r, err) < 0 || pl_rewrite_slowdown_ready(r, err) < 0) {
		pl_rewrite_free(r);
		return NULL;
	}
	return r;
}

void pl_rewrite_free(struct pl_rewriter *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n_states; i++)
		state_fini(&r->state[i]);
	pl_rewrite_slowdown_fini(r);
	pl_rewrite_facts_fini(&r->facts);
	pl_free(r->state);
	pl_arena_fini(&r->arena);
	pl_free(r->comm);
	pl_free(r->edge);
	pl_free(r->channel);
	pl_free(r->fused);
	pl_free(r->fused_log);
	pl_free(r->moves);
	pl_free(r->name_first);
	pl_free(r->name_node);
	pl_free(r);
}

/* ---- names ----------------------------------------------------------------------------------- */

uint32_t pl_rewrite_tensor_find(const struct pl_rewriter *r, const char *name)
{
	for (uint32_t t = 0; t < r->n_tensors; t++)
		if (!strcmp(r->tensor[t].in_plans, name))
			return t;
	for (uint32_t t = 0; t < r->n_tensors; t++)
		if (!strcmp(pl_plan_param(r->tensor[t].in_plans), pl_plan_param(name)))
			return t;
	return PL_NONE;
}

/* Other groups have a tensor of that name too. */
static bool is_ambiguous(const struct pl_rewriter *r, const char *name)
{
	for (uint32_t t = 0; t < r->n_tensors; t++)
		if (r->tensor[t].shared && !strcmp(pl_edit_name(r->e, r->tensor[t].name), name))
			return true;
	return false;
}

const struct pl_rewrite_tensor *pl_rewrite_tensors(const struct pl_rewriter *r, uint32_t *n)
{
	*n = r->n_tensors;
	return r->tensor;
}

int64_t pl_rewrite_accumulated(const struct pl_rewriter *r)
{
	return rw_now(r)->accumulate;
}

static int64_t stage_of(const struct pl_rewriter *r, uint32_t t)
{
	return pl_edit_stage(r->e, r->e->tensor[rw_first(r, t)->inst].arrive);
}

int pl_rewrite_base(const struct pl_rewriter *r, struct pl_plan *p, struct pl_err *err)
{
	const struct rw_state *s = r->state;
	uint32_t *members;
	int rc = pl_alloc(&members, (size_t)s->b.n_sets + 1, sizeof(*members), err);

	if (rc < 0)
		return rc;
	for (uint32_t t = 0; t < r->n_tensors; t++)
		members[s->b.set[t]]++;
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		PL_TRY(pl_plan_add_tensor(p, r->tensor[t].in_plans, r->tensor[t].bytes,
					  r->tensor[t].estimated, err));
		p->tensor[p->n_tensors - 1].stage = stage_of(r, t);
		if (members[s->b.set[t]] > 1)
			p->tensor[p->n_tensors - 1].set = s->b.set[t];
	}
	/* replicas of the model: the ranks of a pipeline that have different layers are one */
	p->ranks = r->n_groups ? 0 : r->n_ranks;
	for (uint32_t i = 0; i < r->n_groups; i++)
		p->ranks = pl_max_i64(p->ranks, r->group[i] < r->e->n_groups
							? r->e->group[r->group[i]].n
							: r->n_ranks);
out:
	pl_free(members);
	return rc;
}

static int no_tensor(const struct pl_rewriter *r, const char *name, const char *remedy,
		     struct pl_err *err)
{
	struct pl_plan_near near = pl_plan_near_begin(name);
	const char *number = pl_plan_param(name), *end = number + strspn(number, "0123456789");

	if (end > number && (*end == ' ' || !*end))
		remedy = "a plan made from an older recording calls tensors by number, but this "
			 "graph calls them by parameter; plan makes a new one from it";
	for (uint32_t t = 0; t < r->n_tensors; t++)
		pl_plan_near(&near, r->tensor[t].in_plans);
	return pl_plan_no_name(&near, "there is", remedy, err);
}

int pl_rewrite_check_base(const struct pl_rewriter *r, const struct pl_plan *p, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < p->n_tensors; i++) {
		const struct pl_ptensor *x = &p->tensor[i];
		uint32_t t = pl_rewrite_tensor_find(r, x->name);
		const struct pl_rewrite_tensor *is = t == PL_NONE ? NULL : &r->tensor[t];

		if (!is)
			rc = no_tensor(r, x->name, "the plan is another job's", err);
		else if (x->bytes != is->bytes && is->bytes > 0 && !x->estimated && !is->estimated)
			rc = pl_fail(err, PL_EDATA,
				     "\"%s\" has %lld bytes in the graph, not %lld; the plan is "
				     "another job's",
				     x->name, (long long)is->bytes, (long long)x->bytes);
		if (rc < 0)
			pl_plan_wrap_tensor(p, i, !is, err);
	}
	return rc;
}

int pl_rewrite_find_arg(struct pl_rewriter *r, const struct pl_rewrite *rw, uint32_t i, uint32_t *t,
			struct pl_err *err)
{
	*t = pl_rewrite_tensor_find(r, rw->arg[i]);
	if (*t != PL_NONE)
		return 0;
	r->unknown = i;
	if (!r->n_tensors)
		return pl_fail(err, PL_EDATA, "the graph synchronises no tensors");
	if (is_ambiguous(r, rw->arg[i]))
		return pl_fail(
			err, PL_EDATA,
			"several groups of ranks have a tensor \"%s\"; plan --preset none -O "
			"text lists their names, which end in @ and a number",
			rw->arg[i]);
	return no_tensor(r, rw->arg[i], "plan --preset none -O text lists those of the graph", err);
}

/* ---- kinds of rewrites ----------------------------------------------------------------------- */

const struct pl_rewrite_kind *const pl_rewrite_kinds[] = {
#define KIND(name, kind, why) [PL_RW_##name] = &pl_rewrite_##kind,
	PL_PLAN_REWRITES(KIND)
#undef KIND
};

bool pl_rewrite_is_comm(unsigned op)
{
	return pl_rewrite_kinds[op]->comm;
}

bool pl_rewrite_changes_durations(unsigned op)
{
	return pl_rewrite_kinds[op]->change && !pl_rewrite_kinds[op]->network;
}

bool pl_rewrite_is_first(unsigned op)
{
	return pl_rewrite_kinds[op]->first;
}

bool pl_rewrite_is_last(unsigned op)
{
	return pl_rewrite_kinds[op]->last;
}

bool pl_rewrite_is_network(unsigned op)
{
	return pl_rewrite_kinds[op]->network;
}

static int apply(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	const struct pl_rewrite_kind *kind = pl_rewrite_kinds[rw->op];

	if (kind->comm && !r->n_tensors)
		return pl_fail(
			err, PL_EDATA,
			"%s: the graph knows no tensors that are synchronised (record shapes "
			"with the profiler, or make the graph from a table of layers)",
			pl_plan_rewrite_name(rw->op));
	if (!kind->comm && !kind->last && rw_now(r)->accumulate > 1)
		return pl_fail(err, PL_EDATA, "after accumulate; put it before");
	if (rw_now(r)->divided)
		return pl_fail(
			err, PL_EDATA,
			"after tensor-parallel it applies to the graph that that makes (replay "
			"does so)");
	rw_now(r)->ops_changed |= !kind->comm;
	if (kind->change)
		return pl_rewrite_apply_change(r, rw, err);
	return rw_result(r, kind->apply(r, rw, err), err);
}

/* Does the rewrite change communication that is, or will be, built again? */
static bool builds(const struct pl_rewriter *r, const struct pl_rewrite *rw)
{
	const struct pl_rewrite_kind *kind = pl_rewrite_kinds[rw->op];
	const struct rw_state *s = rw_now(r);

	/* the recorded algorithm: all stays as recorded, without the errors of a model */
	if (rw->op == PL_RW_ALGORITHM && !s->over &&
	    !memcmp(s->choice, s[-1].choice, r->n_tensors * sizeof(*s->choice)))
		return false;
	return kind->comm || s->overlaps || (kind->network && s->over);
}

#define TURNS 5

/* wrap asks what the communication that it joins takes over the network of the plan. */
static int turn_of(unsigned op)
{
	const struct pl_rewrite_kind *kind = pl_rewrite_kinds[op];

	return kind->first ? 0 : kind->before ? 1 : kind->network ? 2 : kind->last ? 4 : 3;
}

/* One state for all of it: buckets are built once, when all is known; even without rewrites if
 * `build`. How operations are changed does not depend on the number of microbatches, so kinds that
 * are applied behind the others come last. Where operations become one, each was changed first. */
static int change(struct pl_rewriter *r, const char *file, const struct pl_rewrite *rw, size_t n,
		  bool build, struct pl_err *err)
{
	size_t mark = pl_rewrite_mark(r);
	int rc = pl_rewrite_push_state(r, err);

	for (int turn = 0; turn < TURNS; turn++)
		for (size_t i = 0; rc == 0 && i < n; i++) {
			if (turn_of(rw[i].op) != turn)
				continue;
			r->unknown = PL_NONE;
			rc = apply(r, &rw[i], err);
			build |= builds(r, &rw[i]);
			if (rc < 0)
				rc = pl_plan_wrap(file, &rw[i], i, r->unknown, err);
		}
	if (rc == 0 && build)
		rc = pl_rewrite_sync(r, err);
	if (rc == 0)
		rc = pl_rewrite_overlapped_edit(r, err);
	if (rc < 0)
		pl_rewrite_undo(r, mark);
	return rc;
}

int pl_rewrite(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	return change(r, NULL, rw, 1, false, err);
}

int pl_rewrite_model(struct pl_rewriter *r, struct pl_err *err)
{
	return change(r, NULL, NULL, 0, true, err);
}

int pl_rewrite_plan(struct pl_rewriter *r, const struct pl_plan *p, struct pl_err *err)
{
	size_t mark = pl_rewrite_mark(r);
	int rc = change(r, p->file, p->rw, p->n_rw, false, err);

	if (rc == 0 && (rc = pl_sim_settle(r->e, err)) < 0)
		pl_rewrite_undo(r, mark);
	return rc;
}
