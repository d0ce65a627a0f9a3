/* internal.h - inside of the parameter server. */
#ifndef PL_PS_INTERNAL_H
#define PL_PS_INTERNAL_H

#include <stdatomic.h>

#include "comm/endpoint.h"
#include "core/pool.h"
#include "dp/dp.h"
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
/* Numbers at .. at + n - 1 of it. */
void pl_ps_vector_put(const struct pl_net_view *net, size_t at, const float *from, size_t n);
/* It lies in memory of the host, so that one pass can read or write its numbers and others. NULL */
static inline float *pl_ps_vector_in_host(const struct pl_net_view *net)
{
	return net->be->device ? NULL : net->params;
}
/* With the number of the server. */
#define PL_PS_ANEW                                                                                 \
	"server %u was started anew, without the weights of the one before it, which are lost"
/* A server that is started again takes a moment; it is given up after so many timeouts. */
#define PL_PS_PATIENCE 10
/* Ranks of a group wait for one of them that is alive for so many timeouts: it may compute. */
#define PL_PS_GROUP_PATIENCE 400

/* ---- group.c: ranks that are one worker --------------------------------------------------------
 */

/* What was counted for the next commit, by this rank, or by all of the group; a sum of doubles. */
struct pl_ps_tally {
	double loss, samples, hits, classified; /* loss: of all samples */
	double bytes; /* that ranks of the group sent one another, since training began */
	double asked; /* ranks that were asked to end */
};
/* What all ranks of the group do next. */
enum pl_ps_word {
	PL_PS_STEP = 1,
	PL_PS_SUM,   /* pl_ps_group_sum() */
	PL_PS_TAKE,  /* pl_ps_group_give() */
	PL_PS_OVER,  /* training has ended */
	PL_PS_FAILS, /* the leader has, although no rank is lost */
	PL_PS_HOLD   /* nothing: the leader waits for servers */
};
struct pl_ps_turn {
	uint32_t word;
	uint32_t fresh;	     /* TAKE: what was counted since the last commit is forgotten */
	int64_t step, batch; /* STEP: its number; samples of all ranks, 0: the job's */
	int64_t at;	     /* STEP: number of the step of the schedule */
	double rate;	     /* STEP: factor of the learning rate */
};
/* A worker that is one rank has a group of size 1, without a world: nothing is sent. */
struct pl_ps_group {
	uint32_t size, member;	/* member: number of this rank; 0 leads. Of a server 1 and 0 */
	struct pl_world *world; /* NULL: none, or it is over */
	bool over;		/* the world has ended, and its memory is freed */
	bool broken;		/* it has, because a rank was lost */
	bool in_turn;		/* other ranks may wait for this one, or it for them */
	bool fails;		/* all ranks know that the leader has failed */
	/* A rank was lost; why: set before it. */
	atomic_bool lost;
	char why[sizeof(((struct pl_err *)0)->msg)];
	struct pl_dp_sync sync;
	int64_t batch; /* of the last step, as its turn said */
	/* Adam counts steps from the one in which the optimizer began; its state is not that of a
	 * checkpoint. */
	bool begun;
	int64_t begin;
	struct pl_ps_tally tally;
};

/* ---- engine.c ----------------------------------------------------------------------------------
 */

