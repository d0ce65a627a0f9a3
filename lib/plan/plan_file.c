/*
 * Plans as streams, read and written: the binary form of paceline-plan(5); and which form it is.
 *
 * Each tensor and each rewrite is an entry that begins with its size, so that later versions can
 * add to it. A block ends when it is long enough. An entry that announces more names than it has
 * bytes is refused, so that memory is bounded by the input. pl_plan_check() checks the result.
 * Linear.
 */
#include <string.h>

#include "plan/internal.h"

#define BLOCK_VERSION 1
#define TABLE_BYTES   (256u << 10) /* a block of entries ends after this */

#define B_PLAN PL_FOURCC('P', 'L', 'A', 'N')
#define B_TNSR PL_FOURCC('T', 'N', 'S', 'R')
#define B_RWRT PL_FOURCC('R', 'W', 'R', 'T')
#define B_TOTL PL_FOURCC('T', 'O', 'T', 'L')

#define F_PRIORITY 1u /* feature bit: there are rewrites of priority */

#define H_BASE	     1u
#define H_INCOMPLETE 2u
#define T_ESTIMATED  1u
#define T_SET	     2u

/* ---- writing ------------------------------------------------------------------------------------
 */

struct writer {
	struct pl_cwriter *out;
	struct pl_buf b; /* the block */
	struct pl_buf e; /* an entry */
};

static int put_str(struct pl_buf *b, const char *s, struct pl_err *err)
{
	return pl_put_str(b, s ? s : "", s ? strlen(s) : 0, err);
}

static int put_block(struct writer *w, uint32_t type, size_t count, struct pl_err *err)
{
	return pl_cwriter_put(w->out, type, BLOCK_VERSION, (uint32_t)count, &w->b, err);
}

static int write_head(struct writer *w, const struct pl_plan *p, struct pl_err *err)
{
	struct pl_buf *b = &w->b;
	int rc;

	PL_TRY(pl_put_varint(b, (p->base ? H_BASE : 0) | (p->complete ? 0 : H_INCOMPLETE), err));
	PL_TRY(put_str(b, p->base, err));
	PL_TRY(pl_put_varint(b, (uint64_t)p->ranks, err));
	PL_TRY(pl_put_svarint(b, p->baseline_ns, err));
	PL_TRY(pl_put_svarint(b, p->predicted_ns, err));
	PL_TRY(pl_put_svarint(b, p->bound_ns, err));
	PL_TRY(pl_put_svarint(b, p->evaluations, err));
	PL_TRY(pl_put_svarint(b, p->peak_bytes, err));
	PL_TRY(pl_put_svarint(b, p->model_ns, err));
	rc = put_block(w, B_PLAN, 1, err);
out:
	return rc;
}

static int write_provenance(struct writer *w, const struct pl_plan *p, struct pl_err *err)
{
	size_t lines = 0;
	int rc;

	if (!p->provenance.n)
		return 0;
	PL_TRY(pl_buf_put(&w->b, p->provenance.p, p->provenance.n, err));
	if (w->b.p[w->b.n - 1] != '\n')
		PL_TRY(pl_put_u8(&w->b, '\n', err));
	for (size_t i = 0; i < w->b.n; i++)
		lines += w->b.p[i] == '\n';
	rc = put_block(w, PL_BLOCK_PROVENANCE, lines, err);
out:
	return rc;
}

static int put_tensor(struct pl_buf *e, const struct pl_ptensor *t, struct pl_err *err)
{
	int rc;

	PL_TRY(put_str(e, t->name, err));
	PL_TRY(pl_put_varint(e, (uint64_t)t->bytes, err));
	PL_TRY(pl_put_varint(e, (t->estimated ? T_ESTIMATED : 0) | (t->set != PL_NONE ? T_SET : 0),
			     err));
	rc = t->set != PL_NONE ? pl_put_varint(e, t->set, err) : 0;
out:
	return rc;
}

static int put_rewrite(struct pl_buf *e, const struct pl_rewrite *rw, struct pl_err *err)
{
	int rc;

	PL_TRY(pl_put_u8(e, rw->op, err));
	PL_TRY(put_str(e, rw->word, err));
	PL_TRY(pl_put_varint(e, rw->n_args, err));
	for (uint32_t i = 0; i < rw->n_args; i++)
		PL_TRY(put_str(e, rw->arg[i], err));
	PL_TRY(pl_put_svarint(e, rw->k, err));
	PL_TRY(pl_put_f64(e, rw->x, err));
	PL_TRY(pl_put_svarint(e, rw->alone_ns, err));
	rc = pl_put_svarint(e, rw->in_plan_ns, err);
out:
	return rc;
}

static int write_table(struct writer *w, const struct pl_plan *p, uint32_t type, size_t n,
		       struct pl_err *err)
{
	size_t first = 0;
	int rc = 0;

