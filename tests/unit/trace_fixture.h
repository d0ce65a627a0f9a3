/*
 * trace_fixture.h - for the tests of trace(5): sinks that print and count, a producer of random
 * events, streams in memory.
 *
 * A producer makes the same random events for any sink. The sink that prints shows them
 * canonically, so a round trip is right when the text of the producer equals the text of the
 * stream.
 */
#ifndef PL_TRACE_FIXTURE_H
#define PL_TRACE_FIXTURE_H

#include <stdlib.h>
#include <string.h>

#include "tap.h"
#include "trace/internal.h"

#define MAYBE_UNUSED __attribute__((unused))

/* ---- a sink that prints ---------------------------------------------------------------------- */

struct printer {
	struct pl_sink sink;
	struct pl_buf text;
	uint64_t ordinal;
	uint64_t roles; /* printed; 0: all */
	uint32_t begun, merges;
};

static void put_text(struct pl_buf *b, const struct pl_intern *t, pl_id id)
{
	struct pl_err err = { 0 };
	int rc = pl_buf_printf(b, &err, "(none)");

	if (id == PL_NONE)
		return;
	b->n -= 6;
	rc = pl_buf_put(b, t->str[id], t->len[id], &err);
	if (rc < 0)
		abort();
}

#define SAY(b, ...)                                                                                \
	do {                                                                                       \
		struct pl_err say_err = { 0 };                                                     \
		if (pl_buf_printf(b, &say_err, __VA_ARGS__) < 0)                                   \
			abort();                                                                   \
	} while (0)

static int by_bytes(const void *a, const void *b)
{
	const struct pl_buf *x = a, *y = b;
	size_t n = x->n < y->n ? x->n : y->n;
	int d = n ? memcmp(x->p, y->p, n) : 0;

	return d ? d : (x->n > y->n) - (x->n < y->n);
}

/* The values of row `row`, in the order of their text; `at` is a cursor for every column. */
static void print_values(struct pl_buf *out, const struct pl_segment *seg, const struct pl_batch *b,
			 uint32_t row, uint32_t *at, uint64_t roles)
{
	struct pl_buf line[64] = { { 0 } };
	size_t n = 0;

	for (uint32_t i = 0; i < b->n_cols; i++) {
		const struct pl_col *c = &b->col[i];

		for (; at[i] < c->n && c->row[at[i]] == row; at[i]++) {
			if (roles && !(roles >> c->role & 1))
				continue;
			if (n == PL_LEN(line))
				abort();
			SAY(&line[n], " %s/%u/", pl_trace_role_name(c->role), c->type);
			put_text(&line[n], &seg->str, c->key);
			SAY(&line[n], "=");
			if (c->type == PL_V_STR || c->type == PL_V_JSON)
				put_text(&line[n], &seg->str, (pl_id)c->val[at[i]]);
			else if (c->type != PL_V_NULL)
				SAY(&line[n], "%lld", (long long)c->val[at[i]]);
			if (c->type == PL_V_DEC)
				SAY(&line[n], "e-%u", c->scale[at[i]]);
			n++;
		}
	}
	qsort(line, n, sizeof(line[0]), by_bytes);
	for (size_t i = 0; i < n; i++) {
		struct pl_err err = { 0 };

		if (pl_buf_put(out, line[i].p, line[i].n, &err) < 0)
			abort();
		pl_buf_fini(&line[i]);
	}
}

static int print_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		       struct pl_err *err)
{
	struct printer *p = (struct printer *)s;
	uint32_t *at = calloc(b->n_cols + 1, sizeof(*at));

	(void)err;
	for (uint32_t r = 0; r < b->n; r++) {
		struct pl_buf *out = &p->text;

		SAY(out, "%lld %u %u ", (long long)p->ordinal++, b->kind[r], b->track[r]);
		put_text(out, &seg->str, b->name[r]);
		SAY(out, " %lld %lld", (long long)b->ts[r], (long long)b->dur[r]);
		print_values(out, seg, b, r, at, p->roles);
		SAY(out, "\n");
	}
	free(at);
	return 0;
}

static int print_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct printer *p = (struct printer *)s;

	(void)err;
	p->ordinal = 0;
	p->begun++;
	SAY(&p->text, "segment %u\n", seg->index);
	return 0;
}

