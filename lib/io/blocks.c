/* Streams that are a list of blocks: their frame, for all kinds of models. */
#include "io/blocks.h"

#include "io/internal.h"
#include "io/record.h"

struct reader {
	const struct pl_blocks_form *f;
	void *arg;
	bool began, ended;
};

static int on_block(void *arg, const struct pl_block *b, struct pl_err *err)
{
	struct pl_cur c = { .p = b->p, .end = b->p + b->n };
	struct reader *r = arg;
	const struct pl_blocks_form *f = r->f;
	size_t last = f->n_parts - 1, i = 0;

	while (i < f->n_parts && f->part[i].type != b->type)
		i++;
	if (i == f->n_parts)
		return 0;
	if (b->version != f->version)
		return pl_fail(err, PL_EDATA,
			       "its layout is of version %u, and this program reads %u: %s",
			       b->version, f->version, f->remedy);
	if (r->began != (i > 0) || r->ended) {
		char first[8], end[8];

		return pl_fail(err, PL_EDATA, "the blocks of a %s are %s ... %s", f->what,
			       pl_container_kind_name(f->part[0].type, first),
			       pl_container_kind_name(f->part[last].type, end));
	}
	r->began = true;
	r->ended = i == last;
	return f->part[i].get(r->arg, b, &c, err);
}

int pl_blocks_read(struct pl_in *in, const struct pl_blocks_form *f, void *arg, struct pl_err *err)
{
	const struct pl_container_reader_opts c = { .kind = f->kind, .major = f->major };
	struct reader r = { .f = f, .arg = arg };

	PL_CHECK(pl_container_reader_each(in, &c, f->what, on_block, &r, err));
	if (r.ended)
		return 0;
	return pl_fail(err, PL_EDATA,
		       r.began ? "%s: the %s has no end: it is not complete"
			       : "%s: the %s has no beginning: it is of another kind",
		       pl_in_name(in), f->what);
}

int pl_blocks_write(struct pl_out *out, const struct pl_blocks_form *f, int level,
		    int (*put)(const void *arg, struct pl_container_writer *w, struct pl_err *err),
		    const void *arg, struct pl_err *err)
{
	const struct pl_container_writer_opts c = { .kind = f->kind,
						    .major = f->major,
						    .level = level };
	struct pl_container_writer *w = pl_container_writer_open(out, &c, err);
	int rc;

	if (!w)
		return err->code;
	rc = put(arg, w, err);
	if (rc >= 0)
		return pl_container_writer_close(w, err);
	pl_container_writer_abort(w);
	return rc;
}

/* The bytes of the header and of the first block; 0: they are not there. */
static size_t peek_first(struct pl_in *in, const uint8_t **p, struct pl_err *err)
{
	struct pl_container_member m;
	size_t size = 0;

	for (int i = 0; i < 2; i++) {
		int64_t n = pl_in_peek(in, size + PL_MEMBER_MIN + 4, p, err);

		if (n < (int64_t)(size + PL_MEMBER_MIN + 4) ||
		    pl_container_member_parse(&m, *p + size, (size_t)n - size))
			return 0;
		size += m.size;
	}
	return pl_in_peek(in, size, p, err) < (int64_t)size ? 0 : size;
}

static int on_first(void *arg, const struct pl_block *b, struct pl_err *err)
{
	(void)err;
	if (b->type == PL_BLOCK_SEGMENT)
		return 0;
	*(uint32_t *)arg = b->type;
	return PL_ESTOP;
}

bool pl_blocks_is(struct pl_in *in, const struct pl_blocks_form *f)
{
	const struct pl_container_reader_opts c = { .kind = f->kind, .major = f->major };
	struct pl_err ignore = { 0 };
	uint32_t type = PL_BLOCK_SEGMENT;
	const uint8_t *p;
	size_t n = peek_first(in, &p, &ignore);
	struct pl_in *first = n ? pl_in_open_mem(pl_in_name(in), p, n, &ignore) : NULL;

	/* the first block ends it */
	if (first && pl_container_reader_each(first, &c, f->what, on_first, &type, &ignore) >= 0)
		type = PL_BLOCK_SEGMENT;
	pl_in_close(first);
	return type == f->part[0].type;
}
