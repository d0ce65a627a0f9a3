/*
 * internal.h - the parts of clock/: collect.c (with issue.c) -> match.c (with listed.c,
 * sequences.c, p2p.c, infer.c) -> fit.c -> box.c.
 *
 * How groups and peers that are not recorded are found. A stream of communication is one rank's
 * part of a group, or one end of a pair.
 *
 *  1. All streams that could share groups are taken together, those with most events, or fewest
 *     choices, first: groups by infer.c, pairs of pipeline stages by peers.c.
 *  2. Divisions of them into groups are proposed (divide.c).
 *  3. The likelihood decides (likelihood.c). It compares times under the clocks that are known so
 *     far, and lets the other clocks suit the division.
 *  4. Clocks are estimated from the new matches (partitions.c), because known clocks tell the next
 *     streams apart.
 *  5. A stream that fits nowhere is split by operation and tried again. After that it stays alone.
 */
#ifndef PL_CLOCK_INTERNAL_H
#define PL_CLOCK_INTERNAL_H

#include "clock/clock.h"

#define PL_NO_VALUE INT64_MIN

/* One communication event. Strings are of pl_align.str. */
struct pl_comm {
	pl_ns ts, end; /* local, absolute */
	pl_ns turn;    /* its place in the rank's order: ts, or the order of issue (issue.c) */
	int64_t seq, step, bytes; /* PL_NO_VALUE */
	int64_t of;		  /* of a message: number of its collective; else PL_NO_VALUE */
	int32_t channel;
	uint32_t seg, event;
	int32_t rank, peer;   /* peer -1 unknown */
	int32_t src, dst;     /* as recorded, -1 */
	int32_t size;	      /* of the group as recorded, or 0 */
	uint32_t pair;	      /* of threads of its rank, PL_NONE (listed.c) */
	uint32_t comm_stream; /* where its order holds: a stream, or host threads of a rank;
			       * while its segment is read, the track */
	uint32_t clock;
	pl_id name, coll, group; /* coll, group: PL_NONE */
	pl_id ranks;		 /* members of the group: as recorded, or the listed set; PL_NONE */
	uint8_t kind, coll_is;	 /* coll_is: PL_COLL_MOVES_DATA ... */
	bool listed; /* group and ranks are from the header of a file, not the event's own */
	bool open;   /* no end was recorded, `end` is its start */
};

struct pl_listed { /* a set of ranks that is a group of `rank`, as headers of files say */
	int32_t rank;
	uint32_t seg;
	pl_id name, set; /* PL_NONE: unknown; set: see pl_clock_listed_ranks() */
};

struct pl_seg_rank { /* a rank seen in a segment */
	uint32_t seg;
	int32_t rank;
	pl_id host;	   /* PL_NONE */
	pl_ns first, last; /* start of its first event, end of its last */
	uint32_t clock;
};

struct pl_align_segment {
	pl_id source;	 /* "" if unknown */
	bool continues;	 /* the segment before it */
	uint32_t file;	 /* the first segment of its file */
	bool dropped;	 /* left out */
	uint32_t number; /* in the output; if it is left out, the number of the next */
	int64_t world;	 /* as in pl_align */
};

struct pl_comm_stream { /* a key of pl_align.comm_streams */
	int64_t rank;
	int64_t device, stream; /* of threads: -1, and their pair (listed.c) or -1 */
};

struct pl_cgroup {
	pl_id name;
	uint32_t flags;
	int32_t *rank; /* members ascending */
	uint32_t n;
	uint32_t size; /* number of members as recorded; 0 unknown */
	enum pl_matched_by by;
	size_t cap;
};
struct pl_cmatch {
	uint32_t group, first, n, flags; /* as in struct pl_match; members are indices of ev */
};

