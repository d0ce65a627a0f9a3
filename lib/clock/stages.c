/*
 * Peers of pipeline stages that nobody recorded.
 *
 * Stages are laid out regularly: if rank r sends to rank r + d, so does every rank that sends on
 * that stream. A distance d fits if each sender has a receiver (a stream of as many receives) at
 * that distance, and each receiver has a sender. If no distance fits, partners may be ranks that
 * are not in the input. Usually one distance is left; of several, the likeliest is used (layout.c).
 * Pairs join clocks, which helps to tell the next distances apart: so streams with the fewest
 * choices come first.
 *
 * Cost: streams squared x distances, each that of a layout.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock/layout.h"

#define MAX_IMPOSSIBLE 0.1
#define NEAR_COST      3.0 /* nats */
#define MAX_SETS       64  /* streams */

struct set { /* the streams of one kind on one stream, by rank */
	struct pl_half_stream **comm_stream;
	uint32_t n;
	uint8_t kind;
	bool used;
};

struct pairing {
	struct set *to;
	int32_t distance;
	uint32_t missing; /* partners */
	double cost;	  /* each event */
	bool determined;
};

struct stages {
	struct pl_align *a;
	struct pl_merge *m;
	struct pl_partitions is;
	struct set set[MAX_SETS];
	uint32_t n;
};

static bool one_kind(const struct pl_align *a, const struct pl_seq *s)
{
	for (uint32_t i = 1; i < s->n; i++)
		if (a->ev[s->ev[i]].kind != a->ev[s->ev[0]].kind)
			return false;
	return true;
}

static uint8_t kind_of(const struct stages *g, const struct pl_half_stream *l)
{
	return g->a->ev[l->s.ev[0]].kind;
}

static int by_rank(const void *x, const void *y)
{
	const struct pl_half_stream *p = *(struct pl_half_stream *const *)x;
	const struct pl_half_stream *q = *(struct pl_half_stream *const *)y;

	return PL_COMPARE(p->s.rank, q->s.rank);
}

static int put_stream(struct stages *g, struct pl_half_stream *l, uint32_t comm_streams,
		      struct pl_err *err)
{
	uint8_t kind = kind_of(g, l);
	struct set *s;
	uint32_t i = 0;
	int rc;

	while (i < g->n &&
	       (g->set[i].kind != kind || g->set[i].comm_stream[0]->stream != l->stream))
		i++;
	if (i == MAX_SETS)
		return 0;
	s = &g->set[i];
	if (i == g->n) {
		PL_TRY(pl_alloc(&s->comm_stream, comm_streams, sizeof(struct pl_half_stream *),
				err));
		s->kind = kind;
		g->n++;
	}
	s->comm_stream[s->n++] = l;
	return 0;
out:
	return rc;
}

/* Streams are not laid out alike where a rank has one twice: leave those. */
static void settle_set(struct set *s)
{
	qsort(s->comm_stream, s->n, sizeof(struct pl_half_stream *), by_rank);
	for (uint32_t i = 1; i < s->n; i++)
		s->used |= s->comm_stream[i]->s.rank == s->comm_stream[i - 1]->s.rank;
}

static struct pl_half_stream *comm_stream_of(const struct set *s, int64_t rank)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->comm_stream[i]->s.rank == rank)
			return s->comm_stream[i];
	return NULL;
}

static bool is_known(const struct pl_align *a, int64_t rank)
{
	for (size_t i = 0; i < a->n_sr; i++)
		if (a->sr[i].rank == rank)
			return true;
	return false;
}

/* Do all streams of x have one `d` ranks on in y, unless that rank is not there? How many do? */
static uint32_t fits(const struct stages *g, const struct set *x, const struct set *y, int32_t d,
		     uint32_t *missing)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < x->n; i++) {
		int64_t rank = (int64_t)x->comm_stream[i]->s.rank + d;
		const struct pl_half_stream *o = comm_stream_of(y, rank);

		if (!o && is_known(g->a, rank))
			return 0;
		if (o &&
		    (o->s.n > x->comm_stream[i]->s.n + 2 || x->comm_stream[i]->s.n > o->s.n + 2))
			return 0;
		n += o != NULL;
	}
	for (uint32_t i = 0; i < y->n; i++) {
		int64_t rank = (int64_t)y->comm_stream[i]->s.rank - d;

		if (!comm_stream_of(x, rank) && is_known(g->a, rank))
			return 0;
	}
	*missing = x->n + y->n - 2 * n;
	return n;
}

