/*
 * Full launch queues: the host waits for room.
 *
 * A driver accepts a bounded number of launches that the device has not started. When the queue is
 * full, the driver blocks the caller until a slot is free. A profiler shows this wait as a long
 * launch call. This file turns the wait into a dependency on the operation that freed the slot, and
 * the call keeps only the rest of its duration.
 *
 * Neither the depth nor the scope of a queue is known. Therefore several models are tested on the
 * recording:
 *
 * - one queue for the rank (with or without slots for event records and waits), or one queue for
 *   each stream;
 * - a slot is free when its operation starts, or when its operation ends;
 * - a slot is free on its own, or (in a ring) only when all slots before it are free too.
 *
 * The depth of a queue is the median number of occupied slots at the ends of long calls. The code
 * accepts a queue if
 *
 * - this number is the same at nearly all long calls,
 * - an operation freed its slot just before nearly all long calls returned, and
 * - hardly any call of the recording saw more occupied slots.
 *
 * A call that is long for another reason fails the first two tests. It also fails the third test if
 * the host runs further ahead elsewhere. The code takes the model that explains the most long
 * calls. Then every launch waits for the operation one depth before it, blocked or not.
 *
 * A graph passes only one time of each resource to the next step: its last end (cut.c). A queue
 * reaches back over several steps. Therefore an operation whose slot is needed in later steps
 * stores its time on a resource of its own, a register. A node in each following step passes the
 * time on. The resource of that node shows the age of the time in steps, so that equal steps stay
 * equal. To keep the number of registers small, only every m-th operation has one (m is the depth
 * divided by 128). Between a register and an operation the recorded time counts, as an operation of
 * the queue.
 *
 * O(n log n) in the calls of a rank.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

#define TOL_NS	     2000  /* of rounding in start and end times */
#define LONG_TIMES   4	   /* a long call lasts at least this many usual lengths */
#define LONG_MORE_NS 5000  /* plus this time */
#define MIN_LONG     8	   /* long calls that the inference needs */
#define MIN_DEPTH    4	   /* a smaller depth means that calls wait for their own operations */
#define NEARLY_ALL   0.8   /* "nearly all" */
#define HARDLY_EVER  0.01  /* "hardly ever" */
#define IDLE_NS	     10000 /* a stream that is idle for longer waits for something */
#define MAX_STREAMS  64
#define PER_DEPTH    128 /* registers per depth */
#define MAX_AGE	     16	 /* steps that a queue may reach back */

struct slot {		     /* of a queue; a launch occupies it */
	struct op *op;	     /* NULL: an event record or wait, which no device operation shows */
	uint32_t call;	     /* index of the call */
	struct op *freed_by; /* the operation that frees the slot, NULL: not known */
	bool at_end;	     /* the end of the operation frees the slot, not its start */
	pl_ns free_at;	     /* INT64_MIN: not known */
};

struct release {
	pl_ns at;
	size_t slot;
};

struct queue {
	struct slot *p; /* in order of launch */
	size_t n, cap;
	struct release *release; /* when slots became free, ascending */
	size_t depth;		 /* 0: this is no queue */
	double hits;		 /* share of the long calls that the depth explains */
};

struct model { /* the queues under one set of assumptions */
	struct queue *q;
	size_t n, cap;
};

struct work {
	struct gb *b;
	struct rankinfo *rk;
	pl_ns usual;	/* length of an unblocked call: a low percentile, because most calls may be
			   blocked */
	int64_t *taken; /* scratch */
	/* resources of registers, by [index within the step][age]; PL_NONE: not made */
	uint32_t *reg;
	size_t n_reg, cap_reg, n_names;
	pl_id name;    /* of nodes that pass times on */
	uint32_t line; /* resource of the times between registers */
};

static pl_ns length(const struct call *c)
{
	return c->end - c->start;
}

/* The call waited until its own copy had ended, so its length says nothing about queues. */
static bool waits_for_own_copy(const struct rankinfo *rk, const struct call *c)
{
	return c->n_ops && rk->by_call[c->first_op + c->n_ops - 1]->end <= c->end;
}

static bool is_long(const struct work *w, const struct call *c)
{
	return length(c) >= LONG_TIMES * w->usual + LONG_MORE_NS && !waits_for_own_copy(w->rk, c);
}

/* ---- models of the queues ------------------------------------------------------------------- */