	for (size_t i = 0; i < n; i++) {
		w->e.n = 0;
		if (type == B_TNSR)
			PL_TRY(put_tensor(&w->e, &p->tensor[i], err));
		else
			PL_TRY(put_rewrite(&w->e, &p->rw[i], err));
		PL_TRY(pl_put_str(&w->b, (const char *)w->e.p, w->e.n, err));
		if (w->b.n < TABLE_BYTES && i + 1 < n)
			continue;
		PL_TRY(put_block(w, type, i + 1 - first, err));
		first = i + 1;
	}
out:
	return rc;
}

static int write_all(struct writer *w, const struct pl_plan *p, struct pl_err *err)
{
	int rc;

	PL_TRY(write_head(w, p, err));
	PL_TRY(write_provenance(w, p, err));
	PL_TRY(write_table(w, p, B_TNSR, p->n_tensors, err));
	PL_TRY(write_table(w, p, B_RWRT, p->n_rw, err));
	PL_TRY(pl_put_varint(&w->b, p->n_tensors, err));
	PL_TRY(pl_put_varint(&w->b, p->n_rw, err));
	rc = put_block(w, B_TOTL, 1, err);
out:
	return rc;
}

int pl_plan_write(const struct pl_plan *p, struct pl_out *out, int level, struct pl_err *err)
{
	struct pl_cwriter_opts c = {
		.kind = PL_KIND_PLAN, .major = PL_PLAN_MAJOR, .minor = PL_PLAN_MINOR, .level = level
	};
	struct writer w = { 0 };
	int rc = pl_plan_check(p, err);

	if (rc < 0)
		return rc;
	for (size_t i = 0; i < p->n_rw; i++)
		c.incompat |= p->rw[i].op == PL_RW_PRIORITY ? F_PRIORITY : 0;
	w.out = pl_cwriter_open(out, &c, err);
	if (!w.out)
		return err ? err->code : PL_ENOMEM;
	rc = write_all(&w, p, err);
	if (rc < 0)
		pl_cwriter_abort(w.out);
	else
		rc = pl_cwriter_close(w.out, err);
	pl_buf_fini(&w.b);
	pl_buf_fini(&w.e);
	return rc;
}

/* ---- reading ------------------------------------------------------------------------------------
 */

struct reader {
	struct pl_plan *p;
	bool head, totals; /* seen */
	const char **arg;  /* names of the rewrite being read */
	size_t cap_args;
};

static int cut_short(struct pl_err *err)
{
	return pl_fail(err, PL_EDATA, "it is too short for what it announces");
}

/* A string of the payload, into the arena. */
static int get_str(struct reader *r, struct pl_cur *c, const char **out, struct pl_err *err)
{
	size_t n;
	const char *s = pl_get_str(c, &n);

	if (c->bad)
		return cut_short(err);
	if (memchr(s, 0, n))
		return pl_fail(err, PL_EDATA, "a string with the byte 0");
	return pl_plan_dup_str(&r->p->arena, s, n, out, err);
}

static int get_head(struct reader *r, struct pl_cur *c, struct pl_err *err)
{
	struct pl_plan *p = r->p;
	uint64_t flags = pl_get_varint(c), ranks;
	const char *base;
	int rc = get_str(r, c, &base, err);

	if (rc < 0)
		return rc;
	p->base = flags & H_BASE ? base : NULL;
	p->complete = !(flags & H_INCOMPLETE);
	ranks = pl_get_varint(c);
	p->baseline_ns = pl_get_svarint(c);
	p->predicted_ns = pl_get_svarint(c);
	p->bound_ns = pl_get_svarint(c);
	p->evaluations = pl_get_svarint(c);
	p->peak_bytes = pl_get_svarint(c);
	p->model_ns = pl_get_svarint(c);
	if (c->bad)
		return cut_short(err);
	if (ranks > INT64_MAX)
		return pl_fail(err, PL_EDATA, "a number of workers out of range");
	p->ranks = (int64_t)ranks;
	r->head = true;
	return 0;
}

static int get_provenance(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	struct pl_buf *p = &r->p->provenance;
	int rc;

	if (!b->n)
		return 0;
	if (memchr(b->p, 0, b->n))
		return pl_fail(err, PL_EDATA, "provenance with the byte 0");
	rc = pl_buf_put(p, b->p, b->n, err);
	if (rc >= 0 && b->p[b->n - 1] != '\n')
		rc = pl_buf_put(p, "\n", 1, err);
	return rc;
}

static int get_tensor(struct reader *r, struct pl_cur *c, struct pl_err *err)
{
	struct pl_ptensor t = { 0 };
	uint64_t bytes, flags, set;
	struct pl_plan *p = r->p;
	int rc;

	PL_TRY(get_str(r, c, &t.name, err));
	bytes = pl_get_varint(c);
	flags = pl_get_varint(c);
	set = flags & T_SET ? pl_get_varint(c) : PL_NONE;
	if (c->bad)
		return cut_short(err);
	if (bytes > INT64_MAX)
		return pl_fail(err, PL_EDATA, "a size out of range");
	if (flags & T_SET && set >= PL_PLAN_SETS)
		return pl_fail(err, PL_EDATA, "a set's number out of range");
	t.set = (uint32_t)set;
	t.bytes = (int64_t)bytes;
	t.estimated = flags & T_ESTIMATED;
	PL_TRY(pl_grow(&p->tensor, &p->cap_tensors, p->n_tensors + 1, sizeof(*p->tensor), err));
	p->tensor[p->n_tensors++] = t;
out:
	return rc;
}

