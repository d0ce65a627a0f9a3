/* layout.h - how likely a division of streams into groups is: layout.c, for infer.c and stages.c.
 */
#ifndef PL_CLOCK_LAYOUT_H
#define PL_CLOCK_LAYOUT_H

#include "clock/internal.h"

struct pl_clock_layout_residual {
	double r, wide; /* us; additional scale */
	double most;	/* cost at most; 0: no limit; < 0: an impossibility of size r */
};
struct pl_clock_layout_diff {
	double t, d;
};
struct pl_layout {
	const struct pl_seq **comm_stream;
	uint32_t n, occurrences, k; /* k: of the occurrences, those looked at */
	uint32_t *kind; /* of each stream: only streams of one kind do the same in step */
	uint32_t *partition, *partition_of, n_partitions;
	uint32_t *component; /* of each partition */
	pl_ns *base;	     /* of each offset component, at its first partition */
	double *start, *end; /* n x k, us from the base; NAN: not there */
	/* of the division looked at last */
	double *delta, *slope; /* of each partition: t + delta + slope t */
	bool *placed;
	bool *leads;		 /* of each group: the first of its kind */
	uint32_t *order, *first; /* streams by group */
	double *took, *tmp;
	struct pl_clock_layout_diff *diff;
	struct pl_clock_layout_residual *res;
};
int pl_clock_layout_init(struct pl_layout *l, const struct pl_align *a,
			 const struct pl_partitions *is, const struct pl_seq *const *comm_stream,
			 uint32_t n, struct pl_err *err) PL_MUST;
void pl_clock_layout_fini(struct pl_layout *l);

struct pl_clock_layout_cost {
	double cost;	     /* -log likelihood */
	bool determined;     /* not just by offsets that were free to suit it */
	uint32_t joins;	     /* such offsets */
	uint32_t impossible; /* ends before the last start */
};
/* group: of each stream, 0 .. n_groups - 1, none empty. */
struct pl_clock_layout_cost pl_clock_layout_cost(struct pl_layout *l, const uint32_t *group,
						 uint32_t n_groups);
/* Would the two divisions give noticeably different transfers? */
bool pl_clock_layout_differs(struct pl_layout *l, const uint32_t *x, uint32_t nx, const uint32_t *y,
			     uint32_t ny);

/* group: the same division as `any`, numbered 0, 1 ... Returns how many groups there are. */
uint32_t pl_clock_layout_number(const uint32_t *any, uint32_t n, uint32_t *group);
/*
 * The most likely division of streams sorted by rank, one a rank: a regular one, each stream alone,
 * or the one that `group` holds on entry, or the streams that have the same number in `stages`,
 * which is a good guess. Only streams of one class may share a group. *doubtful: there is another
 * division about as likely, with noticeably different transfers.
 */
struct pl_divided {
	uint32_t *group, n_groups, joins;
	double cost;
	bool determined;
};
int pl_clock_layout_choose(struct pl_layout *l, const uint32_t *class, const uint32_t *stages,
			   uint32_t *group, uint32_t *n_groups, bool *doubtful,
			   struct pl_err *err) PL_MUST;

#endif
