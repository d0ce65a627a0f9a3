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
#include <string.h>

#include "clock/likelihood.h"

/* ---- from divisions to groups ------------------------------------------------------------------
 */

struct inference {
	struct pl_align *a;
	struct pl_merge *m;
	struct pl_partitions is;
	struct pl_arena mem;
	struct item *item; /* what has no group yet */
	uint32_t n;
	struct pl_stream *stream;
	uint32_t n_streams;
	uint32_t *ev, *to, *linked;
	pl_id *tmp;
};

/* The streams v[0..n) of group g. */
static int put_group(struct inference *f, const struct pl_stream *v, uint32_t n, uint32_t g,
		     struct pl_err *err)
{
	struct pl_align *a = f->a;
	struct pl_seq *s = NULL;
	uint32_t k = 0, group;
	char name[32];
	int len, rc;

	len = snprintf(name, sizeof(name), "inferred%u", a->n_inferred++);
	PL_TRY(pl_alloc(&s, n, sizeof(*s), err));
	PL_TRY(pl_clock_add_group(a, name, (size_t)len, PL_GROUP_INFERRED, &group, err));
	for (uint32_t i = 0; i < n; i++)
		if (v[i].group == g) {
			s[k++] = v[i].s;
			PL_TRY(pl_clock_add_rank(&a->group[group], v[i].s.rank, err));
		}
	PL_TRY(pl_clock_by_order(a, group, s, k, err));
out:
	pl_free(s);
	return rc;
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

/* Groups of two streams and more; the others stay at the front of v: their number. */
static int put_groups(struct inference *f, struct pl_stream *v, uint32_t n, uint32_t n_groups,
		      bool across, uint32_t *left, struct pl_err *err)
{
	uint32_t *size = NULL;
	int rc;

	*left = 0;
	PL_TRY(pl_alloc(&size, n_groups, sizeof(*size), err));
	for (uint32_t i = 0; i < n; i++)
		size[v[i].group]++;
	for (uint32_t g = 0; g < n_groups; g++) {
		if (size[g] > 1 && (!across || is_across(v, n, g)))
			PL_TRY(put_group(f, v, n, g, err));
		else
			size[g] = 1;
	}
	for (uint32_t i = 0; i < n; i++)
		if (size[v[i].group] == 1)
			v[(*left)++] = v[i];
out:
	pl_free(size);
	return rc;
}

/* ---- ranks that send to each other -------------------------------------------------------------
 */

static uint32_t stream_of(const struct pl_stream *v, uint32_t n, int32_t rank)
{
	uint32_t i = 0; /* by rank, if each has one stream */

	PL_LOWER_BOUND(i, n, v[i].s.rank < rank);
	return i < n && v[i].s.rank == rank ? i : PL_NONE;
}

/* Streams whose ranks send to each other, directly or through other ranks, get the same number. */
static void find_linked(const struct pl_align *a, const struct pl_stream *v, uint32_t n,
			uint32_t *linked)
{
	for (uint32_t i = 0; i < n; i++)
		linked[i] = i;
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *m = &a->match[i];
		uint32_t p, q;

		if (m->group != PL_NONE || m->n < 2)
			continue;
		p = stream_of(v, n, a->ev[a->member[m->first]].rank);
		q = stream_of(v, n, a->ev[a->member[m->first + 1]].rank);
		if (p != PL_NONE && q != PL_NONE)
			pl_union_join(linked, p, q);
	}
	for (uint32_t i = 0; i < n; i++)
		linked[i] = pl_union_root(linked, i);
}

/* ---- streams -----------------------------------------------------------------------------------
 */

struct item {
	uint32_t comm_stream, ev;
	pl_id name;
};

PL_COMPARATOR(by_comm_stream, struct item, comm_stream, ev);

PL_COMPARATOR(by_stream_name, struct item, comm_stream, name, ev);

PL_COMPARATOR(by_operation, struct pl_stream, operation, number, s.rank, comm_stream);

static pl_id most_frequent(const struct item *v, uint32_t n, pl_id *tmp)
{
	uint32_t most = 0;
	pl_id found = PL_NONE;

	for (uint32_t i = 0; i < n; i++)
		tmp[i] = v[i].name;
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

/* Cut the first n items into streams, or into the operations of each stream. */
static void make_streams(struct inference *f, uint32_t n, bool names)
{
	f->n_streams = 0;
	qsort(f->item, n, sizeof(*f->item), names ? by_stream_name : by_comm_stream);
	for (uint32_t i = 0, k; i < n; i = k) {
		const struct item *p = &f->item[i];

		for (k = i; k < n && f->item[k].comm_stream == p->comm_stream &&
			    (!names || f->item[k].name == p->name);
		     k++)
			f->ev[k] = f->item[k].ev;
		f->stream[f->n_streams++] = (struct pl_stream){
			.s = { f->ev + i, k - i, f->a->ev[p->ev].rank, f->to + i },
			.comm_stream = p->comm_stream,
			.number = f->a->comm_stream[p->comm_stream].stream,
			.operation = most_frequent(p, k - i, f->tmp),
			.kind = PL_K_COLLECTIVE,
		};
	}
	qsort(f->stream, f->n_streams, sizeof(*f->stream), by_operation);
}

/* The items of the first n streams, which found no group, for another round. */
static uint32_t take_items(struct inference *f, uint32_t n)
{
	uint32_t items = 0;

	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < f->stream[i].s.n; k++) {
			uint32_t e = f->stream[i].s.ev[k];

			f->item[items++] =
				(struct item){ f->a->ev[e].comm_stream, e, f->a->ev[e].name };
		}
	return items;
}

