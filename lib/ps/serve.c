/*
 * The life of server 0: it waits for the workers, serves until all steps are made, tells workers
 * that it is over, and has the whole vector at the end.
 *
 * Server 0 evaluates and writes checkpoints. Slices of other servers come for that while commits go
 * on.
 */
#include <math.h>

#include "ps/internal.h"

#define TURN_NS 50000000 /* so often the server looks whether somebody asked it to end */
/* At the end, workers finish the local step in which they are. */
#define LAST_STEPS 3
/* Workers come within so many timeouts. */
#define LATE 10

static void name_missing(const struct pl_ps_server *s, char *to, size_t size)
{
	size_t n = 0;

	to[0] = '\0';
	for (uint32_t i = 0; i < s->p->workers && n + 16 < size; i++)
		if (!s->client[i].ready)
			n += (size_t)snprintf(to + n, size - n, "%s%u", n ? ", " : "", i);
	if (!pl_ps_others_there(s) && n + 40 < size)
		snprintf(to + n, size - n, "%snor did all servers", n ? "; " : "");
}

static bool enough(struct pl_ps_server *s)
{
	const struct pl_ps_progress *g = pl_ps_store_progress(s->store);
	struct pl_train *t = s->t;

	if (*t->stop && !t->done && !g->over)
		t->done = t->interrupted = true;
	/* a round that has begun is applied first */
	return t->done || g->over || (g->steps >= s->budget && !pl_policy_collects(s->policy));
}

/* The first rank of the worker that has ended; -1: none has, so the worker may come back. */
static int64_t ended_rank(const struct pl_ps *p, uint32_t worker)
{
	const uint32_t *rank = pl_ps_ranks(p, worker);

	for (uint32_t i = 0; i < pl_ps_size(p, worker); i++)
		if (pl_ps_has_ended(p, p->servers + rank[i]))
			return rank[i];
	return -1;
}

/* A process that is missing has ended, and does not come: a worker, unless this server goes on
 * without it, or a server. */
static int check_missing(const struct pl_ps_server *s, struct pl_err *err)
{
	for (uint32_t i = 0; i < s->p->workers; i++)
		if (!s->again && !s->client[i].ready && ended_rank(s->p, i) >= 0)
			return pl_fail(err, PL_EIO, "rank %lld has ended before training began",
				       (long long)ended_rank(s->p, i));
	for (uint32_t k = 1; k < s->p->servers; k++)
		if (pl_ps_has_ended(s->p, k))
			return pl_fail(err, PL_EIO, "server %u has ended before training began", k);
	return 0;
}

/* The server waits for all workers: those that come first would have weights of a round, or the
 * factor of a commit, without the others. After a time it goes on without those that are missing,
 * unless the policy needs them. Of a server that is started again that is a shorter time: workers
 * that are lost never come. */
static int wait_for_workers(struct pl_ps_server *s, pl_ns waited, struct pl_err *err)
{
	pl_ns step = 0;
	char missing[200];

	for (uint32_t i = 0; i < s->p->workers && s->again; i++)
		step = pl_max_i64(step, pl_policy_worker(s->policy, i)->step_ns);
	step *= LAST_STEPS; /* a worker looks at its connection between two steps */
	name_missing(s, missing, sizeof(missing));
	if (waited > (s->again ? 2 : LATE) * s->p->timeout_ns + step &&
	    pl_ps_server_there(s) >= pl_policy_min_workers(s->policy)) {
		pl_say(s->log, PL_LOG_WARN,
		       s->again ? "these workers did not come back: %s"
				: "these workers have not come: %s; training begins without them",
		       missing);
		return pl_ps_server_begin(s, err);
	}
	if (waited <= LATE * s->p->timeout_ns + step)
		return check_missing(s, err);
	return pl_fail(err, PL_EIO,
		       s->again ? "these workers did not come back: %s"
				: "these workers never came: %s",
		       missing);
}

/* While it is written, workers wait. */
static int write_checkpoint(struct pl_ps_server *s, struct pl_err *err)
{
	/* evaluations use the same network, and the best one is written with samples of its own */
	PL_CHECK(pl_ps_evaluator_take(s->evaluator, true, err));
	s->p->w.taken = (int64_t)s->save_samples;
	pl_ps_vector_write(&s->p->w.view, s->whole);
	pl_net_changed(s->p->w.net);
	PL_CHECK(pl_train_checkpoint(s->t, err));
	s->t->saved = -1; /* weights change within a step of all workers, too */
	return 0;
}

