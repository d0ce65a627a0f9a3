/*
 * The event core against a slow and simple one: at every instant at which anything happens, all
 * tasks are looked at.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "sim/events.h"
#include "tap.h"

#define TASKS	48
#define MAX_RES 6
#define EDGES	(TASKS * 4)
#define NEVER	INT64_MAX

/* ---- random jobs ----------------------------------------------------------------------------- */

struct random_job {
	struct pl_sim_events_job job;
	uint32_t off[TASKS + 1], src[EDGES], use_off[TASKS + 1], use[2 * TASKS], k[TASKS];
	uint32_t priority[TASKS], parts[TASKS];
	uint8_t etype[EDGES];
	pl_ns delay[EDGES], dur[TASKS], earliest[TASKS], hold[TASKS];
	double slows[TASKS], slowed[TASKS];
	struct pl_sim_events_resource res[MAX_RES];
};

static uint32_t below(uint64_t *seed, uint32_t n)
{
	return (uint32_t)(pl_rng_next(seed) % n);
}

/* A policy that looks at all that it is given. */
static uint32_t choose(void *arg, const uint32_t *waiting, uint32_t n, pl_ns now)
{
	const struct random_job *j = arg;
	uint32_t best = 0;

	for (uint32_t i = 1; i < n; i++)
		if ((j->dur[waiting[i]] + now) % 7 < (j->dur[waiting[best]] + now) % 7)
			best = i;
	return best;
}

/* What jobs have: bits. */
enum { PRIORITY = 1, PARTS = 2, SHARED = 4, SLOW = 8, POLICY = 16, JOINT = 32, HOLD = 64 };

static void random_resources(struct random_job *j, uint64_t *seed, unsigned what)
{
	for (uint32_t r = 0; r < MAX_RES; r++) {
		struct pl_sim_events_resource *x = &j->res[r];

		*x = (struct pl_sim_events_resource){ .capacity = below(seed, 3),
						      .domain = PL_NONE };
		if (what & SHARED && r == 4)
			x->discipline = PL_EVENTS_SHARED;
		if (what & POLICY && r == 5) {
			x->discipline = PL_EVENTS_POLICY;
			x->choose = choose;
			x->arg = j;
		}
		if (what & SLOW) {
			x->domain = below(seed, 2);
			x->side = below(seed, 2) ? PL_EVENTS_COMMUNICATION : PL_EVENTS_COMPUTATION;
		}
	}
}

static void random_uses(struct random_job *j, uint64_t *seed, unsigned what, uint32_t i)
{
	uint32_t n = j->use_off[i], a = below(seed, MAX_RES), b = below(seed, 4);

	j->use_off[i + 1] = n;
	if (below(seed, 4) == 0)
		return;
	j->use[n] = a;
	j->use_off[i + 1] = n + 1;
	if (what & JOINT && a < 4 && b != a && j->res[a].side == j->res[b].side &&
	    below(seed, 3) == 0) {
		j->use[n + 1] = b;
		j->use_off[i + 1] = n + 2;
	}
}

static void random_job(struct random_job *j, uint64_t *seed, unsigned what)
{
	memset(j, 0, sizeof(*j));
	random_resources(j, seed, what);
	for (uint32_t i = 0; i < TASKS; i++) {
		uint32_t n = i ? below(seed, 4) : 0, e = j->off[i];

		for (uint32_t k = 0; k < n; k++, e++) {
			j->src[e] = i - 1 - below(seed, i < 12 ? i : 12);
			j->etype[e] = below(seed, 6) ? PL_E_SEQ : PL_E_START;
			j->delay[e] = below(seed, 3) ? 0 : below(seed, 6);
		}
		j->off[i + 1] = e;
		j->dur[i] = below(seed, 5) ? below(seed, 40) : 0;
		j->earliest[i] = n && below(seed, 9) ? INT64_MIN : (pl_ns)below(seed, 60);
		j->priority[i] = below(seed, 4);
		j->parts[i] = 1 + below(seed, 4);
		j->hold[i] = below(seed, 3) ? 0 : below(seed, 4);
		j->slows[i] = 1 + below(seed, 3) / 2.0;
		j->slowed[i] = 1 + below(seed, 4) / 3.0;
		random_uses(j, seed, what, i);
		if (j->use_off[i] == j->use_off[i + 1] && n > 1)
			j->k[i] = below(seed, n);
	}
	j->job = (struct pl_sim_events_job){ .n = TASKS,
					     .off = j->off,
					     .src = j->src,
					     .etype = j->etype,
					     .delay = j->delay,
					     .dur = j->dur,
					     .earliest = j->earliest,
					     .k = j->k,
					     .res = j->res,
					     .n_res = MAX_RES,
					     .use_off = j->use_off,
					     .use = j->use };
	if (what & PRIORITY)
		j->job.priority = j->priority;
	if (what & PARTS)
		j->job.parts = j->parts;
	if (what & HOLD)
		j->job.hold = j->hold;
	if (what & SLOW) {
		j->job.slows = j->slows;
		j->job.slowed = j->slowed;
	}
}

