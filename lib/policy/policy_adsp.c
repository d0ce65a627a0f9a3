/*
 * adsp, adsp++: adaptive synchronous parallel (Hu, Wang, Wu, AAAI 2020, arXiv 1911.06949). Nobody
 * waits: a commit is applied at once, divided by the number of workers, and all workers make the
 * same number of commits in a period. A fast worker packs more local steps into each.
 *
 * At the end of each check period the cumulative target C grows by the commit rate, and worker i
 * gets the order to make C - c_i commits in the coming period of length P, at the times
 *
 *     begin + (j + 1/2) P / (C - c_i),  j = 0, 1 ...
 *
 * so that at checkpoints each has made them, with room for a step that ends late. A worker that is
 * before the target (C <= c_i) owes nothing in this period. A worker that joins gets C as its
 * count. One that owes more than two periods is forgiven all but one: else it would flood the
 * server later.
 *
 * What the paper leaves open:
 *
 *  - Periods begin when each worker has committed once, so that all speeds are known. A period has
 *    PL_POLICY_PERIOD steps of the slowest worker, and follows it, at most twofold at a time.
 *  - The rate is limited so that a worker spends at most COST of its time on commits, and has time
 * for two steps between two of them. Where commits overlap with steps, a commit takes little of its
 * time, but there is none before the reply to the last one. If even one commit a period costs more,
 * the default period grows.
 *  - The search begins at this limit, and not at one commit a period:
 * tests/unit/policy_learn_test.c measures that fewer commits train slower where they cost little,
 * and never much faster.
 *  - If a worker cannot make its commits in time, the others do not run away from it. When a commit
 *    shows that, C falls for the rest of the period; in the next one it grows by what this worker
 *    can make. It grows by at least one in each period.
 *
 * The search of the rate is in adsp_search.c; adsp:N makes N commits a period, without a search and
 * without the limits. adsp++ applies commits through a momentum m that it
 * searches, too: V = m V + U / M, W = W + V. O(1) for a commit, O(workers) for a period.
 */
#include "policy/internal.h"

#define COST	    0.04
#define RISE	    1.3 /* of the mean loss from period to period, which forces a search */
#define FOLLOW	    1.25
#define LATEST_COST 0.25 /* weight of the last commit in the mean cost of a worker's commits */

struct adsp_worker {
	uint64_t count;	      /* c_i */
	uint64_t quota, made; /* commits of this period: due, and made */
	double cost;	      /* ns of a commit, about; 0: not known yet */
	double reply;	      /* ns until its reply, with steps meanwhile; 0: there are none */
	bool late;	      /* it cannot make its commits in time, as a note said */
};

static struct adsp_worker *worker_of(const struct pl_policy *p, uint32_t worker)
{
	return pl_policy_state_of(p, worker);
}

/* Commits a period that the user asked for; 0: the search decides. */
static uint64_t fixed_rate(const struct pl_policy *p)
{
	return isnan(p->o.argument) || p->o.kind != &pl_policy_adsp ? 0 : (uint64_t)p->o.argument;
}

static uint64_t rate_of(const struct pl_policy_adsp *a)
{
	return pl_policy_search_setting(a)->at[PL_POLICY_RATE];
}

static void begin(struct pl_policy *p)
{
	struct pl_policy_adsp *a = p->state;

	a->base.at[PL_POLICY_FACTOR] = PL_LEN(pl_policy_factors) - 1;
	a->period = p->o.period;
}

static bool valid(const struct pl_policy *p)
{
	const struct pl_policy_adsp *a = p->state;

	return a->period >= 0 && a->base.at[PL_POLICY_RATE] < (uint64_t)1 << 40 &&
	       a->base.at[PL_POLICY_MOMENTUM] < PL_LEN(pl_policy_momenta) &&
	       a->base.at[PL_POLICY_FACTOR] < PL_LEN(pl_policy_factors);
}

/* ---- limits ---------------------------------------------------------------------------------- */

/* Of present workers: the longest step, the most costly commit, and the longest time until a reply,
 * with a step, because a worker looks for it between two. */
