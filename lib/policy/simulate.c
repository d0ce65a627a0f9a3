/*
 * A discrete-event simulation of workers and a server under a policy.
 *
 * A worker is in one state, and a heap has the time at which that state ends; the server's timer
 * and the list of changes are two more entries. A worker computes until its order says that it
 * commits, so steps in between are no events: a commit costs one or two moves in the heap, O(log
 * workers). Where commits overlap with steps, the steps since a commit are counted when its reply
 * has come; a new speed holds for all of them. Entries with equal times follow in the order of the
 * workers, then the timer, then changes.
 */
#include <math.h>

#include "policy/simulate.h"

#define NEVER INT64_MAX

enum state {
	ABSENT,
	COMPUTING, /* or its commit is on the way; ends when the commit arrives */
	QUEUED,	   /* at the server; ends with its service */
	WAITING	   /* for the reply */
};

struct worker {
	enum state state;
	pl_ns step, link; /* link: one direction */
	int64_t batch;	  /* its own; at least 1 */
	double scale;	  /* of the step, by the batch */
	struct pl_policy_order order;
	pl_ns shared;	/* of a reply on the link that all replies share */
	pl_ns replied;	/* when the reply left the link that all share */
	pl_ns began;	/* the first step since the reply */
	pl_ns from;	/* from then on, steps have their present length */
	uint64_t done;	/* steps before `from` */
	uint64_t steps; /* until the commit; 0: no end is known */
	pl_ns end;	/* of the last of them */
	pl_ns served;	/* end of service */
	pl_ns commit_ns, reply_ns;
	uint64_t base;	 /* version from which its steps began */
	uint64_t pulled; /* that of the last reply */
	pl_ns absent_from;
	struct pl_policy_sim_result *r;
};

struct sim {
	const struct pl_policy_sim_opts *o;
	struct pl_policy *p;
	struct worker *w;
	uint32_t n;	 /* workers; entry n: the timer, n + 1: the next change */
	pl_ns *key;	 /* [entry] */
	uint32_t *heap;	 /* entries by key and number */
	uint32_t *place; /* [entry]: in the heap */
	pl_ns free;	 /* when the server has served what has arrived */
	pl_ns sent;	 /* when the link that all replies share has sent them */
	size_t change;
	bool overlap;
};

/* ---- the heap -------------------------------------------------------------------------------- */

static bool before(const struct sim *s, uint32_t a, uint32_t b)
{
	return s->key[a] != s->key[b] ? s->key[a] < s->key[b] : a < b;
}

static void put_at(struct sim *s, uint32_t place, uint32_t entry)
{
	s->heap[place] = entry;
	s->place[entry] = place;
}

static void set_key(struct sim *s, uint32_t entry, pl_ns key)
{
	uint32_t at = s->place[entry], size = s->n + 2, child;

	s->key[entry] = key;
	for (; at && before(s, entry, s->heap[(at - 1) / 2]); at = (at - 1) / 2)
		put_at(s, at, s->heap[(at - 1) / 2]);
	for (;; at = child) {
		child = 2 * at + 1;
		if (child >= size)
			break;
		if (child + 1 < size && before(s, s->heap[child + 1], s->heap[child]))
			child++;
		if (!before(s, s->heap[child], entry))
			break;
		put_at(s, at, s->heap[child]);
	}
	put_at(s, at, entry);
}

/* ---- steps ----------------------------------------------------------------------------------- */

static pl_ns step_of(const struct worker *w)
{
	return w->scale == 1 ? w->step : pl_max_i64(1, (pl_ns)((double)w->step * w->scale));
}

/* Steps that have ended by `now`, counted from the reply. */
static uint64_t ended(const struct worker *w, pl_ns now)
{
	return w->done + (now > w->from ? (uint64_t)((now - w->from) / step_of(w)) : 0);
}

