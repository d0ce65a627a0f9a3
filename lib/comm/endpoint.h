/*
 * endpoint.h - connections between two processes, each with a lifetime of its own.
 *
 * An *endpoint* is one process's end of all its connections, and one thread that serves them: it
 * accepts, proves and checks the token of the job (protocol.h), sends, receives and beats. A
 * process that accepts is the one that others know where to find; both sides may send at any time.
 * A connection that breaks, stays silent for the timeout, or sends what is no message, is lost: its
 * owner is told why, and decides. Nothing else ends with it. The same peer may come again, as a new
 * connection.
 *
 * A message has a kind, four numbers and a body of bytes. Messages of a connection arrive whole and
 * in their order. Between processes of one host, a body that lies in memory of the endpoint is not
 * copied: the receiver reads it where it lies.
 */
#ifndef PL_COMM_ENDPOINT_H
#define PL_COMM_ENDPOINT_H

#include <stdatomic.h>

#include "comm/comm.h"

struct pl_endpoint_opts {
	uint32_t id;	   /* of this process; peers are told it */
	const char *token; /* a secret that all processes of the job know; at least 16 characters */
	/* Where it accepts: "tcp:HOST:PORT", or "dir:PATH": at a free port, which is in the file
	 * PATH/endpoint.ID. NULL: it does not accept. */
	const char *listen;
	/* tcp: HOST:PORT are those of another endpoint: this one accepts at a free port, and at the
	 * address from which it reaches HOST, or as `bind` says. */
	bool free_port;
	const char *bind;      /* as in pl_world_opts; of "dir:", and of one with a free port */
	const char *transport; /* "auto", "shm", "tcp": as in pl_world_opts */
	const char *host;      /* as in pl_world_opts */
	pl_ns timeout_ns;      /* 0: 3 s */
	pl_ns heartbeat_ns;    /* 0: a third of the timeout */
	size_t body_max;       /* bytes of a body that this endpoint accepts */
	/* How slow what this process sends to each peer is; from and to are ids. Messages wait
	 * here, in their order, until a link of that rate and latency would have delivered them. */
	const struct pl_link_shape *shape;
	size_t n_shapes;
	/* [n_ended], if it is known: the peers of these ids that have ended and do not come again,
	 * so that nobody waits for them. They outlive the endpoint. */
	const atomic_bool *ended;
	size_t n_ended;
	const struct pl_log *log;
};
struct pl_message {
	uint32_t kind;	   /* of the user's; not 0 */
	uint64_t value[4]; /* of the user's */
	const void *body;  /* NULL: none */
	size_t bytes;
};
enum pl_endpoint_event_kind {
	PL_ENDPOINT_NOTHING,  /* the time has come */
	PL_ENDPOINT_ACCEPTED, /* a peer that connected has proved the token */
	PL_ENDPOINT_MESSAGE,
	PL_ENDPOINT_SENT, /* a message that was sent with a `done` needs its body no more */
	PL_ENDPOINT_LOST  /* the connection is over; `why`. Messages that were not sent have no SENT
			   */
};
struct pl_endpoint_event {
	uint8_t kind;		   /* enum pl_endpoint_event_kind */
	uint32_t connection;	   /* number of the connection, never used again in this endpoint */
	uint32_t peer;		   /* its id */
	bool goodbye;		   /* LOST: the peer ended the connection itself */
	struct pl_message message; /* MESSAGE; the body is valid until pl_comm_endpoint_release() */
	void *done;		   /* SENT: as given; MESSAGE: of the endpoint, for the release */
	const char *why;	   /* LOST; valid until the next call */
};

struct pl_endpoint; /* opaque */
int pl_comm_endpoint_open(const struct pl_endpoint_opts *o, struct pl_endpoint **e,
			  struct pl_err *err) PL_MUST;
/* Sends what was given to it, at most for the timeout, says good-bye to all peers, and frees it.
 * NULL is fine. */
void pl_comm_endpoint_close(struct pl_endpoint *e);
/* Where it accepts, as `tcp:HOST:PORT`; "": it does not. */
const char *pl_comm_endpoint_address(const struct pl_endpoint *e);
/* Connects to the endpoint that listens at `at` ("tcp:HOST:PORT" or "dir:PATH") and has the id
 * `peer`, which may not be there yet. PL_EIO: nobody came by `until`, or it refuses, or has ended.
 * Not from two threads. */
int pl_comm_endpoint_connect(struct pl_endpoint *e, const char *at, uint32_t peer, pl_ns until,
			     uint32_t *connection, struct pl_err *err) PL_MUST;
/* Ends one connection: with a good-bye, after what was given to it is sent (at most for the
 * timeout), or at once as lost, for the reason `why`, which the peer is told. No event follows, and
 * the bodies of its messages are needed no more. */
void pl_comm_endpoint_drop(struct pl_endpoint *e, uint32_t connection, const char *why);

/* Memory whose bodies are not copied between processes of one host; 64-byte aligned, zeroed. */
void *pl_comm_endpoint_alloc(struct pl_endpoint *e, size_t bytes, struct pl_err *err);
/* The same for memory of the caller, which is the file fd of a memfd that takes seals: its size is
 * sealed. It outlives the endpoint. */
int pl_comm_endpoint_lend(struct pl_endpoint *e, int fd, void *p, size_t bytes,
			  struct pl_err *err) PL_MUST;
/* No message uses it any more. What is left is freed when the endpoint is closed. */
void pl_comm_endpoint_free(struct pl_endpoint *e, void *p);

/*
 * Queues a message. It never waits. The body stays unchanged until the SENT event with `done`, or
 * until the connection is lost; done NULL: the body is copied now, and there is no event. A body
 * that the receiver reads in place is SENT when the receiver has released it. (If the connection is
 * lost meanwhile, a receiver that lives may still look at it.) A connection that is
 * lost or unknown is no error: the LOST event tells it, or has told it. PL_ENOMEM; PL_ELIMIT: more
 * than PL_ENDPOINT_QUEUE messages of the connection wait.
 */
#define PL_ENDPOINT_QUEUE 4096
int pl_comm_endpoint_send(struct pl_endpoint *e, uint32_t connection, const struct pl_message *m,
			  void *done, struct pl_err *err) PL_MUST;
/* The next event, of any connection, waiting until `until` at most. A peer whose messages are not
 * taken (PL_ENDPOINT_QUEUE of them, or bodies of twice body_max and 64 KiB) has to wait. */
int pl_comm_endpoint_next(struct pl_endpoint *e, pl_ns until, struct pl_endpoint_event *ev,
			  struct pl_err *err) PL_MUST;
/* The body of a MESSAGE event is needed no more. Without a body it does nothing. */
void pl_comm_endpoint_release(struct pl_endpoint *e, const struct pl_endpoint_event *ev);
/* Bytes of messages and heads that were sent and received so far, over all connections. */
uint64_t pl_comm_endpoint_sent(const struct pl_endpoint *e);
uint64_t pl_comm_endpoint_received(const struct pl_endpoint *e);
/* How the connection moves bodies: "shm", "tcp"; NULL: it is lost. */
const char *pl_comm_endpoint_transport(const struct pl_endpoint *e, uint32_t connection);

#endif
