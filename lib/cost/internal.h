/* internal.h - what the sources of lib/cost share. */
#ifndef PL_COST_INTERNAL_H
#define PL_COST_INTERNAL_H

#include "core/spans.h"
#include "cost/cost.h"
#include "cost/work.h"

/* ---- links (analytic.c) ---------------------------------------------------------------------- */

/* How the first n ranks of a topology lie. Beyond its ranks come more hosts like the last one. */
struct placing {
	uint32_t hosts;
	uint32_t per_host; /* of the fullest host */
};
struct placing pl_cost_place(const struct pl_topology *t, uint32_t n);
/* The latency and the rate of a link for one of `users` ranks of a host that send at once. Without
 * a link of that scope, that of the other counts; without any, a message takes no time. */
struct hop {
	double latency_ns, ns_per_byte;
};
struct hop pl_cost_hop(const struct pl_topology *t, enum pl_scope scope, uint32_t users);
uint32_t pl_cost_log2(uint32_t n); /* rounded up */
/* enum pl_coll; that of a send or receive which names none is send. */
unsigned pl_cost_coll(const struct pl_cost_comm *c);

/* ---- the topology of a graph (topo.c) ---------------------------------------------------- */

int pl_cost_topo_detect(const struct pl_graph *g, struct pl_topology *t,
			struct pl_err *err) PL_MUST;
/* Set what only the graph says: whether each pair of ranks has a link, and the size of messages. */
void pl_cost_topo_recorded(const struct pl_graph *g, struct pl_topology *t);

/* ---- lines through points (line.c) ----------------------------------------------------------- */

struct point {
	double x, y; /* y > 0 */
};
struct line {
	double a, b;	 /* y = a + b x; neither is negative */
	double residual; /* median of |y - fit| / y */
};
/* Sets the residual. */
int pl_cost_line_residual(const struct point *p, size_t n, struct line *l,
			  struct pl_err *err) PL_MUST;
/* Half of the 90 % interval of the intercept; INFINITY: fewer than four points do not show it, nor
 * do points of one size. */
int pl_cost_line_interval(const struct point *p, size_t n, const struct line *l, double *half,
			  struct pl_err *err) PL_MUST;
/* Reorders p. n > 0. */
int pl_cost_line_fit(struct point *p, size_t n, struct line *l, struct pl_err *err) PL_MUST;
/* The line with the intercept a that has the least relative error. */
int pl_cost_line_through(const struct point *p, size_t n, double a, struct line *l,
			 struct pl_err *err) PL_MUST;
/* Sets the intercept to `a` if the points show no intercept and do not contradict. */
int pl_cost_line_settle(const struct point *p, size_t n, double a, struct line *l,
			struct pl_err *err) PL_MUST;

/* z[i] > 0: the analysis of p[i]. Finds the factor of z that explains the points best; 0: it is not
 * clearly better than a line. */
int pl_cost_line_shape(const struct point *p, const double *z, size_t n, const struct line *l,
		       double *factor, struct pl_err *err) PL_MUST;

/* ---- parts of the fit ------------------------------------------------------------------------ */

int pl_cost_issue(const struct pl_graph *g, pl_ns *issue, struct pl_err *err) PL_MUST;

/* Makes sends and receives one kind. True: it is one of them. */
static inline bool cost_same_kind(uint8_t *kind, uint8_t *coll)
{
	if (*kind != PL_K_RECV && *kind != PL_K_SEND && *coll != PL_COLL_SEND &&
	    *coll != PL_COLL_RECV)
		return false;
	*kind = PL_K_SEND;
	*coll = PL_COLL_SEND;
	return true;
}
/* The size of a communication; if it is not known, the middle of the fitted sizes. */
static inline int64_t cost_bytes(const struct pl_cost_comm *comm, const struct pl_fit *f)
{
	return comm->bytes < 0 ? f->min_bytes + (f->max_bytes - f->min_bytes) / 2 : comm->bytes;
}
/* Messages that follow one another, at least 1. */
static inline uint32_t cost_parts(const struct pl_cost_comm *comm)
{
	return comm->parts > 1 ? comm->parts : 1;
}

/* The parts of a fit, moved to the ranks and the changed links of a communication: the latency, its
 * part that does not occupy the link, and the time of a byte. */
struct moved {
	double a_ns, flight_ns, b_ns_per_byte;
};
struct moved pl_cost_moved(const struct pl_cost *c, const struct pl_cost_comm *comm,
			   const struct pl_fit *f);

/* ---- the work of operations (batch.c) ---------------------------------------------------------
 */

/* What a group of operations, or an operation, takes for a unit of its work. */
struct rate {
	double x, weight;
	uint32_t group;
};
/* The least x up to which that share of the weights of v[n] lies; 0: there is none. Sorts v. */
double pl_cost_at_share(struct rate *v, size_t n, double share);

/* *b is all zero; after a failure, too, pl_work_batch_fini() frees it. */
int pl_work_batch_find(const struct pl_graph *g, struct pl_work_batch *b,
		       struct pl_err *err) PL_MUST;
void pl_work_batch_fini(struct pl_work_batch *b);
void pl_work_describe(const struct pl_graph *g, const struct pl_work_batch *b, uint32_t row,
		      struct pl_work *w);

#endif
