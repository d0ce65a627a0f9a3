/*
 * A worker, or the first rank of a group that is one (group.c): takes local steps, commits when its
 * order says so, and waits for the reply, or goes on with steps until it comes.
 *
 * It keeps the weights that it pulled last, so that a commit is a difference. If its connection
 * breaks, it greets the server again until the server is given up. A commit whose reply never came
 * is sent again if the server has not applied it. If the server's weights have changed meanwhile,
 * what the worker computed since its last commit is lost: it began from weights that are old by
 * now.
 */
#include <math.h>
#include <signal.h>

#include "ps/internal.h"
#include "ps/passes.h"

struct worker {
	struct pl_ps_session s; /* first */
	struct pl_ps *p;
	struct pl_train *t;
	pl_ns due;		 /* of the next commit; INT64_MAX: it goes by steps */
	struct pl_ps_commit now; /* what the next commit is of */
	double step_sum;
	uint64_t group_bytes; /* that ranks of the group had sent one another at the last commit */
	pl_ns last_commit_ns, last_reply_ns;
	/* Commits overlap with steps: the last one flies until its reply, and s.x has its weights.
	 */
	bool overlaps, flies;
	pl_ns sent;
	struct pl_ps_counts counts;
	uint64_t uncommitted, committed; /* steps since the last commit, and of it */
	/* Where the schedule is: the step of the job at the last order, and own steps since then.
	 */
	double job_step;
	uint64_t since;
};

/* An order may have come. */
static void obey(struct worker *k)
{
	uint64_t uncounted = k->uncommitted + (k->s.ordered < k->s.id ? k->committed : 0);

	if (k->s.has_order) {
		k->due = k->s.order.every > 0 ? k->s.order.first : INT64_MAX;
		k->job_step = k->s.job_step + (double)uncounted / k->p->workers;
		k->since = 0;
	}
	k->s.has_order = false;
}

static int take_weights(struct worker *k, struct pl_err *err)
{
	for (uint32_t i = 0; i < k->p->servers; i++)
		pl_ps_vector_put(&k->p->w.view, pl_ps_slice_at(k->p, i),
				 pl_ps_session_base(&k->s, i), pl_ps_slice_size(k->p, i));
	return pl_ps_group_give(k->p, true, err);
}

/* The reply to a commit that flew: the steps since then stay, on top of the new weights. */
static int rebase(struct worker *k, struct pl_err *err)
{
	const struct pl_net_view *net = &k->p->w.view;
	const float *cut = (const float *)(const void *)(k->s.x + PL_PS_HEAD);
	float *host = pl_ps_vector_in_host(net), *now = host;
	pl_ns begin = pl_now_ns();

	if (!host) {
		PL_CHECK(pl_ps_session_scratch(&k->s, &now, err));
		pl_ps_vector_read(net, now);
	}
	for (uint32_t i = 0; i < k->p->servers; i++) {
		size_t at = pl_ps_slice_at(k->p, i);

		pl_ps_pass_move(now + at, cut + at, pl_ps_session_base(&k->s, i),
				pl_ps_slice_size(k->p, i));
	}
	if (!host)
		pl_ps_vector_write(net, now);
	PL_CHECK(pl_ps_group_give(k->p, false, err));
	k->flies = false;
	k->last_reply_ns = begin - k->sent;
	k->last_commit_ns += pl_now_ns() - begin;
	k->counts.commit_ns += pl_now_ns() - begin;
	k->now.commit_ns = k->last_commit_ns;
	k->now.reply_ns = k->last_reply_ns;
	return 0;
}

/* Until the reply is there, or the connections are. */
static int wait_for_reply(struct worker *k, struct pl_err *err)
{
	do {
		int what = pl_ps_session_wait(&k->s, err);

		PL_CHECK(what);
		obey(k);
		if (what != PL_PS_REPLIED)
			return 0;
		k->counts.wait_ns += k->s.waited;
		if (k->flies)
			PL_CHECK(rebase(k, err));
		else if (!k->s.in_steps)
			PL_CHECK(take_weights(k, err));
	} while (!pl_ps_session_has_base(&k->s));
	return 0;
}

