/*
 * The sums of the summary, made when a segment is complete, because its tracks are known only then:
 * sums by name, and for each rank the spans in which its device computed, communicated and copied.
 * Spans are united by sorting, O(n log n), so memory follows the number of gaps.
 */
#include "export/stat.h"

static int add_all(struct pl_spans *to, const struct pl_spans *from, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; rc >= 0 && i < from->n; i++)
		rc = pl_spans_add(to, 0, from->v[i].start, from->v[i].end, err);
	return rc;
}

int pl_export_stat_finish_rank(struct stat_rank *r, struct pl_err *err)
{
	/* without a device, host operations are the computation */
	struct pl_spans *compute = r->device ? &r->compute : &r->host;
	struct pl_spans *comm = r->device ? &r->comm : &r->host_comm;
	struct pl_spans all = { 0 };
	int rc;

	pl_spans_unite(compute);
	pl_spans_unite(comm);
	pl_spans_unite(&r->copy);
	r->compute_ns = pl_spans_length(compute);
	r->comm_ns = pl_spans_length(comm);
	r->copy_ns = pl_spans_length(&r->copy);
	r->overlapped_ns = pl_spans_overlap(comm, compute);
	r->exposed_ns = r->comm_ns - r->overlapped_ns;
	PL_TRY(add_all(&all, compute, err));
	PL_TRY(add_all(&all, comm, err));
	PL_TRY(add_all(&all, &r->copy, err));
	pl_spans_unite(&all);
	r->busy = pl_spans_length(&all);
out:
	pl_spans_fini(&all);
	return rc;
}

/* ---- sums ------------------------------------------------------------------------------------ */

struct stat_agg *pl_export_stat_sum(struct stat *s, const struct pl_segment *seg, unsigned table,
				    uint8_t kind, pl_id name, struct pl_err *err)
{
	struct stat_table *t = &s->table[table];
	uint32_t *known = name < seg->str.n ? &t->known[name] : NULL;
	struct pl_buf key = { 0 };
	size_t n, before = t->key.n;
	const char *text = pl_trace_segment_str(seg, name, &n);
	pl_id id = 0;
	int rc;

	if (known && *known && t->v[*known - 1].kind == kind)
		return &t->v[*known - 1];
	PL_TRY(pl_buf_put(&key, &kind, 1, err));
	PL_TRY(pl_buf_put(&key, text, n, err));
	PL_TRY(pl_intern_add(&t->key, (const char *)key.p, key.n, &id, err));
	PL_TRY(pl_grow(&t->v, &t->cap, (size_t)id + 1, sizeof(*t->v), err));
	if (id >= before) {
		memset(&t->v[id], 0, sizeof(t->v[id]));
		t->v[id].kind = kind;
		PL_TRY(pl_intern_add(&s->names, text, n, &t->v[id].name, err));
	}
	if (known)
		*known = id + 1;
out:
	pl_buf_fini(&key);
	return rc < 0 ? NULL : &t->v[id];
}

static int find_rank(struct stat *s, int64_t key, int32_t number, size_t *index, struct pl_err *err)
{
	const int64_t both[] = { key, number };
	size_t before = s->rank_keys.n;
	pl_id id;
	int rc;

	PL_TRY(pl_grow(&s->rank, &s->cap_ranks, before + 1, sizeof(*s->rank), err));
	PL_TRY(pl_intern_add(&s->rank_keys, (const char *)both, sizeof(both), &id, err));
	*index = id;
	if (id < before)
		goto out;
	s->rank[id] = (struct stat_rank){ .key = key,
					  .rank = key < 0 ? -1 : (int32_t)key,
					  .number = number,
					  .t0 = INT64_MAX,
					  .t1 = INT64_MIN };
	s->n_ranks++;
out:
	return rc;
}

static bool on_device(const struct pl_track *k)
{
	return k->type != PL_T_THREAD && k->type != PL_T_OTHER;
}

/* The rank and class to which the events of a track are added. */
struct place {
	size_t rank; /* SIZE_MAX: no rank */
	size_t own;  /* its device, if the rank has several; else SIZE_MAX */
	bool device;
};

