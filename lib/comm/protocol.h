/*
 * protocol.h - the messages between ranks, as bytes: pure functions, no sockets.
 *
 * All numbers are little-endian, and all sizes have limits that are known before reading:
 *
 *     frame   8 bytes {kind, bytes} and at most PL_FRAME_MAX more: the greeting on every
 *             connection; then what control connections carry
 *     header  PL_HEADER_BYTES before each piece of data on the other connections
 *     head    PL_HEAD_BYTES before each body between endpoints (endpoint.h), after the greeting
 *
 * A connection begins with three frames, by which both sides prove that they know the token of the
 * job without sending it: HELLO {rank, nonce} of the side that connects, CHALLENGE {nonce, proof}
 * of the other, PROOF {proof}. A proof is a hash of the token, both nonces, the HELLO, the side.
 */
#ifndef PL_COMM_PROTOCOL_H
#define PL_COMM_PROTOCOL_H

#include "core/core.h"

#define PL_TOKEN_MIN	16
#define PL_TOKEN_MAX	128
#define PL_RANKS_MAX	4096
#define PL_FRAME_MAX	600
#define PL_HEADER_BYTES 40
#define PL_HEAD_BYTES	64
#define PL_ADDRESS_MAX	64
#define PL_LIBRARY_ID	128
#define PL_NONCE_BYTES	16
#define PL_PROOF_BYTES	32

/* A rank and the address where it listens. */
struct pl_rank_info {
	uint32_t rank, size;
	uint64_t host;		      /* equal for ranks that share memory */
	uint64_t clock;		      /* equal for ranks with one clock */
	uint16_t port;		      /* where the rank listens */
	char address[PL_ADDRESS_MAX]; /* "": the address that the connection came from */
};

/* A rank's report on the library that will carry out its operations. */
struct pl_ready {
	int32_t code;		   /* PL_E...: it has none */
	uint8_t id[PL_LIBRARY_ID]; /* data from rank 0's library for those of the others */
	char text[384]; /* the name and version of the library, or the reason why there is none */
};

enum pl_frame_kind {
	PL_FRAME_HELLO = 1,
	PL_FRAME_CHALLENGE,
	PL_FRAME_PROOF,
	PL_FRAME_MEMBER,  /* of the table that ends a meeting */
	PL_FRAME_REFUSED, /* text */
	PL_FRAME_MEMORY,  /* the place of the host's shared memory */
	PL_FRAME_READY,
	PL_FRAME_HEARTBEAT,
	PL_FRAME_ABORT,
	PL_FRAME_GOODBYE,
	PL_FRAME_ENDPOINT, /* of an endpoint: who it is, and a piece of its memory */
	PL_FRAME_COUNT_
};
struct pl_frame {
	uint8_t kind;
	uint32_t rank; /* of the sender; in an abort: the rank that failed */
	union {
		struct { /* hello, challenge, proof: the members that each has come first */
			uint8_t proof[PL_PROOF_BYTES];
			uint8_t nonce[PL_NONCE_BYTES];
			uint16_t connection; /* number among those of two ranks; 0: control */
			struct pl_rank_info member;
		} greeting;
		struct pl_rank_info member;
		struct pl_ready ready;
		struct {
			int64_t pid, fd;
			uint64_t bytes;
		} memory;
		struct {
			uint64_t begun;	   /* collectives */
			uint64_t messages; /* sends to the receiver of this heartbeat */
			uint64_t bytes;	   /* of data and headers, to it */
			/* If the library does not compare operations: digest of the first
			 * `compared`. */
			uint64_t compared, digest;
		} heartbeat;
		struct {		 /* rank: the id */
			uint64_t host;	 /* equal for endpoints that may share memory */
			int64_t pid, fd; /* memory that begins with nonce; fd -1: none */
			uint64_t nonce;
			int64_t timeout; /* by which it expects signs of life */
		} endpoint;
		char text[512]; /* refused, abort */
	};
};
/* Returns the bytes written; `to` has room for PL_FRAME_MAX + 8. */
size_t pl_comm_frame_put(uint8_t *to, const struct pl_frame *f);
/* Returns the bytes taken; 0: the frame is not complete; PL_EDATA. */
int64_t pl_comm_frame_get(const uint8_t *p, size_t n, struct pl_frame *f,
			  struct pl_err *err) PL_MUST;

struct pl_header {
	uint8_t op, algo;
	uint32_t chunk, bytes;
	uint64_t seq, tag;
	int64_t due; /* over a shaped link: arrival of the data on the common clock; else 0 */
};
void pl_comm_header_put(uint8_t *to, const struct pl_header *h);
int pl_comm_header_get(const uint8_t *p, struct pl_header *h,
		       struct pl_err *err) PL_MUST; /* PL_HEADER_BYTES */

/* ---- between endpoints ---- */

enum pl_head_type {
	PL_HEAD_MESSAGE = 1, /* kind, value; `bytes` follow */
	PL_HEAD_REFERENCE,   /* kind, value; `bytes` lie at `at` in `region`, number by count */
	PL_HEAD_RELEASED,    /* the receiver needs the reference of number `at` no more */
	PL_HEAD_REGION,	     /* `region` has `bytes`; its memory is descriptor `at` of the sender */
	PL_HEAD_FORGET,	     /* `region` will not be used again */
	PL_HEAD_BEAT,
	PL_HEAD_GOODBYE, /* the last: the sender ends the connection */
	PL_HEAD_ABORT,	 /* the last: for a reason, a text of `bytes` */
	PL_HEAD_COUNT_
};
#define PL_HEAD_TEXT 200 /* bytes of that reason at most */
struct pl_head {
	uint8_t type; /* enum pl_head_type */
	uint32_t kind, region;
	uint64_t at, bytes, value[4];
};
void pl_comm_head_put(uint8_t *to, const struct pl_head *h);
/* PL_EDATA: no endpoint sends that. What the fields of the type leave out is 0. */
int pl_comm_head_get(const uint8_t *p, struct pl_head *h,
		     struct pl_err *err) PL_MUST; /* PL_HEAD_BYTES */

/* ---- authentication (auth.c) ---- */

int pl_comm_random(void *p, size_t n, struct pl_err *err) PL_MUST;
/* The proof of one side: 'c' that connects, 'a' that accepts; `hello` is the first frame of the
 * greeting, nonce that of the side that accepts. */
void pl_comm_prove(const char *token, char side, const struct pl_frame *hello, const uint8_t *nonce,
		   uint8_t *proof);
/* Its time does not depend on the number of equal bytes. */
bool pl_comm_same_proof(const uint8_t *a, const uint8_t *b);

#endif
