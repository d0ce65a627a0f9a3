/*
 * ggen - write the graph of a made-up job, for timing what reads graphs
 *
 * SYNOPSIS
 *	ggen [--ranks=N] [--ops=M] [--steps=S] [--seed=X] [-l LEVEL] [-@ N] [-o FILE]
 *
 * DESCRIPTION
 *	Each rank has a host thread, a compute stream and a communication stream. A layer is four
 *	operators, each a host operation, a launch and a kernel, then a collective that waits for
 *	the last kernel and for which the next layer's third kernel waits. Collectives go by turns
 *	over 8 neighbouring ranks and over every 8th rank; a step ends with one over all ranks, for
 *	which the host waits. M counts operations over all steps and ranks (rendezvous, which occupy
 *	nothing, come on top). Recorded times are those that the model yields, so a replay has
 *	nothing to explain; durations vary by up to 10 % from step to step.
 *
 *	All steps share one shape; its nodes are in the order of their starts, like those of a graph
 *	made from a trace. Memory: about 110 bytes an operation of one step and 16 for each other.
 *
 * EXIT STATUS
 *	0 done, 2 usage, otherwise that of the library's error.
 */
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

#include "core/cmd.h"
#include "graph/graph.h"

#define KERNELS	   4 /* a layer */
#define NEIGHBOURS 8
#define LAUNCH_NS  2500
#define GAP_NS	   1500 /* between operations of a stream */
#define KERNEL_NS  24000
#define COMM_NS	   30000
#define PER_LAYER  (3 * KERNELS + 3) /* operations of a rank */

struct options {
	int64_t ranks, ops, steps, seed, level, threads;
	const char *output;
};

enum { HOST, COMPUTE, COMM, PER_RANK };

struct rank {
	uint32_t last[PER_RANK]; /* node that was added last, by resource */
	uint32_t call;		 /* last launch */
	uint32_t transfer;	 /* of the last collective, PL_NONE */
	uint32_t arrive;
};

struct gen {
	struct options o;
	struct pl_graph g;
	struct pl_shape s; /* in order of making */
	pl_ns *start, *dur;
	size_t cap, cap_edges;
	struct rank *rank;
	pl_id op, launch, sync, kernel[KERNELS], reduce, gather, rendezvous, begin, end;
	struct pl_err err;
};

static void die(int code, const char *what)
{
	fprintf(stderr, "ggen: %s\n", what);
	exit(pl_exit_status(code));
}

static void must(struct gen *x, int rc)
{
	if (rc < 0)
		die(rc, x->err.msg);
}

/* ---- nodes -------------------------------------------------------------------------------------
 */

static void grow_nodes(struct gen *x)
{
	struct pl_shape *s = &x->s;
	const struct {
		void *array;
		size_t size;
	} col[] = { { &s->type, 1 },  { &s->role, 1 },	{ &s->kind, 1 },  { &s->flags, 1 },
		    { &s->res, 4 },   { &s->name, 4 },	{ &s->group, 4 }, { &s->off, 4 },
		    { &s->bytes, 8 }, { &x->start, 8 }, { &x->dur, 8 } };
	size_t cap = x->cap;

	for (size_t i = 0; i < PL_LEN(col); i++) {
		cap = x->cap;
		must(x, pl_grow(col[i].array, &cap, s->n_nodes + (size_t)2, col[i].size, &x->err));
	}
	x->cap = cap;
}

static uint32_t add(struct gen *x, unsigned type, unsigned role, unsigned kind, uint32_t res,
		    pl_id name, pl_ns dur)
{
	struct pl_shape *s = &x->s;
	uint32_t i = s->n_nodes;

	if (i >= PL_NONE - 2)
		die(PL_ELIMIT, "too many nodes in a step");
	grow_nodes(x);
	s->type[i] = (uint8_t)type;
	s->role[i] = (uint8_t)role;
	s->kind[i] = (uint8_t)kind;
	s->flags[i] = res != PL_NONE && res % PER_RANK != HOST ? PL_NF_IN_STEP : 0;
	s->res[i] = res;
	s->name[i] = name;
	s->group[i] = PL_NONE;
	s->bytes[i] = -1;
	s->off[i] = s->n_edges;
	s->off[i + 1] = s->n_edges;
	x->dur[i] = dur;
	x->start[i] = 0;
	s->n_nodes++;
	return i;
}