/* An event with its values by role; INT64_MIN: none. Texts are strings of the segment. */
struct row {
	uint8_t kind;
	pl_id name;
	pl_ns t0, t1, dur; /* on the common clock; dur -1: none */
	int64_t rank;	   /* key of its rank, -1 none */
	uint64_t ordinal;
	int64_t v[PL_R_COUNT_]; /* only for kinds in HAS_VALUES */
};
#define KIND(name) ((uint64_t)1 << PL_K_##name)
#define HAS_VALUES                                                                                 \
	(KIND(KERNEL) | KIND(COPY) | KIND(SET) | KIND(COLLECTIVE) | KIND(SEND) | KIND(RECV) |      \
	 KIND(MEMORY) | KIND(STEP))

static void read_values(const struct pl_batch *b, const struct pl_row_values *r, uint32_t i,
			int64_t v[PL_R_COUNT_])
{
	for (unsigned k = 0; k < PL_R_COUNT_; k++)
		v[k] = INT64_MIN;
	for (uint32_t e = r->off[i]; e < r->off[i + 1]; e++) {
		const struct pl_col *c = &b->col[r->ent[e].col];
		bool text = c->type == PL_V_STR || c->type == PL_V_JSON;
		bool number = c->type == PL_V_INT || c->type == PL_V_BOOL;

		if ((text && PL_EXPORT_STAT_TEXTS & PL_ROLE_BIT(c->role)) ||
		    (number && PL_EXPORT_STAT_NUMBERS & PL_ROLE_BIT(c->role)))
			v[c->role] = c->val[r->ent[e].k];
	}
}

static const char *text_of(const struct pl_segment *seg, const struct row *r, unsigned role,
			   size_t *n)
{
	return pl_trace_segment_str(seg, r->v[role] < 0 ? PL_NONE : (pl_id)r->v[role], n);
}

static int add_sum(struct stat *s, const struct pl_segment *seg, unsigned table,
		   const struct row *row, struct pl_err *err)
{
	struct stat_agg *a = pl_export_stat_sum(s, seg, table, row->kind, row->name, err);

	if (!a)
		return PL_ENOMEM;
	a->n++;
	a->total = pl_add_sat(a->total, row->dur);
	a->max = pl_max_i64(a->max, row->dur);
	if (row->v[PL_R_BYTES] >= 0) {
		a->bytes = pl_add_sat(a->bytes, row->v[PL_R_BYTES]);
		a->sized_ns = pl_add_sat(a->sized_ns, row->dur);
	}
	return 0;
}

static struct pl_spans *spans_of(struct stat_rank *r, bool device, uint8_t kind)
{
	bool comm = pl_trace_kind_is_comm(kind);

	if (!device)
		return comm ? &r->host_comm : kind == PL_K_HOST_OP ? &r->host : NULL;
	if (comm || kind == PL_K_KERNEL)
		return comm ? &r->comm : &r->compute;
	return kind == PL_K_COPY || kind == PL_K_SET ? &r->copy : NULL;
}

static int add_time(struct stat_rank *r, const struct place *p, const struct row *row,
		    struct pl_err *err)
{
	struct pl_spans *spans = spans_of(r, p->device, row->kind);

	r->t0 = pl_min_i64(r->t0, row->t0);
	r->t1 = pl_max_i64(r->t1, row->t1);
	if (row->dur < 0 || !spans)
		return 0;
	r->device |= p->device;
	return pl_spans_add(spans, 0, row->t0, row->t1, err);
}

static int add_event(struct stat *s, const struct pl_segment *seg, const struct place *p,
		     const struct row *row, struct pl_err *err)
{
	bool comm = pl_trace_kind_is_comm(row->kind);
	unsigned k = row->kind;

	if (p->rank == SIZE_MAX || k == PL_K_FLOW_IN || k == PL_K_FLOW_OUT)
		return 0;
	PL_CHECK(add_time(&s->rank[p->rank], p, row, err));
	if (p->own != SIZE_MAX)
		PL_CHECK(add_time(&s->rank[p->own], p, row, err));
	if (row->dur < 0 || !p->device)
		return 0;
	if (comm || k == PL_K_KERNEL)
		return add_sum(s, seg, S_KERNEL, row, err);
	return k == PL_K_COPY || k == PL_K_SET ? add_sum(s, seg, S_COPY, row, err) : 0;
}

