/*
 * The complete text form of a trace: every segment, member, track, event, value with its role and
 * type, as stored: times without base and correction, numbers as written, strings as JSON.
 */
#include "export/internal.h"

struct text {
	struct pl_export_base x; /* first */
	uint32_t n_merges;
};

static void put_id(struct pl_writer *t, const struct pl_segment *s, const char *key, pl_id id)
{
	if (id == PL_NONE)
		return;
	pl_write_text(t, key);
	pl_export_string_json(t, s, id);
}

static void put_num(struct pl_writer *t, const char *key, int64_t v, int64_t none)
{
	if (v == none)
		return;
	pl_write_text(t, key);
	pl_write_int(t, v);
}

static void put_real(struct pl_writer *t, const char *key, double v)
{
	pl_write_format(t, "%s%.17g", key, v);
}

static void put_segment(struct text *x, const struct pl_segment *s)
{
	struct pl_writer *t = &x->x.t;

	put_num(t, "segment ", x->x.merge.n_segs - 1, -1);
	pl_write_text(t, " source=");
	pl_write_json_text(t, s->source);
	pl_write_text(t, " format=");
	pl_write_json_text(t, s->format);
	put_num(t, " base=", s->base_ns, INT64_MIN);
	pl_write_char(t, '\n');
	for (uint32_t i = 0; i < s->n_meta; i++) {
		size_t n;
		const char *p = pl_trace_segment_str(s, s->meta[i].value, &n);

		put_id(t, s, "meta ", s->meta[i].key);
		pl_write_char(t, ' ');
		pl_write_json(t, p, n);
		pl_write_char(t, '\n');
	}
}

static void put_track(struct pl_writer *t, const struct pl_segment *s, uint32_t i)
{
	static const char *const coord[PL_COORDS] = { " dp=", " pp=", " tp=", " ep=" };
	const struct pl_track *k = &s->track[i];

	put_num(t, "track ", i, -1);
	pl_write_char(t, ' ');
	pl_write_text(t, pl_trace_track_type_name(k->type));
	put_num(t, " rank=", k->rank, -1);
	put_id(t, s, " host=", k->host);
	put_id(t, s, " pid=", k->pid);
	put_id(t, s, " tid=", k->tid);
	put_num(t, " flags=", k->flags, 0);
	put_num(t, " device=", k->device, -1);
	put_num(t, " stream=", k->stream, -1);
	for (unsigned j = 0; j < PL_COORDS; j++)
		put_num(t, coord[j], k->coord[j], -1);
	put_id(t, s, " name=", k->name);
	put_id(t, s, " process=", k->process);
	put_id(t, s, " labels=", k->labels);
	put_num(t, " sort=", k->sort, 0);
	put_num(t, " psort=", k->psort, 0);
	pl_write_char(t, '\n');
}

/* " role:key=value"; arguments are " key=value". */
static void put_value(struct pl_writer *t, const struct pl_segment *s, const struct pl_col *c,
		      uint32_t k)
{
	pl_write_char(t, ' ');
	if (c->role != PL_R_ARG) {
		pl_write_text(t, pl_trace_role_name(c->role));
		if (c->key != PL_NONE)
			pl_write_char(t, ':');
	}
	if (c->key != PL_NONE)
		pl_export_string_json(t, s, c->key);
	pl_write_char(t, '=');
	if (c->type == PL_V_JSON) /* the text 'x' differs from the string "x" */
		pl_write_text(t, "json:");
	pl_export_value_json(t, s, c, k);
}

static void put_event(struct pl_export_base *x, const struct pl_segment *s,
		      const struct pl_batch *b, uint32_t i)
{
	const struct pl_row_values *r = &x->rows;
	struct pl_writer *t = &x->t;

	put_num(t, "event ", (int64_t)(b->first + i), -1);
	pl_write_char(t, ' ');
	if (b->kind[i] < PL_K_COUNT_)
		pl_write_text(t, pl_trace_kind_name(b->kind[i]));
	else
		put_num(t, "kind-", b->kind[i], -1);
	put_num(t, " track=", b->track[i], PL_NONE);
	put_num(t, " ts=", b->ts[i], INT64_MIN);
	put_num(t, " dur=", b->dur[i], -1);
	put_id(t, s, " name=", b->name[i]);
	for (uint32_t e = r->off[i]; e < r->off[i + 1]; e++)
		put_value(t, s, &b->col[r->ent[e].col], r->ent[e].k);
	pl_write_char(t, '\n');
}

