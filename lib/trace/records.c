/*
 * The records of paceline-trace(5), member by member: the head of a segment, and tracks.
 */
#include "trace/internal.h"

#define FIELD(coding, member) PL_FIELD(coding, struct pl_segment, member)
static const struct pl_field segment[] = { FIELD(I64, base_ns), FIELD(TEXT, source),
					   FIELD(TEXT, format) };
const struct pl_record pl_trace_record_segment = { PL_RECORD("segment", struct pl_segment,
							     segment) };
#undef FIELD

#define FIELD(coding, member) PL_FIELD(coding, struct pl_numbered_track, member)
static const struct pl_field track[] = {
	FIELD(U32, number),	 FIELD(U8, track.type),	   FIELD(U8, track.flags),
	FIELD(I32, track.rank),	 FIELD(I32, track.device), FIELD(I32, track.sort),
	FIELD(I32, track.psort), FIELD(I32, track.coord),  FIELD(I64, track.stream),
	FIELD(ID, track.host),	 FIELD(ID, track.pid),	   FIELD(ID, track.tid),
	FIELD(ID, track.name),	 FIELD(ID, track.process), FIELD(ID, track.labels),
};
const struct pl_record pl_trace_record_track = { PL_RECORD("track", struct pl_numbered_track,
							   track) };
