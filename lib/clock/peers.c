/*
 * Peers of sends and receives that nobody recorded.
 *
 * A stream of sends or receives serves one pair of ranks. Stages of a pipeline are laid out
 * regularly: if rank r sends to rank r + d, so does every rank that sends on that stream. A
 * distance d fits if each sender has a receiver (a stream of as many receives) at that distance,
 * and each receiver has a sender. If no distance fits, partners may be ranks that are not in the
 * input. Usually one distance is left; of several, the likeliest is used (likelihood.c). Pairs join
 * clocks, which helps to tell the next distances apart, so streams with the fewest choices come
 * first.
 *
 * The other streams, those of both sends and receives among them, are divided into pairs
 * (divide.c).
 *
 * Cost: streams squared x distances, each that of a likelihood.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

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
	struct pl_merge *m;
	struct pl_partitions is;
	struct pl_stream *v;
	uint32_t n;
	struct stage *stage;
	uint32_t n_stages;
};

PL_COMPARATOR(by_kind, struct pl_stream, kind, number, s.rank, comm_stream);

static int put_pair(struct pl_align *a, const struct pl_seq *x, struct pl_seq *y,
		    struct pl_err *err)
{
	uint32_t at;
	int rc;

	PL_TRY(pl_clock_seq_align(a, x, y, &at, err));
	rc = pl_clock_add_pairs(a, x, y, PL_MATCH_INFERRED, err);
out:
	return rc;
}

/* ---- stages ------------------------------------------------------------------------------------
 */

static struct pl_stream *partner(const struct stage *s, int64_t rank)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, s->n, s->v[i].s.rank < rank);
	return i < s->n && s->v[i].s.rank == rank ? &s->v[i] : NULL;
}

static bool is_known(const struct pl_align *a, int64_t rank)
{
	int32_t r = (int32_t)rank;

	return r == rank && pl_intern_find(&a->rank_seen, (const char *)&r, sizeof(r)) != PL_NONE;
}

/* Do all streams of x have one `d` ranks on in y, unless that rank is not there? */
static bool fits(const struct pl_align *a, const struct stage *x, struct pairing *p)
{
	const struct stage *y = p->to;

	p->pairs = 0;
	for (uint32_t i = 0; i < x->n; i++) {
		int64_t rank = (int64_t)x->v[i].s.rank + p->distance;
		const struct pl_stream *o = partner(y, rank);

		if (!o && is_known(a, rank))
			return false;
		if (o && (o->s.n > x->v[i].s.n + 2 || x->v[i].s.n > o->s.n + 2))
			return false;
		p->pairs += o != NULL;
	}
	for (uint32_t i = 0; i < y->n; i++) {
		int64_t rank = (int64_t)y->v[i].s.rank - p->distance;

		if (!partner(x, rank) && is_known(a, rank))
			return false;
	}
	p->missing = x->n + y->n - 2 * p->pairs;
	return p->distance && p->pairs;
}

static int weigh(struct peers *g, const struct stage *x, struct pairing *p, struct pl_err *err)
{
	const struct pl_stream **v = NULL;
	struct pl_likelihood l = { 0 };
	struct pl_division d = { .n_groups = p->pairs };
	uint32_t n = 0, ends;
	int rc;

	PL_TRY(pl_alloc(&v, 2u * (size_t)p->pairs, sizeof(*v), err));
	PL_TRY(pl_alloc(&d.group, 2u * (size_t)p->pairs, sizeof(*d.group), err));
	for (uint32_t i = 0; i < x->n; i++) {
		const struct pl_stream *o = partner(p->to, (int64_t)x->v[i].s.rank + p->distance);

		if (!o)
			continue;
		d.group[n] = d.group[n + 1] = n / 2;
		v[n++] = &x->v[i];
		v[n++] = o;
	}
	PL_TRY(pl_clock_likelihood_init(&l, g->a, &g->is, v, n, err));
	pl_clock_likelihood_of(&l, &d);
	ends = p->pairs * l.k;
	p->cost = d.cost / ends;
	p->determined = d.determined;
out:
	pl_arena_fini(&l.mem);
	pl_free(v);
	pl_free(d.group);
	return rc;
}

/* All that the senders x could be paired with, those without missing partners if there are any: the
 * likeliest, and how many there are. */
static int find_choices(struct peers *g, const struct stage *x, struct pairing *best, uint32_t *n,
			struct pl_err *err)
{
	int rc = 0;

	*n = 0;
	for (uint32_t i = 0; i < g->n_stages; i++) {
		struct stage *y = &g->stage[i];

		for (uint32_t k = 0; k < y->n && !y->used && y->v->kind == PL_K_RECV; k++) {
			struct pairing p = { .to = y,
					     .distance = y->v[k].s.rank - x->v[0].s.rank,
					     .cost = INFINITY };

			/* the scatter of many ends tells more than a layout that is not whole */
			if (fits(g->a, x, &p) && !(p.missing && x->v->s.n >= PL_SEQ_PAIRS))
				PL_TRY(weigh(g, x, &p, err));
			if (!(p.cost < INFINITY) || (*n && p.missing && !best->missing))
				continue;
			*n = *n && !p.missing == !best->missing ? *n + 1 : 1;
			if (*n == 1 || p.cost < best->cost)
				*best = p;
		}
	}
out:
	return rc;
}

