/*
 * protocol.h - the messages between ranks, as bytes: pure functions, no sockets.
 *
 * Everything is little-endian and of bounded size, known before anything is read:
 *
 *     frame   8 bytes {kind, bytes} and at most PL_FRAME_MAX more: the greeting on every
 *             connection; then what control connections carry
 *     header  PL_HEADER_BYTES before each piece of data on the other connections
 *
 * A connection begins with three frames, by which both sides prove that they know the token of the
 * job, and neither sends it: HELLO {who, nonce} of the side that connects, CHALLENGE {nonce, proof}
 * of the side that accepts, PROOF {proof}. A proof is a hash of the token, both nonces, who it is,
 * and which side it is of.
 */
#ifndef PL_COMM_PROTOCOL_H
#define PL_COMM_PROTOCOL_H

#include "core/core.h"

#define PL_TOKEN_MIN	16
#define PL_TOKEN_MAX	128
#define PL_RANKS_MAX	4096
#define PL_FRAME_MAX	600
#define PL_HEADER_BYTES 40
#define PL_ADDRESS_MAX	64
#define PL_LIBRARY_ID	128
#define PL_NONCE_BYTES	16
#define PL_PROOF_BYTES	32

/* Who a rank is, and where it listens. */
struct pl_rank_info {
	uint32_t rank, size;
	uint64_t host;		      /* ranks with the same share memory */
	uint64_t clock;		      /* ranks with the same read one clock */
	uint16_t port;		      /* where the rank listens */
	char address[PL_ADDRESS_MAX]; /* "": the one that the connection came from */
};

/* What a rank says of the library that is to carry out its operations. */
struct pl_ready {
	int32_t code;		   /* PL_E...: it has none */
	uint8_t id[PL_LIBRARY_ID]; /* what rank 0's library tells those of the others */
	char text[384];		   /* the name and version of the library, or why there is none */
};

enum pl_frame_kind {
	PL_FRAME_HELLO = 1,
	PL_FRAME_CHALLENGE,
	PL_FRAME_PROOF,
	PL_FRAME_MEMBER,  /* of the table that a meeting ends with */
	PL_FRAME_REFUSED, /* text */
	PL_FRAME_MEMORY,  /* where the host's shared memory is */
	PL_FRAME_READY,
	PL_FRAME_HEARTBEAT,
	PL_FRAME_ABORT,
	PL_FRAME_GOODBYE,
	PL_FRAME_COUNT_
};
struct pl_frame {
	uint8_t kind;
	uint32_t rank; /* of the sender; abort: who is to blame */
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
			/* Of worlds whose library does not compare what ranks begin: a number over
			 * the first so many collectives, the newest being the last. */
			uint64_t compared, digest;
		} heartbeat;
		char text[512]; /* refused, abort */
	};
};
/* Bytes written; `to` has room for PL_FRAME_MAX + 8. */
size_t pl_comm_frame_put(uint8_t *to, const struct pl_frame *f);
/* Bytes taken; 0: it is not whole yet; PL_EDATA. */
int64_t pl_comm_frame_get(const uint8_t *p, size_t n, struct pl_frame *f,
			  struct pl_err *err) PL_MUST;

struct pl_header {
	uint8_t op, algo;
	uint32_t chunk, bytes;
	uint64_t seq, tag;
	int64_t due; /* over a shaped link: when the data arrive, on the common clock; else 0 */
};
void pl_comm_header_put(uint8_t *to, const struct pl_header *h);
int pl_comm_header_get(const uint8_t *p, struct pl_header *h,
		       struct pl_err *err) PL_MUST; /* PL_HEADER_BYTES */

/* ---- authentication (auth.c) ---- */

int pl_comm_random(void *p, size_t n, struct pl_err *err) PL_MUST;
/* The proof of one side: 'c' that connects, 'a' that accepts; `hello` is the
 * frame that began the greeting, nonce that of the side that accepts. */
void pl_comm_prove(const char *token, char side, const struct pl_frame *hello, const uint8_t *nonce,
		   uint8_t *proof);
/* The time that it takes does not tell how much was right. */
bool pl_comm_same_proof(const uint8_t *a, const uint8_t *b);

#endif
