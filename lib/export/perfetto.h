/*
 * perfetto.h - private: the state of the Perfetto exporter, and the functions that write packets.
 */
#ifndef PL_EXPORT_PERFETTO_H
#define PL_EXPORT_PERFETTO_H

#include "export/internal.h"

enum { P_CATEGORY, P_NAME, P_KEY, P_TEXT, P_TABLES }; /* interned strings */

struct perfetto {
	struct pl_export_base x; /* first; its text is a series of packets */
	struct pl_export_pids pids;
	struct pl_intern table[P_TABLES]; /* iid = id + 1 */
	struct pl_intern counter;	  /* process, name, series */
	uint64_t *counter_uuid;
	size_t cap_counter;
	struct pl_writer event, fresh; /* of the current packet: body, new interned strings */
	uint32_t merge_no;
	uint64_t uuid, pid; /* last one used */
	uint32_t first;	    /* number of the first segment, which is not 0 in an archive */
	pl_ns shift;	    /* added to every time, because times must not be negative */
	bool shifted;	    /* `shift` is that of a segment with events */
	bool began;
};

struct perfetto_item {
	pl_ns ts, end;
	uint32_t track, g; /* g: number of the event in the segment's batches */
	int class;
};
struct perfetto_where {
	uint32_t batch, row;
};
struct perfetto_corr {
	int64_t corr;
	pl_ns ts;
	uint32_t g;
	int device;
};
struct perfetto_bind {
	uint64_t id;
	uint32_t next; /* bind of the same event, PL_NONE */
	bool last;     /* the arrow ends here */
	bool match;    /* the arrow of a match, which crosses segments */
};
struct perfetto_subtrack {
	struct perfetto_item *open; /* slices that have not ended, the outer first */
	size_t n, cap;
	uint64_t uuid;
};

/* One segment. */
struct perfetto_seg {
	struct pl_segment *seg;
	struct pl_row_values *rows; /* [batch] */
	uint32_t *first;	    /* [batch]: g of row 0 */
	struct perfetto_item *item;
	struct perfetto_where *where; /* [g] */
	uint32_t *head;		      /* [g]: first bind, PL_NONE */
	struct perfetto_corr *corr;
	struct perfetto_bind *bind;
	struct perfetto_subtrack *subtrack;
	uint32_t *iid;	   /* [table, string] */
	uint64_t *process; /* [string of the pid]: uuid */
	pl_ns earliest;	   /* time of an event; INT64_MAX: there are none */
	size_t n_rows, n_items, n_corr, cap_corr, n_bind, cap_bind, n_subtracks, made_subtracks,
		cap_subtrack;
};

int pl_export_perfetto_track(struct perfetto *p, struct perfetto_seg *s, uint32_t track,
			     size_t subtrack, uint64_t *uuid, struct pl_err *err) PL_MUST;
int pl_export_perfetto_begin(struct perfetto *p, struct perfetto_seg *s,
			     const struct perfetto_item *it, uint64_t uuid,
			     struct pl_err *err) PL_MUST;
void pl_export_perfetto_end(struct perfetto *p, uint64_t uuid, pl_ns ts);
int pl_export_perfetto_counters(struct perfetto *p, struct perfetto_seg *s, uint32_t batch,
				struct pl_err *err) PL_MUST;

#endif
