/*
 * Groups: ranks that are one worker.
 *
 * The ranks of a group are a world. In each step they sum their gradients (dp/dp.h) and take the
 * same step of their optimizers, so they hold the same bits. The first one leads: it has the
 * session with the servers (client.c). Before each turn it says what all ranks do next: take a
 * step, sum their counts for a commit, take the weights of a reply, or end. This is one broadcast
 * of a few bytes. The weights of a reply are another one, O(numbers).
 *
 * While the leader waits for a reply, the others wait for its next word. They give it up when none
 * comes for too long, so a leader that waits says now and then that it does.
 *
 * When a rank is lost, the world of the group fails, and the leader is a lost worker. Then all
 * ranks meet again: those that are left, and the lost one if it was only stopped, or the process
 * that was started in its place. The engine makes what they train with anew (engine.c), and the
 * leader greets the servers as a worker that comes back.
 */
#include <signal.h>

#include "ps/internal.h"

#define PAUSE_NS 100000000 /* between two attempts to meet: the first rank says anew where */

/* ---- lost ranks ---------------------------------------------------------------------------------
 */

/* Of the world, by one of its threads. */
static void on_lost(void *arg, const char *why)
{
	struct pl_ps *p = arg;

	snprintf(p->g.why, sizeof(p->g.why), "%s", why);
	atomic_store(&p->g.lost, true);
	if (p->meeting->lost)
		p->meeting->lost(p->meeting->lost_arg, why);
}

int pl_ps_group_check(const struct pl_ps *p, struct pl_err *err)
{
	PL_CHECK(pl_comm_attend_check(p->attends, err));
	return atomic_load(&p->g.lost) ? pl_fail(err, PL_EIO, "%s", p->g.why) : 0;
}

/* ---- begin and end ----------------------------------------------------------------------------
 */

/* The number in the group's world of a process; -1: it is none of its ranks. */
static int member_of(const struct pl_ps *p, int process)
{
	uint32_t worker;
	int64_t member;

	if (process < (int)p->servers)
		return -1;
	member = pl_ps_member(p, process - (int)p->servers, &worker);
	return worker == pl_ps_number(p) ? (int)member : -1;
}

/* The links that name two ranks of this group. What a link of any rank slows down is the way to the
 * servers: a group is where links are fast. */
static int shapes_of(const struct pl_ps *p, struct pl_link_shape **v, size_t *n, struct pl_err *err)
{
	const struct pl_engine_meeting *m = p->meeting;

	*n = 0;
	PL_CHECK(pl_alloc(v, m->n_shapes + 1, sizeof(**v), err));
	for (size_t i = 0; i < m->n_shapes; i++) {
		struct pl_link_shape s = m->shape[i];

		s.from = member_of(p, s.from);
		s.to = member_of(p, s.to);
		if (s.from >= 0 && s.to >= 0)
			(*v)[(*n)++] = s;
	}
	return 0;
}

/* One attempt of the ranks to meet, for so long. */
static int open_world(struct pl_ps *p, const struct pl_engine_opts *o, pl_ns meet_ns,
		      struct pl_err *err)
{
	const struct pl_engine_meeting *m = p->meeting;
	char token[128], at[PL_PS_ADDRESS];
	struct pl_world_opts w = { .rank = (int)p->g.member,
				   .size = (int)p->g.size,
				   .names = pl_ps_ranks(p, pl_ps_number(p)),
				   .of = { m->size, (int)p->servers },
				   .host = m->host,
				   .transport = o->job->transport,
				   .backend = o->backend,
				   .backend_ctx = o->ctx,
				   .meet = m->at, /* a folder; of server 0 */
				   .free_port = true,
				   .listens = pl_ps_meet_tell,
				   .listens_arg = p,
				   .token = token,
				   .bind = m->bind,
				   .timeout_ns = m->timeout_ns,
				   .meet_ns = meet_ns,
				   .patience_ns = PL_PS_GROUP_PATIENCE * m->timeout_ns,
				   .log = o->log,
				   .lost = on_lost,
				   .lost_arg = p,
				   .event = o->tracer ? pl_train_tracer_comm : NULL,
				   .event_arg = o->tracer };
	struct pl_link_shape *shape = NULL;
	int rc;

