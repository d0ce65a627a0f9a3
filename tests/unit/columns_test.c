/* Every column of a graph's nodes, through everything that copies graphs: nothing is lost. */
#include <stdlib.h>
#include <string.h>

#include "graph/edit.h"
#include "sim/sim.h"
#include "tap.h"

enum { N_NODES = 21, N_ENTRIES = 1, MEET = 4 };

static struct pl_err err;

static void must(int rc)
{
	if (rc >= 0)
		return;
	printf("Bail out! %s\n", err.msg);
	exit(1);
}

static pl_id str(struct pl_graph *g, const char *s)
{
	pl_id id;

	must(pl_intern_add(&g->str, s, strlen(s), &id, &err));
	return id;
}

static void add_tables(struct pl_graph *g)
{
	must(pl_alloc(&g->rank, 1, sizeof(*g->rank), &err));
	g->n_ranks = 1;
	must(pl_grow(&g->res, &g->cap_res, 2, sizeof(*g->res), &err));
	for (int i = 0; i < 2; i++)
		g->res[g->n_res++] = (struct pl_resource){ .track_type = PL_T_STREAM,
							   .capacity = 1,
							   .name = str(g, i ? "stream" : "thread"),
							   .host = PL_NONE };
	must(pl_grow(&g->group_rank, &g->cap_group_ranks, 1, sizeof(*g->group_rank), &err));
	g->group_rank[g->n_group_ranks++] = 0;
	must(pl_grow(&g->group, &g->cap_groups, 2, sizeof(*g->group), &err));
	for (int i = 0; i < 2; i++)
		g->group[g->n_groups++] = (struct pl_ggroup){ .name = str(g, "group"), .n = 1 };
}

static const struct pl_gcomm comms[2] = {
	{ PL_COLL_ALLREDUCE, 0, 1, 1, 8, 14, -1, 1 << 20 },
	{ PL_COLL_BROADCAST, PL_NONE, 0, 0, 4, 0, 3, 5 },
};
static const struct pl_gwork works[2] = {
	{ PL_OP_MATMUL, 1, 0, (int64_t)1 << 50, 12345, 2 },
	{ PL_OP_COPY, PL_NONE, PL_NONE, -1, 7, PL_NONE },
};

/* The rows that the columns comm and work number. */
static void add_rows(struct pl_graph *g, struct pl_shape *s)
{
	must(pl_alloc(&s->comms, 2, sizeof(*s->comms), &err));
	must(pl_grow(&g->work, &g->cap_work, 2, sizeof(*g->work), &err));
	memcpy(s->comms, comms, sizeof(comms));
	memcpy(g->work, works, sizeof(works));
	s->n_comms = 2;
	g->n_work = 2;
}

static bool same_rows(const struct pl_graph *g)
{
	bool same = g->n_work == 2 && g->shape[0].n_comms == 2;

	for (uint32_t i = 0; same && i < 2; i++) {
		const struct pl_gcomm *c = &g->shape[0].comms[i], *d = &comms[i];
		const struct pl_gwork *w = &g->work[i], *x = &works[i];

		same = c->kind == d->kind && c->algorithm == d->algorithm && c->type == d->type &&
		       c->group == d->group && c->members == d->members && c->rounds == d->rounds &&
		       c->root == d->root && c->bytes == d->bytes && w->op == x->op &&
		       w->type == x->type && w->dims == x->dims && w->flops == x->flops &&
		       w->bytes == x->bytes && w->name == x->name;
	}
	return same;
}

/* Another value for each node and column, as the rules of the column allow. */
static int64_t some_value(const struct pl_node_column *c, uint32_t i)
{
	size_t at = (size_t)(c - pl_graph_node_columns);

	switch (c->values) {
	case PL_CV_NODE_TYPE:
		return i < N_ENTRIES ? PL_N_ENTRY : i == MEET ? PL_N_RENDEZVOUS : PL_N_OP;
	case PL_CV_FLAGS:
		return i == N_ENTRIES ? PL_NF_STEP_BEGIN : i > MEET ? PL_NF_IN_STEP : 0;
	case PL_CV_NODE_ROLE:
		return i % 3 == 1 ? PL_RO_COMPUTE : PL_RO_HOST;
	case PL_CV_NUMBER:
		if (c->bit == PL_HAS_k)
			return i == MEET; /* 1 of 1 */
		return (int64_t)(1000 * at + i);
	case PL_CV_PHASE:
		return 1 + i % (PL_PH_COUNT_ - 1);
	case PL_CV_COMM:
		return i % 2;
	default:
		return (i + at) % 2;
	}
}

static void set_value(struct pl_shape *s, const struct pl_node_column *c, uint32_t i, int64_t v)
{
	char *p = (char *)pl_graph_shape_column(s, c) + i * c->size;
	uint8_t small = (uint8_t)v;
	uint32_t middle = (uint32_t)v;

	memcpy(p,
	       c->size == 1   ? (void *)&small
	       : c->size == 8 ? (void *)&v
			      : (void *)&middle,
	       c->size);
}

