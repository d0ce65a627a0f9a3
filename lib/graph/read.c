/*
 * Reading a graph from a stream: paceline-graph(5).
 *
 * A state machine over the blocks of the container: the head, tables, and for each shape and step
 * the announced number of rows, before any other block may come. Memory grows with the bytes that
 * have arrived, not with announced numbers, and the bytes of a block limit its rows. Decoding
 * checks only that it stays inside its arrays; pl_graph_valid() then checks the graph.
 */
#include "graph/file.h"

#define ROWS_FIRST (2u * BLOCK_ROWS) /* nodes to allocate at first */

struct reader {
	struct pl_graph *g;
	unsigned minor;	       /* version of the stream; 0 has no communications and no work */
	bool head, totals;     /* seen */
	bool nodes, times;     /* more rows of the last shape or step must come */
	uint32_t rows, edges;  /* that were read */
	size_t cap, cap_edges; /* of the shape being read */
	unsigned mask;	       /* its optional columns */
	unsigned leave_out;    /* the columns to skip, in every shape */
	unsigned (*drop)(const struct pl_graph *g); /* which others to drop before the steps */
	void *skipped;				    /* rows of a column to skip */
	size_t cap_skipped;
	uint32_t comms; /* the announced number of its communications */
	size_t cap_comms;
};

static int finish(const struct pl_cur *c, struct pl_err *err)
{
	return c->bad ? pl_record_get_short(err) : 0;
}

static uint32_t get_u32(struct pl_cur *c)
{
	uint64_t v = pl_io_get_varint(c);

	if (v > UINT32_MAX)
		c->bad = true;
	return (uint32_t)v;
}

static size_t left(const struct pl_cur *c)
{
	return (size_t)(c->end - c->p);
}

/* ---- head, history, strings ------------------------------------------------------------------ */

static int get_head(struct reader *r, struct pl_cur *c, uint32_t rows, struct pl_err *err)
{
	(void)rows;
	struct pl_graph *g = r->g;
	uint64_t flags = pl_io_get_varint(c), n, rank = 0;

	g->epoch_ns = pl_io_get_svarint(c);
	g->stepless = flags & G_STEPLESS;
	g->described = flags & G_DESCRIBED;
	n = pl_io_get_varint(c);
	if (c->bad || n > left(c))
		return pl_record_get_short(err);
	PL_CHECK(pl_alloc(&g->rank, n, sizeof(*g->rank), err));
	for (uint64_t i = 0; i < n; i++) {
		rank += pl_io_get_varint(c);
		if (rank > INT32_MAX)
			return pl_fail(err, PL_EDATA, "a rank out of range");
		g->rank[i] = (int32_t)rank;
	}
	g->n_ranks = (int32_t)n;
	r->head = true;
	return finish(c, err);
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Read the communications of the last shape. */
static int get_comms(struct reader *r, struct pl_cur *c, uint32_t count, struct pl_err *err)
{
	struct pl_shape *s = &r->g->shape[r->g->n_shapes - 1];
	size_t n = s->n_comms;
	int rc;

	if (count > r->comms - s->n_comms)
		return pl_fail(err, PL_EDATA, "more communications than announced");
	rc = pl_record_get_table(c, count, &pl_graph_record_comm, &s->comms, &n, &r->cap_comms,
				 NULL, NULL, err);
	s->n_comms = (uint32_t)n;
	return rc;
}

#define TABLE(record, array, n, cap)                                                               \
	static int get_##array(struct reader *r, struct pl_cur *c, uint32_t count,                 \
			       struct pl_err *err)                                                 \
	{                                                                                          \
		return pl_record_get_table(c, count, &pl_graph_record_##record, &r->g->array,      \
					   &r->g->n, &r->g->cap, NULL, r->g, err);                 \
	}
TABLE(resource, res, n_res, cap_res)
TABLE(group, group, n_groups, cap_groups)
TABLE(link, link, n_links, cap_links)
TABLE(work, work, n_work, cap_work)
TABLE(tensor, tensor, n_tensors, cap_tensors)

