/* Filters of merged streams: the matches that are left are those of the events that are left. */
#include "tap.h"

#include "export/export.h"
#include "trace/filter.h"

static struct pl_err err;
static uint64_t rng;

static uint32_t below(uint32_t n)
{
	return (uint32_t)((pl_rng_next(&rng) >> 33) % n);
}

/* ---- random merged streams ---------------------------------------------------------------------
 */

#define MAX_SEGS   6
#define MAX_EVENTS 120 /* a segment */
#define MAX_MATCH  40
#define RANKS	   3 /* a segment has at most */

/* Every event of every stream has a start of its own, by which it is known again. */
struct stream {
	uint32_t n_segs, n[MAX_SEGS];
	pl_ns ts[MAX_SEGS][MAX_EVENTS];
	uint8_t kind[MAX_SEGS][MAX_EVENTS], track[MAX_SEGS][MAX_EVENTS], name[MAX_SEGS][MAX_EVENTS];
	struct pl_clock clock[2];
	struct pl_clock_use use[MAX_SEGS * RANKS];
	struct pl_group group[3];
	uint32_t group_rank[3];
	struct pl_match match[MAX_MATCH];
	struct pl_member member[MAX_MATCH * MAX_SEGS];
	struct pl_merge m;
};

static void make_matches(struct stream *s)
{
	struct pl_merge *m = &s->m;
	uint32_t used[MAX_SEGS] = { 0 };

	for (uint32_t i = 0; i < MAX_MATCH; i++) {
		struct pl_match *k = &s->match[m->n_matches];
		bool pair = s->n_segs > 1 && !below(3);

		*k = (struct pl_match){ pair ? PL_NONE : below(3), m->n_members, 0,
					pair ? PL_MATCH_P2P : below(2) * PL_MATCH_INFERRED };
		for (uint32_t seg = 0; seg < s->n_segs && (!pair || k->n < 2); seg++) {
			used[seg] += 1 + below(2);
			if (used[seg] > s->n[seg] || (!pair && !below(4)))
				continue;
			s->member[m->n_members++] = (struct pl_member){ seg, used[seg] - 1 };
			k->n++;
		}
		if (pair && k->n != 2)
			m->n_members -= k->n;
		else if (k->n)
			m->n_matches++;
	}
}

static void make_stream(struct stream *s, pl_ns *clock)
{
	memset(s, 0, sizeof(*s));
	s->n_segs = 1 + below(MAX_SEGS);
	s->m = (struct pl_merge){ .clock = s->clock,
				  .use = s->use,
				  .group = s->group,
				  .match = s->match,
				  .member = s->member,
				  .n_clocks = 2,
				  .n_groups = 3 };
	s->clock[1].offset_ns = 500;
	for (uint32_t i = 0; i < 3; i++) {
		static char name[3][2] = { "a", "b", "c" };

		s->group_rank[i] = i;
		s->group[i] = (struct pl_group){ name[i], &s->group_rank[i], 1, 0 };
	}
	for (uint32_t seg = 0; seg < s->n_segs; seg++) {
		s->n[seg] = below(MAX_EVENTS + 1);
		for (uint32_t i = 0; i < s->n[seg]; i++) {
			s->ts[seg][i] = *clock += 10;
			s->kind[seg][i] = below(2) ? PL_K_COLLECTIVE : PL_K_KERNEL;
			s->track[seg][i] = (uint8_t)below(RANKS);
			s->name[seg][i] = (uint8_t)below(3);
		}
		for (uint32_t r = 0; r < RANKS; r++)
			s->use[s->m.n_uses++] =
				(struct pl_clock_use){ seg, (int32_t)(seg * RANKS + r), seg & 1 };
	}
	make_matches(s);
}

/* Names and tracks of a segment have the numbers that rows give them. */
static int describe(struct pl_segment *seg, uint32_t index)
{
	static const char *const names[] = { "gemm", "relu", "norm" };
	struct pl_track k;
	pl_id id;
	int rc = 0;

	for (uint32_t i = 0; rc >= 0 && i < PL_LEN(names); i++)
		rc = pl_intern_add(&seg->str, names[i], strlen(names[i]), &id, &err);
	for (uint32_t r = 0; rc >= 0 && r < RANKS; r++) {
		pl_trace_track_init(&k);
		k.type = PL_T_STREAM;
		k.rank = (int32_t)(index * RANKS + r);
		rc = pl_trace_segment_track(seg, &k, &id, &err);
	}
	return rc;
}

