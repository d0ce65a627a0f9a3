/*
 * Plans as streams, read and written: the binary form of paceline-plan(5); and which form it is.
 *
 * Tensors and rewrites are entries (io/record.h). An entry that announces more names than it has
 * bytes is refused, so that the input bounds the memory. pl_plan_check() checks the result. Linear.
 */
#include "io/record.h"
#include "plan/internal.h"

#define BLOCK_VERSION 1

#define B_PLAN PL_FOURCC('P', 'L', 'A', 'N')
#define B_TNSR PL_FOURCC('T', 'N', 'S', 'R')
#define B_RWRT PL_FOURCC('R', 'W', 'R', 'T')
#define B_TOTL PL_FOURCC('T', 'O', 'T', 'L')

#define F_PRIORITY 1u /* feature bit: there are rewrites of priority */

#define H_BASE	     1u
#define H_INCOMPLETE 2u
#define H_ERROR	     4u
#define T_ESTIMATED  1u
#define T_SET	     2u
#define T_STAGE	     4u

/* ---- writing --------------------------------------------------------------------------------- */

/* A head is flags (H_*), then members of the plan, and error_ns with H_ERROR. */
#define FIELD(coding, member) PL_FIELD(coding, struct pl_plan, member)
static const struct pl_field head_fields[] = {
	FIELD(TEXT, base),	  FIELD(SIZE, ranks),	FIELD(I64, baseline_ns),
	FIELD(I64, predicted_ns), FIELD(I64, bound_ns), FIELD(I64, evaluations),
	FIELD(I64, peak_bytes),	  FIELD(I64, model_ns),
};
static const struct pl_record head_record = { PL_RECORD("head", struct pl_plan, head_fields) };
static const struct pl_field error_fields[] = { FIELD(I64, error_ns) };
static const struct pl_record error_record = { PL_RECORD("error", struct pl_plan, error_fields) };
#undef FIELD

#define FIELD(coding, member) PL_FIELD(coding, struct pl_ptensor, member)
static const struct pl_field tensor_fields[] = { FIELD(TEXT, name), FIELD(SIZE, bytes) };
#undef FIELD

static int put_tensor(struct pl_buf *b, const void *row, const void *arg, struct pl_err *err)
{
	const struct pl_ptensor *t = row;
	uint64_t flags = (t->estimated ? T_ESTIMATED : 0) | (t->set != PL_NONE ? T_SET : 0) |
			 (t->stage ? T_STAGE : 0);

	(void)arg;
	(void)err;
	pl_io_put_varint(b, flags);
	if (t->set != PL_NONE)
		pl_io_put_varint(b, t->set);
	if (t->stage)
		pl_io_put_varint(b, (uint64_t)t->stage);
	return 0;
}

static int get_tensor(struct pl_cur *c, void *row, void *arg, struct pl_err *err)
{
	struct pl_ptensor *t = row;
	uint64_t flags = pl_io_get_varint(c), set = flags & T_SET ? pl_io_get_varint(c) : PL_NONE;
	uint64_t stage = flags & T_STAGE ? pl_io_get_varint(c) : 0;

	(void)arg;
	if ((flags & T_SET && set >= PL_PLAN_SETS) || stage >= PL_PLAN_SETS)
		return pl_fail(err, PL_EDATA, "the number of a set or of a stage is out of range");
	t->stage = (int64_t)stage;
	t->set = (uint32_t)set;
	t->estimated = flags & T_ESTIMATED;
	return 0;
}

static const struct pl_record tensor_record = { PL_RECORD("tensor", struct pl_ptensor,
							  tensor_fields),
						.put_rest = put_tensor, .get_rest = get_tensor };

#define FIELD(coding, member) PL_FIELD(coding, struct pl_rewrite, member)
static const struct pl_field rewrite_fields[] = { FIELD(U8, op), FIELD(TEXT, word) };
static const struct pl_field gain_fields[] = { FIELD(I64, k), FIELD(F64, x), FIELD(I64, alone_ns),
					       FIELD(I64, in_plan_ns) };
/* Of rewrites that need them: a time, then the patterns of the selector. */
#define KEY(name, ...) FIELD(TEXT, select.key[PL_SEL_##name]),
static const struct pl_field select_fields[] = { FIELD(I64, to), PL_PLAN_SELECTOR(KEY) };
#undef KEY
static const struct pl_record select_record = { PL_RECORD("rewrite", struct pl_rewrite,
							  select_fields) };
static const struct pl_record gain_record = { PL_RECORD("rewrite", struct pl_rewrite,
							gain_fields) };
#undef FIELD
static const struct pl_field name_fields[] = { { PL_F_TEXT, 0, sizeof(char *) } };
static const struct pl_record name_record = { PL_RECORD("name", char *, name_fields) };

