/*
 * Graphs from the programs of ranks.
 *
 * The ranks take turns. In its turn a rank adds its next operation, if all operations that come
 * before it are there. The last member that reaches a communication adds the rendezvous and the
 * transfers of all members. Therefore ranks with the same program advance together, and the order
 * is topological. O(operations of all ranks, and turns in which a rank waits).
 */
#include "graph/program.h"

struct arrival { /* of a communication that not all members have reached */
	uint32_t rank, op, node, next;
};
struct gathering {
	uint32_t first, last, n; /* arrivals */
};
struct builder {
	const struct pl_graph_program_job *job;
	struct pl_graph *g;
	struct pl_graph_program_nodes *nodes;
	struct pl_shape *s;
	pl_ns *start, *dur;
	struct arrival *arrival;
	size_t n_arrivals, cap_arrivals;
	struct gathering *gathering; /* by communication */
	uint32_t *next;		     /* [rank]: its next operation */
};

const struct pl_graph_program_op pl_graph_program_op_unknown = { .comm = PL_NONE,
								 .group = PL_NONE,
								 .bytes = -1,
								 .layer = -1,
								 .mb = -1,
								 .chunk = -1,
								 .peer = -1,
								 .module = PL_NONE,
								 .work = PL_NONE };

void pl_graph_program_fini(struct pl_program *p)
{
	pl_free(p->op);
	pl_free(p->dep);
	memset(p, 0, sizeof(*p));
}

void pl_graph_program_nodes_fini(struct pl_graph_program_nodes *n)
{
	pl_free(n->first);
	pl_free(n->last);
	pl_free(n->at);
	memset(n, 0, sizeof(*n));
}

int pl_graph_program_add(struct pl_program *p, const struct pl_graph_program_op *op, uint32_t *id,
			 struct pl_err *err)
{
	struct pl_graph_program_op x = *op;

	x.dep = (uint32_t)p->n_deps;
	x.n_deps = 0;
	if (id)
		*id = (uint32_t)p->n_ops;
	return pl_append(&p->op, &p->n_ops, &p->cap_ops, &x, sizeof(x), err);
}

int pl_graph_program_after(struct pl_program *p, uint32_t op, unsigned type, struct pl_err *err)
{
	struct pl_graph_program_dep x = { op, (uint8_t)type };
	int rc = pl_append(&p->dep, &p->n_deps, &p->cap_deps, &x, sizeof(x), err);

	if (rc == 0)
		p->op[p->n_ops - 1].n_deps++;
	return rc;
}

static const struct pl_program *program_of(const struct builder *b, uint32_t rank)
{
	return &b->job->program[b->job->of_rank ? b->job->of_rank[rank] : 0];
}

static uint32_t members_of(const struct builder *b, uint32_t comm)
{
	return b->job->members ? b->job->members[comm] : b->job->n_ranks;
}

/* ---- resources ------------------------------------------------------------------------------- */

static int make_resources(const struct builder *b, struct pl_err *err)
{
	const struct pl_graph_program_job *j = b->job;
	struct pl_graph *g = b->g;
	uint32_t n = j->n_ranks, per_host = j->per_host ? j->per_host : n;
	char host[32];

	PL_CHECK(pl_alloc(&g->rank, n, sizeof(*g->rank), err));
	g->n_ranks = (int32_t)n;
	PL_CHECK(pl_grow(&g->res, &g->cap_res, (size_t)n * j->n_resources, sizeof(*g->res), err));
	for (uint32_t i = 0; i < n * j->n_resources; i++) {
		uint32_t rank = i / j->n_resources;
		const char *name = j->resource[i % j->n_resources];
		struct pl_resource r = { .track_type = PL_T_STREAM,
					 .rank = (int32_t)rank,
					 .device = (int32_t)(rank % per_host),
					 .capacity = 1,
					 .coord = { (int32_t)rank, -1, -1, -1 } };

		g->rank[rank] = (int32_t)rank;
		snprintf(host, sizeof(host), "host %u", rank / per_host);
		PL_CHECK(pl_intern_add(&g->str, host, strlen(host), &r.host, err));
		PL_CHECK(pl_intern_add(&g->str, name, strlen(name), &r.name, err));
		g->res[g->n_res++] = r;
	}
	return 0;
}

/* ---- nodes ----------------------------------------------------------------------------------- */