/* When does the edge let the node start? */
static pl_ns after(const struct gen *x, const struct pl_shape *s, const pl_ns *start,
		   const pl_ns *dur, uint32_t i, uint32_t src, uint8_t type)
{
	const struct pl_resource *r = s->res[i] == PL_NONE ? NULL : &x->g.res[s->res[i]];
	pl_ns t = start[src] + dur[src];

	if (type == PL_E_LAUNCH)
		return t + r->launch_ns;
	return type == PL_E_COMM || !r || s->role[i] == PL_RO_TRANSFER ? t : t + r->dispatch_ns;
}

/* A predecessor of the node added last. */
static void pred(struct gen *x, uint32_t src, unsigned type)
{
	struct pl_shape *s = &x->s;
	uint32_t i = s->n_nodes - 1;
	size_t cap = x->cap_edges;

	if (src == PL_NONE)
		return;
	must(x, pl_grow(&s->src, &cap, s->n_edges + (size_t)1, sizeof(*s->src), &x->err));
	must(x, pl_grow(&s->etype, &x->cap_edges, s->n_edges + (size_t)1, 1, &x->err));
	x->cap_edges = cap;
	s->src[s->n_edges] = src;
	s->etype[s->n_edges++] = (uint8_t)type;
	s->off[i + 1] = s->n_edges;
	x->start[i] = pl_max_i64(x->start[i], after(x, s, x->start, x->dur, i, src, (uint8_t)type));
}

/* The next operation of a resource of rank r. */
static uint32_t next(struct gen *x, int64_t r, unsigned which, unsigned role, unsigned kind,
		     pl_id name, pl_ns dur)
{
	uint32_t id = add(x, PL_N_OP, role, kind, (uint32_t)(r * PER_RANK + which), name, dur);

	pred(x, x->rank[r].last[which], PL_E_SEQ);
	x->rank[r].last[which] = id;
	return id;
}

/* ---- the job -----------------------------------------------------------------------------------
 */

static pl_id string(struct gen *x, const char *s)
{
	pl_id id;

	must(x, pl_intern_add(&x->g.str, s, strlen(s), &id, &x->err));
	return id;
}

static void make_resources(struct gen *x)
{
	static const char *const name[] = { "thread 1", "stream 7", "stream 20" };
	struct pl_graph *g = &x->g;
	size_t n = (size_t)x->o.ranks * PER_RANK;

	must(x, pl_grow(&g->res, &g->cap_res, n, sizeof(*g->res), &x->err));
	must(x, pl_alloc(&g->rank, (size_t)x->o.ranks, sizeof(*g->rank), &x->err));
	g->n_ranks = (int32_t)x->o.ranks;
	for (size_t i = 0; i < n; i++) {
		unsigned which = i % PER_RANK;
		char host[32];

		snprintf(host, sizeof(host), "host%zu", i / PER_RANK / NEIGHBOURS);
		g->rank[i / PER_RANK] = (int32_t)(i / PER_RANK);
		g->res[g->n_res++] = (struct pl_resource){
			.track_type = which == HOST ? PL_T_THREAD : PL_T_STREAM,
			.rank = (int32_t)(i / PER_RANK),
			.device = which == HOST ? -1 : (int32_t)(i / PER_RANK % NEIGHBOURS),
			.capacity = 1,
			.name = string(x, name[which]),
			.host = string(x, host),
			.coord = { -1, -1, -1, -1 },
			.launch_ns = which == HOST ? 0 : LAUNCH_NS,
			.dispatch_ns = which == HOST ? 0 : GAP_NS,
		};
	}
}

/* Members: first, first + stride ... below `end`. */
static void make_group(struct gen *x, const char *kind, int64_t first, int64_t stride, int64_t end)
{
	struct pl_graph *g = &x->g;
	struct pl_ggroup p = { .rank = (uint32_t)g->n_group_ranks };
	char name[32];

	snprintf(name, sizeof(name), "%s%lld", kind, (long long)first);
	p.name = string(x, name);
	for (int64_t r = first; r < end; r += stride) {
		must(x, pl_grow(&g->group_rank, &g->cap_group_ranks, g->n_group_ranks + 1,
				sizeof(*g->group_rank), &x->err));
		g->group_rank[g->n_group_ranks++] = (uint32_t)r;
		p.n++;
	}
	must(x, pl_grow(&g->group, &g->cap_groups, g->n_groups + 1, sizeof(*g->group), &x->err));
	g->group[g->n_groups++] = p;
}

