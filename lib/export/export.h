/* export.h - traces in the formats of other tools: one file and struct pl_exporter for each. */
#ifndef PL_EXPORT_H
#define PL_EXPORT_H

#include "io/table.h"
#include "trace/trace.h"

struct pl_export_opts {
	struct pl_pool *pool;
	int level;
	const char *provenance;
	const struct pl_log *log;
	int top; /* rows of the stat tables, 0 = all */
	bool color;
};

struct pl_exporter {
	const char *name; /* "trace", "chrome", "perfetto", "csv", "stat-json" ... */
	const char *summary;
	bool binary;
	const struct pl_export_kind *kind; /* NULL: paceline's own stream */
};
const struct pl_exporter *pl_export_find(const char *name);

struct pl_sink *pl_export_open(const struct pl_exporter *e, struct pl_out *out,
			       const struct pl_export_opts *o, struct pl_err *err);
/* Write the rest of the output, and free the exporter. */
int pl_export_close(const struct pl_exporter *e, struct pl_sink *s, struct pl_err *err) PL_MUST;
void pl_export_abort(const struct pl_exporter *e, struct pl_sink *s);

#endif