/* Which ranks are which worker. */
struct pl_ps_places {
	uint32_t *worker; /* [rank] */
	uint32_t *first;  /* [workers + 1]: where the ranks of a worker begin in `rank` */
	uint32_t *rank; /* [ranks]: those of worker 0, then those of worker 1 ...; each in order */
};
struct pl_ps {
	struct pl_worker w; /* first */
	const struct pl_engine_meeting *meeting;
	uint32_t ranks, servers; /* processes */
	uint32_t workers;	 /* ranks, or groups of them */
	struct pl_ps_places places;
	/* Number of the server, or servers + number of the worker, which all ranks of a group have.
	 * It is the id of endpoints, which servers and leaders of groups have. */
	uint32_t process;
	struct pl_ps_group g;
	struct pl_ps_vector vector;
	uint64_t job; /* hash: all processes have the same */
	struct pl_endpoint *end;
	struct pl_attendance
		*attends;	   /* MPI, in which its group, if it has one, takes part; NULL */
	struct pl_ps_store *store; /* of a server, for the time when its endpoint is closed */
	/* Of a worker of one rank: its network's numbers, behind the head of a commit, in memory
	 * that servers of the same host can read. NULL: they are elsewhere. */
	struct pl_ps_memory {
		char *commit;
		size_t bytes;
		int fd, made;
		void *grads;
	} memory;
	pl_ns timeout_ns;
	struct pl_ps_counts *counts;   /* of each worker; of server 0 */
	struct pl_policy_worker *seen; /* of each worker at the end; of server 0 */
	double seconds;		       /* of training; of server 0 */
	int64_t evaluated;	       /* samples in the weights that it has evaluated last */
};
static inline bool pl_ps_is_server(const struct pl_ps *p)
{
	return p->process < p->servers;
}
/* Of a worker: its number. */
static inline uint32_t pl_ps_number(const struct pl_ps *p)
{
	return p->process - p->servers;
}
/* Has the process ended that this one was forked with? Then it does not come again. */
static inline bool pl_ps_has_ended(const struct pl_ps *p, uint32_t process)
{
	return p->meeting->ended && atomic_load(&p->meeting->ended[process]);
}
/* Does the other side read bodies where they lie? */
static inline bool pl_ps_shares(const struct pl_ps *p, uint32_t connection)
{
	const char *by = pl_comm_endpoint_transport(p->end, connection);

	return by && !strcmp(by, "shm");
}
/* Where the slice of a server begins in the vector; that of server + 1 is its end. */
size_t pl_ps_slice_at(const struct pl_ps *p, uint32_t server);
static inline size_t pl_ps_slice_size(const struct pl_ps *p, uint32_t server)
{
	return pl_ps_slice_at(p, server + 1) - pl_ps_slice_at(p, server);
}
/* Do servers leave their addresses in a folder? Else server 0 tells them. */
static inline bool pl_ps_in_folder(const struct pl_ps *p)
{
	return !strncmp(p->meeting->at, "dir:", 4);
}
/* The slice of the network's weights. */
int pl_ps_slice_read(struct pl_ps *p, uint32_t server, float *to, struct pl_err *err) PL_MUST;
/* So many actions may be on their way: a worker has one commit, and comes again a few times while a
 * server is away. */
static inline uint32_t pl_ps_actions(const struct pl_ps *p)
{
	return 16 * p->workers + 256;
}
/* The controls of the kinds of processes: server 0, another server, a worker. */
int pl_ps_lead(struct pl_ps *p, struct pl_train *t, struct pl_err *err) PL_MUST;
int pl_ps_follow(struct pl_ps *p, struct pl_train *t, struct pl_err *err) PL_MUST;
int pl_ps_work(struct pl_ps *p, struct pl_train *t, struct pl_err *err) PL_MUST;

/* Before the worker is initialised: the ranks of the group meet. Servers, and workers of one rank,
 * do nothing. Fails with the ranks that never came, or when *stop is set (NULL: never), or when a
 * forked process has ended that is needed. */
int pl_ps_group_open(struct pl_ps *p, const struct pl_engine_opts *o, const atomic_int *stop,
		     struct pl_err *err) PL_MUST;
/* Ends the world: with a good-bye to all, or, after a failure rc, for that reason. Returns rc, or
 * the failure of the good-bye. */
int pl_ps_group_close(struct pl_ps *p, int rc, struct pl_err *err);
/* PL_EIO if a rank of the group was lost: for a leader that waits for servers. A failure of MPI,
 * for processes outside of groups. */
int pl_ps_group_check(const struct pl_ps *p, struct pl_err *err) PL_MUST;
/* The leader tells all ranks what comes; then all of them, it too, do it: */
int pl_ps_group_say(struct pl_ps *p, const struct pl_ps_turn *t, struct pl_err *err) PL_MUST;
/* - a local step of this rank. */
int pl_ps_group_step(struct pl_ps *p, struct pl_train *t, const struct pl_ps_turn *turn,
		     struct pl_step_result *r, struct pl_err *err) PL_MUST;