static int checkpoint(struct pl_ps_server *s, struct pl_err *err)
{
	const struct pl_ps_progress *g = pl_ps_store_progress(s->store);
	uint64_t steps = g->steps;
	uint64_t every = (uint64_t)s->t->job->checkpoint_every * s->p->workers;
	int64_t step = s->t->step;
	int rc;

	if (!every)
		return 0;
	if (!s->saves && steps >= s->save_at && steps < s->budget && g->w_steps == steps) {
		s->saves = s->save_at > 0;
		s->save_at = (steps / every + 1) * every;
		s->save_step = step;
		s->save_samples = g->w_samples;
		if (s->saves)
			PL_CHECK(pl_ps_whole_begin(s, NULL, err));
	}
	if (!s->saves || !pl_ps_whole_there(s))
		return 0;
	s->saves = false;
	s->t->step = s->save_step; /* others may have been made meanwhile */
	rc = write_checkpoint(s, err);
	s->t->step = step;
	return rc;
}

/* So that a server that is started again keeps the checkpoint of the best evaluation. */
static void keep_best(struct pl_ps_server *s)
{
	struct pl_ps_progress *g = pl_ps_store_progress(s->store);

	if (!memcmp(&g->best, &s->p->w.best, sizeof(g->best)))
		return;
	g->best = s->p->w.best;
	pl_ps_store_commit(s->store);
}

/* A lost worker may come back, unless it has ended, or was away for too long. A group waits
 * PL_PS_PATIENCE timeouts for its ranks, and then connects. */
int pl_ps_server_few(struct pl_ps_server *s, pl_ns now, struct pl_err *err)
{
	pl_ns patience = (PL_PS_PATIENCE + 2) * s->p->timeout_ns;
	uint32_t may_come = 0, gone = PL_NONE, lost = PL_NONE; /* the last ones */
	char ranks[PL_PS_RANKS], text[160];
	const struct pl_ps_client *c = s->client;

	if (s->few_since == INT64_MAX)
		return 0;
	for (uint32_t i = 0; i < s->p->workers; i++) {
		bool waits = now - c[i].left <= patience && ended_rank(s->p, i) < 0;
		uint32_t *last = waits ? &lost : &gone;

		if (pl_policy_worker(s->policy, i)->present)
			continue;
		may_come += waits;
		if (*last == PL_NONE || c[i].left >= c[*last].left)
			*last = i;
	}
	if (pl_ps_server_present(s) + may_come < pl_policy_min_workers(s->policy)) {
		pl_policy_few(s->policy, gone, text, sizeof(text));
		if (ended_rank(s->p, gone) >= 0)
			return pl_fail(err, PL_EIO,
				       "%s; rank %lld has ended, and does not come back", text,
				       (long long)ended_rank(s->p, gone));
		return pl_fail(err, PL_EIO, "%s; %s %u%s did not come back within %.3g s", text,
			       s->p->workers == s->p->ranks ? "rank" : "worker", gone,
			       pl_ps_name_ranks(s->p, gone, ranks), (double)patience / 1e9);
	}
	/* a process that ends is known by then */
	if (!s->few_said && now - s->few_since > 2 * TURN_NS) {
		s->few_said = true;
		pl_policy_few(s->policy, lost, text, sizeof(text));
		pl_say(s->log, PL_LOG_WARN, "%s; training waits for it to come back", text);
	}
	return 0;
}

static int serve(struct pl_ps_server *s, struct pl_err *err)
{
	pl_ns first = pl_now_ns();

	while (!enough(s)) {
		pl_ns now = pl_now_ns();
		bool nothing;

		PL_CHECK(pl_ps_server_event(s, pl_min_i64(now + TURN_NS, s->wake), &nothing, err));
		PL_CHECK(pl_ps_server_time(s, pl_now_ns(), err));
		PL_CHECK(pl_ps_evaluator_take(s->evaluator, false, err));
		keep_best(s);
		PL_CHECK(checkpoint(s, err));
		if (s->begun)
			PL_CHECK(pl_ps_others_check(s, now, err));
		s->t->progress(s->t->arg);
		if (!s->begun)
			PL_CHECK(wait_for_workers(s, now - first, err));
		PL_CHECK(pl_ps_server_few(s, now, err));
		PL_CHECK(pl_ps_group_check(s->p, err));
	}
	return 0;
}

/* Workers to tell. Those that have not come yet, or not again after another server, do; but not if
 * this one has gone on without them. */