static int get_strings(struct reader *r, struct pl_cur *c, uint32_t count, struct pl_err *err)
{
	return pl_record_get_strings(c, count, &r->g->str, err);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static int resize(void *array, size_t n, size_t size, struct pl_err *err)
{
	void **p = array, *q;

	q = pl_realloc(*p, n * size);
	if (!q)
		return pl_fail(err, PL_ENOMEM, "out of memory (%zu bytes)", n * size);
	*p = q;
	return 0;
}

/* The next capacity of an array: much larger, because memory that nobody writes to costs nothing,
 * and arrays that grow often fragment the heap; but not more than the file announced. */
static size_t next_cap(size_t cap, size_t need, size_t all)
{
	cap = cap ? 16 * cap : ROWS_FIRST;
	if (cap < need)
		cap = need;
	return pl_min_size(cap, all);
}

static int need_nodes(struct reader *r, struct pl_shape *s, size_t need, struct pl_err *err)
{
	size_t cap;

	if (need <= r->cap && s->off)
		return 0;
	cap = next_cap(r->cap, need, s->n_nodes);
	PL_CHECK(pl_graph_shape_room_nodes(s, r->mask & ~r->leave_out, cap, err));
	r->cap = cap;
	return 0;
}

static int need_edges(struct reader *r, struct pl_shape *s, size_t need, struct pl_err *err)
{
	size_t cap;

	if (need <= r->cap_edges && s->src)
		return 0;
	cap = next_cap(r->cap_edges, need, s->n_edges);
	PL_CHECK(pl_graph_shape_room_edges(s, cap, err));
	r->cap_edges = cap;
	return 0;
}

static int get_shape(struct reader *r, struct pl_cur *c, uint32_t rows, struct pl_err *err)
{
	(void)rows;
	struct pl_graph *g = r->g;
	struct pl_shape *s;

	PL_CHECK(pl_append(&g->shape, &g->n_shapes, &g->cap_shapes, &(struct pl_shape){ 0 },
			   sizeof(*s), err));
	s = &g->shape[g->n_shapes - 1];
	s->n_nodes = get_u32(c);
	s->n_edges = get_u32(c);
	s->n_entries = get_u32(c);
	r->mask = (unsigned)(pl_io_get_varint(c) & UINT32_MAX);
	r->comms = r->minor ? get_u32(c) : 0;
	r->cap_comms = 0;
	r->rows = r->edges = 0;
	r->cap = r->cap_edges = 0;
	r->nodes = s->n_nodes > 0;
	PL_CHECK(finish(c, err));
	if (s->n_nodes == PL_NONE || (!s->n_nodes && s->n_edges))
		return pl_fail(err, PL_EDATA, "a shape of impossible size");
	PL_CHECK(need_nodes(r, s, 0, err));
	PL_CHECK(need_edges(r, s, 0, err));
	return 0;
}

/* Rows of a column; see put_column() of the writer. */
static int get_column(struct reader *r, const struct pl_shape *s, const struct pl_node_column *c,
		      struct pl_cur *in, uint32_t n, struct pl_err *err)
{
	char *p = pl_graph_shape_column(s, c);
	uint32_t *v;
	int rc = 0;

	if (!p)
		rc = pl_grow(&r->skipped, &r->cap_skipped, n, sizeof(int64_t), err);
	if (rc < 0)
		return rc;
	p = p ? p + r->rows * c->size : r->skipped;
	if (c->size == 1)
		return pl_column_get_u8(in, (uint8_t *)p, n, err);
	if (c->size == 8)
		return pl_column_get_i64(in, (int64_t *)(void *)p, n, err);
	v = (uint32_t *)(void *)p;
	rc = pl_column_get_u32(in, v, n, err);
	for (uint32_t i = 0; i < n && rc >= 0; i++)
		v[i] += (uint32_t)c->unknown;
	return rc;
}

static int get_columns(struct reader *r, const struct pl_shape *s, unsigned mask, bool base,
		       struct pl_cur *in, uint32_t n, struct pl_err *err)
{
	int rc = 0;

	for (size_t i = 0; i < PL_N_NODE_COLUMNS && rc >= 0; i++)
		if (pl_graph_node_columns[i].bit ? (mask & pl_graph_node_columns[i].bit) != 0
						 : base)
			rc = get_column(r, s, &pl_graph_node_columns[i], in, n, err);
	return rc;
}

/* Read in-degrees as offsets. */
static int get_degrees(struct reader *r, struct pl_shape *s, struct pl_cur *c, uint32_t n,
		       uint64_t most, struct pl_err *err)
{
	uint32_t *off = s->off + r->rows + 1;
	uint64_t sum = r->edges;

	PL_CHECK(pl_column_get_u32(c, off, n, err));
	for (uint32_t i = 0; i < n; i++) {
		sum += off[i];
		if (sum > s->n_edges || sum - r->edges > most)
			return pl_fail(err, PL_EDATA, "more edges than announced");
		off[i] = (uint32_t)sum;
	}
	return 0;
}

static int get_edges(struct reader *r, struct pl_shape *s, struct pl_cur *c, uint32_t n,
		     uint64_t most, struct pl_err *err)
{
	uint32_t *src, m, bad = 0;

	PL_CHECK(get_degrees(r, s, c, n, most, err));
	m = s->off[r->rows + n] - r->edges;
	PL_CHECK(need_edges(r, s, (size_t)r->edges + m, err));
	src = s->src;
	PL_CHECK(pl_column_get_u32(c, src + r->edges, m, err));
	PL_CHECK(pl_column_get_u8(c, s->etype + r->edges, m, err));
	for (uint32_t i = r->rows; i < r->rows + n; i++) {
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++) {
			bad |= src[e] - 1u >= i; /* 0, or a node below 0 */
			src[e] = i - src[e];
		}
	}
	if (bad)
		return pl_fail(err, PL_EDATA, "an edge from a node that does not come before");
	r->edges += m;
	return 0;
}