static int get_rewrite(struct reader *r, struct pl_cur *c, struct pl_err *err)
{
	struct pl_rewrite rw = { .op = pl_get_u8(c) };
	struct pl_plan *p = r->p;
	uint64_t n;
	int rc;

	PL_TRY(get_str(r, c, &rw.word, err));
	if (!rw.word[0])
		rw.word = NULL;
	n = pl_get_varint(c);
	if (c->bad || n > (size_t)(c->end - c->p))
		return cut_short(err);
	rw.n_args = (uint32_t)n;
	if (n) {
		rw.arg = pl_arena_take(&p->arena, n * sizeof(*rw.arg));
		if (!rw.arg)
			return pl_fail(err, PL_ENOMEM, "out of memory (%u names)", rw.n_args);
	}
	for (uint32_t i = 0; i < rw.n_args; i++)
		PL_TRY(get_str(r, c, &rw.arg[i], err));
	rw.k = pl_get_svarint(c);
	rw.x = pl_get_f64(c);
	rw.alone_ns = pl_get_svarint(c);
	rw.in_plan_ns = pl_get_svarint(c);
	if (c->bad)
		return cut_short(err);
	PL_TRY(pl_grow(&p->rw, &p->cap_rw, p->n_rw + 1, sizeof(*p->rw), err));
	p->rw[p->n_rw++] = rw;
out:
	return rc;
}

static int get_table(struct reader *r, uint32_t type, struct pl_cur *c, uint32_t count,
		     struct pl_err *err)
{
	for (uint32_t i = 0; i < count; i++) {
		size_t n;
		const char *s = pl_get_str(c, &n);
		struct pl_cur e = { .p = (const uint8_t *)s, .end = (const uint8_t *)s + n };
		int rc;

		if (c->bad)
			return cut_short(err);
		rc = type == B_TNSR ? get_tensor(r, &e, err) : get_rewrite(r, &e, err);
		if (rc < 0)
			return pl_wrap(err, "entry %u", i);
	}
	return 0;
}

static int get_totals(struct reader *r, struct pl_cur *c, struct pl_err *err)
{
	uint64_t tensors = pl_get_varint(c), rewrites = pl_get_varint(c);

	if (c->bad)
		return cut_short(err);
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

static int decode(struct reader *r, const struct pl_block *b, struct pl_err *err)
{
	struct pl_cur c = { .p = b->p, .end = b->p + b->n };

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
	return get_table(r, b->type, &c, b->count, err);
}

static int on_block(struct reader *r, const struct pl_block *b, const char *name,
		    struct pl_err *err)
{
	int rc;

	if (b->type == PL_BLOCK_SEGMENT)
		return b->segment
			       ? pl_fail(err, PL_EDATA,
					 "%s: a second plan behind the first; give one at a time",
					 name)
			       : 0;
	if (!known(b->type))
		return 0;
	rc = decode(r, b, err);
	return rc < 0 ? pl_wrap(err, "%s: block %u at byte %lld", name, b->ordinal,
				(long long)b->offset)
		      : rc;
}

int pl_plan_read_binary(struct pl_in *in, const char *name, struct pl_plan *p, struct pl_err *err)
{
	struct pl_creader_opts c = { .kind = PL_KIND_PLAN,
				     .major = PL_PLAN_MAJOR,
				     .known = F_PRIORITY };
	struct reader r = { .p = p };
	struct pl_creader *blocks = pl_creader_open(in, &c, err);
	struct pl_block b;
	int rc = blocks ? 0 : err->code;

	while (rc >= 0 && blocks && (rc = pl_creader_next(blocks, &b, err)) > 0)
		rc = on_block(&r, &b, name, err);
	pl_creader_close(blocks);
	if (rc >= 0 && !r.totals)
		rc = pl_fail(err, PL_EDATA, "%s: the plan has no totals: it is not complete", name);
	if (rc >= 0 && (rc = pl_plan_check(p, err)) < 0)
		pl_wrap(err, "%s", name);
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
			rc = pl_plan_read_binary(in, name, p, &why);
		else
			rc = pl_plan_read_text(in, name, p, &why);
	}
	if (rc >= 0 && (rc = pl_plan_check(p, &why)) < 0)
		pl_wrap(&why, "%s", name);
	if (rc < 0) {
		pl_plan_fini(p);
		if (err && !err->code)
			*err = why;
	}
	return rc < 0 ? rc : 0;
}