struct pl_align {
	struct pl_align_opts o;
	struct pl_sink sink;
	struct pl_intern str, comm_streams;
	struct pl_comm *ev;
	size_t n, cap;
	struct pl_comm *msg; /* messages of collectives, which are not in ev */
	size_t n_msg, cap_msg;
	struct pl_seg_rank *sr;
	size_t n_sr, cap_sr;
	struct pl_align_segment *seg;
	size_t n_segs, cap_segs;
	size_t n_unranked; /* segments of no known rank */
	uint32_t unranked; /* the first of them */

	/* of the segment being read: collect.c */
	struct pl_align_seg *cur;
	struct pl_intern prev_pids; /* of the segment before: does this one continue it? */
	struct pl_intern rank_seen; /* ranks of the segments */
	uint64_t prev_events;
	pl_ns prev_first;
	bool prev_recorder;
	uint32_t prev_part;

	/* listed.c */
	struct pl_listed *listed;
	size_t n_listed, cap_listed;
	struct pl_intern rank_sets; /* members, ascending, as int32_t */
	bool by_thread;		    /* the threads of collectives told their groups */

	int64_t world;	 /* ranks of the job as the headers say; 0: none says it, -1: unknown */
	bool incomplete; /* ranks of the job, or of its groups, were not given */

	/* clocks */
	uint32_t n_clocks;
	pl_ns *clock_first;  /* start of the first event on it */
	uint32_t *partition; /* by clock: comparable to the jitter where it is the same */
	uint32_t *component; /* by clock: comparable, but less precisely */

	/* match.c */
	struct pl_cgroup *group;
	size_t n_groups, cap_groups;
	struct pl_cmatch *match;
	size_t n_matches, cap_matches;
	uint32_t *member; /* indices of ev */
	size_t n_members, cap_members;
	uint32_t n_inferred; /* groups; pairings are one */
	bool said_restarts;  /* restarts.c: warned once */
	struct pl_clock_report *rep;
	struct pl_merge *m; /* its clocks, as far as they are known */
	int64_t *scratch;   /* of sequences.c: PL_SEQ_SCRATCH */
};

void pl_clock_collect_fini(struct pl_align *a);

/* The ranks of a->sr from sr0 on are in the input. */
int pl_clock_note_ranks(struct pl_align *a, size_t sr0, struct pl_err *err) PL_MUST;
/* Is it a rank of the input? */
bool pl_clock_has_rank(const struct pl_align *a, int64_t rank);
const char *pl_clock_source(const struct pl_align *a, uint32_t segment); /* "unnamed" if unknown */

/* ---- recordings.c ---- */
/* After the last segment: refuse segments that were not recorded together, or leave out those of
 * other recordings. Fills rep->dropped. */
int pl_clock_recordings(struct pl_align *a, struct pl_err *err) PL_MUST;
/* After the estimate: warn that no communication joins some clocks, and of possible causes. */
void pl_clock_say_joined(const struct pl_align *a);

/* ---- issue.c: of the segment being read ---- */
struct pl_issue;
/* *at is made on the first call. */
int pl_clock_issue_begin(struct pl_issue **at, struct pl_err *err) PL_MUST;
/* A batch, all rows of it. row_note: of each row its communication event, counted from the
 * segment's first, or PL_NONE; n_notes: how many there are by now. */
int pl_clock_issue_batch(struct pl_issue *is, const struct pl_segment *seg,
			 const struct pl_batch *b, const uint32_t *row_note, size_t n_notes,
			 struct pl_err *err) PL_MUST;
/* Set `turn` of the events from ev0 on; their streams are still tracks. */
int pl_clock_issue_settle(struct pl_align *a, struct pl_issue *is, const struct pl_segment *seg,
			  size_t ev0, struct pl_err *err) PL_MUST;
void pl_clock_issue_free(struct pl_issue *is); /* NULL is fine */

/* ---- listed.c ---- */
/* The groups that the segment being read lists for its one rank, if it has one; its ranks are a->sr
 * from sr0 on, its events a->ev from ev0 on. */