static void collective(struct gen *x, uint32_t group, pl_id name, int64_t bytes)
{
	const struct pl_ggroup *p = &x->g.group[group];
	const uint32_t *member = x->g.group_rank + p->rank;
	uint32_t meet;

	for (uint32_t i = 0; i < p->n; i++) {
		struct rank *r = &x->rank[member[i]];

		r->call = next(x, member[i], HOST, PL_RO_HOST, PL_K_RUNTIME, x->launch, 3000);
		r->arrive = next(x, member[i], COMM, PL_RO_ARRIVE, PL_K_COLLECTIVE, name, 0);
		pred(x, r->call, PL_E_LAUNCH);
		pred(x, r->last[COMPUTE], PL_E_WAIT);
		x->s.group[r->arrive] = group;
		x->s.bytes[r->arrive] = bytes;
	}
	meet = add(x, PL_N_RENDEZVOUS, PL_RO_NONE, PL_K_COLLECTIVE, PL_NONE, x->rendezvous, 0);
	x->s.group[meet] = group;
	x->s.bytes[meet] = bytes;
	for (uint32_t i = 0; i < p->n; i++)
		pred(x, x->rank[member[i]].arrive, PL_E_COMM);
	for (uint32_t i = 0; i < p->n; i++) {
		struct rank *r = &x->rank[member[i]];

		r->transfer =
			next(x, member[i], COMM, PL_RO_TRANSFER, PL_K_COLLECTIVE, name, COMM_NS);
		pred(x, meet, PL_E_COMM);
		x->s.group[r->transfer] = group;
		x->s.bytes[r->transfer] = bytes;
	}
}

static void layer(struct gen *x)
{
	for (int64_t r = 0; r < x->o.ranks; r++) {
		struct rank *k = &x->rank[r];

		for (int i = 0; i < KERNELS; i++) {
			next(x, r, HOST, PL_RO_HOST, PL_K_HOST_OP, x->op, 6000 + 500 * i);
			k->call = next(x, r, HOST, PL_RO_HOST, PL_K_RUNTIME, x->launch, 3000);
			next(x, r, COMPUTE, PL_RO_COMPUTE, PL_K_KERNEL, x->kernel[i],
			     KERNEL_NS + 3000 * i);
			pred(x, k->call, PL_E_LAUNCH);
			if (i == 2)
				pred(x, k->transfer, PL_E_WAIT | PL_E_INFERRED);
		}
	}
}

static void make_groups(struct gen *x)
{
	int64_t n = x->o.ranks;

	for (int64_t r = 0; r < n; r += NEIGHBOURS)
		make_group(x, "tp", r, 1, pl_min_i64(r + NEIGHBOURS, n));
	for (int64_t r = 0; r < NEIGHBOURS && n > NEIGHBOURS; r++)
		make_group(x, "dp", r, NEIGHBOURS, n);
	make_group(x, "world", 0, 1, n);
}

static void mark(struct gen *x, int64_t r, pl_id name, unsigned flags)
{
	uint32_t id = next(x, r, HOST, PL_RO_MARK, PL_K_STEP, name, 0);

	x->s.flags[id] = (uint8_t)flags;
}

static void make_shape(struct gen *x)
{
	int64_t per_step = x->o.ops / x->o.steps / x->o.ranks;
	int64_t layers = pl_max_i64(1, (per_step - 6) / PER_LAYER);
	uint32_t n_tp = (uint32_t)((x->o.ranks + NEIGHBOURS - 1) / NEIGHBOURS);
	uint32_t world = (uint32_t)x->g.n_groups - 1;

	for (uint32_t i = 0; i < x->g.n_res; i++)
		x->rank[i / PER_RANK].last[i % PER_RANK] =
			add(x, PL_N_ENTRY, PL_RO_NONE, 0, i, x->g.res[i].name, 0);
	x->s.n_entries = x->s.n_nodes;
	for (uint32_t i = 0; i < x->s.n_entries; i++)
		x->s.flags[i] = 0;
	for (int64_t r = 0; r < x->o.ranks; r++) {
		x->rank[r].transfer = PL_NONE;
		mark(x, r, x->begin, PL_NF_STEP_BEGIN);
	}
	for (int64_t l = 0; l < layers; l++) {
		bool far = l % 4 == 3 && x->o.ranks > NEIGHBOURS;

		layer(x);
		for (uint32_t g = far ? n_tp : 0; g < (far ? world : n_tp); g++)
			collective(x, g, far ? x->gather : x->reduce, 16 << 20);
	}
	collective(x, world, x->reduce, 64);
	for (int64_t r = 0; r < x->o.ranks; r++) {
		next(x, r, HOST, PL_RO_SYNC, PL_K_RUNTIME, x->sync, 4000);
		pred(x, x->rank[r].transfer, PL_E_WAIT);
		pred(x, x->rank[r].last[COMPUTE], PL_E_WAIT);
		mark(x, r, x->end, PL_NF_IN_STEP);
	}
}