/* ---- the slow one ---------------------------------------------------------------------------- */

enum state { UNBORN, WAITING, RUNNING, ENDED };
struct slow {
	const struct pl_sim_events_job *j;
	enum state state[TASKS];
	pl_ns start[TASKS], end[TASKS], ready[TASKS], now;
	double done[TASKS];					  /* work until now */
	uint32_t stop[TASKS], from[TASKS], order[TASKS], n_order; /* of arrival */
	struct pl_sim_events_piece piece[TASKS * 8];
	pl_ns piece_start[TASKS];
	uint32_t n_pieces;
};

static bool is_on(const struct slow *s, uint32_t i, uint32_t res)
{
	for (uint32_t u = s->j->use_off[i]; u < s->j->use_off[i + 1]; u++)
		if (s->j->use[u] == res)
			return true;
	return false;
}

static bool uses_any(const struct slow *s, uint32_t i)
{
	return s->j->use_off[i] < s->j->use_off[i + 1];
}

static uint32_t running_on(const struct slow *s, uint32_t res)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < TASKS; i++)
		n += s->state[i] == RUNNING && is_on(s, i, res);
	return n;
}

static uint32_t capacity(const struct slow *s, uint32_t res)
{
	return s->j->res[res].capacity ? s->j->res[res].capacity : 1;
}

static bool in_domain(const struct slow *s, uint32_t i, uint32_t domain, unsigned side)
{
	for (uint32_t u = s->j->use_off[i]; u < s->j->use_off[i + 1]; u++)
		if (s->j->res[s->j->use[u]].domain == domain &&
		    s->j->res[s->j->use[u]].side == side)
			return true;
	return false;
}

static double slow_speed(const struct slow *s, uint32_t i)
{
	double speed = 1, slow = 1;

	for (uint32_t u = s->j->use_off[i]; u < s->j->use_off[i + 1]; u++) {
		uint32_t res = s->j->use[u], domain = s->j->res[res].domain;
		bool computes = s->j->res[res].side == PL_EVENTS_COMPUTATION;

		if (s->j->res[res].discipline == PL_EVENTS_SHARED)
			speed = fmin(speed, (double)capacity(s, res) / running_on(s, res));
		for (uint32_t o = 0; domain != PL_NONE && o < TASKS; o++) {
			if (s->state[o] != RUNNING || !in_domain(s, o, domain, computes))
				continue;
			slow = fmax(slow, computes ? s->j->slows[o] : s->j->slowed[i]);
		}
	}
	return speed / slow;
}

static pl_ns slow_part(const struct slow *s, uint32_t i, uint32_t n)
{
	uint32_t parts = s->j->parts ? s->j->parts[i] : 1;

	return s->j->dur[i] / parts * n + s->j->dur[i] % parts * n / parts;
}

/* When the running task ends, if nothing changes. */
static pl_ns slow_end(const struct slow *s, uint32_t i)
{
	double left;

	if (!uses_any(s, i))
		return s->start[i] + s->j->dur[i];
	if (s->j->hold)
		return s->start[i] + s->j->dur[i];
	left = fmax(0, (double)slow_part(s, i, s->stop[i]) - s->done[i]);
	return s->now + (pl_ns)ceil(left / slow_speed(s, i) - 1e-6);
}