int pl_clock_listed_note(struct pl_align *a, const struct pl_segment *seg, size_t sr0, size_t ev0,
			 struct pl_err *err) PL_MUST;
/* After all segments: collectives without a group get the group of their rank, if it has only one.
 * If the headers contradict each other, it warns and uses none of them. */
int pl_clock_listed_use(struct pl_align *a, struct pl_err *err) PL_MUST;
const int32_t *pl_clock_listed_ranks(const struct pl_align *a, pl_id set, uint32_t *n);
struct pl_stream;
/* Where headers of files list all groups of a rank, leave only groups of v[0..n) that they list, of
 * the ranks in the input: another one becomes the smallest listed that holds it, or else falls
 * apart into the largest that it holds. *changed: groups that are new, of two streams and more. */
int pl_clock_listed_groups(const struct pl_align *a, struct pl_stream *v, uint32_t n,
			   uint32_t *n_groups, uint32_t *changed, struct pl_err *err) PL_MUST;

/* ---- match.c ---- */
/* Fill group, match, member and the counts of rep; sorts ev by (rank, turn, seg, event). */
int pl_clock_match(struct pl_align *a, struct pl_err *err) PL_MUST;
int pl_clock_add_group(struct pl_align *a, const char *name, size_t n, uint32_t flags,
		       uint32_t *index, struct pl_err *err) PL_MUST;
int pl_clock_add_rank(struct pl_cgroup *g, int32_t rank, struct pl_err *err) PL_MUST;
/* The next rank of "[0, 1, 2]" as profilers write it, where all else separates; false: no more. */
bool pl_clock_next_rank(const char **s, int32_t *rank);
/* A match of the events ev[0..n); PL_MATCH_MISSING is added where the group has more ranks. */
int pl_clock_add_match(struct pl_align *a, uint32_t group, uint32_t flags, const uint32_t *ev,
		       uint32_t n, struct pl_err *err) PL_MUST;
/* One rank's part of a sequence of communication that several ranks do in the same order. */
struct pl_seq {
	const uint32_t *ev; /* indices of pl_align.ev, in the rank's order */
	uint32_t n;
	int32_t rank;
	uint32_t *to; /* of n: position in the reference sequence or PL_NONE, by
			 pl_clock_seq_align() */
};

/* Sends and receives that pl_clock_seq_align() found to belong together. */
int pl_clock_add_pairs(struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
		       uint32_t flags, struct pl_err *err) PL_MUST;

/* ---- missing.c ---- */
/* A difference: where y is, `rank` has x or, if that is PL_NONE, nothing. */
struct difference {
	uint32_t x, y; /* events; y PL_NONE: no difference */
	int32_t rank;
};
/* After an alignment that found no difference: find elements of y that are missing, which shift the
 * ends of the later ones. The first difference. */
struct difference pl_clock_find_missing(const struct pl_align *a, const struct pl_seq *x,
					struct pl_seq *y);

/* ---- order.c ---- */
/* Match the sequences s[0..n) of the group's ranks by order. A group that was recorded may use
 * several streams: their order among each other may then differ between ranks. */
int pl_clock_by_order(struct pl_align *a, uint32_t group, const struct pl_seq *s, uint32_t n,
		      bool recorded, struct pl_err *err) PL_MUST;
/* The same for events of one number: the first of each rank are a match, the second ..., stream by
 * stream where all ranks use equally many. */
int pl_clock_numbered(struct pl_align *a, uint32_t group, const struct pl_seq *s, uint32_t n,
		      struct pl_err *err) PL_MUST;
/* Pairs operations of the first rank with those of each other rank by order in the stream. *most:
 * the share of pairs where one ends before the other begins, for the worst rank and stream. */
int pl_clock_share_early(const struct pl_align *a, const struct pl_seq *s, uint32_t n, double *most,
			 struct pl_err *err) PL_MUST;
