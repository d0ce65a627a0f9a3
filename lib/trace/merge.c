/*
 * The merge segment of trace(5): clocks, which rank uses which, groups, matches, members.
 *
 * Writing cuts long tables into blocks. Reading appends block by block, so that memory follows the
 * bytes that really come and never a number that the stream claims; the totals of the first block
 * only tell, at the end, that nothing is missing.
 */
#include <math.h>
#include <string.h>

#include "trace/internal.h"

static void groups_fini(struct pl_group *g, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		pl_free(g[i].name);
		pl_free(g[i].rank);
	}
	pl_free(g);
}

void pl_trace_merge_fini(struct pl_merge *m)
{
	for (uint32_t i = 0; i < m->n_clocks; i++)
		pl_free(m->clock[i].host);
	pl_free(m->clock);
	groups_fini(m->group, m->n_groups);
	pl_free(m->use);
	pl_free(m->match);
	pl_free(m->member);
	pl_buf_fini(&m->provenance);
	memset(m, 0, sizeof(*m));
}

static int dup_rows(void *out, const void *p, size_t n, size_t size, struct pl_err *err)
{
	int rc = pl_alloc(out, n + 1, size, err);

	if (rc == 0 && n)
		memcpy(*(void **)out, p, n * size);
	return rc;
}

static int dup_clocks(const struct pl_merge *from, struct pl_merge *to, struct pl_err *err)
{
	int rc = pl_alloc(&to->clock, from->n_clocks + (size_t)1, sizeof(*to->clock), err);

	for (uint32_t i = 0; i < from->n_clocks && rc >= 0; i++) {
		struct pl_clock *k = &to->clock[to->n_clocks++];

		*k = from->clock[i];
		if (k->host && !(k->host = pl_strdup(k->host)))
			rc = pl_fail(err, PL_ENOMEM, "out of memory (merge)");
	}
	return rc;
}

static int dup_groups(const struct pl_merge *from, struct pl_merge *to, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&to->group, from->n_groups + (size_t)1, sizeof(*to->group), err));
	for (uint32_t i = 0; i < from->n_groups; i++) {
		const struct pl_group *g = &from->group[i];
		struct pl_group *k = &to->group[to->n_groups++];

		*k = (struct pl_group){ .flags = g->flags };
		k->name = pl_strdup(g->name ? g->name : "");
		if (!k->name)
			return pl_fail(err, PL_ENOMEM, "out of memory (merge)");
		PL_TRY(dup_rows(&k->rank, g->rank, g->n, sizeof(*g->rank), err));
		k->n = g->n;
	}
out:
	return rc;
}

/* ---- a copy, and what it is asked --------------------------------------------------------------
 */

PL_COMPARATOR(by_use, struct pl_clock_use, segment, rank, clock);

int pl_trace_merge_dup(const struct pl_merge *from, struct pl_merge *to, struct pl_err *err)
{
	int rc;

	memset(to, 0, sizeof(*to));
	PL_TRY(dup_clocks(from, to, err));
	PL_TRY(dup_groups(from, to, err));
	PL_TRY(dup_rows(&to->use, from->use, from->n_uses, sizeof(*to->use), err));
	PL_TRY(dup_rows(&to->match, from->match, from->n_matches, sizeof(*to->match), err));
	PL_TRY(dup_rows(&to->member, from->member, from->n_members, sizeof(*to->member), err));
	PL_TRY(pl_buf_put(&to->provenance, from->provenance.p, from->provenance.n, err));
	to->n_uses = from->n_uses;
	to->n_matches = from->n_matches;
	to->n_members = from->n_members;
	pl_sort(to->use, to->n_uses, sizeof(*to->use), by_use);
	return 0;
out:
	pl_trace_merge_fini(to);
	return rc;
}

/* The first use that is not before the rank's in the segment. */
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

static int put_clock(struct pl_buf *b, const struct pl_clock *k, struct pl_err *err)
{
	const char *host = k->host ? k->host : "";
	int rc;

	if (!isfinite(k->drift_ppm) || !isfinite(k->drift_ci_ppm))
		return pl_fail(err, PL_EINTERNAL, "the drift of a clock is not finite");
	PL_TRY(pl_put_u8(b, k->host != NULL, err));
	PL_TRY(pl_put_str(b, host, strlen(host), err));
	PL_TRY(pl_put_svarint(b, k->offset_ns, err));
	PL_TRY(pl_put_svarint(b, k->offset_ci_ns, err));
	PL_TRY(pl_put_f64(b, k->drift_ppm, err));
	PL_TRY(pl_put_f64(b, k->drift_ci_ppm, err));
	PL_TRY(pl_put_svarint(b, k->ref_ns, err));
	PL_TRY(pl_put_svarint(b, k->residual_p50_ns, err));
	PL_TRY(pl_put_svarint(b, k->residual_p95_ns, err));
	PL_TRY(pl_put_svarint(b, k->residual_max_ns, err));
out:
	return rc;
}

