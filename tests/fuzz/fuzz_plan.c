/*
 * Plans, text and binary: what is read can be written, and reads back as the same text; settings of
 * whatever plan come out. Topologies: what is read is whole.
 */
#include <string.h>

#include "fuzz.h"
#include "plan/plan.h"
#include "plan/topology.h"

typedef int (*writer)(const void *p, struct pl_out *out, struct pl_err *err);

static int plan_text(const void *p, struct pl_out *out, struct pl_err *err)
{
	return pl_plan_write_text(p, out, err);
}

static int plan_binary(const void *p, struct pl_out *out, struct pl_err *err)
{
	return pl_plan_write(p, out, 0, err);
}

static int plan_json(const void *p, struct pl_out *out, struct pl_err *err)
{
	return pl_plan_write_json(p, out, err);
}

static void write_all(const void *p, writer w, struct pl_buf *b)
{
	struct pl_err err = { 0 };
	struct pl_out *out = pl_out_open_buf(b, &err);

	FUZZ_CHECK(out && w(p, out, &err) == 0);
	FUZZ_CHECK(pl_out_close(out, &err) == 0);
}

static int read_plan(const uint8_t *data, size_t size, struct pl_plan *p)
{
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	int rc = pl_plan_read(in, "fuzz", p, &err);

	FUZZ_CHECK(rc == 0 || (err.code == rc && err.msg[0]));
	pl_in_close(in);
	return rc;
}

/* Written by w, read, and written as text: the same text? */
static void back(const struct pl_plan *p, writer w, const struct pl_buf *text)
{
	struct pl_buf b = { 0 }, again = { 0 };
	struct pl_plan q;

	write_all(p, w, &b);
	FUZZ_CHECK(read_plan(b.p, b.n, &q) == 0);
	write_all(&q, plan_text, &again);
	FUZZ_CHECK(again.n == text->n && !memcmp(again.p, text->p, text->n));
	pl_plan_fini(&q);
	pl_buf_fini(&b);
	pl_buf_fini(&again);
}

static void settings(const struct pl_plan *p)
{
	for (const struct pl_settings *const *s = pl_settings; *s; s++) {
		struct pl_err err = { 0 };
		struct pl_buf b = { 0 };
		struct pl_out *out = pl_out_open_buf(&b, &err);
		int rc = pl_settings_write(*s, p, out, &err);

		FUZZ_CHECK(rc == 0 || (rc == PL_EDATA && err.msg[0]));
		FUZZ_CHECK(pl_out_close(out, &err) == 0 || rc < 0);
		pl_buf_fini(&b);
	}
}

static void topology(const uint8_t *data, size_t size)
{
	struct pl_topology t;
	struct pl_err err = { 0 };
	struct pl_in *in = pl_in_open_mem("fuzz", data, size, &err);
	int rc = pl_topology_read(in, "fuzz", &t, &err);

	pl_in_close(in);
	FUZZ_CHECK(rc == 0 || err.msg[0]);
	if (rc < 0)
		return;
	for (uint32_t r = 0; r < t.n_ranks && r < 64; r++) {
		const struct pl_thost *h = &t.host[pl_topology_host(&t, r)];

		FUZZ_CHECK(r >= h->first && r - h->first < h->n);
	}
	pl_topology_fini(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct pl_buf text = { 0 }, json = { 0 };
	struct pl_plan p;

	topology(data, size);
	if (read_plan(data, size, &p) < 0)
		return 0;
	write_all(&p, plan_text, &text);
	back(&p, plan_text, &text);
	back(&p, plan_binary, &text);
	write_all(&p, plan_json, &json);
	settings(&p);
	pl_buf_fini(&text);
	pl_buf_fini(&json);
	pl_plan_fini(&p);
	return 0;
}
