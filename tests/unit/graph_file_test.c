/*
 * Graphs written and read back, whole, cut, damaged; the rules of a graph; parts and views.
 *
 * runner: threads
 */
#include <stdlib.h>
#include <string.h>

#include "graph/graph.h"
#include "tap.h"

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

/* ---- graphs to test with -----------------------------------------------------------------------
 */

static void alloc_shape(struct pl_shape *s, uint32_t nodes, uint32_t edges, bool optional)
{
	must(pl_graph_shape_room(s, optional ? ~0u : 0, nodes, edges, &err));
	for (size_t i = 0; i < PL_N_NODE_COLUMNS; i++)
		if (pl_graph_shape_column(s, &pl_graph_node_columns[i]))
			memset(pl_graph_shape_column(s, &pl_graph_node_columns[i]), 0,
			       nodes * pl_graph_node_columns[i].size);
	memset(s->off, 0, (nodes + (size_t)1) * sizeof(*s->off));
	memset(s->src, 0, edges * sizeof(*s->src));
	memset(s->etype, 0, edges);
	s->n_nodes = nodes;
	s->n_edges = edges;
}

static struct pl_shape *add_shape(struct pl_graph *g, uint32_t nodes, uint32_t edges, bool optional)
{
	struct pl_shape *s;

	must(pl_grow(&g->shape, &g->cap_shapes, g->n_shapes + 1, sizeof(*g->shape), &err));
	s = &g->shape[g->n_shapes++];
	memset(s, 0, sizeof(*s));
	alloc_shape(s, nodes, edges, optional);
	return s;
}

static void add_step(struct pl_graph *g, int64_t number, uint32_t shape)
{
	uint32_t n = g->shape[shape].n_nodes;
	struct pl_gstep *p;

	must(pl_grow(&g->step, &g->cap_steps, g->n_steps + 1, sizeof(*p), &err));
	p = &g->step[g->n_steps++];
	*p = (struct pl_gstep){ .number = number, .shape = shape };
	must(pl_alloc(&p->start, n, sizeof(*p->start), &err));
	must(pl_alloc(&p->dur, n, sizeof(*p->dur), &err));
	for (uint32_t i = 0; i < n; i++) {
		p->start[i] = (number == INT64_MIN ? -12345 : 1000 * number) + 10 * (pl_ns)i;
		p->dur[i] = i < g->shape[shape].n_entries ? 0 : 7 * (pl_ns)i % 50;
	}
}

static void add_tables(struct pl_graph *g)
{
	must(pl_alloc(&g->rank, 2, sizeof(*g->rank), &err));
	g->rank[0] = 3;
	g->rank[1] = 64;
	g->n_ranks = 2;
	must(pl_grow(&g->res, &g->cap_res, 3, sizeof(*g->res), &err));
	for (int i = 0; i < 3; i++)
		g->res[g->n_res++] = (struct pl_resource){ .track_type = PL_T_STREAM,
							   .rank = i == 2 ? 64 : 3,
							   .device = i,
							   .capacity = (unsigned)i + 1,
							   .name = str(g, i ? "stream 7" : "main"),
							   .host = i ? str(g, "node-a") : PL_NONE,
							   .coord = { 0, -1, 2, -1 },
							   .launch_ns = 4200,
							   .dispatch_ns = i,
							   .early_ns = 99 };
	must(pl_grow(&g->group, &g->cap_groups, 1, sizeof(*g->group), &err));
	must(pl_grow(&g->group_rank, &g->cap_group_ranks, 2, sizeof(*g->group_rank), &err));
	g->group[g->n_groups++] = (struct pl_ggroup){ str(g, "tp\t0"), PL_GROUP_INFERRED, 0, 2 };
	g->group_rank[g->n_group_ranks++] = 3;
	g->group_rank[g->n_group_ranks++] = 64;
	must(pl_grow(&g->link, &g->cap_links, 1, sizeof(*g->link), &err));
	g->link[g->n_links++] = (struct pl_link){ 1, 2, 0.3, 1500 };
}