static uint32_t n_left(const struct pl_ps_server *s)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->p->workers; i++) {
		bool comes = (s->again || s->nothing) && !s->begun && ended_rank(s->p, i) < 0;

		n += !s->client[i].ended && (s->client[i].connected || comes);
	}
	return n;
}

/* Workers learn that it is over, and say BYE with what they counted. */
static void end_workers(struct pl_ps_server *s, const char *why)
{
	struct pl_err ignore = { 0 };
	pl_ns until = pl_now_ns() + (s->nothing ? LATE : 1) * s->p->timeout_ns, step = 0;
	bool nothing;

	s->ending = true;
	s->why = why;
	if (why)
		pl_ps_others_end(s);
	for (uint32_t i = 0; i < s->p->workers; i++) {
		const struct pl_policy_worker *k = pl_policy_worker(s->policy, i);

		step = pl_max_i64(step, k->step_ns);
		(void)!pl_ps_server_end(s, i, &ignore);
	}
	until += LAST_STEPS * step;
	while (n_left(s) && pl_now_ns() < until &&
	       pl_ps_server_event(s, until, &nothing, &ignore) >= 0)
		;
}

/* The weights at the end, into the network. The other servers go when this one says good-bye: until
 * then it may be killed and ask again. */
static int take_weights(struct pl_ps_server *s, struct pl_err *err)
{
	PL_CHECK(pl_ps_whole_begin(s, NULL, err));
	while (!pl_ps_whole_there(s)) {
		bool nothing;

		PL_CHECK(pl_ps_server_event(s, pl_now_ns() + TURN_NS, &nothing, err));
		PL_CHECK(pl_ps_others_check(s, pl_now_ns(), err));
	}
	PL_CHECK(pl_ps_evaluator_take(s->evaluator, true, err));
	pl_ps_vector_write(&s->p->w.view, s->whole);
	pl_net_changed(s->p->w.net);
	return 0;
}

/* So that a server that is killed while it writes the results is followed by one that does. */
static void keep_result(struct pl_ps_server *s)
{
	struct pl_ps_progress *g = pl_ps_store_progress(s->store);

	g->to_target_s = s->t->time_to_target_s;
	g->to_target_samples = s->t->samples_to_target;
	g->over = true;
	pl_ps_store_commit(s->store);
}

static void count(struct pl_ps_server *s)
{
	const struct pl_ps_progress *g = pl_ps_store_progress(s->store);
	const struct pl_feed *f = &s->p->w.feed;

	for (uint32_t i = 0; i < s->p->workers; i++) {
		s->p->seen[i] = *pl_policy_worker(s->policy, i);
		s->p->counts[i] = pl_ps_server_counts(s, i);
	}
	s->p->seconds = (double)(s->t->end - s->t->begin) / 1e9;
	s->t->bytes_sent = pl_ps_server_sent(s) + pl_ps_others_sent(s);
	/* after a signal, a round may be begun, which the weights do not have */
	s->t->step = (int64_t)(g->w_steps / s->p->workers);
	s->t->steps_done = s->t->step - f->first_step;
	s->p->w.taken = (int64_t)g->w_samples;
	if (s->t->evaluated == s->t->step && s->p->evaluated == s->p->w.taken)
		return;
	s->t->evaluated = -1;
	if (s->t->interrupted) /* there is no evaluation of these weights */
		s->t->eval_loss = s->t->accuracy = NAN;
}

/* ---- begin and end --------------------------------------------------------------------------- */

static int make_policy(struct pl_ps_server *s, struct pl_err *err)
{
	const struct pl_ps *p = s->p;
	const struct pl_job *j = p->w.o.job;
	uint64_t before = (uint64_t)s->t->step * p->workers; /* of the job that is resumed */
	struct pl_policy_opts o = { .workers = p->workers,
				    .min_workers = (uint32_t)j->min_workers,
				    .batch = j->batch * p->ranks / p->workers, /* the mean of all */
				    .rank_batch = j->batch,
				    .period = j->period,
				    .epoch = j->epoch,
				    .target_loss = j->target_loss,
				    .seed = (uint64_t)j->seed,
				    .steps = s->budget > before ? s->budget - before : 0 };

	PL_CHECK(pl_policy_parse(j->policy, &o, err));
	o.argument = pl_job_policy_argument(j);
	s->waits = pl_policy_waits(o.kind);
	return pl_policy_new(&o, &s->policy, err);
}