static int weigh(struct stages *g, const struct set *x, struct pairing *p, uint32_t pairs,
		 bool *possible, struct pl_err *err)
{
	const struct pl_seq **comm_stream = NULL;
	struct pl_layout l = { 0 };
	uint32_t *group = NULL, n = 0, ends = 0;
	struct pl_clock_layout_cost c;
	int rc;

	PL_TRY(pl_alloc(&comm_stream, 2u * (size_t)pairs, sizeof(*comm_stream), err));
	PL_TRY(pl_alloc(&group, 2u * (size_t)pairs, sizeof(*group), err));
	for (uint32_t i = 0; i < x->n; i++) {
		const struct pl_half_stream *o =
			comm_stream_of(p->to, (int64_t)x->comm_stream[i]->s.rank + p->distance);

		if (!o)
			continue;
		group[n] = group[n + 1] = n / 2;
		comm_stream[n++] = &x->comm_stream[i]->s;
		comm_stream[n++] = &o->s;
	}
	PL_TRY(pl_clock_layout_init(&l, g->a, &g->is, comm_stream, n, err));
	c = pl_clock_layout_cost(&l, group, pairs);
	ends = pairs * l.k;
	p->cost = c.cost / ends;
	p->determined = c.determined;
	*possible = c.impossible <= MAX_IMPOSSIBLE * ends;
out:
	pl_clock_layout_fini(&l);
	pl_free(comm_stream);
	pl_free(group);
	return rc;
}

static bool is_better(const struct pairing *p, const struct pairing *q)
{
	if (!p->missing != !q->missing)
		return !p->missing;
	return p->cost < q->cost;
}

/* All that the senders x could be paired with: the best, and how many of its like there are. */
static int choices(struct stages *g, const struct set *x, struct pairing *best, uint32_t *n,
		   bool *doubtful, struct pl_err *err)
{
	struct pairing second = { .missing = 1, .cost = INFINITY };
	int rc = 0;

	*n = 0;
	*best = second;
	for (uint32_t i = 0; i < g->n; i++) {
		struct set *y = &g->set[i];

		for (uint32_t k = 0; k < y->n && !y->used && y->kind == PL_K_RECV; k++) {
			struct pairing p = { .to = y };
			uint32_t pairs = 0;
			bool possible = false;

			p.distance = y->comm_stream[k]->s.rank - x->comm_stream[0]->s.rank;
			if (p.distance)
				pairs = fits(g, x, y, p.distance, &p.missing);
			if (p.missing && x->comm_stream[0]->s.n >= PL_SEQ_PAIRS)
				continue; /* their scatter tells more */
			if (pairs)
				PL_TRY(weigh(g, x, &p, pairs, &possible, err));
			if (!possible)
				continue;
			*n = *n && !p.missing == !best->missing ? *n + 1 : *n;
			if (is_better(&p, best)) {
				*n = *n && !p.missing == !best->missing ? *n : 1;
				second = *best;
				*best = p;
			} else if (is_better(&p, &second)) {
				second = p;
			}
		}
	}
	*doubtful = *n > 1 && (!best->determined || (second.cost - best->cost) * x->n < NEAR_COST);
out:
	return rc;
}

static int pair_sets(struct stages *g, struct set *x, const struct pairing *p, struct pl_err *err)
{
	int rc = 0;

	x->used = p->to->used = true;
	for (uint32_t i = 0; i < x->n; i++) {
		struct pl_half_stream *o =
			comm_stream_of(p->to, (int64_t)x->comm_stream[i]->s.rank + p->distance);

		if (!o)
			continue;
		x->comm_stream[i]->paired = o->paired = true;
		PL_TRY(pl_clock_pair_streams(g->a, &x->comm_stream[i]->s, &o->s, err));
	}
out:
	return rc;
}

/* Pair the senders that have the fewest choices. */
static int next_pairing(struct stages *g, bool *found, struct pl_err *err)
{
	struct set *from = NULL;
	struct pairing best = { 0 };
	uint32_t fewest = UINT32_MAX;
	bool doubt = false;
	int rc;

	*found = false;
	PL_TRY(pl_clock_partitions(g->a, g->m, &g->is, err));
	for (uint32_t i = 0; i < g->n; i++) {
		struct pairing p;
		uint32_t n;
		bool doubtful;

		if (g->set[i].used || g->set[i].kind != PL_K_SEND)
			continue;
		PL_TRY(choices(g, &g->set[i], &p, &n, &doubtful, err));
		if (!n || n >= fewest)
			continue;
		from = &g->set[i];
		best = p;
		fewest = n;
		doubt = doubtful;
	}
	if (!from)
		return 0;
	*found = true;
	g->a->rep->doubtful += doubt;
	PL_TRY(pair_sets(g, from, &best, err));
out:
	return rc;
}

int pl_clock_stages(struct pl_align *a, struct pl_merge *m, struct pl_half_stream *v, uint32_t n,
		    struct pl_err *err)
{
	struct stages g = { .a = a, .m = m };
	bool found = true;
	int rc = 0;

	for (uint32_t i = 0; i < n; i++)
		if (one_kind(a, &v[i].s))
			PL_TRY(put_stream(&g, &v[i], n, err));
	for (uint32_t i = 0; i < g.n; i++)
		settle_set(&g.set[i]);
	while (g.n && found)
		PL_TRY(next_pairing(&g, &found, err));
out:
	for (uint32_t i = 0; i < g.n; i++)
		pl_free(g.set[i].comm_stream);
	pl_clock_partitions_fini(&g.is);
	return rc;
}
