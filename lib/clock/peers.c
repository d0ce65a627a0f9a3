/*
 * Peers of sends and receives that nobody recorded.
 *
 * A stream of sends or receives serves one pair of ranks. Stages of a pipeline are laid out
 * regularly: if rank r sends to rank r + d, so does every rank that sends on that stream. A
 * distance d fits if each sender has a receiver (a stream of as many receives) at that distance,
 * and each receiver has a sender. If no distance fits, partners may be ranks that are not in the
 * input. Usually one distance is left; of several, the likeliest is used (likelihood.c). Pairs join
 * clocks, which helps to tell distances apart, so streams with fewest choices come first.
 *
 * divide.c divides the other streams, those of both sends and receives among them, into pairs.
 *
 * Cost: streams squared x distances, each that of a likelihood.
 */
#include <math.h>
#include <stdlib.h>

#include "clock/likelihood.h"

struct stage { /* streams of one kind and number, by rank */
	struct pl_stream *v;
	uint32_t n;
	bool used;
};

struct pairing {
	struct stage *to;
	int32_t distance;
	uint32_t pairs, missing; /* partners */
	double cost;		 /* each event */
	bool determined;
};

struct peers {
	struct pl_align *a;
	struct pl_streams streams;
	struct stage *stage;
	uint32_t n_stages;
	const struct pl_stream **pair; /* senders and receivers of the pairing at hand */
};

PL_COMPARATOR(by_kind, struct pl_stream, kind, number, s.rank, comm_stream);

static int put_pair(struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
		    struct pl_err *err)
{
	struct pl_seq aligned = *y;

	pl_clock_seq_align(a, x, &aligned);
	return pl_clock_add_pairs(a, x, &aligned, PL_MATCH_INFERRED, err);
}

/* ---- stages ---------------------------------------------------------------------------------- */

/* Do all streams of x have one `distance` ranks on in p->to, unless that rank is not there? The
 * pairs come to g->pair. */
static bool fits(struct peers *g, const struct stage *x, struct pairing *p)
{
	const struct stage *y = p->to;

	p->pairs = 0;
	for (uint32_t i = 0; i < x->n; i++) {
		int64_t rank = (int64_t)x->v[i].s.rank + p->distance;
		const struct pl_stream *o = pl_clock_streams_find(y->v, y->n, rank);

		if (!o && pl_clock_has_rank(g->a, rank))
			return false;
		if (!o)
			continue;
		if (o->s.n > x->v[i].s.n + 2 || x->v[i].s.n > o->s.n + 2)
			return false;
		g->pair[2 * p->pairs] = &x->v[i];
		g->pair[2 * p->pairs++ + 1] = o;
	}
	for (uint32_t i = 0; i < y->n; i++) {
		int64_t rank = (int64_t)y->v[i].s.rank - p->distance;

		if (!pl_clock_streams_find(x->v, x->n, rank) && pl_clock_has_rank(g->a, rank))
			return false;
	}
	p->missing = x->n + y->n - 2 * p->pairs;
	return p->distance && p->pairs;
}

/* The likelihood of the pairs in g->pair. */
static int weigh(struct peers *g, struct pairing *p, struct pl_err *err)
{
	struct pl_likelihood l = { 0 };
	struct pl_division d = { .n_groups = p->pairs };
	int rc;

	PL_TRY(pl_clock_likelihood_init(&l, g->a, g->pair, 2 * p->pairs, err));
	PL_TRY(pl_arena_array(&l.mem, &d.group, 2u * (size_t)p->pairs, sizeof(*d.group), err));
	for (uint32_t i = 0; i < 2 * p->pairs; i++)
		d.group[i] = i / 2;
	pl_clock_likelihood_of(&l, &d);
	p->cost = d.cost / (p->pairs * l.k);
	p->determined = d.determined;
out:
	pl_arena_fini(&l.mem);
	return rc;
}

/* All that the senders x could be paired with, those without missing partners if there are any: the
 * likeliest, and how many there are. */
static int find_choices(struct peers *g, const struct stage *x, struct pairing *best, uint32_t *n,
			struct pl_err *err)
{
	*n = 0;
	for (uint32_t i = 0; i < g->n_stages; i++) {
		struct stage *y = &g->stage[i];

		for (uint32_t k = 0; k < y->n && !y->used && y->v->kind == PL_K_RECV; k++) {
			struct pairing p = { .to = y,
					     .distance = y->v[k].s.rank - x->v[0].s.rank,
					     .cost = INFINITY };

			/* the scatter of many ends tells more than a layout that is not whole */
			if (fits(g, x, &p) && !(p.missing && x->v->s.n >= PL_SEQ_PAIRS))
				PL_CHECK(weigh(g, &p, err));
			if (!(p.cost < INFINITY) || (*n && p.missing && !best->missing))
				continue;
			*n = *n && !p.missing == !best->missing ? *n + 1 : 1;
			if (*n == 1 || p.cost < best->cost)
				*best = p;
		}
	}
	return 0;
}