static void full_graph(struct pl_graph *g)
{
	struct pl_shape *s;
	struct pl_gstep *st;

	pl_graph_init(g);
	add_tables(g);
	must(pl_alloc(&g->shape, 1, sizeof(*g->shape), &err));
	g->n_shapes = g->cap_shapes = 1;
	s = &g->shape[0];
	must(pl_graph_shape_room(s, ~0u, N_NODES, N_NODES, &err));
	s->n_nodes = N_NODES;
	s->n_entries = N_ENTRIES;
	add_rows(g, s);
	for (uint32_t i = 0; i < N_NODES; i++) {
		for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++)
			set_value(s, &pl_graph_node_columns[k], i,
				  some_value(&pl_graph_node_columns[k], i));
		if (i) {
			s->src[s->n_edges] = i - 1;
			s->etype[s->n_edges++] = PL_E_SEQ;
		}
		s->off[i + 1] = s->n_edges;
	}
	must(pl_alloc(&g->step, 1, sizeof(*g->step), &err));
	g->n_steps = g->cap_steps = 1;
	st = &g->step[0];
	must(pl_alloc(&st->start, N_NODES, sizeof(pl_ns), &err));
	must(pl_alloc(&st->dur, N_NODES, sizeof(pl_ns), &err));
	for (uint32_t i = 1; i < N_NODES; i++) {
		st->start[i] = 100 * (pl_ns)i;
		st->dur[i] = 50;
	}
	ok(pl_graph_valid(g, &err), "a graph with every column is valid %s", err.msg);
}

/* Whether b has what a has; k of all members may be written 0. */
static void same_columns(const struct pl_graph *a, const struct pl_graph *b, const char *what)
{
	const struct pl_shape *s = &a->shape[0], *t = &b->shape[0];

	is_i64(t->n_nodes, s->n_nodes, what);
	for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++) {
		const struct pl_node_column *c = &pl_graph_node_columns[k];
		bool same = true;

		for (uint32_t i = 0; i < s->n_nodes; i++) {
			int64_t v = pl_graph_shape_value(t, c, i);

			same &= v == pl_graph_shape_value(s, c, i) || (c->bit == PL_HAS_k && !v);
		}
		ok(same, "%s keeps column %s", what, c->word);
	}
	ok(same_rows(b), "%s keeps communications and work", what);
}

static void through_file(const struct pl_graph *g, struct pl_graph *back)
{
	struct pl_pool *pool = pl_pool_new(1, &err);
	struct pl_buf b = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, &err);
	struct pl_in *in;

	if (!pool || !out)
		must(err.code);
	must(pl_graph_write(g, out, 1, pool, NULL, &err));
	must(pl_out_close(out, &err));
	in = pl_in_open_mem("mem", b.p, b.n, &err);
	if (!in)
		must(err.code);
	must(pl_graph_read(in, pool, back, &err));
	pl_in_close(in);
	pl_buf_fini(&b);
	pl_pool_free(pool);
}

static void through_edit(const struct pl_graph *g, struct pl_graph *back)
{
	struct pl_sim *s = pl_sim_new(g, &err);
	struct pl_edit e, copy;

	if (!s)
		must(err.code);
	must(pl_sim_edit(s, 0, 1, &e, &err));
	must(pl_edit_dup(&e, &copy, &err));
	must(pl_edit_graph(&copy, back, &err));
	pl_edit_fini(&copy);
	pl_edit_fini(&e);
	pl_sim_free(s);
}

/* A value that no column may have is found in every column and at every node. */
static void finds_faults(struct pl_graph *g)
{
	struct pl_shape *s = &g->shape[0];

	for (size_t k = 0; k < PL_N_NODE_COLUMNS; k++) {
		const struct pl_node_column *c = &pl_graph_node_columns[k];
		uint32_t found = 0;

		if (c->values == PL_CV_KIND || c->values == PL_CV_FLAGS || c->bit == PL_HAS_k)
			continue; /* these may have any value */
		for (uint32_t i = 0; i < N_NODES; i++) {
			struct pl_err why = { 0 };
			int64_t was = pl_graph_shape_value(s, c, i);

			set_value(s, c, i, c->unknown - 2);
			found += !pl_graph_valid(g, &why) && strstr(why.msg, c->word) != NULL;
			set_value(s, c, i, was);
		}
		is_i64(found, N_NODES, c->word);
	}
}

/* The same structure, and the same values in every column? */
static bool same_shape(const struct pl_shape *a, const struct pl_shape *b)
{
	if (a->n_nodes != b->n_nodes || a->n_edges != b->n_edges || a->n_entries != b->n_entries ||
	    pl_graph_shape_has(a) != pl_graph_shape_has(b))
		return false;
	for (size_t i = 0; i < PL_N_NODE_COLUMNS; i++) {
		const struct pl_node_column *c = &pl_graph_node_columns[i];
		const void *p = pl_graph_shape_column(a, c);

		if (p && memcmp(p, pl_graph_shape_column(b, c), a->n_nodes * c->size) != 0)
			return false;
	}
	return !memcmp(a->off, b->off, (a->n_nodes + (size_t)1) * sizeof(*a->off)) &&
	       (!a->n_edges || (!memcmp(a->src, b->src, a->n_edges * sizeof(*a->src)) &&
				!memcmp(a->etype, b->etype, a->n_edges)));
}

int main(void)
{
	static const int64_t rank[] = { 0, 0 };
	struct pl_graph_part part = { .rank = rank, .n_ranks = 1 };
	struct pl_graph g, other;

	full_graph(&g);
	finds_faults(&g);
	through_file(&g, &other);
	same_columns(&g, &other, "the file");
	ok(same_shape(&g.shape[0], &other.shape[0]), "and the shapes are the same");
	pl_graph_fini(&other);
	must(pl_graph_pick(&g, &part, &other, &err));
	same_columns(&g, &other, "picking");
	pl_graph_fini(&other);
	pl_graph_init(&other);
	must(pl_sim_fold(&g, false, &other, NULL, &err));
	same_columns(&g, &other, "folding");
	pl_graph_fini(&other);
	through_edit(&g, &other);
	same_columns(&g, &other, "editing");
	pl_graph_fini(&other);
	pl_graph_fini(&g);
	return done_testing();
}