static int add_queue(struct model *model, struct queue **q, struct pl_err *err)
{
	int rc = pl_grow(&model->q, &model->cap, model->n + 1, sizeof(*model->q), err);

	if (rc < 0)
		return rc;
	*q = &model->q[model->n++];
	memset(*q, 0, sizeof(**q));
	return 0;
}

static int add_slot(struct queue *q, struct op *op, uint32_t call, struct pl_err *err)
{
	int rc = pl_grow(&q->p, &q->cap, q->n + 1, sizeof(*q->p), err);

	if (rc == 0)
		q->p[q->n++] = (struct slot){ .op = op, .call = call };
	return rc;
}

/* events: 0: event records and waits occupy no slots; 1: all do except those of the communication
 * library; 2: all do */
static int count_by_rank(const struct work *w, struct model *model, unsigned events,
			 struct pl_err *err)
{
	const struct rankinfo *rk = w->rk;
	struct queue *q;
	int rc = add_queue(model, &q, err);

	for (uint32_t i = 0; i < rk->n_calls && rc == 0; i++) {
		const struct call *c = &rk->call[i];

		for (uint32_t k = 0; k < c->n_ops && rc == 0; k++)
			rc = add_slot(q, rk->by_call[c->first_op + k], i, err);
		if (rc == 0 && events > c->internal &&
		    (c->type == CALL_RECORD || c->type == CALL_WAIT))
			rc = add_slot(q, NULL, i, err);
	}
	return rc;
}

static int count_by_stream(const struct lanes *l, struct model *model, struct pl_err *err)
{
	struct queue *q;
	int rc = 0;

	for (size_t i = 0; i < l->n; i++) {
		rc = add_queue(model, &q, err);
		for (uint32_t k = 0; k < l->v[i].n && rc == 0; k++)
			rc = add_slot(q, l->v[i].op[k], l->v[i].call[k], err);
		if (rc < 0)
			break;
	}
	return rc;
}

static void model_fini(struct model *model)
{
	for (size_t i = 0; i < model->n; i++) {
		pl_free(model->q[i].p);
		pl_free(model->q[i].release);
	}
	pl_free(model->q);
	memset(model, 0, sizeof(*model));
}

/* ---- the evidence --------------------------------------------------------------------------- */

PL_COMPARATOR(by_time, struct release, at, slot);

/*
 * Sets the time at which each slot becomes free. The slot of an event record or wait becomes free
 * when the operation before it has ended. In a ring, a slot becomes free only after all slots
 * before it, so the slowest stream blocks the others.
 */
static int set_releases(struct queue *q, bool at_end, bool ring, struct pl_err *err)
{
	struct op *last = NULL;
	int rc = pl_alloc(&q->release, q->n, sizeof(*q->release), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < q->n; i++) {
		struct slot *p = &q->p[i];

		last = p->op ? p->op : last;
		p->freed_by = last;
		p->at_end = at_end || !p->op;
		p->free_at = !last ? INT64_MIN : p->at_end ? last->end : last->start;
		if (ring && i && p[-1].free_at > p->free_at) {
			p->freed_by = p[-1].freed_by;
			p->at_end = p[-1].at_end;
			p->free_at = p[-1].free_at;
		}
		q->release[i] = (struct release){ p->free_at, i };
	}
	pl_sort(q->release, q->n, sizeof(*q->release), by_time);
	return 0;
}

/* How many slots had become free by t. */
static size_t released_by(const struct queue *q, pl_ns t)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, q->n, q->release[i].at <= t);
	return i;
}

/* Occupied slots at the end of the call that took slot i. */
static size_t taken_at(const struct work *w, const struct queue *q, size_t i)
{
	size_t n_free = released_by(q, w->rk->call[q->p[i].call].end);

	return n_free > i ? 0 : i + 1 - n_free;
}

/* A slot becomes free at most this long before the end of the blocked call that takes it. */
static pl_ns window(const struct work *w)
{
	return LONG_TIMES * w->usual + TOL_NS;
}

static bool just_released(const struct work *w, const struct queue *q, pl_ns end)
{
	size_t n = released_by(q, end + TOL_NS);

	return n && q->release[n - 1].at >= end - window(w);
}

/* How much the counts of occupied slots may differ. */
static size_t slack_of(size_t depth)
{
	return depth < 32 ? 1 : depth / 32;
}

static size_t near_of(size_t depth)
{
	return 2 * slack_of(depth);
}

