/*
 * Plans on an edit: the state, and the rewrites that concern communication.
 *
 * A rewrite changes the state, then the edit is made to follow it (rewrite_sync.c). States are kept
 * on a stack, one a mark, so that the state is undone with the edit.
 */
#include <stdlib.h>
#include <string.h>

#include "rewrite/rewrite_internal.h"

/* ---- states ---------------------------------------------------------------------------------- */

static void state_fini(struct rw_state *s)
{
	for (uint32_t i = 0; s->built && i < s->n_built; i++)
		rw_unref(s->built[i]);
	pl_free(s->set_of);
	pl_free(s->parts);
	pl_free(s->algo);
	pl_free(s->servers);
	pl_free(s->place);
	pl_free(s->priority);
	rw_bare_unref(s->bare);
	pl_free(s->piece);
	pl_free(s->built);
}

/* Room for n tensors; sets are never more. */
static int state_init(struct rw_state *s, size_t n, struct pl_err *err)
{
	int rc;

	memset(s, 0, sizeof(*s));
	s->accumulate = 1;
	PL_TRY(pl_alloc(&s->set_of, n, sizeof(*s->set_of), err));
	PL_TRY(pl_alloc(&s->parts, n, sizeof(*s->parts), err));
	PL_TRY(pl_alloc(&s->algo, n, sizeof(*s->algo), err));
	PL_TRY(pl_alloc(&s->servers, n, sizeof(*s->servers), err));
	PL_TRY(pl_alloc(&s->place, n, sizeof(*s->place), err));
	PL_TRY(pl_alloc(&s->priority, n, sizeof(*s->priority), err));
	PL_TRY(pl_alloc(&s->built, n, sizeof(*s->built), err));
	for (uint32_t t = 0; t < n; t++)
		s->place[t] = t;
out:
	if (rc < 0)
		state_fini(s);
	return rc;
}

int rw_push_state(struct pl_rewriter *r, struct pl_err *err)
{
	const struct rw_state *from;
	struct rw_state to;
	size_t n = r->n_tensors;
	int rc = pl_grow(&r->state, &r->cap_states, r->n_states + 1, sizeof(*r->state), err);

	if (rc < 0 || (rc = state_init(&to, n, err)) < 0)
		return rc;
	from = rw_now(r);
	rc = pl_grow(&to.piece, &to.cap_pieces, from->n_pieces, sizeof(*to.piece), err);
	if (rc < 0) {
		state_fini(&to);
		return rc;
	}
	if (from->n_pieces)
		memcpy(to.piece, from->piece, from->n_pieces * sizeof(*to.piece));
	to.n_pieces = from->n_pieces;
	memcpy(to.set_of, from->set_of, n * sizeof(*to.set_of));
	memcpy(to.parts, from->parts, n * sizeof(*to.parts));
	memcpy(to.algo, from->algo, n * sizeof(*to.algo));
	memcpy(to.servers, from->servers, n * sizeof(*to.servers));
	memcpy(to.place, from->place, n * sizeof(*to.place));
	memcpy(to.priority, from->priority, n * sizeof(*to.priority));
	to.prioritized = from->prioritized;
	memcpy(to.built, from->built, n * sizeof(struct rw_built *));
	to.n_sets = from->n_sets;
	to.n_built = from->n_built;
	to.ranks = from->ranks;
	to.accumulate = from->accumulate;
	to.n_changes = from->n_changes;
	memcpy(to.change, from->change, sizeof(to.change));
	to.n_fused = from->n_fused;
	to.over = from->over;
	to.ops_changed = from->ops_changed;
	to.bare = from->bare;
	if (to.bare)
		to.bare->refs++;
	to.undo = pl_edit_mark(r->e);
	for (uint32_t i = 0; i < to.n_built; i++)
		to.built[i]->refs++;
	r->state[r->n_states++] = to;
	return 0;
}

size_t pl_rewriter_mark(const struct pl_rewriter *r)
{
	return r->n_states;
}

void pl_rewriter_undo(struct pl_rewriter *r, size_t mark)
{
	while (r->n_states > mark && r->n_states > 1) {
		pl_edit_undo(r->e, rw_now(r)->undo);
		state_fini(rw_now(r));
		r->n_states--;
		rw_unfuse(r, rw_now(r)->n_fused);
	}
}

/* ---- numbering ------------------------------------------------------------------------------- */

struct turn { /* of a set */
	uint32_t place, last, set;
};

PL_COMPARATOR(by_turn, struct turn, place, last);

