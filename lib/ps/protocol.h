/*
 * protocol.h - messages between workers and servers: bodies of messages of an endpoint.
 *
 *     worker                            server
 *     HELLO {id of the last commit}  ->
 *                                    <- ORDER {order}, REPLY {...} W
 *     COMMIT {id, counts} U          ->        applied at most once: ids of a worker ascend
 *                                    <- ORDER {order}, REPLY {...} W
 *                                    <- ORDER {order}         while the worker computes
 *                                    <- END {why}
 *     BYE {counts}                   ->
 *     (or the server: REFUSED {text})
 *
 * An ORDER is a struct pl_policy_order whose times count from the message on. A REPLY has in its
 * values the id of the worker's last commit that was applied, the version of W, and the time from
 * the arrival of the commit to the reply (ns); its body is W alone, which all workers with this
 * version share.
 *
 * A worker that lost its connection in the middle of a commit says HELLO again. If the reply names
 * an id below that of its commit, the server never applied it, and the worker sends it again.
 * Numbers are those of the machine: all processes of a job have the same byte order, which HELLO
 * checks.
 */
#ifndef PL_PS_PROTOCOL_H
#define PL_PS_PROTOCOL_H

#include "policy/policy.h"

enum pl_ps_message {
	PL_PS_HELLO = 1,
	PL_PS_COMMIT,
	PL_PS_REPLY,
	PL_PS_ORDER,
	PL_PS_END,
	PL_PS_BYE,
	PL_PS_REFUSED
};

/* Of a worker since the job began; times add up. */
struct pl_ps_counts {
	uint64_t steps, samples, commits, bytes_sent;
	pl_ns compute_ns; /* steps, pauses of a paced worker included */
	pl_ns wait_ns;	  /* a reply waited for other workers */
	pl_ns commit_ns;  /* the rest of commits: sending, applying, receiving */
	pl_ns begin, end; /* on the clock of its host */
};
struct pl_ps_hello {  /* value[0]: id of the last commit that it sent */
	uint64_t job; /* hash of job, model and plan */
	uint64_t n;   /* numbers of a vector */
};
/* The floats of a commit's body begin behind so many bytes. */
#define PL_PS_HEAD 256
struct pl_ps_commit {		  /* value[0]: id; then U */
	uint64_t steps, samples;  /* of this commit */
	uint64_t base;		  /* version of the weights from which they began */
	double loss;		  /* mean */
	pl_ns step_ns, commit_ns; /* as pl_policy_event */
	int64_t hits, classified;
	struct pl_ps_counts counts;
};
_Static_assert(sizeof(struct pl_ps_commit) <= PL_PS_HEAD, "the head of a commit");

#endif
