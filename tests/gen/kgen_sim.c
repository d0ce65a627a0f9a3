/*
 * kgen_sim.c - gives every host and GPU operation of the job its start and end.
 *
 * Host threads run their scripts; streams are queues served in order; an operation whose inputs
 * are not known yet (an event, the other members of a collective, a kernel the host waits for)
 * blocks its thread or queue and is tried again when something else has moved.  All rules are of
 * the form "start = maximum of known times plus a constant", so the result does not depend on the
 * order in which ready operations are taken and no global clock is needed.  The cost is linear in
 * the operations plus, for each round, one look at every blocked thread and queue.
 */
#include "kgen.h"

#include <stdlib.h>

#define EVENT_LATENCY_NS 1800	/* from an event on one stream to the start on another */
#define DISPATCH_GAP_NS	 1100	/* between kernels queued back to back */
#define SYNC_WAKE_NS	 6500	/* from the end of GPU work to the return of the waiting call */
#define THREAD_WAKE_NS	 14000	/* from a hand-over to the other thread running */
#define END_SPREAD_NS	 6000.0 /* collectives end this far apart at most */

/* Everything queued below index limit has left the queue. */
static bool drained(const struct kg_rank *r, int stream, uint32_t limit)
{
	const struct kg_queue *q = &r->q[stream];

	return q->head == q->n || q->item[q->head] >= limit;
}

/* Time at which the GPU work waited for is over; false if not known yet. */
static bool sync_time(const struct kg_rank *r, const struct kg_hop *h, int64_t *t)
{
	*t = 0;
	if (h->sync == KG_SYNC_EVENT) {
		*t = r->gop[h->limit].end;
		return r->gop[h->limit].done;
	}
	for (int s = 0; s < KG_NSTREAM; s++) {
		if (h->sync == KG_SYNC_STREAM && s != h->sync_stream)
			continue;
		if (!drained(r, s, h->limit))
			return false;
		if (r->q[s].free > *t)
			*t = r->q[s].free;
	}
	return true;
}

/* The operation that must have left the queue before there is room for this one, NULL if none. */
static const struct kg_gop *room_from(const struct kg_cfg *cfg, const struct kg_rank *r, uint32_t i)
{
	const struct kg_queue *q = &r->q[r->gop[i].stream];
	uint32_t depth = (uint32_t)cfg->queue_depth, place = r->gop[i].place;

	if (!cfg->queue_per_stream)
		return i >= depth ? &r->gop[i - depth] : NULL;
	return place >= depth ? &r->gop[q->item[place - depth]] : NULL;
}

/* Time at which the call's last operation has room; false if not known yet. */
static bool room_time(const struct kg_cfg *cfg, const struct kg_rank *r, const struct kg_hop *h,
		      int64_t *t)
{
	for (uint32_t i = h->first; i < h->first + h->n; i++) {
		const struct kg_gop *old = room_from(cfg, r, i);

		if (old && (!old->launched || !old->done))
			return false;
		if (old && old->start > *t)
			*t = old->start;
	}
	return true;
}

/* Returns false if the call has to wait for something not known yet. */
static bool run_call(const struct kg_cfg *cfg, struct kg_rank *r, struct kg_thread *t,
		     struct kg_hop *h)
{
	int64_t end, gpu;

	if (!h->issued) {
		int64_t accepted = t->now;

		if (!room_time(cfg, r, h, &accepted))
			return false;
		h->start = t->now;
		t->now = accepted; /* a full queue lengthens the call */
		for (uint32_t i = h->first; i < h->first + h->n; i++) {
			r->gop[i].ready = accepted + r->gop[i].latency;
			r->gop[i].launched = true;
		}
		h->issued = true;
	}
	end = t->now + h->dur;
	if (h->sync != KG_SYNC_NONE) {
		if (!sync_time(r, h, &gpu))
			return false;
		if (gpu + SYNC_WAKE_NS > end)
			end = gpu + SYNC_WAKE_NS;
	}
	h->end = t->now = end;
	return true;
}

