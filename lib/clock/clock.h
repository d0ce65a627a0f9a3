/*
 * clock.h - all ranks on one clock: communication matched across ranks, clocks estimated from it.
 *
 * A pl_align takes the segments of one or more traces through its sink and keeps only their
 * communication (collectives, sends, receives). pl_clock_solve() computes the table of clocks,
 * groups and matches that begins a merged stream (struct pl_merge), and a report of its accuracy.
 * The only assumption about clocks is that each runs at a constant rate; they may differ by days.
 *
 * A number that the data cannot tell from 0 becomes 0: drifts whose interval contains 0 or whose
 * effect over the trace is below PL_CLOCK_RESOLUTION_NS, then offsets whose interval contains 0.
 */
#ifndef PL_CLOCK_H
#define PL_CLOCK_H

#include "io/json.h"
#include "trace/trace.h"

#define PL_CLOCK_RESOLUTION_NS 1000 /* profilers round to microseconds */

/* The ranks that share a clock. */
enum pl_clock_by {
	PL_CLOCK_AUTO, /* those of one host, where it is known; else those of one segment with many
			  ranks (an operation table, a replayed timeline); else none */
	PL_CLOCK_HOST, /* those of one host, where it is known */
	PL_CLOCK_RANK, /* none */
	PL_CLOCK_ONE,  /* all: nothing is estimated */
};
/* The action if two segments have the same rank and the second does not continue the first, or if
 * segments were not recorded together (recordings.c). */
enum pl_clock_dup {
	PL_DUP_REFUSE, /* PL_EDATA */
	PL_DUP_KEEP,   /* both are used, as if they were one */
	PL_DUP_FIRST,  /* segments of other recordings than that of the first segment are left
			* out, see pl_clock_dropped() */
	PL_DUP_NEWEST, /* the same for the recording that ended last */
};

struct pl_align_opts {
	enum pl_clock_by by;
	enum pl_clock_dup duplicates;
	bool strict; /* sequences that diverge, contradictions, missing ranks are PL_EDATA */
	const struct pl_log *log;
};

/* More about pl_merge.clock[i]. */
struct pl_clock_info {
	int32_t *rank; /* ascending; -1 is a rank that is not known */
	uint32_t n_ranks;
	bool offset_known;  /* connected to the first clock by communication */
	bool drift_known;   /* enough communication for an interval */
	uint64_t residuals; /* number of ends with a residual */
};
/* How the events of a group were matched. */
enum pl_matched_by {
	PL_BY_ORDER,
	PL_BY_NUMBER,
	PL_BY_STREAMS, /* order within each stream; the order between streams differs between ranks
			*/
	PL_BY_KINDS,   /* the same within each collective and size */
};
struct pl_group_info { /* more about pl_merge.group[i] */
	enum pl_matched_by by;
	uint64_t matches, missing; /* `missing`: matches without some member */
	uint64_t residuals;	   /* number of ends with a residual */
	int64_t residual_p50_ns,
		residual_p95_ns;    /* of ends against the median end of their match */
	int32_t first_rank_missing; /* a member without any event, or -1 */
};
/* An event ended before an event that it depends on had begun, for each constant offset. */
struct pl_conflict {
	uint32_t clock_before, clock_after; /* indices of clocks */
	int32_t rank_before, rank_after;
	char *name_before, *name_after; /* started too late; ended too early */
	int64_t start_ns, end_ns;	/* their start and end, aligned */
	int64_t excess_ns;		/* start - end: by how much */
	bool p2p, cycle; /* send and receive; one of several edges that contradict each other
			    together */
};
struct pl_clock_report {
	struct pl_clock_info *clock;
	uint32_t n_clocks;
	struct pl_group_info *group;
	uint32_t n_groups, inferred_groups;
	struct pl_conflict *conflict; /* the worst, at most PL_CONFLICTS_MAX */
	uint32_t n_conflicts;
	uint64_t conflicts; /* all of them */
	uint64_t events;    /* collectives, sends and receives read */
	uint64_t collective_matches, p2p_matches, missing_matches;
	uint64_t unmatched_collectives, unmatched_sends, unmatched_recvs;
	/* of messages of collectives: sends with their receives; halves alone, or of no collective
	 */
	uint64_t message_matches, unmatched_messages;
	uint64_t divergences; /* places where sequences of one group differ, except at ends of
				 traces */
	uint32_t reordered;   /* groups matched by streams or kinds */
	uint32_t doubtful;    /* inferred groups and pairs that were hardly likelier than others */
	uint32_t dropped;     /* segments */
	uint32_t unconnected; /* clocks that no communication joins to the first */
};
#define PL_CONFLICTS_MAX 100
void pl_clock_report_fini(struct pl_clock_report *r);

struct pl_align;
/* `opts` is copied; its log must live as long. */
struct pl_align *pl_clock_new(const struct pl_align_opts *opts, struct pl_err *err);
void pl_clock_free(struct pl_align *a); /* NULL is fine */
/* Hand it whole traces, in the order in which they will be written. Merges in them are
 * ignored. The sink belongs to `a`; failures name the segment. */
struct pl_sink *pl_clock_sink(struct pl_align *a);
/* The columns that the sink reads: for struct pl_trace_reader_opts. */
#define PL_CLOCK_ROLES                                                                             \
	(PL_ROLE_BIT(PL_R_GROUP) | PL_ROLE_BIT(PL_R_COLL) | PL_ROLE_BIT(PL_R_SEQ) |                \
	 PL_ROLE_BIT(PL_R_STEP) | PL_ROLE_BIT(PL_R_BYTES) | PL_ROLE_BIT(PL_R_PEER) |               \
	 PL_ROLE_BIT(PL_R_OF) | PL_ROLE_BIT(PL_R_CHANNEL) | PL_ROLE_BIT(PL_R_RANKS) |              \
	 PL_ROLE_BIT(PL_R_SIZE) | PL_ROLE_BIT(PL_R_DIMS) | PL_ROLE_BIT(PL_R_RECORD) |              \
	 PL_ROLE_BIT(PL_R_SRC) | PL_ROLE_BIT(PL_R_DST))
/* The number of segments that the sink received. */
uint32_t pl_clock_segments(const struct pl_align *a);
/* Was the segment (counted over all traces) left out? After pl_clock_solve(). */
bool pl_clock_dropped(const struct pl_align *a, uint32_t segment);
/* Once, after the last trace. Segments in *m are numbered without those left out. *m and *r are the
 * caller's, also after a failure. */
int pl_clock_solve(struct pl_align *a, struct pl_merge *m, struct pl_clock_report *r,
		   struct pl_err *err) PL_MUST;

/* The report as JSON, schema paceline.clock/1 (paceline-merge(1)), and as notes to `log`. */
int pl_clock_report_json(const struct pl_merge *m, const struct pl_clock_report *r,
			 struct pl_out *out, struct pl_err *err) PL_MUST;
void pl_clock_report_say(const struct pl_merge *m, const struct pl_clock_report *r,
			 const struct pl_log *log);

#endif