/* Sets in order of issue. The place of a set is that of its last tensor; tensors are in order of
 * readiness, and have the place of their number until a plan gives them another. */
int rw_number_sets(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	struct turn *v;
	uint32_t *to, *parts, n = 0;
	int rc = pl_alloc(&v, r->n_tensors, sizeof(*v), err);

	if (rc < 0)
		return rc;
	to = NULL;
	parts = NULL;
	PL_TRY(pl_alloc(&to, r->n_tensors, sizeof(*to), err));
	PL_TRY(pl_alloc(&parts, r->n_tensors, sizeof(*parts), err));
	for (uint32_t i = 0; i < r->n_tensors; i++)
		v[i] = (struct turn){ 0, 0, PL_NONE };
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		struct turn *x = &v[s->set_of[t]];

		x->set = s->set_of[t];
		x->last = t;
		if (s->place[t] > x->place)
			x->place = s->place[t];
	}
	for (uint32_t i = 0; i < r->n_tensors; i++)
		if (v[i].set != PL_NONE)
			v[n++] = v[i];
	pl_sort(v, n, sizeof(*v), by_turn);
	for (uint32_t i = 0; i < n; i++) {
		to[v[i].set] = i;
		parts[i] = s->parts[v[i].set];
	}
	for (uint32_t t = 0; t < r->n_tensors; t++)
		s->set_of[t] = to[s->set_of[t]];
	memcpy(s->parts, parts, n * sizeof(*parts));
	s->n_sets = n;
out:
	pl_free(v);
	pl_free(to);
	pl_free(parts);
	return rc;
}

/* Sets as recorded: those of the first slot that has the tensor. */
static int recorded_sets(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	uint32_t n = 0;

	for (uint32_t t = 0; t < r->n_tensors; t++) {
		uint32_t slot = 0, same = PL_NONE, comm;

		while (r->comm_of[(size_t)slot * r->n_tensors + t] == PL_NONE)
			slot++;
		comm = r->comm_of[(size_t)slot * r->n_tensors + t];
		for (uint32_t u = 0; u < t && same == PL_NONE; u++)
			if (r->comm_of[(size_t)slot * r->n_tensors + u] == comm)
				same = s->set_of[u];
		s->set_of[t] = same == PL_NONE ? n : same;
		if (same == PL_NONE)
			s->parts[n++] = 1;
	}
	s->n_sets = n;
	return rw_number_sets(r, err);
}

struct pl_rewriter *pl_rewriter_new(struct pl_edit *e, const struct pl_cost *c, struct pl_err *err)
{
	struct pl_rewriter *r;

	if (pl_alloc(&r, 1, sizeof(*r), err) < 0)
		return NULL;
	r->e = e;
	r->c = c;
	if (rw_find(r, err) < 0 || rw_beside_init(r, err) < 0 ||
	    pl_grow(&r->state, &r->cap_states, 1, sizeof(*r->state), err) < 0 ||
	    state_init(&r->state[0], r->n_tensors, err) < 0) {
		pl_rewriter_free(r);
		return NULL;
	}
	r->n_states = 1;
	r->state[0].undo = pl_edit_mark(e);
	if (recorded_sets(r, err) < 0) {
		pl_rewriter_free(r);
		return NULL;
	}
	return r;
}

void pl_rewriter_free(struct pl_rewriter *r)
{
	if (!r)
		return;
	for (size_t i = 0; i < r->n_states; i++)
		state_fini(&r->state[i]);
	rw_beside_fini(r);
	pl_free(r->state);
	pl_free(r->tensor);
	pl_free(r->rank);
	pl_free(r->inst);
	pl_free(r->comm_of);
	pl_free(r->ready);
	pl_free(r->comm);
	pl_free(r->edge);
	pl_free(r->slot);
	pl_free(r->channel);
	pl_free(r->begin);
	pl_free(r->set_first);
	pl_free(r->set_member);
	pl_free(r->mine);
	pl_free(r->fused);
	pl_free(r->fused_log);
	pl_free(r->name_first);
	pl_free(r->name_node);
	pl_free(r->group);
	pl_free(r);
}

/* ---- names ----------------------------------------------------------------------------------- */

static int plan_name(const struct pl_rewriter *r, uint32_t t, struct pl_buf *b, struct pl_err *err)
{
	const char *name = pl_edit_name(r->e, r->tensor[t].name);

	b->n = 0;
	if (r->tensor[t].shared)
		return pl_buf_printf(b, err, "%s@%u", name, r->tensor[t].group);
	return pl_buf_printf(b, err, "%s", name);
}