static bool run_thread(const struct kg_cfg *cfg, struct kg_rank *r, struct kg_thread *t)
{
	size_t before = t->pc;

	for (; t->pc < t->n; t->pc++) {
		struct kg_hop *h = &t->op[t->pc];

		switch (h->kind) {
		case KG_H_BEGIN:
			h->start = t->now;
			t->open[t->depth++] = (uint32_t)t->pc;
			break;
		case KG_H_END:
			t->op[t->open[--t->depth]].end = t->now;
			break;
		case KG_H_BUSY:
			t->now += h->dur;
			break;
		case KG_H_CALL:
			if (!run_call(cfg, r, t, h))
				return t->pc != before;
			break;
		case KG_H_POST:
			r->token[h->token] = t->now;
			break;
		default: /* KG_H_AWAIT */
			if (r->token[h->token] < 0)
				return t->pc != before;
			if (r->token[h->token] + THREAD_WAKE_NS > t->now)
				t->now = r->token[h->token] + THREAD_WAKE_NS;
			break;
		}
	}
	return t->pc != before;
}

/* The last member has arrived: everybody ends now, apart from a little spread. */
static void finish_coll(struct kg_job *job, struct kg_coll *c)
{
	const struct kg_group *g = &job->group[c->group];

	for (int i = 0; i < g->n; i++) {
		struct kg_gop *op = &job->rank[g->rank[i]].gop[c->gop[i]];
		uint64_t key = kg_hash(kg_hash(job->cfg.noise_seed, (uint64_t)g->rank[i] + 77),
				       kg_hash((uint64_t)c->group, c->seq));
		double spread = job->cfg.jitter > 0 ? END_SPREAD_NS * kg_uniform(key) : 0;

		op->end = c->last_start + c->transfer_ns + (int64_t)spread;
		op->done = true;
	}
}

static void arrive(struct kg_job *job, struct kg_gop *op, int64_t start)
{
	struct kg_coll *c = &job->coll[op->dep];

	op->start = start;
	op->arrived = true;
	if (start > c->last_start)
		c->last_start = start;
	if (++c->n_arrived == job->group[c->group].n)
		finish_coll(job, c);
}

static bool run_queue(struct kg_job *job, struct kg_rank *r, struct kg_queue *q)
{
	size_t before = q->head;

	for (; q->head < q->n; q->head++) {
		struct kg_gop *op = &r->gop[q->item[q->head]];
		int64_t start;

		if (!op->launched)
			break;
		start = q->free + DISPATCH_GAP_NS;
		if (op->ready > start)
			start = op->ready;
		if (op->kind == KG_G_WAIT) {
			const struct kg_gop *ev = &r->gop[op->dep];

			if (!ev->done)
				break;
			op->start = q->free;
			if (ev->end > q->free)
				q->free = ev->end + EVENT_LATENCY_NS;
			op->end = q->free;
		} else if (op->kind == KG_G_RECORD) {
			op->start = op->end = q->free > op->ready ? q->free : op->ready;
		} else if (op->kind == KG_G_COLL) {
			if (!op->arrived)
				arrive(job, op, start);
			if (!op->done)
				break;
			q->free = op->end;
		} else {
			op->start = start;
			op->end = q->free = start + op->dur;
		}
		op->done = true;
	}
	return q->head != before;
}

static void check_done(const struct kg_job *job)
{
	for (int i = 0; i < job->cfg.ranks; i++) {
		const struct kg_rank *r = &job->rank[i];
		bool ok = true;

		for (int t = 0; t < 2; t++)
			ok = ok && r->th[t].pc == r->th[t].n && r->th[t].depth == 0;
		for (int s = 0; s < KG_NSTREAM; s++)
			ok = ok && r->q[s].head == r->q[s].n;
		if (!ok)
			kg_die(KG_EXIT_BUG, "rank %d is blocked for ever", i);
	}
}

