/*
 * Groups that are not recorded: which ranks took part in the same collectives?
 *
 * Events keep their order on a stream (a communicator has its own), or over all host threads of a
 * rank. Such a stream is one rank's part of a group. Streams with mostly the same operations are
 * clustered by how closely their ends agree (cluster.c). A stream may serve several groups, so
 * streams that fit nowhere are split by operation and tried again.
 *
 * Streams of few events come last, because their times can be compared only after clocks were
 * estimated from the others. Exchanges between neighbours may be sent on one stream and received on
 * another, so such streams are clustered first, across stream numbers. All streams with one number
 * are then divided at once, into the most likely division (layout.c). Those with most events come
 * first, because their matches join more clocks. Streams without a regular layout are clustered as
 * above.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock/cluster.h"
#include "clock/layout.h"

/* ---- from clusters to groups -------------------------------------------------------------------
 */

static int put_group(struct pl_clusters *c, uint32_t g, struct pl_err *err)
{
	struct pl_align *a = c->a;
	struct pl_seq *s = NULL;
	uint32_t n = 0, group;
	char name[32];
	int len, rc;

	len = snprintf(name, sizeof(name), "inferred%u", a->n_inferred++);
	PL_TRY(pl_alloc(&s, c->size[g], sizeof(*s), err));
	PL_TRY(pl_clock_add_group(a, name, (size_t)len, PL_GROUP_INFERRED, &group, err));
	for (uint32_t i = 0; i < c->n; i++) {
		if (c->v[i].cluster != g)
			continue;
		s[n++] = c->v[i].s;
		PL_TRY(pl_clock_add_rank(&a->group[group], c->v[i].s.rank, err));
	}
	PL_TRY(pl_clock_by_order(a, group, s, n, err));
out:
	pl_free(s);
	return rc;
}

PL_COMPARATOR(by_operation, struct pl_clock_node, mode, stream, s.rank, comm_stream);

struct clock_knowledge { /* NULL: no clock is estimated yet */
	struct pl_merge *m;
	struct pl_partitions is;
	bool across; /* only groups of streams on different streams, which no stream shows */
};

/* Does the cluster have streams on different streams, and enough events to show that? */
static bool is_across(const struct pl_clusters *c, uint32_t g)
{
	const struct pl_clock_node *first = &c->v[c->leader[g]];

	for (uint32_t i = 0; i < c->n; i++)
		if (c->v[i].cluster == g && c->v[i].stream != first->stream)
			return first->s.n >= PL_SEQ_PAIRS;
	return false;
}

/* Groups of two streams and more; the others are left at the front of c->v: their number. */
static int put_groups(struct pl_clusters *c, bool across, uint32_t *left, struct pl_err *err)
{
	int rc = 0;

	for (uint32_t g = 0; g < c->n_clusters; g++) {
		if (c->size[g] > 1 && (!across || is_across(c, g)))
			PL_TRY(put_group(c, g, err));
		else
			c->size[g] = 1;
	}
	for (uint32_t i = 0; i < c->n; i++)
		if (c->size[c->v[i].cluster] == 1)
			c->v[(*left)++] = c->v[i];
out:
	return rc;
}

/* Nodes v[0..n) do mostly the same. */
static int infer_bucket(struct pl_align *a, struct clock_knowledge *k, struct pl_clock_node *v,
			uint32_t n, uint32_t *left, struct pl_err *err)
{
	struct pl_clusters c = { .a = a, .v = v, .n = n };
	uint32_t changed;
	int rc;

	*left = 0;
	c.clock = k ? k->is.clock : NULL;
	c.component = k ? k->is.component : NULL;
	PL_TRY(pl_clock_clusters_find(&c, err));
	if (!k)
		PL_TRY(pl_clock_clusters_regularize(&c, err));
	PL_TRY(pl_clock_clusters_listed(&c, &changed, err));
	a->rep->doubtful += changed;
	if (!k && !a->n_listed)
		a->rep->doubtful += pl_clock_clusters_doubtful(&c);
	PL_TRY(put_groups(&c, k && k->across, left, err));
out:
	pl_clock_clusters_fini(&c);
	return rc;
}

/* ---- few events --------------------------------------------------------------------------------
 */

/* Streams that could share a group, by number. */
static void classify(const struct pl_align *a, const struct pl_clock_node *v, uint32_t n,
		     uint32_t *class)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t k = 0;

		while (k < i && (class[k] != k || !pl_clock_seq_alike(a, &v[k].s, &v[i].s, 0)))
			k++;
		class[i] = k;
	}
}

static uint32_t node_of(const struct pl_clock_node *v, uint32_t n, int32_t rank)
{
	uint32_t i = 0; /* by rank */

	PL_LOWER_BOUND(i, n, v[i].s.rank < rank);
	return i < n && v[i].s.rank == rank ? i : PL_NONE;
}

