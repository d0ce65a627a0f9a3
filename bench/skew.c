/*
 * skew - give every host of a trace a wrong clock, known to us, and see what the estimator makes of
 * it
 *
 * usage: skew [OPTION]... TRACE
 *
 *   --hosts=N         put the ranks, in order, on N hosts (default 0: each rank on its own)
 *   --trials=N        random clocks to try (default 200)
 *   --offset=TIME     of at most so much (default 1s)
 *   --drift=PPM       of at most so much (default 50)
 *   --round=TIME      profilers round down to this (default 1us; 0: no)
 *   --limit=TIME      exit with 1 if an offset is off by more
 *   --max-drift-error=PPM  the same for a drift
 *   -o FILE           write the trace of the last trial, to be merged
 *
 * Offsets are compared at the first event of each clock, against the first clock.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "clock/clock.h"
#include "core/cmd.h"

struct config {
	struct pl_common c; /* first */
	int64_t hosts, trials, offset, round, limit;
	double drift, drift_limit;
};

struct wrong { /* what the clock of a host shows at true time t: t + offset + drift (t - t0) */
	double offset, drift;
	pl_ns first, first_true; /* first event: as shown, and in truth */
};

struct skew {
	struct config *c;
	struct pl_sink sink, *next;
	uint8_t *bytes;
	size_t n_bytes;
	int32_t *rank;	      /* ascending */
	int32_t **track_rank; /* of each segment: known only at its end, so from a first reading */
	size_t n_segs, cap_segs;
	size_t n_ranks, cap_ranks;
	struct wrong *host;
	size_t n_hosts;
	pl_ns t0;
	uint64_t seed;
	/* results */
	double worst, sum, worst_drift;
	uint64_t clocks, inside, inside_drift, beyond, still;
};

#define AT(m) offsetof(struct config, m)

static const struct pl_opt options[] = {
	{ 0, "hosts", "N", "hosts to spread the ranks over (0: as many as ranks)", PL_OPT_INT,
	  AT(hosts), NULL },
	{ 0, "trials", "N", "random clocks to try", PL_OPT_INT, AT(trials), NULL },
	{ 0, "offset", "TIME", "greatest offset", PL_OPT_TIME, AT(offset), NULL },
	{ 0, "drift", "PPM", "greatest drift", PL_OPT_REAL, AT(drift), NULL },
	{ 0, "round", "TIME", "what the profiler rounds down to", PL_OPT_TIME, AT(round), NULL },
	{ 0, "limit", "TIME", "greatest error that is allowed", PL_OPT_TIME, AT(limit), NULL },
	{ 0, "max-drift-error", "PPM", "greatest error of a drift", PL_OPT_REAL, AT(drift_limit),
	  NULL },
	PL_OPTS_OUTPUT,
	PL_OPTS_COMMON,
};

static void defaults(void *config)
{
	struct config *c = config;

	c->trials = 200;
	c->offset = 1000000000;
	c->round = 1000;
	c->drift = 50;
}

static struct skew *of_sink(struct pl_sink *s)
{
	return (struct skew *)(void *)((char *)s - offsetof(struct skew, sink));
}

/* ---- ranks -------------------------------------------------------------------------------------
 */

static int add_rank(struct skew *k, int32_t rank, struct pl_err *err)
{
	size_t n = 0;
	int rc;

	while (n < k->n_ranks && k->rank[n] < rank)
		n++;
	if (rank < 0 || (n < k->n_ranks && k->rank[n] == rank))
		return 0;
	rc = pl_grow(&k->rank, &k->cap_ranks, k->n_ranks + 1, sizeof(*k->rank), err);
	if (rc < 0)
		return rc;
	memmove(k->rank + n + 1, k->rank + n, (k->n_ranks - n) * sizeof(*k->rank));
	k->rank[n] = rank;
	k->n_ranks++;
	return 0;
}

static int note_times(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		      struct pl_err *err)
{
	struct skew *k = of_sink(s);

	(void)err;
	for (uint32_t i = 0; i < b->n; i++)
		k->t0 = pl_min_i64(k->t0, pl_add_sat(b->ts[i], seg->base_ns));
	return 0;
}

static int note_ranks(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct skew *k = of_sink(s);
	int32_t *rank;
	int rc;

	PL_TRY(pl_grow(&k->track_rank, &k->cap_segs, k->n_segs + 1, sizeof(*k->track_rank), err));
	PL_TRY(pl_alloc(&rank, seg->n_tracks + 1u, sizeof(*rank), err));
	k->track_rank[k->n_segs++] = rank;
	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		rank[i] = seg->track[i].rank;
		PL_TRY(add_rank(k, rank[i], err));
	}
out:
	return rc;
}

static size_t host_of(const struct skew *k, int32_t rank)
{
	size_t n = 0;

	while (n < k->n_ranks && k->rank[n] < rank)
		n++;
	return n * k->n_hosts / k->n_ranks;
}