	if (strncmp(m->at, "dir:", 4) && p->g.member) {
		PL_TRY(pl_ps_meet_find(p, at, err));
		w.meet = at;
	}
	/* each group meets by a secret, and so in a file, of its own */
	snprintf(token, sizeof(token), "%.100s group %u", m->token, pl_ps_number(p));
	PL_TRY(shapes_of(p, &shape, &w.n_shapes, err));
	w.shape = shape;
	rc = pl_comm_world_open(&w, &p->g.world, err);
	if (rc < 0)
		pl_wrap(err, "group %u", pl_ps_number(p));
out:
	pl_free(shape);
	return rc;
}

/* Nobody will come to the meeting: a rank has ended, or training has. */
static bool is_over(const struct pl_ps *p)
{
	const uint32_t *rank = pl_ps_ranks(p, pl_ps_number(p));

	for (uint32_t i = 0; i < p->g.size; i++)
		if (pl_ps_has_ended(p, p->servers + rank[i]))
			return true;
	for (uint32_t i = 0; i < p->servers; i++)
		if (pl_ps_has_ended(p, i))
			return true;
	return false;
}

int pl_ps_group_open(struct pl_ps *p, const struct pl_engine_opts *o, const atomic_int *stop,
		     struct pl_err *err)
{
	/* the first rank ends each of its attempts itself; the others wait for its answer */
	pl_ns one = p->timeout_ns * (p->g.member ? 2 : 1);
	pl_ns until = pl_now_ns() + PL_PS_PATIENCE * p->timeout_ns;
	int rc;

	if (p->g.size < 2 || pl_ps_is_server(p))
		return 0;
	p->g.in_turn = true;
	while ((rc = open_world(p, o, one, err)) == PL_EIO && pl_now_ns() < until && !is_over(p) &&
	       !(stop && *stop)) {
		err->code = 0;
		pl_sleep_ns(PAUSE_NS);
	}
	return rc;
}

int pl_ps_group_close(struct pl_ps *p, int rc, struct pl_err *err)
{
	static const struct pl_ps_turn fails = { .word = PL_PS_FAILS };
	struct pl_world *w = p->g.world;
	struct pl_err late = { 0 };

	if (!w)
		return rc;
	p->g.broken = rc < 0 && atomic_load(&p->g.lost);
	/* the others wait for the next turn, so they can be told that this rank has failed */
	if (rc < 0 && !p->g.lost && !p->g.member && !p->g.in_turn)
		p->g.fails = pl_ps_group_say(p, &fails, &late) == 0;
	p->g.world = NULL;
	p->g.over = true;
	if (rc < 0 && !p->g.fails)
		pl_comm_world_abort(w, err->msg);
	else if (pl_comm_world_close(w, &late) < 0 && rc >= 0)
		rc = pl_fail_as(err, &late);
	return rc;
}

/* ---- turns ------------------------------------------------------------------------------------
 */

static int pass_turn(struct pl_ps *p, struct pl_ps_turn *t, struct pl_err *err)
{
	float *v = (float *)(void *)t;

	PL_CHECK(pl_train_worker_broadcast(&p->w, v, sizeof(*t) / sizeof(*v), true, err));
	p->g.in_turn = true;
	return 0;
}

int pl_ps_group_say(struct pl_ps *p, const struct pl_ps_turn *t, struct pl_err *err)
{
	struct pl_ps_turn copy = *t;

	return p->g.world ? pass_turn(p, &copy, err) : 0;
}

int64_t pl_ps_group_samples(const struct pl_ps *p)
{
	return p->w.of ? p->w.of : p->w.o.job->batch * (int64_t)p->g.size;
}

/* The batch of the order, for all ranks of the group; 0: the job's. */
static void share_batch(struct pl_ps *p, int64_t step, int64_t batch)
{
	int64_t size = p->g.size, member = p->g.member;
	struct pl_worker *w = &p->w;

	if (batch == p->g.batch)
		return;
	/* from now on the numbers of batches drawn and of steps differ */
	w->drawn = w->drawn ? w->drawn : step;
	p->g.batch = batch;
	w->of = batch ? pl_max_i64(batch, size) : 0;
	w->samples = w->of / size + (member < w->of % size);
}

int pl_ps_group_step(struct pl_ps *p, struct pl_train *t, const struct pl_ps_turn *turn,
		     struct pl_step_result *r, struct pl_err *err)
{
	struct pl_ps_tally *y = &p->g.tally;

