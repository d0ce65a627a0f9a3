/*
 * Cost models of tensor programs as files, paceline-costmodel(5): blocks PHED (learner, device,
 * ranges, errors of operations), PROV, PTRE (trees), PNET (a network), PADA, PNAD and PLFT (trees,
 * parameters and errors of an adaptation), PEND.
 */
#include <math.h>

#include "io/blocks.h"
#include "io/record.h"
#include "tprog/network.h"

#define B_HEAD	      PL_FOURCC('P', 'H', 'E', 'D')
#define B_TREES	      PL_FOURCC('P', 'T', 'R', 'E')
#define B_NET	      PL_FOURCC('P', 'N', 'E', 'T')
#define B_ADAPTED     PL_FOURCC('P', 'A', 'D', 'A')
#define B_NET_ADAPTED PL_FOURCC('P', 'N', 'A', 'D')
#define B_HELD_OUT    PL_FOURCC('P', 'L', 'F', 'T')
#define B_END	      PL_FOURCC('P', 'E', 'N', 'D')
#define BLOCK_VERSION 1

static void put_head(struct pl_buf *b, const struct pl_tprog_model *m)
{
	pl_io_put_u8(b, (uint8_t)m->learner);
	pl_io_put_str(b, m->device, strlen(m->device));
	pl_io_put_varint(b, m->n_rows);
	pl_io_put_varint(b, PL_TPROG_COLUMNS);
	for (int c = 0; c < PL_TPROG_COLUMNS; c++) {
		pl_io_put_f64(b, (double)m->least[c]);
		pl_io_put_f64(b, (double)m->most[c]);
	}
	pl_io_put_varint(b, m->ops.n);
	for (pl_id k = 0; k <= m->ops.n; k++) {
		const struct pl_tprog_errors *e = &m->errors[k];
		const char *name = k < m->ops.n ? m->ops.str[k] : "";

		pl_io_put_str(b, name, strlen(name));
		pl_io_put_varint(b, e->n);
		pl_io_put_f64(b, e->shift);
		pl_io_put_f64(b, e->low);
		pl_io_put_f64(b, e->high);
		pl_io_put_f64(b, e->offset);
	}
}

static int put_trees(struct pl_container_writer *w, uint32_t type, const struct pl_boost *trees,
		     struct pl_buf *b, struct pl_err *err)
{
	if (!trees->n_trees)
		return 0;
	pl_boost_put(trees, b);
	return pl_container_writer_put(w, type, BLOCK_VERSION, 1, b, err);
}

struct written {
	const struct pl_tprog_model *m;
	const char *provenance;
};