/* The optional columns that the operations of a job need. */
static unsigned columns_of(const struct pl_graph_program_job *job)
{
	unsigned has = PL_HAS_bytes | PL_HAS_layer;

	for (uint32_t r = 0; r < (job->of_rank ? job->n_ranks : 1); r++) {
		const struct pl_program *p = &job->program[job->of_rank ? job->of_rank[r] : 0];

		for (size_t i = 0; i < p->n_ops; i++)
			has |= (p->op[i].mb >= 0 ? PL_HAS_mb : 0) |
			       (p->op[i].chunk >= 0 ? PL_HAS_chunk : 0) |
			       (p->op[i].peer >= 0 ? PL_HAS_peer : 0) |
			       (p->op[i].phase ? PL_HAS_phase : 0) |
			       (p->op[i].module != PL_NONE ? PL_HAS_module : 0) |
			       (p->op[i].work != PL_NONE ? PL_HAS_work : 0);
	}
	return has;
}

/* Allocate all nodes and edges: two more nodes and three more edges for each member. */
static int make_room(struct builder *b, struct pl_err *err)
{
	uint64_t nodes = b->job->n_comms, edges = 0, ops = 0, arrivals = 0;

	PL_CHECK(pl_alloc(&b->nodes->at, b->job->n_ranks + (size_t)1, sizeof(size_t), err));
	for (uint32_t r = 0; r < b->job->n_ranks; r++) {
		const struct pl_program *p = program_of(b, r);

		ops += p->n_ops;
		edges += p->n_deps;
		b->nodes->at[r + 1] = ops;
	}
	for (uint32_t k = 0; k < b->job->n_comms; k++)
		arrivals += members_of(b, k);
	nodes += ops + arrivals;
	edges += 3 * arrivals;
	if (nodes >= PL_NONE || edges >= PL_NONE)
		return pl_fail(err, PL_ELIMIT, "%llu operations are more than a graph can hold",
			       (unsigned long long)nodes);
	PL_CHECK(pl_graph_shape_room(b->s, columns_of(b->job), nodes, edges, err));
	PL_CHECK(pl_alloc(&b->start, nodes, sizeof(*b->start), err));
	PL_CHECK(pl_alloc(&b->dur, nodes, sizeof(*b->dur), err));
	PL_CHECK(pl_alloc(&b->nodes->first, ops, sizeof(uint32_t), err));
	PL_CHECK(pl_alloc(&b->nodes->last, ops, sizeof(uint32_t), err));
	memset(b->nodes->last, 0xff, ops * sizeof(uint32_t));
	PL_CHECK(pl_alloc(&b->next, b->job->n_ranks, sizeof(*b->next), err));
	PL_CHECK(pl_alloc(&b->gathering, b->job->n_comms, sizeof(*b->gathering), err));
	PL_CHECK(pl_grow(&b->arrival, &b->cap_arrivals, arrivals, sizeof(*b->arrival), err));
	return 0;
}

static uint32_t put_node(struct builder *b, const struct pl_graph_program_op *op, unsigned type,
			 unsigned role, unsigned flags, uint32_t res, pl_ns dur)
{
	struct pl_shape *s = b->s;
	uint32_t i = s->n_nodes++;

	s->type[i] = (uint8_t)type;
	s->role[i] = (uint8_t)role;
	s->kind[i] = op->kind;
	s->flags[i] = (uint8_t)flags;
	s->res[i] = res;
	s->name[i] = op->name;
	s->group[i] = op->group;
	s->bytes[i] = op->bytes;
	s->layer[i] = op->layer;
	if (s->mb)
		s->mb[i] = op->mb;
	if (s->chunk)
		s->chunk[i] = op->chunk;
	if (s->peer)
		s->peer[i] = type == PL_N_RENDEZVOUS ? -1 : op->peer;
	if (s->phase)
		s->phase[i] = op->phase;
	if (s->module)
		s->module[i] = op->module;
	if (s->work)
		s->work[i] = op->work;
	s->off[i + 1] = s->n_edges;
	b->dur[i] = dur;
	return i;
}

/* Add a predecessor to the last node. */
static void put_edge(struct builder *b, uint32_t src, unsigned type)
{
	struct pl_shape *s = b->s;
	uint32_t i = s->n_nodes - 1;

	s->src[s->n_edges] = src;
	s->etype[s->n_edges++] = (uint8_t)type;
	s->off[i + 1] = s->n_edges;
	b->start[i] = pl_max_i64(b->start[i], PL_E_TYPE(type) == PL_E_START
						      ? b->start[src]
						      : pl_add_sat(b->start[src], b->dur[src]));
}

