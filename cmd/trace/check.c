/*
 * --check: every block of a stream is read and checked (CRC, index, totals, end), a trace's events
 * are decoded and what they refer to must exist; files of other formats are read as with --strict.
 */
#include "program.h"

/* All blocks, whatever the stream's kind. */
static int check_container(const char *path, uint32_t *kind, uint64_t *blocks, uint32_t *segments,
			   struct pl_err *err)
{
	const struct pl_container_reader_opts o = { .major = UINT16_MAX, .known = UINT64_MAX };
	struct pl_in *in = pl_in_open(path, err);
	struct pl_container_reader *r = in ? pl_container_reader_open(in, &o, err) : NULL;
	struct pl_block b;
	int rc = r ? 1 : err->code;

	while (rc > 0) {
		rc = pl_container_reader_next(r, &b, err);
		if (rc <= 0)
			break;
		*kind = b.kind;
		*segments += b.type == PL_BLOCK_SEGMENT;
		*blocks += b.type != PL_BLOCK_SEGMENT;
	}
	pl_container_reader_close(r);
	pl_in_close(in);
	return rc;
}

static int count_member(void *arg, uint32_t segment, bool merge, const void *member, size_t n,
			struct pl_err *err)
{
	(void)segment;
	(void)merge;
	(void)member;
	(void)n;
	(void)err;
	++*(uint64_t *)arg;
	return 0;
}

/* native: the stream is ours; else files are recognised, or read as --from says. */
static int check_events(const struct config *c, struct pl_in *in, int32_t order, bool native,
			struct pl_writer *out, const char *name, struct pl_err *err)
{
	uint64_t members = 0;
	const struct pl_trace_reader_opts r = { .raw = count_member, .arg = &members };
	struct pl_import_opts o = import_opts(c);
	const struct pl_importer *force = c->from ? pl_import_find(c->from) : NULL;
	struct pl_import_stats st = { 0 };
	struct pl_inputs_tap t;
	int rc;

	o.order = order;
	pl_inputs_tap_init(&t, NULL, NULL);
	t.check = true;
	if (native) {
		PL_TRY(pl_trace_read(in, &r, &t.sink, err));
		PL_TRY(pl_inputs_tap_check(&t, err));
		pl_write_format(out, "%s: ok: trace%s, %u segments, %llu members, ", name,
				t.merges ? " (merged)" : "", t.segments,
				(unsigned long long)members);
	} else {
		PL_TRY(pl_import_run(in, force, &o, &t.sink, &st, err));
		pl_write_format(out, "%s: ok: ", name);
	}
	pl_write_format(out, "%llu events, %zu ranks\n", (unsigned long long)t.events, t.ranks);
out:
	pl_inputs_tap_fini(&t);
	return rc;
}

static int check_et(const struct config *c, struct pl_in *in, struct pl_writer *out,
		    const char *name, struct pl_err *err)
{
	const struct pl_import_opts o = import_opts(c);
	struct pl_import_stats st = { 0 };
	struct pl_et *et = pl_import_et_new(err);
	int rc;

	if (!et) {
		pl_in_close(in);
		return err->code;
	}
	rc = pl_import_et_load(et, in, &o, &st, err);
	pl_import_et_free(et);
	if (rc >= 0)
		pl_write_format(out, "%s: ok: execution trace\n", name);
	return rc;
}

static int check_one(const struct config *c, struct pl_input *i, int32_t order,
		     struct pl_writer *out, struct pl_err *err)
{
	const char *name = pl_inputs_name(i);
	struct pl_in *in = pl_inputs_open(i, err);
	uint32_t kind = PL_KIND_TRACE, segments = 0;
	uint64_t blocks = 0;
	const uint8_t *p;
	int64_t n = in ? pl_in_peek(in, 64, &p, err) : err->code;
	int rc;

	if (n < 0) {
		pl_in_close(in);
		return err->code;
	}
	if (i->et)
		return check_et(c, in, out, name, err);
	if (c->from || !pl_container_probe(p, (size_t)n))
		return check_events(c, in, order, false, out, name, err);
	if (strcmp(i->path,
		   "-")) /* standard input can be read only once, so it is read as a trace */
		PL_TRY(check_container(i->path, &kind, &blocks, &segments, err));
	rc = 0;
	if (kind == PL_KIND_TRACE)
		rc = check_events(c, in, order, true, out, name, err);
	else
		pl_write_format(out, "%s: ok: %c%c%c%c, %u segments, %llu blocks\n", name,
				(int)(kind & 0xff), (int)(kind >> 8 & 0xff),
				(int)(kind >> 16 & 0xff), (int)(kind >> 24 & 0xff), segments,
				(unsigned long long)blocks);
out:
	pl_in_close(in);
	return rc;
}

int check_all(struct config *c, struct pl_inputs *in, struct pl_err *err)
{
	struct pl_out *out = pl_out_open(c->c.output, false, err);
	struct pl_writer w;
	size_t bad = 0;
	int rc = 0;

	if (!out)
		return err->code;
	pl_write_init(&w, out, 0);
	for (size_t i = 0; rc >= 0 && i < in->n; i++) {
		struct pl_err e = { 0 };

		rc = check_one(c, &in->v[i], (int32_t)i, &w, &e);
		if (rc == PL_EDATA) {
			const char *name = pl_inputs_name(&in->v[i]);

			if (strncmp(e.msg, name, strlen(name)))
				pl_wrap(&e, "%s", name);
			pl_say(&c->c.log, PL_LOG_WARN, "%s", e.msg);
			pl_write_format(&w, "%s: bad\n", name);
			rc = 0;
			bad++;
		} else if (rc < 0) {
			*err = e;
		}
	}
	if (rc >= 0)
		rc = pl_write_end(&w, err);
	else
		pl_write_fini(&w);
	rc = pl_out_finish(out, rc, err);
	if (rc >= 0 && bad)
		rc = pl_fail(err, PL_EDATA, "%zu of %zu inputs did not pass the check", bad, in->n);
	return rc;
}