/* ---- communication --------------------------------------------------------------------------- */

/* In nccl-tests, "size" is the larger side: received by a gather, sent by a scatter. */
static int64_t size_of(const struct pl_segment *seg, const struct row *r)
{
	int64_t n = pl_max_i64(r->v[PL_R_ELEMENTS], r->v[PL_R_ELEMENTS_OUT]), unit;
	size_t len;
	const char *dtype = text_of(seg, r, PL_R_DTYPE, &len);

	unit = pl_trace_dtype(dtype, len, NULL);
	return n > 0 && unit > 0 && n < INT64_MAX / 16 ? n * unit
						       : pl_max_i64(r->v[PL_R_BYTES], -1);
}

static int add_comm(struct stat *s, const struct pl_segment *seg, const struct row *r,
		    struct pl_err *err)
{
	struct stat_comm c = { .group = PL_NONE,
			       .bytes = size_of(seg, r),
			       .size = r->v[PL_R_SIZE],
			       .t0 = r->t0,
			       .t1 = r->t1,
			       .rank = r->rank,
			       .match = pl_export_match(&s->x, r->ordinal),
			       .p2p = r->kind != PL_K_COLLECTIVE };
	size_t n;
	const char *text = text_of(seg, r, PL_R_COLL, &n);

	if (r->v[PL_R_COLL] < 0) {
		text = pl_trace_segment_str(seg, r->name, &n);
		text = pl_trace_coll_from_name(text, n);
		if (!text)
			text = pl_trace_kind_name(r->kind);
		n = strlen(text);
	}
	PL_CHECK(pl_intern_add(&s->names, text, n, &c.coll, err));
	text = text_of(seg, r, PL_R_GROUP, &n);
	if (r->v[PL_R_GROUP] >= 0)
		PL_CHECK(pl_intern_add(&s->names, text, n, &c.group, err));
	return pl_append(&s->comm, &s->n_comm, &s->cap_comm, &c, sizeof(c), err);
}

PL_COMPARATOR(by_group, struct stat_comm, match, group, rank);

static int add_sample(struct stat *s, const struct stat_comm *c, int64_t n, int64_t ns,
		      bool recorded, struct pl_err *err)
{
	const struct stat_sample x = { c->coll, c->bytes, n, pl_max_i64(ns, 0), recorded };

	return pl_append(&s->sample, &s->n_samples, &s->cap_samples, &x, sizeof(x), err);
}

/* All members of one match: what passed between the last arrival and the end is the transfer. */
static int add_match(struct stat *s, const struct stat_comm *c, size_t n, struct pl_err *err)
{
	const struct pl_match *m = &s->x.merge.m.match[c->match];
	struct stat_comm all = *c;
	int64_t size =
		m->group < s->x.merge.m.n_groups ? (int64_t)s->x.merge.m.group[m->group].n : 2;
	bool whole = n == m->n && n > 1 && !(m->flags & PL_MATCH_MISSING);
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		if (!whole) {
			PL_TRY(add_sample(s, &c[i], size, c[i].t1 - c[i].t0, true, err));
			continue;
		}
		all.t0 = pl_max_i64(all.t0, c[i].t0);
		all.t1 = pl_max_i64(all.t1, c[i].t1);
		all.bytes = pl_max_i64(all.bytes, c[i].bytes);
	}
	if (!whole)
		goto out;
	if (m->flags & PL_MATCH_P2P)
		PL_TRY(pl_intern_add(&s->names, "sendrecv", 8, &all.coll, err));
	rc = add_sample(s, &all, size, pl_sub_sat(all.t1, all.t0), false, err);
out:
	return rc;
}