/* - *sum: what all have counted since the last one. */
int pl_ps_group_sum(struct pl_ps *p, const struct pl_train *t, struct pl_ps_tally *sum,
		    struct pl_err *err) PL_MUST;
/* - the weights of the leader's network, into all; the leader says the turn itself. */
int pl_ps_group_give(struct pl_ps *p, bool fresh, struct pl_err *err) PL_MUST;
/* - nothing: for a leader that waits for servers, perhaps for longer than the others wait for its
 * next word. It says so now and then; *said: when it did last. */
int pl_ps_group_hold(struct pl_ps *p, pl_ns *said, struct pl_err *err) PL_MUST;
/* Samples of a step of all ranks, as the last turn said. */
int64_t pl_ps_group_samples(const struct pl_ps *p);
/* The control of a rank that does not lead: until the end, or until the group is lost. */
int pl_ps_group_serve(struct pl_ps *p, struct pl_train *t, struct pl_err *err) PL_MUST;

/* ---- places.c: which ranks are which worker -----------------------------------------------------
 */

/* p has its meeting and the numbers of ranks and servers; fills workers and places in. Where hosts
 * are groups, and a launcher started the processes, all of them call it: PL_EIO names those that
 * never came. A process that is alone does not ask: its ranks are then one worker. */
int pl_ps_places_find(struct pl_ps *p, const struct pl_engine_opts *o, struct pl_err *err) PL_MUST;
void pl_ps_places_fini(struct pl_ps *p);
/* How many ranks a worker has, and which, in their order. */
uint32_t pl_ps_size(const struct pl_ps *p, uint32_t worker);
const uint32_t *pl_ps_ranks(const struct pl_ps *p, uint32_t worker);
/* The worker of a rank, and the number of the rank in it. */
int64_t pl_ps_member(const struct pl_ps *p, int64_t rank, uint32_t *worker);
/* " (ranks 2-3)", for messages about the worker; "": each worker is one rank. */
#define PL_PS_RANKS 64
const char *pl_ps_name_ranks(const struct pl_ps *p, uint32_t worker, char text[PL_PS_RANKS]);

/* ---- meet.c: what is asked before training
 * -------------------------------------------------------
 */

/* Processes that ask have these numbers of endpoints: from the first process on. */
static inline uint32_t pl_ps_askers(const struct pl_ps *p)
{
	return p->servers + p->ranks;
}
/* Sends server 0 a message, and takes the body of an answer of the same kind: `bytes` at most, then
 * its size. */
int pl_ps_ask(const struct pl_ps *p, const struct pl_message *m, pl_ns until, void *to,
	      size_t *bytes, struct pl_err *err) PL_MUST;
/* Where all processes meet at an address: the place where the ranks of the group meet. */
int pl_ps_meet_find(const struct pl_ps *p, char at[PL_PS_ADDRESS], struct pl_err *err) PL_MUST;
/* The `listens` of the group's world. ps: of its first rank. */
int pl_ps_meet_tell(void *ps, const char *at, struct pl_err *err) PL_MUST;

/* ---- copies.c: weights on their way ------------------------------------------------------------
 */

/* One copy for all receivers of one version. */
struct pl_ps_copy;
struct pl_ps_copies {
	struct pl_endpoint *end;
	size_t n; /* numbers of a slice */
	struct pl_ps_copy *first;
};
/* Those that a peer has not got yet, in their order. */
struct pl_ps_sent {
	struct pl_ps_copy **v;
	size_t n, cap;
	/* It has them since an earlier connection, or in memory of its own; NULL. */
	struct pl_ps_copy *kept;
	/* A commit that began from it waits for its update. NULL */
	struct pl_ps_copy *held;
};
/* The bodies of the store are lent to the endpoint, which the store outlives. */
int pl_ps_copies_open(struct pl_ps_copies *c, struct pl_ps_store *store, uint32_t bodies,
		      struct pl_err *err) PL_MUST;