/* ---- steps and commits ----------------------------------------------------------------------- */

static void begin_commit(struct worker *k)
{
	memset(&k->now, 0, sizeof(k->now));
	/* while a commit flies, the weights are those of before, and that commit */
	k->now.base = k->s.version + k->flies;
	k->now.commit_ns = k->last_commit_ns;
	k->now.reply_ns = k->last_reply_ns;
	k->step_sum = 0;
	k->uncommitted = 0;
}

static void count_step(struct worker *k, pl_ns ns)
{
	k->step_sum += (double)ns;
	k->counts.compute_ns += ns;
}

/* What all ranks of the worker counted, into the commit. */
static int count(struct worker *k, struct pl_err *err)
{
	const struct pl_ps_turn turn = { .word = PL_PS_SUM };
	pl_ns begin = pl_now_ns();
	struct pl_ps_tally sum;

	PL_CHECK(pl_ps_group_say(k->p, &turn, err));
	PL_CHECK(pl_ps_group_sum(k->p, k->t, &sum, err));
	count_step(k, pl_now_ns() - begin); /* until the slowest rank had ended its step */
	k->now.loss = sum.loss / sum.samples;
	k->now.hits = (int64_t)(sum.hits + 0.5);
	k->now.classified = (int64_t)(sum.classified + 0.5);
	k->group_bytes = (uint64_t)sum.bytes;
	if (sum.asked > 0 && !*k->t->stop) /* another rank of the group: the job ends */
		*k->t->stop = SIGTERM;
	return 0;
}

static uint64_t bytes_sent(const struct worker *k)
{
	return pl_comm_endpoint_sent(k->p->end) + k->group_bytes;
}

static int commit(struct worker *k, struct pl_err *err)
{
	pl_ns begin, waited = k->counts.wait_ns;

	PL_CHECK(count(k, err));
	begin = pl_now_ns();
	/* the reply to the last commit came after all servers had read it */
	PL_CHECK(pl_ps_session_fill(&k->s, k->overlaps, err));
	if (!pl_ps_session_has_base(&k->s)) {
		PL_CHECK(wait_for_reply(k, err));
		begin_commit(k);
		return 0;
	}
	k->now.step_ns = (pl_ns)(k->step_sum / (double)k->now.steps);
	k->counts.bytes_sent = bytes_sent(k);
	k->now.counts = k->counts;
	memcpy(k->s.commit, &k->now, sizeof(k->now));
	if (k->s.order.every > 0) /* the next one may be due already */
		k->due += k->s.order.every;
	PL_CHECK(pl_ps_session_commit(&k->s, err));
	k->committed = k->uncommitted;
	k->uncommitted = 0;
	k->sent = begin;
	k->flies = k->overlaps;
	if (!k->flies)
		PL_CHECK(wait_for_reply(k, err));
	k->last_commit_ns = pl_now_ns() - begin - (k->counts.wait_ns - waited);
	k->counts.commit_ns += k->last_commit_ns;
	begin_commit(k);
	return 0;
}

/* At least one step comes before a commit: those before it may have been lost with the weights that
 * they began from. */
static bool is_due(const struct worker *k)
{
	if (k->s.waiting || !k->now.steps)
		return false;
	return (k->s.order.steps && k->now.steps >= k->s.order.steps) || pl_now_ns() >= k->due;
}

