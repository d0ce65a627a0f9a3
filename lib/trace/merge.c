/*
 * The merge segment of trace(5): clocks, which rank uses which, groups, matches, members.
 *
 * Writing cuts long tables into blocks. Reading appends block by block, so memory follows the bytes
 * that arrive. At the end, the totals of the first block show whether rows are missing.
 */
#include <math.h>

#include "trace/internal.h"

/* ---- the five tables ------------------------------------------------------------------------- */

#define FIELD(coding, member) PL_FIELD(coding, struct pl_clock, member)
static const struct pl_field clock_fields[] = {
	FIELD(MAYBE_TEXT, host),     FIELD(I64, offset_ns),	  FIELD(I64, offset_ci_ns),
	FIELD(F64, drift_ppm),	     FIELD(F64, drift_ci_ppm),	  FIELD(I64, ref_ns),
	FIELD(I64, residual_p50_ns), FIELD(I64, residual_p95_ns), FIELD(I64, residual_max_ns),
};
#undef FIELD

static int put_clock(struct pl_buf *b, const void *row, const void *arg, struct pl_err *err)
{
	const struct pl_clock *k = row;

	(void)b;
	(void)arg;
	if (!isfinite(k->drift_ppm) || !isfinite(k->drift_ci_ppm))
		return pl_fail(err, PL_EINTERNAL, "the drift of a clock is not finite");
	return 0;
}

static int get_clock(struct pl_cur *c, void *row, void *arg, struct pl_err *err)
{
	const struct pl_clock *k = row;

	(void)arg;
	(void)err;
	c->bad |= !isfinite(k->drift_ppm) || !isfinite(k->drift_ci_ppm);
	return 0;
}

static const struct pl_record clock_record = { PL_RECORD("clock", struct pl_clock, clock_fields),
					       .put_rest = put_clock, .get_rest = get_clock };

static const struct pl_field group_fields[] = { PL_FIELD(TEXT, struct pl_group, name),
						PL_FIELD(U32, struct pl_group, flags) };

static bool ascend(const uint32_t *rank, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (rank[i] <= rank[i - 1])
			return false;
	return true;
}

static int put_group(struct pl_buf *b, const void *row, const void *arg, struct pl_err *err)
{
	const struct pl_group *g = row;

	(void)arg;
	if (!ascend(g->rank, g->n))
		return pl_fail(err, PL_EINTERNAL, "ranks of group \"%s\" do not ascend",
			       g->name ? g->name : "");
	pl_io_put_varint(b, g->n);
	pl_column_put_u32(b, g->rank, g->n, true);
	return 0;
}

static int get_group(struct pl_cur *c, void *row, void *merge, struct pl_err *err)
{
	struct pl_merge_in *in = merge;
	struct pl_group *g = row;
	uint64_t n = pl_io_get_varint(c);

	if (c->bad || n > PL_TRACE_GROUP_RANKS || (in->ranks += n) > PL_TRACE_GROUP_RANKS)
		return pl_fail(err, PL_EDATA, "a group is cut short or too big");
	if (!n)
		return 0;
	PL_CHECK(pl_alloc(&g->rank, n, sizeof(*g->rank), err));
	PL_CHECK(pl_column_get_u32(c, g->rank, n, err));
	g->n = (uint32_t)n;
	if (!ascend(g->rank, g->n))
		return pl_fail(err, PL_EDATA, "ranks of a group do not ascend");
	return 0;
}

static const struct pl_record group_record = { PL_RECORD("group", struct pl_group, group_fields),
					       .put_rest = put_group, .get_rest = get_group };

/* Clocks and groups are records; in the other tables each member is a column of 32-bit numbers. */
struct column {
	size_t offset;
	bool delta; /* stored as differences */
};
static const struct column uses[] = { { offsetof(struct pl_clock_use, segment), true },
				      { offsetof(struct pl_clock_use, rank), true },
				      { offsetof(struct pl_clock_use, clock), false } };
static const struct column matches[] = { { offsetof(struct pl_match, group), false },
					 { offsetof(struct pl_match, first), true },
					 { offsetof(struct pl_match, n), false },
					 { offsetof(struct pl_match, flags), false } };
static const struct column members[] = { { offsetof(struct pl_member, segment), false },
					 { offsetof(struct pl_member, event), true } };

#define IN_MERGE(array, number)                                                                    \
	offsetof(struct pl_merge, array), offsetof(struct pl_merge, number),                       \
		sizeof(*((struct pl_merge *)NULL)->array)