void pl_ps_copies_fini(struct pl_ps_copies *c);
/* Those of the server before this one: a peer that has not greeted yet may look at each. */
int pl_ps_copies_pin(struct pl_ps_copies *c, struct pl_ps_sent *sent, struct pl_err *err) PL_MUST;
/* Of the weights of a server: each worker reads one while another one is written. */
static inline uint32_t pl_ps_bodies(const struct pl_ps *p)
{
	return (uint32_t)pl_min_size(p->workers + 2, PL_PS_BODIES);
}
/* pl_ps_store_update(). replies: the weights are then sent, so they are written for that, too. */
int pl_ps_copies_update(struct pl_ps_copies *c, struct pl_ps_store *store,
			const struct pl_policy_update *up, const struct pl_ps_change *u,
			bool replies, struct pl_err *err) PL_MUST;
/* The next update is probably this one, and is followed by a reply: pl_ps_store_guess(). */
bool pl_ps_copies_guess(struct pl_ps_copies *c, struct pl_ps_store *store,
			const struct pl_policy_update *up, const struct pl_ps_change *u,
			float *keep);
/* Sends a REPLY with the weights of the store, and `version` in its values. */
int pl_ps_copies_send(struct pl_ps_copies *c, struct pl_ps_store *store, uint32_t connection,
		      struct pl_ps_sent *sent, struct pl_message *m, struct pl_err *err) PL_MUST;
/* A SENT event has come. keep: the peer has a copy, and commits what becomes of it. */
void pl_ps_sent_one(struct pl_ps_sent *sent, const void *done, bool keep);
void pl_ps_sent_all(struct pl_ps_sent *sent); /* it looks at none any more */
/* It greets again, and looks at this version alone. UINT64_MAX: at none. Returns the version, or
 * UINT64_MAX if these weights are no more, or were never sent to it. */
uint64_t pl_ps_sent_keep(struct pl_ps_sent *sent, uint64_t version);
/* The weights of that version, from which its commit began; NULL. */
const float *pl_ps_sent_weights(struct pl_ps_sent *sent, uint64_t version);
/* The commit waits: these weights stay, whatever is sent or greeted meanwhile, until let_go().
 * False: they are not here. */
bool pl_ps_sent_hold(struct pl_ps_sent *sent, uint64_t version);
const float *pl_ps_sent_held(const struct pl_ps_sent *sent); /* NULL: none are held */
void pl_ps_sent_let_go(struct pl_ps_sent *sent);
void pl_ps_sent_fini(struct pl_ps_sent *sent);
/* Bytes of a body of n numbers. */
size_t pl_ps_reply_bytes(size_t n);
/* Copies the weights of a REPLY. False: it is no REPLY with n numbers, or its sender has taken this
 * process for lost while it copied, and changed the memory. */
bool pl_ps_reply_take(const struct pl_message *m, float *to, size_t n);
/* Those weights, where the message has them; NULL: it is no REPLY with n numbers. */
const float *pl_ps_reply_weights(const struct pl_message *m, size_t n);
/* After they were read: were they those of the REPLY? */
bool pl_ps_reply_is(const struct pl_message *m);

/* ---- evaluate.c: held-out losses while the server serves ---------------------------------------
 */

/*
 * Evaluates copies of the weights on a thread of its own, so that no worker waits for it; the time
 * of an evaluation is that of its copy. The target is reached at the first of PL_PS_TARGET
 * evaluations in a row whose loss is not above it.
 */
#define PL_PS_TARGET	  3
#define PL_PS_EVALUATIONS 4 /* that wait for one another */
struct pl_ps_evaluator;	    /* opaque */
struct pl_ps_evaluator *pl_ps_evaluator_new(struct pl_train *t, struct pl_err *err);
void pl_ps_evaluator_free(struct pl_ps_evaluator *e); /* NULL is fine */
/* Is there room for one more, and is one due after so many steps of all workers together? */
bool pl_ps_evaluator_due(const struct pl_ps_evaluator *e, uint64_t steps);
/* Only when one is due: its number, and the place for the weights of it. Then either put() or
 * drop(), which forgets it. */
int pl_ps_evaluator_begin(struct pl_ps_evaluator *e, const struct pl_train_row *row,
			  float **weights);
