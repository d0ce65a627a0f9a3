/*
 * The cost of a communication in two parts that change independently: a, the latency, grows with
 * the number of messages that follow one another; b is the time for each byte.
 *
 * To move a fit to another number of ranks, the messages and bytes of a ring are counted (of a
 * chain or a tree if the collective uses one; the counts of analytic.c). This needs no figures of
 * links. Analysis is needed only for the influence of one link among several: with no bytes for a,
 * and with the difference between no bytes and many bytes for b.
 */
#include <math.h>
#include <string.h>

#include "cost/internal.h"

#define MANY_BYTES (INT64_C(1) << 40) /* beside which a latency is nothing */

static unsigned coll_of(const struct pl_cost_comm *c)
{
	bool message = c->kind == PL_K_SEND || c->kind == PL_K_RECV;

	return message && c->coll == PL_COLL_OTHER ? PL_COLL_SEND : c->coll;
}

void pl_cost_ring(const struct pl_cost_comm *comm, double *messages, double *share)
{
	double n = comm->n > 1 ? comm->n : 1;

	switch (coll_of(comm)) {
	case PL_COLL_SEND:
	case PL_COLL_RECV:
	case PL_COLL_SENDRECV:
		*messages = *share = 1;
		return;
	case PL_COLL_BROADCAST:
	case PL_COLL_REDUCE:
		*messages = n - 1;
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
	case PL_COLL_REDUCE_SCATTER:
	case PL_COLL_ALLGATHER:
	case PL_COLL_ALLTOALL:
		*messages = n - 1;
		*share = (n - 1) / n;
		return;
	default:
		*messages = 2 * (n - 1);
		*share = 2 * (n - 1) / n;
	}
}

/* a, and b times MANY_BYTES. */
static void analyse(const struct pl_cost *c, const struct pl_cost_comm *comm, double *a,
		    double *many)
{
	struct pl_cost_comm x = *comm;

	x.algo = PL_ALGO_RING;
	x.parts = 0;
	x.bytes = 0;
	*a = (double)pl_cost_analytic(&c->topo, &x);
	x.bytes = MANY_BYTES;
	*many = (double)pl_cost_analytic(&c->topo, &x) - *a;
}

bool pl_cost_line(const struct pl_cost *c, const struct pl_cost_comm *comm,
		  struct pl_cost_line *out)
{
	const struct pl_fit *f = pl_cost_find_fit(c, comm->kind, comm->coll, comm->n);
	struct pl_cost_comm was = *comm;
	double now[2], then[2], a, many;

	if (comm->n < 2)
		return false;
	out->bytes = pl_max_i64(comm->bytes, 0);
	if (!f) {
		was.n_changes = 0;
		analyse(c, &was, &a, &many);
		out->a_ns = a;
		out->b_ns_per_byte = many / (double)MANY_BYTES;
		return true;
	}
	if (comm->bytes < 0)
		out->bytes = f->min_bytes + (f->max_bytes - f->min_bytes) / 2;
	was.n = f->n;
	pl_cost_ring(comm, &now[0], &now[1]);
	pl_cost_ring(&was, &then[0], &then[1]);
	out->a_ns = (f->a_ns + f->flight_ns) * (then[0] > 0 ? now[0] / then[0] : 1);
	out->b_ns_per_byte = f->b_ns_per_byte * (then[1] > 0 ? now[1] / then[1] : 1);
	return true;
}

void pl_cost_links(const struct pl_cost *c, const struct pl_cost_comm *comm, double *a, double *b)
{
	struct pl_cost_comm x = *comm;
	double was[2], now[2];
	bool named = false;

	*a = *b = 1;
	for (uint32_t i = 0; i < comm->n_changes; i++) {
		if (strcmp(comm->change[i].link, "*") != 0) {
			named = true;
			continue;
		}
		*a *= comm->change[i].latency;
		*b /= comm->change[i].bandwidth;
	}
	if (!named)
		return;
	analyse(c, comm, &now[0], &now[1]);
	x.n_changes = 0;
	analyse(c, &x, &was[0], &was[1]);
	*a = was[0] > 0 ? now[0] / was[0] : 1;
	*b = was[1] > 0 ? now[1] / was[1] : 1;
}