static int send_segment(const struct stream *s, uint32_t i, struct pl_sink *to)
{
	struct pl_segment seg;
	struct pl_batch b;
	int rc;

	if (pl_trace_segment_init(&seg, &err) < 0 || pl_trace_batch_init(&b, &err) < 0)
		return PL_ENOMEM;
	PL_TRY(describe(&seg, i));
	PL_TRY(to->begin(to, &seg, &err));
	for (uint32_t at = 0; at < s->n[i]; at += b.n) {
		pl_trace_batch_clear(&b);
		b.first = at;
		for (uint32_t k = at; k < s->n[i] && b.n < 32; k++, b.n++) {
			b.kind[b.n] = s->kind[i][k];
			b.track[b.n] = s->track[i][k];
			b.name[b.n] = s->name[i][k];
			b.ts[b.n] = s->ts[i][k];
			b.dur[b.n] = 5;
		}
		PL_TRY(to->batch(to, &seg, &b, &err));
	}
	rc = to->end(to, &seg, &err);
out:
	pl_trace_segment_fini(&seg);
	pl_trace_batch_fini(&b);
	return rc;
}

static int send(const struct stream *s, bool merged, struct pl_sink *to)
{
	int rc = merged ? to->merge(to, &s->m, &err) : 0;

	for (uint32_t i = 0; rc >= 0 && i < s->n_segs; i++)
		rc = send_segment(s, i, to);
	return rc;
}

/* ---- what comes out ----------------------------------------------------------------------------
 */

#define STREAMS 2

struct got {
	struct pl_sink sink; /* first */
	struct pl_merge merge[STREAMS];
	uint32_t n_merges, first[STREAMS]; /* first: its segment 0 */
	uint32_t n_segs, n[STREAMS * MAX_SEGS];
	pl_ns ts[STREAMS * MAX_SEGS][MAX_EVENTS];
	bool bad;
};

static int got_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *e)
{
	(void)seg;
	(void)e;
	((struct got *)s)->n_segs++;
	return 0;
}

static int got_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		     struct pl_err *e)
{
	struct got *g = (struct got *)s;
	uint32_t at = g->n_segs - 1;

	(void)seg;
	(void)e;
	g->bad |= b->first != g->n[at];
	for (uint32_t i = 0; i < b->n; i++)
		g->ts[at][g->n[at]++] = b->ts[i];
	return 0;
}

static int got_merge(struct pl_sink *s, const struct pl_merge *m, struct pl_err *e)
{
	struct got *g = (struct got *)s;

	g->first[g->n_merges] = g->n_segs;
	return pl_trace_merge_dup(m, &g->merge[g->n_merges++], e);
}

static bool passed(const struct got *g, pl_ns ts)
{
	for (uint32_t i = 0; i < g->n_segs; i++)
		for (uint32_t k = 0; k < g->n[i]; k++)
			if (g->ts[i][k] == ts)
				return true;
	return false;
}

/* Start of the event that a member of the j-th merge names, -1. */
static pl_ns named(const struct got *g, uint32_t j, const struct pl_member *e)
{
	uint64_t seg = (uint64_t)g->first[j] + e->segment;

	return seg < g->n_segs && e->event < g->n[seg] ? g->ts[seg][e->event] : -1;
}

/* The same match, less the members that did not pass. */
static bool same_match(const struct got *g, uint32_t j, const struct stream *s,
		       const struct pl_match *k, const struct pl_match *want, uint32_t n)
{
	const struct pl_merge *m = &g->merge[j];
	uint32_t at = k->first;

	if (k->n != n || (want->group == PL_NONE) != (k->group == PL_NONE) ||
	    k->flags != (want->flags | (n < want->n ? PL_MATCH_MISSING : 0)))
		return false;
	if (k->group != PL_NONE &&
	    (k->group >= m->n_groups ||
	     strcmp(m->group[k->group].name, s->group[want->group].name) != 0))
		return false;
	for (uint32_t i = want->first; i < want->first + want->n; i++) {
		const struct pl_member *e = &s->member[i];
		pl_ns ts = s->ts[e->segment][e->event];

		if (passed(g, ts) && (at == m->n_members || named(g, j, &m->member[at++]) != ts))
			return false;
	}
	return at == k->first + k->n;
}

