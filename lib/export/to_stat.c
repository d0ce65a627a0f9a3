/*
 * The summary as a sink: copies the few columns that it needs (40 bytes an event) and leaves the
 * rest to the end of each segment (stat_collect.c, stat_self.c) and of the stream (stat_print.c).
 */
#include <string.h>

#include "export/stat.h"

static int copy_fixed(struct stat *s, const struct pl_batch *b, struct pl_err *err)
{
	size_t n = s->n + b->n;

	if (!b->n)
		return 0;
	if (n >= PL_NONE)
		return pl_fail(err, PL_ELIMIT, "more than %u events in a segment", PL_NONE);
	PL_CHECK(pl_grow(&s->kind, &s->cap_kind, n, sizeof(*s->kind), err));
	PL_CHECK(pl_grow(&s->track, &s->cap_track, n, sizeof(*s->track), err));
	PL_CHECK(pl_grow(&s->name, &s->cap_name, n, sizeof(*s->name), err));
	PL_CHECK(pl_grow(&s->ts, &s->cap_ts, n, sizeof(*s->ts), err));
	PL_CHECK(pl_grow(&s->dur, &s->cap_dur, n, sizeof(*s->dur), err));
	PL_CHECK(pl_grow(&s->bytes, &s->cap_bytes, n, sizeof(*s->bytes), err));
	memcpy(s->kind + s->n, b->kind, b->n * sizeof(*s->kind));
	memcpy(s->track + s->n, b->track, b->n * sizeof(*s->track));
	memcpy(s->name + s->n, b->name, b->n * sizeof(*s->name));
	memcpy(s->ts + s->n, b->ts, b->n * sizeof(*s->ts));
	memcpy(s->dur + s->n, b->dur, b->n * sizeof(*s->dur));
	memset(s->bytes + s->n, 0xff, b->n * sizeof(*s->bytes)); /* -1 */
	return 0;
}

/* A record for each communication and memory event of the batch; index[row]: its number. */
static int make_records(struct stat *s, const struct pl_batch *b, uint32_t *index,
			struct pl_err *err)
{
	for (uint32_t i = 0; i < b->n; i++) {
		uint32_t event = (uint32_t)(s->n + i);

		if (pl_trace_kind_is_comm(b->kind[i])) {
			PL_CHECK(pl_grow(&s->comm, &s->cap_comm, s->n_comm + 1, sizeof(*s->comm),
					 err));
			index[i] = (uint32_t)s->n_comm;
			s->comm[s->n_comm++] = (struct stat_comm){ .coll = PL_NONE,
								   .group = PL_NONE,
								   .dtype = PL_NONE,
								   .bytes = -1,
								   .size = -1,
								   .elements = -1,
								   .out_elements = -1,
								   .event = event,
								   .ordinal = b->first + i };
		} else if (b->kind[i] == PL_K_MEMORY) {
			PL_CHECK(pl_grow(&s->mem, &s->cap_mem, s->n_mem + 1, sizeof(*s->mem), err));
			index[i] = (uint32_t)s->n_mem;
			s->mem[s->n_mem++] = (struct stat_mem){ event,	   INT64_MIN, INT64_MIN,
								INT64_MIN, INT64_MIN, INT64_MIN };
		}
	}
	return 0;
}

/* Where a value of this role goes; NULL: nowhere. */
static int64_t *memory_slot(struct stat_mem *m, unsigned role)
{
	switch (role) {
	case PL_R_BYTES:
	case PL_R_ALLOC:
		return &m->bytes;
	case PL_R_ALLOCATED:
		return &m->total;
	case PL_R_RESERVED:
		return &m->reserved;
	case PL_R_DEVICE_TYPE:
		return &m->type;
	case PL_R_DEVICE:
		return &m->device;
	default:
		return NULL;
	}
}

static void comm_value(struct stat_comm *c, const struct pl_col *col, int64_t v)
{
	bool text = col->type == PL_V_STR || col->type == PL_V_JSON;

	if (col->role == PL_R_BYTES && !text)
		c->bytes = v;
	else if (col->role == PL_R_COLL && text)
		c->coll = (pl_id)v;
	else if (col->role == PL_R_GROUP && text)
		c->group = (pl_id)v;
	else if (col->role == PL_R_SIZE)
		c->size = v;
	else if (col->role == PL_R_ELEMENTS)
		c->elements = v;
	else if (col->role == PL_R_ELEMENTS_OUT)
		c->out_elements = v;
	else if (col->role == PL_R_DTYPE)
		c->dtype = (pl_id)v;
}