/* When the worker commits by its order, not before `now`, nor before its last reply is there. */
static void plan_commit(struct sim *s, uint32_t i, pl_ns now)
{
	struct worker *w = &s->w[i];
	pl_ns step = step_of(w);
	uint64_t least, n = UINT64_MAX, due;

	/* the first step that ends then or later, and the one that the order names */
	now = pl_max_i64(now, pl_add_sat(w->replied, w->link));
	least = w->done + (now > w->from ? (uint64_t)((now - w->from + step - 1) / step) : 0);
	least = least ? least : 1;
	if (w->order.steps)
		n = w->order.steps;
	if (w->order.every) {
		due = w->done;
		if (w->order.first > w->from)
			due += (uint64_t)((w->order.first - w->from + step - 1) / step);
		n = due < n ? due : n;
	}
	if (n < least)
		n = least;
	if (n == UINT64_MAX || (double)(n - w->done) * (double)step > 0x1p62) {
		w->steps = 0;
		w->end = NEVER;
		set_key(s, i, NEVER);
		return;
	}
	w->steps = n;
	w->end = pl_add_sat(w->from, (pl_ns)(n - w->done) * step);
	set_key(s, i, pl_add_sat(w->end, w->link));
}

static bool still_computes(const struct worker *w, pl_ns now)
{
	return w->state == COMPUTING && w->end > now;
}

static void change_speed(struct sim *s, uint32_t i, pl_ns now, pl_ns step)
{
	struct worker *w = &s->w[i];
	uint64_t more;

	if (still_computes(w, now)) {
		/* the present step ends as it began */
		more = now > w->from ? (uint64_t)((now - w->from) / step_of(w)) + 1 : 0;
		w->from += (pl_ns)more * step_of(w);
		w->done += more;
		w->step = step;
		plan_commit(s, i, pl_max_i64(now, w->from));
	}
	w->step = step;
}

/* ---- what the policy does -------------------------------------------------------------------- */

static int64_t batch_of(const struct worker *w)
{
	return w->order.batch ? w->order.batch : w->batch;
}

/* The steps after a commit for whose reply the worker has not waited. */
static void go_on(struct sim *s, struct worker *w)
{
	w->began = w->from = pl_add_sat(w->end, s->o->own_ns);
	w->r->sending_ns += s->o->own_ns;
	w->done = 0;
}

/* The reply to a commit after which the worker has gone on: its next steps began with that. */
static void reply_over(struct sim *s, uint32_t i)
{
	struct worker *w = &s->w[i];
	pl_ns late;

	go_on(s, w);
	/* it is seen between two steps */
	late = pl_max_i64(0, pl_add_sat(w->replied, w->link) - w->from) + step_of(w) - 1;
	w->reply_ns = w->from - w->end + late - late % step_of(w);
	w->commit_ns = s->o->own_ns;
	w->base = w->pulled + 1;
	w->pulled = pl_policy_version(s->p);
	plan_commit(s, i, w->from);
}

static void reply(struct sim *s, const struct pl_policy_action *a, pl_ns now)
{
	struct worker *w = &s->w[a->worker];

	w->replied = now;
	if (w->shared)
		w->replied = s->sent = pl_add_sat(pl_max_i64(s->sent, now), w->shared);
	if (s->overlap && w->steps) {
		w->state = COMPUTING;
		w->order = a->order;
		reply_over(s, a->worker);
		return;
	}
	w->r->waiting_ns += now - w->served;
	w->commit_ns = w->replied + w->link - w->end;
	w->r->sending_ns += w->commit_ns - (now - w->served);
	if (!w->steps) /* it has joined, and has not committed */
		w->commit_ns = 0;
	w->state = COMPUTING;
	w->order = a->order;
	w->scale = (double)batch_of(w) / (double)w->batch;
	w->began = w->from = pl_add_sat(w->replied, w->link);
	w->done = 0;
	w->base = w->pulled = pl_policy_version(s->p);
	plan_commit(s, a->worker, w->from);
}

static int carry_out(struct sim *s, const struct pl_policy_action *a, pl_ns now, struct pl_err *err)
{
	if (s->o->act)
		PL_CHECK(s->o->act(s->o->arg, s->p, a, now, err));
	if (a->kind == PL_POLICY_REPLY) {
		reply(s, a, now);
	} else if (a->kind == PL_POLICY_ORDER) {
		if (still_computes(&s->w[a->worker], now)) {
			s->w[a->worker].order.steps = a->order.steps;
			s->w[a->worker].order.first = a->order.first;
			s->w[a->worker].order.every = a->order.every;
			plan_commit(s, a->worker, now);
		}
	} else if (a->kind == PL_POLICY_WAKE) {
		set_key(s, s->n, pl_max_i64(now, a->at));
	} else if (a->kind == PL_POLICY_FEW) {
		return pl_fail(err, PL_ESTOP, "%s", a->text);
	}
	return 0;
}

