/*
 * protocol.h - messages between workers and servers: bodies of messages of an endpoint.
 *
 * Each server holds a slice of the vector. Server 0 leads: it runs the policy, and tells the others
 * what to do with their slices, as numbered *actions*.
 *
 *     worker                              any server
 *     HELLO {id of the last commit,    ->
 *            version of its weights,
 *            memory of the server}
 *                                      <- WELCOME {id, version, memory}: addresses (of server 0)
 *                                      <- REPLY {...} a slice of W
 *     (or the server: REFUSED {text})
 *
 *     worker                              server 0
 *     READY                            ->        all servers have said WELCOME
 *                                      <- ORDER {order}, REPLY
 *     COMMIT {id, session, version,
 *             weights?} slice of U     ->        applied at most once: ids of a worker ascend
 *                                      <- ORDER {order}, REPLY
 *                                      <- ORDER {order}         while the worker computes
 *                                      <- END {why}
 *     BYE {session}: counts            ->
 *
 *     worker                              server k            server 0
 *     SLICE {id, session, version,
 *            weights?} of U            -> keeps it
 *                                         HAVE {id, session, worker} ->
 *                                                          <- ACTIONS
 *                                         DONE {number, bytes sent}  ->
 *     REPLY                            <- for the worker
 *
 *     server 0                            server k
 *     BYE                              -> groups use MPI, which may end: all workers have
 *
 *     rank of a group                     server 0            another rank of it
 *     MEET {number of the worker}: at  ->                  <- MEET {number}
 *                                      <- MEET: at         -> MEET: at
 *
 *     any other process                   server 0
 *     PLACES {host}                    ->                     where groups are hosts
 *                                      <- PLACES: the worker of each rank
 *
 * An ORDER is a struct pl_policy_order whose times count from the message on, with the step of the
 * job. A REPLY has in its values the id of the worker's last commit that was applied, the version
 * of W, the time from the arrival of the commit to the reply (ns), and the number of its action;
 * its body is that of copies.c. A worker takes a reply when all servers have sent their slices of
 * one number, which are all of one version.
 *
 * Worker and server both have the weights of a reply until the next one. If that is so with all
 * servers, the bodies of a commit are slices of the new weights, not of U. COMMIT and SLICE name
 * the version from which these weights began, and each server subtracts it. Both sides say in HELLO
 * and WELCOME which version they have still; UINT64_MAX is none. A commit that is sent again has U.
 *
 * Server 0 takes a commit to have arrived when all servers have their slices, which the others keep
 * in memory that outlives them. So each action can be carried out at once, whoever is killed. It
 * keeps actions until all servers have carried them out, and sends them again to one that connects
 * again. A server that greets server 0 (SERVER {number of the last action}) names the slices that
 * it keeps.
 *
 * `memory` is a random number of the memory that outlives a server; 0: the worker does not know it
 * yet. A server with another memory than the one before it, because a launcher started it anew,
 * does not have the weights. It ends the training when it is told the number of that one.
 *
 * A worker that lost its connection to server 0 in the middle of a commit says HELLO and READY
 * again. If the reply names an id below that of its commit, the server never applied it, and the
 * worker sends it again. One that lost another server says HELLO to that one, and READY if a part
 * of its reply may be lost: server 0 then replies once more. A session is a random number of a
 * process, so slices of two processes that are one worker after another are never taken for one
 * commit.
 *
 * Numbers are those of the machine: all processes of a job have the same byte order, which HELLO
 * checks.
 */
#ifndef PL_PS_PROTOCOL_H
#define PL_PS_PROTOCOL_H

#include "policy/policy.h"

enum pl_ps_message {
	PL_PS_HELLO = 1,
	PL_PS_WELCOME,
	PL_PS_READY,
	PL_PS_COMMIT,
	PL_PS_SLICE,
	PL_PS_REPLY,
	PL_PS_ORDER,
	PL_PS_END,
	PL_PS_BYE,
	PL_PS_REFUSED,
	PL_PS_MEET,
	PL_PS_PLACES,
	/* between servers */
	PL_PS_SERVER,
	PL_PS_HAVE,
	PL_PS_ACTIONS,
	PL_PS_DONE
};

/* Of a process that is a worker, since it began; a new session counts from 0. */
struct pl_ps_counts {
	uint64_t steps, bytes_sent;
	pl_ns compute_ns; /* steps, pauses of a paced worker included */
	pl_ns wait_ns;	  /* a reply waited for other workers */
	pl_ns commit_ns;  /* the rest of commits: sending, applying, receiving */
};
struct pl_ps_order {
	struct pl_policy_order policy;
	/* Of the job, at which it is, and how many more each step of the worker makes: by them goes
	 * the schedule of the learning rate. */
	double step, pace;
	uint64_t applied; /* id of the worker's last commit that is in `step` */
};
#define PL_PS_ADDRESS 304
/* value[0]: id of the last commit that it sent, or number of the action; [1]: version, or, of a
 * server, its memory; [2]: of a worker: the memory of the server before */
struct pl_ps_hello {
	uint64_t job;		/* hash of job, model and plan */
	uint64_t n;		/* numbers of a vector */
	char at[PL_PS_ADDRESS]; /* of a server: where it accepts; "": as the meeting says */
};
/* The floats of a commit's body begin behind so many bytes. */
#define PL_PS_HEAD 256
/* Then U, or weights. value[0]: id; [1]: session; [2]: version that it began from; [3]: 1: weights
 */
struct pl_ps_commit {
	uint64_t steps, samples;	    /* of this commit */
	uint64_t base;			    /* version of the weights from which they began */
	double loss;			    /* mean */
	double lr;			    /* of the last step */
	pl_ns step_ns, commit_ns, reply_ns; /* as pl_policy_event */
	int64_t hits, classified;
	struct pl_ps_counts counts;
};
_Static_assert(sizeof(struct pl_ps_commit) <= PL_PS_HEAD, "the head of a commit");

/* What all servers do with their slices, in the order of the numbers, which begin at 1. */
enum pl_ps_action_kind {
	PL_PS_UPDATE = 1,
	PL_PS_SEND, /* W to the worker */
	PL_PS_COPY  /* W to server 0 */
};
struct pl_ps_action {
	uint64_t number;
	uint32_t kind, worker;
	uint64_t id, session; /* UPDATE: of the worker's commit that U is; id 0: there is no U */
	struct pl_policy_update update;
};

#endif
