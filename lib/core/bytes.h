/* bytes.h - little-endian numbers in files and messages, aligned or not. */
#ifndef PL_BYTES_H
#define PL_BYTES_H

#include <stdint.h>

static inline void pl_le16_put(uint8_t *p, unsigned v)
{
	p[0] = (uint8_t)v;
	p[1] = (uint8_t)(v >> 8);
}
static inline void pl_le32_put(uint8_t *p, uint32_t v)
{
	pl_le16_put(p, v & 0xffff);
	pl_le16_put(p + 2, v >> 16);
}
static inline void pl_le64_put(uint8_t *p, uint64_t v)
{
	pl_le32_put(p, (uint32_t)v);
	pl_le32_put(p + 4, (uint32_t)(v >> 32));
}
static inline uint16_t pl_le16_get(const uint8_t *p)
{
	return (uint16_t)(p[0] | p[1] << 8);
}
static inline uint32_t pl_le32_get(const uint8_t *p)
{
	return (uint32_t)pl_le16_get(p) | (uint32_t)pl_le16_get(p + 2) << 16;
}
static inline uint64_t pl_le64_get(const uint8_t *p)
{
	return pl_le32_get(p) | (uint64_t)pl_le32_get(p + 4) << 32;
}

#endif