/* ---- wrong clocks ------------------------------------------------------------------------------
 */

static pl_ns show(const struct skew *k, const struct wrong *w, pl_ns t)
{
	pl_ns s = t + llround(w->offset + w->drift * (double)(t - k->t0));
	pl_ns q = k->c->round;

	return q > 1 ? s - (s % q + q) % q : s;
}

static int name_hosts(struct skew *k, struct pl_segment *seg, struct pl_err *err)
{
	char name[32];
	int rc = 0;

	for (uint32_t i = 0; i < seg->n_tracks; i++) {
		struct pl_track *t = &seg->track[i];
		int n = snprintf(name, sizeof(name), "host%zu", host_of(k, t->rank));

		if (t->rank >= 0)
			PL_TRY(pl_intern_add(&seg->str, name, (size_t)n, &t->host, err));
	}
out:
	return rc;
}

static int skew_begin(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	return of_sink(s)->next->begin(of_sink(s)->next, seg, err);
}

static int skew_batch(struct pl_sink *s, struct pl_segment *seg, struct pl_batch *b,
		      struct pl_err *err)
{
	struct skew *k = of_sink(s);

	for (uint32_t i = 0; i < b->n; i++) {
		int32_t rank = k->track_rank[seg->index][b->track[i]];
		struct wrong *w = rank >= 0 ? &k->host[host_of(k, rank)] : NULL;
		pl_ns t = b->ts[i] + seg->base_ns, start;

		if (!w)
			continue;
		start = show(k, w, t);
		if (b->dur[i] >= 0) {
			if (start < w->first) {
				w->first = start;
				w->first_true = t;
			}
			b->dur[i] = show(k, w, t + b->dur[i]) - start;
		}
		b->ts[i] = start - seg->base_ns;
	}
	return k->next->batch(k->next, seg, b, err);
}

static int skew_end(struct pl_sink *s, struct pl_segment *seg, struct pl_err *err)
{
	struct skew *k = of_sink(s);
	int rc = name_hosts(k, seg, err);

	return rc < 0 ? rc : k->next->end(k->next, seg, err);
}

static double uniform(uint64_t *seed)
{
	return (double)(pl_rng_next(seed) >> 11) * 0x1p-52 - 1;
}

static void new_clocks(struct skew *k)
{
	for (size_t i = 0; i < k->n_hosts; i++)
		k->host[i] = (struct wrong){ .offset = uniform(&k->seed) * (double)k->c->offset,
					     .drift = uniform(&k->seed) * k->c->drift * 1e-6,
					     .first = INT64_MAX };
}

static int read_through(struct skew *k, struct pl_sink *sink, struct pl_err *err)
{
	struct pl_in *in = pl_in_open_mem("trace", k->bytes, k->n_bytes, err);
	int rc = in ? pl_trace_read(in, NULL, sink, err) : err->code;

	pl_in_close(in);
	return rc;
}

/* ---- one trial ---------------------------------------------------------------------------------
 */

static void compare(struct skew *k, const struct pl_merge *m, const struct pl_clock_report *r,
		    bool show_it)
{
	const struct wrong *ref = &k->host[host_of(k, r->clock[0].rank[0])];
	double worst = 0;

	for (uint32_t i = 1; i < m->n_clocks; i++) {
		const struct pl_clock *c = &m->clock[i];
		const struct wrong *w = &k->host[host_of(k, r->clock[i].rank[0])];
		double since = (double)(w->first_true - k->t0);
		double offset = w->offset - ref->offset + (w->drift - ref->drift) * since;
		/* of its own time, as merge says it: the difference of drifts alone is off by
		 * their product, which at 50 ppm is more than ten minutes leave in doubt */
		double drift = (w->drift - ref->drift) / (1 + w->drift) * 1e6;
		double e = (double)c->offset_ns - offset;
		double d = c->drift_ppm - drift;

		worst = fmax(worst, fabs(e));
		k->clocks++;
		k->inside += fabs(e) <= (double)c->offset_ci_ns;
		k->inside_drift += fabs(d) <= c->drift_ci_ppm;
		k->beyond += k->c->limit > 0 && fabs(e) > (double)k->c->limit;
		k->beyond += k->c->drift_limit > 0 && fabs(d) > k->c->drift_limit;
		k->still += c->drift_ppm == 0;
		k->worst_drift = fmax(k->worst_drift, fabs(d));
		if (show_it)
			printf("%5u %14.3f %14.3f %8.3f %8.3f %10.4f %10.4f %8.4f\n", i,
			       offset / 1e3, (double)c->offset_ns / 1e3, e / 1e3,
			       (double)c->offset_ci_ns / 1e3, drift, c->drift_ppm, c->drift_ci_ppm);
	}
	k->sum += worst;
	k->worst = fmax(k->worst, worst);
}