static bool is_number(const char *text, uint32_t n)
{
	char want[16];

	snprintf(want, sizeof(want), "%u", n);
	return !strcmp(text, want);
}

uint32_t rw_tensor_find(const struct pl_rewriter *r, const char *name)
{
	const char *at = strrchr(name, '@');
	size_t n = at ? (size_t)(at - name) : 0;

	for (uint32_t t = 0; t < r->n_tensors; t++) {
		const char *x = pl_edit_name(r->e, r->tensor[t].name);

		if (!r->tensor[t].shared ? !strcmp(x, name)
					 : at && strlen(x) == n && !memcmp(x, name, n) &&
						   is_number(at + 1, r->tensor[t].group))
			return t;
	}
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

uint32_t pl_rewriter_tensors(const struct pl_rewriter *r)
{
	return r->n_tensors;
}

int64_t pl_rewriter_accumulate(const struct pl_rewriter *r)
{
	return rw_now(r)->accumulate;
}

int pl_rewrite_base(const struct pl_rewriter *r, struct pl_plan *p, struct pl_err *err)
{
	const struct rw_state *s = r->state;
	struct pl_buf name = { 0 };
	uint32_t *members;
	int rc = pl_alloc(&members, (size_t)s->n_sets + 1, sizeof(*members), err);

	if (rc < 0)
		return rc;
	for (uint32_t t = 0; t < r->n_tensors; t++)
		members[s->set_of[t]]++;
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		PL_TRY(plan_name(r, t, &name, err));
		PL_TRY(pl_plan_add_tensor(p, (const char *)name.p, r->tensor[t].bytes,
					  r->tensor[t].estimated, err));
		if (members[s->set_of[t]] > 1)
			p->tensor[p->n_tensors - 1].set = s->set_of[t];
	}
	p->ranks = r->n_ranks;
	for (uint32_t i = 0; i < r->n_groups; i++)
		if (r->group[i] < r->e->n_groups)
			p->ranks = pl_max_i64(p->ranks, r->e->group[r->group[i]].n);
out:
	pl_free(members);
	pl_buf_fini(&name);
	return rc;
}

static int check_tensor(const struct pl_rewriter *r, const struct pl_ptensor *x, struct pl_err *err)
{
	uint32_t t = rw_tensor_find(r, x->name);

	if (t == PL_NONE)
		return pl_fail(err, PL_EDATA,
			       "tensor: there is no \"%s\" in the graph; the plan is another job's",
			       x->name);
	if (x->bytes != r->tensor[t].bytes && r->tensor[t].bytes > 0 && !x->estimated &&
	    !r->tensor[t].estimated)
		return pl_fail(err, PL_EDATA,
			       "tensor: \"%s\" has %lld bytes in the graph, not %lld; the plan is "
			       "another job's",
			       x->name, (long long)r->tensor[t].bytes, (long long)x->bytes);
	return 0;
}

