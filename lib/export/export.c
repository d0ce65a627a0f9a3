/* The registry of exporters, and our own stream as one of them. */
#include <string.h>

#include "export/internal.h"

static struct pl_sink *trace_open(struct pl_out *out, const struct pl_export_opts *o,
				  struct pl_err *err)
{
	const struct pl_trace_writer_opts w = { o->level, o->pool, o->provenance };

	return pl_trace_writer_open(out, &w, err);
}

const struct pl_exporter pl_export_trace = {
	.name = "trace",
	.summary = "paceline's own stream, paceline-trace(5)",
	.binary = true,
	.open = trace_open,
	.close = pl_trace_writer_close,
	.abort = pl_trace_writer_abort,
};

const struct pl_exporter *const pl_exporters[] = {
	&pl_export_trace, &pl_export_chrome, &pl_export_perfetto,  &pl_export_csv, &pl_export_jsonl,
	&pl_export_text,  &pl_export_stat,   &pl_export_stat_json, NULL,
};

const struct pl_exporter *pl_exporter_find(const char *name)
{
	for (size_t i = 0; pl_exporters[i]; i++)
		if (!strcmp(pl_exporters[i]->name, name))
			return pl_exporters[i];
	return NULL;
}
