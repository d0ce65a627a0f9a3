/* internal.h - predictions of leaves as whole numbers. */
#ifndef PL_LEARN_INTERNAL_H
#define PL_LEARN_INTERNAL_H

#include "learn/boost.h"

#define PL_BOOST_DIGITS 24 /* bits of a prediction, with the sign */

/* Sets m->step, and rounds predictions of leaves to it. Nodes of m are valid. */
void pl_boost_round(struct pl_boost *m);

#endif