int pl_rewrite_check_base(const struct pl_rewriter *r, const struct pl_plan *p, struct pl_err *err)
{
	for (size_t i = 0; i < p->n_tensors; i++) {
		const struct pl_ptensor *x = &p->tensor[i];
		int rc = check_tensor(r, x, err);

		if (rc < 0 && x->line)
			pl_wrap(err, "line %u", x->line);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* ---- rewrites of communication --------------------------------------------------------------- */

static int find_arg(const struct pl_rewriter *r, const struct pl_rewrite *rw, uint32_t i,
		    uint32_t *t, struct pl_err *err)
{
	*t = rw_tensor_find(r, rw->arg[i]);
	if (*t != PL_NONE)
		return 0;
	if (!r->n_tensors)
		return pl_fail(err, PL_EDATA, "the graph synchronises no tensors");
	if (is_ambiguous(r, rw->arg[i]))
		return pl_fail(
			err, PL_EDATA,
			"several groups of ranks have a tensor \"%s\"; plan --preset none -O "
			"text lists their names, which end in @ and a number",
			rw->arg[i]);
	return pl_fail(err, PL_EDATA,
		       "there is no tensor \"%s\"; plan --preset none -O text lists those of the "
		       "graph",
		       rw->arg[i]);
}

/* May the tensors of the line travel together? */
static int check_fusion(const struct pl_rewriter *r, const struct pl_rewrite *rw,
			struct pl_err *err)
{
	const struct rw_state *s = rw_now(r);
	uint32_t first = PL_NONE, t;
	int rc;

	for (uint32_t i = 0; i < rw->n_args; i++) {
		if ((rc = find_arg(r, rw, i, &t, err)) < 0)
			return rc;
		if (s->parts[s->set_of[t]] > 1)
			return pl_fail(err, PL_EDATA,
				       "\"%s\" is partitioned already; fuse first, then partition",
				       rw->arg[i]);
		first = i ? first : t;
		if (r->tensor[first].group != r->tensor[t].group)
			return pl_fail(err, PL_EDATA,
				       "\"%s\" and \"%s\" are synchronised by different groups of "
				       "ranks; fuse those of one group",
				       rw->arg[0], rw->arg[i]);
		if (r->tensor[first].coll != r->tensor[t].coll)
			return pl_fail(err, PL_EDATA,
				       "\"%s\" and \"%s\" are synchronised by different kinds of "
				       "communication; fuse those of one kind",
				       rw->arg[0], rw->arg[i]);
	}
	return 0;
}

static int fuse_tensors(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	uint32_t set, t;
	bool used;
	int rc = check_fusion(r, rw, err);

	if (rc < 0)
		return rc;
	/* a number that is free: there are never more sets than tensors */
	for (uint32_t i = 0; i < rw->n_args; i++)
		s->set_of[rw_tensor_find(r, rw->arg[i])] = PL_NONE;
	for (set = 0, used = true; used; set += used) {
		used = false;
		for (t = 0; t < r->n_tensors && !used; t++)
			used = s->set_of[t] == set;
	}
	for (t = 0; t < r->n_tensors; t++)
		if (s->set_of[t] == PL_NONE)
			s->set_of[t] = set;
	s->parts[set] = 1;
	return rw_number_sets(r, err);
}

static int partition_tensor(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	uint32_t t;
	int rc = find_arg(r, rw, 0, &t, err);

	if (rc == 0)
		rw_now(r)->parts[rw_now(r)->set_of[t]] = (uint32_t)rw->k;
	return rc;
}

/* Sets are numbered by place, so the places that are handed out again are numbers of sets. All
 * tensors of a set get the place that it has: what a later line takes out of it keeps that place.
 */
static int order_tensors(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	uint32_t *to, *free_at, n = 0, t;
	int rc = pl_alloc(&to, s->n_sets, sizeof(*to), err);

	if (rc < 0)
		return rc;
	free_at = NULL;
	PL_TRY(pl_alloc(&free_at, s->n_sets, sizeof(*free_at), err));
	memset(to, 0xff, s->n_sets * sizeof(*to));
	for (uint32_t i = 0; i < rw->n_args; i++) {
		PL_TRY(find_arg(r, rw, i, &t, err));
		if (to[s->set_of[t]] != PL_NONE) {
			rc = pl_fail(err, PL_EDATA,
				     "two of its tensors are one set already; name one tensor of "
				     "a set");
			goto out;
		}
		to[s->set_of[t]] = i;
	}
	for (uint32_t i = 0; i < s->n_sets; i++)
		if (to[i] != PL_NONE)
			free_at[n++] = i;
	for (t = 0; t < r->n_tensors; t++) {
		uint32_t at = to[s->set_of[t]];

		s->place[t] = at == PL_NONE ? s->set_of[t] : free_at[at];
	}
	rc = rw_number_sets(r, err);
out:
	pl_free(to);
	pl_free(free_at);
	return rc;
}

static int set_algorithm(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	int algo = pl_algo_find(rw->word), rc;

	if (algo < 0)
		return pl_fail(err, PL_EDATA, "there is no algorithm \"%s\"", rw->word);
	for (uint32_t t = 0; t < r->n_tensors; t++) {
		bool wanted = !rw->n_args;

		for (uint32_t i = 0; i < rw->n_args; i++) {
			uint32_t x;

			if ((rc = find_arg(r, rw, i, &x, err)) < 0)
				return rc;
			wanted |= s->set_of[x] == s->set_of[t];
		}
		if (!wanted)
			continue;
		s->algo[t] = (uint8_t)algo;
		s->servers[t] = rw->k > 0 ? (uint32_t)rw->k : 1;
	}
	return 0;
}

static int change_link(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	struct rw_state *s = rw_now(r);
	struct pl_link_change *c = &s->change[s->n_changes];

	if (!pl_cost_has_link(r->c, rw->word))
		return pl_fail(
			err, PL_EDATA,
			"the topology has no link \"%s\"; without --topology links are \"pcie\" "
			"and \"nic\", and \"*\" is all of them",
			rw->word);
	if (s->n_changes == PL_LEN(s->change))
		return pl_fail(err, PL_ELIMIT, "more than %zu changes of links", PL_LEN(s->change));
	*c = (struct pl_link_change){ rw->word, 1, 1 };
	if (rw->op == PL_RW_BANDWIDTH)
		c->bandwidth = rw->x;
	else
		c->latency = rw->x;
	s->n_changes++;
	return 0;
}

static int comm_rewrite(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	int rc;

	if (!r->n_tensors)
		return pl_fail(
			err, PL_EDATA,
			"%s: the graph knows no tensors that are synchronised (record shapes "
			"with the profiler, or make the graph from a table of layers)",
			pl_rw_name(rw->op));
	switch ((enum pl_rw)rw->op) {
	case PL_RW_FUSE_TENSORS:
		rc = fuse_tensors(r, rw, err);
		break;
	case PL_RW_PARTITION_TENSOR:
		rc = partition_tensor(r, rw, err);
		break;
	case PL_RW_ORDER:
		rc = order_tensors(r, rw, err);
		break;
	case PL_RW_PRIORITY:
		rc = rw_priority(r, rw, err);
		break;
	case PL_RW_ALGORITHM:
		rc = set_algorithm(r, rw, err);
		break;
	case PL_RW_RANKS:
		rw_now(r)->ranks = (uint32_t)rw->k;
		rc = 0;
		break;
	default:
		rc = change_link(r, rw, err);
		break;
	}
	return rc;
}

bool pl_rewrite_is_comm(unsigned op)
{
	return op == PL_RW_FUSE_TENSORS || op == PL_RW_PARTITION_TENSOR || op == PL_RW_ORDER ||
	       op == PL_RW_PRIORITY || op == PL_RW_ALGORITHM || op == PL_RW_RANKS ||
	       op == PL_RW_BANDWIDTH || op == PL_RW_LATENCY;
}

static int apply(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	if (pl_rewrite_is_comm(rw->op))
		return comm_rewrite(r, rw, err);
	rw_now(r)->ops_changed = true;
	return rw_ops(r, rw, err);
}

int pl_rewrite(struct pl_rewriter *r, const struct pl_rewrite *rw, struct pl_err *err)
{
	size_t mark = pl_rewriter_mark(r);
	int rc = rw_push_state(r, err);

	if (rc < 0)
		return rc;
	rc = apply(r, rw, err);
	if (rc == 0 && pl_rewrite_is_comm(rw->op))
		rc = rw_sync(r, err);
	if (rc < 0)
		pl_rewriter_undo(r, mark);
	return rc;
}

int pl_rewrite_model(struct pl_rewriter *r, struct pl_err *err)
{
	size_t mark = pl_rewriter_mark(r);
	int rc = rw_push_state(r, err);

	if (rc == 0 && (rc = rw_sync(r, err)) < 0)
		pl_rewriter_undo(r, mark);
	return rc;
}

int pl_rewrite_buckets(struct pl_rewriter *r, const uint32_t *set_of, uint32_t n_sets,
		       struct pl_err *err)
{
	const struct pl_bucketing b = { .n_sets = n_sets, .set_of = set_of };

	return pl_rewrite_bucketing(r, &b, err);
}

static int apply_lines(struct pl_rewriter *r, const struct pl_plan *p, bool accumulate, bool *comm,
		       struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc == 0 && i < p->n_rw; i++) {
		const struct pl_rewrite *rw = &p->rw[i];

		if ((rw->op == PL_RW_ACCUMULATE) != accumulate)
			continue;
		rc = apply(r, rw, err);
		*comm |= pl_rewrite_is_comm(rw->op);
		if (rc < 0 && rw->line)
			pl_wrap(err, "line %u: %s", rw->line, pl_rw_name(rw->op));
		else if (rc < 0)
			pl_wrap(err, "rewrite %zu: %s", i + 1, pl_rw_name(rw->op));
	}
	return rc;
}

/* One state for all of it: buckets are built once, when all is known. How operations are changed
 * does not depend on the number of microbatches, so that is seen to last. */
int pl_rewrite_plan(struct pl_rewriter *r, const struct pl_plan *p, struct pl_err *err)
{
	size_t mark = pl_rewriter_mark(r);
	bool comm = false;
	int rc = rw_push_state(r, err);

	if (rc == 0)
		rc = apply_lines(r, p, false, &comm, err);
	if (rc == 0)
		rc = apply_lines(r, p, true, &comm, err);
	if (rc == 0 && comm)
		rc = rw_sync(r, err);
	if (rc == 0)
		rc = pl_edit_settle(r->e, err);
	if (rc < 0)
		pl_rewriter_undo(r, mark);
	return rc;
}
