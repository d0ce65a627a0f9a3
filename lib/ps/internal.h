/* internal.h - inside of the parameter server. */
#ifndef PL_PS_INTERNAL_H
#define PL_PS_INTERNAL_H

#include "comm/endpoint.h"
#include "core/pool.h"
#include "ps/protocol.h"
#include "ps/ps.h"
#include "ps/store.h"
#include "train/worker.h"

/* Weights and the network's running means, one after the other: what servers hold and workers
 * change. */
struct pl_ps_vector {
	size_t n_params, n_state;
};
static inline size_t pl_ps_vector_size(const struct pl_ps_vector *v)
{
	return v->n_params + v->n_state;
}
void pl_ps_vector_read(const struct pl_net_view *net, float *to);
void pl_ps_vector_write(const struct pl_net_view *net, const float *from);

/* ---- evaluate.c: held-out losses while the server serves ---------------------------------------
 */

/*
 * Evaluates copies of the weights on a thread of its own, so that no worker waits for it; the time
 * of an evaluation is that of its copy. The target is reached at the first of PL_PS_TARGET
 * evaluations in a row whose loss is not above it.
 */
#define PL_PS_TARGET 3
struct pl_ps_evaluator; /* opaque */
struct pl_ps_evaluator *pl_ps_evaluator_new(struct pl_train *t, struct pl_err *err);
void pl_ps_evaluator_free(struct pl_ps_evaluator *e); /* NULL is fine */
/* Is there room for one more, and is one due after so many steps of all workers together? */
bool pl_ps_evaluator_due(const struct pl_ps_evaluator *e, uint64_t steps);
/* Only when one is due. weights: copied. */
void pl_ps_evaluator_put(struct pl_ps_evaluator *e, const float *weights,
			 const struct pl_train_row *row);
/* Takes the results that there are: rows of the log, and t->time_to_target_s. wait: all of them. */
int pl_ps_evaluator_take(struct pl_ps_evaluator *e, bool wait, struct pl_err *err) PL_MUST;

/* ---- engine.c ----------------------------------------------------------------------------------
 */

struct pl_ps {
	struct pl_worker w; /* first */
	uint32_t workers, servers;
	uint32_t process; /* of all; servers come first */
	struct pl_ps_vector vector;
	uint64_t job; /* hash: all processes have the same */
	struct pl_endpoint *end;
	pl_ns timeout_ns;
	struct pl_ps_counts *counts;   /* of each worker; of a server */
	struct pl_policy_worker *seen; /* of each worker at the end; of a server */
};
static inline bool pl_ps_is_server(const struct pl_ps *p)
{
	return p->process < p->servers;
}
/* The controls of the two kinds of processes. */
int pl_ps_serve(struct pl_ps *p, struct pl_train *t, struct pl_err *err) PL_MUST;
int pl_ps_work(struct pl_ps *p, struct pl_train *t, struct pl_err *err) PL_MUST;

#endif
