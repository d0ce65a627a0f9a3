/*
 * Sends and receives that a thread posts, and waits for later.
 *
 * PyTorch records a send or receive of gloo on the thread that posts it, from the call until
 * somebody waits for it. So these spans are no work of the thread: they overlap its operations.
 * Each becomes an arrival and a transfer on a resource of its own ("sends", "receives" of the
 * rank). The arrival follows the operation before the call. The thread waits where the span ended:
 * its pause there is cut in two, the time until the wait and the rest, which follows the transfer.
 *
 * A send and its receive are a rendezvous, because gloo transfers data only when both were posted.
 * (A send that ended before its receive was posted had a buffer, and did not wait.) The end of a
 * transfer is known only if a thread waited for it. A pause shows this: the thread was idle when
 * both had been posted, or idle for longer than an interpreter needs between two operations. All
 * other transfers ended before the wait began. Each of them gets the median time of those that are
 * known, of the same size if there are such, but ends before its wait.
 *
 * The messages from one rank to another follow one another, because they share a connection: a
 * transfer begins when both sides were posted and the transfer before has ended.
 *
 * A wait that was not needed follows its transfer too, because a changed job may need it. Cost:
 * sorting.
 */
#include "derive/internal.h"

#define PAUSE_MIN_NS 1000000 /* the interpreter takes less time between two operations */
#define EARLY_NS     50000   /* clocks are aligned better than this */

struct side {
	struct posted *p;
	uint32_t pause; /* the node of the thread in which the wait ended, PL_NONE */
	pl_ns idle;	/* since when the thread did nothing else */
};

struct pair {
	struct side *send, *recv;
	uint32_t from, to; /* indices of the ranks */
	pl_ns ready;	   /* when both were posted */
};

struct cut_pause {
	uint32_t pause, rest; /* the node, and what is left of it after its last wait */
};

struct sample { /* a transfer whose end is known */
	int64_t bytes;
	pl_ns ns;
};

struct sends {
	struct builder *b;
	struct side *side; /* [posted] */
	struct side **by_wait;
	struct pair *pair;
	size_t n_pairs;
	struct cut_pause *cut;
	size_t n_cut;
	struct sample *sample;
	size_t n_samples, cap_samples;
	pl_ns any; /* the median of all samples */
};

/* ---- their nodes ----------------------------------------------------------------------------- */

/* The resource of the rank for such sends, or receives; like that of the thread. */
static uint32_t resource_for(struct builder *b, uint32_t thread, uint32_t *known, const char *name)
{
	struct pl_resource r = b->g->res[thread];

	if (*known != PL_NONE)
		return *known;
	r.name = pl_derive_intern_text(b->err, &b->g->str, name);
	r.track_type = PL_T_LINK;
	*known = pl_derive_resource(b, &r, b->resource[thread].rank_index);
	return *known == PL_NONE ? thread : *known;
}

void pl_derive_post(struct builder *b, size_t first)
{
	uint32_t sends = PL_NONE, recvs = PL_NONE;

	for (size_t i = first; i < b->n_posted; i++) {
		struct posted *p = &b->posted[i];
		bool send = p->op->kind == PL_K_SEND;
		uint32_t res = send ? resource_for(b, p->thread, &sends, "sends")
				    : resource_for(b, p->thread, &recvs, "receives");
		struct node n = pl_derive_node_of(b, p->op, res, true);

		n.flags |= PL_NF_MISSING; /* until the partner is found */
		n.start = p->at;
		n.dur = 0;
		n.role = PL_RO_ARRIVE;
		p->arrive = p->op->node = pl_derive_node(b, &n);
		n.role = PL_RO_TRANSFER;
		n.dur = p->op->end - p->at;
		p->op->last = pl_derive_node(b, &n);
		pl_derive_add_arrival(b, p->op);
		pl_derive_edge(b, p->arrive, p->op->last, PL_E_SEQ);
		p->op = NULL; /* it will not live longer */
	}
}

struct posted *pl_derive_posted(const struct builder *b, uint32_t arrive)
{
	size_t i = 0;

	PL_LOWER_BOUND(i, b->n_posted, b->posted[i].arrive < arrive);
	return i < b->n_posted && b->posted[i].arrive == arrive ? &b->posted[i] : NULL;
}