/* The depth that the long calls after the first `from` slots show; 0: too few long calls. */
static size_t depth_of(const struct work *w, const struct queue *q, size_t from, double percent)
{
	size_t n = 0;

	for (size_t i = from; i < q->n; i++)
		if (is_long(w, &w->rk->call[q->p[i].call]))
			w->taken[n++] = (int64_t)taken_at(w, q, i);
	return n < MIN_LONG ? 0 : (size_t)pl_percentile_i64(w->taken, n, percent);
}

/*
 * Finds the exact depth near the counted one: at the largest number of long calls, the operation
 * that many slots before had just freed its slot.
 */
static void find_exact_depth(const struct work *w, struct queue *q, size_t n_long)
{
	size_t lo = q->depth - pl_min_size(q->depth - 1, near_of(q->depth));
	size_t hi = q->depth + near_of(q->depth), best = q->depth;

	memset(w->taken, 0, (hi - lo + 1) * sizeof(*w->taken));
	for (size_t i = q->depth; i < q->n; i++) {
		const struct call *c = &w->rk->call[q->p[i].call];

		if (!is_long(w, c))
			continue;
		for (size_t k = released_by(q, c->end);
		     k-- > 0 && q->release[k].at >= c->end - window(w);) {
			size_t d = i - pl_min_size(i, q->release[k].slot);

			if (d >= lo && d <= hi && w->taken[d - lo]++ >= w->taken[best - lo])
				best = d;
		}
	}
	q->depth = best;
	q->hits = (double)w->taken[best - lo] / (double)n_long;
}

/* Do the calls show that this is a queue? The first calls do not count, because the launches before
 * them were not recorded. */
static bool is_queue(const struct work *w, struct queue *q)
{
	size_t n = 0, same = 0, just = 0, more = 0;

	q->depth = depth_of(w, q, 0, 75);
	q->depth = q->depth >= MIN_DEPTH ? depth_of(w, q, q->depth, 50) : 0;
	if (q->depth < MIN_DEPTH)
		return false;
	for (size_t i = q->depth; i < q->n; i++) {
		const struct call *c = &w->rk->call[q->p[i].call];
		size_t taken = taken_at(w, q, i);

		more += taken > q->depth + slack_of(q->depth);
		if (!is_long(w, c))
			continue;
		n++;
		same += taken + slack_of(q->depth) >= q->depth &&
			taken <= q->depth + slack_of(q->depth);
		just += just_released(w, q, c->end);
	}
	if ((double)same < NEARLY_ALL * (double)n || (double)just < NEARLY_ALL * (double)n ||
	    (double)more > HARDLY_EVER * (double)(q->n - q->depth))
		return false;
	find_exact_depth(w, q, n);
	return true;
}

/* Sets the depth of a queue to 0 if the calls contradict it. *hits: the largest share of explained
 * calls, -1: no queue is left. */
static int test_model(const struct work *w, struct model *model, bool at_end, bool ring,
		      double *hits, struct pl_err *err)
{
	int rc;

	*hits = -1;
	for (size_t i = 0; i < model->n; i++) {
		struct queue *q = &model->q[i];

		if ((rc = set_releases(q, at_end, ring, err)) < 0)
			return rc;
		if (!is_queue(w, q))
			q->depth = 0;
		else if (q->hits > *hits)
			*hits = q->hits;
	}
	return 0;
}

static int best_model(struct work *w, const struct lanes *l, struct model *best, struct pl_err *err)
{
	double most = -1, hits;
	int rc = 0;

	/* with one stream, a queue is always a ring */
	for (unsigned k = 0; k < (l->n > 1 ? 14u : 8u) && rc == 0; k++) {
		struct model model = { 0 };

		rc = k == 6 || k == 7 ? count_by_stream(l, &model, err)
				      : count_by_rank(w, &model, k / 2 % 4, err);
		if (rc == 0)
			rc = test_model(w, &model, k & 1, k > 7, &hits, err);
		if (rc == 0 && hits > most) {
			model_fini(best);
			*best = model;
			most = hits;
		} else {
			model_fini(&model);
		}
	}
	return rc;
}

/* ---- steps and registers -------------------------------------------------------------------- */

struct register_nodes { /* nodes that pass the time of an operation on, by age in steps */
	uint32_t node[MAX_AGE];
};

struct steps {
	int32_t *step;	    /* step of the call of each slot */
	int32_t *free_step; /* step of the operation that frees the slot */
	uint32_t *from;	    /* slot of the nearest register before this slot, PL_NONE */
	uint32_t *nth;	    /* index of the register within its step */
	uint32_t *at;	    /* index of the register in handed[] */
	struct register_nodes *handed;
	size_t n_handed, cap_handed;
};

