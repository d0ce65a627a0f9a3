/* The report of how well the clocks agree, as JSON and as lines of text. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "clock/clock.h"
#include "core/spans.h"
#include "io/write.h"

/* A value that is not known is null. */
static void key_ns(struct pl_writer *w, const char *key, bool known, int64_t ns)
{
	pl_json_key(w, key);
	if (known)
		pl_json_put_int(w, ns);
	else
		pl_json_put_null(w);
}

static void open_list(struct pl_writer *w, const char *key)
{
	pl_json_key(w, key);
	pl_json_open(w, '[');
}

static void put_clock(struct pl_writer *w, const struct pl_merge *m,
		      const struct pl_clock_report *r, uint32_t i)
{
	const struct pl_clock *c = &m->clock[i];
	const struct pl_clock_info *info = &r->clock[i];
	bool some = info->residuals > 0;

	pl_json_open(w, '{');
	pl_json_int(w, "clock", i);
	pl_json_str(w, "host", c->host);
	open_list(w, "ranks");
	for (uint32_t k = 0; k < info->n_ranks; k++)
		pl_json_put_int(w, info->rank[k]);
	pl_json_close(w);
	pl_json_int(w, "offset_ns", c->offset_ns);
	key_ns(w, "offset_ci_ns", c->offset_ci_ns >= 0, c->offset_ci_ns);
	pl_json_real(w, "drift_ppm", c->drift_ppm);
	pl_json_real(w, "drift_ci_ppm", info->drift_known ? c->drift_ci_ppm : NAN);
	pl_json_int(w, "first_event_ns", c->ref_ns);
	key_ns(w, "residual_p50_ns", some, c->residual_p50_ns);
	key_ns(w, "residual_p95_ns", some, c->residual_p95_ns);
	key_ns(w, "residual_max_ns", some, c->residual_max_ns);
	pl_json_close(w);
}

/* One of the two events that contradict each other, under `key`. */
static void put_conflict_event(struct pl_writer *w, const char *key, int64_t clock, int32_t rank,
			       const char *name, const char *time_key, pl_ns ns)
{
	pl_json_key(w, key);
	pl_json_open(w, '{');
	pl_json_int(w, "clock", clock);
	pl_json_int(w, "rank", rank);
	pl_json_str(w, "name", name);
	pl_json_int(w, time_key, ns);
	pl_json_close(w);
}

static void put_conflict(struct pl_writer *w, const struct pl_conflict *c)
{
	pl_json_open(w, '{');
	pl_json_str(w, "kind", c->p2p ? "receive before send" : "end before start");
	pl_json_int(w, "excess_ns", c->excess_ns);
	pl_json_bool(w, "cycle", c->cycle);
	put_conflict_event(w, "started", c->clock_before, c->rank_before, c->name_before,
			   "start_ns", c->start_ns);
	put_conflict_event(w, "ended", c->clock_after, c->rank_after, c->name_after, "end_ns",
			   c->end_ns);
	pl_json_close(w);
}

static void put_group(struct pl_writer *w, const struct pl_group *g,
		      const struct pl_group_info *info)
{
	static const char *const by[] = { [PL_BY_ORDER] = "order",
					  [PL_BY_NUMBER] = "number",
					  [PL_BY_STREAMS] = "order in streams",
					  [PL_BY_KINDS] = "order in kinds" };

	pl_json_open(w, '{');
	pl_json_str(w, "group", g->name);
	pl_json_bool(w, "inferred", (g->flags & PL_GROUP_INFERRED) != 0);
	open_list(w, "ranks");
	for (uint32_t k = 0; k < g->n; k++)
		pl_json_put_int(w, g->rank[k]);
	pl_json_close(w);
	pl_json_str(w, "matched_by", by[info->by]);
	pl_json_int(w, "matches", (int64_t)info->matches);
	pl_json_int(w, "incomplete", (int64_t)info->missing);
	key_ns(w, "residual_p50_ns", info->residuals > 0, info->residual_p50_ns);
	key_ns(w, "residual_p95_ns", info->residuals > 0, info->residual_p95_ns);
	pl_json_close(w);
}

