/*
 * The rows of a graph's tables in paceline-graph(5): the coding of each member.
 */
#include "graph/file.h"

#define FIELD(coding, member) PL_FIELD(coding, struct pl_resource, member)
static const struct pl_field resource[] = {
	FIELD(U8, track_type), FIELD(U8, discipline),	FIELD(I32, rank),     FIELD(I32, device),
	FIELD(U32, capacity),  FIELD(ID, name),		FIELD(ID, host),      FIELD(I32, coord),
	FIELD(I64, launch_ns), FIELD(I64, dispatch_ns), FIELD(I64, early_ns),
};
const struct pl_record pl_graph_record_resource = { PL_RECORD("resource", struct pl_resource,
							      resource) };
#undef FIELD

#define FIELD(coding, member) PL_FIELD(coding, struct pl_ggroup, member)
static const struct pl_field group[] = { FIELD(ID, name), FIELD(U32, flags) };
#undef FIELD

static int put_ranks(struct pl_buf *b, const void *row, const void *graph, struct pl_err *err)
{
	const struct pl_ggroup *p = row;
	const struct pl_graph *g = graph;

	(void)err;
	pl_record_put_numbers(b, g->group_rank + p->rank, p->n);
	return 0;
}

static int get_ranks(struct pl_cur *c, void *row, void *graph, struct pl_err *err)
{
	struct pl_ggroup *p = row;
	struct pl_graph *g = graph;

	return pl_record_get_numbers(c, &g->group_rank, &g->n_group_ranks, &g->cap_group_ranks,
				     &p->rank, &p->n, err);
}

const struct pl_record pl_graph_record_group = { PL_RECORD("group", struct pl_ggroup, group),
						 put_ranks, get_ranks };

#define FIELD(coding, member) PL_FIELD(coding, struct pl_link, member)
static const struct pl_field link[] = { FIELD(U32, from), FIELD(U32, to), FIELD(F64, bytes_per_ns),
					FIELD(I64, latency_ns) };
const struct pl_record pl_graph_record_link = { PL_RECORD("link", struct pl_link, link) };
#undef FIELD

#define FIELD(coding, member) PL_FIELD(coding, struct pl_gwork, member)
static const struct pl_field work[] = { FIELD(U8, op), FIELD(ID, type), FIELD(ID, dims),
					FIELD(I64, flops), FIELD(I64, bytes) };
#undef FIELD

/* The name came later than the rest: files without names are as before. */
static int put_work_name(struct pl_buf *b, const void *row, const void *graph, struct pl_err *err)
{
	const struct pl_gwork *w = row;

	(void)graph, (void)err;
	if (w->name != PL_NONE)
		pl_io_put_varint(b, (uint64_t)w->name + 1);
	return 0;
}

static int get_work_name(struct pl_cur *c, void *row, void *graph, struct pl_err *err)
{
	struct pl_gwork *w = row;
	uint64_t v = c->p < c->end ? pl_io_get_varint(c) : 0;

	(void)graph;
	w->name = v ? (pl_id)(v - 1) : PL_NONE;
	return c->bad || v > PL_NONE ? pl_record_get_short(err) : 0;
}

const struct pl_record pl_graph_record_work = { PL_RECORD("row of work", struct pl_gwork, work),
						put_work_name, get_work_name };

#define FIELD(coding, member) PL_FIELD(coding, struct pl_gcomm, member)
static const struct pl_field comm[] = {
	FIELD(U8, kind),     FIELD(ID, algorithm), FIELD(ID, type),  FIELD(ID, group),
	FIELD(U32, members), FIELD(U32, rounds),   FIELD(I32, root), FIELD(I64, bytes),
};
const struct pl_record pl_graph_record_comm = { PL_RECORD("communication", struct pl_gcomm, comm) };
#undef FIELD

#define FIELD(coding, member) PL_FIELD(coding, struct pl_tensor, member)
static const struct pl_field tensor[] = {
	FIELD(ID, name),   FIELD(ID, type),  FIELD(U8, role),	  FIELD(U8, flags),
	FIELD(I64, bytes), FIELD(ID, shape), FIELD(ID, producer),
};
#undef FIELD

static int put_consumers(struct pl_buf *b, const void *row, const void *graph, struct pl_err *err)
{
	const struct pl_tensor *t = row;
	const struct pl_graph *g = graph;

	(void)err;
	pl_record_put_numbers(b, t->n_consumers ? g->consumer + t->consumer : NULL, t->n_consumers);
	return 0;
}

static int get_consumers(struct pl_cur *c, void *row, void *graph, struct pl_err *err)
{
	struct pl_tensor *t = row;
	struct pl_graph *g = graph;

	return pl_record_get_numbers(c, &g->consumer, &g->n_consumers, &g->cap_consumers,
				     &t->consumer, &t->n_consumers, err);
}

const struct pl_record pl_graph_record_tensor = { PL_RECORD("tensor", struct pl_tensor, tensor),
						  put_consumers, get_consumers };