static void find_slowest(const struct pl_policy *p, double *step, double *cost, double *reply)
{
	*step = *cost = *reply = 0;
	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present) {
			*step = fmax(*step, (double)p->w[i].step_ns);
			*cost = fmax(*cost, worker_of(p, i)->cost);
			if (worker_of(p, i)->reply > 0)
				*reply = fmax(*reply,
					      worker_of(p, i)->reply + (double)p->w[i].step_ns);
		}
}

/* The least time from a commit of a worker to its next one. */
static double least_time(const struct pl_policy *p, uint32_t worker)
{
	const struct adsp_worker *w = worker_of(p, worker);

	return fmax((double)p->w[worker].step_ns + w->cost, w->reply);
}

/* Commits that a worker can make in a period, a step before each. */
static double can_make(const struct pl_policy *p, uint32_t worker)
{
	const struct pl_policy_adsp *a = p->state;
	double each = least_time(p, worker);

	return each > 0 ? floor((double)a->period / each) : INFINITY;
}

/* The greatest rate within the limits. */
static uint64_t most_commits(const struct pl_policy *p)
{
	const struct pl_policy_adsp *a = p->state;
	double step, cost, reply, most;

	if (fixed_rate(p))
		return fixed_rate(p);
	find_slowest(p, &step, &cost, &reply);
	most = (double)a->period / fmax(fmax(2 * step + cost, reply), cost / COST);
	return most >= 2 ? (uint64_t)fmin(most, 0x1p30) : 1;
}

static double default_period(const struct pl_policy *p)
{
	double step, cost, reply;

	find_slowest(p, &step, &cost, &reply);
	return fmin(fmax(fmax(PL_POLICY_PERIOD * step, reply), cost / COST), 0x1p60);
}

/* The default period follows the workers. */
static void follow(struct pl_policy *p)
{
	struct pl_policy_adsp *a = p->state;
	double want = default_period(p), now = (double)a->period;

	if (p->o.period || (want < now * FOLLOW && want > now / FOLLOW))
		return;
	a->period = (pl_ns)fmax(1, fmin(fmax(want, now / 2), now * 2));
	pl_policy_note(p, PL_NONE, "%s: the check period is %.4g s in place of %.4g s",
		       p->o.kind->name, (double)a->period * 1e-9, now * 1e-9);
}

/* ---- periods --------------------------------------------------------------------------------- */

/* By how much C grows: by the rate, or by what the worker that is behind can make. */
static uint64_t growth(const struct pl_policy *p)
{
	const struct pl_policy_adsp *a = p->state;
	double most = (double)rate_of(a);

	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present) {
			double owes = (double)(int64_t)(a->target - worker_of(p, i)->count);

			most = fmin(most, can_make(p, i) - owes);
		}
	return most >= 1 ? (uint64_t)most : 1;
}

/* Say once if a worker cannot make its commits in time, and once if it can again. */
static void note_late(struct pl_policy *p, uint32_t i)
{
	const struct pl_policy_adsp *a = p->state;
	struct adsp_worker *w = worker_of(p, i);
	double each = least_time(p, i);
	double interval = (double)a->period / fmax(1, (double)w->quota);

	if ((each > interval) == w->late)
		return;
	w->late = !w->late;
	pl_policy_note(
		p, i,
		"%s: worker %u: a step and a commit take %.4g s, %s than the interval of its "
		"commits, %.4g s",
		p->o.kind->name, i, each * 1e-9, w->late ? "longer" : "no longer", interval * 1e-9);
}

/* What worker i has to do in the period that begins. */
static void begin_worker(struct pl_policy *p, uint32_t i)
{
	const struct pl_policy_adsp *a = p->state;
	struct adsp_worker *w = worker_of(p, i);

	if (a->target > w->count && a->target - w->count > 2 * rate_of(a))
		w->count = a->target - rate_of(a);
	w->quota = a->target > w->count ? a->target - w->count : 0;
	w->made = 0;
	note_late(p, i);
	pl_policy_send_order(p, i);
}

