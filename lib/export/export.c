/* The registry of exporters, and paceline's own stream as one of them. */
#include "export/internal.h"

static const struct pl_exporter trace = {
	.name = "trace",
	.summary = "paceline's own stream, paceline-trace(5)",
	.binary = true,
};

static const struct pl_exporter *const formats[] = {
	&trace,
	&pl_export_chrome,
	&pl_export_perfetto,
	&pl_export_perfetto_tar,
	&pl_export_csv,
	&pl_export_jsonl,
	&pl_export_text,
	&pl_export_stat,
	&pl_export_stat_json,
	NULL,
};

const struct pl_exporter *pl_export_find(const char *name)
{
	for (size_t i = 0; formats[i]; i++)
		if (!strcmp(formats[i]->name, name))
			return formats[i];
	return NULL;
}

struct pl_sink *pl_export_open(const struct pl_exporter *e, struct pl_out *out,
			       const struct pl_export_opts *o, struct pl_err *err)
{
	const struct pl_trace_writer_opts w = { o->level, o->pool, o->provenance };

	return e->kind ? pl_export_base_open(e->kind, out, o, err)
		       : pl_trace_writer_open(out, &w, err);
}

int pl_export_close(const struct pl_exporter *e, struct pl_sink *s, struct pl_err *err)
{
	return e->kind ? pl_export_base_close(s, err) : pl_trace_writer_close(s, err);
}

void pl_export_abort(const struct pl_exporter *e, struct pl_sink *s)
{
	if (e->kind)
		pl_export_base_abort(s);
	else
		pl_trace_writer_abort(s);
}
