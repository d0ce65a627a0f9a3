/*
 * A graph as Chakra execution traces, one file for each rank, as ASTRA-sim reads them.
 *
 * A node becomes a node, but an arrival and its transfer are one node of communication, and a
 * rendezvous is none: the simulator lets the members meet. All dependencies are data_deps, because
 * ASTRA-sim waits for these alone. They mean "after the end". An edge that means "not before the
 * start" becomes the dependencies of its source. The nodes are in topological order, so a
 * dependency always comes before, and there is no cycle. A later step follows the one before it
 * resource by resource.
 *
 * Durations are microseconds, so times are rounded before they are subtracted: the sum over a
 * resource stays right. The exact times stand in attributes. O(nodes + edges) of a step, of which
 * only the rank's are written.
 */
#include "core/sort.h"
#include "graph/chakra.h"
#include "io/pb.h"

struct list { /* dependencies of a node: in the pool */
	size_t at;
	uint32_t n;
};
struct writing {
	const struct pl_graph *g;
	const struct pl_shape *s;
	const struct pl_gstep *step;
	int32_t rank;
	struct pl_writer w;
	struct pl_out *out;
	struct pl_chakra_lost *lost;
	uint64_t *id;	   /* [node] of the step, 0: none */
	struct list *list; /* [node] */
	size_t cap_id, cap_list;
	uint64_t *pool;
	size_t n_pool, cap_pool;
	uint64_t *last;	       /* [resource]: its last node so far */
	bool *world;	       /* [group]: does it have all ranks? Such a one needs no name */
	uint64_t next, groups; /* groups: id of the node that describes them, 0 none */
	uint32_t tags;	       /* numbers for communication of the steps before */
};

/* ---- attributes ---------------------------------------------------------------------------- */

static void put_attr(struct pl_writer *w, uint32_t field, const char *name, uint32_t type,
		     int64_t v, const char *text)
{
	size_t at = pl_pb_open(w, field);

	pl_pb_bytes(w, PL_CK_A_NAME, name, strlen(name));
	if (text)
		pl_pb_bytes(w, PL_CK_A_STRING, text, strlen(text));
	else
		pl_pb_varint(w, type, (uint64_t)v);
	pl_pb_close(w, at);
}

static void put_int(struct writing *x, const char *name, uint32_t type, int64_t v)
{
	put_attr(&x->w, PL_CK_ATTR, name, type, v, NULL);
}

/* A message after its length. The writer holds nothing else. */
static void give(struct writing *x)
{
	uint8_t head[10], *q = head;
	uint64_t n = x->w.b.n;

	for (; n >= 0x80; n >>= 7)
		*q++ = (uint8_t)(n | 0x80);
	*q++ = (uint8_t)n;
	if (!x->w.fail.code && pl_out_write(x->out, head, (size_t)(q - head), &x->w.fail) >= 0)
		(void)!pl_out_write(x->out, x->w.b.p, x->w.b.n, &x->w.fail);
	x->w.b.n = 0;
}

static int failed(struct writing *x, struct pl_err *err)
{
	return pl_write_check(&x->w, err);
}

/* ---- communication ------------------------------------------------------------------------- */

static const uint8_t numbers[] = {
	/* by number in Chakra */
	PL_COLL_ALLREDUCE,	PL_COLL_REDUCE,	   PL_COLL_ALLGATHER, PL_COLL_GATHER,
	PL_COLL_SCATTER,	PL_COLL_BROADCAST, PL_COLL_ALLTOALL,  PL_COLL_REDUCE_SCATTER,
	PL_COLL_REDUCE_SCATTER, PL_COLL_BARRIER,
};

int pl_graph_chakra_coll(unsigned coll)
{
	for (size_t i = 0; i < PL_LEN(numbers); i++)
		if (numbers[i] == coll)
			return (int)i;
	return -1;
}

unsigned pl_graph_coll_of_chakra(int64_t number)
{
	return number >= 0 && number < (int64_t)PL_LEN(numbers) ? numbers[number] : PL_COLL_OTHER;
}

static bool is_world(const struct writing *x, uint32_t group)
{
	return group == PL_NONE || x->world[group];
}