static bool has_selector(unsigned op)
{
	return (op >= PL_RW_SCALE && op <= PL_RW_BATCH) || op == PL_RW_LATENCY ||
	       op == PL_RW_OVERLAP;
}

/* Behind operation and word: the names, then the numbers. */
static int put_rewrite(struct pl_buf *b, const void *row, const void *arg, struct pl_err *err)
{
	const struct pl_rewrite *rw = row;

	(void)arg;
	(void)err;
	pl_io_put_varint(b, rw->n_args);
	for (uint32_t i = 0; i < rw->n_args; i++)
		pl_record_put_fields(b, &name_record, &rw->arg[i]);
	pl_record_put_fields(b, &gain_record, rw);
	if (has_selector(rw->op))
		pl_record_put_fields(b, &select_record, rw);
	return 0;
}

static int get_rewrite(struct pl_cur *c, void *row, void *plan, struct pl_err *err)
{
	struct pl_arena *arena = &((struct pl_plan *)plan)->arena;
	struct pl_rewrite *rw = row;
	uint64_t n = pl_io_get_varint(c);

	if (!rw->word[0])
		rw->word = NULL;
	if (c->bad || n > (size_t)(c->end - c->p))
		return pl_record_get_short(err);
	if (n)
		PL_CHECK(pl_arena_array(arena, &rw->arg, n, sizeof(*rw->arg), err));
	for (; rw->n_args < n; rw->n_args++)
		PL_CHECK(pl_record_get_fields(c, &name_record, &rw->arg[rw->n_args], arena, err));
	PL_CHECK(pl_record_get_fields(c, &gain_record, rw, arena, err));
	rw->to = -1;
	if (c->p == c->end || !has_selector(rw->op)) /* more belongs to a newer version */
		return 0;
	PL_CHECK(pl_record_get_fields(c, &select_record, rw, arena, err));
	rw->select.all = rw->op != PL_RW_LATENCY && rw->op != PL_RW_BATCH;
	for (int i = 0; i < PL_SEL_COUNT_; i++) {
		if (!rw->select.key[i][0])
			rw->select.key[i] = NULL;
		rw->select.all &= !rw->select.key[i];
	}
	return 0;
}

static const struct pl_record rewrite_record = { PL_RECORD("rewrite", struct pl_rewrite,
							   rewrite_fields),
						 .put_rest = put_rewrite, .get_rest = get_rewrite };

/* ---- writing --------------------------------------------------------------------------------- */

static int write_all(struct pl_container_writer *w, const struct pl_plan *p, struct pl_err *err)
{
	struct pl_buf b = { 0 };
	int rc;

	pl_io_put_varint(&b, (p->base ? H_BASE : 0) | (p->complete ? 0 : H_INCOMPLETE) |
				     (p->error_ns != INT64_MIN ? H_ERROR : 0));
	pl_record_put_fields(&b, &head_record, p);
	if (p->error_ns != INT64_MIN)
		pl_record_put_fields(&b, &error_record, p);
	PL_TRY(pl_container_writer_put(w, B_PLAN, BLOCK_VERSION, 1, &b, err));
	PL_TRY(pl_container_writer_put_provenance(w, BLOCK_VERSION, p->provenance.p,
						  p->provenance.n, NULL, err));
	PL_TRY(pl_container_writer_put_table(w, B_TNSR, BLOCK_VERSION, &tensor_record, p->tensor,
					     p->n_tensors, NULL, err));
	PL_TRY(pl_container_writer_put_table(w, B_RWRT, BLOCK_VERSION, &rewrite_record, p->rw,
					     p->n_rw, NULL, err));
	pl_io_put_varint(&b, p->n_tensors);
	pl_io_put_varint(&b, p->n_rw);
	rc = pl_container_writer_put(w, B_TOTL, BLOCK_VERSION, 1, &b, err);
out:
	pl_buf_fini(&b);
	return rc;
}

int pl_plan_write(const struct pl_plan *p, struct pl_out *out, int level, struct pl_err *err)
{
	struct pl_container_writer_opts c = {
		.kind = PL_KIND_PLAN, .major = PL_PLAN_MAJOR, .minor = PL_PLAN_MINOR, .level = level
	};
	struct pl_container_writer *w;
	int rc;

	PL_CHECK(pl_plan_check(p, err));
	for (size_t i = 0; i < p->n_rw; i++)
		c.incompat |= p->rw[i].op == PL_RW_PRIORITY ? F_PRIORITY : 0;
	w = pl_container_writer_open(out, &c, err);
	if (!w)
		return err ? err->code : PL_ENOMEM;
	rc = write_all(w, p, err);
	if (rc >= 0)
		return pl_container_writer_close(w, err);
	pl_container_writer_abort(w);
	return rc;
}

/* ---- reading --------------------------------------------------------------------------------- */

struct reader {
	struct pl_plan *p;
	bool head, totals; /* seen */
};