static void run(struct kg_job *job)
{
	bool moved;

	do {
		moved = false;
		for (int i = 0; i < job->cfg.ranks; i++) {
			struct kg_rank *r = &job->rank[i];

			for (int t = 0; t < 2; t++)
				moved |= run_thread(&job->cfg, r, &r->th[t]);
			for (int s = 0; s < KG_NSTREAM; s++)
				moved |= run_queue(job, r, &r->q[s]);
		}
	} while (moved);
	check_done(job);
}

static void reset(struct kg_job *job)
{
	for (int i = 0; i < job->cfg.ranks; i++) {
		struct kg_rank *r = &job->rank[i];

		for (int t = 0; t < 2; t++) {
			r->th[t].now = t ? 0 : r->begin_ns;
			r->th[t].pc = 0;
			r->th[t].depth = 0;
			for (size_t k = 0; k < r->th[t].n; k++)
				r->th[t].op[k].issued = false;
		}
		for (size_t k = 0; k < r->n_gop; k++)
			r->gop[k].launched = r->gop[k].arrived = r->gop[k].done = false;
		for (int s = 0; s < KG_NSTREAM; s++)
			r->q[s].head = 0, r->q[s].free = 0;
		for (size_t k = 0; k < r->n_token; k++)
			r->token[k] = -1;
	}
	for (size_t k = 0; k < job->n_coll; k++)
		job->coll[k].n_arrived = 0, job->coll[k].last_start = 0;
}

static int by_start(const void *pa, const void *pb)
{
	const struct kg_gop *a = *(struct kg_gop *const *)pa, *b = *(struct kg_gop *const *)pb;

	return (a->start > b->start) - (a->start < b->start);
}

/* How long a kernel takes that is slower during these communications, ordered by start. */
static int64_t slowed(const struct kg_gop *g, struct kg_gop *const *comm, size_t n, double factor)
{
	double left = (double)g->alone, at = (double)g->start;

	for (size_t i = 0; i < n && left > 0; i++) {
		double from = (double)comm[i]->start, end = (double)comm[i]->end;

		if (end <= at)
			continue;
		if (from > at) {
			double free = from - at < left ? from - at : left;

			left -= free;
			at += free;
		}
		if (left > 0) {
			double until = end - at < left * factor ? end - at : left * factor;

			left -= until / factor;
			at += until;
		}
	}
	return (int64_t)(at + left) - g->start;
}

/* Gives the kernels of a rank the durations that follow from the times of its communication. */
static bool contend(const struct kg_cfg *cfg, struct kg_rank *r)
{
	struct kg_gop **comm = kg_alloc(r->n_gop, sizeof(*comm));
	size_t n = 0;
	bool changed = false;

	for (size_t k = 0; k < r->n_gop; k++)
		if (r->gop[k].kind == KG_G_COLL)
			comm[n++] = &r->gop[k];
	qsort(comm, n, sizeof(*comm), by_start);
	for (size_t k = 0; k < r->n_gop; k++) {
		struct kg_gop *g = &r->gop[k];
		int64_t dur;

		if (g->kind != KG_G_KERNEL)
			continue;
		dur = slowed(g, comm, n, cfg->contention);
		changed |= dur != g->dur;
		g->dur = dur;
	}
	free(comm);
	return changed;
}

/*
 * Durations that depend on times: simulate, give each kernel its duration, until nothing changes.
 * What happens early is right first, and every round has a longer right beginning.
 */
void kg_simulate(struct kg_job *job)
{
	bool changed;

	for (int i = 0; i < job->cfg.ranks; i++)
		for (size_t k = 0; k < job->rank[i].n_gop; k++)
			job->rank[i].gop[k].alone = job->rank[i].gop[k].dur;
	do {
		changed = false;
		reset(job);
		run(job);
		for (int i = 0; i < job->cfg.ranks && job->cfg.contention > 1; i++)
			changed |= contend(&job->cfg, &job->rank[i]);
	} while (changed);
}