/* Say that `what` (a group) differs where event y is: `rank` has x there or, if that is PL_NONE,
 * nothing. PL_EDATA if strict. */
int pl_clock_diverged(struct pl_align *a, const char *what, uint32_t x, int32_t rank, uint32_t y,
		      struct pl_err *err) PL_MUST;

/* ---- restarts.c ---- */
/* The numbers of the group's events ev[0..n), by (rank, turn), may begin again: which run of
 * numbers each is of, the same on all ranks. */
int pl_clock_restarts(struct pl_align *a, const char *group, const uint32_t *ev, size_t n,
		      int64_t *run, struct pl_err *err) PL_MUST;

/* ---- messages.c ---- */
struct pl_paired {		    /* messages by collective: indices of pl_align.msg */
	uint32_t match, send, recv; /* recv PL_NONE: not recorded */
};
/* After all else is matched: (*p)[0..*n) ascending by match; pl_free(). */
int pl_clock_messages(struct pl_align *a, struct pl_paired **p, size_t *n,
		      struct pl_err *err) PL_MUST;

/* ---- p2p.c ---- */
int pl_clock_p2p(struct pl_align *a, struct pl_err *err) PL_MUST;

/* ---- sequences.c: two sequences ---- */
/* Can these be one communication? Compares names and, where both are known, sizes. */
bool pl_clock_seq_same(const struct pl_align *a, uint32_t x, uint32_t y);
/*
 * Scatter of the differences of ends between the pairs (x[i + shift], y[i]), whatever offset and
 * drift: the scaled median of successive changes. INT64_MAX with fewer than 3 pairs. `early`: share
 * of the pairs in which one ends before the other begins, offsets removed.
 */
int64_t pl_clock_seq_spread(const struct pl_align *a, const struct pl_seq *x,
			    const struct pl_seq *y, int64_t shift, double *early);
#define PL_SEQ_SCRATCH 1536 /* three times as many pairs as are looked at */
#define PL_SEQ_PAIRS   6    /* fewer do not show a scatter */
/* Share of the pairs in which noise may end one before the other begins. */
#define PL_SEQ_IMPOSSIBLE 0.03
/* Share of equal pairs: streams of one group may differ in what one rank recorded more, at its ends
 * or beside the group; streams of two groups that share the more frequent of two operations agree
 * in half. */
#define PL_SEQ_AGREE 0.8
/* The drift between two clocks: the median slope of d over t between points half the length apart
 * (Theil's incomplete method). */
double pl_clock_slope(const pl_ns *t, const int64_t *d, size_t n, int64_t *scratch);
/* Are most of their operations the same? */
bool pl_clock_seq_alike(const struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
			int64_t shift);
/* How many elements x has before the first of y (or less than 0). */
int64_t pl_clock_seq_shift(const struct pl_align *a, const struct pl_seq *x,
			   const struct pl_seq *y);
/* Could at least this share of the pairs be one communication? */
bool pl_clock_seq_agree(const struct pl_align *a, const struct pl_seq *x, const struct pl_seq *y,
			int64_t shift, double least);
/* Fill y->to with positions in x. The first place of y where they differ other than by missing a
 * head or a tail, PL_NONE if there is none. */
uint32_t pl_clock_seq_align(const struct pl_align *a, const struct pl_seq *x, struct pl_seq *y);

/* ---- infer.c, peers.c ---- */
/* Group the collectives ev[idx[0..n)] for which no group was recorded, and match them. */
int pl_clock_infer_groups(struct pl_align *a, const uint32_t *idx, uint32_t n,
			  struct pl_err *err) PL_MUST;
/* Infer the peers of posted sends and receives: neighbours in a chain or a ring of ranks. */
int pl_clock_infer_neighbours(struct pl_align *a, struct pl_err *err) PL_MUST;
/* Match sends and receives whose peers were not recorded. */
int pl_clock_infer_peers(struct pl_align *a, struct pl_err *err) PL_MUST;