static int new_resource(struct work *w, uint32_t like, uint32_t *id, struct pl_err *err)
{
	struct gb *b = w->b;
	struct pl_graph *g = b->g;
	struct pl_resource *r;
	char name[40];
	int rc;

	if ((rc = pl_grow(&g->res, &g->cap_res, g->n_res + 1, sizeof(*g->res), err)) < 0 ||
	    (rc = pl_grow(&b->ri, &b->cap_ri, g->n_res + 1, sizeof(*b->ri), err)) < 0)
		return rc;
	r = &g->res[g->n_res];
	*r = g->res[like];
	r->track_type = PL_T_QUEUE;
	r->device = -1;
	snprintf(name, sizeof(name), PL_LAUNCH_QUEUE "%zu", w->n_names++);
	if ((rc = pl_intern_add(&g->str, name, strlen(name), &r->name, err)) < 0)
		return rc;
	memset(&b->ri[g->n_res], 0, sizeof(*b->ri));
	b->ri[g->n_res].queue = true;
	b->ri[g->n_res].rank_index = b->ri[like].rank_index;
	*id = (uint32_t)g->n_res++;
	return 0;
}

static int register_of(struct work *w, uint32_t like, size_t ordinal, uint32_t age, uint32_t *id,
		       struct pl_err *err)
{
	size_t at = ordinal * MAX_AGE + age;
	int rc = pl_grow(&w->reg, &w->cap_reg, at + 1, sizeof(*w->reg), err);

	if (rc < 0)
		return rc;
	while (w->n_reg <= at)
		w->reg[w->n_reg++] = PL_NONE;
	if (w->reg[at] == PL_NONE && (rc = new_resource(w, like, &w->reg[at], err)) < 0)
		return rc;
	*id = w->reg[at];
	return 0;
}

static int queue_node(struct work *w, uint32_t res, int32_t step, pl_ns start, pl_ns dur,
		      uint32_t *id, struct pl_err *err)
{
	struct node n = { .type = PL_N_OP,
			  .role = PL_RO_NONE,
			  .kind = PL_K_WAIT,
			  .flags = PL_NF_INFERRED,
			  .res = res,
			  .name = w->name,
			  .step = step,
			  .start = start,
			  .dur = dur };

	return pl_derive_node(w->b, &n, id, err);
}

/* An edge from the instant at which the operation frees its slot. */
static int release_edge(struct work *w, const struct slot *p, uint32_t dst, struct pl_err *err)
{
	return p->at_end ? pl_derive_edge(w->b, p->freed_by->last, dst, PL_E_WAIT | PL_E_INFERRED,
					  err)
			 : pl_derive_edge(w->b, p->freed_by->node, dst, PL_E_START | PL_E_INFERRED,
					  err);
}

/* *id: the node of the step before `step` that passes the time of slot v on to `step`. */
static int pass_time_on(struct work *w, const struct queue *q, struct steps *s, size_t v,
			int32_t step, uint32_t *id, struct pl_err *err)
{
	uint32_t like = w->rk->call[q->p[v].call].res, age = (uint32_t)(step - s->free_step[v]),
		 res;
	uint32_t *node = s->handed[s->at[v]].node;
	int rc;

	for (uint32_t a = 0; a < age; a++) {
		if (node[a] != PL_NONE)
			continue;
		if ((rc = register_of(w, like, s->nth[v], a, &res, err)) < 0 ||
		    (rc = queue_node(w, res, s->free_step[v] + (int32_t)a, q->p[v].free_at, 0,
				     &node[a], err)) < 0 ||
		    (rc = a ? pl_derive_edge(w->b, node[a - 1], node[a], PL_E_WAIT | PL_E_INFERRED,
					     err)
			    : release_edge(w, &q->p[v], node[a], err)) < 0)
			return rc;
	}
	*id = node[age - 1];
	return 0;
}

/*
 * Must this operation have a register of its own? Yes, if the recorded time since the operation
 * before it is no measure: the operation is a communication, which waits for other ranks, or it
 * comes after an idle time of the stream, in which it waited for something else.
 */
static bool needs_register(const struct gb *b, const struct op *op)
{
	const struct resinfo *ri = &b->ri[b->node[op->node].res];

	return b->node[op->node].role == PL_RO_ARRIVE || op == ri->op ||
	       op->start > op[-1].end + IDLE_NS;
}