static pl_ns arrival(const struct slow *s, uint32_t e)
{
	uint32_t src = s->j->src[e];

	if (s->j->etype[e] == PL_E_START)
		return s->state[src] >= RUNNING || s->from[src] ? s->start[src] + s->j->delay[e]
								: NEVER;
	return s->state[src] == ENDED ? s->end[src] + s->j->delay[e] : NEVER;
}

/* Is the unborn task ready; else the next time at which that may change. */
static bool slow_ready(const struct slow *s, uint32_t i, pl_ns *next)
{
	uint32_t n = s->j->off[i + 1] - s->j->off[i], here = 0;
	uint32_t need = s->j->k[i] && s->j->k[i] < n ? s->j->k[i] : n;

	for (uint32_t e = s->j->off[i]; e < s->j->off[i + 1]; e++) {
		pl_ns at = arrival(s, e);

		if (at <= s->now)
			here++;
		else if (at < *next)
			*next = at;
	}
	if (here < need)
		return false;
	if (need == n && s->j->earliest[i] > s->now) {
		if (s->j->earliest[i] < *next)
			*next = s->j->earliest[i];
		return false;
	}
	return true;
}

static uint32_t slow_priority(const struct slow *s, uint32_t i)
{
	return s->j->priority ? s->j->priority[i] : 0;
}

/* A part at a time while something more urgent waits that needs other resources as well. */
static uint32_t slow_stop(const struct slow *s, uint32_t i)
{
	uint32_t parts = s->j->parts ? s->j->parts[i] : 1;

	for (uint32_t u = s->j->use_off[i]; u < s->j->use_off[i + 1]; u++) {
		bool joint = false;

		for (uint32_t o = 0; o < TASKS; o++)
			joint |= is_on(s, o, s->j->use[u]) &&
				 s->j->use_off[o + 1] - s->j->use_off[o] > 1;
		for (uint32_t o = 0; parts > 1 && joint && o < TASKS; o++)
			if (s->state[o] == WAITING && is_on(s, o, s->j->use[u]) &&
			    slow_priority(s, o) < slow_priority(s, i))
				return s->from[i] + 1;
	}
	return parts;
}

static void slow_begin(struct slow *s, uint32_t i)
{
	s->state[i] = RUNNING;
	if (!s->from[i])
		s->start[i] = s->now + (s->j->hold && uses_any(s, i) ? s->j->hold[i] : 0);
	s->piece_start[i] = s->now;
	s->stop[i] = slow_stop(s, i);
	s->done[i] = (double)slow_part(s, i, s->from[i]);
}

static void slow_request(struct slow *s, uint32_t i)
{
	uint32_t res;

	s->ready[i] = s->now;
	if (!uses_any(s, i)) {
		slow_begin(s, i);
		return;
	}
	res = s->j->use[s->j->use_off[i]];
	if (s->j->res[res].discipline == PL_EVENTS_SHARED) {
		slow_begin(s, i);
		return;
	}
	s->state[i] = WAITING;
	s->order[i] = s->n_order++;
	for (uint32_t o = 0; s->j->parts && o < TASKS; o++)
		for (uint32_t u = s->j->use_off[i]; u < s->j->use_off[i + 1]; u++) {
			if (s->j->res[s->j->use[u]].discipline == PL_EVENTS_SHARED ||
			    s->state[o] != RUNNING || !is_on(s, o, s->j->use[u]) ||
			    slow_priority(s, o) <= slow_priority(s, i))
				continue;
			while (s->stop[o] > s->from[o] + 1 &&
			       (double)slow_part(s, o, s->stop[o] - 1) >= s->done[o] - 1e-6)
				s->stop[o]--;
		}
}

static void slow_finish(struct slow *s, uint32_t i)
{
	uint32_t parts = s->j->parts && uses_any(s, i) ? s->j->parts[i] : 1;

	if (parts > 1)
		s->piece[s->n_pieces++] = (struct pl_sim_events_piece){ i, s->from[i], s->stop[i],
									s->piece_start[i], s->now };
	s->from[i] = s->stop[i];
	s->end[i] = s->now;
	s->state[i] = s->stop[i] < parts ? WAITING : ENDED;
	if (s->state[i] == WAITING)
		s->order[i] = s->n_order++;
}

