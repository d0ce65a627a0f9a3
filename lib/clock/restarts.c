/*
 * Numbers of a group that begin again, as when a process group is made again under the same name.
 *
 * The numbers of a rank then are several runs: one ends where the number falls to the first of the
 * run or below. A recording may begin in a later run than another, so the runs of each rank are
 * aligned with those of the rank that has the most: by their times where both share a clock, else
 * by how little the difference of ends changes. Where neither tells, the last runs are the same,
 * because recordings of a job mostly end together.
 *
 * Cost: sorting, and SAMPLE pairs for each of a limited number of shifts.
 */
#include <stdlib.h>

#include "clock/internal.h"

#define SAMPLE	  256 /* pairs of two ranks that are looked at */
#define MARGIN	  3   /* runs that both recordings may lack, at their begin or end */
#define MAX_SHIFT 64  /* shifts that are tried */
#define AGREE	  0.8 /* share of the pairs that could be one communication */

struct numbered {
	int32_t rank;
	int64_t run, seq;
	uint32_t coll, ev, at; /* at: place in the caller's array */
};

PL_COMPARATOR(by_run, struct numbered, rank, run, seq, coll, ev);

struct side { /* of one rank */
	const struct numbered *v;
	size_t n;
	int64_t runs;
};

struct stream_run {
	int64_t first, last, run;
};

/* The run of each event, stream by stream: only the order in a stream is sure. */
static int find_runs(const struct pl_align *a, struct numbered *v, size_t n, struct pl_err *err)
{
	struct pl_intern streams = { 0 };
	struct stream_run *s = NULL;
	size_t cap = 0;
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		uint32_t stream = a->ev[v[i].ev].comm_stream;
		size_t before = streams.n;
		pl_id id;

		PL_TRY(pl_intern_add(&streams, (const char *)&stream, sizeof(stream), &id, err));
		PL_TRY(pl_grow(&s, &cap, streams.n, sizeof(*s), err));
		if (streams.n > before)
			s[id] = (struct stream_run){ v[i].seq, v[i].seq, 0 };
		if (v[i].seq < s[id].last && v[i].seq <= s[id].first) {
			s[id].first = v[i].seq;
			s[id].run++;
		}
		s[id].last = v[i].seq;
		v[i].run = s[id].run;
	}
out:
	pl_intern_fini(&streams);
	pl_free(s);
	return rc;
}

struct score {
	size_t looked_at, pairs, same, together;
	int64_t spread; /* of successive differences of ends; INT64_MAX: too few pairs */
};

/* Run i of y is run i + shift of x. */
static struct score rate(const struct pl_align *a, const struct side *x, const struct side *y,
			 int64_t shift)
{
	struct score s = { .spread = INT64_MAX };
	int64_t change[SAMPLE];
	size_t n = 0;
	pl_ns last = 0;

	for (size_t i = 0; i < y->n; i += y->n / SAMPLE + 1) {
		const struct numbered *q = &y->v[i];
		const struct numbered key = { x->v->rank, q->run + shift, q->seq, q->coll, 0, 0 };
		const struct pl_comm *p, *e = &a->ev[q->ev];
		size_t k = 0;
		pl_ns d;

		s.looked_at++;
		PL_LOWER_BOUND(k, x->n, by_run(&x->v[k], &key) < 0);
		if (k == x->n || PL_COMPARE_FIELDS(&x->v[k], &key, run, seq, coll))
			continue;
		p = &a->ev[x->v[k].ev];
		d = pl_sub_sat(p->end, e->end);
		s.same += pl_clock_seq_same(a, x->v[k].ev, q->ev);
		s.together += p->clock == e->clock && p->ts <= e->end && e->ts <= p->end;
		if (s.pairs++)
			change[n++] = d > last ? pl_sub_sat(d, last) : pl_sub_sat(last, d);
		last = d;
	}
	if (s.pairs >= PL_SEQ_PAIRS)
		s.spread = pl_median_i64(change, n);
	return s;
}

static bool agrees(const struct score *s)
{
	return s->pairs && (double)s->same >= AGREE * (double)s->pairs;
}

static int64_t median_duration(const struct pl_align *a, const struct side *y)
{
	int64_t d[SAMPLE];
	size_t n = 0;

	for (size_t i = 0; i < y->n; i += y->n / SAMPLE + 1)
		d[n++] = pl_sub_sat(a->ev[y->v[i].ev].end, a->ev[y->v[i].ev].ts);
	return pl_median_i64(d, n);
}

/* Which run of x is the first of y? *sure: it is not only the assumption that both end together. */
static int64_t find_shift(const struct pl_align *a, const struct side *x, const struct side *y,
			  bool *sure)
{
	const int64_t ends = x->runs - y->runs;
	const struct score end = rate(a, x, y, ends);
	bool one_clock = a->ev[x->v->ev].clock == a->ev[y->v->ev].clock, good = agrees(&end);
	double most = one_clock && good ? (double)end.together / (double)end.pairs : 0;
	int64_t best = ends, tightest = good && end.spread < INT64_MAX ? end.spread / 2 : INT64_MAX;
	bool other = false;

	*sure = true;
	if (!one_clock && good && end.pairs == end.looked_at && end.spread < INT64_MAX && !ends &&
	    end.spread < median_duration(a, y) / 4)
		return ends;
	for (int64_t k = ends + MARGIN; k >= pl_max_i64(-MARGIN, ends - MAX_SHIFT); k--) {
		const struct score s = rate(a, x, y, k);

		if (k == ends || !agrees(&s))
			continue;
		other |= k >= 0 && k < ends;
		if (one_clock) {
			double share = (double)s.together / (double)s.pairs;

			best = share > most ? k : best;
			most = share > most ? share : most;
		} else if (s.spread < tightest && 2 * s.pairs >= end.pairs) {
			tightest = s.spread;
			best = k;
		}
	}
	*sure = most > 0.5 || !other || best != ends;
	return best;
}

int pl_clock_restarts(struct pl_align *a, const char *group, const uint32_t *ev, size_t n,
		      int64_t *run, struct pl_err *err)
{
	struct numbered *v = NULL;
	struct side x = { 0 };
	int rc;

	PL_TRY(pl_alloc(&v, n + 1, sizeof(*v), err));
	for (size_t i = 0; i < n; i++)
		v[i] = (struct numbered){ a->ev[ev[i]].rank, 0,	    a->ev[ev[i]].seq,
					  a->ev[ev[i]].coll, ev[i], (uint32_t)i };
	PL_TRY(find_runs(a, v, n, err));
	qsort(v, n, sizeof(*v), by_run);
	for (size_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && v[k].rank == v[i].rank;)
			k++;
		if (v[k - 1].run >= x.runs)
			x = (struct side){ v + i, k - i, v[k - 1].run + 1 };
	}
	for (size_t i = 0, k; i < n; i = k) {
		struct side y = { v + i, 0, 0 };
		int64_t shift = 0;
		bool sure = true;

		for (k = i + 1; k < n && v[k].rank == v[i].rank;)
			k++;
		y.n = k - i;
		y.runs = v[k - 1].run + 1;
		if (x.runs > 1 && y.v != x.v)
			shift = find_shift(a, &x, &y, &sure);
		for (; i < k; i++)
			run[v[i].at] = v[i].run + shift;
		if (!sure && !a->said_restarts)
			pl_say(a->o.log, PL_LOG_WARN,
			       "group %.100s: numbers begin again on rank %d more often than on "
			       "rank %d; their last runs are taken for the same",
			       group, x.v->rank, y.v->rank);
		a->said_restarts |= !sure;
	}
out:
	pl_free(v);
	return rc;
}
