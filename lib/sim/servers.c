/* From a job to the simulation of its policy: O(commits x log workers). */
#include <math.h>

#include "sim/servers.h"
#include "tensor/net.h"

#define MOVES                                                                                      \
	6 /* times that a number is read or written for a commit: U, W twice, the copy, two        \
	     sockets */
#define SUM_MOVES 3 /* the same of an all-reduce */
#define OWN_MOVES 8 /* of a worker that goes on: W and U of the commit, W of the reply */

struct ending {
	struct pl_sim_servers *s;
	int64_t steps;
};

/* Alone. */
static pl_ns step_of_rank(const struct pl_sim_servers_opts *o, uint32_t rank, struct pl_err *err)
{
	double step = (double)o->step_ns, least = 0;

	for (size_t i = 0; i < o->job->n_paces; i++) {
		const struct pl_job_pace *p = &o->job->pace[i];

		if (p->rank != -1 && p->rank != (int64_t)rank)
			continue;
		step = step > 0 ? step * fmax(1, p->factor) + p->ms * 1e6 : 0;
		least = p->speed > 0 ? fmax(least, 1e9 / p->speed) : least;
	}
	if (step > 0 || least > 0)
		return (pl_ns)fmax(1, fmax(step, least));
	return pl_fail(
		err, PL_EDATA,
		"nobody knows how long a step of rank %u takes; write: pace %u speed=STEPS (a "
		"second) into the job, or give it (replay --step TIME, plan --speeds LIST)",
		rank, rank);
}

/* Between two ranks of a group only links count that name both. */
static double link_in_group(const struct pl_job *j, int64_t from, int64_t to, double n)
{
	double ns = 0;

	for (size_t i = 0; i < j->n_links; i++) {
		const struct pl_job_link *l = &j->link[i];

		if (l->from == from && l->to == to)
			ns = (double)l->latency_ns +
			     (l->bytes_per_ns > 0 ? 4 * n / l->bytes_per_ns : 0);
	}
	return ns;
}

/* A ring of the ranks: 2(g-1) rounds, each with a g-th of the numbers on the slowest link. */
static double sum_in_group(const struct pl_sim_servers_opts *o, int64_t first, int64_t end)
{
	int64_t size = end - first;
	double part = (double)o->n / (double)size, memory = 4 * part * SUM_MOVES, round = 0;

	for (int64_t i = 0; i < size; i++)
		round = fmax(round, link_in_group(o->job, first + i, first + (i + 1) % size, part));
	round = PL_SIM_MESSAGE_NS + fmax(round, memory / PL_SIM_BYTES_PER_NS);
	return 2 * (double)(size - 1) * round;
}

/* Of a worker, which has the ranks from first[0] to before first[1]: of the slowest one, and the
 * sum. */
static pl_ns step_of(const struct pl_sim_servers_opts *o, const uint32_t *first, struct pl_err *err)
{
	pl_ns slowest = 0;

	for (uint32_t i = first[0]; i < first[1]; i++) {
		pl_ns step = step_of_rank(o, i, err);

		PL_CHECK((int)pl_min_i64(step, 0));
		slowest = pl_max_i64(slowest, step);
	}
	return slowest + (pl_ns)sum_in_group(o, first[0], first[1]);
}

/* Of several links for a pair the last counts. NULL: there is none. */
static const struct pl_job_link *link_of(const struct pl_job *j, int64_t from, int64_t to)
{
	for (size_t i = j->n_links; i > 0; i--) {
		const struct pl_job_link *l = &j->link[i - 1];

		if ((l->from < 0 || l->from == from) && (l->to < 0 || l->to == to))
			return l;
	}
	return NULL;
}

double pl_sim_servers_link(const struct pl_job *j, int64_t from, int64_t to, double n,
			   int64_t servers)
{
	const struct pl_job_link *l = link_of(j, from, to);
	double ns = l ? (double)l->latency_ns : 0;

	if (l && l->bytes_per_ns > 0)
		ns += 4 * (l->shared ? n : n / (double)servers) / l->bytes_per_ns;
	return ns;
}

static int policy_of(const struct pl_job *j, struct pl_policy_opts *o, struct pl_err *err)
{
	*o = (struct pl_policy_opts){ .workers = (uint32_t)pl_job_workers(j),
				      .min_workers = (uint32_t)j->min_workers,
				      /* the mean of all */
				      .batch = j->batch * j->ranks / pl_job_workers(j),
				      .rank_batch = j->batch,
				      .period = j->period,
				      .epoch = j->epoch,
				      .seed = (uint64_t)j->seed };
	PL_CHECK(pl_policy_parse(j->policy, o, err));
	o->argument = pl_job_policy_argument(j);
	return 0;
}

/* Counts what workers commit. */
static int on_event(void *arg, struct pl_policy_event *e, struct pl_err *err)
{
	struct ending *g = arg;
	struct pl_sim_servers *s = g->s;

	(void)err;
	s->end_ns = e->now;
	if (e->kind != PL_POLICY_COMMITTED)
		return 0;
	e->loss = 1; /* a policy that compares losses does so, and finds no difference */
	s->steps += e->steps;
	s->samples += e->samples;
	s->commits++;
	return 0;
}

/* PL_ENO ends the simulation when the last step is in the weights. */
static int on_action(void *arg, const struct pl_policy *p, const struct pl_policy_action *a,
		     pl_ns now, struct pl_err *err)
{
	const struct ending *g = arg;

	(void)now;
	if (a->kind == PL_POLICY_UPDATE && g->steps && g->s->steps >= (uint64_t)g->steps &&
	    !pl_policy_collects(p))
		return pl_fail(err, PL_ENO, "the last step");
	return 0;
}