static bool slow_can_start(const struct slow *s, uint32_t i)
{
	for (uint32_t u = s->j->use_off[i]; u < s->j->use_off[i + 1]; u++)
		if (running_on(s, s->j->use[u]) >= capacity(s, s->j->use[u]))
			return false;
	return true;
}

static bool slow_before(const struct slow *s, uint32_t a, uint32_t b)
{
	if (slow_priority(s, a) != slow_priority(s, b))
		return slow_priority(s, a) < slow_priority(s, b);
	return s->ready[a] != s->ready[b] ? s->ready[a] < s->ready[b] : a < b;
}

static bool slow_decide_policy(struct slow *s, uint32_t res)
{
	uint32_t v[TASKS], n = 0;

	for (uint32_t i = 0; i < TASKS; i++) {
		uint32_t k = n;

		if (s->state[i] != WAITING || !is_on(s, i, res))
			continue;
		for (n++; k && s->order[v[k - 1]] > s->order[i]; k--)
			v[k] = v[k - 1];
		v[k] = i;
	}
	if (!n || running_on(s, res) >= capacity(s, res))
		return false;
	slow_begin(s, v[s->j->res[res].choose(s->j->res[res].arg, v, n, s->now)]);
	return true;
}

/* Does the resource just queue? It serves who comes at once, and does not wait for others that come
 * at the same time. */
static bool just_queues(const struct slow *s, uint32_t res)
{
	if (s->j->priority || s->j->parts || s->j->res[res].domain != PL_NONE ||
	    s->j->res[res].discipline != PL_EVENTS_QUEUE)
		return false;
	for (uint32_t i = 0; i < TASKS; i++)
		if (is_on(s, i, res) && s->j->use_off[i + 1] - s->j->use_off[i] > 1)
			return false;
	return true;
}

static void slow_serve_queues(struct slow *s)
{
	for (uint32_t r = 0; r < MAX_RES; r++) {
		while (just_queues(s, r) && running_on(s, r) < capacity(s, r)) {
			uint32_t first = PL_NONE;

			for (uint32_t i = 0; i < TASKS; i++)
				if (s->state[i] == WAITING && is_on(s, i, r) &&
				    (first == PL_NONE || s->order[i] < s->order[first]))
					first = i;
			if (first == PL_NONE)
				break;
			slow_begin(s, first);
		}
	}
}

static bool slow_decide(struct slow *s)
{
	uint32_t best = PL_NONE;

	for (uint32_t r = 0; r < MAX_RES; r++)
		if (s->j->res[r].discipline == PL_EVENTS_POLICY && slow_decide_policy(s, r))
			return true;
	for (uint32_t i = 0; i < TASKS; i++) {
		if (s->state[i] != WAITING || !slow_can_start(s, i) ||
		    s->j->res[s->j->use[s->j->use_off[i]]].discipline == PL_EVENTS_POLICY)
			continue;
		if (best == PL_NONE || slow_before(s, i, best))
			best = i;
	}
	if (best == PL_NONE)
		return false;
	slow_begin(s, best);
	return true;
}

/* All ends of now, then all requests, each by number, then what resources serve of those that wait
 * by then; something happened? */
static bool slow_instant(struct slow *s)
{
	pl_ns ignore = NEVER;
	bool served = false;

	for (uint32_t i = 0; i < TASKS; i++)
		if (s->state[i] == RUNNING && slow_end(s, i) <= s->now) {
			slow_finish(s, i);
			slow_serve_queues(s);
			return true;
		}
	for (uint32_t i = 0; i < TASKS; i++)
		if (s->state[i] == UNBORN && slow_ready(s, i, &ignore)) {
			slow_request(s, i);
			slow_serve_queues(s);
			return true;
		}
	while (slow_decide(s))
		served = true;
	return served;
}

static void slow_run(struct slow *s, const struct pl_sim_events_job *j)
{
	memset(s, 0, sizeof(*s));
	s->j = j;
	for (;;) {
		pl_ns next = NEVER;

		while (slow_instant(s))
			;
		for (uint32_t i = 0; i < TASKS; i++) {
			if (s->state[i] == RUNNING && slow_end(s, i) < next)
				next = slow_end(s, i);
			if (s->state[i] == UNBORN)
				slow_ready(s, i, &next);
		}
		if (next == NEVER)
			return;
		for (uint32_t i = 0; i < TASKS; i++)
			if (s->state[i] == RUNNING && uses_any(s, i))
				s->done[i] += slow_speed(s, i) * (double)(next - s->now);
		s->now = next;
	}
}

