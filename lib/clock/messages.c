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
#include <string.h>

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
	pl_ns ts;
	int32_t src, dst, channel;
	uint32_t match, msg;
};

PL_COMPARATOR(by_number, struct numbered, rank, seq, ts, match);

static int same_way(const struct half *a, const struct half *b)
{
	if (a->match != b->match)
		return a->match < b->match ? -1 : 1;
	if (a->src != b->src)
		return a->src < b->src ? -1 : 1;
	if (a->dst != b->dst)
		return a->dst < b->dst ? -1 : 1;
	return a->channel < b->channel ? -1 : a->channel > b->channel;
}

static int by_way(const void *pa, const void *pb)
{
	const struct half *a = pa, *b = pb;
	int c = same_way(a, b);

	if (c)
		return c;
	if (a->ts != b->ts)
		return a->ts < b->ts ? -1 : 1;
	return a->msg < b->msg ? -1 : a->msg > b->msg;
}

PL_COMPARATOR(by_match, struct pl_paired, match, send);

static int number_collectives(const struct pl_align *a, struct numbered **v, size_t *n,
			      struct pl_err *err)
{
	uint32_t *match = NULL;
	int rc;

	PL_TRY(pl_alloc(&match, a->n + 1, sizeof(*match), err));
	PL_TRY(pl_alloc(v, a->n + 1, sizeof(**v), err));
	memset(match, 0xff, a->n * sizeof(*match));
	for (uint32_t i = 0; i < a->n_matches; i++)
		for (uint32_t k = 0; k < a->match[i].n; k++)
			match[a->member[a->match[i].first + k]] = i;
	for (size_t i = 0; i < a->n; i++) {
		const struct pl_comm *e = &a->ev[i];

		if (e->kind == PL_K_COLLECTIVE && e->seq != PL_NO_VALUE && match[i] != PL_NONE)
			(*v)[(*n)++] = (struct numbered){ e->seq,   e->ts,    e->end, e->rank,
							  e->group, match[i], e->end };
	}
	if (*n)
		qsort(*v, *n, sizeof(**v), by_number);
	for (size_t i = 1; i < *n; i++)
		if ((*v)[i].rank == (*v)[i - 1].rank && (*v)[i].seq == (*v)[i - 1].seq)
			(*v)[i].until = pl_max_i64((*v)[i].end, (*v)[i - 1].until);
out:
	pl_free(match);
	return rc;
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

struct pairing {
	struct pl_align *a;
	struct half *send, *recv;
	size_t n_send, n_recv;
};

static int split(struct pairing *p, struct pl_err *err)
{
	struct pl_align *a = p->a;
	struct numbered *v = NULL;
	size_t n = 0;
	int rc;

	PL_TRY(number_collectives(a, &v, &n, err));
	PL_TRY(pl_alloc(&p->send, a->n_msg, sizeof(*p->send), err));
	PL_TRY(pl_alloc(&p->recv, a->n_msg, sizeof(*p->recv), err));
	for (uint32_t i = 0; i < a->n_msg; i++) {
		const struct pl_comm *e = &a->msg[i];
		bool send = e->kind == PL_K_SEND;
		struct half h = { e->ts, e->rank, e->peer, e->channel, collective_of(v, n, e), i };

		if (!send) {
			h.src = e->peer;
			h.dst = e->rank;
		}
		if (h.match == PL_NONE || e->peer < 0)
			a->rep->unmatched_messages++;
		else if (send)
			p->send[p->n_send++] = h;
		else
			p->recv[p->n_recv++] = h;
	}
	if (p->n_send)
		qsort(p->send, p->n_send, sizeof(*p->send), by_way);
	if (p->n_recv)
		qsort(p->recv, p->n_recv, sizeof(*p->recv), by_way);
out:
	pl_free(v);
	return rc;
}

int pl_clock_messages(struct pl_align *a, struct pl_paired **out, size_t *n, struct pl_err *err)
{
	struct pairing p = { .a = a };
	size_t k = 0;
	int rc = 0;

	*out = NULL;
	*n = 0;
	if (!a->n_msg)
		return 0;
	PL_TRY(split(&p, err));
	PL_TRY(pl_alloc(out, p.n_send + 1, sizeof(**out), err));
	for (size_t i = 0; i < p.n_send; i++) {
		uint32_t recv = PL_NONE;

		for (; k < p.n_recv && same_way(&p.recv[k], &p.send[i]) < 0; k++)
			a->rep->unmatched_messages++;
		if (k < p.n_recv && !same_way(&p.recv[k], &p.send[i]))
			recv = p.recv[k++].msg;
		(*out)[(*n)++] = (struct pl_paired){ p.send[i].match, p.send[i].msg, recv };
		a->rep->message_matches += recv != PL_NONE;
		a->rep->unmatched_messages += recv == PL_NONE;
	}
	a->rep->unmatched_messages += p.n_recv - k;
	pl_sort(*out, *n, sizeof(**out), by_match);
out:
	pl_free(p.send);
	pl_free(p.recv);
	return rc;
}