/* Streams whose ranks send to each other, directly or through other ranks, get the same number. */
static void find_stages(const struct pl_align *a, const struct pl_clock_node *v, uint32_t n,
			uint32_t *stages)
{
	for (uint32_t i = 0; i < n; i++)
		stages[i] = i;
	for (size_t i = 0; i < a->n_matches; i++) {
		const struct pl_cmatch *m = &a->match[i];
		uint32_t p, q;

		if (m->group != PL_NONE || m->n < 2)
			continue;
		p = node_of(v, n, a->ev[a->member[m->first]].rank);
		q = node_of(v, n, a->ev[a->member[m->first + 1]].rank);
		if (p != PL_NONE && q != PL_NONE)
			pl_union_join(stages, p, q);
	}
	for (uint32_t i = 0; i < n; i++)
		stages[i] = pl_union_root(stages, i);
}

/* Nodes v[0..n) are of one stream, one a rank, and do mostly the same: divide them at once. */
static int infer_stream(struct pl_align *a, struct clock_knowledge *k, struct pl_clock_node *v,
			uint32_t n, uint32_t *left, struct pl_err *err)
{
	struct pl_clusters c = { .a = a, .v = v, .n = n };
	struct pl_layout l = { 0 };
	const struct pl_seq **comm_stream = NULL;
	uint32_t *group = NULL, *class = NULL, *stages = NULL, n_groups, changed;
	bool doubtful;
	int rc;

	c.clock = k->is.clock;
	c.component = k->is.component;
	PL_TRY(pl_alloc(&comm_stream, n, sizeof(*comm_stream), err));
	PL_TRY(pl_alloc(&group, n, sizeof(*group), err));
	PL_TRY(pl_alloc(&class, n, sizeof(*class), err));
	PL_TRY(pl_alloc(&stages, n, sizeof(*stages), err));
	PL_TRY(pl_clock_clusters_find(&c, err));
	for (uint32_t i = 0; i < n; i++) {
		comm_stream[i] = &v[i].s;
		stages[i] = v[i].cluster;
	}
	n_groups = pl_clock_layout_number(stages, n, group);
	classify(a, v, n, class);
	find_stages(a, v, n, stages);
	PL_TRY(pl_clock_layout_init(&l, a, &k->is, comm_stream, n, err));
	PL_TRY(pl_clock_layout_choose(&l, class, stages, group, &n_groups, &doubtful, err));
	memset(c.size, 0, 2u * (size_t)n * sizeof(*c.size));
	c.n_clusters = n_groups;
	for (uint32_t i = 0; i < n; i++)
		c.size[v[i].cluster = group[i]]++;
	PL_TRY(pl_clock_clusters_listed(&c, &changed, err));
	if (!a->n_listed && !doubtful)
		a->rep->doubtful += pl_clock_clusters_doubtful(&c);
	for (uint32_t g = 0; g < c.n_clusters && doubtful; g++)
		a->rep->doubtful += c.size[g] > 1;
	if (!doubtful)
		a->rep->doubtful += changed;
	PL_TRY(put_groups(&c, false, left, err));
out:
	pl_clock_layout_fini(&l);
	pl_clock_clusters_fini(&c);
	pl_free(comm_stream);
	pl_free(group);
	pl_free(class);
	pl_free(stages);
	return rc;
}

struct run { /* nodes of one operation and stream */
	uint32_t at, n;
	uint64_t events;
};

static int by_events(const void *x, const void *y)
{
	const struct run *p = x, *q = y;
	int c = PL_COMPARE(q->events, p->events);

	return c ? c : PL_COMPARE(p->at, q->at);
}

static struct run run_at(const struct pl_clock_node *v, uint32_t i, uint32_t n)
{
	struct run r = { .at = i };

	for (; i < n && v[i].mode == v[r.at].mode && v[i].stream == v[r.at].stream; i++) {
		r.events += v[i].s.n;
		r.n++;
	}
	return r;
}

static bool is_plain(const struct pl_clock_node *v, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++)
		if (v[i].s.rank == v[i - 1].s.rank)
			return false;
	return n > 1;
}