static void add_tensor(struct pl_graph *g)
{
	must(pl_grow(&g->tensor, &g->cap_tensors, 1, sizeof(*g->tensor), &err));
	must(pl_grow(&g->consumer, &g->cap_consumers, 2, sizeof(*g->consumer), &err));
	g->tensor[g->n_tensors++] = (struct pl_tensor){ .name = str(g, "h.0.attn.weight"),
							.type = str(g, "bf16"),
							.role = PL_TR_GRAD,
							.flags = PL_TF_ESTIMATED,
							.bytes = 1 << 20,
							.shape = 0,
							.producer = 2,
							.consumer = 0,
							.n_consumers = 2 };
	g->consumer[g->n_consumers++] = 3;
	g->consumer[g->n_consumers++] = 6;
}

static void add_comm_and_work(struct pl_graph *g, struct pl_shape *s)
{
	must(pl_alloc(&s->comms, 1, sizeof(*s->comms), &err));
	s->n_comms = 1;
	s->comms[0] = (struct pl_gcomm){
		PL_COLL_ALLREDUCE, str(g, "ring"), str(g, "bfloat16"), 0, 2, 4, -1, (int64_t)1 << 40
	};
	must(pl_grow(&g->work, &g->cap_work, 1, sizeof(*g->work), &err));
	g->work[g->n_work++] =
		(struct pl_gwork){ PL_OP_MATMUL, str(g, "bfloat16"), str(g, "[[2,3],[3,4]]"), 48,
				   52,		 str(g, "matmul") };
	s->work[2] = 0;
	for (uint32_t i = 3; i < 8; i++)
		s->comm[i] = 0;
}

/* An entry, and on each of two ranks an operation, an arrival and a transfer; a policy. */
static void small_graph(struct pl_graph *g)
{
	static const struct {
		uint8_t type, role;
		uint32_t res;
	} node[] = { { PL_N_ENTRY, PL_RO_NONE, 0 },	   { PL_N_OP, PL_RO_MARK, 0 },
		     { PL_N_OP, PL_RO_COMPUTE, 1 },	   { PL_N_OP, PL_RO_ARRIVE, 1 },
		     { PL_N_OP, PL_RO_ARRIVE, 2 },	   { PL_N_RENDEZVOUS, PL_RO_NONE, PL_NONE },
		     { PL_N_OP, PL_RO_TRANSFER, 1 },	   { PL_N_OP, PL_RO_TRANSFER, 2 },
		     { PL_N_POLICY, PL_RO_NONE, PL_NONE }, { PL_N_RESOURCE, PL_RO_HOST, 0 } };
	static const struct {
		uint32_t src, dst;
		uint8_t type;
	} edge[] = {
		{ 0, 1, PL_E_SEQ },  { 1, 2, PL_E_LAUNCH }, { 2, 3, PL_E_WAIT | PL_E_INFERRED },
		{ 3, 5, PL_E_COMM }, { 4, 5, PL_E_COMM },   { 3, 6, PL_E_SEQ },
		{ 5, 6, PL_E_COMM }, { 5, 7, PL_E_COMM },   { 7, 8, PL_E_START },
		{ 8, 9, PL_E_DATA }
	};
	struct pl_shape *s;
	uint32_t e = 0;

	pl_graph_init(g);
	add_tables(g);
	s = add_shape(g, PL_LEN(node), PL_LEN(edge), true);
	s->n_entries = 1;
	for (uint32_t i = 0; i < PL_LEN(node); i++) {
		s->type[i] = node[i].type;
		s->role[i] = node[i].role;
		s->kind[i] = i == 2 ? 200 : PL_K_COLLECTIVE;
		s->flags[i] = i == 1 ? PL_NF_STEP_BEGIN : i > 1 ? PL_NF_IN_STEP | 0x40 : 0;
		s->res[i] = node[i].res;
		s->name[i] = i == 4 ? PL_NONE : str(g, i == 2 ? "-" : "ncclDevKernel_AllReduce");
		s->group[i] = i > 2 && i < 8 ? 0 : PL_NONE;
		s->bytes[i] = i == 6 ? (int64_t)1 << 40 : -1;
		s->mb[i] = s->chunk[i] = s->layer[i] = s->peer[i] = s->priority[i] = -1;
		s->module[i] = s->comm[i] = s->work[i] = s->line[i] = PL_NONE;
		for (; e < PL_LEN(edge) && edge[e].dst == i; e++) {
			s->src[e] = edge[e].src;
			s->etype[e] = edge[e].type;
		}
		s->off[i + 1] = e;
	}
	s->k[5] = 1;
	s->phase[2] = PL_PH_FORWARD;
	s->mb[2] = 4;
	s->chunk[2] = 0;
	s->layer[2] = 11;
	s->peer[3] = 64;
	s->priority[2] = 3;
	add_comm_and_work(g, s);
	add_tensor(g);
	add_step(g, 7, 0);
	add_step(g, INT64_MIN, 0);
	g->epoch_ns = 1700000000123456789;
	g->inferred_waits = 5;
	g->recorded_waits = 6;
	g->inferred_threads = 7;
	g->dropped_edges = 8;
	g->unmatched_comm = 9;
	must(pl_buf_put(&g->provenance, "trace 1: a\nmerge 1: b\n", 22, &err));
}

