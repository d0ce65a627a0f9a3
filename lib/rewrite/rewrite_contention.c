/*
 * The times at which buckets are transferred, with contention and priorities, by the event core.
 *
 * Each backward pass of a step becomes a job of the event core. A bucket is a task. It holds the
 * channel of each of its ranks, and its duration is the duration of its transfer without
 * contention. The computation of a rank is a chain of tasks on a resource of its own. Each task
 * lasts from the issue of one bucket to the issue of the next bucket. The computation and the
 * transfers of a rank slow one another down (rewrite_slowdown.c). Without priorities, the buckets
 * of a channel follow one another in the order of issue. With priorities, the event core takes the
 * most urgent bucket that is ready. A bucket in several parts lets a more urgent bucket pass
 * between two parts.
 *
 * An edit computes its starts from given durations and a given order. Therefore the result of the
 * event core is written into the edit: the durations of transfers, the time that computation loses,
 * and the order of the channels (rewrite_priority.c). If there is no slow-down, the edit says when
 * gradients are ready, and these times can depend on the order in earlier passes. Then order and
 * times are computed again until the order no longer changes. This ends, because the first transfer
 * of a pass depends only on earlier events: each round makes at least one more transfer final.
 */
#include <math.h>

#include "rewrite/rewrite_internal.h"
#include "sim/events.h"

/* Arrays of a job: of the event core (X), and for making the job and for its result (Y). */
#define ARRAYS(X, Y)                                                                               \
	X(struct pl_sim_events_resource, res, res) /* channels, then the computation of ranks */   \
	X(uint32_t, off, n + 1)                                                                    \
	X(uint32_t, src, edges)                                                                    \
	X(pl_ns, delay, edges)                                                                     \
	X(uint32_t, use_off, n + 1)                                                                \
	X(uint32_t, use, 2 * pairs)                                                                \
	X(pl_ns, dur, n)                                                                           \
	X(pl_ns, earliest, n)                                                                      \
	X(double, slows, n)                                                                        \
	X(double, slowed, n)                                                                       \
	X(uint32_t, priority, n)                                                                   \
	X(uint32_t, parts, n)                                                                      \
	Y(pl_ns, start, n)                                                                         \
	Y(pl_ns, end, n)                                                                           \
	Y(pl_ns, free, res)		    /* [resource] */                                       \
	Y(uint32_t, last_on, r->n_channels) /* bucket */                                           \
	Y(uint32_t, last_of, r->n_ranks)    /* bucket whose computation was the last */            \
	Y(pl_ns, issued, r->n_ranks)	    /* by the last bucket */                               \
	Y(pl_ns, done, r->n_ranks)	    /* computation until then */

struct pass_job { /* a pass as a job; buckets are the first tasks */
	struct pl_rewriter *r;
	uint32_t pass, n_sets;
	struct pl_sim_events_job job;
	struct pl_sim_events_times t;
	struct pl_arena arena; /* of the arrays */
#define MEMBER(type, name, size) type *name;
	ARRAYS(MEMBER, MEMBER)
#undef MEMBER
};

static void job_fini(struct pass_job *x)
{
	pl_arena_fini(&x->arena);
	pl_free(x->t.piece);
}

/* Room for the job of any pass. job_fini() is due whatever happens. */
static int job_init(struct pass_job *x, struct pl_rewriter *r, struct pl_err *err)
{
	uint32_t sets = rw_now(r)->b.n_sets;
	size_t pairs = (size_t)sets * r->n_ranks, n = sets + (r->slowdown ? pairs : 0);
	size_t edges = 3 * pairs, res = r->n_channels + r->n_ranks;

	*x = (struct pass_job){ .r = r, .n_sets = sets };
	if (edges > UINT32_MAX / 2)
		return pl_fail(err, PL_ELIMIT, "%u buckets on %u ranks are too many", sets,
			       r->n_ranks);
#define TAKE(type, name, size)                                                                     \
	PL_CHECK(pl_arena_array(&x->arena, &x->name, size, sizeof(*x->name), err));
	ARRAYS(TAKE, TAKE)
#undef TAKE
#define GIVE(type, name, size) x->job.name = x->name;
#define KEEP(type, name, size)
	ARRAYS(GIVE, KEEP)
#undef GIVE
#undef KEEP
	x->t.start = x->start;
	x->t.end = x->end;
	x->job.n_res = (uint32_t)res;
	if (!rw_now(r)->prioritized)
		x->job.priority = x->job.parts = NULL;
	return 0;
}