/* Divide the sorted nodes v[0..n) stream by stream. Those left come to the front: their number. */
static int infer_streams(struct pl_align *a, struct clock_knowledge *k, struct pl_clock_node *v,
			 uint32_t n, uint32_t *left, struct pl_err *err)
{
	struct run *run = NULL;
	uint32_t runs = 0;
	struct pl_clock_node *kept = NULL;
	int rc;

	*left = 0;
	PL_TRY(pl_alloc(&run, n + 1u, sizeof(*run), err));
	PL_TRY(pl_alloc(&kept, n + 1u, sizeof(*kept), err));
	for (uint32_t i = 0; i < n; i += run[runs++].n)
		run[runs] = run_at(v, i, n);
	qsort(run, runs, sizeof(*run), by_events);
	for (uint32_t i = 0; i < runs; i++) {
		uint32_t alone = run[i].n;

		if (is_plain(v + run[i].at, run[i].n)) {
			alone = 0;
			PL_TRY(pl_clock_partitions(a, k->m, &k->is, err));
			PL_TRY(infer_stream(a, k, v + run[i].at, run[i].n, &alone, err));
		}
		memcpy(kept + *left, v + run[i].at, alone * sizeof(*v));
		*left += alone;
	}
	memcpy(v, kept, *left * sizeof(*v));
	PL_TRY(pl_clock_partitions(a, k->m, &k->is, err));
out:
	pl_free(run);
	pl_free(kept);
	return rc;
}

/* ---- streams
 * -------------------------------------------------------------------------------------
 */

struct item {
	uint32_t comm_stream, ev;
	pl_id name;
};

PL_COMPARATOR(by_comm_stream, struct item, comm_stream, ev);

PL_COMPARATOR(by_stream_name, struct item, comm_stream, name, ev);

static pl_id mode_of(const struct item *v, uint32_t n, pl_id *tmp)
{
	uint32_t most = 0;
	pl_id mode = PL_NONE;

	for (uint32_t i = 0; i < n; i++)
		tmp[i] = v[i].name;
	qsort(tmp, n, sizeof(*tmp), pl_compare_u32);
	for (uint32_t i = 0, k; i < n; i = k) {
		for (k = i + 1; k < n && tmp[k] == tmp[i];)
			k++;
		if (k - i > most) {
			most = k - i;
			mode = tmp[i];
		}
	}
	return mode;
}

struct work {
	struct item *item;
	struct pl_clock_node *node;
	uint32_t *ev, *to;
	pl_id *tmp;
};

/* Cut the sorted items into nodes: by stream, or by stream and operation. */
static uint32_t make_nodes(const struct pl_align *a, struct work *w, uint32_t n, bool names)
{
	uint32_t nodes = 0;

	for (uint32_t i = 0, k; i < n; i = k) {
		const struct item *p = &w->item[i];
		struct pl_clock_node *o = &w->node[nodes++];

		for (k = i; k < n && w->item[k].comm_stream == p->comm_stream &&
			    (!names || w->item[k].name == p->name);
		     k++)
			w->ev[k] = w->item[k].ev;
		*o = (struct pl_clock_node){
			.s = { w->ev + i, k - i, a->ev[p->ev].rank, w->to + i },
			.comm_stream = p->comm_stream,
			.stream = a->comm_stream[p->comm_stream].stream,
			.mode = mode_of(p, k - i, w->tmp),
		};
	}
	qsort(w->node, nodes, sizeof(*w->node), by_operation);
	return nodes;
}

/* Items of the nodes that found no group, for another round. */
static uint32_t take_items(const struct pl_align *a, struct work *w, uint32_t nodes)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < nodes; i++)
		for (uint32_t k = 0; k < w->node[i].s.n; k++) {
			uint32_t e = w->node[i].s.ev[k];

			w->item[n++] = (struct item){ a->ev[e].comm_stream, e, a->ev[e].name };
		}
	return n;
}

/* Groups the streams of w->item; streams that fit no group stay there. */
static int infer_round(struct pl_align *a, struct clock_knowledge *known, struct work *w,
		       uint32_t *n, bool names, struct pl_err *err)
{
	uint32_t nodes, kept = 0;
	int rc = 0;

	qsort(w->item, *n, sizeof(*w->item), names ? by_stream_name : by_comm_stream);
	nodes = make_nodes(a, w, *n, names);
	for (uint32_t i = 0, k, left; i < nodes; i = k) {
		for (k = i + 1; k < nodes && w->node[k].mode == w->node[i].mode;)
			k++;
		PL_TRY(infer_bucket(a, known, w->node + i, k - i, &left, err));
		memmove(w->node + kept, w->node + i, left * sizeof(*w->node));
		kept += left;
	}
	*n = take_items(a, w, kept);
out:
	return rc;
}

/* Streams whose partners are not in the input: a group each, of one known rank. */
static int put_unmatched(struct pl_align *a, struct work *w, uint32_t n, struct pl_err *err)
{
	uint32_t nodes, size = 1;
	int rc = 0;

	qsort(w->item, n, sizeof(*w->item), by_comm_stream);
	nodes = make_nodes(a, w, n, false);
	for (uint32_t i = 0; i < nodes; i++) {
		struct pl_clusters c = { .a = a, .v = &w->node[i], .n = 1, .size = &size };

		PL_TRY(put_group(&c, 0, err));
	}
out:
	return rc;
}

