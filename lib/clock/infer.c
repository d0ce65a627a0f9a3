/*
 * Groups that are not recorded: which ranks took part in the same collectives?
 *
 * Events keep their order on a stream (a communicator has its own), or over all host threads of a
 * rank. Such a stream is one rank's part of a group. All streams with one number and mostly the
 * same operations are divided into groups at once (divide.c). The streams with most events come
 * first, because their matches join most clocks, and known clocks tell the other streams apart. A
 * stream may serve several groups, so streams that fit nowhere are split by operation and tried
 * again; then streams of different numbers are put together.
 *
 * Exchanges between neighbours may be sent on one stream and received on another, so these come
 * before all others, without regard to the numbers of streams.
 */
#include <stdio.h>
#include <stdlib.h>

#include "clock/likelihood.h"

/* ---- streams --------------------------------------------------------------------------------- */

struct item { /* an event; `name`: of its operation, or 0 for all */
	uint32_t comm_stream, name, ev;
};

PL_COMPARATOR(by_item, struct item, comm_stream, name, ev);

PL_COMPARATOR(by_operation, struct pl_stream, operation, number, s.rank, comm_stream);

/* The most frequent operation of the events v[0..n). */
static pl_id most_frequent(const struct pl_align *a, const uint32_t *v, uint32_t n, pl_id *tmp)
{
	uint32_t most = 0;
	pl_id found = PL_NONE;

	for (uint32_t i = 0; i < n; i++)
		tmp[i] = a->ev[v[i]].name;
	qsort(tmp, n, sizeof(*tmp), pl_compare_u32);
	for (uint32_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && tmp[k] == tmp[i];)
			k++;
		if (k - i > most) {
			most = k - i;
			found = tmp[i];
		}
	}
	return found;
}

int pl_clock_streams_init(struct pl_streams *v, uint32_t n, struct pl_err *err)
{
	PL_CHECK(pl_arena_array(&v->mem, &v->ev, n + 1u, sizeof(*v->ev), err));
	PL_CHECK(pl_arena_array(&v->mem, &v->to, n + 1u, sizeof(*v->to), err));
	PL_CHECK(pl_arena_array(&v->mem, &v->item, n + 1u, sizeof(*v->item), err));
	PL_CHECK(pl_arena_array(&v->mem, &v->v, n + 1u, sizeof(*v->v), err));
	return 0;
}

void pl_clock_streams_cut(struct pl_streams *v, const struct pl_align *a, uint32_t n, bool names)
{
	v->n = 0;
	for (uint32_t i = 0; i < n; i++) {
		const struct pl_comm *e = &a->ev[v->ev[i]];

		v->item[i] = (struct item){ e->comm_stream, names ? e->name : 0, v->ev[i] };
	}
	qsort(v->item, n, sizeof(*v->item), by_item);
	for (uint32_t i = 0, k; i < n; i = k) {
		const struct pl_comm *e = &a->ev[v->item[i].ev];
		struct pl_stream *s = &v->v[v->n++];

		*s = (struct pl_stream){ .s = { v->ev + i, 0, e->rank, v->to + i },
					 .comm_stream = e->comm_stream,
					 .number = pl_clock_stream_of(a, e->comm_stream)->stream,
					 .kind = e->kind };
		for (k = i;
		     k < n && !PL_COMPARE_FIELDS(&v->item[k], &v->item[i], comm_stream, name);
		     k++) {
			v->ev[k] = v->item[k].ev;
			s->kind = s->kind == a->ev[v->ev[k]].kind ? s->kind : PL_K_OTHER;
		}
		s->s.n = k - i;
		s->operation = most_frequent(a, s->s.ev, s->s.n, v->to + i);
	}
}

/* ---- ranks that send to each other ----------------------------------------------------------- */

struct pl_stream *pl_clock_streams_find(struct pl_stream *v, uint32_t n, int64_t rank)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, n, v[i].s.rank < rank);
	return i < n && v[i].s.rank == rank ? &v[i] : NULL;
}

/* Streams whose ranks send to each other, directly or through other ranks, get the same number. */
static void find_linked(const struct pl_align *a, struct pl_stream *v, uint32_t n, uint32_t *linked)
{
	for (uint32_t i = 0; i < n; i++)
		linked[i] = i;
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *m = &a->match[i];
		const uint32_t *ev = a->member + m->first;
		const struct pl_stream *p, *q;

		if (m->group != PL_NONE || m->n < 2)
			continue;
		p = pl_clock_streams_find(v, n, a->ev[ev[0]].rank);
		q = pl_clock_streams_find(v, n, a->ev[ev[1]].rank);
		if (p && q)
			pl_union_join(linked, (uint32_t)(p - v), (uint32_t)(q - v));
	}
	for (uint32_t i = 0; i < n; i++)
		linked[i] = pl_union_root(linked, i);
}

/* ---- from divisions to groups ---------------------------------------------------------------- */

struct inference {
	struct pl_align *a;
	struct pl_streams streams;
	struct pl_arena mem;
	uint32_t *linked, *size;
	struct pl_seq *s;
	bool *done; /* by event: has a group */
};

/* The streams v[0..n) of group g become a group. */
static int put_group(struct inference *f, const struct pl_stream *v, uint32_t n, uint32_t g,
		     struct pl_err *err)
{
	struct pl_align *a = f->a;
	uint32_t k = 0, group;
	char name[32];
	int len;