struct run { /* the operations of a stream since its last register */
	uint32_t res, from;
	int32_t step;
	size_t n;
};

static struct run *run_of(struct run *run, size_t *n, uint32_t res)
{
	for (size_t k = 0; k < *n; k++)
		if (run[k].res == res)
			return &run[k];
	if (*n == MAX_STREAMS)
		return NULL;
	run[*n] = (struct run){ .res = res, .from = PL_NONE };
	return &run[(*n)++];
}

static int add_register(struct steps *s, size_t i, struct pl_err *err)
{
	int rc = pl_grow(&s->handed, &s->cap_handed, s->n_handed + 1, sizeof(*s->handed), err);

	if (rc == 0) {
		memset(&s->handed[s->n_handed], 0xff, sizeof(*s->handed));
		s->at[i] = (uint32_t)s->n_handed++;
	}
	return rc;
}

static int alloc_steps(const struct queue *q, struct steps *s, struct pl_err *err)
{
	int rc;

	memset(s, 0, sizeof(*s));
	if ((rc = pl_alloc(&s->step, q->n, sizeof(*s->step), err)) < 0 ||
	    (rc = pl_alloc(&s->free_step, q->n, sizeof(*s->free_step), err)) < 0 ||
	    (rc = pl_alloc(&s->from, q->n, sizeof(*s->from), err)) < 0 ||
	    (rc = pl_alloc(&s->nth, q->n, sizeof(*s->nth), err)) < 0)
		return rc;
	return pl_alloc(&s->at, q->n, sizeof(*s->at), err);
}

/* Decides which slots have a register, and which register the other slots use. */
static int make_steps(struct work *w, const struct queue *q, struct steps *s, struct pl_err *err)
{
	size_t every = q->depth < PER_DEPTH ? 1 : q->depth / PER_DEPTH, n_run = 0;
	struct run run[MAX_STREAMS], *x;
	uint32_t nth = 0;
	bool inside;
	int rc = alloc_steps(q, s, err);

	for (size_t i = 0; i < q->n && rc == 0; i++) {
		const struct slot *p = &q->p[i];

		s->from[i] = PL_NONE;
		s->step[i] = pl_derive_step_at(w->b, w->rk, w->rk->call[p->call].start, &inside);
		s->free_step[i] = s->step[i];
		if (p->freed_by && p->freed_by->call != PL_NONE)
			s->free_step[i] = pl_derive_step_at(
				w->b, w->rk, w->rk->call[p->freed_by->call].start, &inside);
		if (i && s->free_step[i] != s->free_step[i - 1])
			nth = 0;
		if (!p->freed_by || !(x = run_of(run, &n_run, w->b->node[p->freed_by->node].res)))
			continue;
		if (x->from == PL_NONE || x->step != s->free_step[i] || ++x->n >= every ||
		    needs_register(w->b, p->freed_by)) {
			x->from = (uint32_t)i;
			x->step = s->free_step[i];
			x->n = 0;
			s->nth[i] = nth++;
			rc = add_register(s, i, err);
		}
		s->from[i] = x->from;
	}
	return rc;
}

static void steps_fini(struct steps *s)
{
	pl_free(s->step);
	pl_free(s->free_step);
	pl_free(s->from);
	pl_free(s->nth);
	pl_free(s->at);
	pl_free(s->handed);
}

/* ---- waits for a free slot ------------------------------------------------------------------ */

/* May the call of slot i have waited for slot u? */
static bool may_wait_for(const struct work *w, const struct queue *q, size_t i, size_t u)
{
	const struct call *c = &w->rk->call[q->p[i].call];

	if (!q->p[u].freed_by || q->p[u].call >= q->p[i].call ||
	    q->p[u].free_at > pl_derive_end(w->b, c->node) || q->p[u].free_at > c->end)
		return false;
	for (uint32_t k = 0; k < c->n_ops; k++)
		if (w->rk->by_call[c->first_op + k]->start < q->p[u].free_at)
			return false;
	return true;
}

/*
 * Returns the slot whose release let the call of slot i continue: the slot one depth before i. For
 * a blocked call, it is the nearest slot to this one that became free just before the call
 * returned, because it is only roughly known which calls occupy slots. q->n: none.
 */