static int print_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct printer *p = (struct printer *)s;
	struct pl_buf *b = &p->text;

	(void)err;
	SAY(b, "base %lld part %u source %s format %s events %llu\n", (long long)seg->base_ns,
	    seg->part, seg->source, seg->format, (unsigned long long)seg->n_events);
	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		const struct pl_track *t = &seg->track[i];
		const pl_id ids[] = { t->host, t->pid, t->tid, t->name, t->process, t->labels };

		SAY(b, "track %u %u %d %d %d %d %d %d %d %d %lld", t->type, t->flags, t->rank,
		    t->device, t->sort, t->psort, t->coord[0], t->coord[1], t->coord[2],
		    t->coord[3], (long long)t->stream);
		for (size_t k = 0; k < PL_LEN(ids); k++) {
			SAY(b, " ");
			put_text(b, &seg->str, ids[k]);
		}
		SAY(b, "\n");
	}
	for (uint32_t i = 0; i < seg->n_meta; i++) {
		put_text(b, &seg->str, seg->meta[i].key);
		SAY(b, ": ");
		put_text(b, &seg->str, seg->meta[i].value);
		SAY(b, "\n");
	}
	SAY(b, "%.*s", (int)seg->provenance.n, (const char *)seg->provenance.p);
	return 0;
}

static int print_merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *err)
{
	struct printer *p = (struct printer *)s;
	struct pl_buf *b = &p->text;

	(void)err;
	p->merges++;
	for (uint32_t i = 0; i < m->n_clocks; i++) {
		const struct pl_clock *k = &m->clock[i];

		SAY(b, "clock %s %lld %lld %a %a %lld %lld %lld %lld\n",
		    k->host ? k->host : "(none)", (long long)k->offset_ns,
		    (long long)k->offset_ci_ns, k->drift_ppm, k->drift_ci_ppm, (long long)k->ref_ns,
		    (long long)k->residual_p50_ns, (long long)k->residual_p95_ns,
		    (long long)k->residual_max_ns);
	}
	for (uint32_t i = 0; i < m->n_uses; i++)
		SAY(b, "use %u %d %u\n", m->use[i].segment, m->use[i].rank, m->use[i].clock);
	for (uint32_t i = 0; i < m->n_groups; i++) {
		SAY(b, "group %s %u:", m->group[i].name, m->group[i].flags);
		for (uint32_t k = 0; k < m->group[i].n; k++)
			SAY(b, " %u", m->group[i].rank[k]);
		SAY(b, "\n");
	}
	for (uint32_t i = 0; i < m->n_matches; i++)
		SAY(b, "match %u %u %u %u\n", m->match[i].group, m->match[i].first, m->match[i].n,
		    m->match[i].flags);
	for (uint32_t i = 0; i < m->n_members; i++)
		SAY(b, "member %u %u\n", m->member[i].segment, m->member[i].event);
	return 0;
}

MAYBE_UNUSED static struct printer printer(void)
{
	return (struct printer){ .sink = { .begin = print_begin,
					   .batch = print_batch,
					   .end = print_end,
					   .merge = print_merge } };
}

MAYBE_UNUSED static bool same_text(const struct pl_buf *a, const struct pl_buf *b)
{
	return a->n == b->n && (!a->n || !memcmp(a->p, b->p, a->n));
}

/* ---- a producer of random events ------------------------------------------------------------- */

struct recipe {
	uint64_t seed;
	uint32_t segments, batches, rows; /* rows: at most, a batch */
};

static uint64_t rng;

static uint64_t below(uint64_t n)
{
	return pl_rng_next(&rng) % n;
}

static int64_t any_number(void)
{
	switch (below(6)) {
	case 0:
		return (int64_t)pl_rng_next(&rng);
	case 1:
		return below(2) ? INT64_MAX : INT64_MIN;
	case 2:
		return (int64_t)below(3);
	default:
		return (int64_t)below(1000000) - 500000;
	}
}

static pl_id any_string(struct pl_segment *seg)
{
	char s[24];
	size_t n = below(sizeof(s));
	struct pl_err err = { 0 };
	pl_id id;

	for (size_t i = 0; i < n; i++)
		s[i] = (char)(below(3) ? 'a' + (int)below(4) : (int)below(256));
	if (pl_intern_add(&seg->str, s, n, &id, &err) < 0)
		abort();
	return id;
}

static pl_id maybe_string(struct pl_segment *seg)
{
	return below(3) ? any_string(seg) : PL_NONE;
}

static void any_track(struct pl_segment *seg, struct pl_track *t)
{
	pl_trace_track_init(t);
	t->type = (uint8_t)below(12);
	t->flags = (uint8_t)below(4);
	t->rank = below(3) ? (int32_t)below(100000) : -1;
	t->device = (int32_t)below(9) - 1;
	t->sort = below(2) ? INT32_MIN : (int32_t)below(99);
	t->psort = below(2) ? INT32_MAX : 0;
	t->coord[below(PL_COORDS)] = (int32_t)below(8);
	t->stream = below(2) ? -1 : any_number();
	t->host = maybe_string(seg);
	t->pid = maybe_string(seg);
	t->tid = maybe_string(seg);
	t->name = maybe_string(seg);
	t->process = maybe_string(seg);
	t->labels = maybe_string(seg);
}