int pl_export_stat_finish_comm(struct stat *s, struct pl_err *err)
{
	pl_sort(s->comm, s->n_comm, sizeof(*s->comm), by_group);
	for (size_t i = 0, j; i < s->n_comm; i = j) {
		const struct stat_comm *c = &s->comm[i];
		int64_t ranks = 1, size;

		for (j = i + 1; j < s->n_comm && s->comm[j].match == c->match &&
				(c->match != PL_NONE || s->comm[j].group == c->group);
		     j++)
			ranks += s->comm[j].rank != s->comm[j - 1].rank;
		if (c->match != PL_NONE) {
			PL_CHECK(add_match(s, c, j - i, err));
			continue;
		}
		/* the whole job where the file says its size, else the ranks that were seen */
		size = ranks > 1 && c->group != PL_NONE ? ranks : s->world > 0 ? s->world : ranks;
		for (size_t k = i; k < j; k++) {
			const struct stat_comm *e = &s->comm[k];
			int64_t n = e->size > 0 ? e->size : e->p2p ? 2 : size;

			PL_CHECK(add_sample(s, e, n, e->t1 - e->t0, true, err));
		}
	}
	s->n_comm = 0;
	return 0;
}

/* ---- steps, memory --------------------------------------------------------------------------- */

static int add_step(struct stat *s, const struct pl_segment *seg, const struct row *r,
		    struct pl_err *err)
{
	int64_t v = r->v[PL_R_STEP];

	PL_CHECK(pl_grow(&s->step, &s->cap_steps, s->n_steps + 1, sizeof(*s->step), err));
	s->step[s->n_steps++] =
		(struct stat_step){ v != INT64_MIN ? v : pl_trace_step_number(seg, r->name), r->dur,
				    r->rank };
	return 0;
}

static int find_memory(struct stat *s, const int64_t key[3], struct stat_memory **out,
		       struct pl_err *err)
{
	size_t before = s->memory_keys.n;
	pl_id id;
	int rc;

	PL_TRY(pl_grow(&s->memory, &s->cap_memory, before + 1, sizeof(*s->memory), err));
	PL_TRY(pl_intern_add(&s->memory_keys, (const char *)key, 3 * sizeof(*key), &id, err));
	*out = &s->memory[id];
	if (id < before)
		goto out;
	**out = (struct stat_memory){ .rank = key[0],
				      .type = key[1],
				      .device = key[2],
				      .peak = INT64_MIN,
				      .reserved = INT64_MIN };
	s->n_memory++;
out:
	return rc;
}

static int add_memory(struct stat *s, const struct row *r, struct pl_err *err)
{
	int64_t key[] = { r->rank < 0 ? -1 : r->rank, r->v[PL_R_DEVICE_TYPE], r->v[PL_R_DEVICE] };
	int64_t bytes = r->v[r->v[PL_R_ALLOC] != INT64_MIN ? PL_R_ALLOC : PL_R_BYTES];
	struct stat_memory *k;

	PL_CHECK(find_memory(s, key, &k, err));
	if (bytes > 0) {
		k->allocs++;
		k->allocated = pl_add_sat(k->allocated, bytes);
	} else if (bytes != INT64_MIN && bytes < 0) {
		k->frees++;
		k->freed = pl_sub_sat(k->freed, bytes);
	}
	k->peak = pl_max_i64(k->peak, r->v[PL_R_ALLOCATED]);
	k->reserved = pl_max_i64(k->reserved, r->v[PL_R_RESERVED]);
	return 0;
}

/* ---- the segment ----------------------------------------------------------------------------- */