static bool same_pieces(const struct slow *s, const struct pl_sim_events_times *t)
{
	if (s->n_pieces != t->n_pieces)
		return false;
	for (uint32_t i = 0; i < s->n_pieces; i++) { /* those of one instant in any order */
		bool found = false;

		for (uint32_t k = 0; k < t->n_pieces && !found; k++)
			found = s->piece[i].task == t->piece[k].task &&
				s->piece[i].from == t->piece[k].from &&
				s->piece[i].to == t->piece[k].to &&
				s->piece[i].start == t->piece[k].start &&
				s->piece[i].end == t->piece[k].end;
		if (!found)
			return false;
	}
	return true;
}

static void test_random(const char *name, unsigned what, uint64_t seed, int rounds)
{
	static struct random_job j;
	static struct slow s;
	int same = 0, again = 0, exact = 0, interrupted = 0;

	for (int round = 0; round < rounds; round++) {
		pl_ns start[TASKS], end[TASKS], first[TASKS];
		struct pl_sim_events_times t = { .start = start, .end = end };
		struct pl_err err = { 0 };
		struct pl_sim_events *ev;
		bool equal = true;

		random_job(&j, &seed, what);
		ev = pl_sim_events_new(&j.job, &err);
		if (!ev || pl_sim_events_run(ev, NULL, &t, &err) < 0) {
			printf("# %s, round %d: %s\n", name, round, err.msg);
			pl_sim_events_free(ev);
			continue;
		}
		slow_run(&s, &j.job);
		for (uint32_t i = 0; i < TASKS; i++) {
			if (start[i] != s.start[i] || end[i] != s.end[i]) {
				if (equal)
					printf("# %s, round %d: task %u at %lld..%lld, slow: "
					       "%lld..%lld\n",
					       name, round, i, (long long)start[i],
					       (long long)end[i], (long long)s.start[i],
					       (long long)s.end[i]);
				equal = false;
			}
			exact += end[i] - start[i] == j.dur[i];
		}
		same += equal && (!(what & PARTS) || same_pieces(&s, &t));
		for (size_t i = 0; i < t.n_pieces; i++)
			interrupted += t.piece[i].from > 0 && t.piece[i].to > 0;
		memcpy(first, start, sizeof(first));
		again += pl_sim_events_run(ev, NULL, &t, &err) == 0 &&
			 !memcmp(first, start, sizeof(first));
		pl_sim_events_free(ev);
		pl_free(t.piece);
	}
	ok(same == rounds, "%s: %d of %d random jobs as the slow core has them", name, same,
	   rounds);
	ok(again == rounds, "%s: a second run of a core is as the first", name);
	if (what & (SHARED | SLOW))
		ok(exact < rounds * TASKS, "%s: something was slowed down", name);
	if (what & PARTS)
		ok(interrupted > 0, "%s: something gave way", name);
}

/* ---- by hand --------------------------------------------------------------------------------- */

/* Tasks in a row on one resource, that start when they can. */
static struct pl_sim_events_job row(struct pl_sim_events_resource *res, const uint32_t *none,
				    const uint32_t *use_off, const uint32_t *use, const pl_ns *dur,
				    uint32_t n)
{
	return (struct pl_sim_events_job){ .n = n,
					   .off = none,
					   .src = none,
					   .dur = dur,
					   .res = res,
					   .n_res = 1,
					   .use_off = use_off,
					   .use = use };
}

static uint32_t nobody(void *arg, const uint32_t *waiting, uint32_t n, pl_ns now)
{
	(void)arg, (void)waiting, (void)n, (void)now;
	return PL_NONE;
}

