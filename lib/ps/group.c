/*
 * Groups: ranks that are one worker.
 *
 * The ranks of a group are a world. In each step they sum their gradients (dp/dp.h) and take the
 * same step of their optimizers, so they hold the same bits. The first one leads: it has the
 * session with the servers (client.c). Before each turn it says what all ranks do next: take a
 * step, sum their counts for a commit, take the weights of a reply, or end. This is one broadcast
 * of a few bytes. The weights of a reply are another one, O(numbers).
 *
 * While the leader waits for a reply, the others wait for its next word, as long as it waits.
 */
#include <ctype.h>
#include <signal.h>
#include <stdlib.h>

#include "ps/internal.h"

/* ---- messages ---------------------------------------------------------------------------------
 */

/* The text with other numbers of ranks: behind "rank" or "ranks", one or several. */
static void renumber(const char *text, long by, char *to, size_t size)
{
	char *end = to + size;

	for (const char *at = text; *at && to + 1 < end;) {
		bool numbers = !strncmp(at, "rank", 4) && (at == text || !isalpha(at[-1]));
		size_t n = numbers ? 4 + strspn(at + 4, "s") : 1;

		to += snprintf(to, (size_t)(end - to), "%.*s", (int)n, at);
		at += n;
		while (numbers && to + 1 < end && at[0] == ' ' && isdigit(at[1 + (at[1] == '-')])) {
			char *next;

			to += snprintf(to, (size_t)(end - to), " %ld",
				       strtol(at + 1, &next, 10) + by);
			at = next;
		}
	}
}

static long first_rank(const struct pl_ps *p)
{
	return (long)(pl_ps_number(p) * p->g.size);
}

/* The group's world numbers its ranks from 0: those of the job. */
static int named(const struct pl_ps *p, int rc, struct pl_err *err)
{
	char was[sizeof(err->msg)];

	if (rc >= 0 || p->g.size < 2)
		return rc;
	memcpy(was, err->msg, sizeof(was));
	renumber(was, first_rank(p), err->msg, sizeof(err->msg));
	return rc;
}

/* Of the world, by one of its threads. */
static void on_lost(void *arg, const char *why)
{
	struct pl_ps *p = arg;
	const struct pl_engine_meeting *m = p->g.meeting;

	renumber(why, first_rank(p), p->g.why, sizeof(p->g.why));
	atomic_store(&p->g.lost, true);
	if (m->lost)
		m->lost(m->lost_arg, why);
}

int pl_ps_group_check(const struct pl_ps *p, struct pl_err *err)
{
	return atomic_load(&p->g.lost) ? pl_fail(err, PL_EIO, "%s", p->g.why) : 0;
}

int pl_ps_group_fail(const struct pl_ps *p, int rc, struct pl_err *err)
{
	return rc == PL_EIO && !pl_ps_is_server(p) ? named(p, rc, err) : rc;
}

const char *pl_ps_group_ranks(const struct pl_ps *p, uint32_t worker, char text[PL_PS_RANKS])
{
	text[0] = '\0';
	if (p->g.size > 1)
		snprintf(text, PL_PS_RANKS, " (ranks %u-%u)", worker * p->g.size,
			 (worker + 1) * p->g.size - 1);
	return text;
}

/* ---- begin and end ----------------------------------------------------------------------------
 */

/* The links that name two ranks of this group. What a link of any rank slows down is the way to the
 * servers: a group is where links are fast. */
static int shapes_of(const struct pl_ps *p, const struct pl_engine_meeting *m,
		     struct pl_link_shape **v, size_t *n, struct pl_err *err)
{
	int first = (int)(p->servers + pl_ps_number(p) * p->g.size), size = (int)p->g.size;

	*n = 0;
	PL_CHECK(pl_alloc(v, m->n_shapes + 1, sizeof(**v), err));
	for (size_t i = 0; i < m->n_shapes; i++) {
		struct pl_link_shape s = m->shape[i];

		s.from -= first;
		s.to -= first;
		if (s.from >= 0 && s.from < size && s.to >= 0 && s.to < size)
			(*v)[(*n)++] = s;
	}
	return 0;
}