/* ---- in order of time --------------------------------------------------------------------------
 */

struct key {
	pl_ns start;
	uint32_t node;
};

PL_COMPARATOR(by_start, struct key, start, node);

/* New number of each node. The order of making is topological and breaks ties. */
static uint32_t *renumber(struct gen *x)
{
	size_t n = x->s.n_nodes;
	struct key *key;
	uint32_t *to;

	must(x, pl_alloc(&key, n, sizeof(*key), &x->err));
	must(x, pl_alloc(&to, n, sizeof(*to), &x->err));
	for (uint32_t i = 0; i < n; i++)
		key[i] = (struct key){ i < x->s.n_entries ? INT64_MIN : x->start[i], i };
	qsort(key, n, sizeof(*key), by_start);
	for (uint32_t i = 0; i < n; i++)
		to[key[i].node] = i;
	pl_free(key);
	return to;
}

static void move_column(struct gen *x, void *column, size_t size, const uint32_t *to)
{
	uint8_t **v = column, *moved;

	must(x, pl_alloc(&moved, x->s.n_nodes, size, &x->err));
	for (uint32_t i = 0; i < x->s.n_nodes; i++)
		memcpy(moved + to[i] * size, *v + i * size, size);
	pl_free(*v);
	*v = moved;
}

static void move_edges(struct gen *x, const uint32_t *to)
{
	struct pl_shape *s = &x->s;
	uint32_t *off, *src;
	uint8_t *etype;

	must(x, pl_alloc(&off, s->n_nodes + (size_t)1, sizeof(*off), &x->err));
	must(x, pl_alloc(&src, s->n_edges, sizeof(*src), &x->err));
	must(x, pl_alloc(&etype, s->n_edges, 1, &x->err));
	for (uint32_t i = 0; i < s->n_nodes; i++)
		off[to[i] + 1] = s->off[i + 1] - s->off[i];
	for (uint32_t i = 0; i < s->n_nodes; i++)
		off[i + 1] += off[i];
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		for (uint32_t e = s->off[i], k = off[to[i]]; e < s->off[i + 1]; e++, k++) {
			src[k] = to[s->src[e]];
			etype[k] = s->etype[e];
		}
	}
	pl_free(s->off);
	pl_free(s->src);
	pl_free(s->etype);
	s->off = off;
	s->src = src;
	s->etype = etype;
}

static void sort_shape(struct gen *x)
{
	struct pl_shape *s = &x->s;
	uint32_t *to = renumber(x);

	pl_free(x->start);
	move_edges(x, to);
	move_column(x, &s->type, 1, to);
	move_column(x, &s->role, 1, to);
	move_column(x, &s->kind, 1, to);
	move_column(x, &s->flags, 1, to);
	move_column(x, &s->res, sizeof(*s->res), to);
	move_column(x, &s->name, sizeof(*s->name), to);
	move_column(x, &s->group, sizeof(*s->group), to);
	move_column(x, &s->bytes, sizeof(*s->bytes), to);
	move_column(x, &x->dur, sizeof(*x->dur), to);
	pl_free(to);
	must(x, pl_grow(&x->g.shape, &x->g.cap_shapes, 1, sizeof(*s), &x->err));
	x->g.shape[x->g.n_shapes++] = *s;
}

/* ---- steps -------------------------------------------------------------------------------------
 */

/* The step's own durations, and the starts that follow from them. */
static void make_step(struct gen *x, int64_t number, pl_ns *tail, uint64_t *rng)
{
	const struct pl_shape *s = &x->g.shape[0];
	struct pl_graph *g = &x->g;
	struct pl_gstep *p;

	must(x, pl_grow(&g->step, &g->cap_steps, g->n_steps + 1, sizeof(*p), &x->err));
	p = &g->step[g->n_steps++];
	*p = (struct pl_gstep){ .number = number };
	must(x, pl_alloc(&p->start, s->n_nodes, sizeof(*p->start), &x->err));
	must(x, pl_alloc(&p->dur, s->n_nodes, sizeof(*p->dur), &x->err));
	for (uint32_t i = 0; i < s->n_nodes; i++) {
		pl_ns t = INT64_MIN, tenth = x->dur[i] / 10;

		if (s->type[i] == PL_N_ENTRY) {
			p->start[i] = tail[s->res[i]];
			continue;
		}
		p->dur[i] = x->dur[i];
		if (tenth)
			p->dur[i] += (pl_ns)(pl_rng_next(rng) % (2 * (uint64_t)tenth)) - tenth;
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			t = pl_max_i64(t, after(x, s, p->start, p->dur, i, s->src[e],
						PL_E_TYPE(s->etype[e])));
		p->start[i] = t;
		if (s->res[i] != PL_NONE)
			tail[s->res[i]] = pl_max_i64(tail[s->res[i]], t + p->dur[i]);
	}
}