static int open_store(struct pl_ps_server *s, struct pl_err *err)
{
	struct pl_ps *p = s->p;
	const struct pl_ps_store_opts o = { .fd = p->meeting->memory,
					    .n = pl_ps_slice_size(p, 0),
					    .workers = p->workers,
					    .bodies = pl_ps_bodies(p),
					    .actions = p->servers > 1 ? pl_ps_actions(p) : 0 };
	struct pl_ps_progress *g;
	bool fresh;
	size_t *n;
	const uint8_t *policy;

	PL_CHECK(pl_ps_store_open(&o, &s->store, &fresh, err));
	g = pl_ps_store_progress(s->store);
	if (fresh) {
		PL_CHECK(pl_ps_slice_read(p, 0, pl_ps_store_begin(s->store), err));
		g->best = p->w.best;
		g->steps = (uint64_t)s->t->step * p->workers;
		g->samples = (uint64_t)pl_train_feed_samples(&p->w.feed, (int)p->ranks, s->t->step);
		g->w_steps = g->steps;
		g->w_samples = g->samples;
	} else {
		policy = pl_ps_store_policy(s->store, &n);
		if (g->begun)
			PL_CHECK(pl_policy_get(s->policy, policy, *n, err));
		s->again = g->begun;
		p->w.best = g->best;
		s->t->begin = g->begun ? g->begin : pl_now_ns();
		s->t->step = (int64_t)(g->steps / p->workers);
		if (g->over) {
			s->t->time_to_target_s = g->to_target_s;
			s->t->samples_to_target = g->to_target_samples;
		}
		pl_say(s->log, PL_LOG_WARN, "%s was started again, at version %llu of the weights",
		       p->servers > 1 ? "server 0" : "the server", (unsigned long long)g->version);
	}
	s->sent_before = g->bytes_sent;
	pl_ps_store_commit(s->store);
	PL_CHECK(pl_ps_copies_open(&s->copies, s->store, o.bodies, err));
	for (uint32_t i = 0; i < p->workers; i++)
		PL_CHECK(pl_ps_copies_pin(&s->copies, &s->client[i].sent, err));
	return 0;
}

int pl_ps_server_open(struct pl_ps_server *s, struct pl_err *err)
{
	struct pl_train *t = s->t;
	struct pl_ps *p = s->p;

	s->wake = s->few_since = INT64_MAX;
	t->steps = pl_train_worker_steps(&p->w, (int)p->ranks);
	s->budget = (uint64_t)t->steps * p->workers;
	PL_CHECK(pl_alloc(&s->client, p->workers, sizeof(*s->client), err));
	PL_CHECK(pl_alloc(&s->meets, p->workers, sizeof(*s->meets), err));
	s->copies = (struct pl_ps_copies){ .end = p->end, .n = pl_ps_slice_size(p, 0) };
	PL_CHECK(make_policy(s, err));
	PL_CHECK(open_store(s, err));
	PL_CHECK(pl_ps_others_open(s, err));
	s->evaluator = pl_ps_evaluator_new(t, err);
	return s->evaluator ? 0 : err->code;
}

void pl_ps_server_close(struct pl_ps_server *s)
{
	pl_ps_evaluator_free(s->evaluator);
	pl_ps_others_close(s);
	s->p->store = s->store;
	pl_policy_free(s->policy);
	pl_ps_copies_fini(&s->copies);
	for (uint32_t i = 0; s->client && i < s->p->workers; i++) {
		if (s->client[i].commits)
			pl_comm_endpoint_release(s->p->end, &s->client[i].commit);
		pl_ps_sent_fini(&s->client[i].sent);
	}
	pl_free(s->client);
	for (uint32_t i = 0; s->meets && i < s->p->workers; i++)
		pl_free(s->meets[i].waits);
	pl_free(s->meets);
}

int pl_ps_lead(struct pl_ps *p, struct pl_train *t, struct pl_err *err)
{
	struct pl_ps_server s = { .p = p, .t = t, .log = p->w.o.log };
	int rc;

	PL_TRY(pl_ps_server_open(&s, err));
	s.nothing = !s.again && pl_ps_store_progress(s.store)->steps >= s.budget;
	rc = serve(&s, err);
	t->end = pl_now_ns();
	if (rc >= 0)
		keep_result(&s);
	end_workers(&s, rc < 0 ? err->msg : NULL);
	if (rc < 0)
		goto out;
	pl_ps_others_over(&s);
	PL_TRY(take_weights(&s, err));
	count(&s);
out:
	pl_ps_server_close(&s);
	return rc;
}