static const struct table {
	uint32_t type;		    /* of its blocks */
	size_t array, number, size; /* members of struct pl_merge; size of a row */
	const struct pl_record *record;
	const struct column *column;
	size_t n_columns;
} tables[PL_MERGE_TABLES] = {
	/* in the order of the stream */
	{ PL_BLOCK_CLCK, IN_MERGE(clock, n_clocks), &clock_record, NULL, 0 },
	{ PL_BLOCK_USES, IN_MERGE(use, n_uses), NULL, uses, PL_LEN(uses) },
	{ PL_BLOCK_GRPS, IN_MERGE(group, n_groups), &group_record, NULL, 0 },
	{ PL_BLOCK_MTCH, IN_MERGE(match, n_matches), NULL, matches, PL_LEN(matches) },
	{ PL_BLOCK_MEMB, IN_MERGE(member, n_members), NULL, members, PL_LEN(members) },
};

static char *rows_of(const struct pl_merge *m, const struct table *t)
{
	char *p;

	memcpy(&p, (const char *)m + t->array, sizeof(p));
	return p;
}

static uint32_t *count_of(const struct pl_merge *m, const struct table *t)
{
	return (uint32_t *)(void *)((char *)m + t->number);
}

void pl_trace_merge_fini(struct pl_merge *m)
{
	for (uint32_t i = 0; i < m->n_clocks; i++)
		pl_free(m->clock[i].host);
	for (uint32_t i = 0; i < m->n_groups; i++) {
		pl_free(m->group[i].name);
		pl_free(m->group[i].rank);
	}
	for (size_t i = 0; i < PL_LEN(tables); i++)
		pl_free(rows_of(m, &tables[i]));
	pl_buf_fini(&m->provenance);
	memset(m, 0, sizeof(*m));
}

/* ---- a copy, and what it is asked ------------------------------------------------------------ */

/* Allocate `more` rows at the end of the table. */
static int room(struct pl_merge *m, const struct table *t, uint32_t more, struct pl_err *err)
{
	uint32_t n = *count_of(m, t);
	char *p;

	if (more > UINT32_MAX - n)
		return pl_fail(err, PL_ELIMIT, "more than %u rows in the tables of merges", n);
	p = pl_realloc(rows_of(m, t), ((size_t)n + more + 1) * t->size);
	if (!p)
		return pl_fail(err, PL_ENOMEM, "out of memory (merge)");
	memcpy((char *)m + t->array, &p, sizeof(p));
	return 0;
}

/* Copy the rows of every table behind those of `to`. They do not count yet. */
static int copy_rows(const struct pl_merge *from, struct pl_merge *to, struct pl_err *err)
{
	for (const struct table *t = tables; t < tables + PL_LEN(tables); t++) {
		uint32_t n = *count_of(from, t);

		PL_CHECK(room(to, t, n, err));
		if (n)
			memcpy(rows_of(to, t) + *count_of(to, t) * t->size, rows_of(from, t),
			       n * t->size);
	}
	return pl_buf_put(&to->provenance, from->provenance.p, from->provenance.n, err);
}

PL_COMPARATOR(by_use, struct pl_clock_use, segment, rank, clock);

int pl_trace_merge_dup(const struct pl_merge *from, struct pl_merge *to, struct pl_err *err)
{
	int rc;

	memset(to, 0, sizeof(*to));
	PL_TRY(copy_rows(from, to, err));
	for (; to->n_clocks < from->n_clocks; to->n_clocks++) {
		char **host = &to->clock[to->n_clocks].host;

		if (*host && !(*host = pl_strdup(*host)))
			PL_TRY(pl_fail(err, PL_ENOMEM, "out of memory (merge)"));
	}
	for (uint32_t i = 0; i < from->n_groups; i++) {
		const struct pl_group *g = &from->group[i];
		struct pl_group *k = &to->group[to->n_groups++];

		k->rank = NULL;
		k->name = pl_strdup(g->name ? g->name : "");
		PL_TRY(k->name ? 0 : pl_fail(err, PL_ENOMEM, "out of memory (merge)"));
		PL_TRY(pl_alloc(&k->rank, g->n + (size_t)1, sizeof(*k->rank), err));
		if (g->n)
			memcpy(k->rank, g->rank, g->n * sizeof(*k->rank));
	}
	to->n_uses = from->n_uses;
	to->n_matches = from->n_matches;
	to->n_members = from->n_members;
	pl_sort(to->use, to->n_uses, sizeof(*to->use), by_use);
	return 0;
out:
	pl_trace_merge_fini(to);
	return rc;
}

