/*
 * Full launch queues: the host waits for room.
 *
 * A driver takes a bounded number of launches that the device has not taken up; then it keeps the
 * caller until one has left. Profilers show that as a long launch call. Here the wait becomes a
 * dependency on the operation that made room, and the call keeps only what is left of it.
 *
 * Neither depth nor scope of a queue is known, so each way of counting is tried on the recording: a
 * queue for the rank, its records and waits taking places or not, or one for each stream; a place
 * free when its operation starts, or when it ends, and in a ring not before those ahead of it. What
 * would be the depth is the median number of places taken at the ends of long calls. A queue is
 * believed when
 *
 * - that number is the same at nearly all long calls,
 * - some operation gave up its place just before nearly all of them returned, and
 * - hardly ever were more places taken, whatever the call.
 *
 * Calls that are long for another reason fail the first two, or the third as soon as the host runs
 * further ahead elsewhere. Of the ways believed, that with the least spread is taken. Then every
 * launch, held up or not, waits for the operation one depth before it.
 *
 * A graph hands on from step to step only when each resource was done last (cut.c), and a queue
 * reaches back over several steps. So an operation whose place is wanted in later steps leaves the
 * time on a resource of its own, a register, which a node of each step in between hands on; its
 * resource says how many steps old the time is, so that equal steps stay equal. To keep them few,
 * only every m-th operation has a register (m is a 128th of the depth); from there to the
 * operation itself the recorded time counts, as an operation of the queue.
 *
 * O(n log n) in the calls of a rank.
 */
#include <stdlib.h>
#include <string.h>

#include "derive/internal.h"

#define TOL_NS	     2000  /* of rounding in start and end times */
#define LONG_TIMES   4	   /* a call is long from so many times the usual length on */
#define LONG_MORE_NS 5000  /* and this */
#define MIN_LONG     8	   /* so many long calls are needed */
#define MIN_DEPTH    4	   /* less is not a queue: the calls wait for their own operations */
#define MOST	     0.8   /* "nearly all" */
#define HARDLY	     0.01  /* "hardly ever" */
#define IDLE_NS	     10000 /* a stream that rests longer waits for something */
#define MAX_STREAMS  64
#define PER_DEPTH    128 /* registers per depth */
#define MAX_AGE	     16	 /* steps that a queue may reach back */

struct place {	       /* in a queue, taken by a launch */
	struct op *op; /* NULL: a record or wait, which no device operation shows */
	uint32_t call; /* index of the call */
	struct op *by; /* this operation makes the place free, NULL unknown */
	bool at_end;   /* when it ends */
	pl_ns leaves;  /* that is then; INT64_MIN unknown */
};

struct left {
	pl_ns at;
	size_t place;
};

struct queue {
	struct place *p; /* in order of launch */
	size_t n, cap;
	struct left *left; /* when places became free, ascending */
	size_t depth;	   /* 0: it is not one */
	double hits;	   /* share of the long calls that depth explains */
};

struct way { /* of counting */
	struct queue *q;
	size_t n, cap;
};

struct work {
	struct gb *b;
	struct rankinfo *rk;
	pl_ns usual; /* length of a call that was not held up: a low percentile, for most may be */
	int64_t *taken; /* scratch */
	/* registers, resources by [ordinal within its step][age]; 0 not made */
	uint32_t *reg;
	size_t n_reg, cap_reg, n_names;
	pl_id name;    /* of nodes that hand on times */
	uint32_t line; /* resource of the times between registers */
};

static pl_ns length(const struct call *c)
{
	return c->end - c->start;
}

/* A copy that kept its caller until it was done says nothing about queues. */
static bool own_wait(const struct rankinfo *rk, const struct call *c)
{
	return c->n_ops && rk->by_call[c->first_op + c->n_ops - 1]->end <= c->end;
}

static bool is_long(const struct work *w, const struct call *c)
{
	return length(c) >= LONG_TIMES * w->usual + LONG_MORE_NS && !own_wait(w->rk, c);
}

/* ---- ways of counting ----------------------------------------------------------------------- */

static int add_queue(struct way *y, struct queue **q, struct pl_err *err)
{
	int rc = pl_grow(&y->q, &y->cap, y->n + 1, sizeof(*y->q), err);

	if (rc < 0)
		return rc;
	*q = &y->q[y->n++];
	memset(*q, 0, sizeof(**q));
	return 0;
}

