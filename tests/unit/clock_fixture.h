/* clock_fixture.h - communication of made-up ranks through the sink of clock.h. */
#ifndef CLOCK_FIXTURE_H
#define CLOCK_FIXTURE_H

#include "clock/clock.h"
#include "tap.h"

struct ev {
	uint8_t kind;
	const char *name, *coll, *group;
	int64_t stream, seq, peer; /* seq, peer: -1 none */
	pl_ns ts, dur;
	int64_t bytes; /* 0 none */
};

struct thread_args { /* of an event on a thread instead of a stream */
	int64_t tid;
	const char *dims; /* recorded sizes */
	int64_t rf;	  /* record function id */
	int64_t pid;	  /* 0: as all others */
};

static const char *header; /* distributedInfo of the next segments, NULL none */
static uint32_t part;	   /* of their source */

static char said[8192];
static void hear(void *arg, enum pl_level level, const char *text)
{
	size_t n = strlen(said);

	(void)arg;
	if (level == PL_LOG_WARN)
		snprintf(said + n, sizeof(said) - n, "%s\n", text);
}
static const struct pl_log log_to_said = { hear, NULL };

static int put_str_col(struct pl_segment *s, struct pl_batch *b, uint8_t role, uint32_t row,
		       const char *text, struct pl_err *err)
{
	uint32_t col;
	pl_id id;
	int rc;

	PL_TRY(pl_intern_add(&s->str, text, strlen(text), &id, err));
	PL_TRY(pl_trace_batch_col(b, role, PL_V_STR, PL_NONE, &col, err));
	rc = pl_trace_col_put(&b->col[col], row, id, 0, err);
out:
	return rc;
}

static int put_int_col(struct pl_batch *b, uint8_t role, uint32_t row, int64_t v,
		       struct pl_err *err)
{
	uint32_t col;
	int rc = pl_trace_batch_col(b, role, PL_V_INT, PL_NONE, &col, err);

	return rc < 0 ? rc : pl_trace_col_put(&b->col[col], row, v, 0, err);
}

/* What the profiler of a thread writes beside it. */
static int put_args(struct pl_segment *s, struct pl_batch *b, uint32_t row,
		    const struct thread_args *g, struct pl_err *err)
{
	uint32_t col;
	pl_id key, id;
	int rc;

	PL_TRY(pl_intern_add(&s->str, "Input Dims", 10, &key, err));
	PL_TRY(pl_intern_add(&s->str, g->dims, strlen(g->dims), &id, err));
	PL_TRY(pl_trace_batch_col(b, PL_R_DIMS, PL_V_JSON, key, &col, err));
	PL_TRY(pl_trace_col_put(&b->col[col], row, id, 0, err));
	PL_TRY(pl_intern_add(&s->str, "Record function id", 18, &key, err));
	PL_TRY(pl_trace_batch_col(b, PL_R_RECORD, PL_V_INT, key, &col, err));
	rc = pl_trace_col_put(&b->col[col], row, g->rf, 0, err);
out:
	return rc;
}

static int put_event(struct pl_segment *s, struct pl_batch *b, int32_t rank, const char *host,
		     const struct ev *e, const struct thread_args *g, struct pl_err *err)
{
	struct pl_track t;
	uint32_t row = b->n;
	char tid[24], pid[24];
	int rc;

	pl_trace_track_init(&t);
	snprintf(tid, sizeof(tid), "%lld", g ? (long long)g->tid : 0);
	t.type = g ? PL_T_THREAD : PL_T_STREAM;
	t.rank = rank;
	if (g)
		PL_TRY(pl_intern_add(&s->str, tid, strlen(tid), &t.tid, err));
	else
		t.stream = e->stream;
	snprintf(pid, sizeof(pid), "%lld", g && g->pid ? (long long)g->pid : 77);
	PL_TRY(pl_intern_add(&s->str, pid, strlen(pid), &t.pid, err));
	if (host)
		PL_TRY(pl_intern_add(&s->str, host, strlen(host), &t.host, err));
	b->track[row] = PL_NONE;
	for (uint32_t i = 0; g && i < s->n_tracks; i++) /* a thread has one track */
		if (s->track[i].tid == t.tid && s->track[i].pid == t.pid)
			b->track[row] = i;
	if (b->track[row] == PL_NONE)
		PL_TRY(pl_trace_segment_track(s, &t, &b->track[row], err));
	PL_TRY(pl_intern_add(&s->str, e->name, strlen(e->name), &b->name[row], err));
	b->kind[row] = e->kind;
	b->ts[row] = e->ts;
	b->dur[row] = e->dur;
	b->n++;
	if (e->coll)
		PL_TRY(put_str_col(s, b, PL_R_COLL, row, e->coll, err));
	if (e->group)
		PL_TRY(put_str_col(s, b, PL_R_GROUP, row, e->group, err));
	if (e->seq >= 0)
		PL_TRY(put_int_col(b, PL_R_SEQ, row, e->seq, err));
	if (e->bytes)
		PL_TRY(put_int_col(b, PL_R_BYTES, row, e->bytes, err));
	if (g)
		PL_TRY(put_args(s, b, row, g, err));
	if (e->peer >= 0)
		PL_TRY(put_int_col(b, PL_R_PEER, row, e->peer, err));
out:
	return rc;
}