static int local_step(struct worker *k, struct pl_err *err)
{
	const struct pl_ps_turn turn = { .word = PL_PS_STEP,
					 .step = k->t->step,
					 .at = (int64_t)(k->job_step +
							 k->s.pace * (double)k->since),
					 .batch = k->s.order.batch,
					 .rate = k->s.order.rate > 0 ? k->s.order.rate : 1 };
	pl_ns begin = pl_now_ns();
	struct pl_step_result r;

	PL_CHECK(pl_ps_group_say(k->p, &turn, err));
	PL_CHECK(pl_ps_group_step(k->p, k->t, &turn, &r, err));
	k->now.lr = turn.rate * pl_optim_lr(&k->p->w.optim_opts, turn.at);
	k->since++;
	k->uncommitted++;
	k->now.steps++;
	k->now.samples += (uint64_t)pl_ps_group_samples(k->p);
	/* the ranks of a group wait for one another */
	count_step(k, k->p->g.world ? pl_now_ns() - begin : r.step_ns);
	k->counts.steps++;
	return 0;
}

/* What has come while the worker computed. */
static int look(struct worker *k, struct pl_err *err)
{
	bool flew, good;
	int what;

	do {
		PL_CHECK(what = pl_ps_session_event(&k->s, 0, err));
		if (what == PL_PS_REPLIED && k->flies)
			PL_CHECK(rebase(k, err));
	} while (what != PL_PS_NOTHING);
	obey(k);
	/* a commit that flies has been made of its base */
	good = k->s.waiting || pl_ps_session_has_base(&k->s);
	if ((good && pl_ps_session_connected(&k->s)) || k->s.ended)
		return 0;
	flew = k->flies;
	k->s.in_steps = good;
	PL_CHECK(wait_for_reply(k, err));
	if (!k->s.in_steps && !flew)
		begin_commit(k);
	return 0;
}

static int train(struct worker *k, struct pl_err *err)
{
	const struct pl_ps_turn over = { .word = PL_PS_OVER };

	PL_CHECK(wait_for_reply(k, err));
	begin_commit(k);
	while (!k->s.ended && !*k->t->stop) {
		PL_CHECK(local_step(k, err));
		PL_CHECK(look(k, err));
		if (!k->s.ended && is_due(k))
			PL_CHECK(commit(k, err));
	}
	return pl_ps_group_say(k->p, &over, err);
}

/* A group that is lost tells the servers why, which else would see only that it goes. */
static void lose_group(struct worker *k, const char *why)
{
	for (uint32_t i = 0; k->p->g.size > 1 && k->s.server && i < k->p->servers; i++)
		if (k->s.server[i].connected)
			pl_comm_endpoint_drop(k->p->end, k->s.server[i].connection, why);
}

static void say_bye(struct worker *k)
{
	struct pl_message m = { .kind = PL_PS_BYE,
				.value = { k->s.session },
				.body = &k->counts,
				.bytes = sizeof(k->counts) };
	struct pl_err ignore = { 0 };

	k->counts.bytes_sent = bytes_sent(k);
	if (k->s.server[0].connected)
		(void)!pl_comm_endpoint_send(k->p->end, k->s.server[0].connection, &m, NULL,
					     &ignore);
}

static bool overlaps(const struct pl_ps *p)
{
	struct pl_policy_opts o = { .workers = p->workers };
	struct pl_err ignore = { 0 };

	return p->w.o.job->overlap && pl_policy_parse(p->w.o.job->policy, &o, &ignore) == 0 &&
	       pl_policy_overlaps(o.kind);
}

int pl_ps_work(struct pl_ps *p, struct pl_train *t, struct pl_err *err)
{
	struct worker k = { .p = p, .t = t, .due = INT64_MAX };
	int rc;

	PL_TRY(pl_ps_session_open(&k.s, p, err));
	k.overlaps = overlaps(p);
	rc = train(&k, err);
	if (rc >= 0) /* else the server sees that this worker is lost */
		say_bye(&k);
	else
		lose_group(&k, err->msg);
	t->end = pl_now_ns();
	if (*t->stop && rc >= 0)
		t->interrupted = true;
out:
	pl_ps_session_close(&k.s);
	return pl_ps_group_close(p, rc, err);
}