static int add_place(struct queue *q, struct op *op, uint32_t call, struct pl_err *err)
{
	int rc = pl_grow(&q->p, &q->cap, q->n + 1, sizeof(*q->p), err);

	if (rc == 0)
		q->p[q->n++] = (struct place){ .op = op, .call = call };
	return rc;
}

/* events: 0 records and waits take no place, 1 but for the communication library's own, 2 all do */
static int of_rank(const struct work *w, struct way *y, unsigned events, struct pl_err *err)
{
	const struct rankinfo *rk = w->rk;
	struct queue *q;
	int rc = add_queue(y, &q, err);

	for (uint32_t i = 0; i < rk->n_calls && rc == 0; i++) {
		const struct call *c = &rk->call[i];

		for (uint32_t k = 0; k < c->n_ops && rc == 0; k++)
			rc = add_place(q, rk->by_call[c->first_op + k], i, err);
		if (rc == 0 && events > c->internal &&
		    (c->type == CALL_RECORD || c->type == CALL_WAIT))
			rc = add_place(q, NULL, i, err);
	}
	return rc;
}

static int of_streams(const struct lanes *l, struct way *y, struct pl_err *err)
{
	struct queue *q;
	int rc = 0;

	for (size_t i = 0; i < l->n; i++) {
		rc = add_queue(y, &q, err);
		for (uint32_t k = 0; k < l->v[i].n && rc == 0; k++)
			rc = add_place(q, l->v[i].op[k], l->v[i].call[k], err);
		if (rc < 0)
			break;
	}
	return rc;
}

static void way_fini(struct way *y)
{
	for (size_t i = 0; i < y->n; i++) {
		pl_free(y->q[i].p);
		pl_free(y->q[i].left);
	}
	pl_free(y->q);
	memset(y, 0, sizeof(*y));
}

/* ---- the evidence --------------------------------------------------------------------------- */

PL_COMPARATOR(by_time, struct left, at, place);

/*
 * When places become free; those of records and waits when the operation before them has ended. In
 * a ring, only with those ahead: the stream that is behind holds up the others.
 */
static int set_leaves(struct queue *q, bool at_end, bool ring, struct pl_err *err)
{
	struct op *last = NULL;
	int rc = pl_alloc(&q->left, q->n, sizeof(*q->left), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < q->n; i++) {
		struct place *p = &q->p[i];

		last = p->op ? p->op : last;
		p->by = last;
		p->at_end = at_end || !p->op;
		p->leaves = !last ? INT64_MIN : p->at_end ? last->end : last->start;
		if (ring && i && p[-1].leaves > p->leaves) {
			p->by = p[-1].by;
			p->at_end = p[-1].at_end;
			p->leaves = p[-1].leaves;
		}
		q->left[i] = (struct left){ p->leaves, i };
	}
	pl_sort(q->left, q->n, sizeof(*q->left), by_time);
	return 0;
}

/* How many places had become free by t. */
static size_t left_by(const struct queue *q, pl_ns t)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, q->n, q->left[i].at <= t);
	return i;
}

/* Places taken when the call returned that took place i. */
static size_t taken_at(const struct work *w, const struct queue *q, size_t i)
{
	size_t left = left_by(q, w->rk->call[q->p[i].call].end);

	return left > i ? 0 : i + 1 - left;
}

/* How long before the end of a call that was held up its place became free, at most. */
static pl_ns window(const struct work *w)
{
	return LONG_TIMES * w->usual + TOL_NS;
}

static bool just_left(const struct work *w, const struct queue *q, pl_ns end)
{
	size_t n = left_by(q, end + TOL_NS);

	return n && q->left[n - 1].at >= end - window(w);
}

/* By how much counts of taken places may differ, and in which range the exact depth is sought. */
static size_t slack_of(size_t depth)
{
	return depth < 32 ? 1 : depth / 32;
}

static size_t near_of(size_t depth)
{
	return 2 * slack_of(depth);
}

/* The depth that the long calls show, behind the first `from` places; 0: they are too few. */
static size_t depth_of(const struct work *w, const struct queue *q, size_t from, double percent)
{
	size_t n = 0;

	for (size_t i = from; i < q->n; i++)
		if (is_long(w, &w->rk->call[q->p[i].call]))
			w->taken[n++] = (int64_t)taken_at(w, q, i);
	return n < MIN_LONG ? 0 : (size_t)pl_percentile_i64(w->taken, n, percent);
}

