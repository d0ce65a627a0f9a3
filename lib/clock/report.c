/* The report of how well the clocks agree, as JSON and as lines of text. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "clock/clock.h"

/* What is not known is null. */
static int key_ns(struct pl_jsonw *w, const char *key, bool known, int64_t ns, struct pl_err *err)
{
	int rc;

	if (known)
		return pl_jsonw_ki64(w, key, ns, err);
	rc = pl_jsonw_key(w, key, err);
	return rc < 0 ? rc : pl_jsonw_null(w, err);
}

static int key_text(struct pl_jsonw *w, const char *key, const char *s, struct pl_err *err)
{
	int rc;

	if (s)
		return pl_jsonw_kstr(w, key, s, err);
	rc = pl_jsonw_key(w, key, err);
	return rc < 0 ? rc : pl_jsonw_null(w, err);
}

static int put_clock(struct pl_jsonw *w, const struct pl_merge *m, const struct pl_clock_report *r,
		     uint32_t i, struct pl_err *err)
{
	const struct pl_clock *c = &m->clock[i];
	const struct pl_clock_info *info = &r->clock[i];
	bool some = info->residuals > 0;
	int rc;

	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_ki64(w, "clock", i, err));
	PL_TRY(key_text(w, "host", c->host, err));
	PL_TRY(pl_jsonw_key(w, "ranks", err));
	PL_TRY(pl_jsonw_open(w, '[', err));
	for (uint32_t k = 0; k < info->n_ranks; k++)
		PL_TRY(pl_jsonw_i64(w, info->rank[k], err));
	PL_TRY(pl_jsonw_close(w, err));
	PL_TRY(pl_jsonw_ki64(w, "offset_ns", c->offset_ns, err));
	PL_TRY(key_ns(w, "offset_ci_ns", c->offset_ci_ns >= 0, c->offset_ci_ns, err));
	PL_TRY(pl_jsonw_kreal(w, "drift_ppm", c->drift_ppm, err));
	PL_TRY(pl_jsonw_key(w, "drift_ci_ppm", err));
	PL_TRY(info->drift_known ? pl_jsonw_real(w, c->drift_ci_ppm, err) : pl_jsonw_null(w, err));
	PL_TRY(pl_jsonw_ki64(w, "first_event_ns", c->ref_ns, err));
	PL_TRY(key_ns(w, "residual_p50_ns", some, c->residual_p50_ns, err));
	PL_TRY(key_ns(w, "residual_p95_ns", some, c->residual_p95_ns, err));
	PL_TRY(key_ns(w, "residual_max_ns", some, c->residual_max_ns, err));
	PL_TRY(pl_jsonw_close(w, err));
out:
	return rc;
}

static int put_conflict(struct pl_jsonw *w, const struct pl_conflict *c, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_kstr(w, "kind", c->p2p ? "receive before send" : "end before start", err));
	PL_TRY(pl_jsonw_ki64(w, "excess_ns", c->excess_ns, err));
	PL_TRY(pl_jsonw_key(w, "cycle", err));
	PL_TRY(pl_jsonw_bool(w, c->cycle, err));
	PL_TRY(pl_jsonw_key(w, "started", err));
	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_ki64(w, "clock", c->clock_before, err));
	PL_TRY(pl_jsonw_ki64(w, "rank", c->rank_before, err));
	PL_TRY(pl_jsonw_kstr(w, "name", c->name_before, err));
	PL_TRY(pl_jsonw_ki64(w, "start_ns", c->start_ns, err));
	PL_TRY(pl_jsonw_close(w, err));
	PL_TRY(pl_jsonw_key(w, "ended", err));
	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_ki64(w, "clock", c->clock_after, err));
	PL_TRY(pl_jsonw_ki64(w, "rank", c->rank_after, err));
	PL_TRY(pl_jsonw_kstr(w, "name", c->name_after, err));
	PL_TRY(pl_jsonw_ki64(w, "end_ns", c->end_ns, err));
	PL_TRY(pl_jsonw_close(w, err));
	PL_TRY(pl_jsonw_close(w, err));
out:
	return rc;
}