static int trial(struct skew *k, bool show_it, struct pl_err *err)
{
	const struct pl_align_opts o = { .by = PL_CLOCK_HOST, .log = &k->c->c.log };
	struct pl_align *a = pl_clock_new(&o, err);
	struct pl_clock_report r = { 0 };
	struct pl_merge m = { 0 };
	int rc;

	if (!a)
		return err->code;
	k->next = pl_clock_sink(a);
	k->sink = (struct pl_sink){ .begin = skew_begin, .batch = skew_batch, .end = skew_end };
	PL_TRY(read_through(k, &k->sink, err));
	PL_TRY(pl_clock_solve(a, &m, &r, err));
	compare(k, &m, &r, show_it);
out:
	pl_trace_merge_fini(&m);
	pl_clock_report_fini(&r);
	pl_clock_free(a);
	return rc;
}

/* The last clocks again, into a file. */
static int write_last(struct skew *k, struct pl_err *err)
{
	const struct pl_trace_writer_opts o = { .level = 1 };
	struct pl_out *out;
	int rc;

	if (!k->c->c.output)
		return 0;
	out = pl_out_open(k->c->c.output, true, err);
	k->next = out ? pl_trace_writer_open(out, &o, err) : NULL;
	if (!k->next)
		goto failed;
	rc = read_through(k, &k->sink, err);
	if (rc < 0) {
		pl_trace_writer_abort(k->next);
		goto failed;
	}
	rc = pl_trace_writer_close(k->next, err);
	if (rc >= 0)
		return pl_out_close(out, err);
failed:
	pl_out_abort(out);
	return err->code;
}

/* ---- the program -------------------------------------------------------------------------------
 */

static int slurp(struct skew *k, const char *path, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	struct pl_buf b = { 0 };
	int64_t n = 1;
	int rc = in ? 0 : err->code;

	while (rc >= 0 && n > 0) {
		const uint8_t *p;

		n = pl_in_peek(in, 1 << 16, &p, err);
		rc = n < 0 ? (int)n : pl_buf_put(&b, p, (size_t)n, err);
		if (n > 0)
			pl_in_skip(in, (size_t)n);
	}
	pl_in_close(in);
	k->bytes = b.p;
	k->n_bytes = b.n;
	return rc;
}

static int try_all(struct skew *k, const char *path, struct pl_err *err)
{
	double n;
	int rc;

	PL_TRY(slurp(k, path, err));
	k->t0 = INT64_MAX;
	k->sink = (struct pl_sink){ .batch = note_times, .end = note_ranks };
	PL_TRY(read_through(k, &k->sink, err));
	if (!k->n_ranks)
		return pl_fail(err, PL_EDATA, "%s: no ranks", path);
	k->n_hosts = k->c->hosts > 0 ? (size_t)k->c->hosts : k->n_ranks;
	PL_TRY(pl_alloc(&k->host, k->n_hosts, sizeof(*k->host), err));
	printf("clock   true offset     recovered    error      +/-      drift  recovered      "
	       "+/-\n"
	       "                 us            us       us       us        ppm        ppm      "
	       "ppm\n");
	for (int64_t i = 0; i < k->c->trials; i++) {
		new_clocks(k);
		PL_TRY(trial(k, i == 0, err));
	}
	n = k->clocks ? (double)k->clocks : 1;
	printf("%lld trials: worst offset %.3f us, mean worst %.3f us, worst drift %.4f ppm\n"
	       "  inside the interval: offsets %.1f %%, drifts %.1f %%; drift not told from 0: "
	       "%.1f %%\n",
	       (long long)k->c->trials, k->worst / 1e3, k->sum / (double)k->c->trials / 1e3,
	       k->worst_drift, 100 * (double)k->inside / n, 100 * (double)k->inside_drift / n,
	       100 * (double)k->still / n);
	PL_TRY(write_last(k, err));
	if (k->beyond)
		rc = pl_fail(err, PL_ENO, "%llu clocks beyond the limits",
			     (unsigned long long)k->beyond);
out:
	return rc;
}

static int run(void *config, int argc, char **argv, struct pl_err *err)
{
	struct skew k = { .c = config };
	int rc;

	if (argc != 1 || k.c->trials < 1)
		return pl_fail(err, PL_EUSAGE, "give one trace, and at least one trial");
	k.seed = (uint64_t)k.c->c.seed;
	rc = try_all(&k, argv[0], err);
	pl_free(k.bytes);
	pl_free(k.rank);
	for (size_t i = 0; i < k.n_segs; i++)
		pl_free(k.track_rank[i]);
	pl_free(k.track_rank);
	pl_free(k.host);
	return rc;
}

static const struct pl_cmd command = {
	.name = "skew",
	.synopsis = "[OPTION]... TRACE",
	.summary = "Recover clocks that were made wrong on purpose.",
	.opts = options,
	.config_size = sizeof(struct config),
	.defaults = defaults,
	.run = run,
};

int main(int argc, char **argv)
{
	return pl_main(&command, argc, argv);
}