/* A column with values in some rows: all, one in a few, whole stretches, or a row twice. */
static int fill_column(struct pl_segment *seg, struct pl_batch *b, uint8_t role, uint8_t type,
		       pl_id key, struct pl_err *err)
{
	uint64_t sort = below(5), every = 1 + below(40);
	uint32_t index;
	int rc = pl_trace_batch_col(b, role, type, key, &index, err);

	if (rc >= 0 && b->col[index].n)
		return 0; /* chance chose it before */
	for (uint32_t r = 0; r < b->n && rc >= 0; r++) {
		int64_t v = any_number();
		int times = 1;

		if ((sort == 1 && below(every)) || (sort == 2 && r / 50 % 2) ||
		    (sort == 3 && r != b->n / 2))
			continue;
		if (sort == 4)
			times = (int)below(3);
		if (type == PL_V_STR || type == PL_V_JSON)
			v = any_string(seg);
		else if (type == PL_V_BOOL)
			v = (int64_t)below(2);
		else if (type == PL_V_NULL)
			v = 0;
		else if (sort == 2)
			v = r * 7;
		for (; times && rc >= 0; times--)
			rc = pl_trace_col_put(&b->col[index], r, v, (unsigned)below(19), err);
	}
	return rc;
}

static int produce_batch(struct pl_segment *seg, struct pl_batch *b, uint32_t rows, pl_id *keys,
			 struct pl_err *err)
{
	int rc = 0;

	pl_trace_batch_clear(b);
	b->first = seg->n_events;
	b->n = 1 + (uint32_t)below(rows);
	seg->n_events += b->n;
	for (uint32_t r = 0; r < b->n; r++) {
		b->kind[r] = (uint8_t)below(below(8) ? 6 : 256);
		b->track[r] = (pl_id)below(seg->n_tracks);
		b->name[r] = any_string(seg);
		b->ts[r] = below(50) ? (int64_t)r * 1000 + (int64_t)below(5000) : any_number();
		b->dur[r] = below(3) ? (int64_t)below(100000) : -1;
	}
	for (int i = 0; i < 14 && rc >= 0; i++)
		rc = fill_column(seg, b, (uint8_t)below(20), (uint8_t)below(PL_V_COUNT_),
				 below(9) ? keys[below(8)] : PL_NONE, err);
	return rc;
}

static int produce_segment(const struct recipe *how, struct pl_sink *sink, struct pl_segment *seg,
			   struct pl_batch *b, struct pl_err *err)
{
	struct pl_track t;
	pl_id keys[8], id;
	int rc = 0;

	for (size_t i = 0; i < PL_LEN(keys); i++)
		keys[i] = any_string(seg);
	any_track(seg, &t);
	PL_TRY(pl_trace_segment_track(seg, &t, &id, err));
	PL_TRY(sink->begin ? sink->begin(sink, seg, err) : 0);
	for (uint32_t i = 0; i < how->batches; i++) {
		if (below(2)) {
			any_track(seg, &t);
			PL_TRY(pl_trace_segment_track(seg, &t, &id, err));
		}
		any_track(seg, &t); /* what was said of a track may change */
		seg->track[below(seg->n_tracks)] = t;
		PL_TRY(pl_trace_segment_meta(seg, "key", 3, "\"value\"", 7, err));
		PL_TRY(produce_batch(seg, b, how->rows, keys, err));
		PL_TRY(sink->batch ? sink->batch(sink, seg, b, err) : 0);
	}
	seg->base_ns = any_number();
	seg->part = below(2) ? (uint32_t)below(UINT32_MAX) : 0;
	pl_free(seg->source);
	seg->source = pl_strdup("rank0.json.gz");
	seg->track[0].rank = 7;
	PL_TRY(pl_buf_printf(&seg->provenance, err, "maker 1: made\n"));
	PL_TRY(sink->end ? sink->end(sink, seg, err) : 0);
out:
	return rc;
}

MAYBE_UNUSED static int produce(const struct recipe *how, struct pl_sink *sink, struct pl_err *err)
{
	int rc = 0;

	rng = how->seed;
	for (uint32_t i = 0; i < how->segments && rc >= 0; i++) {
		struct pl_segment seg;
		struct pl_batch b;

		if (pl_trace_segment_init(&seg, err) < 0 || pl_trace_batch_init(&b, err) < 0)
			abort();
		seg.index = i;
		rc = produce_segment(how, sink, &seg, &b, err);
		pl_trace_batch_fini(&b);
		pl_trace_segment_fini(&seg);
	}
	return rc;
}

/* ---- streams in memory ----------------------------------------------------------------------- */