static int put_blocks(const void *arg, struct pl_container_writer *w, struct pl_err *err)
{
	const struct written *a = arg;
	const struct pl_tprog_model *m = a->m;
	struct pl_buf b = { 0 };
	int rc;

	put_head(&b, m);
	PL_TRY(pl_container_writer_put(w, B_HEAD, BLOCK_VERSION, 1, &b, err));
	PL_TRY(pl_container_writer_put_provenance(w, BLOCK_VERSION, NULL, 0, a->provenance, err));
	PL_TRY(put_trees(w, B_TREES, &m->trees, &b, err));
	if (m->net) {
		pl_tprog_network_put(m->net, &b);
		PL_TRY(pl_container_writer_put(w, B_NET, BLOCK_VERSION, 1, &b, err));
	}
	PL_TRY(put_trees(w, B_ADAPTED, &m->adapted, &b, err));
	if (m->net && pl_tprog_network_put_adapted(m->net, &b))
		PL_TRY(pl_container_writer_put(w, B_NET_ADAPTED, BLOCK_VERSION, 1, &b, err));
	if (m->held_out.n) {
		pl_io_put_varint(&b, m->held_out.n);
		pl_io_put_f64(&b, m->held_out.low);
		pl_io_put_f64(&b, m->held_out.high);
		PL_TRY(pl_container_writer_put(w, B_HELD_OUT, BLOCK_VERSION, 1, &b, err));
	}
	rc = pl_container_writer_put(w, B_END, BLOCK_VERSION, 1, &b, err);
out:
	pl_buf_fini(&b);
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

static void get_errors(struct pl_cur *c, struct pl_tprog_errors *e)
{
	uint64_t n = pl_io_get_varint(c);

	c->bad |= n > UINT32_MAX;
	e->n = (uint32_t)n;
	e->shift = pl_io_get_f64(c);
	e->low = pl_io_get_f64(c);
	e->high = pl_io_get_f64(c);
	e->offset = pl_io_get_f64(c);
	c->bad |= !isfinite(e->shift) || !isfinite(e->offset) || !(e->low <= e->shift) ||
		  !(e->shift <= e->high) || !isfinite(e->low) || !isfinite(e->high);
}

/* Entries of vectors are logarithms, shares and small numbers. */
static float get_entry(struct pl_cur *c)
{
	double v = pl_io_get_f64(c);

	c->bad |= !(fabs(v) < 1e30);
	return c->bad ? 0 : (float)v;
}

static int get_head(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	struct pl_tprog_model *m = arg;
	uint64_t columns, n;
	const char *s;
	size_t length;
	pl_id id;

	(void)b;
	m->learner = (enum pl_tprog_learner)pl_min_i64((int64_t)pl_io_get_u8(c), PL_TPROG_WORK);
	s = pl_io_get_str(c, &length);
	if (s)
		snprintf(m->device, sizeof(m->device), "%.*s", (int)pl_min_size(length, 159), s);
	m->n_rows = pl_io_get_varint(c);
	columns = pl_io_get_varint(c);
	if (!c->bad && columns != PL_TPROG_COLUMNS)
		return pl_fail(err, PL_EDATA,
			       "its vectors have %llu entries, and this program makes %d: train it "
			       "again",
			       (unsigned long long)columns, PL_TPROG_COLUMNS);
	for (int i = 0; i < PL_TPROG_COLUMNS; i++) {
		m->least[i] = get_entry(c);
		m->most[i] = get_entry(c);
	}
	n = pl_io_get_varint(c);
	if (c->bad || m->learner > PL_TPROG_BOTH || n > PL_TPROG_OPS_MAX)
		return pl_record_get_short(err);
	PL_CHECK(pl_alloc(&m->errors, (size_t)n + 1, sizeof(*m->errors), err));
	for (uint64_t k = 0; k <= n; k++) {
		s = pl_io_get_str(c, &length);
		get_errors(c, &m->errors[k]);
		if (c->bad)
			return pl_record_get_short(err);
		if (k < n)
			PL_CHECK(pl_intern_add(&m->ops, s, length, &id, err));
	}
	return m->ops.n == n ? 0 : pl_fail(err, PL_EDATA, "an operation occurs twice");
}

static int get_trees(struct pl_cur *c, struct pl_boost *trees, struct pl_err *err)
{
	pl_boost_fini(trees);
	PL_CHECK(pl_boost_get(c, trees, err));
	return trees->n_features == PL_TPROG_COLUMNS
		       ? 0
		       : pl_fail(err, PL_EDATA, "its trees have vectors of %u entries, not %d",
				 trees->n_features, PL_TPROG_COLUMNS);
}

static int get_learned(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	(void)b;
	return get_trees(c, &((struct pl_tprog_model *)arg)->trees, err);
}

static int get_net(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	struct pl_tprog_model *m = arg;

	(void)b;
	pl_tprog_network_free(m->net);
	return pl_tprog_network_get(c, &m->net, err);
}

static int get_adapted(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	(void)b;
	return get_trees(c, &((struct pl_tprog_model *)arg)->adapted, err);
}

static int get_net_adapted(void *arg, const struct pl_block *b, struct pl_cur *c,
			   struct pl_err *err)
{
	struct pl_tprog_model *m = arg;

	(void)b;
	if (!m->net)
		return pl_fail(err, PL_EDATA, "an adapted network comes before the network");
	return pl_tprog_network_get_adapted(c, m->net, err);
}

static int get_held_out(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	struct pl_tprog_held_out *x = &((struct pl_tprog_model *)arg)->held_out;
	uint64_t n = pl_io_get_varint(c);

	(void)b;
	x->n = (uint32_t)n;
	x->low = pl_io_get_f64(c);
	x->high = pl_io_get_f64(c);
	c->bad |= !n || n > UINT32_MAX || !(fabs(x->low) < 1e3) || !(fabs(x->high) < 1e3);
	return c->bad ? pl_record_get_short(err) : 0;
}

static int get_end(void *arg, const struct pl_block *b, struct pl_cur *c, struct pl_err *err)
{
	(void)arg;
	(void)b;
	(void)c;
	(void)err;
	return 0;
}

static const struct pl_blocks_part parts[] = { { B_HEAD, get_head },
					       { B_TREES, get_learned },
					       { B_NET, get_net },
					       { B_ADAPTED, get_adapted },
					       { B_NET_ADAPTED, get_net_adapted },
					       { B_HELD_OUT, get_held_out },
					       { B_END, get_end } };
static const struct pl_blocks_form form = { .what = "model",
					    .remedy = "train it again",
					    .kind = PL_KIND_MODEL,
					    .major = PL_TPROG_MODEL_MAJOR,
					    .version = BLOCK_VERSION,
					    .part = parts,
					    .n_parts = PL_LEN(parts) };

static int check_parts(const struct pl_tprog_model *m, const char *name, struct pl_err *err)
{
	bool trees = m->learner != PL_TPROG_NET, net = m->learner != PL_TPROG_TREES;

	if (trees == (m->trees.n_trees > 0) && net == (m->net != NULL))
		return 0;
	return pl_fail(err, PL_EDATA, "%s: the model lacks its trees or its network", name);
}

const char *pl_tprog_model_device(const struct pl_tprog_model *m)
{
	return m->device;
}

bool pl_tprog_model_is(struct pl_in *in)
{
	return pl_blocks_is(in, &form);
}

int pl_tprog_model_read(struct pl_in *in, struct pl_tprog_model **out, struct pl_err *err)
{
	struct pl_tprog_model *m;
	const uint8_t *first;
	int64_t n = pl_in_peek(in, 18, &first, err);
	int rc;

	*out = NULL;
	if (n < 0)
		return (int)n;
	if (!pl_container_probe(first, (size_t)n))
		return pl_fail(err, PL_EDATA,
			       "%s: not a cost model (predict --train --schema=tprog makes one of "
			       "tensor programs)",
			       pl_in_name(in));
	PL_CHECK(pl_alloc(&m, 1, sizeof(*m), err));
	rc = pl_blocks_read(in, &form, m, err);
	if (rc >= 0)
		rc = check_parts(m, pl_in_name(in), err);
	if (rc < 0)
		pl_tprog_model_free(m);
	else
		*out = m;
	return rc;
}

/* ---- as a file ------------------------------------------------------------------------------- */

int pl_tprog_model_write(const struct pl_tprog_model *m, const char *provenance, struct pl_out *out,
			 int level, struct pl_err *err)
{
	const struct written a = { m, provenance };

	return pl_blocks_write(out, &form, level, put_blocks, &a, err);
}