/* The same for streams of few events. */
static int infer_short_round(struct pl_align *a, struct clock_knowledge *known, struct work *w,
			     uint32_t *n, bool names, struct pl_err *err)
{
	uint32_t nodes, kept;
	int rc = 0;

	qsort(w->item, *n, sizeof(*w->item), names ? by_stream_name : by_comm_stream);
	nodes = make_nodes(a, w, *n, names);
	PL_TRY(infer_streams(a, known, w->node, nodes, &kept, err));
	*n = take_items(a, w, kept);
out:
	return rc;
}

/* Streams of exchanges come to the front: their number. */
static uint32_t exchanges_first(const struct pl_align *a, struct item *v, uint32_t n)
{
	pl_id both = pl_intern_find(&a->str, "sendrecv", sizeof("sendrecv") - 1);
	uint32_t k = 0;

	for (uint32_t i = 0; i < n && both != PL_NONE; i++) {
		struct item it = v[i];

		if (a->ev[it.ev].coll != both)
			continue;
		v[i] = v[k];
		v[k++] = it;
	}
	return k;
}

static int infer_exchanges(struct pl_align *a, struct clock_knowledge *known, struct work *w,
			   uint32_t *n, struct pl_err *err)
{
	uint32_t before = exchanges_first(a, w->item, *n), after = before;
	int rc = 0;

	if (!before)
		return 0;
	known->across = true;
	PL_TRY(pl_clock_partitions(a, known->m, &known->is, err));
	PL_TRY(infer_round(a, known, w, &after, true, err));
	memmove(w->item + after, w->item + before, (*n - before) * sizeof(*w->item));
	*n -= before - after;
out:
	known->across = false;
	return rc;
}

static int infer_all(struct pl_align *a, struct clock_knowledge *known, struct work *w, uint32_t n,
		     struct pl_err *err)
{
	int rc = 0;

	if (known) {
		PL_TRY(infer_exchanges(a, known, w, &n, err));
		PL_TRY(infer_short_round(a, known, w, &n, false, err));
		PL_TRY(infer_short_round(a, known, w, &n, true, err));
	}
	PL_TRY(infer_round(a, known, w, &n, false, err));
	PL_TRY(infer_round(a, known, w, &n, true, err));
	PL_TRY(put_unmatched(a, w, n, err));
out:
	return rc;
}

/* Items of the streams that are long enough (or not) to show a scatter of ends. */
static uint32_t pick_streams(const struct pl_align *a, struct work *w, const uint32_t *idx,
			     uint32_t n, uint32_t *count, bool is_short)
{
	uint32_t k = 0;

	memset(count, 0, a->comm_stream_key.n * sizeof(*count));
	for (uint32_t i = 0; i < n; i++)
		count[a->ev[idx[i]].comm_stream]++;
	for (uint32_t i = 0; i < n; i++) {
		const struct pl_comm *e = &a->ev[idx[i]];

		if ((count[e->comm_stream] < PL_SEQ_SHORT) == is_short)
			w->item[k++] = (struct item){ e->comm_stream, idx[i], e->name };
	}
	return k;
}

static int infer(struct pl_align *a, struct clock_knowledge *known, const uint32_t *idx, uint32_t n,
		 struct pl_err *err)
{
	struct work w = { 0 };
	uint32_t *count = NULL;
	int rc;

	if (!n)
		return 0;
	PL_TRY(pl_alloc(&w.item, n, sizeof(*w.item), err));
	PL_TRY(pl_alloc(&w.node, n, sizeof(*w.node), err));
	PL_TRY(pl_alloc(&w.ev, n, sizeof(*w.ev), err));
	PL_TRY(pl_alloc(&w.to, n, sizeof(*w.to), err));
	PL_TRY(pl_alloc(&w.tmp, n, sizeof(*w.tmp), err));
	PL_TRY(pl_alloc(&count, a->comm_stream_key.n + 1, sizeof(*count), err));
	n = pick_streams(a, &w, idx, n, count, known != NULL);
	PL_TRY(infer_all(a, known, &w, n, err));
out:
	pl_free(w.item);
	pl_free(w.node);
	pl_free(w.ev);
	pl_free(w.to);
	pl_free(w.tmp);
	pl_free(count);
	return rc;
}

int pl_clock_infer_long(struct pl_align *a, const uint32_t *idx, uint32_t n, struct pl_err *err)
{
	return infer(a, NULL, idx, n, err);
}

int pl_clock_infer_short(struct pl_align *a, struct pl_merge *m, const uint32_t *idx, uint32_t n,
			 struct pl_err *err)
{
	struct clock_knowledge known = { .m = m };
	int rc;

	PL_TRY(infer(a, &known, idx, n, err));
out:
	pl_clock_partitions_fini(&known.is);
	return rc;
}
