/*
 * stat.h - private: the sums of the summary, which stat_collect.c makes and stat_print.c prints.
 */
#ifndef PL_EXPORT_STAT_H
#define PL_EXPORT_STAT_H

#include "core/spans.h"
#include "export/internal.h"

/* The roles that are read: first numbers, then texts. */
#define PL_EXPORT_STAT_NUMBERS                                                                     \
	(PL_ROLE_BIT(PL_R_STEP) | PL_ROLE_BIT(PL_R_BYTES) | PL_ROLE_BIT(PL_R_SIZE) |               \
	 PL_ROLE_BIT(PL_R_ELEMENTS) | PL_ROLE_BIT(PL_R_ELEMENTS_OUT) | PL_ROLE_BIT(PL_R_ALLOC) |   \
	 PL_ROLE_BIT(PL_R_ALLOCATED) | PL_ROLE_BIT(PL_R_RESERVED) |                                \
	 PL_ROLE_BIT(PL_R_DEVICE_TYPE) | PL_ROLE_BIT(PL_R_DEVICE))
#define PL_EXPORT_STAT_TEXTS                                                                       \
	(PL_ROLE_BIT(PL_R_COLL) | PL_ROLE_BIT(PL_R_GROUP) | PL_ROLE_BIT(PL_R_DTYPE))

enum { S_HOST, S_RUNTIME, S_KERNEL, S_COPY, S_TABLES };

/* Events of one kind and name. */
struct stat_agg {
	pl_id name;
	uint8_t kind;
	int64_t n, total, self, max, bytes, sized_ns; /* sized_ns: time of the events with a size */
};
struct stat_table {
	struct pl_intern key; /* kind, name */
	struct stat_agg *v;
	size_t cap;
	uint32_t *known; /* [string of the segment]: index + 1 */
};

struct stat_rank {
	int32_t rank;	/* -1: unknown */
	int64_t key;	/* rank, or a number below 0 for a segment without a known rank */
	int32_t number; /* one of several devices of the rank; -1: the whole rank */
	pl_ns t0, t1;	/* first start, last end */
	bool device;	/* has device operations */
	struct pl_spans compute, comm, copy, host, host_comm;
	int64_t busy, compute_ns, comm_ns, exposed_ns, overlapped_ns,
		copy_ns; /* by pl_export_stat_finish_rank */
};

struct stat_step {
	int64_t step, dur;
	int64_t rank;
};
struct stat_comm {	     /* a communication event */
	pl_id coll, group;   /* names; group PL_NONE: unknown */
	int64_t bytes, size; /* -1: unknown; size: members of its group */
	pl_ns t0, t1;
	int64_t rank;
	uint32_t match;
	bool p2p;
};
struct stat_sample {
	pl_id coll;
	int64_t bytes, n, ns;
	bool recorded; /* the duration includes waiting */
};
struct stat_memory {
	int64_t rank, type, device;
	int64_t allocs, frees, allocated, freed, peak, reserved;
};

struct stat {
	struct pl_export_base x; /* first */
	struct pl_intern names;	 /* of all rows of the tables */
	struct pl_intern hosts;
	struct pl_intern rank_keys, memory_keys; /* ids are indices of rank[] and memory[] */
	struct stat_table table[S_TABLES];
	int64_t kind_n[256], kind_ns[256];
	struct stat_rank *rank;
	struct stat_step *step;
	struct stat_comm *comm;
	struct stat_sample *sample;
	struct stat_memory *memory;
	size_t n_ranks, cap_ranks, n_steps, cap_steps, n_comm, cap_comm, n_samples, cap_samples;
	size_t n_memory, cap_memory;
	int64_t world; /* ranks of the job, -1 unknown */
	int64_t n_events;
	bool merged, inferred;
};

/* stat_collect.c */
int pl_export_stat_segment(struct pl_export_base *x, struct pl_segment *seg,
			   struct pl_err *err) PL_MUST;
/* Turn the noted communication events into samples: before a new merge table, and at the end. */
int pl_export_stat_finish_comm(struct stat *s, struct pl_err *err) PL_MUST;
int pl_export_stat_finish_rank(struct stat_rank *r, struct pl_err *err) PL_MUST;
struct stat_agg *pl_export_stat_sum(struct stat *s, const struct pl_segment *seg, unsigned table,
				    uint8_t kind, pl_id name, struct pl_err *err);
/* stat_self.c: time of host operations less that of the operations inside them */
int pl_export_stat_self_times(struct stat *s, const struct pl_segment *seg,
			      struct pl_err *err) PL_MUST;
/* stat_print.c */
void pl_export_stat_text(struct stat *s); /* into s->x.t */
void pl_export_stat_json_text(struct stat *s);

#endif
