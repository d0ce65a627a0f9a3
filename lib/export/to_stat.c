/*
 * The summary as a sink. It holds the needed columns of a segment until the segment ends
 * (stat_collect.c, stat_self.c). The tables come at the end of the stream (stat_print.c).
 */
#include "export/stat.h"

static int merge(struct pl_sink *sink, const struct pl_merge *m, struct pl_err *err)
{
	struct stat *s = (struct stat *)sink;

	PL_CHECK(pl_export_stat_finish_comm(s, err)); /* matches of the table before this one */
	PL_CHECK(pl_export_base_merge(sink, m, err));
	s->merged = true;
	for (uint32_t i = 0; i < m->n_groups; i++)
		s->inferred |= m->group[i].flags & PL_GROUP_INFERRED;
	return 0;
}

static void fini(struct pl_export_base *x)
{
	struct stat *s = (struct stat *)x;

	for (unsigned t = 0; t < S_TABLES; t++) {
		pl_intern_fini(&s->table[t].key);
		pl_free(s->table[t].v);
		pl_free(s->table[t].known);
	}
	for (size_t i = 0; i < s->n_ranks; i++) {
		pl_spans_fini(&s->rank[i].compute);
		pl_spans_fini(&s->rank[i].comm);
		pl_spans_fini(&s->rank[i].copy);
		pl_spans_fini(&s->rank[i].host);
		pl_spans_fini(&s->rank[i].host_comm);
	}
	pl_intern_fini(&s->names);
	pl_intern_fini(&s->hosts);
	pl_intern_fini(&s->rank_keys);
	pl_intern_fini(&s->memory_keys);
	pl_free(s->rank);
	pl_free(s->step);
	pl_free(s->comm);
	pl_free(s->sample);
	pl_free(s->memory);
}

static int finish(struct stat *s, struct pl_err *err)
{
	int rc = pl_export_stat_finish_comm(s, err);

	for (size_t i = 0; i < s->n_ranks && rc >= 0; i++)
		rc = pl_export_stat_finish_rank(&s->rank[i], err);
	return rc;
}

static void last_text(struct pl_export_base *x)
{
	if (finish((struct stat *)x, &x->t.fail) >= 0)
		pl_export_stat_text((struct stat *)x);
}

static void last_json(struct pl_export_base *x)
{
	if (finish((struct stat *)x, &x->t.fail) >= 0)
		pl_export_stat_json_text((struct stat *)x);
}

static void init(struct pl_export_base *x)
{
	x->hold.roles = PL_EXPORT_STAT_NUMBERS | PL_EXPORT_STAT_TEXTS;
	x->sink.merge = merge;
	((struct stat *)x)->world = -1;
}

#define KIND(write_last)                                                                           \
	&(const struct pl_export_kind)                                                             \
	{                                                                                          \
		.size = sizeof(struct stat), .emit = pl_export_stat_segment, .matches = true,      \
		.init = init, .last = write_last, .fini = fini                                     \
	}

const struct pl_exporter pl_export_stat = {
	.name = "stat",
	.summary = "summary: steps, ranks, operations, kernels, copies, collectives",
	.kind = KIND(last_text),
};
const struct pl_exporter pl_export_stat_json = {
	.name = "stat-json",
	.summary = "the summary as one JSON object, paceline.stat/1",
	.kind = KIND(last_json),
};