	len = snprintf(name, sizeof(name), "inferred%u", a->n_inferred++);
	PL_CHECK(pl_clock_add_group(a, name, (size_t)len, PL_GROUP_INFERRED, &group, err));
	for (uint32_t i = 0; i < n; i++) {
		if (v[i].group != g)
			continue;
		f->s[k++] = v[i].s;
		PL_CHECK(pl_clock_add_rank(&a->group[group], v[i].s.rank, err));
		for (uint32_t e = 0; e < v[i].s.n; e++)
			f->done[v[i].s.ev[e]] = true;
	}
	return pl_clock_by_order(a, group, f->s, k, false, err);
}

/* Has the group streams of different numbers, and enough events to show that? */
static bool is_across(const struct pl_stream *v, uint32_t n, uint32_t g)
{
	const struct pl_stream *first = NULL;

	for (uint32_t i = 0; i < n; i++) {
		if (v[i].group != g)
			continue;
		first = first ? first : &v[i];
		if (v[i].number != first->number)
			return first->s.n >= PL_SEQ_PAIRS;
	}
	return false;
}

/* ---- rounds ---------------------------------------------------------------------------------- */

struct round {
	bool exchanges; /* only these, and only groups of streams with different numbers */
	bool names;	/* the operations of a stream apart */
	bool across;	/* streams of all numbers together */
};

struct set { /* streams to be divided */
	struct pl_stream *v;
	uint32_t n;
	uint64_t events;
};

PL_COMPARATOR_FALLING(by_events, struct set, events, v);

/* Divides the streams of a set. Those of groups of two streams and more are done. */
static int divide_set(struct inference *f, const struct set *x, const struct round *r,
		      struct pl_err *err)
{
	struct pl_stream *v = x->v;
	uint32_t n_groups, doubts, changed;

	PL_CHECK(pl_clock_partitions(f->a, err));
	if (!r->across)
		find_linked(f->a, v, x->n, f->linked);
	PL_CHECK(pl_clock_divide(f->a, v, x->n, r->across ? NULL : f->linked, false, &n_groups,
				 &doubts, err));
	PL_CHECK(pl_clock_listed_groups(f->a, v, x->n, &n_groups, &changed, err));
	f->a->rep->doubtful += doubts ? doubts : changed;
	memset(f->size, 0, n_groups * sizeof(*f->size));
	for (uint32_t i = 0; i < x->n; i++)
		f->size[v[i].group]++;
	for (uint32_t g = 0; g < n_groups; g++)
		if (f->size[g] > 1 && (!r->exchanges || is_across(v, x->n, g)))
			PL_CHECK(put_group(f, v, x->n, g, err));
	return 0;
}

/* Cut what has no group yet into streams, in the order of their operations. */
static void cut_streams(struct inference *f, const uint32_t *idx, uint32_t n, const struct round *r)
{
	struct pl_streams *v = &f->streams;
	uint32_t left = 0;

	for (uint32_t i = 0; i < n; i++)
		if (!f->done[idx[i]] &&
		    (!r->exchanges || f->a->ev[idx[i]].coll_is & PL_COLL_EXCHANGE))
			v->ev[left++] = idx[i];
	pl_clock_streams_cut(v, f->a, left, r->names);
	qsort(v->v, v->n, sizeof(*v->v), by_operation);
}

static int infer_round(struct inference *f, const uint32_t *idx, uint32_t n, const struct round *r,
		       struct pl_err *err)
{
	struct pl_stream *v = f->streams.v;
	struct set *set = NULL;
	uint32_t sets = 0;
	int rc;

	cut_streams(f, idx, n, r);
	PL_TRY(pl_alloc(&set, f->streams.n + 1u, sizeof(*set), err));
	for (uint32_t i = 0; i < f->streams.n; i++) {
		if (!i || v[i].operation != v[i - 1].operation ||
		    (!r->across && v[i].number != v[i - 1].number))
			set[sets++].v = &v[i];
		set[sets - 1].n++;
		set[sets - 1].events += v[i].s.n;
	}
	qsort(set, sets, sizeof(*set), by_events);
	for (uint32_t i = 0; i < sets; i++)
		if (set[i].n > 1)
			PL_TRY(divide_set(f, &set[i], r, err));
out:
	pl_free(set);
	return rc;
}

int pl_clock_infer_groups(struct pl_align *a, const uint32_t *idx, uint32_t n, struct pl_err *err)
{
	static const struct round rounds[] = {
		{ true, true, true },	{ false, false, false }, { false, true, false },
		{ false, false, true }, { false, true, true },
	};
	struct inference f = { .a = a };
	int rc;

	if (!n)
		return 0;
	PL_TRY(pl_clock_streams_init(&f.streams, n, err));
	PL_TRY(pl_arena_array(&f.mem, &f.linked, n, sizeof(*f.linked), err));
	PL_TRY(pl_arena_array(&f.mem, &f.size, n, sizeof(*f.size), err));
	PL_TRY(pl_arena_array(&f.mem, &f.s, n, sizeof(*f.s), err));
	PL_TRY(pl_alloc(&f.done, a->n, sizeof(*f.done), err));
	for (size_t r = 0; r < PL_LEN(rounds); r++)
		PL_TRY(infer_round(&f, idx, n, &rounds[r], err));
	cut_streams(&f, idx, n, &(struct round){ 0 }); /* their partners are not in the input */
	for (uint32_t i = 0; i < f.streams.n; i++) {
		f.streams.v[i].group = 0;
		PL_TRY(put_group(&f, &f.streams.v[i], 1, 0, err));
	}
out:
	pl_arena_fini(&f.streams.mem);
	pl_arena_fini(&f.mem);
	pl_free(f.done);
	return rc;
}
