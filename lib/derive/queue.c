/*
 * Full launch queues: the host waits for room.
 *
 * A driver accepts a bounded number of launches that the device has not started. When the queue is
 * full, the driver blocks the caller until a slot is free. A profiler shows this wait as a long
 * launch call. This file turns the wait into a dependency on the operation that freed the slot, and
 * the call keeps only the rest of its duration.
 *
 * A queue's depth and scope are unknown. Therefore several models are tested on the recording:
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
 * the host runs further ahead elsewhere. The code takes the model whose queues together explain the
 * most long calls. Then every launch waits for the operation one depth before it, blocked or not.
 *
 * A graph passes only one time of each resource to the next step: its last end (cut.c). A queue
 * reaches back over several steps. Therefore an operation whose slot is needed in later steps
 * stores its time on a resource of its own, a register. A node in each following step passes the
 * time on. The resource of that node shows the age of the time in steps, so that equal steps stay
 * equal. To keep registers few, only every m-th operation has one (m is the depth divided by 128).
 * Between a register and an operation the recorded time counts, as an operation of the queue.
 *
 * O(n log n) in the calls of a rank.
 */
#include "derive/internal.h"

/* Unblocked calls differ in length too. Lower limits would take them for blocked ones; higher
 * limits would miss short waits. The shares allow for a few calls that are long for another reason.
 */
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
	size_t hits;		 /* long calls that the depth explains */
};

struct model { /* the queues under one set of assumptions */
	struct queue *q;
	size_t n, cap;
};

struct by_age { /* by age in steps: a node or a resource, PL_NONE: there is none */
	uint32_t v[MAX_AGE];
};

struct work {
	struct builder *b;
	struct rank *rank;
	pl_ns usual;	/* length of an unblocked call: a low percentile, because most calls may be
			   blocked */
	int64_t *taken; /* scratch */
	struct by_age *reg; /* [index within the step]: resources of registers, PL_NONE: not made */
	size_t n_reg, cap_reg, n_names;
	pl_id name;    /* of nodes that pass times on */
	uint32_t line; /* resource of the times between registers */
};

static pl_ns length(const struct call *c)
{
	return c->end - c->start;
}

/* The call waited until its own copy had ended, so its length says nothing about queues. */
static bool waits_for_own_copy(const struct rank *rank, const struct call *c)
{
	return c->n_ops && rank->by_call[c->first_op + c->n_ops - 1]->end <= c->end;
}

static bool is_long(const struct work *w, const struct call *c)
{
	return length(c) >= LONG_TIMES * w->usual + LONG_MORE_NS && !waits_for_own_copy(w->rank, c);
}

/* ---- models of the queues -------------------------------------------------------------------- */

static struct queue *add_queue(struct model *model, struct pl_err *err)
{
	PL_DERIVE_ADD(err, model->q, model->n, model->cap, (struct queue){ .p = NULL });
	return err->code ? NULL : &model->q[model->n - 1];
}

static void add_slot(struct queue *q, struct op *op, uint32_t call, struct pl_err *err)
{
	PL_DERIVE_ADD(err, q->p, q->n, q->cap, (struct slot){ .op = op, .call = call });
}

/* events: 0: event records and waits occupy no slots; 1: all do except those of the communication
 * library; 2: all do */
static void count_by_rank(const struct work *w, struct model *model, unsigned events)
{
	const struct rank *rank = w->rank;
	struct queue *q = add_queue(model, w->b->err);

	for (uint32_t i = 0; q && i < rank->n_calls; i++) {
		const struct call *c = &rank->call[i];

		for (uint32_t k = 0; k < c->n_ops; k++)
			add_slot(q, rank->by_call[c->first_op + k], i, w->b->err);
		if (events > c->internal && (c->type == CALL_RECORD || c->type == CALL_WAIT))
			add_slot(q, NULL, i, w->b->err);
	}
}