static int emit(struct pl_export_base *base, struct pl_segment *seg, struct pl_err *err)
{
	put_segment((struct text *)base, seg);
	for (uint32_t i = 0; i < seg->n_tracks; i++)
		put_track(&base->t, seg, i);
	return pl_export_base_events(base, seg, put_event, err);
}

static void put_groups(struct pl_writer *t, const struct pl_merge *m)
{
	for (uint32_t i = 0; i < m->n_groups; i++) {
		const struct pl_group *g = &m->group[i];

		put_num(t, "group ", i, -1);
		pl_write_text(t, " name=");
		pl_write_json_text(t, g->name);
		pl_write_text(t, g->flags & PL_GROUP_INFERRED ? " inferred ranks=" : " ranks=");
		for (uint32_t j = 0; j < g->n; j++) {
			if (j)
				pl_write_char(t, ',');
			pl_write_int(t, g->rank[j]);
		}
		pl_write_char(t, '\n');
	}
	for (uint32_t i = 0; i < m->n_matches; i++) {
		const struct pl_match *a = &m->match[i];

		put_num(t, "match ", i, -1);
		put_num(t, " group=", a->group, PL_NONE);
		pl_write_text(t, a->flags & PL_MATCH_MISSING ? " missing" : "");
		pl_write_text(t, a->flags & PL_MATCH_INFERRED ? " inferred" : "");
		pl_write_text(t, a->flags & PL_MATCH_P2P ? " p2p" : "");
		pl_write_text(t, a->flags & PL_MATCH_MESSAGE ? " message" : "");
		pl_write_text(t, " members=");
		for (uint32_t j = a->first; j < a->first + a->n && j < m->n_members; j++) {
			if (j > a->first)
				pl_write_char(t, ',');
			pl_write_int(t, m->member[j].segment);
			pl_write_char(t, ':');
			pl_write_int(t, m->member[j].event);
		}
		pl_write_char(t, '\n');
	}
}

static int on_merge(struct pl_export_base *base, const struct pl_merge *m, struct pl_err *err)
{
	struct pl_writer *t = &base->t;

	(void)err;
	put_num(t, "merge ", ((struct text *)base)->n_merges++, -1);
	pl_write_char(t, '\n');
	for (uint32_t i = 0; i < m->n_clocks; i++) {
		const struct pl_clock *c = &m->clock[i];

		put_num(t, "clock ", i, -1);
		if (c->host) {
			pl_write_text(t, " host=");
			pl_write_json_text(t, c->host);
		}
		put_num(t, " offset=", c->offset_ns, INT64_MIN);
		put_num(t, " ci=", c->offset_ci_ns, INT64_MIN);
		put_real(t, " drift_ppm=", c->drift_ppm);
		put_real(t, " drift_ci_ppm=", c->drift_ci_ppm);
		put_num(t, " ref=", c->ref_ns, INT64_MIN);
		put_num(t, " residual_p50=", c->residual_p50_ns, INT64_MIN);
		put_num(t, " residual_p95=", c->residual_p95_ns, INT64_MIN);
		put_num(t, " residual_max=", c->residual_max_ns, INT64_MIN);
		pl_write_char(t, '\n');
	}
	for (uint32_t i = 0; i < m->n_uses; i++) {
		put_num(t, "use segment=", m->use[i].segment, -1);
		put_num(t, " rank=", m->use[i].rank, INT64_MIN);
		put_num(t, " clock=", m->use[i].clock, -1);
		pl_write_char(t, '\n');
	}
	put_groups(t, m);
	return pl_write_check(t, err);
}

const struct pl_exporter pl_export_text = {
	.name = "text",
	.summary = "everything that is stored, readable",
	.kind = &(const struct pl_export_kind){ .size = sizeof(struct text),
						.emit = emit,
						.on_merge = on_merge },
};