/* Index of the first use that is not before (segment, rank). */
static uint32_t first_use(const struct pl_merge *m, uint32_t segment, int32_t rank)
{
	uint32_t i = 0;

	PL_LOWER_BOUND(i, m->n_uses,
		       m->use[i].segment < segment ||
			       (m->use[i].segment == segment && m->use[i].rank < rank));
	return i;
}

const struct pl_clock *pl_trace_merge_clock(const struct pl_merge *m, uint32_t segment,
					    int32_t rank)
{
	uint32_t i = first_use(m, segment, rank);

	if (rank < 0 && (i == m->n_uses || m->use[i].segment != segment || m->use[i].rank != rank))
		i = first_use(m, segment, INT32_MIN);
	if (i == m->n_uses || m->use[i].segment != segment ||
	    (rank >= 0 && m->use[i].rank != rank) || m->use[i].clock >= m->n_clocks)
		return NULL;
	return &m->clock[m->use[i].clock];
}

pl_ns pl_trace_clock_apply(const struct pl_clock *c, pl_ns local)
{
	double move;

	if (!c)
		return local;
	if (c->drift_ppm == 0)
		return pl_sub_sat(local, c->offset_ns);
	move = c->drift_ppm * 1e-6 * (double)pl_sub_sat(local, c->ref_ns);
	if (!(fabs(move) < 9.2e18))
		move = 0;
	return pl_sub_sat(pl_sub_sat(local, c->offset_ns), (int64_t)llround(move));
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Write rows [i, i + n), column by column. v: room for n numbers. */
static void put_columns(const struct table *t, const char *rows, uint32_t n, uint32_t *v,
			struct pl_buf *b)
{
	for (size_t c = 0; c < t->n_columns; c++) {
		for (uint32_t i = 0; i < n; i++)
			memcpy(&v[i], rows + i * t->size + t->column[c].offset, sizeof(*v));
		pl_column_put_u32(b, v, n, t->column[c].delta);
	}
}

static int put_table(const struct pl_merge *m, const struct table *t, struct pl_container_writer *w,
		     struct pl_err *err)
{
	uint32_t *v = NULL, n, total = *count_of(m, t);
	struct pl_buf b = { 0 };
	int rc;

	if (t->record)
		return pl_container_writer_put_table(w, t->type, PL_TRACE_BLOCK_VERSION, t->record,
						     rows_of(m, t), total, NULL, err);
	PL_TRY(pl_alloc(&v, pl_min_size(total, PL_TRACE_TABLE_ROWS) + 1, sizeof(*v), err));
	for (uint32_t i = 0; i < total; i += n) {
		n = total - i < PL_TRACE_TABLE_ROWS ? total - i : PL_TRACE_TABLE_ROWS;
		for (;; n = (n + 1) / 2) { /* few bytes must not stand for many rows */
			b.n = 0;
			put_columns(t, rows_of(m, t) + i * t->size, n, v, &b);
			if (b.failed || n <= b.n * PL_TRACE_ROWS_PER_BYTE)
				break;
		}
		PL_TRY(pl_container_writer_put(w, t->type, PL_TRACE_BLOCK_VERSION, n, &b, err));
	}
out:
	pl_free(v);
	pl_buf_fini(&b);
	return rc;
}

int pl_trace_merge_write(const struct pl_merge *m, struct pl_container_writer *w,
			 struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	for (size_t i = 0; i < PL_LEN(tables); i++)
		pl_io_put_varint(&b, *count_of(m, &tables[i]));
	PL_TRY(pl_container_writer_put(w, PL_BLOCK_MERG, PL_TRACE_BLOCK_VERSION, 1, &b, err));
	for (size_t i = 0; i < PL_LEN(tables); i++)
		PL_TRY(put_table(m, &tables[i], w, err));
	rc = pl_container_writer_put_provenance(w, PL_TRACE_BLOCK_VERSION, m->provenance.p,
						m->provenance.n, NULL, err);
out:
	pl_buf_fini(&b);
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const struct table *table_of(uint32_t type)
{
	for (const struct table *t = tables; t < tables + PL_LEN(tables); t++)
		if (t->type == type)
			return t;
	return NULL;
}

bool pl_trace_merge_is_block(uint32_t type)
{
	return type == PL_BLOCK_MERG || table_of(type);
}

static int get_columns(const struct table *t, char *rows, uint32_t n, struct pl_cur *c,
		       struct pl_err *err)
{
	uint32_t *v;
	int rc = pl_alloc(&v, n, sizeof(*v), err);

	for (size_t k = 0; k < t->n_columns && rc >= 0; k++) {
		rc = pl_column_get_u32(c, v, n, err);
		for (uint32_t i = 0; i < n && rc >= 0; i++)
			memcpy(rows + i * t->size + t->column[k].offset, &v[i], sizeof(*v));
	}
	pl_free(v);
	return rc;
}

static int get_head(struct pl_merge_in *in, struct pl_cur *c, struct pl_err *err)
{
	uint64_t any = 0;

	for (size_t i = 0; i < PL_LEN(in->want); i++)
		any |= in->want[i] = pl_io_get_varint(c);
	if (c->bad || any > UINT32_MAX)
		return pl_fail(err, PL_EDATA, "the counts are cut short or out of range");
	return 0;
}

int pl_trace_merge_get(struct pl_merge_in *in, const struct pl_block *b, struct pl_err *err)
{
	const struct table *t = table_of(b->type);
	struct pl_cur c = { .p = b->p, .end = b->p + b->n };
	void *array = t ? (char *)&in->m + t->array : NULL;
	size_t n, *cap;
	int rc;

	if (!t)
		return get_head(in, &c, err);
	n = *count_of(&in->m, t);
	cap = &in->cap[t - tables];
	if (n + b->count > in->want[t - tables])
		return pl_fail(err, PL_EDATA, "more rows than the first block of the merge says");
	if (t->record) {
		rc = pl_record_get_table(&c, b->count, t->record, array, &n, cap, NULL, in, err);
		*count_of(&in->m, t) = (uint32_t)n;
		return rc;
	}
	if (b->count > PL_TRACE_TABLE_ROWS || b->count > b->n * PL_TRACE_ROWS_PER_BYTE)
		return pl_fail(err, PL_EDATA, "%u rows in a block of %zu bytes", b->count, b->n);
	if (!b->count)
		return 0;
	PL_CHECK(pl_grow(array, cap, n + b->count, t->size, err));
	PL_CHECK(get_columns(t, rows_of(&in->m, t) + n * t->size, b->count, &c, err));
	*count_of(&in->m, t) = (uint32_t)n + b->count;
	return 0;
}

int pl_trace_merge_check(const struct pl_merge_in *in, struct pl_err *err)
{
	const struct pl_merge *m = &in->m;

	for (size_t i = 0; i < PL_LEN(tables); i++)
		if (*count_of(m, &tables[i]) != in->want[i])
			return pl_fail(err, PL_EDATA, "the tables of the merge are not complete");
	for (uint32_t i = 0; i < m->n_uses; i++)
		if (m->use[i].clock >= m->n_clocks)
			return pl_fail(err, PL_EDATA, "clock %u is used, there are %u",
				       m->use[i].clock, m->n_clocks);
	for (uint32_t i = 0; i < m->n_matches; i++) {
		const struct pl_match *k = &m->match[i];

		if (k->group != PL_NONE && k->group >= m->n_groups)
			return pl_fail(err, PL_EDATA, "match %u is of group %u of %u", i, k->group,
				       m->n_groups);
		if ((uint64_t)k->first + k->n > m->n_members)
			return pl_fail(err, PL_EDATA, "match %u passes the last of %u members", i,
				       m->n_members);
	}
	return 0;
}

/* ---- two merges, one after the other --------------------------------------------------------- */

static uint32_t later_segment(uint32_t segment, uint32_t base)
{
	return segment > UINT32_MAX - base ? UINT32_MAX : segment + base;
}

int pl_trace_merge_append(struct pl_merge *to, struct pl_merge *add, uint32_t base,
			  struct pl_err *err)
{
	int rc;

	PL_TRY(copy_rows(add, to, err));
	for (uint32_t i = 0; i < add->n_uses; i++) {
		struct pl_clock_use *u = &to->use[to->n_uses + i];

		u->segment = later_segment(u->segment, base);
		u->clock += to->n_clocks;
	}
	for (uint32_t i = 0; i < add->n_matches; i++) {
		struct pl_match *k = &to->match[to->n_matches + i];

		if (k->group != PL_NONE)
			k->group += to->n_groups;
		k->first += to->n_members;
	}
	for (uint32_t i = 0; i < add->n_members; i++) {
		struct pl_member *k = &to->member[to->n_members + i];

		k->segment = later_segment(k->segment, base);
	}
	for (size_t i = 0; i < PL_LEN(tables); i++)
		*count_of(to, &tables[i]) += *count_of(add, &tables[i]);
	add->n_clocks = add->n_groups = 0; /* `to` owns their texts and ranks now */
out:
	pl_trace_merge_fini(add);
	return rc;
}
