/*
 * Writing a graph as a stream: paceline-graph(5).
 *
 * Tables are entries with a size, so that later versions can add to them. Nodes, edges and times
 * are columns, cut into blocks of 64 Ki rows. The pool codes blocks at the same time, the threads
 * of the container compress them, and they are written in their order. An edge is stored as the
 * distance to its source; the distance is short because nodes are in order of time. A small file
 * must not make a reader allocate much memory, so a block of few bytes cannot stand for many rows:
 * blocks with constant columns are padded (ROWS_A_BYTE). Linear in nodes, edges and times.
 */
#include "core/pool.h"
#include "graph/file.h"

/* ---- writing --------------------------------------------------------------------------------- */

struct writer {
	struct pl_container_writer *out;
	struct pl_buf b;   /* the block */
	uint32_t *scratch; /* room for the rows or edges of a block */
	size_t cap;
	struct pl_queue *queue; /* of the blocks being coded */
	struct coding *free;
};

/* A block of a shape or step: its head, or some of its rows. */
struct rows {
	const struct pl_shape *s;
	const struct pl_gstep *st;
	uint32_t type, at, n;
	unsigned mask;
};
struct coding { /* a block that is being coded */
	struct rows rows;
	struct writer w; /* with its own block and scratch */
	int rc;
	struct pl_err err;
	struct coding *next; /* list of unused ones */
};

static int write_head(struct writer *w, const struct pl_graph *g, struct pl_err *err)
{
	pl_io_put_varint(&w->b, (g->stepless ? G_STEPLESS : 0) | (g->described ? G_DESCRIBED : 0));
	pl_io_put_svarint(&w->b, g->epoch_ns);
	pl_io_put_varint(&w->b, (uint64_t)g->n_ranks);
	for (int32_t i = 0; i < g->n_ranks; i++)
		pl_io_put_varint(&w->b, (uint64_t)(g->rank[i] - (i ? g->rank[i - 1] : 0)));
	return pl_container_writer_put(w->out, B_GRPH, BLOCK_VERSION, 1, &w->b, err);
}

