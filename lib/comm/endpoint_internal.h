/*
 * endpoint_internal.h - the parts of an endpoint.
 *
 * One thread (endpoint_serve.c) does everything with sockets, and never waits for a peer. Callers
 * queue messages and take events under the lock. What the thread alone uses needs no lock. The list
 * of connections is changed by the thread alone, and under the lock.
 */
#ifndef PL_COMM_ENDPOINT_INTERNAL_H
#define PL_COMM_ENDPOINT_INTERNAL_H

#include "comm/endpoint.h"
#include "comm/internal.h"

/* The number of a HELLO that makes a connection of endpoints; those of a world are small. */
#define PL_HELLO_ENDPOINT 0xffff
#define PL_END_IN	  ((size_t)64 << 10) /* bytes that are received before they are looked at */
#define PL_END_CONTROLS	  16		     /* heads that are queued at one time beside messages */
#define PL_END_CLASSES	  48		     /* of received bodies, by powers of 2 */
#define PL_END_LINGERS	  64

enum pl_end_what {		    /* the owner of an event that waits */
		   PL_END_BODY,	    /* struct pl_end_body */
		   PL_END_ITEM,	    /* struct pl_end_item */
		   PL_END_ACCEPTED, /* of a connection */
		   PL_END_LOST,	    /* of a connection, which is freed with it */
};
struct pl_end_node {
	struct pl_end_node *next, *prev; /* prev: of the bodies that the user has */
	uint8_t what;			 /* enum pl_end_what */
	struct pl_endpoint_event ev;
};

/* Memory of a peer, mapped to read it. */
struct pl_end_map {
	struct pl_end_map *next;
	uint32_t region;
	uint8_t *base;
	size_t bytes;
	uint32_t refs;	/* messages in it that are not released; under the lock */
	bool forgotten; /* goes when refs is 0; under the lock */
};

/* A received message. */
struct pl_end_body {
	struct pl_end_node node;
	struct pl_end_map *map; /* NULL: its bytes are in `data` */
	uint64_t number;	/* of the reference */
	unsigned class;
	uint8_t *data; /* 1 << class bytes, 64-byte aligned */
};

/* A message to send. */
struct pl_end_item {
	struct pl_end_node node; /* SENT */
	struct pl_end_item *next;
	const uint8_t *body;
	size_t bytes, total; /* of the body that go through the socket; of head and body */
	size_t n_head, sent;
	uint64_t number;		 /* of the reference; 0: none */
	pl_ns due;			 /* not before */
	uint8_t head[2 * PL_HEAD_BYTES]; /* the last one is the message's */
	_Alignas(16) uint8_t copy[];
};
struct pl_end_items {
	struct pl_end_item *head, *last;
};

enum pl_end_state {
	PL_END_GREETING, /* it came, and has not said who it is */
	PL_END_OPEN,
	PL_END_OVER,
};
enum pl_end_ending { PL_END_STAYS, PL_END_GOODBYE, PL_END_ABORT };

struct pl_end_known { /* a region that the peer was told of */
	uint32_t region;
	bool freed;
};

struct pl_end_conn {
	struct pl_end_conn *next;
	uint32_t number, peer;
	bool accepted, shared;
	struct pl_frame theirs; /* PL_FRAME_ENDPOINT */
	struct pl_link link;	/* for the greeting; its descriptor stays */

	/* under the lock */
	_Atomic uint8_t state;	   /* enum pl_end_state; the thread writes it */
	struct pl_end_items queue; /* given, and not yet taken by the thread */
	size_t n_waiting;	   /* messages without SENT */
	struct pl_end_known *known;
	size_t n_known, cap_known;
	uint64_t n_references;	      /* numbers given */
	struct pl_end_body *released; /* references; the peer is to be told */
	uint8_t ending;		      /* enum pl_end_ending */
	bool dropped;		      /* no event any more */
	size_t unread, unread_bytes;  /* messages that wait for the user */
	double bytes_per_ns;
	pl_ns latency, free_at, *link_free_at;
	char end_why[PL_HEAD_TEXT + 1];

	/* the thread's */
	struct pl_end_items out, awaiting; /* being sent; until the peer has released them */
	size_t finished;		   /* messages since n_waiting was last counted */
	uint8_t control[PL_END_CONTROLS * PL_HEAD_BYTES + PL_HEAD_TEXT];
	size_t n_control, control_sent;
	bool beat;	/* a heartbeat is due */
	bool ends;	/* `ending` when it was last seen */
	bool more;	/* heads wait that had no place in `control` */
	bool blocked;	/* the socket takes nothing */
	bool paused;	/* the user has to take messages first; written under the lock */
	bool last_head; /* the good-bye is in `control`, or sent */
	bool aborted;	/* the peer's reason follows */
	bool over, was_open;
	int broken_out; /* errno of a failure to send; what came before may say why */
	pl_ns heard, end_until;
	uint8_t *in;
	size_t n_in;
	struct pl_end_body *body; /* that is being received */
	size_t body_got;
	size_t text; /* bytes of the reason that the peer gives */
	size_t n_fresh, fresh_bytes, unread_seen, unread_bytes_seen;
	uint64_t references_in;
	struct pl_end_map *maps;
	int poll; /* its place in polls; -1: none */
	bool goodbye;
	bool tell; /* the peer is to be told why */
	char why[320];
	struct pl_end_node accepted_event, lost_event;
};

struct pl_end_region { /* memory of pl_comm_endpoint_alloc() or _lend() */
	struct pl_end_region *next;
	uint32_t number;
	uint8_t *base;
	size_t bytes;
	int fd;	   /* -1: not shared */
	bool lent; /* base and fd are the caller's */
};