static void test_hand(void)
{
	static const uint32_t none[4], use_off[4] = { 0, 1, 2, 3 }, use[3], parts[3] = { 4, 1, 1 };
	static const uint32_t priority[3] = { 2, 1, 1 }, back[3] = { 0, 1, 2 }, other[2] = { 1, 0 };
	static const pl_ns dur[3] = { 80, 30, 5 }, earliest[3] = { 0, 30, 31 };
	struct pl_sim_events_resource res = { .capacity = 1, .domain = PL_NONE };
	struct pl_sim_events_job j = row(&res, none, use_off, use, dur, 3);
	pl_ns start[3], end[3], free[1] = { 1000 };
	struct pl_sim_events_times t = { .start = start, .end = end };
	struct pl_err err = { 0 };
	struct pl_sim_events *ev = pl_sim_events_new(&j, &err);

	ok(ev && pl_sim_events_run(ev, free, &t, &err) == 0 && start[0] == 1000 && free[0] == 1115,
	   "a resource that is busy from before the run is waited for, and says when it is free");
	pl_sim_events_free(ev);

	j.priority = priority;
	free[0] = 1000;
	ev = pl_sim_events_new(&j, &err);
	ok(ev && pl_sim_events_run(ev, free, &t, &err) == 0 && start[1] == 1000 &&
		   start[2] == 1030 && start[0] == 1035 && free[0] == 1115,
	   "so it is where it serves by priority");
	pl_sim_events_free(ev);

	j.parts = parts;
	j.earliest = earliest;
	ev = pl_sim_events_new(&j, &err);
	ok(ev && pl_sim_events_run(ev, NULL, &t, &err) == 0 && start[0] == 0 && start[1] == 40 &&
		   start[2] == 70 && end[0] == 115 && t.n_pieces == 2 && t.piece[0].to == 2 &&
		   t.piece[1].start == 75,
	   "a transfer in four parts gives way behind the part that it is in, and goes on later");
	pl_sim_events_free(ev);

	j.priority = j.parts = NULL;
	res.discipline = PL_EVENTS_SHARED;
	ev = pl_sim_events_new(&j, &err);
	ok(ev && pl_sim_events_run(ev, NULL, &t, &err) == 0 && end[2] == 46 && end[1] == 95 &&
		   end[0] == 115,
	   "what shares a bandwidth takes as much longer as there are others");
	pl_sim_events_free(ev);

	res.discipline = PL_EVENTS_POLICY;
	ok(!pl_sim_events_new(&j, &err) && err.code == PL_EUSAGE, "a policy that is not there: %s",
	   err.msg);
	res.choose = nobody;
	err = (struct pl_err){ 0 };
	ev = pl_sim_events_new(&j, &err);
	ok(ev && pl_sim_events_run(ev, NULL, &t, &err) == PL_EDATA &&
		   strstr(err.msg, "3 of 3 tasks"),
	   "a policy that serves nobody: %s", err.msg);
	pl_sim_events_free(ev);

	res.discipline = PL_EVENTS_QUEUE;
	j.n = 2;
	j.off = back;
	j.src = other;
	err = (struct pl_err){ 0 };
	ev = pl_sim_events_new(&j, &err);
	ok(ev && pl_sim_events_run(ev, NULL, &t, &err) == PL_EDATA, "a cycle: %s", err.msg);
	pl_sim_events_free(ev);

	j = row(&res, none, use_off, use, dur, 3);
	j.k = parts;
	err = (struct pl_err){ 0 };
	ok(!pl_sim_events_new(&j, &err) && err.code == PL_EUSAGE, "a rendezvous on a resource: %s",
	   err.msg);
	res.domain = 0;
	j.k = NULL;
	j.hold = dur;
	err = (struct pl_err){ 0 };
	ok(!pl_sim_events_new(&j, &err) && err.code == PL_EUSAGE, "held, and slowed down: %s",
	   err.msg);
	pl_free(t.piece);
}

int main(void)
{
	test_hand();
	test_random("queues", 0, 1, 400);
	test_random("held", HOLD, 2, 400);
	test_random("priorities", PRIORITY, 3, 400);
	test_random("policies", POLICY, 4, 400);
	test_random("tasks on two resources", JOINT | PRIORITY, 5, 400);
	test_random("interrupted", PRIORITY | PARTS, 6, 400);
	test_random("interrupted, two resources", PRIORITY | PARTS | JOINT, 7, 400);
	test_random("shared", SHARED, 8, 400);
	test_random("slowed down", SLOW, 9, 400);
	test_random("all", PRIORITY | PARTS | SHARED | SLOW | POLICY | JOINT, 10, 2000);
	return done_testing();
}