static int take_column(struct stat *s, const struct pl_batch *b, const struct pl_col *col,
		       const uint32_t *index, struct pl_err *err)
{
	bool number = col->type == PL_V_INT || col->type == PL_V_BOOL;
	bool steps = col->role == PL_R_STEP && col->type == PL_V_INT;
	int64_t *slot;

	if (col->role == PL_R_ARG || (col->role == PL_R_STEP && !steps))
		return 0;
	for (uint32_t k = 0; k < col->n; k++) {
		uint32_t i = col->row[k];

		if (steps && b->kind[i] == PL_K_STEP) {
			PL_CHECK(pl_grow(&s->number, &s->cap_number, s->n_number + 1,
					 sizeof(*s->number), err));
			s->number[s->n_number++] =
				(struct stat_number){ (uint32_t)(s->n + i), col->val[k] };
		} else if (index[i] == PL_NONE) {
			if (col->role == PL_R_BYTES && number)
				s->bytes[s->n + i] = col->val[k];
		} else if (b->kind[i] == PL_K_MEMORY) {
			slot = memory_slot(&s->mem[index[i]], col->role);
			if (slot && number)
				*slot = col->val[k];
		} else {
			comm_value(&s->comm[index[i]], col, col->val[k]);
		}
	}
	return 0;
}

static int batch(struct pl_sink *sink, struct pl_segment *seg, struct pl_batch *b,
		 struct pl_err *err)
{
	struct stat *s = (struct stat *)sink;
	uint32_t *index = NULL;
	int rc;

	(void)seg;
	PL_TRY(copy_fixed(s, b, err));
	PL_TRY(pl_alloc(&index, (size_t)b->n + 1, sizeof(*index), err));
	memset(index, 0xff, ((size_t)b->n + 1) * sizeof(*index));
	PL_TRY(make_records(s, b, index, err));
	for (uint32_t c = 0; c < b->n_cols; c++)
		PL_TRY(take_column(s, b, &b->col[c], index, err));
	s->n += b->n;
out:
	pl_free(index);
	return rc;
}

static int emit(struct pl_export_base *x, struct pl_segment *seg, struct pl_err *err)
{
	return pl_export_stat_segment((struct stat *)x, seg, err);
}

static int merge(struct pl_sink *sink, const struct pl_merge *m, struct pl_err *err)
{
	struct stat *s = (struct stat *)sink;

	PL_CHECK(pl_export_stat_finish_comm(s, err)); /* matches of the table before this one */
	PL_CHECK(pl_export_base_merge(sink, m, err));
	s->merged = true;
	for (uint32_t i = 0; i < m->n_groups; i++)
		s->inferred |= m->group[i].flags & PL_GROUP_INFERRED;
	pl_free(s->member);
	s->member = NULL;
	return pl_export_members_build(m, &s->member, &s->n_members, err);
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
	pl_free(s->member);
	pl_free(s->kind);
	pl_free(s->track);
	pl_free(s->name);
	pl_free(s->ts);
	pl_free(s->dur);
	pl_free(s->bytes);
	pl_free(s->number);
	pl_free(s->mem);
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

static struct pl_sink *stat_open(struct pl_out *out, const struct pl_export_opts *o,
				 void (*last)(struct pl_export_base *x), struct pl_err *err)
{
	struct stat *s = pl_export_base_open(sizeof(*s), out, o, emit, err);

	if (!s)
		return NULL;
	s->x.sink.batch = batch;
	s->x.sink.merge = merge;
	s->x.last = last;
	s->x.fini = fini;
	s->world = -1;
	return &s->x.sink;
}

static struct pl_sink *text_open(struct pl_out *out, const struct pl_export_opts *o,
				 struct pl_err *err)
{
	return stat_open(out, o, last_text, err);
}

static struct pl_sink *json_open(struct pl_out *out, const struct pl_export_opts *o,
				 struct pl_err *err)
{
	return stat_open(out, o, last_json, err);
}

const struct pl_exporter pl_export_stat = {
	.name = "stat",
	.summary = "summary: steps, ranks, operations, kernels, copies, collectives",
	.open = text_open,
	.close = pl_export_base_close,
	.abort = pl_export_base_abort,
};
const struct pl_exporter pl_export_stat_json = {
	.name = "stat-json",
	.summary = "the summary as one JSON object, paceline.stat/1",
	.open = json_open,
	.close = pl_export_base_close,
	.abort = pl_export_base_abort,
};