/* ---- where threads waited -------------------------------------------------------------------- */

static int by_wait(const void *pa, const void *pb)
{
	const struct posted *a = (*(struct side *const *)pa)->p,
			    *b = (*(struct side *const *)pb)->p;

	return PL_COMPARE_FIELDS(a, b, thread, end, arrive);
}

/* Of several waits in one pause, each but the first began when the one before ended. */
static void find_waits(struct sends *s)
{
	struct builder *b = s->b;

	for (size_t i = 0; i < b->n_posted; i++) {
		s->side[i] = (struct side){ .p = &b->posted[i] };
		s->by_wait[i] = &s->side[i];
	}
	pl_sort(s->by_wait, b->n_posted, sizeof(struct side *), by_wait);
	for (size_t i = 0; i < b->n_posted; i++) {
		struct side *x = s->by_wait[i], *last = i ? s->by_wait[i - 1] : NULL;
		const struct resource *thread = &b->resource[x->p->thread];
		uint32_t n = thread->node0;

		PL_LOWER_BOUND(n, thread->node1, pl_derive_end(b, n) < x->p->end);
		x->pause = n < thread->node1 ? n : PL_NONE;
		if (x->pause == PL_NONE)
			continue;
		x->idle = b->node[n].start;
		if (last && last->p->thread == x->p->thread && last->pause == n)
			x->idle = pl_max_i64(x->idle, last->p->end);
	}
}

/* ---- how long transfers take ----------------------------------------------------------------- */

static int64_t bytes_of(const struct builder *b, const struct pair *k)
{
	return pl_max_i64(b->attr[b->node[k->send->p->arrive].attr].bytes,
			  b->attr[b->node[k->recv->p->arrive].attr].bytes);
}

/* Was the thread idle when the transfer, begun at `ready` and `ns` long, ended? */
static bool waited(const struct side *x, pl_ns ready, pl_ns ns)
{
	return x->pause != PL_NONE && x->p->end > ready && x->idle <= ready + ns;
}

static bool paused(const struct side *x, pl_ns ready)
{
	return x->pause != PL_NONE && x->p->end > ready && x->p->end - x->idle >= PAUSE_MIN_NS;
}

PL_COMPARATOR(by_size, struct sample, bytes, ns);

/* The message before pair `i` between the same ranks, NULL: none. */
static const struct pair *before_of(const struct sends *s, size_t i)
{
	const struct pair *k = &s->pair[i];

	return i && k[-1].from == k->from && k[-1].to == k->to ? k - 1 : NULL;
}

/* Takes samples from the receives that waited; if there are none, from long pauses. */
static void find_samples(struct sends *s)
{
	struct builder *b = s->b;
	int64_t *v = NULL;

	for (int pass = 0; pass < 2 && !s->n_samples; pass++)
		for (size_t i = 0; i < s->n_pairs; i++) {
			const struct pair *k = &s->pair[i], *before = before_of(s, i);
			pl_ns begin = k->ready;

			if (before && waited(before->recv, before->ready, 0))
				begin = pl_max_i64(begin, before->recv->p->end);
			if (pass ? paused(k->recv, begin) : waited(k->recv, begin, 0))
				PL_DERIVE_ADD(
					b->err, s->sample, s->n_samples, s->cap_samples,
					(struct sample){ bytes_of(b, k), k->recv->p->end - begin });
		}
	pl_sort(s->sample, s->n_samples, sizeof(*s->sample), by_size);
	if (pl_alloc(&v, s->n_samples, sizeof(*v), b->err) < 0)
		return;
	for (size_t i = 0; i < s->n_samples; i++)
		v[i] = s->sample[i].ns;
	s->any = s->n_samples ? pl_median_i64(v, s->n_samples) : 0;
	pl_free(v);
}

/* The median of the samples of this size, of all if there are none. */
static pl_ns usual(const struct sends *s, int64_t bytes)
{
	size_t i = 0, k;

	PL_LOWER_BOUND(i, s->n_samples, s->sample[i].bytes < bytes);
	for (k = i; k < s->n_samples && s->sample[k].bytes == bytes;)
		k++;
	return k > i ? s->sample[i + (k - i) / 2].ns : s->any;
}

