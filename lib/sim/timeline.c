/*
 * A replayed run as a trace, for viewers (Perfetto) and for the tools: merge and graph read it like
 * the trace of a profiler and find the same dependencies.
 *
 * Each resource has one track under its rank; resources that only pass times on have none. The
 * graph holds some operations in two nodes: arrival and transfer of a communication, or a call and
 * its remainder after a wait. Such an operation is one event in the trace, and the wait lies inside
 * it as an event of kind wait. Other events of kind wait are the time of a host thread between its
 * operations ("host gap"), the wait of a host thread for an operation ("wait: NAME of the
 * operation"), and unexplained time before an operation of a device, if it is at least 1 us (less
 * is rounding of the profiler). A call and the operation that it launched share a correlation. The
 * members of one communication share group and sequence number. Steps are events of each rank.
 *
 * One pass over the nodes; memory: 5 bytes for each node of the longest step.
 */
#include <stdlib.h>

#include "sim/internal.h"

#define ROUNDING_NS 1000 /* a shorter gap comes from times in microseconds */

enum {
	V_STEP,
	V_CORR,
	V_SEQ,
	V_PEER,
	V_BYTES,
	V_MB,
	V_CHUNK,
	V_LAYER,
	V_GROUP,
	V_COLL,
	V_CHANNEL,
	V_OF,
	VALUES
};

struct event {
	uint8_t kind;
	pl_id name; /* of the segment */
	pl_ns start, end;
	int64_t v[VALUES]; /* INT64_MIN: none */
};

struct lane { /* a resource */
	pl_id track;
	bool pending; /* `call` is not written yet: its remainder may follow */
	bool arrived;
	struct event call;
	pl_id call_name; /* of the graph */
	pl_ns arrive;	 /* of `arrived` */
	int64_t corr;	 /* of the arrival */
	pl_ns done;	 /* end of the last written event, INT64_MIN */
	pl_ns step;	 /* begin of the step, INT64_MIN */
};

struct timeline {
	const struct pl_sim *s;
	const struct pl_run *r;
	struct pl_sink *sink;
	struct pl_segment seg;
	struct pl_batch b;
	struct lane *lane;
	pl_id *str, *wait; /* of a graph's string: the segment's, and that of "wait: ..." */
	pl_id *group;	   /* [group]: name in the segment */
	uint64_t *numbers; /* [group], and last the pairs: how many communications so far */
	pl_id s_gap, s_unexplained;
	/* of the step at hand */
	size_t k;
	uint64_t first;	   /* nodes in the steps before */
	uint8_t *launches; /* [node] */
	uint32_t *number;  /* [node]: of a rendezvous, its arrivals and messages, PL_NONE */
	bool *marked;	   /* [rank]: the step has its marks */
	pl_ns *last;	   /* [rank]: end of the step, INT64_MIN */
	pl_id *step_track; /* [rank]: track of steps without marks, PL_NONE */
};

/* ---- strings and tracks ---------------------------------------------------------------------- */

static int str_add(struct timeline *t, const char *s, pl_id *id, struct pl_err *err)
{
	return pl_intern_add(&t->seg.str, s, strlen(s), id, err);
}

static int str_of(struct timeline *t, pl_id id, pl_id *out, struct pl_err *err)
{
	const struct pl_intern *g = &t->s->g->str;
	int rc = 0;

	if (id >= g->n)
		return pl_intern_add(&t->seg.str, "", 0, out, err);
	if (t->str[id] == PL_NONE)
		rc = pl_intern_add(&t->seg.str, g->str[id], g->len[id], &t->str[id], err);
	*out = t->str[id];
	return rc;
}