static int pair_stages(struct peers *g, struct stage *x, struct pairing *p, struct pl_err *err)
{
	x->used = p->to->used = fits(g, x, p);
	for (uint32_t i = 0; i < 2 * p->pairs; i += 2)
		PL_CHECK(put_pair(g->a, &g->pair[i]->s, &g->pair[i + 1]->s, err));
	for (uint32_t i = 0; i < 2 * p->pairs; i++) /* done */
		g->streams.v[g->pair[i] - g->streams.v].s.n = 0;
	return 0;
}

/* Pair the senders that have the fewest choices. */
static int next_pairing(struct peers *g, bool *found, struct pl_err *err)
{
	struct stage *from = NULL;
	struct pairing best = { 0 };
	uint32_t fewest = UINT32_MAX;

	*found = false;
	PL_CHECK(pl_clock_partitions(g->a, err));
	for (uint32_t i = 0; i < g->n_stages; i++) {
		struct pairing p;
		uint32_t n;

		if (g->stage[i].used || g->stage[i].v->kind != PL_K_SEND)
			continue;
		PL_CHECK(find_choices(g, &g->stage[i], &p, &n, err));
		if (!n || n >= fewest)
			continue;
		from = &g->stage[i];
		best = p;
		fewest = n;
	}
	if (!from)
		return 0;
	*found = true;
	g->a->rep->doubtful += fewest > 1 && !best.determined;
	PL_CHECK(pair_stages(g, from, &best, err));
	return 0;
}

/* Stages from the sorted streams; those where a rank has two streams are not laid out regularly. */
static int find_stages(struct peers *g, struct pl_err *err)
{
	struct pl_stream *v = g->streams.v;

	PL_CHECK(pl_arena_array(&g->streams.mem, &g->stage, g->streams.n, sizeof(*g->stage), err));
	for (uint32_t i = 0; i < g->streams.n; i++) {
		struct stage *s;

		if (!i || PL_COMPARE_FIELDS(&v[i], &v[i - 1], kind, number))
			g->stage[g->n_stages++] = (struct stage){ .v = &v[i] };
		s = &g->stage[g->n_stages - 1];
		s->used |= s->n && v[i].s.rank == v[i - 1].s.rank;
		s->n++;
	}
	return 0;
}

/* ---- all others ------------------------------------------------------------------------------ */

static int pair_others(struct peers *g, struct pl_err *err)
{
	struct pl_stream *v = g->streams.v;
	uint32_t left = 0, n_groups, doubts;

	for (uint32_t i = 0; i < g->streams.n; i++)
		if (v[i].s.n)
			v[left++] = v[i];
	if (left < 2)
		return 0;
	PL_CHECK(pl_clock_partitions(g->a, err));
	PL_CHECK(pl_clock_divide(g->a, v, left, NULL, true, &n_groups, &doubts, err));
	g->a->rep->doubtful += doubts;
	for (uint32_t i = 0; i < left; i++)
		for (uint32_t k = i + 1; k < left; k++)
			if (v[k].group == v[i].group)
				PL_CHECK(put_pair(g->a, &v[i].s, &v[k].s, err));
	return 0;
}

int pl_clock_infer_peers(struct pl_align *a, struct pl_err *err)
{
	struct peers g = { .a = a };
	struct pl_streams *v = &g.streams;
	uint32_t n = 0;
	bool found = true;
	int rc;

	for (size_t i = 0; i < a->n; i++)
		n += a->ev[i].kind != PL_K_COLLECTIVE && a->ev[i].peer < 0;
	if (!n)
		return 0;
	PL_TRY(pl_clock_streams_init(v, n, err));
	n = 0;
	for (uint32_t i = 0; i < a->n; i++)
		if (a->ev[i].kind != PL_K_COLLECTIVE && a->ev[i].peer < 0)
			v->ev[n++] = i;
	pl_clock_streams_cut(v, a, n, false);
	qsort(v->v, v->n, sizeof(*v->v), by_kind);
	PL_TRY(pl_arena_array(&v->mem, &g.pair, 2u * (size_t)v->n, sizeof(*g.pair), err));
	PL_TRY(find_stages(&g, err));
	while (found)
		PL_TRY(next_pairing(&g, &found, err));
	rc = pair_others(&g, err);
out:
	pl_arena_fini(&v->mem);
	return rc;
}