/* The transfer of one side, which can begin at `ready` and usually takes `ns`. */
static void set_transfer(const struct sends *s, const struct side *x, pl_ns ready, pl_ns ns)
{
	struct node *t = &s->b->node[x->p->arrive + 1];
	pl_ns end = x->p->end;

	if (!waited(x, ready, ns) && !paused(x, ready))
		end = pl_min_i64(ready + ns, x->pause == PL_NONE ? end : x->idle);
	t->start = ready;
	t->dur = pl_max_i64(0, end - ready);
}

/* One side of a pair, whose link is free after the node `before`, if there is one. */
static void join_side(const struct sends *s, const struct side *x, uint32_t meet, uint32_t before,
		      pl_ns ready, pl_ns ns)
{
	struct builder *b = s->b;
	pl_ns free_at = before == PL_NONE ? INT64_MIN : pl_derive_end(b, before);

	pl_derive_edge(b, meet, x->p->arrive + 1, PL_E_COMM);
	if (free_at <= x->p->end) { /* else it did not wait for that */
		pl_derive_edge(b, before, x->p->arrive + 1, PL_E_SEQ);
		ready = pl_max_i64(ready, free_at);
	}
	set_transfer(s, x, ready, ns);
}

static void join(const struct sends *s, size_t i)
{
	const struct pair *k = &s->pair[i], *last = before_of(s, i);
	const uint32_t at[2] = { k->send->p->arrive, k->recv->p->arrive };
	uint32_t before = last ? last->recv->p->arrive + 1 : PL_NONE;
	pl_ns ns = usual(s, bytes_of(s->b, k));
	struct builder *b = s->b;
	uint32_t meet = pl_derive_rendezvous(b, at, 2, k->ready, b->node[at[0]].group);

	for (size_t m = 0; m < 2; m++)
		pl_derive_edge(b, at[m], meet, PL_E_COMM);
	join_side(s, k->recv, meet, before, k->ready, ns);
	if (k->send->p->end >= k->ready)
		join_side(s, k->send, meet, before, k->ready, ns);
	else
		set_transfer(s, k->send, k->send->p->at, ns);
}

/* ---- the waits ------------------------------------------------------------------------------- */

static bool needed(const struct sends *s, const struct side *x)
{
	return pl_derive_end(s->b, x->p->arrive + 1) > x->idle;
}

/* How long the interpreter takes until it waits: the median of the waits that were not needed. */
static pl_ns usual_call(const struct sends *s)
{
	size_t n = 0;
	int64_t *v = NULL;
	pl_ns ns = 0;

	if (pl_alloc(&v, s->b->n_posted, sizeof(*v), s->b->err) < 0)
		return 0;
	for (size_t i = 0; i < s->b->n_posted; i++)
		if (s->side[i].pause != PL_NONE && !needed(s, &s->side[i]))
			v[n++] = s->side[i].p->end - s->side[i].idle;
	if (n)
		ns = pl_median_i64(v, n);
	pl_free(v);
	return ns;
}

/* Cuts the pause, or what other waits left of it. Returns the part after the wait. */
static uint32_t add_wait(const struct sends *s, const struct side *x, uint32_t pause, pl_ns call)
{
	struct builder *b = s->b;
	struct node *n = &b->node[pause], rest = *n;
	pl_ns until = pl_max_i64(n->start, x->p->end);
	uint32_t id;

	rest.start = until;
	rest.dur = pl_max_i64(0, n->start + n->dur - until);
	rest.work = PL_NONE;
	n->dur = until - n->start;
	if (needed(s, x))
		n->dur = pl_min_i64(n->dur, call);
	id = pl_derive_node(b, &rest);
	pl_derive_edge(b, pause, id, PL_E_SEQ);
	pl_derive_edge(b, x->p->arrive + 1, id, PL_E_WAIT);
	b->g->recorded_waits++;
	return id;
}