static int wait_name(struct timeline *t, pl_id id, pl_id *out, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	if (id < t->s->g->str.n && t->wait[id] != PL_NONE) {
		*out = t->wait[id];
		return 0;
	}
	PL_TRY(pl_buf_printf(&b, err, "wait: %s", pl_intern_get(&t->s->g->str, id)));
	PL_TRY(pl_intern_add(&t->seg.str, (const char *)b.p, b.n, out, err));
	if (id < t->s->g->str.n)
		t->wait[id] = *out;
out:
	pl_buf_fini(&b);
	return rc;
}

static int number_str(struct timeline *t, const char *prefix, int64_t v, pl_id *id,
		      struct pl_err *err)
{
	char text[40];

	snprintf(text, sizeof(text), "%s%lld", prefix, (long long)v);
	return str_add(t, text, id, err);
}

static int rank_track(struct timeline *t, struct pl_track *k, int32_t rank, struct pl_err *err)
{
	pl_trace_track_init(k);
	k->rank = rank;
	k->psort = rank;
	PL_CHECK(number_str(t, "", rank, &k->pid, err));
	PL_CHECK(number_str(t, "rank ", rank, &k->process, err));
	return 0;
}

static int add_track(struct timeline *t, uint32_t res, struct pl_err *err)
{
	const struct pl_resource *r = &t->s->g->res[res];
	const char *name = pl_intern_get(&t->s->g->str, r->name);
	struct pl_track k;
	char *end;

	if (pl_graph_hands_on(t->s->g, res))
		return 0;
	PL_CHECK(rank_track(t, &k, r->rank, err));
	k.type = r->track_type;
	k.device = r->device;
	k.sort = (int32_t)pl_min_i64(res, INT32_MAX);
	memcpy(k.coord, r->coord, sizeof(k.coord));
	PL_CHECK(number_str(t, "", (int64_t)res + 1, &k.tid, err));
	PL_CHECK(str_of(t, r->name, &k.name, err));
	if (r->host != PL_NONE)
		PL_CHECK(str_of(t, r->host, &k.host, err));
	if (r->track_type == PL_T_STREAM && !strncmp(name, "stream ", 7)) {
		k.stream = strtoll(name + 7, &end, 10);
		if (*end || k.stream < 0)
			k.stream = -1;
	}
	PL_CHECK(pl_trace_segment_track(&t->seg, &k, &t->lane[res].track, err));
	t->lane[res].done = t->lane[res].step = INT64_MIN;
	return 0;
}

/* Names of groups; where two groups share one, they get numbers. */
static int add_group(struct timeline *t, size_t i, struct pl_err *err)
{
	const struct pl_graph *g = t->s->g;
	struct pl_buf b = { 0 };
	int rc;

	PL_TRY(pl_buf_printf(&b, err, "%s", pl_intern_get(&g->str, g->group[i].name)));
	for (size_t k = 0; k < i; k++) {
		if (g->group[k].name == g->group[i].name) {
			PL_TRY(pl_buf_printf(&b, err, "#%zu", i));
			break;
		}
	}
	PL_TRY(pl_intern_add(&t->seg.str, (const char *)b.p, b.n, &t->group[i], err));
out:
	pl_buf_fini(&b);
	return rc;
}

/* ---- events ---------------------------------------------------------------------------------- */

static const struct {
	uint8_t role, type;
} column[VALUES] = {
	[V_STEP] = { PL_R_STEP, PL_V_INT },	  [V_CORR] = { PL_R_CORR, PL_V_INT },
	[V_SEQ] = { PL_R_SEQ, PL_V_INT },	  [V_PEER] = { PL_R_PEER, PL_V_INT },
	[V_BYTES] = { PL_R_BYTES, PL_V_INT },	  [V_MB] = { PL_R_MB, PL_V_INT },
	[V_CHUNK] = { PL_R_CHUNK, PL_V_INT },	  [V_LAYER] = { PL_R_LAYER, PL_V_INT },
	[V_GROUP] = { PL_R_GROUP, PL_V_STR },	  [V_COLL] = { PL_R_COLL, PL_V_STR },
	[V_CHANNEL] = { PL_R_CHANNEL, PL_V_INT }, [V_OF] = { PL_R_OF, PL_V_INT },
};