/* Compare the members of the groups with the ranks. */
static int find_worlds(struct writing *x, struct pl_err *err)
{
	const struct pl_graph *g = x->g;

	PL_CHECK(pl_alloc(&x->world, g->n_groups, sizeof(*x->world), err));
	x->lost->groups = 0;
	for (size_t i = 0; i < g->n_groups; i++) {
		const struct pl_ggroup *group = &g->group[i];
		uint32_t here = 0;

		for (uint32_t k = 0; k < group->n; k++)
			here += pl_graph_rank_index(g, (int32_t)g->group_rank[group->rank + k]) !=
				PL_NONE;
		x->world[i] = here == group->n && here == (uint32_t)g->n_ranks;
		x->lost->groups += here && here < group->n;
	}
	return 0;
}

/* ASTRA-sim reads the groups as PyTorch describes them: ['[{"pg_name": "1", "ranks": [0, 2]}]'],
 * and wants numbers as names. Group i has the name i + 1. */
static void put_groups(struct writing *x)
{
	const struct pl_graph *g = x->g;
	struct pl_writer text = { 0 };
	size_t at, n = 0;

	for (uint32_t i = 0; i < g->n_groups; i++) {
		if (is_world(x, i) || !g->group[i].n)
			continue;
		pl_write_format(&text, "%s{\"pg_name\": \"%u\", \"ranks\": [", n++ ? ", " : "['[",
				i + 1);
		for (uint32_t k = 0; k < g->group[i].n; k++)
			pl_write_format(&text, "%s%u", k ? ", " : "",
					g->group_rank[g->group[i].rank + k]);
		pl_write_text(&text, "]}");
	}
	pl_write_text(&text, "]']");
	if (n) {
		x->groups = x->next++;
		pl_pb_varint(&x->w, PL_CK_ID, x->groups);
		pl_pb_bytes(&x->w, PL_CK_NAME, "## process_group:init ##", 24);
		pl_pb_varint(&x->w, PL_CK_TYPE, PL_CK_METADATA);
		at = pl_pb_open(&x->w, PL_CK_INPUTS);
		pl_pb_bytes(&x->w, PL_CK_IO_VALUES, text.b.p, text.b.n);
		pl_pb_close(&x->w, at);
		give(x);
	}
	pl_write_fini(&text);
}

/* The other side of a send or receive: that of the meeting. */
static int32_t peer_of(const struct writing *x, uint32_t i)
{
	const struct pl_shape *s = x->s;
	uint32_t meet = pl_node_meeting(s, i);

	for (uint32_t e = meet == PL_NONE ? 0 : s->off[meet];
	     meet != PL_NONE && e < s->off[meet + 1]; e++) {
		int32_t rank = pl_node_rank(x->g, s, s->src[e]);

		if (rank >= 0 && rank != x->rank)
			return rank;
	}
	return s->peer ? s->peer[i] : -1;
}

static unsigned type_of(struct writing *x, uint32_t i)
{
	unsigned coll = pl_node_coll(x->s, i);

	if (x->s->role[i] != PL_RO_TRANSFER)
		return PL_CK_COMP;
	if ((coll == PL_COLL_SEND || coll == PL_COLL_RECV) && peer_of(x, i) >= 0)
		return coll == PL_COLL_SEND ? PL_CK_SEND : PL_CK_RECV;
	if (pl_graph_chakra_coll(coll) >= 0)
		return PL_CK_COLL;
	x->lost->comms++;
	return PL_CK_COMP;
}

static void put_communication(struct writing *x, uint32_t i, unsigned type)
{
	const struct pl_shape *s = x->s;
	const struct pl_gcomm *c = pl_node_comm(s, i);
	int64_t bytes = c && c->bytes > 0	      ? c->bytes
			: s->bytes && s->bytes[i] > 0 ? s->bytes[i]
						      : 1;
	uint32_t group = s->group[i] != PL_NONE ? s->group[i] : c ? c->group : PL_NONE;
	uint32_t meet = pl_node_meeting(s, i);
	char name[16];

	put_int(x, "comm_size", PL_CK_A_INT64, bytes);
	if (type == PL_CK_COLL) {
		put_int(x, "comm_type", PL_CK_A_INT64, pl_graph_chakra_coll(pl_node_coll(s, i)));
		if (is_world(x, group))
			return;
		snprintf(name, sizeof(name), "%u", group + 1);
		put_attr(&x->w, PL_CK_ATTR, "pg_name", 0, 0, name);
		return;
	}
	put_int(x, "comm_src", PL_CK_A_INT32, type == PL_CK_SEND ? x->rank : peer_of(x, i));
	put_int(x, "comm_dst", PL_CK_A_INT32, type == PL_CK_SEND ? peer_of(x, i) : x->rank);
	/* one number for both sides, which have the same meeting in the same step */
	put_int(x, "comm_tag", PL_CK_A_INT32,
		(int64_t)(x->tags + (meet != PL_NONE ? meet : s->n_nodes)) & INT32_MAX);
}