static void add_waits(struct sends *s)
{
	struct builder *b = s->b;
	pl_ns call = usual_call(s);

	for (size_t i = 0; i < b->n_posted; i++) {
		const struct side *x = s->by_wait[i];
		struct cut_pause *cut = s->n_cut ? &s->cut[s->n_cut - 1] : NULL;

		if (x->pause == PL_NONE || b->node[x->pause].role == PL_RO_MARK)
			continue;
		if (!cut || cut->pause != x->pause) {
			cut = &s->cut[s->n_cut++];
			*cut = (struct cut_pause){ x->pause, x->pause };
		}
		cut->rest = add_wait(s, x, cut->rest, call);
	}
}

PL_COMPARATOR(by_pause, struct cut_pause, pause);

/* What followed a pause follows the rest of it: the next node of the thread, and what was posted
 * at its end. */
static void follow_rests(struct sends *s)
{
	struct builder *b = s->b;

	pl_sort(s->cut, s->n_cut, sizeof(*s->cut), by_pause);
	for (size_t i = 0; i < s->n_cut; i++) {
		const struct cut_pause *cut = &s->cut[i];

		if (cut->pause + 1 < b->resource[b->node[cut->pause].res].node1)
			pl_derive_edge(b, cut->rest, cut->pause + 1, PL_E_SEQ);
	}
	for (size_t i = 0; i < b->n_posted; i++) {
		const struct posted *p = &b->posted[i];
		size_t k = 0;

		PL_LOWER_BOUND(k, s->n_cut, s->cut[k].pause < p->issue);
		pl_derive_edge(
			b, k < s->n_cut && s->cut[k].pause == p->issue ? s->cut[k].rest : p->issue,
			p->arrive, PL_E_LAUNCH);
	}
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int by_link(const void *pa, const void *pb)
{
	const struct pair *a = pa, *b = pb;
	int order = PL_COMPARE_FIELDS(a, b, from, to, ready);

	return order ? order : PL_COMPARE(a->send->p->arrive, b->send->p->arrive);
}

/* The pairs, from the sends and the numbers of their receives. One whose receive ended before its
 * send was posted is no pair. */
static void find_pairs(struct sends *s)
{
	struct builder *b = s->b;

	for (size_t i = 0; i < b->n_posted; i++) {
		struct posted *send = &b->posted[i], *recv;

		if (send->partner == PL_NONE)
			continue;
		recv = pl_derive_posted(b, send->partner);
		if (recv->end + EARLY_NS < send->at) {
			b->g->unmatched_comm += 2;
			continue;
		}
		for (uint32_t k = 0; k < 2; k++) {
			b->node[send->arrive + k].flags &= (uint8_t)~PL_NF_MISSING;
			b->node[recv->arrive + k].flags &= (uint8_t)~PL_NF_MISSING;
		}
		s->pair[s->n_pairs++] = (struct pair){
			.send = &s->side[i],
			.recv = &s->side[recv - b->posted],
			.from = b->resource[send->thread].rank_index,
			.to = b->resource[recv->thread].rank_index,
			.ready = pl_max_i64(send->at, recv->at),
		};
	}
	pl_sort(s->pair, s->n_pairs, sizeof(*s->pair), by_link);
}

void pl_derive_sends(struct builder *b)
{
	struct sends s = { .b = b };
	int rc;

	if (!b->n_posted)
		return;
	PL_TRY(pl_alloc(&s.side, b->n_posted, sizeof(*s.side), b->err));
	PL_TRY(pl_alloc(&s.by_wait, b->n_posted, sizeof(*s.by_wait), b->err));
	PL_TRY(pl_alloc(&s.cut, b->n_posted, sizeof(*s.cut), b->err));
	PL_TRY(pl_alloc(&s.pair, b->n_posted, sizeof(*s.pair), b->err));
	find_waits(&s);
	find_pairs(&s);
	find_samples(&s);
	for (size_t i = 0; i < b->n_posted; i++)
		if (b->node[b->posted[i].arrive].flags & PL_NF_MISSING)
			set_transfer(&s, &s.side[i], b->posted[i].at, s.any);
	for (size_t i = 0; i < s.n_pairs; i++)
		join(&s, i);
	add_waits(&s);
	follow_rests(&s);
out:
	pl_free(s.side);
	pl_free(s.by_wait);
	pl_free(s.pair);
	pl_free(s.cut);
	pl_free(s.sample);
}