static int pass_on(struct timeline *t, struct pl_err *err)
{
	int rc = 0;

	if (t->b.n && t->sink->batch)
		rc = t->sink->batch(t->sink, &t->seg, &t->b, err);
	t->seg.n_events += t->b.n;
	pl_trace_batch_clear(&t->b);
	t->b.first = t->seg.n_events;
	return rc;
}

static int put(struct timeline *t, pl_id track, const struct event *e, struct pl_err *err)
{
	struct pl_batch *b = &t->b;
	uint32_t index;
	int rc = 0;

	for (int i = 0; i < VALUES; i++) {
		if (e->v[i] == INT64_MIN)
			continue;
		PL_TRY(pl_trace_batch_col(b, column[i].role, column[i].type, PL_NONE, &index, err));
		PL_TRY(pl_trace_col_put(&b->col[index], b->n, e->v[i], 0, err));
	}
	b->kind[b->n] = e->kind;
	b->track[b->n] = track;
	b->name[b->n] = e->name;
	b->ts[b->n] = e->start;
	b->dur[b->n] = e->end - e->start;
	if (++b->n == PL_BATCH_ROWS)
		rc = pass_on(t, err);
out:
	return rc;
}

static struct event blank(const struct timeline *t, uint8_t kind, pl_id name, pl_ns start,
			  pl_ns end)
{
	struct event e = { .kind = kind, .name = name, .start = start, .end = end };

	for (int i = 0; i < VALUES; i++)
		e.v[i] = INT64_MIN;
	if (pl_sim_reported(t->s, t->k) && !t->s->g->stepless)
		e.v[V_STEP] = t->s->g->step[t->k].number;
	return e;
}

static int put_wait(struct timeline *t, const struct lane *l, pl_id name, pl_ns from, pl_ns until,
		    struct pl_err *err)
{
	struct event e = blank(t, PL_K_WAIT, name, from, until);

	return until > from ? put(t, l->track, &e, err) : 0;
}

static int write_call(struct timeline *t, struct lane *l, struct pl_err *err)
{
	if (!l->pending)
		return 0;
	l->pending = false;
	return put(t, l->track, &l->call, err);
}

static bool is_launch(uint8_t type)
{
	return PL_E_TYPE(type) == PL_E_LAUNCH || PL_E_TYPE(type) == PL_E_EARLY;
}

/* The correlation of the node and the call that launched it; INT64_MIN: there is no call. */
static int64_t launched_by(const struct timeline *t, const struct pl_shape *sh, uint32_t i)
{
	for (uint32_t e = sh->off[i]; e < sh->off[i + 1]; e++)
		if (is_launch(sh->etype[e]) && t->launches[sh->src[e]])
			return (int64_t)(t->first + sh->src[e] + 1);
	return INT64_MIN;
}

static int event_of(struct timeline *t, const struct pl_shape *sh, uint32_t i, struct event *e,
		    struct pl_err *err)
{
	pl_ns start = t->r->start[t->k][i];

	*e = blank(t, sh->kind[i], PL_NONE, start, start + pl_sim_run_dur(t->s, t->r, t->k, i));
	if (sh->bytes && sh->bytes[i] >= 0)
		e->v[V_BYTES] = sh->bytes[i];
	if (sh->mb && sh->mb[i] >= 0)
		e->v[V_MB] = sh->mb[i];
	if (sh->chunk && sh->chunk[i] >= 0)
		e->v[V_CHUNK] = sh->chunk[i];
	if (sh->layer && sh->layer[i] >= 0)
		e->v[V_LAYER] = sh->layer[i];
	if (sh->peer && sh->peer[i] >= 0)
		e->v[V_PEER] = sh->peer[i];
	e->v[V_CORR] = t->launches[i] ? (int64_t)(t->first + i + 1) : launched_by(t, sh, i);
	return str_of(t, sh->name[i], &e->name, err);
}