static uint32_t slot_of(const struct pass_job *x, uint32_t rank)
{
	return x->pass * x->r->n_ranks + rank;
}

static bool takes_part(const struct pass_job *x, uint32_t set, uint32_t rank)
{
	uint32_t slot = slot_of(x, rank);

	return rw_now(x->r)->built[set]->at[slot].arrive != PL_NONE &&
	       (!x->r->slowdown || pl_rewrite_slowdown_ready_alone(x->r, set, slot) != -INFINITY);
}

static uint32_t computation(const struct pass_job *x, uint32_t set, uint32_t rank)
{
	return x->n_sets + set * x->r->n_ranks + rank;
}

/* ---- a pass as a job ------------------------------------------------------------------------- */

static void add_edge(struct pass_job *x, uint32_t task, uint32_t src, pl_ns delay)
{
	uint32_t at = x->off[task + 1]++;

	x->src[at] = src;
	x->delay[at] = delay;
}

/* The time of the arrival if the channel were free. */
static pl_ns ready_at(const struct pl_edit *e, uint32_t arrive)
{
	pl_ns t = INT64_MIN;

	for (uint32_t x = e->node[arrive].in; x != PL_NONE; x = e->edge[x].in_next) {
		const struct pl_eedge *ed = &e->edge[x];

		if (PL_E_TYPE(ed->type) != PL_E_COMM)
			t = pl_max_i64(t, pl_edit_edge_time(e, ed));
	}
	return t;
}

static void add_resources(struct pass_job *x)
{
	const struct pl_rewriter *r = x->r;

	for (size_t c = 0; c < r->n_channels; c++) {
		x->res[c] = (struct pl_sim_events_resource){ .domain = PL_NONE };
		x->free[c] = INT64_MIN;
		x->last_on[c] = PL_NONE;
	}
	for (uint32_t i = 0; i < r->n_ranks; i++) {
		const struct rw_slot *s = &r->slot[slot_of(x, i)];
		uint32_t domain = r->slowdown ? i : PL_NONE;

		for (uint32_t c = s->channel; c < s->channel + s->n_channels; c++) {
			x->res[c].domain = domain;
			x->res[c].side = PL_EVENTS_COMMUNICATION;
			if (!r->slowdown)
				x->free[c] = r->e->node[r->channel[c].begin_mark].start;
		}
		x->res[r->n_channels + i] = (struct pl_sim_events_resource){ .domain = domain };
		x->free[r->n_channels + i] = INT64_MIN;
		x->last_of[i] = PL_NONE;
	}
}

static void add_bucket(struct pass_job *x, uint32_t set)
{
	const struct pl_rewriter *r = x->r;
	const struct rw_state *st = rw_now(r);
	const struct rw_built *b = st->built[set];

	x->dur[set] = r->slowdown ? b->alone : 0;
	x->earliest[set] = INT64_MIN;
	x->parts[set] = st->b.parts[set] ? st->b.parts[set] : 1;
	x->slows[set] = b->slows;
	x->slowed[set] = b->slowed;
	for (uint32_t i = 0; i < r->n_ranks; i++) {
		uint32_t slot = slot_of(x, i), channel;

		if (!takes_part(x, set, i))
			continue;
		channel = b->at[slot].channel;
		x->use[x->use_off[set + 1]++] = channel;
		if (r->slowdown) {
			add_edge(x, set, computation(x, set, i),
				 b->at[slot].issue != PL_NONE ? b->issue_ns : 0);
		} else {
			x->earliest[set] =
				pl_max_i64(x->earliest[set], ready_at(r->e, b->at[slot].arrive));
			x->dur[set] = pl_max_i64(x->dur[set], r->e->node[b->at[slot].transfer].dur);
		}
		if (!st->prioritized && x->last_on[channel] != PL_NONE)
			add_edge(x, set, x->last_on[channel], 0);
		x->last_on[channel] = set;
	}
	if (x->use_off[set + 1] == x->use_off[set])
		x->dur[set] = 0; /* no rank takes part in this pass */
}

