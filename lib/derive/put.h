/*
 * put.h - adding to arrays, string tables and graphs without a test after each call. The first
 * failure stays in *err, and the work goes on with what there is. The caller that began the work
 * looks at err->code and throws the result away.
 */
#ifndef PL_DERIVE_PUT_H
#define PL_DERIVE_PUT_H

#include "graph/graph.h"

/* pl_grow(); false: there is no room. */
static inline bool pl_derive_grow(struct pl_err *err, void *array, size_t *cap, size_t need,
				  size_t size)
{
	return PL_LIKELY(need <= *cap) || pl_grow_slow(array, cap, need, size, err) >= 0;
}
/* Append a value to v[0] .. v[n - 1], an array of `cap` elements; nothing if there is no room. */
#define PL_DERIVE_ADD(err, v, n, cap, ...)                                                         \
	do {                                                                                       \
		if (pl_derive_grow(err, &(v), &(cap), (n) + (size_t)1, sizeof(*(v))))              \
			(v)[(n)++] = (__VA_ARGS__);                                                \
	} while (0)
/* The number of a string, PL_NONE: there is no room for it. */
static inline pl_id pl_derive_intern(struct pl_err *err, struct pl_intern *t, const void *s,
				     size_t n)
{
	pl_id id = PL_NONE;

	return pl_intern_add(t, s, n, &id, err) < 0 ? PL_NONE : id;
}
static inline pl_id pl_derive_intern_text(struct pl_err *err, struct pl_intern *t, const char *s)
{
	return pl_derive_intern(err, t, s, strlen(s));
}
/* The number of a group of n ranks: rank[], or if NULL the consecutive ones from `first` on. */
uint32_t pl_derive_put_group(struct pl_graph *g, const char *name, uint8_t flags,
			     const uint32_t *rank, uint32_t first, uint32_t n, struct pl_err *err);
/* A tensor with n consumers. */
void pl_derive_put_tensor(struct pl_graph *g, const struct pl_tensor *t, const uint32_t *consumer,
			  uint32_t n, struct pl_err *err);

#endif