/* Many equal nodes, each after the one before: columns without contents, several blocks. */
static void long_graph(struct pl_graph *g, uint32_t n)
{
	struct pl_shape *s;

	pl_graph_init(g);
	add_tables(g);
	s = add_shape(g, n, n - 1, false);
	for (uint32_t i = 0; i < n; i++) {
		s->type[i] = PL_N_OP;
		s->name[i] = 0;
		s->group[i] = PL_NONE;
		s->off[i + 1] = i;
		if (i)
			s->src[i - 1] = i - 1;
	}
	add_step(g, 0, 0);
}

/* ---- comparing by the text form, which has everything ------------------------------------------
 */

static void to_text(const struct pl_graph *g, enum pl_graph_view v, struct pl_buf *b)
{
	struct pl_out *out = pl_out_open_buf(b, &err);

	if (!out)
		must(err.code);
	must(pl_graph_show(g, v, out, &err));
	must(pl_out_close(out, &err));
	must(pl_buf_put(b, "", 1, &err));
	b->n--;
}

static bool same_graph(const struct pl_graph *a, const struct pl_graph *b)
{
	struct pl_buf ta = { 0 }, tb = { 0 };
	bool same;

	to_text(a, PL_GV_TEXT, &ta);
	to_text(b, PL_GV_TEXT, &tb);
	same = ta.n == tb.n && !memcmp(ta.p, tb.p, ta.n);
	pl_buf_fini(&ta);
	pl_buf_fini(&tb);
	return same;
}

static int to_bytes(const struct pl_graph *g, int level, int threads, const char *line,
		    struct pl_buf *b)
{
	struct pl_pool *pool = pl_pool_new(threads, &err);
	struct pl_out *out = pl_out_open_buf(b, &err);
	int rc;

	if (!pool || !out)
		must(err.code);
	rc = pl_graph_write(g, out, level, pool, line, &err);
	if (rc < 0)
		pl_out_abort(out);
	else
		must(pl_out_close(out, &err));
	pl_pool_free(pool);
	return rc;
}

static int from_bytes(const void *p, size_t n, int threads, struct pl_graph *g)
{
	struct pl_pool *pool = pl_pool_new(threads, &err);
	struct pl_in *in;
	int rc;

	memset(&err, 0, sizeof(err));
	in = pl_in_open_mem("mem", p, n, &err);
	if (!pool || !in)
		must(err.code);
	rc = pl_graph_read(in, pool, g, &err);
	pl_in_close(in);
	pl_pool_free(pool);
	return rc;
}

/* ---- tests -------------------------------------------------------------------------------------
 */