/* The computation of a rank before the issue of a bucket. */
static void add_computation(struct pass_job *x, uint32_t set, uint32_t rank)
{
	const struct pl_rewriter *r = x->r;
	const struct rw_built *b = rw_now(r)->built[set];
	uint32_t task = computation(x, set, rank), slot = slot_of(x, rank);
	pl_ns ready;

	x->dur[task] = 0;
	x->earliest[task] = INT64_MIN;
	if (!takes_part(x, set, rank))
		return;
	ready = (pl_ns)llround(pl_rewrite_slowdown_ready_alone(r, set, slot));
	if (x->last_of[rank] == PL_NONE) {
		x->earliest[task] = x->done[rank] = ready;
	} else {
		x->dur[task] = pl_max_i64(0, ready - x->done[rank]);
		x->done[rank] = pl_max_i64(x->done[rank], ready);
		add_edge(x, task, computation(x, x->last_of[rank], rank), x->issued[rank]);
	}
	if (x->dur[task])
		x->use[x->use_off[task + 1]++] = (uint32_t)r->n_channels + rank;
	x->issued[rank] = b->at[slot].issue != PL_NONE ? b->issue_ns : 0;
	x->last_of[rank] = set;
}

static void add_priorities(struct pass_job *x)
{
	const struct rw_state *st = rw_now(x->r);

	for (uint32_t i = 0; i < x->job.n; i++)
		x->priority[i] = UINT32_MAX;
	for (uint32_t t = 0; t < x->r->n_tensors; t++)
		if (st->choice[t].priority && st->choice[t].priority < x->priority[st->b.set[t]])
			x->priority[st->b.set[t]] = st->choice[t].priority;
}

static void make_job(struct pass_job *x, uint32_t pass)
{
	const struct pl_rewriter *r = x->r;

	x->pass = pass;
	x->off[0] = x->use_off[0] = 0;
	add_resources(x);
	for (uint32_t s = 0; s < x->n_sets; s++) {
		x->off[s + 1] = x->off[s];
		x->use_off[s + 1] = x->use_off[s];
		add_bucket(x, s);
	}
	x->job.n = x->n_sets;
	for (uint32_t s = 0; r->slowdown && s < x->n_sets; s++) {
		for (uint32_t i = 0; i < r->n_ranks; i++, x->job.n++) {
			x->off[x->job.n + 1] = x->off[x->job.n];
			x->use_off[x->job.n + 1] = x->use_off[x->job.n];
			x->parts[x->job.n] = 1;
			x->slows[x->job.n] = x->slowed[x->job.n] = 1;
			add_computation(x, s, i);
		}
	}
	add_priorities(x);
}

static int run_job(struct pass_job *x, struct pl_err *err)
{
	struct pl_sim_events *ev = pl_sim_events_new(&x->job, err);
	int rc;

	if (!ev)
		return err->code;
	rc = pl_sim_events_run(ev, x->free, &x->t, err);
	pl_sim_events_free(ev);
	return rc;
}

/* ---- into the edit --------------------------------------------------------------------------- */

static void set_dur(struct pl_rewriter *r, uint32_t node, pl_ns dur)
{
	if (node != PL_NONE && r->e->node[node].dur != dur)
		rw_set_dur(r, node, dur);
}

/* Time that computation lost between the issues of two buckets becomes a delay after the first. */
static void put_losses(struct pass_job *x, uint32_t rank)
{
	struct rw_state *st = rw_now(x->r);
	uint32_t slot = slot_of(x, rank), last = PL_NONE;

	for (uint32_t s = 0; s < x->n_sets; s++) {
		uint32_t task = computation(x, s, rank);

		if (!takes_part(x, s, rank))
			continue;
		if (last != PL_NONE)
			set_dur(x->r, st->built[last]->at[slot].lost,
				x->t.end[task] - x->t.start[task] - x->dur[task]);
		last = s;
	}
	if (last != PL_NONE)
		set_dur(x->r, st->built[last]->at[slot].lost, 0);
}

static pl_ns transfer_ns(const struct pass_job *x, uint32_t set)
{
	pl_ns ns = 0;

	if (!x->job.parts || x->parts[set] == 1)
		return x->t.end[set] - x->t.start[set];
	for (size_t i = 0; i < x->t.n_pieces; i++)
		if (x->t.piece[i].task == set)
			ns += x->t.piece[i].end - x->t.piece[i].start;
	return ns;
}