/* Before the node: the wait of a host thread, the unexplained time of a device. */
static int put_before(struct timeline *t, const struct pl_shape *sh, uint32_t i, struct pl_err *err)
{
	struct lane *l = &t->lane[sh->res[i]];
	pl_ns start = t->r->start[t->k][i], at, gap;
	pl_id name = t->s_unexplained;
	uint32_t e;
	int rc;

	if (l->done == INT64_MIN || start <= l->done)
		return 0;
	if (t->s->g->res[sh->res[i]].track_type == PL_T_THREAD) {
		e = pl_sim_binding(t->s, t->r, t->k, i, &at);
		if (e != PL_NONE && (rc = wait_name(t, sh->name[sh->src[e]], &name, err)) < 0)
			return rc;
		return put_wait(t, l, name, l->done, start, err);
	}
	gap = pl_min_i64(pl_sim_unexplained(t->s, t->k, i), start - l->done);
	return gap < ROUNDING_NS ? 0 : put_wait(t, l, name, start - gap, start, err);
}

/* ---- communication --------------------------------------------------------------------------- */

static uint64_t *counter(struct timeline *t, uint32_t group)
{
	return &t->numbers[group == PL_NONE ? t->s->g->n_groups : group];
}

/* Number in the group, and the peer of a send or receive. */
static void number_transfer(struct timeline *t, const struct pl_shape *sh, uint32_t i,
			    struct event *e)
{
	uint32_t meet = pl_node_meeting(sh, i);
	/* without a rendezvous it may have left before the others came */
	uint32_t from = meet == PL_NONE ? pl_node_arrival(sh, i) : meet;
	uint32_t known = from == PL_NONE ? PL_NONE : t->number[from];

	e->v[V_SEQ] = known == PL_NONE ? (int64_t)(*counter(t, sh->group[i]))++ : known;
	if (meet == PL_NONE || sh->kind[i] == PL_K_COLLECTIVE || e->v[V_PEER] != INT64_MIN)
		return;
	for (uint32_t p = sh->off[meet]; p < sh->off[meet + 1]; p++) {
		int32_t rank = pl_node_rank(t->s->g, sh, sh->src[p]);

		if (rank >= 0 && rank != pl_node_rank(t->s->g, sh, i))
			e->v[V_PEER] = rank;
	}
}

/* A message of a collective: paceline-trace(5). */
static int put_message(struct timeline *t, const struct pl_shape *sh, uint32_t i,
		       struct pl_err *err)
{
	const char *name = pl_intern_get(&t->s->g->str, t->s->g->res[sh->res[i]].name);
	unsigned channel;
	struct event e;

	PL_CHECK(event_of(t, sh, i, &e, err));
	if (sh->group[i] != PL_NONE)
		e.v[V_GROUP] = t->group[sh->group[i]];
	if (t->number[i] != PL_NONE)
		e.v[V_OF] = t->number[i];
	if (sscanf(name, "channel %u", &channel) == 1)
		e.v[V_CHANNEL] = channel;
	return put(t, t->lane[sh->res[i]].track, &e, err);
}

static int put_transfer(struct timeline *t, const struct pl_shape *sh, uint32_t i,
			struct pl_err *err)
{
	unsigned coll = pl_node_coll(sh, i);
	struct lane *l = &t->lane[sh->res[i]];
	pl_id id;
	struct event e;

