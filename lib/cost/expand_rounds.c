/*
 * Collectives in which all members send at once, step by step. A member sends in a step when it has
 * sent and received its messages of the step before.
 *
 *   ring   2(n-1) steps (reduce-scatter, then all-gather; else one of them) of S/n to the right
 *          neighbour
 *   halving-doubling  S/2 to the partner at distance 1, S/4 at distance 2 ... and back the same
 * way. If n is no power of two, over the circulant distances ceil(n/2), ceil(n/4) ... 1, each
 *          carrying as many blocks as it is from the last one (Traeff, Optimal, non-pipelined
 *          reduce-scatter and allreduce algorithms, arXiv 2410.14234): ceil(log2 n) steps and
 *          (n-1)/n S, as of a power of two
 *   hierarchical  a ring of S/m in each host of m members, rings of S/mh between the members with
 *          the same place in the h hosts, and back
 *   all-to-all  S/n to each other member in turn, those of the own host first
 */
#include <math.h>

#include "cost/expand_internal.h"

/* ---- one step -------------------------------------------------------------------------------- */

static uint32_t shifted(uint32_t i, uint32_t d, uint32_t n)
{
	return i + d < n ? i + d : i + d - n;
}

static void send_chunk(struct expansion *s, uint32_t i, uint32_t to, uint32_t k, double bytes)
{
	uint32_t n = s->chunks, *id = &s->now[i * n + k], last;
	pl_ns dur = pl_cost_expand_busy(&s->m[i], (long double)s->hop[i].ns_per_byte * bytes / n);

	*id = pl_cost_expand_message(s, i, to, NULL, bytes / n, dur);
	last = k ? id[-1] : s->begun ? s->prev[i * n + n - 1] : s->m[i].arrive;
	pl_cost_expand_edge(s, last, *id, PL_E_SEQ, 0);
	if (s->begun)
		pl_cost_expand_edge(s, s->prev[s->was[i] * n + k], *id, PL_E_DATA,
				    expand_latency(s->was_hop[s->was[i]]));
}

/* One step: member i sends to member to(arg, i). */
static void send_round(struct expansion *s,
		       uint32_t (*to)(const struct expansion *, const void *, uint32_t),
		       const void *arg, bool all, double bytes)
{
	struct hop *hops = s->was_hop;
	uint32_t *v = s->prev, *w = s->was;

	for (uint32_t i = 0; i < s->n && s->rc >= 0; i++) {
		uint32_t other = to(s, arg, i);

		s->from[other] = i;
		s->hop[i] = pl_cost_expand_between(s, i, other, all);
		for (uint32_t k = 0; k < s->chunks; k++)
			send_chunk(s, i, other, k, bytes);
	}
	s->prev = s->now;
	s->now = v;
	s->was = s->from;
	s->from = w;
	s->was_hop = s->hop;
	s->hop = hops;
	s->begun = true;
}

/* A member ends when its last message is sent and the last message to it has arrived. */
static void end_rounds(struct expansion *s)
{
	uint32_t n = s->chunks;

	for (uint32_t i = 0; s->begun && i < s->n && s->rc >= 0; i++) {
		uint32_t from = s->was[i];

		pl_cost_expand_edge(s, s->prev[i * n + n - 1], s->m[i].transfer, PL_E_SEQ, 0);
		pl_cost_expand_edge(s, s->prev[from * n + n - 1], s->m[i].transfer, PL_E_DATA,
				    expand_latency(s->was_hop[from]));
	}
}

/* ---- ring ------------------------------------------------------------------------------------ */

static uint32_t at_distance(const struct expansion *s, const void *d, uint32_t i)
{
	return shifted(i, *(const uint32_t *)d, s->n);
}

void pl_cost_expand_ring(struct expansion *s, bool both)
{
	uint32_t one = 1;

	for (uint32_t j = 0; j < (both ? 2 : 1) * (s->n - 1); j++)
		send_round(s, at_distance, &one, false, s->bytes / s->n);
	end_rounds(s);
}

/* ---- halving-doubling ------------------------------------------------------------------------ */

static uint32_t partner(const struct expansion *s, const void *d, uint32_t i)
{
	(void)s;
	return i ^ *(const uint32_t *)d;
}

/* Step k of the halving; of n = 6: 3, 2, 1 away with 3, 1 and 1 blocks. */
static void halve(struct expansion *s, uint32_t k)
{
	uint32_t before = s->n, d = 1u << k;

	if (!(s->n & (s->n - 1))) {
		send_round(s, partner, &d, true, ldexp(s->bytes, -(int)k - 1));
		return;
	}
	for (uint32_t j = 0; j < k; j++)
		before -= before / 2;
	d = before - before / 2;
	send_round(s, at_distance, &d, true, s->bytes * (before - d) / s->n);
}

void pl_cost_expand_halving(struct expansion *s, bool scatter, bool gather)
{
	uint32_t steps = pl_cost_log2(s->n);

	for (uint32_t k = 0; scatter && k < steps; k++)
		halve(s, k);
	for (uint32_t k = steps; gather && k-- > 0;)
		halve(s, k);
	end_rounds(s);
}

/* ---- hosts of m members ---------------------------------------------------------------------- */

struct shift { /* to the member so many hosts and places in the host further */
	uint32_t hosts, places;
};

static uint32_t by_shift(const struct expansion *s, const void *arg, uint32_t i)
{
	const struct shift *d = arg;
	uint32_t m = s->place.per_host;

	return shifted(i / m, d->hosts, s->place.hosts) * m + shifted(i % m, d->places, m);
}

void pl_cost_expand_hierarchical(struct expansion *s, bool scatter, bool gather)
{
	uint32_t m = s->place.per_host, h = s->place.hosts;
	struct shift in = { 0, 1 }, out = { 1, 0 };
	double host_bytes = s->bytes / m / h;

	for (uint32_t j = 1; scatter && j < m; j++)
		send_round(s, by_shift, &in, true, s->bytes / m);
	for (uint32_t j = 1; j < (scatter && gather ? 2 * h - 1 : h); j++)
		send_round(s, by_shift, &out, true, host_bytes);
	for (uint32_t j = 1; gather && j < m; j++)
		send_round(s, by_shift, &in, true, s->bytes / m);
	end_rounds(s);
}

void pl_cost_expand_alltoall(struct expansion *s)
{
	uint32_t m = s->place.per_host;

	for (uint32_t d = 1; d < s->n; d++) {
		struct shift x = { d / m, d % m };

		if (s->even)
			send_round(s, by_shift, &x, true, s->bytes / s->n);
		else
			send_round(s, at_distance, &d, true, s->bytes / s->n);
	}
	end_rounds(s);
}