static int put_group(struct pl_jsonw *w, const struct pl_group *g, const struct pl_group_info *info,
		     struct pl_err *err)
{
	static const char *const by[] = { [PL_BY_ORDER] = "order",
					  [PL_BY_NUMBER] = "number",
					  [PL_BY_STREAMS] = "order in streams",
					  [PL_BY_KINDS] = "order in kinds" };
	int rc;

	PL_TRY(pl_jsonw_open(w, '{', err));
	PL_TRY(pl_jsonw_kstr(w, "group", g->name, err));
	PL_TRY(pl_jsonw_key(w, "inferred", err));
	PL_TRY(pl_jsonw_bool(w, (g->flags & PL_GROUP_INFERRED) != 0, err));
	PL_TRY(pl_jsonw_key(w, "ranks", err));
	PL_TRY(pl_jsonw_open(w, '[', err));
	for (uint32_t k = 0; k < g->n; k++)
		PL_TRY(pl_jsonw_i64(w, g->rank[k], err));
	PL_TRY(pl_jsonw_close(w, err));
	PL_TRY(pl_jsonw_kstr(w, "matched_by", by[info->by], err));
	PL_TRY(pl_jsonw_ki64(w, "matches", (int64_t)info->matches, err));
	PL_TRY(pl_jsonw_ki64(w, "incomplete", (int64_t)info->missing, err));
	PL_TRY(pl_jsonw_ki64(w, "residual_p50_ns", info->residual_p50_ns, err));
	PL_TRY(pl_jsonw_ki64(w, "residual_p95_ns", info->residual_p95_ns, err));
	PL_TRY(pl_jsonw_close(w, err));
out:
	return rc;
}

static int put_counts(struct pl_jsonw *w, const struct pl_clock_report *r, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_jsonw_ki64(w, "conflicts_total", (int64_t)r->conflicts, err));
	PL_TRY(pl_jsonw_ki64(w, "inferred_groups", r->inferred_groups, err));
	PL_TRY(pl_jsonw_ki64(w, "reordered_groups", r->reordered, err));
	PL_TRY(pl_jsonw_ki64(w, "doubtful", r->doubtful, err));
	PL_TRY(pl_jsonw_ki64(w, "communication_events", (int64_t)r->events, err));
	PL_TRY(pl_jsonw_ki64(w, "collective_matches", (int64_t)r->collective_matches, err));
	PL_TRY(pl_jsonw_ki64(w, "p2p_matches", (int64_t)r->p2p_matches, err));
	PL_TRY(pl_jsonw_ki64(w, "incomplete_matches", (int64_t)r->missing_matches, err));
	PL_TRY(pl_jsonw_ki64(w, "unmatched_collectives", (int64_t)r->unmatched_collectives, err));
	PL_TRY(pl_jsonw_ki64(w, "unmatched_sends", (int64_t)r->unmatched_sends, err));
	PL_TRY(pl_jsonw_ki64(w, "unmatched_recvs", (int64_t)r->unmatched_recvs, err));
	PL_TRY(pl_jsonw_ki64(w, "message_matches", (int64_t)r->message_matches, err));
	PL_TRY(pl_jsonw_ki64(w, "unmatched_messages", (int64_t)r->unmatched_messages, err));
	PL_TRY(pl_jsonw_ki64(w, "divergences", (int64_t)r->divergences, err));
	PL_TRY(pl_jsonw_ki64(w, "dropped_segments", r->dropped, err));
out:
	return rc;
}

int pl_clock_report_json(const struct pl_merge *m, const struct pl_clock_report *r,
			 struct pl_out *out, struct pl_err *err)
{
	struct pl_jsonw w;
	int rc;

	pl_jsonw_init(&w, out, 1);
	PL_TRY(pl_jsonw_open(&w, '{', err));
	PL_TRY(pl_jsonw_kstr(&w, "schema", "paceline.clock/1", err));
	PL_TRY(pl_jsonw_key(&w, "clocks", err));
	PL_TRY(pl_jsonw_open(&w, '[', err));
	for (uint32_t i = 0; i < r->n_clocks; i++)
		PL_TRY(put_clock(&w, m, r, i, err));
	PL_TRY(pl_jsonw_close(&w, err));
	PL_TRY(pl_jsonw_key(&w, "conflicts", err));
	PL_TRY(pl_jsonw_open(&w, '[', err));
	for (uint32_t i = 0; i < r->n_conflicts; i++)
		PL_TRY(put_conflict(&w, &r->conflict[i], err));
	PL_TRY(pl_jsonw_close(&w, err));
	PL_TRY(put_counts(&w, r, err));
	PL_TRY(pl_jsonw_key(&w, "groups", err));
	PL_TRY(pl_jsonw_open(&w, '[', err));
	for (uint32_t i = 0; i < r->n_groups; i++)
		PL_TRY(put_group(&w, &m->group[i], &r->group[i], err));
	PL_TRY(pl_jsonw_close(&w, err));
	PL_TRY(pl_jsonw_close(&w, err));
	PL_TRY(pl_out_write(out, "\n", 1, err));
out:
	return rc;
}