/*
 * The exact depth, near the one that was counted: at most long calls the operation so many places
 * before had just made room.
 */
static void settle(const struct work *w, struct queue *q, size_t n_long)
{
	size_t lo = q->depth - pl_min_size(q->depth - 1, near_of(q->depth));
	size_t hi = q->depth + near_of(q->depth), best = q->depth;

	memset(w->taken, 0, (hi - lo + 1) * sizeof(*w->taken));
	for (size_t i = q->depth; i < q->n; i++) {
		const struct call *c = &w->rk->call[q->p[i].call];

		if (!is_long(w, c))
			continue;
		for (size_t k = left_by(q, c->end);
		     k-- > 0 && q->left[k].at >= c->end - window(w);) {
			size_t d = i - pl_min_size(i, q->left[k].place);

			if (d >= lo && d <= hi && w->taken[d - lo]++ >= w->taken[best - lo])
				best = d;
		}
	}
	q->depth = best;
	q->hits = (double)w->taken[best - lo] / (double)n_long;
}

/* Do the calls show that this is a queue? The first of a recording know nothing of those before. */
static bool believed(const struct work *w, struct queue *q)
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
		just += just_left(w, q, c->end);
	}
	if ((double)same < MOST * (double)n || (double)just < MOST * (double)n ||
	    (double)more > HARDLY * (double)(q->n - q->depth))
		return false;
	settle(w, q, n);
	return true;
}

/* Of the queues of a way only the believed stay. *hits: the most of theirs, -1 if there are none.
 */
static int try_way(const struct work *w, struct way *y, bool at_end, bool ring, double *hits,
		   struct pl_err *err)
{
	int rc;

	*hits = -1;
	for (size_t i = 0; i < y->n; i++) {
		struct queue *q = &y->q[i];

		if ((rc = set_leaves(q, at_end, ring, err)) < 0)
			return rc;
		if (!believed(w, q))
			q->depth = 0;
		else if (q->hits > *hits)
			*hits = q->hits;
	}
	return 0;
}

static int best_way(struct work *w, const struct lanes *l, struct way *best, struct pl_err *err)
{
	double most = -1, hits;
	int rc = 0;

	/* one stream is a ring anyway */
	for (unsigned k = 0; k < (l->n > 1 ? 14u : 8u) && rc == 0; k++) {
		struct way y = { 0 };

		rc = k == 6 || k == 7 ? of_streams(l, &y, err) : of_rank(w, &y, k / 2 % 4, err);
		if (rc == 0)
			rc = try_way(w, &y, k & 1, k > 7, &hits, err);
		if (rc == 0 && hits > most) {
			way_fini(best);
			*best = y;
			most = hits;
		} else {
			way_fini(&y);
		}
	}
	return rc;
}

/* ---- steps and registers -------------------------------------------------------------------- */

struct handed { /* the time that an operation left, by age in steps: nodes */
	uint32_t node[MAX_AGE];
};

struct steps {
	int32_t *step;	 /* of each place, by its call */
	int32_t *leaves; /* and by that of the operation that frees it */
	uint32_t *from;	 /* place with a register from which it is reached, PL_NONE */
	uint32_t *nth;	 /* of places with a register: which of its step */
	uint32_t *at;	 /* and where in handed[] */
	struct handed *handed;
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
			  .group = PL_NONE,
			  .step = step,
			  .start = start,
			  .dur = dur };

	return pl_derive_node(w->b, &n, id, err);
}

/* An edge from where the operation gives up its place. */
static int leave_edge(struct work *w, const struct place *p, uint32_t dst, struct pl_err *err)
{
	return p->at_end ? pl_derive_edge(w->b, p->by->last, dst, PL_E_WAIT | PL_E_INFERRED, err)
			 : pl_derive_edge(w->b, p->by->node, dst, PL_E_START | PL_E_INFERRED, err);
}

