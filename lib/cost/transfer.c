/*
 * The predictions of a fitted cost model.
 *
 * A line gives the time of a communication as it was recorded. Other ranks and changes of links
 * change the two parts of the line, latency and bytes (moved.c). Analysis gives the factor for
 * another algorithm: the analysis of that algorithm divided by the analysis of the recorded one.
 * The two analyses have similar errors, so their ratio is better than either.
 *
 * Precision: a trace in one precision does not show the time in another. Daydream (Zhu,
 * Phanishayee, Pekhimenko, ATC 2020) predicts mixed precision in this way: matrix products and
 * convolutions become three times as fast, because tensor cores carry them out; other operations
 * become twice as fast, because they move half as many bytes. This file does the same. An operation
 * that already has the precision gains nothing. TF32 makes only products faster.
 */
#include <math.h>

#include "cost/internal.h"
#include "kernel/kernel.h"

const struct pl_fit *pl_cost_find_fit(const struct pl_cost *c, const struct pl_cost_comm *comm)
{
	uint8_t kind = comm->kind, coll = comm->coll;
	bool message = cost_same_kind(&kind, &coll), alike = false; /* the algorithm of the best */
	uint32_t n = comm->recorded ? comm->recorded : comm->n;
	const struct pl_fit *best = NULL;
	double distance = 0;

	for (size_t i = 0; i < c->n_fits; i++) {
		const struct pl_fit *f = &c->fit[i];
		double d = fabs(log((double)f->n / (n ? n : 1)));
		bool same = message || f->algo == comm->was;

		if (f->kind == kind && f->coll == coll &&
		    (!best || same > alike || (same == alike && d < distance))) {
			best = f;
			distance = d;
			alike = same;
		}
	}
	return best;
}

/* The line of the fit for the communication, without its algorithm. */
static double line(const struct pl_cost *c, const struct pl_cost_comm *comm, const struct pl_fit *f)
{
	struct moved m = pl_cost_moved(c, comm, f);

	return m.a_ns * cost_parts(comm) + m.b_ns_per_byte * (double)comm->bytes;
}

pl_ns pl_cost_transfer(const struct pl_cost *c, const struct pl_cost_comm *comm)
{
	const struct pl_fit *f = pl_cost_find_fit(c, comm);
	struct pl_cost_comm now = *comm, then;
	double ns, before;

	if (comm->n < 2)
		return 0;
	if (!f)
		return pl_cost_analytic(&c->topo, comm);
	now.bytes = cost_bytes(comm, f);
	then = now;
	then.algo = f->algo;
	then.servers = 1; /* no recording says how many */
	ns = line(c, &now, f);
	if (f->shape > 0) {
		then.n = f->n;
		before = line(c, &then, f);
		ns = f->shape * (double)pl_cost_analytic(&c->topo, &then) *
		     (before > 0 ? ns / before : 1);
		then.n = now.n;
	}
	if (now.algo != now.was) {
		then.algo = now.was;
		before = (double)pl_cost_analytic(&c->topo, &then);
		if (!(before > 0))
			return pl_cost_analytic(&c->topo, &now);
		ns *= (double)pl_cost_analytic(&c->topo, &now) / before;
	}
	return (pl_ns)ceil(fmin(ns, 9e18));
}

/* More ranks are more messages that follow one another; another algorithm is not told apart. */
pl_ns pl_cost_flight(const struct pl_cost *c, const struct pl_cost_comm *comm)
{
	const struct pl_fit *f = pl_cost_find_fit(c, comm);

	if (comm->n < 2 || !f || !(f->flight_ns > 0))
		return 0;
	return (pl_ns)fmin(pl_cost_moved(c, comm, f).flight_ns, 9e18);
}

/* For a communication without a fit, only its effect on computation is known. */
void pl_cost_contention(const struct pl_cost *c, const struct pl_cost_comm *comm,
			double *computation, double *transfer)
{
	const struct pl_fit *f = pl_cost_find_fit(c, comm);
	double parts = cost_parts(comm), bytes, line;

	*computation = c->overlap;
	*transfer = 1;
	if (!f)
		return;
	bytes = (double)cost_bytes(comm, f);
	line = f->a_ns * parts + f->b_ns_per_byte * bytes;
	if (line > 0)
		*transfer = fmax(
			1, (f->a_contended_ns * parts + f->b_contended * f->b_ns_per_byte * bytes) /
				   line);
}

/* By type of elements: the time of an operation as a share of that in float32. */
static const double product_time[PL_KERNEL_TYPES_] = {
	[PL_KERNEL_FLOAT32] = 1,	[PL_KERNEL_TF32] = 1.0 / 3, [PL_KERNEL_FLOAT16] = 1.0 / 3,
	[PL_KERNEL_BFLOAT16] = 1.0 / 3, [PL_KERNEL_FLOAT64] = 1,    [PL_KERNEL_FLOAT8] = 1.0 / 6,
};
static const double moving_time[PL_KERNEL_TYPES_] = {
	[PL_KERNEL_FLOAT32] = 1,    [PL_KERNEL_TF32] = 1,    [PL_KERNEL_FLOAT16] = 0.5,
	[PL_KERNEL_BFLOAT16] = 0.5, [PL_KERNEL_FLOAT64] = 1, [PL_KERNEL_FLOAT8] = 0.25,
};

double pl_cost_precision(unsigned op, const char *type, const char *precision)
{
	const double *time = pl_graph_is_product(op) ? product_time : moving_time;
	int from = type ? pl_kernel_type_find(type) : PL_KERNEL_FLOAT32;
	int to = pl_kernel_type_find(precision);

	/* whole numbers have no precision */
	return from >= 0 && to >= 0 && time[from] > 0 && time[to] > 0 ? time[to] / time[from] : 1;
}