static void count_by_stream(const struct streams *l, struct model *model, struct pl_err *err)
{
	for (size_t i = 0; i < l->n; i++) {
		struct queue *q = add_queue(model, err);

		for (uint32_t k = 0; q && k < l->v[i].n; k++)
			add_slot(q, l->v[i].op[k], l->v[i].op[k]->call, err);
	}
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

/* ---- the evidence ---------------------------------------------------------------------------- */

PL_COMPARATOR(by_time, struct release, at, slot);

/*
 * Sets the time at which each slot becomes free. The slot of an event record or wait becomes free
 * when the operation before it has ended. In a ring, a slot becomes free only after all slots
 * before it, so the slowest stream blocks the others.
 */
static void set_releases(struct queue *q, bool at_end, bool ring, struct pl_err *err)
{
	struct op *last = NULL;

	if (pl_alloc(&q->release, q->n, sizeof(*q->release), err) < 0)
		return;
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
	size_t n_free = released_by(q, w->rank->call[q->p[i].call].end);

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
		if (is_long(w, &w->rank->call[q->p[i].call]))
			w->taken[n++] = (int64_t)taken_at(w, q, i);
	return n < MIN_LONG ? 0 : (size_t)pl_percentile_i64(w->taken, n, percent);
}

/*
 * Finds the exact depth near the counted one: at the largest number of long calls, the operation
 * that many slots before had just freed its slot.
 */
static void find_exact_depth(const struct work *w, struct queue *q)
{
	size_t lo = q->depth - pl_min_size(q->depth - 1, near_of(q->depth));
	size_t hi = q->depth + near_of(q->depth), best = q->depth;

	memset(w->taken, 0, (hi - lo + 1) * sizeof(*w->taken));
	for (size_t i = q->depth; i < q->n; i++) {
		const struct call *c = &w->rank->call[q->p[i].call];

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
	q->hits = (size_t)w->taken[best - lo];
}

/* Do the calls show a queue? The first do not count, because launches before were not recorded. */
static bool is_queue(const struct work *w, struct queue *q)
{
	size_t n = 0, same = 0, just = 0, more = 0;

	q->depth = depth_of(w, q, 0, 75);
	q->depth = q->depth >= MIN_DEPTH ? depth_of(w, q, q->depth, 50) : 0;
	if (q->depth < MIN_DEPTH)
		return false;
	for (size_t i = q->depth; i < q->n; i++) {
		const struct call *c = &w->rank->call[q->p[i].call];
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
	find_exact_depth(w, q);
	return true;
}

/* Sets the depth of a queue to 0 if the calls contradict it. Returns how many long calls the queues
 * explain. */
static size_t test_model(const struct work *w, struct model *model, bool at_end, bool ring)
{
	size_t hits = 0;

	for (size_t i = 0; i < model->n; i++) {
		struct queue *q = &model->q[i];

		set_releases(q, at_end, ring, w->b->err);
		if (w->b->err->code)
			return 0;
		if (is_queue(w, q))
			hits += q->hits;
		else
			q->depth = 0;
	}
	return hits;
}

static void best_model(struct work *w, const struct streams *l, struct model *best)
{
	size_t most = 0;

	/* with one stream, a queue is always a ring */
	for (unsigned k = 0; k < (l->n > 1 ? 14u : 8u) && !w->b->err->code; k++) {
		struct model model = { 0 };
		size_t hits;

		if (k == 6 || k == 7)
			count_by_stream(l, &model, w->b->err);
		else
			count_by_rank(w, &model, k / 2 % 4);
		hits = test_model(w, &model, k & 1, k > 7);
		if (hits > most) {
			model_fini(best);
			*best = model;
			most = hits;
		} else {
			model_fini(&model);
		}
	}
}

/* ---- steps and registers --------------------------------------------------------------------- */

struct slot_steps {
	int32_t step;	   /* of the call */
	int32_t free_step; /* of the operation that frees the slot */
	uint32_t from;	   /* slot of the nearest register before this slot, PL_NONE */
	uint32_t nth;	   /* index of the register within its step */
	uint32_t at;	   /* index of the register in passed[] */
};
struct steps {
	struct slot_steps *slot;
	struct by_age *passed; /* of the registers: the nodes that pass their times on */
	size_t n_passed, cap_passed;
};

static void add_by_age(struct by_age **v, size_t *n, size_t *cap, struct pl_err *err)
{
	struct by_age none;

	memset(&none, 0xff, sizeof(none));
	PL_DERIVE_ADD(err, *v, *n, *cap, none);
}

static uint32_t new_resource(struct work *w, uint32_t like)
{
	struct builder *b = w->b;
	struct pl_resource r = b->g->res[like];
	char name[40];
	uint32_t id;

	snprintf(name, sizeof(name), PL_LAUNCH_QUEUE "%zu", w->n_names++);
	r.name = pl_derive_intern_text(b->err, &b->g->str, name);
	r.track_type = PL_T_QUEUE;
	r.device = -1;
	id = pl_derive_resource(b, &r, b->resource[like].rank_index);
	if (id == PL_NONE)
		return like;
	b->resource[id].queue = true;
	return id;
}

static uint32_t queue_node(struct work *w, uint32_t res, int32_t step, pl_ns start, pl_ns dur)
{
	const struct node n = { .type = PL_N_OP,
				.role = PL_RO_NONE,
				.kind = PL_K_WAIT,
				.flags = PL_NF_INFERRED,
				.res = res,
				.name = w->name,
				.step = step,
				.start = start,
				.dur = dur };

	return pl_derive_node(w->b, &n);
}

/* An edge from the instant at which the operation frees its slot. */
static void release_edge(struct work *w, const struct slot *p, uint32_t dst)
{
	if (p->at_end)
		pl_derive_edge(w->b, p->freed_by->last, dst, PL_E_WAIT | PL_E_INFERRED);
	else
		pl_derive_edge(w->b, p->freed_by->node, dst, PL_E_START | PL_E_INFERRED);
}

/* The node of the step before `step` that passes the time of slot v on to `step`. */
static uint32_t pass_time_on(struct work *w, const struct queue *q, struct steps *s, size_t v,
			     int32_t step)
{
	const struct slot_steps *x = &s->slot[v];
	uint32_t like = w->rank->call[q->p[v].call].res, age = (uint32_t)(step - x->free_step);
	uint32_t *node = s->passed[x->at].v, *res;

	while (w->n_reg <= x->nth && !w->b->err->code)
		add_by_age(&w->reg, &w->n_reg, &w->cap_reg, w->b->err);
	for (uint32_t a = 0; a < age && !w->b->err->code; a++) {
		if (node[a] != PL_NONE)
			continue;
		res = &w->reg[x->nth].v[a];
		if (*res == PL_NONE)
			*res = new_resource(w, like);
		node[a] = queue_node(w, *res, x->free_step + (int32_t)a, q->p[v].free_at, 0);
		if (a)
			pl_derive_edge(w->b, node[a - 1], node[a], PL_E_WAIT | PL_E_INFERRED);
		else
			release_edge(w, &q->p[v], node[a]);
	}
	return node[age - 1];
}

/*
 * Must this operation have a register of its own? Yes, if the recorded time since the operation
 * before it is no measure: the operation is a communication, which waits for other ranks, or it
 * comes after an idle time of the stream, in which it waited for something else.
 */
static bool needs_register(const struct builder *b, const struct op *op)
{
	const struct resource *resource = &b->resource[b->node[op->node].res];

	return b->node[op->node].role == PL_RO_ARRIVE || op == resource->op ||
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

/* Decides which slots have a register, and which register the other slots use. */
static void make_steps(struct work *w, const struct queue *q, struct steps *s)
{
	size_t every = q->depth < PER_DEPTH ? 1 : q->depth / PER_DEPTH, n_run = 0;
	const struct call *call = w->rank->call;
	struct run run[MAX_STREAMS], *x;
	uint32_t nth = 0;

	for (size_t i = 0; i < q->n; i++) {
		const struct op *by = q->p[i].freed_by;
		struct slot_steps *y = &s->slot[i];

		y->from = PL_NONE;
		y->step = pl_derive_step_at(w->b, w->rank, call[q->p[i].call].start, NULL);
		y->free_step = y->step;
		if (by && by->call != PL_NONE)
			y->free_step = pl_derive_step_at(w->b, w->rank, call[by->call].start, NULL);
		if (i && y->free_step != y[-1].free_step)
			nth = 0;
		if (!by || !(x = run_of(run, &n_run, w->b->node[by->node].res)))
			continue;
		if (x->from == PL_NONE || x->step != y->free_step || ++x->n >= every ||
		    needs_register(w->b, by)) {
			x->from = (uint32_t)i;
			x->step = y->free_step;
			x->n = 0;
			y->nth = nth++;
			y->at = (uint32_t)s->n_passed;
			add_by_age(&s->passed, &s->n_passed, &s->cap_passed, w->b->err);
		}
		y->from = x->from;
	}
}

/* ---- waits for a free slot ------------------------------------------------------------------- */

/* May the call of slot i have waited for slot u? */
static bool may_wait_for(const struct work *w, const struct queue *q, size_t i, size_t u)
{
	const struct call *c = &w->rank->call[q->p[i].call];

	if (!q->p[u].freed_by || q->p[u].call >= q->p[i].call ||
	    q->p[u].free_at > pl_derive_end(w->b, c->node) || q->p[u].free_at > c->end)
		return false;
	for (uint32_t k = 0; k < c->n_ops; k++)
		if (w->rank->by_call[c->first_op + k]->start < q->p[u].free_at)
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
	pl_ns end = w->rank->call[q->p[i].call].end;

	if (is_long(w, &w->rank->call[q->p[i].call])) {
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

static void add_wait(struct work *w, const struct queue *q, struct steps *s, size_t i)
{
	struct call *c = &w->rank->call[q->p[i].call];
	size_t u = find_freed_slot(w, q, i);
	int32_t step = s->slot[i].step;
	uint32_t from, v;
	pl_ns room, age;

	if (u == q->n || s->slot[u].free_step > step)
		return;
	room = q->p[u].free_at;
	if (s->slot[u].free_step == step) {
		shorten_call(w, c, room);
		w->b->g->inferred_waits++;
		release_edge(w, &q->p[u], c->node);
		return;
	}
	v = s->slot[u].from;
	if (v == PL_NONE || step - s->slot[v].free_step > MAX_AGE || q->p[v].free_at > room)
		return;
	from = pass_time_on(w, q, s, v, step);
	age = room - q->p[v].free_at;
	if (age > 0) {
		uint32_t rest;

		if (w->line == PL_NONE)
			w->line = new_resource(w, c->res);
		rest = queue_node(w, w->line, step, q->p[v].free_at, age);
		pl_derive_edge(w->b, from, rest, PL_E_WAIT | PL_E_INFERRED);
		from = rest;
	}
	shorten_call(w, c, room);
	w->b->g->inferred_waits++;
	pl_derive_edge(w->b, from, c->node, PL_E_WAIT | PL_E_INFERRED);
}

static void add_waits_of_queue(struct work *w, const struct queue *q)
{
	struct steps s = { .slot = NULL };
	int rc;

	PL_TRY(pl_alloc(&s.slot, q->n, sizeof(*s.slot), w->b->err));
	make_steps(w, q, &s);
	w->n_reg = 0; /* each queue has its own registers */
	w->line = PL_NONE;
	for (size_t i = q->depth; i < q->n && !w->b->err->code; i++)
		if (i + 1 == q->n ||
		    q->p[i + 1].call != q->p[i].call) /* the last slot of a CUDA graph */
			add_wait(w, q, &s, i);
out:
	pl_free(s.slot);
	pl_free(s.passed);
}

/* Do enough calls last long? All models need them. */
static bool any_long(const struct work *w)
{
	size_t n = 0;

	for (size_t i = 0; i < w->rank->n_calls && n < MIN_LONG; i++)
		if (is_long(w, &w->rank->call[i]))
			n += w->rank->call[i].n_ops + 1;
	return n >= MIN_LONG;
}

void pl_derive_queue(struct builder *b, struct rank *rank, const struct streams *l)
{
	struct work w = { .b = b, .rank = rank };
	struct model best = { 0 };
	size_t n = 0;
	int rc;

	PL_TRY(pl_alloc(&w.taken, rank->n_calls + rank->n_by_call, sizeof(*w.taken), b->err));
	for (size_t i = 0; i < rank->n_calls; i++)
		if (rank->call[i].n_ops && !waits_for_own_copy(rank, &rank->call[i]))
			w.taken[n++] = length(&rank->call[i]);
	if (n >= MIN_LONG) {
		w.usual = pl_percentile_i64(w.taken, n, 1);
		if (any_long(&w))
			best_model(&w, l, &best);
	}
	if (best.n)
		w.name = pl_derive_intern(b->err, &b->g->str, PL_LAUNCH_QUEUE,
					  sizeof(PL_LAUNCH_QUEUE) - 2);
	for (size_t i = 0; i < best.n; i++)
		if (best.q[i].depth)
			add_waits_of_queue(&w, &best.q[i]);
out:
	model_fini(&best);
	pl_free(w.taken);
	pl_free(w.reg);
}