/* The node of the step before `step` that hands the time of place v on to it. */
static int hand_on(struct work *w, const struct queue *q, struct steps *s, size_t v, int32_t step,
		   uint32_t *id, struct pl_err *err)
{
	uint32_t like = w->rk->call[q->p[v].call].res, age = (uint32_t)(step - s->leaves[v]), res;
	uint32_t *node = s->handed[s->at[v]].node;
	int rc;

	for (uint32_t a = 0; a < age; a++) {
		if (node[a] != PL_NONE)
			continue;
		if ((rc = register_of(w, like, s->nth[v], a, &res, err)) < 0 ||
		    (rc = queue_node(w, res, s->leaves[v] + (int32_t)a, q->p[v].leaves, 0, &node[a],
				     err)) < 0 ||
		    (rc = a ? pl_derive_edge(w->b, node[a - 1], node[a], PL_E_WAIT | PL_E_INFERRED,
					     err)
			    : leave_edge(w, &q->p[v], node[a], err)) < 0)
			return rc;
	}
	*id = node[age - 1];
	return 0;
}

/*
 * May times between the registers of a stream be taken as recorded up to this operation? Not where
 * it waited for something else, and not for communication, which waits for other ranks.
 */
static bool stands_alone(const struct gb *b, const struct op *op)
{
	const struct resinfo *ri = &b->ri[b->node[op->node].res];

	return b->node[op->node].role == PL_RO_ARRIVE || op == ri->op ||
	       op->start > op[-1].end + IDLE_NS;
}

struct run { /* of a stream since its last register */
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
	    (rc = pl_alloc(&s->leaves, q->n, sizeof(*s->leaves), err)) < 0 ||
	    (rc = pl_alloc(&s->from, q->n, sizeof(*s->from), err)) < 0 ||
	    (rc = pl_alloc(&s->nth, q->n, sizeof(*s->nth), err)) < 0)
		return rc;
	return pl_alloc(&s->at, q->n, sizeof(*s->at), err);
}