void pl_ps_evaluator_put(struct pl_ps_evaluator *e, int number);
void pl_ps_evaluator_drop(struct pl_ps_evaluator *e, int number);
/* Takes the results that there are: rows of the log, t->time_to_target_s, and the checkpoint of the
 * best one, in the order in which they were put. wait: all that were put. */
int pl_ps_evaluator_take(struct pl_ps_evaluator *e, bool wait, struct pl_err *err) PL_MUST;

/* ---- server.c: server 0 ------------------------------------------------------------------------
 */

struct pl_ps_client { /* a worker */
	bool connected, ready, joined;
	bool welcome; /* it was told where all servers are */
	bool ended;   /* it said BYE */
	uint32_t connection;
	pl_ns arrived;
	pl_ns left; /* when it was lost; of one that never came, when training began */
	struct pl_ps_sent sent;
	uint64_t keeps;	      /* version of the weights that it had when it greeted */
	double loss, samples; /* of its last commit */
	bool commits;	      /* the slices of other servers are not there yet */
	struct pl_endpoint_event commit;
};
struct pl_ps_meets {		/* a group */
	char at[PL_PS_ADDRESS]; /* "": its first rank has not come */
	uint32_t *waits;	/* connections of ranks that are to be told */
	size_t n, cap;
};
struct pl_ps_server {
	struct pl_ps *p;
	struct pl_train *t;
	const struct pl_log *log;
	struct pl_policy *policy;
	bool waits; /* its workers wait for one another */
	struct pl_ps_store *store;
	struct pl_ps_evaluator *evaluator;
	struct pl_ps_client *client; /* [workers] */
	struct pl_ps_meets *meets;   /* [workers] */
	struct pl_ps_copies copies;
	struct pl_ps_other *other;   /* [servers]; the first is unused */
	struct pl_ps_gather *gather; /* [PL_PS_EVALUATIONS + 1]; the last for all but evaluations */
	float *whole;		     /* where that one gathers */
	bool begun, ending;
	bool again;		       /* it goes on where a server before it was */
	bool nothing;		       /* is to be trained: workers come, and are told so */
	const char *why;	       /* it ends; NULL: all is well */
	uint64_t save_at;	       /* steps of all workers: the next checkpoint; 0: none */
	bool saves;		       /* the vector is gathered for a checkpoint ... */
	int64_t save_step;	       /* ... after this step, */
	uint64_t save_samples;	       /* and so many samples */
	pl_ns wake;		       /* the policy's; INT64_MAX: none */
	struct pl_policy_update usual; /* of the last commit */
	pl_ns few_since; /* too few workers remain, the last one left then; INT64_MAX: enough are
			    there */
	bool few_said;
	uint64_t sent_before; /* bytes, by the servers before this one */
	uint64_t budget;      /* steps of all workers together */
};
/* One event of the endpoint, if there is one by `until`. */
int pl_ps_server_event(struct pl_ps_server *s, pl_ns until, bool *nothing,
		       struct pl_err *err) PL_MUST;
/* The policy's timer. */
int pl_ps_server_time(struct pl_ps_server *s, pl_ns now, struct pl_err *err) PL_MUST;
/* Training begins, with the workers that are ready. */
int pl_ps_server_begin(struct pl_ps_server *s, struct pl_err *err) PL_MUST;
/* Steps and samples that the weights have now. */
void pl_ps_server_count(struct pl_ps_server *s);
struct pl_ps_counts pl_ps_server_counts(struct pl_ps_server *s, uint32_t worker);
uint64_t pl_ps_server_sent(const struct pl_ps_server *s);    /* bytes */
uint32_t pl_ps_server_there(const struct pl_ps_server *s);   /* workers */
uint32_t pl_ps_server_present(const struct pl_ps_server *s); /* those that the policy counts */
/* Too few workers remain: says that training waits, or fails when it waits in vain. */
int pl_ps_server_few(struct pl_ps_server *s, pl_ns now, struct pl_err *err) PL_MUST;
/* Workers that are told that it is over. */
int pl_ps_server_end(struct pl_ps_server *s, uint32_t worker, struct pl_err *err) PL_MUST;
/* The commit of a worker, if all slices of it are there now. */
int pl_ps_server_try(struct pl_ps_server *s, uint32_t worker, struct pl_err *err) PL_MUST;
/* All that are connected and were not welcome yet. */
int pl_ps_server_welcome(struct pl_ps_server *s, struct pl_err *err) PL_MUST;
int pl_ps_server_refuse(struct pl_ps_server *s, const struct pl_endpoint_event *ev, const char *why,
			struct pl_err *err) PL_MUST;