/* ---- estimate.c ---- */
/* The clocks, partitions and components that the matches so far tell. */
int pl_clock_partitions(struct pl_align *a, struct pl_err *err) PL_MUST;
/* Offsets and drifts of all clocks against the first, from all matches. */
int pl_clock_estimate(struct pl_align *a, struct pl_err *err) PL_MUST;

/* ---- fit.c ---- */
struct pl_clock_fit_obs {
	uint32_t match, clock;
	pl_ns end; /* local, absolute */
};
struct pl_clock_fit_in {
	const struct pl_clock_fit_obs *obs; /* by match */
	size_t n_obs;
	const uint32_t *match_class; /* jitter is estimated for each class */
	const double *class_floor;   /* ... but never taken for less, ns; may be NULL */
	uint32_t n_matches, n_classes, n_clocks;
	const pl_ns *first_ns;	   /* of each clock, where its offset is wanted */
	const uint32_t *component; /* by clock; NULL: all are of one */
	uint32_t first_clock;	   /* estimate those of its component against it */
	/* of each match: how far its ends may be apart at most, ns. That tells how exact an offset
	 * is that so few matches determine that they show no jitter. NULL: it is not known */
	const double *match_bound;
	/* of each class: by how much ends may differ always, which nothing shows, ns; NULL: 0 */
	const double *class_bias;
};
struct pl_clock_fit_clock {
	int64_t offset_ns;		   /* minus the first clock, at first_ns */
	double offset_ci, drift, drift_ci; /* ns; ns a ns of local time. ci < 0: not known */
	double scatter;			   /* the part of offset_ci that the ends themselves show */
	bool connected;
};
int pl_clock_fit_clocks(const struct pl_clock_fit_in *in, struct pl_clock_fit_clock *out,
			struct pl_err *err) PL_MUST;

/* ---- probes.c: observations of clocks from the matches ---- */
/* Was the end of each member recorded? Else the match tells nothing of clocks. */
bool pl_clock_has_ends(const struct pl_align *a, const struct pl_cmatch *m);
/* The arrays of `in` are in `mem`. */
int pl_clock_probes(const struct pl_align *a, struct pl_clock_fit_in *in, struct pl_arena *mem,
		    struct pl_err *err) PL_MUST;

/* ---- box.c ---- */
/* Check starts against ends under the estimate; move clocks inside their intervals where that
 * helps; report what remains. */
int pl_clock_box(struct pl_align *a, struct pl_err *err) PL_MUST;

/* Indices 0 .. n - 1 by key, in `out`; those of key k begin at first0[k]; first0: of keys + 1. Keys
 * that are PL_NONE are left out. */
void pl_clock_sort_by_key(const uint32_t *key, size_t n, uint32_t keys, uint32_t *out,
			  uint32_t *first0);

static inline const struct pl_comm_stream *pl_clock_stream_of(const struct pl_align *a,
							      uint32_t comm_stream)
{
	return (const struct pl_comm_stream *)(const void *)a->comm_streams.str[comm_stream];
}

/* A send or receive that a thread posted: it ends when somebody waits for it, which need not be
 * when its partner ends. */
static inline bool pl_clock_is_posted(const struct pl_align *a, const struct pl_comm *e)
{
	return e->kind != PL_K_COLLECTIVE && pl_clock_stream_of(a, e->comm_stream)->stream < 0;
}

/* ---- union-find: parent[i] == i at first ----------------------------------------------------- */

/* The least element of the set of i. */
static inline uint32_t pl_union_root(uint32_t *parent, uint32_t i)
{
	while (parent[i] != i)
		i = parent[i] = parent[parent[i]];
	return i;
}

static inline void pl_union_join(uint32_t *parent, uint32_t x, uint32_t y)
{
	uint32_t p = pl_union_root(parent, x), q = pl_union_root(parent, y);

	parent[p > q ? p : q] = p > q ? q : p;
}

#endif