/* ---- rounds ------------------------------------------------------------------------------------
 */

struct round {
	bool exchanges; /* only these, and only groups of streams with different numbers */
	bool names;	/* the operations of a stream apart */
	bool across;	/* streams of all numbers together */
};

struct set { /* streams to be divided */
	uint32_t at, n;
	uint64_t events;
};

static int by_events(const void *x, const void *y)
{
	const struct set *p = x, *q = y;
	int c = PL_COMPARE(q->events, p->events);

	return c ? c : PL_COMPARE(p->at, q->at);
}

static struct set set_at(const struct inference *f, uint32_t i, bool across)
{
	const struct pl_stream *v = f->stream;
	struct set s = { .at = i };

	for (; i < f->n_streams && v[i].operation == v[s.at].operation &&
	       (across || v[i].number == v[s.at].number);
	     i++) {
		s.events += v[i].s.n;
		s.n++;
	}
	return s;
}

static int divide_set(struct inference *f, struct pl_stream *v, uint32_t n, const struct round *r,
		      uint32_t *left, struct pl_err *err)
{
	uint32_t n_groups, doubts, changed;
	int rc;

	PL_TRY(pl_clock_partitions(f->a, f->m, &f->is, err));
	if (!r->across)
		find_linked(f->a, v, n, f->linked);
	PL_TRY(pl_clock_divide(f->a, &f->is, v, n, r->across ? NULL : f->linked, false, &n_groups,
			       &doubts, err));
	PL_TRY(pl_clock_listed_groups(f->a, v, n, &n_groups, &changed, err));
	f->a->rep->doubtful += doubts ? doubts : changed;
	rc = put_groups(f, v, n, n_groups, r->exchanges, left, err);
out:
	return rc;
}

/* Divides the streams of the first *n items; those that fit no group stay there. */
static int infer_round(struct inference *f, const struct round *r, uint32_t *n, struct pl_err *err)
{
	struct set *set = NULL;
	struct pl_stream *kept = NULL;
	uint32_t sets = 0, n_kept = 0;
	int rc;

	make_streams(f, *n, r->names);
	PL_TRY(pl_alloc(&set, f->n_streams + 1u, sizeof(*set), err));
	PL_TRY(pl_alloc(&kept, f->n_streams + 1u, sizeof(*kept), err));
	for (uint32_t i = 0; i < f->n_streams; i += set[sets++].n)
		set[sets] = set_at(f, i, r->across);
	qsort(set, sets, sizeof(*set), by_events);
	for (uint32_t i = 0; i < sets; i++) {
		struct pl_stream *v = f->stream + set[i].at;
		uint32_t left = set[i].n;

		if (left > 1)
			PL_TRY(divide_set(f, v, left, r, &left, err));
		memcpy(kept + n_kept, v, left * sizeof(*v));
		n_kept += left;
	}
	memcpy(f->stream, kept, n_kept * sizeof(*kept));
	*n = take_items(f, n_kept);
out:
	pl_free(set);
	pl_free(kept);
	return rc;
}

/* Items of exchanges come to the front: their number. */
static uint32_t exchanges_first(struct inference *f)
{
	uint32_t k = 0;

	for (uint32_t i = 0; i < f->n; i++) {
		struct item it = f->item[i];

		if (!(f->a->ev[it.ev].coll_is & PL_COLL_EXCHANGE))
			continue;
		f->item[i] = f->item[k];
		f->item[k++] = it;
	}
	return k;
}

static int infer_rounds(struct inference *f, struct pl_err *err)
{
	static const struct round rounds[] = {
		{ true, true, true },	{ false, false, false }, { false, true, false },
		{ false, false, true }, { false, true, true },
	};
	int rc = 0;

	for (size_t r = 0; r < PL_LEN(rounds); r++) {
		uint32_t n = rounds[r].exchanges ? exchanges_first(f) : f->n, before = n;

		if (n)
			PL_TRY(infer_round(f, &rounds[r], &n, err));
		memmove(f->item + n, f->item + before, (f->n - before) * sizeof(*f->item));
		f->n -= before - n;
	}
	make_streams(f, f->n, false); /* their partners are not in the input: a group each */
	for (uint32_t i = 0; i < f->n_streams; i++)
		f->stream[i].group = i;
	for (uint32_t i = 0; i < f->n_streams; i++)
		PL_TRY(put_group(f, &f->stream[i], 1, i, err));
out:
	return rc;
}

int pl_clock_infer_groups(struct pl_align *a, struct pl_merge *m, const uint32_t *idx, uint32_t n,
			  struct pl_err *err)
{
	struct inference f = { .a = a, .m = m, .n = n };
	int rc;

	if (!n)
		return 0;
	PL_TRY(pl_arena_array(&f.mem, &f.item, n, sizeof(*f.item), err));
	PL_TRY(pl_arena_array(&f.mem, &f.stream, n, sizeof(*f.stream), err));
	PL_TRY(pl_arena_array(&f.mem, &f.ev, n, sizeof(*f.ev), err));
	PL_TRY(pl_arena_array(&f.mem, &f.to, n, sizeof(*f.to), err));
	PL_TRY(pl_arena_array(&f.mem, &f.tmp, n, sizeof(*f.tmp), err));
	PL_TRY(pl_arena_array(&f.mem, &f.linked, n, sizeof(*f.linked), err));
	for (uint32_t i = 0; i < n; i++)
		f.item[i] = (struct item){ a->ev[idx[i]].comm_stream, idx[i], a->ev[idx[i]].name };
	rc = infer_rounds(&f, err);
out:
	pl_clock_partitions_fini(&f.is);
	pl_arena_fini(&f.mem);
	return rc;
}
