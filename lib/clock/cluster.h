/* cluster.h - groups of lanes whose ends agree: cluster.c, for infer.c. */
#ifndef PL_CLOCK_CLUSTER_H
#define PL_CLOCK_CLUSTER_H

#include "clock/internal.h"

#define PL_LANE_AGREE 0.8 /* of operations: lanes that do the same */
#define PL_LANE_BRIEF 32  /* events: fewer wait for clocks estimated from longer lanes */

struct pl_lane_node {
	struct pl_seq s;
	uint32_t lane;
	int64_t stream;
	pl_id mode; /* the most frequent operation */
	uint32_t cluster;
};

struct pl_clusters {
	struct pl_align *a;
	const struct pl_clock *clock; /* estimated so far, or NULL */
	const uint32_t *raft;	      /* of clocks: comparable where they are the same */
	struct pl_lane_node *v;
	uint32_t n;
	uint32_t *leader; /* of each cluster: index of v */
	uint32_t *size;
	uint32_t n_clusters;
	int64_t closest; /* typical spread of the closest pairs, INT64_MAX: not to be seen */
	int64_t *scratch;
};

/* Cluster v[0..n), lanes that mostly do the same; a, v, n, clock and raft are set, the rest is 0.
 * pl_clusters_fini() is due whatever happens. */
int pl_clusters_find(struct pl_clusters *c, struct pl_err *err) PL_MUST;
/* Where the clusters of a stream are ragged and a regular layout fits, that. */
int pl_clusters_regularize(struct pl_clusters *c, struct pl_err *err) PL_MUST;
/* Where headers of files list all groups of a rank, leave only clusters that they list, of the
 * ranks in the input: another one becomes the smallest listed that holds it, or else falls apart
 * into the largest that it holds. *changed: clusters that are new, of two lanes and more. */
int pl_clusters_listed(struct pl_clusters *c, uint32_t *changed, struct pl_err *err) PL_MUST;
/* Clusters of one stream that do the same, of which none ends before another begins, and whose ends
 * are hardly farther apart than those within: jitter may have parted them. */
uint32_t pl_clusters_doubtful(const struct pl_clusters *c);
void pl_clusters_fini(struct pl_clusters *c);

#endif