static void round_trips(void)
{
	struct pl_buf b = { 0 }, b4 = { 0 }, plain = { 0 };
	struct pl_graph g, h;

	small_graph(&g);
	ok(pl_graph_valid(&g, &err), "the small graph is valid %s", err.msg);
	ok(to_bytes(&g, 1, 1, NULL, &plain) == 0, "written without history");
	must(from_bytes(plain.p, plain.n, 1, &h));
	ok(h.provenance.n == 0, "and read without");
	must(pl_buf_put(&h.provenance, g.provenance.p, g.provenance.n, &err));
	ok(same_graph(&g, &h), "all else is the same");
	ok(h.shape[0].k && h.shape[0].mb && h.epoch_ns == g.epoch_ns, "columns in use are there");
	pl_graph_fini(&h);
	must(to_bytes(&g, 1, 1, "graph 1:\nx", &b));
	must(from_bytes(b.p, b.n, 4, &h));
	ok(h.provenance.n && !strcmp("trace 1: a\nmerge 1: b\ngraph 1:\\x0ax\n",
				     (must(pl_buf_put(&h.provenance, "", 1, &err)),
				      (const char *)h.provenance.p)),
	   "history grows by one line");
	pl_graph_fini(&h);
	g.inferred_waits = -2;
	b.n = 0;
	must(to_bytes(&g, 1, 1, NULL, &b));
	ok(from_bytes(b.p, b.n, 1, &h) == PL_EDATA &&
		   strstr(err.msg, "a count of the totals is negative"),
	   "a count below zero is refused as what it is (%s)", err.msg);
	pl_graph_fini(&h);
	pl_graph_fini(&g);

	long_graph(&g, 200001);
	b.n = 0;
	must(to_bytes(&g, 1, 1, NULL, &b));
	must(to_bytes(&g, 1, 4, NULL, &b4));
	ok(b.n == b4.n && !memcmp(b.p, b4.p, b.n), "1 and 4 threads write the same bytes");
	must(from_bytes(b.p, b.n, 1, &h));
	ok(same_graph(&g, &h), "a graph of several blocks, constant columns");
	ok(!h.shape[0].k && !h.shape[0].bytes && !h.shape[0].peer,
	   "columns without contents stay away");
	pl_graph_fini(&h);
	pl_graph_fini(&g);

	pl_graph_init(&g);
	b.n = 0;
	must(to_bytes(&g, 0, 1, NULL, &b));
	ok(from_bytes(b.p, b.n, 1, &h) == 0 && h.n_steps == 0, "an empty graph");
	pl_graph_fini(&h);
	pl_graph_fini(&g);
	pl_buf_fini(&b);
	pl_buf_fini(&b4);
	pl_buf_fini(&plain);
}

static size_t steps_seen, tensors_seen;

static unsigned no_bytes(const struct pl_graph *g)
{
	steps_seen += g->n_steps;
	tensors_seen += g->n_tensors;
	return PL_HAS_bytes;
}

/* Columns that nobody wants are as if they had been dropped. */
static void left_out(void)
{
	const unsigned without = PL_HAS_bytes | PL_HAS_mb;
	struct pl_buf b = { 0 };
	struct pl_graph g, h;
	struct pl_in *in;
	bool had;

	small_graph(&g);
	had = g.shape[0].mb != NULL;
	must(to_bytes(&g, 1, 1, NULL, &b));
	in = pl_in_open_mem("mem", b.p, b.n, &err);
	must(pl_graph_read_without(in, NULL, PL_HAS_mb, no_bytes, &h, &err));
	pl_in_close(in);
	pl_graph_shape_drop_columns(&g.shape[0], without);
	g.provenance.n = 0;
	ok(had && !h.shape[0].mb && !h.shape[0].bytes && h.shape[0].k && same_graph(&g, &h),
	   "columns that nobody wants are left out, all others are there");
	ok(!steps_seen && tensors_seen == g.n_tensors && tensors_seen,
	   "who says which are dropped knows all tensors, and no step has come");
	pl_graph_fini(&h);
	pl_graph_fini(&g);
	pl_buf_fini(&b);
}

static void cuts(void)
{
	struct pl_buf b = { 0 };
	struct pl_graph g, h;
	size_t bad = 0, one;

	small_graph(&g);
	must(to_bytes(&g, 1, 1, NULL, &b));
	for (size_t n = 0; n < b.n; n++)
		if (from_bytes(b.p, n, 1, &h) != PL_EDATA || !strstr(err.msg, "mem") || h.str.n)
			bad++;
	is_i64((long long)bad, 0,
	       "cut at every byte: PL_EDATA, the file is named, nothing is left");
	bad = 0;
	for (size_t i = 0; i < b.n; i++) {
		b.p[i] ^= (uint8_t)(1u << i % 8);
		if (from_bytes(b.p, b.n, 1, &h) == 0) {
			bad += !pl_graph_valid(&h, &err);
			pl_graph_fini(&h);
		}
		b.p[i] ^= (uint8_t)(1u << i % 8);
	}
	is_i64((long long)bad, 0, "a flipped bit anywhere: refused, or harmless");
	one = b.n;
	must(pl_buf_need(&b, one, &err));
	memcpy(b.p + one, b.p, one);
	ok(from_bytes(b.p, 2 * one, 1, &h) == PL_EDATA && strstr(err.msg, "second graph"),
	   "two graphs in a row: %s", err.msg);
	pl_graph_fini(&g);
	pl_buf_fini(&b);
}