static int tell(struct sim *s, struct pl_policy_event *e, struct pl_err *err)
{
	const struct pl_policy_action *a;
	size_t n;

	if (s->o->event)
		PL_CHECK(s->o->event(s->o->arg, e, err));
	PL_CHECK(pl_policy_handle(s->p, e, &a, &n, err));
	for (size_t i = 0; i < n; i++)
		PL_CHECK(carry_out(s, &a[i], e->now, err));
	return 0;
}

/* ---- events ---------------------------------------------------------------------------------- */

/* The steps until `end` are over. */
static void account(struct worker *w, uint64_t steps, pl_ns end)
{
	w->r->steps += steps;
	w->r->samples += steps * (uint64_t)batch_of(w);
	w->r->computing_ns += end - w->began;
}

static int serve(struct sim *s, uint32_t i, pl_ns now, struct pl_err *err)
{
	struct worker *w = &s->w[i];
	struct pl_policy_event e = { .kind = PL_POLICY_COMMITTED,
				     .worker = i,
				     .now = now,
				     .steps = w->steps,
				     .samples = w->steps * (uint64_t)batch_of(w),
				     .base = w->base,
				     .loss = (double)NAN,
				     .step_ns = (w->end - w->began) / (pl_ns)w->steps,
				     .commit_ns = w->commit_ns,
				     .reply_ns = w->reply_ns };

	account(w, w->steps, w->end);
	w->state = WAITING;
	w->served = now;
	set_key(s, i, NEVER);
	return tell(s, &e, err);
}

static int join(struct sim *s, uint32_t i, pl_ns now, struct pl_err *err)
{
	struct worker *w = &s->w[i];
	struct pl_policy_event e = { .kind = PL_POLICY_JOINED, .worker = i, .now = now };

	if (w->state != ABSENT)
		return pl_fail(err, PL_EUSAGE, "simulation: worker %u joins, but is present", i);
	w->state = WAITING;
	w->r->absent_ns += now - w->absent_from;
	w->served = w->end = now;
	w->reply_ns = 0;
	w->steps = 0;
	set_key(s, i, NEVER);
	return tell(s, &e, err);
}

/* Enter the time of the worker until now, at which it leaves or the simulation ends. */
static void close_worker(struct sim *s, uint32_t i, pl_ns now)
{
	struct worker *w = &s->w[i];

	if (w->state == ABSENT) {
		w->r->absent_ns += now - w->absent_from;
	} else if (w->state == COMPUTING && w->end > now) {
		if (now < w->began) { /* the reply is on the way */
			w->r->sending_ns -= w->began - now;
			w->began = w->from = now;
		}
		account(w, ended(w, now), now);
	} else if (s->overlap && w->steps) { /* a commit is on its way, or its reply */
		if (w->state != WAITING)
			account(w, w->steps, w->end);
		go_on(s, w);
		if (now < w->began) { /* in what the commit takes itself */
			w->r->sending_ns -= w->began - now;
			w->began = w->from = now;
		}
		account(w, ended(w, now), now);
	} else if (w->state == COMPUTING) {
		account(w, w->steps, w->end);
		w->r->sending_ns += now - w->end;
	} else if (w->state == QUEUED) {
		account(w, w->steps, w->end);
		w->r->sending_ns += now - w->end;
	} else {
		w->r->sending_ns += w->served - w->end;
		w->r->waiting_ns += now - w->served;
	}
}

static int change(struct sim *s, pl_ns now, struct pl_err *err)
{
	const struct pl_policy_sim_change *c = &s->o->changes[s->change++];
	struct pl_policy_event e = { .kind = PL_POLICY_LEFT, .worker = c->worker, .now = now };

	set_key(s, s->n + 1, s->change < s->o->n_changes ? s->o->changes[s->change].at : NEVER);
	if (c->what == PL_POLICY_SIM_SPEED) {
		change_speed(s, c->worker, now, c->step_ns);
		return 0;
	}
	if (c->what == PL_POLICY_SIM_JOINS)
		return join(s, c->worker, now, err);
	if (s->w[c->worker].state == ABSENT)
		return pl_fail(err, PL_EUSAGE, "simulation: worker %u leaves, but is absent",
			       c->worker);
	close_worker(s, c->worker, now);
	s->w[c->worker].state = ABSENT;
	s->w[c->worker].absent_from = now;
	s->w[c->worker].commit_ns = 0;
	set_key(s, c->worker, NEVER);
	return tell(s, &e, err);
}