	PL_CHECK(event_of(t, sh, i, &e, err));
	number_transfer(t, sh, i, &e);
	if (sh->group[i] != PL_NONE) {
		e.v[V_GROUP] = t->group[sh->group[i]];
	} else if (e.kind == PL_K_COLLECTIVE) { /* or merge would look for partners */
		PL_CHECK(number_str(t, "alone on rank ", pl_node_rank(t->s->g, sh, i), &id, err));
		e.v[V_GROUP] = id;
	}
	if (coll != PL_COLL_OTHER) {
		PL_CHECK(str_add(t, pl_trace_coll_name(coll), &id, err));
		e.v[V_COLL] = id;
	}
	l->done = e.end;
	if (!l->arrived)
		return put(t, l->track, &e, err);
	l->arrived = false;
	if (l->corr != INT64_MIN)
		e.v[V_CORR] = l->corr;
	PL_CHECK(wait_name(t, sh->name[i], &id, err));
	pl_ns met = e.start;
	e.start = l->arrive;
	PL_CHECK(put(t, l->track, &e, err));
	return put_wait(t, l, id, l->arrive, met, err);
}

/* ---- nodes ----------------------------------------------------------------------------------- */

static void arrive(struct timeline *t, const struct pl_shape *sh, uint32_t i)
{
	struct lane *l = &t->lane[sh->res[i]];

	l->arrived = true;
	l->arrive = t->r->start[t->k][i];
	l->corr = launched_by(t, sh, i);
	l->done = pl_max_i64(l->done, l->arrive);
}

static int mark(struct timeline *t, const struct pl_shape *sh, uint32_t i, struct pl_err *err)
{
	struct lane *l = &t->lane[sh->res[i]];
	pl_ns at = t->r->start[t->k][i];
	struct event e = blank(t, PL_K_STEP, PL_NONE, l->step, at);

	if (sh->flags[i] & PL_NF_STEP_BEGIN) {
		l->step = at;
		return 0;
	}
	if (l->step == INT64_MIN || e.v[V_STEP] == INT64_MIN)
		return 0;
	PL_CHECK(number_str(t, "step ", e.v[V_STEP], &e.name, err));
	l->step = INT64_MIN;
	return put(t, l->track, &e, err);
}

/* The remainder of a call after its wait; the call was one event. */
static bool continues(const struct lane *l, const struct pl_shape *sh, uint32_t i)
{
	return l->pending && sh->role[i] == PL_RO_SYNC && l->call_name == sh->name[i] &&
	       l->call.kind == sh->kind[i];
}

static int one_node(struct timeline *t, const struct pl_shape *sh, uint32_t i, struct pl_err *err)
{
	struct lane *l = &t->lane[sh->res[i]];
	pl_ns start = t->r->start[t->k][i], end = start + pl_sim_run_dur(t->s, t->r, t->k, i), met;
	struct event e;

	if (pl_graph_hands_on(t->s->g, sh->res[i]))
		return 0;
	if (continues(l, sh, i)) {
		met = l->call.end;
		l->call.end = l->done = end;
		PL_CHECK(wait_name(t, sh->name[i], &e.name, err));
		PL_CHECK(write_call(t, l, err));
		return put_wait(t, l, e.name, met, start, err);
	}
	PL_CHECK(write_call(t, l, err));
	if (sh->flags[i] & PL_NF_MESSAGE)
		return put_message(t, sh, i, err);
	if (sh->role[i] == PL_RO_MARK)
		return mark(t, sh, i, err);
	if (sh->role[i] == PL_RO_TRANSFER)
		return put_transfer(t, sh, i, err);
	PL_CHECK(put_before(t, sh, i, err));
	if (sh->role[i] == PL_RO_ARRIVE) {
		arrive(t, sh, i);
		return 0;
	}
	l->done = end;
	if (sh->role[i] == PL_RO_GAP)
		return put_wait(t, l, t->s_gap, start, end, err);
	PL_CHECK(event_of(t, sh, i, &e, err));
	if (sh->role[i] != PL_RO_HOST)
		return put(t, l->track, &e, err);
	l->call = e;
	l->call_name = sh->name[i];
	l->pending = true;
	return 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* From another collective's message on the same link, or what an earlier step leaves. */
static bool from_another(const struct pl_shape *sh, uint32_t p)
{
	if (sh->src[p] < sh->n_entries)
		return true;
	return sh->flags[sh->src[p]] & PL_NF_MESSAGE && sh->etype[p] & PL_E_INFERRED &&
	       PL_E_TYPE(sh->etype[p]) != PL_E_DATA;
}

/* Arrivals, and messages from these on, have the number of their rendezvous. */
static void number_nodes(struct timeline *t, const struct pl_shape *sh)
{
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
		t->number[i] = PL_NONE;
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		if (sh->type[i] != PL_N_RENDEZVOUS || sh->role[i] == PL_RO_MARK)
			continue;
		t->number[i] = (uint32_t)(*counter(t, sh->group[i]))++;
		for (uint32_t p = sh->off[i]; p < sh->off[i + 1]; p++)
			t->number[sh->src[p]] = t->number[i];
	}
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
		for (uint32_t p = sh->off[i]; sh->flags[i] & PL_NF_MESSAGE && p < sh->off[i + 1];
		     p++)
			if (!from_another(sh, p) && t->number[sh->src[p]] != PL_NONE)
				t->number[i] = t->number[sh->src[p]];
}