/* The number of rows in this block. The rows must follow the earlier ones and fit the bytes. */
static int next_rows(const struct reader *r, struct pl_cur *c, uint32_t count, uint32_t all,
		     struct pl_err *err)
{
	size_t bytes = left(c);
	uint64_t first = pl_io_get_varint(c);

	if (c->bad)
		return pl_record_get_short(err);
	if (first != r->rows)
		return pl_fail(err, PL_EDATA, "rows from %llu on, but %u came before",
			       (unsigned long long)first, r->rows);
	if (!count || count > BLOCK_ROWS || count > all - r->rows ||
	    count > (uint64_t)bytes * ROWS_A_BYTE)
		return pl_fail(err, PL_EDATA, "%u rows where %u are missing, in %zu bytes", count,
			       all - r->rows, bytes);
	return 0;
}

static int get_nodes(struct reader *r, struct pl_cur *c, uint32_t n, struct pl_err *err)
{
	struct pl_shape *s = &r->g->shape[r->g->n_shapes - 1];
	uint64_t most = (uint64_t)left(c) * ROWS_A_BYTE;
	uint32_t at = r->rows;

	PL_CHECK(next_rows(r, c, n, s->n_nodes, err));
	PL_CHECK(need_nodes(r, s, (size_t)at + n, err));
	PL_CHECK(get_columns(r, s, r->mask & (LATER_COLUMNS - 1), true, c, n, err));
	PL_CHECK(get_edges(r, s, c, n, most, err));
	PL_CHECK(get_columns(r, s, r->mask & ~(LATER_COLUMNS - 1), false, c, n, err));
	r->rows += n;
	if (r->rows == s->n_nodes) {
		r->nodes = false;
		if (r->edges != s->n_edges)
			return pl_fail(err, PL_EDATA, "%u edges, but %u were announced", r->edges,
				       s->n_edges);
	}
	return 0;
}

/* ---- steps ----------------------------------------------------------------------------------- */

static int get_step(struct reader *r, struct pl_cur *c, uint32_t rows, struct pl_err *err)
{
	(void)rows;
	struct pl_graph *g = r->g;
	struct pl_gstep *p;
	size_t n;

	if (!g->n_steps && r->drop) {
		unsigned bits = r->drop(g);

		for (size_t i = 0; i < g->n_shapes; i++)
			pl_graph_shape_drop_columns(&g->shape[i], bits);
	}
	PL_CHECK(pl_append(&g->step, &g->n_steps, &g->cap_steps, &(struct pl_gstep){ 0 },
			   sizeof(*p), err));
	p = &g->step[g->n_steps - 1];
	p->number = pl_io_get_svarint(c);
	p->shape = get_u32(c);
	PL_CHECK(finish(c, err));
	if (p->shape >= g->n_shapes)
		return pl_fail(err, PL_EDATA, "a step of shape %u of %zu", p->shape, g->n_shapes);
	n = g->shape[p->shape].n_nodes;
	PL_CHECK(resize(&p->start, n + 1, sizeof(*p->start), err));
	PL_CHECK(resize(&p->dur, n + 1, sizeof(*p->dur), err));
	r->rows = 0;
	r->times = n > 0;
	return 0;
}

static int get_times(struct reader *r, struct pl_cur *c, uint32_t n, struct pl_err *err)
{
	const struct pl_gstep *p = &r->g->step[r->g->n_steps - 1];
	uint32_t all = r->g->shape[p->shape].n_nodes;

	PL_CHECK(next_rows(r, c, n, all, err));
	PL_CHECK(pl_column_get_i64(c, p->start + r->rows, n, err));
	PL_CHECK(pl_column_get_i64(c, p->dur + r->rows, n, err));
	r->rows += n;
	r->times = r->rows < all;
	return 0;
}

