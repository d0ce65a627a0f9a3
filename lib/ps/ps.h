/*
 * ps.h - training with a parameter server: an engine of run(1), for workers of unequal speed.
 *
 * Workers take local steps and commit the changes of their weights; servers apply them as a policy
 * says (policy/policy.h, paceline-policy(5)). Each of several servers has a slice of the weights,
 * and the first one decides for all (protocol.h). A worker that is lost costs its work only, unless
 * the policy needs it; it may come back. A server that was killed is started again and goes on with
 * all that it acknowledged.
 *
 * Of the processes of such a job the first `servers` are servers, the others ranks that train: rank
 * r is process servers + r. A worker is a rank, or a group of them, which sum their gradients in
 * each step and commit as one: ranks with successive numbers, or those of one host (places.c).
 */
#ifndef PL_PS_H
#define PL_PS_H

#include "train/train.h"

extern const struct pl_engine pl_ps_engine;

#endif