/* Which calls launch something; numbers of the communications; where ranks begin and end the step.
 */
static void look_ahead(struct timeline *t, const struct pl_shape *sh)
{
	const struct pl_graph *g = t->s->g;

	memset(t->launches, 0, sh->n_nodes);
	for (uint32_t e = 0; e < sh->n_edges; e++)
		if (is_launch(sh->etype[e]) && sh->kind[sh->src[e]] == PL_K_RUNTIME)
			t->launches[sh->src[e]] = 1;
	for (size_t i = 0; i < (size_t)g->n_ranks; i++) {
		t->marked[i] = false;
		t->last[i] = INT64_MIN;
	}
	number_nodes(t, sh);
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++) {
		uint32_t rank;

		if (sh->res[i] == PL_NONE)
			continue;
		rank = pl_graph_rank_index(g, g->res[sh->res[i]].rank);
		if (rank == PL_NONE)
			continue;
		t->marked[rank] |= sh->role[i] == PL_RO_MARK;
		if (sh->flags[i] & PL_NF_IN_STEP)
			t->last[rank] = pl_max_i64(t->last[rank],
						   t->r->start[t->k][i] +
							   pl_sim_run_dur(t->s, t->r, t->k, i));
	}
}

/* Ranks without host threads have no marks: as for an operation table, a track of its own. */
static int unmarked_steps(struct timeline *t, struct pl_err *err)
{
	const struct pl_graph *g = t->s->g;
	struct event e = blank(t, PL_K_STEP, PL_NONE, t->r->step_start[t->k], 0);

	if (e.v[V_STEP] == INT64_MIN)
		return 0;
	PL_CHECK(number_str(t, "step ", e.v[V_STEP], &e.name, err));
	for (size_t i = 0; i < (size_t)g->n_ranks; i++) {
		struct pl_track k;

		if (t->marked[i] || t->last[i] < e.start)
			continue;
		if (t->step_track[i] == PL_NONE) {
			PL_CHECK(rank_track(t, &k, g->rank[i], err));
			k.type = PL_T_OTHER;
			k.sort = -1;
			PL_CHECK(str_add(t, "steps", &k.name, err));
			k.tid = k.name;
			PL_CHECK(pl_trace_segment_track(&t->seg, &k, &t->step_track[i], err));
		}
		e.end = t->last[i];
		PL_CHECK(put(t, t->step_track[i], &e, err));
	}
	return 0;
}

static int one_step(struct timeline *t, struct pl_err *err)
{
	const struct pl_shape *sh = &t->s->g->shape[t->s->g->step[t->k].shape];

	look_ahead(t, sh);
	PL_CHECK(unmarked_steps(t, err));
	for (uint32_t i = sh->n_entries; i < sh->n_nodes; i++)
		if (sh->res[i] != PL_NONE)
			PL_CHECK(one_node(t, sh, i, err));
	t->first += sh->n_nodes;
	return 0;
}

