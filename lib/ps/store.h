/*
 * store.h - the vectors of a server: weights W, sum S and velocity V (policy.h), and what it
 * counts.
 *
 * They lie in memory that outlives the process where its starter gave a file for it, so a server
 * that was killed goes on with all that it ever acknowledged. Each vector has two places. An update
 * writes the other place; pl_ps_store_commit() makes all updates since the last commit valid at
 * once, with one store of a word. A server that dies before it has changed nothing.
 *
 * W may have more places, each behind a head of PL_PS_BODY bytes: bodies that can be sent as they
 * are. An update writes W to one of them where the caller has named it.
 */
#ifndef PL_PS_STORE_H
#define PL_PS_STORE_H

#include "ps/protocol.h"
#include "train/worker.h"

struct pl_ps_store; /* opaque */

/* Numbers of a worker that the server has applied. */
struct pl_ps_applied {
	uint64_t id; /* of its last commit; 0: none */
	/* Of the commit whose U is kept; 0: none. */
	uint64_t kept, session;
	/* What the processes have counted that were this worker: `counts` that of this session, and
	 * `before` all earlier ones. */
	uint64_t counted;
	struct pl_ps_counts before, counts;
};
struct pl_ps_progress { /* of the training */
	uint64_t version;
	uint64_t actions;	     /* number of the last one */
	uint64_t steps, samples;     /* committed */
	uint64_t w_steps, w_samples; /* of them, those that W has: all but those of a round */
	uint64_t bytes_sent;	     /* by the processes that were this server */
	pl_ns begin; /* all workers were there, for the first time; on the clock of this host */
	bool begun;  /* that has happened */
	bool over;   /* no worker is needed any more */
	struct pl_train_best best;
	double to_target_s; /* what training has measured when it is over */
	int64_t to_target_samples;
};

struct pl_ps_store_opts {
	/* An open file without a name (memfd), kept by the process that starts the server anew; -1:
	 * memory of this process. */
	int fd;
	size_t n; /* numbers of a vector */
	uint32_t workers;
	uint32_t bodies;  /* more places of W; PL_PS_BODIES at most */
	bool keeps;	  /* a U of each worker */
	uint32_t actions; /* so many of the last actions are kept */
};
/* *fresh: nothing was ever committed to the file, and W is 0. PL_EDATA: the file has vectors of
 * another length or for another number of workers. */
int pl_ps_store_open(const struct pl_ps_store_opts *o, struct pl_ps_store **s, bool *fresh,
		     struct pl_err *err) PL_MUST;
void pl_ps_store_close(struct pl_ps_store *s); /* NULL is fine; the file stays */

/* A random number that no other memory has; not 0. */
uint64_t pl_ps_store_number(const struct pl_ps_store *s);

/* W as the last update left it, valid or not yet: (n). */
const float *pl_ps_store_weights(const struct pl_ps_store *s);
/* For the start: the values are valid after the next commit. */
float *pl_ps_store_begin(struct pl_ps_store *s);
/* What an update adds: U = to - from, from NULL: U = to; each (n). to NULL: the update has no U. */
struct pl_ps_change {
	const float *to, *from;
};
/* As struct pl_policy_update has it. */
void pl_ps_store_update(struct pl_ps_store *s, const struct pl_policy_update *up,
			const struct pl_ps_change *u);
/* Computes W as an update would change it, into a body, which then is of no use for others. The
 * next update takes it if it is this one, with these memory and numbers, and goes to this body; it
 * is forgotten by any other update, and by drop(). keep: not NULL: U = to - from goes there, and
 * the update will have it from there. Only for updates of W by U alone: else it does nothing, and
 * returns false. */
bool pl_ps_store_guess(struct pl_ps_store *s, const struct pl_policy_update *up,
		       const struct pl_ps_change *u, float *keep, int body);
void pl_ps_store_guess_drop(struct pl_ps_store *s);
/* The body of the guess; -1: there is none. */
int pl_ps_store_guessed(const struct pl_ps_store *s);
#define PL_PS_BODY   64 /* bytes in front of the weights of a body, so that these are aligned */
#define PL_PS_BODIES 64
/* A body. */
char *pl_ps_store_body(const struct pl_ps_store *s, uint32_t i);
/* The body that W is in; -1: none. */
int pl_ps_store_in_body(const struct pl_ps_store *s);
/* The next update that changes W for the first time since the last commit writes it to this body,
 * which is not the one that W is in; -1: to none. A later one writes where W is. */
void pl_ps_store_aim(struct pl_ps_store *s, int body);
/* Has W changed since the last commit? */
bool pl_ps_store_moved(const struct pl_ps_store *s);
/* The memory of the store, if it is a file that may be shared; -1: it is none. */
int pl_ps_store_file(const struct pl_ps_store *s, void **p, size_t *bytes);
/* The next updates that change W write it there, too: (n). NULL: no more. */
void pl_ps_store_also(struct pl_ps_store *s, float *to);

/* Of the last commit, or as changed since: valid after the next one. */
struct pl_ps_progress *pl_ps_store_progress(struct pl_ps_store *s);
struct pl_ps_applied *pl_ps_store_applied(struct pl_ps_store *s, uint32_t worker);
/* What the policy put (pl_policy_put()): *n bytes at the place returned. */
#define PL_PS_POLICY_BYTES(workers) ((size_t)1024 + 64 * (size_t)(workers))
uint8_t *pl_ps_store_policy(struct pl_ps_store *s, size_t **n);
/* The place of the worker's U, if the store keeps them. It is no part of commits: who writes it
 * says before, in a commit of its own, that nothing is kept. */
float *pl_ps_store_kept(struct pl_ps_store *s, uint32_t worker);
/* The place of an action, if the store keeps them; the one that was `actions` before is gone. */
struct pl_ps_action *pl_ps_store_action(struct pl_ps_store *s, uint64_t number);

void pl_ps_store_commit(struct pl_ps_store *s);

#endif
