/*
 * Authentication: proofs that a process knows the token of the job.
 *
 * A proof is the hash BLAKE2s-256 (RFC 7693) of the token and the message. The token is padded to
 * two blocks. It can be a plain prefix of the message, because BLAKE2 has no length extension. A
 * token that paceline makes has 256 random bits, so nobody can guess it from a proof. A short token
 * of the user can be guessed by trying.
 */
#include <sys/random.h>

#include "comm/protocol.h"
#include "core/bytes.h"

#define BLOCK 64

static const uint32_t initial[8] = { 0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
				     0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19 };

static uint32_t rotate(uint32_t v, int n)
{
	return v >> n | v << (32 - n);
}

static void mix(uint32_t *v, int a, int b, int c, int d, uint32_t x, uint32_t y)
{
	v[a] += v[b] + x;
	v[d] = rotate(v[d] ^ v[a], 16);
	v[c] += v[d];
	v[b] = rotate(v[b] ^ v[c], 12);
	v[a] += v[b] + y;
	v[d] = rotate(v[d] ^ v[a], 8);
	v[c] += v[d];
	v[b] = rotate(v[b] ^ v[c], 7);
}

static void compress(uint32_t *h, const uint8_t *block, uint64_t total, bool last)
{
	static const char order[10][17] = { "0123456789abcdef", "ea489fd61c02b753",
					    "b8c052fdae367194", "7931dcbe265a40f8",
					    "905724afe1bc683d", "2c6a0b834d75fe19",
					    "c51fed4a0763928b", "db7ec13950f4862a",
					    "6fe9b308c2d714a5", "a2847615fb9e3cd0" };
	uint32_t v[16], m[16];

	memcpy(v, h, 32);
	memcpy(v + 8, initial, 32);
	v[12] ^= (uint32_t)total;
	v[13] ^= (uint32_t)(total >> 32);
	v[14] ^= last ? UINT32_MAX : 0;
	for (int i = 0; i < 16; i++)
		m[i] = pl_le32_get(block + 4 * i);
	for (int r = 0; r < 10; r++) {
		uint32_t x[16];

		for (int i = 0; i < 16; i++)
			x[i] = m[order[r][i] <= '9' ? order[r][i] - '0' : order[r][i] - 'a' + 10];
		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + i, 8 + i, 12 + i, x[2 * i], x[2 * i + 1]);
		for (int i = 0; i < 4; i++)
			mix(v, i, 4 + (i + 1) % 4, 8 + (i + 2) % 4, 12 + (i + 3) % 4, x[8 + 2 * i],
			    x[9 + 2 * i]);
	}
	for (int i = 0; i < 8; i++)
		h[i] ^= v[i] ^ v[8 + i];
}

static void hash(const uint8_t *p, size_t n, uint8_t *to)
{
	uint8_t last[BLOCK] = { 0 };
	uint32_t h[8];
	size_t at = 0;

	memcpy(h, initial, sizeof(h));
	h[0] ^= 0x01010000 ^ PL_PROOF_BYTES;
	for (; n - at > BLOCK; at += BLOCK)
		compress(h, p + at, at + BLOCK, false);
	memcpy(last, p + at, n - at);
	compress(h, last, n, true);
	for (int i = 0; i < 8; i++)
		pl_le32_put(to + 4 * i, h[i]);
}

int pl_comm_random(void *p, size_t n, struct pl_err *err)
{
	if (pl_fail_now() || getrandom(p, n, 0) != (ssize_t)n)
		return pl_fail_sys(err, "cannot get random bytes");
	return 0;
}

void pl_comm_prove(const char *token, char side, const struct pl_frame *hello, const uint8_t *nonce,
		   uint8_t *proof)
{
	uint8_t what[PL_TOKEN_MAX + 1 + PL_NONCE_BYTES + PL_FRAME_MAX + 8] = { 0 };
	uint8_t *to = what + PL_TOKEN_MAX;

	memcpy(what, token, strnlen(token, PL_TOKEN_MAX));
	*to++ = (uint8_t)side;
	memcpy(to, nonce, PL_NONCE_BYTES);
	to += PL_NONCE_BYTES;
	to += pl_comm_frame_put(to, hello);
	hash(what, (size_t)(to - what), proof);
}

bool pl_comm_same_proof(const uint8_t *a, const uint8_t *b)
{
	unsigned diff = 0;

	for (size_t i = 0; i < PL_PROOF_BYTES; i++)
		diff |= (unsigned)(a[i] ^ b[i]);
	return !diff;
}