static int write_table(struct writer *w, const struct pl_graph *g, uint32_t type,
		       const struct pl_record *r, const void *rows, size_t n, struct pl_err *err)
{
	return pl_container_writer_put_table(w->out, type, BLOCK_VERSION, r, rows, n, g, err);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

typedef uint32_t four __attribute__((vector_size(16)));

/* Write rows of a column. Numbers of 32 bits are stored so that unknown is 0. */
static void put_column(struct writer *w, const struct pl_shape *s, const struct pl_node_column *c,
		       uint32_t at, uint32_t n)
{
	const void *p = pl_graph_shape_column(s, c);
	const uint32_t *v = p;
	uint32_t i = 0;
	four x;

	if (c->size != 4) {
		if (c->size == 1)
			pl_column_put_u8(&w->b, (const uint8_t *)p + at, n);
		else
			pl_column_put_i64(&w->b, (const int64_t *)p + at, n, false);
		return;
	}
	for (; i + 4 <= n; i += 4) {
		memcpy(&x, v + at + i, sizeof(x));
		x -= (uint32_t)c->unknown;
		memcpy(w->scratch + i, &x, sizeof(x));
	}
	for (; i < n; i++)
		w->scratch[i] = v[at + i] - (uint32_t)c->unknown;
	pl_column_put_u32(&w->b, w->scratch, n, false);
}

/* Write rows of the optional columns in `mask` and, if `base`, of the columns of every shape. */
static void put_columns(struct writer *w, const struct pl_shape *s, unsigned mask, bool base,
			uint32_t at, uint32_t n)
{
	for (size_t i = 0; i < PL_N_NODE_COLUMNS; i++)
		if (pl_graph_node_columns[i].bit ? (mask & pl_graph_node_columns[i].bit) != 0
						 : base)
			put_column(w, s, &pl_graph_node_columns[i], at, n);
}

static void put_edges(struct writer *w, const struct pl_shape *s, uint32_t at, uint32_t n)
{
	uint32_t first = s->off[at], m = s->off[at + n] - first;

	for (uint32_t i = 0; i < n; i++)
		w->scratch[i] = s->off[at + i + 1] - s->off[at + i];
	pl_column_put_u32(&w->b, w->scratch, n, false);
	for (uint32_t i = at; i < at + n; i++)
		for (uint32_t e = s->off[i]; e < s->off[i + 1]; e++)
			w->scratch[e - first] = i - s->src[e];
	pl_column_put_u32(&w->b, w->scratch, m, false);
	pl_column_put_u8(&w->b, s->etype + first, m);
}

/* Zeros after the columns, so that readers can limit the rows of a block by its bytes. */
static void pad(struct writer *w, size_t rows)
{
	pl_io_put_zeros(&w->b, rows / ROWS_A_BYTE + 1);
}

static int code_nodes(struct writer *w, const struct pl_shape *s, unsigned mask, uint32_t at,
		      uint32_t n, struct pl_err *err)
{
	uint32_t m = s->off[at + n] - s->off[at];

	PL_CHECK(pl_grow(&w->scratch, &w->cap, n > m ? n : m, sizeof(*w->scratch), err));
	pl_io_put_varint(&w->b, at);
	put_columns(w, s, mask & (LATER_COLUMNS - 1), true, at, n);
	put_edges(w, s, at, n);
	put_columns(w, s, mask & ~(LATER_COLUMNS - 1), false, at, n);
	pad(w, n > m ? n : m);
	return 0;
}

static void code_times(struct writer *w, const struct pl_gstep *p, uint32_t at, uint32_t n)
{
	pl_io_put_varint(&w->b, at);
	pl_column_put_i64(&w->b, p->start + at, n, true);
	pl_column_put_i64(&w->b, p->dur + at, n, false);
	pad(w, n);
}

static void code_shape(struct writer *w, const struct pl_shape *s, unsigned mask)
{
	pl_io_put_varint(&w->b, s->n_nodes);
	pl_io_put_varint(&w->b, s->n_edges);
	pl_io_put_varint(&w->b, s->n_entries);
	pl_io_put_varint(&w->b, mask);
	pl_io_put_varint(&w->b, s->n_comms);
}

static void code_rows(void *arg)
{
	struct coding *x = arg;
	const struct rows *r = &x->rows;

	x->rc = 0;
	if (r->type == B_SHAP) {
		code_shape(&x->w, r->s, r->mask);
	} else if (r->type == B_NODE) {
		x->rc = code_nodes(&x->w, r->s, r->mask, r->at, r->n, &x->err);
	} else if (r->type == B_STEP) {
		pl_io_put_svarint(&x->w.b, r->st->number);
		pl_io_put_varint(&x->w.b, r->st->shape);
	} else {
		code_times(&x->w, r->st, r->at, r->n);
	}
}

/* Write the oldest block that is being coded. Returns 0 if there is none, else 1. */
static int put_oldest(struct writer *w, struct pl_err *err)
{
	struct coding *x = pl_queue_get(w->queue);

	if (!x)
		return 0;
	x->next = w->free;
	w->free = x;
	if (x->rc >= 0) {
		PL_CHECK(pl_container_writer_put(w->out, x->rows.type, BLOCK_VERSION, x->rows.n,
						 &x->w.b, err));
		return 1;
	}
	if (err && !err->code)
		*err = x->err;
	return x->rc;
}

static int put_rest(struct writer *w, struct pl_err *err)
{
	int rc;

	do
		rc = put_oldest(w, err);
	while (rc > 0);
	return rc;
}

static int put_rows(struct writer *w, uint32_t type, const struct rows *rows, struct pl_err *err)
{
	struct coding *x;
	int rc;

	if (pl_queue_full(w->queue) && (rc = put_oldest(w, err)) < 0)
		return rc;
	x = w->free;
	if (x)
		w->free = x->next;
	else if ((rc = pl_alloc(&x, 1, sizeof(*x), err)) < 0)
		return rc;
	x->rows = *rows;
	x->rows.type = type;
	pl_queue_put(w->queue, code_rows, x);
	return 0;
}

static void free_rows(struct writer *w)
{
	struct coding *x;

	while (w->queue && (x = pl_queue_get(w->queue))) {
		x->next = w->free;
		w->free = x;
	}
	while ((x = w->free)) {
		w->free = x->next;
		pl_buf_fini(&x->w.b);
		pl_free(x->w.scratch);
		pl_free(x);
	}
	pl_queue_free(w->queue);
}

static int write_shape(struct writer *w, const struct pl_graph *g, const struct pl_shape *s,
		       struct pl_err *err)
{
	struct rows r = { .s = s, .mask = pl_graph_shape_known(s), .n = 1 };

	PL_CHECK(put_rows(w, B_SHAP, &r, err));
	if (s->n_comms) {
		PL_CHECK(put_rest(w, err));
		PL_CHECK(write_table(w, g, B_COMM, &pl_graph_record_comm, s->comms, s->n_comms,
				     err));
	}
	for (; r.at < s->n_nodes; r.at += r.n) {
		uint32_t most = (uint32_t)pl_min_size(s->n_nodes - r.at, BLOCK_ROWS), lower = 1;

		PL_LOWER_BOUND(lower, most, s->off[r.at + lower + 1] - s->off[r.at] <= BLOCK_EDGES);
		r.n = lower;
		PL_CHECK(put_rows(w, B_NODE, &r, err));
	}
	return 0;
}

static int write_step(struct writer *w, const struct pl_graph *g, const struct pl_gstep *p,
		      struct pl_err *err)
{
	struct rows r = { .s = &g->shape[p->shape], .st = p, .n = 1 };

	PL_CHECK(put_rows(w, B_STEP, &r, err));
	for (; r.at < r.s->n_nodes; r.at += r.n) {
		r.n = (uint32_t)pl_min_size(r.s->n_nodes - r.at, BLOCK_ROWS);
		PL_CHECK(put_rows(w, B_TIME, &r, err));
	}
	return 0;
}

static int write_totals(struct writer *w, const struct pl_graph *g, struct pl_err *err)
{
	const uint64_t n[] = { g->str.n,    g->n_res,	  g->n_groups, g->n_links,
			       g->n_shapes, g->n_tensors, g->n_steps };

	for (size_t i = 0; i < PL_LEN(n); i++)
		pl_io_put_varint(&w->b, n[i]);
#define PUT(name) pl_io_put_svarint(&w->b, g->name);
	PL_GRAPH_COUNTS(PUT)
	pl_io_put_varint(&w->b, g->n_work);
	return pl_container_writer_put(w->out, B_TOTL, BLOCK_VERSION, 1, &w->b, err);
}

static int write_all(struct writer *w, const struct pl_graph *g, const char *provenance,
		     struct pl_err *err)
{
	PL_CHECK(write_head(w, g, err));
	if (provenance)
		PL_CHECK(pl_container_writer_put_provenance(w->out, BLOCK_VERSION, g->provenance.p,
							    g->provenance.n, provenance, err));
	PL_CHECK(pl_container_writer_put_strings(w->out, B_STRS, BLOCK_VERSION, &g->str, 0,
						 STRING_BYTES, err));
	PL_CHECK(write_table(w, g, B_RSRC, &pl_graph_record_resource, g->res, g->n_res, err));
	PL_CHECK(write_table(w, g, B_GRUP, &pl_graph_record_group, g->group, g->n_groups, err));
	PL_CHECK(write_table(w, g, B_LINK, &pl_graph_record_link, g->link, g->n_links, err));
	PL_CHECK(write_table(w, g, B_WORK, &pl_graph_record_work, g->work, g->n_work, err));
	for (size_t i = 0; i < g->n_shapes; i++)
		PL_CHECK(write_shape(w, g, &g->shape[i], err));
	PL_CHECK(put_rest(w, err));
	PL_CHECK(write_table(w, g, B_TNSR, &pl_graph_record_tensor, g->tensor, g->n_tensors, err));
	for (size_t i = 0; i < g->n_steps; i++)
		PL_CHECK(write_step(w, g, &g->step[i], err));
	PL_CHECK(put_rest(w, err));
	PL_CHECK(write_totals(w, g, err));
	return 0;
}

int pl_graph_write(const struct pl_graph *g, struct pl_out *out, int level, struct pl_pool *pool,
		   const char *provenance, struct pl_err *err)
{
	struct pl_container_writer_opts c = { .kind = PL_KIND_GRAPH,
					      .major = PL_GRAPH_MAJOR,
					      .minor = PL_GRAPH_MINOR,
					      .level = level,
					      .pool = pool };
	struct pl_err why = { 0 };
	struct writer w = { 0 };
	int threads = pl_pool_threads(pool), rc;

	if (!pl_graph_valid(g, &why))
		return pl_fail(err, PL_EDATA, "this graph cannot be written: %s", why.msg);
	w.out = pl_container_writer_open(out, &c, err);
	if (!w.out)
		return err ? err->code : PL_ENOMEM;
	w.queue = pl_queue_new(pool, threads > 1 ? 2 * threads : 1, err);
	rc = w.queue ? write_all(&w, g, provenance, err) : err ? err->code : PL_ENOMEM;
	free_rows(&w);
	if (rc < 0)
		pl_container_writer_abort(w.out);
	else
		rc = pl_container_writer_close(w.out, err);
	pl_buf_fini(&w.b);
	pl_free(w.scratch);
	return rc;
}