/* The blocks of a stream, so that they can be changed behind the back of the CRC. */
struct blocks {
	struct {
		uint32_t type, count;
		uint8_t *p;
		size_t n;
	} v[64];
	size_t n;
};

static void take_blocks(const struct pl_buf *b, struct blocks *x)
{
	struct pl_container_reader_opts o = { .kind = PL_KIND_GRAPH, .major = PL_GRAPH_MAJOR };
	struct pl_in *in = pl_in_open_mem("mem", b->p, b->n, &err);
	struct pl_container_reader *r = in ? pl_container_reader_open(in, &o, &err) : NULL;
	struct pl_block k;
	int rc;

	if (!r)
		must(err.code);
	x->n = 0;
	while ((rc = pl_container_reader_next(r, &k, &err)) > 0) {
		if (k.type == PL_BLOCK_SEGMENT)
			continue;
		x->v[x->n].type = k.type;
		x->v[x->n].count = k.count;
		x->v[x->n].n = k.n;
		x->v[x->n].p = pl_malloc(k.n + 1);
		memcpy(x->v[x->n++].p, k.p, k.n);
	}
	must(rc);
	pl_container_reader_close(r);
	pl_in_close(in);
}

/* Read the stream of these blocks without block `without`, block `twice` doubled. */
static int read_blocks(const struct blocks *x, size_t without, size_t twice)
{
	struct pl_container_writer_opts o = {
		.kind = PL_KIND_GRAPH, .major = 1, .minor = 1, .level = 0
	};
	struct pl_buf b = { 0 }, k = { 0 };
	struct pl_out *out = pl_out_open_buf(&b, &err);
	struct pl_container_writer *w = out ? pl_container_writer_open(out, &o, &err) : NULL;
	struct pl_graph g;
	int rc;

	if (!w)
		must(err.code);
	for (size_t i = 0; i < x->n; i++) {
		for (int n = i == without ? 0 : i == twice ? 2 : 1; n > 0; n--) {
			must(pl_buf_put(&k, x->v[i].p, x->v[i].n, &err));
			must(pl_container_writer_put(w, x->v[i].type, 1, x->v[i].count, &k, &err));
		}
	}
	must(pl_container_writer_close(w, &err));
	must(pl_out_close(out, &err));
	rc = from_bytes(b.p, b.n, 1, &g);
	if (rc == 0) {
		if (!pl_graph_valid(&g, &err))
			rc = PL_EINTERNAL;
		pl_graph_fini(&g);
	}
	pl_buf_fini(&b);
	pl_buf_fini(&k);
	return rc;
}

static bool tolerable(int rc)
{
	return rc == 0 || rc == PL_EDATA || rc == PL_ELIMIT;
}

static void hostile(void)
{
	struct pl_buf b = { 0 };
	struct blocks x;
	struct pl_graph g;
	size_t bad = 0, tried = 0, refused = 0;

	small_graph(&g);
	must(to_bytes(&g, 1, 1, NULL, &b));
	take_blocks(&b, &x);
	ok(x.n >= 10 && read_blocks(&x, SIZE_MAX, SIZE_MAX) == 0, "%zu blocks, read as they are",
	   x.n);
	for (size_t i = 0; i < x.n; i++) {
		static const uint8_t values[] = { 0x00, 0x01, 0x7f, 0x80, 0xff };

		for (size_t at = 0; at < x.v[i].n; at++) {
			uint8_t was = x.v[i].p[at];

			for (size_t v = 0; v < PL_LEN(values) + 1; v++, tried++) {
				x.v[i].p[at] = v < PL_LEN(values) ? values[v] : was ^ 0x10;
				if (!tolerable(read_blocks(&x, SIZE_MAX, SIZE_MAX)))
					printf("# block %zu byte %zu: %s\n", i, at, err.msg), bad++;
			}
			x.v[i].p[at] = was;
		}
	}
	is_i64((long long)bad, 0, "changed bytes behind a good CRC: refused, or a valid graph");
	for (size_t i = 0; i < x.n; i++) {
		uint32_t count = x.v[i].count;
		size_t n = x.v[i].n;

		refused += read_blocks(&x, i, SIZE_MAX) == PL_EDATA;
		refused += read_blocks(&x, SIZE_MAX, i) == PL_EDATA;
		x.v[i].count = UINT32_MAX;
		bad += !tolerable(read_blocks(&x, SIZE_MAX, SIZE_MAX));
		x.v[i].count = count;
		for (x.v[i].n = 0; x.v[i].n < n; x.v[i].n++)
			bad += read_blocks(&x, SIZE_MAX, SIZE_MAX) != PL_EDATA;
		x.v[i].n = n;
	}
	is_i64((long long)bad, 0, "huge counts, short payloads");
	is_i64((long long)refused, 2 * (long long)x.n, "blocks missing or repeated");
	for (size_t i = 0; i < x.n; i++)
		pl_free(x.v[i].p);
	pl_graph_fini(&g);
	pl_buf_fini(&b);
}