/* Which places have a register, and from which the others are reached. */
static int make_steps(struct work *w, const struct queue *q, struct steps *s, struct pl_err *err)
{
	size_t every = q->depth < PER_DEPTH ? 1 : q->depth / PER_DEPTH, n_run = 0;
	struct run run[MAX_STREAMS], *x;
	uint32_t nth = 0;
	bool inside;
	int rc = alloc_steps(q, s, err);

	for (size_t i = 0; i < q->n && rc == 0; i++) {
		const struct place *p = &q->p[i];

		s->from[i] = PL_NONE;
		s->step[i] = pl_derive_step_at(w->b, w->rk, w->rk->call[p->call].start, &inside);
		s->leaves[i] = s->step[i];
		if (p->by && p->by->call != PL_NONE)
			s->leaves[i] = pl_derive_step_at(w->b, w->rk,
							 w->rk->call[p->by->call].start, &inside);
		if (i && s->leaves[i] != s->leaves[i - 1])
			nth = 0;
		if (!p->by || !(x = run_of(run, &n_run, w->b->node[p->by->node].res)))
			continue;
		if (x->from == PL_NONE || x->step != s->leaves[i] || ++x->n >= every ||
		    stands_alone(w->b, p->by)) {
			x->from = (uint32_t)i;
			x->step = s->leaves[i];
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
	pl_free(s->leaves);
	pl_free(s->from);
	pl_free(s->nth);
	pl_free(s->at);
	pl_free(s->handed);
}

/* ---- waiting for room ----------------------------------------------------------------------- */

/* May the call of place i have waited for place u? */
static bool possible(const struct work *w, const struct queue *q, size_t i, size_t u)
{
	const struct call *c = &w->rk->call[q->p[i].call];

	if (!q->p[u].by || q->p[u].call >= q->p[i].call ||
	    q->p[u].leaves > pl_derive_end(w->b, c->node) || q->p[u].leaves > c->end)
		return false;
	for (uint32_t k = 0; k < c->n_ops; k++)
		if (w->rk->by_call[c->first_op + k]->start < q->p[u].leaves)
			return false;
	return true;
}

/*
 * The operation that made room for place i: one depth before; for a call that was held up the
 * nearest to that which left as the call returned, for what takes a place is known only roughly.
 * q->n: none.
 */
static size_t room_from(const struct work *w, const struct queue *q, size_t i)
{
	size_t at = i - q->depth, near = near_of(q->depth);
	pl_ns end = w->rk->call[q->p[i].call].end;

	if (is_long(w, &w->rk->call[q->p[i].call])) {
		for (size_t d = 0; d <= near; d++) {
			if (d <= at && q->p[at - d].leaves >= end - window(w) &&
			    possible(w, q, i, at - d))
				return at - d;
			if (at + d < i && q->p[at + d].leaves >= end - window(w) &&
			    possible(w, q, i, at + d))
				return at + d;
		}
	}
	for (size_t d = 0; d <= near && d <= at; d++)
		if (possible(w, q, i, at - d))
			return at - d;
	return q->n;
}

/* The call begins when there was room. What waits.c split off behind it stays. */
static void shorten(struct work *w, struct call *c, pl_ns room)
{
	struct node *n = &w->b->node[c->node];
	pl_ns end = c->last == c->node ? n->start + n->dur : w->b->node[c->last].start;

	if (room <= n->start)
		return;
	n->start = room;
	n->dur = pl_max_i64(0, pl_min_i64(n->dur, end - room));
	n->flags |= PL_NF_INFERRED;
	c->start = pl_max_i64(c->start, room);
}

static int one_wait(struct work *w, const struct queue *q, struct steps *s, size_t i,
		    struct pl_err *err)
{
	struct call *c = &w->rk->call[q->p[i].call];
	size_t u = room_from(w, q, i);
	int32_t step = s->step[i];
	uint32_t from, v;
	pl_ns room;
	int rc;

	if (u == q->n || s->leaves[u] > step)
		return 0;
	room = q->p[u].leaves;
	if (s->leaves[u] == step) {
		shorten(w, c, room);
		w->b->g->inferred_waits++;
		return leave_edge(w, &q->p[u], c->node, err);
	}
	v = s->from[u];
	if (v == PL_NONE || step - s->leaves[v] > MAX_AGE || q->p[v].leaves > room)
		return 0;
	if ((rc = hand_on(w, q, s, v, step, &from, err)) < 0)
		return rc;
	if (room > q->p[v].leaves) {
		uint32_t rest;

		if ((w->line == PL_NONE && (rc = new_resource(w, c->res, &w->line, err)) < 0) ||
		    (rc = queue_node(w, w->line, step, q->p[v].leaves, room - q->p[v].leaves, &rest,
				     err)) < 0 ||
		    (rc = pl_derive_edge(w->b, from, rest, PL_E_WAIT | PL_E_INFERRED, err)) < 0)
			return rc;
		from = rest;
	}
	shorten(w, c, room);
	w->b->g->inferred_waits++;
	return pl_derive_edge(w->b, from, c->node, PL_E_WAIT | PL_E_INFERRED, err);
}

static int one_queue(struct work *w, const struct queue *q, struct pl_err *err)
{
	struct steps s;
	int rc = make_steps(w, q, &s, err);

	w->n_reg = 0; /* of this queue: others have theirs */
	w->line = PL_NONE;
	for (size_t i = q->depth; i < q->n && rc == 0; i++)
		if (i + 1 == q->n || q->p[i + 1].call != q->p[i].call) /* a graph: its last */
			rc = one_wait(w, q, &s, i, err);
	steps_fini(&s);
	return rc;
}

int pl_derive_queue(struct gb *b, struct rankinfo *rk, const struct lanes *l, struct pl_err *err)
{
	struct work w = { .b = b, .rk = rk };
	struct way best = { 0 };
	size_t n = 0;
	int rc = pl_alloc(&w.taken, rk->n_calls + rk->n_by_call, sizeof(*w.taken), err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < rk->n_calls; i++)
		if (rk->call[i].n_ops && !own_wait(rk, &rk->call[i]))
			w.taken[n++] = length(&rk->call[i]);
	if (n >= MIN_LONG) {
		w.usual = pl_percentile_i64(w.taken, n, 1);
		rc = best_way(&w, l, &best, err);
	}
	if (rc == 0 && best.n)
		rc = pl_intern_add(&b->g->str, PL_LAUNCH_QUEUE, sizeof(PL_LAUNCH_QUEUE) - 2,
				   &w.name, err);
	for (size_t i = 0; i < best.n && rc == 0; i++)
		if (best.q[i].depth)
			rc = one_queue(&w, &best.q[i], err);
	way_fini(&best);
	pl_free(w.taken);
	pl_free(w.reg);
	return rc;
}
