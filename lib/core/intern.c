/*
 * Interning: open addressing, linear probing, load at most 1/2. A slot holds 32 bits of the hash
 * and the id + 1, so a probe touches the string only when 32 bits agree.
 */
#include "core/bytes.h"
#include "core/core.h"

static uint64_t mix(uint64_t a, uint64_t b)
{
	unsigned __int128 m = (unsigned __int128)a * b;

	return (uint64_t)m ^ (uint64_t)(m >> 64);
}

/* Multiply-and-fold over 16 bytes a round; about 10 bytes a cycle on long strings. */
uint64_t pl_hash(const void *data, size_t n)
{
	const uint8_t *p = data;
	uint64_t h = 0x9e3779b97f4a7c15u ^ n, a = 0, b = 0;
	size_t i;

	for (i = n; i > 16; i -= 16, p += 16)
		h = mix(pl_le64_get(p) ^ 0xa0761d6478bd642fu, pl_le64_get(p + 8) ^ h);
	if (i >= 8) {
		a = pl_le64_get(p);
		b = pl_le64_get(p + i - 8);
	} else {
		for (size_t k = 0; k < i; k++)
			a |= (uint64_t)p[k] << (8 * k);
	}
	return mix(a ^ 0xe7037ed1a0b428dbu, b ^ mix(h, 0x8ebc6af09c88c6e3u));
}

void pl_intern_fini(struct pl_intern *t)
{
	pl_arena_fini(&t->arena);
	pl_free(t->str);
	pl_free(t->len);
	pl_free(t->slot);
	memset(t, 0, sizeof(*t));
}

void pl_intern_reset(struct pl_intern *t)
{
	pl_arena_reset(&t->arena);
	t->n = 0;
	if (t->slot)
		memset(t->slot, 0, (t->mask + 1) * sizeof(*t->slot));
}

int pl_intern_keep(struct pl_intern *t, const bool *keep, struct pl_err *err)
{
	struct pl_arena kept = { .size = 8 }; /* one chunk of exactly the size that is needed */
	char *p;

	for (size_t i = 0; i < t->n; i++)
		kept.size += keep[i] ? t->len[i] + (size_t)1 : 0;
	p = pl_arena_take(&kept, kept.size - 7);
	if (!p)
		return pl_fail(err, PL_ENOMEM, "out of memory (strings of %zu bytes)", kept.size);
	for (size_t i = 0; i < t->n; i++) {
		t->len[i] = keep[i] ? t->len[i] : 0;
		t->str[i] = keep[i] ? memcpy(p, t->str[i], t->len[i] + (size_t)1) : "";
		p += keep[i] ? t->len[i] + (size_t)1 : 0;
	}
	pl_arena_fini(&t->arena);
	t->arena = kept;
	return 0;
}

static int rehash(struct pl_intern *t, struct pl_err *err)
{
	size_t size = t->slot ? (t->mask + 1) * 2 : 256;
	uint64_t *slot;

	PL_CHECK(pl_alloc(&slot, size, sizeof(*slot), err));
	for (size_t i = 0; i < t->n; i++) {
		uint64_t h = pl_hash(t->str[i], t->len[i]);
		size_t k = h & (size - 1);

		while (slot[k])
			k = (k + 1) & (size - 1);
		slot[k] = (h & 0xffffffff00000000u) | (i + 1);
	}
	pl_free(t->slot);
	t->slot = slot;
	t->mask = size - 1;
	return 0;
}

static size_t probe(const struct pl_intern *t, const char *s, size_t n, uint64_t h)
{
	size_t k = h & t->mask;

	for (; t->slot[k]; k = (k + 1) & t->mask) {
		pl_id id = (pl_id)t->slot[k] - 1;

		if (!((t->slot[k] ^ h) >> 32) && t->len[id] == n && !memcmp(t->str[id], s, n))
			break;
	}
	return k;
}

int pl_intern_add(struct pl_intern *t, const char *s, size_t n, pl_id *id, struct pl_err *err)
{
	uint64_t h = pl_hash(s, n);
	size_t k;
	char *copy;
	int rc;

	if (PL_UNLIKELY(!t->slot || t->n * 2 > t->mask))
		PL_CHECK(rehash(t, err));
	k = probe(t, s, n, h);
	if (PL_LIKELY(t->slot[k])) {
		*id = (pl_id)t->slot[k] - 1;
		return 0;
	}
	if (t->n >= PL_NONE - 1 || n > UINT32_MAX)
		return pl_fail(err, PL_ELIMIT, "more than %u different strings", PL_NONE - 1);
	if ((rc = pl_grow(&t->str, &t->cap_str, t->n + 1, sizeof(*t->str), err)) < 0 ||
	    (rc = pl_grow(&t->len, &t->cap_len, t->n + 1, sizeof(*t->len), err)) < 0)
		return rc;
	copy = pl_arena_dup(&t->arena, s, n);
	if (!copy)
		return pl_fail(err, PL_ENOMEM, "out of memory (string of %zu bytes)", n);
	t->str[t->n] = copy;
	t->len[t->n] = (uint32_t)n;
	t->slot[k] = (h & 0xffffffff00000000u) | (t->n + 1);
	*id = (pl_id)t->n++;
	return 0;
}

pl_id pl_intern_find(const struct pl_intern *t, const char *s, size_t n)
{
	size_t k;

	if (!t->slot)
		return PL_NONE;
	k = probe(t, s, n, pl_hash(s, n));
	return t->slot[k] ? (pl_id)t->slot[k] - 1 : PL_NONE;
}