	share_batch(p, turn->step, turn->batch);
	if (!p->g.begun)
		p->g.begin = p->w.has_state ? p->w.optim_first : turn->step;
	p->g.begun = true;
	pl_optim_shift(p->w.optim, turn->at - turn->step, -p->g.begin);
	pl_optim_rate(p->w.optim, turn->rate);
	PL_CHECK(t->engine->step(&p->w, turn->step, r, err));
	y->loss += r->loss * (double)r->samples;
	y->samples += (double)r->samples;
	y->hits += (double)r->hits;
	y->classified += (double)r->classified;
	t->step = turn->step + 1;
	t->steps_done++;
	p->g.in_turn = false;
	return 0;
}

int pl_ps_group_sum(struct pl_ps *p, const struct pl_train *t, struct pl_ps_tally *sum,
		    struct pl_err *err)
{
	*sum = p->g.tally;
	p->g.tally = (struct pl_ps_tally){ 0 };
	if (!p->g.world)
		return 0;
	sum->bytes = (double)pl_comm_world_sent(p->g.world);
	sum->asked = *t->stop ? 1 : 0;
	PL_CHECK(pl_train_worker_sum(&p->w, (double *)(void *)sum, sizeof(*sum) / sizeof(double),
				     err));
	p->g.in_turn = false;
	return 0;
}

int pl_ps_group_give(struct pl_ps *p, bool fresh, struct pl_err *err)
{
	const struct pl_net_view *v = &p->w.view;
	const struct pl_ps_turn t = { .word = PL_PS_TAKE, .fresh = fresh };

	if (fresh)
		p->g.tally = (struct pl_ps_tally){ 0 };
	if (p->g.world) {
		if (!p->g.member)
			PL_CHECK(pl_ps_group_say(p, &t, err));
		PL_CHECK(pl_train_worker_broadcast(&p->w, v->params, v->n_params, false, err));
		PL_CHECK(pl_train_worker_broadcast(&p->w, v->state, v->n_state, false, err));
	}
	pl_net_changed(p->w.net);
	p->g.in_turn = false;
	return 0;
}

/* A quarter of the time after which they would give it up. */
int pl_ps_group_hold(struct pl_ps *p, pl_ns *said, struct pl_err *err)
{
	const struct pl_ps_turn t = { .word = PL_PS_HOLD };
	pl_ns now = pl_now_ns();

	if (!p->g.world || now - *said < PL_PS_GROUP_PATIENCE / 4 * p->timeout_ns)
		return 0;
	*said = now;
	PL_CHECK(pl_ps_group_say(p, &t, err));
	p->g.in_turn = false;
	return 0;
}

/* ---- a rank that does not lead ----------------------------------------------------------------
 */

static int obey(struct pl_ps *p, struct pl_train *t, const struct pl_ps_turn *turn,
		struct pl_err *err)
{
	struct pl_step_result r;
	struct pl_ps_tally sum;

	switch (turn->word) {
	case PL_PS_STEP:
		return pl_ps_group_step(p, t, turn, &r, err);
	case PL_PS_SUM:
		return pl_ps_group_sum(p, t, &sum, err);
	case PL_PS_TAKE:
		return pl_ps_group_give(p, turn->fresh, err);
	case PL_PS_OVER:
		return 0;
	case PL_PS_HOLD:
		p->g.in_turn = false;
		return 0;
	case PL_PS_FAILS:
		p->g.fails = true;
		return pl_fail(err, PL_EIO, "rank %u, the first of this group, has failed",
			       pl_ps_ranks(p, pl_ps_number(p))[0]);
	default:
		return pl_fail(err, PL_EINTERNAL, "an unknown word of the group's first rank");
	}
}

int pl_ps_group_serve(struct pl_ps *p, struct pl_train *t, struct pl_err *err)
{
	struct pl_ps_turn turn = { 0 };
	int rc = 0;

	while (rc >= 0 && turn.word != PL_PS_OVER) {
		rc = pass_turn(p, &turn, err);
		if (rc >= 0)
			rc = obey(p, t, &turn, err);
	}
	t->end = pl_now_ns();
	if (*t->stop && rc >= 0)
		t->interrupted = true;
	return pl_ps_group_close(p, rc, err);
}