static void make_steps(struct gen *x)
{
	uint64_t rng = (uint64_t)x->o.seed;
	pl_ns *tail;

	must(x, pl_alloc(&tail, x->g.n_res, sizeof(*tail), &x->err));
	for (int64_t k = 0; k < x->o.steps; k++)
		make_step(x, k, tail, &rng);
	pl_free(tail);
	pl_free(x->dur);
}

/* ---- program -----------------------------------------------------------------------------------
 */

static void make_names(struct gen *x)
{
	static const char *const kernel[KERNELS] = { "layer_norm_kernel", "gemm_128x128_nn",
						     "gelu_kernel", "gemm_128x64_tn" };

	x->op = string(x, "aten::linear");
	x->launch = string(x, "cudaLaunchKernel");
	x->sync = string(x, "cudaStreamSynchronize");
	x->reduce = string(x, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
	x->gather = string(x, "ncclDevKernel_AllGather_RING_LL");
	x->rendezvous = string(x, "rendezvous");
	x->begin = string(x, "step begin");
	x->end = string(x, "step end");
	for (int i = 0; i < KERNELS; i++)
		x->kernel[i] = string(x, kernel[i]);
}

static void write_out(struct gen *x)
{
	struct pl_pool *pool = pl_pool_new((int)x->o.threads, &x->err);
	struct pl_out *out = pl_out_open(x->o.output, true, &x->err);
	int rc;

	if (!pool || !out)
		die(x->err.code, x->err.msg);
	rc = pl_graph_write(&x->g, out, (int)x->o.level, pool, NULL, &x->err);
	if (rc < 0)
		pl_out_abort(out);
	else
		rc = pl_out_close(out, &x->err);
	must(x, rc);
	pl_pool_free(pool);
}

static int64_t number(const char *s, int64_t min, int64_t max)
{
	struct pl_err err = { 0 };
	int64_t v;

	if (pl_parse_int(s, &v, &err) < 0 || v < min || v > max)
		die(PL_EUSAGE, "a number is not one, or out of range; see the top of ggen.c");
	return v;
}

static void parse(struct options *o, int argc, char **argv)
{
	static const struct option longs[] = { { "ranks", required_argument, NULL, 'r' },
					       { "ops", required_argument, NULL, 'n' },
					       { "steps", required_argument, NULL, 's' },
					       { "seed", required_argument, NULL, 'x' },
					       { NULL, 0, NULL, 0 } };
	int c;

	while ((c = getopt_long(argc, argv, "l:@:o:", longs, NULL)) != -1) {
		if (c == 'r')
			o->ranks = number(optarg, 1, 1 << 20);
		else if (c == 'n')
			o->ops = number(optarg, 1, 1 << 30);
		else if (c == 's')
			o->steps = number(optarg, 1, 1 << 20);
		else if (c == 'x')
			o->seed = number(optarg, 0, INT64_MAX);
		else if (c == 'l')
			o->level = number(optarg, 0, 12);
		else if (c == '@')
			o->threads = number(optarg, 0, 1024);
		else if (c == 'o')
			o->output = optarg;
		else
			die(PL_EUSAGE, "usage: ggen [--ranks=N] [--ops=M] [--steps=S] [--seed=X] "
				       "[-l LEVEL] [-@ N] [-o FILE]");
	}
}

int main(int argc, char **argv)
{
	struct gen x = {
		.o = { .ranks = 8, .ops = 100000, .steps = 1, .seed = 1, .level = 1, .threads = 1 }
	};

	parse(&x.o, argc, argv);
	make_names(&x);
	make_resources(&x);
	make_groups(&x);
	must(&x, pl_alloc(&x.rank, (size_t)x.o.ranks, sizeof(*x.rank), &x.err));
	make_shape(&x);
	sort_shape(&x);
	make_steps(&x);
	write_out(&x);
	pl_free(x.rank);
	pl_graph_fini(&x.g);
	return 0;
}