static int put_group(struct pl_buf *b, const struct pl_group *g, struct pl_err *err)
{
	const char *name = g->name ? g->name : "";
	int rc;

	for (uint32_t i = 1; i < g->n; i++)
		if (g->rank[i] <= g->rank[i - 1])
			return pl_fail(err, PL_EINTERNAL, "ranks of group \"%s\" do not ascend",
				       name);
	PL_TRY(pl_put_str(b, name, strlen(name), err));
	PL_TRY(pl_put_varint(b, g->flags, err));
	PL_TRY(pl_put_varint(b, g->n, err));
	if (g->n)
		PL_TRY(pl_put_col_u32(b, g->rank, g->n, true, err));
out:
	return rc;
}

/* Rows [i, i + n) of one table after the other. */
static int put_rows(const struct pl_merge *m, uint32_t type, uint32_t i, uint32_t n,
		    struct pl_buf *b, struct pl_err *err)
{
	struct pl_buf e = { 0 };
	int rc = 0;

	for (uint32_t k = i; k < i + n && rc >= 0; k++) {
		e.n = 0;
		rc = type == PL_BLOCK_CLCK ? put_clock(&e, &m->clock[k], err)
					   : put_group(&e, &m->group[k], err);
		if (rc >= 0)
			rc = pl_put_str(b, (const char *)e.p, e.n, err);
	}
	pl_buf_fini(&e);
	return rc;
}

/* Columns of a table: field `f` of each of the rows, gathered into `v`. */
static int put_field(const void *row, size_t stride, size_t field, uint32_t n, bool delta,
		     uint32_t *v, struct pl_buf *b, struct pl_err *err)
{
	const uint8_t *p = (const uint8_t *)row + field;

	for (uint32_t i = 0; i < n; i++)
		memcpy(&v[i], p + i * stride, sizeof(*v));
	return pl_put_col_u32(b, v, n, delta, err);
}

#define FIELD(table, i, member, delta)                                                             \
	put_field(&m->table[i], sizeof(m->table[i]), offsetof(__typeof__(m->table[i]), member), n, \
		  delta, v, b, err)

static int put_columns(const struct pl_merge *m, uint32_t type, uint32_t i, uint32_t n, uint32_t *v,
		       struct pl_buf *b, struct pl_err *err)
{
	int rc;

	if (type == PL_BLOCK_USES) {
		PL_TRY(FIELD(use, i, segment, true));
		PL_TRY(FIELD(use, i, rank, true));
		PL_TRY(FIELD(use, i, clock, false));
	} else if (type == PL_BLOCK_MTCH) {
		PL_TRY(FIELD(match, i, group, false));
		PL_TRY(FIELD(match, i, first, true));
		PL_TRY(FIELD(match, i, n, false));
		PL_TRY(FIELD(match, i, flags, false));
	} else {
		PL_TRY(FIELD(member, i, segment, false));
		PL_TRY(FIELD(member, i, event, true));
	}
out:
	return rc;
}

static int put_table(const struct pl_merge *m, uint32_t type, uint32_t total, struct pl_cwriter *w,
		     struct pl_err *err)
{
	bool entries = type == PL_BLOCK_CLCK || type == PL_BLOCK_GRPS;
	uint32_t *v = NULL, n;
	struct pl_buf b = { 0 };
	int rc = 0;

	if (!total)
		return 0;
	PL_TRY(pl_alloc(&v, pl_min_size(total, PL_TRACE_TABLE_ROWS), sizeof(*v), err));
	for (uint32_t i = 0; i < total; i += n) {
		n = total - i < PL_TRACE_TABLE_ROWS ? total - i : PL_TRACE_TABLE_ROWS;
		for (;; n = (n + 1) / 2) { /* rows that are all alike go into shorter blocks */
			b.n = 0;
			if (entries)
				PL_TRY(put_rows(m, type, i, n, &b, err));
			else
				PL_TRY(put_columns(m, type, i, n, v, &b, err));
			if (n <= b.n * PL_TRACE_ROWS_PER_BYTE)
				break;
		}
		PL_TRY(pl_cwriter_put(w, type, PL_TRACE_BLOCK_VERSION, n, &b, err));
	}
out:
	pl_free(v);
	pl_buf_fini(&b);
	return rc;
}

