/* What passes between ranks: frames, headers of data; between endpoints: heads. The first byte
 * chooses. */
#include <string.h>

#include "comm/comm.h"
#include "comm/protocol.h"
#include "fuzz.h"

static void check_greeting(const struct pl_frame *f)
{
	static const uint8_t nonce[PL_NONCE_BYTES];
	uint8_t a[PL_PROOF_BYTES], c[PL_PROOF_BYTES];

	FUZZ_CHECK(f->greeting.member.rank < f->greeting.member.size &&
		   f->greeting.member.size <= PL_RANKS_MAX);
	pl_comm_prove("the token of the corpus", 'a', f, nonce, a);
	pl_comm_prove("the token of the corpus", 'c', f, nonce, c);
	FUZZ_CHECK(pl_comm_same_proof(a, a) && !pl_comm_same_proof(a, c));
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
		if (f.kind == PL_FRAME_HELLO)
			check_greeting(&f);
		m = pl_comm_frame_put(again, &f);
		FUZZ_CHECK(m <= sizeof(again));
		FUZZ_CHECK(pl_comm_frame_get(again, m, &g, &e) == (int64_t)m && g.kind == f.kind);
		p += took;
		n -= (size_t)took;
	}
}

static void heads(const uint8_t *p, size_t n)
{
	for (; n >= PL_HEAD_BYTES; p += PL_HEAD_BYTES, n -= PL_HEAD_BYTES) {
		uint8_t again[PL_HEAD_BYTES];
		struct pl_err e = { 0 };
		struct pl_head h;

		if (pl_comm_head_get(p, &h, &e) < 0) {
			FUZZ_CHECK(e.code == PL_EDATA && e.msg[0]);
			return;
		}
		FUZZ_CHECK(h.type > 0 && h.type < PL_HEAD_COUNT_);
		FUZZ_CHECK(h.type != PL_HEAD_ABORT || h.bytes <= PL_HEAD_TEXT);
		FUZZ_CHECK((h.kind != 0) ==
			   (h.type == PL_HEAD_MESSAGE || h.type == PL_HEAD_REFERENCE));
		pl_comm_head_put(again, &h);
		FUZZ_CHECK(!memcmp(again, p, PL_HEAD_BYTES));
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_header h;
	struct pl_err e = { 0 };

	if (!size)
		return 0;
	if (data[0] == 'f')
		frames(data + 1, size - 1);
	else if (data[0] == 'e')
		heads(data + 1, size - 1);
	else if (size > PL_HEADER_BYTES && pl_comm_header_get(data + 1, &h, &e) == 0)
		FUZZ_CHECK(h.op < PL_OP_COUNT_ && h.algo < PL_CA_COUNT_);
	return 0;
}