/* ---- dependencies -------------------------------------------------------------------------- */

static int depend(struct writing *x, uint64_t id, struct pl_err *err)
{
	return pl_append(&x->pool, &x->n_pool, &x->cap_pool, &id, sizeof(id), err);
}

static int depend_as(struct writing *x, uint32_t node, struct pl_err *err)
{
	const struct list l = x->list[node];

	for (uint32_t k = 0; k < l.n; k++)
		PL_CHECK(depend(x, x->pool[l.at + k], err));
	return 0;
}

static bool is_mine(const struct writing *x, uint32_t node)
{
	return pl_node_rank(x->g, x->s, node) == x->rank;
}

/* Node i comes after node p. */
static int after(struct writing *x, uint32_t i, uint32_t p, unsigned type, struct pl_err *err)
{
	const struct pl_shape *s = x->s;

	if (s->type[p] == PL_N_RENDEZVOUS) {
		/* the members of a communication meet in the simulator; others meet unrecorded */
		for (uint32_t e = s->off[p]; s->role[i] != PL_RO_TRANSFER && e < s->off[p + 1]; e++)
			if (is_mine(x, s->src[e]))
				PL_CHECK(after(x, i, s->src[e], s->etype[e], err));
			else
				x->lost->edges++;
		return 0;
	}
	if (!is_mine(x, p)) {
		x->lost->edges++;
		return 0;
	}
	type = PL_E_TYPE(type);
	if (type == PL_E_START || type == PL_E_EARLY || !x->id[p])
		return depend_as(x, p, err);
	return depend(x, x->id[p], err);
}

/* Sort the dependencies from `at` on, each once. */
static void settle(struct writing *x, uint32_t i, size_t at)
{
	size_t n = 0;

	if (x->n_pool > at)
		pl_sort(x->pool + at, x->n_pool - at, sizeof(*x->pool), pl_compare_i64);
	for (size_t k = at; k < x->n_pool; k++)
		if (!n || x->pool[k] != x->pool[at + n - 1])
			x->pool[at + n++] = x->pool[k];
	x->n_pool = at + n;
	x->list[i] = (struct list){ at, (uint32_t)n };
}

static int dependencies(struct writing *x, uint32_t i, struct pl_err *err)
{
	const struct pl_shape *s = x->s;
	size_t at = x->n_pool;
	uint32_t res = s->res[i];

	for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
		PL_CHECK(after(x, i, s->src[e], s->etype[e], err));
	if (x->n_pool == at && (x->last[res] || x->groups))
		PL_CHECK(depend(x, x->last[res] ? x->last[res] : x->groups, err));
	settle(x, i, at);
	return 0;
}

/* ---- nodes --------------------------------------------------------------------------------- */

static void put_times(struct writing *x, uint32_t i)
{
	int64_t start = pl_add_sat(x->g->epoch_ns, x->step->start[i]), us = start / 1000;
	int64_t end = pl_add_sat(start, x->step->dur[i]) / 1000;

	pl_pb_varint(&x->w, PL_CK_START_US, us > 0 ? (uint64_t)us : 0);
	pl_pb_varint(&x->w, PL_CK_DUR_US, end > us ? (uint64_t)(end - us) : 0);
}

static void put_work(struct writing *x, uint32_t i)
{
	const struct pl_shape *s = x->s;
	const struct pl_gwork *work =
		s->work && s->work[i] != PL_NONE ? &x->g->work[s->work[i]] : NULL;

	/* of the types in which the feeder of Chakra reads them */
	if (work && work->flops > 0)
		put_int(x, "num_ops", PL_CK_A_INT64, work->flops);
	if (work && work->bytes > 0)
		put_int(x, "tensor_size", PL_CK_A_UINT64, work->bytes);
	else if (s->role[i] == PL_RO_COPY && s->bytes && s->bytes[i] > 0)
		put_int(x, "tensor_size", PL_CK_A_UINT64, s->bytes[i]);
}