/* ---- words -------------------------------------------------------------------------------------
 */

/* "0-3,8": ranks ascending. */
static void list_ranks(char *out, size_t size, const int32_t *v, uint32_t n)
{
	size_t at = 0;

	out[0] = '\0';
	for (uint32_t i = 0, k; i < n && at + 32 < size; i = k) {
		for (k = i + 1; k < n && v[k] == v[k - 1] + 1;)
			k++;
		at += (size_t)snprintf(out + at, size - at, "%s%d", i ? "," : "", v[i]);
		if (k - i > 1)
			at += (size_t)snprintf(out + at, size - at, "-%d", v[k - 1]);
		if (k < n && at + 32 >= size)
			snprintf(out + at, size - at, ",...");
	}
}

static void say_clock(const struct pl_merge *m, const struct pl_clock_report *r, uint32_t i,
		      const struct pl_log *log)
{
	const struct pl_clock *c = &m->clock[i];
	char ranks[160], off[24], ci[24], p50[24], p95[24], max[24];

	list_ranks(ranks, sizeof(ranks), r->clock[i].rank, r->clock[i].n_ranks);
	pl_fmt_ns(off, sizeof(off), c->offset_ns);
	if (c->offset_ci_ns >= 0)
		pl_fmt_ns(ci, sizeof(ci), c->offset_ci_ns);
	else
		snprintf(ci, sizeof(ci), "unknown");
	pl_fmt_ns(p50, sizeof(p50), c->residual_p50_ns);
	pl_fmt_ns(p95, sizeof(p95), c->residual_p95_ns);
	pl_fmt_ns(max, sizeof(max), c->residual_max_ns);
	pl_say(log, PL_LOG_NOTE,
	       "clock %u%s%s, ranks %s: offset %s +- %s, drift %.3g ppm, residual p50 %s p95 %s "
	       "max %s",
	       i, c->host ? " " : "", c->host ? c->host : "", ranks, off, ci, c->drift_ppm, p50,
	       p95, max);
}

void pl_clock_report_say(const struct pl_merge *m, const struct pl_clock_report *r,
			 const struct pl_log *log)
{
	pl_say(log, PL_LOG_NOTE,
	       "%" PRIu64 " communication events: %" PRIu64 " collectives and %" PRIu64
	       " transfers matched, %" PRIu64 " incomplete; %" PRIu64 " collectives, %" PRIu64
	       " sends, %" PRIu64 " receives alone",
	       r->events, r->collective_matches, r->p2p_matches, r->missing_matches,
	       r->unmatched_collectives, r->unmatched_sends, r->unmatched_recvs);
	if (r->message_matches || r->unmatched_messages)
		pl_say(log, PL_LOG_NOTE,
		       "%" PRIu64 " messages of collectives matched, %" PRIu64 " halves alone",
		       r->message_matches, r->unmatched_messages);
	pl_say(log, PL_LOG_NOTE, "%u groups, %u of them inferred", r->n_groups, r->inferred_groups);
	for (uint32_t i = 0; i < r->n_groups; i++)
		if (r->group[i].by == PL_BY_STREAMS || r->group[i].by == PL_BY_KINDS)
			pl_say(log, PL_LOG_NOTE,
			       "group %s: its order differs between ranks and was followed within "
			       "%s",
			       m->group[i].name,
			       r->group[i].by == PL_BY_STREAMS ? "each of its streams"
							       : "each kind and size");
	for (uint32_t i = 0; i < r->n_clocks; i++)
		say_clock(m, r, i, log);
}