/* One rule broken at a time. */
static void rules(void)
{
	struct pl_graph g;
	struct pl_shape *s;
	struct pl_buf b = { 0 };

#define BROKEN(lvalue, value, what)                                                                \
	do {                                                                                       \
		small_graph(&g);                                                                   \
		s = &g.shape[0];                                                                   \
		(lvalue) = (value);                                                                \
		memset(&err, 0, sizeof(err));                                                      \
		ok(!pl_graph_valid(&g, &err) && err.code == PL_EDATA, "%s: %s", what, err.msg);    \
		pl_graph_fini(&g);                                                                 \
	} while (0)
	BROKEN(g.rank[1], 3, "a rank twice");
	BROKEN(g.res[1].rank, 5, "a resource of no rank");
	BROKEN(g.res[1].capacity, 0, "no capacity");
	BROKEN(g.res[1].host, 1000, "no such host");
	BROKEN(g.group[0].n, 3, "a group of too many");
	BROKEN(g.link[0].to, 3, "a link to nowhere");
	BROKEN(g.tensor[0].producer, 10, "a tensor from nowhere");
	BROKEN(g.consumer[1], 10, "a tensor to nowhere");
	BROKEN(g.tensor[0].role, PL_TR_COUNT_, "a tensor of an unknown role");
	BROKEN(s->type[2], PL_N_ENTRY, "an entry in the middle");
	BROKEN(s->type[0], PL_N_OP, "an entry that is none");
	BROKEN(s->role[2], PL_RO_COUNT_, "an unknown role");
	BROKEN(s->res[2], 3, "no such resource");
	BROKEN(s->res[2], PL_NONE, "an operation on no resource");
	BROKEN(s->group[2], 1, "no such group");
	BROKEN(s->src[2], 3, "an edge from itself");
	BROKEN(s->off[4], 0, "offsets that fall");
	BROKEN(s->etype[2], 0x60, "an unknown edge");
	BROKEN(s->k[5], 3, "a rendezvous of more than come");
	BROKEN(s->mb[2], -2, "a negative microbatch");
	BROKEN(s->phase[2], PL_PH_COUNT_, "an unknown phase");
	BROKEN(s->comm[3], 1, "no such communication");
	BROKEN(s->comms[0].group, 1, "a communication of no group");
	BROKEN(s->work[2], 1, "no such work");
	BROKEN(g.work[0].op, PL_OP_COUNT_, "an unknown operator");
	BROKEN(g.step[0].shape, 1, "a step of no shape");
	BROKEN(g.step[0].dur[2], -1, "a negative duration");
	BROKEN(g.step[0].start[2], INT64_MIN, "a time out of range");
	BROKEN(g.step[0].dur[0], 1, "an entry that lasts");
	small_graph(&g);
	g.step[0].dur[2] = -1;
	memset(&err, 0, sizeof(err));
	ok(to_bytes(&g, 1, 1, NULL, &b) == PL_EDATA && b.n == 0, "and is not written: %s", err.msg);
	pl_graph_fini(&g);
	pl_buf_fini(&b);
}

