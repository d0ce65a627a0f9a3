/*
 * The cost of a communication in two parts that change independently: a, the latency, grows with
 * the number of messages that follow one another; b is the time for each byte.
 *
 * To move a fit to another number of ranks, the messages and bytes of a ring are counted (of a
 * chain or a tree if the collective uses one; the counts of analytic.c). This needs no figures of
 * links. Analysis is needed for a topology that says which links the other ranks use, and for the
 * influence of one link among several: with no bytes for a, and with the difference between no
 * bytes and many bytes for b.
 */
#include <math.h>

#include "cost/internal.h"

#define MANY_BYTES (INT64_C(1) << 40) /* beside which a latency is nothing */

void pl_cost_ring(const struct pl_cost_comm *comm, double *messages, double *share)
{
	double n = comm->n > 1 ? comm->n : 1, part = (n - 1) / n, steps = n - 1;

	if (comm->was == PL_COST_DIRECT) {
		*messages = *share = 1;
		return;
	}
	if (comm->was == PL_ALGO_TREE || comm->was == PL_ALGO_HALVING)
		steps = pl_cost_log2(comm->n);
	if (comm->was == PL_ALGO_TREE)
		part = 1;
	switch (pl_cost_coll(comm)) {
	case PL_COLL_SEND:
	case PL_COLL_RECV:
	case PL_COLL_SENDRECV:
		*messages = *share = 1;
		return;
	case PL_COLL_BROADCAST:
	case PL_COLL_REDUCE:
		*messages = comm->was == PL_ALGO_TREE ? steps : n - 1;
		*share = 1;
		return;
	case PL_COLL_GATHER:
	case PL_COLL_SCATTER:
		*messages = pl_cost_log2(comm->n);
		*share = (n - 1) / n;
		return;
	case PL_COLL_BARRIER:
		*messages = 2.0 * pl_cost_log2(comm->n);
		*share = 0;
		return;
	case PL_COLL_ALLTOALL:
		*messages = n - 1;
		*share = (n - 1) / n;
		return;
	case PL_COLL_REDUCE_SCATTER:
	case PL_COLL_ALLGATHER:
		*messages = steps;
		*share = part;
		return;
	default:
		*messages = 2 * steps;
		*share = 2 * part;
	}
}

/* a, and b times MANY_BYTES. */
static void analyse(const struct pl_cost *c, const struct pl_cost_comm *comm, double *a,
		    double *many)
{
	struct pl_cost_comm x = *comm;

	x.algo = comm->was;
	x.servers = 1;
	x.parts = 0;
	x.bytes = 0;
	*a = (double)pl_cost_analytic(&c->topo, &x);
	x.bytes = MANY_BYTES;
	*many = (double)pl_cost_analytic(&c->topo, &x) - *a;
}

static double ratio(double now, double then)
{
	return then > 0 ? now / then : 1;
}

static bool is_all(const struct pl_link_change *x)
{
	return !strcmp(x->link, "*");
}

void pl_cost_links(const struct pl_cost *c, const struct pl_cost_comm *comm, double *a, double *b)
{
	struct pl_link_change named[PL_COST_CHANGES];
	struct pl_cost_comm x = *comm;
	double was[2], now[2];

	*a = *b = 1;
	x.change = named;
	x.n_changes = 0;
	for (uint32_t i = 0; i < comm->n_changes; i++) {
		const struct pl_link_change *change = &comm->change[i];

		if (!is_all(change)) {
			if (x.n_changes < PL_COST_CHANGES)
				named[x.n_changes++] = *change;
			continue;
		}
		*a = change->absolute ? 1 : *a * change->latency;
		*b /= change->bandwidth;
	}
	if (!x.n_changes)
		return;
	analyse(c, &x, &now[0], &now[1]);
	x.n_changes = 0;
	analyse(c, &x, &was[0], &was[1]);
	*a *= ratio(now[0], was[0]);
	*b *= ratio(now[1], was[1]);
}

/* Parts per message and byte, times these for a ring of the present ranks. */
static void move_ranks(const struct pl_cost *c, const struct pl_cost_comm *comm, uint32_t from,
		       struct moved *m)
{
	struct pl_cost_comm was = *comm, is = *comm;
	double now[2], then[2];

	was.n = from;
	was.n_changes = is.n_changes = 0;
	if (c->user_topology && comm->n != from && comm->n <= c->topo.n_ranks) {
		analyse(c, &is, &now[0], &now[1]);
		analyse(c, &was, &then[0], &then[1]);
	} else {
		pl_cost_ring(&is, &now[0], &now[1]);
		pl_cost_ring(&was, &then[0], &then[1]);
	}
	m->a_ns *= ratio(now[0], then[0]);
	m->flight_ns *= ratio(now[0], then[0]);
	m->b_ns_per_byte *= ratio(now[1], then[1]);
}

/* The latency of a message, for all of them: what a and flight share. */
static void move_latency(const struct pl_cost_comm *comm, struct moved *m)
{
	double messages, share, all = m->a_ns + m->flight_ns;

	for (uint32_t i = 0; i < comm->n_changes; i++) {
		if (!comm->change[i].absolute)
			continue;
		pl_cost_ring(comm, &messages, &share);
		messages *= comm->change[i].latency;
		m->flight_ns = all > 0 ? m->flight_ns / all * messages : 0;
		m->a_ns = messages - m->flight_ns;
		all = messages;
	}
}

struct moved pl_cost_moved(const struct pl_cost *c, const struct pl_cost_comm *comm,
			   const struct pl_fit *f)
{
	struct moved m = { f->a_ns, f->flight_ns, f->b_ns_per_byte };
	double a, b;

	move_ranks(c, comm, f->n, &m);
	move_latency(comm, &m);
	pl_cost_links(c, comm, &a, &b);
	m.a_ns *= a;
	m.flight_ns *= a;
	m.b_ns_per_byte *= b;
	return m;
}

bool pl_cost_line(const struct pl_cost *c, const struct pl_cost_comm *comm,
		  struct pl_cost_line *out)
{
	const struct pl_fit *f = pl_cost_find_fit(c, comm);
	struct pl_cost_comm was = *comm;
	struct pl_fit analysis;
	struct moved m;

	if (comm->n < 2)
		return false;
	out->bytes = pl_max_i64(comm->bytes, 0);
	if (!f) {
		double many;

		was.n = comm->recorded ? comm->recorded : comm->n;
		was.n_changes = 0;
		analysis = (struct pl_fit){ .n = was.n };
		analyse(c, &was, &analysis.a_ns, &many);
		analysis.b_ns_per_byte = many / (double)MANY_BYTES;
		f = &analysis;
	} else {
		out->bytes = cost_bytes(comm, f);
	}
	m = pl_cost_moved(c, comm, f);
	out->a_ns = m.a_ns + m.flight_ns;
	out->b_ns_per_byte = m.b_ns_per_byte;
	return true;
}