/* An END: fails with its reason, if it has one. session.c */
int pl_ps_end_take(const struct pl_message *m, struct pl_err *err) PL_MUST;
/* The greeting of a process of this job? The reason if not; NULL. */
const char *pl_ps_hello_get(const struct pl_ps *p, const struct pl_message *m,
			    struct pl_ps_hello *h);

/* meet.c: a message of a process that asks; the group is lost, and may meet elsewhere */
int pl_ps_meet_message(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
		       struct pl_err *err) PL_MUST;
void pl_ps_meet_lost(struct pl_ps_server *s, uint32_t worker);
/* places.c: a process asks that was started again */
int pl_ps_places_answer(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
			struct pl_err *err) PL_MUST;

/* serve.c: the life of server 0 */
int pl_ps_server_open(struct pl_ps_server *s, struct pl_err *err) PL_MUST;
void pl_ps_server_close(struct pl_ps_server *s);

/* ---- others.c: what server 0 has with the other servers ----------------------------------------
 */

int pl_ps_others_open(struct pl_ps_server *s, struct pl_err *err) PL_MUST;
void pl_ps_others_close(struct pl_ps_server *s);
int pl_ps_others_message(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
			 struct pl_err *err) PL_MUST;
int pl_ps_others_lost(struct pl_ps_server *s, const struct pl_endpoint_event *ev,
		      struct pl_err *err) PL_MUST;
void pl_ps_others_end(struct pl_ps_server *s);	/* training has failed: s->why */
void pl_ps_others_over(struct pl_ps_server *s); /* all workers have ended: so may MPI */
/* One that has not come back for too long ends the training. */
int pl_ps_others_check(const struct pl_ps_server *s, pl_ns now, struct pl_err *err) PL_MUST;
bool pl_ps_others_there(const struct pl_ps_server *s); /* was each of them? */
bool pl_ps_others_have(const struct pl_ps_server *s, uint32_t worker, uint64_t id,
		       uint64_t session);
/* Where they accept, a line each. */
void pl_ps_others_at(const struct pl_ps_server *s, char *to, size_t size);
uint64_t pl_ps_others_sent(const struct pl_ps_server *s); /* bytes */
/* Numbers the action, and keeps it: valid with the next commit of the store. send(): afterwards. */
int pl_ps_others_act(struct pl_ps_server *s, const struct pl_ps_action *a,
		     struct pl_err *err) PL_MUST;
int pl_ps_others_send(struct pl_ps_server *s, struct pl_err *err) PL_MUST;

/*
 * The whole vector as it is now. An evaluation of it follows, or, if `row` is NULL, s->whole is
 * filled until pl_ps_whole_there(). One after the other.
 */
int pl_ps_whole_begin(struct pl_ps_server *s, const struct pl_train_row *row,
		      struct pl_err *err) PL_MUST;
bool pl_ps_whole_there(const struct pl_ps_server *s);

/* ---- follow.c: another server ------------------------------------------------------------------
 */

struct pl_ps_follower {
	struct pl_ps *p;
	uint64_t sent_before; /* bytes, by the processes before this one */
	struct pl_train *t;
	struct pl_ps_store *store;
	struct pl_ps_copies copies;
	struct pl_ps_peer { /* a worker; the last one is server 0 */
		bool connected;
		uint32_t connection;
		struct pl_ps_sent sent;
	} * peer;
	struct pl_policy_update usual; /* of the last commit */
	bool ended;
	bool again; /* it goes on where a server before it was */
	bool asked; /* server 0 was told that somebody asked this process to end */
};
int pl_ps_follower_open(struct pl_ps_follower *f, struct pl_err *err) PL_MUST;
void pl_ps_follower_close(struct pl_ps_follower *f);
int pl_ps_follower_connect(struct pl_ps_follower *f, pl_ns until, struct pl_err *err) PL_MUST;
int pl_ps_follower_event(struct pl_ps_follower *f, pl_ns until, struct pl_err *err) PL_MUST;