static int step(struct sim *s, uint32_t entry, pl_ns now, struct pl_err *err)
{
	struct worker *w = &s->w[entry];
	struct pl_policy_event timer = { .kind = PL_POLICY_TIMER, .now = now };

	if (entry == s->n) {
		set_key(s, entry, NEVER);
		return tell(s, &timer, err);
	}
	if (entry > s->n)
		return change(s, now, err);
	if (w->state == ABSENT)
		return join(s, entry, now, err);
	if (w->state == COMPUTING) {
		w->state = QUEUED;
		s->free = pl_add_sat(pl_max_i64(s->free, now), s->o->service_ns);
		if (s->free > now) {
			set_key(s, entry, s->free);
			return 0;
		}
	}
	return serve(s, entry, now, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int check(const struct pl_policy_sim_opts *o, struct pl_err *err)
{
	pl_ns last = 0;

	for (uint32_t i = 0; i < o->policy->workers; i++)
		if (o->worker[i].step_ns < 1 || o->worker[i].link_ns < 0 ||
		    o->worker[i].shared_ns < 0 || o->worker[i].batch < 0)
			return pl_fail(
				err, PL_EUSAGE,
				"simulation: the times or the batch of worker %u are not positive",
				i);
	for (size_t i = 0; i < o->n_changes; i++) {
		const struct pl_policy_sim_change *c = &o->changes[i];

		if (c->at < last || c->worker >= o->policy->workers ||
		    (c->what == PL_POLICY_SIM_SPEED && c->step_ns < 1))
			return pl_fail(err, PL_EUSAGE, "simulation: change %zu is not possible", i);
		last = c->at;
	}
	if (o->service_ns < 0 || o->own_ns < 0 || o->until < 0)
		return pl_fail(err, PL_EUSAGE, "simulation: negative times");
	return 0;
}

static int prepare(struct sim *s, struct pl_policy_sim_result *r, struct pl_err *err)
{
	const struct pl_policy_sim_opts *o = s->o;

	s->n = o->policy->workers;
	s->overlap = o->overlap && pl_policy_overlaps(o->policy->kind);
	PL_CHECK(pl_alloc(&s->w, s->n, sizeof(*s->w), err));
	PL_CHECK(pl_alloc(&s->key, s->n + 2, sizeof(*s->key), err));
	PL_CHECK(pl_alloc(&s->heap, s->n + 2, sizeof(*s->heap), err));
	PL_CHECK(pl_alloc(&s->place, s->n + 2, sizeof(*s->place), err));
	for (uint32_t i = 0; i < s->n + 2; i++) {
		s->key[i] = NEVER;
		put_at(s, i, i);
	}
	memset(r, 0, s->n * sizeof(*r));
	for (uint32_t i = 0; i < s->n; i++) {
		s->w[i].r = &r[i];
		s->w[i].step = o->worker[i].step_ns;
		s->w[i].link = o->worker[i].link_ns;
		s->w[i].shared = o->worker[i].shared_ns;
		s->w[i].scale = 1;
		s->w[i].batch = o->worker[i].batch ? o->worker[i].batch : o->policy->batch;
		s->w[i].batch = pl_max_i64(1, s->w[i].batch);
		if (o->worker[i].joins >= 0)
			set_key(s, i, o->worker[i].joins);
	}
	if (o->n_changes)
		set_key(s, s->n + 1, o->changes[0].at);
	return 0;
}

int pl_policy_simulate(const struct pl_policy_sim_opts *o, struct pl_policy_sim_result *r,
		       struct pl_err *err)
{
	struct sim s = { .o = o };
	pl_ns now = 0;
	int rc;

	PL_TRY(pl_policy_new(o->policy, &s.p, err));
	PL_TRY(check(o, err));
	PL_TRY(prepare(&s, r, err));
	while (rc == 0 && s.key[s.heap[0]] <= o->until && s.key[s.heap[0]] != NEVER) {
		now = s.key[s.heap[0]];
		rc = step(&s, s.heap[0], now, err);
	}
	for (uint32_t i = 0; i < s.n; i++) {
		close_worker(&s, i, rc == 0 ? o->until : now);
		r[i].seen = *pl_policy_worker(s.p, i);
	}
out:
	pl_policy_free(s.p);
	pl_free(s.w);
	pl_free(s.key);
	pl_free(s.heap);
	pl_free(s.place);
	return rc;
}