static void put_durations(struct pass_job *x)
{
	struct pl_rewriter *r = x->r;

	for (uint32_t s = 0; s < x->n_sets; s++) {
		const struct rw_built *b = rw_now(r)->built[s];
		pl_ns ns = transfer_ns(x, s);

		if (x->use_off[s] == x->use_off[s + 1])
			continue;
		for (uint32_t i = 0; i < r->n_ranks; i++)
			if (!b->at[slot_of(x, i)].kept)
				set_dur(r, b->at[slot_of(x, i)].transfer, ns);
	}
	for (uint32_t i = 0; i < r->n_ranks; i++)
		put_losses(x, i);
}

PL_COMPARATOR(by_time, struct pl_sim_events_piece, start, end, task);

static bool same_order(const struct rw_order *a, const struct rw_order *b)
{
	if (a->n != b->n)
		return false;
	for (size_t i = 0; i < a->n; i++)
		if (a->turn[i].task != b->turn[i].task || a->turn[i].from != b->turn[i].from ||
		    a->turn[i].to != b->turn[i].to)
			return false;
	return true;
}

/* The pieces of all buckets in the order in which they were transferred; neighbours of one bucket
 * are one. *same does not change if *old is this order. */
static int put_order(struct pass_job *x, struct rw_order *old, bool *same, struct pl_err *err)
{
	struct rw_order o = { .turn = NULL };
	size_t n = 0;

	PL_CHECK(pl_grow(&o.turn, &o.cap, x->t.n_pieces + x->n_sets, sizeof(*o.turn), err));
	for (size_t i = 0; i < x->t.n_pieces; i++)
		o.turn[n++] = x->t.piece[i];
	for (uint32_t s = 0; s < x->n_sets; s++)
		if (x->parts[s] == 1 && x->use_off[s] != x->use_off[s + 1])
			o.turn[n++] =
				(struct pl_sim_events_piece){ s, 0, 1, x->t.start[s], x->t.end[s] };
	pl_sort(o.turn, n, sizeof(*o.turn), by_time);
	for (size_t i = 0; i < n; i++) {
		struct pl_sim_events_piece *last = o.n ? &o.turn[o.n - 1] : NULL;

		if (last && last->task == o.turn[i].task && last->end == o.turn[i].start) {
			last->to = o.turn[i].to;
			last->end = o.turn[i].end;
		} else {
			o.turn[o.n++] = o.turn[i];
		}
	}
	*same &= same_order(&o, old);
	pl_free(old->turn);
	*old = o;
	return 0;
}

/* ---- all passes -------------------------------------------------------------------------------
 */

static int one_round(struct pass_job *x, struct rw_order *o, bool *same, struct pl_err *err)
{
	struct pl_rewriter *r = x->r;
	int rc = 0;

	*same = true;
	for (uint32_t k = r->step_pass[r->from]; rc == 0 && k < r->step_pass[r->to]; k++) {
		make_job(x, k);
		PL_TRY(run_job(x, err));
		if (r->slowdown)
			put_durations(x);
		if (rw_now(r)->prioritized)
			PL_TRY(put_order(x, &o[k], same, err));
	}
out:
	return rc;
}

int pl_rewrite_contend(struct pl_rewriter *r, struct pl_err *err)
{
	struct rw_order *o = NULL;
	struct pass_job x = { .r = r };
	uint64_t turns = 1;
	bool same = false;
	int rc;

	if (!r->slowdown && !rw_now(r)->prioritized)
		return 0;
	PL_TRY(job_init(&x, r, err));
	PL_TRY(pl_alloc(&o, r->n_passes, sizeof(*o), err));
	if (!r->slowdown)
		PL_TRY(pl_sim_settle(r->e, err));
	for (uint32_t s = 0; s < rw_now(r)->b.n_sets; s++)
		turns += (uint64_t)r->n_passes * (1 + rw_now(r)->b.parts[s]);
	for (uint64_t round = 0; !same; round++) {
		if (round > turns) {
			rc = pl_fail(err, PL_EDATA, "the order of the transfers never settles");
			goto out;
		}
		pl_rewrite_join_pieces(r); /* transfers are whole again */
		PL_TRY(one_round(&x, o, &same, err));
		if (!rw_now(r)->prioritized)
			break;
		PL_TRY(pl_rewrite_chain_in_order(r, o, err));
		same |= r->slowdown != NULL;
	}
out:
	for (uint32_t k = 0; o && k < r->n_passes; k++)
		pl_free(o[k].turn);
	pl_free(o);
	job_fini(&x);
	return rw_result(r, rc, err);
}