/* ---- the whole ------------------------------------------------------------------------------- */

static int init(struct timeline *t, struct pl_err *err)
{
	const struct pl_graph *g = t->s->g;
	size_t most = pl_sim_longest_step(t->s);

	PL_CHECK(pl_trace_segment_init(&t->seg, err));
	PL_CHECK(pl_trace_batch_init(&t->b, err));
	PL_CHECK(pl_alloc(&t->lane, g->n_res, sizeof(*t->lane), err));
	PL_CHECK(pl_alloc(&t->str, g->str.n, sizeof(*t->str), err));
	PL_CHECK(pl_alloc(&t->wait, g->str.n, sizeof(*t->wait), err));
	PL_CHECK(pl_alloc(&t->group, g->n_groups, sizeof(*t->group), err));
	PL_CHECK(pl_alloc(&t->numbers, g->n_groups + 1, sizeof(*t->numbers), err));
	PL_CHECK(pl_alloc(&t->launches, most, 1, err));
	PL_CHECK(pl_alloc(&t->number, most, sizeof(*t->number), err));
	PL_CHECK(pl_alloc(&t->marked, (size_t)g->n_ranks, sizeof(*t->marked), err));
	PL_CHECK(pl_alloc(&t->last, (size_t)g->n_ranks, sizeof(*t->last), err));
	PL_CHECK(pl_alloc(&t->step_track, (size_t)g->n_ranks, sizeof(*t->step_track), err));
	memset(t->str, 0xff, g->str.n * sizeof(*t->str));
	memset(t->wait, 0xff, g->str.n * sizeof(*t->wait));
	memset(t->step_track, 0xff, (size_t)g->n_ranks * sizeof(*t->step_track));
	pl_free(t->seg.format);
	t->seg.format = pl_strdup("replay");
	if (!t->seg.format)
		return pl_fail(err, PL_ENOMEM, "out of memory");
	t->seg.base_ns = g->epoch_ns;
	PL_CHECK(pl_buf_put(&t->seg.provenance, g->provenance.p, g->provenance.n, err));
	PL_CHECK(str_add(t, "host gap", &t->s_gap, err));
	PL_CHECK(str_add(t, "unexplained", &t->s_unexplained, err));
	for (uint32_t i = 0; i < g->n_res; i++)
		PL_CHECK(add_track(t, i, err));
	for (size_t i = 0; i < g->n_groups; i++)
		PL_CHECK(add_group(t, i, err));
	return 0;
}

static void fini(struct timeline *t)
{
	pl_trace_segment_fini(&t->seg);
	pl_trace_batch_fini(&t->b);
	pl_free(t->lane);
	pl_free(t->str);
	pl_free(t->wait);
	pl_free(t->group);
	pl_free(t->numbers);
	pl_free(t->launches);
	pl_free(t->number);
	pl_free(t->marked);
	pl_free(t->last);
	pl_free(t->step_track);
}

int pl_sim_timeline(const struct pl_sim *s, const struct pl_run *r, struct pl_sink *sink,
		    struct pl_err *err)
{
	struct timeline t = { .s = s, .r = r, .sink = sink };
	int rc;

	PL_TRY(init(&t, err));
	if (sink->begin)
		PL_TRY(sink->begin(sink, &t.seg, err));
	for (t.k = 0; t.k < s->g->n_steps; t.k++)
		PL_TRY(one_step(&t, err));
	t.k = s->g->n_steps ? s->g->n_steps - 1 : 0;
	for (uint32_t i = 0; i < s->g->n_res; i++)
		PL_TRY(write_call(&t, &t.lane[i], err));
	PL_TRY(pass_on(&t, err));
	if (sink->end)
		PL_TRY(sink->end(sink, &t.seg, err));
out:
	fini(&t);
	return rc;
}