static int add_row(struct stat *s, const struct pl_segment *seg, const struct place *place,
		   const struct pl_batch *b, uint32_t i, struct pl_err *err)
{
	const struct place *p = b->track[i] < seg->n_tracks ? &place[b->track[i]] : NULL;
	struct row r;

	r.kind = b->kind[i];
	r.name = b->name[i];
	r.t0 = pl_export_start(&s->x, seg, b, i);
	r.dur = b->dur[i];
	r.rank = p && p->rank != SIZE_MAX ? s->rank[p->rank].key : -1;
	r.ordinal = b->first + i;
	r.t1 = pl_add_sat(r.t0, pl_max_i64(r.dur, 0));
	s->kind_n[r.kind]++;
	s->kind_ns[r.kind] = pl_add_sat(s->kind_ns[r.kind], pl_max_i64(r.dur, 0));
	if (r.kind < 64 && HAS_VALUES >> r.kind & 1)
		read_values(b, &s->x.rows, i, r.v);
	if (p)
		PL_CHECK(add_event(s, seg, p, &r, err));
	if (r.kind == PL_K_MEMORY)
		return add_memory(s, &r, err);
	if (!p || r.dur < 0)
		return 0;
	if (pl_trace_kind_is_comm(r.kind))
		return add_comm(s, seg, &r, err);
	return r.kind == PL_K_STEP ? add_step(s, seg, &r, err) : 0;
}

static int find_places(struct stat *s, const struct pl_segment *seg, struct place *place,
		       struct pl_err *err)
{
	bool any = false; /* a track that is more than a list of ranges */
	bool several = false;
	int64_t key;
	pl_id id;

	for (uint32_t i = 0; i < seg->n_tracks; i++)
		any |= seg->track[i].type != PL_T_OTHER;
	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		const struct pl_track *k = &seg->track[i];

		if (!i || k->rank != seg->track[i - 1].rank)
			several = pl_trace_segment_devices(seg, k->rank);
		place[i].device = on_device(k);
		place[i].rank = place[i].own = SIZE_MAX;
		if (k->host < seg->str.n)
			PL_CHECK(pl_intern_add(&s->hosts, seg->str.str[k->host],
					       seg->str.len[k->host], &id, err));
		if (any && k->type == PL_T_OTHER && k->rank < 0)
			continue;
		key = k->rank >= 0 ? k->rank : -1 - (int64_t)s->x.merge.n_segs;
		PL_CHECK(find_rank(s, key, -1, &place[i].rank, err));
		if (several && on_device(k) && k->device >= 0)
			PL_CHECK(find_rank(s, key, k->device, &place[i].own, err));
	}
	return 0;
}

static int find_world(struct stat *s, const struct pl_segment *seg, struct pl_err *err)
{
	struct pl_trace_header h;

	PL_CHECK(pl_trace_header_read(seg, false, &h, err));
	s->world = pl_max_i64(s->world, h.world);
	pl_trace_header_fini(&h);
	return 0;
}

/* Unites the spans. Returns at once if no span was added since the last call. */
static void tidy(struct stat_rank *r)
{
	pl_spans_unite(&r->compute);
	pl_spans_unite(&r->comm);
	pl_spans_unite(&r->copy);
	pl_spans_unite(&r->host);
	pl_spans_unite(&r->host_comm);
}

int pl_export_stat_segment(struct pl_export_base *x, struct pl_segment *seg, struct pl_err *err)
{
	struct stat *s = (struct stat *)x;
	struct place *place = NULL;
	int rc;

	PL_TRY(pl_alloc(&place, (size_t)seg->n_tracks + 1, sizeof(*place), err));
	for (unsigned t = 0; t < S_TABLES; t++) {
		pl_free(s->table[t].known);
		s->table[t].known = NULL;
		PL_TRY(pl_alloc(&s->table[t].known, seg->str.n + 1, sizeof(uint32_t), err));
	}
	PL_TRY(find_world(s, seg, err));
	PL_TRY(find_places(s, seg, place, err));
	for (size_t j = 0; j < s->x.hold.n; j++) {
		const struct pl_batch *b = &s->x.hold.b[j];

		PL_TRY(pl_trace_row_values_build(&s->x.rows, b, err));
		for (uint32_t i = 0; i < b->n; i++)
			PL_TRY(add_row(s, seg, place, b, i, err));
		s->n_events += b->n;
	}
	PL_TRY(pl_export_stat_self_times(s, seg, err));
	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		if (place[i].rank != SIZE_MAX)
			tidy(&s->rank[place[i].rank]);
		if (place[i].own != SIZE_MAX)
			tidy(&s->rank[place[i].own]);
	}
out:
	pl_free(place);
	return rc;
}