static int put_node(struct writing *x, uint32_t i, struct pl_err *err)
{
	const struct pl_shape *s = x->s;
	const struct pl_resource *r = &x->g->res[s->res[i]];
	const char *name = pl_intern_get(&x->g->str, s->name[i]);
	unsigned type = type_of(x, i);
	bool host = r->track_type != PL_T_STREAM && r->track_type != PL_T_COPY_ENGINE;
	const struct list l = x->list[i];
	size_t at;

	x->id[i] = x->last[s->res[i]] = x->next++;
	pl_pb_varint(&x->w, PL_CK_ID, x->id[i]);
	pl_pb_bytes(&x->w, PL_CK_NAME, name, strlen(name));
	pl_pb_varint(&x->w, PL_CK_TYPE, type);
	at = pl_pb_open(&x->w, PL_CK_DATA_DEPS); /* packed */
	for (uint32_t k = 0; k < l.n; k++)
		pl_pb_put(&x->w, x->pool[l.at + k]);
	pl_pb_close(&x->w, at);
	put_times(x, i);
	put_int(x, "is_cpu_op", PL_CK_A_BOOL, host && type == PL_CK_COMP);
	put_int(x, "tid", PL_CK_A_INT64, s->res[i]);
	put_int(x, "start_ns", PL_CK_A_INT64, x->step->start[i]);
	put_int(x, "duration_ns", PL_CK_A_INT64, x->step->dur[i]);
	if (x->step->number != INT64_MIN)
		put_int(x, "step", PL_CK_A_INT64, x->step->number);
	put_attr(&x->w, PL_CK_ATTR, "role", 0, 0, pl_graph_node_role_name(s->role[i]));
	put_work(x, i);
	if (type != PL_CK_COMP)
		put_communication(x, i, type);
	give(x);
	return failed(x, err);
}

static int one_step(struct writing *x, const struct pl_gstep *step, struct pl_err *err)
{
	const struct pl_shape *s = x->s = &x->g->shape[step->shape];

	x->step = step;
	x->n_pool = 0;
	PL_CHECK(pl_grow(&x->id, &x->cap_id, s->n_nodes + (size_t)1, sizeof(*x->id), err));
	PL_CHECK(pl_grow(&x->list, &x->cap_list, s->n_nodes + (size_t)1, sizeof(*x->list), err));
	memset(x->id, 0, s->n_nodes * sizeof(*x->id));
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		if (s->res[i] == PL_NONE || !is_mine(x, i))
			continue;
		PL_CHECK(dependencies(x, i, err));
		if (s->type[i] != PL_N_ENTRY && s->role[i] != PL_RO_ARRIVE &&
		    !pl_graph_hands_on(x->g, s->res[i]))
			PL_CHECK(put_node(x, i, err));
	}
	x->tags += s->n_nodes + 1;
	return 0;
}

int pl_graph_write_chakra(const struct pl_graph *g, uint32_t rank, struct pl_out *out,
			  struct pl_chakra_lost *lost, struct pl_err *err)
{
	struct writing x = { .g = g, .rank = g->rank[rank], .out = out, .lost = lost, .next = 1 };
	int rc;

	pl_pb_bytes(&x.w, PL_CK_META_VERSION, "0.0.4", 5);
	put_attr(&x.w, PL_CK_META_ATTR, "schema", 0, 0, "paceline");
	put_attr(&x.w, PL_CK_META_ATTR, "rank", PL_CK_A_INT64, x.rank, NULL);
	put_attr(&x.w, PL_CK_META_ATTR, "world_size", PL_CK_A_INT64, g->n_ranks, NULL);
	give(&x);
	PL_TRY(find_worlds(&x, err));
	put_groups(&x);
	PL_TRY(failed(&x, err));
	PL_TRY(pl_alloc(&x.last, g->n_res + 1, sizeof(*x.last), err));
	for (size_t i = 0; i < g->n_steps; i++)
		if (g->step[i].number != INT64_MIN || g->stepless)
			PL_TRY(one_step(&x, &g->step[i], err));
	rc = 0;
out:
	pl_write_fini(&x.w);
	pl_free(x.id);
	pl_free(x.list);
	pl_free(x.pool);
	pl_free(x.last);
	pl_free(x.world);
	return rc;
}
