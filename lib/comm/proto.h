/*
 * proto.h - the messages between the ranks of a world, as bytes: pure functions, no sockets.
 *
 * Everything is little-endian and of bounded size, known before anything is read:
 *
 *     hello   PL_HELLO_BYTES, the first thing on every connection; its token is compared before any
 *             other field is looked at
 *     frame   8 bytes {kind, bytes} and at most PL_FRAME_MAX more: what a meeting or a control
 *             connection carries after the hello
 *     head    PL_HEAD_BYTES before each piece of data on p2p and data connections
 */
#ifndef PL_COMM_PROTO_H
#define PL_COMM_PROTO_H

#include "core/core.h"

#define PL_TOKEN_MIN   16
#define PL_TOKEN_MAX   128
#define PL_RANKS_MAX   4096
#define PL_HELLO_BYTES 320
#define PL_FRAME_MAX   1024
#define PL_HEAD_BYTES  32
#define PL_ADDRESS_MAX 64
#define PL_NOTE_MAX    256

enum pl_lane { PL_LANE_MEET, PL_LANE_CONTROL, PL_LANE_P2P, PL_LANE_DATA, PL_LANE_COUNT_ };

struct pl_hello {
	uint8_t lane; /* enum pl_lane */
	uint16_t channel;
	uint32_t rank, size;
	uint64_t host;		      /* ranks with the same share memory */
	uint16_t port;		      /* where the rank listens */
	char address[PL_ADDRESS_MAX]; /* "": the one that the connection came from */
};
void pl_comm_hello_put(uint8_t *to, const char *token, const struct pl_hello *h);
/* PL_EDATA: not ours, another version, fields out of range; PL_EUSAGE: another token. */
int pl_comm_hello_get(const uint8_t *p, size_t n, const char *token, struct pl_hello *h,
		      struct pl_err *err) PL_MUST;

enum pl_frame_kind {
	PL_FRAME_MEMBER = 1, /* of the table that a meeting ends with */
	PL_FRAME_REFUSED,    /* text */
	PL_FRAME_MEMORY,     /* where the host's shared memory is */
	PL_FRAME_READY,
	PL_FRAME_BEAT,
	PL_FRAME_ABORT,
	PL_FRAME_BYE,
	PL_FRAME_NOTE, /* ranks exchange it before they make a library's communicator */
	PL_FRAME_COUNT_
};
struct pl_frame {
	uint8_t kind;
	uint32_t rank; /* member; abort: who is to blame */
	union {
		struct pl_hello member;
		struct {
			int64_t pid, fd;
			uint64_t bytes;
		} memory;
		struct {
			uint64_t begun;	   /* collectives */
			uint64_t messages; /* sends to the receiver of this beat */
			uint64_t bytes;	   /* of data and heads, to it */
			/* Of worlds whose library does not compare what ranks begin: a number over
			 * the first so many collectives, the newest being the last. */
			uint64_t listed, digest;
		} beat;
		struct {
			uint32_t turn, bytes;
			uint8_t data[PL_NOTE_MAX];
		} note;
		char text[512]; /* refused, abort */
	};
};
/* Bytes written; `to` has room for PL_FRAME_MAX + 8. */
size_t pl_comm_frame_put(uint8_t *to, const struct pl_frame *f);
/* Bytes taken; 0: it is not whole yet; PL_EDATA. */
int64_t pl_comm_frame_get(const uint8_t *p, size_t n, struct pl_frame *f,
			  struct pl_err *err) PL_MUST;

struct pl_head {
	uint8_t op, algo;
	uint32_t chunk, bytes;
	uint64_t seq, tag;
};
void pl_comm_head_put(uint8_t *to, const struct pl_head *h);
int pl_comm_head_get(const uint8_t *p, struct pl_head *h,
		     struct pl_err *err) PL_MUST; /* PL_HEAD_BYTES */

#endif