/* Add the rendezvous and the transfers of a communication after its last arrival. */
static void put_transfers(struct builder *b, const struct pl_graph_program_op *op)
{
	const struct gathering *x = &b->gathering[op->comm];
	uint32_t meet = put_node(b, op, PL_N_RENDEZVOUS, PL_RO_NONE, 0, PL_NONE, 0);

	for (uint32_t i = x->first, k = 0; k < x->n; i = b->arrival[i].next, k++)
		put_edge(b, b->arrival[i].node, PL_E_COMM);
	for (uint32_t i = x->first, k = 0; k < x->n; i = b->arrival[i].next, k++) {
		const struct arrival *a = &b->arrival[i];
		const struct pl_graph_program_op *o = &program_of(b, a->rank)->op[a->op];

		b->nodes->last[b->nodes->at[a->rank] + a->op] =
			put_node(b, o, PL_N_OP, o->role, o->flags, b->s->res[a->node], o->dur);
		put_edge(b, a->node, PL_E_SEQ);
		put_edge(b, meet, PL_E_COMM);
	}
}

static void arrive(struct builder *b, const struct pl_graph_program_op *op, uint32_t rank,
		   uint32_t number, uint32_t node)
{
	struct gathering *x = &b->gathering[op->comm];
	uint32_t i = (uint32_t)b->n_arrivals++;

	b->arrival[i] = (struct arrival){ rank, number, node, PL_NONE };
	if (x->n++)
		b->arrival[x->last].next = i;
	else
		x->first = i;
	x->last = i;
	if (x->n == members_of(b, op->comm))
		put_transfers(b, op);
}

/* Add the next operation of a rank, if all its predecessors have been added. */
static bool advance(struct builder *b, uint32_t rank)
{
	const struct pl_program *p = program_of(b, rank);
	uint32_t number = b->next[rank], *last = b->nodes->last + b->nodes->at[rank], node;
	const struct pl_graph_program_op *op = &p->op[number];
	bool comm;

	if (number == p->n_ops)
		return false;
	for (uint32_t d = op->dep; d < op->dep + op->n_deps; d++)
		if (last[p->dep[d].op] == PL_NONE)
			return false;
	comm = op->comm != PL_NONE;
	node = put_node(b, op, PL_N_OP, comm ? PL_RO_ARRIVE : op->role, op->flags,
			rank * b->job->n_resources + op->resource, comm ? 0 : op->dur);
	for (uint32_t d = op->dep; d < op->dep + op->n_deps; d++)
		put_edge(b, last[p->dep[d].op], p->dep[d].type);
	b->nodes->first[b->nodes->at[rank] + number] = node;
	b->next[rank]++;
	if (comm)
		arrive(b, op, rank, number, node);
	else
		last[number] = node;
	return true;
}

static int make_nodes(struct builder *b, struct pl_err *err)
{
	bool any = true;

	while (any) {
		any = false;
		for (uint32_t r = 0; r < b->job->n_ranks; r++)
			any |= advance(b, r);
	}
	for (uint32_t k = 0; k < b->job->n_comms; k++)
		if (b->gathering[k].n != members_of(b, k))
			return pl_fail(
				err, PL_EDATA,
				"communication %u is reached by %u of its %u members: they wait "
				"for ever",
				k, b->gathering[k].n, members_of(b, k));
	for (uint32_t r = 0; r < b->job->n_ranks; r++)
		if (b->next[r] < program_of(b, r)->n_ops)
			return pl_fail(
				err, PL_EDATA,
				"operation %u of rank %u comes after one that is not before it",
				b->next[r], r);
	return 0;
}

int pl_graph_from_programs(const struct pl_graph_program_job *job, struct pl_graph *g,
			   struct pl_graph_program_nodes *nodes, struct pl_err *err)
{
	struct builder b = { .job = job, .g = g, .nodes = nodes };
	int rc;

	memset(nodes, 0, sizeof(*nodes));
	PL_TRY(pl_grow(&g->shape, &g->cap_shapes, 1, sizeof(*g->shape), err));
	PL_TRY(pl_grow(&g->step, &g->cap_steps, 1, sizeof(*g->step), err));
	b.s = &g->shape[0];
	memset(b.s, 0, sizeof(*b.s));
	g->n_shapes = 1;
	PL_TRY(make_resources(&b, err));
	rc = make_room(&b, err);
	g->step[0] = (struct pl_gstep){ .start = b.start, .dur = b.dur };
	g->n_steps = 1;
	if (rc >= 0)
		rc = make_nodes(&b, err);
out:
	pl_free(b.arrival);
	pl_free(b.gathering);
	pl_free(b.next);
	if (rc < 0)
		pl_graph_program_nodes_fini(nodes);
	return rc;
}