static int get_totals(struct reader *r, struct pl_cur *c, uint32_t rows, struct pl_err *err)
{
	(void)rows;
	struct pl_graph *g = r->g;
	const uint64_t have[] = { g->str.n,    g->n_res,     g->n_groups, g->n_links,
				  g->n_shapes, g->n_tensors, g->n_steps };
	static const char *const what[] = { "strings", "resources", "groups", "links",
					    "shapes",  "tensors",   "steps" };
#define COUNT(name) &g->name,
	int64_t *count[] = { PL_GRAPH_COUNTS(COUNT) };

	for (size_t i = 0; i < PL_LEN(have); i++) {
		uint64_t n = pl_io_get_varint(c);

		if (!c->bad && n != have[i])
			return pl_fail(err, PL_EDATA, "%llu %s, but the totals say %llu",
				       (unsigned long long)have[i], what[i], (unsigned long long)n);
	}
	for (size_t i = 0; i < PL_LEN(count); i++) {
		*count[i] = pl_io_get_svarint(c);
		if (!c->bad && *count[i] < 0)
			return pl_fail(err, PL_EDATA, "a count of the totals is negative");
	}
	if (r->minor && pl_io_get_varint(c) != g->n_work && !c->bad)
		return pl_fail(err, PL_EDATA, "rows of work are missing, or there are too many");
	r->totals = true;
	return finish(c, err);
}

/* ---- the whole ------------------------------------------------------------------------------- */

static const struct {
	uint32_t type;
	int (*get)(struct reader *r, struct pl_cur *c, uint32_t count, struct pl_err *err);
} blocks[] = {
	{ B_GRPH, get_head },	{ B_STRS, get_strings }, { B_RSRC, get_res },
	{ B_GRUP, get_group },	{ B_LINK, get_link },	 { B_WORK, get_work },
	{ B_SHAP, get_shape },	{ B_COMM, get_comms },	 { B_NODE, get_nodes },
	{ B_TNSR, get_tensor }, { B_STEP, get_step },	 { B_TIME, get_times },
	{ B_TOTL, get_totals },
};

/* May this block come now? */
static int check_order(const struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	if (b->version > BLOCK_VERSION)
		return pl_fail(err, PL_EDATA,
			       "version %u of its type is newer than this program: use a newer one",
			       b->version);
	if (r->totals)
		return pl_fail(err, PL_EDATA, "something follows the totals");
	if ((b->type == B_GRPH) == r->head)
		return pl_fail(err, PL_EDATA,
			       r->head ? "a second head"
				       : "the graph does not begin with its head");
	if (b->type == B_COMM && (!r->nodes || r->rows))
		return pl_fail(err, PL_EDATA, "communications of no shape");
	if (b->type == B_NODE && r->nodes && r->comms != r->g->shape[r->g->n_shapes - 1].n_comms)
		return pl_fail(err, PL_EDATA, "communications of a shape are missing");
	if (b->type != B_COMM && (b->type == B_NODE) != r->nodes)
		return pl_fail(err, PL_EDATA,
			       r->nodes ? "nodes of a shape are missing" : "nodes of no shape");
	if ((b->type == B_TIME) != r->times)
		return pl_fail(err, PL_EDATA,
			       r->times ? "times of a step are missing" : "times of no step");
	return 0;
}

static int on_block(void *arg, const struct pl_block *b, struct pl_err *err)
{
	struct reader *r = arg;
	struct pl_cur c = { .p = b->p, .end = b->p + b->n };

	r->minor = b->minor;
	if (b->type == PL_BLOCK_PROVENANCE)
		return pl_record_get_provenance(&r->g->provenance, b, err);
	for (size_t i = 0; i < PL_LEN(blocks); i++) {
		if (blocks[i].type != b->type)
			continue;
		PL_CHECK(check_order(r, b, err));
		return blocks[i].get(r, &c, b->count, err);
	}
	return 0; /* a type of block of a later version */
}

int pl_graph_read(struct pl_in *in, struct pl_pool *pool, struct pl_graph *g, struct pl_err *err)
{
	return pl_graph_read_without(in, pool, 0, NULL, g, err);
}

int pl_graph_read_without(struct pl_in *in, struct pl_pool *pool, unsigned leave_out,
			  unsigned (*drop)(const struct pl_graph *g), struct pl_graph *g,
			  struct pl_err *err)
{
	struct pl_container_reader_opts c = { .kind = PL_KIND_GRAPH,
					      .major = PL_GRAPH_MAJOR,
					      .pool = pool };
	struct reader r = { .g = g, .leave_out = leave_out, .drop = drop };
	struct pl_err why = { 0 };
	int rc;

	pl_graph_init(g);
	rc = pl_container_reader_each(in, &c, "graph", on_block, &r, &why);
	pl_free(r.skipped);
	if (rc >= 0 && !r.totals)
		rc = pl_fail(&why, PL_EDATA, "%s: the graph has no totals: it is not complete",
			     pl_in_name(in));
	if (rc >= 0 && !pl_graph_valid(g, &why))
		rc = pl_wrap(&why, "%s", pl_in_name(in));
	if (rc < 0) {
		pl_graph_fini(g);
		if (err && !err->code)
			*err = why;
	}
	return rc;
}