static int put_provenance(const struct pl_merge *m, struct pl_cwriter *w, struct pl_err *err)
{
	const struct pl_buf *p = &m->provenance;
	struct pl_buf b = { 0 };
	uint32_t lines = 0;
	int rc;

	if (!p->n)
		return 0;
	PL_TRY(pl_buf_put(&b, p->p, p->n, err));
	if (b.p[b.n - 1] != '\n')
		PL_TRY(pl_buf_put(&b, "\n", 1, err));
	for (size_t i = 0; i < b.n; i++)
		lines += b.p[i] == '\n';
	rc = pl_cwriter_put(w, PL_BLOCK_PROVENANCE, PL_TRACE_BLOCK_VERSION, lines, &b, err);
out:
	pl_buf_fini(&b);
	return rc;
}

int pl_trace_merge_write(const struct pl_merge *m, struct pl_cwriter *w, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	PL_TRY(pl_put_varint(&b, m->n_clocks, err));
	PL_TRY(pl_put_varint(&b, m->n_uses, err));
	PL_TRY(pl_put_varint(&b, m->n_groups, err));
	PL_TRY(pl_put_varint(&b, m->n_matches, err));
	PL_TRY(pl_put_varint(&b, m->n_members, err));
	PL_TRY(pl_cwriter_put(w, PL_BLOCK_MERG, PL_TRACE_BLOCK_VERSION, 1, &b, err));
	PL_TRY(put_table(m, PL_BLOCK_CLCK, m->n_clocks, w, err));
	PL_TRY(put_table(m, PL_BLOCK_USES, m->n_uses, w, err));
	PL_TRY(put_table(m, PL_BLOCK_GRPS, m->n_groups, w, err));
	PL_TRY(put_table(m, PL_BLOCK_MTCH, m->n_matches, w, err));
	PL_TRY(put_table(m, PL_BLOCK_MEMB, m->n_members, w, err));
	PL_TRY(put_provenance(m, w, err));
out:
	pl_buf_fini(&b);
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

bool pl_trace_merge_is_block(uint32_t type)
{
	return type == PL_BLOCK_MERG || type == PL_BLOCK_CLCK || type == PL_BLOCK_USES ||
	       type == PL_BLOCK_GRPS || type == PL_BLOCK_MTCH || type == PL_BLOCK_MEMB;
}

static char *take_str(struct pl_cur *c)
{
	size_t n;
	const char *p = pl_get_str(c, &n);
	char *s;

	if (c->bad || memchr(p, '\0', n)) {
		c->bad = true;
		return NULL;
	}
	s = pl_malloc(n + 1);
	if (s) {
		memcpy(s, p, n);
		s[n] = '\0';
	}
	return s;
}

static double get_real(struct pl_cur *c)
{
	double v = pl_get_f64(c);

	if (isfinite(v))
		return v;
	c->bad = true;
	return 0;
}

static int broken(const struct pl_cur *c, const void *text, const char *what, struct pl_err *err)
{
	if (c->bad)
		return pl_fail(err, PL_EDATA, "a %s is cut short or out of range", what);
	return text ? 0 : pl_fail(err, PL_ENOMEM, "out of memory (%s)", what);
}

static int get_clock(struct pl_merge_in *in, struct pl_cur *c, struct pl_err *err)
{
	struct pl_clock k = { .host = NULL };
	bool known = pl_get_u8(c) != 0;
	int rc;

	k.host = take_str(c);
	k.offset_ns = pl_get_svarint(c);
	k.offset_ci_ns = pl_get_svarint(c);
	k.drift_ppm = get_real(c);
	k.drift_ci_ppm = get_real(c);
	k.ref_ns = pl_get_svarint(c);
	k.residual_p50_ns = pl_get_svarint(c);
	k.residual_p95_ns = pl_get_svarint(c);
	k.residual_max_ns = pl_get_svarint(c);
	PL_TRY(broken(c, k.host, "clock", err));
	if (!known) {
		pl_free(k.host);
		k.host = NULL;
	}
	PL_TRY(pl_grow(&in->m.clock, &in->cap_clock, (size_t)in->m.n_clocks + 1, sizeof(k), err));
	in->m.clock[in->m.n_clocks++] = k;
	return 0;
out:
	pl_free(k.host);
	return rc;
}

static int get_ranks(struct pl_merge_in *in, struct pl_cur *c, struct pl_group *g,
		     struct pl_err *err)
{
	uint64_t n = pl_get_varint(c);
	int rc;

	if (c->bad || n > PL_TRACE_GROUP_RANKS || (in->ranks += n) > PL_TRACE_GROUP_RANKS)
		return pl_fail(err, PL_EDATA, "a group is cut short or too big");
	g->n = (uint32_t)n;
	if (!n)
		return 0;
	if ((rc = pl_alloc(&g->rank, n, sizeof(*g->rank), err)) < 0 ||
	    (rc = pl_get_col_u32(c, g->rank, n, err)) < 0)
		return rc;
	for (uint32_t i = 1; i < g->n; i++)
		if (g->rank[i] <= g->rank[i - 1])
			return pl_fail(err, PL_EDATA, "ranks of a group do not ascend");
	return 0;
}

static int get_group(struct pl_merge_in *in, struct pl_cur *c, struct pl_err *err)
{
	struct pl_group g = { .name = NULL };
	int rc;

	g.name = take_str(c);
	g.flags = (uint32_t)pl_get_varint(c);
	PL_TRY(broken(c, g.name, "group", err));
	PL_TRY(get_ranks(in, c, &g, err));
	PL_TRY(pl_grow(&in->m.group, &in->cap_group, (size_t)in->m.n_groups + 1, sizeof(g), err));
	in->m.group[in->m.n_groups++] = g;
	return 0;
out:
	pl_free(g.name);
	pl_free(g.rank);
	return rc;
}

static int get_entries(struct pl_merge_in *in, const struct pl_block *b, struct pl_cur *c,
		       struct pl_err *err)
{
	for (uint32_t i = 0; i < b->count; i++) {
		struct pl_cur part;
		size_t n;
		int rc;

		part.p = (const uint8_t *)pl_get_str(c, &n);
		if (c->bad)
			return pl_fail(err, PL_EDATA, "the payload ends too early");
		part.end = part.p + n;
		part.bad = false;
		rc = b->type == PL_BLOCK_CLCK ? get_clock(in, &part, err)
					      : get_group(in, &part, err);
		if (rc < 0)
			return rc;
	}
	return 0;
}

/* One column into field `field` of `n` rows. */
static int get_field(struct pl_cur *c, void *row, size_t stride, size_t field, uint32_t n,
		     uint32_t *v, struct pl_err *err)
{
	uint8_t *p = (uint8_t *)row + field;
	int rc = pl_get_col_u32(c, v, n, err);

	for (uint32_t i = 0; i < n && rc >= 0; i++)
		memcpy(p + i * stride, &v[i], sizeof(*v));
	return rc;
}

#define GET(row, member)                                                                           \
	get_field(c, row, sizeof(*(row)), offsetof(__typeof__(*(row)), member), n, v, err)

static int get_columns(struct pl_merge_in *in, uint32_t type, uint32_t n, struct pl_cur *c,
		       uint32_t *v, struct pl_err *err)
{
	struct pl_merge *m = &in->m;
	int rc;

	if (type == PL_BLOCK_USES) {
		PL_TRY(pl_grow(&m->use, &in->cap_use, (size_t)m->n_uses + n, sizeof(*m->use), err));
		PL_TRY(GET(m->use + m->n_uses, segment));
		PL_TRY(GET(m->use + m->n_uses, rank));
		PL_TRY(GET(m->use + m->n_uses, clock));
		m->n_uses += n;
	} else if (type == PL_BLOCK_MTCH) {
		PL_TRY(pl_grow(&m->match, &in->cap_match, (size_t)m->n_matches + n,
			       sizeof(*m->match), err));
		PL_TRY(GET(m->match + m->n_matches, group));
		PL_TRY(GET(m->match + m->n_matches, first));
		PL_TRY(GET(m->match + m->n_matches, n));
		PL_TRY(GET(m->match + m->n_matches, flags));
		m->n_matches += n;
	} else {
		PL_TRY(pl_grow(&m->member, &in->cap_member, (size_t)m->n_members + n,
			       sizeof(*m->member), err));
		PL_TRY(GET(m->member + m->n_members, segment));
		PL_TRY(GET(m->member + m->n_members, event));
		m->n_members += n;
	}
out:
	return rc;
}

static int get_head(struct pl_merge_in *in, struct pl_cur *c, struct pl_err *err)
{
	uint64_t v[5], any = 0;

	for (size_t i = 0; i < PL_LEN(v); i++) {
		v[i] = pl_get_varint(c);
		any |= v[i];
	}
	if (c->bad || any > UINT32_MAX)
		return pl_fail(err, PL_EDATA, "the counts are cut short or out of range");
	in->want.n_clocks = (uint32_t)v[0];
	in->want.n_uses = (uint32_t)v[1];
	in->want.n_groups = (uint32_t)v[2];
	in->want.n_matches = (uint32_t)v[3];
	in->want.n_members = (uint32_t)v[4];
	return 0;
}

static uint64_t rows(const struct pl_merge *m)
{
	return (uint64_t)m->n_clocks + m->n_uses + m->n_groups + m->n_matches + m->n_members;
}

int pl_trace_merge_get(struct pl_merge_in *in, const struct pl_block *b, struct pl_err *err)
{
	struct pl_cur c = { .p = b->p, .end = b->p + b->n };
	uint32_t *v;
	int rc;

	if (b->type == PL_BLOCK_MERG)
		return get_head(in, &c, err);
	if (rows(&in->m) + b->count > rows(&in->want))
		return pl_fail(err, PL_EDATA, "more rows than the first block of the merge says");
	if (b->type == PL_BLOCK_CLCK || b->type == PL_BLOCK_GRPS)
		return get_entries(in, b, &c, err);
	if (b->count > PL_TRACE_TABLE_ROWS || b->count > b->n * PL_TRACE_ROWS_PER_BYTE)
		return pl_fail(err, PL_EDATA, "%u rows in a block of %zu bytes", b->count, b->n);
	if (!b->count)
		return 0;
	rc = pl_alloc(&v, b->count, sizeof(*v), err);
	if (rc < 0)
		return rc;
	rc = get_columns(in, b->type, b->count, &c, v, err);
	pl_free(v);
	return rc;
}

int pl_trace_merge_check(const struct pl_merge_in *in, struct pl_err *err)
{
	const struct pl_merge *m = &in->m, *w = &in->want;

	if (m->n_clocks != w->n_clocks || m->n_uses != w->n_uses || m->n_groups != w->n_groups ||
	    m->n_matches != w->n_matches || m->n_members != w->n_members)
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

/* Room for `more` rows behind the `n` of *table. */
static int room(void *table, uint32_t n, uint32_t more, size_t size, struct pl_err *err)
{
	void *p;

	if (more > UINT32_MAX - n)
		return pl_fail(err, PL_ELIMIT, "more than %u rows in the tables of merges", n);
	memcpy(&p, table, sizeof(p));
	p = pl_realloc(p, ((size_t)n + more) * size);
	if (!p)
		return pl_fail(err, PL_ENOMEM, "out of memory (merge)");
	memcpy(table, &p, sizeof(p));
	return 0;
}

#define ROOM(table, count) room(&to->table, to->count, add->count, sizeof(*to->table), err)

int pl_trace_merge_append(struct pl_merge *to, struct pl_merge *add, uint32_t base,
			  struct pl_err *err)
{
	int rc;

	PL_TRY(ROOM(clock, n_clocks));
	PL_TRY(ROOM(use, n_uses));
	PL_TRY(ROOM(group, n_groups));
	PL_TRY(ROOM(match, n_matches));
	PL_TRY(ROOM(member, n_members));
	PL_TRY(pl_buf_put(&to->provenance, add->provenance.p, add->provenance.n, err));
	for (uint32_t i = 0; i < add->n_uses; i++) {
		struct pl_clock_use u = add->use[i];

		u.segment = u.segment > UINT32_MAX - base ? UINT32_MAX : u.segment + base;
		u.clock += to->n_clocks;
		to->use[to->n_uses + i] = u;
	}
	for (uint32_t i = 0; i < add->n_matches; i++) {
		struct pl_match k = add->match[i];

		if (k.group != PL_NONE)
			k.group += to->n_groups;
		k.first += to->n_members;
		to->match[to->n_matches + i] = k;
	}
	for (uint32_t i = 0; i < add->n_members; i++) {
		struct pl_member k = add->member[i];

		k.segment = k.segment > UINT32_MAX - base ? UINT32_MAX : k.segment + base;
		to->member[to->n_members + i] = k;
	}
	for (uint32_t i = 0; i < add->n_clocks; i++)
		to->clock[to->n_clocks++] = add->clock[i];
	for (uint32_t i = 0; i < add->n_groups; i++)
		to->group[to->n_groups++] = add->group[i];
	to->n_uses += add->n_uses;
	to->n_matches += add->n_matches;
	to->n_members += add->n_members;
	add->n_clocks = add->n_groups = 0;
out:
	pl_trace_merge_fini(add);
	return rc;
}