struct pl_end_linger { /* a socket whose last bytes are on their way */
	int fd;
	pl_ns until;
};

struct pl_endpoint {
	struct pl_endpoint_opts o;
	char token[PL_TOKEN_MAX + 1], host_name[256], file[600], left[200],
		address[PL_ADDRESS_MAX + 16];
	uint64_t host; /* 0: it shares no memory */
	pl_ns timeout;
	bool may_share, must_share;
	struct pl_link_shape *shape;
	int probe; /* a descriptor of memory that begins with nonce; -1 */
	uint64_t nonce;
	int wake;
	pthread_t thread;
	bool runs;

	pthread_mutex_t lock;
	pthread_cond_t changed;
	_Atomic bool asleep;
	bool closing;
	struct pl_end_conn *conns, *arrivals;
	uint32_t n_numbers, n_regions;
	struct pl_end_node *events, *events_last, *held;
	struct pl_end_body *spare[PL_END_CLASSES];
	size_t spare_bytes, spare_max;
	struct pl_end_region *regions;
	struct pl_end_map *orphans; /* maps of connections that are over, with references */
	pl_ns free_at;		    /* of a link that all peers share */
	_Atomic uint64_t sent, received;

	/* the thread's */
	struct pl_acceptor acceptor;
	struct pollfd *polls;
	size_t cap_polls, n_accept;
	struct pl_end_node *fresh, *fresh_last; /* events not yet in `events` */
	struct pl_end_linger linger[PL_END_LINGERS];
	size_t n_linger;
	pl_ns beat_ns, next_beat, close_until;

	char why[320]; /* of the last LOST that was taken */
};

/* endpoint.c */
struct pl_end_conn *pl_comm_end_find(const struct pl_endpoint *e, uint32_t number); /* locked */
void pl_comm_end_append(struct pl_end_items *l, struct pl_end_item *i);
void pl_comm_end_wake(struct pl_endpoint *e); /* the thread; locked */
struct pl_end_conn *pl_comm_end_conn_new(struct pl_err *err);
/* The links to its peer, by the peer's id. */
void pl_comm_end_shape(struct pl_endpoint *e, struct pl_end_conn *c);
void pl_comm_end_node_free(struct pl_endpoint *e, struct pl_end_node *n); /* locked */
/* Forget the events of a connection. Locked. */
void pl_comm_end_purge(struct pl_endpoint *e, uint32_t number);
/* Frees its messages, which nobody uses any more. Locked. */
void pl_comm_end_conn_empty(struct pl_endpoint *e, struct pl_end_conn *c);
/* Frees it, with what it has. */
void pl_comm_end_conn_free(struct pl_end_conn *c);
struct pl_end_body *pl_comm_end_body_get(struct pl_endpoint *e, size_t bytes); /* NULL; locked */
void pl_comm_end_body_put(struct pl_endpoint *e, struct pl_end_body *b);       /* locked */

/* endpoint_connect.c: who is it, and can the two share memory? */
void pl_comm_end_describe(const struct pl_endpoint *e, struct pl_frame *f);
/* A connection that has proved the token: it is taken or refused. */
void pl_comm_end_come(struct pl_endpoint *e, const struct pl_frame *hello, struct pl_link *l);
/* What the peer says of itself may have come. */
void pl_comm_end_greet(struct pl_endpoint *e, struct pl_end_conn *c);

/* endpoint_wire.c: heads and bodies; a failure makes the connection one that is over */
void pl_comm_end_lose(struct pl_end_conn *c, bool tell, const char *fmt, ...) PL_PRINTF(3, 4);
void pl_comm_end_control(struct pl_end_conn *c, const struct pl_head *h, const char *text);
/* Returns whether there is more that could be sent now. */
bool pl_comm_end_flush(struct pl_endpoint *e, struct pl_end_conn *c, pl_ns now);
void pl_comm_end_receive(struct pl_endpoint *e, struct pl_end_conn *c);
void pl_comm_end_push(struct pl_endpoint *e, struct pl_end_node *n); /* to the fresh events */
/* Do so many messages wait for the user that the peer has to wait? */
bool pl_comm_end_is_full(const struct pl_endpoint *e, size_t messages, size_t bytes);

/* endpoint_serve.c */
void *pl_comm_end_serve(void *endpoint);
/* Heartbeats as often as the peer expects them. */
void pl_comm_end_pace(struct pl_endpoint *e, const struct pl_end_conn *c);

/* endpoint_memory.c */
int pl_comm_end_probe_open(struct pl_endpoint *e, struct pl_err *err) PL_MUST;
/* Can the memory that the peer described be opened here? */
bool pl_comm_end_probe(const struct pl_frame *theirs);
/* The region that holds all of p[0 .. bytes]; NULL. Locked. */
struct pl_end_region *pl_comm_end_region(const struct pl_endpoint *e, const void *p, size_t bytes);
/* Both locked. */
int pl_comm_end_map(struct pl_end_conn *c, const struct pl_head *h, struct pl_err *err) PL_MUST;
struct pl_end_map *pl_comm_end_map_find(const struct pl_end_conn *c, uint32_t region);
void pl_comm_end_forget(struct pl_end_conn *c, uint32_t region); /* locked */
/* One reference less; unmaps what nobody uses. c NULL: it is over. Locked. */
void pl_comm_end_unref(struct pl_endpoint *e, struct pl_end_conn *c, struct pl_end_map *m);
void pl_comm_end_maps_end(struct pl_endpoint *e, struct pl_end_conn *c); /* locked */
void pl_comm_end_memory_fini(struct pl_endpoint *e);

#endif