/* Does the j-th merge say of what passed what the stream's says of all? */
static bool still_true(const struct got *g, uint32_t j, const struct stream *s)
{
	const struct pl_merge *m = &g->merge[j];
	uint32_t k = 0, members = 0, end = j + 1 < g->n_merges ? g->first[j + 1] : g->n_segs;

	for (uint32_t i = 0; i < s->m.n_matches; i++) {
		const struct pl_match *a = &s->match[i];
		uint32_t n = 0;

		for (uint32_t e = a->first; e < a->first + a->n; e++)
			n += passed(g, s->ts[s->member[e].segment][s->member[e].event]);
		if (!n || (n < a->n && a->flags & PL_MATCH_P2P))
			continue;
		if (k == m->n_matches || !same_match(g, j, s, &m->match[k++], a, n))
			return false;
	}
	for (uint32_t i = 0; i < m->n_matches; i++)
		members += m->match[i].n;
	if (k != m->n_matches || members != m->n_members || m->n_clocks != s->m.n_clocks ||
	    m->n_uses != (end - g->first[j]) * RANKS)
		return false;
	for (uint32_t i = 0; i < m->n_uses; i++)
		if (m->use[i].segment != i / RANKS ||
		    m->use[i].clock != (uint32_t)m->use[i].rank / RANKS % 2)
			return false;
	return true;
}

/* ---- the property ------------------------------------------------------------------------------
 */

static void make_filter(struct pl_filter *f, int64_t *rank)
{
	memset(f, 0, sizeof(*f));
	if (below(2)) {
		f->rank = rank;
		for (int32_t r = 0; r < MAX_SEGS * RANKS; r++)
			if (below(2)) {
				rank[2 * f->n_ranks] = rank[2 * f->n_ranks + 1] = r;
				f->n_ranks++;
			}
	}
	if (!below(3))
		f->kind = "comm";
	if (!below(3))
		f->name = "*e*";
	if (!below(3)) {
		f->has_time = true;
		f->t0 = below(3000);
		f->t1 = f->t0 + below(6000);
	}
}

static int run(const struct pl_filter *f, const struct stream *s, uint32_t n, bool merged,
	       struct got *g)
{
	struct pl_sink *x;
	int rc = 0;

	memset(g, 0, sizeof(*g));
	g->sink = (struct pl_sink){ got_begin, got_batch, NULL, got_merge };
	x = pl_trace_filter_open(f, &g->sink, &err);
	if (!x)
		return PL_ENOMEM;
	for (uint32_t i = 0; rc >= 0 && i < n; i++)
		rc = send(&s[i], merged, x);
	if (rc >= 0)
		rc = pl_trace_filter_finish(x, &err);
	pl_trace_filter_close(x);
	return rc;
}

/* Without a window the clocks do not matter: what passes is what passes of the same stream without
 * a merge. */
static bool same_events(const struct got *a, const struct got *b)
{
	bool same = a->n_segs == b->n_segs;

	for (uint32_t i = 0; same && i < a->n_segs; i++)
		same = a->n[i] == b->n[i] &&
		       !memcmp(a->ts[i], b->ts[i], a->n[i] * sizeof(*a->ts[i]));
	return same;
}

static void test_random(void)
{
	static struct stream s[STREAMS];
	static struct got g, plain;
	uint32_t matches = 0, cut = 0;
	bool fine = true;

	for (rng = 1; fine && rng <= 400; rng++) {
		uint64_t seed = rng;
		uint32_t n = 1 + below(STREAMS);
		int64_t rank[2 * MAX_SEGS * RANKS];
		struct pl_filter f;
		pl_ns clock = 0;

		for (uint32_t i = 0; i < n; i++)
			make_stream(&s[i], &clock);
		make_filter(&f, rank);
		fine = run(&f, s, n, true, &g) >= 0 && !g.bad && g.n_merges == n;
		for (uint32_t j = 0; fine && j < n; j++) {
			fine = still_true(&g, j, &s[j]);
			matches += g.merge[j].n_matches;
			for (uint32_t i = 0; i < g.merge[j].n_matches; i++)
				cut += g.merge[j].match[i].flags & PL_MATCH_MISSING;
		}
		for (uint32_t j = 0; j < g.n_merges; j++)
			pl_trace_merge_fini(&g.merge[j]);
		if (fine && !f.has_time)
			fine = run(&f, s, n, false, &plain) >= 0 && same_events(&g, &plain);
		if (!fine)
			printf("# seed %llu: %s\n", (unsigned long long)seed, err.msg);
		rng = seed;
	}
	ok(fine, "matches of what passes any filter");
	ok(matches > 1000 && cut > 100 && cut < matches, "of %u matches, %u of them cut", matches,
	   cut);
}

int main(void)
{
	test_random();
	return done_testing();
}