/* One segment of one rank; `g` of each event, or NULL: all are on streams. */
static inline int feed_threads(struct pl_align *a, int32_t rank, const char *host,
			       const char *source, const struct ev *e, const struct thread_args *g,
			       size_t n, struct pl_err *err)
{
	struct pl_sink *sink = pl_clock_sink(a);
	struct pl_segment s;
	struct pl_batch b = { 0 };
	int rc;

	PL_TRY(pl_trace_segment_init(&s, err));
	PL_TRY(pl_trace_batch_init(&b, err));
	pl_free(s.source);
	s.source = pl_strdup(source);
	s.part = part;
	PL_TRY(sink->begin(sink, &s, err));
	for (size_t i = 0; i < n; i++)
		PL_TRY(put_event(&s, &b, rank, host, &e[i], g ? &g[i] : NULL, err));
	if (header)
		PL_TRY(pl_trace_segment_meta(&s, "distributedInfo", strlen("distributedInfo"),
					     header, strlen(header), err));
	PL_TRY(sink->batch(sink, &s, &b, err));
	rc = sink->end(sink, &s, err);
out:
	pl_trace_batch_fini(&b);
	pl_trace_segment_fini(&s);
	return rc;
}

static inline int feed(struct pl_align *a, int32_t rank, const char *host, const char *source,
		       const struct ev *e, size_t n, struct pl_err *err)
{
	return feed_threads(a, rank, host, source, e, NULL, n, err);
}

static struct pl_align *new_align(enum pl_clock_by by, enum pl_clock_dup dup, bool strict)
{
	const struct pl_align_opts o = { by, dup, strict, &log_to_said };

	said[0] = '\0';
	return pl_clock_new(&o, NULL);
}

struct result {
	struct pl_merge m;
	struct pl_clock_report r;
	struct pl_err err;
	int rc;
};

static void solve(struct pl_align *a, struct result *x)
{
	memset(x, 0, sizeof(*x));
	x->rc = pl_clock_solve(a, &x->m, &x->r, &x->err);
}

static void done(struct pl_align *a, struct result *x)
{
	pl_trace_merge_fini(&x->m);
	pl_clock_report_fini(&x->r);
	pl_clock_free(a);
}

static inline bool has_group(const struct result *x, const char *ranks, uint64_t matches)
{
	char text[256];

	for (uint32_t g = 0; g < x->m.n_groups; g++) {
		size_t n = 0;

		text[0] = '\0';
		for (uint32_t i = 0; i < x->m.group[g].n; i++)
			n += (size_t)snprintf(text + n, sizeof(text) - n, "%s%u", i ? " " : "",
					      x->m.group[g].rank[i]);
		if (!strcmp(text, ranks) && x->r.group[g].matches == matches)
			return true;
	}
	return false;
}

#define N 40
/* Collectives of group `g` that all its ranks end at the same time, but for jitter. */
static inline void make_lane(struct ev *e, int g, int32_t rank, pl_ns shift)
{
	for (int i = 0; i < N; i++) {
		uint64_t s = (uint64_t)(g * 1000 + i) * 7919;
		pl_ns end = 10000000 * (int64_t)(i + 1) + (int64_t)(pl_rng_next(&s) % 4000000);
		uint64_t own = s + (uint64_t)rank;
		pl_ns dur = 300000 + (int64_t)(pl_rng_next(&own) % 2000000);

		end += (int64_t)(pl_rng_next(&own) % 10000);
		e[i] = (struct ev){ PL_K_COLLECTIVE,
				    "AllReduce",
				    "allreduce",
				    NULL,
				    24,
				    -1,
				    -1,
				    end - dur + shift,
				    dur,
				    0 };
	}
}

#endif