/* ---- session.c: a worker and its servers -------------------------------------------------------
 */

struct pl_ps_session {
	struct pl_ps *p;
	struct pl_ps_at { /* a server */
		bool connected, welcome;
		uint32_t connection;
		pl_ns lost;		 /* since then it is tried to connect; 0 */
		uint64_t memory;	 /* its number; 0: not known yet */
		uint64_t applied;	 /* as it said */
		uint64_t reply, version; /* number and version of the slice in `comes` */
		char at[PL_PS_ADDRESS];	 /* "": as the meeting says */
		/* REPLYs; kind NOTHING: none. held: the weights as they were pulled */
		struct pl_endpoint_event held, comes;
		bool has; /* the server has the weights in `held`, too, until it is told */
	} * server;
	uint64_t id;	  /* of the last commit */
	uint64_t session; /* of this process */
	bool pending;	  /* the commit has no reply */
	bool waiting;	  /* for a reply */
	bool ready;	  /* server 0 knows, on this connection */
	bool again;	  /* a slice of the reply may be lost */
	bool resend;	  /* server 0 may not have the commit */
	bool in_steps;	  /* weights and steps since then are good, unless a reply says otherwise */
	bool ended;
	uint64_t taken; /* number of the last reply that was whole */
	uint64_t applied, version;
	/* The last commit: a head and U, or, if all servers have what it began from, weights. */
	char *commit;
	bool weights;
	char *u, *x; /* places of a commit with U, and with a copy of the weights; NULL: none yet */
	pl_ns waited;		      /* for other workers, as the last reply says */
	bool has_order;		      /* a new one */
	struct pl_policy_order order; /* first: on the own clock */
	double job_step, pace;	      /* as the order says, */
	uint64_t ordered;	      /* which counts the commits up to this one */
};
int pl_ps_session_open(struct pl_ps_session *s, struct pl_ps *p, struct pl_err *err) PL_MUST;
void pl_ps_session_close(struct pl_ps_session *s);
/* Connects to a server and greets it. */
int pl_ps_session_connect(struct pl_ps_session *s, uint32_t server, pl_ns until,
			  struct pl_err *err) PL_MUST;
/* PL_PS_REPLIED: a reply is whole, its weights are in s->base, and s->waiting is over. */
enum { PL_PS_NOTHING, PL_PS_REPLIED, PL_PS_OTHER };
int pl_ps_session_event(struct pl_ps_session *s, pl_ns until, struct pl_err *err) PL_MUST;
bool pl_ps_session_connected(const struct pl_ps_session *s); /* to all servers */
/* The weights as they were pulled, of one server. */
const float *pl_ps_session_base(const struct pl_ps_session *s, uint32_t server);
/* Are they still what was pulled? Else another process has taken the place of this worker, and it
 * waits for other weights; what it computed is lost. Asked after they were read. */
bool pl_ps_session_has_base(struct pl_ps_session *s);
/* Makes the commit of the network's numbers; its head is the caller's. flies: steps go on while it
 * is on its way, and s->x has a copy of the numbers. */
int pl_ps_session_fill(struct pl_ps_session *s, bool flies, struct pl_err *err) PL_MUST;
/* Room for the numbers of the network while no commit is on its way. */
int pl_ps_session_scratch(struct pl_ps_session *s, float **to, struct pl_err *err) PL_MUST;
/* Sends it. */
int pl_ps_session_commit(struct pl_ps_session *s, struct pl_err *err) PL_MUST;
/* Reconnects what is lost, and waits for the reply if there is one to wait for. PL_PS_REPLIED, or
 * PL_PS_OTHER. */
int pl_ps_session_wait(struct pl_ps_session *s, struct pl_err *err) PL_MUST;

#endif