static void begin_period(struct pl_policy *p, pl_ns at)
{
	struct pl_policy_adsp *a = p->state;

	a->begun = at;
	a->grown = growth(p);
	a->target += a->grown;
	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present)
			begin_worker(p, i);
	pl_policy_wake(p, pl_add_sat(at, a->period));
}

/* Periods begin if all speeds are known. */
static void start(struct pl_policy *p)
{
	struct pl_policy_adsp *a = p->state;
	uint64_t most;

	if (a->running || !p->present)
		return;
	for (uint32_t i = 0; i < p->o.workers; i++)
		if (p->w[i].present && !p->w[i].step_ns)
			return;
	if (p->o.period)
		a->period = p->o.period; /* which may be another one after a restart */
	else if (!a->period)
		a->period = (pl_ns)fmax(1, default_period(p));
	for (uint32_t i = 0; i < p->o.workers; i++)
		worker_of(p, i)->count = a->target;
	most = most_commits(p);
	if (!a->base.at[PL_POLICY_RATE]) {
		a->base.at[PL_POLICY_RATE] = most;
		pl_policy_note(p, PL_NONE, "%s: %llu commits in each check period of %.4g s",
			       p->o.kind->name, (unsigned long long)most, (double)a->period * 1e-9);
	} else if (a->base.at[PL_POLICY_RATE] > most) {
		a->base.at[PL_POLICY_RATE] = most;
	}
	a->running = true;
	a->losses = a->losses_before = (struct pl_policy_probe){ 0 };
	pl_policy_search_start(p, a);
	begin_period(p, p->now);
}

/* Has the mean loss risen from the last period to this one, by more than noise? */
static bool rises(const struct pl_policy_adsp *a)
{
	const struct pl_policy_probe *now = &a->losses, *last = &a->losses_before;
	double error = hypot(pl_policy_probe_error(now), pl_policy_probe_error(last));

	return now->loss > RISE * last->loss && now->loss - last->loss > 3 * error;
}

static void timer(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct pl_policy_adsp *a = p->state;
	pl_ns end;

	if (!a->running)
		return;
	end = pl_add_sat(a->begun, a->period);
	if (e->now < end) {
		pl_policy_wake(p, end);
		return;
	}
	if (a->search.phase == PL_POLICY_IDLE && !fixed_rate(p) && rises(a)) {
		pl_policy_note(p, PL_NONE, "%s: the loss rises from %.4g to %.4g: a search begins",
			       p->o.kind->name, a->losses_before.loss, a->losses.loss);
		a->search.forced = true;
	}
	a->losses_before = a->losses;
	a->losses = (struct pl_policy_probe){ 0 };
	/* a late timer moves the next periods only if it is very late */
	if (e->now - end > a->period / 2)
		end = e->now;
	follow(p);
	if (!fixed_rate(p))
		pl_policy_search_check(p, a, most_commits(p));
	begin_period(p, end);
}

/* After a commit: if the worker cannot make the others in this period, all make fewer. */
static void lower_target(struct pl_policy *p, uint32_t worker)
{
	struct pl_policy_adsp *a = p->state;
	struct adsp_worker *w = worker_of(p, worker);
	double left = (double)(pl_add_sat(a->begun, a->period) - p->now);
	double can = floor(left / least_time(p, worker));
	uint64_t less;

	if (w->made >= w->quota || can >= (double)(w->quota - w->made))
		return;
	note_late(p, worker);
	less = w->quota - w->made - (can > 0 ? (uint64_t)can : 0);
	less = less < a->grown ? less : a->grown - 1;
	if (!less)
		return;
	a->target -= less;
	a->grown -= less;
	for (uint32_t i = 0; i < p->o.workers; i++) {
		w = worker_of(p, i);
		w->quota = w->quota > less + w->made ? w->quota - less : w->made;
		pl_policy_send_order(p, i);
	}
}

/* ---- workers --------------------------------------------------------------------------------- */

