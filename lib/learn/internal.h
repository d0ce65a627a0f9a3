/* internal.h - the trees of a model in a form that is fast to apply. */
#ifndef PL_LEARN_INTERNAL_H
#define PL_LEARN_INTERNAL_H

#include "learn/boost.h"

/* Sets m->flat. Nodes, roots and trees of m are valid. */
int pl_boost_flatten(struct pl_boost *m, struct pl_err *err) PL_MUST;
void pl_boost_flat_free(struct pl_boost_flat *f); /* NULL is fine */

#endif