static int trace_group(struct pl_ps *p, struct pl_tracer *t, struct pl_world_opts *w,
		       struct pl_err *err)
{
	char name[32];

	if (!t)
		return 0;
	w->event = pl_train_tracer_comm;
	w->event_arg = t;
	snprintf(name, sizeof(name), "group %u", pl_ps_number(p));
	return pl_train_tracer_group(t, name, (int)p->servers + (int)first_rank(p), err);
}

int pl_ps_group_open(struct pl_ps *p, const struct pl_engine_opts *o, struct pl_err *err)
{
	const struct pl_engine_meeting *m = o->meeting;
	char token[128], at[PL_PS_ADDRESS];
	struct pl_world_opts w = { .rank = (int)p->g.member,
				   .size = (int)p->g.size,
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
				   .meet_ns = PL_PS_PATIENCE * m->timeout_ns,
				   .patience_ns = 2 * PL_PS_REPLY_PATIENCE * m->timeout_ns,
				   .log = o->log,
				   .lost = on_lost,
				   .lost_arg = p };
	struct pl_link_shape *shape = NULL;
	int rc;

	if (p->g.size < 2 || pl_ps_is_server(p))
		return 0;
	p->g.meeting = m;
	PL_TRY(trace_group(p, o->tracer, &w, err));
	if (strncmp(m->at, "dir:", 4) && p->g.member) {
		PL_TRY(named(p, pl_ps_meet_find(p, at, err), err));
		w.meet = at;
	}
	/* each group meets by a secret, and so in a file, of its own */
	snprintf(token, sizeof(token), "%.100s group %u", m->token, pl_ps_number(p));
	PL_TRY(shapes_of(p, m, &shape, &w.n_shapes, err));
	w.shape = shape;
	rc = named(p, pl_comm_world_open(&w, &p->g.world, err), err);
	if (rc < 0)
		pl_wrap(err, "group %u", pl_ps_number(p));
out:
	pl_free(shape);
	return rc;
}

int pl_ps_group_close(struct pl_ps *p, int rc, struct pl_err *err)
{
	struct pl_world *w = p->g.world;
	struct pl_err late = { 0 };
	char why[sizeof(err->msg)];

	p->g.world = NULL;
	if (!w)
		return rc;
	p->g.over = true;
	if (rc < 0) {
		/* the others will number again */
		renumber(err->msg, -first_rank(p), why, sizeof(why));
		pl_comm_world_abort(w, why);
	} else if ((rc = named(p, pl_comm_world_close(w, &late), &late)) < 0) {
		*err = late;
	}
	return rc;
}

/* ---- turns ------------------------------------------------------------------------------------
 */

static int pass_turn(struct pl_ps *p, struct pl_ps_turn *t, struct pl_err *err)
{
	float *v = (float *)(void *)t;

	return named(p, pl_train_worker_broadcast(&p->w, v, sizeof(*t) / sizeof(*v), true, err),
		     err);
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
	pl_optim_rate(p->w.optim, turn->rate);
	PL_CHECK(t->engine->step(&p->w, turn->step, r, err));
	y->loss += r->loss * (double)r->samples;
	y->samples += (double)r->samples;
	y->hits += (double)r->hits;
	y->classified += (double)r->classified;
	t->step = turn->step + 1;
	t->steps_done++;
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
	return named(p,
		     pl_train_worker_sum(&p->w, (double *)(void *)sum,
					 sizeof(*sum) / sizeof(double), err),
		     err);
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
		PL_CHECK(named(p,
			       pl_train_worker_broadcast(&p->w, v->params, v->n_params, false, err),
			       err));
		PL_CHECK(named(p,
			       pl_train_worker_broadcast(&p->w, v->state, v->n_state, false, err),
			       err));
	}
	pl_net_changed(p->w.net);
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
