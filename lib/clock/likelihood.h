/*
 * likelihood.h - how likely a division of streams into groups is: likelihood.c, for divide.c and
 * peers.c. It is the only score that decides which ranks communicate with each other.
 */
#ifndef PL_CLOCK_LIKELIHOOD_H
#define PL_CLOCK_LIKELIHOOD_H

#include "clock/internal.h"

/* One rank's part of communication whose group or peer was not recorded. */
struct pl_stream {
	struct pl_seq s;
	int64_t number; /* of the stream; -1: the threads of the rank */
	int64_t shift;	/* element i belongs to element i + shift of others of its set */
	uint32_t comm_stream;
	uint32_t group;	 /* in the division of its set */
	pl_id operation; /* the most frequent one */
	uint8_t kind;	 /* of all its events; PL_K_OTHER: several */
};

/* ---- infer.c: cutting into streams ---- */
struct pl_streams {
	struct pl_arena mem;
	struct item *item; /* scratch */
	uint32_t *ev, *to; /* of the streams */
	struct pl_stream *v;
	uint32_t n;
};
int pl_clock_streams_init(struct pl_streams *v, uint32_t n, struct pl_err *err) PL_MUST;
/* The events v->ev[0..n) by stream or, with `names`, by operation of a stream: v->v. */
void pl_clock_streams_cut(struct pl_streams *v, const struct pl_align *a, uint32_t n, bool names);

/* The stream of a rank, if each of v[0..n) has one and they are by rank; NULL. */
struct pl_stream *pl_clock_streams_find(struct pl_stream *v, uint32_t n, int64_t rank);

struct pl_residual {
	double r, wide;	 /* us; `wide` adds to the scale of the jitter */
	bool impossible; /* an end lies more than r before the last start */
};
struct pl_difference {
	double t, d;
};
struct pl_likelihood_partition {
	uint32_t id, component; /* as in struct pl_align */
	double error;		/* of its offset in its component, us */
	pl_ns base;		/* 0 of its times */
	/* of the division that was looked at last: */
	double delta, slope; /* t is at t + delta + slope t */
	size_t differences;  /* to references; SIZE_MAX: has an offset */
};
struct pl_likelihood {
	struct pl_arena mem;
	bool skips_rooted, rooted; /* collectives with a root: left out; the model hardly holds */
	uint32_t n, k;		   /* streams; occurrences that are looked at */
	uint32_t *length; /* of each stream; only streams of one length can belong together */
	uint32_t *lengths, n_lengths; /* the different ones */
	struct pl_likelihood_partition *part;
	uint32_t *partition;   /* of each stream: 0 .. n_partitions - 1 */
	uint32_t *inhabitant;  /* streams by partition */
	uint32_t *inhabitant0; /* of each partition: its first, n_partitions + 1 */
	uint32_t n_partitions;
	double *start, *end; /* n x k, us from the base; NAN: no such event */
	/* of the division that was looked at last: */
	const uint32_t *group;
	uint32_t n_groups;
	uint32_t *member, *member0; /* streams by group, as above */
	uint32_t *reference;	    /* of each group: the first member with an offset, PL_NONE */
	double *transfer, *sorted;
	/* scratch */
	double *tmp;
	struct pl_difference *diff;
	struct pl_residual *residual;
};
int pl_clock_likelihood_init(struct pl_likelihood *l, const struct pl_align *a,
			     const struct pl_stream *const *v, uint32_t n,
			     struct pl_err *err) PL_MUST;

struct pl_division {
	uint32_t *group, n_groups; /* of each stream: 0 .. n_groups - 1, none empty */
	double cost;		   /* -log likelihood; INFINITY: it is impossible */
	uint32_t joins;		   /* offsets of clocks that were free to suit the division */
	bool determined;	   /* other facts than such offsets support it */
};
/* Fills the rest of a division of which the groups are set. */
void pl_clock_likelihood_of(struct pl_likelihood *l, struct pl_division *d);
/* Would the two divisions give noticeably different transfers? Fills `took` (n x k) of the first if
 * it is not `known` from a previous call. */
bool pl_clock_likelihood_differs(struct pl_likelihood *l, const struct pl_division *x,
				 const struct pl_division *y, double *took, bool known);

/*
 * Divide the streams v[0..n) into groups: sets `group` and `shift` of each. `linked`: of each
 * stream, the first one of the ranks that send to each other; NULL: nothing is known of that.
 * `pairs`: the streams are sends and receives, of which each group has two. *doubts: how many of
 * the groups are hardly likelier than others.
 */
int pl_clock_divide(const struct pl_align *a, struct pl_stream *v, uint32_t n,
		    const uint32_t *linked, bool pairs, uint32_t *n_groups, uint32_t *doubts,
		    struct pl_err *err) PL_MUST;

#endif