static void put_counts(struct pl_writer *w, const struct pl_clock_report *r)
{
	pl_json_int(w, "conflicts_total", (int64_t)r->conflicts);
	pl_json_int(w, "inferred_groups", r->inferred_groups);
	pl_json_int(w, "reordered_groups", r->reordered);
	pl_json_int(w, "doubtful", r->doubtful);
	pl_json_int(w, "communication_events", (int64_t)r->events);
	pl_json_int(w, "collective_matches", (int64_t)r->collective_matches);
	pl_json_int(w, "p2p_matches", (int64_t)r->p2p_matches);
	pl_json_int(w, "incomplete_matches", (int64_t)r->missing_matches);
	pl_json_int(w, "unmatched_collectives", (int64_t)r->unmatched_collectives);
	pl_json_int(w, "unmatched_sends", (int64_t)r->unmatched_sends);
	pl_json_int(w, "unmatched_recvs", (int64_t)r->unmatched_recvs);
	pl_json_int(w, "message_matches", (int64_t)r->message_matches);
	pl_json_int(w, "unmatched_messages", (int64_t)r->unmatched_messages);
	pl_json_int(w, "divergences", (int64_t)r->divergences);
	pl_json_int(w, "dropped_segments", r->dropped);
}

int pl_clock_report_json(const struct pl_merge *m, const struct pl_clock_report *r,
			 struct pl_out *out, struct pl_err *err)
{
	struct pl_writer w;

	pl_write_init(&w, out, 1);
	pl_json_open(&w, '{');
	pl_json_str(&w, "schema", "paceline.clock/1");
	open_list(&w, "clocks");
	for (uint32_t i = 0; i < r->n_clocks; i++)
		put_clock(&w, m, r, i);
	pl_json_close(&w);
	open_list(&w, "conflicts");
	for (uint32_t i = 0; i < r->n_conflicts; i++)
		put_conflict(&w, &r->conflict[i]);
	pl_json_close(&w);
	put_counts(&w, r);
	open_list(&w, "groups");
	for (uint32_t i = 0; i < r->n_groups; i++)
		put_group(&w, &m->group[i], &r->group[i]);
	pl_json_close(&w);
	pl_json_close(&w);
	return pl_json_end(&w, err);
}

/* ---- words ----------------------------------------------------------------------------------- */

static void say_clock(const struct pl_merge *m, const struct pl_clock_report *r, uint32_t i,
		      const struct pl_log *log)
{
	const struct pl_clock *c = &m->clock[i];
	struct pl_spans list = { 0 };
	char ranks[160], off[24], ci[24], p50[24], p95[24], max[24], residual[96];

	for (uint32_t k = 0; k < r->clock[i].n_ranks; k++)
		if (pl_spans_add(&list, 0, r->clock[i].rank[k], r->clock[i].rank[k] + 1, NULL) < 0)
			break; /* of memory: the list is shorter */
	pl_spans_unite(&list);
	pl_spans_text(&list, ranks, sizeof(ranks));
	pl_spans_fini(&list);
	pl_fmt_ns(off, sizeof(off), c->offset_ns);
	if (c->offset_ci_ns >= 0)
		pl_fmt_ns(ci, sizeof(ci), c->offset_ci_ns);
	else
		snprintf(ci, sizeof(ci), "unknown");
	pl_fmt_ns(p50, sizeof(p50), c->residual_p50_ns);
	pl_fmt_ns(p95, sizeof(p95), c->residual_p95_ns);
	pl_fmt_ns(max, sizeof(max), c->residual_max_ns);
	if (r->clock[i].residuals)
		snprintf(residual, sizeof(residual), "residual p50 %s p95 %s max %s", p50, p95,
			 max);
	else
		snprintf(residual, sizeof(residual), "no residual");
	pl_say(log, PL_LOG_NOTE, "clock %u%s%s, ranks %s: offset %s +- %s, drift %.3g ppm, %s", i,
	       c->host ? " " : "", c->host ? c->host : "", ranks, off, ci, c->drift_ppm, residual);
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
