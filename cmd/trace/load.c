/* Writes all inputs to one output: a stream, or another format by an exporter. */
#include "program.h"
#include "report/svg.h"

/* The picture is drawn here, because lib/export may not use lib/report. */
static const struct pl_exporter svg = { .name = "svg" };

const struct pl_exporter *find_format(const char *name)
{
	return strcmp(name, svg.name) ? pl_export_find(name) : &svg;
}

/* Gives the events that the filter keeps to an exporter. */
static int through_exporter(const struct config *c, struct pl_inputs *in, struct pl_inputs_load *l,
			    const struct selection *sel, struct pl_out *out, struct pl_err *err)
{
	const struct pl_exporter *to = find_format(c->to);
	bool json = !strcmp(to->name, "stat-json");
	const struct pl_export_opts o = {
		.pool = l->pool,
		.level = (int)c->c.level,
		.provenance = l->provenance,
		.log = &c->c.log,
		.top = c->top >= 0 ? (int)c->top
		       : json	   ? 0
				   : 15,
		.color = pl_use_color(&c->c, 1),
	};
	struct pl_picture picture = { 0 };
	struct pl_sink *sink =
		to == &svg ? pl_picture_open(&picture, err) : pl_export_open(to, out, &o, err);
	struct pl_sink *filter = NULL;
	int rc = 0;

	if (!sink)
		return err->code;
	if (sel->any && !(filter = pl_trace_filter_open(&sel->f, sink, err)))
		rc = err->code;
	else
		rc = pl_inputs_load(in, l, NULL, filter ? filter : sink, err);
	if (rc >= 0 && filter)
		rc = pl_trace_filter_finish(filter, err);
	if (rc >= 0 && filter && (rc = pl_trace_filter_check(filter, &c->c.log, err)) < 0 &&
	    in->n == 1)
		pl_wrap(err, "%s", pl_inputs_name(&in->v[0]));
	pl_trace_filter_close(filter);
	if (to != &svg && rc < 0)
		pl_export_abort(to, sink);
	else if (to != &svg)
		rc = pl_export_close(to, sink, err);
	else if (rc < 0)
		pl_picture_abort(sink);
	else if ((rc = pl_picture_close(sink, err)) >= 0)
		rc = pl_svg_draw(&picture, NULL, 0, picture.span, out, err);
	pl_picture_fini(&picture);
	return rc;
}

int load_all(struct config *c, struct pl_inputs *in, const struct selection *sel,
	     struct pl_err *err)
{
	const struct pl_exporter *to = find_format(c->to);
	struct pl_inputs_load l = { .import = import_opts(c),
				    .from = c->from ? pl_import_find(c->from) : NULL,
				    .level = (int)c->c.level };
	struct pl_buf line = { 0 };
	struct pl_out *out = NULL;
	int rc;

	PL_CHECK(pl_inputs_check(in, err));
	PL_TRY(pl_provenance(&c->c, &line, err));
	l.provenance = (const char *)line.p;
	l.pool = pl_pool_new((int)c->c.threads, err);
	out = l.pool ? pl_out_open(c->c.output, to->binary, err) : NULL;
	PL_TRY(out ? 0 : err->code);
	if (!strcmp(to->name, "trace") && !sel->any)
		rc = pl_inputs_load(in, &l, out, NULL, err);
	else
		rc = through_exporter(c, in, &l, sel, out, err);
	if (rc >= 0 && c->salvage && !l.events)
		rc = pl_fail(err, PL_EDATA, "%s: 0 events kept: no event of it is whole",
			     pl_inputs_name(&in->v[0]));
	if (rc >= 0) {
		rc = pl_out_close(out, err);
		out = NULL;
	}
	if (rc >= 0)
		pl_say(&c->c.log, PL_LOG_NOTE, "%zu input%s, %llu events in %u segment%s", l.inputs,
		       l.inputs == 1 ? "" : "s", (unsigned long long)l.events, l.segments,
		       l.segments == 1 ? "" : "s");
out:
	pl_out_abort(out);
	pl_pool_free(l.pool);
	pl_buf_fini(&line);
	return rc;
}