static size_t find_freed_slot(const struct work *w, const struct queue *q, size_t i)
{
	size_t at = i - q->depth, near = near_of(q->depth);
	pl_ns end = w->rk->call[q->p[i].call].end;

	if (is_long(w, &w->rk->call[q->p[i].call])) {
		for (size_t d = 0; d <= near; d++) {
			if (d <= at && q->p[at - d].free_at >= end - window(w) &&
			    may_wait_for(w, q, i, at - d))
				return at - d;
			if (at + d < i && q->p[at + d].free_at >= end - window(w) &&
			    may_wait_for(w, q, i, at + d))
				return at + d;
		}
	}
	for (size_t d = 0; d <= near && d <= at; d++)
		if (may_wait_for(w, q, i, at - d))
			return at - d;
	return q->n;
}

/* The call begins when a slot was free. The wait that waits.c split off after it stays. */
static void shorten_call(struct work *w, struct call *c, pl_ns room)
{
	struct node *n = &w->b->node[c->node];
	pl_ns end = c->two_nodes ? w->b->node[c->node + 1].start : n->start + n->dur;

	if (room <= n->start)
		return;
	n->start = room;
	n->dur = pl_max_i64(0, pl_min_i64(n->dur, end - room));
	n->flags |= PL_NF_INFERRED;
	c->start = pl_max_i64(c->start, room);
}

static int add_wait(struct work *w, const struct queue *q, struct steps *s, size_t i,
		    struct pl_err *err)
{
	struct call *c = &w->rk->call[q->p[i].call];
	size_t u = find_freed_slot(w, q, i);
	int32_t step = s->step[i];
	uint32_t from, v;
	pl_ns room;
	int rc;

	if (u == q->n || s->free_step[u] > step)
		return 0;
	room = q->p[u].free_at;
	if (s->free_step[u] == step) {
		shorten_call(w, c, room);
		w->b->g->inferred_waits++;
		return release_edge(w, &q->p[u], c->node, err);
	}
	v = s->from[u];
	if (v == PL_NONE || step - s->free_step[v] > MAX_AGE || q->p[v].free_at > room)
		return 0;
	if ((rc = pass_time_on(w, q, s, v, step, &from, err)) < 0)
		return rc;
	if (room > q->p[v].free_at) {
		uint32_t rest;

		if ((w->line == PL_NONE && (rc = new_resource(w, c->res, &w->line, err)) < 0) ||
		    (rc = queue_node(w, w->line, step, q->p[v].free_at, room - q->p[v].free_at,
				     &rest, err)) < 0 ||
		    (rc = pl_derive_edge(w->b, from, rest, PL_E_WAIT | PL_E_INFERRED, err)) < 0)
			return rc;
		from = rest;
	}
	shorten_call(w, c, room);
	w->b->g->inferred_waits++;
	return pl_derive_edge(w->b, from, c->node, PL_E_WAIT | PL_E_INFERRED, err);
}

static int add_waits_of_queue(struct work *w, const struct queue *q, struct pl_err *err)
{
	struct steps s;
	int rc = make_steps(w, q, &s, err);

	w->n_reg = 0; /* each queue has its own registers */
	w->line = PL_NONE;
	for (size_t i = q->depth; i < q->n && rc == 0; i++)
		if (i + 1 == q->n ||
		    q->p[i + 1].call != q->p[i].call) /* the last slot of a CUDA graph */
			rc = add_wait(w, q, &s, i, err);
	steps_fini(&s);
	return rc;
}

int pl_derive_queue(struct gb *b, struct rankinfo *rk, const struct lanes *l, struct pl_err *err)
{
	struct work w = { .b = b, .rk = rk };
	struct model best = { 0 };
	size_t n = 0;
	int rc = pl_alloc(&w.taken, rk->n_calls + rk->n_by_call, sizeof(*w.taken), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < rk->n_calls; i++)
		if (rk->call[i].n_ops && !waits_for_own_copy(rk, &rk->call[i]))
			w.taken[n++] = length(&rk->call[i]);
	if (n >= MIN_LONG) {
		w.usual = pl_percentile_i64(w.taken, n, 1);
		rc = best_model(&w, l, &best, err);
	}
	if (rc == 0 && best.n)
		rc = pl_intern_add(&b->g->str, PL_LAUNCH_QUEUE, sizeof(PL_LAUNCH_QUEUE) - 2,
				   &w.name, err);
	for (size_t i = 0; i < best.n && rc == 0; i++)
		if (best.q[i].depth)
			rc = add_waits_of_queue(&w, &best.q[i], err);
	model_fini(&best);
	pl_free(w.taken);
	pl_free(w.reg);
	return rc;
}
