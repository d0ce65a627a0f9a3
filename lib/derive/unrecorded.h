/*
 * unrecorded.h - waits without a known cause, by place: see unrecorded.c.
 */
#ifndef PL_DERIVE_UNRECORDED_H
#define PL_DERIVE_UNRECORDED_H

#include "derive/internal.h"

#define LONG_NS	     200000  /* a wait that is compared with others lasts at least this long */
#define TOGETHER_NS  100000  /* threads that are woken together go on within this time ... */
#define TOGETHER_MAX 2000000 /* ... or within a tenth of the wait, at most this */

struct place_key {
	uint32_t res;
	pl_id before, pause, after; /* names of the pause and its neighbours; of a table's operation
				     * the second alone */
};
struct place {
	struct place_key key;
	uint32_t first, n; /* its long waits */
	uint32_t stamp;	   /* the last search that came by */
	bool taken;	   /* its waits are known */
};
/* A wait without a known cause. */
struct wait {
	pl_ns ready, end;
	uint32_t node; /* the pause, or the operation of a table after it */
	uint32_t place;
};
/* What ends the wait of a table's operation: when its predecessors had ended, and the last one. */
struct ready {
	pl_ns at;
	uint32_t last;
};

struct search {
	struct builder *b;
	struct ready *ready; /* [node] of tables, NULL: there are none */
	struct pl_intern keys;
	struct place *place;
	struct wait *wait;	       /* the long ones, by place, then by end */
	uint32_t *by_end;	       /* the same by end */
	const struct pl_clock **clock; /* [rank] */
	size_t n_places, cap_places, n_waits, cap_waits;
	size_t searches; /* that are left */
	uint32_t stamp;
	/* the rendezvous at hand */
	pl_ns near;	    /* ends of its waits are no farther from one another */
	uint32_t *member;   /* places; the first is that of the seed */
	pl_ns *at;	    /* ends of its instances */
	struct wait *found; /* [instance][member]; node PL_NONE: none */
	double *score;	    /* [member]: how improbable chance is, as a logarithm */
	pl_ns *span;	    /* of times of instances */
	size_t n_members, cap_members, n_at, cap_at, cap_found, cap_score, cap_spans;
	uint32_t *meet; /* [node] of tables: the rendezvous for which the operation waits */
};

static inline uint32_t pl_unrecorded_rank(const struct search *x, uint32_t place)
{
	return x->b->resource[x->place[place].key.res].rank_index;
}

/* The long waits of all ranks, and the clocks of the ranks. */
void pl_unrecorded_collect(struct search *x);
void pl_unrecorded_find_clocks(struct search *x);
/* The number of a place, PL_NONE: there is no room. */
uint32_t pl_unrecorded_place(struct search *x, const struct place_key *key);
/* The place of a wait on resource `res`. */
struct place_key pl_unrecorded_key(const struct search *x, uint32_t res, uint32_t node);
/* How far the clocks of two ranks may be apart. */
pl_ns pl_unrecorded_clock_error(const struct search *x, uint32_t rank, uint32_t other);
/* Of the waits of resource `res` that end within `tol` of `end`, the longest one; with a key only
 * those of this place. Its node is PL_NONE if there is none. */
struct wait pl_unrecorded_wait_at(const struct search *x, uint32_t res, const struct place_key *key,
				  pl_ns end, pl_ns tol);

#endif