static void order(const struct pl_policy *p, uint32_t worker, struct pl_policy_order *o)
{
	const struct pl_policy_adsp *a = p->state;
	const struct adsp_worker *w = worker_of(p, worker);
	double step = (double)p->w[worker].step_ns, each, first;

	o->rate = pl_policy_factors[pl_policy_search_setting(a)->at[PL_POLICY_FACTOR]];
	if (step <= 0)
		return; /* one step, from which its speed is known */
	o->steps = 0;
	if (!a->running) {
		/* Train on until the others' speeds are known; the order of the first period comes.
		 */
		o->every = p->o.period ? p->o.period : (pl_ns)fmin(PL_POLICY_PERIOD * step, 0x1p60);
		o->first = pl_add_sat(p->now, o->every);
		return;
	}
	if (w->made < w->quota) {
		each = (double)a->period / (double)w->quota;
		first = ((double)w->made + 0.5) * each;
	} else { /* in the next period, unless its order says something else */
		each = (double)a->period / (double)rate_of(a);
		first = (double)a->period + 0.5 * each;
	}
	o->first = pl_add_sat(a->begun, (pl_ns)first);
	o->every = (pl_ns)fmax(1, each);
}

static void joined(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct pl_policy_adsp *a = p->state;

	*worker_of(p, e->worker) = (struct adsp_worker){
		.count = a->target,
		.cost = (double)p->w[e->worker].commit_ns,
	};
	pl_policy_search_again(p, a);
	start(p);
	pl_policy_reply(p, e->worker);
}

static void left(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct pl_policy_adsp *a = p->state;

	(void)e;
	pl_policy_search_again(p, a);
	if (!p->present)
		a->running = false; /* as after a restart */
	start(p);
}

static void apply(struct pl_policy *p, const struct pl_policy_event *e)
{
	const struct pl_policy_setting *s = pl_policy_search_setting(p->state);

	if (p->o.kind == &pl_policy_adsp_plus)
		pl_policy_update(p, e->worker,
				 &(struct pl_policy_update){
					 .v_v = pl_policy_momenta[s->at[PL_POLICY_MOMENTUM]],
					 .v_u = 1.0 / p->present,
					 .w_v = 1,
				 });
	else
		pl_policy_apply_at_once(p, e);
}

static void committed(struct pl_policy *p, const struct pl_policy_event *e)
{
	struct pl_policy_adsp *a = p->state;
	struct adsp_worker *w = worker_of(p, e->worker);
	double half = (double)e->step_ns * (double)e->steps / 2;
	double middle = (double)e->now - half; /* of the steps to which the loss belongs */

	apply(p, e);
	w->count++;
	w->made++;
	if (e->commit_ns > 0)
		w->cost += ((double)e->commit_ns - w->cost) * (w->cost > 0 ? LATEST_COST : 1);
	if (e->reply_ns > 0)
		w->reply += ((double)e->reply_ns - w->reply) * (w->reply > 0 ? LATEST_COST : 1);
	if (a->running) {
		pl_policy_probe_add(&a->losses, middle * 1e-9, e->loss, (double)e->steps);
		if (middle >= (double)a->search.since)
			pl_policy_probe_add(&a->search.probe, middle * 1e-9, e->loss,
					    (double)e->steps);
	}
	if (a->running)
		lower_target(p, e->worker);
	start(p);
	pl_policy_reply(p, e->worker);
}

#define ADSP                                                                                       \
	.overlaps = true, .state = sizeof(struct pl_policy_adsp),                                  \
	.of_worker = sizeof(struct adsp_worker), .kept = 5, .begin = begin, .joined = joined,      \
	.left = left, .committed = committed, .timer = timer, .order = order, .valid = valid

const struct pl_policy_kind pl_policy_adsp = {
	.name = "adsp",
	.help = "nobody waits; all commit equally often, N times a period or as a search finds",
	.argument = "N",
	.least = 1,
	.most = 1e9,
	.usual = (double)NAN,
	ADSP,
};

const struct pl_policy_kind pl_policy_adsp_plus = {
	.name = "adsp++",
	.help = "adsp, which also searches momentum and the learning rate",
	ADSP,
};