int pl_sim_servers_times(const struct pl_sim_servers_opts *o, struct pl_sim_times *t,
			 struct pl_err *err)
{
	uint32_t n = (uint32_t)pl_job_workers(o->job), *first;
	double speed = 0;
	pl_ns step = 0;

	*t = (struct pl_sim_times){ .slowest = 1 };
	PL_CHECK(pl_job_workers_find(o->job, &first, err));
	for (uint32_t i = 0; i < n && step >= 0; i++) {
		step = step_of(o, first + i, err);
		t->slowest = pl_max_i64(t->slowest, step);
		t->mean += (double)step / n;
		speed += 1 / (double)step / n;
	}
	t->heterogeneity = speed * (double)t->slowest;
	pl_free(first);
	return (int)pl_min_i64(step, 0);
}

/* How long the server's link sends n numbers to a worker, in ns, if all workers share that link; 0:
 * they do not. */
static pl_ns shared_part(const struct pl_job *j, int64_t worker, double n)
{
	const struct pl_job_link *l = link_of(j, -1, worker);

	return l && l->shared && l->bytes_per_ns > 0 ? (pl_ns)(4 * n / l->bytes_per_ns) : 0;
}

/* The times and batches of all workers. */
static int describe(const struct pl_sim_servers_opts *o, struct pl_policy_sim_worker *w,
		    struct pl_err *err)
{
	const struct pl_job *j = o->job;
	double between, back, n = (double)o->n;
	uint32_t *first;

	PL_CHECK(pl_job_workers_find(j, &first, err));
	/* the others tell the first server of each slice, and it tells them what to do */
	between = j->servers > 1 ? pl_sim_servers_link(j, -1, -1, 0, 1) : 0;
	for (uint32_t i = 0; i < (uint32_t)pl_job_workers(j); i++) {
		int64_t rank = first[i]; /* which leads the group */

		w[i].step_ns = step_of(o, first + i, err);
		w[i].batch = j->batch * (int64_t)(first[i + 1] - first[i]);
		/* servers are no ranks: only links of any rank lead to them */
		w[i].shared_ns = shared_part(j, rank, n / (double)j->servers);
		back = pl_sim_servers_link(j, -1, rank, n / (double)j->servers, 1);
		w[i].link_ns = PL_SIM_MESSAGE_NS +
			       (pl_ns)(between + (pl_sim_servers_link(j, rank, -1, n, j->servers) +
						  back - (double)w[i].shared_ns) /
							 2);
	}
	pl_free(first);
	return 0;
}

int pl_sim_servers(const struct pl_sim_servers_opts *o, struct pl_sim_servers *s,
		   struct pl_err *err)
{
	struct ending g = { .s = s, .steps = o->steps };
	struct pl_policy_sim_worker *w = NULL;
	struct pl_policy_opts policy;
	struct pl_policy_sim_opts sim = { .policy = &policy,
					  .until = o->until ? o->until : INT64_MAX / 2,
					  .service_ns = o->service_ns,
					  .overlap = o->job->overlap,
					  .event = on_event,
					  .act = on_action,
					  .arg = &g };
	struct pl_sim_times times;
	const struct pl_job *j = o->job;
	struct pl_err why = { 0 };
	double n = (double)o->n;
	int rc;

	*s = (struct pl_sim_servers){ .workers = (uint32_t)pl_job_workers(j) };
	if (strcmp(o->job->engine, "ps"))
		return pl_fail(err, PL_EDATA, "the job has no servers; write: engine ps");
	PL_TRY(pl_sim_servers_times(o, &times, err));
	PL_TRY(policy_of(o->job, &policy, err));
	policy.steps = (uint64_t)o->steps;
	PL_TRY(pl_alloc(&w, s->workers, sizeof(*w), err));
	PL_TRY(pl_alloc(&s->worker, s->workers, sizeof(*s->worker), err));
	PL_TRY(describe(o, w, err));
	if (o->service_ns < 0)
		sim.service_ns = PL_SIM_MESSAGE_NS +
				 (pl_ns)(4 * n * MOVES / PL_SIM_BYTES_PER_NS / (double)j->servers);
	sim.own_ns = PL_SIM_MESSAGE_NS + (pl_ns)(4 * n * OWN_MOVES / PL_SIM_BYTES_PER_NS);
	sim.worker = w;
	s->heterogeneity = times.heterogeneity;
	rc = pl_policy_simulate(&sim, s->worker, &why);
	if (rc == PL_ENO && o->steps)
		rc = 0;
	else if (rc < 0)
		rc = pl_fail(err, rc == PL_ESTOP ? PL_EIO : rc, "%s", why.msg);
	else
		s->end_ns = o->until;
out:
	pl_free(w);
	if (rc < 0)
		pl_sim_servers_fini(s);
	return rc;
}

int pl_sim_servers_numbers(const struct pl_job *j, const struct pl_model *m, size_t *n,
			   struct pl_err *err)
{
	struct pl_net *net = NULL;
	struct pl_net_view view;

	PL_CHECK(pl_net_outline(m->layer, m->n_layers, (int)j->batch, &net, err));
	view = pl_net_view(net);
	*n = view.n_params + view.n_state;
	pl_net_free(net);
	return 0;
}

void pl_sim_servers_fini(struct pl_sim_servers *s)
{
	pl_free(s->worker);
	s->worker = NULL;
}