static int get_head(struct reader *r, struct pl_cur *c, struct pl_err *err)
{
	struct pl_plan *p = r->p;
	uint64_t flags = pl_io_get_varint(c);

	c->bad |= flags > UINT32_MAX;
	PL_CHECK(pl_record_get_fields(c, &head_record, p, &p->arena, err));
	if (flags & H_ERROR)
		PL_CHECK(pl_record_get_fields(c, &error_record, p, &p->arena, err));
	if (!(flags & H_BASE))
		p->base = NULL;
	p->complete = !(flags & H_INCOMPLETE);
	r->head = true;
	return 0;
}

static int get_provenance(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	if (memchr(b->p, 0, b->n))
		return pl_fail(err, PL_EDATA, "provenance with the byte 0");
	return pl_record_get_provenance(&r->p->provenance, b, err);
}

static int get_totals(struct reader *r, struct pl_cur *c, struct pl_err *err)
{
	uint64_t tensors = pl_io_get_varint(c), rewrites = pl_io_get_varint(c);

	if (c->bad)
		return pl_record_get_short(err);
	if (tensors != r->p->n_tensors || rewrites != r->p->n_rw)
		return pl_fail(err, PL_EDATA,
			       "the totals say %llu tensors and %llu rewrites, there are %zu and "
			       "%zu",
			       (unsigned long long)tensors, (unsigned long long)rewrites,
			       r->p->n_tensors, r->p->n_rw);
	r->totals = true;
	return 0;
}

static bool known(uint32_t type)
{
	return type == B_PLAN || type == B_TNSR || type == B_RWRT || type == B_TOTL ||
	       type == PL_BLOCK_PROVENANCE;
}

static int on_block(void *arg, const struct pl_block *b, struct pl_err *err)
{
	struct pl_cur c = { .p = b->p, .end = b->p + b->n };
	struct reader *r = arg;
	struct pl_plan *p = r->p;

	if (!known(b->type))
		return 0;
	if (b->version > BLOCK_VERSION)
		return pl_fail(err, PL_EDATA, "its layout is of version %u, newer than %u",
			       b->version, BLOCK_VERSION);
	if (r->head != (b->type != B_PLAN))
		return pl_fail(err, PL_EDATA,
			       r->head ? "a second head" : "a plan begins with PLAN");
	if (r->totals)
		return pl_fail(err, PL_EDATA, "a block behind the totals");
	if (b->type == B_PLAN)
		return get_head(r, &c, err);
	if (b->type == PL_BLOCK_PROVENANCE)
		return get_provenance(r, b, err);
	if (b->type == B_TOTL)
		return get_totals(r, &c, err);
	if (b->type == B_TNSR && r->p->n_rw)
		return pl_fail(err, PL_EDATA, "tensors behind rewrites");
	if (b->type == B_TNSR)
		return pl_record_get_table(&c, b->count, &tensor_record, &p->tensor, &p->n_tensors,
					   &p->cap_tensors, &p->arena, NULL, err);
	return pl_record_get_table(&c, b->count, &rewrite_record, &p->rw, &p->n_rw, &p->cap_rw,
				   &p->arena, p, err);
}

static int read_binary(struct pl_in *in, const char *name, struct pl_plan *p, struct pl_err *err)
{
	struct pl_container_reader_opts c = { .kind = PL_KIND_PLAN,
					      .major = PL_PLAN_MAJOR,
					      .known = F_PRIORITY };
	struct reader r = { .p = p };
	int rc = pl_container_reader_each(in, &c, "plan", on_block, &r, err);

	if (rc >= 0 && !r.totals)
		rc = pl_fail(err, PL_EDATA, "%s: the plan has no totals: it is not complete", name);
	return rc;
}

int pl_plan_read(struct pl_in *in, const char *name, struct pl_plan *p, struct pl_err *err)
{
	struct pl_err why = { 0 };
	const uint8_t *first;
	int64_t n = pl_in_peek(in, 18, &first, &why);
	int rc = (int)pl_min_i64(n, 0);

	pl_plan_init(p);
	if (rc >= 0) {
		if (pl_container_probe(first, (size_t)n))
			rc = read_binary(in, name, p, &why);
		else
			rc = pl_plan_read_text(in, name, p, &why);
	}
	if (rc >= 0 && (rc = pl_plan_check(p, &why)) < 0)
		pl_wrap(&why, "%s", name);
	if (rc >= 0)
		rc = pl_dup(&p->arena, &p->file, name, &why);
	if (rc < 0)
		pl_plan_fini(p);
	return pl_fail_as(err, &why);
}

int pl_plan_read_file(const char *path, struct pl_plan *p, struct pl_err *err)
{
	struct pl_in *in = pl_in_open(path, err);
	int rc;

	if (!in)
		return err->code;
	rc = pl_plan_read(in, pl_in_name(in), p, err);
	pl_in_close(in);
	return rc;
}
