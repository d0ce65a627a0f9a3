/*
 * topology.h - where the ranks are and what connects them: paceline-topology(5). Data and text.
 *
 * Ranks are placed on hosts; inside a host they talk over links of scope host, between hosts over
 * links of scope network. A link has a bandwidth in one direction, a latency for each message, and
 * belongs to one rank or is shared by all ranks of its host.
 */
#ifndef PL_TOPOLOGY_H
#define PL_TOPOLOGY_H

#include "core/core.h"
#include "io/stream.h"
#include "lang/lang.h"

enum pl_scope { PL_SCOPE_HOST, PL_SCOPE_NETWORK };

struct pl_tlink {
	const char *name;    /* "nvlink", "pcie", "nic" ... */
	uint8_t scope;	     /* enum pl_scope */
	bool shared;	     /* one for all ranks of a host; else one a rank */
	double bytes_per_ns; /* in one direction, > 0 */
	pl_ns latency_ns;    /* a message; >= 0 */
};
struct pl_thost {
	const char *name;
	uint32_t first, n; /* ranks first .. first + n - 1 */
};

/* Zero-initialised is empty. Strings belong to the arena. */
struct pl_topology {
	struct pl_arena arena;
	struct pl_thost *host; /* by first rank; together they cover 0 .. n_ranks - 1 */
	size_t n_hosts, cap_hosts;
	struct pl_tlink *link;
	size_t n_links, cap_links;
	uint32_t n_ranks;
	bool pairs; /* a rank has a link to each other rank; else one for all that it sends */
	int64_t message_bytes; /* > 0: a tree is one binary tree that forwards messages of so many
				* bytes; 0: its pieces are as fine as can be */
	bool assumed;	       /* not given: pl_topology_default() */
};
extern const struct pl_lang_schema pl_topology_schema;
void pl_topology_fini(struct pl_topology *t);
/* Text; PL_EDATA with line, cause and remedy. */
int pl_topology_read(struct pl_in *in, const char *name, struct pl_topology *t,
		     struct pl_err *err) PL_MUST;
/* "HOSTSxRANKS" ("16x8") with default links or those of a preset ("16x8:dgx-a100"); or a file. */
int pl_topology_parse(const char *text, struct pl_topology *t, struct pl_err *err) PL_MUST;
/* n ranks with per_host of them a host (0: all on one), links of a common machine; `assumed`. */
int pl_topology_default(uint32_t n, uint32_t per_host, struct pl_topology *t,
			struct pl_err *err) PL_MUST;
/* The link that a message of that scope takes, NULL if there is none. */
const struct pl_tlink *pl_topology_link(const struct pl_topology *t, enum pl_scope scope);
/* PL_EDATA if it has fewer ranks than the job. */
int pl_topology_check(const struct pl_topology *t, int64_t ranks, struct pl_err *err) PL_MUST;
uint32_t pl_topology_host(const struct pl_topology *t, uint32_t rank); /* index into host */

/* How a collective is carried out. */
enum pl_algo {
	PL_ALGO_RING,
	PL_ALGO_TREE,
	PL_ALGO_HALVING, /* recursive halving and doubling */
	PL_ALGO_HIERARCHICAL,
	PL_ALGO_PS, /* parameter servers: push and pull */
	PL_ALGO_COUNT_
};
const char *
pl_plan_algorithm_name(unsigned algo);	      /* ring, tree, halving-doubling, hierarchical, ps */
int pl_plan_algorithm_find(const char *name); /* -1 */

#endif
