/*
 * Messages of collectives: which collective a message belongs to, and which send is which receive.
 *
 * A message names the number of its collective. Several collectives of a rank may have that number;
 * the message belongs to the one (of its group, where the message names one) in whose span it
 * begins. The k-th send of a channel from rank r to rank q is the k-th receive of that channel on q
 * from r, each in the order of its own rank's clock. Messages are not used to estimate clocks:
 * sends and receives of one collective overlap by more than clocks are wrong. Cost: O(n log n) in
 * messages and numbered collectives.
 */
#include <stdlib.h>

#include "clock/internal.h"

struct numbered { /* a collective event that is in a match */
	int64_t seq;
	pl_ns ts, end;
	int32_t rank;
	pl_id group;
	uint32_t match;
	pl_ns until; /* the latest end of those of this rank and number up to here */
};
struct half {
	uint32_t match;
	int32_t src, dst, channel;
	bool recv;
	pl_ns ts;
	uint32_t msg;
};

PL_COMPARATOR(by_number, struct numbered, rank, seq, ts, match);

/* Halves of one collective and channel between two ranks, each kind in order. */
static int by_channel(const void *x, const void *y)
{
	const struct half *p = x, *q = y;
	int c = PL_COMPARE_FIELDS(p, q, match, src, dst, channel);

	return c ? c : PL_COMPARE_FIELDS(p, q, recv, ts, msg);
}

PL_COMPARATOR(by_match, struct pl_paired, match, send);

static int number_collectives(const struct pl_align *a, struct numbered **v, size_t *n,
			      struct pl_err *err)
{
	PL_CHECK(pl_alloc(v, a->n_members + 1, sizeof(**v), err));
	for (uint32_t i = 0; i < a->n_matches; i++)
		for (uint32_t k = 0; k < a->match[i].n; k++) {
			const struct pl_comm *e = &a->ev[a->member[a->match[i].first + k]];

			if (e->kind == PL_K_COLLECTIVE && e->seq != PL_NO_VALUE)
				(*v)[(*n)++] = (struct numbered){ e->seq,   e->ts, e->end, e->rank,
								  e->group, i,	   e->end };
		}
	pl_sort(*v, *n, sizeof(**v), by_number);
	for (size_t i = 1; i < *n; i++)
		if ((*v)[i].rank == (*v)[i - 1].rank && (*v)[i].seq == (*v)[i - 1].seq)
			(*v)[i].until = pl_max_i64((*v)[i].end, (*v)[i - 1].until);
	return 0;
}

/* The match of the message's collective, PL_NONE if it has none. */
static uint32_t collective_of(const struct numbered *v, size_t n, const struct pl_comm *e)
{
	const struct numbered key = {
		.rank = e->rank, .seq = e->of, .ts = e->ts, .match = PL_NONE
	};
	size_t i = 0;

	/* the first that begins later */
	PL_LOWER_BOUND(i, n, by_number(&v[i], &key) <= 0);
	while (i-- > 0 && v[i].rank == e->rank && v[i].seq == e->of && e->ts <= v[i].until)
		if (e->ts <= v[i].end && (e->group == PL_NONE || e->group == v[i].group))
			return v[i].match;
	return PL_NONE;
}

/* The messages that belong to a collective, sorted. */
static int find_halves(struct pl_align *a, struct half **h, size_t *n_halves, struct pl_err *err)
{
	struct numbered *v = NULL;
	size_t n = 0;
	int rc;

	PL_TRY(number_collectives(a, &v, &n, err));
	PL_TRY(pl_alloc(h, a->n_msg, sizeof(**h), err));
	for (uint32_t i = 0; i < a->n_msg; i++) {
		const struct pl_comm *e = &a->msg[i];
		bool recv = e->kind == PL_K_RECV;
		uint32_t match = collective_of(v, n, e);

		if (match == PL_NONE || e->peer < 0)
			a->rep->unmatched_messages++;
		else
			(*h)[(*n_halves)++] = (struct half){ match,
							     recv ? e->peer : e->rank,
							     recv ? e->rank : e->peer,
							     e->channel,
							     recv,
							     e->ts,
							     i };
	}
	qsort(*h, *n_halves, sizeof(**h), by_channel);
out:
	pl_free(v);
	return rc;
}

int pl_clock_messages(struct pl_align *a, struct pl_paired **out, size_t *n, struct pl_err *err)
{
	struct half *h = NULL;
	size_t halves = 0, from, recv, end;
	int rc = 0;

	*out = NULL;
	*n = 0;
	if (!a->n_msg)
		return 0;
	PL_TRY(find_halves(a, &h, &halves, err));
	PL_TRY(pl_alloc(out, halves + 1, sizeof(**out), err));
	for (from = 0; from < halves; from = end) {
		for (end = from; end < halves &&
				 !PL_COMPARE_FIELDS(&h[end], &h[from], match, src, dst, channel);)
			end++;
		for (recv = from; recv < end && !h[recv].recv;)
			recv++;
		for (size_t s = from, r = recv; s < recv; s++, r++) {
			bool both = r < end;

			(*out)[(*n)++] = (struct pl_paired){ h[s].match, h[s].msg,
							     both ? h[r].msg : PL_NONE };
			a->rep->message_matches += both;
		}
		a->rep->unmatched_messages += recv - from > end - recv
						      ? (recv - from) - (end - recv)
						      : (end - recv) - (recv - from);
	}
	pl_sort(*out, *n, sizeof(**out), by_match);
out:
	pl_free(h);
	return rc;
}
