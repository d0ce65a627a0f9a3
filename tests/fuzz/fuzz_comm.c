/* What passes between ranks: greetings, frames, heads of data; the first byte chooses. */
#include <string.h>

#include "comm/comm.h"
#include "comm/proto.h"
#include "fuzz.h"

#define TOKEN "the token of the corpus"

static void hello(const uint8_t *p, size_t n)
{
	uint8_t again[PL_HELLO_BYTES];
	struct pl_hello h, g;
	struct pl_err e = { 0 };

	if (pl_comm_hello_get(p, n, TOKEN, &h, &e) < 0) {
		FUZZ_CHECK(e.msg[0]);
		return;
	}
	FUZZ_CHECK(h.rank < h.size && h.size <= PL_RANKS_MAX && h.lane < PL_LANE_COUNT_);
	pl_comm_hello_put(again, TOKEN, &h);
	FUZZ_CHECK(pl_comm_hello_get(again, sizeof(again), TOKEN, &g, &e) == 0);
	FUZZ_CHECK(g.rank == h.rank && g.port == h.port && !strcmp(g.address, h.address));
}

static void frames(const uint8_t *p, size_t n)
{
	while (n) {
		uint8_t again[PL_FRAME_MAX + 8];
		struct pl_frame f, g;
		struct pl_err e = { 0 };
		int64_t took = pl_comm_frame_get(p, n, &f, &e);
		size_t m;

		if (took <= 0) {
			FUZZ_CHECK(took == 0 || e.msg[0]);
			return;
		}
		FUZZ_CHECK((size_t)took <= n && took <= PL_FRAME_MAX + 8);
		if (f.kind == PL_FRAME_ABORT || f.kind == PL_FRAME_REFUSED)
			FUZZ_CHECK(memchr(f.text, 0, sizeof(f.text)));
		m = pl_comm_frame_put(again, &f);
		FUZZ_CHECK(m <= sizeof(again));
		FUZZ_CHECK(pl_comm_frame_get(again, m, &g, &e) == (int64_t)m && g.kind == f.kind);
		p += took;
		n -= (size_t)took;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_head h;
	struct pl_err e = { 0 };

	if (!size)
		return 0;
	if (data[0] == 'h')
		hello(data + 1, size - 1);
	else if (data[0] == 'f')
		frames(data + 1, size - 1);
	else if (size > PL_HEAD_BYTES && pl_comm_head_get(data + 1, &h, &e) == 0)
		FUZZ_CHECK(h.op < PL_OP_COUNT_ && h.algo < PL_CA_COUNT_);
	return 0;
}
