/* cluster.h - groups of streams whose ends agree: cluster.c, for infer.c. */
#ifndef PL_CLOCK_CLUSTER_H
#define PL_CLOCK_CLUSTER_H

#include "clock/internal.h"

#define PL_SEQ_SHORT 32 /* events: fewer wait for clocks estimated from longer streams */

struct pl_clock_node {
	struct pl_seq s;
	uint32_t comm_stream;
	int64_t stream;
	pl_id mode; /* the most frequent operation */
	uint32_t cluster;
};

struct pl_clusters {
	struct pl_align *a;
	const struct pl_clock *clock; /* estimated so far, or NULL */
	const uint32_t *component;    /* of clocks: comparable where they are the same */
	struct pl_clock_node *v;
	uint32_t n;
	uint32_t *leader; /* of each cluster: index of v */
	uint32_t *size;
	uint32_t n_clusters;
	int64_t closest; /* typical spread of the closest pairs, INT64_MAX: not to be seen */
	int64_t *scratch;
};

/* Cluster v[0..n), streams that mostly do the same; a, v, n, clock and offset component are set,
 * the rest is 0. pl_clock_clusters_fini() is due whatever happens. */
int pl_clock_clusters_find(struct pl_clusters *c, struct pl_err *err) PL_MUST;
/* Where the clusters of a stream are ragged and a regular layout fits, that. */
int pl_clock_clusters_regularize(struct pl_clusters *c, struct pl_err *err) PL_MUST;
/* Where headers of files list all groups of a rank, leave only clusters that they list, of the
 * ranks in the input: another one becomes the smallest listed that holds it, or else falls apart
 * into the largest that it holds. *changed: clusters that are new, of two streams and more. */
int pl_clock_clusters_listed(struct pl_clusters *c, uint32_t *changed, struct pl_err *err) PL_MUST;
/* Clusters of one stream that do the same, of which none ends before another begins, and whose ends
 * are hardly farther apart than those within: jitter may have parted them. */
uint32_t pl_clock_clusters_doubtful(const struct pl_clusters *c);
void pl_clock_clusters_fini(struct pl_clusters *c);

#endif