MAYBE_UNUSED static struct pl_buf write_stream(const struct recipe *how, const struct pl_merge *m,
					       int threads)
{
	struct pl_err err = { 0 };
	struct pl_buf bytes = { 0 };
	struct pl_pool *pool = pl_pool_new(threads, &err);
	struct pl_out *out = pl_out_open_buf(&bytes, &err);
	struct pl_trace_writer_opts o = { .level = 1, .pool = pool };
	struct pl_sink *w = pl_trace_writer_open(out, &o, &err);
	int rc = m ? w->merge(w, m, &err) : 0;

	if (rc >= 0)
		rc = produce(how, w, &err);
	if (rc < 0)
		pl_trace_writer_abort(w);
	else
		rc = pl_trace_writer_close(w, &err);
	if (rc < 0 || pl_out_close(out, &err) < 0)
		printf("# writing failed: %s\n", err.msg);
	pl_pool_free(pool);
	return bytes;
}

MAYBE_UNUSED static int read_stream(const struct pl_buf *bytes,
				    const struct pl_trace_reader_opts *o, struct pl_sink *sink,
				    struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem("mem", bytes->p, bytes->n, err);
	int rc = in ? pl_trace_read(in, o, sink, err) : err->code;

	pl_in_close(in);
	return rc;
}

MAYBE_UNUSED static int load_stream(const struct pl_buf *bytes,
				    const struct pl_trace_reader_opts *o, struct pl_trace *t,
				    struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem("mem", bytes->p, bytes->n, err);
	int rc = in ? pl_trace_load(in, o, t, err) : err->code;

	pl_in_close(in);
	return rc;
}

/* ---- merges ---------------------------------------------------------------------------------- */

static int alloc_merge(struct pl_merge *m, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_alloc(&m->clock, m->n_clocks, sizeof(*m->clock), err));
	PL_TRY(pl_alloc(&m->use, m->n_uses, sizeof(*m->use), err));
	PL_TRY(pl_alloc(&m->group, m->n_groups, sizeof(*m->group), err));
	PL_TRY(pl_alloc(&m->match, m->n_matches, sizeof(*m->match), err));
	PL_TRY(pl_alloc(&m->member, m->n_members, sizeof(*m->member), err));
out:
	return rc;
}

/* `alike`: rows that repeat, so that their blocks are nearly empty. */
MAYBE_UNUSED static void make_merge(struct pl_merge *m, uint32_t segments, uint32_t members,
				    uint32_t events, bool alike)
{
	struct pl_err err = { 0 };

	*m = (struct pl_merge){ .n_clocks = 2,
				.n_uses = segments,
				.n_groups = 3,
				.n_matches = members / 2,
				.n_members = members };
	if (alloc_merge(m, &err) < 0)
		abort();
	for (uint32_t i = 0; i < m->n_clocks; i++)
		m->clock[i] = (struct pl_clock){ .host = i ? pl_strdup("node1") : NULL,
						 .offset_ns = -123456789012345 * (int64_t)i,
						 .offset_ci_ns = 250,
						 .drift_ppm = 0.1 * i,
						 .drift_ci_ppm = 1e-9,
						 .ref_ns = INT64_MAX,
						 .residual_p50_ns = 1,
						 .residual_p95_ns = 2,
						 .residual_max_ns = INT64_MIN };
	for (uint32_t i = 0; i < m->n_uses; i++)
		m->use[i] =
			(struct pl_clock_use){ .segment = i, .rank = (int)i - 1, .clock = i % 2 };
	for (uint32_t i = 0; i < m->n_groups; i++) {
		m->group[i].name = pl_strdup(i ? "tp0" : "");
		m->group[i].flags = i;
		m->group[i].n = i * 500;
		m->group[i].rank = pl_malloc(i * 500 * sizeof(uint32_t));
		for (uint32_t k = 0; k < i * 500; k++)
			m->group[i].rank[k] = k * i + 3;
	}
	for (uint32_t i = 0; i < m->n_matches; i++)
		m->match[i] = (struct pl_match){ .group = alike || i % 3 ? PL_NONE : i % 3,
						 .first = alike ? 0 : i * 2,
						 .n = alike ? 1 : 2,
						 .flags = i % 3 ? PL_MATCH_P2P : 0 };
	for (uint32_t i = 0; i < m->n_members; i++)
		m->member[i] = (struct pl_member){ .segment = alike ? 0 : i % segments,
						   .event = alike ? 1 : (i / segments) % events };
}

/* ---- a sink that counts ---------------------------------------------------------------------- */

struct counter {
	struct pl_sink sink;
	uint64_t events, values, batches;
};

MAYBE_UNUSED static int count_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
				    struct pl_err *err)
{
	struct counter *c = (struct counter *)s;

	(void)seg;
	(void)err;
	if (b->first == c->events)
		c->batches++;
	c->events += b->n;
	for (uint32_t i = 0; i < b->n_cols; i++)
		c->values += b->col[i].n;
	return 0;
}

#endif