static int pair_stages(struct peers *g, struct stage *x, const struct pairing *p,
		       struct pl_err *err)
{
	int rc = 0;

	x->used = p->to->used = true;
	for (uint32_t i = 0; i < x->n; i++) {
		struct pl_stream *o = partner(p->to, (int64_t)x->v[i].s.rank + p->distance);

		if (!o)
			continue;
		PL_TRY(put_pair(g->a, &x->v[i].s, &o->s, err));
		x->v[i].s.n = o->s.n = 0; /* done */
	}
out:
	return rc;
}

/* Pair the senders that have the fewest choices. */
static int next_pairing(struct peers *g, bool *found, struct pl_err *err)
{
	struct stage *from = NULL;
	struct pairing best = { 0 };
	uint32_t fewest = UINT32_MAX;
	int rc;

	*found = false;
	PL_TRY(pl_clock_partitions(g->a, g->m, &g->is, err));
	for (uint32_t i = 0; i < g->n_stages; i++) {
		struct pairing p;
		uint32_t n;

		if (g->stage[i].used || g->stage[i].v->kind != PL_K_SEND)
			continue;
		PL_TRY(find_choices(g, &g->stage[i], &p, &n, err));
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
	PL_TRY(pair_stages(g, from, &best, err));
out:
	return rc;
}

/* Stages from the sorted streams; those where a rank has two streams are not laid out regularly. */
static int find_stages(struct peers *g, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&g->stage, g->n + 1u, sizeof(*g->stage), err));
	for (uint32_t i = 0; i < g->n; i++) {
		struct pl_stream *v = &g->v[i];
		struct stage *s = g->n_stages ? &g->stage[g->n_stages - 1] : NULL;

		if (!s || s->v->kind != v->kind || s->v->number != v->number)
			s = &g->stage[g->n_stages++], s->v = v;
		else
			s->used |= v->s.rank == v[-1].s.rank;
		s->n++;
	}
out:
	return rc;
}

/* ---- all others --------------------------------------------------------------------------------
 */

static int pair_others(struct peers *g, struct pl_err *err)
{
	uint32_t left = 0, n_groups, doubts;
	int rc = 0;

	for (uint32_t i = 0; i < g->n; i++)
		if (g->v[i].s.n)
			g->v[left++] = g->v[i];
	if (left < 2)
		return 0;
	PL_TRY(pl_clock_partitions(g->a, g->m, &g->is, err));
	PL_TRY(pl_clock_divide(g->a, &g->is, g->v, left, NULL, true, &n_groups, &doubts, err));
	g->a->rep->doubtful += doubts;
	for (uint32_t i = 0; i < left; i++)
		for (uint32_t k = i + 1; k < left; k++)
			if (g->v[k].group == g->v[i].group)
				PL_TRY(put_pair(g->a, &g->v[i].s, &g->v[k].s, err));
out:
	return rc;
}

struct pick {
	uint32_t comm_stream, ev;
};

PL_COMPARATOR(by_comm_stream, struct pick, comm_stream, ev);

int pl_clock_infer_peers(struct pl_align *a, struct pl_merge *m, struct pl_err *err)
{
	struct peers g = { .a = a, .m = m };
	struct pick *p = NULL;
	uint32_t *ev = NULL, n = 0;
	bool found = true;
	int rc;

	PL_TRY(pl_alloc(&p, a->n + 1, sizeof(*p), err));
	for (size_t i = 0; i < a->n; i++)
		if (a->ev[i].kind != PL_K_COLLECTIVE && a->ev[i].peer < 0)
			p[n++] = (struct pick){ a->ev[i].comm_stream, (uint32_t)i };
	qsort(p, n, sizeof(*p), by_comm_stream);
	PL_TRY(pl_alloc(&ev, 2u * (size_t)n + 1, sizeof(*ev), err));
	PL_TRY(pl_alloc(&g.v, n + 1u, sizeof(*g.v), err));
	for (uint32_t i = 0; i < n; i++) {
		const struct pl_comm *e = &a->ev[p[i].ev];
		struct pl_stream *v;

		ev[i] = p[i].ev;
		if (!i || p[i].comm_stream != p[i - 1].comm_stream)
			g.v[g.n++] = (struct pl_stream){
				.s = { ev + i, 0, e->rank, ev + n + i },
				.number = a->comm_stream[p[i].comm_stream].stream,
				.comm_stream = p[i].comm_stream,
				.kind = e->kind,
			};
		v = &g.v[g.n - 1];
		v->s.n++;
		v->kind = v->kind == e->kind ? e->kind : PL_K_OTHER;
	}
	qsort(g.v, g.n, sizeof(*g.v), by_kind);
	PL_TRY(find_stages(&g, err));
	while (g.n && found)
		PL_TRY(next_pairing(&g, &found, err));
	rc = pair_others(&g, err);
out:
	pl_free(p);
	pl_free(ev);
	pl_free(g.v);
	pl_free(g.stage);
	pl_clock_partitions_fini(&g.is);
	return rc;
}