static void parts(void)
{
	static const int64_t rank3[] = { 0, 5 }, step7[] = { 7, 7 }, none[] = { 1000, 1001 };
	struct pl_graph_part by_rank = { .rank = rank3, .n_ranks = 1 },
			     by_step = { .step = step7, .n_steps = 1 },
			     nothing = { .step = none, .n_steps = 1 }, all = { 0 };
	struct pl_graph g, h;

	small_graph(&g);
	must(pl_graph_pick(&g, &all, &h, &err));
	ok(same_graph(&g, &h), "all of a graph is the same graph");
	pl_graph_fini(&h);
	must(pl_graph_pick(&g, &by_step, &h, &err));
	ok(h.n_steps == 1 && h.step[0].number == 7 && h.shape[0].n_nodes == 10, "one step");
	pl_graph_fini(&h);
	memset(&err, 0, sizeof(err));
	must(pl_graph_pick(&g, &by_rank, &h, &err));
	ok(pl_graph_valid(&h, &err), "one rank: valid %s", err.msg);
	is_i64(h.n_ranks, 1, "one rank");
	is_i64((long long)h.n_res, 2, "its resources");
	is_i64(h.shape[0].n_nodes, 7, "its nodes, and the rendezvous");
	ok(h.shape[0].flags[4] & PL_NF_MISSING && h.shape[0].flags[5] & PL_NF_MISSING &&
		   !(h.shape[0].flags[3] & PL_NF_MISSING),
	   "the rendezvous lacks a member, its transfer too");
	is_i64(h.step[0].start[5], g.step[0].start[6], "times move along");
	is_i64(h.consumer[1], 5, "tensors too");
	pl_graph_fini(&h);
	memset(&err, 0, sizeof(err));
	ok(pl_graph_pick(&g, &nothing, &h, &err) == PL_EDATA, "nothing left: %s", err.msg);
	pl_graph_fini(&g);
}

static void views(void)
{
	struct pl_buf b = { 0 };
	struct pl_graph g;

	small_graph(&g);
	to_text(&g, PL_GV_TEXT, &b);
	ok(strstr((char *)b.p, "group\t0\t1\ttp\\x090\t3,64\n") != NULL, "text: a tab in a name");
	ok(strstr((char *)b.p, "\tkind-200\tin_step,part\t1\t\\x2d\t-\t0\t-\t4\t0\t11\t-\t"
			       "forward\t-\t-\t0\t3\t-\t0\t0\n") != NULL,
	   "text: all fields of a node");
	ok(strstr((char *)b.p,
		  "\ncomm\t0\tallreduce\tring\tbfloat16\t0\t2\t4\t-\t1099511627776\n") &&
		   strstr((char *)b.p,
			  "\nwork\t0\tmatmul\tbfloat16\t[[2,3],[3,4]]\t48\t52\tmatmul\n"),
	   "text: communications and work");
	ok(strstr((char *)b.p, "edge\t2\t3\twait?\n") != NULL, "text: an inferred edge");
	ok(strstr((char *)b.p, "step\t1\t-\t0\n") != NULL, "text: work outside any step");
	b.n = 0;
	to_text(&g, PL_GV_DOT, &b);
	ok(strstr((char *)b.p, "subgraph cluster_") && strstr((char *)b.p, "style=dashed"),
	   "dot: clusters, dashes");
	b.n = 0;
	to_text(&g, PL_GV_JSON, &b);
	ok(strstr((char *)b.p, "\"paceline.graph/1\"") && strstr((char *)b.p, "\"tp\\t0\"") &&
		   strstr((char *)b.p, "1099511627776"),
	   "json: schema, a tab, a size");
	b.n = 0;
	to_text(&g, PL_GV_STAT_JSON, &b);
	ok(strstr((char *)b.p, "\"paceline.graph-stat/1\"") && strstr((char *)b.p, "\"allreduce\""),
	   "stat-json: schema, the collective");
	b.n = 0;
	to_text(&g, PL_GV_STAT, &b);
	ok(strstr((char *)b.p, "8 edges, 9 communications without partner") != NULL,
	   "stat: what was given up");
	pl_graph_fini(&g);
	pl_buf_fini(&b);
}

int main(void)
{
	round_trips();
	left_out();
	cuts();
	hostile();
	rules();
	parts();
	views();
	return done_testing();
}
